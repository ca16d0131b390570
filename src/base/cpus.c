/* cpus.c - reads the topology of the host's cpus, and divides the cpus into shares for several
 * processes */
#define _GNU_SOURCE /* for sched_setaffinity, syscall */
#include "base/cpus.h"

#include <ctype.h>
#include <dirent.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/pages.h"

#define SYSTEM "/sys/devices/system"

/* ---- sets --------------------------------------------------------------------------------- */

int xd_cpuset_has(const xd_cpuset *s, int cpu)
{
    return cpu >= 0 && cpu < XD_CPU_MAX && (s->w[cpu / 64] >> (cpu % 64) & 1);
}

void xd_cpuset_add(xd_cpuset *s, int cpu)
{
    if (cpu >= 0 && cpu < XD_CPU_MAX)
        s->w[cpu / 64] |= (uint64_t)1 << (cpu % 64);
}

int xd_cpuset_count(const xd_cpuset *s)
{
    int n = 0;
    for (int i = 0; i < XD_CPU_MAX / 64; i++)
        n += __builtin_popcountll(s->w[i]);
    return n;
}

int xd_cpuset_read(xd_cpuset *s, const char *list)
{
    *s = (xd_cpuset){ { 0 } };
    while (isspace((unsigned char)*list))
        list++;
    for (const char *p = list; *p; p++) {
        char *end;
        long  first = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : -1, last = first;
        if (first < 0)
            return 0;
        if (*end == '-') {
            p = end + 1;
            last = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : -1;
        }
        if (last < first)
            return 0;
        for (long i = first; i <= last && i < XD_CPU_MAX; i++)
            xd_cpuset_add(s, (int)i);
        p = end;
        if (*p != ',')
            return p[strspn(p, " \n")] == 0;
    }
    return *list == 0;
}

const char *xd_cpuset_text(const xd_cpuset *s, char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < XD_CPU_MAX; i++) {
        char one[32];
        int  last = i;
        if (!xd_cpuset_has(s, i))
            continue;
        while (xd_cpuset_has(s, last + 1))
            last++;
        int n = last > i ? snprintf(one, sizeof one, "%s%d-%d", at ? "," : "", i, last)
                         : snprintf(one, sizeof one, "%s%d", at ? "," : "", i);
        if (at + (size_t)n + sizeof "..." > size) {
            snprintf(text + at, size - at, "...");
            break;
        }
        memcpy(text + at, one, (size_t)n + 1);
        at += (size_t)n;
        i = last;
    }
    return text;
}

int xd_cpuset_mine(xd_cpuset *s)
{
    *s = (xd_cpuset){ { 0 } };
    return sched_getaffinity(0, sizeof *s, (cpu_set_t *)(void *)s) == 0 && xd_cpuset_count(s) > 0;
}

