/* result.c - holds the images of a request and the texts of their metadata */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/result.h"
#include "base/file.h"
#include "base/log.h"
#include "model/lora.h"
#include "io/video.h"
#include "pipeline/audio_decode.h"
#include "pipeline/callbacks.h"
#include "pipeline/dtypes.h"
#include "pipeline/enlarger.h"
#include "pipeline/job.h"
#include "pipeline/mask.h"
#include "pipeline/options.h"
#include "pipeline/output.h"
#include "pipeline/pixels.h"
#include "pipeline/prior.h"
#include "pipeline/step_hash.h"
#include "pipeline/text_encode.h"

enum { MAXTIME = 8 };

typedef struct item {
    xd_image      image;
    uint8_t      *pixels;          /* memory of the pixels in `image` */
    float        *lat, *audio_lat; /* audio_lat: latents of audio, or NULL */
    float        *wave;            /* samples of `sound`, or NULL */
    xd_sound      sound;
    xd_step_hash *hashes; /* hashes of the steps, or NULL */
    int64_t       seed;
    char         *json, *parameters;
    /* durations of denoising and of decoding in seconds; 0: unknown */
    double        denoise_s, decode_s;
    int64_t       text_tokens;
} item;

struct xd_result {
    item   *items;
    int     n, have;
    int64_t lat[4];        /* shape of the latents: t, C, h, w */
    int64_t audio_numbers; /* number of elements of an image's latents of audio */
    int video, quality; /* video is 1 for a video or layers; quality is that of xd_output_write */
    struct {
        char   name[16];
        double s;
    } time[MAXTIME];
    int            ntime;
    int64_t        sent;                           /* bytes sent between ranks */
    int64_t        image_tokens, reference_tokens; /* tokens per image */
    xd_hash_counts hashes;                         /* numbers of hashes of an image */
};

xd_status xd_result_open(xd_result **r, const xd_job *j, xd_err *e)
{
    if (!(*r = calloc(1, sizeof **r)) ||
        !((*r)->items = calloc((size_t)j->images, sizeof *(*r)->items))) {
        xd_result_free(r);
        return xd_fail(e, XD_ENOMEM, "no memory for %d results", j->images);
    }
    (*r)->n = j->images;
    memcpy((*r)->lat, j->lat, sizeof j->lat);
    (*r)->audio_numbers = j->audio_numbers;
    (*r)->video = j->fps > 0 || j->ctx->model.recipe->layers;
    (*r)->quality = (int)j->r->output.output_quality;
    return XD_OK;
}

void xd_result_free(xd_result **r)
{
    if (!r || !*r)
        return;
    for (int i = 0; i < (*r)->n && (*r)->items; i++) {
        item *t = &(*r)->items[i];
        free(t->pixels), free(t->lat), free(t->wave), free(t->json), free(t->parameters);
        free(t->hashes), free(t->audio_lat);
    }
    free((*r)->items);
    free(*r);
    *r = NULL;
}

/* ---- texts -------------------------------------------------------------------------------- */

static const char *or_empty(const char *s)
{
    return s ? s : "";
}

/* Returns the guidance scale for the metadata: the requested scale for distilled models, whose
 * guidance combines no passes; otherwise the scale in use. */
static double scale_read(const xd_job *j)
{
    const xd_recipe *p = j->ctx->model.recipe;
    double           asked = j->r->guidance_scale;
    return !p->distilled ? j->guidance : asked < 0 ? j->usual.guidance : asked;
}

/* Appends the name of a file or model to the metadata. `path` is NULL for pixels that were passed
 * in memory. */
static void add_name(xd_text_buf *b, const xd_request *r, const char *path)
{
    if (path && r->output.omit_folders)
        xd_model_short_name(path, b);
    else
        xd_buf_json_string(b, path ? path : "(pixels)");
}

/* Appends the names of n images as a list. names NULL: the images are pixels. */
static void add_more_images(xd_text_buf *b, const xd_request *r, const char *key,
                            const char *const *names, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        xd_buf_add(b, i ? ", " : ", \"%s\": [", key);
        add_name(b, r, names ? names[i] : NULL);
    }
    xd_buf_add(b, n ? "]" : "");
}

static void add_text(xd_text_buf *b, const char *name, const char *text)
{
    if (!text || !*text)
        return;
    xd_buf_add(b, ", \"%s\": ", name);
    xd_buf_json_string(b, text);
}

