/* dit.c - runs the transformer of Qwen-Image (Wu et al. 2025, arXiv:2508.02324) like diffusers'
 * QwenImageTransformer2DModel.
 *
 * Every block has separate weights for text and image and one joint attention. Positions enter by
 * RoPE over (image number, row, column). Rows and columns are counted from the centre of their
 * image; the positions of text tokens are on the diagonal after the largest image. Tokens of
 * reference images have the same modulation as image tokens; but if the config sets zero_cond_t,
 * reference images have the modulation of timestep 0.
 *
 * A model of layers (use_layer3d_rope) generates several layers of one size, which are frames of
 * the token grid. The layer is then the first coordinate of a position, and the last reference
 * image is layer -1.
 *
 * A side network (diffusers' QwenImageControlNetModel) has m blocks for the n blocks of the
 * transformer. What its block j computes, its residual, is added to the image after each block i of
 * the transformer for which j = floor(i / ceil(n / m)). Block j of the side network runs directly
 * before the first of these blocks. A token has two further states for each side network: its
 * hidden state and its residual. */
#include <math.h>
#include <stddef.h>

#include "dit/dual.h"
#include "dit/sides.h"

enum { PACK = 2 }; /* latent cells per side of a token */
static const float eps = 1e-6f;

typedef struct cfg {
    int64_t head_dim, in_ch, out_ch, joint, patch;
    int     heads, nlayers, guided, zero_cond, more_cond, layered;
    xd_ints axes; /* head features rotated per axis: image, row, column */
    int64_t dim;  /* D = heads * head_dim */
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "patch_size", AT(patch), 'l', PACK, NULL },
    { "in_channels", AT(in_ch), 'l', 64, NULL },
    { "out_channels", AT(out_ch), 'l', 16, NULL },
    { "num_layers", AT(nlayers), 'i', 60, NULL },
    { "attention_head_dim", AT(head_dim), 'l', 128, NULL },
    { "num_attention_heads", AT(heads), 'i', 24, NULL },
    { "joint_attention_dim", AT(joint), 'l', 3584, NULL },
    { "guidance_embeds", AT(guided), 'b', 0, NULL },
    { "axes_dims_rope", AT(axes), 'L', 0, NULL },
    { "zero_cond_t", AT(zero_cond), 'b', 0, NULL },
    { "use_additional_t_cond", AT(more_cond), 'b', 0, NULL },
    { "use_layer3d_rope", AT(layered), 'b', 0, NULL },
    { XD_SIDES_KEY, 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* The config of a side network. */
typedef struct side_cfg {
    cfg     c;
    int64_t extra; /* features per token in addition to those of the control image's latents */
} side_cfg;

/* The config of the transformer with its side networks. */
typedef struct whole_cfg {
    cfg      main;
    int      nsides;
    side_cfg side[XD_MAXSIDES];
    xd_sides order; /* the order of the blocks of all networks */
} whole_cfg;

/* The config key that only a side network has; the other keys are those of `fields`. */
static const xd_field side_fields[] = {
    { "extra_condition_channels", offsetof(side_cfg, extra), 'l', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct glob {
    xd_lin    latents, text, mod, out;
    xd_mlp    time;
    xd_tensor text_norm; /* [joint]: gain of the norm of the text rows */
    /* [2,D]: terms of the timestep embedding for images with alpha and without (more_cond) */
    xd_tensor kinds;
} glob;

typedef struct local {
    xd_tensor active; /* [1,D]: silu of the timestep embedding */
    /* `active` for timestep 0, used by reference images (zero_cond_t) */
    xd_tensor still;
    xd_tensor cos, sin; /* [n,head_dim/2] F32: RoPE of this rank's tokens */
} local;

typedef struct side_blk {
    xd_pair b;
    xd_lin  residual; /* layer from the hidden state to the residual */
} side_blk;

typedef struct whole_glob {
    glob   main, side[XD_MAXSIDES]; /* the side networks have no final norm and no output layer */
    xd_lin control[XD_MAXSIDES];    /* [D, in_ch + extra]: embedding of the control image */
} whole_glob;

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
        { "in_channels", c->in_ch, PACK * PACK, 65536 },
        { "num_layers", c->nlayers, 0, 10000 },
        { "joint_attention_dim", c->joint, 1, 1 << 24 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof r[0], e) != XD_OK)
        return XD_EFORMAT;
    c->dim = c->heads * c->head_dim;
    c->out_ch = c->out_ch ? c->out_ch : c->in_ch;
    if (c->patch != PACK || c->in_ch % (PACK * PACK) || c->out_ch * PACK * PACK != c->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: patch_size %lld, in_channels %lld and "
                       "out_channels %lld: only patch_size %d and in_channels of %d times "
                       "out_channels are supported",
                       (long long)c->patch, (long long)c->in_ch, (long long)c->out_ch, PACK,
                       PACK * PACK);
    if (c->guided)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: guidance_embeds is true, which is not supported");
    return xd_dual_axes(&c->axes, "axes_dims_rope", NULL, c->head_dim, e);
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    *out = (xd_dit_info){
        .nlayers = c->nlayers,
        .heads = c->heads,
        .head_dim = (int)c->head_dim,
        .patch = { 1, PACK, PACK },
        .dim = c->dim,
        .lat_ch = c->out_ch,
        .sample = { 1, 128, 128 },
        .text_dim = c->joint,
        .txt_flows = 1,
        .sites = 1,
        .refs = 1,
        .local_size = sizeof(local),
    };
}

/* ---- weights ------------------------------------------------------------------------------ */

static const xd_adaln_names names[2] = {
    { "img_mod.1",
      { "attn.to_q", "attn.to_k", "attn.to_v" },
      "attn.to_out.0",
      "attn.norm_q.weight",
      "attn.norm_k.weight",
      "img_mlp.net.0.proj",
      "img_mlp.net.2" },
    { "txt_mod.1",
      { "attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj" },
      "attn.to_add_out",
      "attn.norm_added_q.weight",
      "attn.norm_added_k.weight",
      "txt_mlp.net.0.proj",
      "txt_mlp.net.2" },
};

static int64_t active_width(const void *c)
{
    return ((const cfg *)c)->dim;
}

static int64_t mod_width(const void *c_, int layer)
{
    const whole_cfg *c = c_;
    return c->order.net[layer] < 0 ? 12 * c->main.dim : 0;
}

static void block_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg *c = c_;
    xd_pair   *w = w_;
    (void)layer;
    for (int i = 0; i < 2; i++) {
        xd_adaln_form f = {
            .dim = c->dim, .head_dim = c->head_dim, .nmod = 6, .qk_norm = 1, .names = &names[i]
        };
        xd_adaln_weights(d, &f, i, i ? &w->txt : &w->img);
    }
}

