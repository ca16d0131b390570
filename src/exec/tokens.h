/* tokens.h - the ruler: who holds which tokens.
 *
 * All flowing tokens of a pass lie on one axis, cut by one function into patch x
 * sequence-rank spans. Every rank can compute what every other rank holds, so sizes are never
 * sent and need not be even. */
#ifndef XD_EXEC_TOKENS_H
#define XD_EXEC_TOKENS_H

#include <stdint.h>

typedef enum xd_stream_id { XD_IMG, XD_TXT, XD_REF, XD_NSTREAMS } xd_stream_id;
enum { XD_ALL = -1 };           /* as a patch: all of them at once                            */

typedef struct xd_span { int64_t start, n; } xd_span;

typedef struct xd_layout {      /* how the flowing tokens of one pass are cut                  */
    int64_t len[XD_NSTREAMS];   /* whole lengths; 0 for streams that do not flow               */
    int64_t grid[3];            /* t, h, w of the image tokens                                 */
    int     npatch, nsp;        /* PipeFusion patches; ranks on ulysses x ring                 */
    int     txt_patch;          /* the patch that text rows go with                            */
    /* Uneven ranks (borrowed; NULL: even): the first i of nsp have share[i] of share[nsp] of every patch,
     * the first u of U Ulysses ranks heads[u] of heads[U] of the heads. */
    const int64_t *share, *heads;
} xd_layout;

xd_span xd_cut(xd_span whole, int i, int n);            /* the i-th of n nearly equal parts    */
/* The same where the first i have at[i] of at[n]; NULL: nearly equal. */
xd_span xd_cut_at(xd_span whole, int i, int n, const int64_t *at);
/* Tokens of stream s in one patch on one sequence rank. Text belongs to txt_patch. */
xd_span xd_own(const xd_layout *l, xd_stream_id s, int patch, int sp);
int64_t xd_own_rows(const xd_layout *l, int patch, int sp);     /* of all streams; XD_ALL too  */
/* Row (of the rows held for `patch`) -> index of the token in its whole stream; -1: none. */
int64_t xd_token(const xd_layout *l, xd_stream_id s, int patch, int sp, int64_t row);

#endif
