/* tensor.c - computes shapes, makes views, and converts elements */
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

#include "tensor/blocks.h"

static const struct {
    const char *name;
    size_t      size;  /* bytes per block */
    int64_t     block; /* elements per block; 1: not a block type */
} types[XD_NDTYPES] = {
    [XD_F32] = { "f32", 4, 1 },         [XD_F16] = { "f16", 2, 1 },
    [XD_BF16] = { "bf16", 2, 1 },       [XD_F64] = { "f64", 8, 1 },
    [XD_F8E4M3] = { "f8_e4m3", 1, 1 },  [XD_F8E5M2] = { "f8_e5m2", 1, 1 },
    [XD_I8] = { "i8", 1, 1 },           [XD_U8] = { "u8", 1, 1 },
    [XD_I16] = { "i16", 2, 1 },         [XD_I32] = { "i32", 4, 1 },
    [XD_I64] = { "i64", 8, 1 },         [XD_BOOL] = { "bool", 1, 1 },
    [XD_Q8_0] = { "q8_0", 34, 32 },     [XD_Q4_0] = { "q4_0", 18, 32 },
    [XD_Q4_1] = { "q4_1", 20, 32 },     [XD_Q5_0] = { "q5_0", 22, 32 },
    [XD_Q5_1] = { "q5_1", 24, 32 },     [XD_Q2_K] = { "q2_k", 84, 256 },
    [XD_Q3_K] = { "q3_k", 110, 256 },   [XD_Q4_K] = { "q4_k", 144, 256 },
    [XD_Q5_K] = { "q5_k", 176, 256 },   [XD_Q6_K] = { "q6_k", 210, 256 },
    [XD_IQ4_NL] = { "iq4_nl", 18, 32 }, [XD_IQ4_XS] = { "iq4_xs", 136, 256 },
};

size_t xd_dtype_size(xd_dtype t)
{
    return types[t].block > 1 ? 0 : types[t].size;
}

int64_t xd_dtype_block(xd_dtype t)
{
    return types[t].block;
}

size_t xd_dtype_block_bytes(xd_dtype t)
{
    return types[t].size;
}

size_t xd_dtype_bytes(xd_dtype t, int64_t n)
{
    return (size_t)(types[t].block > 1 ? n / types[t].block : n) * types[t].size;
}

const char *xd_dtype_name(xd_dtype t)
{
    return types[t].name;
}

xd_tensor xd_view(void *p, xd_dtype t, int nd, const int64_t *d)
{
    xd_tensor v = { .p = p, .type = t, .nd = nd };
    int64_t   step = 1;
    for (int i = XD_MAXDIM - 1; i >= 0; i--) {
        v.d[i] = i < nd ? d[i] : 1;
        v.s[i] = i < nd ? step : 0;
        step *= v.d[i];
    }
    return v;
}

xd_tensor xd_view2(void *p, xd_dtype t, int64_t rows, int64_t cols)
{
    return xd_view(p, t, 2, (int64_t[]){ rows, cols });
}

static xd_tensor moved_by(xd_tensor t, int64_t elements)
{
    if (t.p)
        t.p = (char *)t.p + (int64_t)xd_dtype_bytes(t.type, elements);
    return t;
}

xd_tensor xd_rows(xd_tensor t, int64_t start, int64_t n)
{
    t = moved_by(t, start * t.s[0]);
    t.d[0] = n;
    return t;
}

xd_tensor xd_cols(xd_tensor t, int64_t start, int64_t n)
{
    t = moved_by(t, start * t.s[t.nd - 1]);
    t.d[t.nd - 1] = n;
    return t;
}

xd_tensor xd_heads(xd_tensor t, int64_t hd)
{
    t.d[2] = hd;
    t.d[1] /= hd;
    t.s[2] = t.s[1];
    t.s[1] *= hd;
    t.nd = 3;
    return t;
}

xd_tensor xd_flat(xd_tensor t)
{
    t.d[1] *= t.d[2];
    t.s[1] = t.s[2];
    t.d[2] = 1;
    t.s[2] = 0;
    t.nd = 2;
    return t;
}

xd_tensor xd_reshape(xd_tensor t, int nd, const int64_t *d)
{
    return xd_view(t.p, t.type, nd, d);
}

