/* dit.c - runs the U-Net of Stable Diffusion XL (Podell et al. 2023, arXiv:2307.01952) like
 * diffusers' UNet2DConditionModel.
 *
 * The image tokens are the cells of the latents. A U-Net has levels, each with half as many rows
 * and columns of cells as the level above it. Going down, then up again, a level has residual
 * blocks, each followed by a transformer if the level has attention. A block of the network
 * (xd_block) is one level on its way down or up, or the middle. The outputs on the way down are
 * skips: their channels are the last channels of the inputs on the way up.
 *
 * The hidden state s->h has the map of the finest level: the output of the first convolution, then
 * that of the first block, then that of the last block. All other maps are in s->local. */
#include <stddef.h>
#include <string.h>

#include "base/minmax.h"
#include "dit/layers.h"
#include "vae/bands.h"
#include "vae/kl.h"
#include "vae/maps.h"

enum {
    LEVELS = 4,              /* max levels */
    RES = 4,                 /* max residual blocks of a level on its way up */
    DEPTH = 24,              /* max blocks of a transformer */
    SKIPS = LEVELS * RES,    /* max skips */
    BLOCKS = 2 * LEVELS + 1, /* max blocks of the network */
    NUMBERS = 6,             /* height and width, top and left, height and width */
    TIME = 4,                /* features of the embedded timestep per channel of level 0 */
};

static const float text_eps = 1e-5f;  /* epsilon of the layer norms, which no config sets */
static const float group_eps = 1e-6f; /* epsilon of the group norm before a transformer */

