/* operands.h - what the tests of kernels share: random operands with guards around them, values of
 * any type, comparison with a reference in double precision */
#ifndef XD_TESTS_OPS_OPERANDS_H
#define XD_TESTS_OPS_OPERANDS_H

#include "backend/backend.h"

enum { GUARD = 192 }; /* bytes around an operand */
extern xd_dev *dev;   /* the device under test */

extern uint64_t state; /* of the random numbers: a seed */

uint64_t  any(void);
int64_t   upto(int64_t n);
double    real(void);
void      fresh(void);
void     *element(const xd_tensor *t, int64_t i);
double    value(const void *p, xd_dtype t);
double    at(const xd_tensor *t, int64_t i);
double    at2(const xd_tensor *t, int64_t i, int64_t j);
void      set(const xd_tensor *t, int64_t i, double v);
xd_tensor operand_at(xd_dtype type, int nd, const int64_t *d, int64_t gap, int64_t shift);
xd_tensor operand(xd_dtype type, int nd, const int64_t *d, int64_t gap);
xd_tensor matrix(xd_dtype type, int64_t rows, int64_t cols, int64_t gap);
void      remember(void);
/* `out` may have changed since remember(). */
void      allow(const xd_tensor *out);
double    tolerance(xd_dtype t);
/* `out` holds `want`, and nothing else has changed since remember(). */
void      check(const char *what, const xd_tensor *out, const double *want);
void     *scratch_for(xd_op op, const void *args, size_t *n);
void      scratch_done(const char *what, void *tmp, size_t n);
double   *numbers(int64_t n);
double    act_of(double v, xd_act act);
xd_dtype  half(void);
xd_dtype  f32_or_half(void);
xd_dtype  compute_type(void);
xd_dtype  bias_type(void);
xd_tensor maybe(xd_tensor t);
/* F32 [n,C], one row, or absent. */
xd_tensor row_operand(int64_t n, int64_t C);
/* 0: a library multiplies. It may add in another order where rows, addresses or strides differ, and
 * its GELU is an approximation of 2^-11. */
int       own_products(void);

#define RUN(op, OP, args) RUN_AS(#op, op, OP, args)
#define RUN_AS(what, op, OP, args)                                                          \
    do {                                                                                    \
        size_t run_n;                                                                       \
        void  *run_tmp = scratch_for(OP, args, &run_n);                                     \
        int    run_s = (int)dev->ops->op(dev, NULL, args, run_tmp);                         \
        if (run_s)                                                                          \
            fail_msg("%s: status %d", what, run_s);                                         \
        scratch_done(what, run_tmp, run_n);                                                  \
    } while (0)

/* Packs a weight and checks that nothing outside its memory is written; unpack frees it. */
void pack(xd_weight *w, xd_tensor src);
void unpack(xd_weight *w);

/* test_quant.c */
void test_quant_types(void **unused);
void test_quant_gemm(void **unused);
void test_quant_fp8(void **unused);
void test_quant_norm(void **unused);
void test_quant_wide(void **unused);
void test_quant_error(void **unused);
void test_quant_rows(void **unused);
void test_quant_odd(void **unused);
void test_quant_scales(void **unused);
void test_quant_refusals(void **unused);

/* test_qknorm.c */
void test_norm(void **unused);
void test_norm_adds(void **unused);
void test_norm_offset(void **unused);
void test_qknorm(void **unused);
void test_qknorm_also(void **unused);
void test_qknorm_refusals(void **unused);
void test_rotate(void **unused);
void test_rotation_bits(void **unused);
void test_rotate_refusals(void **unused);
void test_linattn(void **unused);
void test_code(void **unused);
void test_attn_pieces(void **unused);
void test_attn_many(void **unused);

/* test_backend.c */
void test_resize(void **unused);
void test_lookup(void **unused);
void test_copy(void **unused);
void test_conversions(void **unused);
void test_threads(void **unused);
void test_memory(void **unused);
void test_names(void **unused);
void test_count(void **unused);
void test_peak(void **unused);

#endif
