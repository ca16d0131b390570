/* self.c - defines the communicator of a run on one rank: every message is sent to the rank
 * itself */
#include "comm/comm.h"

#include "comm/kinds.h"

#include <stdlib.h>
#include <string.h>

/* A send that waits for its receive, or a receive that waits for its send. */
typedef struct message message;
struct message {
    message  *next;
    xd_tensor t;
    int       sent, ended;
    int64_t   serial;
};

typedef struct block block; /* "shared" memory of the only rank */
struct block {
    block *next;
    void  *p;
};

typedef struct self {
    xd_comm    c;
    xd_traffic traffic;
    xd_err     err;
    message   *open, *unused; /* open messages, oldest first; free messages for reuse */
    int64_t    serial;
    block     *blocks;
} self;

static xd_status self_split(xd_comm *c, int color, int key, int size, xd_comm **out, xd_err *e)
{
    (void)c, (void)color, (void)key;
    *out = NULL;
    if (size != 1)
        return xd_fail(e, XD_ECOMM, "a group of %d ranks was requested, but there is only 1", size);
    return xd_comm_self(out, e);
}

static xd_status self_host(xd_comm *c, xd_comm **out, xd_err *e)
{
    (void)c;
    return xd_comm_self(out, e);
}

static void free_messages(message *l)
{
    for (message *next; l; l = next) {
        next = l->next;
        free(l);
    }
}

static void self_close(xd_comm *c)
{
    self *s = c->priv;
    free_messages(s->open);
    free_messages(s->unused);
    for (block *b = s->blocks, *next; b; b = next) {
        next = b->next;
        free(b->p);
        free(b);
    }
    free(s);
}

static xd_req failed_req(self *s, xd_status code, const char *why)
{
    xd_fail(&s->err, code, "%s", why);
    return (xd_req){ .p = s, .tag = -(int64_t)code };
}

static xd_req self_allreduce(xd_comm *c, xd_tensor io, xd_red op)
{
    (void)c, (void)io, (void)op;
    return (xd_req){ 0 };
}

static xd_req self_bcast(xd_comm *c, xd_tensor io, int root)
{
    (void)c, (void)io, (void)root;
    return (xd_req){ 0 };
}

static xd_req self_gather(xd_comm *c, xd_tensor out, const int64_t *rows, xd_tensor in)
{
    if (xd_comm_bytes(in) != (size_t)rows[0] * xd_gather_row(out))
        return failed_req(c->priv, XD_EINVAL,
                          "an all-gather has another number of rows than its argument");
    xd_comm_pack(out.p, in);
    return (xd_req){ 0 };
}

static xd_req self_circulate(xd_comm *c, const xd_tensor *part)
{
    (void)c, (void)part;
    return (xd_req){ 0 };
}

static xd_req self_exchange(xd_comm *c, const xd_tensor *give, const xd_tensor *get)
{
    if (!xd_comm_copy(get[0], give[0]))
        return failed_req(c->priv, XD_EINVAL,
                          "the views that a rank exchanges with itself differ in shape or type");
    return (xd_req){ 0 };
}

static xd_req self_exchange_views(xd_comm *c, const xd_tensor *give, xd_tensor *get)
{
    (void)c;
    get[0] = give[0];
    return (xd_req){ 0 };
}

/* Matches a send with the oldest open receive, or a receive with the oldest open send. Queues the
 * message if no open send or receive matches it. */
static xd_req match_message(self *s, xd_tensor t, int sent)
{
    message **at = &s->open, *l;
    if (!xd_comm_bytes(t))
        return (xd_req){ 0 };
    while (*at && ((*at)->ended || (*at)->sent == sent))
        at = &(*at)->next;
    if ((l = *at)) {
        if (xd_comm_bytes(t) != xd_comm_bytes(l->t))
            return failed_req(s, XD_ECOMM,
                              "a message to the same rank has another size than its receive");
        const xd_tensor *from = sent ? &t : &l->t, *to = sent ? &l->t : &t;
        memmove(to->p, from->p, xd_comm_bytes(t));
        l->ended = 1;
        return (xd_req){ 0 };
    }
    if (!(l = s->unused) && !(l = malloc(sizeof *l)))
        return failed_req(s, XD_ENOMEM, "no memory for a message of a rank to itself");
    if (s->unused)
        s->unused = l->next;
    *l = (message){ .t = t, .sent = sent, .serial = ++s->serial };
    *at = l;
    return (xd_req){ .p = s, .tag = l->serial };
}

