/* borrow.h - lets an engine use the weights of another engine (xd_open_beside). */
#ifndef XD_ENGINE_BORROW_H
#define XD_ENGINE_BORROW_H

#include "engine/engine.h"

/* Call xd_borrow_begin before each request of an engine that borrows weights. Makes this engine use
 * the current weights of the owning engine. Returns XD_EINVAL if a one-rank engine needs weights
 * that the owning engine has not loaded on this rank. xd_borrow_begin does nothing for an engine
 * that has its own weights. */
xd_status xd_borrow_begin(xd_engine *g, xd_err *e);
void      xd_borrow_close(xd_engine *g);

#endif
