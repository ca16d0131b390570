/* plan.c - splits an attention call into blocks of queries, blocks of keys and groups of key
 * heads */
#include "backend/cpu/attn/plan.h"

#include "backend/cpu/attn/attn.h"
#include "base/arena.h"
#include "base/minmax.h"

/* normal limit of the bytes of packed keys and values of a group of (batch, key head) pairs */
static const size_t group_bytes = (size_t)32 << 20;
/* maximum bytes of packed keys and values of a group if there are many threads */
static const size_t group_limit = (size_t)512 << 20;

static size_t align_bytes(size_t bytes)
{
    return (bytes + XD_ALIGN - 1) / XD_ALIGN * XD_ALIGN;
}

/* Splits the queries into blocks of equal size. The size is halved while there are fewer than two
 * blocks per thread. The size of a block of queries changes no result, because query rows are
 * independent. */
static void cut_rows(xd_attn_plan *p, int threads, int tiles)
{
    int64_t most = tiles ? XD_ATTN_TILE_ROWS : XD_ATTN_ROWS, step = tiles ? XD_ATTN_STRIP : 12;
    while (tiles && most > step && most * (p->ldq + p->dp) * 4 > XD_ATTN_TILE_BYTES)
        most /= 2;
    p->max_rows = most + step;
    while (most > (tiles ? step : 2 * step) &&
           p->B * p->H * xd_ceil_div(p->n, most) < 2 * (int64_t)threads)
        most /= 2;
    p->blocks = xd_ceil_div(p->n, most);
    p->rows = 0;
    if (p->blocks)
        p->rows = xd_min(xd_round_up(xd_ceil_div(p->n, p->blocks), step), p->max_rows - step);
    p->blocks = p->rows ? xd_ceil_div(p->n, p->rows) : 0;
}

/* Splits the keys into blocks of equal size. For each query row, a short last key block would take
 * almost as much time as a full block. */
static void cut_keys(xd_attn_plan *p, const xd_attn_form *f)
{
    int64_t most = f->tiles ? XD_ATTN_TILE_KEYS : f->quads ? XD_ATTN_INT_KEYS : XD_ATTN_KEYS;
    int64_t blocks = xd_ceil_div(p->m, most);
    p->keys = blocks ? xd_round_up(xd_ceil_div(p->m, blocks), 64) : most;
    p->kblocks = xd_ceil_div(p->m, p->keys);
}

/* Chooses the number of (batch, key head) pairs that are packed together as a group. A group
 * normally has as many pairs as fit into group_bytes. If these pairs have fewer than eight query
 * blocks per thread, the group may grow to group_limit bytes. */
static void cut_group(xd_attn_plan *p, int threads)
{
    int64_t pairs = p->B * p->Hk, per = p->rep * p->blocks;
    int64_t fit = p->pair_bytes ? (int64_t)(group_bytes / p->pair_bytes) : pairs;
    int64_t limit = p->pair_bytes ? (int64_t)(group_limit / p->pair_bytes) : pairs;
    int64_t want = per ? xd_ceil_div(8 * (int64_t)threads, per) : 1;
    int64_t g = fit > want ? fit : xd_min(want, limit);
    g = g < 1 ? 1 : xd_min(g, pairs);
    p->group = pairs ? xd_ceil_div(pairs, xd_ceil_div(pairs, g)) : 0;
}

int xd_attn_in_int8(const xd_attn_args *a)
{
    return a->int8 && !a->bias.p && !a->window && !a->causal && !(a->softcap > 0) &&
           a->scale > 1e-20f;
}

