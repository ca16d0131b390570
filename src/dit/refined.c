/* refined.c - runs the blocks of transformers that refine image and text separately before they
 * process both as one sequence */
#include "dit/refined.h"

#include <string.h>

static const float head_eps = 1e-6f, qk_eps = 1e-5f;

/* ---- configuration ------------------------------------------------------------------------ */

void xd_refined_set_list(xd_ints *l, int n, const int64_t *usual)
{
    if (l->n)
        return;
    l->n = n;
    memcpy(l->v, usual, (size_t)n * sizeof *usual);
}

xd_status xd_refined_check_axes(xd_ints *dims, xd_ints *lens, const xd_refined_axes *a, xd_err *e)
{
    int64_t sum = 0;
    xd_refined_set_list(dims, XD_REFINED_AXES, a->dims);
    xd_refined_set_list(lens, XD_REFINED_AXES, a->lens);
    if (dims->n != XD_REFINED_AXES || lens->n != XD_REFINED_AXES)
        return xd_fail(e, XD_EUNSUPPORTED, "transformer: %s has %d axes and axes_lens %d, not %d",
                       a->key, dims->n, lens->n, XD_REFINED_AXES);
    for (int i = 0; i < XD_REFINED_AXES; i++) {
        if (dims->v[i] < 0 || dims->v[i] % 2)
            return xd_fail(e, XD_EFORMAT, "transformer: %s has %lld, which is not even", a->key,
                           (long long)dims->v[i]);
        sum += dims->v[i];
    }
    const xd_config_range r[] = {
        { "axes_lens", lens->v[0], a->least, 1 << 20 },
        { "axes_lens", lens->v[1], 1, 1 << 20 },
        { "axes_lens", lens->v[2], 1, 1 << 20 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof *r, e) != XD_OK)
        return XD_EFORMAT;
    if (sum != a->head_dim)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: the sum of %s is %lld, not the %lld "
                       "features of a head",
                       a->key, (long long)sum, (long long)a->head_dim);
    return XD_OK;
}

/* ---- blocks ------------------------------------------------------------------------------- */

typedef struct part { /* range of rows of the hidden state that a block computes */
    const xd_refined_in *in;
    xd_tensor            h, cos, sin;
    unsigned             streams;
    /* [1,D] each: scale and gate of the attention, then of the feed-forward; or absent */
    xd_tensor            mod[4];
} part;

static const unsigned all_streams = ~0u;

static part part_of(const xd_state *s, int64_t at, int64_t n, unsigned streams)
{
    const xd_refined_in *in = s->local;
    return (part){ .in = in,
                   .h = xd_rows(s->h, at, n),
                   .cos = xd_rows(in->cos, at, n),
                   .sin = xd_rows(in->sin, at, n),
                   .streams = streams };
}

static void set_modulation(xd_exec *x, const xd_refined *w, part *p)
{
    xd_tensor m = xd_mod_rows(x, p->in->emb, &w->mod, 4);
    for (int i = 0; i < 4; i++) {
        p->mod[i] = xd_rows(m, i, 1);
        if (i % 2)
            xd_activate(x, p->mod[i], XD_TANH);
    }
}

static xd_tensor norm_of(xd_exec *x, xd_tensor in, xd_tensor gain, xd_tensor scale, float eps)
{
    xd_tensor out = xd_new(x, in.d[0], in.d[1]);
    xd_norm_into(
        x, &(xd_norm){ .out = out, .in = in, .gain = gain, .scale = scale, .rms = 1, .eps = eps });
    return out;
}

/* Computes h += gate * norm(y w^T). */
static void add_normed(xd_exec *x, const part *p, xd_tensor gate, xd_tensor y, const xd_lin *w,
                       const xd_norm *after)
{
    xd_tensor z = xd_linear(x, y, w);
    xd_norm   a = *after;
    a.out = a.in = z;
    xd_norm_into(x, &a);
    xd_add_gated(x, p->h, gate, z);
}

