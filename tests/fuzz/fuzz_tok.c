/* fuzz_tok.c - any bytes as a tokenizer file: tokenizer.json when they begin like JSON,
 * vocab.json and merges.txt when a NUL parts them, vocab.txt when they begin as BERT's does,
 * else spiece.model.
 *
 * Whatever opens must turn texts into ids below the vocabulary's size, cut where asked. The
 * texts are one of all kinds of characters and the beginning of the file itself. */
#include <string.h>

#include "fuzz.h"
#include "tok/tok.h"

static const char text[] = "a  large\tcat </s><extra_id_0> \xc3\xa9\xef\xac\x81 "
                           "\xe7\x8c\xab\xf0\x9f\x90\xb1 <pad>.\xff\xc2\x85 x"
                           "<|startoftext|>It's 12!<|ENDOFTEXT|> e\xcc\x96\xcc\x81[MASK]at[SEP]";

static void use(const xd_tok *t, const char *s, size_t len)
{
    int32_t *ids = NULL, *cut = NULL;
    int64_t  n = 0, k = 0;
    xd_err   e = { 0 };
    if (xd_tok_ids(t, s, len, 0, &ids, &n, &e) != XD_OK) {
        MUST(e.code != XD_OK && e.msg[0]);
        free(ids);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        MUST(ids[i] >= 0 && ids[i] < xd_tok_vocab(t));
    MUST(xd_tok_ids(t, s, len, 3, &cut, &k, &e) == XD_OK && k <= 3 && k <= n);
    if (!xd_tok_is_lm(t)) {
        MUST(n >= 1 && ids[n - 1] == xd_tok_eos(t) && cut[k - 1] == xd_tok_eos(t));
        MUST(xd_tok_bos(t) < 0 || (n >= 2 && ids[0] == xd_tok_bos(t) && cut[0] == ids[0]));
    }
    MUST(xd_tok_bos(t) < xd_tok_vocab(t) && xd_tok_eos(t) < xd_tok_vocab(t));
    MUST(xd_tok_pad(t) < xd_tok_vocab(t));
    free(ids);
    free(cut);
}

/* A framed prompt, padded where the tokenizer has a token for it. */
static void use_frame(const xd_tok *t)
{
    const xd_tok_frame f = { .text = "</s>a {} b", .max = 9, .drop = 2, .pad = 1 };
    xd_tok_row         r;
    xd_err             e = { 0 };
    char               why[256];
    if (xd_tok_frame_ids(t, &f, text, &r, &e) == XD_OK) {
        MUST(r.n == 11 && r.first + r.real <= r.n && r.drop <= r.real && r.untruncated >= r.real);
        for (int64_t i = 0; i < r.n; i++)
            MUST(r.ids[i] >= 0 && r.ids[i] < xd_tok_vocab(t));
        free(r.ids);
    } else {
        MUST(e.msg[0] && !r.ids);
    }
    MUST(!xd_tok_frame_doubt(t, NULL, &f, why, sizeof why) || why[0]);
    MUST(!xd_tok_chat_doubt(t, "/dev/null", &f, why, sizeof why) || why[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xd_tok     *t;
    xd_err      e = { 0 };
    int         json = size && data[0] == '{';
    const char *p = (const char *)data, *gap = json ? memchr(p, 0, size) : NULL;
    size_t      at = gap ? (size_t)(gap - p) : 0;
    xd_status   st = gap                   ? xd_tok_open_bpe(&t, p, at, gap + 1, size - at - 1, &e)
                     : json                ? xd_tok_open_json(&t, p, size, &e)
                     : size && p[0] == '[' ? xd_tok_open_lines(&t, p, size, &e)
                                           : xd_tok_open_spiece(&t, data, size, &e);
    if (st != XD_OK) {
        MUST(!t && e.code == st && e.msg[0]);
        return 0;
    }
    use(t, text, sizeof text - 1);
    use(t, (const char *)data, size < 200 ? size : 200);
    use(t, "", 0);
    use_frame(t);
    xd_tok_close(&t);
    return 0;
}
