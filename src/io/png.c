/* png.c - writes and reads PNG images with libpng. An image's orientation is read with zlib,
 * without decoding pixels.
 *
 * libpng reports errors by longjmp. Pointers to memory that must be freed after an error are stored
 * in a struct that the function which calls setjmp does not modify itself, because local variables
 * may lose their values in a longjmp. */
#include <errno.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "io/codec.h"

typedef struct session {
    png_structp png;
    png_infop   info;
    const char *path;
    xd_err     *e;
    png_bytepp  rows;
    png_text   *texts; /* [n]: texts to write; their keys and values are freed with this struct */
    int         n;
    const uint8_t *data; /* while reading: address of the next byte; `left` bytes remain */
    size_t         left;
    xd_pixels     *p;
    uint8_t       *rgba;        /* while reading: pixels with alpha; NULL: alpha is not read */
    int            orientation; /* while reading: orientation as in xd_pixels */
} session;

static void on_error(png_structp png, png_const_charp msg)
{
    session *s = png_get_error_ptr(png);
    if (s->data)
        xd_fail(s->e, XD_EFORMAT, "%s: PNG: %s", s->path, msg);
    else
        xd_fail(s->e, XD_EIO, "cannot write %s: %s", s->path, errno ? strerror(errno) : msg);
    longjmp(png_jmpbuf(png), 1);
}

static void on_warning(png_structp png, png_const_charp msg)
{
    (void)png;
    (void)msg;
}

static void session_free(session *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->texts[i].key);
        free(s->texts[i].text);
    }
    free(s->texts);
    free(s->rows);
    free(s->rgba);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Converts UTF-8 to printable Latin-1, the encoding of tEXt. Returns a malloc'ed text, or NULL if a
 * character of s is not in Latin-1. */
static char *to_latin1(const char *s)
{
    char *out = malloc(strlen(s) + 1), *p = out;
    for (const unsigned char *c = (const unsigned char *)s; out && *c; c++) {
        if (*c < 0x80) {
            *p++ = (char)*c;
        } else if ((*c == 0xc2 && c[1] >= 0xa0 && c[1] < 0xc0) ||
                   (*c == 0xc3 && (c[1] & 0xc0) == 0x80)) {
            *p++ = (char)(((*c & 3) << 6) | (c[1] & 0x3f));
            c++;
        } else {
            free(out);
            return NULL;
        }
    }
    if (out)
        *p = 0;
    return out;
}

/* Adds a text to the image file. A PNG key has 1 to 79 characters of Latin-1, which the keys in
 * this program satisfy. */
static xd_status add_text(session *s, const xd_image_text *from)
{
    png_text *t = &s->texts[s->n];
    char     *plain = to_latin1(from->value);
    *t = (png_text){ .compression = plain ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE };
    t->key = strndup(from->key, 79);
    t->text = plain ? plain : strdup(from->value);
    s->n++;
    if (!t->key || !t->text)
        return xd_fail(s->e, XD_ENOMEM, "%s: no memory for its texts", s->path);
    if (plain)
        t->text_length = strlen(t->text);
    else
        t->itxt_length = strlen(t->text);
    return XD_OK;
}

static xd_status write_info(session *s, const xd_pixels *p, const xd_image_text *texts)
{
    size_t n = 0;
    while (texts[n].key)
        n++;
    s->rows = malloc((size_t)p->h * sizeof *s->rows);
    s->texts = calloc(n + 1, sizeof *s->texts);
    if (!s->rows || !s->texts)
        return xd_fail(s->e, XD_ENOMEM, "%s: no memory to write it", s->path);
    for (int64_t i = 0; i < p->h; i++)
        s->rows[i] = p->rgb + i * p->w * p->channels;
    for (size_t i = 0; i < n; i++)
        if (add_text(s, &texts[i]) != XD_OK)
            return XD_ENOMEM;
    return XD_OK;
}

