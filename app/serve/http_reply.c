/* http_reply.c - functions with which handlers read a request and create its reply; see http.h */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <microhttpd.h>

#include "base/clock.h"
#include "serve/http.h"

static const double PROBE_S = 1; /* seconds between two probes of a half-closed client */

/* ---- requests ------------------------------------------------------------------------------- */

const char *xd_http_query(const xd_http_call *c, const char *name)
{
    return MHD_lookup_connection_value(c->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *xd_http_header(const xd_http_call *c, const char *name)
{
    return MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, name);
}

static int socket_of(const xd_http_call *c)
{
    return MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

typedef enum presence { THERE, HALF_CLOSED, GONE } presence;

static presence look_for_client(const xd_http_call *c)
{
    struct pollfd p = { .fd = socket_of(c), .events = POLLIN };
    char          byte;
    if (poll(&p, 1, 0) <= 0)
        return THERE;
    if (p.revents & (POLLHUP | POLLERR | POLLNVAL))
        return GONE;
    return recv(p.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0 ? HALF_CLOSED : THERE;
}

/* Returns nonzero if it is time to probe a half-closed client. The first probe of a half-closed
 * client is delayed, because most replies are soon complete. */
static int is_probe_due(xd_http_call *c)
{
    double now = xd_now_s();
    if (!(c->probed_s > 0))
        c->probed_s = now + PROBE_S;
    if (now - c->probed_s < PROBE_S)
        return 0;
    c->probed_s = now;
    return 1;
}

/* Clients of HTTP/1.0 are not probed, because they do not accept interim replies. TLS connections
 * are not probed, because TLS has no half-closed connections. */
int xd_http_client_left(xd_http_call *c)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    presence          p = look_for_client(c);
    if (p != HALF_CLOSED)
        return p == GONE;
    if (strcmp(c->version, "HTTP/1.1") != 0 ||
        MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION))
        return 1;
    return is_probe_due(c) && send(socket_of(c), interim, sizeof interim - 1,
                                   MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof interim - 1;
}

int xd_http_reader_left(xd_http_call *c, xd_text_buf *events)
{
    presence p = look_for_client(c);
    if (p == HALF_CLOSED && is_probe_due(c))
        xd_buf_add(events, ":\n\n");
    return p == GONE;
}

/* ---- replies --------------------------------------------------------------------------------- */

static void set_reply(xd_http_call *c, unsigned status, const char *type, int64_t bytes,
                      struct MHD_Response *r)
{
    if (c->reply)
        MHD_destroy_response(c->reply);
    c->reply = r;
    c->status = status;
    c->sent = bytes;
    if (r)
        MHD_add_response_header(r, "Content-Type", type);
}

void xd_reply_header(xd_http_call *c, const char *name, const char *value)
{
    if (c->reply)
        MHD_add_response_header(c->reply, name, value);
}

void xd_reply_text(xd_http_call *c, unsigned status, const char *type, const char *text,
                   size_t bytes)
{
    set_reply(c, status, type, (int64_t)bytes,
              MHD_create_response_from_buffer(bytes, (void *)text, MHD_RESPMEM_MUST_COPY));
}

void xd_reply_json(xd_http_call *c, unsigned status, xd_text_buf *b)
{
    if (b->failed)
        set_reply(c, 503, "text/plain", 0, NULL);
    else
        set_reply(c, status, "application/json", (int64_t)b->len,
                  MHD_create_response_from_buffer(b->len, b->p, MHD_RESPMEM_MUST_FREE));
    if (b->failed)
        xd_buf_free(b);
    *b = (xd_text_buf){ 0 };
}

/* ---- replies with files and ranges of files -------------------------------------------------- */

typedef enum asked { ALL, PART, NOTHING } asked;

/* Parses the decimal number at `text` and sets *end to the end of the digits; returns -1 if `text`
 * has no number. */
static int64_t read_digits(const char *text, const char **end)
{
    char *to;
    errno = 0;
    int64_t n = *text >= '0' && *text <= '9' ? (int64_t)strtoll(text, &to, 10) : -1;
    if (n < 0)
        return -1;
    *end = to;
    return errno ? INT64_MAX : n;
}

/* Parses a Range "bytes=2-5", "bytes=2-" or "bytes=-4" for a file of `size` bytes. If the header
 * Range has several ranges, another unit or an invalid range, returns ALL, and the reply is the
 * complete file. */
static asked read_range(const char *range, int64_t size, int64_t *from, int64_t *n)
{
    const char *at = range + 6;
    int64_t     last = INT64_MAX;
    if (strncasecmp(range, "bytes=", 6) != 0)
        return ALL;
    if (*at == '-') {
        int64_t tail = read_digits(at + 1, &at);
        if (tail < 0 || *at)
            return ALL;
        *from = tail < size ? size - tail : 0;
        *n = size - *from;
        return tail && size ? PART : NOTHING;
    }
    if ((*from = read_digits(at, &at)) < 0 || *at++ != '-' ||
        (*at && (last = read_digits(at, &at)) < 0) || *at || last < *from)
        return ALL;
    if (*from >= size)
        return NOTHING;
    *n = (last < size ? last + 1 : size) - *from;
    return PART;
}

static void refuse_range(xd_http_call *c, int64_t size)
{
    char text[40];
    xd_reply_error(c, 416, NULL, NULL, "the file has %lld bytes, none of them in this range",
                   (long long)size);
    snprintf(text, sizeof text, "bytes */%lld", (long long)size);
    xd_reply_header(c, "Content-Range", text);
}

/* Replies with the requested range of a file; browsers request ranges of videos. If the request has
 * an If-Range with another ETag, replies with the complete file. */
static void reply_part(xd_http_call *c, int fd, const struct stat *st, const char *type)
{
    const char *range = xd_http_header(c, "Range"), *same = xd_http_header(c, "If-Range");
    char        tag[48], part[80];
    int64_t     size = (int64_t)st->st_size, from = 0, n = size;
    snprintf(tag, sizeof tag, "\"%llx-%llx\"",
             (unsigned long long)st->st_mtim.tv_sec * 1000000000 +
                 (unsigned long long)st->st_mtim.tv_nsec,
             (unsigned long long)size);
    int   whole = !range || strcmp(c->method, "GET") != 0 || (same && strcmp(same, tag) != 0);
    asked what = whole ? ALL : read_range(range, size, &from, &n);
    if (what == NOTHING) {
        close(fd);
        refuse_range(c, size);
        return;
    }
    if (what == ALL)
        from = 0, n = size;
    set_reply(c, what == PART ? 206 : 200, type, n,
              MHD_create_response_from_fd_at_offset64((uint64_t)n, fd, (uint64_t)from));
    xd_reply_header(c, "Accept-Ranges", "bytes");
    xd_reply_header(c, "ETag", tag);
    if (what != PART)
        return;
    snprintf(part, sizeof part, "bytes %lld-%lld/%lld", (long long)from, (long long)(from + n - 1),
             (long long)size);
    xd_reply_header(c, "Content-Range", part);
}

void xd_reply_file(xd_http_call *c, const char *path, const char *type)
{
    struct stat st;
    int         fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        if (fd >= 0)
            close(fd);
        xd_reply_error(c, 404, NULL, NULL, "the file has expired or was deleted");
        return;
    }
    reply_part(c, fd, &st, type);
}

static const char *type_of(unsigned status)
{
    static const struct {
        unsigned    status;
        const char *type;
    } types[] = {
        { 401, "authentication_error" },
        { 403, "permission_error" },
        { 404, "not_found_error" },
        { 429, "rate_limit_error" },
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == status)
            return types[i].type;
    return status < 500 ? "invalid_request_error" : "server_error";
}

static void add_or_null(xd_text_buf *b, const char *text)
{
    if (text)
        xd_buf_json_string(b, text);
    else
        xd_buf_add(b, "null");
}

/* Errors of all HTTP interfaces are JSON with the same members: clients of OpenAI's interface read
 * "error", clients of A1111 read "detail". */
void xd_reply_error(xd_http_call *c, unsigned status, const char *param, const char *code,
                    const char *fmt, ...)
{
    char        text[4608];
    xd_text_buf b = { 0 };
    va_list     ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    xd_buf_add(&b, "{\"error\":{\"message\":");
    xd_buf_json_string(&b, text);
    xd_buf_add(&b, ",\"type\":\"%s\",\"param\":", type_of(status));
    add_or_null(&b, param);
    xd_buf_add(&b, ",\"code\":");
    add_or_null(&b, code);
    xd_buf_add(&b, "},\"detail\":");
    xd_buf_json_string(&b, text);
    xd_buf_add(&b, "}\n");
    xd_reply_json(c, status, &b);
}

/* ---- events ---------------------------------------------------------------------------------- */

typedef struct events {
    int           (*more)(void *cookie, xd_text_buf *b);
    void          (*done)(void *cookie);
    void         *cookie;
    xd_http_call *call; /* HTTP call, which is valid until the reply is sent */
    xd_text_buf   b;    /* text of the server-sent events; its first `sent` bytes have been
                                   sent */
    size_t        sent;
    int           over;
} events;

static ssize_t read_events(void *cls, uint64_t pos, char *to, size_t size)
{
    events *v = cls;
    (void)pos;
    while (v->sent == v->b.len && !v->over) {
        v->b.len = v->sent = 0;
        v->over = !v->more(v->cookie, &v->b);
        if (v->b.failed)
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size_t n = v->b.len - v->sent;
    if (!n)
        return MHD_CONTENT_READER_END_OF_STREAM;
    n = n < size ? n : size;
    memcpy(to, v->b.p + v->sent, n);
    v->sent += n;
    v->call->sent += (int64_t)n;
    return (ssize_t)n;
}

static void free_events(void *cls)
{
    events *v = cls;
    v->done(v->cookie);
    xd_buf_free(&v->b);
    free(v);
}

void xd_reply_events(xd_http_call *c, int (*more)(void *cookie, xd_text_buf *b),
                     void (*done)(void *cookie), void *cookie)
{
    events              *v = calloc(1, sizeof *v);
    struct MHD_Response *r = v ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 64 << 10,
                                                                   read_events, v, free_events)
                               : NULL;
    if (!r) {
        free(v);
        done(cookie);
        xd_reply_error(c, 503, NULL, NULL, "no memory for a stream of events");
        return;
    }
    *v = (events){ .more = more, .done = done, .cookie = cookie, .call = c };
    c->streams = 1;
    set_reply(c, 200, "text/event-stream; charset=utf-8", 0, r);
    xd_reply_header(c, "Cache-Control", "no-store");
}
