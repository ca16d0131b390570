/* recipe.h - a pipeline as data: its components, its defaults, and its special rules */
#ifndef XD_FAMILIES_RECIPE_H
#define XD_FAMILIES_RECIPE_H

#include <stdint.h>

#include "base/json.h"

enum { XD_MAXTEXT = 3 };        /* max text encoders of a pipeline                             */

/* Where an encoder's token embeddings go in the prompt's embeddings: nowhere, into new rows after
 * the previous ones, or into the rows of the previous encoder as further features. */
typedef enum xd_rows_of { XD_ROWS_NONE, XD_ROWS_BELOW, XD_ROWS_BESIDE } xd_rows_of;

enum { XD_PAD_NONE = 0, XD_PAD_MOST = -1, XD_PAD_ONE = -2 };

typedef struct xd_text_use {    /* one text encoder of a pipeline                              */
    /* tokenizer NULL: an image encoder, whose rows follow those of text. */
    const char *folder, *tokenizer;
    xd_rows_of  rows;
    /* Number of ids to which texts are padded, or XD_PAD_MOST: the maximum of a prompt, XD_PAD_ONE:
     * one id if there is space, 0: none; padding is read like text. */
    int         pad;
    int         penultimate;    /* 1: token embeddings are the last block's input              */
    int         pooled;         /* 1: its pooled embedding is appended to the others'          */
    int         prompt;         /* prompt that it reads: 1, 2: prompt_2, prompt_3, if given     */
    int         optional;       /* 1: replaced by zeros if a directory lacks it                */
    const char *slot;           /* name of a file with only its weights: "clip_l"              */
    int         masked;         /* 1: text does not attend to padding (rows are computed)        */
    int         blank;          /* 1: padding rows are zeros, not computed (with `masked`)     */
    /* The pipeline's chat template, complete except for the prompt in place of "{}"; no further
     * special tokens are added. NULL: only the prompt. */
    const char *frame;
    int         left;           /* 1: padding is before the text (with `masked`)               */
    /* Number of template ids before the prompt whose rows are dropped from the encoder's output:
     * `pad` and max_sequence_length count the remaining ids. Not with `left`. */
    int         drop;
    /* Hidden states that are output, side by side in each row, in the numbering of xd_text_layer;
     * the encoder stops after the last of them. 0: its last hidden state. */
    int         nlayers;
    const int  *layers;
    /* For encoders of reference images: this text is inserted before the prompt for each image,
     * with the image's number in place of "{}", and the image token repeated per image. NULL: text
     * only. */
    const char *image_text;
    /* The encoder reads an image resized by reference_size to this many pixels; 0: the image that
     * the transformer reads. */
    int64_t     image_area;
    const char *processor;      /* folder of the image processor's config                  */
} xd_text_use;

/* Sigmas that a pipeline passes to its scheduler, 1 .. 1/steps in equal steps: none (the scheduler
 * computes them); always; unless the config has use_flow_sigmas; or, with use_flow_sigmas, only for
 * noise that starts from an image. */
typedef enum xd_own_sigmas { XD_OWN_NONE, XD_OWN_ALWAYS, XD_OWN_BUT_FLOW, XD_OWN_BUT_FLOW_TEXT }
    xd_own_sigmas;

typedef enum xd_sized_by { XD_SIZED_BY_MODEL, XD_SIZED_BY_FIRST, XD_SIZED_BY_LAST } xd_sized_by;

typedef struct xd_usual { int steps, max_text; double guidance; } xd_usual;  /* 0: unchanged     */

