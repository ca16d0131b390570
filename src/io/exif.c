/* exif.c - writes Exif metadata of JPEG and WebP in the form that stable-diffusion-webui ("A1111"),
 * Civitai and galleries read.
 *
 * The text with the key "parameters" is the Exif UserComment, in UTF-16 after the code "UNICODE".
 * All other texts (the JSON) are the ImageDescription, in ASCII. A1111 (piexif) reads the
 * UserComment as big-endian in any file, while other programs use the byte order of the Exif data.
 * To serve all of these programs, the Exif data is big-endian. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "io/codec.h"

enum { ASCII = 2, LONG = 4, UNDEFINED = 7 };
enum { DESCRIPTION = 0x010e, EXIF_PART = 0x8769, EXIF_VERSION = 0x9000, USER_COMMENT = 0x9286 };
enum { HEAD = 8, ROW = 12, PREFIX = 8 };

typedef struct bytes {
    uint8_t *p;
    size_t   n;
} bytes;

static void put_be(uint8_t *p, size_t v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (uint8_t)(v >> 8 * (n - 1 - i));
}

/* Writes an entry of an Exif directory. If the value has more than 4 bytes, `v` is the offset at
 * which the value is stored, otherwise `v` is the value. */
static uint8_t *put_row(uint8_t *p, int tag, int type, size_t n, size_t v)
{
    put_be(p, (size_t)tag, 2);
    put_be(p + 2, (size_t)type, 2);
    put_be(p + 4, n, 4);
    put_be(p + 8, v, 4);
    return p + ROW;
}

/* Reads the character at *s and advances *s. Returns U+FFFD for bytes that are not valid UTF-8. */
static uint32_t next_char(const char **s)
{
    const uint8_t *p = (const uint8_t *)*s;
    size_t         n = xd_utf8_bytes(*s);
    *s += n ? n : 1;
    switch (n) {
    case 1: return p[0];
    case 2: return (p[0] & 31u) << 6 | (p[1] & 63u);
    case 3: return (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
    case 4: return (p[0] & 7u) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
    default: return 0xfffd;
    }
}

/* Encodes the character c as one or two 16-bit units of UTF-16. Returns the number of 16-bit
 * units. */
static int units_of(uint32_t c, uint16_t u[2])
{
    u[0] = (uint16_t)(c < 0x10000 ? c : 0xd800 + ((c - 0x10000) >> 10));
    u[1] = (uint16_t)(0xdc00 + ((c - 0x10000) & 0x3ff));
    return c < 0x10000 ? 1 : 2;
}

/* Makes a UserComment of at most `max` bytes. A text that is too long is cut between characters.
 * The UserComment is empty if out of memory. */
static bytes make_comment(const char *s, size_t max)
{
    bytes b = { malloc(PREFIX + 2 * strlen(s) + 4), PREFIX };
    if (!b.p || max < PREFIX)
        return (bytes){ b.p, 0 };
    memcpy(b.p, "UNICODE\0", PREFIX);
    while (*s) {
        uint16_t u[2];
        int      n = units_of(next_char(&s), u);
        if (b.n + 2 * (size_t)n > max)
            break;
        for (int i = 0; i < n; i++, b.n += 2)
            put_be(b.p + b.n, u[i], 2);
    }
    return b;
}

/* Appends a text in ASCII. Characters outside of ASCII become JSON escapes, which is correct if the
 * text is JSON. */
static void add_ascii(xd_text_buf *b, const char *s)
{
    while (*s) {
        uint16_t u[2];
        size_t   n = 0;
        while (s[n] && (uint8_t)s[n] < 0x80)
            n++;
        xd_buf_add(b, "%.*s", (int)n, s);
        s += n;
        n = *s ? (size_t)units_of(next_char(&s), u) : 0;
        for (size_t i = 0; i < n; i++)
            xd_buf_add(b, "\\u%04x", u[i]);
    }
}

static int is_parameters(const xd_image_text *t)
{
    return strcmp(t->key, "parameters") == 0;
}

/* Joins all texts of an image except "parameters". A single text is written without its key,
 * several texts as lines "key: value". */
static xd_text_buf make_description(const xd_image_text *texts)
{
    xd_text_buf b = { 0 };
    int         n = 0;
    for (const xd_image_text *t = texts; t->key; t++)
        n += !is_parameters(t);
    for (const xd_image_text *t = texts; t->key; t++) {
        if (is_parameters(t))
            continue;
        if (n > 1)
            xd_buf_add(&b, "%s%s: ", b.len ? "\n" : "", t->key);
        add_ascii(&b, t->value);
    }
    if (b.failed)
        xd_buf_free(&b);
    return b;
}

/* Assembles the Exif data. The block has, in this order: the header; a directory with the
 * ImageDescription (if there is one) and a pointer to the Exif directory; the Exif directory with
 * the UserComment; both texts. */
static bytes assemble_exif(const xd_text_buf *about, const bytes *note)
{
    size_t   rows = about->p ? 2 : 1, text = about->p ? about->len + 1 : 0, more = note->n ? 2 : 1;
    size_t   part = HEAD + 2 + rows * ROW + 4, data = part + 2 + more * ROW + 4,
             at = data + text + text % 2;
    bytes    b = { calloc(1, at + note->n), at + note->n };
    uint8_t *p = b.p;
    if (!p)
        return (bytes){ NULL, 0 };
    memcpy(p, "MM\0*\0\0\0\10", HEAD);
    put_be(p + HEAD, rows, 2);
    p += HEAD + 2;
    if (about->p)
        p = put_row(p, DESCRIPTION, ASCII, text, data);
    put_row(p, EXIF_PART, LONG, 1, part);
    p = b.p + part;
    put_be(p, more, 2);
    p = put_row(p + 2, EXIF_VERSION, UNDEFINED, 4, 0x30323332); /* "0232": Exif 2.32 */
    if (note->n) {
        put_row(p, USER_COMMENT, UNDEFINED, note->n, at);
        memcpy(b.p + at, note->p, note->n);
    }
    if (about->p)
        memcpy(b.p + data, about->p, about->len);
    return b;
}

uint8_t *xd_exif(const xd_image_text *texts, size_t max, size_t *n)
{
    enum { FRAME = HEAD + 2 * (2 + 2 * ROW + 4) + 2 };
    const char *parameters = NULL;
    for (const xd_image_text *t = texts; t->key; t++)
        parameters = is_parameters(t) ? t->value : parameters;
    bytes       note = parameters ? make_comment(parameters, max - FRAME) : (bytes){ NULL, 0 };
    xd_text_buf about = make_description(texts);
    if (about.len + 1 + note.n > max - FRAME) /* the text is too long, so it is omitted */
        xd_buf_free(&about);
    bytes b = note.n || about.p ? assemble_exif(&about, &note) : (bytes){ NULL, 0 };
    free(note.p);
    xd_buf_free(&about);
    *n = b.n;
    return b.p;
}
