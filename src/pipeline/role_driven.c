/* role_driven.c - the image of a character that a pose video and a face video drive, and the
 * segments of a long video
 *
 * The rules are those of diffusers' pipeline. The latents have a frame for the image,
 * then those of the segment. The transformer's additional channels are a mask, one channel for each
 * frame that a latent frame represents, the latents of given frames, and those of the pose video.
 * Given frames are the last frames of the previous segment and, with a control video, all its
 * frames, of which the mask tells the parts that are kept; other frames are grey. All latents are
 * the mean of the VAE's Gaussian, so no random number is drawn. A video that is too short goes back
 * from its last frame to its first one, and so on. */
#include "pipeline/image_roles_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/minmax.h"
#include "families/help.h"
#include "io/image.h"
#include "io/inpaint.h"
#include "pipeline/arenas.h"
#include "pipeline/callbacks.h"
#include "pipeline/context.h"
#include "pipeline/encoder_images.h"
#include "pipeline/pixels.h"
#include "pipeline/vae_codec.h"
#include "ranks/world.h"

static const char *const titles[XD_DRIVES] = { "pose video", "face video", "control video",
                                               "mask" };

/* ---- checks ------------------------------------------------------------------------------- */

static xd_status check_mode(const xd_job *j, xd_err *e)
{
    const char *mode = j->r->driving.mode;
    int         back = xd_job_has_control_video(j->r), replaces = mode && !strcmp(mode, "replace");
    if (mode && !replaces && strcmp(mode, "animate") != 0)
        return xd_fail(e, XD_EINVAL, "mode is '%s'; it must be animate or replace", mode);
    if (mode && !replaces && back)
        return xd_fail(e, XD_EINVAL,
                       "mode is animate, which reads no control_video: remove it, or set mode to "
                       "replace");
    if ((replaces || back) && (!back || !xd_job_has_mask(j->r)))
        return xd_fail(e, XD_EINVAL,
                       "to replace a person of a video, %s needs that video and its mask: add %s",
                       j->ctx->model.recipe->name, back ? "--mask_image" : "--control_video");
    return XD_OK;
}

xd_status xd_role_driven_check(xd_job *j, xd_err *e)
{
    const xd_request *r = j->r;
    const char       *name = j->ctx->model.recipe->name;
    int               reads = !j->ctx->bench || j->ctx->unread;
    if (r->images.conditioning_scale)
        return xd_fail(e, XD_EINVAL, "conditioning_scale is for models such as %s; %s has none",
                       xd_family_says(XD_WORD_CONTROL_VIDEO), name);
    if (r->images.nmore_images)
        return xd_fail(e, XD_EINVAL, "%lld images are given, but %s uses one",
                       (long long)xd_job_images(r), name);
    if (!j->ctx->bench && !xd_job_has_pose_video(r))
        return xd_fail(e, XD_EINVAL, "%s needs a video of poses: add --pose_video", name);
    if (!j->ctx->bench && !xd_job_has_face_video(r))
        return xd_fail(e, XD_EINVAL, "%s needs a video of a face: add --face_video", name);
    j->leading = 1;
    j->parts = reads || xd_job_has_pose_video(r);
    if (j->parts && !j->ctx->model.vae.vae->encode)
        return xd_fail(e, XD_EUNSUPPORTED, "the autoencoder of this model cannot encode a video");
    return check_mode(j, e);
}

/* Sets the number of frames of the result: those of the pose video, or the requested ones. */
static xd_status set_result(xd_job *j, int64_t usual, xd_err *e)
{
    int64_t given = j->ctx->image_frames[0], n = j->r->num_frames;
    if (j->r->output.seconds > 0)
        n = (int64_t)(j->r->output.seconds * j->fps + 0.5);
    if (!xd_job_has_pose_video(j->r))
        given = 0;
    if (given && n > given)
        return xd_fail(e, XD_EINVAL,
                       "the pose video has %lld frames, but %lld are generated: set num_frames to "
                       "%lld or less",
                       (long long)given, (long long)n, (long long)given);
    j->frames = n ? n : given ? given : usual;
    return XD_OK;
}

