/* gguf.c - reads the header of a GGUF file, which has metadata keys and values, then the tensors'
 * names, shapes, types and offsets.
 *
 * The header is read sequentially through a small buffer, because it may contain the large
 * vocabulary of a language model. */
#include "io/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 1 << 16, MAX_KEY = 1 << 16, MAX_NAME = 4096, MAX_RANK = 8, MAX_DEPTH = 3 };
static const uint64_t max_text = 1 << 20; /* max bytes of a string value that is stored */
static const char     shape_key[] = "comfy.gguf.orig_shape.";

typedef enum value_type {
    VALUE_U8,
    VALUE_I8,
    VALUE_U16,
    VALUE_I16,
    VALUE_U32,
    VALUE_I32,
    VALUE_F32,
    VALUE_BOOL,
    VALUE_TEXT,
    VALUE_LIST,
    VALUE_U64,
    VALUE_I64,
    VALUE_F64,
    VALUE_TYPES,
} value_type;

/* Sizes in bytes of metadata values, indexed by the type's number in the file; 0 for strings and
 * arrays. */
static const size_t value_bytes[VALUE_TYPES] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

/* GGUF's tensor types by their number in the file. A tensor type whose `read` is NULL is not
 * supported. */
static const struct type {
    const char *name;
    xd_dtype    type;
    int         read;
} types[] = {
    [0] = { "F32", XD_F32, 1 },        [1] = { "F16", XD_F16, 1 },
    [2] = { "Q4_0", XD_Q4_0, 1 },      [3] = { "Q4_1", XD_Q4_1, 1 },
    [6] = { "Q5_0", XD_Q5_0, 1 },      [7] = { "Q5_1", XD_Q5_1, 1 },
    [8] = { "Q8_0", XD_Q8_0, 1 },      [9] = { "Q8_1", XD_U8, 0 },
    [10] = { "Q2_K", XD_Q2_K, 1 },     [11] = { "Q3_K", XD_Q3_K, 1 },
    [12] = { "Q4_K", XD_Q4_K, 1 },     [13] = { "Q5_K", XD_Q5_K, 1 },
    [14] = { "Q6_K", XD_Q6_K, 1 },     [15] = { "Q8_K", XD_U8, 0 },
    [16] = { "IQ2_XXS", XD_U8, 0 },    [17] = { "IQ2_XS", XD_U8, 0 },
    [18] = { "IQ3_XXS", XD_U8, 0 },    [19] = { "IQ1_S", XD_U8, 0 },
    [20] = { "IQ4_NL", XD_IQ4_NL, 1 }, [21] = { "IQ3_S", XD_U8, 0 },
    [22] = { "IQ2_S", XD_U8, 0 },      [23] = { "IQ4_XS", XD_IQ4_XS, 1 },
    [24] = { "I8", XD_I8, 1 },         [25] = { "I16", XD_I16, 1 },
    [26] = { "I32", XD_I32, 1 },       [27] = { "I64", XD_I64, 1 },
    [28] = { "F64", XD_F64, 1 },       [29] = { "IQ1_M", XD_U8, 0 },
    [30] = { "BF16", XD_BF16, 1 },     [34] = { "TQ1_0", XD_U8, 0 },
    [35] = { "TQ2_0", XD_U8, 0 },      [39] = { "MXFP4", XD_U8, 0 },
    [40] = { "NVFP4", XD_U8, 0 },      [41] = { "Q1_0", XD_U8, 0 },
};
enum { TYPES = sizeof types / sizeof *types };

const char *xd_gguf_type_name(xd_dtype t)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].read && types[i].type == t)
            return types[i].name;
    return NULL;
}

/* ---- bytes of the header ------------------------------------------------------------------ */

typedef struct shape_note { /* original tensor shape, from the key comfy.gguf.orig_shape.NAME */
    char   *name;
    int     nd;
    int64_t d[MAX_RANK];
} shape_note;

typedef struct reader {
    const xd_st_file *f;
    xd_gguf          *g;
    xd_err           *e;
    size_t            at;         /* offset in the file of the next byte to read */
    size_t            from, have; /* bytes [from, from + have) of the file are in `buf` */
    uint64_t          alignment;
    shape_note       *notes;
    int               nnotes, capmeta, capnotes;
    unsigned char     buf[BUFFER];
} reader;

static xd_status truncated(reader *r, uint64_t n)
{
    return xd_fail(r->e, XD_EFORMAT,
                   "%s is truncated: its GGUF header needs %" PRIu64 " bytes or "
                   "more, the file has %zu",
                   r->f->path, (uint64_t)r->at + n, r->f->size);
}

