/* recipe.h - describes a diffusers pipeline as data: its components, its defaults, and its special
 * rules. */
#ifndef XD_FAMILIES_RECIPE_H
#define XD_FAMILIES_RECIPE_H

#include <stdint.h>

#include "base/json.h"

enum { XD_MAXTEXT = 4 };     /* maximum number of text encoders of a pipeline */
enum { XD_MAXAUDIO = 2 };    /* maximum number of audio networks of a pipeline */
enum { XD_MAXSIGMAS = 128 }; /* maximum number of noise levels (sigmas) that a model may list */
/* maximum number of a text encoder's hidden states that a model may list */
enum { XD_MAXSTATES = 64 };

/* How a text encoder's token embeddings become part of the prompt's embedding: not at all, as rows
 * after the previous encoder's rows, or as additional features in the previous encoder's rows. */
typedef enum xd_rows_of { XD_ROWS_NONE, XD_ROWS_BELOW, XD_ROWS_BESIDE } xd_rows_of;

enum { XD_PAD_NONE = 0, XD_PAD_MOST = -1, XD_PAD_ONE = -2 };

typedef struct xd_text_use { /* description of one text encoder of a pipeline */
    /* Folders of the encoder and of the tokenizer in a model directory. If `tokenizer` is NULL, the
     * encoder reads images, and its output rows follow the rows of the text. */
    const char *folder, *tokenizer;
    xd_rows_of  rows;
    /* Number of token ids to which texts are padded. XD_PAD_MOST: texts are padded to the maximum
     * length of a prompt. XD_PAD_ONE: one padding id is added if the text is shorter than the
     * maximum length. 0: no padding. Padding is encoded like text. */
    int         pad;
    /* Maximum number of token ids of a text that is not padded; 0: the maximum length of a
     * prompt. */
    int         most;
    /* 1: the encoder only reads the text in double quotes in a prompt (xd_caption_quoted). A prompt
     * without quotes has no token ids for this encoder. */
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
    /* short name for the option that gives this encoder a separate weight file, such as "clip_l" */
    const char *slot;
    /* 1: text tokens do not attend to padding tokens, but the encoder computes embeddings of
     * padding too. */
    int         masked;
    /* 1: the embeddings of padding tokens are zeros, and the encoder does not compute them (only
     * with `masked`) */
    int         blank;
    /* 1: rows of padding tokens are removed from the embedding, although the encoder reads padding
     * like text (only without `masked`) */
    int         trimmed;
    /* The pipeline's chat template, with "{}" where the prompt is inserted; no further special
     * tokens are added. If `frame` is NULL, the encoder reads only the prompt. */
    const char *frame;
    int         left; /* 1: padding is before the text (with `masked`) */
    /* Number of the template's token ids before the prompt whose rows are removed from the
     * encoder's output. Template ids that `drop` counts are not included in `pad` and
     * max_sequence_length. If `left` is 1, `drop` must be 0. */
    int         drop;
    /* 1: truncating a text that is too long removes only ids of the prompt and keeps the template's
     * ids after the prompt. 0: truncation removes the end of the complete text. */
    int         keeps_end;
    /* Beginning of the template as text; the rows of its token ids, which the tokenizer counts, are
     * removed like those that `drop` counts. NULL: only `drop` counts. */
    const char *drop_text;
    /* Indices (as in xd_text_layer) of the hidden states that are concatenated in each output row;
     * the encoder stops after the last one. If nlayers is 0, the output is the last hidden
     * state. */
    int         nlayers;
    const int  *layers;
    /* Key of model_index.json whose list of hidden-state indices replaces `layers`; NULL: the
     * recipe's list is always used. */
    const char *layers_key;
    int         raw; /* 1: the last hidden state is the state before the final norm */
    /* 1: each output row is the concatenation of all hidden states of the encoder. */
    int         all;
    /* 1: the encoder has no embeddings of token ids: it reads the output of the previous encoder,
     * whose `rows` is XD_ROWS_NONE. */
    int         follows;
    /* For an encoder that reads reference images: text that is inserted before the prompt for each
     * image. "{}" is replaced by the image's number, and the image token is repeated for all of the
     * image's tokens. If image_text is NULL, the encoder only reads text. */
    const char *image_text;
    /* text that is inserted between the texts of two images; NULL: no text */
    const char *image_gap;
    /* Area in pixels to which reference_size resizes reference images for the encoder; 0: the
     * encoder reads the same resized images as the transformer. */
    int64_t     image_area;
    const char *processor; /* folder of the image processor's config */
    /* Above 0: the template includes the request's image, whose rows come before the rows of the
     * text. Only the row of every image_every[0]-th image token is used or, for a negative prompt,
     * of every image_every[1]-th image token. A negative prompt is encoded together with a black
     * image in place of the request's image. */
    int         image_every[2];
    /* `cut` is the number of the template's token ids after the prompt whose rows are removed, and
     * `tail` is the number of ids after them, whose rows are kept. If a text is truncated, the rows
     * of its last ids are removed instead. */
    int         cut, tail;
    /* 1: the image encoder reads the image after it is resized to the size of the video; 0: it
     * reads the original image */
    int         resized;
    /* 1: the encoder belongs to a prior network (for image variation), whose directory an option
     * gives, and has no tokenizer. The first encoder of a prior reads the request's redux_images,
     * and the second one turns its output into rows of a prompt's embedding. Embeddings of negative
     * prompts have no rows from a prior network. */
    int         prior;
} xd_text_use;

