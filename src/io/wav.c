/* wav.c - writes sound to WAV files (RIFF, PCM of 16 bits) */
#include "io/wav.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"

enum { HEAD = 44, BLOCK = 4096 };

int xd_wav_known(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && strcasecmp(dot, ".wav") == 0;
}

static void put_le(uint8_t *to, uint32_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

/* Writes the header, of which all numbers are little-endian. */
static void make_head(uint8_t head[HEAD], const xd_sound *s, uint32_t bytes)
{
    const uint32_t frame = 2 * (uint32_t)s->channels;
    memcpy(head, "RIFF    WAVEfmt ", 16);
    put_le(head + 4, bytes + HEAD - 8, 4);
    put_le(head + 16, 16, 4);
    put_le(head + 20, 1, 2); /* PCM */
    put_le(head + 22, (uint32_t)s->channels, 2);
    put_le(head + 24, (uint32_t)s->rate, 4);
    put_le(head + 28, (uint32_t)s->rate * frame, 4);
    put_le(head + 32, frame, 2);
    put_le(head + 34, 16, 2);
    memcpy(head + 36, "data", 4);
    put_le(head + 40, bytes, 4);
}

static int write_samples(FILE *f, const xd_sound *s)
{
    uint8_t buf[2 * BLOCK];
    int64_t n = s->n * s->channels;
    for (int64_t at = 0; at < n;) {
        size_t k = 0;
        for (; k < BLOCK && at < n; k++, at++) {
            float v = fminf(fmaxf(s->samples[at], -1), 1) * 32767;
            put_le(buf + 2 * k, (uint32_t)(int32_t)v, 2);
        }
        if (fwrite(buf, 2, k, f) != k)
            return 0;
    }
    return 1;
}

xd_status xd_wav_write(const char *path, const xd_sound *s, xd_err *e)
{
    xd_out        out;
    uint8_t       head[HEAD];
    const int64_t bytes = 2 * s->n * s->channels;
    if (bytes > (int64_t)UINT32_MAX - HEAD)
        return xd_fail(e, XD_EINVAL, "%s: %lld samples are too many for a WAV file", path,
                       (long long)s->n);
    xd_status st = xd_out_open(&out, path, e);
    if (st != XD_OK)
        return st;
    make_head(head, s, (uint32_t)bytes);
    if (fwrite(head, 1, HEAD, out.f) != HEAD || !write_samples(out.f, s)) {
        st = xd_fail(e, XD_EIO, "cannot write %s: %s", path, strerror(errno));
        xd_out_abort(&out);
        return st;
    }
    return xd_out_commit(&out, e);
}
