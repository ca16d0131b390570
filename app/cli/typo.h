/* typo.h - dashes, quotes and blanks that blogs and word processors put in the place of ASCII's */
#ifndef XD_CLI_TYPO_H
#define XD_CLI_TYPO_H

/* Each returns the bytes of the UTF-8 letter at `p`, 0: it is none of that kind. */
int xd_typo_dash(const char *p);        /* U+2010-2015, minus, full width                      */
int xd_typo_double(const char *p);      /* double quotes, of both sides                        */
int xd_typo_single(const char *p);      /* single quotes, of both sides                        */
int xd_typo_blank(const char *p);       /* no-break space and the like                         */
int xd_typo_nothing(const char *p);     /* without width: byte order mark, U+200B              */

/* Letters of a flag's beginning at `p`, where one of them is such a dash: "–nproc". 0: it is no
 * flag. *means becomes what stands for them: "-" before a number or one letter, else "--". */
int xd_typo_flag(const char *p, const char **means);

/* Arguments of a command with such letters set right: another array, malloc'ed with its texts as
 * one block, and *argc is its length. NULL: nothing is to be changed, or there is no memory.
 * `first` gets the first word that was changed, borrowed from argv. */
char **xd_typo_args(int *argc, char **argv, const char **first);

#endif
