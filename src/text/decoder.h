/* decoder.h - inside text: the configuration of a decoder language model */
#ifndef XD_TEXT_DECODER_H
#define XD_TEXT_DECODER_H

#include "text/qwen_vision.h"

enum { XD_TEXT_DECODERS = 19 }; /* entries of the registry: one a class                        */

/* What the kinds of models differ in, beside numbers. */
typedef struct xd_decoder_kind {
    const char *title;          /* "Qwen3", in messages                                        */
    const char *types[3];       /* accepted model_type of the language model                   */
    int         qkv_bias;       /* q, k and v have biases, and the output has none              */
    int         qk_norm;        /* RMS norms of the heads of q and k                            */
    /* Gains are 1 + weight, embeddings are scaled by sqrt(hidden_size), and attention and MLP
     * have norms before and after them. */
    int         gemma;
    int         capped;         /* attn_logit_softcapping counts                                */
    int         windows;        /* sliding_window counts only with use_sliding_window           */
    int         pattern;        /* of n layers all but the last have the window, without        */
                                /* layer_types; 0: those from max_window_layers on              */
} xd_decoder_kind;

typedef struct xd_decoder_rope {        /* frequencies of a rotary embedding                   */
    double  theta, factor, low, high;
    int64_t positions;          /* original_max_position_embeddings                            */
    char    type[XD_FIELD_TEXT];
} xd_decoder_rope;

/* What sees images beside Mistral 3: only lists of tensors read it. */
typedef struct xd_decoder_tower {
    int64_t dim, ff, channels, patch, merge;
    int     nlayers, bias;
} xd_decoder_tower;

typedef struct xd_decoder {
    int64_t  vocab, dim, ff, D, window;
    int      nlayers, heads, kv, bias, mlp_bias, uses_window, from, pattern, bidirectional;
    int      tied;              /* files have no matrix of the next word: it is the embeddings' */
    float    eps, softcap, scalar, partial;
    xd_decoder_rope rope, local;        /* of layers that see everything, of those with a window */
    char     act_fn[XD_FIELD_TEXT], model_type[XD_FIELD_TEXT];
    xd_names layer_types;
    xd_ints  mrope;             /* pairs of a head turned by each of three positions in turn   */
    xd_qwen_vision vision;      /* of Qwen2.5-VL                                               */
    int      seeing;            /* blocks of it, which stand before the others; 0: it is not read */
    xd_act   act;
    xd_decoder_tower tower;
    const xd_decoder_kind *kind;
} xd_decoder;

/* 1: queries of this layer see the last c->window positions only. */
int xd_decoder_slides(const xd_decoder *c, int layer);

/* Declares what files hold and nothing reads: the matrix of the next word under its full name; the
 * tower of Qwen2.5-VL; that of Mistral 3 and what follows it. */
void xd_decoder_head(xd_decl *d, const xd_decoder *c, const char *name);
void xd_qwen25vl_tower(xd_decl *d, const xd_decoder *c);
void xd_mistral3_tower(xd_decl *d, const xd_decoder *c);

extern const xd_field xd_qwen3_fields[], xd_qwen2_fields[], xd_qwen25vl_fields[],
    xd_mistral_fields[], xd_llama_fields[], xd_gemma2_fields[],
    xd_gemma3_fields[];

/* `check` of the networks (xd_net_def). */
xd_status xd_qwen3_check(void *c, xd_err *e);
xd_status xd_qwen2_check(void *c, xd_err *e);
xd_status xd_qwen25vl_check(void *c, xd_err *e);
xd_status xd_qwen25vl_seeing_check(void *c, xd_err *e);
xd_status xd_mistral_check(void *c, xd_err *e);
xd_status xd_llama_check(void *c, xd_err *e);
xd_status xd_gemma2_check(void *c, xd_err *e);
xd_status xd_gemma3_check(void *c, xd_err *e);

#endif
