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

/* The input image of a request that generates only a part of an image (padding_mask_crop). Pixels
 * outside the part are kept. */
typedef struct xd_job_paste {
    /* pixels of the complete image and of the mask as they were read, on rank 0 */
    uint8_t *rgb, *grey;
    xd_grid  size; /* size of the complete image in pixels */
    xd_box   box;  /* the part of the image that is generated */
} xd_job_paste;

/* An image or a video that determines frames of the generated video. */
typedef struct xd_condition {
    /* index of the first frame of the generated video that the image or video determines */
    int64_t index;
    double  strength; /* influence of the image or video on its frames, from 0 to 1 */
    int64_t frames;   /* number of frames of the image or video that are used */
    /* `latents` is the number of latent frames of the image or video. The first `leading` latent
     * frames are placed before the generated video's latent frames, from latent frame `at` on. The
     * remaining ones are mixed with the generated video's latent frames. */
    int64_t latents, leading, at;
} xd_condition;

/* Sizes in pixels that a transformer reads as conditions (xd_request_sizes), each with a vertical
 * and a horizontal number. `original` 0: the model's default. */
typedef struct xd_job_size { double original[2], crop[2], target[2]; } xd_job_size;

/* Weights of the predictions of guidance passes, for the video or for its audio. */
typedef struct xd_job_stream { double guidance, modality, stg, rescale; } xd_job_stream;
enum { XD_VIDEO_STREAM, XD_AUDIO_STREAM, XD_JOB_STREAMS };

/* Times that decide when the ranks' speeds are measured again (adapt.h). */
typedef struct xd_pace {
    double fastest;  /* seconds of the fastest step with the present shares; 0: none yet */
    double tested_s; /* time of the last test */
    double wait_s;   /* seconds from there to the next test, at least */
    int    slow;     /* number of slow steps, in a row, up to now */
} xd_pace;

