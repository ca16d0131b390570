/* fuzz_shell.c - any text as a script of xDiT's kind.
 *
 * Besides not crashing and not running for ever: every command has words, and a refusal has a
 * sentence. */
#include <string.h>

#include "cli/shell.h"
#include "fuzz.h"

static int wanted(int n, char **w)
{
    (void)n;
    return strcmp(w[0], "torchrun") == 0 || strncmp(w[0], "python", 6) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xd_shell s = { .wanted = wanted };
    xd_err   e = { 0 };
    char    *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    xd_status st = xd_shell_read(&s, text, 0, NULL, &e);
    MUST(st == XD_OK || e.msg[0]);
    MUST(s.n >= 0 && s.n <= XD_SHELL_COMMANDS);
    for (int i = 0; i < s.n; i++) {
        MUST(s.command[i].n > 0);
        for (int k = 0; k < s.command[i].n; k++) {
            MUST(s.command[i].word[k]);
            xd_shell_quote(NULL, s.command[i].word[k]);
        }
    }
    xd_shell_free(&s);
    free(text);
    return 0;
}
