/* opt.h - command lines read by tables of xd_option, the rows the library validates requests by.
 *
 * Several tables, each with the record it fills, make one command's flags. `-` and `_` are the
 * same inside a name; `--name value` and `--name=value` are the same; of what may not be
 * repeated the last one given wins. */
#ifndef XD_CLI_OPT_H
#define XD_CLI_OPT_H

#include <stdio.h>

#include "base/err.h"
#include "xdit/tools.h"

/* A text option whose row has max == XD_OPT_MANY may be repeated; its field is an xd_opt_texts. */
#define XD_OPT_MANY 1e6

typedef struct xd_opt_texts {   /* borrowed texts; the list is freed by xd_opt_texts_free       */
    int          n;
    const char **v;
} xd_opt_texts;

typedef struct xd_opt_table {
    const xd_option *rows;      /* a row without `help` is not shown by xd_opt_help             */
    int              n;
    void            *record;    /* filled; before parsing it holds the defaults                 */
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
    const char         *once;  /* names, apart by spaces, of texts that may be given once; NULL: */
                               /* none */
    const char         *stray;          /* advice on one argument too many                      */
    /* The text option that an operand stands for; no operand is accepted after it. NULL: none. */
    const char         *operand_of;
    /* Flags of another program that are understood, NULL: there are none. Asked about a long one
     * that no row has; *values becomes how many it takes, 2: any number, -1: it is not known. */
    xd_status         (*foreign)(void *cookie, const char *name, int *values, xd_err *e);
    void               *cookie;
    /* Called for every flag that is read, with its value or NULL (a flag alone); NULL: not. */
    void              (*took)(void *cookie, const xd_option *o, const char *value);
} xd_opt_spec;

int       xd_opt_is_switch(const char *arg);     /* behind a switch: is this word its value?   */
/* Reads argv[0..argc). Fields get pointers into argv. XD_EINVAL with one sentence that names the
 * flag, what it takes, and for an unknown flag the nearest one. */
xd_status xd_opt_parse(const xd_opt_spec *s, int argc, char **argv, xd_opt_texts *operands,
                       xd_err *e);
void      xd_opt_texts_free(xd_opt_texts *t);
/* The argument that is no flag, if there is one, as the value of an option that it stands for.
 * Refused when both are given. Frees the operands. */
xd_status xd_opt_operand(const char **value, xd_opt_texts *operands, const char *name, xd_err *e);

/* Columns of help texts: those of COLUMNS or of the terminal, from 40 to 120; 80 where there is
 * none. */
int  xd_opt_width(void);
/* The same of tables: 0 where there is neither COLUMNS nor a terminal. */
int  xd_opt_columns(void);
/* Prints a help text that is made for 80 columns, in fewer where there are fewer. */
void xd_opt_print(FILE *f, const char *text);
/* Prints the options of all groups. Defaults are read from the records; a number
 * outside of its row's range stands for "whatever the model says" and is not shown. */
void xd_opt_help(FILE *f, const xd_opt_spec *s, const xd_opt_group *groups, int ngroups);
/* Runs `help` and returns its text with the main options only, those before "|", one line each;
 * malloc'ed, NULL: no memory. *left: number of options left out; 0: the help has no "|". */
char *xd_opt_main_help(void (*help)(FILE *f), int *left);
/* `first` and the names of the other rows, as a group's; malloc'ed, NULL: no memory. */
char *xd_opt_names(const char *first, const xd_option *rows, int n);
/* Gives a row the help text that it has when the program runs; `help` is kept. */
void xd_opt_explain(xd_option *rows, int n, const char *name, const char *help);
/* Does one of these groups name the option? */
int xd_opt_grouped(const xd_opt_group *groups, int n, const char *name);

/* Of a help: the groups whose title has the word, or that have the option of this name. *text is
 * malloc'ed. Returns 0: there is none, or no memory. */
int  xd_opt_topic(void (*help)(FILE *f), const char *word, char **text);
/* Calls `visit` for every option that this help shows, with its short form or NULL. */
typedef void xd_opt_visit(void *cookie, const xd_option *o, const char *letter);
void xd_opt_each(void (*help)(FILE *f), xd_opt_visit *visit, void *cookie);
/* A help text with a line XD_OPT_TITLE, title for each group, and a line XD_OPT_ROW, letter or
 * nothing, tab, name, tab, argument or nothing, tab, text for each option; malloc'ed, NULL: no
 * memory. */
enum { XD_OPT_TITLE = 2, XD_OPT_ROW = 3 };
char *xd_opt_marked(void (*help)(FILE *f));
/* The letter that stands for an option, or NULL. A letter means the same in all commands. */
const char *xd_opt_letter(const xd_opt_spec *s, const char *name);
/* The option of a name, letter or alias, and where its value goes; NULL: there is none. */
const xd_option *xd_opt_find(const xd_opt_spec *s, const char *name, void **field);
/* "a b c" -> "a, b or c" */
void xd_opt_spell(const char *list, char *text, size_t size);

/* The name in `names` nearest to `word`; NULL: none is near. */
const char *xd_opt_nearest(const char *word, const char *const *names, int n);
/* What a flag (a command) of another program is called here, if it is one of `names`; else NULL,
 * and *say becomes a clause about it, or NULL. */
const char *xd_opt_synonym(const char *word, const char *const *names, int n, const char **say);
const char *xd_opt_command(const char *word, const char *const *names, int n, const char **say);

#endif
