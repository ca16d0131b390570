/* dit.c - runs the transformer of Stable Diffusion 3 and 3.5 (Esser et al. 2024, arXiv:2403.03206)
 * like diffusers' SD3Transformer2DModel.
 *
 * A block has separate weights for text and image and one joint attention. The last block reads
 * only the keys and values of the text and does not change the text. The first blocks of SD 3.5
 * medium have a second attention over the image only. The position embeddings are the central part
 * of a table in the checkpoint. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "dit/layers.h"

static const float eps = 1e-6f;

typedef struct cfg {
    int64_t head_dim, in_ch, out_ch, joint, caption, pooled, patch, sample, places;
    int     heads, nlayers;
    xd_ints dual; /* indices of the blocks with a second attention */
    char    qk_norm[XD_FIELD_TEXT];
    int64_t dim; /* D = heads * head_dim */
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "sample_size", AT(sample), 'l', 128, NULL },
    { "patch_size", AT(patch), 'l', 2, NULL },
    { "in_channels", AT(in_ch), 'l', 16, NULL },
    { "out_channels", AT(out_ch), 'l', 16, NULL },
    { "num_layers", AT(nlayers), 'i', 18, NULL },
    { "attention_head_dim", AT(head_dim), 'l', 64, NULL },
    { "num_attention_heads", AT(heads), 'i', 18, NULL },
    { "joint_attention_dim", AT(joint), 'l', 4096, NULL },
    { "caption_projection_dim", AT(caption), 'l', 1152, NULL },
    { "pooled_projection_dim", AT(pooled), 'l', 2048, NULL },
    { "pos_embed_max_size", AT(places), 'l', 96, NULL },
    { "dual_attention_layers", AT(dual), 'L', 0, NULL },
    { "qk_norm", AT(qk_norm), 's', 0, "" },
    { NULL, 0, 0, 0, NULL },
};

typedef struct blk {
    xd_adaln  img, txt;
    xd_lin    qkv, out; /* qkv layer and output layer of the second attention */
    xd_tensor norm_q, norm_k;
} blk;

typedef struct glob {
    xd_lin    patch, text, mod, out;
    xd_mlp    time, pooled;
    xd_tensor places; /* [side^2, D]: position embeddings */
} glob;

typedef struct local {
    xd_tensor active; /* [1,D]: silu of the embedding of timestep and pooled text */
} local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    const xd_config_range r[] = {
        { "num_attention_heads", c->heads, 1, 4096 },
        { "attention_head_dim", c->head_dim, 8, 512 },
        { "in_channels", c->in_ch, 1, 65536 },
        { "num_layers", c->nlayers, 1, 10000 },
        { "joint_attention_dim", c->joint, 1, 1 << 24 },
        { "pooled_projection_dim", c->pooled, 1, 1 << 24 },
        { "patch_size", c->patch, 1, 256 },
        { "sample_size", c->sample, c->patch, 1 << 20 },
        { "pos_embed_max_size", c->places, 1, 1 << 14 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof r[0], e) != XD_OK)
        return XD_EFORMAT;
    c->dim = c->heads * c->head_dim;
    c->out_ch = c->out_ch ? c->out_ch : c->in_ch;
    if (c->out_ch != c->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: out_channels %lld is not in_channels %lld",
                       (long long)c->out_ch, (long long)c->in_ch);
    if (c->caption != c->dim)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: caption_projection_dim %lld is not the width "
                       "%lld",
                       (long long)c->caption, (long long)c->dim);
    if (c->qk_norm[0] && strcmp(c->qk_norm, "rms_norm") != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: qk_norm '%s' is not 'rms_norm'",
                       c->qk_norm);
    for (int i = 0; i < c->dual.n; i++)
        if (c->dual.v[i] < 0 || c->dual.v[i] >= c->nlayers)
            return xd_fail(e, XD_EFORMAT,
                           "transformer: dual_attention_layers has %lld of %d "
                           "layers",
                           (long long)c->dual.v[i], c->nlayers);
    return XD_OK;
}

static int is_dual(const cfg *c, int layer)
{
    for (int i = 0; i < c->dual.n; i++)
        if (c->dual.v[i] == layer)
            return 1;
    return 0;
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    *out = (xd_dit_info){
        .nlayers = c->nlayers,
        .heads = c->heads,
        .head_dim = (int)c->head_dim,
        .patch = { 1, (int)c->patch, (int)c->patch },
        .dim = c->dim,
        .lat_ch = c->in_ch,
        .sample = { 1, c->sample, c->sample },
        .text_dim = c->joint,
        .pooled_dim = c->pooled,
        .txt_flows = 1,
        .sites = c->dual.n ? 2 : 1,
        .local_size = sizeof(local),
        .most = { 1, c->places * c->patch, c->places * c->patch },
    };
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->nlayers;
}

/* ---- weights ------------------------------------------------------------------------------ */

static int64_t active_width(const void *c)
{
    return ((const cfg *)c)->dim;
}

