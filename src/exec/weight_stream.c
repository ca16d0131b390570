/* weight_stream.c - streams the weights of some blocks of a network from host memory or files */
#include "exec/weight_stream.h"

#include <stdlib.h>
#include <string.h>

/* ---- which blocks are streamed ------------------------------------------------------------- */

int xd_stream_plan_has(const xd_stream_plan *p, int n, int i)
{
    return p->streamed && (i + 1) * p->streamed / n > i * p->streamed / n;
}

size_t xd_stream_plan_bytes(const xd_stream_plan *p, const xd_block_sizes *w)
{
    return p->streamed ? p->resident + (size_t)p->slots * p->slot : w->all;
}

static xd_stream_plan plan_of(const xd_block_sizes *w, int streamed, int slots)
{
    xd_stream_plan p = { .streamed = streamed, .slots = slots };
    for (int i = 0; i < w->n; i++) {
        if (!xd_stream_plan_has(&p, w->n, i))
            continue;
        p.host += w->block[i];
        p.slot = w->block[i] > p.slot ? w->block[i] : p.slot;
    }
    p.resident = w->all - p.host;
    return p;
}

/* Makes a plan with as many slots as possible, trying the largest number of slots first. A slot is
 * device memory for one streamed block. With a single slot, weights cannot be copied while another
 * streamed block computes. */
int xd_stream_plan_make(xd_stream_plan *p, const xd_block_sizes *w, double have, int all)
{
    *p = (xd_stream_plan){ 0 };
    if (!all && (double)w->all <= have)
        return 1;
    for (int slots = XD_STREAM_SLOTS; slots > 0 && w->n > 0; slots--)
        for (int n = all || slots > w->n ? w->n : slots; n <= w->n; n++) {
            *p = plan_of(w, n, slots < n ? slots : n);
            if ((double)xd_stream_plan_bytes(p, w) <= have)
                return 1;
        }
    return 0;
}

/* ---- the stream --------------------------------------------------------------------------- */

typedef struct streamed {
    char  *host;
    size_t bytes;
} streamed;

struct xd_weight_stream {
    xd_stream_memory m;
    xd_stream_plan   plan;
    /* first: first block of this stage; n: number of blocks of the stage */
    int              first, n;
    char            *pinned, *slots; /* pinned host memory: m.copy, or allocated by the stream */
    streamed        *item;           /* [plan.streamed]: the streamed blocks in order */
    int             *at; /* [n]: index of each block in `item`; -1: the block is not streamed */
    /* turn: number of times that a streamed block has begun to compute; fetched: number of times
     * that the weights of a streamed block were fetched. turn and fetched keep counting from one
     * pass to the next. */
    int64_t          turn, fetched;
    /* the store's own block of memory, saved while a streamed block is loaded */
    xd_arena         window;
    /* for weights in files: called before a block is used; else NULL */
    void             (*next)(void *self, int k);
    void            *self;
    xd_stays         stays; /* for weights in files: xd_decl.stays, saved while a block is loaded */
};

static int slot_of(const xd_weight_stream *s, int64_t turn)
{
    return (int)(turn % s->plan.streamed) % s->plan.slots;
}

static char *slot_at(const xd_weight_stream *s, int64_t turn)
{
    return s->slots + (size_t)slot_of(s, turn) * s->plan.slot;
}

static void list_items(xd_weight_stream *s, const xd_block_sizes *w)
{
    size_t used = 0;
    int    k = 0;
    for (int i = 0; i < w->n; i++) {
        s->at[i] = -1;
        if (!xd_stream_plan_has(&s->plan, w->n, i))
            continue;
        s->at[i] = k;
        char *host = s->pinned ? s->pinned + used : NULL; /* is NULL if the weights stay in files */
        s->item[k++] = (streamed){ host, w->block[i] };
        used += w->block[i];
    }
}

static xd_status new_stream(xd_weight_stream **out, const xd_stream_plan *p,
                            const xd_block_sizes *w, xd_err *e)
{
    xd_weight_stream *s = *out = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory to stream weights");
    *s = (xd_weight_stream){ .plan = *p, .first = w->first, .n = w->n };
    s->item = calloc((size_t)p->streamed, sizeof *s->item);
    s->at = calloc((size_t)w->n, sizeof *s->at);
    return s->item && s->at ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory to stream weights");
}

xd_status xd_weight_stream_files(xd_weight_stream **out, const xd_stream_plan *p,
                                 const xd_block_sizes *w, void (*next)(void *self, int k),
                                 void *self, xd_err *e)
{
    if (new_stream(out, p, w, e) != XD_OK)
        return XD_ENOMEM;
    (*out)->next = next;
    (*out)->self = self;
    list_items(*out, w);
    return XD_OK;
}

