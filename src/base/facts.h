/* facts.h - includes the type xd_fact, the callback through which modules report the libraries that
 * they use. */
#ifndef XD_BASE_FACTS_H
#define XD_BASE_FACTS_H

#include "xdit/tools.h"

#endif
