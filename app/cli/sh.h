/* sh.h - internals of the shell interpreter: state, variables, words, conditions; see shell.h */
#ifndef XD_CLI_SH_H
#define XD_CLI_SH_H

#include <stdint.h>

#include "base/json.h"
#include "cli/shell.h"

typedef struct sh_list { int n, cap; char **v; } sh_list;

typedef struct sh_var {         /* a scalar has the only key "0"                                */
    char   *name, *unset;       /* unset: unset variables that its value refers to; NULL: none  */
    int     table;              /* 1: associative array                                         */
    sh_list key, value;
} sh_var;

typedef struct sh {
    xd_shell    *s;
    const char  *p;             /* rest of the script, NUL-terminated                           */
    sh_var      *vars;
    int          nvars, capvars;
    sh_list      words;         /* of the current command                                       */
    char        *buf;           /* the current word                                             */
    size_t       len, cap;
    int          in_word;       /* 1: a word has begun, even if it is empty                     */
    int          plain;         /* 1: the word has neither quotes nor expansions so far         */
    int          no_split;      /* 1: values are not split into words                           */
    int          skipped;       /* nesting levels of branches that are not taken                */
    int          jump;          /* 1: continue, 2: break, 3: return                             */
    int          stop;          /* 1: exit                                                      */
    int          status;        /* exit status of the last command                              */
    int          depth, steps;
    char        *unset;         /* unset variables of the current words; NULL: none             */
    char        *here;          /* text after <<<; NULL: none                                   */
    char         heredoc[64];   /* delimiter of a here-document; empty: none                    */
    sh_list      funs;          /* names of functions; body[i] is the text of the body          */
    const char **body;
    xd_err      *e;
    xd_status    st;
} sh;

/* Returns 1 while commands take effect. */
static inline int sh_live(const sh *x)
{
    return !x->skipped && !x->jump && !x->stop && x->st == XD_OK;
}

/* sh_vars.c */
void    sh_append(sh *x, sh_list *l, const char *text);
void    sh_drop(sh_list *l);
size_t  sh_name_length(const char *s);          /* length of a variable's name; 0: not a name   */
sh_var *sh_find(sh *x, const char *name, size_t n);     /* NULL: unset                          */
sh_var *sh_make(sh *x, const char *name, size_t n);     /* NULL: no memory                      */
const char *sh_value(const sh_var *v, const char *key); /* NULL: unset                          */
void    sh_put_value(sh *x, sh_var *v, const char *key, const char *text, int add);
void    sh_set(sh *x, const char *name, const char *text);
void    sh_set_list(sh *x, const char *name, int n, char **v);
void    sh_unset(sh *x, const char *name);
void    sh_vars_free(sh *x);
void    sh_note_unset(sh *x, const char *names);        /* adds names to x->unset               */

/* sh_word.c */
int     sh_word(sh *x, int no_split);   /* appends a word to x->words; 0: no word follows       */
char   *sh_one(sh *x);                  /* a word, not split; malloc'ed, "" if none follows     */
char   *sh_expand(sh *x, const char *text, size_t n);   /* expands a text; malloc'ed, or NULL    */
/* Returns the closing bracket for the opening one before p. */
const char *sh_closing(const char *p, char open, char close);

/* sh_run.c */
extern const char sh_prefixes[];        /* words that may precede assignments                   */
void    sh_run(sh *x);                  /* runs and clears x->words                             */
void    sh_run_words(sh *x, int n, char **w);

/* shell.c */
void    sh_list_run(sh *x, const char *stops);  /* runs commands at x->p up to a word of stops  */

/* sh_test.c */
int     sh_true(sh *x, int n, char **v, int patterns);  /* evaluates [ ] or [[ ]]               */
int64_t sh_arithmetic(sh *x, const char *text);

#endif
