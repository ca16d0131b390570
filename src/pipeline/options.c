/* options.c - the table of a request's options, with one row for each option. The options of a
 * parallel plan have their own table, in plan_table.c. */
#include "pipeline/options.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/record.h"
#include "pipeline/step_cache.h"
#include "sampler/sampler.h"

#define AT(field) offsetof(xd_request, field)

/* The option --seed -1 sets both `seed` and `random_seed` (XD_OPT_SEED). */
_Static_assert(AT(random_seed) == AT(seed) + sizeof(int64_t), "an int behind the seed");

/* Titles of the sections of the help text. */
static const char WHAT[] = "What to generate", HOW[] = "How to generate", IMAGES[] = "Input images",
                  GUIDANCE[] = "Guidance", SCHEDULER[] = "Scheduler",
                  UPSAMPLER[] = "Latent upsampler", SAVINGS[] = "Faster, with a different image",
                  OUTPUT[] = "Log and output", MACHINE[] = "This machine";

static void list_caches(xd_text_buf *b)
{
    for (int i = 0; xd_caches[i]; i++)
        xd_buf_add(b, "%s%s%s (%s)", i ? ", " : "", xd_caches[i]->name, i ? "" : ":0.12",
                   xd_caches[i]->help);
}

static const xd_request_row rows[] = {
    { { "negative_prompt", XD_OPT_TEXT, AT(negative_prompt), 0, 0, NULL, "TEXT",
        "text to avoid in the image, or one per prompt" },
      .about.section = WHAT,
      .about.main = 1 },
    { { "prompt_2", XD_OPT_TEXT, AT(texts.prompt_2), 0, 0, NULL, "TEXT",
        "prompt of the second encoder (default: --prompt) (%s). One text for all prompts, or one "
        "for each prompt" },
      .families = XD_WORD_TWO_PROMPTS,
      .about.section = WHAT },
    { { "prompt_3", XD_OPT_TEXT, AT(texts.prompt_3), 0, 0, NULL, "TEXT",
        "prompt of the third encoder (%s; default: --prompt). One text, or one per prompt" },
      .families = XD_WORD_THREE_PROMPTS,
      .about.section = WHAT },
    { { "negative_prompt_2", XD_OPT_TEXT, AT(texts.negative_prompt_2), 0, 0, NULL, "TEXT",
        "negative prompt of the second text encoder" },
      .about.section = WHAT },
    { { "negative_prompt_3", XD_OPT_TEXT, AT(texts.negative_prompt_3), 0, 0, NULL, "TEXT",
        "negative prompt of the third text encoder" },
      .about.section = WHAT },
    { { "system_prompt", XD_OPT_TEXT, AT(texts.system_prompt), 0, 0, NULL, "TEXT",
        "text before prompts, not before negative prompts (%s; default: the pipeline's)" },
      .families = XD_WORD_SYSTEM,
      .about.section = WHAT,
      .stored = XD_STORED_GIVEN },
    { { "clean_caption", XD_OPT_FLAG, AT(texts.clean_caption), 0, 1, NULL, NULL,
        "remove web addresses and tags from the prompts, as in the training of %s (default: true). "
        "With --clean_caption=false, prompts are only converted to lower case" },
      .families = XD_WORD_CLEANS,
      .about.section = WHAT,
      .initial = 1,
      .unused = xd_unused_clean_caption,
      .stored = XD_STORED_USED },
    { { "prompt_weighting", XD_OPT_FLAG, AT(texts.prompt_weighting), 0, 1, NULL, NULL,
        "read (word:1.3), [word] and BREAK in prompts as A1111 does, and long prompts in chunks of "
        "75 tokens (%s)" },
      .families = XD_WORD_WEIGHS,
      .about.section = WHAT,
      .unused = xd_unused_prompt_weighting,
      .stored = XD_STORED_USED },
    { { "width", XD_OPT_INT64, AT(width), 1, 1e7, NULL, "PIXELS",
        "width (default: the image's or the model's)" },
      .about.section = WHAT,
      .about.main = 1 },
    { { "height", XD_OPT_INT64, AT(height), 1, 1e7, NULL, "PIXELS",
        "height (default: the image's or the model's)" },
      .about.section = WHAT,
      .about.main = 1 },
    { { "original_size", XD_OPT_TEXT, AT(sizes.original_size), 0, 0, NULL, "HEIGHT,WIDTH",
        "original image size as model input (default: the pipeline's) (%s)" },
      .families = XD_WORD_MICRO,
      .about.section = WHAT,
      .unused = xd_unused_size,
      .stored = XD_STORED_GIVEN },
    { { "crops_coords_top_left", XD_OPT_TEXT, AT(sizes.crops_coords_top_left), 0, 0, NULL,
        "TOP,LEFT", "offset of the crop in the original image as model input (default: 0,0) (%s)" },
      .families = XD_WORD_MICRO,
      .about.section = WHAT,
      .unused = xd_unused_size,
      .stored = XD_STORED_GIVEN },
    { { "target_size", XD_OPT_TEXT, AT(sizes.target_size), 0, 0, NULL, "HEIGHT,WIDTH",
        "target image size as model input (default: the result's size) (%s)" },
      .families = XD_WORD_MICRO,
      .about.section = WHAT,
      .unused = xd_unused_size,
      .stored = XD_STORED_GIVEN },
    { { "negative_original_size", XD_OPT_TEXT, AT(sizes.negative_original_size), 0, 0, NULL,
        "HEIGHT,WIDTH",
        "original size as input of the negative prompt (%s; default: as original_size)" },
      .families = XD_WORD_NEGATIVE_MICRO,
      .about.section = WHAT,
      .unused = xd_unused_negative_size,
      .stored = XD_STORED_GIVEN },
    { { "negative_crops_coords_top_left", XD_OPT_TEXT, AT(sizes.negative_crops_coords_top_left), 0,
        0, NULL, "TOP,LEFT", "crop offset as input of the negative prompt (%s; default: 0,0)" },
      .families = XD_WORD_NEGATIVE_MICRO,
      .about.section = WHAT,
      .unused = xd_unused_negative_crop,
      .stored = XD_STORED_GIVEN },
    { { "negative_target_size", XD_OPT_TEXT, AT(sizes.negative_target_size), 0, 0, NULL,
        "HEIGHT,WIDTH",
        "target size as input of the negative prompt (%s; default: as target_size)" },
      .families = XD_WORD_NEGATIVE_MICRO,
      .about.section = WHAT,
      .unused = xd_unused_negative_size,
      .stored = XD_STORED_GIVEN },
    { { "num_frames", XD_OPT_INT, AT(num_frames), 1, 100000, NULL, "N",
        "number of video frames (default: the model's)" },
      .about.section = WHAT,
      .about.main = 1 },
    { { "seconds", XD_OPT_REAL, AT(output.seconds), XD_ABOVE_ZERO, 1e5, NULL, "SECONDS",
        "video length, given in place of num_frames (rounded to a length that the model "
        "supports)" },
      .about.section = WHAT },
    { { "fps", XD_OPT_REAL, AT(fps), 0.01, 1000, NULL, "RATE",
        "video frames per second (default: the model's)" },
      .about.section = WHAT },
    { { "layers", XD_OPT_INT64, AT(layers), 1, 100, NULL, "N",
        "number of layers into which the image is separated (%s; default: the pipeline's)" },
      .families = XD_WORD_SEPARATES,
      .about.section = WHAT },
    { { "num_inference_steps", XD_OPT_INT, AT(num_inference_steps), 1, 1000, NULL, "N",
        "number of denoising steps (default: the model's)" },
      .about.section = HOW,
      .about.main = 1 },
    { { "guidance_scale", XD_OPT_REAL, AT(guidance_scale), 0, 1000, NULL, "G",
        "classifier-free guidance scale; 1 or less: none (%s: no guidance at 0)" },
      .families = XD_WORD_FROM_PROMPT,
      .about.section = HOW,
      .about.main = 1,
      .initial = -1,
      .unused = xd_unused_guidance_scale },
    { { "guidance_scale_2", XD_OPT_REAL, AT(guidance.guidance_scale_2), 0, 1000, NULL, "G",
        "guidance_scale in the second transformer's steps (%s; default: as guidance_scale)" },
      .families = XD_WORD_TWO_DITS,
      .about.section = GUIDANCE,
      .initial = -1,
      .unused = xd_unused_guidance_2 },
    { { "boundary_ratio", XD_OPT_REAL, AT(guidance.boundary_ratio), 0, 1, NULL, "SHARE",
        "timestep below which the second transformer runs, as a fraction of all timesteps (%s; "
        "default: the model's)" },
      .families = XD_WORD_TWO_DITS,
      .about.section = GUIDANCE,
      .initial = -1 },
    { { "true_cfg_scale", XD_OPT_REAL, AT(guidance.true_cfg_scale), 0, 1000, NULL, "G",
        "scale of true classifier-free guidance; 1: off (default: the pipeline's); for "
        "distilled models: %s" },
      .families = XD_WORD_DISTILLED,
      .about.section = GUIDANCE,
      .unused = xd_unused_true_cfg_scale },
    { { "guidance_rescale", XD_OPT_REAL, AT(guidance.guidance_rescale), 0, 1, NULL, "SHARE",
        "rescaling of the guided prediction to the standard deviation of the prompt's prediction; "
        "0: none, 1: full (default: the pipeline's) (%s)" },
      .families = XD_WORD_RESCALES,
      .about.section = GUIDANCE,
      .initial = -1,
      .unused = xd_unused_unguided,
      .stored = XD_STORED_GIVEN },
    { { "cfg_normalization", XD_OPT_REAL, AT(guidance.cfg_normalization), 0, 1000, "1", "FACTOR",
        "limit of the guided prediction's norm: FACTOR times the norm of the prompt's prediction; "
        "some models instead give each latent row or token the norm of the prompt's prediction "
        "(%s; 0: no limit; default: the pipeline's)" },
      .families = XD_WORD_NORMALIZES,
      .about.section = GUIDANCE,
      .initial = -1,
      .unused = xd_unused_unguided,
      .stored = XD_STORED_GIVEN },
    { { "cfg_truncation", XD_OPT_REAL, AT(guidance.cfg_truncation), 0, 1, NULL, "TIME",
        "time at which guidance ends, from 0 (noise) to 1 (the image) (%s; default: 1)" },
      .families = XD_WORD_FROM_PROMPT,
      .about.section = GUIDANCE,
      .initial = 1,
      .unused = xd_unused_unguided,
      .stored = XD_STORED_GIVEN },
    { { "cfg_trunc_ratio", XD_OPT_REAL, AT(guidance.cfg_trunc_ratio), 0, 1, NULL, "SHARE",
        "fraction of the steps after which guidance ends (%s; default: 1)" },
      .families = XD_WORD_KEEPS_ROWS,
      .about.section = GUIDANCE,
      .initial = 1,
      .unused = xd_unused_unguided,
      .stored = XD_STORED_GIVEN },
    { { "skip_guidance_layers", XD_OPT_TEXT, AT(guidance.skip_guidance_layers), 0, 0, NULL, "N,N",
        "transformer layers that skip layer guidance omits (%s; default: none)" },
      .families = XD_WORD_SKIPS_LAYERS,
      .about.section = GUIDANCE,
      .unused = xd_unused_skipped_layers,
      .stored = XD_STORED_GIVEN },
    { { "skip_layer_guidance_scale", XD_OPT_REAL, AT(guidance.skip_layer_guidance_scale), -1000,
        1000, NULL, "G", "scale of skip layer guidance" },
      .about.section = GUIDANCE,
      .initial = 2.8,
      .unused = xd_unused_skipped_layers,
      .stored = XD_STORED_USED },
    { { "skip_layer_guidance_start", XD_OPT_REAL, AT(guidance.skip_layer_guidance_start), 0, 1,
        NULL, "SHARE", "start of skip layer guidance as a fraction of the steps" },
      .about.section = GUIDANCE,
      .initial = 0.01,
      .unused = xd_unused_skipped_layers,
      .stored = XD_STORED_USED },
    { { "skip_layer_guidance_stop", XD_OPT_REAL, AT(guidance.skip_layer_guidance_stop), 0, 1, NULL,
        "SHARE", "end of skip layer guidance as a fraction of the steps" },
      .about.section = GUIDANCE,
      .initial = 0.2,
      .unused = xd_unused_skipped_layers,
      .stored = XD_STORED_USED },
    { { "audio_guidance_scale", XD_OPT_REAL, AT(audio.audio_guidance_scale), 0, 1000, NULL, "G",
        "guidance_scale of the audio; 0: the same as for the video (%s; default: the pipeline's)" },
      .families = XD_WORD_AUDIO,
      .about.section = GUIDANCE,
      .initial = -1,
      .stored = XD_STORED_GIVEN },
    { { "audio_guidance_rescale", XD_OPT_REAL, AT(audio.audio_guidance_rescale), 0, 1, NULL,
        "SHARE",
        "guidance_rescale of the audio; 0: the same as for the video (%s; default: the "
        "pipeline's)" },
      .families = XD_WORD_AUDIO,
      .about.section = GUIDANCE,
      .initial = -1,
      .unused = xd_unused_unguided,
      .stored = XD_STORED_GIVEN },
    { { "modality_scale", XD_OPT_REAL, AT(audio.modality_scale), 0, 1000, NULL, "G",
        "scale of guidance away from a prediction without attention between video and audio (%s; "
        "1: off; default: the pipeline's)" },
      .families = XD_WORD_AUDIO,
      .about.section = GUIDANCE,
      .initial = -1,
      .stored = XD_STORED_GIVEN },
    { { "audio_modality_scale", XD_OPT_REAL, AT(audio.audio_modality_scale), 0, 1000, NULL, "G",
        "modality_scale of the audio; 0: the same as for the video (%s; default: the pipeline's)" },
      .families = XD_WORD_AUDIO,
      .about.section = GUIDANCE,
      .initial = -1,
      .stored = XD_STORED_GIVEN },
    { { "stg_scale", XD_OPT_REAL, AT(audio.stg_scale), 0, 1000, NULL, "G",
        "scale of spatio-temporal guidance: away from a prediction without attention in some "
        "blocks (%s; 0: off; default: the pipeline's)" },
      .families = XD_WORD_AUDIO,
      .about.section = GUIDANCE,
      .initial = -1,
      .unused = xd_unused_stg,
      .stored = XD_STORED_GIVEN },
    { { "audio_stg_scale", XD_OPT_REAL, AT(audio.audio_stg_scale), 0, 1000, NULL, "G",
        "stg_scale of the audio; 0: the same as for the video (%s; default: the pipeline's)" },
      .families = XD_WORD_AUDIO,
      .about.section = GUIDANCE,
      .initial = -1,
      .unused = xd_unused_stg,
      .stored = XD_STORED_GIVEN },
    { { "spatio_temporal_guidance_blocks", XD_OPT_TEXT, AT(audio.spatio_temporal_guidance_blocks),
        0, 0, NULL, "N,N",
        "blocks without attention for --stg_scale (%s; default: the pipeline's)" },
      .families = XD_WORD_AUDIO,
      .about.section = GUIDANCE,
      .unused = xd_unused_stg,
      .stored = XD_STORED_GIVEN },
    { { "use_dynamic_cfg", XD_OPT_FLAG, AT(guidance.use_dynamic_cfg), 0, 1, NULL, NULL,
        "raise the guidance scale from 1 over the steps, as in the examples of %s" },
      .families = XD_WORD_DYNAMIC_CFG,
      .about.section = GUIDANCE,
      .unused = xd_unused_unguided },
    { { "image", XD_OPT_TEXT, AT(images.image), 0, 0, NULL, "FILE",
        "input image (PNG, JPEG, WebP, GIF, PPM): start image, resized to the requested size "
        "(default size: the image's); for editing models, the image to edit" },
      .about.section = WHAT,
      .about.main = 1 },
    { { "last_image", XD_OPT_TEXT, AT(images.last_image), 0, 0, NULL, "FILE",
        "last frame of the video (%s)" },
      .families = XD_WORD_LAST_IMAGE,
      .about.section = IMAGES },
    { { "mask_image", XD_OPT_TEXT, AT(images.mask_image), 0, 0, NULL, "FILE",
        "inpainting mask: bright pixels are generated, dark pixels are kept" },
      .about.section = IMAGES },
    { { "control_image", XD_OPT_TEXT, AT(images.control_image), 0, 0, NULL, "FILE",
        "edges, depth or similar, which determine the shapes in the image (%s)" },
      .families = XD_WORD_CONTROLS,
      .about.section = IMAGES },
    { { "control_video", XD_OPT_TEXT, AT(images.control_video), 0, 0, NULL, "FILE",
        "video to change, or its edges, depth or poses (%s): a video file or folder of images. "
        "A video as --mask_image selects what changes; images (--image) show what appears" },
      .families = XD_WORD_CONTROL_VIDEO,
      .about.section = IMAGES },
    { { "pose_video", XD_OPT_TEXT, AT(driving.pose_video), 0, 0, NULL, "FILE",
        "video of poses for the character of --image (%s): a video file or folder of images" },
      .families = XD_WORD_DRIVES,
      .about.section = IMAGES },
    { { "face_video", XD_OPT_TEXT, AT(driving.face_video), 0, 0, NULL, "FILE",
        "video of a face, whose expressions the character gets (%s)" },
      .families = XD_WORD_DRIVES,
      .about.section = IMAGES },
    { { "mode", XD_OPT_TEXT, AT(driving.mode), 0, 0, NULL, "animate|replace",
        "replace: the character takes the place of the person that --mask_image marks in the "
        "control video (%s; default: replace with a control video, else animate)" },
      .families = XD_WORD_DRIVES,
      .about.section = IMAGES },
    { { "segment_frame_length", XD_OPT_INT, AT(driving.segment_frame_length), 0, 100000, NULL, "N",
        "frames that are generated together; a longer video has several segments (%s; default: "
        "the pipeline's)" },
      .families = XD_WORD_DRIVES,
      .about.section = IMAGES,
      .stored = XD_STORED_GIVEN },
    { { "prev_segment_conditioning_frames", XD_OPT_INT,
        AT(driving.prev_segment_conditioning_frames), 0, 100000, NULL, "N",
        "frames of a segment with which the next segment begins, 1 or 5 (%s; default: the "
        "pipeline's)" },
      .families = XD_WORD_DRIVES,
      .about.section = IMAGES,
      .stored = XD_STORED_GIVEN },
    { { "conditioning_scale", XD_OPT_TEXT, AT(images.conditioning_scale), 0, 0, NULL, "N,N",
        "influence of the control image or control video: a number, or one for each network or "
        "block (control networks, %s; default: 1)" },
      .families = XD_WORD_CONTROL_VIDEO,
      .about.section = IMAGES,
      .stored = XD_STORED_GIVEN },
    { { "frame_index", XD_OPT_TEXT, AT(images.frame_index), 0, 0, NULL, "N,N",
        "index of the first frame that each --image, or video, replaces (%s; default: 0)" },
      .families = XD_WORD_CONDITIONS,
      .about.section = IMAGES,
      .stored = XD_STORED_GIVEN },
    { { "condition_strength", XD_OPT_TEXT, AT(images.condition_strength), 0, 0, NULL, "S,S",
        "influence of each --image on the video's frames, 0 to 1 (%s; default: --strength, or 1)" },
      .families = XD_WORD_CONDITIONS,
      .about.section = IMAGES,
      .stored = XD_STORED_GIVEN },
    { { "image_cond_noise_scale", XD_OPT_REAL, AT(images.image_cond_noise_scale), 0, 100, NULL,
        "SCALE",
        "noise that a step adds to given frames, relative to the squared noise level; only for "
        "strength 1 (%s; default: the pipeline's)" },
      .families = XD_WORD_ADDS_NOISE,
      .about.section = IMAGES,
      .initial = -1,
      .stored = XD_STORED_GIVEN },
    { { "control_guidance_start", XD_OPT_TEXT, AT(images.control_guidance_start), 0, 0, NULL, "N,N",
        "start of the control image's effect, as a fraction of the steps (default: 0) (%s): a "
        "number for all control networks, or one for each network" },
      .families = XD_WORD_SIDES,
      .about.section = IMAGES,
      .stored = XD_STORED_GIVEN },
    { { "control_guidance_end", XD_OPT_TEXT, AT(images.control_guidance_end), 0, 0, NULL, "N,N",
        "end of the control image's effect, as a fraction of the steps (default: 1) (%s)" },
      .families = XD_WORD_SIDES,
      .about.section = IMAGES,
      .stored = XD_STORED_GIVEN },
    { { "control_mode", XD_OPT_TEXT, AT(images.control_mode), 0, 0, NULL, "N,N",
        "number of the control image's kind, for control networks that support several kinds "
        "(Union); or one number for each network (%s)" },
      .families = XD_WORD_SIDES,
      .about.section = IMAGES,
      .stored = XD_STORED_GIVEN },
    { { "control_preprocess", XD_OPT_TEXT, AT(images.control_preprocess), 0, 0, NULL, "NAME,NAME",
        "make control images of photos: canny, canny:LOW:HIGH, tile, tile:N, gray, blur, "
        "blur:SIGMA "
        "or none; one name, or one for each image" },
      .about.section = IMAGES,
      .stored = XD_STORED_GIVEN },
    { { "redux_image", XD_OPT_TEXT, AT(redux.image), 0, 0, NULL, "FILE",
        "image to vary: a prior (--redux) turns it into rows of the prompt, which may be empty "
        "(%s)" },
      .families = XD_WORD_PRIOR,
      .about.section = IMAGES },
    { { "prompt_embeds_scale", XD_OPT_TEXT, AT(redux.prompt_embeds_scale), 0, 0, NULL, "N,N",
        "weight of each --redux_image in the sum of their embeddings: one number, or one for each "
        "image (%s; default: 1)" },
      .families = XD_WORD_PRIOR,
      .about.section = IMAGES,
      .stored = XD_STORED_GIVEN },
    { { "pooled_prompt_embeds_scale", XD_OPT_TEXT, AT(redux.pooled_prompt_embeds_scale), 0, 0, NULL,
        "N,N",
        "weight of each --redux_image in the sum of the prompt's pooled embeddings (%s; default: "
        "1)" },
      .families = XD_WORD_PRIOR,
      .about.section = IMAGES,
      .stored = XD_STORED_GIVEN },
    { { "padding_mask_crop", XD_OPT_INT64, AT(images.padding_mask_crop), 0, 1e7, NULL, "PIXELS",
        "generate only the mask plus PIXELS on each side, and paste the result into the image" },
      .about.section = IMAGES,
      .initial = -1,
      .stored = XD_STORED_GIVEN },
    { { "no_auto_resize", XD_OPT_FLAG, AT(images.no_auto_resize), 0, 1, NULL, NULL,
        "do not resize the input image to a size of the model's training (%s)" },
      .families = XD_WORD_AUTO_RESIZES,
      .about.section = IMAGES,
      .stored = XD_STORED_GIVEN },
    { { "max_area", XD_OPT_INT64, AT(output.max_area), 1, 1e9, NULL, "PIXELS",
        "number of pixels of the image; width and height then set only the aspect ratio (%s; "
        "default: the model's)" },
      .families = XD_WORD_MAX_AREA,
      .about.section = WHAT },
    { { "strength", XD_OPT_REAL, AT(images.strength), XD_ABOVE_ZERO, 1, NULL, "S",
        "fraction of the steps to run on the input image (default: the pipeline's)" },
      .about.section = IMAGES },
    { { "seed", XD_OPT_SEED, AT(seed), 0, 0, NULL, "N",
        "noise seed; image i uses seed + i (default 0); with -1 a random seed, which is "
        "printed" },
      .about.section = WHAT,
      .about.main = 1 },
    { { "num_images_per_prompt", XD_OPT_INT, AT(num_images_per_prompt), 1, 100000, NULL, "N",
        "number of images per prompt (default 1)" },
      .about.section = WHAT,
      .about.main = 1,
      .initial = 1 },
    { { "max_sequence_length", XD_OPT_INT, AT(texts.max_sequence_length), 1, 16384, NULL, "N",
        "maximum number of text tokens; longer prompts are truncated (default: the pipeline's)" },
      .about.section = WHAT },
    { { "scheduler", XD_OPT_TEXT, AT(schedule.scheduler), 0, 0, NULL, "NAME",
        "sampler (default: the model's): %s, or the name of a diffusers class" },
      .list = xd_sampler_names,
      .about.section = HOW,
      .about.main = 1 },
    { { "flow_shift", XD_OPT_REAL, AT(schedule.flow_shift), XD_ABOVE_ZERO, 1000, NULL, "SHIFT",
        "timestep shift of rectified flow to higher noise (default: the scheduler's)" },
      .about.section = SCHEDULER,
      .stored = XD_STORED_GIVEN },
    { { "shift_terminal", XD_OPT_REAL, AT(schedule.shift_terminal), 0, 1, NULL, "LEVEL",
        "terminal noise level of flow-euler; 0: no shift (default: the scheduler's)" },
      .about.section = SCHEDULER,
      .initial = -1 },
    { { "max_timesteps", XD_OPT_REAL, AT(schedule.max_timesteps), 0, 2, NULL, "ANGLE",
        "first timestep of the sampler scm in radians (default: 1.5708)" },
      .about.section = SCHEDULER,
      .initial = -1 },
    { { "intermediate_timesteps", XD_OPT_REAL, AT(schedule.intermediate_timesteps), 0, 2, NULL,
        "ANGLE",
        "second timestep of the sampler scm in radians (default: 1.3). Only for requests of 2 "
        "steps; 0: steps of equal length" },
      .about.section = SCHEDULER,
      .initial = -1 },
    { { "decode_timestep", XD_OPT_REAL, AT(decoding.decode_timestep), 0, 1, NULL, "TIME",
        "VAE decoder's timestep (%s; default: 0)" },
      .families = XD_WORD_DECODES_AT,
      .about.section = HOW,
      .initial = -1,
      .unused = xd_unused_decoding,
      .stored = XD_STORED_GIVEN },
    { { "decode_noise_scale", XD_OPT_REAL, AT(decoding.decode_noise_scale), 0, 1, NULL, "SHARE",
        "share of noise in the latents that are decoded (%s; default: as decode_timestep)" },
      .families = XD_WORD_DECODES_AT,
      .about.section = HOW,
      .initial = -1,
      .unused = xd_unused_decoding,
      .stored = XD_STORED_GIVEN },
    { { "denoise_strength", XD_OPT_REAL, AT(upsampling.denoise_strength), 0, 1, NULL, "S",
        "with --latent_upsampler: fraction of the steps of a second pass that denoises "
        "enlarged latents (%s; default: 0, no second pass)" },
      .families = XD_WORD_DENOISES_PART,
      .about.section = UPSAMPLER,
      .initial = -1,
      .stored = XD_STORED_GIVEN },
    { { "upsampled_num_inference_steps", XD_OPT_INT64, AT(upsampling.num_inference_steps), 1, 1000,
        NULL, "N", "number of steps of the second denoising pass (default: as in the first)" },
      .about.section = UPSAMPLER,
      .unused = xd_unused_second_pass,
      .stored = XD_STORED_GIVEN },
    { { "upsampled_timesteps", XD_OPT_TEXT, AT(upsampling.timesteps), 0, 0, NULL, "N,N",
        "timesteps of the second denoising pass (default: as in the first)" },
      .about.section = UPSAMPLER,
      .unused = xd_unused_second_pass,
      .stored = XD_STORED_GIVEN },
    { { "upsampled_sigmas", XD_OPT_TEXT, AT(upsampling.sigmas), 0, 0, NULL, "N,N",
        "noise levels of the second pass (default: as in the first, or the pipeline's)" },
      .about.section = UPSAMPLER,
      .unused = xd_unused_second_pass,
      .stored = XD_STORED_GIVEN },
    { { "adain_factor", XD_OPT_REAL, AT(upsampling.adain_factor), 0, 10, NULL, "SHARE",
        "match mean and standard deviation of the enlarged latents to those of the latents before; "
        "0: not, 1: fully (default: 0)" },
      .about.section = UPSAMPLER,
      .unused = xd_unused_upsampling,
      .stored = XD_STORED_GIVEN },
    { { "tone_map_compression_ratio", XD_OPT_REAL, AT(upsampling.tone_map_compression_ratio), 0, 1,
        NULL, "RATIO",
        "compression of large values in enlarged latents: 0 none, 1 most (default: 0)" },
      .about.section = UPSAMPLER,
      .unused = xd_unused_upsampling,
      .stored = XD_STORED_GIVEN },
    { { "hires_scale", XD_OPT_REAL, AT(hires.scale), 1, 16, NULL, "S",
        "enlarge the latents by S and denoise them again, for an image of S times the width and "
        "height (default: no second pass)" },
      .about.section = HOW,
      .stored = XD_STORED_GIVEN },
    { { "hires_strength", XD_OPT_REAL, AT(hires.strength), XD_ABOVE_ZERO, 1, NULL, "S",
        "fraction of the steps of the second pass that run (default: 0.7)" },
      .about.section = HOW,
      .unused = xd_unused_hires,
      .stored = XD_STORED_GIVEN },
    { { "hires_steps", XD_OPT_INT64, AT(hires.steps), 1, 1000, NULL, "N",
        "steps of the second pass (default: as the first)" },
      .about.section = HOW,
      .unused = xd_unused_hires,
      .stored = XD_STORED_GIVEN },
    { { "hires_upscaler", XD_OPT_TEXT, AT(hires.upscaler), 0, 0, "bilinear nearest", "NAME",
        "interpolation of the latents: bilinear (default) or nearest" },
      .about.section = HOW,
      .unused = xd_unused_hires,
      .stored = XD_STORED_GIVEN },
    { { "use_karras_sigmas", XD_OPT_FLAG, AT(schedule.use_karras_sigmas), -1, 1, NULL, NULL,
        "noise levels spaced as by Karras et al. 2022" },
      .about.section = SCHEDULER },
    { { "use_exponential_sigmas", XD_OPT_FLAG, AT(schedule.use_exponential_sigmas), -1, 1, NULL,
        NULL, "noise levels spaced exponentially" },
      .about.section = SCHEDULER },
    { { "use_beta_sigmas", XD_OPT_FLAG, AT(schedule.use_beta_sigmas), -1, 1, NULL, NULL,
        "noise levels spaced by a beta distribution" },
      .about.section = SCHEDULER },
    { { "use_flow_sigmas", XD_OPT_FLAG, AT(schedule.use_flow_sigmas), -1, 1, NULL, NULL,
        "use dpm++ or unipc for rectified-flow models" },
      .about.section = SCHEDULER },
    { { "stochastic_sampling", XD_OPT_FLAG, AT(schedule.stochastic_sampling), -1, 1, NULL, NULL,
        "draw new noise in every step of the sampler flow-euler" },
      .about.section = SCHEDULER },
    { { "solver_order", XD_OPT_INT, AT(schedule.solver_order), 1, 3, NULL, "N",
        "order of the sampler dpm++ or unipc (default: the scheduler's)" },
      .about.section = SCHEDULER },
    { { "algorithm_type", XD_OPT_TEXT, AT(schedule.algorithm_type), 0, 0, NULL, "NAME",
        "variant of dpm++: dpmsolver++ or sde-dpmsolver++ (default: the scheduler's)" },
      .about.section = SCHEDULER },
    { { "solver_type", XD_OPT_TEXT, AT(schedule.solver_type), 0, 0, NULL, "NAME",
        "solver of the sampler: midpoint or heun for dpm++, bh1 or bh2 for unipc (default: the "
        "scheduler's)" },
      .about.section = SCHEDULER },
    { { "timestep_spacing", XD_OPT_TEXT, AT(schedule.timestep_spacing), 0, 0,
        "linspace leading trailing", "NAME",
        "linspace, leading or trailing timestep spacing (default: the scheduler's)" },
      .about.section = SCHEDULER },
    { { "final_sigmas_type", XD_OPT_TEXT, AT(schedule.final_sigmas_type), 0, 0, "zero sigma_min",
        "NAME", "noise level of the last step: zero or sigma_min (default: the scheduler's)" },
      .about.section = SCHEDULER },
    { { "eta", XD_OPT_REAL, AT(schedule.eta), 0, 1, NULL, "SHARE",
        "fraction of new noise in each step of the samplers ddim and tcd (default: 0)" },
      .about.section = SCHEDULER,
      .initial = -1 },
    { { "sigmas", XD_OPT_TEXT, AT(schedule.sigmas), 0, 0, NULL, "N,N",
        "list of the noise levels of all steps, unshifted (for schedulers that support it)" },
      .about.section = SCHEDULER },
    { { "timesteps", XD_OPT_TEXT, AT(schedule.timesteps), 0, 0, NULL, "N,N",
        "list of the timesteps of all denoising steps (for schedulers that support it)" },
      .about.section = SCHEDULER },
    { { "previews", XD_OPT_INT, AT(previews), 1, 1000, NULL, "N",
        "number of previews per image (default: none)" },
      .about.section = OUTPUT,
      .outside = 1 },
    { { "preview_every", XD_OPT_INT, AT(previews.every), 1, 1000, NULL, "STEPS",
        "make a preview every STEPS steps (default: none)" },
      .about.section = OUTPUT,
      .outside = 1 },
    { { "cache", XD_OPT_TEXT, AT(savings.cache), 0, 0, NULL, "NAME:OPTIONS",
        "reuse blocks that change little between steps (default none). Faster, with a changed "
        "image: %s" },
      .list = list_caches,
      .about.section = HOW,
      .about.main = 1,
      .about.saves = 1,
      .off = "none" },
    { { "rng", XD_OPT_TEXT, AT(noise.rng), 0, 0, "philox torch", "NAME",
        "noise: philox (default), or torch as diffusers" },
      .about.section = WHAT,
      .text = "philox" },
    { { "latents", XD_OPT_TEXT, AT(latents), 0, 0, NULL, "FILE",
        "initial noise in place of the seed's: a tensor of all images in a .safetensors or .npy "
        "file, as the argument latents of diffusers" },
      .about.section = WHAT },
    { { "attention", XD_OPT_TEXT, AT(savings.attention), 0, 0, "auto int8", "HOW",
        "type of attention scores; int8 is faster and less exact (default: auto)" },
      .about.section = SAVINGS,
      .about.saves = 1,
      .off = "auto",
      .unused = xd_unused_int8,
      .stored = XD_STORED_GIVEN },
    { { "gemm", XD_OPT_TEXT, AT(savings.gemm), 0, 0, "auto fp8", "HOW",
        "fp8 also quantizes the inputs of linear layers, which is faster and less exact "
        "(default: auto). Needs --weights_dtype fp8 and a GPU" },
      .about.section = SAVINGS,
      .about.saves = 1,
      .off = "auto",
      .unused = xd_unused_fp8,
      .stored = XD_STORED_GIVEN },
    { { "attention_window", XD_OPT_TEXT, AT(savings.attention_window), 0, 0, NULL, "T,H,W",
        "local attention in a window of T frames, H rows and W columns of tokens (0: all), or one "
        "number: the tokens on each side of a token" },
      .about.section = SAVINGS,
      .about.saves = 1,
      .unused = xd_unused_window },
    { { "fast_attn", XD_OPT_TEXT, AT(savings.fast_attn), 0, 0, NULL, "FILE|WAYS",
        "reuse attention outputs of earlier steps (DiTFastAttn). FILE: a table of xdit calibrate "
        "or of xDiT. WAYS: share, window, window+cfg, full+cfg, full; list with one of these modes "
        "for each step, repeated for further steps" },
      .about.section = SAVINGS,
      .about.saves = 1,
      .off = "none" },
    { { "reference_interval", XD_OPT_INT64, AT(savings.reference_interval), 0, 1e6, NULL, "STEPS",
        "number of steps after which keys and values of reference images are computed again; 0: "
        "never (default: 1)" },
      .about.section = SAVINGS,
      .about.saves = 1,
      .initial = 1,
      .unused = xd_unused_references,
      .stored = XD_STORED_GIVEN },
    { { "enable_tiling", XD_OPT_FLAG, AT(output.enable_tiling), 0, 1, NULL, NULL,
        "decode the latents in overlapping tiles, which needs less memory" },
      .about.section = MACHINE,
      .outside = 1,
      .unused = xd_unused_tiles,
      .stored = XD_STORED_GIVEN },
    { { "vae_tile_size_height", XD_OPT_INT64, AT(output.vae_tile_size_height), 1, 1e6, NULL,
        "PIXELS", "height of a VAE tile (default: as in diffusers)" },
      .about.section = MACHINE,
      .outside = 1,
      .unused = xd_unused_tiles,
      .stored = XD_STORED_GIVEN },
    { { "vae_tile_size_width", XD_OPT_INT64, AT(output.vae_tile_size_width), 1, 1e6, NULL, "PIXELS",
        "width of a VAE tile (default: as in diffusers)" },
      .about.section = MACHINE,
      .outside = 1,
      .unused = xd_unused_tiles,
      .stored = XD_STORED_GIVEN },
    { { "vae_tile_overlap_height", XD_OPT_INT64, AT(output.vae_tile_overlap_height), 0, 1e6, NULL,
        "PIXELS", "rows shared by two VAE tiles (default: as diffusers)" },
      .about.section = MACHINE,
      .outside = 1,
      .initial = -1,
      .unused = xd_unused_tiles,
      .stored = XD_STORED_GIVEN },
    { { "vae_tile_overlap_width", XD_OPT_INT64, AT(output.vae_tile_overlap_width), 0, 1e6, NULL,
        "PIXELS", "columns shared by two VAE tiles (default: as diffusers)" },
      .about.section = MACHINE,
      .outside = 1,
      .initial = -1,
      .unused = xd_unused_tiles,
      .stored = XD_STORED_GIVEN },
    { { "output_quality", XD_OPT_INT64, AT(output.output_quality), 0, 100, NULL, "N",
        "JPEG and WebP quality, 0 to 100 (default: 95)" },
      .about.section = OUTPUT,
      .outside = 1,
      .initial = -1 },
    { { "determinism_check", XD_OPT_TEXT, AT(output.determinism_check), 0, 0, "none steps blocks",
        "steps",
        "compare hashes of ranks' latents after each step (blocks: also of hidden states) and "
        "fail if they differ where they must be equal (default: none)" },
      .about.section = OUTPUT,
      .outside = 1,
      .off = "none" },
    { { "checkpoint", XD_OPT_TEXT, AT(checkpoint.dir), 0, 0, NULL, "DIR",
        "save unfinished images in DIR after their steps, and continue the images that DIR "
        "already has" },
      .about.section = OUTPUT,
      .outside = 1 },
    { { "checkpoint_steps", XD_OPT_INT64, AT(checkpoint.steps), 0, 100000, NULL, "N",
        "save a checkpoint after every N-th step (default: 1)" },
      .about.section = OUTPUT,
      .outside = 1 },
    { { "checkpoint_seconds", XD_OPT_REAL, AT(checkpoint.seconds), 0, 86400, NULL, "SECONDS",
        "minimum seconds between two checkpoints (default: 0)" },
      .about.section = OUTPUT,
      .outside = 1 },
    { { "no_audio", XD_OPT_FLAG, AT(audio.no_audio), 0, 1, NULL, NULL,
        "do not decode the video's sound (%s)" },
      .families = XD_WORD_SOUND,
      .about.section = OUTPUT,
      .outside = 1 },
    { { "no_resolution_binning", XD_OPT_FLAG, AT(output.no_resolution_binning), 0, 1, NULL, NULL,
        "do not round width and height to a size of the model's training" },
      .about.section = WHAT,
      .unused = xd_unused_trained_sizes },
};

enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert(sizeof rows / sizeof *rows <= XD_OPTION_ROWS, "too many options of a request");

const xd_request_row *xd_request_rows(int *n)
{
    *n = ROWS;
    return rows;
}

/* Returns 1 if the sampler at index `at` is the first one in the list with its
 * stable-diffusion-webui name. Of several samplers with the same webui name, only the first is
 * listed. */
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

/* ---- completing the help texts ------------------------------------------------------------ */

static xd_option options[ROWS]; /* the options of all rows, with completed help texts */

static void write_help(void)
{
    static xd_text_buf text[ROWS];
    for (int i = 0; i < ROWS; i++) {
        const char *help = rows[i].option.help, *gap = strstr(help, "%s");
        options[i] = rows[i].option;
        if (!gap)
            continue;
        xd_buf_add(&text[i], "%.*s", (int)(gap - help), help);
        if (rows[i].list)
            rows[i].list(&text[i]);
        else
            xd_buf_add(&text[i], "%s", xd_family_says(rows[i].families));
        xd_buf_add(&text[i], "%s", gap + 2);
        options[i].help = text[i].failed ? help : text[i].p;
    }
}

const xd_option *xd_request_options(int *n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, write_help);
    *n = ROWS;
    return options;
}

static const xd_request_row *row_of(const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].option.name, name) == 0)
            return &rows[i];
    return NULL;
}

