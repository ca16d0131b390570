/* job.h - xd_job, a generation request that was checked against the model and completed with
 * default values. */
#ifndef XD_PIPELINE_JOB_H
#define XD_PIPELINE_JOB_H

#include "base/saver.h"
#include "io/inpaint.h"
#include "pipeline/attn_table.h"
#include "pipeline/context.h"
#include "pipeline/step_cache.h"
#include "xdit/xdit.h"

/* Input image of a request that generates only a rectangle of an image (padding_mask_crop). Pixels
 * outside the rectangle are kept. */
typedef struct xd_job_paste {
    /* pixels of the complete image and of the mask as they were read, on rank 0 */
    uint8_t *rgb, *grey;
    xd_grid  size; /* size of the complete image in pixels */
    xd_box   box;  /* rectangle of the image that is generated */
} xd_job_paste;

/* An input image or video that fixes certain frames of the generated video. */
typedef struct xd_condition {
    /* index of the first frame of the generated video that the image or video fixes */
    int64_t index;
    double  strength; /* influence of the image or video on its frames, from 0 to 1 */
    int64_t frames;   /* number of frames of the image or video that are used */
    /* `latents` is the number of latent frames of the image or video. The first `leading` of them
     * are placed before the generated video's latent frames, from latent frame `at` on. The latent
     * frames of the image or video after the first `leading` ones are mixed with the generated
     * video's latent frames. */
    int64_t latents, leading, at;
} xd_condition;

/* Sizes in pixels that a transformer reads as conditions (xd_request_sizes), each with a vertical
 * and a horizontal number. If `original` is 0, the model's default is used. */
typedef struct xd_job_size { double original[2], crop[2], target[2]; } xd_job_size;

/* Weights with which the predictions of the guidance passes are combined, for the video or for its
 * audio. */
typedef struct xd_job_stream { double guidance, modality, stg, rescale; } xd_job_stream;
enum { XD_VIDEO_STREAM, XD_AUDIO_STREAM, XD_JOB_STREAMS };

/* Times that decide when the ranks' speeds are measured again (adapt.h). */
typedef struct xd_pace {
    /* seconds of the fastest step since the ranks' shares last changed; 0: no step yet */
    double fastest;
    double tested_s; /* time at which the ranks' speeds were last measured */
    double wait_s;   /* minimum number of seconds between tested_s and the next measurement */
    int    slow;     /* number of slow steps since the last step that was not slow */
} xd_pace;

/* Videos of a request that drive a character. */
enum { XD_DRIVE_POSE, XD_DRIVE_FACE, XD_DRIVE_BACK, XD_DRIVE_MASK, XD_DRIVES };
typedef struct xd_job_driven {
    /* [n,rows,cols,K] frames of the videos, on rank 0; the face video and the mask, of which each
     * latent cell has one grey level, also on all other ranks. */
    uint8_t *video[XD_DRIVES];
    int64_t  n[XD_DRIVES];
    float  **pose; /* [segments] moments [t,h,w,2C] of the pose video, on every rank */
} xd_job_driven;

