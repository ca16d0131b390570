/* single_file.c - reads the weights of a component from one file, whose tensor names have one of
 * the layouts of key_map.h */
#include "model/single_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/word_list.h"

/* FIRST: max tensor names in a message. NUMBERS: max numbers in a name. MAXHELD: max copies of
 * tensors that exist at the same time. */
enum { FIRST = 3, NUMBERS = 2, MAXHELD = XD_MAXSEG };

typedef struct held {
    char  name[512];
    void *p;
} held;

struct xd_single_file {
    xd_single_file_of of;
    const xd_key_map *layout;
    char              prefix[64];
    int               blocks[XD_MAXSCOPE]; /* declared number of blocks in each scope */
    held              held[MAXHELD];       /* copies of tensors that are in use */
};

/* ---- names -------------------------------------------------------------------------------- */

/* Returns 1 if a tensor's name begins with the pattern. Also returns the numbers that the pattern's
 * wildcards match, and the rest of the name. */
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

/* A declared tensor's name, its name in the file, and the rule that translates the end of the
 * name. */
typedef struct found {
    char           name[512];
    const xd_stem *stem; /* rule for the end of the name; NULL: unchanged */
    int            last; /* 1: the tensor belongs to the last block that its scope matches */
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

/* Writes the beginning that the name has in the file; the numbers in the beginning are those in the
 * declared name. */
static int put_stem(const xd_single_file *s, int k, const int number[NUMBERS], char *out,
                    size_t size)
{
    int at = snprintf(out, size, "%s", s->prefix), n = 0;
    for (const char *p = s->layout->scopes[k].have; *p && at >= 0 && (size_t)at < size; p++) {
        int v = n < NUMBERS ? number[n] : 0;
        if (*p == '+' && p[-1] == '#')
            continue;
        if (*p == '#' || *p == '~') {
            at += snprintf(out + at, size - (size_t)at, "%d", *p == '#' ? v : s->blocks[k] - 1 - v);
            n++;
        } else {
            at += snprintf(out + at, size - (size_t)at, "%c", *p);
        }
    }
    return at >= 0 && (size_t)at < size ? at : (int)size - 1;
}

static const char *inside_of(const xd_single_file *s)
{
    return s->of.inside ? s->of.inside : "";
}

/* Returns 1 if the name of a declared tensor may differ from its name in the file. */
static int is_translated(const xd_single_file_of *of, const char *want)
{
    if (of->inside)
        return strncmp(want, of->inside, strlen(of->inside)) == 0;
    return !of->apart || strncmp(want, of->apart, strlen(of->apart)) != 0;
}

static int translate_name(const xd_single_file *s, const char *want, found *f)
{
    const xd_scope *scopes = s->layout->scopes;
    if (!is_translated(&s->of, want)) {
        *f = (found){ .stem = NULL };
        snprintf(f->name, sizeof f->name, "%s", want);
        return 1;
    }
    want += strlen(inside_of(s));
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

/* Returns 1 if files may have more blocks of the scope than the config. */
static int allows_more(const xd_scope *scope)
{
    return strstr(scope->have, "#+") != NULL;
}

int xd_single_file_surplus(const xd_single_file *s, const char *name)
{
    const xd_scope *scopes = s->layout->scopes;
    name += strlen(s->prefix);
    for (int k = 0; k < XD_MAXSCOPE && scopes[k].want; k++) {
        size_t len = strcspn(scopes[k].have, "#");
        if (allows_more(&scopes[k]) && strncmp(name, scopes[k].have, len) == 0 &&
            strspn(name + len, "0123456789") && atoi(name + len) >= s->blocks[k])
            return 1;
    }
    return 0;
}

/* ---- the source --------------------------------------------------------------------------- */

/* Returns the number of elements before the first row that a rule of the layout selects. */
static int64_t elements_before(xd_tensor t, const xd_stem *stem)
{
    return stem && stem->of ? xd_count(t) / stem->of * stem->at : 0;
}

/* Returns the shape of the rows that a rule of the layout selects. If the number of the tensor's
 * rows is not divisible, returns the tensor unchanged; its shape then causes an error. */
static xd_tensor select_rows(xd_tensor t, const xd_stem *stem)
{
    if (stem && !stem->of && stem->n && t.nd == 1 && t.d[0] % stem->n == 0)
        return xd_view(t.p, t.type, 2, (int64_t[]){ stem->n, t.d[0] / stem->n });
    if (!stem || !stem->of || t.nd < 1 || t.d[0] % stem->of)
        return t;
    int64_t d[XD_MAXDIM], first = elements_before(t, stem);
    memcpy(d, t.d, sizeof d);
    d[0] = t.d[0] / stem->of * stem->n;
    /* for a coded tensor, src_codes adds the offset of the first row */
    if (xd_is_coded(t.type))
        return xd_view(t.p, t.type, t.nd, d);
    return xd_view(t.p ? (char *)t.p + xd_dtype_bytes(t.type, first) : NULL, t.type, t.nd, d);
}

static int swaps_sides(const found *f)
{
    return f->stem && f->stem->swap == XD_SWAP_SIDES;
}

/* Returns the shape of the tensor that a rule of the layout makes of the file's tensor. */
static xd_tensor shape_of(xd_tensor t, const found *f)
{
    t = select_rows(t, f->stem);
    if (!swaps_sides(f) || t.nd != 2)
        return t;
    return xd_view(t.p, t.type, 2, (int64_t[]){ t.d[1], t.d[0] });
}

static int swaps_halves(const found *f)
{
    return f->stem &&
           (f->stem->swap == XD_SWAP_ALWAYS || (f->stem->swap == XD_SWAP_LAST && f->last));
}

static int swaps_pairs(const found *f)
{
    return f->stem && (f->stem->swap == XD_SWAP_QUERIES || f->stem->swap == XD_SWAP_KEYS);
}

/* A block type stores several elements together. Returns 1 if the selected rows, or their halves,
 * begin or end inside of a block; such rows are converted to f32. */
static int cuts_blocks(xd_tensor t, const found *f)
{
    const int64_t block = xd_dtype_block(t.type);
    const int     parts = f->stem && f->stem->of ? f->stem->of : swaps_halves(f) ? 2 : 1;
    if (block == 1)
        return 0;
    if (swaps_sides(f))
        return 1;
    return swaps_pairs(f) ? t.d[t.nd - 1] % block != 0 : xd_count(t) / parts % block != 0;
}

static int is_copied(xd_tensor t, const found *f)
{
    return !xd_is_coded(t.type) &&
           (swaps_halves(f) || swaps_pairs(f) || swaps_sides(f) || cuts_blocks(t, f));
}

static int src_has(void *self, const char *name, xd_tensor *shape)
{
    const xd_single_file *s = self;
    found                 f;
    xd_tensor             t;
    if (!translate_name(s, name, &f) || !s->of.raw->has(s->of.raw->self, f.name, &t))
        return 0;
    *shape = shape_of(t, &f);
    if (cuts_blocks(t, &f))
        shape->type = XD_F32;
    return 1;
}

/* Reorders the rows of attention heads. In the file, a head's rows alternate between the first half
 * and the second half of the head; in the result, the first half comes before the second half. */
static void part_pairs(char *to, const char *from, size_t row, int64_t rows, int64_t heads)
{
    const int64_t each = rows / heads, half = each / 2;
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = r % each;
        memcpy(to + (size_t)r * row,
               from + (size_t)(r - at + (at < half ? 2 * at : 2 * (at - half) + 1)) * row, row);
    }
}

/* Transposes a matrix of `rows` rows in the file, of elements of `size` bytes. */
static void swap_sides(char *to, const char *from, size_t size, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            memcpy(to + (size_t)(c * rows + r) * size, from + (size_t)(r * cols + c) * size, size);
}

static xd_status heads_of(const xd_single_file *s, const found *f, xd_tensor t, int64_t *heads,
                          xd_err *e)
{
    char        key[128];
    const char *arch = xd_st_meta(s->of.files, "general.architecture"), *value;
    const char *which = f->stem->swap == XD_SWAP_KEYS ? "_kv" : "";
    snprintf(key, sizeof key, "%.60s.attention.head_count%s", arch ? arch : "", which);
    if (!(value = xd_st_meta(s->of.files, key))) { /* default: number of query heads */
        snprintf(key, sizeof key, "%.60s.attention.head_count", arch ? arch : "");
        value = xd_st_meta(s->of.files, key);
    }
    *heads = value ? atoi(value) : 0;
    if (t.nd < 1 || *heads < 1 || t.d[0] % (2 * *heads))
        return xd_fail(e, XD_EFORMAT,
                       "%s: the %lld rows of %s are not divisible by %lld heads "
                       "(%s)",
                       s->of.file, (long long)t.d[0], f->name, (long long)*heads, key);
    return XD_OK;
}

/* Copies the selected rows to `to`, and changes their type or their order. */
static xd_status copy_rows(const xd_single_file *s, const found *f, xd_tensor t, xd_tensor to,
                           xd_err *e)
{
    const size_t n = xd_bytes(to), half = n / 2;
    const char  *from = t.p;
    char        *out = to.p, *plain = NULL;
    int64_t      heads = 1;
    xd_status    st = swaps_pairs(f) ? heads_of(s, f, t, &heads, e) : XD_OK;
    if (st != XD_OK)
        return st;
    if (swaps_halves(f) && (t.nd < 1 || t.d[0] % 2))
        return xd_fail(e, XD_EFORMAT, "%s: the %lld rows of %s are not divisible by 2", s->of.file,
                       (long long)t.d[0], f->name);
    if (cuts_blocks(t, f)) {
        if (!(plain = malloc(n + 1)))
            return xd_fail(e, XD_ENOMEM, "no memory for the %zu bytes of %s", n, f->name);
        xd_convert_at(plain, XD_F32, t.p, t.type, elements_before(t, f->stem), xd_count(to));
        from = plain;
    }
    if (swaps_sides(f) && t.nd == 2) {
        swap_sides(out, from, xd_dtype_bytes(to.type, 1), to.d[1], to.d[0]);
    } else if (swaps_pairs(f)) {
        part_pairs(out, from, n / (size_t)t.d[0], t.d[0], heads);
    } else {
        size_t cut = swaps_halves(f) ? half : 0;
        memcpy(out, from + cut, n - cut);
        memcpy(out + n - cut, from, cut);
    }
    free(plain);
    return XD_OK;
}

/* Makes a copy of the selected rows. The copy exists until src_done is called. */
static xd_status hold_copy(xd_single_file *s, const char *name, const found *f, xd_tensor *t,
                           xd_err *e)
{
    held     *h = NULL;
    xd_tensor to = shape_of(*t, f);
    if (cuts_blocks(*t, f))
        to.type = XD_F32;
    for (int i = 0; i < MAXHELD && !h; i++)
        h = s->held[i].p ? NULL : &s->held[i];
    if (!h || !(h->p = malloc(xd_bytes(to) + 1)))
        return xd_fail(e, XD_ENOMEM, "no memory for the %zu bytes of %s", xd_bytes(to), name);
    snprintf(h->name, sizeof h->name, "%s", name);
    to.p = h->p;
    xd_status st = copy_rows(s, f, *t, to, e);
    if (st != XD_OK) {
        free(h->p);
        h->p = NULL;
        return st;
    }
    *t = to;
    return XD_OK;
}

static xd_status src_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    xd_single_file  *s = self;
    const xd_source *raw = s->of.raw;
    found            f;
    if (!translate_name(s, name, &f))
        return xd_fail(e, XD_EFORMAT, "%s: tensor %s is missing", s->of.file, name);
    xd_status st = raw->get(raw->self, f.name, t, e);
    if (st != XD_OK)
        return st;
    if (!is_copied(*t, &f)) {
        *t = select_rows(*t, f.stem);
        return XD_OK;
    }
    st = hold_copy(s, name, &f, t, e);
    raw->done(raw->self, f.name);
    return st;
}

