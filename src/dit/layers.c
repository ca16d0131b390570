/* layers.c - implements layers that several diffusion transformers use */
#include "dit/layers.h"

#include <math.h>
#include <string.h>

#include "exec/tables.h"

void xd_mlp_weights(xd_decl *d, const char *name, xd_mlp *m, int64_t in, int64_t mid, int64_t out)
{
    xd_w_enter(d, "%s", name);
    xd_w_linear(d, &m->a, "linear_1", &(xd_linear_spec){ .in = in, .out = mid, .bias = 1 });
    xd_w_linear(d, &m->b, "linear_2", &(xd_linear_spec){ .in = mid, .out = out, .bias = 1 });
    xd_w_leave(d);
}

xd_tensor xd_mlp_run(xd_exec *x, xd_tensor in, const xd_mlp *m, xd_act act)
{
    return xd_linear_f32(x, xd_linear_act(x, in, &m->a, act), &m->b);
}

xd_tensor xd_mlp_timesteps(xd_exec *x, const double *v, int n, const xd_mlp *m)
{
    return xd_mlp_run(x, xd_time_embed(x, v, n, XD_SINUSOIDS, 1, 0), m, XD_SILU);
}

xd_tensor xd_mean_row(xd_exec *x, xd_tensor t)
{
    int64_t   all = t.d[0];
    xd_tensor sum = xd_new_f32(x, all, t.d[1]);
    xd_copy_to(x, sum, t);
    for (int64_t n = all, half; n > 1; n -= half) {
        half = n / 2;
        xd_add(x, xd_rows(sum, 0, half), xd_rows(sum, n - half, half));
    }
    xd_axpby(x, xd_rows(sum, 0, 1), 0, (xd_tensor){ 0 }, 1.0f / (float)all);
    return xd_rows(sum, 0, 1);
}

void xd_copy_own_rows(xd_exec *x, xd_stream_id s, xd_tensor own, xd_tensor all)
{
    for (int64_t i = 0, k; i < own.d[0]; i += k) {
        k = xd_where_run(x, s, i);
        k = k < own.d[0] - i ? k : own.d[0] - i;
        xd_copy_to(x, xd_rows(own, i, k), xd_rows(all, xd_where(x, s, i), k));
    }
}

xd_tensor xd_mod_table(xd_exec *x, xd_tensor table, xd_tensor v)
{
    int64_t   D = table.d[table.nd - 1], k = xd_count(table) / D;
    xd_tensor t = xd_new_f32(x, k, D);
    if (v.d[0] == 1)
        v.d[0] = k, v.s[0] = 0;
    xd_copy_to(x, t, v);
    xd_axpby(x, t, 1.0f, xd_reshape(table, 2, t.d), 1.0f);
    return t;
}

xd_status xd_check_ranges(const xd_config_range *r, size_t n, xd_err *e)
{
    for (const xd_config_range *end = r + n; r < end; r++)
        if (r->v < r->min || r->v > r->max)
            return xd_fail(e, XD_EFORMAT, "transformer: %s is %lld, not %lld to %lld", r->key,
                           (long long)r->v, (long long)r->min, (long long)r->max);
    return XD_OK;
}

xd_status xd_check_word(const char *key, const char *value, const char *only, xd_err *e)
{
    if (strcmp(value, only) == 0)
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED, "transformer: %s '%s' is not '%s'", key, value, only);
}

xd_status xd_check_number(const char *key, int64_t value, int64_t only, xd_err *e)
{
    if (value == only)
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED, "transformer: %s %lld is not supported; only %lld is", key,
                   (long long)value, (long long)only);
}

void xd_rope_axes(double *base, double theta, const xd_ints *widths)
{
    for (int a = 0; a < widths->n; a++)
        for (int64_t k = 0; k < widths->v[a]; k += 2)
            *base++ = pow(theta, (double)k / (double)widths->v[a]);
}

