/* maps.h - inside vae: allocates, copies and checks feature maps [frames,rows,columns,channels] in
 * an arena, for several autoencoders.
 *
 * An autoencoder's current map begins at a saved position in the arena, `base`. A layer allocates
 * its other maps and its buffers at higher positions in the arena. */
#ifndef XD_VAE_MAPS_H
#define XD_VAE_MAPS_H

#include "exec/op.h"

enum { XD_PAST = 2 }; /* number of past frames that a convolution over frames reads */

/* Functions that allocate a map: xd_map_as with elements of the given type, xd_map with elements of
 * the type of activations. */
xd_tensor xd_map_as(xd_exec *x, xd_dtype type, int64_t T, int64_t H, int64_t W, int64_t C);
xd_tensor xd_map(xd_exec *x, int64_t T, int64_t H, int64_t W, int64_t C);
/* Allocates the next current map at the arena position `base`. xd_map_at moves no data: the memory
 * of the old map, or of a map that was written over it, keeps its content and can still be read. */
xd_tensor xd_map_at(xd_exec *x, size_t base, int64_t T, int64_t H, int64_t W, int64_t C);
/* Returns a view of a contiguous map as rows [n,C]. */
xd_tensor xd_map_rows(xd_tensor map);

/* Returns how many frames of `in` are normalized together before a convolution. The number of
 * frames depends only on their width, as if frames were square, because a rank that has only some
 * rows of the frames must use the same number as the other ranks. */
int64_t   xd_map_frames(const xd_exec *x, xd_tensor in);
/* Copies the last n frames of `from` to frames [XD_PAST - n, XD_PAST) of `to`. Frames are copied
 * one by one, because `to` and `from` may be the same buffer. */
void      xd_map_keep(xd_exec *x, xd_tensor to, xd_tensor from, int64_t n);
/* Applies a 1x1 convolution (the shortcut of a residual block) to the current map `old`, and
 * returns the result, which replaces `old` in memory. A frame is written only after the frames
 * whose memory it overwrites have been read. Beginning at `old`, the arena must have memory for the
 * larger of the old and the new map. */
xd_tensor xd_map_reshape(xd_exec *x, xd_tensor old, const xd_lin *w);
/* Halves the rows and columns of the frame `in` by a convolution with stride 2. The frame is padded
 * only below and on the right, so that output cell i reads pixels 2i .. 2i+2. The output `to` may
 * overlap the input frame `in`. */
void      xd_map_halve(xd_exec *x, xd_tensor to, xd_tensor in, const xd_cnv *w);

/* Computes most * tanh(z / most) in place, for a contiguous map z F32. */
void xd_map_clamp(xd_exec *x, xd_tensor z, float most);

/* Returns a view of a frame [1,rows,cols,C k], whose channels are C groups of k elements, as
 * [rows,C,cols,a,b]; position (a, b) is an element of the group, beginning with element `at`. */
xd_tensor xd_map_grouped(xd_tensor in, int64_t C, int64_t k, int64_t at, int64_t a, int64_t b);
/* Returns a view of a frame [1,rows a,cols b,C] with its elements in the order of
 * xd_map_grouped. */
xd_tensor xd_map_spread(xd_tensor to, int64_t a, int64_t b);
/* Copies frames of the output y [1,H,W,(C,ft,f,f)] of a linear layer, whose rows are ft frames of f
 * rows and columns, to `to` [n,H f,W f,C]: those from frame `at` of a row. */
void      xd_map_unpack(xd_exec *x, xd_tensor to, xd_tensor y, int64_t f, int64_t ft, int64_t at);

/* Functions that check that this rank's pixels have the height and the width that its latents or
 * moments imply, with f x f pixels per latent cell, and that these latents or moments have C
 * channels. A rank's band of rows may be empty. A video must have `frames` latent frames. */
int  xd_map_image_fits(xd_exec *x, xd_tensor rgb, xd_tensor lat, int64_t f, int64_t C);
int  xd_map_video_fits(xd_exec *x, xd_tensor rgb, xd_tensor lat, int64_t f, int64_t C,
                       int64_t frames);
/* Checks the same, for pixels of K channels. */
int  xd_map_pixels_fit(xd_exec *x, xd_tensor rgb, int K, xd_tensor lat, int64_t f, int64_t C,
                       int64_t frames);
/* Writes a constant to the second half of the moments [T,H,W,2C], which is the log variance, for
 * encoders that predict no distribution. The constant log variance is so low that a sample equals
 * the mean. */
void xd_map_no_variance(xd_exec *x, xd_tensor moments, int64_t C);
/* Checks that an output has the expected number of frames. */
int  xd_map_frames_fit(xd_exec *x, int64_t is, int64_t want);

#endif
