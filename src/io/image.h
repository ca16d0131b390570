/* image.h - pictures on disk, written atomically; the format follows the name */
#ifndef XD_IO_IMAGE_H
#define XD_IO_IMAGE_H

#include <stdint.h>

#include "base/err.h"

/* Texts that travel in the file: PNG tEXt/iTXt chunks; a comment elsewhere. NULL ends. */
typedef struct xd_image_text { const char *key, *value; } xd_image_text;

/* rgb: h rows of w pixels of 3 bytes. .png .jpg .jpeg .webp .ppm; XD_EINVAL names the known
 * formats for any other. */
xd_status xd_image_write(const char *path, const uint8_t *rgb, int64_t w, int64_t h,
                         const xd_image_text *texts, xd_err *e);
/* 1: a picture can be written to a name like this. */
int       xd_image_known(const char *path);
/* Reads .png .jpg .jpeg .webp .ppm into malloc'ed RGB. */
xd_status xd_image_read(const char *path, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e);

#endif
