/* test_golden.c - whole requests, stage by stage, against what diffusers computes in f32.
 *
 *     test_golden DIR FULL [CASE ...]
 *
 * DIR is tests/golden, FULL the same with the weights that fill makes; each case holds
 * golden.json (the request) and golden.safetensors (the reference, see tools/golden).
 * Everything goes through the public interface. Each stage has its tolerance below: the largest
 * difference as a share of the reference's largest magnitude. Some cases run once more with int8
 * and with fp8 weights in transformer and T5 (CLIP has none), whose tolerances are twice the
 * largest difference that was seen. XDIT_ISA in the environment chooses the kernels;
 * XDIT_BF16=emulate has bf16 computed as bf16 where the processor has no dot products of it, and
 * leaves f32 out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "golden.h"
#include "families/recipe.h"

enum { MAXPROMPT = 8, MAXLORA = 4, MAXSIDE = 2, NDTYPE = 5 };
enum stage {
    IDS,
    IDS_2,
    IDS_3,
    EMBEDS,
    POOLED,
    NEGATIVE,
    NEGATIVE_POOLED,
    NOISE,
    AUDIO_NOISE,
    CONDITION,
    LATENTS,
    UPSAMPLED,
    UPSAMPLED_NOISE,
    AUDIO,
    SOUND,
    IMAGE,
    NSTAGE
};

static const struct {
    const char *name;         /* of xd_request_callbacks.on_tensor */
    double      most[NDTYPE]; /* f32, bf16, int8, fp8, f16 */
} stages[NSTAGE] = {
    [IDS] = { "ids", { 0, 0, 0, 0, 0 } },
    [IDS_2] = { "ids_2", { 0, 0, 0, 0, 0 } },
    [IDS_3] = { "ids_3", { 0, 0, 0, 0, 0 } },
    [EMBEDS] = { "prompt_embeds", { 2e-4, 3e-2, 3e-2, 1e-1, 5e-3 } },
    [POOLED] = { "pooled_prompt_embeds", { 2e-4, 3e-2, 2e-4, 2e-4, 5e-3 } },
    [NEGATIVE_POOLED] = { "negative_pooled_prompt_embeds", { 2e-4, 3e-2, 2e-4, 2e-4, 5e-3 } },
    [NEGATIVE] = { "negative_prompt_embeds", { 2e-4, 3e-2, 3e-2, 1e-1, 5e-3 } },
    [NOISE] = { "noise", { 1e-6, 1e-6, 1e-6, 1e-6, 1e-6 } },
    [AUDIO_NOISE] = { "audio_noise", { 1e-6, 1e-6, 1e-6, 1e-6, 1e-6 } },
    [CONDITION] = { "condition", { 2e-4, 3e-2, 2e-4, 2e-4, 5e-3 } },
    [LATENTS] = { "latents", { 2e-4, 3e-2, 2e-2, 5e-2, 5e-3 } },
    [UPSAMPLED] = { "upsampled", { 2e-4, 3e-2, 2e-2, 5e-2, 5e-3 } },
    [UPSAMPLED_NOISE] = { "upsampled_noise", { 1e-6, 1e-6, 1e-6, 1e-6, 1e-6 } },
    [AUDIO] = { "audio_latents", { 2e-4, 3e-2, 2e-2, 5e-2, 5e-3 } },
    [SOUND] = { "audio", { 3e-5, 3e-2, 2e-2, 5e-2, 5e-3 } },
    [IMAGE] = { "image", { 2e-4, 3e-2, 2e-2, 5e-2, 5e-3 } },
};
static const char *const dtypes[NDTYPE] = { "f32", "bf16", "int8", "fp8", "f16" };
static const int levels[NDTYPE] = { 2, 8, 5, 13, 3 }; /* of the image: 3e-2 of 255 is 7.65 */
/* Of the models that are run so, one of every kind of block: f32 with weights in eight bits. */
static const char *const quantized[] = {
    "alpha",
    "flux",
    "flux2-klein",
    "flux2-base",
    "flux2",
    "sd3",
    "sd35",
    "cog2b",
    "cog15",
    "hunyuan12-one",
    "zimage-lora",
    "lumina2-lora",
    "sana-sprint",
    "wan",
    "wan-i2v",
    "wan22",
    "wan-ti2v",
    "chroma-one",
    "qwen",
    "qwen-edit",
    "auraflow",
    "flux-control",
    "latte",
    "mochi-one",
    "hunyuanvideo",
    "sdxl",
    "sd-lora",
    "sd2",
    "ltx",
    "skyreels-df",
    "sana-video-lora",
    "hunyuanvideo-i2v",
    "hunyuanvideo15-few",
    "krea2-lora",
    "qwen21-five",
};
/* Of those that a device that computes in f16 runs so, too: one of every family, of two of them a
 * small one. */
static const char *const halves[] = { "micro",        "flux-schnell", "alpha",      "sd3",
                                      "cog5b",        "hunyuan",      "chroma-one", "qwen-five",
                                      "auraflow-one", "mochi-five",   "ltx-five",   "krea2-turbo" };
/* Text encoders of so many blocks as published ones, or with a vision tower before their own, of a
 * width that only tests have: what short types lose adds up, and devices round in different
 * places. */
static const char *const deep[] = { "flux2", "qwen-edit", "krea2-turbo" };
/* Not compared in bf16 on a GPU: the autoencoder's random weights amplify rounding. diffusers' own
 * images in bf16 differ from those in f32 by 0.04 to 0.44 of white (six seeds, two images each),
 * which the bound of 8 levels, 0.03, does not allow; with the case's own seed by 0.10. */
static const char *const rough[] = { "sana15" };
/* With windows of attention, which are for devices that share the host's memory. */
static const char *const windowed[] = { "alpha-ways", "sd3-ways", "sd35-ways" };
static const int         steady = 1; /* of a video in f32: frames are within 2e-4 */

