/* single_file.c - one file with the weights of a component; key_map.h has the known layouts */
#include "model/single_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names in messages; numbers in a name; swapped copies at once. */
enum { FIRST = 3, NUMBERS = 2, MAXHELD = 4 };

typedef struct held { char name[512]; void *p; } held;

struct xd_single_file {
    xd_single_file_of of;
    const xd_key_map *layout;
    char              prefix[64];
    int               blocks[XD_MAXSCOPE];      /* number of blocks of every scope, as declared */
    held              held[MAXHELD];    /* swapped copies in use                               */
};

/* ---- names -------------------------------------------------------------------------------- */

/* Does the name begin with the pattern? Returns its numbers and the rest. */
static int match_stem(const char *pattern, const char *name, int number[NUMBERS], const char **rest)
{
    int n = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (*name++ != *pattern)
                return 0;
            continue;
        }
        size_t digits = strspn(name, "0123456789");
        if (digits < 1 || digits > 6 || n == NUMBERS)
            return 0;
        number[n++] = atoi(name);
        name += digits;
    }
    *rest = name;
    return 1;
}

/* A declared name as found in the file. */
typedef struct found {
    char           name[512];
    const xd_stem *stem;        /* NULL: the whole name, unchanged                             */
    int            last;        /* it belongs to the last block of its scope                   */
} found;

static const xd_stem *find_stem(const xd_stem *t, const char *rest, const char **tail)
{
    for (; t->want; t++) {
        size_t n = strlen(t->want);
        if (strncmp(rest, t->want, n) != 0)
            continue;
        *tail = rest + n;
        if (!**tail || strcmp(*tail, ".weight") == 0 || strcmp(*tail, ".bias") == 0)
            return t;
    }
    return NULL;
}

/* Builds the beginning of the name in the file, with the numbers of the declared name. */
static int put_stem(const xd_single_file *s, int k, const int number[NUMBERS], char *out,
                    size_t size)
{
    int at = snprintf(out, size, "%s", s->prefix), n = 0;
    for (const char *p = s->layout->scopes[k].have; *p && at >= 0 && (size_t)at < size; p++) {
        int v = n < NUMBERS ? number[n] : 0;
        if (*p == '#' || *p == '~') {
            at += snprintf(out + at, size - (size_t)at, "%d", *p == '#' ? v : s->blocks[k] - 1 - v);
            n++;
        } else {
            at += snprintf(out + at, size - (size_t)at, "%c", *p);
        }
    }
    return at >= 0 && (size_t)at < size ? at : (int)size - 1;
}

static int translate_name(const xd_single_file *s, const char *want, found *f)
{
    const xd_scope *scopes = s->layout->scopes;
    for (int k = 0; k < XD_MAXSCOPE && scopes[k].want; k++) {
        int         number[NUMBERS] = { 0 };
        const char *rest, *tail;
        if (!match_stem(scopes[k].want, want, number, &rest))
            continue;
        f->stem = NULL;
        tail = rest;
        if (scopes[k].stems && !(f->stem = find_stem(scopes[k].stems, rest, &tail)))
            continue;
        int at = put_stem(s, k, number, f->name, sizeof f->name);
        snprintf(f->name + at, sizeof f->name - (size_t)at, "%s%s", f->stem ? f->stem->have : "",
                 tail);
        f->last = number[0] == s->blocks[k] - 1;
        return 1;
    }
    return 0;
}

int xd_single_file_name(const xd_single_file *s, const char *want, char *have, size_t size)
{
    found f;
    if (!translate_name(s, want, &f))
        return 0;
    snprintf(have, size, "%s", f.name);
    return 1;
}

const char *xd_single_file_prefix(const xd_single_file *s)
{
    return s->prefix;
}

/* ---- the source --------------------------------------------------------------------------- */

/* Selects the rows. A tensor that cannot be divided is returned whole: its shape then
 * shows the error. */
