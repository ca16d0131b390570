/* lora_sets.c - switches the weights of an engine from one set of LoRA files to another */
#include "engine/lora_sets.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "model/lora.h"
#include "pipeline/text_cache.h"
#include "ranks/world.h"

enum { PARTS = XD_LORA_COMPONENTS, DEEP = 16 };

typedef struct lora_set {
    xd_loras            *loras; /* LoRA files of this set; NULL: none, or the set is active */
    uint64_t             hash;  /* hash of the model with the set's LoRA files; 0: not known yet */
    /* 1: the files change component i: the transformer (0) or encoder k (1 + k) */
    int                  own[PARTS];
    xd_component_weights aside[PARTS]; /* the set's weights while it is inactive */
    /* 1: the set's weights of component i are loaded; equal on all ranks */
    int                  kept[PARTS];
    xd_text_cache       *embeddings; /* the set's text cache while it is inactive */
    struct lora_set     *older;      /* the set that was used last before this set */
} lora_set;

/* The list of all sets. The set `plain` has no LoRA files. `plain` owns the components that the
 * sets share, and serves requests without LoRA files. The set `now` is the active set. */
struct xd_lora_sets {
    lora_set *plain, *newest, *now;
    lora_set *users[DEEP]; /* sets of the begun requests; the last of them is active */
    int       n;
};

static xd_component *part_of(xd_engine *g, int i)
{
    return i ? xd_model_text(&g->ctx.model, i - 1) : &g->ctx.model.dit;
}

static int changes_text(const lora_set *t)
{
    for (int i = 1; i < PARTS; i++)
        if (t->own[i])
            return 1;
    return 0;
}

/* Returns the set that owns the weights of component i with which set t computes. The owner of the
 * weights is t itself or, if t does not change component i, the set without LoRA files. */
static lora_set *owner_of(const xd_lora_sets *s, lora_set *t, int i)
{
    return t->own[i] ? t : s->plain;
}

/* ---- freeing weights ------------------------------------------------------------------------- */

/* Returns 1 if a request that has begun uses the set's weights of component i. */
static int is_used(const xd_lora_sets *s, const lora_set *t, int i)
{
    for (int k = 0; k < s->n; k++)
        if (owner_of(s, s->users[k], i) == t)
            return 1;
    return 0;
}

/* Returns 1 if the weights of component i that belong to the set can be freed. The result is equal
 * on all ranks, even on those that have not loaded these weights. */
static int can_leave(const xd_lora_sets *s, const lora_set *t, int i)
{
    return t->kept[i] && owner_of(s, s->now, i) != t && !is_used(s, t, i);
}

static int is_spare(const xd_lora_sets *s, const lora_set *t)
{
    for (int i = 0; i < PARTS; i++)
        if (can_leave(s, t, i))
            return 1;
    return 0;
}

/* Returns the number of sets with weights that can be freed. *oldest becomes the least recently
 * used set with such weights. */
static int count_spare(const xd_lora_sets *s, lora_set **oldest)
{
    int n = 0;
    *oldest = NULL;
    for (lora_set *t = s->newest; t; t = t->older)
        if (is_spare(s, t))
            *oldest = t, n++;
    return n;
}

static void drop_weights(xd_engine *g, lora_set *t)
{
    for (int i = 0; i < PARTS; i++)
        if (can_leave(g->sets, t, i)) {
            xd_component_weights_drop(&t->aside[i], part_of(g, i));
            t->kept[i] = 0;
        }
}

static void close_set(xd_engine *g, lora_set *t)
{
    for (int i = 0; i < PARTS; i++)
        if (part_of(g, i))
            xd_component_weights_close(&t->aside[i], part_of(g, i));
    xd_text_cache_close(&t->embeddings);
    xd_loras_close(&t->loras);
    free(t);
}

/* Frees weights of sets that are inactive and that no request uses. On a device with its own
 * memory, no inactive set keeps weights. On other devices, the XD_LORA_SETS most recently used
 * inactive sets keep their weights. */
static void make_room(xd_engine *g)
{
    lora_set *oldest;
    int       max = xd_dev_identity(g->ctx.dev) ? 0 : XD_LORA_SETS;
    while (count_spare(g->sets, &oldest) > max)
        drop_weights(g, oldest);
}

