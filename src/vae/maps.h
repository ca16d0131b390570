/* maps.h - used only in src/vae: allocates, copies and checks feature maps
 * [frames,rows,columns,channels] in an arena, for several autoencoders.
 *
 * The feature map that an autoencoder is computing (its current map) begins at a saved position in
 * the arena, `base`. A layer allocates its other maps and its buffers at higher positions in the
 * arena. */
#ifndef XD_VAE_MAPS_H
#define XD_VAE_MAPS_H

#include "exec/op.h"

enum { XD_PAST = 2 }; /* number of earlier frames that a 3D convolution reads */

/* Allocate a feature map: xd_map_as with elements of the given type, xd_map with elements of the
 * compute type. */
xd_tensor xd_map_as(xd_exec *x, xd_dtype type, int64_t T, int64_t H, int64_t W, int64_t C);
xd_tensor xd_map(xd_exec *x, int64_t T, int64_t H, int64_t W, int64_t C);
/* Allocates a new current feature map at the arena position `base`. xd_map_at moves no data, so the
 * contents of the old map at this position can still be read. */
xd_tensor xd_map_at(xd_exec *x, size_t base, int64_t T, int64_t H, int64_t W, int64_t C);
/* Returns a view of a contiguous map as rows [n,C]. */
xd_tensor xd_map_rows(xd_tensor map);

/* Returns how many frames of `in` are normalized together before a convolution. The result depends
 * on the width of the frames and not on their rows, so that ranks that hold different numbers of
 * rows compute equal results. */
int64_t   xd_map_frames(const xd_exec *x, xd_tensor in);
/* Copies the last n frames of `from` to frames [XD_PAST - n, XD_PAST) of `to`. Frames are copied
 * one by one, because `to` and `from` may be the same buffer. */
void      xd_map_keep(xd_exec *x, xd_tensor to, xd_tensor from, int64_t n);
/* Applies a 1x1 convolution (the shortcut of a residual block) to the current map `old`, and
 * returns the result, which replaces `old` in memory. The order of the frames is such that a frame
 * is read before its memory is overwritten. The arena's memory from `old` on must suffice for the
 * larger one of the old and the new map. */
xd_tensor xd_map_reshape(xd_exec *x, xd_tensor old, const xd_lin *w);
/* Halves the rows and columns of the frame `in` by a convolution with stride 2. The frame is padded
 * only below and on the right: output row (or column) i reads input rows (or columns) 2i to 2i + 2.
 * The output `to` may overlap the input frame `in`. */
void      xd_map_halve(xd_exec *x, xd_tensor to, xd_tensor in, const xd_cnv *w);

/* Computes most * tanh(z / most) in place, for a contiguous map z F32. */
void xd_map_clamp(xd_exec *x, xd_tensor z, float most);

/* Returns a view of a frame [1,rows,cols,C k], whose channels are C groups of k elements, as
 * [rows,C,cols,a,b]. The axes a and b number the elements of a group, from element `at` on. */
xd_tensor xd_map_grouped(xd_tensor in, int64_t C, int64_t k, int64_t at, int64_t a, int64_t b);
/* Returns a view of a frame [1,rows a,cols b,C] with its elements in the order of
 * xd_map_grouped. */
xd_tensor xd_map_spread(xd_tensor to, int64_t a, int64_t b);
/* Copies n frames from y [1,H,W,(C,ft,f,f)], the output of a linear layer, to `to` [n,H f,W f,C].
 * Each position of y represents ft frames of f rows and f columns, of which frames from `at` on are
 * copied. */
void      xd_map_unpack(xd_exec *x, xd_tensor to, xd_tensor y, int64_t f, int64_t ft, int64_t at);

/* Check that this rank's pixels have the height and the width of its latents (or moments) times f,
 * and that the latents have C channels. A rank may hold no rows of the image. Latents of a video
 * must have `frames` frames. */
int  xd_map_image_fits(xd_exec *x, xd_tensor rgb, xd_tensor lat, int64_t f, int64_t C);
int  xd_map_video_fits(xd_exec *x, xd_tensor rgb, xd_tensor lat, int64_t f, int64_t C,
                       int64_t frames);
/* Makes the checks of xd_map_image_fits for pixels of K channels. */
int  xd_map_pixels_fit(xd_exec *x, xd_tensor rgb, int K, xd_tensor lat, int64_t f, int64_t C,
                       int64_t frames);
/* Writes a constant to the second half of the moments [T,H,W,2C], which is the log variance, for
 * encoders that predict no distribution. The constant is so low that a sample equals the mean. */
void xd_map_no_variance(xd_exec *x, xd_tensor moments, int64_t C);
/* Checks that an output has the expected number of frames. */
int  xd_map_frames_fit(xd_exec *x, int64_t is, int64_t want);

#endif
