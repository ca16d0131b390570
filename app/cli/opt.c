/* opt.c - parses command lines with the help of tables of options; see opt.h */
#include "cli/opt.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/word_list.h"

enum { MAXNAME = 64, MAXFLAGS = 256 };

typedef struct reader {
    const xd_opt_spec *s;
    /* index i of the current argument; index `at` of the last argument that was an option */
    int                argc, i, at;
    char             **argv;
    const xd_option   *last; /* the option before the current argument; NULL: none */
    xd_err            *e;
} reader;

/* Splits an argument into name and value. Copies the argument's name to `name`, without its leading
 * dashes and with `_` in place of `-`. If the argument's name is longer than the name of any
 * option, `name` becomes empty. Returns the value after `=`, or NULL. */
static const char *split_name(const char *arg, char name[MAXNAME])
{
    size_t      dashes = strspn(arg, "-"), len = strcspn(arg + dashes, "=");
    const char *eq = arg[dashes + len] == '=' ? arg + dashes + len + 1 : NULL;
    if (len >= MAXNAME)
        len = 0;
    for (size_t i = 0; i < len; i++)
        name[i] = arg[dashes + i] == '-' ? '_' : arg[dashes + i];
    name[len] = 0;
    return eq;
}

/* Letters of options, such as -p for --prompt. A letter means the same option in every command. */
static const xd_opt_alias letters[] = {
    { "m", "model" },   { "p", "prompt" },  { "n", "negative_prompt" },
    { "o", "output" },  { "W", "width" },   { "H", "height" },
    { "s", "seed" },    { "t", "threads" }, { "q", "quiet" },
    { "v", "verbose" },
};

enum { LETTERS = sizeof letters / sizeof *letters };

static const char *long_name(const char *letter)
{
    for (int i = 0; i < LETTERS; i++)
        if (strcmp(letters[i].from, letter) == 0)
            return letters[i].to;
    return letter;
}

static const char *real_name(const xd_opt_spec *s, const char *name)
{
    name = long_name(name);
    for (const xd_opt_alias *a = s->aliases; a && a->from; a++)
        if (strcmp(a->from, name) == 0)
            return a->to;
    return name;
}

const char *xd_opt_letter(const xd_opt_spec *s, const char *name)
{
    for (int i = 0; i < LETTERS; i++)
        if (strcmp(real_name(s, letters[i].from), name) == 0)
            return letters[i].from;
    return NULL;
}

const xd_option *xd_opt_find(const xd_opt_spec *s, const char *name, void **field)
{
    const char *real = real_name(s, name);
    for (int t = 0; t < s->ntables; t++)
        for (int i = 0; i < s->tables[t].n; i++) {
            const xd_option *o = &s->tables[t].rows[i];
            if (strcmp(o->name, real) != 0)
                continue;
            *field = (char *)s->tables[t].record + o->offset;
            return o;
        }
    return NULL;
}

const char *xd_opt_typography(const char *word)
{
    for (const unsigned char *p = (const unsigned char *)word; *p; p++)
        if (p[0] == 0xe2 && p[1] == 0x80 && p[2] >= 0x98 && p[2] <= 0x9f)
            return "quote: type ' or \"";
        else if (p[0] == 0xe2 &&
                 ((p[1] == 0x80 && p[2] >= 0x90 && p[2] <= 0x97) || (p[1] == 0x88 && p[2] == 0x92)))
            return "dash: type - or --";
        else if (p[0] == 0xc2 && p[1] == 0xa0)
            return "space: type a plain one";
    return NULL;
}

static xd_status fail_typography(const char *word, xd_err *e)
{
    return xd_fail(e, XD_EINVAL, "'%.80s' contains a typographic %s", word,
                   xd_opt_typography(word));
}

/* ---- handling of unknown flags --------------------------------------------------------------- */

