/* dit.c - runs the transformer of Z-Image (Cai et al. 2025, arXiv:2511.22699) like diffusers'
 * ZImageTransformer2DModel.
 *
 * The network has three lists of blocks, all of the same kind. The blocks of the noise refiner
 * process only the image. The blocks of the context refiner process only the text and do not read
 * the timestep. The blocks of the main list process text and image as one sequence. A block
 * normalizes before and after its attention and its feed-forward. The rows of the text and of the
 * image are each padded to a multiple of 32 with copies of a learned row; blocks treat padding rows
 * like other tokens. The padding rows of the text continue the text's positions; the padding rows
 * of the image (XD_PAD) have position 0.
 *
 * A side network (diffusers' ZImageControlNetModel) has a hidden state of its own, the control, and
 * reads the state of all tokens before the main list. Its block i runs directly after block p_i of
 * the main list (control_layers_places), and adds to that block's output what its layer after_proj
 * computes from the control. Before, the side network refines the control of the image in one of
 * three ways (add_control_noise_refiner). Without this key, it has blocks like those of the noise
 * refiner. With "control_noise_refiner", these blocks also compute hints, which are added behind
 * blocks of the noise refiner, but only in a copy of the image's state that the side network reads.
 * With "control_layers", the blocks of the main part are also the blocks of this first part. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "dit/refined.h"
#include "dit/sides.h"

enum {
    PATCH = XD_REFINED_PATCH,
    AXES = XD_REFINED_AXES,
    EMBED = 256,
    TIME_MID = 1024,
    MULTIPLE = 32
};

typedef struct cfg {
    int64_t dim, in_ch, text, siglip;
    int     heads, kv_heads, nlayers, nrefiners, qk_norm;
    float   eps;
    double  theta, t_scale;
    /* For each position axis: axes is the number of rotated head features, lens the number of
     * positions. */
    xd_ints axes, lens;
    xd_ints patches, frames;
    int64_t head_dim;
} cfg;

/* Kinds of blocks of a side network. COPIED: a block of the noise refiner, on the network's copy of
 * the image's state; REFINING: a block on the image before the main list; LAYER: a block on all
 * tokens beside the main list. */
typedef enum side_kind { COPIED, REFINING, LAYER } side_kind;
enum { SIDE_BLOCKS = 4 * XD_FIELD_LIST };

/* The config of a side network. */
typedef struct side_cfg {
    int64_t dim, in_ch;
    int     heads, kv_heads, nrefiners, qk_norm;
    float   eps;
    xd_ints places, refiner_places, patches, frames;
    char    refiner[XD_FIELD_TEXT];
    int     state;         /* index of the state of its control; the next one is that of a copy */
    int     nblocks, lead; /* number of all blocks, and of those before the main list */
    /* For each block in the order of running: its kind, and its index among those of its kind. */
    char    kind[SIDE_BLOCKS], at[SIDE_BLOCKS];
} side_cfg;

