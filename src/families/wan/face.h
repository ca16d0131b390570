/* face.h - declares the networks with which Wan Animate reads a face video: a motion encoder, which
 * turns each frame into a vector, and a face encoder, which turns the vectors into rows for
 * cross-attention. */
#ifndef XD_FAMILIES_WAN_FACE_H
#define XD_FAMILIES_WAN_FACE_H

#include "base/json.h"
#include "dit/dit.h"
#include "exec/op.h"

/* Maximum number of convolution blocks of the motion encoder, which halve the sides of a frame to
 * 4 pixels; number of linear layers that turn a frame's features into motions. */
enum { XD_FACE_BLOCKS = 8, XD_FACE_LINEARS = 5 };

typedef struct xd_face_cfg {
    int64_t size; /* side of a frame in pixels, a power of 2; 0: the model reads no face video */
    int64_t style, motions, vector, hidden, heads;
    int     every; /* a cross-attention follows the first of every `every` blocks */
    int     blocks;
    /* numbers of channels before the first convolution block, and after each block */
    int64_t channels[XD_FACE_BLOCKS + 1];
} xd_face_cfg;

/* Reads motion_encoder_channel_sizes. Call xd_face_config after the config's table is read. */
xd_status xd_face_config(xd_face_cfg *c, const xd_json *obj, xd_err *e);
/* Checks the values of the config. nlayers: number of main blocks. */
xd_status xd_face_check(const xd_face_cfg *c, int64_t nlayers, xd_err *e);

typedef struct xd_face_conv {
    xd_cnv    w;
    xd_tensor bias; /* [out] bias before the activation, or absent */
} xd_face_conv;

typedef struct xd_face_weights {
    xd_face_conv in, a[XD_FACE_BLOCKS], b[XD_FACE_BLOCKS], skip[XD_FACE_BLOCKS], out;
    xd_lin       linear[XD_FACE_LINEARS];
    xd_tensor    directions; /* [vector, motions] */
    xd_lin       local, half[2], rows;
    xd_tensor    padding; /* [1,1,1,D]: a row after the rows of each latent frame */
} xd_face_weights;

void xd_face_declare(xd_decl *d, const xd_face_cfg *c, int64_t dim, xd_face_weights *w);

/* Returns the number of rows that each latent frame has. */
static inline int64_t xd_face_rows(const xd_face_cfg *c)
{
    return c->heads + 1;
}
/* Returns the number of frames of a face video for `latents` latent frames, of which the first is
 * a still image. */
static inline int64_t xd_face_frames(int64_t latents)
{
    return 4 * (latents - 2) + 1;
}
/* Computes the rows of `latents` latent frames, [latents * xd_face_rows, D] F32. The first latent
 * frame has zeros. face: F32 pixels [frames,size,size,3] in host memory, in [-1,1]; NULL: all
 * pixels are -1. */
xd_tensor xd_face_read(xd_exec *x, const xd_face_cfg *c, const xd_face_weights *w, int64_t dim,
                       const float *face, int64_t latents);

#endif
