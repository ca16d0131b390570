/* op_args.c - checks the types, shapes and strides of the arguments of ops, for all devices */
#include "backend/op_args.h"

int xd_types_has(xd_types types, xd_dtype t)
{
    return (types >> t & 1u) != 0;
}

static xd_status valid_if(int fits)
{
    return fits ? XD_OK : XD_EINVAL;
}

static int same_shape(const xd_tensor *x, const xd_tensor *y, int nd)
{
    for (int i = 0; i < nd; i++)
        if (x->d[i] != y->d[i])
            return 0;
    return 1;
}

/* ---- GEMM and convolutions ---------------------------------------------------------------- */

/* Returns 1 if a GEMM with the weight w accepts an input of type t. */
static int takes_input(const xd_weight *w, xd_dtype t, xd_types types)
{
    if (xd_is_quantized(w->type))
        return xd_types_has(types, t);
    return xd_types_has(types, w->type) && (t == w->type || t == XD_F32);
}

xd_status xd_gemm_check(const xd_gemm *a, xd_types types)
{
    int narrow = a->sx.p && a->in.type == XD_F8E4M3 && a->w->type == XD_F8E4M3 &&
                 a->in.d[1] % 16 == 0 && xd_contiguous(a->in);
    return valid_if((narrow || takes_input(a->w, a->in.type, types)) && a->in.d[1] == a->w->in &&
                    a->out.d[1] == a->w->out && a->in.d[0] == a->out.d[0] &&
                    xd_types_has(types, a->out.type));
}

xd_status xd_conv_check(const xd_conv *a, xd_types types)
{
    const xd_weight *w = a->w;
    const int64_t    G = w->groups > 1 ? w->groups : 1;
    if (a->in.type != w->type || a->in.d[3] != w->in * G || a->out.d[3] != w->out ||
        !xd_types_has(types, a->out.type))
        return XD_EINVAL;
    for (int i = 0; i < 3; i++)
        if (a->out.d[i] > 0 &&
            (a->out.d[i] - 1) * a->stride[i] + w->kernel[i] > a->in.d[i] + a->lo[i] + a->hi[i])
            return XD_EINVAL;
    return XD_OK;
}

/* ---- norms -------------------------------------------------------------------------------- */

/* Returns 1 if rows can be quantized from type `via` to F8E4M3 rows `out` with the scales sx. */
static int is_narrow(const xd_tensor *out, const xd_tensor *sx, xd_dtype via, xd_types types)
{
    return sx->p && out->type == XD_F8E4M3 && via != XD_F32 && xd_types_has(types, via) &&
           out->d[1] % 16 == 0 && xd_contiguous(*out);
}

xd_status xd_norm_check(const xd_norm *a, xd_types types)
{
    const int narrow = is_narrow(&a->out, &a->sx, a->via, types);
    return valid_if(
        xd_types_has(types, a->in.type) && (narrow || xd_types_has(types, a->out.type)) &&
        (!a->like.nd || (a->like.type == XD_F32 && same_shape(&a->like, &a->in, 2))) &&
        (!a->add.p || (xd_types_has(types, a->add.type) && (a->in.p != a->out.p || !a->in.d[0]) &&
                       same_shape(&a->add, &a->in, 2) && (!a->gate.p || a->gate.type == XD_F32))));
}

xd_status xd_moments_check(const xd_moments *a, xd_types types)
{
    if (!a->groups)
        return valid_if(a->in.type == XD_F64 && a->out.type == XD_F64 && a->in.nd == 2 &&
                        a->out.nd == 1 && a->out.d[0] == a->in.d[1]);
    return valid_if(xd_types_has(types, a->in.type) && a->out.type == XD_F64 && a->groups >= 1 &&
                    a->in.d[2] % a->groups == 0);
}

/* Returns 1 if the extents of t (the scale or shift of a group norm) divide the extents of the
 * image that the group norm normalizes. */
static int divides(const xd_tensor *t, const xd_gnorm *a)
{
    int same = t->type == XD_F32 && t->nd == 4 && a->in.nd == 4 && a->out.nd == 4 &&
               t->d[3] == a->in.d[3];
    for (int i = 0; i < 3 && same; i++)
        same = a->out.d[i] == a->in.d[i] && (t->d[i] ? a->in.d[i] % t->d[i] == 0 : a->in.d[i] == 0);
    return same;
}

xd_status xd_gnorm_check(const xd_gnorm *a, xd_types types)
{
    return valid_if(xd_types_has(types, a->in.type) && xd_types_has(types, a->out.type) &&
                    a->sums.type == XD_F64 && a->groups >= 1 &&
                    a->in.d[a->in.nd - 1] % a->groups == 0 && !a->scale.p == !a->shift.p &&
                    (!a->scale.p || (divides(&a->scale, a) && divides(&a->shift, a))));
}

/* Returns 1 if the tensor t is absent or is a row of n F32 elements. */
static int is_row(const xd_tensor *t, int64_t n)
{
    return !t->p || (t->type == XD_F32 && t->nd == 1 && t->d[0] == n && (n == 1 || t->s[0] == 1));
}