/* Closes the sets that have no weights and that no request uses. */
static void close_empty(xd_engine *g)
{
    xd_lora_sets *s = g->sets;
    for (lora_set **at = &s->newest, *t; (t = *at);) {
        int used = t == s->plain || t == s->now;
        for (int i = 0; i < PARTS; i++)
            used |= t->kept[i] || is_used(s, t, i);
        for (int k = 0; k < s->n; k++)
            used |= s->users[k] == t;
        if (used) {
            at = &t->older;
            continue;
        }
        *at = t->older;
        close_set(g, t);
    }
}

int xd_drop_loras(xd_engine *g)
{
    lora_set        *oldest = NULL;
    const xd_logger *before = xd_log_enter(&g->log);
    if (g->sets && count_spare(g->sets, &oldest))
        drop_weights(g, oldest);
    xd_log_enter(before);
    return oldest != NULL;
}

/* ---- changing the active set ---------------------------------------------------------------- */

static void put_first(xd_lora_sets *s, lora_set *t)
{
    lora_set **at = &s->newest;
    while (*at && *at != t)
        at = &(*at)->older;
    if (*at)
        *at = t->older;
    t->older = s->newest;
    s->newest = t;
}

/* Makes t the active set, which is the set with which the engine computes. The weights that belong
 * to t must be open. */
static void change_set(xd_engine *g, lora_set *t)
{
    xd_lora_sets *s = g->sets;
    xd_context   *ctx = &g->ctx;
    lora_set     *from = s->now;
    put_first(s, t);
    if (from == t)
        return;
    for (int i = 0; i < PARTS; i++) {
        lora_set *a = owner_of(s, from, i), *b = owner_of(s, t, i);
        if (!part_of(g, i))
            continue;
        a->kept[i] = b->kept[i] = 1;
        if (a == b)
            continue;
        ctx->switched = 1;
        xd_component_swap(part_of(g, i), &b->aside[i]); /* b->aside now has the weights of set a */
        a->aside[i] = b->aside[i];
        memset(&b->aside[i], 0, sizeof b->aside[i]);
    }
    lora_set *a = changes_text(from) ? from : s->plain, *b = changes_text(t) ? t : s->plain;
    a->embeddings = ctx->caches->embeddings;
    ctx->caches->embeddings = b->embeddings;
    b->embeddings = NULL;
    from->loras = ctx->model.loras;
    ctx->model.loras = t->loras;
    t->loras = NULL;
    ctx->hash = t->hash;
    s->now = t;
}

/* ---- opening sets of LoRA files -------------------------------------------------------------- */

/* Opens the list of sets. The first set has the LoRA files with which the engine was opened. */
static xd_status open_sets(xd_engine *g, xd_err *e)
{
    xd_lora_sets *s = calloc(1, sizeof *s);
    lora_set     *plain = calloc(1, sizeof *plain), *own = calloc(1, sizeof *own);
    if (!s || !plain || !own) {
        free(s);
        free(plain);
        free(own);
        return xd_fail(e, XD_ENOMEM, "no memory for sets of LoRA files");
    }
    g->sets = s;
    s->plain = s->newest = s->now = plain;
    if (!g->ctx.model.loras) {
        free(own);
    } else {
        for (int i = 0; i < PARTS; i++)
            own->own[i] = xd_loras_change(g->ctx.model.loras, i);
        s->now = own;
        put_first(s, own);
    }
    s->now->hash = g->ctx.hash;
    return XD_OK;
}

void xd_lora_sets_close(xd_engine *g)
{
    for (lora_set *t = g->sets ? g->sets->newest : NULL, *older; t; t = older) {
        older = t->older;
        close_set(g, t);
    }
    free(g->sets);
    g->sets = NULL;
}

static lora_set *find_set(const xd_engine *g, const xd_lora *v, int n)
{
    for (lora_set *t = g->sets->newest; t; t = t->older)
        if (xd_loras_equal(t == g->sets->now ? g->ctx.model.loras : t->loras, v, n))
            return t;
    return NULL;
}

/* Opens the LoRA files of set t. The function xd_loras_open adds the files' terms to the current
 * weights of the components. Therefore open_files makes new weights of set t the current weights
 * until xd_loras_open returns. */
