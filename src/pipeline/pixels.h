/* pixels.h - converts pixels between bytes and floats, and resizes float pixels. */
#ifndef XD_PIPELINE_PIXELS_H
#define XD_PIPELINE_PIXELS_H

#include "base/err.h"
#include "exec/tokens.h"

/* Converts the bytes of an image with `channels` channels to F32 values in [-1,1]. *out is
 * malloc'ed. */
xd_status xd_pixels_floats(float **out, const uint8_t *rgb, xd_grid size, int channels, xd_err *e);
/* Converts n pixel values in [-1,1] to malloc'ed bytes 0..255. Values halfway between two integers
 * are rounded to even, as in diffusers' VaeImageProcessor. Returns NULL if out of memory. Adds the
 * number of NaN or infinite values to *odd, which may be NULL. */
uint8_t  *xd_pixels_quantize(const float *rgb, int64_t n, int64_t *odd);
/* Resizes (bilinear) an image [from.rows,from.cols,channels] so that it covers [to.rows,to.cols,
 * channels], and crops the excess equally on both sides. The sides of the resized image are rounded
 * down, or up if `up` is 1. */
void xd_pixels_fit(const float *rgb, xd_grid from, float *out, xd_grid to, int channels, int up);
/* Resizes (bilinear) an image [from.rows,from.cols,3] so that it fits into [to.rows,to.cols,3], and
 * fills the uncovered margins, equal on both sides, with the value `ground`. */
void xd_pixels_within(const float *rgb, xd_grid from, float *out, xd_grid to, float ground);

#endif
