/* http_front.h - accepts the connections of clients, and checks requests before libmicrohttpd
 * receives them.
 *
 * A thread listens, accepts connections, and forwards bytes between each client and a socket pair.
 * The other end of the socket pair is the connection that libmicrohttpd uses. The thread checks
 * every request before it forwards the request (http_head.h). The thread itself replies to a
 * refused request, after the replies to earlier requests. */
#ifndef XD_SERVE_HTTP_FRONT_H
#define XD_SERVE_HTTP_FRONT_H

#include <sys/socket.h>

#include "base/err.h"

typedef struct xd_front xd_front;

typedef struct xd_front_args {
    const char *host;           /* numeric address to listen on                                */
    int         port;           /* 0: any free port                                            */
    int         connections;    /* maximum number of connections                               */
    int         encrypted;      /* 1: clients use TLS, so requests cannot be checked           */
    double      timeout_s;      /* time limit in seconds for a client to read a piece of a reply */
} xd_front_args;

/* Starts listening, but accepts no connections yet. XD_EIO: the address is in use. */
xd_status xd_front_open(xd_front **f, const xd_front_args *a, xd_err *e);
int       xd_front_port(const xd_front *f);
/* Called for each connection with a socket, which the callee owns, and the client's address.
 * Returns 0 if the callee cannot serve the connection. */
typedef int xd_front_on_client(void *cookie, int fd, const struct sockaddr_storage *from);
/* Starts the thread that accepts connections. */
xd_status xd_front_start(xd_front *f, xd_front_on_client *on_client, void *cookie, xd_err *e);
void      xd_front_stop_accepting(xd_front *f);
/* Sends pending replies for up to a second, and closes all connections. */
void      xd_front_close(xd_front **f);

#endif
