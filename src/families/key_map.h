/* key_map.h - names of tensors in original and ComfyUI files
 *
 * A layout is data. Its marks identify a file; its scopes and stems translate a declared name into
 * the name in the file and select rows of that tensor. */
#ifndef XD_FAMILIES_KEY_MAP_H
#define XD_FAMILIES_KEY_MAP_H

#include <stdint.h>

enum { XD_MAXSCOPE = 16, XD_MAXPREFIX = 8, XD_MAXNET = 8 };

typedef enum xd_swap {
    XD_SWAP_NOT, XD_SWAP_ALWAYS, XD_SWAP_LAST, XD_SWAP_QUERIES, XD_SWAP_KEYS,
} xd_swap;

/* The rest of a name after its scope: a complete rest ("attn.norm_q.weight"), or one to which
 * ".weight" and ".bias" are appended. The file's rows are split into `of` parts, of which parts
 * [at, at + n) are used (of = 0: all rows). A swapped tensor has its two halves in reverse order;
 * with XD_SWAP_LAST only in the last block. XD_SWAP_QUERIES, _KEYS: rows of each head are stored in
 * pairs that rotate together, one of the first half and one of the second; the file's keys tell the
 * number of heads. */
typedef struct xd_stem {
    const char *want, *have;
    int         at, n, of;
    xd_swap     swap;
} xd_stem;

/* The start of a name. '#' in `want` matches a number. In `have`, '#' is the next matched number
 * and '~' the same counted back from the last block. stems NULL: the rest of the name is unchanged;
 * otherwise the list ends with a row without `want`. */
typedef struct xd_scope {
    const char    *want, *have;
    const xd_stem *stems;
} xd_scope;

typedef struct xd_key_map {
    const char *nets[XD_MAXNET];        /* networks that the weights belong to                 */
    const char *what;           /* "a T5 text encoder"                                         */
    const char *marks[2];       /* tensors that every such file has, without the prefix        */
    const char *prefixes[XD_MAXPREFIX]; /* of all names; '@' is the slot ("clip_l")            */
    xd_scope    scopes[XD_MAXSCOPE];    /* ends with a scope without `want`                    */
} xd_key_map;

/* Rows of xd_stem: the complete tensor; n of the `of` parts of its rows; its rows in another order;
 * the end of a list. */
#define XD_STEM(want, have) { want, have, 0, 0, 0, XD_SWAP_NOT }
#define XD_STEM_ROWS(want, have, at, n, of) { want, have, at, n, of, XD_SWAP_NOT }
#define XD_STEM_SWAP(want, have, how) { want, have, 0, 0, 0, how }
#define XD_STEMS_END { NULL, NULL, 0, 0, 0, XD_SWAP_NOT }

/* Prefixes of a transformer's tensors. */
#define XD_DIT_PREFIXES { "", "model.diffusion_model.", "diffusion_model." }

/* Another name of a module in LoRA files, with _ for dots. # is a number. Several targets,
 * separated by spaces, use consecutive rows. A ~ before a modulation target with two chunks: shift
 * and scale are in the opposite order (AdaLayerNormContinuous of diffusers has the scale first). */
typedef struct xd_lora_name { const char *from, *to; } xd_lora_name;

#endif
