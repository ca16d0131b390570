/* linked.h - messages between devices by a library that knows them (xd_dev_links): each rank has a
 * device of its own, and no host takes part once a message is queued
 *
 * A collective call is one group of messages on the link of the world, in the order of the calls,
 * which all ranks have in common. Messages from one rank to another go by the link of the sender,
 * on which nobody else sends: a receive that is begun early cannot stand before a message that this
 * rank sends. Which tensors go this way: direct.h. */
#ifndef XD_COMM_LINKED_H
#define XD_COMM_LINKED_H

#include "comm/direct.h"

/* Links between all ranks of a world, or NULL on all ranks: *why says the reason. Collective. */
xd_links *xd_links_open(xd_staging *w, xd_comm *world, const char **why);
void      xd_links_close(xd_links *l);
/* As xd_direct_begin and xd_direct_end. */
int       xd_links_begin(const xd_direct *g, xd_stage_call *k, int size, int peer,
                         xd_traffic *traffic);
xd_status xd_links_end(const xd_direct *g, xd_stage_call *k);
/* Ends a receive that nobody answers, when all calls before it that were waited for are over. Its
 * link is of no use any more. */
void      xd_links_give_up(xd_links *l, const xd_stage_call *k);

#endif
