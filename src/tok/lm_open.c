/* lm_open.c - opens tokenizers of language models: selects the files of a directory, and reads the
 * special tokens and the tokens that are added before and after a text.
 *
 * The rules are those of transformers 5: a tokenizer.json contains all rules. Without a
 * tokenizer.json, vocab.json and merges.txt are used with the rules of Qwen2Tokenizer, and
 * tokenizer.model with the rules of GemmaTokenizer. */
#include "tok/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* ---- tokenizer.json ------------------------------------------------------------------------- */

xd_status xd_lm_json_parse(xd_lm_json *j, const char *text, size_t len, const char *what, xd_err *e)
{
    xd_status s = xd_skim_read(&j->skim, text, len, e);
    if (s == XD_OK)
        s = xd_json_parse(&j->rules, j->skim.rest.p ? j->skim.rest.p : "", j->skim.rest.len, what,
                          e);
    return s;
}

xd_status xd_lm_json_read(xd_lm_json *j, const char *path, xd_err *e)
{
    xd_status s = xd_file_read(path, XD_TOK_FILE_MAX, &j->text, &j->len, e);
    return s == XD_OK ? xd_lm_json_parse(j, j->text, j->len, path, e) : s;
}

void xd_lm_json_free(xd_lm_json *j)
{
    xd_json_free(&j->rules);
    xd_bytes_free(&j->skim.rest);
    free(j->text);
    *j = (xd_lm_json){ 0 };
}

/* Refuses CLIP's tokenizers: their pieces end in "</w>", and their early files have no
 * pre-tokenizer. */
int xd_lm_json_fits(const xd_json *rules)
{
    const xd_json *model = xd_json_get(rules, "model");
    const char    *type = xd_json_text(xd_json_get(model, "type"));
    const char    *end = xd_json_text(xd_json_get(model, "end_of_word_suffix"));
    if (type ? strcmp(type, "BPE") != 0 : !xd_json_get(model, "merges"))
        return 0;
    return !(end && *end) && (!xd_json_null(xd_json_get(rules, "pre_tokenizer")) ||
                              xd_json_flag(model, "byte_fallback", 0));
}

/* ---- tokens around a text ------------------------------------------------------------------- */

static int put_ids(xd_ids *to, const xd_json *ids, int64_t limit)
{
    double v;
    for (const xd_json *i = xd_json_first(ids); i; i = xd_json_next(i)) {
        if (!xd_json_number(i, &v) || !(v >= 0 && v < (double)limit) || v != (double)(int32_t)v)
            return 0;
        xd_ids_add(to, (int32_t)v);
    }
    return ids != NULL;
}

/* Adds the special tokens `head` before, and `tail` after, the special tokens that t already puts
 * around a text. */
static void wrap(xd_tok *t, const xd_ids *head, const xd_ids *tail)
{
    xd_ids all = { 0 };
    for (int64_t i = 0; i < head->n; i++)
        xd_ids_add(&all, head->p[i]);
    for (int64_t i = 0; i < t->head.n; i++)
        xd_ids_add(&all, t->head.p[i]);
    for (int64_t i = 0; i < tail->n; i++)
        xd_ids_add(&t->tail, tail->p[i]);
    free(t->head.p);
    t->head = all;
}

/* Reads the template for one text from TemplateProcessing: the special tokens before the entry
 * "Sequence", which stands for the text, and those after it. */
static xd_status read_template(xd_tok *t, const xd_json *j, const char *what, xd_err *e)
{
    const xd_json *known = xd_json_get(j, "special_tokens");
    xd_ids         side[2] = { { 0 }, { 0 } };
    int            behind = 0, good = 1;
    for (const xd_json *i = xd_json_first(xd_json_get(j, "single")); i && good;
         i = xd_json_next(i)) {
        const xd_json *token = xd_json_get(i, "SpecialToken");
        const char    *id = xd_json_text(xd_json_get(token, "id"));
        if (token)
            good = id &&
                   put_ids(&side[behind], xd_json_get(xd_json_get(known, id), "ids"), t->next);
        else
            good = xd_json_get(i, "Sequence") && !behind++;
    }
    good = good && behind == 1;
    if (good)
        wrap(t, &side[0], &side[1]);
    free(side[0].p);
    free(side[1].p);
    return good ? XD_OK
                : xd_fail(e, XD_EFORMAT,
                          "%s: its post_processor adds tokens that it does "
                          "not define",
                          what);
}

