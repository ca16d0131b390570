/* input_image.c - the input images of a request, as files or as the program's pixels */
#include <stdlib.h>
#include <string.h>

#include "pipeline/input_image.h"
#include "base/record.h"
#include "io/image.h"

enum { MOST_FRAMES = 1 << 20 }; /* maximum number of frames that are counted in a file */

enum { MOST_SIDE = 1 << 20 };

static xd_status check_pixels(const xd_image *i, const char *name, int video, xd_err *e)
{
    if (!i->data)
        return xd_fail(e, XD_EINVAL, "%s has no data", name);
    if (i->frames < 1 || (i->frames > 1 && !video) || i->width < 1 || i->height < 1 ||
        i->width > MOST_SIDE || i->height > MOST_SIDE)
        return xd_fail(e, XD_EINVAL,
                       "%s has %lld frames of %lld x %lld pixels; it must be one of at "
                       "least 1 x 1",
                       name, (long long)i->frames, (long long)i->width, (long long)i->height);
    if (i->channels != 1 && i->channels != 3 && i->channels != 4)
        return xd_fail(e, XD_EINVAL, "%s has %d channels; it can have 1, 3 or 4", name,
                       i->channels);
    if (i->stride && i->stride < i->width * i->channels)
        return xd_fail(e, XD_EINVAL, "%s has a stride of %lld bytes, less than the %lld of a row",
                       name, (long long)i->stride, (long long)i->width * i->channels);
    return XD_OK;
}

/* Reads the struct of the program's pixels, and checks it. */
static xd_status open_pixels(const xd_pixel_source *of, int video, xd_image *i, xd_err *e)
{
    xd_image_init(i);
    xd_status s = xd_record_read(i, sizeof *i, of->pixels, "xd_image", e);
    return s == XD_OK ? check_pixels(i, of->pixels_name, video, e) : s;
}

/* Converts frame `frame` of the program's pixels, of any stride and number of channels, to
 * contiguous pixels of C bytes, as if it had been read from a file. *rgb is malloc'ed. */
static xd_status copy_frame(const xd_image *i, int64_t frame, int C, uint8_t **rgb, xd_err *e)
{
    int64_t        stride = i->stride ? i->stride : i->width * i->channels;
    const uint8_t *data = i->data + frame * i->height * stride;
    if (!(*rgb = malloc((size_t)(i->width * i->height * C))))
        return xd_fail(e, XD_ENOMEM, "no memory for an image of %lld x %lld pixels",
                       (long long)i->width, (long long)i->height);
    for (int64_t y = 0; y < i->height; y++)
        for (int64_t x = 0; x < i->width; x++)
            for (int c = 0; c < C; c++)
                (*rgb)[(y * i->width + x) * C + c] =
                    c == 3 && i->channels < 4
                        ? 255
                        : data[y * stride + x * i->channels + (i->channels == 1 ? 0 : c)];
    return XD_OK;
}

static xd_status copy_pixels(const xd_pixel_source *of, int channels, uint8_t **rgb, int64_t *w,
                             int64_t *h, xd_err *e)
{
    xd_image  i;
    xd_status s = open_pixels(of, 0, &i, e);
    *w = i.width, *h = i.height;
    return s == XD_OK ? copy_frame(&i, 0, channels, rgb, e) : s;
}

xd_pixel_source xd_input_image_source(const xd_request *r, int k)
{
    if (k == 0)
        return xd_pixel_source_of("image", "image_pixels", r->images.image, r->images.image_pixels);
    return xd_pixel_source_of("more_images", "more_pixels",
                              r->images.more_images ? r->images.more_images[k - 1] : NULL,
                              r->images.more_pixels ? r->images.more_pixels[k - 1] : NULL);
}

xd_status xd_input_image_annotator(const xd_request *r, int k, xd_annotator *a, int64_t *n,
                                   xd_err *e)
{
    const char *text = r->images.control_preprocess, *at = text ? text : "";
    xd_status   s = XD_OK;
    *a = (xd_annotator){ XD_ANNOTATE_NONE, { 0 } };
    *n = 0;
    for (int more = *at != '\0'; more && s == XD_OK; ++*n) {
        int64_t      length = (int64_t)strcspn(at, ",");
        xd_annotator other;
        s = xd_annotator_read(&other, "control_preprocess", at, length, e);
        if (s == XD_OK && (*n == 0 || *n == k))
            *a = other;
        more = at[length] == ',';
        at += length + more;
    }
    return s;
}

