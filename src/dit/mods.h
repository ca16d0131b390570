/* mods.h - modulation vectors (adaLN) of several steps, computed together
 *
 * The modulations of a block are a matrix times one row, which depends on the timestep and, in some
 * models, on the text's pooled embedding. Such a GEMM takes as long as reading the matrix. The
 * timesteps of all steps are known, so the first of XD_MOD_STEPS steps computes the rows of all of
 * them, and the others read the results: the matrices are read once in XD_MOD_STEPS steps, for all
 * patches.
 *
 * A device whose memory the host cannot address may record a pass with its addresses. On such a
 * device the rows of the current step are copied to a fixed address before the pass, and matrices
 * read by earlier passes are multiplied before it; the pass itself only multiplies new matrices. */
#ifndef XD_DIT_MODS_H
#define XD_DIT_MODS_H

#include "dit/dit.h"

enum { XD_MOD_STEPS = 8 };      /* steps whose modulations are computed together               */

typedef struct xd_mods {        /* for the passes with the same timesteps and text              */
    xd_tensor in;               /* [XD_MOD_STEPS,E]: one row per step, in the compute type        */
    xd_tensor all;              /* [XD_MOD_STEPS, width] F32: modulations of the stage's blocks  */
    xd_tensor now_in, now;      /* [1,E] and [1,width] of the current step; or none            */
    int       begin, n;         /* steps [begin, begin + n); n 0: none yet                       */
    int       row;              /* row of the current step                                    */
    int64_t   used;             /* assigned columns of `all`                                   */
    int       known, computed;  /* matrices with columns; matrices whose columns are filled    */
    int64_t   room;
    struct xd_mod_columns { const xd_lin *w; int64_t at; } *columns;    /* [room]               */
} xd_mods;

/* Allocates the memory in x's arena. Models without xd_dit.active need none, nor do blocks whose
 * weights are streamed to a device. */
void xd_mods_open(xd_mods *m, xd_exec *x, const xd_dit *d, const xd_net *n);
void xd_mods_close(xd_mods *m);
/* Call before the passes of `step`: computes the rows of this step and of following steps before
 * `end`, at time[step] and so on. `in` and `kept` are those of the pass. Sets x->mods. */
void xd_mods_step(xd_mods *m, xd_exec *x, const xd_dit *d, const xd_net *n, const xd_input *in,
                  const void *kept, const double *time, int step, int end);

/* Returns the input of the current step's modulations, [1,E] in the compute type: a row of x->mods,
 * or of the model's `active`. */
xd_tensor xd_mods_input(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept,
                        xd_tensor (*active)(xd_exec *x, const xd_net *n, const xd_input *in,
                                            const void *kept));
/* Returns the k modulation vectors of width D of a block: the GEMM of `active` and w as [k,D] F32,
 * in the arena or in x->mods, from where later patches and passes read them: do not write to
 * them. */
xd_tensor xd_mod_rows(xd_exec *x, xd_tensor active, const xd_lin *w, int k);

#endif
