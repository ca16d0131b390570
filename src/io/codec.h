/* codec.h - used only in src/io: declares the interface that each image format implements, and
 * functions that the formats share. */
#ifndef XD_IO_CODEC_H
#define XD_IO_CODEC_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "io/image.h"

typedef struct xd_pixels { /* an image in memory, as rows of pixels of `channels` bytes */
    uint8_t *rgb;
    int64_t  w, h;
    /* Number of bytes of a pixel, 3 for RGB or 4 for RGB and alpha. The caller sets `channels`
     * before an image is read. */
    int      channels;
    /* 1: only the size of the image is read; xd_pixels_new stores the size and then returns an
     * error, so that no pixels are decoded. */
    int      size_only;
    /* 1: an image with transparent pixels is read as a mask, which is white where the image is
     * transparent (xd_pixels_mask). */
    int      as_mask;
    int      quick;   /* 1: a PNG is compressed faster, into a larger file */
    int      quality; /* quality of lossy image formats: 0 to 100 */
    /* Exif orientation of an image that is read. The values 2 to 8 describe a rotated or mirrored
     * image; any other value means an upright image. The function `read` of a format sets the
     * orientation before it calls xd_pixels_new. */
    int      orientation;
} xd_pixels;

typedef struct xd_codec {
    const char        *name;     /* name of the image format, "PNG" */
    const char *const *tails;    /* file name extensions: ".jpg", ".jpeg", NULL */
    int64_t            max_side; /* maximum number of pixels per side */
    int                alpha;    /* 1: files of this format may have alpha */
    /* Writes an image to an open file. The caller of `write` checks `f` for write errors. `write`
     * is NULL if images of this format are read but not written; the list `tails` is then empty. */
    xd_status (*write)(FILE *f, const char *path, const xd_pixels *p, const xd_image_text *texts,
                       xd_err *e);
    /* Returns 1 if the first bytes of a file show that it has this image format. */
    int       (*is)(const uint8_t *data, size_t len);
    /* Decodes a file's bytes to p->rgb, which is malloc'ed. path: name of the file in errors. */
    xd_status (*read)(const uint8_t *data, size_t len, const char *path, xd_pixels *p, xd_err *e);
} xd_codec;

extern const xd_codec xd_codec_png, xd_codec_jpeg, xd_codec_webp, xd_codec_ppm, xd_codec_gif;

/* If p->channels is 4, converts the RGB pixels at the beginning of p->rgb in place to opaque pixels
 * with alpha. */
void      xd_pixels_opaque(xd_pixels *p);
/* Allocates p->rgb for w x h pixels, a size read from the file `path`. Refuses image sizes that are
 * out of range. */
xd_status xd_pixels_new(xd_pixels *p, int64_t w, int64_t h, const char *path, xd_err *e);
/* Makes a mask from pixels with alpha, [h,w,4], and stores the mask in p->rgb. If the alpha of any
 * pixel is below 255, the mask is 255 - alpha; otherwise the mask consists of the pixels'
 * colours. */
void      xd_pixels_mask(xd_pixels *p, const uint8_t *rgba);
/* Returns the orientation (2 to 8) that the Exif metadata `exif` (with or without the prefix
 * "Exif") or else the XMP metadata `xmp` contain. Returns 0 if both contain no orientation or are
 * invalid. `exif` and `xmp` may be NULL. */
int       xd_exif_orientation(const uint8_t *exif, size_t n, const uint8_t *xmp, size_t nxmp);
/* Rotates or mirrors an image so that it is upright, and sets p->orientation to 0. */
xd_status xd_pixels_upright(xd_pixels *p, const char *path, xd_err *e);
/* Makes Exif metadata, beginning with the TIFF header, that contain an image's texts. max: maximum
 * size of the metadata in bytes, at least 1 kB. The text "parameters" becomes the field
 * UserComment, truncated if it is too long. All other texts become the field ImageDescription, if
 * they fit into `max` bytes. Returns malloc'ed memory of *n bytes, or NULL if the image has no
 * texts or if out of memory. */
uint8_t  *xd_exif(const xd_image_text *texts, size_t max, size_t *n);
/* Joins all texts of an image as lines "key: value", truncated at a character boundary to at most
 * `max` bytes. Returns malloc'ed memory, or NULL if the image has no texts or if out of memory. */
char     *xd_texts_joined(const xd_image_text *texts, size_t max);

#endif