typedef struct cfg {
    int64_t  in_ch, out_ch, sample, groups, text, number, added;
    int      layers, linear;
    float    eps;
    xd_ints  width, depth, heads, own_heads;
    xd_names down, up;
    char     mid[XD_FIELD_TEXT], act[XD_FIELD_TEXT], add[XD_FIELD_TEXT], shift[XD_FIELD_TEXT];
    int64_t  guidance; /* width of an embedded guidance scale */
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "sample_size", AT(sample), 'l', 128, NULL },
    { "in_channels", AT(in_ch), 'l', 4, NULL },
    { "out_channels", AT(out_ch), 'l', 4, NULL },
    { "block_out_channels", AT(width), 'L', 0, NULL },
    { "layers_per_block", AT(layers), 'i', 2, NULL },
    { "transformer_layers_per_block", AT(depth), 'N', 0, NULL },
    { "attention_head_dim", AT(heads), 'N', 0, NULL }, /* diffusers reads it as numbers of heads */
    { "num_attention_heads", AT(own_heads), 'N', 0, NULL },
    { "cross_attention_dim", AT(text), 'l', 1280, NULL },
    { "down_block_types", AT(down), 'S', 0, NULL },
    { "up_block_types", AT(up), 'S', 0, NULL },
    { "mid_block_type", AT(mid), 's', 0, "UNetMidBlock2DCrossAttn" },
    { "norm_num_groups", AT(groups), 'l', 32, NULL },
    { "norm_eps", AT(eps), 'f', 1e-5, NULL },
    { "act_fn", AT(act), 's', 0, "silu" },
    { "use_linear_projection", AT(linear), 'b', 0, NULL },
    { "addition_embed_type", AT(add), 's', 0, "" },
    { "addition_time_embed_dim", AT(number), 'l', 0, NULL },
    { "projection_class_embeddings_input_dim", AT(added), 'l', 0, NULL },
    { "resnet_time_scale_shift", AT(shift), 's', 0, "default" },
    { "time_cond_proj_dim", AT(guidance), 'l', 0, NULL },
    /* Keys of UNet2DConditionModel that would change what is computed. */
    { "center_input_sample", 0, '=', 0, NULL },
    { "flip_sin_to_cos", 0, '=', 1, NULL },
    { "freq_shift", 0, '=', 0, NULL },
    { "only_cross_attention", 0, '=', 0, NULL },
    { "mid_block_only_cross_attention", 0, '=', 0, NULL },
    { "downsample_padding", 0, '=', 1, NULL },
    { "mid_block_scale_factor", 0, '=', 1, NULL },
    { "reverse_transformer_layers_per_block", 0, '=', 0, NULL },
    { "encoder_hid_dim", 0, '=', 0, NULL },
    { "encoder_hid_dim_type", 0, '=', 0, NULL },
    { "dual_cross_attention", 0, '=', 0, NULL },
    { "class_embed_type", 0, '=', 0, NULL },
    { "num_class_embeds", 0, '=', 0, NULL },
    { "class_embeddings_concat", 0, '=', 0, NULL },
    { "resnet_skip_time_act", 0, '=', 0, NULL },
    { "resnet_out_scale_factor", 0, '=', 1, NULL },
    { "time_embedding_type", 0, '=', 0, "positional" },
    { "time_embedding_dim", 0, '=', 0, NULL },
    { "time_embedding_act_fn", 0, '=', 0, NULL },
    { "timestep_post_act", 0, '=', 0, NULL },
    { "conv_in_kernel", 0, '=', 3, NULL },
    { "conv_out_kernel", 0, '=', 3, NULL },
    { "attention_type", 0, '=', 0, "default" },
    { "cross_attention_norm", 0, '=', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct res {
    xd_kl_res r;
    xd_lin    time;
} res;

typedef struct tf { /* a block of a transformer: self-attention, cross-attention, feed-forward */
    xd_tensor gain[3], bias[3];
    xd_lin    qkv, out, q, kv, cross, up, down;
} tf;

typedef struct attn { /* a transformer */
    xd_kl_norm norm;
    xd_lin     in, out;
    tf         block[DEPTH];
} attn;

typedef struct unit { /* a level on its way down or up, or the middle */
    res    res[RES];
    attn   attn[RES];
    xd_cnv sample; /* convolution that halves the map, or that follows its enlargement */
} unit;

typedef struct glob {
    xd_mlp     time, added;
    xd_lin     guidance;
    xd_cnv     in, out;
    xd_kl_norm norm;
} glob;

typedef struct local {
    xd_tensor active;      /* [1,E]: silu of the embedding of timestep, pooled text and sizes */
    xd_tensor skip[SKIPS]; /* [1,H,W,C] outputs on the way down, first the first convolution's */
    xd_tensor between;     /* the map between two blocks from the middle on, flat */
} local;

typedef struct kept {
    xd_tensor kv[BLOCKS]; /* [transformer blocks,m,2C]: keys and values of the text */
} kept;

/* ---- configuration ------------------------------------------------------------------------ */

static int level_count(const cfg *c)
{
    return c->width.n;
}

static int nlayers(const void *c)
{
    return 2 * level_count(c) + 1;
}

/* Returns the level of block `layer`; the middle has the level of the coarsest maps. */
static int level_of(const cfg *c, int layer)
{
    int n = level_count(c);
    return layer < n ? layer : layer == n ? n - 1 : 2 * n - layer;
}

static int is_down(const cfg *c, int layer)
{
    return layer < level_count(c);
}

static int is_mid(const cfg *c, int layer)
{
    return layer == level_count(c);
}

static int has_attention(const cfg *c, int layer)
{
    int n = level_count(c);
    return is_mid(c, layer) ||
           strncmp(layer < n ? c->down.v[layer] : c->up.v[layer - n - 1], "Cross", 5) == 0;
}

/* Returns the number of residual blocks, and of transformers if the block has attention. */
static int residual_count(const cfg *c, int layer)
{
    return is_mid(c, layer) ? 2 : c->layers + !is_down(c, layer);
}

static int transformer_count(const cfg *c, int layer)
{
    return !has_attention(c, layer) ? 0 : is_mid(c, layer) ? 1 : residual_count(c, layer);
}

/* Returns 1 if the block ends with a convolution to the size of another level. */
static int resamples(const cfg *c, int layer)
{
    int n = level_count(c);
    return is_down(c, layer) ? layer < n - 1 : !is_mid(c, layer) && layer < 2 * n;
}

static int skip_count(const cfg *c)
{
    return level_count(c) * (c->layers + 1);
}

/* Returns the level and the channels of skip i. Each level has `layers` skips, and one skip after
 * the convolution before it. */
static int skip_level(const cfg *c, int i)
{
    return i / (c->layers + 1);
}

static int64_t skip_width(const cfg *c, int i)
{
    int l = skip_level(c, i);
    return c->width.v[i % (c->layers + 1) || !l ? l : l - 1];
}

/* Returns the index of the skip that residual block j of a block on the way up reads. */
static int skip_read(const cfg *c, int layer, int j)
{
    return skip_count(c) - 1 - (layer - level_count(c) - 1) * (c->layers + 1) - j;
}

static int64_t width_of(const cfg *c, int layer)
{
    return c->width.v[level_of(c, layer)];
}

/* Returns the channels of the input of residual block j. */
static int64_t input_width(const cfg *c, int layer, int j)
{
    int64_t before = j || !layer ? width_of(c, layer) : width_of(c, layer - 1);
    int     up = !is_down(c, layer) && !is_mid(c, layer);
    return before + (up ? skip_width(c, skip_read(c, layer, j)) : 0);
}

static int heads_of(const cfg *c, int layer)
{
    return (int)c->heads.v[level_of(c, layer)];
}

static xd_status check_types(const xd_names *t, const char *key, const char *plain,
                             const char *cross, int n, xd_err *e)
{
    if (t->n != n)
        return xd_fail(e, XD_EFORMAT, "unet: %s has %d entries, block_out_channels %d", key, t->n,
                       n);
    for (int i = 0; i < n; i++)
        if (strcmp(t->v[i], plain) != 0 && strcmp(t->v[i], cross) != 0)
            return xd_fail(e, XD_EUNSUPPORTED, "unet: %s has %s; only %s and %s are supported", key,
                           t->v[i], plain, cross);
    return XD_OK;
}

static xd_status check_lists(const cfg *c, xd_err *e)
{
    int n = level_count(c);
    if (c->depth.n != n || c->heads.n != n)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "unet: transformer_layers_per_block has %d and attention_head_dim %d "
                       "entries; they must be lists of %d numbers, as in block_out_channels",
                       c->depth.n, c->heads.n, n);
    for (int l = 0; l < n; l++) {
        const int64_t         w = c->width.v[l], heads = c->heads.v[l];
        const xd_config_range r[] = {
            { "block_out_channels", w, 2, 1 << 16 },
            { "attention_head_dim", heads, 1, 4096 },
            { "transformer_layers_per_block", c->depth.v[l], 1, DEPTH },
        };
        if (xd_check_ranges(r, sizeof r / sizeof r[0], e) != XD_OK)
            return XD_EFORMAT;
        if (w % c->groups || w % heads || w / heads < 8 || w / heads > 512)
            return xd_fail(e, XD_EFORMAT,
                           "unet: block_out_channels has %lld; it must be a multiple of "
                           "norm_num_groups, %lld, and have 8 to 512 channels for each of the "
                           "%lld heads of attention_head_dim",
                           (long long)w, (long long)c->groups, (long long)heads);
    }
    return XD_OK;
}

