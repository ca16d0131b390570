/* store.c - allocates the memory of loaded weights, and searches weights for NaN and infinity.
 *
 * Large weights have separate memory blocks; small weights (biases, norms) share blocks of 1 MiB.
 * In a block that several processes share, all weights are adjacent. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/par.h"
#include "base/rng.h"
#include "exec/matrix.h"

enum { CHUNK = 1 << 20 }; /* bytes of a shared block of small weights */

typedef struct block {
    void  *p;
    size_t bytes;
} block;

typedef struct owned { /* object that is closed with the store */
    void *object;
    void  (*close)(void *object);
} owned;

struct xd_store {
    xd_dev  *dev;
    owned   *owned;
    int      nowned, cap_owned;
    block   *blocks;
    int      n, cap;
    xd_arena small;
    size_t   bytes;
    block    scratch[2];
    xd_arena window;      /* block shared with other processes; base NULL: none */
    int      part, parts; /* the block has `parts` equal shares; this process fills share `part` */
    int      idle;        /* 1: another process fills the requested weights */
};

xd_status xd_store_open(xd_store **s, xd_dev *dev, xd_err *e)
{
    if (!(*s = calloc(1, sizeof **s)))
        return xd_fail(e, XD_ENOMEM, "no memory for a weight store");
    (*s)->dev = dev;
    return XD_OK;
}

static void *own_block(xd_store *s, size_t bytes)
{
    if (s->n == s->cap) {
        int    cap = s->cap ? 2 * s->cap : 64;
        block *b = realloc(s->blocks, (size_t)cap * sizeof *b);
        if (!b)
            return NULL;
        s->blocks = b;
        s->cap = cap;
    }
    void *p = s->dev->mem->get(s->dev, bytes);
    if (!p)
        return NULL;
    s->blocks[s->n++] = (block){ p, bytes };
    s->bytes += bytes;
    return p;
}

size_t xd_store_block_bytes(size_t bytes)
{
    return ((bytes ? bytes : 1) + XD_ALIGN - 1) / XD_ALIGN * XD_ALIGN;
}

void xd_store_use_block(xd_store *s, void *base, size_t bytes, int part, int parts)
{
    xd_arena_init(&s->window, base, bytes);
    s->part = part;
    s->parts = parts;
}

void *xd_store_own_block(xd_store *s, size_t bytes, size_t beside)
{
    size_t window = xd_store_block_bytes(bytes);
    char  *p = own_block(s, window + beside);
    /* counts only the extra bytes: each weight in the block is counted when it is allocated */
    s->bytes = beside;
    if (!p)
        return NULL;
    xd_store_use_block(s, p, window, 0, 1);
    return p + window;
}

xd_arena xd_store_swap_block(xd_store *s, void *base, size_t bytes, const xd_arena *back)
{
    xd_arena before = s->window;
    if (back) {
        /* The weights in the current block are subtracted, because the memory of this block was
         * already counted when the block was allocated. */
        s->bytes -= s->window.used;
        s->window = *back;
    } else {
        xd_arena_init(&s->window, base, bytes);
    }
    return before;
}

void xd_store_fills(xd_store *s, int fills)
{
    s->idle = !fills;
}

/* Allocates a weight in the block shared with other processes. The block is divided into equal
 * shares, one per process, and each process fills the weights that begin in its share. Each process
 * thus fills about the same number of bytes, and reads a contiguous part of the file. */
static void *get_from_block(xd_store *s, size_t bytes, int *mine)
{
    size_t at = xd_arena_mark(&s->window), room = xd_store_block_bytes(bytes);
    void  *p = xd_arena_get(&s->window, room);
    *mine = *mine && (int)((double)at / (double)s->window.cap * s->parts) == s->part;
    s->bytes += p ? room : 0;
    return p;
}

static void *get_from_device(xd_store *s, size_t bytes)
{
    if (bytes >= CHUNK / 4)
        return own_block(s, bytes);
    void *p = s->small.base ? xd_arena_get(&s->small, bytes ? bytes : 1) : NULL;
    if (p)
        return p;
    void *chunk = own_block(s, CHUNK);
    if (!chunk)
        return NULL;
    xd_arena_init(&s->small, chunk, CHUNK);
    return xd_arena_get(&s->small, bytes ? bytes : 1);
}

void *xd_store_get(xd_store *s, size_t bytes, int *mine)
{
    *mine = !s->idle;
    return s->window.base ? get_from_block(s, bytes, mine) : get_from_device(s, bytes);
}

/* Returns 1 if a scratch buffer must be in host memory. Scratch buffer 1 is written by the host, so
 * it is in host memory if the host cannot address device memory. */
