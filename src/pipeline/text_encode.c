/* text_encode.c - encodes prompts to embeddings.
 *
 * A model may have several text encoders. The model's recipe tells how the embedding of a prompt
 * combines their outputs: in separate rows, or concatenated along the features. Encoders are loaded
 * one after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/text_cache.h"
#include "pipeline/transformers.h"
#include "pipeline/yield.h"
#include "base/file.h"
#include "base/log.h"
#include "base/minmax.h"
#include "exec/host.h"
#include "exec/op.h"
#include "model/component.h"
#include "model/model.h"
#include "families/recipe.h"
#include "parallel/method.h"
#include "pipeline/arenas.h"
#include "pipeline/callbacks.h"
#include "pipeline/context.h"
#include "pipeline/encoder_images.h"
#include "pipeline/job.h"
#include "pipeline/prior.h"
#include "pipeline/prompt_images.h"
#include "pipeline/work.h"
#include "ranks/world.h"
#include "tok/emphasis.h"

static const xd_recipe *recipe_of(const xd_job *j)
{
    return j->ctx->model.recipe;
}

static int64_t width_of(const xd_job *j, int k)
{
    return xd_model_text_width(&j->ctx->model, k);
}

/* ---- computing token ids ------------------------------------------------------------------ */

/* Returns the max number of token ids of a prompt for encoder k, without those before the prompt
 * and those that only stand for images. */
static int64_t most_text(const xd_job *j, int k)
{
    const xd_text_use *u = &recipe_of(j)->text[k];
    return u->pad > 0 ? u->pad : u->most ? u->most : j->max_text;
}

/* Returns the max number of embedding rows that encoder k computes for a prompt, one for each token
 * id that is kept. */
static int64_t max_ids(const xd_job *j, int k)
{
    const xd_text_use *u = &recipe_of(j)->text[k];
    if (u->prior)
        return xd_prior_rows(j);
    if (!u->tokenizer)
        return xd_model_image_rows(&j->ctx->model, k);
    if (!u->image_every[0])
        return most_text(j, k) + xd_prompt_images_more_ids(j, k);
    return xd_max(most_text(j, k) - u->cut, 0) +
           xd_max(xd_prompt_image_rows(j, k, 0),
                  xd_job_has_negative(j) ? xd_prompt_image_rows(j, k, 1) : 0);
}

int64_t xd_prompts_most_ids(const xd_job *j, int k)
{
    const xd_text_use *u = &recipe_of(j)->text[k];
    return u->prior       ? xd_prior_image_rows(j)
           : u->tokenizer ? most_text(j, k) + xd_prompt_images_more_ids(j, k) + u->drop
                          : max_ids(j, k);
}

/* Returns how many of the first n token ids of a text that encoder k reads have rows in the
 * embedding. The rows of the prompt template or of the system prompt may be dropped. */
static int64_t kept(const xd_job *j, int k, const xd_token_ids *ids, int64_t n)
{
    const xd_text_use *u = &recipe_of(j)->text[k];
    if (u->image_every[0])
        return xd_max(n - xd_prompt_images_more_ids(j, k) - u->drop - u->cut, 0) + ids->images;
    return xd_max(n - u->drop - ids->dropped, 0);
}

int64_t xd_prompts_kept(const xd_job *j, int k, int64_t n, int negative)
{
    if (recipe_of(j)->text[k].prior)
        return negative ? 0 : xd_prior_rows(j);
    return kept(j, k, &(xd_token_ids){ .images = xd_prompt_image_rows(j, k, negative) }, n);
}

/* Returns how many of the embedding's rows of a text are those of images, beyond the row of one id
 * for each image that stands between text. */
static int64_t image_rows_of(const xd_job *j, int k, const xd_token_ids *ids)
{
    return recipe_of(j)->text[k].image_every[0] ? ids->images : xd_prompt_images_more_ids(j, k);
}

/* Returns the max number of token ids that encoder k reads of a text. A text in chunks is read
 * completely. */
static int64_t most_ids(const xd_job *j, int k, const xd_token_ids *ids)
{
    return ids->chunk ? ids->n : xd_prompts_most_ids(j, k) + ids->dropped;
}

/* A text has n token ids for encoder k. Returns the number of ids after padding. */
static int64_t padded(const xd_job *j, int k, const xd_token_ids *ids, int64_t n)
{
    int64_t most = most_ids(j, k, ids);
    int     pad = recipe_of(j)->text[k].pad;
    return pad == XD_PAD_NONE ? n : pad == XD_PAD_ONE && n < most ? n + 1 : most;
}

static xd_status pad_ids(int32_t **ids, int64_t *len, int64_t to, int32_t with, xd_err *e)
{
    with = with < 0 ? 0 : with;
    int32_t *p = realloc(*ids, (size_t)(to > *len ? to : *len) * sizeof *p + 1);
    if (!p)
        return xd_fail(e, XD_ENOMEM, "no memory for %lld token ids", (long long)to);
    *ids = p;
    for (; *len < to; ++*len)
        p[*len] = with;
    return XD_OK;
}

/* Moves the token ids of the text to the end of `ids`, which has space for n ids, and writes
 * `padding` ids with the value `with` before them. */
static void pad_before(int32_t *ids, int64_t n, int64_t padding, int32_t with)
{
    memmove(ids + padding, ids, (size_t)(n - padding) * sizeof *ids);
    for (int64_t i = 0; i < padding; i++)
        ids[i] = with;
}

/* Puts the system prompt before a prompt, for pipelines that have one. The prompt `plain` is freed;
 * the result is malloc'ed. */
static char *add_system(const xd_job *j, char *plain)
{
    const xd_recipe *p = recipe_of(j);
    const char      *own = j->r->texts.system_prompt;
    xd_text_buf      b = { 0 };
    if (!p->system || !plain)
        return plain;
    xd_buf_add(&b, "%s%s%s", own ? own : p->system, p->after_system, plain);
    free(plain);
    return b.failed ? NULL : b.p;
}

/* For pipelines that drop the rows of a text that the tokenizer counts, sets ids->dropped. All rows
 * of a system prompt are dropped except those of its first and its last token, and all rows of the
 * beginning of a template. */
static xd_status count_dropped(const xd_job *j, int k, xd_token_ids *ids, xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    const char     *own = j->r->texts.system_prompt, *text = own ? own : m->recipe->system;
    const char     *begin = m->recipe->text[k].drop_text;
    xd_token_ids    of = { 0 };
    if (!begin && (!m->recipe->drops_system || !*text))
        return XD_OK;
    text = begin ? begin : text;
    xd_status s = xd_tok_cut_plain(m->tok[k], text, strlen(text), INT32_MAX, begin != NULL, &of.v,
                                   &of.n, &of.uncut, e);
    free(of.v);
    ids->dropped = s == XD_OK ? xd_max(of.n - (begin ? 0 : 2), 0) : 0;
    return s;
}

