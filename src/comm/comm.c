/* comm.c - opens a communicator by name, and defines functions that all communicators share */
#include "comm/comm.h"

#include "base/par.h"
#include "comm/kinds.h"

#include <stdlib.h>
#include <string.h>

xd_status xd_comm_world(xd_comm **c, const char *kind, xd_err *e)
{
    *c = NULL;
    if (!strcmp(kind, "self"))
        return xd_comm_self(c, e);
    if (strcmp(kind, "mpi") != 0)
        return xd_fail(e, XD_EUNSUPPORTED, "unknown kind of communicator \"%s\"", kind);
#ifdef XD_WITH_MPI
    return xd_comm_mpi(c, NULL, e);
#else
    return xd_fail(e, XD_EUNSUPPORTED, "this build has no MPI: it runs on one rank only");
#endif
}

xd_status xd_comm_from_mpi(xd_comm **c, const void *mpi_comm, xd_err *e)
{
    *c = NULL;
#ifdef XD_WITH_MPI
    return xd_comm_mpi(c, mpi_comm, e);
#else
    (void)mpi_comm;
    return xd_fail(e, XD_EUNSUPPORTED, "this build has no MPI: it cannot use mpi_comm");
#endif
}

void xd_comm_close(xd_comm **c)
{
    if (c && *c)
        (*c)->ops->close(*c);
    if (c)
        *c = NULL;
}

static int env_number(const char *name)
{
    const char *v = getenv(name);
    return v ? atoi(v) : 0;
}

/* Returns the number of processes that a launcher started. Tests the innermost launcher first,
 * because mpirun may run inside a step of srun. A shell inside a Slurm allocation also has
 * SLURM_NTASKS, but only processes started by srun have a step of several tasks. */
int xd_comm_launch_size(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
                                         "SLURM_STEP_NUM_TASKS" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (env_number(names[i]) > 0)
            return env_number(names[i]);
    return getenv("PMIX_RANK") && getenv("PMIX_NAMESPACE") ? 0 : 1;
}

int xd_comm_launched(void)
{
    return xd_comm_launch_size() != 1;
}

int xd_comm_launch_rank(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return env_number(names[i]);
    return xd_comm_launched() ? env_number("SLURM_PROCID") : -1;
}

int xd_comm_launch_local(int *rank, int *ranks)
{
    static const char *const names[][2] = { { "OMPI_COMM_WORLD_LOCAL_RANK",
                                              "OMPI_COMM_WORLD_LOCAL_SIZE" },
                                            { "MPI_LOCALRANKID", "MPI_LOCALNRANKS" } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i][0]) && env_number(names[i][1]) > 0) {
            *rank = env_number(names[i][0]);
            *ranks = env_number(names[i][1]);
            return *rank >= 0 && *rank < *ranks;
        }
    return 0;
}

int xd_comm_share(int *ranks, int *cores)
{
#ifdef XD_WITH_MPI
    if (xd_mpi_cores(ranks, cores))
        return *cores / *ranks > 1 ? *cores / *ranks : 1;
#endif
    *ranks = 1;
    *cores = xd_par_cores();
    return *cores;
}

int xd_comm_host(int *rank, int *ranks, xd_cpuset *cpus)
{
#ifdef XD_WITH_MPI
    int same = xd_mpi_host(rank, ranks, cpus);
    if (same >= 0)
        return same;
#endif
    *rank = 0;
    *ranks = 1;
    return xd_cpuset_mine(cpus);
}

void xd_comm_about(xd_fact *fact, void *cookie)
{
#ifdef XD_WITH_MPI
    xd_mpi_about(fact, cookie);
#else
    fact(cookie, "library", "MPI: not built in");
#endif
}

int64_t xd_comm_elems(xd_tensor t)
{
    return t.nd == 0 && !t.p ? 0 : xd_count(t);
}

size_t xd_comm_bytes(xd_tensor t)
{
    return (size_t)xd_comm_elems(t) * xd_dtype_size(t.type);
}

/* Prefetches a contiguous run of bytes that a later iteration copies, because the hardware does not
 * predict the addresses of runs that are far apart. */
static inline void prefetch_run(const char *p, size_t run)
{
    for (size_t i = 0; i < run; i += 64)
        __builtin_prefetch(p + i);
}

/* Copies between two views of the same shape, in runs of bytes that are contiguous in both
 * views. */
