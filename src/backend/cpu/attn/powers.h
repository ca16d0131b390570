/* powers.h - a correction table for powers of two in fixed point: the excess of the mantissa 1 + f
 * over 2^f */
#ifndef XD_BACKEND_CPU_ATTN_POWERS_H
#define XD_BACKEND_CPU_ATTN_POWERS_H

enum { XD_POWERS = 64 };        /* entries of the table                                       */

/* 128 (1 + f - 2^f), the excess of the mantissa, for the first six bits of f. */
#define XD_POWERS_LESS \
    0, 1, 1, 2, 2, 3, 4, 4, 5, 5, 5, 6, 6, 7, 7, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 10, 10, 11, \
    11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 10, 10, 10, 10, 10, 9, 9, 9, 8, 8, 8, 7, \
    7, 6, 6, 5, 5, 4, 3, 3, 2, 1, 1

#endif
