/* qwen_vision.h - declares the vision networks (towers) of Qwen2.5-VL (Bai et al. 2025,
 * arXiv:2502.13923) and of Qwen3-VL, which encode images to vectors that replace token embeddings
 * of the language model. */
#ifndef XD_TEXT_QWEN_VISION_H
#define XD_TEXT_QWEN_VISION_H

#include "text/text.h"

typedef struct xd_qwen_vision {
    int64_t dim, ff, channels, patch, frames, merge, window, out, token;
    int     depth, heads;
    xd_ints full; /* indices of blocks with attention over the complete image */
    /* for Qwen3-VL: number of learned position embeddings (places), and indices of the vision
     * blocks whose outputs the language model also reads (deep) */
    int64_t places;
    xd_ints deep;
    char    act_fn[XD_FIELD_TEXT];
    double  theta;
    xd_act  act;
} xd_qwen_vision;

typedef struct xd_qwen_vision_glob {
    xd_lin    patches, up, down;
    xd_tensor norm; /* [dim] gain of the norm */
} xd_qwen_vision_glob;

typedef struct xd_qwen_vision_block {
    xd_tensor norm1, norm2; /* [dim] gain of the norm */
    xd_lin    qkv, proj, gate_up, down;
} xd_qwen_vision_block;

enum { XD_QWEN_DEEP = 8 }; /* maximum number of blocks that xd_qwen_vision.deep lists */

/* Weights of Qwen3-VL's vision tower. A merger computes an image token for the language model from
 * several neighbouring patches. The first merger reads the last hidden state, and each further
 * merger reads the output of a block that xd_qwen_vision.deep lists. */
typedef struct xd_qwen3_merger {
    /* gain and bias of the norm: [dim], or [merge^2 dim] in a merger for a block of `deep` */
    xd_tensor gain, bias;
    xd_lin    up, down;
} xd_qwen3_merger;

typedef struct xd_qwen3_vision_glob {
    xd_lin          patches;
    xd_tensor       places; /* position embeddings of a square grid, [places,dim] */
    xd_qwen3_merger merger[1 + XD_QWEN_DEEP];
} xd_qwen3_vision_glob;

typedef struct xd_qwen3_vision_block {
    xd_tensor gain1, bias1, gain2, bias2;
    xd_lin    qkv, proj, fc1, fc2;
} xd_qwen3_vision_block;

/* Rows of a table of config keys (xd_field) that read the section vision_config of a config. `V` is
 * the struct into which the config is read; its member `m` has the type xd_qwen_vision. */
#define XD_QWEN_VISION_FIELDS(V, m)                                                                \
    { "vision_config.depth", offsetof(V, m.depth), 'i', 32, NULL },                                \
        { "vision_config.hidden_size", offsetof(V, m.dim), 'l', 3584, NULL },                      \
        { "vision_config.intermediate_size", offsetof(V, m.ff), 'l', 3420, NULL },                 \
        { "vision_config.num_heads", offsetof(V, m.heads), 'i', 16, NULL },                        \
        { "vision_config.in_channels", offsetof(V, m.channels), 'l', 3, NULL },                    \
        { "vision_config.patch_size", offsetof(V, m.patch), 'l', 14, NULL },                       \
        { "vision_config.temporal_patch_size", offsetof(V, m.frames), 'l', 2, NULL },              \
        { "vision_config.spatial_merge_size", offsetof(V, m.merge), 'l', 2, NULL },                \
        { "vision_config.window_size", offsetof(V, m.window), 'l', 112, NULL },                    \
        { "vision_config.out_hidden_size", offsetof(V, m.out), 'l', 3584, NULL },                  \
        { "vision_config.fullatt_block_indexes", offsetof(V, m.full), 'L', 0, NULL },              \
        { "vision_config.hidden_act", offsetof(V, m.act_fn), 's', 0, "silu" },                     \
        { "vision_config.rope_parameters.rope_theta", offsetof(V, m.theta), 'd', 10000, NULL },    \
        { "image_token_id", offsetof(V, m.token), 'l', 151655, NULL }