typedef struct xd_job {
    xd_context               *ctx;
    const xd_request         *r;
    /* Fields for requests that denoise twice, first in a small size (upsampling.h). given: the
     * program's request, from which the changed copy `own` for this denoising is made; NULL: `r` is
     * the program's request. small: the job of the denoising in the small size, malloc'ed; NULL:
     * the request denoises only once. */
    const xd_request         *given;
    xd_request                own;
    struct xd_job            *small;
    /* 1: denoising starts from the enlarged latents of a smaller image */
    int                       enlarged;
    /* [t,C,h,w] latents with noise from which denoising of the current image starts, on every rank
     * of the replica; NULL: denoising starts from noise */
    float                    *start_latents;
    /* number of steps in the earlier denoising loops of this request */
    int                       steps_before;
    /* number of steps in all denoising loops of this request */
    int                       all_steps;
    const struct xd_role_row *role; /* role of the input images (image_roles.h) */
    /* height and width in pixels that the request sets (asked), and those of the generated image
     * (size) */
    int64_t                   asked[2], size[2];
    /* sizes that the transformer reads as conditions: with the prompt, and with the negative
     * prompt */
    xd_job_size               sizes[2];
    int64_t                   frames; /* frames of the result; 1 for an image */
    /* Number of segments in which a video is generated, one after the other, and the index of the
     * current segment. segments 0: all frames are generated together. */
    int                       segments, segment;
    int64_t                   overlap;  /* number of frames that two segments share */
    int                       channels; /* channels of the result's pixels, 3 or 4 (with alpha) */
    /* Number of frames that the autoencoder decodes, of which only the last `frames` frames are
     * kept. */
    int64_t                   all_frames;
    double        fps;      /* frames per second of a video file; 0: the result is an image */
    int64_t       cells[3]; /* size of the latents: latent frames, rows and columns */
    /* properties of the autoencoder, with the tile sizes that the request sets */
    xd_vae_info   vae;
    /* Number of latent frames at the start that only complete a token of several frames and are not
     * decoded. */
    int64_t       spare;
    int64_t       lat[4];           /* extents of the latents on the host: t, C, h, w */
    int64_t       numbers;          /* number of elements of the latents */
    int64_t       tokens, features; /* number of image tokens; number of features of a token */
    /* shape of the audio latents on the host: channels C, number of tokens, features of a token
     * divided by C */
    int64_t       audio[3];
    int64_t       audio_numbers; /* number of elements of the audio latents; 0: no audio */
    /* Audio latents, and audio samples [n,channels] from -1 to 1, of the current image, on ranks
     * that decode; NULL before they are computed and after the result has taken them. */
    float        *audio_latents, *wave;
    xd_layout     lay;
    xd_usual      usual; /* the model's defaults for the request */
    /* maximum number of network evaluations per step: 1; 2 with guidance; more if an evaluation
     * leaves out or changes blocks */
    int           npass;
    /* Kind of each guidance pass (network evaluation in a step). The first guidance pass, number 0,
     * reads the prompt. */
    xd_pass_kind  kinds[XD_MAXPASS];
    /* Guidance weights of video and of audio, for a pipeline that also generates audio
     * (recipe.audio_guidance above 0). */
    xd_job_stream streams[XD_JOB_STREAMS];
    /* number of network evaluations in each step, only in predictions; 0: xd_job_passes computes
     * it */
    int           all_passes;
    /* [layers] 1 for each layer that the third guidance pass skips; NULL: steps have no third
     * guidance pass. */
    uint8_t      *skips;
    /* [layers] 1 for each block in which one guidance pass uses the attention values V as the
     * output of self-attention, for video and audio (stg_scale). NULL: no block. */
    uint8_t      *perturbs;
    /* guidance scale that combines the predictions with the prompt and with the negative prompt
     * (xd_job_guidance) */
    double        guidance;
    double        distilled; /* guidance scale input of the transformer, or NaN */
    /* Fraction of the training timesteps below which the second transformer is used. If `boundary`
     * is negative, the model has only one transformer. */
    double        boundary;
    double        guidance_2; /* guidance scale of the steps that the second transformer computes */
    int           both;       /* 1: both transformers of the model stay loaded (xd_memory_plan) */
    int           loads[2];   /* number of times that the request has loaded each transformer */
    double        strength;   /* strength of the initial image; 0: the request has no image */
    int           max_text, images;
    /* Window of the option attention_window: either its size t, h, w in tokens; or -1, 0 and the
     * number of neighbour tokens on each side of a token. If all three are 0, attention has no
     * window. */
    int64_t       window[3];
    /* Table that tells in which blocks and steps DiTFastAttn reuses attention outputs. If ways.way
     * is NULL, no output is reused. */
    xd_attn_table ways;
    /* 1: a callback of the request selects which images are generated (xd_job_pick) */
    int           picks;
    /* indices of generated images, ascending; NULL: all images are generated */
    int          *todo, ntodo;
    /* hash of the model's files for checkpoints, computed once because the hash needs all files */
    uint64_t      model_hash;
    /* 1 + the file descriptor that holds the lock of the checkpoint folder; 0: no lock */
    int           locked;
    /* for each image, number of steps that its checkpoint contains; NULL: no checkpoint */
    int32_t      *finished;
    double        saved_s; /* time of the last checkpoint; 0: no checkpoint was written */
    int           copies;  /* 1: this rank writes the copy of the checkpoint on a second host */
    xd_saver     *saver;   /* thread that writes checkpoint files; NULL: nothing was written yet */
    xd_pace       pace;
    /* number of steps that the request sets: samp.steps plus the steps that `strength` skips */
    int           asked_steps;
    const xd_sampler *sampler;
    xd_sampling       samp;
    /* schedule of the audio's denoising; if audio_samp.def is NULL, audio uses the video's
     * schedule */
    xd_sampling       audio_samp;
    xd_counts      step_ops; /* FLOPs and bytes of the first step, as counted without computing */
    xd_cache_spec  cache;
    /* how often a step cache skipped the middle blocks of the transformer [0], and how often it
     * could have skipped them [1] */
    int64_t        cached[2];
    /* [steps][xd_step_hash_count] hashes of the current image on every rank of the replica; NULL:
     * the request does not set determinism_check. */
    xd_step_hash  *hashes;
    /* [nchanges] for each step, the change since the step before that the step cache measured */
    xd_cache_pair *changes;
    int            nchanges, max_changes;
    double         start_s;
    double         away_s;          /* seconds spent in the callback on_turn (yield.h) */
    double         away_reported_s; /* value of away_s at the last progress report */
    /* 1: this rank computes and may call the callback on_turn while it computes (yield.h) */
    int            may_yield;
    /* Number of image tokens at the start whose content an input image fixes; 0: none. */
    int64_t        held;
    int            decoded; /* index of the image that is being decoded */
    /* [H,W,3] initial image or control image (host); NULL: none or freed */
    float         *image;
    /* [h,w,2C] mean and log-variance of the latents of `image`, in host memory of every rank; NULL:
     * no image */
    float         *moments;
    /* Pixels and moments of the initial image (without grey in the masked area), if denoising
     * starts from it and the transformer also reads `image` as an input. If start_image and
     * start_moments are NULL, denoising starts from pure noise. */
    float         *start_image, *start_moments;
    /* [H,W] inpainting mask, 1 for pixels to generate, 0 for pixels to keep. Every rank holds the
     * mask when the input image is encoded. */
    uint8_t       *mask;
    /* Pixels of the original image outside the rectangle that is generated (padding_mask_crop). If
     * paste.rgb is NULL, the complete image is generated. */
    xd_job_paste   paste;
    int64_t        rank0_images; /* number of input images of rank 0's request */
    int            nrefs;        /* number of reference images */
    int64_t        nref_tokens;  /* number of tokens of all reference images */
    float         *last_image;   /* [H,W,3] given last frame of a video, on the host; NULL: none */
    float         *condition;    /* [t,h,w,2C] moments of the conditioning video (role_frames.c), on
                                   the host of every rank; NULL: none */
    /* [images,3,S,S] input pixels of the image encoder, on all ranks that together compute this
     * encoder; NULL: no image */
    float         *encoder_pixels;
    /* Sizes of the reference images in pixels, and in tokens. */
    xd_grid        ref_size[XD_MAXREFS], refs[XD_MAXREFS];
    /* [H,W,3] reference images on rank 0; freed when they are encoded */
    /* [H,W,channels] reference images on rank 0; freed once encoded */
    float         *ref_pixels[XD_MAXREFS];
    /* Sizes in pixels to which reference images are resized for the text encoder
     * (prompt_images.h). */
    xd_grid        seen_size[XD_MAXREFS];
    /* [H,W,3] reference images, resized for the text encoder, on ranks that encode text; NULL: no
     * image. */
    uint8_t       *seen[XD_MAXREFS];
    /* [tokens,F] tokens of all reference images, on the host of every rank; NULL: none */
    float         *ref_tokens;
    /* [images][t,C,h,w] initial noise that the program passes, on every rank; NULL: noise is drawn
     * from the seed. */
    float         *given_noise;
    /* Control video (role_control_video.c). `leading` is the number of latent frames that the
     * control video's reference images add. `parts` is the number of clips that are encoded: 2 if
     * the areas of the video outside and inside the mask are encoded separately, 1 if both clips
     * would be equal. */
    int            leading, parts;
    /* [frames,H,W,3] the control video outside and inside its mask, on rank 0; freed when they are
     * encoded */
    float         *part_pixels[2];
    /* [t,h,w,2C] moments of the control video outside and inside its mask, and [h,w,2C] moments of
     * its reference images, on every rank */
    float         *part_moments[2], *leading_moments[XD_MAXREFS];
    /* Grey levels [t,H,W] of the control video's mask, one mask frame for each latent frame, on
     * every rank; `levels` is NULL if all levels are 255. */
    uint8_t       *levels;
    /* factors by which the outputs of side networks (hints) are multiplied; NULL: all are 1 */
    double        *hint_scales;
    /* [steps] for each step, the timestep of the following step, which some transformers read; else
     * NULL */
    double        *next_time;
    /* Input images and videos that fix frames of the generated video (role_conditions.c). */
    xd_condition   conditions[XD_MAXREFS];
    int            nconditions;
    /* [t] frames of the video for which each latent frame stands, and strength of each latent
     * frame; NULL if the request has no images that are given frames */
    xd_span       *frame_spans;
    float         *frame_strength;
    /* Weights of the images that the image prior reads (prior.h). */
    double         prior_scale[XD_MAXREFS], prior_pooled_scale[XD_MAXREFS];
    xd_job_driven  driven; /* videos that drive a character (role_driven.c) */
    /* [all_frames,S,S,3] pixels of the face video in the current segment, on every rank; NULL:
     * none */
    float         *face;
    /* Distance in the array hint_scales between the factors of one step and those of the next; 0:
     * all steps use the same factors. */
    int            hint_stride;
    /* for each control image, the number of its kind, such as canny or depth (xd_input.modes) */
    int            modes[XD_MAXSIDES];
    /* Pixels of the control images of side networks, and for each image the moments of its latents
     * or, for side networks that read pixels, features [h,w,C]. */
    float         *side_pixels[XD_MAXSIDES], *side_moments[XD_MAXSIDES];
} xd_job;

