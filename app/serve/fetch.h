/* fetch.h - fetches images that requests name by URL (--allow_url).
 *
 * A client must not use a URL to reach services that are reachable only from this host, such as
 * services of its private network or the metadata address of a cloud. For this reason, the server
 * connects only to public addresses, also after a redirect, unless the command line names the host
 * of the URL. */
#ifndef XD_SERVE_FETCH_H
#define XD_SERVE_FETCH_H

#include <stddef.h>
#include <sys/socket.h>

#include "base/err.h"

typedef struct xd_fetch_rules {
    /* [nhosts] hosts from which images may be fetched: "host" or "host:port", or "any" for all
     * public addresses. */
    const char *const *hosts;
    int                nhosts;    /* number of hosts; 0: no URL is allowed */
    size_t             max_bytes; /* maximum bytes of an image */
    double             seconds;   /* time limit of a fetch in seconds, including redirects */
} xd_fetch_rules;

/* Initializes libcurl. XD_EUNSUPPORTED: this build has no libcurl. */
xd_status xd_fetch_begin(xd_err *e);
void      xd_fetch_end(void);
/* Fetches an http or https URL and returns the received bytes in *data, which is malloc'ed.
 * XD_EINVAL: the URL is not allowed, was not found, has too many bytes, or takes too long; the
 * message in *e has the reason. is_gone(cookie) is called during the transfer; if it returns true,
 * the transfer stops. */
xd_status xd_fetch_read(const xd_fetch_rules *f, const char *url, int (*is_gone)(void *cookie),
                        void *cookie, char **data, size_t *bytes, xd_err *e);
/* Returns nonzero if the address is public: neither local, nor private, nor reserved for a special
 * use. */
int       xd_address_is_public(const struct sockaddr *at);

#endif
