/* default_model.h - model and prompt of xdit generate when they are not given */
#ifndef XDIT_CLI_DEFAULT_MODEL_H
#define XDIT_CLI_DEFAULT_MODEL_H

#include "base/err.h"

/* Returns in *model the only model of the local Hugging Face cache and of ./models; malloc'ed.
 * XD_EINVAL: there are several, which the message lists, or none. */
xd_status xd_default_model(char **model, xd_err *e);
/* Returns 1 if standard input and standard error are a terminal. */
int       xd_can_ask(void);
/* Asks for a prompt on the terminal; malloc'ed. XD_EINVAL: the answer is empty. */
xd_status xd_read_answer(char **prompt, xd_err *e);

#endif