static const char *const all[] = { "alpha",
                                   "alpha-ddim",
                                   "alpha-euler",
                                   "alpha-batch",
                                   "alpha-tiles",
                                   "alpha-free",
                                   "alpha-image",
                                   "micro",
                                   "sigma",
                                   "sigma-dpm",
                                   "sigma-image",
                                   "bins",
                                   "demo",
                                   "flux",
                                   "flux-true",
                                   "flux-prompts",
                                   "flux-image",
                                   "flux-mask",
                                   "flux-crop",
                                   "flux-fill",
                                   "flux-fill-image",
                                   "flux-control",
                                   "flux-control-image",
                                   "flux-control-mask",
                                   "flux-schnell",
                                   "flux-cache",
                                   "flux-taylor",
                                   "flux-tea",
                                   "flux-db",
                                   "wan-cache",
                                   "wan-taylor",
                                   "wan-tea",
                                   "cog5b-cache",
                                   "alpha-ways",
                                   "alpha-share",
                                   "sd3-ways",
                                   "sd35-ways",
                                   "chroma",
                                   "chroma-image",
                                   "chroma-one",
                                   "auraflow",
                                   "auraflow-cut",
                                   "auraflow-one",
                                   "auraflow-lora",
                                   "flux2-klein",
                                   "flux2-base",
                                   "flux2-images",
                                   "flux2-kv",
                                   "flux2-lora",
                                   "flux2",
                                   "kontext",
                                   "kontext-true",
                                   "kontext-none",
                                   "kontext-kept",
                                   "sd3",
                                   "sd3-prompts",
                                   "sd3-image",
                                   "sd3-mask",
                                   "sd3-no-t5",
                                   "sd35",
                                   "sd35-skip",
                                   "flux-lora",
                                   "flux-control-lora",
                                   "flux-controlnet",
                                   "flux-controlnet-union",
                                   "flux-controlnet-two",
                                   "flux-controlnet-image",
                                   "flux-controlnet-pixels",
                                   "flux-controlnet-pixels-two",
                                   "flux-controlnet-mask",
                                   "flux-controlnet-pixels-mask",
                                   "flux-redux",
                                   "flux-redux-two",
                                   "sd35-lora",
                                   "chroma-lora",
                                   "flux-dora",
                                   "cog2b",
                                   "cog2b-dynamic",
                                   "cog5b",
                                   "cog5b-batch",
                                   "cog5b-one",
                                   "cog5b-i2v",
                                   "cog15",
                                   "cog15-even",
                                   "cog15-i2v",
                                   "cog15-i2v-even",
                                   "wan",
                                   "wan-one",
                                   "wan-five",
                                   "wan-lora",
                                   "wan-i2v",
                                   "wan-i2v-two",
                                   "wan-i2v-one",
                                   "wan-i2v-lora",
                                   "wan-flf",
                                   "wan-i2v-blind",
                                   "wan22",
                                   "wan22-two",
                                   "wan22-one",
                                   "wan22-low",
                                   "wan22-lora",
                                   "wan22-i2v",
                                   "wan-ti2v",
                                   "wan-ti2v-text",
                                   "ltx",
                                   "ltx-one",
                                   "ltx-i2v",
                                   "ltx-timed",
                                   "ltx-five",
                                   "ltx-lora",
                                   "ltx-cond",
                                   "ltx-cond-late",
                                   "ltx-cond-text",
                                   "ltx-up",
                                   "ltx-up-few",
                                   "ltx-up-once",
                                   "ltx2",
                                   "ltx2-five",
                                   "ltx23",
                                   "ltx23-i2v",
                                   "ltx2-cond",
                                   "ltx23-last",
                                   "ltx2-up",
                                   "ltx2-up-cond",
                                   "minimaxh3",
                                   "minimaxh3-five",
                                   "mochi",
                                   "mochi-one",
                                   "mochi-five",
                                   "mochi-lora",
                                   "vace",
                                   "vace-text",
                                   "vace-images",
                                   "vace-lora",
                                   "vace-five",
                                   "animate",
                                   "animate-one",
                                   "animate-five",
                                   "animate-lora",
                                   "skyreels",
                                   "skyreels-df",
                                   "skyreels-df-lora",
                                   "skyreels-i2v",
                                   "sana-video",
                                   "sana-video-five",
                                   "sana-video-720",
                                   "sana-video-i2v",
                                   "sana-video-still",
                                   "sana-video-lora",
                                   "latte",
                                   "latte-one",
                                   "latte-dpm",
                                   "hunyuanvideo",
                                   "hunyuanvideo-one",
                                   "hunyuanvideo-tiles",
                                   "hunyuanvideo-window",
                                   "hunyuanvideo-lora",
                                   "hunyuanvideo-five",
                                   "hunyuanvideo-i2v",
                                   "hunyuanvideo-i2v-cut",
                                   "hunyuanvideo-i2v-lora",
                                   "hunyuanvideo-i2v-33ch",
                                   "hunyuanvideo15",
                                   "hunyuanvideo15-one",
                                   "hunyuanvideo15-five",
                                   "hunyuanvideo15-i2v",
                                   "hunyuanvideo15-few",
                                   "hunyuanvideo15-lora",
                                   "cog5b-tiles",
                                   "cog15-i2v-tiles",
                                   "hunyuan",
                                   "hunyuan12",
                                   "hunyuan12-one",
                                   "hunyuan12-rescale",
                                   "hunyuan-image",
                                   "hunyuan-control",
                                   "hunyuan-control-two",
                                   "hunyuan-control-image",
                                   "sd3-control",
                                   "sd3-control-single",
                                   "sd3-control-two",
                                   "zimage-control",
                                   "zimage-control-hints",
                                   "zimage-control-repeats",
                                   "zimage-control-two",
                                   "zimage-control-fill",
                                   "qwen-control",
                                   "qwen-control-two",
                                   "qwen-control-mask",
                                   "sana-control",
                                   "sana-control-more",
                                   "zimage",
                                   "zimage-cut",
                                   "zimage-image",
                                   "zimage-mask",
                                   "zimage-lora",
                                   "zimage-five",
                                   "lumina2",
                                   "lumina2-cut",
                                   "lumina2-lora",
                                   "lumina2-five",
                                   "krea2",
                                   "krea2-cut",
                                   "krea2-image",
                                   "krea2-lora",
                                   "krea2-turbo",
                                   "sana",
                                   "sana15",
                                   "sana-tiles",
                                   "sana-window",
                                   "sana-lora",
                                   "sana-sprint",
                                   "sana-sprint-4",
                                   "sdxl",
                                   "sdxl-zeros",
                                   "sdxl-turbo",
                                   "sdxl-one",
                                   "sdxl-image",
                                   "sdxl-mask",
                                   "sdxl-lora",
                                   "sdxl-lcm",
                                   "sd",
                                   "sd-image",
                                   "sd-mask",
                                   "sd-lora",
                                   "sd2",
                                   "sdxl-sizes",
                                   "sdxl-sizes-image",
                                   "qwen21",
                                   "qwen21-five",
                                   "qwen21-lora",
                                   "qwen21-edit",
                                   "qwen21-edit-one",
                                   "qwen",
                                   "qwen-five",
                                   "qwen-image",
                                   "qwen-mask",
                                   "qwen-edit",
                                   "qwen-edit-plus",
                                   "qwen-edit-last",
                                   "qwen-edit-one",
                                   "qwen-edit-lora",
                                   "qwen-edit-mask",
                                   "qwen-layered",
                                   "qwen-layered-one",
                                   "qwen-layered-norm" };

