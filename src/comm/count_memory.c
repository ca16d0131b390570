/* count_memory.c - predicts the device memory that messages between ranks need */
#include "comm/count_memory.h"

#include <stdlib.h>

#include "comm/kinds.h"
#include "comm/staging.h"

enum { BUFFER = 4096, MESSAGES = 3, CALLS = XD_STAGE_ENDING + 4 };

int xd_count_group_open(xd_count_group *g, int rank, int size)
{
    *g = (xd_count_group){ .rank = rank, .size = size };
    g->box = calloc((size_t)size, sizeof *g->box);
    g->received = calloc((size_t)size, sizeof *g->received);
    if (g->box && g->received)
        return 1;
    xd_count_group_close(g);
    return 0;
}

void xd_count_group_close(xd_count_group *g)
{
    for (int r = 0; g->box && r < g->size; r++)
        free(g->box[r].v);
    free(g->box);
    free(g->received);
    *g = (xd_count_group){ 0 };
}

void xd_count_world_close(xd_count_world *w)
{
    free(w->packed.v);
    w->packed = (xd_count_buffers){ 0 };
}

/* Reserves a free buffer until the counter reaches `until`. A buffer is free if its previous
 * reservation has ended by the counter value `now`. If no buffer is free, a new buffer is added to
 * the predicted memory. If the list of buffers cannot grow, every buffer counts as new. */
static void hold(xd_count_world *w, xd_count_buffers *l, size_t bytes, size_t unit, int64_t now,
                 int64_t until)
{
    xd_count_buffer *best = NULL;
    size_t           cap = (bytes + unit - 1) / unit * unit;
    for (int i = 0; i < l->n; i++)
        if (l->v[i].cap >= bytes && l->v[i].until <= now && (!best || l->v[i].cap < best->cap))
            best = &l->v[i];
    if (best) {
        best->until = until;
        return;
    }
    w->traffic->device_bytes += (int64_t)cap;
    if (l->n == l->cap) {
        int              grown = l->cap ? 2 * l->cap : 16;
        xd_count_buffer *v = realloc(l->v, (size_t)grown * sizeof *v);
        if (!v)
            return;
        l->v = v;
        l->cap = grown;
    }
    l->v[l->n++] = (xd_count_buffer){ cap, until };
}

static void hold_packed(xd_count_world *w, size_t bytes)
{
    hold(w, &w->packed, bytes, BUFFER, w->calls, w->calls + CALLS);
}

/* Returns 1 if messages of type t go directly between devices, by the same rule as
 * xd_direct_takes. */
static int goes_between_devices(const xd_count_world *w, xd_dtype t)
{
    return (w->traffic->way == XD_WAY_LINKS || w->traffic->way == XD_WAY_MAILBOXES) &&
           (t == XD_F32 || t == XD_F16 || t == XD_BF16);
}

void xd_count_call(xd_count_world *w)
{
    w->calls++;
}

static int is_nothing(const xd_count_world *w, const xd_count_group *g, int peer, xd_tensor t)
{
    return w->traffic->way == XD_WAY_HOST || peer == g->rank || !xd_comm_bytes(t);
}

void xd_count_send(xd_count_world *w, xd_count_group *g, int to, xd_tensor t, int packs)
{
    if (is_nothing(w, g, to, t))
        return;
    size_t bytes = xd_comm_bytes(t);
    int    direct = goes_between_devices(w, t.type);
    if (direct && w->traffic->way == XD_WAY_MAILBOXES)
        hold(w, &g->box[to], bytes, XD_STAGE_BOX, g->received[to], g->received[to] + MESSAGES);
    else if (!xd_contiguous(t) || (direct && packs))
        hold_packed(w, bytes);
}

void xd_count_recv(xd_count_world *w, xd_count_group *g, int from, xd_tensor t, int packs)
{
    if (is_nothing(w, g, from, t))
        return;
    int direct = goes_between_devices(w, t.type);
    g->received[from] += direct;
    if (!xd_contiguous(t) || (direct && packs))
        hold_packed(w, xd_comm_bytes(t));
}

void xd_count_sum(xd_count_world *w, xd_count_group *g, xd_tensor io, xd_red op)
{
    int direct = goes_between_devices(w, io.type) && io.type == XD_F32 && op == XD_SUM;
    xd_count_call(w);
    if (g->size == 1 || w->traffic->way == XD_WAY_HOST)
        return;
    if (!direct) {
        if (!xd_contiguous(io))
            hold_packed(w, xd_comm_bytes(io));
        return;
    }
    for (int r = 0; r < g->size; r++) {
        hold_packed(w, xd_comm_bytes(io) + 1);
        xd_count_send(w, g, r, io, 0);
        g->received[r] += r != g->rank;
    }
}
