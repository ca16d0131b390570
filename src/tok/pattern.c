/* pattern.c - splits a text with the regular expressions of a tokenizer.json, in PCRE2.
 *
 * The expressions are written for Oniguruma with the tables of Unicode 16, and translated for
 * PCRE2: \s and \p{..} become classes that also list the characters that PCRE2 10.42 (Unicode 14)
 * lacks. Syntax that the two libraries interpret differently is refused. Oniguruma's \s matches
 * Unicode's White_Space; PCRE2's \s would also match U+180E. The translation only adds characters
 * to classes, so the result is the same with a newer PCRE2. */
#include "tok/inside.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct xd_pattern {
    pcre2_code *code; /* NULL: search for the literal `text` */
    char       *text;
    size_t      len;
};

#define SPACES "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"

/* Characters that have another category in Unicode 16 than in PCRE2 10.42, listed by category. */
static const struct {
    const char *name, *ranges;
} later[] = {
    { "Lu", "\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}" },
    { "Ll", "\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{10d70}-\\x{10d85}\\x{1df25}-\\x{1df2a}" },
    { "Lm", "\\x{10d4e}\\x{10d6f}\\x{16d40}-\\x{16d42}\\x{16d6b}-\\x{16d6c}"
            "\\x{1e030}-\\x{1e06d}\\x{1e4eb}" },
    { "Lo", "\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d4d}\\x{10d4f}\\x{10ec2}-\\x{10ec4}"
            "\\x{1123f}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}"
            "\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}"
            "\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}\\x{1342f}"
            "\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}"
            "\\x{16d43}-\\x{16d6a}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1e4d0}-\\x{1e4ea}"
            "\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}"
            "\\x{31350}-\\x{323af}" },
    { "M", "\\x{897}\\x{cf3}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}"
           "\\x{113b8}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}"
           "\\x{113cc}-\\x{113d0}\\x{113d2}\\x{113e1}-\\x{113e2}\\x{11f00}-\\x{11f01}"
           "\\x{11f03}\\x{11f34}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f5a}\\x{13440}"
           "\\x{13447}-\\x{13455}\\x{1611e}-\\x{1612f}\\x{1e08f}\\x{1e4ec}-\\x{1e4ef}"
           "\\x{1e5ee}-\\x{1e5ef}" },
    { "Nd", "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}"
            "\\x{11f50}-\\x{11f59}\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}"
            "\\x{1ccf0}-\\x{1ccf9}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}" },
    { "No", "\\x{1d2c0}-\\x{1d2d3}" },
    { "P", "\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{10d6e}\\x{113d4}-\\x{113d5}"
           "\\x{113d7}-\\x{113d8}\\x{11b00}-\\x{11b09}\\x{11be1}\\x{11f43}-\\x{11f4f}"
           "\\x{16d6d}-\\x{16d6f}\\x{1e5ff}" },
    { "S", "\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}"
           "\\x{10d8e}-\\x{10d8f}\\x{1cc00}-\\x{1ccef}\\x{1cd00}-\\x{1ceb3}\\x{1f6dc}"
           "\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}"
           "\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}"
           "\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}"
           "\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}"
           "\\x{1fbcb}-\\x{1fbef}" },
};

static const char *const categories[] = { "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M",
                                          "N", "Nd", "Nl", "No", "P",  "S",  "Z" };

/* ---- translation ---------------------------------------------------------------------------- */

typedef struct reader {
    const char  *s;
    size_t       len, at;
    int          inside; /* 1: the position is inside the brackets of a class */
    xd_bytes_buf out;
} reader;

static void put_text(reader *r, const char *s)
{
    xd_bytes_add(&r->out, s, strlen(s));
}

/* Appends a character class with the members `body`. If the translation is inside the brackets of a
 * class, appends only the members. */
static void put_class(reader *r, int negated, const char *body)
{
    if (!r->inside)
        put_text(r, negated ? "[^" : "[");
    put_text(r, body);
    if (!r->inside)
        put_text(r, "]");
}

/* Appends the character class of a Unicode category. If the translation is inside the brackets of a
 * class, appends only the category's members. Returns 0 if the category is unknown. */
static int put_category(reader *r, int negated, const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        if (strlen(categories[i]) != n || memcmp(categories[i], name, n))
            continue;
        xd_bytes_buf all = { 0 };
        xd_bytes_add(&all, "\\p{", 3);
        xd_bytes_add(&all, name, n);
        xd_bytes_add(&all, "}", 1);
        for (size_t k = 0; k < sizeof later / sizeof *later; k++)
            if (!strncmp(later[k].name, name, n))
                xd_bytes_add(&all, later[k].ranges, strlen(later[k].ranges));
        xd_bytes_add(&all, "", 1);
        r->out.failed |= all.failed;
        put_class(r, negated, all.failed ? "" : all.p);
        free(all.p);
        return 1;
    }
    return 0;
}

