/* linked.h - messages between GPUs by a communication library (NCCL, through xd_dev_links); each
 * rank has its own GPU, and the host does nothing once a message is queued
 *
 * A collective call is one NCCL group on the link of the world; all ranks make these calls in the
 * same order. Messages from one rank to another use the link of the sender, on which no other rank
 * sends, so that a receive that is posted early cannot block a message that this rank sends.
 * direct.h describes which tensors use links. */
#ifndef XD_COMM_LINKED_H
#define XD_COMM_LINKED_H

#include "comm/direct.h"

/* Opens links between all ranks of a world. NULL on all ranks: not available, *why is the reason.
 * Collective. */
xd_links *xd_links_open(xd_staging *w, xd_comm *world, const char **why);
void      xd_links_close(xd_links *l);
/* The counterparts of xd_direct_begin and xd_direct_end. */
int       xd_links_begin(const xd_direct *g, xd_stage_call *k, int size, int peer,
                         xd_traffic *traffic);
xd_status xd_links_end(const xd_direct *g, xd_stage_call *k);
/* Aborts a receive for which no message will be sent, after all earlier awaited calls are complete.
 * Its link cannot be used any more. */
void      xd_links_give_up(xd_links *l, const xd_stage_call *k);

#endif
