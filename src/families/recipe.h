/* recipe.h - describes a diffusers pipeline as data: its components, its defaults, and its special
 * rules. */
#ifndef XD_FAMILIES_RECIPE_H
#define XD_FAMILIES_RECIPE_H

#include <stdint.h>

#include "base/json.h"

enum { XD_MAXTEXT = 4 };     /* maximum number of text encoders of a pipeline */
enum { XD_MAXAUDIO = 2 };    /* maximum number of networks of audio of a pipeline */
enum { XD_MAXSIGMAS = 128 }; /* maximum number of sigmas that a model may list */
/* maximum number of hidden states of an encoder that a model may list */
enum { XD_MAXSTATES = 64 };

/* How a text encoder's token embeddings become part of the prompt's embeddings: not at all, as new
 * rows after the previous encoder's rows, or as further features in the rows of the previous
 * encoder. */
typedef enum xd_rows_of { XD_ROWS_NONE, XD_ROWS_BELOW, XD_ROWS_BESIDE } xd_rows_of;

enum { XD_PAD_NONE = 0, XD_PAD_MOST = -1, XD_PAD_ONE = -2 };

typedef struct xd_text_use { /* description of one text encoder of a pipeline */
    /* Folders of the encoder and of the tokenizer in a model directory. tokenizer NULL: an image
     * encoder, whose output rows follow the rows of text. */
    const char *folder, *tokenizer;
    xd_rows_of  rows;
    /* Number of token ids to which texts are padded. XD_PAD_MOST: texts are padded to the maximum
     * length of a prompt. XD_PAD_ONE: one padding id is added if the text is shorter than the
     * maximum length. 0: no padding. The text encoder reads padding like text. */
    int         pad;
    /* Maximum number of token ids of a text that is not padded; 0: the maximum length of a
     * prompt. */
    int         most;
    /* 1: the encoder only reads the parts of the prompt in double quotes (xd_caption_quoted). A
     * prompt without parts in double quotes has no token ids for this encoder. */
    int         quoted;
    /* 1: the pipeline uses the input of the encoder's last block as token embeddings */
    int         penultimate;
    /* 1: the encoder's pooled embedding is appended to the pooled embeddings of the other
     * encoders. */
    int         pooled;
    /* Prompt that the encoder reads. 1: prompt_2 of the request; 2: prompt_3 of the request; 0: the
     * prompt. A request without prompt_2 or prompt_3 uses its prompt. */
    int         prompt;
    /* 1: the encoder is optional: if the model directory lacks it, zeros replace its output. */
    int         optional;
    /* name by which options give this encoder a separate weight file: "clip_l" */
    const char *slot;
    /* 1: text tokens do not attend to padding. The encoder still computes the rows of padding. */
    int         masked;
    /* 1: the rows of padding are zeros, and the encoder does not compute them (with `masked`) */
    int         blank;
    /* 1: the embedding has no rows of padding, although the encoder reads padding like text
     * (without `masked`) */
    int         trimmed;
    /* The pipeline's chat template, with "{}" where the prompt is inserted; no further special
     * tokens are added. frame NULL: the text is only the prompt. */
    const char *frame;
    int         left; /* 1: padding is before the text (with `masked`) */
    /* Number of template ids before the prompt whose rows are dropped from the encoder's output.
     * `pad` and max_sequence_length do not count these ids. Rows cannot be dropped together with
     * `left`. */
    int         drop;
    /* 1: truncation keeps the end of the template after the prompt, so that only the prompt loses
     * token ids. 0: truncation removes the end of the complete text. */
    int         keeps_end;
    /* Beginning of the template, whose rows are dropped like the rows that `drop` counts. The
     * tokenizer counts the ids of drop_text. drop_text NULL: no such beginning. */
    const char *drop_text;
    /* Indices (as in xd_text_layer) of the hidden states that are concatenated in each output row;
     * the encoder stops after the last of them. nlayers 0: the output is the last hidden state. */
    int         nlayers;
    const int  *layers;
    /* Key of model_index.json whose list of indices replaces `layers`. layers_key NULL: no key
     * replaces `layers`. */
    const char *layers_key;
    int         raw; /* 1: the last hidden state is the state before the final norm */
    /* 1: the output has all hidden states of the encoder, concatenated in each row. */
    int         all;
    /* 1: the encoder has no embeddings of token ids: it reads the output of the previous encoder,
     * whose `rows` is XD_ROWS_NONE. */
    int         follows;
    /* For an encoder that reads reference images: text that is inserted before the prompt for each
     * image. "{}" is replaced by the image's number, and the image token is repeated for all of the
     * image's tokens. image_text NULL: the encoder only reads text. */
    const char *image_text;
    const char *image_gap; /* text between the texts of two images; NULL: none */
    /* Area in pixels to which reference_size resizes reference images for the encoder; 0: the
     * encoder reads the same resized images as the transformer. */
    int64_t     image_area;
    const char *processor; /* folder of the image processor's config */
    /* Above 0: the template has the token of the request's image, whose rows come before the rows
     * of the text. The rows of every image_every[0]-th token of the image are used or, for a
     * negative prompt, of every image_every[1]-th token. A negative prompt is encoded with a black
     * image. */
    int         image_every[2];
    /* `cut` is the number of template ids after the prompt whose rows are dropped, and `tail` is
     * the number of ids after those, whose rows are kept. If a text is truncated, the rows of its
     * last ids are dropped in place of the rows that `cut` counts. */
    int         cut, tail;
    /* 1: the image encoder reads the image after it is resized to the size of the video; 0: it
     * reads the original image */
    int         resized;
    /* 1: the encoder belongs to a prior (image variation), whose directory an option gives. It has
     * no tokenizer. The first encoder of a prior reads the request's redux_images, and the second
     * one turns its output into rows of a prompt. Negative prompts have no such rows. */
    int         prior;
} xd_text_use;

