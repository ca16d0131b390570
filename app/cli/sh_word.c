/* sh_word.c - words of a script: quotes, and expansion of variables */
#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/word_list.h"
#include "cli/sh.h"
#include "cli/typo.h"

enum { LONGEST = 1 << 18, LONGEST_MATCHED = 4096, DEEPEST = 48, MAX_SUBSTITUTIONS = 65536 };

static void expand_dollar(sh *x, int quoted);
static void expand_backquotes(sh *x);

static void put_char(sh *x, char c)
{
    if (x->len + 2 > x->cap) {
        char *q = x->len < LONGEST ? realloc(x->buf, x->cap * 2 + 64) : NULL;
        if (!q) {
            x->st =
                xd_fail(x->e, XD_EINVAL,
                        "a word of the script is longer than %d KB, or memory is exhausted",
                        LONGEST >> 10);
            return;
        }
        x->buf = q;
        x->cap = x->cap * 2 + 64;
    }
    x->buf[x->len++] = c;
    x->buf[x->len] = 0;
    x->in_word = 1;
}

static void put_text(sh *x, const char *text)
{
    for (; *text && x->st == XD_OK; text++)
        put_char(x, *text);
}

static void end_word(sh *x)
{
    if (!x->in_word)
        return;
    if (x->len)
        sh_append(x, &x->words, x->buf);
    else
        sh_append(x, &x->words, "");
    x->in_word = 0;
    x->len = 0;
}

/* Reports an unsupported expansion, except in a branch that is not taken. */
static void fail_unknown(sh *x, const char *what)
{
    if (sh_live(x))
        x->st = xd_fail(x->e, XD_EINVAL, "'$%.40s' is not supported: write its value", what);
}

