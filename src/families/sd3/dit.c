/* dit.c - runs the transformer of Stable Diffusion 3 and 3.5 (Esser et al. 2024, arXiv:2403.03206)
 * like diffusers' SD3Transformer2DModel, and its side networks like diffusers' SD3ControlNetModel.
 *
 * A block has separate weights for text and image and one joint attention. The last block reads
 * only the keys and values of the text and does not change the text. The first blocks of SD 3.5
 * medium have a second attention over the image only. The position embeddings are the central part
 * of a table in the checkpoint.
 *
 * A side network (ControlNet) has m blocks for the n blocks of the transformer. What its block j
 * computes, its residual, is added to the image after each block i of the transformer for which j =
 * floor(i m / n). Block j of the side network runs directly before the first of these blocks. A
 * token has two further states for each side network: its hidden state and its residual. Blocks of
 * the side networks of SD 3.5 large have no text. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "dit/layers.h"
#include "dit/sides.h"

static const float eps = 1e-6f;

typedef struct cfg {
    int64_t head_dim, in_ch, out_ch, joint, caption, pooled, patch, sample, places;
    int     heads, nlayers;
    xd_ints dual; /* indices of the blocks with a second attention */
    char    qk_norm[XD_FIELD_TEXT];
    int64_t dim; /* D = heads * head_dim */
} cfg;

/* The config of a side network. */
typedef struct side_cfg {
    cfg c;
    /* own_places: 1: the network has its own patch and position embeddings; 0: it uses those of the
     * transformer. zero_pooled: 1: the pooled text is zeros. single: 1: the blocks have no text. */
    int own_places, zero_pooled, single, extra;
} side_cfg;

