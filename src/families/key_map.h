/* key_map.h - maps diffusers' tensor names to the names in original and ComfyUI files.
 *
 * A layout (xd_key_map) describes the tensor names of one kind of file. A file has a layout if it
 * contains all tensors that the layout's `marks` name. Networks declare their tensors under the
 * names that the libraries diffusers or transformers use. For each declared name, rules for its
 * beginning (scopes) and its end (stems) give the name in the file, and the rows of the file's
 * tensor that belong to the declared tensor. */
#ifndef XD_FAMILIES_KEY_MAP_H
#define XD_FAMILIES_KEY_MAP_H

#include <stdint.h>

enum { XD_MAXSCOPE = 48, XD_MAXPREFIX = 10, XD_MAXNET = 9 };

typedef enum xd_swap {
    XD_SWAP_NOT,
    XD_SWAP_ALWAYS,
    XD_SWAP_LAST,
    XD_SWAP_QUERIES,
    XD_SWAP_KEYS,
    XD_SWAP_SIDES,
} xd_swap;

/* A stem is a rule for the end of a tensor's name: the part after the beginning that a scope
 * matches. In a stem, `want` is the end of the declared name, and `have` the end of the name in the
 * file. `want` and `have` of a stem are complete ("attn.norm_q.weight"), or both lack a final
 * ".weight" or ".bias". The rows of the file's tensor are split into `of` equal parts, of which
 * parts [at, at + n) are used. If `of` is 0, all rows are used; if also n is above 0, a tensor of
 * one extent is split into n rows of equal length. XD_SWAP_ALWAYS: in the file's tensor, the second
 * half of the rows comes first. XD_SWAP_LAST: as XD_SWAP_ALWAYS, but only in the tensor of the last
 * block. XD_SWAP_QUERIES, XD_SWAP_KEYS: in each attention head, the file's rows alternate between
 * the first and the second half of the head, so the two rows that RoPE rotates together are
 * neighbours. The number of attention heads follows from the file's metadata. XD_SWAP_SIDES: the
 * file's matrix is transposed. */
typedef struct xd_stem {
    const char *want, *have;
    int         at, n, of;
    xd_swap     swap;
} xd_stem;

/* A scope is a rule for the beginning of a tensor's name. `want` is the beginning of the declared
 * name, `have` the beginning of the name in the file. '#' in `want` matches a number. In `have`,
 * '#' is replaced by the next matched number, and '~' by the next matched number counted back from
 * the last block. A '+' after a '#' means that a file may contain more blocks than the config; the
 * excess blocks are not read. If `stems` is NULL, the end of the name is unchanged. If `stems` is
 * not NULL, the list of stems ends with a row whose `want` is NULL. */
typedef struct xd_scope {
    const char    *want, *have;
    const xd_stem *stems;
} xd_scope;

typedef struct xd_key_map {
    const char *nets[XD_MAXNET]; /* names of the networks to which the weights belong */
    /* what a file with this layout contains, for messages: "a T5 text encoder" */
    const char *what;
    /* Names, without prefix, of tensors that every file with this layout contains. */
    const char *marks[3];
    /* Prefixes that names in a file may have; '@' in a prefix stands for the component's short name
     * (slot), such as "clip_l". "clip_l=PREFIX" is a prefix only for the slot clip_l. */
    const char *prefixes[XD_MAXPREFIX];
    /* rules for the beginnings of names; the list ends with a scope whose `want` is NULL */
    xd_scope    scopes[XD_MAXSCOPE];
} xd_key_map;

/* Initializers of an xd_stem: XD_STEM uses the complete tensor, XD_STEM_ROWS uses n of `of` equal
 * parts of the tensor's rows, XD_STEM_FOLD splits a tensor of one extent into n rows, and
 * XD_STEM_SWAP reorders the tensor's rows. XD_STEMS_END ends a list of stems. */
#define XD_STEM(want, have) { want, have, 0, 0, 0, XD_SWAP_NOT }
#define XD_STEM_ROWS(want, have, at, n, of) { want, have, at, n, of, XD_SWAP_NOT }
#define XD_STEM_FOLD(want, have, n) { want, have, 0, n, 0, XD_SWAP_NOT }
#define XD_STEM_SWAP(want, have, how) { want, have, 0, 0, 0, how }
#define XD_STEMS_END { NULL, NULL, 0, 0, 0, XD_SWAP_NOT }

/* Prefixes that a transformer's tensor names may have in a file. */
#define XD_DIT_PREFIXES { "", "model.diffusion_model.", "diffusion_model." }
/* Prefixes that a VAE's tensor names may have in a file. */
#define XD_VAE_PREFIXES { "", "first_stage_model.", "vae." }

/* A row of a table that maps module names in LoRA files to module names of the model. `from` is the
 * name of a module in a LoRA file, with _ in place of dots; `to` is the name of the model's module.
 * In the names `from` and `to`, # stands for a number. If several rows of the table have the same
 * `from`, the first one whose modules exist in the model is used. If `to` names several modules,
 * separated by spaces, the LoRA's module contains the rows of these modules, one after the other. A
 * ~ in `to` before a modulation module with two outputs means that the order of shift and scale is
 * reversed, as in AdaLayerNormContinuous of diffusers, where the scale comes first. */
typedef struct xd_lora_name { const char *from, *to; } xd_lora_name;

#endif
