/* typo.c - replaces typographic characters of a command line; see typo.h */
#include "cli/typo.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int one_of(const char *p, const char *const *letters)
{
    for (; *letters; letters++)
        if (strncmp(p, *letters, strlen(*letters)) == 0)
            return (int)strlen(*letters);
    return 0;
}

int xd_typo_dash(const char *p)
{
    static const char *const letters[] = {
        "\xe2\x80\x90", "\xe2\x80\x91", "\xe2\x80\x92", "\xe2\x80\x93", "\xe2\x80\x94",
        "\xe2\x80\x95", "\xe2\x88\x92", "\xef\xb9\xa3", "\xef\xbc\x8d", NULL
    };
    return one_of(p, letters);
}

int xd_typo_double(const char *p)
{
    static const char *const letters[] = { "\xe2\x80\x9c",
                                           "\xe2\x80\x9d",
                                           "\xe2\x80\x9e",
                                           "\xe2\x80\x9f",
                                           "\xe2\x80\xb3",
                                           "\xef\xbc\x82",
                                           NULL };
    return one_of(p, letters);
}

int xd_typo_single(const char *p)
{
    static const char *const letters[] = { "\xe2\x80\x98",
                                           "\xe2\x80\x99",
                                           "\xe2\x80\x9a",
                                           "\xe2\x80\x9b",
                                           "\xe2\x80\xb2",
                                           "\xef\xbc\x87",
                                           NULL };
    return one_of(p, letters);
}

int xd_typo_blank(const char *p)
{
    static const char *const letters[] = { "\xc2\xa0",     "\xe2\x80\x82",
                                           "\xe2\x80\x83", "\xe2\x80\x87",
                                           "\xe2\x80\x89", "\xe2\x80\xaf",
                                           "\xe3\x80\x80", NULL };
    return one_of(p, letters);
}

int xd_typo_zero_width(const char *p)
{
    static const char *const letters[] = { "\xef\xbb\xbf", "\xe2\x80\x8b", NULL };
    return one_of(p, letters);
}

int xd_typo_flag(const char *p, const char **means)
{
    int n = 0, other = 0, k = 0;
    while ((k = xd_typo_dash(p + n)) || p[n] == '-')
        other |= k, n += k ? k : 1;
    const char *name = p + n;
    size_t      letters = 0;
    if (!other || !(isalnum((unsigned char)*name) || *name == '.'))
        return 0;
    while (isalnum((unsigned char)name[letters]) || name[letters] == '_')
        letters++;
    int number = isdigit((unsigned char)*name) || *name == '.';
    int more = xd_typo_dash(name + letters) || name[letters] == '-';
    *means = number || (letters == 1 && !more) ? "-" : "--";
    return n;
}

/* ---- words that the shell has already split -------------------------------------------------- */

typedef struct writer {
    char  *at;                  /* the next free byte                                          */
    char **v;
    int    n, changed;
} writer;

static void put_text(writer *w, const char *p, int n)
{
    memcpy(w->at, p, (size_t)n);
    w->at += n;
}

/* Copies a flag with plain dashes; a typographic space after the name ends the word, as in
 * --steps<nbsp>5. */
static void write_flag(writer *w, const char *p, int dashes, const char *means)
{
    int in_name = 1, k;
    put_text(w, means, (int)strlen(means));
    for (p += dashes; *p; p += k) {
        in_name &= *p != '=';
        k = 1;
        if (in_name && (k = xd_typo_dash(p))) {
            put_text(w, "-", 1);
        } else if (in_name && (k = xd_typo_blank(p))) {
            *w->at++ = 0;
            w->v[w->n++] = w->at;
            in_name = 0;
        } else {
            k = 1;
            put_text(w, p, 1);
        }
    }
    *w->at++ = 0;
    w->changed = 1;
}

/* Returns the index of the word with the closing quote; -1: none. */
static int closing_word(int argc, char **argv, int (*is)(const char *))
{
    for (int i = 0; i < argc; i++) {
        size_t n = strlen(argv[i]);
        if (n >= (i ? 3 : 6) && is(argv[i] + n - 3))
            return i;
    }
    return -1;
}

/* Joins the words from an opening quote to the closing one; returns their number, 0: no quote. */
static int write_quoted(writer *w, int argc, char **argv)
{
    int (*is)(const char *) = xd_typo_double(argv[0]) ? xd_typo_double : xd_typo_single;
    int open = is(argv[0]), last = open ? closing_word(argc, argv, is) : -1;
    if (last < 0 || strpbrk(argv[0], " \t\n"))
        return 0;
    for (int i = 0; i <= last; i++) {
        const char *from = argv[i] + (i ? 0 : open);
        int         n = (int)strlen(from) - (i == last ? 3 : 0);
        put_text(w, " ", i > 0);
        put_text(w, from, n);
    }
    *w->at++ = 0;
    w->changed = 1;
    return last + 1;
}

/* Returns 1 for a flag with plain dashes and a typographic space in its name: "--steps<nbsp>5". */
static int blank_in_name(const char *p)
{
    if (p[0] != '-' || p[1] != '-')
        return 0;
    for (p += 2; isalnum((unsigned char)*p) || *p == '-' || *p == '_'; p++)
        ;
    return xd_typo_blank(p);
}

static void write_word(writer *w, const char *p)
{
    const char *means = "--";
    int         dashes = blank_in_name(p) ? 2 : xd_typo_flag(p, &means);
    if (dashes && !strpbrk(p, " \t\n"))
        write_flag(w, p, dashes, means);
    else
        put_text(w, p, (int)strlen(p) + 1);
}

char **xd_typo_args(int *argc, char **argv, const char **first)
{
    size_t bytes = 1, words = 1;
    for (int i = 0; i < *argc; i++) {
        bytes += 2 * strlen(argv[i]) + 2; /* "–" is shorter than "--", never longer than twice */
        words += strlen(argv[i]) + 1;     /* each character might end a word                  */
    }
    char **v = malloc(words * sizeof *v + bytes);
    if (!v)
        return NULL;
    writer w = { .at = (char *)(v + words), .v = v };
    for (int i = 0; i < *argc; i++) {
        int before = w.changed, n = 0;
        w.v[w.n++] = w.at;
        if (!(n = write_quoted(&w, *argc - i, argv + i)))
            write_word(&w, argv[i]);
        if (w.changed && !before)
            *first = argv[i];
        i += n ? n - 1 : 0;
    }
    v[w.n] = NULL;
    if (!w.changed) {
        free(v);
        return NULL;
    }
    *argc = w.n;
    return v;
}
