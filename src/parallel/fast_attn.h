/* fast_attn.h - the ways of an attention that stands for more than one (DiTFastAttn, Yuan et al.
 * 2024, arXiv:2406.08552): of each block and step, as xDiT's tables have them */
#ifndef XD_PARALLEL_FAST_ATTN_H
#define XD_PARALLEL_FAST_ATTN_H

#include <stdint.h>

typedef enum xd_attn_way {      /* those that save most come first                             */
    XD_ATTN_SHARE,              /* the output of the step before                               */
    XD_ATTN_WINDOW_CFG,         /* as XD_ATTN_WINDOW, the prompt's for both passes             */
    XD_ATTN_WINDOW,             /* of a window, and what the others added in the last full one */
    XD_ATTN_FULL_CFG,           /* that of the prompt's pass for both passes                   */
    XD_ATTN_FULL,
    XD_ATTN_WAYS
} xd_attn_way;

/* Blocks and steps beyond the table have XD_ATTN_FULL. */
typedef struct xd_attn_table {
    int      lead;              /* blocks of the transformer before the first of the table     */
    int      blocks, steps;
    uint8_t *way;               /* [blocks][steps]; NULL: none                                 */
    double   limit;             /* above 0: every attention is computed, and `found` becomes the
                                   ways whose outputs differ by less than this share           */
    uint8_t *found;             /* [blocks][steps]: of all images, those that save least       */
} xd_attn_table;

static inline xd_attn_way xd_attn_way_at(const xd_attn_table *t, int layer, int step)
{
    const int block = layer - t->lead;
    return block < 0 || block >= t->blocks || step >= t->steps
               ? XD_ATTN_FULL : (xd_attn_way)t->way[block * t->steps + step];
}

static inline int xd_attn_has_window(xd_attn_way w)
{
    return w == XD_ATTN_WINDOW || w == XD_ATTN_WINDOW_CFG;
}

static inline int xd_attn_has_cfg(xd_attn_way w)
{
    return w == XD_ATTN_FULL_CFG || w == XD_ATTN_WINDOW_CFG;
}

/* Is there a way of which this is true? */
static inline int xd_attn_table_has(const xd_attn_table *t, int (*is)(xd_attn_way w))
{
    for (int i = 0; i < t->blocks * t->steps; i++)
        if (is((xd_attn_way)t->way[i]))
            return 1;
    return 0;
}

#endif
