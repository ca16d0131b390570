/* about.c - lists what the library contains (such as models and devices), and tests messages
 * between ranks */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/par.h"
#include "base/record.h"
#include "comm/comm.h"
#include "io/image.h"
#include "model/model.h"
#include "tok/tok.h"
#include "xdit/tools.h"

static void report_number(xd_fact *fact, void *cookie, const char *name, size_t n)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", n);
    fact(cookie, name, text);
}

void xd_about(xd_fact *fact, void *cookie)
{
    xd_err  e = { 0 };
    xd_dev *d = NULL;
    size_t  machine = 0, process = 0;
    char   *hub = xd_model_hub();
    xd_dev_about(fact, cookie);
    xd_comm_about(fact, cookie);
    xd_image_about(fact, cookie);
    xd_tok_about(fact, cookie);
    xd_json_about(fact, cookie);
    if (xd_dev_open(&d, NULL, &e) == XD_OK) {
        fact(cookie, "kernels", d->name);
        fact(cookie, "type", xd_dev_best(d) == XD_BF16 ? "bf16" : "f32");
    } else {
        fact(cookie, "kernels_error", e.msg);
    }
    xd_dev_close(&d);
    xd_host_memory(&machine, &process);
    report_number(fact, cookie, "cores", (size_t)xd_par_cores());
    report_number(fact, cookie, "memory", machine);
    report_number(fact, cookie, "address_space", process);
    if (hub)
        fact(cookie, "hub", hub);
    free(hub);
}

int64_t xd_oom_kills(int *group)
{
    return (int64_t)xd_host_oom_kills(group);
}

/* ---- messages ----------------------------------------------------------------------------- */

enum { TRIPS = 200, LONG_TRIPS = 5, LONG_BYTES = 8000000 };

/* Sends a message of `n` bytes from rank 0 to rank 1 and back. Rank 1 changes the first and the
 * last byte of the message. */
static xd_status round_trip(xd_comm *c, uint8_t *buf, int64_t n, xd_err *e)
{
    xd_tensor t = xd_view(buf, XD_U8, 1, &n);
    int       peer = 1 - c->rank;
    for (int turn = 0; turn < 2; turn++) {
        xd_req r = turn == c->rank ? c->ops->send(c, t, peer) : c->ops->recv(c, t, peer);
        if (c->ops->wait(c, &r, 1) != XD_OK)
            return xd_fail(e, XD_ECOMM, "%s",
                           c->err->msg[0] ? c->err->msg : "a message between ranks failed");
        if (turn != c->rank && (buf[0] != (uint8_t)(turn + 1) || buf[n - 1] != (uint8_t)(turn + 1)))
            return xd_fail(e, XD_ECOMM, "a message of %lld bytes was received with wrong bytes",
                           (long long)n);
        buf[0] = buf[n - 1] = (uint8_t)(c->rank + 1);
    }
    return XD_OK;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Returns the median seconds of a message's round trip between ranks 0 and 1. */
static xd_status median_round_trip(xd_comm *c, uint8_t *buf, int64_t bytes, int n, double *median,
                                   xd_err *e)
{
    double    took[TRIPS];
    xd_status s = XD_OK;
    memset(buf, c->rank + 1, (size_t)bytes);
    for (int i = -2; i < n && s == XD_OK; i++) {
        double t0 = xd_now_s();
        s = round_trip(c, buf, bytes, e);
        took[i < 0 ? 0 : i] = xd_now_s() - t0;
    }
    qsort(took, (size_t)n, sizeof *took, by_size);
    *median = took[n / 2];
    return s;
}

void xd_pinged_init_size(xd_pinged *p, size_t size)
{
    xd_record_init(p, size);
}

xd_status xd_ping(xd_pinged *out, xd_err *e)
{
    xd_pinged own = { 0 }, *p = &own;
    if (xd_record_write(out, &own, sizeof own, "xd_pinged", e) != XD_OK)
        return XD_EINVAL;
    xd_comm *c = NULL;
    uint8_t *buf = malloc(LONG_BYTES);
    double   round_s = 0, long_s = 1;
    if (!buf)
        return xd_fail(e, XD_ENOMEM, "no memory for a message of %d bytes", LONG_BYTES);
    xd_status s = xd_comm_world(&c, "mpi", e);
    if (s == XD_OK && c->size < 2)
        s = xd_fail(e, XD_ECOMM, "a message test needs at least two ranks, and there is one");
    if (s == XD_OK && c->rank < 2) {
        s = median_round_trip(c, buf, 1, TRIPS, &round_s, e);
        if (s == XD_OK)
            s = median_round_trip(c, buf, LONG_BYTES, LONG_TRIPS, &long_s, e);
    }
    if (s == XD_OK) {
        c->ops->barrier(c);
        *p = (xd_pinged){ .ranks = c->size,
                          .latency_s = round_s / 2,
                          .bytes_s = 2.0 * LONG_BYTES / long_s };
    }
    if (s != XD_ECOMM)
        xd_comm_close(&c);
    free(buf);
    return s == XD_OK ? xd_record_write(out, &own, sizeof own, "xd_pinged", e) : s;
}
