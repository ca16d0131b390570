/* this_machine.c - estimates the rates of this machine from the peak FLOP rate of its cores.
 *
 * The rate of a kernel is a fraction of the peak. The fractions are those that this program's
 * kernels reached in the measurements of doc/performance.md. `xdit probe` measures the rates
 * themselves. */
#define _POSIX_C_SOURCE 200809L /* st_mtim, gethostname */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "comm/comm.h"
#include "predict/machine.h"

/* Writes the path of the file that describes this host and whose name ends in `what`. Returns 0 if
 * there is no such path. */
static int home_of(const char *what, char *path, size_t size)
{
    char host[96] = "", name[256];
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "machine-%s-%s.json", host, what);
    return xd_cache_path(name, path, size);
}

int xd_machine_home(int ranks, int threads, char *path, size_t size)
{
    char what[40];
    snprintf(what, sizeof what, "%dx%d", ranks, threads);
    return home_of(what, path, size);
}

/* Writes the path of the file that describes this host with a device. If there is only one rank,
 * the devices "cuda:0" and "cuda" have the same file. */
int xd_machine_device_home(int ranks, const char *device, char *path, size_t size)
{
    char   what[80];
    size_t kind = strcspn(device, ":");
    int    first = ranks == 1 && strcmp(device + kind, ":0") == 0;
    snprintf(what, sizeof what, "%dx%.*s", ranks, first ? (int)kind : 32, device);
    return home_of(what, path, size);
}

/* Returns the size of the largest cache that the operating system's kernel reports, in bytes,
 * divided by the number of ranks. The kernel is used because the processor's own report is often
 * wrong in a virtual machine. */
double xd_machine_cache(int ranks)
{
    char   path[96], unit;
    double most = 0, v;
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%lf%c", &v, &unit) == 2) {
            v *= unit == 'M' ? 1 << 20 : unit == 'K' ? 1 << 10 : 1;
            most = v > most ? v : most;
        }
        if (f)
            fclose(f);
    }
    return most / ranks;
}

/* Reads the description of the measured machine from the file `path`. Returns 0 if there is no such
 * file, or if the file was measured with another number of ranks or threads. */
static int read_measured(xd_machine *m, const char *path, int ranks, int threads)
{
    xd_err why = { 0 };
    if (access(path, R_OK) != 0)
        return 0;
    if (xd_machine_read(m, path, &why) == XD_OK && m->hosts == 1 && m->ranks == ranks &&
        m->threads == threads) {
        snprintf(m->name, sizeof m->name, "this machine, as measured by xdit probe");
        return 1;
    }
    xd_log(XD_LOG_WARN, "%s is not used: %s", path,
           why.msg[0] ? why.msg : "it was measured with another number of ranks");
    return 0;
}

/* If the file `path` is newer than the time *last, sets *last to the file's time and returns 1. */
static int is_later(const char *path, struct timespec *last)
{
    struct stat st;
    if (stat(path, &st) != 0 || st.st_mtim.tv_sec < last->tv_sec ||
        (st.st_mtim.tv_sec == last->tv_sec && st.st_mtim.tv_nsec <= last->tv_nsec))
        return 0;
    *last = st.st_mtim;
    return 1;
}

/* Returns the disk's read speed, or 0 if it is unknown. The speed is that of the newest file of
 * `xdit probe` on this host that has a read speed, for any number of ranks, because the speed does
 * not depend on this number. */
static double measured_reading(void)
{
    char            path[4096], one[8192];
    double          read = 0;
    struct timespec last = { 0 };
    xd_machine      m;
    if (!xd_machine_home(1, 1, path, sizeof path))
        return 0;
    *strrchr(path, '/') = 0;
    char          *name = path + strlen(path) + 1; /* file name, such as "machine-HOST-1x1.json" */
    size_t         same = (size_t)(strrchr(name, '-') - name) + 1;
    DIR           *dir = opendir(path);
    struct dirent *d;
    while (dir && (d = readdir(dir))) {
        snprintf(one, sizeof one, "%s/%s", path, d->d_name);
        if (strncmp(d->d_name, name, same) == 0 && xd_machine_read(&m, one, NULL) == XD_OK &&
            m.read > 0 && is_later(one, &last))
            read = m.read;
    }
    if (dir)
        closedir(dir);
    return read;
}

