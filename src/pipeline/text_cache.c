/* text_cache.c - keeps the embeddings of earlier prompts, so that later requests need not encode
 * them again; see text_cache.h */
#include <stdlib.h>
#include <string.h>

#include "pipeline/text_cache.h"
#include "base/minmax.h"
#include "exec/host.h"
#include "exec/op.h"
#include "pipeline/context.h"
#include "pipeline/memory_budget.h"
#include "ranks/world.h"

typedef struct entry {
    struct entry *next; /* next entry in the order of last use */
    uint64_t      hash;
    int64_t       n; /* number of elements in `key` */
    size_t        bytes;
    int64_t       key[]; /* [n]; the cached embedding follows the key */
} entry;

struct xd_text_cache {
    entry *newest;
    size_t bytes, most;
};

/* ---- the cache of embeddings -------------------------------------------------------------- */

xd_text_cache *xd_text_cache_open(size_t most)
{
    xd_text_cache *c = calloc(1, sizeof *c);
    if (c)
        c->most = most;
    return c;
}

void xd_text_cache_close(xd_text_cache **c)
{
    for (entry *next, *p = c && *c ? (*c)->newest : NULL; p; p = next) {
        next = p->next;
        free(p);
    }
    if (c && *c)
        free(*c);
    if (c)
        *c = NULL;
}

size_t xd_text_cache_bytes(const xd_text_cache *c)
{
    return c->bytes;
}

static size_t size_of(int64_t n, size_t bytes)
{
    return sizeof(entry) + (size_t)n * sizeof(int64_t) + bytes;
}

/* Returns the FNV-1a hash of a cache key. */
static uint64_t hash_key(xd_text_key key)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < key.n; i++)
        h = (h ^ (uint64_t)key.v[i]) * 0x100000001b3u;
    return h;
}

static int is_entry_of(const entry *p, xd_text_key key, uint64_t hash)
{
    return p->hash == hash && p->n == key.n &&
           memcmp(p->key, key.v, (size_t)key.n * sizeof *key.v) == 0;
}

const void *xd_text_cache_find(xd_text_cache *c, xd_text_key key, size_t bytes)
{
    uint64_t hash = hash_key(key);
    for (entry **at = &c->newest; *at; at = &(*at)->next) {
        entry *p = *at;
        if (!is_entry_of(p, key, hash) || p->bytes != bytes)
            continue;
        *at = p->next;
        p->next = c->newest;
        c->newest = p;
        return p->key + p->n;
    }
    return NULL;
}

static void drop_oldest(xd_text_cache *c)
{
    entry **at = &c->newest;
    while ((*at)->next)
        at = &(*at)->next;
    c->bytes -= size_of((*at)->n, (*at)->bytes);
    free(*at);
    *at = NULL;
}

void *xd_text_cache_add(xd_text_cache *c, xd_text_key key, size_t bytes)
{
    size_t size = size_of(key.n, bytes);
    if (size > c->most)
        return NULL;
    while (c->bytes + size > c->most)
        drop_oldest(c);
    entry *p = malloc(size);
    if (!p)
        return NULL;
    *p = (entry){ c->newest, hash_key(key), key.n, bytes };
    memcpy(p->key, key.v, (size_t)key.n * sizeof *key.v);
    c->newest = p;
    c->bytes += size;
    return p->key + p->n;
}

/* ---- caching the prompts of a request ----------------------------------------------------- */

