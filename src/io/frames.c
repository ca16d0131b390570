/* frames.c - reads frames from an image, from the images of a directory, or from a video */
#define _GNU_SOURCE /* for strverscmp */
#include "io/frames.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/image.h"
#include "io/movie_read.h"

struct xd_frames {
    int              folder; /* 1: the images are those of a directory */
    char           **path;   /* [n] paths of images; NULL for a video */
    int64_t          n, next;
    xd_movie_reader *movie;
    uint8_t         *rgb;
    int64_t          w, h; /* size of the first frame */
};

/* ---- kinds of files ------------------------------------------------------------------------ */

static int add_path(xd_frames *f, char *path)
{
    char **grown = path ? realloc(f->path, (size_t)(f->n + 1) * sizeof *grown) : NULL;
    if (!grown) {
        free(path);
        return 0;
    }
    f->path = grown;
    f->path[f->n++] = path;
    return 1;
}

/* Compares file names in natural order: 10 is after 9. */
static int by_name(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

static xd_status open_directory(xd_frames *f, const char *path, xd_err *e)
{
    DIR      *d = opendir(path);
    xd_status s = d ? XD_OK : xd_fail(e, XD_EIO, "cannot read %s: %s", path, strerror(errno));
    for (struct dirent *i; s == XD_OK && (i = readdir(d));)
        if (i->d_name[0] != '.' && xd_image_known(i->d_name) &&
            !add_path(f, xd_path_join(path, i->d_name)))
            s = xd_fail(e, XD_ENOMEM, "%s: no memory for the names of its files", path);
    if (d)
        closedir(d);
    if (s == XD_OK && !f->n)
        return xd_fail(e, XD_EFORMAT, "%s has no images (.png, .jpg, .webp or .ppm)", path);
    if (f->n)
        qsort(f->path, (size_t)f->n, sizeof *f->path, by_name);
    return s;
}

/* Returns 1 if the first bytes of the file are those of an image format. Returns 0 for a GIF,
 * because a GIF may have many frames. */
static int is_image(const char *path)
{
    int64_t w, h;
    xd_err  e = { 0 };
    char    begin[4] = { 0 };
    FILE   *f = fopen(path, "rb");
    int     gif = f && fread(begin, 1, 4, f) == 4 && !memcmp(begin, "GIF8", 4);
    if (f)
        fclose(f);
    return !gif && xd_image_size(path, &w, &h, &e) == XD_OK;
}

static xd_status open_file(xd_frames *f, const char *path, xd_err *e)
{
    if (!is_image(path) && !xd_image_known(path))
        return xd_movie_reader_open(&f->movie, path, e);
    return add_path(f, strdup(path)) ? XD_OK : xd_fail(e, XD_ENOMEM, "%s: no memory", path);
}

xd_status xd_frames_open(xd_frames **out, const char *path, xd_err *e)
{
    xd_frames *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f)
        return xd_fail(e, XD_ENOMEM, "%s: no memory", path);
    xd_status s = !xd_file_exists(path)
                      ? xd_fail(e, XD_EIO, "cannot read %s: %s", path, strerror(ENOENT))
                  : xd_file_is_dir(path) ? open_directory(f, path, e)
                                         : open_file(f, path, e);
    if (s != XD_OK)
        xd_frames_close(&f);
    if (f)
        f->folder = xd_file_is_dir(path);
    *out = f;
    return s;
}

double xd_frames_rate(const xd_frames *f)
{
    return f->movie ? xd_movie_reader_rate(f->movie) : 0;
}

int xd_frames_has_sound(const xd_frames *f)
{
    return f->movie && xd_movie_reader_has_sound(f->movie);
}

int xd_frames_single(const xd_frames *f)
{
    return !f->movie && !f->folder;
}

/* ---- reading ------------------------------------------------------------------------------- */

xd_status xd_frames_next(xd_frames *f, const uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e)
{
    xd_status s = XD_OK;
    *rgb = NULL;
    *w = *h = 0;
    if (f->movie) {
        s = xd_movie_reader_next(f->movie, &f->rgb, w, h, e);
    } else if (f->next < f->n) {
        free(f->rgb);
        f->rgb = NULL;
        s = xd_image_read(f->path[f->next], &f->rgb, w, h, e);
    }
    if (s != XD_OK || !*w)
        return s;
    if (f->next++ && (*w != f->w || *h != f->h))
        return xd_fail(e, XD_EFORMAT, "frame %lld is %lldx%lld pixels, the first one %lldx%lld",
                       (long long)f->next, (long long)*w, (long long)*h, (long long)f->w,
                       (long long)f->h);
    f->w = *w;
    f->h = *h;
    *rgb = f->rgb;
    return XD_OK;
}

void xd_frames_close(xd_frames **fp)
{
    xd_frames *f = *fp;
    if (!f)
        return;
    xd_movie_reader_close(&f->movie);
    for (int64_t i = 0; i < f->n; i++)
        free(f->path[i]);
    free(f->path);
    free(f->rgb);
    free(f);
    *fp = NULL;
}
