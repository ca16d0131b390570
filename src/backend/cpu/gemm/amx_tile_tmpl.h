/* amx_tile_tmpl.h - runs the loops of the AMX GEMMs, with blocks as in amx_block.h.
 *
 * The header amx_block.h explains the words step, strip, chunk and register block.
 *
 * The including file defines TILE_DOT, which is the tile multiply, and one of the following names:
 *   TILED_IN_PLACE   a macro, if the packed weights already have the layout of amx_block.h; or
 *   weights_at       a function that returns the address of packed step k of a strip. A packed step
 *                    of weights takes at most XD_PAIR_BYTES bytes. A file with weights_at also
 *                    defines expand_step, which expands step k of a chunk of weights to tiles.
 *
 * Tile multiplies leave the other execution units of a core idle. During tile multiplies, the loops
 * prefetch later data, expand the weights of the next step, and run the epilogue (finish.h) of the
 * previous register block. */
#ifndef XD_BACKEND_CPU_GEMM_AMX_TILE_TMPL_H
#define XD_BACKEND_CPU_GEMM_AMX_TILE_TMPL_H

#include "backend/cpu/amx.h"
#include "backend/cpu/gemm/amx_block.h"
#include "backend/cpu/gemm/finish.h"
#include "backend/cpu/gelu.h"
#include "base/minmax.h"
#include "base/par.h"

#ifdef TILED_IN_PLACE
static inline const char *weights_at(const xd_amx_job *t, int64_t strip, int64_t k)
{
    return t->of.w + (strip * t->steps + k) * XD_PAIR_BYTES;
}
#endif

enum {
    /* uses_streaming_stores() may return 1 if the output has more bytes per thread than this */
    STREAMED = 2 << 20,
    QUAD_BYTES = 256, /* bytes of weights that are prefetched at a time: four cache lines */
};

/* A strip of 32 output columns, beginning with column c, whose epilogue is deferred. */
typedef struct deferred_strip {
    int64_t     c, vectors;
    /* Offsets from the first to the last byte of 32 columns of a row: out_more in the output,
     * res_more in the residual. The offset is 0 if the columns of every row are within one 128-byte
     * pair of cache lines. */
    int64_t     out_more, res_more;
    int         streams; /* 1: output is stored non-temporally */
    finish_cols cols[2];
} deferred_strip;

/* The deferred epilogue of a register block: the accumulators of n rows of a strip, and the output
 * to which the epilogue writes. The field `done` is the index of the next row that the deferred
 * epilogue processes. */
typedef struct deferred {
    const float          *sums;
    int64_t               n, done, out_step, res_step;
    const deferred_strip *strip;
    const float          *row; /* scales of the rows, or NULL */
    char                 *out;
    const char           *res; /* address of the residual, or NULL */
} deferred;

/* Arguments of run_block: one chunk of a register block of 32 rows by 32 columns. */
typedef struct block {
    const char     *a, *b;
    const float    *from; /* accumulators of earlier chunks; NULL: start at 0 */
    /* destination of the previous register block's accumulators, which are still in tile registers;
     * NULL: nothing is stored */
    float          *to;
    /* number of steps (XD_STEP_BYTES of each row) in the chunk, and number of rows in the register
     * block */
    int64_t         ks, n;
    /* Packed weights that are expanded to `b` before the multiplication; NULL: `b` already has the
     * weights as tiles. `left` is the number of bytes from the beginning of this chunk of weights
     * to the end of an input row. */
    const char     *packed;
    int64_t         left;
    const char     *next; /* address of weights to prefetch, `quads` * QUAD_BYTES bytes */
    int64_t         quads;
    /* Epilogue that follows this chunk of weights and whose output is prefetched; NULL: no epilogue
     * follows. */
    const deferred *output;
} block;

/* ---- epilogue during tile multiplies ------------------------------------------------------ */

/* Stores 32 columns of an output row. If the columns are a complete cache line of bf16, one
 * instruction stores the columns. If `streams` is 1, put_row uses non-temporal stores. */
