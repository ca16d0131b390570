/* job_unused.c - the defaults of a distilled checkpoint, and warnings of options of a request that
 * make no difference */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "backend/backend.h"
#include "families/recipe.h"
#include "pipeline/dtypes.h"
#include "pipeline/job.h"

static int own_text(const xd_request *r, int number)
{
    return number == 1 ? xd_job_has_text(r, XD_TEXT_2) || xd_job_has_text(r, XD_TEXT_NEGATIVE_2)
                       : number == 2 && (xd_job_has_text(r, XD_TEXT_3) ||
                                         xd_job_has_text(r, XD_TEXT_NEGATIVE_3));
}

/* Does a negative prompt have a word? */
static int has_negative(const xd_request *r)
{
    for (int i = 0; i < xd_job_negatives(r); i++)
        for (xd_job_text_kind k = 0; k < XD_JOB_TEXTS; k++) {
            const char *text = k == XD_TEXT_2 || k == XD_TEXT_3 ? NULL : xd_job_text(r, k, i);
            if (text && *text)
                return 1;
        }
    return 0;
}

void xd_job_warn_unused(const xd_job *j)
{
    const xd_plan *p = &j->ctx->plan;
    int            groups = p->deg.n[XD_DATA];
    char           line[256];
    if (j->ctx->world.all->rank)
        return;
    xd_model_usual_text(&j->ctx->model, line, sizeof line);
    if (*line)
        xd_log(XD_LOG_INFO, "%s", line);
    if (groups > j->ntodo)
        xd_log(XD_LOG_WARN, "%d of the %d groups of data_parallel_degree have nothing to "
               "generate: there %s %d %s",
               groups - j->ntodo, groups, j->ntodo == 1 ? "is" : "are", j->ntodo,
               j->ntodo == 1 ? "image" : "images");
    if (p->deg.n[XD_CFG] > 1 && j->npass == 1)
        xd_log(XD_LOG_WARN, "half of the ranks have nothing to do: without guidance (%s above %g) "
               "there is one pass a step, and use_cfg_parallel shares two", xd_job_guide(j),
               xd_job_no_guidance(j));
    if (j->ctx->model.recipe->distilled && j->r->true_cfg_scale > 1 &&
        !xd_job_has_text(j->r, XD_TEXT_NEGATIVE))
        xd_log(XD_LOG_WARN, "true_cfg_scale makes no difference without a negative_prompt");
    if (j->ctx->model.usual.true_cfg > 1 && !(j->r->true_cfg_scale > 0) &&
        !xd_job_has_text(j->r, XD_TEXT_NEGATIVE))
        xd_log(XD_LOG_INFO, "the image is not guided: true_cfg_scale %g needs a negative_prompt, "
               "if only \" \"", j->ctx->model.usual.true_cfg);
    if (j->r->no_resolution_binning && !j->ctx->model.recipe->trained_size)
        xd_log(XD_LOG_WARN, "no_resolution_binning makes no difference to %s, which has no trained "
               "sizes: every size is the one asked for", j->ctx->model.recipe->name);
    if (!j->r->clean_caption && !j->ctx->model.recipe->uncleaned)
        xd_log(XD_LOG_WARN, "clean_caption makes no difference to %s, which reads prompts as they "
               "are", j->ctx->model.recipe->name);
    for (int k = 0; k < j->ctx->model.recipe->ntext; k++)
        if (!j->ctx->model.has_text[k] && own_text(j->r, j->ctx->model.recipe->text[k].prompt))
            xd_log(XD_LOG_WARN, "prompt_%d makes no difference: the model has no %s",
                   j->ctx->model.recipe->text[k].prompt + 1, j->ctx->model.recipe->text[k].folder);
    if (j->npass == 1 && j->r->guidance_scale_2 > xd_job_no_guidance(j))
        xd_log(XD_LOG_WARN, "guidance_scale_2 makes no difference without guidance (%s above %g)",
               xd_job_guide(j), xd_job_no_guidance(j));
    if (j->r->skip_guidance_layers && *j->r->skip_guidance_layers && !j->skips)
        xd_log(XD_LOG_WARN, "skip_guidance_layers makes no difference %s (%s above %g)",
               j->npass == 1 ? "without guidance" : "to these steps, none of which is between its "
               "start and stop, nor without guidance", xd_job_guide(j), xd_job_no_guidance(j));
    if (j->npass == 1 && j->r->use_dynamic_cfg)
        xd_log(XD_LOG_WARN, "use_dynamic_cfg makes no difference without guidance (%s above 1)",
               xd_job_guide(j));
    if (j->npass == 1 && j->r->guidance_rescale > 0)
        xd_log(XD_LOG_WARN, "guidance_rescale makes no difference without guidance (%s above 1)",
               xd_job_guide(j));
    if (j->npass == 1 && (j->r->cfg_normalization > 0 || j->r->cfg_truncation < 1))
        xd_log(XD_LOG_WARN, "%s makes no difference without guidance (%s above %g)",
               j->r->cfg_normalization > 0 ? "cfg_normalization" : "cfg_truncation",
               xd_job_guide(j), xd_job_no_guidance(j));
    if (j->ctx->model.recipe->distilled && isnan(j->distilled) && j->r->guidance_scale > 1)
        xd_log(XD_LOG_WARN, "guidance_scale makes no difference to this model, which reads none "
               "(true_cfg_scale guides it)");
    if (j->r->attention && strcmp(j->r->attention, "int8") == 0 && !xd_job_int8_attention(j))
        xd_log(XD_LOG_WARN, "attention int8 makes no difference to %s in %s, which has no such "
               "attention (CPUs with AVX512-BF16 and VNNI have it, in bf16)", j->ctx->dev->name,
               xd_dtype_name(j->ctx->type));
    if (j->r->gemm && strcmp(j->r->gemm, "fp8") == 0 && !xd_job_fp8_gemms(j))
        xd_log(XD_LOG_WARN, "gemm fp8 makes no difference to weights of %s on %s in %s (GPUs of "
               "compute capability 8.9 or higher multiply those of weights_dtype fp8 so, in bf16 "
               "or f16)", xd_types_name(&j->ctx->model.dit, j->ctx->type), j->ctx->dev->name,
               xd_dtype_name(j->ctx->type));
    if (j->r->attention_window && !(j->window[0] | j->window[1] | j->window[2]))
        xd_log(XD_LOG_WARN, "attention_window makes no difference: it holds all of %lld x %lld x "
               "%lld tokens", (long long)j->lay.grid[0], (long long)j->lay.grid[1],
               (long long)j->lay.grid[2]);
    if (j->r->reference_interval != 1 && !xd_job_keeps_references(j))
        xd_log(XD_LOG_WARN, "reference_interval makes no difference: there are no reference images "
               "whose tokens flow beside the image's");
    if (j->r->latents_only && j->r->enable_tiling && !xd_job_has_image(j->r))
        xd_log(XD_LOG_WARN, "enable_tiling makes no difference to latents, which are not decoded");
    if (j->npass == 1 && has_negative(j->r))
        xd_log(XD_LOG_WARN, "the negative prompt is not used: without guidance (%s above %g) "
               "nothing is compared with it", xd_job_guide(j), xd_job_no_guidance(j));
}