static int64_t bits_of(float f)
{
    int32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Returns the cache key of prompt i, which is malloc'ed; v is NULL if memory is short. For every
 * text encoder, the key has the number of token ids, the number of ids that are not padding, and
 * the ids and their weights, if the encoder reads text. The hashes of the input images are at the
 * end of the key; for a text with a black image, numbers replace them. */
static xd_text_key key_of(const xd_prompts *w, int i)
{
    int64_t n = 3, at = 0;
    for (int k = 0; k < w->ntext; k++)
        n += 2 +
             (w->text[i].ids[k].v ? w->text[i].ids[k].n : 0) * (w->text[i].ids[k].weights ? 2 : 1);
    int64_t *v = malloc((size_t)n * sizeof *v + 1);
    for (int k = 0; k < w->ntext && v; k++) {
        int64_t len = w->text[i].ids[k].n;
        v[at++] = len;
        v[at++] = w->text[i].ids[k].real;
        for (int64_t m = 0; m < len && w->text[i].ids[k].v; m++)
            v[at++] = w->text[i].ids[k].v[m];
        for (int64_t m = 0; m < len && w->text[i].ids[k].weights; m++)
            v[at++] = bits_of(w->text[i].ids[k].weights[m]);
    }
    for (int k = 0; k < 2 && v; k++)
        v[at++] = w->text[i].blind ? -1 - k : w->seen[k];
    if (v)
        v[at] = w->text[i].silent;
    return (xd_text_key){ v, n };
}

/* Returns the number of elements in the embedding of a prompt; 0 if the request does not use the
 * prompt. */
static int64_t size_of_cond(const xd_cond *c)
{
    return c->tok.p ? xd_count(c->tok) + (c->pooled.p ? xd_count(c->pooled) : 0) : 0;
}

/* Copies the embeddings that are in this rank's cache to the prompts of the request, and marks
 * these prompts as known. */
static xd_status recall_own(xd_prompts *w, xd_job *j, xd_err *e)
{
    xd_arena          none = { 0 };
    xd_exec           x;
    xd_engine_caches *caches = j->ctx->caches;
    xd_exec_init(&x, j->ctx->dev, &none, j->ctx->type);
    for (int i = 0; i < w->n && caches && caches->embeddings; i++) {
        const xd_cond *c = &w->text[i].cond;
        size_t         bytes = (size_t)size_of_cond(c) * sizeof(float);
        xd_text_key    key = bytes && !w->text[i].known ? key_of(w, i) : (xd_text_key){ 0 };
        const float   *v = key.v ? xd_text_cache_find(caches->embeddings, key, bytes) : NULL;
        if (v) {
            xd_put(&x, c->tok, v);
            if (c->pooled.p)
                xd_put(&x, c->pooled, v + xd_count(c->tok));
            w->text[i].known = 1;
        }
        free((void *)(uintptr_t)key.v);
    }
    if (x.err.code == XD_OK)
        return XD_OK;
    for (int i = 0; i < w->n; i++)
        w->text[i].known = 0;
    return xd_exec_status(&x, e);
}

/* Broadcasts which prompts have cached embeddings. The message has one flag per prompt, and its
 * buffer is the tensor `t` [n,1] in device memory. */
static xd_status share_known(xd_prompts *w, const xd_job *j, xd_tensor t, float *host, xd_err *e)
{
    xd_arena none = { 0 };
    xd_exec  x;
    xd_exec_init(&x, j->ctx->dev, &none, j->ctx->type);
    for (int i = 0; i < w->n; i++)
        host[i] = (float)w->text[i].known;
    xd_put(&x, t, host);
    xd_status s = xd_world_broadcast(&j->ctx->world, t.p, (int64_t)xd_bytes(t), e);
    xd_get(&x, host, t);
    for (int i = 0; i < w->n && s == XD_OK; i++)
        w->text[i].known = host[i] > 0;
    return s == XD_OK ? xd_exec_status(&x, e) : s;
}

xd_status xd_prompts_recall(xd_prompts *w, xd_job *j, xd_status s, xd_err *e)
{
    xd_context *ctx = j->ctx;
    xd_tensor   t = xd_view2(NULL, XD_F32, w->n, 1);
    if (!ctx->keep)
        return s;
    if (ctx->world.used->size == 1)
        return s == XD_OK ? recall_own(w, j, e) : s;
    float *host = malloc(xd_bytes(t));
    t.p = ctx->dev->mem->get(ctx->dev, xd_bytes(t));
    if (s == XD_OK && (!host || !t.p))
        s = xd_fail(e, XD_ENOMEM, "no memory for %d prompts", w->n);
    s = xd_world_agree(&ctx->world, s, e);
    if (s == XD_OK) {
        xd_status own = ctx->world.used->rank == 0 ? recall_own(w, j, e) : XD_OK;
        s = share_known(w, j, t, host, e);
        s = own == XD_OK ? s : own;
    }
    if (t.p)
        ctx->dev->mem->put(ctx->dev, t.p, xd_bytes(t));
    free(host);
    return s;
}

static size_t most_bytes(const xd_context *ctx)
{
    size_t free_bytes, all;
    xd_host_memory_free(&free_bytes, &all);
    if (!xd_dev_identity(ctx->dev))
        free_bytes = (size_t)xd_budget_least(ctx, (double)free_bytes);
    free_bytes /= XD_TEXT_CACHE_SHARE;
    return free_bytes < XD_TEXT_CACHE_MOST ? free_bytes : XD_TEXT_CACHE_MOST;
}

/* Copies the embedding of prompt i into the cache. */
static void remember_one(const xd_prompts *w, xd_job *j, int i, xd_exec *x)
{
    const xd_cond *c = &w->text[i].cond;
    xd_text_key    key = key_of(w, i);
    float         *v = key.v ? xd_text_cache_add(j->ctx->caches->embeddings, key,
                                                 (size_t)size_of_cond(c) * sizeof(float))
                             : NULL;
    if (v) {
        xd_get(x, v, c->tok);
        if (c->pooled.p)
            xd_get(x, v + xd_count(c->tok), c->pooled);
    }
    free((void *)(uintptr_t)key.v);
}

void xd_prompts_remember(const xd_prompts *w, xd_job *j)
{
    xd_context       *ctx = j->ctx;
    xd_arena          none = { 0 };
    xd_exec           x;
    xd_engine_caches *caches = ctx->caches;
    if (!ctx->keep || !caches || ctx->world.used->rank != 0)
        return;
    if (!caches->embeddings && !(caches->embeddings = xd_text_cache_open(most_bytes(ctx))))
        return;
    xd_exec_init(&x, ctx->dev, &none, ctx->type);
    for (int i = 0; i < w->n; i++)
        if (!w->text[i].known && size_of_cond(&w->text[i].cond))
            remember_one(w, j, i, &x);
    if (x.err.code) /* the copied data may be wrong */
        xd_text_cache_close(&caches->embeddings);
}
