/* decoder.h - used only in src/text: declares the configuration of the decoder language models
 * (Qwen, Mistral, Llama, Gemma) that encode prompts. */
#ifndef XD_TEXT_DECODER_H
#define XD_TEXT_DECODER_H

#include "text/llava_vision.h"
#include "text/qwen_vision.h"

enum { XD_TEXT_DECODERS = 23 }; /* number of decoder classes in the registry of text encoders */

/* Properties of a kind of decoder model that its config does not contain. */
typedef struct xd_decoder_kind {
    const char *title;    /* name of the kind of decoder in messages, "Qwen3" */
    const char *types[3]; /* values of the config key model_type for this kind of decoder */
    /* 1: the projections of queries, keys and values have biases, and the output projection has
     * none */
    int         qkv_bias;
    int         qk_norm; /* 1: queries and keys have RMS norms per head */
    /* 1: norms multiply by 1 + weight, embeddings are multiplied by sqrt(hidden_size), and there
     * are four norms per block: before and after the attention, before and after the MLP. */
    int         gemma;
    int         capped;  /* 1: attention uses attn_logit_softcapping */
    int         windows; /* 1: sliding_window is ignored unless use_sliding_window is set */
    /* Which layers have a sliding window if the config does not contain layer_types. A number n
     * above 0: every n-th layer has full attention, and the other layers have the window. 0: the
     * layers from max_window_layers on have the window. */
    int         pattern;
} xd_decoder_kind;

typedef struct xd_decoder_rope { /* settings of the frequencies of a rotary embedding */
    double  theta, factor, low, high;
    int64_t positions; /* value of original_max_position_embeddings in the config */
    char    type[XD_FIELD_TEXT];
} xd_decoder_rope;

/* The vision network in files of Mistral 3 and Gemma 3, which this library does not run; it only
 * knows the names and shapes of the tensors. */
typedef struct xd_decoder_tower {
    int64_t dim, ff, channels, patch, merge;
    int     nlayers, bias;
    int64_t side; /* Gemma 3: height and width of an image in pixels */
} xd_decoder_tower;

typedef struct xd_decoder {
    int64_t          vocab, dim, ff, D, window;
    int              nlayers, heads, kv, bias, mlp_bias, uses_window, from, pattern, bidirectional;
    /* 1: files do not contain lm_head, because it equals the token embeddings */
    int              tied;
    float            eps, softcap, scalar, partial;
    /* Rotary embedding of the layers with full attention (rope), and of the layers with a window
     * (local). */
    xd_decoder_rope  rope, local;
    char             act_fn[XD_FIELD_TEXT], model_type[XD_FIELD_TEXT];
    xd_names         layer_types;
    /* number of pairs of features per head that RoPE rotates by frame, row and column
     * (mrope_section) */
    xd_ints          mrope;
    /* 1: the axes of the rotary pairs alternate (mrope_interleaved) */
    int              interleaved;
    xd_qwen_vision   vision; /* the vision tower of Qwen2.5-VL or Qwen3-VL */
    xd_llava_vision  llava;  /* the vision tower of LLaVA */
    /* Number of blocks of the vision network, which come before the blocks of the language model;
     * 0: the vision network is not used. */
    int              vision_blocks;
    /* Qwen3-VL: 1: the names of the vision tower's tensors have the prefix of the whole model */
    int              outer;
    xd_act           act;
    xd_decoder_tower tower;
    const xd_decoder_kind *kind;
} xd_decoder;

/* Returns 1 if the layer's attention is limited to a sliding window of the last c->window
 * positions. */
int xd_decoder_slides(const xd_decoder *c, int layer);

/* Declare tensors that files contain but this network does not read: lm_head (by its full name);
 * the vision network of Qwen2.5-VL and of Qwen3-VL (in the scope `name`); the vision network and
 * the projector of Mistral 3 and of Gemma 3. */
void xd_decoder_head(xd_decl *d, const xd_decoder *c, const char *name);
void xd_qwen25vl_tower(xd_decl *d, const xd_decoder *c);
void xd_gemma3_tower(xd_decl *d, const xd_decoder *c);
void xd_qwen3vl_tower(xd_decl *d, const xd_decoder *c, const char *name);
void xd_mistral3_tower(xd_decl *d, const xd_decoder *c);

extern const xd_field xd_qwen3_fields[], xd_qwen3vl_fields[], xd_qwen2_fields[],
    xd_qwen25vl_fields[], xd_mistral_fields[], xd_llama_fields[], xd_llava_fields[],
    xd_gemma2_fields[], xd_gemma3_fields[];

/* Check the configs of the networks; these functions implement xd_net_def.check. */
xd_status xd_qwen3_check(void *c, xd_err *e);
xd_status xd_qwen3vl_check(void *c, xd_err *e);
xd_status xd_qwen2_check(void *c, xd_err *e);
xd_status xd_qwen25vl_check(void *c, xd_err *e);
xd_status xd_qwen25vl_vision_check(void *c, xd_err *e);
xd_status xd_qwen3vl_vision_check(void *c, xd_err *e);
xd_status xd_qwen3vl_outer_vision_check(void *c, xd_err *e);
xd_status xd_mistral_check(void *c, xd_err *e);
xd_status xd_llama_check(void *c, xd_err *e);
xd_status xd_llava_check(void *c, xd_err *e);
xd_status xd_gemma2_check(void *c, xd_err *e);
xd_status xd_gemma3_check(void *c, xd_err *e);

#endif
