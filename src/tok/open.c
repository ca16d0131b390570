/* open.c - opens tokenizers: detects which kind of tokenizer a directory contains, and reads the
 * files of that kind. */
#include "tok/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* ---- T5 ------------------------------------------------------------------------------------- */

/* Passes a T5 vocabulary, which must have been read, to SentencePiece, and prepares the search for
 * added tokens. */
static xd_status finish_open(xd_tok *t, const char *what, xd_err *e)
{
    xd_bytes_buf model = { 0 };
    char         why[256] = "";
    if (t->v.n < 3)
        return xd_fail(e, XD_EFORMAT, "%s has %d pieces; it needs at least the three special ones",
                       what, t->v.n);
    if (xd_charsmap_open(&t->map, t->v.map.p, t->v.map.len, what, e) != XD_OK)
        return XD_EFORMAT;
    xd_vocab_model(&t->v, &model);
    if (!model.failed)
        t->spm = xd_spm_open(model.p, model.len, why, sizeof why);
    free(model.p);
    if (model.failed)
        return xd_fail(e, XD_ENOMEM, "no memory for the model in %s", what);
    if (!t->spm || xd_spm_size(t->spm) != t->v.n)
        return xd_fail(e, XD_EFORMAT, "SentencePiece cannot load %s: %s", what,
                       why[0] ? why : "pieces are missing");
    t->unknown = t->v.p[0].score;
    for (int i = 0; i < t->v.n; i++) {
        const xd_piece *p = &t->v.p[i];
        t->unknown = p->score < t->unknown ? p->score : t->unknown;
        t->longest = p->len > t->longest ? p->len : t->longest;
        t->lens[p->len] = 1;
    }
    t->unknown -= 10;
    t->next = t->v.n;
    return XD_OK;
}

/* After the pieces of a spiece.model, adds T5's sentinel tokens <extra_id_N>, the highest N
 * first. */
static xd_status add_sentinels(xd_vocab *v, const xd_json *cfg, const char *what, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = xd_special_extra_ids(cfg, XD_TOK_T5) - 1; i >= 0 && s == XD_OK; i--) {
        char name[32];
        int  n = snprintf(name, sizeof name, "<extra_id_%d>", i);
        s = xd_vocab_add(v, name, (size_t)n, 0, XD_PIECE_NORMAL, what, e);
    }
    return s;
}

typedef struct t5_files {
    const char *data;
    size_t      len;
    const char *name;
} t5_files;

/* Reads a T5 tokenizer from a spiece.model in memory or, if there is none, from tokenizer.json. */
static xd_status read_t5(xd_tok *t, const t5_files *p, const xd_special_files *f, xd_err *e)
{
    xd_status s = p->data ? xd_vocab_spiece(&t->v, p->data, p->len, XD_SPM_UNIGRAM, p->name, e)
                          : xd_vocab_json(&t->v, f->tj, p->name, e);
    if (s == XD_OK && p->data)
        s = add_sentinels(&t->v, f->cfg, p->name, e);
    return s == XD_OK ? finish_open(t, p->name, e) : s;
}

/* ---- CLIP ----------------------------------------------------------------------------------- */

static xd_status read_clip(xd_tok *t, const xd_bpe_files *b, const xd_special_files *f, xd_err *e)
{
    xd_status s = xd_clip_open(&t->clip, b, e);
    if (s != XD_OK)
        return s;
    t->next = xd_bpe_pieces(xd_clip_bpe(t->clip))->top;
    return xd_bpe_unknown(xd_clip_bpe(t->clip), xd_special_name(f, "unk_token"), b->vocab_name, e);
}

static xd_bpe_files bpe_of_json(const xd_json *tj, const char *what)
{
    const xd_json *model = xd_json_get(tj, "model");
    return (xd_bpe_files){ .vocab = xd_json_get(model, "vocab"),
                           .vocab_name = what,
                           .list = xd_json_get(model, "merges"),
                           .merges_name = what };
}

/* ---- BERT ----------------------------------------------------------------------------------- */

static xd_status read_bert(xd_tok *t, const xd_bert_files *b, xd_err *e)
{
    xd_status s = xd_bert_open(&t->bert, b, e);
    if (s == XD_OK)
        t->next = xd_bert_pieces(t->bert)->top;
    return s;
}

