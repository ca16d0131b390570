/* linked.h - sends messages between GPUs by a communication library (NCCL, through xd_dev_links).
 * Messages through links require that each rank has its own GPU. The host does nothing once a
 * message is queued.
 *
 * A collective call is one group of NCCL messages on a link that connects all ranks; all ranks make
 * collective calls in the same order. A message from one rank to another uses a link on which only
 * the sender sends, so that a receive that is posted early cannot block a message that this rank
 * sends. The header direct.h tells for which element types links are used. */
#ifndef XD_COMM_LINKED_H
#define XD_COMM_LINKED_H

#include "comm/direct.h"

/* Opens links between all ranks of a world. If links are not available, returns NULL on all ranks,
 * and sets *why to the reason. All ranks must call xd_links_open. */
xd_links *xd_links_open(xd_staging *w, xd_comm *world, const char **why);
void      xd_links_close(xd_links *l);
/* Begin and end a communication call as xd_direct_begin and xd_direct_end do, but through links
 * instead of mailboxes. */
int xd_links_begin(const xd_direct *g, xd_stage_call *k, int size, int peer, xd_traffic *traffic);
xd_status xd_links_end(const xd_direct *g, xd_stage_call *k);
/* Aborts a receive for which no message will be sent. Before xd_links_give_up, the caller must
 * complete all earlier calls whose results it needs. The link of the aborted receive is closed, so
 * that no later message can use it. */
void      xd_links_give_up(xd_links *l, const xd_stage_call *k);

#endif
