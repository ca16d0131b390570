/* http_socket.c - see http_socket.h
 *
 * libmicrohttpd hands over the socket of a connection after its reply with status 101. With TLS
 * this socket is one end of a socket pair, whose other end libmicrohttpd encrypts. */
#include "serve/http_socket.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include <microhttpd.h>

#include "base/clock.h"
#include "serve/websocket.h"

/* MOST: maximum bytes of a client's message. STACK: bytes of a thread's stack. SEND_MS: time for
 * sending a message. */
enum { MOST = 64 << 10, STACK = 512 << 10, SEND_MS = 20000 };
static const double PING_S = 20; /* seconds between two pings, which notice dead connections */

struct xd_socket {
    int                               fd;
    struct MHD_UpgradeResponseHandle *handle;
    xd_socket_pool                   *pool;
    void                              (*run)(void *cookie, xd_socket *s);
    void                              (*done)(void *cookie);
    void                             *cookie;
    int                               ended;
    double                            pinged_s;
    size_t                            n; /* bytes in `data` that belong to an incomplete frame */
    uint8_t                           data[MOST + XD_WS_HEAD];
};

/* ---- sending --------------------------------------------------------------------------------- */

static int send_all(xd_socket *s, const void *data, size_t n)
{
    const char *at = data;
    while (n && !s->ended) {
        ssize_t k = send(s->fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0) {
            at += k;
            n -= (size_t)k;
        } else if (k < 0 && errno == EAGAIN) {
            struct pollfd p = { .fd = s->fd, .events = POLLOUT };
            s->ended |= poll(&p, 1, SEND_MS) == 0;
        } else if (k == 0 || errno != EINTR) {
            s->ended = 1;
        }
    }
    return !s->ended;
}

static int send_frame(xd_socket *s, xd_ws_opcode opcode, const void *data, size_t bytes)
{
    uint8_t head[XD_WS_HEAD];
    size_t  n = xd_ws_head(head, opcode, bytes);
    return send_all(s, head, n) && send_all(s, data, bytes);
}

int xd_socket_send(xd_socket *s, int binary, const void *data, size_t bytes)
{
    return send_frame(s, binary ? XD_WS_BINARY : XD_WS_TEXT, data, bytes);
}

/* Sends the reason for which the connection ends, and ends the connection. */
static void end_with(xd_socket *s, int code)
{
    uint8_t reason[2] = { (uint8_t)(code >> 8), (uint8_t)code };
    send_frame(s, XD_WS_CLOSE, reason, sizeof reason);
    s->ended = 1;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void handle_frames(xd_socket *s)
{
    xd_ws_frame f;
    int64_t     k = 0;
    while (!s->ended && (k = xd_ws_read(s->data, s->n, MOST, &f)) > 0) {
        if (f.opcode == XD_WS_PING)
            send_frame(s, XD_WS_PONG, f.payload, f.bytes);
        if (f.opcode == XD_WS_CLOSE)
            end_with(s, XD_WS_NORMAL);
        memmove(s->data, s->data + k, s->n - (size_t)k);
        s->n -= (size_t)k;
    }
    if (!s->ended && k < 0)
        end_with(s, (int)-k);
}

static int is_ending(xd_socket_pool *p)
{
    pthread_mutex_lock(&p->lock);
    int ending = p->ending;
    pthread_mutex_unlock(&p->lock);
    return ending;
}

int xd_socket_wait(xd_socket *s, double seconds)
{
    struct pollfd p = { .fd = s->fd, .events = POLLIN };
    double        now = xd_now_s();
    if (!s->ended && is_ending(s->pool))
        end_with(s, XD_WS_GOING_AWAY);
    if (!s->ended && now - s->pinged_s > PING_S) {
        s->pinged_s = now;
        send_frame(s, XD_WS_PING, "", 0);
    }
    if (!s->ended && poll(&p, 1, (int)(seconds * 1e3)) > 0) {
        ssize_t k = recv(s->fd, s->data + s->n, sizeof s->data - s->n, MSG_DONTWAIT);
        s->ended |= k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR);
        s->n += k > 0 ? (size_t)k : 0;
        handle_frames(s);
    }
    return !s->ended;
}