static xd_status read_post(xd_tok *t, const xd_json *j, const char *what, xd_err *e)
{
    const char *type = xd_json_text(xd_json_get(j, "type"));
    xd_status   s = XD_OK;
    if (xd_json_null(j) || (type && !strcmp(type, "ByteLevel")))
        /* As a post-processor, ByteLevel changes only character offsets, not ids. */
        return XD_OK;
    if (type && !strcmp(type, "TemplateProcessing"))
        return read_template(t, j, what, e);
    if (!type || strcmp(type, "Sequence"))
        return xd_fail(e, XD_EUNSUPPORTED, "%s: its post_processor %s is not supported", what,
                       type ? type : "nameless");
    for (const xd_json *i = xd_json_first(xd_json_get(j, "processors")); i && s == XD_OK;
         i = xd_json_next(i))
        s = read_post(t, i, what, e);
    return s;
}

/* If there is no tokenizer.json, adds the special tokens around a text for which the config sets
 * add_bos_token and add_eos_token. */
static void post_of_config(xd_tok *t, const xd_json *cfg, xd_lm_class named)
{
    if (xd_json_flag(cfg, "add_bos_token", named == XD_LM_GEMMA) && t->begin >= 0)
        xd_ids_add(&t->head, t->begin);
    if (xd_json_flag(cfg, "add_eos_token", 0) && t->end >= 0)
        xd_ids_add(&t->tail, t->end);
}

/* ---- special tokens ------------------------------------------------------------------------- */

static const char *const keys[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token" };
enum { KEYS = sizeof keys / sizeof *keys };

static const char *usual(xd_lm_class named, int key)
{
    static const char *const names[][KEYS] = {
        [XD_LM_QWEN] = { NULL, "<|endoftext|>", "<|endoftext|>", NULL, "<|endoftext|>" },
        [XD_LM_GEMMA] = { "<bos>", "<eos>", "<unk>", NULL, "<pad>", NULL, "<mask>" },
        [XD_LM_OTHER] = { NULL },
    };
    return names[named][key];
}

/* Returns the special token of a key such as "bos_token", which is read from
 * special_tokens_map.json or the config, or is the default of the tokenizer class. */
static const xd_json *named_token(const xd_special_files *f, int key, const char **text)
{
    int            whole = xd_json_get(f->cfg, "added_tokens_decoder") != NULL;
    const xd_json *j = whole ? NULL : xd_json_get(f->map, keys[key]);
    j = j ? j : xd_json_get(f->cfg, keys[key]);
    *text = xd_json_text(j) ? xd_json_text(j) : xd_json_text(xd_json_get(j, "content"));
    if (!j)
        *text = usual(f->named, key);
    return j;
}

/* One added token's id, and its entry in added_tokens_decoder or added_tokens.json. */
typedef struct member {
    const xd_json *j;
    double         id;
} member;

static int by_id(const void *x, const void *y)
{
    const member *a = x, *b = y;
    return (a->id > b->id) - (a->id < b->id);
}

/* Returns the JSON list of the additional special tokens, which is in tokenizer_config.json or in
 * special_tokens_map.json. */
static const xd_json *further(const xd_special_files *f)
{
    const xd_json *list = xd_json_get(f->cfg, "extra_special_tokens");
    if (!xd_json_size(list))
        list = xd_json_get(f->cfg, "additional_special_tokens");
    return list ? list : xd_json_get(f->map, "additional_special_tokens");
}

static int is_special(const xd_special_files *f, const char *name)
{
    const char *text;
    for (int i = 0; i < KEYS; i++) {
        named_token(f, i, &text);
        if (text && !strcmp(text, name))
            return 1;
    }
    for (const xd_json *i = xd_json_first(further(f)); i; i = xd_json_next(i)) {
        text = xd_json_text(i) ? xd_json_text(i) : xd_json_text(xd_json_get(i, "content"));
        if (text && !strcmp(text, name))
            return 1;
    }
    return 0;
}

/* Adds the added tokens that are listed in the config's added_tokens_decoder ({id: token}) or in
 * added_tokens.json ({name: id}). */
static xd_status add_members(xd_tok *t, const xd_special_files *f, xd_err *e)
{
    const xd_json *list = xd_json_get(f->cfg, "added_tokens_decoder");
    int            decoder = list != NULL, n = 0;
    list = decoder ? list : f->old;
    member   *m = malloc(((size_t)xd_json_size(list) + 1) * sizeof *m);
    xd_status s = m ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for added tokens");
    for (const xd_json *i = m ? xd_json_first(list) : NULL; i; i = xd_json_next(i)) {
        m[n] = (member){ i, decoder && xd_json_key(i) ? strtod(xd_json_key(i), NULL) : 0 };
        if (!decoder)
            xd_json_number(i, &m[n].id);
        n += xd_json_key(i) != NULL;
    }
    if (m)
        qsort(m, (size_t)n, sizeof *m, by_id);
    for (int i = 0; i < n && s == XD_OK; i++) {
        const char    *name = xd_json_key(m[i].j);
        xd_added_flags flags = { .normalized = !decoder && !is_special(f, name) };
        s = decoder ? xd_added_json(t, m[i].j, 0, e) : xd_added_add(t, name, flags, e);
    }
    free(m);
    return s;
}

/* Adds the control pieces and the user-defined pieces of a tokenizer.model to the added tokens. */
static xd_status add_pieces(xd_tok *t, const xd_vocab *v, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; v && i < v->n && s == XD_OK; i++) {
        const xd_piece *p = &v->p[i];
        char            name[XD_PIECE_MAX + 1];
        if (p->type != XD_PIECE_CONTROL && p->type != XD_PIECE_USER)
            continue;
        memcpy(name, v->text.p + p->at, p->len);
        name[p->len] = 0;
        s = xd_added_add(t, name, (xd_added_flags){ 0 }, e);
    }
    return s;
}

