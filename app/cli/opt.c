/* opt.c - the table-driven reader of command lines */
#include "cli/opt.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/words.h"

enum { MAXNAME = 64, MAXFLAGS = 128 };

typedef struct reader {
    const xd_opt_spec *s;
    int                argc, i;
    char             **argv;
    const xd_option   *last;            /* of the flag before the argument; NULL: none          */
    xd_err            *e;
} reader;

/* The name inside an argument: no leading dashes, `-` as `_`, nothing from `=` on. Returns the
 * value behind `=`, or NULL; `name` is empty when it is too long for any option. */
static const char *split(const char *arg, char name[MAXNAME])
{
    size_t dashes = strspn(arg, "-"), len = strcspn(arg + dashes, "=");
    const char *eq = arg[dashes + len] == '=' ? arg + dashes + len + 1 : NULL;
    if (len >= MAXNAME)
        len = 0;
    for (size_t i = 0; i < len; i++)
        name[i] = arg[dashes + i] == '-' ? '_' : arg[dashes + i];
    name[len] = 0;
    return eq;
}

static const char *real_name(const xd_opt_spec *s, const char *name)
{
    for (const xd_opt_alias *a = s->aliases; a && a->from; a++)
        if (strcmp(a->from, name) == 0)
            return a->to;
    return name;
}

static const xd_option *find(const xd_opt_spec *s, const char *name, void **field)
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

/* ---- unknown flags ---------------------------------------------------------------------- */

static int min3(int a, int b, int c)
{
    return a < b ? (a < c ? a : c) : (b < c ? b : c);
}

