/* t5.c - runs the T5 encoder (Raffel et al. 2020), original and v1.1, as transformers'
 * T5EncoderModel does, and UMT5 (Chung et al. 2023), as UMT5EncoderModel does.
 *
 * T5's attention scores are not scaled. Positions enter as a learned bias, which depends on the
 * attention head and on the distance between two tokens. In T5, the position bias of the first
 * block is used by all blocks. In UMT5, each block has its own position bias. Padding follows the
 * text, so attention reads only the keys before the padding, and needs no mask. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "text/encoder_layers.h"
#include "text/text.h"

typedef struct cfg {
    int64_t vocab, dim, d_kv, ff;
    int     nlayers, heads, buckets, max_distance, gated;
    int     every; /* 1: every block has its own position bias (UMT5) */
    float   eps;
    char    proj[XD_FIELD_TEXT], act_fn[XD_FIELD_TEXT], model_type[XD_FIELD_TEXT];
    xd_act  act;
} cfg;

#define AT(m) offsetof(cfg, m)
#define ROWS(TYPE) \
    { "vocab_size", AT(vocab), 'l', 32128, NULL }, \
    { "d_model", AT(dim), 'l', 512, NULL }, \
    { "d_kv", AT(d_kv), 'l', 64, NULL }, \
    { "d_ff", AT(ff), 'l', 2048, NULL }, \
    { "num_layers", AT(nlayers), 'i', 6, NULL }, \
    { "num_heads", AT(heads), 'i', 8, NULL }, \
    { "relative_attention_num_buckets", AT(buckets), 'i', 32, NULL }, \
    { "relative_attention_max_distance", AT(max_distance), 'i', 128, NULL }, \
    { "layer_norm_epsilon", AT(eps), 'f', 1e-6, NULL }, \
    { "feed_forward_proj", AT(proj), 's', 0, "relu" }, \
    { "is_gated_act", AT(gated), 'b', -1, NULL }, \
    { "dense_act_fn", AT(act_fn), 's', 0, "" }, \
    { "model_type", AT(model_type), 's', 0, TYPE }, \
    { "architectures", 0, '-', 0, NULL }, \
    { "classifier_dropout", 0, '-', 0, NULL }, \
    { "decoder_start_token_id", 0, '-', 0, NULL }, \
    { "dropout_rate", 0, '-', 0, NULL }, \
    { "dtype", 0, '-', 0, NULL }, \
    { "eos_token_id", 0, '-', 0, NULL }, \
    { "initializer_factor", 0, '-', 0, NULL }, \
    { "is_decoder", 0, '-', 0, NULL }, \
    { "is_encoder_decoder", 0, '-', 0, NULL }, \
    { "num_decoder_layers", 0, '-', 0, NULL }, \
    { "output_past", 0, '-', 0, NULL }, \
    { "pad_token_id", 0, '-', 0, NULL }, \
    { "scalable_attention", 0, '-', 0, NULL }, \
    { "scale_decoder_outputs", 0, '-', 0, NULL }, \
    { "tie_word_embeddings", 0, '-', 0, NULL }, \
    { "tokenizer_class", 0, '-', 0, NULL }, \
    { "torch_dtype", 0, '-', 0, NULL }, \
    { "transformers_version", 0, '-', 0, NULL }, \
    { "use_cache", 0, '-', 0, NULL }, \
    { NULL, 0, 0, 0, NULL }

static const xd_field fields[] = { ROWS("t5") }, umt5_fields[] = { ROWS("umt5") };

typedef struct blk {
    xd_tensor norm1, norm2; /* [E]: norms before attention and before the MLP */
    /* wi: the input layer of the MLP; with a gated MLP, its gate layer and its value layer
     * together. */
    xd_lin    qkv, out, wi, wo;
    xd_tensor bias; /* UMT5's position bias [buckets,H] of all heads */
} blk;

typedef struct glob {
    xd_tensor embed; /* [V,E]: token embeddings */
    xd_tensor bias;  /* T5's position bias [buckets,H] of all heads */
    xd_span   heads; /* range of this rank's attention heads */
    xd_tensor norm;  /* [E]: norm after the last block */
} glob;

typedef struct local {
    /* T5's position bias [H of this rank,n,real] F32, whose rows overlap in memory. */
    xd_tensor bias;
    int64_t   real; /* number of the text's tokens, without the padding */
} local;

/* ---- configuration ------------------------------------------------------------------------ */

/* Reads the activation of the MLP from the config. feed_forward_proj is "ACT" or "gated-ACT";
 * "gated-gelu" means the tanh form of GELU. If a config has the keys dense_act_fn and is_gated_act,
 * their values are used instead of feed_forward_proj. */
static xd_status read_act(cfg *c, xd_err *e)
{
    const char *act = c->proj;
    int         gated = strncmp(act, "gated-", 6) == 0;
    if (gated)
        act += 6;
    if (gated && strcmp(act, "gelu") == 0)
        act = "gelu_new";
    if (c->act_fn[0])
        act = c->act_fn;
    if (c->gated < 0)
        c->gated = gated;
    if (xd_text_act(act, &c->act))
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED,
                   "T5: the activation '%s' (feed_forward_proj '%s', "
                   "dense_act_fn '%s') is not one of " XD_TEXT_ACTS,
                   act, c->proj, c->act_fn);
}

