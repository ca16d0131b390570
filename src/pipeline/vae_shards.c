/* vae_shards.c - divides an image into bands or tiles, which the ranks of a replica decode.
 *
 * A failed rank sends and receives undefined data, so that the sequence of messages does not depend
 * on failures. The memory for pending messages and for the owners of tiles is allocated first, and
 * the ranks check together that every rank has this memory. */
#include "pipeline/vae_shards.h"

#include <stdlib.h>
#include <string.h>

#include "exec/op.h"
#include "pipeline/context.h"
#include "pipeline/job.h"
#include "plan/balance.h"
#include "ranks/world.h"

/* Returns the buffer of a message or, after a failure, a dummy buffer of the same size. */
static void *usable_buffer(xd_vae_shards *s, void *p, size_t bytes)
{
    return xd_ok(s->x) && p ? p : xd_failed_buffer(s->x, p, bytes, s->c);
}

static void wait_all(xd_vae_shards *s, xd_req *r, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (s->c->ops->wait(s->c, &r[i], 1) != XD_OK)
            xd_exec_fail(s->x, XD_ECOMM, "parallel VAE: sending or receiving %s failed", what);
}

/* ---- computing tiles on several ranks ----------------------------------------------------- */

static xd_vae_shards *shards_of(const xd_deal *d)
{
    return (xd_vae_shards *)(uintptr_t)((const char *)d - offsetof(xd_vae_shards, deal));
}

static xd_tensor message_view(xd_vae_shards *s, xd_tensor tile)
{
    int64_t n = xd_count(tile);
    return xd_view(usable_buffer(s, tile.p, xd_bytes(tile)), XD_F32, 1, &n);
}

static void send_tile(const xd_deal *d, xd_exec *x, xd_tensor tile)
{
    xd_vae_shards *s = shards_of(d);
    xd_tensor      t = message_view(s, tile);
    (void)x;
    s->out[s->nout++] = s->c->ops->send(s->c, t, 0);
}

static void receive_tile(const xd_deal *d, xd_exec *x, xd_tensor tile, int from)
{
    xd_vae_shards *s = shards_of(d);
    (void)x;
    xd_req r = s->c->ops->recv(s->c, message_view(s, tile), from);
    wait_all(s, &r, 1, "a tile");
}

static void finish_tiles(const xd_deal *d, xd_exec *x)
{
    xd_vae_shards *s = shards_of(d);
    (void)x;
    wait_all(s, s->out, s->nout, "a tile");
    s->nout = 0;
}

static void open_deal(xd_vae_shards *s, const xd_vae_info *v)
{
    int64_t n = xd_vae_tiles(v, s->lay.grid[1], s->lay.grid[2]), mine = 0;
    xd_err  e = { 0 };
    s->owner = malloc((size_t)n * sizeof *s->owner);
    if (!s->owner || xd_vae_owners(v, s->lay.grid[1], s->lay.grid[2], s->c->size, s->owner, &e)) {
        xd_exec_fail(s->x, XD_ENOMEM, "no memory to distribute %lld tiles", (long long)n);
        return;
    }
    for (int64_t k = 0; k < n; k++)
        mine += s->owner[k] == s->c->rank;
    if (!(s->out = calloc((size_t)mine + 1, sizeof *s->out)))
        xd_exec_fail(s->x, XD_ENOMEM, "no memory to distribute %lld tiles", (long long)n);
    s->deal = (xd_deal){ s->c->rank, s->owner, send_tile, receive_tile, finish_tiles };
    s->whole = s->c->rank == 0;
}

/* ---- opening ------------------------------------------------------------------------------ */