static int64_t mod_width(const void *c_, int layer)
{
    const cfg *c = c_;
    return ((is_dual(c, layer) ? 9 : 6) + (layer == c->nlayers - 1 ? 2 : 6)) * c->dim;
}

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" };
    const cfg               *c = c_;
    blk                     *w = w_;
    int64_t                  D = c->dim, hd = c->head_dim;
    int                      dual = is_dual(c, layer), last = layer == c->nlayers - 1;
    xd_adaln_form            img = {
        .dim = D, .head_dim = hd, .nmod = dual ? 9 : 6, .qk_norm = c->qk_norm[0] != 0
    };
    xd_adaln_form txt = {
        .dim = D, .head_dim = hd, .nmod = last ? 2 : 6, .qk_norm = c->qk_norm[0] != 0, .last = last
    };
    xd_adaln_weights(d, &img, 0, &w->img);
    xd_adaln_weights(d, &txt, 1, &w->txt);
    if (!dual)
        return;
    xd_w_enter(d, "attn2");
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = D,
                                 .out = { D, D, D },
                                 .split = XD_COL,
                                 .unit = hd,
                                 .bias = 1 });
    xd_w_linear(d, &w->out, "to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd, .bias = 1 });
    if (c->qk_norm[0]) {
        xd_w_vec(d, &w->norm_q, "norm_q.weight", 1, &hd);
        xd_w_vec(d, &w->norm_k, "norm_k.weight", 1, &hd);
    }
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim, p = c->patch, n = c->places * c->places;
    xd_w_linear_as(d, &g->patch, "pos_embed.proj", 4, (int64_t[]){ D, c->in_ch, p, p }, 1);
    xd_w_table_as(d, &g->places, "pos_embed.pos_embed", 3, (int64_t[]){ 1, n, D });
    xd_mlp_weights(d, "time_text_embed.timestep_embedder", &g->time, XD_SINUSOIDS, D, D);
    xd_mlp_weights(d, "time_text_embed.text_embedder", &g->pooled, c->pooled, D, D);
    xd_w_linear(d, &g->text, "context_embedder",
                &(xd_linear_spec){ .in = c->joint, .out = D, .bias = 1 });
    xd_w_linear(d, &g->mod, "norm_out.linear",
                &(xd_linear_spec){ .in = D, .out = 2 * D, .bias = 1 });
    xd_w_linear(d, &g->out, "proj_out",
                &(xd_linear_spec){ .in = D, .out = p * p * c->out_ch, .bias = 1 });
}

/* ---- embedding ---------------------------------------------------------------------------- */

static xd_tensor active(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept)
{
    const glob *g = n->glob;
    (void)kept;
    return xd_pooled_row(x, in, &g->time, NULL, &g->pooled);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    local *l = s->local;
    l->active = xd_mods_input(x, n, in, s->kept, active);
}

typedef struct places {
    const xd_exec *x;
    const cfg     *c;
} places;

/* Returns the row of the table with the position embedding of image token i. The grid of tokens is
 * centred in the table. */
static int64_t place_of(const void *ctx, int64_t i)
{
    const places *p = ctx;
    int64_t       H = p->x->lay->grid[1], W = p->x->lay->grid[2], side = p->c->places;
    int64_t       at = xd_where(p->x, XD_IMG, i);
    return ((side - H) / 2 + at / W) * side + (side - W) / 2 + at % W;
}

/* Writes the position embeddings of this rank's image tokens to h. */
static void add_positions(xd_exec *x, const cfg *c, const glob *g, xd_tensor h)
{
    size_t mark = xd_arena_mark(x->tmp);
    xd_copy_to(x, h, xd_lookup_places(x, g->places, h.d[0], place_of, &(places){ x, c }));
    xd_arena_rewind(x->tmp, mark);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    int64_t     ntxt = xd_n(x, XD_TXT), nimg = xd_n(x, XD_IMG);
    if (!xd_check(x, in->lat.d[0] == nimg && in->txt.d[0] == ntxt && s->h.d[0] == nimg + ntxt,
                  "%lld image and %lld text tokens do not match %lld rows of state",
                  (long long)nimg, (long long)ntxt, (long long)s->h.d[0]) ||
        !xd_check(x, x->lay->grid[1] <= c->places && x->lay->grid[2] <= c->places,
                  "%lld x %lld tokens are more than pos_embed_max_size %lld",
                  (long long)x->lay->grid[1], (long long)x->lay->grid[2], (long long)c->places))
        return;
    size_t mark = xd_arena_mark(x->tmp);
    if (ntxt)
        xd_linear_into(x, xd_rows(s->h, 0, ntxt), in->txt, &g->text);
    xd_tensor h = xd_rows(s->h, ntxt, nimg);
    add_positions(x, c, g, h);
    xd_linear_add(x, h, (xd_tensor){ 0 }, in->lat, &g->patch);
    xd_arena_rewind(x->tmp, mark);
}

/* ---- running ------------------------------------------------------------------------------ */

/* Runs the second attention of a block, which is over the image only. y [n,D] is the attention's
 * normalized input. */
