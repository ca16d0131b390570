/* machine_presets.c - contains built-in descriptions of machines: of devices with a known name, and
 * of clusters with any number of these devices.
 *
 * The peak rates are from data sheets: the FLOP rates of dense bf16 and of f32, the bandwidth of
 * memory, and the bandwidth of the link in one direction. The fractions of peak that kernels reach
 * are fitted to published times of requests on one device. The fraction of a link's peak is fitted
 * to one published time of a request on two devices (bench/published, doc/planner.md). All other
 * values are assumed. For a device without published times, the fractions of a similar device are
 * used. */
#include "predict/machine.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Makes the rates of a device from its peak rates, in FLOP/s and bytes/s, and from the fractions of
 * peak that GEMMs, attention and convolutions reach. */
#define RATES(peak, gemm_, attn_, conv_, memory_)                                                \
    { .gemm = (gemm_) * (peak), .gemm_rows = 160, .attn = { (attn_) * (peak), (attn_) * (peak) }, \
      .attn_keys = 200, .conv = (conv_) * (peak), .bytes = 0.8 * (memory_), .call_s = 4e-6 }

#define H100      RATES(989e12, 0.733, 0.300, 0.10, 3.35e12)
#define H100_PCIE RATES(756e12, 0.709, 0.290, 0.10, 2.00e12)
#define A100      RATES(312e12, 0.600, 0.600, 0.20, 2.04e12)
#define H20       RATES(148e12, 0.733, 0.600, 0.32, 4.00e12)
#define L40       RATES(181e12, 0.660, 0.660, 0.32, 0.864e12)
#define RTX4090   RATES(165e12, 0.660, 0.660, 0.32, 1.008e12)
/* For the following devices only the peaks are known, from data sheets. The fractions of these
 * peaks that kernels reach are assumed to be those of H100, L40 or A100. */
#define H200      RATES(989e12, 0.733, 0.300, 0.10, 4.80e12)
#define B200      RATES(2250e12, 0.733, 0.300, 0.10, 8.00e12)
#define L40S      RATES(362e12, 0.660, 0.660, 0.32, 0.864e12)
#define L4        RATES(121e12, 0.660, 0.660, 0.32, 0.300e12)
#define A10       RATES(125e12, 0.660, 0.660, 0.32, 0.600e12)
#define RTX5090   RATES(209.5e12, 0.660, 0.660, 0.32, 1.792e12)
#define MI300X    RATES(1307e12, 0.600, 0.600, 0.20, 5.30e12)
#define MI355X    RATES(2517e12, 0.600, 0.600, 0.20, 8.00e12)
#define F32(peak, memory) RATES(peak, 0.7, 0.5, 0.5, memory)

/* Makes the link of a rank from the link's peak in bytes/s. All ranks of a host together reach at
 * most `links` times the rate of one link; if `links` is 0, there is no such limit. */
#define LINK(latency, peak, share, links)                                                        \
    { .latency_s = latency, .bytes = (share) * (peak), .overlap = 0.5,                           \
      .shared = (links) * (share) * (peak) }
#define NVLINK5 LINK(12e-6, 900e9, 0.33, 0)
#define NVLINK4 LINK(12e-6, 450e9, 0.33, 0)
#define NVLINK3 LINK(12e-6, 300e9, 0.33, 0)
/* XGMI connects a device by one link of 64 GB/s to each of seven other devices. */
#define XGMI    LINK(12e-6, 448e9, 0.33, 0)
#define XGMI_355    LINK(12e-6, 538e9, 0.33, 0)
#define PCIE5   LINK(15e-6, 63e9, 0.445, 1)
#define PCIE4   LINK(15e-6, 31.5e9, 0.445, 1)
#define PCIE5_UP 50e9
#define PCIE4_UP 25e9
#define IB400   LINK(20e-6, 50e9, 0.80, 0)
#define ETH100  LINK(40e-6, 12.5e9, 0.80, 0)
#define ETH10   LINK(60e-6, 1.25e9, 0.88, 0)

typedef struct device {
    const char *name;
    /* 1: only the peak rates are known; the fractions of peak are another device's */
    int         sheet;
    double      memory;
    xd_rates    f32, bf16;
    double      upload; /* bytes/s between host and device: 0.8 of PCIe's peak */
    /* links inside a host and between hosts; `shared` is the rate in bytes/s of one path of the
     * host */
    xd_wire     inside, between;
} device;

