/* test_parity.c - every plan against one rank, on as many ranks as this was started with.
 *
 * A tiny PixArt with random weights (5 heads, 7 blocks, 11 x 13 tokens): every factorization of
 * the ranks over the six axes, with patches, displaced patches and VAE rows where they apply. One
 * launch per rank count; plans are looped inside. Run under mpirun; prints one line a failure
 * and counts. Arguments: the model directory, a dtype, and "near" where kernels do not give the same
 * bits for other shapes (below AVX-512). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"
#include "engine/engine.h"

enum { STEPS = 5, W = 26, H = 22 };

static const char *model_dir, *dtype;
static int         rank, ranks, plans, failures, bitwise, near;

typedef struct picture {
    float  *lat;
    int64_t nlat;
    uint8_t *rgb;
    int64_t nrgb;
} picture;

static void free_picture(picture *p)
{
    free(p->lat);
    free(p->rgb);
    *p = (picture){ 0 };
}

static void fail(const char *what, const char *why)
{
    failures++;
    printf("not ok: %d ranks, %s: %s\n", ranks, what, why);
    fflush(stdout);
}

static picture copy_result(const xd_result *r, int i)
{
    picture p = { 0 };
    const xd_image *im = xd_result_image(r, i);
    const float *lat = xd_result_lat(r, i, &p.nlat);
    p.lat = malloc((size_t)p.nlat * sizeof *p.lat + 1);
    memcpy(p.lat, lat, (size_t)p.nlat * sizeof *p.lat);
    if (im) {
        p.nrgb = im->width * im->height * 3;
        p.rgb = malloc((size_t)p.nrgb + 1);
        memcpy(p.rgb, im->data, (size_t)p.nrgb);
    }
    return p;
}

/* Paints two pictures; on rank 0 they are in out. 0: failed. */
static int paint(const xd_parallel *par, const char *what, picture out[2])
{
    static const char *const prompts[] = { "a small cyan square at the top on a brown background" };
    xd_open_args a = { .model = model_dir, .dtype = dtype, .threads = 1, .parallel = *par };
    xd_request   r;
    xd_engine   *g = NULL;
    xd_result   *res = NULL;
    xd_err       e = { 0 };
    int          ok = 0;
    xd_request_init(&r);
    r.prompts = prompts;
    r.nprompts = 1;
    r.negative_prompt = "red ring";
    r.width = W * 2, r.height = H * 2;
    r.num_inference_steps = STEPS;
    r.num_images_per_prompt = 2;
    r.seed = 5;
    if (xd_open_with(&g, &a, 0, &e) != XD_OK || xd_generate(g, &r, &res, &e) != XD_OK) {
        if (rank == 0)
            fail(what, e.msg);
    } else if (rank == 0) {
        ok = xd_result_count(res) == 2;
        for (int i = 0; ok && i < 2; i++)
            out[i] = copy_result(res, i);
    }
    xd_result_free(&res);
    xd_close(&g);
    return ok;
}

static double gap(const picture *a, const picture *b)
{
    double top = 0, most = 0;
    for (int64_t i = 0; i < a->nlat; i++) {
        double d = fabs((double)a->lat[i] - (double)b->lat[i]);
        most = d > most || !(d >= 0) ? d : most;
        top = fmax(top, fabs((double)a->lat[i]));
    }
    return most / top;
}

/* exact: the bits of one rank; else within `limit` of the largest value. */
static void check(const xd_parallel *par, const char *what, const picture *want, int exact,
                  double limit)
{
    picture got[2] = { { 0 }, { 0 } };
    char    why[128];
    plans++;
    if (paint(par, what, got) && rank == 0)
        for (int i = 0; i < 2; i++) {
            double g = gap(&want[i], &got[i]);
            int    same = memcmp(want[i].lat, got[i].lat, (size_t)want[i].nlat * sizeof(float)) == 0;
            int    image = memcmp(want[i].rgb, got[i].rgb, (size_t)want[i].nrgb) == 0;
            snprintf(why, sizeof why, "picture %d: latents differ by %.2g of the largest value%s", i, g,
                     image ? "" : ", so does the image");
            if (!(g <= limit) || (exact && (!same || !image)))
                fail(what, why);
            bitwise += exact;
        }
    free_picture(&got[0]);
    free_picture(&got[1]);
}

