/* family.c - describes the pipelines of HunyuanVideo and HunyuanVideo-1.5 */
#include <math.h>
#include <string.h>

#include "families/family.h"

#include "families/hunyuanvideo/common.h"
#include "families/hunyuanvideo/keys.h"

extern const xd_dit xd_dit_hunyuanvideo, xd_dit_hunyuanvideo15;

enum { CLIP_IDS = 77 }; /* max tokens of a CLIP text encoder */

/* The pipeline's chat template. The first FRAME_ROWS text rows, which precede the prompt, are
 * dropped. The tokenizer of the pipeline adds the first token itself. */
static const char frame[] =
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nDescribe the video by "
    "detailing "
    "the following aspects: 1. The main content and theme of the video."
    "2. The color, shape, size, texture, quantity, text, and spatial relationships of the objects."
    "3. Actions, events, behaviors temporal relationships, physical movement changes of the "
    "objects.4. background environment, light, style and atmosphere."
    "5. camera angles, movements, and transitions used in the video:<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>";
enum { FRAME_ROWS = 95 };

static const int layers[] = { -3 };

/* This recipe has the text encoders, defaults and rules of diffusers'
 * HunyuanVideoPipeline.__call__. The transformer's attention does not see padding of the text, so
 * the text is not padded. The models generate 24 frames per second. */
static const xd_recipe hunyuan_video = {
    .name = "hunyuan-video",
    .pipelines = { "HunyuanVideoPipeline" },
    .dit = "transformer",
    .vae = "vae",
    .text = { { .folder = "text_encoder",
                .tokenizer = "tokenizer",
                .slot = "llm",
                .rows = XD_ROWS_BELOW,
                .pad = XD_PAD_NONE,
                .frame = frame,
                .drop = FRAME_ROWS,
                .layers = layers,
                .nlayers = 1 },
              { .folder = "text_encoder_2",
                .tokenizer = "tokenizer_2",
                .slot = "clip_l",
                .rows = XD_ROWS_NONE,
                .pad = CLIP_IDS,
                .pooled = 1 } },
    .ntext = 2,
    .steps = 50,
    .guidance = 6,
    .distilled = 1,
    .true_cfg = 1,
    .max_text = 256,
    .own_sigmas = XD_OWN_ALWAYS,
    .max_shift = 1.15,
    .fps = 24,
    .channels_first = 1,
    .role = XD_ROLE_NONE,
};

/* ---- HunyuanVideo from an image ------------------------------------------------------------- */

/* The chat template of HunyuanVideoImageToVideoPipeline. The first IMAGE_FRAME_ROWS ids, with one
 * id for the image, precede the prompt. After the prompt, the rows of 4 ids are dropped: the end of
 * the prompt and the assistant's header, which one id follows. */
static const char image_frame[] =
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n<image>\nDescribe the video by "
    "detailing the following aspects according to the reference image: "
    "1. The main content and theme of the video."
    "2. The color, shape, size, texture, quantity, text, and spatial relationships of the objects."
    "3. Actions, events, behaviors temporal relationships, physical movement changes of the "
    "objects.4. background environment, light, style and atmosphere."
    "5. camera angles, movements, and transitions used in the video:<|eot_id|>\n\n"
    "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n";
enum { IMAGE_FRAME_ROWS = 103 };

/* LLaVA reads every id; the transformer reads the rows of every `step`-th image token. Diffusers
 * always uses a step of 2 for negative prompts. */
#define LLAVA_AND_CLIP(step)                      \
    { { .folder = "text_encoder",                 \
        .tokenizer = "tokenizer",                 \
        .slot = "llm",                            \
        .rows = XD_ROWS_BELOW,                    \
        .pad = XD_PAD_NONE,                       \
        .frame = image_frame,                     \
        .drop = IMAGE_FRAME_ROWS,                 \
        .cut = 4,                                 \
        .tail = 1,                                \
        .image_every = { step, 2 },               \
        .processor = "image_processor",           \
        .layers = layers,                         \
        .nlayers = 1 },                           \
      { .folder = "text_encoder_2",               \
        .tokenizer = "tokenizer_2",               \
        .slot = "clip_l",                         \
        .rows = XD_ROWS_NONE,                     \
        .pad = CLIP_IDS,                          \
        .pooled = 1 } }