typedef struct xd_job {
    xd_context               *ctx;
    const xd_request         *r;
    /* Fields for two passes (upsampling.h). given: the program's request, of which `own` is this
     * pass's copy with changes; NULL: `r` is the program's request. small: the job of the first
     * pass, malloc'ed; NULL: there is only one pass. */
    const xd_request         *given;
    xd_request                own;
    struct xd_job            *small;
    int                       enlarged; /* 1: denoising starts from enlarged latents */
    /* [t,C,h,w] latents with noise from which denoising of the current image starts, on every rank
     * of the replica; NULL: denoising starts from noise */
    float                    *start_latents;
    int                       steps_before; /* number of steps in the passes before this one */
    int                       all_steps;    /* number of steps in all passes */
    const struct xd_role_row *role;         /* role of the input images (image_roles.h) */
    /* height and width in pixels: of the request (asked), and of the generated image (size) */
    int64_t                   asked[2], size[2];
    /* sizes that the transformer reads as conditions: with the prompt, and with the negative
     * prompt */
    xd_job_size               sizes[2];
    int64_t                   frames;   /* frames of the result; 1 for an image */
    int                       channels; /* channels of the result's pixels, 3 or 4 (with alpha) */
    /* Frames that the autoencoder decodes; only the last `frames` ones are kept. */
    int64_t                   all_frames;
    double        fps;      /* frames per second of a video file; 0: the result is an image */
    int64_t       cells[3]; /* size of the latents: latent frames, rows and columns */
    xd_vae_info   vae;      /* properties of the autoencoder, with the tiles of the request */
    /* Number of latent frames at the start that only pad a patch and are not decoded. */
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
    /* maximum number of passes per step: 1; 2 with guidance; more with passes that change blocks */
    int           npass;
    /* Kind of each guidance pass. Guidance pass 0 reads the prompt. */
    xd_pass_kind  kinds[XD_MAXPASS];
    /* Guidance of a pipeline with audio (recipe.audio_guidance above 0). */
    xd_job_stream streams[XD_JOB_STREAMS];
    /* number of passes of each step, only in predictions; 0: xd_job_passes computes it */
    int           all_passes;
    /* [layers] 1 for each layer that the third guidance pass skips; NULL: there is no third
     * pass. */
    uint8_t      *skips;
    /* [layers] 1 for each block in which a pass replaces the output of self-attention by the
     * values, for video and audio (stg_scale). NULL: no block. */
    uint8_t      *perturbs;
    double        guidance;  /* guidance scale that combines the two passes (xd_job_guidance) */
    double        distilled; /* guidance scale input of the transformer, or NaN */
    /* Fraction of the training timesteps below which the second transformer is used. Negative: the
     * model has one transformer. */
    double        boundary;
    double        guidance_2; /* guidance scale of the steps below `boundary` */
    int           both;       /* 1: both transformers stay loaded (xd_memory_plan) */
    int           loads[2];   /* number of times that the request has loaded each transformer */
    double        strength;   /* strength of the initial image; 0: the request has no image */
    int           max_text, images;
    /* Window of the option attention_window: either its size t, h, w in tokens; or -1, 0 and the
     * number of tokens on each side. window all 0: attention has no window. */
    int64_t       window[3];
    /* Table of the attention outputs that DiTFastAttn reuses. If ways.way is NULL, all attention is
     * computed. */
    xd_attn_table ways;
    int           picks; /* 1: the request selects images (xd_job_pick) */
    /* indices of generated images, ascending; NULL: all images are generated */
    int          *todo, ntodo;
    /* hash of the model's files for checkpoints; it is computed once, because this reads all
     * files */
    uint64_t      model_hash;
    /* 1 + the file descriptor that holds the lock of the checkpoint folder; 0: no lock */
    int           locked;
    int32_t      *finished; /* [images] steps that a checkpoint has finished; NULL: no checkpoint */
    double        saved_s;  /* time of the last checkpoint; 0: no checkpoint was written */
    int           copies;   /* 1: this rank writes the copy of the checkpoint on a second host */
    xd_saver     *saver;    /* writes the files of checkpoints; NULL: none was due */
    xd_pace       pace;
    int asked_steps; /* number of steps, samp.steps plus the steps that `strength` skips */
    const xd_sampler *sampler;
    xd_sampling       samp;
    /* schedule of audio; if audio_samp.def is NULL, the video's schedule is used */
    xd_sampling       audio_samp;
    xd_counts      step_ops; /* FLOPs and bytes of the first step, as counted without computing */
    xd_cache_spec  cache;
    /* step cache: cached[0] counts how often the middle range of blocks was skipped; cached[1]
     * counts skipped and computed ranges */
    int64_t        cached[2];
    /* [steps][xd_step_hash_count] hashes of the current image on every rank of the replica; NULL:
     * the request has no determinism_check. */
    xd_step_hash  *hashes;
    xd_cache_pair *changes; /* [nchanges] changes from step to step that the step cache reports */
    int            nchanges, max_changes;
    double         start_s;
    double         away_s;          /* seconds spent in the callback on_turn (yield.h) */
    double         away_reported_s; /* seconds of away_s that are already reported */
    int            may_yield;       /* 1: this rank computes and may yield (yield.h) */
    /* Number of image tokens at the start whose content an input image fixes; 0: none. */
    int64_t        held;
    int            decoded; /* index of the image that is decoded */
    /* [H,W,3] initial image or control image (host); NULL: none or freed */
    float         *image;
    float         *moments; /* [h,w,2C] moments of `image`, on the host of every rank; NULL: none */
    /* Pixels and moments of the image from which denoising starts (the initial image, without grey
     * in the masked area), if the transformer reads `image` as an input. If start_image and
     * start_moments are NULL, denoising starts from pure noise. */
    float         *start_image, *start_moments;
    /* [H,W] inpainting mask, 1 for pixels to generate, 0 for pixels to keep. Every rank has the
     * mask when the image is encoded. */
    uint8_t       *mask;
    /* Pixels outside the generated part of an image. If paste.rgb is NULL, the complete image is
     * generated. */
    xd_job_paste   paste;
    int64_t        rank0_images; /* number of input images of rank 0's request */
    int            nrefs;        /* number of reference images */
    int64_t        nref_tokens;  /* number of tokens of all reference images */
    float         *last_image;   /* [H,W,3] given last frame of a video, on the host; NULL: none */
    float         *condition;    /* [t,h,w,2C] moments of the conditioning video (role_frames.c), on
                                   the host of every rank; NULL: none */
    /* [images,3,S,S] pixels for the image encoder, on rank 0 and on ranks that split the encoder
     * with it; NULL: none */
    float         *encoder_pixels;
    /* Sizes of the reference images in pixels, and in tokens. */
    xd_grid        ref_size[XD_MAXREFS], refs[XD_MAXREFS];
    /* [H,W,3] reference images on rank 0; freed when they are encoded */
    /* [H,W,channels] reference images on rank 0; freed once encoded */
    float         *ref_pixels[XD_MAXREFS];
    /* Sizes of the reference images as the text encoder reads them (prompt_images.h). */
    xd_grid        seen_size[XD_MAXREFS];
    /* [H,W,3] reference images as the text encoder reads them, on ranks that encode text; NULL:
     * none. */
    uint8_t       *seen[XD_MAXREFS];
    /* [tokens,F] tokens of all reference images, on the host of every rank; NULL: none */
    float         *ref_tokens;
    /* [images][t,C,h,w] initial noise from the program, on every rank; NULL: none. */
    float         *given_noise;
    /* Control video (role_control_video.c). `leading` is the number of latent frames of its
     * reference images. `parts` is the number of clips that are encoded: 1 if the parts outside and
     * inside the mask are equal, else 2. */
    int            leading, parts;
    /* [frames,H,W,3] the control video outside and inside its mask, on rank 0; freed when they are
     * encoded */
    float         *part_pixels[2];
    /* [t,h,w,2C] moments of the two parts, and [h,w,2C] moments of the reference images, on every
     * rank */
    float         *part_moments[2], *leading_moments[XD_MAXREFS];
    /* Grey levels [t,H,W] of the control video's mask, in the frames that stand for the latent
     * frames, on every rank; `levels` is NULL if all levels are 255. */
    uint8_t       *levels;
    double        *hint_scales; /* factors of the hints (xd_input); NULL: all are 1 */
    double *next_time; /* [steps] timestep of the step after each step (xd_input.next), or NULL */
    /* Given images and videos (role_conditions.c). */
    xd_condition conditions[XD_MAXREFS];
    int          nconditions;
    /* [t] times in seconds and strengths of the latent frames, for models whose videos have given
     * frames; else NULL */
    double      *frame_s;
    float       *frame_strength;
    /* Weights of the images of the prior (prior.h). */
    double       prior_scale[XD_MAXREFS], prior_pooled_scale[XD_MAXREFS];
    /* Number of elements in hint_scales from one step to the next; 0: all steps have the same
     * factors. */
    int          hint_stride;
    int          modes[XD_MAXSIDES]; /* kinds of the control images (xd_input.modes) */
    /* Pixels of the control images of side networks. For each, the moments of its latents or, for
     * networks that read pixels, features [h,w,C]. */
    float       *side_pixels[XD_MAXSIDES], *side_moments[XD_MAXSIDES];
} xd_job;