/* When a pipeline passes its own noise levels (sigmas) to its scheduler. A pipeline's own noise
 * levels go from 1 to 1/steps in equal steps. XD_OWN_NONE: never, because the scheduler computes
 * the noise levels; XD_OWN_ALWAYS: always; XD_OWN_BUT_FLOW: unless the scheduler config has
 * use_flow_sigmas; XD_OWN_BUT_FLOW_TEXT: unless the scheduler config has use_flow_sigmas and
 * denoising starts from text alone. */
typedef enum xd_own_sigmas {
    XD_OWN_NONE,
    XD_OWN_ALWAYS,
    XD_OWN_BUT_FLOW,
    XD_OWN_BUT_FLOW_TEXT
} xd_own_sigmas;

typedef enum xd_sized_by { XD_SIZED_BY_MODEL, XD_SIZED_BY_FIRST, XD_SIZED_BY_LAST } xd_sized_by;

/* Roles that the image of a request can have in a pipeline. */
typedef enum xd_image_role {
    XD_ROLE_START, /* denoising starts from the image and noise */
    XD_ROLE_NONE,  /* videos are generated from text only */
    /* The transformer reads the latents of the given first frame of a video in additional
     * channels. */
    XD_ROLE_FIRST_FRAME,
    /* As XD_ROLE_FIRST_FRAME, but the latents are the mean of the VAE's Gaussian, and a further
     * channel is 1 in the first latent frame. */
    XD_ROLE_MARKED_FRAME,
    /* The transformer's additional channels are a mask of the given frames, then the latents of a
     * video that is grey except for the given first (and last) frame. */
    XD_ROLE_FRAMES,
    /* The image's latents are the first latent frame in all steps, and the tokens of this frame
     * have timestep 0. Without an image, all frames of the video are generated. */
    XD_ROLE_HELD,
    /* For inpainting, the transformer reads additional channels: first the latents of the image
     * with grey in the masked area, then the mask, with one channel for each pixel of a latent
     * cell. */
    XD_ROLE_MASK,
    /* A pose video and a face video drive the character of the image. The latents have a frame for
     * the image before the video's. The additional channels are a mask of given frames, the latents
     * of the image and of a video that has the given frames, and the latents of the pose video. A
     * control video and its mask give all frames outside the mask. */
    XD_ROLE_DRIVEN,
    /* The transformer reads the latents of a control image (edges, depth) in additional channels.
     * If the request also has an image, denoising starts from that image and noise. */
    XD_ROLE_CONTROL,
    /* The transformer reads a control stream: latents of the control video outside its mask and
     * inside its mask, then the mask, with one channel for each pixel of a latent cell. Latents of
     * the control video's reference images are additional latent frames before the video's latent
     * frames, and are not decoded. */
    XD_ROLE_CONTROL_VIDEO,
    /* Each input image or video fixes frames of the generated video, with a strength. The latents
     * of an image or video that fixes frames from frame 0 on are mixed with the generated video's
     * first latent frames. If the image or video fixes later frames, its first latent frames become
     * additional latent frames before the generated video's, which have the time of the fixed
     * frames and are not decoded. The other latent frames of the image or video are mixed with the
     * generated video's latent frames. Fixed frames have lower timesteps than other frames. */
    XD_ROLE_CONDITIONS,
    /* As XD_ROLE_CONDITIONS, but all latent frames of an image or video that is not given for frame
     * 0 become additional latent frames, and the latents are the mean of the VAE's Gaussian. In all
     * steps, a given latent frame of strength s has 1 - s times the noise of the other latent
     * frames. */
    XD_ROLE_KEYFRAMES,
    XD_ROLE_REFERENCES /* the transformer reads images as tokens, for editing */
} xd_image_role;

