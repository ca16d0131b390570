/* llava_vision.h - declares the vision network (tower) of LLaVA (Liu et al. 2023,
 * arXiv:2304.08485): a vision model of CLIP, and a projector whose outputs replace token embeddings
 * of the language model. */
#ifndef XD_TEXT_LLAVA_VISION_H
#define XD_TEXT_LLAVA_VISION_H

#include "text/clip_vision.h"

typedef struct xd_llava_vision {
    xd_clip_vision clip;
    int64_t        token; /* id of the placeholder that an image token replaces */
    /* layer: index of the hidden state that is projected; bias: 1 if the projector has biases */
    int            layer, bias;
    /* number of blocks of CLIP that must run to compute the projected hidden state */
    int            blocks;
    int64_t        out; /* width of the language model */
    char           act_fn[XD_FIELD_TEXT], strategy[XD_FIELD_TEXT];
    xd_act         act;
} xd_llava_vision;

typedef struct xd_llava_vision_glob {
    xd_clip_vision_glob clip;
    xd_lin              up, down; /* the two layers of the projector */
} xd_llava_vision_glob;

/* Rows of a table of config keys (xd_field) that describe the vision tower. `V` is the struct into
 * which the config is read; its member `m` has the type xd_llava_vision. CLIP_AT(k) is the offset
 * of member k of the member `clip` of m. */
#define XD_LLAVA_VISION_FIELDS(V, m, CLIP_AT)                                                      \
    XD_CLIP_VISION_FIELDS("vision_config.", CLIP_AT, 32, "quick_gelu", 1e-5),                      \
        { "vision_config.model_type", offsetof(V, m.clip.model_type), 's', 0,                      \
          "clip_vision_model" },                                                                   \
        { "image_token_index", offsetof(V, m.token), 'l', 32000, NULL },                           \
        { "image_token_id", offsetof(V, m.token), 'l', 32000, NULL },                              \
        { "vision_feature_layer", offsetof(V, m.layer), 'i', -2, NULL },                           \
        { "vision_feature_select_strategy", offsetof(V, m.strategy), 's', 0, "default" },          \
        { "multimodal_projector_bias", offsetof(V, m.bias), 'b', 1, NULL },                        \
        { "projector_hidden_act", offsetof(V, m.act_fn), 's', 0, "gelu" }

/* Checks the vision tower's config and computes derived fields. `width` is the width of the
 * language model's token embeddings. */
xd_status xd_llava_vision_check(xd_llava_vision *c, int64_t width, xd_err *e);
/* Returns the number of tokens of an image. */
int64_t   xd_llava_vision_tokens(const xd_llava_vision *c);
/* Declares the weights of the vision tower outside of its blocks. */
void      xd_llava_vision_weights(xd_decl *d, const xd_llava_vision *c, xd_llava_vision_glob *g);
/* Runs the vision network (tower), whose blocks are the first blocks of the complete network, on
 * the images r->pixels. Writes the images' embeddings to `rows`, [tokens,E] f32. */
void      xd_llava_vision_run(xd_exec *x, const xd_net *n, const xd_llava_vision *c,
                              const xd_llava_vision_glob *g, const xd_text_read *r, xd_tensor rows);

#endif
