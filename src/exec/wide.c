/* wide.c - RMS norms of queries and keys over the features of all heads together (wide.h) */
#include "exec/wide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

xd_wide xd_wide_of(const xd_decl *d, int64_t heads, int64_t head_dim, float eps)
{
    int     degree = d->tp > 0 ? d->tp : 1;
    xd_span own = xd_cut((xd_span){ 0, heads }, d->tp_at, degree);
    return (xd_wide){ .dim = heads * head_dim,
                      .head_dim = head_dim,
                      .eps = eps,
                      .features = { own.start * head_dim, own.n * head_dim },
                      .cut = degree > 1 };
}

xd_tensor xd_wide_factors(xd_exec *x, const xd_wide *w, const xd_tensor *in, int k)
{
    return w->cut ? xd_rms_factors(x, in, k, w->dim, w->eps) : (xd_tensor){ 0 };
}

xd_tensor xd_wide_factor(xd_tensor factors, int i)
{
    return factors.p ? xd_cols(factors, i, 1) : factors;
}

static void fill_zeros(void *ctx, float *buf)
{
    memset(buf, 0, *(const size_t *)ctx);
}

/* Returns tables for rows of `width` angles, the cosines and sines of `t` multiplied by the row's
 * `factor` [n,1], so that RoPE also scales the row. If `t` is absent, the returned tables only
 * scale the rows. */
static xd_turn scaled_turn(xd_exec *x, xd_turn t, xd_tensor factor, int64_t width)
{
    int64_t   n = factor.d[0], d[2] = { n, width };
    xd_turn   out = { xd_new_f32(x, n, width), xd_new_f32(x, n, width) };
    xd_tensor all = factor;
    size_t    mark = xd_arena_mark(x->tmp), bytes = xd_bytes(out.sin);
    all.d[1] = width, all.s[1] = 0;
    if (!t.cos.p) {
        xd_copy_to(x, out.cos, all);
        xd_fill(x, out.sin, fill_zeros, &bytes);
        return out;
    }
    xd_tensor spread = xd_new_f32(x, n, width);
    xd_copy_to(x, spread, all);
    xd_gated_into(x, out.cos, xd_reshape(t.cos, 2, d), spread, XD_NONE);
    xd_gated_into(x, out.sin, xd_reshape(t.sin, 2, d), spread, XD_NONE);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

/* Rotates the heads `q` [n,H,head_dim] in place. */
static void rotate(xd_exec *x, xd_tensor q, xd_turn t, int each, int halves)
{
    if (each)
        q = xd_reshape(q, 3, (int64_t[]){ q.d[0] * q.d[1], 1, q.d[2] });
    xd_qk_norm_into(
        x, &(xd_qknorm){ .out = q, .in = q, .cos = t.cos, .sin = t.sin, .halves = halves });
}

void xd_wide_norm(xd_exec *x, const xd_wide *w, xd_tensor out, xd_tensor in, const xd_wide_how *how)
{
    xd_turn   t = how->turn;
    xd_tensor gain = how->gain, factor = how->factor;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor heads = xd_heads(out, w->head_dim);
    int64_t   half = w->head_dim / 2, H = heads.d[1];
    int       each = t.cos.p && t.cos.d[0] != out.d[0];
    gain = xd_view((float *)gain.p + w->features.start, XD_F32, 1, &w->features.n);
    xd_norm_into(x, &(xd_norm){ .out = out, .in = in, .gain = gain, .rms = 1, .eps = w->eps });
    if (factor.p && H) {
        t = scaled_turn(x, t, factor, each ? H * half : half);
        if (each) {
            t.cos = xd_reshape(t.cos, 2, (int64_t[]){ out.d[0] * H, half });
            t.sin = xd_reshape(t.sin, 2, (int64_t[]){ out.d[0] * H, half });
        }
    }
    if (t.cos.p && H)
        rotate(x, heads, t, each, w->halves);
    xd_arena_rewind(x->tmp, mark);
}

void xd_wide_fill(const xd_wide_angles *t, float *buf)
{
    static const double pi = 3.14159265358979323846;
    const int           A = t->axes;
    int64_t             n = t->of->dim / (2 * A), still = t->of->dim / 2 - n * A;
    int64_t             first = t->of->features.start / 2, pairs = t->of->features.n / 2;
    float              *freq = malloc((size_t)n * sizeof *freq + 1), f[XD_WIDE_AXES];
    for (int64_t k = 0; freq && k < n; k++)
        freq[k] = (float)(pow(t->theta, n > 1 ? (double)k / (double)(n - 1) : 0) * pi / 2);
    for (int64_t i = 0; i < t->rows; i++) {
        t->fractions(t->ctx, i, f);
        for (int64_t p = first - still; p < first - still + pairs; p++)
            *buf++ = (float)t->fn(p < 0 || !freq ? 0 : (double)(f[p % A] * freq[p / A]));
    }
    free(freq);
}

xd_tensor xd_wide_gated(xd_exec *x, const xd_wide *g, xd_tensor y, xd_tensor logits,
                        const xd_lin *w)
{
    if (!logits.nd)
        return y;
    xd_tensor all = xd_new(x, y.d[0], y.d[1]), from = logits;
    xd_activate(x, logits, XD_SIGMOID);
    xd_axpby(x, logits, 0, (xd_tensor){ 0 }, 2);
    from.nd = 3, from.d[2] = g->head_dim, from.s[2] = 0;
    xd_copy_to(x, xd_heads(all, g->head_dim), from);
    return xd_gated_for(x, all, y, XD_NONE, w);
}