static xd_status no_memory(reader *r)
{
    return xd_fail(r->e, XD_ENOMEM, "%s: no memory for its header", r->f->path);
}

/* Returns 1 if the rest of the file is long enough for n items of at least `each` bytes. */
static int has_room(const reader *r, uint64_t n, uint64_t each)
{
    return n <= (r->f->size - r->at) / each;
}

static xd_status take_bytes(reader *r, void *to, size_t n)
{
    unsigned char *out = to;
    if (n > r->f->size - r->at)
        return truncated(r, n);
    while (n) {
        if (r->at < r->from || r->at >= r->from + r->have) {
            size_t left = r->f->size - r->at;
            r->from = r->at;
            r->have = left < BUFFER ? left : BUFFER;
            xd_status s = xd_st_file_read(r->f, r->buf, r->have, r->from, r->e);
            if (s != XD_OK)
                return s;
        }
        size_t at = r->at - r->from, part = r->have - at < n ? r->have - at : n;
        memcpy(out, r->buf + at, part);
        out += part;
        r->at += part;
        n -= part;
    }
    return XD_OK;
}

/* Reads a little-endian integer of `bytes` bytes. */
static xd_status take_number(reader *r, size_t bytes, uint64_t *v)
{
    unsigned char p[8];
    xd_status     s = take_bytes(r, p, bytes);
    *v = 0;
    for (size_t i = bytes; s == XD_OK && i > 0; i--)
        *v = *v << 8 | p[i - 1];
    return s;
}

/* Reads a string, which is stored after its length. The caller must free *text. */
static xd_status take_text(reader *r, uint64_t max, const char *what, char **text)
{
    uint64_t  n;
    xd_status s = take_number(r, 8, &n);
    *text = NULL;
    if (s != XD_OK)
        return s;
    if (!has_room(r, n, 1))
        return truncated(r, n);
    if (n > max)
        return xd_fail(r->e, XD_EFORMAT,
                       "%s: its header has a %s of %" PRIu64 " bytes; at most %" PRIu64
                       " are allowed",
                       r->f->path, what, n, max);
    if (!(*text = calloc((size_t)n + 1, 1)))
        return no_memory(r);
    s = take_bytes(r, *text, (size_t)n);
    if (s == XD_OK && strlen(*text) != n)
        s = xd_fail(r->e, XD_EFORMAT, "%s: a %s in its header has a zero byte", r->f->path, what);
    if (s != XD_OK) {
        free(*text);
        *text = NULL;
    }
    return s;
}

/* ---- keys and values ---------------------------------------------------------------------- */

static xd_status keep_value(reader *r, const char *key, const char *text)
{
    xd_gguf *g = r->g;
    if (g->nmeta == r->capmeta) {
        int    cap = r->capmeta ? 2 * r->capmeta : 32;
        char **m = realloc(g->meta, 2 * (size_t)cap * sizeof *m);
        if (!m)
            return no_memory(r);
        g->meta = m;
        r->capmeta = cap;
    }
    char *k = strdup(key), *v = strdup(text);
    if (!k || !v) {
        free(k);
        free(v);
        return no_memory(r);
    }
    g->meta[2 * g->nmeta] = k;
    g->meta[2 * g->nmeta++ + 1] = v;
    return XD_OK;
}

static int64_t signed_number(value_type t, uint64_t v)
{
    switch (t) {
    case VALUE_I8: return (int8_t)v;
    case VALUE_I16: return (int16_t)v;
    case VALUE_I32: return (int32_t)v;
    default: return (int64_t)v;
    }
}

static void number_text(value_type t, uint64_t v, char *out, size_t size)
{
    float    f;
    double   d;
    uint32_t low = (uint32_t)v;
    memcpy(&f, &low, sizeof f);
    memcpy(&d, &v, sizeof d);
    if (t == VALUE_F32 || t == VALUE_F64)
        snprintf(out, size, "%.9g", t == VALUE_F32 ? (double)f : d);
    else if (t == VALUE_U64)
        snprintf(out, size, "%" PRIu64, v);
    else
        snprintf(out, size, "%" PRId64, signed_number(t, v));
}

static xd_status skip_text(reader *r)
{
    uint64_t  n;
    xd_status s = take_number(r, 8, &n);
    if (s == XD_OK && !has_room(r, n, 1))
        return truncated(r, n);
    r->at += s == XD_OK ? (size_t)n : 0;
    return s;
}

