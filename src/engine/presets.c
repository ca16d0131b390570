/* presets.c - machines that are known by name
 *
 * Peaks are those of data sheets; the shares of them are fitted on published times of one device, one
 * link's share on a time of two devices (bench/published, doc/planner.md); the rest is assumed. */
#include "engine/machine.h"

#include <string.h>

/* Peaks in flop/s and bytes/s; shares of the first for products, attention and convolutions. */
#define RATES(peak, gemm_, attn_, conv_, memory_)                                                   \
    { .gemm = (gemm_) * (peak), .gemm_rows = 160, .attn = { (attn_) * (peak), (attn_) * (peak) },    \
      .attn_keys = 200, .conv = (conv_) * (peak), .bytes = 0.8 * (memory_), .call_s = 4e-6 }

#define H100      RATES(989e12, 0.733, 0.300, 0.10, 3.35e12)
#define H100_PCIE RATES(756e12, 0.709, 0.290, 0.10, 2.00e12)
#define A100      RATES(312e12, 0.600, 0.600, 0.20, 2.04e12)
#define H20       RATES(148e12, 0.733, 0.600, 0.32, 4.00e12)
#define L40       RATES(181e12, 0.660, 0.660, 0.32, 0.864e12)
#define RTX4090   RATES(165e12, 0.660, 0.660, 0.32, 1.008e12)
#define F32(peak, memory) RATES(peak, 0.7, 0.5, 0.5, memory)

/* A link of a rank, of so many bytes/s; what the ranks of a host have together, in such links. */
#define LINK(latency, peak, share, links)                                                           \
    { .latency_s = latency, .bytes = (share) * (peak), .overlap = 0.5,                              \
      .shared = (links) * (share) * (peak) }
#define NVLINK4 LINK(12e-6, 450e9, 0.33, 0)
#define NVLINK3 LINK(12e-6, 300e9, 0.33, 0)
#define PCIE5   LINK(15e-6, 63e9, 0.445, 4)     /* two devices share a way up to the processors    */
#define PCIE4   LINK(15e-6, 31.5e9, 0.445, 4)
#define IB400   LINK(20e-6, 50e9, 0.80, 0)
#define ETH100  LINK(40e-6, 12.5e9, 0.80, 0)
#define ETH10   LINK(60e-6, 1.25e9, 0.88, 0)

static const xd_machine presets[] = {
    { "8xH100", 1, 8, 0, 80e9, 0, 1, F32(67e12, 3.35e12), H100, NVLINK4, IB400, 0 },
    { "8xH100-PCIe", 1, 8, 0, 80e9, 0, 1, F32(51e12, 2.00e12), H100_PCIE, PCIE5, IB400, 0 },
    { "8xA100", 1, 8, 0, 80e9, 0, 1, F32(19.5e12, 2.04e12), A100, NVLINK3, IB400, 0 },
    { "8xH20", 1, 8, 0, 96e9, 0, 1, F32(44e12, 4.00e12), H20, NVLINK4, IB400, 0 },
    { "8xL40", 1, 8, 0, 48e9, 0, 1, F32(90.5e12, 0.864e12), L40, PCIE4, ETH100, 0 },
    { "2x8xL40", 2, 8, 0, 48e9, 0, 1, F32(90.5e12, 0.864e12), L40, PCIE4, ETH100, 0 },
    { "2x2x4090", 2, 2, 0, 24e9, 0, 1, F32(82.6e12, 1.008e12), RTX4090, PCIE4, ETH10, 0 },
};

const char *xd_machine_preset(int i)
{
    return i >= 0 && i < (int)(sizeof presets / sizeof *presets) ? presets[i].name : NULL;
}

int xd_machine_known(xd_machine *m, const char *name)
{
    for (int i = 0; xd_machine_preset(i); i++)
        if (strcmp(presets[i].name, name) == 0) {
            *m = presets[i];
            return 1;
        }
    return 0;
}
