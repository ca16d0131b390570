/* image_processor.h - how images are shown to an encoder: preprocessor_config.json */
#ifndef XD_MODEL_IMAGE_PROCESSOR_H
#define XD_MODEL_IMAGE_PROCESSOR_H

#include "base/json.h"

/* transformers' Qwen2VLImageProcessor: sides become multiples of patch x merge, the area stays
 * between two limits, the ratio stays as it can. */
typedef struct xd_image_processor {
    int64_t  least, most;       /* pixels                                                      */
    int64_t  patch, merge;
    int      resample, resizes, rescales, normalizes;
    double   factor;            /* of colours in 0..255                                        */
    xd_reals mean, std;         /* of the three colours                                        */
} xd_image_processor;

/* Reads preprocessor_config.json or processor_config.json of a model's folder. */
xd_status xd_image_processor_read(xd_image_processor *p, const char *model, const char *folder,
                                  xd_err *e);
/* Replaces the size of an image in pixels by the one that it is resized to. XD_EINVAL: its sides
 * are too different. */
xd_status xd_image_processor_size(const xd_image_processor *p, int64_t *height, int64_t *width,
                                  xd_err *e);

/* The files of such a folder that count; the list ends with NULL. */
extern const char *const xd_image_processor_files[];

#endif
