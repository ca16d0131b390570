/* clip.c - runs CLIP's text model (Radford et al. 2021), as transformers' CLIPTextModel and
 * CLIPTextModelWithProjection do.
 *
 * Attention is causal, so the pooled embedding is the row of the end token. Padding after the end
 * token does not change the pooled embedding, but pipelines that use all tokens also read the
 * padding rows. */
#include <stddef.h>
#include <string.h>

#include "text/clip_layer.h"
#include "text/encoder_layers.h"
#include "text/text.h"

typedef struct cfg {
    xd_clip_dims of; /* sizes of the transformer blocks */
    int64_t      vocab, proj, positions, eos;
    int          nlayers;
    char         act_fn[XD_FIELD_TEXT], model_type[XD_FIELD_TEXT];
} cfg;

/* Config keys, with the default values of transformers' CLIPTextConfig. */
#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "vocab_size", AT(vocab), 'l', 49408, NULL },
    { "hidden_size", AT(of.dim), 'l', 512, NULL },
    { "intermediate_size", AT(of.ff), 'l', 2048, NULL },
    { "projection_dim", AT(proj), 'l', 512, NULL },
    { "num_hidden_layers", AT(nlayers), 'i', 12, NULL },
    { "num_attention_heads", AT(of.heads), 'i', 8, NULL },
    { "max_position_embeddings", AT(positions), 'l', 77, NULL },
    { "hidden_act", AT(act_fn), 's', 0, "quick_gelu" },
    { "layer_norm_eps", AT(of.eps), 'f', 1e-5, NULL },
    { "eos_token_id", AT(eos), 'l', 49407, NULL },
    { "model_type", AT(model_type), 's', 0, "clip_text_model" },
    { "_name_or_path", 0, '-', 0, NULL },
    { "architectures", 0, '-', 0, NULL },
    { "attention_dropout", 0, '-', 0, NULL },
    { "bos_token_id", 0, '-', 0, NULL },
    { "dropout", 0, '-', 0, NULL },
    { "dtype", 0, '-', 0, NULL },
    { "initializer_factor", 0, '-', 0, NULL },
    { "initializer_range", 0, '-', 0, NULL },
    { "pad_token_id", 0, '-', 0, NULL },
    { "torch_dtype", 0, '-', 0, NULL },
    { "transformers_version", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct glob {
    xd_tensor embed;      /* [V,E]: token embeddings */
    xd_tensor position;   /* [positions,E] F32: position embeddings */
    xd_tensor gain, bias; /* [E]: norm after the last block */
    xd_lin    proj;       /* projection of the pooled embedding, or absent */
} glob;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_config(void *c_, xd_err *e)
{
    cfg *c = c_;
    if (strcmp(c->model_type, "clip_text_model") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "text encoder: model_type '%s' is not clip_text_model: "
                       "its config or its blocks differ",
                       c->model_type);
    if (!xd_text_fits(c->vocab) || !xd_text_fits(c->of.dim) || !xd_text_fits(c->of.ff) ||
        !xd_text_fits(c->proj) || !xd_text_fits(c->positions))
        return xd_fail(e, XD_EFORMAT,
                       "CLIP: vocab_size %lld, hidden_size %lld, intermediate_size "
                       "%lld, projection_dim %lld and max_position_embeddings %lld must be 1 to "
                       "%d",
                       (long long)c->vocab, (long long)c->of.dim, (long long)c->of.ff,
                       (long long)c->proj, (long long)c->positions, (int)XD_TEXT_MAX);
    if (c->nlayers < 1 || c->nlayers > 10000)
        return xd_fail(e, XD_EFORMAT, "CLIP: num_hidden_layers %d is outside 1 to 10000",
                       c->nlayers);
    if (!xd_text_act(c->act_fn, &c->of.act))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "CLIP: the activation '%s' (hidden_act) is not one of " XD_TEXT_ACTS,
                       c->act_fn);
    return xd_text_heads("CLIP", c->of.dim, c->of.heads, e);
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->nlayers;
}

static int64_t width(const void *c)
{
    return ((const cfg *)c)->of.dim;
}

static int64_t projection_width(const void *c)
{
    return ((const cfg *)c)->proj;
}

/* ---- weights ------------------------------------------------------------------------------ */

static void blk_weights(xd_decl *d, const void *c, int layer, void *w)
{
    (void)layer;
    xd_clip_layer_weights(d, &((const cfg *)c)->of, w);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    xd_w_enter(d, "text_model");
    xd_w_table(d, &g->embed, "embeddings.token_embedding.weight", c->vocab, c->of.dim);
    xd_w_vec(d, &g->position, "embeddings.position_embedding.weight", 2,
             (int64_t[]){ c->positions, c->of.dim });
    xd_w_affine(d, "final_layer_norm", &g->gain, &g->bias, c->of.dim);
    xd_w_leave(d);
}

