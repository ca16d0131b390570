/* shell.c - splitting a text into words, as much of a shell as a command line needs */
#include "cli/shell.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/words.h"

typedef struct list { int n, cap; char **v; } list;

typedef struct splitter {
    xd_shell   *s;
    const char *p;
    list        words, env;
    char       *buf;            /* the word under way                                          */
    size_t      len, cap;
    int         open;           /* there is one, be it empty                                   */
    int         quoted;         /* a part of it was                                            */
    int         deaf;           /* behind a pipe or a redirection: not ours                    */
    int         skip;           /* the next word is a redirection's                            */
    int         lost;           /* the word has a variable that is not set, and may have it      */
    xd_err     *e;
    xd_status   st;
} splitter;

static void *grown(void *p, size_t n, splitter *x)
{
    void *q = realloc(p, n);
    if (!q)
        x->st = xd_fail(x->e, XD_ENOMEM, "no memory for a command line");
    return q;
}

static void put(splitter *x, char c)
{
    if (x->len + 2 > x->cap) {
        char *q = grown(x->buf, x->cap * 2 + 64, x);
        if (!q)
            return;
        x->buf = q;
        x->cap = x->cap * 2 + 64;
    }
    x->buf[x->len++] = c;
    x->buf[x->len] = 0;
    x->open = 1;
}

static void append(splitter *x, list *l, const char *text)
{
    if (l->n == l->cap) {
        char **q = grown(l->v, (size_t)(l->cap * 2 + 16) * sizeof *q, x);
        if (!q)
            return;
        l->v = q;
        l->cap = l->cap * 2 + 16;
    }
    char *copy = strdup(text);
    if (copy)
        l->v[l->n++] = copy;
    else
        x->st = xd_fail(x->e, XD_ENOMEM, "no memory for a command line");
}

static void drop(list *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->v[i]);
    free(l->v);
    *l = (list){ 0 };
}

static size_t name_length(const char *s)
{
    size_t n = 0;
    if (!isalpha((unsigned char)s[0]) && s[0] != '_')
        return 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n;
}

static int is_assignment(const char *s)
{
    size_t n = name_length(s);
    return n && s[n] == '=';
}

/* ---- words and commands ------------------------------------------------------------------- */

static void end_word(splitter *x)
{
    if (!x->open)
        return;
    x->buf[x->len] = 0;
    if (!x->skip && !x->deaf && !x->lost)
        append(x, &x->words, x->buf);
    x->skip = x->open = x->quoted = x->lost = 0;
    x->len = 0;
    x->buf[0] = 0;
}

static const char control[] = "for while until if case function do done then else elif fi esac { } [ [[ declare "
                              "local read";
static const char aside[] = "set cd mkdir source . echo unset exit conda ulimit sleep wait module pip "
                            "nvidia-smi";

/* What stands between two ends of a command: assignments, something that does not matter here, or
 * the command. */
static void end_command(splitter *x)
{
    end_word(x);
    list w = x->words, command = { 0 };
    int  i = 0;
    x->words = (list){ 0 };
    x->deaf = x->skip = 0;
    while (i < w.n && (strspn(w.v[i], "+") == strlen(w.v[i]) || xd_word_listed("$ export env", w.v[i])))
        i++;
    for (; i < w.n && is_assignment(w.v[i]); i++)
        append(x, &x->env, w.v[i]);
    if (i == w.n || xd_word_listed(aside, w.v[i])) {
        i = w.n;
    } else if (xd_word_listed(control, w.v[i])) {
        x->st = xd_fail(x->e, XD_EINVAL, "'%s' is a shell's business: give the one command that it "
                        "runs, with its values filled in", w.v[i]);
    } else if (x->s->n) {
        x->st = xd_fail(x->e, XD_EINVAL, "there are two commands, and the second is '%.80s': give "
                        "one of them", w.v[i]);
    }
    for (; i < w.n && x->st == XD_OK; i++)
        append(x, &command, w.v[i]);
    if (command.n && x->st == XD_OK)
        x->s->word = command.v, x->s->n = command.n;
    else
        drop(&command);
    drop(&w);
}

/* ---- variables ------------------------------------------------------------------------------ */

static const char *value_of(const list *env, const char *name, size_t n)
{
    for (int i = env->n - 1; i >= 0; i--)
        if (strncmp(env->v[i], name, n) == 0 && env->v[i][n] == '=')
            return env->v[i] + n + 1;
    return NULL;
}

/* Assignments of the same command do not count in a shell, but mean what they say. */
static const char *look_up(const splitter *x, const char *name, size_t n)
{
    const char *v = value_of(&x->env, name, n);
    return v ? v : value_of(&x->words, name, n);
}

static int in_assignment(const splitter *x)
{
    return x->open && is_assignment(x->buf);
}

/* What is assigned or is another command's matters only where it is used: PYTHONPATH=$PWD:$PYTHONPATH is not. */
static int may_lack(const splitter *x)
{
    return x->skip || x->deaf || in_assignment(x) || (x->words.n && xd_word_listed(aside, x->words.v[0]));
}