/* Default values that replace a recipe's defaults in certain requests; 0: the recipe's default is
 * used. */
typedef struct xd_usual {
    int    steps, max_text;
    double guidance;
} xd_usual;

typedef struct xd_recipe {
    const char   *name;         /* xdit's name of the pipeline, "pixart-sigma" */
    const char   *pipelines[4]; /* pipeline classes, as in `_class_name` of model_index.json */
    /* If a pipeline class has several recipes: the key of model_index.json that is true for models
     * of this recipe. Recipes with such a key are listed before recipes without one. If `when` is
     * NULL, the recipe is for all models of the class. */
    const char   *when;
    /* If a pipeline class has several recipes: a key of the transformer's config, and the value
     * that it has in models of this recipe. Recipes with such a key are listed after the recipe of
     * the class without one. If dit_key is NULL, the recipe is for all models of the class. */
    const char   *dit_key, *dit_value;
    const char   *dit, *vae; /* folders of the transformer and the VAE */
    /* Folder of the second transformer, for steps with a timestep below boundary_ratio of
     * model_index.json. A model may lack one of the two transformers. If dit2 is NULL, the pipeline
     * has only one transformer. */
    const char   *dit2;
    /* Folder of a diffusers guider, whose config contains the default guidance scale; NULL: the
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
    /* 1: this is only so if cfg_normalization, which is off by default, is above 0. */
    int           may_keep_length;
    /* 1: the pipeline has the options cfg_trunc_ratio and cfg_normalization. cfg_normalization,
     * which is on by default, sets the norm of each latent row of the guided prediction to the norm
     * of that row in the prompt's prediction. */
    int           keeps_rows;
    xd_own_sigmas own_sigmas;
    /* Key of model_index.json with a list of noise levels (sigmas). The list replaces equally
     * spaced noise levels if the request has as many steps as the list, or sets no number of steps.
     * NULL: the model has no list. */
    const char   *sigmas_key;
    /* Above 0: the pipeline's own noise levels (sigmas) are a linear-quadratic schedule (see
     * xd_steps.threshold_noise). */
    double        threshold_noise;
    /* 1: the transformer reads timesteps that rise from 0 to 1000, so the scheduler's config must
     * set invert_sigmas. */
    int           rising;
    /* 1: the pipeline passes no shift that depends on the image size, so the scheduler's config
     * must not set use_dynamic_shifting. */
    int           unshifted;
    /* Computes the logarithm of the dynamic timestep shift (see xd_steps.mu), or NULL. */
    double        (*mu)(int64_t tokens, int steps);
    /* value of xd_steps.max_shift for rectified-flow models; 0: other models */
    double        max_shift;
    double        strength; /* default strength for an initial image; 0 stands for 0.6 */
    /* Defaults for requests with an initial image (of_image), and with a mask (of_mask). */
    xd_usual      of_image, of_mask;
    int           leap; /* 1: sampling in one step ends at latents without noise (xd_steps.leap) */
    /* 1: a step's latents are written over those that it started from (xd_steps.overwrites) */
    int           overwrites;
    /* Replaces an image size in pixels by the nearest size on which a transformer with sample_size
     * `sample` (in latent cells) was trained. Returns 0 if no table of sizes is known for the
     * transformer. If trained_size is NULL, the pipeline generates any size. */
    int           (*trained_size)(int64_t sample, int64_t *height, int64_t *width);
    /* 1: a generated image of a trained size is resized to the requested size. */
    int           resized;
    int           decodes_at; /* 1: the pipeline has decode_timestep and decode_noise_scale */
    /* Class of the networks that enlarge the pipeline's latents (latent upsamplers); NULL: the
     * pipeline has no such networks. */
    const char   *upsampler;
    int           denoises_part; /* 1: the pipeline has denoise_strength */
    /* Default sigmas of a second pass that denoises enlarged latents; its schedule is not shifted.
     * enlarged_sigmas NULL: only denoise_strength makes a second pass. */
    const char   *enlarged_sigmas;
    int           rescales; /* 1: the pipeline has guidance_rescale */
    /* Formula of the guided prediction with guidance scale g. 1: prompt + g (prompt - negative), so
     * guidance is off at 0; the models then also have the options cfg_normalization and
     * cfg_truncation. 0: negative + g (prompt - negative), so guidance is off at 1. */
    int           guides_from_prompt;
    int           skips_layers; /* 1: the pipeline has skip_guidance_layers */
    /* 1: the pipeline has original_size, crops_coords_top_left and target_size */
    int           micro;
    /* 1: the pipeline also has negative_original_size, negative_crops_coords_top_left and
     * negative_target_size */
    int           negative_micro;
    int           dynamic_cfg; /* 1: the published examples use dynamic guidance */
    double        fps;         /* default frames per second; 0: the pipeline generates images */
    /* Default number of frames that are generated together (a segment), and of frames of a segment
     * with which the next one begins. segment_frames 0: all frames are generated together. */
    int           segment_frames, segment_overlap;
    /* how a requested number of frames that is a multiple of 4 is changed: 1: one more frame is
     * generated; 0: three fewer */
    int           frames_up;
    int           channels_first; /* order in which noise is drawn: 1: [C,t,h,w], 0: [t,C,h,w] */
    /* Number of channels C of the audio latents [C,t,F/C]; each of the t points in time is a token
     * with F features. 0: the pipeline has no audio. */
    int           audio_channels;
    /* Defaults of a pipeline with audio (xd_request_audio): the guidance scale of the audio
     * (audio_guidance; 0: audio has no own guidance) and, for video and audio, modality_scale,
     * stg_scale, guidance_rescale and the block that stg_scale changes. */
    double        audio_guidance, modality, stg, rescale;
    int           stg_block;
    /* Folder of the audio's scheduler, which must be of the same class as the video's; NULL: audio
     * uses the video's schedule. */
    const char   *audio_scheduler;
    /* Folders of the networks that turn audio latents into sound, in the order in which they run;
     * NULL: the pipeline has no audio. */
    const char   *audio[XD_MAXAUDIO];
    /* 1: the scheduler's tensors are tokens, not latents, so the random noise that a step draws is
     * ordered by token. */
    int           packed;
    /* 1: a transformer with an embedding of the next step's timestep reads this timestep
     * (xd_input.next) */
    int           reads_next;
    /* Default frames per second of models whose tokens cover several frames; 0: the value of
     * `fps`. */
    double        pairs_fps;
    xd_image_role role; /* role of the request's image in the pipeline */
    /* Way in which the pipeline uses images in requests with several images, with a last image, or
     * with positions or strengths of images. XD_ROLE_START: as in other requests. */
    xd_image_role placed;
    /* Recipe that is used if a LoRA file adds input channels for a control image to the
     * transformer; NULL: such LoRA files are refused. */
    const struct xd_recipe *with_control_lora;
    /* Recipe that is used if the transformer has side networks (xd_side); NULL: this recipe is used
     * then too. */
    const struct xd_recipe *with_sides;
    /* 1: the latents of side networks' control images are random samples of the VAE's Gaussian,
     * drawn before the samples of an initial image and before the noise. 0: they are the Gaussian's
     * mean. */
    int                     samples_sides;
    /* default factor by which the outputs of side networks are multiplied; 0 stands for 1 */
    double                  side_scale;
    int                     needs_image; /* 1: an image is required */
    /* 1: an image of another aspect ratio than the result is cropped equally on both sides; 0: it
     * is stretched */
    int                     covers;
    /* 1: an image is resized with Pillow's bilinear filter; 0: with Lanczos */
    int                     bilinear;
    /* 1: the latents of a first frame that stays fixed (XD_ROLE_HELD) are a random sample of the
     * VAE's Gaussian, drawn before the noise. 0: they are the Gaussian's mean. */
    int                     samples_held;
    /* Above 0: denoising starts from the noise times noise_share, plus the image's latents (equal
     * for all frames) times 1 - noise_share. */
    double                  noise_share;
    /* Above 0: the transformer separates the image into layers, and this is their default number.
     * The latents of layers consist of a frame for the complete image, which is not decoded, and
     * one frame for each layer. */
    int                     layers;
    /* 1: if the prompt is empty, diffusers' pipeline generates a description of the image, which
     * xdit does not do. */
    int                     describes;
    /* Number of frames at the beginning of a video that are decoded but are not part of the
     * result. */
    int                     drops_frames;
    int         references; /* maximum number of reference images, or of given images and videos */
    double      condition_noise; /* default of image_cond_noise_scale */
    /* 1: for inpainting, denoising starts from the single reference image or, in models without
     * reference images, from the initial image; the transformer also reads sampled latents of the
     * reference image. */
    int         inpaints_reference;
    /* Default area in pixels to which reference images are resized (a request may set max_area); 0:
     * the function reference_size sets the area. */
    int64_t     reference_area;
    int         auto_resizes; /* 1: the request's no_auto_resize turns reference_size off */
    /* Replaces the size of a reference image in pixels by the size to which the image is resized.
     * After resizing, pixels beyond multiples of `unit` are cropped equally on both sides. area:
     * max_area of the request, reference_area, or xd_dit_info.area. Returns XD_EINVAL if the model
     * does not support a reference image of this size. */
    xd_status   (*reference_size)(int64_t unit, int64_t area, int64_t *height, int64_t *width,
                                  xd_err *e);
    /* 1: the tokens of reference images attend only to one another and have timestep 0, so their
     * keys and values are computed in the first step and reused (xd_layout.refs_alone). */
    int         keeps_references;
    /* Where a result's default size comes from: the model, or the request's first or last image
     * after resizing and cropping. */
    xd_sized_by sized_by;
    double      mask_strength; /* default strength for requests with a mask; 0 stands for 0.6 */
    /* Area of results in pixels; a requested size then sets only the aspect ratio. 0: the requested
     * size is used. */
    int64_t     max_area;
    /* 1: the transformer reads only those rows of a prompt's embedding that are not padding. The
     * text encoder must pad texts (XD_PAD_MOST, masked). */
    int         cuts_text;
    /* 1: all text embeddings come from CLIP encoders, so that prompt_weighting, which encodes a
     * prompt in chunks, is possible. */
    int64_t     weighs;
    /* 1: without a negative prompt, all elements of its embeddings are zeros, unless
     * force_zeros_for_empty_prompt of model_index.json is false. 0: the encoders read "". */
    int         zeros_negative;
    /* `system` is the default of system_prompt, a text before each prompt but not before negative
     * prompts; after_system is the text between the system prompt and the prompt. If `system` is
     * NULL, the pipeline has no system prompt. */
    const char *system, *after_system;
    /* 1: the rows of the system prompt are removed from a prompt's embedding, except those of its
     * first and last token. max_sequence_length does not count the removed rows. */
    int         drops_system;
    /* prepares a prompt for the encoders; the result is malloc'ed */
    char       *(*caption)(const char *text);
    /* Prepares a prompt for requests that switch clean_caption off; NULL: the pipeline does not
     * have the option clean_caption. */
    char       *(*uncleaned)(const char *text);
} xd_recipe;