FINISH_INLINE void put_row(char *out, xd_dtype to, const finish_cols *k, int streams, __m512 x,
                           __m512 y)
{
    const __m512i bf16 = (__m512i)_mm512_cvtne2ps_pbh(y, x);
    if (streams && to == XD_BF16) {
        _mm512_stream_si512((void *)out, bf16);
    } else if (streams) {
        _mm512_stream_ps((void *)out, x);
        _mm512_stream_ps((void *)(out + 64), y);
    } else if (to == XD_BF16 && k[1].m == 0xffff) {
        _mm512_storeu_si512(out, bf16);
    } else {
        put_at(out, to, k[0].m, x);
        put_at(out + 16 * size_of(to), to, k[1].m, y);
    }
}

/* Computes the epilogue like finish_vector(), but with the GELU of gelu.h if `brief` is 1. */
FINISH_INLINE __m512 deferred_sums(const finish_way *w, const float *sum, const float *row,
                                   const finish_cols *k, const char *res, int brief)
{
    return brief ? add_residual(w, brief_gelu(scale_sums(w, sum, row, k)), k, res)
                 : finish_vector(w, sum, row, k, res);
}

/* Runs the deferred epilogue of the next `rows` rows, or of all remaining rows. Tile loads and
 * vector loads share the load ports, so values that all rows need are kept in registers. The AMX
 * instruction multiplies signed inputs by signed weights, so integer sums need no correction, and
 * the field `fix` is set to 0. */
FINISH_INLINE void finish_deferred_as(const xd_gemm_job *p, deferred *l, int64_t rows, xd_dtype to,
                                      xd_dtype from, xd_act act, int brief)
{
    const deferred_strip *s = l->strip;
    const finish_way      w = way_of(p, from, act);
    finish_cols           k[2] = { s->cols[0], s->cols[1] };
    const int64_t         end = l->n - l->done < rows ? l->n : l->done + rows, step = l->out_step,
                          res_step = l->res_step;
    const int             wide = s->vectors > 1, past = s->streams;
    const float          *sums = l->sums, *row = l->row;
    char                 *out = l->out + l->done * step;
    const char           *res = l->res ? l->res + l->done * res_step : NULL;
    k[0].fix = k[1].fix = v_integers(NULL);
    for (int64_t i = l->done; i < end; i++, out += step) {
        const float *at = sums + i * 16 + (i & 16) * 16, *scale = row ? row + i : NULL;
        const char  *more = res ? res + 16 * size_of(from) : NULL;
        const __m512 x = deferred_sums(&w, at, scale, &k[0], res, brief);
        if (wide)
            put_row(out, to, k, past, x, deferred_sums(&w, at + 256, scale, &k[1], more, brief));
        else
            put_at(out, to, k[0].m, x);
        res = res ? res + res_step : NULL;
    }
    l->done = end;
}

typedef void deferred_fn(const xd_gemm_job *p, deferred *l, int64_t rows);

#define ALL_ACTS(X)                                                                                \
    X(XD_NONE) X(XD_GELU_TANH) X(XD_GELU_ERF) X(XD_SILU) X(XD_RELU) X(XD_GELU_QUICK) X(XD_TANH)   \
    X(XD_SIGMOID)
#define DEFERRED_WITH(act)                                                                         \
    static void deferred_##act(const xd_gemm_job *p, deferred *l, int64_t rows)                    \
    {                                                                                              \
        finish_deferred_as(p, l, rows, p->a->out.type, p->a->residual.type, act, 0);               \
    }
ALL_ACTS(DEFERRED_WITH)

/* Variants of the deferred epilogue for the common cases. Each variant needs fewer instructions per
 * row than finish_deferred_as with variable flags, so more rows fit into the processor's
 * out-of-order window. */
#define DEFERRED_TYPES(name, type, act, brief)                                                     \
    static void name(const xd_gemm_job *p, deferred *l, int64_t rows)                              \
    {                                                                                              \
        finish_deferred_as(p, l, rows, type, type, act, brief);                                    \
    }
DEFERRED_TYPES(deferred_bf16, XD_BF16, XD_NONE, 0)
DEFERRED_TYPES(deferred_floats, XD_F32, XD_NONE, 0)
DEFERRED_TYPES(deferred_gelu, XD_BF16, XD_GELU_TANH, 1)

