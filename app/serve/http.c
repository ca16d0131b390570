/* http.c - handles HTTP connections, finds the route of a request, and refuses requests without
 * access; see http.h */
#include "serve/http.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <microhttpd.h>

#include "base/clock.h"
#include "serve/access_log.h"
#include "serve/http_body.h"
#include "serve/http_front.h"
#include "serve/http_head.h"
#include "serve/http_socket.h"

/* IDLE_S: seconds that an idle connection is kept open. STACK: bytes of the stack of a connection's
 * thread. OWNER: number of digits of the hash of an API key. CLOSING: number of connections that
 * are accepted above the limit of connections, in order to close an idle connection. */
enum { IDLE_S = 30, STACK = 512 << 10, OWNER = 16, CLOSING = 64 };

/* From version 1.0 on, libmicrohttpd itself refuses line ends other than CR LF. */
#if MHD_VERSION >= 0x01000000
#define STRICTNESS MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1
#else
#define STRICTNESS MHD_OPTION_STRICT_FOR_CLIENT, 0
#endif

typedef struct client { /* a client's connection */
    int            fd;
    double         since;    /* time when the connection began to wait for a request; 0: a
                                   request was received */
    int            has_head; /* 1: the head of the connection's current request was received */
    int            shut;
    int            upgraded; /* 1: the connection is a WebSocket, and sends no more requests */
    struct client *next;
} client;

struct xd_http {
    xd_http_args       args;
    struct MHD_Daemon *daemon;
    xd_front          *front;
    int                port, reaping;
    pthread_t          reaper;
    pthread_mutex_t    lock; /* protects the list of clients */
    client            *clients;
    xd_body_pool       pool;
    xd_socket_pool     sockets;
    atomic_int         stop;
    atomic_llong       answered[6];
};

/* ---- closing of connections that take too long ----------------------------------------------- */

static client *client_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return i ? i->socket_context : NULL;
}

static void set_since(xd_http *h, client *k, double since)
{
    pthread_mutex_lock(&h->lock);
    if (k && !k->upgraded)
        k->since = since, k->has_head = 0;
    pthread_mutex_unlock(&h->lock);
}

static void set_has_head(xd_http *h, client *k)
{
    pthread_mutex_lock(&h->lock);
    if (k)
        k->has_head = 1;
    pthread_mutex_unlock(&h->lock);
}

static void set_upgraded(xd_http *h, client *k)
{
    pthread_mutex_lock(&h->lock);
    k->upgraded = 1;
    k->since = 0;
    pthread_mutex_unlock(&h->lock);
}

static void shut(client *k)
{
    k->shut = 1;
    shutdown(k->fd, SHUT_RDWR);
}

/* If there are too many connections, closes the connection that has waited longest without the head
 * of a request. If all other connections have received the head of a request, closes the newest
 * connection. The caller holds the lock of the list of clients. */
static void close_idlest(xd_http *h)
{
    client *idlest = NULL;
    int     open = 0;
    for (client *k = h->clients; k; k = k->next) {
        open += !k->shut;
        if (!k->shut && !k->has_head && k->since > 0 && (!idlest || k->since < idlest->since))
            idlest = k;
    }
    if (open > h->args.connections && idlest)
        shut(idlest);
}

static void on_connection(void *cls, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    xd_http *h = cls;
    pthread_mutex_lock(&h->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *i =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        client *k = calloc(1, sizeof *k);
        if (k) {
            *k = (client){ .fd = i->connect_fd, .since = xd_now_s(), .next = h->clients };
            h->clients = k;
            close_idlest(h);
        }
        *context = k;
    } else if (*context) {
        client **at = &h->clients;
        while (*at && *at != *context)
            at = &(*at)->next;
        if (*at)
            *at = (*at)->next;
        free(*context);
        *context = NULL;
    }
    pthread_mutex_unlock(&h->lock);
}

/* Runs in a thread: closes connections whose request takes too long to arrive, even if bytes still
 * arrive. */
static void *reap(void *arg)
{
    xd_http *h = arg;
    while (!atomic_load(&h->stop)) {
        double now = xd_now_s();
        pthread_mutex_lock(&h->lock);
        for (client *k = h->clients; k; k = k->next)
            if (k->since > 0 && now - k->since > h->args.timeout_s)
                shut(k);
        pthread_mutex_unlock(&h->lock);
        nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
    }
    return NULL;
}

