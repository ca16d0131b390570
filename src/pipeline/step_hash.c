/* step_hash.c - hashes latents and hidden states; see step_hash.h */
#include "pipeline/step_hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"
#include "base/rng.h"
#include "exec/op.h"
#include "model/model.h"
#include "pipeline/context.h"
#include "pipeline/denoise.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/job.h"

enum { WORDS = sizeof(xd_step_hash) / sizeof(int64_t) };
_Static_assert(sizeof(xd_step_hash) == WORDS * sizeof(int64_t), "a hash consists of 64-bit words");

static int is_on(const xd_job *j)
{
    const char *how = j->r->output.determinism_check;
    return how && strcmp(how, "none") != 0;
}

int xd_step_hash_count(const xd_job *j)
{
    if (!is_on(j))
        return 0;
    int blocks = strcmp(j->r->output.determinism_check, "blocks") == 0;
    return 1 + (blocks ? j->npass * j->ctx->model.dit_info.nlayers : 0);
}

int xd_step_hash_of_blocks(const xd_denoise *f)
{
    return f->hashing.n > 1;
}

void xd_step_hash_open(xd_denoise *f)
{
    xd_job          *j = f->j;
    xd_step_hashing *h = &f->hashing;
    size_t           ranks = (size_t)f->topo->replica->size;
    h->n = xd_step_hash_count(j);
    if (!h->n)
        return;
    h->mine = calloc((size_t)h->n, sizeof *h->mine);
    h->all = calloc(ranks * (size_t)h->n, sizeof *h->all);
    h->rows = calloc(ranks, sizeof *h->rows);
    if (!j->hashes)
        j->hashes = calloc((size_t)j->samp.steps * (size_t)h->n, sizeof *j->hashes);
    if (!h->mine || !h->all || !h->rows || !j->hashes)
        xd_exec_fail(&f->x, XD_ENOMEM, "no memory for the hashes of %d steps", j->samp.steps);
    for (size_t i = 0; h->rows && i < ranks; i++)
        h->rows[i] = h->n;
}

void xd_step_hash_close(xd_denoise *f)
{
    free(f->hashing.mine);
    free(f->hashing.all);
    free(f->hashing.rows);
    f->hashing = (xd_step_hashing){ 0 };
}

/* ---- rows --------------------------------------------------------------------------------- */

/* The rows that several threads hash. Each thread adds to its own sums. */
typedef struct rows {
    const xd_layout *lay;
    int              patch, sp;
    unsigned         streams; /* set of the streams (XD_STREAM) that the tensor has */
    const float     *p;       /* [n,C] elements, in host memory */
    int64_t          C;
    xd_step_hash    *part; /* [threads] */
} rows;

/* Returns a number that identifies the token of a row among the tokens of all ranks. In a tensor,
 * the rows of the streams are in the order of xd_stream_order. */
static uint64_t token_of(const rows *r, int64_t row)
{
    const xd_stream_id *order = xd_stream_order;
    for (int i = 0; i < XD_NSTREAMS; i++) {
        if (!(r->streams & XD_STREAM(order[i])))
            continue;
        int64_t at = xd_token(r->lay, order[i], r->patch, r->sp, row);
        if (at >= 0)
            return (uint64_t)order[i] << 56 | (uint64_t)at;
        for (int p = 0; p < r->lay->npatch; p++)
            if (r->patch == XD_ALL || r->patch == p)
                row -= xd_own(r->lay, order[i], p, r->sp).n;
    }
    return UINT64_MAX;
}

static void hash_row(xd_step_hash *sum, const float *x, int64_t C, uint64_t token)
{
    uint64_t bits = xd_hash_mix(token, 1);
    for (int64_t i = 0; i < C; i++) {
        uint32_t u;
        double   v = (double)x[i];
        uint64_t signs = xd_hash_mix(token, (uint64_t)i + 2);
        memcpy(&u, &x[i], sizeof u);
        bits = (bits ^ u) * UINT64_C(0x9E3779B97F4A7C15);
        bits ^= bits >> 32;
        sum->square += v * v;
        for (int k = 0; k < XD_HASH_SUMS; k++)
            sum->sums[k] += signs >> k & 1 ? v : -v;
    }
    sum->bits += bits;
}

static void hash_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    const rows *r = ctx;
    for (int64_t i = begin; i < end; i++)
        hash_row(&r->part[thread], r->p + i * r->C, r->C, token_of(r, i));
}

static void add(xd_step_hash *to, const xd_step_hash *from)
{
    to->bits += from->bits;
    to->square += from->square;
    for (int k = 0; k < XD_HASH_SUMS; k++)
        to->sums[k] += from->sums[k];
}

