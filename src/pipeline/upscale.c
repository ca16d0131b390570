/* upscale.c - enlarges the images or the video of a file (xd_upscale in xdit/tools.h).
 *
 * Rank 0 reads and writes the files. The frames of a video are enlarged one after the other, by all
 * ranks together, and are kept in memory until the video is written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/par.h"
#include "base/record.h"
#include "comm/staged.h"
#include "io/frames.h"
#include "pipeline/dtypes.h"
#include "pipeline/enlarger.h"
#include "pipeline/output.h"
#include "ranks/world.h"
#include "xdit/tools.h"

enum { MAX_TILE = 1 << 20 };

typedef struct work { /* state of a call of xd_upscale */
    const xd_upscale_args *a;
    xd_enlarger            u;
    xd_dev                *dev, *count;
    xd_comm               *all;
    xd_topo                topo;
    xd_frames             *frames;  /* on rank 0 */
    const uint8_t         *rgb;     /* the current frame, on rank 0 */
    int64_t                size[2]; /* width and height of the current frame; 0: no more frames */
    uint8_t               *out;     /* enlarged frames, on rank 0 */
    int64_t                n;       /* number of complete frames */
} work;

void xd_upscale_args_init_size(xd_upscale_args *a, size_t size)
{
    xd_upscale_args own = { .quality = -1 };
    xd_record_init(a, size);
    xd_record_write(a, &own, sizeof own, "xd_upscale_args", NULL);
}

/* ---- opening --------------------------------------------------------------------------------- */

static xd_status check_args(const xd_upscale_args *a, xd_err *e)
{
    if (!a->model || !*a->model)
        return xd_fail(e, XD_EINVAL, "upscale needs the file of an upscaler: add --model FILE");
    if (!a->input || !*a->input)
        return xd_fail(e, XD_EINVAL, "upscale needs an image or a video to enlarge");
    if (!a->output || !*a->output)
        return xd_fail(e, XD_EINVAL, "upscale needs an output file: add --output FILE");
    if (a->tile_size < 0 || a->tile_size > MAX_TILE)
        return xd_fail(e, XD_EINVAL, "tile_size is %lld; it must be from 1 to %d",
                       (long long)a->tile_size, MAX_TILE);
    if (!(a->fps >= 0 && a->fps <= 1000))
        return xd_fail(e, XD_EINVAL, "fps is %g; it must be up to 1000", a->fps);
    return XD_OK;
}

static xd_status agree(const work *k, xd_status s, xd_err *e)
{
    return k->all->size > 1 ? xd_world_agree_in(k->all, k->all->rank, s, e) : s;
}

/* Connects the ranks and opens the device of this rank. */
static xd_status open_ranks(work *k, xd_err *e)
{
    int         ranks = 1, cores = 1, rank = 0;
    xd_cpuset   cpus;
    xd_dev_name name = { "" };
    xd_status   s = xd_comm_world(&k->all, xd_comm_launched() ? "mpi" : "self", e);
    if (s != XD_OK)
        return s;
    int share = xd_comm_share(&ranks, &cores);
    xd_par_set(k->a->threads ? k->a->threads : share);
    ranks = 1;
    if (k->all->size > 1)
        xd_comm_host(&rank, &ranks, &cpus);
    s = xd_dev_of_rank(&name, k->a->device, rank, ranks, e);
    if (s == XD_OK)
        s = xd_dev_open(&k->dev, *name.s ? name.s : k->a->device, e);
    if (s == XD_OK)
        s = xd_dev_open_count(&k->count, k->dev, e);
    s = agree(k, s, e);
    if (s == XD_OK)
        s = xd_comm_stage(&k->all, k->dev, e);
    if (s == XD_OK && k->all->size > 1)
        s = xd_topo_open(&k->topo, k->all, (xd_degrees){ { 1, k->all->size, 1, 1, 1, 1 } }, e);
    return s;
}

static xd_status load_model(work *k, xd_err *e)
{
    xd_open_args flags = { .size = sizeof flags, .dtype = k->a->dtype };
    xd_dtype     type = XD_F32;
    xd_status    s = xd_types_of_device(k->dev, &flags, &type, e);
    if (s == XD_OK)
        s = xd_enlarger_open(&k->u, k->a->model, e);
    if (s == XD_OK)
        s = xd_enlarger_load(&k->u, k->dev, k->count, type, e);
    return agree(k, s, e);
}

