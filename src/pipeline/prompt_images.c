/* prompt_images.c - passes reference images to a text encoder that reads images; see
 * prompt_images.h */
#include "pipeline/prompt_images.h"

#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "base/rng.h"
#include "io/image.h"
#include "model/model.h"
#include "pipeline/arenas.h"
#include "pipeline/context.h"
#include "ranks/world.h"

/* Returns the text encoder that reads images, or NULL if the model has none. */
static const xd_text_use *seer_of(const xd_job *j)
{
    const xd_recipe *p = j->ctx->model.recipe;
    for (int k = 0; k < p->ntext; k++)
        if (p->text[k].image_text)
            return &p->text[k];
    return NULL;
}

/* Returns 1 if encoder k was opened without its vision tower. */
static int blind(const xd_job *j, int k)
{
    return !j->ctx->model.text[k].text->tower;
}

/* Returns 1 if the template of encoder k has the request's image. */
static int is_framed(const xd_job *j, int k)
{
    return j->ctx->model.recipe->text[k].image_every[0] > 0;
}

/* Returns the number of images in a text that encoder k reads. */
static int images_in(const xd_job *j, int k)
{
    return is_framed(j, k) ? 1 : j->ctx->model.recipe->text[k].image_text ? j->nrefs : 0;
}

xd_status xd_prompt_images_check(const xd_job *j, xd_err *e)
{
    const xd_model    *m = &j->ctx->model;
    const xd_text_use *u = seer_of(j);
    if (!u || !blind(j, (int)(u - m->recipe->text)))
        return XD_OK;
    const xd_component *p = &m->text[u - m->recipe->text];
    if (p->file)
        return xd_fail(
            e, XD_EUNSUPPORTED,
            "%s has no vision tower, with which %s reads images: use a file that has one", p->file,
            m->recipe->name);
    return xd_fail(e, XD_EUNSUPPORTED,
                   "%s/%s has no %s, which tells how %s reads images: download the complete folder",
                   m->dir, u->processor, xd_image_processor_files[0], m->recipe->name);
}

/* ---- pixels ------------------------------------------------------------------------------- */

/* Returns the size of image i before it is scaled to the encoder's size. */
static xd_status first_size(const xd_job *j, int i, xd_grid *size, xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    int64_t         area = seer_of(j)->image_area;
    if (area)
        return m->recipe->reference_size(1, area, &size->rows, &size->cols, e);
    *size = j->ref_size[i];
    return XD_OK;
}

/* For a transformer with reference images in its prefix, checks that the encoder has one token for
 * each square of the image's tokens. */
static xd_status check_slots(const xd_job *j, int i, xd_err *e)
{
    const xd_model           *m = &j->ctx->model;
    const xd_image_processor *p = &m->processor;
    int64_t side = m->dit_info.prefix_refs * m->dit_info.patch[1] * m->vae_info.cell[1],
            seen = p->patch * p->merge;
    if (!side || (j->seen_size[i].rows * side == j->ref_size[i].rows * seen &&
                  j->seen_size[i].cols * side == j->ref_size[i].cols * seen))
        return XD_OK;
    return xd_fail(
        e, XD_EINVAL,
        "image %d: the text encoder reads %lld x %lld pixels and the transformer %lld x "
        "%lld; set max_area to a value from min_pixels to max_pixels of %s/%s, which are "
        "%lld and %lld",
        i + 1, (long long)j->seen_size[i].cols, (long long)j->seen_size[i].rows,
        (long long)j->ref_size[i].cols, (long long)j->ref_size[i].rows, m->dir,
        seer_of(j)->processor, (long long)p->min_pixels, (long long)p->max_pixels);
}

xd_status xd_prompt_image_set_size(xd_job *j, int i, xd_grid own, xd_err *e)
{
    if (!seer_of(j))
        return XD_OK;
    xd_status s = first_size(j, i, &own, e);
    if (s == XD_OK)
        s = xd_image_processor_size(&j->ctx->model.processor, &own.rows, &own.cols, e);
    if (s == XD_OK)
        j->seen_size[i] = own;
    return s == XD_OK ? check_slots(j, i, e) : s;
}