/* Declares the weights that the transformer and a side network have in common. */
static void input_weights(xd_decl *d, const cfg *c, glob *g)
{
    int64_t D = c->dim;
    xd_w_linear(d, &g->latents, "img_in", &(xd_linear_spec){ .in = c->in_ch, .out = D, .bias = 1 });
    xd_w_vec(d, &g->text_norm, "txt_norm.weight", 1, (int64_t[]){ c->joint });
    xd_w_linear(d, &g->text, "txt_in", &(xd_linear_spec){ .in = c->joint, .out = D, .bias = 1 });
    xd_mlp_weights(d, "time_text_embed.timestep_embedder", &g->time, XD_SINUSOIDS, D, D);
}

static void weights(xd_decl *d, const cfg *c, glob *g)
{
    int64_t D = c->dim;
    input_weights(d, c, g);
    if (c->more_cond)
        xd_w_vec(d, &g->kinds, "time_text_embed.addition_t_embedding.weight", 2,
                 (int64_t[]){ 2, D });
    xd_w_linear(d, &g->mod, "norm_out.linear",
                &(xd_linear_spec){ .in = D, .out = 2 * D, .bias = 1 });
    xd_w_linear(d, &g->out, "proj_out", &(xd_linear_spec){ .in = D, .out = c->in_ch, .bias = 1 });
}

/* ---- conditioning ------------------------------------------------------------------------- */

enum { IMAGE, ROW, COLUMN };

/* Writes the cosines or sines of one token's RoPE angles. As in diffusers, an angle is the f32
 * product of a position and a frequency. */
static float *token_angles(const xd_rope *t, float freq[][128], const int64_t *pos, float *row)
{
    const cfg *c = t->cfg;
    for (int a = 0; a < XD_DUAL_AXES; a++)
        row = xd_rope_angles(row, c->axes.v[a], freq[a], (float)pos[a], t->fn);
    return row;
}

static int64_t longer_half(int64_t rows, int64_t cols)
{
    return (rows > cols ? rows : cols) / 2;
}

/* Returns the index of the last image in a sequence of layers and reference images. */
static int64_t last_image(const xd_layout *l)
{
    return l->grid[0] + l->nrefs - 1;
}

/* Returns the first coordinate of the tokens of image i, counted over layers and then reference
 * images. In a model of layers, that of the last image is -1. */