/* ---- access control by API keys and headers -------------------------------------------------- */

/* Returns nonzero if the two API keys are equal. The time of the comparison depends only on the
 * length of the client's key `given`, so that clients cannot guess the server's key from the
 * time. */
static int same_secret(const char *given, const char *key)
{
    size_t        n = strlen(given), k = strlen(key);
    unsigned char differs = n != k;
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)(given[i] ^ key[k ? i % k : 0]);
    return !differs;
}

/* Writes the hash (FNV-1a) of an API key to `owner`. Tasks are stored in files, which contain the
 * hash of the API key and not the key. */
static void name_owner(const char *key, char owner[OWNER + 1])
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 0x100000001b3u;
    snprintf(owner, OWNER + 1, "%016llx", (unsigned long long)h);
}

/* Returns nonzero if the request has a valid API key, as "Bearer KEY", in X-API-Key, or as the
 * password of basic authentication. */
static int has_key(xd_http_call *c, const xd_http_args *a, char owner[OWNER + 1])
{
    const char *header = xd_http_header(c, "Authorization"), *given = NULL;
    char       *password = NULL, *user = NULL;
    int         found = 0;
    if (header && strncasecmp(header, "Bearer ", 7) == 0)
        given = header + 7 + strspn(header + 7, " ");
    else if (header)
        user = MHD_basic_auth_get_username_password(c->connection, &password), given = password;
    if (!given)
        given = xd_http_header(c, "X-API-Key");
    for (int i = 0; given && a->keys[i]; i++)
        if (same_secret(given, a->keys[i]) && !found) {
            found = 1;
            name_owner(a->keys[i], owner);
        }
    MHD_free(user);
    MHD_free(password);
    return found;
}

static int is_listed(const char *word, const char *const *list)
{
    for (; list && *list; list++)
        if (strcmp(*list, word) == 0 || strcmp(*list, "*") == 0)
            return 1;
    return 0;
}

/* Returns nonzero if a browser has sent the request on behalf of a web page of another site. */
static int is_cross_origin(const xd_http_call *c, const xd_http *h)
{
    const char *origin = xd_http_header(c, "Origin"), *host = xd_http_header(c, "Host");
    const char *at = origin ? strstr(origin, "://") : NULL;
    if (!origin || is_listed(origin, h->args.origins))
        return 0;
    return !at || !host || strcmp(at + 3, host) != 0;
}

/* Returns nonzero if the Host header is not trusted. If the server has no API keys, Host must be
 * localhost or a numeric address, because a web site could point its own name to this host (DNS
 * rebinding). */
static int is_untrusted_host(const xd_http_call *c, const xd_http *h)
{
    const char *host = xd_http_header(c, "Host");
    char        name[256];
    if (h->args.keys || !host)
        return 0;
    snprintf(name, sizeof name, "%s", host);
    char *colon = strrchr(name, ':');
    if (colon && !strchr(colon, ']'))
        *colon = 0;
    struct in6_addr to;
    size_t          n = strlen(name);
    if (name[0] == '[' && name[n - 1] == ']') {
        name[n - 1] = 0;
        return inet_pton(AF_INET6, name + 1, &to) != 1;
    }
    return strcmp(name, "localhost") != 0 && inet_pton(AF_INET, name, &to) != 1;
}

/* ---- routes ---------------------------------------------------------------------------------- */

#define ALIAS "/api" /* the path below which the routes api_routes exist as well */

static int matches(const char *pattern, const char *path, char arg[64])
{
    const char *star = strchr(pattern, '*');
    arg[0] = 0;
    if (!star)
        return strcmp(pattern, path) == 0;
    size_t before = (size_t)(star - pattern);
    if (strncmp(pattern, path, before) != 0)
        return 0;
    size_t n = star[1] ? strcspn(path + before, "/") : strlen(path + before);
    if (!n || n >= 64 || strcmp(star + 1, path + before + n) != 0)
        return 0;
    snprintf(arg, 64, "%.*s", (int)n, path + before);
    return 1;
}

/* Returns the route of a table for a path and the method of a call. If no route matches both path
 * and method, appends the methods that the path supports to `methods`, and returns NULL. */