/* Checks the ids of BERT's special tokens. An id beyond the vocabulary would have no embedding; if
 * a line of vocab.txt were missing, all later ids would be wrong. */
static xd_status check_bert(xd_tok *t, const xd_special_files *f, const char *what, xd_err *e)
{
    static const char *const keys[] = { "unk_token", "cls_token", "sep_token", "pad_token" };
    for (int i = t->pad < 0 ? 2 : 3; i >= 0; i--) {
        const char *name = xd_special_name(f, keys[i]);
        int32_t     id = xd_tok_find(t, name, strlen(name));
        if (id < 0)
            return xd_fail(e, XD_EFORMAT, "%s has no %.80s, the tokenizer's %s", what, name,
                           keys[i]);
        xd_bert_unknown(t->bert, id); /* the loop ends with unk_token */
    }
    const xd_json *j = xd_json_first(xd_json_get(f->cfg, "added_tokens_decoder"));
    for (; j; j = xd_json_next(j)) {
        const char *name = xd_json_text(xd_json_get(j, "content"));
        int32_t     id = name ? xd_tok_find(t, name, strlen(name)) : -1;
        if (id >= 0 && id != strtol(xd_json_key(j), NULL, 10))
            return xd_fail(e, XD_EFORMAT,
                           "%s: the id of %.80s is %d, but in tokenizer_config.json "
                           "it is %.20s: entries are missing, or there are too many",
                           what, name, id, xd_json_key(j));
    }
    return XD_OK;
}

/* ---- all, from memory ----------------------------------------------------------------------- */

/* The files from which a tokenizer is read. Only the member for the tokenizer's kind is used. */
typedef struct sources {
    t5_files      t5;
    xd_bpe_files  clip;
    xd_bert_files bert;
    xd_lm_files   lm;
} sources;

/* Reads a T5, ByT5, CLIP or BERT tokenizer. */
static xd_status read_other(xd_tok *t, const sources *from, const xd_special_files *f, xd_err *e)
{
    xd_status s = XD_OK;
    if (f->kind == XD_TOK_BYTES)
        xd_tok_open_bytes(t);
    else if (f->kind == XD_TOK_T5)
        s = read_t5(t, &from->t5, f, e);
    else
        s = f->kind == XD_TOK_CLIP ? read_clip(t, &from->clip, f, e) : read_bert(t, &from->bert, e);
    if (s == XD_OK)
        s = xd_special_read(t, f, e);
    if (s == XD_OK && f->kind == XD_TOK_BERT)
        s = check_bert(t, f, from->bert.name, e);
    if (s == XD_OK && t->begin >= 0)
        xd_ids_add(&t->head, t->begin);
    if (s == XD_OK)
        xd_ids_add(&t->tail, t->end);
    return s == XD_OK && (t->head.failed || t->tail.failed)
               ? xd_fail(e, XD_ENOMEM, "no memory for special tokens")
               : s;
}

static xd_status open_with(xd_tok **out, const sources *from, const xd_special_files *f, xd_err *e)
{
    xd_tok *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return xd_fail(e, XD_ENOMEM, "no memory for a tokenizer");
    xd_status s = f->kind == XD_TOK_LM ? xd_lm_read(t, &from->lm, f, e) : read_other(t, from, f, e);
    if (s == XD_OK)
        *out = t;
    else
        xd_tok_close(&t);
    return s;
}

xd_status xd_tok_open_lm(xd_tok **t, const xd_lm_files *l, const xd_special_files *f, xd_err *e)
{
    sources          from = { .lm = *l };
    xd_special_files own = *f;
    own.kind = XD_TOK_LM;
    return open_with(t, &from, &own, e);
}

xd_status xd_tok_open_spiece(xd_tok **t, const void *data, size_t len, xd_err *e)
{
    xd_special_files f = { .spiece = 1 };
    sources          from = { .t5 = { data ? data : "", len, "the SentencePiece model" } };
    return open_with(t, &from, &f, e);
}

/* Detects for which kind of tokenizer a tokenizer.json is. Early tokenizer.json files do not have
 * the key model.type. */
