/* stale.c - how far stale keys and values move an image: PSNR against the exact one.
 *
 *     stale MODEL [STEPS [PROMPT ...]]
 *     mpirun -n R stale MODEL [STEPS [PROMPT ...]]
 *
 * On one rank: PipeFusion for several numbers of patches and exact steps (the number of stages
 * does not change a bit). On R ranks: displaced patches with R ring members. Each number is
 * the mean over the prompts of the PSNR in dB of 8-bit pixels; 20 steps unless said. Rank 0
 * prints rows of a Markdown table. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xdit/tools.h"

enum { MAXPROMPT = 64, SEED = 11 };
static const int patches[] = { 2, 4, 8 }, warmups[] = { 1, 2, 4 };

static const char  *model, *preset[] = { "a large red circle on a blue background",
                                         "a small yellow star at the top on a purple background",
                                         "a green ring next to an orange square" };
static const char **prompts = preset;
static int          nprompts = 3, steps = 20, ranks, rank;

static void must(xd_status s, const xd_err *e)
{
    if (s == XD_OK)
        return;
    fprintf(stderr, "%s\n", e->msg);
    exit(1);
}

/* `keep`: gets the engine, which then stays open; an MPI that has ended cannot start again. */
static xd_result *generate(xd_parallel p, xd_engine **keep)
{
    xd_err       e = { 0 };
    xd_engine   *g = NULL;
    xd_result   *out = NULL;
    xd_open_args a = { .size = sizeof a,
                       .model = model, .dtype = "f32", .threads = 1, .parallel = p };
    xd_request   r;
    xd_request_init(&r);
    r.prompts = prompts;
    r.nprompts = nprompts;
    r.num_inference_steps = steps;
    r.seed = SEED;
    must(xd_open(&g, &a, &e), &e);
    must(xd_generate(g, &r, &out, &e), &e);
    rank = xd_rank(g);
    ranks = xd_ranks(g);
    if (keep)
        *keep = g;
    else
        xd_close(&g);
    return out;
}

/* In dB; images that are the same count as 99. */
static double psnr(const xd_image *a, const xd_image *b)
{
    int64_t n = a->width * a->height * a->channels;
    double  sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (a->data[i] - b->data[i]) * (a->data[i] - b->data[i]);
    return sum > 0 ? 10 * log10(255.0 * 255.0 * (double)n / sum) : 99;
}

static double mean_psnr(xd_parallel p, const xd_result *exact)
{
    xd_result *r = generate(p, NULL);
    double     sum = 0;
    for (int i = 0; rank == 0 && i < nprompts; i++)
        sum += psnr(xd_result_image(r, i), xd_result_image(exact, i));
    xd_result_free(&r);
    return sum / nprompts;
}

static void row(const char *name, xd_parallel p, const xd_result *exact)
{
    if (rank == 0)
        printf("| %s |", name);
    for (size_t w = 0; w < sizeof warmups / sizeof warmups[0]; w++) {
        p.warmup_steps = warmups[w];
        double v = mean_psnr(p, exact);
        if (rank == 0) {
            printf(" %.1f |", v);
            fflush(stdout);
        }
    }
    if (rank == 0)
        printf("\n");
}

int main(int argc, char **argv)
{
    char name[64];
    if (argc < 2 || argc > 3 + MAXPROMPT) {
        fprintf(stderr, "usage: %s MODEL [STEPS [PROMPT ...]]\n", argv[0]);
        return 2;
    }
    model = argv[1];
    if (argc > 2)
        steps = atoi(argv[2]);
    if (argc > 3) {
        prompts = (const char **)(void *)(argv + 3);
        nprompts = argc - 3;
    }
    const char *of_mpi = getenv("OMPI_COMM_WORLD_SIZE"), *of_pmi = getenv("PMI_SIZE");
    int         R = of_mpi ? atoi(of_mpi) : of_pmi ? atoi(of_pmi) : 1;
    xd_parallel ring = { .ring_degree = R > 1 ? R : 1 };
    xd_engine  *first = NULL;
    xd_result  *exact = generate(ring, &first);
    if (R > 1) {
        xd_parallel p = { .ring_degree = R, .num_pipeline_patch = 1, .use_displaced_patches = 1 };
        snprintf(name, sizeof name, "DistriFusion, %d members", R);
        row(name, p, exact);
    }
    for (size_t m = 0; R == 1 && m < sizeof patches / sizeof patches[0]; m++) {
        xd_parallel p = { .num_pipeline_patch = patches[m], .patches_without_stages = 1 };
        snprintf(name, sizeof name, "PipeFusion, %d patches", patches[m]);
        row(name, p, exact);
    }
    xd_result_free(&exact);
    xd_close(&first);
    return 0;
}
