/* codec.h - inside io: one row an image format, and what their writers share */
#ifndef XD_IO_CODEC_H
#define XD_IO_CODEC_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "io/image.h"

typedef struct xd_pixels {      /* rows of 3 bytes a pixel                                    */
    uint8_t *rgb;
    int64_t  w, h;
} xd_pixels;

typedef struct xd_codec {
    const char *name;           /* "PNG"                                                      */
    const char *const *tails;   /* ".jpg", ".jpeg", NULL                                      */
    int64_t     max_side;       /* pixels                                                     */
    /* Writes to an open file; write errors of `f` itself are found by its owner. */
    xd_status (*write)(FILE *f, const char *path, const xd_pixels *p, const xd_image_text *texts,
                       xd_err *e);
    int       (*is)(const uint8_t *data, size_t len);   /* by the first bytes                  */
    /* Decodes into malloc'ed p->rgb; `path` is for errors. */
    xd_status (*read)(const uint8_t *data, size_t len, const char *path, xd_pixels *p, xd_err *e);
} xd_codec;

extern const xd_codec xd_codec_png, xd_codec_jpeg, xd_codec_webp, xd_codec_ppm;

/* Memory for an image that a file claims to be w x h; refuses what no file of ours has. */
xd_status xd_pixels_new(xd_pixels *p, int64_t w, int64_t h, const char *path, xd_err *e);
/* Decodes a whole file of any known format. */
xd_status xd_image_decode(const uint8_t *data, size_t len, const char *path, xd_pixels *p,
                          xd_err *e);
/* An Exif block (from its TIFF header on) of at most `max` bytes, 1 kB or more: the text
 * "parameters" is its UserComment, cut where it is too long, and the others its ImageDescription
 * where they fit. malloc'ed, *n bytes; NULL when there are none or without memory. */
uint8_t  *xd_exif(const xd_image_text *texts, size_t max, size_t *n);
/* "key: value" lines of all texts, at most `max` bytes, cut between characters; malloc'ed, NULL
 * when there are none or without memory. */
char     *xd_texts_joined(const xd_image_text *texts, size_t max);

#endif
