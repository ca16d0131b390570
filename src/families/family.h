/* family.h - a family of models: what the program knows of its models, in one place
 *
 * A family is a folder or a file of this room, which exports one xd_family, and a line of the
 * registry (src/families/meson.build). No other code names a family; tests/style/models.py
 * checks. */
#ifndef XD_FAMILIES_FAMILY_H
#define XD_FAMILIES_FAMILY_H

#include <stddef.h>

#include "dit/dit.h"
#include "families/from_xdit.h"
#include "families/key_map.h"
#include "families/recipe.h"

/* A list of pointers that ends with NULL. */
#define XD_LIST(type, ...) (const type *const[]){ __VA_ARGS__, NULL }

/* Names of published models and their files, for help texts; NULL: none. */
typedef struct xd_examples {
    const char *file;           /* "flux1-dev.safetensors"                                     */
    const char *hub;            /* "black-forest-labs/FLUX.1-dev"                              */
    const char *layers;         /* of a network with several kinds of blocks: "2,4"            */
    const char *from_image;     /* models that begin a video with an image: "A and B"          */
    const char *last_image;     /* those that end it with one, too                             */
} xd_examples;

typedef struct xd_family {
    const char             *title;      /* "FLUX", in messages and help texts                  */
    const xd_dit *const    *dits;       /* its networks; ends with NULL                        */
    const xd_recipe *const *recipes;    /* its pipelines; ends with NULL                       */
    /* Layouts of single files with a transformer; ends with one without `what`. NULL: none. */
    const xd_key_map       *key_maps;
    /* Modules of LoRA files that the original code names in its own way; ends with a row without
     * `from`. NULL: none. */
    const xd_lora_name     *lora_names;
    const xd_xdit_rows     *xdit;       /* in xDiT; NULL: it has none of its models            */
    xd_examples             examples;
} xd_family;

extern const xd_family *const xd_families[];    /* the registry; ends with NULL                */

const xd_dit    *xd_dit_at(int i);      /* of all families, in order; NULL at the end          */
/* The family of a network; NULL: of none. */
const xd_family *xd_family_of(const xd_dit *d);

#endif
