/* opt_help.c - prints help texts, and visits the options that they list */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/word_list.h"
#include "cli/opt.h"

enum {
    MAXNAME = 64,
    HELP_AT = 31,
    NARROW_AT = 10,
    NARROW_WIDTH = 64,
    MAX_WIDTH = 120,
    MIN_WIDTH = 40,
    DEFAULT_WIDTH = 80
};

static struct {
    xd_opt_visit *visit;
    void         *cookie;
} walk; /* visit: if set, this function is called for each option of a help text, and nothing is
           printed; NULL: the help text is printed */

#define TOPIC "\1"              /* byte that is printed before and after the options of a help
                                   text that is searched for a topic */
static struct {
    const char *word;
    int         found;
} topic; /* word: only groups that match this word are printed; NULL: all groups */

static int marked; /* 1: help texts are printed in the format that xd_opt_marked
                                   returns */

static struct {
    /* on: 1 if only main options are printed; the options after MAIN_END in a group's list are then
     * only counted in `left` */
    int on, left;
} mains;
static const char MAIN_END[] = "|";

void xd_opt_explain(xd_option *rows, int n, const char *name, const char *help)
{
    for (int i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0)
            rows[i].help = help;
}

int xd_opt_columns(void)
{
    const char    *given = getenv("COLUMNS");
    int            n = given ? atoi(given) : 0;
    struct winsize w = { 0 };
    if (n <= 0 && isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0)
        n = w.ws_col;
    return n <= 0 ? 0 : n < MIN_WIDTH ? MIN_WIDTH : n;
}

/* Returns the width of help texts in columns: the value of xd_opt_columns, but at most 120; or 80
 * if neither COLUMNS nor a terminal sets a width. */
static int help_width(void)
{
    int n = xd_opt_columns();
    return n == 0 ? DEFAULT_WIDTH : n > MAX_WIDTH ? MAX_WIDTH : n;
}

/* Returns the column where the explanations of options begin. In a narrow terminal an explanation
 * is printed below its option. */
static int help_at(void)
{
    return help_width() < NARROW_WIDTH ? NARROW_AT : HELP_AT;
}

/* Prints words from column help_at, breaking lines at the width of help texts. `at` is the column
 * of the cursor. */
static void put_wrapped(FILE *f, int at, const char *text)
{
    int from = help_at(), end = help_width() - 1;
    if (at >= from)
        fputc('\n', f), at = 0;
    fprintf(f, "%*s", from - at, "");
    at = from;
    while (*text) {
        int len = (int)strcspn(text, " ");
        if (at > from && at + 1 + len > end) {
            fprintf(f, "\n%*s", from, "");
            at = from;
        }
        if (at > from)
            fputc(' ', f), at++;
        fprintf(f, "%.*s", len, text);
        at += len;
        text += len;
        text += strspn(text, " ");
    }
    fputc('\n', f);
}

/* Prints a paragraph indented by `indent` columns; if `indent` is not 0, the paragraph's second and
 * later lines are indented by two columns more. Keeps spaces between words. A word that is longer
 * than a line is printed on its own line. */
static void print_paragraph(FILE *f, const char *text, int indent, int width)
{
    int at = 0, gap = indent;
    for (text += strspn(text, " \n"); *text; text += gap) {
        int len = (int)strcspn(text, " \n");
        if (at && at + gap + len > width) {
            fputc('\n', f);
            at = 0;
            gap = indent + (indent ? 2 : 0);
        }
        at += fprintf(f, "%*s%.*s", gap, "", len, text);
        text += len;
        gap = (int)strspn(text, " \n");
    }
    fputc('\n', f);
}

/* Returns 1 if two successive lines of a help text belong to one paragraph. */
static int is_joined(const char *line, const char *next)
{
    size_t n = strcspn(line, "\n");
    return n && *next && *next != '\n' && *next != ' ' && *line != ' ' && line[n - 1] != ':' &&
           strncmp(line, "Usage:", 6) != 0;
}

void xd_opt_print(FILE *f, const char *text)
{
    int width = help_width() - 1;
    if (width + 1 >= DEFAULT_WIDTH) {
        fputs(text, f);
        return;
    }
    while (*text) {
        const char *end = text + strcspn(text, "\n");
        while (*end && is_joined(text, end + 1))
            end += 1 + strcspn(end + 1, "\n");
        int   n = (int)(end - text), indent = (int)strspn(text, " ");
        char *part = strndup(text, (size_t)n);
        if (part && (n > width || memchr(text, '\n', (size_t)n)))
            print_paragraph(f, part, indent < width / 2 ? indent : 0, width);
        else
            fprintf(f, "%.*s\n", n, text);
        free(part);
        text = end + (*end != 0);
    }
}

