/* doctor_host.c - checks the host: cores, memory, limits, GPUs, directories; see doctor.h */
#define _GNU_SOURCE /* RLIMIT_MEMLOCK */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cpus.h"
#include "base/file.h"
#include "cli/doctor.h"
#include "launch/launch.h"
#include "launch/rundir.h"

/* Reads the beginning of a small file, without its last newline; returns 0 if the file cannot be
 * read. */
static int first_words(const char *path, char *text, size_t size)
{
    FILE  *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    text[strcspn(text, "\n")] = 0;
    return n > 0;
}

/* Counts the entries of a directory whose names begin with `start`. */
static int count_entries(const char *dir, const char *start)
{
    DIR *d = opendir(dir);
    int  n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.' && strncmp(e->d_name, start, strlen(start)) == 0;
    if (d)
        closedir(d);
    return n;
}

/* ---- cores ----------------------------------------------------------------------------------- */

/* Returns the CPU quota of the process' control group, in cores; 0: no limit. */
static double cpu_quota(void)
{
    char   text[64];
    double quota = 0, period = 100000;
    if (first_words("/sys/fs/cgroup/cpu.max", text, sizeof text))
        return sscanf(text, "%lf %lf", &quota, &period) == 2 && period > 0 ? quota / period : 0;
    if (first_words("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text, sizeof text))
        quota = atof(text);
    if (first_words("/sys/fs/cgroup/cpu/cpu.cfs_period_us", text, sizeof text))
        period = atof(text);
    return quota > 0 && period > 0 ? quota / period : 0;
}

static void report_cores(xd_findings *f, const xd_host *m)
{
    long   all = sysconf(_SC_NPROCESSORS_ONLN);
    double quota = cpu_quota();
    int    nodes = count_entries("/sys/devices/system/node", "node");
    if (quota > 0 && quota < m->cores - 0.5)
        xd_findings_add(f, XD_CHECK_WARN, "cores",
                        "use --threads with that number, or raise the limit "
                        "of the container",
                        "%d of %ld are usable, but the control group limits them to %.1f", m->cores,
                        all, quota);
    else
        xd_findings_add(f, XD_CHECK_OK, "cores", "", "%d of %ld are usable", m->cores, all);
    xd_findings_add(f, XD_CHECK_OK, "numa", "", "%d memory node%s", nodes ? nodes : 1,
                    nodes > 1 ? "s" : "");
}

/* Formats a count with its noun: "1 core", "2 cores". */
static const char *count_text(int n, const char *what, char text[32])
{
    snprintf(text, 32, "%d %s%s", n, what, n == 1 ? "" : "s");
    return text;
}

enum { MAX_LINES = 16 }; /* maximum number of printed lines, one per rank */

/* Reports the CPUs to which `xdit generate` would bind every rank. */
static void report_shares(xd_findings *f, const xd_cpus *c, int ranks)
{
    xd_cpuset share;
    char      text[300], report_cores[32];
    if (!xd_cpus_share(c, 0, ranks, &share)) {
        xd_findings_add(f, XD_CHECK_OK, "placement", "",
                        "%d ranks are more than %s: they are not bound", ranks,
                        count_text(c->cores, "core", report_cores));
        return;
    }
    for (int r = 0; r < ranks && r < MAX_LINES; r++)
        if (xd_cpus_share(c, r, ranks, &share))
            xd_findings_add(f, XD_CHECK_OK, "placement", "", "rank %d of %d on CPUs %s", r, ranks,
                            xd_cpuset_text(&share, text, sizeof text));
    if (ranks > MAX_LINES)
        xd_findings_add(f, XD_CHECK_OK, "placement", "", "and %d more ranks likewise",
                        ranks - MAX_LINES);
}

static void report_topology(xd_findings *f, int ranks)
{
    xd_cpuset mask;
    xd_cpus   c;
    char      text[5][32];
    if (!xd_cpuset_mine(&mask) || !xd_cpus_read(&c, NULL, &mask)) {
        xd_findings_add(f, XD_CHECK_WARN, "topology", "nothing: ranks are not bound to cores",
                        "the system does not report its CPUs");
        return;
    }
    xd_findings_add(f, XD_CHECK_OK, "topology", "", "%s, %s, %s, %s, %s",
                    count_text(c.sockets, "socket", text[0]),
                    count_text(c.nodes, "memory node", text[1]),
                    count_text(c.l3s, "L3 group", text[2]), count_text(c.cores, "core", text[3]),
                    count_text(c.n, "hardware thread", text[4]));
    report_shares(f, &c, ranks);
    xd_cpus_free(&c);
}

static void report_threads(xd_findings *f, const xd_host *m)
{
    static const char *const names[] = {
        "OMP_NUM_THREADS", "OMP_PROC_BIND",     "OMP_PLACES",
        "OMP_WAIT_POLICY", "GOMP_CPU_AFFINITY", "OMP_THREAD_LIMIT"
    };
    char        text[256] = "";
    size_t      at = 0;
    const char *limit = getenv("OMP_THREAD_LIMIT"), *wait = getenv("OMP_WAIT_POLICY");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]) && at < sizeof text)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s=%s", at ? ", " : "", names[i],
                                   getenv(names[i]));
    if (!text[0])
        snprintf(text, sizeof text, "no OMP_ variable is set");
    if (limit && atoi(limit) > 0 && atoi(limit) < m->cores)
        xd_findings_add(f, XD_CHECK_WARN, "threads", "unset OMP_THREAD_LIMIT",
                        "%s: fewer than "
                        "the %d "
                        "cores",
                        text, m->cores);
    else if (wait && (*wait == 'a' || *wait == 'A'))
        xd_findings_add(f, XD_CHECK_WARN, "threads",
                        "unset OMP_WAIT_POLICY if others use this "
                        "machine",
                        "%s: waiting threads occupy their cores", text);
    else
        xd_findings_add(f, XD_CHECK_OK, "threads", "",
                        "%s; --threads sets the number, default %d divided by the ranks", text,
                        m->cores);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static double group_limit(void)
{
    char   text[64];
    double n = 0;
    if (first_words("/sys/fs/cgroup/memory.max", text, sizeof text) ||
        first_words("/sys/fs/cgroup/memory/memory.limit_in_bytes", text, sizeof text))
        n = atof(text);
    /* a control group without a limit has the value "max", or the maximum value in version 1 */
    return n < 1e18 ? n : 0;
}

