/* checkpoint.c - see checkpoint.h */
#include "checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scratch.h"

void put_st(const char *name, const char *header, size_t n)
{
    size_t         h = strlen(header), at = 8 + h;
    unsigned char *p = calloc(1, at + n);
    assert_non_null(p);
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)((uint64_t)h >> 8 * i);
    memcpy(p + 8, header, h);
    for (size_t i = 0; i < n; i++)
        p[at + i] = (unsigned char)i;
    scratch_put(name, p, at + n);
    free(p);
}

xd_st *opened(const char *name)
{
    xd_st *s;
    xd_err e = { 0 };
    if (xd_st_open(&s, in_scratch(name), "model", &e) != XD_OK)
        fail_msg("%s: %s", name, e.msg);
    return s;
}