static void default_text(const xd_option *o, const void *record, char *text, size_t size)
{
    const char *field = (const char *)record + o->offset;
    double      x = 0.0;
    text[0] = 0;
    if (strstr(o->help, "default")) /* the help text already names the default */
        return;
    if (o->kind == XD_OPT_FLAG || (o->kind == XD_OPT_TEXT && o->max >= XD_OPT_MANY))
        return;
    if (o->kind == XD_OPT_TEXT) {
        const char *v = *(const char *const *)(const void *)field;
        if (v && *v)
            snprintf(text, size, " (default %s)", v);
        return;
    }
    if (o->kind == XD_OPT_INT)
        x = *(const int *)(const void *)field;
    else if (o->kind == XD_OPT_INT64)
        x = (double)*(const int64_t *)(const void *)field;
    else
        x = *(const double *)(const void *)field;
    if (x >= o->min && x <= o->max)
        snprintf(text, size, " (default %.10g)", x);
}

/* Returns 1 if the help text of an option already names the option's first choice. */
static int is_mentioned(const char *choices, const char *help_text)
{
    char first[MAXNAME];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(choices, " "), choices);
    return strstr(help_text, first) != NULL;
}

/* Returns 1 if a clause or a sentence ends before p, or if a parenthesis begins at p. */
static int is_clause_end(const char *p)
{
    return !*p || ((*p == ';' || *p == '.') && p[1] == ' ') || (*p == ' ' && p[1] == '(');
}

/* Shortens an option's help text to the clauses that fit in `room` columns, and appends the
 * option's default if the default fits, too. A help text whose first clause does not fit is not
 * changed. */
static void shorten(char *text, int room)
{
    int   n = (int)strlen(text), best = 0, depth = 0;
    char *def = strstr(text, " (default");
    int   ndef = def ? (int)strcspn(def, ")") + 1 : 0;
    for (int i = 0; i <= n && i <= room; i++) {
        if (!depth && is_clause_end(text + i))
            best = i;
        depth += (text[i] == '(') - (text[i] == ')');
    }
    if (!best || best == n)
        return;
    if (def && best <= def - text && best + ndef <= room) {
        memmove(text + best, def, (size_t)ndef);
        best += ndef;
    }
    text[best] = 0;
}

static void help_row(FILE *f, const xd_opt_spec *s, const xd_option *o, const void *record)
{
    char        text[512], spelled[256] = "", def[96];
    const char *letter = xd_opt_letter(s, o->name);
    if (walk.visit) {
        walk.visit(walk.cookie, o, letter);
        return;
    }
    if (o->kind == XD_OPT_TEXT && o->choices && !is_mentioned(o->choices, o->help))
        xd_opt_spell(o->choices, spelled, sizeof spelled);
    default_text(o, record, def, sizeof def);
    snprintf(text, sizeof text, "%s%s%s%s", spelled, *spelled ? "; " : "", o->help, def);
    if (marked) {
        fprintf(f, "%c%s\t%s\t%s\t%s\n", XD_OPT_ROW, letter ? letter : "", o->name,
                o->kind == XD_OPT_FLAG ? ""
                : o->arg               ? o->arg
                                       : "VALUE",
                text);
        return;
    }
    /* The longest names do not fit into a narrow terminal with the usual indentation. */
    int spare =
        help_width() - 1 - (int)strlen(o->name) - (int)strlen(o->arg ? o->arg : "VALUE") - 3;
    int indent = spare > 6 ? 6 : spare < 2 ? 2 : spare;
    int at = letter ? fprintf(f, "  -%s, ", letter) : fprintf(f, "%*s", indent, "");
    at += fprintf(f, "--%s", o->name);
    if (o->kind != XD_OPT_FLAG)
        at += fprintf(f, o->kind != XD_OPT_TEXT && o->choices ? " [%s]" : " %s",
                      o->arg ? o->arg : "VALUE");
    if (mains.on && help_at() == HELP_AT) { /* the short help text has one line per option */
        int from = at > HELP_AT - 2 ? at + 2 : HELP_AT;
        shorten(text, help_width() - 1 - from);
        if (from + (int)strlen(text) < help_width()) {
            fprintf(f, "%*s%s\n", from - at, "", text);
            return;
        }
    } else if (mains.on) {
        shorten(text, help_width());
    }
    if (at > help_at() - 2)
        at = help_at();
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
        if (!xd_list_has(first, rows[i].name))
            at += (size_t)snprintf(names + at, size - at, "%s%s", at ? " " : "", rows[i].name);
    return names;
}

int xd_opt_grouped(const xd_opt_group *groups, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (groups[i].names && xd_list_has(groups[i].names, name))
            return 1;
    return 0;
}

/* Prints the options in the list `names` of a group. is_main: 1 if the names before MAIN_END are
 * main options of the group; 0 if the group has no main options. */