/* Table rows like those of XD_QWEN_VISION_FIELDS, with the config keys of Qwen3-VL. */
#define XD_QWEN3_VISION_FIELDS(V, m)                                                               \
    { "vision_config.depth", offsetof(V, m.depth), 'i', 27, NULL },                                \
        { "vision_config.hidden_size", offsetof(V, m.dim), 'l', 1152, NULL },                      \
        { "vision_config.intermediate_size", offsetof(V, m.ff), 'l', 4304, NULL },                 \
        { "vision_config.num_heads", offsetof(V, m.heads), 'i', 16, NULL },                        \
        { "vision_config.in_channels", offsetof(V, m.channels), 'l', 3, NULL },                    \
        { "vision_config.patch_size", offsetof(V, m.patch), 'l', 16, NULL },                       \
        { "vision_config.temporal_patch_size", offsetof(V, m.frames), 'l', 2, NULL },              \
        { "vision_config.spatial_merge_size", offsetof(V, m.merge), 'l', 2, NULL },                \
        { "vision_config.out_hidden_size", offsetof(V, m.out), 'l', 3584, NULL },                  \
        { "vision_config.num_position_embeddings", offsetof(V, m.places), 'l', 2304, NULL },       \
        { "vision_config.deepstack_visual_indexes", offsetof(V, m.deep), 'L', 0, NULL },           \
        { "vision_config.hidden_act", offsetof(V, m.act_fn), 's', 0, "gelu_pytorch_tanh" },        \
        { "vision_config.rope_parameters.rope_theta", offsetof(V, m.theta), 'd', 10000, NULL },    \
        { "image_token_id", offsetof(V, m.token), 'l', 151655, NULL }

/* Checks the vision tower's config and computes derived fields. `width` is the width of the
 * language model's token embeddings. */
xd_status xd_qwen_vision_check(xd_qwen_vision *c, int64_t width, xd_err *e);
/* Declare the vision network's weights outside of its blocks, and the weights of one of its blocks.
 * The scope (prefix) of tensor names must be that of the vision network for xd_qwen_vision_weights,
 * and that of the block for xd_qwen_vision_block_weights. */
void      xd_qwen_vision_weights(xd_decl *d, const xd_qwen_vision *c, xd_qwen_vision_glob *g);
void xd_qwen_vision_block_weights(xd_decl *d, const xd_qwen_vision *c, xd_qwen_vision_block *w);
/* Runs one block of the vision tower, with the data that xd_qwen_vision_run has put into
 * s->local. */
void xd_qwen_vision_forward(xd_exec *x, const xd_qwen_vision *c, const xd_qwen_vision_block *w,
                            xd_state *s);
/* Runs the vision network (tower), which consists of the first `depth` blocks of the complete
 * network, on the images r->images. Writes the image embeddings to `rows`, [tokens,E] f32. */
void xd_qwen_vision_run(xd_exec *x, const xd_net *n, const xd_qwen_vision *c,
                        const xd_qwen_vision_glob *g, const xd_text_read *r, xd_tensor rows);
/* In the token embeddings h [n,E] f32, replaces the rows of image tokens by the first E columns of
 * r->image_rows. */
void xd_qwen_vision_place(xd_exec *x, const xd_text_read *r, xd_tensor h);

/* Functions for the vision network of Qwen3-VL, like those for Qwen2.5-VL. The output of
 * xd_qwen3_vision_run is [tokens,(1 + deep) E]: the first E columns replace token embeddings; then,
 * for each block that c->deep lists, E columns of features follow, which xd_qwen3_vision_add adds
 * to the hidden state h [n,E]. `block`: index of the language model's block that h has just
 * passed. */
xd_status xd_qwen3_vision_check(xd_qwen_vision *c, int64_t width, xd_err *e);
void      xd_qwen3_vision_weights(xd_decl *d, const xd_qwen_vision *c, xd_qwen3_vision_glob *g);
void xd_qwen3_vision_block_weights(xd_decl *d, const xd_qwen_vision *c, xd_qwen3_vision_block *w);
void xd_qwen3_vision_forward(xd_exec *x, const xd_qwen_vision *c, const xd_qwen3_vision_block *w,
                             xd_state *s);
void xd_qwen3_vision_run(xd_exec *x, const xd_net *n, const xd_qwen_vision *c,
                         const xd_qwen3_vision_glob *g, const xd_text_read *r, xd_tensor rows);
void xd_qwen3_vision_add(xd_exec *x, const xd_qwen_vision *c, const xd_text_read *r, int block,
                         xd_tensor h);

/* ---- shared by the two towers --------------------------------------------------------------- */

typedef struct xd_qwen_vision_local { /* data of one run of the vision tower, in xd_state.local */
    const xd_text_read *r;
    xd_tensor           cos, sin; /* RoPE table, [patches, D/2] F32 */
} xd_qwen_vision_local;

/* Starts a run of the vision network on the images of r. Returns the normalized pixels of the
 * patches, one row per patch, F32, in the order in which the network reads them, and sets *l. If
 * there are no images, or if an image has a wrong size, the returned tensor has no dimensions. */
xd_tensor xd_qwen_vision_open(xd_exec *x, const xd_qwen_vision *c, const xd_text_read *r,
                              xd_qwen_vision_local *l);
/* Computes the attention output of a block, one row of all heads for each patch, from y, the output
 * of the layer w. */
xd_tensor xd_qwen_vision_attend(xd_exec *x, const xd_qwen_vision *c, const xd_qwen_vision_local *l,
                                xd_tensor y, const xd_lin *w);

#endif
