/* xdit_models.h - the models that xDiT runs: those of the families here, and those that are not
 * built */
#ifndef XD_CLI_XDIT_MODELS_H
#define XD_CLI_XDIT_MODELS_H

#include "families/from_xdit.h"

const xd_xdit_model *xd_xdit_model_at(int i);   /* NULL at the end                             */

/* NULL: not known. `script` may have directories and .py. */
const xd_xdit_model *xd_xdit_by_script(const char *script);
const xd_xdit_model *xd_xdit_by_name(const char *model);
const xd_xdit_net   *xd_xdit_net_find(const char *model);
/* "org/name" of a name of the runner's, which takes it in small letters too. NULL: it has none
 * such. */
const char          *xd_xdit_repo(const char *name);

#endif
