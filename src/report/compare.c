/* compare.c - computes the difference of two images or videos, in memory or in files */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"
#include "base/record.h"
#include "io/frames.h"
#include "io/image.h"
#include "report/image_difference.h"
#include "xdit/tools.h"

void xd_comparison_init_size(xd_comparison *c, size_t size)
{
    xd_record_init(c, size);
}

void xd_compare_args_init_size(xd_compare_args *a, size_t size)
{
    xd_record_init(a, size);
}

static xd_comparison conclude(const xd_difference *d, int64_t w, int64_t h)
{
    return (xd_comparison){ .size = sizeof(xd_comparison),
                            .frames = d->frames,
                            .width = w,
                            .height = h,
                            .psnr = xd_difference_psnr(d),
                            .ssim = d->ssim / (double)d->frames,
                            .mean = d->absolute / (double)d->levels,
                            .most = d->most,
                            .worst = d->worst };
}

/* ---- images in memory ---------------------------------------------------------------------- */

static int is_plain(const xd_image *i)
{
    return i->data && (i->channels == 3 || i->channels == 4) && i->frames >= 1 && i->width >= 1 &&
           i->height >= 1 && (!i->stride || i->stride == i->width * i->channels);
}

/* Returns frame t as RGB; NULL: no memory. Frames with alpha are shown on white, in memory that is
 * malloc'ed and stored in *own. */
static const uint8_t *frame_of(const xd_image *i, int64_t t, uint8_t **own)
{
    int64_t        n = i->width * i->height;
    const uint8_t *from = i->data + t * n * i->channels;
    return i->channels == 4 ? (*own = xd_image_on_white(from, n)) : from;
}

static xd_status add_frames(xd_difference *d, const xd_image v[2], int64_t t, xd_err *e)
{
    uint8_t       *own[2] = { NULL, NULL };
    const uint8_t *a = frame_of(&v[0], t, &own[0]), *b = frame_of(&v[1], t, &own[1]);
    xd_status      s = a && b ? xd_difference_add(d, a, b, v[0].width, v[0].height, e)
                              : xd_fail(e, XD_ENOMEM, "no memory to compare images");
    free(own[0]);
    free(own[1]);
    return s;
}

xd_status xd_compare_images(xd_comparison *c, const xd_image *a, const xd_image *b, xd_err *e)
{
    xd_difference d = { 0 };
    xd_comparison own;
    xd_image      v[2];
    xd_comparison_init(&own);
    xd_status s = xd_record_read(&own, sizeof own, c, "xd_comparison", e);
    for (int i = 0; s == XD_OK && i < 2; i++) {
        xd_image_init(&v[i]);
        s = xd_record_read(&v[i], sizeof v[i], i ? b : a, "xd_image", e);
    }
    if (s != XD_OK)
        return s;
    if (!is_plain(&v[0]) || !is_plain(&v[1]))
        return xd_fail(e, XD_EINVAL, "images must be RGB or RGBA without gaps between rows");
    if (v[0].width != v[1].width || v[0].height != v[1].height || v[0].frames != v[1].frames)
        return xd_fail(e, XD_EINVAL,
                       "cannot compare %lld x %lldx%lld and %lld x %lldx%lld pixels: "
                       "numbers of frames and sizes must be equal",
                       (long long)v[0].frames, (long long)v[0].width, (long long)v[0].height,
                       (long long)v[1].frames, (long long)v[1].width, (long long)v[1].height);
    for (int64_t i = 0; s == XD_OK && i < v[0].frames; i++)
        s = add_frames(&d, v, i, e);
    if (s != XD_OK)
        return s;
    own = conclude(&d, v[0].width, v[0].height);
    return xd_record_write(c, &own, sizeof own, "xd_comparison", e);
}

/* ---- files --------------------------------------------------------------------------------- */

typedef struct pair { /* two files to compare, which are read frame by frame */
    const char    *path[2];
    xd_frames     *file[2];
    const uint8_t *rgb[2]; /* current frame of each of the two files */
    int64_t        w, h;
    xd_difference  d;
    uint8_t       *map; /* difference image of the worst frame so far, or NULL */
} pair;

/* Reads the next frame of both files. Sets *more to 1 if a frame was read from both files, and to 0
 * at the end of the files. */
static xd_status next_frames(pair *p, int *more, xd_err *e)
{
    int64_t w[2], h[2];
    for (int i = 0; i < 2; i++) {
        xd_err why = { 0 };
        if (xd_frames_next(p->file[i], &p->rgb[i], &w[i], &h[i], &why) == XD_OK)
            continue;
        int named = strstr(why.msg, p->path[i]) != NULL;
        return xd_fail(e, why.code, "%s%s%s", named ? "" : p->path[i], named ? "" : ": ", why.msg);
    }
    *more = p->rgb[0] && p->rgb[1];
    if (!p->rgb[0] != !p->rgb[1])
        return xd_fail(e, XD_EINVAL, "cannot compare: %s has %lld frame%s, %s has more",
                       p->path[p->rgb[0] != NULL], (long long)p->d.frames,
                       p->d.frames == 1 ? "" : "s", p->path[p->rgb[0] == NULL]);
    if (*more && (w[0] != w[1] || h[0] != h[1]))
        return xd_fail(e, XD_EINVAL,
                       "%s has %lldx%lld pixels, %s %lldx%lld: image sizes must be "
                       "equal",
                       p->path[0], (long long)w[0], (long long)h[0], p->path[1], (long long)w[1],
                       (long long)h[1]);
    if (*more)
        p->w = w[0], p->h = h[0];
    return XD_OK;
}

