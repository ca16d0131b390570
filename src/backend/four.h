/* four.h - quantization to groups of four-bit integers, on the host
 *
 * A group of 32 numbers becomes a block of XD_Q4_0: x ~ d q, d in f16, q from -8 to 7. Of nine
 * scales, for which the number of largest magnitude becomes -7 to -9, the one is taken whose
 * squared error is least when it is moved to the least squares of its integers. Every instruction
 * set makes the same bits. In the calling thread. */
#ifndef XD_BACKEND_FOUR_H
#define XD_BACKEND_FOUR_H

#include <stdint.h>

enum { XD_FOUR_GROUP = 32 };

/* Quantizes n numbers, whole groups. A group with a NaN or an infinity has the scale NaN. */
void xd_four_quantize(void *to, const float *from, int64_t n);
/* xd_rotation of n numbers, whole groups of `group`, by the kernels of the host. */
void xd_four_rotate(float *x, int64_t n, int64_t group);

#endif
