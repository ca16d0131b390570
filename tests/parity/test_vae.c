/* test_vae.c - the autoencoder over several ranks against one rank, bit for bit: decode and encode,
 * in bands of rows and in tiles.
 *
 *     mpirun -n N test_vae DTYPE [near] MODEL...
 *
 * Random weights; sizes that no rank count divides, less rows than ranks, one tile and less tiles than
 * ranks. In f32 on AVX-512 the bits are those of one rank; "near" and bf16 allow 1e-5 and 3e-2 of the
 * largest value, since their kernels depend on the shape. What each rank sends is what doc/methods.md
 * says and what was counted, and so is the memory it takes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/par.h"
#include "engine/engine.h"
#include "exec/op.h"

static int    rank, ranks, checks, failures;
static int    exact;
static double limit;

static const int64_t sizes[][2] = {     /* latent cells: rows, columns                          */
    { 11, 13 }, { 1, 3 }, { 16, 16 }, { 17, 9 }, { 29, 40 },
};

static void must(xd_status s, const xd_err *e)
{
    if (s == XD_OK)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, e->msg);
    exit(1);
}

static void fail(const char *what, const char *why, double v)
{
    failures++;
    printf("not ok: rank %d of %d, %s: %s (%g)\n", rank, ranks, what, why, v);
    fflush(stdout);
}

static void *memory(int64_t n)
{
    void *p = calloc((size_t)n + 1, sizeof(float));
    if (!p)
        exit(1);
    return p;
}

/* ---- the document's formulas -------------------------------------------------------------- */

typedef struct walk {           /* of one rank through the layers, in bands                    */
    const xd_json *cfg;
    int64_t h, w, S, G, e;      /* latent cells; ranks; groups; bytes of an activation          */
    int64_t up, down;           /* 1: there is a band above, below mine                         */
    int64_t rows;               /* of the latent, mine                                          */
    int64_t k;                  /* cells per latent cell, now                                   */
    int64_t bytes;
} walk;

static int64_t part(int64_t n, int64_t i, int64_t k)
{
    return n * (i + 1) / k - n * i / k;
}

static int64_t number(const xd_json *o, const char *key)
{
    double v = 0;
    xd_json_number(xd_json_get(o, key), &v);
    return (int64_t)v;
}

/* A row of the input to the band above and to the one below; with stride 2 above only. */
static void conv(walk *q, int64_t C, int stride)
{
    q->bytes += (q->up + (stride == 1 ? q->down : 0)) * q->w * q->k * C * q->e;
}

static void norm(walk *q)
{
    q->bytes += 16 * q->G * q->rows * q->k * (q->S - 1);
}

static void residual(walk *q, int64_t in, int64_t out)
{
    norm(q), conv(q, in, 1), norm(q), conv(q, out, 1);
}

static void attention(walk *q, int64_t C)
{
    norm(q);
    q->bytes += 2 * q->rows * q->k * q->w * q->k * C * q->e * (q->S - 1);
}

static int64_t width(const walk *q, int i)
{
    double v = 0;
    xd_json_number(xd_json_at(xd_json_get(q->cfg, "block_out_channels"), i), &v);
    return (int64_t)v;
}

static void levels(walk *q, int L, int encode)
{
    const xd_json *types = xd_json_get(q->cfg, encode ? "down_block_types" : "up_block_types");
    int            n = (int)number(q->cfg, "layers_per_block") + !encode;
    int64_t        in = width(q, encode ? 0 : L - 1);
    for (int l = 0; l < L; l++) {
        int64_t C = width(q, encode ? l : L - 1 - l);
        for (int i = 0; i < n; i++, in = C) {
            residual(q, in, C);
            if (strncmp(xd_json_text(xd_json_at(types, l)), "Attn", 4) == 0)
                attention(q, C);
        }
        if (l == L - 1)
            continue;
        if (!encode)
            q->k *= 2;          /* enlarged first, then convolved                               */
        conv(q, C, encode ? 2 : 1);
        if (encode)
            q->k /= 2;
    }
}

static void middle(walk *q, int L)
{
    int64_t        C = width(q, L - 1);
    const xd_json *has = xd_json_get(q->cfg, "mid_block_add_attention");
    int            attn = 1;
    if (has)
        xd_json_bool(has, &attn);
    residual(q, C, C);
    if (attn)
        attention(q, C);
    residual(q, C, C);
}