static xd_status list_head(reader *r, value_type *type, uint64_t *n)
{
    uint64_t  t = 0;
    xd_status s = take_number(r, 4, &t);
    if (s == XD_OK)
        s = take_number(r, 8, n);
    if (s != XD_OK)
        return s;
    if (t >= VALUE_TYPES)
        return xd_fail(r->e, XD_EFORMAT,
                       "%s: a list has the value type %" PRIu64 ", which GGUF "
                       "does not have",
                       r->f->path, t);
    *type = (value_type)t;
    size_t each = value_bytes[t] ? value_bytes[t] : t == VALUE_TEXT ? 8 : 12;
    return has_room(r, *n, each) ? XD_OK : truncated(r, *n < UINT64_MAX / 64 ? *n * each : *n);
}

static xd_status skip_list(reader *r, int depth)
{
    value_type type;
    uint64_t   n;
    xd_status  s = list_head(r, &type, &n);
    if (s == XD_OK && type == VALUE_LIST && depth >= MAX_DEPTH)
        s = xd_fail(r->e, XD_EFORMAT, "%s: its header has nested lists", r->f->path);
    if (s == XD_OK && value_bytes[type])
        r->at += (size_t)n * value_bytes[type];
    else
        for (uint64_t i = 0; s == XD_OK && i < n; i++)
            s = type == VALUE_TEXT ? skip_text(r) : skip_list(r, depth + 1);
    return s;
}

/* Reads the metadata key with the original shape of the tensor `name`. This key exists if the
 * tensor was reshaped for storage because its original rows cannot be divided into the blocks of
 * the quantized type. */
static xd_status read_note(reader *r, const char *name)
{
    value_type type;
    uint64_t   n, v;
    xd_status  s = list_head(r, &type, &n);
    if (s != XD_OK)
        return s;
    if (n > MAX_RANK || !value_bytes[type] || type == VALUE_F32 || type == VALUE_F64)
        return xd_fail(r->e, XD_EFORMAT, "%s: %s%s is not a shape", r->f->path, shape_key, name);
    if (r->nnotes == r->capnotes) {
        int         cap = r->capnotes ? 2 * r->capnotes : 16;
        shape_note *p = realloc(r->notes, (size_t)cap * sizeof *p);
        if (!p)
            return no_memory(r);
        r->notes = p;
        r->capnotes = cap;
    }
    shape_note *note = &r->notes[r->nnotes];
    *note = (shape_note){ strdup(name), (int)n, { 0 } };
    if (!note->name)
        return no_memory(r);
    r->nnotes++;
    for (uint64_t i = 0; s == XD_OK && i < n; i++) {
        s = take_number(r, value_bytes[type], &v);
        note->d[i] = signed_number(type, v);
    }
    return s;
}

static xd_status keep_number(reader *r, const char *key, value_type type)
{
    char      text[64];
    uint64_t  v;
    xd_status s = take_number(r, value_bytes[type], &v);
    if (s != XD_OK)
        return s;
    number_text(type, v, text, sizeof text);
    if (strcmp(key, "general.alignment") == 0) {
        r->alignment = v;
        if (type != VALUE_U32 || v < 1 || v > 1 << 20 || (v & (v - 1)))
            return xd_fail(r->e, XD_EFORMAT,
                           "%s: its alignment of %s bytes is not a power of 2 up "
                           "to 1048576",
                           r->f->path, text);
    }
    return keep_value(r, key, text);
}

static xd_status read_value(reader *r, const char *key)
{
    uint64_t  type, n = strlen(shape_key);
    char     *text;
    xd_status s = take_number(r, 4, &type);
    if (s != XD_OK)
        return s;
    if (type >= VALUE_TYPES)
        return xd_fail(r->e, XD_EFORMAT,
                       "%s: its key %.100s has a value of type %" PRIu64 ", "
                       "which GGUF does not have",
                       r->f->path, key, type);
    if (type == VALUE_LIST)
        return strncmp(key, shape_key, n) == 0 ? read_note(r, key + n) : skip_list(r, 0);
    if (type != VALUE_TEXT)
        return keep_number(r, key, (value_type)type);
    s = take_text(r, max_text, "text", &text);
    if (s == XD_OK)
        s = keep_value(r, key, text);
    free(text);
    return s;
}

static xd_status read_keys(reader *r, uint64_t n)
{
    xd_status s = XD_OK;
    if (!has_room(r, n, 13))
        return xd_fail(r->e, XD_EFORMAT,
                       "%s is truncated: its %" PRIu64 " keys do not fit in the "
                       "file's %zu bytes",
                       r->f->path, n, r->f->size);
    for (uint64_t i = 0; s == XD_OK && i < n; i++) {
        char *key;
        s = take_text(r, MAX_KEY, "key", &key);
        if (s == XD_OK)
            s = read_value(r, key);
        free(key);
    }
    return s;
}

