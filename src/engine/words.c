/* words.c - prompts become embeddings */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/ranks.h"
#include "exec/op.h"
#include "parallel/link.h"

/* ---- token ids ---------------------------------------------------------------------------- */

static xd_status tokenize(xd_words *w, const xd_job *j, int i, const char *prompt, xd_err *e)
{
    const xd_model *m = &j->g->model;
    char           *plain = m->recipe->caption ? m->recipe->caption(prompt) : strdup(prompt);
    if (!plain)
        return xd_fail(e, XD_ENOMEM, "no memory for a prompt");
    xd_status s = xd_tok_ids(m->tok[0], plain, strlen(plain), j->max_text, &w->ids[i], &w->len[i],
                             e);
    free(plain);
    return s;
}

static void show_ids(const xd_words *w, const xd_job *j, int i)
{
    float *f = j->r->on_tensor ? malloc((size_t)w->len[i] * sizeof *f + 1) : NULL;
    for (int64_t k = 0; f && k < w->len[i]; k++)
        f[k] = (float)w->ids[i][k];
    if (f)
        xd_show(j, "ids", i, 1, &w->len[i], f);
    free(f);
}

xd_status xd_words_open(xd_words *w, const xd_job *j, xd_err *e)
{
    int n = j->r->nprompts + 1;
    memset(w, 0, sizeof *w);
    w->ids = calloc((size_t)n, sizeof *w->ids);
    w->len = calloc((size_t)n, sizeof *w->len);
    w->cond = calloc((size_t)n, sizeof *w->cond);
    if (!w->ids || !w->len || !w->cond)
        return xd_fail(e, XD_ENOMEM, "no memory for %d prompts", n);
    w->n = n;
    xd_status s = xd_model_words(&j->g->model, e);
    for (int i = 0; s == XD_OK && i < n; i++) {
        const char *negative = j->r->negative_prompt ? j->r->negative_prompt : "";
        s = tokenize(w, j, i, i < j->r->nprompts ? j->r->prompts[i] : negative, e);
        if (s == XD_OK)
            show_ids(w, j, i);
    }
    return s;
}

void xd_words_close(xd_words *w, xd_engine *g)
{
    for (int i = 0; i < w->n; i++) {
        free(w->ids[i]);
        if (w->cond[i].tok.p)
            g->dev->mem->put(g->dev, w->cond[i].tok.p, xd_bytes(w->cond[i].tok));
    }
    free(w->ids);
    free(w->len);
    free(w->cond);
    memset(w, 0, sizeof *w);
}

/* ---- embeddings --------------------------------------------------------------------------- */

/* The chain of x among the ranks that share the text encoder; nothing when one has it alone. Without
 * it the others would wait for this rank's part of their sums: it ends the run. */
static void open_chain(xd_exec *x, const xd_engine *g, xd_chain *c)
{
    xd_err       e = { 0 };
    xd_topo      t = { .deg = { { g->plan.text_tp, 1, 1, 1, 1, 1 } } };
    xd_link_args a = { .what = XD_FOR_TEXT, .topo = &t, .dev = x->dev, .act = x->act };
    t.group[XD_TENSOR] = xd_counting(x) ? g->count_text : g->text;
    if (xd_chain_open(c, &a, &e) != XD_OK) {
        xd_log(XD_LOG_ERROR, "text: %s", e.msg);
        g->used->ops->abort(g->used, 1);
    }
    x->mix = c->head;
}

xd_status xd_words_count(const xd_job *j, int64_t n, size_t *bytes, xd_err *e)
{
    xd_chain  chain;
    xd_part  *p = &j->g->model.text[0];
    xd_arena  a;
    xd_exec   x;
    xd_cond   c = { 0 };
    xd_layout lay = { .len = { n }, .grid = { 1, 1, n }, .npatch = 1, .nsp = 1 };
    xd_status s = xd_part_count(p, j->g->count, j->g->type, e);
    if (s == XD_OK)
        s = xd_room_open(&a, j->g->count, 0, e);
    if (s != XD_OK)
        return s;
    xd_exec_init(&x, j->g->count, &a, j->g->type);
    x.lay = &lay;
    open_chain(&x, j->g, &chain);
    p->text->encode(&x, &p->shadow, NULL, n, &c);
    xd_chain_close(&chain);
    *bytes = xd_arena_peak(&a);
    xd_room_close(&a, j->g->count);
    return x.err.code ? xd_fail(e, x.err.code, "%s", x.err.msg) : XD_OK;
}

