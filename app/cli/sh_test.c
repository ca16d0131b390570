/* sh_test.c - conditions and arithmetic of a script */
#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/sh.h"

enum { DEEPEST = 48 };

/* ---- arithmetic ------------------------------------------------------------------------------ */

typedef struct sum {
    sh         *x;
    const char *p;
    int         depth;
} sum;

static const struct sign { const char *text; int rank; } signs[] = {
    { "||", 1 }, { "&&", 2 }, { "==", 3 }, { "!=", 3 }, { "<=", 4 }, { ">=", 4 }, { "<", 4 },
    { ">", 4 },  { "+", 5 },  { "-", 5 },  { "*", 6 },  { "/", 6 },  { "%", 6 },
};
enum { NSIGNS = sizeof signs / sizeof *signs };

static int64_t eval_expression(sum *s, int rank);

static void skip_blanks(sum *s)
{
    while (isspace((unsigned char)*s->p))
        s->p++;
}

static void fail_sum(sum *s)
{
    if (sh_live(s->x))
        s->x->st =
            xd_fail(s->x->e, XD_EINVAL,
                    "'%.40s' in $((...)) is not supported: write its value", s->p);
    s->p += strlen(s->p);
}

static int64_t eval_primary(sum *s)
{
    char   *end;
    int64_t v = 0;
    skip_blanks(s);
    size_t n = sh_name_length(s->p);
    if (++s->depth > DEEPEST) {
        fail_sum(s);
    } else if (*s->p == '(') {
        s->p++;
        v = eval_expression(s, 1);
        skip_blanks(s);
        if (*s->p == ')')
            s->p++;
        else
            fail_sum(s);
    } else if (*s->p && strchr("-+!", *s->p)) {
        char sign = *s->p++;
        v = eval_primary(s);
        v = sign == '-' ? (int64_t)(0 - (uint64_t)v) : sign == '!' ? !v : v;
    } else if (n) {
        const sh_var *var = sh_find(s->x, s->p, n);
        const char   *text = var ? sh_value(var, "0") : NULL;
        v = text ? strtoll(text, NULL, 10) : 0;
        s->p += n;
    } else if (isdigit((unsigned char)*s->p)) {
        v = strtoll(s->p, &end, 10);
        s->p = end;
    } else {
        fail_sum(s);
    }
    s->depth--;
    return v;
}

static int64_t apply_sign(sum *s, const char *sign, int64_t a, int64_t b)
{
    if (strchr("/%", *sign) && (b == 0 || b == -1)) {
        if (!b)
            fail_sum(s);
        return b && *sign == '/' ? (int64_t)(0 - (uint64_t)a) : 0;
    }
    switch (*sign) {
    case '|': return a || b;
    case '&': return a && b;
    case '=': return a == b;
    case '!': return a != b;
    case '<': return sign[1] ? a <= b : a < b;
    case '>': return sign[1] ? a >= b : a > b;
    case '+': return (int64_t)((uint64_t)a + (uint64_t)b);
    case '-': return (int64_t)((uint64_t)a - (uint64_t)b);
    case '*': return (int64_t)((uint64_t)a * (uint64_t)b);
    case '/': return a / b;
    default: return a % b;
    }
}

static int64_t eval_expression(sum *s, int rank)
{
    int64_t v = eval_primary(s);
    for (;;) {
        int k = 0;
        skip_blanks(s);
        while (k < NSIGNS && strncmp(s->p, signs[k].text, strlen(signs[k].text)) != 0)
            k++;
        if (k == NSIGNS || signs[k].rank < rank)
            return v;
        s->p += strlen(signs[k].text);
        v = apply_sign(s, signs[k].text, v, eval_expression(s, signs[k].rank + 1));
    }
}

int64_t sh_arithmetic(sh *x, const char *text)
{
    sum     s = { .x = x, .p = text };
    int64_t v = eval_expression(&s, 1);
    skip_blanks(&s);
    if (*s.p)
        fail_sum(&s);
    return v;
}

/* ---- conditions ------------------------------------------------------------------------------ */