/* ---- tensors ------------------------------------------------------------------------------ */

/* Sets a tensor's shape, outermost dimension first. Returns 0 if the shape has a negative dimension
 * or too many elements. */
static int set_shape(xd_gguf_tensor *t, int rank, const int64_t *d, int64_t *count)
{
    *count = 1;
    t->rank = rank;
    memset(t->d, 0, sizeof t->d);
    for (int i = 0; i < rank; i++) {
        if (d[i] < 0 || (d[i] && *count > INT64_MAX / 16 / d[i]))
            return 0;
        *count *= d[i] ? d[i] : 1;
    }
    for (int i = 0; i < rank; i++)
        if (i < XD_MAXDIM)
            t->d[i] = d[i];
        else
            t->d[XD_MAXDIM - 1] *= d[i];
    for (int i = 0; i < rank; i++)
        *count = d[i] ? *count : 0;
    return 1;
}

static xd_status set_type(const reader *r, xd_gguf_tensor *t, uint64_t type, int64_t inner,
                          int64_t count)
{
    char   list[256] = "";
    size_t at = 0;
    if (type < TYPES && types[type].read) {
        t->type = types[type].type;
        t->bytes = xd_dtype_bytes(t->type, count);
        if (count % xd_dtype_block(t->type) == 0 && inner % xd_dtype_block(t->type) == 0)
            return XD_OK;
        return xd_fail(r->e, XD_EFORMAT,
                       "%s: rows of tensor %s have %" PRId64 " elements, not a "
                       "multiple of %" PRId64 " (%s)",
                       r->f->path, t->name, inner, xd_dtype_block(t->type), types[type].name);
    }
    for (int i = 0; i < TYPES; i++)
        if (types[i].read)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "",
                                   types[i].name);
    if (type < TYPES && types[type].name)
        return xd_fail(r->e, XD_EUNSUPPORTED,
                       "%s: tensor %s has the type %s, which is not "
                       "supported: use a file in other types (%s)",
                       r->f->path, t->name, types[type].name, list);
    return xd_fail(r->e, XD_EUNSUPPORTED,
                   "%s: tensor %s has the unknown type number %" PRIu64 " "
                   "(%s)",
                   r->f->path, t->name, type, list);
}

/* Replaces the tensor's stored shape by the original shape from the metadata. The stored and the
 * original shape must have the same number of elements. */
static xd_status obey_note(const reader *r, xd_gguf_tensor *t, int64_t count)
{
    for (int i = 0; i < r->nnotes; i++) {
        int64_t n;
        if (strcmp(r->notes[i].name, t->name) != 0)
            continue;
        if (!set_shape(t, r->notes[i].nd, r->notes[i].d, &n) || n != count)
            return xd_fail(r->e, XD_EFORMAT, "%s: %s%s is not a shape of its %" PRId64 " elements",
                           r->f->path, shape_key, t->name, count);
    }
    return XD_OK;
}

static xd_status read_tensor(reader *r, xd_gguf_tensor *t)
{
    uint64_t  rank = 0, type = 0, at = 0, v;
    int64_t   d[MAX_RANK] = { 0 }, count;
    xd_status s = take_text(r, MAX_NAME, "tensor name", &t->name);
    if (s == XD_OK)
        s = take_number(r, 4, &rank);
    if (s == XD_OK && rank > MAX_RANK)
        return xd_fail(r->e, XD_EFORMAT,
                       "%s: tensor %s has %" PRIu64 " dimensions, at most %d are "
                       "possible",
                       r->f->path, t->name, rank, MAX_RANK);
    /* GGUF files list the innermost dimension first */
    for (uint64_t i = 0; s == XD_OK && i < rank; i++) {
        s = take_number(r, 8, &v);
        d[rank - 1 - i] = v > INT64_MAX ? -1 : (int64_t)v;
    }
    if (s == XD_OK)
        s = take_number(r, 4, &type);
    if (s == XD_OK)
        s = take_number(r, 8, &at);
    if (s != XD_OK)
        return s;
    if (!set_shape(t, (int)rank, d, &count))
        return xd_fail(r->e, XD_EFORMAT, "%s: the shape of tensor %s is too large", r->f->path,
                       t->name);
    s = set_type(r, t, type, rank ? d[rank - 1] : 1, count);
    if (s != XD_OK)
        return s;
    if (at % r->alignment)
        return xd_fail(r->e, XD_EFORMAT,
                       "%s: tensor %s begins at byte %" PRIu64 " of the data, "
                       "not a multiple of the alignment, %" PRIu64,
                       r->f->path, t->name, at, r->alignment);
    if (at > INT64_MAX / 4)
        return xd_fail(r->e, XD_EFORMAT,
                       "%s: tensor %s begins at byte %" PRIu64 " of the data, "
                       "which is too large",
                       r->f->path, t->name, at);
    t->at = (size_t)at;
    return obey_note(r, t, count);
}

