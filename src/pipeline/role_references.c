/* role_references.c - reads, resizes and encodes reference images to tokens.
 *
 * The latents of a reference image are the mean of the VAE's Gaussian (diffusers:
 * sample_mode="argmax"). No random number is drawn, so the noise of the output does not depend on
 * reference images. */
#include "pipeline/image_roles_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/image.h"
#include "pipeline/arenas.h"
#include "pipeline/context.h"
#include "pipeline/pixels.h"
#include "pipeline/prompt_images.h"
#include "pipeline/vae_codec.h"
#include "ranks/world.h"

/* Returns the number of reference images. In a benchmark without images, this is 1 if the model
 * needs an image. */
static int64_t count_references(const xd_job *j)
{
    int64_t n = xd_job_images(j->r);
    return n || !j->ctx->bench || !j->ctx->model.recipe->needs_image ? n : 1;
}

static int64_t unit_of(const xd_job *j)
{
    return j->ctx->model.vae_info.cell[1] * (int64_t)j->ctx->model.dit_info.patch[1];
}

/* Returns 1 if the result has the size of the reference image. */
static int has_its_size(const xd_job *j)
{
    return j->role->starts || j->ctx->model.recipe->layers;
}

static int64_t token_count(const xd_job *j, int i)
{
    return j->refs[i].rows * j->refs[i].cols;
}

/* Counts the tokens of the reference images, and adds them to the token layout unless they are in
 * the prefix of the tokens. */
