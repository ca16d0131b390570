/* xdit_models.h - models of xDiT: those of our families, and those that are not supported here */
#ifndef XD_FROM_XDIT_XDIT_MODELS_H
#define XD_FROM_XDIT_XDIT_MODELS_H

#include "families/from_xdit.h"

const xd_xdit_model *xd_xdit_model_at(int i);   /* NULL at the end                             */

/* Find a model by its example script (with or without directories and .py), or by its name, and the
 * dimensions of its transformer. NULL: unknown. */
const xd_xdit_model *xd_xdit_by_script(const char *script);
const xd_xdit_model *xd_xdit_by_name(const char *model);
const xd_xdit_net   *xd_xdit_net_find(const char *model);
/* Returns "org/name" for a name of the runner, in any case. NULL: unknown. */
const char          *xd_xdit_repo(const char *name);

#endif