typedef struct run {
    xd_st      *st;
    xd_json    *js;
    int         steps, images, prompts;
    int         shape[4];        /* of a video: frames, rows, columns, and of how many numbers of a
                                   image one is kept; 0: an image, of which all are */
    char        pixels[1024];    /* what the run starts from */
    char        second[1024];    /* the image behind it, of models that read several */
    char        last[1024];      /* what a video ends with */
    char        mask[1024];      /* what is inpainted of it */
    char        control[1024];   /* what the transformer reads beside the noise */
    char        control_2[1024]; /* what the second control network reads */
    char        video[1024];     /* the control video's folder */
    char        masks[1024];     /* the folder of its mask */
    char        pose[1024], face[1024]; /* folders of videos that drive a character */
    char        ways[1024];             /* of attention: a list, or a table's file */
    char        redux[2][1024];         /* what a prior reads */
    const char *more[1], *more_control[1], *more_redux[1];
    int         image; /* which image the loop is at; -1 before the first */
    double      worst[NSTAGE];
    int         seen[NSTAGE];
} run;

static int stage_of(const char *name)
{
    for (int i = 0; i < NSTAGE; i++)
        if (strcmp(stages[i].name, name) == 0)
            return i;
    return -1;
}

static int has(const run *r, const char *fmt, ...) XD_PRINTF(2, 3);

static int has(const run *r, const char *fmt, ...)
{
    char    name[64];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    return xd_st_find(r->st, name) >= 0;
}

/* The reference of an event; v is NULL when the file keeps none (texts after the first, the
 * float image of images after the first). */
static ref reference(const run *r, int stage, int step)
{
    ref         none = { 0 };
    const char *name = stages[stage].name;
    switch (stage) {
    case IDS:
    case IDS_2:
    case IDS_3:
        return step == 0 ? ref_get(r->st, "%s", name)
               : step == r->prompts && has(r, "negative_%s", name)
                   ? ref_get(r->st, "negative_%s", name)
                   : none;
    case EMBEDS:
    case POOLED: return step == 0 ? ref_get(r->st, "%s", name) : none;
    case NEGATIVE:
    case NEGATIVE_POOLED: return ref_get(r->st, "%s", name);
    case NOISE:   /* of a run that starts from an image there is none */
        if (step) /* a later segment of a video */
            return ref_get(r->st, "noise.%d.%d", r->image, step);
        return has(r, "noise.%d", r->image) ? ref_get(r->st, "noise.%d", r->image) : none;
    case UPSAMPLED:
    case UPSAMPLED_NOISE: return ref_get(r->st, "%s.%d", name, r->image);
    case AUDIO_NOISE: return ref_get(r->st, "%s.%d", name, r->image);
    case AUDIO: return ref_get(r->st, "%s.%d.%d", name, r->image, step);
    case SOUND: return ref_get(r->st, "%s.%d", name, step);
    case CONDITION:
        return r->image ? none
               : step   ? ref_get(r->st, "%s.%d", name, step)
                        : ref_get(r->st, "%s", name);
    case LATENTS: return ref_get(r->st, "latents.%d.%d", r->image, step);
    default: return ref_get(r->st, "image.%d", r->image);
    }
}

/* Of the numbers of a video those that the reference keeps (malloc'ed); NULL: it has another
 * shape. */
static float *kept(const run *r, const float *v, int nd, const int64_t *d)
{
    const int *s = r->shape;
    if (nd != 4 || d[0] != s[0] || d[1] != s[1] || d[2] != s[2] || d[3] != 3)
        return NULL;
    int64_t n = d[0] * d[1] * d[2] * d[3], k = 0;
    float  *out = malloc((size_t)n * sizeof *out);
    for (int64_t i = 0; out && i < n; i += s[3])
        out[k++] = v[i];
    return out;
}

static double apart(const run *r, int stage, const float *data, int nd, const int64_t *d,
                    const ref *want)
{
    if (stage != IMAGE || !r->shape[3])
        return ref_apart(data, nd, d, want);
    float *some = kept(r, data, nd, d);
    double gap = some ? ref_apart(some, 1, &want->n, want) : INFINITY;
    free(some);
    return gap;
}

