/* clip_vision.h - declares the vision models of CLIP and SigLIP, which are image encoders; CLIP's
 * is also the vision network of LLaVA. */
#ifndef XD_TEXT_CLIP_VISION_H
#define XD_TEXT_CLIP_VISION_H

#include <stddef.h>

#include "text/clip_layer.h"
#include "text/text.h"

typedef struct xd_clip_vision { /* config of a vision model */
    xd_clip_dims of;            /* sizes of the transformer blocks */
    /* number of image channels; side in pixels of the image, and of a patch */
    int64_t      channels, side, patch;
    int          nlayers;
    /* for SigLIP: 1 if the files contain the weights of the pooled embedding */
    int          pools;
    int          siglip; /* kind of the vision model: 1: SigLIP; 0: CLIP */
    char         act_fn[XD_FIELD_TEXT], model_type[XD_FIELD_TEXT];
} xd_clip_vision;

/* Rows of a table of config keys (xd_field) for a vision model. `in` is the prefix of the config
 * keys, such as "vision_config.", and AT(m) is the offset of member m of xd_clip_vision.
 * patch_side, act and epsilon are default values of transformers' CLIPVisionConfig or
 * SiglipVisionConfig. */
#define XD_CLIP_VISION_FIELDS(in, AT, patch_side, act, epsilon)                                    \
    { in "hidden_size", AT(of.dim), 'l', 768, NULL },                          \
        { in "intermediate_size", AT(of.ff), 'l', 3072, NULL },                \
        { in "num_hidden_layers", AT(nlayers), 'i', 12, NULL },                \
        { in "num_attention_heads", AT(of.heads), 'i', 12, NULL },             \
        { in "num_channels", AT(channels), 'l', 3, NULL },                     \
        { in "image_size", AT(side), 'l', 224, NULL },                         \
        { in "patch_size", AT(patch), 'l', patch_side, NULL },                         \
        { in "hidden_act", AT(act_fn), 's', 0, act },                 \
        { in "layer_norm_eps", AT(of.eps), 'f', epsilon, NULL }

typedef struct xd_clip_vision_glob {
    xd_tensor class;    /* only in CLIP: class token, [E] F32 */
    xd_lin    patch;    /* patch embedding, [E, C p p] */
    xd_tensor position; /* position embeddings, [rows,E] F32 */
    /* gain and bias [E] of the norm before the first block or, in SigLIP, after the last block */
    xd_tensor gain, bias;
} xd_clip_vision_glob;

/* Checks the config of CLIP, and computes derived fields. */
xd_status xd_clip_vision_check(xd_clip_vision *c, xd_err *e);
/* Returns the number of tokens of an image: one for each patch and, for CLIP, one class token. */
int64_t   xd_clip_vision_rows(const xd_clip_vision *c);
/* Declares the weights outside of the blocks, whose names begin with "vision_model." in the current
 * scope. */
void      xd_clip_vision_weights(xd_decl *d, const xd_clip_vision *c, xd_clip_vision_glob *g);
/* Computes h [rows,E] for the pixels [C,S,S] of one image, in host memory; h is the input of the
 * first block. */
void      xd_clip_vision_embed(xd_exec *x, const xd_clip_vision *c, const xd_clip_vision_glob *g,
                               const float *image_pixels, xd_tensor h);

#endif