xd_pixel_source xd_input_image_control(const xd_request *r, int k)
{
    const xd_request_images *i = &r->images;
    xd_pixel_source          of =
        xd_pixel_source_of("control_image", "control_pixels", i->control_image, i->control_pixels);
    int64_t n;
    if (k)
        of = xd_pixel_source_of("more_control_images", "more_control_pixels",
                                i->more_control_images ? i->more_control_images[k - 1] : NULL,
                                i->more_control_pixels ? i->more_control_pixels[k - 1] : NULL);
    xd_input_image_annotator(r, k, &of.annotator, &n, NULL);
    return of;
}

xd_pixel_source xd_input_image_redux(const xd_request *r, int k)
{
    const xd_request_redux *i = &r->redux;
    if (k)
        return xd_pixel_source_of("redux.more_images", "redux.more_pixels",
                                  i->more_images ? i->more_images[k - 1] : NULL,
                                  i->more_pixels ? i->more_pixels[k - 1] : NULL);
    return xd_pixel_source_of("redux.image", "redux.image_pixels", i->image, i->image_pixels);
}

static xd_status check_source(const xd_pixel_source *of, xd_err *e)
{
    if (of->file && of->pixels)
        return xd_fail(e, XD_EINVAL, "%s and %s are both given; use one of them", of->file_name,
                       of->pixels_name);
    if (!of->file && !of->pixels)
        return xd_fail(e, XD_EINVAL, "an entry of %s and %s has neither a file nor pixels",
                       of->file_name, of->pixels_name);
    return XD_OK;
}

xd_status xd_input_image_channels(const xd_pixel_source *of, int channels, uint8_t **pixels,
                                  int64_t *w, int64_t *h, xd_err *e)
{
    xd_status s = check_source(of, e);
    if (s != XD_OK)
        return s;
    if (!of->file)
        return copy_pixels(of, channels, pixels, w, h, e);
    return (channels == 4 ? xd_image_read_alpha : xd_image_read)(of->file, pixels, w, h, e);
}

xd_status xd_input_image_pixels(const xd_pixel_source *of, uint8_t **rgb, int64_t *w, int64_t *h,
                                xd_err *e)
{
    xd_status s = xd_input_image_channels(of, 3, rgb, w, h, e);
    return s == XD_OK ? xd_annotate(&of->annotator, rgb, w, h, e) : s;
}

/* ---- videos ------------------------------------------------------------------------------- */

xd_pixel_source xd_input_video_control(const xd_request *r)
{
    return xd_pixel_source_of("control_video", "control_frames", r->images.control_video,
                              r->images.control_frames);
}

xd_pixel_source xd_input_video_pose(const xd_request *r)
{
    return xd_pixel_source_of("pose_video", "pose_frames", r->driving.pose_video,
                              r->driving.pose_frames);
}

xd_pixel_source xd_input_video_face(const xd_request *r)
{
    return xd_pixel_source_of("face_video", "face_frames", r->driving.face_video,
                              r->driving.face_frames);
}

xd_pixel_source xd_input_video_mask(const xd_request *r)
{
    return xd_pixel_source_of("mask_image", "mask_pixels", r->images.mask_image,
                              r->images.mask_pixels);
}

int64_t xd_input_video_count(const xd_pixel_source *of)
{
    xd_input_video v;
    uint8_t       *rgb = NULL;
    int64_t        n = 0, w, h;
    xd_status      s = xd_input_video_open(&v, of, NULL);
    while (s == XD_OK && n < MOST_FRAMES &&
           (s = xd_input_video_next(&v, &rgb, &w, &h, NULL)) == XD_OK && rgb) {
        free(rgb);
        n++;
    }
    xd_input_video_close(&v);
    return n > 0 ? n : 1;
}

xd_status xd_input_video_open(xd_input_video *v, const xd_pixel_source *of, xd_err *e)
{
    xd_status s = check_source(of, e);
    *v = (xd_input_video){ .of = *of };
    if (s != XD_OK)
        return s;
    return of->file ? xd_frames_open(&v->file, of->file, e) : open_pixels(of, 1, &v->pixels, e);
}

xd_status xd_input_video_next(xd_input_video *v, uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e)
{
    const uint8_t *frame = NULL;
    *rgb = NULL;
    if (!v->file) {
        *w = v->pixels.width, *h = v->pixels.height;
        return v->next < v->pixels.frames ? copy_frame(&v->pixels, v->next++, 3, rgb, e) : XD_OK;
    }
    xd_status s = xd_frames_next(v->file, &frame, w, h, e);
    size_t    n = s == XD_OK && frame ? (size_t)(*w * *h) * 3 : 0;
    if (n && !(*rgb = malloc(n)))
        return xd_fail(e, XD_ENOMEM, "no memory for a frame of %lld x %lld pixels", (long long)*w,
                       (long long)*h);
    if (n)
        memcpy(*rgb, frame, n);
    return s;
}

void xd_input_video_close(xd_input_video *v)
{
    xd_frames_close(&v->file);
}
