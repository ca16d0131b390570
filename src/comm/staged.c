/* staged.c - device memory -> host memory -> message -> host memory -> device memory */
#include "comm/staged.h"

#include <stdlib.h>
#include <string.h>

#include "comm/kinds.h"

typedef struct buffer {         /* host memory that a call uses until it ends                  */
    struct buffer *next;
    size_t         cap;
    char          *p;
} buffer;

typedef struct pending_upload { /* host data to copy to the device when the call ends          */
    xd_tensor to;
    char     *from;
} pending_upload;

typedef struct call {           /* a pending call                                              */
    struct call *next;
    xd_req       real;
    buffer      *held;
    pending_upload *uploads;
    xd_tensor   *view;          /* [2 size]: host views of the tensors of an exchange          */
    int          nuploads, cap;
} call;

typedef struct staged {
    xd_comm  c;
    xd_comm *real;
    xd_dev  *dev;
    buffer  *unused;            /* free buffers                                                */
    call    *idle;
    void    *pack;              /* device memory for packed views                              */
    size_t   pack_bytes;
} staged;

static staged *staged_of(xd_comm *c)
{
    return (staged *)(void *)c;
}

/* Without memory this rank cannot take part in messages, so all ranks are ended. */
static void no_memory(staged *s, size_t bytes)
{
    xd_fail(s->c.err, XD_ENOMEM, "no memory for a message of %zu bytes", bytes);
    s->real->ops->abort(s->real, 1);
}

/* ---- memory of a call --------------------------------------------------------------------- */

static call *begin_call(staged *s)
{
    call *k = s->idle;
    if (k) {
        s->idle = k->next;
        k->next = NULL;
        return k;
    }
    k = calloc(1, sizeof *k);
    if (k)
        k->view = calloc(2 * (size_t)s->c.size, sizeof *k->view);
    if (!k || !k->view)
        no_memory(s, sizeof *k);
    return k;
}

static char *hold_buffer(staged *s, call *k, size_t bytes)
{
    buffer **at = &s->unused, *b;
    while (*at && (*at)->cap < bytes)
        at = &(*at)->next;
    if ((b = *at)) {
        *at = b->next;
    } else if (!(b = calloc(1, sizeof *b)) || !(b->p = malloc(b->cap = bytes + 1))) {
        no_memory(s, bytes);
        return NULL;
    }
    b->next = k->held;
    k->held = b;
    return b->p;
}

static void end_call(staged *s, call *k)
{
    while (k->held) {
        buffer *b = k->held;
        k->held = b->next;
        b->next = s->unused;
        s->unused = b;
    }
    k->nuploads = 0;
    k->real = (xd_req){ 0 };
    k->next = s->idle;
    s->idle = k;
}

/* ---- between device and host -------------------------------------------------------------- */

static int is_ours(staged *s, xd_tensor t)
{
    return xd_comm_bytes(t) && s->dev->mem->owns(s->dev, t.p);
}

/* A contiguous view of `shape` in device memory, which the next call of this function reuses. */
static xd_tensor pack_view(staged *s, xd_tensor shape, void **tmp, size_t *scratch)
{
    xd_tensor t = xd_view(NULL, shape.type, shape.nd, shape.d);
    xd_copy   args = { t, shape };
    size_t    bytes = (xd_bytes(t) + 255) / 256 * 256;
    *scratch = s->dev->ops->scratch(s->dev, XD_OP_COPY, &args);
    if (s->pack_bytes < bytes + *scratch) {
        if (s->pack)
            s->dev->mem->put(s->dev, s->pack, s->pack_bytes);
        s->pack_bytes = bytes + *scratch;
        if (!(s->pack = s->dev->mem->get(s->dev, s->pack_bytes)))
            no_memory(s, s->pack_bytes);
    }
    t.p = s->pack;
    *tmp = *scratch ? (char *)s->pack + bytes : NULL;
    return t;
}

static void copy_on_device(staged *s, xd_tensor to, xd_tensor from, void *tmp)
{
    xd_status st = s->dev->ops->copy(s->dev, NULL, &(xd_copy){ to, from }, tmp);
    if (st != XD_OK)
        xd_fail(s->c.err, st, "a message cannot be packed on %s: %s", s->dev->name,
                xd_status_name(st));
}

/* Copies the elements of a device view to contiguous host memory. */
static void download(staged *s, char *to, xd_tensor from)
{
    void  *tmp;
    size_t scratch;
    if (!xd_contiguous(from)) {
        xd_tensor packed = pack_view(s, from, &tmp, &scratch);
        copy_on_device(s, packed, from, tmp);
        from = packed;
    }
    if (s->dev->mem->download(s->dev, NULL, to, from.p, xd_bytes(from)) != XD_OK)
        xd_fail(s->c.err, XD_EDEVICE, "a message cannot be copied from %s", s->dev->name);
}