static char *prepare_caption(const xd_job *j, int k, const char *text)
{
    const xd_recipe *p = recipe_of(j);
    if (p->text[k].quoted)
        return xd_caption_quoted(text);
    char *(*prepare)(const char *) = p->uncleaned && !j->r->texts.clean_caption ? p->uncleaned
                                                                                : p->caption;
    return prepare ? prepare(text) : strdup(text);
}

/* Sets ids->images and ids->cut of text i, before the image's token id is repeated. */
static void cut_frame(const xd_prompts *w, const xd_job *j, int i, int k, xd_token_ids *ids)
{
    const xd_text_use *u = &recipe_of(j)->text[k];
    int64_t            more = xd_prompt_images_more_ids(j, k), end;
    if (!u->image_every[0])
        return;
    end = xd_min(ids->uncut - u->tail, ids->n);
    ids->cut.start = xd_max(end - u->cut, u->drop) + more;
    ids->cut.n = end + more - ids->cut.start;
    ids->images = xd_prompt_image_rows(j, k, i >= w->prompts);
}

/* Refuses token ids that are not below the vocabulary size of encoder k. The tokenizer of another
 * model may return such ids. */
static xd_status check_ids(const xd_job *j, int k, const int32_t *ids, int64_t n, xd_err *e)
{
    const xd_model    *m = &j->ctx->model;
    const xd_text_use *u = &recipe_of(j)->text[k];
    int64_t            rows = xd_model_vocab(m, k), most = 0;
    for (int64_t i = 0; i < n; i++)
        most = xd_max(most, ids[i]);
    if (!rows || most < rows)
        return XD_OK;
    return xd_fail(e, XD_EFORMAT,
                   "the tokenizer %s/%s has the id %lld, but vocab_size in "
                   "%s/%s/config.json is %lld: use both folders of the same model",
                   m->dir, u->tokenizer, (long long)most, m->dir, u->folder, (long long)rows);
}

/* Returns the error of a failed tokenizer, after adding the name of the tokenizer's file to the
 * message. */
static xd_status fail_tokens(const xd_job *j, int k, xd_status s, xd_err *e)
{
    char *dir = s == XD_OK ? NULL
                           : xd_path_join(j->ctx->model.dir, recipe_of(j)->text[k].tokenizer);
    char *path = dir ? xd_path_join(dir, "tokenizer.json") : NULL;
    xd_fail_at(e, s, path);
    free(path);
    free(dir);
    return s;
}

/* For templates that truncation does not change, replaces the last ids of a truncated text by those
 * of the end of the template. */
static xd_status keep_end(const xd_job *j, int k, xd_token_ids *ids, xd_err *e)
{
    const xd_text_use *u = &recipe_of(j)->text[k];
    const char        *end = u->keeps_end ? strstr(u->frame, "{}") : NULL;
    int32_t           *v = NULL;
    int64_t            n, uncut;
    if (!end || ids->uncut <= ids->n)
        return XD_OK;
    end += strlen("{}");
    xd_status s = xd_tok_cut_plain(j->ctx->model.tok[k], end, strlen(end), 0, 1, &v, &n, &uncut, e);
    for (int64_t i = 1; s == XD_OK && i <= n && i <= ids->n; i++)
        ids->v[ids->n - i] = v[n - i];
    free(v);
    return s;
}

/* Returns 1 if parts of the prompts have weights. */
static int weighs(const xd_job *j)
{
    return recipe_of(j)->weighs && j->r->texts.prompt_weighting;
}

/* Tokenizes a prompt whose parts have weights, in chunks of the length that the encoder reads. */
static xd_status tokenize_weighted(xd_prompts *w, const xd_job *j, int i, int k, const char *text,
                                   xd_err *e)
{
    xd_token_ids *ids = &w->text[i].ids[k];
    char         *plain = prepare_caption(j, k, text);
    xd_tok_chunks c = { 0 };
    xd_status     s = plain ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a prompt");
    if (s == XD_OK)
        s = xd_tok_weighted(j->ctx->model.tok[k], plain, most_text(j, k), &c, e);
    if (s == XD_OK)
        s = check_ids(j, k, c.ids, c.n, e);
    *ids = (xd_token_ids){ .v = c.ids,
                           .weights = c.weights,
                           .n = c.n,
                           .uncut = c.n,
                           .real = c.n,
                           .text = c.n,
                           .chunk = most_text(j, k) };
    free(plain);
    return s;
}

/* Gives all encoders as many chunks of text i as the one with the most, because their rows stand
 * side by side. Sets the number of rows. */
static xd_status align_chunks(xd_prompts *w, const xd_job *j, int i, xd_err *e)
{
    xd_status s = XD_OK;
    int64_t   most = 0;
    for (int k = 0; k < w->ntext; k++)
        most = xd_max(most, w->text[i].ids[k].n);
    for (int k = 0; k < w->ntext && s == XD_OK; k++) {
        xd_token_ids *ids = &w->text[i].ids[k];
        xd_tok_chunks c = { ids->v, ids->weights, ids->n };
        s = xd_tok_chunks_extend(j->ctx->model.tok[k], ids->chunk, most, &c, e);
        ids->v = c.ids, ids->weights = c.weights;
        ids->n = ids->uncut = ids->real = ids->text = c.n;
    }
    w->text[i].rows = xd_job_text_rows(j, most);
    return s;
}

static xd_status tokenize_prompt(xd_prompts *w, const xd_job *j, int i, int k, const char *text,
                                 xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    const char     *frame = m->recipe->text[k].frame;
    char           *plain = prepare_caption(j, k, text);
    xd_token_ids   *ids = &w->text[i].ids[k];
    xd_status       s = XD_OK;
    if (i < w->prompts || m->recipe->text[k].drop_text)
        s = fail_tokens(j, k, count_dropped(j, k, ids, e), e);
    if (i < w->prompts && s == XD_OK)
        plain = add_system(j, plain);
    plain = xd_prompt_images_text(j, k, plain);
    char *whole = frame && plain ? xd_tok_framed(frame, plain) : NULL;
    if (frame) {
        free(plain);
        plain = whole;
    }
    if (!plain)
        return xd_fail(e, XD_ENOMEM, "no memory for a prompt");
    int64_t more = xd_prompt_images_more_ids(j, k), most = most_ids(j, k, ids) - more;
    if (m->recipe->text[k].quoted && !*plain) { /* there is not even a closing token */
        free(plain);
        return s;
    }
    if (s == XD_OK)
        s = fail_tokens(j, k,
                        xd_tok_cut_plain(m->tok[k], plain, strlen(plain), most, frame != NULL,
                                         &ids->v, &ids->n, &ids->uncut, e),
                        e);
    if (s == XD_OK)
        s = fail_tokens(j, k, keep_end(j, k, ids, e), e);
    if (s == XD_OK)
        s = check_ids(j, k, ids->v, ids->n, e);
    if (s == XD_OK)
        cut_frame(w, j, i, k, ids);
    if (s == XD_OK)
        s = xd_prompt_images_expand(j, k, &ids->v, &ids->n, e);
    ids->uncut += more;
    int64_t real = ids->n;
    if (s == XD_OK && padded(j, k, ids, real) > real)
        s = pad_ids(&ids->v, &ids->n, padded(j, k, ids, real), xd_tok_pad(m->tok[k]), e);
    if (s == XD_OK && m->recipe->text[k].left && ids->n > real)
        pad_before(ids->v, ids->n, ids->n - real, ids->v[real]);
    ids->text = real;
    ids->real = m->recipe->text[k].masked ? real : ids->n;
    free(plain);
    return s;
}