static deferred_fn *deferred_fn_of(const xd_gemm *a)
{
    const xd_dtype to = a->out.type, from = a->residual.p ? a->residual.type : to;
    if (a->act == XD_NONE && to == from)
        return to == XD_BF16 ? deferred_bf16 : deferred_floats;
    if (a->act == XD_GELU_TANH && to == XD_BF16 && from == XD_BF16)
        return deferred_gelu;
    switch (a->act) {
#define DEFERRED_CASE(act)                                                                         \
    case act: return deferred_##act;
        ALL_ACTS(DEFERRED_CASE)
    default: return deferred_XD_NONE;
    }
}

/* Returns the offset from the first to the last byte of `width` columns from column c on. Returns 0
 * if the bytes of the `width` columns are within one pair of cache lines in every row of the
 * matrix. The processor fetches cache lines in pairs of 128 bytes. */
static int64_t pair_after(const xd_tensor *t, int64_t c, int64_t width)
{
    const int64_t size = size_of(t->type);
    if (!t->p)
        return 0;
    const int64_t at = (int64_t)((uintptr_t)place_of(t, 0, c) % 128);
    return t->s[0] * size % 128 != 0 || at + width * size > 128 ? width * size - 1 : 0;
}

static deferred_strip strip_of(const xd_amx_job *t, int64_t c)
{
    const int64_t  width = t->of.N - c < XD_SIDE ? t->of.N - c : XD_SIDE;
    deferred_strip s = { .c = c,
                         .vectors = (width + 15) / 16,
                         .streams = t->streams && width == XD_SIDE,
                         .out_more = pair_after(&t->of.a->out, c, width),
                         .res_more = pair_after(&t->of.a->residual, c, width) };
    s.cols[0] = columns_from(&t->of, c);
    if (s.vectors > 1)
        s.cols[1] = columns_from(&t->of, c + 16);
    return s;
}

static inline deferred deferred_of(const xd_amx_job *t, const deferred_strip *s, const float *sums,
                                   int64_t r, int64_t n)
{
    const xd_gemm *a = t->of.a;
    return (deferred){ .sums = sums,
                       .n = n,
                       .strip = s,
                       .out = place_of(&a->out, r, s->c),
                       .out_step = a->out.s[0] * size_of(a->out.type),
                       .res_step = a->residual.s[0] * size_of(a->residual.type),
                       .row = t->of.row ? t->of.row + r : NULL,
                       .res = a->residual.p ? place_of(&a->residual, r, s->c) : NULL };
}

/* ---- tile multiplies ---------------------------------------------------------------------- */

/* Stores accumulator tile i of the previous register block to `to`, unless `to` is NULL. After the
 * store, RENEW_SUM sets the tile to the accumulators at `from`, or to zero if `from` is NULL. */
#define RENEW_SUM(i, from, to)                                                                     \
    do {                                                                                           \
        if (to)                                                                                    \
            _tile_stored(i, (to) + (i)*256, 64);                                                   \
        if (from)                                                                                  \
            _tile_loadd(i, (from) + (i)*256, 64);                                                  \
        else                                                                                       \
            _tile_zero(i);                                                                         \
    } while (0)

/* Multiplies the first step of a register block. The previous register block's accumulators are
 * stored between its tile multiplies. Storing all accumulators at the end of a register block would
 * stall the tile multiplies. If `from` equals `to`, the accumulators stay in their tile
 * registers. */
FINISH_INLINE void first_step(const char *a, const char *b, const float *from, float *to, int more)
{
    const int stay = from && from == to;
    _tile_stream_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    if (!stay)
        RENEW_SUM(0, from, to);
    TILE_DOT(0, 4, 6);
    _tile_loadd(7, b + 1024, 64);
    if (!stay)
        RENEW_SUM(1, from, to);
    TILE_DOT(1, 4, 7);
    if (more)
        _tile_stream_loadd(5, a + 1024, 64);
    if (!stay)
        RENEW_SUM(2, from, to);
    if (more)
        TILE_DOT(2, 5, 6);
    if (!stay)
        RENEW_SUM(3, from, to);
    if (more)
        TILE_DOT(3, 5, 7);
}

/* Multiplies one step (XD_STEP_BYTES of each row) of 32 rows and 32 columns. Input rows are loaded
 * with a streaming hint, so that they do not evict the chunk of weights from the L1 cache. */
