/* test_bpe.c - CLIP's tokenizer: ids against those of transformers' CLIPTokenizer on 500 prompts
 * (tools/golden/cases/tok.py wrote them), which directory is of which kind, broken files. */
#define _XOPEN_SOURCE 700       /* P_tmpdir */
#include "tok/tok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/rng.h"
#include "prompts.h"
#include "published.h"
#include "scratch.h"

#define TWO GOLDEN "clip/two"
#define ONE GOLDEN "clip/one"
#define REAL "black-forest-labs/FLUX.1-dev/tokenizer"
#define REAL_PAD "stabilityai/stable-diffusion-3-medium-diffusers/tokenizer_2"

static xd_tok *open_dir(const char *dir)
{
    return must_open(xd_tok_open, dir);
}

/* ---- ids ------------------------------------------------------------------------------------ */

/* The vocabulary lacks some bytes, its padding token stands in texts, its added tokens have all
 * flags; it stands there in both forms. */
static void small_ids(void **state)
{
    static const char *const dirs[] = { TWO, ONE };
    (void)state;
    for (int i = 0; i < 2; i++) {
        xd_tok *t = open_dir(dirs[i]);
        check_hashes(t, GOLDEN "clip.txt");
        assert_int_equal(xd_tok_vocab(t), 418);
        assert_int_equal(xd_tok_bos(t), 412);
        assert_int_equal(xd_tok_eos(t), 413);
        assert_int_equal(xd_tok_pad(t), 100);
        assert_int_equal(xd_tok_max(t), 77);
        xd_tok_close(&t);
        assert_null(t);
    }
}

static void check_real(const char *name, const char *golden, int pad)
{
    const char *dir = published_path(name);
    if (!dir)
        return;
    xd_tok *t = open_dir(dir);
    check_hashes(t, golden);
    assert_int_equal(xd_tok_vocab(t), 49408);
    assert_int_equal(xd_tok_bos(t), 49406);
    assert_int_equal(xd_tok_eos(t), 49407);
    assert_int_equal(xd_tok_pad(t), pad);
    assert_int_equal(xd_tok_max(t), 77);
    xd_tok_close(&t);
}

static void real_ids(void **state)
{
    (void)state;
    check_real(REAL, GOLDEN "clip0.txt", 49407);
    check_real(REAL_PAD, GOLDEN "clip1.txt", 0);
}

/* Both outer tokens stay; the golden script asserts the same of transformers, for which a limit of
 * one is none. */
static void truncation(void **state)
{
    static const char left[] = "{\"tokenizer_class\":\"CLIPTokenizerFast\",\"pad_token\":null,"
                               "\"truncation_side\":\"left\",\"model_max_length\":1e30}";
    xd_tok           *t = open_dir(TWO);
    (void)state;
    cut_all(t, 0, 412, 413);
    xd_tok_close(&t);
    assert_int_equal(scratch_open(), 0);
    copy_file(TWO, "vocab.json");
    copy_file(TWO, "merges.txt");
    scratch_put("tokenizer_config.json", left, sizeof left - 1);
    t = open_dir(scratch);
    assert_int_equal(xd_tok_pad(t), -1);
    assert_int_equal(xd_tok_max(t), 0);
    cut_all(t, 1, 412, 413);
    xd_tok_close(&t);
    scratch_close();
}

/* Where the tokenizer's Unicode is not that of the libraries. */
static void unicode(void **state)
{
    static const struct {
        const char *a, *b;
        int         same;
    } cases[] = {
        { "A\xcc\x8a", "\xc3\xa5", 1 }, /* composed, lowered */
        { "\xce\x9f\xce\x94\xce\x9f\xce\xa3", "\xce\xbf\xce\xb4\xce\xbf\xcf\x83", 1 },
        { "\xc4\xb0", "i\xcc\x87", 1 },
        { "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81", 1 },
        { "a\xcc\x81\xcc\x96", "a\xcc\x96\xcc\x81", 1 }, /* marks in order */
        { "a\xcc\x81\xcc\x84", "a\xcc\x84\xcc\x81", 0 },
        { "a\xe0\xa2\x98\xcc\x96", "a\xcc\x96\xe0\xa2\x98", 0 }, /* U+0898 came with Unicode 14 */
        { "\xe1\xb2\x89", "\xe1\xb2\x8a", 1 },                   /* U+1C89 with 16 */
        { "\xea\x9f\x94", "\xea\x9f\x95", 1 },                   /* U+A7D4 with 17 */
        { "x\xe1\xb2\x8ay", "x \xe1\xb2\x8a y", 0 },             /* a letter: one word */
        { "x\xe1\xb2\x8ay", "x\xe1\xb2\x8a y", 0 },
        { "\xf0\x90\xb5\x80x", "\xf0\x90\xb5\x80 x", 1 }, /* U+10D40: a number */
        { "a\xe2\x80\xa8\xc2\x85\t b", "a b", 1 },
        { "it's", "it 's", 1 },
        { "12", "1 2", 1 },
        { "a\xff", "a\xef\xbf\xbd", 1 },
    };
    xd_tok *t = open_dir(TWO);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (equal(t, cases[i].a, cases[i].b) != cases[i].same)
            fail_msg("case %zu: '%s' and '%s'", i, cases[i].a, cases[i].b);
    same_ids(t, "a\0b", 3, "a \0 b", 5);
    xd_tok_close(&t);
}