/* Copies the program's request r, whose struct may be of another library version, to a request
 * `own` of this version. */
xd_status xd_request_take(xd_request *own, const xd_request *r, xd_err *e);
/* Kinds of texts of a request other than its prompts: the negative prompt, and separate texts for
 * the second and third text encoder. */
typedef enum xd_job_text_kind {
    XD_TEXT_NEGATIVE,
    XD_TEXT_2,
    XD_TEXT_3,
    XD_TEXT_NEGATIVE_2,
    XD_TEXT_NEGATIVE_3,
    XD_JOB_TEXTS
} xd_job_text_kind;
/* Returns the text of kind `kind` that belongs to prompt number `prompt`, or NULL if the request
 * has no such text. */
const char       *xd_job_text(const xd_request *r, xd_job_text_kind kind, int64_t prompt);
/* Returns 1 if any prompt has a text of kind `kind` (xd_job_text_kind). */
int               xd_job_has_text(const xd_request *r, xd_job_text_kind kind);
const char       *xd_job_text_name(xd_job_text_kind kind);
/* Returns the number of negative prompts, which is 1 or the number of prompts. */
int               xd_job_negatives(const xd_request *r);
/* returns a hash of the prompts and all lists of texts */
uint64_t          xd_job_texts_hash(const xd_request *r);
/* Shortens the request's lists of texts to the texts of the first prompt. */
void              xd_job_first_texts(xd_request *r);
/* Refuses a request whose texts are not UTF-8 or whose lists of texts have a wrong length. */
xd_status         xd_job_check_texts(const xd_request *r, xd_err *e);
/* Returns 1 if the request has an initial or a reference image. */
static inline int xd_job_has_image(const xd_request *r)
{
    return r->images.image || r->images.image_pixels;
}
/* Returns 1 if the request has a last frame. */
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
static inline int xd_job_has_control_video(const xd_request *r)
{
    return r->images.control_video || r->images.control_frames;
}
/* Returns 1 if the VAE encodes images or a control video of the request. */
int                   xd_job_encodes(const xd_job *j);
/* Returns 1 if the VAE is needed before the last pass of denoising. */
int                   xd_job_begins_with_vae(const xd_job *j);
/* Returns the number of input images. */
static inline int64_t xd_job_images(const xd_request *r)
{
    return xd_job_has_image(r) + r->images.nmore_images;
}
xd_status   xd_job_open(xd_job *j, xd_context *ctx, const xd_request *r, xd_err *e);
/* Opens the job of one pass, whose context and request are set. */
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
 * its own scheduler. The request's flow_shift does not change the shift of the audio's schedule. */
