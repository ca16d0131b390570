/* charsmap.c - applies the precompiled character map of a SentencePiece model like Hugging Face's
 * tokenizers.
 *
 * The map is a binary object: the size of the trie in bytes (u32), the trie as a double array (Aoe
 * 1989, in the form of Darts-clone), then the replacements, each ended by NUL. SentencePiece
 * replaces the longest match at every position. This file does what Hugging Face's library does: it
 * looks up complete graphemes of less than six bytes, then single characters. If several keys of
 * the map match the beginning of the grapheme or character, the shortest key is used, and its
 * replacement replaces the complete grapheme or character. */
#include "tok/inside.h"

#include <string.h>
#include <utf8proc.h>

enum { GRAPHEME_MAX = 6 }; /* graphemes of this many bytes or more are not looked up */

static uint32_t read_le32(const char *p)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v |= (uint32_t)(unsigned char)p[i] << (8 * i);
    return v;
}

xd_status xd_charsmap_open(xd_charsmap *m, const char *map, size_t len, const char *what, xd_err *e)
{
    *m = (xd_charsmap){ 0 };
    if (len == 0)
        return XD_OK;
    uint32_t bytes = len >= 4 ? read_le32(map) : 0;
    if (bytes < 4 || bytes % 4 || bytes > len - 4)
        return xd_fail(e, XD_EFORMAT, "%s: a character map of %zu bytes has a trie of %u bytes",
                       what, len, (unsigned)bytes);
    *m = (xd_charsmap){ map + 4, map + 4 + bytes, bytes / 4, len - 4 - bytes };
    return XD_OK;
}

static size_t unit_offset(uint32_t u)
{
    return (size_t)(u >> 10) << ((u & (1u << 9)) >> 6);
}

/* Finds the shortest key of the map with which s[0..len) begins, and returns its replacement.
 * Returns 0 if there is no such key. */
static int lookup_key(const xd_charsmap *m, const char *s, size_t len, const char **text, size_t *n)
{
    if (m->units == 0)
        return 0;
    size_t at = unit_offset(read_le32(m->trie));
    for (size_t i = 0; i < len && s[i]; i++) {
        unsigned char c = (unsigned char)s[i];
        at ^= c;
        if (at >= m->units)
            return 0;
        uint32_t u = read_le32(m->trie + 4 * at);
        if ((u & (0x80000000u | 0xff)) != c)
            return 0;
        at ^= unit_offset(u);
        if (at >= m->units)
            return 0;
        if (u >> 8 & 1) {
            size_t value = read_le32(m->trie + 4 * at) & 0x7fffffffu;
            if (value >= m->len)
                return 0;
            *text = m->text + value;
            const char *end = memchr(*text, 0, m->len - value);
            *n = end ? (size_t)(end - *text) : m->len - value;
            return 1;
        }
    }
    return 0;
}

static void replace_text(const xd_charsmap *m, const char *s, size_t len, xd_bytes_buf *out)
{
    const char *text;
    size_t      n;
    if (len < GRAPHEME_MAX && lookup_key(m, s, len, &text, &n)) {
        xd_bytes_add(out, text, n);
        return;
    }
    for (size_t i = 0; i < len;) {
        size_t took = xd_utf8_len(s + i);
        if (lookup_key(m, s + i, took, &text, &n))
            xd_bytes_add(out, text, n);
        else
            xd_bytes_add(out, s + i, took);
        i += took;
    }
}

/* Replaces a character that utf8proc does not know by one of the same grapheme class. The
 * tokenizers library has Unicode 17, in which more characters extend or begin a grapheme than in
 * the utf8proc of Debian 12. */
static int32_t stand_in(int32_t c)
{
    static const int32_t extend[][2] = {
        { 0x897, 0x897 },     { 0x1acf, 0x1add },   { 0x1ae0, 0x1aeb },   { 0x10d69, 0x10d6d },
        { 0x10efa, 0x10efc }, { 0x113b8, 0x113c0 }, { 0x113c2, 0x113c2 }, { 0x113c5, 0x113c5 },
        { 0x113c7, 0x113ca }, { 0x113cc, 0x113d0 }, { 0x113d2, 0x113d2 }, { 0x113e1, 0x113e2 },
        { 0x11b60, 0x11b67 }, { 0x11f5a, 0x11f5a }, { 0x1611e, 0x1612f }, { 0x1e5ee, 0x1e5ef },
        { 0x1e6e3, 0x1e6e3 }, { 0x1e6e6, 0x1e6e6 }, { 0x1e6ee, 0x1e6ef }, { 0x1e6f5, 0x1e6f5 },
    };
    if (c == 0x113d1)
        return 0x600; /* in newer Unicode, U+113D1 is a prepended mark */
    if (c == 0x11a3a)
        return 'a'; /* U+11A3A is no longer a prepended mark */
    if (c >= 0x897)
        for (size_t i = 0; i < sizeof extend / sizeof *extend; i++)
            if (c >= extend[i][0] && c <= extend[i][1])
                return 0x300; /* the characters in `extend` are combining marks */
    return c;
}

void xd_charsmap_apply(const xd_charsmap *m, const char *s, size_t len, xd_bytes_buf *out)
{
    size_t           start = 0, took;
    utf8proc_int32_t state = 0, last = 0;
    for (size_t i = 0; i < len; i += took) {
        int32_t c = stand_in(xd_utf8_get(s + i, len - i, &took));
        if (i && utf8proc_grapheme_break_stateful(last, c, &state)) {
            replace_text(m, s + start, i - start, out);
            start = i;
        }
        last = c;
    }
    if (len)
        replace_text(m, s + start, len - start, out);
}
