/* ltx_layers.h - used only in src/vae: computes the layers that the encoders and decoders of
 * AutoencoderKLLTXVideo and AutoencoderKLLTX2Video share.
 *
 * All norms are RMS norms over the channels of one position, without gain. A causal convolution
 * reads the current and the two earlier frames. A convolution that is not causal reads the current
 * frame, the frame before and the frame after it. Copies of the outermost frame replace frames
 * beyond the video. Pixels beyond the edges of a frame are zeros or, in the decoder of LTX-2,
 * mirrored pixels.
 *
 * A convolution gets the frames of a video all at once, or in several calls (pieces). If the frames
 * come in pieces, the convolution keeps the last frames that it has read. If the convolution also
 * reads the following frame, the result of a piece's last frame is computed in the next call, and
 * that of the video's last frame when the convolution is told that no frames follow. The division
 * of a video into pieces does not change the result. */
#ifndef XD_VAE_LTX_LAYERS_H
#define XD_VAE_LTX_LAYERS_H

#include "exec/op.h"
#include "vae/ltx.h"

enum {
    XD_LTX_AROUND = 2 /* number of frames that a convolution reads in addition to the current
                          * one */
};

typedef struct xd_ltx_run {
    xd_exec           *x;
    const xd_ltx_cfg  *c;
    const xd_ltx_half *w;
    int                past;    /* number of frames before the current one that convolutions read */
    int                mirrors; /* 1: convolutions read mirrored pixels at edges */
    size_t             base;    /* arena position (mark) of the map h */
    xd_tensor          h;       /* [T,H,W,C] at `base`: the current map */
    double             time;    /* timestep that the timestep embeddings read */
} xd_ltx_run;

/* Last frames that a convolution has read, [XD_LTX_AROUND,H,W,C], with the element type of its
 * weights. */
typedef struct xd_ltx_kept {
    xd_tensor t;
    int       valid; /* 0: the convolution has read no frames yet */
} xd_ltx_kept;

/* Describes a convolution: out = conv(in), or out = conv(silu(norm(in) * (1 + scale) + shift)). */
typedef struct xd_ltx_conv {
    xd_tensor     in;
    const xd_cnv *w;
    int           norm;
    xd_tensor     scale, shift; /* scale and shift [1,C] F32, or absent */
    /* frames that are kept for the next piece of the video; NULL: `in` contains all frames */
    xd_ltx_kept  *kept;
    int           last; /* 1: no frames follow the frames of `in` */
} xd_ltx_conv;

/* Frames that a residual block keeps for the next piece of a video, and the state of its noise. */
typedef struct xd_ltx_state {
    xd_ltx_kept kept[2];
    xd_tensor   late;  /* [XD_LTX_AROUND,H,W,C]: input frames without a result yet, or absent */
    int64_t     nlate; /* number of frames in `late` */
    int         piecewise, last;
    uint64_t    noise; /* hash from which the noise is drawn */
    /* number of rows of the map per latent row, from which the noise is computed */
    int64_t     rows;
} xd_ltx_state;

/* Returns how many result frames a convolution can compute from the kept frames and the frames of
 * `in`. */
int64_t   xd_ltx_conv_results(const xd_ltx_run *r, const xd_ltx_conv *c);
/* Returns how many of `frames` frames with at most `channels` channels are computed together. */
int64_t   xd_ltx_conv_frames(xd_ltx_run *r, const xd_ltx_conv *c, int64_t frames, int64_t channels);
/* Computes frames [t, t + n) of the convolution's result and adds `plus`, which may be the tensor
 * `out`. Ranges of frames must be computed in order; the last range replaces the kept frames. */
void      xd_ltx_conv_part(xd_ltx_run *r, const xd_ltx_conv *c, int64_t t, xd_tensor out,
                           xd_tensor plus);
/* Computes all frames of the convolution's result. If the input does not suffice for any result
 * frame, keeps the input's frames. */
void      xd_ltx_convolve(xd_ltx_run *r, xd_tensor out, const xd_ltx_conv *c, xd_tensor plus);
void      xd_ltx_copy_frames(xd_exec *x, xd_tensor to, xd_tensor from);
/* Returns the sum of a table [k,C] and the timestep's embedding, which the layers w compute, in
 * F32. */
xd_tensor xd_ltx_modulation(xd_ltx_run *r, const xd_lin w[2], xd_tensor table);
/* Runs a residual block: h = shortcut(h) + conv2(silu(norm2(conv1(silu(norm1(h)))))). `time` is the
 * timestep's embedding [4,C] of the level, or absent. */
void      xd_ltx_residual(xd_ltx_run *r, const xd_ltx_res *w, const xd_lin *time, xd_ltx_state *s);

/* Copies pixels between a map of patches [1,h,w,(3,column,row)] and a frame [1,h p,w p,3], for
 * patches of p x p pixels. */
void   xd_ltx_copy_patches(xd_exec *x, xd_tensor patches, xd_tensor rgb, int64_t p, int to_patches);
/* Returns the mean and the standard deviation of the latents for each of C channels; the caller
 * frees the returned memory. */
float *xd_ltx_statistics(xd_exec *x, const xd_net *n);

#endif
