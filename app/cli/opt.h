/* opt.h - parses command lines by tables of xd_option, the tables that also validate requests.
 *
 * The options of a command are several tables, each with the record that it fills. `-` and `_` are
 * equal in a name; `--name value` and `--name=value` are equal. The last value of an option counts,
 * unless it may be repeated. */
#ifndef XD_CLI_OPT_H
#define XD_CLI_OPT_H

#include <stdio.h>

#include "base/err.h"
#include "xdit/tools.h"

/* A text option whose row has max == XD_OPT_MANY may be repeated; its field is an xd_opt_texts. */
#define XD_OPT_MANY 1e6

typedef struct xd_opt_texts {   /* borrowed strings; free the list with xd_opt_texts_free       */
    int          n;
    const char **v;
} xd_opt_texts;

typedef struct xd_opt_table {
    const xd_option *rows;      /* a row without `help` is hidden in help texts                */
    int              n;
    void            *record;    /* output of the parser; holds the defaults before parsing      */
} xd_opt_table;

typedef struct xd_opt_alias {   /* another name of an option                                    */
    const char *from, *to;
} xd_opt_alias;

typedef struct xd_opt_group {   /* a section of a help text                                     */
    const char *title;
    /* Separated by spaces. If any group has the word "|", --help prints only the names before it,
     * and --help all prints all. NULL: all rows that no group names. */
    const char *names;
} xd_opt_group;

typedef struct xd_opt_spec {
    const xd_opt_table *tables;
    int                 ntables;
    const xd_opt_alias *aliases;        /* ends with a row without `from`, or NULL              */
    int                 operands;       /* maximum number of arguments that are not flags       */
    const char         *once;           /* names, separated by spaces, of text options that may be
                                           given only once; NULL: none                         */
    const char         *extra_hint;     /* cure in the error about one operand too many          */
    /* The text option that an operand stands for; no operand is accepted after it. NULL: none. */
    const char         *operand_of;
    /* Called for a long option that no table has, to accept flags of another program; NULL: none.
     * Sets *values to its number of values: 0, 1, 2: any number, -1: unknown flag. */
    xd_status         (*other_flag)(void *cookie, const char *name, int *values, xd_err *e);
    void               *cookie;
    /* Called for every option that was parsed, with its value, or NULL for a switch; NULL: none. */
    void              (*on_option)(void *cookie, const xd_option *o, const char *value);
} xd_opt_spec;

/* Parses argv[0..argc). Text fields point into argv. XD_EINVAL: the message names the option and
 * the values that it accepts, or for an unknown option the nearest one. */
xd_status xd_opt_parse(const xd_opt_spec *s, int argc, char **argv, xd_opt_texts *operands,
                       xd_err *e);
void      xd_opt_texts_free(xd_opt_texts *t);
/* Sets *value, of option `name`, to the operand, if there is one. XD_EINVAL: both are given. Frees
 * the operands. */
xd_status xd_opt_operand(const char **value, xd_opt_texts *operands, const char *name, xd_err *e);

/* Columns of tables: COLUMNS or the width of the terminal, at least 40; 0 without both. */
int  xd_opt_columns(void);
/* Prints a help text of 80 columns, wrapped to a narrower terminal. */
void xd_opt_print(FILE *f, const char *text);
/* Prints the options of all groups, with their defaults, which the records hold; a number outside
 * of its range means "the model's default" and is not printed. */
void xd_opt_help(FILE *f, const xd_opt_spec *s, const xd_opt_group *groups, int ngroups);
/* xd_opt_help with one group, "Options", that has all options. */
void xd_opt_help_all(FILE *f, const xd_opt_spec *s);
/* Runs `help` and returns its text with the main options only, those before "|", one line each;
 * malloc'ed, NULL: no memory. *left: number of options left out; 0: the help has no "|". */
char *xd_opt_main_help(void (*help)(FILE *f), int *left);
/* `first` and the names of the other rows, as a group's; malloc'ed, NULL: no memory. */
char *xd_opt_names(const char *first, const xd_option *rows, int n);
/* Sets the help text of a row, made at run time; `help` is borrowed. */
void xd_opt_explain(xd_option *rows, int n, const char *name, const char *help);
/* Returns 1 if one of the groups names the option. */
int xd_opt_grouped(const xd_opt_group *groups, int n, const char *name);

/* Extracts from a help text the groups whose title contains the word, or that have the option of
 * this name. *text is malloc'ed. Returns 0 if there is none, or no memory. */
int  xd_opt_topic(void (*help)(FILE *f), const char *word, char **text);
/* Calls `visit` for every option of a help text, with its short form or NULL. */
typedef void xd_opt_visit(void *cookie, const xd_option *o, const char *letter);
void xd_opt_each(void (*help)(FILE *f), xd_opt_visit *visit, void *cookie);
/* Returns a help text with marked lines: XD_OPT_TITLE and the title for each group; XD_OPT_ROW,
 * letter, tab, name, tab, argument, tab, text for each option (letter and argument may be empty).
 * malloc'ed, NULL: no memory. */
enum { XD_OPT_TITLE = 2, XD_OPT_ROW = 3 };
char *xd_opt_marked(void (*help)(FILE *f));
/* Returns the short form of an option, or NULL. A letter means the same in all commands. */
const char *xd_opt_letter(const xd_opt_spec *s, const char *name);
/* Finds an option by name, letter or alias; *field points to its value. NULL: not found. */
const xd_option *xd_opt_find(const xd_opt_spec *s, const char *name, void **field);
/* "a b c" -> "a, b or c" */
void xd_opt_spell(const char *list, char *text, size_t size);

/* Returns "dash: type - or --" if the word contains a typographic dash, quote or space, which word
 * processors insert; else NULL. */
const char *xd_opt_typography(const char *word);
/* Returns the name nearest to `word` by spelling; NULL: none is near. */
const char *xd_opt_nearest(const char *word, const char *const *names, int n);
/* Returns our name for an option (a command) of another program, if it is one of `names`; else
 * NULL, and *hint becomes a clause about it, or NULL. */
const char *xd_opt_synonym(const char *word, const char *const *names, int n, const char **hint);
const char *xd_opt_command(const char *word, const char *const *names, int n, const char **hint);

#endif
