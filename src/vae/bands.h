/* bands.h - used only in src/vae: computes the convolution of a feature map a few rows at a time.
 *
 * The input of a convolution is a normalized or an upsampled map, which need not be completely in
 * memory. A buffer contains some rows of the input and their neighbouring rows, and the convolution
 * runs on the buffer. The number of rows in the buffer does not affect the result of the
 * convolution. */
#ifndef XD_VAE_BANDS_H
#define XD_VAE_BANDS_H

#include "exec/op.h"

typedef struct xd_feed { /* input of a convolution, with an optional norm before the convolution */
    xd_tensor      in;   /* this rank's rows of the input, [1,H,W,C] */
    /* Sums of a group norm, which is applied to the input before the convolution and is followed by
     * SiLU; NULL: no group norm. */
    const xd_gsum *sum;
    int            rms; /* 1: RMS norm over channels, followed by SiLU */
    xd_tensor      gain, bias;
    float          eps;
} xd_feed;

/* Computes to = silu(rms_norm(from) * gain). `to` and `from` are contiguous maps of C channels. */
void xd_band_rms(xd_exec *x, xd_tensor to, xd_tensor from, xd_tensor gain, float eps);

/* Describes the computation out = conv(input) + plus, or out = conv(input) + shortcut(from), where
 * `feed` describes the input of the convolution. The rows of `out` [1,H',W',C'] may share memory
 * with the rows of `from`. The rows of `out` may share memory with the rows of the convolution's
 * input only if the input has no norm. If `out` shares memory, its rows are computed one after the
 * other: from last to first if `last_first` is 1, else from first to last. */
typedef struct xd_banded {
    xd_feed       feed;
    /* Weights of the convolution; weights of the 1x1 shortcut, or NULL. */
    const xd_cnv *w, *shortcut;
    /* plus: a tensor with the shape of `out` that is added to the result; it may be `out` itself,
     * or absent */
    xd_tensor     out, plus, from;
    /* Output [H',G,2] F64: the group norm sums of the rows of `out`. If `partial` is absent, no
     * sums are computed. */
    xd_tensor     partial;
    int           stride, lo[3], hi[3];
    /* Gain and bias of an RMS norm over the channels of each pixel of the convolution's result,
     * before `plus` (which must be `out`) is added. If out_gain is absent, the result is not
     * normalized. */
    xd_tensor     out_gain, out_bias;
    float         out_eps;
    int           over; /* 1: rows of out share memory with rows of feed.in */
    int           last_first;
} xd_banded;
void xd_band_conv(xd_exec *x, const xd_banded *a);

/* Doubles the rows and columns of in [1,H,W,C] by repeating each pixel 2 x 2 times, then applies a
 * 3 x 3 convolution. For each of the four output pixels of an input pixel, `w` has one set of
 * weights (xd_w_conv_enlarged). out [1,2H,2W,C'] may begin at the address of `in`. If `partial` is
 * present, the group norm sums of the rows of `out` are written to it, as in xd_banded. */
void xd_band_enlarge(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv w[4], xd_tensor partial);

/* A band of rows [first, first + n) of a map. `in` [1,above + n + below,W,C] is a copy of these
 * rows, with `above` neighbouring rows above and `below` neighbouring rows below; these are fewer
 * at the image's edges. */
typedef struct xd_band {
    xd_tensor in;
    int64_t   first, n, above, below;
} xd_band;

/* Runs a function on each band of a map [1,H,W,C], with `reach` additional rows above and below the
 * band. The function `run` may overwrite the rows of its band. If last_first is 1, the last band
 * comes first, and `run` may also overwrite the memory after the rows of its band. */
typedef struct xd_band_pass {
    xd_tensor map;
    int       reach;
    int64_t   row; /* bytes of memory that `run` needs for each row of the map */
    int       last_first;
    void      (*run)(xd_exec *x, void *ctx, const xd_band *b);
    void     *ctx;
} xd_band_pass;
void xd_band_each(xd_exec *x, const xd_band_pass *a);
/* Does for one band of n rows what xd_band_enlarge does for a complete map; `out` is
 * [1,2n,2W,C']. */
void xd_band_enlarge_one(xd_exec *x, xd_tensor out, const xd_band *b, const xd_cnv w[4]);

#endif
