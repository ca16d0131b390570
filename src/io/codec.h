/* codec.h - inside io: a table row per image format, and what their writers share */
#ifndef XD_IO_CODEC_H
#define XD_IO_CODEC_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "io/image.h"

typedef struct xd_pixels {      /* rows of pixels of 3 bytes                                  */
    uint8_t *rgb;
    int64_t  w, h;
    int      size_only;         /* xd_pixels_new keeps the size and fails: nothing is decoded  */
    int      as_mask;           /* reading: what is transparent is white, the rest black, of an
                                   image that is transparent somewhere (xd_pixels_mask)        */
    int      quick;             /* PNG: little time counts more than few bytes                  */
    int      quality;           /* 0 .. 100 of what is written with losses                     */
    int      turn;              /* reading: how the rows lie, as Exif numbers it: 2 to 8; else
                                   upright. A reader sets it before xd_pixels_new              */
} xd_pixels;

typedef struct xd_codec {
    const char *name;           /* "PNG"                                                      */
    const char *const *tails;   /* ".jpg", ".jpeg", NULL                                      */
    int64_t     max_side;       /* pixels                                                     */
    /* Writes to an open file. The caller checks `f` for write errors. */
    xd_status (*write)(FILE *f, const char *path, const xd_pixels *p, const xd_image_text *texts,
                       xd_err *e);      /* NULL: read only, and it has no tails */
    int       (*is)(const uint8_t *data, size_t len);   /* tests the first bytes */
    /* Decodes into p->rgb, which is malloc'ed; `path` is for errors. */
    xd_status (*read)(const uint8_t *data, size_t len, const char *path, xd_pixels *p, xd_err *e);
} xd_codec;

extern const xd_codec xd_codec_png, xd_codec_jpeg, xd_codec_webp, xd_codec_ppm, xd_codec_gif;

/* Allocates an image of w x h, sizes that come from a file. Refuses sizes that are out of range. */
xd_status xd_pixels_new(xd_pixels *p, int64_t w, int64_t h, const char *path, xd_err *e);
/* Fills p->rgb from pixels with alpha, [h,w,4]: with 255 - alpha where any is below 255. */
void      xd_pixels_mask(xd_pixels *p, const uint8_t *rgba);
/* Decodes a complete file of any known format; the image is upright. */
xd_status xd_image_decode(const uint8_t *data, size_t len, const char *path, xd_pixels *p,
                          xd_err *e);
/* The orientation in a block of Exif (with or without "Exif" in front), or if it has none, in one
 * of XMP: 2 to 8; 0: none, or the block is broken. Either may be NULL. */
int       xd_exif_turn(const uint8_t *exif, size_t n, const uint8_t *xmp, size_t nxmp);
/* Makes an image upright, whose p->turn is then 0. */
xd_status xd_pixels_turn(xd_pixels *p, const char *path, xd_err *e);
/* An Exif block (from its TIFF header on) of at most `max` bytes, 1 kB or more. The text
 * "parameters" becomes the UserComment and is cut if it is too long. The others become the
 * ImageDescription if they fit. malloc'ed, *n bytes; NULL if there are no texts or no memory. */
uint8_t  *xd_exif(const xd_image_text *texts, size_t max, size_t *n);
/* All texts as "key: value" lines of at most `max` bytes, cut between characters. malloc'ed;
 * NULL if there are no texts or no memory. */
char     *xd_texts_joined(const xd_image_text *texts, size_t max);

#endif
