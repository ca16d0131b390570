/* lib.c - returns the version of the library */
#include "base/version.h"

const char *xd_version(void)
{
    return XDIT_VERSION;
}

int xd_version_number(void)
{
    return XDIT_VERSION_NUMBER;
}