/* Copies the program's request `r` to `own`. The program may have been compiled with another
 * version of the library, so its struct may have another size. */
xd_status xd_request_take(xd_request *own, const xd_request *r, xd_err *e);
/* Kinds of texts that a request can have in addition to its prompts: negative prompts, and separate
 * prompts for the second and third text encoder. */
typedef enum xd_job_text_kind {
    XD_TEXT_NEGATIVE,
    XD_TEXT_2,
    XD_TEXT_3,
    XD_TEXT_NEGATIVE_2,
    XD_TEXT_NEGATIVE_3,
    XD_JOB_TEXTS
} xd_job_text_kind;
/* Returns the text of kind `kind` that belongs to prompt number `prompt`, or NULL if the request
 * has no text of this kind. */
const char       *xd_job_text(const xd_request *r, xd_job_text_kind kind, int64_t prompt);
/* Returns 1 if any prompt has a text of kind `kind` (xd_job_text_kind). */
int               xd_job_has_text(const xd_request *r, xd_job_text_kind kind);
const char       *xd_job_text_name(xd_job_text_kind kind);
/* Returns the number of negative prompts, which is 1 or the number of prompts. */
int               xd_job_negatives(const xd_request *r);
/* returns a hash of the prompts and all lists of texts */
uint64_t          xd_job_texts_hash(const xd_request *r);
/* Shortens the request's lists of prompts and other texts so that only the first prompt and its
 * texts remain. */