/* The config of the transformer with its side networks. */
typedef struct whole_cfg {
    cfg      main;
    int      nsides, states;
    side_cfg side[XD_MAXSIDES];
    xd_sides order; /* the order of the blocks of all networks */
} whole_cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "dim", AT(dim), 'l', 3840, NULL },
    { "in_channels", AT(in_ch), 'l', 16, NULL },
    { "cap_feat_dim", AT(text), 'l', 2560, NULL },
    { "siglip_feat_dim", AT(siglip), 'l', 0, NULL },
    { "n_heads", AT(heads), 'i', 30, NULL },
    { "n_kv_heads", AT(kv_heads), 'i', 30, NULL },
    { "n_layers", AT(nlayers), 'i', 30, NULL },
    { "n_refiner_layers", AT(nrefiners), 'i', 2, NULL },
    { "qk_norm", AT(qk_norm), 'b', 1, NULL },
    { "norm_eps", AT(eps), 'f', 1e-5, NULL },
    { "rope_theta", AT(theta), 'd', 256, NULL },
    { "t_scale", AT(t_scale), 'd', 1000, NULL },
    { "axes_dims", AT(axes), 'L', 0, NULL },
    { "axes_lens", AT(lens), 'L', 0, NULL },
    { "all_patch_size", AT(patches), 'L', 0, NULL },
    { "all_f_patch_size", AT(frames), 'L', 0, NULL },
    { XD_SIDES_KEY, 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

#define SIDE_AT(m) offsetof(side_cfg, m)
static const xd_field side_fields[] = {
    { "control_layers_places", SIDE_AT(places), 'L', 0, NULL },
    { "control_refiner_layers_places", SIDE_AT(refiner_places), 'L', 0, NULL },
    { "control_in_dim", SIDE_AT(in_ch), 'l', 0, NULL },
    { "add_control_noise_refiner", SIDE_AT(refiner), 's', 0, "" },
    { "all_patch_size", SIDE_AT(patches), 'L', 0, NULL },
    { "all_f_patch_size", SIDE_AT(frames), 'L', 0, NULL },
    { "dim", SIDE_AT(dim), 'l', 3840, NULL },
    { "n_refiner_layers", SIDE_AT(nrefiners), 'i', 2, NULL },
    { "n_heads", SIDE_AT(heads), 'i', 30, NULL },
    { "n_kv_heads", SIDE_AT(kv_heads), 'i', 30, NULL },
    { "norm_eps", SIDE_AT(eps), 'f', 1e-5, NULL },
    { "qk_norm", SIDE_AT(qk_norm), 'b', 1, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct glob {
    xd_lin    latents, text, mod, out;
    xd_mlp    time;
    xd_tensor text_norm;           /* [text]: norm of the text rows */
    xd_tensor image_pad, text_pad; /* [1,D]: learned padding rows */
} glob;

typedef struct side_blk {
    xd_refined b;
    xd_lin     hint; /* [D,D]: layer from the control to what is added; or absent */
} side_blk;

typedef struct whole_glob {
    glob   main;
    xd_lin control[XD_MAXSIDES]; /* [D, 4 C]: embedding of the control image */
    /* [D,D]: layers from the control to the input of the first block, before the main list and
     * before the refining blocks; the latter may be absent */
    xd_lin before[XD_MAXSIDES], before_refining[XD_MAXSIDES];
} whole_glob;

typedef struct local {
    xd_refined_in in;
    float         scale[XD_MAXSIDES]; /* factors of what is added; 0: the network is not used */
} local;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_axes(cfg *c, xd_err *e)
{
    static const int64_t dims[] = { 32, 48, 48 }, lens[] = { 1024, 512, 512 };
    return xd_refined_check_axes(
        &c->axes, &c->lens,
        &(xd_refined_axes){ "axes_dims", dims, lens, MULTIPLE + 2, c->head_dim }, e);
}

static xd_status check_built(cfg *c, xd_err *e)
{
    static const int64_t two = PATCH, one = 1;
    xd_refined_set_list(&c->patches, 1, &two);
    xd_refined_set_list(&c->frames, 1, &one);
    if (c->patches.n != 1 || c->patches.v[0] != PATCH || c->frames.n != 1 || c->frames.v[0] != 1)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: all_patch_size and all_f_patch_size are "
                       "not [2] and [1], the only supported values");
    if (c->siglip)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: siglip_feat_dim is %lld: the model that "
                       "reads images is not supported",
                       (long long)c->siglip);
    if (c->kv_heads != c->heads)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: n_kv_heads %d is not n_heads %d",
                       c->kv_heads, c->heads);
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    const xd_config_range r[] = {
        { "dim", c->dim, 2, 1 << 20 },           { "in_channels", c->in_ch, 1, 65536 },
        { "cap_feat_dim", c->text, 1, 1 << 24 }, { "n_heads", c->heads, 1, 4096 },
        { "n_layers", c->nlayers, 0, 10000 },    { "n_refiner_layers", c->nrefiners, 0, 10000 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof *r, e) != XD_OK)
        return XD_EFORMAT;
    c->head_dim = c->dim / c->heads;
    if (c->dim % c->heads || c->head_dim > 512)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: dim %lld is not n_heads %d heads of at most "
                       "512 features",
                       (long long)c->dim, c->heads);
    xd_status s = check_built(c, e);
    return s == XD_OK ? check_axes(c, e) : s;
}

/* Returns the number of blocks of the transformer. */
static int main_nlayers(const cfg *c)
{
    return 2 * c->nrefiners + c->nlayers;
}

static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    *out = (xd_dit_info){
        .nlayers = main_nlayers(c),
        .heads = c->heads,
        .head_dim = (int)c->head_dim,
        .patch = { 1, PATCH, PATCH },
        .dim = c->dim,
        .lat_ch = c->in_ch,
        .sample = { 1, 128, 128 },
        .text_dim = c->text,
        .txt_flows = 1,
        .sites = 1,
        .multiple = MULTIPLE,
        .local_size = sizeof(local),
        .lead = 2 * c->nrefiners,
        .most = { 1, c->lens.v[1] * PATCH, c->lens.v[2] * PATCH },
        /* positions of the text begin at 1; the image's positions follow */
        .text_most = (c->lens.v[0] - 2) / MULTIPLE * MULTIPLE,
    };
}

/* ---- weights ------------------------------------------------------------------------------ */

static int64_t embed_width(const cfg *c)
{
    return c->dim < EMBED ? c->dim : EMBED;
}