/* Returns 1 if the encoder of recipe p in the model's folder `folder` reads images. p may be
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
    /* Properties by which a distilled checkpoint is recognized. */
    const char *recipe, *config, *words, *unless;
    int         steps;
    double      guidance;  /* default guidance scale; negative: the recipe's default */
    double      true_cfg;  /* default true_cfg_scale; 0: the recipe's default */
    int         max_text;  /* default max_sequence_length; 0: the recipe's default */
    const char *timesteps; /* default list of timesteps; NULL: the scheduler's timesteps */
    /* Default list of sigmas, which the scheduler does not shift; NULL: the scheduler's sigmas. */
    const char *sigmas;
    /* Computes the logarithm of the dynamic timestep shift; NULL: the recipe's function is used. */
    double      (*mu)(int64_t tokens, int steps);
} xd_distilled;

/* properties of a model from which xd_distilled_find recognizes distilled checkpoints; the configs
 * may be NULL */
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

/* Replaces an image size in pixels by that one of the n sizes in `table` whose aspect ratio is
 * nearest. */
void xd_size_bucket_nearest(const xd_size_bucket *table, int n, int64_t *height, int64_t *width);
/* Implementations of xd_recipe.trained_size for models that were trained on the sizes of
 * ratio_buckets.c of up to 1024 or 2048 pixels, if a latent cell has 8 pixels on a side. */
int  xd_ratio_buckets_1024(int64_t sample, int64_t *height, int64_t *width);
int  xd_ratio_buckets_2048(int64_t sample, int64_t *height, int64_t *width);

#endif
