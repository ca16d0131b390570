/* dit.c - runs the transformer of FLUX.1 (Black Forest Labs 2024) like diffusers'
 * FluxTransformer2DModel, and its side networks like diffusers' FluxControlNetModel.
 *
 * Double blocks have separate weights for text and image and one joint attention. Single blocks
 * treat text and image as one sequence and compute attention and feed-forward in parallel.
 * Positions enter by RoPE. The position of an image token is (0, row, column). The position of a
 * token of a reference image (FLUX.1 Kontext) is (1, row, column); apart from that, tokens of
 * reference images are treated like image tokens. Text tokens have position 0, where RoPE is the
 * identity.
 *
 * A side network (ControlNet) has m double blocks for the n double blocks of the transformer, and
 * likewise single blocks. What its block j computes, its residual, is added to the image after each
 * block i of the transformer for which j = floor(i / ceil(n / m)). Block j of the side network runs
 * directly before the first of these blocks. A token has two further states for each side network:
 * its hidden state and its residual. A side network for several kinds of control images (Union) has
 * a row for the kind of its image, which is treated like a text row. The other networks do not read
 * this row (XD_LEAD).
 *
 * A side network of XLabs (conditioning_embedding_channels) reads the pixels of its control image
 * with eight convolutions, whose result has the form of latents. The residual of its double block j
 * is added after each double block i of the transformer for which j = i mod m, so a token has a
 * state for each of the m residuals. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "dit/dual.h"
#include "dit/sides.h"
#include "families/flux/keys.h"

enum { PACK = 2 }; /* latent cells per side of a token */
/* Of a side network that reads pixels: the number of convolutions between the first and the last,
 * the number of channels of all but the last, and the number of pixels per side of a cell of their
 * result. */
enum { HINT_BLOCKS = 6, HINT_WIDTH = 16, HINT_CELL = 8 };

typedef struct net_cfg { /* the config of the transformer or of a side network */
    xd_dual_cfg dual;
    int64_t     pooled;
    int         guided;
    /* modes: number of kinds of control images (num_mode); hint: channels of the features of a
     * network that reads pixels, else 0 */
    int64_t     modes, hint;
    int         state; /* of a side network: number of its hidden state among a token's states */
    int         residuals; /* number of states for residuals, which follow the hidden state */
} net_cfg;

typedef struct cfg {
    net_cfg  main;
    int      nsides, states; /* states: number of states of a token */
    net_cfg  side[XD_MAXSIDES];
    xd_sides order; /* the order of the blocks of all networks */
} cfg;

#define AT(m) offsetof(net_cfg, m)
/* Config keys that the transformer and its side networks have. */
#define COMMON_FIELDS                                        \
    XD_DUAL_FIELDS(64, 19, 38, 24, 4096),                    \
    { "pooled_projection_dim", AT(pooled), 'l', 768, NULL }, \
    { "guidance_embeds", AT(guided), 'b', 0, NULL }

