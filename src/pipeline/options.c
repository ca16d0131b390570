/* options.c - the table of a request's options, one row each (a plan's options: plan_table.c) */
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "families/help.h"
#include "pipeline/step_cache.h"
#include "sampler/sampler.h"
#include "xdit/tools.h"

#define AT(field) offsetof(xd_request, field)

/* The option --seed -1 sets both `seed` and `random_seed` (XD_OPT_SEED). */
_Static_assert(AT(random_seed) == AT(seed) + sizeof(int64_t), "an int behind the seed");

static xd_option options[] = {
    { "negative_prompt", XD_OPT_TEXT, AT(negative_prompt), 0, 0, NULL, "TEXT",
      "text to avoid in the image. One for all prompts, or one for each" },
    { "prompt_2", XD_OPT_TEXT, AT(texts.prompt_2), 0, 0, NULL, "TEXT", NULL },
    { "prompt_3", XD_OPT_TEXT, AT(texts.prompt_3), 0, 0, NULL, "TEXT", NULL },
    { "negative_prompt_2", XD_OPT_TEXT, AT(texts.negative_prompt_2), 0, 0, NULL, "TEXT",
      "negative prompt for the encoder of prompt_2" },
    { "negative_prompt_3", XD_OPT_TEXT, AT(texts.negative_prompt_3), 0, 0, NULL, "TEXT",
      "negative prompt for the encoder of prompt_3" },
    { "clean_caption", XD_OPT_FLAG, AT(texts.clean_caption), 0, 1, NULL, NULL, NULL },
    { "width", XD_OPT_INT64, AT(width), 1, 1e7, NULL, "PIXELS",
      "width (default: from the image, else the model's)" },
    { "height", XD_OPT_INT64, AT(height), 1, 1e7, NULL, "PIXELS",
      "height (default: from the image, else the model's)" },
    { "num_frames", XD_OPT_INT, AT(num_frames), 1, 100000, NULL, "N",
      "number of video frames (default: the model's)" },
    { "seconds", XD_OPT_REAL, AT(output.seconds), XD_ABOVE_ZERO, 1e5, NULL, "SECONDS",
      "video length, instead of num_frames; rounded to a length that the model supports" },
    { "fps", XD_OPT_REAL, AT(fps), 0.01, 1000, NULL, "RATE",
      "frames per second of the video file (default: the model's)" },
    { "num_inference_steps", XD_OPT_INT, AT(num_inference_steps), 1, 1000, NULL, "N",
      "denoising steps (default: the model's)" },
    { "guidance_scale", XD_OPT_REAL, AT(guidance_scale), 0, 1000, NULL, "G",
      NULL }, /* help text set by name_families                              */
    { "guidance_scale_2", XD_OPT_REAL, AT(guidance.guidance_scale_2), 0, 1000, NULL, "G", NULL },
    { "boundary_ratio", XD_OPT_REAL, AT(guidance.boundary_ratio), 0, 1, NULL, "SHARE", NULL },
    { "true_cfg_scale", XD_OPT_REAL, AT(guidance.true_cfg_scale), 0, 1000, NULL, "G",
      NULL }, /* help text set by name_families                              */
    { "guidance_rescale", XD_OPT_REAL, AT(guidance.guidance_rescale), 0, 1, NULL, "SHARE", NULL },
    { "cfg_normalization", XD_OPT_REAL, AT(guidance.cfg_normalization), 0, 1000, "1", "FACTOR",
      NULL },
    { "cfg_truncation", XD_OPT_REAL, AT(guidance.cfg_truncation), 0, 1, NULL, "TIME", NULL },
    { "skip_guidance_layers", XD_OPT_TEXT, AT(guidance.skip_guidance_layers), 0, 0, NULL, "N,N",
      NULL },
    { "skip_layer_guidance_scale", XD_OPT_REAL, AT(guidance.skip_layer_guidance_scale), -1000, 1000,
      NULL, "G", "skip layer guidance: scale of the difference to the pass without those layers" },
    { "skip_layer_guidance_start", XD_OPT_REAL, AT(guidance.skip_layer_guidance_start), 0, 1, NULL,
      "SHARE", "skip layer guidance: fraction of the steps after which it starts" },
    { "skip_layer_guidance_stop", XD_OPT_REAL, AT(guidance.skip_layer_guidance_stop), 0, 1, NULL,
      "SHARE", "skip layer guidance: fraction of the steps at which it ends" },
    { "use_dynamic_cfg", XD_OPT_FLAG, AT(guidance.use_dynamic_cfg), 0, 1, NULL, NULL, NULL },
    { "image", XD_OPT_TEXT, AT(images.image), 0, 0, NULL, "FILE",
      "input image (PNG, JPEG, WebP, GIF, PPM): start image, resized to the requested size "
      "(default size: the image's); for editing models, the image to edit" },
    { "last_image", XD_OPT_TEXT, AT(images.last_image), 0, 0, NULL, "FILE", NULL },
    { "mask_image", XD_OPT_TEXT, AT(images.mask_image), 0, 0, NULL, "FILE",
      "inpainting mask: bright pixels are generated, dark ones kept" },
    { "padding_mask_crop", XD_OPT_INT64, AT(images.padding_mask_crop), 0, 1e7, NULL, "PIXELS",
      "crop the image to the mask plus PIXELS on each side, generate that part, and paste the "
      "result back" },
    { "no_auto_resize", XD_OPT_FLAG, AT(images.no_auto_resize), 0, 1, NULL, NULL,
      NULL }, /* help text set by name_families                              */
    { "max_area", XD_OPT_INT64, AT(output.max_area), 1, 1e9, NULL, "PIXELS", NULL },
    { "strength", XD_OPT_REAL, AT(images.strength), XD_ABOVE_ZERO, 1, NULL, "S",
      "fraction of the steps to run on the start image (default: the pipeline's)" },
    { "seed", XD_OPT_SEED, AT(seed), 0, 0, NULL, "N",
      "seed; image i uses seed + i (default 0); -1: a random seed, which is printed" },
    { "num_images_per_prompt", XD_OPT_INT, AT(num_images_per_prompt), 1, 100000, NULL, "N",
      "images per prompt (default 1)" },
    { "max_sequence_length", XD_OPT_INT, AT(texts.max_sequence_length), 1, 16384, NULL, "N",
      "max text tokens; longer prompts are truncated (default: the pipeline's)" },
    { "scheduler", XD_OPT_TEXT, AT(schedule.scheduler), 0, 0, NULL, "NAME",
      NULL }, /* help text set by name_samplers                              */
    { "flow_shift", XD_OPT_REAL, AT(schedule.flow_shift), XD_ABOVE_ZERO, 1000, NULL, "SHIFT",
      "timestep shift in rectified flow: more steps at high noise (default: the scheduler's)" },
    { "shift_terminal", XD_OPT_REAL, AT(schedule.shift_terminal), 0, 1, NULL, "LEVEL",
      "noise level of flow-euler's last step, to which all levels are stretched; 0: off (default: "
      "the scheduler's)" },
    { "use_karras_sigmas", XD_OPT_FLAG, AT(schedule.use_karras_sigmas), -1, 1, NULL, NULL,
      "use the spacing of noise levels of Karras et al. 2022" },
    { "use_exponential_sigmas", XD_OPT_FLAG, AT(schedule.use_exponential_sigmas), -1, 1, NULL, NULL,
      "use exponential spacing of noise levels" },
    { "use_beta_sigmas", XD_OPT_FLAG, AT(schedule.use_beta_sigmas), -1, 1, NULL, NULL,
      "use spacing of noise levels by a beta distribution" },
    { "use_flow_sigmas", XD_OPT_FLAG, AT(schedule.use_flow_sigmas), -1, 1, NULL, NULL,
      "use dpm++ or unipc with a model of rectified flow" },
    { "stochastic_sampling", XD_OPT_FLAG, AT(schedule.stochastic_sampling), -1, 1, NULL, NULL,
      "flow-euler: draw new noise in every step" },
    { "solver_order", XD_OPT_INT, AT(schedule.solver_order), 1, 3, NULL, "N",
      "order of dpm++ or unipc (default: the scheduler's)" },
    { "algorithm_type", XD_OPT_TEXT, AT(schedule.algorithm_type), 0, 0, NULL, "NAME",
      "dpm++: dpmsolver++ or sde-dpmsolver++ (default: the scheduler's)" },
    { "solver_type", XD_OPT_TEXT, AT(schedule.solver_type), 0, 0, NULL, "NAME",
      "dpm++: midpoint or heun; unipc: bh1 or bh2 (default: the scheduler's)" },
    { "timestep_spacing", XD_OPT_TEXT, AT(schedule.timestep_spacing), 0, 0,
      "linspace leading trailing", "NAME", "spacing of the timesteps (default: the scheduler's)" },
    { "final_sigmas_type", XD_OPT_TEXT, AT(schedule.final_sigmas_type), 0, 0, "zero sigma_min",
      "NAME", "last noise level (default: the scheduler's)" },
    { "eta", XD_OPT_REAL, AT(schedule.eta), 0, 1, NULL, "SHARE",
      "ddim, tcd: amount of new noise per step (default: 0)" },
    { "sigmas", XD_OPT_TEXT, AT(schedule.sigmas), 0, 0, NULL, "N,N",
      "noise levels of all steps, before any shift, for schedulers that support it" },
    { "timesteps", XD_OPT_TEXT, AT(schedule.timesteps), 0, 0, NULL, "N,N",
      "timesteps of all steps, for schedulers that support it" },
    { "previews", XD_OPT_INT, AT(previews), 1, 1000, NULL, "N",
      "number of previews per image, spread over its steps (default: none)" },
    { "preview_every", XD_OPT_INT, AT(previews.every), 1, 1000, NULL, "STEPS",
      "make a preview every STEPS steps (default: none)" },
    { "cache", XD_OPT_TEXT, AT(savings.cache), 0, 0, NULL, "NAME:OPTIONS",
      NULL }, /* help text set by name_caches                                */
    { "rng", XD_OPT_TEXT, AT(noise.rng), 0, 0, "philox torch", "NAME",
      "random numbers: philox, or torch for the same noise as diffusers (default: philox)" },
    { "attention", XD_OPT_TEXT, AT(savings.attention), 0, 0, "auto int8", "HOW",
      "attention scores: int8 is faster and less exact (default: auto)" },
    { "gemm", XD_OPT_TEXT, AT(savings.gemm), 0, 0, "auto fp8", "HOW",
      "with --weights_dtype fp8 on a GPU: fp8 also quantizes the inputs of layers, which is faster "
      "and less exact (default: auto)" },
    { "attention_window", XD_OPT_TEXT, AT(savings.attention_window), 0, 0, NULL, "T,H,W",
      "local attention: size of the window in tokens (frames, rows, columns; 0: all); a single N: "
      "N tokens on each side" },
    { "fast_attn", XD_OPT_TEXT, AT(savings.fast_attn), 0, 0, NULL, "FILE|WAYS",
      "reuse attention outputs in later steps (DiTFastAttn): a file of xdit calibrate or xDiT, or "
      "a list of share, window, window+cfg, full+cfg and full, repeated over the steps" },
    { "reference_interval", XD_OPT_INT64, AT(savings.reference_interval), 0, 1e6, NULL, "STEPS",
      "recompute keys and values of reference images every STEPS steps; 0: once (default: 1)" },
    { "enable_tiling", XD_OPT_FLAG, AT(output.enable_tiling), 0, 1, NULL, NULL,
      "decode in overlapping tiles, which needs less memory" },
    { "output_quality", XD_OPT_INT64, AT(output.output_quality), 0, 100, NULL, "N",
      "quality of .jpg and .webp, 0 to 100 (default: 95)" },
    { "no_resolution_binning", XD_OPT_FLAG, AT(output.no_resolution_binning), 0, 1, NULL, NULL,
      "generate the requested size, not the nearest trained one" },
};