/* Passes the token ids of a prompt to on_tensor: "ids" are those of the first encoder, "ids_2" of
 * the second. */
static void log_ids(const xd_prompts *w, const xd_job *j, int i, int k)
{
    static const char *const names[XD_MAXTEXT] = { "ids", "ids_2", "ids_3" };
    const xd_token_ids      *ids = &w->text[i].ids[k];
    float *f = j->r->callbacks.on_tensor ? malloc((size_t)ids->n * sizeof *f + 1) : NULL;
    for (int64_t n = 0; f && n < ids->n; n++)
        f[n] = (float)ids->v[n];
    if (f)
        xd_callback_tensor(j, names[k], i, 1, &ids->n, f);
    free(f);
}

/* Returns the number of rows that encoder k contributes to the embedding of prompt i. */
static int64_t rows_of(const xd_prompts *w, const xd_job *j, int i, int k)
{
    int pad = recipe_of(j)->text[k].pad;
    if (w->text[i].ids[k].chunk)
        return w->text[i].ids[k].n;
    if (recipe_of(j)->text[k].prior)
        return i < w->prompts ? xd_prior_rows(j) : 0;
    if (recipe_of(j)->text[k].trimmed)
        return w->text[i].ids[k].text;
    if (pad != XD_PAD_NONE && pad != XD_PAD_ONE)
        return max_ids(j, k);
    return kept(j, k, &w->text[i].ids[k], w->text[i].ids[k].n);
}

/* For an encoder k that reads images and no text, sets the lengths in prompt i to the number of
 * image rows, which count like token ids. */
static void count_image_rows(xd_prompts *w, const xd_job *j, int i, int k)
{
    xd_token_ids *ids = &w->text[i].ids[k];
    ids->n = ids->real = ids->text = ids->uncut = max_ids(j, k);
    if (recipe_of(j)->text[k].prior)
        ids->n = ids->real = i < w->prompts ? xd_prior_image_rows(j) : 0;
}

/* Sets the hash of the images that an encoder of images reads, and marks the texts that encoders
 * read with a black image. */
static void note_images(xd_prompts *w, const xd_job *j)
{
    for (int k = 0; k < w->ntext; k++) {
        if (xd_encoder_reads_pixels(j, k) && j->encoder_pixels && !w->seen[0])
            w->seen[0] = xd_encoder_images_hash(j);
        for (int i = w->prompts; i < w->n; i++)
            w->text[i].blind |= recipe_of(j)->text[k].image_every[1] > 0;
    }
}

/* Sets where a text's embedding has rows of reference images that are in the transformer's
 * prefix. */
static void note_rows(xd_prompt *t, const xd_job *j, const xd_token_ids *ids)
{
    t->cond.nimages = xd_prompt_images_rows(j, ids->v, ids->n, t->rows, t->images);
    t->cond.images = t->images;
}

/* Returns the text that encoder k reads for prompt i. */
static const char *text_of(const xd_prompts *w, const xd_job *j, int i, int k)
{
    static const xd_job_text_kind own[2][3] = { { 0, XD_TEXT_2, XD_TEXT_3 },
                                                { 0, XD_TEXT_NEGATIVE_2, XD_TEXT_NEGATIVE_3 } };
    int                           negative = i >= w->prompts, at = negative ? i - w->prompts : i,
                                  number = recipe_of(j)->text[k].prompt;
    const char *text = number ? xd_job_text(j->r, own[negative][number], at) : NULL;
    if (text && *text)
        return text;
    text = negative ? xd_job_text(j->r, XD_TEXT_NEGATIVE, at) : j->r->prompts[at];
    return text ? text : "";
}

int xd_prompts_negative(const xd_prompts *w, int prompt)
{
    return w->prompts + (w->n - w->prompts > 1 ? prompt : 0);
}

int64_t xd_prompts_rows(const xd_prompts *w, const xd_job *j, int prompt, int negative)
{
    const xd_prompt *t = &w->text[negative ? xd_prompts_negative(w, prompt) : prompt];
    return recipe_of(j)->cuts_text ? xd_min(t->rows, w->text[prompt].ids[0].real) : t->rows;
}

int64_t xd_prompts_longest(const xd_prompts *w, const xd_job *j)
{
    int64_t most = 0;
    for (int i = 0; i < 2 * w->prompts; i++)
        most = xd_max(most, xd_prompts_rows(w, j, i / 2, i % 2));
    return most;
}

/* Returns 1 if all elements of the embeddings of text i are zeros. */
static int is_zero(const xd_prompts *w, const xd_job *j, int i)
{
    const xd_model *m = &j->ctx->model;
    int             forced = 1;
    if (i < w->prompts || !m->recipe->zeros_negative ||
        xd_job_text(j->r, XD_TEXT_NEGATIVE, i - w->prompts))
        return 0;
    xd_json_bool(xd_json_get(m->index, "force_zeros_for_empty_prompt"), &forced);
    return forced;
}

/* Returns 1 if the request uses text i. A prompt is used if an image of the prompt is generated. A
 * negative prompt is used only with guidance. */
static int is_used(const xd_prompts *w, const xd_job *j, int i)
{
    if (i < w->prompts)
        return xd_job_uses_prompt(j, i);
    return xd_job_has_negative(j) &&
           (w->n - w->prompts == 1 || xd_job_uses_prompt(j, i - w->prompts));
}

/* Refuses a text without token ids for encoder k, which has no template and adds no ids. */
static xd_status check_empty(const xd_prompts *w, const xd_job *j, int i, int k, xd_err *e)
{
    if (w->text[i].ids[k].n || recipe_of(j)->text[k].quoted || w->text[i].known ||
        !is_used(w, j, i))
        return XD_OK;
    return xd_fail(e, XD_EINVAL, "the %sprompt is empty, and %s reads nothing else: set %s",
                   i < w->prompts ? "" : "negative ", recipe_of(j)->name,
                   i < w->prompts ? "prompt" : "negative_prompt, or guidance_scale 1");
}

static xd_status tokenize(xd_prompts *w, const xd_job *j, int i, int k, const char *text, xd_err *e)
{
    return weighs(j) ? tokenize_weighted(w, j, i, k, text, e)
                     : tokenize_prompt(w, j, i, k, text, e);
}