/* A word as long as this would take hours if each merge looked at all of it. */
static void long_words(void **state)
{
    enum { N = 1 << 20 };
    xd_tok *t = open_dir(TWO);
    char   *s = malloc(N);
    int64_t n;
    (void)state;
    assert_non_null(s);
    memset(s, '!', N);
    int32_t *ids = ids_of(t, s, N, 0, &n);
    assert_int_equal(n, N / 2 + 1); /* the last two pairs are one piece */
    for (int64_t i = 2; i < n - 2; i++)
        assert_int_equal(ids[i], ids[1]);
    free(ids);
    memset(s, 'a', N);
    ids = ids_of(t, s, N, 0, &n);
    assert_true(n > N / 4 && n < N);
    free(ids);
    for (int i = 0; i < N; i++) /* marks that all want another place */
        s[i] = i % 4 == 1 ? '\x81' : i % 4 == 3 ? '\x96' : '\xcc';
    free(ids_of(t, s, N, 0, &n));
    assert_int_equal(n, N + 2);
    free(s);
    xd_tok_close(&t);
}

/* ---- kinds of directories ------------------------------------------------------------------- */

static void kinds(void **state)
{
    static const char other[] = "{\"tokenizer_class\":\"BartTokenizer\"}";
    static const char clip[] = "{\"tokenizer_class\":\"CLIPTokenizer\"}";
    xd_tok           *t = NULL;
    (void)state;
    assert_int_equal(scratch_open(), 0);
    says("none of spiece.model", XD_EIO);
    scratch_put("tokenizer_config.json", clip, sizeof clip - 1);
    says("neither vocab.json and merges.txt nor tokenizer.json", XD_EIO);
    copy_file(TWO, "vocab.json");
    says("has vocab.json, but no merges.txt", XD_EIO);
    scratch_put("merges.txt", "", 0);
    says("merges.txt is empty", XD_EFORMAT);
    copy_file(TWO, "merges.txt");
    xd_tok_close((t = open_dir(scratch), &t));
    scratch_put("tokenizer_config.json", other, sizeof other - 1);
    says("has a BartTokenizer", XD_EUNSUPPORTED);
    scratch_put("tokenizer_config.json", "{}", 2);
    t = open_dir(scratch);
    assert_int_equal(xd_tok_bos(t), 412);
    xd_tok_close(&t);
    scratch_close();
    assert_int_equal(scratch_open(), 0);
    copy_file(ONE, "tokenizer.json");
    t = open_dir(scratch);
    assert_int_equal(xd_tok_bos(t), 412);
    xd_tok_close(&t);
    scratch_close();
    t = open_dir("models/demo-pixart/tokenizer");
    assert_int_equal(xd_tok_bos(t), -1);
    assert_int_equal(xd_tok_pad(t), 0);
    assert_int_equal(xd_tok_eos(t), 1);
    xd_tok_close(&t);
}

/* ---- broken files --------------------------------------------------------------------------- */

static xd_status open_two(xd_tok **t, const char *v, size_t nv, const char *m, size_t nm, xd_err *e)
{
    char *a = malloc(nv ? nv : 1), *b = malloc(nm ? nm : 1); /* exact, for sanitizers */
    assert_true(a && b);
    memcpy(a, v, nv);
    memcpy(b, m, nm);
    xd_status s = xd_tok_open_bpe(t, a, nv, b, nm, e);
    free(a);
    free(b);
    return s;
}

#define SPECIAL "\"<|startoftext|>\":8,\"<|endoftext|>\":9"
#define GOOD "{\"a\":0,\"b\":1,\"b</w>\":2,\"ab\":3," SPECIAL "}"