static xd_tensor select_rows(xd_tensor t, const xd_stem *stem)
{
    if (!stem || !stem->of || t.nd < 1 || t.d[0] % stem->of)
        return t;
    int64_t   rows = t.d[0] / stem->of, d[XD_MAXDIM];
    size_t    bytes = xd_bytes(t) / (size_t)stem->of;
    memcpy(d, t.d, sizeof d);
    d[0] = rows * stem->n;
    return xd_view(t.p ? (char *)t.p + (size_t)stem->at * bytes : NULL, t.type, t.nd, d);
}

static int swaps_halves(const found *f)
{
    return f->stem && (f->stem->swap == XD_SWAP_ALWAYS ||
                       (f->stem->swap == XD_SWAP_LAST && f->last));
}

static int src_has(void *self, const char *name, xd_tensor *shape)
{
    const xd_single_file *s = self;
    found            f;
    xd_tensor        t;
    if (!translate_name(s, name, &f) || !s->of.raw->has(s->of.raw->self, f.name, &t))
        return 0;
    *shape = select_rows(t, f.stem);
    return 1;
}

static xd_status hold_swapped(xd_single_file *s, const char *name, xd_tensor *t, xd_err *e)
{
    held  *h = NULL;
    size_t n = xd_bytes(*t), half = n / 2;
    for (int i = 0; i < MAXHELD && !h; i++)
        h = s->held[i].p ? NULL : &s->held[i];
    if (t->nd < 1 || t->d[0] % 2)
        return xd_fail(e, XD_EFORMAT, "%s: the %lld rows of %s have no halves", s->of.file,
                       (long long)t->d[0], name);
    if (!h || !(h->p = malloc(n + 1)))
        return xd_fail(e, XD_ENOMEM, "no memory for the %zu bytes of %s", n, name);
    snprintf(h->name, sizeof h->name, "%s", name);
    memcpy(h->p, (char *)t->p + half, half);
    memcpy((char *)h->p + half, t->p, half);
    t->p = h->p;
    return XD_OK;
}

static xd_status src_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    xd_single_file       *s = self;
    const xd_source *raw = s->of.raw;
    found            f;
    if (!translate_name(s, name, &f))
        return xd_fail(e, XD_EFORMAT, "%s: tensor %s is missing", s->of.file, name);
    xd_status st = raw->get(raw->self, f.name, t, e);
    if (st != XD_OK)
        return st;
    if (swaps_halves(&f)) {
        st = hold_swapped(s, name, t, e);
        raw->done(raw->self, f.name);
    }
    *t = select_rows(*t, f.stem);
    return st;
}

static void src_done(void *self, const char *name)
{
    xd_single_file *s = self;
    found      f;
    for (int i = 0; i < MAXHELD; i++)
        if (s->held[i].p && strcmp(s->held[i].name, name) == 0) {
            free(s->held[i].p);
            s->held[i].p = NULL;
            return;
        }
    if (translate_name(s, name, &f) && !swaps_halves(&f))
        s->of.raw->done(s->of.raw->self, f.name);
}

static xd_status scale_of(void *self, const char *name, float *scale, xd_err *e)
{
    const xd_single_file *s = self;
    const xd_source *raw = s->of.raw;
    found            f;
    *scale = 1;
    return translate_name(s, name, &f) && raw->scale ? raw->scale(raw->self, f.name, scale, e)
                                                     : XD_OK;
}

/* A swapped copy is private memory; only views have file pages to release. */
static void src_past(void *self, const char *name, const void *p, size_t bytes)
{
    const xd_single_file *s = self;
    const xd_source *raw = s->of.raw;
    found            f;
    if (raw->past && translate_name(s, name, &f) && !swaps_halves(&f))
        raw->past(raw->self, f.name, p, bytes);
}

/* Selected rows follow other rows in the file; a swapped tensor is read whole. */
static void src_will(void *self, const char *name, int64_t first, int64_t n)
{
    const xd_single_file *s = self;
    const xd_source *raw = s->of.raw;
    found            f;
    xd_tensor        t;
    if (!raw->will || !translate_name(s, name, &f) || !raw->has(raw->self, f.name, &t))
        return;
    if (swaps_halves(&f))
        raw->will(raw->self, f.name, 0, xd_count(t));
    else
        raw->will(raw->self, f.name,
                  first + (f.stem && f.stem->of ? xd_count(t) / f.stem->of * f.stem->at : 0), n);
}

