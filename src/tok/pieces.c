/* pieces.c - stores a vocabulary without scores, in a hash table of pieces (strings) and their
 * ids. */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ID = XD_PIECES_MAX - 1 };

size_t xd_table_size(int n)
{
    size_t size = 64;
    while (size < (size_t)n * 2)
        size *= 2;
    return size;
}

size_t xd_text_hash(const char *s, size_t len)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
    return (size_t)(h ^ h >> 29);
}

/* Returns the slot of the hash table that has a string, or a free slot if the table does not have
 * the string. */
static size_t find_slot(const xd_pieces *v, const char *s, size_t len)
{
    size_t i = xd_text_hash(s, len) & (v->slots - 1);
    for (; v->slot[i] >= 0; i = (i + 1) & (v->slots - 1)) {
        const xd_piece_id *p = &v->p[v->slot[i]];
        if (p->len == len && !memcmp(v->text.p + p->at, s, len))
            break;
    }
    return i;
}

int32_t xd_pieces_find(const xd_pieces *v, const char *s, size_t len)
{
    int32_t i = len ? v->slot[find_slot(v, s, len)] : -1;
    return i < 0 ? -1 : v->p[i].id;
}

void xd_pieces_free(xd_pieces *v)
{
    free(v->p);
    free(v->slot);
    free(v->text.p);
    *v = (xd_pieces){ 0 };
}

/* Allocates the hash table for a vocabulary of n pieces. */
static xd_status open_table(xd_pieces *v, int n, const char *what, xd_err *e)
{
    v->slots = xd_table_size(n);
    v->p = malloc((size_t)n * sizeof *v->p);
    v->slot = malloc(v->slots * sizeof *v->slot);
    if (!v->p || !v->slot)
        return xd_fail(e, XD_ENOMEM, "no memory for the %d pieces of %s", n, what);
    memset(v->slot, 0xff, v->slots * sizeof *v->slot);
    return XD_OK;
}

/* Stores a string and its id in a slot of the hash table, which must be free. */
static xd_status put_piece(xd_pieces *v, size_t slot, const char *s, size_t len, int32_t id,
                           const char *what, xd_err *e)
{
    v->slot[slot] = v->n;
    v->p[v->n++] = (xd_piece_id){ v->text.len, len, id };
    v->top = id >= v->top ? id + 1 : v->top;
    v->longest = len > v->longest ? len : v->longest;
    xd_bytes_add(&v->text, s, len);
    return v->text.failed ? xd_fail(e, XD_ENOMEM, "no memory for the pieces of %s", what) : XD_OK;
}

static xd_status too_long(int n, size_t len, const char *what, xd_err *e)
{
    return xd_fail(e, XD_EFORMAT, "%s: piece %d has %zu bytes; it must have 1 to %d", what, n, len,
                   (int)XD_PIECE_MAX);
}

/* ---- an object of pieces and ids ---------------------------------------------------------- */

/* Adds a piece, and fails if its id was used before. `seen` has one bit for each possible id; the
 * bit is 1 if the id was used. */
static xd_status add_piece(xd_pieces *v, xd_slice s, int32_t id, unsigned char *seen,
                           const char *what, xd_err *e)
{
    int shown = (int)(s.len < 80 ? s.len : 80);
    if (s.len > XD_PIECE_MAX)
        return too_long(v->n, s.len, what, e);
    if (seen[id / 8] >> id % 8 & 1)
        return xd_fail(e, XD_EFORMAT, "%s: id %d of '%.*s' also belongs to another piece", what, id,
                       shown, s.p);
    size_t slot = find_slot(v, s.p, s.len);
    if (v->slot[slot] >= 0)
        return xd_fail(e, XD_EFORMAT, "%s: '%.*s' occurs twice", what, shown, s.p);
    seen[id / 8] |= (unsigned char)(1 << id % 8);
    return put_piece(v, slot, s.p, s.len, id, what, e);
}

static xd_status no_id(const char *what, xd_slice s, xd_err *e)
{
    return xd_fail(e, XD_EFORMAT, "%s: the id of '%.*s' is not an integer from 0 to %d", what,
                   (int)(s.len < 80 ? s.len : 80), s.p, (int)MAX_ID);
}

/* Adds one piece to the vocabulary; the JSON member j has the piece as its key, and the id as its
 * value. */
static xd_status add_member(xd_pieces *v, const xd_json *j, unsigned char *seen, const char *what,
                            xd_err *e)
{
    const char *s = xd_json_key(j) ? xd_json_key(j) : "";
    xd_slice    name = { s, strlen(s) };
    double      id;
    if (name.len > XD_PIECE_MAX)
        return too_long(v->n, name.len, what, e);
    if (!xd_json_number(j, &id) || !(id >= 0 && id <= MAX_ID) || id != (double)(int32_t)id)
        return no_id(what, name, e);
    return add_piece(v, name, (int32_t)id, seen, what, e);
}

