/* key_map.h - how original and ComfyUI files call the tensors that a network declares.
 *
 * A layout is data: its marks say that a file has it, its scopes and stems translate a declared
 * name into the name in the file, and into the rows of that tensor which are meant. */
#ifndef XD_MODEL_KEY_MAP_H
#define XD_MODEL_KEY_MAP_H

#include <stdint.h>

enum { XD_MAXSCOPE = 16, XD_MAXPREFIX = 5 };

typedef enum xd_swap { XD_SWAP_NOT, XD_SWAP_ALWAYS, XD_SWAP_LAST } xd_swap;

/* What is left of a name behind its scope: a whole rest ("attn.norm_q.weight"), or one to which
 * ".weight" and ".bias" are still to be added. Of the file's rows, cut into `of` parts, those of n
 * parts from `at` are meant; of 0: all. A swapped tensor has its two halves the other way round, one
 * of XD_SWAP_LAST only in the last block. */
typedef struct xd_stem {
    const char *want, *have;
    int         at, n, of;
    xd_swap     swap;
} xd_stem;

/* The beginning of a name. '#' in `want` is a number; in `have` '#' is the next of them, '~' the
 * same counted from the last block to the first. stems NULL: the rest of the name is the same;
 * else they end with a row without `want`. */
typedef struct xd_scope {
    const char    *want, *have;
    const xd_stem *stems;
} xd_scope;

typedef struct xd_key_map {
    const char *nets[3];        /* names of networks whose weights these are                    */
    const char *what;           /* "a FLUX.1 transformer in its original layout"                */
    const char *marks[2];       /* tensors that every such file has, below the prefix           */
    const char *prefixes[XD_MAXPREFIX]; /* before all names; '@' stands for the slot ("clip_l")   */
    xd_scope    scopes[XD_MAXSCOPE];    /* ends with a scope without `want`                      */
} xd_key_map;

extern const xd_key_map xd_namings[];    /* ends with one without `what`                        */

#endif
