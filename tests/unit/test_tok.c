/* test_tok.c - ids against those of transformers' T5Tokenizer on 500 prompts
 * (tools/golden/cases/tok.py wrote them), broken files, and captions against diffusers'. */
#define _XOPEN_SOURCE 700       /* P_tmpdir */
#include "tok/tok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "prompts.h"
#include "published.h"
#include "scratch.h"

#define DEMO "models/demo-pixart/tokenizer"
#define REAL "stabilityai/stable-diffusion-3-medium-diffusers/tokenizer_3"
#define REAL_JSON "black-forest-labs/FLUX.1-dev/tokenizer_2"

static xd_tok *open_dir(const char *dir)
{
    return must_open(xd_tok_open_t5, dir);
}

static void demo_ids(void **state)
{
    xd_tok *t = open_dir(DEMO);
    char   *text, *p;
    size_t  len;
    (void)state;
    assert_int_equal(xd_tok_vocab(t), 81);
    assert_int_equal(xd_file_read(GOLDEN "demo.txt", MAX_FILE, &text, &len, NULL), XD_OK);
    p = text;
    for (int i = 0; i < PROMPTS; i++) {
        int64_t  n;
        int32_t *ids = ids_of(t, prompts[i].text, prompts[i].len, 0, &n);
        for (int64_t k = 0; k < n; k++) {
            long want = strtol(p, &p, 10);
            if (ids[k] != want)
                fail_msg("prompt %d: id %lld is %d, not %ld", i, (long long)k, ids[k], want);
        }
        if (*p++ != '\n')
            fail_msg("prompt %d: only %lld ids", i, (long long)n);
        free(ids);
    }
    free(text);
    xd_tok_close(&t);
    assert_null(t);
}

/* A tokenizer.json with a small character map, sentinels that strip, and added tokens that are
 * single words or are looked for in the normalized text. */
static void small_json_ids(void **state)
{
    xd_tok *t = open_dir(GOLDEN "small");
    (void)state;
    check_hashes(t, GOLDEN "small.txt");
    xd_tok_close(&t);
}

/* A spiece.model with pieces for bytes, which T5Tokenizer leaves alone, and a config without
 * sentinels. */
static void mt5_ids(void **state)
{
    xd_tok *t = open_dir(GOLDEN "mt5");
    (void)state;
    check_hashes(t, GOLDEN "mt5.txt");
    assert_int_equal(xd_tok_vocab(t), 731);
    assert_int_equal(xd_tok_max(t), 0);
    xd_tok_close(&t);
}

/* A spiece.model whose unknown piece is the fourth, which T5Tokenizer does not ask: what has no
 * piece gets the id of the third. 300 sentinels. */
static void umt5_ids(void **state)
{
    xd_tok *t = open_dir(GOLDEN "umt5");
    (void)state;
    check_hashes(t, GOLDEN "umt5.txt");
    assert_int_equal(xd_tok_vocab(t), 1032);
    assert_int_equal(xd_tok_pad(t), 0);
    xd_tok_close(&t);
}

static void real_ids(void **state)
{
    (void)state;
    const char *dir = published_path(REAL);
    if (!dir)
        return;
    xd_tok *t = open_dir(dir);
    assert_int_equal(xd_tok_vocab(t), 32100);
    check_hashes(t, GOLDEN "real.txt");
    xd_tok_close(&t);
}

static void real_json_ids(void **state)
{
    xd_tok *t;
    char   *text;
    size_t  len;
    xd_err  e = { 0 };
    (void)state;
    const char *path = published_path(REAL_JSON);
    if (path) {
        t = open_dir(path);
        check_hashes(t, GOLDEN "real.txt");
        xd_tok_close(&t);
    }
    path = published_path(REAL "/tokenizer.json");
    if (!path)
        return;
    assert_int_equal(xd_file_read(path, MAX_FILE, &text, &len, &e), XD_OK);
    if (xd_tok_open_json(&t, text, len, &e) != XD_OK)
        fail_msg("%s", e.msg);
    check_hashes(t, GOLDEN "real.txt");
    xd_tok_close(&t);
    free(text);
}