/* Every sentence names what is wrong. */
static void sentences(void **state)
{
    static const struct {
        const char *vocab, *merges, *says;
    } cases[] = {
        { "", "a b\n", "vocab.json" },
        { "{", "a b\n", "vocab.json" },
        { "[]", "a b\n", "vocab.json has no object" },
        { "{}", "a b\n", "vocab.json has no object" },
        { "{\"a\":\"0\"}", "a b\n", "the id of 'a' is not an integer" },
        { "{\"a\":-1}", "a b\n", "the id of 'a' is not an integer" },
        { "{\"a\":0.5}", "a b\n", "the id of 'a' is not an integer" },
        { "{\"a\":1e9}", "a b\n", "the id of 'a' is not an integer" },
        { "{\"a\":NaN}", "a b\n", "the id of 'a' is not an integer" },
        { "{\"a\":0,\"b\":0}", "a b\n", "id 0 of 'b' also belongs to another" },
        { "{\"a\":0,\"a\":1}", "a b\n", "'a' occurs twice" },
        { "{\"\":0}", "a b\n", "piece 0 has 0 bytes" },
        { "{\"a\":0}", "#version: 0.2\n", "no piece for byte 0 in a word, nor the unk_token" },
        { GOOD, "", "merges.txt is empty" },
        { GOOD, "a b\nab\n", "line 2, 'ab', is not two parts" },
        { GOOD, "a b\n\na b\n", "line 2, '', is not two parts" },
        { GOOD, "a b c\n", "line 1, 'a b c', is not two parts" },
        { GOOD, " a\n", "line 1, ' a', is not two parts" },
        { GOOD, "a b \n", "line 1, 'a b ', is not two parts" },
        { GOOD, "a c\n", "'c' of merge 1 is not in the vocabulary" },
        { GOOD, "a b\nb a\n", "'ba' of merge 2 is not in the vocabulary" },
        { GOOD, "#version: 0.2\nc b", "'c' of merge 2 is not in the vocabulary" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xd_tok *t = NULL;
        xd_err  e = { 0 };
        if (open_two(&t, cases[i].vocab, strlen(cases[i].vocab), cases[i].merges,
                     strlen(cases[i].merges), &e) == XD_OK ||
            !strstr(e.msg, cases[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, e.msg, cases[i].says);
        assert_null(t);
    }
}

/* Ids with gaps, a last line without its end, lines that end as on Windows. */
static void odd_but_good(void **state)
{
    static const char *const merges[] = { "a b\n", "a b", "#version: 0.2\r\na b\r\n" };
    static const int32_t     want[] = { 8, 3, 2, 9, 9 };
    (void)state;
    for (int i = 0; i < 3; i++) {
        xd_tok *t = NULL;
        xd_err  e = { 0 };
        int64_t n;
        if (open_two(&t, GOOD, strlen(GOOD), merges[i], strlen(merges[i]), &e) != XD_OK)
            fail_msg("%s", e.msg);
        assert_int_equal(xd_tok_vocab(t), 10);
        int32_t *ids = ids_of(t, "ABb ?", 5, 0, &n);
        assert_int_equal(n, 5);
        assert_memory_equal(ids, want, sizeof want);
        free(ids);
        xd_tok_close(&t);
    }
}

static int try_two(const char *v, size_t nv, const char *m, size_t nm)
{
    xd_tok *t = NULL;
    xd_err  e = { 0 };
    if (open_two(&t, v, nv, m, nm, &e) != XD_OK) {
        assert_null(t);
        assert_true(e.code != XD_OK && strlen(e.msg) > 10);
        return 0;
    }
    int64_t n;
    for (int i = 0; i < 40; i++)
        free(ids_of(t, prompts[i].text, prompts[i].len, 0, &n));
    xd_tok_close(&t);
    return 1;
}

/* Cut and flipped bytes: either the files open and work, or there is one sentence. */
static void broken(void **state)
{
    char    *f[2];
    size_t   len[2];
    uint64_t h = xd_hash_text("broken");
    int      opened = 0;
    (void)state;
    assert_int_equal(xd_file_read(TWO "/vocab.json", MAX_FILE, &f[0], &len[0], NULL), XD_OK);
    assert_int_equal(xd_file_read(TWO "/merges.txt", MAX_FILE, &f[1], &len[1], NULL), XD_OK);
    assert_int_equal(try_two(f[0], len[0], f[1], len[1]), 1);
    for (size_t at = 0; at + 2 < len[0]; at += at < 100 ? 1 : 37)
        opened += try_two(f[0], at, f[1], len[1]);
    assert_int_equal(opened, 0); /* half an object is none */
    for (size_t at = 0; at < len[1]; at++)
        try_two(f[0], len[0], f[1], at);
    for (int i = 0; i < 1500; i++) {
        int    k = i % 2;
        size_t at = xd_hash_mix(h, (uint64_t)i) % len[k];
        char   was = f[k][at];
        f[k][at] = (char)(xd_hash_mix(h, (uint64_t)i + 1000000) & 0xff);
        try_two(f[0], len[0], f[1], len[1]);
        f[k][at] = was;
    }
    free(f[0]);
    free(f[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ids), cmocka_unit_test(real_ids),     cmocka_unit_test(truncation),
        cmocka_unit_test(unicode),   cmocka_unit_test(long_words),   cmocka_unit_test(kinds),
        cmocka_unit_test(sentences), cmocka_unit_test(odd_but_good), cmocka_unit_test(broken),
    };
    return cmocka_run_group_tests(tests, read_prompts, forget_prompts);
}