xd_status xd_prompts_tokenize(xd_prompts *w, const xd_job *j, xd_err *e)
{
    int n = j->r->nprompts + xd_job_negatives(j->r);
    memset(w, 0, sizeof *w);
    w->prompts = j->r->nprompts;
    w->ntext = recipe_of(j)->ntext;
    w->text = calloc((size_t)n, sizeof *w->text);
    if (!w->text)
        return xd_fail(e, XD_ENOMEM, "no memory for %d prompts", n);
    w->n = n;
    xd_prompt_images_hash(j, w->seen);
    xd_status s = xd_model_tokenizers(&j->ctx->model, e);
    for (int i = 0; i < n; i++)
        w->text[i].known = is_zero(w, j, i);
    for (int i = 0; i < w->prompts; i++)
        w->text[i].silent = xd_prior_is_silent(j, i);
    note_images(w, j);
    for (int i = 0; s == XD_OK && i < n; i++)
        for (int k = 0; s == XD_OK && k < w->ntext; k++) {
            if (!recipe_of(j)->text[k].tokenizer)
                count_image_rows(w, j, i, k);
            else if (j->ctx->model.has_text[k] &&
                     (s = tokenize(w, j, i, k, text_of(w, j, i, k), e)) == XD_OK &&
                     (s = check_empty(w, j, i, k, e)) == XD_OK && !weighs(j))
                log_ids(w, j, i, k);
            if (recipe_of(j)->text[k].rows == XD_ROWS_BELOW)
                w->text[i].rows += rows_of(w, j, i, k);
            if (k == w->ntext - 1)
                w->text[i].rows = xd_job_text_rows(j, w->text[i].rows);
            if (recipe_of(j)->text[k].image_text && s == XD_OK)
                note_rows(&w->text[i], j, &w->text[i].ids[k]);
        }
    for (int i = 0; s == XD_OK && i < n && weighs(j); i++) {
        s = align_chunks(w, j, i, e);
        for (int k = 0; s == XD_OK && k < w->ntext; k++)
            log_ids(w, j, i, k);
    }
    return s;
}

int64_t xd_prompts_most_rows(const xd_job *j)
{
    int64_t n = 0;
    for (int k = 0; k < recipe_of(j)->ntext; k++)
        if (recipe_of(j)->text[k].rows == XD_ROWS_BELOW)
            n += max_ids(j, k);
    return xd_job_text_rows(j, n);
}

int xd_prompts_fixed(const xd_job *j)
{
    int fixed = 1;
    for (int k = 0; k < recipe_of(j)->ntext; k++)
        fixed &= recipe_of(j)->text[k].pad > 0 || !recipe_of(j)->text[k].tokenizer;
    return fixed;
}

void xd_prompts_real_tokens(const xd_job *j, int64_t real[XD_MAXTEXT])
{
    for (int k = 0; k < recipe_of(j)->ntext; k++)
        real[k] = max_ids(j, k);
}

void xd_prompts_real_tokens_of(const xd_prompts *w, const xd_job *j, int i,
                               int64_t real[XD_MAXTEXT])
{
    for (int k = 0; k < w->ntext; k++)
        real[k] = kept(j, k, &w->text[i].ids[k], w->text[i].ids[k].real);
}

void xd_prompts_close(xd_prompts *w, xd_context *ctx)
{
    for (int i = 0; i < w->n; i++) {
        for (int k = 0; k < w->ntext; k++) {
            free(w->text[i].ids[k].v);
            free(w->text[i].ids[k].weights);
        }
        free(w->text[i].states);
        xd_tensor t[2] = { w->text[i].cond.tok, w->text[i].cond.pooled };
        for (int k = 0; k < 2; k++)
            if (t[k].p)
                ctx->dev->mem->put(ctx->dev, t[k].p, xd_bytes(t[k]));
    }
    free(w->text);
    memset(w, 0, sizeof *w);
}

/* ---- computing embeddings ----------------------------------------------------------------- */

/* If ranks split the text encoders, opens the method stack of x over these ranks. Otherwise the
 * stack is empty. */
static void open_method_stack(xd_exec *x, const xd_context *ctx, xd_method_stack *c)
{
    xd_err         e = { 0 };
    xd_topo        t = { .deg = { { ctx->plan.text_tp, 1, 1, 1, 1, 1 } } };
    xd_method_args a = { .what = XD_FOR_TEXT, .topo = &t, .dev = x->dev, .act = x->act };
    t.group[XD_TENSOR] = xd_counting(x) ? ctx->count_text : ctx->text;
    if (xd_method_stack_open(c, &a, &e) != XD_OK)
        xd_exec_fail(x, e.code, "%s", e.msg);
    x->hooks = c->head;
}

static xd_layout layout_of(int64_t n)
{
    return (xd_layout){ .len = { n }, .grid = { 1, 1, n }, .npatch = 1, .nsp = 1 };
}

/* Computes the embedding rows of the input images with encoder k, which are the same for every
 * prompt. If negative prompts see a black image, its rows follow. */
static xd_tensor see_images(const xd_job *j, int k, xd_exec *x, const xd_net *n)
{
    xd_text_image images[XD_MAXREFS];
    xd_text_read  r = { .images = images };
    r.nimages = xd_prompt_images_among(j, k, NULL, 0, images);
    if (r.nimages == 1 && recipe_of(j)->text[k].image_every[1] && xd_job_has_negative(j))
        images[r.nimages++] = images[0]; /* the black image of negative prompts */
    r.pixels = j->encoder_pixels;
    int64_t rows = 0;
    for (int i = 0; i < r.nimages; i++)
        rows += images[i].n;
    xd_layout lay = layout_of(rows);
    x->lay = &lay;
    return xd_text_run_vision(j->ctx->model.text[k].text, x, n, &r);
}

/* Encodes a text of n tokens on the count device, which counts memory and computes nothing. */
static void count_one(const xd_job *j, int k, xd_exec *x, xd_tensor image_rows, int64_t n)
{
    const xd_component *p = &j->ctx->model.text[k];
    xd_layout           lay = layout_of(n);
    xd_cond             c = { 0 };
    size_t              mark = xd_arena_mark(x->tmp);
    xd_text_image       images[XD_MAXREFS];
    xd_text_read        r = xd_model_reads(&j->ctx->model, k);
    if (!n) /* a text without tokens is not encoded */
        return;
    x->lay = &lay;
    r.n = r.real = n;
    r.images = images;
    r.nimages = xd_prompt_images_among(j, k, NULL, n, images);
    r.image_rows = image_rows;
    xd_text_encode(p->text, x, &p->count->shadow, &r, &c);
    xd_arena_rewind(x->tmp, mark);
}

xd_status xd_prompts_count(const xd_job *j, int k, const int64_t *n, int texts, size_t *bytes,
                           xd_err *e)
{
    xd_method_stack stack;
    xd_component   *p = &j->ctx->model.text[k];
    xd_arena        a;
    xd_exec         x;
    xd_status       s = xd_component_count(p, j->ctx->count, j->ctx->type, e);
    if (s == XD_OK)
        s = xd_device_arena_open(&a, j->ctx->count, 0, e);
    if (s != XD_OK)
        return s;
    xd_exec_init(&x, j->ctx->count, &a, j->ctx->type);
    open_method_stack(&x, j->ctx, &stack);
    xd_tensor image_rows = see_images(j, k, &x, &p->count->shadow);
    for (int i = 0; i < texts; i++)
        count_one(j, k, &x, image_rows, n[i]);
    xd_method_stack_close(&stack);
    *bytes = xd_arena_peak(&a);
    xd_device_arena_close(&a, j->ctx->count);
    return xd_exec_status(&x, e);
}

