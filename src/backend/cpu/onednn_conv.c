/* The images of a convolution may be views, which need not be contiguous.
 *
 * The images of a convolution may be views. If the kernel is 2-D and the view is not contiguous,
 * the frames of the view are computed one by one. If a frame itself is not contiguous, or the
 * kernel is 3-D and the view is not contiguous, the image is copied to contiguous scratch memory.
 * Very large images are split into strips of output rows; the results are bit-identical to those
 * without a split. The packed layout of a weight is the layout that oneDNN prefers for an image of
 * PIN_SIDE x PIN_SIDE pixels. If another image needs another layout, the weight is repacked into
 * scratch. oneDNN 3 computes incorrect results for two kinds of shapes, which are replaced by
 * equivalent shapes (one_column, needs_frame). */
#include "backend/cpu/onednn.h"

#include <string.h>

#include "base/par.h"

enum { PIN_SIDE = 64 };
/* maximum elements of an image in one oneDNN call */
static const int64_t most_elements = (int64_t)1 << 30;

static int groups_of(const xd_weight *w)
{
    return w->groups > 1 ? w->groups : 1;
}

/* ---- descriptors -------------------------------------------------------------------------- */

/* Describes the dense image [T,H,W,C] to oneDNN: as a batch of T images [C,H,W] for 2-D kernels, or
 * as one image [C,T,H,W] for 3-D kernels. */
static xd_status image_md(xd_md *m, int nk, const int64_t *d, xd_dtype t)
{
    if (nk == 2)
        return xd_md_tag(m, 4, (int64_t[]){ d[0], d[3], d[1], d[2] }, t, dnnl_nhwc);
    return xd_md_tag(m, 5, (int64_t[]){ 1, d[3], d[0], d[1], d[2] }, t, dnnl_ndhwc);
}

static xd_status weight_md(xd_md *m, const xd_weight *w, int any)
{
    static const dnnl_format_tag_t plain[2][2] = { { dnnl_abcd, dnnl_abcde },
                                                   { dnnl_abcde, dnnl_abcdef } };
    int                            g = groups_of(w), n = 0, grouped = g > 1;
    int64_t                        d[6];
    if (grouped)
        d[n++] = g;
    d[n++] = w->out / g;
    d[n++] = w->in;
    for (int i = 3 - w->nk; i < 3; i++)
        d[n++] = w->kernel[i];
    return xd_md_tag(m, n, d, w->type, any ? dnnl_format_tag_any : plain[grouped][w->nk - 2]);
}

/* The shape of a convolution of dense images, as oneDNN computes it. */
typedef struct shape {
    const xd_weight *w;
    int64_t          in[4], out[4]; /* shape [T,H,W,C] */
    xd_dtype         tin, tout;
    int              stride[3], lo[3], hi[3], bias, sum;
} shape;

static xd_conv_geometry geometry_of(const shape *s)
{
    xd_conv_geometry g = { .stride = { 0 } };
    int              skip = 3 - s->w->nk;
    for (int i = 0; i < s->w->nk; i++) {
        g.stride[i] = s->stride[i + skip];
        g.lo[i] = s->lo[i + skip];
        g.hi[i] = s->hi[i + skip];
    }
    return g;
}

/* Returns 1 if the address space (ulimit -v) suffices to describe a primitive. In measurements with
 * AMX tiles, oneDNN allocated 256 bytes for each column. oneDNN aborts the process if it cannot
 * allocate memory. */
static int may_describe(const shape *s)
{
    enum { COLUMN = 512, BESIDE = 8 << 20 };
    return (double)xd_host_address_space() > COLUMN * (double)s->out[2] + BESIDE;
}

static dnnl_primitive_desc_t describe(xd_dnn *d, const shape *s, xd_md_ref w)
{
    xd_md                 src, dst, bias;
    dnnl_primitive_desc_t pd = NULL;
    xd_conv_geometry      g = geometry_of(s);
    xd_post               post = { XD_NONE, 0, s->sum };
    xd_status             e0 = image_md(&src, s->w->nk, s->in, s->tin);
    xd_status             e1 = image_md(&dst, s->w->nk, s->out, s->tout);
    xd_status             e2 = xd_md_tag(&bias, 1, &s->w->out, XD_F32, dnnl_a);
    if (!e0 && !e1 && !e2 && may_describe(s))
        pd = xd_pd_conv(d, xd_md_as_ref(&src), w, s->bias ? xd_md_as_ref(&bias) : NULL,
                        xd_md_as_ref(&dst), &g, &post);
    if (!e0)
        xd_md_free(&src);
    if (!e1)
        xd_md_free(&dst);
    if (!e2)
        xd_md_free(&bias);
    return pd;
}

