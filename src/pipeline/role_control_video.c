/* role_control_video.c - the control stream of a video model: a control video, its mask, and
 * reference images
 *
 * The rules are those of diffusers' pipeline. The mask splits the control video into the part
 * outside, which is kept, and the part inside, which is generated. Each part is grey elsewhere. The
 * latents of both parts are the mean of the VAE's Gaussian, so no random number is drawn. A request
 * without a control video generates everything: the video is grey, and the mask is white. Each
 * reference image is one further latent frame before the video's frames; the last image comes
 * first. */
#include "pipeline/image_roles_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "families/help.h"
#include "io/image.h"
#include "pipeline/arenas.h"
#include "pipeline/callbacks.h"
#include "pipeline/context.h"
#include "pipeline/pixels.h"
#include "pipeline/vae_codec.h"
#include "ranks/world.h"

/* ---- checks ------------------------------------------------------------------------------- */

static xd_status refuse_control(const xd_job *j, xd_err *e)
{
    int         sides = j->ctx->model.dit_info.sides;
    const char *what = xd_job_has_control_video(j->r)              ? "control_video"
                       : j->r->images.conditioning_scale && !sides ? "conditioning_scale"
                                                                   : NULL;
    return what ? xd_fail(e, XD_EINVAL, "%s is for models such as %s; this %s model reads none",
                          what, xd_family_says(XD_WORD_CONTROL_VIDEO), j->ctx->model.recipe->name)
                : XD_OK;
}

/* Reads conditioning_scale, one factor for all hints or one factor for each. */
static xd_status read_scales(xd_job *j, xd_err *e)
{
    const char *text = j->r->images.conditioning_scale;
    int         n = 0, hints = j->ctx->model.dit_info.hints;
    if (!text)
        return XD_OK;
    double *given = xd_job_numbers("conditioning_scale", text, &n, e);
    if (given && (n == 1 || n == hints) &&
        (j->hint_scales = malloc((size_t)(hints + 1) * sizeof *given)))
        for (int i = 0; i < hints; i++)
            j->hint_scales[i] = given[n == 1 ? 0 : i];
    free(given);
    if (!given || j->hint_scales)
        return given ? XD_OK : XD_EINVAL;
    if (n == 1 || n == hints)
        return xd_fail(e, XD_ENOMEM, "no memory for %d factors", hints);
    return xd_fail(e, XD_EINVAL,
                   "conditioning_scale has %d numbers; it must have one, or %d for the control "
                   "blocks of %s",
                   n, hints, j->ctx->model.recipe->name);
}

xd_status xd_role_control_video_check(xd_job *j, xd_err *e)
{
    const xd_recipe *p = j->ctx->model.recipe;
    int64_t          images = xd_job_images(j->r);
    if (!j->role->reads_control_video)
        return refuse_control(j, e);
    if (j->role->drives)
        return xd_role_driven_check(j, e);
    if (images > p->references)
        return xd_fail(e, XD_EINVAL, "%lld images are given, but %s reads at most %d",
                       (long long)images, p->name, p->references);
    j->leading = (int)images;
    /* predictions are for requests, although their contexts need no images */
    int own = !j->ctx->bench || j->ctx->unread;
    j->parts = xd_job_has_control_video(j->r) ? 2 : own;
    if ((j->parts || j->leading) && !j->ctx->model.vae.vae->encode)
        return xd_fail(e, XD_EUNSUPPORTED, "the autoencoder of this model cannot encode a video");
    return read_scales(j, e);
}

/* ---- reading ------------------------------------------------------------------------------ */

/* A video that is read frame by frame, and its current frame, resized to the generated size. */
typedef struct film {
    const char    *what; /* name in messages */
    xd_input_video video;
    uint8_t       *rgb;
    int64_t        n;    /* number of frames that were read */
    int            held; /* 1: the video is a single image, which is used for all frames */
} film;

static const char *name_of(const film *f)
{
    return f->video.of.file ? f->video.of.file : "the request";
}

/* Reads the next frame of f. The video `repeats` if a single frame may stand for all frames. */
static xd_status next_frame(const xd_job *j, film *f, int repeats, xd_err *e)
{
    int64_t   w, h, c = j->ctx->model.vae_info.cell[0];
    uint8_t  *rgb = NULL;
    xd_status s = f->held ? XD_OK : xd_input_video_next(&f->video, &rgb, &w, &h, e);
    if (f->held || s != XD_OK)
        return s;
    if (!rgb && repeats && f->n == 1) {
        f->held = 1;
        return XD_OK;
    }
    if (!rgb)
        return xd_fail(e, XD_EINVAL,
                       "the %s of %s has %lld frames, but %lld are generated: set num_frames to "
                       "%lld or less",
                       f->what, name_of(f), (long long)f->n, (long long)j->frames,
                       (long long)((f->n - 1) / c * c + 1));
    if (!f->n && (w != j->size[1] || h != j->size[0]))
        xd_log(XD_LOG_INFO, "resizing the %s from %lld x %lld pixels to %lld x %lld", f->what,
               (long long)w, (long long)h, (long long)j->size[1], (long long)j->size[0]);
    f->n++;
    free(f->rgb);
    s = xd_image_resize(&rgb, w, h, j->size[1], j->size[0], e);
    f->rgb = rgb;
    return s;
}