static void help_named(FILE *f, const xd_opt_spec *s, const char *names, int is_main)
{
    char  name[MAXNAME];
    void *field;
    for (const char *p = names; *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        snprintf(name, sizeof name, "%.*s", (int)len, p);
        const xd_option *o = xd_opt_find(s, name, &field);
        is_main &= strcmp(name, MAIN_END) != 0;
        if (o && o->help && (is_main || !mains.on))
            help_row(f, s, o, (const char *)field - o->offset);
        else
            mains.left += o && o->help;
        p += len;
    }
}

/* Prints the options that no group names. */
static void help_others(FILE *f, const xd_opt_spec *s, const xd_opt_group *groups, int ngroups,
                        int print)
{
    void *field;
    for (int t = 0; t < s->ntables; t++)
        for (int i = 0; i < s->tables[t].n; i++) {
            const xd_option *o = &s->tables[t].rows[i];
            if (!o->help || xd_opt_find(s, o->name, &field) != o ||
                xd_opt_grouped(groups, ngroups, o->name))
                continue;
            if (print)
                help_row(f, s, o, s->tables[t].record);
            else
                mains.left++;
        }
}

/* Returns 1 if the title contains the word, ignoring case. */
static int in_title(const char *title, const char *word)
{
    size_t n = strlen(word);
    for (; *title; title++)
        if (strncasecmp(title, word, n) == 0)
            return 1;
    return 0;
}

static int is_shown(const xd_opt_spec *s, const xd_opt_group *g)
{
    void            *field;
    const xd_option *o = topic.word ? xd_opt_find(s, topic.word, &field) : NULL;
    int              named = o && g->names && xd_list_has(g->names, o->name);
    int              shown = !topic.word || in_title(g->title, topic.word) || named;
    topic.found |= shown;
    return shown;
}

int xd_opt_topic(void (*help)(FILE *f), const char *word, char **text)
{
    size_t len = 0, at = 0;
    char  *all = NULL, *p, *end;
    FILE  *f = open_memstream(&all, &len);
    *text = NULL;
    topic.word = word;
    topic.found = 0;
    if (f) {
        help(f);
        fclose(f);
    }
    topic.word = NULL;
    for (p = all ? strchr(all, *TOPIC) : NULL; p && (end = strchr(p + 1, *TOPIC));
         p = strchr(end + 1, *TOPIC)) {
        memmove(all + at, p + 1, (size_t)(end - p - 1));
        at += (size_t)(end - p - 1);
    }
    if (all)
        all[at] = 0;
    if (!topic.found) {
        free(all);
        all = NULL;
    }
    *text = all;
    return all != NULL;
}

/* Returns 1 if the list of any group separates main options from other options. */
static int has_mains(const xd_opt_group *groups, int n)
{
    for (int i = 0; i < n; i++)
        if (groups[i].names && xd_list_has(groups[i].names, MAIN_END))
            return 1;
    return 0;
}

void xd_opt_help(FILE *f, const xd_opt_spec *s, const xd_opt_group *groups, int ngroups)
{
    int all = !mains.on || !has_mains(groups, ngroups), was_on = mains.on;
    mains.on = !all;
    if (topic.word)
        fputs(TOPIC, f);
    for (int g = 0; g < ngroups; g++) {
        const char *names = groups[g].names;
        int         shown = is_shown(s, &groups[g]) &&
                            (all || (has_mains(&groups[g], 1) && names[0] != MAIN_END[0]));
        if (shown)
            fprintf(f, marked ? "%c%s\n" : "%c%s:\n", marked ? XD_OPT_TITLE : '\n',
                    groups[g].title);
        if (names && (shown || !all))
            help_named(f, s, names, shown);
        else if (shown || !all)
            help_others(f, s, groups, ngroups, shown);
    }
    if (topic.word)
        fputs(TOPIC, f);
    mains.on = was_on;
}

void xd_opt_help_all(FILE *f, const xd_opt_spec *s)
{
    xd_opt_help(f, s, &(xd_opt_group){ "Options", NULL }, 1);
}

char *xd_opt_main_help(void (*help)(FILE *f), int *left)
{
    char  *text = NULL;
    size_t len = 0;
    FILE  *f = open_memstream(&text, &len);
    *left = 0;
    if (!f)
        return NULL;
    mains.on = 1;
    mains.left = 0;
    help(f);
    mains.on = 0;
    *left = mains.left;
    fclose(f);
    return text;
}

void xd_opt_each(void (*help)(FILE *f), xd_opt_visit *visit, void *cookie)
{
    FILE *f = fopen("/dev/null", "w");
    if (!f)
        return;
    walk.visit = visit;
    walk.cookie = cookie;
    help(f);
    walk.visit = NULL;
    fclose(f);
}

char *xd_opt_marked(void (*help)(FILE *f))
{
    char  *text = NULL;
    size_t len = 0;
    FILE  *f = open_memstream(&text, &len);
    if (!f)
        return NULL;
    marked = 1;
    help(f);
    marked = 0;
    fclose(f);
    return text;
}
