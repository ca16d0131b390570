/* movie_read.h - used only in src/io: decodes the frames of a video file with FFmpeg. */
#ifndef XD_IO_MOVIE_READ_H
#define XD_IO_MOVIE_READ_H

#include <stdint.h>

#include "base/err.h"

typedef struct xd_movie_reader xd_movie_reader;

/* Opens a video file for decoding. Fails with XD_EFORMAT if the file is not a video, and with
 * XD_EUNSUPPORTED if FFmpeg is missing. */
xd_status xd_movie_reader_open(xd_movie_reader **m, const char *path, xd_err *e);
/* Reads the next frame, *h rows of *w pixels of 3 bytes, into the buffer *rgb, which is allocated
 * or enlarged if necessary. Sets *w to 0 after the last frame. */
xd_status xd_movie_reader_next(xd_movie_reader *m, uint8_t **rgb, int64_t *w, int64_t *h,
                               xd_err *e);
/* Returns the average number of frames per second, or 0 if it is unknown. */
double    xd_movie_reader_rate(const xd_movie_reader *m);
/* Returns 1 if the file has sound. */
int       xd_movie_reader_has_sound(const xd_movie_reader *m);
void      xd_movie_reader_close(xd_movie_reader **m);

#endif
