/* job_skip.c - reads the options of skip layer guidance. With this guidance, some steps have a
 * third pass that skips layers, and the guided prediction is moved away from the third pass's
 * prediction.
 *
 * The formula for the guided prediction is that of diffusers' pipelines. The third pass has the
 * prompt of the first pass but runs fewer layers. The third pass's prediction is subtracted from
 * that of the first pass, and the difference, times skip_layer_guidance_scale, is added to the
 * guided prediction. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "families/help.h"
#include "families/recipe.h"
#include "model/model.h"
#include "pipeline/job.h"

xd_status xd_job_layer(const xd_job *j, int layer, uint8_t **marks, xd_err *e)
{
    if (!*marks && !(*marks = calloc((size_t)j->ctx->model.dit_info.nlayers, 1)))
        return xd_fail(e, XD_ENOMEM, "no memory for a list of layers");
    (*marks)[layer] = 1;
    return XD_OK;
}

xd_status xd_job_layers(const xd_job *j, const char *key, const char *text, uint8_t **marks,
                        xd_err *e)
{
    const int   n = j->ctx->model.dit_info.nlayers;
    const char *p = text;
    char       *end;
    for (;; p = end + 1) {
        long layer = strtol(p, &end, 10);
        if (end == p || (*end && *end != ',') || *p < '0' || *p > '9')
            return xd_fail(e, XD_EINVAL,
                           "%s is \"%s\"; it must be a comma-separated list of numbers, "
                           "\"7,8,9\"",
                           key, text);
        if (layer >= n)
            return xd_fail(e, XD_EINVAL,
                           "%s has layer %ld, but the transformer of %s has the layers 0 to %d",
                           key, layer, j->ctx->model.recipe->name, n - 1);
        xd_status s = xd_job_layer(j, (int)layer, marks, e);
        if (s != XD_OK || !*end)
            return s;
    }
}

xd_status xd_job_read_skips(xd_job *j, xd_err *e)
{
    const xd_recipe *p = j->ctx->model.recipe;
    const char      *text = j->r->guidance.skip_guidance_layers;
    if (!text || !*text)
        return XD_OK;
    if (!p->skips_layers)
        return xd_fail(e, XD_EINVAL,
                       "skip_guidance_layers is for %s; the pipeline of %s has no such option",
                       xd_family_says(XD_WORD_SKIPS_LAYERS), p->name);
    if (j->ctx->model.dit_info.sides)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "skip_guidance_layers is not supported with a control network: omit it");
    xd_status s = xd_job_layers(j, "skip_guidance_layers", text, &j->skips, e);
    if (s != XD_OK || j->npass == 1 || xd_job_first_skip(j) < 0) {
        free(j->skips);
        j->skips = NULL;
        return s;
    }
    j->npass = XD_PASS_SKIPPING + 1;
    const char *what = j->r->savings.cache && strcmp(j->r->savings.cache, "none") ? "cache"
                       : j->r->savings.fast_attn && strcmp(j->r->savings.fast_attn, "none")
                           ? "fast_attn"
                           : NULL;
    if (what)
        return xd_fail(e, XD_EINVAL,
                       "skip_guidance_layers and %s cannot be combined (both skip "
                       "parts of a step): use one of them",
                       what);
    return XD_OK;
}

/* Returns 1 if a step has the third pass, which skips layers. The limits of these steps are
 * compared in f64, as in diffusers. */
int xd_job_has_skips(const xd_job *j, int step)
{
    double n = j->samp.steps;
    return j->skips && step > n * j->r->guidance.skip_layer_guidance_start &&
           step < n * j->r->guidance.skip_layer_guidance_stop;
}

int xd_job_first_skip(const xd_job *j)
{
    for (int i = 0; j->skips && i < j->samp.steps; i++)
        if (xd_job_has_skips(j, i))
            return i;
    return -1;
}

int xd_job_skips(const xd_job *j, int pass, int layer)
{
    return j->kinds[pass] == XD_PASS_SKIPPING && j->skips[layer];
}
