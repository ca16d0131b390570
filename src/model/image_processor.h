/* image_processor.h - reads the settings of image preprocessing for a vision-language encoder from
 * preprocessor_config.json. */
#ifndef XD_MODEL_IMAGE_PROCESSOR_H
#define XD_MODEL_IMAGE_PROCESSOR_H

#include "base/json.h"

/* Settings of Qwen2VLImageProcessor in the library transformers, which resizes an image so that
 * both sides are multiples of patch x merge and the area is between two limits; the aspect ratio
 * changes only a little. */
typedef struct xd_image_processor {
    int64_t  min_pixels, max_pixels; /* limits of the resized image's area */
    int64_t  patch, merge;           /* pixels per side of a patch; patches per side of a token */
    int      resample, resizes, rescales, normalizes;
    double   factor;    /* factor by which colour values from 0 to 255 are multiplied */
    xd_reals mean, std; /* for each colour channel: (value - mean) / std */
} xd_image_processor;

/* Reads preprocessor_config.json or processor_config.json in the folder `folder` of a model
 * directory. */
xd_status xd_image_processor_read(xd_image_processor *p, const char *model, const char *folder,
                                  xd_err *e);
/* Replaces *height and *width, an image's size in pixels, by the size to which the image is
 * resized. Returns XD_EINVAL if the aspect ratio is too extreme. */
xd_status xd_image_processor_size(const xd_image_processor *p, int64_t *height, int64_t *width,
                                  xd_err *e);

/* Names of the files that xd_image_processor_read may read; the list ends with NULL. */
extern const char *const xd_image_processor_files[];

#endif
