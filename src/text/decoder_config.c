/* decoder_config.c - reads and checks the config of decoder language models.
 *
 * The config keys are at the top level of config.json or in its section text_config. transformers 5
 * writes rope_parameters in place of the older keys rope_theta and rope_scaling. */
#include <stddef.h>
#include <string.h>

#include "text/decoder.h"
#include "text/encoder_layers.h"

#define AT(m) offsetof(xd_decoder, m)

enum { MAX_TOWER = 1 << 16 }; /* upper limit of the sizes in the config of a vision tower */

/* Config keys of sizes. The parameters of the macro are the default values of vocabulary, width,
 * MLP width, layers, heads, key/value heads (0: as many as heads) and head size (0: width /
 * heads). */
#define SIZES(V, E, F, L, H, KV, W)                                                                \
    { "text_config", 0, '>', 0, NULL }, { "vocab_size", AT(vocab), 'l', V, NULL },                 \
        { "hidden_size", AT(dim), 'l', E, NULL }, { "intermediate_size", AT(ff), 'l', F, NULL },   \
        { "num_hidden_layers", AT(nlayers), 'i', L, NULL },                                        \
        { "num_attention_heads", AT(heads), 'i', H, NULL },                                        \
        { "num_key_value_heads", AT(kv), 'i', KV, NULL }, { "head_dim", AT(D), 'l', W, NULL }

#define KIND(type, eps_, tied_)                                                                    \
    { "text_config.model_type", AT(model_type), 's', 0, type },                                    \
        { "model_type", AT(model_type), 's', 0, type },                                            \
        { "rms_norm_eps", AT(eps), 'f', eps_, NULL },                                              \
        { "tie_word_embeddings", AT(tied), 'b', tied_, NULL }

/* Config keys of a vision tower's sizes. The parameters of the macro are the keys for the numbers
 * of layers and of image channels, and the default values of layers, width and MLP width. */
#define SEES(key, m, def) { "vision_config." key, AT(tower.m), 'l', def, NULL }
#define TOWER(layers, colours, L, E, F)                                                            \
    { "vision_config." layers, AT(tower.nlayers), 'i', L, NULL }, SEES(colours, channels, 3),      \
        SEES("hidden_size", dim, E), SEES("intermediate_size", ff, F), SEES("patch_size", patch, 14)

/* A config key of the rotary embedding. Several sections of the config may contain the key; the
 * sections are listed from the newest layout to the oldest. */
#define ROPE(key, at, kind, def, text)                                                             \
    { "rope_parameters.full_attention." key, at, kind, def, text },                                \
        { "rope_parameters." key, at, kind, def, text },                                           \
        { "rope_scaling." key, at, kind, def, text }

#define ROPES(theta_)                                                                              \
    ROPE("rope_theta", AT(rope.theta), 'd', theta_, NULL),                                         \
        { "rope_theta", AT(rope.theta), 'd', theta_, NULL },                                       \
        ROPE("rope_type", AT(rope.type), 's', 0, "default"),                                       \
        { "rope_scaling.type", AT(rope.type), 's', 0, "default" },                                 \
        ROPE("factor", AT(rope.factor), 'd', 0, NULL),                                             \
        ROPE("low_freq_factor", AT(rope.low), 'd', 0, NULL),                                       \
        ROPE("high_freq_factor", AT(rope.high), 'd', 0, NULL),                                     \
        ROPE("original_max_position_embeddings", AT(rope.positions), 'l', 0, NULL),                \
        ROPE("partial_rotary_factor", AT(partial), 'f', 1, NULL),                                  \
        { "partial_rotary_factor", AT(partial), 'f', 1, NULL }

/* Config keys for layers with a sliding window. The parameters of the macro are the default values
 * of sliding_window and max_window_layers. */
#define WINDOW(n, from_)                                                                           \
    { "sliding_window", AT(window), 'l', n, NULL },                                                \
        { "use_sliding_window", AT(uses_window), 'b', 0, NULL },                                   \
        { "max_window_layers", AT(from), 'i', from_, NULL },                                       \
        { "layer_types", AT(layer_types), 'S', 0, NULL }

