/* fetch.h - images that requests name by URLs of other servers (--allow_url).
 *
 * Whoever may ask could else reach, through this server, what only this host reaches: services of
 * its own network, addresses of a cloud's metadata. So the address that is really connected to must
 * be a public one, at every redirect, unless the host was named on the command line. */
#ifndef XD_SERVE_FETCH_H
#define XD_SERVE_FETCH_H

#include <stddef.h>
#include <sys/socket.h>

#include "base/err.h"

typedef struct xd_fetch_rules {
    const char *const *hosts;   /* [nhosts]: "host", "host:port", "any": all of public addresses */
    int      nhosts;            /* 0: nothing is fetched                                       */
    size_t   most;              /* bytes                                                       */
    double   seconds;           /* for all of it                                               */
} xd_fetch_rules;

/* XD_OK, or XD_EUNSUPPORTED: this build has no libcurl. */
xd_status xd_fetch_begin(xd_err *e);
void      xd_fetch_end(void);
/* The bytes behind an http or https URL, malloc'ed. XD_EINVAL with a sentence: not allowed, not
 * found, too long, too slow. Ends early where is_gone(cookie) is true. */
xd_status xd_fetch_read(const xd_fetch_rules *f, const char *url, int (*is_gone)(void *cookie),
                        void *cookie, char **data, size_t *bytes, xd_err *e);
/* An address of the internet: not of this host, its networks, or of a special use. */
int       xd_address_is_public(const struct sockaddr *at);

#endif
