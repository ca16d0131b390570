/* image_difference.h - difference of two images: levels, PSNR and SSIM
 *
 * Levels are 0 to 255. PSNR = 10 log10(255^2 / mean squared difference), over all channels. SSIM is
 * that of Wang et al. 2004 (Image quality assessment: from error visibility to structural
 * similarity): Gaussian windows of 11 x 11 pixels with standard deviation 1.5, completely inside
 * the image, K1 0.01, K2 0.03, averaged over windows and channels. If a side is below 11 pixels,
 * the window has the largest odd size that fits. */
#ifndef XD_REPORT_IMAGE_DIFFERENCE_H
#define XD_REPORT_IMAGE_DIFFERENCE_H

#include <stdint.h>

#include "base/err.h"

typedef struct xd_difference {  /* sums over frames; initialize with {0}                       */
    int64_t frames, levels;     /* compared so far                                            */
    double  squared, absolute;  /* sums of differences of levels                              */
    double  ssim;               /* sum over frames                                            */
    int     most;               /* maximum difference of a level                              */
    double  worst_squared;      /* sum of the frame with the largest sum                       */
    int64_t worst;              /* index of that frame                                        */
} xd_difference;

/* Adds a frame of h rows of w RGB pixels. XD_ENOMEM. */
xd_status xd_difference_add(xd_difference *d, const uint8_t *a, const uint8_t *b, int64_t w,
                            int64_t h, xd_err *e);
double    xd_difference_psnr(const xd_difference *d);   /* decibels; infinite: equal            */

/* Makes a difference image: the grey level of a pixel is the maximum difference of its three
 * levels, on a logarithmic scale: 0 is black, 1 is 32, 255 is white. `to` has the size of a
 * frame. */
void      xd_difference_map(const uint8_t *a, const uint8_t *b, int64_t w, int64_t h, uint8_t *to);

#endif
