/* staging.c - manages the buffers of messages that are staged through host memory, and copies data
 * between device and host */
#include "comm/staging.h"

#include <sched.h>
#include <stdlib.h>

#include "comm/direct.h"
#include "comm/kinds.h"
#include "comm/linked.h"

/* ---- buffers ------------------------------------------------------------------------------ */

static void *get_memory(xd_staging *w, int on_device, size_t bytes)
{
    return on_device  ? w->dev->mem->get(w->dev, bytes)
           : w->lanes ? w->lanes->pinned_get(w->dev, bytes)
                      : malloc(bytes);
}

static void put_memory(xd_staging *w, int on_device, xd_stage_buffer *b)
{
    if (on_device)
        w->dev->mem->put(w->dev, b->p, b->cap);
    else if (w->lanes)
        w->lanes->pinned_put(w->dev, b->p);
    else
        free(b->p);
    free(b);
}

/* Returns the smallest free buffer of at least `bytes` bytes, or a new buffer, or NULL if out of
 * memory. */
char *xd_stage_alloc(xd_staging *w, xd_stage_call *k, int on_device, size_t bytes)
{
    xd_stage_buffer **at = on_device ? &w->packed : &w->pinned, **best = NULL, *b = NULL;
    xd_stage_buffer **held = on_device ? &k->packed : &k->pinned;
    for (; *at; at = &(*at)->next)
        if ((*at)->cap >= bytes && (!best || (*at)->cap < (*best)->cap))
            best = at;
    if (best) {
        b = *best;
        *best = b->next;
    } else {
        size_t cap = (bytes + 4095) / 4096 * 4096;
        b = calloc(1, sizeof *b);
        if (!b || !(b->p = get_memory(w, on_device, cap))) {
            free(b);
            return NULL;
        }
        b->cap = cap;
        w->traffic->device_bytes += on_device ? (int64_t)cap : 0;
    }
    b->next = *held;
    *held = b;
    return b->p;
}

static void release(xd_stage_buffer **from, xd_stage_buffer **to)
{
    while (*from) {
        xd_stage_buffer *b = *from;
        *from = b->next;
        b->next = *to;
        *to = b;
    }
}

int xd_stage_copies_add(xd_stage_copies *l, xd_tensor t, char *p)
{
    if (l->n == l->cap) {
        int            cap = l->cap ? 2 * l->cap : 8;
        xd_stage_copy *at = realloc(l->at, (size_t)cap * sizeof *at);
        if (!at)
            return 0;
        l->at = at;
        l->cap = cap;
    }
    l->at[l->n++] = (xd_stage_copy){ t, p };
    return 1;
}

/* ---- calls -------------------------------------------------------------------------------- */

static void free_call(xd_staging *w, xd_stage_call *k)
{
    if (w->lanes) {
        w->lanes->mark_put(w->dev, k->before);
        w->lanes->mark_put(w->dev, k->out);
        w->lanes->mark_put(w->dev, k->in);
    }
    free(k->down.at), free(k->up.at), free(k->rows), free(k->view), free(k->note);
    free(k);
}

static xd_stage_call *new_call(xd_staging *w)
{
    xd_stage_call *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->view = calloc(2 * (size_t)w->size, sizeof *k->view);
    k->rows = calloc((size_t)w->size, sizeof *k->rows);
    int ok = k->view && k->rows;
    if (w->lanes) {
        k->before = w->lanes->mark_get(w->dev);
        k->out = w->lanes->mark_get(w->dev);
        k->in = w->lanes->mark_get(w->dev);
        ok = ok && k->before && k->out && k->in;
    }
    if (ok)
        return k;
    free_call(w, k);
    return NULL;
}

static void make_idle(xd_staging *w, xd_stage_call *k)
{
    release(&k->pinned, &w->pinned);
    release(&k->packed, &w->packed);
    k->down.n = k->up.n = k->started = k->direct = 0;
    k->real = (xd_req){ 0 };
    k->next = w->idle;
    w->idle = k;
}

/* Frees the buffers of finished calls, oldest first, up to the first call whose copies the device
 * has not finished. If more than XD_STAGE_ENDING finished calls still hold buffers, waits for the
 * oldest one. */
static void take_back(xd_staging *w)
{
    while (w->ending) {
        xd_stage_call *k = w->ending;
        if (!w->lanes->reached(w->dev, k->last)) {
            if (w->nending <= XD_STAGE_ENDING)
                return;
            sched_yield();
            continue;
        }
        if (!(w->ending = k->next))
            w->last_ending = &w->ending;
        w->nending--;
        make_idle(w, k);
    }
}

