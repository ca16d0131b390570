/* test_tok_bert.c - BERT's tokenizer: ids against those of transformers' BertTokenizer on 500
 * prompts (tools/golden/cases/tok.py wrote them), its rules one by one, which directory is of its
 * kind, broken files. */
#define _XOPEN_SOURCE 700       /* P_tmpdir */
#include "tok/tok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/rng.h"
#include "prompts.h"
#include "published.h"
#include "scratch.h"

#define LINES GOLDEN "bert/lines"
#define JSON GOLDEN "bert/json"
#define REAL "Tencent-Hunyuan/HunyuanDiT-Diffusers/tokenizer"

enum { PAD = 0, UNK = 3, CLS = 4, SEP = 5, MASK = 6 };

static xd_tok *open_dir(const char *dir)
{
    return must_open(xd_tok_open, dir);
}

/* ---- ids ------------------------------------------------------------------------------------ */

/* Lines with added tokens of all flags, and a tokenizer.json whose rules are all others than those
 * of BertTokenizer. */
static void small_ids(void **state)
{
    static const struct {
        const char *dir, *golden;
        int         vocab;
    } cases[] = {
        { LINES, GOLDEN "bert_lines.txt", 1775 },
        { JSON, GOLDEN "bert_json.txt", 1772 },
    };
    (void)state;
    for (int i = 0; i < 2; i++) {
        xd_tok *t = open_dir(cases[i].dir);
        check_hashes(t, cases[i].golden);
        assert_int_equal(xd_tok_vocab(t), cases[i].vocab);
        assert_int_equal(xd_tok_bos(t), CLS);
        assert_int_equal(xd_tok_eos(t), SEP);
        assert_int_equal(xd_tok_pad(t), PAD);
        assert_int_equal(xd_tok_max(t), 77);
        cut_all(t, 0, CLS, SEP);
        xd_tok_close(&t);
        assert_null(t);
    }
}

static void real_ids(void **state)
{
    (void)state;
    const char *dir = published_path(REAL);
    if (!dir)
        return;
    xd_tok *t = open_dir(dir);
    check_hashes(t, GOLDEN "real_bert.txt");
    assert_int_equal(xd_tok_vocab(t), 47020);
    assert_int_equal(xd_tok_bos(t), 101);
    assert_int_equal(xd_tok_eos(t), 102);
    assert_int_equal(xd_tok_pad(t), 0);
    assert_int_equal(xd_tok_max(t), 77);
    xd_tok_close(&t);
}

/* Where the tokenizer's Unicode is not that of the libraries, and what the rules do. */
static void rules(void **state)
{
    static const struct {
        const char *a, *b;
        int         same;
    } cases[] = {
        { "Red CAF\xc3\x89", "red cafe", 1 }, /* small, without accents */
        { "re\xcc\x81"
          "d",
          "red", 1 },
        { "\xc4\xb0", "i", 1 },
        { "red\tcircle\xe3\x80\x80"
          "circle\n",
          "red circle circle", 1 },
        { "r\x01"
          "e\xe2\x80\x8b"
          "d\xef\xbf\xbd\xff",
          "red", 1 }, /* controls, formats, U+FFFD */
        { "red\xc2\x85"
          "circle",
          "redcircle", 1 }, /* U+0085 is a control */
        { "a\xe4\xb8\x80"
          "b",
          "a \xe4\xb8\x80 b", 1 }, /* Chinese stands apart */
        { "a\xef\xa4\x80"
          "b",
          "a \xe8\xb1\x88 b", 1 }, /* U+F900 is another's double */
        { "a\xea\xb0\x80"
          "b",
          "a \xea\xb0\x80 b", 0 }, /* Korean does not */
        { "a$b", "a $ b", 1 },     /* a symbol, and yet a mark */
        { "a\xe2\x82\xac"
          "b",
          "a \xe2\x82\xac b", 0 }, /* the euro is none */
        { "a\xe1\x99\xad"
          "b",
          "a \xe1\x99\xad b", 1 }, /* U+166D was one */
        { "a\xe2\xb9\x83"
          "b",
          "a \xe2\xb9\x83 b", 0 },       /* U+2E43 was not yet */
        { "red\xe1\xaa\xbf", "red", 0 }, /* nor U+1ABF */
        { "[MASK]red[SEP]", "[MASK] red [SEP]", 1 },
        { "[mask]", "[ mask ]", 1 },
        { "a</s>b", "a </s> b", 1 },        /* an added token that strips */
        { "red  circle", "red circle", 0 }, /* one of normalized text */
    };
    xd_tok *t = open_dir(LINES);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (equal(t, cases[i].a, cases[i].b) != cases[i].same)
            fail_msg("case %zu: '%s' and '%s'", i, cases[i].a, cases[i].b);
    same_ids(t, "r\0ed", 4, "red", 3);
    xd_tok_close(&t);
}