/* Returns 1 if t is a table of cosines or sines for n rows of heads of D elements. */
static int is_table(const xd_tensor *t, int64_t n, int64_t D)
{
    return t->p && t->type == XD_F32 && t->nd == 2 && (t->d[0] == n || t->d[0] == 1) &&
           t->d[1] == D / 2 && (D <= 2 || t->s[1] == 1);
}

/* Returns 1 if the input and output of the call `a` are heads [n,H,D], and the gain and bias of the
 * call are absent or have D elements. */
static int are_heads(const xd_qk_heads *a, int64_t n, int64_t D)
{
    return a->in.nd == 3 && a->out.nd == 3 && a->in.d[0] == n && a->in.d[2] == D &&
           same_shape(&a->in, &a->out, 3) && (D < 2 || (a->in.s[2] == 1 && a->out.s[2] == 1)) &&
           is_row(&a->gain, D) && is_row(&a->bias, D);
}

xd_status xd_qknorm_check(const xd_qknorm *a, xd_types types)
{
    const int64_t n = a->in.d[0], D = a->in.d[2];
    if (!xd_types_has(types, a->in.type) || !xd_types_has(types, a->out.type) || a->in.nd != 3 ||
        D < 1 || D > XD_QKNORM_MAX)
        return XD_EINVAL;
    return valid_if(
        are_heads(&(xd_qk_heads){ a->out, a->in, a->gain, a->bias }, n, D) &&
        (!a->also.in.p || (are_heads(&a->also, n, D) && a->also.in.type == a->in.type &&
                           a->also.out.type == a->out.type)) &&
        !a->cos.p == !a->sin.p &&
        (!a->cos.p || (D % 2 == 0 && is_table(&a->cos, n, D) && is_table(&a->sin, n, D))));
}

xd_status xd_rotate_check(const xd_rotate *a, xd_types types)
{
    return valid_if(xd_types_has(types, a->in.type) && xd_types_has(types, a->out.type) &&
                    a->in.nd == 2 && a->out.nd == 2 && same_shape(&a->in, &a->out, 2) &&
                    a->group <= XD_ROTATE_MAX && xd_rotates(a->group) &&
                    a->in.d[1] % a->group == 0 &&
                    (a->in.d[1] < 2 || (a->in.s[1] == 1 && a->out.s[1] == 1)));
}

/* Returns 1 if t has heads [n,H,D] with contiguous elements. */
static int is_of_heads(const xd_tensor *t, int64_t n, int64_t H, int64_t D, xd_types types)
{
    return t->nd == 3 && t->d[0] == n && t->d[1] == H && t->d[2] == D && (D < 2 || t->s[2] == 1) &&
           xd_types_has(types, t->type);
}

/* Returns 1 if the tables of linear attention are absent, or have a row for each row of the part
 * that the call computes. */
static int has_linattn_tables(const xd_linattn *a)
{
    const int64_t    D = a->sums.d[1], rows = a->k.p ? a->k.d[0] : a->q.d[0];
    const xd_tensor *t[] = { &a->cos, &a->sin };
    if (!a->cos.p && !a->sin.p)
        return 1;
    for (int i = 0; i < 2; i++)
        if (!t[i]->p || t[i]->type != XD_F32 || t[i]->nd != 2 || t[i]->d[0] != rows ||
            t[i]->d[1] != D / 2 || (D > 2 && t[i]->s[1] != 1))
            return 0;
    return D % 2 == 0 && !(a->k.p && a->q.p);
}

xd_status xd_linattn_check(const xd_linattn *a, xd_types types)
{
    const int64_t H = a->sums.d[0], D = a->sums.d[1];
    if (a->sums.type != XD_F32 || a->sums.nd != 3 || a->sums.d[2] != D + 1 || D < 1 ||
        D > XD_LINATTN_MAX || !xd_contiguous(a->sums) || !a->k.p != !a->v.p || !a->q.p != !a->out.p)
        return XD_EINVAL;
    return valid_if(has_linattn_tables(a) &&
                    (!a->k.p || (is_of_heads(&a->k, a->k.d[0], H, D, types) &&
                                 is_of_heads(&a->v, a->k.d[0], H, D, types))) &&
                    (!a->q.p || (is_of_heads(&a->q, a->q.d[0], H, D, types) &&
                                 is_of_heads(&a->out, a->q.d[0], H, D, types))));
}

xd_status xd_code_check(const xd_code *a, xd_types types)
{
    const int        codes = xd_is_quantized(a->out.type);
    const xd_tensor *c = codes ? &a->out : &a->in, *v = codes ? &a->in : &a->out;
    return valid_if(
        v->nd == 3 && v->d[2] >= 1 && v->d[2] <= XD_CODE_MAX &&
        is_of_heads(v, v->d[0], v->d[1], v->d[2], types | 1u << XD_F16) &&
        is_of_heads(c, v->d[0], v->d[1], v->d[2] + XD_CODE_SCALE, 1u << XD_I8 | 1u << XD_F8E4M3));
}

/* ---- elements ----------------------------------------------------------------------------- */