xd_status xd_role_driven_frames(xd_job *j, int64_t *latents, xd_err *e)
{
    const xd_request_driving *d = &j->r->driving;
    const xd_recipe          *p = j->ctx->model.recipe;
    int64_t                   cell = j->ctx->model.vae_info.cell[0], each;
    int64_t n = d->segment_frame_length ? d->segment_frame_length : p->segment_frames;
    j->overlap = d->prev_segment_conditioning_frames ? d->prev_segment_conditioning_frames
                                                     : p->segment_overlap;
    *latents = (n - 1) / cell + 1;
    j->all_frames = (*latents - 1) * cell + 1;
    if (j->all_frames != n)
        xd_log(XD_LOG_WARN,
               "generating segments of %lld frames, not %lld: a latent frame of this autoencoder, "
               "except the first, is %lld frames",
               (long long)j->all_frames, (long long)n, (long long)cell);
    if (j->overlap != 1 && j->overlap != 1 + cell)
        return xd_fail(e, XD_EINVAL,
                       "prev_segment_conditioning_frames is %lld; it must be 1 or %lld",
                       (long long)j->overlap, (long long)(1 + cell));
    each = j->all_frames - j->overlap;
    if (each < 1)
        return xd_fail(e, XD_EINVAL,
                       "a segment of %lld frames is too short to begin with %lld frames of the "
                       "segment before: increase segment_frame_length to at least %lld",
                       (long long)j->all_frames, (long long)j->overlap,
                       (long long)(j->overlap + cell));
    xd_status s = set_result(j, j->all_frames, e);
    if (s != XD_OK)
        return s;
    if (j->frames <= j->overlap)
        return xd_fail(
            e, XD_EINVAL,
            "%lld frames are too few: the video of %s needs at least %lld; give a longer "
            "pose video",
            (long long)j->frames, p->name, (long long)(j->overlap + 1));
    j->segments = (int)xd_ceil_div(j->frames - j->overlap, each);
    if (j->segments > 1 && j->r->checkpoint.dir)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "checkpoint cannot be used with %lld frames, which are generated in %d "
                       "segments: remove it, or set num_frames to %lld or less",
                       (long long)j->frames, j->segments, (long long)j->all_frames);
    return XD_OK;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Returns the number of frames of all segments together. */
static int64_t all_frames(const xd_job *j)
{
    return j->overlap + j->segments * (j->all_frames - j->overlap);
}

/* Returns the frame of a video of n frames that stands for frame `at` of the result. */
static int64_t frame_of(int64_t n, int64_t at)
{
    int64_t period = 2 * (n - 1);
    at = period ? at % period : 0;
    return at < n ? at : period - at;
}

/* Returns the size in which a video is kept: that of the result, of the face or of the latents. */
static xd_grid size_of(const xd_job *j, int k, int *channels)
{
    int64_t side = j->ctx->model.dit_info.face_size;
    *channels = k == XD_DRIVE_MASK ? 1 : 3;
    return k == XD_DRIVE_FACE   ? (xd_grid){ side, side }
           : k == XD_DRIVE_MASK ? (xd_grid){ j->cells[1], j->cells[2] }
                                : (xd_grid){ j->size[0], j->size[1] };
}

static int64_t frame_bytes(const xd_job *j, int k)
{
    int     channels;
    xd_grid size = size_of(j, k, &channels);
    return size.rows * size.cols * channels;
}

/* Writes the grey levels of a mask of the result's size to `out`, one for each latent cell: that of
 * the pixel at its top left, as torch's "nearest". */
static xd_status shrink_mask(const xd_job *j, const uint8_t *rgb, uint8_t *out, xd_err *e)
{
    const int *cell = j->ctx->model.vae_info.cell;
    uint8_t   *grey = NULL;
    int64_t    w = j->cells[2];
    xd_status  s = xd_image_grey(&grey, rgb, j->size[0] * j->size[1], e);
    for (int64_t i = 0; i < j->cells[1] * w && s == XD_OK; i++)
        out[i] = grey[i / w * cell[1] * j->size[1] + i % w * cell[2]];
    free(grey);
    return s;
}

