/* pass.h - private to module: defines the state of one forward pass of a transformer, and checks
 * the pass's arguments. */
#ifndef XD_MODULE_PASS_H
#define XD_MODULE_PASS_H

#include "module/inside.h"

typedef struct xd_pass_run {    /* state of one forward pass                                   */
    xd_module *m;
    xd_pass    p;               /* the program's arguments                                     */
    /* Views of the program's arrays; nd 0: the program has passed no array. */
    xd_tensor  latents, reference, text, image, pooled;
    int        tokens;          /* 1: latents have the shape [N,F] (tokens); 0: [C,T,h,w]      */
    int64_t    cells[3];        /* extents of the latents in cells: t, h, w                    */
    int64_t    F, extra;        /* features of a token: from the latents; from extra channels    */
    xd_layout  lay;
    xd_grid   *refs;
    int64_t    rows;            /* number of text rows, padded to the transformer's multiple   */
    xd_exec    x;
    xd_cond    cond;
    xd_input   in;
    void      *local;
} xd_pass_run;

/* Checks the program's arguments t->p, and computes the other fields up to `rows` from them.
 * XD_EINVAL: the transformer does not accept the arguments. t->refs is malloc'ed. */
xd_status xd_pass_run_check(xd_pass_run *t, xd_err *e);

#endif
