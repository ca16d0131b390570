/* dit.c - runs the transformer of AuraFlow (fal 2024) like diffusers' AuraFlowTransformer2DModel.
 *
 * Double blocks have separate weights for text and image and one joint attention; single blocks
 * have common weights for both. In both kinds of blocks, the output of the attention is added to a
 * copy of the hidden state, from which the feed-forward computes what is added to the hidden state
 * itself. Learned rows, the registers, follow the text rows. Text has no positions, so the place of
 * the registers does not matter. The position embeddings of the image are the central part of a
 * table in the checkpoint. No linear layer of a block has a bias. */
#include <math.h>
#include <stddef.h>

#include "dit/layers.h"

/* CELLS: latent cells per side of an image of the pipeline's default size, 1024 pixels; WIDE: the
 * width of the feed-forward is a multiple of this number */
enum { REGISTERS = 8, CELLS = 128, WIDE = 256, MODS = 6 };
static const float eps = 1e-5f;

typedef struct cfg {
    int64_t head_dim, in_ch, out_ch, joint, caption, patch, places;
    int     heads, ndouble, nsingle;
    int64_t dim;  /* D = heads * head_dim */
    int64_t ff;   /* width of the feed-forward */
    int64_t side; /* rows and columns of the table of positions */
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "patch_size", AT(patch), 'l', 2, NULL },
    { "in_channels", AT(in_ch), 'l', 4, NULL },
    { "out_channels", AT(out_ch), 'l', 4, NULL },
    { "num_mmdit_layers", AT(ndouble), 'i', 4, NULL },
    { "num_single_dit_layers", AT(nsingle), 'i', 32, NULL },
    { "attention_head_dim", AT(head_dim), 'l', 256, NULL },
    { "num_attention_heads", AT(heads), 'i', 12, NULL },
    { "joint_attention_dim", AT(joint), 'l', 2048, NULL },
    { "caption_projection_dim", AT(caption), 'l', 3072, NULL },
    { "pos_embed_max_size", AT(places), 'l', 1024, NULL },
    { "sample_size", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct side { /* weights of a block for text, for the image, or for both */
    xd_lin mod;       /* [6D,D]: modulation layer */
    xd_lin qkv, out;
    xd_lin up, down; /* `up` computes a and b; the feed-forward is down(silu(a) * b) */
} side;

typedef struct pair { side img, txt; } pair; /* weights of a double block */

typedef struct glob {
    xd_lin    patch, text, mod, out;
    xd_mlp    time;
    xd_tensor places;    /* [side^2 or more, D]: position embeddings */
    xd_tensor registers; /* [REGISTERS,D] */
} glob;

typedef struct local { xd_tensor active; /* [1,D]: silu of the embedding of the timestep */ } local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    const xd_config_range r[] = {
        { "num_attention_heads", c->heads, 1, 4096 },
        { "attention_head_dim", c->head_dim, 8, 512 },
        { "in_channels", c->in_ch, 1, 65536 },
        { "num_mmdit_layers", c->ndouble, 0, 10000 },
        { "num_single_dit_layers", c->nsingle, 0, 10000 },
        { "joint_attention_dim", c->joint, 1, 1 << 24 },
        { "patch_size", c->patch, 1, 256 },
        { "pos_embed_max_size", c->places, 1, 1 << 28 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof r[0], e) != XD_OK)
        return XD_EFORMAT;
    c->dim = c->heads * c->head_dim;
    c->ff = (8 * c->dim / 3 + WIDE - 1) / WIDE * WIDE;
    c->side = (int64_t)sqrt((double)c->places);
    c->out_ch = c->out_ch ? c->out_ch : c->in_ch;
    if (c->out_ch != c->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: out_channels %lld is not in_channels %lld",
                       (long long)c->out_ch, (long long)c->in_ch);
    if (c->caption != c->dim)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: caption_projection_dim %lld is not the width %lld",
                       (long long)c->caption, (long long)c->dim);
    return XD_OK;
}