/* Cases in which a pipeline passes its own sigmas to its scheduler. The pipeline's own sigmas go
 * from 1 to 1/steps in equal steps. XD_OWN_NONE: never, because the scheduler computes the sigmas;
 * XD_OWN_ALWAYS: always; XD_OWN_BUT_FLOW: unless the scheduler config has use_flow_sigmas;
 * XD_OWN_BUT_FLOW_TEXT: unless the scheduler config has use_flow_sigmas and denoising starts from
 * text alone. */
typedef enum xd_own_sigmas {
    XD_OWN_NONE,
    XD_OWN_ALWAYS,
    XD_OWN_BUT_FLOW,
    XD_OWN_BUT_FLOW_TEXT
} xd_own_sigmas;

typedef enum xd_sized_by { XD_SIZED_BY_MODEL, XD_SIZED_BY_FIRST, XD_SIZED_BY_LAST } xd_sized_by;

/* Ways in which a pipeline uses the image of a request. */
typedef enum xd_image_role {
    XD_ROLE_START, /* denoising starts from the image and noise */
    XD_ROLE_NONE,  /* videos are generated from text only */
    /* The transformer reads the first frame of a video in additional channels. */
    XD_ROLE_FIRST_FRAME,
    /* As XD_ROLE_FIRST_FRAME, with the mean of the VAE's Gaussian and a further channel, which is 1
     * in the first latent frame. */
    XD_ROLE_MARKED_FRAME,
    /* The additional channels are a mask of the given frames, then VAE latents of a video that is
     * grey except for the given first (and last) frame. */
    XD_ROLE_FRAMES,
    /* The image's latents are the first latent frame in all steps, and the tokens of this frame
     * have timestep 0. Without an image, all frames of the video are generated. */
    XD_ROLE_HELD,
    /* For inpainting, the transformer reads additional channels: first the latents of the image
     * with grey in the masked area, then the mask, with one channel for each pixel of a latent
     * cell. */
    XD_ROLE_MASK,
    /* The transformer reads the latents of a control image (edges, depth) in additional channels.
     * If the request also has an image, denoising starts from that image and noise. */
    XD_ROLE_CONTROL,
    /* The transformer reads a control stream: latents of the control video outside its mask and
     * inside its mask, then the mask, with one channel for each pixel of a latent cell. Latents of
     * reference images are additional latent frames before the video's latent frames, and are not
     * decoded. */
    XD_ROLE_CONTROL_VIDEO,
    /* Each given image or video determines frames of the generated video, with a strength. If it is
     * given for frame 0, its latents are mixed with the first latent frames. For other frames, its
     * first latent frames become additional latent frames before the video's, which have the time
     * of the given frames and are not decoded; its other latent frames are mixed with the video's.
     * Frames that are given have lower timesteps than other frames. */
    XD_ROLE_CONDITIONS,
    XD_ROLE_REFERENCES /* the transformer reads images as tokens, for editing */
} xd_image_role;

