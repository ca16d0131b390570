/* result.h - collects the result of a request: its images, and the metadata texts for the image
 * files. */
#ifndef XD_PIPELINE_RESULT_H
#define XD_PIPELINE_RESULT_H

#include "pipeline/job.h"
#include "pipeline/text_encode.h"

xd_status    xd_result_open(xd_result **r, const xd_job *j, xd_err *e);
/* Adds image i to the result, which then owns the latents lat [t,C,h,w] and the pixels rgb. lat and
 * rgb are malloc'ed; rgb may be NULL. xd_result_add fails if a pixel is NaN or infinite. */
xd_status    xd_result_add(xd_result *r, xd_job *j, int i, float *lat, float *rgb, xd_err *e);
/* Returns the latents [t,C,h,w] of image i and their number of elements; for tests. */
const float *xd_result_lat(const xd_result *r, int i, int64_t *n);
/* Returns the latents [C,t,F/C] of the audio of image i and their number of elements, for tests;
 * NULL: no audio, or another replica generated the image. */
const float *xd_result_audio_lat(const xd_result *r, int i, int64_t *n);
void         xd_result_time(xd_result *r, const char *part, double seconds);
/* Adds `seconds` to the time that image i has spent in the phase named `part`, such as "denoise" or
 * "decode". */
void         xd_result_image_time(xd_result *r, int i, const char *part, double seconds);
/* Returns an error that says that image i has NaN or infinite values. n is the number of NaN or
 * infinite pixel values; if n is 0, the error is about the latents. */
xd_status    xd_result_fail_odd(const xd_job *j, int i, int64_t n, xd_err *e);
void         xd_result_traffic(xd_result *r, int64_t bytes);
/* Sets the token counts in the metadata of all images. Call xd_result_count_tokens after the
 * prompts are tokenized. */
void         xd_result_count_tokens(xd_result *r, const xd_job *j, const xd_prompts *w);

#endif