static xd_req self_send(xd_comm *c, xd_tensor t, int to)
{
    (void)to;
    return match_message(c->priv, t, 1);
}

static xd_req self_recv(xd_comm *c, xd_tensor t, int from)
{
    (void)from;
    return match_message(c->priv, t, 0);
}

/* Returns 1 if the request is complete, and then frees the request's message. */
static int collect_req(self *s, xd_req *r)
{
    message **at = &s->open, *l;
    while (*at && (*at)->serial != r->tag)
        at = &(*at)->next;
    if ((l = *at) && !l->ended)
        return 0;
    if (l) {
        *at = l->next;
        l->next = s->unused;
        s->unused = l;
    }
    *r = (xd_req){ 0 };
    return 1;
}

static xd_status self_wait(xd_comm *c, xd_req *r, int n)
{
    self     *s = c->priv;
    xd_status code = XD_OK;
    for (int i = 0; i < n; i++) {
        if (r[i].p && r[i].tag < 0)
            code = code ? code : (xd_status)-r[i].tag;
        else if (r[i].p && !collect_req(s, &r[i]))
            code = xd_fail(&s->err, XD_ECOMM,
                           "a rank waits for a message to itself that was never "
                           "sent or received");
        r[i] = (xd_req){ 0 };
    }
    return code;
}

static int self_test(xd_comm *c, xd_req *r)
{
    return !r->p || r->tag < 0 || collect_req(c->priv, r);
}

static void self_nothing(xd_comm *c)
{
    (void)c;
}

static void *self_share(xd_comm *c, size_t bytes, int *first)
{
    self  *s = c->priv;
    block *b = malloc(sizeof *b);
    void  *p = NULL;
    *first = 1;
    if (!b || posix_memalign(&p, 4096, bytes ? bytes : 1) != 0) {
        free(b);
        return NULL;
    }
    *b = (block){ s->blocks, p };
    s->blocks = b;
    return p;
}

static int self_in_window(xd_comm *c, const void *p)
{
    (void)c, (void)p;
    return 0;
}

static void self_abort(xd_comm *c, int code)
{
    (void)c;
    _Exit(code);
}

/* Removes the messages of n requests, so that nothing is written to the requests' buffers later. */
static void self_drop(xd_comm *c, xd_req *r, int n)
{
    self *s = c->priv;
    for (int i = 0; i < n; i++) {
        for (message **at = &s->open, *l; (l = *at); at = &l->next)
            if (l->serial == r[i].tag) {
                *at = l->next;
                free(l);
                break;
            }
        r[i] = (xd_req){ 0 };
    }
}

static const xd_comm_ops ops = {
    .name = "self",
    .split = self_split,
    .split_host = self_host,
    .close = self_close,
    .allreduce = self_allreduce,
    .bcast = self_bcast,
    .gather = self_gather,
    .circulate = self_circulate,
    .exchange = self_exchange,
    .exchange_views = self_exchange_views,
    .exchange_places = self_exchange_views,
    .send = self_send,
    .recv = self_recv,
    .wait = self_wait,
    .test = self_test,
    .drop = self_drop,
    .poke = self_nothing,
    .barrier = self_nothing,
    .share = self_share,
    .in_window = self_in_window,
    .abort = self_abort,
};

xd_status xd_comm_self(xd_comm **c, xd_err *e)
{
    self *s = calloc(1, sizeof *s);
    *c = NULL;
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for a communicator");
    s->c = (xd_comm){ .ops = &ops, .size = 1, .traffic = &s->traffic, .err = &s->err, .priv = s };
    xd_err_clear(&s->err);
    *c = &s->c;
    return XD_OK;
}