/* Default values of a request that replace the recipe's defaults; 0: the recipe's default. */
typedef struct xd_usual {
    int    steps, max_text;
    double guidance;
} xd_usual;

typedef struct xd_recipe {
    const char   *name;         /* xdit's name of the pipeline, "pixart-sigma" */
    const char   *pipelines[4]; /* pipeline classes, as in `_class_name` of model_index.json */
    /* Key of model_index.json that is true for models of this recipe, if the models of a pipeline
     * class have several recipes. Recipes with a key `when` are listed before recipes without a
     * key. when NULL: the recipe is for all models of the class. */
    const char   *when;
    /* Key of the transformer's config, and the value that the key has in models of this recipe, if
     * the models of a pipeline class have several recipes. Recipes with such a key are listed after
     * a recipe of the class without a key. dit_key NULL: the recipe is for all models of the
     * class. */
    const char   *dit_key, *dit_value;
    const char   *dit, *vae; /* folders of the transformer and the VAE */
    /* Folder of the second transformer, for steps with a timestep below boundary_ratio of
     * model_index.json. A model may lack one of the two transformers. dit2 NULL: the pipeline has
     * one transformer. */
    const char   *dit2;
    /* Folder of diffusers' guider, whose config has the default guidance scale. guider NULL: the
     * pipeline has no guider. */
    const char   *guider;
    xd_text_use   text[XD_MAXTEXT];
    int           ntext;
    /* Defaults of the pipeline's __call__: number of steps, and max_sequence_length. */
    int           steps, max_text;
    int           most_text; /* maximum value of max_sequence_length; 0: no limit */
    double        guidance;
    /* 1: the transformer reads the guidance scale as an input; a second guidance pass is computed
     * only if true_cfg_scale and a negative prompt are given. */
    int           distilled;
    double        true_cfg; /* default of true_cfg_scale (with `distilled`) */
    /* 1: the norm of each token's guided prediction is set to the norm of the prompt's
     * prediction. */
    int           keeps_length;
    /* 1: the pipeline has cfg_trunc_ratio and cfg_normalization. cfg_normalization, which is on by
     * default, sets the norm of each row of the guided prediction's latents to the norm of the
     * prompt's prediction. */
    int           keeps_rows;
    xd_own_sigmas own_sigmas;
    /* Key of model_index.json with a list of sigmas. The list replaces sigmas in equal steps if the
     * request has as many steps as the list, or sets no number of steps. sigmas_key NULL: no such
     * list. */
    const char   *sigmas_key;
    /* Above 0: the pipeline's own sigmas are a linear-quadratic schedule (see
     * xd_steps.threshold_noise). */
    double        threshold_noise;
    /* 1: the transformer reads timesteps that rise from 0 to 1000, so the scheduler's config must
     * have invert_sigmas. */
    int           rising;
    /* 1: the pipeline passes no shift that depends on the image size, so the scheduler's config
     * must not have use_dynamic_shifting. */
    int           unshifted;
    /* Computes the logarithm of the dynamic timestep shift (see xd_steps.mu), or NULL. */
    double        (*mu)(int64_t tokens, int steps);
    /* value of xd_steps.max_shift for rectified-flow models; 0: other models */
    double        max_shift;
    double        strength; /* default strength for an initial image; 0 stands for 0.6 */
    /* Defaults for requests with an initial image, and with a mask. */
    xd_usual      of_image, of_mask;
    int           leap; /* 1: one-step sampling ends at clean latents (xd_steps.leap) */
    /* 1: a step's latents are written over those that it started from (xd_steps.overwrites) */
    int           overwrites;
    /* Replaces an image size in pixels by the nearest size on which a transformer with sample_size
     * `sample` (in latent cells) was trained. Returns 0 if the transformer has no table of sizes.
     * trained_size NULL: any size is generated. */
    int           (*trained_size)(int64_t sample, int64_t *height, int64_t *width);
    /* 1: a generated image of a trained size is resized to the requested size. */
    int           resized;
    int           decodes_at; /* 1: the pipeline has decode_timestep and decode_noise_scale */
    /* Class of the networks that enlarge the pipeline's latents. upsampler NULL: no networks
     * enlarge the latents. */
    const char   *upsampler;
    int           denoises_part; /* 1: the pipeline has denoise_strength */
    int           rescales;      /* 1: the pipeline has guidance_rescale */
    /* 1: the guided prediction with scale g is prompt + g (prompt - negative), so guidance is off
     * at 0, and the models have the options cfg_normalization and cfg_truncation. 0: the guided
     * prediction is negative + g (prompt - negative), so guidance is off at 1. */
    int           guides_from_prompt;
    int           skips_layers; /* 1: the pipeline has skip_guidance_layers */
    /* 1: the pipeline has original_size, crops_coords_top_left and target_size */
    int           micro;
    /* 1: the pipeline also has these sizes for the negative prompt */
    int           negative_micro;
    int           dynamic_cfg; /* 1: the published examples use dynamic guidance */
    double        fps;         /* default frames per second; 0: the pipeline generates images */
    /* changes 4 n requested frames to 4 n + 1 frames (1) or to 4 n - 3 frames (0), for any n */
    int           frames_up;
    int           channels_first; /* order in which noise is drawn: 1: [C,t,h,w], 0: [t,C,h,w] */
    /* Number of channels C of the latents of audio [C,t,F/C], of which one point in time is a token
     * with F features. 0: the pipeline has no audio. */
    int           audio_channels;
    /* Defaults of the guidance of a pipeline with audio (xd_request_audio): the guidance scale of
     * the audio (audio_guidance; 0: no such guidance) and, for video and audio, modality_scale,
     * stg_scale, guidance_rescale and the block of stg_scale. */
    double        audio_guidance, modality, stg, rescale;
    int           stg_block;
    /* Folder of the audio's scheduler, which has the class of the video's scheduler.
     * audio_scheduler NULL: audio has the schedule of the video. */
    const char   *audio_scheduler;
    /* Folders of the networks that turn audio latents into sound, in the order in which they run.
     * audio NULL: the pipeline has no audio. */
    const char   *audio[XD_MAXAUDIO];
    /* 1: the scheduler works on tokens [N,C p^2] in place of latents, so the noise that a step
     * draws is in the order of tokens. */
    int           packed;
    /* 1: a transformer with an embedding of the next step's timestep reads this timestep
     * (xd_input.next) */
    int           reads_next;
    /* Default frames per second of models with patches of several frames; 0: the value of `fps`. */
    double        pairs_fps;
    xd_image_role role; /* way in which the pipeline uses the request's image */
    /* Recipe of models to whose transformer a LoRA file adds the input channels of a control image.
     * with_control_lora NULL: such LoRA files are refused. */
    const struct xd_recipe *with_control_lora;
    /* Recipe of models whose transformer has side networks (xd_side). with_sides NULL: models with
     * side networks have this recipe as well. */
    const struct xd_recipe *with_sides;
    /* 1: the latents of side networks' control images are samples of the VAE's Gaussian, drawn
     * before the samples of an initial image and before the noise. 0: they are the Gaussian's
     * mean. */
    int                     samples_sides;
    double      side_scale;  /* default factor of what side networks add; 0 stands for 1 */
    int         needs_image; /* 1: an image is required */
    /* 1: an image of another aspect ratio than the result is cropped equally on both sides; 0: it
     * is stretched */
    int         covers;
    /* 1: an image is resized with Pillow's bilinear filter; 0: with Lanczos */
    int         bilinear;
    /* 1: the latents of a held first frame are a sample of the VAE's Gaussian, which is drawn
     * before the noise. 0: they are the Gaussian's mean. */
    int         samples_held;
    /* Above 0: denoising starts from the noise times noise_share, plus the image's latents (the
     * same in all frames) times 1 - noise_share. */
    double      noise_share;
    /* Above 0: the transformer separates the image into layers, and this is their default number.
     * Its latents have a frame for the complete image, which is not decoded, and one for each
     * layer. All have the size of the image. */
    int         layers;
    /* 1: the pipeline describes the image if the prompt is empty, which xdit does not. */
    int         describes;
    /* Number of frames at the beginning of a video that are decoded but are not part of the
     * result. */
    int         drops_frames;
    int         references; /* maximum number of reference images, or of given images and videos */
    double      condition_noise; /* default of image_cond_noise_scale */
    /* 1: for inpainting, denoising starts from the single reference image, and the transformer
     * reads sampled latents of that image. In models without reference images, denoising for
     * inpainting starts from the initial image in the same way. */
    int         inpaints_reference;
    /* Default area of a reference image in pixels (a request may set max_area); 0: reference_size
     * sets the area. */
    int64_t     reference_area;
    int         auto_resizes; /* 1: the request's no_auto_resize turns reference_size off */
    /* Replaces the size of a reference image in pixels by the size to which the image is resized.
     * Pixels beyond multiples of `unit` are then cropped equally on both sides. area: max_area of
     * the request, reference_area, or xd_dit_info.area. Returns XD_EINVAL if the model does not
     * support a reference image of this size. */
    xd_status   (*reference_size)(int64_t unit, int64_t area, int64_t *height, int64_t *width,
                                  xd_err *e);
    /* 1: the tokens of reference images attend only to one another and have timestep 0, so their
     * keys and values are computed in the first step and reused (xd_layout.refs_alone). */
    int         keeps_references;
    /* Source of a result's default size: the model, or the size of the request's first or last
     * image after resizing and cropping. */
    xd_sized_by sized_by;
    double      mask_strength; /* default strength for requests with a mask; 0 stands for 0.6 */
    /* Area of results in pixels; a requested size then sets only the aspect ratio. 0: the requested
     * size is used. */
    int64_t     max_area;
    /* 1: the transformer reads as many rows of the embedding as the prompt or the negative prompt
     * has tokens. The text encoder of such a recipe pads texts (XD_PAD_MOST, masked). */
    int         cuts_text;
    /* 1: all rows of text embeddings are those of CLIP encoders, so that prompt_weighting, which
     * encodes a prompt in chunks, is possible. */
    int64_t     weighs;
    /* 1: without a negative prompt, all elements of its embeddings are zeros, unless
     * force_zeros_for_empty_prompt of model_index.json is false. 0: the encoders read "". */
    int         zeros_negative;
    /* `system` is the default of system_prompt, a text before each prompt but not before negative
     * prompts; after_system is the text between the system prompt and the prompt. system NULL: the
     * pipeline has no system prompt. */
    const char *system, *after_system;
    /* 1: the rows of the system prompt are dropped from the embedding of a prompt, except the rows
     * of its first and its last token. max_sequence_length does not count the dropped rows. */
    int         drops_system;
    /* prepares a prompt for the encoders; the result is malloc'ed */
    char       *(*caption)(const char *text);
    /* Prepares a prompt as `caption` does, for requests without clean_caption. uncleaned NULL: the
     * pipeline does not have the option clean_caption. */
    char       *(*uncleaned)(const char *text);
} xd_recipe;

