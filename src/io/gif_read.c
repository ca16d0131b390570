/* gif_read.c - decodes the first frame of a GIF, like Pillow.
 *
 * A frame may cover only a part of the image. The rest of the image has the transparent colour, or
 * the first colour of the palette. The format is GIF89a, whose LZW codes grow from code size + 1 to
 * 12 bits. */
#include <stdlib.h>
#include <string.h>

#include "io/codec.h"

enum { HEAD = 13, BOX = 9, COLOURS = 256, MAXCODES = 4096, HAS_PALETTE = 0x80, INTERLACED = 0x40 };

typedef struct gif {
    const uint8_t *data;
    size_t         n, at;
    uint8_t        palette[3 * COLOURS];
    int            clear;                 /* index of the transparent colour; -1: none */
    int64_t        left, top, wide, high; /* position and size of the frame in the image */
    int            interlaced;
    xd_pixels     *p;
    /* If not NULL, the decoder writes the pixels with alpha to this array, and does not write
     * p->rgb. */
    uint8_t       *rgba;
    int64_t        x, y; /* position of the next pixel in the frame */
    int            pass; /* current pass (of four) of an interlaced frame */
} gif;

typedef struct codes { /* reader of LZW codes, which are in blocks of up to 255 bytes */
    /* size: bits per code; wait: bits that are read but not decoded; bits: number of bits in
     * `wait`. */
    int      size, bits;
    uint32_t wait;
    size_t   left;       /* number of unread bytes in the current block */
    int      next, last; /* next: code of the next new string; last: previous code, or -1 */
    int16_t  prefix[MAXCODES];
    uint8_t  end[MAXCODES], text[MAXCODES];
} codes;

static int has_bytes(const gif *g, size_t n)
{
    return g->n - g->at >= n;
}