static void variable(splitter *x, int quoted)
{
    const char *name = x->p + (x->p[0] == '{');
    size_t      n = name_length(name);
    int         brace = x->p[0] == '{';
    if (!n || (brace && name[n] != '}')) {
        if (brace || x->p[0] == '(')
            x->st = xd_fail(x->e, XD_EINVAL, "'$%.20s' is a shell's business: fill in its value", x->p);
        put(x, '$');
        return;
    }
    const char *v = look_up(x, name, n);
    if (!v && may_lack(x)) {
        x->p = name + n + brace;
        x->open = x->lost = 1;
        return;
    }
    if (!v) {
        x->st = xd_fail(x->e, XD_EINVAL, "$%.*s is a variable that the line does not set: fill in its "
                        "value, or put %.*s=VALUE before the command", (int)n, name, (int)n, name);
        return;
    }
    x->p = name + n + brace;
    if (quoted)
        x->open = 1;
    for (; *v; v++) {
        if (!quoted && isspace((unsigned char)*v))
            end_word(x);
        else
            put(x, *v);
    }
}

/* ---- characters ------------------------------------------------------------------------------ */

static void in_quotes(splitter *x, char q)
{
    x->open = x->quoted = 1;
    while (*x->p && *x->p != q && x->st == XD_OK) {
        char c = *x->p++;
        if (q == '"' && c == '\\' && *x->p && strchr("\"\\$`\n", *x->p)) {
            if (*x->p != '\n')
                put(x, *x->p);
            x->p++;
        } else if (q == '"' && c == '$') {
            variable(x, 1);
        } else {
            put(x, c);
        }
    }
    if (x->st == XD_OK && !*x->p)
        x->st = xd_fail(x->e, XD_EINVAL, "a quote %c is opened and not closed", q);
    x->p += *x->p == q;
}

static void redirection(splitter *x)
{
    if (x->open && !x->quoted && strspn(x->buf, "0123456789") == x->len)
        x->len = 0, x->open = 0;        /* 2> */
    end_word(x);
    while (*x->p == '>' || *x->p == '<' || *x->p == '&')
        x->p++;
    x->skip = 1;
}

static void one(splitter *x)
{
    char c = *x->p++;
    if (c == '\'' || c == '"') {
        in_quotes(x, c);
    } else if (c == '\\') {
        if (*x->p == '\r' && x->p[1] == '\n')
            x->p++;
        if (*x->p && *x->p != '\n')
            put(x, *x->p);
        x->p += *x->p != 0;
    } else if (c == '$' && in_assignment(x)) {
        variable(x, 1);
    } else if (c == '$' && !(isspace((unsigned char)*x->p) || !*x->p)) {
        variable(x, 0);
    } else if (c == '#' && !x->open) {
        x->p += strcspn(x->p, "\n");
    } else if (c == '\n' || c == ';') {
        end_command(x);
    } else if (c == '&' && *x->p == '>') {
        redirection(x);
    } else if (c == '&') {
        x->p += *x->p == '&';
        end_command(x);
    } else if (c == '|') {
        end_word(x);
        x->p += *x->p == '|';
        x->deaf = 1;
    } else if (c == '>' || c == '<') {
        redirection(x);
    } else if (isspace((unsigned char)c)) {
        end_word(x);
    } else {
        put(x, c);
    }
}

xd_status xd_shell_read(xd_shell *s, const char *text, xd_err *e)
{
    splitter x = { .s = s, .p = text, .e = e, .cap = 256, .buf = calloc(1, 256) };
    if (!x.buf)
        return xd_fail(e, XD_ENOMEM, "no memory for a command line");
    while (*x.p && x.st == XD_OK)
        one(&x);
    if (x.st == XD_OK)
        end_command(&x);
    if (x.st == XD_OK && !s->n)
        x.st = xd_fail(e, XD_EINVAL, "there is no command in the line");
    s->env = x.env.v;
    s->nenv = x.env.n;
    drop(&x.words);
    free(x.buf);
    return x.st;
}

xd_status xd_shell_take(xd_shell *s, int argc, char **argv, xd_err *e)
{
    splitter x = { .s = s, .e = e };
    int      i = 0;
    while (i < argc && is_assignment(argv[i]))
        append(&x, &x.env, argv[i++]);
    for (; i < argc; i++)
        append(&x, &x.words, argv[i]);
    if (x.st == XD_OK && !x.words.n)
        x.st = xd_fail(e, XD_EINVAL, "there is no command in the line");
    s->env = x.env.v, s->nenv = x.env.n;
    s->word = x.words.v, s->n = x.words.n;
    return x.st;
}

const char *xd_shell_env(const xd_shell *s, const char *name)
{
    const list env = { .n = s->nenv, .v = s->env };
    return value_of(&env, name, strlen(name));
}

void xd_shell_free(xd_shell *s)
{
    list words = { .n = s->n, .v = s->word }, env = { .n = s->nenv, .v = s->env };
    drop(&words);
    drop(&env);
    *s = (xd_shell){ 0 };
}

int xd_shell_quote(FILE *f, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=,:@%+";
    int columns = 2;
    if (*word && strspn(word, plain) == strlen(word)) {
        if (f)
            fputs(word, f);
        return (int)strlen(word);
    }
    if (f)
        fputc('\'', f);
    for (const char *p = word; *p; p++) {
        columns += *p == '\'' ? 4 : 1;
        if (f && *p == '\'')
            fputs("'\\''", f);
        else if (f)
            fputc(*p, f);
    }
    if (f)
        fputc('\'', f);
    return columns;
}
