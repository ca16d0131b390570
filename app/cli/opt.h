/* opt.h - parses command lines by tables of xd_option, which also validate requests of the server.
 *
 * The options of a command are in several tables. Each table of options has a record (struct), to
 * which the parser writes the values of the options. In the name of an option, `-` and `_` are
 * equivalent. On the command line, `--name value` and `--name=value` are equivalent. If an option
 * is given several times, its last value counts, unless the option may be repeated. */
#ifndef XD_CLI_OPT_H
#define XD_CLI_OPT_H

#include <stdio.h>

#include "base/err.h"
#include "xdit/tools.h"

/* If the row of a text option has max == XD_OPT_MANY, the option may be repeated, and its field in
 * the record is an xd_opt_texts. */
#define XD_OPT_MANY 1e6

/* List of all values of an option that may be repeated. The list borrows its strings;
 * xd_opt_texts_free frees the list. */
typedef struct xd_opt_texts {
    int          n;
    const char **v;
} xd_opt_texts;

typedef struct xd_opt_table {
    const xd_option *rows; /* options; a row without `help` is hidden in help texts */
    int              n;
    /* Record to which the parser writes values; contains the default values before parsing. */
    void            *record;
} xd_opt_table;

typedef struct xd_opt_alias { /* another name of an option */
    const char *from, *to;
} xd_opt_alias;

typedef struct xd_opt_group { /* a section of a help text */
    const char *title;
    /* Names of the group's options, separated by spaces. In this list of option names, the word "|"
     * separates main options from other options. If any group has the word "|", --help prints only
     * the options before the "|" of each group, and --help all prints all options. NULL: the group
     * has all options that no other group names. */
    const char *names;
} xd_opt_group;

typedef struct xd_opt_spec {
    const xd_opt_table *tables;
    int                 ntables;
    /* Array of other names of options, whose last row has the name NULL (`from`). aliases NULL: no
     * option has another name. */
    const xd_opt_alias *aliases;
    int                 operands; /* maximum number of arguments that are not options */
    const char         *once;     /* names of text options that may be given only once,
                                           separated by spaces; NULL: none */
    /* Advice to the user that is appended to the error about too many operands (arguments that are
     * not options). */
    const char         *extra_hint;
    /* Name of a text option whose value may also be given as an operand, without the option's name.
     * If the command line has both the option and an operand after it, the operand is refused.
     * NULL: no option. */
    const char         *operand_of;
    /* Called for a long option that no table has, to accept flags of another program. other_flag
     * NULL: such options are refused. other_flag sets *values to the number of values that the flag
     * has, 0 or 1. other_flag sets *values to 2 if the flag has any number of values, and to -1 if
     * the flag is unknown. */
    xd_status           (*other_flag)(void *cookie, const char *name, int *values, xd_err *e);
    void               *cookie;
    /* Called for every parsed option, with its value (NULL for a switch). on_option NULL: no
     * function is called. */
    void                (*on_option)(void *cookie, const xd_option *o, const char *value);
} xd_opt_spec;

/* Parses argv[0..argc). Fields of the record that are texts point into argv. XD_EINVAL: an option
 * or its value is wrong. The error message names the option and the accepted values; for an unknown
 * option, it names the known option with the most similar spelling. */
xd_status xd_opt_parse(const xd_opt_spec *s, int argc, char **argv, xd_opt_texts *operands,
                       xd_err *e);
void      xd_opt_texts_free(xd_opt_texts *t);
/* If the command line has an operand, stores the operand in *value, the variable of the option
 * `name`. For commands that accept the value of this option also without the option's name.
 * XD_EINVAL: both the option and an operand are given. Frees the operands. */
xd_status xd_opt_operand(const char **value, xd_opt_texts *operands, const char *name, xd_err *e);

/* Returns the width in columns to which tables are fitted: the environment variable COLUMNS, or
 * else the width of the terminal, but at least 40. Returns 0 if neither COLUMNS nor a terminal sets
 * a width. */
int   xd_opt_columns(void);
/* Prints a help text that was written for 80 columns; wraps its lines if the terminal is
 * narrower. */
