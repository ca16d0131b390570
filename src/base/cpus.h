/* cpus.h - the cpus of this host: how they lie in sockets, memory nodes, caches and cores; shares of them
 *
 * A cpu is what the system schedules on: a core, or one of its hardware threads (SMT siblings). What the
 * system does not tell is taken to be flat: one socket, one node, every cpu a core. */
#ifndef XD_BASE_CPUS_H
#define XD_BASE_CPUS_H

#include <stddef.h>
#include <stdint.h>

/* A set of cpus, or of memory nodes, by their numbers in the system. */
enum { XD_CPU_MOST = 4096 };
typedef struct xd_cpuset { uint64_t w[XD_CPU_MOST / 64]; } xd_cpuset;

int  xd_cpuset_has(const xd_cpuset *s, int cpu);
void xd_cpuset_add(xd_cpuset *s, int cpu);      /* numbers that are none are left out           */
int  xd_cpuset_count(const xd_cpuset *s);
/* A list as the system writes it, "0-3,8"; "" is the empty set. 0: it is none. */
int  xd_cpuset_read(xd_cpuset *s, const char *list);
/* The same the other way; what does not fit ends in "...". Returns text. */
const char *xd_cpuset_text(const xd_cpuset *s, char *text, size_t size);
/* The cpus that the calling thread may run on, and so what threads that it starts will. 0: unknown, or the
 * system refuses (errno). */
int  xd_cpuset_mine(xd_cpuset *s);
int  xd_cpuset_bind(const xd_cpuset *s);

typedef struct xd_cpu_info {
    int id, socket, node;
    int l3, core;               /* the lowest cpu of those that share it                       */
    int smt;                    /* which of its core's                                         */
} xd_cpu_info;

typedef struct xd_cpus {
    int     n, sockets, nodes, l3s, cores;
    xd_cpu_info *v;                  /* [n] by node, socket, cache, core, sibling                   */
} xd_cpus;

/* The cpus of `mask` that are online. `root` is a directory like /sys/devices/system (NULL: that), of which
 * any file may be missing. 0: no cpu, or no memory; then there is nothing to free. */
int  xd_cpus_read(xd_cpus *c, const char *root, const xd_cpuset *mask);
void xd_cpus_free(xd_cpus *c);

/* The share of rank r of n: neighbouring whole cores with all their cpus; the first ranks have one core more
 * where they are not even. Returns its cpus; 0: there are more ranks than cores. */
int  xd_cpus_share(const xd_cpus *c, int r, int n, xd_cpuset *share);
/* One cpu each of `threads` cores, of one node if one has so many. Returns their number; 0: there are
 * fewer cores. */
int  xd_cpus_spread(const xd_cpus *c, int threads, xd_cpuset *share);

/* The memory nodes with cpus of `cpus`; returns how many (0: the system does not say). */
int  xd_cpuset_nodes(const xd_cpuset *cpus, const char *root, xd_cpuset *nodes);
/* Pages of [p, p + bytes) that are not there yet will lie on these nodes in turn, whoever touches them first.
 * Nothing happens with fewer than two, and where the process was started with a memory policy of its own. */
void xd_interleave(void *p, size_t bytes, const xd_cpuset *nodes);

#endif
