/* test_beside.c - engines beside an engine: with its ranks and plan, and of one rank each
 *
 * usage: test_beside MODEL DEVICE PLAN...    PLAN as xd_parallel_read, of all ranks, "cut" behind
 *                                            those that cut weights: "u2" "tp2:cut"
 * A request that waits between two of its parts, the requests that are generated meanwhile, and
 * those of single ranks all have the bits of requests that run by themselves. Speaks TAP. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xdit/tools.h"

typedef struct shot {
    int64_t width, height;
    int     seed, steps;
} shot;

static const shot outer = { 80, 48, 1, 3 }, inner = { 48, 64, 2, 2 }, deep = { 48, 48, 3, 2 };

enum { FRAMES = 9 }; /* of a video; the first one, and two times four */

static int         me, ranks, failed, count, loads, video;
static const char *model, *device;
static char        image[4096]; /* that videos begin with; "": none */

static void check(int ok, const char *plan, const char *what)
{
    int all;
    MPI_Allreduce(&ok, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    count++;
    failed |= !all;
    if (me == 0)
        printf("%sok %d - %s: %s\n", all ? "" : "not ", count, plan, what);
}

/* Weights are loaded once, whichever engine needs them first. */
static void on_log(void *cookie, int level, const char *line)
{
    (void)cookie, (void)level;
    loads += strstr(line, "MB of weights") != NULL;
}

static xd_engine *open_main(const char *plan, MPI_Comm *comm)
{
    xd_open_args a;
    xd_err       e = { 0 };
    xd_engine   *g = NULL;
    xd_open_args_init(&a);
    a.model = model;
    a.dtype = "f32";
    a.device = device;
    a.threads = 1;
    a.keep = 1;
    a.mpi_comm = comm;
    a.log = on_log;
    a.log_level = XD_LOG_DEBUG;
    if ((*plan && xd_parallel_read(&a.parallel, plan, &e) != XD_OK) || xd_open(&g, &a, &e) != XD_OK)
        fprintf(stderr, "rank %d: %s\n", me, e.msg);
    return g;
}

static void fill_request(xd_request *r, const shot *p)
{
    static const char *const prompts[] = { "a red circle", "two blue squares", "a green cross" };
    xd_request_init(r);
    r->prompts = &prompts[p->seed % 3];
    r->nprompts = 1;
    r->width = p->width;
    r->height = p->height;
    r->output.no_resolution_binning = 1;
    r->num_inference_steps = p->steps;
    if (video)
        r->num_frames = FRAMES;
    r->images.image = *image ? image : NULL;
    r->guidance_scale = 4;
    r->seed = p->seed;
}

/* Hash of the image on the rank that has it; 1: there is none here; 0: a failure. */
static uint64_t generate(xd_engine *g, const xd_request *r)
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
    xd_result_free(&out);
    return im ? h : 1;
}

static uint64_t generate_shot(xd_engine *g, const shot *p)
{
    xd_request r;
    fill_request(&r, p);
    return generate(g, &r);
}

/* ---- turns -------------------------------------------------------------------------------- */

enum { TEXT, LOAD, STEPS, DECODE, STAGES }; /* parts of a request */

typedef struct turns {
    xd_engine *of, *beside[2], *alone;
    int        depth, stage[3], calls[STAGES]; /* stage: of the requests at each depth */
    uint64_t   got[2], own;                    /* of the requests at each depth; of this rank's */
} turns;

static void on_stage(void *cookie, const char *stage)
{
    turns *t = cookie;
    t->stage[t->depth] = strcmp(stage, "text") == 0     ? TEXT
                         : strcmp(stage, "load") == 0   ? LOAD
                         : strcmp(stage, "decode") == 0 ? DECODE
                                                        : STEPS;
}

static xd_status on_turn(void *cookie, xd_err *e)
{
    turns *t = cookie;
    int    k = t->depth;
    (void)e;
    t->calls[t->stage[k]]++;
    if (k > 1 || t->got[k])
        return XD_OK;
    xd_request r;
    fill_request(&r, k ? &deep : &inner);
    r.callbacks.on_turn = on_turn;
    r.callbacks.on_stage = on_stage;
    r.callbacks.cookie = t;
    t->depth++;
    t->got[k] = generate(t->beside[k], &r);
    t->depth--;
    if (k == 0 && t->alone)
        t->own = generate_shot(t->alone, &deep);
    return XD_OK;
}

static uint64_t generate_with_turns(turns *t)
{
    xd_request r;
    fill_request(&r, &outer);
    r.callbacks.on_turn = on_turn;
    r.callbacks.on_stage = on_stage;
    r.callbacks.cookie = t;
    return generate(t->of, &r);
}

/* The first requests of an engine: turns come in text already, and weights that a request in a turn
 * has loaded are there for those that wait. */
