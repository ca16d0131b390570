/* registry.c - the links, head of the chain first */
#include "parallel/link.h"

const xd_link *const xd_links[] = { NULL };
