/* family.c - describes the pipelines of SANA, SANA 1.5, SANA-Sprint and SANA-Video */
#include "families/family.h"
#include "tok/tok.h"

extern const xd_dit xd_dit_sana, xd_dit_sana_video;

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

/* The default of the video pipeline's complex_human_instruction. */
#define VIDEO_INSTRUCTION                                                                          \
    "Given a user prompt, generate an 'Enhanced prompt' that provides detailed visual "            \
    "descriptions suitable for video generation. Evaluate the level of detail in the user "        \
    "prompt:\n"                                                                                    \
    "- If the prompt is simple, focus on adding specifics about colors, shapes, sizes, textures, " \
    "motion, and temporal relationships to create vivid and dynamic scenes.\n"                     \
    "- If the prompt is already detailed, refine and enhance the existing details slightly "       \
    "without overcomplicating.\n"                                                                  \
    "Here are examples of how to transform or refine prompts:\n"                                   \
    "- User Prompt: A cat sleeping -> Enhanced: A small, fluffy white cat slowly settling into a " \
    "curled position, peacefully falling asleep on a warm sunny windowsill, with gentle sunlight " \
    "filtering through surrounding pots of blooming red flowers.\n"                                \
    "- User Prompt: A busy city street -> Enhanced: A bustling city street scene at dusk, "        \
    "featuring glowing street lamps gradually lighting up, a diverse crowd of people in colorful " \
    "clothing walking past, and a double-decker bus smoothly passing by towering glass "           \
    "skyscrapers.\n"                                                                               \
    "Please generate only the enhanced description for the prompt below and avoid including any "  \
    "additional commentary or evaluations:\n"                                                      \
    "User Prompt: "

/* The members of a recipe that all pipelines have. The transformer's attention does not see
 * padding of the text, so the text is not padded. */
#define COMMON                                                                                     \
    .dit = "transformer", .vae = "vae",                                                            \
    .text = { { .folder = "text_encoder",                                                          \
                .tokenizer = "tokenizer",                                                          \
                .slot = "llm",                                                                     \
                .rows = XD_ROWS_BELOW,                                                             \
                .pad = XD_PAD_NONE } },                                                            \
    .ntext = 1, .max_text = 300, .resized = 1, .caption = xd_caption_plain, .after_system = "",    \
    .drops_system = 1

/* This recipe has the text encoder, defaults and rules of diffusers' SanaPipeline.__call__
 * and SanaControlNetPipeline.__call__. */
static const xd_recipe sana = {
    .name = "sana",
    .pipelines = { "SanaPipeline", "SanaControlNetPipeline" },
    COMMON,
    .system = INSTRUCTION,
    .trained_size = trained_size,
    .guidance = 4.5,
    .steps = 20,
    .max_shift = 1.15,
};

/* This recipe has the text encoder, defaults and rules of diffusers'
 * SanaSprintPipeline.__call__. */
static const xd_recipe sprint = {
    .name = "sana-sprint",
    .pipelines = { "SanaSprintPipeline" },
    COMMON,
    .system = INSTRUCTION,
    .trained_size = trained_size,
    .guidance = 4.5,
    .steps = 2,
    .distilled = 1,
    .true_cfg = 1,
};

/* The pipeline's ASPECT_RATIO_480_BIN and ASPECT_RATIO_720_BIN, for models with sample_size 30 and
 * 22. The transformer describes these models by a sample of 60 or 15 rows of latent cells. */
static int trained_video_size(int64_t sample, int64_t *height, int64_t *width)
{
    static const xd_size_bucket table[][11] = {
        { { 0.5, 448, 896 },
          { 0.57, 480, 832 },
          { 0.68, 528, 768 },
          { 0.78, 560, 720 },
          { 1.0, 624, 624 },
          { 1.13, 672, 592 },
          { 1.29, 720, 560 },
          { 1.46, 768, 528 },
          { 1.67, 816, 496 },
          { 1.75, 832, 480 },
          { 2.0, 896, 448 } },
        { { 0.5, 672, 1344 },
          { 0.57, 704, 1280 },
          { 0.68, 800, 1152 },
          { 0.78, 832, 1088 },
          { 1.0, 960, 960 },
          { 1.13, 1024, 896 },
          { 1.29, 1088, 832 },
          { 1.46, 1152, 800 },
          { 1.67, 1248, 736 },
          { 1.75, 1280, 704 },
          { 2.0, 1344, 672 } },
    };
    if (sample != 60 && sample != 15)
        return 0;
    xd_size_bucket_nearest(table[sample == 15], 11, height, width);
    return 1;
}

/* This recipe has the text encoder, defaults and rules of diffusers' SanaVideoPipeline.__call__
 * and, with an image, SanaImageToVideoPipeline.__call__. The examples of
 * export_to_video write 16 frames per second. */
static const xd_recipe video = {
    .name = "sana-video",
    .pipelines = { "SanaVideoPipeline", "SanaImageToVideoPipeline" },
    COMMON,
    .system = VIDEO_INSTRUCTION,
    .trained_size = trained_video_size,
    .guidance = 6,
    .steps = 50,
    .max_shift = 1.15,
    .fps = 16,
    .channels_first = 1,
    .role = XD_ROLE_HELD,
};

static const xd_key_map key_maps[] = {
    { { "sana" },
      "a SANA transformer in the layout of diffusers",
      { "transformer_blocks.0.ff.conv_inverted.weight", "caption_norm.weight" },
      XD_DIT_PREFIXES,
      { { "transformer_blocks.#.", "transformer_blocks.#.", NULL }, { "", "", NULL } } },
    { { "dc" },
      "a deep compression autoencoder in the layout of diffusers",
      { "decoder.up_blocks.0.1.conv1.weight", "decoder.conv_in.weight" },
      XD_VAE_PREFIXES,
      { { "", "", NULL } } },
    { { "sana-video" },
      "a SANA-Video transformer in the layout of diffusers",
      { "transformer_blocks.0.ff.conv_temp.weight", "caption_norm.weight" },
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
    .dits = XD_LIST(xd_dit, &xd_dit_sana, &xd_dit_sana_video),
    .recipes = XD_LIST(xd_recipe, &sana, &sprint, &video),
    .key_maps = key_maps,
    .lora_names = lora_names,
    .xdit = &xdit_rows,
    .examples = { .hub = "Efficient-Large-Model/SANA1.5_4.8B_1024px_diffusers",
                  .from_image = "SANA-Video" },
};
