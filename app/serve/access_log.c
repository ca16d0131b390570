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

struct xd_access_log {
    pthread_mutex_t lock;
    char           *path; /* path of the log file; NULL: standard output */
    FILE           *f;
};

xd_status xd_access_log_open(xd_access_log **out, const char *path, xd_err *e)
{
    int            own = strcmp(path, "-") != 0;
    xd_access_log *l = *out = calloc(1, sizeof *l);
    if (!l || (own && !(l->path = strdup(path)))) {
        free(l);
        *out = NULL;
        return xd_fail(e, XD_ENOMEM, "out of memory for --access_log");
    }
    pthread_mutex_init(&l->lock, NULL);
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

/* Writes quotes, backslashes and bytes outside printable ASCII as \x22, so that a client cannot
 * forge lines. */
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

void xd_access_log_add(xd_access_log *l, const xd_access *a)
{
    char host[64], at[64];
    if (!l)
        return;
    name_client(a->from, host, sizeof host);
    format_time(at, sizeof at);
    pthread_mutex_lock(&l->lock);
    reopen_if_moved(l);
    fprintf(l->f, "%s - %s [%s] \"", host, *a->owner ? a->owner : "-", at);
    put_escaped(l->f, a->method);
    fputc(' ', l->f);
    put_escaped(l->f, a->path);
    fputc(' ', l->f);
    put_escaped(l->f, a->version);
    fprintf(l->f, "\" %u %lld %.3f %s\n", a->status, (long long)a->bytes, a->seconds,
            *a->task ? a->task : "-");
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