/* The config of the transformer with its side networks. */
typedef struct whole_cfg {
    cfg      main;
    int      nsides;
    side_cfg side[XD_MAXSIDES];
    xd_sides order; /* the order of the blocks of all networks */
} whole_cfg;

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
    { XD_SIDES_KEY, 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* Config keys that only a side network has; the other keys are those of `fields`. */
#define SIDE_AT(m) offsetof(side_cfg, m)
static const xd_field side_fields[] = {
    { "use_pos_embed", SIDE_AT(own_places), 'b', 1, NULL },
    { "force_zeros_for_pooled_projection", SIDE_AT(zero_pooled), 'b', 1, NULL },
    { "extra_conditioning_channels", SIDE_AT(extra), 'i', 0, NULL },
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

typedef struct side_blk {
    blk    b;
    xd_lin residual; /* layer from the hidden state to the residual */
} side_blk;

typedef struct whole_glob {
    glob   main, side[XD_MAXSIDES]; /* the side networks have no final norm and no output layer */
    xd_lin control[XD_MAXSIDES];    /* [D, C p p]: patch embedding of the control image */
} whole_glob;

typedef struct local {
    xd_tensor active; /* [1,D]: silu of the embedding of timestep and pooled text */
} local;

typedef struct whole_local {
    local     main;
    xd_tensor active[XD_MAXSIDES]; /* `active` of the side networks */
    float     scale[XD_MAXSIDES];  /* factors of the residuals; 0: the network is not used */
} whole_local;

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

static void place_weights(xd_decl *d, const cfg *c, glob *g)
{
    int64_t D = c->dim, p = c->patch, n = c->places * c->places;
    xd_w_linear_as(d, &g->patch, "pos_embed.proj", 4, (int64_t[]){ D, c->in_ch, p, p }, 1);
    xd_w_table_as(d, &g->places, "pos_embed.pos_embed", 3, (int64_t[]){ 1, n, D });
}

static void time_weights(xd_decl *d, const cfg *c, glob *g)
{
    int64_t D = c->dim;
    xd_mlp_weights(d, "time_text_embed.timestep_embedder", &g->time, XD_SINUSOIDS, D, D);
    xd_mlp_weights(d, "time_text_embed.text_embedder", &g->pooled, c->pooled, D, D);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim, p = c->patch;
    place_weights(d, c, g);
    time_weights(d, c, g);
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
    xd_tensor   all = xd_dit_state(s, c->dim, 0);
    if (!xd_check(x, in->lat.d[0] == nimg && in->txt.d[0] == ntxt && s->h.d[0] == nimg + ntxt,
                  "%lld image and %lld text tokens do not match %lld rows of state",
                  (long long)nimg, (long long)ntxt, (long long)s->h.d[0]) ||
        !xd_check(x, x->lay->grid[1] <= c->places && x->lay->grid[2] <= c->places,
                  "%lld x %lld tokens are more than pos_embed_max_size %lld",
                  (long long)x->lay->grid[1], (long long)x->lay->grid[2], (long long)c->places))
        return;
    size_t mark = xd_arena_mark(x->tmp);
    if (ntxt)
        xd_linear_into(x, xd_rows(all, 0, ntxt), in->txt, &g->text);
    xd_tensor h = xd_rows(all, ntxt, nimg);
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
static void run_block(xd_exec *x, const cfg *c, const blk *w, xd_tensor all, xd_tensor active)
{
    const xd_adaln *sides[2] = { &w->txt, &w->img };
    /* `dual` and `last` are computed from the output widths of layers, which tensor parallelism
     * does not reduce. So a rank without attention heads also runs the second attention. */
    int             dual = w->out.w.out > 0, last = !w->txt.out.w.out;
    int64_t         rows[2] = { xd_n(x, XD_TXT), xd_n(x, XD_IMG) }, at[2] = { 0, rows[0] };
    xd_tensor no = { 0 }, h[2], mod[2], y = xd_new(x, rows[0] + rows[1], w->img.qkv.w.out), y2 = no;
    for (int i = 0; i < 2; i++) {
        int ends = last && i == 0;
        h[i] = xd_rows(all, at[i], rows[i]);
        mod[i] = xd_mod_rows(x, active, &sides[i]->mod, ends ? 2 : dual && i ? 9 : 6);
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
    xd_tensor    h = xd_rows(xd_dit_state(s, c->dim, 0), xd_n(x, XD_TXT), xd_n(x, XD_IMG));
    return xd_patch_head(x, h, xd_rows(m, 0, 1), xd_rows(m, 1, 1), &g->out, c->in_ch,
                         c->patch * c->patch);
}

/* ---- side networks ------------------------------------------------------------------------ */

static xd_status read_sides(void *c_, const xd_json *obj, const char *what, xd_err *e)
{
    whole_cfg     *c = c_;
    const xd_json *list = xd_json_get(obj, XD_SIDES_KEY);
    xd_status      s = XD_OK;
    for (int i = 0; s == XD_OK && i < xd_json_size(list) && i < XD_MAXSIDES; i++, c->nsides++) {
        const xd_json *side = xd_json_at(list, i),
                      *joint = xd_json_get(side, "joint_attention_dim");
        s = xd_fields_read(fields, &c->side[i].c, side, what, e);
        if (s == XD_OK)
            s = xd_fields_read(side_fields, &c->side[i], side, what, e);
        c->side[i].single = joint && xd_json_null(joint);
    }
    return s;
}

/* Checks that the sizes of side network i are those of the transformer. */
static xd_status check_side(const cfg *c, side_cfg *side, int i, xd_err *e)
{
    cfg *own = &side->c;
    own->dim = c->dim;
    own->out_ch = c->out_ch;
    const xd_side_number v[] = {
        { "num_attention_heads", own->heads, c->heads },
        { "attention_head_dim", (double)own->head_dim, (double)c->head_dim },
        { "in_channels", (double)own->in_ch, (double)c->in_ch },
        { "patch_size", (double)own->patch, (double)c->patch },
        { "joint_attention_dim", (double)(side->single ? c->joint : own->joint), (double)c->joint },
        { "pooled_projection_dim", (double)own->pooled, (double)c->pooled },
        { "extra_conditioning_channels", side->extra, 0 },
    };
    if (xd_sides_check(v, sizeof v / sizeof *v, i, e) != XD_OK)
        return XD_EFORMAT;
    if (xd_sides_check_layers(own->nlayers, c->nlayers, i, e) != XD_OK)
        return XD_EFORMAT;
    if (side->single && own->dual.n)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "controlnet %d: dual_attention_layers is not supported without "
                       "joint_attention_dim",
                       i);
    return XD_OK;
}

/* Returns the block of side network i whose residual is added after block `layer` of the
 * transformer, with the floating-point division of diffusers. */
static int residual_of(const whole_cfg *c, int i, int layer)
{
    return (int)(layer / ((double)c->main.nlayers / c->side[i].c.nlayers));
}

/* Implements `before` of xd_sides_order. */
static int blocks_before(const void *c, int i, int layer)
{
    return residual_of(c, i, layer) + 1;
}

static xd_status check_whole(void *c_, xd_err *e)
{
    whole_cfg *c = c_;
    xd_status  s = check_config(&c->main, e);
    for (int i = 0; s == XD_OK && i < c->nsides; i++)
        s = check_side(&c->main, &c->side[i], i, e);
    return s == XD_OK ? xd_sides_order(&c->order, c->main.nlayers, c->nsides, blocks_before, c, e)
                      : s;
}

static int whole_nlayers(const void *c)
{
    return ((const whole_cfg *)c)->order.nblocks;
}

static void whole_info(const void *c_, xd_dit_info *out)
{
    const whole_cfg *c = c_;
    info(&c->main, out);
    out->nlayers = c->order.nblocks;
    out->states = 1 + 2 * c->nsides;
    out->sides = out->hints = c->nsides;
    out->extra_ch = c->nsides * c->main.in_ch;
    out->local_size = sizeof(whole_local);
    for (int i = 0; i < c->nsides; i++) {
        out->unshifted |= c->side[i].zero_pooled << i;
        if (c->side[i].c.dual.n)
            out->sites = 2;
    }
}

static void whole_weights(xd_decl *d, const void *c_, void *g_)
{
    const whole_cfg *c = c_;
    whole_glob      *g = g_;
    int64_t          D = c->main.dim, p = c->main.patch;
    weights(d, &c->main, &g->main);
    for (int i = 0; i < c->nsides; i++) {
        const cfg *own = &c->side[i].c;
        xd_w_enter(d, "controlnet.%d", i);
        if (c->side[i].own_places)
            place_weights(d, own, &g->side[i]);
        time_weights(d, own, &g->side[i]);
        if (!c->side[i].single)
            xd_w_linear(d, &g->side[i].text, "context_embedder",
                        &(xd_linear_spec){ .in = own->joint, .out = D, .bias = 1 });
        xd_w_linear_as(d, &g->control[i], "pos_embed_input.proj", 4,
                       (int64_t[]){ D, own->in_ch, p, p }, 1);
        xd_w_leave(d);
    }
}

static int64_t whole_mod_width(const void *c_, int layer)
{
    const whole_cfg *c = c_;
    return c->order.net[layer] < 0 ? mod_width(&c->main, c->order.at[layer]) : 0;
}

static void whole_blk_weights(xd_decl *d, const void *c_, int layer, void *w)
{
    const whole_cfg *c = c_;
    blk_weights(d, &c->main, c->order.at[layer], w);
}

/* Declares the weights of a block of a side network. No block of a side network is the last block
 * of a transformer, which does not change the text. */
static void side_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const whole_cfg *c = c_;
    const side_cfg  *side = &c->side[c->order.net[layer]];
    side_blk        *w = w_;
    cfg              own = side->c;
    int64_t          D = c->main.dim;
    int              at = c->order.at[layer];
    own.nlayers = at + 2;
    xd_w_enter(d, "transformer_blocks.%d", at);
    if (side->single)
        xd_adaln_weights(d, &(xd_adaln_form){ .dim = D, .head_dim = own.head_dim, .nmod = 6 }, 0,
                         &w->b.img);
    else
        blk_weights(d, &own, at, &w->b);
    xd_w_leave(d);
    xd_sides_residual(d, "controlnet_blocks", at, D, &w->residual);
}

static void fill_zeros(void *ctx, float *buf)
{
    for (int64_t i = 0; i < *(const int64_t *)ctx; i++)
        buf[i] = 0;
}

static void cond_whole(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const whole_glob *g = n->glob;
    const whole_cfg  *c = n->cfg;
    whole_local      *l = s->local;
    xd_cond           zero = *in->cond;
    xd_input          none = *in;
    int64_t           P = c->main.pooled;
    int               zeros = 0;
    cond(x, n, in, s);
    none.cond = &zero;
    for (int i = 0; i < c->nsides; i++)
        zeros |= c->side[i].zero_pooled;
    if (zeros) { /* a copy to the device, which other passes do without */
        zero.pooled = xd_new_f32(x, 1, P);
        xd_fill(x, zero.pooled, fill_zeros, &P);
    }
    for (int i = 0; i < c->nsides; i++) {
        l->active[i] = xd_pooled_row(x, c->side[i].zero_pooled ? &none : in, &g->side[i].time, NULL,
                                     &g->side[i].pooled);
        l->scale[i] = xd_sides_scale(in, i);
    }
}

static void embed_whole(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const whole_glob *g = n->glob;
    const whole_cfg  *c = n->cfg;
    int64_t           F = in->lat.d[1], D = c->main.dim;
    int64_t           ntxt = xd_n(x, XD_TXT), nimg = xd_n(x, XD_IMG);
    embed(x, n, in, s);
    for (int i = 0; i < c->nsides && xd_ok(x); i++) {
        const side_cfg *side = &c->side[i];
        const glob     *own = side->own_places ? &g->side[i] : &g->main;
        const cfg      *sizes = side->own_places ? &side->c : &c->main;
        xd_tensor       all = xd_dit_state(s, D, 1 + 2 * i), h = xd_rows(all, ntxt, nimg);
        if (!xd_check(x, x->lay->grid[1] <= sizes->places && x->lay->grid[2] <= sizes->places,
                      "%lld x %lld tokens are more than pos_embed_max_size %lld of a controlnet",
                      (long long)x->lay->grid[1], (long long)x->lay->grid[2],
                      (long long)sizes->places))
            return;
        size_t mark = xd_arena_mark(x->tmp);
        xd_copy_to(x, all, xd_dit_state(s, D, 0));
        if (ntxt && !side->single)
            xd_linear_into(x, xd_rows(all, 0, ntxt), in->txt, &g->side[i].text);
        add_positions(x, sizes, own, h);
        xd_linear_add(x, h, (xd_tensor){ 0 }, in->lat, &own->patch);
        xd_linear_add(x, h, (xd_tensor){ 0 }, xd_cols(in->extra, i * F, F), &g->control[i]);
        xd_copy_to(x, xd_dit_state(s, D, 2 + 2 * i), all); /* any finite numbers */
        xd_arena_rewind(x->tmp, mark);
    }
}

/* Runs a block without text on the image's rows h. */
static void run_single(xd_exec *x, const cfg *c, const xd_adaln *w, xd_tensor h, xd_tensor active)
{
    xd_tensor mod = xd_mod_rows(x, active, &w->mod, 6);
    xd_tensor y =
        xd_linear(x, xd_norm_mod(x, h, xd_rows(mod, 1, 1), xd_rows(mod, 0, 1), eps), &w->qkv);
    xd_qkv a = xd_qkv_open(x, y, &w->qkv, c->head_dim);
    xd_qkv_fill(x, &a, y, &w->qkv, &(xd_qkv_rows){ .n = h.d[0] });
    xd_linear_add(x, h, xd_rows(mod, 2, 1),
                  xd_flat(xd_attn_of(x, XD_STREAM(XD_IMG), a.q, a.k, a.v, 0)), &w->out);
    xd_adaln_feed(x, h, w, mod);
}

/* Runs a block of a side network and computes its residual. */
static void forward_side(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const side_blk    *w = w_;
    const whole_local *l = s->local;
    const whole_cfg   *c = n->cfg;
    int64_t            D = c->main.dim, ntxt = xd_n(x, XD_TXT), nimg = xd_n(x, XD_IMG);
    int                i = c->order.net[x->layer];
    xd_tensor          all = xd_dit_state(s, D, 1 + 2 * i), h = xd_rows(all, ntxt, nimg);
    xd_tensor          residual = xd_rows(xd_dit_state(s, D, 2 + 2 * i), ntxt, nimg);
    if (l->scale[i] == 0)
        return;
    if (c->side[i].single)
        run_single(x, &c->main, &w->b.img, h, l->active[i]);
    else
        run_block(x, &c->main, &w->b, all, l->active[i]);
    xd_linear_into(x, residual, h, &w->residual);
    if (l->scale[i] != 1)
        xd_axpby(x, residual, 0, (xd_tensor){ 0 }, l->scale[i]);
}

/* Runs a block of the transformer and, unless it is the last one, adds the residuals. */
static void forward_main(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    const whole_local *l = s->local;
    const whole_cfg   *c = n->cfg;
    int64_t            D = c->main.dim, ntxt = xd_n(x, XD_TXT), nimg = xd_n(x, XD_IMG);
    xd_tensor          h = xd_rows(xd_dit_state(s, D, 0), ntxt, nimg);
    run_block(x, &c->main, w, xd_dit_state(s, D, 0), l->main.active);
    for (int i = 0; i < c->nsides && c->order.at[x->layer] < c->main.nlayers - 1; i++)
        if (l->scale[i] != 0)
            xd_add(x, h, xd_rows(xd_dit_state(s, D, 2 + 2 * i), ntxt, nimg));
}

static xd_tensor probe_whole(xd_exec *x, const xd_net *n, xd_state *s)
{
    return xd_rows(xd_dit_state(s, ((const cfg *)n->cfg)->dim, 0), xd_n(x, XD_TXT),
                   xd_n(x, XD_IMG));
}

/* Kinds of blocks of the transformer. 0: a block with one attention; 1: a block with two
 * attentions; 2: the last block with one attention; 3: the last block with two attentions. */
static const xd_block whole_kinds[4] = {
    { "transformer_blocks.%d", sizeof(blk), whole_blk_weights, forward_main },
    { "transformer_blocks.%d", sizeof(blk), whole_blk_weights, forward_main },
    { "transformer_blocks.%d", sizeof(blk), whole_blk_weights, forward_main },
    { "transformer_blocks.%d", sizeof(blk), whole_blk_weights, forward_main },
};
#define SIDE_KIND(name) { name, sizeof(side_blk), side_weights, forward_side }
#define SIDE_KINDS(name) { SIDE_KIND(name), SIDE_KIND(name) }
/* For each side network: a kind with one attention, and a kind with two. */
static const xd_block side_kinds[XD_MAXSIDES][2] = { XD_SIDES_KINDS(SIDE_KINDS) };

static const xd_block *whole_block(const void *c_, int layer)
{
    const whole_cfg *c = c_;
    int              i = c->order.net[layer], at = c->order.at[layer];
    if (i >= 0)
        return &side_kinds[i][is_dual(&c->side[i].c, at)];
    return &whole_kinds[2 * (at == c->main.nlayers - 1) + is_dual(&c->main, at)];
}

extern const xd_dit xd_dit_sd3;

static const xd_side side = { .classes = { "SD3ControlNetModel" } };

const xd_dit xd_dit_sd3 = {
    .net = { .name = "sd3",
             .classes = { "SD3Transformer2DModel" },
             .fields = fields,
             .read = read_sides,
             .cfg_size = sizeof(whole_cfg),
             .glob_size = sizeof(whole_glob),
             .check = check_whole,
             .nlayers = whole_nlayers,
             .block = whole_block,
             .weights = whole_weights },
    .side = &side,
    .info = whole_info,
    .active = active,
    .active_width = active_width,
    .mod_width = whole_mod_width,
    .cond = cond_whole,
    .embed = embed_whole,
    .head = head,
    .probe = probe_whole,
};