static int nlayers(const void *c_)
{
    const cfg *c = c_;
    return c->ndouble + c->nsingle;
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    int64_t    most = c->side * c->patch, usual = most < CELLS ? most : CELLS;
    *out = (xd_dit_info){
        .nlayers = nlayers(c),
        .heads = c->heads,
        .head_dim = (int)c->head_dim,
        .patch = { 1, (int)c->patch, (int)c->patch },
        .dim = c->dim,
        .lat_ch = c->in_ch,
        .sample = { 1, usual, usual },
        .text_dim = c->joint,
        .registers = REGISTERS,
        .txt_flows = 1,
        .sites = 1,
        .local_size = sizeof(local),
        .most = { 1, most, most },
    };
}

/* ---- weights ------------------------------------------------------------------------------ */

static int64_t active_width(const void *c)
{
    return ((const cfg *)c)->dim;
}

static int64_t mod_width(const void *c_, int layer)
{
    const cfg *c = c_;
    return (layer < c->ndouble ? 2 : 1) * MODS * c->dim;
}

static void side_weights(xd_decl *d, const cfg *c, int context, side *w)
{
    static const char *const qkv[2][3] = { { "to_q", "to_k", "to_v" },
                                           { "add_q_proj", "add_k_proj", "add_v_proj" } };
    static const char *const up[] = { "linear_1", "linear_2" };
    int64_t                  D = c->dim, hd = c->head_dim, F = c->ff;
    xd_w_linear(d, &w->mod, context ? "norm1_context.linear" : "norm1.linear",
                &(xd_linear_spec){ .in = D, .out = MODS * D, .few = 1 });
    xd_w_enter(d, "attn");
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv[context],
                                 .in = D,
                                 .out = { D, D, D },
                                 .split = XD_COL,
                                 .unit = hd });
    xd_w_linear(d, &w->out, context ? "to_add_out" : "to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd });
    xd_w_leave(d);
    xd_w_enter(d, context ? "ff_context" : "ff");
    xd_w_fused(d, &w->up,
               &(xd_fused_spec){ .n = 2, .names = up, .in = D, .out = { F, F }, .split = XD_COL });
    xd_w_linear(d, &w->down, "out_projection",
                &(xd_linear_spec){ .in = F, .out = D, .split = XD_ROW });
    xd_w_leave(d);
}

static void pair_weights(xd_decl *d, const void *c, int layer, void *w_)
{
    pair *w = w_;
    (void)layer;
    side_weights(d, c, 0, &w->img);
    side_weights(d, c, 1, &w->txt);
}

static void solo_weights(xd_decl *d, const void *c, int layer, void *w)
{
    (void)layer;
    side_weights(d, c, 0, w);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim, F = c->in_ch * c->patch * c->patch;
    xd_w_linear(d, &g->patch, "pos_embed.proj", &(xd_linear_spec){ .in = F, .out = D, .bias = 1 });
    xd_w_table_as(d, &g->places, "pos_embed.pos_embed", 3, (int64_t[]){ 1, c->places, D });
    xd_w_linear(d, &g->text, "context_embedder", &(xd_linear_spec){ .in = c->joint, .out = D });
    xd_w_vec(d, &g->registers, "register_tokens", 3, (int64_t[]){ 1, REGISTERS, D });
    xd_mlp_weights(d, "time_step_proj", &g->time, XD_SINUSOIDS, D, D);
    xd_w_linear(d, &g->mod, "norm_out.linear", &(xd_linear_spec){ .in = D, .out = 2 * D });
    xd_w_linear(d, &g->out, "proj_out", &(xd_linear_spec){ .in = D, .out = F });
}

/* ---- embedding ---------------------------------------------------------------------------- */