static void attn_weights(xd_decl *d, const cfg *c, xd_refined *w)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" };
    int64_t                  D = c->dim, hd = c->head_dim;
    xd_w_enter(d, "attention");
    xd_w_fused(
        d, &w->qkv,
        &(xd_fused_spec){
            .n = 3, .names = qkv, .in = D, .out = { D, D, D }, .split = XD_COL, .unit = hd });
    xd_w_linear(d, &w->out, "to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd });
    if (c->qk_norm) {
        xd_w_vec(d, &w->norm_q, "norm_q.weight", 1, &hd);
        xd_w_vec(d, &w->norm_k, "norm_k.weight", 1, &hd);
    }
    xd_w_leave(d);
}

static void plain_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const norms[] = { "attention_norm1.weight", "attention_norm2.weight",
                                         "ffn_norm1.weight", "ffn_norm2.weight" };
    static const char *const up[] = { "w1", "w3" };
    const cfg               *c = c_;
    xd_refined              *w = w_;
    int64_t                  D = c->dim, F = (int64_t)((double)D / 3 * 8);
    (void)layer;
    attn_weights(d, c, w);
    xd_w_enter(d, "feed_forward");
    xd_w_fused(d, &w->up,
               &(xd_fused_spec){ .n = 2, .names = up, .in = D, .out = { F, F }, .split = XD_COL });
    xd_w_linear(d, &w->down, "w2", &(xd_linear_spec){ .in = F, .out = D, .split = XD_ROW });
    xd_w_leave(d);
    for (int i = 0; i < 4; i++)
        xd_w_vec(d, &w->norm[i], norms[i], 1, &D);
}

static void timed_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg  *c = c_;
    xd_refined *w = w_;
    plain_weights(d, c, layer, w);
    xd_w_linear(d, &w->mod, "adaLN_modulation.0",
                &(xd_linear_spec){ .in = embed_width(c), .out = 4 * c->dim, .bias = 1, .few = 1 });
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    D = c->dim, E = embed_width(c), F = PATCH * PATCH * c->in_ch;
    xd_w_linear(d, &g->latents, "all_x_embedder.2-1",
                &(xd_linear_spec){ .in = F, .out = D, .bias = 1 });
    xd_w_vec(d, &g->text_norm, "cap_embedder.0.weight", 1, &c->text);
    xd_w_linear(d, &g->text, "cap_embedder.1",
                &(xd_linear_spec){ .in = c->text, .out = D, .bias = 1 });
    xd_w_vec(d, &g->image_pad, "x_pad_token", 2, (int64_t[]){ 1, D });
    xd_w_vec(d, &g->text_pad, "cap_pad_token", 2, (int64_t[]){ 1, D });
    xd_w_enter(d, "t_embedder.mlp");
    xd_w_linear(d, &g->time.a, "0",
                &(xd_linear_spec){ .in = XD_SINUSOIDS, .out = TIME_MID, .bias = 1 });
    xd_w_linear(d, &g->time.b, "2", &(xd_linear_spec){ .in = TIME_MID, .out = E, .bias = 1 });
    xd_w_leave(d);
    xd_w_enter(d, "all_final_layer.2-1");
    xd_w_linear(d, &g->mod, "adaLN_modulation.1",
                &(xd_linear_spec){ .in = E, .out = D, .bias = 1 });
    xd_w_linear(d, &g->out, "linear", &(xd_linear_spec){ .in = D, .out = F, .bias = 1 });
    xd_w_leave(d);
}

/* ---- conditioning ------------------------------------------------------------------------- */

/* Writes the cosines or sines of one token's RoPE angles. Angles are computed in f64 and rounded to
 * f32, as in diffusers. */
static float *token_angles(const xd_rope *t, const double *base, const int64_t pos[AXES], float *to)
{
    const cfg *c = t->cfg;
    for (int a = 0; a < AXES; a++)
        for (int64_t k = 0; k < c->axes.v[a]; k += 2)
            *to++ = (float)t->fn((double)(float)((double)pos[a] * *base++));
    return to;
}

/* Fills the RoPE angles: first those of the text rows, then of the image's padding rows, then of
 * the image tokens. */
static void fill_angles(void *ctx, float *buf)
{
    const xd_rope *t = ctx;
    const cfg     *c = t->cfg;
    const xd_exec *x = t->x;
    int64_t        W = x->lay->grid[2], behind = x->lay->len[XD_TXT] + 1;
    double         base[256], *b = base; /* enough for heads of up to 512 features */
    for (int a = 0; a < AXES; a++)
        for (int64_t k = 0; k < c->axes.v[a]; k += 2)
            *b++ = 1.0 / pow(c->theta, (double)k / (double)c->axes.v[a]);
    for (int64_t i = 0; i < xd_n(x, XD_TXT); i++)
        buf = token_angles(t, base, (int64_t[]){ 1 + xd_where(x, XD_TXT, i), 0, 0 }, buf);
    for (int64_t i = 0; i < xd_n(x, XD_PAD); i++)
        buf = token_angles(t, base, (int64_t[]){ 0, 0, 0 }, buf);
    for (int64_t i = 0; i < xd_n(x, XD_IMG); i++) {
        int64_t at = xd_where(x, XD_IMG, i);
        buf = token_angles(t, base, (int64_t[]){ behind, at / W, at % W }, buf);
    }
}

