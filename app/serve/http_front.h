/* http_front.h - the sockets of clients: what they send is looked at (http_head.h) before
 * libmicrohttpd gets it
 *
 * One thread listens, accepts, and passes bytes between each client and a socket of this process,
 * which libmicrohttpd takes for the client's. A request that is refused is answered here, behind
 * the replies to those before it. */
#ifndef XD_SERVE_HTTP_FRONT_H
#define XD_SERVE_HTTP_FRONT_H

#include <sys/socket.h>

#include "base/err.h"

typedef struct xd_front xd_front;

typedef struct xd_front_args {
    const char *host;           /* numeric address                                             */
    int         port;           /* 0: any                                                      */
    int         connections;    /* at once                                                     */
    int         sealed;         /* TLS: nothing can be looked at                               */
    double      patience;       /* seconds in which a piece of a reply must be read            */
} xd_front_args;

/* Listens, and accepts nothing yet. */
xd_status xd_front_open(xd_front **f, const xd_front_args *a, xd_err *e);
int       xd_front_port(const xd_front *f);
/* Gets a socket, which it owns also where it returns 0: it cannot; from: the client's address. */
typedef int xd_front_take(void *cookie, int fd, const struct sockaddr_storage *from);
/* Begins. */
xd_status xd_front_start(xd_front *f, xd_front_take *take, void *cookie, xd_err *e);
void      xd_front_quiet(xd_front *f);  /* accepts nothing more                                */
/* What was answered is sent still, for a second. */
void      xd_front_close(xd_front **f);

#endif