static int64_t read16(const gif *g, size_t at)
{
    return g->data[at] | g->data[at + 1] << 8;
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* Reads a palette. If the GIF has no palette, the colours are greys. Colours after the last entry
 * of a palette are black. */
static int read_palette(gif *g, int flags)
{
    size_t n = (size_t)3 << ((flags & 7) + 1);
    int    greys = 1;
    if (flags & HAS_PALETTE && !has_bytes(g, n))
        return 0;
    for (size_t i = 0; i < n && flags & HAS_PALETTE; i++)
        greys &= g->data[g->at + i] == i / 3;
    for (int i = 0; i < 3 * COLOURS; i++)
        g->palette[i] = (uint8_t)(greys ? i / 3 : 0);
    if (!(flags & HAS_PALETTE))
        return 1;
    memcpy(g->palette, g->data + g->at, n);
    g->at += n;
    return 1;
}

/* Reads the transparent colour from an extension block, and skips the rest of the block. */
static int read_extension(gif *g)
{
    if (!has_bytes(g, 1))
        return 0;
    int control = g->data[g->at++] == 0xf9;
    while (has_bytes(g, 1) && g->data[g->at]) {
        size_t n = g->data[g->at++];
        if (!has_bytes(g, n))
            return 0;
        if (control && n >= 4 && g->data[g->at] & 1)
            g->clear = g->data[g->at + 3];
        control = 0;
        g->at += n;
    }
    g->at++;
    return g->at <= g->n;
}

/* Moves the read position to the data of the first frame. Bytes that do not begin a block are
 * skipped. */
static int find_frame(gif *g)
{
    while (has_bytes(g, 1)) {
        int kind = g->data[g->at++];
        if (kind == '!' && !read_extension(g))
            return 0;
        if (kind == ';')
            return 0;
        if (kind != ',')
            continue;
        if (!has_bytes(g, BOX))
            return 0;
        const size_t at = g->at;
        g->left = read16(g, at), g->top = read16(g, at + 2);
        g->wide = read16(g, at + 4), g->high = read16(g, at + 6);
        g->interlaced = g->data[at + 8] & INTERLACED;
        g->at += BOX;
        return !(g->data[at + 8] & HAS_PALETTE) || read_palette(g, g->data[at + 8]);
    }
    return 0;
}

/* ---- pixels -------------------------------------------------------------------------------- */

static void put_colour(const gif *g, int64_t x, int64_t y, int colour)
{
    int64_t  at = y * g->p->w + x, C = g->rgba ? 4 : g->p->channels;
    uint8_t *to = (g->rgba ? g->rgba : g->p->rgb) + C * at;
    memcpy(to, g->palette + 3 * colour, 3);
    if (C == 4)
        to[3] = colour == g->clear ? 0 : 255;
}

/* Moves the write position to the frame's next row. Each pass of an interlaced frame has every
 * eighth, fourth or second row. */
static void next_row(gif *g)
{
    static const int from[] = { 0, 4, 2, 1 }, step[] = { 8, 8, 4, 2 };
    g->x = 0;
    g->y += g->interlaced ? step[g->pass] : 1;
    while (g->interlaced && g->y >= g->high && g->pass < 3)
        g->y = from[++g->pass];
}

/* Returns the next LZW code, or -1 at the end of the data. */
static int next_code(gif *g, codes *z)
{
    while (z->bits < z->size) {
        if (!z->left && (!has_bytes(g, 1) || !(z->left = g->data[g->at++])))
            return -1;
        if (!has_bytes(g, 1))
            return -1;
        z->wait |= (uint32_t)g->data[g->at++] << z->bits;
        z->bits += 8;
        z->left--;
    }
    int code = (int)(z->wait & ((1u << z->size) - 1));
    z->wait >>= z->size;
    z->bits -= z->size;
    return code;
}

static void put_string(gif *g, codes *z, int code)
{
    int n = 0;
    for (; code >= 0; code = z->prefix[code])
        z->text[n++] = z->end[code];
    while (n && g->y < g->high) {
        put_colour(g, g->left + g->x, g->top + g->y, z->text[--n]);
        if (++g->x == g->wide)
            next_row(g);
    }
}

/* Adds a string to the LZW table. The new string consists of the previously decoded string and one
 * more byte, `end`. */
static void add_string(codes *z, int end)
{
    z->prefix[z->next] = (int16_t)z->last;
    z->end[z->next] = (uint8_t)end;
    z->next++;
    z->size += z->next == 1 << z->size && z->size < 12;
}

static int first_byte(const codes *z, int code)
{
    while (z->prefix[code] >= 0)
        code = z->prefix[code];
    return z->end[code];
}

/* Decodes the frame's pixels. Returns 0 if the data end before the frame is complete. */
static int read_codes(gif *g, codes *z)
{
    int depth = has_bytes(g, 1) ? g->data[g->at++] : 0;
    if (depth < 1 || depth > 11)
        return 0;
    int clear = 1 << depth, code = clear;
    for (int i = 0; i < clear; i++) {
        z->prefix[i] = -1;
        z->end[i] = (uint8_t)i;
    }
    for (; g->y < g->high; code = next_code(g, z)) {
        if (code == clear) {
            z->size = depth + 1;
            z->next = clear + 2;
            z->last = -1;
            continue;
        }
        int known = (code >= 0 && code < clear) || (code > clear + 1 && code < z->next);
        if (!known && (code != z->next || z->last < 0 || z->next == MAXCODES))
            return 0; /* stops at an invalid code, the end code, or the end of data */
        if (z->last >= 0 && z->next < MAXCODES)
            add_string(z, first_byte(z, known ? code : z->last));
        put_string(g, z, code);
        z->last = code;
    }
    return 1;
}

static int read_frame(gif *g)
{
    codes *z = calloc(1, sizeof *z);
    int    background = g->clear >= 0 ? g->clear : 0, good = 0;
    if (g->wide < g->p->w || g->high < g->p->h)
        for (int64_t y = 0; y < g->p->h; y++)
            for (int64_t x = 0; x < g->p->w; x++)
                put_colour(g, x, y, background);
    if (z)
        good = read_codes(g, z);
    free(z);
    return good;
}

static xd_status fail_damaged(const char *path, xd_err *e)
{
    return xd_fail(e, XD_EFORMAT, "%s: GIF: truncated or damaged", path);
}

static xd_status gif_load(const uint8_t *data, size_t len, const char *path, xd_pixels *p,
                          xd_err *e)
{
    gif g = { .data = data, .n = len, .at = HEAD, .clear = -1, .p = p };
    if (len < HEAD || !read_palette(&g, data[10]) || !find_frame(&g) || g.wide < 1 || g.high < 1)
        return fail_damaged(path, e);
    int64_t   w = read16(&g, 6), h = read16(&g, 8);
    xd_status st = xd_pixels_new(p, w > g.left + g.wide ? w : g.left + g.wide,
                                 h > g.top + g.high ? h : g.top + g.high, path, e);
    if (st != XD_OK)
        return st;
    if (p->as_mask && !(g.rgba = malloc((size_t)p->w * (size_t)p->h * 4)))
        return xd_fail(e, XD_ENOMEM, "%s: no memory for a mask", path);
    if (!read_frame(&g))
        st = fail_damaged(path, e);
    else if (g.rgba)
        xd_pixels_mask(p, g.rgba);
    free(g.rgba);
    return st;
}

static int gif_is(const uint8_t *data, size_t len)
{
    return len >= 6 && (!memcmp(data, "GIF87a", 6) || !memcmp(data, "GIF89a", 6));
}

const xd_codec xd_codec_gif = {
    .name = "GIF",
    .tails = (const char *const[]){ NULL },
    .is = gif_is,
    .read = gif_load,
};
