/* tokens.h - computes which rank has which tokens of a sequence.
 *
 * All tokens of a pass that flow through the blocks are one sequence of six streams: leading rows,
 * text, padding, reference images, image, audio. In each patch, each sequence rank has one span of
 * the tokens of each stream (xd_own). Every rank can compute which tokens the other ranks have.
 * Numbers of tokens are therefore never sent, and need not be equal. */
#ifndef XD_EXEC_TOKENS_H
#define XD_EXEC_TOKENS_H

#include <stdint.h>

/* Streams of tokens. XD_PAD is the stream of padding rows, which make the number of image tokens a
 * multiple of a given number (dit.h). XD_LEAD is the stream of rows that only side networks read.
 * The padding rows and the leading rows are in the same patch as the text. */
typedef enum xd_stream_id {
    XD_IMG,
    XD_TXT,
    XD_REF,
    XD_PAD,
    XD_LEAD,
    XD_AUDIO,
    XD_NSTREAMS
} xd_stream_id;
/* Order in which the rows of the streams follow each other in a hidden state. */
extern const xd_stream_id xd_stream_order[XD_NSTREAMS];
#define XD_STREAM(s) (1u << (s))        /* bit of stream s in a set of streams */
enum { XD_ALL = -1 }; /* value of a patch index that means all patches */

typedef struct xd_span { int64_t start, n; } xd_span;
/* Size of an image in tokens or pixels. */
typedef struct xd_grid { int64_t rows, cols; } xd_grid;

/* Description of how the tokens of one forward pass are split over patches and ranks. */
typedef struct xd_layout {
    /* Number of tokens of each stream, on all ranks together; 0: the blocks compute no tokens of
     * this stream. */
    int64_t        len[XD_NSTREAMS];
    int64_t        grid[3]; /* number of image tokens along t, h, w */
    /* Number of PipeFusion patches, and number of sequence ranks (ulysses x ring). */
    int            npatch, nsp;
    int            txt_patch; /* patch that has the leading, text and padding rows */
    /* 1: the last patch has all reference image tokens and no other tokens. */
    int            refs_apart;
    /* 1: tokens of reference images attend only to one another, and have timestep 0. The tokens of
     * such reference images do not depend on the step. */
    int            refs_alone;
    /* Sizes of the reference images in tokens (borrowed). The tokens of all reference images, image
     * after image, are the stream XD_REF. */
    int            nrefs;
    const xd_grid *refs;
    /* Sizes of uneven shards as cumulative sums (borrowed); NULL: even shards. The first i of nsp
     * sequence ranks together have share[i] / share[nsp] of the tokens of every patch. The first u
     * of U Ulysses ranks together have heads[u] / heads[U] of the attention heads. */
    const int64_t *share, *heads;
} xd_layout;

/* Returns the i-th of n nearly equal parts of a span. */
xd_span xd_cut(xd_span whole, int i, int n);
/* Divides a span into n consecutive parts, and returns part i. The parts with indices below i
 * together contain at[i] / at[n] of the span. `at` NULL: the parts of the span are nearly equal. */
xd_span xd_cut_at(xd_span whole, int i, int n, const int64_t *at);
/* Returns the span of stream s that one sequence rank has in one patch. All leading, text and
 * padding rows are in patch l->txt_patch. */
xd_span xd_own(const xd_layout *l, xd_stream_id s, int patch, int sp);
/* Returns the number of rows of all streams that one sequence rank has in one patch, or in all
 * patches (XD_ALL). */
int64_t xd_own_rows(const xd_layout *l, int patch, int sp);
/* Returns the index in stream s of a row, or -1 if the row is in another stream. `row` is the row's
 * index among the rows that sequence rank sp has in the patch. */
int64_t xd_token(const xd_layout *l, xd_stream_id s, int patch, int sp, int64_t row);
/* Returns the length of the run of rows that begins at row `row` and has consecutive indices in
 * stream s. Returns 0 if row `row` is in another stream. */
int64_t xd_token_run(const xd_layout *l, xd_stream_id s, int patch, int sp, int64_t row);

/* The image tokens that a convolution over tokens reads: the 8 neighbours of a token in its frame,
 * or the tokens at the same row and column in the frames before and after. */
typedef enum xd_nearness { XD_NEAR_IN_FRAME, XD_NEAR_IN_TIME, XD_NNEAR } xd_nearness;
/* Returns the largest distance, in tokens, between a token and the tokens that its convolution
 * reads. */
int64_t xd_reach(const xd_layout *l, xd_nearness how);
/* Returns the span of image tokens next to `own` that are at most xd_reach tokens away. side: 0
 * (before) or 1 (after). If `own` is empty, it has no neighbours. */
xd_span xd_near_span(const xd_layout *l, xd_span own, xd_nearness how, int side);

/* Returns the index of the reference image to which token i of XD_REF belongs, and the token's row
 * and column in this image. */
int xd_ref_at(const xd_layout *l, int64_t i, int64_t *row, int64_t *col);

#endif