const char *sh_closing(const char *p, char open, char close)
{
    const char *q;
    for (int depth = 1; *p; p++) {
        if (*p == '\\' && p[1]) {
            p++;
        } else if (*p == '\'' && (q = strchr(p + 1, '\''))) {
            p = q;
        } else if (*p == '"') {
            for (q = p + 1; *q && *q != '"'; q++)
                q += *q == '\\' && q[1];
            p = *q ? q : p;
        } else if (*p == close && !--depth) {
            return p;
        } else {
            depth += *p == open;
        }
    }
    return NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Length of a command substitution at p. */
static size_t substitution_at(const xd_shell *s, const char *p)
{
    for (const char *t = *p == '$' || *p == '`' ? s->substitutions : NULL; t && *t;
         t += strcspn(t, "\n") + 1) {
        size_t n = strcspn(t, "\n");
        if (strncmp(p, t, n) == 0)
            return n;
    }
    return 0;
}

int xd_shell_has_substitution(const xd_shell *s, const char *word)
{
    for (; *word; word++)
        if (substitution_at(s, word))
            return 1;
    return 0;
}

/* Appends a value; unquoted, it is split into words at spaces outside of $(a command). */
static void emit_text(sh *x, const char *text, int quoted)
{
    if (quoted || x->no_split) {
        put_text(x, text);
        return;
    }
    for (; *text && x->st == XD_OK; text++) {
        size_t n = substitution_at(x->s, text);
        for (; n > 1; n--)
            put_char(x, *text++);
        if (isspace((unsigned char)*text))
            end_word(x);
        else
            put_char(x, *text);
    }
}

/* Appends all elements of a list, one word each; "${A[*]}" and unsplit lists are one word. */
static void emit_list(sh *x, const sh_list *v, int star, int quoted)
{
    for (int i = 0; i < v->n && x->st == XD_OK; i++) {
        if (i && (x->no_split || (quoted && star)))
            put_char(x, ' ');
        else if (i)
            end_word(x);
        if (quoted)
            x->in_word = 1;
        emit_text(x, v->v[i], quoted);
    }
}

static int is_every(const char *key)
{
    return key && (!strcmp(key, "@") || !strcmp(key, "*"));
}

static const char *outside_value(const char *name, size_t n)
{
    char word[32];
    if (n >= sizeof word || !xd_list_has_n("HOME PWD USER LOGNAME HOSTNAME TMPDIR", name, n))
        return NULL;
    snprintf(word, sizeof word, "%.*s", (int)n, name);
    return getenv(word);
}

/* Copies the values of NAME, NAME[KEY] or NAME[@]; returns 0 if it is unset. */
static int fetch_values(sh *x, const char *name, size_t n, const char *key, sh_list *out)
{
    char          text[24];
    const char   *one = NULL;
    const sh_var *v = NULL;
    int           number = n ? atoi(name) : 0;
    if (n == 1 && strchr("@*", *name)) {
        v = sh_find(x, "@", 1);
        key = "@";
    } else if (isdigit((unsigned char)*name) && number) {
        snprintf(text, sizeof text, "%d", number - 1);
        one = sh_value(sh_find(x, "@", 1), text);
    } else if (n == 1 && strchr("#?$!-0", *name)) {
        v = sh_find(x, "@", 1);
        snprintf(text, sizeof text, "%d",
                 *name == '#'   ? (v ? v->value.n : 0)
                 : *name == '?' ? x->status
                                : 1);
        one = *name == '0' ? "sh" : *name == '-' ? "" : text;
        v = NULL;
    } else {
        v = sh_find(x, name, n);
        one = v ? sh_value(v, key && !is_every(key) ? key : "0") : outside_value(name, n);
    }
    if (v && v->unset)
        sh_note_unset(x, v->unset);
    if (v && is_every(key))
        for (int i = 0; i < v->value.n; i++)
            sh_append(x, out, v->value.v[i]);
    else if (one)
        sh_append(x, out, one);
    return is_every(key) ? out->n > 0 : one != NULL;
}

/* Unset variables expand to nothing and are reported, except PATH-like ones. */
static void note_missing(sh *x, const char *name, size_t n)
{
    char text[80];
    if (!sh_live(x) || !(sh_name_length(name) || isdigit((unsigned char)*name)) ||
        (n >= 4 && strncmp(name + n - 4, "PATH", 4) == 0))
        return;
    snprintf(text, sizeof text, "$%.*s", (int)(n < 64 ? n : 64), name);
    sh_note_unset(x, text);
}

/* ---- ${...} ---------------------------------------------------------------------------------- */

/* Removes the shortest (or longest) match of a pattern from one end. */
static void strip_pattern(sh *x, char *text, const char *pattern, int front, int longest)
{
    size_t n = strlen(text), best = 0;
    int    found = 0;
    if (n > LONGEST_MATCHED) {
        fail_unknown(x, "{...} of a long text");
        return;
    }
    for (size_t k = 0; k <= n && (longest || !found); k++) {
        char c = text[k];
        if (front)
            text[k] = 0;
        if (fnmatch(pattern, front ? text : text + n - k, 0) == 0)
            best = k, found = 1;
        text[k] = c;
    }
    if (found && front)
        memmove(text, text + best, n - best + 1);
    else if (found)
        text[n - best] = 0;
}

/* ${X/WHAT/WITH} for plain texts. */
static void replace_all(sh *x, const sh_list *v, const char *op, int quoted)
{
    int         all = op[1] == '/';
    const char *what = op + 1 + all, *slash = what;
    while (*slash && *slash != '/')
        slash += *slash == '\\' && slash[1] ? 2 : 1;
    slash = *slash ? slash : NULL;
    char       *from = sh_expand(x, what, slash ? (size_t)(slash - what) : strlen(what));
    char       *to = sh_expand(x, slash ? slash + 1 : "", slash ? strlen(slash + 1) : 0);
    size_t      n = from ? strlen(from) : 0;
    if (!from || !to || !n || strpbrk(from, "*?[")) {
        fail_unknown(x, "{X/...}");
    } else {
        for (const char *p = v->n ? v->v[0] : ""; *p && x->st == XD_OK;) {
            char one[2] = { *p, 0 };
            int  hit = n && strncmp(p, from, n) == 0;
            emit_text(x, hit ? to : one, quoted);
            p += hit ? n : 1;
            n = hit && !all ? 0 : n;
        }
    }
    free(from);
    free(to);
}

/* ${X-WORD}, ${X=WORD}, ${X+WORD}, ${X?WORD}. */
static void use_instead(sh *x, const char *name, size_t n, const char *op, const sh_list *v,
                        int set, int quoted)
{
    int   colon = op[0] == ':', present = set && (!colon || (v->n && v->v[0][0]));
    char  what = op[colon];
    char *word = sh_expand(x, op + colon + 1, strlen(op + colon + 1)), *copy = NULL;
    if ((what == '+') == present && what != '?') {
        if (word)
            emit_text(x, word, quoted);
        if (what == '=' && sh_live(x) && word && (copy = strndup(name, n)))
            sh_set(x, copy, word);
    } else if (what != '+') {
        if (!present)
            note_missing(x, name, n);
        emit_list(x, v, 0, quoted);
    }
    free(copy);
    free(word);
}

static void apply_operator(sh *x, const char *in, size_t n, const char *op, sh_list *v, int set,
                           int quoted)
{
    char *pattern = NULL, after = op[op[0] == ':'];
    if (after && strchr("-=+?", after)) {
        use_instead(x, in, n, op, v, set, quoted);
    } else if (op[0] == '/') {
        replace_all(x, v, op, quoted);
    } else if (op[0] == ',' || op[0] == '^') {
        for (int i = 0; i < v->n; i++)
            for (char *p = v->v[i]; *p; p++)
                if (p == v->v[i] || op[1] == op[0])
                    *p = (char)(op[0] == ',' ? tolower((unsigned char)*p)
                                             : toupper((unsigned char)*p));
        emit_list(x, v, 0, quoted);
    } else if (op[0] == '#' || op[0] == '%') {
        int twice = op[1] == op[0];
        pattern = sh_expand(x, op + 1 + twice, strlen(op + 1 + twice));
        for (int i = 0; pattern && i < v->n; i++)
            strip_pattern(x, v->v[i], pattern, op[0] == '#', twice);
        emit_list(x, v, 0, quoted);
    } else {
        fail_unknown(x, "{...}");
    }
    free(pattern);
}

/* ${#X}: length or number of elements. ${!X}: keys, or the value of the variable named by X. */
static void length_or_keys(sh *x, char kind, const char *name, size_t n, const char *key,
                           const sh_list *v, int quoted)
{
    const sh_var *var = sh_find(x, name, n);
    sh_list       other = { 0 };
    char          text[24];
    int           every = is_every(key) || *name == '@' || *name == '*';
    if (kind == '#') {
        snprintf(text, sizeof text, "%d", every ? v->n : v->n ? (int)strlen(v->v[0]) : 0);
        put_text(x, text);
    } else if (every) {
        if (var)
            emit_list(x, &var->key, key && *key == '*', quoted);
    } else if (v->n) {
        if (!fetch_values(x, v->v[0], strlen(v->v[0]), NULL, &other))
            note_missing(x, v->v[0], strlen(v->v[0]));
        emit_list(x, &other, 0, quoted);
    }
    sh_drop(&other);
}

static void expand_parameter(sh *x, const char *in, int quoted)
{
    char kind = (in[0] == '#' || in[0] == '!') && in[1] && !strchr(":-=+?", in[1]) ? in[0] : 0;
    const char *name = in + (kind != 0), *end = NULL;
    size_t      n = sh_name_length(name);
    sh_list     v = { 0 };
    char       *key = NULL;
    if (!n && isdigit((unsigned char)*name))
        n = strspn(name, "0123456789");
    else if (!n && *name && strchr("@*#?$!", *name))
        n = 1;
    const char *op = name + n;
    if (*op == '[' && (end = sh_closing(op + 1, '[', ']'))) {
        key = sh_expand(x, op + 1, (size_t)(end - op - 1));
        op = end + 1;
    }
    int set = n ? fetch_values(x, name, n, key, &v) : 0;
    int star = *name == '*' || (key && *key == '*');
    if (!n || (kind && *op) || n > 9999)
        fail_unknown(x, "{...}");
    else if (kind)
        length_or_keys(x, kind, name, n, key, &v, quoted);
    else if (*op)
        apply_operator(x, name, n, op, &v, set, quoted);
    else if (!set && !is_every(key))
        note_missing(x, name, n);
    else
        emit_list(x, &v, star, quoted);
    sh_drop(&v);
    free(key);
}

/* ---- $ --------------------------------------------------------------------------------------- */

/* The output of a command is unknown: its text is kept in place. */
static void keep_command(sh *x, const char *from, const char *end)
{
    xd_text_buf b = { 0 };
    const char *all = x->s->substitutions;
    char       *text = strndup(from, (size_t)(end - from));
    if (text && sh_live(x) && strlen(text) < 4096) {
        for (char *p = text; *p; p++)
            *p = *p == '\n' ? ' ' : *p;
        xd_buf_add(&b, "%s%s\n", all && strlen(all) < MAX_SUBSTITUTIONS ? all : "", text);
        free(x->s->substitutions);
        x->s->substitutions = b.p;
        put_text(x, text);
    }
    free(text);
    x->p = end;
}

static void expand_arithmetic(sh *x)
{
    const char *from = x->p + 2, *end = sh_closing(from, '(', ')');
    char        text[24];
    if (!end || end[1] != ')') {
        x->st = xd_fail(x->e, XD_EINVAL, "'$((' is not closed");
        return;
    }
    char *in = sh_expand(x, from, (size_t)(end - from));
    x->p = end + 2;
    snprintf(text, sizeof text, "%lld", in ? (long long)sh_arithmetic(x, in) : 0);
    put_text(x, text);
    free(in);
}

static void expand_substitution(sh *x)
{
    const char *end = sh_closing(x->p + 1, '(', ')');
    if (!end)
        x->st = xd_fail(x->e, XD_EINVAL, "'$(' is not closed");
    else
        keep_command(x, x->p - 1, end + 1);
}

static void expand_braces(sh *x, int quoted)
{
    const char *end = sh_closing(x->p + 1, '{', '}');
    char       *in = end ? strndup(x->p + 1, (size_t)(end - x->p - 1)) : NULL;
    if (!end)
        x->st = xd_fail(x->e, XD_EINVAL, "'${' is not closed");
    else
        x->p = end + 1;
    if (in && ++x->depth < DEEPEST)
        expand_parameter(x, in, quoted);
    else if (in)
        fail_unknown(x, "{...}");
    x->depth -= in != NULL;
    free(in);
}

/* $'...' */
static void expand_escaped(sh *x)
{
    static const char codes[] = "n\nt\tr\r";
    x->in_word = 1;
    for (x->p++; *x->p && *x->p != '\''; x->p++) {
        const char *code = *x->p == '\\' && x->p[1] ? strchr(codes, *++x->p) : NULL;
        put_char(x, code && (code - codes) % 2 == 0 ? code[1] : *x->p);
    }
    x->p += *x->p == '\'';
}

/* Expands at the character after a dollar sign. */
static void expand_dollar(sh *x, int quoted)
{
    const char *p = x->p;
    size_t      n = sh_name_length(p);
    sh_list     v = { 0 };
    x->plain = 0;
    if (!n && (isdigit((unsigned char)*p) || (*p && strchr("@*#?$!", *p))))
        n = 1;
    if (p[0] == '(' && p[1] == '(') {
        expand_arithmetic(x);
    } else if (*p == '(') {
        expand_substitution(x);
    } else if (*p == '{') {
        expand_braces(x, quoted);
    } else if (n) {
        x->p += n;
        if (fetch_values(x, p, n, NULL, &v) || *p == '@' || *p == '*')
            emit_list(x, &v, *p == '*', quoted);
        else
            note_missing(x, p, n);
        sh_drop(&v);
    } else if (*p == '\'' && !quoted) {
        expand_escaped(x);
    } else if (*p != '"' || quoted) {
        put_char(x, '$');
    }
}

static void expand_backquotes(sh *x)
{
    const char *end = x->p + 1;
    while (*end && *end != '`')
        end += *end == '\\' && end[1] ? 2 : 1;
    if (*end)
        keep_command(x, x->p, end + 1);
    else
        x->st = xd_fail(x->e, XD_EINVAL, "a quote ` is not closed");
}

/* ---- characters ------------------------------------------------------------------------------ */

/* Reads a quoted text at its opening quote of k bytes, which may be typographic. */
static void in_quotes(sh *x, int k, int twice)
{
    const char *opening = x->p;
    int         blog = k > 1, at = 0, words = x->words.n;
    x->p += k;
    x->plain = 0;
    for (; *x->p && x->st == XD_OK; ) {
        char c = *x->p;
        at = blog ? (twice ? xd_typo_double(x->p) : xd_typo_single(x->p)) : 0;
        at = at ? at : c == (twice ? '"' : '\'');
        if (at)
            break;
        x->p++;
        if (twice && c == '\\' && *x->p && strchr("\"\\$`\n", *x->p)) {
            if (*x->p != '\n')
                put_char(x, *x->p);
            x->p++;
        } else if (twice && c == '$') {
            expand_dollar(x, 1);
        } else if (twice && c == '`') {
            x->p--;
            expand_backquotes(x);
        } else {
            put_char(x, c);
        }
    }
    if (x->st == XD_OK && !*x->p)
        x->st = xd_fail(x->e, XD_EINVAL, "a quote %.*s is not closed", k, opening);
    /* "$@" without arguments is no word; "" and "$EMPTY" are words. */
    int none =
        twice && !x->len && words == x->words.n && !x->in_word &&
        (!strncmp(opening + k, "$@\"", 3) || (x->p - opening > 4 && !strncmp(x->p - 4, "[@]}", 4)));
    x->in_word |= !none;
    x->p += at;
}

static void expand_backslash(sh *x)
{
    const char *p = x->p + 1;
    size_t      blanks = strspn(p, " \t\r");
    if (!p[blanks] || p[blanks] == '\n' || (blanks && p[blanks] == '#')) { /* pasted spaces      */
        x->p = p + blanks + (p[blanks] == '#' ? strcspn(p + blanks, "\n") : 0);
        x->p += *x->p == '\n';
        return;
    }
    x->plain = 0;
    put_char(x, *p);
    x->p = p + 1;
}

/* Returns 1 within the name of a flag. */
static int in_flag(const sh *x)
{
    return x->in_word && x->len && x->buf[0] == '-' && !memchr(x->buf, '=', x->len);
}

static void expand_letter(sh *x)
{
    const char *means;
    int         k;
    char        c = *x->p;
    if (c == '\'' || c == '"') {
        in_quotes(x, 1, c == '"');
    } else if ((k = xd_typo_double(x->p)) ||
               (!(x->in_word && x->len) && (k = xd_typo_single(x->p)))) {
        x->s->typos = 1;
        in_quotes(x, k, xd_typo_double(x->p) > 0);
    } else if (!x->in_word && (k = xd_typo_flag(x->p, &means))) {
        x->s->typos = 1;
        put_text(x, means);
        x->p += k;
    } else if ((k = xd_typo_dash(x->p)) && in_flag(x)) {
        put_char(x, '-');
        x->p += k;
    } else if ((k = xd_typo_zero_width(x->p))) {
        x->p += k;
    } else if (c == '\\') {
        expand_backslash(x);
    } else if (c == '$') {
        x->p++;
        expand_dollar(x, 0);
    } else if (c == '`') {
        expand_backquotes(x);
    } else {
        put_char(x, c);
        x->p++;
    }
}

int sh_word(sh *x, int whole)
{
    const char *from = x->p;
    x->no_split += whole;
    x->in_word = 0;
    x->len = 0;
    x->plain = 1;
    while (x->st == XD_OK && *x->p && !strchr(" \t\r\n;&|<>()", *x->p) && !xd_typo_blank(x->p))
        expand_letter(x);
    end_word(x);
    x->no_split -= whole;
    return x->p != from;
}

char *sh_one(sh *x)
{
    int   n = x->words.n;
    char *text = NULL;
    sh_word(x, 1);
    if (x->words.n > n) {
        text = x->words.v[n];
        while (x->words.n > n + 1)
            free(x->words.v[--x->words.n]);
        x->words.n = n;
        return text;
    }
    return strdup("");
}

char *sh_expand(sh *x, const char *text, size_t n)
{
    sh    outer = *x;
    char *copy = strndup(text, n), *buf = calloc(1, 64);
    if (!copy || !buf || x->depth > DEEPEST) {
        x->st =
            xd_fail(x->e, XD_ENOMEM, "no memory for a script, or it is nested too deeply");
        free(buf);
        buf = NULL;
    } else {
        x->p = copy;
        x->buf = buf;
        x->cap = 64;
        x->len = 0;
        x->in_word = 0;
        x->no_split = 1;
        x->depth++;
        while (*x->p && x->st == XD_OK)
            expand_letter(x);
        buf = x->buf;
    }
    x->p = outer.p;
    x->buf = outer.buf;
    x->cap = outer.cap;
    x->len = outer.len;
    x->in_word = outer.in_word;
    x->plain = outer.plain;
    x->no_split = outer.no_split;
    x->depth = outer.depth;
    free(copy);
    return buf;
}
