/* gif.c - writes animated GIFs that loop forever, with dithering and one palette for all frames.
 *
 * The format is GIF89a with Netscape's extension block for loops. GIF counts delays in hundredths
 * of a second. Each frame ends at the hundredth of a second that is nearest to the frame's exact
 * end time, so that the duration of the film is kept. Viewers treat a delay of less than two
 * hundredths of a second as ten hundredths, so a GIF has at most 50 frames per second. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/codec.h"
#include "io/palette.h"
#include "io/vcodec.h"

enum { MIN_DELAY = 2, HASH = 1 << 13, MAXCODES = 4096, MAX_COMMENT = 1 << 16 };

static void put16(FILE *f, int64_t v)
{
    fputc((int)(v & 255), f);
    fputc((int)(v >> 8 & 255), f);
}

/* ---- LZW ----------------------------------------------------------------------------------- */

typedef struct lzw {
    FILE    *f;
    uint8_t  block[255];
    /* have: number of bytes in `block`; wait: bits that are not in `block` yet; bits: number of
     * bits in `wait`; size: bits per code */
    int      have, bits, size;
    uint32_t wait;
    int      next; /* code that the next new string gets */
    /* Hash key of a string: (code of the string's prefix) << 8 | last byte; -1: free slot. */
    int32_t  key[HASH];
    int16_t  code[HASH];
} lzw;

static void flush_block(lzw *z)
{
    if (!z->have)
        return;
    fputc(z->have, z->f);
    fwrite(z->block, 1, (size_t)z->have, z->f);
    z->have = 0;
}

static void put_byte(lzw *z)
{
    z->block[z->have++] = (uint8_t)(z->wait & 255);
    z->wait >>= 8;
    z->bits -= 8;
    if (z->have == 255)
        flush_block(z);
}

static void put_code(lzw *z, int code)
{
    z->wait |= (uint32_t)code << z->bits;
    z->bits += z->size;
    while (z->bits >= 8)
        put_byte(z);
}

static void restart_lzw(lzw *z, int depth)
{
    put_code(z, 1 << depth);
    memset(z->key, -1, sizeof z->key);
    z->next = (1 << depth) + 2;
    z->size = depth + 1;
}

/* Returns the hash-table slot of a string's key, or a free slot if the table does not have the
 * string. */
static int place_of(const lzw *z, int32_t key)
{
    int at = (int)((uint32_t)key * 2654435761u >> 19);
    while (z->key[at] >= 0 && z->key[at] != key)
        at = (at + 1) % HASH;
    return at;
}

static void put_pixels(lzw *z, const uint8_t *px, int64_t n, int depth)
{
    int prefix = px[0];
    fputc(depth, z->f);
    z->size = depth + 1;
    z->wait = 0;
    z->bits = z->have = 0;
    restart_lzw(z, depth);
    for (int64_t i = 1; i < n; i++) {
        int32_t key = prefix << 8 | px[i];
        int     at = place_of(z, key);
        if (z->key[at] == key) {
            prefix = z->code[at];
            continue;
        }
        put_code(z, prefix);
        if (z->next == MAXCODES) {
            restart_lzw(z, depth);
        } else {
            z->key[at] = key;
            z->code[at] = (int16_t)z->next;
            z->size += z->next++ >> z->size;
        }
        prefix = px[i];
    }
    put_code(z, prefix);
    z->size += z->next >> z->size && z->next < MAXCODES; /* decoders have one more code here */
    put_code(z, (1 << depth) + 1);
    while (z->bits > 0)
        put_byte(z);
    flush_block(z);
    fputc(0, z->f);
}

/* ---- blocks -------------------------------------------------------------------------------- */

static int depth_of(int colours)
{
    int depth = 2; /* GIF's LZW code size is at least 2 */
    while (1 << depth < colours)
        depth++;
    return depth;
}

static void put_head(FILE *f, const xd_film *film, const xd_palette *p, int depth)
{
    fputs("GIF89a", f);
    put16(f, film->w);
    put16(f, film->h);
    /* Flags of the GIF header: the file has a palette of 2^depth colours with 8 bits per
     * channel. */
    fputc(0xf0 | (depth - 1), f);
    put16(f, 0);
    for (int i = 0; i < 1 << depth; i++)
        fwrite(p->rgb[i < p->n ? i : 0], 1, 3, f);
    fwrite("!\xff\x0bNETSCAPE2.0\3\1\0\0", 1, 19, f);
}

static void put_comment(FILE *f, const xd_image_text *texts)
{
    char  *note = xd_texts_joined(texts, MAX_COMMENT);
    size_t len = note ? strlen(note) : 0;
    if (len)
        fwrite("!\xfe", 1, 2, f);
    for (size_t at = 0; at < len; at += 255) {
        size_t n = len - at < 255 ? len - at : 255;
        fputc((int)n, f);
        fwrite(note + at, 1, n, f);
    }
    if (len)
        fputc(0, f);
    free(note);
}

static void put_frame(FILE *f, const xd_film *film, int64_t delay)
{
    /* Graphic control extension: when the next frame is drawn, this frame is not erased. */
    fwrite("!\xf9\4\4", 1, 4, f);
    put16(f, delay);
    put16(f, 0);
    fputc(',', f);
    put16(f, 0);
    put16(f, 0);
    put16(f, film->w);
    put16(f, film->h);
    fputc(0, f);
}

static int64_t centiseconds(int64_t frames, double fps)
{
    return llround((double)frames * 100 / fps);
}

static xd_status gif_write(const xd_vcodec *c, xd_out *o, const xd_film *film,
                           const xd_image_text *texts, xd_err *e)
{
    int64_t     size = film->w * film->h, end = 0;
    xd_palette *p = malloc(sizeof *p);
    lzw        *z = malloc(sizeof *z);
    uint8_t    *px = malloc((size_t)size);
    int        *err = malloc(sizeof *err * (size_t)(film->w + 2) * 6);
    xd_status   st = p && z && px && err
                         ? xd_palette_make(p, film->rgb, size * film->n, e)
                         : xd_fail(e, XD_ENOMEM, "%s: no memory for a %s of %lldx%lld", o->path,
                                   c->name, (long long)film->w, (long long)film->h);
    if (st == XD_OK) {
        int depth = depth_of(p->n);
        z->f = o->f;
        put_head(o->f, film, p, depth);
        put_comment(o->f, texts);
        for (int64_t i = 0; i < film->n; i++) {
            int64_t delay = centiseconds(i + 1, film->fps) - end;
            delay = delay < MIN_DELAY ? MIN_DELAY : delay > 65535 ? 65535 : delay;
            end += delay;
            put_frame(o->f, film, delay);
            xd_palette_draw(p, px, film->rgb + i * size * 3, film->w, film->h, err);
            put_pixels(z, px, size, depth);
        }
        fputc(';', o->f);
    }
    free(p), free(z), free(px), free(err);
    return st;
}

const xd_vcodec xd_vcodec_gif = {
    .name = "GIF", .tail = ".gif", .max_side = 65535, .write = gif_write
};
