/* net.c - reads a network's config and visits its weights */
#include "exec/net.h"

#include <stdlib.h>
#include <string.h>

xd_status xd_net_open(xd_net *n, const xd_net_def *def, const xd_json *obj, const char *what,
                      xd_err *e)
{
    memset(n, 0, sizeof *n);
    n->def = def;
    n->cfg = calloc(1, def->cfg_size + 1);
    n->glob = calloc(1, def->glob_size + 1);
    if (!n->cfg || !n->glob)
        return xd_fail(e, XD_ENOMEM, "no memory for the network of %s", what);
    xd_status s = xd_fields_read(def->fields, n->cfg, obj, what, e);
    if (s == XD_OK && def->read)
        s = def->read(n->cfg, obj, what, e);
    if (s == XD_OK && def->check)
        s = def->check(n->cfg, e);
    if (s != XD_OK)
        return s;
    n->nlayers = n->last = def->nlayers ? def->nlayers(n->cfg) : 0;
    if (n->nlayers && !(n->layer = calloc((size_t)n->nlayers, sizeof *n->layer)))
        return xd_fail(e, XD_ENOMEM, "no memory for the %d blocks of %s", n->nlayers, what);
    return XD_OK;
}

void xd_net_close(xd_net *n)
{
    for (int i = 0; i < n->nlayers && n->layer; i++)
        free(n->layer[i]);
    free(n->layer);
    free(n->glob);
    free(n->cfg);
    memset(n, 0, sizeof *n);
}

/* Returns 1 if a name equals a pattern, which may begin or end with a `*`. */
static int matches(const char *pattern, const char *name)
{
    size_t n = strlen(pattern), len = strlen(name);
    if (pattern[0] == '*')
        return len >= n - 1 && strcmp(name + len - (n - 1), pattern + 1) == 0;
    if (n && pattern[n - 1] == '*')
        return strncmp(name, pattern, n - 1) == 0;
    return strcmp(name, pattern) == 0;
}

static int is_unread(const xd_net_def *def, const char *name, const char *prefix)
{
    size_t len = strlen(prefix);
    if (strncmp(name, prefix, len) != 0)
        return 0;
    for (int i = 0; i < 6 && def->unread[i]; i++)
        if (matches(def->unread[i], name + len))
            return 1;
    return 0;
}

int xd_net_unread(const xd_net_def *def, const char *name)
{
    int found = is_unread(def, name, "") || (def->prefix && is_unread(def, name, def->prefix));
    for (int i = 0; def->prefixes && def->prefixes[i]; i++)
        found |= is_unread(def, name, def->prefixes[i]);
    return found;
}

int xd_net_number(const xd_net *n, int layer)
{
    const char *scope = n->def->block(n->cfg, layer)->name;
    int         before = 0;
    for (int i = 0; i < layer; i++)
        before += strcmp(n->def->block(n->cfg, i)->name, scope) == 0;
    return before;
}

xd_status xd_net_visit(xd_net *n, xd_decl *d)
{
    d->prefix = n->def->prefix;
    d->prefixes = n->def->prefixes;
    d->lead = n->def->lead;
    d->beside = n->def->beside;
    d->omits = n->def->omits;
    d->cut = n->last < n->nlayers;
    if (n->def->weights)
        n->def->weights(d, n->cfg, n->glob);
    for (int i = n->first; i < n->last && d->err->code == XD_OK; i++) {
        const xd_block *b = n->def->block(n->cfg, i);
        if (d->visit != XD_VISIT_LIST && n->def->idle && n->def->idle(n->cfg, i))
            continue;
        if (!n->layer[i] && !(n->layer[i] = calloc(1, b->size + 1)))
            return xd_fail(d->err, XD_ENOMEM, "no memory for block %d", i);
        size_t before = d->block_bytes, mapped = d->mapped;
        if (n->stream)
            xd_weight_stream_enter(n->stream, d, i);
        xd_w_enter(d, b->name, xd_net_number(n, i));
        b->weights(d, n->cfg, i, n->layer[i]);
        xd_w_leave(d);
        if (n->stream)
            xd_weight_stream_leave(n->stream, d, i);
        if (d->blocks_of) {
            d->blocks_of[i - n->first] = d->block_bytes - before + d->mapped - mapped;
            d->mapped_of[i - n->first] = d->mapped - mapped;
        }
    }
    return d->err->code;
}

const void *xd_net_layer(xd_exec *x, const xd_net *n, int layer)
{
    if (n->stream)
        xd_weight_stream_begin(n->stream, x, layer);
    return n->layer[layer];
}

void xd_net_block(xd_exec *x, const xd_net *n, int layer, xd_state *s)
{
    x->layer = layer;
    x->site = 0;
    n->def->block(n->cfg, layer)->forward(x, n, xd_net_layer(x, n, layer), s);
    x->layer = -1;
}
