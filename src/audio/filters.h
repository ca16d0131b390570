/* filters.h - declares filters that change the sampling rate of sound and of feature rows, for each
 * feature separately */
#ifndef XD_AUDIO_FILTERS_H
#define XD_AUDIO_FILTERS_H

#include "exec/op.h"

enum { XD_MAXTAPS = 128 };

typedef struct xd_taps {
    int   n;     /* number of taps */
    int   ratio; /* number of rows at the higher rate for each row at the lower rate */
    /* how many copies of the first and of the last row pad the input when the rate is raised */
    int   edge;
    /* number of rows at the beginning of the result that are removed when the rate is raised */
    int   skip;
    float v[XD_MAXTAPS]; /* the taps */
} xd_taps;

/* Returns a filter against aliasing, for raising and lowering the rate; its taps are not set
 * yet. */
xd_taps xd_taps_antialias(int taps, int ratio);
/* Sets the taps of a filter against aliasing to a sinc in a Kaiser window, as in alias-free-torch:
 * the cutoff is half the lower rate, and the sum of the taps is 1. */
void    xd_taps_kaiser(xd_taps *f);
/* Returns the filter of torchaudio's resampling: a sinc of 6 zero crossings and rolloff 0.99 with a
 * Hann window. */
xd_taps xd_taps_resample(int ratio);
/* Raises the rate: computes `out`, n * ratio rows of C features, from the n rows `in`, F32. */
void    xd_taps_enlarge(xd_exec *x, xd_tensor out, xd_tensor in, const xd_taps *f);
/* Return the number of additional rows that xd_taps_reduce reads before, and after, the rows of the
 * higher rate. */
int     xd_taps_before(const xd_taps *f);
int     xd_taps_after(const xd_taps *f);
/* Lowers the rate: computes the n rows `out` of C features, F32, from n * ratio rows of `in`. `in`
 * also has padding rows at its beginning and end, which xd_taps_reduce first sets to copies of the
 * first and of the last row between them. */
void    xd_taps_reduce(xd_exec *x, xd_tensor out, xd_tensor in, const xd_taps *f);

#endif
