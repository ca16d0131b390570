/* clip.c - normalizes a text and splits it into words for CLIP's tokenizer, like transformers 5's
 * CLIPTokenizer.
 *
 * Normalization converts the text to NFC, then each run of white space to one space, then the text
 * to lower case (unicode.c). Letters and digits are those of Unicode 16; the tables in this file
 * list what an older PCRE2 lacks. */
#include "tok/inside.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

struct xd_clip {
    xd_bpe     *bpe;
    pcre2_code *pattern;
};

/* Character classes of regular expressions for letters and numbers, including the characters of
 * Unicode 16 that PCRE2 10.42 does not know. */
#define LETTERS "\\p{L}"                                                                          \
    "\\x{1c89}\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}"               \
    "\\x{10d4a}-\\x{10d65}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}\\x{11240}"         \
    "\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}"          \
    "\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}"         \
    "\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}"                   \
    "\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}"                    \
    "\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}"         \
    "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define NUMBERS "\\p{N}"                                                                          \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"        \
    "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}"        \
    "\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"

/* The regular expression that matches words. The expression is applied to a text in which each run
 * of white space is one space. Group 1 is the name in a special token such as <|startoftext|>,
 * whose brackets and name become separate words. */
static const char words[] = "<\\|((?:start|end)oftext)\\|>|'(?:[stmd]|re|ve|ll)|[" LETTERS "]++"
                            "|[" NUMBERS "]|[^ " LETTERS NUMBERS "]++";

xd_status xd_clip_open(xd_clip **out, const xd_bpe_files *f, xd_err *e)
{
    xd_clip   *c = calloc(1, sizeof *c);
    int        code;
    PCRE2_SIZE at;
    *out = NULL;
    if (!c)
        return xd_fail(e, XD_ENOMEM, "no memory for a tokenizer");
    xd_status s = xd_bpe_open(&c->bpe, f, e);
    if (s == XD_OK) {
        c->pattern =
            pcre2_compile((PCRE2_SPTR)words, sizeof words - 1, PCRE2_UTF, &code, &at, NULL);
        if (!c->pattern)
            s = xd_fail(e, XD_EUNSUPPORTED, "PCRE2 refuses the pattern of CLIP's words, error %d",
                        code);
    }
    if (s == XD_OK)
        *out = c;
    else
        xd_clip_close(c);
    return s;
}

void xd_clip_close(xd_clip *c)
{
    if (!c)
        return;
    xd_bpe_close(c->bpe);
    pcre2_code_free(c->pattern);
    free(c);
}

xd_bpe *xd_clip_bpe(const xd_clip *c)
{
    return c->bpe;
}

/* ---- normalization -------------------------------------------------------------------------- */

void xd_clip_normalize(const char *s, size_t len, xd_bytes_buf *out)
{
    xd_codes c;
    if (!xd_codes_read(&c, s, len) || !xd_codes_canonical(&c, 1)) {
        out->failed = 1;
        free(c.p);
        return;
    }
    for (size_t i = 0; i < c.n; i++) {
        if (!xd_is_space(c.p[i]))
            xd_lower(c.p[i], out);
        else if (i == 0 || !xd_is_space(c.p[i - 1]))
            xd_bytes_add(out, " ", 1);
    }
    free(c.p);
}

/* ---- splitting into words ------------------------------------------------------------------- */

void xd_clip_words(const xd_clip *c, const char *s, size_t len, xd_ids *out)
{
    pcre2_match_data *m = len ? pcre2_match_data_create(2, NULL) : NULL;
    PCRE2_SIZE        at = 0;
    int               found = 1;
    while (m && at < len && found > 0 && !out->failed) {
        found = pcre2_match(c->pattern, (PCRE2_SPTR)s, len, at, PCRE2_NO_UTF_CHECK, m, NULL);
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m);
        if (found == 2) {
            xd_bpe_word(c->bpe, s + v[0], v[2] - v[0], out);
            xd_bpe_word(c->bpe, s + v[2], v[3] - v[2], out);
            xd_bpe_word(c->bpe, s + v[3], v[1] - v[3], out);
        } else if (found == 1) {
            xd_bpe_word(c->bpe, s + v[0], v[1] - v[0], out);
        }
        at = v[1];
    }
    out->failed |= len && (!m || (found < 0 && found != PCRE2_ERROR_NOMATCH));
    pcre2_match_data_free(m);
}