#define LLAVA_CLIP_AT(m) AT(llava.clip.m)
#define KNOWN(key) { key, 0, '-', 0, NULL }
#define OTHERS                                                                                     \
    KNOWN("architectures"), KNOWN("attention_dropout"), KNOWN("bos_token_id"),                     \
        KNOWN("cache_implementation"), KNOWN("dtype"), KNOWN("eos_token_id"),                      \
        KNOWN("final_logit_softcapping"), KNOWN("image_token_id"), KNOWN("image_token_index"),     \
        KNOWN("initializer_range"), KNOWN("max_position_embeddings"),                              \
        KNOWN("multimodal_projector_bias"), KNOWN("pad_token_id"), KNOWN("pretraining_tp"),        \
        KNOWN("projector_hidden_act"), KNOWN("spatial_merge_size"), KNOWN("torch_dtype"),          \
        KNOWN("use_cache"), KNOWN("video_token_id"), KNOWN("vision_config"),                       \
        KNOWN("vision_end_token_id"), KNOWN("vision_feature_layer"),                               \
        KNOWN("vision_start_token_id"), KNOWN("vision_token_id"), { NULL, 0, 0, 0, NULL }

#define SILU { "hidden_act", AT(act_fn), 's', 0, "silu" }
#define BIAS { "attention_bias", AT(bias), 'b', 0, NULL }
#define GEMMA                                                                                      \
    { "hidden_activation", AT(act_fn), 's', 0, "gelu_pytorch_tanh" }, KNOWN("hidden_act"), BIAS,   \
        { "query_pre_attn_scalar", AT(scalar), 'f', 256, NULL },                                   \
        { "use_bidirectional_attention", AT(bidirectional), 'b', 0, NULL }

const xd_field xd_qwen3_fields[] = { SIZES(151936, 4096, 22016, 32, 32, 32, 128),
                                     KIND("qwen3", 1e-6, 0),
                                     ROPES(10000),
                                     WINDOW(4096, 28),
                                     SILU,
                                     BIAS,
                                     OTHERS };
const xd_field xd_qwen3vl_fields[] = { SIZES(151936, 4096, 22016, 32, 32, 32, 128),
                                       KIND("qwen3_vl", 1e-6, 0),
                                       ROPES(5000000),
                                       SILU,
                                       BIAS,
                                       XD_QWEN3_VISION_FIELDS(xd_decoder, vision),
                                       ROPE("mrope_section", AT(mrope), 'L', 0, NULL),
                                       ROPE("mrope_interleaved", AT(interleaved), 'b', 1, NULL),
                                       OTHERS };
const xd_field xd_qwen2_fields[] = { SIZES(151936, 4096, 22016, 32, 32, 32, 0),
                                     KIND("qwen2", 1e-6, 0),
                                     ROPES(10000),
                                     WINDOW(4096, 28),
                                     SILU,
                                     OTHERS };
const xd_field xd_qwen25vl_fields[] = { SIZES(152064, 8192, 29568, 80, 64, 8, 0),
                                        KIND("qwen2_5_vl", 1e-5, 0),
                                        ROPES(1000000),
                                        WINDOW(4096, 80),
                                        SILU,
                                        XD_QWEN_VISION_FIELDS(xd_decoder, vision),
                                        ROPE("mrope_section", AT(mrope), 'L', 0, NULL),
                                        OTHERS };
const xd_field xd_mistral_fields[] = { SIZES(32000, 4096, 14336, 32, 32, 8, 0),
                                       KIND("mistral", 1e-6, 0),
                                       ROPES(10000),
                                       WINDOW(0, 0),
                                       SILU,
                                       TOWER("num_hidden_layers", "num_channels", 24, 1024, 4096),
                                       { "spatial_merge_size", AT(tower.merge), 'l', 2, NULL },
                                       { "multimodal_projector_bias", AT(tower.bias), 'b', 0,
                                         NULL },
                                       OTHERS };
const xd_field xd_llama_fields[] = { SIZES(32000, 4096, 11008, 32, 32, 0, 0),
                                     KIND("llama", 1e-6, 0),
                                     ROPES(10000),
                                     SILU,
                                     BIAS,
                                     { "mlp_bias", AT(mlp_bias), 'b', 0, NULL },
                                     OTHERS };