const xd_option_about *xd_request_option_about(const char *name)
{
    const xd_request_row *row = row_of(name);
    return row ? &row->about : NULL;
}

/* ---- reading and checking values ---------------------------------------------------------- */

static int is_int(const xd_option *o)
{
    return o->kind == XD_OPT_INT || o->kind == XD_OPT_FLAG;
}

static const char *text_of(const xd_option *o, const xd_request *r)
{
    return *(const char *const *)(const void *)((const char *)r + o->offset);
}

static double number_of(const xd_option *o, const xd_request *r)
{
    const void *at = (const char *)r + o->offset;
    return o->kind == XD_OPT_REAL ? *(const double *)at
           : is_int(o)            ? *(const int *)at
                                  : (double)*(const int64_t *)at;
}

void xd_request_init_size(xd_request *r, size_t size)
{
    xd_request own = { .size = 0 };
    for (int i = 0; i < ROWS; i++) {
        const xd_option *o = &rows[i].option;
        void            *at = (char *)&own + o->offset;
        if (o->kind == XD_OPT_TEXT)
            *(const char **)at = rows[i].text;
        else if (o->kind == XD_OPT_REAL)
            *(double *)at = rows[i].initial;
        else if (is_int(o))
            *(int *)at = (int)rows[i].initial;
        else
            *(int64_t *)at = (int64_t)rows[i].initial;
    }
    xd_record_init(r, size);
    xd_record_write(r, &own, sizeof own, "xd_request", NULL);
}

