/* common.c - the blocks that refine the text, and the positions of tokens, in the transformers of
 * HunyuanVideo and HunyuanVideo-1.5 */
#include "families/hunyuanvideo/common.h"

#include <math.h>

static const float eps = 1e-6f;

/* ---- the refiner of the text -------------------------------------------------------------- */

void xd_hunyuanvideo_refiner_weights(xd_decl *d, const xd_dual_cfg *c, int split,
                                     xd_hunyuanvideo_refiner *w)
{
    static const char *const qkv[] = { "attn.to_q", "attn.to_k", "attn.to_v" };
    int64_t                  D = c->dim, hd = c->head_dim;
    xd_split first = split ? XD_COL : XD_REPLICATED, then = split ? XD_ROW : XD_REPLICATED;
    xd_w_affine(d, "norm1", &w->gain1, &w->bias1, D);
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = D,
                                 .out = { D, D, D },
                                 .split = first,
                                 .unit = hd,
                                 .bias = 1 });
    xd_w_linear(d, &w->out, "attn.to_out.0",
                &(xd_linear_spec){ .in = D, .out = D, .split = then, .unit = hd, .bias = 1 });
    xd_w_affine(d, "norm2", &w->gain2, &w->bias2, D);
    xd_w_linear(d, &w->up, "ff.net.0.proj",
                &(xd_linear_spec){ .in = D, .out = 4 * D, .split = first, .bias = 1 });
    xd_w_linear(d, &w->down, "ff.net.2",
                &(xd_linear_spec){ .in = 4 * D, .out = D, .split = then, .bias = 1 });
    xd_w_linear(d, &w->mod, "norm_out.linear",
                &(xd_linear_spec){ .in = D, .out = 2 * D, .bias = 1, .few = 1 });
}

void xd_hunyuanvideo_text_weights(xd_decl *d, const xd_dual_cfg *c, xd_hunyuanvideo_text *w)
{
    int64_t D = c->dim, E = c->joint;
    xd_w_enter(d, "context_embedder");
    xd_w_linear(d, &w->in, "proj_in", &(xd_linear_spec){ .in = E, .out = D, .bias = 1 });
    xd_mlp_weights(d, "time_text_embed.timestep_embedder", &w->time, XD_SINUSOIDS, D, D);
    xd_mlp_weights(d, "time_text_embed.text_embedder", &w->mean, E, D, D);
    xd_w_leave(d);
}

xd_tensor xd_hunyuanvideo_gates(xd_exec *x, const xd_hunyuanvideo_text *w, double t, xd_tensor rows)
{
    xd_tensor emb = xd_mlp_timesteps(x, &t, 1, &w->time);
    xd_add(x, emb, xd_mlp_run(x, xd_mean_row(x, rows), &w->mean, XD_SILU));
    return xd_gated(x, emb, (xd_tensor){ 0 }, XD_SILU);
}

void xd_hunyuanvideo_refine(xd_exec *x, const xd_hunyuanvideo_refiner *w, xd_tensor h,
                            xd_tensor gates, int64_t head_dim, int whole)
{
    xd_tensor mod = xd_mod_rows(x, gates, &w->mod, 2), qkv[3], none = { 0 };
    xd_tensor y = xd_linear(x, xd_layer_norm(x, h, w->gain1, w->bias1, eps), &w->qkv);
    for (int i = 0; i < 3; i++)
        qkv[i] = xd_heads(xd_seg(y, &w->qkv, i), head_dim);
    xd_tensor o = whole ? xd_attn_over(x, qkv[0], qkv[1], qkv[2], none, 0)
                        : xd_attn_of(x, XD_STREAM(XD_TXT), qkv[0], qkv[1], qkv[2], 0);
    xd_linear_add(x, h, xd_rows(mod, 0, 1), xd_flat(o), &w->out);
    y = xd_layer_norm(x, h, w->gain2, w->bias2, eps);
    xd_linear_add(x, h, xd_rows(mod, 1, 1), xd_linear_act(x, y, &w->up, XD_SILU), &w->down);
}

/* ---- positions and double blocks ----------------------------------------------------------- */

static void fill_angles(void *ctx, float *buf)
{
    const xd_rope             *t = ctx;
    const xd_hunyuanvideo_cfg *c = t->cfg;
    int64_t                    H = t->x->lay->grid[1], W = t->x->lay->grid[2];
    double                     base[256]; /* enough for heads of up to 512 features */
    xd_rope_axes(base, c->theta, &c->dual.axes);
    for (int64_t n = xd_n(t->x, XD_TXT) * c->dual.head_dim / 2; n > 0; n--)
        *buf++ = (float)t->fn(0);
    for (int64_t i = 0; i < xd_n(t->x, XD_IMG); i++) {
        int64_t at = xd_where(t->x, XD_IMG, i), pos[3] = { at / W / H, at / W % H, at % W };
        buf = xd_rope_token(buf, base, &c->dual.axes, pos, t->fn);
    }
}

xd_tensor xd_hunyuanvideo_angles(xd_exec *x, const void *text, const xd_hunyuanvideo_cfg *c,
                                 double (*fn)(double))
{
    return xd_rope_table_of(x, text, xd_n(x, XD_TXT) + xd_n(x, XD_IMG), c->dual.head_dim / 2,
                            fill_angles, c, fn);
}

void xd_hunyuanvideo_pair(xd_exec *x, xd_tensor h, const xd_pair *w, xd_tensor active,
                          xd_dual_in in)
{
    in.txt = xd_mod_rows(x, active, &w->txt.mod, 6);
    in.img = xd_mod_rows(x, active, &w->img.mod, 6);
    xd_pair_run(x, h, w, &in);
}

/* ---- sizes -------------------------------------------------------------------------------- */

/* Walks through the sizes of diffusers' generate_crop_size_list, in cells of 16 x 16 pixels, and
 * compares their ratios, rounded to five digits, as get_closest_ratio does: a tall video gets a
 * size that is not taller than itself, a wide one a size that is not wider. */
void xd_hunyuanvideo_bucket(int64_t target, int64_t *height, int64_t *width)
{
    enum { CELL = 16, MOST = 4 }; /* MOST: the largest ratio of the sides */
    int64_t area = (int64_t)nearbyint(pow((double)target / CELL, 2)), h = area, w = 1;
    int64_t best[2] = { *height, *width };
    double  ratio = (double)*height / (double)*width, least = INFINITY;
    while (h > 0) {
        double d = nearbyint((double)h / (double)w * 1e5) / 1e5 - ratio;
        int    fits = h <= MOST * w && w <= MOST * h && (ratio >= 1 ? d <= 0 : d >= 0);
        if (fits && fabs(d) < least)
            least = fabs(d), best[0] = h * CELL, best[1] = w * CELL;
        if ((w + 1) * h <= area)
            w++;
        else
            h--;
    }
    *height = best[0], *width = best[1];
}