/* Appends the names of the input images and their settings to the metadata. */
static void add_images(xd_text_buf *b, const xd_job *j)
{
    const xd_request *r = j->r;
    if (xd_job_has_image(r)) {
        xd_buf_add(b, ", \"image\": ");
        add_name(b, r, r->images.image);
        add_more_images(b, r, "more_images", r->images.more_images, r->images.nmore_images);
    }
    if (r->latents) {
        xd_buf_add(b, ", \"latents\": ");
        add_name(b, r, r->latents);
    }
    if (xd_job_has_last(r)) {
        xd_buf_add(b, ", \"last_image\": ");
        add_name(b, r, r->images.last_image);
    }
    if (xd_job_has_mask(r)) {
        xd_buf_add(b, ", \"mask_image\": ");
        add_name(b, r, r->images.mask_image);
    }
    if (xd_job_has_control(r)) {
        xd_buf_add(b, ", \"control_image\": ");
        add_name(b, r, r->images.control_image);
        add_more_images(b, r, "more_control_images", r->images.more_control_images,
                        r->images.nmore_control_images);
    }
    if (xd_prior_images(r)) {
        xd_buf_add(b, ", \"redux_image\": ");
        add_name(b, r, r->redux.image);
        add_more_images(b, r, "more_redux_images", r->redux.more_images, r->redux.nmore_images);
    }
    if (xd_job_has_control_video(r)) {
        xd_buf_add(b, ", \"control_video\": ");
        add_name(b, r, r->images.control_video);
    }
    if (xd_job_has_pose_video(r)) {
        xd_buf_add(b, ", \"pose_video\": ");
        add_name(b, r, r->driving.pose_video);
    }
    if (xd_job_has_face_video(r)) {
        xd_buf_add(b, ", \"face_video\": ");
        add_name(b, r, r->driving.face_video);
    }
    if (j->strength > 0)
        xd_buf_add(b, ", \"strength\": %.10g", j->strength);
    if (j->ctx->enlarger) {
        xd_buf_add(b, ", \"upscale\": %d, \"upscaler\": ", j->ctx->enlarger->info.scale);
        add_name(b, r, j->ctx->enlarger->part.file);
    }
}

/* Appends to the metadata those options that the option table marks as stored in metadata. */
static void add_stored(xd_text_buf *b, const xd_job *j)
{
    int                   n;
    const xd_request_row *row = xd_request_rows(&n);
    for (int i = 0; i < n; i++) {
        xd_text_buf value = { 0 };
        if (!row[i].stored || !xd_request_uses(&row[i], j, row[i].stored == XD_STORED_USED))
            continue;
        xd_request_value(&row[i], j->r, &value);
        xd_buf_add(b, ", \"%s\": ", row[i].option.name);
        if (row[i].option.kind == XD_OPT_TEXT)
            xd_buf_json_string(b, or_empty(value.p));
        else
            xd_buf_add(b, "%s", or_empty(value.p));
        b->failed |= value.failed;
        xd_buf_free(&value);
    }
}

/* Appends to the metadata the settings that affect the image. */
static void add_options(xd_text_buf *b, const xd_job *j, int prompt)
{
    const xd_request *r = j->r;
    if (j->ctx->model.recipe->distilled)
        xd_buf_add(b, ", \"true_cfg_scale\": %.10g", j->guidance);
    if (j->boundary >= 0)
        xd_buf_add(b, ", \"boundary_ratio\": %.10g, \"guidance_scale_2\": %.10g", j->boundary,
                   j->guidance_2);
    add_stored(b, j);
    for (xd_job_text_kind k = XD_TEXT_2; k < XD_JOB_TEXTS; k++)
        add_text(b, xd_job_text_name(k), xd_job_text(r, k, prompt));
    xd_job_sampler_json(j, b);
    if (!xd_prompts_fixed(j))
        xd_buf_add(b, ", \"max_sequence_length\": %d", j->max_text);
    add_images(b, j);
    if (j->window[0] < 0)
        xd_buf_add(b, ", \"attention_window\": \"%" PRId64 "\"", j->window[2] / 2);
    else if (j->window[0] | j->window[1] | j->window[2])
        xd_buf_add(b, ", \"attention_window\": \"%" PRId64 ",%" PRId64 ",%" PRId64 "\"",
                   j->window[0], j->window[1], j->window[2]);
    if (xd_fast_attn_is_on(j)) {
        xd_buf_add(b, ", \"fast_attn\": ");
        add_name(b, r, r->savings.fast_attn);
    }
    if (j->ways.found) {
        xd_buf_add(b, ", \"fast_attn_found\": ");
        xd_fast_attn_add_found(j, b);
    }
    if (j->cache.kind) {
        xd_buf_add(b, ", \"cache\": ");
        xd_buf_json_string(b, r->savings.cache);
        xd_buf_add(b, ", \"cache_reused\": %" PRId64 ", \"cache_ranges\": %" PRId64, j->cached[0],
                   j->cached[1]);
    }
    for (int i = 0; i < j->nchanges; i++)
        xd_buf_add(b, "%s[%.9g, %.9g]%s", i ? ", " : ", \"cache_changes\": [", j->changes[i].in,
                   j->changes[i].out, i + 1 < j->nchanges ? "" : "]");
}

