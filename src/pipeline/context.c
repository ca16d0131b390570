/* context.c - separate contexts for counting */
#include "pipeline/context.h"

#include <stdlib.h>
#include <string.h>

/* Components of a fork have nothing loaded and are not split. */
static void fork_component(xd_component *p)
{
    p->store = NULL;
    p->blocks_of = NULL;
    p->stream = (xd_stream_plan){ 0 };
    p->net.stream = NULL;
    p->shared = 0;
    p->reader = NULL;
    p->upto = NULL;
    p->group = (xd_weight_group){ 0 };
    p->tp = 1;
    p->tp_at = 0;
    p->net.first = 0;
    p->net.last = p->net.nlayers;
    memset(&p->shadow, 0, sizeof p->shadow);
}

void xd_context_fork(xd_context *fork, const xd_context *base)
{
    *fork = *base;
    fork->world = (xd_world){ .all = base->world.all, .used = base->world.all };
    fork->window = NULL;
    fork->count_world = fork->text = fork->count_text = NULL;
    memset(&fork->topo, 0, sizeof fork->topo);
    memset(&fork->count_topo, 0, sizeof fork->count_topo);
    fork->trace = NULL;
    fork->balance = NULL;
    fork->bench = fork->unread = 1;
    fork_component(&fork->model.dit);
    fork_component(&fork->model.dit2);
    fork_component(&fork->model.vae);
    fork_component(&fork->model.preview);
    fork->embeddings = NULL;
    fork->colours = NULL;
    for (int k = 0; k < XD_MAXTEXT; k++) {
        fork_component(&fork->model.text[k]);   /* keep the blocks that the recipe needs         */
        fork->model.text[k].net.last = base->model.text[k].net.last;
    }
}

static void close_component(xd_component *p)
{
    xd_net_close(&p->shadow);
    free(p->blocks_of);
    p->blocks_of = NULL;
}

void xd_context_fork_close(xd_context *fork, const xd_context *base)
{
    close_component(&fork->model.dit);
    close_component(&fork->model.dit2);
    close_component(&fork->model.vae);
    close_component(&fork->model.preview);
    for (int k = 0; k < XD_MAXTEXT; k++) {
        close_component(&fork->model.text[k]);
        if (fork->model.tok[k] != base->model.tok[k])
            xd_tok_close(&fork->model.tok[k]);
    }
}
