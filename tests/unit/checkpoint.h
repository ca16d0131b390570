/* checkpoint.h - for tests: small checkpoints made in the scratch directory, header by header */
#ifndef XD_TESTS_CHECKPOINT_H
#define XD_TESTS_CHECKPOINT_H

#include "io/safetensors.h"
#include "scratch.h"

/* One tensor of a header: name, dtype, extents, where its data begins and ends. */
#define T(name, dtype, shape, places)                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" places "]}"

/* A file of a header and n bytes of data: 0, 1, 2, ... */
static void put_st(const char *name, const char *header, size_t n)
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

static xd_st *opened(const char *name)
{
    xd_st *s;
    xd_err e = { 0 };
    if (xd_st_open(&s, in_scratch(name), "model", &e) != XD_OK)
        fail_msg("%s: %s", name, e.msg);
    return s;
}

#endif
