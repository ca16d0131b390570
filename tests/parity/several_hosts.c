/* several_hosts.c - put before xd_topo_find_hosts by the linker: every rank counts as a host */
#include "parallel/topo.h"

xd_status __wrap_xd_topo_find_hosts(xd_topo *t, xd_dtype codes, xd_err *e);

xd_status __wrap_xd_topo_find_hosts(xd_topo *t, xd_dtype codes, xd_err *e)
{
    (void)e;
    xd_topo_assume_hosts(t, codes, 1);
    return XD_OK;
}
