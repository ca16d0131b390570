/* stamps.c - records pairs of device timestamps, before and after each op */
#include "observe/stamps.h"

#include <stdlib.h>

enum { FULL = 8192 }; /* number of queued ops after which timestamps must be read */

void xd_stamps_open(xd_stamps *s, xd_dev *d)
{
    *s = (xd_stamps){ .dev = d->mem->stamp ? d : NULL };
}

void xd_stamps_close(xd_stamps *s)
{
    free(s->v);
    free(s->ns);
    *s = (xd_stamps){ 0 };
}

int xd_stamps_full(const xd_stamps *s)
{
    return s->n >= FULL;
}

static int has_room(xd_stamps *s)
{
    if (s->n < s->cap)
        return 1;
    size_t      cap = s->cap ? 2 * (size_t)s->cap : 1024;
    xd_stamped *v = realloc(s->v, cap * sizeof *v);
    if (v)
        s->v = v;
    int64_t *ns = v ? realloc(s->ns, 2 * cap * sizeof *ns) : NULL;
    if (!ns)
        return 0;
    s->ns = ns;
    s->cap = (int)cap;
    return 1;
}

int64_t xd_stamps_begin(xd_stamps *s)
{
    return s->dev && has_room(s) ? s->dev->mem->stamp(s->dev, NULL) : -1;
}

void xd_stamps_end(xd_stamps *s, xd_op op, int64_t begin)
{
    int64_t end = begin >= 0 ? s->dev->mem->stamp(s->dev, NULL) : -1;
    if (end >= 0)
        s->v[s->n++] = (xd_stamped){ op, begin, end };
}

int xd_stamps_read(xd_stamps *s)
{
    int     n = s->n;
    int64_t most = s->ns ? 2 * (int64_t)s->cap : 0;
    s->n = 0;
    if (!n)
        return 0;
    int64_t got = s->dev->mem->stamps(s->dev, s->ns, most);
    for (int i = 0; i < n; i++) {
        if (s->v[i].end >= got)
            return i;
        s->v[i].begin = s->ns[s->v[i].begin];
        s->v[i].end = s->ns[s->v[i].end];
    }
    return n;
}
