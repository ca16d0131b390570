/* http_front.c - a poll loop that forwards and checks the bytes of clients; see http_front.h */
#define _GNU_SOURCE /* accept4 */
#include "serve/http_front.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "serve/http_head.h"

enum { PIPE = 16 << 10, BACKLOG = 128, POLL_MS = 500, AT_ONCE = 16 };
/* LAST_S: seconds for sending pending replies when the server stops. LINGER_S: seconds that a
 * client has to close its connection after the last reply. */
static const double LAST_S = 1, LINGER_S = 2;

typedef struct pipe_buf { /* a buffer of bytes to forward: data[at..n) */
    char   data[PIPE];
    size_t at, n;
    int    ended; /* 1: the sender of the bytes has closed its side of the connection */
    int    shut;  /* 1: the end of the byte stream was forwarded */
} pipe_buf;

typedef struct conn {
    int          client, inner;
    int          served; /* the socket of libmicrohttpd, the other end of `inner` */
    atomic_int   raw;    /* 1: the bytes of the client are not HTTP any more */
    /* in: buffer of bytes from the client; out: buffer of bytes to the client */
    pipe_buf     in, out;
    xd_head      head;
    /* 1: libmicrohttpd has sent bytes of a reply since the head of the current request began */
    int          answered;
    int          replied;  /* 1: at least one byte was sent to the client */
    double       active_s; /* time when the client last read a byte */
    struct conn *next;
} conn;

struct xd_front {
    xd_front_args       a;
    int                 listener, wake, port;
    xd_front_on_client *on_client;
    void               *cookie;
    int                 running;
    pthread_t           thread;
    atomic_int          no_accept, stopping;
    pthread_mutex_t     lock; /* protects the list of connections */
    conn               *first;
    int                 n;
};

/* ---- listening ------------------------------------------------------------------------------- */

static xd_status make_address(const xd_front_args *a, struct sockaddr_storage *at, socklen_t *size,
                              xd_err *e)
{
    struct sockaddr_in  *in = (struct sockaddr_in *)at;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)at;
    memset(at, 0, sizeof *at);
    if (inet_pton(AF_INET6, a->host, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((uint16_t)a->port);
        *size = sizeof *in6;
        return XD_OK;
    }
    if (inet_pton(AF_INET, a->host, &in->sin_addr) != 1)
        return xd_fail(e, XD_EINVAL,
                       "--host must be an address such as 127.0.0.1, 0.0.0.0 or ::1, "
                       "not '%.80s'",
                       a->host);
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)a->port);
    *size = sizeof *in;
    return XD_OK;
}

static xd_status listen_at(xd_front *f, xd_err *e)
{
    struct sockaddr_storage at;
    socklen_t               size;
    int                     one = 1;
    xd_status               s = make_address(&f->a, &at, &size, e);
    if (s != XD_OK)
        return s;
    int fd = f->listener = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (at.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        return xd_fail(e, XD_EIO, "cannot listen on %s port %d: %s%s", f->a.host, f->a.port,
                       strerror(errno),
                       errno == EADDRINUSE ? ": choose another port with --port" : "");
    f->port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                             : ((struct sockaddr_in *)&at)->sin_port);
    return XD_OK;
}

/* ---- forwarding on one connection ------------------------------------------------------------ */