static xd_tok_kind kind_of_json(const xd_json *tj)
{
    const xd_json *model = xd_json_get(tj, "model");
    const char    *type = xd_json_text(xd_json_get(model, "type"));
    if (type ? !strcmp(type, "BPE") : xd_json_get(model, "merges") != NULL)
        return XD_TOK_CLIP;
    if (type ? !strcmp(type, "WordPiece") : xd_json_get(model, "max_input_chars_per_word") != NULL)
        return XD_TOK_BERT;
    return XD_TOK_T5;
}

/* Sets the files from which a tokenizer of this kind is read, if there is a tokenizer.json. If
 * `rules` is 1, BERT's rules are read from tokenizer.json, otherwise from the config. */
static xd_status sources_of_json(sources *from, const xd_json *tj, xd_tok_kind kind, int rules,
                                 const char *what, xd_err *e)
{
    *from = (sources){ .t5 = { .name = what },
                       .clip = bpe_of_json(tj, what),
                       .bert = { .vocab = xd_json_get(xd_json_get(tj, "model"), "vocab"),
                                 .name = what } };
    return kind == XD_TOK_BERT && rules ? xd_bert_rules_of_json(&from->bert.rules, tj, what, e)
                                        : XD_OK;
}

xd_status xd_tok_open_json(xd_tok **t, const char *text, size_t len, xd_err *e)
{
    const char *what = "tokenizer.json";
    xd_lm_json  lm = { 0 };
    xd_json    *j = NULL;
    *t = NULL;
    xd_status s = xd_lm_json_parse(&lm, text, len, what, e);
    int       fits = s == XD_OK && xd_lm_json_fits(lm.rules);
    if (fits) {
        xd_special_files f = { 0 };
        s = xd_lm_open_json(t, &lm, &f, what, e);
    } else if (s == XD_OK) {
        s = xd_json_parse(&j, text, len, what, e);
    }
    if (s == XD_OK && !fits) {
        xd_special_files f = { .tj = j,
                               .kind = kind_of_json(j),
                               .named_only = kind_of_json(j) == XD_TOK_BERT };
        sources          from;
        s = sources_of_json(&from, j, f.kind, 1, what, e);
        if (s == XD_OK)
            s = open_with(t, &from, &f, e);
    }
    xd_json_free(&j);
    xd_lm_json_free(&lm);
    return s;
}

xd_status xd_tok_open_bpe(xd_tok **t, const char *vocab, size_t nvocab, const char *merges,
                          size_t nmerges, xd_err *e)
{
    xd_json *j = NULL;
    *t = NULL;
    xd_status s = xd_json_parse(&j, vocab, nvocab, "vocab.json", e);
    if (s == XD_OK) {
        xd_special_files f = { .kind = XD_TOK_CLIP };
        sources          from = { .clip = { .vocab = j,
                                            .vocab_name = "vocab.json",
                                            .merges = merges,
                                            .len = nmerges,
                                            .merges_name = "merges.txt" } };
        s = open_with(t, &from, &f, e);
    }
    xd_json_free(&j);
    return s;
}

xd_status xd_tok_open_lines(xd_tok **t, const char *vocab, size_t len, xd_err *e)
{
    xd_special_files f = { .kind = XD_TOK_BERT };
    sources          from = { .bert = { .lines = vocab, .len = len, .name = "vocab.txt" } };
    xd_bert_rules_of_config(&from.bert.rules, NULL);
    return open_with(t, &from, &f, e);
}

/* ---- a directory ---------------------------------------------------------------------------- */

int xd_tok_has(const char *dir, const char *name)
{
    /* An array needs no malloc, whose failure would look like a missing file. */
    char path[4096];
    int  n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && (size_t)n < sizeof path && xd_file_exists(path);
}

/* Reads a JSON file of the tokenizer's directory. A missing file is not an error. */
static xd_status read_beside(xd_json **j, const char *dir, const char *name, xd_err *e)
{
    char     *path = xd_path_join(dir, name);
    xd_status s = XD_OK;
    *j = NULL;
    if (!path)
        return xd_fail(e, XD_ENOMEM, "no memory for a path");
    if (xd_file_exists(path))
        s = xd_json_read(j, path, e);
    free(path);
    return s;
}

