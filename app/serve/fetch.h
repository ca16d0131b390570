/* fetch.h - fetches images that requests name by URL (--allow_url).
 *
 * A URL must not let a client reach services that only this host can reach, such as its private
 * network or the metadata address of a cloud. Therefore the address of every connection, also after
 * a redirect, must be public, unless the host is named on the command line. */
#ifndef XD_SERVE_FETCH_H
#define XD_SERVE_FETCH_H

#include <stddef.h>
#include <sys/socket.h>

#include "base/err.h"

typedef struct xd_fetch_rules {
    const char *const *hosts;   /* [nhosts] allowed hosts: "host", "host:port", "any" (all public
                                   addresses) */
    int      nhosts;            /* number of hosts; 0: no URL is allowed                       */
    size_t   max_bytes;         /* maximum bytes of an image                                   */
    double   seconds;           /* time limit of a fetch in seconds, including redirects       */
} xd_fetch_rules;

/* Initializes libcurl. XD_EUNSUPPORTED: this build has no libcurl. */
xd_status xd_fetch_begin(xd_err *e);
void      xd_fetch_end(void);
/* Fetches an http or https URL into *data, which is malloc'ed. XD_EINVAL: the URL is not allowed,
 * not found, too long or too slow; *e has a sentence. Stops early if is_gone(cookie) returns
 * true. */
xd_status xd_fetch_read(const xd_fetch_rules *f, const char *url, int (*is_gone)(void *cookie),
                        void *cookie, char **data, size_t *bytes, xd_err *e);
/* Returns nonzero if the address is public: neither local, nor private, nor reserved for a special
 * use. */
int       xd_address_is_public(const struct sockaddr *at);

#endif
