/* prompts.h - prompts from a file, one a line */
#ifndef XD_CLI_PROMPTS_H
#define XD_CLI_PROMPTS_H

#include "cli/opt.h"

/* Adds the lines of a file to `list`; those without a word are skipped. They point into *text,
 * which is the caller's to free, also after a failure. */
xd_status xd_prompts_read(xd_opt_texts *list, const char *path, char **text, xd_err *e);

#endif
