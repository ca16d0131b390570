/* output.c - makes the names of output files, and writes images and videos to these files */
#include "pipeline/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "io/video.h"
#include "io/wav.h"
#include "xdit/tools.h"

enum { MAXNAME = 4096 };

/* Finds the number conversion (%d or %0Nd) in a file name, and sets *at to its position, *len to
 * its length and *width to N. Returns 1 if there is one conversion, 0 if there is none, and -1 if
 * the name has another % or several conversions. */
static int find_number(const char *path, size_t *at, size_t *len, int *width)
{
    int found = 0;
    for (size_t i = 0; path[i]; i++) {
        if (path[i] != '%')
            continue;
        size_t k = i + 1;
        int    w = 0;
        while (path[k] >= '0' && path[k] <= '9' && w < 100)
            w = w * 10 + (path[k++] - '0');
        if (path[k] != 'd' || found || w > 18)
            return -1;
        *at = i, *len = k + 1 - i, *width = w;
        found = 1;
        i = k;
    }
    return found;
}

/* Returns the length of a path without its extension, which begins at the last dot after the last
 * slash. */
static size_t stem_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    return dot && dot != path && dot[-1] != '/' ? (size_t)(dot - path) : strlen(path);
}

/* Returns 1 if a video is written as one image file per frame, because the file name is that of an
 * image. */
static int in_frames(const char *path, int64_t frames)
{
    return frames > 1 && xd_image_known(path);
}

xd_status xd_output_name(const char *path, int i, int images, char *name, size_t size, xd_err *e)
{
    size_t at = 0, len = 0;
    int    width = 0, n, has = find_number(path, &at, &len, &width);
    if (has < 0)
        return xd_fail(e, XD_EINVAL,
                       "the output name %s is invalid: it may have one %%d (or %%04d) and no other "
                       "%%",
                       path);
    if (has)
        n = snprintf(name, size, "%.*s%0*d%s", (int)at, path, width, i + 1, path + at + len);
    else if (images > 1)
        n = snprintf(name, size, "%.*s_%04d%s", (int)stem_of(path), path, i + 1,
                     path + stem_of(path));
    else
        n = snprintf(name, size, "%s", path);
    if (n < 0 || (size_t)n >= size)
        return xd_fail(e, XD_EINVAL, "the output name is longer than %zu bytes", size - 1);
    return XD_OK;
}

/* Makes a pattern for the names of the files with the frames of video i. In the pattern, %d or %04d
 * stands for the number of the frame. If there are several videos, the number of the video precedes
 * it. */
static int frames_name(const char *path, int i, int videos, char *name, size_t size)
{
    size_t      at = 0, len = 0;
    int         width = 0, has = find_number(path, &at, &len, &width);
    const char *link = "";
    char        number[32] = "";
    if (!has)
        at = stem_of(path), link = "_";
    if (videos > 1)
        snprintf(number, sizeof number, "%s%04d%s", link, i + 1, *link ? "" : "_");
    return snprintf(name, size, "%.*s%s%s%.*s%s", (int)at, path, number, link, has ? (int)len : 4,
                    has ? path + at : "%04d", path + at + len);
}

xd_status xd_output_video_name(const char *path, int i, int videos, int64_t frames, char *name,
                               size_t size, xd_err *e)
{
    size_t at, len;
    int    width, n;
    if (!in_frames(path, frames) || find_number(path, &at, &len, &width) < 0)
        return xd_output_name(path, i, videos, name, size, e);
    n = frames_name(path, i, videos, name, size);
    if (n < 0 || (size_t)n >= size)
        return xd_fail(e, XD_EINVAL, "the output name is longer than %zu bytes", size - 1);
    return XD_OK;
}

int64_t xd_output_files(const char *path, int64_t frames)
{
    return in_frames(path, frames) ? frames : 1;
}

static int is_latents(const char *path)
{
    return strcmp(path + stem_of(path), ".safetensors") == 0;
}

