/* weight_groups.c - finds the ranks of a host that share weights, and opens the groups in which
 * these ranks communicate.
 *
 * Every rank of a host gathers the descriptions of all ranks of the host, so that all of them make
 * the same decisions. */
#include "pipeline/weight_groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/par.h"
#include "base/rng.h"
#include "model/shared_weights.h"
#include "pipeline/context.h"
#include "ranks/world.h"

enum { NPART = XD_SHARED_PARTS };

typedef struct group_request { /* describes a rank to the other ranks of its host */
    int64_t  color[NPART];     /* equal for ranks with equal weights; -1: no sharing */
    uint64_t form[NPART];      /* hash of the layout of the component's weights in memory */
    int64_t  open[NPART];      /* 1: not loaded yet, so that ranks can still share the weights */
    int64_t  rank;             /* index of the rank among the ranks in use */
} group_request;

/* Returns 1 if ranks share only the host memory of streamed blocks. This is the case for devices
 * with their own memory. */
static int shares_copies(const xd_context *ctx)
{
    return xd_dev_identity(ctx->dev) != 0;
}

/* Returns a hash of all properties on which the layout of a component's weights in memory
 * depends. */
static uint64_t hash_layout(const xd_context *ctx, const xd_component *p)
{
    char kind[sizeof(xd_dev_name)]; /* kind of device, which is "cuda" for "cuda:1" */
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(ctx->dev->name, ":"), ctx->dev->name);
    uint64_t h = xd_hash_text(kind);
    if (shares_copies(ctx)) {
        h = xd_hash_mix(h, (uint64_t)p->w->stream.streamed);
        h = xd_hash_mix(h, (uint64_t)p->w->stream.host);
    }
    h = xd_hash_mix(h, (uint64_t)xd_par_threads());
    h = xd_hash_mix(h, (uint64_t)ctx->type);
    h = xd_hash_mix(h, (uint64_t)p->w->blocks);
    h = xd_hash_mix(h, (uint64_t)p->count->block_bytes);
    h = xd_hash_mix(h, (uint64_t)p->w->net.first);
    return xd_hash_mix(h, (uint64_t)p->w->net.last);
}

/* Returns the color of the stage and the shard of a transformer on a rank. */
static int64_t color_of(const xd_context *ctx, int rank)
{
    const int *n = ctx->plan.deg.n;
    return rank % n[XD_TENSOR] +
           (int64_t)n[XD_TENSOR] *
               (rank / (n[XD_TENSOR] * n[XD_ULYSSES] * n[XD_RING]) % n[XD_PIPE]);
}

static void fill_request(group_request *c, xd_context *ctx, int rank, const int want[NPART])
{
    memset(c, 0, sizeof *c);
    c->rank = rank;
    for (int i = 0; i < NPART; i++) {
        const xd_component *p = xd_model_part(&ctx->model, i);
        c->color[i] = -1;
        if (!want[i])
            continue;
        c->color[i] = shares_copies(ctx) && !p->w->stream.streamed ? -1
                      : i == XD_SHARED_VAE                         ? 0
                                                                   : color_of(ctx, rank);
        c->form[i] = hash_layout(ctx, p);
        c->open[i] = !p->w->store;
    }
}

/* Makes the descriptions of the n ranks of the host from that of rank `me`, because a count
 * communicator receives none. All ranks have loaded as little, in the same layout. */
static void guess_requests(group_request *c, int n, const group_request *mine, int me,
                           const xd_context *ctx)
{
    const xd_plan *p = &ctx->plan;
    int            replica = xd_degrees_product(p->deg) / p->deg.n[XD_DATA];
    for (int r = 0; r < n; r++) {
        int rank = (int)mine->rank - me + r;
        c[r] = *mine;
        c[r].rank = rank;
        for (int i = 0; i < NPART; i++)
            if (mine->color[i] >= 0)
                c[r].color[i] = i != XD_SHARED_VAE                   ? color_of(ctx, rank)
                                : p->vae_rows || rank % replica == 0 ? 0
                                                                     : -1;
    }
}

/* Returns the number of ranks that share component i with rank r, including rank r. Returns 0 if
 * rank r does not share this component. Sets *at to the number of those ranks that are below r. */
static int group_of(const group_request *c, int n, int i, int r, int *at)
{
    int size = 0;
    *at = 0;
    for (int k = 0; k < n; k++) {
        if (c[k].color[i] != c[r].color[i])
            continue;
        size++;
        *at += k < r;
        if (c[k].form[i] != c[r].form[i] || !c[k].open[i])
            return 0;
    }
    return c[r].color[i] >= 0 && size > 1 ? size : 0;
}

/* Returns 1 if any ranks of this host share the weights of component i. */
static int is_shared(const group_request *c, int n, int i)
{
    int some = 0, at;
    for (int r = 0; r < n; r++)
        some |= group_of(c, n, i, r, &at);
    return some != 0;
}