typedef struct xd_recipe {
    const char *name;           /* "pixart-sigma"                                              */
    const char *pipelines[4];   /* `_class_name` of model_index.json                           */
    /* If a class has several recipes: the key of model_index.json that is true for this one; the
     * recipe with a key comes first. NULL: all models. */
    const char *when;
    const char *dit, *vae;      /* component folders                                           */
    /* Folder of the second transformer, for steps with a timestep below boundary_ratio of
     * model_index.json. A model may lack either. NULL: one transformer. */
    const char *dit2;
    xd_text_use text[XD_MAXTEXT];
    int         ntext;
    int         steps, max_text;        /* defaults of the pipeline's __call__                 */
    int         most_text;      /* max of max_sequence_length; 0: no limit                     */
    double      guidance;
    /* 1: the transformer reads the guidance scale; two passes only with true_cfg_scale and a
     * negative prompt. */
    int         distilled;
    double      true_cfg;       /* default of true_cfg_scale (with `distilled`)                */
    /* 1: the norm of each token's guided prediction is set to that of the prompt's. */
    int         keeps_length;
    xd_own_sigmas own_sigmas;
    /* See xd_steps.mu. */
    double    (*mu)(int64_t tokens, int steps);
    double      max_shift;  /* rectified flow: xd_steps.max_shift; 0: other noise                 */
    double      strength;       /* default strength of an initial image; 0: 0.6                */
    xd_usual    of_image, of_mask;      /* defaults with an initial image, and with a mask      */
    int         leap;           /* see xd_steps.leap                                           */
    /* Replaces a size in pixels by the nearest one that a transformer with this sample_size (in
     * latent cells) was trained on; returns 0 if there is no table. NULL: any size is generated. */
    int       (*trained_size)(int64_t sample, int64_t *height, int64_t *width);
    int         resized;        /* 1: the image is then resized to the requested size          */
    int         rescales;       /* the pipeline has guidance_rescale                           */
    /* 1: guidance is prompt + g (prompt - negative), off at 0, with cfg_normalization and
     * cfg_truncation; 0: negative + g (prompt - negative), off at 1. */
    int         guides_from_prompt;
    int         skips_layers;   /* the pipeline has skip_guidance_layers                       */
    int         dynamic_cfg;    /* the published examples use dynamic guidance                 */
    double      fps;            /* frames per second; 0: generates images                      */
    int         frames_up;      /* 4 n frames become 4 n + 1, not 4 n - 3                       */
    int         channels_first; /* noise is drawn as [C,t,h,w], not as [t,C,h,w]               */
    /* 1: the scheduler works on tokens [N,C p^2], not latents, so a step's noise has that order. */
    int         packed;
    double      pairs_fps;      /* fps with patches of several frames; 0: fps                  */
    /* 1: image to video; the transformer reads the first frame in additional channels. */
    int         from_image;
    /* Condition channels (with from_image): the mask of the given frames, then VAE latents of a
     * grey video with the first (and last) frame filled in. */
    int         from_frames;
    /* 1: an image of the request is the first latent frame in all steps, and its tokens have time
     * 0. Without an image all frames are generated. */
    int         holds_image;
    /* Inpainting with condition channels: latents of the image with a grey mask area, and every
     * pixel of the mask as a channel of its cell. */
    int         from_mask;
    /* Max number of reference images that the transformer reads as tokens, for editing; 0: an image
     * is the initial image. */
    int         references;
    int         needs_reference;        /* 1: a reference image is required                    */
    /* Inpainting: noise starts from the single reference image, as in models without references,
     * and the transformer reads its sampled latents. */
    int         inpaints_reference;
    /* Default area of a reference image in pixels (a request may set max_area); 0: reference_size
     * sets it. */
    int64_t     reference_area;
    int         auto_resizes;   /* 1: no_auto_resize turns reference_size off                  */
    /* Replaces the size of a reference image in pixels by the size to resize it to. The part beyond
     * multiples of `unit` is then cropped evenly. area: max_area of the request, or reference_area.
     * XD_EINVAL: the model does not support such an image. */
    xd_status (*reference_size)(int64_t unit, int64_t area, int64_t *height, int64_t *width,
                                xd_err *e);
    /* The image (first or last), resized and cropped, whose size is the default size. */
    xd_sized_by sized_by;
    double      mask_strength;  /* default strength with a mask; 0: 0.6                        */
    int64_t     max_area;       /* pixels; a requested size only sets the ratio; 0: size counts  */
    char     *(*caption)(const char *text);     /* prepares a prompt; malloc'ed                */
    char     *(*uncleaned)(const char *text);   /* without clean_caption; NULL: no such option  */
} xd_recipe;

/* Returns 1 if the encoder in this folder reads images. p may be NULL. */
int              xd_recipe_sees(const xd_recipe *p, const char *folder);
const xd_recipe *xd_recipe_at(int i);   /* i-th of all families; NULL at the end               */
/* Returns 1 if the recipe can inpaint; recipes that start from an image can. */
int       xd_recipe_inpaints(const xd_recipe *p);
/* Appends the first class of each recipe, "A, B". */
void xd_recipe_names(xd_text_buf *b);
/* Finds a recipe by the class in model_index.json; NULL: none. `index` is that file; NULL: the
 * first recipe of the class. */
const xd_recipe *xd_recipe_find(const char *pipeline, const xd_json *index);

/* ---- distilled checkpoints (distilled.c) ----------------------------------------- */

typedef struct xd_distilled {
    const char *name;           /* "FLUX.1-schnell"                                            */
    const char *recipe, *config, *words, *unless;       /* how it is recognized                 */
    int         steps;
    double      guidance;       /* negative: the recipe's                                      */
    double      true_cfg;       /* 0: the recipe's                                             */
    int         max_text;       /* 0: the recipe's                                             */
    const char *timesteps;      /* default timesteps; NULL: the scheduler's                      */
} xd_distilled;

typedef struct xd_distilled_of {        /* facts of a model; configs may be NULL               */
    const char    *recipe, *name;       /* name: of the directory, repository or file          */
    const xd_json *index, *transformer, *scheduler;
} xd_distilled_of;

/* Returns 1 and the row if the model is in the table. */
int xd_distilled_find(const xd_distilled_of *m, xd_distilled *found);

/* ---- for the tables of a family ------------------------------------------------------------ */

typedef struct xd_size_bucket { double ratio; int height, width; } xd_size_bucket;

/* Replaces a size in pixels by the entry (of n) with the nearest ratio height / width. */
void xd_size_bucket_nearest(const xd_size_bucket *table, int n, int64_t *height, int64_t *width);

#endif
