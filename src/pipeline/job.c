/* job.c - checks a request and fills in defaults, before anything is loaded */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/job.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/record.h"
#include "model/model.h"
#include "families/help.h"
#include "families/recipe.h"
#include "pipeline/checkpoint.h"
#include "pipeline/context.h"
#include "pipeline/given_noise.h"
#include "pipeline/image_roles.h"
#include "pipeline/mask.h"
#include "pipeline/options.h"
#include "pipeline/prior.h"
#include "pipeline/text_encode.h"
#include "pipeline/upsampling.h"
#include "ranks/world.h"

xd_status xd_request_take(xd_request *own, const xd_request *r, xd_err *e)
{
    xd_request_init(own);
    return xd_record_read(own, sizeof *own, r, "xd_request", e);
}

/* Returns 1 if denoising starts from the request's image plus noise. */
static int starts_from_image(const xd_job *j)
{
    return xd_job_has_image(j->r) && j->role->starts;
}

int xd_job_encodes(const xd_job *j)
{
    return xd_job_has_image(j->r) || xd_job_has_control(j->r) || j->parts > 0 || j->nconditions > 0;
}

int xd_job_begins_with_vae(const xd_job *j)
{
    return xd_job_encodes(j) || (j->small && j->ctx->model.upsampler.upsampler);
}

/* Checks that a side in pixels is an integer number of tokens. The error has the nearest valid
 * sides. */
static xd_status check_side(const xd_job *j, int i, xd_err *e)
{
    static const char *const names[] = { "height", "width" };
    int64_t v = j->size[i - 1], cell = j->ctx->model.vae_info.cell[i],
            patch = j->ctx->model.dit_info.patch[i], by = xd_upsampling_factor(j, i),
            unit = cell * patch * by, low = v / unit * unit;
    char    factor[64] = "", nearest[80];
    if (v % unit == 0)
        return XD_OK;
    if (by > 1)
        snprintf(factor, sizeof factor, " x latent upsampler %lld", (long long)by);
    if (low < unit)
        snprintf(nearest, sizeof nearest, "value is %lld", (long long)unit);
    else
        snprintf(nearest, sizeof nearest, "values are %lld and %lld", (long long)low,
                 (long long)(low + unit));
    return xd_fail(e, XD_EINVAL,
                   "%s %lld is not a multiple of %lld (VAE factor %lld x patch %lld%s); the "
                   "nearest valid %s",
                   names[i - 1], (long long)v, (long long)unit, (long long)cell, (long long)patch,
                   factor, nearest);
}

/* Checks the options of a request that apply to videos only. */
static xd_status check_video(const xd_job *j, xd_err *e)
{
    const xd_recipe  *p = j->ctx->model.recipe;
    const xd_request *r = j->r;
    const char       *what = r->num_frames                 ? "num_frames"
                             : r->fps > 0                  ? "fps"
                             : r->output.seconds > 0       ? "seconds"
                             : r->guidance.use_dynamic_cfg ? "use_dynamic_cfg"
                                                           : NULL;
    if (p->fps <= 0 && what)
        return xd_fail(e, XD_EINVAL, "%s is for videos, but %s generates images", what, p->name);
    if (r->num_frames && r->output.seconds > 0)
        return xd_fail(e, XD_EINVAL,
                       "num_frames and seconds are both given; use one of "
                       "them");
    if (p->needs_image && j->role->needs && !xd_job_has_image(r) && !j->ctx->bench)
        return xd_fail(e, XD_EINVAL, "%s needs %s: add --image", p->name, j->role->needs);
    if (!j->role->read && xd_job_has_image(r))
        return xd_fail(e, XD_EINVAL,
                       "%s generates videos from text only and cannot start from the image %s "
                       "(%s can)",
                       p->name, r->images.image ? r->images.image : "in the request",
                       xd_family_says(XD_WORD_FROM_IMAGE));
    if (j->role->keeps && r->images.strength > 0)
        return xd_fail(e, XD_EINVAL,
                       "strength %g cannot be used with %s, which keeps the image unchanged",
                       r->images.strength, p->name);
    if (r->images.no_auto_resize && !p->auto_resizes)
        return xd_fail(e, XD_EINVAL,
                       "no_auto_resize is for %s; %s does not resize images to a "
                       "trained size",
                       xd_family_says(XD_WORD_AUTO_RESIZES), p->name);
    if (r->output.max_area && !p->max_area && !p->reference_area && !(p->fps > 0 && p->sized_by))
        return xd_fail(e, XD_EINVAL, "max_area is for %s; %s generates the requested size",
                       xd_family_says(XD_WORD_MAX_AREA), p->name);
    return XD_OK;
}

