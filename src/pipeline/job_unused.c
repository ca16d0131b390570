/* job_unused.c - sets the defaults of a distilled checkpoint, and warns about options of a request
 * that have no effect */
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

/* Returns 1 if the request has a negative prompt that is not empty. */
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
        xd_log(XD_LOG_WARN, "%d of the %d groups of data_parallel_degree are idle: the request "
               "generates %d %s", groups - j->ntodo, groups, j->ntodo,
               j->ntodo == 1 ? "image" : "images");
    if (p->deg.n[XD_CFG] > 1 && j->npass == 1)
        xd_log(XD_LOG_WARN, "half of the ranks are idle: use_cfg_parallel splits two passes, but "
               "without guidance (%s above %g) each step has one", xd_job_guide(j),
               xd_job_no_guidance(j));
    if (j->ctx->model.recipe->distilled && j->r->guidance.true_cfg_scale > 1 &&
        !xd_job_has_text(j->r, XD_TEXT_NEGATIVE))
        xd_log(XD_LOG_WARN, "true_cfg_scale has no effect without a negative_prompt");
    if (j->ctx->model.usual.true_cfg > 1 && !(j->r->guidance.true_cfg_scale > 0) &&
        !xd_job_has_text(j->r, XD_TEXT_NEGATIVE))
        xd_log(XD_LOG_INFO, "no guidance: true_cfg_scale %g needs a negative_prompt, possibly "
               "\" \"", j->ctx->model.usual.true_cfg);
    if (j->r->output.no_resolution_binning && !j->ctx->model.recipe->trained_size)
        xd_log(XD_LOG_WARN, "no_resolution_binning has no effect on %s, which has no trained "
               "sizes and generates any size", j->ctx->model.recipe->name);
    if (!j->r->texts.clean_caption && !j->ctx->model.recipe->uncleaned)
        xd_log(XD_LOG_WARN, "clean_caption has no effect on %s, which reads prompts as they "
               "are", j->ctx->model.recipe->name);
    for (int k = 0; k < j->ctx->model.recipe->ntext; k++)
        if (!j->ctx->model.has_text[k] && own_text(j->r, j->ctx->model.recipe->text[k].prompt))
            xd_log(XD_LOG_WARN, "prompt_%d has no effect: the model has no %s",
                   j->ctx->model.recipe->text[k].prompt + 1, j->ctx->model.recipe->text[k].folder);
    if (j->npass == 1 && j->r->guidance.guidance_scale_2 > xd_job_no_guidance(j))
        xd_log(XD_LOG_WARN, "guidance_scale_2 has no effect without guidance (%s above %g)",
               xd_job_guide(j), xd_job_no_guidance(j));
    if (j->r->guidance.skip_guidance_layers && *j->r->guidance.skip_guidance_layers && !j->skips)
        xd_log(XD_LOG_WARN, "skip_guidance_layers has no effect %s (%s above %g)",
               j->npass == 1 ? "without guidance" : "on these steps: none is between its start and "
               "stop; nor without guidance", xd_job_guide(j), xd_job_no_guidance(j));
    if (j->npass == 1 && j->r->guidance.use_dynamic_cfg)
        xd_log(XD_LOG_WARN, "use_dynamic_cfg has no effect without guidance (%s above 1)",
               xd_job_guide(j));
    if (j->npass == 1 && j->r->guidance.guidance_rescale > 0)
        xd_log(XD_LOG_WARN, "guidance_rescale has no effect without guidance (%s above 1)",
               xd_job_guide(j));
    if (j->npass == 1 &&
        (j->r->guidance.cfg_normalization > 0 || j->r->guidance.cfg_truncation < 1))
        xd_log(XD_LOG_WARN, "%s has no effect without guidance (%s above %g)",
               j->r->guidance.cfg_normalization > 0 ? "cfg_normalization" : "cfg_truncation",
               xd_job_guide(j), xd_job_no_guidance(j));
    if (j->ctx->model.recipe->distilled && isnan(j->distilled) && j->r->guidance_scale > 1)
        xd_log(XD_LOG_WARN, "guidance_scale has no effect on this model, which has no such input "
               "(use true_cfg_scale)");
    if (j->r->savings.attention && strcmp(j->r->savings.attention, "int8") == 0 &&
        !xd_job_int8_attention(j))
        xd_log(XD_LOG_WARN, "attention int8 has no effect on %s in %s, which does not support it "
               "(CPUs with AVX512-BF16 and VNNI do, in bf16)", j->ctx->dev->name,
               xd_dtype_name(j->ctx->type));
    if (j->r->savings.gemm && strcmp(j->r->savings.gemm, "fp8") == 0 && !xd_job_fp8_gemms(j))
        xd_log(XD_LOG_WARN, "gemm fp8 has no effect on weights of %s on %s in %s (it needs "
               "weights_dtype fp8, a GPU of compute capability 8.9 or higher, and bf16 or "
               "f16)", xd_types_name(&j->ctx->model.dit, j->ctx->type), j->ctx->dev->name,
               xd_dtype_name(j->ctx->type));
    if (j->r->savings.attention_window && !(j->window[0] | j->window[1] | j->window[2]))
        xd_log(XD_LOG_WARN, "attention_window has no effect: it covers all of %lld x %lld x "
               "%lld tokens", (long long)j->lay.grid[0], (long long)j->lay.grid[1],
               (long long)j->lay.grid[2]);
    if (j->r->savings.reference_interval != 1 && !xd_job_keeps_references(j))
        xd_log(XD_LOG_WARN, "reference_interval has no effect: the transformer has no tokens of "
               "reference images");
    if (j->r->output.latents_only && j->r->output.enable_tiling && !xd_job_has_image(j->r))
        xd_log(XD_LOG_WARN, "enable_tiling has no effect on latents, which are not decoded");
    if (j->npass == 1 && has_negative(j->r))
        xd_log(XD_LOG_WARN, "the negative prompt has no effect without guidance (%s above "
               "%g)", xd_job_guide(j), xd_job_no_guidance(j));
}
