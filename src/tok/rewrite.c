/* rewrite.c - searches and replaces text with the regular expressions of this program, which are
 * for PCRE2 with Python's character classes.
 *
 * The expressions use XD_SPACES, XD_LETTERS and XD_DIGIT for classes that differ between versions
 * of PCRE2. A search that would take seconds exceeds PCRE2's match limit, and then finds
 * nothing. */
#include "tok/inside.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 1000000, HEAP_MAX_KB = 1 << 18 };

struct xd_finder {
    pcre2_code          *code;
    pcre2_match_data    *data;
    pcre2_match_context *context;
};

xd_finder *xd_finder_open(const char *pattern, int flags)
{
    xd_finder *f = calloc(1, sizeof *f);
    int        error = 0;
    PCRE2_SIZE at = 0;
    if (!f)
        return NULL;
    f->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                            flags & XD_FIND_BYTES ? 0 : PCRE2_UTF, &error, &at, NULL);
    f->context = pcre2_match_context_create(NULL);
    f->data = f->code ? pcre2_match_data_create_from_pattern(f->code, NULL) : NULL;
    if (!f->data || !f->context) {
        xd_finder_close(f);
        return NULL;
    }
    pcre2_set_match_limit(f->context, STEPS_MAX);
    pcre2_set_heap_limit(f->context, HEAP_MAX_KB);
    return f;
}

void xd_finder_close(xd_finder *f)
{
    if (!f)
        return;
    pcre2_match_data_free(f->data);
    pcre2_match_context_free(f->context);
    pcre2_code_free(f->code);
    free(f);
}

int xd_finder_next(const xd_finder *f, const char *s, size_t len, size_t at, int here, size_t *span,
                   int groups)
{
    uint32_t how = PCRE2_NO_UTF_CHECK | (here ? PCRE2_ANCHORED : 0);
    int found = at > len ? -1
                         : pcre2_match(f->code, (PCRE2_SPTR)s, len, at, how, f->data, f->context);
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(f->data);
    for (int i = 0; found > 0 && i < 2 * groups; i++)
        span[i] = i < 2 * found ? v[i] : PCRE2_UNSET;
    return found > 0;
}

/* Replaces all matches of a pattern in a text by the string `by`. If the output buffer is too small
 * for the result, enlarges the buffer and tries again. */
void xd_replace(xd_bytes_buf *text, const char *pattern, const char *by, int flags)
{
    xd_finder *f = xd_finder_open(pattern, flags);
    size_t     room = text->len * 2 + 64;
    int        found = PCRE2_ERROR_NOMEMORY;
    text->failed |= !f;
    while (!text->failed && found == PCRE2_ERROR_NOMEMORY) {
        PCRE2_SIZE   n = room;
        xd_bytes_buf out = { malloc(room), 0, room, 0 };
        text->failed |= !out.p;
        if (!out.p)
            break;
        found = pcre2_substitute(
            f->code, (PCRE2_SPTR)(text->p ? text->p : ""), text->len, 0,
            PCRE2_NO_UTF_CHECK | PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_OVERFLOW_LENGTH,
            f->data, f->context, (PCRE2_SPTR)by, strlen(by), (PCRE2_UCHAR *)out.p, &n);
        room = n + 1;
        if (found > 0) {
            out.len = n;
            xd_bytes_free(text);
            *text = out;
        } else {
            xd_bytes_free(&out);
        }
    }
    xd_finder_close(f);
}
