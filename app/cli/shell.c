/* shell.c - the grammar of shell scripts: commands, conditions, loops; see shell.h */
#include "cli/shell.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/word_list.h"
#include "cli/sh.h"
#include "cli/typo.h"

enum { MOST_STEPS = 20000, MOST_ROUNDS = 1000, MOST_WORDS = 8192, DEEPEST = 64 };

static void run_list(sh *x, const char *stops);

/* ---- between words --------------------------------------------------------------------------- */

static void skip_heredoc(sh *x)
{
    size_t n = strlen(x->heredoc);
    while (n && *x->p) {
        const char *line = x->p + strspn(x->p, "\t");
        size_t      len = strcspn(line, "\r\n");
        x->p = line + len + strspn(line + len, "\r");
        x->p += *x->p == '\n';
        if (len == n && strncmp(line, x->heredoc, n) == 0)
            break;
    }
    x->heredoc[0] = 0;
}

/* Skips spaces within a line, and joined lines. */
static void skip_blanks(sh *x)
{
    for (int k; *x->p; ) {
        if (*x->p == ' ' || *x->p == '\t' || *x->p == '\r') {
            x->p++;
        } else if ((k = xd_typo_blank(x->p)) || (k = xd_typo_zero_width(x->p))) {
            x->s->typos |= xd_typo_blank(x->p) > 0;
            x->p += k;
        } else if (*x->p == '\\' && (x->p[1] == '\n' || (x->p[1] == '\r' && x->p[2] == '\n'))) {
            x->p += x->p[1] == '\n' ? 2 : 3;
        } else {
            return;
        }
    }
}

/* Skips spaces, ends of commands, comments. */
static void skip_between(sh *x)
{
    for (;;) {
        skip_blanks(x);
        if (*x->p == '#') {
            x->p += strcspn(x->p, "\n");
        } else if (*x->p == '\n') {
            x->p++;
            skip_heredoc(x);
        } else if ((*x->p == ';' && x->p[1] != ';') || *x->p == '&') {
            x->p++;
        } else {
            return;
        }
    }
}

/* Returns 1 if the next word is this one. */
static int at_word(const sh *x, const char *word)
{
    size_t n = strlen(word);
    return strncmp(x->p, word, n) == 0 && (strchr(" \t\r\n;&|()", x->p[n]) || !strcmp(word, ";;"));
}

static int take_word(sh *x, const char *word)
{
    if (!at_word(x, word))
        return 0;
    x->p += strlen(word);
    return 1;
}

static void expect_word(sh *x, const char *word, const char *of)
{
    skip_between(x);
    if (x->st == XD_OK && !take_word(x, word))
        x->st = xd_fail(x->e, XD_EINVAL, "the script has '%s' without its '%s'", of, word);
}

static int at_stop(const sh *x, const char *stops)
{
    char   word[8];
    size_t n = strcspn(x->p, " \t\r\n;&|()");
    if (x->p[0] == ';' && x->p[1] == ';')
        return strstr(stops, ";;") != NULL;
    if (*x->p == ')')
        return strchr(stops, ')') != NULL;
    snprintf(word, sizeof word, "%.*s", n < sizeof word ? (int)n : 0, x->p);
    return xd_list_has(stops, word);
}

/* ---- assignments and redirections ------------------------------------------------------------ */

/* Looks the variable up each time: reading a value may create variables, which moves the array. */
static void put_in(sh *x, const char *name, size_t n, const char *key, const char *value)
{
    sh_var *v = key && value && sh_live(x) ? sh_make(x, name, n) : NULL;
    if (v)
        sh_put_value(x, v, key, value, 0);
}

