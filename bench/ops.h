/* ops.h - what bench/ops shares with its calls of oneDNN */
#ifndef XD_BENCH_OPS_H
#define XD_BENCH_OPS_H

#include "backend/backend.h"

typedef union args { /* of one op */
    xd_gemm       gemm;
    xd_attn_args  attn;
    xd_norm       norm;
    xd_moments    moments;
    xd_gnorm      gnorm;
    xd_glu        glu;
    xd_addmul     addmul;
    xd_axpby_args axpby;
    xd_conv       conv;
    xd_resize     resize;
    xd_lookup     lookup;
    xd_copy       copy;
    xd_qknorm     qknorm;
    xd_rotate     rotate;
    xd_linattn    linattn;
    xd_code       code;
} args;

/* Median seconds of the same work by oneDNN, called directly with weights in the layout that it
 * asks for: products and convolutions with what it can fuse, layer norms of one type without
 * modulation, attention as product, softmax, product (all scores in memory). 0: it has nothing
 * for this op. */
double lib_seconds(xd_dev *dev, xd_op op, const args *a, double budget);
/* The median of the calls that fit into `budget` seconds (at least 3), after one that does not
 * count; 0 when a call fails. */
double median_seconds(xd_status (*call)(void *ctx), void *ctx, double budget);

#endif
