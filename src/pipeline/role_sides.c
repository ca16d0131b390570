/* role_sides.c - the control images of side networks (ControlNets)
 *
 * Each side network reads the latents of one control image beside the noise, or features that it
 * computes from the pixels of this image (xd_side.read_pixels). The latents are a
 * sample of the VAE's Gaussian if diffusers draws it from the generator of the request
 * (xd_recipe.samples_sides), else the Gaussian's mean: other pipelines of diffusers sample from the
 * global random generator of PyTorch, so their image is not determined by the seed. If the request
 * has an initial image, denoising starts from that image and noise. As in diffusers, a side network
 * is used in step i of n if i / n is at least control_guidance_start and (i + 1) / n is at most
 * control_guidance_end.
 *
 * Side networks for inpainting (xd_dit_info.side_fill) also read the mask and, some of them, the
 * latents of the request's image without the masked part. Then denoising starts from noise
 * alone. */
#include "pipeline/image_roles_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "families/help.h"
#include "pipeline/callbacks.h"
#include "pipeline/context.h"
#include "pipeline/denoise.h"
#include "pipeline/mask.h"
#include "pipeline/vae_codec.h"

static int sides_of(const xd_job *j)
{
    return j->ctx->model.dit_info.sides;
}

static xd_side_fill fill_of(const xd_job *j, int i)
{
    return j->ctx->model.dit_info.side_fill[i];
}

/* Returns 1 if side network i reads the pixels of its control image. */
static int reads_pixels(const xd_job *j, int i)
{
    return j->ctx->model.dit_info.pixels >> i & 1;
}

static int64_t images_of(const xd_request *r)
{
    return xd_job_has_control(r) + r->images.nmore_control_images;
}

static xd_status refuse(const xd_job *j, xd_err *e)
{
    const xd_request_images *i = &j->r->images;
    const char              *what = i->control_guidance_start ? "control_guidance_start"
                                    : i->control_guidance_end ? "control_guidance_end"
                                    : i->control_mode         ? "control_mode"
                                                              : NULL;
    if (what)
        return xd_fail(e, XD_EINVAL, "%s is for control networks: add --controlnet", what);
    if (i->nmore_control_images)
        return xd_fail(e, XD_EINVAL, "%lld control images are given, but %s reads one",
                       (long long)images_of(j->r), j->ctx->model.recipe->name);
    return XD_OK;
}

/* Checks the mask of side networks for inpainting. */
static xd_status check_fills(const xd_job *j, xd_err *e)
{
    const xd_dit_info *d = &j->ctx->model.dit_info;
    if (xd_dit_fills(d, XD_FILL_CONTROL) && !xd_job_has_mask(j->r))
        return xd_fail(e, XD_EINVAL,
                       "a control network is for inpainting its control image: add --mask_image");
    if (j->role->reads_mask && xd_job_has_image(j->r) && !xd_dit_fills(d, XD_FILL_IMAGE))
        return xd_fail(e, XD_EINVAL,
                       "the control networks inpaint their control images: omit --image");
    if (j->role->reads_mask && j->r->images.strength > 0)
        return xd_fail(e, XD_EINVAL,
                       "strength %g cannot be used with control networks that read the mask: "
                       "denoising starts from noise",
                       j->r->images.strength);
    return XD_OK;
}

xd_status xd_role_sides_check(const xd_job *j, xd_err *e)
{
    int64_t n = images_of(j->r);
    if (!sides_of(j))
        return refuse(j, e);
    if (n && n != sides_of(j))
        return xd_fail(
            e, XD_EINVAL,
            "%lld control image%s for %d control network%s: give one --control_image for "
            "each --controlnet",
            (long long)n, n == 1 ? " is given" : "s are given", sides_of(j),
            sides_of(j) == 1 ? "" : "s");
    if (n && !j->ctx->model.vae.vae->encode)
        return xd_fail(e, XD_EUNSUPPORTED, "the autoencoder of this model cannot encode an image");
    return n ? check_fills(j, e) : XD_OK;
}

/* Reads an option that has one number, or one for each side network; `usual` stands for a missing
 * option. */
