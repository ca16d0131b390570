/* xdit_models.h - finds models of xDiT, including models that xdit does not support */
#ifndef XD_FROM_XDIT_XDIT_MODELS_H
#define XD_FROM_XDIT_XDIT_MODELS_H

#include "families/from_xdit.h"

/* returns entry i of the list of models; NULL after the last entry */
const xd_xdit_model *xd_xdit_model_at(int i);
/* returns entry i of the list of model names in xDiT's runner; NULL after the last entry */
const xd_xdit_name  *xd_xdit_name_at(int i);

/* xd_xdit_by_script finds a model of xDiT by the name of its example script, with or without
 * directories and .py. xd_xdit_by_name finds a model by the model's name. xd_xdit_net_find finds
 * the dimensions of a model's transformer by the model's name. NULL: unknown. */
const xd_xdit_model *xd_xdit_by_script(const char *script);
const xd_xdit_model *xd_xdit_by_name(const char *model);
const xd_xdit_net   *xd_xdit_net_find(const char *model);
/* Returns the Hugging Face name "org/name" of the model that xDiT's runner calls `name`; upper and
 * lower case are equivalent. NULL: unknown. */
const char          *xd_xdit_repo(const char *name);

#endif
