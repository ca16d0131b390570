/* borrow.h - lets an engine use the weights of another engine (xd_open_beside). */
#ifndef XD_ENGINE_BORROW_H
#define XD_ENGINE_BORROW_H

#include "engine/engine.h"

/* Call xd_borrow_begin before each request of an engine that borrows weights. Makes this engine use
 * the current weights of the engine from which it borrows them. Returns XD_EINVAL if an engine of
 * one rank needs weights that the owner of the weights has not loaded on this rank. Does nothing
 * for an engine that loads its own weights. */
xd_status xd_borrow_begin(xd_engine *g, xd_err *e);
void      xd_borrow_close(xd_engine *g);

#endif
