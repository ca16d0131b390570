/* result.h - the images of a request and their texts (metadata) */
#ifndef XD_PIPELINE_RESULT_H
#define XD_PIPELINE_RESULT_H

#include "pipeline/job.h"
#include "pipeline/text_encode.h"

xd_status xd_result_open(xd_result **r, const xd_job *j, xd_err *e);
/* Takes ownership of the latents [t,C,h,w] and the pixels (both malloc'ed; rgb may be
 * NULL) of image i. Fails if a pixel is NaN or infinite. */
xd_status xd_result_add(xd_result *r, const xd_job *j, int i, float *lat, float *rgb, xd_err *e);
/* Latents [t,C,h,w] of image i and their number of elements; for tests. */
const float *xd_result_lat(const xd_result *r, int i, int64_t *n);
void      xd_result_time(xd_result *r, const char *part, double seconds);
/* Adds the time of a part for one image. */
void      xd_result_image_time(xd_result *r, int i, const char *part, double seconds);
/* The sentence for an image with numbers that are NaN or infinite, of which nothing can be shown:
 * `n` of its pixels, which the autoencoder made, or (0) of its latents. */
xd_status xd_result_fail_odd(const xd_job *j, int i, int64_t n, xd_err *e);
/* [-1,1] -> 0..255, malloc'ed; NULL: out of memory. Adds to *odd, which may be NULL, how many are
 * NaN or infinite. */
uint8_t  *xd_pixels_quantize(const float *rgb, int64_t n, int64_t *odd);
void      xd_result_traffic(xd_result *r, int64_t bytes);
/* Notes how many tokens all images have, once the prompts are tokenized. */
void      xd_result_count_tokens(xd_result *r, const xd_job *j, const xd_prompts *w);

#endif