enum { OPTIONS = sizeof options / sizeof *options };

/* Returns 1 if the sampler at index `at` is the first with its webui name. Only the first of
 * several samplers with the same webui name is listed. */
static int is_first(const xd_sampler *const *list, int at)
{
    for (int i = 0; i < at; i++)
        if (list[i]->webui && strcmp(list[i]->webui, list[at]->webui) == 0)
            return 0;
    return 1;
}

const char *xd_scheduler_webui(int i)
{
    for (int k = 0; xd_samplers[k]; k++)
        if (xd_samplers[k]->webui && is_first(xd_samplers, k) && i-- == 0)
            return xd_samplers[k]->webui;
    return NULL;
}

static void set_help(size_t offset, const char *help)
{
    for (int i = 0; i < OPTIONS; i++)
        if (options[i].offset == offset)
            options[i].help = help;
}

/* Sets the help text of --scheduler, which lists all known samplers. */
static void name_samplers(void)
{
    static xd_text_buf b;
    xd_buf_add(&b, "sampler (default: the model's): ");
    xd_sampler_names(&b);
    xd_buf_add(&b, " or a diffusers class");
    set_help(AT(schedule.scheduler), b.failed ? "sampler (default: the model's)" : b.p);
}

static void name_caches(void)
{
    static xd_text_buf b;
    xd_buf_add(&b, "reuse blocks that change little between steps (default none). Faster; the "
               "image changes: ");
    for (int i = 0; xd_caches[i]; i++)
        xd_buf_add(&b, "%s%s%s (%s)", i ? ", " : "", xd_caches[i]->name, i ? "" : ":0.12",
                   xd_caches[i]->help);
    set_help(AT(savings.cache), b.failed ? "step cache (default none)" : b.p);
}

