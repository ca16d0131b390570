/* direct.h - messages between the devices of one host that do not pass through host memory
 *
 * These are the messages of groups whose ranks are all on one host. Those of other groups are
 * staged.
 *
 * Each rank lends the others memory of its device, a mailbox for each message that is under way.
 * The sender copies (packs) a tensor into a mailbox and sends a note by the communicator behind:
 * which mailbox, and how many bytes. The receiver's device waits for the mark that the sender's
 * device has set behind that copy, copies the bytes to where they go, and sets a mark behind which
 * the mailbox is free. No host waits for a device. On one GPU these are copies in its memory.
 *
 * Tensors of F32, F16 and BF16 go this way, also those in host memory: both ends of a message know
 * its type, and not where the other end's tensor lies. Everything else is staged (staged.h). */
#ifndef XD_COMM_DIRECT_H
#define XD_COMM_DIRECT_H

#include "comm/staging.h"

typedef struct xd_mailboxes xd_mailboxes;       /* of the ranks of a host                      */
typedef struct xd_links     xd_links;           /* of a world (linked.h)                       */

typedef struct xd_direct {      /* of a group                                                  */
    xd_mailboxes *m;            /* mailboxes, or links; both NULL: messages are staged         */
    xd_links     *links;
    xd_comm      *notes;        /* the same ranks, for notes of mailboxes                      */
    int          *rank;         /* [size]: ranks of the host, with links: of the world         */
    int           me;           /* mine in the group                                           */
} xd_direct;

/* Mailboxes between all ranks of this host, or NULL on all its ranks, and *why says the reason.
 * *any: some host has mailboxes. Collective over `world`, which is staged in front of by `w`. */
xd_mailboxes *xd_mailboxes_open(xd_staging *w, xd_comm *world, int *any, const char **why);
/* 1: ranks of other hosts have none of these mailboxes. */
int           xd_mailboxes_are_some(const xd_mailboxes *m, int world_size);
void          xd_mailboxes_close(xd_mailboxes *m);
/* Of a group of ranks of that world, whose ranks all have chosen their way; collective. */
xd_status     xd_direct_open(xd_direct *g, const xd_staging *w, int world_rank, xd_comm *group,
                             xd_err *e);
void          xd_direct_close(xd_direct *g);
/* 1: tensors of this type go between devices. */
int           xd_direct_takes(const xd_direct *g, xd_dtype t);

/* A call: view[r] of k goes to rank r of the group, view[size + r] comes from there; without
 * elements: nothing. `peer` < 0: a collective call; else the only rank to send to or receive from.
 * `traffic` is that of the group. 0: no memory. */
int           xd_direct_begin(const xd_direct *g, xd_stage_call *k, int size, int peer,
                              xd_traffic *traffic);
/* 1 on all ranks: it is 1 on each of them. Collective. */
int           xd_comm_all_can(xd_comm *c, int mine);
/* Copies a tensor to contiguous memory of the device, in the order of computing. */
xd_status     xd_direct_pack(xd_staging *w, char *to, xd_tensor t);
/* Copies what has come into packed memory (k->up) to where it goes. Computing follows it. */
xd_status     xd_direct_unpack(xd_staging *w, xd_stage_call *k);
/* Copies between two tensors of this rank, wherever they lie, for call k. 0: no memory. */
int           xd_direct_copy(xd_staging *w, xd_stage_call *k, xd_tensor to, xd_tensor from);
/* The notes are there. Queues the copies of what has come; computing follows them. */
xd_status     xd_direct_end(xd_direct *g, xd_stage_call *k, int size);

#endif
