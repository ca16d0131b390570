/* safetensors.c - opens checkpoints and finds their tensors.
 *
 * All headers are checked completely when a checkpoint is opened, so that a tensor's view never
 * exceeds its file. The bytes of files are mapped or read in stfile.c. */
#include "io/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "io/gguf.h"
#include "io/stfile.h"

typedef struct entry {
    char      *name;
    char      *unknown_dtype; /* name of an unsupported dtype, or NULL */
    int        shard;
    int        rank; /* number of dimensions; above XD_MAXDIM: unusable */
    /* Number of users of `view`; while obey_index runs, 1 marks tensors to keep and -1 tensors
     * to drop. */
    int        users;
    /* at: offset of the tensor's data in the file, in bytes; bytes: size of the data. */
    size_t     at, bytes;
    xd_tensor  shape;
    xd_st_view view; /* view of the tensor, valid while users > 0 */
} entry;

struct xd_st {
    xd_st_file *shards;
    int         nshards;
    entry      *t; /* sorted by name */
    int64_t     n, cap;
    char      **meta; /* [2 nmeta]: keys and values of __metadata__ */
    int         nmeta;
};

static const struct {
    const char *name;
    xd_dtype    type;
} dtypes[] = {
    { "F32", XD_F32 },        { "F16", XD_F16 },        { "BF16", XD_BF16 }, { "F64", XD_F64 },
    { "F8_E4M3", XD_F8E4M3 }, { "F8_E5M2", XD_F8E5M2 }, { "I8", XD_I8 },     { "U8", XD_U8 },
    { "I16", XD_I16 },        { "I32", XD_I32 },        { "I64", XD_I64 },   { "BOOL", XD_BOOL },
};

/* ---- one header --------------------------------------------------------------------------- */

static int index_number(const xd_json *v, int64_t *n)
{
    double d;
    if (!xd_json_number(v, &d) || !(d >= 0) || d > 9007199254740992.0 || d != (double)(int64_t)d)
        return 0;
    *n = (int64_t)d;
    return 1;
}

/* Reads a tensor's shape. Dimensions beyond XD_MAXDIM are multiplied into the last one, so that the
 * tensor's size is right although the tensor cannot be used. */
static xd_status read_shape(const char *path, entry *t, const xd_json *list, xd_err *e)
{
    int64_t d[XD_MAXDIM] = { 0 }, v, size = 1;
    if (!xd_json_is_list(list))
        return xd_fail(e, XD_EFORMAT, "%s: tensor %s has no shape", path, t->name);
    t->rank = xd_json_size(list);
    for (int i = 0; i < t->rank; i++) {
        if (!index_number(xd_json_at(list, i), &v))
            return xd_fail(e, XD_EFORMAT, "%s: dimension %d of tensor %s is not a count", path, i,
                           t->name);
        if (v && size > INT64_MAX / 16 / v)
            return xd_fail(e, XD_EFORMAT, "%s: the shape of tensor %s is too large", path, t->name);
        size *= v ? v : 1;
        if (i < XD_MAXDIM)
            d[i] = v;
        else
            d[XD_MAXDIM - 1] *= v;
    }
    t->shape = xd_view(NULL, XD_U8, t->rank < XD_MAXDIM ? t->rank : XD_MAXDIM, d);
    return XD_OK;
}

static xd_status read_dtype(const char *path, entry *t, const char *name, xd_err *e)
{
    if (!name)
        return xd_fail(e, XD_EFORMAT, "%s: tensor %s has no dtype", path, t->name);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(name, dtypes[i].name)) {
            t->shape.type = dtypes[i].type;
            return XD_OK;
        }
    t->shape.type = XD_U8;
    t->unknown_dtype = strdup(name);
    return t->unknown_dtype ? XD_OK : xd_fail(e, XD_ENOMEM, "%s: no memory for its header", path);
}

