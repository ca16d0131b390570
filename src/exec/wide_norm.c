/* wide_norm.c - computes an RMS norm over features that tensor parallelism splits over ranks.
 *
 * Each rank norms the rows over its own features. Then a factor for each row is computed from the
 * sums of squares of all ranks. Multiplied by this factor, the row is normed over all features. */
#include "exec/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/run.h"

static void fill_zeros(void *ctx, float *buf)
{
    memset(buf, 0, *(const size_t *)ctx);
}

/* Computes the sum of squares of each row of `in` [n,C], in f64, and writes the sums to `to` [n,1],
 * F32. */
static void sum_squares(xd_exec *x, xd_tensor to, xd_tensor in)
{
    int64_t   n = in.d[0];
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor sums = xd_new_as(x, XD_F64, 3, (int64_t[]){ n, 1, 2 }), squares = to, rows = in;
    rows.nd = 3;
    rows.d[1] = 1, rows.d[2] = in.d[1], rows.s[1] = in.d[1], rows.s[2] = in.s[1];
    xd_run(x, XD_OP_MOMENTS, "sums of squares", &(xd_moments){ sums, rows, 1 });
    squares.type = XD_F64;
    squares.p = (double *)sums.p + 1, squares.s[0] = 2;
    xd_copy_to(x, to, squares);
    xd_arena_rewind(x->tmp, mark);
}

/* Computes the row factors out = sqrt((mine / C + eps) / (all / width + eps)) on the host. `mine`
 * has the rows' sums of squares over this rank's C features, and `all` over the `width` features of
 * all ranks. */
static void compare_means(xd_exec *x, xd_tensor out, xd_tensor mine, xd_tensor all,
                          const double width[2], float eps)
{
    int64_t n = xd_count(out);
    float  *own = malloc((size_t)n * 2 * sizeof *own + 1), *sum = own ? own + n : NULL;
    if (!own) {
        xd_exec_fail(x, XD_ENOMEM, "no memory for the norms of %lld rows", (long long)n);
        return;
    }
    memset(own, 0, (size_t)n * 2 * sizeof *own);
    xd_get(x, own, mine);
    xd_get(x, sum, all);
    for (int64_t i = 0; i < n; i++)
        own[i] = (float)sqrt(((double)own[i] / width[0] + (double)eps) /
                             ((double)sum[i] / width[1] + (double)eps));
    xd_put(x, out, own);
    free(own);
}

xd_tensor xd_rms_factors(xd_exec *x, const xd_tensor *in, int k, int64_t width, float eps)
{
    const xd_hooks *m = x->hooks;
    int64_t         n = in[0].d[0], C = in[0].d[1];
    xd_tensor       out = xd_new_f32(x, n, k);
    size_t          mark = xd_arena_mark(x->tmp), bytes = xd_bytes(out);
    xd_tensor       mine = xd_new_f32(x, n, k), all = xd_new_f32(x, n, k);
    if (!C) /* a rank without attention heads has no features */
        xd_fill(x, mine, fill_zeros, &bytes);
    for (int i = 0; i < k && C; i++)
        sum_squares(x, xd_cols(mine, i, 1), in[i]);
    xd_copy_to(x, all, mine);
    while (!m->sum)
        m = m->next;
    m->sum(x, m, XD_OVER_FEATURES, all);
    compare_means(x, out, mine, all, (double[]){ C ? (double)C : 1, (double)width }, eps);
    xd_arena_rewind(x->tmp, mark);
    return out;
}
