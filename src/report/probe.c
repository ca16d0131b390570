/* probe.c - runs `xdit probe`: measures this machine and its ranks, and writes the machine file for
 * the planner */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/probe.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/par.h"
#include "base/record.h"
#include "comm/staged.h"
#include "model/model.h"
#include "ranks/world.h"
#include "xdit/tools.h"

enum { READ_BYTES = 64 << 20 }; /* size of the file with which the disk is measured */

static double reduce_value(const xd_prober *p, double v, xd_red op)
{
    xd_comm *c = p->all;
    int64_t  one = 1;
    xd_req   r = c->ops->allreduce(c, xd_view(&v, XD_F64, 1, &one), op);
    c->ops->wait(c, &r, 1);
    return v;
}

double xd_probe_mean(const xd_prober *p, double v)
{
    return p->all->size > 1 ? reduce_value(p, v, XD_SUM) / p->all->size : v;
}

void xd_probe_meet(const xd_prober *p)
{
    if (p->all->size > 1)
        p->all->ops->barrier(p->all);
}

static xd_status agree_status(const xd_prober *p, xd_status s, xd_err *e)
{
    return xd_world_agree_in(p->all, p->all->rank, s, e);
}

/* Checks that all hosts have the same number of consecutive ranks, because plans assume that. */
static xd_status count_hosts(const xd_prober *p, xd_machine *m, xd_err *e)
{
    int n = p->host->size, first = p->all->rank - p->host->rank;
    m->ranks = n;
    m->hosts = p->all->size / n;
    int even = reduce_value(p, n, XD_MIN) >= n && reduce_value(p, n, XD_MAX) <= n && first % n == 0;
    if (reduce_value(p, even, XD_MIN) > 0)
        return XD_OK;
    return xd_fail(e, XD_EINVAL, "probe needs the same number of consecutive ranks on every host");
}

/* Sets the memory of this host in the machine's description. The ranks of a host share this
 * memory. */
static void describe_host(const xd_prober *p, xd_machine *m)
{
    size_t have = 0, total = 0;
    p->dev->mem->memory(p->dev, &have, &total);
    m->memory = reduce_value(p, (double)have, XD_MIN);
    m->threads = xd_par_threads();
    m->shares = 1;
    m->cache = xd_machine_cache(m->ranks);
    m->inside = (xd_wire){ .latency_s = 3e-6, .bytes = 4e9 };
}

/* Returns 1 if all ranks of this host compute on one device. */
static int share_a_device(const xd_prober *p, const xd_probe_args *a)
{
    return p->host->size > 1 && strchr(a->device, ':');
}

/* Sets the device of this rank in the machine's description, and the memory of the device, which is
 * read after all ranks of the host have opened their devices. */
static void describe_device(xd_prober *p, const xd_probe_args *a, xd_machine *m)
{
    size_t have = 0, total = 0;
    xd_probe_meet(p);
    p->dev->mem->memory(p->dev, &have, &total);
    double room =
        xd_machine_device_room(p->dev, (double)have / (share_a_device(p, a) ? p->host->size : 1));
    m->memory = reduce_value(p, room, XD_MIN);
    snprintf(m->device, sizeof m->device, "%.*s", (int)strcspn(p->dev->name, ":"), p->dev->name);
    m->inside = (xd_wire){ .latency_s = 15e-6, .bytes = 14e9, .overlap = 0.5 };
    /* On any real GPU, large GEMMs exceed 100 GFLOP/s; only a simulated GPU is slower. */
    p->slow = xd_probe_mean(p, xd_dev_peak(p->dev, XD_F32, 0, 0.002)) < 100;
}