/* The members that both recipes of HunyuanVideoImageToVideoPipeline have. */
#define FROM_IMAGE                                                                                 \
    .pipelines = { "HunyuanVideoImageToVideoPipeline" }, .dit = "transformer", .vae = "vae",       \
    .ntext = 2, .steps = 50, .guidance = 1, .distilled = 1, .true_cfg = 1, .max_text = 256,        \
    .own_sigmas = XD_OWN_ALWAYS, .max_shift = 1.15, .fps = 24, .channels_first = 1,                \
    .needs_image = 1, .noise_share = 0.999

/* This recipe has the text encoders, defaults and rules of diffusers'
 * HunyuanVideoImageToVideoPipeline.__call__ for transformers with the image_condition_type
 * token_replace. */
static const xd_recipe hunyuan_video_image = {
    .name = "hunyuan-video-i2v",
    FROM_IMAGE,
    .text = LLAVA_AND_CLIP(4),
    .role = XD_ROLE_HELD,
};

/* This recipe is for transformers with the image_condition_type latent_concat. The pipeline drops
 * the first 4 frames of the decoded video. */
static const xd_recipe hunyuan_video_concat = {
    .name = "hunyuan-video-i2v-33ch",
    FROM_IMAGE,
    .dit_key = "image_condition_type",
    .dit_value = "latent_concat",
    .text = LLAVA_AND_CLIP(2),
    .role = XD_ROLE_MARKED_FRAME,
    .drops_frames = 4,
};

/* ---- HunyuanVideo-1.5 ---------------------------------------------------------------------- */

/* The chat template of Qwen2.5-VL with the pipeline's system message. The first FRAME15_ROWS text
 * rows, which precede the prompt, are dropped. */
#define TAB "        "
static const char frame15[] =
    "<|im_start|>system\nYou are a helpful assistant. Describe the video by detailing the "
    "following "
    "aspects: " TAB "1. The main content and theme of the video. " TAB
    "2. The color, shape, size, texture, quantity, text, and spatial relationships of the "
    "objects. " TAB
    "3. Actions, events, behaviors temporal relationships, physical movement changes of the "
    "objects. " TAB "4. background environment, light, style and atmosphere. " TAB
    "5. camera angles, movements, and transitions used in the video.<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n";
enum { FRAME15_ROWS = 108, GLYPH_IDS = 256 };

/* The pipeline replaces an empty prompt by a space. */
static char *caption15(const char *text)
{
    return strdup(*text ? text : " ");
}

#define QWEN15                                                                                \
    { .folder = "text_encoder", .tokenizer = "tokenizer", .slot = "llm", .rows = XD_ROWS_BELOW, \
      .pad = XD_PAD_NONE, .frame = frame15, .drop = FRAME15_ROWS, .layers = layers, .nlayers = 1 }
#define BYT5                                                                                  \
    { .folder = "text_encoder_2", .tokenizer = "tokenizer_2", .slot = "byt5",                 \
      .rows = XD_ROWS_BELOW, .pad = XD_PAD_NONE, .most = GLYPH_IDS, .quoted = 1 }
/* SigLIP reads the first frame after it is resized and cropped to the size of the video. */
#define SIGLIP                                                                                \
    { .folder = "image_encoder", .processor = "feature_extractor", .slot = "clip_vision",     \
      .rows = XD_ROWS_BELOW, .resized = 1 }

/* The members that both recipes of HunyuanVideo-1.5 have. The transformer reads no padding of the
 * texts, so the texts are not padded. */
#define VIDEO15                                                                             \
    .dit = "transformer", .vae = "vae", .guider = "guider", .steps = 50, .guidance = 6,       \
    .max_text = 1000, .own_sigmas = XD_OWN_ALWAYS, .max_shift = 1.15, .fps = 24,              \
    .channels_first = 1, .caption = caption15

/* This recipe has the text encoders, defaults and rules of diffusers'
 * HunyuanVideo15Pipeline.__call__. */
static const xd_recipe hunyuan_video15 = {
    .name = "hunyuan-video-1.5",
    .pipelines = { "HunyuanVideo15Pipeline" },
    VIDEO15,
    .text = { QWEN15, BYT5 },
    .ntext = 2,
    .role = XD_ROLE_NONE,
};

/* Sets the size whose aspect ratio is nearest to that of the image (xd_hunyuanvideo_bucket). The
 * default area is that of the transformer's target_size. */
static xd_status size15(int64_t unit, int64_t area, int64_t *height, int64_t *width, xd_err *e)
{
    enum { LEAST = 16, MOST = 1 << 14 };
    int64_t side = (int64_t)nearbyint(sqrt((double)area));
    (void)unit;
    if (side < LEAST || side > MOST)
        return xd_fail(e, XD_EINVAL, "an area of %lld pixels is outside %d x %d to %d x %d pixels",
                       (long long)area, LEAST, LEAST, MOST, MOST);
    xd_hunyuanvideo_bucket(side, height, width);
    return XD_OK;
}

