/* image.c - reads and writes image files. When an image is written, the file name's extension
 * selects the format; when it is read, the file's first bytes do. The PPM format is read and
 * written in this file. */
#include "io/image.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/json.h"
#include "io/codec.h"

static const xd_codec *const codecs[] = { &xd_codec_png, &xd_codec_jpeg, &xd_codec_webp,
                                          &xd_codec_ppm, &xd_codec_gif };
enum { NCODECS = sizeof codecs / sizeof *codecs };
static const size_t  max_file = (size_t)1 << 30; /* max bytes of an image file */
static const int64_t max_pixels = (int64_t)1 << 29;

static const xd_codec *by_tail(const char *path)
{
    const char *dot = strrchr(path, '.');
    for (int i = 0; dot && i < NCODECS; i++)
        for (int k = 0; codecs[i]->tails[k]; k++)
            if (!strcasecmp(dot, codecs[i]->tails[k]))
                return codecs[i];
    return NULL;
}

int xd_image_known(const char *path)
{
    return by_tail(path) != NULL;
}

xd_status xd_image_write(const char *path, const uint8_t *rgb, int64_t w, int64_t h,
                         const xd_image_text *texts, xd_err *e)
{
    return xd_image_write_at(path, rgb, w, h, -1, texts, e);
}

xd_status xd_image_write_at(const char *path, const uint8_t *rgb, int64_t w, int64_t h, int quality,
                            const xd_image_text *texts, xd_err *e)
{
    return xd_image_write_picture(path, &(xd_picture){ rgb, w, h, 3 }, quality, texts, e);
}

int xd_image_has_alpha(const char *path)
{
    const xd_codec *c = by_tail(path);
    return c && c->alpha;
}

/* Writes a checked image to a file of format c. */
static xd_status write_file(const xd_codec *c, const char *path, const xd_pixels *p,
                            const xd_image_text *texts, xd_err *e)
{
    static const xd_image_text none = { NULL, NULL };
    xd_out                     o;
    xd_status                  st = xd_out_open(&o, path, e);
    if (st != XD_OK)
        return st;
    st = c->write(o.f, path, p, texts ? texts : &none, e);
    if (st == XD_OK)
        return xd_out_commit(&o, e);
    xd_out_abort(&o);
    return st;
}

xd_status xd_image_write_picture(const char *path, const xd_picture *im, int quality,
                                 const xd_image_text *texts, xd_err *e)
{
    const xd_codec *c = by_tail(path);
    int64_t         w = im->w, h = im->h;
    xd_pixels       p = { .rgb = (uint8_t *)im->data,
                          .w = w,
                          .h = h,
                          .channels = im->channels,
                          .quick = !texts,
                          .quality = quality < 0 ? XD_IMAGE_QUALITY : quality };
    if (quality > 100)
        return xd_fail(e, XD_EINVAL, "%s: quality is %d; it must be from 0 to 100", path, quality);
    if (!c)
        return xd_fail(e, XD_EINVAL,
                       "%s has no image extension; use .png, .jpg, .jpeg, .webp or "
                       ".ppm",
                       path);
    if (w < 1 || h < 1 || w > c->max_side || h > c->max_side)
        return xd_fail(e, XD_EINVAL,
                       "%s: %s images have sides of 1 to %lld pixels, not "
                       "%lldx%lld",
                       path, c->name, (long long)c->max_side, (long long)w, (long long)h);
    if (p.channels == 3 || c->alpha)
        return write_file(c, path, &p, texts, e);
    p.channels = 3;
    if (!(p.rgb = xd_image_on_white(im->data, w * h)))
        return xd_fail(e, XD_ENOMEM, "%s: no memory to write it", path);
    xd_status st = write_file(c, path, &p, texts, e);
    free(p.rgb);
    return st;
}

void xd_pixels_opaque(xd_pixels *p)
{
    for (int64_t i = p->w * p->h - 1; i >= 0 && p->channels == 4; i--) {
        memmove(p->rgb + 4 * i, p->rgb + 3 * i, 3);
        p->rgb[4 * i + 3] = 255;
    }
}

xd_status xd_pixels_new(xd_pixels *p, int64_t w, int64_t h, const char *path, xd_err *e)
{
    if (w < 1 || h < 1 || w > max_pixels / h)
        return xd_fail(e, XD_EFORMAT, "%s: an image of %lldx%lld pixels is not supported", path,
                       (long long)w, (long long)h);
    *p = (xd_pixels){ .w = w,
                      .h = h,
                      .channels = p->channels,
                      .size_only = p->size_only,
                      .as_mask = p->as_mask,
                      .orientation = p->orientation };
    if (p->size_only)
        return XD_ECANCELLED;
    p->rgb = malloc((size_t)w * (size_t)h * (size_t)p->channels);
    if (!p->rgb)
        return xd_fail(e, XD_ENOMEM, "%s: no memory for an image of %lldx%lld pixels", path,
                       (long long)w, (long long)h);
    return XD_OK;
}

void xd_pixels_mask(xd_pixels *p, const uint8_t *rgba)
{
    int64_t n = p->w * p->h;
    int     all = 255;
    for (int64_t i = 0; i < n; i++)
        all &= rgba[4 * i + 3];
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < 3; c++)
            p->rgb[3 * i + c] = (uint8_t)(all == 255 ? rgba[4 * i + c] : 255 - rgba[4 * i + 3]);
}