static xd_status check_as(cfg *c, const char *type, xd_err *e)
{
    if (strcmp(c->model_type, type) != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "text encoder: model_type '%s' is not %s: its blocks "
                       "differ",
                       c->model_type, type);
    if (!xd_text_fits(c->vocab) || !xd_text_fits(c->dim) || !xd_text_fits(c->ff) ||
        !xd_text_fits(c->heads))
        return xd_fail(e, XD_EFORMAT,
                       "T5: vocab_size %lld, d_model %lld, d_ff %lld and num_heads "
                       "%d must be 1 to %d",
                       (long long)c->vocab, (long long)c->dim, (long long)c->ff, c->heads,
                       (int)XD_TEXT_MAX);
    if (c->d_kv < 8 || c->d_kv > 512)
        return xd_fail(e, XD_EUNSUPPORTED, "T5: d_kv %lld is outside 8 to 512", (long long)c->d_kv);
    if (c->nlayers < 0 || c->nlayers > 10000)
        return xd_fail(e, XD_EFORMAT, "T5: num_layers %d is outside 0 to 10000", c->nlayers);
    if (c->buckets < 4 || c->buckets > 1 << 20 || c->max_distance <= c->buckets / 4)
        return xd_fail(e, XD_EFORMAT,
                       "T5: relative_attention_num_buckets %d must be at least 4 "
                       "and relative_attention_max_distance %d above a quarter of it",
                       c->buckets, c->max_distance);
    return read_act(c, e);
}

static xd_status check_config(void *c, xd_err *e)
{
    return check_as(c, "t5", e);
}

static xd_status check_umt5(void *c, xd_err *e)
{
    ((cfg *)c)->every = 1;
    return check_as(c, "umt5", e);
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->nlayers;
}

static int64_t width(const void *c)
{
    return ((const cfg *)c)->dim;
}

/* ---- weights ------------------------------------------------------------------------------ */

static void declare_bias(xd_decl *d, const cfg *c, xd_tensor *bias, const char *name)
{
    xd_w_vec(d, bias, name, 2, (int64_t[]){ c->buckets, c->heads });
}

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const qkv[] = { "q", "k", "v" }, *const wi[] = { "wi_0", "wi_1" };
    const cfg *c = c_;
    blk       *w = w_;
    int64_t    inner = c->heads * c->d_kv;
    (void)layer;

    xd_w_enter(d, "layer.0");
    xd_w_vec(d, &w->norm1, "layer_norm.weight", 1, &c->dim);
    xd_w_enter(d, "SelfAttention");
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = c->dim,
                                 .out = { inner, inner, inner },
                                 .split = XD_COL,
                                 .unit = c->d_kv });
    xd_w_linear(d, &w->out, "o",
                &(xd_linear_spec){ .in = inner, .out = c->dim, .split = XD_ROW, .unit = c->d_kv });
    if (c->every)
        declare_bias(d, c, &w->bias, "relative_attention_bias.weight");
    xd_w_leave(d), xd_w_leave(d);

    xd_w_enter(d, "layer.1");
    xd_w_vec(d, &w->norm2, "layer_norm.weight", 1, &c->dim);
    xd_w_enter(d, "DenseReluDense");
    if (c->gated)
        xd_w_fused(
            d, &w->wi,
            &(xd_fused_spec){
                .n = 2, .names = wi, .in = c->dim, .out = { c->ff, c->ff }, .split = XD_COL });
    else
        xd_w_linear(d, &w->wi, "wi",
                    &(xd_linear_spec){ .in = c->dim, .out = c->ff, .split = XD_COL });
    xd_w_linear(d, &w->wo, "wo", &(xd_linear_spec){ .in = c->ff, .out = c->dim, .split = XD_ROW });
    xd_w_leave(d), xd_w_leave(d);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    xd_w_table(d, &g->embed, "shared.weight|encoder.embed_tokens.weight", c->vocab, c->dim);
    if (!c->every)
        declare_bias(d, c, &g->bias,
                     "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
    g->heads = xd_cut((xd_span){ 0, c->heads }, d->tp_at, d->tp > 0 ? d->tp : 1);
    xd_w_vec(d, &g->norm, "encoder.final_layer_norm.weight", 1, &c->dim);
}

/* ---- positions ---------------------------------------------------------------------------- */

/* Returns the bucket of a distance (key position - query position). Half of the buckets are for
 * negative distances, the other half for positive ones. Of the buckets for one sign, each bucket of
 * the first half is for a single distance. The buckets of the second half are for ranges of
 * distances, which grow logarithmically up to max_distance. The bucket is computed in f32 as in
 * transformers, because the last bit can change the bucket. */
static int32_t bucket_of(const cfg *c, int64_t distance)
{
    int   half = c->buckets / 2, exact = half / 2;
    int   base = distance > 0 ? half : 0;
    float far = (float)log((double)c->max_distance / exact);
    distance = distance < 0 ? -distance : distance;
    if (distance < exact)
        return (int32_t)(base + distance);
    float b = logf((float)distance / (float)exact) / far * (float)(half - exact);
    return base + (b < (float)(half - 1 - exact) ? exact + (int32_t)b : half - 1);
}