/* The parsed small files of a tokenizer's directory, and its tokenizer.json, which is `tj` or, for
 * a language model, `lm`. */
typedef struct beside {
    xd_json   *cfg, *map, *old, *tj;
    xd_lm_json lm;
} beside;

static xd_status read_small(beside *f, const char *dir, xd_err *e)
{
    if (!xd_file_is_dir(dir))
        return xd_fail(e, XD_EIO,
                       xd_file_exists(dir) ? "%s is not a directory" : "%s does not exist", dir);
    xd_status s = read_beside(&f->cfg, dir, "tokenizer_config.json", e);
    if (s == XD_OK)
        s = read_beside(&f->map, dir, "special_tokens_map.json", e);
    if (s == XD_OK)
        s = read_beside(&f->old, dir, "added_tokens.json", e);
    return s;
}

static void free_beside(beside *f)
{
    xd_json_free(&f->cfg);
    xd_json_free(&f->map);
    xd_json_free(&f->old);
    xd_json_free(&f->tj);
    xd_lm_json_free(&f->lm);
}

/* Reads tokenizer.json, which is large, only in two cases: if its vocabulary is needed, or if no
 * other file declares the added tokens. */
static xd_status read_large(beside *b, const char *dir, int needed, xd_err *e)
{
    if (b->tj || (!needed && xd_json_get(b->cfg, "added_tokens_decoder")))
        return XD_OK;
    return read_beside(&b->tj, dir, "tokenizer.json", e);
}

static xd_special_files special_of(const beside *b, xd_tok_kind kind)
{
    return (
        xd_special_files){ .cfg = b->cfg, .map = b->map, .old = b->old, .tj = b->tj, .kind = kind };
}

static xd_status open_t5(xd_tok **t, const char *dir, beside *b, xd_err *e)
{
    int       spiece = xd_tok_has(dir, "spiece.model");
    char     *path = xd_path_join(dir, spiece ? "spiece.model" : "tokenizer.json"), *data = NULL;
    size_t    len = 0;
    xd_status s = path ? read_large(b, dir, !spiece, e) : XD_ENOMEM;
    if (!path)
        return xd_fail(e, XD_ENOMEM, "no memory for a path");
    if (s == XD_OK && spiece)
        s = xd_file_read(path, XD_TOK_FILE_MAX, &data, &len, e);
    else if (s == XD_OK && !b->tj)
        s = xd_fail(e, XD_EIO, "%s has neither spiece.model nor tokenizer.json", dir);
    if (s == XD_OK) {
        xd_special_files f = special_of(b, XD_TOK_T5);
        sources          from = { .t5 = { data, len, path } };
        f.spiece = spiece;
        s = open_with(t, &from, &f, e);
    }
    free(data);
    free(path);
    return s;
}

static xd_status clip_files(xd_tok **t, const char *vpath, const char *mpath,
                            const xd_special_files *f, xd_err *e)
{
    sources   from = { .clip = { .vocab_name = vpath, .merges_name = mpath } };
    xd_json  *vocab = NULL;
    char     *merges = NULL;
    xd_status s = xd_json_read(&vocab, vpath, e);
    if (s == XD_OK)
        s = xd_file_read(mpath, XD_TOK_FILE_MAX, &merges, &from.clip.len, e);
    if (s == XD_OK) {
        from.clip.vocab = vocab;
        from.clip.merges = merges;
        s = open_with(t, &from, f, e);
    }
    xd_json_free(&vocab);
    free(merges);
    return s;
}

static xd_status open_clip(xd_tok **t, const char *dir, beside *b, xd_err *e)
{
    int       vocab = xd_tok_has(dir, "vocab.json"), merges = xd_tok_has(dir, "merges.txt"),
              two = vocab && merges;
    char     *vpath = xd_path_join(dir, two ? "vocab.json" : "tokenizer.json");
    char     *mpath = xd_path_join(dir, "merges.txt");
    xd_status s = vpath && mpath ? read_large(b, dir, !two, e)
                                 : xd_fail(e, XD_ENOMEM, "no memory for a path");
    if (s == XD_OK) {
        xd_special_files f = special_of(b, XD_TOK_CLIP);
        if (two) {
            s = clip_files(t, vpath, mpath, &f, e);
        } else if (b->tj) {
            sources from;
            sources_of_json(&from, b->tj, XD_TOK_CLIP, 0, vpath, e);
            s = open_with(t, &from, &f, e);
        } else if (vocab || merges) {
            s = xd_fail(e, XD_EIO, "%s has %s, but no %s", dir, vocab ? "vocab.json" : "merges.txt",
                        vocab ? "merges.txt" : "vocab.json");
        } else {
            s = xd_fail(e, XD_EIO, "%s has neither vocab.json and merges.txt nor tokenizer.json",
                        dir);
        }
    }
    free(vpath);
    free(mpath);
    return s;
}