static void name_of(const xd_parallel *p, char *out, size_t n)
{
    snprintf(out, n, "tensor %d ulysses %d ring %d pipe %d cfg %d data %d patches %d warm-up %d%s%s",
             p->tensor_parallel_degree, p->ulysses_degree, p->ring_degree,
             p->pipefusion_parallel_degree, p->use_cfg_parallel + 1, p->data_parallel_degree,
             p->num_pipeline_patch, p->warmup_steps, p->use_displaced_patches ? " displaced" : "",
             p->use_parallel_vae ? " vae rows" : "");
}

static void one_plan(xd_parallel p, const picture *want, int f32)
{
    char what[160];
    int  exact = f32 && !near && p.tensor_parallel_degree == 1 && p.ring_degree == 1;
    name_of(&p, what, sizeof what);
    check(&p, what, want, exact, f32 ? 1e-5 : 3e-2);
}

/* All plans of a factorization: everything is warm, so all must give one rank's picture. */
static void factorization(xd_parallel p, const picture *want, int f32)
{
    static const int patches[] = { 1, 3, 4 };
    p.warmup_steps = STEPS;
    p.num_pipeline_patch = 1;
    for (int v = 0; v < 2; v++) {
        p.use_parallel_vae = v;
        for (int i = 0; i < (p.pipefusion_parallel_degree > 1 ? 3 : 1); i++) {
            p.num_pipeline_patch = patches[i];
            one_plan(p, want, f32);
        }
    }
    p.num_pipeline_patch = 1;
    if (p.ring_degree > 1) {
        p.use_displaced_patches = 1;
        one_plan(p, want, f32);
    }
}

/* Stale steps: the same bits for every number of stages at equal patches. */
static void stages(int f32)
{
    for (int m = 3; m <= 4; m++) {
        picture     want[2] = { { 0 }, { 0 } };
        char        what[160];
        xd_parallel p = { .num_pipeline_patch = m, .warmup_steps = 1 };
        if (!paint(&p, "one stage with patches", want) && rank == 0)
            return;
        p.pipefusion_parallel_degree = ranks;
        name_of(&p, what, sizeof what);
        check(&p, what, want, !near && f32, near ? 1e-5 : f32 ? 0 : 3e-2);
        if (rank == 0)
            for (int i = 0; i < 2; i++)
                free_picture(&want[i]);
    }
}

int main(int argc, char **argv)
{
    xd_err  e = { 0 };
    xd_comm *world = NULL;
    picture want[2] = { { 0 }, { 0 } };
    if (argc < 2)
        return 2;
    model_dir = argv[1];
    dtype = argc > 2 ? argv[2] : "f32";
    near = argc > 3;
    int f32 = strcmp(dtype, "f32") == 0, count = 0;
    xd_par_set(1);
    if (xd_comm_world(&world, xd_comm_launched() ? "mpi" : "self", &e) != XD_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    rank = world->rank;
    ranks = world->size;
    xd_parallel one = { 0 };
    if (!paint(&one, "one rank", want) && rank == 0)
        world->ops->abort(world, 1);
    for (int t = 1; t <= ranks; t++)
        for (int u = 1; u <= ranks; u++)
            for (int r = 1; r <= ranks; r++)
                for (int pp = 1; pp <= ranks; pp++)
                    for (int c = 1; c <= 2; c++) {
                        int d = ranks / (t * u * r * pp * c);
                        if (d < 1 || t * u * r * pp * c * d != ranks)
                            continue;
                        count++;
                        factorization((xd_parallel){ .tensor_parallel_degree = t, .ulysses_degree = u,
                                      .ring_degree = r, .pipefusion_parallel_degree = pp,
                                      .use_cfg_parallel = c - 1, .data_parallel_degree = d }, want, f32);
                    }
    stages(f32);
    if (rank == 0)
        printf("%d ranks: %d factorizations, %d plans, %d pictures compared bit for bit, %d failures\n",
               ranks, count, plans, bitwise, failures);
    free_picture(&want[0]);
    free_picture(&want[1]);
    xd_comm_close(&world);
    return failures ? 1 : 0;
}
