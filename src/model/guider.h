/* guider.h - reads the config of a pipeline's guider (diffusers' guiders), which contains the
 * default guidance scale of a checkpoint */
#ifndef XD_MODEL_GUIDER_H
#define XD_MODEL_GUIDER_H

#include "base/err.h"

/* Reads DIR/FOLDER/guider_config.json. *scale is the default guidance scale; 1 means that guidance
 * is off. If the config file is missing, *scale is unchanged. Accepts only guiders that use
 * classifier-free guidance in all steps. */
xd_status xd_guider_read(const char *dir, const char *folder, double *scale, xd_err *e);

#endif
