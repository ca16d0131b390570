/* upscaler.h - declares networks that enlarge images: pixels in, pixels out. */
#ifndef XD_UPSAMPLE_UPSCALER_H
#define XD_UPSAMPLE_UPSCALER_H

#include "exec/net.h"

typedef struct xd_upscaler_info {
    int     scale; /* factor of width and height */
    /* Side in pixels of a cell: the network computes on a grid of cells, and the image is padded to
     * complete cells. */
    int     cell;
    /* Radius of the receptive field in cells: a pixel of the result depends only on cells of the
     * image that are at most `reach` rows and columns away. */
    int64_t reach;
    int     parts; /* how often `run` pauses (xd_pause) */
} xd_upscaler_info;

typedef struct xd_upscaler {
    xd_net_def net;
    void       (*info)(const void *cfg, xd_upscaler_info *out);
    /* If the tensors of a file are those of this network, appends a config as JSON and returns 1;
     * otherwise returns 0. */
    int        (*read)(const xd_source *src, xd_text_buf *config);
    /* Enlarges an image in [1,H,W,3] F32, RGB in [0,1], to out [1,H scale,W scale,3] F32, whose
     * values may be slightly outside of [0,1]. `run` allocates scratch memory from the arena x->tmp
     * and rewinds the arena. The rows of the image may be split over ranks at multiples of
     * `cell`. */
    void       (*run)(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out);
} xd_upscaler;

/* all networks that enlarge images; the array ends with NULL */
extern const xd_upscaler *const xd_upscalers[];

/* Inside upsample: sets *d to the shape of the weight "NAME.weight", and returns 0 if the source
 * does not have it. */
int  xd_upscaler_shape(const xd_source *src, const char *name, xd_tensor *d);
/* Inside upsample: declares a convolution of 3 x 3 pixels with a bias. */
void xd_upscaler_conv(xd_decl *d, xd_cnv *w, const char *name, int64_t out, int64_t in);
/* Inside upsample: computes out = conv(in) + plus of complete rows, with zeros around them. */
void xd_upscaler_convolve(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w, xd_tensor plus);
/* Inside upsample: computes the same for rows that may be split over ranks, which exchange rows. */
void xd_upscaler_convolve_rows(xd_exec *x, xd_tensor out, xd_tensor in, const xd_cnv *w,
                               xd_tensor plus);
/* Inside upsample: multiplies negative values of a map [1,H,W,C] F32 by a slope in place. `minus`
 * [1,C] F32 has the slopes of the channels, negated. */
void xd_upscaler_slope(xd_exec *x, xd_tensor map, xd_tensor minus);

#endif
