/* tok_ids.c - prints the ids that a tokenizer gives texts, for tools/compare_tokenizers.py.
 *
 *   tok_ids DIR < TEXTS       TEXTS: each a length of 4 bytes (little endian), then UTF-8
 *
 * A text's ids are a line; the seconds that opening takes go to standard error. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tok/tok.h"

int main(int argc, char **argv)
{
    xd_tok       *t = NULL;
    xd_err        e = { 0 };
    unsigned char size[4];
    double        from = xd_now_s();
    if (argc != 2 || xd_tok_open(&t, argv[1], &e) != XD_OK) {
        fprintf(stderr, "tok_ids: %s\n", argc == 2 ? e.msg : "usage: tok_ids DIR < TEXTS");
        return 1;
    }
    fprintf(stderr, "%.3f s to open, %lld ids, padding %d on the %s\n", xd_now_s() - from,
            (long long)xd_tok_vocab(t), (int)xd_tok_pad(t), xd_tok_pads_left(t) ? "left" : "right");
    while (fread(size, 1, 4, stdin) == 4) {
        size_t len = size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16 | (size_t)size[3] << 24;
        char  *text = malloc(len + 1);
        int32_t *ids = NULL;
        int64_t  n = 0;
        if (!text || fread(text, 1, len, stdin) != len ||
            xd_tok_ids(t, text, len, 0, &ids, &n, &e) != XD_OK) {
            fprintf(stderr, "tok_ids: %s\n", e.msg[0] ? e.msg : "a text is cut off");
            return 1;
        }
        for (int64_t i = 0; i < n; i++)
            printf(i ? " %d" : "%d", (int)ids[i]);
        putchar('\n');
        free(ids);
        free(text);
    }
    xd_tok_close(&t);
    return 0;
}
