/* inpaint.h - the part of an image that a mask says to inpaint: cut out, resized, put back
 *
 * Every function computes on bytes as Pillow does where diffusers' VaeImageProcessor calls it, so
 * that results are bitwise equal. */
#ifndef XD_IO_INPAINT_H
#define XD_IO_INPAINT_H

#include <stdint.h>

#include "base/err.h"

/* Pixels from left, top to before right, bottom. */
typedef struct xd_box { int64_t left, top, right, bottom; } xd_box;

/* The brightness of n pixels of 3 bytes, malloc'ed (convert("L")). */
xd_status xd_image_grey(uint8_t **grey, const uint8_t *rgb, int64_t n, xd_err *e);
/* The box of all pixels of the mask that are not 0, `pad` pixels wider at each side, then as much
 * wider or higher as the ratio of to_w and to_h asks and the image has. 0: no pixel is above 0. */
int       xd_mask_region(const uint8_t *grey, int64_t w, int64_t h, int64_t to_w, int64_t to_h,
                         int64_t pad, xd_box *out);
/* Replaces *rgb, whose rows have w pixels, by a box of it. */
xd_status xd_image_crop(uint8_t **rgb, int64_t w, xd_box box, xd_err *e);
/* Resizes so that the whole image is in the new size, in its middle, and continues its edges into
 * the rest (resize_mode="fill"). */
xd_status xd_image_fill(uint8_t **rgb, int64_t w, int64_t h, int64_t to_w, int64_t to_h,
                        xd_err *e);
/* Resizes so that the image covers the new size, and cuts off the rest (resize_mode="crop"). */
xd_status xd_image_cover(uint8_t **rgb, int64_t w, int64_t h, int64_t to_w, int64_t to_h,
                         xd_err *e);
/* Lays n pixels of `over` on `under`, as opaque as the mask is dark (apply_overlay). */
void      xd_image_overlay(uint8_t *under, const uint8_t *over, const uint8_t *grey, int64_t n);

#endif
