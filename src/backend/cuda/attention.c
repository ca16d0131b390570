/* attention.c - attention: flash for BF16 heads of at most 128 elements without bias and soft
 * cap, else any types
 *
 * Keys are taken in tiles of the global order, so results do not depend on how keys are cut into
 * segments or queries into pieces. */
#include "backend/cuda/cuda.h"

#include "base/minmax.h"

static void strides_of(int64_t s[3], const xd_tensor *t)
{
    for (int i = 0; i < 3; i++)
        s[i] = t->p ? t->s[i] : 0;
}

/* 1: every row of every head begins at a multiple of `bytes`. */
static int heads_aligned(const xd_tensor *t, int64_t bytes)
{
    int64_t size = (int64_t)xd_dtype_size(t->type);
    int     all = (uintptr_t)t->p % (uintptr_t)bytes == 0;
    for (int i = 0; i < 3; i++)
        all = all && t->s[i] * size % bytes == 0;
    return all;
}

/* Adds the segments of keys. *wide: 16-byte accesses. */
static void add_segments(attention_args *b, const xd_attn_args *a, int *wide)
{
    for (int i = 0; i < a->nkv; i++) {
        const xd_tensor *k = &a->kv[i].k, *v = &a->kv[i].v;
        if (!k->d[1])
            continue;
        attention_segment *t = &b->segment[b->segments++];
        *t = (attention_segment){ .k = k->p, .v = v->p, .start = b->m, .m = k->d[1] };
        strides_of(t->s_k, k);
        strides_of(t->s_v, v);
        b->m += k->d[1];
        *wide = *wide && heads_aligned(k, 16) && heads_aligned(v, 16);
    }
}

static xd_status launch_flash(xd_cuda_dev *c, attention_args *b)
{
    int k = b->D <= 64 ? 0 : b->D <= 80 ? 1 : b->D <= 96 ? 2 : 3;
    static const size_t shared[] = { XD_CUDA_FLASH_SHARED(64), XD_CUDA_FLASH_SHARED(80),
                                     XD_CUDA_FLASH_SHARED(96), XD_CUDA_FLASH_SHARED(128) };
    return xd_cuda_launch(c, XD_K_flash_64 + k, xd_ceil_div(b->n, 64), (int64_t)b->B * b->H, 128,
                          shared[k], b);
}

/* Attention of the queries q, which are the rows from `first` on. */
static xd_status run_piece(xd_cuda_dev *c, const xd_attn_args *a, const xd_tensor *q,
                           const xd_tensor *out, int64_t first)
{
    attention_args b = {
        .out = out->p, .q = q->p, .lse = a->lse.p, .bias = a->bias.p, .n = q->d[1],
        .first = first, .B = (int)q->d[0], .H = (int)q->d[2], .D = (int)q->d[3],
        .Hk = (int)xd_attn_heads_kv(a), .q_bf16 = xd_cuda_is_bf16(q),
        .out_bf16 = xd_cuda_is_bf16(out), .causal = a->causal, .q_wide = heads_aligned(q, 16),
        .out_wide = heads_aligned(out, 4), .window = a->window, .scale = a->scale,
        .softcap = a->softcap,
    };
    int flash = q->type == XD_BF16 && !a->bias.p && !(a->softcap > 0) && b.D % 8 == 0 &&
                b.D <= 128;
    add_segments(&b, a, &flash);
    strides_of(b.s_out, out);
    strides_of(b.s_q, q);
    strides_of(b.s_lse, &a->lse);
    strides_of(b.s_bias, &a->bias);
    if (b.lse)
        b.lse += first * b.s_lse[1];
    for (int i = 0; i < b.B; i++)
        b.len[i] = (int32_t)(a->kv_len ? xd_min(a->kv_len[i], b.m) : b.m);
    return flash ? launch_flash(c, &b)
                 : xd_cuda_launch(c, XD_K_attention_any, xd_ceil_div(b.n * b.B * b.H, 4), 1, 128,
                                  0, &b);
}

xd_status xd_cuda_attention(xd_dev *d, xd_stream *s, const xd_attn_args *a, void *tmp)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    int64_t      first = 0;
    xd_status    st = xd_attn_check(a, XD_CUDA_TYPES);
    (void)s, (void)tmp;
    if (st == XD_OK && (a->nkv > ATTENTION_SEGMENTS || a->q.d[0] > ATTENTION_SAMPLES))
        st = XD_EUNSUPPORTED;
    if (st == XD_OK && !a->nparts)
        st = run_piece(c, a, &a->q, &a->out, 0);
    for (int i = 0; i < a->nparts && st == XD_OK; first += a->part[i++].q.d[1])
        st = run_piece(c, a, &a->part[i].q, &a->part[i].out, first);
    return st;
}