/* Refuses U-Nets of other models, and values that only those have. */
static xd_status check_words(const cfg *c, xd_err *e)
{
    const struct {
        const char *key, *is, *want;
    } t[] = {
        { "addition_embed_type", c->add, *c->add ? "text_time" : "" },
        { "mid_block_type", c->mid, "UNetMidBlock2DCrossAttn" },
        { "act_fn", c->act, "silu" },
        { "resnet_time_scale_shift", c->shift, "default" },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        if (strcmp(t[i].is, t[i].want) != 0)
            return xd_fail(e, XD_EUNSUPPORTED, "unet: %s is '%s'; only '%s' is supported", t[i].key,
                           t[i].is, t[i].want);
    if (c->guidance && (c->guidance < 4 || c->guidance > 65536 || c->guidance % 2))
        return xd_fail(e, XD_EFORMAT,
                       "unet: time_cond_proj_dim is %lld; it must be an even number from 4 to "
                       "65536",
                       (long long)c->guidance);
    if (c->in_ch != c->out_ch)
        return xd_fail(e, XD_EUNSUPPORTED, "unet: out_channels %lld is not in_channels %lld",
                       (long long)c->out_ch, (long long)c->in_ch);
    return XD_OK;
}

/* Gives every level the only number of a list, or `usual` if the list is empty. */
static void repeat(xd_ints *list, int levels, int64_t usual)
{
    const int64_t v = list->n ? list->v[0] : usual;
    if (list->n > 1 || levels > LEVELS)
        return;
    for (list->n = 0; list->n < levels; list->n++)
        list->v[list->n] = v;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg *c = c_;
    if (c->own_heads.n)
        c->heads = c->own_heads;
    repeat(&c->heads, level_count(c), 8);
    repeat(&c->depth, level_count(c), 1);
    const xd_config_range r[] = {
        { "number of block_out_channels", level_count(c), 2, LEVELS },
        { "in_channels", c->in_ch, 1, 65536 },
        { "sample_size", c->sample, 1, 1 << 20 },
        { "layers_per_block", c->layers, 1, RES - 1 },
        { "norm_num_groups", c->groups, 1, 65536 },
        { "cross_attention_dim", c->text, 1, 1 << 24 },
    };
    xd_status s = check_words(c, e);
    if (s == XD_OK)
        s = xd_check_ranges(r, sizeof r / sizeof r[0], e);
    if (s == XD_OK)
        s = check_lists(c, e);
    if (s == XD_OK)
        s = check_types(&c->down, "down_block_types", "DownBlock2D", "CrossAttnDownBlock2D",
                        level_count(c), e);
    if (s == XD_OK)
        s = check_types(&c->up, "up_block_types", "UpBlock2D", "CrossAttnUpBlock2D", level_count(c),
                        e);
    if (s == XD_OK && *c->add &&
        (c->number < 2 || c->number % 2 || c->added <= NUMBERS * c->number))
        return xd_fail(e, XD_EFORMAT,
                       "unet: projection_class_embeddings_input_dim %lld must be more than 6 times "
                       "addition_time_embed_dim, which must be even and is %lld",
                       (long long)c->added, (long long)c->number);
    return s;
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    int        last = level_count(c) - 1;
    *out = (xd_dit_info){
        .nlayers = nlayers(c),
        .heads = (int)c->heads.v[last],
        .head_dim = (int)(c->width.v[last] / c->heads.v[last]),
        .patch = { 1, 1, 1 },
        .dim = c->width.v[0],
        .lat_ch = c->in_ch,
        .sample = { 1, c->sample, c->sample },
        .text_dim = c->text,
        .pooled_dim = *c->add ? c->added - NUMBERS * c->number : 0,
        .sites = 1,
        .whole = "is a U-Net, whose levels have maps of different sizes",
        .micro = *c->add != 0,
        .guided = c->guidance > 0,
        .local_size = sizeof(local),
        .kept_size = sizeof(kept),
    };
}

/* ---- weights ------------------------------------------------------------------------------ */

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

static void res_weights(xd_decl *d, const cfg *c, res *w, int layer, int j)
{
    int64_t C = width_of(c, layer);
    xd_kl_res_weights(d, &w->r, j, input_width(c, layer, j), C);
    xd_w_enter(d, "resnets.%d", j);
    xd_w_linear(d, &w->time, "time_emb_proj",
                &(xd_linear_spec){ .in = TIME * c->width.v[0], .out = C, .bias = 1, .few = 1 });
    xd_w_leave(d);
}

/* Declares an attention: to_q of n 1, with to_k and to_v of n 3. */
static void attention_weights(xd_decl *d, const char *name, xd_lin *q, int n, xd_lin *kv,
                              xd_lin *out, int64_t C, int64_t text, int64_t head)
{
    static const char *const names[] = { "to_q", "to_k", "to_v" };
    xd_w_enter(d, "%s", name);
    xd_w_fused(
        d, q,
        &(xd_fused_spec){
            .n = n, .names = names, .in = C, .out = { C, C, C }, .split = XD_COL, .unit = head });
    if (kv)
        xd_w_fused(d, kv,
                   &(xd_fused_spec){ .n = 2,
                                     .names = names + 1,
                                     .in = text,
                                     .out = { C, C },
                                     .split = XD_COL,
                                     .unit = head });
    xd_w_linear(d, out, "to_out.0",
                &(xd_linear_spec){ .in = C, .out = C, .split = XD_ROW, .unit = head, .bias = 1 });
    xd_w_leave(d);
}

static void tf_weights(xd_decl *d, const cfg *c, tf *w, int layer)
{
    static const char *const norms[] = { "norm1", "norm2", "norm3" };
    const int64_t            C = width_of(c, layer), head = C / heads_of(c, layer), ff = 4 * C;
    const int64_t            halves[] = { ff, ff };
    for (int i = 0; i < 3; i++)
        xd_w_affine(d, norms[i], &w->gain[i], &w->bias[i], C);
    attention_weights(d, "attn1", &w->qkv, 3, NULL, &w->out, C, 0, head);
    attention_weights(d, "attn2", &w->q, 1, &w->kv, &w->cross, C, c->text, head);
    xd_w_linear(
        d, &w->up, "ff.net.0.proj",
        &(xd_linear_spec){ .in = C, .nouts = 2, .outs = halves, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &w->down, "ff.net.2",
                &(xd_linear_spec){ .in = ff, .out = C, .split = XD_ROW, .bias = 1 });
}

static void attn_weights(xd_decl *d, const cfg *c, attn *w, int layer, int j)
{
    const int64_t  C = width_of(c, layer);
    xd_linear_spec spec = { .in = C, .out = C, .bias = 1, .ones = c->linear ? 0 : 2 };
    xd_w_enter(d, "attentions.%d", j);
    xd_w_affine(d, "norm", &w->norm.gain, &w->norm.bias, C);
    spec.split = XD_COL;
    xd_w_linear(d, &w->in, "proj_in", &spec);
    for (int i = 0; i < c->depth.v[level_of(c, layer)]; i++) {
        xd_w_enter(d, "transformer_blocks.%d", i);
        tf_weights(d, c, &w->block[i], layer);
        xd_w_leave(d);
    }
    spec.split = XD_ROW;
    xd_w_linear(d, &w->out, "proj_out", &spec);
    xd_w_leave(d);
}

static void unit_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg *c = c_;
    unit      *w = w_;
    int64_t    C = width_of(c, layer);
    for (int j = 0; j < residual_count(c, layer); j++)
        res_weights(d, c, &w->res[j], layer, j);
    for (int j = 0; j < transformer_count(c, layer); j++)
        attn_weights(d, c, &w->attn[j], layer, j);
    if (resamples(c, layer))
        conv_weights(d, &w->sample, is_down(c, layer) ? "downsamplers.0.conv" : "upsamplers.0.conv",
                     C, C, is_down(c, layer) ? 2 : 1);
}

/* Declares the weights outside the blocks. The first convolution, which is cheap, has f32 weights,
 * because its rounding errors affect every cell. */
static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    C = c->width.v[0], E = TIME * C;
    xd_dtype   type = d->type;
    d->type = XD_F32;
    conv_weights(d, &g->in, "conv_in", C, c->in_ch, 1);
    d->type = type;
    xd_mlp_weights(d, "time_embedding", &g->time, C, E, E);
    if (c->guidance)
        xd_w_linear(d, &g->guidance, "time_embedding.cond_proj",
                    &(xd_linear_spec){ .in = c->guidance, .out = C });
    if (*c->add)
        xd_mlp_weights(d, "add_embedding", &g->added, c->added, E, E);
    xd_w_affine(d, "conv_norm_out", &g->norm.gain, &g->norm.bias, C);
    conv_weights(d, &g->out, "conv_out", c->out_ch, C, 1);
}

