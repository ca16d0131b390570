/* test_lora_sets.c - LoRA files of single requests (xd_use_loras)
 *
 * usage: test_lora_sets MODEL DEVICE SCRATCH PLAN...  PLAN as xd_parallel_read, of all ranks
 * MODEL is the demo model. A request has the bits of an engine that was opened with its files,
 * whatever files came before it, also in the turns of a request with other files. What no file
 * changes is loaded once, weights that are kept are not loaded again. Speaks TAP. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/safetensors.h"
#include "xdit/tools.h"

enum { FILES = 2, D = 192, E = 128, RANK = 4, KEPT = 4 };

static int         me, ranks, failed, count, loads[3];
static const char *model, *device, *plan;
static char        path[FILES][1024];

static void check(int ok, const char *what)
{
    int all;
    MPI_Allreduce(&ok, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    count++;
    failed |= !all;
    if (me == 0)
        printf("%sok %d - %s: %s\n", all ? "" : "not ", count, plan, what);
}

/* ---- files ---------------------------------------------------------------------------------- */

/* The first changes queries of the transformer; the second those of other blocks, and of the text
 * encoder. */
static void write_files(const char *scratch)
{
    static const char *const names[FILES][4] = {
        { "transformer.transformer_blocks.0.attn1.to_q.lora_A.weight",
          "transformer.transformer_blocks.0.attn1.to_q.lora_B.weight" },
        { "transformer.transformer_blocks.1.attn1.to_v.lora_A.weight",
          "transformer.transformer_blocks.1.attn1.to_v.lora_B.weight",
          "text_encoder.encoder.block.0.layer.0.SelfAttention.v.lora_A.weight",
          "text_encoder.encoder.block.0.layer.0.SelfAttention.v.lora_B.weight" },
    };
    static float v[D * RANK];
    for (int i = 0; i < D * RANK; i++)
        v[i] = 0.2f * (float)((i * 37) % 17 - 8) / 8;
    for (int k = 0; k < FILES; k++) {
        xd_st_item item[4];
        xd_err     e = { 0 };
        int        n = 0;
        for (; n < 4 && names[k][n]; n++) {
            int64_t wide = n < 2 ? D : E;
            item[n] = (xd_st_item){ names[k][n],
                                    xd_view2(v, XD_F32, n % 2 ? wide : RANK, n % 2 ? RANK : wide) };
        }
        snprintf(path[k], sizeof path[k], "%s/lora-sets-%d-%d.safetensors", scratch, ranks, k);
        if (me == 0 && xd_st_write(path[k], item, n, 1, NULL, &e) != XD_OK)
            fprintf(stderr, "%s\n", e.msg);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Counts what is loaded: transformer, VAE, text encoder. */
static void on_log(void *cookie, int level, const char *line)
{
    static const char *const parts[] = { "transformer: ", "vae: ", "text_encoder: " };
    (void)cookie, (void)level;
    for (int i = 0; i < 3; i++)
        loads[i] += strncmp(line, parts[i], strlen(parts[i])) == 0 && strstr(line, "MB of weights");
}

static xd_engine *open_with(const xd_lora *v, int n)
{
    MPI_Comm     world = MPI_COMM_WORLD;
    xd_open_args a;
    xd_err       e = { 0 };
    xd_engine   *g = NULL;
    xd_open_args_init(&a);
    a.model = model;
    a.dtype = "f32";
    a.device = device;
    a.threads = 1;
    a.keep = 1;
    a.mpi_comm = &world;
    a.loras = v;
    a.nloras = n;
    a.log = on_log;
    a.log_level = XD_LOG_DEBUG;
    if (xd_parallel_read(&a.parallel, plan, &e) != XD_OK || xd_open(&g, &a, &e) != XD_OK)
        fprintf(stderr, "rank %d: %s\n", me, e.msg);
    return g;
}

static void fill_request(xd_request *r)
{
    static const char *const prompt = "a red circle";
    xd_request_init(r);
    r->prompts = &prompt;
    r->nprompts = 1;
    r->width = 64;
    r->height = 48;
    r->output.no_resolution_binning = 1;
    r->num_inference_steps = 2;
    r->guidance_scale = 4;
    r->seed = 5;
}

/* Hash of the image on the rank that has it; 1: there is none here; 0: a failure. */
static uint64_t generate_request(xd_engine *g, const xd_request *r)
{
    xd_err     e = { 0 };
    xd_result *out = NULL;
    uint64_t   h = 0xcbf29ce484222325u;
    if (!g || xd_generate(g, r, &out, &e) != XD_OK) {
        fprintf(stderr, "rank %d: %s\n", me, e.msg);
        return 0;
    }
    const xd_image *im = xd_rank(g) == 0 ? xd_result_image(out, 0) : NULL;
    for (int64_t i = 0; im && i < im->width * im->height * 3; i++)
        h = (h ^ im->data[i]) * 0x100000001b3u;
    for (const char *c = im ? xd_result_parameters(out, 0) : ""; *c; c++)
        h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    xd_result_free(&out);
    return im ? h : 1;
}

static uint64_t generate(xd_engine *g)
{
    xd_request r;
    fill_request(&r);
    return generate_request(g, &r);
}

static uint64_t generate_opened(const xd_lora *v, int n)
{
    xd_engine *g = open_with(v, n);
    uint64_t   h = generate(g);
    xd_close(&g);
    return h;
}

static uint64_t generate_using(xd_engine *g, xd_engine *with, const xd_lora *v, int n)
{
    xd_err e = { 0 };
    if (xd_use_loras(g, v, n, &e) != XD_OK) {
        fprintf(stderr, "rank %d: %s\n", me, e.msg);
        return 0;
    }
    uint64_t h = generate(with);
    xd_leave_loras(g);
    return h;
}

/* ---- turns ---------------------------------------------------------------------------------- */

typedef struct turns {
    xd_engine     *g, *beside;
    const xd_lora *v;
    uint64_t       got[2];
} turns;

static xd_status on_turn(void *cookie, xd_err *e)
{
    turns *t = cookie;
    (void)e;
    t->got[0] = generate_using(t->g, t->beside, &t->v[1], 1);
    t->got[1] = generate_using(t->g, t->beside, NULL, 0);
    return XD_OK;
}

static void test_turns(xd_engine *g, const xd_lora *v, const uint64_t want[3])
{
    turns      t = { .g = g, .v = v };
    xd_request r;
    xd_err     e = { 0 };
    check(xd_open_beside(&t.beside, g, 0, &e) == XD_OK, "an engine beside it");
    fill_request(&r);
    r.callbacks.on_turn = on_turn;
    r.callbacks.cookie = &t;
    check(xd_use_loras(g, &v[0], 1, &e) == XD_OK && generate_request(g, &r) == want[1],
          "a request with a file that waits for others");
    if (xd_ranks(g) == ranks) /* there are no turns where ranks are idle */
        check(t.got[0] == want[2] && t.got[1] == want[0], "those with another file, and with none");
    xd_leave_loras(g);
    check(generate_using(g, t.beside, &v[0], 1) == want[1], "the engine beside it, later");
    xd_close(&t.beside);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_loads(xd_engine *g, const xd_lora *v, const uint64_t want[3])
{
    memset(loads, 0, sizeof loads);
    check(generate(g) == want[0], "no file");
    check(generate_using(g, g, &v[0], 1) == want[1], "a file");
    check(generate_using(g, g, NULL, 0) == want[0], "no file again");
    check(generate_using(g, g, &v[0], 1) == want[1], "the file again");
    check(me || (loads[0] == 2 && loads[1] == 1 && loads[2] == 1),
          "the transformer is loaded twice, other parts once");
    check(generate_using(g, g, &v[1], 1) == want[2], "another file, which changes text");
    check(generate_using(g, g, &v[0], 1) == want[1], "the first one behind it");
    check(generate_using(g, g, NULL, 0) == want[0], "none behind them");
    check(me || (loads[0] == 3 && loads[1] == 1 && loads[2] == 2), "nothing is loaded again");
}

/* Many scales of a file: few of them keep their weights. */
static void test_room(xd_engine *g, const xd_lora *v, const uint64_t want[3])
{
    int good = 1, left = 0;
    for (int i = 0; i < 2 * KEPT; i++) {
        xd_lora one = { v[0].path, 0.1 * (i + 1) };
        good &= generate_using(g, g, &one, 1) != 0;
    }
    while (left < 100 && xd_drop_loras(g))
        left++;
    check(good && left == KEPT, "few sets keep their weights");
    memset(loads, 0, sizeof loads);
    check(generate_using(g, g, &v[0], 1) == want[1] && generate_using(g, g, NULL, 0) == want[0],
          "those that were freed are loaded again");
    check(me || (loads[0] == 2 && loads[1] == 0), "and nothing else is");
}

static void test_failures(xd_engine *g, const uint64_t want[3])
{
    xd_lora    none = { "/nowhere/lora.safetensors", 1 };
    xd_err     e = { 0 };
    xd_engine *beside = NULL;
    check(xd_use_loras(g, &none, 1, &e) == XD_EIO && strstr(e.msg, "nowhere"),
          "a file that is not there");
    check(generate(g) == want[0], "and the engine goes on");
    memset(&e, 0, sizeof e);
    check(xd_open_beside(&beside, g, 0, &e) == XD_OK &&
              xd_use_loras(beside, NULL, 0, &e) == XD_EINVAL,
          "an engine beside has no files");
    xd_close(&beside);
}

static void test_plan(void)
{
    const xd_lora v[FILES] = { { path[0], 0.7 }, { path[1], 1.5 } };
    uint64_t      want[3] = { generate_opened(NULL, 0), generate_opened(&v[0], 1),
                              generate_opened(&v[1], 1) };
    int           differ = want[0] != want[1] && want[0] != want[2] && want[1] != want[2];
    check(want[0] && want[1] && want[2] && (me || differ), "three images");
    xd_engine *g = open_with(NULL, 0);
    test_loads(g, v, want);
    test_turns(g, v, want);
    test_room(g, v, want);
    test_failures(g, want);
    xd_close(&g);
    /* The files that an engine was opened with are a set, too. */
    g = open_with(&v[0], 1);
    check(generate_using(g, g, &v[1], 1) == want[2], "instead of the engine's own file");
    check(generate_using(g, g, NULL, 0) == want[0], "none instead of it");
    check(generate_using(g, g, &v[0], 1) == want[1], "the engine's own");
    xd_close(&g);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 5)
        return 2;
    model = argv[1];
    device = argv[2];
    write_files(argv[3]);
    for (int i = 4; i < argc; i++) {
        plan = argv[i];
        test_plan();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; me == 0 && k < FILES; k++)
        remove(path[k]);
    if (me == 0)
        printf("1..%d\n", count);
    MPI_Finalize();
    return failed;
}
