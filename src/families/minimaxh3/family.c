/* family.c - describes the pipeline of MiniMax-H3 */
#include "families/family.h"

extern const xd_dit xd_dit_minimaxh3;

/* The hidden state of Qwen3-VL that the transformer reads. */
static const int state[] = { 50 };

/* This recipe has the text encoder, defaults and rules of the workflow t2va of diffusers'
 * MiniMaxH3ModularPipeline. The encoder reads the prompt alone, without a template. diffusers does
 * not truncate texts. */
static const xd_recipe from_text = {
    .name = "minimax-h3",
    .pipelines = { "MiniMaxH3ModularPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "llm",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_NONE,
                .frame = "{}",
                .nlayers = 1,
                .layers = state } },
    .ntext = 1,
    .steps = 50,
    .guidance = 1,
    .max_text = 2048,
    .max_shift = 1.15,
    .unshifted = 1,
    .fps = 24,
    .channels_first = 1,
    .packed = 1,
    .role = XD_ROLE_NONE,
    .audio_channels = 1,
    .audio_scheduler = "audio_scheduler",
    .audio = { "audio_vae" },
};

static const xd_xdit_model xdit_models[] = {
    { .title = "FastH3",
      .names = "FastH3",
      .pipeline = "MiniMaxH3",
      .instead = "MiniMax-H3 is nearest",
      .cell = 16,
      .patch = 1,
      .can = XD_CAN_SP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_VIDEO },
    { .title = "MiniMax-H3",
      .names = "MiniMax-H3",
      .pipeline = "MiniMaxH3",
      .own = "minimax-h3",
      .cell = 16,
      .patch = 1,
      .can = XD_CAN_SP | XD_CAN_VAE | XD_CAN_FSDP | XD_HAS_VIDEO },
    { .title = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "MiniMax-H3", "MiniMaxAI/MiniMax-H3" },
    { "FastH3", "FastVideo/FastVideo-FastH3-4-step-Preview-v1-VSA-DataFree" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models, .names = xdit_names };

extern const xd_family xd_family_minimaxh3;

const xd_family xd_family_minimaxh3 = {
    .title = "MiniMax-H3",
    .dits = XD_LIST(xd_dit, &xd_dit_minimaxh3),
    .recipes = XD_LIST(xd_recipe, &from_text),
    .xdit = &xdit_rows,
};