/* Sets the sizes of the autoencoder's tiles. */
static xd_status set_tiles(xd_job *j, xd_err *e)
{
    const xd_request_output *o = &j->r->output;
    int64_t                  size[2] = { o->vae_tile_size_height, o->vae_tile_size_width };
    int64_t                  overlap[2] = { o->vae_tile_overlap_height, o->vae_tile_overlap_width };
    const char              *given = size[0] > 0       ? "size_height"
                                     : size[1] > 0     ? "size_width"
                                     : overlap[0] >= 0 ? "overlap_height"
                                     : overlap[1] >= 0 ? "overlap_width"
                                                       : NULL;
    j->vae = j->ctx->model.vae_info;
    j->channels = xd_vae_pixel_channels(&j->vae);
    if (given && !o->enable_tiling && !j->vae.covers)
        return xd_fail(e, XD_EINVAL, "vae_tile_%s is for decoding in tiles: add --enable_tiling",
                       given);
    return xd_vae_set_tiles(&j->vae, size, overlap, e);
}

static int has_prompt(const xd_recipe *p, int number)
{
    for (int k = 0; k < p->ntext; k++)
        if (p->text[k].prompt == number)
            return 1;
    return 0;
}

/* Refuses a further prompt (such as prompt_2) if its text encoder reads the first prompt, or if the
 * model does not have that text encoder. */
static xd_status check_prompts(const xd_job *j, xd_err *e)
{
    const xd_recipe *p = j->ctx->model.recipe;
    for (int i = 0; i < j->r->nprompts && p->describes && xd_job_has_image(j->r); i++)
        if (!j->r->prompts[i][strspn(j->r->prompts[i], " ")])
            return xd_fail(
                e, XD_EINVAL,
                "prompt %d is empty: in diffusers, the pipeline of %s then writes a text "
                "that describes the image, which xdit does not; describe the image in "
                "the prompt",
                i + 1, p->name);
    for (xd_job_text_kind k = XD_TEXT_2; k < XD_JOB_TEXTS; k++) {
        int number = k == XD_TEXT_3 || k == XD_TEXT_NEGATIVE_3 ? 2 : 1;
        if (xd_job_has_text(j->r, k) && !has_prompt(p, number))
            return xd_fail(
                e, XD_EINVAL, "%s is for %s; %s reads %s", xd_job_text_name(k),
                xd_family_says(number == 1 ? XD_WORD_TWO_PROMPTS : XD_WORD_THREE_PROMPTS), p->name,
                has_prompt(p, 1) ? "two prompts" : "one prompt");
    }
    return XD_OK;
}

/* Checks the guidance scales. Two kinds of models use two names for guidance; a value for the other
 * kind is refused. */