static void attend(xd_exec *x, const xd_refined *w, const part *p)
{
    int64_t   n = p->h.d[0];
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor y = xd_new(x, n, w->qkv.w.out);
    size_t    inner = xd_arena_mark(x->tmp);
    xd_linear_into(x, y, norm_of(x, p->h, w->norm[0], p->mod[0], p->in->eps), &w->qkv);
    xd_arena_rewind(x->tmp, inner);
    xd_qkv a = xd_qkv_open(x, y, &w->qkv, p->in->head_dim);
    xd_qkv_fill(x, &a, y, &w->qkv,
                &(xd_qkv_rows){ .n = n,
                                .norm_q = w->norm_q,
                                .norm_k = w->norm_k,
                                .cos = p->cos,
                                .sin = p->sin,
                                .eps = qk_eps });
    xd_tensor o = p->streams == all_streams ? xd_attn(x, a.q, a.k, a.v, 0)
                                            : xd_attn_of(x, p->streams, a.q, a.k, a.v, 0);
    add_normed(x, p, p->mod[1], xd_flat(o), &w->out,
               &(xd_norm){ .gain = w->norm[1], .rms = 1, .eps = p->in->eps });
    xd_arena_rewind(x->tmp, mark);
}

static void feed(xd_exec *x, const xd_refined *w, const part *p)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor y = xd_linear(x, norm_of(x, p->h, w->norm[2], p->mod[2], p->in->eps), &w->up);
    xd_tensor u = xd_gated_for(x, xd_seg(y, &w->up, 0), xd_seg(y, &w->up, 1), XD_SILU, &w->down);
    add_normed(x, p, p->mod[3], u, &w->down,
               &(xd_norm){ .gain = w->norm[3], .rms = 1, .eps = p->in->eps });
    xd_arena_rewind(x->tmp, mark);
}

void xd_refined_all(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    (void)n;
    part p = part_of(s, 0, s->h.d[0], all_streams);
    set_modulation(x, w, &p);
    attend(x, w, &p);
    feed(x, w, &p);
}

void xd_refined_image(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    (void)n;
    int64_t ntxt = xd_n(x, XD_TXT);
    part    p = part_of(s, ntxt, s->h.d[0] - ntxt, XD_STREAM(XD_PAD) | XD_STREAM(XD_IMG));
    set_modulation(x, w, &p);
    attend(x, w, &p);
    feed(x, w, &p);
}

void xd_refined_text(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    (void)n;
    part p = part_of(s, 0, xd_n(x, XD_TXT), XD_STREAM(XD_TXT));
    attend(x, w, &p);
    feed(x, w, &p);
}

/* ---- before and after the blocks ---------------------------------------------------------- */

void xd_refined_embed(xd_exec *x, xd_tensor lat, xd_tensor h, const xd_lin *w)
{
    int64_t   n = lat.d[0], F = lat.d[1], cells = XD_REFINED_PATCH * XD_REFINED_PATCH;
    xd_tensor y = xd_new_f32(x, n, F);
    xd_copy_to(
        x, xd_reshape(y, 3, (int64_t[]){ n, cells, F / cells }),
        xd_permute(xd_reshape(lat, 3, (int64_t[]){ n, F / cells, cells }), (int[]){ 0, 2, 1 }));
    xd_linear_into(x, h, y, w);
}

xd_tensor xd_refined_head(xd_exec *x, xd_tensor h, xd_tensor active, const xd_refined_out *w,
                          int64_t channels)
{
    int64_t   nimg = xd_n(x, XD_IMG);
    xd_tensor out = xd_new_f32(x, nimg, w->out->w.out), no = { 0 };
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor scale = xd_linear_f32(x, active, w->mod);
    xd_tensor y = xd_norm_mod(x, xd_rows(h, h.d[0] - nimg, nimg), scale, no, head_eps);
    xd_by_channel(x, out, xd_linear_f32(x, y, w->out), channels);
    xd_axpby(x, out, 0, no, -1);
    xd_arena_rewind(x->tmp, mark);
    return out;
}