xd_status xd_weight_stream_open(xd_weight_stream **out, const xd_stream_plan *p,
                                const xd_block_sizes *w, const xd_stream_memory *m, xd_err *e)
{
    xd_dev *dev = m->dev;
    if (new_stream(out, p, w, e) != XD_OK)
        return XD_ENOMEM;
    xd_weight_stream *s = *out;
    s->m = *m;
    s->pinned = m->copy ? m->copy : dev->mem->pin(dev, p->host);
    if (!s->pinned)
        return xd_fail(e, XD_ENOMEM,
                       "no pinned host memory for %s of weights that are streamed to "
                       "%s",
                       xd_size_text((double)p->host).s, dev->name);
    if (!(s->slots = xd_store_own_block(m->store, p->resident, (size_t)p->slots * p->slot)))
        return xd_fail(e, XD_ENOMEM, "no memory of %s for %s of weights", dev->name,
                       xd_size_text((double)xd_stream_plan_bytes(p, w)).s);
    list_items(s, w);
    return XD_OK;
}

void xd_weight_stream_close(xd_weight_stream **s)
{
    if (!s || !*s)
        return;
    if ((*s)->pinned) {
        xd_dev *dev = (*s)->m.dev;
        dev->mem->sync(dev, NULL);
        if (!(*s)->m.copy)
            dev->mem->unpin(dev, (*s)->pinned);
    }
    free((*s)->item);
    free((*s)->at);
    free(*s);
    *s = NULL;
}

/* ---- loading ------------------------------------------------------------------------------ */

static const streamed *item_of(const xd_weight_stream *s, int layer)
{
    int i = layer - s->first;
    return i >= 0 && i < s->n && s->at[i] >= 0 ? &s->item[s->at[i]] : NULL;
}

/* Returns 1 if this process loads the weights of the streamed block. */
static int is_mine(const xd_weight_stream *s, const streamed *t)
{
    return !s->m.copy || (int)(t - s->item) % s->m.parts == s->m.part;
}

void xd_weight_stream_enter(xd_weight_stream *s, xd_decl *d, int layer)
{
    const streamed *t = item_of(s, layer);
    s->stays = d->stays;
    if (t && s->next)
        d->stays = XD_STAYS_ALL;
    else if (t) {
        s->window = xd_store_swap_block(s->m.store, slot_at(s, t - s->item), s->plan.slot, NULL);
        xd_store_fills(s->m.store, is_mine(s, t));
    }
}

void xd_weight_stream_leave(xd_weight_stream *s, xd_decl *d, int layer)
{
    const streamed *t = item_of(s, layer);
    d->stays = s->stays;
    if (!t || s->next)
        return;
    xd_store_swap_block(s->m.store, NULL, 0, &s->window);
    xd_store_fills(s->m.store, 1);
    const char *from = slot_at(s, t - s->item);
    xd_dev     *dev = s->m.dev;
    if (d->err->code == XD_OK && is_mine(s, t) &&
        dev->mem->download(dev, NULL, t->host, from, t->bytes) != XD_OK)
        xd_fail(d->err, XD_EDEVICE, "the weights of block %d cannot be copied from %s", layer,
                dev->name);
}

/* ---- computing ---------------------------------------------------------------------------- */

/* `turn` counts streamed blocks as xd_weight_stream.turn does. Returns 1 if the slot of block
 * `turn` is still needed by an earlier block that has not finished. */
static int is_busy(const xd_weight_stream *s, int64_t turn)
{
    for (int64_t t = s->turn; t < turn; t++)
        if (slot_of(s, t) == slot_of(s, turn))
            return 1;
    return 0;
}

static xd_status fetch_next(xd_weight_stream *s)
{
    const streamed *t = &s->item[s->fetched % s->plan.streamed];
    int             place = slot_of(s, s->fetched);
    char           *to = slot_at(s, s->fetched);
    s->fetched++;
    return s->m.dev->mem->fetch(s->m.dev, place, to, t->host, t->bytes);
}

void xd_weight_stream_begin(xd_weight_stream *s, xd_exec *x, int layer)
{
    const streamed *t = item_of(s, layer);
    xd_status       st = XD_OK;
    if (!t || !xd_ok(x))
        return;
    int64_t k = t - s->item;
    if (s->next) {
        s->next(s->self, (int)k);
        return;
    }
    if (s->turn % s->plan.streamed != k || s->fetched < s->turn)
        /* the previous pass ended early, so fetching restarts at streamed block k */
        s->turn = s->fetched = k;
    while (st == XD_OK && s->fetched < s->turn + s->plan.slots && !is_busy(s, s->fetched))
        st = fetch_next(s);
    if (st == XD_OK)
        st = s->m.dev->mem->fetched(s->m.dev, slot_of(s, s->turn));
    s->turn++;
    if (st != XD_OK)
        xd_exec_fail(x, st, "the weights of block %d cannot be copied to %s", layer,
                     s->m.dev->name);
}
