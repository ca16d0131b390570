/* cpus.h - reads the topology of this host's cpus (sockets, NUMA nodes, L3 caches, cores), and
 * computes each rank's share of the cores.
 *
 * A cpu is a logical processor: a core, or one of its hardware threads (SMT siblings). If the
 * system does not describe the topology, a flat topology is assumed: one socket, one NUMA node, and
 * one core per cpu. */
#ifndef XD_BASE_CPUS_H
#define XD_BASE_CPUS_H

#include <stddef.h>
#include <stdint.h>

/* A set of cpus or of NUMA nodes, stored as a bit mask. Bit i of the mask stands for the cpu or
 * node with the system's number i. */
enum { XD_CPU_MAX = 4096 };
typedef struct xd_cpuset { uint64_t w[XD_CPU_MAX / 64]; } xd_cpuset;

int         xd_cpuset_has(const xd_cpuset *s, int cpu);
/* Adds a cpu to the set; ignores numbers out of range. */
void        xd_cpuset_add(xd_cpuset *s, int cpu);
int         xd_cpuset_count(const xd_cpuset *s);
/* Parses a list of cpus or nodes in the system's format, "0-3,8"; "" is the empty set. Returns 0 if
 * the list is not valid. */
int         xd_cpuset_read(xd_cpuset *s, const char *list);
/* Writes the set as a list, "0-3,8", and returns `text`. A list that does not fit ends in "...". */
const char *xd_cpuset_text(const xd_cpuset *s, char *text, size_t size);
/* xd_cpuset_mine reads and xd_cpuset_bind sets the affinity mask of the calling thread; threads
 * that this thread starts later inherit the mask. xd_cpuset_mine and xd_cpuset_bind return 0 on
 * failure, with errno set. */
int         xd_cpuset_mine(xd_cpuset *s);
int         xd_cpuset_bind(const xd_cpuset *s);

typedef struct xd_cpu_info {
    int id, socket, node;
    /* l3: the lowest number of the cpus that have the same L3 cache as this cpu; core: the lowest
     * number of the cpus on the same core. */
    int l3, core;
    int smt; /* index of the cpu among the hardware threads of its core */
} xd_cpu_info;

typedef struct xd_cpus {
    int          n, sockets, nodes, l3s, cores;
    xd_cpu_info *v; /* [n], sorted by node, socket, L3 cache, core, sibling */
} xd_cpus;

/* Reads the topology of the online cpus in `mask`. root: a directory like /sys/devices/system
 * (NULL: /sys/devices/system), in which any file may be missing. Returns 0 if no cpu is found or if
 * out of memory; the caller then need not free anything. */
int  xd_cpus_read(xd_cpus *c, const char *root, const xd_cpuset *mask);
void xd_cpus_free(xd_cpus *c);

/* Computes the share of cpus of rank r of n. Rank r gets a share of adjacent cores, with all cpus
 * of these cores. If the division of the cores leaves a remainder, the first ranks get one core
 * more. Returns the number of cpus in the share, or 0 if there are more ranks than cores. */
int xd_cpus_share(const xd_cpus *c, int r, int n, xd_cpuset *share);
/* Chooses one cpu on each of `threads` cores, all on one NUMA node if a node has that many cores.
 * Returns the number of chosen cpus, or 0 if there are fewer cores than threads. */
int xd_cpus_spread(const xd_cpus *c, int threads, xd_cpuset *share);

/* Finds the NUMA nodes to which the cpus in `cpus` belong. Returns the number of nodes, or 0 if the
 * nodes are unknown. */
int  xd_cpuset_nodes(const xd_cpuset *cpus, const char *root, xd_cpuset *nodes);
/* Sets the memory policy of [p, p + bytes): pages of this range that are allocated from now on are
 * interleaved over the given NUMA nodes, whichever thread touches them first. xd_interleave does
 * nothing if there are fewer than two nodes, or if the process was started with its own memory
 * policy (numactl). */
void xd_interleave(void *p, size_t bytes, const xd_cpuset *nodes);

#endif
