/* clip_processor.c - resizes, crops and normalizes an image for an image encoder, as transformers'
 * CLIPImageProcessor and SiglipImageProcessor do */
#include "model/clip_processor.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum { MAX_SIDE = 1 << 16 };

typedef struct cfg {
    int      resizes, crops, rescales, normalizes, resample;
    double   factor;
    xd_reals mean, std;
    char     type[XD_FIELD_TEXT];
} cfg;

/* Fields of the image processor's config. The argument is the default value of do_center_crop. */
#define AT(m) offsetof(cfg, m)
#define FIELDS(crop)                                                   \
    { "do_resize", AT(resizes), 'b', 1, NULL },                        \
    { "do_center_crop", AT(crops), 'b', crop, NULL },                  \
    { "do_rescale", AT(rescales), 'b', 1, NULL },                      \
    { "do_normalize", AT(normalizes), 'b', 1, NULL },                  \
    { "resample", AT(resample), 'i', 3, NULL },                        \
    { "rescale_factor", AT(factor), 'd', 1.0 / 255, NULL },            \
    { "image_mean", AT(mean), 'D', 0, NULL },                          \
    { "image_std", AT(std), 'D', 0, NULL },                            \
    { "image_processor_type", AT(type), 's', 0, CLIP },                \
    { "feature_extractor_type", 0, '-', 0, NULL },                     \
    { "processor_class", 0, '-', 0, NULL },                            \
    { "do_convert_rgb", 0, '-', 0, NULL },                             \
    { "size", 0, '-', 0, NULL }, /* read_size parses size, crop_size */ \
    { "crop_size", 0, '-', 0, NULL }

#define CLIP "CLIPImageProcessor"
#define SIGLIP "SiglipImageProcessor"

static const xd_field clip_fields[] = { FIELDS(1), { NULL, 0, 0, 0, NULL } };
static const xd_field siglip_fields[] = { FIELDS(0), { NULL, 0, 0, 0, NULL } };

/* The image processors, with the default values of transformers. */
typedef struct kind {
    const char     *name; /* start of image_processor_type; names may end with "Fast" or "Pil" */
    const xd_field *fields;
    double          mean[3], std[3];
    int             square; /* 1: images are resized to squares; 0: by their shorter side */
} kind;

static const kind kinds[] = {
    { CLIP,
      clip_fields,
      { 0.48145466, 0.4578275, 0.40821073 },
      { 0.26862954, 0.26130258, 0.27577711 },
      0 },
    { SIGLIP, siglip_fields, { 0.5, 0.5, 0.5 }, { 0.5, 0.5, 0.5 }, 1 },
};

/* Returns the image processor that a config names; NULL: it is not supported. */
static const kind *kind_of(const char *type)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!type || strncmp(type, kinds[i].name, strlen(kinds[i].name)) == 0)
            return &kinds[i];
    return NULL;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Reads the length of a side of an image, in pixels, from a key of a JSON object. Returns 0 if the
 * object does not have this key. */
static int read_side(const xd_json *j, const char *key, int64_t *v)
{
    double n;
    if (!xd_json_number(xd_json_get(j, key), &n) || !(n >= 1 && n <= MAX_SIDE))
        return 0;
    *v = (int64_t)n;
    return 1;
}

/* Reads "size" or "crop_size" of the config: {"height": h, "width": w}, {"shortest_edge": n}, or a
 * number. A number is the length of the shortest edge or, if the parameter `edge` is NULL, the
 * length of each side of a square. */
static xd_status read_size(const xd_json *j, const char *key, int64_t *edge, int64_t size[2],
                           xd_err *e)
{
    int64_t        n = 224;
    const xd_json *v = xd_json_get(j, key);
    int            whole = xd_json_null(v) || read_side(j, key, &n);
    if (edge && (whole || read_side(v, "shortest_edge", &n))) {
        *edge = n;
        return XD_OK;
    }
    if (whole) {
        size[0] = size[1] = n;
        return XD_OK;
    }
    if (read_side(v, "height", &size[0]) && read_side(v, "width", &size[1]))
        return XD_OK;
    return xd_fail(e, XD_EFORMAT,
                   "%s must be a number of pixels from 1 to %d, or an object with "
                   "height and width%s",
                   key, (int)MAX_SIDE, edge ? " or shortest_edge" : "");
}

/* Reads the three numbers of a config key. If the key is absent, uses the three numbers of
 * `usual`. */
static xd_status read_three(const xd_reals *v, const char *key, const double usual[3],
                            double out[3], xd_err *e)
{
    if (v->n != 0 && v->n != 3)
        return xd_fail(e, XD_EFORMAT, "%s has %d numbers, not 3", key, v->n);
    memcpy(out, v->n ? v->v : usual, 3 * sizeof *out);
    return XD_OK;
}

/* Converts the number that Pillow uses for a resampling filter to this library's filter. */
static xd_status find_filter(int resample, xd_filter *f, xd_err *e)
{
    static const struct {
        int       number;
        xd_filter f;
    } known[] = {
        { 1, XD_LANCZOS },
        { 2, XD_BILINEAR },
        { 3, XD_BICUBIC },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].number == resample) {
            *f = known[i].f;
            return XD_OK;
        }
    return xd_fail(e, XD_EUNSUPPORTED,
                   "resample %d is not 1 (Lanczos), 2 (bilinear) or 3 "
                   "(bicubic)",
                   resample);
}