static int64_t of_bands(const xd_engine *g, int64_t h, int64_t w, int encode)
{
    const xd_vae_info *v = &g->model.vae_info;
    int64_t S = g->used->size, cell = v->cell[1];
    int     L = xd_json_size(xd_json_get(g->model.vae.config, "block_out_channels"));
    walk    q = { .cfg = g->model.vae.config, .h = h, .w = w, .S = S, .rows = part(h, rank, S) };
    q.G = number(q.cfg, "norm_num_groups");
    q.k = encode ? cell : 1;
    if (!q.rows)
        return 0;
    q.up = h * rank / S > 0;
    q.down = h * (rank + 1) / S < h;
    q.e = (int64_t)xd_dtype_size(encode ? g->type : XD_F32);
    conv(&q, encode ? 3 : v->channels, 1);
    q.e = (int64_t)xd_dtype_size(g->type);
    if (!encode)
        middle(&q, L);
    levels(&q, L, encode);
    if (encode)
        middle(&q, L);
    norm(&q);
    conv(&q, width(&q, encode ? L - 1 : 0), 1);
    if (encode)
        return q.bytes + 8 * v->channels * q.rows * w * (S - 1);
    return q.bytes + (rank ? 12 * q.rows * cell * w * cell : 0);
}

/* The largest tile that is left goes to the rank with the least area. */
static int64_t of_tiles(const xd_engine *g, int64_t h, int64_t w, int encode)
{
    const xd_vae_info *v = &g->model.vae_info;
    int64_t tile = v->tile[0], step = tile * 3 / 4, rows = (h + step - 1) / step, cols = (w + step - 1) / step;
    int64_t load[16] = { 0 }, cell = v->cell[1], given[256] = { 0 }, S = g->used->size, bytes = 0;
    int64_t unit = encode ? 8 * v->channels : 12 * cell * cell;
    for (int64_t n = 0; n < rows * cols; n++) {
        int64_t best = -1, most = 0, to = 0;
        for (int64_t k = 0; k < rows * cols; k++) {
            int64_t th = h - k / cols * step, tw = w - k % cols * step;
            int64_t area = (th < tile ? th : tile) * (tw < tile ? tw : tile);
            if (!given[k] && area > most)
                best = k, most = area;
        }
        for (int64_t r = 1; r < S; r++)
            to = load[r] < load[to] ? r : to;
        given[best] = 1;
        load[to] += most;
    }
    bytes = rank ? load[rank] * unit : 0;
    for (int64_t d = 1; encode && d < S && rank % (2 * d) == 0; d *= 2)
        bytes += rank + d < S ? unit * h * w : 0;       /* all get the moments, along a tree   */
    return bytes;
}

static int64_t formula(const xd_engine *g, int64_t h, int64_t w, int encode, int tiling)
{
    int64_t tile = g->model.vae_info.tile[0];
    int64_t begin = 4 * (g->used->size - 1);    /* the ranks agree that all can                 */
    if (g->used->size == 1)
        return 0;
    return begin + (tiling && (h > tile || w > tile) ? of_tiles(g, h, w, encode)
                                                     : of_bands(g, h, w, encode));
}

/* ---- running ------------------------------------------------------------------------------ */

typedef struct run {            /* what one engine makes of an image                           */
    float  *out;
    int64_t n, sent;
} run;

/* Any size in latent cells; a request asks for whole tokens. */
static void take_size(xd_job *j, int64_t h, int64_t w)
{
    const int *cell = j->g->model.vae_info.cell;
    j->cells[0] = 1, j->cells[1] = h, j->cells[2] = w;
    j->size[0] = h * cell[1], j->size[1] = w * cell[2];
}

static void compare_count(xd_job *j, int encode, const run *r, const xd_arena *a, const char *what)
{
    size_t  bytes = 0;
    xd_err  e = { 0 };
    int64_t before = j->g->count_world->traffic->bytes;
    must((encode ? xd_light_encode_count : xd_light_count)(j, &bytes, &e), &e);
    before = j->g->count_world->traffic->bytes - before;
    if (before != r->sent)
        fail(what, "bytes sent are not those counted", (double)(r->sent - before));
    before = formula(j->g, j->cells[1], j->cells[2], encode, j->r->enable_tiling);
    if (before != r->sent)
        fail(what, "bytes sent are not those of the formula", (double)(r->sent - before));
    if (bytes != xd_arena_peak(a))
        fail(what, "memory is not what was counted", (double)xd_arena_peak(a) - (double)bytes);
}

