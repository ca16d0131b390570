/* shared.c - makes memory that the ranks of a host share, in huge pages if possible */
#include "comm/mpi_op.h"

#include "base/pages.h"
#include "comm/shm.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct xd_shm_block {
    xd_shm_block *next;
    void         *p;
    size_t        bytes;
    uint64_t number; /* inode of the file behind this shared-memory block; unique on this host */
    char    *mine;   /* this rank's part of a window */
    size_t   mine_bytes;
};

/* Returns 1 if `ok` is nonzero on all ranks of the group. */
static int all_ok(const xd_mpi_group *g, int ok)
{
    return MPI_Allreduce(MPI_IN_PLACE, &ok, 1, MPI_INT, MPI_MIN, g->mpi) == MPI_SUCCESS && ok;
}

/* Opens on every rank the shared-memory file that rank 0 creates. Returns a file descriptor, or -1
 * on all ranks if one rank fails. */
static int open_file(const xd_mpi_group *g, size_t bytes)
{
    xd_shm_key key = { .fd = -1 };
    int        first = g->c.rank == 0, fd = first ? xd_shm_make(bytes, &key) : -1;
    int        received = MPI_Bcast(&key, (int)sizeof key, MPI_BYTE, 0, g->mpi) == MPI_SUCCESS;
    if (!first && received && key.fd >= 0)
        fd = xd_shm_find(&key);
    if (all_ok(g, fd >= 0 && received))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Creates a shared-memory file and maps the file on all ranks of a group. Returns NULL on all ranks
 * if no shared memory is available. */
static xd_shm_block *open_block(const xd_mpi_group *g, size_t bytes)
{
    xd_shm_block *b = calloc(1, sizeof *b);
    struct stat   st;
    int           fd = open_file(g, bytes);
    if (b && fd >= 0 && fstat(fd, &st) == 0)
        *b = (xd_shm_block){ .p = xd_pages_map(bytes, fd),
                             .bytes = bytes,
                             .number = (uint64_t)st.st_ino };
    if (fd >= 0)
        close(fd);
    if (all_ok(g, b && b->p))
        return b;
    if (b)
        xd_pages_unmap(b->p, b->bytes);
    free(b);
    return NULL;
}

static void close_block(xd_shm_block *b)
{
    xd_pages_unmap(b->p, b->bytes);
    free(b);
}

/* ---- memory that all ranks write: share -------------------------------------------------- */

/* Allocates this rank's part of the shared pages in advance, in complete huge pages. If pages were
 * not allocated in advance, the first access to a page would kill the process when memory is
 * short. */
static int allocate_part(const xd_comm *c, void *p, size_t bytes, int nodes)
{
    size_t n = (bytes + XD_HUGE_PAGE - 1) / XD_HUGE_PAGE, parts = (size_t)c->size,
           part = (size_t)c->rank;
    size_t from = n * part / parts * XD_HUGE_PAGE, to = n * (part + 1) / parts * XD_HUGE_PAGE;
    return xd_pages_allocate(p, from, to < bytes ? to : bytes, nodes);
}

void *xd_mpi_share(xd_comm *c, size_t bytes, int *first)
{
    xd_mpi_group *g = c->priv;
    xd_shm_block *b = open_block(g, bytes ? bytes : 1);
    xd_cpuset     nodes;
    *first = c->rank == 0;
    if (!b)
        return NULL;
    /* All ranks of the host find the same number of NUMA nodes. */
    int many = xd_cpuset_nodes(&g->world->cpus, NULL, &nodes);
    if (many > 1)
        xd_interleave(b->p, b->bytes, &nodes);
    if (!all_ok(g, allocate_part(c, b->p, b->bytes, many))) {
        close_block(b);
        return NULL;
    }
    b->next = g->blocks;
    g->blocks = b;
    return b->p;
}

void xd_mpi_unshare(xd_mpi_group *g)
{
    for (xd_shm_block *b = g->blocks, *next; b; b = next) {
        next = b->next;
        close_block(b);
    }
    g->blocks = NULL;
}

/* ---- windows: each rank writes only its own part ----------------------------------------- */

/* Sets *at to the offset of this rank's part in a window, and returns the size of the window: the
 * sum of all ranks' parts. `mine` is the size of this rank's part in bytes, a multiple of the huge
 * page size. Returns 0 if any rank's part has 0 bytes. */
static size_t sum_parts(const xd_mpi_group *g, size_t mine, size_t *at)
{
    unsigned long long part = mine, sum = 0, smallest = 0, before = 0;
    if (MPI_Allreduce(&part, &sum, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, g->mpi) != MPI_SUCCESS ||
        MPI_Allreduce(&part, &smallest, 1, MPI_UNSIGNED_LONG_LONG, MPI_MIN, g->mpi) !=
            MPI_SUCCESS ||
        MPI_Exscan(&part, &before, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, g->mpi) != MPI_SUCCESS)
        return 0;
    *at = g->c.rank ? (size_t)before : 0;
    return smallest ? (size_t)sum : 0;
}

void *xd_mpi_window_open(xd_comm *c, size_t bytes)
{
    xd_mpi_group *g = c->priv;
    size_t        mine = (bytes + XD_HUGE_PAGE - 1) / XD_HUGE_PAGE * XD_HUGE_PAGE, at = 0;
    /* After a communication failure, the ranks may be at different calls, so their messages would
     * not match and none are sent. */
    size_t        sum = g->world->lost ? 0 : sum_parts(g, mine, &at);
    xd_shm_block *b = sum ? open_block(g, sum) : NULL;
    if (!b)
        return NULL;
    if (!all_ok(g, xd_pages_allocate(b->p, at, at + mine, 0))) {
        close_block(b);
        return NULL;
    }
    b->mine = (char *)b->p + at;
    b->mine_bytes = mine;
    b->next = g->world->window;
    g->world->window = b;
    return b->mine;
}

void xd_mpi_window_close(xd_comm *c, void *p)
{
    xd_shm_block **at = &((const xd_mpi_group *)c->priv)->world->window;
    while (*at && (*at)->mine != (char *)p)
        at = &(*at)->next;
    xd_shm_block *b = *at;
    if (!b)
        return;
    *at = b->next;
    close_block(b);
}

static int is_inside(const void *p, const void *from, size_t bytes)
{
    uintptr_t here = (uintptr_t)p, base = (uintptr_t)from;
    return here >= base && here < base + bytes;
}

uint64_t xd_window_find(const xd_mpi_world *w, const void *p, int64_t *at, int *mine)
{
    for (const xd_shm_block *b = w->window; b; b = b->next) {
        if (!is_inside(p, b->p, b->bytes))
            continue;
        *at = (int64_t)((uintptr_t)p - (uintptr_t)b->p);
        *mine = is_inside(p, b->mine, b->mine_bytes);
        return b->number;
    }
    return 0;
}

char *xd_window_address(const xd_mpi_world *w, uint64_t block, int64_t at, int64_t bytes)
{
    for (const xd_shm_block *b = w->window; b; b = b->next)
        if (b->number == block)
            return at >= 0 && bytes >= 0 && (size_t)at + (size_t)bytes <= b->bytes
                       ? (char *)b->p + at
                       : NULL;
    return NULL;
}