/* Returns the cosines or sines of the RoPE angles of a forward pass. The angles of image tokens
 * also depend on the length of the text. */
static xd_tensor angles_of(xd_exec *x, const cfg *c, const xd_cond *text, double (*fn)(double))
{
    int64_t rows = xd_n(x, XD_TXT) + xd_n(x, XD_PAD) + xd_n(x, XD_IMG);
    return xd_rope_table_of(x, text, rows, c->head_dim / 2, fill_angles, c, fn);
}

/* Embeds the timestep. The model's time runs from 0 (noise) to 1; as in diffusers, timesteps are
 * rounded to f32. */
static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    local      *l = s->local;
    double      t = (double)((1000.0f - (float)in->t) / 1000.0f * (float)c->t_scale);
    l->in.emb = xd_as(x, xd_mlp_timesteps(x, &t, 1, &g->time), x->act);
    l->in.head_dim = c->head_dim, l->in.eps = c->eps;
    l->in.cos = angles_of(x, c, in->cond, cos);
    l->in.sin = angles_of(x, c, in->cond, sin);
}

/* ---- embedding ---------------------------------------------------------------------------- */

/* Writes the learned padding row `pad` to each row of h. */
static void fill_padding(xd_exec *x, xd_tensor h, xd_tensor pad)
{
    pad.d[0] = h.d[0], pad.s[0] = 0;
    if (h.d[0])
        xd_copy_to(x, h, pad);
}

/* Embeds this rank's text rows. The first in->cond->real[0] text rows are those of the prompt; the
 * rows after them are padding. */
static void embed_text(xd_exec *x, const cfg *c, const glob *g, const xd_input *in, xd_tensor h)
{
    int64_t n = 0;
    while (n < h.d[0] && xd_where(x, XD_TXT, n) < in->cond->real[0])
        n++;
    if (n)
        xd_linear_into(x, xd_rows(h, 0, n),
                       xd_rms_norm(x, xd_rows(in->txt, 0, n), g->text_norm, c->eps), &g->text);
    fill_padding(x, xd_rows(h, n, h.d[0] - n), g->text_pad);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    xd_tensor   h = xd_dit_state(s, c->dim, 0);
    int64_t     ntxt = xd_n(x, XD_TXT), npad = xd_n(x, XD_PAD), nimg = xd_n(x, XD_IMG);
    if (!xd_check(x, in->lat.d[0] == nimg && in->txt.d[0] == ntxt && h.d[0] == ntxt + npad + nimg,
                  "%lld image and %lld text tokens do not match %lld rows of state",
                  (long long)nimg, (long long)ntxt, (long long)h.d[0]))
        return;
    size_t mark = xd_arena_mark(x->tmp);
    if (ntxt)
        embed_text(x, c, g, in, xd_rows(h, 0, ntxt));
    fill_padding(x, xd_rows(h, ntxt, npad), g->image_pad);
    xd_refined_embed(x, in->lat, xd_rows(h, ntxt + npad, nimg), &g->latents);
    xd_arena_rewind(x->tmp, mark);
}

static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    xd_tensor    active = xd_gated(x, l->in.emb, (xd_tensor){ 0 }, XD_SILU);
    return xd_refined_head(x, xd_dit_state(s, c->dim, 0), active,
                           &(xd_refined_out){ &g->mod, &g->out }, c->in_ch);
}

/* ---- configuration of side networks ------------------------------------------------------- */

static xd_status read_sides(void *c_, const xd_json *obj, const char *what, xd_err *e)
{
    whole_cfg     *c = c_;
    const xd_json *list = xd_json_get(obj, XD_SIDES_KEY);
    xd_status      s = XD_OK;
    for (int i = 0; s == XD_OK && i < xd_json_size(list) && i < XD_MAXSIDES; i++, c->nsides++)
        s = xd_fields_read(side_fields, &c->side[i], xd_json_at(list, i), what, e);
    return s;
}

/* Returns 1 if a side network has a copy of the image's state, to which it adds hints. */
static int has_copy(const side_cfg *side)
{
    return side->refiner[0] != 0;
}

/* Returns 1 if the blocks beside the main list also refine the control. */
static int repeats(const side_cfg *side)
{
    return strcmp(side->refiner, "control_layers") == 0;
}

