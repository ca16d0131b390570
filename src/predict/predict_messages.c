/* predict_messages.c - runs the loop of a request without its work, to count the messages in
 * between */
#include "predict/predict_messages.h"

#include <string.h>

#include "base/log.h"
#include "model/component.h"
#include "pipeline/context.h"
#include "pipeline/loop.h"
#include "pipeline/work.h"

typedef struct rank_work { /* `work` must be first: xd_context.work points to it */
    xd_work              work;
    const xd_need       *need;
    const xd_part_bytes *bytes;
    double               sent; /* bytes of the parts so far */
} rank_work;

static rank_work *work_of(const xd_job *j)
{
    return (rank_work *)(uintptr_t)j->ctx->work;
}

static xd_status prepare(xd_job *j, xd_prompts *w, xd_err *e)
{
    (void)j, (void)w, (void)e;
    return XD_OK;
}

static xd_status count(xd_job *j, const xd_prompts *w, xd_need *need, xd_err *e)
{
    (void)w, (void)e;
    *need = *work_of(j)->need;
    return XD_OK;
}

static xd_status encode_text(xd_prompts *w, xd_job *j, int k, xd_arena *a, xd_err *e)
{
    (void)w, (void)a, (void)e;
    work_of(j)->sent += work_of(j)->bytes->text[k];
    return XD_OK;
}

static xd_status encode_clip(xd_job *j, xd_arena *a, const xd_vae_clip *clip, float **pixels[2],
                             float *moments, xd_err *e)
{
    size_t any;
    (void)a, (void)pixels, (void)moments;
    return xd_vae_encode_frames_count(j, clip, &any, e);
}

static xd_status denoise(xd_loop *l, int nth, int step, float *lat, xd_err *e)
{
    const xd_part_bytes *b = work_of(l->j)->bytes;
    (void)lat, (void)e;
    const double *passes = l->j->given && !l->j->enlarged ? b->first : b->denoise;
    if (step == 0)
        work_of(l->j)->sent +=
            passes[b->text_of[xd_job_image(l->j, nth) / l->j->r->num_images_per_prompt]];
    return XD_OK;
}

static xd_status upsample(xd_job *j, xd_arena *a, const float *small, float *out, xd_err *e)
{
    (void)j, (void)a, (void)small, (void)out, (void)e;
    return XD_OK;
}

static xd_status decode(xd_job *j, xd_arena *a, const float *lat, float **rgb, xd_err *e)
{
    (void)a, (void)lat, (void)rgb, (void)e;
    work_of(j)->sent += work_of(j)->bytes->decode;
    return XD_OK;
}

static xd_status deliver(xd_loop *l, int image, float *v[2], xd_err *e)
{
    (void)l, (void)image, (void)v, (void)e; /* the loop frees what was not delivered */
    return XD_OK;
}

/* Makes the context and the job those of a rank that has not run the request. */
static void forget_request(xd_job *j)
{
    for (int i = 0; i < XD_MODEL_PARTS; i++)
        if (xd_model_part(&j->ctx->model, i))
            xd_component_drop(xd_model_part(&j->ctx->model, i));
    xd_job_close_inputs(j);
    memset(j->loads, 0, sizeof j->loads);
    j->both = 0;
}

xd_status xd_predict_messages(xd_job *j, xd_prompts *w, const xd_need *need,
                              const xd_offload_parts *parts, const xd_part_bytes *bytes,
                              double *sent, xd_err *e)
{
    const xd_logger *log = xd_log_enter(NULL);
    rank_work        here = { .work = { prepare, count, encode_text, encode_clip, denoise, upsample,
                                        decode, deliver },
                              .need = need,
                              .bytes = bytes };
    xd_loop          l = { .j = j, .w = w };
    xd_memory_limits room;
    j->ctx->work = &here.work;
    xd_offload_set(j->ctx, parts);
    xd_status s = xd_result_open(&l.r, j, e);
    if (s == XD_OK)
        s = xd_loop_accept(&l, &room, XD_OK, e);
    if (s == XD_OK)
        s = xd_loop_images(&l, e);
    *sent = here.sent + (double)j->ctx->world.used->traffic->bytes;
    xd_result_free(&l.r);
    forget_request(j);
    j->ctx->work = NULL;
    xd_log_enter(log);
    return s;
}
