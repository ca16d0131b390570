/* clip_processor.h - preprocesses images for an image encoder, with the settings in
 * preprocessor_config.json. */
#ifndef XD_MODEL_CLIP_PROCESSOR_H
#define XD_MODEL_CLIP_PROCESSOR_H

#include <stdint.h>

#include "base/err.h"
#include "io/image.h"

typedef struct xd_clip_processor {
    int64_t   side; /* pixels per side of the output; 0: the config has not been read yet */
    /* Flags of the preprocessing steps; a flag is 1 if its step is enabled. */
    int       resizes, crops, rescales, normalizes;
    /* pixels of the shorter side after resizing; 0: images are resized to `size` instead */
    int64_t   edge;
    /* [height, width] after resizing, and [height, width] of the centre crop */
    int64_t   size[2], crop[2];
    xd_filter filter;
    double    factor, mean[3], std[3];
} xd_clip_processor;

/* Reads DIR/preprocessor_config.json, the config of a CLIPImageProcessor or a SiglipImageProcessor.
 * Refuses a config whose output images would not have `side` x `side` pixels. */
xd_status xd_clip_processor_read(xd_clip_processor *p, const char *dir, int64_t side, xd_err *e);
/* Preprocesses an RGB image of w x h pixels, with 3 bytes per pixel. The preprocessed image is f32
 * [3,side,side] in host memory. */
xd_status xd_clip_processor_run(const xd_clip_processor *p, const uint8_t *rgb, int64_t w,
                                int64_t h, float *out, xd_err *e);

#endif