static double weights_of(const char *dir)
{
    DIR   *d = opendir(dir);
    double sum = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char       *path = xd_path_join(dir, e->d_name);
        size_t      n = strlen(e->d_name);
        struct stat st;
        if (path && n > 12 && !strcmp(e->d_name + n - 12, ".safetensors") && stat(path, &st) == 0)
            sum += (double)st.st_size;
        free(path);
    }
    if (d)
        closedir(d);
    return sum;
}

/* Reports the memory that is free for a model. All ranks of a host together need the weights of the
 * transformer once. */
static void report_memory(xd_findings *f, const xd_host *m)
{
    char   all[16], free_bytes[16], limit[16], need[16], group[48] = "", model[64] = "";
    char  *dir = m->model ? xd_path_join(m->model, "transformer") : NULL;
    double want = dir ? weights_of(dir) : 0;
    double total = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE),
           most = group_limit();
    free(dir);
    if (most > 0)
        snprintf(group, sizeof group, ", control group %s", xd_bytes_text(most, limit));
    if (want > 0)
        snprintf(model, sizeof model, ", including %s of shared weights",
                 xd_bytes_text(want, need));
    const char *advice = want > m->free_bytes
                             ? "the model does not fit: end other programs, or raise the limit"
                             : "only small models fit: end other programs, or raise the limit";
    xd_findings_add(f, m->free_bytes < (want > 2e9 ? want : 2e9) ? XD_CHECK_WARN : XD_CHECK_OK,
                    "memory", advice, "%s of %s free for all ranks%s%s",
                    xd_bytes_text(m->free_bytes, free_bytes), xd_bytes_text(total, all), model,
                    group);
}