static void listen(void *cookie, const char *name, int step, int nd, const int64_t *d,
                   const float *data)
{
    run *r = cookie;
    int  stage = stage_of(name);
    if (stage < 0)
        return;
    r->image += stage == NOISE && step == 0;
    ref want = reference(r, stage, step);
    if (want.v) {
        r->worst[stage] = fmax(r->worst[stage], apart(r, stage, data, nd, d, &want));
        r->seen[stage]++;
    }
    ref_free(&want);
}

/* How many segments of a video follow the first one. */
static int segments_of(const run *r, const char *name)
{
    int n = 0;
    while (has(r, "%s.%d", name, n + 1))
        n++;
    return n;
}

/* How many comparisons of a stage a whole run makes. */
static int expected(const run *r, int stage)
{
    const char *name = stages[stage].name;
    switch (stage) {
    case NOISE: return has(r, "noise.0") ? r->images + segments_of(r, "noise.0") : 0;
    case LATENTS: return r->images * r->steps;
    case UPSAMPLED:
    case UPSAMPLED_NOISE: return has(r, "%s.0", name) ? r->images : 0;
    case AUDIO_NOISE: return has(r, "audio_noise.0") ? r->images : 0;
    case AUDIO: return has(r, "audio_noise.0") ? r->images * r->steps : 0;
    case SOUND: return has(r, "audio.0") ? r->images : 0;
    case IMAGE: return has(r, "image.0");
    case IDS:
    case IDS_2:
    case IDS_3: return has(r, "%s", name) + has(r, "negative_%s", name);
    case CONDITION: return has(r, "%s", name) + segments_of(r, name);
    default: return has(r, "%s", name);
    }
}

/* What is told of an image is what was asked for: with it the image can be generated again. */
static void check_told(const run *r, const xd_result *out, const char *name)
{
    static const char *const same[][2] = { { "num_inference_steps", "steps" },
                                           { "guidance_scale", "guidance_scale" },
                                           { "max_sequence_length", "max_sequence_length" },
                                           { "true_cfg_scale", "true_cfg_scale" },
                                           { "strength", "strength" },
                                           { "guidance_scale_2", "guidance_scale_2" },
                                           { "boundary_ratio", "boundary_ratio" },
                                           { "fps", "fps" },
                                           { "guidance_rescale", "guidance_rescale" },
                                           { "decode_timestep", "decode_timestep" },
                                           { "decode_noise_scale", "decode_noise_scale" },
                                           { "cfg_normalization", "cfg_normalization" },
                                           { "denoise_strength", "denoise_strength" },
                                           { "adain_factor", "adain_factor" } };
    xd_json                 *j = NULL;
    xd_err                   e = { 0 };
    const char              *text = xd_result_json(out, 0);
    must(xd_json_parse(&j, text, strlen(text), "the image's JSON", &e), &e, "parameters");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        double asked = js_maybe(r->js, same[i][0]), told = js_maybe(j, same[i][1]);
        if (asked != 0 && asked != told) /* 0: the default */
            tap(0, "%s: %s of %g is told as %g", name, same[i][0], asked, told);
    }
    xd_json_free(&j);
}

/* What of the work of a step is left out. */
static void ask_less(const run *r, xd_request *q)
{
    q->savings.cache = xd_json_get(r->js, "cache") ? js_text(r->js, "cache") : NULL;
    if (xd_json_get(r->js, "reference_interval"))
        q->savings.reference_interval = (int64_t)js_num(r->js, "reference_interval");
    q->savings.fast_attn = xd_json_get(r->js, "fast_attn") ? r->ways : NULL;
    if (xd_json_get(r->js, "attention_window"))
        q->savings.attention_window = js_text(r->js, "attention_window");
}

static const char *js_maybe_text(const xd_json *j, const char *name)
{
    return xd_json_get(j, name) ? js_text(j, name) : NULL;
}

/* The layers of the third pass. */
static void ask_skips(const run *r, xd_request *q, char *layers, size_t size)
{
    const xd_json *list = xd_json_get(r->js, "skip_guidance_layers");
    size_t         n = 0;
    double         v;
    if (!list)
        return;
    for (const xd_json *i = xd_json_first(list); i; i = xd_json_next(i))
        if (xd_json_number(i, &v))
            n += (size_t)snprintf(layers + n, size - n, "%s%.0f", n ? "," : "", v);
    q->guidance.skip_guidance_layers = layers;
    q->guidance.skip_layer_guidance_scale = js_num(r->js, "skip_layer_guidance_scale");
    q->guidance.skip_layer_guidance_start = js_num(r->js, "skip_layer_guidance_start");
    q->guidance.skip_layer_guidance_stop = js_num(r->js, "skip_layer_guidance_stop");
}

/* The sizes that the transformer reads. */
static void ask_sizes(const run *r, xd_request *q)
{
    xd_request_sizes *z = &q->sizes;
    z->original_size = js_maybe_text(r->js, "original_size");
    z->crops_coords_top_left = js_maybe_text(r->js, "crops_coords_top_left");
    z->target_size = js_maybe_text(r->js, "target_size");
    z->negative_original_size = js_maybe_text(r->js, "negative_original_size");
    z->negative_crops_coords_top_left = js_maybe_text(r->js, "negative_crops_coords_top_left");
    z->negative_target_size = js_maybe_text(r->js, "negative_target_size");
}

static void ask_upsampling(const run *r, xd_request *q)
{
    xd_request_upsampling *u = &q->upsampling;
    if (xd_json_get(r->js, "denoise_strength"))
        u->denoise_strength = js_num(r->js, "denoise_strength");
    u->adain_factor = js_maybe(r->js, "adain_factor");
    u->tone_map_compression_ratio = js_maybe(r->js, "tone_map_compression_ratio");
    u->num_inference_steps = (int64_t)js_maybe(r->js, "upsampled_num_inference_steps");
    u->timesteps = js_maybe_text(r->js, "upsampled_timesteps");
    u->sigmas = js_maybe_text(r->js, "upsampled_sigmas");
}

