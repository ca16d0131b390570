/* mpi_op.c - starts pending MPI operations, stages their data, advances them, and waits for their
 * end */
#include "comm/mpi_op.h"

#include "base/log.h"
#include "comm/kinds.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The max bytes of one MPI message. MPI counts bytes in an int, so a longer message is sent as
 * several MPI messages, which arrive in order. */
#define PIECE ((size_t)1 << 30)

enum { CLASSES = 64, TAGS = 8000 };

static struct {
    xd_mpi_op      *free_ops;       /* list of free operations, which keep their arrays for reuse */
    xd_mpi_op      *later;          /* pending operations that have a further phase of messages */
    xd_mpi_staging *stage[CLASSES]; /* stage[i]: free buffers of 2^i bytes */
    int64_t         serial;
} all;

/* ---- failures -------------------------------------------------------------------------- */

static void record_error(xd_mpi_world *w, int rank, xd_status code, const char *text)
{
    if (w->err.code != XD_OK)
        return;
    xd_fail(&w->err, code, "%s", text);
    w->err.rank = rank;
    xd_log(XD_LOG_ERROR, "rank %d: %s", rank, text);
}

xd_status xd_mpi_fail(xd_mpi_world *w, int rank, const char *what, int code)
{
    char why[MPI_MAX_ERROR_STRING + 1] = "", text[MPI_MAX_ERROR_STRING + 200];
    int  n = 0, kind = MPI_ERR_OTHER;
    if (MPI_Error_string(code, why, &n) != MPI_SUCCESS)
        snprintf(why, sizeof why, "MPI error %d", code);
    snprintf(text, sizeof text, "%s failed: %s", what, why);
    record_error(w, rank, XD_ECOMM, text);
    if (MPI_Error_class(code, &kind) != MPI_SUCCESS || kind != MPI_ERR_TRUNCATE)
        /* All errors except truncation mean that a message is lost; a truncated message has
         * arrived. */
        w->lost = 1;
    return XD_ECOMM;
}

void xd_mpi_op_fail(xd_mpi_op *j, xd_status code, const char *fmt, ...)
{
    char    text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (j->status == XD_OK)
        j->status = code;
    record_error(j->g->world, j->g->world->rank, code, text);
    if (code == XD_ENOMEM) /* out of memory: the message will never be sent */
        j->g->world->lost = 1;
}

static void fail_mpi(xd_mpi_op *j, const char *what, int peer, int code)
{
    char text[64];
    snprintf(text, sizeof text, "%s rank %d of a group of %d", what, peer, j->g->c.size);
    j->status = xd_mpi_fail(j->g->world, j->g->world->rank, text, code);
}

/* ---- memory ---------------------------------------------------------------------------- */

char *xd_mpi_op_stage(xd_mpi_op *j, size_t bytes)
{
    int i = 6;
    while (i < CLASSES - 1 && ((size_t)1 << i) < bytes)
        i++;
    xd_mpi_staging *s = all.stage[i];
    if (s) {
        all.stage[i] = s->next;
    } else {
        s = malloc(sizeof *s);
        char *p = s ? malloc((size_t)1 << i) : NULL;
        if (!p) {
            free(s);
            xd_mpi_op_fail(j, XD_ENOMEM, "no memory for %zu bytes of messages", bytes);
            return NULL;
        }
        *s = (xd_mpi_staging){ .cap = (size_t)1 << i, .p = p };
    }
    s->next = j->stages;
    j->stages = s;
    return s->p;
}

static void return_staging(xd_mpi_op *j)
{
    for (xd_mpi_staging *s = j->stages, *next; s; s = next) {
        int i = 6;
        while (((size_t)1 << i) < s->cap)
            i++;
        next = s->next;
        s->next = all.stage[i];
        all.stage[i] = s;
    }
    j->stages = NULL;
}

/* Grows an array to `cap` elements of `size` bytes. Returns 1 on success, or 0 if out of memory. */
static int grow_array(void **p, int cap, size_t size)
{
    void *q = realloc(*p, (size_t)cap * size);
    if (q)
        *p = q;
    return q != NULL;
}

static int reserve_request(xd_mpi_op *j)
{
    int   cap = j->cap ? j->cap * 2 : 16;
    void *req = j->req, *st = j->st, *part = j->part;
    if (j->n < j->cap)
        return 1;
    int ok = grow_array(&req, cap, sizeof *j->req) & grow_array(&st, cap, sizeof *j->st) &
             grow_array(&part, cap, sizeof *j->part);
    j->req = req;
    j->st = st;
    j->part = part;
    if (ok)
        j->cap = cap;
    else
        xd_mpi_op_fail(j, XD_ENOMEM, "no memory for %d messages", cap);
    return ok;
}

static void free_op(xd_mpi_op *j)
{
    free(j->req);
    free(j->st);
    free(j->part);
    free(j->move);
    free(j);
}

void xd_mpi_free_lists(void)
{
    for (xd_mpi_op *j = all.free_ops, *next; j; j = next) {
        next = j->next;
        free_op(j);
    }
    for (int i = 0; i < CLASSES; i++)
        for (xd_mpi_staging *s = all.stage[i], *next; s; s = next) {
            next = s->next;
            free(s->p);
            free(s);
        }
    all.free_ops = NULL;
    memset(all.stage, 0, sizeof all.stage);
}