/* Returns 1 if recipe p has an encoder that reads images and whose folder is `folder`. p may be
 * NULL. */
int              xd_recipe_sees(const xd_recipe *p, const char *folder);
/* Returns the i-th recipe of all families; NULL at the end. */
const xd_recipe *xd_recipe_at(int i);
/* Returns 1 if the recipe supports inpainting. All recipes that start from an image support
 * inpainting. */
int              xd_recipe_inpaints(const xd_recipe *p);
/* Returns the number of input channels that the transformer of recipe p reads in addition to
 * `channels` channels of latents. cell: size of a latent cell in frames and pixels, t, h, w. */
int64_t          xd_recipe_channels(const xd_recipe *p, int64_t channels, const int cell[3]);
/* Appends the first pipeline class of each recipe to b, as "A, B". */
void             xd_recipe_names(xd_text_buf *b);
/* Finds the recipe for a pipeline class. Returns NULL if no recipe has this pipeline class. index:
 * the model's model_index.json, which selects among several recipes of the class; NULL: the first
 * recipe of the class. */
const xd_recipe *xd_recipe_find(const char *pipeline, const xd_json *index);
/* Returns the recipe for models with recipe p's pipeline class and with this transformer config,
 * which may be NULL. */
const xd_recipe *xd_recipe_for(const xd_recipe *p, const xd_json *config);

