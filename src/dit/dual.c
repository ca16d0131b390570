/* dual.c - runs diffusion transformers made of double and single blocks */
#include "dit/dual.h"

#include <string.h>

static const double theta = 10000.0;
static const float  eps = 1e-6f;

/* ---- configuration ------------------------------------------------------------------------ */

xd_status xd_dual_check(xd_dual_cfg *c, int64_t channels, xd_err *e)
{
    const xd_config_range r[] = {
        { "num_attention_heads", c->heads, 1, 4096 },
        { "attention_head_dim", c->head_dim, 8, 512 },
        { "in_channels", c->in_ch, channels, 65536 },
        { "num_layers", c->ndouble, 0, 10000 },
        { "num_single_layers", c->nsingle, 0, 10000 },
        { "joint_attention_dim", c->joint, 1, 1 << 24 },
    };
    c->out_ch = c->out_ch ? c->out_ch : c->in_ch;
    c->dim = c->heads * c->head_dim;
    return xd_check_ranges(r, sizeof r / sizeof r[0], e);
}

int xd_dual_nlayers(const void *cfg)
{
    const xd_dual_cfg *c = cfg;
    return c->ndouble + c->nsingle;
}

/* ---- weights ------------------------------------------------------------------------------ */

void xd_pair_weights(xd_decl *d, const void *cfg, int layer, void *w_)
{
    const xd_dual_cfg *c = cfg;
    xd_pair           *w = w_;
    xd_adaln_form      a = {
        .dim = c->dim, .head_dim = c->head_dim, .nmod = c->modulated ? 6 : 0, .qk_norm = 1
    };
    (void)layer;
    xd_adaln_weights(d, &a, 0, &w->img);
    xd_adaln_weights(d, &a, 1, &w->txt);
}

void xd_solo_weights(xd_decl *d, const void *cfg, int layer, void *w_)
{
    static const char *const qkv[] = { "attn.to_q", "attn.to_k", "attn.to_v" };
    const xd_dual_cfg       *c = cfg;
    xd_solo                 *w = w_;
    int64_t                  D = c->dim, hd = c->head_dim;
    (void)layer;
    if (c->modulated)
        xd_w_linear(d, &w->mod, "norm.linear",
                    &(xd_linear_spec){ .in = D, .out = 3 * D, .bias = 1, .few = 1 });
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = D,
                                 .out = { D, D, D },
                                 .split = XD_COL,
                                 .unit = hd,
                                 .bias = 1 });
    xd_w_linear(d, &w->up, "proj_mlp",
                &(xd_linear_spec){ .in = D, .out = 4 * D, .split = XD_COL, .unit = hd, .bias = 1 });
    xd_w_linear(d, &w->out, "proj_out",
                &(xd_linear_spec){ .nparts = 2,
                                   .parts = (int64_t[]){ D, 4 * D },
                                   .out = D,
                                   .split = XD_ROW,
                                   .unit = hd,
                                   .bias = 1 });
    xd_w_vec(d, &w->norm_q, "attn.norm_q.weight", 1, &hd);
    xd_w_vec(d, &w->norm_k, "attn.norm_k.weight", 1, &hd);
}

/* ---- positions ---------------------------------------------------------------------------- */

xd_status xd_dual_axes(xd_ints *axes, const char *key, const xd_ints *usual, int64_t head_dim,
                       xd_err *e)
{
    static const xd_ints image = { XD_DUAL_AXES, { 16, 56, 56 } };
    int64_t              sum = 0;
    usual = usual ? usual : &image;
    if (axes->n == 0)
        *axes = *usual;
    if (axes->n != usual->n)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: %s has %d axes, not %d", key, axes->n,
                       usual->n);
    for (int i = 0; i < axes->n; i++) {
        if (axes->v[i] < 0 || axes->v[i] % 2)
            return xd_fail(e, XD_EFORMAT, "transformer: %s has %lld, which is not even", key,
                           (long long)axes->v[i]);
        sum += axes->v[i];
    }
    if (sum != head_dim)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: the sum of %s is %lld, not attention_head_dim %lld", key,
                       (long long)sum, (long long)head_dim);
    return XD_OK;
}

/* Fills the RoPE angles of the tokens of one stream. Returns the address after the last angle
 * written. */
static float *fill_stream(const xd_rope *t, xd_stream_id stream, const double *base, float *row)
{
    int64_t W = t->x->lay->grid[2], n = xd_n(t->x, stream);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = xd_where(t->x, stream, i), pos[XD_DUAL_AXES] = { 0, at / W, at % W };
        if (stream == XD_REF)
            pos[0] = 1 + xd_ref_at(t->x->lay, at, &pos[1], &pos[2]);
        row = xd_rope_token(row, base, t->cfg, pos, t->fn);
    }
    return row;
}

