/* http.h - HTTP for the server's interfaces: a table of routes, requests read whole, replies.
 *
 * libmicrohttpd speaks the protocol, with a thread for each connection, so handlers may wait. What
 * no interface should have to think of is done here: keys, foreign origins, limits of header, body
 * and time, methods and paths that do not exist. */
#ifndef XD_SERVE_HTTP_H
#define XD_SERVE_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

typedef struct xd_http xd_http;
struct MHD_Connection;
struct MHD_Response;

typedef struct xd_part {        /* a field of multipart/form-data or of a form                  */
    char  *name, *file, *type;  /* file, type: NULL where the client gave none                 */
    char  *data;                /* with a NUL behind it                                        */
    size_t bytes;
} xd_part;

typedef struct xd_http_call {        /* a request, and its reply */
    struct MHD_Connection *connection;
    void       *server;         /* of xd_http_args                                             */
    const char *method, *path, *version;
    char        arg[64];        /* what * in the route's path stands for                        */
    const char *owner;          /* stands for the key that was given; "": none is asked       */
    char       *body;           /* NULL: none, or it is in parts                                */
    size_t      bytes;
    xd_json    *json;           /* the body, where it is JSON; else NULL                       */
    xd_part    *parts;
    int         nparts;
    struct MHD_Response *reply;
    unsigned    status;         /* of the reply                                                */
    int         streams;        /* the reply is made while it is sent                          */
    double      probed_s;       /* of xd_http_gone                                             */
    int64_t     sent;           /* bytes of the reply's body, so far                           */
    char        task[40];       /* id of the task that the request has made; "": none          */
} xd_http_call;

typedef struct xd_route {       /* the first one that fits is taken                            */
    const char *method, *path;  /* a * stands for one part of the path; at its end, for the rest */
    void      (*handle)(xd_http_call *c);        /* makes the reply */
    int         open;           /* no key is asked for                                         */
} xd_route;

typedef struct xd_http_args {
    const char     *host;       /* numeric address to listen on                                */
    int             port;       /* 0: any                                                      */
    const xd_route *routes;     /* end with a row without a method                             */
    void           *server;
    const char *const *keys;    /* end with NULL; NULL: everybody is served                     */
    const char *const *origins; /* web pages of these origins are served, too; end with NULL     */
    size_t          most_body;  /* bytes                                                       */
    size_t          most_bodies;        /* bytes of all requests together; 0: any number       */
    int             connections;        /* at once                                             */
    double          patience;   /* seconds in which a request must have come                   */
    struct xd_access_log *log;  /* of requests; NULL: none                                     */
    char           *tls_cert, *tls_key; /* contents of PEM files, read at the start; NULL: HTTP  */
} xd_http_args;

xd_status xd_http_start(xd_http **h, const xd_http_args *a, xd_err *e);
int       xd_http_port(const xd_http *h);       /* on which it listens                         */
/* No new connections; those that there are get `seconds` to end. */
void      xd_http_stop(xd_http **h, double seconds);
/* Requests that were answered so far, by the first digit of their status (1 .. 5). */
int64_t   xd_http_count(const xd_http *h, int digit);
size_t    xd_http_body_bytes(const xd_http *h); /* of bodies of requests that are not answered  */

/* ---- what a request has --------------------------------------------------------------------- */

const char    *xd_http_query(const xd_http_call *c, const char *name);        /* NULL: not given */
const char    *xd_http_header(const xd_http_call *c, const char *name);
/* Nobody reads the reply any more, of which nothing was sent yet. A client that has closed its side
 * after its request may read on: after two seconds, and then each second, it gets an interim reply
 * (100), which the system of one that has gone refuses. */
int            xd_http_gone(xd_http_call *c);
/* The same while events are sent: appends a comment to them in place of the interim reply. */
int            xd_http_gone_reader(xd_http_call *c, xd_text_buf *events);

/* ---- replies; the last one counts ----------------------------------------------------------- */

void xd_reply_json(xd_http_call *c, unsigned status, xd_text_buf *b);        /* frees b */
void xd_reply_text(xd_http_call *c, unsigned status, const char *type, const char *text,
                   size_t bytes);
void xd_reply_file(xd_http_call *c, const char *path, const char *type);
/* A failure in the form of the interface; `param` and `code` may be NULL. */
void xd_reply_error(xd_http_call *c, unsigned status, const char *param, const char *code,
                    const char *fmt, ...) XD_PRINTF(5, 6);
void xd_reply_header(xd_http_call *c, const char *name, const char *value);
/* Events (text/event-stream). `more` appends what is next to b, waits for it if need be, and
 * returns 0 at the end; `done` is called once when the reply is over. */
void xd_reply_events(xd_http_call *c, int (*more)(void *cookie, xd_text_buf *b),
                     void (*done)(void *cookie), void *cookie);

#endif
