/* typo.h - typographic dashes, quotes and spaces that blogs and word processors put in place of
 * ASCII characters */
#ifndef XD_CLI_TYPO_H
#define XD_CLI_TYPO_H

/* Each returns the length in bytes of the UTF-8 character at `p`; 0: not of that kind. */
int xd_typo_dash(const char *p);        /* U+2010 to 2015, minus, full-width                   */
int xd_typo_double(const char *p);      /* opening and closing double quotes                   */
int xd_typo_single(const char *p);      /* opening and closing single quotes                   */
int xd_typo_blank(const char *p);       /* no-break space and other spaces                     */
int xd_typo_zero_width(const char *p);  /* byte order mark, U+200B                             */

/* Length in bytes of the dashes at the beginning of a flag if one of them is typographic:
 * "–nproc"; 0: not a flag. *means becomes "-" before a number or a single letter, else "--". */
int xd_typo_flag(const char *p, const char **means);

/* Returns the arguments with such characters replaced: an array malloc'ed in one block with its
 * strings; *argc becomes its length. NULL: nothing to replace, or no memory. *first becomes the
 * first changed word, borrowed from argv. */
char **xd_typo_args(int *argc, char **argv, const char **first);

#endif
