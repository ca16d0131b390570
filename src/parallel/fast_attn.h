/* fast_attn.h - implements DiTFastAttn (Yuan et al. 2024, arXiv:2406.08552): a table tells, for
 * each block and step, how the attention output is computed or reused. Tables are stored in the
 * format of xDiT. */
#ifndef XD_PARALLEL_FAST_ATTN_H
#define XD_PARALLEL_FAST_ATTN_H

#include <stdint.h>

/* how an attention output is obtained, in order of decreasing savings */
typedef enum xd_attn_way {
    /* the attention output of the previous step is reused */
    XD_ATTN_SHARE,
    /* Attention in a window, computed for the prompt and reused for the negative prompt. */
    XD_ATTN_WINDOW_CFG,
    /* attention in a window, plus the residual that was stored in the last step with full
     * attention */
    XD_ATTN_WINDOW,
    /* Full attention, computed for the prompt and reused for the negative prompt. */
    XD_ATTN_FULL_CFG,
    XD_ATTN_FULL,
    XD_ATTN_WAYS
} xd_attn_way;

/* Table that tells how each transformer block computes attention in each step. Blocks and steps
 * outside the table use XD_ATTN_FULL. */
typedef struct xd_attn_table {
    int      lead; /* number of transformer blocks before the table's first block */
    int      blocks, steps;
    /* [blocks][steps] for each block and step, how attention is computed (xd_attn_way); NULL:
     * attention is always full */
    uint8_t *way;
    /* above 0: attention is always computed in full, and for each block and step, `found` receives
     * the cheapest xd_attn_way whose relative error is below this limit */
    double   limit;
    /* [blocks][steps]: for each block and step, the xd_attn_way that a search has found. If several
     * images gave different results, the one that saves the least work is stored. */
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

/* Returns 1 if the table contains an xd_attn_way for which the function `is` returns nonzero. */
static inline int xd_attn_table_has(const xd_attn_table *t, int (*is)(xd_attn_way w))
{
    for (int i = 0; i < t->blocks * t->steps; i++)
        if (is((xd_attn_way)t->way[i]))
            return 1;
    return 0;
}

#endif
