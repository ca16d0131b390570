/* test_text.c - text encoders cut over the first N ranks against one rank that has them alone.
 *
 *     mpirun -n R test_text MODEL...
 *
 * Every N up to R, random weights, f32: embeddings of all ranks within 1e-5 of the largest
 * value. Heads and features are uneven, and some ranks have no head. What a rank sends is what
 * doc/methods.md says, its memory what was counted, and its share of the weights a share. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"
#include "engine/engine.h"
#include "model/component.h"
#include "pipeline/job.h"
#include "pipeline/prompt_images.h"
#include "pipeline/image_roles.h"
#include "pipeline/text_encode.h"

enum { PROMPTS = 2, SINGLE = 8192 }; /* SINGLE: all-reduces up to this are one trip */

static int rank, ranks, checks, failures;

static const char *const prompts[PROMPTS] = {
    "a small cyan square at the top on a brown background",
    "x",
};

static void must(xd_status s, const xd_err *e)
{
    if (s == XD_OK)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, e->msg);
    exit(1);
}

static void fail(const xd_engine *g, const char *why, double v)
{
    failures++;
    printf("not ok: rank %d of %d, text %d: %s (%g)\n", rank, ranks, g->ctx.plan.text_tp, why, v);
    fflush(stdout);
}

/* ---- the document's formula --------------------------------------------------------------- */

static int64_t part(int64_t n, int i, int k)
{
    return n * (i + 1) / k - n * i / k;
}

/* A sum of s numbers in f32. */
static int64_t of_sum(const xd_engine *g, int64_t s)
{
    int     T = g->ctx.plan.text_tp;
    int64_t mine = part(s, rank, T);
    return rank >= T ? 0 : 4 * s <= SINGLE ? 4 * s * (T - 1) : 4 * (s - mine + mine * (T - 1));
}

static int64_t number_of(const xd_json *config, const char *key)
{
    double v = 0;
    xd_json_number(xd_json_get(xd_json_get(config, "vision_config"), key), &v);
    return (int64_t)v;
}

/* The blocks of a vision tower, Qwen's or LLaVA's; the last one of LLaVA's is not computed. */
static int64_t blocks_of_tower(const xd_engine *g, int k)
{
    const xd_component *p = &g->ctx.model.text[k];
    if (!p->text->tower)
        return 0;
    int64_t n = number_of(p->config, "num_hidden_layers");
    return n ? n : number_of(p->config, "depth");
}

/* The vision tower of encoder k: sums of two layers a block over the patches of the images, and one
 * over their tokens. */
static int64_t of_tower(const xd_engine *g, const xd_job *j, int k)
{
    const xd_component *p = &g->ctx.model.text[k];
    xd_text_image       image[XD_MAXREFS];
    xd_text_tower       tower_dims;
    int64_t             tokens = 0;
    for (int i = xd_prompt_images_among(j, k, NULL, 0, image); i > 0; i--)
        tokens += image[i - 1].n;
    if (!tokens)
        return 0;
    if (g->ctx.model.recipe->text[k].image_every[0]) /* LLaVA: a class token beside the patches */
        return 2 * (blocks_of_tower(g, k) - 1) *
               of_sum(g,
                      (j->npass > 1 ? 2 : 1) * (tokens + 1) * number_of(p->config, "hidden_size"));
    p->text->tower(p->w->net.cfg, &tower_dims);
    return of_sum(g, tokens * p->text->width(p->w->net.cfg)) +
           2 * blocks_of_tower(g, k) *
               of_sum(g, tokens * tower_dims.merge * tower_dims.merge *
                             number_of(p->config, "hidden_size"));
}

/* Encoder k on m tokens: sums of two layers a block over [m,E]. */
static int64_t of_encoder(const xd_engine *g, int k, int64_t m)
{
    const xd_component *p = &g->ctx.model.text[k];
    return 2 * (p->w->net.last - p->w->net.first - blocks_of_tower(g, k)) *
           of_sum(g, m * p->text->width(p->w->net.cfg));
}