/* Translates \p{NAME} or \P{NAME}. r->at must be after the p or P. Returns 0 if the category NAME
 * is unknown. */
static int read_category(reader *r, int negated)
{
    const char *name = r->s + r->at + 1;
    const char *end = r->at < r->len && r->s[r->at] == '{' ? memchr(name, '}', r->len - r->at - 1)
                                                           : NULL;
    if (!end || (negated && r->inside) || !put_category(r, negated, name, (size_t)(end - name)))
        return 0;
    r->at = (size_t)(end - r->s) + 1;
    return 1;
}

/* Translates an escape sequence. r->at must be at the backslash. Returns 0 if the escape sequence
 * is unknown. */
static int read_escape(reader *r)
{
    if (r->at + 1 >= r->len)
        return 0;
    char c = r->s[r->at + 1];
    r->at += 2;
    switch (c) {
    case 's': put_class(r, 0, SPACES); return 1;
    case 'S':
        if (!r->inside)
            put_class(r, 1, SPACES);
        return !r->inside;
    case 'd': return put_category(r, 0, "Nd", 2);
    case 'p': return read_category(r, 0);
    case 'P': return read_category(r, 1);
    default: break;
    }
    int word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               (c & 0x80);
    if (word && (!c || !strchr("rntfxA", c)))
        return 0;
    xd_bytes_add(&r->out, r->s + r->at - 2, 2);
    return 1;
}

/* Returns 1 for a beginning of a group, such as "(?i:", that Oniguruma and PCRE2 interpret in the
 * same way. */
static int is_known_group(const reader *r)
{
    static const char *const known[] = { "(?i:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>" };
    size_t                   left = r->len - r->at;
    if (left < 2 || r->s[r->at + 1] != '?')
        return 1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) <= left && !memcmp(r->s + r->at, known[i], strlen(known[i])))
            return 1;
    return 0;
}

/* Translates a pattern. If the pattern has unknown syntax, returns 0; r->at is then near that
 * syntax. */
static int translate(reader *r)
{
    while (r->at < r->len) {
        char c = r->s[r->at];
        if (c == '\\') {
            if (!read_escape(r))
                return 0;
            continue;
        }
        if (r->inside && (c == '[' || (c == '&' && r->at + 1 < r->len && r->s[r->at + 1] == '&')))
            return 0; /* Oniguruma's nested classes are not supported */
        if (!r->inside && (c == '^' || (c == '(' && !is_known_group(r))))
            return 0;
        if (c == '[') {
            r->inside = 1;
            if (r->at + 1 < r->len && r->s[r->at + 1] == '^')
                put_text(r, "[^"), r->at += 2;
            else
                put_text(r, "["), r->at++;
            if (r->at < r->len && r->s[r->at] == ']')
                return 0;
            continue;
        }
        if (c == ']')
            r->inside = 0;
        xd_bytes_add(&r->out, &c, 1);
        r->at++;
    }
    return !r->inside;
}

/* ---- opening -------------------------------------------------------------------------------- */

static xd_status compile(xd_pattern *p, const char *regex, const char *what, xd_err *e)
{
    reader     r = { .s = regex, .len = strlen(regex) };
    int        code = 0, known = translate(&r);
    PCRE2_SIZE at = 0;
    xd_status  s = XD_OK;
    if (!known)
        s = xd_fail(e, XD_EUNSUPPORTED,
                    "%s: its pattern '%.200s' has unsupported syntax before "
                    "character %zu",
                    what, regex, r.at);
    else if (r.out.failed)
        s = xd_fail(e, XD_ENOMEM, "no memory for a pattern");
    if (s == XD_OK) {
        p->code = pcre2_compile((PCRE2_SPTR)(r.out.p ? r.out.p : ""), r.out.len,
                                PCRE2_UTF | PCRE2_MULTILINE, &code, &at, NULL);
        if (!p->code)
            s = xd_fail(e, XD_EFORMAT, "%s: PCRE2 refuses the pattern '%.200s', error %d", what,
                        regex, code);
        else
            pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* without JIT, it is slower */
    }
    free(r.out.p);
    return s;
}

