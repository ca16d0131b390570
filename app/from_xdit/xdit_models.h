/* xdit_models.h - finds models of xDiT, both those that xdit supports and those that it does not */
#ifndef XD_FROM_XDIT_XDIT_MODELS_H
#define XD_FROM_XDIT_XDIT_MODELS_H

#include "families/from_xdit.h"

const xd_xdit_model *xd_xdit_model_at(int i);   /* returns model i; NULL at the end            */

/* The first two functions find a model of xDiT: by its example script (with or without directories
 * and .py), or by its name. The third function finds the dimensions of a model's transformer by the
 * model's name. NULL: unknown. */
const xd_xdit_model *xd_xdit_by_script(const char *script);
const xd_xdit_model *xd_xdit_by_name(const char *model);
const xd_xdit_net   *xd_xdit_net_find(const char *model);
/* Returns the Hugging Face name "org/name" for a model's name in xDiT's runner, ignoring case.
 * NULL: unknown. */
const char          *xd_xdit_repo(const char *name);

#endif
