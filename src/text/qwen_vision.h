/* qwen_vision.h - declares the vision tower of Qwen2.5-VL (Bai et al. 2025, arXiv:2502.13923),
 * which encodes images to rows that replace token embeddings of the language model. */
#ifndef XD_TEXT_QWEN_VISION_H
#define XD_TEXT_QWEN_VISION_H

#include "text/text.h"

typedef struct xd_qwen_vision {
    int64_t dim, ff, channels, patch, frames, merge, window, out, token;
    int     depth, heads;
    xd_ints full; /* indices of blocks with attention over the complete image */
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

/* The rows of a table of config keys (xd_field) that read the section vision_config of a config.
 * `V` is the struct into which the config is read; its member `m` has the type xd_qwen_vision. */
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

/* Checks the vision tower's config and computes derived fields. `width` is the width of the
 * language model's token embeddings. */
xd_status xd_qwen_vision_check(xd_qwen_vision *c, int64_t width, xd_err *e);
/* Declare the weights outside of the blocks, and the weights of one block. The scope of tensor
 * names must be the vision tower for the first function, and the block for the second function. */
void      xd_qwen_vision_weights(xd_decl *d, const xd_qwen_vision *c, xd_qwen_vision_glob *g);
void xd_qwen_vision_block_weights(xd_decl *d, const xd_qwen_vision *c, xd_qwen_vision_block *w);
/* Runs one block of the vision tower, with the data that xd_qwen_vision_run has put into
 * s->local. */
void xd_qwen_vision_forward(xd_exec *x, const xd_qwen_vision *c, const xd_qwen_vision_block *w,
                            xd_state *s);
/* Runs the vision tower, which is blocks [0, depth) of the network, on the images r->images. Writes
 * the image embeddings to `rows`, [tokens,E] f32. */
void xd_qwen_vision_run(xd_exec *x, const xd_net *n, const xd_qwen_vision *c,
                        const xd_qwen_vision_glob *g, const xd_text_read *r, xd_tensor rows);
/* In the token embeddings h [n,E] f32, replaces the rows of image tokens by r->image_rows. */
void xd_qwen_vision_place(xd_exec *x, const xd_text_read *r, xd_tensor h);

#endif
