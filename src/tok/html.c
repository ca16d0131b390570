/* html.c - extracts the text of HTML, like Beautiful Soup with Python's html.parser (3.11).
 *
 * Removes tags, comments and declarations, replaces entities, and replaces white space between two
 * tags by one character. The content of scripts, style sheets, templates and ruby annotations is
 * not part of the text. For invalid HTML, the text is the same as that of Beautiful Soup. Markup
 * that html.parser rejects is treated as a comment. */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>

#define S "[" XD_SPACES "]"

enum {
    END,
    COMMENT_END,
    SECTION,
    SECTION_END,
    OFFICE_END,
    NAMED,
    NUMBERED,
    CUT,
    SCRIPT_END,
    STYLE_END,
    PATTERNS
};

static const char *const patterns[PATTERNS] = {
    [END] = "</" S "*([a-zA-Z][-.a-zA-Z0-9:_]*)" S "*>",
    [COMMENT_END] = "--" S "*>",
    [SECTION] = "<!\\[([a-zA-Z][-_.a-zA-Z0-9]*+)" S "*+(?!\\z)",
    [SECTION_END] = "]" S "*]" S "*>",
    [OFFICE_END] = "]" S "*>",
    [NAMED] = "&([a-zA-Z][-.a-zA-Z0-9]*)[^a-zA-Z0-9]",
    [NUMBERED] = "&#(?:[0-9]+|[xX][0-9a-fA-F]+)[^0-9a-fA-F]",
    [CUT] = "&[a-zA-Z#]",
    [SCRIPT_END] = "(?i)</" S "*script" S "*>",
    [STYLE_END] = "(?i)</" S "*style" S "*>",
};

typedef struct parser {
    const char  *s;
    size_t       len, at;
    xd_finder   *find[PATTERNS];
    /* For each pattern, 1 + an offset after which the pattern has no match, or 0 if no such offset
     * is known. */
    size_t       none[PATTERNS];
    xd_tags     *tags;
    const char  *raw;  /* name of the open script or style tag, or NULL */
    xd_slice    *open; /* stack of open tags */
    size_t       nopen, cap;
    /* Numbers of open tags: `kept` counts the open tags that keep white space, `silent` the open
     * tags whose content is not text. */
    int          kept, silent;
    /* For each void element, such as <br>, the number of its end tags that are still to be
     * skipped. */
    size_t       closed[32];
    xd_bytes_buf data, out;
    int          last; /* 1: the parsed text extends to the end of the document */
} parser;

/* ---- the tree ------------------------------------------------------------------------------- */

static const char *const empty[] = {
    "area",     "base",    "br",       "col",   "embed", "hr",      "img",    "input",
    "keygen",   "link",    "menuitem", "meta",  "param", "source",  "track",  "wbr",
    "basefont", "bgsound", "command",  "frame", "image", "isindex", "nextid", "spacer",
};
enum { EMPTY = sizeof empty / sizeof *empty };

static int is_word(xd_slice w, const char *word)
{
    if (strlen(word) != w.len)
        return 0;
    for (size_t i = 0; i < w.len; i++)
        if ((w.p[i] >= 'A' && w.p[i] <= 'Z' ? w.p[i] | 0x20 : w.p[i]) != word[i])
            return 0;
    return 1;
}

static int is_one_of(xd_slice w, const char *const *list, int n)
{
    for (int i = 0; i < n; i++)
        if (is_word(w, list[i]))
            return i;
    return -1;
}

static int is_same(xd_slice a, xd_slice b)
{
    if (a.len != b.len)
        return 0;
    for (size_t i = 0; i < a.len; i++)
        if (a.p[i] != b.p[i] &&
            !((a.p[i] ^ b.p[i]) == 0x20 && ((a.p[i] | 0x20) >= 'a') && ((a.p[i] | 0x20) <= 'z')))
            return 0;
    return 1;
}

/* Updates `kept` and `silent`, the counts of open tags, for a tag that opens (`by` is 1) or closes
 * (`by` is -1). */
static void count_tag(parser *h, xd_slice name, int by)
{
    static const char *const kept[] = { "pre", "textarea" };
    static const char *const silent[] = { "rt", "rp", "style", "script", "template" };
    h->kept += is_one_of(name, kept, 2) >= 0 ? by : 0;
    h->silent += is_one_of(name, silent, 5) >= 0 ? by : 0;
}

/* Appends a piece of text. A text that consists only of white space becomes a single character,
 * unless an open tag keeps white space. */
static void put_piece(parser *h, const char *s, size_t len)
{
    int blank = 1, line = 0;
    for (size_t i = 0; i < len; i++) {
        blank &= s[i] && strchr(" \n\t\f\r", s[i]) != NULL;
        line |= s[i] == '\n';
    }
    if (blank && !h->kept)
        xd_bytes_add(&h->out, line ? "\n" : " ", 1);
    else
        xd_bytes_add(&h->out, s, len);
}

