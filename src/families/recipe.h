/* recipe.h - a pipeline as data: its components, its defaults, and its few special rules */
#ifndef XD_FAMILIES_RECIPE_H
#define XD_FAMILIES_RECIPE_H

#include <stdint.h>

#include "base/json.h"

enum { XD_MAXTEXT = 3 };        /* text encoders of a pipeline                                 */

/* Where an encoder's token embeddings go in the prompt's embeddings: nowhere, in rows below the
 * previous ones, or into the rows of the previous encoder as further features. */
typedef enum xd_rows_of { XD_ROWS_NONE, XD_ROWS_BELOW, XD_ROWS_BESIDE } xd_rows_of;

enum { XD_PAD_NONE = 0, XD_PAD_MOST = -1, XD_PAD_ONE = -2 };

typedef struct xd_text_use {    /* one text encoder of a pipeline                              */
    /* Without a tokenizer: an encoder of the images of a request, behind those of text. */
    const char *folder, *tokenizer;
    xd_rows_of  rows;
    /* Ids are padded to this many, to the most a prompt may have (XD_PAD_MOST), by one where there
     * is room (XD_PAD_ONE), or not; padding is read like text. */
    int         pad;
    int         penultimate;    /* token embeddings are the input of the last block            */
    int         pooled;         /* its pooled embedding is used, beside those of others        */
    int         prompt;         /* which prompt it reads: 1, 2: prompt_2, prompt_3, if given    */
    int         optional;       /* replaced by zeros if a directory lacks it                   */
    const char *slot;           /* name of a file with its weights alone: "clip_l"             */
    int         masked;         /* text does not attend to padding, though its rows are computed */
    int         blank;          /* rows of padding are zeros, and not computed (with `masked`) */
    /* The pipeline's chat template with all but the prompt filled in, "{}" in its place; no other
     * special tokens are put around it. NULL: the prompt alone is read. */
    const char *frame;
    int         left;           /* padding stands before the text (with `masked`)              */
    /* So many ids of the frame, those before the prompt, are read by the encoder, and their rows
     * are not handed out: `pad` and max_sequence_length count the others. Not with `left`. */
    int         drop;
    /* Hidden states that are handed out, side by side in each row, as numbered by xd_text_layer:
     * the encoder runs no further. 0: its last one. */
    int         nlayers;
    const int  *layers;
    /* The encoder sees the reference images: this text for each of them stands before the prompt,
     * with the image's number in place of "{}" and its tokens in place of the one of its kind.
     * NULL: it reads text alone. */
    const char *image_text;
    /* It sees an image that reference_size has brought to so many pixels; 0: the one that the
     * transformer reads. */
    int64_t     image_area;
    const char *processor;      /* folder that says how images are shown to it             */
} xd_text_use;

/* Sigmas that a pipeline passes to its scheduler, 1 .. 1/steps in equal steps: none (the
 * scheduler's count), always, not where the config has use_flow_sigmas, or there only for noise
 * that starts from an image. */
typedef enum xd_own_sigmas { XD_OWN_NONE, XD_OWN_ALWAYS, XD_OWN_BUT_FLOW, XD_OWN_BUT_FLOW_TEXT }
    xd_own_sigmas;

typedef enum xd_sized_by { XD_SIZED_BY_MODEL, XD_SIZED_BY_FIRST, XD_SIZED_BY_LAST } xd_sized_by;

typedef struct xd_usual { int steps, max_text; double guidance; } xd_usual;  /* 0: as without  */

