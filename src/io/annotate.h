/* annotate.h - computes control images, such as edges, from photos (annotators of ControlNet). */
#ifndef XD_IO_ANNOTATE_H
#define XD_IO_ANNOTATE_H

#include <stdint.h>

#include "base/err.h"

typedef enum xd_annotator_kind {
    XD_ANNOTATE_NONE,
    XD_ANNOTATE_CANNY,
    XD_ANNOTATE_TILE,
    XD_ANNOTATE_GRAY,
    XD_ANNOTATE_BLUR
} xd_annotator_kind;

/* An annotator with its numbers: the low and the high threshold of "canny", the standard deviation
 * of "blur" in pixels, the reduction of "tile". */
typedef struct xd_annotator {
    xd_annotator_kind kind;
    double            v[2];
} xd_annotator;

/* Reads an annotator from the `n` characters of `text`: a name, which numbers may follow, as in
 * "canny:100:200". `option` is the name of the option in errors. */
xd_status xd_annotator_read(xd_annotator *a, const char *option, const char *text, int64_t n,
                            xd_err *e);
/* Replaces the RGB image *rgb of *w x *h pixels by its control image, whose size may be smaller.
 *
 * canny: edges as cv2.Canny(rgb, low, high) of OpenCV finds them, equal bit by bit: Sobel kernels
 * of 3 x 3 pixels, gradients |dx| + |dy| of the channel in which they are largest (Canny 1986).
 * tile: the image without its details, as ComfyUI's tile preprocessor computes it: OpenCV's
 * INTER_AREA to the N-th part of each side, then pyrUp to N times this size; N is a power of 2.
 * gray: OpenCV's RGB2GRAY. blur: cv2.GaussianBlur(rgb, (0, 0), sigma), as A1111's blur_gaussian. */
xd_status xd_annotate(const xd_annotator *a, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e);

#endif
