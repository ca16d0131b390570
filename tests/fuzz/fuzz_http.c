/* fuzz_http.c - any bytes as what a client sends over its connection: heads, chunks, forms.
 *
 * The first byte chooses a server that requires a key, or one that does not. libmicrohttpd is the
 * real one. Besides not crashing: what comes back is HTTP, and no body longer than the limit and
 * no call without the key reaches a handler. The connection ends. */
#define _GNU_SOURCE /* memmem */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "serve/http.h"

enum { MOST_BODY = 4000, PATIENCE_S = 5, END_MS = 15000 };
enum { FROM_ONE = 10000, ADDRESSES = 250 }; /* connections from an address */

static xd_http       *servers[2];
static const uint8_t *bytes;
static size_t         nbytes;

static void add_call(const xd_http_call *c)
{
    xd_text_buf b = { 0 };
    size_t      total = c->bytes;
    const char *limit = xd_http_query(c, "limit"), *range = xd_http_header(c, "Range");
    MUST(c->owner[0] == 0 || memmem(bytes, nbytes, "secret", 6) ||
         memmem(bytes, nbytes, "asic", 4) || memmem(bytes, nbytes, "ASIC", 4));
    xd_buf_add(&b, "{\"arg\":");
    xd_buf_json_string(&b, c->arg);
    for (int i = 0; i < c->nparts; i++) {
        MUST(c->parts[i].name && c->parts[i].data && !c->parts[i].data[c->parts[i].bytes]);
        xd_buf_add(&b, ",\"part\":");
        xd_buf_json_string(&b, c->parts[i].name);
        total += c->parts[i].bytes;
    }
    xd_buf_add(&b, ",\"limit\":%d,\"range\":%d,\"json\":%d}", limit != NULL, range != NULL,
               c->json != NULL);
    MUST(!b.failed && total <= MOST_BODY);
    xd_reply_json((xd_http_call *)c, 200, &b);
}

static void answer(xd_http_call *c)
{
    add_call(c);
}

static const xd_route routes[] = {
    { "POST", "/post", answer, 0 },
    { "GET", "/get/*/more", answer, 0 },
    { "GET", "/get/*", answer, 0 },
    { "DELETE", "/get/*", answer, 0 },
    { .method = NULL },
};

static void begin(void)
{
    static const char *const keys[] = { "secret", NULL }, *const origins[] = { "http://a", NULL };
    xd_err e = { 0 };
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 2; i++)
        MUST(xd_http_start(&servers[i],
                           &(xd_http_args){ .host = "127.0.0.1",
                                            .routes = routes,
                                            .keys = i ? keys : NULL,
                                            .origins = origins,
                                            .max_body = MOST_BODY,
                                            .connections = 64,
                                            .timeout_s = PATIENCE_S },
                           &e) == XD_OK);
}

/* The side that closes first keeps its port for a minute, and an address has some 28,000 of them:
 * who connects takes one address after the other. */
static void choose_source(int fd)
{
    static unsigned    n;
    uint32_t           host = INADDR_LOOPBACK + n++ / FROM_ONE % ADDRESSES;
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(host) };
    int                one = 1;
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    MUST(bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
}

static int connect_to(const xd_http *h)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)xd_http_port(h)),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int                fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(fd >= 0);
    choose_source(fd);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0) { /* libFuzzer's clock, or worse */
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        int           why = errno;
        socklen_t     n = sizeof why;
        while (why == EINTR && poll(&p, 1, END_MS) < 0 && errno == EINTR)
            continue;
        MUST(why == EINTR && getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n) == 0 && why == 0);
    }
    return fd;
}

/* Sends everything, then reads to the end; both sides may close before. */
static void talk(int fd)
{
    char   got[4096];
    size_t sent = 0, have = 0;
    while (sent < nbytes) {
        ssize_t n = send(fd, bytes + sent, nbytes - sent, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    shutdown(fd, SHUT_WR);
    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int           ready = poll(&p, 1, END_MS);
        if (ready < 0 && errno == EINTR) /* libFuzzer's clock */
            continue;
        MUST(ready == 1);
        ssize_t n = recv(fd, got + have, sizeof got - have, 0);
        if (n <= 0)
            break;
        have = have ? have : (size_t)n; /* only the beginning is looked at */
    }
    MUST(have < 9 || memcmp(got, "HTTP/1.", 7) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!servers[0])
        begin();
    if (!size)
        return 0;
    bytes = data + 1;
    nbytes = size - 1;
    int fd = connect_to(servers[data[0] & 1]);
    talk(fd);
    close(fd);
    return 0;
}