FINISH_INLINE void step_of_tiles(const char *a, const char *b, int more)
{
    _tile_stream_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    TILE_DOT(0, 4, 6);
    _tile_loadd(7, b + 1024, 64);
    TILE_DOT(1, 4, 7);
    if (!more)
        return;
    _tile_stream_loadd(5, a + 1024, 64);
    TILE_DOT(2, 5, 6);
    TILE_DOT(3, 5, 7);
}

FINISH_INLINE void store_sums(float *to)
{
    _tile_stored(0, to, 64);
    _tile_stored(1, to + 256, 64);
    _tile_stored(2, to + 512, 64);
    _tile_stored(3, to + 768, 64);
}

/* Rows to prefetch, which are `step` bytes apart. The first cache line of each row to prefetch is
 * prefetched; p is the address of the first row. If `more` is not 0, the cache line `more` bytes
 * after the start of each row is prefetched as well. */
typedef struct asked {
    const char *p;
    int64_t     step, more;
} asked;

#define PREFETCH_ROWS(name, hint)                                                                  \
    FINISH_INLINE void name(asked *a, int64_t n)                                                   \
    {                                                                                              \
        for (const char *end = a->p + n * a->step; a->p != end; a->p += a->step) {                 \
            _mm_prefetch(a->p, hint);                                                              \
            if (a->more)                                                                           \
                _mm_prefetch(a->p + a->more, hint);                                                \
        }                                                                                          \
    }
PREFETCH_ROWS(prefetch_rows_to_read, _MM_HINT_T0)
/* Prefetches rows for writing, which invalidates copies of the rows' cache lines in other cores. */
PREFETCH_ROWS(prefetch_rows_to_write, _MM_HINT_ET0)

/* Prefetches four consecutive cache lines with two instructions. The processor's adjacent-line
 * prefetcher fetches two of the four cache lines without an instruction, and can have more requests
 * pending than software prefetch. */
FINISH_INLINE void ask_quad(const char *p)
{
    _mm_prefetch(p, _MM_HINT_T1);
    _mm_prefetch(p + 64, _MM_HINT_T1);
}

static void run_block(const xd_amx_job *t, const block *b, deferred *l, deferred_fn *rows)
{
    const int64_t ks = b->ks, per = ks > 16 ? 2 : ks > 2 ? (XD_SIDE + ks - 2) / (ks - 1) : XD_SIDE;
    const int     more = b->n > 16;
    const char   *x = b->a, *y = b->b, *next = b->next;
    asked         out = { 0 }, res = { 0 };
    int64_t       out_rows = 0, res_rows = 0, pending = 0;
    if (b->output && !b->output->strip->streams) {
        out = (asked){ b->output->out, b->output->out_step, b->output->strip->out_more };
        out_rows = b->n;
    }
    if (b->output && b->output->res && b->output->res != b->output->out) {
        res = (asked){ b->output->res, b->output->res_step, b->output->strip->res_more };
        res_rows = b->n;
    }
#ifndef TILED_IN_PLACE
    if (b->packed)
        expand_step((char *)b->b, b->packed, 0, (b->left + 7) / 8);
#endif
    for (int64_t k = 0; k < ks; k++, x += XD_PAIR_BYTES, y += XD_PAIR_BYTES) {
#ifndef TILED_IN_PLACE
        if (b->packed && k + 1 < ks)
            expand_step((char *)y + XD_PAIR_BYTES, b->packed, k + 1, (b->left + 7) / 8);
#endif
        if (k == 0)
            first_step(x, y, b->from, b->to, more);
        else
            step_of_tiles(x, y, more);
        for (pending += b->quads; pending >= ks; pending -= ks, next += QUAD_BYTES)
            ask_quad(next);
        if (out_rows > 0 && !b->output->res)
            prefetch_rows_to_write(&out, xd_min(per, out_rows));
        else if (out_rows > 0)
            prefetch_rows_to_read(&out, xd_min(per, out_rows));
        out_rows -= per;
        if (res_rows > 0)
            prefetch_rows_to_read(&res, xd_min(per, res_rows));
        res_rows -= per;
        if (k > 0 && l->done < l->n)
            rows(&t->of, l, per);
    }
}

/* ---- a block of rows and a group of columns ----------------------------------------------- */