xd_status xd_conv_weight_md(xd_dnn *d, const xd_weight *w, xd_md *plain, xd_md *packed)
{
    shape     s = { .w = w, .tin = w->type, .tout = w->type, .bias = 1 };
    xd_md     any;
    xd_status e = weight_md(&any, w, 1);
    for (int i = 0; i < 3; i++) {
        int k = w->kernel[i];
        s.stride[i] = w->stride[i] > 0 ? w->stride[i] : 1;
        s.lo[i] = k / 2;
        s.hi[i] = (k - 1) / 2;
        s.in[i] = i == 0 ? (w->nk == 3 ? 8 : 1) : PIN_SIDE;
        s.out[i] = (s.in[i] + s.lo[i] + s.hi[i] - k) / s.stride[i] + 1;
    }
    s.in[3] = w->in * groups_of(w);
    s.out[3] = w->out;
    if (e)
        return e;
    dnnl_primitive_desc_t pd = describe(d, &s, xd_md_as_ref(&any));
    xd_md_free(&any);
    if (!pd)
        return XD_EUNSUPPORTED;
    e = weight_md(plain, w, 0);
    if (e == XD_OK) {
        e = xd_md_clone(packed, xd_pd_md(pd, dnnl_query_weights_md, 0));
        if (e)
            xd_md_free(plain);
    }
    dnnl_primitive_desc_destroy(pd);
    return e;
}

/* Returns a primitive that uses the layout in which the weight is packed. If oneDNN has only its
 * slow reference code for this layout, the primitive uses another layout that oneDNN chooses, and
 * the weight is reordered to that layout. */
static xd_prim *make_prim(xd_dnn *d, const shape *s, const int64_t *key)
{
    xd_md    any;
    xd_prim *w = xd_weight_prim(d, s->w);
    if (!w)
        return xd_prim_add(d, key, NULL);
    xd_prim *p = xd_prim_add(d, key, describe(d, s, xd_weight_packed(w)));
    if (!p || (p->pd && xd_prim_impl(p)[0] != 'r') || weight_md(&any, s->w, 1))
        return p;
    xd_prim *q = xd_prim_new(describe(d, s, xd_md_as_ref(&any)));
    if (q && q->pd && (!p->pd || xd_prim_impl(q)[0] != 'r')) {
        xd_md_ref to = xd_pd_md(q->pd, dnnl_query_weights_md, 0);
        xd_prim  *r = xd_prim_new(xd_pd_reorder(d, xd_weight_packed(w), to));
        if (r && r->pd) {
            q->repack = r;
            q->repack_bytes = (xd_md_bytes(to) + 63) / 64 * 64;
            xd_prim_swap(p, q);
        } else {
            xd_prim_free(r);
        }
    }
    xd_prim_free(q);
    xd_md_free(&any);
    return p;
}

static xd_prim *prim_of(xd_dnn *d, const shape *s)
{
    const xd_weight *w = s->w;
    int64_t          key[XD_PRIM_KEY] = {
        'c',          xd_par_threads(), w->out,       w->in,    w->nk,    groups_of(w),
        w->kernel[0], w->kernel[1],     w->kernel[2], s->in[0], s->in[1], s->in[2],
        s->tin,       s->tout,          s->bias,      s->sum,   w->type,
    };
    for (int i = 0; i < 3; i++) {
        key[20 + i] = s->stride[i];
        key[23 + i] = s->lo[i];
        key[26 + i] = s->hi[i];
        key[29 + i] = w->stride[i];
    }
    xd_prim *p = xd_prim_find(d, key);
    return p ? p : make_prim(d, s, key);
}

/* ---- one dense convolution ---------------------------------------------------------------- */

static shape shape_of(const xd_conv *a)
{
    shape s = { .w = a->w,
                .tin = a->in.type,
                .tout = a->out.type,
                .bias = a->bias.p != NULL,
                .sum = a->residual.p != NULL };
    for (int i = 0; i < 4; i++) {
        s.in[i] = a->in.d[i];
        s.out[i] = a->out.d[i];
    }
    for (int i = 0; i < 3; i++) {
        s.stride[i] = a->stride[i];
        s.lo[i] = a->lo[i];
        s.hi[i] = a->hi[i];
    }
    return s;
}

static int same_view(const xd_tensor *a, const xd_tensor *b)
{
    int same = a->p == b->p && a->type == b->type;
    for (int i = 0; i < 4; i++)
        same = same && (a->s[i] == b->s[i] || a->d[i] == 1);
    return same;
}

/* Computes a convolution of dense images. If `need` is not NULL, computes nothing and sets *need to
 * the scratch bytes. */
