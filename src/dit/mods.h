/* mods.h - computes the modulation vectors (adaLN) of several denoising steps together.
 *
 * The modulation vectors of a block are a weight matrix times one input row, which depends on the
 * timestep and, in some models, on the text's pooled embedding. A GEMM with one row takes as long
 * as reading the weight matrix. All timesteps are known in advance, so the first of XD_MOD_STEPS
 * steps computes the modulations of all these steps, and the other steps only read the results. The
 * weight matrices are therefore read only once in XD_MOD_STEPS steps, for all patches of
 * PipeFusion.
 *
 * A device whose memory the host cannot address may record the kernel launches of a forward pass,
 * and replay them later with the same tensor addresses. On devices that record launches, the
 * modulations of the current step are copied to a fixed address before the forward pass. Before a
 * forward pass, the input rows are multiplied by all weight matrices that an earlier forward pass
 * has used. During the forward pass, the input rows are multiplied only by the matrices that are
 * used for the first time. */
#ifndef XD_DIT_MODS_H
#define XD_DIT_MODS_H

#include "dit/dit.h"

enum { XD_MOD_STEPS = 8 }; /* number of steps whose modulations are computed together */

/* Modulations for all forward passes that have the same timesteps and the same text. */
typedef struct xd_mods {
    int       rows; /* number R of input rows per step (xd_dit.active_rows) */
    /* [XD_MOD_STEPS R,E]: input rows in the compute type, step after step */
    xd_tensor in;
    /* [XD_MOD_STEPS R, width] F32: one row of modulations for each input row. The columns are the
     * modulations of all blocks of this pipeline stage. */
    xd_tensor all;
    /* Copies of the current step's rows of `in` and `all`, at fixed addresses: now_in [R,E] and now
     * [R,width]; or absent. */
    xd_tensor now_in, now;
    /* the modulations of steps [begin, begin + n) are computed */
    int       begin, n;
    int       row;  /* index of the current step's first row */
    int64_t   used; /* number of columns of `all` that are assigned to matrices */
    /* `known` is the number of weight matrices to which columns of the tensor `all` are assigned,
     * and `computed` tells for how many of them the modulations are computed. */
    int       known, computed;
    int64_t   room;
    /* Array of weight matrices; memory is allocated for `room` elements. Each element consists of a
     * weight matrix w and of `at`, the first column of its modulations in `all`. */
    struct xd_mod_columns {
        const xd_lin *w;
        int64_t       at;
    } *columns;
} xd_mods;

/* Allocates memory for modulations in the arena of x. Nothing is allocated for models without
 * xd_dit.active, or for blocks whose weights are copied to the device each time they are used. */
void xd_mods_open(xd_mods *m, xd_exec *x, const xd_dit *d, const xd_net *n);
void xd_mods_close(xd_mods *m);
/* Call xd_mods_step before the forward passes of step `step`. Computes the modulations of `step`
 * and of the following steps before `end`, unless they are already computed. time[0][i] is the
 * timestep of step i, and time[1][i] the timestep of audio; `in` and `kept` are inputs of the
 * forward passes. xd_mods_step sets x->mods to m. */
void xd_mods_step(xd_mods *m, xd_exec *x, const xd_dit *d, const xd_net *n, const xd_input *in,
                  const void *kept, const double *const time[2], int step, int end);

/* Returns the R input rows from which the current step's modulations are computed, [R,E] in the
 * compute type. If x->mods is set, returns rows of x->mods; otherwise calls the model's function
 * `active`. */
xd_tensor xd_mods_input(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept,
                        xd_tensor (*active)(xd_exec *x, const xd_net *n, const xd_input *in,
                                            const void *kept));
/* Returns the k modulation vectors of width D of a block, [k,D] F32: the input row `active` times
 * the weight matrix w. The modulation vectors are in the arena or in x->mods. The caller must not
 * change the modulation vectors, because later patches and forward passes read them from
 * x->mods. */
xd_tensor xd_mod_rows(xd_exec *x, xd_tensor active, const xd_lin *w, int k);
/* Sets sets[r] to the modulation vectors [k,D] of input row r, for each of the R rows of
 * `active`. */
void      xd_mod_sets(xd_exec *x, xd_tensor active, const xd_lin *w, int k, xd_tensor *sets);

#endif