static xd_status measure_machine(xd_prober *p, const xd_probe_args *a, xd_machine *m, xd_err *e)
{
    xd_dtype  best = xd_dev_compute(p->dev, XD_BF16);
    xd_status s = count_hosts(p, m, e);
    if (s != XD_OK)
        return s;
    if (p->apart)
        describe_device(p, a, m);
    else
        describe_host(p, m);
    m->between = (xd_wire){ .latency_s = 60e-6, .bytes = 1.1e9, .overlap = 0.5 };
    s = agree_status(p, xd_probe_rates(p, XD_F32, &m->f32, e), e);
    m->bf16 = m->f32;
    if (s == XD_OK && best == XD_BF16)
        s = agree_status(p, xd_probe_rates(p, XD_BF16, &m->bf16, e), e);
    m->alone = 1;
    if (s == XD_OK && (!p->apart || share_a_device(p, a)))
        s = agree_status(p, xd_probe_alone(p, best, &m->alone, e), e);
    if (s != XD_OK)
        return s;
    return p->apart ? xd_probe_device_wires(p, m, e) : xd_probe_wires(p, m, e);
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Writes the path of the machine file that `xdit plan` reads by default. Returns 0 if there is no
 * such path. */
static int default_path(const xd_probe_args *a, const xd_machine *m, char *path, size_t size)
{
    return m->device[0] ? xd_machine_device_home(m->ranks, a->device, path, size)
                        : xd_machine_home(m->ranks, m->threads, path, size);
}

/* Chooses the directory whose disk is measured, which is probably the disk with the weights: the
 * directory of the output file, else the model cache, else the directory of the machine file.
 * Returns a malloc'ed path, or NULL if there is no such directory. */
static char *read_dir(const xd_probe_args *a, const xd_machine *m)
{
    char        path[4096] = "";
    const char *out = a->output && strcmp(a->output, "-") != 0 ? a->output : NULL;
    char       *hub = out ? NULL : xd_model_hub();
    if (hub && access(hub, W_OK) == 0)
        return hub;
    free(hub);
    if (out)
        snprintf(path, sizeof path, "%s", out);
    else if (default_path(a, m, path, sizeof path))
        xd_make_parents(path);
    else
        return NULL;
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path] = 0;
    return strdup(slash ? path : ".");
}

static void measure_read(const xd_probe_args *a, xd_machine *m)
{
    char  why[512] = "no directory of models is known";
    char *dir = read_dir(a, m);
    m->read = dir ? xd_probe_read(dir, READ_BYTES, why, sizeof why) : 0;
    if (m->read > 0)
        xd_log(XD_LOG_INFO, "%s: reading at %.0f MB/s", dir, m->read / 1e6);
    else
        xd_log(XD_LOG_INFO,
               "the reading speed of %s could not be measured: %s; predictions "
               "exclude reading weights",
               dir ? dir : "weights", why);
    free(dir);
}

/* ---- the file ----------------------------------------------------------------------------- */

static xd_status put_file(const char *path, const char *text, xd_err *e)
{
    xd_out    o;
    xd_status s = xd_out_open(&o, path, e);
    if (s != XD_OK)
        return s;
    fputs(text, o.f);
    return xd_out_commit(&o, e);
}

/* Prints the measured machine, and writes it to the given file or to the file that plans read. */
static xd_status report_machine(const xd_probe_args *a, const xd_machine *m, double seconds,
                                xd_err *e)
{
    xd_text_buf b = { 0 };
    char        path[4096] = "", line[4400];
    xd_status   s = XD_OK;
    xd_machine_write(m, &b);
    if (b.failed)
        return xd_fail(e, XD_ENOMEM, "no memory for a cluster file");
    if (a->output)
        snprintf(path, sizeof path, "%s", a->output);
    else if (m->hosts == 1 && default_path(a, m, path, sizeof path))
        xd_make_parents(path);
    if (path[0] && strcmp(path, "-") != 0)
        s = put_file(path, b.p, e);
    if (s == XD_OK && a->line && (!path[0] || strcmp(path, "-") == 0)) {
        b.p[strlen(b.p) - 1] = 0;
        a->line(a->cookie, b.p);
    } else if (s == XD_OK && a->line) {
        snprintf(line, sizeof line, "%s", path);
        a->line(a->cookie, line);
    }
    if (s == XD_OK)
        xd_log(XD_LOG_INFO, "measured %d rank%s in %.1f s", m->hosts * m->ranks,
               m->hosts * m->ranks == 1 ? "" : "s", seconds);
    xd_buf_free(&b);
    return s;
}

