/* bert.c - runs BERT (Devlin et al. 2019) as a text encoder. The result equals the last hidden
 * state of transformers' BertModel.
 *
 * Norms follow the residual sums (post-norm), and the embedding has a norm too. Every token attends
 * to all real tokens. Padding follows the text, so attention reads only the keys before the
 * padding, and needs no mask. All tokens have type 0, as in a single text. */
#include <stddef.h>
#include <string.h>

#include "text/encoder_layers.h"
#include "text/text.h"

typedef struct cfg {
    int64_t vocab, dim, ff, positions, types;
    int     nlayers, heads, decoder, cross;
    float   eps;
    char    act_fn[XD_FIELD_TEXT], model_type[XD_FIELD_TEXT], place[XD_FIELD_TEXT];
    xd_act  act;
} cfg;

/* Config keys, with the default values of transformers' BertConfig. */
#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "vocab_size", AT(vocab), 'l', 30522, NULL },
    { "hidden_size", AT(dim), 'l', 768, NULL },
    { "intermediate_size", AT(ff), 'l', 3072, NULL },
    { "num_hidden_layers", AT(nlayers), 'i', 12, NULL },
    { "num_attention_heads", AT(heads), 'i', 12, NULL },
    { "max_position_embeddings", AT(positions), 'l', 512, NULL },
    { "type_vocab_size", AT(types), 'l', 2, NULL },
    { "hidden_act", AT(act_fn), 's', 0, "gelu" },
    { "layer_norm_eps", AT(eps), 'f', 1e-12, NULL },
    { "position_embedding_type", AT(place), 's', 0, "absolute" },
    { "is_decoder", AT(decoder), 'b', 0, NULL },
    { "add_cross_attention", AT(cross), 'b', 0, NULL },
    { "model_type", AT(model_type), 's', 0, "bert" },
    { "_name_or_path", 0, '-', 0, NULL },
    { "architectures", 0, '-', 0, NULL },
    { "attention_probs_dropout_prob", 0, '-', 0, NULL },
    { "bos_token_id", 0, '-', 0, NULL },
    { "chunk_size_feed_forward", 0, '-', 0, NULL },
    { "classifier_dropout", 0, '-', 0, NULL },
    { "directionality", 0, '-', 0, NULL },
    { "dtype", 0, '-', 0, NULL },
    { "eos_token_id", 0, '-', 0, NULL },
    { "gradient_checkpointing", 0, '-', 0, NULL },
    { "hidden_dropout_prob", 0, '-', 0, NULL },
    { "initializer_range", 0, '-', 0, NULL },
    { "output_past", 0, '-', 0, NULL },
    { "pad_token_id", 0, '-', 0, NULL },
    { "pooler_fc_size", 0, '-', 0, NULL },
    { "pooler_num_attention_heads", 0, '-', 0, NULL },
    { "pooler_num_fc_layers", 0, '-', 0, NULL },
    { "pooler_size_per_head", 0, '-', 0, NULL },
    { "pooler_type", 0, '-', 0, NULL },
    { "tie_word_embeddings", 0, '-', 0, NULL },
    { "torch_dtype", 0, '-', 0, NULL },
    { "transformers_version", 0, '-', 0, NULL },
    { "use_cache", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct blk {
    xd_lin    qkv, out, up, down;
    xd_tensor gain1, bias1, gain2, bias2; /* [E]: norms after attention and feed-forward */
} blk;

typedef struct glob {
    xd_tensor embed;      /* [V,E]: token embeddings */
    xd_tensor position;   /* [positions,E] F32: position embeddings */
    xd_tensor type;       /* [types,E] F32: token type embeddings */
    xd_tensor gain, bias; /* [E]: norm of the sum of embeddings */
} glob;

typedef struct local { int64_t real; /* number of the text's tokens, without the padding */ } local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_kind(cfg *c, xd_err *e)
{
    if (strcmp(c->model_type, "bert") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "text encoder: model_type '%s' is not bert: its embeddings or its blocks "
                       "differ",
                       c->model_type);
    if (strcmp(c->place, "absolute") != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "BERT: position_embedding_type '%s' is not 'absolute'",
                       c->place);
    if (c->decoder || c->cross)
        return xd_fail(e, XD_EUNSUPPORTED, "BERT: %s is true, but a text encoder is not a decoder",
                       c->decoder ? "is_decoder" : "add_cross_attention");
    if (!xd_text_act(c->act_fn, &c->act))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "BERT: the activation '%s' (hidden_act) is not one of " XD_TEXT_ACTS,
                       c->act_fn);
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg *c = c_;
    if (!xd_text_fits(c->vocab) || !xd_text_fits(c->dim) || !xd_text_fits(c->ff) ||
        !xd_text_fits(c->positions) || !xd_text_fits(c->types))
        return xd_fail(e, XD_EFORMAT,
                       "BERT: vocab_size %lld, hidden_size %lld, intermediate_size "
                       "%lld, max_position_embeddings %lld and type_vocab_size %lld must be 1 to "
                       "%d",
                       (long long)c->vocab, (long long)c->dim, (long long)c->ff,
                       (long long)c->positions, (long long)c->types, (int)XD_TEXT_MAX);
    if (c->nlayers < 0 || c->nlayers > 10000)
        return xd_fail(e, XD_EFORMAT, "BERT: num_hidden_layers %d is outside 0 to 10000",
                       c->nlayers);
    xd_status s = xd_text_heads("BERT", c->dim, c->heads, e);
    return s == XD_OK ? check_kind(c, e) : s;
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

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const qkv[] = { "self.query", "self.key", "self.value" };
    const cfg               *c = c_;
    blk                     *w = w_;
    int64_t                  E = c->dim, D = E / c->heads;
    (void)layer;

    xd_w_enter(d, "attention");
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = E,
                                 .out = { E, E, E },
                                 .split = XD_COL,
                                 .unit = D,
                                 .bias = 1 });
    xd_w_linear(d, &w->out, "output.dense",
                &(xd_linear_spec){ .in = E, .out = E, .split = XD_ROW, .unit = D, .bias = 1 });
    xd_w_affine(d, "output.LayerNorm", &w->gain1, &w->bias1, E);
    xd_w_leave(d);

    xd_w_linear(d, &w->up, "intermediate.dense",
                &(xd_linear_spec){ .in = E, .out = c->ff, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &w->down, "output.dense",
                &(xd_linear_spec){ .in = c->ff, .out = E, .split = XD_ROW, .bias = 1 });
    xd_w_affine(d, "output.LayerNorm", &w->gain2, &w->bias2, E);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    xd_w_enter(d, "bert.embeddings");
    xd_w_table(d, &g->embed, "word_embeddings.weight", c->vocab, c->dim);
    xd_w_vec(d, &g->position, "position_embeddings.weight", 2, (int64_t[]){ c->positions, c->dim });
    xd_w_vec(d, &g->type, "token_type_embeddings.weight", 2, (int64_t[]){ c->types, c->dim });
    xd_w_affine(d, "LayerNorm", &g->gain, &g->bias, c->dim);
    xd_w_leave(d);
    xd_w_unread_layer(d, "bert.pooler.dense", 2, (int64_t[]){ c->dim, c->dim });
}