static xd_status fail_unknown(const reader *r, const char *name)
{
    const char *names[MAXFLAGS], *arg = r->argv[r->i];
    int         n = 0;
    for (int t = 0; t < r->s->ntables; t++)
        for (int i = 0; i < r->s->tables[t].n && n < MAXFLAGS; i++)
            names[n++] = r->s->tables[t].rows[i].name;
    for (const xd_opt_alias *a = r->s->aliases; a && a->from && n < MAXFLAGS; a++)
        names[n++] = a->from;
    const char      *hint = NULL, *known = xd_opt_synonym(name, names, n, &hint);
    const char      *best = known || hint ? known : xd_opt_nearest(name, names, n);
    int              shown = (int)strcspn(arg, "=");
    char             letter[2] = { arg[1], 0 };
    void            *field;
    const xd_option *o = arg[1] != '-' && arg[1] && arg[2] ? xd_opt_find(r->s, letter, &field)
                                                           : NULL;
    if (xd_opt_typography(arg))
        return fail_typography(arg, r->e);
    if (hint)
        return xd_fail(r->e, XD_EINVAL, "unknown flag %.*s; %s", shown, arg, hint);
    if (known)
        return xd_fail(r->e, XD_EINVAL, "unknown flag %.*s; use --%s", shown, arg,
                       real_name(r->s, known));
    if (long_name(name) != name)
        return xd_fail(r->e, XD_EINVAL, "unknown flag %.*s: this command has no --%s", shown, arg,
                       long_name(name));
    if (!best && o)
        return xd_fail(r->e, XD_EINVAL,
                       "unknown flag %.*s; write short options separately: -%s "
                       "%s%.80s",
                       shown, arg, letter, o->kind == XD_OPT_FLAG ? "-" : "", arg + 2);
    if (!best)
        return xd_fail(r->e, XD_EINVAL, "unknown flag %.*s", shown, arg);
    return xd_fail(r->e, XD_EINVAL, "unknown flag %.*s; the nearest one is --%s", shown, arg,
                   real_name(r->s, best));
}

/* ---- values ---------------------------------------------------------------------------------- */

static int is_whole(const xd_option *o)
{
    return o->kind == XD_OPT_INT || o->kind == XD_OPT_INT64;
}

/* Describes the numbers that an option accepts: "an integer from 1 to 1000". */
static void describe_number(const xd_option *o, char *text, size_t size)
{
    const char *what = is_whole(o) ? "an integer" : "a number";
    double      big = is_whole(o) ? 2147483647.0 : 1e9;
    if (o->min > 0 && o->min <= XD_ABOVE_ZERO && !is_whole(o))
        snprintf(text, size, o->max >= big ? "%s above 0" : "%s above 0 and up to %.10g", what,
                 o->max);
    else if (o->min <= -big && o->max >= big && !is_whole(o))
        snprintf(text, size, "%s", what);
    else if (o->max >= big && o->min > -big)
        snprintf(text, size, "%s of at least %g", what, o->min);
    else
        snprintf(text, size, "%s from %.10g to %.10g", what, o->min, o->max);
}

/* Sets a seed. Seeds have the range of torch, which takes a negative seed modulo 2^64. -1 is a
 * random seed. */
static xd_status set_seed(const xd_option *o, void *field, const char *v, xd_err *e)
{
    char *end;
    errno = 0;
    int64_t seed = *v == '-' ? strtoll(v, &end, 10) : (int64_t)strtoull(v, &end, 10);
    if (isspace((unsigned char)*v) || end == v || *end || errno)
        return xd_fail(e, XD_EINVAL, "--%s needs an integer from -2^63 to 2^64 - 1, not '%.80s'",
                       o->name, v);
    *(int64_t *)field = seed;
    *(int *)(void *)((char *)field + sizeof seed) = strcmp(v, "-1") == 0;
    return XD_OK;
}

/* Returns 1 if an option whose value is a number may also be written without a value, as --name. */
static int stands_alone(const xd_option *o)
{
    return o->choices && (is_whole(o) || o->kind == XD_OPT_REAL);
}