/* How many of S ranks this one sends to in a broadcast along a binomial tree. */
static int children_among(int S)
{
    int children = 0;
    for (int step = 1; step < S && rank % (2 * step) == 0; step *= 2)
        children += rank + step < S;
    return rank < S ? children : 0;
}

static int children_of(const xd_engine *g)
{
    return children_among(g->ctx.world.used->size);
}

/* The pixels that an encoder of images reads reach the ranks that share it. */
static int64_t of_pixels(const xd_engine *g, int k)
{
    int64_t side = xd_model_image_side(&g->ctx.model, k);
    int64_t black = g->ctx.model.recipe->text[k].image_every[1] > 0;
    return 4 * children_among(g->ctx.plan.text_tp) * 3 * side * side *
           (black ? 2 : xd_model_images(&g->ctx.model, k));
}

static int64_t of_sharing(const xd_engine *g, const xd_cond *c)
{
    return 4 * children_of(g) * (xd_count(c->tok) + (c->pooled.nd ? xd_count(c->pooled) : 0));
}

/* Agreeing that there is room for images, and their bytes. */
static int64_t of_images(const xd_engine *g, const xd_job *j)
{
    int64_t sum = j->nrefs ? 4 * (int64_t)(g->ctx.world.used->size - 1) : 0;
    for (int i = 0; i < j->nrefs; i++)
        sum += children_of(g) * 3 * j->seen_size[i].rows * j->seen_size[i].cols;
    return g->ctx.plan.text_tp > 1 ? sum : 0;
}

/* ---- running ------------------------------------------------------------------------------ */

static void check_bytes(const xd_engine *g, const xd_job *j, const xd_prompts *w, int64_t sent)
{
    int     T = g->ctx.plan.text_tp;
    int64_t want = 0;
    for (int k = 0; k < w->ntext; k++) { /* agreeing, then the sums */
        if (!g->ctx.model.has_text[k])
            continue;
        want += (T > 1 ? 8 : 4) * (int64_t)(g->ctx.world.used->size - 1);
        want += T > 1 && rank < T ? 4 * (T - 1) : 0;
        int images = g->ctx.model.text[k].text->vision != NULL; /* the same for all */
        for (int i = 0; i < (images ? 1 : w->n); i++)
            want += of_encoder(g, k, xd_prompts_computed(w, j, i, k));
        want += of_tower(g, j, k); /* once for all prompts */
        if (xd_model_image_side(&g->ctx.model, k))
            want += of_pixels(g, k);
    }
    want += of_images(g, j);
    for (int i = 0; i < w->n; i++)
        want += of_sharing(g, &w->text[i].cond);
    if (g->ctx.world.used->size > 1 && sent != want)
        fail(g, "bytes sent are not those of the formula", (double)(sent - want));
}

/* The counted messages of two texts, which no broadcast follows; the most memory of an encoder. */
static size_t check_count(const xd_engine *g, const xd_job *j, int k, int64_t m, size_t most)
{
    xd_err  e = { 0 };
    size_t  bytes;
    int64_t before = g->ctx.count_world->traffic->bytes;
    must(xd_prompts_count(j, k, (int64_t[]){ m, m }, 2, &bytes, &e), &e);
    before = g->ctx.count_world->traffic->bytes - before;
    if (before != 2 * of_encoder(g, k, m) + of_tower(g, j, k))
        fail(g, "bytes counted are not those of the formula", (double)before);
    return bytes > most ? bytes : most;
}

/* Embeddings of all prompts in a row, tokens and pooled, malloc'ed; *n numbers. */
static float *copy_of(const xd_prompts *w, int64_t *n)
{
    float  *all = NULL;
    int64_t at = 0;
    *n = 0;
    for (int i = 0; i < w->n; i++)
        *n += xd_count(w->text[i].cond.tok) +
              (w->text[i].cond.pooled.nd ? xd_count(w->text[i].cond.pooled) : 0);
    if (!(all = malloc((size_t)*n * sizeof *all + 1)))
        exit(1);
    for (int i = 0; i < w->n; i++) {
        xd_tensor t[2] = { w->text[i].cond.tok, w->text[i].cond.pooled };
        for (int k = 0; k < 2; k++)
            if (t[k].nd) {
                memcpy(all + at, t[k].p, xd_bytes(t[k]));
                at += xd_count(t[k]);
            }
    }
    return all;
}