float *xd_rope_token(float *row, const double *base, const xd_ints *widths, const int64_t *pos,
                     double (*fn)(double))
{
    for (int a = 0; a < widths->n; a++)
        for (int64_t k = 0; k < widths->v[a]; k += 2)
            *row++ = (float)fn((double)pos[a] / *base++);
    return row;
}

void xd_rope_video(const xd_rope *t, float *buf, double theta, const xd_ints *axes)
{
    int64_t H = t->x->lay->grid[1], W = t->x->lay->grid[2];
    double  base[256]; /* one value per pair of features; a head has at most 512 features */
    xd_rope_axes(base, theta, axes);
    for (int64_t i = 0; i < xd_n(t->x, XD_IMG); i++) {
        int64_t at = xd_where(t->x, XD_IMG, i), pos[3] = { at / (H * W), at / W % H, at % W };
        buf = xd_rope_token(buf, base, axes, pos, t->fn);
    }
}

xd_tensor xd_join_channels(xd_exec *x, const xd_input *in)
{
    if (!in->extra.p)
        return in->lat;
    xd_tensor t = xd_new_f32(x, in->lat.d[0], in->lat.d[1] + in->extra.d[1]);
    xd_copy_to(x, xd_cols(t, 0, in->lat.d[1]), in->lat);
    xd_copy_to(x, xd_cols(t, in->lat.d[1], in->extra.d[1]), in->extra);
    return t;
}

void xd_by_channel(xd_exec *x, xd_tensor out, xd_tensor y, int64_t ch)
{
    int64_t   n = out.d[0], cells = out.d[1] / ch;
    xd_tensor t = xd_reshape(y, 3, (int64_t[]){ n, cells, y.d[1] / cells });
    xd_copy_to(x, xd_reshape(out, 3, (int64_t[]){ n, ch, cells }),
               xd_permute(xd_cols(t, 0, ch), (int[]){ 0, 2, 1 }));
}