/* Writes a frame of the two parts. Pixels with mask levels of 128 and above are inside the mask;
 * `mask` NULL: all are. */
static void split(const uint8_t *rgb, const uint8_t *mask, int64_t n, float *out, float *in)
{
    for (int64_t i = 0; i < n; i++) {
        float v = 2 * ((float)rgb[i] / 255) - 1;
        int   inside = !mask || mask[i] >= 128;
        out[i] = inside ? 0 : v;
        in[i] = inside ? v : 0;
    }
}

/* Returns the frame that stands for latent frame t in the mask, as torch's "nearest-exact". */
static int64_t frame_of(const xd_job *j, int64_t t)
{
    float   scale = (float)j->frames / (float)(j->cells[0] - j->spare);
    int64_t at = (int64_t)floorf(((float)t + 0.5f) * scale);
    return at < j->frames - 1 ? at : j->frames - 1;
}

static xd_status read_frames(xd_job *j, film *video, film *mask, xd_err *e)
{
    int64_t   cells = j->size[0] * j->size[1], n = 3 * cells, at = 0;
    xd_status s = XD_OK;
    for (int64_t t = 0; t < j->frames && s == XD_OK; t++) {
        s = next_frame(j, video, 0, e);
        if (s == XD_OK && mask)
            s = next_frame(j, mask, 1, e);
        if (s != XD_OK)
            return s;
        split(video->rgb, mask ? mask->rgb : NULL, n, j->part_pixels[0] + t * n,
              j->part_pixels[1] + t * n);
        for (; mask && at < j->cells[0] - j->spare && frame_of(j, at) == t; at++)
            for (int64_t i = 0; i < cells; i++)
                j->levels[at * cells + i] = mask->rgb[3 * i];
    }
    return s;
}

static size_t level_bytes(const xd_job *j)
{
    return (size_t)((j->cells[0] - j->spare) * j->size[0] * j->size[1]);
}

static xd_status read_video(xd_job *j, xd_err *e)
{
    const xd_request *r = j->r;
    size_t            n = (size_t)(j->frames * j->size[0] * j->size[1]) * 3 * sizeof(float);
    film              video = { .what = "control video" }, mask = { .what = "mask" };
    int               masked = xd_job_has_mask(r);
    for (int i = 0; i < 2; i++)
        if (!(j->part_pixels[i] = calloc(1, n)))
            return xd_fail(e, XD_ENOMEM, "no memory for a control video");
    if (masked && !(j->levels = calloc(1, level_bytes(j))))
        return xd_fail(e, XD_ENOMEM, "no memory for the mask of a video");
    xd_pixel_source of[2] = { xd_input_video_control(r), xd_input_video_mask(r) };
    xd_status       s = xd_input_video_open(&video.video, &of[0], e);
    if (s == XD_OK && masked)
        s = xd_input_video_open(&mask.video, &of[1], e);
    if (s == XD_OK)
        s = read_frames(j, &video, masked ? &mask : NULL, e);
    xd_input_video_close(&video.video);
    xd_input_video_close(&mask.video);
    free(video.rgb), free(mask.rgb);
    return s;
}

/* Reads reference image i, resized to fit into the video on a white ground. As in diffusers, it is
 * first resized to complete latent cells. */
static xd_status read_reference(xd_job *j, int i, xd_err *e)
{
    xd_pixel_source of = xd_input_image_source(j->r, i);
    const int      *cell = j->ctx->model.vae_info.cell;
    uint8_t        *rgb = NULL;
    float          *own = NULL;
    int64_t         w, h;
    xd_grid         whole, to = { j->size[0], j->size[1] };
    xd_status       s = xd_input_image_pixels(&of, &rgb, &w, &h, e);
    if (s != XD_OK)
        return s;
    whole = (xd_grid){ h / cell[1] * cell[1], w / cell[2] * cell[2] };
    if (!whole.rows || !whole.cols)
        s = xd_fail(e, XD_EINVAL, "image %d has %lld x %lld pixels; it needs at least %d x %d",
                    i + 1, (long long)w, (long long)h, cell[2], cell[1]);
    else if (!(j->ref_pixels[i] = malloc((size_t)(to.rows * to.cols) * 3 * sizeof(float))))
        s = xd_fail(e, XD_ENOMEM, "no memory for an image");
    if (s == XD_OK)
        s = xd_image_resize(&rgb, w, h, whole.cols, whole.rows, e);
    if (s == XD_OK)
        s = xd_pixels_floats(&own, rgb, whole, 3, e);
    if (s == XD_OK)
        xd_pixels_within(own, whole, j->ref_pixels[i], to, 1);
    free(rgb), free(own);
    return s;
}

