/* family.c - describes the pipelines of SANA, SANA 1.5 and SANA-Sprint */
#include "families/family.h"
#include "tok/tok.h"

extern const xd_dit xd_dit_sana;

/* Chooses among the sizes on which a transformer was trained. A latent cell has 32 pixels on a
 * side, four times as many as the table expects. */
static int trained_size(int64_t sample, int64_t *height, int64_t *width)
{
    return xd_ratio_buckets_2048(sample >= 16 ? 4 * sample : 0, height, width);
}

/* The default of the pipelines' complex_human_instruction. */
#define INSTRUCTION                                                                                \
    "Given a user prompt, generate an 'Enhanced prompt' that provides detailed visual "            \
    "descriptions suitable for image generation. Evaluate the level of detail in the user "        \
    "prompt:\n"                                                                                    \
    "- If the prompt is simple, focus on adding specifics about colors, shapes, sizes, textures, " \
    "and spatial relationships to create vivid and concrete scenes.\n"                             \
    "- If the prompt is already detailed, refine and enhance the existing details slightly "       \
    "without overcomplicating.\n"                                                                  \
    "Here are examples of how to transform or refine prompts:\n"                                   \
    "- User Prompt: A cat sleeping -> Enhanced: A small, fluffy white cat curled up in a round "   \
    "shape, sleeping peacefully on a warm sunny windowsill, surrounded by pots of blooming red "   \
    "flowers.\n"                                                                                   \
    "- User Prompt: A busy city street -> Enhanced: A bustling city street scene at dusk, "        \
    "featuring glowing street lamps, a diverse crowd of people in colorful clothing, and a "       \
    "double-decker bus passing by towering glass skyscrapers.\n"                                   \
    "Please generate only the enhanced description for the prompt below and avoid including any "  \
    "additional commentary or evaluations:\n"                                                      \
    "User Prompt: "

/* The members of a recipe that both pipelines have. The transformer's attention does not see
 * padding of the text, so the text is not padded. */
#define COMMON                                                                                     \
    .dit = "transformer", .vae = "vae",                                                            \
    .text = { { .folder = "text_encoder",                                                          \
                .tokenizer = "tokenizer",                                                          \
                .slot = "llm",                                                                     \
                .rows = XD_ROWS_BELOW,                                                             \
                .pad = XD_PAD_NONE } },                                                            \
    .ntext = 1, .guidance = 4.5, .max_text = 300, .trained_size = trained_size, .resized = 1,      \
    .caption = xd_caption_plain, .system = INSTRUCTION, .after_system = "", .drops_system = 1

/* This recipe has the text encoder, defaults and rules of diffusers' SanaPipeline.__call__. */
static const xd_recipe sana = {
    .name = "sana",
    .pipelines = { "SanaPipeline" },
    COMMON,
    .steps = 20,
    .max_shift = 1.15,
};

/* This recipe has the text encoder, defaults and rules of diffusers'
 * SanaSprintPipeline.__call__. */
static const xd_recipe sprint = {
    .name = "sana-sprint",
    .pipelines = { "SanaSprintPipeline" },
    COMMON,
    .steps = 2,
    .distilled = 1,
    .true_cfg = 1,
};

static const xd_key_map key_maps[] = {
    { { "sana" },
      "a SANA transformer in the layout of diffusers",
      { "transformer_blocks.0.ff.conv_inverted.weight", "caption_norm.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL }, { "", "", NULL } } },
    { .what = NULL },
};

/* Module names in LoRA files. Each row has a module's name in the original code, then its name in
 * diffusers. */
static const xd_lora_name lora_names[] = {
    { "x_embedder_proj", "patch_embed_proj" },
    { "final_layer_linear", "proj_out" },
    { NULL, NULL },
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

static const xd_xdit_model xdit_models[] = {
    { .title = "SANA",
      .scripts = "sana_example",
      .pipeline = "xFuserSanaPipeline",
      .own = "sana",
      .cell = 32,
      .patch = 1,
      .whole_vae = "Sana",
      .multiple = 32,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_CAN_PP | XD_HAS_ROWS | XD_HAS_GUIDANCE },
    { .title = "SANA-Sprint",
      .scripts = "sana_sprint_example",
      .pipeline = "xFuserSanaSprintPipeline",
      .own = "sana-sprint",
      .cell = 32,
      .patch = 1,
      .whole_vae = "Sana",
      .multiple = 32,
      .can = XD_CAN_USP | XD_HAS_ROWS | XD_HAS_GUIDANCE },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "SANA1.5_4.8B", 70, 60, 20 },     { "SANA1.5_1.6B", 70, 20, 20 },
    { "Sana_Sprint_1.6B", 70, 20, 20 }, { "Sana_1600M", 70, 20, 20 },
    { "Sana_600M", 36, 28, 16 },        { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models, .nets = xdit_nets };

extern const xd_family xd_family_sana;

const xd_family xd_family_sana = {
    .title = "SANA",
    .dits = XD_LIST(xd_dit, &xd_dit_sana),
    .recipes = XD_LIST(xd_recipe, &sana, &sprint),
    .key_maps = key_maps,
    .lora_names = lora_names,
    .xdit = &xdit_rows,
    .examples = { .hub = "Efficient-Large-Model/SANA1.5_4.8B_1024px_diffusers" },
};