/* Edit distance where a swap of neighbours counts once. */
static int edits_between(const char *a, const char *b)
{
    int na = (int)strlen(a), nb = (int)strlen(b), d[3][MAXNAME + 1];
    if (na >= MAXNAME || nb >= MAXNAME)
        return MAXNAME;
    for (int j = 0; j <= nb; j++)
        d[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *row = d[i % 3], *up = d[(i + 2) % 3], *up2 = d[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            row[j] = min3(up[j] + 1, row[j - 1] + 1, up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min3(row[j], up2[j - 2] + 1, row[j]);
        }
    }
    return d[na % 3][nb];
}

/* How far a name is from what was typed: by edits, or by one being a part of the other, so that
 * `--inference_steps` finds `--num_inference_steps`. */
static int distance(const char *word, const char *name)
{
    int k = edits_between(word, name), part = 2 * MAXNAME;
    if (strlen(word) > 2 && strstr(name, word))
        part = 2;
    else if (strlen(name) > 2 && strstr(word, name))
        part = 3;
    return part < k ? part : k;
}

const char *xd_opt_nearest(const char *word, const char *const *names, int n)
{
    const char *best = NULL;
    int         least = (int)strlen(word);      /* as many edits make any name of any word         */
    for (int i = 0; i < n; i++) {
        int k = distance(word, names[i]);
        if (k < least)
            least = k, best = names[i];
    }
    return best;
}

static xd_status unknown(const reader *r, const char *name)
{
    const char *names[MAXFLAGS], *arg = r->argv[r->i];
    int         n = 0;
    for (int t = 0; t < r->s->ntables; t++)
        for (int i = 0; i < r->s->tables[t].n && n < MAXFLAGS; i++)
            names[n++] = r->s->tables[t].rows[i].name;
    for (const xd_opt_alias *a = r->s->aliases; a && a->from && n < MAXFLAGS; a++)
        if (a->from[1])
            names[n++] = a->from;
    const char *best = xd_opt_nearest(name, names, n);
    int         shown = (int)strcspn(arg, "=");
    char        letter[2] = { arg[1], 0 };
    void            *field;
    const xd_option *o = arg[1] != '-' && arg[1] && arg[2] ? find(r->s, letter, &field) : NULL;
    if (!best && o)
        return xd_fail(r->e, XD_EINVAL, "unknown flag %.*s; a letter stands alone: -%s %s%.80s", shown, arg, letter,
                       o->kind == XD_OPT_FLAG ? "-" : "", arg + 2);
    if (!best)
        return xd_fail(r->e, XD_EINVAL, "unknown flag %.*s", shown, arg);
    return xd_fail(r->e, XD_EINVAL, "unknown flag %.*s; the nearest one is --%s", shown, arg,
                   real_name(r->s, best));
}

/* ---- values ------------------------------------------------------------------------------- */

static int is_whole(const xd_option *o)
{
    return o->kind == XD_OPT_INT || o->kind == XD_OPT_INT64;
}

/* "a whole number from 1 to 1000": what a number option takes. */
static void describe_number(const xd_option *o, char *text, size_t size)
{
    const char *what = is_whole(o) ? "a whole number" : "a number";
    double      big = is_whole(o) ? 2147483647.0 : 1e9;
    if (o->min <= -big && o->max >= big && !is_whole(o))
        snprintf(text, size, "%s", what);
    else if (o->max >= big && o->min > -big)
        snprintf(text, size, "%s of at least %g", what, o->min);
    else
        snprintf(text, size, "%s from %.10g to %.10g", what, o->min, o->max);
}

/* torch's range: a negative one is the same as that plus 2^64. */
static xd_status take_seed(const xd_option *o, void *field, const char *v, xd_err *e)
{
    char *end;
    errno = 0;
    int64_t seed = *v == '-' ? strtoll(v, &end, 10) : (int64_t)strtoull(v, &end, 10);
    if (isspace((unsigned char)*v) || end == v || *end || errno)
        return xd_fail(e, XD_EINVAL, "--%s takes a whole number from -2^63 to 2^64 - 1, not '%.80s'", o->name, v);
    *(int64_t *)field = seed;
    return XD_OK;
}

static xd_status take_number(const xd_option *o, void *field, const char *v, xd_err *e)
{
    char     *end, text[128];
    long long whole = 0;
    double    x;
    errno = 0;
    if (is_whole(o))
        x = (double)(whole = strtoll(v, &end, 10));
    else
        x = strtod(v, &end);
    int plain = !isspace((unsigned char)*v) && !strpbrk(v, "xX");       /* no " 5", no 0x5            */
    int ok = plain && end != v && !*end && errno == 0 && isfinite(x) && x >= o->min && x <= o->max;
    if (ok && o->kind == XD_OPT_INT && (whole > 2147483647 || whole < -2147483647))
        ok = 0;
    if (!ok) {
        describe_number(o, text, sizeof text);
        return xd_fail(e, XD_EINVAL, "--%s takes %s, not '%.80s'", o->name, text, v);
    }
    if (o->kind == XD_OPT_INT)
        *(int *)field = (int)whole;
    else if (o->kind == XD_OPT_INT64)
        *(int64_t *)field = (int64_t)whole;
    else
        *(double *)field = x;
    return XD_OK;
}

/* "a b c" -> "a, b or c" */
static void spell_out(const char *list, char *text, size_t size)
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

static xd_status take_text(const xd_option *o, void *field, const char *v, xd_err *e)
{
    char text[512];
    if (o->choices && !xd_word_listed(o->choices, v)) {
        spell_out(o->choices, text, sizeof text);
        return xd_fail(e, XD_EINVAL, "--%s takes %s, not '%.80s'", o->name, text, v);
    }
    if (!*v && o->arg && xd_word_listed("FILE FILE[:SCALE] DIR", o->arg))
        return xd_fail(e, XD_EINVAL, "--%s takes a name, and it is given an empty one", o->name);
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

static xd_status take_switch(const xd_option *o, void *field, const char *v, xd_err *e)
{
    int on = !v || xd_word_listed("1 true yes on", v), off = v && xd_word_listed("0 false no off", v);
    if (!on && !off)
        return xd_fail(e, XD_EINVAL, "--%s takes no value, or true or false, not '%.80s'", o->name,
                       v);
    *(int *)field = on;
    return XD_OK;
}

/* ---- arguments ---------------------------------------------------------------------------- */

static xd_status missing(const reader *r, const xd_option *o)
{
    return xd_fail(r->e, XD_EINVAL, "--%s needs a value: --%s %s", o->name, o->name,
                   o->arg ? o->arg : "VALUE");
}

/* Another flag, not a value: it begins with two dashes, or is a letter that is known. */
static int is_flag(const reader *r, const char *arg)
{
    void *field;
    return strncmp(arg, "--", 2) == 0 || (arg[0] == '-' && arg[1] && !arg[2] && find(r->s, arg + 1, &field));
}

/* The argument behind a flag. One that looks like another flag means that the value is forgotten: a
 * text that really does goes behind `=`. */
static const char *next_value(reader *r)
{
    if (r->i + 1 >= r->argc || is_flag(r, r->argv[r->i + 1]))
        return NULL;
    return r->argv[++r->i];
}

/* Values of a flag of another program are passed over. */
static xd_status read_foreign(reader *r, const char *name, const char *v)
{
    int       values = -1;
    xd_status s = r->s->foreign(r->s->cookie, name, &values, r->e);
    if (s != XD_OK)
        return s;
    if (values < 0)
        return unknown(r, name);
    if (values == 1 && !v && !next_value(r))
        return xd_fail(r->e, XD_EINVAL, "--%s needs a value", name);
    while (values == 2 && r->i + 1 < r->argc && r->argv[r->i + 1][0] != '-')
        r->i++;
    return XD_OK;
}

static xd_status read_flag(reader *r)
{
    char             name[MAXNAME];
    void            *field = NULL;
    const char      *arg = r->argv[r->i], *v = split(arg, name);
    const xd_option *o = find(r->s, name, &field);
    int              short_form = arg[1] != '-';
    r->last = o;
    if (!o && !short_form && name[0] && r->s->foreign)
        return read_foreign(r, name, v);
    if (!o || short_form != (name[0] && !name[1]))
        return unknown(r, name);
    if (o->kind == XD_OPT_FLAG)
        return take_switch(o, field, v, r->e);
    if (!v && !(v = next_value(r)))
        return missing(r, o);
    if (r->s->once && xd_word_listed(r->s->once, o->name) && *(const char *const *)field)
        return xd_fail(r->e, XD_EINVAL, "--%s may be given once, and '%.80s' is a second one", o->name, v);
    return o->kind == XD_OPT_TEXT ? take_text(o, field, v, r->e) : o->kind == XD_OPT_SEED
               ? take_seed(o, field, v, r->e) : take_number(o, field, v, r->e);
}

static xd_status read_operand(reader *r, xd_opt_texts *operands)
{
    const xd_option row = { .name = "argument", .kind = XD_OPT_TEXT, .max = XD_OPT_MANY };
    const char     *v = r->argv[r->i];
    int             full = !operands || operands->n >= r->s->operands;
    if (full && r->last && r->last->arg && strcmp(r->last->arg, "LIST") == 0)
        return xd_fail(r->e, XD_EINVAL, "one argument too many: '%.80s'; the list of --%s is one argument, such as "
                       "a,b", v, r->last->name);
    if (full)
        return xd_fail(r->e, XD_EINVAL, "one argument too many: '%.80s'%s%s", v,
                       r->s->stray ? "; " : "", r->s->stray ? r->s->stray : "");
    return take_text(&row, operands, v, r->e);
}

xd_status xd_opt_parse(const xd_opt_spec *s, int argc, char **argv, xd_opt_texts *operands,
                       xd_err *e)
{
    reader    r = { .s = s, .argc = argc, .argv = argv, .e = e };
    xd_status st = XD_OK;
    int       flags = 1;
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
        return xd_fail(e, XD_EINVAL, "one argument too many: '%.80s'; --%s %.80s is given, too", v, name, *value);
    if (v)
        *value = v;
    return XD_OK;
}

/* ---- help --------------------------------------------------------------------------------- */

enum { HELP_AT = 31, HELP_END = 79 };

/* Prints words from column HELP_AT, breaking lines at HELP_END; the cursor is at column `at`. */
static void put_wrapped(FILE *f, int at, const char *text)
{
    if (at >= HELP_AT)
        fputc('\n', f), at = 0;
    fprintf(f, "%*s", HELP_AT - at, "");
    at = HELP_AT;
    while (*text) {
        int len = (int)strcspn(text, " ");
        if (at > HELP_AT && at + 1 + len > HELP_END) {
            fprintf(f, "\n%*s", HELP_AT, "");
            at = HELP_AT;
        }
        if (at > HELP_AT)
            fputc(' ', f), at++;
        fprintf(f, "%.*s", len, text);
        at += len;
        text += len;
        text += strspn(text, " ");
    }
    fputc('\n', f);
}

static const char *short_form(const xd_opt_spec *s, const char *name)
{
    for (const xd_opt_alias *a = s->aliases; a && a->from; a++)
        if (!a->from[1] && strcmp(a->to, name) == 0)
            return a->from;
    return NULL;
}

static void default_text(const xd_option *o, const void *record, char *text, size_t size)
{
    const char *field = (const char *)record + o->offset;
    double      x = 0.0;
    text[0] = 0;
    if (strstr(o->help, "default:"))    /* the row says it itself                              */
        return;
    if (o->kind == XD_OPT_FLAG || (o->kind == XD_OPT_TEXT && o->max >= XD_OPT_MANY))
        return;
    if (o->kind == XD_OPT_TEXT) {
        const char *v = *(const char *const *)(const void *)field;
        if (v && *v)
            snprintf(text, size, " (default: %s)", v);
        return;
    }
    if (o->kind == XD_OPT_INT)
        x = *(const int *)(const void *)field;
    else if (o->kind == XD_OPT_INT64)
        x = (double)*(const int64_t *)(const void *)field;
    else
        x = *(const double *)(const void *)field;
    if (x >= o->min && x <= o->max)
        snprintf(text, size, " (default: %.10g)", x);
}

/* Does the help text of a row already show its first choice? */
static int mentioned(const char *choices, const char *help_text)
{
    char first[MAXNAME];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(choices, " "), choices);
    return strstr(help_text, first) != NULL;
}

static void help_row(FILE *f, const xd_opt_spec *s, const xd_option *o, const void *record)
{
    char        text[512], spelled[256] = "", def[96];
    const char *letter = short_form(s, o->name);
    int         at = letter ? fprintf(f, "  -%s, ", letter) : fprintf(f, "      ");
    at += fprintf(f, "--%s", o->name);
    if (o->kind != XD_OPT_FLAG)
        at += fprintf(f, " %s", o->arg ? o->arg : "VALUE");
    if (at > HELP_AT - 2)
        at = HELP_AT;
    if (o->choices && !mentioned(o->choices, o->help))
        spell_out(o->choices, spelled, sizeof spelled);
    default_text(o, record, def, sizeof def);
    snprintf(text, sizeof text, "%s%s%s%s", spelled, *spelled ? "; " : "", o->help, def);
    put_wrapped(f, at, text);
}

char *xd_opt_names(const char *first, const xd_option *rows, int n)
{
    size_t size = strlen(first) + 1, at;
    for (int i = 0; i < n; i++)
        size += strlen(rows[i].name) + 1;
    char *names = malloc(size);
    if (!names)
        return NULL;
    at = (size_t)snprintf(names, size, "%s", first);
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(names + at, size - at, "%s%s", at ? " " : "", rows[i].name);
    return names;
}

int xd_opt_grouped(const xd_opt_group *groups, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (groups[i].names && xd_word_listed(groups[i].names, name))
            return 1;
    return 0;
}

static void help_named(FILE *f, const xd_opt_spec *s, const char *names)
{
    char  name[MAXNAME];
    void *field;
    for (const char *p = names; *p; p += strspn(p, " ")) {
        size_t           len = strcspn(p, " ");
        snprintf(name, sizeof name, "%.*s", (int)len, p);
        const xd_option *o = find(s, name, &field);
        if (o && o->help)
            help_row(f, s, o, (const char *)field - o->offset);
        p += len;
    }
}

void xd_opt_help(FILE *f, const xd_opt_spec *s, const xd_opt_group *groups, int ngroups)
{
    for (int g = 0; g < ngroups; g++) {
        fprintf(f, "\n%s:\n", groups[g].title);
        if (groups[g].names) {
            help_named(f, s, groups[g].names);
            continue;
        }
        for (int t = 0; t < s->ntables; t++)
            for (int i = 0; i < s->tables[t].n; i++) {
                const xd_option *o = &s->tables[t].rows[i];
                if (o->help && !xd_opt_grouped(groups, ngroups, o->name))
                    help_row(f, s, o, s->tables[t].record);
            }
    }
}