static xd_status add_listed(xd_tok *t, const xd_json *list, int special, xd_err *e)
{
    xd_status s = XD_OK;
    for (const xd_json *i = xd_json_first(list); i && s == XD_OK; i = xd_json_next(i))
        s = xd_added_json(t, i, special, e);
    return s;
}

static xd_status add_special(xd_tok *t, const xd_special_files *f, const xd_vocab *pieces,
                             xd_err *e)
{
    const char *text;
    xd_status   s = add_listed(t, xd_json_get(f->tj, "added_tokens"), 0, e);
    if (s == XD_OK)
        s = add_members(t, f, e);
    for (int i = 0; i < KEYS && s == XD_OK; i++) {
        const xd_json *j = named_token(f, i, &text);
        if (text)
            s = j ? xd_added_json(t, j, 1, e) : xd_added_add(t, text, (xd_added_flags){ 0 }, e);
    }
    if (s == XD_OK)
        s = add_pieces(t, pieces, e);
    return s == XD_OK ? add_listed(t, further(f), 1, e) : s;
}

static int32_t named_id(const xd_tok *t, const xd_special_files *f, int key)
{
    const char *text;
    named_token(f, key, &text);
    return text ? xd_added_id(t, text) : -1;
}

/* Returns 1 if padding or truncation (as `key` selects) is on the left side. The side follows from
 * the config, from tokenizer.json, or from the tokenizer class. */
static int is_left(const xd_special_files *f, const char *key, const char *inner, int otherwise)
{
    const char *side = xd_json_text(xd_json_get(f->cfg, key));
    const char *file = xd_json_text(xd_json_get(xd_json_get(f->tj, inner), "direction"));
    return side ? !strcmp(side, "left") : file ? !strcmp(file, "Left") : otherwise;
}

static void read_config(xd_tok *t, const xd_special_files *f)
{
    const char *name = xd_json_text(xd_json_get(f->cfg, "tokenizer_class"));
    int         left = f->named == XD_LM_GEMMA || (name && !strncmp(name, "Llama", 5));
    double      max;
    t->begin = named_id(t, f, 0);
    t->end = named_id(t, f, 1);
    t->pad = named_id(t, f, 4);
    t->pad_left = is_left(f, "padding_side", "padding", left);
    t->cut_left = is_left(f, "truncation_side", "truncation", 0);
    if (xd_json_number(xd_json_get(f->cfg, "model_max_length"), &max) && max >= 1 && max < 1e9)
        t->max = (int64_t)max;
}

xd_status xd_lm_read(xd_tok *t, const xd_lm_files *b, const xd_special_files *f, xd_err *e)
{
    xd_lm_files from = *b;
    const char *what = b->bpe.vocab_name;
    from.named = f->named;
    named_token(f, 2, &from.unknown);
    xd_status s = xd_lm_open(&t->lm, &from, e);
    if (s != XD_OK)
        return s;
    t->next = xd_lm_pieces(t->lm)->top;
    s = add_special(t, f, b->bpe.pieces, e);
    if (s != XD_OK)
        return s;
    read_config(t, f);
    if (b->rules)
        s = read_post(t, xd_json_get(b->rules, "post_processor"), what, e);
    else
        post_of_config(t, f->cfg, f->named);
    if (s == XD_OK && (t->head.failed || t->tail.failed))
        s = xd_fail(e, XD_ENOMEM, "no memory for special tokens");
    return s == XD_OK ? xd_added_sort(t, e) : s;
}

/* ---- a directory ---------------------------------------------------------------------------- */

typedef xd_status open_files(xd_tok **t, const char *one, const char *two, xd_special_files *f,
                             xd_err *e);