typedef struct piece {
    const xd_amx_job *t;
    deferred_fn      *finish_deferred;
    int64_t           r0, rows, s0, strips;
    char             *held, *expanded;
    float            *waiting;
    float             sums[XD_SUMS] __attribute__((aligned(64)));
    float            *to; /* destination of the accumulators that are in tile registers */
    deferred          deferred;
    /* strips (32 output columns) of the current and of the previous epilogue */
    deferred_strip    strip[2];
} piece;

/* A chunk of weights, which is multiplied with all rows of a block. The chunk consists of steps [k,
 * k + ks) of a strip of 32 columns. While the chunk is in use, the L2 cache holds the steps of the
 * input rows from step k0 on. */
typedef struct chunk { int64_t strip, k0, k, ks; } chunk;

/* Returns the chunk of weights that follows chunk c. If c is the last chunk, returns a chunk with 0
 * steps (ks is 0). */
static chunk chunk_after(const piece *p, chunk c)
{
    const xd_amx_job *t = p->t;
    int64_t           end = xd_min(c.k0 + t->held, t->steps);
    c.k += c.ks;
    if (c.k == end && ++c.strip == p->s0 + p->strips) {
        c.strip = p->s0;
        c.k0 = end;
        end = xd_min(c.k0 + t->held, t->steps);
        c.k = c.k0;
    } else if (c.k == end) {
        c.k = c.k0;
    }
    c.ks = xd_min(t->deep, end - c.k);
    return c;
}

/* Returns the first n (0 to 64) bytes of a step of a row as bf16, converted if the input is F32.
 * The elements of the result after the n bytes are zero. */
FINISH_INLINE __m512i step_of_row(const char *x, int64_t n, int floats)
{
    const __mmask64 bytes = n >= 64 ? ~0ull : (1ull << n) - 1;
    if (!floats)
        return _mm512_maskz_loadu_epi8(bytes, x);
    const __mmask32 m = n >= 64 ? ~0u : (1u << n / 2) - 1;
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps((__mmask16)(m >> 16), x + 64),
                                        _mm512_maskz_loadu_ps((__mmask16)m, x));
}

/* Copies the input rows to tiles, from step k0 on, with zeros after the ends of rows and after the
 * last row. Four cache lines of a row are copied at a time, so that the hardware prefetcher
 * recognizes the stream. */
FINISH_INLINE void copy_tiles_as(const piece *p, int64_t k0, int floats)
{
    enum { SOME = 4 };
    const xd_amx_job *t = p->t;
    const int64_t held = xd_min(t->held, t->steps - k0), left = t->row_bytes - k0 * XD_STEP_BYTES;
    const int64_t bytes = floats ? 2 * XD_STEP_BYTES : XD_STEP_BYTES;
    const char   *from = t->of.in + p->r0 * t->of.ldi + k0 * bytes;
    for (int64_t r = 0; r < p->rows; r += XD_SIDE)
        for (int64_t k = 0; k < held; k += SOME)
            for (int64_t i = 0; i < XD_SIDE; i++) {
                char *to = p->held + (r * held + k * XD_SIDE + i) * XD_STEP_BYTES;
                for (int64_t j = k; j < k + SOME && j < held; j++, to += XD_PAIR_BYTES) {
                    int64_t     n = r + i < p->rows ? left - j * XD_STEP_BYTES : 0;
                    const char *x = n ? from + (r + i) * t->of.ldi + j * bytes : from;
                    _mm512_storeu_si512(to, step_of_row(x, n, floats));
                }
            }
}

/* Copies F32 input rows to tiles, as copy_tiles_as does. The copy functions are not inlined into
 * run_piece, because the compiler would then give the copy loops registers that the tile multiplies
 * need. */
static __attribute__((noinline)) void copy_tiles_floats(const piece *p, int64_t k0)
{
    copy_tiles_as(p, k0, 1);
}

static __attribute__((noinline)) void copy_tiles_bf16(const piece *p, int64_t k0)
{
    copy_tiles_as(p, k0, 0);
}

static void finish_left_rows(piece *p)
{
    if (p->deferred.done < p->deferred.n)
        p->finish_deferred(&p->t->of, &p->deferred, XD_SIDE);
}