/* Returns 1 if the ranks of this host load at least some weights together. */
static int load_together(const xd_context *ctx, const group_request *c, int n)
{
    int some = !shares_copies(ctx);
    for (int i = 0; i < NPART; i++)
        some |= is_shared(c, n, i);
    return some;
}

static xd_status group_component(xd_context *ctx, const xd_context *among, const group_request *c,
                                 int i, xd_err *e)
{
    xd_comm  *h = among->world.host, *k = NULL;
    int       at, size = group_of(c, h->size, i, h->rank, &at);
    int       color = size ? (int)c[h->rank].color[i] : among->world.all->size + h->rank;
    xd_status s = h->ops->split(h, color, size ? at : 0, size ? size : 1, &k, e);
    if (size)
        xd_model_part(&ctx->model, i)->w->group = (xd_weight_group){
            .c = k, .me = among->world.used->rank, .streams = shares_copies(ctx)
        };
    else
        xd_comm_close(&k);
    return s;
}

/* Forms the groups of ranks that share weights. A rank that fails for one component continues with
 * the next, so that all ranks take part in all splits of communicators. */
static xd_status form_groups(xd_context *ctx, const xd_context *among, const group_request *c,
                             xd_err *e)
{
    const int n = among->world.host->size;
    xd_status s = XD_OK;
    for (int i = 0; i < NPART; i++) {
        xd_status now = is_shared(c, n, i) ? group_component(ctx, among, c, i, e) : XD_OK;
        s = s == XD_OK ? now : s;
    }
    return s;
}

static xd_status find_groups(xd_context *ctx, const xd_context *among, const int want[NPART],
                             xd_err *e)
{
    xd_comm      *h = among->world.host;
    group_request mine, *c = calloc((size_t)h->size, sizeof *c);
    int64_t      *rows = calloc((size_t)h->size, sizeof *rows);
    xd_status     s = c && rows ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory to share weights");
    if ((s = xd_world_agree_in(h, among->world.used->rank, s, e)) == XD_OK) {
        for (int r = 0; r < h->size; r++)
            rows[r] = 1;
        fill_request(&mine, ctx, among->world.used->rank, want);
        xd_req q = h->ops->gather(h, xd_view2(c, XD_U8, h->size, sizeof *c), rows,
                                  xd_view2(&mine, XD_U8, 1, sizeof mine));
        s = h->ops->wait(h, &q, 1);
        if (ctx->dev->counts)
            guess_requests(c, h->size, &mine, h->rank, ctx);
        for (int r = 0; r < h->size && s == XD_OK && load_together(ctx, c, h->size); r++)
            ctx->world.lowest = c[r].rank < ctx->world.lowest ? (int)c[r].rank : ctx->world.lowest;
        s = s == XD_OK ? form_groups(ctx, among, c, e)
                       : xd_fail(e, XD_ECOMM, "a message between ranks failed");
    }
    free(c);
    free(rows);
    return s;
}

static xd_status find_among(xd_context *ctx, xd_context *among, const int want[NPART], xd_err *e)
{
    xd_status s = XD_OK;
    /* closes the groups of a request that has failed before loading */
    for (int i = 0; i < NPART; i++) {
        xd_component *p = xd_model_part(&ctx->model, i);
        if (p && p->w && !p->w->store)
            xd_shared_weights_close(p);
    }
    ctx->world.lowest = among->world.used->rank;
    if (among->world.used->size == 1)
        return XD_OK;
    if ((ctx->dev->host_memory || shares_copies(ctx)) && among->world.host->size > 1)
        s = find_groups(ctx, among, want, e);
    return xd_world_agree(&among->world, s, e);
}

xd_status xd_weight_groups_find(xd_context *ctx, int vae, xd_err *e)
{
    return find_among(ctx, ctx, (int[NPART]){ 1, xd_model_dits(&ctx->model) > 1, vae }, e);
}

xd_status xd_weight_groups_whole(xd_context *ctx, xd_context *among, int vae, xd_err *e)
{
    return find_among(ctx, among, (int[NPART]){ !vae, 0, vae }, e);
}

/* ---- reporting weights that are not finite ------------------------------------------------ */

void xd_weight_groups_nonfinite(const xd_context *ctx, const xd_component *p)
{
    xd_comm *c = ctx->world.used;
    int64_t  one = 1, size = sizeof p->w->nonfinite;
    int32_t  who = p->w->nonfinite[0] ? c->rank : INT32_MAX;
    char     name[sizeof p->w->nonfinite];
    xd_req   r;
    if (c->size == 1)
        return;
    memcpy(name, p->w->nonfinite, sizeof name);
    r = c->ops->allreduce(c, xd_view(&who, XD_I32, 1, &one), XD_MIN);
    if (c->ops->wait(c, &r, 1) != XD_OK || who == 0 || who == INT32_MAX)
        return;
    r = c->ops->bcast(c, xd_view(name, XD_U8, 1, &size), who);
    if (c->ops->wait(c, &r, 1) == XD_OK && c->rank == 0)
        xd_log(XD_LOG_WARN, "weight %s has NaN or infinite values (first found by rank %d)", name,
               who);
}