void xd_stage_settle(xd_staging *w)
{
    while (w->ending) {
        take_back(w);
        sched_yield();
    }
}

xd_stage_call *xd_stage_begin(xd_staging *w)
{
    take_back(w);
    xd_stage_call *k = w->idle;
    if (!k)
        return new_call(w);
    w->idle = k->next;
    k->next = NULL;
    return k;
}

void xd_stage_drop(xd_staging *w, xd_stage_call *k)
{
    make_idle(w, k);
}

/* ---- between device and host -------------------------------------------------------------- */

static void fail(xd_staging *w, xd_status st, const char *what)
{
    if (st != XD_OK)
        xd_fail(w->err, XD_EDEVICE, "a message cannot be %s %s: %s", what, w->dev->name,
                xd_status_name(st));
}

int xd_stage_on_device(const xd_staging *w, xd_tensor t)
{
    return xd_comm_bytes(t) && w->dev->mem->owns(w->dev, t.p);
}

/* Allocates contiguous device memory for the elements of the tensor `like`, and scratch memory for
 * the copy kernel. */
static int hold_packed(xd_staging *w, xd_stage_call *k, xd_tensor like, xd_tensor *packed,
                       void **tmp)
{
    *packed = xd_view(NULL, like.type, like.nd, like.d);
    xd_copy args = { *packed, like };
    size_t  bytes = (xd_bytes(*packed) + 255) / 256 * 256,
            scratch = w->dev->ops->scratch(w->dev, XD_OP_COPY, &args);
    packed->p = xd_stage_alloc(w, k, 1, bytes + scratch);
    *tmp = packed->p && scratch ? (char *)packed->p + bytes : NULL;
    return packed->p != NULL;
}

static void copy_views(xd_staging *w, xd_tensor to, xd_tensor from, void *tmp)
{
    fail(w, w->dev->ops->copy(w->dev, NULL, &(xd_copy){ to, from }, tmp), "packed on");
}

void xd_stage_copy_on_device(xd_staging *w, xd_tensor to, xd_tensor from)
{
    xd_copy args = { to, from };
    size_t  scratch = w->dev->ops->scratch(w->dev, XD_OP_COPY, &args);
    void   *tmp = scratch ? w->dev->mem->get(w->dev, scratch) : NULL;
    if (scratch && !tmp)
        fail(w, XD_ENOMEM, "packed on");
    else
        copy_views(w, to, from, tmp);
    if (tmp)
        w->dev->mem->put(w->dev, tmp, scratch);
}

int xd_stage_view(xd_staging *w, xd_stage_call *k, xd_tensor t, int how, xd_tensor *host)
{
    void *tmp;
    *host = t;
    if (!xd_stage_on_device(w, t))
        return 1;
    *host = xd_view(NULL, t.type, t.nd, t.d);
    host->p = xd_stage_alloc(w, k, 0, xd_bytes(*host));
    if (!host->p)
        return 0;
    if (how & XD_STAGE_FILLS && !xd_stage_copies_add(&k->up, t, host->p))
        return 0;
    if (how & XD_STAGE_READS && !xd_contiguous(t)) {
        xd_tensor packed;
        if (!hold_packed(w, k, t, &packed, &tmp))
            return 0;
        copy_views(w, packed, t, tmp);
        t = packed;
    }
    return how & XD_STAGE_READS ? xd_stage_copies_add(&k->down, t, host->p) : 1;
}

void xd_stage_download(xd_staging *w, xd_stage_call *k)
{
    const xd_dev_lanes *l = w->lanes;
    xd_dev             *d = w->dev;
    xd_status           st = XD_OK;
    if (l && k->down.n + k->up.n)
        st = l->set(d, k->before, XD_LANE_COMPUTE);
    if (l && k->down.n && st == XD_OK)
        st = l->follow(d, XD_LANE_OUT, k->before);
    for (int i = 0; i < k->down.n && st == XD_OK; i++) {
        const xd_stage_copy *v = &k->down.at[i];
        st = l ? l->down(d, XD_LANE_OUT, v->p, v->t.p, xd_bytes(v->t))
               : d->mem->download(d, NULL, v->p, v->t.p, xd_bytes(v->t));
    }
    if (l && k->down.n && st == XD_OK)
        st = l->set(d, k->out, XD_LANE_OUT);
    fail(w, st, "copied from");
}