/* ---- distilled checkpoints (distilled.c) ----------------------------------------- */

typedef struct xd_distilled {
    const char *name; /* name of a distilled model, "FLUX.1-schnell" */
    /* Properties by which a distilled model is recognized. */
    const char *recipe, *config, *words, *unless;
    int         steps;
    double      guidance;  /* default guidance scale; negative: the recipe's default */
    double      true_cfg;  /* default true_cfg_scale; 0: the recipe's default */
    int         max_text;  /* default max_sequence_length; 0: the recipe's default */
    const char *timesteps; /* default list of timesteps; NULL: the scheduler's timesteps */
    /* Computes the logarithm of the dynamic timestep shift; NULL: the recipe's function is used. */
    double      (*mu)(int64_t tokens, int steps);
} xd_distilled;

/* properties of a model, by which a distilled model is recognized; the configs may be NULL */
typedef struct xd_distilled_of {
    const char    *recipe, *name; /* name: name of the directory, repository or file */
    const xd_json *index, *transformer, *scheduler;
} xd_distilled_of;

/* If model m is in the table of distilled checkpoints, sets *found to its row and returns 1. */
int xd_distilled_find(const xd_distilled_of *m, xd_distilled *found);

/* ---- for the tables of a family ------------------------------------------------------------ */

typedef struct xd_size_bucket {
    double ratio;
    int    height, width;
} xd_size_bucket;

/* Replaces an image size in pixels by one of the n sizes in the table: the size whose ratio height
 * / width is nearest to the image's ratio. */
void xd_size_bucket_nearest(const xd_size_bucket *table, int n, int64_t *height, int64_t *width);
/* Implementations of xd_recipe.trained_size for models that were trained on the sizes of
 * ratio_buckets.c of up to 1024 or 2048 pixels, if a latent cell has 8 pixels on a side. */
int  xd_ratio_buckets_1024(int64_t sample, int64_t *height, int64_t *width);
int  xd_ratio_buckets_2048(int64_t sample, int64_t *height, int64_t *width);

#endif