static xd_status read_tensors(reader *r, uint64_t n)
{
    xd_gguf  *g = r->g;
    xd_status s = XD_OK;
    if (!has_room(r, n, 24))
        return xd_fail(r->e, XD_EFORMAT,
                       "%s is truncated: its %" PRIu64 " tensors do not fit in "
                       "the file's %zu bytes",
                       r->f->path, n, r->f->size);
    if (!(g->t = calloc((size_t)n + 1, sizeof *g->t)))
        return no_memory(r);
    for (uint64_t i = 0; s == XD_OK && i < n; i++) {
        g->n++;
        s = read_tensor(r, &g->t[i]);
    }
    return s;
}

/* ---- the file ----------------------------------------------------------------------------- */

static xd_status read_version(reader *r)
{
    uint64_t  magic, v = 0;
    xd_status s = take_number(r, 4, &magic);
    if (s == XD_OK)
        s = take_number(r, 4, &v);
    if (s != XD_OK || v == 2 || v == 3)
        return s;
    if (v && v % (1 << 24) == 0)
        return xd_fail(r->e, XD_EUNSUPPORTED,
                       "%s is a big-endian GGUF file, which is not "
                       "supported",
                       r->f->path);
    return xd_fail(r->e, XD_EUNSUPPORTED,
                   "%s is a GGUF file of version %" PRIu64 ": 2 and 3 are "
                   "read",
                   r->f->path, v);
}

static xd_status read_header(reader *r)
{
    uint64_t  tensors = 0, keys = 0;
    xd_status s = read_version(r);
    if (s == XD_OK)
        s = take_number(r, 8, &tensors);
    if (s == XD_OK)
        s = take_number(r, 8, &keys);
    if (s == XD_OK)
        s = read_keys(r, keys);
    return s == XD_OK ? read_tensors(r, tensors) : s;
}

xd_status xd_gguf_read(xd_gguf *g, xd_st_file *f, xd_err *e)
{
    reader *r = calloc(1, sizeof *r);
    *g = (xd_gguf){ 0 };
    if (!r)
        return xd_fail(e, XD_ENOMEM, "%s: no memory for its header", f->path);
    r->f = f;
    r->g = g;
    r->e = e;
    r->alignment = 32;
    xd_status s = read_header(r);
    if (s == XD_OK) { /* a file without tensor data may have no padding */
        size_t data = (r->at + r->alignment - 1) / r->alignment * r->alignment;
        f->data = data < f->size ? data : f->size;
    }
    for (int i = 0; i < r->nnotes; i++)
        free(r->notes[i].name);
    free(r->notes);
    free(r);
    return s;
}

void xd_gguf_free(xd_gguf *g)
{
    for (int64_t i = 0; i < g->n; i++)
        free(g->t[i].name);
    for (int i = 0; i < 2 * g->nmeta; i++)
        free(g->meta[i]);
    free(g->t);
    free(g->meta);
    *g = (xd_gguf){ 0 };
}

/* ---- shards ------------------------------------------------------------------------------- */

enum { SHARD_TAIL = 20 }; /* length of "-00002-of-00003.gguf" */

int xd_gguf_is_shard(const char *path, int *no, int *count)
{
    size_t n = strlen(path);
    int    used = 0;
    if (n < SHARD_TAIL ||
        sscanf(path + n - SHARD_TAIL, "-%5d-of-%5d.gguf%n", no, count, &used) != 2)
        return 0;
    return used == SHARD_TAIL && *no >= 1 && *no <= *count;
}

char *xd_gguf_shard(const char *path, int no)
{
    size_t n = strlen(path);
    char  *out = malloc(n + 16), digits[16];
    if (!out)
        return NULL;
    snprintf(digits, sizeof digits, "%05d", no);
    memcpy(out, path, n + 1);
    memcpy(out + n - SHARD_TAIL + 1, digits, 5);
    return out;
}