static void upload(staged *s, xd_tensor to, const char *from)
{
    void     *tmp;
    size_t    scratch;
    xd_tensor packed = xd_contiguous(to) ? to : pack_view(s, to, &tmp, &scratch);
    if (s->dev->mem->upload(s->dev, NULL, packed.p, from, xd_bytes(packed)) != XD_OK)
        xd_fail(s->c.err, XD_EDEVICE, "a message cannot be copied to %s", s->dev->name);
    if (packed.p != to.p)
        copy_on_device(s, to, packed, tmp);
}

enum { GOES = 1, COMES = 2 };   /* a call reads the tensor; fills it                           */

/* The host view of a tensor, for the communicator behind this one. */
static xd_tensor stage_view(staged *s, call *k, xd_tensor t, int how)
{
    if (!is_ours(s, t))
        return t;
    xd_tensor h = xd_view(NULL, t.type, t.nd, t.d);
    if (!(h.p = hold_buffer(s, k, xd_bytes(h))))
        return h;
    if (how & GOES)
        download(s, h.p, t);
    if (!(how & COMES))
        return h;
    if (k->nuploads == k->cap) {
        int      cap = k->cap ? 2 * k->cap : 8;
        pending_upload *l = realloc(k->uploads, (size_t)cap * sizeof *l);
        if (!l) {
            no_memory(s, (size_t)cap * sizeof *l);
            return h;
        }
        k->uploads = l;
        k->cap = cap;
    }
    k->uploads[k->nuploads++] = (pending_upload){ t, h.p };
    return h;
}

static void upload_results(staged *s, call *k)
{
    for (int i = 0; i < k->nuploads; i++)
        upload(s, k->uploads[i].to, k->uploads[i].from);
    end_call(s, k);
}

static xd_req pending_req(call *k, xd_req real)
{
    k->real = real;
    return (xd_req){ k, 0 };
}

/* ---- calls -------------------------------------------------------------------------------- */

static xd_req staged_allreduce(xd_comm *c, xd_tensor io, xd_red op)
{
    staged *s = staged_of(c);
    call   *k = begin_call(s);
    return pending_req(k, s->real->ops->allreduce(s->real, stage_view(s, k, io, GOES | COMES), op));
}

static xd_req staged_bcast(xd_comm *c, xd_tensor io, int root)
{
    staged *s = staged_of(c);
    call   *k = begin_call(s);
    return pending_req(k, s->real->ops->bcast(
                            s->real, stage_view(s, k, io, c->rank == root ? GOES : COMES), root));
}

static xd_req staged_gather(xd_comm *c, xd_tensor out, const int64_t *rows, xd_tensor in)
{
    staged   *s = staged_of(c);
    call     *k = begin_call(s);
    xd_tensor from = stage_view(s, k, in, GOES), to = stage_view(s, k, out, COMES);
    return pending_req(k, s->real->ops->gather(s->real, to, rows, from));
}

static xd_req staged_circulate(xd_comm *c, const xd_tensor *part)
{
    staged *s = staged_of(c);
    call   *k = begin_call(s);
    for (int r = 0; r < c->size; r++)
        k->view[r] = stage_view(s, k, part[r], r == c->rank ? GOES : COMES);
    return pending_req(k, s->real->ops->circulate(s->real, k->view));
}

static xd_req staged_exchange(xd_comm *c, const xd_tensor *give, const xd_tensor *get)
{
    staged    *s = staged_of(c);
    call      *k = begin_call(s);
    xd_tensor *from = k->view, *to = k->view + c->size;
    for (int r = 0; r < c->size; r++) {
        from[r] = stage_view(s, k, give[r], GOES);
        to[r] = stage_view(s, k, get[r], COMES);
    }
    return pending_req(k, s->real->ops->exchange(s->real, from, to));
}

static xd_req staged_views(xd_comm *c, const xd_tensor *give, xd_tensor *get)
{
    return staged_exchange(c, give, get);
}

static xd_req staged_places(xd_comm *c, const xd_tensor *give, xd_tensor *get)
{
    (void)c, (void)give, (void)get;
    return (xd_req){ 0 };
}

static xd_req staged_send(xd_comm *c, xd_tensor t, int to)
{
    staged *s = staged_of(c);
    call   *k = begin_call(s);
    return pending_req(k, s->real->ops->send(s->real, stage_view(s, k, t, GOES), to));
}

static xd_req staged_recv(xd_comm *c, xd_tensor t, int from)
{
    staged *s = staged_of(c);
    call   *k = begin_call(s);
    return pending_req(k, s->real->ops->recv(s->real, stage_view(s, k, t, COMES), from));
}

