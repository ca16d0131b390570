/* mpi.c - initialises MPI, and opens, splits and closes groups of ranks.
 *
 * Calls that set up groups block; calls that move data are in mpi_call.c and never block. Opening
 * the first MPI world initialises MPI, unless the program has initialised it. Closing the last MPI
 * world finalises MPI. */
#define _GNU_SOURCE /* for sched_yield, nanosleep */
#include "comm/mpi_op.h"

#include "base/log.h"
#include "base/connected.h"
#include "base/par.h"
#include "comm/kinds.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    xd_mpi_world *open;    /* list of open worlds */
    int           ours;    /* 1: this library initialised MPI and finalises it */
    int           crowded; /* 1: this host has more ranks than cores */
    /* rank: this rank's index on its host; ranks: number of ranks on the host; cores: number of
     * cores of the host */
    int           rank, ranks, cores;
    int           alike; /* 1: all ranks of this host may use the same cpus; -1: unknown */
    xd_cpuset     cpus;  /* cpus that the ranks of this host may use together */
} mpi; /* The fields about this host describe the MPI world that was opened last. */

static xd_status fail_with_code(xd_err *e, const char *what, int code)
{
    char why[MPI_MAX_ERROR_STRING + 1] = "";
    int  n = 0;
    MPI_Error_string(code, why, &n);
    return xd_fail(e, XD_ECOMM, "%s failed: %s", what, why);
}

/* ---- groups ---------------------------------------------------------------------------- */

static const xd_comm_ops ops;

/* Sets on_host[r] for each rank r of the communicator `m` that is on this rank's host. */
static void find_host_members(MPI_Group host, MPI_Comm m, int size, char *on_host)
{
    MPI_Group all = MPI_GROUP_NULL;
    if (host == MPI_GROUP_NULL || MPI_Comm_group(m, &all) != MPI_SUCCESS)
        return;
    for (int r = 0; r < size; r++) {
        int there = MPI_UNDEFINED;
        MPI_Group_translate_ranks(all, 1, &r, host, &there);
        on_host[r] = there != MPI_UNDEFINED;
    }
    MPI_Group_free(&all);
}

/* Makes a group of the communicator `m`. The group owns `m` from now on, and `m` is freed even if
 * this function fails. */
static xd_status open_group(xd_mpi_world *w, MPI_Comm m, xd_comm **out, xd_err *e)
{
    xd_mpi_group *g = calloc(1, sizeof *g);
    int           size = 1;
    *out = NULL;
    MPI_Comm_size(m, &size);
    if (!g) {
        MPI_Comm_free(&m);
        return xd_fail(e, XD_ENOMEM, "no memory for a group of ranks");
    }
    MPI_Comm_set_errhandler(m, MPI_ERRORS_RETURN);
    *g = (xd_mpi_group){ .mpi = m, .world = w };
    if (!(g->host = calloc((size_t)size, 1))) {
        MPI_Comm_free(&m);
        free(g);
        return xd_fail(e, XD_ENOMEM, "no memory for a group of ranks");
    }
    find_host_members(w->host, m, size, g->host);
    g->c = (xd_comm){ .ops = &ops, .traffic = &w->traffic, .err = &w->err, .priv = g };
    MPI_Comm_rank(m, &g->c.rank);
    g->c.size = size;
    w->users++;
    *out = &g->c;
    return XD_OK;
}

static xd_status mpi_split(xd_comm *c, int color, int key, int size, xd_comm **out, xd_err *e)
{
    xd_mpi_group *g = c->priv;
    MPI_Comm      m = MPI_COMM_NULL;
    *out = NULL;
    int code = MPI_Comm_split(g->mpi, color, key, &m);
    if (code != MPI_SUCCESS)
        return fail_with_code(e, "splitting a group of ranks", code);
    xd_status s = open_group(g->world, m, out, e);
    if (s == XD_OK && (*out)->size != size) {
        s = xd_fail(e, XD_ECOMM, "%d ranks of %d have color %d, the plan says %d", (*out)->size,
                    c->size, color, size);
        xd_comm_close(out);
    }
    return s;
}

static xd_status mpi_host(xd_comm *c, xd_comm **out, xd_err *e)
{
    xd_mpi_group *g = c->priv;
    MPI_Comm      m = MPI_COMM_NULL;
    *out = NULL;
    int code = MPI_Comm_split_type(g->mpi, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &m);
    if (code != MPI_SUCCESS)
        return fail_with_code(e, "finding the ranks of this host", code);
    return open_group(g->world, m, out, e);
}

