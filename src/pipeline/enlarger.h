/* enlarger.h - enlarges images of 8 bits with an upscaler file, on one rank or on several.
 *
 * The ranks compute the rows of an image together and exchange rows next to their own, and tiles
 * overlap by the receptive field, so that the pixels do not depend on ranks and tiles. */
#ifndef XD_PIPELINE_ENLARGER_H
#define XD_PIPELINE_ENLARGER_H

#include "base/arena.h"
#include "base/cancel.h"
#include "io/safetensors.h"
#include "model/component.h"
#include "parallel/topo.h"

typedef struct xd_enlarger {
    xd_st              *st;
    char                prefix[16]; /* start of all tensor names of the file */
    xd_component        part;
    xd_upscaler_info    info;
    xd_dev             *dev, *count; /* borrowed */
    xd_dtype            type;
    xd_arena            arena; /* scratch memory, which grows when needed */
    const xd_canceller *cancel;
} xd_enlarger;

/* Opens the file of an upscaler, whose network, widths and scale are those of its tensors. Refuses
 * files of other types with the command that converts them. Call xd_enlarger_close also after a
 * failure. */
xd_status xd_enlarger_open(xd_enlarger *u, const char *file, xd_err *e);
/* Loads the weights. The devices are borrowed until xd_enlarger_close. */
xd_status xd_enlarger_load(xd_enlarger *u, xd_dev *dev, xd_dev *count, xd_dtype type, xd_err *e);
void      xd_enlarger_close(xd_enlarger *u);

typedef struct xd_enlarging {
    xd_comm       *c;    /* ranks that compute the image together; NULL: only this rank */
    const xd_topo *topo; /* topology of `c`, or NULL */
    const uint8_t *rgb;  /* [h,w,3] the image, on rank 0 */
    int64_t        w, h; /* size of the image, on all ranks */
    int64_t        tile; /* rows and columns of a tile in pixels; 0: no tiles */
    uint8_t       *out;  /* [h scale,w scale,3] the result, on rank 0 */
    void           (*on_part)(void *cookie, double part); /* fraction of the image; or NULL */
    void          *cookie;
} xd_enlarging;
/* Enlarges an image. xd_enlarger_run is collective over the ranks of a->c; all ranks return the
 * same status. */
xd_status xd_enlarger_run(xd_enlarger *u, const xd_enlarging *a, xd_err *e);

#endif
