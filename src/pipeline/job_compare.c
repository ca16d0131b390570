/* job_compare.c - checks that all ranks run the same request with the same settings.
 *
 * Every rank reads the command line and the file of prompts itself, so ranks could run different
 * requests. Ranks with different numbers of steps would deadlock. Ranks with different seeds or
 * schedulers would mix two images. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/job_compare.h"
#include "base/log.h"
#include "base/rng.h"
#include "pipeline/context.h"
#include "pipeline/image_roles.h"
#include "pipeline/image_shape.h"
#include "pipeline/job.h"
#include "pipeline/options.h"
#include "ranks/world.h"

enum {
    MOST = XD_OPTION_ROWS,
    MORE = 14 + XD_MAXREFS
}; /* max number of options; of other settings */

static uint64_t of_text(const char *text)
{
    return text ? xd_hash_mix(xd_hash_text(text), 1) : 0;
}

/* Returns 1 if an option's value is a file name. For an option whose argument is described as
 * "FILE|WAYS" in the help, only values that end in ".json" are file names. */
static int is_path(const xd_option *o, const char *text)
{
    const char *end = text ? strrchr(text, '.') : NULL;
    if (!o->arg || strncmp(o->arg, "FILE", 4) != 0)
        return 0;
    return o->arg[4] != '|' || (end && strcmp(end, ".json") == 0);
}

/* Hashes the value of an option. For an option that names a file, only whether it is given is
 * hashed, because only rank 0 reads the file, and other hosts may have another path. */
static uint64_t of_option(const xd_request *r, const xd_option *o)
{
    const char *field = (const char *)r + o->offset;
    uint64_t    v = 0;
    if (o->kind == XD_OPT_TEXT) {
        const char *text = *(const char *const *)(const void *)field;
        return is_path(o, text) ? text != NULL : of_text(text);
    }
    if (o->kind == XD_OPT_SEED && r->random_seed)
        return 1; /* same hash for all random seeds: rank 0 draws the seed and sends it */
    memcpy(&v, field, o->kind == XD_OPT_INT || o->kind == XD_OPT_FLAG ? sizeof(int) : 8);
    return v;
}

xd_status xd_job_compare(const xd_context *ctx, const xd_request *r, xd_job_agreed *agreed,
                         xd_err *e)
{
    uint64_t         mine[MOST + MORE], first[MOST + MORE];
    const char      *name[MOST + MORE];
    int              n;
    const xd_option *o = xd_request_options(&n);
    xd_request       sized = *r;
    if (!ctx->world.idle && ctx->world.used->rank == 0) {
        xd_image_shape_take(ctx, &sized);
        if (sized.height != r->height || sized.width != r->width)
            xd_log(XD_LOG_INFO,
                   "generating %" PRId64 " x %" PRId64 " pixels, the shape of the "
                   "image (--width and --height override it)",
                   sized.width, sized.height);
    }
    *agreed = (xd_job_agreed){ r->random_seed ? (int64_t)xd_rng_random_seed() : r->seed,
                               r->callbacks.wanted != NULL,
                               xd_job_images(r),
                               { sized.height, sized.width },
                               { 0 } };
    if (!ctx->world.idle && ctx->world.used->rank == 0)
        xd_role_count(xd_role_of_request(&ctx->model, r), r, agreed->frames);
    if (ctx->world.idle || ctx->world.used->size == 1)
        return XD_OK;
    for (int i = 0; i < n; i++)
        mine[i] = of_option(r, &o[i]), name[i] = o[i].name;
    mine[n] = xd_job_texts_hash(r), name[n] = "prompt";
    mine[n + 1] = (uint64_t)r->output.latents_only, name[n + 1] = "output";
    mine[n + 2] = r->images.image_pixels != NULL, name[n + 2] = "image";
    mine[n + 3] = (uint64_t)xd_job_images(r), name[n + 3] = "image";
    mine[n + 4] = r->images.mask_pixels != NULL, name[n + 4] = "mask_image";
    mine[n + 5] = r->images.last_pixels != NULL, name[n + 5] = "last_image";
    mine[n + 6] = r->noise.values != NULL, name[n + 6] = "latents";
    mine[n + 7] = (uint64_t)(2 * r->images.nmore_control_images + !!r->images.control_pixels);
    name[n + 7] = "control_image";
    mine[n + 8] = r->images.control_frames != NULL, name[n + 8] = "control_video";
    mine[n + 9] = (uint64_t)(2 * !!r->driving.face_frames + !!r->driving.pose_frames);
    name[n + 9] = "pose_video";
    /* the following values need no comparison, because all ranks use the values that rank 0
     * sends */
    mine[n + 10] = (uint64_t)agreed->seed;
    mine[n + 11] = (uint64_t)agreed->picks;
    mine[n + 12] = (uint64_t)agreed->size[0];
    mine[n + 13] = (uint64_t)agreed->size[1];
    for (int i = 0; i < XD_MAXREFS; i++)
        mine[n + 14 + i] = (uint64_t)agreed->frames[i];
    int64_t size = (n + MORE) * (int64_t)sizeof *mine;
    memcpy(first, mine, (size_t)size);
    xd_status s = xd_world_broadcast(&ctx->world, first, size, e);
    if (s != XD_OK)
        return s;
    *agreed = (xd_job_agreed){ (int64_t)first[n + 10],
                               (int)first[n + 11],
                               (int64_t)first[n + 3],
                               { (int64_t)first[n + 12], (int64_t)first[n + 13] },
                               { 0 } };
    for (int i = 0; i < XD_MAXREFS; i++)
        agreed->frames[i] = (int64_t)first[n + 14 + i];
    for (int i = 0; i < n + 10; i++)
        if (mine[i] != first[i])
            return xd_fail(e, XD_EINVAL,
                           "--%s differs from that on rank 0: all ranks need the same flags and "
                           "the same prompts",
                           name[i]);
    return XD_OK;
}
