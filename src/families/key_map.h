/* key_map.h - maps diffusers' tensor names to the names in original and ComfyUI files.
 *
 * A layout (xd_key_map) describes the tensor names of one kind of file. A file has this layout if
 * it contains the tensors named by the layout's marks. Networks declare the names of diffusers or
 * transformers. For each declared name, the scopes and stems of the layout give the name in the
 * file, and select the rows of the file's tensor that belong to the declared tensor. */
#ifndef XD_FAMILIES_KEY_MAP_H
#define XD_FAMILIES_KEY_MAP_H

#include <stdint.h>

enum { XD_MAXSCOPE = 16, XD_MAXPREFIX = 8, XD_MAXNET = 8 };

typedef enum xd_swap {
    XD_SWAP_NOT, XD_SWAP_ALWAYS, XD_SWAP_LAST, XD_SWAP_QUERIES, XD_SWAP_KEYS,
} xd_swap;

/* A stem: a rule for the end of a tensor's name, which follows the scope. `want` is the declared
 * end, `have` the end in the file. `want` and `have` are complete ends ("attn.norm_q.weight"), or
 * ends to which ".weight" and ".bias" are appended. The rows of the file's tensor are split into
 * `of` equal parts, and parts [at, at + n) are used (of = 0: all rows are used). In a swapped
 * tensor of the file, the second half of the rows comes first; XD_SWAP_LAST: only in the last
 * block. XD_SWAP_QUERIES, XD_SWAP_KEYS: the file stores the rows of each attention head in the
 * pairs that RoPE rotates together, one row of the head's first half and one row of its second
 * half. The number of heads follows from the file's metadata. */
typedef struct xd_stem {
    const char *want, *have;
    int         at, n, of;
    xd_swap     swap;
} xd_stem;

/* A scope: a rule for the beginning of a tensor's name. `want` is the declared beginning, `have`
 * the beginning in the file. '#' in `want` matches a number. In `have`, '#' is the next matched
 * number, and '~' is this number counted back from the last block. stems NULL: the end of the name
 * is unchanged; otherwise the list of stems ends with a row without `want`. */
typedef struct xd_scope {
    const char    *want, *have;
    const xd_stem *stems;
} xd_scope;

typedef struct xd_key_map {
    const char *nets[XD_MAXNET];        /* networks to which the weights belong                */
    /* what a file with this layout contains, for messages: "a T5 text encoder" */
    const char *what;
    /* Names, without prefix, of tensors that every file of this layout has. */
    const char *marks[2];
    /* The names in a file may have one of these prefixes; '@' is the slot ("clip_l"). */
    const char *prefixes[XD_MAXPREFIX];
    xd_scope    scopes[XD_MAXSCOPE];    /* list that ends with a scope without `want`          */
} xd_key_map;

/* Initializers of an xd_stem: XD_STEM uses the complete tensor, XD_STEM_ROWS n of the `of` parts of
 * the tensor's rows, XD_STEM_SWAP the rows in another order; XD_STEMS_END ends a list. */
#define XD_STEM(want, have) { want, have, 0, 0, 0, XD_SWAP_NOT }
#define XD_STEM_ROWS(want, have, at, n, of) { want, have, at, n, of, XD_SWAP_NOT }
#define XD_STEM_SWAP(want, have, how) { want, have, 0, 0, 0, how }
#define XD_STEMS_END { NULL, NULL, 0, 0, 0, XD_SWAP_NOT }

/* Prefixes that a transformer's tensor names may have in a file. */
#define XD_DIT_PREFIXES { "", "model.diffusion_model.", "diffusion_model." }

/* A row of a table of module names in LoRA files. `from` is a name in a LoRA file, with _ for dots,
 * `to` the model's module; # is a number. If `to` has several modules, separated by spaces, the
 * LoRA's module has the rows of these modules one after the other. A ~ in `to` before a modulation
 * module with two chunks means that shift and scale are in the opposite order
 * (AdaLayerNormContinuous of diffusers has the scale first). */
typedef struct xd_lora_name { const char *from, *to; } xd_lora_name;

#endif
