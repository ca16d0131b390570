/* fuzz.h - what the targets share.
 *
 * A target is one function that takes any bytes at all. libFuzzer calls it (make fuzz), and
 * replay.c calls it with every file of the corpus (make check). A broken promise of the code
 * under test ends the process. */
#ifndef XD_TESTS_FUZZ_H
#define XD_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                              \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);  \
            abort();                                                                 \
        }                                                                            \
    } while (0)

#endif
