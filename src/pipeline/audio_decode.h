/* audio_decode.h - turns the latents of audio into sound. */
#ifndef XD_PIPELINE_AUDIO_DECODE_H
#define XD_PIPELINE_AUDIO_DECODE_H

#include "pipeline/job.h"

/* Returns the number of audio samples of each channel, and sets *channels and *rate. Returns 0 if
 * the request has no audio. */
int64_t   xd_audio_samples(const xd_job *j, int *channels, int *rate);
/* Counts the memory for decoding audio: sets *weights to the bytes of the audio networks' weights,
 * and *bytes to the bytes of scratch memory. On ranks that decode no audio, sets both to 0. */
xd_status xd_audio_count(xd_job *j, size_t *weights, size_t *bytes, xd_err *e);
/* On the first rank of a replica, decodes the latents j->audio_latents to sound, j->wave. Loads the
 * networks that decode audio and, unless the engine keeps its weights, frees them again. */
xd_status xd_audio_decode(xd_job *j, xd_err *e);

#endif
