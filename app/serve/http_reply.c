/* http_reply.c - what requests have, and replies */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <microhttpd.h>

#include "serve/http.h"

/* ---- what a request has --------------------------------------------------------------------- */

const char *xd_http_query(const xd_http_call *c, const char *name)
{
    return MHD_lookup_connection_value(c->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *xd_http_header(const xd_http_call *c, const char *name)
{
    return MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, name);
}

int xd_http_gone(const xd_http_call *c)
{
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct pollfd p = { .fd = i->connect_fd, .events = POLLIN };
    char          byte;
    if (poll(&p, 1, 0) <= 0)
        return 0;
    if (p.revents & (POLLHUP | POLLERR | POLLNVAL))
        return 1;
    return recv(i->connect_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* ---- replies --------------------------------------------------------------------------------- */

static void set_reply(xd_http_call *c, unsigned status, const char *type, struct MHD_Response *r)
{
    if (c->reply)
        MHD_destroy_response(c->reply);
    c->reply = r;
    c->status = status;
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
    set_reply(c, status, type, MHD_create_response_from_buffer(bytes, (void *)text,
                                                               MHD_RESPMEM_MUST_COPY));
}

void xd_reply_json(xd_http_call *c, unsigned status, xd_text_buf *b)
{
    if (b->failed)
        set_reply(c, 503, "text/plain", NULL);
    else
        set_reply(c, status, "application/json",
                  MHD_create_response_from_buffer(b->len, b->p, MHD_RESPMEM_MUST_FREE));
    if (b->failed)
        xd_buf_free(b);
    *b = (xd_text_buf){ 0 };
}

void xd_reply_file(xd_http_call *c, const char *path, const char *type)
{
    struct stat st;
    int         fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        if (fd >= 0)
            close(fd);
        xd_reply_error(c, 404, NULL, NULL, "the file is not kept any more");
        return;
    }
    set_reply(c, 200, type, MHD_create_response_from_fd64((uint64_t)st.st_size, fd));
}

static const char *type_of(unsigned status)
{
    static const struct { unsigned status; const char *type; } types[] = {
        { 401, "authentication_error" }, { 403, "permission_error" }, { 404, "not_found_error" },
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

/* One form for all: clients of OpenAI read "error", those of A1111 "detail". */
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
    int       (*more)(void *cookie, xd_text_buf *b);
    void      (*done)(void *cookie);
    void       *cookie;
    xd_text_buf b;              /* of it `sent` bytes are on their way                          */
    size_t      sent;
    int         over;
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
    events *v = calloc(1, sizeof *v);
    struct MHD_Response *r =
        v ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 64 << 10, read_events, v,
                                              free_events) : NULL;
    if (!r) {
        free(v);
        done(cookie);
        xd_reply_error(c, 503, NULL, NULL, "no memory for a stream of events");
        return;
    }
    *v = (events){ .more = more, .done = done, .cookie = cookie };
    c->streams = 1;
    set_reply(c, 200, "text/event-stream; charset=utf-8", r);
    xd_reply_header(c, "Cache-Control", "no-store");
}
