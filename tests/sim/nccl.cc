/* nccl.cc - a stand-in for libnccl.so.2: groups of sends and receives between the simulated GPUs of
 * processes of one host
 *
 * It is stricter than NCCL.
 * - A group of messages is one item of its stream. It ends when all its messages have been taken:
 *   none of them is buffered. So orders that may hang with NCCL hang here, and after
 *   XDIT_SIM_PATIENCE seconds (30) in which the host waits for an event or asks for it the program
 *   ends and says so.
 * - A communicator is used on one stream alone, and two ranks of it on one GPU are refused.
 * - Messages of different sizes, to oneself and of host memory are errors. */
#include "tests/sim/sim.h"

#include <memory>

#include <fcntl.h>
#include <sys/mman.h>

#include "backend/cuda/nccl.h"

API CUresult simgpu_poll(CUstream s, std::function<bool()> *fn);
API int simgpu_on_device(const void *p, size_t n);
API int simgpu_number();
API long simgpu_patience_ms();

enum { RANKS = 16, LETTERS = 64, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, SYSTEM_ERROR = 2 };

struct letter {
    std::atomic<int> state; /* 0: free, 1: sent, 2: taken */
    int pid, fd;
    size_t bytes;
};
struct board { /* in memory of all ranks */
    std::atomic<int> joined;
    int gpu[RANKS];
    letter letters[RANKS][RANKS][LETTERS]; /* of the sender, of the receiver, by number */
};
struct ncclComm {
    board *b;
    int rank, size;
    unsigned sent[RANKS] = {}, got[RANKS] = {};
    CUstream on = nullptr;
    std::shared_ptr<std::atomic<bool>> aborted = std::make_shared<std::atomic<bool>>(false);
};

namespace
{
struct message {
    bool send, over = false;
    size_t bytes;
    char *p;
    letter *at;
    int fd = -1;
};
struct group {
    ncclComm *c;
    std::shared_ptr<std::atomic<bool>> aborted;
    std::vector<message> m;
    bool begun = false;
};
int depth;
std::vector<group> now;

int open_of(int pid, int fd)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/fd/%d", pid, fd);
    return open(name, O_RDWR | O_CLOEXEC);
}

[[noreturn]] void end(const char *what, size_t a, size_t b)
{
    fprintf(stderr, "simulated NCCL: %s: %zu, %zu\n", what, a, b);
    abort();
}

void post(message &m)
{
    m.fd = memfd_create("message", MFD_CLOEXEC);
    if (m.fd < 0 || write(m.fd, m.p, m.bytes) != (ssize_t)m.bytes)
        end("a message cannot be kept", m.bytes, 0);
    m.at->pid = getpid(), m.at->fd = m.fd, m.at->bytes = m.bytes;
    m.at->state = 1;
}

void receive(message &m)
{
    int fd = open_of(m.at->pid, m.at->fd);
    if (m.at->bytes != m.bytes)
        end("bytes sent and bytes received differ", m.at->bytes, m.bytes);
    if (fd < 0 || pread(fd, m.p, m.bytes, 0) != (ssize_t)m.bytes)
        end("a message cannot be read", m.bytes, 0);
    close(fd);
    m.at->state = 2;
    m.over = true;
}

/* Goes on with a group; true: all of it is over. Runs while device memory is open. */
bool go_on(group &g)
{
    bool all = true;
    for (message &m : g.m) {
        if (!g.begun && m.send)
            post(m);
        if (m.send && !m.over && m.at->state == 2) {
            close(m.fd);
            m.at->state = 0;
            m.over = true;
        }
        if (!m.send && !m.over && m.at->state == 1)
            receive(m);
        all = all && m.over;
    }
    g.begun = true;
    return all || *g.aborted;
}

