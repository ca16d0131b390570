/* memory.c - what a request needs, counted before anything is loaded */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "engine/engine.h"

xd_status xd_room_open(xd_arena *a, xd_dev *dev, size_t bytes, xd_err *e)
{
    size_t cap = dev->counts ? (size_t)1 << 60 : (bytes + 4095) / 4096 * 4096;
    void  *p = dev->mem->get(dev, cap ? cap : 4096);
    if (!p)
        return xd_fail(e, XD_ENOMEM, "no memory for the %.2f GiB of activations",
                       (double)bytes / 1073741824.0);
    xd_arena_init(a, p, cap ? cap : 4096);
    return XD_OK;
}

void xd_room_close(xd_arena *a, xd_dev *dev)
{
    if (a->base)
        dev->mem->put(dev, a->base, a->cap);
    *a = (xd_arena){ 0 };
}

static double gib(size_t bytes)
{
    return (double)bytes / 1073741824.0;
}

/* So large that counting it exactly is pointless: a hidden state, and q, k, v beside it. */
static xd_status refuse_huge(const xd_job *j, size_t have, xd_err *e)
{
    double least = (double)j->tokens * (double)j->g->model.dit_info.dim * 4 *
                   (double)xd_dtype_size(j->g->type);
    double picture = (double)j->asked[0] * (double)j->asked[1] * 15;
    if (least + picture <= (double)have)
        return XD_OK;
    return xd_fail(e, XD_ENOMEM, "a picture of %lld x %lld needs at least %.1f GiB of memory, "
                   "%.1f GiB are available; paint a smaller one", (long long)j->asked[1],
                   (long long)j->asked[0], (least + picture) / 1073741824.0, gib(have));
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

xd_status xd_memory_plan(xd_job *j, const xd_words *w, xd_need *need, xd_err *e)
{
    xd_engine *g = j->g;
    size_t     have = 0, total = 0, mine;
    int64_t    longest = 0;
    g->dev->mem->memory(g->dev, &have, &total);
    mine = xd_store_bytes(g->model.text[0].store) + xd_store_bytes(g->model.dit.store) +
           xd_store_bytes(g->model.vae.store);
    have += mine;               /* what is loaded already is in the plan too                   */
    xd_status s = refuse_huge(j, have, e);
    for (int i = 0; i < w->n; i++)
        longest = w->len[i] > longest ? w->len[i] : longest;
    int64_t len[XD_MAXPASS] = { longest, longest };
    *need = (xd_need){ .images = (size_t)(j->asked[0] * j->asked[1]) * 15 };
    if (s == XD_OK)
        s = xd_words_count(j, longest, &need->text_tmp, e);
    if (s == XD_OK)
        s = xd_flow_count(j, len, &need->dit_tmp, e);
    if (s == XD_OK && !j->r->latents_only)
        s = xd_light_count(j, &need->vae_tmp, e);
    if (s != XD_OK)
        return s;
    need->text = g->model.text[0].packed;
    need->dit = g->model.dit.packed;
    need->vae = j->r->latents_only ? 0 : g->model.vae.packed;
    size_t loop = need->dit + need->vae + most(need->dit_tmp, need->vae_tmp) + need->images;
    need->peak = g->keep ? need->text + most(need->text_tmp, loop)
                         : most(need->text + need->text_tmp, loop);
    xd_log(XD_LOG_DEBUG, "memory: text %.3f + %.3f, transformer %.3f + %.3f, vae %.3f + %.3f, "
           "peak %.3f of %.3f GiB", gib(need->text), gib(need->text_tmp), gib(need->dit),
           gib(need->dit_tmp), gib(need->vae), gib(need->vae_tmp), gib(need->peak), gib(have));
    if (need->peak <= have)
        return XD_OK;
    return xd_fail(e, XD_ENOMEM, "the request needs %.2f GiB of memory and %.2f GiB are available: "
                   "text encoder %.2f + %.2f, transformer %.2f + %.2f, vae %.2f + %.2f (weights + "
                   "activations); paint a smaller picture%s%s", gib(need->peak), gib(have),
                   gib(need->text), gib(need->text_tmp), gib(need->dit), gib(need->dit_tmp),
                   gib(need->vae), gib(need->vae_tmp), g->type == XD_F32 ? ", try --dtype bf16" : "",
                   j->r->enable_tiling ? "" : ", or try --enable_tiling");
}
