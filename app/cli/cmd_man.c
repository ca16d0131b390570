/* cmd_man.c - the command xdit man, which makes the manual page of a command from its help text.
 *
 * The sections of a help text (usage, first paragraphs, options by groups, examples) become
 * sections of a page in the format of man(7). Words that begin with a dash are printed bold, and
 * their dashes are not changed to hyphens. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/opt.h"
#include "xdit/tools.h"

enum { COLUMNS = 80 }; /* maximum width of lines of text */

/* ---- words ----------------------------------------------------------------------------------- */

/* Prints characters, with escapes for those that have a meaning in roff. If `dashes` is nonzero,
 * "-" is printed as a minus sign, not as a hyphen. */
static void put_letters(const char *s, size_t n, int dashes)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] == '\\')
            fputs("\\e", stdout);
        else if (s[i] == '-' && dashes)
            fputs("\\-", stdout);
        else if (s[i] == '\'')
            fputs("\\(aq", stdout);
        else if (s[i] == '`')
            fputs("\\(ga", stdout);
        else if (s[i] == '~')
            fputs("\\(ti", stdout);
        else if (s[i] == '^')
            fputs("\\(ha", stdout);
        else
            putchar(s[i]);
}

/* Prints a line without bold or italic words, such as a line of an example. */
static void put_plain(const char *line, size_t n)
{
    if (n && *line == '.')
        fputs("\\&", stdout);
    put_letters(line, n, 1);
    putchar('\n');
}

static int is_name(int c)
{
    return isalnum(c) || c == '_' || c == '-';
}

/* Prints a word of a sentence; options are bold. */
static void put_word(const char *s, size_t n)
{
    size_t name = 0;
    while (name < n && is_name((unsigned char)s[name]))
        name++;
    if (name > 2 && s[0] == '-' && s[1] == '-') {
        fputs("\\fB", stdout);
        put_letters(s, name, 1);
        fputs("\\fR", stdout);
        put_letters(s + name, n - name, 1);
    } else {
        put_letters(s, n, s[0] == '-');
    }
}

/* Prints the words of a sentence, in lines of 80 columns. */
static void put_words(const char *s, size_t len)
{
    const char *end = s + len;
    for (size_t at = 0, n; s < end; s += n, at += n) {
        size_t blanks = at ? strspn(s, " ") : 0;
        s += blanks;
        n = 0;
        while (s + n < end && s[n] != ' ')
            n++;
        if (at + blanks + n > COLUMNS) {
            putchar('\n');
            at = blanks = 0;
        }
        at += blanks;
        if (!at && *s == '.')
            fputs("\\&", stdout);
        printf("%*s", (int)blanks, "");
        put_word(s, n);
    }
    putchar('\n');
}

/* Prints a line of the usage; commands and options are bold, placeholders are italic. */
static void put_usage(const char *s, size_t len)
{
    int inside = 0; /* nonzero: the current character of the usage is inside brackets */
    for (size_t i = 0, n; i < len; i += n) {
        n = 1;
        if (!is_name((unsigned char)s[i])) {
            inside += (s[i] == '[') - (s[i] == ']');
            put_letters(s + i, 1, 1);
            continue;
        }
        while (i + n < len && is_name((unsigned char)s[i + n]))
            n++;
        int stands = s[i] != '-' && (inside || isupper((unsigned char)s[i]));
        fputs(stands ? "\\fI" : "\\fB", stdout);
        put_letters(s + i, n, 1);
        fputs("\\fR", stdout);
    }
    putchar('\n');
}

/* ---- lines ----------------------------------------------------------------------------------- */

typedef enum part { USAGE, TEXT, OPTIONS, EXAMPLES } part;

typedef struct page {
    part part;
    /* nonzero: the line is in a block of lines that man prints without filling (.nf) */
    int  literal;
    int  groups; /* number of section titles in the complete help text */
    int  lines;  /* number of lines of the current section so far */
    int  gap;    /* 1: the previous line was empty */
} page;

static void end_literal(page *p)
{
    if (p->literal)
        puts(p->part == EXAMPLES ? ".fi" : ".fi\n.RE");
    p->literal = 0;
}

static void enter(page *p, part to, const char *title)
{
    end_literal(p);
    if (p->part != to)
        printf(".SH %s\n", title);
    p->part = to;
    p->lines = p->gap = 0;
}

static void put_title(page *p, const char *title, size_t n)
{
    enter(p, OPTIONS, "OPTIONS");
    if (p->groups > 1)
        printf(".SS \"%.*s\"\n", (int)n, title);
}

/* Prints the entry of an option, whose letter, name, argument and help text are separated by tabs
 * in `line`. */
static void put_row(const char *line, size_t n)
{
    const char *at[4] = { line }, *end = line + n;
    for (int i = 1; i < 4; i++)
        at[i] = at[i - 1] + strcspn(at[i - 1], "\t") + 1;
    printf(".TP\n");
    if (at[1] - at[0] > 1)
        printf("\\fB\\-%.*s\\fR, ", (int)(at[1] - at[0] - 1), at[0]);
    printf("\\fB\\-\\-%.*s\\fR", (int)(at[2] - at[1] - 1), at[1]);
    if (at[3] - at[2] > 1) {
        printf(" \\fI");
        put_letters(at[2], (size_t)(at[3] - at[2] - 1), 1);
        printf("\\fR");
    }
    putchar('\n');
    put_words(at[3], (size_t)(end - at[3]));
}