static void mpi_poke(xd_comm *c)
{
    int flag;
    (void)c;
    xd_mpi_advance();
    if (mpi.open)
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi.open->control, &flag, MPI_STATUS_IGNORE);
}

static void poke_hook(void *arg)
{
    mpi_poke(arg);
}

/* Pauses a waiting rank, so that a computing rank can use the core. On a host with fewer cores than
 * ranks, the waiting rank yields at once and soon sleeps. On other hosts, the caller first polls
 * for a while. */
void xd_mpi_idle(int polls)
{
    int eager = mpi.crowded ? 0 : 200, awake = mpi.crowded ? 40 : 20000;
    if (polls < eager)
        return;
    if (polls < awake)
        sched_yield();
    else
        nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}

/* Waits for all ranks of a group. MPI_Barrier is not used, because it may spin on the core, and
 * because pending operations would make no progress meanwhile. */
static void mpi_barrier(xd_comm *c)
{
    xd_mpi_group *g = c->priv;
    MPI_Request   req;
    if (g->world->lost)
        return;
    int done = 0, code = MPI_Ibarrier(g->mpi, &req);
    for (int polls = 0; code == MPI_SUCCESS && !done && !g->world->lost; polls += polls < 1 << 20) {
        code = MPI_Test(&req, &done, MPI_STATUS_IGNORE);
        if (done)
            break;
        xd_mpi_advance();
        xd_mpi_idle(polls);
    }
    if (code != MPI_SUCCESS)
        xd_mpi_fail(g->world, g->world->rank, "a barrier", code);
}

static void mpi_abort(xd_comm *c, int code)
{
    const xd_mpi_world *w = ((const xd_mpi_group *)c->priv)->world;
    xd_log(XD_LOG_ERROR, "rank %d aborts the run: %s", w->rank, w->err.msg);
    MPI_Abort(w->lent ? w->control : MPI_COMM_WORLD, code);
    _Exit(code);
}

/* Frees a world and its MPI objects. */
static void free_world(xd_mpi_world *w)
{
    if (w->control != MPI_COMM_NULL)
        MPI_Comm_free(&w->control);
    if (w->host != MPI_GROUP_NULL)
        MPI_Group_free(&w->host);
    free(w);
}

/* Finalises MPI if this library initialised MPI and the last world is closed. */
static void stop_mpi(void)
{
    if (mpi.open)
        return;
    if (mpi.ours)
        MPI_Finalize();
    mpi.ours = 0;
}

static void end_world(xd_mpi_world *w)
{
    xd_mpi_world **at = &mpi.open;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    if (!mpi.open)
        xd_par_hook(NULL, NULL);
    free_world(w);
    if (!mpi.open)
        xd_mpi_free_lists();
    stop_mpi();
}

static void mpi_close(xd_comm *c)
{
    xd_mpi_group *g = c->priv;
    xd_mpi_world *w = g->world;
    xd_mpi_unshare(g);
    MPI_Comm_free(&g->mpi);
    free(g->host);
    free(g);
    if (--w->users == 0)
        end_world(w);
}

static const xd_comm_ops ops = {
    .name = "mpi",
    .split = mpi_split,
    .split_host = mpi_host,
    .close = mpi_close,
    .allreduce = xd_mpi_allreduce,
    .bcast = xd_mpi_bcast,
    .gather = xd_mpi_gather,
    .circulate = xd_mpi_circulate,
    .exchange = xd_mpi_exchange,
    .exchange_views = xd_mpi_exchange_views,
    .exchange_places = xd_mpi_exchange_places,
    .send = xd_mpi_send,
    .recv = xd_mpi_recv,
    .wait = xd_mpi_wait,
    .test = xd_mpi_test,
    .drop = xd_mpi_drop,
    .poke = mpi_poke,
    .barrier = mpi_barrier,
    .share = xd_mpi_share,
    .window_open = xd_mpi_window_open,
    .in_window = xd_mpi_in_window,
    .window_close = xd_mpi_window_close,
    .abort = mpi_abort,
};

/* ---- starting -------------------------------------------------------------------------- */

/* Fails because the launcher's processes are not in one MPI world. All processes fail, but only
 * rank 0 logs the error. */
