/* default_model.h - finds a model and a prompt for xdit generate if the command line has none */
#ifndef XDIT_CLI_DEFAULT_MODEL_H
#define XDIT_CLI_DEFAULT_MODEL_H

#include "base/err.h"

/* If the local Hugging Face cache and ./models together have exactly one model, sets *model to its
 * malloc'ed name. XD_EINVAL: there are several models, which the message lists, or no model. */
xd_status xd_default_model(char **model, xd_err *e);
/* Returns 1 if the program can ask the user, because standard input and standard error are a
 * terminal. */
int       xd_can_ask(void);
/* Reads a prompt from the user at the terminal; *prompt is malloc'ed. XD_EINVAL: the user has typed
 * an empty prompt. */
xd_status xd_read_answer(char **prompt, xd_err *e);

#endif
