/* code.c - converts rows of heads to codes of 8 bits with a scale, and codes to rows (xd_code) */
#include "backend/cpu/cpu.h"

#include <string.h>

#include "base/par.h"

typedef struct code_ctx {
    const xd_kernels *k;
    const xd_code    *a;
} code_ctx;

static char *row_at(const xd_tensor *t, int64_t i)
{
    const int64_t n = i / t->d[1], h = i % t->d[1];
    return (char *)t->p + (n * t->s[0] + h * t->s[1]) * (int64_t)xd_dtype_size(t->type);
}

static void encode_row(const code_ctx *c, int64_t i, float *x)
{
    const xd_tensor *out = &c->a->out;
    const int64_t    D = c->a->in.d[2];
    char            *to = row_at(out, i);
    c->k->widen(x, row_at(&c->a->in, i), c->a->in.type, D);
    const float most = c->k->most(x, XD_F32, D), scale = xd_quant_scale(out->type, most);
    memset(to, 0, (size_t)D);
    memcpy(to + D, &scale, sizeof scale);
    if (!(scale > 0))
        return;
    if (out->type == XD_I8) {
        c->k->integers((int8_t *)to, x, XD_F32, 127.0f / most, D);
        return;
    }
    const float by = 448.0f / most;
    for (int64_t j = 0; j < D; j++)
        x[j] *= by;
    xd_convert(to, XD_F8E4M3, x, XD_F32, D);
}

static void decode_row(const code_ctx *c, int64_t i, float *x)
{
    const xd_tensor *out = &c->a->out, *in = &c->a->in;
    const int64_t    D = out->d[2];
    const char      *from = row_at(in, i);
    float            scale;
    memcpy(&scale, from + D, sizeof scale);
    if (in->type == XD_I8)
        for (int64_t j = 0; j < D; j++)
            x[j] = (float)((const int8_t *)from)[j];
    else
        c->k->widen(x, from, in->type, D);
    for (int64_t j = 0; j < D; j++)
        x[j] *= scale;
    if (out->type == XD_F32)
        memcpy(row_at(out, i), x, (size_t)D * sizeof *x);
    else
        xd_convert(row_at(out, i), out->type, x, XD_F32, D);
}

static void code_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    const code_ctx *c = ctx;
    float           x[XD_CODE_MAX];
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        (xd_is_quantized(c->a->out.type) ? encode_row : decode_row)(c, i, x);
}

void xd_code_rows(const xd_kernels *k, const xd_code *a)
{
    code_ctx c = { k, a };
    xd_par_for(a->in.d[0] * a->in.d[1], code_range, &c);
}