xd_tensor xd_patch_head(xd_exec *x, xd_tensor h, xd_tensor scale, xd_tensor shift, const xd_lin *w,
                        int64_t ch, int64_t cells)
{
    xd_tensor out = xd_new_f32(x, h.d[0], ch * cells);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_by_channel(x, out, xd_linear_f32(x, xd_norm_mod(x, h, scale, shift, 1e-6f), w), ch);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

xd_tensor xd_pooled_row(xd_exec *x, const xd_input *in, const xd_mlp *time, const xd_mlp *guidance,
                        const xd_mlp *pooled)
{
    xd_tensor emb = xd_mlp_timesteps(x, &in->t, 1, time);
    if (guidance) {
        double scale = in->guidance * 1000;
        xd_add(x, emb, xd_mlp_timesteps(x, &scale, 1, guidance));
    }
    xd_add(x, emb, xd_mlp_run(x, in->cond->pooled, pooled, XD_SILU));
    return xd_gated(x, emb, (xd_tensor){ 0 }, XD_SILU);
}

/* ---- cross-attention ---------------------------------------------------------------------- */

xd_tensor xd_text_kv_new(xd_exec *x, const xd_net *n, int64_t m, int64_t width)
{
    return xd_new_as(x, x->act, 3, (int64_t[]){ n->last - n->first, m, width });
}

xd_tensor xd_text_kv(xd_tensor room, int64_t block)
{
    return xd_reshape(xd_rows(room, block, 1), 2, room.d + 1);
}

/* Computes cross-attention to the text. All samples of a batch attend to the same text, so the
 * queries of all samples are passed to one attention call, as if they were one sample's. */
xd_tensor xd_attn_text(xd_exec *x, xd_tensor q, xd_tensor kv, const xd_lin *w, int64_t hd)
{
    xd_tensor k = xd_heads(xd_seg(kv, w, 0), hd), v = xd_heads(xd_seg(kv, w, 1), hd);
    int64_t   B = x->B;
    x->B = 1;
    xd_tensor o = xd_attn_over(x, xd_heads(q, hd), k, v, (xd_tensor){ 0 }, 0);
    x->B = B;
    return xd_flat(o);
}

/* ---- pooled text --------------------------------------------------------------------------- */

xd_tensor xd_pool_run(xd_exec *x, const xd_pool *w, xd_tensor rows, int heads)
{
    int64_t   n = rows.d[0], E = rows.d[1], hd = E / heads;
    xd_tensor in = xd_new_f32(x, 1 + n, E), out = xd_new_f32(x, 1, w->out.w.out);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_copy_to(x, xd_rows(in, 1, n), rows);
    xd_copy_to(x, xd_rows(in, 0, 1), xd_mean_row(x, rows));
    if (w->places.p)
        xd_add(x, in, w->places);
    xd_tensor q = xd_linear(x, xd_rows(in, 0, 1), &w->q), kv = xd_linear(x, in, &w->kv);
    xd_tensor o = xd_attn_over(x, xd_heads(q, hd), xd_heads(xd_seg(kv, &w->kv, 0), hd),
                               xd_heads(xd_seg(kv, &w->kv, 1), hd), (xd_tensor){ 0 }, 0);
    xd_linear_into(x, out, xd_flat(o), &w->out);
    xd_arena_rewind(x->tmp, mark);
    return out;
}

/* ---- rotary positions --------------------------------------------------------------------- */

static const double theta = 10000;

float xd_grid_at(const xd_grid_side *a, int64_t i)
{
    if (a->count || a->n == 1)
        return a->count ? (float)i : a->start;
    float step = (a->stop - a->start) / (float)(a->n - 1);
    return i < a->n / 2 ? a->start + step * (float)i : a->stop - step * (float)(a->n - 1 - i);
}

void xd_grid_crop(int64_t th, int64_t tw, int64_t h, int64_t w, xd_grid_side *rows,
                  xd_grid_side *cols)
{
    double H = (double)th, W = (double)tw;
    if ((double)h / (double)w > H / W)
        W = nearbyint(H / (double)h * (double)w);
    else
        H = nearbyint(W / (double)w * (double)h);
    double top = nearbyint(((double)th - H) / 2), left = nearbyint(((double)tw - W) / 2);
    *rows = (xd_grid_side){ h, (float)top, (float)((top + H) * (double)(h - 1) / (double)h), 0 };
    *cols = (xd_grid_side){ w, (float)left, (float)((left + W) * (double)(w - 1) / (double)w), 0 };
}

void xd_rope_frequencies(float *freq, int64_t width)
{
    for (int64_t k = 0; k < width; k += 2)
        *freq++ = 1.0f / (float)pow(theta, (double)((float)k / (float)width));
}

xd_tensor xd_rope_table_of(xd_exec *x, const void *text, int64_t rows, int64_t half,
                           void (*fill)(void *turn, float *to), const void *cfg,
                           double (*fn)(double))
{
    xd_rope   t = { x, cfg, fn };
    xd_tensor r;
    if (!xd_table_find(x, &(xd_table_key){ .of = text, .fill = fill, .fn = fn }, XD_F32,
                       (int64_t[]){ rows, half }, &r))
        xd_fill(x, r, fill, &t);
    return r;
}

xd_tensor xd_rope_table(xd_exec *x, int64_t rows, int64_t half, void (*fill)(void *turn, float *to),
                        const void *cfg, double (*fn)(double))
{
    return xd_rope_table_of(x, NULL, rows, half, fill, cfg, fn);
}

float *xd_rope_angles(float *row, int64_t width, const float *freq, float pos, double (*fn)(double))
{
    for (int64_t k = 0; k < width; k += 2)
        *row++ = (float)fn((double)(pos * *freq++));
    return row;
}

/* ---- joint attention ---------------------------------------------------------------------- */

static const float eps = 1e-6f;

static const xd_adaln_names names_of[2] = {
    { "norm1.linear",
      { "attn.to_q", "attn.to_k", "attn.to_v" },
      "attn.to_out.0",
      "attn.norm_q.weight",
      "attn.norm_k.weight",
      "ff.net.0.proj",
      "ff.net.2" },
    { "norm1_context.linear",
      { "attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj" },
      "attn.to_add_out",
      "attn.norm_added_q.weight",
      "attn.norm_added_k.weight",
      "ff_context.net.0.proj",
      "ff_context.net.2" },
};

void xd_adaln_weights(xd_decl *d, const xd_adaln_form *f, int context, xd_adaln *w)
{
    const xd_adaln_names *n = f->names ? f->names : &names_of[context];
    int64_t               D = f->dim, hd = f->head_dim;
    if (f->nmod)
        xd_w_linear(d, &w->mod, n->mod,
                    &(xd_linear_spec){ .in = D, .out = f->nmod * D, .bias = 1, .few = 1 });
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = n->qkv,
                                 .in = D,
                                 .out = { D, D, D },
                                 .split = XD_COL,
                                 .unit = hd,
                                 .bias = 1 });
    if (f->qk_norm) {
        xd_w_vec(d, &w->norm_q, n->norm_q, 1, &hd);
        xd_w_vec(d, &w->norm_k, n->norm_k, 1, &hd);
    }
    if (f->last)
        return;
    xd_w_linear(d, &w->out, n->out,
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = hd, .bias = 1 });
    xd_w_linear(d, &w->up, n->up,
                &(xd_linear_spec){ .in = D, .out = 4 * D, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &w->down, n->down,
                &(xd_linear_spec){ .in = 4 * D, .out = D, .split = XD_ROW, .bias = 1 });
}