static void put_text(page *p, const char *line, size_t n)
{
    int example = *line == ' ';
    if (p->part == EXAMPLES) {
        if (!p->literal++)
            puts(".nf");
        line += n > 1 ? 2 : n, n -= n > 1 ? 2 : n;
        put_plain(line, n);
        return;
    }
    if (p->part == USAGE || p->part == OPTIONS)
        enter(p, TEXT, p->part == USAGE ? "DESCRIPTION" : "NOTES");
    if (!example) {
        end_literal(p);
        if (p->gap)
            puts(".PP");
        put_words(line, n);
    } else {
        if (!p->literal++)
            puts(".PP\n.RS\n.nf");
        put_plain(line + 2, n - 2);
    }
    p->lines++;
    p->gap = 0;
}

static void put_line(page *p, const char *line, size_t n)
{
    static const char usage[] = "Usage: ";
    if (*line == XD_OPT_TITLE)
        put_title(p, line + 1, n - 1);
    else if (*line == XD_OPT_ROW)
        put_row(line + 1, n - 1);
    else if (strncmp(line, "Example", 7) == 0 && line[n - 1] == ':')
        enter(p, EXAMPLES, "EXAMPLES");
    else if (n == 0) {
        end_literal(p);
        if (p->part == USAGE && p->lines)
            enter(p, TEXT, "DESCRIPTION");
        else
            p->gap = p->part == TEXT && p->lines;
    } else if (p->part == USAGE) {
        size_t skip = p->lines ? strspn(line, " ") : sizeof usage - 1;
        puts(p->lines++ ? ".br" : ".SH SYNOPSIS");
        put_usage(line + skip, n - skip);
    } else
        put_text(p, line, n);
}

static const char ending[] = ".SH EXIT STATUS\n"
                             "0: success. 1: failure. 2: wrong command line or request.\n"
                             "128 + N: ended by signal N.\n"
                             ".SH SEE ALSO\n"
                             ".BR xdit (1)";

/* Prints the page's date: today, or the date in SOURCE_DATE_EPOCH, which reproducible builds
 * set. */
static void put_date(void)
{
    const char *given = getenv("SOURCE_DATE_EPOCH");
    time_t      now = given ? (time_t)strtoll(given, NULL, 10) : time(NULL);
    char        text[16];
    struct tm   day;
    if (gmtime_r(&now, &day) && strftime(text, sizeof text, "%Y-%m-%d", &day))
        fputs(text, stdout);
}

static xd_status print_page(const xd_command *c, xd_err *e)
{
    page  p = { .part = USAGE };
    char *text = xd_opt_marked(c->help);
    if (!text)
        return xd_fail(e, XD_ENOMEM, "no memory for a page");
    for (const char *s = text; *s; s++)
        p.groups += *s == XD_OPT_TITLE;
    fputs(".\\\" printed by `xdit man`\n.TH \"XDIT\\-", stdout);
    for (const char *s = c->name; *s; s++)
        put_letters(&(char){ (char)toupper((unsigned char)*s) }, 1, 1);
    fputs("\" 1 \"", stdout);
    put_date();
    printf("\" \"xdit %s\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\nxdit\\-", xd_version());
    put_letters(c->name, strlen(c->name), 1);
    printf(" \\- %s\n", c->summary);
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        put_line(&p, line, n);
        line += n + (line[n] != 0);
    }
    end_literal(&p);
    fputs(ending, stdout);
    for (const xd_command *const *o = xd_commands; *o; o++)
        if (*o != c) {
            fputs(",\n.BR xdit\\-", stdout);
            put_letters((*o)->name, strlen((*o)->name), 1);
            fputs(" (1)", stdout);
        }
    putchar('\n');
    free(text);
    return XD_OK;
}

/* ---- command --------------------------------------------------------------------------------- */

static void print_help(FILE *f)
{
    fputs("Usage: xdit man COMMAND\n\n"
          "Prints the manual page of a command. Packages install it; to read it without:\n\n"
          "  xdit man generate | man -l -\n",
          f);
}

static int run_command(int argc, char **argv)
{
    xd_err e = { 0 };
    for (const xd_command *const *c = xd_commands; *c && argc == 1; c++)
        if (strcmp((*c)->name, argv[0]) == 0)
            return xd_cli_end(print_page(*c, &e), &e);
    return xd_cli_exit(xd_fail(&e, XD_EINVAL,
                               "man needs the name of a command%s%.40s%s; xdit --help lists them",
                               argc ? ", not '" : "", argc ? argv[0] : "", argc ? "'" : ""),
                       &e);
}

const xd_command xd_cmd_man = {
    .name = "man",
    .summary = "print the manual page of a command",
    .run = run_command,
    .help = print_help,
};