xd_source xd_single_file_source(xd_single_file *s)
{
    return (xd_source){ src_has,  src_get, src_done, s->of.raw->in_place, s, scale_of,
                        src_past, src_will, NULL, NULL };
}

/* ---- which layout ------------------------------------------------------------------------- */

/* "text_encoders.@.transformer." -> "text_encoders.clip_l.transformer." */
static void fill_slot(const char *pattern, const char *slot, char out[64])
{
    int n = (int)strcspn(pattern, "@");
    snprintf(out, 64, "%.*s%s%s", n, pattern, pattern[n] ? slot : "",
             pattern[n] ? pattern + n + 1 : "");
}

static int has_marks(const xd_st *files, const xd_key_map *l, const char *prefix)
{
    char name[256];
    for (int i = 0; i < 2 && l->marks[i]; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, l->marks[i]);
        if (xd_st_find(files, name) < 0)
            return 0;
    }
    return 1;
}

const xd_key_map *xd_key_map_find(const xd_st *files, const char *slot, int *at, char prefix[64])
{
    const xd_key_map *l;
    for (int i = *at; (l = xd_key_map_at(i)); i++)
        for (int k = 0; k < XD_MAXPREFIX && l->prefixes[k]; k++) {
            fill_slot(l->prefixes[k], slot, prefix);
            if (has_marks(files, l, prefix)) {
                *at = i;
                return l;
            }
        }
    return NULL;
}

int xd_is_lora(const xd_st *files)
{
    static const char *const marks[] = { ".lora_A.", ".lora_B.", ".lora_down.", ".lora_up.",
                                         ".lora.down.", ".lora.up." };
    for (int64_t i = 0; i < xd_st_count(files); i++)
        for (size_t k = 0; k < sizeof marks / sizeof *marks; k++)
            if (strstr(xd_st_name(files, i), marks[k]))
                return 1;
    return 0;
}

static int reads_network(const xd_key_map *l, const char *net)
{
    for (int i = 0; i < XD_MAXNET && l->nets[i]; i++)
        if (strcmp(l->nets[i], net) == 0)
            return 1;
    return 0;
}

static xd_status fail_unknown(const xd_single_file_of *of, const xd_key_map *other, xd_err *e)
{
    char   names[512] = "";
    size_t at = 0;
    if (other)
        return xd_fail(e, XD_EINVAL, "%s holds %s, and this model has no use for it as its %s",
                       of->file, other->what, of->slot);
    if (xd_is_lora(of->files))
        return xd_fail(e, XD_EINVAL, "%s holds a LoRA, not the weights of a whole %s: name it with "
                       "--lora", of->file, of->slot);
    for (int64_t i = 0; i < xd_st_count(of->files) && i < FIRST && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%.100s", i ? ", " : "",
                               xd_st_name(of->files, i));
    return xd_fail(e, XD_EUNSUPPORTED,
                   "%s has no layout that is known for the %s of this model; its "
                   "%lld tensors begin with %s", of->file, of->slot,
                   (long long)xd_st_count(of->files), at ? names : "(none)");
}

static xd_status find_layout(xd_single_file *s, xd_err *e)
{
    const xd_key_map *l, *other = NULL;
    for (int i = 0; (l = xd_key_map_find(s->of.files, s->of.slot, &i, s->prefix)); i++) {
        if (reads_network(l, s->of.net)) {
            s->layout = l;
            return XD_OK;
        }
        other = other ? other : l;
    }
    return fail_unknown(&s->of, other, e);
}

/* ---- other checks ------------------------------------------------------------------------- */