void              xd_job_first_texts(xd_request *r);
/* Refuses a request whose texts are not UTF-8 or whose lists of texts have a wrong length. */
xd_status         xd_job_check_texts(const xd_request *r, xd_err *e);
/* Returns 1 if the request has an initial or a reference image. */
static inline int xd_job_has_image(const xd_request *r)
{
    return r->images.image || r->images.image_pixels;
}
/* Returns 1 if the request has an image for the last frame of the video. */
static inline int xd_job_has_last(const xd_request *r)
{
    return r->images.last_image || r->images.last_pixels;
}
static inline int xd_job_has_mask(const xd_request *r)
{
    return r->images.mask_image || r->images.mask_pixels;
}
static inline int xd_job_has_control(const xd_request *r)
{
    return r->images.control_image || r->images.control_pixels;
}
static inline int xd_job_has_pose_video(const xd_request *r)
{
    return r->driving.pose_video || r->driving.pose_frames;
}
static inline int xd_job_has_face_video(const xd_request *r)
{
    return r->driving.face_video || r->driving.face_frames;
}
/* Returns the number of frames that the autoencoder encodes and decodes together and that are
 * kept. */
static inline int64_t xd_job_clip_frames(const xd_job *j)
{
    return j->segments ? j->all_frames : j->frames;
}
static inline int xd_job_has_control_video(const xd_request *r)
{
    return r->images.control_video || r->images.control_frames;
}
/* Returns 1 if a second pass generates a larger image from interpolated latents. */
static inline int xd_job_hires(const xd_request *r)
{
    return r->hires.scale > 0;
}
/* Returns 1 if the VAE encodes images or a control video of the request. */
int                   xd_job_encodes(const xd_job *j);
/* Returns 1 if the VAE is needed before the last denoising loop of the request. */
int                   xd_job_begins_with_vae(const xd_job *j);
/* Returns the number of input images. */
static inline int64_t xd_job_images(const xd_request *r)
{
    return xd_job_has_image(r) + r->images.nmore_images;
}
xd_status   xd_job_open(xd_job *j, xd_context *ctx, const xd_request *r, xd_err *e);
/* Opens the job of one denoising loop of a request. The caller must have set the job's context and
 * request. */