/* As in diffusers, the timestep is divided by 1000 in f32 before it is embedded. */
static xd_tensor active(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept)
{
    const glob *g = n->glob;
    double      t = 1000.0 * (double)((float)in->t / 1000.0f);
    (void)kept;
    return xd_gated(x, xd_mlp_timesteps(x, &t, 1, &g->time), (xd_tensor){ 0 }, XD_SILU);
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

/* Returns the row of the table with the position embedding of image token i. The middle of the grid
 * of tokens is in the middle of the table. */
static int64_t place_of(const void *ctx, int64_t i)
{
    const places *p = ctx;
    int64_t       H = p->x->lay->grid[1], W = p->x->lay->grid[2], n = p->c->side;
    int64_t       at = xd_where(p->x, XD_IMG, i);
    return (n / 2 - H / 2 + at / W) * n + n / 2 - W / 2 + at % W;
}

/* Writes the position embeddings of this rank's image tokens to h. */
static void add_positions(xd_exec *x, const cfg *c, const glob *g, xd_tensor h)
{
    size_t mark = xd_arena_mark(x->tmp);
    xd_copy_to(x, h, xd_lookup_places(x, g->places, h.d[0], place_of, &(places){ x, c }));
    xd_arena_rewind(x->tmp, mark);
}

/* Embeds this rank's text rows; the last text rows of all ranks together are the registers. */
static void embed_text(xd_exec *x, const glob *g, xd_tensor text, xd_tensor h)
{
    int64_t n = 0, first = x->lay->len[XD_TXT] - REGISTERS;
    while (n < h.d[0] && xd_where(x, XD_TXT, n) < first)
        n++;
    if (n)
        xd_linear_into(x, xd_rows(h, 0, n), xd_rows(text, 0, n), &g->text);
    if (n < h.d[0]) {
        xd_tensor all = xd_reshape(g->registers, 2, (int64_t[]){ REGISTERS, h.d[1] });
        xd_copy_to(x, xd_rows(h, n, h.d[0] - n),
                   xd_rows(all, xd_where(x, XD_TXT, n) - first, h.d[0] - n));
    }
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    int64_t     ntxt = xd_n(x, XD_TXT), nimg = xd_n(x, XD_IMG);
    if (!xd_check(x, in->lat.d[0] == nimg && in->txt.d[0] == ntxt && s->h.d[0] == nimg + ntxt,
                  "%lld image and %lld text tokens do not match %lld rows of state",
                  (long long)nimg, (long long)ntxt, (long long)s->h.d[0]) ||
        !xd_check(x, x->lay->grid[1] <= c->side && x->lay->grid[2] <= c->side,
                  "%lld x %lld tokens are more than the %lld x %lld of pos_embed_max_size",
                  (long long)x->lay->grid[1], (long long)x->lay->grid[2], (long long)c->side,
                  (long long)c->side))
        return;
    size_t mark = xd_arena_mark(x->tmp);
    if (ntxt)
        embed_text(x, g, in->txt, xd_rows(s->h, 0, ntxt));
    xd_tensor h = xd_rows(s->h, ntxt, nimg);
    add_positions(x, c, g, h);
    xd_linear_add(x, h, (xd_tensor){ 0 }, in->lat, &g->patch);
    xd_arena_rewind(x->tmp, mark);
}

/* ---- running ------------------------------------------------------------------------------ */

typedef struct part { /* rows [at, at + h.d[0]) of the hidden state, with the same weights */
    const side *w;
    int64_t     at;
    xd_tensor   h;
    /* [6,D]: shift, scale and gate of the attention, then of the feed-forward */
    xd_tensor   mod;
} part;

static xd_tensor norm_for(xd_exec *x, xd_tensor in, const part *p, int at, const xd_lin *w)
{
    xd_norm a = {
        .in = in, .scale = xd_rows(p->mod, at + 1, 1), .shift = xd_rows(p->mod, at, 1), .eps = eps
    };
    return xd_norm_for(x, &a, w, NULL);
}

/* Computes the attention of all parts, [rows of h, D of this rank's heads]. */
static xd_tensor attend(xd_exec *x, const cfg *c, const xd_tensor *h, const part *p, int n)
{
    xd_tensor y = xd_new(x, h->d[0], p->w->qkv.w.out);
    for (int i = 0; i < n; i++) {
        size_t mark = xd_arena_mark(x->tmp);
        xd_linear_into(x, xd_rows(y, p[i].at, p[i].h.d[0]),
                       norm_for(x, p[i].h, &p[i], 0, &p[i].w->qkv), &p[i].w->qkv);
        xd_arena_rewind(x->tmp, mark);
    }
    xd_qkv    a = xd_qkv_open(x, y, &p->w->qkv, c->head_dim);
    xd_tensor q = xd_heads(xd_seg(y, &p->w->qkv, 0), c->head_dim);
    xd_tensor k = xd_heads(xd_seg(y, &p->w->qkv, 1), c->head_dim);
    xd_qk_layer_norm_into(
        x, &(xd_qknorm){ .out = a.q, .in = q, .also = { .out = a.k, .in = k }, .eps = eps });
    return xd_flat(xd_attn(x, a.q, a.k, a.v, 0));
}

/* Computes h += gate * ff(norm(h + gate of the attention * o w^T)); o has the attention's rows. */
static void feed(xd_exec *x, const part *p, xd_tensor o)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor t = xd_new_f32(x, p->h.d[0], p->h.d[1]);
    xd_copy_to(x, t, p->h);
    xd_linear_add(x, t, xd_rows(p->mod, 2, 1), o, &p->w->out);
    xd_tensor y = xd_linear(x, norm_for(x, t, p, 3, &p->w->up), &p->w->up);
    xd_tensor z =
        xd_gated_for(x, xd_seg(y, &p->w->up, 0), xd_seg(y, &p->w->up, 1), XD_SILU, &p->w->down);
    xd_linear_add(x, p->h, xd_rows(p->mod, 5, 1), z, &p->w->down);
    xd_arena_rewind(x->tmp, mark);
}

