/* image_file.c - image files for programs: their sizes, and pixels written to one */
#include "io/image.h"
#include "xdit/tools.h"

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

xd_status xd_image_file_save(const xd_image *im, const char *path, xd_err *e)
{
    if (im->channels != 3 || im->frames != 1 || (im->stride && im->stride != im->width * 3))
        return xd_fail(e, XD_EINVAL, "%s: one frame of RGB without gaps between rows is written",
                       path);
    return xd_image_write(path, im->data, im->width, im->height, NULL, e);
}