void xd_attn_cut(xd_attn_plan *p, const xd_attn_args *a, int threads, const xd_attn_form *f)
{
    const int64_t lanes = f->lanes;
    *p = (xd_attn_plan){ .B = a->q.d[0], .n = a->q.d[1], .H = a->q.d[2], .D = a->q.d[3] };
    p->Hk = xd_attn_heads_kv(a);
    p->m = xd_attn_keys(a);
    p->rep = p->Hk ? p->H / p->Hk : 0;
    p->du = f->quads ? xd_ceil_div(p->D, 4) : f->pairs ? xd_ceil_div(p->D, 2) : p->D;
    p->ldq = xd_round_up(p->du, lanes);
    p->kdu = f->tiles ? p->ldq : p->du;
    p->dp = xd_round_up(p->D > 0 ? p->D : 1, lanes);
    cut_rows(p, threads, f->tiles);
    cut_keys(p, f);
    int64_t keys = f->tiles ? p->keys
                            : xd_min(xd_round_up(p->m, f->quads ? 2 * lanes : lanes), p->keys);
    p->scales = keys * p->kdu;
    p->kunits = p->scales + (f->quads ? keys / 2 + lanes : 0);
    p->vunits = (f->pairs ? xd_ceil_div(keys, 2) : keys) * p->dp;
    p->knext = p->kunits + (f->tiles ? 0 : p->vunits);
    int64_t vblocks =
        f->tiles ? xd_round_up(p->kblocks, XD_ATTN_PART * XD_ATTN_STEP_KEYS / XD_ATTN_TILE_KEYS)
                 : p->kblocks;
    p->lengths = p->kunits * p->kblocks + p->vunits * vblocks;
    p->means = p->lengths;
    p->pair_bytes = align_bytes((size_t)(p->lengths + (f->tiles   ? p->kblocks
                                                       : f->quads ? p->dp
                                                                  : 0)) *
                                4);
    cut_group(p, threads);
    size_t rows = (size_t)p->max_rows, scores = rows * XD_ATTN_LDS;
    if (f->tiles)
        scores = XD_ATTN_WORKSPACE;
    if (f->quads)
        scores = rows * XD_ATTN_INT_LDS;
    p->q = 0;
    p->s = p->q + align_bytes(rows * (size_t)p->ldq * 4);
    p->o = p->s + align_bytes(scores * 4);
    p->ml = p->o + align_bytes(rows * (size_t)p->dp * 4);
    p->thread_bytes =
        p->ml + align_bytes(rows * (3 + 2 * (size_t)lanes + (f->quads ? XD_ATTN_INT_ROW : 0)) * 4);
    p->bytes = p->thread_bytes * (size_t)threads + p->pair_bytes * (size_t)p->group;
}

size_t xd_attn_bytes(const xd_attn_args *a, int threads, const xd_attn_form *f)
{
    xd_attn_plan p;
    if (xd_attn_check(a, XD_TYPES_F32_BF16) != XD_OK)
        return 0;
    xd_attn_cut(&p, a, threads, f);
    return p.bytes;
}

int64_t xd_attn_len(const xd_attn_args *a, int64_t b, int64_t m)
{
    if (!a->kv_len || a->kv_len[b] > m)
        return m;
    return a->kv_len[b] > 0 ? a->kv_len[b] : 0;
}

void xd_attn_range(const xd_attn_args *a, int64_t i, int64_t m, int64_t *lo, int64_t *hi)
{
    *lo = a->window && i > a->window ? i - a->window : 0;
    *hi = a->window && a->window < m - i ? i + a->window + 1 : m;
    if (a->causal)
        *hi = xd_min(*hi, i + 1);
    *hi = xd_min(*hi, m);
    *lo = xd_min(*lo, *hi);
}

static char *row_of(const xd_tensor *t, int64_t b, int64_t j, int64_t h)
{
    return (char *)t->p +
           (b * t->s[0] + j * t->s[1] + h * t->s[2]) * (int64_t)xd_dtype_size(t->type);
}

void xd_attn_rows(const xd_attn_args *a, int64_t b, int64_t h, int64_t j0, int64_t n,
                  const char **k, const char **v)
{
    int64_t first = 0; /* position of the segment's first key in the order of all keys */
    for (int i = 0; i < a->nkv; i++) {
        const xd_kv *s = &a->kv[i];
        int64_t      end = first + s->k.d[1];
        for (int64_t j = j0 > first ? j0 : first; j < end && j < j0 + n; j++) {
            k[j - j0] = row_of(&s->k, b, j - first, h);
            v[j - j0] = row_of(&s->v, b, j - first, h);
        }
        first = end;
    }
}

/* Writes the addresses of rows i to i + n - 1 to `to`. Does nothing if `to` is NULL. */
static void put_rows(const xd_tensor *t, int64_t b, int64_t h, int64_t i, int64_t n, char **to)
{
    const int64_t step = t->s[1] * (int64_t)xd_dtype_size(t->type);
    char         *row = to ? row_of(t, b, i, h) : NULL;
    for (int64_t r = 0; to && r < n; r++, row += step)
        to[r] = row;
}

void xd_attn_queries(const xd_attn_args *a, int64_t b, int64_t h, int64_t i0, int64_t n,
                     const char **q, char **out)
{
    const xd_qo whole = { a->q, a->out }, *s = a->nparts ? a->part : &whole;
    for (int64_t done = 0, some; done < n; done += some, i0 += some - s->q.d[1], s++) {
        some = i0 < s->q.d[1] ? xd_min(s->q.d[1] - i0, n - done) : 0;
        put_rows(&s->q, b, h, i0, some, q ? (char **)(void *)(q + done) : NULL);
        put_rows(&s->out, b, h, i0, some, out ? out + done : NULL);
    }
}
