/* met.c - a note that the ranks of this run have met */
#include "base/met.h"

#include <stddef.h>

static void (*hook)(void);

void xd_met_hook(void (*fn)(void))
{
    hook = fn;
}

void xd_met(void)
{
    if (hook)
        hook();
}
