/* job_unused.c - warns about options of a request that have no effect, and logs the defaults of a
 * distilled checkpoint */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "backend/backend.h"
#include "families/recipe.h"
#include "pipeline/dtypes.h"
#include "pipeline/options.h"

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

/* ---- reasons why an option has no effect, for the rows of options.c ----------------------- */

enum { WHY = 256 };

void xd_unused_unguided(const xd_job *j, char why[WHY])
{
    if (xd_job_reads_guidance(j))
        snprintf(why, WHY, "on this transformer, which reads guidance_scale");
    else if (j->npass == 1)
        snprintf(why, WHY, "without guidance (%s above %g)", xd_job_guide(j),
                 xd_job_no_guidance(j));
}

void xd_unused_decoding(const xd_job *j, char why[WHY])
{
    if (!j->ctx->model.vae_info.timed)
        snprintf(why, WHY, "on this autoencoder, which has no timestep_conditioning");
}

void xd_unused_hires(const xd_job *j, char why[WHY])
{
    if (!xd_job_hires(j->given ? j->given : j->r))
        snprintf(why, WHY, "without --hires_scale");
}

void xd_unused_upsampling(const xd_job *j, char why[WHY])
{
    if (!j->small || !j->ctx->model.upsampler.upsampler)
        snprintf(why, WHY, "without --latent_upsampler");
}

void xd_unused_second_pass(const xd_job *j, char why[WHY])
{
    xd_unused_upsampling(j, why);
    if (!*why && !j->samp.steps)
        snprintf(why, WHY, "without denoise_strength");
}

void xd_unused_guidance_2(const xd_job *j, char why[WHY])
{
    if (j->r->guidance.guidance_scale_2 > xd_job_no_guidance(j))
        xd_unused_unguided(j, why);
}

void xd_unused_guidance_scale(const xd_job *j, char why[WHY])
{
    if (j->ctx->model.recipe->distilled && isnan(j->distilled) && j->r->guidance_scale > 1)
        snprintf(why, WHY, "on this model, which has no such input (use true_cfg_scale)");
}

void xd_unused_true_cfg_scale(const xd_job *j, char why[WHY])
{
    if (j->ctx->model.recipe->distilled && j->r->guidance.true_cfg_scale > 1 &&
        !xd_job_has_text(j->r, XD_TEXT_NEGATIVE))
        snprintf(why, WHY, "without a negative_prompt");
}

void xd_unused_skipped_layers(const xd_job *j, char why[WHY])
{
    if (!j->skips)
        snprintf(why, WHY, "%s (%s above %g)",
                 j->npass == 1 ? "without guidance"
                               : "on these steps: none is between its start and stop; nor without "
                                 "guidance",
                 xd_job_guide(j), xd_job_no_guidance(j));
}

void xd_unused_stg(const xd_job *j, char why[WHY])
{
    if (!j->ctx->model.dit_info.perturbs)
        snprintf(why, WHY, "on this transformer, whose config has no perturbed_attn");
}

void xd_unused_trained_sizes(const xd_job *j, char why[WHY])
{
    if (!j->ctx->model.recipe->trained_size)
        snprintf(why, WHY, "on %s, which has no trained sizes and generates any size",
                 j->ctx->model.recipe->name);
}

void xd_unused_clean_caption(const xd_job *j, char why[WHY])
{
    if (!j->ctx->model.recipe->uncleaned)
        snprintf(why, WHY, "on %s, which reads prompts as they are", j->ctx->model.recipe->name);
}

void xd_unused_prompt_weighting(const xd_job *j, char why[WHY])
{
    if (!j->ctx->model.recipe->weighs)
        snprintf(why, WHY, "on %s, not all of whose texts are read by CLIP encoders",
                 j->ctx->model.recipe->name);
}

void xd_unused_int8(const xd_job *j, char why[WHY])
{
    if (j->ctx->model.dit_info.whole)
        snprintf(why, WHY, "on %s, whose network %s", j->ctx->model.recipe->name,
                 j->ctx->model.dit_info.whole);
    else if (!xd_job_int8_attention(j))
        snprintf(why, WHY,
                 "on %s in %s, which does not support it (CPUs with AVX512-BF16 and VNNI "
                 "do, in bf16)",
                 j->ctx->dev->name, xd_dtype_name(j->ctx->type));
}