static void projection_weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    weights(d, c, g);
    xd_w_linear(d, &g->proj, "text_projection",
                &(xd_linear_spec){ .in = c->of.dim, .out = c->proj });
}

/* ---- running ------------------------------------------------------------------------------ */

static void forward(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    xd_clip_layer_run(x, &((const cfg *)n->cfg)->of, w, s->h, 0);
}

/* Returns the row of the end token. If eos_token_id is 2, a wrong value that old configs have, the
 * end token is the first token with the largest id. Like transformers, returns row 0 if there is no
 * end token. */
static int64_t end_of(const cfg *c, const int32_t *ids, int64_t n)
{
    int64_t at = 0;
    if (c->eos != 2) {
        for (int64_t i = 0; i < n; i++)
            if (ids[i] == c->eos)
                return i;
        return 0;
    }
    for (int64_t i = 1; i < n; i++)
        if (ids[i] > ids[at])
            at = i;
    return at;
}

static void pool_row(xd_exec *x, const xd_net *n, xd_tensor row, xd_tensor out)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    xd_tensor   y = xd_layer_norm(x, row, g->gain, g->bias, c->of.eps);
    if (g->proj.nseg)
        xd_linear_into(x, out, y, &g->proj);
    else
        xd_copy_to(x, out, y);
}

static void final_norm(xd_exec *x, const xd_net *n, xd_tensor h, xd_tensor out)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    size_t      mark = xd_arena_mark(x->tmp);
    xd_copy_to(x, out, xd_layer_norm(x, h, g->gain, g->bias, c->of.eps));
    xd_arena_rewind(x->tmp, mark);
}

static void encode(xd_exec *x, const xd_net *n, const int32_t *ids, int64_t nids, int64_t real,
                   xd_cond *out)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    int64_t     E = g->gain.d[0], P = g->proj.nseg ? g->proj.w.out : E;
    *out = (xd_cond){ .tok = xd_new_f32(x, nids, E),
                      .pooled = xd_new_f32(x, 1, P),
                      .penultimate = xd_new_f32(x, nids, E) };
    if (!xd_check(x, nids >= 1 && nids <= c->positions,
                  "%lld tokens for a CLIP text model of 1 to "
                  "%lld (max_position_embeddings)",
                  (long long)nids, (long long)c->positions) ||
        !xd_check(x, real == nids, "a CLIP text model reads its padding like text"))
        return;

    size_t   mark = xd_arena_mark(x->tmp);
    xd_state s = { .h = xd_lookup_rows(x, g->embed, ids, nids, XD_F32) };
    xd_add(x, s.h, xd_rows(g->position, 0, nids));
    for (int i = n->first; i < n->last; i++) {
        size_t block = xd_arena_mark(x->tmp);
        if (i == n->last - 1)
            xd_copy_to(x, out->penultimate, s.h);
        xd_net_block(x, n, i, &s);
        xd_arena_rewind(x->tmp, block);
    }
    final_norm(x, n, s.h, out->tok);
    pool_row(x, n, xd_rows(s.h, xd_counting(x) ? 0 : end_of(c, ids, nids), 1), out->pooled);
    xd_arena_rewind(x->tmp, mark);
}

static const xd_block kind = { "text_model.encoder.layers.%d", sizeof(xd_clip_layer), blk_weights,
                               forward };

static const xd_block *block(const void *c, int layer)
{
    (void)c, (void)layer;
    return &kind;
}

#define CLIP                                                                                      \
    .fields = fields, .cfg_size = sizeof(cfg), .glob_size = sizeof(glob), .check = check_config,   \
    .nlayers = nlayers, .block = block, .prefix = "text_model."

extern const xd_text xd_text_clip, xd_text_clip_proj;

const xd_text xd_text_clip = {
    .net = { .name = "clip",
             .classes = { "CLIPTextModel" },
             CLIP,
             .weights = weights,
             .unread = { "embeddings.position_ids", "logit_scale", "text_projection.weight",
                         "text_projection" } },
    .width = width,
    .pooled = width,
    .encode = encode,
};
const xd_text xd_text_clip_proj = {
    .net = { .name = "clip-proj",
             .classes = { "CLIPTextModelWithProjection" },
             CLIP,
             .weights = projection_weights,
             .unread = { "embeddings.position_ids", "logit_scale" } },
    .width = width,
    .pooled = projection_width,
    .encode = encode,
};
