/* video.h - writes video files atomically; the file name extension selects the format. */
#ifndef XD_IO_VIDEO_H
#define XD_IO_VIDEO_H

#include <stdint.h>

#include "base/err.h"
#include "io/image.h"
#include "io/wav.h"

typedef struct xd_film { /* the frames of a video: n frames of h rows of w pixels of 3
                                   bytes */
    const uint8_t  *rgb;
    int64_t         n, w, h;
    double          fps;   /* number of frames per second, 0.01 to 1000 */
    const xd_sound *sound; /* sound of the video, or NULL */
} xd_film;

/* Writes the frames and the sound of a film to a video file. Formats: .mp4 .mov .mkv (H.264), .webm
 * (VP9), .gif, and .rgb (raw bytes of `rgb`). H.264 and VP9 halve the resolution of colours
 * (4:2:0), so a frame with an odd height or width is padded by a copy of the last row or column.
 * Sound is coded as AAC, in .webm as Opus; .gif and .rgb files have no sound. The text "parameters"
 * becomes the comment of the video file, and the text "xdit" its description. In a GIF, both texts
 * become the comment; .rgb files contain no texts. Returns XD_EUNSUPPORTED if FFmpeg or its
 * encoders are missing. */
xd_status xd_video_write(const char *path, const xd_film *film, const xd_image_text *texts,
                         xd_err *e);
/* Returns 1 if the file name extension of `path` belongs to a video format that can be written. */
int       xd_video_known(const char *path);
/* Loads the libraries for the video format of the file name `path`, and checks that this format can
 * be written. */
xd_status xd_video_ready(const char *path, xd_err *e);

/* Converts frames per second to a fraction *num / *den: an integer, an NTSC rate (29.97 becomes
 * 30000/1001), or a multiple of 1/1000. */
void xd_video_rate(double fps, int *num, int *den);

#endif
