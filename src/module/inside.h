/* inside.h - inside module: a module, and arrays of the program as tensors */
#ifndef XD_MODULE_INSIDE_H
#define XD_MODULE_INSIDE_H


#include "base/arena.h"
#include "base/cancel.h"
#include "base/log.h"
#include "model/component.h"
#include "xdit/module.h"

/* ---- arrays (arrays.c) --------------------------------------------------------------------- */

/* The array as a tensor of the same memory. what: its name in messages. XD_EINVAL: it has a type or
 * a shape that no array has. */
xd_status xd_array_tensor(const xd_array *a, const char *what, xd_tensor *t, xd_err *e);
/* Copies elements [first, first + n) as f32. */
void      xd_array_read(float *to, xd_tensor from, int64_t first, int64_t n);

/* Named arrays as the source of a component's weights. */
typedef struct xd_named xd_named;
xd_status xd_named_open(xd_named **w, const xd_array *v, int64_t n, const char *what, xd_err *e);
xd_source xd_named_source(xd_named *w, int in_place);
void      xd_named_close(xd_named **w);

/* ---- a module (module.c) ------------------------------------------------------------------- */

enum { XD_KEPT_TEXTS = 4 };     /* texts of which a module keeps what depends on them alone     */

typedef struct xd_kept_text {
    char    *key;               /* what it depends on, byte by byte; NULL: none                */
    size_t   bytes;             /* of it                                                       */
    void    *kept;              /* xd_state.kept, in `arena`                                   */
    xd_arena arena;
    int64_t  used;              /* the pass that has read it last                              */
} xd_kept_text;

struct xd_module {
    xd_logger    log;
    xd_canceller cancel;
    xd_dev      *dev, *count;
    xd_dtype     type;          /* compute type                                                */
    xd_named    *named;
    xd_component part;
    xd_dit_info  dit;           /* of a transformer                                            */
    xd_vae_info  vae;           /* of an autoencoder                                           */
    xd_arena     arena;         /* of a call; grows                                            */
    xd_kept_text text[XD_KEPT_TEXTS];
    int64_t      passes;
};

/* Memory of a call: at least so many bytes. */
xd_status xd_module_arena(xd_module *m, size_t bytes, xd_err *e);
/* Refuses what is more than the free memory. what: "a pass". */
xd_status xd_module_fits(const xd_module *m, size_t bytes, const char *what, xd_err *e);
/* The failure of a context, if there is one. */
xd_status xd_module_end(const xd_exec *x, xd_err *e);

void      xd_module_texts_close(xd_module *m);          /* pass.c                              */

#endif
