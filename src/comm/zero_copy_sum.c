/* zero_copy_sum.c - an all-reduce between ranks of one host in their shared-memory windows
 *
 * Each rank sends a note that says where its elements lie. It sums its piece, reading the pieces of
 * the other ranks directly, and confirms. Then it copies the pieces that the others have summed and
 * confirms again, after which all may go on. If the elements of a rank are in no window, all ranks
 * know it from the notes and all use messages instead (mpi_call.c). */
#include "comm/kinds.h"
#include "comm/mpi_op.h"

#include <string.h>

typedef struct place {          /* where a rank's elements lie                                 */
    uint64_t block;             /* 0: not in its own window                                    */
    int64_t  at, bytes;
    char     said;
} place;

static place *places(const xd_mpi_op *j)
{
    return (place *)(void *)j->stage;
}

/* The address at rank r of the piece of rank `of`. NULL: the operation has failed. */
static char *there(xd_mpi_op *j, int r, int of, size_t *bytes)
{
    const place *p = &places(j)[r];
    int64_t      n = xd_comm_elems(j->io), size = (int64_t)xd_dtype_size(j->io.type);
    int64_t      from = xd_reduce_piece(n, of, j->g->c.size) * size,
                 to = xd_reduce_piece(n, of + 1, j->g->c.size) * size;
    *bytes = (size_t)(to - from);
    char *q = p->bytes == n * size
                  ? xd_window_address(j->g->world, p->block, p->at + from, to - from) : NULL;
    if (!q)
        xd_mpi_op_fail(j, XD_ECOMM, "rank %d of a group of %d adds %lld bytes, %lld were expected",
                       r, j->g->c.size, (long long)p->bytes, (long long)(n * size));
    return q;
}

/* Sends a confirmation to all ranks and expects one from each. */
static void say(xd_mpi_op *j, void (*then)(xd_mpi_op *j))
{
    const xd_comm *c = &j->g->c;
    place         *p = places(j);
    j->tag++;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) {
            xd_mpi_op_recv(j, &p[r].said, 1, r);
            xd_mpi_op_tell(j, &p[c->rank].said, 1, r);
        }
    j->then = then;
}

static void copy_theirs(xd_mpi_op *j)
{
    const xd_comm *c = &j->g->c;
    size_t         bytes, mine;
    there(j, c->rank, c->rank, &mine);
    for (int i = 1; i < c->size; i++) {
        int         r = (c->rank + i) % c->size;
        const char *from = there(j, r, r, &bytes);
        char       *to = there(j, c->rank, r, &bytes);
        if (from && to)
            memcpy(to, from, bytes);
        xd_mpi_op_count(j, mine, r);
    }
    say(j, NULL);
}

/* Adds in rank order; the first two terms may be exchanged without changing the sum. */
static void add_mine(xd_mpi_op *j)
{
    const xd_comm *c = &j->g->c;
    const int      me = c->rank;
    size_t         bytes;
    char          *io = there(j, me, me, &bytes), *sum = me < 2 ? io : xd_mpi_op_stage(j, bytes);
    const int64_t  n = (int64_t)(bytes / xd_dtype_size(j->io.type));
    if (me > 1 && sum && j->status == XD_OK) {
        const char *first = there(j, 0, me, &bytes);
        if (first)
            memcpy(sum, first, bytes);
    }
    for (int r = me < 2 ? 0 : 1; r < c->size && sum; r++) {
        const char *from = there(j, r, me, &bytes);
        if (from && (r != me || me > 1))
            xd_reduce(sum, from, n, j->io.type, j->op);
    }
    if (sum && io && sum != io)
        memcpy(io, sum, bytes);
    for (int r = 0; r < c->size; r++)
        if (there(j, me, r, &bytes))
            xd_mpi_op_count(j, bytes, r);
    say(j, copy_theirs);
}

static void know_all(xd_mpi_op *j)
{
    for (int r = 0; r < j->g->c.size; r++)
        if (!places(j)[r].block) {
            j->tag++;
            xd_sum_by_messages(j);
            return;
        }
    add_mine(j);
}

void xd_zero_copy_sum(xd_mpi_op *j)
{
    const xd_comm *c = &j->g->c;
    int            mine = 0;
    if (!(j->stage = xd_mpi_op_stage(j, (size_t)c->size * sizeof(place))))
        return;
    place *p = places(j), *me = &p[c->rank];
    *me = (place){ .bytes = (int64_t)xd_comm_bytes(j->io) };
    me->block = xd_window_find(j->g->world, j->io.p, &me->at, &mine);
    me->block = mine ? me->block : 0;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) {
            xd_mpi_op_recv(j, &p[r], sizeof p[r], r);
            xd_mpi_op_tell(j, me, sizeof *me, r);
        }
    j->then = know_all;
}