static xd_status read_numbers(const xd_job *j, const char *name, const char *text, double usual,
                              double v[XD_MAXSIDES], xd_err *e)
{
    int     n = 1;
    double *given = text ? xd_job_numbers(name, text, &n, e) : NULL;
    if (text && !given)
        return XD_EINVAL;
    for (int i = 0; i < sides_of(j); i++)
        v[i] = !given ? usual : n == sides_of(j) ? given[i] : given[0];
    free(given);
    if (n != 1 && n != sides_of(j))
        return xd_fail(e, XD_EINVAL,
                       "%s has %d numbers; it must have one, or %d: one for each "
                       "control network",
                       name, n, sides_of(j));
    return XD_OK;
}

/* Reads the kinds of the control images of networks for several kinds (Union). */
static xd_status read_modes(xd_job *j, xd_err *e)
{
    const xd_dit_info *d = &j->ctx->model.dit_info;
    const char        *text = j->r->images.control_mode;
    double             v[XD_MAXSIDES];
    int                several = 0;
    if (read_numbers(j, "control_mode", text, 0, v, e) != XD_OK)
        return XD_EINVAL;
    for (int i = 0; i < sides_of(j); i++) {
        several |= d->modes[i] > 0;
        if (d->modes[i] && !text && !j->ctx->bench)
            return xd_fail(e, XD_EINVAL,
                           "controlnet %d is for %d kinds of control images: add control_mode with "
                           "a number from 0 to %d",
                           i, d->modes[i], d->modes[i] - 1);
        if (d->modes[i] && !(v[i] >= 0 && v[i] < d->modes[i] && v[i] == floor(v[i])))
            return xd_fail(e, XD_EINVAL,
                           "control_mode of controlnet %d is %.10g; it must be a whole number from "
                           "0 to %d",
                           i, v[i], d->modes[i] - 1);
        j->modes[i] = d->modes[i] ? (int)v[i] : 0;
    }
    if (text && !several)
        return xd_fail(e, XD_EINVAL,
                       "control_mode is for control networks of several kinds of control images "
                       "(num_mode in their config), which these are not");
    return XD_OK;
}

static xd_status check_shares(const xd_job *j, const double start[], const double end[], xd_err *e)
{
    for (int i = 0; i < sides_of(j); i++)
        if (!(start[i] >= 0 && end[i] <= 1 && start[i] < end[i]))
            return xd_fail(
                e, XD_EINVAL,
                "control_guidance_start is %.10g and control_guidance_end is %.10g; they "
                "must be 0 to 1, and the start must be less than the end",
                start[i], end[i]);
    return XD_OK;
}

xd_status xd_role_sides_scales(xd_job *j, xd_err *e)
{
    const xd_request_images *r = &j->r->images;
    double                   scale[XD_MAXSIDES], start[XD_MAXSIDES], end[XD_MAXSIDES];
    double                   usual = j->ctx->model.recipe->side_scale;
    int                      n = sides_of(j), steps = j->samp.steps;
    if (!n)
        return XD_OK;
    if (read_numbers(j, "conditioning_scale", r->conditioning_scale, usual > 0 ? usual : 1, scale,
                     e) != XD_OK ||
        read_numbers(j, "control_guidance_start", r->control_guidance_start, 0, start, e) !=
            XD_OK ||
        read_numbers(j, "control_guidance_end", r->control_guidance_end, 1, end, e) != XD_OK ||
        check_shares(j, start, end, e) != XD_OK || read_modes(j, e) != XD_OK)
        return XD_EINVAL;
    if (!(j->hint_scales = malloc((size_t)steps * (size_t)n * sizeof *j->hint_scales + 1)))
        return xd_fail(e, XD_ENOMEM, "no memory for %d factors", steps * n);
    j->hint_stride = n;
    for (int s = 0; s < steps; s++)
        for (int i = 0; i < n; i++) {
            int off = (double)s / steps < start[i] || (double)(s + 1) / steps > end[i];
            j->hint_scales[s * n + i] = off ? 0 : scale[i];
        }
    return XD_OK;
}

