/* family.c - describes the pipeline of Krea-2-Raw and Krea-2-Turbo */
#include "families/family.h"

#include "families/krea2/keys.h"

extern const xd_dit xd_dit_krea2;

/* The chat template of Qwen3-VL with the pipeline's system message. The first FRAME_ROWS text rows,
 * which precede the prompt, are dropped. */
static const char frame[] =
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "
    "quantity, text, spatial relationships of the objects and background:<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n";
enum { FRAME_ROWS = 34, STATES = 12 };

static const int states[STATES] = { 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35 };

/* This recipe has the text encoder, defaults and rules of diffusers' Krea2Pipeline.__call__; the
 * defaults of Krea-2-Turbo are those of distilled.c. The pipeline pads a text between the prompt
 * and the end of the template, and masks the padding everywhere, so the text is not padded. */
static const xd_recipe krea2 = {
    .name = "krea-2",
    .pipelines = { "Krea2Pipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "llm",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_NONE,
                .frame = frame,
                .drop = FRAME_ROWS,
                .keeps_end = 1,
                .nlayers = STATES,
                .layers = states,
                .layers_key = "text_encoder_select_layers" } },
    .ntext = 1,
    .steps = 28,
    .guidance = 4.5,
    .guides_from_prompt = 1,
    .max_text = 512,
    .own_sigmas = XD_OWN_ALWAYS,
    .packed = 1,
    .max_shift = 1.15,
};

/* ---- models of xDiT ------------------------------------------------------------------------- */

static const xd_xdit_model xdit_models[] = {
    { .title = "Krea-2 Turbo",
      .names = "Krea-2-Turbo",
      .pipeline = "Krea2Turbo",
      .own = "krea-2",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_SP | XD_CAN_FSDP,
      .steps = "8",
      .guidance = "0",
      .side = "2048" },
    { .title = "Krea-2",
      .names = "Krea-2",
      .pipeline = "Krea2",
      .own = "krea-2",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_SP | XD_CAN_FSDP,
      .steps = "52",
      .guidance = "3.5",
      .side = "2048" },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "Krea-2", 48, 28, 0 },
    { .name = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "Krea-2-Raw", "krea/Krea-2-Raw" },
    { "Krea-2-Turbo", "krea/Krea-2-Turbo" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models,
                                        .nets = xdit_nets,
                                        .names = xdit_names };

extern const xd_family xd_family_krea2;

const xd_family xd_family_krea2 = {
    .title = "Krea-2",
    .dits = XD_LIST(xd_dit, &xd_dit_krea2),
    .recipes = XD_LIST(xd_recipe, &krea2),
    .key_maps = xd_krea2_key_maps,
    .lora_names = xd_krea2_lora_names,
    .xdit = &xdit_rows,
    .examples = { .hub = "krea/Krea-2-Turbo", .file = "krea2_turbo_bf16.safetensors" },
};
