/* linked.h - sends messages between GPUs by a communication library (NCCL, through xd_dev_links).
 * With links, each rank has its own GPU, and the host does nothing once a message is queued.
 *
 * A collective call is one NCCL group on the link of the world; all ranks make collective calls in
 * the same order. A message from one rank to another uses a link on which only the sender sends, so
 * that a receive that is posted early cannot block a message that this rank sends. The header
 * direct.h describes which tensors use links. */
#ifndef XD_COMM_LINKED_H
#define XD_COMM_LINKED_H

#include "comm/direct.h"

/* Opens links between all ranks of a world. If links are not available, returns NULL on all ranks,
 * with the reason in *why. xd_links_open is a collective call. */
xd_links *xd_links_open(xd_staging *w, xd_comm *world, const char **why);
void      xd_links_close(xd_links *l);
/* Functions that begin and end a communication call like xd_direct_begin and xd_direct_end, but
 * send its messages through links. */
int xd_links_begin(const xd_direct *g, xd_stage_call *k, int size, int peer, xd_traffic *traffic);
xd_status xd_links_end(const xd_direct *g, xd_stage_call *k);
/* Aborts a receive for which no message will be sent. Before xd_links_give_up, the caller must
 * complete all earlier calls whose results it needs. The link of the aborted receive is closed, so
 * that no later message can use it. */
void      xd_links_give_up(xd_links *l, const xd_stage_call *k);

#endif
