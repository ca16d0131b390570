/* video.c - writes video files. The file name's extension selects the format. Files of raw frames
 * (.rgb) are written by this file. */
#include "io/video.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "io/vcodec.h"

static xd_status raw_write(const xd_vcodec *c, xd_out *o, const xd_film *film,
                           const xd_image_text *texts, xd_err *e)
{
    (void)c;
    (void)texts;
    (void)e;
    fwrite(film->rgb, 3, (size_t)(film->n * film->w * film->h), o->f);
    return XD_OK;
}

static const xd_vcodec raw = {
    .name = "raw RGB", .tail = ".rgb", .max_side = 999999999, .write = raw_write
};
static const xd_vcodec *const codecs[] = { &xd_vcodec_mp4,  &xd_vcodec_mov, &xd_vcodec_mkv,
                                           &xd_vcodec_webm, &xd_vcodec_gif, &raw };
enum { NCODECS = sizeof codecs / sizeof *codecs };

static const xd_vcodec *by_tail(const char *path)
{
    const char *dot = strrchr(path, '.');
    for (int i = 0; dot && i < NCODECS; i++)
        if (!strcasecmp(dot, codecs[i]->tail))
            return codecs[i];
    return NULL;
}

int xd_video_known(const char *path)
{
    return by_tail(path) != NULL;
}

void xd_video_rate(double fps, int *num, int *den)
{
    double whole = round(fps), ntsc = round(fps * 1.001);
    *den = 1;
    if (whole > 0 && fabs(fps - whole) < 1e-6)
        *num = (int)whole;
    else if (ntsc > 0 && fabs(fps * 1.001 - ntsc) < 1e-3)
        *num = (int)ntsc * 1000, *den = 1001;
    else
        *num = (int)round(fps * 1000), *den = 1000;
}

xd_status xd_video_ready(const char *path, xd_err *e)
{
    const xd_vcodec *c = by_tail(path);
    if (!c)
        return xd_fail(e, XD_EINVAL,
                       "%s has no video extension; use .mp4, .mov, .mkv, .webm, "
                       ".gif or .rgb",
                       path);
    if (!c->write)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "this build has no FFmpeg and cannot write %s; use .gif, .rgb, or a .png "
                       "for each frame",
                       path);
    return c->ready ? c->ready(c, e) : XD_OK;
}

static xd_status check_film(const xd_vcodec *c, const char *path, const xd_film *f, xd_err *e)
{
    if (f->n < 1 || f->w < 1 || f->h < 1 || f->w > c->max_side || f->h > c->max_side)
        return xd_fail(e, XD_EINVAL,
                       "%s: %s videos have sides of 1 to %lld pixels and a frame or "
                       "more, not %lld frames of %lldx%lld",
                       path, c->name, (long long)c->max_side, (long long)f->n, (long long)f->w,
                       (long long)f->h);
    if (!(f->fps >= 0.01 && f->fps <= 1000))
        return xd_fail(e, XD_EINVAL, "%s: fps is %g; it must be from 0.01 to 1000", path, f->fps);
    return XD_OK;
}

xd_status xd_video_write(const char *path, const xd_film *film, const xd_image_text *texts,
                         xd_err *e)
{
    static const xd_image_text none = { NULL, NULL };
    xd_out                     o;
    xd_status                  st = xd_video_ready(path, e);
    if (st != XD_OK)
        return st;
    const xd_vcodec *c = by_tail(path);
    st = check_film(c, path, film, e);
    if (st == XD_OK)
        st = xd_out_open(&o, path, e);
    if (st != XD_OK)
        return st;
    st = c->write(c, &o, film, texts ? texts : &none, e);
    if (st == XD_OK)
        return xd_out_commit(&o, e);
    xd_out_abort(&o);
    return st;
}