xd_status xd_pieces_json(xd_pieces *v, const xd_json *j, int blanks, const char *what, xd_err *e)
{
    int n = xd_json_is_object(j) ? xd_json_size(j) : 0;
    if (n < 1 || n > XD_PIECES_MAX)
        return xd_fail(e, XD_EFORMAT, "%s has no object of pieces and their ids", what);
    unsigned char *seen = calloc(MAX_ID / 8 + 1, 1);
    xd_status      s = seen ? open_table(v, n, what, e)
                            : xd_fail(e, XD_ENOMEM, "no memory for the %d pieces of %s", n, what);
    for (const xd_json *i = xd_json_first(j); i && v->n < n && s == XD_OK; i = xd_json_next(i))
        s = !blanks && xd_json_key(i) && !*xd_json_key(i) ? too_long(v->n, 0, what, e)
                                                          : add_member(v, i, seen, what, e);
    free(seen);
    return s;
}

/* Reads at most `max` members of the JSON object at k, and adds their pieces to the vocabulary. */
static xd_status add_members(xd_pieces *v, xd_skim *k, size_t max, unsigned char *seen,
                             const char *what, xd_err *e)
{
    xd_bytes_buf buf = { 0 };
    xd_status    s = xd_skim_is(k, '{') ? XD_OK : xd_skim_broken(k, what, "the vocabulary", e);
    for (int more = s == XD_OK; more && s == XD_OK; more = s == XD_OK && xd_skim_is(k, ',')) {
        xd_slice name;
        int64_t  id;
        if (!xd_skim_string(k, &buf, &name) || !xd_skim_is(k, ':') || (size_t)v->n >= max)
            s = xd_skim_broken(k, what, "the vocabulary", e);
        else if (!xd_skim_id(k, &id) || id > MAX_ID)
            s = no_id(what, name, e);
        else if (!name.len)
            s = too_long(v->n, 0, what, e);
        else
            s = add_piece(v, name, (int32_t)id, seen, what, e);
    }
    if (s == XD_OK && !xd_skim_is(k, '}'))
        s = xd_skim_broken(k, what, "the vocabulary", e);
    xd_bytes_free(&buf);
    return s;
}

xd_status xd_pieces_span(xd_pieces *v, xd_slice span, const char *what, xd_err *e)
{
    xd_skim k = { span.p, span.len, 0 };
    size_t  max = 0;
    for (size_t i = 0; i < span.len; i++) /* counts quotes: a piece has at least two */
        max += span.p[i] == '"';
    max = max / 2 < XD_PIECES_MAX ? max / 2 : XD_PIECES_MAX;
    if (!max)
        return xd_fail(e, XD_EFORMAT, "%s has no object of pieces and their ids", what);
    unsigned char *seen = calloc(MAX_ID / 8 + 1, 1);
    xd_status      s = seen ? open_table(v, (int)max, what, e)
                            : xd_fail(e, XD_ENOMEM, "no memory for the pieces of %s", what);
    if (s == XD_OK)
        s = add_members(v, &k, max, seen, what, e);
    free(seen);
    return s;
}

xd_status xd_pieces_list(xd_pieces *v, const xd_vocab *list, const char *what, xd_err *e)
{
    unsigned char *seen = calloc(MAX_ID / 8 + 1, 1);
    xd_status      s = !seen ? xd_fail(e, XD_ENOMEM, "no memory for the pieces of %s", what)
                       : list->n < 1 || list->n > XD_PIECES_MAX
                           ? xd_fail(e, XD_EFORMAT, "%s has %d pieces; it must have 1 to %d", what,
                                     list->n, (int)XD_PIECES_MAX)
                           : open_table(v, list->n, what, e);
    for (int i = 0; i < list->n && s == XD_OK; i++) {
        xd_slice name = { list->text.p + list->p[i].at, list->p[i].len };
        s = add_piece(v, name, i, seen, what, e);
    }
    free(seen);
    return s;
}

/* ---- one piece per line ------------------------------------------------------------------- */

/* Adds the piece that is in a line of vocab.txt. An empty line adds no piece, but is counted, so
 * that no other piece gets the id of that line. */
static xd_status add_line(xd_pieces *v, const char *s, size_t len, int number, const char *what,
                          xd_err *e)
{
    size_t from;
    while (len && xd_is_space(xd_utf8_before(s, len, &from)))
        len = from;
    if (len > XD_PIECE_MAX)
        return too_long(number - 1, len, what, e);
    v->top = number;
    if (!len)
        return XD_OK;
    size_t slot = find_slot(v, s, len);
    if (v->slot[slot] >= 0)
        return xd_fail(e, XD_EFORMAT, "%s: '%.*s' is in line %d and in line %d", what,
                       (int)(len < 80 ? len : 80), s, v->p[v->slot[slot]].id + 1, number);
    return put_piece(v, slot, s, len, number - 1, what, e);
}

xd_status xd_pieces_lines(xd_pieces *v, const char *s, size_t len, const char *what, xd_err *e)
{
    size_t lines = 0;
    int    number = 0;
    for (size_t i = 0; i < len; i++)
        lines += s[i] == '\n' || i == len - 1;
    if (lines < 1 || lines > XD_PIECES_MAX)
        return xd_fail(e, XD_EFORMAT, "%s has %zu lines; it must have 1 to %d", what, lines,
                       (int)XD_PIECES_MAX);
    xd_status st = open_table(v, (int)lines, what, e);
    for (size_t at = 0; at < len && st == XD_OK;) {
        const char *end = memchr(s + at, '\n', len - at);
        size_t      n = end ? (size_t)(end - s) - at : len - at;
        st = add_line(v, s + at, n, ++number, what, e);
        at += n + 1;
    }
    return st;
}
