/* http_front.h - accepts the connections of clients, and checks requests before libmicrohttpd
 * receives them.
 *
 * A thread accepts the connections of clients. For each client, the accepting thread creates a
 * socket pair, and forwards bytes between the client and one end of the socket pair. libmicrohttpd
 * uses the other end of the socket pair as its connection to the client. The accepting thread
 * checks every request before it forwards the request (http_head.h). The accepting thread itself
 * replies to a refused request, after the replies to earlier requests. */
#ifndef XD_SERVE_HTTP_FRONT_H
#define XD_SERVE_HTTP_FRONT_H

#include <sys/socket.h>

#include "base/err.h"

typedef struct xd_front xd_front;

typedef struct xd_front_args {
    const char *host;        /* numeric address to listen on */
    int         port;        /* port to listen on; 0: any free port */
    int         connections; /* maximum number of connections */
    /* 1: clients use TLS, so that the accepting thread cannot read and check requests. */
    int         encrypted;
    /* Seconds within which a client must read each piece of a reply, or else the connection is
     * closed. */
    double      timeout_s;
} xd_front_args;

/* Starts listening, but accepts no connections yet. XD_EIO: the address and port are in use. */
xd_status   xd_front_open(xd_front **f, const xd_front_args *a, xd_err *e);
int         xd_front_port(const xd_front *f);
/* Callback that is called for each new connection. In a callback for a new connection, `fd` is a
 * socket, which the callback must close, and `from` is the client's address. A callback that cannot
 * serve the connection returns 0. */
typedef int xd_front_on_client(void *cookie, int fd, const struct sockaddr_storage *from);
/* Starts the thread that accepts connections. */
xd_status   xd_front_start(xd_front *f, xd_front_on_client *on_client, void *cookie, xd_err *e);
/* Forwards all further bytes of a connection without checks, because they are no HTTP requests. fd:
 * the socket that the callback for this connection received. */
void        xd_front_end_http(xd_front *f, int fd);
void        xd_front_stop_accepting(xd_front *f);
/* Sends replies that are not complete for up to a second, and then closes all connections. */
void        xd_front_close(xd_front **f);

#endif
