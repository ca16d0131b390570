/* inside.h - inside module: a single transformer or VAE computed for a program (xdit/module.h), and
 * the program's arrays as tensors */
#ifndef XD_MODULE_INSIDE_H
#define XD_MODULE_INSIDE_H

#include "base/arena.h"
#include "base/cancel.h"
#include "base/log.h"
#include "model/component.h"
#include "xdit/module.h"

/* ---- arrays (arrays.c) --------------------------------------------------------------------- */

/* Makes a tensor that is a view of the array. what: its name in messages. XD_EINVAL: invalid type
 * or shape. */
xd_status xd_array_tensor(const xd_array *a, const char *what, xd_tensor *t, xd_err *e);
/* Copies elements [first, first + n) as f32. */
void      xd_array_read(float *to, xd_tensor from, int64_t first, int64_t n);

/* A source of a component's weights that reads named arrays. in_place: weights that need no
 * conversion are views of the arrays. */
typedef struct xd_named xd_named;
xd_status xd_named_open(xd_named **w, const xd_array *v, int64_t n, const char *what, xd_err *e);
xd_source xd_named_source(xd_named *w, int in_place);
void      xd_named_close(xd_named **w);

/* ---- a module (module.c) ------------------------------------------------------------------- */

enum { XD_KEPT_TEXTS = 4 };     /* max cached texts of a module                                */

typedef struct xd_kept_text {   /* cached values that depend only on the text inputs           */
    char    *key;               /* the bytes of these inputs; NULL: unused entry               */
    size_t   bytes;             /* size of the key                                             */
    void    *kept;              /* xd_state.kept, in `arena`                                   */
    xd_arena arena;
    int64_t  used;              /* number of the last pass that has used it                    */
} xd_kept_text;

struct xd_module {
    xd_logger    log;
    xd_canceller cancel;
    xd_dev      *dev, *count;
    xd_dtype     type;          /* compute type                                                */
    xd_named    *named;
    xd_component part;
    xd_dit_info  dit;           /* set for a transformer                                       */
    xd_vae_info  vae;           /* set for a VAE                                               */
    xd_arena     arena;         /* memory of a call; grows                                     */
    xd_kept_text text[XD_KEPT_TEXTS];
    int64_t      passes;        /* number of passes so far                                     */
};

/* Grows m->arena to at least `bytes` and empties it. */
xd_status xd_module_arena(xd_module *m, size_t bytes, xd_err *e);
/* XD_ENOMEM if `bytes` exceed the free memory. what: "a pass", for the message. */
xd_status xd_module_fits(const xd_module *m, size_t bytes, const char *what, xd_err *e);
/* Returns the sticky error of a context, or XD_OK. */
xd_status xd_module_end(const xd_exec *x, xd_err *e);

void      xd_module_texts_close(xd_module *m);          /* pass.c                              */

#endif
