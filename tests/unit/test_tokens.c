/* test_tokens.c - uneven cuts: nothing lost, nothing twice, in proportion */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "exec/tokens.h"

static uint64_t seed = 7;

static int die(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static void parts_cover_the_whole(void **state)
{
    (void)state;
    for (int k = 0; k < 2000; k++) {
        int     n = 1 + die(9);
        int64_t at[10] = { 0 }, len = die(300), next = 5;
        for (int i = 0; i < n; i++)
            at[i + 1] = at[i] + 1 + die(32);
        for (int i = 0; i < n; i++) {
            xd_span s = xd_cut_at((xd_span){ 5, len }, i, n, at);
            double  want = (double)len * (double)(at[i + 1] - at[i]) / (double)at[n];
            assert_int_equal(s.start, next);
            assert_true(fabs((double)s.n - want) <= 1);
            next += s.n;
        }
        assert_int_equal(next, 5 + len);
    }
}

static void even_weights_are_no_weights(void **state)
{
    static const int64_t at[6] = { 0, 32, 64, 96, 128, 160 };
    (void)state;
    for (int64_t len = 0; len < 40; len++)
        for (int i = 0; i < 5; i++) {
            xd_span a = xd_cut((xd_span){ 0, len }, i, 5),
                    b = xd_cut_at((xd_span){ 0, len }, i, 5, at);
            assert_int_equal(a.start, b.start);
            assert_int_equal(a.n, b.n);
        }
}

/* Of a layout with patches, text and uneven ranks every token has one owner. */
static void tokens_have_one_owner(void **state)
{
    static const int64_t at[4] = { 0, 32, 48, 49 };
    xd_layout l = { .len = { 61, 17 }, .npatch = 3, .nsp = 3, .txt_patch = 1, .share = at };
    (void)state;
    for (int s = 0; s < 2; s++) {
        int owners[61] = { 0 };
        for (int sp = 0; sp < 3; sp++)
            for (int64_t row = 0, t; (t = xd_token(&l, (xd_stream_id)s, XD_ALL, sp, row)) >= 0;
                 row++)
                owners[t]++;
        for (int64_t t = 0; t < l.len[s]; t++)
            assert_int_equal(owners[t], 1);
    }
    assert_int_equal(xd_own(&l, XD_TXT, 1, 0).n, 11);
    assert_int_equal(xd_own(&l, XD_TXT, 0, 0).n, 0);
    l.len[XD_PAD] = 7; /* with the text, and cut as it is */
    assert_int_equal(xd_own(&l, XD_PAD, 1, 0).n, 4);
    assert_int_equal(xd_own(&l, XD_PAD, 2, 0).n, 0);
}

/* A run ends where the next row's token does not follow, for all rows and for those of a patch. */
static void runs_are_consecutive(void **state)
{
    static const int64_t at[4] = { 0, 32, 48, 49 };
    xd_layout l = { .len = { 61, 17 }, .npatch = 3, .nsp = 3, .txt_patch = 1, .share = at };
    (void)state;
    for (int s = 0; s < 2; s++)
        for (int patch = XD_ALL; patch < 3; patch++)
            for (int sp = 0; sp < 3; sp++) {
                int64_t row = 0;
                for (int64_t t; (t = xd_token(&l, (xd_stream_id)s, patch, sp, row)) >= 0; row++) {
                    int64_t n = 1;
                    while (xd_token(&l, (xd_stream_id)s, patch, sp, row + n) == t + n)
                        n++;
                    assert_int_equal(xd_token_run(&l, (xd_stream_id)s, patch, sp, row), n);
                }
                assert_int_equal(xd_token_run(&l, (xd_stream_id)s, patch, sp, row), 0);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_the_whole),
        cmocka_unit_test(even_weights_are_no_weights),
        cmocka_unit_test(tokens_have_one_owner),
        cmocka_unit_test(runs_are_consecutive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
