/* quiet.c - waits for other ranks without occupying a processor core */
#include "report/quiet.h"

#include <time.h>

/* Lets all ranks except rank 0 sleep until rank 0 calls this function, too. A waiting rank tests
 * every 5 ms for the message of rank 0, which does not measurably slow down a computing rank. */
void xd_quiet(xd_comm *c)
{
    int32_t   token = 0;
    int64_t   one = 1;
    xd_tensor t = xd_view(&token, XD_I32, 1, &one);
    for (int i = 1; i < c->size && c->rank == 0; i++) {
        xd_req r = c->ops->send(c, t, i);
        c->ops->wait(c, &r, 1);
    }
    if (c->rank == 0)
        return;
    xd_req r = c->ops->recv(c, t, 0);
    while (!c->ops->test(c, &r))
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    c->ops->wait(c, &r, 1);
}
