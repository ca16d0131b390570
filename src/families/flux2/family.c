/* family.c - describes the pipelines of FLUX.2 klein and dev */
#define _XOPEN_SOURCE 700       /* for strdup */
#include <math.h>
#include <string.h>

#include "families/family.h"
#include "families/flux2/keys.h"

extern const xd_dit xd_dit_flux2;

enum { LEAST_SIDE = 64, MOST_RATIO = 8, MEGAPIXEL = 1024 * 1024 };

/* Returns the exponent of the dynamic shift of timesteps (diffusers' compute_empirical_mu). For 10
 * steps and for 200 steps, the exponent is a linear function of the number of tokens; for other
 * numbers of steps, it is interpolated between these two functions. For large images the exponent
 * is that for 200 steps, whatever the number of steps. */
static double empirical_mu(int64_t tokens, int steps)
{
    double n = (double)tokens, at200 = 0.00016927 * n + 0.45666666,
           at10 = 8.73809524e-05 * n + 1.89833333, slope = (at200 - at10) / 190;
    return tokens > 4300 ? at200 : slope * steps + (at200 - 200 * slope);
}

/* Scales an image above one megapixel down to one megapixel. Like the pipelines, refuses an image
 * that is too small or much longer in one direction than in the other. */
static xd_status reference_size(int64_t unit, int64_t area, int64_t *height, int64_t *width,
                                xd_err *e)
{
    int64_t h = *height, w = *width;
    (void)unit, (void)area;
    if (h < LEAST_SIDE || w < LEAST_SIDE)
        return xd_fail(e, XD_EINVAL,
                       "an image to read has %lld x %lld pixels; FLUX.2 reads images "
                       "of at least %d x %d",
                       (long long)w, (long long)h, LEAST_SIDE, LEAST_SIDE);
    if (w > MOST_RATIO * h || h > MOST_RATIO * w)
        return xd_fail(e, XD_EINVAL,
                       "an image to read has %lld x %lld pixels; FLUX.2 reads images "
                       "whose sides are at most %d : 1",
                       (long long)w, (long long)h, MOST_RATIO);
    if (w * h > MEGAPIXEL) {
        double shrink = sqrt((double)MEGAPIXEL / (double)(w * h));
        *height = (int64_t)((double)h * shrink);
        *width = (int64_t)((double)w * shrink);
    }
    return XD_OK;
}

#define READS_IMAGES                                                                              \
    .role = XD_ROLE_REFERENCES, .references = 10, .reference_size = reference_size,               \
    .sized_by = XD_SIZED_BY_FIRST

static const int klein_states[] = { 9, 18, 27 };

/* The chat template of Qwen3 with thinking disabled: the answer begins with an empty thought. */
static const char klein_frame[] = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
                                  "<think>\n\n</think>\n\n";

#define KLEIN(pipeline)                                                                           \
    .pipelines = { pipeline }, .dit = "transformer", .vae = "vae",                    \
    .text = { { .folder = "text_encoder", .tokenizer = "tokenizer", .slot = "llm",              \
                .rows = XD_ROWS_BELOW, .pad = XD_PAD_MOST, .masked = 1,    \
                .nlayers = 3, .layers = klein_states, .frame = klein_frame } },                   \
    .ntext = 1, .max_text = 512, .own_sigmas = XD_OWN_BUT_FLOW, .packed = 1,                      \
    .max_shift = 1.15, .mu = empirical_mu

/* This recipe has the text encoders, defaults and rules of diffusers' Flux2KleinPipeline.__call__,
 * except for the number of steps of the distilled models. */
static const xd_recipe klein = {
    .name = "flux2-klein",
    .when = "is_distilled",
    KLEIN("Flux2KleinPipeline"),
    .steps = 4,
    .guidance = 1,
    .distilled = 1,
    READS_IMAGES,
};
static const xd_recipe klein_base = {
    .name = "flux2-klein-base",
    KLEIN("Flux2KleinPipeline"),
    .steps = 50,
    .guidance = 4,
    READS_IMAGES,
};

