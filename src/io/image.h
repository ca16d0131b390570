/* image.h - reads, writes and resizes images. Image files are written atomically, and the file name
 * extension selects the format. */
#ifndef XD_IO_IMAGE_H
#define XD_IO_IMAGE_H

#include <stdint.h>

#include "base/err.h"

/* UTF-8 texts that are stored in an image file; the list ends with a NULL key. In a PNG, each text
 * is a tEXt chunk, or an iTXt chunk if it is not Latin-1. In JPEG and WebP, the text "parameters"
 * becomes the Exif field UserComment, without the key, and the other texts become the Exif field
 * ImageDescription (exif.c). The comment of a JPEG or PPM contains a line "key: value" for each
 * text. */
typedef struct xd_image_text { const char *key, *value; } xd_image_text;

enum { XD_IMAGE_QUALITY = 95 }; /* default quality of JPEG and WebP */
/* Writes an image. rgb: h rows of w pixels of 3 bytes. The list of texts may be NULL. A PNG without
 * texts is assumed to be a preview and is compressed faster, into a larger file. Image formats that
 * can be written: .png .jpg .jpeg .webp .ppm. Returns XD_EINVAL for any other extension; the error
 * message lists the known extensions. */
xd_status xd_image_write(const char *path, const uint8_t *rgb, int64_t w, int64_t h,
                         const xd_image_text *texts, xd_err *e);
/* Writes an image as xd_image_write does, but uses the given quality, 0 to 100, for JPEG and WebP.
 * A negative `quality` stands for the default, XD_IMAGE_QUALITY. */
xd_status xd_image_write_at(const char *path, const uint8_t *rgb, int64_t w, int64_t h, int quality,
                            const xd_image_text *texts, xd_err *e);
/* Writes an image with pixels of 3 bytes, or of 4 bytes: RGB and alpha. If the image format has no
 * alpha channel (xd_image_has_alpha), the image is written as it looks on white. */
typedef struct xd_picture {
    const uint8_t *data;
    int64_t        w, h;
    int            channels;
} xd_picture;
xd_status xd_image_write_picture(const char *path, const xd_picture *im, int quality,
                                 const xd_image_text *texts, xd_err *e);
/* Returns 1 if the file name extension of `path` is that of an image format with alpha. */
int       xd_image_has_alpha(const char *path);
/* Converts n pixels with alpha to RGB as they look on white, rounded like Pillow's alpha_composite.
 * Returns malloc'ed memory, or NULL if out of memory. */
uint8_t  *xd_image_on_white(const uint8_t *rgba, int64_t n);
/* Returns 1 if the file name extension of `path` belongs to an image format that can be written. */
int       xd_image_known(const char *path);
/* Reads a PNG, JPEG, WebP, GIF or PPM file, whatever its extension, into malloc'ed RGB. As in
 * diffusers' load_image, the image is rotated upright by the Exif orientation, only the first frame
 * of an animation is read, and alpha is ignored. */
xd_status xd_image_read(const char *path, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e);
/* Reads an image file as xd_image_read does, but into malloc'ed pixels of 4 bytes: RGB and alpha.
 * Alpha is 255 if the image has no alpha channel. */
xd_status xd_image_read_alpha(const char *path, uint8_t **rgba, int64_t *w, int64_t *h, xd_err *e);
/* Reads an image file as a mask. If a PNG, WebP or GIF has transparent pixels, the mask is white
 * where the image is transparent; otherwise, the mask is the image itself. */
xd_status xd_image_read_mask(const char *path, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e);

/* Reads only the size of the image after rotation to upright, from the file's header. */
xd_status xd_image_size(const char *path, int64_t *w, int64_t *h, xd_err *e);

/* Resizes an image of w x h pixels with Pillow's Lanczos filter, and replaces *rgb by the new
 * image. */
xd_status xd_image_resize(uint8_t **rgb, int64_t w, int64_t h, int64_t to_w, int64_t to_h,
                          xd_err *e);
/* Resizes an image as xd_image_resize does, with another of Pillow's filters. */
typedef enum xd_filter { XD_LANCZOS, XD_BICUBIC, XD_BILINEAR } xd_filter;
xd_status xd_image_resize_by(uint8_t **rgb, xd_filter f, int64_t w, int64_t h, int64_t to_w,
                             int64_t to_h, xd_err *e);
/* Resizes an image of pixels of 4 bytes, RGB and alpha, with Pillow's Lanczos filter. As in Pillow,
 * colours are multiplied by alpha before resizing and divided by it afterwards. */
xd_status xd_image_resize_alpha(uint8_t **rgba, int64_t w, int64_t h, int64_t to_w, int64_t to_h,
                                xd_err *e);

/* Reports the image and video libraries and their versions. */
void xd_image_about(xd_fact *fact, void *cookie);

#endif