static void run_chunk(piece *p, chunk c, chunk next)
{
    const xd_amx_job *t = p->t;
    const int64_t     held = xd_min(t->held, t->steps - c.k0),
                      blocks = (p->rows + XD_SIDE - 1) / XD_SIDE;
    const int         last = c.k + c.ks == t->steps;
    const char       *w = weights_at(t, c.strip, c.k);
    deferred_strip   *strip = &p->strip[c.strip % 2];
    if (last)
        *strip = strip_of(t, c.strip * XD_SIDE);
    float *waiting = p->waiting + (t->held < t->steps ? (c.strip - p->s0) * blocks * XD_SUMS : 0);
    for (int64_t i = 0; i < blocks; i++) {
        const int64_t r = p->r0 + i * XD_SIDE;
        float        *sums = waiting + i * XD_SUMS;
        deferred      output;
        block         b = { .b = w,
                            .from = c.k ? sums : NULL,
                            .to = p->to,
                            .ks = c.ks,
                            .left = t->row_bytes - c.k * XD_STEP_BYTES,
                            .n = xd_min(t->of.M - r, XD_SIDE) };
        b.a = t->ready ? t->of.in + (r * t->steps + c.k * XD_SIDE) * XD_STEP_BYTES
                       : p->held + (i * held + c.k - c.k0) * XD_PAIR_BYTES;
#ifndef TILED_IN_PLACE
        b.b = p->expanded;
        b.packed = i == 0 ? w : NULL;
#endif
        if (next.ks) {
            const int64_t all = next.ks * XD_PAIR_BYTES / QUAD_BYTES, first = all * i / blocks;
            b.next = weights_at(t, next.strip, next.k) + first * QUAD_BYTES;
            b.quads = all * (i + 1) / blocks - first;
        }
        if (last) {
            output = deferred_of(t, strip, p->sums, r, b.n);
            b.output = &output;
        }
        run_block(t, &b, &p->deferred, p->finish_deferred);
        p->to = last ? p->sums : sums;
        if (last) {
            finish_left_rows(p);
            p->deferred = output;
        }
    }
}

/* Sets the input rows and the strips of output columns that work item i (a piece p) computes.
 * Consecutive work items use one group of strips and different blocks of rows, so threads that run
 * at the same time mostly read the same weights. */
static void place_piece(piece *p, const xd_amx_job *t, int64_t i)
{
    p->r0 = i % t->blocks * t->rows;
    p->s0 = i / t->blocks * t->group;
    p->rows = xd_min(t->of.M - p->r0, t->rows);
    p->strips = xd_min(t->strips - p->s0, t->group);
}

static void run_piece(void *ctx, int64_t begin, int64_t end, int thread)
{
    const xd_amx_job *t = ctx;
    piece             p;
    p.t = t;
    p.finish_deferred = deferred_fn_of(t->of.a);
    p.held = t->of.tmp + (size_t)thread * t->tmp_bytes;
    p.waiting = (float *)(void *)(p.held + t->tile_bytes);
    p.expanded = p.held + t->tile_bytes + t->sum_bytes;
    p.to = NULL;
    p.deferred.n = p.deferred.done = 0;
    xd_tiles_begin();
    for (int64_t i = begin; i < end; i++) {
        place_piece(&p, t, i);
        chunk next, c = { p.s0, 0, 0, xd_min(t->deep, xd_min(t->held, t->steps)) };
        for (; c.ks; c = next) {
            if (!t->ready && c.strip == p.s0 && c.k == c.k0)
                (t->floats ? copy_tiles_floats : copy_tiles_bf16)(&p, c.k0);
            next = chunk_after(&p, c);
            run_chunk(&p, c, next);
        }
        store_sums(p.to);
        p.to = NULL;
        finish_left_rows(&p);
    }
    _mm_sfence();
    xd_tiles_end();
}

/* Returns 1 if non-temporal stores suit the output: there is no residual, the rows are aligned to
 * cache lines, and the output has more than STREAMED bytes per thread and so would not stay in the
 * L2 caches. */
static int uses_streaming_stores(const xd_gemm *a)
{
    const int64_t size = size_of(a->out.type), step = a->out.s[0] * size;
    return a->out.d[0] * a->out.d[1] * size > (int64_t)xd_par_threads() * STREAMED &&
           !a->residual.p && step % 64 == 0 && (uintptr_t)a->out.p % 64 == 0;
}

static void tiled_run(xd_amx_job *t)
{
    t->streams = uses_streaming_stores(t->of.a);
    xd_par_dynamic(t->blocks * t->groups, run_piece, t);
}

#endif
