/* fast_attn.h - implements DiTFastAttn (Yuan et al. 2024, arXiv:2406.08552): a table tells, for
 * each block and step, how the attention output is computed or reused. The tables have the same
 * format as xDiT's tables. */
#ifndef XD_PARALLEL_FAST_ATTN_H
#define XD_PARALLEL_FAST_ATTN_H

#include <stdint.h>

/* ways to get an attention output; the first one saves the most work */
typedef enum xd_attn_way {
    /* reuse the attention output of the previous step */
    XD_ATTN_SHARE,
    /* Attention in a window; one CFG pass computes it and the other pass reuses it. */
    XD_ATTN_WINDOW_CFG,
    /* attention in a window, plus the residual that was stored in the last step with full
     * attention */
    XD_ATTN_WINDOW,
    /* Full attention; the CFG pass with the prompt computes it and the other pass reuses it. */
    XD_ATTN_FULL_CFG,
    XD_ATTN_FULL,
    XD_ATTN_WAYS
} xd_attn_way;

/* Blocks and steps outside the table use XD_ATTN_FULL. */
typedef struct xd_attn_table {
    int      lead; /* number of transformer blocks before the table's first block */
    int      blocks, steps;
    uint8_t *way; /* [blocks][steps] way (xd_attn_way) of each block and step; NULL: no table */
    /* Above 0: every attention is computed in full, and `found` receives the ways whose relative
     * error is below this limit */
    double   limit;
    /* [blocks][steps]: the ways of computing attention that a search has found. If several images
     * led to different ways for the same block and step, `found` has the way that saves the least
     * work. */
    uint8_t *found;
} xd_attn_table;

static inline xd_attn_way xd_attn_way_at(const xd_attn_table *t, int layer, int step)
{
    const int block = layer - t->lead;
    return block < 0 || block >= t->blocks || step >= t->steps
               ? XD_ATTN_FULL
               : (xd_attn_way)t->way[block * t->steps + step];
}

static inline int xd_attn_has_window(xd_attn_way w)
{
    return w == XD_ATTN_WINDOW || w == XD_ATTN_WINDOW_CFG;
}

static inline int xd_attn_has_cfg(xd_attn_way w)
{
    return w == XD_ATTN_FULL_CFG || w == XD_ATTN_WINDOW_CFG;
}

/* Returns 1 if the table has a way of computing attention for which `is` returns nonzero. */
static inline int xd_attn_table_has(const xd_attn_table *t, int (*is)(xd_attn_way w))
{
    for (int i = 0; i < t->blocks * t->steps; i++)
        if (is((xd_attn_way)t->way[i]))
            return 1;
    return 0;
}

#endif
