/* family.c - describes Qwen-Image's pipelines for generation and for editing */
#include <math.h>
#include <string.h>

#include "families/family.h"
#include "families/qwenimage/keys.h"

extern const xd_dit xd_dit_qwenimage, xd_dit_qwenimage21;

/* The chat template of Qwen2.5-VL with the pipeline's system message. The first FRAME_ROWS text
 * rows, which precede the prompt, are dropped. */
static const char frame[] =
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "
    "quantity, text, spatial relationships of the objects and background:<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n";
enum { FRAME_ROWS = 34 };

/* This recipe has the text encoders, defaults and rules of diffusers' QwenImagePipeline.__call__,
 * QwenImageImg2ImgPipeline, QwenImageControlNetPipeline and QwenImageControlNetInpaintPipeline. */
static const xd_recipe qwen_image = {
    .name = "qwen-image",
    .pipelines = { "QwenImagePipeline", "QwenImageImg2ImgPipeline", "QwenImageControlNetPipeline",
                   "QwenImageControlNetInpaintPipeline" },
    .samples_sides = 1,
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "llm",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_NONE,
                .frame = frame,
                .drop = FRAME_ROWS } },
    .ntext = 1,
    .steps = 50,
    .guidance = 1,
    .distilled = 1,
    .true_cfg = 4,
    .keeps_length = 1,
    .max_text = 512,
    .most_text = 1024,
    .own_sigmas = XD_OWN_ALWAYS,
    .packed = 1,
    .max_shift = 1.15,
};

/* ---- editing ------------------------------------------------------------------------------- */

/* The chat template of the editing pipelines. For each input image, a text that represents the
 * image is inserted before the prompt. */
static const char edit_frame[] =
    "<|im_start|>system\nDescribe the key features of the input image (color, shape, size, "
    "texture, objects, background), then explain how the user's text instruction should alter or "
    "modify the image. Generate a new image that meets the user's requirements while maintaining "
    "consistency with the original input where appropriate.<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n";
enum { EDIT_ROWS = 64, SIDES = 32, MEGAPIXEL = 1024 * 1024, SEEN = 384 * 384 };

/* Returns a size with the aspect ratio of the image and about the given area, whose sides are
 * multiples of 32 (diffusers' calculate_dimensions). */
static xd_status reference_size(int64_t unit, int64_t area, int64_t *height, int64_t *width,
                                xd_err *e)
{
    double ratio = (double)*width / (double)*height, w = sqrt((double)area * ratio), h = w / ratio;
    (void)unit;
    w = nearbyint(w / SIDES), h = nearbyint(h / SIDES); /* rounds halves to even, as in Python */
    if (w < 1 || h < 1)
        return xd_fail(e, XD_EINVAL,
                       "an image to edit has %lld x %lld pixels; with its ratio an "
                       "area of %lld pixels has no side of %d",
                       (long long)*width, (long long)*height, (long long)area, SIDES);
    *height = (int64_t)h * SIDES;
    *width = (int64_t)w * SIDES;
    return XD_OK;
}

#define EDITS(text_, area_)                                                                       \
    .dit = "transformer", .vae = "vae",                                                            \
    .text = { { .folder = "text_encoder", .tokenizer = "tokenizer", .slot = "llm",                 \
                .rows = XD_ROWS_BELOW, .pad = XD_PAD_NONE, .frame = edit_frame,                    \
                .drop = EDIT_ROWS, .image_text = text_, .image_area = area_,                      \
                .processor = "processor" } },                                                      \
    .ntext = 1,                                                                                    \
    .steps = 50, .guidance = 1, .distilled = 1, .true_cfg = 4, .keeps_length = 1,                  \
    .max_text = 1024, .most_text = 1024, .own_sigmas = XD_OWN_ALWAYS, .packed = 1,                 \
    .max_shift = 1.15,                                                                             \
    .role = XD_ROLE_REFERENCES, .needs_image = 1, .reference_area = MEGAPIXEL,                     \
    .reference_size = reference_size

/* This recipe has the text encoders, defaults and rules of diffusers'
 * QwenImageEditPipeline.__call__ and QwenImageEditInpaintPipeline. The text encoder reads the same
 * image as the autoencoder. */
static const xd_recipe edit = {
    .name = "qwen-image-edit",
    .pipelines = { "QwenImageEditPipeline", "QwenImageEditInpaintPipeline" },
    EDITS("<|vision_start|><|image_pad|><|vision_end|>", 0),
    .references = 1,
    .sized_by = XD_SIZED_BY_FIRST,
    .inpaints_reference = 1,
};

/* This recipe has the text encoders, defaults and rules of diffusers'
 * QwenImageEditPlusPipeline.__call__, for Qwen-Image-Edit-2509 and -2511. */
static const xd_recipe edit_plus = {
    .name = "qwen-image-edit-plus",
    .pipelines = { "QwenImageEditPlusPipeline" },
    EDITS("Pict"
          "ure {}: <|vision_start|><|image_pad|><|vision_end|>",
          SEEN),
    .references = 16,
    .sized_by = XD_SIZED_BY_LAST,
};

/* ---- layers -------------------------------------------------------------------------------- */

/* Returns the logarithm of the shift for layers of this number of tokens, relative to 256 x 256
 * pixels. */
static double layers_mu(int64_t tokens, int steps)
{
    (void)steps;
    return sqrt((double)tokens / (256. * 256 / 16 / 16));
}

