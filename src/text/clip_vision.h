/* clip_vision.h - declares CLIP's vision model, which encodes images alone, and is the vision tower
 * of LLaVA; and that of SigLIP, which encodes images alone. */
#ifndef XD_TEXT_CLIP_VISION_H
#define XD_TEXT_CLIP_VISION_H

#include <stddef.h>

#include "text/clip_layer.h"
#include "text/text.h"

typedef struct xd_clip_vision {         /* the config */
    xd_clip_dims of;                    /* sizes of the transformer blocks */
    int64_t      channels, side, patch; /* image channels; side of the image and of a patch */
    int          nlayers;
    int          pools;  /* SigLIP: 1: the files have the weights of the pooled embedding */
    int          siglip; /* 1: SigLIP; 0: CLIP */
    char         act_fn[XD_FIELD_TEXT], model_type[XD_FIELD_TEXT];
} xd_clip_vision;

/* Config keys. `in` is the section of the config, such as "vision_config.", and AT(m) the offset of
 * member m of xd_clip_vision. The other arguments are default values of transformers'
 * CLIPVisionConfig or SiglipVisionConfig. */
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
    xd_tensor class;      /* CLIP: [E] F32: class token */
    xd_lin    patch;      /* [E, C p p]: patch embedding */
    xd_tensor position;   /* [rows,E] F32: position embeddings */
    xd_tensor gain, bias; /* [E]: norm before the first block or, in SigLIP, after the last */
} xd_clip_vision_glob;

/* Checks the config of CLIP, and computes derived fields. */
xd_status xd_clip_vision_check(xd_clip_vision *c, xd_err *e);
/* Returns the number of rows of an image: the class token of CLIP, then the patches row
 * by row. */
int64_t   xd_clip_vision_rows(const xd_clip_vision *c);
/* Declares the weights outside of the blocks, whose names begin with "vision_model." in the current
 * scope. */
void      xd_clip_vision_weights(xd_decl *d, const xd_clip_vision *c, xd_clip_vision_glob *g);
/* Computes h [rows,E] for the pixels [C,S,S] of one image, in host memory; h is the input of the
 * first block. */
void      xd_clip_vision_embed(xd_exec *x, const xd_clip_vision *c, const xd_clip_vision_glob *g,
                               const float *image_pixels, xd_tensor h);

#endif
