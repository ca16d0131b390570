/* prompts.h - prompts from a file, one a line */
#ifndef XD_CLI_PROMPTS_H
#define XD_CLI_PROMPTS_H

#include "cli/opt.h"

/* Adds the lines of a file, of a pipe or, "-", of standard input to `list`; those without a word
 * are skipped. They point into *text, which is the caller's to free, also after a failure. */
xd_status xd_prompts_read(xd_opt_texts *list, const char *path, char **text, xd_err *e);
/* Can what `path` names be read only once? */
int xd_prompts_once(const char *path);
/* Puts prompts from list->v[first] on into a file without a name, and into `path` how other
 * processes of this host open it while *fd, the caller's to close, is open (-1: there is none). */
xd_status xd_prompts_hold(const xd_opt_texts *list, int first, char path[64], int *fd, xd_err *e);

#endif