typedef struct test {
    sh    *x;
    int    n, i, depth, patterns;
    char **v;
} test;

static int eval_or(test *t);

static int is_word(const test *t, int i, const char *word)
{
    return i < t->n && strcmp(t->v[i], word) == 0;
}

static int is_set(sh *x, const char *word)
{
    size_t        n = sh_name_length(word);
    const sh_var *v = n ? sh_find(x, word, n) : NULL;
    char          key[256];
    if (!v || word[n] != '[')
        return v && v->value.n;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(word + n + 1, "]"), word + n + 1);
    return !strcmp(key, "@") ? v->value.n > 0 : sh_value(v, key) != NULL;
}

static int of_one(test *t, char what, const char *word)
{
    struct stat st;
    switch (what) {
    case 'n': return *word != 0;
    case 'z': return !*word;
    case 'v': return is_set(t->x, word);
    case 'd': return stat(word, &st) == 0 && S_ISDIR(st.st_mode);
    case 'f': return stat(word, &st) == 0 && S_ISREG(st.st_mode);
    case 's': return stat(word, &st) == 0 && st.st_size > 0;
    default: return access(word, F_OK) == 0;
    }
}

static int of_two(test *t, const char *a, const char *sign, const char *b)
{
    long long x = strtoll(a, NULL, 10), y = strtoll(b, NULL, 10);
    int       same = t->patterns ? fnmatch(b, a, 0) == 0 : strcmp(a, b) == 0;
    if (!strcmp(sign, "=") || !strcmp(sign, "=="))
        return same;
    if (!strcmp(sign, "!="))
        return !same;
    if (!strcmp(sign, "<") || !strcmp(sign, ">"))
        return *sign == '<' ? strcmp(a, b) < 0 : strcmp(a, b) > 0;
    static const char *const names[] = { "-eq", "-ne", "-lt", "-le", "-gt", "-ge" };
    const int results[] = { x == y, x != y, x < y, x <= y, x > y, x >= y };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(sign, names[i]))
            return results[i];
    if (sh_live(t->x))
        t->x->st =
            xd_fail(t->x->e, XD_EINVAL, "'%.40s' in a condition is not supported", sign);
    return 0;
}

static int is_sign(const test *t, int i)
{
    return i < t->n && (strchr("=!<>", t->v[i][0]) ? t->v[i][0] && strcmp(t->v[i], "!") != 0
                        : t->v[i][0] == '-' && strlen(t->v[i]) == 3);
}

static int eval_one(test *t)
{
    int v = 0;
    if (t->i >= t->n || ++t->depth > DEEPEST) {
        t->i = t->n;
    } else if (is_word(t, t->i, "!") && t->i + 1 < t->n) {
        t->i++;
        v = !eval_one(t);
    } else if (is_word(t, t->i, "(") && !is_sign(t, t->i + 1)) {
        t->i++;
        v = eval_or(t);
        t->i += is_word(t, t->i, ")");
    } else if (is_sign(t, t->i + 1) && t->i + 2 < t->n) {
        v = of_two(t, t->v[t->i], t->v[t->i + 1], t->v[t->i + 2]);
        t->i += 3;
    } else if (t->v[t->i][0] == '-' && strlen(t->v[t->i]) == 2 && t->i + 1 < t->n) {
        v = of_one(t, t->v[t->i][1], t->v[t->i + 1]);
        t->i += 2;
    } else {
        v = t->v[t->i++][0] != 0;
    }
    return v;
}

static int eval_and(test *t)
{
    int v = eval_one(t);
    while (is_word(t, t->i, "-a") || is_word(t, t->i, "&&")) {
        t->i++;
        v = eval_one(t) && v;
    }
    return v;
}

static int eval_or(test *t)
{
    int v = eval_and(t);
    while (is_word(t, t->i, "-o") || is_word(t, t->i, "||")) {
        t->i++;
        v = eval_and(t) || v;
    }
    return v;
}

int sh_true(sh *x, int n, char **v, int patterns)
{
    test t = { .x = x, .n = n, .v = v, .patterns = patterns };
    return n ? eval_or(&t) : 0;
}