/* ---- conditioning ------------------------------------------------------------------------- */

/* Returns the rows and columns of the maps of a level. */
static xd_grid size_at(const xd_exec *x, int level)
{
    xd_grid g = { x->lay->grid[1], x->lay->grid[2] };
    for (int l = 0; l < level; l++)
        g = (xd_grid){ (g.rows + 1) / 2, (g.cols + 1) / 2 };
    return g;
}

static xd_tensor map_of(xd_exec *x, int level, int64_t C)
{
    xd_grid g = size_at(x, level);
    return xd_map(x, 1, g.rows, g.cols, C);
}

/* Returns the view of the map that block `layer`, the middle or a later block, passes on. */
static xd_tensor between(const xd_exec *x, const cfg *c, const local *l, int layer)
{
    xd_grid g = size_at(x, level_of(c, layer) - resamples(c, layer));
    return xd_view(l->between.p, l->between.type, 4,
                   (int64_t[]){ 1, g.rows, g.cols, width_of(c, layer) });
}

/* Returns the embedding of the pooled text and of six numbers: height and width of the original
 * image (by default the result's), top and left of its crop, and height and width of the result. */
static xd_tensor added_row(xd_exec *x, const cfg *c, const glob *g, const xd_input *in)
{
    const double *of = in->original[0] > 0 ? in->original : in->size;
    const double  v[NUMBERS] = { of[0], of[1], in->crop[0], in->crop[1], in->size[0], in->size[1] };
    int64_t       pooled = c->added - NUMBERS * c->number, rest = c->added - pooled;
    xd_tensor     row = xd_new_f32(x, 1, c->added);
    xd_tensor     t = xd_time_embed(x, v, NUMBERS, c->number, 1, 0);
    xd_copy_to(x, xd_cols(row, 0, pooled), in->cond->pooled);
    xd_copy_to(x, xd_cols(row, pooled, rest), xd_reshape(t, 2, (int64_t[]){ 1, rest }));
    return xd_mlp_run(x, row, &g->added, XD_SILU);
}