/* ---- running ------------------------------------------------------------------------------ */

static void norm_rows(xd_exec *x, const cfg *c, xd_tensor h, xd_tensor gain, xd_tensor bias)
{
    xd_norm_into(x, &(xd_norm){ .out = h, .in = h, .gain = gain, .bias = bias, .eps = c->eps });
}

static void forward(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const blk   *w = w_;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    int64_t      D = c->dim / c->heads;
    xd_tensor    h = s->h, none = { 0 };

    xd_tensor y = xd_linear(x, h, &w->qkv);
    xd_tensor q = xd_heads(xd_seg(y, &w->qkv, 0), D);
    xd_tensor k = xd_heads(xd_seg(y, &w->qkv, 1), D);
    xd_tensor v = xd_heads(xd_seg(y, &w->qkv, 2), D);
    xd_tensor o = xd_attn_over(x, q, xd_rows(k, 0, l->real), xd_rows(v, 0, l->real), none, 0);
    xd_linear_add(x, h, none, xd_flat(o), &w->out);
    norm_rows(x, c, h, w->gain1, w->bias1);

    xd_linear_add(x, h, none, xd_linear_act(x, h, &w->up, c->act), &w->down);
    norm_rows(x, c, h, w->gain2, w->bias2);
}

/* Computes `out` [n,E], the normalized sum of the embeddings of the tokens, of their positions and
 * of token type 0. */
static void embed_ids(xd_exec *x, const cfg *c, const glob *g, const int32_t *ids, int64_t n,
                      xd_tensor out)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor type = xd_rows(g->type, 0, 1);
    type.d[0] = n, type.s[0] = 0; /* stride 0: every token gets row 0 */
    xd_copy_to(x, out, xd_lookup_rows(x, g->embed, ids, n, XD_F32));
    xd_add(x, out, type);
    xd_add(x, out, xd_rows(g->position, 0, n));
    norm_rows(x, c, out, g->gain, g->bias);
    xd_arena_rewind(x->tmp, mark);
}

static void encode(xd_exec *x, const xd_net *n, const int32_t *ids, int64_t nids, int64_t real,
                   xd_cond *out)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    *out = (xd_cond){ .tok = xd_new_f32(x, nids, c->dim) };
    if (!xd_check(x, nids >= 1 && nids <= c->positions,
                  "%lld tokens for a BERT of 1 to %lld "
                  "(max_position_embeddings)",
                  (long long)nids, (long long)c->positions) ||
        !xd_check(x, real >= 1 && real <= nids, "%lld of %lld tokens are text", (long long)real,
                  (long long)nids))
        return;

    local    l = { real };
    xd_state s = { .h = out->tok, .local = &l };
    embed_ids(x, c, g, ids, nids, s.h);
    for (int i = n->first; i < n->last; i++) {
        size_t block = xd_arena_mark(x->tmp);
        xd_net_block(x, n, i, &s);
        xd_arena_rewind(x->tmp, block);
    }
}

static const xd_block kind = { "bert.encoder.layer.%d", sizeof(blk), blk_weights, forward };

static const xd_block *block(const void *c, int layer)
{
    (void)c, (void)layer;
    return &kind;
}

extern const xd_text xd_text_bert;

const xd_text xd_text_bert = {
    .net = { .name = "bert",
             .classes = { "BertModel" },
             .prefix = "bert.",
             .lead = "",
             .unread = { "pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .nlayers = nlayers,
             .block = block,
             .weights = weights },
    .width = width,
    .encode = encode,
};
