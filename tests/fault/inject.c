/* inject.c - the functions that tests make fail; see inject.h.
 *
 * XDIT_FAULT=RANK:SEAM:N[:KIND] sets one for a rank that an MPI launcher started, such as
 * 1:op:20:kill. The kinds are fail (the default), fails, kill, segv, exit. */
#include "inject.h"

#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "comm/mpi_op.h"
#include "io/safetensors.h"

static const char *const names[FAULT_SEAMS] = {
    "host", "msgmem", "device", "op", "read", "send", "recv", "test", "sync", "link",
};
static const char *const kinds[] = { "fail", "fails", "kill", "segv", "exit" };

static struct {
    fault_seam seam;
    fault_kind kind;
    int64_t    n, count[FAULT_SEAMS];
    int        on, hit, depth; /* depth: inside calls of a communicator */
} now;

void (*fault_cancel)(void);

const char *fault_name(fault_seam seam)
{
    return names[seam];
}

void fault_set(fault_seam seam, int64_t n, fault_kind kind)
{
    memset(now.count, 0, sizeof now.count);
    now.seam = seam, now.n = n, now.kind = kind;
    now.on = 1;
    now.hit = 0;
}

void fault_clear(void)
{
    fault_set(FAULT_HOST, 0, FAULT_FAIL);
    now.on = 0;
}

int64_t fault_count(fault_seam seam)
{
    return now.count[seam];
}

int fault_hit(void)
{
    return now.hit;
}

static void happen(void)
{
    now.hit = 1;
    if (now.kind == FAULT_KILL)
        raise(SIGKILL);
    if (now.kind == FAULT_SEGV)
        raise(SIGSEGV);
    if (now.kind == FAULT_EXIT)
        _exit(7);
    if (now.kind == FAULT_CANCEL && fault_cancel)
        fault_cancel();
}

/* One more call of a seam; nonzero: it is to fail. */
static int failing(fault_seam seam)
{
    int64_t n = ++now.count[seam];
    if (!now.on || seam != now.seam || n < now.n || (n > now.n && now.kind != FAULT_FAILS))
        return 0;
    happen();
    return now.kind == FAULT_FAIL || now.kind == FAULT_FAILS;
}

__attribute__((constructor)) static void read_environment(void)
{
    const char *v = getenv("XDIT_FAULT"), *me = getenv("OMPI_COMM_WORLD_RANK");
    char        seam[16] = "", kind[16] = "fail";
    int         rank = 0;
    long long   n = 0;
    if (!me)
        me = getenv("PMI_RANK");
    if (!v || !me || sscanf(v, "%d:%15[a-z]:%lld:%15[a-z]", &rank, seam, &n, kind) < 3 ||
        rank != atoi(me))
        return;
    for (int s = 0; s < FAULT_SEAMS; s++)
        for (int k = 0; k < (int)(sizeof kinds / sizeof *kinds); k++)
            if (strcmp(names[s], seam) == 0 && strcmp(kinds[k], kind) == 0)
                fault_set((fault_seam)s, n, (fault_kind)k);
}

/* ---- memory of the host ------------------------------------------------------------------- */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static int no_memory(void)
{
    return failing(now.depth ? FAULT_MSGMEM : FAULT_HOST);
}

void *__wrap_malloc(size_t n)
{
    return no_memory() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return no_memory() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return no_memory() ? NULL : __real_realloc(p, n);
}

/* ---- messages ----------------------------------------------------------------------------- */

#define INSIDE(name, params, args)                     \
    xd_req __real_##name params;                       \
    xd_req __wrap_##name params;                       \
    xd_req __wrap_##name params                        \
    {                                                  \
        now.depth++;                                   \
        xd_req r = __real_##name args;                 \
        now.depth--;                                   \
        return r;                                      \
    }

INSIDE(xd_mpi_allreduce, (xd_comm * c, xd_tensor io, xd_red op), (c, io, op))
INSIDE(xd_mpi_bcast, (xd_comm * c, xd_tensor io, int root), (c, io, root))
INSIDE(xd_mpi_gather, (xd_comm * c, xd_tensor out, const int64_t *rows, xd_tensor in),
       (c, out, rows, in))
INSIDE(xd_mpi_exchange, (xd_comm * c, const xd_tensor *give, const xd_tensor *get), (c, give, get))
INSIDE(xd_mpi_exchange_views, (xd_comm * c, const xd_tensor *give, xd_tensor *get), (c, give, get))
INSIDE(xd_mpi_exchange_places, (xd_comm * c, const xd_tensor *give, xd_tensor *get), (c, give, get))
INSIDE(xd_mpi_send, (xd_comm * c, xd_tensor t, int to), (c, t, to))
INSIDE(xd_mpi_recv, (xd_comm * c, xd_tensor t, int from), (c, t, from))

