/* denoise_count.c - runs the denoising loop on the count device, which computes nothing, to count
 * the memory and the kernel calls of the loop */
#include "model/component.h"
#include "pipeline/arenas.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/job.h"
#include "pipeline/prompt_images.h"
#include "pipeline/text_encode.h"
#include "plan/plan.h"

/* Counts the weights of all transformers that the request uses. */
static xd_status count_weights(struct xd_job *j, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_status   s = XD_OK;
    for (int i = 0; s == XD_OK && i < xd_model_dits(&ctx->model); i++)
        s = xd_component_count(xd_model_dit(&ctx->model, i), ctx->count, ctx->type, e);
    return s;
}

/* Counts the bytes of the denoising loop. For each transformer, only one exact step and one step
 * with stale data are counted. The sampler is counted in every step, because steps read different
 * numbers of earlier predictions. */
xd_status xd_denoise_count(struct xd_job *j, const int64_t len[XD_MAXPASS], size_t *bytes,
                           size_t *method_bytes, xd_err *e)
{
    xd_model     *m = &j->ctx->model;
    xd_denoise    f;
    xd_arena      a;
    xd_cond       cond[XD_MAXPASS] = { { .tok = { 0 } } };
    xd_cond_image images[XD_MAXPASS][XD_MAXREFS];
    xd_status     s = count_weights(j, e);
    if (s == XD_OK)
        s = xd_device_arena_open(&a, j->ctx->count, 0, e);
    if (s != XD_OK)
        return s;
    const xd_dit_info *d = &j->ctx->model.dit_info;
    for (int i = 0; i < 1 + xd_job_has_negative(j); i++) {
        cond[i].tok = xd_view2(a.base, XD_F32, len[i], d->text_dim);
        cond[i].nimages = xd_prompt_images_rows(j, NULL, 0, len[i], images[i]);
        cond[i].images = images[i];
        xd_prompts_real_tokens(j, cond[i].real);
        if (d->pooled_dim)
            cond[i].pooled = xd_view2(a.base, XD_F32, 1, d->pooled_dim);
    }
    xd_denoise_open(&f, j, j->ctx->count, &j->ctx->count_topo, &a,
                    &xd_model_dit(m, xd_job_dit(j, 0))->count->shadow, cond, 0);
    int       stale = xd_denoise_exact(&f);
    xd_counts was, now;
    xd_dev_counts(j->ctx->count, &was, 0);
    for (int i = 0; i < j->samp.steps && xd_ok(&f.x); i++) {
        if (i == f.end)
            xd_denoise_change(&f, &xd_model_dit(m, xd_job_dit(j, i))->count->shadow, i);
        if (!xd_ok(&f.x))
            break;
        size_t mark = xd_arena_mark(&a);
        if (i == f.begin || i == f.begin + stale)
            xd_denoise_step(&f, i);
        else if (f.topo->at[XD_PIPE] == f.topo->deg.n[XD_PIPE] - 1)
            j->sampler->step(&f.x, &j->samp, i, f.lat, f.pred[0], f.hist, f.noise);
        if (i == 0) {
            xd_dev_counts(j->ctx->count, &now, 0);
            j->step_ops.calls = now.calls - was.calls;
            j->step_ops.small = now.small - was.small;
        }
        xd_arena_rewind(&a, mark);
    }
    *bytes = xd_arena_peak(&a);
    if (xd_ok(&f.x)) /* runs the gathering of the latents, to count the memory of its messages */
        xd_denoise_latents(&f, NULL);
    if (xd_ok(&f.x) && j->audio_numbers)
        xd_denoise_audio_latents(&f, NULL);
    *method_bytes = f.stack.bytes;
    s = xd_exec_status(&f.x, e);
    xd_denoise_close(&f);
    xd_device_arena_close(&a, j->ctx->count);
    return s;
}
