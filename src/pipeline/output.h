/* output.h - writes generated images and videos to files. */
#ifndef XD_PIPELINE_OUTPUT_H
#define XD_PIPELINE_OUTPUT_H

#include "io/image.h"
#include "io/wav.h"
#include "xdit/xdit.h"

/* Writes one image or video in the format that the extension of the file name selects. If the
 * extension is that of an image format, each frame of a video becomes a file. `quality` is the
 * quality of JPEG and WebP files, 0 to 100; a negative value selects the default quality. */
xd_status xd_output_write(const char *path, const xd_image *im, int quality,
                          const xd_image_text *texts, xd_err *e);
/* Writes a video with its sound, or only the sound to a .wav file. */
xd_status xd_output_write_sound(const char *path, const xd_image *im, const xd_sound *sound,
                                const xd_image_text *texts, xd_err *e);

#endif