static char *make_json(const xd_job *j, int i, int64_t seed)
{
    xd_text_buf       b = { 0 };
    const xd_request *r = j->r;
    int               prompt = i / r->num_images_per_prompt;
    xd_buf_add(&b, "{\"prompt\": ");
    xd_buf_json_string(&b, r->prompts[prompt]);
    xd_buf_add(&b, ", \"negative_prompt\": ");
    xd_buf_json_string(&b, or_empty(xd_job_text(r, XD_TEXT_NEGATIVE, prompt)));
    xd_buf_add(&b,
               ", \"seed\": %" PRIu64 ", \"rng\": \"%s\", \"steps\": %d, \"guidance_scale\": "
               "%.10g",
               (uint64_t)seed, r->noise.rng, j->asked_steps, scale_read(j));
    add_options(&b, j, prompt);
    xd_buf_add(&b, ", \"sampler\": \"%s\", \"width\": %" PRId64 ", \"height\": %" PRId64,
               j->sampler->name, j->asked[1], j->asked[0]);
    xd_buf_add(&b, ", \"generated_width\": %" PRId64 ", \"generated_height\": %" PRId64, j->size[1],
               j->size[0]);
    if (j->fps > 0)
        xd_buf_add(&b, ", \"num_frames\": %" PRId64 ", \"fps\": %.10g, \"use_dynamic_cfg\": %s",
                   j->segments ? j->frames : j->all_frames, j->fps,
                   r->guidance.use_dynamic_cfg ? "true" : "false");
    if (j->ctx->model.recipe->layers)
        xd_buf_add(&b, ", \"layers\": %" PRId64, j->frames);
    xd_buf_add(&b, ", \"pipeline\": \"%s\", \"model\": ", j->ctx->model.recipe->name);
    add_name(&b, r, j->ctx->model.dir);
    xd_buf_add(&b,
               ", \"model_hash\": \"%016" PRIx64 "\", \"dtype\": \"%s\", \"weights_dtype\": "
               "\"%s\", \"device\": \"%s\"",
               j->ctx->hash, xd_dtype_name(j->ctx->type),
               xd_types_name(&j->ctx->model.dit, j->ctx->type), j->ctx->dev->name);
    xd_loras_json(j->ctx->model.loras, "loras", r->output.omit_folders != 0, &b);
    xd_loras_json(j->ctx->model.loras_2, "loras_2", r->output.omit_folders != 0, &b);
    xd_buf_add(&b, ", \"plan\": \"%s\", \"version\": \"xdit %s\"}", j->ctx->plan.text,
               xd_version());
    if (b.failed)
        xd_buf_free(&b);
    return b.p;
}

/* Returns the name of the request's sampler in stable-diffusion-webui, where a name such as "DPM++
 * 2M" means order 2. */
static const char *known_as(const xd_job *j)
{
    int order = j->samp.cfg.solver_order;
    if (order == 2 && strcmp(j->samp.cfg.algorithm_type, "sde-dpmsolver++") == 0)
        return "DPM++ 2M SDE";
    int plain = !j->sampler->webui || (order && order != 2);
    return plain ? j->sampler->name : j->sampler->webui;
}

/* Writes the parameters of image i in the text format of stable-diffusion-webui ("A1111"), which
 * galleries and ComfyUI read. */
