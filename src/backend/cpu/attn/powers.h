/* powers.h - defines a correction table for powers of two that are computed in fixed point
 * (powers_tmpl.h). Each entry is the difference 1 + f - 2^f for a fraction f of the exponent. The
 * fixed-point method computes the mantissa 1 + f instead of 2^f, so the difference 1 + f - 2^f is
 * subtracted from it. */
#ifndef XD_BACKEND_CPU_ATTN_POWERS_H
#define XD_BACKEND_CPU_ATTN_POWERS_H

enum { XD_POWERS = 64 }; /* number of entries in the correction table */

/* Table of the error of the mantissa 1 + f, in fixed point: 128 (1 + f - 2^f). The index of an
 * entry is the first six bits of the fraction f. */
#define XD_POWERS_LESS \
    0, 1, 1, 2, 2, 3, 4, 4, 5, 5, 5, 6, 6, 7, 7, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 10, 10, 11, \
    11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 10, 10, 10, 10, 10, 9, 9, 9, 8, 8, 8, 7, \
    7, 6, 6, 5, 5, 4, 3, 3, 2, 1, 1

#endif
