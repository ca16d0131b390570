/* image_processor.c - reads a model's preprocessor_config.json, and computes the size to which an
 * input image is resized */
#include "model/image_processor.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/minmax.h"

/* the number by which Pillow identifies this filter */
enum { BICUBIC = 3, MAX_RATIO = 200, MAX_SIDE = 1 << 20 };

const char *const xd_image_processor_files[] = { "preprocessor_config.json",
                                                 "processor_config.json", NULL };

#define AT(m) offsetof(xd_image_processor, m)
#define KNOWN(key) { key, 0, '-', 0, NULL }
static const xd_field fields[] = {
    { "image_processor", 0, '>', 0, NULL },
    { "min_pixels", AT(min_pixels), 'l', 56 * 56, NULL },
    { "size.shortest_edge", AT(min_pixels), 'l', 56 * 56, NULL },
    { "max_pixels", AT(max_pixels), 'l', 28 * 28 * 1280, NULL },
    { "size.longest_edge", AT(max_pixels), 'l', 28 * 28 * 1280, NULL },
    { "patch_size", AT(patch), 'l', 14, NULL },
    { "merge_size", AT(merge), 'l', 2, NULL },
    { "resample", AT(resample), 'i', BICUBIC, NULL },
    { "do_resize", AT(resizes), 'b', 1, NULL },
    { "do_rescale", AT(rescales), 'b', 1, NULL },
    { "do_normalize", AT(normalizes), 'b', 1, NULL },
    { "rescale_factor", AT(factor), 'd', 1.0 / 255, NULL },
    { "image_mean", AT(mean), 'D', 0, NULL },
    { "image_std", AT(std), 'D', 0, NULL },
    KNOWN("image_processor_type"),
    KNOWN("processor_class"),
    KNOWN("temporal_patch_size"),
    KNOWN("do_convert_rgb"),
    KNOWN("video_processor"),
    KNOWN("data_format"),
    { NULL, 0, 0, 0, NULL },
};

static xd_status check_values(xd_image_processor *p, const char *path, xd_err *e)
{
    static const double mean[] = { 0.48145466, 0.4578275, 0.40821073 },
                        std[] = { 0.26862954, 0.26130258, 0.27577711 };
    for (int i = 0; i < 3 && !p->mean.n; i++)
        p->mean.v[i] = mean[i];
    for (int i = 0; i < 3 && !p->std.n; i++)
        p->std.v[i] = std[i];
    if (p->patch < 1 || p->merge < 1 || p->patch > 256 || p->merge > 256 || p->min_pixels < 1 ||
        p->max_pixels < p->patch * p->merge * p->patch * p->merge || p->min_pixels > p->max_pixels)
        return xd_fail(e, XD_EFORMAT,
                       "%s: patch_size %lld, merge_size %lld, min_pixels %lld and "
                       "max_pixels %lld allow no image",
                       path, (long long)p->patch, (long long)p->merge, (long long)p->min_pixels,
                       (long long)p->max_pixels);
    if (!p->resizes || !p->rescales || !p->normalizes || p->resample != BICUBIC ||
        fabs(p->factor * 255 - 1) > 1e-6)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: unsupported settings; images must be resized "
                       "(resample %d, bicubic), rescaled by 1/255 and normalized",
                       path, BICUBIC);
    if ((p->mean.n && p->mean.n != 3) || (p->std.n && p->std.n != 3) || !(p->std.v[0] > 0) ||
        !(p->std.v[1] > 0) || !(p->std.v[2] > 0))
        return xd_fail(e, XD_EFORMAT, "%s: image_mean and image_std must have three numbers", path);
    return XD_OK;
}

xd_status xd_image_processor_read(xd_image_processor *p, const char *model, const char *folder,
                                  xd_err *e)
{
    char     *dir = xd_path_join(model, folder), *path = NULL;
    xd_json  *j = NULL;
    xd_status s = dir ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a path");
    for (int i = 0; s == XD_OK && xd_image_processor_files[i]; i++) {
        free(path);
        path = xd_path_join(dir, xd_image_processor_files[i]);
        if (!path || xd_file_exists(path))
            break;
    }
    if (s == XD_OK && !path)
        s = xd_fail(e, XD_ENOMEM, "no memory for a path");
    if (s == XD_OK && !xd_file_exists(path))
        s = xd_fail(e, XD_EIO, "%s has no %s, the text encoder's image processing", dir,
                    xd_image_processor_files[0]);
    if (s == XD_OK)
        s = xd_json_read(&j, path, e);
    if (s == XD_OK)
        s = xd_fields_read(fields, p, j, path, e);
    if (s == XD_OK)
        s = check_values(p, path, e);
    xd_json_free(&j);
    free(path);
    free(dir);
    return s;
}

/* Computes the size to which an image is resized, like smart_resize in transformers. Halves are
 * rounded to even. */
xd_status xd_image_processor_size(const xd_image_processor *p, int64_t *height, int64_t *width,
                                  xd_err *e)
{
    double h = (double)*height, w = (double)*width, unit = (double)(p->patch * p->merge);
    if (*height < 1 || *width < 1 || *height > MAX_SIDE || *width > MAX_SIDE ||
        fmax(h, w) / fmin(h, w) > MAX_RATIO)
        return xd_fail(e, XD_EINVAL,
                       "an image of %lld x %lld pixels does not fit the text "
                       "encoder: the aspect ratio can be at most %d : 1",
                       (long long)*width, (long long)*height, MAX_RATIO);
    double rows = nearbyint(h / unit) * unit, cols = nearbyint(w / unit) * unit;
    if (rows * cols > (double)p->max_pixels) {
        double beta = sqrt(h * w / (double)p->max_pixels);
        rows = fmax(unit, floor(h / beta / unit) * unit);
        cols = fmax(unit, floor(w / beta / unit) * unit);
    } else if (rows * cols < (double)p->min_pixels) {
        double beta = sqrt((double)p->min_pixels / (h * w));
        rows = ceil(h * beta / unit) * unit;
        cols = ceil(w * beta / unit) * unit;
    }
    if (rows < unit || cols < unit)
        return xd_fail(e, XD_EINVAL,
                       "an image of %lld x %lld pixels is too narrow for the text "
                       "encoder: a token needs %g x %g pixels",
                       (long long)*width, (long long)*height, unit, unit);
    *height = (int64_t)rows;
    *width = (int64_t)cols;
    return XD_OK;
}
