/* image_difference.h - measures the difference of two images by the differences of colour values
 * (levels), by PSNR and by SSIM.
 *
 * Levels are the values 0 to 255 of a colour channel. PSNR = 10 log10(255^2 / mean squared
 * difference), over all channels. SSIM is computed as by Wang et al. 2004 (Image quality
 * assessment: from error visibility to structural similarity): Gaussian windows of 11 x 11 pixels
 * with standard deviation 1.5 that lie completely inside the image, K1 = 0.01 and K2 = 0.03,
 * averaged over windows and channels. If a side of the image has fewer than 11 pixels, the window
 * has the largest odd size that fits. */
#ifndef XD_REPORT_IMAGE_DIFFERENCE_H
#define XD_REPORT_IMAGE_DIFFERENCE_H

#include <stdint.h>

#include "base/err.h"

typedef struct xd_difference { /* sums over all compared frames; initialize the struct with {0} */
    int64_t frames, levels; /* number of frames compared so far, and number of levels (0 to 255) */
    double  squared, absolute; /* sums of squared and of absolute differences of levels */
    double  ssim;              /* sum of the SSIM of all frames */
    int     most;              /* maximum difference of two levels (0 to 255) */
    double  worst_squared;     /* sum of the squared differences of levels in frame `worst` */
    int64_t worst;             /* index of the frame with the largest sum of squared differences */
} xd_difference;

/* Compares frames a and b, each h rows of w RGB pixels, and adds their difference to d. Returns
 * XD_ENOMEM if out of memory. */
xd_status xd_difference_add(xd_difference *d, const uint8_t *a, const uint8_t *b, int64_t w,
                            int64_t h, xd_err *e);
/* Returns the PSNR in decibels, infinite if the frames are equal. */
double    xd_difference_psnr(const xd_difference *d);

/* Makes a difference image: the grey level of a pixel is the maximum difference of its three
 * levels, on a logarithmic scale: 0 is black, 1 is 32, 255 is white. The difference image `to` has
 * the size of a frame. */
void xd_difference_map(const uint8_t *a, const uint8_t *b, int64_t w, int64_t h, uint8_t *to);

#endif
