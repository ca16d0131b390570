/* fuzz_caption.c - any bytes as a prompt that a pipeline prepares: small letters, ftfy's repairs,
 * references and tags of HTML, and what captions of the web are cleaned of.
 *
 * Whatever comes in, what comes out is UTF-8 without blanks around it. */
#include <string.h>

#include "base/err.h"
#include "fuzz.h"
#include "tok/tok.h"

static void prepare(char *(*caption)(const char *), const char *text)
{
    char *made = caption(text);
    MUST(made);
    size_t n = strlen(made);
    MUST(xd_utf8_invalid_at(made) == n);
    MUST(!n || (!strchr(" \t\r\n", made[0]) && !strchr(" \t\r\n", made[n - 1])));
    free(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 1);
    MUST(text);
    if (size)
        memcpy(text, data, size);
    prepare(xd_caption_plain, text);
    prepare(xd_caption_clean, text);
    prepare(xd_caption_of_web, text);
    free(text);
    return 0;
}