static xd_status compare_frames(pair *p, int maps, xd_err *e)
{
    for (;;) {
        int       more;
        xd_status s = next_frames(p, &more, e);
        if (s != XD_OK || !more)
            return s;
        if ((s = xd_difference_add(&p->d, p->rgb[0], p->rgb[1], p->w, p->h, e)) != XD_OK)
            return s;
        if (maps && !p->map && !(p->map = malloc((size_t)(p->w * p->h) * 3)))
            return xd_fail(e, XD_ENOMEM, "no memory for a difference image");
        if (maps && p->d.worst == p->d.frames - 1)
            xd_difference_map(p->rgb[0], p->rgb[1], p->w, p->h, p->map);
    }
}

static void print_json(const xd_compare_args *a, const xd_comparison *c)
{
    char psnr[32] = "null", line[320];
    if (isfinite(c->psnr))
        snprintf(psnr, sizeof psnr, "%.9g", c->psnr);
    snprintf(line, sizeof line,
             "{\"frames\": %" PRId64 ", \"width\": %" PRId64 ", \"height\": "
             "%" PRId64 ", \"equal\": %s, \"psnr\": %s, \"ssim\": %.8g, \"mean\": %.8g, "
             "\"largest\": %" PRId64 ", \"worst_frame\": %" PRId64 "}",
             c->frames, c->width, c->height, c->most ? "false" : "true", psnr, c->ssim, c->mean,
             c->most, c->worst);
    a->line(a->cookie, line);
}

static void print_text(const xd_compare_args *a, const xd_comparison *c)
{
    char line[160];
    if (c->frames > 1)
        snprintf(line, sizeof line, "%-9s%" PRId64 " of %" PRId64 "x%" PRId64, "frames", c->frames,
                 c->width, c->height);
    else
        snprintf(line, sizeof line, "%-9s%" PRId64 "x%" PRId64, "pixels", c->width, c->height);
    a->line(a->cookie, line);
    if (isfinite(c->psnr))
        snprintf(line, sizeof line, "%-9s%.2f dB", "PSNR", c->psnr);
    else
        snprintf(line, sizeof line, "%-9sinfinite: all levels are equal", "PSNR");
    a->line(a->cookie, line);
    snprintf(line, sizeof line, "%-9s%.5f", "SSIM", c->ssim);
    a->line(a->cookie, line);
    snprintf(line, sizeof line, "%-9s%.4g of 255 levels", "mean", c->mean);
    a->line(a->cookie, line);
    int n = snprintf(line, sizeof line, "%-9s%" PRId64, "largest", c->most);
    if (c->frames > 1 && c->most)
        snprintf(line + n, sizeof line - (size_t)n, ", and frame %" PRId64 " differs most",
                 c->worst + 1);
    a->line(a->cookie, line);
}

static xd_status compare_files(const xd_compare_args *a, xd_comparison *c, xd_err *e)
{
    pair      p = { .path = { a->a, a->b } };
    xd_status s = XD_OK;
    for (int i = 0; s == XD_OK && i < 2; i++)
        s = xd_frames_open(&p.file[i], p.path[i], e);
    if (s == XD_OK)
        s = compare_frames(&p, a->difference != NULL, e);
    if (s == XD_OK && !p.d.frames)
        s = xd_fail(e, XD_EFORMAT, "%s has no frames", a->a);
    if (s == XD_OK && a->difference)
        s = xd_image_write(a->difference, p.map, p.w, p.h, NULL, e);
    if (s == XD_OK)
        *c = conclude(&p.d, p.w, p.h);
    free(p.map);
    xd_frames_close(&p.file[0]);
    xd_frames_close(&p.file[1]);
    return s;
}

xd_status xd_compare_files(const xd_compare_args *args, xd_comparison *out, xd_err *e)
{
    xd_compare_args a;
    xd_comparison   c;
    xd_compare_args_init(&a);
    xd_comparison_init(&c);
    xd_status s = xd_record_read(&a, sizeof a, args, "xd_compare_args", e);
    if (s == XD_OK && out)
        s = xd_record_read(&c, sizeof c, out, "xd_comparison", e);
    if (s != XD_OK)
        return s;
    if (!a.a || !a.b)
        return xd_fail(e, XD_EINVAL, "comparing needs two images: set a and b");
    if (a.difference && !xd_image_known(a.difference))
        return xd_fail(e, XD_EINVAL, "%s: the difference image must be a .png, .jpg, .webp or .ppm",
                       a.difference);
    int threads = xd_par_threads();
    xd_par_set(a.threads);
    s = compare_files(&a, &c, e);
    xd_par_set(threads);
    if (s != XD_OK)
        return s;
    if (a.line && a.json)
        print_json(&a, &c);
    else if (a.line)
        print_text(&a, &c);
    return out ? xd_record_write(out, &c, sizeof c, "xd_comparison", e) : XD_OK;
}