static xd_status fail_unconnected(xd_err *e, int ranks, const char *why)
{
    xd_fail(e, XD_ECOMM, "%d processes were started together, but MPI does not connect them: %s",
            ranks, why);
    if (e)
        e->rank = 0;
    return XD_ECOMM;
}

/* Fails if srun started this process without PMIx, because Open MPI would then abort the process
 * with a long message. Old versions of Open MPI can use PMI-2, so PMI-2 only gives a warning. */
static xd_status check_srun(xd_err *e)
{
#ifdef OPEN_MPI
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"), *id = getenv("SLURM_PROCID");
    int         n = tasks ? atoi(tasks) : 1;
    if (n < 2 || getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK"))
        return XD_OK;
    if (!getenv("PMI_RANK"))
        return fail_unconnected(e, n,
                                "srun gave them no PMIx; use srun --mpi=pmix (srun "
                                "--mpi=list prints the choices) or mpirun");
    if (id && !atoi(id))
        xd_log(XD_LOG_WARN, "srun offers PMI-2 and no PMIx: if Open MPI does not start, use srun "
                            "--mpi=pmix or mpirun");
#else
    (void)e;
#endif
    return XD_OK;
}

/* Fails if the launcher belongs to another MPI library than the one in use: each process would be
 * alone in a world of size 1. */
static xd_status check_world_size(MPI_Comm world, xd_err *e)
{
    char name[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "", why[256];
    int  n = 0, size = 1;
    MPI_Comm_size(world, &size);
    if (size > 1 || xd_comm_launch_size() < 2)
        return XD_OK;
    MPI_Get_library_version(name, &n);
    name[strcspn(name, ",\n")] = 0;
    if (name[strcspn(name, "\t")]) /* MPICH has a tab between its name and version */
        name[strcspn(name, "\t")] = ' ';
    snprintf(why, sizeof why,
             "this program was built with %.60s, but the launcher (mpirun, or "
             "srun's --mpi) is of another MPI",
             name);
    return fail_unconnected(e, xd_comm_launch_size(), why);
}

static xd_status start_mpi(int lent, xd_err *e)
{
    int       on = 0, off = 0, level = 0, code;
    xd_status s;
    MPI_Finalized(&off);
    if (off)
        return xd_fail(e, XD_ECOMM,
                       "MPI was finalised in this process and cannot be initialised "
                       "again");
    MPI_Initialized(&on);
    if (on)
        return XD_OK;
    if (lent)
        return xd_fail(e, XD_EINVAL, "mpi_comm is given, but the program has not initialised MPI");
    if ((s = check_srun(e)) != XD_OK)
        return s;
    if ((code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level)) != MPI_SUCCESS)
        return fail_with_code(e, "starting MPI", code);
    mpi.ours = 1;
    /* Errors of MPI calls without a communicator are passed to MPI_COMM_WORLD's handler, which by
     * default aborts the program. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (level < MPI_THREAD_FUNNELED)
        xd_log(XD_LOG_WARN, "this MPI does not support programs with threads");
    return XD_OK;
}

/* Counts the ranks and cores of this host. Because mpirun may have bound each rank to its own
 * cores, the union of the cpu sets of all ranks is counted. */
static void survey_host(xd_mpi_world *w)
{
    MPI_Comm  host = MPI_COMM_NULL;
    xd_cpuset all;
    int       ranks = 1;
    if (MPI_Comm_split_type(w->control, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host) !=
        MPI_SUCCESS)
        return;
    MPI_Comm_group(host, &w->host);
    MPI_Comm_size(host, &ranks);
    MPI_Comm_rank(host, &mpi.rank);
    int known = xd_cpuset_mine(&mpi.cpus);
    all = mpi.cpus;
    MPI_Allreduce(MPI_IN_PLACE, &mpi.cpus, (int)sizeof mpi.cpus, MPI_BYTE, MPI_BOR, host);
    MPI_Allreduce(MPI_IN_PLACE, &all, (int)sizeof all, MPI_BYTE, MPI_BAND, host);
    MPI_Allreduce(MPI_IN_PLACE, &known, 1, MPI_INT, MPI_MIN, host);
    mpi.alike = known && memcmp(&all, &mpi.cpus, sizeof all) == 0;
    mpi.ranks = ranks;
    mpi.cores = known ? xd_cpuset_count(&mpi.cpus) : xd_par_cores();
    w->cpus = mpi.cpus;
    MPI_Comm_free(&host);
}

/* Counts the other processes of the job that may compute on this host, if the program passed its
 * own communicator. Ranks are not bound to cores if the launcher does not publish the number of
 * processes on this host. */
static void count_others(void)
{
    int rank, ranks;
    if (!xd_comm_launch_local(&rank, &ranks) || ranks < mpi.ranks)
        mpi.alike = -1;
    else
        mpi.rank = rank, mpi.ranks = ranks;
}

/* Reports the MPI library's name and version, which is the first part of a text such as "Open MPI
 * v4.1.4, package: ..." or "MPICH Version: 4.0.2\n...". */
void xd_mpi_about(xd_fact *fact, void *cookie)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int  n = 0;
    if (MPI_Get_library_version(text, &n) != MPI_SUCCESS)
        snprintf(text, sizeof text, "MPI");
    text[strcspn(text, ",\n")] = 0;
    for (char *p = text; *p; p++)
        *p = *p == '\t' ? ' ' : *p;
    fact(cookie, "library", text);
}

int xd_mpi_cores(int *ranks, int *cores)
{
    *ranks = mpi.ranks;
    *cores = mpi.cores;
    return mpi.open && mpi.ranks > 0 && mpi.cores > 0;
}

int xd_mpi_host(int *rank, int *ranks, xd_cpuset *cpus)
{
    *rank = mpi.rank;
    *ranks = mpi.ranks;
    *cpus = mpi.cpus;
    return mpi.open && mpi.ranks > 0 ? mpi.alike : -1;
}

/* Sets the fields of an MPI world, except its groups. */
static xd_status open_world(xd_mpi_world *w, MPI_Comm base, xd_err *e)
{
    int code = MPI_Comm_dup(base, &w->control);
    if (code != MPI_SUCCESS)
        return fail_with_code(e, "starting MPI", code);
    MPI_Comm_set_errhandler(w->control, MPI_ERRORS_RETURN);
    survey_host(w);
    if (w->lent)
        count_others();
    mpi.crowded = mpi.ranks > mpi.cores;
    xd_status s = w->lent || mpi.open ? XD_OK : check_world_size(w->control, e);
    if (s == XD_OK && !mpi.open)
        xd_connected();
    return s;
}

/* Opens the first group of an MPI world, which has all ranks of the world. */
static xd_status open_first(xd_mpi_world *w, MPI_Comm base, xd_comm **c, xd_err *e)
{
    MPI_Comm m = MPI_COMM_NULL;
    int      code = MPI_Comm_dup(base, &m);
    return code == MPI_SUCCESS ? open_group(w, m, c, e) : fail_with_code(e, "starting MPI", code);
}

static xd_status check_lent(MPI_Comm lent, int *size, xd_err *e)
{
    int inter = 0;
    if (lent == MPI_COMM_NULL)
        return xd_fail(e, XD_EINVAL, "mpi_comm points to MPI_COMM_NULL");
    MPI_Comm_test_inter(lent, &inter);
    MPI_Comm_size(lent, size);
    return inter ? xd_fail(e, XD_EINVAL, "mpi_comm points to an intercommunicator") : XD_OK;
}

xd_status xd_comm_mpi(xd_comm **c, const void *lent, xd_err *e)
{
    MPI_Comm  base = MPI_COMM_WORLD;
    int       size = 2;
    xd_status s = start_mpi(lent != NULL, e);
    *c = NULL;
    if (lent)
        memcpy(&base, lent, sizeof base);
    if (s == XD_OK && lent)
        s = check_lent(base, &size, e);
    if (s != XD_OK)
        return s;
    if (size == 1)
        return xd_comm_self(c, e);
    xd_mpi_world *w = calloc(1, sizeof *w);
    if (!w)
        return xd_fail(e, XD_ENOMEM, "no memory for a group of ranks");
    w->control = MPI_COMM_NULL;
    w->host = MPI_GROUP_NULL;
    w->lent = lent != NULL;
    xd_err_clear(&w->err);
    s = open_world(w, base, e);
    if (s == XD_OK)
        s = open_first(w, base, c, e);
    if (s != XD_OK) { /* MPI is finalised here because finalising removes MPI's session files. */
        free_world(w);
        stop_mpi();
        return s;
    }
    w->rank = (*c)->rank;
    w->next = mpi.open;
    mpi.open = w;
    if ((*c)->size > 1)
        xd_par_hook(poke_hook, *c);
    return XD_OK;
}
