/* output.h - inside the engine: results into files */
#ifndef XD_PIPELINE_OUTPUT_H
#define XD_PIPELINE_OUTPUT_H

#include "io/image.h"

/* One image or video by the name's format; every frame an image where that is an image's. */
xd_status xd_output_write(const char *path, const xd_image *im, const xd_image_text *texts, xd_err *e);

#endif