/* Sets the help texts that list the model families that have the option. */
static void name_families(void)
{
    static const struct {
        size_t         at;
        const char    *before;
        xd_family_word word;
        const char    *after;
    } row[] = {
        { AT(guidance_scale), "classifier-free guidance; 1 or less: none (", XD_WORD_FROM_PROMPT,
          ": 0)" },
        { AT(guidance.guidance_scale_2), "guidance_scale for steps of the second transformer (",
          XD_WORD_TWO_DITS, "; default: as guidance_scale)" },
        { AT(guidance.boundary_ratio),
          "noise level, as a fraction of the training timesteps, below which "
          "the second transformer is used (",
          XD_WORD_TWO_DITS, "; default: the model's)" },
        { AT(guidance.true_cfg_scale),
          "scale of classifier-free guidance for models with a distilled guidance_scale (",
          XD_WORD_DISTILLED, "); 1: off (default: the pipeline's)" },
        { AT(guidance.guidance_rescale),
          "rescale guidance: 0 off, 1 to the full standard deviation of the prompt's prediction (",
          XD_WORD_RESCALES, "; default: 0)" },
        { AT(guidance.cfg_normalization),
          "limit the norm of the guided prediction to FACTOR times that of "
          "the prompt's (",
          XD_WORD_FROM_PROMPT, "; default: 0, no limit)" },
        { AT(guidance.cfg_truncation),
          "end guidance at this fraction of the way from noise to image (", XD_WORD_FROM_PROMPT,
          "; default: 1)" },
        { AT(guidance.skip_guidance_layers),
          "skip layer guidance: layers that a third pass skips, to guide "
          "away from its prediction (",
          XD_WORD_SKIPS_LAYERS, "; default: none)" },
        { AT(images.no_auto_resize),
          "read the image at its own size, not at the nearest trained one (", XD_WORD_AUTO_RESIZES,
          ")" },
        { AT(output.max_area), "number of pixels; width and height then only set the ratio (",
          XD_WORD_MAX_AREA, "; default: the model's)" },
        { AT(images.last_image), "last frame of the video (", XD_WORD_LAST_IMAGE, ")" },
        { AT(texts.prompt_2),
          "second text encoder's prompt; one for all prompts, or one for each (",
          XD_WORD_TWO_PROMPTS, "; default: the prompt)" },
        { AT(texts.prompt_3), "third text encoder's prompt; one for all prompts, or one for each (",
          XD_WORD_THREE_PROMPTS, "; default: the prompt)" },
        { AT(texts.clean_caption),
          "remove web addresses, tags and similar text from prompts, as for the "
          "training of ",
          XD_WORD_CLEANS,
          " (default: true; --clean_caption=false: lower case "
          "only)" },
        { AT(guidance.use_dynamic_cfg),
          "increase guidance from 1 over the steps, as in the examples of ", XD_WORD_DYNAMIC_CFG,
          "" },
    };
    static xd_text_buf help[sizeof row / sizeof *row];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        xd_buf_add(&help[i], "%s%s%s", row[i].before, xd_family_says(row[i].word), row[i].after);
        set_help(row[i].at, help[i].failed ? row[i].before : help[i].p);
    }
}

static void name_all(void)
{
    name_samplers();
    name_caches();
    name_families();
}

const xd_option *xd_request_options(int *n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, name_all);
    *n = OPTIONS;
    return options;
}