xd_status   xd_job_audio_sampler(xd_job *j, const xd_steps *a, xd_err *e);
/* Copies the request's list of sigmas or timesteps to the schedule's parameters *a, and sets
 * j->asked_steps. *list is malloc'ed or NULL; free *list after xd_sampling_open. */
/* Parses a list of numbers such as "1,0.5". Returns NULL if the list is invalid or memory is short.
 * key: name of the option in errors; *n: number of numbers. */
double     *xd_job_numbers(const char *key, const char *text, int *n, xd_err *e);
xd_status   xd_job_lists(xd_job *j, xd_steps *a, double **list, xd_err *e);
/* xd_job_sampler_json appends the request's changes of the scheduler config as JSON members, ",
 * \"eta\": 0.5". */
/* xd_job_next_times sets j->next_time if the transformer reads the timesteps of the next steps. */
xd_status   xd_job_next_times(xd_job *j, xd_err *e);
void        xd_job_sampler_json(const xd_job *j, xd_text_buf *b);
/* Calls the request's callback that selects images on rank 0, and sends the selection to all ranks.
 * xd_job_pick is a collective call. */
xd_status   xd_job_pick(xd_job *j, xd_err *e);
/* xd_job_image returns the index of the k-th generated image; xd_job_uses_prompt returns 1 if an
 * image of the prompt is generated. */
int         xd_job_image(const xd_job *j, int k);
int         xd_job_uses_prompt(const xd_job *j, int prompt);
/* Returns the weight of the prompt's pass in the guided prediction of a step. The weights of the
 * prompt's pass and of the negative prompt's pass sum to 1. */
double      xd_job_guidance(const xd_job *j, int step);
/* Sets npass and the kinds of passes, and reads the request's guidance of video and audio to
 * j->streams. Call xd_job_read_passes after the schedule and j->guidance are set. */
xd_status   xd_job_read_passes(xd_job *j, xd_err *e);
/* Returns 1 if a pass of the job reads the negative prompt. */
int         xd_job_has_negative(const xd_job *j);
/* Returns 1 if guidance rescales the predictions of video or audio by their own sums. */
int         xd_job_rescales_streams(const xd_job *j);
/* Returns the noise level of a step: the fraction of noise in the latents of rectified flow. */
double      xd_job_level(const xd_job *j, int step);
/* xd_job_passes returns the number of passes (model evaluations) of a step: 1, 2 with guidance,
 * 3 with skipped layers, up to XD_MAXPASS for a pipeline with audio. xd_job_usual_passes returns
 * the number that most steps of the request have. */