static char *make_parameters(const xd_job *j, int i, int64_t seed)
{
    xd_text_buf       b = { 0 };
    const xd_request *r = j->r;
    int               prompt = i / r->num_images_per_prompt;
    const char       *avoid = or_empty(xd_job_text(r, XD_TEXT_NEGATIVE, prompt));
    xd_buf_utf8(&b, r->prompts[prompt]);
    if (*avoid) {
        xd_buf_add(&b, "\nNegative prompt: ");
        xd_buf_utf8(&b, avoid);
    }
    xd_buf_add(&b,
               "\nSteps: %d, Sampler: %s%s, CFG scale: %.10g, Seed: %" PRIu64 ", Size: %" PRId64
               "x%" PRId64,
               j->asked_steps, known_as(j), j->samp.cfg.use_karras_sigmas ? " Karras" : "",
               !isnan(j->distilled) && j->npass == 1 ? 1 : j->guidance, (uint64_t)seed, j->asked[1],
               j->asked[0]);
    if (j->samp.cfg.eta > 0)
        xd_buf_add(&b, ", Eta DDIM: %.10g", j->samp.cfg.eta);
    if (!isnan(j->distilled))
        xd_buf_add(&b, ", Distilled CFG Scale: %.10g", j->distilled);
    if (j->strength > 0)
        xd_buf_add(&b, ", Denoising strength: %.10g", j->strength);
    xd_buf_add(&b, ", Model hash: %016" PRIx64 ", Model: %s, RNG: %s", j->ctx->hash,
               j->ctx->model.recipe->name, r->noise.rng);
    xd_loras_text(j->ctx->model.loras, &b);
    xd_loras_text(j->ctx->model.loras_2, &b);
    xd_buf_add(&b, ", Version: xdit %s", xd_version());
    if (b.failed)
        xd_buf_free(&b);
    return b.p;
}

/* ---- filling ------------------------------------------------------------------------------ */

xd_status xd_result_fail_odd(const xd_job *j, int i, int64_t n, xd_err *e)
{
    const xd_context *ctx = j->ctx;
    const char       *type = xd_dtype_name(ctx->type), *made = ctx->model.recipe->vae;
    char              what[64] = "its latents are";
    if (n)
        snprintf(what, sizeof what, "%" PRId64 " of its %" PRId64 " levels are", n,
                 xd_job_pixels(j));
    else
        made = ctx->model.recipe->dit;
    return xd_fail(e, XD_EFORMAT,
                   "image %d cannot be written: %s NaN or infinite, computed by %s "
                   "in %s; %sother weights may help",
                   i + 1, what, made, type, ctx->type == XD_F32 ? "" : "--dtype f32 or ");
}

static void report_image(const xd_job *j, const float *rgb)
{
    int64_t d[4] = { j->frames, j->asked[0], j->asked[1], j->channels }, n = xd_job_pixels(j);
    int     image = j->fps <= 0 && j->frames == 1;
    float  *f = j->r->callbacks.on_tensor ? malloc((size_t)n * sizeof *f + 1) : NULL;
    for (int64_t i = 0; f && i < n; i++) {
        float v = rgb[i] * 0.5f + 0.5f;
        f[i] = v > 0 ? v < 1 ? v : 1 : 0;
    }
    if (f)
        xd_callback_tensor(j, "image", 0, 4 - image, d + image, f);
    free(f);
}

/* Copies the hashes of the current image to item t. */
static xd_status keep_hashes(xd_result *r, item *t, const xd_job *j, xd_err *e)
{
    int    n = xd_step_hash_count(j);
    size_t bytes = (size_t)j->samp.steps * (size_t)n * sizeof *t->hashes;
    if (!n || !j->hashes)
        return XD_OK;
    t->hashes = malloc(bytes);
    if (!t->hashes)
        return xd_fail(e, XD_ENOMEM, "no memory for the hashes of an image");
    memcpy(t->hashes, j->hashes, bytes);
    r->hashes.steps = j->samp.steps;
    if (n > 1) {
        r->hashes.passes = j->npass;
        r->hashes.blocks = (n - 1) / j->npass;
    }
    return XD_OK;
}

/* Moves the sound of the current image, and the latents that it was decoded from, from the job to
 * the item of the result. */
static void take_sound(item *t, xd_job *j)
{
    t->wave = j->wave;
    t->audio_lat = j->audio_latents;
    j->wave = j->audio_latents = NULL;
    t->sound.samples = t->wave;
    t->sound.n = xd_audio_samples(j, &t->sound.channels, &t->sound.rate);
}