int xd_request_gives_row(const xd_request_row *row, const xd_request *r)
{
    const xd_option *o = &row->option;
    if (o->kind != XD_OPT_TEXT)
        return number_of(o, r) != row->initial;
    const char *text = text_of(o, r);
    return text && *text && !(row->text && strcmp(text, row->text) == 0) &&
           !(row->off && strcmp(text, row->off) == 0);
}

int xd_request_gives(const xd_request *r, const char *name)
{
    const xd_request_row *row = row_of(name);
    return row && xd_request_gives_row(row, r);
}

int xd_request_uses(const xd_request_row *row, const xd_job *j, int usual)
{
    char why[256] = "";
    if (row->unused && (usual || xd_request_gives_row(row, j->r)))
        row->unused(j, why);
    return !*why && (usual || xd_request_gives_row(row, j->r));
}

void xd_request_value(const xd_request_row *row, const xd_request *r, xd_text_buf *b)
{
    if (row->option.kind == XD_OPT_TEXT)
        xd_buf_add(b, "%s", text_of(&row->option, r));
    else if (row->option.kind == XD_OPT_FLAG)
        xd_buf_add(b, "%s", number_of(&row->option, r) > 0 ? "true" : "false");
    else
        xd_buf_add(b, "%.10g", number_of(&row->option, r));
}

