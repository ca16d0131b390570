/* input_image.h - reads the input images of a request from files, or copies the program's
 * pixels. */
#ifndef XD_PIPELINE_INPUT_IMAGE_H
#define XD_PIPELINE_INPUT_IMAGE_H

#include "io/annotate.h"
#include "io/frames.h"
#include "xdit/xdit.h"

/* An input image of a request, as a file or as pixels. file_name and pixels_name are the names of
 * the request's fields for the file and for the pixels, for error messages. */
typedef struct xd_pixel_source {
    const char     *file_name, *pixels_name, *file;
    const xd_image *pixels;
    xd_annotator    annotator; /* makes a control image of the pixels */
} xd_pixel_source;

static inline xd_pixel_source xd_pixel_source_of(const char *file_name, const char *pixels_name,
                                                 const char *file, const xd_image *pixels)
{
    return (xd_pixel_source){
        .file_name = file_name, .pixels_name = pixels_name, .file = file, .pixels = pixels
    };
}

/* Returns the k-th input image of a request. */
xd_pixel_source xd_input_image_source(const xd_request *r, int k);
/* Reads which annotator makes the k-th control image of a request. Sets *n to the number of names
 * in control_preprocess; 0: the option is not given. */
xd_status       xd_input_image_annotator(const xd_request *r, int k, xd_annotator *a, int64_t *n,
                                         xd_err *e);
/* Returns the k-th control image of a request. */
xd_pixel_source xd_input_image_control(const xd_request *r, int k);
/* Returns the k-th image of a request that the image prior (prior.h) reads. */
xd_pixel_source xd_input_image_redux(const xd_request *r, int k);
/* Reads an input image from its file or copies its pixels, and applies its annotator. Sets *rgb to
 * malloc'ed RGB bytes of *w x *h pixels. */
xd_status xd_input_image_pixels(const xd_pixel_source *of, uint8_t **rgb, int64_t *w, int64_t *h,
                                xd_err *e);
/* Reads an input image as pixels of `channels` bytes: 3 for RGB, 4 for RGB and alpha. Alpha is 255
 * if the image has no alpha channel. */
xd_status xd_input_image_channels(const xd_pixel_source *of, int channels, uint8_t **pixels,
                                  int64_t *w, int64_t *h, xd_err *e);

/* An input video, which is read frame by frame from a file or from the program's pixels. */
typedef struct xd_input_video {
    xd_pixel_source of;
    xd_frames      *file;
    xd_image        pixels;
    int64_t         next; /* index of the next frame of `pixels` */
} xd_input_video;
/* Returns the control video of a request. */
xd_pixel_source xd_input_video_control(const xd_request *r);
/* Return the pose video and the face video of a request. */
xd_pixel_source xd_input_video_pose(const xd_request *r);
xd_pixel_source xd_input_video_face(const xd_request *r);
/* Returns the mask of a request, an image or a video. */
xd_pixel_source xd_input_video_mask(const xd_request *r);
/* Counts the frames of a video. Returns 1 if the video cannot be read, which a later call
 * reports. */
int64_t         xd_input_video_count(const xd_pixel_source *of);
xd_status       xd_input_video_open(xd_input_video *v, const xd_pixel_source *of, xd_err *e);
/* Reads the next frame of a video to malloc'ed RGB bytes *rgb of *w x *h pixels. After the last
 * frame, sets *rgb to NULL. */
xd_status xd_input_video_next(xd_input_video *v, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e);
void      xd_input_video_close(xd_input_video *v);

#endif