/* Opens the input and checks the name of the output, on rank 0. */
static xd_status open_files(work *k, xd_err *e)
{
    const xd_upscale_args *a = k->a;
    if (k->all->rank)
        return XD_OK;
    xd_status s = xd_frames_open(&k->frames, a->input, e);
    if (s == XD_OK)
        s = xd_output_check(a->output, 1, e);
    if (s == XD_OK)
        s = xd_output_check_video(a->output, !xd_frames_single(k->frames), e);
    if (s == XD_OK && !(a->fps > 0) && !xd_image_known(a->output) &&
        !(xd_frames_rate(k->frames) > 0))
        s = xd_fail(e, XD_EINVAL, "%s has no frame rate for the video %s: add --fps", a->input,
                    a->output);
    if (s == XD_OK && xd_frames_has_sound(k->frames))
        xd_log(XD_LOG_WARN, "the sound of %s is not copied to %s", a->input, a->output);
    return s;
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* Reads the next frame on rank 0, and sends its size to all ranks. */
static xd_status next_frame(work *k, xd_err *e)
{
    int64_t   n = 2;
    xd_status s = XD_OK;
    if (k->all->rank == 0)
        s = xd_frames_next(k->frames, &k->rgb, &k->size[0], &k->size[1], e);
    if (s == XD_OK && k->all->rank == 0 && !k->rgb)
        k->size[0] = k->size[1] = 0;
    s = agree(k, s, e);
    if (s != XD_OK || k->all->size == 1)
        return s;
    return xd_world_wait(k->all, k->all->ops->bcast(k->all, xd_view(k->size, XD_I64, 1, &n), 0), e);
}

static int64_t frame_bytes(const work *k)
{
    int64_t f = k->u.info.scale;
    return k->size[0] * k->size[1] * f * f * 3;
}

static xd_status add_frame(work *k, xd_err *e)
{
    size_t bytes = (size_t)frame_bytes(k);
    if (k->all->rank)
        return XD_OK;
    uint8_t *grown = realloc(k->out, bytes * (size_t)(k->n + 1));
    if (!grown)
        return xd_fail(e, XD_ENOMEM, "no memory for %lld enlarged frames of %zu bytes",
                       (long long)k->n + 1, bytes);
    k->out = grown;
    return XD_OK;
}

static void on_part(void *cookie, double part)
{
    work *k = cookie;
    if (k->a->on_progress && k->all->rank == 0)
        k->a->on_progress(k->a->cookie, k->n, part);
}

static xd_status run_frame(work *k, xd_err *e)
{
    xd_status s = agree(k, add_frame(k, e), e);
    if (s != XD_OK)
        return s;
    s = xd_enlarger_run(&k->u,
                        &(xd_enlarging){ .c = k->all->size > 1 ? k->all : NULL,
                                         .topo = &k->topo,
                                         .rgb = k->rgb,
                                         .w = k->size[0],
                                         .h = k->size[1],
                                         .tile = k->a->tile_size,
                                         .out = k->out ? k->out + frame_bytes(k) * k->n : NULL,
                                         .on_part = on_part,
                                         .cookie = k },
                        e);
    k->n++;
    on_part(k, 0);
    return s;
}

static xd_status write_result(work *k, const int64_t size[2], xd_err *e)
{
    const xd_upscale_args *a = k->a;
    const char            *slash = strrchr(a->model, '/');
    char                   text[512];
    xd_image               im;
    xd_image_init(&im);
    im.frames = k->n;
    im.width = size[0] * k->u.info.scale;
    im.height = size[1] * k->u.info.scale;
    im.data = k->out;
    if (!xd_frames_single(k->frames))
        im.fps = a->fps > 0                      ? a->fps
                 : xd_frames_rate(k->frames) > 0 ? xd_frames_rate(k->frames)
                                                 : 1;
    /* as A1111 names the texts of images that it has enlarged */
    snprintf(text, sizeof text, "Postprocess upscale by: %d, Postprocess upscaler: %s",
             k->u.info.scale, slash ? slash + 1 : a->model);
    const xd_image_text texts[] = { { "postprocessing", text }, { NULL, NULL } };
    return xd_output_write(a->output, &im, a->quality, texts, e);
}

static xd_status run_frames(work *k, xd_err *e)
{
    int64_t   size[2] = { 0, 0 };
    xd_status s = next_frame(k, e);
    while (s == XD_OK && k->size[0]) {
        size[0] = k->size[0], size[1] = k->size[1];
        s = run_frame(k, e);
        if (s == XD_OK)
            s = next_frame(k, e);
    }
    if (s == XD_OK && !k->n)
        s = xd_fail(e, XD_EFORMAT, "%s has no frames", k->a->input);
    if (s == XD_OK && k->all->rank == 0)
        s = write_result(k, size, e);
    return agree(k, s, e);
}

static void close_all(work *k)
{
    free(k->out);
    xd_frames_close(&k->frames);
    xd_enlarger_close(&k->u);
    xd_topo_close(&k->topo);
    xd_comm_close(&k->all);
    xd_dev_close(&k->count);
    xd_dev_close(&k->dev);
}

static xd_status upscale(const xd_upscale_args *a, xd_err *e)
{
    work      k = { .a = a };
    xd_status s = open_ranks(&k, e);
    if (s == XD_OK)
        s = agree(&k, open_files(&k, e), e);
    if (s == XD_OK)
        s = load_model(&k, e);
    if (s == XD_OK) {
        xd_log(XD_LOG_INFO, "%s enlarges by %d; its receptive field has a radius of %lld pixels",
               k.u.part.class_name, k.u.info.scale, (long long)(k.u.info.reach * k.u.info.cell));
        s = run_frames(&k, e);
    }
    close_all(&k);
    return s;
}

xd_status xd_upscale(const xd_upscale_args *args, xd_err *e)
{
    xd_upscale_args a;
    xd_upscale_args_init(&a);
    xd_status s = xd_record_read(&a, sizeof a, args, "xd_upscale_args", e);
    if (s == XD_OK)
        s = check_args(&a, e);
    if (s != XD_OK)
        return s;
    xd_logger        log = { a.log, a.cookie, a.log_level };
    const xd_logger *before = xd_log_enter(&log);
    xd_dev_early();
    s = upscale(&a, e);
    xd_log_enter(before);
    return s;
}