static void end_data(parser *h)
{
    if (h->data.len && !h->silent)
        put_piece(h, h->data.p, h->data.len);
    h->data.len = 0;
}

static void start_tag(parser *h, xd_slice name, int closed)
{
    int kind = is_one_of(name, empty, EMPTY);
    end_data(h);
    if (closed || kind >= 0) {
        if (!closed)
            h->closed[kind]++;
        return;
    }
    if (h->nopen == h->cap) {
        size_t    cap = h->cap * 2 + 16;
        xd_slice *p = realloc(h->open, cap * sizeof *p);
        h->out.failed |= !p;
        if (!p)
            return;
        h->open = p;
        h->cap = cap;
    }
    h->open[h->nopen++] = name;
    count_tag(h, name, 1);
}

static void end_tag(parser *h, xd_slice name)
{
    int kind = is_one_of(name, empty, EMPTY);
    if (kind >= 0 && h->closed[kind]) {
        h->closed[kind]--;
        return;
    }
    end_data(h);
    for (size_t i = h->nopen; i-- > 0;)
        if (is_same(h->open[i], name)) {
            while (h->nopen > i)
                count_tag(h, h->open[--h->nopen], -1);
            return;
        }
}

/* ---- markup: each function returns the markup's end, or NONE if incomplete ------------------ */

#define NONE ((size_t)-1)

static int match_at(parser *h, int pattern, size_t at, int here, size_t *span)
{
    if (!here && h->none[pattern] && at + 1 >= h->none[pattern])
        return 0;
    int found = xd_finder_next(h->find[pattern], h->s, h->len, at, here, span, 2);
    if (!here && !found)
        h->none[pattern] = at + 1;
    return found;
}

static size_t find_byte(const parser *h, size_t at, char c)
{
    const char *p = at < h->len ? memchr(h->s + at, c, h->len - at) : NULL;
    return p ? (size_t)(p - h->s) : NONE;
}

static int begins(const parser *h, size_t at, const char *word)
{
    size_t n = strlen(word);
    return at + n <= h->len && !memcmp(h->s + at, word, n);
}

static size_t end_of_start(parser *h, size_t i)
{
    size_t j = xd_tags_scan(h->tags, i);
    char   c = j < h->len ? h->s[j] : 0;
    if (j == h->len || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '=')
        return NONE;
    if (c == '/')
        return begins(h, j, "/>") ? j + 2 : NONE;
    return c == '>' ? j + 1 : j > i ? j : i + 1;
}

static size_t read_start(parser *h, size_t i)
{
    size_t end = end_of_start(h, i), k, next, took;
    if (end == NONE)
        return end;
    xd_slice name = { h->s + i + 1, xd_tags_name(h->tags, i + 1, &k) - i - 1 };
    while (k < end && (next = xd_tags_attribute(h->tags, k)) > k)
        k = next;
    for (; k < end && xd_is_blank(xd_utf8_get(h->s + k, end - k, &took)); k += took)
        ;
    int whole = k + 1 == end && h->s[k] == '>', closed = k + 2 == end && begins(h, k, "/>");
    if (!whole && !closed) {
        xd_bytes_add(&h->data, h->s + i, end - i);
        return end;
    }
    start_tag(h, name, closed);
    if (whole && is_word(name, "script"))
        h->raw = "script";
    if (whole && is_word(name, "style"))
        h->raw = "style";
    return end;
}

static size_t read_end(parser *h, size_t i)
{
    size_t span[4], close = find_byte(h, i + 1, '>');
    if (close == NONE)
        return NONE;
    if (match_at(h, END, i, 1, span)) {
        xd_slice name = { h->s + span[2], span[3] - span[2] };
        if (h->raw && !is_word(name, h->raw)) {
            xd_bytes_add(&h->data, h->s + i, close + 1 - i);
            return close + 1;
        }
        end_tag(h, name);
        h->raw = NULL;
        return close + 1;
    }
    if (h->raw) {
        xd_bytes_add(&h->data, h->s + i, close + 1 - i);
        return close + 1;
    }
    size_t behind, name_end = xd_tags_name(h->tags, i + 2, &behind);
    if (name_end > i + 2) {
        end_tag(h, (xd_slice){ h->s + i + 2, name_end - i - 2 });
        return find_byte(h, behind, '>') + 1;
    }
    if (begins(h, i, "</>"))
        return i + 3;
    end_data(h);
    return close + 1;
}

/* Reads a comment or declaration, "<!..." or "<?...". A CDATA section adds text; other declarations
 * and comments do not. */