/* Opens a BERT tokenizer from vocab.txt or tokenizer.json. From tokenizer.json, only the vocabulary
 * is used if the config names the class BertTokenizer; if the config names no class, the rules are
 * used, too. */
static xd_status open_bert(xd_tok **t, const char *dir, beside *b, int named, xd_err *e)
{
    int       lines = xd_tok_has(dir, "vocab.txt") && (named || !xd_tok_has(dir, "tokenizer.json"));
    char     *path = xd_path_join(dir, lines ? "vocab.txt" : "tokenizer.json"), *data = NULL;
    sources   from = { 0 };
    xd_status s = path ? read_large(b, dir, !lines, e)
                       : xd_fail(e, XD_ENOMEM, "no memory for a path");
    if (s == XD_OK && lines) {
        from.bert.name = path;
        s = xd_file_read(path, XD_TOK_FILE_MAX, &data, &from.bert.len, e);
        from.bert.lines = data;
    } else if (s == XD_OK && b->tj) {
        s = sources_of_json(&from, b->tj, XD_TOK_BERT, !named, path, e);
    } else if (s == XD_OK) {
        s = xd_fail(e, XD_EIO, "%s has neither vocab.txt nor tokenizer.json", dir);
    }
    if (s == XD_OK) {
        xd_special_files f = special_of(b, XD_TOK_BERT);
        f.named_only = !lines && !named;
        if (!f.named_only)
            xd_bert_rules_of_config(&from.bert.rules, b->cfg);
        s = open_with(t, &from, &f, e);
    }
    free(data);
    free(path);
    return s;
}

/* ---- which kind ----------------------------------------------------------------------------- */

enum { OTHER = XD_TOK_KINDS };

static const struct {
    const char *name;
    int         kind;
    xd_lm_class named;
} classes[] = {
    { "T5Tokenizer", XD_TOK_T5, 0 },
    { "T5TokenizerFast", XD_TOK_T5, 0 },
    { "ByT5Tokenizer", XD_TOK_BYTES, 0 },
    { "CLIPTokenizer", XD_TOK_CLIP, 0 },
    { "CLIPTokenizerFast", XD_TOK_CLIP, 0 },
    { "BertTokenizer", XD_TOK_BERT, 0 },
    { "BertTokenizerFast", XD_TOK_BERT, 0 },
    { "Qwen2Tokenizer", XD_TOK_LM, XD_LM_QWEN },
    { "Qwen2TokenizerFast", XD_TOK_LM, XD_LM_QWEN },
    { "GemmaTokenizer", XD_TOK_LM, XD_LM_GEMMA },
    { "GemmaTokenizerFast", XD_TOK_LM, XD_LM_GEMMA },
    { "LlamaTokenizer", XD_TOK_LM, XD_LM_OTHER },
    { "LlamaTokenizerFast", XD_TOK_LM, XD_LM_OTHER },
};

/* Returns the kind of tokenizer to which a tokenizer class name belongs. For an unknown class name,
 * returns OTHER: the files of the directory then determine the kind. */
static int kind_of_class(const char *name, xd_lm_class *named)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (!strcmp(name, classes[i].name)) {
            *named = classes[i].named;
            return classes[i].kind;
        }
    return OTHER;
}

static int says_nothing(const char *name)
{
    return !name || !strcmp(name, "PreTrainedTokenizerFast") || !strcmp(name, "TokenizersBackend");
}