/* NAME=(A B [K]=C) */
static void assign_list(sh *x, const char *name, size_t n, int add)
{
    char    key[16];
    sh_var *v = sh_live(x) ? sh_make(x, name, n) : NULL;
    int     next = v && add ? v->value.n : 0;
    if (v && !add) {
        sh_drop(&v->key);
        sh_drop(&v->value);
    }
    for (x->p++; x->st == XD_OK; ) {
        skip_between(x);
        int   words = x->words.n;
        char *in = NULL, *value = NULL;
        const char *end = *x->p == '[' ? sh_closing(x->p + 1, '[', ']') : NULL;
        if (!*x->p || *x->p == ')')
            break;
        if (end && end[1] == '=') {
            in = sh_expand(x, x->p + 1, (size_t)(end - x->p - 1));
            x->p = end + 2;
            value = sh_one(x);
            put_in(x, name, n, in, value);
        } else if (!sh_word(x, 0)) {
            x->p++;
        }
        for (int i = words; i < x->words.n; i++) {
            snprintf(key, sizeof key, "%d", next++);
            put_in(x, name, n, key, x->words.v[i]);
            free(x->words.v[i]);
        }
        x->words.n = words;
        free(in);
        free(value);
    }
    if (x->st == XD_OK && *x->p != ')')
        x->st = xd_fail(x->e, XD_EINVAL, "the script has '%.*s=(' without its ')'",
                        (int)(n < 40 ? n : 40), name);
    x->p += *x->p == ')';
}

/* Returns the sign of an assignment at p (NAME=, NAME+=, NAME[KEY]=), or NULL. */
static const char *assignment_sign(const char *p)
{
    size_t      n = sh_name_length(p);
    const char *end = n && p[n] == '[' ? sh_closing(p + n + 1, '[', ']') : NULL;
    p = end ? end + 1 : p + n;
    return n && (*p == '=' || (*p == '+' && p[1] == '=')) ? p : NULL;
}

static void read_assignment(sh *x, const char *sign)
{
    const char *name = x->p;
    size_t      n = sh_name_length(name);
    int         add = *sign == '+';
    char       *lacks = x->unset, *value = NULL, *key;
    sh_var     *v;
    x->unset = NULL;            /* for this value only                                          */
    if (name[n] == '[')
        key = sh_expand(x, name + n + 1, (size_t)(sign - name) - n - 2);
    else
        key = strdup("0");
    x->p = sign + 1 + add;
    if (*x->p == '(')
        assign_list(x, name, n, add);
    else
        value = sh_one(x);
    if (sh_live(x) && (v = sh_make(x, name, n))) {
        if (key && value)
            sh_put_value(x, v, key, value, add);
        if (add && v->unset)
            sh_note_unset(x, v->unset);
        free(v->unset);
        v->unset = x->unset;
        x->unset = NULL;
    }
    free(x->unset);
    x->unset = lacks;
    free(key);
    free(value);
}

static void read_redirection(sh *x)
{
    int   here = !strncmp(x->p, "<<<", 3), doc = !here && !strncmp(x->p, "<<", 2);
    while (*x->p && strchr("<>&", *x->p))
        x->p++;
    x->p += doc && *x->p == '-';
    skip_blanks(x);
    const char *end = *x->p == '(' ? sh_closing(x->p + 1, '(', ')') : NULL;
    if (end) {
        x->p = end + 1;
        return;
    }
    char *word = sh_one(x);
    if (doc && word)
        snprintf(x->heredoc, sizeof x->heredoc, "%s", word);
    if (here && word) {
        free(x->here);
        x->here = word;
        word = NULL;
    }
    free(word);
}

static int at_redirection(const sh *x)
{
    const char *p = x->p + strspn(x->p, "0123456789");
    return *p == '<' || *p == '>' || (p == x->p && *p == '&' && p[1] == '>');
}

/* ---- the grammar ----------------------------------------------------------------------------- */

