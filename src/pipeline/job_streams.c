/* job_streams.c - reads the guidance of pipelines that generate a video and its audio
 *
 * Each of the two has its own numbers, as in diffusers' LTX2Pipeline. A pass runs for both if the
 * numbers of one of them need it. */
#include <stdlib.h>
#include <string.h>

#include "families/recipe.h"
#include "model/model.h"
#include "pipeline/job.h"

/* Sets the number of the video, and that of the audio. A negative number stands for its default,
 * and a number 0 of the audio for that of the video. */
static void pick(double video, double audio, const double usual[XD_JOB_STREAMS], double *out[])
{
    *out[XD_VIDEO_STREAM] = video < 0 ? usual[XD_VIDEO_STREAM] : video;
    *out[XD_AUDIO_STREAM] = audio < 0 ? usual[XD_AUDIO_STREAM] : audio;
    if (!(*out[XD_AUDIO_STREAM] > 0))
        *out[XD_AUDIO_STREAM] = *out[XD_VIDEO_STREAM];
}

/* Marks the blocks of spatio-temporal guidance in j->perturbs. Default blocks that the transformer
 * does not have are left out, as in diffusers. */
static xd_status read_blocks(xd_job *j, xd_err *e)
{
    const xd_recipe *p = j->ctx->model.recipe;
    const char      *text = j->r->audio.spatio_temporal_guidance_blocks;
    if (text && *text)
        return xd_job_layers(j, "spatio_temporal_guidance_blocks", text, &j->perturbs, e);
    return p->stg_block < j->ctx->model.dit_info.nlayers
               ? xd_job_layer(j, p->stg_block, &j->perturbs, e)
               : XD_OK;
}

static void add_pass(xd_job *j, xd_pass_kind kind)
{
    j->kinds[j->npass++] = kind;
}

/* Refuses options that do not work with a pass of other kinds than the prompts'. */
static xd_status check_others(const xd_job *j, xd_err *e)
{
    const char *fast = j->r->savings.fast_attn;
    double      of[2];
    if (j->kinds[j->npass - 1] > XD_PASS_NEGATIVE && fast && strcmp(fast, "none"))
        return xd_fail(e, XD_EINVAL,
                       "fast_attn does not know the passes of modality_scale and stg_scale: set "
                       "modality_scale 1, audio_modality_scale 1, stg_scale 0 and audio_stg_scale "
                       "0");
    if (!xd_job_rescales_streams(j))
        return XD_OK;
    if (j->sampler->shares)
        j->sampler->shares(&j->samp, 0, of);
    if (!j->sampler->shares || of[0] + of[1] < 0.999 || of[0] + of[1] > 1.001)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "guidance_rescale of %s needs a scheduler of rectified flow, which %s is "
                       "not: set guidance_rescale 0 and audio_guidance_rescale 0",
                       j->ctx->model.recipe->name, j->sampler->name);
    return XD_OK;
}

static xd_status read_streams(xd_job *j, xd_err *e)
{
    const xd_recipe        *p = j->ctx->model.recipe;
    const xd_request_audio *a = &j->r->audio;
    xd_job_stream          *v = &j->streams[XD_VIDEO_STREAM], *s = &j->streams[XD_AUDIO_STREAM];
    /* The default of a distilled checkpoint is one pass. */
    int                     guided = !j->ctx->model.usual.name;
    double                  modality = guided ? p->modality : 1, stg = guided ? p->stg : 0;
    pick(j->guidance, a->audio_guidance_scale, (double[]){ 0, guided ? p->audio_guidance : 0 },
         (double *[]){ &v->guidance, &s->guidance });
    pick(a->modality_scale, a->audio_modality_scale, (double[]){ modality, modality },
         (double *[]){ &v->modality, &s->modality });
    pick(a->stg_scale, a->audio_stg_scale, (double[]){ stg, stg },
         (double *[]){ &v->stg, &s->stg });
    pick(j->r->guidance.guidance_rescale, a->audio_guidance_rescale,
         (double[]){ p->rescale, p->rescale }, (double *[]){ &v->rescale, &s->rescale });
    xd_status st = read_blocks(j, e);
    if (st != XD_OK)
        return st;
    j->npass = 1;
    if (v->guidance > 1 || s->guidance > 1)
        add_pass(j, XD_PASS_NEGATIVE);
    if ((v->stg > 0 || s->stg > 0) && j->perturbs && j->ctx->model.dit_info.perturbs)
        add_pass(j, XD_PASS_PERTURBED);
    if (v->modality > 1 || s->modality > 1)
        add_pass(j, XD_PASS_ISOLATED);
    return check_others(j, e);
}

xd_status xd_job_read_passes(xd_job *j, xd_err *e)
{
    j->npass = !xd_job_reads_guidance(j) && j->guidance > xd_job_no_guidance(j) ? 2 : 1;
    for (int i = 0; i < XD_MAXPASS; i++)
        j->kinds[i] = (xd_pass_kind)i;
    return j->ctx->model.recipe->audio_guidance > 0 ? read_streams(j, e) : XD_OK;
}

int xd_job_has_negative(const xd_job *j)
{
    return j->npass > 1 && j->kinds[1] == XD_PASS_NEGATIVE;
}

int xd_job_rescales_streams(const xd_job *j)
{
    return j->npass > 1 &&
           (j->streams[XD_VIDEO_STREAM].rescale > 0 || j->streams[XD_AUDIO_STREAM].rescale > 0);
}

double xd_job_level(const xd_job *j, int step)
{
    double of[2];
    j->sampler->shares(&j->samp, step, of);
    return of[1];
}
