/* script.h - splits a text into commands as a shell does, to find the commands that start xDiT.
 *
 * No command is run. Supported are quotes, comments, lines joined with a backslash, redirections,
 * NAME=VALUE lines, $NAME and ${NAME}. Unset variables are empty. The text of other expansions is
 * kept unchanged. A variable that other commands of the script set is kept as $NAME. */
#ifndef XD_FROM_XDIT_SCRIPT_H
#define XD_FROM_XDIT_SCRIPT_H

#include "base/err.h"

enum { XD_SCRIPT_BYTES = 1 << 20 };
#define XD_SCRIPT_CURE "put echo before torchrun, run the script, and paste the line that it prints"

typedef struct xd_words { int n; char **v; } xd_words;

typedef struct xd_command_line {
    xd_words words;
    char    *devices;           /* value of CUDA_VISIBLE_DEVICES for the command; NULL: unset   */
} xd_command_line;

typedef struct xd_script {      /* the commands of a text; initialize with {0}, then set `wanted` */
    int            (*wanted)(int n, char **word);       /* returns 1 if the command is to be
                                                           collected */
    int              n;
    xd_command_line *command;
    char            *unset;     /* unset variables in the commands: "$A, $B"; NULL: none        */
    char            *other;     /* text of the first command that is not collected; NULL: none  */
} xd_script;

/* Collects the wanted commands of a text; finding none is no error. XD_EINVAL: a quote or bracket
 * is not closed, or a wanted command is part of a loop, condition or function. */
xd_status   xd_script_read(xd_script *s, const char *text, xd_err *e);
/* Collects the wanted command of words that the shell has already split; see xd_script_read. */
xd_status   xd_script_read_words(xd_script *s, int argc, char **argv, xd_err *e);
/* Returns the part of a word that begins with its first unsupported expansion, or NULL. */
const char *xd_script_unread(const char *word);
void        xd_script_free(xd_script *s);

#endif
