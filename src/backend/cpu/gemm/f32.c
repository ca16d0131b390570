/* f32.c - computes GEMMs of f32 weights; compiled once for AVX2 and once for AVX-512
 *
 * A panel (XD_PANEL output columns) is divided into parts of WIDTH columns, which are two vectors,
 * and is stored as [part][input][WIDTH]. A thread multiplies a block of input rows by several
 * panels together, one chunk of inputs at a time. A chunk is so short that the weights of a part
 * for these inputs stay in the L1 cache for all tiles of ROWS input rows. The input rows of a chunk
 * are first copied to [tile][input][ROWS], because the original rows of a tile are often a multiple
 * of 4 KiB apart and would evict each other and the weights from the caches. */
#include "backend/cpu/gemm/source.h"
#include "base/minmax.h"

#include "base/par.h"

enum {
    /* rows of a tile; maximum inputs of a chunk (24 KiB of a part's weights with AVX2) */
    ROWS = 6,
    DEEP = 384,
    WIDTH = 2 * LANES,
    SIDE = 8,       /* maximum number of panels processed together */
    MAX_ROWS = 192, /* maximum input rows of a block */
};

/* ---- tiles -------------------------------------------------------------------------------- */

typedef struct tile_args {
    int64_t      units;
    const float *a;    /* copied input rows of a tile, [units][ROWS] */
    const float *b;    /* packed weights of WIDTH columns, [units][WIDTH] */
    float       *c;    /* accumulators, XD_PANEL floats for each input row */
    int          add;  /* 1: the sums are added to the accumulators in c */
    const char  *next; /* memory to prefetch during the multiply */
    /* bytes from one prefetched address to the next; each unit prefetches one address */
    int64_t      step;
} tile_args;

typedef void tile_fn(const tile_args *t);

#define ROW_ZERO(i)                                                                                \
    vf c##i##_0 = v_zero(), c##i##_1 = c##i##_0;                                                   \
    _mm_prefetch((const char *)(c + (i)*XD_PANEL), _MM_HINT_T0);
#define ROW_STEP(i)                                                                                \
    {                                                                                              \
        const vf x = v_set(a[i]);                                                                  \
        c##i##_0 = v_fma(x, b0, c##i##_0);                                                         \
        c##i##_1 = v_fma(x, b1, c##i##_1);                                                         \
    }