static run process(xd_engine *g, int64_t h, int64_t w, int encode, int tiling, const float *in,
                   const char *what)
{
    static const char *const prompt = "a";
    xd_request r;
    xd_job     j = { .g = g, .r = &r };
    xd_err     e = { 0 };
    xd_arena   a;
    xd_exec    x;
    size_t     bytes = 0;
    run        o = { 0 };
    if (g->idle)
        return o;
    xd_request_init(&r);
    r.prompts = &prompt, r.nprompts = 1, r.enable_tiling = tiling;
    take_size(&j, h, w);
    o.n = encode ? h * w * 2 * g->model.vae_info.channels : j.size[0] * j.size[1] * 3;
    o.out = memory(o.n);
    must((encode ? xd_light_encode_count : xd_light_count)(&j, &bytes, &e), &e);
    must(xd_part_load(&g->model.vae, g->dev, g->type, 0, &e), &e);
    must(xd_room_open(&a, g->dev, bytes, &e), &e);
    xd_exec_init(&x, g->dev, &a, g->type);
    int64_t before = g->used->traffic->bytes;
    (encode ? xd_light_encode : xd_light)(&x, &j, &g->model.vae.net, in, o.out);
    o.sent = g->used->traffic->bytes - before;
    must(x.err.code, &x.err);
    compare_count(&j, encode, &o, &a, what);
    xd_room_close(&a, g->dev);
    return o;
}

static void compare(const run *one, const run *all, const char *what)
{
    double top = 0, most = 0;
    for (int64_t i = 0; i < one->n; i++) {
        double d = fabs((double)one->out[i] - (double)all->out[i]);
        top = fmax(top, fabs((double)one->out[i]));
        most = d > most || !(d >= 0) ? d : most;
    }
    if (!(top > 0) || !(most <= limit * top))
        fail(what, "differs from one rank by this share of the largest value", most / top);
    else if (exact && memcmp(one->out, all->out, (size_t)one->n * sizeof(float)))
        fail(what, "has other bits than one rank", most / top);
    checks++;
}

/* Rank 0's reference to all, for what every rank has. */
static void tell(xd_comm *c, run *r)
{
    xd_req q = c->ops->bcast(c, xd_view(&r->n, XD_I64, 1, (int64_t[]){ 1 }), 0);
    c->ops->wait(c, &q, 1);
    if (!r->out)
        r->out = memory(r->n);
    q = c->ops->bcast(c, xd_view(r->out, XD_F32, 1, &r->n), 0);
    c->ops->wait(c, &q, 1);
}

static void one_case(xd_engine *one, xd_engine *all, int64_t h, int64_t w, int encode, int tiling,
                     xd_comm *world)
{
    char        what[128];
    xd_vae_info v = all->model.vae_info;
    int64_t     n = encode ? h * w * v.cell[1] * v.cell[2] * 3 : h * w * v.channels;
    float      *in = memory(n);
    snprintf(what, sizeof what, "%s %lld x %lld in %s", encode ? "encode" : "decode", (long long)h,
             (long long)w, tiling ? "tiles" : "rows");
    for (int64_t i = 0; i < n; i++)
        in[i] = xd_random_weight(encode ? 7 : 5, (uint64_t)i) * (encode ? 0.5f : 1.0f);
    run a = process(one, h, w, encode, tiling, in, what);
    run b = process(all, h, w, encode, tiling, in, what);
    tell(world, &a);
    if (rank == 0 || encode)
        compare(&a, &b, what);
    free(a.out), free(b.out), free(in);
}

static void one_model(const char *dir, const char *dtype, xd_comm *world)
{
    xd_err       e = { 0 };
    xd_engine   *one = NULL, *all = NULL;
    xd_open_args a = { .model = dir, .dtype = dtype, .threads = 1 };
    must(xd_open_with(&one, &a, 0, &e), &e);
    a.parallel.ulysses_degree = ranks;
    a.parallel.use_parallel_vae = 1;
    must(xd_open_with(&all, &a, 0, &e), &e);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int i = 0; i < 4; i++)
            one_case(one, all, sizes[s][0], sizes[s][1], i / 2, i % 2, world);
    xd_close(&all);
    xd_close(&one);
}

int main(int argc, char **argv)
{
    xd_err   e = { 0 };
    xd_comm *world = NULL;
    int      at = 2;
    if (argc < 3)
        return 2;
    int f32 = strcmp(argv[1], "f32") == 0, near = strcmp(argv[at], "near") == 0;
    at += near;
    exact = f32 && !near;
    limit = f32 ? 1e-5 : 3e-2;
    xd_par_set(1);
    must(xd_comm_world(&world, xd_comm_launched() ? "mpi" : "self", &e), &e);
    rank = world->rank;
    ranks = world->size;
    for (; at < argc; at++)
        one_model(argv[at], argv[1], world);
    int64_t n[2] = { checks, failures };
    xd_req  q = world->ops->allreduce(world, xd_view(n, XD_I64, 1, (int64_t[]){ 2 }), XD_SUM);
    world->ops->wait(world, &q, 1);
    if (rank == 0)
        printf("%d ranks: %lld images compared %s, %lld failures\n", ranks, (long long)n[0],
               exact ? "bit for bit" : "within a tolerance", (long long)n[1]);
    xd_comm_close(&world);
    return n[1] || !n[0];
}
