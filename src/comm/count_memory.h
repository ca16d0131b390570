/* count_memory.h - predicts how much device memory messages need, for the communicator that only
 * counts messages (comm.h).
 *
 * The prediction simulates the buffers of staging.c and the mailboxes of direct.c. In the
 * simulation, a message uses the smallest free buffer that is large enough, or a new one; buffers
 * are deallocated only when the communicator closes. A mailbox can be used again after the
 * receiving rank has sent three more messages, because up to two messages may be in flight and each
 * rank posts one receive in advance. A staging buffer can be used again after XD_STAGE_ENDING more
 * calls. */
#ifndef XD_COMM_COUNT_MEMORY_H
#define XD_COMM_COUNT_MEMORY_H

#include "comm/comm.h"

/* A simulated buffer of `cap` bytes, which is in use until the counter of calls or messages reaches
 * `until`. */
typedef struct xd_count_buffer {
    size_t  cap;
    int64_t until;
} xd_count_buffer;
typedef struct xd_count_buffers {
    xd_count_buffer *v;
    int              n, cap;
} xd_count_buffers;

typedef struct xd_count_world { /* simulated message buffers of one rank */
    /* traffic->way tells how messages between devices are transported; traffic->device_bytes
     * becomes the predicted memory. */
    xd_traffic      *traffic;
    xd_count_buffers packed; /* buffers for messages that are staged through the host */
    int64_t          calls;  /* number of communication calls begun so far */
} xd_count_world;

typedef struct xd_count_group { /* simulated message buffers of one group of ranks */
    int               rank, size;
    /* [size]: simulated mailboxes (shared device memory) for messages to each rank */
    xd_count_buffers *box;
    int64_t          *received; /* [size]: number of messages received from each rank */
} xd_count_group;

/* Opens the simulation for a group in which this rank is number `rank` of `size`. Returns 0 if out
 * of memory. */
int  xd_count_group_open(xd_count_group *g, int rank, int size);
void xd_count_group_close(xd_count_group *g);
void xd_count_world_close(xd_count_world *w);

/* Call xd_count_call when a communication call begins, and then xd_count_send or xd_count_recv for
 * each tensor of the call. Set `packs` to 1 if a tensor in host memory is copied through a buffer
 * on the device. */
void xd_count_call(xd_count_world *w);
void xd_count_send(xd_count_world *w, xd_count_group *g, int to, xd_tensor t, int packs);
void xd_count_recv(xd_count_world *w, xd_count_group *g, int from, xd_tensor t, int packs);
/* Counts the message buffers of an all-reduce. If the devices exchange messages directly, every
 * rank sends its f32 elements to every other rank. */
void xd_count_sum(xd_count_world *w, xd_count_group *g, xd_tensor io, xd_red op);

#endif