xd_status xd_pattern_open(xd_pattern **out, const char *regex, const char *text, const char *what,
                          xd_err *e)
{
    xd_pattern *p = calloc(1, sizeof *p);
    xd_status   s = p ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a pattern");
    *out = NULL;
    if (p && text) {
        p->len = strlen(text);
        p->text = malloc(p->len + 1);
        if (!p->text)
            s = xd_fail(e, XD_ENOMEM, "no memory for a pattern");
        else
            memcpy(p->text, text, p->len + 1);
        if (s == XD_OK && !p->len)
            s = xd_fail(e, XD_EFORMAT, "%s: a pattern of its pre_tokenizer is empty", what);
    } else if (p) {
        s = compile(p, regex, what, e);
    }
    if (s == XD_OK)
        *out = p;
    else
        xd_pattern_close(p);
    return s;
}

void xd_pattern_close(xd_pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    free(p->text);
    free(p);
}

/* ---- splitting ------------------------------------------------------------------------------ */

static void add_cut(xd_cuts *c, size_t from, size_t to, int match)
{
    if (c->n == c->cap && !c->failed) {
        size_t       cap = c->cap * 2 + 64;
        xd_text_cut *p = realloc(c->p, cap * sizeof *p);
        c->failed = !p;
        if (p) {
            c->p = p;
            c->cap = cap;
        }
    }
    if (!c->failed)
        c->p[c->n++] = (xd_text_cut){ from, to, match };
}

static void cut_at_text(const xd_pattern *p, const char *s, size_t len, xd_cuts *c)
{
    size_t from = 0;
    for (size_t i = 0; i + p->len <= len;) {
        const char *q = memchr(s + i, p->text[0], len - p->len - i + 1);
        if (!q)
            break;
        i = (size_t)(q - s);
        if (memcmp(q, p->text, p->len)) {
            i++;
            continue;
        }
        if (i > from)
            add_cut(c, from, i, 0);
        add_cut(c, i, i + p->len, 1);
        from = i += p->len;
    }
    if (len > from)
        add_cut(c, from, len, 0);
}

/* Finds the first match of a pattern that begins at offset `at` or later. If the stack of the
 * JIT-compiled code is too small, interprets the pattern. */
static int match_next(const xd_pattern *p, const char *s, size_t len, size_t at,
                      pcre2_match_data *m)
{
    int found = pcre2_match(p->code, (PCRE2_SPTR)s, len, at, PCRE2_NO_UTF_CHECK, m, NULL);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(p->code, (PCRE2_SPTR)s, len, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m,
                            NULL);
    return found;
}

static void cut_at_matches(const xd_pattern *p, const char *s, size_t len, xd_cuts *c)
{
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    size_t            from = 0, at = 0;
    int               found = m ? 0 : PCRE2_ERROR_NOMEMORY;
    while (m && at <= len && !c->failed && (found = match_next(p, s, len, at, m)) >= 0) {
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m);
        if (v[0] > from)
            add_cut(c, from, v[0], 0);
        if (v[1] > v[0])
            add_cut(c, v[0], v[1], 1);
        from = v[1];
        at = v[1] > v[0] ? v[1] : v[1] < len ? v[1] + xd_utf8_len(s + v[1]) : len + 1;
    }
    if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT ||
        found == PCRE2_ERROR_HEAPLIMIT)
        c->failed |= XD_FAILED_ENDLESS;
    else if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        c->failed |= XD_FAILED_MEMORY;
    if (len > from)
        add_cut(c, from, len, 0);
    pcre2_match_data_free(m);
}

void xd_pattern_cut(const xd_pattern *p, const char *s, size_t len, xd_cuts *c)
{
    c->n = 0;
    if (p->code)
        cut_at_matches(p, s, len, c);
    else
        cut_at_text(p, s, len, c);
}

/* Appends part i of a split text to the kept part before it, or keeps part i as a separate part. */
static void join_or_keep(xd_cuts *c, size_t *n, size_t i, int join)
{
    if (join && *n)
        c->p[*n - 1].to = c->p[i].to;
    else
        c->p[(*n)++] = c->p[i];
}

void xd_cuts_merge(xd_cuts *c, xd_split_how how, int invert)
{
    size_t n = 0;
    int    before = 0;
    for (size_t i = 0; i < c->n; i++) {
        int match = c->p[i].match != invert;
        if (how == XD_SPLIT_REMOVED && match)
            continue;
        if (how == XD_SPLIT_WITH_PREVIOUS)
            join_or_keep(c, &n, i, match && !before);
        else if (how == XD_SPLIT_CONTIGUOUS)
            join_or_keep(c, &n, i, i > 0 && match == before);
        else if (how == XD_SPLIT_WITH_NEXT)
            join_or_keep(c, &n, i, !match && before);
        else
            join_or_keep(c, &n, i, 0);
        before = match;
    }
    c->n = n;
}
