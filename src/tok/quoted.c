/* quoted.c - finds the quoted parts of a prompt, which a glyph encoder reads (diffusers'
 * extract_glyph_texts) */
#include "tok/inside.h"

#include <stdlib.h>
#include <string.h>

static const char straight[] = "\"", opening[] = "\xe2\x80\x9c", closing[] = "\xe2\x80\x9d";

/* If the text at s begins with the mark `open`, and the mark `close` follows in the same line,
 * returns 1 and sets *part to the text between them. */
static int is_quoted(const char *s, const char *open, const char *close, xd_slice *part)
{
    size_t n = strlen(open);
    if (strncmp(s, open, n))
        return 0;
    const char *end = strstr(s + n, close), *line = strchr(s + n, '\n');
    *part = (xd_slice){ s + n, end ? (size_t)(end - (s + n)) : 0 };
    return end && (!line || line > end);
}

/* Returns the address after the closing mark of the next quoted part, or NULL if there is none. */
static const char *next_quoted(const char *s, xd_slice *part)
{
    for (; *s; s++)
        if (is_quoted(s, straight, straight, part))
            return part->p + part->len + strlen(straight);
        else if (is_quoted(s, opening, closing, part))
            return part->p + part->len + strlen(closing);
    return NULL;
}

/* Returns 1 if a part with the same text begins before `part`. */
static int was_before(const char *text, xd_slice part)
{
    xd_slice p;
    while ((text = next_quoted(text, &p)) && p.p < part.p)
        if (p.len == part.len && !memcmp(p.p, part.p, p.len))
            return 1;
    return 0;
}

char *xd_caption_quoted(const char *text)
{
    xd_bytes_buf b = { 0 };
    xd_slice     part;
    for (const char *s = text; (s = next_quoted(s, &part));) {
        if (was_before(text, part))
            continue;
        xd_bytes_add(&b, "Text \"", 6);
        xd_bytes_add(&b, part.p, part.len);
        xd_bytes_add(&b, "\". ", 3);
    }
    return xd_caption_end(&b);
}