static int64_t half_of(const xd_ints *axes)
{
    int64_t sum = 0;
    for (int i = 0; i < axes->n; i++)
        sum += axes->v[i];
    return sum / 2;
}

/* Fills the RoPE angles of all tokens. The angles of the leading and text tokens come first; these
 * tokens have position 0. */
static void fill_angles(void *ctx, float *buf)
{
    const xd_rope *t = ctx;
    /* one value per pair of features; a head has at most 512 features */
    double         base[256];
    xd_rope_axes(base, theta, t->cfg);
    int64_t still = xd_n(t->x, XD_LEAD) + xd_n(t->x, XD_TXT);
    for (int64_t n = still * half_of(t->cfg); n > 0; n--)
        *buf++ = (float)t->fn(0);
    buf = fill_stream(t, XD_REF, base, buf);
    fill_stream(t, XD_IMG, base, buf);
}

xd_tensor xd_dual_angles(xd_exec *x, const void *text, const xd_ints *axes, double (*fn)(double))
{
    int64_t rows = xd_n(x, XD_LEAD) + xd_n(x, XD_TXT) + xd_n(x, XD_REF) + xd_n(x, XD_IMG);
    return xd_rope_table_of(x, text, rows, half_of(axes), fill_angles, axes, fn);
}

/* ---- running ------------------------------------------------------------------------------ */

void xd_dual_embed(xd_exec *x, const xd_input *in, xd_tensor h, const xd_lin *text,
                   const xd_lin *latents)
{
    int64_t ntxt = xd_n(x, XD_TXT), nref = xd_n(x, XD_REF), nimg = xd_n(x, XD_IMG);
    int64_t lead = xd_n(x, XD_LEAD);
    if (!xd_check(x,
                  in->lat.d[0] == nimg && in->txt.d[0] == ntxt && in->ref.d[0] == nref &&
                      h.d[0] == lead + nref + nimg + ntxt,
                  "%lld image, %lld reference and %lld text tokens do not match %lld rows of state",
                  (long long)nimg, (long long)nref, (long long)ntxt, (long long)h.d[0]))
        return;
    size_t mark = xd_arena_mark(x->tmp);
    if (ntxt)
        xd_linear_into(x, xd_rows(h, lead, ntxt), in->txt, text);
    if (nref)
        xd_linear_into(x, xd_rows(h, lead + ntxt, nref), in->ref, latents);
    xd_linear_into(x, xd_rows(h, lead + ntxt + nref, nimg), xd_join_channels(x, in), latents);
    xd_arena_rewind(x->tmp, mark);
}

enum { SIDES = 4 }; /* maximum number of groups of tokens that share weights and modulation */

/* one group of tokens in a block (rows [at, at + n) of h), which share weights and modulation; a
 * single block has the same weights for all tokens */
typedef struct side {
    const xd_adaln *w;
    xd_tensor       mod, h;
    int64_t         at, n;
} side;

/* Appends n rows to the list of sides; returns the new number of sides. */
static int add_side(side *s, int count, const xd_adaln *w, xd_tensor mod, int64_t n)
{
    int64_t at = count ? s[count - 1].at + s[count - 1].n : 0;
    s[count] = (side){ .w = w, .mod = mod, .at = at, .n = n };
    return count + 1;
}

/* Lists the sides of a double block, which are groups of tokens with the same weights and
 * modulation. The sides of a double block are the text, then the reference images if their
 * modulation differs from the image's, then the image's tokens with timestep 0, if there are any,
 * and the image's other tokens. Returns the number of sides. */
static int sides_of(const xd_exec *x, xd_tensor h, const xd_pair *w, const xd_dual_in *in,
                    side s[SIDES])
{
    int64_t ntxt = xd_n(x, XD_LEAD) + xd_n(x, XD_TXT), nref = in->ref.nd ? xd_n(x, XD_REF) : 0;
    int     n = add_side(s, 0, &w->txt, in->txt, ntxt);
    if (nref)
        n = add_side(s, n, &w->img, in->ref, nref);
    if (in->held)
        n = add_side(s, n, &w->img, in->first, in->held);
    n = add_side(s, n, &w->img, in->img, h.d[0] - ntxt - nref - in->held);
    for (int i = 0; i < n; i++)
        s[i].h = xd_rows(h, s[i].at, s[i].n);
    return n;
}