xd_tensor xd_permute(xd_tensor t, const int *order)
{
    xd_tensor r = t;
    for (int i = 0; i < t.nd; i++) {
        r.d[i] = t.d[order[i]];
        r.s[i] = t.s[order[i]];
    }
    return r;
}

int64_t xd_count(xd_tensor t)
{
    int64_t n = 1;
    for (int i = 0; i < t.nd; i++)
        n *= t.d[i];
    return n;
}

size_t xd_bytes(xd_tensor t)
{
    return xd_dtype_bytes(t.type, xd_count(t));
}

int xd_contiguous(xd_tensor t)
{
    int64_t step = 1;
    for (int i = t.nd - 1; i >= 0; i--) {
        if (t.d[i] != 1 && t.s[i] != step)
            return 0;
        step *= t.d[i];
    }
    return 1;
}

void *xd_at(xd_tensor t, int64_t i, int64_t j)
{
    return (char *)t.p + (i * t.s[0] + j * t.s[1]) * (int64_t)xd_dtype_size(t.type);
}

char *xd_shape_text(int nd, const int64_t *d, char *buf, size_t size)
{
    size_t at = 0;
    snprintf(buf, size, "%s", nd ? "" : "scalar");
    for (int i = 0; i < nd && at < size; i++) {
        int k = snprintf(buf + at, size - at, "%s%lld", i ? "x" : "", (long long)d[i]);
        at += k > 0 ? (size_t)k : 0;
    }
    return buf;
}

float xd_bf16_f32(uint16_t v)
{
    uint32_t b = (uint32_t)v << 16;
    float    f;
    memcpy(&f, &b, sizeof f);
    return f;
}

uint16_t xd_f32_bf16(float v)
{
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    if ((b & 0x7fffffffu) > 0x7f800000u) /* NaN becomes a quiet NaN */
        return (uint16_t)((b >> 16) | 0x40u);
    return (uint16_t)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}

float xd_f16_f32(uint16_t v)
{
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16, e = (v >> 10) & 31u, m = v & 0x3ffu, b;
    float    f;
    if (e == 0) { /* zero or subnormal: value m * 2^-24 */
        f = (float)m * 5.9604644775390625e-8f;
        memcpy(&b, &f, sizeof b);
        b |= sign;
    } else {
        b = sign | (e == 31 ? 0x7f800000u : (e + 112u) << 23) | m << 13;
    }
    memcpy(&f, &b, sizeof f);
    return f;
}

uint16_t xd_f32_f16(float v)
{
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    uint32_t sign = (b >> 16) & 0x8000u, a = b & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) /* too large for f16 after rounding: becomes infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) { /* subnormal f16: the addition below rounds */
        float f;
        memcpy(&f, &a, sizeof f);
        f += 0.5f;
        memcpy(&a, &f, sizeof a);
        return (uint16_t)(sign | (a - 0x3f000000u));
    }
    return (uint16_t)(sign | ((a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13));
}

/* Converts an e4m3 value to f32. If the bits of an e4m3 value are shifted to the matching positions
 * in an f32, the f32 is the e4m3 value times 2^-120. */
float xd_f8e4m3_f32(uint8_t v)
{
    uint32_t m = (uint32_t)(v & 0x7fu) << 20, b;
    float    f;
    memcpy(&f, &m, sizeof f);
    f *= 0x1p120f;
    memcpy(&b, &f, sizeof b);
    b = (v & 0x7fu) == 0x7fu ? 0x7fc00000u : b;
    b |= (uint32_t)(v & 0x80u) << 24;
    memcpy(&f, &b, sizeof f);
    return f;
}

uint8_t xd_f32_f8e4m3(float v)
{
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    uint8_t  sign = (uint8_t)(b >> 24 & 0x80u);
    uint32_t a = b & 0x7fffffffu;
    if (a > 0x7f800000u)
        return sign | 0x7fu;
    if (a >= 0x43e00000u) /* magnitudes of at least 448 become 448 */
        return sign | 0x7eu;
    /* subnormal e4m3: adding 2^14 rounds to a multiple of 2^-9, the spacing of subnormals */
    if (a < 0x3c800000u) {
        float f;
        memcpy(&f, &a, sizeof f);
        f += 0x1p14f;
        memcpy(&a, &f, sizeof a);
        return (uint8_t)(sign | (a - 0x46800000u));
    }
    return (uint8_t)(sign | ((a + 0x7ffffu + ((a >> 20) & 1u) - 0x3c000000u) >> 20));
}

