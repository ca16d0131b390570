/* fetch.c - fetches images by URL with libcurl */
#include "serve/fetch.h"

#ifdef XD_WITH_CURL

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"

enum { REDIRECTS = 3, MAX_URL = 2048 };

typedef struct transfer {
    const xd_fetch_rules *f;
    int                   (*is_gone)(void *cookie);
    void                 *cookie;
    char                 *data;
    size_t                bytes, cap;
    int                   named; /* 1: the command line (--allow_url) names the host */
    int                   private, too_long, no_memory;
} transfer;

xd_status xd_fetch_begin(xd_err *e)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
        return XD_OK;
    return xd_fail(e, XD_EIO, "libcurl cannot be initialized");
}

void xd_fetch_end(void)
{
    curl_global_cleanup();
}

/* ---- callbacks of libcurl -------------------------------------------------------------------- */

/* Called by libcurl with the resolved address of every connection. Refuses private addresses,
 * unless the command line names the host. */
static curl_socket_t open_socket(void *cookie, curlsocktype purpose, struct curl_sockaddr *at)
{
    transfer *t = cookie;
    (void)purpose;
    if (t->named || xd_address_is_public(&at->addr))
        return socket(at->family, at->socktype | SOCK_CLOEXEC, at->protocol);
    t->private = 1;
    return CURL_SOCKET_BAD;
}

static size_t add_bytes(char *data, size_t size, size_t n, void *cookie)
{
    transfer *t = cookie;
    n *= size;
    if (n > t->f->max_bytes - t->bytes) {
        t->too_long = 1;
        return 0;
    }
    if (t->bytes + n > t->cap) {
        size_t cap = t->cap ? t->cap : 64 << 10;
        while (cap < t->bytes + n)
            cap *= 2;
        char *more = realloc(t->data, cap);
        if (!more) {
            t->no_memory = 1;
            return 0;
        }
        t->data = more;
        t->cap = cap;
    }
    memcpy(t->data + t->bytes, data, n);
    t->bytes += n;
    return n;
}

static int look_at_client(void *cookie, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    transfer *t = cookie;
    (void)a, (void)b, (void)c, (void)d;
    return t->is_gone(t->cookie);
}

/* ---- checks of allowed URLs ------------------------------------------------------------------ */

/* Returns 2 if the command line names the host of the URL, 1 if all public hosts are allowed, and 0
 * if the host is not allowed. */
static int is_allowed(const xd_fetch_rules *f, const char *host, const char *port)
{
    int allowed = 0;
    for (int i = 0; i < f->nhosts; i++) {
        const char *given = f->hosts[i], *colon = strrchr(given, ':');
        if (colon && strchr(colon, ']')) /* a colon inside the brackets of an IPv6 address such as
                                            "[::1]" does not separate a port */
            colon = NULL;
        size_t n = colon ? (size_t)(colon - given) : strlen(given);
        if (strcmp(given, "any") == 0)
            allowed = allowed ? allowed : 1;
        else if (n == strlen(host) && strncasecmp(given, host, n) == 0 &&
                 (!colon || strcmp(colon + 1, port) == 0))
            allowed = 2;
    }
    return allowed;
}

static xd_status check_url(transfer *t, CURLU *u, xd_err *e)
{
    char     *scheme = NULL, *host = NULL, *port = NULL, *user = NULL;
    xd_status s = XD_OK;
    curl_url_get(u, CURLUPART_SCHEME, &scheme, 0);
    curl_url_get(u, CURLUPART_HOST, &host, 0);
    curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
    curl_url_get(u, CURLUPART_USER, &user, 0);
    int allowed = host && port ? is_allowed(t->f, host, port) : 0;
    t->named = allowed == 2;
    if (!scheme || (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0))
        s = xd_fail(e, XD_EINVAL, "the URL has the scheme '%.20s'; only http and https are allowed",
                    scheme ? scheme : "");
    else if (user)
        s = xd_fail(e, XD_EINVAL, "the URL contains a user name, which is not allowed: remove it");
    else if (!allowed)
        s = xd_fail(e, XD_EINVAL,
                    "the URL leads to host %.80s port %.6s, which --allow_url does "
                    "not allow",
                    host ? host : "", port ? port : "");
    curl_free(scheme), curl_free(host), curl_free(port), curl_free(user);
    return s;
}

/* ---- a request ------------------------------------------------------------------------------- */