/* Appends a frame of w x h pixels to video k. */
static xd_status add_frame(xd_job *j, int k, uint8_t **rgb, int64_t w, int64_t h, xd_err *e)
{
    xd_job_driven *d = &j->driven;
    int64_t        bytes = frame_bytes(j, k), n = d->n[k];
    int            channels;
    xd_grid        to = k == XD_DRIVE_MASK ? (xd_grid){ j->size[0], j->size[1] }
                                           : size_of(j, k, &channels);
    if (!n && (w != to.cols || h != to.rows))
        xd_log(XD_LOG_INFO, "resizing the %s from %lld x %lld pixels to %lld x %lld", titles[k],
               (long long)w, (long long)h, (long long)to.cols, (long long)to.rows);
    if ((n & (n - 1)) == 0) { /* memory for twice as many frames */
        uint8_t *more = realloc(d->video[k], (size_t)((n ? 2 * n : 1) * bytes));
        if (!more)
            return xd_fail(e, XD_ENOMEM, "no memory for a %s", titles[k]);
        d->video[k] = more;
    }
    xd_status s = xd_image_resize(rgb, w, h, to.cols, to.rows, e);
    if (s == XD_OK && k == XD_DRIVE_MASK)
        s = shrink_mask(j, *rgb, d->video[k] + n * bytes, e);
    else if (s == XD_OK)
        memcpy(d->video[k] + n * bytes, *rgb, (size_t)bytes);
    d->n[k] += s == XD_OK;
    return s;
}

/* Reads at most `most` frames of video k. */
static xd_status read_video(xd_job *j, int k, xd_pixel_source of, int64_t most, xd_err *e)
{
    xd_input_video v;
    int64_t        w, h;
    xd_status      s = xd_input_video_open(&v, &of, e);
    for (int64_t i = 0; i < most && s == XD_OK; i++) {
        uint8_t *rgb = NULL;
        s = xd_input_video_next(&v, &rgb, &w, &h, e);
        if (s == XD_OK && !rgb)
            break;
        if (s == XD_OK)
            s = add_frame(j, k, &rgb, w, h, e);
        free(rgb);
    }
    xd_input_video_close(&v);
    if (s == XD_OK && !j->driven.n[k])
        s = xd_fail(e, XD_EINVAL, "the %s of %s has no frames", titles[k],
                    of.file ? of.file : "the request");
    return s;
}

/* Reads the image for the image encoder and, with black bars, in the result's size. */
static xd_status read_image(xd_job *j, xd_err *e)
{
    xd_pixel_source of = xd_input_image_source(j->r, 0);
    uint8_t        *rgb = NULL;
    int64_t         w, h;
    xd_status       s = xd_input_image_pixels(&of, &rgb, &w, &h, e);
    if (s == XD_OK)
        s = xd_encoder_images_prepare(j, 0, rgb, w, h, e);
    if (s == XD_OK)
        s = xd_image_inset(&rgb, w, h, j->size[1], j->size[0], e);
    if (s == XD_OK)
        s = xd_pixels_floats(&j->ref_pixels[0], rgb, (xd_grid){ j->size[0], j->size[1] }, 3, e);
    free(rgb);
    return s;
}

xd_status xd_role_driven_read(xd_job *j, xd_err *e)
{
    const xd_request *r = j->r;
    xd_status         s = XD_OK;
    if (r->driving.pose_video && r->driving.pose_frames)
        return xd_fail(e, XD_EINVAL, "pose_video and pose_frames are given; use one of them");
    if (r->driving.face_video && r->driving.face_frames)
        return xd_fail(e, XD_EINVAL, "face_video and face_frames are given; use one of them");
    if (j->ctx->unread) { /* a prediction assumes videos of the result's length */
        j->driven.n[XD_DRIVE_FACE] = xd_job_has_face_video(r) ? all_frames(j) : 0;
        j->driven.n[XD_DRIVE_BACK] = xd_job_has_control_video(r) ? all_frames(j) : 0;
        j->driven.n[XD_DRIVE_MASK] = xd_job_has_mask(r) ? all_frames(j) : 0;
    }
    if (j->ctx->world.used->rank != 0 || j->ctx->unread)
        return XD_OK;
    if (xd_job_has_image(r))
        s = read_image(j, e);
    if (s == XD_OK && xd_job_has_pose_video(r))
        s = read_video(j, XD_DRIVE_POSE, xd_input_video_pose(r), j->frames, e);
    if (s == XD_OK && xd_job_has_face_video(r))
        s = read_video(j, XD_DRIVE_FACE, xd_input_video_face(r), all_frames(j), e);
    if (s == XD_OK && xd_job_has_control_video(r))
        s = read_video(j, XD_DRIVE_BACK, xd_input_video_control(r), all_frames(j), e);
    if (s == XD_OK && xd_job_has_mask(r))
        s = read_video(j, XD_DRIVE_MASK, xd_input_video_mask(r), all_frames(j), e);
    return s;
}