static void set_tokens(xd_job *j)
{
    int64_t unit = unit_of(j);
    int     apart = j->ctx->model.dit_info.prefix_refs > 0;
    j->nref_tokens = 0;
    for (int i = 0; i < j->nrefs; i++) {
        j->refs[i] = (xd_grid){ j->ref_size[i].rows / unit, j->ref_size[i].cols / unit };
        j->nref_tokens += token_count(j, i);
    }
    j->lay.len[XD_REF] = apart ? 0 : j->nref_tokens;
    j->lay.refs = j->refs;
    j->lay.nrefs = apart ? 0 : j->nrefs;
    j->lay.refs_alone = j->ctx->model.recipe->keeps_references;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Rounds the size of a resized image down to an integer number of tokens per side. */
static xd_grid whole_tokens(const xd_job *j, xd_grid resized)
{
    int64_t unit = unit_of(j);
    return (xd_grid){ resized.rows / unit * unit, resized.cols / unit * unit };
}

/* Computes the size to which a reference image is resized. On entry *size is the original size, on
 * return the size to which the image is resized. */
static xd_status resize(const xd_recipe *p, const xd_request *r, int64_t unit, xd_grid *size,
                        xd_err *e)
{
    int64_t area = r->output.max_area ? r->output.max_area : p->reference_area;
    /* without automatic resizing, the image is scaled, not cropped, to an integer number of
     * tokens */
    if (p->auto_resizes && r->images.no_auto_resize) {
        *size = (xd_grid){ size->rows / unit * unit, size->cols / unit * unit };
        return XD_OK;
    }
    return p->reference_size(unit, area, &size->rows, &size->cols, e);
}

/* Sets the sizes of reference image i. On entry *size is the original size, on return the size to
 * which the image is resized. */
static xd_status set_size(xd_job *j, int i, xd_grid *size, xd_err *e)
{
    const xd_recipe *p = j->ctx->model.recipe;
    xd_grid          own = *size;
    xd_status        s = resize(p, j->r, unit_of(j), size, e);
    if (s != XD_OK)
        return s;
    j->ref_size[i] = whole_tokens(j, *size);
    return j->ref_size[i].rows && j->ref_size[i].cols
               ? xd_prompt_image_set_size(j, i, own, e)
               : xd_fail(e, XD_EINVAL, "image %d is smaller than one token of %lld x %lld pixels",
                         i + 1, (long long)unit_of(j), (long long)unit_of(j));
}

/* Moves the central crop of an image with C channels to the start of the image's buffer. */
static void crop(uint8_t *rgb, xd_grid from, xd_grid to, int C)
{
    int64_t        top = (from.rows - to.rows) / 2, left = (from.cols - to.cols) / 2;
    const uint8_t *at = rgb + (top * from.cols + left) * C;
    for (int64_t y = 0; y < to.rows; y++)
        memmove(rgb + y * to.cols * C, at + y * from.cols * C, (size_t)(to.cols * C));
}

/* Makes the pixels of image i for the text encoder, which reads an image with alpha on white. */
static xd_status show_encoder(xd_job *j, int i, const uint8_t *pixels, xd_grid size, int cut,
                              xd_err *e)
{
    if (j->channels == 3)
        return xd_prompt_image_read(j, i, pixels, size, cut, e);
    uint8_t *rgb = xd_image_on_white(pixels, size.rows * size.cols);
    if (!rgb)
        return xd_fail(e, XD_ENOMEM, "no memory for image %d", i + 1);
    xd_status s = xd_prompt_image_read(j, i, rgb, size, cut, e);
    free(rgb);
    return s;
}

static xd_status read_one(xd_job *j, int i, xd_err *e)
{
    uint8_t        *rgb = NULL;
    xd_grid        *to = &j->ref_size[i], resized;
    int64_t         w, h;
    xd_pixel_source of = xd_input_image_source(j->r, i);
    xd_status       s = xd_input_image_channels(&of, j->channels, &rgb, &w, &h, e);
    if (s != XD_OK)
        return s;
    resized = (xd_grid){ h, w };
    if ((s = set_size(j, i, &resized, e)) != XD_OK ||
        (s = show_encoder(j, i, rgb, (xd_grid){ h, w }, 0, e)) != XD_OK) {
        free(rgb);
        return s;
    }
    if (to->rows != h || to->cols != w)
        xd_log(XD_LOG_INFO, "resizing image %d from %lld x %lld pixels to %lld x %lld", i + 1,
               (long long)w, (long long)h, (long long)to->cols, (long long)to->rows);
    s = (j->channels == 4 ? xd_image_resize_alpha : xd_image_resize)(&rgb, w, h, resized.cols,
                                                                     resized.rows, e);
    if (s == XD_OK)
        crop(rgb, resized, *to, j->channels);
    if (s == XD_OK)
        s = show_encoder(j, i, rgb, *to, 1, e);
    if (s == XD_OK && !j->role->starts)
        s = xd_pixels_floats(&j->ref_pixels[i], rgb, *to, j->channels, e);
    free(rgb);
    if (s == XD_OK && has_its_size(j) && (to->rows != j->size[0] || to->cols != j->size[1]))
        return xd_fail(e, XD_EINVAL,
                       "the size %lld x %lld differs from that of the resized image, "
                       "%lld x %lld: leave out width and height",
                       (long long)j->size[1], (long long)j->size[0], (long long)to->cols,
                       (long long)to->rows);
    return s;
}

xd_status xd_role_references_read(xd_job *j, xd_err *e)
{
    const xd_recipe *p = j->ctx->model.recipe;
    int64_t          n = count_references(j);
    int              counted = j->ctx->unread || !xd_job_images(j->r);
    xd_status        s = j->role->starts ? xd_role_start_read(j, e) : XD_OK;
    if (s != XD_OK || !n)
        return s;
    if (n > p->references)
        return xd_fail(e, XD_EINVAL, "%lld images are given, but %s reads at most %d", (long long)n,
                       p->name, p->references);
    if (!j->ctx->model.dit_info.refs && !j->ctx->model.dit_info.prefix_refs)
        return xd_fail(e, XD_EUNSUPPORTED, "the transformer of this model reads no images");
    if (!j->ctx->model.vae.vae->encode)
        return xd_fail(e, XD_EUNSUPPORTED, "the autoencoder of this model cannot encode an image");
    if ((s = xd_prompt_images_check(j, e)) != XD_OK)
        return s;
    j->nrefs = (int)n;
    for (int i = 0; i < j->nrefs && counted; i++) {
        xd_grid size = { j->size[0], j->size[1] };
        if (set_size(j, i, &size, NULL) != XD_OK || has_its_size(j))
            j->ref_size[i] = whole_tokens(j, (xd_grid){ j->size[0], j->size[1] });
    }
    for (int i = 0; i < j->nrefs && !counted && j->ctx->world.used->rank == 0; i++)
        if ((s = read_one(j, i, e)) != XD_OK)
            return s;
    set_tokens(j);
    return XD_OK;
}

xd_status xd_role_references_share(xd_job *j, xd_status s, xd_err *e)
{
    if (j->ctx->world.used->size == 1 || !j->rank0_images || !j->role->tokens)
        return s;
    xd_grid all[2 * XD_MAXREFS];
    memcpy(all, j->ref_size, sizeof j->ref_size);
    memcpy(all + XD_MAXREFS, j->seen_size, sizeof j->seen_size);
    xd_status sent = xd_world_broadcast(&j->ctx->world, all, sizeof all, s == XD_OK ? e : NULL);
    memcpy(j->ref_size, all, sizeof j->ref_size);
    memcpy(j->seen_size, all + XD_MAXREFS, sizeof j->seen_size);
    if (s == XD_OK)
        set_tokens(j);
    return s == XD_OK ? sent : s;
}

/* ---- encoding ----------------------------------------------------------------------------- */

/* Writes the latents of reference image i as tokens [h/p w/p,C p p]. `cells` and `channels` are the
 * strides of `from` between cells and between channels, in elements. */
static void fill_tokens(const xd_job *j, int i, const float *from, int64_t cells, int64_t channels,
                        float *out)
{
    int64_t p = j->ctx->model.dit_info.patch[1], C = j->ctx->model.vae_info.channels;
    int64_t W = j->refs[i].cols, w = W * p, n = token_count(j, i);
    for (int64_t t = 0; t < n; t++)
        for (int64_t c = 0; c < C; c++)
            for (int64_t y = 0; y < p; y++)
                for (int64_t x = 0; x < p; x++) {
                    int64_t cell = (t / W * p + y) * w + t % W * p + x;
                    *out++ = from[cell * cells + c * channels];
                }
}

void xd_role_references_from_sample(const xd_job *j, const float *sample, float *tokens)
{
    fill_tokens(j, 0, sample, 1, j->cells[1] * j->cells[2], tokens);
}

/* Encodes reference image i to `tokens`, which a count device does not access. */
static xd_status encode_one(xd_job *j, int i, xd_arena *a, float *tokens, xd_err *e)
{
    float             *moments = NULL;
    float            **pixels[2] = { &j->ref_pixels[i], NULL };
    xd_vae_clip        clip = { .frames = 1, .pixels = j->ref_size[i], .channels = j->channels };
    xd_status          s = xd_vae_encode_clip(j, a, &clip, pixels, &moments, e);
    const xd_vae_info *v = &j->ctx->model.vae_info;
    int64_t            n = s == XD_OK && !j->ctx->dev->counts ? token_count(j, i) * j->features : 0;
    if (n)
        fill_tokens(j, i, moments, 2 * v->channels, 1, tokens);
    for (int64_t k = 0; k < n; k++)
        tokens[k] = (tokens[k] - (float)v->shift) * (float)v->scaling;
    free(moments);
    return s;
}

xd_status xd_role_references_encode(xd_job *j, xd_arena *a, xd_err *e)
{
    int64_t   n = j->nref_tokens * j->features, at = 0;
    xd_status s = XD_OK;
    if (!j->nrefs)
        return XD_OK;
    if (!(j->ref_tokens = xd_host_buffer(j->ctx, (size_t)n * sizeof *j->ref_tokens)))
        s = xd_fail(e, XD_ENOMEM, "no memory for the tokens of %d images", j->nrefs);
    s = xd_world_agree(&j->ctx->world, s, e);
    for (int i = 0; i < j->nrefs && s == XD_OK; i++) {
        s = encode_one(j, i, a, j->ref_tokens + at, e);
        at += token_count(j, i) * j->features;
    }
    return s;
}
