/* family.h - a family of models: everything that is specific to its models, in one place
 *
 * A family is a folder or a file of src/families that exports one xd_family, and a line of the
 * registry (src/families/meson.build). No other code names a family; tests/style/models.py checks
 * that. */
#ifndef XD_FAMILIES_FAMILY_H
#define XD_FAMILIES_FAMILY_H

#include <stddef.h>

#include "dit/dit.h"
#include "families/from_xdit.h"
#include "families/key_map.h"
#include "families/recipe.h"

/* A list of pointers; ends with NULL. */
#define XD_LIST(type, ...) (const type *const[]){ __VA_ARGS__, NULL }

/* Names of published models and files for help texts; NULL: none. */
typedef struct xd_examples {
    const char *file;           /* "flux1-dev.safetensors"                                     */
    const char *hub;            /* "black-forest-labs/FLUX.1-dev"                              */
    const char *layers;         /* counts of a network with several kinds of blocks: "2,4"     */
    const char *from_image;     /* models with a first frame as input: "A and B"               */
    const char *last_image;     /* models with a last frame as input, too                      */
} xd_examples;

typedef struct xd_family {
    const char             *title;      /* "FLUX", in messages and help texts                  */
    const xd_dit *const    *dits;       /* its networks; ends with NULL                        */
    const xd_recipe *const *recipes;    /* its pipelines; ends with NULL                       */
    /* Layouts of single files with a transformer; ends with a layout without `what`. NULL: none. */
    const xd_key_map       *key_maps;
    /* Names of modules in LoRA files of the original code; ends with a row without `from`. NULL:
     * none. */
    const xd_lora_name     *lora_names;
    const xd_xdit_rows     *xdit;       /* models in xDiT; NULL: none                          */
    xd_examples             examples;
} xd_family;

extern const xd_family *const xd_families[];    /* the registry; ends with NULL                */

const xd_dit    *xd_dit_at(int i);      /* i-th of all families, in order; NULL at the end     */
/* Returns the family of a network; NULL: none. */
const xd_family *xd_family_of(const xd_dit *d);

#endif
