/* inpaint.h - declares functions that inpaint only the masked part of an image: they crop an image
 * to the mask, resize the crop, and paste the result back.
 *
 * Every function computes on bytes as Pillow does in diffusers' VaeImageProcessor, so that results
 * are bit-identical. */
#ifndef XD_IO_INPAINT_H
#define XD_IO_INPAINT_H

#include <stdint.h>

#include "base/err.h"

/* A rectangle of pixels: columns [left, right), rows [top, bottom). */
typedef struct xd_box { int64_t left, top, right, bottom; } xd_box;

/* Converts n RGB pixels to grey levels, one malloc'ed byte per pixel, as Pillow's convert("L")
 * does. */
xd_status xd_image_grey(uint8_t **grey, const uint8_t *rgb, int64_t n, xd_err *e);
/* Finds the bounding box of the mask's nonzero pixels and enlarges the box twice: by `pad` pixels
 * on each side, then to the aspect ratio to_w : to_h. The enlarged box never exceeds the image.
 * Returns 0 if all pixels of the mask are 0. */
int       xd_mask_region(const uint8_t *grey, int64_t w, int64_t h, int64_t to_w, int64_t to_h,
                         int64_t pad, xd_box *out);
/* Crops the image *rgb, whose rows have w pixels, to a box. */
xd_status xd_image_crop(uint8_t **rgb, int64_t w, xd_box box, xd_err *e);
/* Resizes the image to fit into the new size, centres it, and fills the margins with copies of its
 * edge pixels (resize_mode="fill"). */
xd_status xd_image_fill(uint8_t **rgb, int64_t w, int64_t h, int64_t to_w, int64_t to_h, xd_err *e);
/* Resizes the image to fit into the new size, centred, and fills the rest with black. */
xd_status xd_image_inset(uint8_t **rgb, int64_t w, int64_t h, int64_t to_w, int64_t to_h,
                         xd_err *e);
/* Resizes the image to cover the new size and crops it to the centre (resize_mode="crop"). */
xd_status xd_image_cover(uint8_t **rgb, int64_t w, int64_t h, int64_t to_w, int64_t to_h,
                         xd_err *e);
/* Blends n pixels of `over` onto `under`, with opacity 1 where the mask `grey` is black
 * (apply_overlay of diffusers). */
void      xd_image_overlay(uint8_t *under, const uint8_t *over, const uint8_t *grey, int64_t n);

#endif