/* Returns 1 if encoder k truncates one of the prompts. */
static int truncates(const xd_prompts *w, const xd_job *j, int k)
{
    for (int i = 0; i < w->n; i++)
        if (is_used(w, j, i) && w->text[i].ids[k].uncut > most_ids(j, k, &w->text[i].ids[k]))
            return 1;
    return 0;
}

/* Returns the number of tokens of the first `len` bytes of a text for encoder k, without special
 * tokens and without the template, or -1 if it cannot be counted. */
static int64_t count_tokens(const xd_job *j, int k, const char *text, size_t len)
{
    xd_err   e = { 0 };
    char    *part = strndup(text, len), *plain = part ? prepare_caption(j, k, part) : NULL;
    int32_t *ids = NULL;
    int64_t  n = -1, uncut = -1;
    if (!plain || xd_tok_cut_plain(j->ctx->model.tok[k], plain, strlen(plain), 0, 1, &ids, &n,
                                   &uncut, &e) != XD_OK)
        n = -1;
    free(ids);
    free(plain);
    free(part);
    return n;
}

/* Returns the number of tokens of the template after the prompt that are truncated with it. */
static int64_t count_tail(const xd_job *j, int k)
{
    const xd_text_use *u = &recipe_of(j)->text[k];
    const char        *end = u->frame && !u->keeps_end ? strstr(u->frame, "{}") : NULL;
    return end ? count_tokens(j, k, end + 2, strlen(end + 2)) : 0;
}

/* Returns the first word of prompt i that encoder k does not read completely, or NULL if that is
 * unknown. */
static const char *first_cut_word(const xd_prompts *w, const xd_job *j, int i, int k)
{
    const xd_token_ids *ids = &w->text[i].ids[k];
    const char         *text = text_of(w, j, i, k), *at = text;
    int64_t             all = count_tokens(j, k, text, strlen(text)), tail = count_tail(j, k),
                        most = all + tail - (ids->uncut - most_ids(j, k, ids));
    if (all < 0 || tail < 0 || most >= all || recipe_of(j)->text[k].quoted)
        return NULL;
    const char **word = malloc((strlen(text) / 2 + 2) * sizeof *word);
    int          words = 0, fit = 0;
    while (word && *(at += strspn(at, " \t\n"))) {
        word[words++] = at;
        at += strcspn(at, " \t\n");
    }
    /* The first `fit` words fit, and `above` words do not. */
    for (int above = words; fit + 1 < above;) {
        int     half = (fit + above) / 2;
        int64_t n = count_tokens(j, k, text, (size_t)(word[half] - text));
        *(n >= 0 && n <= most ? &fit : &above) = half;
    }
    at = words ? word[fit] : NULL;
    free(word);
    return at;
}

/* Writes the first words that encoder k does not read of prompt i: whole characters of one line. */
static void quote_rest(const xd_prompts *w, const xd_job *j, int i, int k, char out[96])
{
    const char *rest = first_cut_word(w, j, i, k);
    int         n = 0;
    out[0] = 0;
    while (rest && n < 60 && (unsigned char)rest[n] >= ' ')
        n += (int)xd_max((int64_t)xd_utf8_bytes(rest + n), 1);
    if (rest)
        snprintf(out, 96, ", not \"%.*s%s\"", n, rest, rest[n] ? " ..." : "");
}

/* Logs that encoder k truncates a prompt, and how many other prompts it truncates. */
static void log_truncation(const xd_prompts *w, const xd_job *j, int k, int level)
{
    int  cut = 0, first = 0;
    char which[40] = "the negative prompt", more[64] = "", rest[96];
    for (int i = w->n - 1; i >= 0; i--)
        if (is_used(w, j, i) && w->text[i].ids[k].uncut > most_ids(j, k, &w->text[i].ids[k]))
            cut++, first = i;
    if (!cut)
        return;
    const xd_token_ids *ids = &w->text[first].ids[k];
    int64_t             images = recipe_of(j)->text[k].image_every[0] ? ids->images : 0,
                        most = kept(j, k, ids, most_ids(j, k, ids)) - images;
    if (first < w->prompts)
        snprintf(which, sizeof which, "prompt %d", first + 1);
    else if (w->n - w->prompts > 1)
        snprintf(which, sizeof which, "negative prompt %d", first - w->prompts + 1);
    if (cut > 1)
        snprintf(more, sizeof more, "; also for %d other%s that %s too long", cut - 1,
                 cut > 2 ? "s" : "", cut > 2 ? "are" : "is");
    quote_rest(w, j, first, k, rest);
    xd_log(level, "%s is truncated: it has %lld tokens and %s reads %lld%s%s%s", which,
           (long long)(kept(j, k, ids, ids->uncut) - images), recipe_of(j)->text[k].folder,
           (long long)most,
           recipe_of(j)->text[k].pad > 0 || recipe_of(j)->text[k].most ? ""
                                                                       : " (max_sequence_length)",
           rest, more);
}

static int reads_prompts(const xd_job *j, int k)
{
    return j->ctx->model.has_text[k] && recipe_of(j)->text[k].tokenizer;
}

int64_t xd_prompts_tokens(const xd_prompts *w, const xd_job *j, int i)
{
    int64_t most = 0;
    for (int k = 0; k < w->ntext; k++) {
        if (!reads_prompts(j, k))
            continue;
        const xd_token_ids *ids = &w->text[i].ids[k];
        int64_t             n = xd_min(ids->uncut, most_ids(j, k, ids));
        most = xd_max(most, kept(j, k, ids, n) - image_rows_of(j, k, ids));
    }
    return most;
}

/* Logs which prompts are truncated. Truncation is logged as a warning if no encoder reads the
 * complete prompt, or if encoders have separate prompts. If one encoder reads the complete prompt,
 * truncation by other encoders is logged as information. */
void xd_prompts_warn_cut(const xd_prompts *w, const xd_job *j)
{
    int64_t most = 0;
    int level = xd_job_has_text(j->r, XD_TEXT_2) || xd_job_has_text(j->r, XD_TEXT_3) ? XD_LOG_WARN
                                                                                     : XD_LOG_INFO;
    for (int k = 0; k < w->ntext; k++)
        if (reads_prompts(j, k) && max_ids(j, k) > most)
            most = max_ids(j, k);
    for (int k = 0; k < w->ntext; k++)
        if (reads_prompts(j, k) && max_ids(j, k) == most && truncates(w, j, k))
            level = XD_LOG_WARN;
    for (int k = 0; k < w->ntext; k++)
        if (reads_prompts(j, k))
            log_truncation(w, j, k, level);
}

