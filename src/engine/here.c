/* here.c - a guess at the machine that this process runs on, from the peak of its cores
 *
 * Shares of the peak are those that doc/speed.md has for this program's kernels; `xdit probe` measures
 * them instead. */
#include <string.h>

#include "engine/machine.h"

static void guess(xd_rates *r, double peak, int threads)
{
    *r = (xd_rates){ .gemm = 0.88 * peak, .gemm_rows = 4, .attn = { 0.68 * peak, 0.82 * peak },
                     .attn_keys = 24, .conv = 0.78 * peak, .bytes = 7e9 * threads, .call_s = 4e-6 };
}

xd_status xd_machine_here(xd_machine *m, xd_dev *dev, int ranks, int threads, xd_err *e)
{
    size_t have = 0, total = 0;
    memset(m, 0, sizeof *m);
    strcpy(m->name, "this machine");
    dev->mem->memory(dev, &have, &total);
    m->hosts = 1;
    m->ranks = ranks;
    m->threads = threads;
    m->memory = (double)have;
    m->shares = 1;
    m->alone = 1;
    guess(&m->f32, 1e9 * xd_cpu_peak_in(dev, XD_F32, threads, 0.004), threads);
    guess(&m->bf16, 1e9 * xd_cpu_peak_in(dev, XD_BF16, threads, 0.004), threads);
    m->inside = (xd_wire){ .latency_s = 3e-6, .bytes = 4e9, .overlap = 0 };
    m->between = (xd_wire){ .latency_s = 60e-6, .bytes = 1.1e9, .overlap = 0.5 };
    return xd_machine_check(m, "this machine", e);
}
