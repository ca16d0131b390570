/* http.h - HTTP for the server's interfaces: a table of routes, complete requests, replies
 *
 * libmicrohttpd implements the protocol with a thread per connection, so handlers may block. This
 * module does what is common to all interfaces: API keys, requests from other origins, limits of
 * headers, bodies and time, unknown paths and methods. */
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
    char  *name, *file, *type;  /* file name and media type: NULL if the client sent none      */
    char  *data;                /* [bytes], then a NUL                                         */
    size_t bytes;
} xd_part;

typedef struct xd_http_call {   /* a request and its reply                                     */
    struct MHD_Connection *connection;
    void       *server;         /* of xd_http_args                                             */
    const char *method, *path, *version;
    char        arg[64];        /* the part of the path that matches the * of the route         */
    const char *owner;          /* hash of the request's key; "": the server has no keys        */
    char       *body;           /* NULL: none, or it is in `parts`                              */
    size_t      bytes;
    xd_json    *json;           /* the parsed body; NULL: not JSON                             */
    xd_part    *parts;          /* [nparts]                                                    */
    int         nparts;
    struct MHD_Response *reply; /* NULL: none yet                                              */
    unsigned    status;         /* of the reply                                                */
    int         streams;        /* the reply is a stream of events                             */
    double      probed_s;       /* time of the last probe of xd_http_client_left               */
    int64_t     sent;           /* bytes of the reply's body so far                            */
    char        task[40];       /* id of the task of this request; "": none                    */
} xd_http_call;

typedef struct xd_route {       /* the first route that matches is used                        */
    const char *method, *path;  /* a * matches one part of the path, at its end all that follows */
    void      (*handle)(xd_http_call *c);       /* creates the reply                           */
    int         open;           /* 1: no key is required                                       */
} xd_route;

typedef struct xd_http_args {
    const char     *host;       /* numeric address to listen on                                */
    int             port;       /* 0: any free port                                            */
    const xd_route *routes;     /* end with a row without a method                             */
    void           *server;     /* for handlers                                                */
    const char *const *keys;    /* API keys, end with NULL; NULL: no key is required            */
    const char *const *origins; /* origins of web pages that may send requests; end with NULL    */
    size_t          max_body;   /* bytes of a body                                             */
    size_t          max_bodies; /* bytes of all bodies in memory; 0: no limit                  */
    int             connections;        /* maximum number                                      */
    double          timeout_s;  /* time limit for receiving a request                          */
    struct xd_access_log *log;  /* NULL: none                                                  */
    char           *tls_cert, *tls_key; /* contents of PEM files, read at the start; NULL: HTTP  */
} xd_http_args;

/* Starts listening and serving. XD_EIO: the address is in use or TLS fails. */
xd_status xd_http_start(xd_http **h, const xd_http_args *a, xd_err *e);
int       xd_http_port(const xd_http *h);       /* port on which it listens                    */
/* Stops accepting connections, waits up to `seconds` for open ones, and frees everything. */
void      xd_http_stop(xd_http **h, double seconds);
/* Number of replies so far by the first digit of their status (1 .. 5). */
int64_t   xd_http_count(const xd_http *h, int digit);
size_t    xd_http_body_bytes(const xd_http *h); /* bytes of all bodies in memory               */

/* ---- requests ------------------------------------------------------------------------------- */

const char    *xd_http_query(const xd_http_call *c, const char *name);  /* NULL: none          */
const char    *xd_http_header(const xd_http_call *c, const char *name); /* NULL: none          */
/* Nonzero if the client has disconnected. For a call whose reply has not begun. A client may close
 * its sending side and still read: two seconds later, and then each second, it is sent an interim
 * reply (100), which fails if it has disconnected. */
int            xd_http_client_left(xd_http_call *c);
/* The same for a stream of events: appends a comment to them in place of the interim reply. */
int            xd_http_reader_left(xd_http_call *c, xd_text_buf *events);

/* ---- replies; the last call counts ---------------------------------------------------------- */

void xd_reply_json(xd_http_call *c, unsigned status, xd_text_buf *b);   /* frees b             */
void xd_reply_text(xd_http_call *c, unsigned status, const char *type, const char *text,
                   size_t bytes);
void xd_reply_file(xd_http_call *c, const char *path, const char *type);
/* Replies with an error as JSON; `param` and `code` may be NULL. */
void xd_reply_error(xd_http_call *c, unsigned status, const char *param, const char *code,
                    const char *fmt, ...) XD_PRINTF(5, 6);
void xd_reply_header(xd_http_call *c, const char *name, const char *value);
/* Replies with a stream of events (text/event-stream). `more` waits for the next events, appends
 * them to b, and returns 0 at the end; `done` is called once after the reply. */
void xd_reply_events(xd_http_call *c, int (*more)(void *cookie, xd_text_buf *b),
                     void (*done)(void *cookie), void *cookie);

#endif