xd_status xd_role_control_video_read(xd_job *j, xd_err *e)
{
    xd_status s = XD_OK;
    if (j->ctx->world.used->rank != 0 || j->ctx->unread)
        return XD_OK;
    if (xd_job_has_control_video(j->r))
        s = read_video(j, e);
    for (int i = 0; i < j->leading && s == XD_OK; i++)
        s = read_reference(j, i, e);
    return s;
}

/* ---- encoding ----------------------------------------------------------------------------- */

/* Makes the pixels of a grey video on rank 0. */
static xd_status make_grey(xd_job *j, xd_err *e)
{
    size_t n = (size_t)(j->frames * j->size[0] * j->size[1]) * 3 * sizeof(float);
    if (j->ctx->world.used->rank == 0 && !j->part_pixels[0] && !j->ctx->dev->counts &&
        !(j->part_pixels[0] = calloc(1, n)))
        return xd_fail(e, XD_ENOMEM, "no memory for a control video");
    return XD_OK;
}

static xd_status share_levels(xd_job *j, xd_err *e)
{
    xd_status s = XD_OK;
    if (!j->levels && !(j->levels = xd_host_buffer(j->ctx, level_bytes(j))))
        s = xd_fail(e, XD_ENOMEM, "no memory for the mask of a video");
    s = xd_world_agree(&j->ctx->world, s, e);
    return s == XD_OK ? xd_world_broadcast(&j->ctx->world, j->levels, (int64_t)level_bytes(j), e)
                      : s;
}

xd_status xd_role_control_video_encode(xd_job *j, xd_arena *a, xd_err *e)
{
    xd_vae_clip clip = { .frames = j->frames, .pixels = { j->size[0], j->size[1] }, .whole = 1 };
    xd_status   s = xd_job_has_mask(j->r) ? share_levels(j, e) : XD_OK;
    if (s == XD_OK && j->parts == 1)
        s = xd_world_agree(&j->ctx->world, make_grey(j, e), e);
    for (int i = 0; i < j->parts && s == XD_OK; i++) {
        float **pixels[2] = { &j->part_pixels[i], NULL };
        s = xd_vae_encode_clip(j, a, &clip, pixels, &j->part_moments[i], e);
    }
    clip.frames = 1;
    for (int i = 0; i < j->leading && s == XD_OK; i++) {
        float **pixels[2] = { &j->ref_pixels[i], NULL };
        s = xd_vae_encode_clip(j, a, &clip, pixels, &j->leading_moments[i], e);
    }
    return s;
}

/* ---- the transformer's channels ----------------------------------------------------------- */

/* Writes the mean of moments [h,w,2C] to out [C,h,w]. */
static void mean_of(const xd_job *j, const float *moments, float *out)
{
    int64_t C = j->lat[1], hw = j->cells[1] * j->cells[2];
    for (int64_t i = 0; i < C * hw; i++)
        out[i] = moments[i % hw * 2 * C + i / hw];
}

/* Writes the mask's levels in [0,1] of latent frame t to out [p p,h,w]: the channels are the pixels
 * of a latent cell. */
static void mask_of(const xd_job *j, int64_t t, float *out)
{
    const int *cell = j->ctx->model.vae_info.cell;
    int64_t    w = j->cells[2], hw = j->cells[1] * w, W = j->size[1];
    for (int64_t i = 0; i < cell[1] * cell[2] * hw; i++) {
        int64_t c = i / hw, y = i % hw / w * cell[1] + c / cell[2],
                x = i % w * cell[2] + c % cell[2];
        int     level = j->levels ? j->levels[(t * j->size[0] + y) * W + x] : 255;
        out[i] = ((2 * ((float)level / 255) - 1) + 1) / 2;
    }
}

void xd_role_control_video_channels(const xd_job *j, const float *sample, float *out)
{
    const int *cell = j->ctx->model.vae_info.cell;
    int64_t    C = j->lat[1], hw = j->cells[1] * j->cells[2], all = 2 * C + cell[1] * cell[2];
    int64_t    d[4] = { j->lat[0], all, j->lat[2], j->lat[3] }, frame = all * hw;
    (void)sample;
    for (int64_t t = -j->spare; t < j->cells[0] - j->spare; t++) {
        float *to = out + (t + j->spare) * frame;
        if (t < 0 && t >= -j->leading && j->leading_moments[-t - 1])
            mean_of(j, j->leading_moments[-t - 1], to);
        for (int i = 0; i < 2 && t >= 0 && j->parts; i++)
            mean_of(j, j->part_moments[i < j->parts ? i : 0] + t * hw * 2 * C, to + i * C * hw);
        if (t >= 0)
            mask_of(j, t, to + 2 * C * hw);
    }
    xd_callback_tensor(j, "condition", 0, 4, d, out);
}
