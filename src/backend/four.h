/* four.h - quantizes floats to groups of four-bit integers, on the host.
 *
 * A group of 32 elements becomes a block of XD_Q4_0: x ~ d q, with a scale d in f16 and integers q
 * from -8 to 7. The quantizer tries nine scales, which map the element with the largest magnitude
 * to values from -7 to -9. For each scale, the elements are rounded to integers q, and the scale is
 * then refined by least squares. Of the nine scales, the one with the smallest squared error is
 * used. The kernels of all instruction sets produce bit-identical blocks. The quantizer runs in the
 * calling thread. */
#ifndef XD_BACKEND_FOUR_H
#define XD_BACKEND_FOUR_H

#include <stdint.h>

enum { XD_FOUR_GROUP = 32 };

/* Quantizes n elements; n is a multiple of 32. A group of 32 elements with a NaN or an infinity
 * gets the scale NaN. */
void xd_four_quantize(void *to, const float *from, int64_t n);
/* Applies xd_rotation to each group of `group` elements of x, with the host's kernels; n is a
 * multiple of `group`. */
void xd_four_rotate(float *x, int64_t n, int64_t group);

#endif