static xd_status open_json(xd_tok **t, const char *path, const char *two, xd_special_files *f,
                           xd_err *e)
{
    xd_lm_json own = { 0 };
    xd_status  s = f->json ? XD_OK : xd_lm_json_read(&own, path, e);
    (void)two;
    if (s == XD_OK)
        s = xd_lm_open_json(t, f->json ? f->json : &own, f, path, e);
    xd_lm_json_free(&own);
    return s;
}

static xd_status open_two(xd_tok **t, const char *vocab, const char *merges, xd_special_files *f,
                          xd_err *e)
{
    xd_lm_files from = { .bpe = { .vocab_name = vocab, .merges_name = merges } };
    char       *text[2] = { NULL, NULL };
    size_t      len = 0;
    if (f->named == XD_LM_GEMMA)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s is for a GemmaTokenizer, which also needs "
                       "tokenizer.json or tokenizer.model in its folder",
                       vocab);
    f->named = XD_LM_QWEN;
    xd_status s = xd_file_read(vocab, XD_TOK_FILE_MAX, &text[0], &len, e);
    from.bpe.bytes = (xd_slice){ text[0], len };
    if (s == XD_OK)
        s = xd_file_read(merges, XD_TOK_FILE_MAX, &text[1], &from.bpe.len, e);
    from.bpe.merges = text[1];
    if (s == XD_OK)
        s = xd_tok_open_lm(t, &from, f, e);
    free(text[0]);
    free(text[1]);
    return s;
}

static xd_status open_pieces(xd_tok **t, const char *path, const char *two, xd_special_files *f,
                             xd_err *e)
{
    xd_vocab    v = { 0 };
    xd_lm_files from = { .bpe = { .vocab_name = path, .merges_name = path, .pieces = &v } };
    char       *data = NULL;
    size_t      len = 0;
    (void)two;
    if (f->named != XD_LM_GEMMA)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s without tokenizer.json is supported only for a "
                       "GemmaTokenizer; add tokenizer.json to its folder",
                       path);
    xd_status s = xd_file_read(path, XD_TOK_FILE_MAX, &data, &len, e);
    if (s == XD_OK)
        s = xd_vocab_spiece(&v, data, len, XD_SPM_BPE, path, e);
    if (s == XD_OK)
        s = xd_tok_open_lm(t, &from, f, e);
    free(data);
    xd_vocab_free(&v);
    return s;
}

static xd_status with_paths(open_files *open, xd_tok **t, const char *dir, const char *one,
                            const char *two, xd_special_files *f, xd_err *e)
{
    char     *a = xd_path_join(dir, one), *b = xd_path_join(dir, two);
    xd_status s = a && b ? open(t, a, b, f, e) : xd_fail(e, XD_ENOMEM, "no memory for a path");
    free(a);
    free(b);
    return s;
}

xd_status xd_lm_open_dir(xd_tok **t, const char *dir, xd_special_files *f, xd_err *e)
{
    int vocab = xd_tok_has(dir, "vocab.json"), merges = xd_tok_has(dir, "merges.txt");
    *t = NULL;
    if (xd_tok_has(dir, "tokenizer.json"))
        return with_paths(open_json, t, dir, "tokenizer.json", "", f, e);
    if (vocab && merges)
        return with_paths(open_two, t, dir, "vocab.json", "merges.txt", f, e);
    if (xd_tok_has(dir, "tokenizer.model"))
        return with_paths(open_pieces, t, dir, "tokenizer.model", "", f, e);
    if (vocab || merges)
        return xd_fail(e, XD_EIO, "%s has %s, but neither %s nor tokenizer.json", dir,
                       vocab ? "vocab.json" : "merges.txt", vocab ? "merges.txt" : "vocab.json");
    return xd_fail(e, XD_EIO,
                   "%s has no tokenizer.json%s; copy the tokenizer files of the "
                   "published model there",
                   dir,
                   xd_tok_has(dir, "tekken.json") ? ", and its tekken.json is not supported" : "");
}

xd_status xd_lm_open_json(xd_tok **t, const xd_lm_json *j, xd_special_files *f, const char *what,
                          xd_err *e)
{
    const char *type = xd_json_text(xd_json_get(xd_json_get(j->rules, "model"), "type"));
    xd_lm_files from = { .bpe = { .vocab_name = what,
                                  .merges_name = what,
                                  .bytes = j->skim.vocab,
                                  .pairs = j->skim.merges },
                         .rules = j->rules };
    *t = NULL;
    if (type && strcmp(type, "BPE"))
        return xd_fail(e, XD_EUNSUPPORTED, "%s holds a %s model, but a language model needs BPE",
                       what, type);
    f->tj = j->rules;
    return xd_tok_open_lm(t, &from, f, e);
}
