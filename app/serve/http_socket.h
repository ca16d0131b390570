/* http_socket.h - the WebSocket connections of a server (RFC 6455), each with a thread */
#ifndef XD_SERVE_HTTP_SOCKET_H
#define XD_SERVE_HTTP_SOCKET_H

#include <pthread.h>
#include <stddef.h>

#include "serve/http.h"

typedef struct xd_socket xd_socket; /* an open WebSocket connection */
struct MHD_UpgradeResponseHandle;

/* All open WebSocket connections of an HTTP server. */
typedef struct xd_socket_pool {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    int             open;   /* number of connections with a thread */
    int             ending; /* 1: all connections end */
} xd_socket_pool;

void xd_socket_pool_open(xd_socket_pool *p);
/* Ends all connections and waits for their threads. No connection may begin afterwards. */
void xd_socket_pool_end(xd_socket_pool *p);
void xd_socket_pool_close(xd_socket_pool *p);

/* Replies to a request with the handshake of a WebSocket connection. The callback `run` is called
 * in a thread of its own after the handshake, and the connection ends when `run` returns. The
 * callback `done` is called once, at the end of the connection or if the request was refused. A
 * request without a valid handshake is refused with status 400. */
void xd_reply_socket(xd_http_call *c, void (*run)(void *cookie, xd_socket *s),
                     void (*done)(void *cookie), void *cookie);
/* Sends a message of text or bytes. Returns 0 if the connection has ended. */
int  xd_socket_send(xd_socket *s, int binary, const void *data, size_t bytes);
/* Waits up to `seconds` for messages of the client, replies to pings, and drops the content of
 * messages. Returns 0 if the connection has ended. */
int  xd_socket_wait(xd_socket *s, double seconds);

/* ---- functions that http.c calls ------------------------------------------------------------- */

/* Starts the thread of a connection after the handshake. `early`: bytes that the client has sent
 * already. xd_socket_begin takes ownership of s, and returns at once, because with TLS the calling
 * thread encrypts the bytes of the connection. */
void            xd_socket_begin(xd_socket *s, int fd, const char *early, size_t nearly,
                                struct MHD_UpgradeResponseHandle *handle);
void            xd_socket_free(xd_socket *s); /* frees a connection whose thread was not started */
/* Creates the reply to a request for a WebSocket connection, and returns the pool of the server's
 * connections; NULL: memory is exhausted. */
xd_socket_pool *xd_http_upgrade(xd_http_call *c);

#endif
