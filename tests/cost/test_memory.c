/* test_memory.c - one copy of weights per host: what all ranks together hold, on as many ranks as
 * this was started with.
 *
 * A PixArt checkpoint of random weights is made first, of about XDIT_TEST_MB (default 160) MB in
 * TMPDIR. Held memory is the proportional set size of every rank (/proc/self/smaps_rollup, which
 * cuts shared pages into as many parts as processes have them mapped), read by each rank in its
 * second step. Arguments: the directory whose configs are taken, and a weights_dtype. Lines that
 * begin with # are measurements. */
#define _XOPEN_SOURCE 700       /* mkdtemp, realpath, setenv */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/par.h"
#include "engine/engine.h"
#include "model/component.h"
#include "model/model.h"
#include "pipeline/result.h"

enum { DIM = 768, HEADS = 12, STEPS = 3, SIDE = 48, PROGRAM = 16000000 };

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CHECKED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECKED 1
#endif
#ifdef CHECKED
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static xd_comm    *world;
static int         failures, checks, rank, ranks;
static char        dir[512];
static double      file_bytes;
static const char *kept; /* weights_dtype */

static void check(int ok, const char *plan, const char *what)
{
    checks++;
    if (ok)
        return;
    failures++;
    printf("not ok: rank %d of %d, %s: %s\n", rank, ranks, plan, what);
    fflush(stdout);
}

/* ---- the checkpoint ----------------------------------------------------------------------- */

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, strerror(errno));
    world->ops->abort(world, 1);
}

static const char *in_dir(const char *name)
{
    static char path[4][1024];
    static int  at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", dir, name);
    return path[at];
}

static void write_config(int layers)
{
    FILE *f = fopen(in_dir("transformer/config.json"), "w");
    must(f != NULL, "cannot write a config");
    fprintf(
        f,
        "{\"_class_name\": \"PixArtTransformer2DModel\", \"num_layers\": %d, "
        "\"num_attention_heads\": %d, \"attention_head_dim\": %d, \"cross_attention_dim\": %d, "
        "\"caption_channels\": 24, \"in_channels\": 4, \"out_channels\": 8, \"sample_size\": 16, "
        "\"patch_size\": 2, \"attention_bias\": true, \"norm_type\": \"ada_norm_single\", "
        "\"activation_fn\": \"gelu-approximate\", \"norm_elementwise_affine\": false, "
        "\"norm_eps\": 1e-06, \"use_additional_conditions\": false}\n",
        layers, HEADS, DIM / HEADS, DIM);
    must(fclose(f) == 0, "cannot write a config");
}

static void link_configs(const char *from)
{
    static const char *const links[] = { "model_index.json", "scheduler", "tokenizer",
                                         "text_encoder/config.json", "vae/config.json" };
    static const char *const dirs[] = { "transformer", "text_encoder", "vae" };
    char                     path[4096];
    char                    *root = realpath(from, NULL);
    must(root != NULL, from);
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        must(mkdir(in_dir(dirs[i]), 0700) == 0, dirs[i]);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        snprintf(path, sizeof path, "%s/%s", root, links[i]);
        must(symlink(path, in_dir(links[i])) == 0, links[i]);
    }
    free(root);
}

/* All tensors are views of the same random numbers. */
static void write_weights(const xd_component *p, const char *file, float *numbers, int64_t most)
{
    xd_st_item *items = calloc((size_t)p->nlist, sizeof *items);
    char       *names = malloc((size_t)p->nlist * 512);
    struct stat st;
    xd_err      e = { 0 };
    must(items && names, "no memory");
    for (int i = 0; i < p->nlist; i++) {
        char *name = names + (size_t)i * 512;
        snprintf(name, 512, "%.*s", (int)strcspn(p->list[i].name, "|"), p->list[i].name);
        items[i] = (xd_st_item){ name, xd_view(numbers, XD_F32, p->list[i].nd, p->list[i].d) };
        must(xd_count(items[i].t) <= most, name);
    }
    must(xd_st_write(in_dir(file), items, p->nlist, 0, NULL, &e) == XD_OK, e.msg);
    must(stat(in_dir(file), &st) == 0, file);
    file_bytes += (double)st.st_size;
    free(items);
    free(names);
}

