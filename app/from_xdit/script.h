/* script.h - splits a text into commands as a shell does, to find the commands that start xDiT.
 *
 * No command of the script is run. The supported syntax of the shell consists of quotes, comments,
 * lines joined with a backslash, redirections, NAME=VALUE lines, $NAME and ${NAME}. The value of an
 * unset variable is the empty text. Other kinds of shell expansions are not expanded: their text is
 * kept unchanged. A use of a variable whose value only the execution of other commands would
 * determine is kept as the text $NAME. */
#ifndef XD_FROM_XDIT_SCRIPT_H
#define XD_FROM_XDIT_SCRIPT_H

#include "base/err.h"

enum { XD_SCRIPT_BYTES = 1 << 20 };
#define XD_SCRIPT_CURE "put echo before torchrun, run the script, and paste the line that it prints"

typedef struct xd_words {
    int    n;
    char **v;
} xd_words;

typedef struct xd_command_line {
    xd_words words;
    char    *devices; /* value of CUDA_VISIBLE_DEVICES for the command; NULL: unset */
} xd_command_line;

/* The commands that were found in a text; initialize with {0}, then set `wanted`. */
typedef struct xd_script {
    /* Returns 1 if a command, given as n words, should be collected. */
    int              (*wanted)(int n, char **word);
    int              n;
    xd_command_line *command;
    /* List of variables that the commands use but the script does not set, "$A, $B"; NULL: all
     * variables are set. */
    char            *unset;
    /* Text of the first command for which `wanted` returned 0; NULL: `wanted` returned 1 for all
     * commands. */
    char            *other;
} xd_script;

/* Collects all commands of a text for which `wanted` returns 1. A text without any such command is
 * not an error. XD_EINVAL: a quote or bracket is not closed, or a command to collect is inside a
 * loop, condition or function. */
xd_status   xd_script_read(xd_script *s, const char *text, xd_err *e);
/* Works like xd_script_read, but for a single command that the shell has already split into
 * words. */
xd_status   xd_script_read_words(xd_script *s, int argc, char **argv, xd_err *e);
/* Returns the end of a word from its first unsupported shell expansion on; NULL: the word has no
 * unsupported expansion. */
const char *xd_script_unread(const char *word);
void        xd_script_free(xd_script *s);

#endif
