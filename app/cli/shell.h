/* shell.h - the commands that a shell would run, read from a text or a script.
 *
 * Known are quotes, comments, lines, variables, arrays and tables with their expansions,
 * arithmetic, `read <<<`, if, for, while, case, functions, eval. Nothing is run: a command that is
 * not asked for succeeds, and $(command) is kept as it is written. What is not set is nothing, as
 * in a shell. */
#ifndef XD_CLI_SHELL_H
#define XD_CLI_SHELL_H

#include <stdio.h>

#include "base/err.h"

enum { XD_SHELL_COMMANDS = 64, XD_SHELL_BYTES = 1 << 20 };

typedef struct xd_command_line {        /* one command; malloc'ed                              */
    int    n, nenv;
    char **word;
    char **env;                 /* "NAME=value": all variables that were set before it          */
} xd_command_line;

typedef struct xd_shell {       /* start with {0} and `wanted`                                 */
    int (*wanted)(int n, char **word);  /* is this command one of those that are asked for?     */
    int             n;
    xd_command_line command[XD_SHELL_COMMANDS];
    char           *unset;      /* "$A, $B": in the commands, and set by nothing; NULL: none    */
    char           *unrun;      /* "$(date)" and the like, a line each; NULL: none              */
    char           *other;      /* the first command of the text that is not asked for; or NULL */
    int             typos;      /* letters of blogs stood for those of ASCII                    */
    int             ended;      /* by `exit`                                                    */
} xd_shell;

/* XD_EINVAL with one sentence: something that is not known. No command is no error. `args` are the
 * script's: $1 and so on. */
xd_status xd_shell_read(xd_shell *s, const char *text, int nargs, char **args, xd_err *e);
/* The same of words that a shell has split already. */
xd_status xd_shell_take(xd_shell *s, int argc, char **argv, xd_err *e);
const char *xd_shell_env(const xd_command_line *c, const char *name);   /* NULL: not set       */
/* Is a part of the word what a command would have printed? */
int       xd_shell_unrun(const xd_shell *s, const char *word);
void      xd_shell_free(xd_shell *s);

/* Prints a word so that a shell reads it as one; returns its columns. `f` may be NULL. */
int xd_shell_quote(FILE *f, const char *word);

#endif