typedef struct xd_recipe {
    const char *name;           /* "pixart-sigma"                                              */
    const char *pipelines[4];   /* `_class_name` of model_index.json                           */
    /* Of several recipes of a class: the key of model_index.json that is true for this one; it
     * stands before one without it. NULL: all models. */
    const char *when;
    const char *dit, *vae;      /* component folders                                           */
    /* Folder of a second transformer: that of the steps whose time is below boundary_ratio of
     * model_index.json. A model may lack either. NULL: there is one transformer. */
    const char *dit2;
    xd_text_use text[XD_MAXTEXT];
    int         ntext;
    int         steps, max_text;        /* defaults of the pipeline's __call__                 */
    int         most_text;      /* upper limit of max_sequence_length; 0: any                  */
    double      guidance;
    /* The transformer reads the guidance scale; two passes only with true_cfg_scale and a
     * negative prompt. */
    int         distilled;
    double      true_cfg;       /* true_cfg_scale where a request has none (with `distilled`)  */
    /* Each token's guided prediction is brought to the length of the prompt's. */
    int         keeps_length;
    xd_own_sigmas own_sigmas;
    /* xd_steps.mu. */
    double    (*mu)(int64_t tokens, int steps);
    double      max_shift;  /* of rectified flow: xd_steps.max_shift; 0: noise is added otherwise */
    double      strength;       /* default of an initial image's; 0: 0.6                       */
    xd_usual    of_image, of_mask;      /* of a request that starts from an image, or inpaints  */
    int         leap;           /* xd_steps.leap                                               */
    /* Replaces a size in pixels by the nearest one that the transformer with this sample_size (in
     * latent cells) was trained on; 0: there is no table for it. NULL: any size is generated. */
    int       (*trained_size)(int64_t sample, int64_t *height, int64_t *width);
    int         resized;        /* the image is then resized to the size asked for             */
    int         rescales;       /* its call has guidance_rescale                               */
    /* Guidance is prompt + g (prompt - negative), none at 0, and its call has cfg_normalization and
     * cfg_truncation; otherwise it is negative + g (prompt - negative), none at 1. */
    int         guides_from_prompt;
    int         skips_layers;   /* its call has skip_guidance_layers                           */
    int         dynamic_cfg;    /* its published examples use dynamic guidance                 */
    double      fps;            /* of a video; 0: it generates images                          */
    int         frames_up;      /* 4 n frames become 4 n + 1, not 4 n - 3 (at 4 a latent frame) */
    int         channels_first; /* its noise is drawn as [C,t,h,w], not as [t,C,h,w]           */
    /* Its scheduler sees tokens, [N, C p^2], not latents: so the noise of a step is drawn. */
    int         packed;
    double      pairs_fps;      /* of a transformer with patches of several frames; 0: fps     */
    /* A video that begins with an image, which the transformer reads beside the latents. */
    int         from_image;
    /* What it reads (with from_image) are the latents of a video that is grey but for its first
     * frame and, if the request has one, its last, behind a mask of these frames. */
    int         from_frames;
    /* An image of the request is the first frame of the latents in all steps, whose tokens have the
     * time 0. Without one all frames are generated. */
    int         holds_image;
    /* The transformer reads beside the latents those of the image, grey where the mask is bright,
     * and every pixel of the mask as a channel of its cell. */
    int         from_mask;
    /* Most reference images that its transformer reads as tokens, for editing; 0: noise starts from
     * an image. */
    int         references;
    int         needs_reference;        /* it generates nothing without one                    */
    /* With a mask it starts from its one reference image, like models without them, and reads the
     * latents that were drawn from it. */
    int         inpaints_reference;
    /* Pixels of a reference image, for which a request may name another number (max_area); 0: those
     * of reference_size. */
    int64_t     reference_area;
    int         auto_resizes;   /* no_auto_resize leaves out reference_size                    */
    /* Of a reference image of this size in pixels: the size to resize it to. What is above whole
     * multiples of `unit` is then cut off at all sides. area: max_area of the request, or
     * reference_area. XD_EINVAL: the model takes no such image. */
    xd_status (*reference_size)(int64_t unit, int64_t area, int64_t *height, int64_t *width,
                                xd_err *e);
    /* A side that is not asked for is that of the first or of the last image, resized and cut. */
    xd_sized_by sized_by;
    double      mask_strength;  /* strength of a request with a mask that gives none; 0: 0.6   */
    int64_t     max_area;       /* pixels; a size asked for gives only the ratio. 0: sizes count */
    char     *(*caption)(const char *text);     /* prepares a prompt; malloc'ed                */
    char     *(*uncleaned)(const char *text);   /* without clean_caption; NULL: it has none     */
} xd_recipe;

/* Does the encoder in this folder see images? p may be NULL. */
int              xd_recipe_sees(const xd_recipe *p, const char *folder);
const xd_recipe *xd_recipe_at(int i);   /* of all families, in order; NULL at the end          */
/* Can it inpaint a part of an image? Those that start from an image can. */
int       xd_recipe_inpaints(const xd_recipe *p);
/* Appends the first class of each recipe, "A, B". */
void xd_recipe_names(xd_text_buf *b);
/* Finds a recipe by the class in model_index.json; NULL: none. `index` is that file; NULL: the
 * first recipe of the class. */
const xd_recipe *xd_recipe_find(const char *pipeline, const xd_json *index);

/* ---- checkpoints that were distilled (distilled.c) ----------------------------------------- */

typedef struct xd_distilled {
    const char *name;           /* "FLUX.1-schnell"                                            */
    const char *recipe, *config, *words, *unless;       /* what it is recognised by             */
    int         steps;
    double      guidance;       /* negative: that of the recipe                                */
    double      true_cfg;       /* 0: that of the recipe                                       */
    int         max_text;       /* 0: that of the recipe                                       */
    const char *timesteps;      /* of all steps, where a request has none; NULL: the scheduler's */
} xd_distilled;

typedef struct xd_distilled_of {        /* a model; configs may be NULL                        */
    const char    *recipe, *name;       /* name: of its directory, repository or file          */
    const xd_json *index, *transformer, *scheduler;
} xd_distilled_of;

/* Returns 1 if the model is in the table, and its row. */
int xd_distilled_find(const xd_distilled_of *m, xd_distilled *found);

/* ---- for the tables of a family ------------------------------------------------------------ */

typedef struct xd_size_bucket { double ratio; int height, width; } xd_size_bucket;

/* Replaces a size in pixels by the one of `n` whose ratio height / width is the nearest. */
void xd_size_bucket_nearest(const xd_size_bucket *table, int n, int64_t *height, int64_t *width);

#endif