static size_t read_declaration(parser *h, size_t i)
{
    static const char *const standard[] = { "temp", "cdata", "ignore", "include", "rcdata" };
    static const char *const office[] = { "if", "else", "endif" };
    size_t                   span[4], end[4], close = find_byte(h, i + 2, '>');
    if (begins(h, i, "<!--")) {
        if (!match_at(h, COMMENT_END, i + 4, 0, span))
            return NONE;
        end_data(h);
        return span[1];
    }
    if (begins(h, i, "<![") && match_at(h, SECTION, i, 1, span)) {
        xd_slice name = { h->s + span[2], span[3] - span[2] };
        int      known = is_one_of(name, standard, 5) >= 0 ? SECTION_END
                         : is_one_of(name, office, 3) >= 0 ? OFFICE_END
                                                           : -1;
        if (known >= 0 && !match_at(h, known, i + 3, 0, end))
            return NONE;
        if (known >= 0) {
            end_data(h);
            if (end[0] >= i + 9 && is_word((xd_slice){ h->s + i + 3, 6 }, "cdata["))
                put_piece(h, h->s + i + 9, end[0] - i - 9);
            return end[1];
        }
    }
    if (close == NONE)
        return NONE;
    end_data(h);
    return close + 1;
}

/* ---- entities ------------------------------------------------------------------------------- */

/* Reads the entity at h->at. Returns 0 if the parser cannot continue. */
static int read_reference(parser *h)
{
    size_t  i = h->at, span[4];
    int64_t v;
    int     number = begins(h, i, "&#");
    if (match_at(h, number ? NUMBERED : NAMED, i, 1, span)) {
        size_t digits = number ? xd_entity_number(h->s + i, h->len - i, &v) : span[3] - i;
        if (number)
            xd_utf8_put(xd_entity_code(v), &h->data);
        else if (!xd_entity_put(h->s + span[2], span[3] - span[2], 0, &h->data))
            xd_bytes_add(&h->data, h->s + i, span[3] - i);
        h->at = i + digits + (h->s[i + digits] == ';');
        return 1;
    }
    if (number) {
        if (find_byte(h, i, ';') != NONE) {
            xd_bytes_add(&h->data, "&#", 2);
            h->at += 2;
        }
        return 0;
    }
    if (match_at(h, CUT, i, 1, span)) {
        if (h->last && span[1] == h->len)
            h->at++;
        return 0;
    }
    if (i + 1 == h->len)
        return 0;
    xd_bytes_add(&h->data, "&", 1);
    h->at++;
    return 1;
}

/* ---- all ------------------------------------------------------------------------------------ */

/* Returns the beginning of the next markup or entity. Returns NONE in a script or style sheet whose
 * end tag is missing. */
static size_t next_markup(parser *h)
{
    size_t span[4], i = h->at;
    if (h->raw)
        return match_at(h, h->raw[1] == 'c' ? SCRIPT_END : STYLE_END, i, 0, span) ? span[0] : NONE;
    while (i < h->len && h->s[i] != '<' && h->s[i] != '&')
        i++;
    return i;
}

/* Reads the markup at h->at. Returns 0 if the parser cannot continue. */
static int read_markup(parser *h)
{
    size_t i = h->at, k;
    char   c = i + 1 < h->len ? (char)(h->s[i + 1] | 0x20) : 0;
    if (c >= 'a' && c <= 'z')
        k = read_start(h, i);
    else if (begins(h, i, "</"))
        k = read_end(h, i);
    else if (begins(h, i, "<!") || begins(h, i, "<?"))
        k = read_declaration(h, i);
    else if (i + 1 < h->len)
        xd_bytes_add(&h->data, "<", 1), k = i + 1;
    else
        return 0;
    if (k == NONE) {
        if (!h->last)
            return 0;
        k = find_byte(h, i + 1, '>');
        if (k != NONE)
            k++;
        else if ((k = find_byte(h, i + 1, '<')) == NONE)
            k = i + 1;
        xd_bytes_add(&h->data, h->s + i, k - i);
    }
    h->at = k;
    return 1;
}

static void read_all(parser *h)
{
    int more = 1;
    while (more && h->at < h->len && !h->out.failed) {
        size_t j = next_markup(h);
        if (j == NONE)
            break;
        xd_bytes_add(&h->data, h->s + h->at, j - h->at);
        h->at = j;
        if (j < h->len)
            more = h->s[j] == '<' ? read_markup(h) : read_reference(h);
    }
    if (h->last && h->at < h->len && !h->raw)
        xd_bytes_add(&h->data, h->s + h->at, h->len - h->at);
}

void xd_html_text(xd_bytes_buf *text)
{
    parser h = { .s = text->p, .len = text->len, .tags = xd_tags_open(text->p, text->len) };
    h.out.failed |= !h.tags;
    for (int i = 0; i < PATTERNS; i++) {
        h.find[i] = xd_finder_open(patterns[i], 0);
        h.out.failed |= !h.find[i];
    }
    for (h.last = 0; h.last < 2 && !h.out.failed; h.last++)
        read_all(&h);
    end_data(&h);
    for (int i = 0; i < PATTERNS; i++)
        xd_finder_close(h.find[i]);
    h.out.failed |= h.data.failed | text->failed;
    xd_tags_close(h.tags);
    free(h.open);
    xd_bytes_free(&h.data);
    xd_bytes_free(text);
    *text = h.out;
}
