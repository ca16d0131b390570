/* attention.c - computes attention on the GPU by one of four implementations. The flash kernels are
 * for 16-bit heads without a soft cap, of at most 256 elements, or of at most 64 if there is a
 * bias. cuDNN is for large attention, and products of cuBLASLt are for wider heads. A plain kernel
 * computes all other cases.
 *
 * Keys are processed in tiles of consecutive keys, counted over all segments. Results therefore
 * depend neither on how the keys are split into segments nor on how the queries are split into
 * pieces. */
#include "backend/cuda/cuda.h"

#include "base/minmax.h"

static void strides_of(int64_t s[3], const xd_tensor *t)
{
    for (int i = 0; i < 3; i++)
        s[i] = t->p ? t->s[i] : 0;
}

int xd_cuda_heads_aligned(const xd_tensor *t, int64_t bytes)
{
    int64_t size = (int64_t)xd_dtype_size(t->type);
    int     all = (uintptr_t)t->p % (uintptr_t)bytes == 0;
    for (int i = 0; i < 3; i++)
        all = all && t->s[i] * size % bytes == 0;
    return all;
}

int xd_cuda_attention_aligned(const xd_attn_args *a, const xd_tensor *q, const xd_tensor *out)
{
    int all = xd_cuda_heads_aligned(q, 16) && xd_cuda_heads_aligned(out, 16);
    for (int i = 0; i < a->nkv && a->nkv == 1; i++)
        all = all && xd_cuda_heads_aligned(&a->kv[i].k, 16) &&
              xd_cuda_heads_aligned(&a->kv[i].v, 16);
    return all;
}

/* A piece of the query rows of an attention call. The tensor `q` contains the rows of the piece,
 * from row `first` of the call on, for `samples` samples. A piece is computed by at most one launch
 * of an attention kernel. */
typedef struct piece {
    const xd_attn_args *a;
    const xd_tensor    *q, *out;
    /* index, among all query rows and samples of the call, of the piece's first query row and first
     * sample */
    int64_t             first, sample;
    int                 samples;
    attention_segment  *list; /* list of all key segments in device memory, or NULL */
    /* the call's scratch memory, and the keys and values that attention_cudnn.c has copied to this
     * memory */
    xd_cuda_keys       *keys;
} piece;

static char *sample_at(const xd_tensor *t, int64_t b)
{
    return (char *)t->p + b * t->s[0] * (int64_t)xd_dtype_size(t->type);
}

static size_t list_bytes(const xd_attn_args *a)
{
    size_t bytes = a->nkv > ATTENTION_SEGMENTS ? (size_t)a->nkv * sizeof(attention_segment) : 0;
    return (bytes + 255) / 256 * 256;
}

size_t xd_cuda_attention_scratch(xd_cuda_dev *c, const xd_attn_args *a)
{
    const size_t other = xd_cuda_attention_products_scratch(a);
    return list_bytes(a) + (other ? other : xd_cuda_attention_cudnn_scratch(c, a));
}

/* Adds the segments of keys to the arguments of a kernel, or uploads the segments to device memory
 * if they are too many for the arguments. Sets *wide to 0 if the keys and values cannot be read in
 * accesses of 16 bytes. */
static xd_status add_segments(xd_cuda_dev *c, attention_args *b, const piece *p, int *wide)
{
    const xd_attn_args *a = p->a;
    xd_status           s = XD_OK;
    int                 n = 0; /* number of key segments that were added so far */
    for (int i = 0; i < a->nkv && s == XD_OK; i++) {
        const xd_tensor *k = &a->kv[i].k, *v = &a->kv[i].v;
        if (!k->d[1])
            continue;
        attention_segment *t = &b->segment[n++];
        *t = (attention_segment){
            .k = sample_at(k, p->sample), .v = sample_at(v, p->sample), .start = b->m, .m = k->d[1]
        };
        strides_of(t->s_k, k);
        strides_of(t->s_v, v);
        b->m += k->d[1];
        b->segments++;
        *wide = *wide && xd_cuda_heads_aligned(k, 16) && xd_cuda_heads_aligned(v, 16);
        if (p->list && n == ATTENTION_SEGMENTS) {
            s = xd_cuda_upload(c, p->list + b->segments - n, b->segment, (size_t)n * sizeof *t);
            n = 0;
        }
    }
    if (p->list && n && s == XD_OK)
        s = xd_cuda_upload(c, p->list + b->segments - n, b->segment,
                           (size_t)n * sizeof *b->segment);
    b->list = p->list;
    return s;
}