int xd_vae_shards_open(xd_vae_shards *s, xd_exec *x, const xd_job *j, const xd_vae_info *v,
                       xd_grid cells)
{
    const xd_context *ctx = j->ctx;
    const xd_topo    *topo = xd_counting(x) ? &ctx->count_topo : &ctx->topo;
    int64_t           h = cells.rows, w = cells.cols;
    int               ranks = ctx->plan.vae_rows ? topo->replica->size : 1;
    xd_err            e = { 0 };
    memset(s, 0, sizeof *s);
    s->x = x;
    s->c = topo->replica;
    s->whole = 1;
    s->tiled = v->covers || (j->r->output.enable_tiling && xd_vae_tiles(v, h, w) > 1);
    s->bands = s->tiled ? 1 : ranks; /* without tiles, each rank computes a band of rows */
    s->lay = (xd_layout){ .len = { h }, .grid = { 1, h, w }, .npatch = 1, .nsp = s->bands };
    xd_balance_rows(ctx->balance, &s->lay);
    x->lay = &s->lay;
    x->sp = s->bands > 1 ? s->c->rank : 0;
    s->own = xd_own(&s->lay, XD_IMG, 0, x->sp);
    xd_method_args a = { .what = XD_FOR_VAE,
                         .topo = topo,
                         .lay = &s->lay,
                         .dev = x->dev,
                         .act = x->act,
                         .rows = s->bands > 1 ? s->c : NULL };
    if (xd_method_stack_open(&s->stack, &a, &e) != XD_OK)
        xd_exec_fail(x, e.code, "%s", e.msg);
    x->hooks = s->stack.head;
    s->rows = calloc((size_t)s->c->size, sizeof *s->rows);
    s->in = calloc((size_t)s->c->size, sizeof *s->in);
    if (!s->rows || !s->in)
        xd_exec_fail(x, XD_ENOMEM, "no memory for an image on %d ranks", ranks);
    if (s->tiled && ranks > 1)
        open_deal(s, v);
    if (ranks > 1)
        xd_world_settle(&ctx->world, s->c, x);
    return xd_ok(x);
}

void xd_vae_shards_close(xd_vae_shards *s)
{
    s->x->hooks = &xd_hooks_local;
    xd_method_stack_close(&s->stack);
    free(s->owner);
    free(s->out);
    free(s->rows);
    free(s->in);
}

const xd_deal *xd_vae_shards_tiles(const xd_vae_shards *s)
{
    return s->owner ? &s->deal : NULL;
}

/* ---- collecting bands --------------------------------------------------------------------- */

static xd_tensor band_view(xd_vae_shards *s, xd_tensor mine, int64_t wide)
{
    xd_tensor t = xd_view2(mine.p, XD_F32, xd_count(mine) / wide, wide);
    t.p = usable_buffer(s, t.p, xd_bytes(t));
    return t;
}

void xd_vae_shards_gather(xd_vae_shards *s, xd_tensor mine, int64_t wide, int64_t cell, float *all)
{
    int64_t row = wide * cell, n = s->lay.len[XD_IMG] * row;
    xd_req  one;
    if (s->c->rank) {
        one = s->own.n ? s->c->ops->send(s->c, band_view(s, mine, wide), 0) : (xd_req){ 0 };
        wait_all(s, &one, 1, "a band of the image");
        return;
    }
    float *to = usable_buffer(s, all, (size_t)n * sizeof *all);
    for (int i = 1; i < s->c->size; i++) {
        xd_span   b = xd_own(&s->lay, XD_IMG, 0, i);
        xd_tensor t = xd_view2(to + b.start * row, XD_F32, b.n * cell, wide);
        if (b.n)
            s->in[i] = s->c->ops->recv(s->c, t, i);
    }
    xd_get(s->x, all, xd_view2(mine.p, XD_F32, s->own.n * cell, wide));
    wait_all(s, s->in, s->c->size, "a band of the image");
}

void xd_vae_shards_allgather(xd_vae_shards *s, xd_tensor mine, int64_t wide, int64_t cell,
                             float *all)
{
    int64_t   total = s->lay.len[XD_IMG] * cell;
    xd_tensor in = xd_view2(mine.p, XD_F32, s->own.n * cell, wide);
    xd_tensor out = xd_view2(all, XD_F32, total, wide);
    for (int i = 0; i < s->c->size; i++)
        s->rows[i] = xd_own(&s->lay, XD_IMG, 0, i).n * cell;
    out.p = usable_buffer(s, all, xd_bytes(out));
    in.p = usable_buffer(s, in.p, xd_bytes(in));
    xd_req q = s->c->ops->gather(s->c, out, s->rows, in);
    wait_all(s, &q, 1, "a band");
}

void xd_vae_shards_broadcast(xd_vae_shards *s, float *all, int64_t n)
{
    void  *p = usable_buffer(s, all, (size_t)n * sizeof *all);
    xd_req q = s->c->ops->bcast(s->c, xd_view(p, XD_F32, 1, &n), 0);
    wait_all(s, &q, 1, "the encoded image of rank 0");
}
