/* prior.c - reads the images that a prior turns into rows of prompts; see prior.h */
#include "pipeline/prior.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "families/help.h"
#include "pipeline/context.h"
#include "pipeline/encoder_images.h"
#include "pipeline/input_image.h"

/* Returns the index of the prior's first encoder, or -1 if the model is open without a prior. */
static int prior_of(const xd_job *j)
{
    const xd_model *m = &j->ctx->model;
    for (int k = 0; k < m->recipe->ntext; k++)
        if (m->recipe->text[k].prior)
            return m->has_text[k] ? k : -1;
    return -1;
}

int64_t xd_prior_images(const xd_request *r)
{
    return (r->redux.image || r->redux.image_pixels) + r->redux.nmore_images;
}

/* Reads an option that has one number for all images, or one for each. */
static xd_status read_scales(const xd_job *j, const char *name, const char *text,
                             double v[XD_MAXREFS], xd_err *e)
{
    int     n = 1, images = (int)xd_prior_images(j->r);
    double *given = text ? xd_job_numbers(name, text, &n, e) : NULL;
    if (text && !given)
        return XD_EINVAL;
    for (int i = 0; i < images; i++)
        v[i] = !given ? 1 : n == images ? given[i] : given[0];
    free(given);
    if (n != 1 && n != images)
        return xd_fail(e, XD_EINVAL,
                       "%s has %d numbers; it must have one, or one for each redux_image (%d)",
                       name, n, images);
    return XD_OK;
}

static xd_status check_images(const xd_job *j, int64_t n, xd_err *e)
{
    const xd_recipe *p = j->ctx->model.recipe;
    if (!xd_recipe_has(p, XD_WORD_PRIOR))
        return xd_fail(e, XD_EINVAL, "redux_image is for a model with a prior (%s), not for %s",
                       xd_family_says(XD_WORD_PRIOR), p->name);
    if (prior_of(j) < 0)
        return xd_fail(e, XD_EINVAL,
                       "redux_image is for a prior, which is not open: add --redux DIR");
    if (n > XD_MAXREFS)
        return xd_fail(e, XD_EINVAL, "%lld images are given as redux_image; at most %d are read",
                       (long long)n, XD_MAXREFS);
    return XD_OK;
}

xd_status xd_prior_check(xd_job *j, xd_err *e)
{
    const xd_request_redux *r = &j->r->redux;
    int64_t                 n = xd_prior_images(j->r);
    if (n < 0 || (r->nmore_images > 0 && !r->image && !r->image_pixels))
        return xd_fail(e, XD_EINVAL, "more redux images are given without the first one");
    if (!n && (r->prompt_embeds_scale || r->pooled_prompt_embeds_scale))
        return xd_fail(e, XD_EINVAL, "%s is the weight of a redux_image: add --redux_image",
                       r->prompt_embeds_scale ? "prompt_embeds_scale"
                                              : "pooled_prompt_embeds_scale");
    if (!n)
        return XD_OK;
    xd_status s = check_images(j, n, e);
    if (s == XD_OK)
        s = read_scales(j, "prompt_embeds_scale", r->prompt_embeds_scale, j->prior_scale, e);
    if (s == XD_OK)
        s = read_scales(j, "pooled_prompt_embeds_scale", r->pooled_prompt_embeds_scale,
                        j->prior_pooled_scale, e);
    return s;
}

xd_status xd_prior_read(xd_job *j, xd_err *e)
{
    xd_status s = XD_OK;
    if (j->ctx->world.used->rank != 0 || j->ctx->unread)
        return XD_OK;
    for (int64_t i = 0; s == XD_OK && i < xd_prior_images(j->r); i++) {
        xd_pixel_source of = xd_input_image_redux(j->r, (int)i);
        uint8_t        *rgb = NULL;
        int64_t         w, h;
        s = xd_input_image_pixels(&of, &rgb, &w, &h, e);
        if (s == XD_OK)
            s = xd_encoder_images_take(j, (int)i, rgb, w, h, e);
        free(rgb);
    }
    return s;
}

int64_t xd_prior_rows(const xd_job *j)
{
    int k = prior_of(j);
    return k >= 0 && xd_prior_images(j->r) ? xd_model_image_rows(&j->ctx->model, k) : 0;
}

int64_t xd_prior_image_rows(const xd_job *j)
{
    return xd_prior_rows(j) * xd_prior_images(j->r);
}

int xd_prior_is_silent(const xd_job *j, int prompt)
{
    const char *text = j->r->prompts[prompt], *second = xd_job_text(j->r, XD_TEXT_2, prompt);
    return xd_prior_images(j->r) && !(text && *text) && !(second && *second);
}

static float sum_of(const xd_job *j, const double scale[XD_MAXREFS])
{
    double sum = 0;
    for (int64_t i = 0; i < xd_prior_images(j->r); i++)
        sum += scale[i];
    return (float)sum;
}

float xd_prior_text_scale(const xd_job *j)
{
    return sum_of(j, j->prior_scale);
}

float xd_prior_pooled_scale(const xd_job *j)
{
    return sum_of(j, j->prior_pooled_scale);
}

int64_t xd_prior_hash(const xd_job *j, int64_t hash)
{
    uint64_t h = (uint64_t)hash, bits;
    for (int64_t i = 0; i < 2 * xd_prior_images(j->r); i++) {
        memcpy(&bits, i % 2 ? &j->prior_pooled_scale[i / 2] : &j->prior_scale[i / 2], sizeof bits);
        h = xd_hash_mix(h, bits);
    }
    return (int64_t)h;
}
