/* frame.c - tokenizes a prompt within a pipeline's frame. A frame is the text before and after the
 * prompt in a rendered chat template, with roles and special tokens.
 *
 * As in transformers, special tokens are recognized in the complete text, even in the prompt that
 * the user types. */
#include "tok/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static const char place[] = "{}";

char *xd_tok_framed(const char *frame, const char *prompt)
{
    const char *at = frame ? strstr(frame, place) : NULL;
    size_t      before = at ? (size_t)(at - frame) : 0, len = strlen(prompt);
    size_t      after = at ? strlen(at) - strlen(place) : 0;
    char       *text = malloc(before + len + after + 1);
    if (text) {
        memcpy(text, frame ? frame : "", before);
        memcpy(text + before, prompt, len);
        if (at)
            memcpy(text + before + len, at + strlen(place), after);
        text[before + len + after] = 0;
    }
    return text;
}

/* ---- ids ------------------------------------------------------------------------------------ */

/* Pads a row of ids to the length `to`. If the tokenizer has no padding token, pads with the end
 * token. */
static xd_status pad_row(const xd_tok *t, xd_tok_row *r, int64_t to, int left, xd_err *e)
{
    int32_t with = t->pad >= 0 ? t->pad : t->end;
    int64_t more = to - r->n;
    if (more <= 0)
        return XD_OK;
    if (with < 0)
        return xd_fail(e, XD_EFORMAT,
                       "the tokenizer has no pad_token, but prompts are padded to "
                       "%lld ids: add one to tokenizer_config.json",
                       (long long)to);
    int32_t *p = realloc(r->ids, (size_t)to * sizeof *p);
    if (!p)
        return xd_fail(e, XD_ENOMEM, "no memory for %lld token ids", (long long)to);
    r->ids = p;
    if (left)
        memmove(p + more, p, (size_t)r->n * sizeof *p);
    for (int64_t i = 0; i < more; i++)
        p[left ? i : r->n + i] = with;
    r->first = left ? more : 0;
    r->n = to;
    return XD_OK;
}

xd_status xd_tok_frame_ids(const xd_tok *t, const xd_tok_frame *f, const char *prompt,
                           xd_tok_row *r, xd_err *e)
{
    int64_t max = f->max > 0 ? f->max + f->drop : 0;
    int     left = f->side == XD_TOK_SIDE_OWN ? t->pad_left : f->side == XD_TOK_SIDE_LEFT;
    char   *text = xd_tok_framed(f->text, prompt);
    *r = (xd_tok_row){ 0 };
    if (!text)
        return xd_fail(e, XD_ENOMEM, "no memory for a prompt");
    xd_status s = xd_tok_cut_plain(t, text, strlen(text), max, f->no_special, &r->ids, &r->n,
                                   &r->untruncated, e);
    free(text);
    r->real = r->n;
    r->drop = f->drop < r->real ? f->drop : r->real;
    if (s == XD_OK && f->pad)
        s = pad_row(t, r, max, left, e);
    if (s != XD_OK) {
        free(r->ids);
        *r = (xd_tok_row){ 0 };
    }
    return s;
}

/* ---- does the frame fit the tokenizer? ------------------------------------------------------ */

/* Returns the next mark of the form <mark>, [MARK] or [/MARK] in s, or NULL if there is none. Text
 * with a place for a number, such as <image{}>, is no mark. */
static const char *next_mark(const char *s, size_t *len)
{
    for (; *s; s++) {
        if (*s != '<' && *s != '[')
            continue;
        char   end = *s == '<' ? '>' : ']';
        size_t n = 1;
        while (s[n] && s[n] != end && s[n] != ' ' && s[n] != '\n' && s[n] != '<' && s[n] != '{' &&
               (end == '>' || s[n] == '_' || s[n] == '/' || (s[n] >= 'A' && s[n] <= 'Z')))
            n++;
        if (n > 1 && s[n] == end) {
            *len = n + 1;
            return s;
        }
    }
    return NULL;
}

/* Reads the chat template of a tokenizer's directory. Returns a malloc'ed string, or NULL if none
 * of the known files has a template. */