/* Enlarges the frames of an item with the upscaler. */
static xd_status enlarge(item *t, xd_enlarger *u, xd_err *e)
{
    const xd_image *im = &t->image;
    int64_t         f = u->info.scale, frame = im->height * im->width * 3;
    uint8_t        *all = malloc((size_t)(im->frames * frame * f * f));
    xd_status       s = XD_OK;
    if (im->channels != 3)
        s = xd_fail(e, XD_EUNSUPPORTED,
                    "images with alpha cannot be enlarged: omit upscale for this model");
    else if (!all)
        s = xd_fail(e, XD_ENOMEM, "no memory for an image that is enlarged by %d", (int)f);
    for (int64_t i = 0; i < im->frames && s == XD_OK; i++)
        s = xd_enlarger_run(u,
                            &(xd_enlarging){ .rgb = im->data + i * frame,
                                             .w = im->width,
                                             .h = im->height,
                                             .out = all + i * frame * f * f },
                            e);
    if (s != XD_OK) {
        free(all);
        return s;
    }
    free(t->pixels);
    t->pixels = all;
    t->image.data = all;
    t->image.height *= f, t->image.width *= f, t->image.stride = t->image.width * 3;
    return XD_OK;
}

xd_status xd_result_add(xd_result *r, xd_job *j, int i, float *lat, float *rgb, xd_err *e)
{
    item   *t = &r->items[i];
    int64_t odd = 0;
    xd_grid size = j->paste.rgb ? j->paste.size : (xd_grid){ j->asked[0], j->asked[1] };
    t->lat = lat;
    take_sound(t, j);
    t->seed = (int64_t)((uint64_t)j->r->seed + (uint64_t)i);
    xd_job as_given = *j; /* with the request and the number of steps of the program */
    if (j->small)
        as_given.r = j->given, as_given.asked_steps = j->small->asked_steps;
    t->json = make_json(&as_given, i, t->seed);
    t->parameters = make_parameters(&as_given, i, t->seed);
    if (rgb) {
        report_image(j, rgb);
        t->pixels = xd_pixels_quantize(rgb, xd_job_pixels(j), &odd);
        if (odd) {
            free(rgb);
            return xd_result_fail_odd(j, i, odd, e);
        }
        if (t->pixels && j->paste.rgb && xd_mask_paste(j, &t->pixels, e) != XD_OK) {
            free(rgb);
            return XD_ENOMEM;
        }
        t->image = (xd_image){ .size = sizeof t->image,
                               .frames = j->frames,
                               .height = size.rows,
                               .width = size.cols,
                               .stride = size.cols * j->channels,
                               .channels = j->channels,
                               .data = t->pixels,
                               .fps = j->fps };
    }
    free(rgb);
    if (!t->json || !t->parameters || (rgb && !t->image.data))
        return xd_fail(e, XD_ENOMEM, "no memory for image %d", i + 1);
    if (t->image.data && j->ctx->enlarger && enlarge(t, j->ctx->enlarger, e) != XD_OK)
        return e ? e->code : XD_ENOMEM;
    r->have = i + 1;
    return keep_hashes(r, t, j, e);
}

void xd_result_time(xd_result *r, const char *part, double seconds)
{
    for (int i = 0; i < r->ntime; i++)
        if (strcmp(r->time[i].name, part) == 0) {
            r->time[i].s += seconds;
            return;
        }
    if (r->ntime < MAXTIME) {
        snprintf(r->time[r->ntime].name, sizeof r->time[0].name, "%s", part);
        r->time[r->ntime++].s = seconds;
    }
}

void xd_result_image_time(xd_result *r, int i, const char *part, double seconds)
{
    if (strcmp(part, "denoise") == 0)
        r->items[i].denoise_s = seconds;
    else if (strcmp(part, "decode") == 0)
        r->items[i].decode_s = seconds;
}

void xd_result_traffic(xd_result *r, int64_t bytes)
{
    r->sent = bytes;
}

void xd_result_count_tokens(xd_result *r, const xd_job *j, const xd_prompts *w)
{
    r->image_tokens = j->tokens;
    r->reference_tokens = j->nref_tokens;
    for (int i = 0; i < r->n; i++)
        r->items[i].text_tokens = xd_prompts_tokens(w, j, i / j->r->num_images_per_prompt);
}

/* ---- reading ------------------------------------------------------------------------------ */

int xd_result_count(const xd_result *r)
{
    return r->have;
}

static const item *item_at(const xd_result *r, int i)
{
    return i >= 0 && i < r->have ? &r->items[i] : NULL;
}

