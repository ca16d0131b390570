/* frames.h - frames of files, one after the other: of an image (PNG, JPEG, WebP, PPM), of a video
 * (MP4, QuickTime, Matroska, WebM, GIF; by FFmpeg), or of the images of a directory in the order of
 * their names, in which 10 follows 9 */
#ifndef XD_IO_FRAMES_H
#define XD_IO_FRAMES_H

#include <stdint.h>

#include "base/err.h"

typedef struct xd_frames xd_frames;

/* Opens a file or a directory. XD_EIO: it cannot be read; XD_EFORMAT: it holds no frame;
 * XD_EUNSUPPORTED: a video, and there is no FFmpeg. */
xd_status xd_frames_open(xd_frames **f, const char *path, xd_err *e);
/* The next frame: *rgb, h rows of w pixels of 3 bytes, valid until the next call; NULL: there are
 * no more. A frame of another size than the first is a failure. */
xd_status xd_frames_next(xd_frames *f, const uint8_t **rgb, int64_t *w, int64_t *h, xd_err *e);
void      xd_frames_close(xd_frames **f);

#endif