xd_status xd_glu_check(const xd_glu *a, xd_types types)
{
    return valid_if(
        (is_narrow(&a->out, &a->sx, a->via, types) || xd_types_has(types, a->out.type)) &&
        xd_types_has(types, a->a.type) && (!a->b.p || xd_types_has(types, a->b.type)));
}

xd_status xd_addmul_check(const xd_addmul *a, xd_types types)
{
    return valid_if(xd_types_has(types, a->acc.type) && xd_types_has(types, a->in.type) &&
                    (!a->gate.p || a->gate.type == XD_F32));
}

xd_status xd_axpby_check(const xd_axpby_args *a)
{
    return valid_if(a->y.type == XD_F32 && (!a->x.p || a->x.type == XD_F32));
}

xd_status xd_resize_check(const xd_resize *a)
{
    if (a->in.type != a->out.type || a->in.d[3] != a->out.d[3])
        return XD_EINVAL;
    for (int i = 0; i < 3; i++)
        if (a->factor[i] < 1 || a->out.d[i] != a->in.d[i] * a->factor[i])
            return XD_EINVAL;
    return XD_OK;
}

xd_status xd_lookup_check(const xd_lookup *a, xd_types types)
{
    return valid_if(xd_types_has(types, a->out.type) && a->ids.type == XD_I32 &&
                    a->table.d[1] == a->out.d[1] &&
                    (xd_types_has(types, a->table.type) || a->table.type == XD_F16));
}

xd_status xd_copy_check(const xd_copy *a, xd_types types)
{
    const xd_types halves = types | 1u << XD_F16;
    const xd_types sources = halves | 1u << XD_F64 | 1u << XD_F8E4M3 | 1u << XD_F8E5M2;
    return valid_if(xd_types_has(halves, a->out.type) && xd_types_has(sources, a->in.type) &&
                    a->out.nd == a->in.nd && same_shape(&a->out, &a->in, a->out.nd));
}

/* ---- attention ---------------------------------------------------------------------------- */

static int is_dense(const xd_tensor *t)
{
    return t->d[3] <= 1 || t->s[3] == 1;
}

static int is_valid_segment(const xd_attn_args *a, const xd_kv *s, int64_t Hk)
{
    return s->k.type == a->q.type && s->v.type == a->q.type && s->k.d[0] == a->q.d[0] &&
           s->k.d[2] == Hk && s->k.d[3] == a->q.d[3] && same_shape(&s->k, &s->v, 4) &&
           is_dense(&s->k) && is_dense(&s->v);
}

int64_t xd_weight_taps(const xd_weight *w)
{
    return w->nk ? (int64_t)w->kernel[0] * w->kernel[1] * w->kernel[2] : 1;
}

int64_t xd_attn_keys(const xd_attn_args *a)
{
    int64_t m = 0;
    for (int i = 0; i < a->nkv; i++)
        m += a->kv[i].k.d[1];
    return m;
}

int64_t xd_attn_heads_kv(const xd_attn_args *a)
{
    for (int i = 0; i < a->nkv; i++)
        if (a->kv[i].k.d[1] > 0)
            return a->kv[i].k.d[2];
    return a->q.d[2];
}

static int are_valid_parts(const xd_attn_args *a)
{
    int64_t n = 0;
    for (int i = 0; i < a->nparts; i++) {
        const xd_tensor *q = &a->part[i].q, *o = &a->part[i].out;
        if (q->type != a->q.type || o->type != a->out.type || q->d[0] != a->q.d[0] ||
            q->d[2] != a->q.d[2] || q->d[3] != a->q.d[3] || !same_shape(q, o, 4) || !is_dense(q) ||
            !is_dense(o))
            return 0;
        n += q->d[1];
    }
    return !a->nparts || n == a->q.d[1];
}

xd_status xd_attn_check(const xd_attn_args *a, xd_types types)
{
    const xd_tensor *q = &a->q;
    int64_t          Hk = xd_attn_heads_kv(a);
    for (int i = 0; i < 4; i++)
        if (q->d[i] < 0)
            return XD_EINVAL;
    if (q->d[3] > XD_ATTN_MAXD || !xd_types_has(types, q->type) ||
        !xd_types_has(types, a->out.type))
        return XD_EUNSUPPORTED;
    if (!same_shape(q, &a->out, 4) || !is_dense(q) || !is_dense(&a->out) || a->window < 0)
        return XD_EINVAL;
    if (q->d[2] > 0 && (Hk < 1 || q->d[2] % Hk))
        return XD_EINVAL;
    for (int i = 0; i < a->nkv; i++)
        if (a->kv[i].k.d[1] && !is_valid_segment(a, &a->kv[i], Hk))
            return XD_EINVAL;
    if (!are_valid_parts(a))
        return XD_EINVAL;
    if (a->lse.p && (a->lse.type != XD_F32 || !same_shape(q, &a->lse, 3)))
        return XD_EINVAL;
    if (a->bias.p && (a->bias.type != XD_F32 || a->bias.d[0] != q->d[2] ||
                      a->bias.d[1] != q->d[1] || a->bias.d[2] < xd_attn_keys(a)))
        return XD_EINVAL;
    return XD_OK;
}