xd_status xd_output_check(const char *path, int images, xd_err *e)
{
    char name[MAXNAME];
    if (!path || !*path)
        return xd_fail(e, XD_EINVAL, "the output name is empty");
    xd_status s = xd_output_name(path, 0, images, name, sizeof name, e);
    if (s != XD_OK)
        return s;
    if (!is_latents(name) && !xd_image_known(name) && !xd_video_known(name) && !xd_wav_known(name))
        return xd_fail(e, XD_EINVAL,
                       "the output name %s must end in .png, .jpg, .jpeg, .webp, .ppm "
                       "or .safetensors (latents); for a video also in .mp4, .mov, "
                       ".mkv, .webm, .gif or .rgb; for audio in .wav",
                       path);
    if (xd_video_known(name) && (s = xd_video_ready(name, e)) != XD_OK)
        return s;
    return xd_file_writable(name, e);
}

xd_status xd_output_check_video(const char *path, int video, xd_err *e)
{
    if (video || !xd_video_known(path))
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "the output name %s is for a video, but this model generates images: it must "
                   "end in .png, .jpg, .jpeg, .webp, .ppm or .safetensors (latents)",
                   path);
}

xd_status xd_output_check_sound(const char *path, int sound, xd_err *e)
{
    if (sound || !xd_wav_known(path))
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "the output name %s is for audio, but this model generates none, or none with "
                   "no_audio: it must end in .png, .mp4, .gif or .safetensors (latents)",
                   path);
}

const char *xd_output_default(int video)
{
    return !video                                        ? "output.png"
           : xd_video_ready("output.mp4", NULL) == XD_OK ? "output.mp4"
                                                         : "output.gif";
}

/* Returns 1 if a pixel of a frame is not opaque. */
static int is_transparent(const uint8_t *rgba, int64_t n)
{
    int all = 255;
    for (int64_t i = 0; i < n; i++)
        all &= rgba[4 * i + 3];
    return all != 255;
}

/* Writes frame i of an image to an image file. */
static xd_status write_image(const char *path, const xd_image *im, int64_t i, int quality,
                             const xd_image_text *texts, xd_err *e)
{
    int64_t        n = im->height * im->width;
    const uint8_t *data = im->data + i * n * im->channels;
    if (im->channels == 4 && !xd_image_has_alpha(path) && is_transparent(data, n))
        xd_log(XD_LOG_WARN,
               "%s: this format has no alpha, so transparent pixels are shown on white; .png and "
               ".webp keep alpha",
               path);
    return xd_image_write_picture(path, &(xd_picture){ data, im->width, im->height, im->channels },
                                  quality, texts, e);
}

static xd_status write_frames(const char *path, const xd_image *im, int quality,
                              const xd_image_text *texts, xd_err *e)
{
    char      name[MAXNAME];
    xd_status st = XD_OK;
    for (int64_t i = 0; i < im->frames && st == XD_OK; i++) {
        st = xd_output_name(path, (int)i, (int)im->frames, name, sizeof name, e);
        if (st == XD_OK)
            st = write_image(name, im, i, quality, texts, e);
    }
    return st;
}

xd_status xd_output_write(const char *path, const xd_image *im, int quality,
                          const xd_image_text *texts, xd_err *e)
{
    xd_film   film = { im->data, im->frames, im->width, im->height, im->fps, NULL };
    xd_status st = xd_output_check_video(path, im->fps > 0, e);
    if (st != XD_OK)
        return st;
    if (xd_video_known(path))
        return xd_video_write(path, &film, texts, e);
    return in_frames(path, im->frames) ? write_frames(path, im, quality, texts, e)
                                       : write_image(path, im, 0, quality, texts, e);
}

xd_status xd_output_write_sound(const char *path, const xd_image *im, const xd_sound *sound,
                                const xd_image_text *texts, xd_err *e)
{
    xd_film film = { im->data, im->frames, im->width, im->height, im->fps, sound };
    return xd_wav_known(path) ? xd_wav_write(path, sound, e)
                              : xd_video_write(path, &film, texts, e);
}

void xd_output_sweep(void)
{
    xd_out_sweep();
}
