/* access_log.h - a log line per request, in the common log format, plus seconds and task id */
#ifndef XD_SERVE_ACCESS_LOG_H
#define XD_SERVE_ACCESS_LOG_H

#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

typedef struct xd_access_log xd_access_log;

typedef struct xd_access {      /* a request                                                   */
    const struct sockaddr *from;        /* the client                                          */
    const char *owner;          /* hash of the API key; "": none                               */
    const char *method, *path, *version;
    unsigned    status;         /* of the reply; 0: the client disconnected before             */
    int64_t     bytes;          /* of the reply's body                                         */
    double      seconds;
    const char *task;           /* task id; "": none                                           */
} xd_access;

/* path: "-" is standard output. If the file is moved (log rotation), a new one is created. */
xd_status xd_access_log_open(xd_access_log **l, const char *path, xd_err *e);
void      xd_access_log_add(xd_access_log *l, const xd_access *a);      /* thread-safe         */
void      xd_access_log_close(xd_access_log **l);

#endif