static xd_status buffer_for(xd_context *ctx, xd_tensor *t, int64_t rows, int64_t cols, xd_err *e)
{
    *t = xd_view2(NULL, XD_F32, rows, cols);
    if (rows > 0 && cols > 0 && !(t->p = ctx->dev->mem->get(ctx->dev, xd_bytes(*t))))
        return xd_fail(e, XD_ENOMEM, "no memory for the embedding of %lld tokens", (long long)rows);
    return XD_OK;
}

size_t xd_prompts_bytes(const xd_prompts *w, const xd_job *j)
{
    const xd_dit_info *d = &j->ctx->model.dit_info;
    size_t             sum = 0;
    for (int i = 0; i < w->n && xd_dev_identity(j->ctx->count); i++)
        if (is_used(w, j, i))
            sum += (size_t)(w->text[i].rows * d->text_dim + d->pooled_dim) * sizeof(float);
    return sum;
}

static void fill_zeros(void *ctx, float *buf)
{
    memset(buf, 0, *(const size_t *)ctx);
}

/* Allocates the embeddings of all used prompts, and sets all elements to 0, because encoders may
 * leave out some of them. */
static xd_status open_conds(xd_prompts *w, const xd_job *j, xd_err *e)
{
    xd_context        *ctx = j->ctx;
    const xd_dit_info *d = &ctx->model.dit_info;
    xd_exec            x;
    xd_arena           none = { 0 };
    xd_status          s = XD_OK;
    xd_exec_init(&x, ctx->dev, &none, ctx->type);
    for (int i = 0; s == XD_OK && i < w->n; i++) {
        xd_cond *c = &w->text[i].cond;
        if (!is_used(w, j, i))
            continue;
        s = buffer_for(ctx, &c->tok, w->text[i].rows, d->text_dim, e);
        if (s == XD_OK && d->pooled_dim)
            s = buffer_for(ctx, &c->pooled, 1, d->pooled_dim, e);
        xd_prompts_real_tokens_of(w, j, i, c->real);
        size_t n[2] = { xd_bytes(c->tok), c->pooled.nd ? xd_bytes(c->pooled) : 0 };
        if (s == XD_OK && n[0])
            xd_fill(&x, c->tok, fill_zeros, &n[0]);
        if (s == XD_OK && n[1])
            xd_fill(&x, c->pooled, fill_zeros, &n[1]);
    }
    return s == XD_OK ? xd_exec_status(&x, e) : s;
}

/* Computes where encoder k writes in the embedding of prompt i. In `at`, returns the first row, the
 * first feature, and the first feature in the pooled embedding. */
static void place_of(const xd_prompts *w, const xd_job *j, int i, int k, int64_t at[3])
{
    int64_t below = 0; /* number of rows of the encoders before encoder q */
    at[0] = at[1] = at[2] = 0;
    for (int q = 0; q <= k; q++) {
        const xd_text_use *u = &recipe_of(j)->text[q];
        if (u->rows == XD_ROWS_BELOW) {
            at[0] = below;
            at[1] = 0;
            below += rows_of(w, j, i, q);
        }
        if (q < k && u->rows != XD_ROWS_NONE)
            at[1] += width_of(j, q);
        if (q < k && u->pooled && j->ctx->model.has_text[q])
            at[2] += xd_model_pooled(&j->ctx->model, q);
    }
}

int xd_prompts_need(const xd_job *j, int k)
{
    int spoken = xd_job_has_negative(j);
    if (!j->ctx->model.has_text[k] || recipe_of(j)->text[k].prior)
        return j->ctx->model.has_text[k] && xd_prior_images(j->r);
    for (int i = 0; i < j->r->nprompts && !spoken; i++)
        spoken = !xd_prior_is_silent(j, i);
    return spoken;
}

int64_t xd_prompts_computed(const xd_prompts *w, const xd_job *j, int i, int k)
{
    if (w->text[i].silent && recipe_of(j)->text[k].tokenizer)
        return 0;
    const xd_token_ids *ids = &w->text[i].ids[k];
    return ids->chunk ? ids->chunk : recipe_of(j)->text[k].blank ? ids->real : ids->n;
}

/* Returns a view of the rows and features of encoder k in the embedding of prompt i. */
static xd_tensor rows_at(const xd_prompts *w, const xd_job *j, int i, int k, xd_grid size)
{
    int64_t at[3];
    place_of(w, j, i, k, at);
    return xd_cols(xd_rows(w->text[i].cond.tok, at[0], size.rows), at[1], size.cols);
}

/* For an encoder of images only, copies the rows that encoder k has computed for the first used
 * prompt, because the image rows are equal for all prompts. Returns 0 if prompt i has to be
 * encoded. */
static int copy_image_rows(xd_prompts *w, const xd_job *j, int i, int k, xd_exec *x)
{
    xd_grid size = { max_ids(j, k), width_of(j, k) };
    int     first = 0;
    while (!is_used(w, j, first))
        first++;
    if (recipe_of(j)->text[k].tokenizer || first == i)
        return 0;
    if (recipe_of(j)->text[k].rows != XD_ROWS_NONE)
        xd_copy_to(x, rows_at(w, j, i, k, size), rows_at(w, j, first, k, size));
    return 1;
}

/* Copies the rows of a text whose template has the request's image from the rows t of all ids: some
 * of the image's rows, then those of the text. */
static void copy_framed_rows(const xd_job *j, int k, const xd_token_ids *ids, xd_exec *x,
                             const xd_text_image *image, int every, xd_tensor t, xd_tensor to)
{
    int64_t first = recipe_of(j)->text[k].drop + xd_prompt_images_more_ids(j, k), at = ids->images,
            end = ids->cut.start + ids->cut.n;
    xd_tensor from = xd_rows(t, image->at, at);
    from.s[0] *= every;
    xd_copy_to(x, xd_rows(to, 0, at), from);
    if (ids->cut.start > first)
        xd_copy_to(x, xd_rows(to, at, ids->cut.start - first),
                   xd_rows(t, first, ids->cut.start - first));
    at += ids->cut.start - first;
    if (ids->n > end)
        xd_copy_to(x, xd_rows(to, at, ids->n - end), xd_rows(t, end, ids->n - end));
}

/* Keeps the output t of encoder k, if the next encoder reads it. */
static void keep_states(xd_prompt *p, const xd_job *j, int k, xd_exec *x, xd_tensor t)
{
    if (k + 1 == recipe_of(j)->ntext || !recipe_of(j)->text[k + 1].follows)
        return;
    free(p->states);
    p->states = malloc(xd_bytes(t) + 1);
    if (p->states)
        xd_get(x, p->states, t);
    else
        xd_exec_fail(x, XD_ENOMEM, "no memory for the hidden states of %lld tokens",
                     (long long)t.d[0]);
}

/* Multiplies each of the rows t of a chunk by its weight, and all rows by one factor that restores
 * the mean of all elements. */
