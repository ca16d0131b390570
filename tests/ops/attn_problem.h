/* attn_problem.h - what the tests of attention share: random operands with guards around them,
 * exact results in double precision, and the variants of all instruction sets that are compared
 * with them.
 *
 * Tolerances: 2e-5 of the largest output for f32 products and results, 1e-2 where products or
 * results are bf16; log-sum-exp 2e-5 (bf16 products: 1e-2) of max(1, |lse|). */
#ifndef XD_TESTS_OPS_ATTN_PROBLEM_H
#define XD_TESTS_OPS_ATTN_PROBLEM_H

#include "backend/cpu/cpu.h"

enum { MAXSEG = 4 };

typedef struct variant {
    const char *name;
    size_t      (*scratch)(const xd_attn_args *a, int threads);
    xd_status   (*run)(const xd_attn_args *a, void *tmp);
    xd_isa      needs;
    int         pairs; /* bf16 products of bf16 operands */
} variant;

typedef struct shape {
    int64_t  B, n, H, Hk, D, seg[MAXSEG];
    xd_dtype type, out;
    int64_t  window;
    int      causal, bias, len; /* bias 1: rows of keys, 2: any strides; len: kv_len */
    int      layout;            /* 0: [B,n,H,D], 1: [B,H,n,D], 2: gaps everywhere */
    float    scale, softcap;
} shape;

typedef struct problem {
    shape        s;
    int64_t      m, len[4];
    xd_tensor    k, v; /* all keys in one */
    xd_kv        kv[MAXSEG];
    xd_attn_args a;         /* without out and lse */
    float       *rows[3];   /* q [B,H,n,D], k and v [B,Hk,m,D], as floats */
    double      *out, *lse; /* exact: [B,n,H,D], [B,n,H] */
    double       largest;
} problem;

typedef struct attn_test {
    const char *name;
    void        (*fn)(void **state);
} attn_test;

extern uint64_t seed; /* of the random numbers */

/* Less than `below`. */
uint32_t draw(uint32_t below);

/* A tensor [B,n,H,D] in memory that is all guard bytes, some before and behind too. */
xd_tensor alloc(xd_dtype t, int layout, int64_t B, int64_t n, int64_t H, int64_t D);
void      drop(xd_tensor *x);
float     get(const xd_tensor *x, int64_t b, int64_t i, int64_t h, int64_t c);
void      put(const xd_tensor *x, int64_t b, int64_t i, int64_t h, int64_t c, float v);

/* Puts the guard bytes back into the elements; then all of the memory must be guard bytes. */
void assert_guarded(const xd_tensor *x);

/* After a change of the operands. */
void solve_again(problem *p);
void cut(problem *p, const int64_t *seg);
void make(problem *p, const shape *c);
void unmake(problem *p);

/* Runs into fresh out and lse. Of pieces (`part`) only the numbers of queries are read: they are
 * cut out of q and out. The scratch holds nothing but NaNs and ends in guard bytes. */
void run(const variant *v, xd_attn_args *a, xd_dtype out, int layout);
void end(xd_attn_args *a);
void compare(const problem *p, const variant *v, const xd_attn_args *a);
void check(const variant *v, const shape *c);

/* NULL, with the reason printed, where this processor cannot run the variant: meson takes cmocka's
 * own way of skipping for a failure. */
const variant *available(void **state);
void           assert_same_bits(const xd_attn_args *x, const xd_attn_args *y, int64_t first);

/* Runs all of n tests for every variant, and `once`, if there is such, once; what main returns. */
int run_every(const char *group, const attn_test *tests, size_t n, void (*once)(void **state));

#endif
