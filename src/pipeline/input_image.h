/* input_image.h - the input images of a request, as files or as the program's pixels. */
#ifndef XD_PIPELINE_INPUT_IMAGE_H
#define XD_PIPELINE_INPUT_IMAGE_H

#include "xdit/xdit.h"

/* An input image of a request, as a file or as pixels. The names of the two request fields are for
 * error messages. */
typedef struct xd_pixel_source {
    const char     *file_name, *pixels_name, *file;
    const xd_image *pixels;
} xd_pixel_source;

/* Returns the k-th input image of a request. */
xd_pixel_source xd_input_image_source(const xd_request *r, int k);
/* Returns the control image of a request. */
xd_pixel_source xd_input_image_control(const xd_request *r);
/* Reads an input image from its file or copies its pixels. Sets *rgb to malloc'ed RGB bytes of *w x
 * *h pixels. */
xd_status xd_input_image_pixels(const xd_pixel_source *of, uint8_t **rgb, int64_t *w, int64_t *h,
                                xd_err *e);

#endif