/* ---- encoding ----------------------------------------------------------------------------- */

/* Sends video k from rank 0 to all ranks. */
static xd_status share_video(xd_job *j, int k, xd_err *e)
{
    xd_job_driven *d = &j->driven;
    xd_status      s = xd_world_broadcast(&j->ctx->world, &d->n[k], sizeof d->n[k], e);
    int64_t        bytes = d->n[k] * frame_bytes(j, k);
    if (s != XD_OK || !bytes)
        return s;
    if (!d->video[k] && !(d->video[k] = xd_host_buffer(j->ctx, (size_t)bytes)))
        s = xd_fail(e, XD_ENOMEM, "no memory for a %s", titles[k]);
    s = xd_world_agree(&j->ctx->world, s, e);
    return s == XD_OK ? xd_world_broadcast(&j->ctx->world, d->video[k], bytes, e) : s;
}

/* Converts frame `at` of video k to F32 pixels in [-1,1]. */
static void to_floats(const xd_job *j, int k, int64_t at, float *out)
{
    int64_t        n = frame_bytes(j, k);
    const uint8_t *from = j->driven.video[k] + frame_of(j->driven.n[k], at) * n;
    for (int64_t i = 0; i < n; i++)
        out[i] = 2 * ((float)from[i] / 255) - 1;
}

/* Returns the first frame of the current segment. */
static int64_t begin_of(const xd_job *j)
{
    return j->segment * (j->all_frames - j->overlap);
}

/* Makes the pixels of video k in the current segment; without the video, they are 0. *out stays
 * NULL where no pixels are read. */
static xd_status make_clip(const xd_job *j, int k, float **out, xd_err *e)
{
    int64_t n = frame_bytes(j, k), begin = begin_of(j);
    if (j->ctx->dev->counts || j->ctx->unread)
        return XD_OK;
    if (!(*out = calloc((size_t)(j->all_frames * n), sizeof **out)))
        return xd_fail(e, XD_ENOMEM, "no memory for %lld frames to encode",
                       (long long)j->all_frames);
    for (int64_t t = 0; t < j->all_frames && j->driven.n[k]; t++)
        to_floats(j, k, begin + t, *out + t * n);
    return XD_OK;
}

static xd_vae_clip clip_of(const xd_job *j, int64_t frames)
{
    return (xd_vae_clip){ .frames = frames, .pixels = { j->size[0], j->size[1] }, .whole = 1 };
}

/* Encodes video k of the current segment on all ranks. */
static xd_status encode_video(xd_job *j, xd_arena *a, int k, float **moments, xd_err *e)
{
    xd_vae_clip clip = clip_of(j, j->all_frames);
    float      *pixels = NULL, **of[2] = { &pixels, NULL };
    xd_status   s = j->ctx->world.used->rank ? XD_OK : make_clip(j, k, &pixels, e);
    s = xd_world_agree(&j->ctx->world, s, e);
    if (s == XD_OK)
        s = xd_vae_encode_clip(j, a, &clip, of, moments, e);
    free(pixels);
    return s;
}

xd_status xd_role_driven_encode(xd_job *j, xd_arena *a, xd_err *e)
{
    xd_vae_clip image = clip_of(j, 1);
    float     **pixels[2] = { &j->ref_pixels[0], NULL };
    int         several = j->segments > 1 && j->ctx->plan.deg.n[XD_DATA] > 1;
    xd_status   s = XD_OK;
    if (!j->parts)
        return XD_OK;
    for (int k = XD_DRIVE_FACE; k < XD_DRIVES && s == XD_OK; k++)
        if (k != XD_DRIVE_BACK || several)
            s = share_video(j, k, e);
    if (s == XD_OK && !(j->driven.pose = calloc((size_t)j->segments, sizeof *j->driven.pose)))
        s = xd_fail(e, XD_ENOMEM, "no memory for %d segments", j->segments);
    s = s == XD_ECOMM ? s : xd_world_agree(&j->ctx->world, s, e);
    if (s == XD_OK)
        s = xd_vae_encode_clip(j, a, &image, pixels, &j->leading_moments[0], e);
    for (j->segment = 0; j->segment < j->segments && s == XD_OK; j->segment++)
        s = encode_video(j, a, XD_DRIVE_POSE, &j->driven.pose[j->segment], e);
    j->segment = 0;
    if (s == XD_OK)
        s = encode_video(j, a, XD_DRIVE_BACK, &j->part_moments[0], e);
    return s;
}

