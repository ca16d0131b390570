/* opt.h - parses command lines by tables of xd_option, which also validate requests of the server.
 *
 * The options of a command are in several tables; each table fills a record. `-` and `_` are equal
 * in the name of an option; `--name value` and `--name=value` are equal. The last value of an
 * option counts, unless the option may be repeated. */
#ifndef XD_CLI_OPT_H
#define XD_CLI_OPT_H

#include <stdio.h>

#include "base/err.h"
#include "xdit/tools.h"

/* A text option whose row has max == XD_OPT_MANY may be repeated; the record's field is an
 * xd_opt_texts. */
#define XD_OPT_MANY 1e6

typedef struct xd_opt_texts {   /* values of a repeated option: borrowed strings; free the list with
                                   xd_opt_texts_free */
    int          n;
    const char **v;
} xd_opt_texts;

typedef struct xd_opt_table {
    const xd_option *rows;      /* options; a row without `help` is hidden in help texts       */
    int              n;
    void            *record;    /* record that the parser fills; contains the defaults before
                                   parsing */
} xd_opt_table;

typedef struct xd_opt_alias {   /* another name of an option                                    */
    const char *from, *to;
} xd_opt_alias;

typedef struct xd_opt_group {   /* a section of a help text                                     */
    const char *title;
    /* Names of options, separated by spaces. If any group has the word "|", --help prints only the
     * options before the "|" of each group, and --help all prints all options. NULL: all options
     * that no group names. */
    const char *names;
} xd_opt_group;

typedef struct xd_opt_spec {
    const xd_opt_table *tables;
    int                 ntables;
    const xd_opt_alias *aliases;        /* other names of options; the last row has no `from`; NULL:
                                           none */
    int                 operands;       /* maximum number of arguments that are not options     */
    const char         *once;           /* names of text options that may be given only once,
                                           separated by spaces; NULL: none */
    const char         *extra_hint;     /* the cure that the error about too many operands names */
    /* The text option whose value may be given as an operand; after this option no operand is
     * accepted. NULL: none. */
    const char         *operand_of;
    /* Called for a long option that no table has, to accept flags of another program; NULL: no
     * function. The function sets *values to the number of values of the flag (0 or 1), to 2 if the
     * flag has any number of values, or to -1 if the flag is unknown. */
    xd_status         (*other_flag)(void *cookie, const char *name, int *values, xd_err *e);
    void               *cookie;
    /* Called for every parsed option, with its value (NULL for a switch). NULL: no function. */
    void              (*on_option)(void *cookie, const xd_option *o, const char *value);
} xd_opt_spec;

/* Parses argv[0..argc). Text fields point into argv. XD_EINVAL: the message names the option and
 * the values that it accepts; for an unknown option, the nearest known option. */
xd_status xd_opt_parse(const xd_opt_spec *s, int argc, char **argv, xd_opt_texts *operands,
                       xd_err *e);
void      xd_opt_texts_free(xd_opt_texts *t);
/* If the command line has an operand, sets *value, the value of option `name`, to the operand.
 * XD_EINVAL: both the option and an operand are given. Frees the operands. */
xd_status xd_opt_operand(const char **value, xd_opt_texts *operands, const char *name, xd_err *e);

/* Returns the width of tables in columns: the variable COLUMNS or the width of the terminal, at
 * least 40; 0 if there is neither. */
int  xd_opt_columns(void);
/* Prints a help text that was written for 80 columns; wraps its lines if the terminal is
 * narrower. */
void xd_opt_print(FILE *f, const char *text);
/* Prints the options of all groups, with the defaults in the records. A default number outside of
 * the option's range means "the model's default" and is not printed. */
void xd_opt_help(FILE *f, const xd_opt_spec *s, const xd_opt_group *groups, int ngroups);
/* Prints all options in one group, "Options"; see xd_opt_help. */
void xd_opt_help_all(FILE *f, const xd_opt_spec *s);
/* Runs `help` and returns its text with only the main options, one line each; the main options are
 * those before "|". The text is malloc'ed; NULL: no memory. *left becomes the number of omitted
 * options; 0: the help text has no "|". */
char *xd_opt_main_help(void (*help)(FILE *f), int *left);
/* Returns a malloc'ed text for xd_opt_group.names: `first`, and then the names of the other rows,
 * separated by spaces. NULL: no memory. */
char *xd_opt_names(const char *first, const xd_option *rows, int n);
/* Sets the help text of the row `name` to a text made at run time; `help` is borrowed. */
void xd_opt_explain(xd_option *rows, int n, const char *name, const char *help);
/* Returns 1 if one of the groups names the option. */
int xd_opt_grouped(const xd_opt_group *groups, int n, const char *name);

/* Extracts from a help text the groups whose title contains the word, and the option whose name is
 * the word. *text is malloc'ed. Returns 0 if no group or option of the help text matches the word,
 * or memory is exhausted. */
int  xd_opt_topic(void (*help)(FILE *f), const char *word, char **text);
/* Called for an option of a help text; `letter` is the option's short form or NULL. */
typedef void xd_opt_visit(void *cookie, const xd_option *o, const char *letter);
void xd_opt_each(void (*help)(FILE *f), xd_opt_visit *visit, void *cookie);
/* Returns a help text with marked lines. The line of a group is XD_OPT_TITLE and the title. The
 * line of an option is XD_OPT_ROW, letter, tab, name, tab, argument, tab, help text; letter and
 * argument may be empty. The text is malloc'ed; NULL: no memory. */
enum { XD_OPT_TITLE = 2, XD_OPT_ROW = 3 };
char *xd_opt_marked(void (*help)(FILE *f));
/* Returns the short form of an option, or NULL. A letter means the same in all commands. */
const char *xd_opt_letter(const xd_opt_spec *s, const char *name);
/* Finds an option by name, letter or alias, and sets *field to the address of its value. NULL: not
 * found. */
const xd_option *xd_opt_find(const xd_opt_spec *s, const char *name, void **field);
/* Writes a list of words for a message: "a b c" becomes "a, b or c". */
void xd_opt_spell(const char *list, char *text, size_t size);

/* Returns "dash: type - or --" if the word contains a typographic dash, quote or space, which word
 * processors insert; else NULL. */
const char *xd_opt_typography(const char *word);
/* Returns the name whose spelling is nearest to `word`; NULL: no name is near. */
const char *xd_opt_nearest(const char *word, const char *const *names, int n);
/* Returns the name in xdit of an option or command of another program, if that name is one of
 * `names`. Otherwise returns NULL, and *hint becomes a clause that explains the other program's
 * option, or NULL. */
const char *xd_opt_synonym(const char *word, const char *const *names, int n, const char **hint);
const char *xd_opt_command(const char *word, const char *const *names, int n, const char **hint);

#endif
