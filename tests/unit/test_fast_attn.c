/* test_fast_attn.c - attentions that are shared, on one rank: the outputs of steps and passes are
 * composed of those of all keys and of the window, to 1e-6. Which of them, the table says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "one_rank.h"
#include "parallel/fast_attn.h"

enum { H = 2, D = 8, ROWS = 5 * 7 + 3, N = ROWS * H * D, STEPS = 6 };

extern const xd_method xd_method_window, xd_method_fast_attn;

typedef struct setup {
    one_rank      r;
    xd_attn_table table;
    uint8_t       way[STEPS], found[STEPS];
    float         q[N], k[N], v[N];
} setup;

static const int64_t size[3] = { 0, 3, 3 };

static void open_stack(setup *s, const xd_method *const *list)
{
    one_rank_use(&s->r, list,
                 (xd_method_args){ .heads = H,
                                   .head_dim = D,
                                   .window = size,
                                   .sites = 1,
                                   .last = 1,
                                   .npass = 2,
                                   .ways = &s->table });
}

static void open_setup(setup *s, const uint8_t *way)
{
    static const int64_t grid[3] = { 1, 5, 7 };
    one_rank_open(&s->r, grid, 3, 0);
    memset(s->found, 0, STEPS);
    memcpy(s->way, way, STEPS);
    s->table = (xd_attn_table){ .blocks = 1, .steps = STEPS, .way = s->way };
}

/* Of the numbers of a draw. */
static void attend_to(setup *s, int draw, int step, int pass, float *out)
{
    xd_noise_philox(s->q, 0, N, (int64_t)(100 * draw + pass));
    xd_noise_philox(s->k, 0, N, (int64_t)(100 * draw + 10 + pass));
    xd_noise_philox(s->v, 0, N, (int64_t)(100 * draw + 20 + pass));
    s->r.x.step = step, s->r.x.pass = pass, s->r.x.layer = s->r.x.site = 0;
    assert_true(one_rank_attend(&s->r, s->q, s->k, s->v, ROWS, H, D, out));
}

static void attend(setup *s, int step, int pass, float *out)
{
    attend_to(s, step, step, pass, out);
}

/* Outputs of all keys, or of windows, by a stack without the method. */
static void attend_plainly(setup *s, int windows, float out[STEPS][2][N])
{
    static const xd_method *const none[] = { NULL }, *const window[] = { &xd_method_window, NULL };
    open_stack(s, windows ? window : none);
    for (int i = 0; i < STEPS; i++)
        for (int p = 0; p < 2; p++)
            attend(s, i, p, out[i][p]);
    xd_method_stack_close(&s->r.stack);
}

static void near(const float *got, const float *a, const float *b, const float *c, const char *what)
{
    for (int i = 0; i < N; i++) {
        double want = a[i] + (b ? (double)b[i] - (double)c[i] : 0);
        if (!(fabs((double)got[i] - want) <= 1e-6 * 4))
            fail_msg("%s: number %d is %g, not %g", what, i, (double)got[i], want);
    }
}

static const xd_method *const both[] = { &xd_method_fast_attn, &xd_method_window, NULL };
static float                  full[STEPS][2][N], windowed[STEPS][2][N], got[STEPS][2][N];

static void ways_are_taken(void **state)
{
    static const uint8_t way[STEPS] = { XD_ATTN_FULL,     XD_ATTN_WINDOW,     XD_ATTN_SHARE,
                                        XD_ATTN_FULL_CFG, XD_ATTN_WINDOW_CFG, XD_ATTN_SHARE };
    static setup         s;
    (void)state;
    open_setup(&s, way);
    attend_plainly(&s, 0, full);
    attend_plainly(&s, 1, windowed);
    open_stack(&s, both);
    for (int turn = 0; turn < 2; turn++) { /* the second image takes nothing of the first */
        for (int i = 0; i < STEPS; i++)
            for (int p = 0; p < 2; p++)
                attend(&s, i, p, got[i][p]);
        for (int p = 0; p < 2; p++) {
            near(got[0][p], full[0][p], NULL, NULL, "the first step");
            near(got[1][p], windowed[1][p], full[0][p], windowed[0][p], "a window and the rest");
            near(got[2][p], got[1][p], NULL, NULL, "the output of the step before");
            near(got[3][p], full[3][0], NULL, NULL, "the prompt's output");
            near(got[4][p], windowed[4][0], full[3][0], windowed[3][0], "the prompt's window");
            near(got[5][p], got[4][0], NULL, NULL, "the prompt's output of the step before");
        }
    }
    one_rank_close(&s.r);
}

/* Nothing is taken that is not there: of a first step, and of a pass with other rows. */
static void what_is_absent_is_computed(void **state)
{
    static const uint8_t way[STEPS] = { XD_ATTN_SHARE, XD_ATTN_WINDOW, XD_ATTN_FULL_CFG };
    static setup         s;
    (void)state;
    open_setup(&s, way);
    attend_plainly(&s, 0, full);
    open_stack(&s, both);
    attend(&s, 0, 0, got[0][0]);
    near(got[0][0], full[0][0], NULL, NULL, "a first step");
    attend(&s, 2, 1, got[2][1]);
    near(got[2][1], full[2][1], NULL, NULL, "a pass without that of the prompt");
    one_rank_close(&s.r);
}

/* A table is found by what each way would have missed: of noise that each step draws anew nothing
 * is alike, and of an output that does not change the whole can be shared. */
static void tables_are_found(void **state)
{
    static const uint8_t way[STEPS] = { XD_ATTN_FULL, XD_ATTN_FULL, XD_ATTN_FULL,
                                        XD_ATTN_FULL, XD_ATTN_FULL, XD_ATTN_FULL };
    static setup         s;
    (void)state;
    for (int same = 0; same < 2; same++) {
        open_setup(&s, way);
        s.table.limit = 0.1, s.table.found = s.found;
        open_stack(&s, both);
        for (int i = 0; i < STEPS; i++)
            for (int p = 0; p < 2; p++)
                attend_to(&s, same ? 0 : i, i, p, got[i][p]);
        xd_method_stack_close(&s.r.stack);
        assert_int_equal(s.found[0], XD_ATTN_FULL);
        for (int i = 1; i < STEPS; i++)
            assert_int_equal(s.found[i], same ? XD_ATTN_SHARE : XD_ATTN_FULL);
        one_rank_close(&s.r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ways_are_taken),
        cmocka_unit_test(what_is_absent_is_computed),
        cmocka_unit_test(tables_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