/* This recipe has the text encoders, defaults and rules of diffusers'
 * HunyuanVideo15ImageToVideoPipeline.__call__. */
static const xd_recipe hunyuan_video15_image = {
    .name = "hunyuan-video-1.5-i2v",
    .pipelines = { "HunyuanVideo15ImageToVideoPipeline" },
    VIDEO15,
    .text = { QWEN15, BYT5, SIGLIP },
    .ntext = 3,
    .reads_next = 1,
    .role = XD_ROLE_MARKED_FRAME,
    .needs_image = 1,
    .covers = 1,
    .sized_by = XD_SIZED_BY_FIRST,
    .reference_size = size15,
};

/* ---- models and example scripts of xDiT ----------------------------------------------------- */

/* xDiT's models whose names have the name of this family. For a model, the first row of the table
 * whose name matches the model is used. */
static const xd_xdit_model xdit_models[] = {
    { .title = "HunyuanVideo",
      .scripts = "hunyuan_video_usp_example",
      .pipeline = "HunyuanVideoPipeline",
      .own = "hunyuan-video",
      .cell = 8,
      .patch = 2,
      .unpadded = 1,
      .can = XD_CAN_USP | XD_HAS_GUIDANCE | XD_HAS_VIDEO },
    { .title = "HunyuanVideo-1.5",
      .scripts = "hunyuan_video15_example",
      .pipeline = "HunyuanVideo15Pipeline",
      .own = "hunyuan-video-1.5",
      .cell = 16,
      .patch = 1,
      .can = XD_CAN_USP | XD_HAS_GUIDANCE | XD_HAS_VIDEO },
    { .title = "HunyuanVideo-1.5 from an image",
      .names = "HunyuanVideo-1.5-Distilled HunyuanVideo-1.5-Diffusers-480p_i2v "
               "HunyuanVideo-1.5-Diffusers-720p_i2v",
      .pipeline = "HunyuanVideo15",
      .own = "hunyuan-video-1.5-i2v",
      .cell = 16,
      .patch = 1,
      .can = XD_CAN_USP | XD_HAS_VIDEO },
    { .title = "HunyuanVideo-1.5",
      .names = "HunyuanVideo-1.5",
      .pipeline = "HunyuanVideo15",
      .own = "hunyuan-video-1.5",
      .cell = 16,
      .patch = 1,
      .can = XD_CAN_USP | XD_HAS_VIDEO },
    { .title = "HunyuanVideo",
      .names = "HunyuanVideo",
      .pipeline = "HunyuanVideo",
      .own = "hunyuan-video",
      .cell = 8,
      .patch = 2,
      .unpadded = 1,
      .can = XD_CAN_USP | XD_HAS_VIDEO,
      .height = "720",
      .width = "1280",
      .frames = "129" },
    { .title = NULL },
};

static const xd_xdit_net xdit_nets[] = {
    { "HunyuanVideo-1.5", 16, 54, 0 },
    { "HunyuanVideo", 24, 60, 0 },
    { .name = NULL },
};

static const xd_xdit_name xdit_names[] = {
    { "HunyuanVideo", "hunyuanvideo-community/HunyuanVideo" },
    { "Hunyuanvideo-1.5", "tencent/HunyuanVideo-1.5" },
    { "Hunyuanvideo-1.5-Sparse", "tencent/HunyuanVideo-1.5-Sparse" },
    { "Hunyuanvideo-1.5-Distilled",
      "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-720p_i2v_distilled" },
    { .name = NULL },
};

static const xd_xdit_rows xdit_rows = { .models = xdit_models,
                                        .nets = xdit_nets,
                                        .names = xdit_names };

extern const xd_family xd_family_hunyuanvideo;

const xd_family xd_family_hunyuanvideo = {
    .title = "HunyuanVideo",
    .dits = XD_LIST(xd_dit, &xd_dit_hunyuanvideo, &xd_dit_hunyuanvideo15),
    .recipes = XD_LIST(xd_recipe, &hunyuan_video, &hunyuan_video_image, &hunyuan_video_concat,
                       &hunyuan_video15, &hunyuan_video15_image),
    .key_maps = xd_hunyuanvideo_key_maps,
    .lora_names = xd_hunyuanvideo_lora_names,
    .xdit = &xdit_rows,
    .examples = { .hub = "hunyuanvideo-community/HunyuanVideo", .from_image = "HunyuanVideo-I2V" },
};