static xd_status open_files(xd_engine *g, lora_set *t, const xd_lora *v, int n, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; i < PARTS && s == XD_OK; i++)
        if (part_of(g, i))
            s = xd_component_weights_open(&t->aside[i], part_of(g, i), e);
    for (int i = 0; i < PARTS && s == XD_OK; i++)
        if (part_of(g, i))
            xd_component_swap(part_of(g, i), &t->aside[i]);
    if (s != XD_OK)
        return s;
    s = xd_loras_open(&t->loras, v, n, &g->ctx.model, e);
    for (int i = 0; i < PARTS; i++) {
        xd_component *p = part_of(g, i);
        if (!p)
            continue;
        xd_component_swap(p, &t->aside[i]);
        t->own[i] = xd_loras_change(t->loras, i);
        if (!t->own[i])
            xd_component_weights_close(&t->aside[i], p);
    }
    return s;
}

/* Opens the weights that set t shares with the set without LoRA files, and computes the hash of the
 * model with the LoRA files of set t. */
static xd_status complete_set(xd_engine *g, lora_set *t, xd_err *e)
{
    xd_lora_sets *s = g->sets;
    xd_model     *m = &g->ctx.model;
    xd_loras     *now = m->loras;
    xd_status     st = XD_OK;
    for (int i = 0; i < PARTS && st == XD_OK; i++)
        if (part_of(g, i) && !t->own[i] && s->now->own[i] && !s->plain->aside[i].w)
            st = xd_component_weights_open(&s->plain->aside[i], part_of(g, i), e);
    if (st == XD_OK && !t->hash) {
        m->loras = t->loras;
        st = xd_model_hash(m, &t->hash, e);
        m->loras = now;
    }
    return st;
}

/* Fails if the ranks have different LoRA files. */
static xd_status compare_ranks(const xd_engine *g, const lora_set *t, xd_err *e)
{
    xd_comm *c = g->ctx.world.all;
    int64_t  n = 2;
    double   v[2] = { (double)(t->hash >> 12), -(double)(t->hash >> 12) };
    if (c->size == 1)
        return XD_OK;
    xd_req    r = c->ops->allreduce(c, xd_view(v, XD_F64, 1, &n), XD_MAX);
    xd_status s = xd_world_wait(c, r, e);
    if (s == XD_OK && v[0] != -v[1])
        s = xd_fail(e, XD_EINVAL, "the LoRA files of the ranks differ"), e->rank = 0;
    return s;
}

/* ---- the functions that other files call ---------------------------------------------------- */

static xd_status use_loras(xd_engine *g, const xd_lora *v, int n, xd_err *e)
{
    xd_comm  *all = g->ctx.world.all;
    xd_status s = g->sets ? XD_OK : open_sets(g, e);
    lora_set *t = s == XD_OK ? find_set(g, v, n) : NULL, *fresh = NULL;
    if (s == XD_OK && g->sets->n == DEEP)
        s = xd_fail(e, XD_EINVAL, "%d requests with LoRA files wait already", DEEP);
    if (s == XD_OK && !t && !(t = fresh = calloc(1, sizeof *t)))
        s = xd_fail(e, XD_ENOMEM, "no memory for a set of LoRA files");
    if (s == XD_OK && fresh)
        s = open_files(g, t, v, n, e);
    if (s == XD_OK)
        s = complete_set(g, t, e);
    s = xd_world_agree_in(all, all->rank, s, e);
    if (s == XD_OK && fresh)
        s = compare_ranks(g, t, e);
    if (s == XD_OK) {
        change_set(g, t);
        g->sets->users[g->sets->n++] = t;
        make_room(g);
        close_empty(g);
    } else if (fresh && s != XD_ECOMM) {
        close_set(g, fresh);
    }
    return s;
}

xd_status xd_use_loras(xd_engine *g, const xd_lora *v, int n, xd_err *e)
{
    xd_err           mine = { .rank = -1 };
    const xd_logger *before = xd_log_enter(&g->log);
    xd_status        s = XD_OK;
    if (g->of)
        s = xd_fail(&mine, XD_EINVAL, "xd_use_loras needs an engine that owns its weights"),
        mine.rank = 0;
    else
        s = use_loras(g, v, n, &mine);
    s = xd_world_judge(&g->ctx.world, s, &mine);
    xd_log_enter(before);
    return s == XD_OK ? s : xd_fail(e, s, "%s", mine.msg);
}

void xd_leave_loras(xd_engine *g)
{
    const xd_logger *before = xd_log_enter(&g->log);
    xd_lora_sets    *s = g->sets;
    if (s && s->n > 0 && --s->n > 0)
        change_set(g, s->users[s->n - 1]);
    xd_log_enter(before);
}
