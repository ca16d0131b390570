/* sh.h - inside the reader of shell texts: its state, variables, words, conditions */
#ifndef XD_CLI_SH_H
#define XD_CLI_SH_H

#include <stdint.h>

#include "base/json.h"
#include "cli/shell.h"

typedef struct sh_list { int n, cap; char **v; } sh_list;

typedef struct sh_var {         /* a plain one has the one key "0"                              */
    char   *name, *lacks;       /* lacks: names that were not set when its value was made; NULL */
    int     table;              /* keys are texts, not numbers                                  */
    sh_list key, value;
} sh_var;

typedef struct sh {
    xd_shell    *s;
    const char  *p;             /* what is read next; ends with a NUL                           */
    sh_var      *vars;
    int          nvars, capvars;
    sh_list      words;         /* of the command under way                                     */
    char        *buf;           /* the word under way                                           */
    size_t       len, cap;
    int          open;          /* there is one, be it empty                                    */
    int          plain;         /* it has neither quotes nor values so far                      */
    int          whole;         /* values are not split into words                              */
    int          dead;          /* levels of branches that are not taken                        */
    int          leave;         /* 1: continue, 2: break, 3: return                             */
    int          stop;          /* exit                                                         */
    int          status;        /* of the last command                                          */
    int          depth, steps;
    char        *lacks;         /* names without a value, of the words under way; NULL: none    */
    char        *here;          /* behind <<<; NULL: nothing                                    */
    char         heredoc[64];   /* the line that ends one; empty: there is none                 */
    sh_list      funs;          /* names; body[i] is where it stands                            */
    const char **body;
    xd_err      *e;
    xd_status    st;
} sh;

static inline int sh_live(const sh *x)
{
    return !x->dead && !x->leave && !x->stop && x->st == XD_OK;
}

/* sh_vars.c */
void    sh_append(sh *x, sh_list *l, const char *text);
void    sh_drop(sh_list *l);
size_t  sh_name_length(const char *s);                  /* of a variable's name; 0: it is none  */
sh_var *sh_find(sh *x, const char *name, size_t n);     /* NULL: not set                        */
sh_var *sh_make(sh *x, const char *name, size_t n);     /* NULL: no memory                      */
const char *sh_value(const sh_var *v, const char *key); /* NULL: not set                        */
void    sh_put_value(sh *x, sh_var *v, const char *key, const char *text, int add);
void    sh_set(sh *x, const char *name, const char *text);
void    sh_set_list(sh *x, const char *name, int n, char **v);
void    sh_unset(sh *x, const char *name);
void    sh_vars_free(sh *x);
void    sh_lacks(sh *x, const char *names);             /* adds names to x->lacks               */

/* sh_word.c */
int     sh_word(sh *x, int whole);      /* reads one into x->words; 0: there is none here       */
char   *sh_one(sh *x);                  /* one word, not split; malloc'ed, "" where there is none */
char   *sh_expand(sh *x, const char *text, size_t n);   /* all of a text; malloc'ed, or NULL     */
const char *sh_closing(const char *p, char open, char close);   /* behind the opening one       */

/* sh_run.c */
extern const char sh_prefixes[];        /* words that may stand before assignments              */
void    sh_run(sh *x);                  /* x->words, which it takes                             */
void    sh_run_words(sh *x, int n, char **w);

/* shell.c */
void    sh_list_run(sh *x, const char *stops);  /* commands at x->p, up to one of these words   */

/* sh_test.c */
int     sh_true(sh *x, int n, char **v, int patterns);  /* of [ ] and [[ ]]                     */
int64_t sh_arithmetic(sh *x, const char *text);

#endif
