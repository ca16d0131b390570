/* recipe.h - a pipeline is data: which components, defaults, and the few rules of its own */
#ifndef XD_MODEL_RECIPE_H
#define XD_MODEL_RECIPE_H

#include <stdint.h>

#include "base/json.h"

enum { XD_MAXTEXT = 3 };        /* text encoders of a pipeline                                 */

/* Where an encoder's token embeddings go in those of the prompt: nowhere, below those before, or
 * into the same rows as the encoder before, in the next features. */
typedef enum xd_rows_of { XD_ROWS_NONE, XD_ROWS_BELOW, XD_ROWS_BESIDE } xd_rows_of;

enum { XD_PAD_NONE = 0, XD_PAD_MOST = -1 };

typedef struct xd_text_use {    /* one text encoder of a pipeline                              */
    const char *folder, *tokenizer;
    xd_rows_of  rows;
    int         pad;            /* ids are padded to this many, to the most a prompt may have    */
                                /* (XD_PAD_MOST), or not; padding is read like text             */
    int         penultimate;    /* token embeddings are those before the last block             */
    int         pooled;         /* its pooled embedding is used, beside that of others          */
    int         optional;       /* zeros stand for it where a directory has none                */
    const char *slot;           /* what a file with its weights alone is called: "clip_l"       */
    int         masked;         /* padding is not seen by text, though its rows are made        */
} xd_text_use;

typedef struct xd_recipe {
    const char *name;           /* "pixart-sigma"                                              */
    const char *pipelines[4];   /* `_class_name` of model_index.json                           */
    const char *dit, *vae;      /* component folders                                           */
    xd_text_use text[XD_MAXTEXT];
    int         ntext;
    int         steps, max_text;        /* defaults of the pipeline's __call__                  */
    int         most_text;      /* the most that max_sequence_length may be; 0: any               */
    double      guidance;
    int         distilled;      /* the guidance scale is read by the transformer; two passes only  */
                                /* with true_cfg_scale and a negative prompt                     */
    int         own_sigmas;     /* sigmas are 1 .. 1/steps in equal steps, whatever the scheduler's */
    double      max_shift;      /* of rectified flow: xd_steps.max_shift; 0: noise is added otherwise */
    int         leap;           /* xd_steps.leap                                               */
    /* Sizes are taken from the trained table whose transformer sample_size is at most this; 0: the
     * pipeline has no tables. */
    int64_t     largest_bin;
    int         standard;       /* sizes are Hunyuan-DiT's (xd_size_bucket_standard): the image is one of them  */
    int         rescales;       /* its call has guidance_rescale                               */
    double      fps;            /* of a video; 0: it generates images                            */
    int         from_image;     /* a video that begins with an image, which the transformer reads */
                                /* beside the latents                                          */
    char     *(*caption)(const char *text);     /* prepares a prompt; malloc'ed                 */
} xd_recipe;

extern const xd_recipe *const xd_recipes[];     /* the registry, NULL at the end               */

/* The first class of each, "A, B"; appended. */
void xd_recipe_names(xd_text_buf *b);
/* By the class of model_index.json; NULL: none. */
const xd_recipe *xd_recipe_find(const char *pipeline);

typedef struct xd_size_bucket { double ratio; int height, width; } xd_size_bucket;

/* Replaces a size in pixels by the nearest trained one of the table for a transformer of this
 * sample_size (latent cells); 0 when there is no table for it. */
int xd_size_bucket_nearest(int64_t sample, int64_t largest, int64_t *height, int64_t *width);

/* Replaces a size in pixels by that of Hunyuan-DiT's standard sizes whose ratio, and then area, is nearest. */
void xd_size_bucket_standard(int64_t *height, int64_t *width);

#endif