/* Returns 1 if the selected rows must be copied because their type or their order changes. */
static int reads_copy(const xd_single_file *s, const found *f)
{
    xd_tensor t;
    return s->of.raw->has(s->of.raw->self, f->name, &t) && is_copied(t, f);
}

static void src_done(void *self, const char *name)
{
    xd_single_file *s = self;
    found           f;
    for (int i = 0; i < MAXHELD; i++)
        if (s->held[i].p && strcmp(s->held[i].name, name) == 0) {
            free(s->held[i].p);
            s->held[i].p = NULL;
            return;
        }
    if (translate_name(s, name, &f) && !reads_copy(s, &f))
        s->of.raw->done(s->of.raw->self, f.name);
}

static xd_status scale_of(void *self, const char *name, float *scale, xd_err *e)
{
    const xd_single_file *s = self;
    const xd_source      *raw = s->of.raw;
    found                 f;
    *scale = 1;
    return translate_name(s, name, &f) && raw->scale ? raw->scale(raw->self, f.name, scale, e)
                                                     : XD_OK;
}

static int src_codes(void *self, const char *name, xd_coding *c)
{
    const xd_single_file *s = self;
    const xd_source      *raw = s->of.raw;
    found                 f;
    xd_tensor             t;
    if (!raw->codes || !translate_name(s, name, &f) || !raw->has(raw->self, f.name, &t) ||
        t.nd != 2 || swaps_pairs(&f) || swaps_sides(&f) || !raw->codes(raw->self, f.name, c))
        return 0;
    c->first = elements_before(t, f.stem) / t.d[1];
    c->rows = select_rows(t, f.stem).d[0];
    c->turn = swaps_halves(&f) ? c->rows / 2 : 0;
    return 1;
}