/* Returns the embedding of the timestep. A U-Net of latent consistency models (Luo et al. 2023,
 * arXiv:2310.04378, section 4.2) also reads the guidance scale w, whose sinusoids are those of
 * 1000 (w - 1). */
static xd_tensor time_row(xd_exec *x, const cfg *c, const glob *g, const xd_input *in)
{
    xd_tensor t = xd_time_embed(x, &in->t, 1, c->width.v[0], 1, 0);
    if (c->guidance) {
        const double w = 1000 * (in->guidance - 1);
        xd_add(x, t, xd_linear_f32(x, xd_time_embed(x, &w, 1, c->guidance, 0, 1), &g->guidance));
    }
    return xd_mlp_run(x, t, &g->time, XD_SILU);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    local      *l = s->local;
    int64_t     most = 0;
    xd_tensor   t = time_row(x, c, g, in);

    if (*c->add)
        xd_add(x, t, added_row(x, c, g, in));
    l->active = xd_gated(x, t, (xd_tensor){ 0 }, XD_SILU);
    for (int i = 0; i < skip_count(c); i++)
        l->skip[i] = map_of(x, skip_level(c, i), skip_width(c, i));
    for (int i = level_count(c); i < nlayers(c) - 1; i++)
        most = xd_max(most, xd_count(between(x, c, l, i)));
    l->between = xd_new(x, 1, most);
}