/* Returns the value of an option that is written without a value, or NULL if the option needs a
 * value. */
static const char *value_alone(const xd_option *o)
{
    if (o->kind == XD_OPT_TEXT && o->choices && o->arg && xd_list_has(o->choices, o->arg))
        return o->arg;
    return stands_alone(o) ? o->choices : NULL;
}

static xd_status set_number(const xd_option *o, void *field, const char *v, xd_err *e)
{
    char     *end, text[128];
    long long whole = 0;
    double    x;
    errno = 0;
    if (stands_alone(o))
        v = xd_list_has("true yes on", v) ? o->choices : xd_list_has("false no off", v) ? "0" : v;
    if (is_whole(o))
        x = (double)(whole = strtoll(v, &end, 10));
    else
        x = strtod(v, &end);
    /* 0: the number is refused, because it begins with a space (" 5") or is hexadecimal (0x5) */
    int plain = !isspace((unsigned char)*v) && !strpbrk(v, "xX");
    int ok = plain && end != v && !*end && errno == 0 && isfinite(x) && x >= o->min && x <= o->max;
    if (ok && o->kind == XD_OPT_INT && (whole > 2147483647 || whole < -2147483647))
        ok = 0;
    if (!ok) {
        describe_number(o, text, sizeof text);
        return xd_fail(e, XD_EINVAL, "--%s needs %s, not '%.80s'", o->name, text, v);
    }
    if (o->kind == XD_OPT_INT)
        *(int *)field = (int)whole;
    else if (o->kind == XD_OPT_INT64)
        *(int64_t *)field = (int64_t)whole;
    else
        *(double *)field = x;
    return XD_OK;
}

void xd_opt_spell(const char *list, char *text, size_t size)
{
    const char *last = strrchr(list, ' ');
    size_t      n = 0;
    for (const char *p = list; *p && n + 8 < size; p++) {
        const char *add = p == last ? " or " : *p == ' ' ? ", " : NULL;
        if (add)
            n += (size_t)snprintf(text + n, size - n, "%s", add);
        else
            text[n++] = *p;
    }
    text[n] = 0;
}

static xd_status set_text(const xd_option *o, void *field, const char *v, xd_err *e)
{
    char text[512];
    if (o->choices && xd_list_has(o->choices, xd_word_dtype(v)))
        v = xd_word_dtype(v);
    if (o->choices && !xd_list_has(o->choices, v)) {
        int half = xd_list_has(o->choices, "bf16") && xd_word_half(v);
        xd_opt_spell(o->choices, text, sizeof text);
        return xd_fail(e, XD_EINVAL, "--%s needs %s, not '%.80s'%s", o->name, text, v,
                       half ? ": these models exceed the range of float16 (65504); use bf16" : "");
    }
    if (!*v && o->arg && xd_list_has("FILE FILE[:SCALE] DIR", o->arg))
        return xd_fail(e, XD_EINVAL, "--%s needs a name, not an empty text", o->name);
    if (o->max < XD_OPT_MANY) {
        *(const char **)field = v;
        return XD_OK;
    }
    xd_opt_texts *t = field;
    const char  **more = realloc(t->v, (size_t)(t->n + 1) * sizeof *more);
    if (!more)
        return xd_fail(e, XD_ENOMEM, "no memory for %d values of --%s", t->n + 1, o->name);
    t->v = more;
    t->v[t->n++] = v;
    return XD_OK;
}

/* Returns 1 if the argument that follows a switch is "true" or "false", and thus the switch's
 * value. */
static int is_switch(const char *arg)
{
    return arg && xd_list_has("true false", arg);
}