static xd_status write_with(session *s, FILE *f, const xd_pixels *p)
{
    errno = 0;
    if (setjmp(png_jmpbuf(s->png)))
        return XD_EIO;
    png_set_user_limits(s->png, 0x7fffffff, 0x7fffffff);
    png_init_io(s->png, f);
    png_set_IHDR(s->png, s->info, (png_uint_32)p->w, (png_uint_32)p->h, 8,
                 p->channels == 4 ? PNG_COLOR_TYPE_RGB_ALPHA : PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (p->quick) {
        png_set_compression_level(s->png, 1);
        png_set_filter(s->png, PNG_FILTER_TYPE_BASE, PNG_FILTER_PAETH);
    }
    png_set_text(s->png, s->info, s->texts, s->n);
    png_write_info(s->png, s->info);
    png_write_image(s->png, s->rows);
    png_write_end(s->png, s->info);
    return XD_OK;
}

static xd_status png_save(FILE *f, const char *path, const xd_pixels *p, const xd_image_text *texts,
                          xd_err *e)
{
    session   s = { .path = path, .e = e };
    xd_status st = write_info(&s, p, texts);
    if (st == XD_OK) {
        s.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &s, on_error, on_warning);
        s.info = s.png ? png_create_info_struct(s.png) : NULL;
        st = s.info ? write_with(&s, f, p)
                    : xd_fail(e, XD_ENOMEM, "%s: no memory to write it", path);
        png_destroy_write_struct(&s.png, &s.info);
    }
    session_free(&s);
    return st;
}

/* ---- orientation ------------------------------------------------------------------------------
 *
 * Exif is in its own chunk or, as ImageMagick writes it, in a text "Raw profile type exif" in
 * hexadecimal; XMP is in a text, too. Exif and XMP may be before or after the pixels. */

enum { MAX_TEXT = 1 << 20 }; /* max bytes that are read of a compressed text */

typedef struct block {
    uint8_t *p;
    size_t   n;
} block;

static block copied(const uint8_t *p, size_t n)
{
    block b = { malloc(n + 1), n };
    if (!b.p)
        return (block){ NULL, 0 };
    memcpy(b.p, p, n);
    b.p[n] = 0;
    return b;
}

static block unpacked(const uint8_t *p, size_t n)
{
    uLongf len = MAX_TEXT;
    block  b = { malloc(MAX_TEXT + 1), 0 };
    if (b.p && uncompress(b.p, &len, p, (uLong)n) == Z_OK)
        b.n = len;
    if (b.p)
        b.p[b.n] = 0;
    return b;
}

/* Returns the text of a PNG text chunk if the chunk has the key `key`. */
static block text_of(const char *chunk, const uint8_t *p, size_t n, const char *key)
{
    size_t at = strlen(key) + 1;
    if (n < at || memcmp(p, key, at) != 0)
        return (block){ NULL, 0 };
    if (!memcmp(chunk, "tEXt", 4))
        return copied(p + at, n - at);
    if (!memcmp(chunk, "zTXt", 4))
        return n > at ? unpacked(p + at + 1, n - at - 1) : (block){ NULL, 0 };
    /* In an iTXt chunk, the compression method, the language and the translated key come before
     * the text. */
    int packed = n > at && p[at];
    at += 2;
    for (int i = 0; i < 2; i++, at++)
        while (at < n && p[at])
            at++;
    if (at > n)
        return (block){ NULL, 0 };
    return packed ? unpacked(p + at, n - at) : copied(p + at, n - at);
}