static void keep_text(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept_)
{
    const cfg *c = n->cfg;
    kept      *k = kept_;
    for (int i = n->first; i < n->last; i++) {
        int64_t blocks = transformer_count(c, i) * c->depth.v[level_of(c, i)];
        k->kv[i] =
            xd_new_as(x, x->act, 3, (int64_t[]){ blocks, text->tok.d[0], 2 * width_of(c, i) });
    }
}

static void read_text(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept_)
{
    const kept *k = kept_;
    const cfg  *c = n->cfg;
    size_t      mark = xd_arena_mark(x->tmp);
    xd_tensor   t = xd_as(x, in->cond->tok, x->act);
    for (int i = n->first; i < n->last; i++) {
        const unit *w = xd_net_layer(x, n, i);
        int64_t     at = 0;
        for (int j = 0; j < transformer_count(c, i); j++)
            for (int b = 0; b < c->depth.v[level_of(c, i)]; b++)
                xd_linear_into(x, xd_text_kv(k->kv[i], at++), t, &w->attn[j].block[b].kv);
    }
    xd_arena_rewind(x->tmp, mark);
}

/* Returns the view of the hidden state as the map of the finest level. */
static xd_tensor finest(const xd_exec *x, const xd_state *s)
{
    return xd_reshape(s->h, 4, (int64_t[]){ 1, x->lay->grid[1], x->lay->grid[2], s->h.d[1] });
}

static const int pad[3] = { 0, 1, 1 };

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    xd_grid      size = size_at(x, 0);
    int64_t      rows = size.rows * size.cols, d[4] = { 1, size.rows, size.cols, c->in_ch };
    if (!xd_check(x, in->lat.d[0] == rows && s->h.d[0] == rows,
                  "%lld image tokens do not match %lld rows of state and %lld of latents",
                  (long long)rows, (long long)s->h.d[0], (long long)in->lat.d[0]))
        return;
    xd_conv2d_into(x, finest(x, s), xd_reshape(in->lat, 4, d), &g->in,
                   &(xd_conv_options){ .lo = pad, .hi = pad });
    xd_copy_to(x, l->skip[0], finest(x, s));
}

/* ---- running ------------------------------------------------------------------------------ */

typedef struct run { /* a block that runs */
    xd_exec     *x;
    const cfg   *c;
    const local *l;
    int          layer;
} run;

static const xd_tensor none;

/* Runs a convolution of the map that `feed` describes, with the residual `plus`, or with the
 * shortcut of `from`. */
static void conv3(const run *r, xd_banded a)
{
    a.stride = 1;
    memcpy(a.lo, pad, sizeof a.lo);
    memcpy(a.hi, pad, sizeof a.hi);
    xd_band_conv(r->x, &a);
}

static xd_feed norm_feed(xd_tensor in, const xd_gsum *sum, const xd_kl_norm *w, float eps)
{
    return (xd_feed){ .in = in, .sum = sum, .gain = w->gain, .bias = w->bias, .eps = eps };
}

/* Runs a residual block: out = in + conv2(silu(norm2(conv1(silu(norm1(in))) + time))). The time's
 * vector is added to the bias of conv1. `out` may be `in`. */
