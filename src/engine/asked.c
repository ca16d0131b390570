/* asked.c - do all ranks paint the same request?
 *
 * Every rank reads the command line and the file of prompts for itself. Ranks that take other numbers of
 * steps wait for each other without end, and other seeds or schedulers mix two pictures into one. */
#include <string.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/ranks.h"

enum { MOST = 64 };             /* options of a request that are compared, and two more            */

static uint64_t of_text(const char *text)
{
    return text ? xd_hash_mix(xd_hash_text(text), 1) : 0;
}

/* A file counts as given or not: only rank 0 reads it, and it may lie elsewhere on another host. */
static uint64_t of_option(const xd_request *r, const xd_option *o)
{
    const char *field = (const char *)r + o->offset;
    uint64_t    v = 0;
    if (o->kind == XD_OPT_TEXT) {
        const char *text = *(const char *const *)(const void *)field;
        return o->arg && strcmp(o->arg, "FILE") == 0 ? text != NULL : of_text(text);
    }
    memcpy(&v, field, o->kind == XD_OPT_INT || o->kind == XD_OPT_FLAG ? sizeof(int) : 8);
    return v;
}

static uint64_t of_prompts(const xd_request *r)
{
    uint64_t h = xd_hash_mix(0, (uint64_t)r->nprompts);
    for (int i = 0; r->prompts && i < r->nprompts; i++)
        h = xd_hash_mix(h, of_text(r->prompts[i]));
    return h;
}

xd_status xd_ranks_asked(const xd_engine *g, const xd_request *r, xd_err *e)
{
    uint64_t         mine[MOST + 2], first[MOST + 2];
    const char      *name[MOST + 2];
    int              n;
    const xd_option *o = xd_request_options(&n);
    if (g->idle || g->used->size == 1)
        return XD_OK;
    n = n < MOST ? n : MOST;
    for (int i = 0; i < n; i++)
        mine[i] = of_option(r, &o[i]), name[i] = o[i].name;
    mine[n] = of_prompts(r), name[n] = "prompt";
    mine[n + 1] = (uint64_t)r->latents_only, name[n + 1] = "output";
    int64_t size = (n + 2) * (int64_t)sizeof *mine;
    memcpy(first, mine, (size_t)size);
    xd_status s = xd_ranks_share(g, first, size, e);
    if (s != XD_OK)
        return s;
    for (int i = 0; i < n + 2; i++)
        if (mine[i] != first[i])
            return xd_fail(e, XD_EINVAL, "--%s differs from that of rank 0: all ranks need the same flags and "
                           "the same prompts", name[i]);
    return XD_OK;
}
