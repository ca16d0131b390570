/* beside.h - engines that compute with the weights of another engine */
#ifndef XD_ENGINE_BESIDE_H
#define XD_ENGINE_BESIDE_H

#include "engine/engine.h"

/* Takes what the other engine of xd_open_beside has loaded, for a request. XD_EINVAL: an engine of
 * one rank lacks weights that it cannot load. Does nothing for other engines. */
xd_status xd_beside_take(xd_engine *g, xd_err *e);
/* Gives back what the request has loaded in addition. */
void      xd_beside_give(xd_engine *g);
void      xd_beside_close(xd_engine *g);

#endif