int __real_MPI_Isend(const void *p, int n, MPI_Datatype t, int to, int tag, MPI_Comm c,
                     MPI_Request *r);
int __wrap_MPI_Isend(const void *p, int n, MPI_Datatype t, int to, int tag, MPI_Comm c,
                     MPI_Request *r);
int __real_MPI_Irecv(void *p, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r);
int __wrap_MPI_Irecv(void *p, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r);
int __real_MPI_Testall(int n, MPI_Request *r, int *flag, MPI_Status *s);
int __wrap_MPI_Testall(int n, MPI_Request *r, int *flag, MPI_Status *s);

int __wrap_MPI_Isend(const void *p, int n, MPI_Datatype t, int to, int tag, MPI_Comm c,
                     MPI_Request *r)
{
    return failing(FAULT_SEND) ? MPI_ERR_OTHER : __real_MPI_Isend(p, n, t, to, tag, c, r);
}

int __wrap_MPI_Irecv(void *p, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r)
{
    return failing(FAULT_RECV) ? MPI_ERR_OTHER : __real_MPI_Irecv(p, n, t, from, tag, c, r);
}

int __wrap_MPI_Testall(int n, MPI_Request *r, int *flag, MPI_Status *s)
{
    return failing(FAULT_TEST) ? MPI_ERR_OTHER : __real_MPI_Testall(n, r, flag, s);
}

/* ---- files -------------------------------------------------------------------------------- */

xd_status __real_xd_st_get(xd_st *s, int64_t i, xd_tensor *t, xd_err *e);
xd_status __wrap_xd_st_get(xd_st *s, int64_t i, xd_tensor *t, xd_err *e);
int       __real_fsync(int fd);
int       __wrap_fsync(int fd);
int       __real_linkat(int a, const char *from, int b, const char *to, int flags);
int       __wrap_linkat(int a, const char *from, int b, const char *to, int flags);

xd_status __wrap_xd_st_get(xd_st *s, int64_t i, xd_tensor *t, xd_err *e)
{
    if (failing(FAULT_READ))
        return xd_fail(e, XD_EIO, "a test says that tensor %lld cannot be read", (long long)i);
    return __real_xd_st_get(s, i, t, e);
}

int __wrap_fsync(int fd)
{
    if (!failing(FAULT_SYNC))
        return __real_fsync(fd);
    errno = EIO;
    return -1;
}

int __wrap_linkat(int a, const char *from, int b, const char *to, int flags)
{
    if (!failing(FAULT_LINK))
        return __real_linkat(a, from, b, to, flags);
    errno = EPERM;
    return -1;
}

/* ---- the device: its own tables, with doors in front --------------------------------------- */

static xd_ops     real_ops, ops;
static xd_dev_ops real_mem, mem;

static void *get(xd_dev *d, size_t bytes)
{
    return failing(FAULT_DEVICE) ? NULL : real_mem.get(d, bytes);
}

#define OP(slot, type)                                                                   \
    static xd_status slot(xd_dev *d, xd_stream *s, const type *a, void *tmp)             \
    {                                                                                    \
        return failing(FAULT_OP) ? XD_EDEVICE : real_ops.slot(d, s, a, tmp);             \
    }

OP(gemm, xd_gemm)
OP(attn, xd_attn_args)
OP(norm, xd_norm)
OP(moments, xd_moments)
OP(gnorm, xd_gnorm)
OP(glu, xd_glu)
OP(addmul, xd_addmul)
OP(axpby, xd_axpby_args)
OP(conv, xd_conv)
OP(resize, xd_resize)
OP(lookup, xd_lookup)
OP(copy, xd_copy)
OP(qknorm, xd_qknorm)
OP(rotate, xd_rotate)
OP(linattn, xd_linattn)
OP(code, xd_code)

xd_status __real_xd_dev_open(xd_dev **d, const char *name, xd_err *e);
xd_status __wrap_xd_dev_open(xd_dev **d, const char *name, xd_err *e);

xd_status __wrap_xd_dev_open(xd_dev **d, const char *name, xd_err *e)
{
    xd_status s = __real_xd_dev_open(d, name, e);
    if (s != XD_OK)
        return s;
    mem = real_mem = *(*d)->mem;
    ops = real_ops = *(*d)->ops;
    mem.get = get;
    ops.gemm = gemm, ops.attn = attn, ops.norm = norm, ops.moments = moments;
    ops.gnorm = gnorm, ops.glu = glu, ops.addmul = addmul, ops.axpby = axpby, ops.conv = conv;
    ops.resize = resize, ops.lookup = lookup, ops.copy = copy, ops.qknorm = qknorm;
    ops.rotate = rotate, ops.linattn = linattn, ops.code = code;
    (*d)->mem = &mem;
    (*d)->ops = &ops;
    return XD_OK;
}