/* ---- posting --------------------------------------------------------------------------- */

/* Begins an operation, or returns NULL. Each collective operation has four message tags. Later
 * operations use the same tags again only long after the messages of this operation have
 * arrived. */
xd_mpi_op *xd_mpi_op_begin(xd_comm *c, int collective)
{
    xd_mpi_group *g = c->priv;
    xd_mpi_op    *j = all.free_ops;
    int           tag = collective ? 4 + 4 * (g->seq++ % TAGS) : 0;
    if (g->seq == TAGS)
        g->seq = 0;
    if (g->world->lost)
        return NULL;
    if (j)
        all.free_ops = j->next;
    else if (!(j = calloc(1, sizeof *j))) {
        record_error(g->world, g->world->rank, XD_ENOMEM, "no memory for a message");
        g->world->lost = 1;
        return NULL;
    }
    j->next = NULL;
    j->g = g;
    j->serial = ++all.serial;
    j->status = XD_OK;
    j->ended = j->n = j->nmove = j->nviews = 0;
    j->views = NULL;
    j->kind = XD_EXCHANGE_COPY;
    j->tag = tag;
    j->then = NULL;
    return j;
}

static void post_message(xd_mpi_op *j, char *p, size_t bytes, int peer, int send)
{
    while (bytes && reserve_request(j)) {
        int n = (int)(bytes < PIECE ? bytes : PIECE), code;
        if (send)
            code = MPI_Isend(p, n, MPI_BYTE, peer, j->tag, j->g->mpi, &j->req[j->n]);
        else
            code = MPI_Irecv(p, n, MPI_BYTE, peer, j->tag, j->g->mpi, &j->req[j->n]);
        if (code != MPI_SUCCESS) {
            fail_mpi(j, send ? "sending to" : "receiving from", peer, code);
            return;
        }
        j->part[j->n++] = (xd_mpi_peer){ send ? -1 : n, peer };
        p += n;
        bytes -= (size_t)n;
    }
}

void xd_mpi_op_send_uncounted(xd_mpi_op *j, const void *p, size_t bytes, int to)
{
    char *q;
    memcpy(&q, &p, sizeof q); /* MPI only reads the buffer */
    post_message(j, q, bytes, to, 1);
}

void xd_mpi_op_count(xd_mpi_op *j, size_t bytes, int to)
{
    if (bytes && to != j->g->c.rank) {
        j->g->world->traffic.bytes += (int64_t)bytes;
        j->g->world->traffic.messages++;
    }
}

void xd_mpi_op_send(xd_mpi_op *j, const void *p, size_t bytes, int to)
{
    xd_mpi_op_count(j, bytes, to);
    xd_mpi_op_send_uncounted(j, p, bytes, to);
}

void xd_mpi_op_recv(xd_mpi_op *j, void *p, size_t bytes, int from)
{
    post_message(j, p, bytes, from, 0);
}

void xd_mpi_op_send_view(xd_mpi_op *j, xd_tensor t, int to)
{
    size_t bytes = xd_comm_bytes(t);
    if (!bytes)
        return;
    void *p = t.p;
    if (!xd_contiguous(t) && (p = xd_mpi_op_stage(j, bytes)))
        xd_comm_pack(p, t);
    if (p)
        xd_mpi_op_send(j, p, bytes, to);
}

void xd_mpi_op_recv_view(xd_mpi_op *j, xd_tensor t, int from)
{
    size_t bytes = xd_comm_bytes(t);
    if (!bytes)
        return;
    if (xd_contiguous(t)) {
        xd_mpi_op_recv(j, t.p, bytes, from);
        return;
    }
    if (j->nmove == j->capmove) {
        int   cap = j->capmove ? j->capmove * 2 : 16;
        void *m = j->move;
        int   ok = grow_array(&m, cap, sizeof *j->move);
        j->move = m;
        if (!ok) {
            xd_mpi_op_fail(j, XD_ENOMEM, "no memory for %d messages", cap);
            return;
        }
        j->capmove = cap;
    }
    char *p = xd_mpi_op_stage(j, bytes);
    if (!p)
        return;
    j->move[j->nmove++] = (xd_mpi_scatter){ t, p };
    xd_mpi_op_recv(j, p, bytes, from);
}

/* ---- progress -------------------------------------------------------------------------- */

static void unlink_op(xd_mpi_op *j)
{
    if (!j->at)
        return;
    *j->at = j->next;
    if (j->next)
        j->next->at = j->at;
    j->at = NULL;
    j->next = NULL;
}

static void release_op(xd_mpi_op *j)
{
    unlink_op(j);
    return_staging(j);
    j->serial = 0;
    j->next = all.free_ops;
    all.free_ops = j;
}

/* Checks the finished MPI requests of an operation. The operation fails if a message failed or had
 * another size than expected. */