static void test_first(const char *plan, const uint64_t want[3], int once)
{
    MPI_Comm world = MPI_COMM_WORLD;
    turns    t = { .of = open_main(plan, &world) };
    xd_err   e = { 0 };
    loads = 0;
    for (int k = 0; k < 2; k++)
        check(xd_open_beside(&t.beside[k], t.of, 0, &e) == XD_OK, plan, "beside a new engine");
    check(generate_with_turns(&t) == want[0] && t.got[0] == want[1] && t.got[1] == want[2], plan,
          "three images of a new engine");
    check(t.calls[TEXT] > 0, plan, "turns in the text");
    check(loads == once, plan, "weights are loaded once");
    if (loads != once)
        fprintf(stderr, "rank %d: %d components are loaded, not %d\n", me, loads, once);
    for (int k = 2; k--;)
        xd_close(&t.beside[k]);
    xd_close(&t.of);
}

static xd_status fail_turn(void *cookie, xd_err *e)
{
    (void)cookie;
    if (e)
        snprintf(e->msg, sizeof e->msg, "the turn fails");
    return XD_EIO;
}

/* All ranks refuse alike, and the engine goes on. */
static void test_failure(xd_engine *g, const char *plan, uint64_t want)
{
    xd_request r;
    xd_err     e = { 0 };
    xd_result *out = NULL;
    fill_request(&r, &outer);
    r.callbacks.on_turn = fail_turn;
    xd_status s = xd_generate(g, &r, &out, &e);
    xd_result_free(&out);
    check(s == XD_EIO && strstr(e.msg, "the turn fails"), plan,
          "a turn that fails ends the request");
    check(generate_shot(g, &outer) == want, plan, "and the engine goes on");
}

static void test_plan(const char *plan, int cut, const uint64_t one[3])
{
    MPI_Comm world = MPI_COMM_WORLD;
    turns    t = { .of = open_main(plan, &world) };
    xd_err   e = { 0 };
    loads = 0;
    uint64_t want[3] = { generate_shot(t.of, &outer), generate_shot(t.of, &inner),
                         generate_shot(t.of, &deep) };
    int      once = loads;
    check(want[0] && want[1] && want[2], plan, "three images");
    if (failed)
        return;
    for (int k = 0; k < 2; k++)
        check(xd_open_beside(&t.beside[k], t.of, 0, &e) == XD_OK, plan, "an engine beside it");
    check(generate_with_turns(&t) == want[0], plan, "the request that waits");
    check(t.got[0] == want[1] && t.got[1] == want[2], plan, "the requests in its turns");
    check(t.calls[TEXT] == 0 && t.calls[STEPS] == outer.steps + inner.steps + deep.steps, plan,
          "a turn after every step, none where the text is known");
    check(t.calls[DECODE] == (video ? 3 * (FRAMES - 1) / 4 : 0), plan,
          "turns between frames of the latents that are decoded");
    check(t.calls[LOAD] == (*image ? 3 * (FRAMES - 1) / 4 : 0), plan,
          "and between those that are encoded");
    xd_status s = xd_load_everywhere(t.of, &e);
    check(s == (cut ? XD_EUNSUPPORTED : XD_OK), plan,
          "all weights everywhere, unless it cuts them");
    if (!cut) {
        check(xd_open_beside(&t.alone, t.of, 1, &e) == XD_OK, plan, "an engine of one rank");
        for (int k = 0; k < 3; k++) {
            const shot *p[] = { &outer, &inner, &deep };
            check(generate_shot(t.alone, p[k]) == one[k], plan, "its bits are those of one rank");
        }
        t.got[0] = t.got[1] = 0;
        check(generate_with_turns(&t) == want[0] && t.got[0] == want[1], plan, "turns once more");
        check(t.own == one[2], plan, "all ranks by themselves in a turn");
    }
    test_failure(t.of, plan, want[0]);
    xd_close(&t.alone);
    xd_close(&t.beside[1]);
    xd_close(&t.beside[0]);
    check(generate_shot(t.of, &inner) == want[1], plan, "the engine after the others are closed");
    xd_close(&t.of);
    test_first(plan, want, once);
}

int main(int argc, char **argv)
{
    MPI_Comm self = MPI_COMM_SELF;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 4)
        return 2;
    model = argv[1];
    device = argv[2];
    xd_engine *g = open_main("", &self);
    video = g && xd_makes_videos(g);
    snprintf(image, sizeof image, "%s/image.png", model);
    FILE *f = video ? fopen(image, "rb") : NULL;
    if (f)
        fclose(f);
    else
        image[0] = 0;
    uint64_t one[3] = { generate_shot(g, &outer), generate_shot(g, &inner),
                        generate_shot(g, &deep) };
    check(one[0] > 1 && one[0] != one[1] && one[1] != one[2], "one rank", "three images");
    xd_close(&g);
    for (int i = 3; i < argc; i++) {
        char plan[64];
        int  n = (int)strcspn(argv[i], ":");
        snprintf(plan, sizeof plan, "%.*s", n, argv[i]);
        test_plan(plan, strcmp(argv[i] + n, ":cut") == 0, one);
    }
    if (me == 0)
        printf("1..%d\n", count);
    MPI_Finalize();
    return failed;
}
