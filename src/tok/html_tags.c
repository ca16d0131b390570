/* html_tags.c - finds the end of HTML start tags like the regular expressions of Python's
 * html.parser, but in linear time, even if every tag is incomplete.
 *
 * A run is a sequence of characters of one kind, such as an attribute's name. In advance, the end
 * of each kind of run is computed for every offset of the text at which the run may begin. If an
 * attribute may begin at an offset, the end of the tag depends only on that offset. So if two scans
 * of tags reach the same offset at which an attribute may begin, both scans have the same end. */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>

/* Kinds of runs of characters: the name of a tag, the name of an attribute, an unquoted value, text
 * up to a single quote, text up to a double quote, separators between attributes, white space. */
enum { NAME, ATTRIBUTE, VALUE, SINGLE, DOUBLE, GAP, BLANK, RUNS };

struct xd_tags {
    const char *s;
    size_t      len;
    /* [len + 1]: for each index, the end of the run of characters that begins there. */
    uint32_t   *end[RUNS];
    /* [len + 1]: for each index, the number of the scan that reached the index, or 0. */
    uint32_t   *scan;
    uint32_t   *ends; /* [len + 2]: end of the tag of each scan */
    uint32_t    scans;
};

static int ends_run(int run, int32_t c)
{
    switch (run) {
    case NAME: return c == '/' || c == '>' || c == ' ' || c == 0 || (c >= 9 && c <= 13 && c != 11);
    case ATTRIBUTE: return c == '/' || c == '=' || c == '>' || xd_is_blank(c);
    case VALUE: return c == '>' || xd_is_blank(c);
    case SINGLE: return c == '\'';
    case DOUBLE: return c == '"';
    case GAP: return c != '/' && !xd_is_blank(c);
    default: return !xd_is_blank(c);
    }
}

xd_tags *xd_tags_open(const char *s, size_t len)
{
    xd_tags  *t = calloc(1, sizeof *t);
    uint32_t *all = len < UINT32_MAX / 2 ? calloc((len + 2) * (RUNS + 2), sizeof *all) : NULL;
    size_t    from, n;
    if (!t || !all) {
        free(t);
        free(all);
        return NULL;
    }
    *t = (xd_tags){
        .s = s, .len = len, .scan = all + RUNS * (len + 2), .ends = all + (RUNS + 1) * (len + 2)
    };
    for (int r = 0; r < RUNS; r++) {
        t->end[r] = all + (size_t)r * (len + 2);
        t->end[r][len] = (uint32_t)len;
    }
    for (size_t i = len; i; i = from) {
        int32_t c = xd_utf8_before(s, i, &from);
        for (int r = 0; r < RUNS; r++)
            for (n = from; n < i; n++)
                t->end[r][n] = ends_run(r, c) ? (uint32_t)n : t->end[r][i];
    }
    return t;
}

void xd_tags_close(xd_tags *t)
{
    if (t)
        free(t->end[0]);
    free(t);
}

static size_t run(const xd_tags *t, int kind, size_t at)
{
    return t->end[kind][at];
}

/* Returns the offset after the white space and the slashes at `at`. The slash of "/>" is not
 * skipped. */
static size_t behind_gap(const xd_tags *t, size_t at)
{
    size_t end = run(t, GAP, at);
    return end > at && end < t->len && t->s[end] == '>' && t->s[end - 1] == '/' ? end - 1 : end;
}

size_t xd_tags_name(const xd_tags *t, size_t at, size_t *behind)
{
    char   c = at < t->len ? (char)(t->s[at] | 0x20) : 0;
    size_t end = c >= 'a' && c <= 'z' ? run(t, NAME, at) : at;
    *behind = end > at ? behind_gap(t, end) : at;
    return end;
}

/* Returns the end of "= value" after an attribute's name, or the end of the name if no value
 * follows. A quote that is not closed does not begin a value; in this case, the value is empty, or
 * begins with "=". */
static size_t behind_value(const xd_tags *t, size_t name)
{
    size_t equals = run(t, BLANK, name), behind = equals, v;
    while (behind < t->len && t->s[behind] == '=')
        behind++;
    if (behind == equals)
        return name;
    v = run(t, BLANK, behind);
    char quote = v < t->len ? t->s[v] : 0;
    if (quote != '\'' && quote != '"')
        return run(t, VALUE, v);
    size_t close = run(t, quote == '"' ? DOUBLE : SINGLE, v + 1);
    if (close < t->len)
        return close + 1;
    return v > behind ? v : behind - equals > 1 ? run(t, VALUE, behind - 1) : name;
}

size_t xd_tags_attribute(const xd_tags *t, size_t at)
{
    size_t took;
    int    apart = at &&
                   (strchr("'\"/", t->s[at - 1]) ? t->s[at - 1] != 0 : run(t, BLANK, at - 1) >= at);
    if (!apart || at >= t->len || t->s[at] == '>' || run(t, GAP, at) > at)
        return at;
    xd_utf8_get(t->s + at, t->len - at, &took);
    return behind_gap(t, behind_value(t, run(t, ATTRIBUTE, at + took)));
}

size_t xd_tags_scan(xd_tags *t, size_t at)
{
    size_t   p = run(t, GAP, run(t, NAME, at + 1)), next;
    uint32_t me = ++t->scans;
    for (; !t->scan[p]; p = next) {
        t->scan[p] = me;
        if ((next = xd_tags_attribute(t, p)) == p)
            break;
    }
    t->ends[me] = t->scan[p] == me ? (uint32_t)run(t, BLANK, p) : t->ends[t->scan[p]];
    return t->ends[me];
}