static xd_status launch_flash(xd_cuda_dev *c, attention_args *b)
{
    static const struct {
        int    D, queries;
        size_t shared;
    } size[] = {
        { 64, 128, XD_CUDA_FLASH_SHARED(64, 64) },
        { 80, 128, XD_CUDA_FLASH_SHARED(80, 32) },
        { 96, 128, XD_CUDA_FLASH_SHARED(96, 32) },
        { 128, 128, XD_CUDA_FLASH_WIDE_SHARED(128, 128) },
        { 192, 64, XD_CUDA_FLASH_WIDE_SHARED(192, 64) },
        { XD_CUDA_FLASH_MOST, 64, XD_CUDA_FLASH_WIDE_SHARED(XD_CUDA_FLASH_MOST, 64) },
    };
    int k = 0;
    while (b->D > size[k].D)
        k++;
    const int f16 = b->q_type == XD_F16, first = f16 ? XD_K_flash_64_f16 : XD_K_flash_64;
    if (b->bias)
        return xd_cuda_launch(c, f16 ? XD_K_flash_64_bias_f16 : XD_K_flash_64_bias,
                              xd_ceil_div(b->n, 128), (int64_t)b->B * b->H, 128,
                              XD_CUDA_FLASH_SHARED(64, 32), b);
    return xd_cuda_launch(c, first + k, xd_ceil_div(b->n, size[k].queries), (int64_t)b->B * b->H,
                          128, size[k].shared, b);
}

static xd_status run_piece(xd_cuda_dev *c, const piece *p)
{
    const xd_attn_args *a = p->a;
    const xd_tensor    *q = p->q, *out = p->out;
    attention_args      b = {
        .out = sample_at(out, p->sample),
        .q = sample_at(q, p->sample),
        .lse = a->lse.p,
        .bias = a->bias.p,
        .n = q->d[1],
        .first = p->first,
        .B = p->samples,
        .H = (int)q->d[2],
        .D = (int)q->d[3],
        .Hk = (int)xd_attn_heads_kv(a),
        .q_type = xd_cuda_type(q),
        .out_type = xd_cuda_type(out),
        .causal = a->causal,
        .q_wide = xd_cuda_heads_aligned(q, 16),
        .out_wide = xd_cuda_heads_aligned(out, 4),
        .window = a->window,
        .scale = a->scale,
        .softcap = a->softcap,
    };
    int       flash = q->type != XD_F32 && (out->type == q->type || out->type == XD_F32) &&
                      !(a->softcap > 0) && b.D % 8 == 0 &&
                      b.D <= (a->bias.p ? XD_CUDA_FLASH_BIAS : XD_CUDA_FLASH_MOST);
    xd_status s = add_segments(c, &b, p, &flash);
    if (s != XD_OK)
        return s;
    strides_of(b.s_out, out);
    strides_of(b.s_q, q);
    strides_of(b.s_lse, &a->lse);
    strides_of(b.s_bias, &a->bias);
    if (b.lse)
        b.lse += p->sample * b.s_lse[0] + p->first * b.s_lse[1];
    for (int i = 0; i < b.B; i++)
        b.len[i] = (int32_t)(a->kv_len ? xd_min(a->kv_len[p->sample + i], b.m) : b.m);
    const int any = b.D > 512 ? XD_K_attention_wide : XD_K_attention_any;
    return flash ? launch_flash(c, &b)
                 : xd_cuda_launch(c, any, xd_ceil_div(b.n * b.B * b.H, 4), 1, 128, 0, &b);
}

/* Computes the attention of all samples. One launch handles at most ATTENTION_SAMPLES samples,
 * because the kernel's arguments have space for the key counts of only ATTENTION_SAMPLES
 * samples. */
static xd_status run_samples(xd_cuda_dev *c, piece p)
{
    const int64_t B = p.q->d[0];
    xd_status     s = XD_OK;
    if (xd_cuda_attention_products(c, p.a, p.q, p.out, p.first, p.keys->tmp, &s) ||
        xd_cuda_attention_cudnn(c, p.a, p.q, p.out, p.first, p.keys, &s))
        return s;
    for (p.sample = 0; p.sample < B && s == XD_OK; p.sample += p.samples) {
        p.samples = (int)xd_min(ATTENTION_SAMPLES, B - p.sample);
        s = run_piece(c, &p);
    }
    return s;
}

xd_status xd_cuda_attention(xd_dev *d, xd_stream *s, const xd_attn_args *a, void *tmp)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    xd_status    st = xd_attn_check(a, XD_CUDA_TYPES);
    xd_cuda_keys keys = { .tmp = (char *)tmp + list_bytes(a) };
    piece        p = {
        .a = a, .q = &a->q, .out = &a->out, .list = list_bytes(a) ? tmp : NULL, .keys = &keys
    };
    (void)s;
    if (st == XD_OK && !a->nparts)
        st = run_samples(c, p);
    for (int i = 0; i < a->nparts && st == XD_OK; p.first += a->part[i++].q.d[1]) {
        p.q = &a->part[i].q, p.out = &a->part[i].out;
        st = run_samples(c, p);
    }
    return st;
}
