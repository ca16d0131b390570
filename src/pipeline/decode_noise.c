/* decode_noise.c - mixes latents with noise before decoders that read a timestep (decode_noise.h)
 *
 * As in diffusers, the noise is drawn from the generator of the initial noise, after all values
 * that denoising has drawn. */
#include "pipeline/decode_noise.h"

#include <stdlib.h>

#include "base/rng.h"
#include "exec/op.h"
#include "model/model.h"
#include "pipeline/context.h"
#include "pipeline/given_noise.h"
#include "pipeline/image_roles.h"

static double time_of(const xd_job *j)
{
    double t = j->r->decoding.decode_timestep;
    return t >= 0 ? t : 0;
}

/* Returns the weight of the noise, which is the timestep by default. */
static double share_of(const xd_job *j)
{
    double s = j->r->decoding.decode_noise_scale;
    return !j->ctx->model.vae_info.timed ? 0 : s >= 0 ? s : time_of(j);
}

static int64_t seed_of(const xd_job *j)
{
    return (int64_t)((uint64_t)j->r->seed + (uint64_t)j->decoded);
}

xd_decoding xd_decode_input(const xd_job *j, int64_t row)
{
    return (xd_decoding){ .time = time_of(j), .seed = seed_of(j), .row = row };
}

/* Draws the values that denoising of a video with given frames draws, and then the noise
 * [C,T,h,w]. */
static void draw_conditions(const xd_job *j, xd_rng *g, float *noise)
{
    xd_role_conditions_draw(j, g, noise, NULL);
    for (int i = 0; i < j->samp.steps; i++) {
        int more = xd_role_conditions_noise(j) > 0;
        for (int k = (j->sampler->draws ? j->sampler->draws(&j->samp, i) : 0) + more; k > 0; k--)
            xd_rng_normal(g, noise, j->numbers);
    }
    xd_rng_normal(g, noise, j->numbers / j->cells[0] * (j->cells[0] - j->spare));
}

/* Draws the values that denoising draws, and then the noise [C,T,h,w]. */
static void draw(const xd_job *j, float *noise)
{
    int     drawn = !j->small || j->samp.steps; /* 0: the pass has drawn nothing */
    int64_t image = j->held && drawn ? j->numbers / j->cells[0] : 0;
    xd_rng  g;
    xd_rng_open(&g, j->r->noise.rng, seed_of(j));
    if (j->role->conditions && drawn) {
        draw_conditions(j, &g, noise);
        return;
    }
    if (image && g.torch)
        xd_rng_normal(&g, noise, image);
    if (drawn && (!xd_given_noise_of(j, j->decoded) || !g.torch))
        xd_rng_normal(&g, noise, j->numbers);
    if (image && !g.torch)
        xd_rng_normal(&g, noise, image);
    for (int i = 0; i < j->samp.steps && j->sampler->draws; i++)
        for (int k = j->sampler->draws(&j->samp, i); k > 0; k--)
            xd_rng_normal(&g, noise, j->numbers);
    xd_rng_normal(&g, noise, j->numbers);
}

/* Copies the rows of noise [C,T,h,w] that belong to `to` [T,n,w,C]. */
static void put_noise(xd_exec *x, const xd_job *j, xd_tensor to, const float *noise, float *own,
                      int64_t row)
{
    int64_t T = to.d[0], n = to.d[1], w = to.d[2], C = to.d[3], h = j->cells[1], at = 0;
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < n * w; i++)
            for (int64_t c = 0; c < C; c++)
                own[at++] = noise[((c * T + t) * h + row) * w + i];
    xd_put(x, to, own);
}

void xd_decode_mix(xd_exec *x, const xd_job *j, const xd_net *net, xd_tensor lat, int64_t row)
{
    const xd_vae *vae = j->ctx->model.vae.vae;
    float         share = (float)share_of(j);
    int64_t       n = xd_count(lat);
    size_t        mark = xd_arena_mark(x->tmp), bytes = (size_t)j->numbers * sizeof(float);
    if (!(share > 0))
        return;
    xd_tensor z = xd_new_as(x, XD_F32, 4, lat.d);
    float    *noise = xd_counting(x) ? NULL : malloc(bytes + 1);
    float    *own = xd_counting(x) ? NULL : malloc((size_t)n * sizeof *own + 1);
    if (noise && own) {
        draw(j, noise);
        put_noise(x, j, z, noise, own, row);
    } else if (!xd_counting(x)) {
        xd_exec_fail(x, XD_ENOMEM, "no memory for the noise of the decoder");
    }
    if (vae->normalize)
        z = vae->normalize(x, net, z);
    xd_axpby(x, xd_reshape(lat, 1, &n), share, xd_reshape(z, 1, &n), 1 - share);
    free(noise);
    free(own);
    xd_arena_rewind(x->tmp, mark);
}