static void run_res(const run *r, xd_tensor out, xd_tensor in, const res *w)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   C = out.d[3], G = r->c->groups;
    xd_cnv    conv1 = w->r.conv1;
    xd_tensor t = xd_linear_f32(x, r->l->active, &w->time), b = xd_map(x, 1, in.d[1], in.d[2], C);
    xd_tensor partial = xd_new_as(x, XD_F64, 3, (int64_t[]){ in.d[1], G, 2 });
    xd_gsum   s1 = xd_group_sums(x, in, (int)G),
              s2 = { xd_new_as(x, XD_F64, 2, (int64_t[]){ G, 2 }), (int)G, 0 };
    xd_add(x, t, xd_reshape(conv1.b, 2, (int64_t[]){ 1, C }));
    conv1.b = xd_reshape(t, 1, &C);
    conv3(r, (xd_banded){ .feed = norm_feed(in, &s1, &w->r.norm1, r->c->eps),
                          .w = &conv1,
                          .out = b,
                          .partial = partial });
    xd_group_close(x, &s2, partial, b);
    xd_banded last = { .feed = norm_feed(b, &s2, &w->r.norm2, r->c->eps),
                       .w = &w->r.conv2,
                       .out = out };
    if (in.d[3] == C)
        last.plus = in;
    else
        last.from = in, last.shortcut = &w->r.shortcut;
    conv3(r, last);
    xd_arena_rewind(x->tmp, mark);
}

static xd_tensor normed(const run *r, xd_tensor h, const tf *w, int i, const xd_lin *to)
{
    return xd_norm_for(
        r->x, &(xd_norm){ .in = h, .gain = w->gain[i], .bias = w->bias[i], .eps = text_eps }, to,
        NULL);
}

/* Runs a block of a transformer on h [n,C] F32. Attention is over the cells of this map only, all
 * of which this rank has. */
static void run_tf(const run *r, xd_tensor h, const tf *w, xd_tensor kv)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    int64_t   hd = h.d[1] / heads_of(r->c, r->layer);
    xd_tensor y = xd_linear(x, normed(r, h, w, 0, &w->qkv), &w->qkv), q[3];
    for (int i = 0; i < 3; i++)
        q[i] = xd_heads(xd_seg(y, &w->qkv, i), hd);
    xd_linear_add(x, h, none, xd_flat(xd_attn_over(x, q[0], q[1], q[2], none, 0)), &w->out);
    xd_arena_rewind(x->tmp, mark);
    y = xd_linear(x, normed(r, h, w, 1, &w->q), &w->q);
    xd_linear_add(x, h, none, xd_attn_text(x, y, kv, &w->kv, hd), &w->cross);
    xd_arena_rewind(x->tmp, mark);
    y = xd_linear(x, normed(r, h, w, 2, &w->up), &w->up);
    y = xd_gated(x, xd_seg(y, &w->up, 1), xd_seg(y, &w->up, 0), XD_GELU_ERF);
    xd_linear_add(x, h, none, y, &w->down);
    xd_arena_rewind(x->tmp, mark);
}

/* Runs transformer j of the block on the map, in place. */
static void run_attn(const run *r, xd_tensor map, const attn *w, int j, const kept *k)
{
    xd_exec *x = r->x;
    size_t   mark = xd_arena_mark(x->tmp);
    int64_t  C = map.d[3], n = map.d[1] * map.d[2], depth = r->c->depth.v[level_of(r->c, r->layer)];
    xd_tensor h = xd_new_f32(x, n, C);
    size_t    above = xd_arena_mark(x->tmp);
    xd_tensor y = xd_map(x, 1, map.d[1], map.d[2], C);
    xd_gsum   sum = xd_group_sums(x, map, (int)r->c->groups);
    xd_group_apply_into(
        x, &sum,
        &(xd_gnorm){
            .out = y, .in = map, .gain = w->norm.gain, .bias = w->norm.bias, .eps = group_eps });
    xd_linear_into(x, h, xd_map_rows(y), &w->in);
    xd_arena_rewind(x->tmp, above);
    for (int64_t i = 0; i < depth; i++)
        run_tf(r, h, &w->block[i], xd_text_kv(k->kv[r->layer], j * depth + i));
    xd_linear_add(x, xd_map_rows(map), none, h, &w->out);
    xd_arena_rewind(x->tmp, mark);
}

