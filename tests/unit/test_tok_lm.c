/* test_tok_lm.c - tokenizers of decoder language models: ids against those of transformers on 500
 * texts (tools/golden/cases/tok_lm.py wrote them), frames around prompts, which directory is of
 * this kind, broken files. */
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
#include "scratch.h"

static xd_tok *open_kind(const char *kind)
{
    char dir[128];
    snprintf(dir, sizeof dir, GOLDEN_LM "%s", kind);
    return must_open(xd_tok_open, dir);
}

/* ---- ids ------------------------------------------------------------------------------------ */

static const struct kind {
    const char *name;
    int         vocab, bos, eos, pad, left;
    int64_t     max;
} kinds[] = {
    { "qwen", 1082, -1, 1058, 1056, 0, 131072 }, { "qwen_two", 1082, -1, 1058, 1056, 0, 131072 },
    { "qwen_old", 1082, -1, 1058, 1056, 0, 0 },  { "llama", 1070, 1058, 1059, 1064, 0, 131072 },
    { "mistral", 1076, 1, 2, 11, 1, 0 },         { "gemma", 1579, 2, 1, 0, 1, 0 },
    { "gemma_model", 1100, 2, 1, 0, 1, 0 },      { "odd_bytes", 1061, 1056, 1057, 1060, 1, 0 },
    { "odd_letters", 1579, 2, 1, 0, 0, 0 },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void small_ids(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        const struct kind *k = &kinds[i];
        char               golden[128];
        xd_tok            *t = open_kind(k->name);
        snprintf(golden, sizeof golden, GOLDEN_LM "%s.txt", k->name);
        print_message("# %s\n", k->name);
        check_hashes(t, golden);
        assert_int_equal(xd_tok_vocab(t), k->vocab);
        assert_int_equal(xd_tok_bos(t), k->bos);
        assert_int_equal(xd_tok_eos(t), k->eos);
        assert_int_equal(xd_tok_pad(t), k->pad);
        assert_int_equal(xd_tok_pads_left(t), k->left);
        assert_int_equal(xd_tok_max(t), k->max);
        xd_tok_close(&t);
        assert_null(t);
    }
}

/* A word as long as this would take hours if each merge looked at all of it. */
static void long_words(void **state)
{
    enum { N = 1 << 19 };
    static const char *const parts[] = {
        "a", " ", "A", "\n", "\xe4\xb8\x80", "\xcc\x81", "'", "1"
    };
    char *s = malloc(N);
    (void)state;
    assert_non_null(s);
    for (int k = 0; k < KINDS; k++) {
        xd_tok *t = open_kind(kinds[k].name);
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            int     len = (int)strlen(parts[p]);
            int64_t n;
            for (int i = 0; i < N; i++)
                s[i] = parts[p][i % len];
            free(ids_of(t, s, N - N % (size_t)len, 0, &n));
            assert_true(n > N / 64 || parts[p][0] == '\n');
        }
        xd_tok_close(&t);
    }
    free(s);
}

/* Special tokens that only a list names are found in the text as it is typed, before its
 * characters are composed. */
static void special_first(void **state)
{
    static const char *const names[] = { "qwen", "qwen_two", "qwen_old" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        int64_t  n;
        xd_tok  *t = open_kind(names[i]);
        int32_t *ids = ids_of(t, "<|im_start|>\xcc\xb8", 14, 0, &n);
        assert_int_equal(ids[0], 1057);
        assert_true(xd_tok_is_lm(t));
        free(ids);
        xd_tok_close(&t);
    }
}

/* ---- frames --------------------------------------------------------------------------------- */

static uint64_t fnv(const int32_t *ids, int64_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < 32; b += 8)
            h = (h ^ ((uint32_t)ids[i] >> b & 0xff)) * 0x100000001b3u;
    return h;
}