const xd_field xd_llava_fields[] = { SIZES(32000, 4096, 11008, 32, 32, 0, 0),
                                     KIND("llama", 1e-6, 0),
                                     ROPES(10000),
                                     SILU,
                                     BIAS,
                                     { "mlp_bias", AT(mlp_bias), 'b', 0, NULL },
                                     XD_LLAVA_VISION_FIELDS(xd_decoder, llava, LLAVA_CLIP_AT),
                                     KNOWN("image_seq_length"),
                                     OTHERS };
const xd_field xd_gemma2_fields[] = { SIZES(256000, 2304, 9216, 26, 8, 4, 256),
                                      KIND("gemma2", 1e-6, 1),
                                      ROPES(10000),
                                      WINDOW(4096, 0),
                                      GEMMA,
                                      { "attn_logit_softcapping", AT(softcap), 'f', 50, NULL },
                                      OTHERS };
const xd_field xd_gemma3_fields[] = {
    SIZES(262208, 2304, 9216, 26, 8, 4, 256),
    KIND("gemma3_text", 1e-6, 1),
    ROPES(1000000),
    WINDOW(4096, 0),
    GEMMA,
    KNOWN("attn_logit_softcapping"),
    KNOWN("mm_tokens_per_image"),
    KNOWN("boi_token_index"),
    KNOWN("eoi_token_index"),
    { "sliding_window_pattern", AT(pattern), 'i', 6, NULL },
    { "_sliding_window_pattern", AT(pattern), 'i', 6, NULL },
    { "rope_parameters.sliding_attention.rope_theta", AT(local.theta), 'd', 10000, NULL },
    { "rope_local_base_freq", AT(local.theta), 'd', 10000, NULL },
    { "rope_parameters.sliding_attention.rope_type", AT(local.type), 's', 0, "default" },
    TOWER("num_hidden_layers", "num_channels", 0, 768, 3072),
    SEES("image_size", side, 224),
    OTHERS
};

static const xd_decoder_kind qwen3 = {
    .title = "Qwen3", .types = { "qwen3" }, .qk_norm = 1, .windows = 1
};
static const xd_decoder_kind qwen3vl = { .title = "Qwen3-VL",
                                         .types = { "qwen3_vl", "qwen3_vl_text" },
                                         .qk_norm = 1 };
static const xd_decoder_kind qwen2 = {
    .title = "Qwen2", .types = { "qwen2" }, .qkv_bias = 1, .windows = 1
};
static const xd_decoder_kind qwen25vl = {
    .title = "Qwen2.5-VL", .qkv_bias = 1, .windows = 1, .types = { "qwen2_5_vl", "qwen2_5_vl_text" }
};
static const xd_decoder_kind mistral = { .title = "Mistral", .types = { "mistral" } };
static const xd_decoder_kind llama = { .title = "Llama", .types = { "llama" } };
static const xd_decoder_kind gemma2 = {
    .title = "Gemma 2", .types = { "gemma2" }, .gemma = 1, .capped = 1, .pattern = 2
};
static const xd_decoder_kind gemma3 = {
    .title = "Gemma 3", .types = { "gemma3_text", "gemma3" }, .gemma = 1, .qk_norm = 1, .pattern = 6
};

/* ---- checks ------------------------------------------------------------------------------- */

static int is_listed(const char *const *words, const char *word)
{
    for (int i = 0; i < 3 && words[i]; i++)
        if (strcmp(words[i], word) == 0)
            return 1;
    return 0;
}

static xd_status check_sizes(const xd_decoder *c, xd_err *e)
{
    const char *what = c->kind->title;
    if (!xd_text_fits(c->vocab) || !xd_text_fits(c->dim) || !xd_text_fits(c->ff))
        return xd_fail(e, XD_EFORMAT,
                       "%s: vocab_size %lld, hidden_size %lld and "
                       "intermediate_size %lld must be 1 to %d",
                       what, (long long)c->vocab, (long long)c->dim, (long long)c->ff,
                       (int)XD_TEXT_MAX);
    if (c->nlayers < 1 || c->nlayers > 10000)
        return xd_fail(e, XD_EFORMAT, "%s: num_hidden_layers %d is outside 1 to 10000", what,
                       c->nlayers);
    if (c->heads < 1 || c->heads > 10000 || c->kv < 1 || c->heads % c->kv)
        return xd_fail(e, XD_EFORMAT,
                       "%s: num_key_value_heads %d does not divide "
                       "num_attention_heads %d",
                       what, c->kv, c->heads);
    if (c->D < 8 || c->D > 512 || c->D % 2)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: heads of %lld (head_dim) are not even or outside 8 to 512", what,
                       (long long)c->D);
    if (c->window < 0 || c->window == 1)
        return xd_fail(e, XD_EUNSUPPORTED, "%s: sliding_window is %lld; it must be at least 2",
                       what, (long long)c->window);
    if (c->layer_types.n && c->layer_types.n < c->nlayers)
        return xd_fail(e, XD_EFORMAT, "%s: layer_types has %d entries for %d layers", what,
                       c->layer_types.n, c->nlayers);
    return XD_OK;
}