static int64_t place_of(const cfg *c, const xd_layout *l, int64_t i)
{
    return c->layered && i == last_image(l) ? -1 : i;
}

/* Returns the position of the first text token: half of the longest side among the image and the
 * reference images, or the index of the last image, if this is greater in a model of layers. */
static int64_t text_start(const cfg *c, const xd_layout *l)
{
    int64_t most = longer_half(l->grid[1], l->grid[2]);
    if (c->layered && last_image(l) > most)
        most = last_image(l);
    for (int i = 0; i < l->nrefs; i++) {
        int64_t half = longer_half(l->refs[i].rows, l->refs[i].cols);
        most = half > most ? half : most;
    }
    return most;
}

/* Fills the RoPE angles: first those of the text tokens, then of the reference images' tokens, then
 * of the image's tokens. */
static void fill_angles(void *ctx, float *buf)
{
    const xd_rope   *t = ctx;
    const cfg       *c = t->cfg;
    const xd_layout *l = t->x->lay;
    int64_t          H = l->grid[1], W = l->grid[2], start = text_start(c, l);
    /* [axis][pair of features]; an axis has at most 256 features */
    float            freq[XD_DUAL_AXES][128];
    for (int a = 0; a < XD_DUAL_AXES; a++)
        xd_rope_frequencies(freq[a], c->axes.v[a]);
    for (int64_t i = 0, n = xd_n(t->x, XD_TXT); i < n; i++) {
        int64_t at = start + xd_where(t->x, XD_TXT, i);
        buf = token_angles(t, freq, (int64_t[]){ at, at, at }, buf);
    }
    for (int64_t i = 0, n = xd_n(t->x, XD_REF); i < n; i++) {
        int64_t pos[XD_DUAL_AXES];
        int     ref = xd_ref_at(l, xd_where(t->x, XD_REF, i), &pos[ROW], &pos[COLUMN]);
        pos[IMAGE] = place_of(c, l, l->grid[0] + ref);
        pos[ROW] -= l->refs[ref].rows - l->refs[ref].rows / 2;
        pos[COLUMN] -= l->refs[ref].cols - l->refs[ref].cols / 2;
        buf = token_angles(t, freq, pos, buf);
    }
    for (int64_t i = 0, n = xd_n(t->x, XD_IMG); i < n; i++) {
        int64_t at = xd_where(t->x, XD_IMG, i);
        int64_t pos[] = { place_of(c, l, at / W / H), at / W % H - (H - H / 2),
                          at % W - (W - W / 2) };
        buf = token_angles(t, freq, pos, buf);
    }
}

static xd_tensor active_of(xd_exec *x, const glob *g, double time)
{
    xd_tensor emb = xd_mlp_timesteps(x, &time, 1, &g->time);
    if (g->kinds.nd)
        xd_add(x, emb, xd_rows(g->kinds, 0, 1));
    return xd_gated(x, emb, (xd_tensor){ 0 }, XD_SILU);
}

static xd_tensor active(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept)
{
    (void)kept;
    return active_of(x, n->glob, in->t);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    local      *l = s->local;
    int64_t     rows = xd_n(x, XD_TXT) + xd_n(x, XD_REF) + xd_n(x, XD_IMG);
    l->active = xd_mods_input(x, n, in, s->kept, active);
    if (c->zero_cond && xd_n(x, XD_REF))
        l->still = active_of(x, g, 0);
    l->cos = xd_rope_table_of(x, in->cond, rows, c->head_dim / 2, fill_angles, c, cos);
    l->sin = xd_rope_table_of(x, in->cond, rows, c->head_dim / 2, fill_angles, c, sin);
}

/* ---- running ------------------------------------------------------------------------------ */

/* Fills the hidden state h [n,D] with the layers of g. */
static void embed(xd_exec *x, const glob *g, const xd_input *in, xd_tensor h)
{
    xd_input normed = *in;
    size_t   mark = xd_arena_mark(x->tmp);
    normed.extra = (xd_tensor){ 0 };
    if (in->txt.nd && in->txt.d[0])
        normed.txt = xd_rms_norm(x, in->txt, g->text_norm, eps);
    xd_dual_embed(x, &normed, h, &g->text, &g->latents);
    xd_arena_rewind(x->tmp, mark);
}

/* Runs a block. A block's modulation has six rows: shift, scale and gate of the attention, then
 * shift, scale and gate of the feed-forward. */