static void set_options(CURL *c, transfer *t, CURLU *u, double seconds)
{
    curl_easy_setopt(c, CURLOPT_CURLU, u);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_PROXY, ""); /* no proxy is used, because open_socket would check
                                                   the proxy's address instead of the server's */
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(seconds * 1e3) + 1);
    curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)t->f->max_bytes);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, add_bytes);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, look_at_client);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "xdit");
}

static xd_status explain(const transfer *t, CURLcode code, xd_err *e)
{
    if (t->private)
        return xd_fail(e, XD_EINVAL,
                       "the URL leads to an address that is not public: the server "
                       "must be started with --allow_url HOST for it");
    if (t->too_long || code == CURLE_FILESIZE_EXCEEDED)
        return xd_fail(e, XD_EINVAL, "the file has more than the allowed %zu bytes (--max_body)",
                       t->f->max_bytes);
    if (t->no_memory)
        return xd_fail(e, XD_ENOMEM, "out of memory for the file");
    if (code == CURLE_OPERATION_TIMEDOUT)
        return xd_fail(e, XD_EINVAL, "the download took more than %g s (--request_timeout)",
                       t->f->seconds);
    return xd_fail(e, XD_EINVAL, "the URL cannot be fetched: %s", curl_easy_strerror(code));
}

/* Fetches one URL. If the reply is a redirect, sets *u to the new URL and *again to 1. */
static xd_status request(CURL *c, transfer *t, CURLU *u, double until, int *again, xd_err *e)
{
    long      status = 0;
    char     *next = NULL;
    double    left = until - xd_now_s();
    xd_status s = check_url(t, u, e);
    *again = 0;
    if (s != XD_OK)
        return s;
    t->bytes = 0;
    curl_easy_reset(c);
    set_options(c, t, u, left);
    CURLcode code = left > 0 ? curl_easy_perform(c) : CURLE_OPERATION_TIMEDOUT;
    if (code != CURLE_OK)
        return explain(t, code, e);
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(c, CURLINFO_REDIRECT_URL, &next);
    if (next) {
        *again = 1;
        if (curl_url_set(u, CURLUPART_URL, next, 0) != CURLUE_OK)
            return xd_fail(e, XD_EINVAL, "the URL is redirected to an invalid one");
        return XD_OK;
    }
    if (status != 200)
        return xd_fail(e, XD_EINVAL, "the other server replies with status %ld", status);
    return XD_OK;
}

xd_status xd_fetch_read(const xd_fetch_rules *f, const char *url, int (*is_gone)(void *cookie),
                        void *cookie, char **data, size_t *bytes, xd_err *e)
{
    transfer  t = { .f = f, .is_gone = is_gone, .cookie = cookie };
    CURL     *c = curl_easy_init();
    CURLU    *u = curl_url();
    double    until = xd_now_s() + f->seconds;
    int       again = 1, left = REDIRECTS + 1;
    xd_status s = c && u ? XD_OK : xd_fail(e, XD_ENOMEM, "out of memory for a download");
    if (s == XD_OK &&
        (strlen(url) > MAX_URL || curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK))
        s = xd_fail(e, XD_EINVAL, "the text is not a URL of at most %d bytes", MAX_URL);
    while (s == XD_OK && again)
        s = left-- ? request(c, &t, u, until, &again, e)
                   : xd_fail(e, XD_EINVAL, "the URL is redirected more than %d times", REDIRECTS);
    curl_easy_cleanup(c);
    curl_url_cleanup(u);
    *data = s == XD_OK ? t.data : NULL;
    *bytes = s == XD_OK ? t.bytes : 0;
    if (s != XD_OK)
        free(t.data);
    return s;
}

#else

xd_status xd_fetch_begin(xd_err *e)
{
    return xd_fail(e, XD_EUNSUPPORTED,
                   "--allow_url: this build has no libcurl to fetch "
                   "images (libcurl4-openssl-dev)");
}

void xd_fetch_end(void)
{
}

xd_status xd_fetch_read(const xd_fetch_rules *f, const char *url, int (*is_gone)(void *cookie),
                        void *cookie, char **data, size_t *bytes, xd_err *e)
{
    (void)f, (void)url, (void)is_gone, (void)cookie;
    *data = NULL;
    *bytes = 0;
    return xd_fail(e, XD_EUNSUPPORTED, "this build cannot fetch URLs: it has no libcurl");
}

#endif