static xd_status check_tower(const xd_decoder *c, xd_err *e)
{
    const xd_decoder_tower *t = &c->tower;
    const xd_qwen_vision   *v = &c->vision;
    const int64_t n[] = { t->dim,    t->ff,     t->channels, t->patch, t->merge,    t->nlayers,
                          t->side,   v->places, v->dim,      v->ff,    v->channels, v->patch,
                          v->frames, v->merge,  v->out,      v->heads, v->depth };
    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++)
        if (n[i] < 0 || n[i] > MAX_TOWER)
            return xd_fail(e, XD_EFORMAT,
                           "%s: %lld, a value of vision_config or "
                           "spatial_merge_size, is outside 0 to %d",
                           c->kind->title, (long long)n[i], MAX_TOWER);
    return XD_OK;
}

static xd_status check_layer_types(const xd_decoder *c, xd_err *e)
{
    for (int i = 0; i < c->layer_types.n; i++)
        if (strcmp(c->layer_types.v[i], "full_attention") != 0 &&
            strcmp(c->layer_types.v[i], "sliding_attention") != 0)
            return xd_fail(e, XD_EUNSUPPORTED,
                           "%s: '%s' in layer_types is neither full_attention "
                           "nor sliding_attention",
                           c->kind->title, c->layer_types.v[i]);
    return XD_OK;
}

static xd_status check_rope(const xd_decoder *c, const xd_decoder_rope *r, xd_err *e)
{
    const char *what = c->kind->title;
    int         linear = strcmp(r->type, "linear") == 0, llama3 = strcmp(r->type, "llama3") == 0;
    if (!linear && !llama3 && strcmp(r->type, "default") != 0 && strcmp(r->type, "mrope") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: rope_type '%s' is not one of default, mrope, "
                       "linear, llama3",
                       what, r->type);
    if (!(r->theta > 0) || ((linear || llama3) && !(r->factor > 0)))
        return xd_fail(e, XD_EFORMAT,
                       "%s: rope_theta %g and factor %g of the rotary embedding "
                       "must be above 0",
                       what, r->theta, r->factor);
    if (llama3 && (!(r->high > r->low) || !(r->low > 0) || r->positions < 1))
        return xd_fail(e, XD_EFORMAT,
                       "%s: low_freq_factor %g, high_freq_factor %g and "
                       "original_max_position_embeddings %lld are invalid for a llama3 rope",
                       what, r->low, r->high, (long long)r->positions);
    return XD_OK;
}

static xd_status check_kind(xd_decoder *c, xd_err *e)
{
    const char *what = c->kind->title;
    if (!is_listed(c->kind->types, c->model_type))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "text encoder: model_type '%s' is not %s: its blocks "
                       "differ",
                       c->model_type, c->kind->types[0]);
    if (!xd_text_act(c->act_fn, &c->act))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: the activation '%s' (%s) is not one of " XD_TEXT_ACTS, what, c->act_fn,
                       c->kind->gemma ? "hidden_activation" : "hidden_act");
    if (c->bidirectional)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: use_bidirectional_attention is true, but only "
                       "causal attention is supported",
                       what);
    if (c->partial != 1)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: partial_rotary_factor is %g: only whole heads are "
                       "rotated",
                       what, (double)c->partial);
    if (c->kind->gemma && !(c->scalar > 0))
        return xd_fail(e, XD_EFORMAT, "%s: query_pre_attn_scalar %g is not above 0", what,
                       (double)c->scalar);
    return XD_OK;
}