/* Cut texts keep the closing token; the golden script asserts the same of transformers. */
static void truncation(void **state)
{
    static const int64_t limits[] = { 1, 2, 3, 20, 77, 120 };
    xd_tok              *t = open_dir(DEMO);
    (void)state;
    for (int i = 0; i < PROMPTS; i++) {
        int64_t  whole, n;
        int32_t *all = ids_of(t, prompts[i].text, prompts[i].len, 0, &whole);
        for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
            int32_t *ids = ids_of(t, prompts[i].text, prompts[i].len, limits[k], &n);
            assert_int_equal(n, whole < limits[k] ? whole : limits[k]);
            assert_memory_equal(ids, all, (size_t)(n - 1) * sizeof *ids);
            assert_int_equal(ids[n - 1], 1);
            free(ids);
        }
        free(all);
    }
    xd_tok_close(&t);
}

/* Bytes that are not UTF-8 read as U+FFFD, one each. */
static void invalid_utf8(void **state)
{
    static const struct {
        const char *raw;
        int         bad;
    } cases[] = {
        { "\xff", 1 },     { "\xc0\x80", 2 }, { "\xed\xa0\x80", 3 }, { "\xf4\x90\x80\x80", 4 },
        { "\xe2\x82", 2 }, { "\x80", 1 },     { "\xf0\x9f\x98", 3 }, { "\xe0\x80\xaf", 3 },
    };
    xd_tok *t = open_dir(GOLDEN "small");
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char a[64], b[64] = "red ";
        snprintf(a, sizeof a, "red %sx", cases[i].raw);
        for (int k = 0; k < cases[i].bad; k++)
            strcat(b, "\xef\xbf\xbd");
        strcat(b, "x");
        same_ids(t, a, strlen(a), b, strlen(b));
        same_ids(t, a, strlen(a) - 1, b, strlen(b) - 1);
    }
    xd_tok_close(&t);
}

/* ---- broken files --------------------------------------------------------------------------- */

static xd_status open_bytes(xd_tok **t, int json, const char *p, size_t len, xd_err *e)
{
    char *exact = malloc(len ? len : 1); /* so that sanitizers see a read past the end */
    assert_non_null(exact);
    memcpy(exact, p, len);
    xd_status s = json ? xd_tok_open_json(t, exact, len, e) : xd_tok_open_spiece(t, exact, len, e);
    free(exact);
    return s;
}

/* Either the file opens and works, or there is one sentence. */
static int try_bytes(int json, const char *p, size_t len)
{
    static const char text[] = "a red circle \xc3\xa9 \xe2\x91\xa0\xcc\x81 </s> ... \x01\xff";
    xd_tok           *t = NULL;
    xd_err            e = { 0 };
    if (open_bytes(&t, json, p, len, &e) == XD_OK) {
        int64_t n;
        free(ids_of(t, text, sizeof text - 1, 0, &n));
        assert_true(n >= 1);
        xd_tok_close(&t);
        return 1;
    }
    assert_null(t);
    assert_true(e.code != XD_OK && strlen(e.msg) > 10 && !strchr(e.msg, '\n'));
    return 0;
}

static void broken(int json, const char *path, int flips)
{
    char    *p;
    size_t   len;
    uint64_t h = xd_hash_text(path);
    int      opened = 0;
    assert_int_equal(xd_file_read(path, MAX_FILE, &p, &len, NULL), XD_OK);
    assert_int_equal(try_bytes(json, p, len), 1);
    for (size_t cut = 0; cut < len; cut += cut < 200 ? 1 : len / 60)
        opened += try_bytes(json, p, cut);
    /* A model that ends between two fields is whole: protobuf has no end. A JSON text is not. */
    assert_true(json ? opened == 0 : opened < 30);
    for (int i = 0; i < flips; i++) {
        /* Half of the flips fall on the pieces, before the large character map. */
        size_t at = xd_hash_mix(h, (uint64_t)i) % (i % 2 ? len : len < 4000 ? len : 4000);
        char   was = p[at];
        p[at] = (char)(xd_hash_mix(h, (uint64_t)i + 1000000) & 0xff);
        try_bytes(json, p, len);
        p[at] = was;
    }
    free(p);
}