xd_qkv xd_qkv_open(xd_exec *x, xd_tensor y, const xd_lin *w, int64_t head_dim)
{
    int64_t q[3] = { y.d[0], w->seg[0] / head_dim, head_dim },
            k[3] = { y.d[0], w->seg[1] / head_dim, head_dim };
    return (xd_qkv){ xd_new_as(x, x->act, 3, q), xd_new_as(x, x->act, 3, k),
                     xd_heads(xd_seg(y, w, 2), head_dim) };
}

static xd_tensor some_rows(xd_tensor t, int64_t at, int64_t n)
{
    return t.p ? xd_rows(t, at, n) : t;
}

void xd_qkv_fill(xd_exec *x, const xd_qkv *a, xd_tensor y, const xd_lin *w, const xd_qkv_rows *r)
{
    int64_t   hd = a->q.d[2], at = r->at, n = r->n;
    xd_tensor part = xd_rows(y, at, n), q = xd_heads(xd_seg(part, w, 0), hd),
              k = xd_heads(xd_seg(part, w, 1), hd);
    xd_tensor cos = some_rows(r->cos, at, n), sin = some_rows(r->sin, at, n), no = { 0 };
    xd_tensor to_q = xd_rows(a->q, at, n), to_k = xd_rows(a->k, at, n);
    float     e = r->eps > 0 ? r->eps : eps;
    xd_qk_norm_into(x, &(xd_qknorm){ .out = to_q,
                                     .in = q,
                                     .gain = r->norm_q,
                                     .also = { .out = to_k, .in = k, .gain = r->norm_k },
                                     .cos = r->turned ? no : cos,
                                     .sin = r->turned ? no : sin,
                                     .eps = e });
    if (!r->turned || !r->cos.p)
        return;
    to_q.d[2] = to_k.d[2] = r->turned;
    xd_qk_norm_into(x, &(xd_qknorm){ .out = to_q,
                                     .in = to_q,
                                     .also = { .out = to_k, .in = to_k },
                                     .cos = cos,
                                     .sin = sin,
                                     .halves = 1 });
}

void xd_adaln_feed(xd_exec *x, xd_tensor h, const xd_adaln *w, xd_tensor mod)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_norm   a = { .in = h, .scale = xd_rows(mod, 4, 1), .shift = xd_rows(mod, 3, 1), .eps = eps };
    xd_tensor y = xd_norm_for(x, &a, &w->up, NULL);
    xd_linear_add(x, h, xd_rows(mod, 5, 1), xd_linear_act(x, y, &w->up, XD_GELU_TANH), &w->down);
    xd_arena_rewind(x->tmp, mark);
}
