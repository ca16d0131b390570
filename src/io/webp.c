/* webp.c - WebP with libwebp: lossy, texts in an Exif chunk.
 *
 * libwebp encodes images only. This file writes the container of an image and an Exif chunk
 * (VP8X, see the WebP container specification). */
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/encode.h>

#include "io/codec.h"

enum { HAS_EXIF = 0x08, RIFF_HEAD = 12, MAX_TEXT = 1 << 20 };

static void put_le(uint8_t *p, size_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static void put_chunk_head(FILE *f, const char *tag, size_t bytes)
{
    uint8_t size[4];
    put_le(size, bytes, 4);
    fwrite(tag, 1, 4, f);
    fwrite(size, 1, 4, f);
}

/* Writes a VP8X header and the image chunk of `coded`, a complete WebP file with one chunk. */
static void put_extended(FILE *f, const uint8_t *coded, size_t n, const xd_pixels *p,
                         const uint8_t *exif, size_t len)
{
    size_t  image = n - RIFF_HEAD;
    uint8_t x[10] = { HAS_EXIF };
    put_le(x + 4, (size_t)p->w - 1, 3);
    put_le(x + 7, (size_t)p->h - 1, 3);
    put_chunk_head(f, "RIFF", 4 + 8 + sizeof x + image + 8 + len + len % 2);
    fwrite("WEBP", 1, 4, f);
    put_chunk_head(f, "VP8X", sizeof x);
    fwrite(x, 1, sizeof x, f);
    fwrite(coded + RIFF_HEAD, 1, image, f);
    put_chunk_head(f, "EXIF", len);
    fwrite(exif, 1, len, f);
    if (len % 2)
        fputc(0, f);
}

static xd_status webp_save(FILE *f, const char *path, const xd_pixels *p,
                           const xd_image_text *texts, xd_err *e)
{
    uint8_t *coded = NULL;
    size_t   len, n;
    uint8_t *exif = xd_exif(texts, MAX_TEXT, &len);
    n = WebPEncodeRGB(p->rgb, (int)p->w, (int)p->h, (int)p->w * 3, (float)p->quality, &coded);
    if (n < RIFF_HEAD) {
        WebPFree(coded);
        free(exif);
        return xd_fail(e, XD_ENOMEM, "%s: WebP cannot code %lldx%lld pixels", path, (long long)p->w,
                       (long long)p->h);
    }
    if (exif)
        put_extended(f, coded, n, p, exif, len);
    else
        fwrite(coded, 1, n, f);
    WebPFree(coded);
    free(exif);
    return XD_OK;
}

static int webp_is(const uint8_t *data, size_t len)
{
    return len >= RIFF_HEAD && !memcmp(data, "RIFF", 4) && !memcmp(data + 8, "WEBP", 4);
}

static xd_status webp_load(const uint8_t *data, size_t len, const char *path, xd_pixels *p,
                           xd_err *e)
{
    int w = 0, h = 0;
    if (!WebPGetInfo(data, len, &w, &h))
        return xd_fail(e, XD_EFORMAT, "%s: WebP: truncated or damaged", path);
    xd_status st = xd_pixels_new(p, w, h, path, e);
    if (st != XD_OK)
        return st;
    uint8_t *rgba = p->as_mask ? WebPDecodeRGBA(data, len, &w, &h) : NULL;
    if (rgba)
        xd_pixels_mask(p, rgba);
    else if (p->as_mask || !WebPDecodeRGBInto(data, len, p->rgb, (size_t)w * (size_t)h * 3, w * 3))
        st = xd_fail(e, XD_EFORMAT, "%s: WebP: truncated or damaged", path);
    WebPFree(rgba);
    return st;
}

const xd_codec xd_codec_webp = {
    .name = "WebP", .tails = (const char *const[]){ ".webp", NULL },
    .max_side = WEBP_MAX_DIMENSION, .write = webp_save, .is = webp_is, .read = webp_load,
};