static void define_function(sh *x, const char *name)
{
    skip_between(x);
    const char *body = x->p + 1;
    if (*x->p != '{' || x->funs.n > 255) {
        x->st =
            xd_fail(x->e, XD_EINVAL, "this form of the function '%.40s' is not supported", name);
        return;
    }
    x->p++;
    x->skipped++;
    run_list(x, "}");
    x->skipped--;
    expect_word(x, "}", "{");
    const char **more = realloc(x->body, (size_t)(x->funs.n + 1) * sizeof *more);
    if (!more || !sh_live(x))
        x->body = more ? more : x->body;
    else {
        x->body = more;
        x->body[x->funs.n] = body;
        sh_append(x, &x->funs, name);
    }
}

static void define_named(sh *x)         /* after "function" */
{
    skip_blanks(x);
    char *name = sh_one(x);
    skip_blanks(x);
    x->p += !strncmp(x->p, "()", 2) ? 2 : 0;
    define_function(x, name ? name : "");
    free(name);
}

static int is_definition(const sh *x)
{
    return *x->p == '(' && x->p[1] == ')' && x->words.n == 1;
}

static void run_simple(sh *x)
{
    const char *from = x->p, *sign;
    int         open = 1;               /* 1: assignments may follow                            */
    free(x->unset);
    x->unset = NULL;
    while (x->st == XD_OK) {
        skip_blanks(x);
        if (at_redirection(x)) {
            x->p += strspn(x->p, "0123456789");
            read_redirection(x);
            continue;
        }
        if (is_definition(x)) {
            x->p += 2;
            char *name = x->words.v[0];
            x->words.n = 0;
            define_function(x, name);
            free(name);
            break;
        }
        if (!*x->p || strchr("\n;&|()#", *x->p) || x->words.n > MOST_WORDS)
            break;
        int n = x->words.n;
        if (open && (sign = assignment_sign(x->p)))
            read_assignment(x, sign);
        else
            sh_word(x, 0);
        if (x->words.n > n)
            open = open && (xd_list_has(sh_prefixes, x->words.v[n]) || x->words.v[n][0] == '-');
    }
    if (*x->p == '#')
        x->p += strcspn(x->p, "\n");
    if (x->p == from && *x->p)
        x->p++;                         /* an unmatched bracket                                 */
    sh_run(x);
}

static void run_condition(sh *x)        /* after "[[" */
{
    sh_list kept = x->words;
    x->words = (sh_list){ 0 };
    while (x->st == XD_OK) {
        skip_between(x);
        if (!*x->p || take_word(x, "]]"))
            break;
        size_t n =
            !strncmp(x->p, "&&", 2) || !strncmp(x->p, "||", 2) ? 2 : strchr("()<>|", *x->p) != NULL;
        if (n) {
            char *sign = strndup(x->p, n);
            sh_append(x, &x->words, sign ? sign : "");
            free(sign);
            x->p += n;
        } else {
            int words = x->words.n;
            if (!sh_word(x, 1))
                x->p++;
            else if (x->words.n == words)
                sh_append(x, &x->words, "");    /* an empty value counts as a word here         */
        }
    }
    if (sh_live(x))
        x->status = !sh_true(x, x->words.n, x->words.v, 1);
    sh_drop(&x->words);
    x->words = kept;
}

static void run_if(sh *x)               /* after "if" */
{
    int done = 0;
    do {
        int before = done;
        x->skipped += before;
        run_list(x, "then");
        int yes = sh_live(x) && x->status == 0;
        expect_word(x, "then", "if");
        x->skipped += !yes;
        run_list(x, "elif else fi");
        x->skipped -= !yes;
        x->skipped -= before;
        done |= yes;
    } while (x->st == XD_OK && take_word(x, "elif"));
    if (take_word(x, "else")) {
        x->skipped += done;
        run_list(x, "fi");
        x->skipped -= done;
    }
    expect_word(x, "fi", "if");
}

/* Ends an iteration of a loop; returns 1 for the last one. */
static int round_over(sh *x)
{
    int over = x->jump == 2;
    if (x->jump < 3)
        x->jump = 0;
    return over || !sh_live(x);
}

