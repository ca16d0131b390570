/* ltx_layers.h - inside vae: computes the layers that the encoders and decoders of
 * AutoencoderKLLTXVideo and AutoencoderKLLTX2Video share.
 *
 * All norms of ltx_layers.h are RMS norms of single positions without gain. A causal convolution
 * reads the current and the two earlier frames. Other convolutions read the frames before and after
 * the current frame. Copies of the outermost frame replace frames beyond the video. Beyond the
 * edges of a frame, convolutions read zeros or, in the decoder of LTX-2, mirrored pixels.
 *
 * The frames of a video come all at once, or piece by piece. If frames come piece by piece, a
 * convolution keeps the last frames that it has read. A convolution that reads the next frame
 * computes a frame one piece later. The last frame is computed when the convolution is told that no
 * frames follow. The division of a video into pieces does not change the result. */
#ifndef XD_VAE_LTX_LAYERS_H
#define XD_VAE_LTX_LAYERS_H

#include "exec/op.h"
#include "vae/ltx.h"

enum { XD_LTX_AROUND = 2 /* number of frames that a convolution reads besides the current one */ };

typedef struct xd_ltx_run {
    xd_exec           *x;
    const xd_ltx_cfg  *c;
    const xd_ltx_half *w;
    int                past;    /* number of frames before the current one that convolutions read */
    int                mirrors; /* 1: convolutions read mirrored pixels at edges */
    size_t             base;    /* arena position (mark) of the map h */
    xd_tensor          h;       /* [T,H,W,C] at `base`: the current map */
    double             time;    /* timestep, as the timestep embeddings read it */
} xd_ltx_run;

/* The last frames that a convolution has read, [XD_LTX_AROUND,H,W,C] of the type of its weights. */
typedef struct xd_ltx_kept {
    xd_tensor t;
    int       valid; /* 0: the convolution has read no frames yet */
} xd_ltx_kept;

/* A convolution: out = conv(in), or out = conv(silu(norm(in) * (1 + scale) + shift)). */
typedef struct xd_ltx_conv {
    xd_tensor     in;
    const xd_cnv *w;
    int           norm;
    xd_tensor     scale, shift; /* scale and shift [1,C] F32, or absent */
    xd_ltx_kept  *kept;         /* frames that are kept between pieces; NULL: `in` has all frames */
    int           last;         /* 1: no frames follow the frames of `in` */
} xd_ltx_conv;

/* Frames that a residual block keeps between pieces, and the state of its noise. */
typedef struct xd_ltx_state {
    xd_ltx_kept kept[2];
    xd_tensor   late;  /* [XD_LTX_AROUND,H,W,C]: input frames without a result yet, or absent */
    int64_t     nlate; /* number of frames in `late` */
    int         piecewise, last;
    uint64_t    noise; /* hash from which the noise is drawn */
    /* number of rows of the map per latent row, from which the noise is computed */
    int64_t     rows;
} xd_ltx_state;

/* Returns how many frames a convolution computes from the frames that it has. */
int64_t   xd_ltx_conv_results(const xd_ltx_run *r, const xd_ltx_conv *c);
/* Returns how many of `frames` frames, of at most `channels` channels, are computed together. */
int64_t   xd_ltx_conv_frames(xd_ltx_run *r, const xd_ltx_conv *c, int64_t frames, int64_t channels);
/* Computes frames [t, t + n) of the convolution's results, plus `plus`, which may be `out`. The
 * parts must be computed in order; the last part replaces the kept frames. */
void      xd_ltx_conv_part(xd_ltx_run *r, const xd_ltx_conv *c, int64_t t, xd_tensor out,
                           xd_tensor plus);
/* Computes all frames of the convolution's result, at least as many as `out` has. If there are no
 * result frames, keeps the frames of the input. */
void      xd_ltx_convolve(xd_ltx_run *r, xd_tensor out, const xd_ltx_conv *c, xd_tensor plus);
void      xd_ltx_copy_frames(xd_exec *x, xd_tensor to, xd_tensor from);
/* Returns the sum of a table [k,C] and the embedding of the timestep by the layers w, F32. */
xd_tensor xd_ltx_modulation(xd_ltx_run *r, const xd_lin w[2], xd_tensor table);
/* Runs a residual block: h = shortcut(h) + conv2(silu(norm2(conv1(silu(norm1(h)))))). `time` is the
 * timestep's embedding [4,C] of the level, or absent. */
void      xd_ltx_residual(xd_ltx_run *r, const xd_ltx_res *w, const xd_lin *time, xd_ltx_state *s);

/* Copies pixels between patches [1,h,w,(3,column,row)] and a frame [1,h p,w p,3]. */
void   xd_ltx_copy_patches(xd_exec *x, xd_tensor patches, xd_tensor rgb, int64_t p, int to_patches);
/* Reads the mean and the deviation of the latents, [C] each; the caller frees the returned
 * memory. */
float *xd_ltx_statistics(xd_exec *x, const xd_net *n);

#endif