static xd_status staged_wait(xd_comm *c, xd_req *r, int n)
{
    staged   *s = staged_of(c);
    xd_status all = XD_OK;
    for (int i = 0; i < n; i++) {
        call *k = r[i].p;
        if (!k)
            continue;
        xd_status st = s->real->ops->wait(s->real, &k->real, 1);
        all = all == XD_OK ? st : all;
        upload_results(s, k);
        r[i] = (xd_req){ 0 };
    }
    return all;
}

static int staged_test(xd_comm *c, xd_req *r)
{
    staged *s = staged_of(c);
    call   *k = r->p;
    if (!k)
        return 1;
    if (!s->real->ops->test(s->real, &k->real))
        return 0;
    upload_results(s, k);
    *r = (xd_req){ 0 };
    return 1;
}

static void staged_drop(xd_comm *c, xd_req *r, int n)
{
    staged *s = staged_of(c);
    for (int i = 0; i < n; i++) {
        call *k = r[i].p;
        if (!k)
            continue;
        s->real->ops->drop(s->real, &k->real, 1);
        end_call(s, k);
        r[i] = (xd_req){ 0 };
    }
}

static void staged_poke(xd_comm *c)
{
    staged_of(c)->real->ops->poke(staged_of(c)->real);
}

static void staged_barrier(xd_comm *c)
{
    staged_of(c)->real->ops->barrier(staged_of(c)->real);
}

static void staged_abort(xd_comm *c, int code)
{
    staged_of(c)->real->ops->abort(staged_of(c)->real, code);
}

/* ---- shared memory: none ------------------------------------------------------------------ */

static void *staged_share(xd_comm *c, size_t bytes, int *first)
{
    (void)c, (void)bytes;
    *first = 0;
    return NULL;
}

static void *staged_window_open(xd_comm *c, size_t bytes)
{
    (void)c, (void)bytes;
    return NULL;
}

static int staged_in_window(xd_comm *c, const void *p)
{
    (void)c, (void)p;
    return 0;
}

static void staged_window_close(xd_comm *c, void *p)
{
    (void)c, (void)p;
}

/* ---- groups ------------------------------------------------------------------------------- */

static xd_status wrap_comm(xd_comm **c, xd_dev *dev, xd_err *e);

static xd_status staged_split(xd_comm *c, int color, int key, int size, xd_comm **out, xd_err *e)
{
    staged   *s = staged_of(c);
    xd_status st = s->real->ops->split(s->real, color, key, size, out, e);
    return st == XD_OK ? wrap_comm(out, s->dev, e) : st;
}

static xd_status staged_split_host(xd_comm *c, xd_comm **out, xd_err *e)
{
    staged   *s = staged_of(c);
    xd_status st = s->real->ops->split_host(s->real, out, e);
    return st == XD_OK ? wrap_comm(out, s->dev, e) : st;
}

static void staged_close(xd_comm *c)
{
    staged *s = staged_of(c);
    while (s->unused) {
        buffer *b = s->unused;
        s->unused = b->next;
        free(b->p), free(b);
    }
    while (s->idle) {
        call *k = s->idle;
        s->idle = k->next;
        free(k->uploads), free(k->view), free(k);
    }
    if (s->pack)
        s->dev->mem->put(s->dev, s->pack, s->pack_bytes);
    xd_comm_close(&s->real);
    free(s);
}

static const xd_comm_ops ops = {
    .name = "staged",
    .split = staged_split, .split_host = staged_split_host, .close = staged_close,
    .allreduce = staged_allreduce, .bcast = staged_bcast, .gather = staged_gather,
    .circulate = staged_circulate, .exchange = staged_exchange, .exchange_views = staged_views,
    .exchange_places = staged_places, .send = staged_send, .recv = staged_recv,
    .wait = staged_wait, .test = staged_test, .drop = staged_drop, .poke = staged_poke,
    .barrier = staged_barrier, .share = staged_share, .window_open = staged_window_open,
    .in_window = staged_in_window, .window_close = staged_window_close, .abort = staged_abort,
};

static xd_status wrap_comm(xd_comm **c, xd_dev *dev, xd_err *e)
{
    staged *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for a group of %d ranks", (*c)->size);
    s->c = (xd_comm){ &ops, (*c)->rank, (*c)->size, (*c)->traffic, (*c)->err, NULL };
    s->real = *c;
    s->dev = dev;
    *c = &s->c;
    return XD_OK;
}

xd_status xd_comm_stage(xd_comm **c, xd_dev *dev, xd_err *e)
{
    return dev->host_memory ? XD_OK : wrap_comm(c, dev, e);
}