static xd_status check_guidance(const xd_job *j, xd_err *e)
{
    const xd_recipe *p = j->ctx->model.recipe;
    if (!p->distilled && j->r->guidance.true_cfg_scale > 1)
        return xd_fail(e, XD_EINVAL,
                       "true_cfg_scale is for models whose guidance_scale is distilled (%s); %s "
                       "is guided by guidance_scale",
                       xd_family_says(XD_WORD_DISTILLED), p->name);
    const xd_request_guidance *g = &j->r->guidance;
    const xd_request_audio    *a = &j->r->audio;
    const struct {
        const char    *name;
        int            given;
        xd_family_word families;
    } own[] = {
        { "cfg_normalization", g->cfg_normalization > 0, XD_WORD_NORMALIZES },
        { "cfg_truncation", g->cfg_truncation < 1, XD_WORD_FROM_PROMPT },
        { "cfg_trunc_ratio", g->cfg_trunc_ratio < 1, XD_WORD_KEEPS_ROWS },
        { "guidance_rescale", g->guidance_rescale > 0, XD_WORD_RESCALES },
        { "audio_guidance_scale", a->audio_guidance_scale >= 0, XD_WORD_AUDIO },
        { "audio_guidance_rescale", a->audio_guidance_rescale >= 0, XD_WORD_AUDIO },
        { "modality_scale", a->modality_scale >= 0, XD_WORD_AUDIO },
        { "audio_modality_scale", a->audio_modality_scale >= 0, XD_WORD_AUDIO },
        { "stg_scale", a->stg_scale >= 0, XD_WORD_AUDIO },
        { "audio_stg_scale", a->audio_stg_scale >= 0, XD_WORD_AUDIO },
        { "spatio_temporal_guidance_blocks", a->spatio_temporal_guidance_blocks != NULL,
          XD_WORD_AUDIO },
        { "no_audio", a->no_audio, XD_WORD_SOUND },
        { "decode_timestep", j->r->decoding.decode_timestep >= 0, XD_WORD_DECODES_AT },
        { "decode_noise_scale", j->r->decoding.decode_noise_scale >= 0, XD_WORD_DECODES_AT },
        { "denoise_strength", j->r->upsampling.denoise_strength > 0, XD_WORD_DENOISES_PART },
        { "layers", j->r->layers > 0, XD_WORD_SEPARATES },
        { "system_prompt", j->r->texts.system_prompt != NULL, XD_WORD_SYSTEM },
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i].given && !xd_recipe_has(p, own[i].families))
            return xd_fail(e, XD_EINVAL, "%s is for %s; the pipeline of %s has no such option",
                           own[i].name, xd_family_says(own[i].families), p->name);
    return XD_OK;
}

/* Returns the number of latent frames of n requested frames, of the requested seconds, or of the
 * model's default. */
static int64_t wanted_latents(const xd_job *j, int64_t n)
{
    const xd_model *m = &j->ctx->model;
    int64_t         c = m->vae_info.cell[0];
    double          seconds = j->r->output.seconds;
    if (m->vae_info.chunk[0]) {
        n = seconds > 0 ? llround(seconds * j->fps) : n;
        n = n ? n : xd_vae_frames(&m->vae_info, m->dit_info.sample[0]);
        return xd_vae_latents(&m->vae_info, n);
    }
    if (seconds > 0)
        return 1 + llround(fmax(seconds * j->fps - 1, 0) / (double)c);
    return n ? (n - !m->recipe->frames_up) / c + 1 : m->dit_info.sample[0];
}

/* Logs that another number of frames is generated than that of the request. */
static void warn_frames(const xd_job *j)
{
    const xd_vae_info *v = &j->ctx->model.vae_info;
    if (v->chunk[0])
        xd_log(XD_LOG_WARN,
               "generating %lld frames, not %lld: this autoencoder decodes clips of %lld frames, "
               "and %lld more",
               (long long)j->all_frames, (long long)j->r->num_frames, (long long)v->chunk[1],
               (long long)v->shared[1]);
    else
        xd_log(XD_LOG_WARN,
               "generating %lld frames, not %lld: a latent frame of this autoencoder, "
               "except the first, is %lld frames",
               (long long)j->all_frames, (long long)j->r->num_frames, (long long)v->cell[0]);
}

/* Sets the number of frames of a video. Latent frames are rounded up to complete patches (diffusers
 * generates the extra frames at the front and drops them). */
