/* shared.c - memory that the ranks of a host see together, in huge pages where there are such */
#include "comm/mpi_job.h"

#include "base/pages.h"
#include "comm/shm.h"

#include <stdlib.h>
#include <unistd.h>

struct xd_block {
    xd_block *next;
    void     *p;
    size_t    bytes;
};

/* Did all ranks of a group come so far? */
static int all_ok(const xd_group *g, int ok)
{
    return MPI_Allreduce(MPI_IN_PLACE, &ok, 1, MPI_INT, MPI_MIN, g->mpi) == MPI_SUCCESS && ok;
}

/* A file on this rank, which rank 0 makes; -1 somewhere is a failure of all. */
static int open_file(const xd_group *g, size_t bytes)
{
    xd_shm_key key = { .fd = -1 };
    int        first = g->c.rank == 0, fd = first ? xd_shm_make(bytes, &key) : -1;
    int        told = MPI_Bcast(&key, (int)sizeof key, MPI_BYTE, 0, g->mpi) == MPI_SUCCESS;
    if (!first && told && key.fd >= 0)
        fd = xd_shm_find(&key);
    if (all_ok(g, fd >= 0 && told))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* My part of the pages, in whole huge ones: touching one that there is no memory for later would kill the process. */
static int take_part(const xd_comm *c, void *p, size_t bytes, int nodes)
{
    size_t n = (bytes + XD_HUGE_PAGE - 1) / XD_HUGE_PAGE, parts = (size_t)c->size, part = (size_t)c->rank;
    size_t from = n * part / parts * XD_HUGE_PAGE, to = n * (part + 1) / parts * XD_HUGE_PAGE;
    return xd_pages_take(p, from, to < bytes ? to : bytes, nodes);
}

void *xd_mpi_share(xd_comm *c, size_t bytes, int *first)
{
    xd_group *g = c->priv;
    xd_block *b = calloc(1, sizeof *b);
    xd_cpuset nodes;
    size_t    size = bytes ? bytes : 1;
    int       fd = open_file(g, size), interleaved = 0;
    *first = c->rank == 0;
    if (b && fd >= 0)
        *b = (xd_block){ g->blocks, xd_pages_map(size, fd), size };
    if (fd >= 0)
        close(fd);
    int ok = all_ok(g, b && b->p);
    if (ok) {                           /* before pages are taken, alike on all ranks           */
        interleaved = xd_cpuset_nodes(xd_mpi_cpus(), NULL, &nodes);
        if (interleaved > 1)
            xd_interleave(b->p, size, &nodes);
        ok = all_ok(g, take_part(c, b->p, size, interleaved));
    }
    if (!ok) {
        if (b)
            xd_pages_unmap(b->p, b->bytes);
        free(b);
        return NULL;
    }
    g->blocks = b;
    return b->p;
}

void xd_mpi_unshare(xd_group *g)
{
    for (xd_block *b = g->blocks, *next; b; b = next) {
        next = b->next;
        xd_pages_unmap(b->p, b->bytes);
        free(b);
    }
    g->blocks = NULL;
}