static xd_status run_dense(xd_dnn *d, const xd_conv *a, char *tmp, size_t *need)
{
    shape    s = shape_of(a);
    xd_prim *p = prim_of(d, &s);
    if (!p || !p->pd)
        return p ? XD_EUNSUPPORTED : XD_ENOMEM;
    size_t inner = p->repack && p->repack->scratch > p->scratch ? p->repack->scratch : p->scratch;
    if (need) {
        *need = p->repack_bytes + inner;
        return XD_OK;
    }
    void *w = a->w->p;
    if (p->repack) {
        xd_prim_arg(d, p->repack, DNNL_ARG_FROM, dnnl_query_src_md, 0, w);
        xd_prim_arg(d, p->repack, DNNL_ARG_TO, dnnl_query_dst_md, 0, tmp);
        w = tmp;
        tmp += p->repack_bytes;
        xd_status e = xd_prim_run(d, p->repack, tmp);
        if (e)
            return e;
    }
    if (s.sum && !same_view(&a->residual, &a->out))
        d->k->copy(&(xd_copy){ a->out, a->residual });
    xd_prim_arg(d, p, DNNL_ARG_SRC, dnnl_query_src_md, 0, a->in.p);
    xd_prim_arg(d, p, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, w);
    xd_prim_arg(d, p, DNNL_ARG_DST, dnnl_query_dst_md, 0, a->out.p);
    if (s.bias)
        xd_prim_arg(d, p, DNNL_ARG_BIAS, dnnl_query_weights_md, 1, a->bias.p);
    return xd_prim_run(d, p, tmp);
}

/* ---- views and strips --------------------------------------------------------------------- */

static xd_tensor slice_dim(xd_tensor t, int dim, int64_t start, int64_t n)
{
    if (t.p)
        t.p = (char *)t.p + start * t.s[dim] * (int64_t)xd_dtype_size(t.type);
    t.d[dim] = n;
    return t;
}

/* Returns 1 if each frame of the image is contiguous. */
static int dense_frame(const xd_tensor *t)
{
    return (t->s[2] == t->d[3] || t->d[2] == 1) && (t->s[1] == t->d[2] * t->d[3] || t->d[1] == 1);
}

static int dense_all(const xd_tensor *t)
{
    return dense_frame(t) && (t->d[0] == 1 || t->s[0] == t->d[1] * t->d[2] * t->d[3]);
}

static size_t rounded_bytes(const xd_tensor *t)
{
    return (xd_bytes(*t) + 63) / 64 * 64;
}

/* Returns 1 if a second frame must be added to the image. With AMX, oneDNN 3.7 returns wrong
 * sums if a single frame with fewer than 16 channels is convolved by a kernel of several frames. To
 * avoid such wrong sums, one frame of the padding is stored as a second frame of the image. */
static int needs_frame(const xd_conv *a)
{
    return a->w->nk == 3 && a->w->kernel[0] > 1 && a->in.d[0] == 1 && a->w->in < 16;
}

/* Describes to oneDNN a dense copy of the input in scratch at p. Returns the region of the copy
 * into which the caller must copy the input of the convolution `a`. */
static xd_tensor dense_input(const xd_conv *a, xd_conv *b, void *p)
{
    int64_t padded = needs_frame(a), before = padded && a->lo[0] > 0;
    b->in = xd_view(p, a->in.type, 4,
                    (int64_t[]){ a->in.d[0] + padded, a->in.d[1], a->in.d[2], a->in.d[3] });
    b->lo[0] -= (int)before;
    b->hi[0] -= (int)(padded - before);
    return slice_dim(b->in, 0, before, a->in.d[0]);
}

static void copy_input(xd_dnn *d, const xd_conv *a, const xd_conv *b, xd_tensor to)
{
    if (needs_frame(a))
        memset(b->in.p, 0, xd_bytes(b->in));
    d->k->copy(&(xd_copy){ to, a->in });
}

/* Computes a convolution of views: copies the input to dense scratch, and copies the result to the
 * output. The copy to the output also converts the result, because oneDNN has no f32 convolution
 * with a bf16 result. */
static xd_status with_copies(xd_dnn *d, const xd_conv *a, char *tmp, size_t *need)
{
    xd_conv   b = *a;
    xd_tensor to = a->in;
    size_t    own = 0, rest = 0;
    int       narrow = a->in.type == XD_F32 && a->out.type != XD_F32;
    int       in = !dense_all(&a->in) || needs_frame(a), out = !dense_all(&a->out) || narrow;
    if (in) {
        to = dense_input(a, &b, need ? NULL : tmp);
        own += rounded_bytes(&b.in);
    }
    if (out) {
        b.out = xd_view(need ? a->out.p : tmp + own, narrow ? XD_F32 : a->out.type, 4, a->out.d);
        own += rounded_bytes(&b.out);
    }
    if (!need && in)
        copy_input(d, a, &b, to);
    if (!need && out && a->residual.p)
        d->k->copy(&(xd_copy){ b.out, a->residual });
    if (out && a->residual.p)
        b.residual = b.out;
    xd_status s = run_dense(d, &b, need || !tmp ? NULL : tmp + own, need ? &rest : NULL);
    if (need)
        *need = own + rest;
    else if (s == XD_OK && out)
        d->k->copy(&(xd_copy){ a->out, b.out });
    return s;
}