static xd_status read_entry(const xd_st_file *f, entry *t, const xd_json *v, xd_err *e)
{
    const xd_json *where = xd_json_get(v, "data_offsets");
    int64_t        from, to;
    xd_status      st = read_shape(f->path, t, xd_json_get(v, "shape"), e);
    if (st == XD_OK)
        st = read_dtype(f->path, t, xd_json_text(xd_json_get(v, "dtype")), e);
    if (st != XD_OK)
        return st;
    if (!xd_json_is_list(where) || xd_json_size(where) != 2 ||
        !index_number(xd_json_at(where, 0), &from) || !index_number(xd_json_at(where, 1), &to) ||
        from > to)
        return xd_fail(e, XD_EFORMAT, "%s: tensor %s has no data_offsets [begin, end]", f->path,
                       t->name);
    t->at = (size_t)from;
    t->bytes = (size_t)(to - from);
    if (!t->unknown_dtype && t->bytes != xd_bytes(t->shape))
        return xd_fail(e, XD_EFORMAT,
                       "%s: tensor %s has %zu bytes, but its shape and dtype need "
                       "%zu",
                       f->path, t->name, t->bytes, xd_bytes(t->shape));
    return XD_OK;
}

static entry *new_entry(xd_st *s, const char *name, int shard)
{
    if (s->n == s->cap) {
        int64_t cap = s->cap ? 2 * s->cap : 256;
        entry  *t = realloc(s->t, (size_t)cap * sizeof *t);
        if (!t)
            return NULL;
        s->t = t;
        s->cap = cap;
    }
    entry *t = &s->t[s->n];
    *t = (entry){ .shard = shard, .name = strdup(name) };
    if (!t->name)
        return NULL;
    s->n++;
    return t;
}

