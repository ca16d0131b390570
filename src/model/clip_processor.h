/* clip_processor.h - what an image encoder's preprocessor_config.json makes of an image */
#ifndef XD_MODEL_CLIP_PROCESSOR_H
#define XD_MODEL_CLIP_PROCESSOR_H

#include <stdint.h>

#include "base/err.h"
#include "io/image.h"

typedef struct xd_clip_processor {
    int64_t   side;             /* of what it makes; 0: it is not read                          */
    int       resizes, crops, rescales, normalizes;
    int64_t   edge;             /* pixels of the shorter side; 0: `size`                       */
    int64_t   size[2], crop[2]; /* height, width: resized to, cut out of the middle            */
    xd_filter filter;
    double    factor, mean[3], std[3];
} xd_clip_processor;

/* Reads DIR/preprocessor_config.json: a CLIPImageProcessor that makes squares of `side` pixels. */
xd_status xd_clip_processor_read(xd_clip_processor *p, const char *dir, int64_t side, xd_err *e);
/* An image of w x h pixels of 3 bytes -> [3,side,side] on the host. */
xd_status xd_clip_processor_run(const xd_clip_processor *p, const uint8_t *rgb, int64_t w,
                                 int64_t h, float *out, xd_err *e);

#endif