#define ROW_PUT(i, j)                                                                              \
    {                                                                                              \
        float *o = c + (i)*XD_PANEL + (j)*LANES;                                                   \
        v_store(o, t->add ? v_add(c##i##_##j, v_load(o)) : c##i##_##j);                            \
    }
#define ROW_STORE(i) ROW_PUT(i, 0) ROW_PUT(i, 1)

#define TILE(n)                                                                                    \
    static void tile_##n(const tile_args *t)                                                       \
    {                                                                                              \
        const float *a = t->a, *b = t->b;                                                          \
        float       *c = t->c;                                                                     \
        const char  *next = t->next;                                                               \
        ROWS_##n(ROW_ZERO)                                                                         \
        for (int64_t k = t->units; k > 0; k--, a += ROWS, b += WIDTH, next += t->step) {           \
            const vf b0 = v_load(b), b1 = v_load(b + LANES);                                       \
            _mm_prefetch(next, _MM_HINT_T1);                                                       \
            ROWS_##n(ROW_STEP)                                                                     \
        }                                                                                          \
        ROWS_##n(ROW_STORE)                                                                        \
    }

TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)

static tile_fn *const tiles[] = { 0, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6 };

/* Returns the number of rows of the next tile if `left` rows remain, so that tiles are as even as
 * possible. */
static int64_t rows_of(int64_t left)
{
    int64_t n = (left + ROWS - 1) / ROWS;
    return (left + n - 1) / n;
}

/* ---- blocks ------------------------------------------------------------------------------- */

#ifdef __AVX512F__
static inline void transpose_floats(vf v[LANES])
{
    __m512i bits[LANES];
    for (int i = 0; i < LANES; i++)
        bits[i] = _mm512_castps_si512(v[i]);
    transpose_bits(bits);
    for (int i = 0; i < LANES; i++)
        v[i] = _mm512_castsi512_ps(bits[i]);
}
#endif

/* Copies inputs [k, k + kn) of n input rows, from row r0 on, to [tile][kn][ROWS]. A vector store
 * writes more than ROWS floats, and the next store overwrites the excess. */
static void copy_rows(const xd_gemm_job *p, float *to, int64_t r0, int64_t n, int64_t k, int64_t kn)
{
    for (int64_t i = 0, rows; i < n; i += rows) {
        rows = rows_of(n - i);
        for (int64_t u = 0; u < kn; u += LANES) {
            vf v[LANES];
            for (int64_t r = 0; r < LANES; r++)
                v[r] = r < rows ? float_row(p->in + (r0 + i + r) * p->ldi, XD_F32, k + u, k + kn)
                                : v_zero();
            transpose_floats(v);
            for (int64_t j = 0; j < LANES && u + j < kn; j++, to += ROWS)
                v_store(to, v[j]);
        }
    }
}

/* Multiplies the copied input rows by WIDTH columns of the weight, for the inputs of one chunk.
 * Meanwhile, prefetches memory from the address t.next on. */
static void multiply_part(const xd_gemm_job *p, tile_args t, int last, int64_t c0, int64_t r0,
                          int64_t n)
{
    const int64_t count = (n + ROWS - 1) / ROWS;
    t.step = (WIDTH * 4 + count - 1) / count;
    t.step = t.step < 64 ? t.step : 64;
    for (int64_t i = 0, rows; i < n; i += rows, t.a += t.units * ROWS, t.c += rows * XD_PANEL) {
        rows = rows_of(n - i);
        if (last)
            prefetch_output(p, c0, WIDTH, r0 + i, rows);
        tiles[rows](&t);
        t.next += t.units * t.step;
        if (last)
            finish_rows(p, t.c, c0, WIDTH, r0 + i, rows);
    }
}

static int one_tile(const xd_gemm_job *p)
{
    return p->rows <= ROWS;
}

/* The work of one call of multiply_panels: it computes rows [r0, r0 + n) and columns [c0, end) of
 * the output. */
typedef struct block {
    const xd_gemm_job *p;
    int64_t            r0, n, c0, end;
    float             *sums; /* accumulators, [panel][rows of a block][XD_PANEL] */
} block;

/* Multiplies inputs [k, k + kn) of the block's rows, copied to `a`, by columns [c, end) of the
 * weight. */
static void multiply_chunk(const block *o, const float *a, int64_t k, int64_t kn, int64_t c,
                           int64_t end)
{
    const xd_gemm_job *p = o->p;
    const int64_t      K = p->units;
    for (; c < end; c += WIDTH) {
        const float *w = (const float *)(const void *)p->w + k * WIDTH, *b = w + c * K;
        const float *next = c + WIDTH < end ? b + WIDTH * K
                            : one_tile(p)   ? b + kn * WIDTH
                                            : w + o->c0 * K + kn * WIDTH;
        float       *sums = o->sums + (c - o->c0) / XD_PANEL * p->rows * XD_PANEL + c % XD_PANEL;
        multiply_part(p, (tile_args){ kn, a, b, sums, k > 0, (const char *)next, 0 }, k + kn == K,
                      c, o->r0, o->n);
    }
}

/* Computes `count` panels of the output for one block of rows. If there is only one tile of input
 * rows, reading the weights dominates the time, so the weights of each part (WIDTH columns) are
 * read in the order of memory. */
static void multiply_panels(const xd_gemm_job *p, int64_t at, int64_t count, int64_t r0, int64_t n,
                            char *tmp)
{
    const block o = {
        p, r0, n, at * XD_PANEL, xd_min((at + count) * XD_PANEL, p->N), (float *)(void *)tmp
    };
    const int64_t K = p->units;
    const int     one = one_tile(p);
    float        *copy = o.sums + p->sum_bytes / sizeof *o.sums;
    for (int64_t k = 0; k < K; k += p->deep) {
        int64_t kn = xd_min(K - k, p->deep);
        copy_rows(p, one ? copy + k * ROWS : copy, r0, n, k, kn);
        if (!one)
            multiply_chunk(&o, copy, k, kn, o.c0, o.end);
    }
    for (int64_t c = o.c0; c < o.end && one; c += WIDTH)
        for (int64_t k = 0; k < K; k += p->deep)
            multiply_chunk(&o, copy + k * ROWS, k, xd_min(K - k, p->deep), c,
                           xd_min(o.end, c + WIDTH));
}

/* ---- packing ------------------------------------------------------------------------------ */

static size_t pack_size(const xd_weight *w)
{
    return (size_t)(xd_panels(w) * w->in * XD_UNIT_BYTES);
}

/* Packs LANES output columns from column o0 on. `to` is the destination of the first input's
 * weights. The weights of consecutive inputs are WIDTH floats apart. */
static void pack_columns(const source *s, int64_t o0, float *to)
{
    const int64_t K = s->w->in, size = (int64_t)xd_dtype_size(s->src.type);
    for (int64_t k = 0; k < K; k += LANES) {
        vf v[LANES];
        for (int64_t i = 0; i < LANES; i++)
            v[i] = o0 + i < s->w->out
                       ? source_at(source_row(s, o0 + i) + k * size, s->src.type, K - k)
                       : v_zero();
        transpose_floats(v);
        for (int64_t i = 0; i < LANES && k + i < K; i++, to += WIDTH)
            v_store(to, v[i]);
    }
}

static void pack_panels(void *ctx, int64_t begin, int64_t end, int thread)
{
    const source *s = ctx;
    (void)thread;
    for (int64_t o = s->row0 + begin * XD_PANEL; o < s->row0 + end * XD_PANEL; o += LANES)
        pack_columns(s, o, (float *)s->w->p + o / WIDTH * WIDTH * s->w->in + o % WIDTH);
}

static xd_status pack_rows(const xd_weight *w, xd_tensor src, int64_t row0)
{
    source s = { w, src, row0 };
    xd_par_for(source_panels(&s), pack_panels, &s);
    return XD_OK;
}

/* ---- GEMM --------------------------------------------------------------------------------- */

static xd_gemm_job job_of(const xd_gemm *a, int threads)
{
    xd_gemm_job p = { .a = a,
                      .in = a->in.p,
                      .ldi = a->in.s[0] * 4,
                      .units = a->w->in,
                      .w = a->w->p,
                      .deep = DEEP,
                      .side = SIDE,
                      .rows = MAX_ROWS };
    p.panel_bytes = p.units * XD_UNIT_BYTES;
    xd_gemm_job_cut(&p, 0, threads);
    p.sum_bytes = (size_t)(p.side * p.rows * XD_PANEL) * sizeof(float);
    int64_t copied = (p.rows + ROWS - 1) / ROWS * ROWS * (one_tile(&p) ? p.units : p.deep) + LANES;
    p.tmp_bytes = p.sum_bytes + (size_t)((copied + 15) / 16 * 64);
    return p;
}

XD_OWN_CALLS(xd_gemm_job, tmp, xd_gemm_job_run(&p, multiply_panels))
XD_OWN_CALL_ALONE(multiply_panels)

#ifdef __AVX512F__
const xd_gemm_kernels xd_cpu_gemm_f32_wide =
#else
const xd_gemm_kernels xd_cpu_gemm_f32 =
#endif
    { pack_size, scratch, gemm, pack_rows, gemm_alone };
