/* mods.h - computes the modulation vectors (adaLN) of several denoising steps together.
 *
 * The modulation vectors of a block are a weight matrix times one input row, which depends on the
 * timestep and, in some models, on the text's pooled embedding. The time of a GEMM with one row is
 * the time of reading the matrix. The timesteps of all steps are known, so the first of
 * XD_MOD_STEPS steps computes the modulations of all these steps, and the other steps read the
 * results. The matrices are thus read once in XD_MOD_STEPS steps, for all patches.
 *
 * A device whose memory the host cannot address may record the kernel launches of a pass with their
 * addresses. On such a device the modulations of the current step are copied to a fixed address
 * before the pass. Matrices that earlier passes have used are multiplied before the pass; the pass
 * itself only multiplies matrices that are used for the first time. */
#ifndef XD_DIT_MODS_H
#define XD_DIT_MODS_H

#include "dit/dit.h"

enum { XD_MOD_STEPS = 8 };      /* steps whose modulations are computed together               */

/* Modulations for forward passes with the same timesteps and text. */
typedef struct xd_mods {
    xd_tensor in;               /* [XD_MOD_STEPS,E] input rows, one per step, in the compute type */
    /* [XD_MOD_STEPS, width] F32: modulations of the blocks of this stage. */
    xd_tensor all;
    xd_tensor now_in, now;      /* [1,E] and [1,width]: rows of the current step; or absent    */
    int       begin, n;         /* the computed steps are [begin, begin + n); n 0: none yet      */
    int       row;              /* index of the current step's row                            */
    int64_t   used;             /* number of columns of `all` that are assigned to matrices    */
    /* Number of weight matrices that have columns of `all`, and of matrices already multiplied. */
    int       known, computed;
    int64_t   room;
    /* [room]: for each weight matrix w, the first column `at` of its modulations in `all`. */
    struct xd_mod_columns { const xd_lin *w; int64_t at; } *columns;
} xd_mods;

/* Allocates memory for modulations in x's arena. Models without xd_dit.active need no such memory,
 * and neither do blocks whose weights are streamed to a device. */
void xd_mods_open(xd_mods *m, xd_exec *x, const xd_dit *d, const xd_net *n);
void xd_mods_close(xd_mods *m);
/* Call before the passes of `step`: computes the modulations of this step and of following steps
 * before `end`, if they are not computed yet. time[i]: timestep of step i; in, kept: the inputs of
 * the passes. Sets x->mods to m. */
void xd_mods_step(xd_mods *m, xd_exec *x, const xd_dit *d, const xd_net *n, const xd_input *in,
                  const void *kept, const double *time, int step, int end);

/* Returns the input of the current step's modulations, [1,E] in the compute type: a row of x->mods,
 * or of the model's `active`. */
xd_tensor xd_mods_input(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept,
                        xd_tensor (*active)(xd_exec *x, const xd_net *n, const xd_input *in,
                                            const void *kept));
/* Returns the k modulation vectors of width D of a block, [k,D] F32: the result of the GEMM of
 * `active` and w. The vectors are in the arena or in x->mods, where later patches and passes read
 * them, so the caller must not change the vectors. */
xd_tensor xd_mod_rows(xd_exec *x, xd_tensor active, const xd_lin *w, int k);

#endif