static const xd_field fields[] = {
    COMMON_FIELDS,
    { XD_SIDES_KEY, 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static const xd_field side_fields[] = {
    COMMON_FIELDS,
    { "num_mode", AT(modes), 'l', 0, NULL },
    { "conditioning_embedding_channels", AT(hint), 'l', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct net_glob {
    xd_lin latents, text, mod, out; /* a side network has no `mod` and no `out` */
    xd_mlp time, guidance, pooled;
} net_glob;

typedef struct hint { xd_cnv in, block[HINT_BLOCKS], out; } hint; /* reads pixels */

typedef struct glob {
    net_glob  main, side[XD_MAXSIDES];
    xd_lin    control[XD_MAXSIDES]; /* [D, in_channels]: layer that reads the control image */
    xd_tensor mode[XD_MAXSIDES];    /* [modes, D]: rows for the kinds of control images */
    hint      hint[XD_MAXSIDES];
} glob;

typedef struct side_pair { /* weights of a double block of a side network */
    xd_pair b;
    xd_lin  residual; /* layer from the hidden state to the residual */
} side_pair;

typedef struct side_solo { /* weights of a single block of a side network */
    xd_solo b;
    xd_lin  residual;
} side_solo;

typedef struct local {
    /* [1,D]: silu of the sum of the embeddings of timestep, guidance and pooled text */
    xd_tensor active, side[XD_MAXSIDES];
    xd_tensor cos, sin; /* [n,head_dim/2] F32: RoPE of this rank's tokens */
    /* factors of the residuals; 0: the side network is not used in this forward pass */
    float     scale[XD_MAXSIDES];
} local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status read_sides(void *c_, const xd_json *obj, const char *what, xd_err *e)
{
    cfg           *c = c_;
    const xd_json *list = xd_json_get(obj, XD_SIDES_KEY);
    xd_status      s = XD_OK;
    for (int i = 0; s == XD_OK && i < xd_json_size(list) && i < XD_MAXSIDES; i++, c->nsides++)
        s = xd_fields_read(side_fields, &c->side[i], xd_json_at(list, i), what, e);
    return s;
}

/* Writes `, "KEY": N` with the extent `axis` of a tensor of a weight file. */
static void add_extent(xd_text_buf *b, const char *key, const xd_source *file, const char *name,
                       int axis)
{
    xd_tensor t;
    if (file->has(file->self, name, &t) && axis < t.nd)
        xd_buf_add(b, ", \"%s\": %lld", key, (long long)t.d[axis]);
}

/* Implements `describe` of xd_side for the files of XLabs, whose tensors have names of their own
 * (keys.c). */
static xd_status describe(const xd_source *file, const xd_json *transformer, xd_text_buf *b,
                          xd_err *e)
{
    net_cfg        c = { 0 };
    xd_tensor      t;
    const xd_json *axes = xd_json_get(transformer, "axes_dims_rope");
    if (!file->has(file->self, "pos_embed_input.weight", &t) ||
        !file->has(file->self, "input_hint_block.14.weight", &t))
        return XD_OK;
    xd_status s = xd_fields_read(fields, &c, transformer, "transformer", e);
    if (s != XD_OK)
        return s;
    xd_buf_add(b,
               "{\"_class_name\": \"FluxControlNetModel\", \"patch_size\": %d, "
               "\"num_single_layers\": 0, \"num_layers\": %d, \"guidance_embeds\": %s",
               PACK, xd_sides_count(file, "double_blocks.", ".img_attn.qkv.weight"),
               file->has(file->self, "guidance_in.in_layer.weight", &t) ? "true" : "false");
    xd_buf_add(b, ", \"num_attention_heads\": %d, \"attention_head_dim\": %lld", c.dual.heads,
               (long long)c.dual.head_dim);
    add_extent(b, "in_channels", file, "img_in.weight", 1);
    add_extent(b, "joint_attention_dim", file, "txt_in.weight", 1);
    add_extent(b, "pooled_projection_dim", file, "vector_in.in_layer.weight", 1);
    add_extent(b, "conditioning_embedding_channels", file, "input_hint_block.14.weight", 0);
    if (axes) {
        xd_buf_add(b, ", \"axes_dims_rope\": ");
        xd_buf_json(b, axes);
    }
    xd_buf_add(b, "}");
    return XD_OK;
}

/* Checks the convolutions of side network i, if it reads pixels, and counts the states of its
 * residuals. */
static xd_status check_hint(const net_cfg *c, net_cfg *side, int i, xd_err *e)
{
    int64_t want = c->dual.in_ch / (PACK * PACK);
    int     most = c->dual.ndouble < side->dual.ndouble ? c->dual.ndouble : side->dual.ndouble;
    side->residuals = side->hint && most > 1 ? most : 1;
    if (side->hint && side->hint != want)
        return xd_fail(e, XD_EFORMAT,
                       "controlnet %d does not fit the transformer: its "
                       "conditioning_embedding_channels is %lld, not %lld",
                       i, (long long)side->hint, (long long)want);
    return XD_OK;
}

/* Checks that side network i fits the transformer. */
static xd_status check_side(const net_cfg *c, net_cfg *side, int i, xd_err *e)
{
    xd_dual_cfg         *own = &side->dual;
    const xd_dual_cfg   *d = &c->dual;
    const xd_side_number v[] = {
        { "num_attention_heads", own->heads, d->heads },
        { "attention_head_dim", (double)own->head_dim, (double)d->head_dim },
        { "in_channels", (double)own->in_ch, (double)d->in_ch },
        { "joint_attention_dim", (double)own->joint, (double)d->joint },
        { "pooled_projection_dim", (double)side->pooled, (double)c->pooled },
        { "patch_size", (double)own->patch, side->hint ? PACK : (double)d->patch },
    };
    xd_status s = xd_sides_check(v, sizeof v / sizeof *v, i, e);
    if (s == XD_OK)
        s = check_hint(c, side, i, e);
    if (s == XD_OK)
        s = xd_dual_check(own, PACK * PACK, e);
    if (s == XD_OK)
        s = xd_dual_axes(&own->axes, "axes_dims_rope", NULL, own->head_dim, e);
    for (int k = 0; s == XD_OK && k < own->axes.n; k++)
        if (own->axes.v[k] != d->axes.v[k])
            s = xd_fail(e, XD_EFORMAT,
                        "controlnet %d does not fit the transformer: its axes_dims_rope differ", i);
    if (s == XD_OK && (side->modes < 0 || side->modes > 1 << 16))
        s = xd_fail(e, XD_EFORMAT, "controlnet %d has the num_mode %lld", i,
                    (long long)side->modes);
    own->modulated = 1;
    return s;
}

/* Returns the block of a side network with m blocks whose residual is added after block i of the n
 * blocks of the transformer of the same kind. */
static int residual_of(int i, int n, int m)
{
    return i / ((n + m - 1) / m);
}

/* Returns the double block of a side network whose residual is added after double block i of the
 * transformer. */
static int double_residual(const cfg *c, const net_cfg *side, int i)
{
    int m = side->dual.ndouble;
    return side->hint ? i % m : residual_of(i, c->main.dual.ndouble, m);
}

/* Returns the number of double blocks of a side network whose residuals the transformer reads. */
static int double_reads(const cfg *c, const net_cfg *side)
{
    int n = c->main.dual.ndouble, m = side->dual.ndouble;
    return !n || !m ? 0 : side->hint ? side->residuals : residual_of(n - 1, n, m) + 1;
}

/* Implements `before` of xd_sides_order. */
static int blocks_before(const void *c_, int i, int layer)
{
    const cfg         *c = c_;
    const xd_dual_cfg *d = &c->main.dual, *own = &c->side[i].dual;
    int                at = layer - d->ndouble;
    if (at < 0 && c->side[i].hint)
        return layer < own->ndouble ? layer + 1 : own->ndouble;
    if (at < 0)
        return own->ndouble ? double_residual(c, &c->side[i], layer) + 1 : 0;
    return own->ndouble + (own->nsingle ? residual_of(at, d->nsingle, own->nsingle) + 1 : 0);
}

static xd_status check_main(xd_dual_cfg *d, xd_err *e)
{
    if (d->patch != 1 || d->in_ch % (PACK * PACK) || d->out_ch % (PACK * PACK) || d->out_ch < 1 ||
        d->out_ch > d->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: patch_size %lld, in_channels %lld and "
                       "out_channels %lld: only patch_size 1 and channels that divide by %d, no "
                       "fewer in than out, are supported",
                       (long long)d->patch, (long long)d->in_ch, (long long)d->out_ch, PACK * PACK);
    d->modulated = 1;
    return xd_dual_axes(&d->axes, "axes_dims_rope", NULL, d->head_dim, e);
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    xd_dual_cfg          *d = &c->main.dual;
    const xd_config_range r = { "pooled_projection_dim", c->main.pooled, 1, 1 << 24 };
    if (xd_dual_check(d, PACK * PACK, e) != XD_OK || xd_check_ranges(&r, 1, e) != XD_OK)
        return XD_EFORMAT;
    xd_status s = check_main(d, e);
    c->states = 1;
    for (int i = 0; s == XD_OK && i < c->nsides; i++) {
        s = check_side(&c->main, &c->side[i], i, e);
        c->side[i].state = c->states;
        c->states += 1 + c->side[i].residuals;
    }
    return s == XD_OK
               ? xd_sides_order(&c->order, xd_dual_nlayers(d), c->nsides, blocks_before, c, e)
               : s;
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->order.nblocks;
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg         *c = c_;
    const xd_dual_cfg *d = &c->main.dual;
    *out = (xd_dit_info){
        .nlayers = c->order.nblocks,
        .heads = d->heads,
        .head_dim = (int)d->head_dim,
        .patch = { 1, PACK, PACK },
        .dim = d->dim,
        .states = c->states,
        .hints = c->nsides,
        .sides = c->nsides,
        .residuals = !c->nsides,
        .lat_ch = d->out_ch / (PACK * PACK),
        .extra_ch = (d->in_ch - d->out_ch + c->nsides * d->in_ch) / (PACK * PACK),
        .sample = { 1, 128, 128 },
        .text_dim = d->joint,
        .pooled_dim = c->main.pooled,
        .guided = c->main.guided,
        .txt_flows = 1,
        .sites = 1,
        .refs = 1,
        .local_size = sizeof(local),
    };
    for (int i = 0; i < c->nsides; i++) {
        out->modes[i] = (int)c->side[i].modes;
        out->guided |= c->side[i].guided;
        out->pixels |= (c->side[i].hint > 0) << i;
        if (c->side[i].modes)
            out->lead_rows = 1;
    }
}

/* ---- weights ------------------------------------------------------------------------------ */

static int64_t active_width(const void *c)
{
    return ((const xd_dual_cfg *)c)->dim;
}

/* Returns 1 if block `layer` is a double block of its network. */
static int is_double(const cfg *c, int layer)
{
    int i = c->order.net[layer];
    return c->order.at[layer] < (i < 0 ? &c->main : &c->side[i])->dual.ndouble;
}

static int64_t mod_width(const void *c_, int layer)
{
    const cfg *c = c_;
    return c->order.net[layer] >= 0 ? 0 : (is_double(c, layer) ? 12 : 3) * c->main.dual.dim;
}

/* Declares the weights that the transformer and a side network have in common. */
static void input_weights(xd_decl *d, const net_cfg *c, net_glob *g)
{
    int64_t D = c->dual.dim;
    xd_w_linear(d, &g->latents, "x_embedder",
                &(xd_linear_spec){ .in = c->dual.in_ch, .out = D, .bias = 1 });
    xd_w_linear(d, &g->text, "context_embedder",
                &(xd_linear_spec){ .in = c->dual.joint, .out = D, .bias = 1 });
    xd_mlp_weights(d, "time_text_embed.timestep_embedder", &g->time, XD_SINUSOIDS, D, D);
    if (c->guided)
        xd_mlp_weights(d, "time_text_embed.guidance_embedder", &g->guidance, XD_SINUSOIDS, D, D);
    xd_mlp_weights(d, "time_text_embed.text_embedder", &g->pooled, c->pooled, D, D);
}

static void conv_weights(xd_decl *d, xd_cnv *w, const char *name, int64_t out, int64_t in,
                         int stride)
{
    xd_w_conv(d, w, name,
              &(xd_conv_spec){ .out = out,
                               .in = in,
                               .nk = 2,
                               .kernel = { 1, 3, 3 },
                               .stride = { 1, stride, stride },
                               .bias = 1 });
}

/* Declares the convolutions of a side network that reads pixels, whose result has C channels. */
static void hint_weights(xd_decl *d, int64_t C, hint *w)
{
    char name[32];
    xd_w_enter(d, "input_hint_block");
    conv_weights(d, &w->in, "conv_in", HINT_WIDTH, 3, 1);
    for (int i = 0; i < HINT_BLOCKS; i++) {
        snprintf(name, sizeof name, "blocks.%d", i);
        conv_weights(d, &w->block[i], name, HINT_WIDTH, HINT_WIDTH, 1 + i % 2);
    }
    conv_weights(d, &w->out, "conv_out", C, HINT_WIDTH, 1);
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->main.dual.dim;
    input_weights(d, &c->main, &g->main);
    xd_w_linear(d, &g->main.mod, "norm_out.linear",
                &(xd_linear_spec){ .in = D, .out = 2 * D, .bias = 1 });
    xd_w_linear(d, &g->main.out, "proj_out",
                &(xd_linear_spec){ .in = D, .out = c->main.dual.out_ch, .bias = 1 });
    for (int i = 0; i < c->nsides; i++) {
        const net_cfg *own = &c->side[i];
        xd_w_enter(d, "controlnet.%d", i);
        input_weights(d, own, &g->side[i]);
        xd_w_linear(d, &g->control[i], "controlnet_x_embedder",
                    &(xd_linear_spec){ .in = own->dual.in_ch, .out = D, .bias = 1 });
        if (own->modes)
            xd_w_table(d, &g->mode[i], "controlnet_mode_embedder.weight", own->modes, D);
        if (own->hint)
            hint_weights(d, own->hint, &g->hint[i]);
        xd_w_leave(d);
    }
}

static void side_pair_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg *c = c_;
    side_pair *w = w_;
    int        at = c->order.at[layer];
    xd_w_enter(d, "transformer_blocks.%d", at);
    xd_pair_weights(d, c, layer, &w->b);
    xd_w_leave(d);
    xd_sides_residual(d, "controlnet_blocks", at, c->main.dual.dim, &w->residual);
}

static void side_solo_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg *c = c_;
    side_solo *w = w_;
    int        at = c->order.at[layer] - c->side[c->order.net[layer]].dual.ndouble;
    xd_w_enter(d, "single_transformer_blocks.%d", at);
    xd_solo_weights(d, c, layer, &w->b);
    xd_w_leave(d);
    xd_sides_residual(d, "controlnet_single_blocks", at, c->main.dual.dim, &w->residual);
}

/* ---- conditioning ------------------------------------------------------------------------- */

static xd_tensor active_of(xd_exec *x, const net_cfg *c, const net_glob *g, const xd_input *in)
{
    return xd_pooled_row(x, in, &g->time, c->guided ? &g->guidance : NULL, &g->pooled);
}

static xd_tensor active(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept)
{
    (void)kept;
    return active_of(x, n->cfg, n->glob, in);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob        *g = n->glob;
    const cfg         *c = n->cfg;
    const xd_dual_cfg *d = &c->main.dual;
    local             *l = s->local;
    l->active = xd_mods_input(x, n, in, s->kept, active);
    l->cos = xd_dual_angles(x, NULL, &d->axes, cos);
    l->sin = xd_dual_angles(x, NULL, &d->axes, sin);
    for (int i = 0; i < c->nsides; i++) {
        l->side[i] = active_of(x, &c->side[i], &g->side[i], in);
        l->scale[i] = xd_sides_scale(in, i);
    }
}

/* Returns this rank's rows of one of the hidden states without the leading rows. */
static xd_tensor without_lead(const xd_exec *x, xd_tensor h)
{
    int64_t lead = xd_n(x, XD_LEAD);
    return xd_rows(h, lead, h.d[0] - lead);
}

static xd_tensor image_of(const xd_exec *x, xd_tensor h)
{
    int64_t n = xd_n(x, XD_IMG);
    return xd_rows(h, h.d[0] - n, n);
}

static void fill_zeros(void *ctx, float *buf)
{
    memset(buf, 0, (size_t)*(const int64_t *)ctx * sizeof *buf);
}

/* Fills the hidden state h of side network i. `in` has the latents and the text, `control` the
 * features of the control image. The leading row is the row of the image's kind, or zeros if the
 * network has no such rows. */
static void embed_net(xd_exec *x, const cfg *c, const glob *g, int i, const xd_input *in,
                      xd_tensor control, xd_tensor h)
{
    int64_t lead = xd_n(x, XD_LEAD) * h.d[1];
    int32_t mode = in->modes && i >= 0 ? in->modes[i] : 0;
    int     own = i >= 0 && c->side[i].modes;
    if (lead && own)
        xd_copy_to(x, xd_rows(h, 0, 1), xd_lookup_rows(x, g->mode[i], &mode, 1, XD_F32));
    else if (lead)
        xd_fill(x, xd_rows(h, 0, 1), fill_zeros, &lead);
    xd_dual_embed(x, in, h, &(i < 0 ? &g->main : &g->side[i])->text,
                  &(i < 0 ? &g->main : &g->side[i])->latents);
    if (i >= 0)
        xd_linear_add(x, image_of(x, h), (xd_tensor){ 0 }, control, &g->control[i]);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    int64_t     F = in->lat.d[1], D = c->main.dual.dim;
    xd_input    bare = *in;
    if (c->nsides)
        bare.extra = (xd_tensor){ 0 };
    embed_net(x, c, g, -1, &bare, bare.extra, xd_dit_state(s, D, 0));
    for (int i = 0; i < c->nsides && xd_ok(x); i++) {
        size_t    mark = xd_arena_mark(x->tmp);
        xd_tensor h = xd_dit_state(s, D, c->side[i].state);
        embed_net(x, c, g, i, &bare, xd_cols(in->extra, i * F, F), h);
        for (int k = 0; k < c->side[i].residuals; k++) /* any finite numbers */
            xd_copy_to(x, xd_dit_state(s, D, c->side[i].state + 1 + k), h);
        xd_arena_rewind(x->tmp, mark);
    }
}

/* ---- step caches -------------------------------------------------------------------------- */

/* Returns the image tokens as the attention of the first block reads them: normalized and
 * modulated. The first block may be a double or a single block. With side networks, returns the
 * image tokens of the transformer's hidden state. */
static xd_tensor probe(xd_exec *x, const xd_net *n, xd_state *s)
{
    const cfg   *c = n->cfg;
    const local *l = s->local;
    xd_tensor    h = image_of(x, xd_dit_state(s, c->main.dual.dim, 0));
    if (c->nsides)
        return h;
    const xd_pair *w = xd_net_layer(x, n, 0);
    xd_tensor out = xd_new_f32(x, h.d[0], h.d[1]), mod = xd_mod_rows(x, l->active, &w->img.mod, 6);
    xd_norm_into(x, &(xd_norm){ .out = out,
                                .in = h,
                                .scale = xd_rows(mod, 1, 1),
                                .shift = xd_rows(mod, 0, 1),
                                .eps = 1e-6f });
    return out;
}

/* Writes the polynomial that TeaCache4FLUX publishes for FLUX.1-dev. */
static int change_poly(const void *c_, double poly[5])
{
    static const double of_dev[] = { 4.98651651e+02, -2.83781631e+02, 5.58554382e+01,
                                     -3.82021401e+00, 2.64230861e-01 };
    const cfg          *c = c_;
    if (!c->main.dual.ndouble || c->nsides)
        return 0;
    memcpy(poly, of_dev, sizeof of_dev);
    return 1;
}

/* ---- running ------------------------------------------------------------------------------ */

/* Runs a double or a single block on the hidden state h. Of the networks with a leading row, only
 * those with kinds of control images (lead) read it. */
static void run_block(xd_exec *x, const cfg *c, const local *l, const xd_pair *pair,
                      const xd_solo *solo, xd_tensor h, xd_tensor active, int lead)
{
    const xd_layout *whole = x->lay;
    xd_layout        rest = *whole;
    xd_dual_in       in = { .cos = l->cos, .sin = l->sin, .head_dim = c->main.dual.head_dim };
    if (!lead) {
        in.cos = without_lead(x, in.cos), in.sin = without_lead(x, in.sin);
        h = without_lead(x, h);
        rest.len[XD_LEAD] = 0;
    }
    x->lay = &rest;
    if (pair) {
        in.txt = xd_mod_rows(x, active, &pair->txt.mod, 6);
        in.img = xd_mod_rows(x, active, &pair->img.mod, 6);
        xd_pair_run(x, h, pair, &in);
    } else {
        in.img = xd_mod_rows(x, active, &solo->mod, 3);
        xd_solo_run(x, h, solo, &in);
    }
    x->lay = whole;
}

/* Returns the image rows of the state with a residual of side network i: that of the network's
 * double block `at`, or of a single block (at -1), which no double block reads at the same time. */
static xd_tensor residual_state(const xd_exec *x, const cfg *c, int i, int at, xd_state *s)
{
    const net_cfg *side = &c->side[i];
    int            k = at > 0 && side->residuals > 1 ? at : 0;
    return image_of(x, xd_dit_state(s, c->main.dual.dim, side->state + 1 + k));
}

/* Runs a block of the transformer, then adds the residuals of the side networks to the image. */
static void run_main(xd_exec *x, const xd_net *n, const xd_pair *pair, const xd_solo *solo,
                     xd_state *s)
{
    const local *l = s->local;
    const cfg   *c = n->cfg;
    int          layer = c->order.at[x->layer];
    xd_tensor    h = xd_dit_state(s, c->main.dual.dim, 0);
    run_block(x, c, l, pair, solo, h, l->active, 0);
    for (int i = 0; i < c->nsides; i++) {
        const net_cfg *side = &c->side[i];
        if (l->scale[i] == 0 || !(pair ? side->dual.ndouble : side->dual.nsingle))
            continue;
        int at = pair ? double_residual(c, side, layer) : -1;
        xd_add(x, image_of(x, h), residual_state(x, c, i, at, s));
    }
}

static void forward_pair(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    run_main(x, n, w, NULL, s);
}

static void forward_solo(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    run_main(x, n, NULL, w, s);
}

/* Runs a block of a side network and computes its residual. A double block whose residual no block
 * of the transformer reads is only run if there are single blocks. */
static void run_side(xd_exec *x, const xd_net *n, const xd_pair *pair, const xd_solo *solo,
                     const xd_lin *w, xd_state *s)
{
    const local   *l = s->local;
    const cfg     *c = n->cfg;
    int64_t        D = c->main.dual.dim;
    int            i = c->order.net[x->layer], at = pair ? c->order.at[x->layer] : -1;
    const net_cfg *side = &c->side[i];
    xd_tensor      h = xd_dit_state(s, D, side->state), residual;
    if (l->scale[i] == 0)
        return;
    int unread = at >= double_reads(c, side);
    if (unread && !side->dual.nsingle)
        return;
    run_block(x, c, l, pair, solo, h, l->side[i], side->modes > 0);
    residual = residual_state(x, c, i, at, s);
    if (unread)
        return;
    xd_linear_into(x, residual, image_of(x, h), w);
    if (l->scale[i] != 1)
        xd_axpby(x, residual, 0, (xd_tensor){ 0 }, l->scale[i]);
}

static void forward_side_pair(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const side_pair *w = w_;
    run_side(x, n, &w->b, NULL, &w->residual, s);
}

static void forward_side_solo(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const side_solo *w = w_;
    run_side(x, n, NULL, &w->b, &w->residual, s);
}

/* Computes features of a control image for a side network that reads pixels, as diffusers'
 * ControlNetConditioningEmbedding: each convolution but the last is followed by SiLU, and every
 * second of the inner ones halves the rows and columns. */
static void read_pixels(xd_exec *x, const xd_net *n, int i, xd_tensor rgb, xd_tensor out)
{
    static const int pad[3] = { 0, 1, 1 };
    const hint      *w = &((const glob *)n->glob)->hint[i];
    size_t           mark = xd_arena_mark(x->tmp);
    xd_tensor        h = rgb;
    if (!xd_check(x, rgb.d[1] == out.d[1] * HINT_CELL && rgb.d[2] == out.d[2] * HINT_CELL,
                  "a control image of %lld x %lld pixels is not %lld x %lld cells of %d pixels",
                  (long long)rgb.d[2], (long long)rgb.d[1], (long long)out.d[2],
                  (long long)out.d[1], HINT_CELL))
        return;
    for (int k = -1; k < HINT_BLOCKS; k++) {
        int64_t   half = k >= 0 && k % 2 ? 2 : 1, H = h.d[1] / half, W = h.d[2] / half;
        xd_tensor y = xd_new_as(x, x->act, 4, (int64_t[]){ 1, H, W, HINT_WIDTH });
        xd_conv2d_into(x, y, h, k < 0 ? &w->in : &w->block[k],
                       &(xd_conv_options){ .stride = (int)half, .lo = pad, .hi = pad });
        xd_activate(x, xd_reshape(y, 2, (int64_t[]){ H * W, HINT_WIDTH }), XD_SILU);
        h = y;
    }
    xd_conv2d_into(x, out, h, &w->out, &(xd_conv_options){ .lo = pad, .hi = pad });
    xd_arena_rewind(x->tmp, mark);
}

/* Computes the network's output. The final modulation has two rows: scale, then shift. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const net_glob *g = n->glob;
    const local    *l = s->local;
    xd_tensor       mod = xd_mod_rows(x, l->active, &g->mod, 2);
    return xd_dual_head(x, xd_dit_state(s, active_width(n->cfg), 0), xd_rows(mod, 0, 1),
                        xd_rows(mod, 1, 1), &g->out);
}

static const xd_block kind_pair = { "transformer_blocks.%d", sizeof(xd_pair), xd_pair_weights,
                                    forward_pair };
static const xd_block kind_solo = { "single_transformer_blocks.%d", sizeof(xd_solo),
                                    xd_solo_weights, forward_solo };
#define SIDE_KINDS(name)                                                  \
    {                                                                     \
        { name, sizeof(side_solo), side_solo_weights, forward_side_solo }, \
        { name, sizeof(side_pair), side_pair_weights, forward_side_pair }, \
    }
/* For each side network: the kinds of its single and of its double blocks. */
static const xd_block side_kinds[XD_MAXSIDES][2] = { XD_SIDES_KINDS(SIDE_KINDS) };

static const xd_block *block(const void *c_, int layer)
{
    const cfg *c = c_;
    int        i = c->order.net[layer], pair = is_double(c, layer);
    return i >= 0 ? &side_kinds[i][pair] : pair ? &kind_pair : &kind_solo;
}

extern const xd_dit xd_dit_flux;

static const xd_side side = { .classes = { "FluxControlNetModel" },
                              .cell = HINT_CELL,
                              .read_pixels = read_pixels,
                              .describe = describe,
                              .net = XD_FLUX_SIDE_NET };

const xd_dit xd_dit_flux = {
    .net = { .name = "flux",
             .classes = { "FluxTransformer2DModel" },
             .fields = fields,
             .read = read_sides,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .nlayers = nlayers,
             .block = block,
             .weights = weights },
    .side = &side,
    .input = "x_embedder.weight",
    .info = info,
    .active = active,
    .active_width = active_width,
    .mod_width = mod_width,
    .cond = cond,
    .embed = embed,
    .head = head,
    .probe = probe,
    .change_poly = change_poly,
};