static xd_status set_frames(xd_job *j, xd_err *e)
{
    const xd_model    *m = &j->ctx->model;
    const xd_dit_info *d = &m->dit_info;
    int64_t            c = m->vae_info.cell[0], p = d->patch[0], n = j->r->num_frames;
    j->frames = j->all_frames = j->cells[0] = 1;
    if (m->recipe->layers) {
        j->frames = j->all_frames = j->r->layers ? j->r->layers : m->recipe->layers;
        j->cells[0] = j->frames + 1;
        j->spare = 1;
        return XD_OK;
    }
    if (m->recipe->fps <= 0)
        return XD_OK;
    double own = p > 1 && m->recipe->pairs_fps > 0 ? m->recipe->pairs_fps : m->recipe->fps;
    j->fps = j->r->fps > 0 ? j->r->fps : own;
    if (j->role->drives) {
        xd_status s = xd_role_driven_frames(j, &j->cells[0], e);
        j->cells[0] += j->leading, j->spare = j->leading;
        return s;
    }
    int64_t want = wanted_latents(j, n);
    j->all_frames = xd_vae_frames(&m->vae_info, want);
    j->frames = j->all_frames - m->recipe->drops_frames;
    if (j->frames < 1)
        return xd_fail(e, XD_EINVAL,
                       "%lld frames are too few: %s drops the first %d frames; increase "
                       "num_frames to at least %lld",
                       (long long)j->all_frames, m->recipe->name, m->recipe->drops_frames,
                       (long long)(xd_ceil_div(m->recipe->drops_frames, c) * c + 1));
    xd_status s = xd_role_conditions_place(j, e);
    if (s != XD_OK)
        return s;
    j->cells[0] = (want + j->leading + p - 1) / p * p;
    j->spare = j->cells[0] - want;
    if (n && j->all_frames != n)
        warn_frames(j);
    if (d->most[0] && j->cells[0] > d->most[0])
        return xd_fail(e, XD_EINVAL,
                       "%lld frames are too many; the model has positions for at most %lld",
                       (long long)j->frames, (long long)((d->most[0] - j->leading - 1) * c + 1));
    return XD_OK;
}

/* Sets the trained image size that is nearest to the requested size. If the generated image is not
 * resized afterwards, the result also has the trained size. */
static void set_trained_size(xd_job *j)
{
    const xd_recipe *p = j->ctx->model.recipe;
    if (!p->trained_size(j->ctx->model.dit_info.sample[1], &j->size[0], &j->size[1]) || p->resized)
        return;
    if (j->size[0] != j->asked[0] || j->size[1] != j->asked[1])
        xd_log(XD_LOG_INFO,
               "generating %lld x %lld, the trained size nearest to %lld x %lld "
               "(--no_resolution_binning keeps the requested size)",
               (long long)j->size[1], (long long)j->size[0], (long long)j->asked[1],
               (long long)j->asked[0]);
    j->asked[0] = j->size[0], j->asked[1] = j->size[1];
}

/* Sets a size with the requested ratio of sides and `area` pixels, rounded down to complete tokens
 * (diffusers: max_area). */
static void set_area(xd_job *j, int64_t area)
{
    const int *cell = j->ctx->model.vae_info.cell, *patch = j->ctx->model.dit_info.patch;
    double     ratio = (double)j->asked[1] / (double)j->asked[0];
    double     side[2] = { nearbyint(sqrt((double)area / ratio)),
                           nearbyint(sqrt((double)area * ratio)) };
    for (int i = 0; i < 2; i++) {
        int64_t unit = (int64_t)cell[i + 1] * patch[i + 1], n = (int64_t)side[i] / unit;
        j->size[i] = (n > 0 ? n : 1) * unit;
    }
    if (j->size[0] != j->asked[0] || j->size[1] != j->asked[1])
        xd_log(XD_LOG_INFO,
               "generating %lld x %lld, with the ratio of %lld x %lld and the area of "
               "the model (--max_area sets another area)",
               (long long)j->size[1], (long long)j->size[0], (long long)j->asked[1],
               (long long)j->asked[0]);
    j->asked[0] = j->size[0], j->asked[1] = j->size[1];
}

static xd_status set_size(xd_job *j, xd_err *e)
{
    const xd_model    *m = &j->ctx->model;
    const xd_dit_info *d = &m->dit_info;
    const int         *cell = m->vae_info.cell;
    j->asked[0] = j->r->height ? j->r->height : d->sample[1] * cell[1];
    j->asked[1] = j->r->width ? j->r->width : d->sample[2] * cell[2];
    j->size[0] = j->asked[0], j->size[1] = j->asked[1];
    if (!j->r->output.no_resolution_binning && m->recipe->trained_size)
        set_trained_size(j);
    if (m->recipe->max_area)
        set_area(j, j->r->output.max_area ? j->r->output.max_area : m->recipe->max_area);
    xd_status s = set_tiles(j, e);
    if (s == XD_OK)
        s = check_side(j, 2, e);
    if (s == XD_OK)
        s = check_side(j, 1, e);
    for (int i = 1; s == XD_OK && i < 3; i++)
        if (d->most[i] && j->size[i - 1] / cell[i] > d->most[i])
            s = xd_fail(e, XD_EINVAL,
                        "%s %lld is too large; the model has positions for at most %lld pixels",
                        i == 1 ? "height" : "width", (long long)j->size[i - 1],
                        (long long)(d->most[i] * cell[i]));
    if (s != XD_OK)
        return s;
    j->cells[1] = j->size[0] / cell[1];
    j->cells[2] = j->size[1] / cell[2];
    return set_frames(j, e);
}

