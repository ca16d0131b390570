/* image_file.c - implements the public functions that read an image file or its size, and that
 * write pixels to an image file */
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "base/record.h"
#include "io/frames.h"
#include "io/image.h"
#include "xdit/tools.h"

void xd_image_init_size(xd_image *i, size_t size)
{
    xd_image own = { .frames = 1, .channels = 3 };
    xd_record_init(i, size);
    xd_record_write(i, &own, sizeof own, "xd_image", NULL);
}

xd_status xd_image_file_size(const char *path, int64_t *width, int64_t *height, xd_err *e)
{
    return xd_image_size(path, width, height, e);
}

xd_status xd_image_file_load(const char *path, xd_image *im, uint8_t **data, xd_err *e)
{
    xd_image_init(im);
    xd_status s = xd_image_read(path, data, &im->width, &im->height, e);
    im->data = *data;
    return s;
}

xd_status xd_image_file_load_alpha(const char *path, xd_image *im, uint8_t **data, xd_err *e)
{
    xd_image_init(im);
    xd_status s = xd_image_read_alpha(path, data, &im->width, &im->height, e);
    im->channels = 4;
    im->data = *data;
    return s;
}

xd_status xd_image_file_load_mask(const char *path, xd_image *im, uint8_t **data, xd_err *e)
{
    xd_image_init(im);
    xd_status s = xd_image_read_mask(path, data, &im->width, &im->height, e);
    im->data = *data;
    return s;
}

/* Appends a frame of `bytes` bytes to the frames of im. */
static xd_status add_frame(xd_image *im, uint8_t **data, int64_t most, const uint8_t *rgb,
                           int64_t n, xd_err *e)
{
    int64_t  bytes = im->width * im->height * 3;
    uint8_t *grown = n < most / bytes ? realloc(*data, (size_t)((n + 1) * bytes)) : NULL;
    if (!grown)
        return xd_fail(e, XD_ENOMEM, "no memory for more than %lld frames of %lld x %lld pixels",
                       (long long)n, (long long)im->width, (long long)im->height);
    memcpy(grown + n * bytes, rgb, (size_t)bytes);
    im->data = *data = grown;
    im->frames = n + 1;
    return XD_OK;
}

xd_status xd_video_file_load(const char *path, int64_t most, xd_image *im, uint8_t **data,
                             xd_err *e)
{
    xd_frames     *f = NULL;
    const uint8_t *rgb = NULL;
    int64_t        w, h;
    *data = NULL;
    xd_image_init(im);
    xd_status s = xd_frames_open(&f, path, e);
    for (int64_t n = 0; s == XD_OK; n++) {
        s = xd_frames_next(f, &rgb, &w, &h, e);
        if (s != XD_OK || !rgb)
            break;
        im->width = w, im->height = h;
        s = add_frame(im, data, most, rgb, n, e);
    }
    if (s == XD_OK && !*data)
        s = xd_fail(e, XD_EFORMAT, "%s has no frames", path);
    xd_frames_close(&f);
    return s;
}

xd_status xd_video_file_size(const char *path, int64_t *width, int64_t *height, xd_err *e)
{
    xd_frames     *f = NULL;
    const uint8_t *rgb = NULL;
    xd_status      s = xd_frames_open(&f, path, e);
    if (s == XD_OK)
        s = xd_frames_next(f, &rgb, width, height, e);
    if (s == XD_OK && !rgb)
        s = xd_fail(e, XD_EFORMAT, "%s has no frames", path);
    xd_frames_close(&f);
    return s;
}

xd_status xd_image_file_save(const xd_image *im, const char *path, xd_err *e)
{
    if ((im->channels != 3 && im->channels != 4) || im->frames != 1 ||
        (im->stride && im->stride != im->width * im->channels))
        return xd_fail(e, XD_EINVAL,
                       "%s: the image must be one RGB or RGBA frame without gaps between "
                       "rows",
                       path);
    return xd_image_write_picture(
        path, &(xd_picture){ im->data, im->width, im->height, im->channels }, -1, NULL, e);
}

/* Returns frame i of an image, shrunk to fit w x h pixels, in a malloc'ed buffer. */
static uint8_t *shrink_frame(const xd_image *im, int64_t i, int64_t w, int64_t h, xd_err *e)
{
    size_t   bytes = (size_t)(im->width * im->height * 3);
    uint8_t *rgb = malloc(bytes + 1);
    if (!rgb) {
        xd_fail(e, XD_ENOMEM, "no memory for a frame");
        return NULL;
    }
    memcpy(rgb, im->data + (size_t)i * bytes, bytes);
    if ((w != im->width || h != im->height) &&
        xd_image_resize(&rgb, im->width, im->height, w, h, e) != XD_OK) {
        free(rgb);
        return NULL;
    }
    return rgb;
}

xd_status xd_image_file_sheet(const xd_image *im, int columns, int most, int64_t width,
                              const char *path, xd_err *e)
{
    if (im->channels != 3 || im->frames < 1 || columns < 1 || most < 1 || width < 1 ||
        (im->stride && im->stride != im->width * 3))
        return xd_fail(e, XD_EINVAL,
                       "%s: frames must be RGB without gaps between rows, in "
                       "at least one column",
                       path);
    int64_t   n = xd_min(im->frames, most), cols = xd_min(n, columns), rows = (n + cols - 1) / cols;
    int64_t   w = xd_min(width, im->width), h = xd_max(1, im->height * w / im->width);
    uint8_t  *sheet = calloc((size_t)(cols * w * rows * h), 3);
    xd_status s = sheet ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory to write %s", path);
    for (int64_t i = 0; s == XD_OK && i < n; i++) {
        uint8_t *rgb = shrink_frame(im, n > 1 ? i * (im->frames - 1) / (n - 1) : 0, w, h, e);
        for (int64_t y = 0; rgb && y < h; y++)
            memcpy(sheet + ((i / cols * h + y) * cols * w + i % cols * w) * 3, rgb + y * w * 3,
                   (size_t)w * 3);
        s = rgb ? XD_OK : XD_ENOMEM;
        free(rgb);
    }
    if (s == XD_OK)
        s = xd_image_write(path, sheet, cols * w, rows * h, NULL, e);
    free(sheet);
    return s;
}
