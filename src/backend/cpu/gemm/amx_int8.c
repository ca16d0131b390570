/* amx_int8.c - computes GEMMs of int8 weights by the AMX instruction tdpbssd
 *
 * A packed weight starts with the scales of its output columns. The strips of 32 columns
 * (amx_block.h) follow. The rows of the input are quantized once per GEMM call, and are stored in
 * scratch in the layout of AMX tiles. */
#include "backend/cpu/gemm/integers.h"

#include "backend/cpu/gemm/amx_pack.h"

#define TILE_DOT(c, a, b) _tile_dpbssd(c, a, b)
#define TILED_IN_PLACE
#include "backend/cpu/gemm/amx_tile_tmpl.h"

static int64_t strips_of(const xd_weight *w)
{
    return (w->out + XD_SIDE - 1) / XD_SIDE;
}

/* Returns the bytes of the scales in a packed weight, rounded up to a multiple of 64. */
static int64_t scale_bytes(const xd_weight *w)
{
    return strips_of(w) * XD_SIDE * (int64_t)sizeof(float);
}

/* ---- packing ------------------------------------------------------------------------------ */

static size_t pack_size(const xd_weight *w)
{
    return (size_t)(scale_bytes(w) + tiled_bytes(w, w->in));
}

typedef struct pack_ctx {
    source s;
    float *scale;
} pack_ctx;

static inline __m512i step_at(const void *ctx, int64_t o, int64_t k)
{
    const pack_ctx *c = ctx;
    return c->s.src.type == XD_I8 ? one_stored(&c->s, o, 64 * k, c->scale[o])
                                  : source_integers(&c->s, o, 64 * k, c->scale[o]);
}

static void pack_strips(void *ctx, int64_t begin, int64_t end, int thread)
{
    const pack_ctx  *c = ctx;
    const xd_weight *w = c->s.w;
    (void)thread;
    for (int64_t s = c->s.row0 / XD_SIDE + begin; s < c->s.row0 / XD_SIDE + end; s++) {
        for (int64_t o = s * XD_SIDE; o < (s + 1) * XD_SIDE; o++)
            c->scale[o] = o < w->out ? source_scale(&c->s, o) : 0.0f;
        pack_strip((char *)w->p + scale_bytes(w), w, w->in, s, step_at, c);
    }
}

static xd_status pack_rows(const xd_weight *w, xd_tensor src, int64_t row0)
{
    pack_ctx c = { { w, src, row0 }, w->p };
    xd_par_for((src.d[0] + XD_SIDE - 1) / XD_SIDE, pack_strips, &c);
    return XD_OK;
}

/* ---- GEMM --------------------------------------------------------------------------------- */

typedef struct input {
    const xd_gemm *a;
    integer_rows   to;
} input;

/* Quantizes 32 input rows to int8. If the input has fewer rows left, the remaining rows are filled
 * with zeros. */
static void input_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    const input  *c = ctx;
    const int64_t first = begin * XD_SIDE, last = end * XD_SIDE, M = c->a->in.d[0];
    (void)thread;
    input_integers(&c->to, c->a, first, xd_min(last, M));
    for (int64_t r = M; r < last; r++) {
        char *q =
            c->to.q + (last - XD_SIDE) * c->to.steps * XD_STEP_BYTES + r % XD_SIDE * XD_STEP_BYTES;
        for (int64_t k = 0; k < c->to.steps; k++)
            _mm512_storeu_si512(q + k * XD_PAIR_BYTES, _mm512_setzero_si512());
    }
}

static xd_amx_job job_of(const xd_gemm *a, int threads)
{
    xd_amx_job t = { .of = { .a = a }, .row_bytes = a->w->in, .ready = 1 };
    xd_amx_job_cut(&t, 0, threads);
    return t;
}

static int64_t input_blocks(const xd_amx_job *t)
{
    return (t->of.M + XD_SIDE - 1) / XD_SIDE;
}

static int64_t input_bytes(const xd_amx_job *t)
{
    return input_blocks(t) * XD_SIDE * (t->steps * XD_STEP_BYTES + (int64_t)sizeof(float));
}

static size_t scratch(const xd_gemm *a, int threads)
{
    xd_amx_job t = job_of(a, threads);
    return (size_t)input_bytes(&t) + t.tmp_bytes * (size_t)threads;
}

static xd_status gemm(const xd_gemm *a, void *tmp)
{
    xd_amx_job t = job_of(a, xd_par_threads());
    input      in = { a, { .q = tmp, .steps = t.steps, .side = XD_SIDE } };
    in.to.scale = (float *)(void *)(in.to.q + input_blocks(&t) * XD_SIDE * t.steps * XD_STEP_BYTES);
    xd_par_for(input_blocks(&t), input_rows, &in);
    t.of.in = in.to.q;
    t.of.row = in.to.scale;
    t.of.col = a->w->p;
    t.of.w = (char *)a->w->p + scale_bytes(a->w);
    t.of.tmp = (char *)tmp + input_bytes(&t);
    tiled_run(&t);
    return XD_OK;
}

const xd_gemm_kernels xd_cpu_gemm_amx_int8 = { pack_size, scratch, gemm, pack_rows, NULL };