/* Checks that a list of `key` has the numbers of at most `most` of n blocks, in their order. */
static xd_status check_places(const xd_ints *l, const char *key, int most, int n, int i, xd_err *e)
{
    for (int k = 0; k < l->n; k++)
        if (k == most || l->v[k] < 0 || l->v[k] >= n || (k && l->v[k] <= l->v[k - 1]))
            return xd_fail(e, XD_EFORMAT,
                           "controlnet %d does not fit the transformer: its %s is not a rising "
                           "list of at most %d numbers below %d",
                           i, key, most, n);
    return XD_OK;
}

/* Checks that the sizes of side network i are those of the transformer. */
static xd_status check_side(const cfg *c, side_cfg *side, int i, xd_err *e)
{
    static const int64_t two = PATCH, one = 1;
    xd_refined_set_list(&side->patches, 1, &two);
    xd_refined_set_list(&side->frames, 1, &one);
    const xd_side_number v[] = {
        { "dim", (double)side->dim, (double)c->dim },
        { "n_heads", side->heads, c->heads },
        { "n_kv_heads", side->kv_heads, c->kv_heads },
        { "n_refiner_layers", side->nrefiners, c->nrefiners },
        { "norm_eps", side->eps, c->eps },
        { "qk_norm", side->qk_norm, c->qk_norm },
        { "all_patch_size", (double)side->patches.v[0], PATCH },
        { "all_f_patch_size", (double)side->frames.v[0], 1 },
    };
    xd_status s = xd_sides_check(v, sizeof v / sizeof *v, i, e);
    if (s == XD_OK && (side->in_ch < c->in_ch || side->in_ch > 4096))
        return xd_fail(e, XD_EFORMAT,
                       "controlnet %d does not fit the transformer: its control_in_dim is %lld, "
                       "not %lld or more",
                       i, (long long)side->in_ch, (long long)c->in_ch);
    if (s == XD_OK && has_copy(side) && !repeats(side) &&
        strcmp(side->refiner, "control_noise_refiner") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "controlnet %d: add_control_noise_refiner '%s' is not null, "
                       "'control_layers' or 'control_noise_refiner'",
                       i, side->refiner);
    if (s == XD_OK && (!side->places.n || side->places.v[0] != 0 || side->nrefiners < 1))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "controlnet %d: control_layers_places does not begin with 0, or "
                       "n_refiner_layers is 0",
                       i);
    if (s == XD_OK)
        s = check_places(&side->places, "control_layers_places", XD_FIELD_LIST, c->nlayers, i, e);
    if (s == XD_OK && has_copy(side))
        s = check_places(&side->refiner_places, "control_refiner_layers_places",
                         repeats(side) ? side->places.n : side->nrefiners, c->nrefiners, i, e);
    return s;
}

/* Sets *zero to 1 if all numbers of a tensor are 0, or if the weight file lacks it. */
static xd_status is_zero(const xd_source *file, const char *name, int *zero, xd_err *e)
{
    xd_tensor t;
    float     some[256];
    *zero = 1;
    if (!file->has(file->self, name, &t))
        return XD_OK;
    xd_status s = file->get(file->self, name, &t, e);
    if (s != XD_OK)
        return s;
    for (int64_t i = 0, n = xd_count(t); i < n && *zero; i += 256) {
        int64_t m = n - i < 256 ? n - i : 256;
        xd_convert(some, XD_F32, (const char *)t.p + xd_dtype_bytes(t.type, i), t.type, m);
        for (int64_t k = 0; k < m; k++)
            *zero &= some[k] == 0;
    }
    file->done(file->self, name);
    return XD_OK;
}

/* Appends `, "KEY": [0, STEP, ...]` with n numbers. */
static void add_list(xd_text_buf *b, const char *key, int n, int step)
{
    xd_buf_add(b, ", \"%s\": [", key);
    for (int i = 0; i < n; i++)
        xd_buf_add(b, "%s%d", i ? ", " : "", i * step);
    xd_buf_add(b, "]");
}

/* Implements `describe` of xd_side for the files of alibaba-pai, whose tensors have diffusers'
 * names. As in diffusers, the layer before_proj of the first refining block tells version 2.1 from
 * version 2.0, in which it is absent or zero. The blocks stand beside main layers in equal
 * steps. */
