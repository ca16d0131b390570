/* pass.h - used only in src/module: defines the state of one forward pass of a transformer, and
 * checks the pass's arguments. */
#ifndef XD_MODULE_PASS_H
#define XD_MODULE_PASS_H

#include "module/inside.h"

typedef struct xd_pass_run { /* state of one forward pass */
    xd_module *m;
    xd_pass    p; /* the program's arguments */
    /* Views of the arrays that the program has passed. A tensor whose array the program has not
     * passed has 0 dimensions (nd). */
    xd_tensor  latents, reference, text, image, pooled;
    /* 1: latents are tokens of shape [N,F]; 0: latents have the shape [C,T,h,w] */
    int        tokens;
    int64_t    cells[3]; /* size of the latents: latent frames, rows and columns */
    /* Number of features that a token gets from the latents (F), and from additional channels that
     * the program passes (extra). */
    int64_t    F, extra;
    xd_tensor *residuals; /* [p.nresiduals] views of the residuals [n,D] */
    xd_layout  lay;
    xd_grid   *refs;
    /* number of text tokens, rounded up to the multiple that the transformer needs */
    int64_t    rows;
    xd_exec    x;
    xd_cond    cond;
    xd_input   in;
    void      *local;
} xd_pass_run;

/* Checks the program's arguments t->p, and sets the fields of *t from `latents` to `rows`. Returns
 * XD_EINVAL if the transformer does not accept the arguments. The caller must free t->refs and
 * t->residuals. */
xd_status xd_pass_run_check(xd_pass_run *t, xd_err *e);

#endif