static int hex_digit(int c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes a "Raw profile" text in place. The text of a profile has an empty line, the profile's
 * name, its length, and its bytes in hexadecimal. */
static void read_profile(block *b)
{
    size_t at = 0, n = 0;
    int    lines = 3, half = -1;
    for (; at < b->n && lines; at++)
        lines -= b->p[at] == '\n';
    for (; at < b->n; at++) {
        int v = hex_digit(b->p[at]);
        if (v >= 0 && half >= 0)
            b->p[n++] = (uint8_t)(half << 4 | v);
        half = v < 0 ? half : half >= 0 ? -1 : v;
    }
    b->n = n;
}

static void keep_bytes(block *kept, block b)
{
    if (b.p) {
        free(kept->p);
        *kept = b;
    }
}

static size_t chunk_bytes(const uint8_t *p)
{
    return (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
}

static int find_orientation(const uint8_t *data, size_t len)
{
    block exif = { NULL, 0 }, profile = { NULL, 0 }, xmp = { NULL, 0 };
    for (size_t at = 8, n; len - at >= 12; at += 12 + n) {
        const uint8_t *p = data + at + 8;
        const char    *name = (const char *)data + at + 4;
        n = chunk_bytes(data + at);
        if (n > len - at - 12)
            break;
        if (!memcmp(name, "eXIf", 4))
            keep_bytes(&exif, copied(p, n));
        if (!memcmp(name, "tEXt", 4) || !memcmp(name, "zTXt", 4) || !memcmp(name, "iTXt", 4)) {
            keep_bytes(&profile, text_of(name, p, n, "Raw profile type exif"));
            keep_bytes(&xmp, text_of(name, p, n, "XML:com.adobe.xmp"));
        }
    }
    if (!exif.p && profile.p)
        read_profile(&profile);
    const block *from = exif.p ? &exif : &profile;
    int          orientation = xd_exif_orientation(from->p, from->n, xmp.p, xmp.n);
    free(exif.p);
    free(profile.p);
    free(xmp.p);
    return orientation;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int png_is(const uint8_t *data, size_t len)
{
    return len >= 8 && !png_sig_cmp(data, 0, 8);
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    session *s = png_get_io_ptr(png);
    if (n > s->left)
        png_error(png, "the file ends early");
    memcpy(to, s->data, n);
    s->data += n;
    s->left -= n;
}

/* Returns 1 if alpha must be read: the image has alpha and is read as a mask. */
static int reads_alpha(const session *s)
{
    return s->p->as_mask && (png_get_color_type(s->png, s->info) & PNG_COLOR_MASK_ALPHA ||
                             png_get_valid(s->png, s->info, PNG_INFO_tRNS));
}

/* Makes libpng convert any kind of PNG to 8-bit RGB, with alpha if `alpha` is set. An image without
 * alpha becomes opaque if the caller wants 4 channels. */
static void as_rgb(session *s, int alpha)
{
    png_set_expand(s->png);
    png_set_scale_16(s->png);
    png_set_gray_to_rgb(s->png);
    if (!alpha)
        png_set_strip_alpha(s->png);
    else if (s->p->channels == 4)
        png_set_add_alpha(s->png, 255, PNG_FILLER_AFTER);
    png_set_interlace_handling(s->png);
    png_read_update_info(s->png, s->info);
}

static xd_status read_with(session *s)
{
    if (setjmp(png_jmpbuf(s->png)))
        return XD_EFORMAT;
    png_set_read_fn(s->png, s, read_bytes);
    png_read_info(s->png, s->info);
    int mask = reads_alpha(s), alpha = mask || s->p->channels == 4, bytes = alpha ? 4 : 3;
    as_rgb(s, alpha);
    int64_t w = png_get_image_width(s->png, s->info), h = png_get_image_height(s->png, s->info);
    s->p->orientation = s->orientation;
    xd_status st = xd_pixels_new(s->p, w, h, s->path, s->e);
    if (st != XD_OK)
        return st;
    if (png_get_rowbytes(s->png, s->info) != (size_t)(w * bytes))
        png_error(s->png, "rows that are not RGB");
    if (!(s->rows = malloc((size_t)h * sizeof *s->rows)) ||
        (mask && !(s->rgba = malloc((size_t)(w * h) * 4))))
        png_error(s->png, "no memory for its rows");
    for (int64_t i = 0; i < h; i++)
        s->rows[i] = (mask ? s->rgba : s->p->rgb) + i * w * bytes;
    /* Chunk checksums are ignored: zlib's data has its own checksum, and chunks after the pixels do
     * not matter. */
    png_set_crc_action(s->png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
    png_read_image(s->png, s->rows);
    if (mask)
        xd_pixels_mask(s->p, s->rgba);
    return XD_OK;
}

static xd_status png_load(const uint8_t *data, size_t len, const char *path, xd_pixels *p,
                          xd_err *e)
{
    session   s = { .path = path,
                    .e = e,
                    .data = data,
                    .left = len,
                    .p = p,
                    .orientation = find_orientation(data, len) };
    xd_status st;
    s.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &s, on_error, on_warning);
    s.info = s.png ? png_create_info_struct(s.png) : NULL;
    st = s.info ? read_with(&s) : xd_fail(e, XD_ENOMEM, "%s: no memory to read it", path);
    png_destroy_read_struct(&s.png, &s.info, NULL);
    session_free(&s);
    return st;
}

const xd_codec xd_codec_png = {
    .name = "PNG",
    .tails = (const char *const[]){ ".png", NULL },
    .max_side = 1000000,
    .alpha = 1,
    .write = png_save,
    .is = png_is,
    .read = png_load,
};
