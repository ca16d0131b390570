/* lib.c - what the library says about itself */
#include "xdit/xdit.h"

const char *xd_version(void)
{
    return XDIT_VERSION;
}