static void make_model(const char *from, double mb)
{
    const char *tmp = getenv("TMPDIR");
    int64_t     most = (int64_t)6 * DIM * DIM;
    float      *numbers = malloc((size_t)most * sizeof *numbers);
    xd_model    m;
    xd_err      e = { 0 };
    double      block = 16.0 * DIM * DIM * 4 / 1e6, rest = 20; /* MB: 16 matrices a block */
    int         quads = (int)((mb - rest) / block / 4 + 0.5);
    snprintf(dir, sizeof dir, "%s/xdit-memory-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    must(numbers && mkdtemp(dir), "cannot make a directory");
    for (int64_t i = 0; i < most; i++)
        numbers[i] = 0.02f * xd_random_weight(1, (uint64_t)i);
    link_configs(from);
    write_config(quads > 0 ? 4 * quads : 4);
    must(xd_model_open(&m, dir, &e) == XD_OK, e.msg);
    write_weights(&m.text[0], "text_encoder/model.safetensors", numbers, most);
    write_weights(&m.vae, "vae/diffusion_pytorch_model.safetensors", numbers, most);
    file_bytes = 0;
    write_weights(&m.dit, "transformer/diffusion_pytorch_model.safetensors", numbers, most);
    xd_model_close(&m);
    free(numbers);
}

static void remove_model(void)
{
    static const char *const names[] = {
        "model_index.json",
        "scheduler",
        "tokenizer",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "vae/config.json",
        "transformer/config.json",
        "vae/diffusion_pytorch_model.safetensors",
        "transformer/diffusion_pytorch_model.safetensors",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(in_dir(names[i]));
    rmdir(in_dir("transformer"));
    rmdir(in_dir("text_encoder"));
    rmdir(in_dir("vae"));
    rmdir(dir);
}

/* ---- looking ------------------------------------------------------------------------------ */

/* "key: N kB" of a file of /proc, in bytes. */
static double proc(const char *file, const char *key)
{
    char   line[256];
    double kb = 0;
    FILE  *f = fopen(file, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), "%lf", &kb);
    if (f)
        fclose(f);
    return kb * 1024;
}

static double sum(double v)
{
    int64_t one = 1;
    xd_req  r = world->ops->allreduce(world, xd_view(&v, XD_F64, 1, &one), XD_SUM);
    world->ops->wait(world, &r, 1);
    return v;
}

typedef struct look {    /* of one run, on this rank */
    double    loop, act; /* bytes: held in the loop; of activations, as counted */
    double    weights;   /* of the transformer */
    int       blocks, shared;
    xd_status status;
    int       bad_rank;
    char      msg[400], said[400];
    float    *lat; /* on rank 0 */
    int64_t   nlat;
} look;

static void on_step(void *cookie, const xd_progress *p)
{
    look *l = cookie;
    if (p->step == 2)
        l->loop = proc("/proc/self/smaps_rollup", "Pss:");
}

static void on_log(void *cookie, int level, const char *line)
{
    look  *l = cookie;
    double gib = 0;
    (void)level;
    if (sscanf(line, "memory: text %*f + %*f, transformer %*f + %lf", &gib) == 1)
        l->act = gib * 1073741824.0;
    if (strstr(line, "weights of its own"))
        snprintf(l->said, sizeof l->said, "%s", line);
}

static void squeeze(double room) /* bytes of address space from now on; 0: no limit */
{
    struct rlimit r;
    getrlimit(RLIMIT_AS, &r);
    r.rlim_cur = room > 0 ? (rlim_t)(proc("/proc/self/status", "VmSize:") + room) : r.rlim_max;
    must(setrlimit(RLIMIT_AS, &r) == 0, "setrlimit");
}

static double limit, late; /* squeezes: of the request; of rank 1 when it loads */

static void on_stage(void *cookie, const char *stage)
{
    (void)cookie;
    if (late > 0 && rank == 1 && strcmp(stage, "load") == 0)
        squeeze(late);
}

/* Generates with a plan on its ranks; the others are idle. */
static look run(const xd_parallel *par)
{
    static const char *const prompts[] = { "a small cyan square" };
    look                     l = { .bad_rank = -1 };
    xd_open_args             a = { .size = sizeof a,
                                   .model = dir,
                                   .dtype = "f32",
                                   .weights_dtype = kept,
                                   .threads = 1,
                                   .parallel = *par,
                                   .log_level = XD_LOG_DEBUG,
                                   .log = on_log,
                                   .cookie = &l };
    xd_request               r;
    xd_engine               *g = NULL;
    xd_result               *res = NULL;
    xd_err                   e = { .rank = -1 };
    xd_request_init(&r);
    r.prompts = prompts, r.nprompts = 1;
    r.width = r.height = SIDE;
    r.output.no_resolution_binning = 1;
    r.num_inference_steps = STEPS;
    r.callbacks.on_step = on_step, r.callbacks.on_stage = on_stage, r.callbacks.cookie = &l;
    l.status = xd_open(&g, &a, &e);
    if (l.status == XD_OK) {
        squeeze(limit);
        l.status = xd_generate(g, &r, &res, &e);
        squeeze(0);
    }
    if (l.status == XD_OK && g && !g->ctx.world.idle) {
        l.weights = (double)xd_store_bytes(g->ctx.model.dit.w->store);
        l.shared = g->ctx.model.dit.w->shared;
        l.blocks = g->ctx.model.dit.w->net.last - g->ctx.model.dit.w->net.first;
    }
    if (res && rank == 0) {
        const float *lat = xd_result_lat(res, 0, &l.nlat);
        l.lat = malloc((size_t)l.nlat * sizeof *lat + 1);
        must(l.lat != NULL, "no memory");
        memcpy(l.lat, lat, (size_t)l.nlat * sizeof *lat);
    }
    l.bad_rank = e.rank;
    snprintf(l.msg, sizeof l.msg, "%.399s", e.msg);
    xd_log_enter(NULL);
    xd_result_free(&res);
    xd_close(&g);
    return l;
}

static int same_image(const look *a, const look *b)
{
    return rank ||
           (a->nlat == b->nlat && memcmp(a->lat, b->lat, (size_t)a->nlat * sizeof(float)) == 0);
}

/* ---- the tests ---------------------------------------------------------------------------- */

/* All ranks of an exact plan hold what one holds, 15 % more, and their activations; of a
 * checkpoint below 900 MB also PROGRAM bytes a rank, which a process has of its own (a copy of
 * the weights would be ten times as much). A sanitizer's own memory is far more than that. */
static void together(const char *name, xd_parallel p, int n, const look *one, double one_held)
{
    look   l = run(&p);
    double held = sum(l.loop), act = sum(l.act), weights = sum(l.weights);
    double allowed = 1.15 * one_held + act + (file_bytes < 9e8 ? (n - 1) * (double)PROGRAM : 0);
    check(l.status == XD_OK, name, l.msg);
    check(rank >= n || l.shared, name, "its weights are not shared");
    check(same_image(one, &l), name, "another image");
    if (rank == 0) {
        printf("# %s: %d ranks hold %.1f MB, one %.1f; %.1f of activations; weights %.1f MB each; "
               "at most %.1f allowed%s\n",
               name, n, held / 1e6, one_held / 1e6, act / 1e6, weights / 1e6 / n, allowed / 1e6,
               SANITIZED ? " (not under a sanitizer)" : "");
        check(SANITIZED || held <= allowed, name, "holds too much");
        check(held >= one->weights, name, "holds less than the weights: the measurement is wrong");
    }
    free(l.lat);
}

/* A stage holds its blocks, each about L / n of the transformer's L, and nothing of the others. */
static void stages(int n, const look *one)
{
    xd_parallel p = { .pipefusion_parallel_degree = n, .num_pipeline_patch = 1 };
    char        name[32];
    xd_model    m;
    xd_dev     *dev = NULL, *count = NULL;
    xd_err      e = { 0 };
    look        l = run(&p);
    snprintf(name, sizeof name, "pipefusion %d", n);
    check(l.status == XD_OK, name, l.msg);
    check(same_image(one, &l), name, "another image");
    must(xd_model_open(&m, dir, &e) == XD_OK && xd_dev_open(&dev, "cpu", &e) == XD_OK &&
             xd_dev_open_count(&count, dev, &e) == XD_OK,
         "cannot count");
    int L = m.dit.w->net.nlayers;
    m.dit.w->blocks = kept ? XD_I8 : XD_F32;
    must(xd_component_count(&m.dit, count, XD_F32, &e) == XD_OK, e.msg);
    double all = (double)m.dit.count->packed;
    xd_component_stage(&m.dit, 0, 0);
    must(xd_component_count(&m.dit, count, XD_F32, &e) == XD_OK, e.msg);
    double rest = (double)m.dit.count->packed, block = (all - rest) / L;
    if (rank < n) {
        double gap = l.weights - rest - l.blocks * block;
        printf("# %s: rank %d holds %d of %d blocks, %.1f of their %.1f MB\n", name, rank, l.blocks,
               L, (l.weights - rest) / 1e6, (all - rest) / 1e6);
        check(l.blocks <= L / n + (L % n != 0) + (L > 4), name, "more blocks than its share");
        check(gap <= 0.02 * all && gap >= -0.02 * all, name, "does not hold its blocks alone");
    }
    check((int)sum(l.blocks) == L, name, "blocks are missing or there twice");
    xd_model_close(&m);
    xd_dev_close(&count);
    xd_dev_close(&dev);
    free(l.lat);
}

/* With less address space than twice the file needs, besides what is mapped at the start. */
static void squeezed(const char *name, xd_parallel p, const look *one)
{
    if (SANITIZED) {
        printf("# skipped: %s, because a sanitizer maps terabytes\n", name);
        return;
    }
    limit = (kept ? 0.5 : 1.25) * file_bytes + 64e6;
    look l = run(&p);
    limit = 0;
    if (rank == 0)
        printf("# %s: ran in %.1f MB of address space besides the program, the file has %.1f\n",
               name, ((kept ? 0.5 : 1.25) * file_bytes + 64e6) / 1e6, file_bytes / 1e6);
    check(l.status == XD_OK, name, l.msg);
    check(same_image(one, &l), name, "another image under ulimit -v");
    free(l.lat);
}

/* Rank 1 of two has `fixed` bytes of address space left when it loads, and `room` more, or half as
 * much, and so on, until the load lacks memory: what kernels pack with depends on the processor.
 * Both ranks say the same in the end. */
static void starved(const char *name, double fixed, double room)
{
    const char *lack = "transformer: no memory ";
    if (SANITIZED)
        return;
    xd_parallel p = { .ulysses_degree = 2 };
    late = fixed + room;
    look l = run(&p);
    for (; !strstr(l.msg, lack) && room > 1e5; free(l.lat), l = run(&p))
        late = fixed + (room /= 2);
    if (rank == 0)
        printf("# %s: %.1f MB beside %.1f are too little\n", name, room / 1e6, fixed / 1e6);
    late = 0;
    if (rank == 0)
        printf("# %s: rank %d: %s\n", name, l.bad_rank, l.msg);
    check(rank > 1 || l.status == XD_ENOMEM, name, l.msg);
    check(rank > 1 || l.bad_rank == 1, name, "another rank is named");
    check(rank > 1 || strstr(l.msg, lack) != NULL, name, l.msg);
    free(l.lat);
}

/* Files may not be so large, and shared memory is one: everybody has weights of its own. */
static void alone(const look *one)
{
    const char   *name = "no shared memory";
    struct rlimit all, few;
    must(getrlimit(RLIMIT_FSIZE, &all) == 0, "getrlimit");
    few = (struct rlimit){ 1 << 20, all.rlim_max };
    must(setrlimit(RLIMIT_FSIZE, &few) == 0, "setrlimit");
    look l = run(&(xd_parallel){ .ulysses_degree = 2 });
    must(setrlimit(RLIMIT_FSIZE, &all) == 0, "setrlimit");
    check(l.status == XD_OK, name, l.msg);
    check(!l.shared, name, "weights are shared all the same");
    check(rank || strstr(l.said, "every rank keeps weights of its own"), name, "it is not said");
    check(same_image(one, &l), name, "another image");
    if (rank == 0)
        printf("# %s: %s\n", name, l.said);
    free(l.lat);
}

static void all_tests(void)
{
    xd_parallel none = { 0 };
    look        one = run(&none);
    double      held = sum(one.loop);
    check(one.status == XD_OK, "one rank", one.msg);
    if (sum(failures) > 0)
        return;
    one.weights = sum(one.weights);
    if (rank == 0)
        printf("# one rank: %.1f MB held, %.1f of weights, %.1f of activations counted\n",
               held / 1e6, one.weights / 1e6, one.act / 1e6);
    if (kept && rank == 0) /* blocks are a quarter of f32, the rest is as it was */
        check(one.weights < 0.45 * file_bytes, "one rank", "its weights are not quantized");
    squeezed("one rank", none, &one);
    for (int n = 2; n <= ranks && n <= 4; n += 2) {
        char name[32];
        snprintf(name, sizeof name, "ulysses %d", n);
        together(name, (xd_parallel){ .ulysses_degree = n }, n, &one, held);
        stages(n, &one);
    }
    if (ranks == 2) {
        squeezed("ulysses 2", (xd_parallel){ .ulysses_degree = 2 }, &one);
        if (kept) {
            free(one.lat);
            return;
        }
        starved("no room for the tensor in hand", one.weights, 20e6);
        starved("no room for shared memory", one.weights / 2, 0);
        alone(&one);
    }
    free(one.lat);
}

int main(int argc, char **argv)
{
    xd_err      e = { 0 };
    const char *mb = getenv("XDIT_TEST_MB");
    double      size = mb ? atof(mb) : 160;
    if (argc < 2)
        return 2;
    kept = argc > 2 ? argv[2] : NULL;
    xd_par_set(1);
    if (xd_comm_world(&world, xd_comm_launched() ? "mpi" : "self", &e) != XD_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    rank = world->rank, ranks = world->size;
    if (rank == 0)
        make_model(argv[1], size);
    int64_t n = sizeof dir, one = 1;
    xd_req  r = world->ops->bcast(world, xd_view(dir, XD_U8, 1, &n), 0);
    world->ops->wait(world, &r, 1);
    r = world->ops->bcast(world, xd_view(&file_bytes, XD_F64, 1, &one), 0);
    world->ops->wait(world, &r, 1);
    all_tests();
    failures = (int)sum(failures);
    if (rank == 0) {
        remove_model();
        printf("# %d ranks, a transformer of %.1f MB: %d checks on rank 0, %d failures\n", ranks,
               file_bytes / 1e6, checks, failures);
    }
    xd_comm_close(&world);
    return failures ? 1 : 0;
}