static void skip_body(sh *x)
{
    x->skipped++;
    run_list(x, "done");
    x->skipped--;
}

/* Appends the words up to the end of the line; {1..4} becomes its numbers. */
static void read_items(sh *x, sh_list *to)
{
    int  a, b;
    char end, text[16];
    for (skip_blanks(x); *x->p && !strchr("\n;#&", *x->p) && x->st == XD_OK; skip_blanks(x)) {
        int n = x->words.n;
        if (!sh_word(x, 0))
            x->p++;
        for (int i = n; i < x->words.n; i++) {
            const char *w = x->words.v[i];
            if (x->plain && sscanf(w, "{%4d..%4d%c", &a, &b, &end) == 3 && end == '}')
                for (int k = a; k != b + (a <= b ? 1 : -1); k += a <= b ? 1 : -1) {
                    snprintf(text, sizeof text, "%d", k);
                    sh_append(x, to, text);
                }
            else
                sh_append(x, to, w);
            free(x->words.v[i]);
        }
        x->words.n = n;
    }
}

static void run_for(sh *x)              /* after "for" */
{
    sh_list       to = { 0 };
    size_t        n = (skip_blanks(x), sh_name_length(x->p));
    char         *name = strndup(x->p, n);
    const sh_var *args = sh_find(x, "@", 1);
    if (!n && x->st == XD_OK)
        x->st =
            xd_fail(x->e, XD_EINVAL,
                    "'for ((...))' is not supported: give the command that it runs, with its "
                    "values filled in");
    x->p += n;
    skip_between(x);
    if (take_word(x, "in"))
        read_items(x, &to);
    else
        for (int i = 0; args && i < args->value.n; i++)
            sh_append(x, &to, args->value.v[i]);
    expect_word(x, "do", "for");
    const char *body = x->p;
    int         ran = 0;
    for (int i = 0; name && i < to.n && sh_live(x); i++) {
        ran = 1;
        sh_set(x, name, to.v[i]);
        x->p = body;
        run_list(x, "done");
        if (round_over(x))
            break;
    }
    if (!ran)
        skip_body(x);
    expect_word(x, "done", "for");
    sh_drop(&to);
    free(name);
}

static void run_while(sh *x, int until) /* after "while" or "until" */
{
    const char *from = x->p;
    for (int i = 0; x->st == XD_OK; i++) {
        x->p = from;
        run_list(x, "do");
        int yes = sh_live(x) && (x->status == 0) != until;
        expect_word(x, "do", "while");
        if (yes && i == MOST_ROUNDS && x->st == XD_OK)
            x->st =
                xd_fail(x->e, XD_EINVAL,
                        "a loop of the script never ends without running programs: give the "
                        "command "
                        "that it runs, with its values");
        x->skipped += !yes;
        run_list(x, "done");
        x->skipped -= !yes;
        if (round_over(x) || !yes)
            break;
    }
    expect_word(x, "done", "while");
}

static void run_case(sh *x)             /* after "case" */
{
    int   done = 0;
    char *what = (skip_blanks(x), sh_one(x));
    expect_word(x, "in", "case");
    for (skip_between(x); x->st == XD_OK && *x->p && !at_word(x, "esac"); skip_between(x)) {
        int hit = 0, more = 1;
        x->p += *x->p == '(';
        while (more && x->st == XD_OK) {
            skip_blanks(x);
            char *pattern = sh_one(x);
            hit |= what && pattern && fnmatch(pattern, what, 0) == 0;
            free(pattern);
            skip_blanks(x);
            more = *x->p == '|';
            x->p += more;
        }
        expect_word(x, ")", "case");
        hit = hit && !done && sh_live(x);
        x->skipped += !hit;
        run_list(x, ";; esac");
        x->skipped -= !hit;
        done |= hit;
        x->p += !strncmp(x->p, ";;", 2) ? 2 : 0;
    }
    expect_word(x, "esac", "case");
    free(what);
}

