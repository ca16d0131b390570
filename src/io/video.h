/* video.h - video files, written atomically; the extension selects the format */
#ifndef XD_IO_VIDEO_H
#define XD_IO_VIDEO_H

#include <stdint.h>

#include "base/err.h"
#include "io/image.h"

typedef struct xd_film {        /* n frames of h rows of w pixels of 3 bytes                   */
    const uint8_t *rgb;
    int64_t  n, w, h;
    double   fps;               /* frames per second, 0.01 to 1000                             */
} xd_film;

/* Formats: .mp4 .mov .mkv (H.264), .webm (VP9), .gif, and .rgb (the bytes of `rgb` alone). H.264
 * and VP9 halve the resolution of colours: an odd side gets one more row or column, a copy of
 * the last. Texts: in a film "parameters" becomes the comment and "xdit" the description; in a
 * GIF both become the comment; .rgb has none. XD_EUNSUPPORTED if FFmpeg or its encoders are
 * missing. */
xd_status xd_video_write(const char *path, const xd_film *film, const xd_image_text *texts,
                         xd_err *e);
/* 1 if a video can be written to this name, as one file. */
int       xd_video_known(const char *path);
/* Checks that this build on this machine can write the format. Loads the libraries for it. */
xd_status xd_video_ready(const char *path, xd_err *e);

/* fps as num / den: integers, the NTSC rates (29.97 is 30000/1001), otherwise thousandths. */
void      xd_video_rate(double fps, int *num, int *den);

#endif