void xd_pair_run(xd_exec *x, xd_tensor h, const xd_pair *w, const xd_dual_in *in)
{
    side      s[SIDES];
    int       n = sides_of(x, h, w, in, s);
    xd_tensor y = xd_new(x, h.d[0], w->img.qkv.w.out);
    for (int i = 0; i < n; i++) {
        size_t  mark = xd_arena_mark(x->tmp);
        xd_norm a = { .in = s[i].h,
                      .scale = xd_rows(s[i].mod, 1, 1),
                      .shift = xd_rows(s[i].mod, 0, 1),
                      .eps = eps };
        xd_linear_into(x, xd_rows(y, s[i].at, s[i].n), xd_norm_for(x, &a, &s[i].w->qkv, NULL),
                       &s[i].w->qkv);
        xd_arena_rewind(x->tmp, mark);
    }
    xd_qkv a = xd_qkv_open(x, y, &w->img.qkv, in->head_dim);
    for (int i = 0; i < n; i++)
        xd_qkv_fill(x, &a, y, &w->img.qkv,
                    &(xd_qkv_rows){ .at = s[i].at,
                                    .n = s[i].n,
                                    .norm_q = s[i].w->norm_q,
                                    .norm_k = s[i].w->norm_k,
                                    .cos = in->cos,
                                    .sin = in->sin });
    xd_tensor o = xd_flat(xd_attn(x, a.q, a.k, a.v, 0));
    for (int i = 0; i < n; i++) {
        xd_linear_add(x, s[i].h, xd_rows(s[i].mod, 2, 1), xd_rows(o, s[i].at, s[i].n),
                      &s[i].w->out);
        xd_adaln_feed(x, s[i].h, s[i].w, s[i].mod);
    }
}

/* Lists the groups of tokens of a single block that have the same modulation: all tokens or, if
 * tokens of the image have timestep 0, the tokens before them, these tokens, and those after them.
 * Returns the number of groups. */
static int groups_of(const xd_exec *x, xd_tensor h, const xd_dual_in *in, side s[SIDES])
{
    int64_t before = xd_n(x, XD_LEAD) + xd_n(x, XD_TXT) + xd_n(x, XD_REF);
    int     n = 0;
    if (in->held) {
        n = add_side(s, n, NULL, in->img, before);
        n = add_side(s, n, NULL, in->first, in->held);
        n = add_side(s, n, NULL, in->img, h.d[0] - before - in->held);
    } else {
        n = add_side(s, n, NULL, in->img, h.d[0]);
    }
    for (int i = 0; i < n; i++)
        s[i].h = xd_rows(h, s[i].at, s[i].n);
    return n;
}

/* Returns the normed rows of n groups, each with its own modulation, as the layers of a single
 * block read them. */
static xd_tensor norm_groups(xd_exec *x, xd_tensor h, const side *s, int n, const xd_solo *w)
{
    xd_tensor out = { 0 };
    if (n > 1)
        out = xd_new(x, h.d[0], h.d[1]);
    for (int i = 0; i < n; i++) {
        xd_norm a = { .in = s[i].h,
                      .scale = xd_rows(s[i].mod, 1, 1),
                      .shift = xd_rows(s[i].mod, 0, 1),
                      .eps = eps };
        if (n == 1)
            return xd_norm_for(x, &a, &w->up, &w->qkv);
        a.out = xd_rows(out, s[i].at, s[i].n);
        xd_norm_into(x, &a);
    }
    return out;
}

void xd_solo_run(xd_exec *x, xd_tensor h, const xd_solo *w, const xd_dual_in *in)
{
    int64_t   rows = h.d[0], D = w->out.w.in - w->up.w.out;
    side      s[SIDES];
    int       n = groups_of(x, h, in, s);
    xd_tensor both = xd_new(x, rows, w->out.w.in);
    xd_tensor a = norm_groups(x, h, s, n, w);
    xd_linear_act_into(x, xd_cols(both, D, w->up.w.out), a, &w->up, XD_GELU_TANH);
    xd_tensor y = xd_linear(x, a, &w->qkv);
    xd_qkv    t = xd_qkv_open(x, y, &w->qkv, in->head_dim);
    xd_qkv_fill(
        x, &t, y, &w->qkv,
        &(xd_qkv_rows){
            .n = rows, .norm_q = w->norm_q, .norm_k = w->norm_k, .cos = in->cos, .sin = in->sin });
    xd_attn_into(x, xd_heads(xd_cols(both, 0, D), in->head_dim), t.q, t.k, t.v, 0);
    for (int i = 0; i < n; i++)
        xd_linear_add(x, s[i].h, xd_rows(s[i].mod, 2, 1), xd_rows(both, s[i].at, s[i].n), &w->out);
}

xd_tensor xd_dual_head(xd_exec *x, xd_tensor h, xd_tensor scale, xd_tensor shift, const xd_lin *out)
{
    int64_t   nimg = xd_n(x, XD_IMG);
    xd_tensor y = xd_new_f32(x, nimg, out->w.out);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_linear_into(x, y, xd_norm_mod(x, xd_rows(h, h.d[0] - nimg, nimg), scale, shift, eps), out);
    xd_arena_rewind(x->tmp, mark);
    return y;
}