/* Returns 1 if the pieces in merges.txt have the suffix "</w>", as in CLIP's merges. */
static int has_ends(const char *dir)
{
    char  *path = xd_path_join(dir, "merges.txt"), *text = NULL;
    size_t len = 0;
    int    found = !path || xd_file_read(path, XD_TOK_FILE_MAX, &text, &len, NULL) != XD_OK || !len;
    for (size_t i = 0; i + 4 <= len && !found; i++)
        found = !memcmp(text + i, "</w>", 4);
    free(path);
    free(text);
    return found;
}

/* Returns 1 if the directory has a tokenizer.json of a language model. In this case, stores the
 * parsed tokenizer.json in b->lm. */
static int finds_lm(const char *dir, beside *b)
{
    char *path = xd_tok_has(dir, "tokenizer.json") ? xd_path_join(dir, "tokenizer.json") : NULL;
    int fits = path && xd_lm_json_read(&b->lm, path, NULL) == XD_OK && xd_lm_json_fits(b->lm.rules);
    if (!fits)
        xd_lm_json_free(&b->lm);
    free(path);
    return fits;
}

static xd_status kind_of_files(int *kind, const char *dir, beside *b, xd_err *e)
{
    xd_status s = XD_OK;
    if (xd_tok_has(dir, "spiece.model")) {
        *kind = XD_TOK_T5;
    } else if (xd_tok_has(dir, "vocab.json") || xd_tok_has(dir, "merges.txt")) {
        *kind = finds_lm(dir, b) || !has_ends(dir) ? XD_TOK_LM : XD_TOK_CLIP;
    } else if (xd_tok_has(dir, "vocab.txt")) {
        *kind = XD_TOK_BERT;
    } else if (finds_lm(dir, b) || xd_tok_has(dir, "tekken.json") ||
               (xd_tok_has(dir, "tokenizer.model") && !xd_tok_has(dir, "tokenizer.json"))) {
        *kind = XD_TOK_LM;
    } else {
        s = read_large(b, dir, 1, e);
        *kind = (int)kind_of_json(b->tj);
        if (s == XD_OK && !b->tj)
            s = xd_fail(e, XD_EIO,
                        "%s has none of spiece.model, vocab.json with merges.txt, "
                        "vocab.txt, tokenizer.json",
                        dir);
    }
    return s;
}

static xd_status open_dir(xd_tok **t, const char *dir, int kind, xd_err *e)
{
    beside      b = { 0 };
    xd_lm_class class = XD_LM_OTHER;
    int         named = 1;
    xd_status   s = read_small(&b, dir, e);
    *t = NULL;
    if (s == XD_OK && kind == OTHER) {
        const char *name = xd_json_text(xd_json_get(b.cfg, "tokenizer_class"));
        named = !says_nothing(name);
        if (named)
            kind = kind_of_class(name, &class);
        else
            s = kind_of_files(&kind, dir, &b, e);
        if (s == XD_OK && kind == OTHER)
            s = xd_fail(
                e, XD_EUNSUPPORTED,
                "%s has a %s, which is not supported; T5Tokenizer, "
                "ByT5Tokenizer, CLIPTokenizer, BertTokenizer, Qwen2Tokenizer, LlamaTokenizer and "
                "GemmaTokenizer are",
                dir, name);
    }
    if (s == XD_OK && kind == XD_TOK_LM) {
        xd_special_files f = special_of(&b, XD_TOK_LM);
        f.named = class;
        f.json = b.lm.rules ? &b.lm : NULL;
        s = xd_lm_open_dir(t, dir, &f, e);
    } else if (s == XD_OK && kind == XD_TOK_BYTES) {
        xd_special_files f = special_of(&b, XD_TOK_BYTES);
        s = open_with(t, &(sources){ 0 }, &f, e);
    } else if (s == XD_OK && kind == XD_TOK_BERT) {
        s = open_bert(t, dir, &b, named, e);
    } else if (s == XD_OK) {
        s = kind == XD_TOK_T5 ? open_t5(t, dir, &b, e) : open_clip(t, dir, &b, e);
    }
    free_beside(&b);
    return s;
}

xd_status xd_tok_open(xd_tok **t, const char *dir, xd_err *e)
{
    return open_dir(t, dir, OTHER, e);
}

xd_status xd_tok_open_t5(xd_tok **t, const char *dir, xd_err *e)
{
    return open_dir(t, dir, XD_TOK_T5, e);
}