/* This recipe has the rules of diffusers' Flux2KleinKVPipeline.__call__. */
static const xd_recipe klein_kv = {
    .name = "flux2-klein-kv",
    KLEIN("Flux2KleinKVPipeline"),
    .steps = 4,
    .guidance = 1,
    .distilled = 1,
    READS_IMAGES,
    .keeps_references = 1,
};

static const int dev_states[] = { 10, 20, 30 };

/* The chat template of Mistral Small 3 with the pipeline's system message. */
static const char dev_frame[] =
    "<s>[SYSTEM_PROMPT]You are an AI that reasons about image descriptions. You give structured "
    "responses focusing on object relationships, object\nattribution and actions without "
    "speculation.[/SYSTEM_PROMPT][INST]{}[/INST]";

/* Returns the prompt without every "[IMG]", a placeholder for an image, which the pipeline also
 * removes. */
static char *without_images(const char *text)
{
    static const char mark[] = "[IMG]";
    char             *out = strdup(text);
    for (char *at = out; at && (at = strstr(at, mark));)
        memmove(at, at + sizeof mark - 1, strlen(at + sizeof mark - 1) + 1);
    return out;
}

/* This recipe has the text encoders, defaults and rules of diffusers' Flux2Pipeline.__call__. */
static const xd_recipe dev = {
    .name = "flux2",
    .pipelines = { "Flux2Pipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "llm",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_MOST,
                .masked = 1,
                .left = 1,
                .nlayers = 3,
                .layers = dev_states,
                .frame = dev_frame } },
    .ntext = 1,
    .max_text = 512,
    .own_sigmas = XD_OWN_BUT_FLOW,
    .packed = 1,
    .max_shift = 1.15,
    .mu = empirical_mu,
    .steps = 50,
    .guidance = 4,
    .distilled = 1,
    .caption = without_images,
    READS_IMAGES,
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

static const xd_xdit_model xdit_models[] = {
    { .title = "FLUX.2",
      .scripts = "flux2_example",
      .pipeline = "xFuserFlux2Pipeline",
      .own = "flux2",
      .cell = 16,
      .patch = 1,
      .can = XD_CAN_USP | XD_CAN_PP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_GUIDANCE },
    { .title = "FLUX.2 klein",
      .names = "FLUX.2-klein",
      .pipeline = "Flux2Klein",
      .own = "flux2-klein",
      .cell = 16,
      .patch = 1,
      .steps = "9",
      .side = "2048",
      .can = XD_CAN_USP | XD_CAN_PP | XD_CAN_VAE | XD_CAN_FSDP },
    { .title = "FLUX.2",
      .names = "FLUX.2",
      .pipeline = "Flux2",
      .own = "flux2",
      .cell = 16,
      .patch = 1,
      .steps = "28",
      .guidance = "4",
      .text = "256",
      .can = XD_CAN_USP | XD_CAN_PP | XD_CAN_VAE | XD_CAN_FSDP },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "FLUX.2-klein-9B", 32, 32, 0 },
    { "FLUX.2-klein-4B", 24, 25, 0 },
    { "FLUX.2", 48, 56, 0 },
    { .name = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "FLUX.2-dev", "black-forest-labs/FLUX.2-dev" },
    { "FLUX.2-klein-9B", "black-forest-labs/FLUX.2-klein-9B" },
    { "FLUX.2-klein-4B", "black-forest-labs/FLUX.2-klein-4B" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models,
                                        .nets = xdit_nets,
                                        .names = xdit_names };

extern const xd_family xd_family_flux2;

const xd_family xd_family_flux2 = {
    .title = "FLUX.2",
    .dits = XD_LIST(xd_dit, &xd_dit_flux2),
    .recipes = XD_LIST(xd_recipe, &klein, &klein_base, &klein_kv, &dev),
    .key_maps = xd_flux2_key_maps,
    .lora_names = xd_flux2_lora_names,
    .xdit = &xdit_rows,
    .examples = { .file = "flux-2-klein-4b.safetensors",
                  .hub = "black-forest-labs/FLUX.2-klein-4B",
                  .layers = "2,4" },
};