/* For a tensor that is read in place, releases the pages of the file. Does nothing for a copied
 * tensor. */
static void src_past(void *self, const char *name, const void *p, size_t bytes)
{
    const xd_single_file *s = self;
    const xd_source      *raw = s->of.raw;
    found                 f;
    if (raw->past && translate_name(s, name, &f) && !reads_copy(s, &f))
        raw->past(raw->self, f.name, p, bytes);
}

/* Announces that some bytes of the selected rows will be read. If the tensor is copied, announces
 * that all bytes of the tensor will be read. */
static void src_will(void *self, const char *name, int64_t first, int64_t n)
{
    const xd_single_file *s = self;
    const xd_source      *raw = s->of.raw;
    found                 f;
    xd_tensor             t;
    if (!raw->will || !translate_name(s, name, &f) || !raw->has(raw->self, f.name, &t))
        return;
    if (is_copied(t, &f))
        raw->will(raw->self, f.name, 0, xd_count(t));
    else
        raw->will(raw->self, f.name, first + elements_before(t, f.stem), n);
}

xd_source xd_single_file_source(xd_single_file *s)
{
    return (xd_source){ src_has, src_get,  src_done, s->of.raw->in_place,
                        s,       scale_of, src_past, src_will,
                        NULL,    NULL,     src_codes };
}