static void weigh_rows(xd_exec *x, xd_tensor t, const float *weights)
{
    float *v = xd_counting(x) ? NULL : malloc(xd_bytes(t));
    double before = 0, after = 0;
    if (!v) {
        if (!xd_counting(x))
            xd_exec_fail(x, XD_ENOMEM, "no memory for the weights of a prompt");
        return;
    }
    xd_get(x, v, t);
    for (int64_t i = 0; i < xd_count(t); i++) {
        before += (double)v[i];
        v[i] *= weights[i / t.d[1]];
        after += (double)v[i];
    }
    for (int64_t i = 0; i < xd_count(t) && after != 0; i++)
        v[i] *= (float)(before / after);
    xd_put(x, t, v);
    free(v);
}

/* Encodes the chunks of prompt i with encoder k. The first chunk has the pooled embedding. */
static void encode_chunks(xd_prompts *w, xd_job *j, int i, int k, xd_exec *x)
{
    const xd_component *p = &j->ctx->model.text[k];
    const xd_text_use  *u = &recipe_of(j)->text[k];
    const xd_token_ids *ids = &w->text[i].ids[k];
    xd_layout           lay = layout_of(ids->chunk);
    size_t              mark = xd_arena_mark(x->tmp);
    xd_tensor           rows = rows_at(w, j, i, k, (xd_grid){ ids->n, width_of(j, k) });
    int64_t             at[3];
    place_of(w, j, i, k, at);
    x->lay = &lay;
    for (int64_t from = 0; from < ids->n; from += ids->chunk) {
        xd_text_read r = xd_model_reads(&j->ctx->model, k);
        xd_cond      c = { 0 };
        r.ids = ids->v + from;
        r.n = r.real = ids->chunk;
        xd_text_encode(p->text, x, &p->w->net, &r, &c);
        xd_tensor t = u->penultimate ? c.penultimate : c.tok;
        weigh_rows(x, t, ids->weights + from);
        xd_copy_to(x, xd_rows(rows, from, ids->chunk), t);
        if (u->pooled && !from)
            xd_copy_to(x, xd_cols(w->text[i].cond.pooled, at[2], c.pooled.d[1]), c.pooled);
        xd_arena_rewind(x->tmp, mark);
    }
    x->lay = NULL;
}

/* Writes the weighted sum of the images' rows, which follow each other in t, to the rows `to` of a
 * prompt. */
static void sum_images(const xd_job *j, xd_exec *x, xd_tensor t, xd_tensor to)
{
    for (int64_t i = 0; i < xd_prior_images(j->r); i++)
        xd_axpby(x, to, (float)j->prior_scale[i], xd_rows(t, i * to.d[0], to.d[0]), i > 0);
}

/* Multiplies the rows of text or the pooled embedding of a prompt by the weights of its images. */
static void scale_prompt(const xd_job *j, xd_exec *x, float scale, xd_tensor t)
{
    if (xd_prior_images(j->r) && scale != 1)
        xd_axpby(x, t, scale, t, 0);
}

/* Encodes prompt i with encoder k and writes the result into the prompt's embedding. `image_rows`
 * has the embedding rows of the images from see_images. */
static void encode_one(xd_prompts *w, const xd_job *j, int i, int k, xd_tensor image_rows,
                       xd_exec *x)
{
    const xd_component *p = &j->ctx->model.text[k];
    const xd_text_use  *u = &recipe_of(j)->text[k];
    int64_t   at[3], n = xd_prompts_computed(w, j, i, k), rows = kept(j, k, &w->text[i].ids[k], n);
    xd_layout lay = layout_of(n);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_cond   c = { 0 };
    if (!n || copy_image_rows(w, j, i, k, x))
        return;
    x->lay = &lay;
    xd_text_read r = xd_model_reads(&j->ctx->model, k);
    r.ids = w->text[i].ids[k].v;
    r.pixels = j->encoder_pixels;
    r.states = u->follows ? w->text[i].states : NULL;
    r.n = n;
    r.real = w->text[i].ids[k].real;
    r.first = u->left ? n - r.real : 0;
    xd_text_image images[XD_MAXREFS];
    r.images = images;
    r.nimages = xd_prompt_images_among(j, k, r.ids, n, images);
    r.image_rows = image_rows;
    if (w->text[i].blind && r.nimages)
        r.image_rows = xd_rows(image_rows, images[0].n, images[0].n);
    xd_text_encode(p->text, x, &p->w->net, &r, &c);
    keep_states(&w->text[i], j, k, x, c.tok);
    if (u->image_every[0]) {
        copy_framed_rows(j, k, &w->text[i].ids[k], x, images, u->image_every[i >= w->prompts],
                         c.tok, rows_at(w, j, i, k, (xd_grid){ rows, c.tok.d[1] }));
    } else if (u->prior && u->rows != XD_ROWS_NONE) {
        rows = xd_prior_rows(j);
        sum_images(j, x, c.tok, rows_at(w, j, i, k, (xd_grid){ rows, c.tok.d[1] }));
    } else if (u->rows != XD_ROWS_NONE) {
        xd_tensor t = u->penultimate ? c.penultimate : c.tok;
        if (u->trimmed)
            rows = n = w->text[i].ids[k].text;
        xd_tensor to = rows_at(w, j, i, k, (xd_grid){ rows, t.d[1] });
        xd_copy_to(x, to, xd_rows(t, n - rows, rows));
        if (recipe_of(j)->drops_system && w->text[i].ids[k].dropped && rows) /* the first stays */
            xd_copy_to(x, xd_rows(to, 0, 1), xd_rows(t, 0, 1));
        if (i < w->prompts)
            scale_prompt(j, x, xd_prior_text_scale(j), to);
    }
    place_of(w, j, i, k, at);
    if (u->pooled) {
        xd_tensor to = xd_cols(w->text[i].cond.pooled, at[2], c.pooled.d[1]);
        xd_copy_to(x, to, c.pooled);
        if (i < w->prompts)
            scale_prompt(j, x, xd_prior_pooled_scale(j), to);
    }
    xd_arena_rewind(x->tmp, mark);
}

xd_status xd_prompts_start(xd_job *j, int k, xd_comm *c, xd_status s, xd_err *e)
{
    if (!c)
        return s;
    s = xd_world_agree_in(c, j->ctx->world.used->rank, s, e);
    return s == XD_OK && xd_encoder_reads_pixels(j, k) ? xd_encoder_images_share(j, c, e) : s;
}

/* If several ranks split the encoder, a rank that has failed continues, because the other ranks
 * wait for its part of each sum. */
