/* bands.h - inside the room: maps that are made a few rows at a time.
 *
 * What a convolution reads (a normalised map, an enlarged one) need not lie anywhere whole: some rows
 * of it, with those beside them, are made in a buffer and convolved. The rows' number moves no bit. */
#ifndef XD_VAE_BANDS_H
#define XD_VAE_BANDS_H

#include "exec/op.h"

typedef struct xd_feed {        /* what a convolution reads                                    */
    xd_tensor      in;          /* [1,H,W,C]: my rows                                          */
    const xd_gsum *sum;         /* of a group norm that comes first, with silu; NULL: as it is  */
    xd_tensor      gain, bias;
    float          eps;
} xd_feed;

/* out = conv(feed) + plus, or + shortcut(from). Rows of `out` [1,H',W',C'] may lie over those of `from`
 * or of a feed that is as it is: they are then made from the first to the last, or `last_first`. */
typedef struct xd_banded {
    xd_feed       feed;
    const xd_cnv *w, *shortcut; /* shortcut: 1x1, or NULL                                      */
    xd_tensor     out, plus, from;      /* plus: like out, perhaps out itself, or absent       */
    xd_tensor     partial;      /* [H',G,2] F64: gets the moments of out's rows; or absent     */
    int           stride, lo[3], hi[3];
    int           over;         /* out's rows lie over those of the feed                       */
    int           last_first;
} xd_banded;
void xd_band_conv(xd_exec *x, const xd_banded *a);

/* Nearest-neighbour enlargement of in [1,H,W,C] by 2 x 2 and the 3 x 3 convolution whose weights are
 * `w`, one for each place of a pixel among the four (xd_w_conv_enlarged): out [1,2H,2W,C'] may begin
 * where `in` begins. partial: as above. */
void xd_band_enlarge(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv w[4], xd_tensor partial);

#endif
