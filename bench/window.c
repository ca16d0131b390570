/* window.c - attention over boxes of tokens (--attention_window) beside attention over all of them.
 *
 *   bench_window [T H W = 13 30 45] [t h w = 9 17 36] [text = 226] [heads = 2] [D = 64] [calls = 5]
 *                [threads = 1]
 *
 * Numbers in this order. Calls of both alternate, in the best compute type of the device, first
 * with usual scores and then with those of int8 where the device has them. Printed are the share of
 * pairs of a query and a key that boxes keep, and the share of the time: the median and the
 * range. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/pages.h"
#include "base/par.h"
#include "base/rng.h"
#include "exec/op.h"
#include "parallel/method.h"

enum { MOST = 1000, ARENA = 1 << 30 };

extern const xd_method xd_method_window;

static const xd_method *const list[] = { &xd_method_window, NULL };

static int less(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static xd_tensor fresh(xd_dtype t, const int64_t *d, int64_t key)
{
    const int64_t n = d[0] * d[1] * d[2];
    float        *f = malloc((size_t)n * sizeof *f);
    xd_tensor     x = xd_view(xd_pages_map((size_t)n * xd_dtype_size(t), -1), t, 3, d);
    if (!f || !x.p)
        exit(1);
    xd_noise_philox(f, 0, n, key);
    xd_convert(x.p, t, f, XD_F32, n);
    free(f);
    return x;
}

static double time_of(xd_exec *x, const xd_hooks *hooks, const xd_tensor *t)
{
    const size_t mark = xd_arena_mark(x->tmp);
    const double start = xd_now_s();
    x->hooks = hooks;
    xd_attn_into(x, t[3], t[0], t[1], t[2], 0);
    xd_arena_rewind(x->tmp, mark);
    return xd_now_s() - start;
}

static void compare(xd_exec *x, const xd_method_stack *s, const xd_tensor *t, int calls,
                    double pairs)
{
    static double ratio[MOST], ms[MOST];
    time_of(x, s->head, t);
    for (int i = 0; i < calls; i++) {
        ms[i] = time_of(x, s->head, t);
        ratio[i] = ms[i] / time_of(x, &xd_hooks_local, t);
        if (!xd_ok(x)) {
            fprintf(stderr, "%s\n", x->err.msg);
            exit(1);
        }
    }
    qsort(ratio, (size_t)calls, sizeof *ratio, less);
    qsort(ms, (size_t)calls, sizeof *ms, less);
    printf("%s %s, threads %d: %.3f of the pairs in %.1f ms, %.3f of the time (%.3f to %.3f)\n",
           xd_dtype_name(t[0].type), x->int8_attn ? "int8" : "as usual", xd_par_threads(), pairs,
           ms[calls / 2] * 1e3, ratio[calls / 2], ratio[0], ratio[calls - 1]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int64_t  n[11] = { 13, 30, 45, 9, 17, 36, 226, 2, 64, 5, 1 };
    xd_dev  *dev;
    xd_arena arena;
    xd_exec  x;
    xd_err   e = { 0 };
    for (int i = 0; i < 11 && i + 1 < argc; i++)
        n[i] = strtoll(argv[i + 1], NULL, 10);
    const int calls = n[9] < MOST ? (int)n[9] : MOST;
    xd_layout lay = { .npatch = 1, .nsp = 1, .grid = { n[0], n[1], n[2] } };
    xd_topo   topo = { .deg = { { 1, 1, 1, 1, 1, 1 } } };
    lay.len[XD_IMG] = n[0] * n[1] * n[2], lay.len[XD_TXT] = n[6];
    const int64_t all = lay.len[XD_IMG] + n[6], d[3] = { all, n[7], n[8] };
    double        seen = 1;
    for (int i = 0; i < 3; i++)
        seen *= (double)(n[3 + i] && n[3 + i] < n[i] ? n[3 + i] : n[i]);
    const double pairs = ((seen + (double)n[6]) * (double)lay.len[XD_IMG] +
                          (double)n[6] * (double)all) / (double)all / (double)all;
    xd_par_set((int)n[10]);
    void *mem = xd_pages_map(ARENA, -1);
    if (!mem || calls < 1 || xd_dev_open(&dev, "cpu", &e) != XD_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    xd_arena_init(&arena, mem, ARENA);
    const xd_dtype type = xd_dev_best(dev);
    xd_exec_init(&x, dev, &arena, type);
    x.lay = &lay;
    const xd_tensor t[4] = { fresh(type, d, 1), fresh(type, d, 2), fresh(type, d, 3),
                             fresh(type, d, 4) };
    xd_method_args  a = { .what = XD_FOR_DIT, .topo = &topo, .lay = &lay, .dev = dev, .act = type,
                          .heads = n[7], .head_dim = n[8], .window = n + 3 };
    xd_method_stack s;
    if (xd_method_stack_open_of(&s, list, &a, &e) != XD_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    for (x.int8_attn = 0; x.int8_attn <= (int)(dev->int8_attn >> type & 1); x.int8_attn++)
        compare(&x, &s, t, calls, pairs);
    xd_method_stack_close(&s);
    xd_dev_close(&dev);
    return 0;
}
