/* mods.h - modulation vectors (adaLN) of several steps at once
 *
 * The modulations of a block are a matrix times one row, which depends on the time, and in some
 * models on the text's pooled embedding. Such a product takes as long as reading the matrix. The
 * times of all steps are known, so the first of STEPS steps computes the rows of all of them, and
 * the others read the result: the matrices are read once in STEPS steps, and once for all patches
 * of a step.
 *
 * A device whose memory the host does not reach may record the addresses of a pass. There the rows
 * of the current step are copied to a fixed place before the pass, and the matrices that earlier
 * passes have read are multiplied before it; a pass itself multiplies those that are new. */
#ifndef XD_DIT_MODS_H
#define XD_DIT_MODS_H

#include "dit/dit.h"

enum { XD_MOD_STEPS = 8 };      /* steps whose modulations are computed together               */

typedef struct xd_mods {        /* of the passes that share the times and the text              */
    xd_tensor in;               /* [XD_MOD_STEPS, E]: a row for each step, in the compute type    */
    xd_tensor all;              /* [XD_MOD_STEPS, width] F32: modulations of the stage's blocks  */
    xd_tensor now_in, now;      /* [1, E] and [1, width]: the current step's; or none          */
    int       begin, n;         /* the steps [begin, begin + n); n 0: none yet                   */
    int       row;              /* of the current step                                        */
    int64_t   used;             /* columns of `all` that have a matrix                         */
    int       known, computed;  /* matrices that have columns; of these the first are filled   */
    int64_t   room;
    struct xd_mod_columns { const xd_lin *w; int64_t at; } *columns;    /* [room]               */
} xd_mods;

/* Takes the memory from x's arena. A model without xd_dit.active gets none, nor do blocks whose
 * weights are streamed to a device. */
void xd_mods_open(xd_mods *m, xd_exec *x, const xd_dit *d, const xd_net *n);
void xd_mods_close(xd_mods *m);
/* Before the passes of `step`: the rows of this step, and of those before `end` that follow, at
 * time[step] and so on. `in` and `kept` are those of the pass. Sets x->mods. */
void xd_mods_step(xd_mods *m, xd_exec *x, const xd_dit *d, const xd_net *n, const xd_input *in,
                  const void *kept, const double *time, int step, int end);

/* What the modulations of the current step are computed from, [1, E] in the compute type: a row of
 * x->mods, or of the model's `active`. */
xd_tensor xd_mods_input(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept,
                        xd_tensor (*active)(xd_exec *x, const xd_net *n, const xd_input *in,
                                            const void *kept));
/* The k modulation vectors of width D of a block: the product of `active` and w as [k,D] F32, in
 * the arena or in x->mods, where later patches and passes read them again: they are not written. */
xd_tensor xd_mod_rows(xd_exec *x, xd_tensor active, const xd_lin *w, int k);

#endif