static void broken_spiece(void **state)
{
    (void)state;
    broken(0, DEMO "/spiece.model", 1500);
}

static void broken_json(void **state)
{
    (void)state;
    broken(1, GOLDEN "small/tokenizer.json", 1500);
}

/* Every sentence names what is wrong. */
static void sentences(void **state)
{
    static const struct {
        int         json;
        const char *p;
        size_t      len;
        const char *says;
    } cases[] = {
        { 0, "", 0, "no pieces" },
        { 0, "hello world, this is not a model", 32, "not a SentencePiece model" },
        { 0, "\x12\x02\x18\x02", 4, "BPE" },
        { 0, "\x0a\x00", 2, "piece 0 has 0 bytes" },
        { 0,
          "\x0a\x08\x0a\x01"
          "a\x15\x00\x00\xc0\x7f",
          10, "score" },
        { 0,
          "\x0a\x03\x0a\x01"
          "a\x0a\x03\x0a\x01"
          "a",
          10, "SentencePiece cannot load" },
        { 1, "", 0, "JSON" },
        { 1, "{}", 2, "model.vocab" },
        { 1, "{\"model\":{\"type\":\"BPE\"}}", 24, "pieces and their ids" },
        { 1, "{\"model\":{\"vocab\":[[\"a\"]]}}", 28, "entry 0" },
        { 1, "{\"model\":{\"vocab\":[[\"a\",0]]}}", 30, "1 pieces" },
        { 1,
          "{\"model\":{\"vocab\":[[\"a\",1],[\"b\",1],[\"c\",1]]},\"normalizer\":{\"type\":"
          "\"Precompiled\",\"precompiled_charsmap\":\"!\"}}",
          108, "base64" },
        { 1,
          "{\"model\":{\"vocab\":[[\"a\",1],[\"b\",1],[\"c\",1]]},\"normalizer\":{\"type\":"
          "\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}}",
          111, "character map" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xd_tok   *t = NULL;
        xd_err    e = { 0 };
        xd_status s = open_bytes(&t, cases[i].json, cases[i].p,
                                 strlen(cases[i].p) > cases[i].len ? cases[i].len
                                 : cases[i].json                   ? strlen(cases[i].p)
                                                                   : cases[i].len,
                                 &e);
        if (s == XD_OK || !strstr(e.msg, cases[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, e.msg, cases[i].says);
        assert_null(t);
    }
}

static void no_files(void **state)
{
    xd_tok *t = NULL;
    xd_err  e = { 0 };
    (void)state;
    assert_int_equal(scratch_open(), 0);
    assert_true(xd_tok_open_t5(&t, in_scratch("absent"), &e) == XD_EIO && strstr(e.msg, "absent"));
    e = (xd_err){ 0 };
    assert_int_equal(xd_tok_open_t5(&t, scratch, &e), XD_EIO);
    assert_non_null(strstr(e.msg, "neither spiece.model nor tokenizer.json"));
    e = (xd_err){ 0 };
    scratch_put("tokenizer.json", "{", 1);
    assert_true(xd_tok_open_t5(&t, scratch, &e) != XD_OK);
    assert_non_null(strstr(e.msg, "tokenizer.json"));
    e = (xd_err){ 0 };
    scratch_put("spiece.model", "\xff", 1);
    scratch_put("tokenizer.json", "{}", 2);
    assert_true(xd_tok_open_t5(&t, scratch, &e) == XD_EFORMAT);
    assert_non_null(strstr(e.msg, "spiece.model"));
    assert_null(t);
    scratch_close();
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* ids of transformers' ByT5Tokenizer, with and without a list of its tokens in the config */
static void bytes_are_ids(void **state)
{
    static const struct {
        const char *text;
        int64_t     max;
        int         n;
        int32_t     ids[16];
    } c[] = {
        { "Text \"Caf\xc3\xa9\". ",
          0,
          15,
          { 87, 104, 123, 119, 35, 37, 70, 100, 105, 198, 172, 37, 49, 35, 1 } },
        { "a <pad> b", 0, 4, { 100, 0, 101, 1 } },
        { "x </s>", 0, 2, { 123, 1 } },
        { " <extra_id_3> y", 0, 5, { 35, 262, 35, 124, 1 } },
        { "", 0, 1, { 1 } },
        { "<extra_id_124>", 0, 2, { 383, 1 } },
        { "abcdef", 4, 4, { 100, 101, 102, 1 } },
    };
    static const char own[] = "{\"tokenizer_class\": \"ByT5Tokenizer\"}";
    (void)state;
    assert_int_equal(scratch_open(), 0);
    scratch_put("tokenizer_config.json", own, sizeof own - 1);
    const char *dirs[] = { "tests/golden/hunyuanvideo15/tokenizer_2", scratch };
    for (int k = 0; k < 2; k++) {
        xd_tok *t = NULL;
        xd_err  e = { 0 };
        if (xd_tok_open(&t, dirs[k], &e) != XD_OK)
            fail_msg("%s", e.msg);
        assert_true(xd_tok_vocab(t) == 384 && xd_tok_pad(t) == 0 && xd_tok_eos(t) == 1);
        for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
            int32_t *ids = NULL;
            int64_t  n = 0;
            assert_int_equal(xd_tok_ids(t, c[i].text, strlen(c[i].text), c[i].max, &ids, &n, &e),
                             XD_OK);
            assert_int_equal(n, c[i].n);
            assert_memory_equal(ids, c[i].ids, (size_t)n * sizeof *ids);
            free(ids);
        }
        xd_tok_close(&t);
    }
    scratch_close();
}

/* what diffusers' extract_glyph_texts returns */
static void captions_in_quotes(void **state)
{
    static const char *const c[][2] = {
        { "a \"b\" \xe2\x80\x9c"
          "c\xe2\x80\x9d \"b\" d",
          "Text \"b\". Text \"c\". " },
        { "no", "" },
        { "\"\" x", "Text \"\". " },
        { "\"a\nb\" \"c", "Text \" \". " },
        { "say \"a \xe2\x80\x9c"
          "b\xe2\x80\x9d c\" \xe2\x80\x9c"
          "d",
          "Text \"a \xe2\x80\x9c"
          "b\xe2\x80\x9d c\". " },
        { "\xe2\x80\x9c"
          "a\n\xe2\x80\x9d \xe2\x80\x9c"
          "b\xe2\x80\x9d",
          "Text \"b\". " },
    };
    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char *got = xd_caption_quoted(c[i][0]);
        assert_string_equal(got, c[i][1]);
        free(got);
    }
}

/* ---- captions ------------------------------------------------------------------------------- */

/* ---- many added tokens ---------------------------------------------------------------------- */

/* A tokenizer of three pieces and these added tokens, which are looked for in the raw text. */
static xd_tok *with_added(char *const *names, int n)
{
    xd_text_buf b = { 0 };
    xd_tok     *t = NULL;
    xd_err      e = { 0 };
    xd_buf_add(&b, "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 2, \"vocab\": [[\"<pad>\", 0], "
                   "[\"</s>\", 0], "
                   "[\"<unk>\", 0], [\"\\u2581\", -1]]}, \"added_tokens\": [");
    for (int i = 0; i < n; i++)
        xd_buf_add(&b, "%s{\"content\": \"%s\", \"special\": true}", i ? ", " : "", names[i]);
    xd_buf_add(&b, "]}");
    assert_int_equal(b.failed, 0);
    if (xd_tok_open_json(&t, b.p, b.len, &e) != XD_OK)
        fail_msg("%s", e.msg);
    xd_buf_free(&b);
    return t;
}

/* Pairwise this took minutes; the limit leaves room for a machine that others use. */
static void many_added_tokens_load_at_once(void **state)
{
    (void)state;
    enum { N = 100000 };
    char  **names = malloc(N * sizeof *names);
    clock_t begin = clock();
    for (int i = 0; i < N; i++) {
        names[i] = malloc(16);
        snprintf(names[i], 16, "<t%d%s", i, i % 2 ? ">" : "");
    }
    xd_tok           *t = with_added(names, N);
    int64_t           n;
    static const char text[] = "<t7><t77777><t8<t88888><t99998<t7";
    int32_t          *ids = ids_of(t, text, sizeof text - 1, 0, &n);
    double            seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    int32_t           first = 4; /* behind the pieces */
    const int         want[] = { 7, 77777, 8, 88888, -1, 99998 };
    int               k = 0;
    for (int64_t i = 0; i < n && k < 6; i++)
        if (want[k] < 0 || ids[i] == first + want[k])
            k++;
    assert_int_equal(k, 6);
    if (seconds > 5)
        fail_msg("%d added tokens took %.1f s of processor time", N, seconds);
    free(ids);
    xd_tok_close(&t);
    for (int i = 0; i < N; i++)
        free(names[i]);
    free(names);
}

static unsigned dice(uint64_t *state, unsigned n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % n;
}

/* Against every token at every place: the longest one wins, the first of several counts. */
static void added_tokens_match_the_longest(void **state)
{
    (void)state;
    enum { N = 40, TEXT = 400, ROUNDS = 60 };
    uint64_t r = 5;
    for (int round = 0; round < ROUNDS; round++) {
        char    name[N][8], *names[N], text[TEXT + 1];
        int32_t want[TEXT + 1], id[N];
        int     nwant = 0, next = 4;
        for (int i = 0; i < N; i++) {
            int len = 1 + (int)dice(&r, 6);
            for (int k = 0; k < len; k++)
                name[i][k] = "xyz"[dice(&r, 3)];
            name[i][len] = 0;
            names[i] = name[i];
            id[i] = -1;
            for (int k = 0; k < i && id[i] < 0; k++)
                id[i] = strcmp(name[k], name[i]) == 0 ? id[k] : -1;
            id[i] = id[i] < 0 ? next++ : id[i];
        }
        for (int k = 0; k < TEXT; k++)
            text[k] = "xyz"[dice(&r, 3)];
        text[TEXT] = 0;
        for (int at = 0; at < TEXT;) {
            int best = -1;
            for (int i = 0; i < N; i++)
                if (strncmp(text + at, name[i], strlen(name[i])) == 0 &&
                    (best < 0 || strlen(name[i]) > strlen(name[best])))
                    best = i;
            if (best >= 0)
                want[nwant++] = id[best];
            at += best >= 0 ? (int)strlen(name[best]) : 1;
        }
        xd_tok  *t = with_added(names, N);
        int64_t  n;
        int32_t *ids = ids_of(t, text, TEXT, 0, &n);
        int      k = 0;
        for (int64_t i = 0; i < n; i++)
            if (ids[i] >= 4) {
                assert_true(k < nwant);
                assert_int_equal(ids[i], want[k++]);
            }
        assert_int_equal(k, nwant);
        free(ids);
        xd_tok_close(&t);
    }
}

/* What pipelines of diffusers make of prompts (tools/golden/cases/captions.py). */
static void captions(void **state)
{
    static char *(*const prepare[3])(const char *) = { xd_caption_plain, xd_caption_clean,
                                                       xd_caption_of_web };
    static const char *const name[3] = { "in small letters", "repaired", "cleaned" };
    char                    *text, *line;
    size_t                   len, n = 0;
    (void)state;
    assert_int_equal(xd_file_read("tests/golden/captions.txt", MAX_FILE, &text, &len, NULL), XD_OK);
    for (line = text; *line; n++) {
        char *end = strchr(line, '\n'), *field[4] = { line };
        assert_non_null(end);
        *end = 0;
        for (int i = 1; i < 4; i++) {
            field[i] = strchr(field[i - 1], '\t');
            assert_non_null(field[i]);
            *field[i]++ = 0;
        }
        for (int i = 0; i < 4; i++)
            field[i][unescape(field[i], strlen(field[i]))] = 0;
        for (int i = 0; i < 3; i++) {
            char *got = prepare[i](field[0]);
            assert_non_null(got);
            if (strcmp(got, field[i + 1]))
                fail_msg("'%s' %s is '%s', not '%s'", field[0], name[i], got, field[i + 1]);
            free(got);
        }
        line = end + 1;
    }
    assert_true(n > 400);
    free(text);
}

/* Bytes that are no UTF-8 are single characters, whatever stands around them. */
static void captions_of_other_bytes(void **state)
{
    char *got[3] = { xd_caption_plain(" \xff A"), xd_caption_clean("a \xc3 b"),
                     xd_caption_of_web("caf\xe9 <b>x") };
    (void)state;
    assert_string_equal(got[0], "\xef\xbf\xbd a");
    assert_string_equal(got[1], "a \xef\xbf\xbd b");
    assert_string_equal(got[2], "caf\xef\xbf\xbd x");
    for (int i = 0; i < 3; i++)
        free(got[i]);
}

/* Texts that would take a regular expression minutes, as every "<a " in them is cut off, end and
 * come out. The time is linear in the length: about a second here, and minutes where it is not. */
static void captions_end(void **state)
{
    enum { LONG = 30000 };
    static const char *const unit[] = { "a.",    "a-",     "1",  "<a ",      "<a/x=",
                                        "<a b=", "<a b='", "<a", "<!--",     "</",
                                        "a ",    ".. ",    "'",  "\xc3\x83", "&#" };
    char                    *text = malloc(LONG + 1);
    (void)state;
    for (size_t i = 0; i < sizeof unit / sizeof *unit; i++) {
        size_t n = strlen(unit[i]), k = 0;
        for (; k + n <= LONG; k += n)
            memcpy(text + k, unit[i], n);
        text[k] = 0;
        clock_t begun = clock();
        char   *got = xd_caption_of_web(text);
        double  s = (double)(clock() - begun) / CLOCKS_PER_SEC;
        assert_non_null(got);
        if (s > 12)
            fail_msg("%zu bytes of '%s' take %.0f s", k, unit[i], s);
        free(got);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demo_ids),
        cmocka_unit_test(small_json_ids),
        cmocka_unit_test(mt5_ids),
        cmocka_unit_test(umt5_ids),
        cmocka_unit_test(real_ids),
        cmocka_unit_test(real_json_ids),
        cmocka_unit_test(truncation),
        cmocka_unit_test(invalid_utf8),
        cmocka_unit_test(broken_spiece),
        cmocka_unit_test(broken_json),
        cmocka_unit_test(sentences),
        cmocka_unit_test(no_files),
        cmocka_unit_test(bytes_are_ids),
        cmocka_unit_test(captions_in_quotes),
        cmocka_unit_test(many_added_tokens_load_at_once),
        cmocka_unit_test(added_tokens_match_the_longest),
        cmocka_unit_test(captions),
        cmocka_unit_test(captions_of_other_bytes),
        cmocka_unit_test(captions_end),
    };
    return cmocka_run_group_tests(tests, read_prompts, forget_prompts);
}
