/* family.h - declares xd_family, which describes everything that is specific to one family of
 * models, such as FLUX.
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

/* Names of published models and files that help texts show as examples; NULL: the family has no
 * such example. */
typedef struct xd_examples {
    const char *file; /* name of a weight file, "flux1-dev.safetensors" */
    const char *hub;  /* name of a repository, "black-forest-labs/FLUX.1-dev" */
    /* option value with the number of blocks of each kind, for two kinds: "2,4" */
    const char *layers;
    /* names of models that read the first frame of a video, as "A and B" */
    const char *from_image;
    /* names of models that read the first and the last frame of a video */
    const char *last_image;
    const char *control_image; /* names of models that read a control image */
    const char *control_video; /* names of models that read a control video */
} xd_examples;

typedef struct xd_family {
    const char             *title;   /* name in messages and help texts, "FLUX" */
    const xd_dit *const    *dits;    /* transformers of the family; the list ends with NULL */
    const xd_recipe *const *recipes; /* pipelines of the family; the list ends with NULL */
    /* Known layouts of tensor names in single files that contain a transformer or a VAE of this
     * family. The list ends with a layout whose `what` is NULL. If key_maps is NULL, no layout is
     * known. */
    const xd_key_map       *key_maps;
    /* Table of the module names in LoRA files that were trained with the original code. The table
     * ends with a row whose `from` is NULL. If lora_names is NULL, the family has no such table. */
    const xd_lora_name     *lora_names;
    const xd_xdit_rows     *xdit; /* models of the family in xDiT; NULL: none */
    xd_examples             examples;
} xd_family;

extern const xd_family *const xd_families[]; /* pointers to all families; the list ends with NULL */

/* Returns the i-th transformer, counted over all families, or NULL after the last one. */
const xd_dit    *xd_dit_at(int i);
/* Returns the family to which a transformer belongs, or NULL if it belongs to none. */
const xd_family *xd_family_of(const xd_dit *d);

#endif