/* Converts an e5m2 value to f32. The bits of an e5m2 value are the upper byte of an f16. */
float xd_f8e5m2_f32(uint8_t v)
{
    return xd_f16_f32((uint16_t)(v << 8));
}

static float load_element(const char *p, xd_dtype t)
{
    uint16_t h;
    float    f;
    double   d;
    switch (t) {
    case XD_F16: memcpy(&h, p, 2); return xd_f16_f32(h);
    case XD_BF16: memcpy(&h, p, 2); return xd_bf16_f32(h);
    case XD_F64: memcpy(&d, p, 8); return (float)d;
    case XD_F8E4M3: return xd_f8e4m3_f32((uint8_t)*p);
    case XD_F8E5M2: return xd_f8e5m2_f32((uint8_t)*p);
    default: memcpy(&f, p, 4); return f;
    }
}

/* Converts n elements of a block type to f32 and then to type tt, several complete blocks at a
 * time. */
static void convert_blocks(void *to, xd_dtype tt, const void *from, xd_dtype ft, int64_t n)
{
    enum { PIECE = 1024 };
    const char *in = from;
    char       *out = to;
    float       piece[PIECE];
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = n - i < PIECE ? n - i : PIECE;
        xd_blocks_f32(piece, in, ft, m);
        xd_convert(out, tt, piece, XD_F32, m);
        in += xd_dtype_bytes(ft, m);
        out += xd_dtype_bytes(tt, m);
    }
}

void xd_convert(void *to, xd_dtype tt, const void *from, xd_dtype ft, int64_t n)
{
    const char *in = from;
    if (tt == ft) {
        memcpy(to, from, xd_dtype_bytes(ft, n));
        return;
    }
    if (types[ft].block > 1) {
        if (tt == XD_F32)
            xd_blocks_f32(to, from, ft, n);
        else
            convert_blocks(to, tt, from, ft, n);
        return;
    }
    if (ft == XD_BF16 && tt == XD_F32) { /* bf16 to f32, a common case: this loop vectorizes */
        uint32_t *out = to;
        for (int64_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, in + 2 * i, 2);
            out[i] = (uint32_t)h << 16;
        }
        return;
    }
    if (ft == XD_F32 && tt == XD_BF16) { /* xd_f32_bf16 in a loop that vectorizes */
        uint16_t *out = to;
        for (int64_t i = 0; i < n; i++) {
            uint32_t b;
            memcpy(&b, in + 4 * i, 4);
            uint32_t near = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16, nan = (b >> 16) | 0x40u;
            out[i] = (uint16_t)((b & 0x7fffffffu) > 0x7f800000u ? nan : near);
        }
        return;
    }
    for (int64_t i = 0; i < n; i++, in += xd_dtype_size(ft)) {
        float v = load_element(in, ft);
        if (tt == XD_F32)
            ((float *)to)[i] = v;
        else if (tt == XD_F8E4M3)
            ((uint8_t *)to)[i] = xd_f32_f8e4m3(v);
        else
            ((uint16_t *)to)[i] = tt == XD_F16 ? xd_f32_f16(v) : xd_f32_bf16(v);
    }
}

void xd_convert_at(void *to, xd_dtype tt, const void *from, xd_dtype ft, int64_t first, int64_t n)
{
    enum { MAX_BLOCK = 256 };
    const int64_t block = xd_dtype_block(ft), skip = first % block;
    const char   *in = (const char *)from + xd_dtype_bytes(ft, first);
    char         *out = to;
    float         x[MAX_BLOCK];
    if (skip && n) { /* the range begins within a block: converts the rest of this block */
        int64_t m = block - skip < n ? block - skip : n;
        xd_convert(x, XD_F32, in, ft, block);
        xd_convert(out, tt, x + skip, XD_F32, m);
        in += xd_dtype_block_bytes(ft);
        out += xd_dtype_bytes(tt, m);
        n -= m;
    }
    int64_t whole = n / block * block;
    xd_convert(out, tt, in, ft, whole);
    if (n > whole) { /* the range ends within a block: converts the start of this block */
        xd_convert(x, XD_F32, in + xd_dtype_bytes(ft, whole), ft, block);
        xd_convert(out + xd_dtype_bytes(tt, whole), tt, x, XD_F32, n - whole);
    }
}