/* The images that a golden video begins and ends with. */
static void give_images(const xd_engine *g, xd_request *r, char path[2][1024])
{
    snprintf(path[0], sizeof path[0], "%s/image.png", g->ctx.model.dir);
    snprintf(path[1], sizeof path[1], "%s/last.png", g->ctx.model.dir);
    r->images.image = path[0];
    r->images.last_image = xd_model_images(&g->ctx.model, 1) > 1 ? path[1] : NULL;
}

/* Embeddings of all prompts, malloc'ed; *n numbers; *packed bytes of weights. */
static float *encode(xd_engine *g, int64_t *n, size_t *packed)
{
    char       path[2][1024];
    xd_request r;
    xd_job     j;
    xd_prompts w;
    xd_err     e = { 0 };
    size_t     bytes = 0;
    char       image[1024];
    *n = 0;
    if (g->ctx.world.idle)
        return NULL;
    xd_request_init(&r);
    r.prompts = prompts, r.nprompts = PROMPTS, r.negative_prompt = "red ring";
    r.guidance.true_cfg_scale =
        g->ctx.model.recipe->distilled ? 2 : 0; /* so that it reads the negative */
    /* prompt, too */
    if (g->ctx.model.recipe->needs_image && g->ctx.model.recipe->references) {
        snprintf(image, sizeof image, "%s/image.png", g->ctx.model.dir);
        r.images.image = image;
        r.output.max_area = 6144;
    }
    if (g->ctx.model.recipe->needs_image && g->ctx.model.recipe->fps > 0)
        give_images(g, &r, path);
    must(xd_job_open(&j, &g->ctx, &r, &e), &e);
    j.rank0_images = xd_job_images(&r);
    must(xd_role_references_share(&j, XD_OK, &e), &e);
    must(xd_prompts_tokenize(&w, &j, &e), &e);
    *packed = 0;
    for (int k = 0; k < w.ntext && rank < g->ctx.plan.text_tp; k++) {
        int64_t longest = 0;
        if (!g->ctx.model.has_text[k]) /* such as a prior without its directory */
            continue;
        for (int i = 0; i < w.n; i++)
            if (xd_prompts_computed(&w, &j, i, k) > longest)
                longest = xd_prompts_computed(&w, &j, i, k);
        bytes = check_count(g, &j, k, longest, bytes);
        *packed += g->ctx.model.text[k].count->packed;
    }
    int64_t sent = g->ctx.world.used->traffic->bytes;
    must(xd_prompts_encode(&w, &j, bytes, &e), &e); /* in exactly the memory that was counted */
    if (!g->ctx.keep)
        check_bytes(g, &j, &w, g->ctx.world.used->traffic->bytes - sent);
    float *all = copy_of(&w, n);
    xd_prompts_close(&w, &g->ctx);
    xd_job_close(&j);
    return all;
}

static void compare(const xd_engine *g, const float *want, const float *got, int64_t n)
{
    double top = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)want[i] - (double)got[i]);
        top = fmax(top, fabs((double)want[i]));
        most = d > most || !(d >= 0) ? d : most;
    }
    checks++;
    if (!(top > 0) || !(most <= 1e-5 * top))
        fail(g, "differs from one rank by this share of the largest value", most / top);
    if (g->ctx.plan.text_tp == 1 && most != 0)
        fail(g, "has other bits than one rank", most / top);
}

/* Tables and norms are whole on every rank, matrices are cut: the shares must shrink. */
static void check_share(const xd_engine *g, size_t whole, size_t mine)
{
    int T = g->ctx.plan.text_tp;
    if (rank < T && T > 1 && mine >= whole)
        fail(g, "the share of the weights is no share", (double)mine);
}

