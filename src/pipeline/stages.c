/* stages.c - splits the transformer's blocks into pipeline stages with nearly equal counted
 * costs */
#include <stdlib.h>

#include "pipeline/stages.h"
#include "base/log.h"
#include "exec/op.h"
#include "model/component.h"
#include "parallel/method.h"
#include "pipeline/arenas.h"
#include "pipeline/context.h"
#include "pipeline/job.h"
#include "pipeline/prompt_images.h"
#include "pipeline/text_encode.h"
#include "plan/balance.h"
#include "plan/plan.h"

/* Counts the cost of every transformer block, and the cost of the extra work that the first and the
 * last pipeline stage have. The counted cost of a block is that of the complete block, not of a
 * rank's shard: the shards of tensor ranks differ, but all tensor ranks of a stage must compute the
 * same split. */
static xd_status count_costs(xd_job *j, double *cost, double *head, double *tail, xd_err *e)
{
    xd_context     *ctx = j->ctx;
    xd_component   *p = &ctx->model.dit;
    const xd_dit   *dit = p->dit;
    xd_exec         x;
    xd_arena        a;
    xd_counts       c;
    xd_method_stack stack;
    void *local = calloc(1, ctx->model.dit_info.local_size + ctx->model.dit_info.kept_size + 1);
    void *kept = (char *)local + ctx->model.dit_info.local_size;
    int   tp = p->w->tp, tp_at = p->w->tp_at;
    p->w->tp = 1, p->w->tp_at = 0;
    xd_status s = xd_component_count(p, ctx->count, ctx->type, e);
    p->w->tp = tp, p->w->tp_at = tp_at;
    if (s == XD_OK)
        s = xd_device_arena_open(&a, ctx->count, 0, e);
    if (s != XD_OK || !local) {
        free(local);
        return s != XD_OK ? s : xd_fail(e, XD_ENOMEM, "no memory to count blocks");
    }
    xd_exec_init(&x, ctx->count, &a, ctx->type);
    const xd_dit_info *d = &ctx->model.dit_info;
    int64_t            rows = xd_prompts_most_rows(j);
    xd_layout          lay = j->lay;
    lay.len[XD_TXT] = d->txt_flows ? rows : 0;
    x.lay = &lay;
    xd_method_stack_open_alone(&stack, &x, d->grouped, d->prefix);
    xd_cond       text = { .tok = xd_view2(a.base, XD_F32, rows, d->text_dim),
                           .pooled = xd_view2(a.base, XD_F32, 1, d->pooled_dim) };
    xd_cond_image images[XD_MAXREFS];
    text.nimages = xd_prompt_images_rows(j, NULL, 0, rows, images);
    text.images = images;
    xd_prompts_real_tokens(j, text.real);
    xd_input in = { .lat = xd_new_f32(&x, j->tokens, j->features),
                    .cond = &text,
                    .next = j->next_time,
                    .guidance = 1,
                    .txt = d->txt_flows ? text.tok : (xd_tensor){ 0 } };
    if (d->extra_ch)
        in.extra = xd_new_f32(&x, j->tokens, d->extra_ch * (j->features / d->lat_ch));
    if (lay.len[XD_AUDIO])
        in.audio = xd_new_f32(&x, lay.len[XD_AUDIO], j->features);
    if (j->nref_tokens)
        in.ref = xd_new_f32(&x, j->nref_tokens, j->features);
    xd_state st = { .h = xd_new_f32(&x, xd_own_rows(&lay, XD_ALL, 0), xd_dit_width(d)),
                    .local = local,
                    .kept = kept };
    int      most = xd_dit_most_skips(dit, &p->count->shadow);
    if (most)
        st.skips = xd_new(&x, most * st.h.d[0], d->dim);
    if (dit->keep) {
        dit->keep(&x, &p->count->shadow, &text, kept);
        dit->read(&x, &p->count->shadow, &in, kept);
    }
    dit->cond(&x, &p->count->shadow, &in, &st);
    xd_dev_counts(ctx->count, &c, 1);
    dit->embed(&x, &p->count->shadow, &in, &st);
    xd_dev_counts(ctx->count, &c, 1);
    *head = c.flops;
    for (int i = 0; i < p->count->shadow.nlayers; i++) {
        size_t mark = xd_arena_mark(&a);
        xd_dit_block(&x, dit, &p->count->shadow, i, &st);
        xd_dev_counts(ctx->count, &c, 1);
        cost[i] = c.flops;
        xd_arena_rewind(&a, mark);
    }
    dit->head(&x, &p->count->shadow, &st);
    xd_dev_counts(ctx->count, &c, 1);
    *tail = c.flops;
    free(local);
    xd_method_stack_close(&stack);
    xd_device_arena_close(&a, ctx->count);
    return xd_exec_status(&x, e);
}

xd_status xd_stages_cut(xd_job *j, int cut[XD_MAXSTAGE + 1], xd_err *e)
{
    xd_context   *ctx = j->ctx;
    xd_component *p = &ctx->model.dit;
    int           P = ctx->plan.deg.n[XD_PIPE], n = p->w->net.nlayers;
    double       *cost, head = 0, tail = 0;
    cut[0] = 0, cut[1] = n;
    if (P == 1)
        return XD_OK;
    if (ctx->plan.nlist) {
        for (int i = 0; i < P; i++)
            cut[i + 1] = cut[i] + ctx->plan.list[i];
        return XD_OK;
    }
    if (!(cost = calloc((size_t)n + 1, sizeof *cost)))
        return xd_fail(e, XD_ENOMEM, "no memory to count %d blocks", n);
    xd_component_stage(p, 0, n);
    xd_status s = count_costs(j, cost, &head, &tail, e);
    if (s == XD_OK)
        xd_plan_balance(cost, n, P, head, tail, xd_balance_stages(ctx->balance), cut);
    free(cost);
    return s;
}

xd_status xd_stages_open(xd_job *j, xd_err *e)
{
    xd_context *ctx = j->ctx;
    int         cut[XD_MAXSTAGE + 1], me = ctx->topo.at[XD_PIPE];
    if (ctx->plan.deg.n[XD_PIPE] == 1 || xd_model_has_dits(&ctx->model))
        return XD_OK;
    xd_status s = xd_stages_cut(j, cut, e);
    if (s != XD_OK)
        return s;
    for (int i = 0; i < xd_model_dits(&ctx->model); i++)
        xd_component_stage(xd_model_dit(&ctx->model, i), cut[me], cut[me + 1]);
    xd_log(XD_LOG_DEBUG, "stage %d runs blocks %d to %d of %d", me, cut[me], cut[me + 1] - 1,
           ctx->model.dit.w->net.nlayers);
    return XD_OK;
}