static void add_conn(xd_front *f, int client)
{
    int                     pair[2], one = 1;
    unsigned                ms = (unsigned)(f->a.timeout_s * 1e3);
    conn                   *c = malloc(sizeof *c);
    struct sockaddr_storage from = { .ss_family = AF_INET };
    if (!c || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        free(c);
        close(client);
        return;
    }
    /* TCP_USER_TIMEOUT closes the connection of a client that reads nothing; in a stream of events,
     * libmicrohttpd would wait for this client for ever */
    setsockopt(client, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->client = client;
    c->inner = pair[0];
    c->served = pair[1];
    atomic_init(&c->raw, 0);
    c->in.at = c->in.n = c->out.at = c->out.n = 0;
    c->in.ended = c->in.shut = c->out.ended = c->out.shut = 0;
    c->head = (xd_head){ 0 };
    c->answered = c->replied = 0;
    c->active_s = xd_now_s();
    pthread_mutex_lock(&f->lock);
    c->next = f->first;
    f->first = c;
    pthread_mutex_unlock(&f->lock);
    f->n++;
    getpeername(client, (struct sockaddr *)&from, &(socklen_t){ sizeof from });
    if (!f->on_client(f->cookie, pair[1], &from))
        c->in.ended = c->out.ended = 1;
}

static void accept_some(xd_front *f)
{
    for (int i = 0; i < AT_ONCE && f->n < f->a.connections; i++) {
        int fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        add_conn(f, fd);
    }
}

/* Reads bytes from a socket into a buffer. Returns 0 if the socket cannot be read. */
static int fill(pipe_buf *b, int fd)
{
    ssize_t k = recv(fd, b->data + b->n, PIPE - b->n, 0);
    if (k < 0)
        return errno == EAGAIN || errno == EINTR;
    b->n += (size_t)k;
    b->ended |= k == 0;
    return 1;
}

static int drain(pipe_buf *b, int fd)
{
    ssize_t k = send(fd, b->data + b->at, b->n - b->at, MSG_NOSIGNAL);
    if (k < 0)
        return errno == EAGAIN || errno == EINTR;
    b->at += (size_t)k;
    if (b->at == b->n)
        b->at = b->n = 0;
    return 1;
}

/* Appends the reply to a refused request, after the replies to all earlier requests. */
static void add_refusal(conn *c)
{
    const char *text = xd_head_sentence(c->head.status);
    pipe_buf   *b = &c->out;
    xd_text_buf j = { 0 };
    xd_buf_add(&j,
               "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":null},"
               "\"detail\":\"%s\"}\n",
               text, c->head.status < 500 ? "invalid_request_error" : "server_error", text);
    if (!j.failed)
        b->n += (size_t)snprintf(
            b->data + b->n, PIPE - b->n,
            "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n"
            "Content-Length: %zu\r\n\r\n%s",
            c->head.status, c->head.status == 400 ? "Bad Request" : "Not Implemented", j.len, j.p);
    xd_buf_free(&j);
}

/* Reads bytes from the client, and keeps only the bytes that may be forwarded. */
static int read_client(const xd_front *f, conn *c)
{
    size_t had = c->in.n;
    if (!fill(&c->in, c->client))
        return 0;
    if (f->a.encrypted || atomic_load(&c->raw))
        return 1;
    if (!c->head.in_body)
        c->answered = 0;
    c->in.n = had + xd_head_read(&c->head, c->in.data + had, c->in.n - had);
    c->in.ended |= c->head.status != 0;
    return 1;
}

static int read_inner(conn *c)
{
    size_t had = c->out.n;
    if (!fill(&c->out, c->inner))
        c->out.ended = 1;
    c->answered |= c->out.n > had;
    if (c->out.ended && c->head.status && (!c->head.in_body || !c->answered))
        add_refusal(c);
    return 1;
}

/* If one of the two connections was closed, closes the other connection after all bytes were
 * forwarded. */
static void forward_end(conn *c)
{
    if (c->in.ended && !c->in.shut && !c->in.n)
        c->in.shut = 1, shutdown(c->inner, SHUT_WR);
    if (c->out.ended && !c->out.shut && !c->out.n)
        c->out.shut = 1, shutdown(c->client, SHUT_WR);
}

/* Reads and drops bytes that the client sends after the last reply. Closing a socket with unread
 * bytes would send a TCP reset, which destroys the last reply. */
static int linger(const conn *c, const struct pollfd *client)
{
    char rest[PIPE];
    if (client->revents && recv(c->client, rest, sizeof rest, MSG_DONTWAIT) <= 0)
        return 0;
    return xd_now_s() - c->active_s < LINGER_S;
}

/* Handles the poll events of a connection's two sockets (client and libmicrohttpd). Returns 0 if
 * the connection has ended. */
static int serve_conn(const xd_front *f, conn *c, const struct pollfd *client,
                      const struct pollfd *inner)
{
    double now = xd_now_s();
    if (c->out.shut)
        return linger(c, client);
    if (client->revents & (POLLERR | POLLNVAL) ||
        (client->revents & POLLHUP && !(client->events & POLLIN && client->revents & POLLIN)))
        return 0;
    if (client->revents & POLLIN && !read_client(f, c))
        return 0;
    if (inner->revents & POLLOUT && c->in.n && !drain(&c->in, c->inner))
        c->in.at = c->in.n = 0, c->in.ended = c->in.shut = 1;
    if (inner->revents & (POLLIN | POLLHUP | POLLERR) && !c->out.ended && c->out.n < PIPE / 2)
        read_inner(c);
    if (!c->out.n)
        c->active_s = now;
    if (client->revents & POLLOUT && c->out.n) {
        if (!drain(&c->out, c->client))
            return 0;
        c->active_s = now;
        c->replied = 1;
    }
    forward_end(c);
    return (!c->out.shut || c->replied) && now - c->active_s < f->a.timeout_s;
}

static void end_conn(conn *c)
{
    close(c->client);
    close(c->inner);
    free(c);
}

/* ---- poll loop ------------------------------------------------------------------------------- */

