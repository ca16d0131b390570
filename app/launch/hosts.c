/* hosts.c - implements the list of hosts of --hosts; see hosts.h */
#include "launch/hosts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum { FILE_BYTES = 1 << 20, MOST_SLOTS = 4096 };

void xd_hosts_free(xd_hosts *h)
{
    for (int i = 0; i < h->n; i++)
        free(h->v[i].name);
    free(h->v);
    *h = (xd_hosts){ 0 };
}

static const xd_host_entry *find(const xd_hosts *h, const char *name, size_t len)
{
    for (int i = 0; i < h->n; i++)
        if (strlen(h->v[i].name) == len && strncmp(h->v[i].name, name, len) == 0)
            return &h->v[i];
    return NULL;
}

/* Adds the host of an entry "a", "a:2" or "a slots=2", which ends before `end`. */
static xd_status add_host(xd_hosts *h, const char *p, const char *end, xd_err *e)
{
    const char *bracket = *p == '[' ? memchr(p, ']', (size_t)(end - p)) : NULL;
    size_t      len = bracket ? (size_t)(bracket + 1 - p) : 0, all = (size_t)(end - p);
    long        slots = 1;
    char       *after = NULL, word[300] = "";
    while (p + len < end && p[len] != ':' && !isspace((unsigned char)p[len]))
        len++;
    const char *number = p + len;
    while (number < end && (*number == ':' || isspace((unsigned char)*number)))
        number++;
    if (strncmp(number, "slots=", 6) == 0)
        number += 6;
    if (number < end && (size_t)(end - number) < sizeof word) {
        memcpy(word, number, (size_t)(end - number));
        slots = strtol(word, &after, 10);
        while (isspace((unsigned char)*after))
            after++;
        slots = *after ? 0 : slots;
    }
    if (!len || *p == '-' || slots < 1 || slots > MOST_SLOTS)
        return xd_fail(e, XD_EINVAL,
                       "\"%.*s\" of --hosts is no host with its number of ranks: write NAME:2, or "
                       "lines NAME slots=2 in a file",
                       (int)(all < 200 ? all : 200), p);
    if (find(h, p, len))
        return xd_fail(e, XD_EINVAL, "--hosts has %.*s twice: add its numbers of ranks", (int)len,
                       p);
    xd_host_entry *v = realloc(h->v, (size_t)(h->n + 1) * sizeof *v);
    if (v)
        h->v = v;
    if (!v || !(v[h->n].name = strndup(p, len)))
        return xd_fail(e, XD_ENOMEM, "no memory for the list of hosts");
    v[h->n].slots = (int)slots;
    v[h->n++].lost = 0;
    return XD_OK;
}

/* Adds the hosts in a text, which separators divide into entries. */
static xd_status add_hosts(xd_hosts *h, const char *p, const char *separators, xd_err *e)
{
    xd_status s = XD_OK;
    while (*p && s == XD_OK) {
        size_t      n = strcspn(p, separators);
        const char *from = p, *hash = memchr(p, '#', n), *end = hash ? hash : p + n;
        while (from < end && isspace((unsigned char)*from))
            from++;
        while (end > from && isspace((unsigned char)end[-1]))
            end--;
        if (from < end)
            s = add_host(h, from, end, e);
        p += n + (p[n] != 0);
    }
    return s;
}

xd_status xd_hosts_read(xd_hosts *h, const char *text, xd_err *e)
{
    char  *data = NULL;
    size_t len;
    *h = (xd_hosts){ 0 };
    xd_status s = XD_OK;
    if (xd_file_exists(text) || strchr(text, '/')) {
        s = xd_file_read(text, FILE_BYTES, &data, &len, e);
        if (s == XD_OK)
            s = add_hosts(h, data, "\n", e);
    } else {
        s = add_hosts(h, text, ",", e);
    }
    free(data);
    if (s == XD_OK && !h->n)
        s = xd_fail(e, XD_EINVAL, "--hosts %s has no host: write NAME:2,NAME:2", text);
    if (s != XD_OK)
        xd_hosts_free(h);
    return s;
}

int xd_hosts_slots(const xd_hosts *h)
{
    int sum = 0;
    for (int i = 0; i < h->n; i++)
        sum += h->v[i].lost ? 0 : h->v[i].slots;
    return sum;
}

/* Returns 1 if two host names are equal, or differ only because one of them has no domain. */
static int is_same(const char *a, const char *b)
{
    size_t n = strcspn(a, ".");
    int    short_name = !a[n] != !b[strcspn(b, ".")] && !isdigit((unsigned char)*a);
    return strcmp(a, b) == 0 || (short_name && n == strcspn(b, ".") && strncmp(a, b, n) == 0);
}

int xd_hosts_lose(xd_hosts *h, const char *name)
{
    for (int i = 0; i < h->n; i++)
        if (!h->v[i].lost && is_same(h->v[i].name, name))
            return h->v[i].lost = 1;
    return 0;
}

char *xd_hosts_text(const xd_hosts *h, int ranks)
{
    xd_text_buf b = { 0 };
    for (int i = 0; i < h->n && ranks > 0; i++) {
        const xd_host_entry *v = &h->v[i];
        int                  n = v->slots < ranks ? v->slots : ranks;
        if (v->lost)
            continue;
        xd_buf_add(&b, "%s%s:%d", b.len ? "," : "", v->name, n);
        ranks -= n;
    }
    if (b.failed)
        xd_buf_free(&b);
    return b.p;
}