static void ask_control(const run *r, xd_request *q)
{
    q->images.control_image = xd_json_get(r->js, "control") ? r->control : NULL;
    q->images.more_control_images = r->more_control;
    q->images.nmore_control_images = js_maybe(r->js, "control") > 1;
    q->images.control_guidance_start = js_maybe_text(r->js, "control_guidance_start");
    q->images.control_guidance_end = js_maybe_text(r->js, "control_guidance_end");
    q->images.control_mode = js_maybe_text(r->js, "control_mode");
    q->images.control_video = xd_json_get(r->js, "control_video") ? r->video : NULL;
    q->images.conditioning_scale = js_maybe_text(r->js, "conditioning_scale");
    q->driving.pose_video = xd_json_get(r->js, "pose_video") ? r->pose : NULL;
    q->driving.face_video = xd_json_get(r->js, "face_video") ? r->face : NULL;
    q->driving.segment_frame_length = (int)js_maybe(r->js, "segment_frame_length");
    q->driving.prev_segment_conditioning_frames =
        (int)js_maybe(r->js, "prev_segment_conditioning_frames");
}

static void ask_redux(const run *r, xd_request *q)
{
    q->redux.image = xd_json_get(r->js, "redux") ? r->redux[0] : NULL;
    q->redux.more_images = r->more_redux;
    q->redux.nmore_images = js_maybe(r->js, "redux_images") > 1;
    q->redux.prompt_embeds_scale = js_maybe_text(r->js, "prompt_embeds_scale");
    q->redux.pooled_prompt_embeds_scale = js_maybe_text(r->js, "pooled_prompt_embeds_scale");
}

/* Guidance of a video and its audio. */
static void ask_audio(const run *r, xd_request *q)
{
    xd_request_audio *a = &q->audio;
    const struct {
        const char *key;
        double     *to;
    } given[] = { { "audio_guidance_scale", &a->audio_guidance_scale },
                  { "audio_guidance_rescale", &a->audio_guidance_rescale },
                  { "modality_scale", &a->modality_scale },
                  { "audio_modality_scale", &a->audio_modality_scale },
                  { "stg_scale", &a->stg_scale },
                  { "audio_stg_scale", &a->audio_stg_scale } };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (xd_json_get(r->js, given[i].key))
            *given[i].to = js_num(r->js, given[i].key);
    a->spatio_temporal_guidance_blocks = js_maybe_text(r->js, "spatio_temporal_guidance_blocks");
}

static void ask_texts(const run *r, xd_request *q)
{
    q->texts.prompt_2 = js_maybe_text(r->js, "prompt_2");
    q->texts.prompt_3 = js_maybe_text(r->js, "prompt_3");
    q->texts.negative_prompt_2 = js_maybe_text(r->js, "negative_prompt_2");
    q->texts.negative_prompt_3 = js_maybe_text(r->js, "negative_prompt_3");
    q->texts.system_prompt = js_maybe_text(r->js, "system_prompt");
    q->texts.prompt_weighting = js_maybe(r->js, "prompt_weighting") > 0;
}

static void ask(const run *r, xd_request *q, const char **prompts)
{
    const xd_json *list = js_list(r->js, "prompts");
    xd_request_init(q);
    for (int i = 0; i < r->prompts; i++)
        prompts[i] = xd_json_text(xd_json_at(list, i));
    q->prompts = prompts;
    q->nprompts = r->prompts;
    q->negative_prompt = js_maybe_text(r->js, "negative_prompt");
    ask_texts(r, q);
    q->width = (int64_t)js_num(r->js, "width");
    q->height = (int64_t)js_num(r->js, "height");
    q->num_inference_steps = (int)js_num(r->js, "num_inference_steps");
    q->guidance_scale = js_num(r->js, "guidance_scale");
    if (xd_json_get(r->js, "guidance_scale_2"))
        q->guidance.guidance_scale_2 = js_num(r->js, "guidance_scale_2");
    if (xd_json_get(r->js, "boundary_ratio"))
        q->guidance.boundary_ratio = js_num(r->js, "boundary_ratio");
    q->fps = js_maybe(r->js, "fps");
    if (xd_json_get(r->js, "guidance_rescale"))
        q->guidance.guidance_rescale = js_num(r->js, "guidance_rescale");
    ask_audio(r, q);
    if (xd_json_get(r->js, "cfg_normalization"))
        q->guidance.cfg_normalization = js_num(r->js, "cfg_normalization");
    if (xd_json_get(r->js, "cfg_trunc_ratio"))
        q->guidance.cfg_trunc_ratio = js_num(r->js, "cfg_trunc_ratio");
    if (xd_json_get(r->js, "intermediate_timesteps"))
        q->schedule.intermediate_timesteps = js_num(r->js, "intermediate_timesteps");
    if (xd_json_get(r->js, "cfg_truncation"))
        q->guidance.cfg_truncation = js_num(r->js, "cfg_truncation");
    q->guidance.true_cfg_scale = js_maybe(r->js, "true_cfg_scale");
    q->images.strength = js_maybe(r->js, "strength");
    q->images.more_images = r->more;
    q->images.nmore_images = (int64_t)js_maybe(r->js, "more_images");
    q->output.max_area = (int64_t)js_maybe(r->js, "max_area");
    q->layers = (int64_t)js_maybe(r->js, "layers");
    q->images.no_auto_resize = js_maybe(r->js, "no_auto_resize") > 0;
    q->images.image = q->images.strength > 0 || js_maybe(r->js, "image") > 0 ? r->pixels : NULL;
    q->images.last_image = js_maybe(r->js, "last_image") > 0 ? r->last : NULL;
    q->images.mask_image = xd_json_get(r->js, "mask") ? r->mask : NULL;
    ask_control(r, q);
    ask_redux(r, q);
    if (xd_json_get(r->js, "mask_video"))
        q->images.mask_image = r->masks;
    q->images.frame_index = js_maybe_text(r->js, "frame_index");
    q->images.condition_strength = js_maybe_text(r->js, "condition_strength");
    if (xd_json_get(r->js, "image_cond_noise_scale"))
        q->images.image_cond_noise_scale = js_num(r->js, "image_cond_noise_scale");
    q->schedule.timesteps = js_maybe_text(r->js, "timesteps");
    if (xd_json_get(r->js, "padding_mask_crop"))
        q->images.padding_mask_crop = (int64_t)js_num(r->js, "padding_mask_crop");
    q->num_frames = (int)js_maybe(r->js, "num_frames");
    q->fps = js_maybe(r->js, "fps");
    if (xd_json_get(r->js, "decode_timestep"))
        q->decoding.decode_timestep = js_num(r->js, "decode_timestep");
    if (xd_json_get(r->js, "decode_noise_scale"))
        q->decoding.decode_noise_scale = js_num(r->js, "decode_noise_scale");
    q->guidance.use_dynamic_cfg = (int)js_maybe(r->js, "use_dynamic_cfg");
    q->seed = (int64_t)js_num(r->js, "seed");
    q->num_images_per_prompt = (int)js_num(r->js, "num_images_per_prompt");
    q->texts.max_sequence_length = (int)js_num(r->js, "max_sequence_length");
    q->schedule.scheduler = js_text(r->js, "scheduler");
    ask_less(r, q);
    ask_sizes(r, q);
    ask_upsampling(r, q);
    q->noise.rng = "torch";
    q->output.enable_tiling = js_flag(r->js, "tiling");
    if (xd_json_get(r->js, "vae_tile_size_height")) {
        q->output.vae_tile_size_height = (int64_t)js_num(r->js, "vae_tile_size_height");
        q->output.vae_tile_size_width = (int64_t)js_num(r->js, "vae_tile_size_width");
        q->output.vae_tile_overlap_height = (int64_t)js_num(r->js, "vae_tile_overlap_height");
        q->output.vae_tile_overlap_width = (int64_t)js_num(r->js, "vae_tile_overlap_width");
    }
    q->output.no_resolution_binning = !js_flag(r->js, "resolution_binning");
    q->callbacks.on_tensor = listen;
}