void xd_machine_oversubscribe(xd_machine *m)
{
    int             ranks, cores;
    xd_rates *const rates[] = { &m->f32, &m->bf16 };
    xd_comm_share(&ranks, &cores);
    double k = (double)m->ranks * m->threads / cores;
    for (int i = 0; i < 2 && k > 1; i++) {
        xd_rates *r = rates[i];
        r->gemm /= k, r->attn[0] /= k, r->attn[1] /= k, r->conv /= k, r->bytes /= k, r->call_s *= k;
        r->conv_3d /= k;
        r->norm /= k, r->gnorm /= k, r->act /= k, r->weights /= k;
    }
    m->alone *= k > 1 ? k : 1;
}

/* Estimates the rates of kernels from the peak FLOP rate of the cores. If `tiles` is 1, `peak` is
 * the FLOP rate of the tile registers (AMX). With tile registers, kernels reach a smaller fraction
 * of the peak, because memory accesses and exponentials are slower relative to this peak. */
static void guess_rates(xd_rates *r, double peak, int threads, int tiles)
{
    *r = (xd_rates){ .gemm = 0.92 * peak,
                     .gemm_rows = 1,
                     .attn = { 0.74 * peak, 0.82 * peak },
                     .attn_keys = 12,
                     .conv = 0.78 * peak,
                     .bytes = 30e9 * threads,
                     .call_s = 1e-6,
                     .norm = 10e9 * threads,
                     .gnorm = 3.5e9 * threads,
                     .act = 6e9 * threads,
                     .weights = 15e9 * threads,
                     .attn_rows = 12 };
    if (!tiles)
        return;
    r->gemm = 0.46 * peak;
    r->gemm_rows = 44;
    r->attn[0] = 0.23 * peak;
    r->attn[1] = 0.28 * peak;
    r->attn_keys = 97;
    r->attn_rows = 93;
    r->conv = 0.42 * peak;
}

xd_status xd_machine_here(xd_machine *m, xd_dev *dev, int ranks, int threads, xd_err *e)
{
    size_t have = 0, total = 0;
    char   path[4096];
    if (xd_machine_home(ranks, threads, path, sizeof path) &&
        read_measured(m, path, ranks, threads))
        return XD_OK;
    memset(m, 0, sizeof *m);
    strcpy(m->name, "this machine, estimated (xdit probe measures it)");
    dev->mem->memory(dev, &have, &total);
    if (!have)
        return xd_fail(e, XD_ENOMEM,
                       "no memory is left for a process on this machine (free memory, "
                       "control group, ulimit -v)");
    m->hosts = 1;
    m->ranks = ranks;
    m->threads = threads;
    m->memory = (double)have;
    m->shares = 1;
    m->alone = 1;
    m->cache = xd_machine_cache(ranks);
    m->read = measured_reading();
    guess_rates(&m->f32, 1e9 * xd_dev_peak(dev, XD_F32, threads, 0.004), threads, 0);
    guess_rates(&m->bf16, 1e9 * xd_dev_peak(dev, XD_BF16, threads, 0.004), threads,
                !strcmp(dev->ops->name, "amx"));
    xd_machine_oversubscribe(m);
    m->inside = (xd_wire){ .latency_s = 3e-6, .bytes = 4e9, .overlap = 0 };
    m->between = (xd_wire){ .latency_s = 60e-6, .bytes = 1.1e9, .overlap = 0.5 };
    return xd_machine_check(m, "this machine", e);
}

/* ---- estimating devices with their own memory ----------------------------------------- */

double xd_machine_device_room(const xd_dev *dev, double have)
{
    double later = (double)xd_dev_kernel_bytes(dev);
    return have > later + 1 ? have - later : 1;
}