static void ids_are(const xd_tok *t, const char *text, int n, const int32_t *want)
{
    int64_t  have;
    int32_t *ids = ids_of(t, text, strlen(text), 0, &have);
    assert_int_equal(have, n);
    assert_memory_equal(ids, want, (size_t)n * sizeof *ids);
    free(ids);
}

/* The longest piece from the left, or nothing of the word; a word of 100 characters, and of 101. */
static void pieces(void **state)
{
    static const char vocab[] =
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\nab\nabc\n##cd\n##d\n##e\r\n\n\xc3\xa9\n##a\na";
    static const struct {
        const char *text;
        int         n;
        int32_t     ids[8];
    } cases[] = {
        { "", 2, { 2, 3 } },
        { "abcd", 4, { 2, 5, 7, 3 } }, /* not ab, ##cd */
        { "abcde", 5, { 2, 5, 7, 8, 3 } },
        { "abcx ab", 4, { 2, 1, 4, 3 } }, /* a rest that is no piece */
        { "cd", 3, { 2, 1, 3 } },
        { "##cd", 5, { 2, 1, 1, 1, 3 } },
        { "\xc3\xa9", 3, { 2, 1, 3 } }, /* its accent goes */
        { "[SEP]ab[PAD]", 5, { 2, 3, 4, 0, 3 } },
        { "x\xf0\x9f\x98\x80", 3, { 2, 1, 3 } },
    };
    char    word[102] = "";
    xd_tok *t = NULL;
    xd_err  e = { 0 };
    int64_t n;
    (void)state;
    if (xd_tok_open_lines(&t, vocab, sizeof vocab - 1, &e) != XD_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(xd_tok_vocab(t), 14); /* [MASK] is added */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ids_are(t, cases[i].text, cases[i].n, cases[i].ids);
    memset(word, 'a', 100);
    free(ids_of(t, word, 100, 0, &n));
    assert_int_equal(n, 102);
    word[100] = 'a';
    ids_are(t, word, 3, (int32_t[]){ 2, 1, 3 });
    xd_tok_close(&t);
}

/* ---- kinds of directories ------------------------------------------------------------------- */

static void config(const char *text)
{
    scratch_put("tokenizer_config.json", text, strlen(text));
}

/* A class of BERT takes its rules from the config, whatever tokenizer.json says; without a class
 * the rules are that file's. */
static void kinds(void **state)
{
    static const int32_t caf[] = { CLS, UNK, SEP };
    xd_tok              *t;
    (void)state;
    assert_int_equal(scratch_open(), 0);
    config("{\"tokenizer_class\":\"BertTokenizer\"}");
    says("has neither vocab.txt nor tokenizer.json", XD_EIO);
    copy_file(JSON, "tokenizer.json");
    t = open_dir(scratch);
    assert_true(equal(t, "Red", "red"));
    assert_int_equal(xd_tok_vocab(t), 1772);
    xd_tok_close(&t);
    config("{}");
    t = open_dir(scratch);
    assert_false(equal(t, "Red", "red"));
    xd_tok_close(&t);
    scratch_close();

    assert_int_equal(scratch_open(), 0);
    copy_file(LINES, "vocab.txt"); /* says enough */
    t = open_dir(scratch);
    assert_true(equal(t, "Red caf\xc3\xa9", "red cafe"));
    xd_tok_close(&t);
    config("{\"tokenizer_class\":\"BertTokenizerFast\",\"do_lower_case\":false,"
           "\"tokenize_chinese_chars\":false,\"pad_token\":null,\"truncation_side\":\"left\"}");
    t = open_dir(scratch);
    assert_false(equal(t, "Red", "red"));
    assert_false(equal(t, "a\xe4\xb8\x80", "a \xe4\xb8\x80"));
    assert_false(equal(t, "caf\xc3\xa9", "cafe"));
    assert_int_equal(xd_tok_pad(t), -1);
    cut_all(t, 1, CLS, SEP);
    xd_tok_close(&t);
    config("{\"tokenizer_class\":\"BertTokenizer\",\"strip_accents\":false}");
    t = open_dir(scratch);
    assert_true(equal(t, "CAF\xc3\x89", "caf\xc3\xa9"));
    assert_false(equal(t, "CAF\xc3\x89", "cafe"));
    ids_are(t, "\xe1\xaa\xbf", 3, caf);
    xd_tok_close(&t);
    scratch_close();
}

/* ---- broken files --------------------------------------------------------------------------- */

#define SPECIAL "[PAD]\n[UNK]\n[CLS]\n[SEP]\n"

/* Every sentence names what is wrong. */
static void sentences(void **state)
{
    static const struct {
        const char *lines, *says;
    } cases[] = {
        { "", "vocab.txt has 0 lines" },
        { "[PAD]\n[CLS]\n[SEP]\na", "vocab.txt has no [UNK], the tokenizer's unk_token" },
        { "[PAD]\n[UNK]\n[SEP]\na", "vocab.txt has no [CLS], the tokenizer's cls_token" },
        { "[PAD]\n[UNK]\n[CLS]\na", "vocab.txt has no [SEP], the tokenizer's sep_token" },
        { "[UNK]\n[CLS]\n[SEP]\na", "vocab.txt has no [PAD], the tokenizer's pad_token" },
        { SPECIAL "a\nb\n\na \n", "vocab.txt: 'a' is in line 5 and in line 8" },
    };
    static const struct {
        const char *norm, *cut, *says;
    } files[] = {
        { "null", "{\"type\":\"BertPreTokenizer\"}",
          "the normalizer of its WordPiece model is none" },
        { "{\"type\":\"NFC\"}", "{\"type\":\"BertPreTokenizer\"}",
          "normalizer of its WordPiece model is NFC" },
        { "{\"type\":\"BertNormalizer\"}", "{\"type\":\"Whitespace\"}",
          "pre_tokenizer of its WordPiece model is "
          "Whitespace" },
        { "{\"type\":\"BertNormalizer\"}", "{\"type\":\"BertPreTokenizer\"}",
          "no object of pieces" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases + sizeof files / sizeof *files; i++) {
        size_t      k = i - sizeof cases / sizeof *cases;
        int         lines = i < sizeof cases / sizeof *cases;
        const char *want = lines ? cases[i].says : files[k].says;
        char        text[512];
        xd_tok     *t = NULL;
        xd_err      e = { 0 };
        if (!lines)
            snprintf(text, sizeof text,
                     "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"model\":{\"type\":"
                     "\"WordPiece\",\"vocab\":[]}}",
                     files[k].norm, files[k].cut);
        xd_status s = lines ? xd_tok_open_lines(&t, cases[i].lines, strlen(cases[i].lines), &e)
                            : xd_tok_open_json(&t, text, strlen(text), &e);
        if (s == XD_OK || !strstr(e.msg, want))
            fail_msg("case %zu: '%s' does not say '%s'", i, e.msg, want);
        assert_null(t);
    }
    assert_int_equal(scratch_open(), 0);
    scratch_put("vocab.txt", SPECIAL "a\n", strlen(SPECIAL "a\n"));
    config("{\"tokenizer_class\":\"BertTokenizer\",\"added_tokens_decoder\":{\"3\":{\"content\":"
           "\"[CLS]\"}}}");
    says("the id of [CLS] is 2, but in tokenizer_config.json it is 3", XD_EFORMAT);
    config("{\"tokenizer_class\":\"BertTokenizer\",\"cls_token\":\"\"}");
    says("cls_token is empty", XD_EFORMAT);
    scratch_close();
}

static int try_bytes(const char *v, size_t n)
{
    char   *exact = malloc(n ? n : 1); /* for sanitizers */
    xd_tok *t = NULL;
    xd_err  e = { 0 };
    assert_non_null(exact);
    memcpy(exact, v, n);
    xd_status s = v[0] == '{' ? xd_tok_open_json(&t, exact, n, &e)
                              : xd_tok_open_lines(&t, exact, n, &e);
    free(exact);
    if (s != XD_OK) {
        assert_null(t);
        assert_true(e.code != XD_OK && strlen(e.msg) > 10);
        return 0;
    }
    int64_t k;
    for (int i = 0; i < 40; i++)
        free(ids_of(t, prompts[i].text, prompts[i].len, 0, &k));
    xd_tok_close(&t);
    return 1;
}

/* Cut and flipped bytes: either the file opens and works, or there is one sentence. */
static void broken(void **state)
{
    static const char *const files[] = { LINES "/vocab.txt", JSON "/tokenizer.json" };
    (void)state;
    for (int k = 0; k < 2; k++) {
        char    *f;
        size_t   len;
        uint64_t h = xd_hash_text(files[k]);
        assert_int_equal(xd_file_read(files[k], MAX_FILE, &f, &len, NULL), XD_OK);
        assert_int_equal(try_bytes(f, len), 1);
        for (size_t at = 0; at + 2 < len; at += at < 100 ? 1 : 61)
            assert_true(!try_bytes(f, at) || k == 0); /* half an object is none */
        for (int i = 0; i < 800; i++) {
            size_t at = 1 + xd_hash_mix(h, (uint64_t)i) % (len - 1);
            char   was = f[at];
            f[at] = (char)(xd_hash_mix(h, (uint64_t)i + 1000000) & 0xff);
            try_bytes(f, len);
            f[at] = was;
        }
        free(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ids), cmocka_unit_test(real_ids), cmocka_unit_test(rules),
        cmocka_unit_test(pieces),    cmocka_unit_test(kinds),    cmocka_unit_test(sentences),
        cmocka_unit_test(broken),
    };
    return cmocka_run_group_tests(tests, read_prompts, forget_prompts);
}
