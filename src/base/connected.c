/* connected.c - calls a hook function when the ranks of this run are connected */
#include "base/connected.h"

#include <stddef.h>

static void (*hook)(void);

void xd_connected_hook(void (*fn)(void))
{
    hook = fn;
}

void xd_connected(void)
{
    if (hook)
        hook();
}