static void run(xd_exec *x, const xd_net *n, xd_state *s, part *p, int parts)
{
    const local *l = s->local;
    for (int i = 0; i < parts; i++)
        p[i].mod = xd_mod_rows(x, l->active, &p[i].w->mod, MODS);
    xd_tensor o = attend(x, n->cfg, &s->h, p, parts);
    for (int i = 0; i < parts; i++)
        feed(x, &p[i], xd_rows(o, p[i].at, p[i].h.d[0]));
}

static void forward_pair(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const pair *w = w_;
    int64_t     ntxt = xd_n(x, XD_TXT), nimg = xd_n(x, XD_IMG);
    part        p[2] = { { .w = &w->txt, .h = xd_rows(s->h, 0, ntxt) },
                         { .w = &w->img, .at = ntxt, .h = xd_rows(s->h, ntxt, nimg) } };
    run(x, n, s, p, 2);
}

static void forward_solo(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    run(x, n, s, &(part){ .w = w, .h = s->h }, 1);
}

/* Computes the network's output. The final modulation has two rows, scale and then shift, and there
 * is no norm before it. In each patch, proj_out's outputs are in the order (row, column, channel),
 * and the result has the order (channel, row, column). */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    int64_t      N = xd_n(x, XD_IMG);
    xd_tensor    h = xd_rows(s->h, xd_n(x, XD_TXT), N);
    xd_tensor    out = xd_new_f32(x, N, c->in_ch * c->patch * c->patch);
    size_t       mark = xd_arena_mark(x->tmp);
    xd_tensor    m = xd_mod_rows(x, l->active, &g->mod, 2), y = xd_new_f32(x, N, c->dim);
    xd_copy_to(x, y, h);
    xd_add_gated(x, y, xd_rows(m, 0, 1), h);
    xd_tensor shift = xd_rows(m, 1, 1);
    shift.d[0] = N, shift.s[0] = 0;
    xd_add(x, y, shift);
    xd_by_channel(x, out, xd_linear_f32(x, y, &g->out), c->in_ch);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

static const xd_block kind_pair = { "joint_transformer_blocks.%d", sizeof(pair), pair_weights,
                                    forward_pair };
static const xd_block kind_solo = { "single_transformer_blocks.%d", sizeof(side), solo_weights,
                                    forward_solo };

static const xd_block *block(const void *c, int layer)
{
    return layer < ((const cfg *)c)->ndouble ? &kind_pair : &kind_solo;
}

extern const xd_dit xd_dit_auraflow;

const xd_dit xd_dit_auraflow = {
    .net = { .name = "auraflow",
             .classes = { "AuraFlowTransformer2DModel" },
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
