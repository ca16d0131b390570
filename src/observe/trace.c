/* trace.c - records events, such as ops and messages, in a growing array */
#include "observe/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* FIRST: number of events in the first allocation; MAX_EVENTS: max number of recorded events */
enum { FIRST = 1 << 14, MAX_EVENTS = 1 << 23 };

static const char *const phases[] = {
    "open", "prepare", "text", "load", "denoise", "decode", "collect", "finish",
};
enum { NPHASES = sizeof phases / sizeof *phases };

xd_status xd_trace_open(xd_trace **out, const char *path, xd_err *e)
{
    xd_trace *t = calloc(1, sizeof *t);
    *out = NULL;
    if (t)
        t->path = strdup(path), t->ev = malloc(FIRST * sizeof *t->ev);
    if (!t || !t->path || !t->ev) {
        xd_trace_close(&t);
        return xd_fail(e, XD_ENOMEM, "no memory for a trace");
    }
    t->cap = FIRST;
    t->on = 1;
    t->phase = -1;
    xd_trace_phase(t, "open");
    *out = t;
    return XD_OK;
}

void xd_trace_close(xd_trace **t)
{
    if (!*t)
        return;
    free((*t)->path);
    free((*t)->ev);
    free((*t)->fly);
    free(*t);
    *t = NULL;
}

int64_t xd_trace_now(const xd_trace *t)
{
    return t && t->on ? xd_now_ns() : 0;
}

void xd_trace_put(xd_trace *t, xd_event ev)
{
    if (t->n == t->cap) {
        xd_event *more = t->cap < MAX_EVENTS ? realloc(t->ev, (size_t)t->cap * 2 * sizeof *more)
                                             : NULL;
        if (!more) {
            t->lost++;
            return;
        }
        t->ev = more;
        t->cap *= 2;
    }
    t->ev[t->n++] = ev;
}

void xd_trace_add(xd_trace *t, xd_event_kind kind, int64_t t0, int a, int b, int c)
{
    if (t && t->on)
        xd_trace_put(t, (xd_event){ t0, xd_now_ns(), 0, (int32_t)kind, a, b, c });
}

void xd_trace_collect(xd_trace *t)
{
    int n = t && t->on ? xd_stamps_read(&t->device) : 0;
    for (int i = 0; i < n; i++) {
        const xd_stamped *v = &t->device.v[i];
        xd_trace_put(t, (xd_event){ v->begin, v->end, 0, XD_EV_DEVICE, (int32_t)v->op, 0, 0 });
    }
}

void xd_trace_phase(xd_trace *t, const char *name)
{
    if (!t || !t->on)
        return;
    xd_trace_collect(t);
    int64_t now = xd_now_ns();
    if (t->phase >= 0)
        xd_trace_put(t, (xd_event){ t->phase_t0, now, 0, XD_EV_PHASE, t->phase, 0, 0 });
    t->phase = -1;
    t->phase_t0 = now;
    for (int i = 0; name && i < NPHASES; i++)
        if (strcmp(phases[i], name) == 0)
            t->phase = i;
}

void xd_trace_again(xd_trace *t)
{
    if (!t)
        return;
    if (t->requests++)
        t->n = t->lost = t->nfly = 0;
    t->on = 1;
    t->phase = -1;
    xd_trace_phase(t, "prepare");
}

const char *xd_trace_phase_name(int phase)
{
    return phase >= 0 && phase < NPHASES ? phases[phase] : "phase";
}
