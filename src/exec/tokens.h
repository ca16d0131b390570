/* tokens.h - which rank holds which tokens
 *
 * All tokens of a pass that flow through the blocks are on one axis: text, padding, reference,
 * image. One function splits it into spans, one per patch and sequence rank. Every rank can compute
 * the other ranks' tokens, so sizes are never sent and need not be equal. */
#ifndef XD_EXEC_TOKENS_H
#define XD_EXEC_TOKENS_H

#include <stdint.h>

/* XD_PAD: rows that pad the image to a multiple (dit.h), in the patch of the text. */
typedef enum xd_stream_id { XD_IMG, XD_TXT, XD_REF, XD_PAD, XD_NSTREAMS } xd_stream_id;
#define XD_STREAM(s) (1u << (s))        /* bit in a set of streams                             */
enum { XD_ALL = -1 };           /* as a patch index: all patches                              */

typedef struct xd_span { int64_t start, n; } xd_span;
typedef struct xd_grid { int64_t rows, cols; } xd_grid;         /* tokens or pixels of an image */

typedef struct xd_layout {      /* how the tokens of one pass are split                        */
    int64_t len[XD_NSTREAMS];   /* total lengths; 0: the stream does not flow                  */
    int64_t grid[3];            /* t, h, w of the image tokens                                 */
    int     npatch, nsp;        /* PipeFusion patches; sequence ranks (ulysses x ring)         */
    int     txt_patch;          /* patch of the text rows and XD_PAD                           */
    int     refs_apart;         /* 1: the last patch is exactly XD_REF                          */
    /* Reference images (borrowed); their tokens are the stream XD_REF, image after image. */
    int            nrefs;
    const xd_grid *refs;
    /* Uneven shards (borrowed; NULL: even), as cumulative sums. The first i of nsp ranks have
     * share[i] / share[nsp] of every patch; the first u of U Ulysses ranks have heads[u] / heads[U]
     * of the heads. */
    const int64_t *share, *heads;
} xd_layout;

xd_span xd_cut(xd_span whole, int i, int n);            /* i-th of n nearly equal parts        */
/* Returns the i-th of n parts; the first i are at[i] / at[n] of the span. `at` NULL: nearly
 * equal. */
xd_span xd_cut_at(xd_span whole, int i, int n, const int64_t *at);
/* Returns the tokens of stream s in one patch on one sequence rank. Text and XD_PAD are in
 * txt_patch. */
xd_span xd_own(const xd_layout *l, xd_stream_id s, int patch, int sp);
int64_t xd_own_rows(const xd_layout *l, int patch, int sp);     /* of all streams; also XD_ALL */
/* Returns the index in its stream of a row held for `patch`; -1: the row is in another stream. */
int64_t xd_token(const xd_layout *l, xd_stream_id s, int patch, int sp, int64_t row);
/* Returns the number of rows from `row` on with consecutive indices in the stream; 0: other
 * stream. */
int64_t xd_token_run(const xd_layout *l, xd_stream_id s, int patch, int sp, int64_t row);

/* Returns the reference image of token i of XD_REF, and the token's row and column in it. */
int     xd_ref_at(const xd_layout *l, int64_t i, int64_t *row, int64_t *col);

#endif