xd_status xd_prompt_image_read(xd_job *j, int i, const uint8_t *rgb, xd_grid size, int cut,
                               xd_err *e)
{
    const xd_text_use *u = seer_of(j);
    xd_grid            first = size, *to = &j->seen_size[i];
    size_t             bytes = (size_t)(size.rows * size.cols) * 3;
    if (!u || cut != !u->image_area)
        return XD_OK;
    uint8_t  *p = malloc(bytes);
    xd_status s = p ? first_size(j, i, &first, e)
                    : xd_fail(e, XD_ENOMEM, "no memory for image %d", i + 1);
    if (p)
        memcpy(p, rgb, bytes);
    if (s == XD_OK)
        s = xd_image_resize(&p, size.cols, size.rows, first.cols, first.rows, e);
    if (s == XD_OK)
        s = xd_image_resize_by(&p, XD_BICUBIC, first.cols, first.rows, to->cols, to->rows, e);
    if (s == XD_OK)
        j->seen[i] = p;
    else
        free(p);
    return s;
}

static int64_t bytes_of(const xd_job *j, int i)
{
    return j->seen_size[i].rows * j->seen_size[i].cols * 3;
}

xd_status xd_prompt_images_share(xd_job *j, xd_status s, xd_err *e)
{
    const xd_context *ctx = j->ctx;
    if (!seer_of(j) || !j->nrefs || ctx->plan.text_tp == 1)
        return s;
    for (int i = 0; i < j->nrefs && s == XD_OK; i++)
        if (!j->seen[i] && !(j->seen[i] = xd_host_buffer(ctx, (size_t)bytes_of(j, i))))
            s = xd_fail(e, XD_ENOMEM, "no memory for image %d", i + 1);
    s = xd_world_agree(&ctx->world, s, e);
    for (int i = 0; i < j->nrefs && s == XD_OK; i++)
        s = xd_world_broadcast(&ctx->world, j->seen[i], bytes_of(j, i), e);
    return s;
}

/* Computes two hashes of the images. The first is the FNV-1a hash of the images' bytes. The second
 * combines the sizes of the images with intermediate values of the first hash. */
void xd_prompt_images_hash(const xd_job *j, int64_t hash[2])
{
    uint64_t a = 0xcbf29ce484222325u, b = (uint64_t)j->nrefs;
    for (int i = 0; i < j->nrefs && j->seen[i]; i++) {
        b = xd_hash_mix(xd_hash_mix(b, (uint64_t)j->seen_size[i].rows),
                        (uint64_t)j->seen_size[i].cols);
        for (int64_t k = 0; k < bytes_of(j, i); k++) {
            a = (a ^ j->seen[i][k]) * 0x100000001b3u;
            if (k % 8 == 7)
                b = xd_hash_mix(b, a);
        }
        b = xd_hash_mix(b, a);
    }
    hash[0] = (int64_t)a;
    hash[1] = (int64_t)b;
}

/* ---- ids ---------------------------------------------------------------------------------- */

static xd_text_tower tower_of(const xd_job *j, int k)
{
    const xd_component *p = &j->ctx->model.text[k];
    xd_text_tower       t;
    p->text->tower(p->w->net.cfg, &t);
    return t;
}

/* Returns the size in pixels of image i of a text that encoder k reads. */
static xd_grid size_of(const xd_job *j, int k, int i)
{
    int64_t side = is_framed(j, k) ? tower_of(j, k).side : 0;
    return side ? (xd_grid){ side, side } : j->seen_size[i];
}

static int64_t tokens_of(const xd_job *j, int k, int i)
{
    xd_text_tower t = tower_of(j, k);
    xd_grid       size = size_of(j, k, i);
    return size.rows / (t.patch * t.merge) * (size.cols / (t.patch * t.merge));
}

int64_t xd_prompt_images_more_ids(const xd_job *j, int k)
{
    int64_t sum = 0;
    for (int i = 0; i < images_in(j, k); i++)
        sum += tokens_of(j, k, i) - 1;
    return sum;
}

