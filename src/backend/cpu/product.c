/* product.c - multiplies two low-rank matrices (LoRA weights) by a GEMM in the calling thread. The
 * packed weight of this GEMM is the matrix `across`. */
#include "backend/product.h"

#include <stdlib.h>

#include "backend/cpu/gemm/block.h"
#include "base/arena.h"

struct xd_product {
    xd_weight              w;
    xd_tensor              up;
    float                 *gate; /* [cols], the gate of the GEMM: `gain` in every column */
    const xd_gemm_kernels *k;    /* kernels of the GEMM, or NULL if plain.c computes the GEMM */
};

xd_dtype xd_product_type(xd_dtype a, xd_dtype b)
{
    return a == XD_BF16 && b == XD_BF16 && xd_cpu_gemm_alone(xd_isa_of_host(), XD_BF16) ? XD_BF16
                                                                                        : XD_F32;
}

static int64_t padded(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

size_t xd_product_bytes(int64_t rank, int64_t cols)
{
    return (size_t)(padded(cols, XD_PANEL) * (rank + 1)) * sizeof(float);
}

xd_status xd_product_open(xd_product **out, xd_tensor up, xd_tensor across, float gain, xd_err *e)
{
    xd_product *p = *out = calloc(1, sizeof *p);
    int64_t     cols = across.d[0];
    if (!p)
        return xd_fail(e, XD_ENOMEM, "no memory for a product of matrices");
    *p = (xd_product){ .up = up, .k = xd_cpu_gemm_alone(xd_isa_of_host(), up.type) };
    p->w = (xd_weight){ .type = up.type,
                        .out = cols,
                        .in = up.d[1],
                        .kernel = { 1, 1, 1 },
                        .stride = { 1, 1, 1 },
                        .groups = 1 };
    p->w.bytes = p->k ? p->k->pack_size(&p->w) : xd_plain_pack_size(&p->w);
    p->w.p = aligned_alloc(XD_ALIGN, (p->w.bytes + XD_ALIGN - 1) / XD_ALIGN * XD_ALIGN);
    p->gate = malloc((size_t)cols * sizeof *p->gate + 1);
    if (!p->w.p || !p->gate) {
        xd_product_close(out);
        return xd_fail(e, XD_ENOMEM, "no memory for a product of matrices");
    }
    for (int64_t j = 0; j < cols; j++)
        p->gate[j] = gain;
    return p->k ? p->k->pack_rows(&p->w, across, 0) : xd_plain_pack(&p->w, across);
}

void xd_product_close(xd_product **p)
{
    if (!p || !*p)
        return;
    free((*p)->w.p);
    free((*p)->gate);
    free(*p);
    *p = NULL;
}

static xd_gemm gemm_of(const xd_product *p, int64_t row, int64_t n, float *to)
{
    int64_t size = (int64_t)xd_dtype_size(p->up.type), cols = p->w.out;
    char   *up = (char *)p->up.p + row * p->w.in * size;
    xd_gemm a = { .in = xd_view2(up, p->up.type, n, p->w.in),
                  .out = xd_view2(to, XD_F32, n, cols),
                  .gate = xd_view(p->gate, XD_F32, 1, &cols),
                  .w = &p->w };
    a.residual = a.out;
    return a;
}

size_t xd_product_scratch(const xd_product *p, int64_t n)
{
    const xd_gemm a = gemm_of(p, 0, n, NULL);
    return p->k && n > 0 ? p->k->scratch(&a, 1) : 0;
}

void xd_product_add(const xd_product *p, int64_t row, int64_t n, float *to, void *tmp)
{
    const xd_gemm a = gemm_of(p, row, n, to);
    if (n > 0 && p->k)
        p->k->gemm_alone(&a, tmp);
    else if (n > 0)
        xd_plain_gemm(&xd_kernels_c, &a);
}