/* (( ... )): a condition; assignments are not supported and succeed. */
static void run_arithmetic(sh *x)
{
    const char *end = sh_closing(x->p, '(', ')');
    char       *text = end && end[1] == ')' ? sh_expand(x, x->p, (size_t)(end - x->p)) : NULL;
    if (!text) {
        if (x->st == XD_OK)
            x->st = xd_fail(x->e, XD_EINVAL, "the script has '((' without its '))'");
        return;
    }
    x->p = end + 2;
    int assigns = strstr(text, "++") || strstr(text, "--");
    for (const char *p = text; (p = strchr(p, '=')); p++) {
        int part = (p > text && strchr("=!<>", p[-1])) || p[1] == '=';
        assigns |= !part;
    }
    if (sh_live(x))
        x->status = assigns ? 0 : !sh_arithmetic(x, text);
    free(text);
}

static void run_command(sh *x)
{
    skip_blanks(x);
    if (++x->depth > DEEPEST) {
        if (x->st == XD_OK)
            x->st = xd_fail(x->e, XD_EINVAL,
                    "the script is nested more than %d levels deep", DEEPEST);
    } else if (take_word(x, "if")) {
        run_if(x);
    } else if (take_word(x, "for")) {
        run_for(x);
    } else if (at_word(x, "while") || at_word(x, "until")) {
        int until = *x->p == 'u';
        x->p += 5;
        run_while(x, until);
    } else if (take_word(x, "case")) {
        run_case(x);
    } else if (take_word(x, "[[")) {
        run_condition(x);
    } else if (take_word(x, "{")) {
        run_list(x, "}");
        expect_word(x, "}", "{");
    } else if (!strncmp(x->p, "((", 2)) {
        x->p += 2;
        run_arithmetic(x);
    } else if (*x->p == '(') {
        x->p++;
        run_list(x, ")");
        expect_word(x, ")", "(");
    } else {
        if (take_word(x, "function"))
            define_named(x);
        else
            run_simple(x);
        x->depth--;
        return;
    }
    for (skip_blanks(x); at_redirection(x) && x->st == XD_OK; skip_blanks(x)) {
        x->p += strspn(x->p, "0123456789");
        read_redirection(x);
    }
    x->depth--;
}

static void run_pipeline(sh *x)
{
    int no = 0;
    for (skip_blanks(x); take_word(x, "!"); skip_blanks(x))
        no = !no;
    run_command(x);
    while (x->st == XD_OK && *x->p == '|' && x->p[1] != '|') {
        x->p += x->p[1] == '&' ? 2 : 1;
        skip_between(x);
        run_command(x);
    }
    if (no && sh_live(x))
        x->status = !x->status;
}

static void and_or(sh *x)
{
    run_pipeline(x);
    for (skip_blanks(x); x->st == XD_OK && (!strncmp(x->p, "&&", 2) || !strncmp(x->p, "||", 2));
         skip_blanks(x)) {
        int on = (*x->p == '&') == (x->status == 0);
        x->p += 2;
        skip_between(x);
        x->skipped += !on;
        run_pipeline(x);
        x->skipped -= !on;
    }
}

static void run_list(sh *x, const char *stops)
{
    while (x->st == XD_OK) {
        skip_between(x);
        if (!*x->p || at_stop(x, stops))
            return;
        if (!strncmp(x->p, ";;", 2))
            x->p += 2;
        else if (++x->steps > MOST_STEPS)
            x->st = xd_fail(x->e, XD_EINVAL, "the script runs more than %d commands",
                            MOST_STEPS);
        else
            and_or(x);
    }
}

void sh_list_run(sh *x, const char *stops)
{
    run_list(x, stops);
}

/* ---- the interface --------------------------------------------------------------------------- */