uint64_t xd_request_saved(const xd_job *j)
{
    uint64_t set = 0;
    for (int i = 0, bit = 0; i < ROWS; i++)
        if (rows[i].about.saves)
            set |= (uint64_t)xd_request_uses(&rows[i], j, 0) << bit++;
    return set;
}

static xd_status check_text(const xd_option *o, const char *text, xd_err *e)
{
    size_t n = text ? strlen(text) : 0;
    for (const char *p = o->choices; text && p && *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == n && memcmp(p, text, n) == 0)
            return XD_OK;
    return !text || !o->choices ? XD_OK
                                : xd_fail(e, XD_EINVAL, "%s is \"%s\"; it can be one of: %s",
                                          o->name, text, o->choices);
}

static xd_status check_number(const xd_option *o, double v, xd_err *e)
{
    if (o->kind == XD_OPT_FLAG || o->kind == XD_OPT_SEED || (v >= o->min && v <= o->max))
        return XD_OK;
    if (o->min > 0 && o->min <= XD_ABOVE_ZERO)
        return xd_fail(e, XD_EINVAL, "%s is %.10g; it must be above 0 and up to %.10g", o->name, v,
                       o->max);
    return xd_fail(e, XD_EINVAL, "%s is %.10g; it must be from %.10g to %.10g", o->name, v, o->min,
                   o->max);
}

xd_status xd_request_check(const xd_request *r, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; i < ROWS && s == XD_OK; i++) {
        const xd_option *o = &rows[i].option;
        if (o->kind == XD_OPT_TEXT)
            s = check_text(o, text_of(o, r), e);
        /* the range is checked only for options that the request gives */
        else if (xd_request_gives_row(&rows[i], r))
            s = check_number(o, number_of(o, r), e);
    }
    return s;
}
