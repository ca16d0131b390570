/* cpus.h - the cpus of this host: sockets, memory nodes, L3 caches and cores; shares for ranks
 *
 * A cpu is what the system schedules on: a core, or one of its hardware threads (SMT siblings).
 * Where the system does not describe the topology, it is taken to be flat: one socket, one node,
 * each cpu a core of its own. */
#ifndef XD_BASE_CPUS_H
#define XD_BASE_CPUS_H

#include <stddef.h>
#include <stdint.h>

/* A set of cpus or of memory nodes, by the system's numbers. */
enum { XD_CPU_MOST = 4096 };
typedef struct xd_cpuset { uint64_t w[XD_CPU_MOST / 64]; } xd_cpuset;

int  xd_cpuset_has(const xd_cpuset *s, int cpu);
void xd_cpuset_add(xd_cpuset *s, int cpu);      /* ignores numbers out of range                */
int  xd_cpuset_count(const xd_cpuset *s);
/* Parses a list in the system's format, "0-3,8"; "" is the empty set. 0: not valid. */
int  xd_cpuset_read(xd_cpuset *s, const char *list);
/* Writes the set as such a list and returns `text`. A list that does not fit ends in "...". */
const char *xd_cpuset_text(const xd_cpuset *s, char *text, size_t size);
/* The affinity mask of the calling thread, which the threads it starts inherit: read it, set it.
 * Return 0 if it is unknown or the system refuses (errno). */
int  xd_cpuset_mine(xd_cpuset *s);
int  xd_cpuset_bind(const xd_cpuset *s);

typedef struct xd_cpu_info {
    int id, socket, node;
    int l3, core;               /* lowest cpu that shares this L3 cache, this core             */
    int smt;                    /* index among the siblings of its core                        */
} xd_cpu_info;

typedef struct xd_cpus {
    int     n, sockets, nodes, l3s, cores;
    xd_cpu_info *v;             /* [n], sorted by node, socket, L3 cache, core, sibling        */
} xd_cpus;

/* Reads the online cpus of `mask`. `root` is a directory like /sys/devices/system (NULL: that one);
 * any of its files may be missing. Returns 0, with nothing to free, if there is no cpu or no
 * memory. */
int  xd_cpus_read(xd_cpus *c, const char *root, const xd_cpuset *mask);
void xd_cpus_free(xd_cpus *c);

/* The share of rank r of n: adjacent whole cores with all their cpus. If the division leaves a
 * remainder, the first ranks have one core more. Returns the number of cpus; 0: more ranks than
 * cores. */
int  xd_cpus_share(const xd_cpus *c, int r, int n, xd_cpuset *share);
/* One cpu on each of `threads` cores, all of one node if a node has that many. Returns the number
 * of cpus; 0: there are fewer cores. */
int  xd_cpus_spread(const xd_cpus *c, int threads, xd_cpuset *share);

/* The memory nodes of the cpus in `cpus`. Returns their number; 0: the system does not say. */
int  xd_cpuset_nodes(const xd_cpuset *cpus, const char *root, xd_cpuset *nodes);
/* Interleaves the pages of [p, p + bytes) that do not exist yet over these nodes, whichever thread
 * touches them first. Does nothing with fewer than two nodes, or if the process was started with a
 * memory policy of its own. */
void xd_interleave(void *p, size_t bytes, const xd_cpuset *nodes);

#endif