/* Returns the arguments of the convolution of output rows [o, o + n) only. The input is limited to
 * the rows that these output rows read, and is padded where these rows are outside the image. */
static xd_conv rows_of(const xd_conv *a, int64_t o, int64_t n)
{
    xd_conv b = *a;
    int64_t H = a->in.d[1], first = o * a->stride[1] - a->lo[1];
    int64_t end = (o + n - 1) * a->stride[1] - a->lo[1] + a->w->kernel[1];
    b.lo[1] = (int)(first < 0 ? -first : 0);
    b.hi[1] = (int)(end > H ? end - H : 0);
    first = first < 0 ? 0 : first;
    end = end > H ? H : end;
    b.in = slice_dim(a->in, 1, first, end - first);
    b.out = slice_dim(a->out, 1, o, n);
    if (a->residual.p)
        b.residual = slice_dim(a->residual, 1, o, n);
    return b;
}

/* Returns the maximum number of output rows in one call of oneDNN. */
static int64_t strip_rows(const xd_conv *a)
{
    int64_t row_in = a->in.d[2] * a->in.d[3] * a->stride[1], row_out = a->out.d[2] * a->out.d[3];
    int64_t frames = a->w->nk == 3 ? a->in.d[0] + needs_frame(a) : 1;
    int64_t most = (row_in > row_out ? row_in : row_out) * frames;
    int64_t n = most_elements / (most > 0 ? most : 1);
    return n > 0 ? n : 1;
}

/* Returns the arguments of the convolution, in a form that oneDNN computes correctly also for one
 * output column. With one output column the stride along rows does not affect the result, so that
 * the stride is set to 1 and the input is limited to the columns that the kernel reads. */
static xd_conv one_column(const xd_conv *a)
{
    xd_conv b = *a;
    int     reads = a->w->kernel[2] - a->lo[2];
    if (a->out.d[2] != 1 || a->stride[2] == 1 || reads < 1)
        return b;
    b.stride[2] = 1;
    b.hi[2] = (int)(reads > a->in.d[2] ? reads - a->in.d[2] : 0);
    if (reads < a->in.d[2])
        b.in = slice_dim(a->in, 2, 0, reads);
    return b;
}

/* Computes a convolution in one oneDNN call if no split is needed. If a split is needed, the
 * convolution is computed in strips of output rows and, with a 2-D kernel, frame by frame. */
static xd_status run_pieces(xd_dnn *d, const xd_conv *a, char *tmp, size_t *need)
{
    int     flat = a->w->nk == 2;
    int64_t T = flat ? a->in.d[0] : 1, H = a->out.d[1], rows = strip_rows(a), most = 0;
    int     whole = H * T <= rows && (!flat || (dense_all(&a->in) && dense_all(&a->out)));
    if (whole)
        return with_copies(d, a, tmp, need);
    xd_status s = XD_OK;
    for (int64_t t = 0; t < T && s == XD_OK; t++)
        for (int64_t o = 0; o < H && s == XD_OK; o += rows) {
            xd_conv f = *a;
            size_t  n = 0;
            if (flat) {
                f.in = slice_dim(a->in, 0, t, 1);
                f.out = slice_dim(a->out, 0, t, 1);
            }
            if (flat && a->residual.p)
                f.residual = slice_dim(a->residual, 0, t, 1);
            if (rows < H)
                f = rows_of(&f, o, H - o < rows ? H - o : rows);
            s = with_copies(d, &f, tmp, need ? &n : NULL);
            most = (int64_t)n > most ? (int64_t)n : most;
            if (need && t > 0)
                break; /* all frames need the same scratch as the first frame */
        }
    if (need)
        *need = (size_t)most;
    return s;
}

size_t xd_dnn_conv_scratch(xd_dnn *d, const xd_conv *a)
{
    xd_conv b = one_column(a);
    size_t  n = 0;
    xd_dnn_enter(d);
    if (xd_count(a->out) > 0)
        run_pieces(d, &b, NULL, &n);
    return n;
}

xd_status xd_dnn_conv(xd_dnn *d, const xd_conv *a, void *tmp)
{
    xd_conv b = one_column(a);
    xd_dnn_enter(d);
    return xd_count(a->out) > 0 ? run_pieces(d, &b, tmp, NULL) : XD_OK;
}
