/* access_log.h - a line for every request that is answered, in the common log format, with the
 * seconds that it took and the id of its task behind it */
#ifndef XD_SERVE_ACCESS_LOG_H
#define XD_SERVE_ACCESS_LOG_H

#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

typedef struct xd_access_log xd_access_log;

typedef struct xd_access {
    const struct sockaddr *from;
    const char *owner;          /* stands for a key; "": none                                  */
    const char *method, *path, *version;
    unsigned    status;         /* 0: the client went before it was answered                   */
    int64_t     bytes;          /* of the reply's body                                         */
    double      seconds;
    const char *task;           /* its id; "": none                                            */
} xd_access;

/* "-": standard output. A file that is moved away is begun anew. */
xd_status xd_access_log_open(xd_access_log **l, const char *path, xd_err *e);
void      xd_access_log_add(xd_access_log *l, const xd_access *a);
void      xd_access_log_close(xd_access_log **l);

#endif
