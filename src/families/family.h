/* family.h - declares xd_family, which has everything that is specific to one family of models,
 * such as FLUX.
 *
 * A family consists of a folder or a file of src/families, which exports one xd_family, and of a
 * line in the registry (src/families/meson.build). No code outside src/families contains the name
 * of a family; tests/style/models.py checks this. */
#ifndef XD_FAMILIES_FAMILY_H
#define XD_FAMILIES_FAMILY_H

#include <stddef.h>

#include "dit/dit.h"
#include "families/from_xdit.h"
#include "families/key_map.h"
#include "families/recipe.h"

/* Expands to an array of pointers with NULL as the last element. */
#define XD_LIST(type, ...) (const type *const[]){ __VA_ARGS__, NULL }

/* Names of published models and files, shown as examples in help texts. NULL: the family has no
 * such example. */
typedef struct xd_examples {
    const char *file; /* name of a weight file, "flux1-dev.safetensors" */
    const char *hub;  /* name of a repository, "black-forest-labs/FLUX.1-dev" */
    /* option value with the block counts of two kinds of blocks: "2,4" */
    const char *layers;
    /* names of models that read the first frame of a video, as "A and B" */
    const char *from_image;
    const char *last_image;    /* names of models that also read a last frame */
    const char *control_image; /* names of models that read a control image */
    const char *control_video; /* names of models that read a control video */
} xd_examples;

typedef struct xd_family {
    const char             *title;   /* name in messages and help texts, "FLUX" */
    const xd_dit *const    *dits;    /* transformers of the family; the list ends with NULL */
    const xd_recipe *const *recipes; /* pipelines of the family; the list ends with NULL */
    /* Known layouts of single files that contain a transformer, or a VAE of this family. The last
     * layout in the list has NULL as `what`. key_maps NULL: the family has no known layouts. */
    const xd_key_map       *key_maps;
    /* Table of the module names in LoRA files that were trained with the original code. In the last
     * row of the table, `from` is NULL. lora_names NULL: the family has no such table. */
    const xd_lora_name     *lora_names;
    const xd_xdit_rows     *xdit; /* models of the family in xDiT; NULL: none */
    xd_examples             examples;
} xd_family;

extern const xd_family *const xd_families[]; /* pointers to all families; the list ends with NULL */

/* Returns the i-th transformer of all families, counted in the order of the families, or NULL if
 * there are fewer. */
const xd_dit    *xd_dit_at(int i);
/* Returns the family of a transformer, or NULL if no family has the transformer. */
const xd_family *xd_family_of(const xd_dit *d);

#endif
