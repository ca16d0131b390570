/* default_model.h - what xdit generate takes and asks for where it is not told */
#ifndef XDIT_CLI_DEFAULT_MODEL_H
#define XDIT_CLI_DEFAULT_MODEL_H

#include "base/err.h"

/* The model of the local Hugging Face cache, if there is one alone; malloc'ed. XD_EINVAL names
 * those that are there, or says how to get one. */
xd_status xd_default_model(char **model, xd_err *e);
/* Can a question be asked: are standard input and the error output a terminal? */
int       xd_can_ask(void);
/* Asks for a prompt; malloc'ed. XD_EINVAL: there was no answer. */
xd_status xd_read_answer(char **prompt, xd_err *e);

#endif