xd_status xd_role_sides_read(xd_job *j, xd_err *e)
{
    int       filled = j->role->reads_mask, first = filled && !xd_job_has_image(j->r);
    xd_status s = xd_role_start_take_first(j, filled ? &j->image : &j->start_image, e);
    for (int i = 0; s == XD_OK && i < images_of(j->r); i++) {
        xd_pixel_source of = xd_input_image_control(j->r, i);
        /* the mask is read with the first image */
        s = xd_role_start_take(j, &of, first && i == 0 ? 0 : 1, &j->side_pixels[i], e);
    }
    if (s == XD_OK && j->image)
        xd_role_mask_paint(j, j->image, 0); /* grey */
    for (int i = 0; s == XD_OK && i < images_of(j->r); i++)
        if (j->side_pixels[i] && fill_of(j, i) == XD_FILL_CONTROL)
            xd_role_mask_paint(j, j->side_pixels[i], -1); /* black */
    return s;
}

xd_status xd_role_sides_encode(xd_job *j, xd_arena *a, xd_err *e)
{
    xd_vae_clip clip = { .frames = 1, .pixels = { j->size[0], j->size[1] } };
    int         filled = j->role->reads_mask;
    float     **start[2] = { filled ? &j->image : &j->start_image, NULL };
    xd_status   s = xd_mask_share(j, e);
    for (int i = 0; s == XD_OK && i < images_of(j->r); i++) {
        float **control[2] = { &j->side_pixels[i], NULL };
        clip.side = reads_pixels(j, i) ? 1 + i : 0;
        s = xd_vae_encode_clip(j, a, &clip, control, &j->side_moments[i], e);
    }
    clip.side = 0;
    if (s == XD_OK && xd_job_has_image(j->r))
        s = xd_vae_encode_clip(j, a, &clip, start, filled ? &j->moments : &j->start_moments, e);
    return s;
}

/* Writes features [h,w,C] of control image i, from its pixels, to out [C,h,w]. */
static void set_features(const xd_job *j, int i, float *out)
{
    int64_t C = j->lat[1], n = j->lat[2] * j->lat[3];
    for (int64_t k = 0; k < n; k++)
        for (int64_t c = 0; c < C; c++)
            out[c * n + k] = j->side_moments[i][k * C + c];
}

/* Writes the channels after the latents of control image i to out: the part that the mask keeps,
 * and with XD_FILL_IMAGE the latents `image` [C,h,w]. */
static void set_fill(const xd_job *j, int i, const float *image, float *out)
{
    const int *cell = j->ctx->model.vae_info.cell;
    int64_t    h = j->cells[1], w = j->cells[2];
    if (!j->mask || fill_of(j, i) == XD_FILL_NONE)
        return;
    for (int64_t k = 0; k < h * w; k++)
        out[k] = !j->mask[k / w * cell[1] * j->size[1] + k % w * cell[2]];
    if (fill_of(j, i) == XD_FILL_IMAGE && j->moments)
        memcpy(out + h * w, image, (size_t)(j->lat[1] * h * w) * sizeof *out);
}

void xd_role_sides_channels(const xd_job *j, const float *sample, float *out)
{
    int64_t            n = j->numbers / j->cells[0], cells = j->lat[2] * j->lat[3], from = 0;
    const xd_vae_info *v = &j->ctx->model.vae_info;
    float              shift = (float)(v->shift * (v->invert ? 1 / v->scaling : v->scaling));
    for (int i = 0; i < sides_of(j); i++) {
        float *own = out + from;
        from += xd_dit_side_channels(&j->ctx->model.dit_info, i) * cells;
        if (!j->side_moments[i])
            continue;
        if (reads_pixels(j, i)) {
            set_features(j, i, own);
            continue;
        }
        set_fill(j, i, sample, own + n);
        if (j->ctx->model.recipe->samples_sides && fill_of(j, i) != XD_FILL_CONTROL)
            memcpy(own, sample + (1 + i) * n, (size_t)n * sizeof *out);
        xd_latents_sample(j, j->side_moments[i], own);
        for (int64_t k = 0; k < n && j->ctx->model.dit_info.unshifted >> i & 1; k++)
            own[k] += shift;
    }
    int64_t d[4] = { 1, from / cells, j->lat[2], j->lat[3] };
    xd_callback_tensor(j, "condition", 0, 4, d, out);
}