/* Sets the number of audio tokens, which are as long as the requested frames, or as those of
 * complete clips. */
static xd_status set_audio(xd_job *j, xd_err *e)
{
    const xd_dit_info *d = &j->ctx->model.dit_info;
    int64_t            C = j->ctx->model.recipe->audio_channels;
    int                clips = j->ctx->model.vae_info.chunk[0] > 0;
    int64_t            n = j->r->num_frames && !clips ? j->r->num_frames : j->frames;
    int64_t            sides = d->audio_sides > 1 ? d->audio_sides : 1;
    if (!C || !d->audio)
        return XD_OK;
    if (d->audio % C)
        return xd_fail(e, XD_EFORMAT,
                       "%s: %lld features of an audio token are not those of %lld channels",
                       j->ctx->model.dir, (long long)d->audio, (long long)C);
    j->lay.len[XD_AUDIO] = sides * (int64_t)nearbyint((double)n / j->fps * d->audio_rate);
    j->audio[0] = C, j->audio[1] = j->lay.len[XD_AUDIO], j->audio[2] = d->audio / C;
    j->audio_numbers = j->lay.len[XD_AUDIO] * d->audio;
    return XD_OK;
}

static xd_status set_tokens(xd_job *j, xd_err *e)
{
    const xd_dit_info *d = &j->ctx->model.dit_info;
    const int64_t     *c = j->cells, *s = d->sample;
    if (d->fixed && (c[0] != s[0] || c[1] != s[1] || c[2] != s[2])) {
        const int *cell = j->ctx->model.vae_info.cell;
        return xd_fail(e, XD_EINVAL,
                       "this model supports one size only: %lld frames of %lld x %lld "
                       "pixels",
                       (long long)((s[0] - 1) * cell[0] + 1), (long long)(s[2] * cell[2]),
                       (long long)(s[1] * cell[1]));
    }
    j->lay = (xd_layout){ .npatch = 1, .nsp = 1 };
    j->tokens = 1;
    j->features = d->lat_ch;
    for (int i = 0; i < 3; i++) {
        j->lay.grid[i] = c[i] / d->patch[i];
        j->tokens *= j->lay.grid[i];
        j->features *= d->patch[i];
    }
    j->lay.len[XD_IMG] = j->tokens;
    j->lay.len[XD_PAD] = xd_job_padded(j, j->tokens) - j->tokens;
    j->lay.len[XD_LEAD] = d->lead_rows;
    j->lat[0] = c[0], j->lat[1] = d->lat_ch, j->lat[2] = c[1], j->lat[3] = c[2];
    j->numbers = j->tokens * j->features;
    if (j->role->holds && (xd_job_has_image(j->r) || d->begins))
        j->held = j->lay.grid[1] * j->lay.grid[2];
    xd_status st = set_audio(j, e);
    return st == XD_OK ? xd_role_conditions_frames(j, e) : st;
}

/* Returns the requested strength, or else diffusers' default strength. */
static double strength_of(const xd_job *j)
{
    const xd_recipe *p = j->ctx->model.recipe;
    double           usual = xd_job_has_mask(j->r) ? p->mask_strength : p->strength;
    return j->r->images.strength > 0 ? j->r->images.strength : usual > 0 ? usual : 0.6;
}

/* Returns 1 if the pipeline passes its own sigmas to this scheduler. For some pipelines this
 * depends on use_flow_sigmas, which is read from the config even if the scheduler's class does not
 * have this key. */