/* This recipe has the text encoder, defaults and rules of diffusers' QwenImageLayeredPipeline. */
static const xd_recipe layered = {
    .name = "qwen-image-layered",
    .pipelines = { "QwenImageLayeredPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "llm",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_NONE,
                .frame = frame,
                .drop = FRAME_ROWS } },
    .ntext = 1,
    .steps = 50,
    .guidance = 1,
    .distilled = 1,
    .true_cfg = 4,
    .max_text = 512,
    .most_text = 1024,
    .own_sigmas = XD_OWN_ALWAYS,
    .packed = 1,
    .mu = layers_mu,
    .max_shift = 1.15,
    .role = XD_ROLE_REFERENCES,
    .needs_image = 1,
    .references = 1,
    .reference_area = 640 * 640,
    .reference_size = reference_size,
    .sized_by = XD_SIZED_BY_FIRST,
    .may_keep_length = 1,
    .layers = 4,
    .describes = 1,
};

/* ---- Qwen-Image-2.1 ------------------------------------------------------------------------ */

/* The chat template of Qwen3-VL with the pipeline's system message, whose rows are dropped. */
#define SYSTEM "<|im_start|>system\nComprehend and analyze the provided prompt.<|im_end|>\n"
static const char frame_21[] = SYSTEM "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n";

/* Replaces an empty prompt by a space, as the pipeline does. */
static char *never_empty(const char *text)
{
    return strdup(*text ? text : " ");
}

static const int last_state[] = { -1 };

/* This recipe has the text encoder, defaults and rules of diffusers' QwenImage21Pipeline. */
static const xd_recipe qwen_image_21 = {
    .name = "qwen-image-2.1",
    .pipelines = { "QwenImage21Pipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "processor",
                .slot = "llm",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_NONE,
                .frame = frame_21,
                .drop_text = SYSTEM,
                .layers = last_state,
                .nlayers = 1,
                .raw = 1,
                .image_text = "<image{}><|vision_start|><|image_pad|><|vision_end|>",
                .image_gap = " ",
                .processor = "processor" } },
    .ntext = 1,
    .caption = never_empty,
    .role = XD_ROLE_REFERENCES,
    .references = 16,
    .reference_area = MEGAPIXEL,
    .reference_size = reference_size,
    .sized_by = XD_SIZED_BY_LAST,
    .steps = 40,
    .guidance = 1,
    .distilled = 1,
    .true_cfg = 1,
    .max_text = 1024,
    .own_sigmas = XD_OWN_ALWAYS,
    .sigmas_key = "sample_sigmas",
    .packed = 1,
    .max_shift = 1.15,
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

static const xd_xdit_model xdit_models[] = {
    { .title = "Qwen-Image-Edit-2509, -2511",
      .names = "Qwen-Image-Edit-25",
      .pipeline = "QwenImageEditPlus",
      .own = "qwen-image-edit-plus",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_USP | XD_CAN_FSDP },
    { .title = "Qwen-Image-Edit",
      .names = "Qwen-Image-Edit",
      .pipeline = "QwenImageEdit",
      .own = "qwen-image-edit",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_USP | XD_CAN_FSDP },
    { .title = "Qwen-Image-2.1",
      .names = "Qwen-Image-2.1",
      .pipeline = "QwenImage21",
      .own = "qwen-image-2.1",
      .cell = 16,
      .patch = 1,
      .can = XD_CAN_USP | XD_CAN_FSDP },
    { .title = "Qwen-Image",
      .names = "Qwen-Image",
      .pipeline = "QwenImage",
      .own = "qwen-image",
      .cell = 8,
      .patch = 2,
      .can = XD_CAN_USP | XD_CAN_FSDP,
      .height = "928",
      .width = "1664" },
    { .title = "Ideogram 4",
      .names = "ideogram-4 ideogram-v4",
      .pipeline = "Ideogram4",
      .instead = "Qwen-Image is nearest",
      .cell = 16,
      .patch = 1,
      .can = XD_CAN_CFG | XD_CAN_USP | XD_CAN_VAE | XD_CAN_FSDP },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "Qwen-Image-2.1", 32, 32, 0 },
    { "Qwen-Image", 24, 60, 0 },
    { .name = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "Qwen-Image", "Qwen/Qwen-Image" },
    { "Qwen-Image-2512", "Qwen/Qwen-Image-2512" },
    { "Qwen-Image-Edit", "Qwen/Qwen-Image-Edit" },
    { "Qwen-Image-Edit-2509", "Qwen/Qwen-Image-Edit-2509" },
    { "Qwen-Image-Edit-2511", "Qwen/Qwen-Image-Edit-2511" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models,
                                        .nets = xdit_nets,
                                        .names = xdit_names };

extern const xd_family xd_family_qwenimage;

const xd_family xd_family_qwenimage = {
    .title = "Qwen-Image",
    .dits = XD_LIST(xd_dit, &xd_dit_qwenimage, &xd_dit_qwenimage21),
    .recipes = XD_LIST(xd_recipe, &qwen_image, &edit, &edit_plus, &layered, &qwen_image_21),
    .key_maps = xd_qwenimage_key_maps,
    .lora_names = xd_qwenimage_lora_names,
    .xdit = &xdit_rows,
    .examples = { .layers = "60", .file = "qwen_image_bf16.safetensors", .hub = "Qwen/Qwen-Image" },
};