/* Reports the shared memory for messages between ranks of a host. */
static void report_shared_memory(xd_findings *f, const xd_host *m)
{
    static const char dir[] = "/dev/shm";
    double            have = xd_rundir_space(dir), want = xd_rundir_need(m->ranks);
    char              free_[16], need[16];
    xd_findings_add(f, have < want ? XD_CHECK_WARN : XD_CHECK_OK, "shared",
                    "enlarge it (for containers: --shm-size); without, messages "
                    "use files in /tmp",
                    "%s has %s free; messages of %d ranks need at most %s", dir,
                    xd_bytes_text(have, free_), m->ranks, xd_bytes_text(want, need));
}

static void report_huge_pages(xd_findings *f)
{
    char text[128];
    if (!first_words("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text))
        xd_findings_add(f, XD_CHECK_WARN, "hugepages",
                        "nothing; they make large models some "
                        "percent "
                        "faster",
                        "this system has no transparent huge pages");
    else if (strstr(text, "[never]"))
        xd_findings_add(f, XD_CHECK_WARN, "hugepages",
                        "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                        "transparent huge pages are off");
    else
        xd_findings_add(f, XD_CHECK_OK, "hugepages", "", "transparent: %s",
                        strstr(text, "[always]") ? "always" : "madvise, which xdit uses");
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void limit_text(rlim_t n, char *text, size_t size)
{
    if (n == RLIM_INFINITY)
        snprintf(text, size, "unlimited");
    else
        snprintf(text, size, "%llu", (unsigned long long)n);
}

static void report_limits(xd_findings *f, const xd_host *m)
{
    struct rlimit space = { RLIM_INFINITY, 0 }, lock = space, files = space;
    char          v[32], l[32], n[32], free_bytes[16];
    getrlimit(RLIMIT_AS, &space);
    getrlimit(RLIMIT_MEMLOCK, &lock);
    getrlimit(RLIMIT_NOFILE, &files);
    limit_text(space.rlim_cur == RLIM_INFINITY ? space.rlim_cur : space.rlim_cur / 1024, v,
               sizeof v);
    limit_text(lock.rlim_cur == RLIM_INFINITY ? lock.rlim_cur : lock.rlim_cur / 1024, l, sizeof l);
    limit_text(files.rlim_cur, n, sizeof n);
    if (files.rlim_cur < 256)
        xd_findings_add(f, XD_CHECK_WARN, "limits",
                        "ulimit -n 1024, for models with many files and for many ranks",
                        "-v %s, -l %s, -n %s", v, l, n);
    else if (space.rlim_cur != RLIM_INFINITY && m->mapped < m->free_bytes)
        xd_findings_add(
            f, XD_CHECK_WARN, "limits", "ulimit -v unlimited, for large models",
            "-v %s: %s of address space are left, less than the free memory; -l %s, -n %s", v,
            xd_bytes_text(m->mapped, free_bytes), l, n);
    else
        xd_findings_add(f, XD_CHECK_OK, "limits", "", "-v %s, -l %s, -n %s", v, l, n);
}

/* ---- checks of GPUs and directories ---------------------------------------------------------- */

/* Reports which GPU libraries can be loaded: cuBLASLt, which is required, cuDNN for fast attention,
 * and NCCL for several GPUs. */
static void report_gpu_libraries(xd_findings *f, const xd_gpus *g)
{
    if (g->no_kernels[0])
        xd_findings_add(
            f, XD_CHECK_WARN, "gpu",
            "build xdit with an nvcc that matches the driver (-Dnvcc, -Dnvcc_fatbin=FILE)", "%s",
            g->no_kernels);
    xd_findings_add(
        f, g->lacks[XD_GPU_CUBLASLT] ? XD_CHECK_WARN : XD_CHECK_OK, "cublaslt",
        g->lacks[XD_GPU_CUBLASLT] ? "install cuBLAS of CUDA 12 or 13, which GPUs require" : "",
        "%s", g->libraries[XD_GPU_CUBLASLT]);
    xd_findings_add(f, XD_CHECK_OK, "cudnn", "", "%s%s", g->libraries[XD_GPU_CUDNN],
                    g->lacks[XD_GPU_CUDNN] ? "; attention uses kernels of xdit, which are slower"
                                           : "");
    xd_findings_add(f, XD_CHECK_OK, "nccl", "", "%s%s", g->libraries[XD_GPU_NCCL],
                    g->lacks[XD_GPU_NCCL] ? "; GPUs of a host use peer memory instead" : "");
}

static void report_gpus(xd_findings *f, const xd_gpus *g)
{
    xd_findings_add(f, XD_CHECK_OK, "driver", "", "%s", g->driver);
    for (int i = 0; i < g->n; i++)
        xd_findings_add(f, g->old[i] ? XD_CHECK_WARN : XD_CHECK_OK, "gpu",
                        g->old[i] ? "nothing; --device cuda refuses this GPU" : "", "%s",
                        g->text[i]);
    if (g->peers[0])
        xd_findings_add(f, XD_CHECK_OK, "peers", "", "%s", g->peers);
    report_gpu_libraries(f, g);
    xd_findings_add(
        f, XD_CHECK_OK, "cuda", "",
        "--device cuda is tested on a simulated GPU; no real card has run this backend yet");
}

static void report_gpu(xd_findings *f, const xd_host *m)
{
    const xd_gpus *g = &m->gpus;
    const char    *why = g->none[0] ? g->none : "this build has no device cuda";
    int            cards = count_entries("/proc/driver/nvidia/gpus", "");
    if (g->n)
        report_gpus(f, g);
    else if (cards || access("/dev/nvidiactl", F_OK) == 0)
        xd_findings_add(f, XD_CHECK_WARN, "gpu", "nothing, to use the CPU",
                        "%d by NVIDIA, not usable: %s", cards ? cards : 1, why);
    else if (access("/dev/kfd", F_OK) == 0)
        xd_findings_add(f, XD_CHECK_OK, "gpu", "", "by AMD, which is not supported");
    else
        xd_findings_add(f, XD_CHECK_OK, "gpu", "", "none: %s", why);
}

static void report_directories(xd_findings *f, const xd_host *m)
{
    const char    *tmp = getenv("TMPDIR") && *getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    struct statvfs v;
    char           free_bytes[16];
    int            models = m->hub[0] ? count_entries(m->hub, "models--") : 0;
    double         free_ = statvfs(tmp, &v) == 0 ? (double)v.f_bavail * (double)v.f_frsize : 0;
    if (access(tmp, W_OK | X_OK) != 0)
        xd_findings_add(f, XD_CHECK_FAIL, "temporary", "set TMPDIR to a writable directory",
                        "%s is not writable, which the MPI launcher needs", tmp);
    else if (free_ < 1e8)
        xd_findings_add(f, XD_CHECK_WARN, "temporary", "free some space, or set TMPDIR",
                        "%s has %s free", tmp, xd_bytes_text(free_, free_bytes));
    else
        xd_findings_add(f, XD_CHECK_OK, "temporary", "", "%s, %s free", tmp,
                        xd_bytes_text(free_, free_bytes));
    if (!m->hub[0])
        xd_findings_add(f, XD_CHECK_WARN, "cache",
                        "set HF_HUB_CACHE, or name models by their "
                        "directory",
                        "no Hugging Face cache, because there is no home directory");
    else
        xd_findings_add(f, XD_CHECK_OK, "cache", "", "Hugging Face: %s%s", m->hub,
                        !xd_file_is_dir(m->hub)
                            ? ", which does not exist: name models by their directory"
                        : models ? ""
                                 : ", no models");
}

void xd_check_host(xd_findings *f, const xd_host *m)
{
    report_cores(f, m);
    report_topology(f, m->ranks);
    report_threads(f, m);
    report_memory(f, m);
    report_shared_memory(f, m);
    report_huge_pages(f);
    report_limits(f, m);
    report_gpu(f, m);
    report_directories(f, m);
}
