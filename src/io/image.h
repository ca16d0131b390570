/* image.h - image files, written atomically; the extension selects the format */
#ifndef XD_IO_IMAGE_H
#define XD_IO_IMAGE_H

#include <stdint.h>

#include "base/err.h"
#include "base/facts.h"

/* UTF-8 texts that are stored in the file; the list ends with a NULL key. PNG: one tEXt chunk
 * each, iTXt if the text is not Latin-1. JPEG and WebP: Exif, where "parameters" is the
 * UserComment, without its key, and the other texts are the ImageDescription (exif.c). The
 * comment of a JPEG or PPM: "key: value" lines. */
typedef struct xd_image_text { const char *key, *value; } xd_image_text;

enum { XD_IMAGE_QUALITY = 95 }; /* default quality of JPEG and WebP                            */
/* Writes an image. rgb: h rows of w pixels of 3 bytes. texts may be NULL; a PNG without texts (a
 * preview) is compressed faster and less. Formats: .png .jpg .jpeg .webp .ppm. XD_EINVAL for any
 * other extension; the message names the known ones. */
xd_status xd_image_write(const char *path, const uint8_t *rgb, int64_t w, int64_t h,
                         const xd_image_text *texts, xd_err *e);
/* As xd_image_write, with the quality of JPEG and WebP, 0 to 100; negative: XD_IMAGE_QUALITY. */
xd_status xd_image_write_at(const char *path, const uint8_t *rgb, int64_t w, int64_t h,
                            int quality, const xd_image_text *texts, xd_err *e);
/* Returns 1 if the extension is that of an image format that can be written. */
int       xd_image_known(const char *path);
/* Reads PNG, JPEG, WebP, GIF or PPM, whatever the extension, into malloc'ed RGB, like diffusers'
 * load_image: rotated upright by the Exif orientation, the first frame of an animation, without
 * alpha. */
xd_status xd_image_read(const char *path, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e);
/* Reads a mask. If a PNG, WebP or GIF has transparent pixels, the mask is its transparency: white
 * where transparent. */
xd_status xd_image_read_mask(const char *path, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e);

/* Reads only the size of the upright image, from the file's header. */
xd_status xd_image_size(const char *path, int64_t *w, int64_t *h, xd_err *e);

/* Resizes w x h pixels with Pillow's Lanczos filter; *rgb is replaced. */
xd_status xd_image_resize(uint8_t **rgb, int64_t w, int64_t h, int64_t to_w, int64_t to_h,
                          xd_err *e);
/* As xd_image_resize, with another of Pillow's filters. */
typedef enum xd_filter { XD_LANCZOS, XD_BICUBIC, XD_BILINEAR } xd_filter;
xd_status xd_image_resize_by(uint8_t **rgb, xd_filter f, int64_t w, int64_t h, int64_t to_w,
                             int64_t to_h, xd_err *e);

/* Reports the image and video libraries and their versions. */
void      xd_image_about(xd_fact *fact, void *cookie);

#endif
