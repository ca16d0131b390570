/* checkpoint.h - for tests: small checkpoints made in the scratch directory, header by header */
#ifndef XD_TESTS_CHECKPOINT_H
#define XD_TESTS_CHECKPOINT_H

#include "io/safetensors.h"
#include "scratch.h"

/* One tensor of a header: name, dtype, extents, where its data begins and ends. */
#define T(name, dtype, shape, places)                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" places "]}"

/* Writes a file of a header and n bytes of data (0, 1, 2, ...) to the scratch directory. */
void   put_st(const char *name, const char *header, size_t n);
/* The checkpoint of that name in the scratch directory; the test fails where it cannot be
 * opened. */
xd_st *opened(const char *name);

#endif
