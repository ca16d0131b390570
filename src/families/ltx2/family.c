/* family.c - describes the pipelines of LTX-2 */
#include "families/family.h"

#include "families/ltx2/keys.h"
#include "tok/tok.h"

extern const xd_dit xd_dit_ltx2;

/* This recipe has the text encoder, defaults and rules of diffusers' LTX2Pipeline.__call__. With an
 * image, it has those of LTX2ImageToVideoPipeline.__call__ with image_crf 0, and with a last image,
 * several images, or positions or strengths of images, those of LTX2ConditionPipeline.__call__ with
 * crf 0. Gemma reads the prompt without padding, because text does not attend to padding, and the
 * connectors put registers in its place. */
static const xd_recipe from_held = {
    .name = "ltx2",
    .pipelines = { "LTX2Pipeline", "LTX2ImageToVideoPipeline", "LTX2ConditionPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "llm",
                .rows = XD_ROWS_NONE,
                .pad = XD_PAD_NONE,
                .all = 1 },
              { .folder = "connectors",
                .tokenizer = "tokenizer",
                .slot = "connectors",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_MOST,
                .masked = 1,
                .follows = 1 } },
    .ntext = 2,
    .steps = 30,
    .guidance = 3,
    .audio_guidance = 7,
    .modality = 3,
    .stg = 1,
    .rescale = 0.7,
    .stg_block = 28,
    .rescales = 1,
    .upsampler = "LTX2LatentUpsamplerModel",
    .enlarged_sigmas = "0.909375,0.725,0.421875",
    .max_text = 1024,
    .max_shift = 2.05,
    .own_sigmas = XD_OWN_ALWAYS,
    .fps = 24,
    .channels_first = 1,
    .packed = 1,
    .role = XD_ROLE_HELD,
    .placed = XD_ROLE_KEYFRAMES,
    .references = 16,
    .bilinear = 1,
    .audio_channels = 8,
    .audio = { "audio_vae", "vocoder" },
    .caption = xd_caption_strip,
};

/* xDiT's models of this family, which its runner runs. For a model, the first row of the table
 * whose name matches the model is used. */
static const xd_xdit_model xdit_models[] = {
    { .title = "LTX-2.5",
      .names = "LTX-2.5",
      .pipeline = "LTX2",
      .instead = "LTX-2 is nearest",
      .cell = 32,
      .patch = 1,
      .can = XD_CAN_USP | XD_HAS_VIDEO },
    { .title = "LTX-2 and LTX-2.3",
      .names = "LTX-2 LTX-2.3",
      .pipeline = "LTX2",
      .own = "ltx2",
      .cell = 32,
      .patch = 1,
      .can = XD_CAN_USP | XD_HAS_VIDEO,
      .steps = "40",
      .guidance = "4",
      .height = "1024",
      .width = "1536",
      .frames = "121" },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = { { "LTX-2", 32, 48, 0 }, { .name = NULL } };

static const xd_xdit_name xdit_names[] = {
    { "LTX-2", "Lightricks/LTX-2" },
    { "LTX-2.3", "dg845/LTX-2.3-Diffusers" },
    { "LTX-2.5", "Lightricks/LTX-2.5-Diffusers" },
    { "LTX-2.5-distilled", "Lightricks/LTX-2.5-Diffusers" },
    { "LTX-2.5-full", "Lightricks/LTX-2.5-Diffusers" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models,
                                        .nets = xdit_nets,
                                        .names = xdit_names };

extern const xd_family xd_family_ltx2;

const xd_family xd_family_ltx2 = {
    .title = "LTX-2",
    .dits = XD_LIST(xd_dit, &xd_dit_ltx2),
    .recipes = XD_LIST(xd_recipe, &from_held),
    .lora_names = xd_ltx2_lora_names,
    .xdit = &xdit_rows,
    .examples = { .from_image = "LTX-2", .last_image = "LTX-2" },
};
