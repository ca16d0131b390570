/* audio.h - declares the networks that turn latents of audio into sound: the decoder of an
 * autoencoder of spectrograms, and a vocoder. */
#ifndef XD_AUDIO_AUDIO_H
#define XD_AUDIO_AUDIO_H

#include "exec/net.h"

typedef struct xd_audio_info {
    int64_t in, out; /* number of features of a row of the input (in) and of the output (out) */
    int     rate;    /* samples per second of the output; 0: the output is a spectrogram */
} xd_audio_info;

/* An audio network, whose input and output have one row for each point in time. */
typedef struct xd_audio {
    xd_net_def net;
    void       (*info)(const void *cfg, xd_audio_info *out);
    /* Returns the number of output rows of the network for n input rows. */
    int64_t    (*rows)(const void *cfg, int64_t n);
    /* Computes `out`, F32, in the caller's memory, from n input rows `in`, F32; the function `rows`
     * gives the number of output rows. `run` allocates scratch memory from the arena x->tmp and
     * rewinds the arena. */
    void       (*run)(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out);
} xd_audio;

extern const xd_audio *const xd_audios[]; /* all audio networks; the array ends with NULL */

#endif