static xd_status describe(const xd_source *file, const xd_json *transformer, xd_text_buf *b,
                          xd_err *e)
{
    static const char prefix[] = "control_layers.", suffix[] = ".adaLN_modulation.0.weight";
    cfg               c = { 0 };
    xd_tensor         t;
    int               n = xd_sides_count(file, prefix, suffix), plain = 1;
    if (!n || !file->has(file->self, "control_all_x_embedder.2-1.weight", &t) || t.nd != 2)
        return XD_OK;
    xd_status s = xd_fields_read(fields, &c, transformer, "transformer", e);
    if (s == XD_OK)
        s = check_config(&c, e);
    if (s == XD_OK)
        s = is_zero(file, "control_noise_refiner.0.before_proj.weight", &plain, e);
    if (s != XD_OK)
        return s;
    int64_t channels = t.d[1] / (PATCH * PATCH);
    xd_buf_add(b, "{\"_class_name\": \"ZImageControlNetModel\", \"control_in_dim\": %lld",
               (long long)channels);
    xd_buf_add(b, ", \"dim\": %lld, \"n_heads\": %d, \"n_kv_heads\": %d", (long long)t.d[0],
               c.heads, c.kv_heads);
    xd_buf_add(b, ", \"n_refiner_layers\": %d, \"norm_eps\": %.9g, \"qk_norm\": %s", c.nrefiners,
               (double)c.eps, c.qk_norm ? "true" : "false");
    add_list(b, "control_layers_places", n, n < c.nlayers ? c.nlayers / n : 1);
    if (channels > c.in_ch) {
        add_list(b, "control_refiner_layers_places", c.nrefiners, 1);
        xd_buf_add(b, ", \"add_control_noise_refiner\": \"%s\"",
                   plain ? "control_layers" : "control_noise_refiner");
    }
    xd_buf_add(b, "}");
    return XD_OK;
}

static void add_side_block(side_cfg *side, side_kind kind, int at)
{
    side->kind[side->nblocks] = (char)kind;
    side->at[side->nblocks++] = (char)at;
}

/* Lists the blocks of a side network in the order of running. The refining block whose hint is
 * added behind a block of the noise refiner follows this block. */
static void list_side_blocks(side_cfg *side)
{
    int n = repeats(side) ? side->places.n : side->nrefiners, done = 0;
    side->nblocks = 0;
    for (int j = 0; has_copy(side) && j < side->nrefiners; j++) {
        add_side_block(side, COPIED, j);
        if (done < side->refiner_places.n && side->refiner_places.v[done] == j)
            add_side_block(side, REFINING, done++);
    }
    while (done < n)
        add_side_block(side, REFINING, done++);
    side->lead = side->nblocks;
    for (int j = 0; j < side->places.n; j++)
        add_side_block(side, LAYER, j);
}

/* Implements `before` of xd_sides_order: the control is refined before the last block of the
 * context refiner. */
static int blocks_before(const void *c_, int i, int layer)
{
    const whole_cfg *c = c_;
    const side_cfg  *side = &c->side[i];
    int              first = 2 * c->main.nrefiners, n = side->lead;
    if (layer < first - 1)
        return 0;
    for (int k = 0; k < side->places.n; k++)
        n += side->places.v[k] < layer - first;
    return n;
}

static xd_status check_whole(void *c_, xd_err *e)
{
    whole_cfg *c = c_;
    xd_status  s = check_config(&c->main, e);
    c->states = 1;
    for (int i = 0; s == XD_OK && i < c->nsides; i++) {
        s = c->main.nrefiners > XD_FIELD_LIST
                ? xd_fail(e, XD_EUNSUPPORTED,
                          "a transformer with %d refiner blocks has controlnets", c->main.nrefiners)
                : check_side(&c->main, &c->side[i], i, e);
        if (s == XD_OK)
            list_side_blocks(&c->side[i]);
        c->side[i].state = c->states;
        c->states += 1 + has_copy(&c->side[i]);
    }
    int n = main_nlayers(&c->main);
    if (s == XD_OK)
        s = xd_sides_order(&c->order, n, c->nsides, blocks_before, c, e);
    for (int i = 0; i < c->nsides; i++) /* the block after the last one of the transformer */
        for (int at = blocks_before(c, i, n - 1); s == XD_OK && at < c->side[i].nblocks; at++)
            s = xd_sides_add(&c->order, i, at, e);
    return s;
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
    out->states = c->states;
    out->sides = out->hints = c->nsides;
    for (int i = 0; i < c->nsides; i++) {
        out->side_ch[i] = c->side[i].in_ch;
        if (c->side[i].in_ch == 2 * c->main.in_ch + 1)
            out->side_fill[i] = XD_FILL_IMAGE;
        out->extra_ch += c->side[i].in_ch;
        out->lead += c->side[i].lead;
    }
}

/* ---- weights of side networks ------------------------------------------------------------- */

static void square_weights(xd_decl *d, const cfg *c, const char *name, xd_lin *w)
{
    xd_w_linear(d, w, name, &(xd_linear_spec){ .in = c->dim, .out = c->dim, .bias = 1 });
}