void xd_unused_fp8(const xd_job *j, char why[WHY])
{
    if (!xd_job_fp8_gemms(j))
        snprintf(why, WHY,
                 "on weights of %s on %s in %s (it needs weights_dtype fp8, a GPU of "
                 "compute capability 8.9 or higher, and bf16 or f16)",
                 xd_types_name(&j->ctx->model.dit, j->ctx->type), j->ctx->dev->name,
                 xd_dtype_name(j->ctx->type));
}

void xd_unused_window(const xd_job *j, char why[WHY])
{
    if (!(j->window[0] | j->window[1] | j->window[2]))
        snprintf(why, WHY, "because it covers all of %lld x %lld x %lld tokens",
                 (long long)j->lay.grid[0], (long long)j->lay.grid[1], (long long)j->lay.grid[2]);
}

void xd_unused_references(const xd_job *j, char why[WHY])
{
    if (!xd_job_keeps_references(j))
        snprintf(why, WHY, "because the transformer has no tokens of reference images");
}

void xd_unused_tiles(const xd_job *j, char why[WHY])
{
    if (j->r->output.latents_only && !xd_job_encodes(j))
        snprintf(why, WHY, "on latents, which are not decoded");
}

/* ---- warnings ----------------------------------------------------------------------------- */

static void warn_options(const xd_job *j)
{
    int                   n;
    const xd_request_row *row = xd_request_rows(&n);
    for (int i = 0; i < n; i++) {
        char why[WHY] = "";
        if (!row[i].unused || !xd_request_gives_row(&row[i], j->r))
            continue;
        row[i].unused(j, why);
        if (!*why)
            continue;
        xd_text_buf value = { 0 };
        if (row[i].option.choices && row[i].option.kind == XD_OPT_TEXT)
            xd_buf_add(&value, " "), xd_request_value(&row[i], j->r, &value);
        xd_log(XD_LOG_WARN, "%s%s has no effect %s", row[i].option.name, value.p ? value.p : "",
               why);
        xd_buf_free(&value);
    }
}

/* Warns about texts that have no effect: second and third prompts, and negative prompts, given once
 * or as a list with one text per prompt. */
static void warn_texts(const xd_job *j)
{
    const xd_recipe *p = j->ctx->model.recipe;
    for (int k = 0; k < p->ntext; k++)
        if (!j->ctx->model.has_text[k] && own_text(j->r, p->text[k].prompt))
            xd_log(XD_LOG_WARN, "prompt_%d has no effect: the model has no %s",
                   p->text[k].prompt + 1, p->text[k].folder);
    if (!xd_job_has_negative(j) && has_negative(j->r)) {
        char why[WHY];
        xd_unused_unguided(j, why);
        xd_log(XD_LOG_WARN, "the negative prompt has no effect %s", why);
    }
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
        xd_log(XD_LOG_WARN,
               "%d of the %d groups of data_parallel_degree are idle: the request "
               "generates %d %s",
               groups - j->ntodo, groups, j->ntodo, j->ntodo == 1 ? "image" : "images");
    if (p->deg.n[XD_CFG] > 1 && j->npass == 1) {
        xd_unused_unguided(j, line);
        xd_log(XD_LOG_WARN,
               "half of the ranks are idle: use_cfg_parallel splits two passes, but %s each step "
               "has one",
               line);
    }
    if (j->ctx->model.usual.true_cfg > 1 && !(j->r->guidance.true_cfg_scale > 0) &&
        !xd_job_has_text(j->r, XD_TEXT_NEGATIVE))
        xd_log(XD_LOG_INFO,
               "no guidance: true_cfg_scale %g needs a negative_prompt, possibly "
               "\" \"",
               j->ctx->model.usual.true_cfg);
    warn_options(j);
    warn_texts(j);
}