static void check_messages(xd_mpi_op *j, int code)
{
    for (int i = 0; i < j->n; i++) {
        const xd_mpi_peer *p = &j->part[i];
        int                got = 0;
        if (code == MPI_ERR_IN_STATUS && j->st[i].MPI_ERROR != MPI_SUCCESS &&
            j->st[i].MPI_ERROR != MPI_ERR_PENDING)
            fail_mpi(j, p->expect < 0 ? "sending to" : "receiving from", p->peer,
                     j->st[i].MPI_ERROR);
        if (code == MPI_SUCCESS && p->expect >= 0 &&
            MPI_Get_count(&j->st[i], MPI_BYTE, &got) == MPI_SUCCESS && got != p->expect)
            xd_mpi_op_fail(j, XD_ECOMM,
                           "rank %d of a group of %d sent %d bytes; %lld were expected", p->peer,
                           j->g->c.size, got, (long long)p->expect);
    }
    if (code != MPI_SUCCESS && j->status == XD_OK)
        j->status = xd_mpi_fail(j->g->world, j->g->world->rank, "a message", code);
}

/* Tests an operation once and runs as many of its phases as are ready. Returns 1 if the operation
 * is complete. */
static int advance_op(xd_mpi_op *j)
{
    while (!j->ended) {
        int flag = 1, code = MPI_SUCCESS;
        if (j->n)
            code = MPI_Testall(j->n, j->req, &flag, j->st);
        if (code == MPI_SUCCESS && !flag)
            return 0;
        check_messages(j, code);
        j->n = 0;
        for (int i = 0; i < j->nmove; i++)
            xd_comm_unpack(j->move[i].to, j->move[i].from);
        j->nmove = 0;
        void (*then)(xd_mpi_op *) = code == MPI_SUCCESS ? j->then : NULL;
        j->then = NULL;
        if (then)
            then(j);
        else
            j->ended = 1;
    }
    unlink_op(j);
    return 1;
}

void xd_mpi_advance(void)
{
    for (xd_mpi_op *j = all.later, *next; j; j = next) {
        next = j->next;
        advance_op(j);
    }
}

xd_req xd_mpi_op_start(xd_mpi_op *j)
{
    if (!j)
        return (xd_req){ &all, -(int64_t)XD_ECOMM };
    xd_req r = { j, j->serial };
    if (!j->n && advance_op(j) && j->status == XD_OK) {
        release_op(j);
        return (xd_req){ 0 };
    }
    if (j->then) {
        j->next = all.later;
        j->at = &all.later;
        if (j->next)
            j->next->at = &j->next;
        all.later = j;
    }
    return r;
}

/* ---- waiting --------------------------------------------------------------------------- */

/* Returns the operation of a request, or NULL if the operation is already complete. */
static xd_mpi_op *op_of(xd_req r)
{
    xd_mpi_op *j = r.tag > 0 ? r.p : NULL;
    return j && j->serial == r.tag ? j : NULL;
}

xd_status xd_mpi_wait(xd_comm *c, xd_req *r, int n)
{
    xd_status s = XD_OK;
    (void)c;
    for (int i = 0; i < n; i++) {
        xd_mpi_op *j = op_of(r[i]);
        if (s == XD_OK && r[i].tag < 0)
            s = (xd_status)-r[i].tag;
        r[i] = (xd_req){ 0 };
        if (!j)
            continue;
        const xd_mpi_world *w = j->g->world;
        for (int polls = 0; !advance_op(j) && j->status == XD_OK && !w->lost;
             polls += polls < 1 << 20) {
            xd_mpi_advance();
            xd_mpi_idle(polls);
        }
        if (s == XD_OK)
            s = j->ended || j->status != XD_OK ? j->status : XD_ECOMM;
        if (j->ended) /* MPI still uses the buffers of an incomplete operation */
            release_op(j);
    }
    return s;
}

/* Returns 1 if an operation is complete. A failed operation counts as complete, even if some of the
 * operation's messages never arrive. xd_mpi_wait returns the error of a failed operation. */
int xd_mpi_test(xd_comm *c, xd_req *r)
{
    xd_mpi_op *j = op_of(*r);
    (void)c;
    if (!j) {
        if (r->tag >= 0)
            *r = (xd_req){ 0 };
        return 1;
    }
    xd_mpi_advance();
    if (!advance_op(j))
        return j->status != XD_OK || j->g->world->lost;
    if (j->status == XD_OK) {
        release_op(j);
        *r = (xd_req){ 0 };
    }
    return 1;
}

/* Drops the given pending requests: cancels each receive whose message has not arrived, and
 * completes each receive whose message has arrived. */
void xd_mpi_drop(xd_comm *c, xd_req *r, int n)
{
    (void)c;
    for (int i = 0; i < n; i++) {
        xd_mpi_op *j = op_of(r[i]);
        r[i] = (xd_req){ 0 };
        if (!j)
            continue;
        for (int k = 0; k < j->n; k++)
            if (j->req[k] != MPI_REQUEST_NULL && j->part[k].expect >= 0)
                MPI_Cancel(&j->req[k]);
        if (j->n)
            MPI_Waitall(j->n, j->req, j->st);
        j->n = 0;
        j->nmove = 0;
        j->ended = 1;
        release_op(j);
    }
}
