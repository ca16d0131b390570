/* version.h - defines the library's version as text, from the public header; test builds may
 * override it. */
#ifndef XD_BASE_VERSION_H
#define XD_BASE_VERSION_H

#include "xdit/xdit.h"

#define XD_TEXT_OF(x) #x
#define XD_TEXT(x) XD_TEXT_OF(x)
#ifndef XDIT_VERSION
#define XDIT_VERSION \
    XD_TEXT(XDIT_VERSION_MAJOR) "." XD_TEXT(XDIT_VERSION_MINOR) "." XD_TEXT(XDIT_VERSION_PATCH)
#endif

#endif
