/* access_log.c - writes a log line per HTTP request; see access_log.h */
#include "serve/access_log.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/json.h"

struct xd_access_log {
    pthread_mutex_t lock;
    char           *path; /* path of the log file; NULL: standard output */
    FILE           *f;
    int             json;
};

xd_status xd_access_log_open(xd_access_log **out, const char *path, int json, xd_err *e)
{
    int            own = strcmp(path, "-") != 0;
    xd_access_log *l = *out = calloc(1, sizeof *l);
    if (!l || (own && !(l->path = strdup(path)))) {
        free(l);
        *out = NULL;
        return xd_fail(e, XD_ENOMEM, "out of memory for --access_log");
    }
    pthread_mutex_init(&l->lock, NULL);
    l->json = json;
    l->f = own ? fopen(path, "ae") : stdout;
    if (l->f)
        return XD_OK;
    xd_fail(e, XD_EIO, "cannot write --access_log %s: %s", path, strerror(errno));
    xd_access_log_close(out);
    return XD_EIO;
}

/* Creates a new log file if log rotation has moved the current file. */
static void reopen_if_moved(xd_access_log *l)
{
    struct stat now, own;
    if (l->path && l->f &&
        (fstat(fileno(l->f), &own) != 0 || stat(l->path, &now) != 0 || now.st_ino != own.st_ino ||
         now.st_dev != own.st_dev)) {
        FILE *f = fopen(l->path, "ae");
        if (f) {
            fclose(l->f);
            l->f = f;
        }
    }
}

/* Writes quotes, backslashes and bytes outside printable ASCII as escapes such as \x22, so that a
 * client cannot forge log lines. */
static void put_escaped(FILE *f, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p >= 0x7f || *p == '"' || *p == '\\')
            fprintf(f, "\\x%02x", *p);
        else
            fputc(*p, f);
}

static void name_client(const struct sockaddr *from, char *text, socklen_t size)
{
    socklen_t n = from && from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                      : sizeof(struct sockaddr_in);
    if (!from || getnameinfo(from, n, text, size, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(text, size, "-");
}

/* Formats the present time as 26/Nov/2026:20:34:52 +0000, independent of the locale. */
static void format_time(char *text, size_t size)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t            now = time(NULL);
    struct tm         t;
    char              zone[8];
    localtime_r(&now, &t);
    strftime(zone, sizeof zone, "%z", &t);
    snprintf(text, size, "%02d/%.3s/%d:%02d:%02d:%02d %s", t.tm_mday, months + 3 * t.tm_mon,
             t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec, zone);
}

static void put_common(FILE *f, const xd_access *a, const char *host)
{
    char at[64];
    format_time(at, sizeof at);
    fprintf(f, "%s - %s [%s] \"", host, *a->owner ? a->owner : "-", at);
    put_escaped(f, a->method);
    fputc(' ', f);
    put_escaped(f, a->path);
    fputc(' ', f);
    put_escaped(f, a->version);
    fprintf(f, "\" %u %lld %.3f %s\n", a->status, (long long)a->bytes, a->seconds,
            *a->task ? a->task : "-");
}

/* Appends a member with a text to a JSON object, unless the text is empty. */
static void add_text(xd_text_buf *b, const char *name, const char *text)
{
    if (!*text)
        return;
    xd_buf_add(b, ",\"%s\":", name);
    xd_buf_json_string(b, text);
}

static void put_json(FILE *f, const xd_access *a, const char *host)
{
    xd_text_buf b = { 0 };
    time_t      now = time(NULL);
    struct tm   t;
    char        at[32];
    gmtime_r(&now, &t);
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", &t);
    xd_buf_add(&b, "{\"time\":\"%s\",\"client\":\"%s\"", at, host);
    add_text(&b, "key", a->owner);
    add_text(&b, "method", a->method);
    add_text(&b, "path", a->path);
    xd_buf_add(&b, ",\"status\":%u,\"bytes\":%lld,\"seconds\":%.3f", a->status, (long long)a->bytes,
               a->seconds);
    add_text(&b, "task", a->task);
    add_text(&b, "request_id", a->id);
    add_text(&b, "trace_id", a->trace);
    if (!b.failed)
        fprintf(f, "%s}\n", b.p);
    xd_buf_free(&b);
}

void xd_access_log_add(xd_access_log *l, const xd_access *a)
{
    char host[64];
    if (!l)
        return;
    name_client(a->from, host, sizeof host);
    pthread_mutex_lock(&l->lock);
    reopen_if_moved(l);
    (l->json ? put_json : put_common)(l->f, a, host);
    fflush(l->f);
    pthread_mutex_unlock(&l->lock);
}

void xd_access_log_close(xd_access_log **out)
{
    xd_access_log *l = *out;
    if (!l)
        return;
    if (l->path && l->f)
        fclose(l->f);
    free(l->path);
    pthread_mutex_destroy(&l->lock);
    free(l);
    *out = NULL;
}