int64_t xd_prompt_image_rows(const xd_job *j, int k, int negative)
{
    int every = j->ctx->model.recipe->text[k].image_every[negative];
    return every ? xd_ceil_div(tokens_of(j, k, 0), every) : 0;
}

char *xd_prompt_images_text(const xd_job *j, int k, char *prompt)
{
    const char *text = j->ctx->model.recipe->text[k].image_text, *at,
               *gap = j->ctx->model.recipe->text[k].image_gap;
    xd_text_buf b = { 0 };
    if (!text || !prompt)
        return prompt;
    at = strstr(text, "{}");
    for (int i = 0; i < j->nrefs; i++) {
        if (i && gap)
            xd_buf_add(&b, "%s", gap);
        if (at)
            xd_buf_add(&b, "%.*s%d%s", (int)(at - text), text, i + 1, at + 2);
        else
            xd_buf_add(&b, "%s", text);
    }
    xd_buf_add(&b, "%s", prompt);
    free(prompt);
    if (b.failed)
        xd_buf_free(&b);
    return b.p;
}

xd_status xd_prompt_images_expand(const xd_job *j, int k, int32_t **ids, int64_t *n, xd_err *e)
{
    int64_t more = xd_prompt_images_more_ids(j, k), at = 0;
    int     seen = 0, count = images_in(j, k);
    if (!is_framed(j, k) && (!j->ctx->model.recipe->text[k].image_text || blind(j, k)))
        return XD_OK;
    int32_t mark = tower_of(j, k).token;
    for (int64_t i = 0; i < *n; i++)
        seen += (*ids)[i] == mark;
    if (seen != count)
        return xd_fail(e, XD_EINVAL,
                       "a prompt has the image token (id %d) %d times for %d "
                       "image%s: %s",
                       mark, seen, count, count == 1 ? "" : "s",
                       seen < count ? "increase max_sequence_length" : "remove it from the prompt");
    int32_t *out = malloc((size_t)(*n + more) * sizeof *out + 1);
    if (!out)
        return xd_fail(e, XD_ENOMEM, "no memory for %lld token ids", (long long)(*n + more));
    seen = 0;
    for (int64_t i = 0; i < *n; i++)
        for (int64_t left = (*ids)[i] == mark ? tokens_of(j, k, seen++) : 1; left > 0; left--)
            out[at++] = (*ids)[i];
    free(*ids);
    *ids = out;
    *n = at;
    return XD_OK;
}

int xd_prompt_images_among(const xd_job *j, int k, const int32_t *ids, int64_t n,
                           xd_text_image out[XD_MAXREFS])
{
    const xd_image_processor *p = &j->ctx->model.processor;
    int64_t                   at = 0;
    int                       count = images_in(j, k);
    for (int i = 0; i < count; i++) {
        xd_grid size = size_of(j, k, i);
        for (int32_t mark = tower_of(j, k).token; ids && at < n && ids[at] != mark;)
            at++;
        out[i] = (xd_text_image){ .rgb = j->seen[i],
                                  .height = size.rows,
                                  .width = size.cols,
                                  .at = at,
                                  .n = tokens_of(j, k, i) };
        for (int c = 0; c < 3; c++) {
            out[i].mean[c] = (float)p->mean.v[c];
            out[i].std[c] = (float)p->std.v[c];
        }
        at += out[i].n;
    }
    return count;
}

int xd_prompt_images_rows(const xd_job *j, const int32_t *ids, int64_t n, int64_t rows,
                          xd_cond_image out[XD_MAXREFS])
{
    const xd_text_use *u = seer_of(j);
    xd_text_image      images[XD_MAXREFS];
    int64_t            first = ids ? n - rows : 0;
    if (!j->ctx->model.dit_info.prefix_refs || !u)
        return 0;
    int count = xd_prompt_images_among(j, (int)(u - j->ctx->model.recipe->text), ids, n, images);
    for (int i = 0; i < count; i++)
        out[i] = (xd_cond_image){ .at = images[i].at - first,
                                  .n = images[i].n,
                                  .rows = j->refs[i].rows,
                                  .cols = j->refs[i].cols };
    return count;
}
