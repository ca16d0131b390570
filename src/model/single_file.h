/* single_file.h - one file with the weights of a component, in whatever known layout.
 *
 * A source over the file's own source: it is asked for declared names and answers with views of the
 * tensors that the file has under other names, or of some of their rows. Nothing is copied but the
 * few tensors whose halves are swapped. */
#ifndef XD_MODEL_SINGLE_FILE_H
#define XD_MODEL_SINGLE_FILE_H

#include "exec/weight.h"
#include "io/safetensors.h"
#include "model/key_map.h"

typedef struct xd_single_file xd_single_file;

typedef struct xd_single_file_of {   /* all borrowed, and needed as long as the source              */
    const char         *file, *config;          /* names for messages                          */
    const char         *slot;   /* "transformer", "vae", "clip_l", "clip_g", "t5xxl"             */
    const char         *net;    /* name of the network that reads the weights                   */
    const xd_declared  *list;   /* every tensor it declares                                     */
    int                 nlist;
    const xd_st        *files;
    const xd_source    *raw;    /* the tensors under the file's names                           */
} xd_single_file_of;

/* Finds the layout. Refused with one sentence: none of the known ones, another network's, a LoRA,
 * numbers in eight bits that are not fp8, another number of blocks than the config's. */
xd_status xd_single_file_open(xd_single_file **s, const xd_single_file_of *of, xd_err *e);
void      xd_single_file_close(xd_single_file **s);
xd_source xd_single_file_source(xd_single_file *s);

/* The name in the file of a declared tensor (no alternatives); 0 when the layout has none. */
int         xd_single_file_name(const xd_single_file *s, const char *want, char *have, size_t size);
/* That stands before all names that belong to this component; others are another one's. */
const char *xd_single_file_prefix(const xd_single_file *s);

/* A layout that the file has for this slot: the first from xd_namings[*at] on; *at becomes its
 * number, *prefix (at least 64 bytes) what stands before its names. NULL: none. */
const xd_key_map *xd_key_map_find(const xd_st *files, const char *slot, int *at, char prefix[64]);
/* Nonzero when names speak of a LoRA. */
int         xd_is_lora(const xd_st *files);

#endif