static int has_own_sigmas(const xd_job *j, const xd_sched_cfg *c)
{
    int flow = c->use_flow_sigmas;
    if (!xd_sched_has(j->sampler, "use_flow_sigmas"))
        xd_json_bool(xd_json_get(j->ctx->model.sched, "use_flow_sigmas"), &flow);
    switch (j->ctx->model.recipe->own_sigmas) {
    case XD_OWN_NONE: return 0;
    case XD_OWN_BUT_FLOW: return !flow;
    case XD_OWN_BUT_FLOW_TEXT: return !flow || starts_from_image(j);
    default: return 1;
    }
}

static xd_status set_sampler(xd_job *j, xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    xd_sched_cfg    cfg;
    int             steps = j->r->num_inference_steps;
    xd_status       s = xd_job_sampler(j, &cfg, e);
    if (s != XD_OK)
        return xd_model_fail_sched(m, s, e);
    j->usual = xd_model_usual(m, starts_from_image(j), xd_job_has_mask(j->r));
    j->asked_steps = steps ? steps : j->usual.steps;
    xd_steps a = { .steps = j->asked_steps,
                   .tokens = m->recipe->layers ? j->tokens / j->lay.grid[0] : j->tokens,
                   .own_sigmas = has_own_sigmas(j, &cfg),
                   .threshold_noise = m->recipe->threshold_noise,
                   .max_shift = m->recipe->max_shift,
                   .leap = m->recipe->leap,
                   .overwrites = m->recipe->overwrites,
                   .mu = m->usual.mu ? m->usual.mu : m->recipe->mu };
    if (starts_from_image(j) || (j->role->reads_mask && j->r->images.strength > 0))
        a.strength = j->strength = strength_of(j);
    else if (j->r->images.strength > 0 && !j->nconditions)
        return xd_fail(e, XD_EINVAL, "strength %g needs an initial image: add --image",
                       j->r->images.strength);
    if ((a.strength > 0 || xd_role_conditions_blends(j)) && !j->sampler->shares)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s cannot start from an image with the scheduler %s, which cannot add "
                       "noise to an image",
                       m->recipe->name, j->sampler->name);
    double *list;
    s = xd_job_lists(j, &a, &list, e);
    if (s == XD_OK)
        s = xd_upsampling_strength(j, &a, e);
    if (s == XD_OK)
        s = xd_sampling_open(&j->samp, j->sampler, &cfg, &a, e);
    if (s == XD_OK)
        s = xd_job_audio_sampler(j, &a, e);
    if (s == XD_OK)
        s = xd_job_next_times(j, e);
    if (j->segments)
        j->all_steps = j->segments * j->samp.steps;
    free(list);
    return s == XD_OK ? xd_role_sides_scales(j, e) : xd_model_fail_sched(m, s, e);
}

xd_status xd_job_open(xd_job *j, xd_context *ctx, const xd_request *r, xd_err *e)
{
    memset(j, 0, sizeof *j);
    j->ctx = ctx;
    j->r = r;
    if (ctx->model.upsampler.upsampler || xd_job_hires(r))
        return xd_upsampling_open(j, e);
    return xd_job_open_pass(j, e);
}

