/* family.c - describes Wan's pipelines for text to video and image to video */
#include <math.h>

#include "families/family.h"

#include "families/wan/keys.h"
#include "tok/tok.h"

extern const xd_dit xd_dit_wan, xd_dit_wan_vace, xd_dit_wan_animate, xd_dit_skyreels;

#define UMT5                                                                                      \
    { .folder = "text_encoder", .tokenizer = "tokenizer", .slot = "t5xxl", .rows = XD_ROWS_BELOW, \
      .pad = XD_PAD_MOST, .masked = 1, .blank = 1 }

static const int penultimate = -2;

/* The image encoder that reads the first and the last frame. */
#define FRAME_ENCODER                                                                             \
    { .folder = "image_encoder", .processor = "image_processor", .slot = "clip_vision",           \
      .rows = XD_ROWS_BELOW, .optional = 1, .nlayers = 1, .layers = &penultimate }

/* This recipe has the text encoders, defaults and rules of diffusers' WanPipeline.__call__. The
 * pipeline's examples of export_to_video write 16 frames per second. */
static const xd_recipe from_text = {
    .name = "wan",
    .pipelines = { "WanPipeline" },
    .dit = "transformer",
    .dit2 = "transformer_2",
    .vae = "vae",
    .text = { UMT5 },
    .ntext = 1,
    .steps = 50,
    .guidance = 5,
    .max_text = 512,
    .max_shift = 1.15,
    .fps = 16,
    .frames_up = 1,
    .channels_first = 1,
    .caption = xd_caption_clean,
    .role = XD_ROLE_NONE,
};

/* Returns a size with the aspect ratio of the given image and about the given area in pixels. */
static xd_status size_of(int64_t unit, int64_t area, int64_t *height, int64_t *width, xd_err *e)
{
    double ratio = (double)*height / (double)*width, pixels = (double)area;
    double side[2] = { nearbyint(sqrt(pixels * ratio)), nearbyint(sqrt(pixels / ratio)) };
    if (!(side[0] >= (double)unit && side[1] >= (double)unit))
        return xd_fail(e, XD_EINVAL,
                       "an image of %lld x %lld pixels is too long for a video: name "
                       "its height and width",
                       (long long)*width, (long long)*height);
    *height = (int64_t)side[0], *width = (int64_t)side[1];
    return XD_OK;
}

/* The default area is that of 832 x 480 pixels, as in diffusers' example. */
static xd_status frame_size(int64_t unit, int64_t area, int64_t *height, int64_t *width, xd_err *e)
{
    return size_of(unit, area ? area : (int64_t)480 * 832, height, width, e);
}

/* This recipe has the text encoders, defaults and rules of diffusers'
 * WanImageToVideoPipeline.__call__. */

static const xd_recipe from_image = {
    .name = "wan-i2v",
    .pipelines = { "WanImageToVideoPipeline" },
    .dit = "transformer",
    .dit2 = "transformer_2",
    .vae = "vae",
    .text = { UMT5, FRAME_ENCODER },
    .ntext = 2,
    .steps = 50,
    .guidance = 5,
    .max_text = 512,
    .max_shift = 1.15,
    .fps = 16,
    .frames_up = 1,
    .channels_first = 1,
    .caption = xd_caption_clean,
    .role = XD_ROLE_FRAMES,
    .needs_image = 1,
    .sized_by = XD_SIZED_BY_FIRST,
    .reference_size = frame_size,
};

/* This recipe has the text encoders, defaults and rules of models with expand_timesteps, in
 * diffusers' WanPipeline and, with an image, WanImageToVideoPipeline. Diffusers' examples for these
 * models write 24 frames per second. */
static const xd_recipe from_held = {
    .name = "wan-ti2v",
    .pipelines = { "WanPipeline", "WanImageToVideoPipeline" },
    .when = "expand_timesteps",
    .dit = "transformer",
    .dit2 = "transformer_2",
    .vae = "vae",
    .text = { UMT5 },
    .ntext = 1,
    .steps = 50,
    .guidance = 5,
    .max_text = 512,
    .max_shift = 1.15,
    .fps = 24,
    .frames_up = 1,
    .channels_first = 1,
    .caption = xd_caption_clean,
    .role = XD_ROLE_HELD,
};

