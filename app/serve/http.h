/* http.h - receives complete HTTP requests, calls the handler that a table (xd_route) assigns to
 * the request's path, and sends the reply.
 *
 * libmicrohttpd implements the protocol with a thread per connection, so handlers may block. The
 * module http.c implements what all interfaces have in common: it checks API keys, refuses requests
 * from web pages of other origins, limits the size of headers and bodies and the time to receive
 * them, and replies to unknown paths and methods. */
#ifndef XD_SERVE_HTTP_H
#define XD_SERVE_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

typedef struct xd_http xd_http;
struct MHD_Connection;
struct MHD_Response;
struct xd_socket;

typedef struct xd_part { /* a field of a request body that is multipart/form-data or another form */
    /* Name of the field, name of the uploaded file, and media type; each is NULL if the client did
     * not send it. */
    char  *name, *file, *type;
    char  *data; /* content of the field: `bytes` bytes, followed by a NUL */
    size_t bytes;
} xd_part;

typedef struct xd_http_call { /* a request and its reply */
    struct MHD_Connection *connection;
    void                  *server; /* the member `server` of xd_http_args, for handlers */
    const char            *method, *path, *version;
    char        arg[64]; /* the part of the path that corresponds to the * in the route's path */
    const char *owner;   /* hash of the request's API key; "": the server has no keys */
    /* Body of the request; NULL if there is none or if its fields are in `parts`. */
    char       *body;
    size_t      bytes;
    xd_json    *json;  /* the parsed body of the request; NULL: the body is not JSON */
    xd_part    *parts; /* [nparts] fields of the body, if the body is a form */
    int         nparts;
    struct MHD_Response *reply;   /* reply to the request; NULL: no reply has been created yet */
    unsigned             status;  /* HTTP status of the reply */
    int                  streams; /* 1: the reply is a stream of events */
    xd_http             *http;    /* the server that has received the request */
    /* WebSocket connection that begins after the reply (http_socket.h); NULL: none */
    struct xd_socket    *socket;
    double  probed_s; /* time at which xd_http_client_left last checked the connection */
    int64_t sent;     /* bytes of the reply's body so far */
    char    task[40]; /* id of the task of this request; "": the request has no task */
    char    id[65];   /* id of the request: its header X-Request-Id, or a random number */
    /* trace id of the header traceparent (W3C Trace Context); "": the request has no such header */
    char    trace[33];
} xd_http_call;

/* Assigns a handler to requests with one method and path; if several routes match a request, the
 * first one is used. */
typedef struct xd_route {
    /* A * in the path matches any single segment of a request's path; at the end of the path, it
     * matches all remaining segments. */
    const char *method, *path;
    void        (*handle)(xd_http_call *c); /* function that creates the reply to the request */
    int         open;                       /* 1: requests to this route need no API key */
} xd_route;

typedef struct xd_http_args {
    const char           *host;   /* numeric address to listen on */
    int                   port;   /* port to listen on; 0: any free port */
    const xd_route       *routes; /* table of routes; the last row has no method */
    /* Table of further routes, which also exist below the path /api; NULL: none. */
    const xd_route       *api_routes;
    void                 *server; /* pointer that handlers receive as xd_http_call.server */
    /* Accepted API keys, followed by NULL. If the array is NULL, requests need no key. */
    const char *const    *keys;
    /* Origins of other web pages that may send requests, followed by NULL. */
    const char *const    *origins;
    size_t                max_body; /* maximum bytes of a request body */
    /* Maximum total bytes of all request bodies that are in memory at a time; 0: no limit. */
    size_t                max_bodies;
    int                   connections; /* maximum number of connections */
    double                timeout_s;   /* time limit for receiving a request, in seconds */
    struct xd_access_log *log;         /* NULL: none */
    /* Contents of the PEM files with the certificate and its key, which are read before the
     * server starts; both NULL: the server does not use TLS. */
    char                 *tls_cert, *tls_key;
} xd_http_args;

/* Starts a server that listens and handles requests. XD_EIO: the address is in use, or TLS
 * fails. */
xd_status xd_http_start(xd_http **h, const xd_http_args *a, xd_err *e);
int       xd_http_port(const xd_http *h); /* TCP port on which the server listens */
/* Stops accepting connections, waits up to `seconds` for open connections, and frees *h. */
void      xd_http_stop(xd_http **h, double seconds);
/* Returns the number of replies so far whose status begins with `digit` (1 .. 5). */
int64_t   xd_http_count(const xd_http *h, int digit);
size_t    xd_http_body_bytes(const xd_http *h); /* bytes of all request bodies in memory */

/* ---- requests ------------------------------------------------------------------------------- */

/* xd_http_query returns a parameter of the request's query, and xd_http_header returns a header of
 * the request; NULL: the request has no such parameter or header. */
const char *xd_http_query(const xd_http_call *c, const char *name);
const char *xd_http_header(const xd_http_call *c, const char *name);
/* Returns nonzero if the client has disconnected. Handlers may call xd_http_client_left before the
 * reply has begun. A client that has closed only the sending side of its connection may still read
 * the reply. A client that has closed its sending side is sent an interim reply (100) after two
 * seconds and then every second; if sending fails, the client has disconnected. */
int         xd_http_client_left(xd_http_call *c);
/* Returns nonzero if the client of a stream of events has disconnected. Works like
 * xd_http_client_left, but appends a comment line to the stream `events` instead of sending an
 * interim reply. */
int         xd_http_reader_left(xd_http_call *c, xd_text_buf *events);

/* ---- functions that create the reply; the last call counts ---------------------------------- */

/* Replies with the JSON text in b, and frees b. */
void xd_reply_json(xd_http_call *c, unsigned status, xd_text_buf *b);
void xd_reply_text(xd_http_call *c, unsigned status, const char *type, const char *text,
                   size_t bytes);
void xd_reply_file(xd_http_call *c, const char *path, const char *type);
/* Replies with an error as JSON; `param` and `code` may be NULL. */
void xd_reply_error(xd_http_call *c, unsigned status, const char *param, const char *code,
                    const char *fmt, ...) XD_PRINTF(5, 6);
void xd_reply_header(xd_http_call *c, const char *name, const char *value);
/* Replies with a stream of events (text/event-stream). Calls the callback `more` again and again.
 * `more` waits for the next events, appends them to b, and returns 0 at the end of the stream. The
 * callback `done` is called once after the reply. */
void xd_reply_events(xd_http_call *c, int (*more)(void *cookie, xd_text_buf *b),
                     void (*done)(void *cookie), void *cookie);

#endif
