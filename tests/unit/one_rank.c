/* one_rank.c - one rank on the CPU for the tests of parallel methods. */
#include "one_rank.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK = 4 << 20 };

void one_rank_open(one_rank *r, const int64_t *grid, int64_t text, int64_t padding)
{
    xd_err e = { 0 };
    memset(r, 0, sizeof *r);
    r->lay = (xd_layout){ .npatch = 1, .nsp = 1, .grid = { grid[0], grid[1], grid[2] } };
    r->lay.len[XD_IMG] = grid[0] * grid[1] * grid[2];
    r->lay.len[XD_TXT] = text, r->lay.len[XD_PAD] = padding;
    assert_int_equal(xd_dev_open(&r->dev, "cpu", &e), XD_OK);
    r->mem = r->dev->mem->get(r->dev, BLOCK);
    assert_non_null(r->mem);
    xd_arena_init(&r->tmp, r->mem, BLOCK);
    xd_exec_init(&r->x, r->dev, &r->tmp, XD_F32);
    r->x.lay = &r->lay;
    for (int i = 0; i < XD_NAXES; i++)
        r->topo.deg.n[i] = 1;
}

void one_rank_close(one_rank *r)
{
    xd_method_stack_close(&r->stack);
    r->dev->mem->put(r->dev, r->mem, BLOCK);
    xd_dev_close(&r->dev);
}

void one_rank_use(one_rank *r, const xd_method *const *list, xd_method_args a)
{
    xd_err e = { 0 };
    a.what = XD_FOR_DIT, a.topo = &r->topo, a.lay = &r->lay, a.dev = r->dev, a.act = XD_F32;
    a.group = 1;
    assert_int_equal(xd_method_stack_open_of(&r->stack, list, &a, &e), XD_OK);
    r->x.hooks = r->stack.head;
}

int one_rank_attend(one_rank *r, float *q, float *k, float *v, int64_t tokens, int64_t heads,
                    int64_t dim, float *out)
{
    const int64_t d[3] = { tokens, heads, dim };
    const size_t  mark = xd_arena_mark(&r->tmp);
    xd_tensor     t = xd_attn(&r->x, xd_view(q, XD_F32, 3, d), xd_view(k, XD_F32, 3, d),
                              xd_view(v, XD_F32, 3, d), 0);
    const int     ok = xd_ok(&r->x);
    if (ok)
        memcpy(out, t.p, (size_t)(tokens * heads * dim) * sizeof *out);
    xd_arena_rewind(&r->tmp, mark);
    return ok;
}