void  xd_opt_print(FILE *f, const char *text);
/* Prints the options of all groups with their default values. The default values are those that the
 * program's variables have at the time of the call. If an option's default number is outside the
 * option's allowed range, the number stands for the model's default and is not printed. */
void  xd_opt_help(FILE *f, const xd_opt_spec *s, const xd_opt_group *groups, int ngroups);
/* Prints all options in one group, "Options"; see xd_opt_help. */
void  xd_opt_help_all(FILE *f, const xd_opt_spec *s);
/* Calls `help` and returns a help text that has one line for each main option and omits other
 * options. The main options of a help text's group are the options before the word "|". The
 * returned help text is malloc'ed; it is NULL if memory is exhausted. *left becomes the number of
 * omitted options, which is 0 if the help text has no "|". */
char *xd_opt_main_help(void (*help)(FILE *f), int *left);
/* Returns a malloc'ed list of names for xd_opt_group.names, separated by spaces. The list begins
 * with the names in `first`; the names of all other rows follow. NULL: memory is exhausted. */
char *xd_opt_names(const char *first, const xd_option *rows, int n);
/* Sets the help text of the row `name`, for a text that is known only at run time. `help` is
 * borrowed. */
void  xd_opt_explain(xd_option *rows, int n, const char *name, const char *help);
/* Returns 1 if one of the groups of a help text lists the option with this name. */
int   xd_opt_grouped(const xd_opt_group *groups, int n, const char *name);

/* Returns in *text all parts of a help text that are about a word: groups whose title contains the
 * word, and the option whose name is the word. *text is malloc'ed. Returns 0 if no group and no
 * option match the word, or if memory is exhausted. */
int          xd_opt_topic(void (*help)(FILE *f), const char *word, char **text);
/* Type of a callback that is called for each option of a help text; `letter` is the option's
 * letter, or NULL if it has none. */
typedef void xd_opt_visit(void *cookie, const xd_option *o, const char *letter);
void         xd_opt_each(void (*help)(FILE *f), xd_opt_visit *visit, void *cookie);
/* Returns a help text in which lines of groups and options are marked for a parser. The line of a
 * group consists of the byte XD_OPT_TITLE and the group's title. The line of an option consists of
 * the byte XD_OPT_ROW, the option's letter, a tab, its name, a tab, its argument, a tab, and its
 * help text; letter and argument may be empty. The returned text is malloc'ed, or NULL if memory is
 * exhausted. */
enum { XD_OPT_TITLE = 2, XD_OPT_ROW = 3 };
char            *xd_opt_marked(void (*help)(FILE *f));
/* Returns the letter of an option, such as "p" for --prompt, or NULL. A letter means the same
 * option in all commands. */
const char      *xd_opt_letter(const xd_opt_spec *s, const char *name);
/* Finds an option by name, letter or alias, and sets *field to the address of its value. NULL: not
 * found. */
const xd_option *xd_opt_find(const xd_opt_spec *s, const char *name, void **field);
/* Writes a list of words for a message: "a b c" becomes "a, b or c". */
void             xd_opt_spell(const char *list, char *text, size_t size);

/* Returns "dash: type - or --" if the word contains a typographic dash, and similar texts for
 * typographic quotes and spaces. Word processors insert typographic dashes, quotes and spaces.
 * Returns NULL if the word contains no typographic characters. */
const char *xd_opt_typography(const char *word);
/* Returns the name with the spelling most similar to `word`, or NULL if no name is similar. */
const char *xd_opt_nearest(const char *word, const char *const *names, int n);
/* Translates the name of an option or command of another program to the name in xdit, if `names`
 * contains the name in xdit. If xdit has no equivalent option or command, returns NULL and sets
 * *hint to a clause that explains the other program's option. *hint becomes NULL if xdit has no
 * clause about the other program's option. */
const char *xd_opt_synonym(const char *word, const char *const *names, int n, const char **hint);
const char *xd_opt_command(const char *word, const char *const *names, int n, const char **hint);

#endif