/* Adds the hashes of a tensor's rows to *to. r has the layout and the patch of the rows. */
static void hash_tensor(xd_denoise *f, xd_step_hash *to, rows r, xd_tensor t)
{
    int    threads = xd_par_threads();
    float *copy = malloc((size_t)xd_count(t) * sizeof *copy + 1);
    r.part = calloc((size_t)threads, sizeof *r.part);
    r.C = t.d[1];
    r.sp = f->x.sp;
    if (!copy || !r.part)
        xd_exec_fail(&f->x, XD_ENOMEM, "no memory to hash %lld rows", (long long)t.d[0]);
    else
        xd_get(&f->x, copy, t);
    r.p = copy;
    if (xd_ok(&f->x))
        xd_par_for(t.d[0], hash_range, &r);
    for (int i = 0; i < threads && xd_ok(&f->x); i++)
        add(to, &r.part[i]);
    free(copy);
    free(r.part);
}

void xd_step_hash_block(xd_denoise *f, int block, xd_tensor h)
{
    int  at = 1 + f->x.pass * f->j->ctx->model.dit_info.nlayers + block;
    rows r = { .lay = f->x.lay, .patch = f->x.patch, .streams = ~0u };
    if (xd_counting(&f->x) || !xd_ok(&f->x) ||
        !xd_check(&f->x, at < f->hashing.n, "block %d", block))
        return;
    hash_tensor(f, &f->hashing.mine[at], r, h);
}

/* ---- steps -------------------------------------------------------------------------------- */

/* Fails if ranks that compute the same rows have different hashes at index `at`: rank `other` and
 * rank `first` of the replica are the first ranks of two such groups. */
static void fail_differ(xd_denoise *f, int step, int at, int first, int other)
{
    int  layers = f->j->ctx->model.dit_info.nlayers;
    int  base = f->topo->at[XD_DATA] * f->topo->replica->size;
    char what[64] = "latents";
    if (at)
        snprintf(what, sizeof what, "hidden states after block %d of pass %d", (at - 1) % layers,
                 (at - 1) / layers + 1);
    xd_exec_fail(&f->x, XD_EDEVICE,
                 "step %d: ranks %d and %d should have equal %s, but theirs differ: the hosts have "
                 "different processors, or one of them computes wrongly",
                 step + 1, base + first, base + other, what);
}

/* Adds up the hashes at index `at` of all ranks that compute different rows, and compares the sums
 * of ranks that compute the same rows. Blocks of different guidance passes have different indices,
 * but the latents are the same in the groups of both passes. */
static void combine(xd_denoise *f, int step, int at)
{
    const xd_topo *t = f->topo;
    int            n = f->hashing.n, size = t->replica->size, T = t->deg.n[XD_TENSOR];
    int            outer = at ? 1 : t->deg.n[XD_CFG], inner = size / outer;
    for (int c = 0; c < outer; c++)
        for (int k = 0; k < T; k++) {
            xd_step_hash  sum = { 0 };
            xd_step_hash *to = &f->j->hashes[(int64_t)step * n + at];
            for (int r = c * inner + k; r < (c + 1) * inner; r += T)
                add(&sum, &f->hashing.all[(int64_t)r * n + at]);
            if (c == 0 && k == 0)
                *to = sum;
            else if (sum.bits != to->bits && xd_ok(&f->x))
                fail_differ(f, step, at, 0, c * inner + k);
        }
}

void xd_step_hash_end(xd_denoise *f, int step)
{
    xd_step_hashing *h = &f->hashing;
    xd_comm         *c = f->topo->replica;
    if (!h->n || !h->rows)
        return;
    rows r = { .lay = &f->lay,
               .patch = XD_ALL,
               .streams = XD_STREAM(XD_IMG) | XD_STREAM(XD_AUDIO) };
    if (xd_denoise_is_last(f) && !xd_counting(&f->x) && xd_ok(&f->x))
        hash_tensor(f, h->mine, r, f->lat);
    xd_tensor mine = xd_view2(h->mine, XD_I64, h->n, WORDS);
    if (c->size == 1) {
        memcpy(h->all, h->mine, (size_t)h->n * sizeof *h->all);
    } else {
        xd_req q = c->ops->gather(c, xd_view2(h->all, XD_I64, (int64_t)c->size * h->n, WORDS),
                                  h->rows, mine);
        xd_denoise_wait(f, c, &q);
    }
    /* The latents (index 0) follow from the blocks, so they are compared last. */
    for (int i = 1; i <= h->n && !xd_counting(&f->x); i++)
        combine(f, step, i % h->n);
    memset(h->mine, 0, (size_t)h->n * sizeof *h->mine);
}
