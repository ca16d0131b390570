/* frames.h - reads frames one by one from an image (PNG, JPEG, WebP, PPM), a video (MP4, QuickTime,
 * Matroska, WebM, GIF; with FFmpeg) or a directory of images. Images of a directory are read in the
 * natural order of their names (10 after 9). */
#ifndef XD_IO_FRAMES_H
#define XD_IO_FRAMES_H

#include <stdint.h>

#include "base/err.h"

typedef struct xd_frames xd_frames;

/* Opens a file or a directory of frames. Returns XD_EIO if the path cannot be read, XD_EFORMAT if
 * no frames are found, and XD_EUNSUPPORTED if the file is a video and FFmpeg is missing. */
xd_status xd_frames_open(xd_frames **f, const char *path, xd_err *e);
/* Reads the next frame of a video or directory. Sets *rgb to the frame, which consists of *h rows
 * of *w pixels of 3 bytes and is valid until the next call. After the last frame, sets *rgb to
 * NULL. Fails if the size of the frame differs from the size of the first frame. */
xd_status xd_frames_next(xd_frames *f, const uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e);
/* Returns the number of frames per second of a video file, or 0 if it is unknown or the frames are
 * images. */
double    xd_frames_rate(const xd_frames *f);
/* Returns 1 if the frames are those of a video file with sound. */
int       xd_frames_has_sound(const xd_frames *f);
/* Returns 1 if the only frame is an image. */
int       xd_frames_single(const xd_frames *f);
void      xd_frames_close(xd_frames **f);

#endif
