/* offload.c - selects the blocks that are streamed from host memory, so that a request fits into a
 * device's own memory.
 *
 * Text encoders are loaded one after the other. The weights of an encoder may use all memory that
 * the embeddings and the encoder's activations do not need. The weights of the transformer may use
 * all memory that the transformer's activations do not need; if the VAE is loaded at the same time,
 * its memory is subtracted, too. */
#include "pipeline/offload.h"

#include <string.h>

#include "base/minmax.h"
#include "families/recipe.h"

void xd_offload_sizes(const xd_context *ctx, int text, xd_offload_parts *p)
{
    *p = (xd_offload_parts){ .dit = xd_component_blocks(&ctx->model.dit),
                             .dit2 = xd_component_blocks(&ctx->model.dit2) };
    for (int k = 0; k < ctx->model.recipe->ntext && text; k++)
        if (ctx->model.has_text[k])
            p->text[k] = xd_component_blocks(&ctx->model.text[k]);
}

static int wants_all(const xd_job *j)
{
    return j->ctx->offload == XD_OFFLOAD_STREAM;
}

/* Selects the streamed blocks of the text encoders. If encoders stay loaded between requests, their
 * blocks are streamed only if the offload setting is "stream". */
static void fit_text(xd_offload_parts *p, xd_need *n, const xd_job *j, double have)
{
    double beside = (double)(n->conds + xd_max_size(n->text_tmp, n->text_work));
    size_t most = 0, sum = 0, host = 0;
    for (int k = 0; k < XD_MAXTEXT; k++) {
        xd_stream_plan *q = &p->plan_text[k];
        double          room = j->ctx->keep ? 1e18 : have - beside;
        xd_stream_plan_make(q, &p->text[k], room, wants_all(j));
        size_t bytes = xd_stream_plan_bytes(q, &p->text[k]);
        most = xd_max_size(most, bytes);
        sum += bytes;
        host = j->ctx->keep ? host + q->host : xd_max_size(host, q->host);
    }
    n->text = j->ctx->keep ? sum : most;
    n->pinned_text = host;
}

void xd_offload_pin(xd_need *n, const xd_job *j, int ranks, size_t bytes)
{
    n->pinned = j->ctx->keep ? n->pinned_text + bytes : xd_max_size(n->pinned_text, bytes);
    xd_need_sum(n, j, ranks);
}

void xd_offload_fit(xd_offload_parts *p, xd_need *n, const xd_job *j, int ranks, double have)
{
    size_t host;
    if (j->ctx->offload == XD_OFFLOAD_NONE)
        return;
    fit_text(p, n, j, have);
    /* To find the memory that everything except the transformer's weights needs, predicts the peak
     * with weights that are far larger than everything else, and subtracts these weights. */
    const size_t much = (size_t)1 << 50;
    xd_need      loop = *n;
    loop.dit = much;
    xd_need_sum(&loop, j, ranks);
    double room = have - (double)(loop.peak - much);
    xd_stream_plan_make(&p->plan_dit, &p->dit, room, wants_all(j));
    xd_stream_plan_make(&p->plan_dit2, &p->dit2, room, wants_all(j));
    n->dit = xd_max_size(xd_stream_plan_bytes(&p->plan_dit, &p->dit),
                         xd_stream_plan_bytes(&p->plan_dit2, &p->dit2));
    host = xd_max_size(p->plan_dit.host, p->plan_dit2.host);
    n->streamed = host;
    xd_offload_pin(n, j, ranks, host);
}

int xd_offload_runs(const xd_job *j, int passes, int exact)
{
    const xd_plan *p = &j->ctx->plan;
    int            mine = (passes + p->deg.n[XD_CFG] - 1) / p->deg.n[XD_CFG];
    return mine * (exact || p->npatch < 1 ? 1 : p->npatch);
}

xd_status xd_offload_read(const char *text, xd_offload *out, xd_err *e)
{
    static const char *const words[] = { "auto", "none", "stream" };
    *out = XD_OFFLOAD_AUTO;
    for (int i = 0; i < 3; i++)
        if (!text || strcmp(text, words[i]) == 0) {
            *out = (xd_offload)i;
            return XD_OK;
        }
    return xd_fail(e, XD_EINVAL, "offload is \"%s\"; it can be one of: auto none stream", text);
}

void xd_offload_set(xd_context *ctx, const xd_offload_parts *p)
{
    ctx->model.dit.w->stream = p->plan_dit;
    if (xd_model_dits(&ctx->model) > 1)
        ctx->model.dit2.w->stream = p->plan_dit2;
    for (int k = 0; k < XD_MAXTEXT; k++) {
        xd_component *t = xd_model_text(&ctx->model, k);
        if (t && !t->w->store)
            t->w->stream = p->plan_text[k];
    }
}