static const xd_route *find_in_table(xd_http_call *c, const char *path, const xd_route *r,
                                     char *methods, size_t size)
{
    int head = strcmp(c->method, "HEAD") == 0;
    for (; r && r->method; r++) {
        if (!matches(r->path, path, c->arg))
            continue;
        if (strcmp(r->method, c->method) == 0 || (head && strcmp(r->method, "GET") == 0))
            return r;
        size_t n = strlen(methods);
        snprintf(methods + n, size - n, "%s%s", n ? ", " : "", r->method);
    }
    return NULL;
}

static const xd_route *find_route(xd_http_call *c, const xd_http_args *a, char *methods,
                                  size_t size)
{
    size_t n = strlen(ALIAS);
    int    below = strncmp(c->path, ALIAS "/", n + 1) == 0;
    methods[0] = 0;
    const xd_route *r = find_in_table(c, c->path, a->routes, methods, size);
    return r ? r : find_in_table(c, c->path + (below ? n : 0), a->api_routes, methods, size);
}

/* Returns nonzero if the text is a list of header names separated by commas. */
static int is_header_list(const char *text)
{
    for (const char *p = text; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("-_ ,", *p))
            return 0;
    return *text != 0;
}

/* Replies to a CORS preflight request: allows the methods of the path and all requested headers,
 * because OpenAI's clients send headers of their own. */
static void allow_preflight(xd_http_call *c, const char *methods)
{
    const char *asked = xd_http_header(c, "Access-Control-Request-Headers");
    xd_reply_header(c, "Access-Control-Allow-Methods", *methods ? methods : "GET, POST, DELETE");
    xd_reply_header(c, "Access-Control-Allow-Headers",
                    asked && is_header_list(asked) ? asked
                                                   : "Authorization, Content-Type, X-API-Key");
    xd_reply_header(c, "Access-Control-Max-Age", "600");
    if (xd_http_header(c, "Access-Control-Request-Private-Network"))
        xd_reply_header(c, "Access-Control-Allow-Private-Network", "true");
}

/* Adds the CORS headers to replies for the origins of --cors. The header Vary makes caches store a
 * reply per origin. */
static void allow_origin(xd_http_call *c, const xd_http *h, const char *methods)
{
    const char *origin = xd_http_header(c, "Origin");
    int         has_head = strcmp(c->method, "OPTIONS") == 0;
    if (!h->args.origins || !h->args.origins[0])
        return;
    xd_reply_header(c, "Vary",
                    has_head ? "Origin, Access-Control-Request-Method, "
                               "Access-Control-Request-Headers"
                             : "Origin");
    if (!origin || !is_listed(origin, h->args.origins))
        return;
    xd_reply_header(c, "Access-Control-Allow-Origin", origin);
    xd_reply_header(c, "Access-Control-Expose-Headers",
                    "Retry-After, X-Request-Id, X-Seed, X-Video-Id, openai-poll-after-ms");
    if (has_head)
        allow_preflight(c, methods);
}

static void refuse_key(xd_http_call *c)
{
    xd_reply_error(c, 401, NULL, "invalid_api_key",
                   "this server requires a key: send it as \"Authorization: Bearer KEY\"");
    xd_reply_header(c, "WWW-Authenticate", "Basic realm=\"xdit\"");
}

typedef struct head_lines {
    int count[3]; /* number of headers Content-Length, Transfer-Encoding, Host */
    int invalid;  /* 1: the name or value of a header contains invalid bytes */
    int coded;    /* 1: the request has a transfer coding other than "chunked" */
} head_lines;

static enum MHD_Result check_line(void *cls, enum MHD_ValueKind kind, const char *name,
                                  size_t name_size, const char *value, size_t value_size)
{
    static const char *const once[] = { "Content-Length", "Transfer-Encoding", "Host" };
    head_lines              *l = cls;
    (void)kind;
    for (size_t i = 0; i < sizeof once / sizeof *once; i++)
        l->count[i] += strcasecmp(name, once[i]) == 0;
    for (size_t i = 0; i < name_size; i++)
        l->invalid |= !isalnum((unsigned char)name[i]) && !strchr("!#$%&'*+-.^_`|~", name[i]);
    for (size_t i = 0; i < value_size; i++)
        l->invalid |= ((unsigned char)value[i] < ' ' && value[i] != '\t') || value[i] == 0x7f;
    l->coded |= strcasecmp(name, "Transfer-Encoding") == 0 &&
                (!value || strcasecmp(value, "chunked") != 0);
    return MHD_YES;
}

