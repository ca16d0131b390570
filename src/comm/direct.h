/* direct.h - sends messages between the GPUs of one host through shared device memory (CUDA IPC),
 * without a copy in host memory.
 *
 * Groups whose ranks are all on one host use such direct messages. Messages of other groups are
 * copied through host memory.
 *
 * Each rank exports device memory to the other ranks: one mailbox for each message in flight. The
 * sender packs a tensor into a mailbox and sends a note through the underlying communicator: the
 * number of the mailbox and the byte count. The receiver's device waits for the event that the
 * sender's device records after the copy. After this event, the receiver's device copies the bytes
 * to their destination, and records an event after which the mailbox is free. The host threads
 * never wait for a device. Messages between ranks that share a GPU are copied within the GPU's
 * memory.
 *
 * Tensors of f32, f16 and bf16 use mailboxes even if they are in host memory, because neither
 * sender nor receiver knows whether the other's tensor is in host or device memory; both only know
 * the element type. Tensors of all other types are copied through host memory (staged.h). */
#ifndef XD_COMM_DIRECT_H
#define XD_COMM_DIRECT_H

#include "comm/staging.h"

typedef struct xd_mailboxes xd_mailboxes; /* mailboxes between the ranks of a host */
typedef struct xd_links     xd_links;     /* links between the ranks of a world (linked.h) */

/* Transport of messages between devices for one group of ranks. */
typedef struct xd_direct {
    xd_mailboxes *m; /* mailboxes; NULL if links are used or messages are staged */
    xd_links     *links;
    /* communicator of the same ranks, which transports the notes about mailboxes */
    xd_comm      *notes;
    /* [size]: for each rank of the group, its number on the host if mailboxes are used, or its
     * number in the world if links are used. */
    int          *rank;
    int           me; /* this rank's number in the group */
} xd_direct;

/* Opens mailboxes (shared device memory for messages) between all ranks of this host. If mailboxes
 * are not available on this host, returns NULL on all ranks of the host, and sets *why to the
 * reason. Sets *any to 1 if at least one host of the world has mailboxes. All ranks of `world`, the
 * communicator that the staging communicator of `w` wraps, must call xd_mailboxes_open. */
xd_mailboxes *xd_mailboxes_open(xd_staging *w, xd_comm *world, int *any, const char **why);
/* Returns 1 if the world has ranks on other hosts, to which mailboxes do not reach. */
int           xd_mailboxes_partial(const xd_mailboxes *m, int world_size);
void          xd_mailboxes_close(xd_mailboxes *m);
/* Opens the direct transport of a group, after all ranks of the world have agreed to use mailboxes
 * or links. All ranks of the group must call xd_direct_open. */
xd_status     xd_direct_open(xd_direct *g, const xd_staging *w, int world_rank, xd_comm *group,
                             xd_err *e);
void          xd_direct_close(xd_direct *g);
/* Returns 1 if tensors of this element type are sent directly between devices. */
int           xd_direct_takes(const xd_direct *g, xd_dtype t);

/* Begins the communication call k: sends k->view[r] to rank r of the group and receives
 * k->view[size + r] from rank r. Views without elements are skipped. If `peer` is negative, all
 * ranks take part in the call; otherwise, `peer` is the only rank to which the call sends or from
 * which it receives. `traffic`: counters of the group. Returns 0 if out of memory. */
int xd_direct_begin(const xd_direct *g, xd_stage_call *k, int size, int peer, xd_traffic *traffic);
/* Returns 1 on all ranks if every rank passes 1 as `mine`, else 0. All ranks must call
 * xd_comm_all_can. */
int xd_comm_all_can(xd_comm *c, int mine);
/* Queues a copy of a tensor to contiguous device memory on the compute stream. */
xd_status xd_direct_pack(xd_staging *w, char *to, xd_tensor t);
/* Queues the copies of received data from packed memory (k->up) to the tensors of the call; later
 * computation waits for these copies. */
xd_status xd_direct_unpack(xd_staging *w, xd_stage_call *k);
/* For communication call k, copies the tensor `from` of this rank to the tensor `to` of this rank,
 * each in host or device memory. Returns 0 if out of memory. */
int       xd_direct_copy(xd_staging *w, xd_stage_call *k, xd_tensor to, xd_tensor from);
/* Ends the communication call k. The caller must have received the notes (mailbox numbers and byte
 * counts) of this call before. Queues the copies of the received data on the device; later
 * computation waits for them. */
xd_status xd_direct_end(xd_direct *g, xd_stage_call *k, int size);

#endif
