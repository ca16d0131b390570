/* shell.h - the words of a command as a shell would read them from a text.
 *
 * Known are quotes, backslashes, comments, lines, variables that the text itself sets, assignments
 * before a command, and "+ " in front of lines that `set -x` printed. Loops and the like are not. */
#ifndef XD_CLI_SHELL_H
#define XD_CLI_SHELL_H

#include <stdio.h>

#include "base/err.h"

typedef struct xd_shell {       /* start with {0}                                              */
    int    n, nenv;
    char **word;                /* of the one command; malloc'ed, like what follows            */
    char **env;                 /* "NAME=value"                                                */
} xd_shell;

/* XD_EINVAL with one sentence: no command, two of them, something that is not known. */
xd_status xd_shell_read(xd_shell *s, const char *text, xd_err *e);
/* The same of words that a shell has split already. */
xd_status xd_shell_take(xd_shell *s, int argc, char **argv, xd_err *e);
const char *xd_shell_env(const xd_shell *s, const char *name);  /* NULL: not set               */
void      xd_shell_free(xd_shell *s);

/* Prints a word so that a shell reads it as one; returns its columns. `f` may be NULL. */
int xd_shell_quote(FILE *f, const char *word);

#endif
