/* device_memory.c - finds the free memory of a device, and adds up the needs of the ranks that
 * share the device.
 *
 * Each rank queries the free memory of its device after all ranks of the host have opened their
 * devices. Ranks that share a device may find different values, and the smallest value counts. */
#include "pipeline/device_memory.h"

#include <stdlib.h>

#include "pipeline/memory_budget.h"
#include "ranks/world.h"

typedef struct share {
    uint64_t identity;
    double   need, held, available, kernels;
} share;

static share share_of(const xd_dev *cd, double need, double held)
{
    xd_dev *d = (xd_dev *)(uintptr_t)cd;
    size_t  available = 0, total = 0;
    d->mem->memory(d, &available, &total);
    return (share){ xd_dev_identity(d), need, held, (double)available,
                    (double)xd_dev_kernel_bytes(d) };
}

static void add_up(const share *all, int n, const share *mine, xd_device_room *out)
{
    double available = mine->available;
    *out = (xd_device_room){ 0 };
    for (int r = 0; r < n; r++) {
        if (all[r].identity != mine->identity)
            continue;
        out->ranks++;
        out->need += all[r].need + all[r].kernels;
        out->kernels += all[r].kernels;
        out->have += all[r].held;
        available = all[r].available < available ? all[r].available : available;
    }
    out->have += available;
}

xd_status xd_device_room_find(const xd_context *ctx, double need, double held, xd_device_room *out,
                              xd_err *e)
{
    *out = (xd_device_room){ 0 };
    xd_comm  *h = ctx->world.host;
    int       n = h ? h->size : 1;
    share     mine = share_of(ctx->dev, need, held), *all = calloc((size_t)n, sizeof *all);
    int64_t  *rows = calloc((size_t)n, sizeof *rows);
    xd_status s = all && rows ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory to compare %d ranks", n);
    for (int r = 0; r < n && rows; r++)
        rows[r] = 1;
    if (all)
        all[0] = mine;
    if (n > 1 && (s = xd_world_agree_in(h, ctx->world.used->rank, s, e)) == XD_OK)
        s = xd_world_wait(h,
                          h->ops->gather(h, xd_view2(all, XD_U8, n, sizeof *all), rows,
                                         xd_view2(&mine, XD_U8, 1, sizeof mine)),
                          e);
    if (s == XD_OK)
        add_up(all, n, &mine, out);
    out->have = xd_budget_least(ctx, out->have);
    free(all);
    free(rows);
    return s;
}