/* Returns nonzero if a request has headers that a proxy could interpret differently. If a request
 * has two lines with the same header, libmicrohttpd uses the first line. A proxy may use the second
 * line of the header and find another end of the request. HTTP/1.1 requires a header Host. */
static int is_ambiguous(const head_lines *l, const char *version)
{
    return l->invalid || l->count[0] + l->count[1] > 1 || l->count[2] > 1 ||
           (!l->count[2] && strcmp(version, "HTTP/1.1") == 0);
}

/* Refuses a request whose end is ambiguous, and returns 1. */
static int refuse_ambiguous(xd_http_call *c)
{
    head_lines l = { { 0 }, 0, 0 };
    MHD_get_connection_values_n(c->connection, MHD_HEADER_KIND, check_line, &l);
    if (is_ambiguous(&l, c->version))
        xd_reply_error(c, 400, NULL, NULL, "%s", xd_head_sentence(400));
    else if (l.coded)
        xd_reply_error(c, 501, NULL, NULL, "%s", xd_head_sentence(501));
    xd_reply_header(c, "Connection", "close");
    return c->reply != NULL;
}

/* Refuses a request whose head is not acceptable, and returns 1. */
static int refuse_head(xd_http_call *c, const xd_http *h, const xd_route *r, const char *methods)
{
    const char *length = xd_http_header(c, "Content-Length");
    if (is_cross_origin(c, h) || is_untrusted_host(c, h))
        xd_reply_error(c, 403, NULL, "forbidden",
                       "requests from web pages of other sites are "
                       "refused: start the server with --cors ORIGIN to accept them");
    else if (!r && strcmp(c->method, "OPTIONS") == 0 && methods[0])
        xd_reply_text(c, 204, "text/plain", "", 0);
    else if (!r && methods[0])
        xd_reply_error(c, 405, NULL, NULL, "%.80s accepts %s, not %.20s", c->path, methods,
                       c->method);
    else if (!r)
        xd_reply_error(c, 404, NULL, NULL, "there is nothing at %.200s", c->path);
    else if (length && strtoull(length, NULL, 10) > h->args.max_body)
        xd_reply_error(c, 413, NULL, NULL,
                       "the body has %.20s bytes; the limit is %zu "
                       "(--max_body)",
                       length, h->args.max_body);
    return c->reply != NULL;
}

/* ---- a request ------------------------------------------------------------------------------- */

/* Sends the reply to a call. methods: the methods that the path supports; used if the request's
 * method is not one of them, and for CORS preflight requests. */
static enum MHD_Result send_reply(xd_http *h, xd_http_call *c, const char *methods)
{
    if (!c->reply)
        xd_reply_error(c, 500, NULL, NULL, "the server has no reply to this request");
    if (!c->reply) /* no memory was left to create the reply */
        return MHD_NO;
    xd_reply_header(c, "X-Content-Type-Options", "nosniff");
    if (c->status == 405 || c->status == 204)
        xd_reply_header(c, "Allow", methods);
    allow_origin(c, h, methods);
    xd_reply_header(c, "X-Request-Id", c->id);
    atomic_fetch_add(&h->answered[c->status / 100 % 6], 1);
    enum MHD_Result r = MHD_queue_response(c->connection, c->status, c->reply);
    MHD_destroy_response(c->reply);
    c->reply = NULL;
    return r;
}

/* Sets the id of a request: the header X-Request-Id if it is 1 to 64 letters, digits and -_.:, or
 * else a random number. */
static void set_id(xd_http_call *c)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:";
    const char       *given = xd_http_header(c, "X-Request-Id");
    size_t            n = given ? strspn(given, good) : 0;
    uint64_t          random[2] = { 0 };
    if (n && n < sizeof c->id && !given[n]) {
        memcpy(c->id, given, n);
        return;
    }
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        random[0] = (uint64_t)(xd_now_s() * 1e9);
    snprintf(c->id, sizeof c->id, "%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
}