int xd_cpuset_bind(const xd_cpuset *s)
{
    return sched_setaffinity(0, sizeof *s, (const cpu_set_t *)(const void *)s) == 0;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Reads the beginning of the file `name` below the directory `root`. Returns 0 if the file does not
 * exist. */
static int read_text(const char *root, const char *name, char *text, size_t size)
{
    char   path[4096];
    int    k = snprintf(path, sizeof path, "%s/%s", root, name);
    FILE  *f = k > 0 && (size_t)k < sizeof path ? fopen(path, "r") : NULL;
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = 0;
    if (f)
        fclose(f);
    return f != NULL;
}

static int read_set(const char *root, const char *name, xd_cpuset *s)
{
    char text[4096];
    return read_text(root, name, text, sizeof text) && xd_cpuset_read(s, text);
}

static int read_set_of_cpu(const char *root, int cpu, const char *name, xd_cpuset *s)
{
    char path[128];
    snprintf(path, sizeof path, "cpu/cpu%d/%s", cpu, name);
    return read_set(root, path, s) && xd_cpuset_has(s, cpu);
}

/* Reads a file in the system's directory of a cpu, and returns the integer that the file contains,
 * such as the number of the cpu's socket. Returns -1 if the file is missing or invalid. */
static int read_number(const char *root, int cpu, const char *name)
{
    char path[128], text[32];
    snprintf(path, sizeof path, "cpu/cpu%d/topology/%s", cpu, name);
    int v = read_text(root, path, text, sizeof text) && isdigit((unsigned char)text[0]) ? atoi(text)
                                                                                        : -1;
    return v < XD_CPU_MAX ? v : -1;
}

/* Calls fn for every NUMA node, with the node's number and cpus. */
static void each_node(const char *root, void (*fn)(void *ctx, int node, const xd_cpuset *cpus),
                      void *ctx)
{
    char path[4096];
    int  k = snprintf(path, sizeof path, "%s/node", root);
    DIR *d = k > 0 && (size_t)k < sizeof path ? opendir(path) : NULL;
    for (struct dirent *f; d && (f = readdir(d));) {
        char      name[64];
        xd_cpuset cpus;
        int       node = -1, end = 0;
        if (sscanf(f->d_name, "node%d%n", &node, &end) != 1 || f->d_name[end] || node < 0 ||
            node >= XD_CPU_MAX)
            continue;
        snprintf(name, sizeof name, "node/node%d/cpulist", node);
        if (read_set(root, name, &cpus))
            fn(ctx, node, &cpus);
    }
    if (d)
        closedir(d);
}

static void note_node(void *ctx, int node, const xd_cpuset *cpus)
{
    xd_cpu_info *all = ctx;
    for (int i = 0; i < XD_CPU_MAX; i++)
        if (xd_cpuset_has(cpus, i))
            all[i].node = node;
}

/* Records all cpus of the core of `cpu`. The cpus of a core share socket and caches, so the files
 * of only one cpu are read, which is fast on large machines. Cpus that are offline or not in
 * `usable` are not recorded. */
static void note_core(const char *root, xd_cpu_info *all, const xd_cpuset *usable, int cpu)
{
    xd_cpuset same;
    int       socket = read_number(root, cpu, "physical_package_id"), smt = 0, core = -1;
    if (!read_set_of_cpu(root, cpu, "topology/thread_siblings_list", &same)) {
        int id = read_number(root, cpu, "core_id");
        same = (xd_cpuset){ { 0 } };
        for (int i = cpu; i < XD_CPU_MAX; i++)
            if (i == cpu ||
                (id >= 0 && xd_cpuset_has(usable, i) && read_number(root, i, "core_id") == id &&
                 read_number(root, i, "physical_package_id") == socket))
                xd_cpuset_add(&same, i);
    }
    for (int i = 0; i < XD_CPU_MAX; i++) {
        if (!xd_cpuset_has(&same, i) || !xd_cpuset_has(usable, i) || all[i].core >= 0)
            continue;
        core = core < 0 ? i : core;
        all[i].core = core;
        all[i].smt = smt++;
        all[i].socket = socket < 0 ? 0 : socket;
    }
}

static void note_cache(const char *root, xd_cpu_info *all, int cpu)
{
    xd_cpuset same;
    int       first = -1;
    if (!read_set_of_cpu(root, cpu, "cache/index3/shared_cpu_list", &same)) {
        all[cpu].l3 = -1; /* -1: the L3 cache is unknown; one L3 cache per socket is assumed. */
        return;
    }
    for (int i = 0; i < XD_CPU_MAX; i++) {
        if (!xd_cpuset_has(&same, i))
            continue;
        first = first < 0 ? i : first;
        all[i].l3 = first;
    }
}

static int by_place(const void *a, const void *b)
{
    const xd_cpu_info *p = a, *q = b;
    int                x[] = { p->node, p->socket, p->l3, p->core, p->smt },
                       y[] = { q->node, q->socket, q->l3, q->core, q->smt };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

static void count_parts(xd_cpus *c)
{
    xd_cpuset sockets = { { 0 } }, nodes = sockets, l3s = sockets, cores = sockets;
    for (int i = 0; i < c->n; i++) {
        xd_cpuset_add(&sockets, c->v[i].socket);
        xd_cpuset_add(&nodes, c->v[i].node);
        xd_cpuset_add(&l3s, c->v[i].l3);
        xd_cpuset_add(&cores, c->v[i].core);
    }
    c->sockets = xd_cpuset_count(&sockets);
    c->nodes = xd_cpuset_count(&nodes);
    c->l3s = xd_cpuset_count(&l3s);
    c->cores = xd_cpuset_count(&cores);
}

int xd_cpus_read(xd_cpus *c, const char *root, const xd_cpuset *mask)
{
    xd_cpuset    online, usable = *mask;
    xd_cpu_info *all = calloc(XD_CPU_MAX, sizeof *all);
    *c = (xd_cpus){ 0 };
    root = root ? root : SYSTEM;
    if (!all)
        return 0;
    int known = read_set(root, "cpu/online", &online);
    for (int i = 0; known && i < XD_CPU_MAX / 64; i++)
        usable.w[i] &= online.w[i];
    if (!xd_cpuset_count(&usable))
        usable = *mask;
    for (int i = 0; i < XD_CPU_MAX; i++)
        all[i] = (xd_cpu_info){ .id = i, .l3 = -2, .core = -1 };
    each_node(root, note_node, all);
    for (int i = 0; i < XD_CPU_MAX; i++) {
        if (!xd_cpuset_has(&usable, i))
            continue;
        if (all[i].core < 0)
            note_core(root, all, &usable, i);
        if (all[i].l3 == -2)
            note_cache(root, all, i);
    }
    for (int i = 0; i < XD_CPU_MAX; i++)
        if (xd_cpuset_has(&usable, i))
            all[c->n++] = all[i];
    if (!c->n) {
        free(all);
        return 0;
    }
    c->v = all;
    qsort(c->v, (size_t)c->n, sizeof *c->v, by_place);
    count_parts(c);
    return 1;
}

void xd_cpus_free(xd_cpus *c)
{
    free(c->v);
    *c = (xd_cpus){ 0 };
}

/* ---- shares ------------------------------------------------------------------------------- */

int xd_cpus_share(const xd_cpus *c, int r, int n, xd_cpuset *share)
{
    int each = n > 0 ? c->cores / n : 0, more = n > 0 ? c->cores % n : 0;
    int from = r * each + (r < more ? r : more), to = from + each + (r < more), core = -1, got = 0;
    *share = (xd_cpuset){ { 0 } };
    if (!each)
        return 0;
    for (int i = 0; i < c->n; i++) {
        core += i == 0 || c->v[i].core != c->v[i - 1].core;
        if (core < from || core >= to)
            continue;
        xd_cpuset_add(share, c->v[i].id);
        got++;
    }
    return got;
}

/* Chooses at most `threads` cores of the NUMA node `node`, or of all nodes if `node` is -1, and
 * adds the first cpu of each chosen core to the share. */
static int add_cores(const xd_cpus *c, int node, int threads, xd_cpuset *share)
{
    int got = 0;
    *share = (xd_cpuset){ { 0 } };
    for (int i = 0; i < c->n && got < threads; i++) {
        if ((node >= 0 && c->v[i].node != node) || (i && c->v[i].core == c->v[i - 1].core))
            continue;
        xd_cpuset_add(share, c->v[i].id);
        got++;
    }
    return got == threads ? got : 0;
}

int xd_cpus_spread(const xd_cpus *c, int threads, xd_cpuset *share)
{
    if (threads < 1)
        return 0;
    for (int i = 0; i < c->n; i++)
        if ((i == 0 || c->v[i].node != c->v[i - 1].node) &&
            add_cores(c, c->v[i].node, threads, share))
            return threads;
    return add_cores(c, -1, threads, share);
}

/* ---- memory ------------------------------------------------------------------------------- */

typedef struct search {
    const xd_cpuset *cpus;
    xd_cpuset       *nodes;
} search;

static void note_owner(void *ctx, int node, const xd_cpuset *cpus)
{
    search *s = ctx;
    for (int i = 0; i < XD_CPU_MAX / 64; i++)
        if (cpus->w[i] & s->cpus->w[i])
            xd_cpuset_add(s->nodes, node);
}

int xd_cpuset_nodes(const xd_cpuset *cpus, const char *root, xd_cpuset *nodes)
{
    search s = { cpus, nodes };
    *nodes = (xd_cpuset){ { 0 } };
    each_node(root ? root : SYSTEM, note_owner, &s);
    return xd_cpuset_count(nodes);
}

void xd_interleave(void *p, size_t bytes, const xd_cpuset *nodes)
{
    size_t skip = (uintptr_t)p % xd_page_bytes();
    int    mode = MPOL_DEFAULT;
    if (xd_cpuset_count(nodes) < 2 || !bytes)
        return;
    if (syscall(SYS_get_mempolicy, &mode, NULL, 0UL, NULL, 0UL) != 0 || mode != MPOL_DEFAULT)
        return;
    /* An error of mbind is ignored, since memory that is not interleaved is only slower. The number
     * of bits passed to mbind is one too large, because Linux subtracts 1 from it. */
    syscall(SYS_mbind, (char *)p - skip, skip + bytes, (long)MPOL_INTERLEAVE, nodes->w, 1024UL + 1,
            0UL);
}
