/* access_log.h - writes one log line per HTTP request. A log line is a JSON object, or has the
 * common log format followed by the seconds of the request and the id of the request's task. */
#ifndef XD_SERVE_ACCESS_LOG_H
#define XD_SERVE_ACCESS_LOG_H

#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

typedef struct xd_access_log xd_access_log;

typedef struct xd_access {        /* properties of a request that are logged */
    const struct sockaddr *from;  /* address of the client */
    const char            *owner; /* hash of the request's API key; "": the request has no key */
    const char            *method, *path, *version;
    unsigned               status; /* status of the reply; 0: the client disconnected before the
                                   reply */
    int64_t                bytes;  /* bytes of the reply's body */
    double                 seconds;
    const char            *task; /* id of the request's task; "": the request has no task */
    const char            *id;   /* id of the request, only in JSON */
    /* trace id of the request, only in JSON; "": the request has no trace id */
    const char            *trace;
} xd_access;

/* Opens the log file `path`; "-" is standard output. If another program moves the file (log
 * rotation), later lines are written to a new file of the same name. json: 1 if lines are JSON
 * objects. */
xd_status xd_access_log_open(xd_access_log **l, const char *path, int json, xd_err *e);
/* Writes the log line of a request. Thread-safe. */
void      xd_access_log_add(xd_access_log *l, const xd_access *a);
void      xd_access_log_close(xd_access_log **l);

#endif
