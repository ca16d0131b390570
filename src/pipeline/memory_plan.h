/* memory_plan.h - what a request needs, counted before anything is loaded */
#ifndef XD_PIPELINE_MEMORY_PLAN_H
#define XD_PIPELINE_MEMORY_PLAN_H

#include "pipeline/text_encode.h"

typedef struct xd_need {        /* bytes a request needs, by part                               */
    size_t text, text_tmp, dit, dit_tmp, vae, vae_tmp, images, peak;
    size_t text_work, dit_work, vae_work;       /* while weights are loaded                        */
    size_t links;               /* of the loop: keys and values of other steps, what goes round */
} xd_need;

typedef struct xd_room {        /* bytes that a request may take on this rank's host            */
    double machine, space;      /* of memory, of this process' address space; what it holds already counts */
    double held;                /* that it holds already: loaded weights                       */
    int    huge;                /* the image alone is too much: nothing was counted            */
} xd_room;

/* Of the parts, one after the other; text encoders stay with `keep`. apart: transformer and
 * autoencoder are never loaded together. */
size_t    xd_need_peak(const xd_need *n, int keep, int apart);
/* So it is for a request on so many ranks: of the only image of an engine's only request. */
int       xd_need_apart(const xd_job *j, int ranks);
/* Counts, finds out who shares weights, and refuses with XD_ENOMEM when the peak is more than there
 * is. Collective over the ranks in use, which agree. */
xd_status xd_memory_plan(xd_job *j, const xd_prompts *w, xd_need *need, xd_room *room, xd_err *e);

/* Adds up over the ranks of a host: bytes they need, bytes they have already, and how many read files
 * ahead. Collective over them. */
enum { XD_HOST_SUMS = 3 };
void      xd_memory_sum(xd_comm *host, double v[XD_HOST_SUMS]);

#endif
