/* video.h - videos on disk, written atomically; the format follows the name */
#ifndef XD_IO_VIDEO_H
#define XD_IO_VIDEO_H

#include <stdint.h>

#include "base/err.h"
#include "io/image.h"

typedef struct xd_film {        /* n frames of h rows of w pixels of 3 bytes                   */
    const uint8_t *rgb;
    int64_t  n, w, h;
    double   fps;               /* frames a second, 0.01 to 1000                               */
} xd_film;

/* .mp4 .mov .mkv (H.264), .webm (VP9), .gif, and .rgb, which is the bytes of `rgb` alone. Sides that
 * are odd get one more row or column, a copy of the last, where H.264 and VP9 halve colours. Texts:
 * "parameters" becomes the comment and "xdit" the description of a film, both the comment of a GIF;
 * .rgb has none. XD_EUNSUPPORTED where FFmpeg or its encoders are not there. */
xd_status xd_video_write(const char *path, const xd_film *film, const xd_image_text *texts, xd_err *e);
/* 1: a video can be written to a name like this, as one file. */
int       xd_video_known(const char *path);
/* Can this build on this machine write that format? Loads the libraries for it. */
xd_status xd_video_ready(const char *path, xd_err *e);

/* fps as num / den: whole numbers, those of NTSC (29.97 is 30000/1001), else thousandths. */
void      xd_video_rate(double fps, int *num, int *den);

#endif
