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
 * image is layer -1. */
#include <math.h>
#include <stddef.h>

#include "dit/dual.h"

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

static int nlayers(const void *c)
{
    return ((const cfg *)c)->nlayers;
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

static int64_t mod_width(const void *c, int layer)
{
    (void)layer;
    return 12 * ((const cfg *)c)->dim;
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

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim;
    xd_w_linear(d, &g->latents, "img_in", &(xd_linear_spec){ .in = c->in_ch, .out = D, .bias = 1 });
    xd_w_vec(d, &g->text_norm, "txt_norm.weight", 1, (int64_t[]){ c->joint });
    xd_w_linear(d, &g->text, "txt_in", &(xd_linear_spec){ .in = c->joint, .out = D, .bias = 1 });
    xd_mlp_weights(d, "time_text_embed.timestep_embedder", &g->time, XD_SINUSOIDS, D, D);
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

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    xd_input    normed = *in;
    size_t      mark = xd_arena_mark(x->tmp);
    if (in->txt.nd && in->txt.d[0])
        normed.txt = xd_rms_norm(x, in->txt, g->text_norm, eps);
    xd_dual_embed(x, &normed, s->h, &g->text, &g->latents);
    xd_arena_rewind(x->tmp, mark);
}

/* Runs a block. A block's modulation has six rows: shift, scale and gate of the attention, then
 * shift, scale and gate of the feed-forward. */
static void forward(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const xd_pair *w = w_;
    const cfg     *c = n->cfg;
    const local   *l = s->local;
    xd_dual_in     in = { .txt = xd_mod_rows(x, l->active, &w->txt.mod, 6),
                          .img = xd_mod_rows(x, l->active, &w->img.mod, 6),
                          .cos = l->cos,
                          .sin = l->sin,
                          .head_dim = c->head_dim };
    if (l->still.nd)
        in.ref = xd_mod_rows(x, l->still, &w->img.mod, 6);
    xd_pair_run(x, s->h, w, &in);
}

/* Computes the network's output. The final modulation has two rows: scale, then shift. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const local *l = s->local;
    xd_tensor    mod = xd_mod_rows(x, l->active, &g->mod, 2);
    return xd_dual_head(x, s->h, xd_rows(mod, 0, 1), xd_rows(mod, 1, 1), &g->out);
}

static const xd_block kind = { "transformer_blocks.%d", sizeof(xd_pair), block_weights, forward };

static const xd_block *block(const void *c, int layer)
{
    (void)c, (void)layer;
    return &kind;
}

extern const xd_dit xd_dit_qwenimage;

const xd_dit xd_dit_qwenimage = {
    .net = { .name = "qwenimage",
             .classes = { "QwenImageTransformer2DModel" },
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
