/* about.c - reports the names and versions of the libraries that process text */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tok/tok.h"

#include <stdio.h>

#include <pcre2.h>
#include <utf8proc.h>

/* Reports the versions of the libraries that process text. SentencePiece has no function that
 * returns its version, so XD_SPM_VERSION comes from the build. */
void xd_tok_about(xd_fact *fact, void *cookie)
{
    char text[96], pcre[64] = "";
    fact(cookie, "library", "SentencePiece " XD_SPM_VERSION);
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) < (int)sizeof pcre)
        pcre2_config(PCRE2_CONFIG_VERSION, pcre);
    for (char *p = pcre; *p; p++)
        if (*p == ' ')
            *p = 0; /* cut off the date that follows the version */
    snprintf(text, sizeof text, "PCRE2 %s", pcre);
    fact(cookie, "library", text);
    snprintf(text, sizeof text, "utf8proc %s", utf8proc_version());
    fact(cookie, "library", text);
}
