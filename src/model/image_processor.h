/* image_processor.h - image preprocessing for a vision-language encoder:
 * preprocessor_config.json */
#ifndef XD_MODEL_IMAGE_PROCESSOR_H
#define XD_MODEL_IMAGE_PROCESSOR_H

#include "base/json.h"

/* transformers' Qwen2VLImageProcessor: resizes an image so that its sides are multiples of patch x
 * merge and its area is between two limits, with about the same aspect ratio. */
typedef struct xd_image_processor {
    int64_t  min_pixels, max_pixels;    /* limits of the area                                  */
    int64_t  patch, merge;      /* pixels of a patch's side; patches of a token's side         */
    int      resample, resizes, rescales, normalizes;
    double   factor;            /* scale of colours in 0..255                                  */
    xd_reals mean, std;         /* per colour channel                                          */
} xd_image_processor;

/* Reads preprocessor_config.json or processor_config.json of a model's folder. */
xd_status xd_image_processor_read(xd_image_processor *p, const char *model, const char *folder,
                                  xd_err *e);
/* Replaces an image's size in pixels by its size after the resize. XD_EINVAL: the aspect ratio is
 * too extreme. */
xd_status xd_image_processor_size(const xd_image_processor *p, int64_t *height, int64_t *width,
                                  xd_err *e);

/* Names of the files that xd_image_processor_read may read; the list ends with NULL. */
extern const char *const xd_image_processor_files[];

#endif