/* Runs a level on its way down. The first block also writes its map to the hidden state. */
static void run_down(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const unit *w = w_;
    run         r = { x, n->cfg, s->local, x->layer };
    int         at = r.layer * (r.c->layers + 1);
    for (int j = 0; j < r.c->layers; j++) {
        run_res(&r, r.l->skip[at + j + 1], r.l->skip[at + j], &w->res[j]);
        if (has_attention(r.c, r.layer))
            run_attn(&r, r.l->skip[at + j + 1], &w->attn[j], j, s->kept);
    }
    at += r.c->layers;
    if (resamples(r.c, r.layer))
        xd_conv2d_into(x, r.l->skip[at + 1], r.l->skip[at], &w->sample,
                       &(xd_conv_options){ .stride = 2, .lo = pad, .hi = pad });
    if (!r.layer)
        xd_copy_to(x, finest(x, s), r.l->skip[at]);
}

static void run_mid(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const unit *w = w_;
    run         r = { x, n->cfg, s->local, x->layer };
    xd_tensor   h = between(x, r.c, r.l, r.layer);
    run_res(&r, h, r.l->skip[skip_count(r.c) - 1], &w->res[0]);
    run_attn(&r, h, &w->attn[0], 0, s->kept);
    run_res(&r, h, h, &w->res[1]);
}

/* Doubles the rows and columns of the map, drops the last ones if `out` has an odd number, and
 * convolves the result. */
static void enlarge(const run *r, xd_tensor out, xd_tensor map, const xd_cnv *w)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor big = xd_enlarge(x, map, 1, 2, 2), in = big;
    if (big.d[1] != out.d[1] || big.d[2] != out.d[2]) {
        in = xd_map(x, 1, out.d[1], out.d[2], map.d[3]);
        big.d[1] = out.d[1], big.d[2] = out.d[2];
        xd_copy_to(x, in, big);
    }
    xd_conv2d_into(x, out, in, w, &(xd_conv_options){ .lo = pad, .hi = pad });
    xd_arena_rewind(x->tmp, mark);
}

/* Runs a level on its way up. The last block writes its map to the hidden state. */
static void run_up(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const unit *w = w_;
    run         r = { x, n->cfg, s->local, x->layer };
    size_t      mark = xd_arena_mark(x->tmp);
    xd_tensor   h = map_of(x, level_of(r.c, r.layer), width_of(r.c, r.layer));
    for (int j = 0; j < residual_count(r.c, r.layer); j++) {
        size_t    above = xd_arena_mark(x->tmp);
        xd_tensor skip = r.l->skip[skip_read(r.c, r.layer, j)];
        xd_tensor old = j ? h : between(x, r.c, r.l, r.layer - 1);
        xd_tensor in = xd_map(x, 1, h.d[1], h.d[2], old.d[3] + skip.d[3]);
        xd_copy_to(x, xd_cols(xd_map_rows(in), 0, old.d[3]), xd_map_rows(old));
        xd_copy_to(x, xd_cols(xd_map_rows(in), old.d[3], skip.d[3]), xd_map_rows(skip));
        run_res(&r, h, in, &w->res[j]);
        xd_arena_rewind(x->tmp, above);
        if (has_attention(r.c, r.layer))
            run_attn(&r, h, &w->attn[j], j, s->kept);
    }
    if (resamples(r.c, r.layer))
        enlarge(&r, between(x, r.c, r.l, r.layer), h, &w->sample);
    else
        xd_copy_to(x, finest(x, s), h);
    xd_arena_rewind(x->tmp, mark);
}

static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    run         r = { .x = x, .c = c };
    xd_tensor   h = finest(x, s), out = xd_map_as(x, XD_F32, 1, h.d[1], h.d[2], c->out_ch);
    xd_gsum     sum = xd_group_sums(x, h, (int)c->groups);
    conv3(&r,
          (xd_banded){ .feed = norm_feed(h, &sum, &g->norm, c->eps), .w = &g->out, .out = out });
    return xd_map_rows(out);
}

static const xd_block kinds[3] = {
    { "down_blocks.%d", sizeof(unit), unit_weights, run_down },
    { "mid_block", sizeof(unit), unit_weights, run_mid },
    { "up_blocks.%d", sizeof(unit), unit_weights, run_up },
};

static const xd_block *block(const void *c_, int layer)
{
    const cfg *c = c_;
    return &kinds[is_down(c, layer) ? 0 : is_mid(c, layer) ? 1 : 2];
}

extern const xd_dit xd_dit_sdxl;

const xd_dit xd_dit_sdxl = {
    .net = { .name = "sdxl",
             .classes = { "UNet2DConditionModel" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .nlayers = nlayers,
             .block = block,
             .weights = weights },
    .info = info,
    .keep = keep_text,
    .read = read_text,
    .cond = cond,
    .embed = embed,
    .head = head,
};
