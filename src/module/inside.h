/* inside.h - used only in src/module: defines the state of a module (a single transformer or VAE,
 * see xdit/module.h), and declares functions that turn the program's arrays into tensors. */
#ifndef XD_MODULE_INSIDE_H
#define XD_MODULE_INSIDE_H

#include "base/arena.h"
#include "base/cancel.h"
#include "base/log.h"
#include "model/component.h"
#include "xdit/module.h"

/* ---- arrays (arrays.c) --------------------------------------------------------------------- */

/* Makes a tensor that is a view of the program's array. what: name of the array in error messages.
 * Returns XD_EINVAL if the array has an invalid type or shape. */
xd_status xd_array_tensor(const xd_array *a, const char *what, xd_tensor *t, xd_err *e);
/* Copies elements [first, first + n) of a tensor and converts them to f32. */
void      xd_array_read(float *to, xd_tensor from, int64_t first, int64_t n);

/* A weight source (xd_source) that reads a network's weights from the program's named arrays. If
 * in_place is 1, a weight that needs no conversion is a view of the program's array. */
typedef struct xd_named xd_named;
xd_status xd_named_open(xd_named **w, const xd_array *v, int64_t n, const char *what, xd_err *e);
xd_source xd_named_source(xd_named *w, int in_place);
void      xd_named_close(xd_named **w);

/* ---- a module (module.c) ------------------------------------------------------------------- */

enum { XD_KEPT_TEXTS = 4 }; /* maximum number of texts for which a module caches tensors */

/* a cache entry: tensors that depend only on the text inputs of a forward pass */
typedef struct xd_kept_text {
    /* key of the cache entry: the bytes of the text inputs; NULL: the entry is unused */
    char    *key;
    size_t   bytes; /* size of the key in bytes */
    void    *kept;  /* cached tensors (xd_state.kept), allocated in `arena` */
    xd_arena arena;
    int64_t  used; /* number of the last forward pass that used this cache entry */
} xd_kept_text;

struct xd_module {
    xd_logger    log;
    xd_canceller cancel;
    xd_dev      *dev, *count;
    xd_dtype     type; /* compute type of the module */
    xd_named    *named;
    xd_component part;
    xd_dit_info  dit;   /* for a transformer: properties of the network */
    xd_vae_info  vae;   /* for a VAE: properties of the network */
    xd_arena     arena; /* scratch memory of a call, which grows when needed */
    xd_kept_text text[XD_KEPT_TEXTS];
    int64_t      passes; /* number of forward passes so far */
};

/* Grows the module's scratch arena to at least `bytes`, and frees everything in the arena. */
xd_status xd_module_arena(xd_module *m, size_t bytes, xd_err *e);
/* Returns XD_ENOMEM if less than `bytes` of memory is free. `what` names, in the error message,
 * what needs the memory, for example "a pass". */
xd_status xd_module_fits(const xd_module *m, size_t bytes, const char *what, xd_err *e);
/* Returns the first error of an execution context, or XD_OK. */
xd_status xd_module_end(const xd_exec *x, xd_err *e);

/* Frees the tensors that a module has cached for texts. */
void xd_module_texts_close(xd_module *m);

#endif