/* Encodes prompt i; its embedding outlives the arena. */
static void encode_one(xd_words *w, const xd_job *j, int i, xd_exec *x)
{
    const xd_part *p = &j->g->model.text[0];
    xd_layout      lay = { .len = { w->len[i] }, .grid = { 1, 1, w->len[i] }, .npatch = 1, .nsp = 1 };
    size_t         mark = xd_arena_mark(x->tmp);
    xd_cond        c = { 0 };
    x->lay = &lay;
    p->text->encode(x, &p->net, w->ids[i], w->len[i], &c);
    xd_tensor keep = c.tok;
    keep.p = xd_ok(x) ? j->g->dev->mem->get(j->g->dev, xd_bytes(keep)) : NULL;
    if (!keep.p)
        xd_exec_fail(x, XD_ENOMEM, "no memory for the embedding of %lld tokens",
                     (long long)w->len[i]);
    else
        w->cond[i].tok = keep;
    if (keep.p)
        xd_copy_to(x, keep, c.tok);
    if (xd_ok(x) && j->r->on_tensor && j->g->used->rank == 0) {
        j->g->dev->mem->sync(j->g->dev, NULL);
        xd_show(j, i == w->n - 1 ? "negative_prompt_embeds" : "prompt_embeds", i, 2, keep.d,
                keep.p);
    }
    xd_arena_rewind(x->tmp, mark);
}

/* Runs the encoder over every text that is used. A rank that failed goes on where others share the
 * encoder: it takes part in their sums. */
static xd_status encode_all(xd_words *w, xd_job *j, xd_arena *a, xd_err *e)
{
    xd_engine *g = j->g;
    xd_chain   chain;
    xd_exec    x;
    xd_exec_init(&x, g->dev, a, g->type);
    x.cancel = &g->cancel;
    open_chain(&x, g, &chain);
    for (int i = 0; i < w->n && (xd_ok(&x) || g->plan.text_tp > 1); i++)
        if (i < w->n - 1 || j->npass > 1)       /* the negative prompt only with guidance      */
            encode_one(w, j, i, &x);
    xd_chain_close(&chain);
    return x.err.code ? xd_fail(e, x.err.code, "%s", x.err.msg) : XD_OK;
}

/* On a rank that encodes. Those that share the encoder begin when all of them have loaded it; so all
 * ranks call this. */
static xd_status load_and_encode(xd_words *w, xd_job *j, size_t bytes, xd_err *e)
{
    xd_engine *g = j->g;
    xd_arena   a = { 0 };
    int        mine = g->used->rank < g->plan.text_tp;
    xd_status  s = mine ? xd_part_load(&g->model.text[0], g->dev, g->type, 0, e) : XD_OK;
    if (s == XD_OK && mine)
        s = xd_room_open(&a, g->dev, bytes, e);
    if (g->plan.text_tp > 1)
        s = xd_ranks_agree(g, s, e);
    if (s == XD_OK && mine)
        s = encode_all(w, j, &a, e);
    xd_room_close(&a, g->dev);
    if (mine && !g->keep)
        xd_part_drop(&g->model.text[0]);
    return s;
}

/* Embedding i from the rank that has it to all others. */
static xd_status share_one(xd_words *w, const xd_job *j, int i, xd_err *e)
{
    xd_engine *g = j->g;
    xd_tensor *t = &w->cond[i].tok;
    int64_t    width = g->model.dit_info.text_dim;
    if (!t->p) {
        *t = xd_view2(NULL, XD_F32, w->len[i], width);
        if (!(t->p = g->dev->mem->get(g->dev, xd_bytes(*t))))
            return xd_fail(e, XD_ENOMEM, "no memory for an embedding");
    }
    return xd_ranks_share(g, t->p, xd_count(*t), e);
}

/* The text encoder runs on rank 0 only, with the cores of the ranks that wait, unless the plan cuts it
 * over the first ranks; embeddings are small and broadcast. */
xd_status xd_words_encode(xd_words *w, xd_job *j, size_t bytes, xd_err *e)
{
    xd_engine *g = j->g;
    xd_status  s = load_and_encode(w, j, bytes, e);
    s = xd_ranks_agree(g, s, e);
    for (int i = 0; s == XD_OK && i < w->n && g->used->size > 1; i++)
        if (i < w->n - 1 || j->npass > 1)
            s = share_one(w, j, i, e);
    return s;
}