const float *xd_result_lat(const xd_result *r, int i, int64_t *n)
{
    const item *t = item_at(r, i);
    *n = t ? r->lat[0] * r->lat[1] * r->lat[2] * r->lat[3] : 0;
    return t ? t->lat : NULL;
}

const float *xd_result_audio_lat(const xd_result *r, int i, int64_t *n)
{
    const item *t = item_at(r, i);
    *n = t && t->audio_lat ? r->audio_numbers : 0;
    return t ? t->audio_lat : NULL;
}

const xd_image *xd_result_image(const xd_result *r, int i)
{
    const item *t = item_at(r, i);
    return t && t->image.data ? &t->image : NULL;
}

const float *xd_result_audio(const xd_result *r, int i, xd_audio_size *size)
{
    const item *t = item_at(r, i);
    *size = (xd_audio_size){ 0, 0, 0 };
    if (t && t->wave)
        *size = (xd_audio_size){ t->sound.n, t->sound.channels, t->sound.rate };
    return t ? t->wave : NULL;
}

int64_t xd_result_seed(const xd_result *r, int i)
{
    const item *t = item_at(r, i);
    return t ? t->seed : 0;
}

const char *xd_result_json(const xd_result *r, int i)
{
    const item *t = item_at(r, i);
    return t ? t->json : NULL;
}

const char *xd_result_parameters(const xd_result *r, int i)
{
    const item *t = item_at(r, i);
    return t ? t->parameters : NULL;
}

double xd_result_seconds(const xd_result *r, const char *part)
{
    for (int i = 0; i < r->ntime; i++)
        if (strcmp(r->time[i].name, part) == 0)
            return r->time[i].s;
    return -1;
}

double xd_result_image_seconds(const xd_result *r, int i, const char *part)
{
    const item *t = item_at(r, i);
    double      s = !t                             ? 0
                    : strcmp(part, "denoise") == 0 ? t->denoise_s
                    : strcmp(part, "decode") == 0  ? t->decode_s
                                                   : 0;
    return s > 0 ? s : -1;
}

const xd_step_hash *xd_result_hashes(const xd_result *r, int i, xd_hash_counts *n)
{
    const item *t = item_at(r, i);
    *n = r->hashes;
    return t ? t->hashes : NULL;
}

int64_t xd_result_sent(const xd_result *r)
{
    return r->sent;
}

int64_t xd_result_tokens(const xd_result *r, int i, const char *what)
{
    const item *t = item_at(r, i);
    if (!t)
        return -1;
    return strcmp(what, "text") == 0        ? t->text_tokens
           : strcmp(what, "image") == 0     ? r->image_tokens
           : strcmp(what, "reference") == 0 ? r->reference_tokens
                                            : -1;
}

static int is_safetensors(const char *path)
{
    size_t n = strlen(path);
    return n >= 12 && strcmp(path + n - 12, ".safetensors") == 0;
}

xd_status xd_result_save(const xd_result *r, int i, const char *path, xd_err *e)
{
    const item *t = item_at(r, i);
    if (!t)
        return xd_fail(e, XD_EINVAL, "there is no image %d: the result has %d", i + 1, r->have);
    if (is_safetensors(path)) {
        const char *meta[] = { "parameters", t->parameters, "xdit", t->json, NULL };
        xd_st_item  it = { "latents", xd_view(t->lat, XD_F32, 4, r->lat) };
        if (r->video) /* diffusers' shape of a video or of layers: [1,t,C,h,w] */
            it.t = xd_view(t->lat, XD_F32, 5,
                           (int64_t[]){ 1, r->lat[0], r->lat[1], r->lat[2], r->lat[3] });
        return xd_st_write(path, &it, 1, 0, meta, e);
    }
    if (!t->image.data)
        return xd_fail(e, XD_EINVAL,
                       "the request generated latents only; save them as "
                       ".safetensors");
    xd_status s = xd_output_check_sound(path, t->wave != NULL, e);
    if (s != XD_OK)
        return s;
    xd_image_text texts[] = { { "parameters", t->parameters },
                              { "xdit", t->json },
                              { NULL, NULL } };
    return t->wave && (xd_wav_known(path) || xd_video_known(path))
               ? xd_output_write_sound(path, &t->image, &t->sound, texts, e)
               : xd_output_write(path, &t->image, r->quality, texts, e);
}