/* This recipe has the text encoders, defaults and rules of diffusers' WanVACEPipeline.__call__. */
static const xd_recipe controlled = {
    .name = "wan-vace",
    .pipelines = { "WanVACEPipeline" },
    .dit = "transformer",
    .dit2 = "transformer_2",
    .vae = "vae",
    .text = { UMT5 },
    .ntext = 1,
    .steps = 50,
    .guidance = 5,
    .max_text = 512,
    .max_shift = 1.15,
    .fps = 16,
    .frames_up = 1,
    .channels_first = 1,
    .caption = xd_caption_clean,
    .role = XD_ROLE_CONTROL_VIDEO,
    .references = 16,
};

/* This recipe has the text encoders, defaults and rules of diffusers'
 * WanAnimatePipeline.__call__. The pipeline's examples write 30 frames per second. */
static const xd_recipe driven = {
    .name = "wan-animate",
    .pipelines = { "WanAnimatePipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { UMT5, FRAME_ENCODER },
    .ntext = 2,
    .steps = 20,
    .guidance = 1,
    .max_text = 512,
    .max_shift = 1.15,
    .fps = 30,
    .segment_frames = 77,
    .segment_overlap = 1,
    .frames_up = 1,
    .channels_first = 1,
    .caption = xd_caption_clean,
    .role = XD_ROLE_DRIVEN,
    .needs_image = 1,
};

/* ---- SkyReels-V2 ---------------------------------------------------------------------------- */

/* The members that all recipes of SkyReels-V2 have. The pipelines' examples write 24 frames per
 * second. */
#define SKYREELS                                                                              \
    .dit = "transformer", .vae = "vae", .steps = 50, .max_text = 512, .max_shift = 1.15,      \
    .fps = 24, .frames_up = 1, .channels_first = 1, .caption = xd_caption_clean

/* This recipe has the text encoder, defaults and rules of diffusers'
 * SkyReelsV2Pipeline.__call__. */
static const xd_recipe skyreels = {
    .name = "skyreels-v2",
    .pipelines = { "SkyReelsV2Pipeline" },
    SKYREELS,
    .text = { UMT5 },
    .ntext = 1,
    .guidance = 6,
    .role = XD_ROLE_NONE,
};

/* This recipe has the text encoder, defaults and rules of diffusers'
 * SkyReelsV2DiffusionForcingPipeline.__call__ in its default, synchronous mode for up to
 * base_num_frames frames. In this mode all frames have the same timestep in a step, and a scheduler
 * of each frame writes the frame's latents in place. */
static const xd_recipe skyreels_forced = {
    .name = "skyreels-v2-df",
    .pipelines = { "SkyReelsV2DiffusionForcingPipeline" },
    SKYREELS,
    .text = { UMT5 },
    .ntext = 1,
    .guidance = 6,
    .overwrites = 1,
    .role = XD_ROLE_NONE,
};

/* The default area is that of the pipeline's default size, 960 x 544 pixels. */
static xd_status skyreels_size(int64_t unit, int64_t area, int64_t *height, int64_t *width,
                               xd_err *e)
{
    return size_of(unit, area ? area : (int64_t)544 * 960, height, width, e);
}

/* This recipe has the text encoders, defaults and rules of diffusers'
 * SkyReelsV2ImageToVideoPipeline.__call__. */
static const xd_recipe skyreels_image = {
    .name = "skyreels-v2-i2v",
    .pipelines = { "SkyReelsV2ImageToVideoPipeline" },
    SKYREELS,
    .text = { UMT5, FRAME_ENCODER },
    .ntext = 2,
    .guidance = 5,
    .role = XD_ROLE_FRAMES,
    .needs_image = 1,
    .sized_by = XD_SIZED_BY_FIRST,
    .reference_size = skyreels_size,
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

/* xDiT's models of this family. For a model, the first row of the table whose name matches the
 * model is used. */
static const xd_xdit_model xdit_models[] = {
    { .title = "Wan",
      .scripts = "wan_example wan_usp_example wan_pipeline_example",
      .pipeline = "WanPipeline",
      .own = "wan",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_USP | XD_HAS_VIDEO | XD_HAS_GUIDANCE },
    { .title = "Wan from an image",
      .scripts = "wan_i2v_example",
      .pipeline = "WanPipeline",
      .own = "wan-i2v",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_USP | XD_HAS_VIDEO | XD_HAS_GUIDANCE },
    { .title = "CausalWan",
      .instead = "SkyReels-V2-DF, which also adds noise to each frame by itself, is nearest",
      .names = "CausalWan",
      .pipeline = "CausalWan",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_FSDP | XD_HAS_VIDEO },
    { .title = "Wan 2.2 distilled, from an image",
      .names = "Wan2.2-Distilled-I2V",
      .pipeline = "Wan22DistilledI2V",
      .own = "wan-i2v",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_USP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_VIDEO,
      .steps = "4",
      .guidance = "1",
      .height = "720",
      .width = "1280",
      .frames = "81" },
    { .title = "Wan from an image",
      .names = "Wan2.1-I2V Wan2.2-I2V",
      .pipeline = "WanI2V",
      .own = "wan-i2v",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_VIDEO,
      .steps = "40",
      .guidance = "3.5",
      .height = "720",
      .width = "1280",
      .frames = "81" },
    { .title = "Wan from text or an image",
      .names = "TI2V",
      .pipeline = "WanI2V",
      .own = "wan-ti2v",
      .cell = 16,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_VIDEO,
      .steps = "50",
      .height = "736",
      .width = "1280",
      .frames = "121" },
    { .title = "Wan with references",
      .names = "VACE",
      .pipeline = "Wan",
      .own = "wan-vace",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_USP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_VIDEO,
      .steps = "30",
      .height = "720",
      .width = "1280",
      .frames = "81" },
    { .title = "Wan",
      .names = "Wan2",
      .pipeline = "Wan",
      .own = "wan",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_USP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_VIDEO,
      .steps = "40",
      .guidance = "3.5",
      .height = "720",
      .width = "1280",
      .frames = "81" },
    { .title = "Cosmos3",
      .names = "Cosmos3",
      .pipeline = "Cosmos3",
      .instead = "Wan 2.2 is nearest",
      .cell = 16,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_VIDEO },
    { .title = "LingBot-Video",
      .names = "lingbot-video",
      .pipeline = "LingBotVideo",
      .instead = "diffusers has no pipeline to compare it with; Wan 2.2 is nearest",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_SP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_VIDEO },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "Wan2.1-T2V-1.3B", 12, 30, 0 },
    { "VACE-1.3B", 12, 30, 0 },
    { "TI2V", 24, 30, 0 },
    { "Wan2", 40, 40, 0 },
    { .name = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "CausalWan", "FastVideo/CausalWan2.2-I2V-A14B-Preview-Diffusers" },
    { "Wan2.1-I2V", "Wan-AI/Wan2.1-I2V-14B-720P-Diffusers" },
    { "Wan2.2-I2V", "Wan-AI/Wan2.2-I2V-A14B-Diffusers" },
    { "Wan2.2-Distilled-I2V", "Wan-AI/Wan2.2-I2V-A14B-Diffusers" },
    { "Wan2.1-T2V", "Wan-AI/Wan2.1-T2V-14B-Diffusers" },
    { "Wan2.2-T2V", "Wan-AI/Wan2.2-T2V-A14B-Diffusers" },
    { "Wan2.2-TI2V", "Wan-AI/Wan2.2-TI2V-5B-Diffusers" },
    { "Wan2.1-VACE-14B", "Wan-AI/Wan2.1-VACE-14B-diffusers" },
    { "Wan2.1-VACE-1.3B", "Wan-AI/Wan2.1-VACE-1.3B-diffusers" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models,
                                        .nets = xdit_nets,
                                        .names = xdit_names };

extern const xd_family xd_family_wan;

const xd_family xd_family_wan = {
    .title = "Wan",
    .dits = XD_LIST(xd_dit, &xd_dit_wan, &xd_dit_wan_vace, &xd_dit_wan_animate, &xd_dit_skyreels),
    .recipes = XD_LIST(xd_recipe, &from_held, &from_text, &from_image, &controlled, &driven,
                       &skyreels, &skyreels_forced, &skyreels_image),
    .key_maps = xd_wan_key_maps,
    .lora_names = xd_wan_lora_names,
    .xdit = &xdit_rows,
    .examples = { .file = "wan2.1_t2v_1.3B_bf16.safetensors",
                  .hub = "Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
                  .from_image = "Wan2.1-I2V-14B, Wan2.2-TI2V-5B",
                  .last_image = "Wan2.1-FLF2V-14B",
                  .control_video = "Wan2.1-VACE" },
};