static const struct {
    const char  *kind;
    xd_tok_frame f;
} frames[] = {
    { "qwen",
      { .text = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n", .max = 48, .pad = 1 } },
    { "qwen_two",
      { .text = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n\n"
                "</think>\n\n",
        .max = 17,
        .drop = 3,
        .pad = 1,
        .side = XD_TOK_SIDE_LEFT } },
    { "mistral",
      { .text = "<s>[SYSTEM_PROMPT]You reason.[/SYSTEM_PROMPT][INST]{}[/INST]",
        .max = 32,
        .pad = 1,
        .no_special = 1 } },
    { "llama",
      { .text = "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>",
        .max = 24,
        .pad = 1,
        .side = XD_TOK_SIDE_RIGHT } },
    { "gemma", { .text = NULL, .max = 12, .pad = 1 } },
    { "odd_bytes", { .text = "a {} b", .max = 30, .pad = 1 } },
};
enum { FRAMES = sizeof frames / sizeof *frames };

/* Padded ids and the range of text are those of transformers, with tokens in prompts too. */
static void framed_ids(void **state)
{
    char  *golden;
    size_t len;
    int    at = 0, took;
    (void)state;
    assert_int_equal(xd_file_read(GOLDEN_LM "frames.txt", MAX_FILE, &golden, &len, NULL), XD_OK);
    for (int k = 0; k < FRAMES; k++) {
        xd_tok *t = open_kind(frames[k].kind);
        for (int i = 0; i < PROMPTS; i += 10) {
            long long          n, first, real;
            unsigned long long hash;
            xd_tok_row         r;
            xd_err             e = { 0 };
            assert_int_equal(
                sscanf(golden + at, "%lld %llx %lld %lld%n", &n, &hash, &first, &real, &took), 4);
            at += took;
            if (strlen(prompts[i].text) != prompts[i].len) /* a prompt has no NUL */
                continue;
            if (xd_tok_frame_ids(t, &frames[k].f, prompts[i].text, &r, &e) != XD_OK)
                fail_msg("%s", e.msg);
            if (r.n != n || r.first != first || r.real != real || fnv(r.ids, r.n) != hash)
                fail_msg("%s, text %d: %lld ids, %lld in front, %lld text", frames[k].kind, i,
                         (long long)r.n, (long long)r.first, (long long)r.real);
            assert_true(r.untruncated >= r.real);
            assert_int_equal(r.drop, frames[k].f.drop < r.real ? frames[k].f.drop : r.real);
            free(r.ids);
        }
        xd_tok_close(&t);
    }
    free(golden);
}

static void framed_text(void **state)
{
    char *s = xd_tok_framed("a{}b{}c", "{}");
    (void)state;
    assert_string_equal(s, "a{}b{}c"); /* the first place only */
    free(s);
    s = xd_tok_framed(NULL, "x");
    assert_string_equal(s, "x");
    free(s);
    s = xd_tok_framed("fixed", "x");
    assert_string_equal(s, "x"); /* a frame without a place is none */
    free(s);
}

static void without_padding(void **state)
{
    static const char  config[] = "{\"tokenizer_class\":\"Qwen2Tokenizer\",\"pad_token\":null,"
                                  "\"eos_token\":null,\"unk_token\":null}";
    const xd_tok_frame f = { .max = 8, .pad = 1 };
    xd_tok_row         r;
    xd_err             e = { 0 };
    (void)state;
    assert_int_equal(scratch_open(), 0);
    copy_file(GOLDEN_LM "qwen", "tokenizer.json");
    scratch_put("tokenizer_config.json", config, sizeof config - 1);
    xd_tok *t = must_open(xd_tok_open, scratch);
    assert_int_equal(xd_tok_frame_ids(t, &f, "a", &r, &e), XD_EFORMAT);
    assert_non_null(strstr(e.msg, "has no pad_token"));
    assert_null(r.ids);
    assert_int_equal(xd_tok_frame_ids(t, &(xd_tok_frame){ .max = 8 }, "", &r, &e), XD_OK);
    assert_int_equal(r.n, 0);
    assert_non_null(r.ids);
    free(r.ids);
    xd_tok_close(&t);
    scratch_close();
}

static void doubts(void **state)
{
    static const char chat[] = "{%- for m in messages %}<|im_start|>{{ m.content }}{%- endfor %}";
    static const char config[] = "{\"tokenizer_class\":\"Qwen2Tokenizer\",\"chat_template\":"
                                 "\"<|im_start|> <|im_end|>\"}";
    xd_tok_frame      f = frames[0].f;
    char              why[512] = "";
    xd_tok           *t = open_kind("qwen");
    (void)state;
    assert_int_equal(xd_tok_frame_doubt(t, GOLDEN_LM "qwen", &f, why, sizeof why), 0);
    assert_int_equal(xd_tok_chat_doubt(t, GOLDEN_LM "qwen", &f, why, sizeof why), 0);
    f.drop = 7;
    assert_int_equal(xd_tok_chat_doubt(t, GOLDEN_LM "qwen", &f, why, sizeof why), 1);
    assert_non_null(strstr(why, "for the text before a prompt, but the pipeline drops 7"));
    f = frames[2].f;
    assert_int_equal(xd_tok_frame_doubt(t, "qwen", &f, why, sizeof why), 1);
    assert_non_null(strstr(why, "the tokenizer in qwen has no token <s>"));
    f = frames[0].f;
    assert_int_equal(scratch_open(), 0);
    scratch_put("tokenizer_config.json", config, sizeof config - 1);
    assert_int_equal(xd_tok_chat_doubt(t, scratch, &f, why, sizeof why), 0);
    scratch_put("chat_template.jinja", chat, sizeof chat - 1);
    assert_int_equal(xd_tok_chat_doubt(t, scratch, &f, why, sizeof why), 1);
    assert_non_null(strstr(why, "has no <|im_end|>"));
    scratch_close();
    xd_tok_close(&t);
    t = open_kind("mistral"); /* a template writes the first token itself */
    f = frames[2].f;
    f.drop = 0;
    assert_int_equal(scratch_open(), 0);
    scratch_put("chat_template.jinja", "[SYSTEM_PROMPT][/SYSTEM_PROMPT][INST][/INST]", 44);
    assert_int_equal(xd_tok_chat_doubt(t, scratch, &f, why, sizeof why), 0);
    scratch_close();
    xd_tok_close(&t);
}

/* ---- kinds of directories ------------------------------------------------------------------- */

static void config(const char *text)
{
    scratch_put("tokenizer_config.json", text, strlen(text));
}

static void opens_with(int64_t vocab)
{
    xd_tok *t = must_open(xd_tok_open, scratch);
    assert_int_equal(xd_tok_vocab(t), vocab);
    xd_tok_close(&t);
}

static void directories(void **state)
{
    (void)state;
    assert_int_equal(scratch_open(), 0);
    config("{\"tokenizer_class\":\"Qwen2Tokenizer\"}");
    says("has no tokenizer.json; copy the tokenizer files", XD_EIO);
    scratch_put("tekken.json", "{}", 2);
    says("and its tekken.json is not supported", XD_EIO);
    copy_file(GOLDEN_LM "qwen_two", "vocab.json");
    says("has vocab.json, but neither merges.txt nor tokenizer.json", XD_EIO);
    copy_file(GOLDEN_LM "qwen_two", "merges.txt");
    opens_with(1057); /* <|endoftext|> is all that is added */
    config("{\"tokenizer_class\":\"GemmaTokenizer\"}");
    says("vocab.json is for a GemmaTokenizer, which also needs tokenizer.json", XD_EUNSUPPORTED);
    config("{}"); /* its merges do not end in </w> */
    opens_with(1057);
    copy_file(GOLDEN_LM "llama", "tokenizer.json");
    opens_with(1070);
    scratch_close();

    assert_int_equal(scratch_open(), 0);
    copy_file(GOLDEN_LM "mistral", "tokenizer.json"); /* no config at all */
    opens_with(1076);
    config("{\"tokenizer_class\":\"LlamaTokenizerFast\",\"pad_token\":\"<pad>\"}");
    xd_tok *t = must_open(xd_tok_open, scratch);
    assert_int_equal(xd_tok_pads_left(t), 1); /* the class's */
    assert_int_equal(xd_tok_pad(t), 11);
    xd_tok_close(&t);
    scratch_close();

    assert_int_equal(scratch_open(), 0);
    copy_file(GOLDEN_LM "gemma_model", "tokenizer.model");
    says("is supported only for a GemmaTokenizer", XD_EUNSUPPORTED);
    config("{\"tokenizer_class\":\"GemmaTokenizer\",\"add_bos_token\":false,"
           "\"add_eos_token\":true}");
    t = must_open(xd_tok_open, scratch);
    int64_t  n;
    int32_t *ids = ids_of(t, "", 0, 0, &n);
    assert_int_equal(n, 1);
    assert_int_equal(ids[0], 1);
    free(ids);
    xd_tok_close(&t);
    copy_file("tests/golden/tok/mt5", "spiece.model");
    assert_int_equal(xd_tok_open_t5(&t, scratch, NULL), XD_OK);
    xd_tok_close(&t);
    scratch_put("tokenizer.model", "IQ== 0\nIg== 1\n", 14); /* tiktoken's */
    says("tokenizer.model has no pieces", XD_EFORMAT);
    scratch_close();
}

static void wrong_model(void **state)
{
    char  *data;
    size_t len;
    (void)state;
    assert_int_equal(scratch_open(), 0);
    config("{\"tokenizer_class\":\"GemmaTokenizer\"}");
    assert_int_equal(xd_file_read("tests/golden/tok/mt5/spiece.model", MAX_FILE, &data, &len, NULL),
                     XD_OK);
    scratch_put("tokenizer.model", data, len);
    says("holds a unigram model, but Gemma needs a BPE model", XD_EUNSUPPORTED);
    free(data);
    config("{\"tokenizer_class\":\"Qwen2Tokenizer\"}");
    copy_file("tests/golden/tok/small", "tokenizer.json");
    says("holds a Unigram model, but a language model needs BPE", XD_EUNSUPPORTED);
    scratch_close();
}

/* ---- rules and broken files ----------------------------------------------------------------- */

/* A tokenizer.json with these parts, and pieces of letters. */
static xd_status open_parts(const char *parts, const char *model, xd_tok **t, xd_err *e)
{
    char text[4096];
    snprintf(text, sizeof text, "{%s,\"model\":{\"type\":\"BPE\",\"byte_fallback\":true%s}}", parts,
             model);
    return xd_tok_open_json(t, text, strlen(text), e);
}

#define VOCAB ",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<s>\":3},\"merges\":[\"a b\"]"
#define NONE "\"normalizer\":null"
#define SPLIT(regex) "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex       \
    "\"},\"behavior\":\"Isolated\"}"

/* Every sentence names what is wrong. */
static void sentences(void **state)
{
    static const struct {
        const char *parts, *model, *says;
    } cases[] = {
        { "\"normalizer\":{\"type\":\"Lowercase\"}", VOCAB,
          "normalizer Lowercase is not supported" },
        { "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"}",
          VOCAB, "its normalizer Replace is not supported" },
        { "\"pre_tokenizer\":{\"type\":\"Metaspace\"}", VOCAB, "Metaspace is not supported" },
        { "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":"
          "\"Removed\"}",
          VOCAB, "a pattern of its pre_tokenizer is empty" },
        { "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":"
          "\"Else\"}",
          VOCAB, "the behavior Else is not supported" },
        { "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}", VOCAB, "has no piece for byte 0" },
        { "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
          "{\"type\":\"Split\"}]}",
          VOCAB, "after ByteLevel, Split is not supported" },
        { SPLIT("\\\\w+"), VOCAB, "its pattern '\\w+' has unsupported syntax" },
        { SPLIT("[a[b]]"), VOCAB, "has unsupported syntax before character 2" },
        { SPLIT("[\\\\S]"), VOCAB, "has unsupported syntax" },
        { SPLIT("\\\\p{Han}"), VOCAB, "has unsupported syntax" },
        { SPLIT("\\\\p{L"), VOCAB, "has unsupported syntax" },
        { SPLIT("(?m:a)"), VOCAB, "has unsupported syntax" },
        { SPLIT("^a"), VOCAB, "has unsupported syntax" },
        { SPLIT("[a"), VOCAB, "has unsupported syntax" },
        { SPLIT("a\\\\"), VOCAB, "has unsupported syntax" },
        { SPLIT("(a"), VOCAB, "PCRE2 refuses the pattern '(a'" },
        { "\"post_processor\":{\"type\":\"BertProcessing\"}", VOCAB,
          "its post_processor BertProcessing is not supported" },
        { "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
          "{\"id\":\"<s>\"}},{\"Sequence\":{}}]}",
          VOCAB, "adds tokens that it does not" },
        { "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
          "{\"id\":\"<s>\"}},{\"Sequence\":{}}],\"special_tokens\":{\"<s>\":{\"ids\":[99]}}}",
          VOCAB, "adds tokens that it does not" },
        { "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}", VOCAB,
          "adds tokens that it does not" },
        { NONE, ",\"end_of_word_suffix\":\"\",\"dropout\":0.5" VOCAB, "model with dropout is not" },
        { NONE, ",\"continuing_subword_prefix\":\"##\"" VOCAB, "continuing_subword_prefix is not" },
        { NONE, ",\"vocab\":[],\"merges\":[]", "has no object of pieces" },
        { NONE, ",\"vocab\":{},\"merges\":[]", "has no object of pieces" },
        { NONE, ",\"vocab\":{\"a\":0}", "has no list model.merges" },
        { NONE, ",\"vocab\":{\"a\":0},\"merges\":[\"a\"]", "merge 1, '', is not two parts" },
        { NONE, ",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"\"]]", "merge 1, '', is not two parts" },
        { NONE, ",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\",\"a\"]]", "is not two parts" },
        { NONE, ",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\"],\"b\"]",
          "is not in the vocabulary" },
        { NONE, ",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]", "'aa' of merge 1 is not in the" },
        { NONE, ",\"vocab\":{\"a\":0},\"merges\":[1]", "the list of merges is invalid" },
        { NONE, ",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]", "'a' occurs twice" },
        { NONE, ",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]",
          "id 0 of 'b' also belongs to another" },
        { NONE, ",\"vocab\":{\"a\":-1},\"merges\":[]", "the id of 'a' is not an integer" },
        { NONE, ",\"vocab\":{\"a\":1.5},\"merges\":[]", "the id of 'a' is not an integer" },
        { NONE, ",\"vocab\":{\"a\":99999999999999999999},\"merges\":[]", "'a' is not an integer" },
        { NONE, ",\"vocab\":{\"\":1},\"merges\":[]", "piece 0 has 0 bytes" },
        { NONE, ",\"vocab\":{\"a\" 1},\"merges\":[]", "the vocabulary is invalid near its byte" },
        { NONE, ",\"vocab\":{\"\\ud800\":1},\"merges\":[]", "the vocabulary is invalid" },
        { NONE, ",\"vocab\":{\"\\q\":1},\"merges\":[]", "the vocabulary is invalid" },
        { NONE, ",\"vocab\":{\"a\":1]},\"merges\":[]", "tokenizer.json: not JSON" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xd_tok *t = NULL;
        xd_err  e = { 0 };
        if (open_parts(cases[i].parts, cases[i].model, &t, &e) == XD_OK ||
            !strstr(e.msg, cases[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, e.msg, cases[i].says);
        assert_null(t);
    }
}

/* Strings with every escape, and ids with gaps. */
static void escapes(void **state)
{
    static const char vocab[] =
        ",\"vocab\":{\"\\u0061\":7,\"\\\"\":1,\"\\\\\":2,\"\\/\":3,\"\\b\":4,\"\\f\":5,\"\\n\":6,"
        "\"\\r\":8,\"\\t\" : 9 ,\n\"\\ud83d\\ude00\":10,\"\\u00e9\":11,\"a\\u00e9\":20},"
        "\"merges\":[ \"\\u0061 \\u00E9\" ]";
    static const int32_t want[] = { 7, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 20 };
    xd_tok              *t = NULL;
    xd_err               e = { 0 };
    int64_t              n;
    (void)state;
    if (open_parts(NONE, vocab, &t, &e) != XD_OK)
        fail_msg("%s", e.msg);
    int32_t *ids = ids_of(t,
                          "a\"\\/\b\f\n\r\t\xf0\x9f\x98\x80\xc3\xa9"
                          "a\xc3\xa9",
                          18, 0, &n);
    assert_int_equal(n, 12);
    assert_memory_equal(ids, want, sizeof want);
    free(ids);
    assert_int_equal(xd_tok_vocab(t), 21);
    xd_tok_close(&t);
}

static int try_json(const char *v, size_t n)
{
    char   *exact = malloc(n ? n : 1); /* for sanitizers */
    xd_tok *t = NULL;
    xd_err  e = { 0 };
    assert_non_null(exact);
    memcpy(exact, v, n);
    xd_status s = xd_tok_open_json(&t, exact, n, &e);
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
    static const char *const names[] = { "llama", "gemma" };
    (void)state;
    for (int k = 0; k < 2; k++) {
        char     path[128], *f;
        size_t   len;
        uint64_t h = xd_hash_text(names[k]);
        snprintf(path, sizeof path, GOLDEN_LM "%s/tokenizer.json", names[k]);
        assert_int_equal(xd_file_read(path, MAX_FILE, &f, &len, NULL), XD_OK);
        assert_int_equal(try_json(f, len), 1);
        for (size_t at = 0; at + 2 < len; at += at < 100 ? 1 : 61)
            assert_false(try_json(f, at));
        for (int i = 0; i < 800; i++) {
            size_t at = 1 + xd_hash_mix(h, (uint64_t)i) % (len - 1);
            char   was = f[at];
            f[at] = (char)(xd_hash_mix(h, (uint64_t)i + 1000000) & 0xff);
            try_json(f, len);
            f[at] = was;
        }
        free(f);
    }
}

/* Cut and flipped bytes of a SentencePiece model. */
static void broken_model(void **state)
{
    char    *f, *own;
    size_t   len;
    uint64_t h = xd_hash_text("tokenizer.model");
    (void)state;
    assert_int_equal(
        xd_file_read(GOLDEN_LM "gemma_model/tokenizer.model", MAX_FILE, &f, &len, NULL), XD_OK);
    assert_int_equal(scratch_open(), 0);
    config("{\"tokenizer_class\":\"GemmaTokenizer\"}");
    assert_non_null(own = malloc(len));
    for (int i = 0; i < 200; i++) {
        size_t  n = i % 2 ? len : xd_hash_mix(h, (uint64_t)i) % len;
        xd_tok *t = NULL;
        xd_err  e = { 0 };
        memcpy(own, f, len);
        if (i % 2)
            own[xd_hash_mix(h, (uint64_t)i) % len] ^= (char)(1 << i % 7);
        scratch_put("tokenizer.model", own, n);
        assert_true(xd_tok_open(&t, scratch, &e) == XD_OK || strlen(e.msg) > 10);
        xd_tok_close(&t);
    }
    scratch_close();
    free(own);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ids),     cmocka_unit_test(long_words),
        cmocka_unit_test(special_first), cmocka_unit_test(framed_ids),
        cmocka_unit_test(framed_text),   cmocka_unit_test(without_padding),
        cmocka_unit_test(doubts),        cmocka_unit_test(directories),
        cmocka_unit_test(wrong_model),   cmocka_unit_test(sentences),
        cmocka_unit_test(escapes),       cmocka_unit_test(broken),
        cmocka_unit_test(broken_model),
    };
    return cmocka_run_group_tests(tests, read_lm_texts, forget_prompts);
}