static xd_status set_switch(const xd_option *o, void *field, const char *v, xd_err *e)
{
    int on = !v || xd_list_has("1 true yes on", v), off = v && xd_list_has("0 false no off", v);
    if (!on && !off)
        return xd_fail(e, XD_EINVAL, "--%s takes no value, or true or false, not '%.80s'", o->name,
                       v);
    *(int *)field = on ? 1 : o->min < 0 ? -1 : 0;
    return XD_OK;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static xd_status fail_missing(const reader *r, const xd_option *o)
{
    const char *next = r->i + 1 < r->argc ? r->argv[r->i + 1] : NULL;
    if (next)
        return xd_fail(r->e, XD_EINVAL,
                       "--%s needs a value: --%s %s; if '%.80s' is the value, "
                       "write --%s='%.80s'",
                       o->name, o->name, o->arg ? o->arg : "VALUE", next, o->name, next);
    return xd_fail(r->e, XD_EINVAL, "--%s needs a value: --%s %s", o->name, o->name,
                   o->arg ? o->arg : "VALUE");
}

/* Returns 1 if the argument is an option and not a value. An option begins with two dashes and has
 * no space in its name, or is a known letter. */
static int is_flag(const reader *r, const char *arg)
{
    void *field;
    return (strncmp(arg, "--", 2) == 0 && !memchr(arg, ' ', strcspn(arg, "="))) ||
           (arg[0] == '-' && arg[1] && !arg[2] && xd_opt_find(r->s, arg + 1, &field));
}

/* Returns the value of an option: the argument that follows the option. Returns NULL if the value
 * is missing, because the next argument is another option. A value that looks like an option must
 * be written with `=`. */
static const char *next_value(reader *r)
{
    if (r->i + 1 >= r->argc || is_flag(r, r->argv[r->i + 1]))
        return NULL;
    return r->argv[++r->i];
}

static int next_is_number(const reader *r)
{
    char *end = NULL;
    return r->i + 1 < r->argc && (strtod(r->argv[r->i + 1], &end), end != r->argv[r->i + 1]) &&
           !*end;
}

static int next_is_choice(const reader *r, const xd_option *o)
{
    return o->kind == XD_OPT_TEXT && r->i + 1 < r->argc &&
           xd_list_has(o->choices, r->argv[r->i + 1]);
}

/* Skips a command-line flag of another program, and the values of the flag. */
static xd_status read_other_flag(reader *r, const char *name, const char *v)
{
    int       values = -1;
    xd_status s = r->s->other_flag(r->s->cookie, name, &values, r->e);
    if (s != XD_OK)
        return s;
    if (values < 0)
        return fail_unknown(r, name);
    if (values == 1 && !v && !next_value(r))
        return xd_fail(r->e, XD_EINVAL, "--%s needs a value", name);
    while (values == 2 && r->i + 1 < r->argc && r->argv[r->i + 1][0] != '-')
        r->i++;
    return XD_OK;
}

static xd_status set_value(const reader *r, const xd_option *o, void *field, const char *v)
{
    xd_status s = o->kind == XD_OPT_FLAG   ? set_switch(o, field, v, r->e)
                  : o->kind == XD_OPT_TEXT ? set_text(o, field, v, r->e)
                  : o->kind == XD_OPT_SEED ? set_seed(o, field, v, r->e)
                                           : set_number(o, field, v, r->e);
    if (s == XD_OK && r->s->on_option)
        r->s->on_option(r->s->cookie, o, v);
    return s;
}

static xd_status read_flag(reader *r)
{
    char             name[MAXNAME];
    void            *field = NULL;
    const char      *arg = r->argv[r->i], *v = split_name(arg, name);
    const xd_option *o = xd_opt_find(r->s, name, &field);
    int              short_form = arg[1] != '-';
    r->last = o;
    r->at = r->i;
    if (!o && !short_form && name[0] && r->s->other_flag)
        return read_other_flag(r, name, v);
    if (!o || short_form != (name[0] && !name[1]))
        return fail_unknown(r, name);
    if (!v && value_alone(o))
        v = next_is_number(r) || next_is_choice(r, o) ? r->argv[++r->i] : value_alone(o);
    if (o->kind == XD_OPT_FLAG && !v && is_switch(r->i + 1 < r->argc ? r->argv[r->i + 1] : NULL))
        v = r->argv[++r->i];
    if (o->kind != XD_OPT_FLAG && !v && !(v = next_value(r)))
        return fail_missing(r, o);
    if (r->s->once && xd_list_has(r->s->once, o->name) && *(const char *const *)field)
        return xd_fail(r->e, XD_EINVAL, "--%s may be given only once; '%.80s' is a second value",
                       o->name, v);
    return set_value(r, o, field, v);
}

static int plain_name(const char *v)
{
    return strlen(v) > 2 && strspn(v, "abcdefghijklmnopqrstuvwxyz_0123456789") == strlen(v);
}

/* Returns 1 if the command line sets the option `operand_of`, which an argument without an option's
 * name could also set. */
static int has_option(const xd_opt_spec *s)
{
    void *field = NULL;
    return s->operand_of && xd_opt_find(s, s->operand_of, &field) && ((xd_opt_texts *)field)->n;
}

static xd_status read_operand(reader *r, xd_opt_texts *operands)
{
    const xd_option row = { .name = "argument", .kind = XD_OPT_TEXT, .max = XD_OPT_MANY };
    const char     *v = r->argv[r->i];
    void           *field;
    int             full = !operands || operands->n >= r->s->operands || has_option(r->s);
    if (xd_opt_typography(v) && (full || (v[0] == '\xe2' && !strchr(v, ' '))))
        return fail_typography(v, r->e);
    if (full && r->last && r->last->arg && strcmp(r->last->arg, "LIST") == 0)
        return xd_fail(r->e, XD_EINVAL,
                       "one argument too many: '%.80s'; write the list of --%s without spaces: "
                       "a,b",
                       v, r->last->name);
    if (full && r->last && r->last->kind == XD_OPT_FLAG && r->at == r->i - 1)
        return xd_fail(r->e, XD_EINVAL, "one argument too many: '%.80s'; --%s takes no value", v,
                       r->last->name);
    if (full && plain_name(v) && xd_opt_find(r->s, v, &field))
        return xd_fail(r->e, XD_EINVAL, "one argument too many: '%.80s'; did you mean --%s?", v, v);
    if (full)
        return xd_fail(r->e, XD_EINVAL, "one argument too many: '%.80s'%s%s", v,
                       r->s->extra_hint ? "; " : "", r->s->extra_hint ? r->s->extra_hint : "");
    return set_text(&row, operands, v, r->e);
}

xd_status xd_opt_parse(const xd_opt_spec *s, int argc, char **argv, xd_opt_texts *operands,
                       xd_err *e)
{
    reader    r = { .s = s, .argc = argc, .argv = argv, .e = e };
    xd_status st = XD_OK;
    int       flags = 1; /* 1: arguments may be options; 0 after "--" */
    for (; r.i < argc && st == XD_OK; r.i++) {
        const char *arg = argv[r.i];
        if (flags && strcmp(arg, "--") == 0)
            flags = 0;
        else if (flags && arg[0] == '-' && arg[1])
            st = read_flag(&r);
        else
            st = read_operand(&r, operands);
    }
    return st;
}

void xd_opt_texts_free(xd_opt_texts *t)
{
    free(t->v);
    *t = (xd_opt_texts){ 0 };
}

xd_status xd_opt_operand(const char **value, xd_opt_texts *operands, const char *name, xd_err *e)
{
    const char *v = operands->n ? operands->v[0] : NULL;
    xd_opt_texts_free(operands);
    if (v && *value)
        return xd_fail(e, XD_EINVAL, "one argument too many: '%.80s'; --%s %.80s is also given", v,
                       name, *value);
    if (v)
        *value = v;
    return XD_OK;
}