/* The request's fast_attn: a file lies in the case's folder. */
static void find_ways(run *r, const char *dir, const char *name)
{
    const char *text = xd_json_get(r->js, "fast_attn") ? js_text(r->js, "fast_attn") : "";
    if (strstr(text, ".json"))
        snprintf(r->ways, sizeof r->ways, "%s/%s/%s", dir, name, text);
    else
        snprintf(r->ways, sizeof r->ways, "%s", text);
}

static void open_run(run *r, const char *dir, const char *name)
{
    char   path[1024];
    xd_err e = { 0 };
    memset(r, 0, sizeof *r);
    snprintf(path, sizeof path, "%s/%s/golden.json", dir, name);
    r->js = js_open(path);
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", dir, name);
    must(xd_st_open(&r->st, path, "golden", &e), &e, path);
    snprintf(r->pixels, sizeof r->pixels, "%s/%s/image.png", dir, name);
    snprintf(r->second, sizeof r->second, "%s/%s/image_2.png", dir, name);
    snprintf(r->last, sizeof r->last, "%s/%s/last.png", dir, name);
    snprintf(r->mask, sizeof r->mask, "%s/%s/mask.png", dir, name);
    snprintf(r->control, sizeof r->control, "%s/%s/control.png", dir, name);
    snprintf(r->video, sizeof r->video, "%s/%s/video", dir, name);
    snprintf(r->masks, sizeof r->masks, "%s/%s/mask", dir, name);
    snprintf(r->pose, sizeof r->pose, "%s/%s/pose", dir, name);
    snprintf(r->face, sizeof r->face, "%s/%s/face", dir, name);
    snprintf(r->control_2, sizeof r->control_2, "%s/%s/control_2.png", dir, name);
    r->more[0] = xd_json_get(r->js, "clip") ? r->video : r->second;
    r->more_control[0] = r->control_2;
    snprintf(r->redux[0], sizeof r->redux[0], "%s/%s/redux.png", dir, name);
    snprintf(r->redux[1], sizeof r->redux[1], "%s/%s/redux_2.png", dir, name);
    r->more_redux[0] = r->redux[1];
    find_ways(r, dir, name);
    while (has(r, "latents.0.%d", r->steps))
        r->steps++;
    ref shape = ref_get(r->st, "frames");
    for (int i = 0; shape.v && i < 4; i++)
        r->shape[i] = (int)shape.v[i];
    ref_free(&shape);
    r->images = (int)js_num(r->js, "images");
    r->prompts = xd_json_size(js_list(r->js, "prompts"));
    r->image = -1;
    if (r->prompts > MAXPROMPT) {
        printf("Bail out! %s has more than %d prompts\n", name, MAXPROMPT);
        exit(1);
    }
}

static void close_run(run *r)
{
    xd_st_close(&r->st);
    xd_json_free(&r->js);
}

static int is_listed(const char *name, const char *const *list, size_t n)
{
    while (n && strcmp(name, list[n - 1]) != 0)
        n--;
    return n > 0;
}

static double most_of(const char *name, int stage, int dtype)
{
    int eight = strcmp(dtypes[dtype], "int8") == 0 || strcmp(dtypes[dtype], "fp8") == 0;
    int adds_up = (stage == EMBEDS || stage == NEGATIVE) &&
                  is_listed(name, deep, sizeof deep / sizeof *deep);
    int half = strcmp(dtypes[dtype], "bf16") == 0;
    return stages[stage].most[dtype] * (!adds_up ? 1 : eight ? 2.5 : half ? 1.5 : 1);
}

