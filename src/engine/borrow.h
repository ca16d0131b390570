/* borrow.h - lets an engine use the weights of another engine (xd_open_beside). */
#ifndef XD_ENGINE_BORROW_H
#define XD_ENGINE_BORROW_H

#include "engine/engine.h"

/* Makes a request use the weights that the engine owning the weights uses now. XD_EINVAL: a
 * one-rank engine needs weights that the first engine has not loaded. Does nothing for an engine
 * that has its own weights. */
xd_status xd_borrow_begin(xd_engine *g, xd_err *e);
void      xd_borrow_close(xd_engine *g);

#endif