static void run_block(xd_exec *x, const cfg *c, const local *l, const xd_pair *w, xd_tensor h,
                      xd_tensor active)
{
    xd_dual_in in = { .txt = xd_mod_rows(x, active, &w->txt.mod, 6),
                      .img = xd_mod_rows(x, active, &w->img.mod, 6),
                      .cos = l->cos,
                      .sin = l->sin,
                      .head_dim = c->head_dim };
    if (l->still.nd)
        in.ref = xd_mod_rows(x, l->still, &w->img.mod, 6);
    xd_pair_run(x, h, w, &in);
}

/* Computes the network's output. The final modulation has two rows: scale, then shift. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const local *l = s->local;
    xd_tensor    mod = xd_mod_rows(x, l->active, &g->mod, 2);
    return xd_dual_head(x, xd_dit_state(s, ((const cfg *)n->cfg)->dim, 0), xd_rows(mod, 0, 1),
                        xd_rows(mod, 1, 1), &g->out);
}

/* ---- side networks ------------------------------------------------------------------------ */

static xd_status read_sides(void *c_, const xd_json *obj, const char *what, xd_err *e)
{
    whole_cfg     *c = c_;
    const xd_json *list = xd_json_get(obj, XD_SIDES_KEY);
    xd_status      s = XD_OK;
    for (int i = 0; s == XD_OK && i < xd_json_size(list) && i < XD_MAXSIDES; i++, c->nsides++) {
        s = xd_fields_read(fields, &c->side[i].c, xd_json_at(list, i), what, e);
        if (s == XD_OK)
            s = xd_fields_read(side_fields, &c->side[i], xd_json_at(list, i), what, e);
    }
    return s;
}

/* Checks that the sizes of side network i are those of the transformer. */
static xd_status check_side(const cfg *c, side_cfg *side, int i, xd_err *e)
{
    cfg      *own = &side->c;
    xd_status s = xd_dual_axes(&own->axes, "axes_dims_rope", NULL, own->head_dim, e);
    if (s != XD_OK)
        return s;
    own->dim = c->dim;
    const xd_side_number v[] = {
        { "num_attention_heads", own->heads, c->heads },
        { "attention_head_dim", (double)own->head_dim, (double)c->head_dim },
        { "in_channels", (double)own->in_ch, (double)c->in_ch },
        { "patch_size", (double)own->patch, (double)c->patch },
        { "joint_attention_dim", (double)own->joint, (double)c->joint },
        { "axes_dims_rope", (double)own->axes.v[0], (double)c->axes.v[0] },
        { "axes_dims_rope", (double)own->axes.v[1], (double)c->axes.v[1] },
    };
    if (xd_sides_check(v, sizeof v / sizeof *v, i, e) != XD_OK)
        return XD_EFORMAT;
    if (xd_sides_check_layers(own->nlayers, c->nlayers, i, e) != XD_OK)
        return XD_EFORMAT;
    if (side->extra && side->extra != PACK * PACK)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "controlnet %d: extra_condition_channels is %lld, not 0 or %d, the channels "
                       "of a mask",
                       i, (long long)side->extra, PACK * PACK);
    if (c->layered || c->more_cond || c->zero_cond)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "controlnet %d does not fit the transformer: a transformer of layers or "
                       "reference images has no control networks",
                       i);
    return XD_OK;
}

/* Returns the block of side network i whose residual is added after block `layer` of the
 * transformer. */
static int residual_of(const whole_cfg *c, int i, int layer)
{
    int m = c->side[i].c.nlayers;
    return layer / ((c->main.nlayers + m - 1) / m);
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
    out->local_size = sizeof(whole_local);
    for (int i = 0; i < c->nsides; i++) {
        out->side_ch[i] = c->main.out_ch + c->side[i].extra / (PACK * PACK);
        out->extra_ch += out->side_ch[i];
        out->side_fill[i] = c->side[i].extra ? XD_FILL_CONTROL : XD_FILL_NONE;
    }
}

static void whole_weights(xd_decl *d, const void *c_, void *g_)
{
    const whole_cfg *c = c_;
    whole_glob      *g = g_;
    weights(d, &c->main, &g->main);
    for (int i = 0; i < c->nsides; i++) {
        xd_w_enter(d, "controlnet.%d", i);
        input_weights(d, &c->side[i].c, &g->side[i]);
        xd_w_linear(d, &g->control[i], "controlnet_x_embedder",
                    &(xd_linear_spec){
                        .in = c->main.in_ch + c->side[i].extra, .out = c->main.dim, .bias = 1 });
        xd_w_leave(d);
    }
}