/* ---- threads --------------------------------------------------------------------------------- */

void xd_socket_pool_open(xd_socket_pool *p)
{
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
}

void xd_socket_pool_end(xd_socket_pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->ending = 1;
    while (p->open)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

void xd_socket_pool_close(xd_socket_pool *p)
{
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
}

/* Counts a connection. Returns 0 if all connections end. */
static int enter(xd_socket_pool *p)
{
    pthread_mutex_lock(&p->lock);
    int may = !p->ending;
    p->open += may;
    pthread_mutex_unlock(&p->lock);
    return may;
}

static void leave(xd_socket_pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->open--;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void xd_socket_free(xd_socket *s)
{
    if (s)
        s->done(s->cookie);
    free(s);
}

static void *serve_socket(void *arg)
{
    xd_socket      *s = arg;
    xd_socket_pool *p = s->pool;
    handle_frames(s);
    s->run(s->cookie, s);
    if (!s->ended)
        end_with(s, XD_WS_NORMAL);
    MHD_upgrade_action(s->handle, MHD_UPGRADE_ACTION_CLOSE);
    xd_socket_free(s);
    leave(p);
    return NULL;
}

void xd_socket_begin(xd_socket *s, int fd, const char *early, size_t nearly,
                     struct MHD_UpgradeResponseHandle *handle)
{
    pthread_attr_t attr;
    pthread_t      thread;
    s->fd = fd;
    s->handle = handle;
    s->pinged_s = xd_now_s();
    s->n = nearly < sizeof s->data ? nearly : 0;
    if (s->n)
        memcpy(s->data, early, s->n);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int begun = nearly == s->n && enter(s->pool);
    if (begun && pthread_create(&thread, &attr, serve_socket, s) != 0)
        leave(s->pool), begun = 0;
    if (!begun) {
        MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
        xd_socket_free(s);
    }
    pthread_attr_destroy(&attr);
}

/* ---- handshake ------------------------------------------------------------------------------- */

/* Returns nonzero if the list of words, which commas separate, has the word in any case. */
static int has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    while (list && *list) {
        list += strspn(list, " \t,");
        size_t k = strcspn(list, " \t,");
        if (k == n && strncasecmp(list, word, n) == 0)
            return 1;
        list += k;
    }
    return 0;
}

void xd_reply_socket(xd_http_call *c, void (*run)(void *cookie, xd_socket *s),
                     void (*done)(void *cookie), void *cookie)
{
    const char *key = xd_http_header(c, "Sec-WebSocket-Key"),
               *version = xd_http_header(c, "Sec-WebSocket-Version");
    char accept[XD_WS_ACCEPT + 1];
    if (!has_word(xd_http_header(c, "Upgrade"), "websocket") ||
        !has_word(xd_http_header(c, "Connection"), "upgrade") || !key || !version ||
        strcmp(version, "13") != 0 || !xd_ws_accept(key, accept) || c->nparts || c->bytes) {
        done(cookie);
        xd_reply_error(c, 400, NULL, NULL,
                       "%.80s is for WebSocket connections of version 13, whose key has 16 bytes "
                       "in base64",
                       c->path);
        return;
    }
    xd_socket *s = calloc(1, sizeof *s);
    if (s)
        *s = (xd_socket){ .run = run, .done = done, .cookie = cookie };
    if (!s || !(s->pool = xd_http_upgrade(c))) {
        free(s);
        done(cookie);
        xd_reply_error(c, 503, NULL, NULL, "no memory for a WebSocket connection");
        return;
    }
    c->socket = s;
    xd_reply_header(c, "Upgrade", "websocket");
    xd_reply_header(c, "Sec-WebSocket-Accept", accept);
}
