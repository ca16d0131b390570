/* filters.h - declares filters that change the rate of rows, each feature by itself */
#ifndef XD_AUDIO_FILTERS_H
#define XD_AUDIO_FILTERS_H

#include "exec/op.h"

enum { XD_MAXTAPS = 128 };

typedef struct xd_taps {
    int   n;             /* number of taps */
    int   ratio;         /* number of rows of the higher rate for each row of the lower one */
    int   edge;          /* how often the first and the last row are repeated, to enlarge */
    int   skip;          /* number of rows of the higher rate that are then dropped in front */
    float v[XD_MAXTAPS]; /* the taps */
} xd_taps;

/* Returns a filter against aliasing without its taps, for both directions. */
xd_taps xd_taps_antialias(int taps, int ratio);
/* Sets the taps of a filter against aliasing to a sinc in a Kaiser window, as in alias-free-torch:
 * a cutoff of half the lower rate, and taps whose sum is 1. */
void    xd_taps_kaiser(xd_taps *f);
/* Returns the filter of torchaudio's resampling: a sinc of 6 zero crossings and rolloff 0.99 with a
 * Hann window. */
xd_taps xd_taps_resample(int ratio);
/* Computes out [n ratio,C] of in [n,C], F32. */
void    xd_taps_enlarge(xd_exec *x, xd_tensor out, xd_tensor in, const xd_taps *f);
/* Numbers of rows before and after those of the higher rate that xd_taps_reduce reads. */
int     xd_taps_before(const xd_taps *f);
int     xd_taps_after(const xd_taps *f);
/* Computes out [n,C] of in [before + n ratio + after,C], F32. Sets the rows before and after to the
 * first and the last one of the others. */
void    xd_taps_reduce(xd_exec *x, xd_tensor out, xd_tensor in, const xd_taps *f);

#endif