int         xd_job_passes(const xd_job *j, int step);
int         xd_job_usual_passes(const xd_job *j);
/* Reads the request's original_size, crops_coords_top_left and target_size to j->sizes. Call
 * xd_job_read_sizes after j->size and j->role are set. */
xd_status   xd_job_read_sizes(xd_job *j, xd_err *e);
/* xd_job_layers reads a list of layer numbers, and xd_job_layer reads one number. Both functions
 * mark the layers in *marks [layers], which is allocated if it is NULL. key: name of the option. */
xd_status   xd_job_layers(const xd_job *j, const char *key, const char *text, uint8_t **marks,
                          xd_err *e);
xd_status   xd_job_layer(const xd_job *j, int layer, uint8_t **marks, xd_err *e);
/* Reads the request's skip_guidance_layers to j->skips. If the request skips layers, sets npass to
 * 3. Call xd_job_read_skips after the schedule and npass are set. */
xd_status   xd_job_read_skips(xd_job *j, xd_err *e);
/* xd_job_has_skips returns 1 if the step has a pass that skips layers. xd_job_first_skip returns
 * the first step with such a pass, or -1. */
int         xd_job_has_skips(const xd_job *j, int step);
int         xd_job_first_skip(const xd_job *j);
/* Returns 1 if pass number `pass` skips the layer. */
int         xd_job_skips(const xd_job *j, int pass, int layer);
/* Returns the guidance scale of a step, which is j->guidance, or j->guidance_2 for steps of the
 * second transformer. */
double      xd_job_scale(const xd_job *j, int step);
/* Sets j->boundary, the noise level below which the second transformer is used, and j->guidance_2.
 * Refuses a schedule with steps for which the model has no transformer. */
xd_status   xd_job_boundary(xd_job *j, xd_err *e);
/* Returns the index of a step's transformer (xd_model_dit). */
int         xd_job_dit(const xd_job *j, int step);
/* Functions that return the first step (begin) and the end of the range of consecutive steps around
 * `step` with the same transformer. */
int         xd_job_dit_begin(const xd_job *j, int step);
int         xd_job_dit_end(const xd_job *j, int step);
/* Returns 1 if a step of the request needs transformer i. */
int         xd_job_uses_dit(const xd_job *j, int i);
/* Functions that return how often the transformer changes between two steps. xd_job_changes_again
 * returns the number for an image after the first one, which includes the change before the first
 * step. */
int         xd_job_changes(const xd_job *j);
int         xd_job_changes_again(const xd_job *j);
/* xd_job_no_guidance returns the guidance scale (1 or 0) at or below which guidance is off. */
/* xd_job_reads_guidance returns 1 if this transformer reads the guidance scale although other
 * transformers of the pipeline do not; steps then have one pass. */
int         xd_job_reads_guidance(const xd_job *j);
double      xd_job_no_guidance(const xd_job *j);
/* Returns `rows`, a number of image rows, plus the padding rows that the transformer adds. */
int64_t     xd_job_padded(const xd_job *j, int64_t rows);
/* Returns the number of text rows in the transformer for `rows` rows from the text encoders: these
 * rows plus the registers and the padding that the transformer adds. */
int64_t     xd_job_text_rows(const xd_job *j, int64_t rows);
/* Returns the number of tensors in the state between two steps: the latents, and the sampler's
 * history. */
int         xd_job_state_tensors(const xd_job *j);
/* Returns the number of F32 elements of the result's pixels [frames,H,W,channels] in the requested
 * size. */
int64_t     xd_job_pixels(const xd_job *j);
/* Returns the name of the flag for two-pass guidance: "guidance_scale", or "true_cfg_scale" for a
 * model whose guidance_scale is a distilled input. */
const char *xd_job_guide(const xd_job *j);

/* Returns the schedule of audio. */
static inline xd_sampling *xd_job_audio_sampling(xd_job *j)
{
    return j->audio_samp.def ? &j->audio_samp : &j->samp;
}

#endif
