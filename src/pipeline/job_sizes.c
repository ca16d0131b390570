/* job_sizes.c - reads the sizes that some transformers read as conditions: the size of the original
 * image, the corner of its crop, and the size of the result (Podell et al. 2023, arXiv:2307.01952,
 * section 2.2) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/help.h"
#include "families/recipe.h"
#include "model/model.h"
#include "pipeline/image_roles.h"
#include "pipeline/options.h"

/* Reads a pair of numbers that the request may give. If the request does not give the pair, `out`
 * is unchanged. */
static xd_status read_pair(const xd_job *j, const char *key, const char *text, int smallest,
                           xd_family_word who, double out[2], xd_err *e)
{
    int n = 0;
    if (!text || !*text)
        return XD_OK;
    if (!xd_recipe_has(j->ctx->model.recipe, who))
        return xd_fail(e, XD_EINVAL, "%s is for %s; the pipeline of %s has no such option", key,
                       xd_family_says(who), j->ctx->model.recipe->name);
    double *v = xd_job_numbers(key, text, &n, e);
    if (!v)
        return XD_EINVAL;
    int good = n == 2;
    for (int i = 0; i < n; i++)
        good = good && v[i] >= smallest && v[i] <= 1e6;
    if (good)
        memcpy(out, v, 2 * sizeof *v);
    free(v);
    return good ? XD_OK
                : xd_fail(e, XD_EINVAL,
                          "%s is \"%s\"; it must be two numbers of pixels from %d to 1000000, "
                          "first the vertical one, such as \"%s\"",
                          key, text, smallest, smallest ? "768,1024" : "0,64");
}

/* Changes the sizes for the negative prompt as diffusers does. With an input image, the crop is
 * that for the prompt; without one, all sizes are those for the prompt unless the request gives
 * both the original size and the target size. */
static void set_negative(xd_job *j, const double original[2], const double crop[2],
                         const double target[2])
{
    xd_job_size *to = &j->sizes[1];
    const int    image = xd_job_has_image(j->r) && j->role->starts;
    *to = j->sizes[0];
    if (!image && !(original[0] > 0 && target[0] > 0))
        return;
    if (original[0] > 0)
        memcpy(to->original, original, sizeof to->original);
    if (target[0] > 0)
        memcpy(to->target, target, sizeof to->target);
    if (!image)
        memcpy(to->crop, crop, sizeof to->crop);
}

xd_status xd_job_read_sizes(xd_job *j, xd_err *e)
{
    const xd_request_sizes *z = &j->r->sizes;
    double                  original[2] = { 0 }, crop[2] = { 0 }, target[2] = { 0 };
    xd_job_size            *to = &j->sizes[0];
    const struct {
        const char *key, *text;
        int         smallest;
        double     *out;
    } pair[] = {
        { "original_size", z->original_size, 1, to->original },
        { "crops_coords_top_left", z->crops_coords_top_left, 0, to->crop },
        { "target_size", z->target_size, 1, to->target },
        { "negative_original_size", z->negative_original_size, 1, original },
        { "negative_crops_coords_top_left", z->negative_crops_coords_top_left, 0, crop },
        { "negative_target_size", z->negative_target_size, 1, target },
    };
    *to = (xd_job_size){ .target = { (double)j->size[0], (double)j->size[1] } };
    for (int i = 0; i < 6; i++) {
        xd_status s = read_pair(j, pair[i].key, pair[i].text, pair[i].smallest,
                                i < 3 ? XD_WORD_MICRO : XD_WORD_NEGATIVE_MICRO, pair[i].out, e);
        if (s != XD_OK)
            return s;
    }
    if (!(to->original[0] > 0) && j->ctx->model.recipe->negative_micro)
        to->original[0] = (double)j->size[0], to->original[1] = (double)j->size[1];
    set_negative(j, original, crop, target);
    return XD_OK;
}

/* ---- reasons why an option has no effect --------------------------------------------------- */

enum { WHY = 256 };

void xd_unused_size(const xd_job *j, char why[WHY])
{
    if (!j->ctx->model.dit_info.micro)
        snprintf(why, WHY, "on this transformer, which reads no sizes");
}

void xd_unused_negative_size(const xd_job *j, char why[WHY])
{
    const xd_request_sizes *z = &j->r->sizes;
    xd_unused_unguided(j, why);
    if (!*why && !(xd_job_has_image(j->r) && j->role->starts) &&
        !(z->negative_original_size && z->negative_target_size))
        snprintf(why, WHY, "without both negative_original_size and negative_target_size");
}

void xd_unused_negative_crop(const xd_job *j, char why[WHY])
{
    xd_unused_negative_size(j, why);
    if (!*why && xd_job_has_image(j->r) && j->role->starts)
        snprintf(why, WHY, "with an image (the crop is then that for the prompt)");
}
