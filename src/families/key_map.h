/* key_map.h - maps diffusers' tensor names to the names in original and ComfyUI files.
 *
 * A layout (xd_key_map) describes the tensor names of one kind of file. The marks of a layout
 * identify a file of this kind. The scopes and stems of a layout translate the name that a network
 * declares to the name in the file, and select rows of the file's tensor. */
#ifndef XD_FAMILIES_KEY_MAP_H
#define XD_FAMILIES_KEY_MAP_H

#include <stdint.h>

enum { XD_MAXSCOPE = 16, XD_MAXPREFIX = 8, XD_MAXNET = 8 };

typedef enum xd_swap {
    XD_SWAP_NOT, XD_SWAP_ALWAYS, XD_SWAP_LAST, XD_SWAP_QUERIES, XD_SWAP_KEYS,
} xd_swap;

/* A rule for the end of a name (stem), which is after the scope: a complete end
 * ("attn.norm_q.weight"), or an end to which ".weight" and ".bias" are appended. The rows of the
 * file's tensor are split into `of` parts, of which parts [at, at + n) are used (of = 0: all rows).
 * In a swapped tensor, the two halves are in reverse order in the file; with XD_SWAP_LAST only in
 * the last block. XD_SWAP_QUERIES, _KEYS: the file stores the rows of each attention head in pairs
 * that RoPE rotates together, one row of the head's first half and one row of its second half. The
 * number of heads follows from the file's tensor names. */
typedef struct xd_stem {
    const char *want, *have;
    int         at, n, of;
    xd_swap     swap;
} xd_stem;

/* A rule for the beginning of a name (scope): `want` is the declared beginning, `have` that in the
 * file. '#' in `want` matches a number. In `have`, '#' is the next matched number, and '~' is the
 * same number counted back from the last block. stems NULL: the end of the name is unchanged;
 * otherwise the list of stems ends with a row without `want`. */
typedef struct xd_scope {
    const char    *want, *have;
    const xd_stem *stems;
} xd_scope;

typedef struct xd_key_map {
    const char *nets[XD_MAXNET];        /* networks that the weights belong to                 */
    const char *what;           /* contents of a file with this layout, "a T5 text encoder"    */
    const char *marks[2];       /* names, without prefix, of tensors in every file of this layout */
    /* Possible prefixes of all names; '@' is the slot ("clip_l"). */
    const char *prefixes[XD_MAXPREFIX];
    xd_scope    scopes[XD_MAXSCOPE];    /* ends with a scope without `want`                    */
} xd_key_map;

/* Initializers of an xd_stem: for the complete tensor; for n of the `of` parts of the tensor's
 * rows; for the rows in another order; for the end of a list. */
#define XD_STEM(want, have) { want, have, 0, 0, 0, XD_SWAP_NOT }
#define XD_STEM_ROWS(want, have, at, n, of) { want, have, at, n, of, XD_SWAP_NOT }
#define XD_STEM_SWAP(want, have, how) { want, have, 0, 0, 0, how }
#define XD_STEMS_END { NULL, NULL, 0, 0, 0, XD_SWAP_NOT }

/* Possible prefixes of a transformer's tensor names in files. */
#define XD_DIT_PREFIXES { "", "model.diffusion_model.", "diffusion_model." }

/* Another name of a module (`from`, with _ for dots) in LoRA files, and the module of the model
 * (`to`). # is a number. Several modules in `to`, separated by spaces, get consecutive rows. A ~
 * before a modulation module with two chunks means that shift and scale are in the opposite order
 * (AdaLayerNormContinuous of diffusers has the scale first). */
typedef struct xd_lora_name { const char *from, *to; } xd_lora_name;

#endif
