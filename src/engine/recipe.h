/* recipe.h - a pipeline is data: which components, defaults, and the few rules of its own */
#ifndef XD_ENGINE_RECIPE_H
#define XD_ENGINE_RECIPE_H

#include <stdint.h>

enum { XD_MAXTEXT = 3 };        /* text encoders of a pipeline                                 */

typedef struct xd_recipe {
    const char *name;           /* "pixart-sigma"                                              */
    const char *pipelines[4];   /* `_class_name` of model_index.json                           */
    const char *dit, *vae;      /* component folders                                           */
    struct { const char *folder, *tokenizer; } text[XD_MAXTEXT];
    int         ntext;
    int         steps, max_text;        /* defaults of the pipeline's __call__                  */
    double      guidance;
    /* Sizes are taken from the trained table whose transformer sample_size is at most this; 0: the
     * pipeline has no tables. */
    int64_t     largest_bin;
    char     *(*caption)(const char *text);     /* prepares a prompt; malloc'ed                 */
} xd_recipe;

extern const xd_recipe *const xd_recipes[];     /* the registry, NULL at the end               */

/* By the class of model_index.json; NULL: none. */
const xd_recipe *xd_recipe_find(const char *pipeline);

typedef struct xd_bin { double ratio; int height, width; } xd_bin;

/* Replaces a size in pixels by the nearest trained one of the table for a transformer of this
 * sample_size (latent cells); 0 when there is no table for it. */
int xd_bin_nearest(int64_t sample, int64_t largest, int64_t *height, int64_t *width);

#endif