/* Sets the trace id of a request from the header traceparent, "00-" TRACE "-" SPAN "-" FLAGS, where
 * TRACE has 32 hexadecimal digits (https://www.w3.org/TR/trace-context). */
static void set_trace(xd_http_call *c)
{
    const char *given = xd_http_header(c, "traceparent");
    if (given && strspn(given, "0123456789abcdef") == 2 && given[2] == '-' &&
        strspn(given + 3, "0123456789abcdef") == 32 && given[35] == '-')
        memcpy(c->trace, given + 3, 32);
}

typedef struct session { /* a request that is being received */
    xd_http_call    call;
    xd_body         body;
    const xd_route *route;
    char            methods[64], owner[OWNER + 1];
    double          began; /* time when the request's head was received */
} session;

static session *begin_request(xd_http *h, struct MHD_Connection *c, const char *url,
                              const char *method)
{
    session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->call = (xd_http_call){ .connection = c,
                              .server = h->args.server,
                              .method = method,
                              .path = url,
                              .owner = s->owner,
                              .http = h };
    set_id(&s->call);
    set_trace(&s->call);
    s->began = xd_now_s();
    s->route = find_route(&s->call, &h->args, s->methods, sizeof s->methods);
    return s;
}

static void handle(session *s)
{
    xd_http_call *c = &s->call;
    MHD_set_connection_option(c->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    if (xd_body_end(&s->body, c))
        s->route->handle(c);
    if (!c->streams)
        MHD_set_connection_option(c->connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)IDLE_S);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **context)
{
    xd_http *h = cls;
    session *s = *context;
    if (!s) { /* libmicrohttpd's first callback for a request, after the request's head was
                 received */
        set_has_head(h, client_of(connection));
        s = *context = begin_request(h, connection, url, method);
        if (!s)
            return MHD_NO;
        s->call.version = version;
        if (refuse_ambiguous(&s->call))
            return send_reply(h, &s->call, s->methods);
        if (refuse_head(&s->call, h, s->route, s->methods))
            return send_reply(h, &s->call, s->methods);
        if (!s->route->open && h->args.keys && !has_key(&s->call, &h->args, s->owner)) {
            refuse_key(&s->call);
            return send_reply(h, &s->call, s->methods);
        }
        xd_body_begin(&s->body, &s->call, h->args.max_body, &h->pool);
        return MHD_YES;
    }
    if (*size) {
        xd_body_add(&s->body, data, *size);
        *size = 0;
        return MHD_YES;
    }
    set_since(h, client_of(connection), 0);
    handle(s);
    return send_reply(h, &s->call, s->methods);
}

/* Called by libmicrohttpd after the reply with status 101 was sent. */
static void on_upgrade(void *cls, struct MHD_Connection *connection, void *context,
                       const char *early, size_t nearly, MHD_socket fd,
                       struct MHD_UpgradeResponseHandle *handle)
{
    session   *s = context;
    xd_socket *socket = s->call.socket;
    (void)cls, (void)connection;
    s->call.socket = NULL;
    xd_socket_begin(socket, fd, early, nearly, handle);
}

xd_socket_pool *xd_http_upgrade(xd_http_call *c)
{
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct MHD_Response *r = MHD_create_response_for_upgrade(on_upgrade, NULL);
    client              *k = client_of(c->connection);
    if (!r)
        return NULL;
    if (k)
        set_upgraded(c->http, k);
    xd_front_end_http(c->http->front, i->connect_fd);
    c->reply = r;
    c->status = 101;
    c->streams = 1;
    return &c->http->sockets;
}

static void log_request(const xd_http *h, const session *s)
{
    const xd_http_call             *c = &s->call;
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    xd_access_log_add(h->args.log, &(xd_access){ .from = i ? i->client_addr : NULL,
                                                 .owner = s->owner,
                                                 .method = c->method,
                                                 .path = c->path,
                                                 .version = c->version,
                                                 .status = c->status,
                                                 .bytes = c->sent,
                                                 .seconds = xd_now_s() - s->began,
                                                 .task = c->task,
                                                 .id = c->id,
                                                 .trace = c->trace });
}