/* ---- finding the layout ------------------------------------------------------------------- */

/* Replaces @ in a prefix by the component's name: "text_encoders.@.transformer." becomes
 * "text_encoders.clip_l.transformer.". Returns 0 if the prefix is that of another component. */
static int fill_slot(const char *pattern, const char *slot, char out[64])
{
    const char *equal = strchr(pattern, '=');
    if (equal && (strncmp(pattern, slot, (size_t)(equal - pattern)) != 0 || slot[equal - pattern]))
        return 0;
    pattern = equal ? equal + 1 : pattern;
    int n = (int)strcspn(pattern, "@");
    snprintf(out, 64, "%.*s%s%s", n, pattern, pattern[n] ? slot : "",
             pattern[n] ? pattern + n + 1 : "");
    return 1;
}

static int has_marks(const xd_st *files, const xd_key_map *l, const char *prefix)
{
    char        name[256];
    const char *arch = xd_st_meta(files, "general.architecture");
    const char *archs = xd_key_map_archs(l);
    if (archs && !(arch && xd_list_has(archs, arch)))
        return 0;
    for (int i = 0; i < 3 && l->marks[i]; i++) {
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
            if (fill_slot(l->prefixes[k], slot, prefix) && has_marks(files, l, prefix)) {
                *at = i;
                return l;
            }
        }
    return NULL;
}