/* Weights in eight bits or less that are not fp8: packed by a quantizer. */
static xd_status check_types(const xd_single_file *s, xd_err *e)
{
    const xd_st *st = s->of.files;
    size_t       len = strlen(s->prefix);
    int64_t      bad = 0, first = 0;
    for (int64_t i = 0; i < xd_st_count(st); i++) {
        const char *name = xd_st_name(st, i);
        size_t      n = strlen(name);
        int         weight = n > 7 && strcmp(name + n - 7, ".weight") == 0;
        xd_dtype    t = xd_st_shape(st, i).type;
        int         packed = xd_dtype_size(t) == 1 && t != XD_F8E4M3 && t != XD_F8E5M2;
        if (strncmp(name, s->prefix, len) == 0 && weight && packed)
            first = bad++ ? first : i;
    }
    if (!bad)
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED, "%s: %lld of its weights are of type %s (%s is the first): "
                   "files of a quantizer are not supported, take the one in fp8, bf16, f16 or f32",
                   s->of.file, (long long)bad, xd_st_dtype(st, first), xd_st_name(st, first));
}

/* One more than the largest number that follows the first `len` bytes of `scope` in the names ("|"
 * between them), or `most`. */
static int count_in(const char *names, size_t len, const char *scope, int most)
{
    for (const char *p = names; p;) {
        int         hit = strncmp(p, scope, len) == 0;
        size_t      digits = hit ? strspn(p + len, "0123456789") : 0;
        const char *bar = strchr(p, '|');
        if (digits >= 1 && digits <= 6 && atoi(p + len) >= most)
            most = atoi(p + len) + 1;
        p = bar ? bar + 1 : NULL;
    }
    return most;
}

static int declared_blocks(const xd_declared *list, int n, const xd_scope *scope)
{
    int    most = 0;
    size_t len = strcspn(scope->want, "#");
    for (int i = 0; i < n && scope->want[len]; i++)
        most = count_in(list[i].name, len, scope->want, most);
    return most;
}

static int file_blocks(const xd_single_file *s, const xd_scope *scope)
{
    char   begin_[128];
    int    most = 0;
    snprintf(begin_, sizeof begin_, "%s%.*s", s->prefix, (int)strcspn(scope->have, "#~"),
             scope->have);
    for (int64_t i = 0; i < xd_st_count(s->of.files); i++)
        most = count_in(xd_st_name(s->of.files, i), strlen(begin_), begin_, most);
    return most;
}

/* Detects a file of another model size, which would otherwise leave blocks unused or show up as
 * missing tensors. Blocks that nothing runs may be missing. */
static xd_status check_blocks(xd_single_file *s, xd_err *e)
{
    const xd_scope *scopes = s->layout->scopes;
    for (int k = 0; k < XD_MAXSCOPE && scopes[k].want; k++) {
        int n = s->blocks[k] = declared_blocks(s->of.list, s->of.nlist, &scopes[k]);
        int have = file_blocks(s, &scopes[k]);
        int need = declared_blocks(s->of.needed, s->of.nneeded, &scopes[k]);
        if (strchr(scopes[k].want, '#') && (have > n || have < need))
            return xd_fail(e, XD_EFORMAT,
                           "%s has %d blocks %s%.*s*, and %s/config.json asks for %d", s->of.file,
                           have, s->prefix, (int)strcspn(scopes[k].have, "#~"), scopes[k].have,
                           s->of.config, n);
    }
    return XD_OK;
}

xd_status xd_single_file_open(xd_single_file **out, const xd_single_file_of *of, xd_err *e)
{
    xd_single_file *s = *out = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory to open %s", of->file);
    s->of = *of;
    xd_status st = find_layout(s, e);
    if (st == XD_OK)
        st = check_types(s, e);
    if (st == XD_OK)
        st = check_blocks(s, e);
    if (st != XD_OK)
        xd_single_file_close(out);
    return st;
}

void xd_single_file_close(xd_single_file **s)
{
    if (!s || !*s)
        return;
    for (int i = 0; i < MAXHELD; i++)
        free((*s)->held[i].p);
    free(*s);
    *s = NULL;
}