static void side_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const whole_cfg *c = c_;
    side_blk        *w = w_;
    int64_t          D = c->main.dim;
    xd_w_enter(d, "transformer_blocks.%d", c->order.at[layer]);
    block_weights(d, &c->main, layer, &w->b);
    xd_w_leave(d);
    xd_sides_residual(d, "controlnet_blocks", c->order.at[layer], D, &w->residual);
}

static void cond_whole(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const whole_glob *g = n->glob;
    const whole_cfg  *c = n->cfg;
    whole_local      *l = s->local;
    cond(x, n, in, s);
    for (int i = 0; i < c->nsides; i++) {
        l->active[i] = active_of(x, &g->side[i], in->t);
        l->scale[i] = xd_sides_scale(in, i);
    }
}

/* Returns the rows of the image, which are the last rows of hidden state i. */
static xd_tensor image_of(xd_exec *x, const xd_state *s, int64_t D, int i)
{
    xd_tensor all = xd_dit_state(s, D, i);
    int64_t   nimg = xd_n(x, XD_IMG);
    return xd_rows(all, all.d[0] - nimg, nimg);
}

static void embed_whole(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const whole_glob *g = n->glob;
    const whole_cfg  *c = n->cfg;
    int64_t           D = c->main.dim, from = 0;
    embed(x, &g->main, in, xd_dit_state(s, D, 0));
    for (int i = 0; i < c->nsides && xd_ok(x); i++) {
        int64_t   F = c->main.in_ch + c->side[i].extra;
        xd_tensor all = xd_dit_state(s, D, 1 + 2 * i);
        embed(x, &g->side[i], in, all);
        xd_linear_add(x, image_of(x, s, D, 1 + 2 * i), (xd_tensor){ 0 },
                      xd_cols(in->extra, from, F), &g->control[i]);
        xd_copy_to(x, xd_dit_state(s, D, 2 + 2 * i), all); /* any finite numbers */
        from += F;
    }
}

/* Runs a block of a side network and computes its residual. */
static void forward_side(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const side_blk    *w = w_;
    const whole_local *l = s->local;
    const whole_cfg   *c = n->cfg;
    int64_t            D = c->main.dim;
    int                i = c->order.net[x->layer];
    xd_tensor          residual = image_of(x, s, D, 2 + 2 * i);
    if (l->scale[i] == 0)
        return;
    run_block(x, &c->main, &l->main, &w->b, xd_dit_state(s, D, 1 + 2 * i), l->active[i]);
    xd_linear_into(x, residual, image_of(x, s, D, 1 + 2 * i), &w->residual);
    if (l->scale[i] != 1)
        xd_axpby(x, residual, 0, (xd_tensor){ 0 }, l->scale[i]);
}

/* Runs a block of the transformer and adds the residuals. */
static void forward_main(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    const whole_local *l = s->local;
    const whole_cfg   *c = n->cfg;
    int64_t            D = c->main.dim;
    run_block(x, &c->main, &l->main, w, xd_dit_state(s, D, 0), l->main.active);
    for (int i = 0; i < c->nsides; i++)
        if (l->scale[i] != 0)
            xd_add(x, image_of(x, s, D, 0), image_of(x, s, D, 2 + 2 * i));
}

static xd_tensor probe_whole(xd_exec *x, const xd_net *n, xd_state *s)
{
    return image_of(x, s, ((const cfg *)n->cfg)->dim, 0);
}

static const xd_block kind = { "transformer_blocks.%d", sizeof(xd_pair), block_weights,
                               forward_main };
#define SIDE_KIND(name) { name, sizeof(side_blk), side_weights, forward_side }
static const xd_block side_kinds[XD_MAXSIDES] = { XD_SIDES_KINDS(SIDE_KIND) };

static const xd_block *block(const void *c, int layer)
{
    int i = ((const whole_cfg *)c)->order.net[layer];
    return i < 0 ? &kind : &side_kinds[i];
}

extern const xd_dit xd_dit_qwenimage;

static const xd_side side = { .classes = { "QwenImageControlNetModel" } };

const xd_dit xd_dit_qwenimage = {
    .net = { .name = "qwenimage",
             .classes = { "QwenImageTransformer2DModel" },
             .fields = fields,
             .read = read_sides,
             .cfg_size = sizeof(whole_cfg),
             .glob_size = sizeof(whole_glob),
             .check = check_whole,
             .nlayers = whole_nlayers,
             .block = block,
             .weights = whole_weights },
    .side = &side,
    .info = whole_info,
    .active = active,
    .active_width = active_width,
    .mod_width = mod_width,
    .cond = cond_whole,
    .embed = embed_whole,
    .head = head,
    .probe = probe_whole,
};