static int by_place(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Sorts the n tensors of a file, and checks that they are inside the file and do not overlap. */
static xd_status check_places(const xd_st_file *f, entry *t, int64_t n, xd_err *e)
{
    size_t end = 0, used = 0, have = f->size - f->data;
    qsort(t, (size_t)n, sizeof *t, by_place);
    for (int64_t i = 0; i < n; i++) {
        if (t[i].bytes && t[i].at < end)
            return xd_fail(e, XD_EFORMAT,
                           "%s: tensor %s begins at byte %zu of the data and "
                           "overlaps another one, up to byte %zu",
                           f->path, t[i].name, t[i].at, end);
        end = t[i].at + t[i].bytes > end ? t[i].at + t[i].bytes : end;
        used += t[i].bytes;
        t[i].at += f->data;
    }
    if (end > have)
        return xd_fail(e, XD_EFORMAT,
                       "%s is truncated: its tensors need %zu bytes, the file has "
                       "%zu",
                       f->path, end + f->data, f->size);
    if (used < have && !f->gguf) /* GGUF files have gaps that align the tensors */
        xd_log(XD_LOG_WARN, "%s: %zu of %zu bytes of data belong to no tensor", f->path,
               have - used, f->size);
    return XD_OK;
}

/* Stores the keys and strings of a header's `__metadata__`. Metadata values that are not strings
 * are ignored. */
static int read_meta(xd_st *s, const xd_json *list)
{
    size_t have = (size_t)s->nmeta, more = (size_t)xd_json_size(list);
    char **meta = realloc(s->meta, 2 * (have + more) * sizeof *meta + 1);
    if (!meta)
        return 0;
    s->meta = meta;
    for (const xd_json *v = xd_json_first(list); v; v = xd_json_next(v)) {
        if (!xd_json_key(v) || !xd_json_text(v))
            continue;
        char *key = strdup(xd_json_key(v)), *text = strdup(xd_json_text(v));
        s->meta[2 * s->nmeta] = key;
        s->meta[2 * s->nmeta++ + 1] = text;
        if (!key || !text)
            return 0;
    }
    return 1;
}

static xd_status read_header(xd_st *s, int shard, const xd_json *j, xd_err *e)
{
    const xd_st_file *f = &s->shards[shard];
    int64_t           first = s->n;
    if (!xd_json_is_object(j))
        return xd_fail(e, XD_EFORMAT, "%s: its header is not a JSON object", f->path);
    for (const xd_json *v = xd_json_first(j); v; v = xd_json_next(v)) {
        if (!strcmp(xd_json_key(v), "__metadata__")) {
            if (!read_meta(s, v))
                return xd_fail(e, XD_ENOMEM, "%s: no memory for its header", f->path);
            continue;
        }
        entry    *t = new_entry(s, xd_json_key(v), shard);
        xd_status st = t ? read_entry(f, t, v, e)
                         : xd_fail(e, XD_ENOMEM, "%s: no memory for its header", f->path);
        if (st != XD_OK)
            return st;
    }
    return s->n > first ? check_places(f, s->t + first, s->n - first, e) : XD_OK;
}

/* Moves the metadata keys and tensors of a GGUF header to the store `s`. */
static xd_status take_gguf(xd_st *s, int shard, xd_gguf *g, xd_err *e)
{
    const xd_st_file *f = &s->shards[shard];
    size_t            have = 2 * (size_t)s->nmeta, more = 2 * (size_t)g->nmeta;
    int64_t           first = s->n;
    char            **meta = realloc(s->meta, (have + more) * sizeof *meta + 1);
    if (!meta)
        return xd_fail(e, XD_ENOMEM, "%s: no memory for its header", f->path);
    s->meta = meta;
    if (more)
        memcpy(meta + have, g->meta, more * sizeof *meta);
    s->nmeta += g->nmeta;
    g->nmeta = 0;
    for (int64_t i = 0; i < g->n; i++) {
        const xd_gguf_tensor *from = &g->t[i];
        entry                *t = new_entry(s, from->name, shard);
        if (!t)
            return xd_fail(e, XD_ENOMEM, "%s: no memory for its header", f->path);
        t->rank = from->rank;
        t->at = from->at;
        t->bytes = from->bytes;
        t->shape =
            xd_view(NULL, from->type, from->rank < XD_MAXDIM ? from->rank : XD_MAXDIM, from->d);
    }
    return s->n > first ? check_places(f, s->t + first, s->n - first, e) : XD_OK;
}

static xd_status read_gguf(xd_st *s, int shard, xd_err *e)
{
    xd_gguf   g;
    xd_status st = xd_gguf_read(&g, &s->shards[shard], e);
    if (st == XD_OK)
        st = take_gguf(s, shard, &g, e);
    xd_gguf_free(&g);
    return st;
}

/* Opens the file of shards[shard], whose path is already set. */
static xd_status open_shard(xd_st *s, int shard, xd_err *e)
{
    xd_st_file *f = &s->shards[shard];
    char       *head = NULL;
    size_t      len = 0;
    xd_json    *j = NULL;
    xd_status   st = xd_st_file_open(f, &head, &len, e);
    if (st == XD_OK && f->gguf)
        return read_gguf(s, shard, e);
    if (st == XD_OK)
        st = xd_json_parse(&j, head, len, f->path, e);
    if (st == XD_OK)
        st = read_header(s, shard, j, e);
    xd_json_free(&j);
    free(head);
    return st;
}

static int by_name(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int          c = strcmp(x->name, y->name);
    return c ? c : x->shard - y->shard;
}

/* Returns the index of the first tensor, in the order of names, whose name is `name` or comes after
 * `name`. */
static int64_t lower_bound(const xd_st *s, const char *name)
{
    int64_t low = 0, high = s->n;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        if (strcmp(s->t[mid].name, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static xd_status sort_names(xd_st *s, xd_err *e)
{
    if (s->n)
        qsort(s->t, (size_t)s->n, sizeof *s->t, by_name);
    for (int64_t i = 1; i < s->n; i++)
        if (!strcmp(s->t[i].name, s->t[i - 1].name))
            return xd_fail(e, XD_EFORMAT, "tensor %s exists twice: in %s and in %s", s->t[i].name,
                           s->shards[s->t[i - 1].shard].path, s->shards[s->t[i].shard].path);
    return XD_OK;
}

/* ---- an index of shards -------------------------------------------------------------------- */

static int plain_name(const char *name)
{
    return name[0] && name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\');
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Makes a sorted list of the file names of shards in a weight_map, each name once. The strings
 * belong to the JSON map, and the caller does not free them. */
static xd_status shard_names(const char *index, const xd_json *map, const char ***names, int *n,
                             xd_err *e)
{
    int          k = 0;
    const char **list = NULL;
    if (!xd_json_is_object(map) || !xd_json_size(map))
        return xd_fail(e, XD_EFORMAT, "%s has no weight_map", index);
    if (!(list = malloc((size_t)xd_json_size(map) * sizeof *list)))
        return xd_fail(e, XD_ENOMEM, "%s: no memory for its names", index);
    *names = list;
    for (const xd_json *v = xd_json_first(map); v; v = xd_json_next(v)) {
        const char *name = xd_json_text(v);
        if (!name || !plain_name(name))
            return xd_fail(e, XD_EFORMAT,
                           "%s: \"%s\" for tensor %s is not the name of a file "
                           "in its folder",
                           index, name ? name : "(no text)", xd_json_key(v));
        list[k++] = name;
    }
    qsort(list, (size_t)k, sizeof *list, by_text);
    *n = 0;
    for (int i = 0; i < k; i++)
        if (!i || strcmp(list[i], list[*n - 1]) != 0)
            list[(*n)++] = list[i];
    return XD_OK;
}

static xd_status check_present(const xd_st *s, const char *index, xd_err *e)
{
    int         missing = 0;
    const char *first = NULL;
    for (int i = s->nshards - 1; i >= 0; i--)
        if (!xd_file_exists(s->shards[i].path)) {
            missing++;
            first = s->shards[i].path;
        }
    if (missing)
        return xd_fail(e, XD_EIO, "%d of the %d files in %s are missing; the first is %s", missing,
                       s->nshards, index, first);
    return XD_OK;
}

static int find_shard(const char *const *names, int n, const char *name)
{
    const char *const *at = bsearch(&name, names, (size_t)n, sizeof *names, by_text);
    return at ? (int)(at - names) : -1;
}

/* If two shards contain a tensor of the same name, keeps only the tensor in that shard to which the
 * index assigns the name. Also keeps tensors that the index does not name. The array s->t must be
 * sorted by name, and stays sorted. */
static void obey_index(xd_st *s, const xd_json *map, const char *const *names)
{
    for (const xd_json *v = xd_json_first(map); v; v = xd_json_next(v)) {
        const char *name = xd_json_key(v);
        int         shard = find_shard(names, s->nshards, xd_json_text(v));
        for (int64_t i = lower_bound(s, name); i < s->n && !strcmp(s->t[i].name, name); i++)
            s->t[i].users = s->t[i].shard == shard ? 1 : -1;
    }
    int64_t k = 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (s->t[i].users < 0) {
            free(s->t[i].name);
            free(s->t[i].unknown_dtype);
            continue;
        }
        s->t[k] = s->t[i];
        s->t[k++].users = 0;
    }
    s->n = k;
}

static xd_status check_index(const xd_st *s, const char *index, const xd_json *map, xd_err *e)
{
    for (const xd_json *v = xd_json_first(map); v; v = xd_json_next(v))
        if (xd_st_find(s, xd_json_key(v)) < 0)
            return xd_fail(e, XD_EFORMAT,
                           "%s: tensor %s is missing in %s, to which the index "
                           "assigns it",
                           index, xd_json_key(v), xd_json_text(v));
    return XD_OK;
}

static xd_status open_shards(xd_st *s, const char *dir, const char *index, const xd_json *map,
                             const char *const *names, int n, xd_err *e)
{
    if (!(s->shards = calloc((size_t)n, sizeof *s->shards)))
        return xd_fail(e, XD_ENOMEM, "%s: no memory for %d shards", index, n);
    for (; s->nshards < n; s->nshards++) {
        xd_st_file_init(&s->shards[s->nshards]);
        if (!(s->shards[s->nshards].path = xd_path_join(dir, names[s->nshards])))
            return xd_fail(e, XD_ENOMEM, "%s: no memory for %d shards", index, n);
    }
    xd_status st = check_present(s, index, e);
    for (int i = 0; st == XD_OK && i < n; i++)
        st = open_shard(s, i, e);
    if (st != XD_OK)
        return st;
    if (s->n)
        qsort(s->t, (size_t)s->n, sizeof *s->t, by_name);
    obey_index(s, map, names);
    st = sort_names(s, e);
    return st == XD_OK ? check_index(s, index, map, e) : st;
}

/* Opens the shards that an index file lists. Shards are in the same directory as the index. */
static xd_status open_index(xd_st *s, const char *index, xd_err *e)
{
    xd_json     *j = NULL;
    const char **names = NULL;
    int          n = 0;
    char        *dir = strdup(index), *slash = dir ? strrchr(dir, '/') : NULL;
    if (slash)
        slash[slash == dir] = 0;
    xd_status      st = dir ? xd_json_read(&j, index, e)
                            : xd_fail(e, XD_ENOMEM, "%s: no memory to open it", index);
    const xd_json *map = xd_json_get(j, "weight_map");
    if (st == XD_OK)
        st = shard_names(index, map, &names, &n, e);
    if (st == XD_OK)
        st = open_shards(s, slash ? dir : ".", index, map, names, n, e);
    free(dir);
    free(names);
    xd_json_free(&j);
    return st;
}

/* ---- a GGUF file in shards ------------------------------------------------------------------ */

/* Returns the total number of shards that the header of the first shard states. */
static int header_shards(const xd_st *s)
{
    const char *count = xd_st_meta(s, "split.count");
    return count ? atoi(count) : 1;
}

/* Sets the paths of all shards of the model to which the shard `path` belongs; s->shards[0] is the
 * first shard. */
static xd_status name_gguf_shards(xd_st *s, const char *path, int n, xd_err *e)
{
    free(s->shards);
    s->nshards = 0;
    if (!(s->shards = calloc((size_t)n, sizeof *s->shards)))
        return xd_fail(e, XD_ENOMEM, "%s: no memory for %d shards", path, n);
    for (; s->nshards < n; s->nshards++) {
        xd_st_file_init(&s->shards[s->nshards]);
        if (!(s->shards[s->nshards].path = xd_gguf_shard(path, s->nshards + 1)))
            return xd_fail(e, XD_ENOMEM, "%s: no memory for %d shards", path, n);
    }
    return check_present(s, path, e);
}

static xd_status open_gguf_shards(xd_st *s, const char *path, int n, xd_err *e)
{
    xd_status st = name_gguf_shards(s, path, n, e);
    for (int i = 0; st == XD_OK && i < n; i++) {
        st = open_shard(s, i, e);
        if (st == XD_OK && header_shards(s) != n)
            st = xd_fail(e, XD_EFORMAT,
                         "%s is one of %d files by its name, but of %d by its "
                         "header",
                         s->shards[i].path, n, header_shards(s));
    }
    return st == XD_OK ? sort_names(s, e) : st;
}

/* ---- the store ------------------------------------------------------------------------------ */

static xd_status open_single(xd_st *s, const char *path, xd_err *e)
{
    s->shards = calloc(1, sizeof *s->shards);
    if (!s->shards || !(s->shards->path = strdup(path)))
        return xd_fail(e, XD_ENOMEM, "%s: no memory to open it", path);
    s->nshards = 1;
    s->shards->fd = -1;
    xd_status st = open_shard(s, 0, e);
    if (st == XD_OK && s->shards->gguf && header_shards(s) != 1)
        return xd_fail(e, XD_EFORMAT,
                       "%s is one of %d shards, but its name is not that of a "
                       "shard: NAME-00001-of-%05d.gguf",
                       path, header_shards(s), header_shards(s));
    return st == XD_OK ? sort_names(s, e) : st;
}

/* Opens one file, or all shards of the GGUF file to which the named shard belongs. */
static xd_status open_file(xd_st *s, const char *path, xd_err *e)
{
    int no, count;
    return xd_gguf_is_shard(path, &no, &count) ? open_gguf_shards(s, path, count, e)
                                               : open_single(s, path, e);
}

xd_status xd_st_open(xd_st **out, const char *path, const char *stem, xd_err *e)
{
    xd_st      *s = calloc(1, sizeof *s);
    xd_st_which w = { 0 };
    xd_status   st = s ? xd_st_choose(&w, path, stem, e)
                       : xd_fail(e, XD_ENOMEM, "%s: no memory to open it", path);
    *out = NULL;
    if (st == XD_OK)
        st = w.sharded ? open_index(s, w.path, e) : open_file(s, w.path, e);
    free(w.path);
    if (st == XD_OK)
        *out = s;
    else
        xd_st_close(&s);
    return st;
}

/* Renames all tensors of `s` to names with a prefix. */
static int add_prefix(xd_st *s, const char *prefix)
{
    size_t n = strlen(prefix);
    for (int64_t i = 0; i < s->n; i++) {
        char *name = malloc(n + strlen(s->t[i].name) + 1);
        if (!name)
            return 0;
        memcpy(name, prefix, n);
        strcpy(name + n, s->t[i].name);
        free(s->t[i].name);
        s->t[i].name = name;
    }
    return 1;
}

xd_status xd_st_join(xd_st *s, xd_st **more_, const char *prefix, xd_err *e)
{
    xd_st      *more = *more_;
    size_t      files = (size_t)(s->nshards + more->nshards), tensors = (size_t)(s->n + more->n);
    xd_st_file *shards = realloc(s->shards, files * sizeof *shards);
    s->shards = shards ? shards : s->shards;
    entry *t = realloc(s->t, tensors * sizeof *t + 1);
    s->t = t ? t : s->t;
    if (!shards || !t || !add_prefix(more, prefix))
        return xd_fail(e, XD_ENOMEM, "%s: no memory to open it", xd_st_path(more));
    for (int64_t i = 0; i < more->n; i++) {
        s->t[s->n] = more->t[i];
        s->t[s->n++].shard += s->nshards;
    }
    for (int i = 0; i < more->nshards; i++)
        s->shards[s->nshards++] = more->shards[i];
    s->cap = s->n;
    more->n = 0;
    more->nshards = 0;
    xd_st_close(more_);
    return sort_names(s, e);
}

void xd_st_close(xd_st **s)
{
    if (!s || !*s)
        return;
    for (int64_t i = 0; i < (*s)->n; i++) {
        free((*s)->t[i].name);
        free((*s)->t[i].unknown_dtype);
        xd_st_file_put(&(*s)->t[i].view);
    }
    for (int i = 0; i < (*s)->nshards; i++)
        xd_st_file_close(&(*s)->shards[i]);
    for (int i = 0; i < 2 * (*s)->nmeta; i++)
        free((*s)->meta[i]);
    free((*s)->meta);
    free((*s)->t);
    free((*s)->shards);
    free(*s);
    *s = NULL;
}

int64_t xd_st_count(const xd_st *s)
{
    return s->n;
}

const char *xd_st_name(const xd_st *s, int64_t i)
{
    return s->t[i].name;
}

xd_tensor xd_st_shape(const xd_st *s, int64_t i)
{
    return s->t[i].shape;
}

const char *xd_st_dtype(const xd_st *s, int64_t i)
{
    for (size_t k = 0; !s->t[i].unknown_dtype && k < sizeof dtypes / sizeof *dtypes; k++)
        if (dtypes[k].type == s->t[i].shape.type)
            return dtypes[k].name;
    return s->t[i].unknown_dtype ? s->t[i].unknown_dtype : xd_gguf_type_name(s->t[i].shape.type);
}

int64_t xd_st_find(const xd_st *s, const char *name)
{
    int64_t i = lower_bound(s, name);
    return i < s->n && !strcmp(s->t[i].name, name) ? i : -1;
}

int xd_st_place(const xd_st *s, int64_t i, size_t *at)
{
    *at = s->t[i].at;
    return s->shards[s->t[i].shard].fd;
}

xd_status xd_st_get(xd_st *s, int64_t i, xd_tensor *t, xd_err *e)
{
    entry            *n = &s->t[i];
    const xd_st_file *f = &s->shards[n->shard];
    if (n->unknown_dtype)
        return xd_fail(e, XD_EUNSUPPORTED, "%s: tensor %s has the unsupported dtype %s", f->path,
                       n->name, n->unknown_dtype);
    if (n->rank > XD_MAXDIM)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: tensor %s has %d dimensions; at most %d are "
                       "supported",
                       f->path, n->name, n->rank, XD_MAXDIM);
    if (!n->users) {
        xd_status st = xd_st_file_take(f, n->at, n->bytes, n->name, &n->view, e);
        if (st != XD_OK)
            return st;
    }
    n->users++;
    *t = n->shape;
    t->p = n->view.p;
    return XD_OK;
}

void xd_st_done(xd_st *s, int64_t i)
{
    entry *n = &s->t[i];
    if (n->users > 0 && --n->users == 0)
        xd_st_file_put(&n->view);
}

void xd_st_past(const xd_st *s, int64_t i, const void *p, size_t bytes)
{
    xd_st_file_past(&s->t[i].view, p, bytes);
}

void xd_st_release(xd_st *s)
{
    for (int64_t i = 0; s && i < s->n; i++) {
        s->t[i].users = 0;
        xd_st_file_put(&s->t[i].view);
    }
}

int xd_st_mapped(const xd_st *s)
{
    for (int i = 0; i < s->nshards; i++)
        if (!xd_st_file_maps(&s->shards[i]))
            return 0;
    return 1;
}

uint64_t xd_st_hash(const xd_st *s)
{
    uint64_t h = XD_ST_HASH_START;
    for (int64_t i = 0; i < s->n; i++) {
        const entry *t = &s->t[i];
        h = xd_st_hash_bytes(h, t->name, strlen(t->name) + 1);
        h = xd_st_hash_bytes(h, t->shape.d, sizeof t->shape.d);
        h = xd_st_hash_bytes(h, (uint64_t[]){ t->shape.type, (uint64_t)t->shard, t->at, t->bytes },
                             32);
    }
    for (int i = 0; i < s->nshards; i++)
        h = xd_st_file_hash(&s->shards[i], h);
    return h;
}

int xd_st_files(const xd_st *s)
{
    return s->nshards;
}

const char *xd_st_file_path(const xd_st *s, int i)
{
    return s->shards[i].path;
}

xd_status xd_st_file_digest(const xd_st *s, int i, uint64_t *digest, xd_err *e)
{
    return xd_st_file_hash_all(&s->shards[i], digest, e);
}

size_t xd_st_bytes(const xd_st *s)
{
    size_t n = 0;
    for (int64_t i = 0; i < s->n; i++)
        n += s->t[i].bytes;
    return n;
}

const char *xd_st_meta(const xd_st *s, const char *key)
{
    for (int i = 0; i < s->nmeta; i++)
        if (!strcmp(s->meta[2 * i], key))
            return s->meta[2 * i + 1];
    return NULL;
}

const char *xd_st_path(const xd_st *s)
{
    return s->shards[0].path;
}

int xd_st_is_gguf(const xd_st *s)
{
    return s->shards[0].gguf;
}