xd_status xd_prompts_compute(xd_prompts *w, xd_job *j, int k, xd_arena *a, xd_err *e)
{
    xd_context     *ctx = j->ctx;
    xd_method_stack stack;
    xd_exec         x;
    int             shared = ctx->plan.text_tp > 1;
    xd_exec_init(&x, ctx->dev, a, ctx->type);
    x.cancel = ctx->cancel;
    xd_world_watch(&ctx->world, &x);
    xd_yield_watch(j, &x);
    open_method_stack(&x, ctx, &stack);
    xd_status s = xd_prompts_start(j, k, shared ? ctx->text : NULL, xd_exec_status(&x, e), e);
    int       going = s == XD_OK;
    xd_tensor image_rows = { 0 };
    if (going)
        image_rows = see_images(j, k, &x, &ctx->model.text[k].w->net);
    for (int i = 0; i < w->n && going && (xd_ok(&x) || shared); i++)
        if (is_used(w, j, i) && !w->text[i].known) {
            xd_pause(&x);
            if (w->text[i].ids[k].chunk)
                encode_chunks(w, j, i, k, &x);
            else
                encode_one(w, j, i, k, image_rows, &x);
        }
    xd_method_stack_close(&stack);
    return s == XD_OK ? xd_exec_status(&x, e) : s;
}

static int is_last_encoder(const xd_job *j, int k)
{
    while (++k < recipe_of(j)->ntext)
        if (xd_prompts_need(j, k))
            return 0;
    return 1;
}

/* Loads the weights of encoder k. When the last encoder is loaded, the disk is idle, so reading
 * ahead of the transformer's weights starts. */
static xd_status load_encoder(xd_job *j, int k, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_prefetch_component(ctx, &ctx->model.text[k]);
    xd_status s = xd_component_load(&ctx->model.text[k], ctx->dev, ctx->type, 0, e);
    if (s == XD_OK && is_last_encoder(j, k))
        xd_prefetch_component(ctx, xd_transformer_of(j, 0));
    return s;
}

/* On a rank that does not encode, yields to other engines whenever the encoding ranks yield. A rank
 * whose status `s` is a failure calls this function, too, and returns `s`. */
static xd_status follow_yields(xd_job *j, xd_status s, xd_err *e)
{
    xd_status other = xd_yield_follow(j, s == XD_OK ? e : NULL);
    return s == XD_OK ? other : s;
}

/* On the ranks that encode, loads and runs encoder k. Ranks that split an encoder start when all of
 * them have loaded the encoder, so every rank must call this function, even if its status `s` is a
 * failure. */
static xd_status load_and_encode(xd_prompts *w, xd_job *j, int k, size_t bytes, xd_status s,
                                 xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_arena    a = { 0 };
    int         mine = ctx->world.used->rank < ctx->plan.text_tp;
    if (ctx->keep && mine) /* without `keep`, engines do not share the encoder */
        xd_yield_begin(j);
    if (s == XD_OK && mine)
        s = load_encoder(j, k, e);
    if (s == XD_OK && mine)
        s = xd_device_arena_open(&a, ctx->dev, bytes, e);
    if (s == XD_OK && mine && xd_encoder_reads_pixels(j, k))
        s = xd_encoder_images_open(j, e);
    if (ctx->plan.text_tp > 1)
        s = xd_world_agree(&ctx->world, s, e);
    if (s == XD_OK && mine)
        s = ctx->work->encode_text(w, j, k, &a, e);
    if (mine)
        xd_yield_end(j);
    else if (ctx->keep)
        s = follow_yields(j, s, e);
    xd_device_arena_close(&a, ctx->dev);
    if (mine && !ctx->keep)
        xd_component_drop(&ctx->model.text[k]);
    return s;
}

/* Copies tensor t of prompt i to host memory, and passes the copy to the request's on_tensor. */
static void log_tensor(const xd_job *j, const char *name, int i, xd_tensor t)
{
    xd_exec x;
    xd_exec_init(&x, j->ctx->dev, NULL, j->ctx->type);
    float *host = xd_host_open(&x, t.p, xd_bytes(t));
    if (host)
        xd_callback_tensor(j, name, i, 2, t.d, host);
    xd_host_close(&x, host, t.p, 0);
}

static void log_encoder(const xd_prompts *w, const xd_job *j, int i)
{
    int            negative = i >= w->prompts;
    const xd_cond *c = &w->text[i].cond;
    if (!j->r->callbacks.on_tensor)
        return;
    log_tensor(j, negative ? "negative_prompt_embeds" : "prompt_embeds", i, c->tok);
    if (c->pooled.p)
        log_tensor(j, negative ? "negative_pooled_prompt_embeds" : "pooled_prompt_embeds", i,
                   c->pooled);
}

/* Broadcasts the embedding of prompt i from rank 0. */
static xd_status share_one(xd_prompts *w, const xd_job *j, int i, xd_err *e)
{
    xd_cond  *c = &w->text[i].cond;
    xd_status s = xd_world_broadcast(&j->ctx->world, c->tok.p, (int64_t)xd_bytes(c->tok), e);
    if (s == XD_OK && c->pooled.p)
        s = xd_world_broadcast(&j->ctx->world, c->pooled.p, (int64_t)xd_bytes(c->pooled), e);
    return s;
}

/* On hosts on which no rank encodes text, loads the transformer early, because the cores and disks
 * of these hosts are idle. This needs no more memory than planned, because the memory plan assumes
 * that all ranks reach their maximum at the same time. */
static xd_status load_meanwhile(xd_job *j, xd_status s, xd_err *e)
{
    xd_context   *ctx = j->ctx;
    xd_component *p = xd_transformer_of(j, 0);
    if (ctx->world.lowest < ctx->plan.text_tp || p->w->store)
        return s;
    xd_transformer_alone(j, 0);
    if (s == XD_OK)
        xd_prefetch_component(ctx, p);
    return xd_component_load_after(p, s, ctx->dev, ctx->type, e);
}

/* Returns 1 if the embedding of at least one used prompt is not cached, so that text encoders must
 * run. */
static int has_new(const xd_prompts *w, const xd_job *j)
{
    for (int i = 0; i < w->n; i++)
        if (is_used(w, j, i) && !w->text[i].known)
            return 1;
    return 0;
}

/* Encodes all prompts. The text encoders run on rank 0 only or, if the plan splits them, on the
 * first ranks. The embeddings are small, so they are broadcast to all ranks. */
xd_status xd_prompts_encode(xd_prompts *w, xd_job *j, size_t bytes, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_status   s = load_meanwhile(j, xd_prompts_recall(w, j, open_conds(w, j, e), e), e);
    s = has_new(w, j) ? xd_prompt_images_share(j, s, e) : xd_world_agree(&ctx->world, s, e);
    for (int k = 0, begun = !has_new(w, j); (s == XD_OK || !begun) && k < w->ntext; k++)
        if (xd_prompts_need(j, k) && has_new(w, j) && (begun = 1))
            s = xd_world_agree(&ctx->world, load_and_encode(w, j, k, bytes, s, e), e);
    for (int i = 0; s == XD_OK && i < w->n; i++) {
        if (!is_used(w, j, i))
            continue;
        if (ctx->world.used->rank == 0)
            log_encoder(w, j, i);
        if (ctx->world.used->size > 1)
            s = share_one(w, j, i, e);
    }
    if (s == XD_OK)
        xd_prompts_remember(w, j);
    return s;
}