static void check_stages(const run *r, const char *name, int dtype)
{
    for (int s = 0; s < NSTAGE; s++) {
        int    want = expected(r, s);
        double most = most_of(name, s, dtype);
        if (want || r->seen[s])
            tap(r->seen[s] == want && r->worst[s] <= most,
                "%s %s %s: %.1e of at most %.1e (%d of %d compared)", name, dtypes[dtype],
                stages[s].name, r->worst[s], most, r->seen[s], want);
    }
}

static int video_apart(const run *r, const xd_image *m, const ref *want)
{
    const int *s = r->shape;
    int        worst = 0;
    if (!want->v || m->frames != s[0] || m->height != s[1] || m->width != s[2] || !(m->fps > 0))
        return 256;
    for (int64_t i = 0; i < want->n; i++) {
        int gap = abs((int)m->data[i * s[3]] - (int)want->v[i]);
        worst = gap > worst ? gap : worst;
    }
    return worst;
}

/* The largest gap of an image, or of the frames of a result that is no video. */
static int image_apart(const xd_image *m, const ref *want)
{
    const int64_t is[4] = { m->frames, m->height, m->width, m->channels };
    int           worst = 0, skip = m->frames == 1;
    if (!want->v || want->nd != 4 - skip ||
        memcmp(want->d, is + skip, (size_t)(4 - skip) * sizeof *is) != 0)
        return 256;
    for (int64_t i = 0; i < want->n; i++) {
        int gap = abs((int)m->data[i] - (int)want->v[i]);
        worst = gap > worst ? gap : worst;
    }
    return worst;
}

static void check_images(const run *r, const xd_result *out, const char *name, int dtype)
{
    int worst = 0, most = r->shape[3] && dtype == 0 ? steady : levels[dtype];
    for (int i = 0; i < xd_result_count(out); i++) {
        const xd_image *m = xd_result_image(out, i);
        ref             want = ref_get(r->st, "pixels.%d", i);
        int gap = !m ? 256 : r->shape[3] ? video_apart(r, m, &want) : image_apart(m, &want);
        worst = gap > worst ? gap : worst;
        ref_free(&want);
    }
    tap(xd_result_count(out) == r->images && worst <= most,
        "%s %s image: %d of at most %d levels (%d of %d images)", name, dtypes[dtype], worst, most,
        xd_result_count(out), r->images);
}

/* The LoRA files of a case, which lie in its folder; how many there are. */
static int take_loras(const run *r, const char *key, const char *dir, const char *name, xd_lora *l,
                      char (*path)[2048])
{
    const xd_json *list = xd_json_get(r->js, key);
    int            n = 0;
    for (; n < xd_json_size(list) && n < MAXLORA; n++) {
        const xd_json *v = xd_json_at(list, n);
        snprintf(path[n], sizeof *path, "%s/%s/%s", dir, name, js_text(v, "path"));
        l[n] = (xd_lora){ path[n], js_num(v, "scale") };
    }
    return n;
}

/* Adds a network that is a folder of the model, if the case names one. */
static void take_folder(const run *r, const char *key, xd_open_args *a, const char *model,
                        xd_component_file *side, char (*path)[2200])
{
    if (!xd_json_get(r->js, key) || a->nfiles == MAXSIDE)
        return;
    snprintf(path[a->nfiles], sizeof *path, "%s/%s", model, js_text(r->js, key));
    side[a->nfiles] = (xd_component_file){ key, path[a->nfiles] };
    a->nfiles++;
}

/* The latent upsampler, the control networks and the prior of a case. */
static void take_sides(const run *r, xd_open_args *a, const char *model, xd_component_file *side,
                       char (*path)[2200])
{
    const xd_json *list = xd_json_get(r->js, "controlnets");
    a->files = side;
    for (; a->nfiles < xd_json_size(list) && a->nfiles < MAXSIDE; a->nfiles++) {
        snprintf(path[a->nfiles], sizeof *path, "%s/%s", model,
                 xd_json_text(xd_json_at(list, a->nfiles)));
        side[a->nfiles] = (xd_component_file){ "controlnet", path[a->nfiles] };
    }
    take_folder(r, "latent_upsampler", a, model, side, path);
    take_folder(r, "redux", a, model, side, path);
}

static void check(const char *dir, const char *full, const char *name, int dtype)
{
    xd_component_file sides[MAXSIDE];
    char              folders[MAXSIDE][2200];
    xd_lora           loras[MAXLORA], loras_2[MAXLORA];
    char              paths[MAXLORA][2048], paths_2[MAXLORA][2048];
    run               r;
    xd_err            e = { 0 };
    xd_engine        *g = NULL;
    xd_result        *out = NULL;
    xd_request        q;
    const char       *prompts[MAXPROMPT];
    char              model[2048], layers[64] = "";
    open_run(&r, dir, name);
    snprintf(model, sizeof model, "%s/%s/%s", xd_json_get(r.js, "weights") ? full : dir, name,
             js_text(r.js, "model"));
    const char  *kept = dtype == 2 || dtype == 3 ? dtypes[dtype] : NULL;
    xd_open_args a = { .size = sizeof a,
                       .model = model,
                       .dtype = dtypes[kept ? 0 : dtype],
                       .weights_dtype = kept,
                       .text_weights_dtype = kept,
                       .device = "cpu",
                       .threads = 2,
                       .without = js_maybe(r.js, "no_t5") > 0 ? "t5xxl" : NULL,
                       .loras = loras,
                       .loras_2 = loras_2 };
    take_sides(&r, &a, model, sides, folders);
    a.nloras = take_loras(&r, "loras", dir, name, loras, paths);
    a.nloras_2 = take_loras(&r, "loras_2", dir, name, loras_2, paths_2);
    xd_status s = xd_open(&g, &a, &e);
    if (s == XD_OK) {
        ask(&r, &q, prompts);
        ask_skips(&r, &q, layers, sizeof layers);
        q.callbacks.cookie = &r;
        s = xd_generate(g, &q, &out, &e);
    }
    tap(s == XD_OK, "%s %s runs%s%s", name, dtypes[dtype], s == XD_OK ? "" : ": ", e.msg);
    if (s == XD_OK) {
        tap_dtype(out, a.dtype);
        check_told(&r, out, name);
        check_stages(&r, name, dtype);
        check_images(&r, out, name, dtype);
        if (kept)
            tap(r.worst[LATENTS] > 5e-4, "%s %s: weights are quantized", name, kept);
    }
    xd_result_free(&out);
    xd_close(&g);
    close_run(&r);
}

