/* sides.h - declares functions for transformers with side networks (xd_side in dit.h): they order
 * the blocks of all networks, and check that the networks' sizes are equal.
 *
 * Blocks of a side network run directly before the first block of the transformer that needs their
 * outputs. */
#ifndef XD_DIT_SIDES_H
#define XD_DIT_SIDES_H

#include "dit/dit.h"

/* Maximum number of blocks of a transformer and its side networks together. */
enum { XD_SIDES_BLOCKS = 512 };

/* For each block of all networks, in the order of running: `net` is its network (-1: the
 * transformer, else the index of the side network), and `at` is its index in that network. */
typedef struct xd_sides {
    int nblocks;
    int net[XD_SIDES_BLOCKS], at[XD_SIDES_BLOCKS];
} xd_sides;

/* Computes the order of the blocks of a transformer with `nlayers` blocks and of n side networks.
 * before(cfg, i, layer) returns how many blocks of side network i run before block `layer` of the
 * transformer; it must not decrease with `layer`. */
xd_status xd_sides_order(xd_sides *s, int nlayers, int n,
                         int (*before)(const void *cfg, int i, int layer), const void *cfg,
                         xd_err *e);
/* Appends block `at` of network `net` to the list of all networks' blocks in running order. */
xd_status xd_sides_add(xd_sides *s, int net, int at, xd_err *e);

/* Entries of a table of block kinds, one entry kind("controlnet.0"), kind("controlnet.1"), ... for
 * each side network. */
#define XD_SIDES_KINDS(kind) \
    kind("controlnet.0"), kind("controlnet.1"), kind("controlnet.2"), kind("controlnet.3")
_Static_assert(XD_MAXSIDES == 4, "XD_SIDES_KINDS has an entry for each side network");

/* Returns the factor by which the outputs of side network i are multiplied in this step. */
static inline float xd_sides_scale(const xd_input *in, int i)
{
    return in->hint_scales ? (float)in->hint_scales[i] : 1;
}

/* Declares the layer `name`.at [dim,dim] of a side network, which computes the residual of block
 * `at` for the transformer. */
void xd_sides_residual(xd_decl *d, const char *name, int at, int64_t dim, xd_lin *w);

/* A number in the config of a side network, and the value that the transformer requires. */
typedef struct xd_side_number {
    const char *key;
    double      have, want;
} xd_side_number;
/* Checks that numbers in the config of side network i have the required values. */
xd_status xd_sides_check(const xd_side_number *v, size_t n, int i, xd_err *e);
/* Checks that side network i has 1 to `most` blocks. */
xd_status xd_sides_check_layers(int have, int most, int i, xd_err *e);

/* Returns how many tensors PREFIX0SUFFIX, PREFIX1SUFFIX ... a weight file has, at most
 * XD_FIELD_LIST. */
int xd_sides_count(const xd_source *file, const char *prefix, const char *suffix);

#endif
