/* decoder.h - inside text: the configuration of a decoder language model */
#ifndef XD_TEXT_DECODER_H
#define XD_TEXT_DECODER_H

#include "text/qwen_vision.h"

enum { XD_TEXT_DECODERS = 19 }; /* entries of the registry: one per class                      */

/* Differences between the model types, other than values of the config. */
typedef struct xd_decoder_kind {
    const char *title;          /* "Qwen3", in messages                                        */
    const char *types[3];       /* accepted model_type of the language model                   */
    int         qkv_bias;       /* q, k and v have biases, the output projection has none       */
    int         qk_norm;        /* RMS norms of q and k per head                                */
    /* Gains are 1 + weight, embeddings are scaled by sqrt(hidden_size), and attention and MLP
     * have norms before and after them. */
    int         gemma;
    int         capped;         /* 1: uses attn_logit_softcapping                               */
    int         windows;        /* 1: sliding_window needs use_sliding_window                   */
    int         pattern;        /* without layer_types: n: every n-th layer has full attention, */
                                /* the others the window; 0: layers from max_window_layers on   */
                                /* have the window                                              */
} xd_decoder_kind;

typedef struct xd_decoder_rope {        /* frequencies of a rotary embedding                   */
    double  theta, factor, low, high;
    int64_t positions;          /* original_max_position_embeddings                            */
    char    type[XD_FIELD_TEXT];
} xd_decoder_rope;

/* The vision tower in files of Mistral 3. It is not computed; only its tensors are listed. */
typedef struct xd_decoder_tower {
    int64_t dim, ff, channels, patch, merge;
    int     nlayers, bias;
} xd_decoder_tower;

typedef struct xd_decoder {
    int64_t  vocab, dim, ff, D, window;
    int      nlayers, heads, kv, bias, mlp_bias, uses_window, from, pattern, bidirectional;
    int      tied;              /* 1: no lm_head in the files; it is the embedding matrix       */
    float    eps, softcap, scalar, partial;
    xd_decoder_rope rope, local;        /* of layers with full attention; with a window         */
    char     act_fn[XD_FIELD_TEXT], model_type[XD_FIELD_TEXT];
    xd_names layer_types;
    xd_ints  mrope;             /* mrope_section: rotary pairs of a head for each of t, h, w   */
    xd_qwen_vision vision;      /* of Qwen2.5-VL                                               */
    int      vision_blocks;     /* number of its blocks, which come first; 0: it is not used   */
    xd_act   act;
    xd_decoder_tower tower;
    const xd_decoder_kind *kind;
} xd_decoder;

/* Returns 1 if the layer has sliding-window attention over the last c->window positions. */
int xd_decoder_slides(const xd_decoder *c, int layer);

/* Declare tensors that files have and this network does not read: lm_head under its full name; the
 * vision tower of Qwen2.5-VL; the vision tower and projector of Mistral 3. */
void xd_decoder_head(xd_decl *d, const xd_decoder *c, const char *name);
void xd_qwen25vl_tower(xd_decl *d, const xd_decoder *c);
void xd_mistral3_tower(xd_decl *d, const xd_decoder *c);

extern const xd_field xd_qwen3_fields[], xd_qwen2_fields[], xd_qwen25vl_fields[],
    xd_mistral_fields[], xd_llama_fields[], xd_gemma2_fields[],
    xd_gemma3_fields[];

/* Config checks of the networks (xd_net_def.check). */
xd_status xd_qwen3_check(void *c, xd_err *e);
xd_status xd_qwen2_check(void *c, xd_err *e);
xd_status xd_qwen25vl_check(void *c, xd_err *e);
xd_status xd_qwen25vl_vision_check(void *c, xd_err *e);
xd_status xd_mistral_check(void *c, xd_err *e);
xd_status xd_llama_check(void *c, xd_err *e);
xd_status xd_gemma2_check(void *c, xd_err *e);
xd_status xd_gemma3_check(void *c, xd_err *e);

#endif