ncclResult_t add(bool send, void *p, size_t bytes, int peer, ncclComm *c, CUstream s)
{
    if (peer < 0 || peer >= c->size || peer == c->rank || !bytes || !simgpu_on_device(p, bytes))
        return INVALID_ARGUMENT;
    if ((c->on && c->on != s) || !depth)
        return INVALID_USAGE;
    c->on = s;
    if (now.empty() || now.back().c != c)
        now.push_back(group { c, c->aborted, {} });
    message m;
    m.send = send, m.bytes = bytes, m.p = (char *)p;
    m.at = send ? &c->b->letters[c->rank][peer][c->sent[peer]++ % LETTERS]
                : &c->b->letters[peer][c->rank][c->got[peer]++ % LETTERS];
    now.back().m.push_back(m);
    return XD_NCCL_SUCCESS;
}
} // namespace

API ncclResult_t ncclGetVersion(int *v)
{
    *v = 22800;
    return XD_NCCL_SUCCESS;
}
API const char *ncclGetErrorString(ncclResult_t r)
{
    static char text[64];
    snprintf(text, sizeof text, "simulated NCCL error %d", r);
    return text;
}
API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    int at[2] = { getpid(), memfd_create("nccl", MFD_CLOEXEC) };
    if (at[1] < 0 || ftruncate(at[1], sizeof(board)))
        return SYSTEM_ERROR;
    memset(id, 0, sizeof *id);
    memcpy(id, at, sizeof at);
    return XD_NCCL_SUCCESS;
}
API ncclResult_t ncclCommInitRank(ncclComm_t *c, int n, ncclUniqueId id, int rank)
{
    int at[2];
    memcpy(at, &id, sizeof at);
    int fd = open_of(at[0], at[1]);
    if (n > RANKS || rank >= n || fd < 0)
        return INVALID_ARGUMENT;
    *c = new ncclComm();
    (*c)->rank = rank, (*c)->size = n;
    (*c)->b = (board *)mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    board *b = (*c)->b;
    b->gpu[rank] = simgpu_number();
    b->joined++;
    for (long waited = 0; b->joined < n; waited++, usleep(1000))
        if (waited > simgpu_patience_ms())
            end("ranks do not join a communicator", (size_t)b->joined, (size_t)n);
    for (int r = 0; r < n; r++)
        if (r != rank && b->gpu[r] == b->gpu[rank])
            return INVALID_USAGE;
    return XD_NCCL_SUCCESS;
}
/* What is queued may still look at the board: it stays. */
API ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    if (c->on)
        cuStreamSynchronize(c->on);
    delete c;
    return XD_NCCL_SUCCESS;
}
API ncclResult_t ncclCommAbort(ncclComm_t c)
{
    *c->aborted = true;
    return ncclCommDestroy(c);
}
API ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *r)
{
    *r = XD_NCCL_SUCCESS;
    return XD_NCCL_SUCCESS;
}
API ncclResult_t ncclGroupStart()
{
    depth++;
    return XD_NCCL_SUCCESS;
}
API ncclResult_t ncclGroupEnd()
{
    if (!depth || --depth)
        return depth ? 0 : (int)INVALID_USAGE;
    CUresult st = XD_CU_SUCCESS;
    for (group &g : now) {
        auto shared = std::make_shared<group>(g);
        std::function<bool()> fn = [shared] { return go_on(*shared); };
        st = simgpu_poll(g.c->on, &fn);
    }
    now.clear();
    return st == XD_CU_SUCCESS ? 0 : (int)SYSTEM_ERROR;
}
API ncclResult_t ncclSend(const void *p, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                          CUstream s)
{
    return t == XD_NCCL_UINT8 ? add(true, (void *)p, n, peer, c, s) : INVALID_ARGUMENT;
}
API ncclResult_t ncclRecv(void *p, size_t n, ncclDataType_t t, int peer, ncclComm_t c, CUstream s)
{
    return t == XD_NCCL_UINT8 ? add(false, p, n, peer, c, s) : INVALID_ARGUMENT;
}