xd_status xd_job_open_pass(xd_job *j, xd_err *e)
{
    xd_context       *ctx = j->ctx;
    const xd_request *r = j->r;
    j->role = xd_role_of_request(&ctx->model, r);
    j->start_s = xd_now_s();
    if (r->nprompts < 1 || !r->prompts)
        return xd_fail(e, XD_EINVAL, "the request has no prompt");
    xd_status s = xd_request_check(r, e);
    if (s == XD_OK)
        s = check_video(j, e);
    if (s == XD_OK)
        s = xd_role_check(j, e);
    if (s == XD_OK)
        s = xd_mask_check(j, e);
    if (s == XD_OK)
        s = xd_job_check_texts(r, e);
    if (s == XD_OK)
        s = check_prompts(j, e);
    if (s == XD_OK)
        s = check_guidance(j, e);
    if (s == XD_OK)
        s = set_size(j, e);
    if (s == XD_OK)
        s = xd_role_frames_check(j, e);
    if (s == XD_OK)
        s = set_tokens(j, e);
    if (s == XD_OK)
        s = xd_job_window(j, e);
    if (s == XD_OK)
        s = set_sampler(j, e);
    if (s != XD_OK)
        return s;
    j->guidance = r->guidance_scale < 0 ? j->usual.guidance : r->guidance_scale;
    j->distilled = ctx->model.dit_info.guided ? j->guidance : NAN;
    if (ctx->model.recipe->distilled)
        j->guidance = !xd_job_has_text(r, XD_TEXT_NEGATIVE) ? 0
                      : r->guidance.true_cfg_scale > 0      ? r->guidance.true_cfg_scale
                                                            : ctx->model.usual.true_cfg;
    if ((s = xd_job_read_passes(j, e)) != XD_OK || (s = xd_job_read_sizes(j, e)) != XD_OK ||
        (s = xd_job_read_skips(j, e)) != XD_OK || (s = xd_job_boundary(j, e)) != XD_OK ||
        (s = xd_cache_of_job(j, e)) != XD_OK)
        return s;
    if (r->texts.max_sequence_length && xd_prompts_fixed(j))
        return xd_fail(e, XD_EINVAL,
                       "max_sequence_length is %d, but the text encoders of %s always read %lld "
                       "tokens",
                       (int)r->texts.max_sequence_length, ctx->model.recipe->name,
                       (long long)xd_prompts_most_rows(j));
    if (ctx->model.recipe->most_text && r->texts.max_sequence_length > ctx->model.recipe->most_text)
        return xd_fail(e, XD_EINVAL, "max_sequence_length is %d; it must be at most %d for %s",
                       (int)r->texts.max_sequence_length, ctx->model.recipe->most_text,
                       ctx->model.recipe->name);
    j->max_text = r->texts.max_sequence_length ? r->texts.max_sequence_length
                  : xd_prior_images(r)         ? ctx->model.recipe->max_text
                                               : j->usual.max_text;
    if (ctx->model.dit_info.text_most && xd_prompts_most_rows(j) > ctx->model.dit_info.text_most)
        return xd_fail(e, XD_EINVAL,
                       "max_sequence_length is %d, but the transformer of %s has "
                       "positions for %lld text tokens only",
                       j->max_text, ctx->model.recipe->name,
                       (long long)ctx->model.dit_info.text_most);
    if ((int64_t)r->nprompts * r->num_images_per_prompt > 1000000)
        return xd_fail(e, XD_EINVAL,
                       "%lld images in one request are too many; the limit is "
                       "1000000",
                       (long long)r->nprompts * r->num_images_per_prompt);
    j->images = j->ntodo = r->nprompts * r->num_images_per_prompt;
    if ((s = xd_given_noise_check(j, e)) != XD_OK || (s = xd_role_read(j, e)) != XD_OK ||
        (s = xd_job_check_references(j, e)) != XD_OK || (s = xd_fast_attn_of_job(j, e)) != XD_OK)
        return s;
    if (j->size[0] != j->asked[0] || j->size[1] != j->asked[1])
        xd_log(XD_LOG_INFO,
               "generating %lld x %lld, the trained size nearest to %lld x %lld, then "
               "resizing (--no_resolution_binning keeps the requested size)",
               (long long)j->size[1], (long long)j->size[0], (long long)j->asked[1],
               (long long)j->asked[0]);
    return XD_OK;
}

void xd_job_close_inputs(xd_job *j)
{
    xd_given_noise_close(j);
    xd_role_close(j);
    if (j->small)
        xd_job_close_inputs(j->small);
}

void xd_job_close(xd_job *j)
{
    xd_upsampling_close(j);
    xd_sampling_close(&j->samp);
    xd_sampling_close(&j->audio_samp);
    xd_job_close_inputs(j);
    free(j->audio_latents);
    free(j->wave);
    j->audio_latents = j->wave = NULL;
    free(j->todo);
    free(j->changes);
    free(j->hashes);
    free(j->skips);
    free(j->perturbs);
    xd_checkpoint_close(j);
    free(j->hint_scales);
    free(j->next_time);
    xd_fast_attn_close(j);
    j->todo = NULL;
    j->changes = NULL;
    j->hashes = NULL;
    j->skips = j->perturbs = NULL;
    j->hint_scales = NULL;
    j->next_time = NULL;
    j->hint_stride = 0;
}