xd_status xd_role_driven_face(xd_job *j, xd_err *e)
{
    free(j->face), j->face = NULL;
    return j->driven.n[XD_DRIVE_FACE] ? make_clip(j, XD_DRIVE_FACE, &j->face, e) : XD_OK;
}

xd_status xd_role_driven_follow(xd_job *j, xd_arena *a, const float *last, xd_status s, xd_err *e)
{
    xd_vae_clip clip = clip_of(j, j->all_frames);
    float      *pixels = NULL;
    int64_t     n = j->overlap * j->size[0] * j->size[1] * 3;
    xd_comm    *c = j->ctx->topo.replica;
    if (s == XD_OK)
        s = xd_role_driven_face(j, e);
    if (!j->segment || !j->parts)
        return xd_world_agree_in(c, j->ctx->world.used->rank, s, e);
    if (s == XD_OK && c->rank == 0)
        s = make_clip(j, XD_DRIVE_BACK, &pixels, e);
    for (int64_t i = 0; i < n && s == XD_OK && pixels; i++)
        pixels[i] = last[i] < -1 ? -1 : last[i] > 1 ? 1 : last[i];
    free(j->part_moments[1]), j->part_moments[1] = NULL;
    s = xd_vae_encode_own_clip(j, a, &clip, &pixels, &j->part_moments[1], s, e);
    free(pixels);
    return s;
}

/* ---- the transformer's channels ----------------------------------------------------------- */

/* Writes the mean of latent frame t of moments [t,h,w,2C] to out [C,h,w]. */
static void mean_of(const xd_job *j, const float *moments, int64_t t, float *out)
{
    int64_t C = j->lat[1], hw = j->cells[1] * j->cells[2];
    for (int64_t i = 0; i < C * hw && moments; i++)
        out[i] = moments[(t * hw + i % hw) * 2 * C + i / hw];
}

/* Returns the mask's value in cell i of frame `at` of the segment: 1 where the frame is given. */
static float given_at(const xd_job *j, int64_t at, int64_t i)
{
    const xd_job_driven *d = &j->driven;
    int64_t              n = d->n[XD_DRIVE_MASK], hw = j->cells[1] * j->cells[2];
    if (j->segment && at < j->overlap)
        return 1;
    if (!n || !d->video[XD_DRIVE_MASK] || j->ctx->unread)
        return 0;
    return 1 - (float)d->video[XD_DRIVE_MASK][frame_of(n, begin_of(j) + at) * hw + i] / 255;
}

void xd_role_driven_channels(const xd_job *j, const float *sample, float *out)
{
    int64_t      c = j->ctx->model.vae_info.cell[0], C = j->lat[1];
    int64_t      hw = j->cells[1] * j->cells[2], frame = (2 * C + c) * hw;
    int64_t      d[4] = { j->lat[0], 2 * C + c, j->lat[2], j->lat[3] };
    const float *given = j->part_moments[j->segment > 0];
    (void)sample;
    for (int64_t i = 0; i < c * hw && j->parts; i++)
        out[i] = 1;
    mean_of(j, j->leading_moments[0], 0, out + c * hw);
    for (int64_t t = 0; t < j->cells[0] - j->spare; t++) {
        float *to = out + (t + j->spare) * frame;
        for (int64_t i = 0; i < c * hw && j->parts; i++)
            to[i] = given_at(j, t ? (t - 1) * c + 1 + i / hw : 0, i % hw);
        mean_of(j, given, t, to + c * hw);
        mean_of(j, j->driven.pose ? j->driven.pose[j->segment] : NULL, t, to + (c + C) * hw);
    }
    xd_callback_tensor(j, "condition", j->segment, 4, d, out);
}

void xd_role_driven_close(xd_job *j)
{
    xd_job_driven *d = &j->driven;
    for (int k = 0; k < XD_DRIVES; k++)
        free(d->video[k]);
    for (int i = 0; d->pose && i < j->segments; i++)
        free(d->pose[i]);
    free(d->pose), free(j->face);
    memset(d, 0, sizeof *d);
    j->face = NULL;
}