static xd_status check_numbers(xd_clip_processor *p, const cfg *c, const kind *k, xd_err *e)
{
    xd_status s = find_filter(c->resample, &p->filter, e);
    if (s == XD_OK)
        s = read_three(&c->mean, "image_mean", k->mean, p->mean, e);
    if (s == XD_OK)
        s = read_three(&c->std, "image_std", k->std, p->std, e);
    for (int i = 0; i < 3 && s == XD_OK; i++)
        if (!(p->std[i] > 0))
            s = xd_fail(e, XD_EFORMAT, "image_std holds %g, which is not above 0", p->std[i]);
    return s == XD_OK && !(c->factor > 0)
               ? xd_fail(e, XD_EFORMAT, "rescale_factor %g is not above 0", c->factor)
               : s;
}

/* Refuses settings that do not give a square image of the size that the image encoder reads. */
static xd_status check_square(const xd_clip_processor *p, int64_t side, xd_err *e)
{
    const int64_t *to = p->crops ? p->crop : p->size;
    if (!p->crops && (!p->resizes || p->edge))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "do_center_crop is false, so that images keep their "
                       "aspect ratio, but the encoder needs squares");
    if (to[0] != side || to[1] != side)
        return xd_fail(e, XD_EFORMAT,
                       "images are resized to %lld x %lld pixels, but the encoder "
                       "needs %lld x %lld (image_size)",
                       (long long)to[1], (long long)to[0], (long long)side, (long long)side);
    return XD_OK;
}

/* Reads a processor's settings from its config. path: the name of the config, for errors. */
static xd_status read_settings(xd_clip_processor *p, const xd_json *j, const char *path,
                               int64_t side, xd_err *e)
{
    const char *type = xd_json_text(xd_json_get(j, "image_processor_type"));
    const kind *k = kind_of(type);
    cfg         c;
    if (!k)
        return xd_fail(e, XD_EUNSUPPORTED, "image_processor_type %s is not " CLIP " or " SIGLIP,
                       type);
    xd_status s = xd_fields_read(k->fields, &c, j, path, e);
    if (s != XD_OK)
        return s;
    p->resizes = c.resizes, p->crops = c.crops;
    p->rescales = c.rescales, p->normalizes = c.normalizes, p->factor = c.factor;
    s = check_numbers(p, &c, k, e);
    if (s == XD_OK)
        s = read_size(j, "size", k->square ? NULL : &p->edge, p->size, e);
    if (s == XD_OK)
        s = read_size(j, "crop_size", NULL, p->crop, e);
    return s == XD_OK ? check_square(p, side, e) : s;
}

xd_status xd_clip_processor_read(xd_clip_processor *p, const char *dir, int64_t side, xd_err *e)
{
    char     *path = xd_path_join(dir, "preprocessor_config.json");
    xd_json  *j = NULL;
    xd_status s = path ? xd_json_read(&j, path, e) : xd_fail(e, XD_ENOMEM, "no memory for a path");
    *p = (xd_clip_processor){ 0 };
    if (s == XD_OK)
        s = read_settings(p, j, path, side, e);
    p->side = s == XD_OK ? side : 0;
    xd_json_free(&j);
    if (s != XD_OK)
        xd_fail_at(e, s, path);
    free(path);
    return s;
}

/* ---- running ------------------------------------------------------------------------------ */

static xd_status resize(const xd_clip_processor *p, uint8_t **rgb, int64_t *w, int64_t *h,
                        xd_err *e)
{
    int64_t to[2] = { p->size[0], p->size[1] };
    if (p->edge) { /* the longer side is rounded down */
        to[0] = *h <= *w ? p->edge : (int64_t)((double)(p->edge * *h) / (double)*w);
        to[1] = *w <= *h ? p->edge : (int64_t)((double)(p->edge * *w) / (double)*h);
    }
    if (to[0] > MAX_SIDE || to[1] > MAX_SIDE)
        return xd_fail(e, XD_EINVAL,
                       "the aspect ratio of an image of %lld x %lld pixels is too "
                       "extreme for the image encoder",
                       (long long)*w, (long long)*h);
    xd_status s = xd_image_resize_by(rgb, p->filter, *w, *h, to[1], to[0], e);
    *h = to[0], *w = to[1];
    return s;
}

/* Returns the index of the first pixel of a centre crop of n pixels out of `of` pixels. If the
 * index is negative, the image is padded with zeros. */
static int64_t middle(int64_t of, int64_t n)
{
    return of >= n ? (of - n) / 2 : -((n - of + 1) / 2);
}

static float value(const xd_clip_processor *p, uint8_t v, int c)
{
    double f = p->rescales ? p->factor : 1;
    if (!p->normalizes)
        return (float)v * (float)f;
    return ((float)v - (float)(p->mean[c] / f)) / (float)(p->std[c] / f);
}

xd_status xd_clip_processor_run(const xd_clip_processor *p, const uint8_t *rgb, int64_t w,
                                int64_t h, float *out, xd_err *e)
{
    uint8_t  *own = malloc((size_t)(w * h) * 3);
    xd_status s = own ? XD_OK
                      : xd_fail(e, XD_ENOMEM, "no memory for an image of %lld x %lld", (long long)w,
                                (long long)h);
    if (own)
        memcpy(own, rgb, (size_t)(w * h) * 3);
    if (s == XD_OK && p->resizes)
        s = resize(p, &own, &w, &h, e);
    int64_t to[2] = { p->crops ? p->crop[0] : h, p->crops ? p->crop[1] : w };
    int64_t top = middle(h, to[0]), left = middle(w, to[1]);
    for (int c = 0; c < 3 && s == XD_OK; c++)
        for (int64_t i = 0; i < to[0] * to[1]; i++) {
            int64_t y = i / to[1] + top, x = i % to[1] + left;
            int     in = y >= 0 && y < h && x >= 0 && x < w;
            *out++ = value(p, in ? own[(y * w + x) * 3 + c] : 0, c);
        }
    free(own);
    return s;
}