xd_status xd_job_pick(xd_job *j, xd_err *e)
{
    if (!j->picks)
        return XD_OK;
    uint8_t  *wanted = malloc((size_t)j->images);
    xd_status s = XD_OK;
    j->todo = malloc((size_t)j->images * sizeof *j->todo);
    if (!wanted || !j->todo)
        s = xd_fail(e, XD_ENOMEM, "no memory for a list of %d images", j->images);
    s = xd_world_agree(&j->ctx->world, s, e);
    for (int i = 0; i < j->images && s == XD_OK; i++)
        wanted[i] = j->ctx->world.used->rank ||
                    j->r->callbacks.wanted(j->r->callbacks.cookie, i, j->frames);
    if (s == XD_OK)
        s = xd_world_broadcast(&j->ctx->world, wanted, j->images, e);
    j->ntodo = 0;
    for (int i = 0; i < j->images && s == XD_OK; i++)
        if (wanted[i])
            j->todo[j->ntodo++] = i;
    free(wanted);
    return s;
}

int xd_job_image(const xd_job *j, int k)
{
    return j->todo ? j->todo[k] : k;
}

double xd_job_no_guidance(const xd_job *j)
{
    return j->ctx->model.recipe->guides_from_prompt ? 0 : 1;
}

/* Returns 1 if guidance has ended at this step. With cfg_trunc_ratio, guidance ends after this
 * fraction of the steps. With cfg_truncation, as in diffusers, it ends where the model's time, from
 * 0 (noise) to 1, is above that value. Pipelines without cfg_truncation guide every step, even a
 * step with a time below 0 (xd_timesteps). */
static int cut_off(const xd_job *j, int step)
{
    float time = (1000.0f - (float)j->samp.time[step]) / 1000.0f;
    if ((double)(step + 1) / j->samp.steps > j->r->guidance.cfg_trunc_ratio)
        return 1;
    return j->ctx->model.recipe->guides_from_prompt && (double)time > j->r->guidance.cfg_truncation;
}

int xd_job_passes(const xd_job *j, int step)
{
    if (j->all_passes || j->ctx->model.recipe->audio_guidance > 0)
        return j->all_passes ? j->all_passes : j->npass;
    int alone = j->boundary >= 0 && xd_job_scale(j, step) == xd_job_no_guidance(j);
    return alone || cut_off(j, step) ? 1 : j->npass < 2 ? 1 : 2 + xd_job_has_skips(j, step);
}

int xd_job_usual_passes(const xd_job *j)
{
    int n[XD_MAXPASS + 1] = { 0 }, usual = 1;
    for (int i = 0; i < j->samp.steps; i++)
        n[xd_job_passes(j, i)]++;
    for (int p = 2; p <= XD_MAXPASS; p++)
        usual = n[p] > n[usual] ? p : usual;
    return usual;
}

/* Returns the guidance scale of a step. With diffusers' use_dynamic_cfg, the guidance scale depends
 * on the model's timestep compared with the number of steps. */
double xd_job_guidance(const xd_job *j, int step)
{
    double n = j->samp.steps, scale = xd_job_scale(j, step);
    if (cut_off(j, step))
        return 1;
    if (!j->r->guidance.use_dynamic_cfg)
        return scale + 1 - xd_job_no_guidance(j);
    return 1 + scale * (1 - cos(acos(-1.0) * pow((n - j->samp.time[step]) / n, 5))) / 2;
}

int xd_job_reads_guidance(const xd_job *j)
{
    return j->ctx->model.dit_info.guided && !j->ctx->model.recipe->distilled;
}

const char *xd_job_guide(const xd_job *j)
{
    return j->ctx->model.recipe->distilled ? "true_cfg_scale" : "guidance_scale";
}

int xd_job_state_tensors(const xd_job *j)
{
    return 1 + j->sampler->history(&j->samp.cfg);
}

int64_t xd_job_pixels(const xd_job *j)
{
    return j->frames * j->asked[0] * j->asked[1] * j->channels;
}
