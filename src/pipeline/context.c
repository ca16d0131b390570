/* context.c - copies an engine's context, so that memory can be counted without changing the
 * engine */
#include "pipeline/context.h"

#include <stdlib.h>
#include <string.h>

xd_status xd_context_fork(xd_context *fork, const xd_context *base, xd_err *e)
{
    xd_status s = XD_OK;
    *fork = *base;
    fork->world = (xd_world){ .all = base->world.all, .used = base->world.all };
    fork->window = NULL;
    fork->count_world = fork->text = fork->count_text = NULL;
    memset(&fork->topo, 0, sizeof fork->topo);
    memset(&fork->count_topo, 0, sizeof fork->count_topo);
    fork->dev = base->count;
    fork->work = NULL;
    fork->budget = 0;
    fork->cancel = NULL;
    fork->trace = NULL;
    fork->balance = NULL;
    fork->bench = fork->unread = 1;
    fork->caches = NULL;
    for (int i = 0; i < XD_MODEL_PARTS; i++) {
        xd_component *p = xd_model_part(&fork->model, i);
        xd_status     one = p ? xd_component_fork(p, e) : XD_OK;
        s = s == XD_OK ? one : s;
    }
    return s;
}

void xd_context_fork_close(xd_context *fork, const xd_context *base)
{
    for (int i = 0; i < XD_MODEL_PARTS; i++)
        if (xd_model_part(&fork->model, i))
            xd_component_unfork(xd_model_part(&fork->model, i));
    for (int k = 0; k < XD_MAXTEXT; k++)
        if (fork->model.tok[k] != base->model.tok[k])
            xd_tok_close(&fork->model.tok[k]);
}
