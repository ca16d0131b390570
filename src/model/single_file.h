/* single_file.h - reads the weights of a component from one file whose tensor names have any known
 * layout (ComfyUI, original repositories).
 *
 * To translate names, a weight source wraps the file's own weight source: a declared tensor is a
 * view of a tensor with another name in the file, or of some rows of it. Tensors are copied only if
 * the type or the order of their rows changes. */
#ifndef XD_MODEL_SINGLE_FILE_H
#define XD_MODEL_SINGLE_FILE_H

#include "exec/weight.h"
#include "io/safetensors.h"
#include "families/key_map.h"

typedef struct xd_single_file xd_single_file;

/* arguments of xd_single_file_open; all of them must outlive the weight source */
typedef struct xd_single_file_of {
    const char        *file, *config; /* names of the file and of the config, for messages */
    /* the component's slot: "transformer", "vae", "clip_l", "clip_g", "t5xxl" or "llm" */
    const char        *slot;
    const char        *net;  /* name of the network that reads the weights */
    const xd_declared *list; /* all tensors that the network declares */
    int                nlist;
    const xd_declared *needed; /* tensors of `list` that the file must contain */
    int                nneeded;
    const xd_st       *files;
    const xd_source   *raw; /* weight source that uses the file's own tensor names */
    /* Names with this prefix are the same in the file and in the declarations; NULL: no such
     * prefix. */
    const char        *apart;
    /* Only names with this prefix are translated; the names in the file have it, too, in place of a
     * prefix of the layout. NULL: all names are translated. The text is copied. */
    const char        *inside;
} xd_single_file_of;

/* Returns 1 if the tensors of `of->files` have the marks of a layout of the network `of->net`. */
int       xd_single_file_fits(const xd_single_file_of *of);
/* Opens a weight source for a single file, and finds the layout of the file's names. Refuses an
 * unknown layout, a file for another network, a LoRA file, and a file that has another number of
 * blocks than the config. */
xd_status xd_single_file_open(xd_single_file **s, const xd_single_file_of *of, xd_err *e);
void      xd_single_file_close(xd_single_file **s);
xd_source xd_single_file_source(xd_single_file *s);

/* Writes the name that the declared tensor `want` has in the file; `want` is one name, without
 * alternative names. Returns 0 if files with this layout of names do not contain the tensor. */
int         xd_single_file_name(const xd_single_file *s, const char *want, char *have, size_t size);
/* Returns the prefix of this component's tensor names in the file. Tensor names with another prefix
 * belong to other components. */
const char *xd_single_file_prefix(const xd_single_file *s);
/* Returns 1 if a tensor of the file belongs to a block that the config does not mention but that
 * files with this layout of names may contain. The tensor's name must begin with this component's
 * prefix. */
int         xd_single_file_surplus(const xd_single_file *s, const char *name);

/* Returns known layout of names number i (key_map.c), or NULL after the last one. */
const xd_key_map *xd_key_map_at(int i);
/* Returns the values of "general.architecture" that a GGUF file with this layout may have,
 * separated by spaces, or NULL if any value is allowed. */
const char       *xd_key_map_archs(const xd_key_map *k);
/* Finds a layout that matches the file's tensor names for the component `slot`; the search begins
 * with xd_key_map_at(*at). Sets *at to the index of the layout, and `prefix` to the prefix of the
 * tensor names. Returns NULL if no layout matches. */
const xd_key_map *xd_key_map_find(const xd_st *files, const char *slot, int *at, char prefix[64]);
/* Returns 1 if this layout of names belongs to networks that can be the component `slot`, such as
 * "vae". */
int               xd_key_map_suits(const xd_key_map *k, const char *slot);
/* Returns nonzero if the names of the tensors show that the files contain a LoRA. */
int               xd_is_lora(const xd_st *files);

#endif
