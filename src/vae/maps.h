/* maps.h - inside vae: feature maps [frames,rows,columns,channels] in an arena, and what several
 * autoencoders do with them.
 *
 * The current map of an autoencoder is at an arena mark, `base`. Maps and buffers of a layer are
 * above the current map. */
#ifndef XD_VAE_MAPS_H
#define XD_VAE_MAPS_H

#include "exec/op.h"

enum { XD_PAST = 2 };           /* past frames that a convolution over frames reads            */

/* Allocate a map: of the given type, of the type of activations. */
xd_tensor xd_map_as(xd_exec *x, xd_dtype type, int64_t T, int64_t H, int64_t W, int64_t C);
xd_tensor xd_map(xd_exec *x, int64_t T, int64_t H, int64_t W, int64_t C);
/* Allocates the next current map at `base`. The memory at `base` is reallocated without moving
 * anything, so the old map, or a map that was written over it, stays readable. */
xd_tensor xd_map_at(xd_exec *x, size_t base, int64_t T, int64_t H, int64_t W, int64_t C);
/* Returns a view of a contiguous map as rows [n,C]. */
xd_tensor xd_map_rows(xd_tensor map);

/* Returns the number of frames of `in` that are normalized together before a convolution. The
 * number is computed as if frames were square, because a rank that has only some rows of the frames
 * must use the same number as the other ranks. */
int64_t xd_map_frames(const xd_exec *x, xd_tensor in);
/* Copies the last n frames of `from` to the n frames before frame XD_PAST of `to`. Frames are
 * copied one by one, as `to` and `from` may be the same buffer. */
void xd_map_keep(xd_exec *x, xd_tensor to, xd_tensor from, int64_t n);
/* Applies a 1x1 convolution (the shortcut of a residual block) to the current map `old`, in place,
 * and returns the result. A frame is written only after the frames whose memory it overwrites have
 * been read. The arena must have memory for the larger of the two maps at `old`. */
xd_tensor xd_map_reshape(xd_exec *x, xd_tensor old, const xd_lin *w);
/* Halves the rows and columns of the frame `in` by a convolution with stride 2. Pads only below and
 * on the right, so that output cell i reads pixels 2i .. 2i+2. `to` may overlap `in`. */
void xd_map_halve(xd_exec *x, xd_tensor to, xd_tensor in, const xd_cnv *w);

/* Check that the pixels and the latents (or moments, of C channels) of this rank have matching
 * extents; f is the number of pixels per side of a cell. A rank's band of rows may be empty. A
 * video must have `frames` latent frames. */
int xd_map_image_fits(xd_exec *x, xd_tensor rgb, xd_tensor lat, int64_t f, int64_t C);
int xd_map_video_fits(xd_exec *x, xd_tensor rgb, xd_tensor lat, int64_t f, int64_t C,
                      int64_t frames);
/* Checks the number of frames of an output. */
int xd_map_frames_fit(xd_exec *x, int64_t is, int64_t want);

#endif