/* Returns a view of the position bias [H,n,real], bias[h,i,j] = table[bucket(j - i), h]. The bias
 * depends only on j - i, so only 2n - 1 values are stored per head, and the rows of the view
 * overlap in memory. */
static xd_tensor position_bias(xd_exec *x, const xd_net *net, xd_tensor table, int64_t n,
                               int64_t real)
{
    enum { CHUNK = 256 };
    int32_t     ids[CHUNK];
    const cfg  *c = net->cfg;
    const glob *g = net->glob;
    int64_t     H = g->heads.n, all = n > 0 ? 2 * n - 1 : 0;
    xd_tensor   band = xd_new_f32(x, H, all);
    for (int64_t at = 0; at < all; at += CHUNK) {
        size_t  mark = xd_arena_mark(x->tmp);
        int64_t m = all - at < CHUNK ? all - at : CHUNK;
        for (int64_t i = 0; i < m; i++)
            ids[i] = bucket_of(c, at + i - (n - 1));
        xd_tensor rows = xd_lookup_rows(x, table, ids, m, XD_F32);
        rows = xd_permute(xd_cols(rows, g->heads.start, H), (int[]){ 1, 0 });
        xd_copy_to(x, xd_cols(band, at, m), rows);
        xd_arena_rewind(x->tmp, mark);
    }
    return (xd_tensor){ .p = all ? xd_at(band, 0, n - 1) : band.p,
                        .d = { H, n, real, 1, 1 },
                        .s = { all, -1, 1, 0, 0 },
                        .type = XD_F32,
                        .nd = 3 };
}

/* ---- running ------------------------------------------------------------------------------ */

static void forward(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const blk   *w = w_;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    xd_tensor    h = s->h, none = { 0 }, bias = l->bias;

    if (c->every)
        bias = position_bias(x, n, w->bias, h.d[0], l->real);
    xd_tensor y = xd_linear(x, xd_rms_norm(x, h, w->norm1, c->eps), &w->qkv);
    xd_tensor q = xd_heads(xd_seg(y, &w->qkv, 0), c->d_kv);
    xd_tensor k = xd_heads(xd_seg(y, &w->qkv, 1), c->d_kv);
    xd_tensor v = xd_heads(xd_seg(y, &w->qkv, 2), c->d_kv);
    xd_tensor o = xd_attn_over(x, q, xd_rows(k, 0, l->real), xd_rows(v, 0, l->real), bias, 1.0f);
    xd_linear_add(x, h, none, xd_flat(o), &w->out);

    xd_tensor a = xd_rms_norm(x, h, w->norm2, c->eps), u;
    if (c->gated) {
        y = xd_linear(x, a, &w->wi);
        u = xd_gated(x, xd_seg(y, &w->wi, 0), xd_seg(y, &w->wi, 1), c->act);
    } else {
        u = xd_linear_act(x, a, &w->wi, c->act);
    }
    xd_linear_add(x, h, none, u, &w->wo);
}

static void encode(xd_exec *x, const xd_net *n, const int32_t *ids, int64_t nids, int64_t real,
                   xd_cond *out)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    *out = (xd_cond){ .tok = xd_new_f32(x, nids, g->norm.d[0]) };

    size_t mark = xd_arena_mark(x->tmp);
    local  l = { .real = real };
    if (!c->every)
        l.bias = position_bias(x, n, g->bias, nids, real);
    xd_state s = { .h = xd_lookup_rows(x, g->embed, ids, nids, XD_F32), .local = &l };
    for (int i = n->first; i < n->last; i++) {
        size_t block = xd_arena_mark(x->tmp);
        xd_net_block(x, n, i, &s);
        xd_arena_rewind(x->tmp, block);
    }
    xd_copy_to(x, out->tok, xd_rms_norm(x, s.h, g->norm, c->eps));
    xd_arena_rewind(x->tmp, mark);
}

static const xd_block kind = { "encoder.block.%d", sizeof(blk), blk_weights, forward };

static const xd_block *block(const void *c, int layer)
{
    (void)c, (void)layer;
    return &kind;
}

#define TEXT(FIELDS, CHECK, ...) { \
    .net = { .name = "t5", .classes = { __VA_ARGS__ }, .fields = FIELDS, \
             .cfg_size = sizeof(cfg), .glob_size = sizeof(glob), .check = CHECK, \
             .nlayers = nlayers, .block = block, .weights = weights, \
             .unread = { "decoder.*", "lm_head.weight", "dec.*" } }, \
    .width = width, .encode = encode }

extern const xd_text xd_text_t5, xd_text_umt5;

const xd_text xd_text_t5 =
    TEXT(fields, check_config, "T5EncoderModel", "T5ForConditionalGeneration");
const xd_text xd_text_umt5 =
    TEXT(umt5_fields, check_umt5, "UMT5EncoderModel", "UMT5ForConditionalGeneration");
