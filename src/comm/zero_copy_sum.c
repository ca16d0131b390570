/* zero_copy_sum.c - implements an all-reduce between ranks of one host in their shared-memory
 * windows.
 *
 * 1. Each rank sends a note with the position of its elements in its window. 2. Each rank sums one
 * piece of the elements, which it reads from all ranks' windows, and confirms the sum by a message.
 * 3. Each rank copies the pieces that the other ranks have summed, and confirms the copy by a
 * message.
 *
 * If a rank's note states that its elements are not in a window, all ranks use messages instead
 * (mpi_call.c). */
#include "comm/kinds.h"
#include "comm/mpi_op.h"

#include <string.h>

typedef struct place { /* position of a rank's elements in the shared windows */
    /* Number of the shared-memory block that has the elements; 0: the elements are not in the
     * rank's own window. */
    uint64_t block;
    int64_t  at, bytes;
    char     confirmation;
} place;

static place *rank_places(const xd_mpi_op *j)
{
    return (place *)(void *)j->stage;
}

/* Returns the address, among the elements of rank r, of the piece that the rank `of` sums. Returns
 * NULL if the operation has failed. */
static char *piece_address(xd_mpi_op *j, int r, int of, size_t *bytes)
{
    const place *p = &rank_places(j)[r];
    int64_t      n = xd_comm_elems(j->io), size = (int64_t)xd_dtype_size(j->io.type);
    int64_t      from = xd_reduce_piece(n, of, j->g->c.size) * size,
                 to = xd_reduce_piece(n, of + 1, j->g->c.size) * size;
    *bytes = (size_t)(to - from);
    char *q = p->bytes == n * size
                  ? xd_window_address(j->g->world, p->block, p->at + from, to - from)
                  : NULL;
    if (!q)
        xd_mpi_op_fail(j, XD_ECOMM, "rank %d of a group of %d adds %lld bytes; %lld were expected",
                       r, j->g->c.size, (long long)p->bytes, (long long)(n * size));
    return q;
}

/* Sends a confirmation to every rank, and starts to receive a confirmation from every rank. The
 * function `then` is called when all confirmations have arrived. */
static void exchange_confirmations(xd_mpi_op *j, void (*then)(xd_mpi_op *j))
{
    const xd_comm *c = &j->g->c;
    place         *p = rank_places(j);
    j->tag++;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) {
            xd_mpi_op_recv(j, &p[r].confirmation, 1, r);
            xd_mpi_op_send_uncounted(j, &p[c->rank].confirmation, 1, r);
        }
    j->then = then;
}

static void copy_other_pieces(xd_mpi_op *j)
{
    const xd_comm *c = &j->g->c;
    size_t         bytes, mine;
    piece_address(j, c->rank, c->rank, &mine);
    for (int i = 1; i < c->size; i++) {
        int         r = (c->rank + i) % c->size;
        const char *from = piece_address(j, r, r, &bytes);
        char       *to = piece_address(j, c->rank, r, &bytes);
        if (from && to)
            memcpy(to, from, bytes);
        xd_mpi_op_count(j, mine, r);
    }
    exchange_confirmations(j, NULL);
}

/* Sums this rank's piece in the order of the ranks. Ranks 0 and 1 add to their own elements, which
 * exchanges the first two terms on rank 1; this does not change the sum. */
static void sum_my_piece(xd_mpi_op *j)
{
    const xd_comm *c = &j->g->c;
    const int      me = c->rank; /* ranks 0 and 1 add to their own elements */
    size_t         bytes;
    char *io = piece_address(j, me, me, &bytes), *sum = me < 2 ? io : xd_mpi_op_stage(j, bytes);
    const int64_t n = (int64_t)(bytes / xd_dtype_size(j->io.type));
    if (me > 1 && sum && j->status == XD_OK) {
        const char *first = piece_address(j, 0, me, &bytes);
        if (first)
            memcpy(sum, first, bytes);
    }
    for (int r = me < 2 ? 0 : 1; r < c->size && sum; r++) {
        const char *from = piece_address(j, r, me, &bytes);
        if (from && (r != me || me > 1))
            xd_reduce(sum, from, n, j->io.type, j->op);
    }
    if (sum && io && sum != io)
        memcpy(io, sum, bytes);
    for (int r = 0; r < c->size; r++)
        if (piece_address(j, me, r, &bytes))
            xd_mpi_op_count(j, bytes, r);
    exchange_confirmations(j, copy_other_pieces);
}

/* Continues the all-reduce in shared memory or by messages. This function is called when the notes
 * of all ranks have arrived. */
static void choose_way(xd_mpi_op *j)
{
    for (int r = 0; r < j->g->c.size; r++)
        if (!rank_places(j)[r].block) {
            j->tag++;
            xd_sum_by_messages(j);
            return;
        }
    sum_my_piece(j);
}

void xd_zero_copy_sum(xd_mpi_op *j)
{
    const xd_comm *c = &j->g->c;
    int            mine = 0;
    if (!(j->stage = xd_mpi_op_stage(j, (size_t)c->size * sizeof(place))))
        return;
    place *p = rank_places(j), *me = &p[c->rank];
    *me = (place){ .bytes = (int64_t)xd_comm_bytes(j->io) };
    me->block = xd_window_find(j->g->world, j->io.p, &me->at, &mine);
    me->block = mine ? me->block : 0;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) {
            xd_mpi_op_recv(j, &p[r], sizeof p[r], r);
            xd_mpi_op_send_uncounted(j, me, sizeof *me, r);
        }
    j->then = choose_way;
}
