/* given_noise.c - uses initial noise that the request passes, in place of noise drawn from the
 * seed */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/given_noise.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "pipeline/arenas.h"
#include "ranks/world.h"

enum { SHAPE = 120 };

/* The tensor of a file with noise. channels_first: the channels precede the frames. */
typedef struct noise_file {
    xd_st    *st;
    char     *npy;
    int64_t   at; /* index of the tensor in `st` */
    xd_tensor t;  /* the shape and, after read_file, the elements */
    int       channels_first;
} noise_file;

/* ---- the file ----------------------------------------------------------------------------- */

static void close_file(noise_file *f)
{
    if (f->st && f->t.p)
        xd_st_done(f->st, f->at);
    xd_st_close(&f->st);
    free(f->npy);
    *f = (noise_file){ 0 };
}

/* Finds the tensor "latents", or the only one. */
static xd_status find_tensor(noise_file *f, const char *path, xd_err *e)
{
    f->at = xd_st_find(f->st, "latents");
    if (f->at < 0 && xd_st_count(f->st) == 1)
        f->at = 0;
    if (f->at < 0)
        return xd_fail(e, XD_EFORMAT, "latents: %s has %lld tensors and none is named latents",
                       path, (long long)xd_st_count(f->st));
    f->t = xd_st_shape(f->st, f->at);
    if (f->t.type != XD_F32 && f->t.type != XD_F16 && f->t.type != XD_BF16)
        return xd_fail(e, XD_EFORMAT,
                       "latents: the tensor of %s has the type %s; it must be F32, F16 or BF16",
                       path, xd_st_dtype(f->st, f->at));
    return XD_OK;
}

static xd_status open_file(noise_file *f, const char *path, xd_err *e)
{
    size_t n = strlen(path);
    *f = (noise_file){ 0 };
    if (n > 4 && strcmp(path + n - 4, ".npy") == 0)
        return xd_npy_read(path, &f->t, &f->npy, e);
    if (n <= 12 || strcmp(path + n - 12, ".safetensors") != 0)
        return xd_fail(e, XD_EINVAL, "latents: %s is no .safetensors or .npy file", path);
    xd_status s = xd_st_open(&f->st, path, "", e);
    return s == XD_OK ? find_tensor(f, path, e) : s;
}

/* ---- its shape ---------------------------------------------------------------------------- */

static int has_shape(xd_tensor t, int nd, const int64_t *d)
{
    return t.nd == nd && memcmp(t.d, d, (size_t)nd * sizeof *d) == 0;
}

static void print_shape(char out[SHAPE], int nd, const int64_t *d)
{
    int at = 0;
    for (int i = 0; i < nd; i++)
        at += snprintf(out + at, SHAPE - (size_t)at, "%s%lld", i ? "," : "[", (long long)d[i]);
    snprintf(out + at, SHAPE - (size_t)at, "]");
}

/* Checks the shape of the tensor, and finds its order. If both orders have the same shape, a file
 * of xdit has the frames first, and another file has the order of diffusers. */
static xd_status check_shape(const xd_job *j, noise_file *f, xd_err *e)
{
    const int64_t *d = j->lat, B = j->images;
    const int64_t  frames[] = { B, d[0], d[1], d[2], d[3] };
    const int64_t  channels[] = { B, d[1], d[0], d[2], d[3] };
    const int64_t  image[] = { B, d[1], d[2], d[3] };
    int            first = j->ctx->model.recipe->channels_first, own = f->st != NULL;
    char           have[SHAPE], want[SHAPE];
    own = own && xd_st_meta(f->st, "xdit");
    int as_frames = has_shape(f->t, 5, frames) || (B == 1 && has_shape(f->t, 4, d)) ||
                    (d[0] == 1 && has_shape(f->t, 4, image)) ||
                    (d[0] == 1 && B == 1 && has_shape(f->t, 3, image + 1));
    int as_channels =
        first && (has_shape(f->t, 5, channels) || (B == 1 && has_shape(f->t, 4, channels + 1)));
    f->channels_first = as_channels && !(as_frames && own);
    if (as_frames || as_channels)
        return XD_OK;
    print_shape(have, f->t.nd, f->t.d);
    print_shape(want, d[0] > 1 ? 5 : 4, d[0] == 1 ? image : first ? channels : frames);
    return xd_fail(e, XD_EINVAL,
                   "latents: the tensor of %s has the shape %s, but %d images of %lld x %lld "
                   "pixels need %s",
                   j->r->latents, have, j->images, (long long)j->asked[1], (long long)j->asked[0],
                   want);
}

