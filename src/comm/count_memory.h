/* count_memory.h - device memory that messages will take, found by counting
 *
 * Stands for the buffers of staging.c and the mailboxes of direct.c: each takes the smallest free
 * one that is large enough, or a new one, and none is given back before the end. A mailbox is free
 * when its group's peer has sent three messages since: two may be under way, and receives are
 * begun one ahead. A buffer is free when as many calls have begun as may hold memory
 * (XD_STAGE_ENDING). */
#ifndef XD_COMM_COUNT_MEMORY_H
#define XD_COMM_COUNT_MEMORY_H

#include "comm/comm.h"

typedef struct xd_held { size_t cap; int64_t until; } xd_held;
typedef struct xd_held_list { xd_held *v; int n, most; } xd_held_list;

typedef struct xd_count_world { /* of a rank                                                   */
    xd_traffic  *traffic;       /* its device_bytes are what is counted, its way says how      */
    xd_held_list packed;
    int64_t      calls;         /* begun so far                                                */
} xd_count_world;

typedef struct xd_count_group { /* of one of its groups                                        */
    int           rank, size;
    xd_held_list *box;          /* [size]                                                      */
    int64_t      *came;         /* [size]: messages                                            */
} xd_count_group;

/* 0: no memory. */
int  xd_count_group_open(xd_count_group *g, int rank, int size);
void xd_count_group_close(xd_count_group *g);
void xd_count_world_close(xd_count_world *w);

/* A call begins; then each of its tensors goes to a rank or comes from it. packs: the tensor may
 * lie in host memory, and passes through a buffer then. */
void xd_count_call(xd_count_world *w);
void xd_count_goes(xd_count_world *w, xd_count_group *g, int to, xd_tensor t, int packs);
void xd_count_comes(xd_count_world *w, xd_count_group *g, int from, xd_tensor t, int packs);
/* An all-reduce: between devices everybody gets a sum of F32's elements from everybody. */
void xd_count_sum(xd_count_world *w, xd_count_group *g, xd_tensor io, xd_red op);

#endif
