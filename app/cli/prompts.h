/* prompts.h - reads prompts from a file: one per line, or the column `prompt` of a CSV file */
#ifndef XD_CLI_PROMPTS_H
#define XD_CLI_PROMPTS_H

#include "cli/opt.h"

/* Appends the prompts of a file, a pipe, or "-" for standard input to `list`. A file whose name
 * ends in .csv has a prompt in each row; other files have a prompt in each line, and blank lines
 * and comments are skipped. The prompts point into *text, which the caller frees, also after an
 * error. XD_EINVAL: the text is not UTF-8, contains a byte 0, is no CSV, or has no prompt. */
xd_status xd_prompts_read(xd_opt_texts *list, const char *path, char **text, xd_err *e);
/* Returns 1 if `path` is a pipe or standard input, which can be read only once. */
int       xd_prompts_is_stream(const char *path);
/* Copies the prompts of the list, from list->v[first] to the last prompt, to an anonymous file: a
 * file in memory without a name in a directory. Other processes of this host can open the anonymous
 * file by the name `path` until the caller closes *fd. *fd becomes the file descriptor of the
 * anonymous file; -1: there is no anonymous file. */
xd_status xd_prompts_copy(const xd_opt_texts *list, int first, char path[64], int *fd, xd_err *e);

#endif