/* Embeddings that rank 0 keeps reach all ranks, and no rank loads an encoder for them. */
static void check_kept(const char *dir, int T)
{
    xd_err       e = { 0 };
    xd_engine   *g = NULL;
    xd_open_args a = { .size = sizeof a, .model = dir, .dtype = "f32", .threads = 1, .keep = 1 };
    int64_t      n[2];
    size_t       packed;
    float       *v[2];
    a.parallel.ulysses_degree = ranks;
    a.parallel.text_tensor_parallel_degree = T;
    must(xd_open_with(&g, &a, 0, &e), &e);
    for (int i = 0; i < 2; i++) {
        v[i] = encode(g, &n[i], &packed);
        for (int k = 0; k < g->ctx.model.recipe->ntext; k++) {
            if (!g->ctx.model.has_text[k])
                continue;
            if (i && g->ctx.model.text[k].w->store)
                fail(g, "loads an encoder for prompts whose embeddings are kept", k);
            xd_component_drop(&g->ctx.model.text[k]);
        }
    }
    checks++;
    if (n[0] != n[1] || memcmp(v[0], v[1], (size_t)n[0] * sizeof **v) != 0)
        fail(g, "embeddings that are kept have other bits", 0);
    free(v[0]), free(v[1]);
    xd_close(&g);
}

static void one_model(const char *dir, xd_comm *world)
{
    xd_err       e = { 0 };
    xd_engine   *g = NULL;
    xd_open_args a = { .size = sizeof a, .model = dir, .dtype = "f32", .threads = 1 };
    int64_t      n[2];
    size_t       packed[2] = { 0 };
    must(xd_open_with(&g, &a, 0, &e), &e);
    float *want = encode(g, &n[0], &packed[0]);
    xd_close(&g);
    xd_req q = world->ops->bcast(world, xd_view(n, XD_I64, 1, (int64_t[]){ 1 }), 0);
    world->ops->wait(world, &q, 1);
    if (!want && !(want = malloc((size_t)n[0] * sizeof *want + 1)))
        exit(1);
    q = world->ops->bcast(world, xd_view(want, XD_F32, 1, n), 0);
    world->ops->wait(world, &q, 1);
    int64_t whole = (int64_t)packed[0];
    q = world->ops->bcast(world, xd_view(&whole, XD_I64, 1, (int64_t[]){ 1 }), 0);
    world->ops->wait(world, &q, 1);
    a.parallel.ulysses_degree = ranks;
    for (int T = 1; T <= ranks; T++) {
        a.parallel.text_tensor_parallel_degree = T;
        must(xd_open_with(&g, &a, 0, &e), &e);
        float *got = encode(g, &n[1], &packed[1]);
        if (!got || n[1] != n[0])
            exit(1);
        compare(g, want, got, n[0]);
        check_share(g, (size_t)whole, packed[1]);
        free(got);
        xd_close(&g);
    }
    check_kept(dir, 1);
    check_kept(dir, ranks);
    free(want);
}

int main(int argc, char **argv)
{
    xd_err   e = { 0 };
    xd_comm *world = NULL;
    xd_par_set(1);
    must(xd_comm_world(&world, xd_comm_launched() ? "mpi" : "self", &e), &e);
    rank = world->rank;
    ranks = world->size;
    for (int i = 1; i < argc; i++)
        one_model(argv[i], world);
    int64_t v[2] = { checks, failures };
    xd_req  q = world->ops->allreduce(world, xd_view(v, XD_I64, 1, (int64_t[]){ 2 }), XD_SUM);
    world->ops->wait(world, &q, 1);
    if (rank == 0)
        printf("%d ranks: embeddings compared %lld times, %lld failures\n", ranks, (long long)v[0],
               (long long)v[1]);
    xd_comm_close(&world);
    return v[1] || !v[0];
}