static void whole_weights(xd_decl *d, const void *c_, void *g_)
{
    const whole_cfg *c = c_;
    whole_glob      *g = g_;
    weights(d, &c->main, &g->main);
    for (int i = 0; i < c->nsides; i++) {
        const side_cfg *side = &c->side[i];
        xd_w_enter(d, "controlnet.%d", i);
        xd_w_linear(
            d, &g->control[i], "control_all_x_embedder.2-1",
            &(xd_linear_spec){ .in = PATCH * PATCH * side->in_ch, .out = c->main.dim, .bias = 1 });
        square_weights(d, &c->main, "control_layers.0.before_proj", &g->before[i]);
        if (has_copy(side) && !repeats(side))
            square_weights(d, &c->main, "control_noise_refiner.0.before_proj",
                           &g->before_refining[i]);
        xd_w_leave(d);
    }
}

static void image_weights(xd_decl *d, const void *c_, int layer, void *w)
{
    const whole_cfg *c = c_;
    timed_weights(d, &c->main, layer, w);
}

static void text_weights(xd_decl *d, const void *c_, int layer, void *w)
{
    const whole_cfg *c = c_;
    plain_weights(d, &c->main, layer, w);
}

/* Declares the weights of a block of a side network. Weights that another block has, too, are
 * listed only once. */
static void side_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const whole_cfg *c = c_;
    const side_cfg  *side = &c->side[c->order.net[layer]];
    side_blk        *w = w_;
    int              k = c->order.at[layer], kind = side->kind[k], at = side->at[k];
    int              again = kind == COPIED || (kind == REFINING && repeats(side));
    if (again && d->visit == XD_VISIT_LIST)
        return;
    xd_w_enter(d,
               kind == LAYER || (again && kind == REFINING) ? "control_layers.%d"
               : kind == REFINING                           ? "control_noise_refiner.%d"
                                                            : "%d",
               at);
    timed_weights(d, &c->main, layer, &w->b);
    if (kind == LAYER || (kind == REFINING && has_copy(side)))
        square_weights(d, &c->main, "after_proj", &w->hint);
    xd_w_leave(d);
}

/* ---- running side networks ---------------------------------------------------------------- */

static void cond_whole(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const whole_cfg *c = n->cfg;
    local           *l = s->local;
    cond(x, n, in, s);
    for (int i = 0; i < c->nsides; i++)
        l->scale[i] = xd_sides_scale(in, i);
}

/* Computes to = before(to) + state. */
static void begin_control(xd_exec *x, xd_tensor to, xd_tensor state, const xd_lin *before)
{
    size_t mark = xd_arena_mark(x->tmp);
    xd_copy_to(x, to, xd_linear_f32(x, to, before));
    xd_add(x, to, state);
    xd_arena_rewind(x->tmp, mark);
}

/* Embeds the control images. Rows of the text get any finite numbers. */
static void embed_whole(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const whole_glob *g = n->glob;
    const whole_cfg  *c = n->cfg;
    int64_t           D = c->main.dim, ntxt = xd_n(x, XD_TXT), npad = xd_n(x, XD_PAD), from = 0;
    int64_t           nimg = xd_n(x, XD_IMG);
    xd_tensor         h = xd_dit_state(s, D, 0);
    embed(x, n, in, s);
    for (int i = 0; i < c->nsides && xd_ok(x); i++) {
        const side_cfg *side = &c->side[i];
        const xd_lin   *before = repeats(side) ? &g->before[i] : &g->before_refining[i];
        int64_t         F = PATCH * PATCH * side->in_ch;
        xd_tensor       control = xd_dit_state(s, D, side->state);
        size_t          mark = xd_arena_mark(x->tmp);
        xd_tensor       seen = xd_new_f32(x, nimg, F);
        xd_copy_to(x, seen, xd_cols(in->extra, from, F));
        xd_copy_to(x, control, h);
        xd_refined_embed(x, seen, xd_rows(control, ntxt + npad, nimg), &g->control[i]);
        if (has_copy(side)) {
            xd_copy_to(x, xd_dit_state(s, D, side->state + 1), h);
            begin_control(x, xd_rows(control, ntxt, npad + nimg), xd_rows(h, ntxt, npad + nimg),
                          before);
        }
        xd_arena_rewind(x->tmp, mark);
        from += F;
    }
}

/* Begins the control of all tokens, from the control of the image and the text. */
static void join_text(xd_exec *x, const xd_net *n, xd_state *s)
{
    const whole_glob *g = n->glob;
    const whole_cfg  *c = n->cfg;
    const local      *l = s->local;
    int64_t           D = c->main.dim, ntxt = xd_n(x, XD_TXT);
    xd_tensor         h = xd_dit_state(s, D, 0), text = xd_rows(h, 0, ntxt);
    for (int i = 0; i < c->nsides; i++) {
        xd_tensor control = xd_dit_state(s, D, c->side[i].state), seen = h;
        if (l->scale[i] == 0)
            continue;
        if (has_copy(&c->side[i])) {
            seen = xd_dit_state(s, D, c->side[i].state + 1);
            xd_copy_to(x, xd_rows(seen, 0, ntxt), text);
        }
        xd_copy_to(x, xd_rows(control, 0, ntxt), text);
        begin_control(x, control, seen, &g->before[i]);
    }
}