static xd_status begin_shell(sh *x, xd_shell *s, xd_err *e)
{
    *x = (sh){ .s = s, .e = e, .cap = 256, .buf = calloc(1, 256) };
    return x->buf ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a script");
}

static xd_status end_shell(sh *x)
{
    sh_vars_free(x);
    sh_drop(&x->words);
    sh_drop(&x->funs);
    free(x->body);
    free(x->buf);
    free(x->unset);
    free(x->here);
    return x->st;
}

xd_status xd_shell_read(xd_shell *s, const char *text, int nargs, char **args, xd_err *e)
{
    sh x;
    if (begin_shell(&x, s, e) != XD_OK)
        return XD_ENOMEM;
    sh_set_list(&x, "@", nargs, args);
    x.p = text;
    run_list(&x, "");
    return end_shell(&x);
}

xd_status xd_shell_read_words(xd_shell *s, int argc, char **argv, xd_err *e)
{
    sh          x;
    const char *first = NULL, *sign;
    char      **right = xd_typo_args(&argc, argv, &first);
    int         i = 0;
    if (begin_shell(&x, s, e) != XD_OK) {
        free(right);
        return XD_ENOMEM;
    }
    s->typos |= right != NULL;
    argv = right ? right : argv;
    for (; i < argc && (sign = assignment_sign(argv[i])) && *sign == '='; i++) {
        char *name = strndup(argv[i], (size_t)(sign - argv[i]));
        if (name)
            sh_set(&x, name, sign + 1);
        free(name);
    }
    x.p = "";
    if (i < argc)
        sh_run_words(&x, argc - i, argv + i);
    free(right);
    return end_shell(&x);
}

const char *xd_shell_env(const xd_command_line *c, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < c->nenv; i++)
        if (strncmp(c->env[i], name, n) == 0 && c->env[i][n] == '=')
            return c->env[i] + n + 1;
    return NULL;
}

void xd_shell_free(xd_shell *s)
{
    for (int i = 0; i < s->n; i++) {
        sh_list words = { .n = s->command[i].n, .v = s->command[i].word };
        sh_list env = { .n = s->command[i].nenv, .v = s->command[i].env };
        sh_drop(&words);
        sh_drop(&env);
    }
    free(s->unset);
    free(s->substitutions);
    free(s->other);
    *s = (xd_shell){ 0 };
}

/* Returns 1 for control characters other than newlines, and for bytes that are not UTF-8. */
static int has_controls(const char *word)
{
    for (size_t n; *word; word += n) {
        unsigned char c = (unsigned char)*word, next = (unsigned char)word[1];
        n = xd_utf8_bytes(word);
        if (n == 0 || (c < 32 && c != '\n') || c == 127 || (c == 0xc2 && next < 0xa0))
            return 1;
    }
    return 0;
}

/* Prints a character within '' or, in words with control characters, within $''. */
static int quote_letter(FILE *f, char c, int controls)
{
    char text[8];
    if (c == '\'')
        snprintf(text, sizeof text, "%s", controls ? "\\'" : "'\\''");
    else if (controls && c == '\\')
        snprintf(text, sizeof text, "\\\\");
    else if (controls && ((unsigned char)c < 32 || (unsigned char)c >= 127))
        snprintf(text, sizeof text, "\\%03o", (unsigned)(unsigned char)c);
    else
        snprintf(text, sizeof text, "%c", c);
    if (f)
        fputs(text, f);
    return (int)strlen(text);
}

int xd_shell_quote(FILE *f, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=,:@%+";
    int controls = has_controls(word), columns = 2 + controls;
    if (*word && strspn(word, plain) == strlen(word)) {
        if (f)
            fputs(word, f);
        return (int)strlen(word);
    }
    if (f)
        fputs(controls ? "$'" : "'", f);
    for (const char *p = word; *p; p++)
        columns += quote_letter(f, *p, controls);
    if (f)
        fputc('\'', f);
    return columns;
}