xd_status   xd_job_open_pass(xd_job *j, xd_err *e);
void        xd_job_close(xd_job *j);
/* Frees the images, masks and noise that were read for a job, and the encoded images. */
void        xd_job_close_inputs(xd_job *j);
/* Returns 1 if the request wants int8 attention scores and the device supports them in the compute
 * type. */
int         xd_job_int8_attention(const xd_job *j);
/* Returns 1 if the request's `gemm` option selects fp8 inputs of layers with fp8 weights. */
int         xd_job_fp8_gemms(const xd_job *j);
/* Reads the request's attention_window into j->window. Call xd_job_window after j->tokens is
 * set. */
xd_status   xd_job_window(xd_job *j, xd_err *e);
/* Returns 1 if some steps reuse an earlier step's keys and values of reference images. */
int         xd_job_keeps_references(const xd_job *j);
/* Returns the number of steps after which keys and values of reference images are recomputed; 0:
 * never. */
int64_t     xd_job_reference_interval(const xd_job *j);
/* Refuses a reference_interval that the plan or the options do not support. */
xd_status   xd_job_check_references(const xd_job *j, xd_err *e);
/* Warns on rank 0 about options of the request that have no effect. */
void        xd_job_warn_unused(const xd_job *j);
/* Sets j->sampler to the scheduler that the request names or, without a name, to the model's
 * scheduler. Reads the scheduler's config and the request's changes of the config to *cfg. */
xd_status   xd_job_sampler(xd_job *j, xd_sched_cfg *cfg, xd_err *e);
/* Opens j->audio_samp with j->sampler and the parameters of the video's schedule, if the audio has
 * its own scheduler. The request's flow_shift changes only the video's schedule, not the
 * audio's. */
xd_status   xd_job_audio_sampler(xd_job *j, const xd_steps *a, xd_err *e);
/* Copies the request's list of sigmas or timesteps to the schedule's parameters *a, and sets
 * j->asked_steps. **list is malloc'ed or NULL; the caller must free it after xd_sampling_open. */
/* Parses a list of numbers such as "1,0.5". Returns NULL if the list is invalid or out of memory.
 * key: name of the option for error messages; *n: number of numbers in the list. */
double     *xd_job_numbers(const char *key, const char *text, int *n, xd_err *e);
xd_status   xd_job_lists(xd_job *j, xd_steps *a, double **list, xd_err *e);
/* xd_job_sampler_json appends the request's changes of the scheduler config as JSON members, ",
 * \"eta\": 0.5". */
/* xd_job_next_times sets j->next_time if the transformer reads the timesteps of the next steps. */
xd_status   xd_job_next_times(xd_job *j, xd_err *e);
void        xd_job_sampler_json(const xd_job *j, xd_text_buf *b);
/* On rank 0, calls the request's callback that selects the images to generate; sends the selection
 * to all ranks. All ranks must call xd_job_pick. */
xd_status   xd_job_pick(xd_job *j, xd_err *e);
/* xd_job_image returns the index of the k-th generated image; xd_job_uses_prompt returns 1 if an
 * image of the prompt is generated. */
int         xd_job_image(const xd_job *j, int k);
int         xd_job_uses_prompt(const xd_job *j, int prompt);
/* Returns the weight of the prompt's prediction in the guided prediction of a step. The weights of
 * the prompt's and of the negative prompt's prediction sum to 1. */
double      xd_job_guidance(const xd_job *j, int step);
/* Sets the number and the kinds of guidance passes, and reads the request's guidance options for
 * video and audio to j->streams. Call xd_job_read_passes after the schedule and j->guidance are
 * set. */
xd_status   xd_job_read_passes(xd_job *j, xd_err *e);
/* Returns 1 if the transformer reads the negative prompt in any step of the job. */
int         xd_job_has_negative(const xd_job *j);
/* Returns 1 if guidance rescales the predictions of video and of audio separately, each by the sums
 * of its own elements. */