/* Decodes the bytes of a complete file of any known format, and rotates the image upright. */
static xd_status decode_image(const uint8_t *data, size_t len, const char *path, xd_pixels *p,
                              xd_err *e)
{
    *p = (xd_pixels){ .channels = p->channels, .size_only = p->size_only, .as_mask = p->as_mask };
    for (int i = 0; i < NCODECS; i++)
        if (codecs[i]->is(data, len)) {
            xd_status st = codecs[i]->read(data, len, path, p, e);
            if (p->orientation && (st == XD_OK || (st == XD_ECANCELLED && p->size_only)))
                st = xd_pixels_upright(p, path, e) == XD_OK ? st : XD_ENOMEM;
            if (st != XD_OK) {
                free(p->rgb);
                p->rgb = NULL;
            }
            return st;
        }
    return xd_fail(e, XD_EFORMAT, "%s is not an image in PNG, JPEG, WebP, GIF or PPM format", path);
}

static xd_status read_image(const char *path, xd_pixels p, uint8_t **rgb, int64_t *w, int64_t *h,
                            xd_err *e)
{
    char     *data = NULL;
    size_t    len = 0;
    xd_status st = xd_file_read(path, max_file, &data, &len, e);
    if (st == XD_OK)
        st = decode_image((const uint8_t *)data, len, path, &p, e);
    free(data);
    *rgb = p.rgb;
    *w = p.w;
    *h = p.h;
    return st;
}

xd_status xd_image_read(const char *path, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e)
{
    return read_image(path, (xd_pixels){ .channels = 3 }, rgb, w, h, e);
}

xd_status xd_image_read_alpha(const char *path, uint8_t **rgba, int64_t *w, int64_t *h, xd_err *e)
{
    return read_image(path, (xd_pixels){ .channels = 4 }, rgba, w, h, e);
}

xd_status xd_image_read_mask(const char *path, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e)
{
    return read_image(path, (xd_pixels){ .channels = 3, .as_mask = 1 }, rgb, w, h, e);
}

xd_status xd_image_size(const char *path, int64_t *w, int64_t *h, xd_err *e)
{
    char     *data = NULL;
    size_t    len = 0;
    xd_pixels p = { .channels = 3, .size_only = 1 };
    xd_status st = xd_file_read(path, max_file, &data, &len, e);
    if (st == XD_OK)
        st = decode_image((const uint8_t *)data, len, path, &p, e);
    free(data);
    *w = p.w;
    *h = p.h;
    return st == XD_ECANCELLED ? XD_OK : st;
}

char *xd_texts_joined(const xd_image_text *texts, size_t max)
{
    xd_text_buf b = { 0 };
    for (; texts->key; texts++)
        xd_buf_add(&b, "%s%s: %s", b.len ? "\n" : "", texts->key, texts->value);
    if (b.failed || !b.p) {
        xd_buf_free(&b);
        return NULL;
    }
    if (b.len > max) {
        while (max && ((unsigned char)b.p[max] & 0xc0) == 0x80)
            max--;
        b.p[max] = 0;
    }
    return b.p;
}

/* ---- PPM: "P6", comments, width, height, 255, pixels --------------------------------------- */

static xd_status ppm_write(FILE *f, const char *path, const xd_pixels *p,
                           const xd_image_text *texts, xd_err *e)
{
    char *note = xd_texts_joined(texts, 65536);
    (void)path;
    (void)e;
    fprintf(f, "P6\n");
    for (char *line = note, *end; line; line = end) {
        if ((end = strchr(line, '\n')))
            *end++ = 0;
        fprintf(f, "# %s\n", line);
    }
    fprintf(f, "%lld %lld\n255\n", (long long)p->w, (long long)p->h);
    fwrite(p->rgb, 3, (size_t)(p->w * p->h), f);
    free(note);
    return XD_OK;
}

static int ppm_is(const uint8_t *data, size_t len)
{
    return len > 2 && data[0] == 'P' && data[1] == '6' && (isspace(data[2]) || data[2] == '#');
}

/* Returns the next number of a PPM header, after white space and comments, or -1 if there is
 * none. */
static int64_t ppm_number(const uint8_t *data, size_t len, size_t *at)
{
    int64_t n = 0;
    while (*at < len && (isspace(data[*at]) || data[*at] == '#'))
        if (data[(*at)++] == '#')
            while (*at < len && data[*at] != '\n')
                (*at)++;
    if (*at >= len || !isdigit(data[*at]))
        return -1;
    for (; *at < len && isdigit(data[*at]) && n < 1000000000; (*at)++)
        n = 10 * n + (data[*at] - '0');
    return n;
}

static xd_status ppm_read(const uint8_t *data, size_t len, const char *path, xd_pixels *p,
                          xd_err *e)
{
    size_t  at = 2;
    int64_t w = ppm_number(data, len, &at), h = ppm_number(data, len, &at);
    int64_t top = ppm_number(data, len, &at);
    if (top != 255)
        return xd_fail(e, XD_EFORMAT, "%s: not a PPM with 8 bits per channel", path);
    at++;
    if (w < 1 || h < 1 || at > len || (uint64_t)w > (len - at) / 3 / (uint64_t)h)
        return xd_fail(e, XD_EFORMAT,
                       "%s is truncated: %lldx%lld pixels do not fit in its %zu "
                       "bytes",
                       path, (long long)w, (long long)h, len);
    xd_status st = xd_pixels_new(p, w, h, path, e);
    if (st == XD_OK)
        memcpy(p->rgb, data + at, (size_t)(w * h) * 3);
    if (st == XD_OK)
        xd_pixels_opaque(p);
    return st;
}

const xd_codec xd_codec_ppm = {
    .name = "PPM",
    .tails = (const char *const[]){ ".ppm", NULL },
    .max_side = 999999999,
    .write = ppm_write,
    .is = ppm_is,
    .read = ppm_read,
};
