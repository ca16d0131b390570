/* pass.h - inside module: one pass of a transformer while it is checked and computed */
#ifndef XD_MODULE_PASS_H
#define XD_MODULE_PASS_H

#include "module/inside.h"

typedef struct xd_turn {           /* one pass                                                    */
    xd_module *m;
    xd_pass    p;
    /* Of the program; without extents: absent. */
    xd_tensor  latents, reference, text, image, pooled;
    int        tokens;          /* 1: latents are tokens                                       */
    int64_t    cells[3];        /* t, h, w                                                     */
    int64_t    F, extra;        /* features of a token: of the latents, and those beside them   */
    xd_layout  lay;
    xd_grid   *refs;
    int64_t    rows;            /* of text, with padding up to a multiple                       */
    xd_exec    x;
    xd_cond    cond;
    xd_input   in;
    void      *local;
} xd_turn;

/* Checks what the program has passed (t->p) and fills in what follows from it: tensors of the
 * program's memory, and how many tokens there are. XD_EINVAL: the transformer takes no such thing.
 * t->refs is malloc'ed. */
xd_status xd_turn_check(xd_turn *t, xd_err *e);

#endif