static void copy_views(xd_tensor to, xd_tensor from)
{
    /* AHEAD: number of runs that are prefetched in advance; LONGEST: size in bytes from which a run
     * needs no prefetch */
    enum { AHEAD = 4, LONGEST = 8192 };
    int64_t inner = 1, at[XD_MAXDIM] = { 0 };
    int     nd = from.nd;
    while (nd > 0 && ((from.s[nd - 1] == inner && to.s[nd - 1] == inner) || from.d[nd - 1] == 1))
        inner *= from.d[--nd];
    size_t      es = xd_dtype_size(from.type), run = (size_t)inner * es;
    char       *q = to.p;
    const char *p = from.p;
    int64_t     p_step = nd ? from.s[nd - 1] * (int64_t)es : 0,
                q_step = nd ? to.s[nd - 1] * (int64_t)es : 0;
    for (;;) {
        if (nd && run < LONGEST && at[nd - 1] + AHEAD < from.d[nd - 1]) {
            prefetch_run(p + AHEAD * p_step, run);
            prefetch_run(q + AHEAD * q_step, run);
        }
        memmove(q, p, run);
        int i = nd - 1;
        for (; i >= 0; i--) {
            p += from.s[i] * (int64_t)es;
            q += to.s[i] * (int64_t)es;
            if (++at[i] < from.d[i])
                break;
            p -= at[i] * from.s[i] * (int64_t)es;
            q -= at[i] * to.s[i] * (int64_t)es;
            at[i] = 0;
        }
        if (i < 0)
            return;
    }
}

void xd_comm_pack(void *to, xd_tensor from)
{
    if (xd_comm_elems(from))
        copy_views(xd_view(to, from.type, from.nd, from.d), from);
}

void xd_comm_unpack(xd_tensor to, const void *from)
{
    xd_tensor f = xd_view(NULL, to.type, to.nd, to.d);
    /* xd_tensor has only a non-const address; `from` is only read. */
    memcpy(&f.p, &from, sizeof from);
    if (xd_comm_elems(to))
        copy_views(to, f);
}

int xd_comm_copy(xd_tensor to, xd_tensor from)
{
    if (!xd_comm_elems(to) && !xd_comm_elems(from))
        return 1;
    if (to.nd != from.nd || to.type != from.type)
        return 0;
    if (memcmp(to.d, from.d, (size_t)to.nd * sizeof *to.d) != 0)
        return 0;
    if (to.p != from.p || memcmp(to.s, from.s, (size_t)to.nd * sizeof *to.s) != 0)
        copy_views(to, from);
    return 1;
}

size_t xd_gather_row(xd_tensor out)
{
    size_t row = xd_dtype_size(out.type);
    for (int i = 1; i < out.nd; i++)
        row *= (size_t)out.d[i];
    return row;
}

int64_t xd_gather_at(const int64_t *rows, int r)
{
    int64_t at = 0;
    while (r-- > 0)
        at += rows[r];
    return at;
}

int xd_reduce_direct(size_t bytes, int size)
{
    return size == 1 || bytes <= 8192;
}

int64_t xd_reduce_piece(int64_t n, int r, int size)
{
    return n * r / size; /* cuts n elements like xd_cut */
}

/* Sums of integers wrap at overflow, as in the common MPI libraries. */
#define REDUCE(name, T, PLUS)                                                \
    static void name(T *a, const T *b, int64_t n, xd_red op)                 \
    {                                                                        \
        for (int64_t i = 0; op == XD_SUM && i < n; i++)                      \
            a[i] = PLUS;                                                     \
        for (int64_t i = 0; op == XD_MAX && i < n; i++)                      \
            a[i] = a[i] >= b[i] ? a[i] : b[i];                               \
        for (int64_t i = 0; op == XD_MIN && i < n; i++)                      \
            a[i] = a[i] <= b[i] ? a[i] : b[i];                               \
    }
REDUCE(reduce_f32, float, a[i] + b[i])
REDUCE(reduce_f64, double, a[i] + b[i])
REDUCE(reduce_i32, int32_t, (int32_t)((uint32_t)a[i] + (uint32_t)b[i]))
REDUCE(reduce_i64, int64_t, (int64_t)((uint64_t)a[i] + (uint64_t)b[i]))

int xd_reduce(void *acc, const void *from, int64_t n, xd_dtype t, xd_red op)
{
    if (t == XD_F32)
        reduce_f32(acc, from, n, op);
    else if (t == XD_F64)
        reduce_f64(acc, from, n, op);
    else if (t == XD_I32)
        reduce_i32(acc, from, n, op);
    else if (t == XD_I64)
        reduce_i64(acc, from, n, op);
    else
        return 0;
    return 1;
}

int xd_tree_parent(int v)
{
    return v ? v & (v - 1) : -1;
}

int xd_tree_children(int v, int size, int *child)
{
    int64_t bit = v & -v;
    int     n = 0;
    for (bit = v ? bit : 1; !v && bit < size; bit *= 2)
        ;
    for (bit /= 2; bit >= 1; bit /= 2)
        if (v + bit < size)
            child[n++] = (int)(v + bit);
    return n;
}
