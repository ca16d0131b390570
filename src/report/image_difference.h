/* image_difference.h - how far two images are apart: level differences, PSNR and SSIM
 *
 * Levels are 0 to 255. PSNR = 10 log10(255^2 / mean squared difference), over all channels. SSIM is
 * that of Wang et al. 2004 (Image quality assessment: from error visibility to structural
 * similarity): Gaussian windows of 11 x 11 pixels with a standard deviation of 1.5 that lie in the
 * image as a whole, K1 0.01, K2 0.03, the mean over windows and channels. An image with a side
 * below 11 pixels has the largest odd window that fits. */
#ifndef XD_REPORT_IMAGE_DIFFERENCE_H
#define XD_REPORT_IMAGE_DIFFERENCE_H

#include <stdint.h>

#include "base/err.h"

typedef struct xd_difference {  /* sums over frames; {0} before the first                      */
    int64_t frames, levels;     /* compared so far                                            */
    double  squared, absolute;  /* sums of differences of levels                              */
    double  ssim;               /* sum over frames                                            */
    int     most;               /* largest difference of a level                              */
    double  worst_squared;      /* of the frame with the largest sum                           */
    int64_t worst;              /* that frame                                                 */
} xd_difference;

/* Adds a frame of h rows of w pixels of RGB. XD_ENOMEM. */
xd_status xd_difference_add(xd_difference *d, const uint8_t *a, const uint8_t *b, int64_t w,
                            int64_t h, xd_err *e);
double    xd_difference_psnr(const xd_difference *d);   /* decibels; infinite: equal            */

/* An image of where: grey of the largest difference of a pixel's three levels, on a logarithmic
 * scale on which 0 is black, 1 is 32 and 255 is white. `to` has the size of a frame. */
void      xd_difference_map(const uint8_t *a, const uint8_t *b, int64_t w, int64_t h, uint8_t *to);

#endif
