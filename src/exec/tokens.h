/* tokens.h - the ruler: which rank holds which tokens.
 *
 * All flowing tokens of a pass lie on one axis: text, padding, reference, image. One function cuts
 * it into spans, one for each patch and sequence rank. Every rank can compute what the other ranks
 * hold, so sizes are never sent and need not be equal. */
#ifndef XD_EXEC_TOKENS_H
#define XD_EXEC_TOKENS_H

#include <stdint.h>

/* XD_PAD: rows that fill the image up to a multiple (dit.h), with the text's patch. */
typedef enum xd_stream_id { XD_IMG, XD_TXT, XD_REF, XD_PAD, XD_NSTREAMS } xd_stream_id;
#define XD_STREAM(s) (1u << (s))        /* in a set of streams                                 */
enum { XD_ALL = -1 };           /* as a patch: all patches                                    */

typedef struct xd_span { int64_t start, n; } xd_span;
typedef struct xd_grid { int64_t rows, cols; } xd_grid;         /* tokens of an image          */

typedef struct xd_layout {      /* how the flowing tokens of one pass are cut                  */
    int64_t len[XD_NSTREAMS];   /* whole lengths; 0: the stream does not flow                  */
    int64_t grid[3];            /* t, h, w of the image tokens                                 */
    int     npatch, nsp;        /* PipeFusion patches; sequence ranks (ulysses x ring)         */
    int     txt_patch;          /* the patch that the text rows and XD_PAD belong to           */
    int     refs_apart;         /* 1: the last patch is all of XD_REF, and nothing else         */
    /* Reference images (borrowed); their tokens are the stream XD_REF, image after image. */
    int            nrefs;
    const xd_grid *refs;
    /* Uneven shares (borrowed; NULL: even), as cumulative sums. The first i of nsp ranks have
     * share[i] / share[nsp] of every patch; the first u of U Ulysses ranks have heads[u] / heads[U]
     * of the heads. */
    const int64_t *share, *heads;
} xd_layout;

xd_span xd_cut(xd_span whole, int i, int n);            /* the i-th of n nearly equal parts    */
/* The i-th of n parts; the first i are at[i] / at[n] of the whole. `at` NULL: nearly equal. */
xd_span xd_cut_at(xd_span whole, int i, int n, const int64_t *at);
/* Tokens of stream s in one patch on one sequence rank. Text and XD_PAD belong to txt_patch. */
xd_span xd_own(const xd_layout *l, xd_stream_id s, int patch, int sp);
int64_t xd_own_rows(const xd_layout *l, int patch, int sp);     /* of all streams; XD_ALL too  */
/* Index in the whole stream of a row of those held for `patch`; -1: not a row of this stream. */
int64_t xd_token(const xd_layout *l, xd_stream_id s, int patch, int sp, int64_t row);
/* Number of rows from `row` on whose indices in the whole stream are consecutive; 0: not a row. */
int64_t xd_token_run(const xd_layout *l, xd_stream_id s, int patch, int sp, int64_t row);

/* The reference image of token i of XD_REF, and the place of the token in it. */
int     xd_ref_at(const xd_layout *l, int64_t i, int64_t *row, int64_t *col);

#endif
