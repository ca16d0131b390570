/* one_rank.h - what attention runs on in the tests of parallel methods: one rank on the CPU, in
 * f32, with a stack of methods. A failure fails the cmocka test that calls. */
#ifndef XD_TESTS_ONE_RANK_H
#define XD_TESTS_ONE_RANK_H

#include "exec/op.h"
#include "parallel/method.h"

typedef struct one_rank {
    xd_dev         *dev;
    void           *mem;
    xd_arena        tmp;
    xd_exec         x;
    xd_layout       lay;
    xd_topo         topo;
    xd_method_stack stack;
} one_rank;

/* grid: frames, rows and columns of image tokens; text, padding: other tokens, which come before
 * them. `r` may be uninitialized; it must not move until it is closed. */
void one_rank_open(one_rank *r, const int64_t *grid, int64_t text, int64_t padding);
void one_rank_close(one_rank *r);

/* Opens the stack of `list`, which NULL ends. Of `a` the caller sets what its methods read: heads,
 * head_dim, window, sites, ...; the rest is set here. */
void one_rank_use(one_rank *r, const xd_method *const *list, xd_method_args a);

/* Attention of q, k, v [tokens][heads][dim] by the stack, into `out` of the same shape. The rank's
 * step, pass and layer are those of r->x. Returns 0 where it fails: r->x.err says why. */
int one_rank_attend(one_rank *r, float *q, float *k, float *v, int64_t tokens, int64_t heads,
                    int64_t dim, float *out);

#endif
