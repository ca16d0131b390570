/* tokens.h - computes which rank holds which tokens of a sequence.
 *
 * All tokens that the transformer's blocks compute are one sequence of six streams: leading tokens,
 * text, padding, reference images, image, audio. In each patch of PipeFusion, each
 * sequence-parallel rank holds one span of the tokens of each stream (xd_own). Every rank can
 * compute which tokens the other ranks hold. The ranks may have different numbers of tokens, but
 * never need to send these numbers to each other. */
#ifndef XD_EXEC_TOKENS_H
#define XD_EXEC_TOKENS_H

#include <stdint.h>

/* Streams of tokens. XD_PAD is the stream of padding tokens, which make the number of image tokens
 * a multiple of a given number (dit.h). XD_LEAD is the stream of tokens that only side networks
 * read. Padding and leading tokens belong to the patch that contains the text. */
typedef enum xd_stream_id {
    XD_IMG,
    XD_TXT,
    XD_REF,
    XD_PAD,
    XD_LEAD,
    XD_AUDIO,
    XD_NSTREAMS
} xd_stream_id;
/* Order in which the streams' tokens follow each other in a hidden state. */
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
    int            txt_patch; /* patch that contains the leading, text and padding tokens */
    /* 1: the last patch contains all reference image tokens and no other tokens. */
    int            refs_apart;
    /* 1: tokens of reference images attend only to one another, and have timestep 0. The hidden
     * states of reference tokens with timestep 0 do not depend on the step. */
    int            refs_alone;
    /* Sizes of the reference images in tokens (borrowed). The stream XD_REF consists of the tokens
     * of all reference images, one image after the other. */
    int            nrefs;
    const xd_grid *refs;
    /* Sizes of the ranks' uneven shares of the tokens, as cumulative sums (borrowed); NULL: the
     * shares are equal. The first i of nsp sequence ranks together have share[i] / share[nsp] of
     * the tokens of every patch. The first u of U Ulysses ranks together have heads[u] / heads[U]
     * of the attention heads. */
    const int64_t *share, *heads;
} xd_layout;

/* Returns the i-th of n nearly equal parts of a span. */
xd_span xd_cut(xd_span whole, int i, int n);
/* Divides a span into n consecutive parts, and returns part i. All parts before part i together
 * contain the fraction at[i] / at[n] of the span. If `at` is NULL, the parts are nearly equal. */
xd_span xd_cut_at(xd_span whole, int i, int n, const int64_t *at);
/* Returns the span of stream s that one sequence rank holds in one patch. All leading, text and
 * padding tokens are in patch l->txt_patch. */
xd_span xd_own(const xd_layout *l, xd_stream_id s, int patch, int sp);
/* Returns the number of tokens of all streams that one sequence rank holds in one patch, or in all
 * patches (XD_ALL). */
int64_t xd_own_rows(const xd_layout *l, int patch, int sp);
/* Returns the index in stream s of a token, or -1 if the token is in another stream. `row` is the
 * token's index among the tokens that sequence rank sp holds in the patch. */
int64_t xd_token(const xd_layout *l, xd_stream_id s, int patch, int sp, int64_t row);
/* Returns how many of the rank's tokens, from token `row` on, have consecutive indices in stream s.
 * Returns 0 if token `row` is in another stream. */
int64_t xd_token_run(const xd_layout *l, xd_stream_id s, int patch, int sp, int64_t row);

/* Image tokens that a convolution reads for one output token: its 8 neighbours in its frame, or the
 * tokens at its row and column in the frames before and after. */
typedef enum xd_nearness { XD_NEAR_IN_FRAME, XD_NEAR_IN_TIME, XD_NNEAR } xd_nearness;
/* Returns the largest distance, in tokens, between a token and the tokens that its convolution
 * reads. */
int64_t xd_reach(const xd_layout *l, xd_nearness how);
/* Returns the span of image tokens that are at most xd_reach tokens before (side 0) or after (side
 * 1) the span `own`. If `own` is empty, returns an empty span. */
xd_span xd_near_span(const xd_layout *l, xd_span own, xd_nearness how, int side);

/* Returns the index of the reference image to which token i of XD_REF belongs, and the token's row
 * and column in this image. */
int xd_ref_at(const xd_layout *l, int64_t i, int64_t *row, int64_t *col);

#endif