static xd_tensor second_attn(xd_exec *x, const cfg *c, const blk *w, xd_tensor y)
{
    xd_tensor z = xd_linear(x, y, &w->qkv);
    xd_qkv    a = xd_qkv_open(x, z, &w->qkv, c->head_dim);
    xd_qkv_fill(x, &a, z, &w->qkv,
                &(xd_qkv_rows){ .n = z.d[0], .norm_q = w->norm_q, .norm_k = w->norm_k });
    return xd_flat(xd_attn_of(x, XD_STREAM(XD_IMG), a.q, a.k, a.v, 0));
}

/* Runs a block. A block's modulation has nine rows: shift, scale and gate of the attention, of the
 * feed-forward, and of the second attention. In the last block, the text's modulation has only two
 * rows: scale, then shift. */
static void forward(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const blk      *w = w_;
    const cfg      *c = n->cfg;
    const local    *l = s->local;
    const xd_adaln *sides[2] = { &w->txt, &w->img };
    /* `dual` and `last` are computed from the output widths of layers, which tensor parallelism
     * does not reduce. So a rank without attention heads also runs the second attention. */
    int             dual = w->out.w.out > 0, last = !w->txt.out.w.out;
    int64_t         rows[2] = { xd_n(x, XD_TXT), xd_n(x, XD_IMG) }, at[2] = { 0, rows[0] };
    xd_tensor no = { 0 }, h[2], mod[2], y = xd_new(x, rows[0] + rows[1], w->img.qkv.w.out), y2 = no;
    for (int i = 0; i < 2; i++) {
        int ends = last && i == 0;
        h[i] = xd_rows(s->h, at[i], rows[i]);
        mod[i] = xd_mod_rows(x, l->active, &sides[i]->mod, ends ? 2 : dual && i ? 9 : 6);
        if (dual && i)
            y2 = xd_norm_mod(x, h[i], xd_rows(mod[i], 7, 1), xd_rows(mod[i], 6, 1), eps);
        size_t  mark = xd_arena_mark(x->tmp);
        xd_norm a = { .in = h[i],
                      .scale = xd_rows(mod[i], !ends, 1),
                      .shift = xd_rows(mod[i], ends, 1),
                      .eps = eps };
        xd_linear_into(x, xd_rows(y, at[i], rows[i]), xd_norm_for(x, &a, &sides[i]->qkv, NULL),
                       &sides[i]->qkv);
        xd_arena_rewind(x->tmp, mark);
    }
    xd_qkv a = xd_qkv_open(x, y, &w->img.qkv, c->head_dim);
    for (int i = 0; i < 2; i++)
        xd_qkv_fill(x, &a, y, &w->img.qkv,
                    &(xd_qkv_rows){ .at = at[i],
                                    .n = rows[i],
                                    .norm_q = sides[i]->norm_q,
                                    .norm_k = sides[i]->norm_k });
    xd_tensor o = xd_flat(xd_attn(x, a.q, a.k, a.v, 0));
    for (int i = last; i < 2; i++)
        xd_linear_add(x, h[i], xd_rows(mod[i], 2, 1), xd_rows(o, at[i], rows[i]), &sides[i]->out);
    if (dual)
        xd_linear_add(x, h[1], xd_rows(mod[1], 8, 1), second_attn(x, c, w, y2), &w->out);
    for (int i = last; i < 2; i++)
        xd_adaln_feed(x, h[i], sides[i], mod[i]);
}

/* Computes the network's output. The final modulation has two rows: scale, then shift. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    xd_tensor    m = xd_mod_rows(x, l->active, &g->mod, 2);
    xd_tensor    h = xd_rows(s->h, xd_n(x, XD_TXT), xd_n(x, XD_IMG));
    return xd_patch_head(x, h, xd_rows(m, 0, 1), xd_rows(m, 1, 1), &g->out, c->in_ch,
                         c->patch * c->patch);
}

/* Kinds of blocks. 0: a block with one attention; 1: a block with two attentions; 2: the last block
 * with one attention; 3: the last block with two attentions. */
static const xd_block kinds[4] = {
    { "transformer_blocks.%d", sizeof(blk), blk_weights, forward },
    { "transformer_blocks.%d", sizeof(blk), blk_weights, forward },
    { "transformer_blocks.%d", sizeof(blk), blk_weights, forward },
    { "transformer_blocks.%d", sizeof(blk), blk_weights, forward },
};

static const xd_block *block(const void *c_, int layer)
{
    const cfg *c = c_;
    return &kinds[2 * (layer == c->nlayers - 1) + is_dual(c, layer)];
}

extern const xd_dit xd_dit_sd3;

const xd_dit xd_dit_sd3 = {
    .net = { .name = "sd3",
             .classes = { "SD3Transformer2DModel" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .nlayers = nlayers,
             .block = block,
             .weights = weights },
    .info = info,
    .active = active,
    .active_width = active_width,
    .mod_width = mod_width,
    .cond = cond,
    .embed = embed,
    .head = head,
};