/* Copies the numbers of the tensor to `out`, with the frames before the channels. */
static xd_status copy_numbers(const xd_job *j, const noise_file *f, float *out, xd_err *e)
{
    int64_t n = f->channels_first ? j->lat[0] : 1, m = f->channels_first ? j->lat[1] : 1;
    int64_t part = j->numbers / (n * m), all = j->images * j->numbers;
    for (int64_t i = 0; i < j->images; i++)
        for (int64_t k = 0; k < n; k++)
            for (int64_t c = 0; c < m; c++)
                xd_convert_at(out + ((i * n + k) * m + c) * part, XD_F32, f->t.p, f->t.type,
                              ((i * m + c) * n + k) * part, part);
    for (int64_t i = 0; i < all; i++)
        if (!isfinite(out[i]))
            return xd_fail(e, XD_EFORMAT, "latents: number %lld of %s is not finite", (long long)i,
                           j->r->latents);
    return XD_OK;
}

/* Reads the file to `out`; out NULL: only checks the shape. */
static xd_status read_file(const xd_job *j, float *out, xd_err *e)
{
    noise_file f;
    xd_status  s = open_file(&f, j->r->latents, e);
    if (s == XD_OK)
        s = check_shape(j, &f, e);
    if (s == XD_OK && out && f.st)
        s = xd_st_get(f.st, f.at, &f.t, e);
    if (s == XD_OK && out)
        s = copy_numbers(j, &f, out, e);
    close_file(&f);
    return s;
}

/* ---- a job's noise ------------------------------------------------------------------------ */

/* Returns 1 if the pass begins with given noise. The noise of a second pass, on enlarged latents,
 * is drawn from the seed. */
static int is_given(const xd_job *j)
{
    return !j->enlarged && (j->r->noise.values || j->r->latents);
}

xd_status xd_given_noise_check(const xd_job *j, xd_err *e)
{
    const int64_t *d = j->lat;
    if (!is_given(j))
        return XD_OK;
    if (j->r->noise.values && j->r->latents)
        return xd_fail(e, XD_EINVAL, "noise.values and latents are given; use one of them");
    if (j->r->latents)
        return j->ctx->world.used->rank != 0 || j->ctx->unread ? XD_OK : read_file(j, NULL, e);
    if (j->r->noise.count == j->images * j->numbers)
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "the noise has %lld numbers, but %d images of %lld x %lld "
                   "pixels need %lld: [%lld,%lld,%lld,%lld] each",
                   (long long)j->r->noise.count, j->images, (long long)j->asked[1],
                   (long long)j->asked[0], (long long)(j->images * j->numbers), (long long)d[0],
                   (long long)d[1], (long long)d[2], (long long)d[3]);
}

xd_status xd_given_noise_share(xd_job *j, xd_err *e)
{
    const xd_world *w = &j->ctx->world;
    int64_t         bytes = j->images * j->numbers * (int64_t)sizeof(float);
    xd_status       s = XD_OK;
    if (!is_given(j))
        return XD_OK;
    j->given_noise = xd_host_buffer(j->ctx, (size_t)bytes);
    if (!j->given_noise)
        s = xd_fail(e, XD_ENOMEM, "no memory for the noise of %d images", j->images);
    else if (w->used->rank == 0 && !j->ctx->dev->counts && j->r->latents)
        s = read_file(j, j->given_noise, e);
    else if (w->used->rank == 0 && !j->ctx->dev->counts)
        memcpy(j->given_noise, j->r->noise.values, (size_t)bytes);
    s = xd_world_agree(w, s, e);
    return s == XD_OK ? xd_world_broadcast(w, j->given_noise, bytes, e) : s;
}

const float *xd_given_noise_of(const xd_job *j, int image)
{
    return j->given_noise ? j->given_noise + image * j->numbers : NULL;
}

void xd_given_noise_close(xd_job *j)
{
    free(j->given_noise);
    j->given_noise = NULL;
}
