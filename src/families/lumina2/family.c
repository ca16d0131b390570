/* family.c - describes the pipeline of Lumina-Image 2.0 */
#include "families/family.h"

#include "families/lumina2/keys.h"

extern const xd_dit xd_dit_lumina2;

static const int layers[] = { -2 };

/* With dynamic shifting, diffusers' pipeline computes the shift from the number of latent channels,
 * 16, in place of the number of tokens. */
static double mu(int64_t tokens, int steps)
{
    (void)tokens, (void)steps;
    return 0.5 + (1.15 - 0.5) / (4096 - 256) * (16 - 256);
}

/* This recipe has the text encoder, defaults and rules of diffusers' Lumina2Pipeline.__call__. The
 * transformer's attention does not see padding of the text, so the text is not padded. */
static const xd_recipe lumina2 = {
    .name = "lumina-image-2",
    .pipelines = { "Lumina2Pipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "llm",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_NONE,
                .layers = layers,
                .nlayers = 1 } },
    .ntext = 1,
    .steps = 30,
    .guidance = 4,
    .max_text = 256,
    .most_text = 512,
    .own_sigmas = XD_OWN_ALWAYS,
    .max_shift = 1.15,
    .mu = mu,
    .keeps_rows = 1,
    .system = "You are an assistant designed to generate superior images with the superior degree "
              "of image-text alignment based on textual prompts or user prompts.",
    .after_system = " <Prompt Start> ",
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

static const xd_xdit_model xdit_models[] = {
    { .title = "Lumina",
      .scripts = "lumina2_example lumina_cfg_example",
      .pipeline = "Lumina2Pipeline",
      .own = "lumina-image-2",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_HAS_GUIDANCE },
    { .title = "Lumina",
      .names = "Lumina-Image-2 Lumina2",
      .pipeline = "Lumina2",
      .own = "lumina-image-2",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_CFG | XD_CAN_SP,
      .steps = "50" },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "Lumina-Image-2", 24, 30, 0 },
    { .name = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "Lumina2", "Alpha-VLLM/Lumina-Image-2.0" },
    { "Lumina-Image-2.0", "Alpha-VLLM/Lumina-Image-2.0" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models,
                                        .nets = xdit_nets,
                                        .names = xdit_names };

extern const xd_family xd_family_lumina2;

const xd_family xd_family_lumina2 = {
    .title = "Lumina-Image",
    .dits = XD_LIST(xd_dit, &xd_dit_lumina2),
    .recipes = XD_LIST(xd_recipe, &lumina2),
    .key_maps = xd_lumina2_key_maps,
    .lora_names = xd_lumina2_lora_names,
    .xdit = &xdit_rows,
    .examples = { .hub = "Alpha-VLLM/Lumina-Image-2.0" },
};