int xd_stage_downloaded(const xd_staging *w, const xd_stage_call *k)
{
    return !w->lanes || !k->down.n || w->lanes->reached(w->dev, k->out);
}

/* Queues the copy of received data from the host to its device tensor, through a contiguous buffer
 * if the tensor has strides. */
static xd_status come(xd_staging *w, const xd_stage_copy *v, void *to)
{
    return w->lanes ? w->lanes->up(w->dev, XD_LANE_IN, to, v->p, xd_bytes(v->t))
                    : w->dev->mem->upload(w->dev, NULL, to, v->p, xd_bytes(v->t));
}

/* Queues the copies of all received data to the device. Sets *packed to 1 if the compute stream
 * must unpack some of the data. */
static int copy_up(xd_staging *w, xd_stage_call *k, xd_status *st)
{
    for (int i = 0; i < k->up.n && *st == XD_OK; i++) {
        xd_stage_copy *v = &k->up.at[i];
        xd_tensor      packed = v->t;
        void          *tmp;
        if (!xd_contiguous(v->t) && !hold_packed(w, k, v->t, &packed, &tmp))
            return 0;
        *st = come(w, v, packed.p);
        v->p = packed.p;
    }
    return 1;
}

static void unpack(xd_staging *w, xd_stage_call *k)
{
    for (int i = 0; i < k->up.n; i++) {
        const xd_stage_copy *v = &k->up.at[i];
        xd_tensor            packed = xd_view(v->p, v->t.type, v->t.nd, v->t.d);
        if (!xd_contiguous(v->t))
            xd_stage_copy_on_device(w, v->t, packed);
    }
}

int xd_stage_end(xd_staging *w, xd_stage_call *k)
{
    const xd_dev_lanes *l = w->lanes;
    xd_dev             *d = w->dev;
    xd_status           st = XD_OK;
    if (!k->up.n) {
        make_idle(w, k);
        return 1;
    }
    if (l)
        st = l->follow(d, XD_LANE_IN, k->before);
    if (!copy_up(w, k, &st))
        return 0;
    fail(w, st, "copied to");
    if (l)
        xd_stage_follow(w, k);
    if (st == XD_OK)
        unpack(w, k);
    xd_stage_finish(w, k);
    return 1;
}

void xd_stage_follow(xd_staging *w, xd_stage_call *k)
{
    xd_status st = w->lanes->set(w->dev, k->in, XD_LANE_IN);
    if (st == XD_OK)
        st = w->lanes->follow(w->dev, XD_LANE_COMPUTE, k->in);
    fail(w, st, "awaited on");
}

void xd_stage_finish(xd_staging *w, xd_stage_call *k)
{
    if (!w->lanes) {
        make_idle(w, k);
        return;
    }
    w->lanes->set(w->dev, k->before, XD_LANE_COMPUTE);
    k->last = k->packed ? k->before : k->in;
    k->next = NULL;
    *w->last_ending = k;
    w->last_ending = &k->next;
    w->nending++;
}

/* ---- opening ------------------------------------------------------------------------------ */

xd_staging *xd_staging_open(xd_dev *dev, const xd_comm *c)
{
    xd_staging *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    *w = (xd_staging){ .dev = dev,
                       .lanes = dev->lanes,
                       .err = c->err,
                       .users = 1,
                       .size = c->size,
                       .traffic = c->traffic };
    w->last_waiting = &w->waiting;
    w->last_ending = &w->ending;
    return w;
}

void xd_staging_close(xd_staging *w)
{
    if (--w->users)
        return;
    if (w->links)
        xd_links_close(w->links);
    if (w->mailboxes)
        xd_mailboxes_close(w->mailboxes);
    w->dev->mem->sync(w->dev, NULL);
    for (xd_stage_call *k; (k = w->ending);) {
        while (!w->lanes->reached(w->dev, k->last))
            sched_yield();
        w->ending = k->next;
        make_idle(w, k);
    }
    for (xd_stage_call *k; (k = w->idle);) {
        w->idle = k->next;
        free_call(w, k);
    }
    for (int i = 0; i < 2; i++)
        for (xd_stage_buffer **at = i ? &w->packed : &w->pinned, *b; (b = *at);) {
            *at = b->next;
            put_memory(w, i, b);
        }
    free(w);
}
