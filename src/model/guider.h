/* guider.h - reads the config of a pipeline's guider (diffusers' guiders), which has the default
 * guidance scale of a checkpoint */
#ifndef XD_MODEL_GUIDER_H
#define XD_MODEL_GUIDER_H

#include "base/err.h"

/* Reads DIR/FOLDER/guider_config.json. *scale is the default guidance scale; 1 means that guidance
 * is off. If the file is missing, *scale is unchanged. Refuses guiders that are not classifier-free
 * guidance in all steps. */
xd_status xd_guider_read(const char *dir, const char *folder, double *scale, xd_err *e);

#endif