int xd_is_lora(const xd_st *files)
{
    static const char *const marks[] = { ".lora_A.",  ".lora_B.",    ".lora_down.",
                                         ".lora_up.", ".lora.down.", ".lora.up." };
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

/* Writes a GGUF file's architecture for a message. If the file has no such key, writes an empty
 * string. */
static void tell_architecture(const xd_st *files, char *out, size_t size)
{
    const char *arch = xd_st_meta(files, "general.architecture");
    out[0] = 0;
    if (arch)
        snprintf(out, size, " (its general.architecture is %.60s)", arch);
}

static xd_status fail_unknown(const xd_single_file_of *of, const xd_key_map *other, xd_err *e)
{
    char   names[512] = "", arch[160];
    size_t at = 0;
    tell_architecture(of->files, arch, sizeof arch);
    if (other)
        return xd_fail(e, XD_EINVAL, "%s holds %s%s, which cannot be used as the %s of this model",
                       of->file, other->what, arch, of->slot);
    if (xd_is_lora(of->files))
        return xd_fail(e, XD_EINVAL,
                       "%s holds a LoRA, not the weights of a %s: name it with "
                       "--lora",
                       of->file, of->slot);
    for (int64_t i = 0; i < xd_st_count(of->files) && i < FIRST && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%.100s", i ? ", " : "",
                               xd_st_name(of->files, i));
    return xd_fail(e, XD_EUNSUPPORTED,
                   "%s has no known layout for the %s of this model%s; its "
                   "%lld tensors begin with %s",
                   of->file, of->slot, arch, (long long)xd_st_count(of->files),
                   at ? names : "(none)");
}

/* Returns the layout of the network `of->net` whose marks the file has behind the prefix `inside`,
 * or NULL. */
static const xd_key_map *layout_inside(const xd_single_file_of *of)
{
    const xd_key_map *l;
    for (int i = 0; (l = xd_key_map_at(i)); i++)
        if (reads_network(l, of->net) && has_marks(of->files, l, of->inside))
            return l;
    return NULL;
}

int xd_single_file_fits(const xd_single_file_of *of)
{
    return layout_inside(of) != NULL;
}

static xd_status find_layout(xd_single_file *s, xd_err *e)
{
    const xd_key_map *l, *other = NULL;
    if (s->of.inside && (s->layout = layout_inside(&s->of))) {
        snprintf(s->prefix, sizeof s->prefix, "%s", s->of.inside);
        s->of.inside = s->prefix;
        return XD_OK;
    }
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

/* Returns the largest number of blocks that a tensor name in a list (separated by "|") shows, but
 * at least `most`. A name that begins with scope[0 .. len) shows one more block than the number
 * that follows. */
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

static int declared_blocks(const xd_single_file *s, const xd_declared *list, int n,
                           const xd_scope *scope)
{
    char   begin_[128];
    int    most = 0;
    size_t len = strcspn(scope->want, "#");
    snprintf(begin_, sizeof begin_, "%s%.*s", inside_of(s), (int)len, scope->want);
    for (int i = 0; i < n && scope->want[len]; i++)
        most = count_in(list[i].name, strlen(begin_), begin_, most);
    return most;
}

static int file_blocks(const xd_single_file *s, const xd_scope *scope)
{
    char begin_[128];
    int  most = 0;
    snprintf(begin_, sizeof begin_, "%s%.*s", s->prefix, (int)strcspn(scope->have, "#~"),
             scope->have);
    for (int64_t i = 0; i < xd_st_count(s->of.files); i++)
        most = count_in(xd_st_name(s->of.files, i), strlen(begin_), begin_, most);
    return most;
}

/* Refuses a file whose number of blocks is not that of the config. Without this check, surplus
 * blocks of the file would silently be unused, and missing blocks would be reported tensor by
 * tensor. The file may lack blocks that are never run. */
static xd_status check_blocks(xd_single_file *s, xd_err *e)
{
    const xd_scope *scopes = s->layout->scopes;
    for (int k = 0; k < XD_MAXSCOPE && scopes[k].want; k++) {
        int n = s->blocks[k] = declared_blocks(s, s->of.list, s->of.nlist, &scopes[k]);
        int have = file_blocks(s, &scopes[k]);
        int need = declared_blocks(s, s->of.needed, s->of.nneeded, &scopes[k]);
        if (strchr(scopes[k].want, '#') && ((have > n && !allows_more(&scopes[k])) || have < need))
            return xd_fail(e, XD_EFORMAT, "%s has %d blocks %s%.*s*, but %s/config.json has %d",
                           s->of.file, have, s->prefix, (int)strcspn(scopes[k].have, "#~"),
                           scopes[k].have, s->of.config, n);
    }
    return XD_OK;
}

/* Refuses a language model that needs a vision tower and has none in its file; llama.cpp stores the
 * vision tower in a separate file. */
static xd_status check_tower(const xd_single_file *s, xd_err *e)
{
    for (int i = 0; xd_key_map_archs(s->layout) && i < s->of.nneeded; i++)
        if (strncmp(s->of.needed[i].name, "visual.", 7) == 0)
            return xd_fail(e, XD_EUNSUPPORTED,
                           "%s has a language model without its vision tower, "
                           "which this model needs; the mmproj file of llama.cpp is not supported: "
                           "use the safetensors file of the %s",
                           s->of.file, s->of.slot);
    return XD_OK;
}

/* If the file stores rows in the pairs that RoPE rotates together, checks that the number of rows
 * is divisible by the number of heads in the file. */
static xd_status check_heads(const xd_single_file *s, xd_err *e)
{
    for (int i = 0; i < s->of.nneeded; i++)
        for (const char *p = s->of.needed[i].name; p; p = (p = strchr(p, '|')) ? p + 1 : NULL) {
            char      name[512];
            found     f;
            xd_tensor t;
            int64_t   heads;
            snprintf(name, sizeof name, "%.*s", (int)strcspn(p, "|"), p);
            if (!translate_name(s, name, &f) || !swaps_pairs(&f) ||
                !s->of.raw->has(s->of.raw->self, f.name, &t))
                continue;
            xd_status st = heads_of(s, &f, t, &heads, e);
            if (st != XD_OK)
                return st;
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
        st = check_tower(s, e);
    if (st == XD_OK)
        st = check_blocks(s, e);
    if (st == XD_OK)
        st = check_heads(s, e);
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
