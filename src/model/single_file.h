/* single_file.h - one file with the weights of a component, in any known layout
 *
 * A source in front of the file's own source. It answers declared names with views of the file's
 * tensors of other names, or of some of their rows. Only the few tensors whose halves are
 * swapped are copied. */
#ifndef XD_MODEL_SINGLE_FILE_H
#define XD_MODEL_SINGLE_FILE_H

#include "exec/weight.h"
#include "io/safetensors.h"
#include "families/key_map.h"

typedef struct xd_single_file xd_single_file;

typedef struct xd_single_file_of {      /* all borrowed; must outlive the source               */
    const char         *file, *config;  /* names for messages                                  */
    const char         *slot;   /* "transformer", "vae", "clip_l", "clip_g", "t5xxl", "llm"    */
    const char         *net;    /* name of the network that reads the weights                  */
    const xd_declared  *list;   /* every tensor it declares                                    */
    int                 nlist;
    const xd_declared  *needed; /* those of them without which it cannot run                   */
    int                 nneeded;
    const xd_st        *files;
    const xd_source    *raw;    /* source with the file's own names                            */
} xd_single_file_of;

/* Finds the layout. Refused with one sentence: an unknown layout, another network's file, a LoRA,
 * another number of blocks than the config's. */
xd_status xd_single_file_open(xd_single_file **s, const xd_single_file_of *of, xd_err *e);
void      xd_single_file_close(xd_single_file **s);
xd_source xd_single_file_source(xd_single_file *s);

/* The file's name for a declared tensor (alternatives are not tried); 0: the layout has none. */
int         xd_single_file_name(const xd_single_file *s, const char *want, char *have, size_t size);
/* The prefix of all names of this component; names without it belong to another component. */
const char *xd_single_file_prefix(const xd_single_file *s);

const xd_key_map *xd_key_map_at(int i);  /* all known layouts (key_map.c); NULL at the end       */
/* Values of "general.architecture", with blanks between them, of a GGUF file with this layout.
 * NULL: any. */
const char       *xd_key_map_archs(const xd_key_map *k);
/* A layout that the file has for this slot: the first match from xd_key_map_at(*at) on. *at becomes
 * its number, *prefix (at least 64 bytes) the prefix of its names. NULL: none. */
const xd_key_map *xd_key_map_find(const xd_st *files, const char *slot, int *at, char prefix[64]);
/* Nonzero if names are those of a LoRA. */
int         xd_is_lora(const xd_st *files);

#endif