static int in_host_memory(const xd_store *s, int slot)
{
    return slot == 1 && !s->dev->host_memory;
}

static void drop_scratch(xd_store *s, int slot)
{
    block *b = &s->scratch[slot];
    if (in_host_memory(s, slot))
        free(b->p);
    else if (b->p)
        s->dev->mem->put(s->dev, b->p, b->bytes);
    *b = (block){ 0 };
}

void *xd_store_scratch(xd_store *s, int slot, size_t bytes)
{
    block *b = &s->scratch[slot];
    if (b->p && b->bytes >= bytes)
        return b->p;
    drop_scratch(s, slot);
    b->p = in_host_memory(s, slot) ? malloc(bytes) : s->dev->mem->get(s->dev, bytes);
    b->bytes = b->p ? bytes : 0;
    return b->p;
}

void xd_store_trim(xd_store *s)
{
    for (int i = 0; i < 2; i++)
        drop_scratch(s, i);
}

size_t xd_store_bytes(const xd_store *s)
{
    return s ? s->bytes : 0;
}

int xd_store_owns(xd_store *s, void *object, void (*close)(void *object))
{
    if (s->nowned == s->cap_owned) {
        int    cap = s->cap_owned ? 2 * s->cap_owned : 64;
        owned *o = realloc(s->owned, (size_t)cap * sizeof *o);
        if (!o) {
            close(object);
            return 0;
        }
        s->owned = o;
        s->cap_owned = cap;
    }
    s->owned[s->nowned++] = (owned){ object, close };
    return 1;
}

void xd_store_close(xd_store **s)
{
    if (!s || !*s)
        return;
    xd_store_trim(*s);
    for (int i = 0; i < (*s)->nowned; i++)
        (*s)->owned[i].close((*s)->owned[i].object);
    free((*s)->owned);
    for (int i = 0; i < (*s)->n; i++)
        (*s)->dev->mem->put((*s)->dev, (*s)->blocks[i].p, (*s)->blocks[i].bytes);
    free((*s)->blocks);
    free(*s);
    *s = NULL;
}

/* ---- non-finite and random elements ------------------------------------------------------- */

typedef struct scan {
    xd_tensor t;
    int      *bad;
} scan;

enum { RUN = 1 << 14 }; /* number of elements that are scanned before the scan may stop early */

/* Returns 1 if the exponent bits of an element are all ones (NaN or infinity). The accumulator has
 * the same width as the elements, so that the compiler can use complete vector registers. Elements
 * are read with memcpy, as a mapped tensor may be unaligned. */
static int bad_halves(const char *p, int64_t n, uint16_t mask)
{
    uint16_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t v;
        memcpy(&v, p + 2 * i, sizeof v);
        bad |= (uint16_t)((v & mask) == mask);
    }
    return bad;
}

static int bad_words(const char *p, int64_t n)
{
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t v;
        memcpy(&v, p + 4 * i, sizeof v);
        bad |= (uint32_t)((v & 0x7f800000u) == 0x7f800000u);
    }
    return (int)bad;
}

static void scan_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    const scan   *s = ctx;
    const int64_t size = (int64_t)xd_dtype_size(s->t.type);
    (void)thread;
    for (int64_t i = begin, n; i < end && !__atomic_load_n(s->bad, __ATOMIC_RELAXED); i += n) {
        const char *p = (const char *)s->t.p + i * size;
        int         bad = 0;
        n = end - i < RUN ? end - i : RUN;
        if (s->t.type == XD_BF16 || s->t.type == XD_F16)
            bad = bad_halves(p, n, s->t.type == XD_BF16 ? 0x7f80u : 0x7c00u);
        else if (s->t.type == XD_F32)
            bad = bad_words(p, n);
        else if (xd_dtype_block(s->t.type) > 1)
            bad = isnan(xd_load_most(s->t, i, n, 1));
        if (bad)
            __atomic_store_n(s->bad, 1, __ATOMIC_RELAXED);
    }
}

int xd_nonfinite(xd_tensor t)
{
    int  bad = 0;
    scan s = { t, &bad };
    if (xd_count(t) < 1 << 16)
        scan_range(&s, 0, xd_count(t), 0);
    else
        xd_par_for(xd_count(t), scan_range, &s);
    return bad;
}

float xd_random_weight(uint64_t name_hash, uint64_t i)
{
    uint64_t h = xd_hash_mix(name_hash, i);
    /* uniformly distributed, with variance 1 */
    return ((float)(h >> 40) * (1.0f / 8388608.0f) - 1.0f) * 1.7320508f;
}
