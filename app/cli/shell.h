/* shell.h - interprets a shell script without running programs, to find the commands that it would
 * run.
 *
 * Supported: quotes, comments, variables, arrays, associative arrays and their expansions,
 * arithmetic, `read <<<`, if, for, while, case, functions, eval. Other commands are skipped and
 * count as successful; $(command) is kept as text. Unset variables are empty, as in a shell. */
#ifndef XD_CLI_SHELL_H
#define XD_CLI_SHELL_H

#include <stdio.h>

#include "base/err.h"

enum { XD_SHELL_COMMANDS = 64, XD_SHELL_BYTES = 1 << 20 };

typedef struct xd_command_line {        /* one command; malloc'ed                              */
    int    n, nenv;
    char **word;
    char **env;                 /* "NAME=value": all variables set before the command           */
} xd_command_line;

typedef struct xd_shell {       /* initialize with {0}, then set `wanted`                      */
    int (*wanted)(int n, char **word);  /* returns 1 for commands to collect                    */
    int             n;
    xd_command_line command[XD_SHELL_COMMANDS];
    char           *unset;      /* "$A, $B": unset variables in the commands; NULL: none        */
    char           *substitutions;      /* "$(date)" and others, one per line; NULL: none       */
    char           *other;      /* the first command that is not wanted; NULL: none             */
    int             typos;      /* 1: typographic characters were replaced                      */
    int             exited;     /* 1: the script called `exit`                                  */
} xd_shell;

/* Interprets a script and collects its wanted commands; finding none is no error. args: $1 and so
 * on. XD_EINVAL: unsupported syntax. */
xd_status xd_shell_read(xd_shell *s, const char *text, int nargs, char **args, xd_err *e);
/* The same for words that the shell has already split. */
xd_status xd_shell_read_words(xd_shell *s, int argc, char **argv, xd_err *e);
const char *xd_shell_env(const xd_command_line *c, const char *name);   /* NULL: unset         */
/* Returns 1 if the word contains the text of a command substitution. */
int       xd_shell_has_substitution(const xd_shell *s, const char *word);
void      xd_shell_free(xd_shell *s);

/* Prints a word, quoted for a shell; returns its number of columns. f: NULL to only count. */
int xd_shell_quote(FILE *f, const char *word);

#endif