static short events_if(int in, int out)
{
    return (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0));
}

static void list_conns(const xd_front *f, struct pollfd *p)
{
    for (const conn *c = f->first; c; c = c->next, p += 2) {
        int from_client = !c->in.ended && c->in.n < PIPE, from_inner = c->out.n < PIPE / 2;
        p[0] = (struct pollfd){ c->client, events_if(from_client, c->out.n > 0), 0 };
        /* 1: this call of poll ignores libmicrohttpd's socket */
        int ignored = c->out.ended || (!from_inner && !c->in.n);
        p[0].events |= c->out.shut ? POLLIN : 0;
        p[1] = (struct pollfd){ ignored ? -1 : c->inner, events_if(from_inner, c->in.n > 0), 0 };
    }
}

static void serve_conns(xd_front *f, const struct pollfd *p)
{
    for (conn **at = &f->first, *c; (c = *at); p += 2) {
        if (serve_conn(f, c, p, p + 1)) {
            at = &c->next;
            continue;
        }
        pthread_mutex_lock(&f->lock);
        *at = c->next;
        pthread_mutex_unlock(&f->lock);
        f->n--;
        end_conn(c);
    }
}

static void *pass_bytes(void *arg)
{
    xd_front      *f = arg;
    size_t         most = 2 + 2 * (size_t)f->a.connections;
    struct pollfd *p = calloc(most, sizeof *p);
    double         until = 0;
    while (p && (until <= 0 || (f->n && xd_now_s() < until))) {
        uint64_t beats;
        int      open = !atomic_load(&f->no_accept) && f->n < f->a.connections;
        p[0] = (struct pollfd){ .fd = f->wake, .events = POLLIN };
        p[1] = (struct pollfd){ .fd = open ? f->listener : -1, .events = POLLIN };
        list_conns(f, p + 2);
        if (poll(p, 2 + 2 * (nfds_t)f->n, until > 0 ? 20 : POLL_MS) < 0)
            continue;
        if (p[0].revents && read(f->wake, &beats, sizeof beats) < 0)
            continue;
        serve_conns(f, p + 2);
        if (p[1].revents)
            accept_some(f);
        if (atomic_load(&f->stopping) && until <= 0)
            until = xd_now_s() + LAST_S;
    }
    free(p);
    return NULL;
}

/* ---- public functions of this file ----------------------------------------------------------- */

xd_status xd_front_open(xd_front **out, const xd_front_args *a, xd_err *e)
{
    xd_front *f = *out = calloc(1, sizeof *f);
    if (!f)
        return xd_fail(e, XD_ENOMEM, "no memory for a server");
    f->a = *a;
    pthread_mutex_init(&f->lock, NULL);
    f->listener = -1;
    f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    xd_status s = listen_at(f, e);
    if (s != XD_OK)
        xd_front_close(out);
    return s;
}

int xd_front_port(const xd_front *f)
{
    return f->port;
}

xd_status xd_front_start(xd_front *f, xd_front_on_client *on_client, void *cookie, xd_err *e)
{
    f->on_client = on_client;
    f->cookie = cookie;
    f->running = pthread_create(&f->thread, NULL, pass_bytes, f) == 0;
    return f->running ? XD_OK : xd_fail(e, XD_ENOMEM, "cannot start a thread");
}

static void set_flag(xd_front *f, atomic_int *flag)
{
    uint64_t one = 1;
    atomic_store(flag, 1);
    if (write(f->wake, &one, sizeof one) < 0)
        /* writing to the eventfd fails only if it is readable already, so that the thread wakes
         * up anyway */
        return;
}

/* If libmicrohttpd has closed a socket whose number is in use again, the later connection comes
 * first in the list. */
void xd_front_end_http(xd_front *f, int fd)
{
    pthread_mutex_lock(&f->lock);
    conn *c = f->first;
    while (c && c->served != fd)
        c = c->next;
    if (c)
        atomic_store(&c->raw, 1);
    pthread_mutex_unlock(&f->lock);
}

void xd_front_stop_accepting(xd_front *f)
{
    set_flag(f, &f->no_accept);
}

void xd_front_close(xd_front **out)
{
    xd_front *f = *out;
    if (!f)
        return;
    set_flag(f, &f->no_accept);
    set_flag(f, &f->stopping);
    if (f->running)
        pthread_join(f->thread, NULL);
    for (conn *c; (c = f->first);) {
        f->first = c->next;
        end_conn(c);
    }
    if (f->listener >= 0)
        close(f->listener);
    if (f->wake >= 0)
        close(f->wake);
    pthread_mutex_destroy(&f->lock);
    free(f);
    *out = NULL;
}
