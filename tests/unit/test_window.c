/* test_window.c - attention_window on one rank against attention with the mask it stands for, in
 * double precision: 1e-5 of the largest value. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "one_rank.h"

enum { H = 2, D = 8, MOST = 1200 };

extern const xd_method xd_method_window;

typedef struct setup {
    one_rank r;
    float    q[MOST * H * D], k[MOST * H * D], v[MOST * H * D], out[MOST * H * D];
    int64_t  n, others;
} setup;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Of an axis of n tokens cut into tiles of at most `most`, and boxes of `size`: does token i see
 * token j? */
static int sees_along(int64_t n, int64_t size, int64_t most, int64_t i, int64_t j)
{
    if (!size || size >= n)
        return 1;
    most = least(most, size);
    const int64_t tiles = (n + most - 1) / most;
    int64_t       t = 0;
    while (i >= n * (t + 1) / tiles)
        t++;
    const int64_t first = n * t / tiles, end = n * (t + 1) / tiles;
    int64_t       lo = first + end > size ? (first + end - size) / 2 : 0;
    lo = least(lo, n - size);
    return j >= lo && j < lo + size;
}

static int sees(const setup *s, const int64_t *size, int64_t i, int64_t j)
{
    static const int64_t most[3] = { 4, 10, 16 };
    const int            line = size[0] < 0;
    const int64_t       *g = s->r.lay.grid;
    if (i < s->others || j < s->others)
        return 1;
    i -= s->others, j -= s->others;
    if (line)
        return i - j <= size[2] / 2 && j - i <= size[2] / 2;
    const int64_t a[3] = { i / g[2] / g[1], i / g[2] % g[1], i % g[2] },
                  b[3] = { j / g[2] / g[1], j / g[2] % g[1], j % g[2] };
    for (int k = 0; k < 3; k++)
        if (!sees_along(g[k], size[k], most[k], a[k], b[k]))
            return 0;
    return 1;
}

static void open_setup(setup *s, const int64_t *grid, int64_t text, const int64_t *size)
{
    static const xd_method *const list[] = { &xd_method_window, NULL };
    s->others = text + text / 2;
    s->n = s->others + grid[0] * grid[1] * grid[2];
    assert_true(s->n <= MOST);
    one_rank_open(&s->r, grid, text, text / 2);
    one_rank_use(&s->r, list, (xd_method_args){ .heads = H, .head_dim = D, .window = size });
    xd_noise_philox(s->q, 0, s->n * H * D, 1);
    xd_noise_philox(s->k, 0, s->n * H * D, 2);
    xd_noise_philox(s->v, 0, s->n * H * D, 3);
}

/* Output c of query i of head h, and the number of keys that it sees. */
static double expected(const setup *s, const int64_t *size, int64_t i, int h, int c, int64_t *keys)
{
    double top = -INFINITY, sum = 0, out = 0;
    *keys = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < s->n; j++) {
            double x = 0;
            if (!sees(s, size, i, j))
                continue;
            for (int d = 0; d < D; d++)
                x += (double)s->q[(i * H + h) * D + d] * (double)s->k[(j * H + h) * D + d];
            x /= sqrt(D);
            if (!pass) {
                top = fmax(top, x);
                ++*keys;
                continue;
            }
            sum += exp(x - top);
            out += exp(x - top) * (double)s->v[(j * H + h) * D + c];
        }
    return out / sum;
}

static void check(const int64_t *grid, int64_t text, const int64_t *size)
{
    static setup s;
    int64_t      seen = 1;
    open_setup(&s, grid, text, size);
    assert_true(one_rank_attend(&s.r, s.q, s.k, s.v, s.n, H, D, s.out));
    for (int i = 0; i < 3 && size[0] >= 0; i++)
        seen *= size[i] ? least(size[i], grid[i]) : grid[i];
    for (int64_t i = 0; i < s.n; i += s.n > 400 ? 7 : 1)
        for (int h = 0; h < H; h++) {
            int64_t      keys;
            const double e = expected(&s, size, i, h, 3, &keys),
                         g = (double)s.out[(i * H + h) * D + 3];
            if (size[0] >= 0) /* boxes move inwards at the edges */
                assert_int_equal(keys, i < s.others ? s.n : s.others + seen);
            if (!(fabs(g - e) <= 1e-5 * 4))
                fail_msg("grid %d %d %d: query %d is %g, not %g", (int)grid[0], (int)grid[1],
                         (int)grid[2], (int)i, g, e);
        }
    one_rank_close(&s.r);
}

static void tiles_see_their_boxes(void **state)
{
    static const struct {
        int64_t grid[3], text, size[3];
    } cases[] = {
        { { 3, 7, 9 }, 5, { 2, 3, 4 } },      { { 3, 7, 9 }, 0, { 0, 3, 0 } },
        { { 1, 20, 40 }, 7, { 0, 12, 21 } },  { { 9, 10, 11 }, 4, { 5, 0, 3 } },
        { { 5, 4, 3 }, 3, { 1, 1, 1 } },      { { 6, 5, 7 }, 2, { 5, 4, 6 } },
        { { 2, 11, 33 }, 1, { 1, 0, 0 } },    { { 2, 11, 33 }, 1, { -1, 0, 129 } },
        { { 1, 9, 9 }, 3, { -1, 0, 21 } },    { { 1, 9, 9 }, 3, { -1, 0, 3 } },
        { { 1, 13, 10 }, 0, { -1, 0, 255 } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(cases[i].grid, cases[i].text, cases[i].size);
}

/* Of a model that does not attend to all of its tokens in order the request fails, and says why. */
static void other_attention_is_refused(void **state)
{
    static setup  s;
    const int64_t grid[3] = { 3, 7, 9 }, size[3] = { 1, 3, 3 };
    (void)state;
    open_setup(&s, grid, 4, size);
    int64_t all[3] = { s.n, H, D }, half[3] = { s.n / 2, H, D };
    xd_attn(&s.r.x, xd_view(s.q, XD_F32, 3, all), xd_view(s.k, XD_F32, 3, half),
            xd_view(s.v, XD_F32, 3, half), 0);
    assert_false(xd_ok(&s.r.x));
    assert_non_null(strstr(s.r.x.err.msg, "attention_window"));
    one_rank_close(&s.r);
}

/* Boxes of the whole image leave the stack empty. */
static void no_window_is_no_method(void **state)
{
    static setup  s;
    const int64_t grid[3] = { 3, 7, 9 }, size[3] = { 0, 0, 0 };
    (void)state;
    open_setup(&s, grid, 4, size);
    assert_ptr_equal(s.r.stack.head, &xd_hooks_local);
    one_rank_close(&s.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_see_their_boxes),
        cmocka_unit_test(other_attention_is_refused),
        cmocka_unit_test(no_window_is_no_method),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
