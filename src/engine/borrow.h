/* borrow.h - engines that share the weights of another engine (xd_open_beside) */
#ifndef XD_ENGINE_BORROW_H
#define XD_ENGINE_BORROW_H

#include "engine/engine.h"

/* Borrows the loaded components of the first engine for a request. XD_EINVAL: a one-rank engine
 * needs weights that the first engine has not loaded. Does nothing for an engine with its own
 * weights. */
xd_status xd_borrow_begin(xd_engine *g, xd_err *e);
/* Returns the components after the request, including those that the request loaded. */
void      xd_borrow_end(xd_engine *g);
void      xd_borrow_close(xd_engine *g);

#endif