static void on_completed(void *cls, struct MHD_Connection *c, void **context,
                         enum MHD_RequestTerminationCode why)
{
    session *s = *context;
    (void)why;
    /* the connection now waits for the head of its next request */
    set_since(cls, client_of(c), xd_now_s());
    if (!s)
        return;
    log_request(cls, s);
    xd_socket_free(s->call.socket);
    xd_body_free(&s->body, &s->call);
    free(s);
    *context = NULL;
}

/* ---- starting and stopping the server -------------------------------------------------------- */

/* Starts libmicrohttpd. libmicrohttpd is not started in strict mode, so that is_ambiguous, and not
 * libmicrohttpd, refuses a request without a header Host. In strict mode libmicrohttpd 0.9.75
 * writes the head of the reply to a request without Host twice. */
static struct MHD_Daemon *start_daemon(xd_http *h)
{
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                     MHD_USE_POLL | MHD_USE_ITC | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_UPGRADE |
                     (h->args.tls_cert ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {
        { MHD_OPTION_HTTPS_MEM_CERT, 0, h->args.tls_cert },
        { MHD_OPTION_HTTPS_MEM_KEY, 0, h->args.tls_key },
        { MHD_OPTION_HTTPS_PRIORITIES, 0, (char *)"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2" },
        { MHD_OPTION_END, 0, NULL },
    };
    return MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, h, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(h->args.connections + 2 * CLOSING), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_S, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)32 << 10, STRICTNESS,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        h, MHD_OPTION_ARRAY, h->args.tls_cert ? tls : tls + 3, MHD_OPTION_END);
}

/* Passes a connection to libmicrohttpd, which owns the socket even if it refuses the connection. */
static int add_socket(void *cookie, int fd, const struct sockaddr_storage *from)
{
    xd_http *h = cookie;
    return MHD_add_connection(h->daemon, fd, (const struct sockaddr *)from, sizeof *from) ==
           MHD_YES;
}

xd_status xd_http_start(xd_http **out, const xd_http_args *a, xd_err *e)
{
    xd_http *h = *out = calloc(1, sizeof *h);
    if (!h)
        return xd_fail(e, XD_ENOMEM, "no memory for a server");
    h->args = *a;
    h->pool.max = a->max_bodies;
    pthread_mutex_init(&h->lock, NULL);
    xd_socket_pool_open(&h->sockets);
    xd_status s = xd_front_open(&h->front,
                                &(xd_front_args){ .host = a->host,
                                                  .port = a->port,
                                                  .connections = a->connections + CLOSING,
                                                  .encrypted = a->tls_cert != NULL,
                                                  .timeout_s = a->timeout_s },
                                e);
    if (s == XD_OK && !(h->daemon = start_daemon(h)))
        s = xd_fail(e, XD_EIO,
                    a->tls_cert ? "cannot serve HTTPS: --tls_cert and --tls_key must be "
                                  "a certificate in PEM format and its key"
                                : "libmicrohttpd cannot be started");
    if (s == XD_OK)
        s = xd_front_start(h->front, add_socket, h, e);
    if (s != XD_OK) {
        xd_http_stop(out, 0);
        return s;
    }
    h->args.tls_cert = h->args.tls_key = NULL; /* the contents of the TLS files are no longer
                                                   needed */
    h->port = xd_front_port(h->front);
    h->reaping = pthread_create(&h->reaper, NULL, reap, h) == 0;
    return XD_OK;
}

int xd_http_port(const xd_http *h)
{
    return h->port;
}

int64_t xd_http_count(const xd_http *h, int digit)
{
    return atomic_load(&h->answered[digit]);
}

size_t xd_http_body_bytes(const xd_http *h)
{
    return atomic_load(&h->pool.bytes);
}

void xd_http_stop(xd_http **out, double seconds)
{
    xd_http *h = *out;
    double   until = xd_now_s() + seconds;
    if (!h)
        return;
    if (h->daemon) {
        xd_front_stop_accepting(h->front);
        xd_socket_pool_end(&h->sockets);
        while (
            xd_now_s() < until &&
            MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections >
                0)
            nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
        MHD_stop_daemon(h->daemon);
    }
    xd_front_close(&h->front);
    atomic_store(&h->stop, 1);
    if (h->reaping)
        pthread_join(h->reaper, NULL);
    xd_socket_pool_close(&h->sockets);
    pthread_mutex_destroy(&h->lock);
    free(h);
    *out = NULL;
}