/* The sizes that classify_height_width_bin of diffusers takes: binning.json has rows of
 * [sample_size, width, height, binned width, binned height]. */
static void check_bins(const char *dir)
{
    char             path[1024];
    int              same = 0, rows = 0;
    const xd_recipe *r = xd_recipe_find("PixArtSigmaPipeline", NULL);
    snprintf(path, sizeof path, "%s/binning.json", dir);
    xd_json *j = js_open(path);
    for (const xd_json *row = xd_json_first(j); row; row = xd_json_next(row), rows++) {
        double v[5] = { 0 };
        for (int i = 0; i < 5; i++)
            xd_json_number(xd_json_at(row, i), &v[i]);
        int64_t w = (int64_t)v[1], h = (int64_t)v[2];
        int     known = r->trained_size((int64_t)v[0], &h, &w);
        if (known && w == (int64_t)v[3] && h == (int64_t)v[4])
            same++;
        else
            tap_note("%.0f: %.0fx%.0f becomes %lldx%lld, not %.0fx%.0f", v[0], v[1], v[2],
                     (long long)w, (long long)h, v[3], v[4]);
    }
    tap(rows > 100 && same == rows, "binning: %d of %d sizes as diffusers takes them", same, rows);
    xd_json_free(&j);
}

/* The same of HunyuanDiT's pipeline: [width, height, standard width, standard height]. */
static void check_standard(const char *dir)
{
    char             path[1024];
    int              same = 0, rows = 0;
    const xd_recipe *r = xd_recipe_find("HunyuanDiTPipeline", NULL);
    snprintf(path, sizeof path, "%s/hunyuan-forms/standard.json", dir);
    xd_json *j = js_open(path);
    for (const xd_json *row = xd_json_first(j); row; row = xd_json_next(row), rows++) {
        double v[4] = { 0 };
        for (int i = 0; i < 4; i++)
            xd_json_number(xd_json_at(row, i), &v[i]);
        int64_t w = (int64_t)v[0], h = (int64_t)v[1];
        same += r->trained_size(0, &h, &w) && w == (int64_t)v[2] && h == (int64_t)v[3];
    }
    tap(rows > 100 && same == rows, "standard sizes: %d of %d as diffusers takes them", same, rows);
    xd_json_free(&j);
}

/* What not every device does. */
typedef struct skills { int f16, windows; } skills;

static skills find_skills(void)
{
    skills  s = { 0, 0 };
    xd_dev *d = NULL;
    xd_err  e = { 0 };
    if (xd_dev_open(&d, "cpu", &e) == XD_OK)
        s = (skills){ xd_dev_compute(d, XD_F16) == XD_F16, d->host_memory };
    xd_dev_close(&d);
    return s;
}

/* The trained model follows the published noise schedule, whose first steps multiply an error of
 * the prediction by 1/alpha = 158: bf16 then takes another path to an equally good image
 * (diffusers' own latents move by 7e-2). test_demo looks at its bf16 images instead. */
static int has_bf16(const char *name)
{
    return strcmp(name, "demo") != 0;
}

/* Has the case windows that the device lacks? */
static int lacks_windows(const char *name, skills can)
{
    return !can.windows && is_listed(name, windowed, sizeof windowed / sizeof *windowed);
}

/* Is the image in bf16 no measure of the device? Only GPUs compute in f16. */
static int is_rough(const char *name, skills can)
{
    return can.f16 && is_listed(name, rough, sizeof rough / sizeof *rough);
}

/* Is the case run in this type? */
static int is_run(const char *name, int dtype, skills can)
{
    if (lacks_windows(name, can))
        return 0;
    switch (dtype) {
    case 0: return 1;
    case 1: return has_bf16(name) && !is_rough(name, can);
    case 4: return can.f16 && is_listed(name, halves, sizeof halves / sizeof *halves);
    default: return is_listed(name, quantized, sizeof quantized / sizeof *quantized);
    }
}

int main(int argc, char **argv)
{
    const char *const *names = argc > 3 ? (const char *const *)argv + 3 : all;
    int                n = argc > 3 ? argc - 3 : (int)(sizeof all / sizeof *all);
    if (argc < 3) {
        fprintf(stderr, "usage: %s DIR FULL [CASE ...]\n", argv[0]);
        return 2;
    }
    if (tap_skip_isa())
        return 0;
    const skills can = find_skills();
    check_bins(argv[1]);
    check_standard(argv[1]);
    for (int i = 0; i < n; i++)
        for (int t = tap_only_bf16(); t < (tap_only_bf16() ? 2 : NDTYPE); t++)
            if (is_run(names[i], t, can))
                check(argv[1], argv[2], names[i], t);
            else if (t == 1 && lacks_windows(names[i], can))
                tap_note("%s is left out: this device has no windows of attention", names[i]);
            else if (t == 1 && is_rough(names[i], can))
                tap_note("%s %s is left out: its autoencoder amplifies rounding", names[i],
                         dtypes[t]);
            else if (t == 1)
                tap_note("%s %s is left to test_demo: its first steps amplify rounding", names[i],
                         dtypes[t]);
    return tap_end();
}
