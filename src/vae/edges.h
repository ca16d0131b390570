/* edges.h - used only in src/vae: computes causal attention, causal convolutions that replace
 * pixels outside a video by copies of the outermost pixels, and convolutions that replace them by
 * mirrored pixels.
 *
 * A feature map is [T,H,W,C], with this rank's rows of all frames. A causal convolution here reads
 * the current and two earlier frames; before the first frame, it reads copies of the first frame.
 * The padded input of a convolution is built a few frames at a time, from the feature map and the
 * rows of neighbouring ranks. */
#ifndef XD_VAE_EDGES_H
#define XD_VAE_EDGES_H

#include "exec/op.h"

typedef struct xd_edges { /* input of a convolution that is padded at its edges */
    xd_tensor   in;
    /* Writes rows of the input to `to`, for example after normalizing them. If `read` is NULL, rows
     * are copied unchanged. */
    void        (*read)(xd_exec *x, const void *reader, xd_tensor to, xd_tensor from);
    const void *reader;
    /* wide: 1 if each row and each column occurs twice in the convolution's input. time: 1 if each
     * frame except the first occurs twice. */
    int         wide, time;
    /* Strides of the convolution over frames (time) and over rows and columns (wide); 0 means 1. */
    int         stride_time, stride_wide;
} xd_edges;

/* Computes out = conv(f) + plus, where plus may be absent or the tensor `out`. A frame of `out` may
 * share memory with the input frames from which it is computed, because the input frames are copied
 * first. */
void xd_edges_conv(xd_exec *x, xd_tensor out, const xd_edges *f, const xd_cnv *w, xd_tensor plus);

/* Functions that receive the result of a convolution frame by frame. `before` writes to `frame`
 * [1,H,W,C] the values that are added to frame t of the result; `after` gets the sum. */
typedef struct xd_edges_sink {
    void  (*before)(xd_exec *x, void *sink, int64_t t, xd_tensor frame);
    void  (*after)(xd_exec *x, void *sink, int64_t t, xd_tensor frame);
    void *sink;
} xd_edges_sink;
void xd_edges_conv_to(xd_exec *x, const xd_edges_sink *to, const xd_edges *f, const xd_cnv *w);

/* Computes out = conv(in) + plus with a kernel of 3 x 3 x 3, where plus may be absent or the tensor
 * `out`, and `in` [T+2,H,W,C] has two more frames than `out`. The padded input has a copy of row 1
 * above row 0, and a copy of the second to last row below the last row. Columns of the input are
 * padded like rows: by a copy of column 1 on the left and of the second to last column on the
 * right. An image must have at least two rows and two columns. */
void xd_mirror_conv(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w, xd_tensor plus);

/* Computes h += proj(attention(q, kv)). The attention has one head, which is as wide as the map.
 * The positions of a frame attend to all positions of this frame and of earlier frames. For this
 * rank's rows, q is [T H W,C], and kv is [T,H,W,2C] with keys followed by values. */
void xd_edges_attend(xd_exec *x, xd_tensor h, xd_tensor q, xd_tensor kv, const xd_lin *proj);

#endif