/* Connects the ranks and opens the device of this rank. */
static xd_status open_prober(xd_prober *p, const xd_probe_args *a, xd_err *e)
{
    int         ranks = 1, cores = 1, rank = 0;
    xd_cpuset   cpus;
    xd_dev_name name = { "" };
    xd_status   s = xd_comm_world(&p->all, xd_comm_launched() ? "mpi" : "self", e);
    if (s != XD_OK)
        return s;
    int share = xd_comm_share(&ranks, &cores);
    xd_par_set(a->threads ? a->threads : share);
    ranks = 1;
    if (p->all->size > 1)
        xd_comm_host(&rank, &ranks, &cpus);
    s = xd_dev_of_rank(&name, a->device, rank, ranks, e);
    if (s == XD_OK)
        s = xd_dev_open(&p->dev, *name.s ? name.s : a->device, e);
    if (a->device)
        s = agree_status(p, s, e);
    if (s == XD_OK) {
        p->apart = !p->dev->host_memory;
        s = xd_comm_stage(&p->all, p->dev, e);
    }
    return s == XD_OK ? p->all->ops->split_host(p->all, &p->host, e) : s;
}

/* Writes the name of the machine, such as "host and others" or "host, 2 x NVIDIA H100". */
static void name_machine(const xd_prober *p, xd_machine *m)
{
    char host[40] = "", product[100] = "";
    gethostname(host, sizeof host - 1);
    if (p->dev->mem->product)
        p->dev->mem->product(p->dev, product, sizeof product);
    if (p->apart)
        snprintf(m->name, sizeof m->name, "%.16s, %d x %.30s", host, m->ranks,
                 product[0] ? product : p->dev->name);
    else
        snprintf(m->name, sizeof m->name, "%.32s%s", host, m->hosts > 1 ? " and others" : "");
}

static xd_status run_probe(const xd_probe_args *a, xd_err *e)
{
    xd_prober  p = { 0 };
    xd_machine m;
    double     t0 = xd_now_s();
    memset(&m, 0, sizeof m);
    xd_status s = XD_OK;
    /* Before the measurements, checks that the output file can be written. */
    if (a->output && strcmp(a->output, "-") != 0)
        s = xd_file_writable(a->output, e);
    if (s == XD_OK)
        s = open_prober(&p, a, e);
    if (s == XD_OK)
        s = measure_machine(&p, a, &m, e);
    if (s == XD_OK) {
        if (!p.apart)
            /* The measured rates are those of the fastest calls, which are not slowed down by ranks
             * that share a core. xd_machine_oversubscribe therefore reduces the rates if ranks
             * share cores. */
            xd_machine_oversubscribe(&m);
        name_machine(&p, &m);
        if (p.all->rank == 0)
            measure_read(a, &m);
        if (p.all->rank == 0)
            s = report_machine(a, &m, xd_now_s() - t0, e);
    }
    xd_comm_close(&p.host);
    xd_comm_close(&p.all);
    xd_dev_close(&p.dev);
    return s;
}

void xd_probe_args_init_size(xd_probe_args *a, size_t size)
{
    xd_record_init(a, size);
}

xd_status xd_probe(const xd_probe_args *args, xd_err *e)
{
    xd_probe_args a;
    xd_probe_args_init(&a);
    xd_status s = xd_record_read(&a, sizeof a, args, "xd_probe_args", e);
    if (s != XD_OK)
        return s;
    const xd_logger  log = { a.log, a.cookie, a.log_level };
    const xd_logger *before = xd_log_enter(&log);
    s = run_probe(&a, e);
    xd_log_enter(before);
    return s;
}
