/* orientation.c - reads the orientation in Exif or XMP, and rotates images upright.
 *
 * The rules are those of Pillow's exif_transpose, with which diffusers loads images. Invalid
 * metadata blocks are ignored. Exif data is a TIFF file: a byte order mark, then a directory whose
 * entries have 12 bytes (TIFF 6.0; the tags are those of CIPA DC-008). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "io/codec.h"

enum { ORIENTATION = 0x0112, HEAD = 8, ROW = 12, NAME = 6 };

typedef struct block {
    const uint8_t *p;
    size_t         n;
    int            little;
} block;

/* Reads an integer of `bytes` bytes at offset `at`, which must be inside the block. */
static uint32_t number_at(const block *b, size_t at, int bytes)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++)
        v = v << 8 | b->p[at + (size_t)(b->little ? bytes - 1 - i : i)];
    return v;
}

/* Returns the number of bytes of an integer TIFF type, or 0 if the type is not an integer. */
static int bytes_of(uint32_t type)
{
    return type == 3 || type == 8 ? 2 : type == 4 || type == 9 ? 4 : type == 6 ? 1 : 0;
}

/* Returns the first integer of the directory entry at offset `at`, or -1 if the entry has none. */
static int64_t row_value(const block *b, size_t at)
{
    int      bytes = bytes_of(number_at(b, at + 2, 2));
    uint64_t n = number_at(b, at + 4, 4), from = at + 8;
    if (!bytes || !n)
        return -1;
    if (n * (uint64_t)bytes > 4)
        from = number_at(b, at + 8, 4);
    return from + n * (uint64_t)bytes <= b->n ? (int64_t)number_at(b, (size_t)from, bytes) : -1;
}

/* Returns the orientation in an Exif block, or -1 if there is none. */
static int64_t find_in_exif(block b)
{
    int64_t v = -1;
    for (int i = 0; i < 2 && b.n >= NAME && !memcmp(b.p, "Exif\0\0", NAME); i++)
        b.p += NAME, b.n -= NAME;
    if (b.n < HEAD || (memcmp(b.p, "II*\0", 4) != 0 && memcmp(b.p, "MM\0*", 4) != 0))
        return -1;
    b.little = b.p[0] == 'I';
    size_t at = number_at(&b, 4, 4);
    if (at > b.n || b.n - at < 2)
        return -1;
    int64_t rows = number_at(&b, at, 2);
    for (at += 2; rows-- && b.n - at >= ROW; at += ROW)
        if (number_at(&b, at, 2) == ORIENTATION && row_value(&b, at) >= 0)
            v = row_value(&b, at); /* the last orientation in the directory is used */
    return v;
}

/* Returns the orientation in an XMP block, where tiff:Orientation (such as "6") is an attribute or
 * an element. */
static int find_in_xmp(const uint8_t *p, size_t n)
{
    static const char key[] = "tiff:Orientation";
    enum { KEY = sizeof key - 1 };
    for (size_t i = 0; i + KEY + 2 < n; i++) {
        if (memcmp(p + i, key, KEY) != 0)
            continue;
        size_t at = i + KEY + (p[i + KEY] == '>' ? 1 : 2);
        if ((p[i + KEY] == '>' || !memcmp(p + i + KEY, "=\"", 2)) && at < n && isdigit(p[at]))
            return p[at] - '0';
    }
    return 0;
}

int xd_exif_orientation(const uint8_t *exif, size_t n, const uint8_t *xmp, size_t nxmp)
{
    int64_t v = exif ? find_in_exif((block){ exif, n, 0 }) : -1;
    if (v < 0)
        v = xmp ? find_in_xmp(xmp, nxmp) : 0;
    return v >= 2 && v <= 8 ? (int)v : 0;
}

/* Sets of Exif orientations, as bit masks (bit i for orientation i). The set BACKWARDS has the
 * orientations whose columns are stored in reverse order; in UPWARDS, the rows are stored in
 * reverse order; in SIDEWAYS, rows and columns are transposed. */
enum {
    BACKWARDS = 1 << 2 | 1 << 3 | 1 << 7 | 1 << 8,
    UPWARDS = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7,
    SIDEWAYS = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8
};

xd_status xd_pixels_upright(xd_pixels *p, const char *path, xd_err *e)
{
    int64_t  w = p->w, h = p->h, C = p->channels, step = C, line = C * w;
    int      kind = 1 << p->orientation;
    uint8_t *to = NULL, *out, *from = p->rgb;
    p->orientation = 0;
    if (!p->size_only && !(to = malloc((size_t)(w * h * C))))
        return xd_fail(e, XD_ENOMEM, "%s: no memory to rotate an image of %lldx%lld pixels", path,
                       (long long)w, (long long)h);
    if (kind & SIDEWAYS)
        p->w = h, p->h = w;
    if (p->size_only)
        return XD_OK;
    from += (kind & BACKWARDS ? step * (w - 1) : 0) + (kind & UPWARDS ? line * (h - 1) : 0);
    step = kind & BACKWARDS ? -step : step;
    line = kind & UPWARDS ? -line : line;
    int64_t x_step = kind & SIDEWAYS ? line : step, y_step = kind & SIDEWAYS ? step : line;
    out = to;
    for (int64_t y = 0; y < p->h; y++)
        for (int64_t x = 0; x < p->w; x++, out += C)
            memcpy(out, from + y * y_step + x * x_step, (size_t)C);
    free(p->rgb);
    p->rgb = to;
    return XD_OK;
}