static char *chat_template(const char *dir)
{
    static const char *const files[] = { "chat_template.json", "tokenizer_config.json" };
    char                    *path = xd_path_join(dir, "chat_template.jinja"), *text = NULL;
    size_t                   len;
    if (path && xd_file_exists(path))
        xd_file_read(path, 1 << 20, &text, &len, NULL);
    free(path);
    for (int i = 0; i < 2 && !text; i++) {
        xd_json *j = NULL;
        path = xd_path_join(dir, files[i]);
        if (path && xd_file_exists(path) && xd_json_read(&j, path, NULL) == XD_OK) {
            const char *s = xd_json_text(xd_json_get(j, "chat_template"));
            text = s ? strdup(s) : NULL;
        }
        xd_json_free(&j);
        free(path);
    }
    return text;
}

/* Counts the token ids of the text that precedes the prompt in the frame. */
static int64_t count_before(const xd_tok *t, const xd_tok_frame *f)
{
    const char *at = f->text ? strstr(f->text, place) : NULL;
    int32_t    *ids = NULL;
    int64_t     n = 0, untruncated = 0;
    if (!at || xd_tok_cut_plain(t, f->text, (size_t)(at - f->text), 0, f->no_special, &ids, &n,
                                &untruncated, NULL) != XD_OK)
        return -1;
    free(ids);
    return f->no_special ? n : n - t->tail.n;
}

static int is_begin(const xd_tok *t, const char *mark)
{
    for (int i = 0; i < t->nadded; i++)
        if (t->added[i].id == t->begin && !strcmp(t->added[i].name, mark))
            return 1;
    return 0;
}

typedef int fits_mark(const xd_tok *t, const char *chat, const char *mark);

/* Returns 1 if all special marks of a frame are accepted by the function `fits`. Otherwise copies
 * the first mark that `fits` rejects to mark[0..size). */
static int all_fit(const xd_tok *t, const xd_tok_frame *f, fits_mark *fits, const char *chat,
                   char *mark, size_t size)
{
    size_t len;
    int    good = 1;
    for (const char *s = f->text ? next_mark(f->text, &len) : NULL; s && good;
         s = next_mark(s + len, &len)) {
        snprintf(mark, size, "%.*s", (int)len, s);
        good = fits(t, chat, mark);
    }
    return good;
}

static int is_token(const xd_tok *t, const char *chat, const char *mark)
{
    (void)chat;
    return xd_added_id(t, mark) >= 0;
}

/* Returns 1 if the chat template contains the special mark, such as <mark>. A template that uses
 * the variable bos_token counts as one with the bos token. */
static int is_in_chat(const xd_tok *t, const char *chat, const char *mark)
{
    return is_begin(t, mark) || strstr(chat, mark);
}

int xd_tok_frame_doubt(const xd_tok *t, const char *dir, const xd_tok_frame *f, char *why,
                       size_t size)
{
    char mark[64];
    if (!all_fit(t, f, is_token, NULL, mark, sizeof mark)) {
        snprintf(why, size,
                 "the tokenizer%s%s has no token %s, which the pipeline adds to "
                 "prompts: it belongs to another model",
                 dir ? " in " : "", dir ? dir : "", mark);
        return 1;
    }
    return 0;
}

int xd_tok_chat_doubt(const xd_tok *t, const char *dir, const xd_tok_frame *f, char *why,
                      size_t size)
{
    int64_t before = f->drop ? count_before(t, f) : 0;
    char   *chat, mark[64];
    if (before != f->drop) {
        snprintf(why, size,
                 "the tokenizer in %s has %lld ids for the text before a prompt, but "
                 "the pipeline drops %lld",
                 dir, (long long)before, (long long)f->drop);
        return 1;
    }
    chat = chat_template(dir);
    int doubt = chat && !all_fit(t, f, is_in_chat, chat, mark, sizeof mark);
    if (doubt)
        snprintf(why, size, "the chat template in %s has no %s; using the pipeline's own template",
                 dir, mark);
    free(chat);
    return doubt;
}