static const device devices[] = {
    { "H100", 0, 80e9, F32(67e12, 3.35e12), H100, PCIE5_UP, NVLINK4, IB400 },
    { "H100-PCIe", 0, 80e9, F32(51e12, 2.00e12), H100_PCIE, PCIE5_UP, PCIE5, IB400 },
    { "H200", 1, 141e9, F32(67e12, 4.80e12), H200, PCIE5_UP, NVLINK4, IB400 },
    { "B200", 1, 180e9, F32(75e12, 8.00e12), B200, PCIE5_UP, NVLINK5, IB400 },
    { "H20", 0, 96e9, F32(44e12, 4.00e12), H20, PCIE5_UP, NVLINK4, IB400 },
    { "A100", 0, 80e9, F32(19.5e12, 2.04e12), A100, PCIE4_UP, NVLINK3, IB400 },
    { "A10", 1, 24e9, F32(31.2e12, 0.600e12), A10, PCIE4_UP, PCIE4, ETH100 },
    { "L40", 0, 48e9, F32(90.5e12, 0.864e12), L40, PCIE4_UP, PCIE4, ETH100 },
    { "L40S", 1, 48e9, F32(91.6e12, 0.864e12), L40S, PCIE4_UP, PCIE4, ETH100 },
    { "L4", 1, 24e9, F32(30.3e12, 0.300e12), L4, PCIE4_UP, PCIE4, ETH100 },
    { "4090", 0, 24e9, F32(82.6e12, 1.008e12), RTX4090, PCIE4_UP, PCIE4, ETH10 },
    { "5090", 1, 32e9, F32(104.8e12, 1.792e12), RTX5090, PCIE5_UP, PCIE5, ETH10 },
    { "MI300X", 1, 192e9, F32(163.4e12, 5.30e12), MI300X, PCIE5_UP, XGMI, IB400 },
    { "MI355X", 1, 288e9, F32(157.3e12, 8.00e12), MI355X, PCIE5_UP, XGMI_355, IB400 },
};

const char *xd_machine_device(int i)
{
    return i >= 0 && i < (int)(sizeof devices / sizeof *devices) ? devices[i].name : NULL;
}

/* Returns 1 if the first n characters of `word` are a complete word in `text`. */
static int has_word(const char *text, const char *word, size_t n)
{
    for (const char *p = text; *p; p++)
        if ((p == text || !isalnum((unsigned char)p[-1])) && strncasecmp(p, word, n) == 0 &&
            !isalnum((unsigned char)p[n]))
            return 1;
    return 0;
}

const char *xd_machine_like(const char *product)
{
    const char *best = NULL;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        const char *name = devices[i].name, *p = name;
        size_t      n = strcspn(p, "-");
        int         all = 1;
        for (; *p; p += n + (p[n] == '-'), n = strcspn(p, "-"))
            all = all && has_word(product, p, n);
        if (all && (!best || strlen(name) > strlen(best)))
            best = name;
    }
    return best;
}

/* Returns the number of paths that connect a host's devices with its processors. A host with up to
 * eight devices has four paths; a larger host has one path for every two devices. */
static double host_paths(int ranks)
{
    return ranks > 8 ? ranks / 2 : 4;
}

/* Reads a number that is followed by x at the begin of a name, such as the 8 of "8xH100". Returns 0
 * if there is none. */
static int set_count(const char **name)
{
    char *end;
    if (!isdigit((unsigned char)**name))
        return 0;
    long n = strtol(*name, &end, 10);
    if ((*end != 'x' && *end != 'X') || !end[1] || n < 1 || n > 65536)
        return 0;
    *name = end + 1;
    return (int)n;
}

/* Returns a device's name without its brand: "RTX4090" and "RTX-4090" become "4090". */
static const char *without_brand(const char *name)
{
    int n = strncasecmp(name, "RTX", 3) == 0 ? 3 + (name[3] == '-' || name[3] == ' ') : 0;
    return n && isdigit((unsigned char)name[n]) ? name + n : name;
}

int xd_machine_known(xd_machine *m, const char *name)
{
    int first = set_count(&name), second = first ? set_count(&name) : 0;
    name = without_brand(name);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        const device *d = &devices[i];
        if (strcasecmp(d->name, name) != 0)
            continue;
        *m = (xd_machine){ .hosts = second ? first : 1,
                           .ranks = second  ? second
                                    : first ? first
                                            : 1,
                           .memory = d->memory,
                           .alone = 1,
                           .f32 = d->f32,
                           .bf16 = d->bf16,
                           .inside = d->inside,
                           .between = d->between,
                           .sheet = d->sheet,
                           .upload = d->upload };
        m->inside.shared *= host_paths(m->ranks);
        if (m->hosts > 1)
            snprintf(m->name, sizeof m->name, "%dx%dx%s", m->hosts, m->ranks, d->name);
        else
            snprintf(m->name, sizeof m->name, "%dx%s", m->ranks, d->name);
        return 1;
    }
    return 0;
}
