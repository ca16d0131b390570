/* vcodec.h - used only in src/io: declares the interface that each video format implements. */
#ifndef XD_IO_VCODEC_H
#define XD_IO_VCODEC_H

#include "base/file.h"
#include "io/video.h"

typedef struct xd_vcodec {
    const char *name;     /* name of the format, "MP4" */
    const char *tail;     /* file name extension, ".mp4" */
    int64_t     max_side; /* maximum number of pixels per side */
    /* Writes the frames of a film as a video to an open, empty file. `write` is NULL if this build
     * does not support the format. */
    xd_status   (*write)(const struct xd_vcodec *c, xd_out *o, const xd_film *film,
                         const xd_image_text *texts, xd_err *e);
    /* Checks that the libraries for this video format can be loaded; NULL if the format needs no
     * library. */
    xd_status   (*ready)(const struct xd_vcodec *c, xd_err *e);
} xd_vcodec;

extern const xd_vcodec xd_vcodec_mp4, xd_vcodec_mov, xd_vcodec_mkv, xd_vcodec_webm, xd_vcodec_gif;

#endif
