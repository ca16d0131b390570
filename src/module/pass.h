/* pass.h - inside module: one pass of a transformer while it is checked and computed */
#ifndef XD_MODULE_PASS_H
#define XD_MODULE_PASS_H

#include "module/inside.h"

typedef struct xd_pass_run {    /* one pass                                                    */
    xd_module *m;
    xd_pass    p;               /* the program's arguments                                     */
    /* Views of the program's arrays; nd 0: absent. */
    xd_tensor  latents, reference, text, image, pooled;
    int        tokens;          /* 1: latents are tokens [N,F], 0: [C,T,h,w]                   */
    int64_t    cells[3];        /* size of the latents: t, h, w                                */
    int64_t    F, extra;        /* features of a token: from the latents; from extra channels  */
    xd_layout  lay;
    xd_grid   *refs;
    int64_t    rows;            /* rows of text, padded to a multiple                          */
    xd_exec    x;
    xd_cond    cond;
    xd_input   in;
    void      *local;
} xd_pass_run;

/* Checks the arguments t->p and derives the other fields up to `rows`. XD_EINVAL: the transformer
 * does not accept the arguments. t->refs is malloc'ed. */
xd_status xd_pass_run_check(xd_pass_run *t, xd_err *e);

#endif