/* Returns the state with only hidden state i. */
static xd_state one_state(const xd_state *s, int64_t D, int i)
{
    xd_state one = *s;
    one.h = xd_dit_state(s, D, i);
    return one;
}

static void forward_main(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    const whole_cfg *c = n->cfg;
    int              at = c->order.at[x->layer], nr = c->main.nrefiners;
    xd_state         one = one_state(s, c->main.dim, 0);
    (at < nr ? xd_refined_image : at < 2 * nr ? xd_refined_text : xd_refined_all)(x, n, w, &one);
    if (at == 2 * nr - 1)
        join_text(x, n, s);
}

/* Computes to += scale * hint(control). */
static void add_hint(xd_exec *x, xd_tensor to, xd_tensor control, const xd_lin *hint, float scale)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor y = xd_linear_f32(x, control, hint);
    if (scale != 1)
        xd_axpby(x, y, 0, (xd_tensor){ 0 }, scale);
    xd_add(x, to, y);
    xd_arena_rewind(x->tmp, mark);
}

static void forward_side(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const side_blk  *w = w_;
    const whole_cfg *c = n->cfg;
    const local     *l = s->local;
    int              i = c->order.net[x->layer], k = c->order.at[x->layer];
    const side_cfg  *side = &c->side[i];
    int64_t          D = c->main.dim, ntxt = xd_n(x, XD_TXT);
    if (l->scale[i] == 0)
        return;
    xd_state control = one_state(s, D, side->state), copy = one_state(s, D, side->state + 1);
    if (side->kind[k] == COPIED) {
        xd_refined_image(x, n, &w->b, &copy);
    } else if (side->kind[k] == LAYER) {
        xd_refined_all(x, n, &w->b, &control);
        add_hint(x, xd_dit_state(s, D, 0), control.h, &w->hint, l->scale[i]);
    } else {
        int64_t rows = control.h.d[0] - ntxt;
        xd_refined_image(x, n, &w->b, &control);
        if (has_copy(side) && side->at[k] < side->refiner_places.n)
            add_hint(x, xd_rows(copy.h, ntxt, rows), xd_rows(control.h, ntxt, rows), &w->hint,
                     l->scale[i]);
    }
}

static xd_tensor probe_whole(xd_exec *x, const xd_net *n, xd_state *s)
{
    return xd_rows(xd_dit_state(s, ((const cfg *)n->cfg)->dim, 0),
                   xd_n(x, XD_TXT) + xd_n(x, XD_PAD), xd_n(x, XD_IMG));
}

static const xd_block kind_image = { "noise_refiner.%d", sizeof(xd_refined), image_weights,
                                     forward_main };
static const xd_block kind_text = { "context_refiner.%d", sizeof(xd_refined), text_weights,
                                    forward_main };
static const xd_block kind_all = { "layers.%d", sizeof(xd_refined), image_weights, forward_main };
/* a block of the noise refiner on a side network's copy of the image's state */
static const xd_block kind_copied = { "noise_refiner", sizeof(side_blk), side_weights,
                                      forward_side };
#define SIDE_KIND(name) { name, sizeof(side_blk), side_weights, forward_side }
static const xd_block side_kinds[XD_MAXSIDES] = { XD_SIDES_KINDS(SIDE_KIND) };

static const xd_block *block(const void *c_, int layer)
{
    const whole_cfg *c = c_;
    int              i = c->order.net[layer], at = c->order.at[layer], nr = c->main.nrefiners;
    if (i >= 0)
        return c->side[i].kind[at] == COPIED ? &kind_copied : &side_kinds[i];
    return at < nr ? &kind_image : at < 2 * nr ? &kind_text : &kind_all;
}

extern const xd_dit xd_dit_zimage;

static const xd_side side = { .classes = { "ZImageControlNetModel" }, .describe = describe };

const xd_dit xd_dit_zimage = {
    .net = { .name = "zimage",
             .classes = { "ZImageTransformer2DModel" },
             /* only in ComfyUI's files, and in files of control networks of version 2.0 */
             .unread = { "norm_final.weight", "controlnet.0.control_noise_refiner.*",
                         "controlnet.1.control_noise_refiner.*",
                         "controlnet.2.control_noise_refiner.*",
                         "controlnet.3.control_noise_refiner.*" },
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
    .cond = cond_whole,
    .embed = embed_whole,
    .head = head,
    .probe = probe_whole,
};