static xd_status check_config(xd_decoder *c, const xd_decoder_kind *kind, xd_err *e)
{
    c->kind = kind;
    c->kv = c->kv ? c->kv : c->heads;
    if (!c->D && c->heads > 0)
        c->D = c->dim / c->heads;
    if (!kind->gemma)
        c->scalar = (float)c->D;
    if (kind->windows && !c->uses_window)
        c->window = 0;
    if (!c->local.type[0]) /* by default, all layers have the same rotary embedding */
        c->local = c->rope;
    if (kind == &gemma2)
        c->pattern = kind->pattern;
    xd_status s = check_kind(c, e);
    if (s == XD_OK)
        s = check_sizes(c, e);
    if (s == XD_OK)
        s = check_layer_types(c, e);
    if (s == XD_OK)
        s = check_tower(c, e);
    if (s == XD_OK)
        s = check_rope(c, &c->rope, e);
    return s == XD_OK ? check_rope(c, &c->local, e) : s;
}

/* Checks the sections of multimodal rope; by default, as in transformers, they have 16, 24 and 24
 * element pairs. */
static xd_status check_sections(xd_decoder *c, xd_err *e)
{
    int64_t sum = 0;
    if (!c->mrope.n)
        c->mrope = (xd_ints){ 3, { 16, 24, 24 } };
    for (int i = 0; i < c->mrope.n; i++)
        sum += c->mrope.v[i] > 0 ? c->mrope.v[i] : c->D;
    if (sum != c->D / 2)
        return xd_fail(e, XD_EFORMAT,
                       "%s: the sections of mrope_section do not add up to the %lld "
                       "pairs of a head",
                       c->kind->title, (long long)(c->D / 2));
    return XD_OK;
}

xd_status xd_qwen25vl_vision_check(void *c_, xd_err *e)
{
    xd_decoder *c = c_;
    xd_status   s = xd_qwen25vl_check(c, e);
    if (s == XD_OK)
        s = check_sections(c, e);
    if (s == XD_OK)
        s = xd_qwen_vision_check(&c->vision, c->dim, e);
    c->vision_blocks = c->vision.depth;
    return s;
}

xd_status xd_qwen3vl_vision_check(void *c_, xd_err *e)
{
    xd_decoder *c = c_;
    xd_status   s = xd_qwen3vl_check(c, e);
    if (s == XD_OK && !c->mrope.n)
        c->mrope = (xd_ints){ 3, { 24, 20, 20 } };
    if (s == XD_OK)
        s = check_sections(c, e);
    if (s == XD_OK && (c->mrope.n != 3 || !c->interleaved))
        s = xd_fail(e, XD_EUNSUPPORTED,
                    "%s: mrope_section has %d sections and mrope_interleaved is %s; 3 interleaved "
                    "sections are supported",
                    c->kind->title, c->mrope.n, c->interleaved ? "true" : "false");
    if (s == XD_OK)
        s = xd_qwen3_vision_check(&c->vision, c->dim, e);
    c->vision_blocks = c->vision.depth;
    return s;
}

xd_status xd_qwen3vl_outer_vision_check(void *c, xd_err *e)
{
    ((xd_decoder *)c)->outer = 1;
    return xd_qwen3vl_vision_check(c, e);
}

xd_status xd_llava_check(void *c_, xd_err *e)
{
    xd_decoder *c = c_;
    xd_status   s = xd_llama_check(c, e);
    if (s == XD_OK)
        s = xd_llava_vision_check(&c->llava, c->dim, e);
    c->vision_blocks = c->llava.clip.nlayers;
    return s;
}

#define CHECK(name)                                                                                \
    xd_status xd_##name##_check(void *c, xd_err *e)                                                \
    {                                                                                              \
        return check_config(c, &name, e);                                                          \
    }
CHECK(qwen3)
CHECK(qwen3vl)
CHECK(qwen2)
CHECK(qwen25vl)
CHECK(mistral)
CHECK(llama)
CHECK(gemma2)
CHECK(gemma3)

int xd_decoder_slides(const xd_decoder *c, int layer)
{
    if (!c->window)
        return 0;
    if (c->layer_types.n)
        return strcmp(c->layer_types.v[layer], "sliding_attention") == 0;
    if (c->kind->pattern)
        return c->pattern < 1 || (layer + 1) % c->pattern != 0;
    return layer >= c->from;
}