/* Estimates the rates of a device that has no built-in rates. `product` is the measured FLOP rate
 * of a GEMM, and `copies` is the measured rate of copies in bytes/s. */
static void guess_device_rates(xd_rates *r, double product, double copies)
{
    *r = (xd_rates){ .gemm = 0.9 * product,
                     .gemm_rows = 160,
                     .attn = { 0.5 * product, 0.5 * product },
                     .attn_keys = 200,
                     .conv = 0.3 * product,
                     .bytes = copies,
                     .call_s = 4e-6 };
}

/* Estimates the rates of a device that was not measured by `xdit probe`. A known device gets its
 * built-in rates. */
static void guess_device(xd_machine *m, xd_dev *dev, const char *product)
{
    xd_machine  known;
    const char *like = xd_machine_like(product);
    if (like && xd_machine_known(&known, like)) {
        m->f32 = known.f32, m->bf16 = known.bf16;
        m->inside = known.inside, m->between = known.between;
        m->sheet = known.sheet;
    } else {
        double f32 = 1e9 * xd_dev_peak(dev, XD_F32, 0, 0.004),
               bf16 = 1e9 * xd_dev_peak(dev, XD_BF16, 0, 0.004);
        double copies = dev->mem->bandwidth ? dev->mem->bandwidth(dev) : 0;
        guess_device_rates(&m->f32, f32 > 0 ? f32 : 1e9, copies > 0 ? copies : 1e9);
        guess_device_rates(&m->bf16, bf16 > 0 ? bf16 : 1e9, copies > 0 ? copies : 1e9);
        m->inside = (xd_wire){ .latency_s = 15e-6, .bytes = 14e9, .overlap = 0.5, .shared = 56e9 };
        m->between = (xd_wire){ .latency_s = 60e-6, .bytes = 1.1e9, .overlap = 0.5 };
    }
    snprintf(m->name, sizeof m->name, "%.24s, not probed (%s)", product,
             like ? "data sheet's rates" : "estimated rates");
}

/* If all ranks compute on one device, divides the device's rates by the number of ranks. */
static void share_device(xd_machine *m, int ranks)
{
    xd_rates *const rates[] = { &m->f32, &m->bf16 };
    for (int i = 0; i < 2; i++) {
        xd_rates *r = rates[i];
        r->gemm /= ranks, r->attn[0] /= ranks, r->attn[1] /= ranks, r->conv /= ranks;
        r->bytes /= ranks;
    }
    m->alone = ranks;
    m->upload /= ranks, m->download /= ranks;
}

xd_status xd_machine_of_devices(xd_machine *m, xd_dev *dev, const char *device, int ranks,
                                xd_err *e)
{
    char   path[4096], product[100] = "", kind[32] = "";
    size_t have = 0, total = 0;
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(dev->name, ":"), dev->name);
    device = device && strcmp(device, "auto") != 0 ? device : kind;
    int shared = ranks > 1 && strchr(device, ':');
    memset(m, 0, sizeof *m);
    int measured = xd_machine_device_home(ranks, device, path, sizeof path) &&
                   read_measured(m, path, ranks, 0);
    dev->mem->memory(dev, &have, &total);
    if (!measured) {
        memset(m, 0, sizeof *m);
        if (dev->mem->product)
            dev->mem->product(dev, product, sizeof product);
        snprintf(m->device, sizeof m->device, "%s", kind);
        m->hosts = 1;
        m->ranks = ranks;
        m->alone = 1;
        m->read = measured_reading();
        m->upload = dev->mem->link ? dev->mem->link(dev, 0) : 0;
        m->download = dev->mem->link ? dev->mem->link(dev, 1) : 0;
        guess_device(m, dev, product[0] ? product : dev->name);
        if (shared)
            share_device(m, ranks);
    }
    m->memory = xd_machine_device_room(dev, (double)have / (shared ? ranks : 1));
    return xd_machine_check(m, dev->name, e);
}