int         xd_job_rescales_streams(const xd_job *j);
/* Returns the noise level of a step of rectified flow: the fraction of noise in the latents. */
double      xd_job_level(const xd_job *j, int step);
/* xd_job_passes returns the number of passes (model evaluations) of a step: 1, 2 with guidance,
 * 3 with skipped layers, up to XD_MAXPASS for a pipeline with audio. xd_job_usual_passes returns
 * the number that most steps of the request have. */
int         xd_job_passes(const xd_job *j, int step);
int         xd_job_usual_passes(const xd_job *j);
/* Reads the request's original_size, crops_coords_top_left and target_size to j->sizes. Call
 * xd_job_read_sizes after j->size and j->role are set. */
xd_status   xd_job_read_sizes(xd_job *j, xd_err *e);
/* xd_job_layers reads a list of layer numbers, and xd_job_layer reads one number. xd_job_layers and
 * xd_job_layer mark the layers in the array *marks [layers], which is allocated if it is NULL. key:
 * name of the option. */
xd_status   xd_job_layers(const xd_job *j, const char *key, const char *text, uint8_t **marks,
                          xd_err *e);
xd_status   xd_job_layer(const xd_job *j, int layer, uint8_t **marks, xd_err *e);
/* Reads the request's skip_guidance_layers to j->skips. If the request skips layers, sets j->npass,
 * the number of guidance passes, to
 * 3. Call xd_job_read_skips after the schedule and j->npass are set. */
xd_status   xd_job_read_skips(xd_job *j, xd_err *e);
/* xd_job_has_skips returns 1 if the step has a guidance pass that skips layers. xd_job_first_skip
 * returns the first step that has one, or -1. */
int         xd_job_has_skips(const xd_job *j, int step);
int         xd_job_first_skip(const xd_job *j);
/* Returns 1 if guidance pass number `pass` skips layer number `layer`. */
int         xd_job_skips(const xd_job *j, int pass, int layer);
/* Returns the guidance scale of a step, which is j->guidance, or j->guidance_2 for steps of the
 * second transformer. */
double      xd_job_scale(const xd_job *j, int step);
/* Sets j->boundary, the noise level below which the second transformer is used, and j->guidance_2.
 * Refuses a schedule with steps for which the model has no transformer. */
xd_status   xd_job_boundary(xd_job *j, xd_err *e);
/* Returns the index of a step's transformer (xd_model_dit). */
int         xd_job_dit(const xd_job *j, int step);
/* Return the first step, and the step after the last one, of the range of consecutive steps around
 * `step` that one transformer computes. */
int         xd_job_dit_begin(const xd_job *j, int step);
int         xd_job_dit_end(const xd_job *j, int step);
/* Returns 1 if a step of the request needs transformer i. */
int         xd_job_uses_dit(const xd_job *j, int i);
/* xd_job_changes returns how often the steps of an image change to the other transformer.
 * xd_job_changes_again returns this number for later images, which includes the change back before
 * the first step. */
int         xd_job_changes(const xd_job *j);
int         xd_job_changes_again(const xd_job *j);
/* xd_job_no_guidance returns the guidance scale (1 or 0) at or below which guidance is off. */
/* xd_job_reads_guidance returns 1 if this transformer reads the guidance scale as an input although
 * other transformers of the pipeline do not. A step of such a transformer evaluates the transformer
 * once. */
int         xd_job_reads_guidance(const xd_job *j);
double      xd_job_no_guidance(const xd_job *j);
/* Returns `rows`, a number of image tokens, plus the number of padding tokens that the transformer
 * adds. */
int64_t     xd_job_padded(const xd_job *j, int64_t rows);
/* Returns the number of text tokens in the transformer: `rows` tokens from the text encoders plus
 * the learned tokens (registers) and padding tokens that the transformer adds. */
int64_t     xd_job_text_rows(const xd_job *j, int64_t rows);
/* Returns the number of tensors in the state between two steps: one for the latents, and the others
 * for the sampler's history. */
int         xd_job_state_tensors(const xd_job *j);
/* Returns the number of F32 elements of the result's pixels [frames,H,W,channels] in the requested
 * size. */
int64_t     xd_job_pixels(const xd_job *j);
/* Returns the name of the flag for classifier-free guidance: "guidance_scale", or "true_cfg_scale"
 * for a model that reads guidance_scale as an input. */
const char *xd_job_guide(const xd_job *j);

/* Returns the denoising schedule of audio, which is the video's schedule if audio has none of its
 * own. */
static inline xd_sampling *xd_job_audio_sampling(xd_job *j)
{
    return j->audio_samp.def ? &j->audio_samp : &j->samp;
}

#endif
