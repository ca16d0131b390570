/* denoise_latents.c - the latents of the denoising loop: distributes noise and images to the ranks'
 * token rows, and gathers the rows of all ranks to complete latents */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "comm/kinds.h"
#include "exec/op.h"
#include "model/model.h"
#include "pipeline/callbacks.h"
#include "pipeline/denoise.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/given_noise.h"
#include "pipeline/image_roles.h"
#include "pipeline/job.h"
#include "pipeline/mask.h"
#include "pipeline/upsampling.h"

void xd_denoise_wait(xd_denoise *f, xd_comm *c, xd_req *r)
{
    if (c->ops->wait(c, r, 1) != XD_OK)
        xd_exec_fail(&f->x, XD_ECOMM, "a message between stages failed");
    *r = (xd_req){ 0 };
}

void xd_denoise_from_tokens(const float *tokens, const int64_t lat[4], int64_t first, float *out)
{
    int64_t n = lat[0], C = lat[1], hw = lat[2] * lat[3];
    for (int64_t t = 0; t < n; t++) {
        float *to = out + (t + first) % n * C * hw;
        for (int64_t i = 0; i < hw; i++)
            for (int64_t c = 0; c < C; c++)
                to[c * hw + i] = tokens[(t * hw + i) * C + c];
    }
}

float *xd_denoise_buffer(xd_denoise *f, int64_t n, const char *what)
{
    float *p = malloc((size_t)n * sizeof *p + 1);
    if (!p)
        xd_exec_fail(&f->x, XD_ENOMEM, "no memory for %s", what);
    return p;
}

int64_t xd_denoise_extra(const xd_denoise *f)
{
    const xd_dit_info *d = &f->j->ctx->model.dit_info;
    return d->extra_ch * (f->j->features / d->lat_ch);
}

/* Host buffers for tokens. A token has `features` elements: `features` / (pt p p) channels of a
 * patch of pt x p x p latent cells. The buffer `rows` has space for all tokens, and the buffer
 * `mine` has space for the tokens of this rank. */
typedef struct packing {
    int64_t features;
    float  *rows, *mine;
} packing;

/* Makes two views [H,W,C,p,p] of latent frame t: v[0] is a view of the frame's elements in the
 * latents [t,C,h,w], and v[1] is a view of the same elements in the tokens [T H W,C pt p p]. */
static void as_cells(const xd_denoise *f, int64_t F, int64_t t, float *lat, float *tokens,
                     xd_tensor v[2])
{
    const xd_job *j = f->j;
    const int    *p = j->ctx->model.dit_info.patch;
    int64_t C = F * j->lat[1] / j->features, h = j->cells[1], w = j->cells[2], H = j->lay.grid[1],
            W = j->lay.grid[2];
    int64_t d[5] = { H, W, C, p[1], p[2] };
    v[0] = xd_view(lat + t * C * h * w, XD_F32, 5, d);
    v[0].s[0] = p[1] * w, v[0].s[1] = p[2], v[0].s[2] = h * w, v[0].s[3] = w;
    v[1] = xd_view(tokens + t / p[0] * H * W * F + t % p[0] * p[1] * p[2], XD_F32, 5, d);
    v[1].s[0] = W * F, v[1].s[1] = F, v[1].s[2] = p[0] * p[1] * p[2];
}

/* Copies all elements from latents to tokens, or from tokens to latents; both are in host
 * memory. */
static void copy_latents(xd_denoise *f, int64_t F, float *lat, float *tokens, int to_tokens)
{
    xd_tensor v[2];
    for (int64_t t = 0; t < f->j->cells[0]; t++) {
        as_cells(f, F, t, lat, tokens, v);
        xd_comm_copy(v[to_tokens], v[!to_tokens]);
    }
}

/* Copies the token rows of one rank between the buffer `whole`, which has all tokens of a stream,
 * and the contiguous buffer `rows`. The rank is member `sp` of the ranks that split the tokens. */
static void copy_member_rows(const xd_denoise *f, xd_stream_id stream, int64_t F, int sp,
                             float *whole, float *rows, int to_rows)
{
    size_t row = (size_t)F * sizeof(float);
    for (int p = 0; p < f->lay.npatch; p++) {
        xd_span s = xd_own(&f->lay, stream, p, sp);
        char   *w = (char *)whole + (size_t)s.start * row;
        memcpy(to_rows ? (char *)rows : w, to_rows ? w : (char *)rows, (size_t)s.n * row);
        rows += s.n * F;
    }
}

/* Copies this rank's tokens from p->rows, which has all tokens, to the first rows of the device
 * tensor `to`; overwrites p->mine. */
static void set_own_rows(xd_denoise *f, xd_tensor to, const packing *p)
{
    copy_member_rows(f, XD_IMG, p->features, f->x.sp, p->rows, p->mine, 1);
    if (to.d[0])
        xd_put(&f->x, xd_denoise_part(f, to, XD_ALL), p->mine);
}

/* Converts the latents `lat` in host memory to tokens, and copies this rank's tokens to the device
 * tensor `to`; overwrites the buffers p->rows and p->mine. */
static void set_packed(xd_denoise *f, xd_tensor to, float *lat, const packing *p)
{
    copy_latents(f, p->features, lat, p->rows, 1);
    set_own_rows(f, to, p);
}

void xd_denoise_set_rows(xd_denoise *f, xd_tensor to, float *lat)
{
    set_packed(f, to, lat, &(packing){ f->j->features, f->rows, f->mine });
}

/* Returns 1 if the pipeline draws the noise of audio in the order of tokens. */
static int draws_tokens(const xd_job *j)
{
    return j->role->keyframes || (j->small && j->small->audio_latents);
}

/* Copies latents of audio [C,t,m] to tokens [t,F], or back. Features after the C m of a token are
 * zeros. */
static void copy_audio(const xd_job *j, float *lat, float *tokens, int to_tokens)
{
    xd_tensor v[2] = { xd_view(lat, XD_F32, 3, j->audio), xd_view(tokens, XD_F32, 3, j->audio) };
    v[1].s[0] = j->audio[2], v[1].s[1] = j->features;
    if (to_tokens && j->audio[0] * j->audio[2] < j->features)
        memset(tokens, 0, (size_t)(j->audio[1] * j->features) * sizeof *tokens);
    xd_comm_copy(v[to_tokens], v[!to_tokens]);
}

/* Draws noise [C,t,m] for the latents of audio or, if the pipeline draws it in the order of tokens,
 * [t,C m]; writes [C,t,m] to f->whole. */
static void draw_audio_numbers(xd_denoise *f)
{
    const xd_job *j = f->j;
    if (!draws_tokens(j)) {
        xd_rng_normal(&f->rng, f->whole, j->audio_numbers);
        return;
    }
    xd_tensor from = xd_view(f->rows, XD_F32, 3, j->audio);
    from.s[0] = j->audio[2], from.s[1] = j->audio[0] * j->audio[2];
    xd_rng_normal(&f->rng, f->rows, j->audio_numbers);
    xd_comm_copy(xd_view(f->whole, XD_F32, 3, j->audio), from);
}

/* Mixes noise with the audio latents of the first pass. */
static void mix_audio(const xd_job *j, float *noise)
{
    const xd_sampling *samp = j->audio_samp.def ? &j->audio_samp : &j->samp;
    double             of[2]; /* weights of latents and noise */
    j->sampler->shares(samp, 0, of);
    for (int64_t i = 0; i < j->audio_numbers; i++)
        noise[i] = (float)of[1] * noise[i] + (float)of[0] * j->small->audio_latents[i];
}

/* Draws noise for the latents of audio, which are drawn after those of the video, and copies this
 * rank's tokens to the tensor `to`. */
static void draw_audio(xd_denoise *f, xd_tensor to, const char *name)
{
    const xd_job *j = f->j;
    if (!j->audio_numbers || !xd_ok(&f->x))
        return;
    draw_audio_numbers(f);
    if (name && j->enlarged)
        name = "upsampled_audio_noise";
    if (name)
        xd_callback_tensor(j, name, 0, 3, j->audio, f->whole);
    if (name && j->small && j->small->audio_latents)
        mix_audio(j, f->whole);
    copy_audio(j, f->whole, f->rows, 1);
    copy_member_rows(f, XD_AUDIO, j->features, f->x.sp, f->rows, f->mine, 1);
    if (to.d[0])
        xd_put(&f->x, xd_denoise_audio(f, to, XD_ALL), f->mine);
}

/* Sets the input channels that the transformer has in addition to the noisy latents; the role of
 * the request's image determines their values. */
static void set_extra(xd_denoise *f, const float *sample)
{
    const xd_job *j = f->j;
    packing       p = { .features = xd_denoise_extra(f) };
    int64_t       all = j->tokens * p.features;
    float        *whole = xd_denoise_buffer(f, all, "an image");
    p.rows = xd_denoise_buffer(f, all, "an image");
    p.mine = xd_denoise_buffer(f, all, "an image");
    if (whole && p.rows && p.mine) {
        memset(whole, 0, (size_t)all * sizeof *whole);
        j->role->channels(j, sample, whole);
        set_packed(f, f->extra, whole, &p);
    }
    free(whole);
    free(p.rows);
    free(p.mine);
}

/* Copies this rank's tokens of the reference images to the device. For inpainting, the tokens are
 * those of the sampled latents; in a benchmark without images, they are zeros. */
static void set_refs(xd_denoise *f, const float *sample)
{
    const xd_job *j = f->j;
    float        *drawn = j->role->starts ? xd_denoise_buffer(f, j->numbers, "an image") : NULL;
    const float  *from = drawn ? drawn : j->ref_tokens;
    if (drawn)
        xd_role_references_from_sample(j, sample, drawn);
    size_t  row = (size_t)j->features * sizeof(float);
    int64_t n = f->ref.d[0] * j->features;
    float  *rows = n ? xd_denoise_buffer(f, n, "images") : NULL;
    char   *to = (char *)rows;
    int     apart = j->ctx->model.dit_info.prefix_refs > 0; /* each rank has all tokens */
    for (int p = 0; p < (apart ? 1 : f->lay.npatch) && rows; p++) {
        xd_span s = apart ? (xd_span){ 0, f->ref.d[0] } : xd_own(&f->lay, XD_REF, p, f->x.sp);
        if (from)
            memcpy(to, (const char *)from + (size_t)s.start * row, (size_t)s.n * row);
        else
            memset(to, 0, (size_t)s.n * row);
        to += (size_t)s.n * row;
    }
    if (rows)
        xd_put(&f->x, f->ref, rows);
    free(rows);
    free(drawn);
}

/* Transposes noise from [C,t,h,w] or, for enlarged latents of some pipelines, from [t,h,w,C], as
 * the pipeline draws it, to [t,C,h,w]; overwrites f->rows. */
static void set_frames_first(xd_denoise *f, float *noise)
{
    const xd_job *j = f->j;
    int64_t       T = j->lat[0], C = j->lat[1], hw = j->lat[2] * j->lat[3];
    if (j->enlarged && j->ctx->model.recipe->enlarged_sigmas) {
        memcpy(f->rows, noise, (size_t)j->numbers * sizeof *noise);
        xd_denoise_from_tokens(f->rows, j->lat, 0, noise);
        return;
    }
    if (!j->ctx->model.recipe->channels_first || T == 1)
        return;
    memcpy(f->rows, noise, (size_t)j->numbers * sizeof *noise);
    for (int64_t t = 0; t < T; t++)
        for (int64_t c = 0; c < C; c++)
            memcpy(noise + (t * C + c) * hw, f->rows + (c * T + t) * hw,
                   (size_t)hw * sizeof *noise);
}

/* Sets the tensors that replace latents outside the mask: the mask, the image's latents, and the
 * noise. */
static void set_keep(xd_denoise *f, const float *sample, const float *noise)
{
    const xd_job *j = f->j;
    const float  *from[] = { NULL, sample, noise };
    float        *mask = xd_denoise_buffer(f, j->numbers, "a mask");
    float        *lat = xd_denoise_buffer(f, j->numbers, "a mask");
    if (mask && lat)
        xd_mask_latents(j, mask);
    for (int i = 0; i < XD_NKEEP && mask && lat; i++) {
        for (int64_t k = 0; k < j->numbers && from[i]; k++)
            lat[k] = mask[k] > 0 ? 0 : from[i][k];
        xd_denoise_set_rows(f, f->keep[i], i ? lat : mask);
    }
    free(mask);
    free(lat);
}

/* Returns the number of elements in the latents [C,h,w] of an image. */
static int64_t image_numbers(const xd_job *j)
{
    return j->numbers / j->cells[0];
}

/* Draws the random numbers for sampling from the Gaussians of the side networks' control images, if
 * the pipeline samples them. diffusers samples a control image to inpaint from the global random
 * generator, so its latents are the mean. */
static void draw_sides(const xd_job *j, xd_rng *g, float *sides)
{
    const xd_dit_info *d = &j->ctx->model.dit_info;
    for (int i = 0; j->ctx->model.recipe->samples_sides && i < XD_MAXSIDES; i++)
        if (j->side_moments[i] && !(d->pixels >> i & 1) && d->side_fill[i] != XD_FILL_CONTROL)
            xd_rng_normal(g, sides + i * image_numbers(j), image_numbers(j));
}

/* Draws the noise of an output image. If j->moments is not NULL, also draws `sample` [C,h,w], the
 * random numbers for sampling from the Gaussian with these moments; otherwise `sample` is
 * unchanged. If `start` is not NULL, it receives the random numbers for sampling from
 * j->start_moments, and `sides` those of the side networks' control images. With the philox
 * generator the noise is the same with and without an initial image. */
static void draw(const xd_job *j, xd_rng *g, float *noise, float *sample, float *start,
                 float *sides)
{
    if (g->torch)
        draw_sides(j, g, sides);
    /* For inpainting with a control image, diffusers also samples the latents of the image without
     * its masked area, and does not use them. */
    if (start && j->moments && g->torch && j->role->reads_control && xd_job_has_mask(j->r))
        xd_rng_normal(g, start, image_numbers(j));
    int mean = j->role->means || (j->held && !j->ctx->model.recipe->samples_held);
    if (mean) /* the image's latents are the mean of the VAE's Gaussian */
        memset(sample, 0, (size_t)image_numbers(j) * sizeof *sample);
    else if (j->moments && g->torch)
        xd_rng_normal(g, sample, image_numbers(j));
    if (start && g->torch && j->role->reads_control)
        xd_rng_normal(g, start, image_numbers(j));
    else if (start && g->torch)
        memcpy(start, sample, (size_t)image_numbers(j) * sizeof *sample);
    /* If the request gives the noise, diffusers draws no noise from its generator. Later segments
     * of a video continue the first segment's random numbers. */
    for (int i = j->given_noise && g->torch; i <= j->segment; i++)
        xd_rng_normal(g, noise, j->numbers);
    if (!g->torch)
        draw_sides(j, g, sides);
    if (mean)
        return;
    /* Some inpainting pipelines of diffusers encode the complete image before they draw the noise,
     * even if denoising starts from noise only. For them, `sample` is drawn again after the
     * noise. */
    if (j->moments && (!g->torch || j->role->reads_mask))
        xd_rng_normal(g, sample, image_numbers(j));
    if (start && !g->torch)
        xd_rng_normal(g, start, image_numbers(j));
}

void xd_latents_sample(const xd_job *j, const float *moments, float *sample)
{
    const xd_vae_info *v = &j->ctx->model.vae_info;
    int64_t            C = v->channels, hw = j->cells[1] * j->cells[2];
    double             scale = v->invert ? 1 / v->scaling : v->scaling;
    for (int64_t c = 0; c < C; c++)
        for (int64_t i = 0; i < hw; i++) {
            float mean = moments[i * 2 * C + c], var = moments[i * 2 * C + C + c];
            float std = expf(0.5f * fminf(fmaxf(var, -30), 20)), *p = &sample[c * hw + i];
            *p = (mean + std * *p - (float)v->shift) * (float)scale;
        }
}

/* Computes, in place in `noise`, the latents from which denoising starts: a mixture of noise and
 * the sampled latents of the initial image. */
static void mix(const xd_job *j, float *noise, const float *sample)
{
    double of[2] = { 1, 0 }; /* weights of image and noise; a fixed image has no noise */
    if (!j->held)
        j->sampler->shares(&j->samp, 0, of);
    for (int64_t i = 0; i < image_numbers(j); i++)
        noise[i] = (float)of[1] * noise[i] + (float)of[0] * sample[i];
}

/* Replaces the noise of all frames by a mixture of noise and the sampled latents of the image, for
 * pipelines that start from such a mixture. */
static void blend(const xd_job *j, float *noise, const float *sample)
{
    float   share = (float)j->ctx->model.recipe->noise_share;
    int64_t n = image_numbers(j);
    for (int64_t i = 0; i < j->numbers && share > 0; i++)
        noise[i] = noise[i] * share + sample[i % n] * (1 - share);
}

void xd_denoise_noise(xd_denoise *f, int64_t seed, int image)
{
    const xd_job *j = f->j;
    if (j->role->conditions) {
        if (xd_ok(&f->x)) {
            xd_rng_open(&f->rng, j->r->noise.rng, seed);
            xd_denoise_start_conditions(f, xd_given_noise_of(j, image));
            draw_audio(f, f->lat, "audio_noise");
        }
        return;
    }
    int          nsides = j->ctx->model.recipe->samples_sides ? j->ctx->model.dit_info.sides : 0;
    float       *sample = xd_denoise_buffer(f, (1 + nsides) * image_numbers(j), "an image");
    float       *noise = f->whole;
    float       *start = j->start_moments ? xd_denoise_buffer(f, j->numbers, "an image") : NULL;
    const float *given = xd_given_noise_of(j, image);
    if (xd_ok(&f->x)) {
        xd_rng_open(&f->rng, j->r->noise.rng, seed);
        draw(j, &f->rng, noise, sample, start, sample + image_numbers(j));
        if (given && !j->segment)
            memcpy(noise, given, (size_t)j->numbers * sizeof *noise);
        else
            set_frames_first(f, noise);
        xd_callback_latents(j, j->enlarged ? "upsampled_noise" : "noise", j->segment, noise);
        if (j->moments)
            xd_latents_sample(j, j->moments, sample);
        else /* a benchmark without an image uses zeros */
            memset(sample, 0, (size_t)(image_numbers(j)) * sizeof *sample);
        if (start)
            xd_latents_sample(j, j->start_moments, start);
        if (j->moments)
            blend(j, noise, sample);
        if (f->keep[0].nd)
            set_keep(f, start ? start : sample, noise);
        int from_image = start || (j->moments && !f->extra.nd);
        if (from_image)
            mix(j, noise, start ? start : sample);
        xd_upsampling_mix(j, noise);
        xd_denoise_set_rows(f, f->lat, noise);
        draw_audio(f, f->lat, "audio_noise");
        if (f->extra.nd)
            set_extra(f, sample);
        if (j->nrefs)
            set_refs(f, sample);
        if (j->samp.init_scale != 1 && !from_image && !j->start_latents)
            xd_axpby(&f->x, f->lat, 0, (xd_tensor){ 0 }, (float)j->samp.init_scale);
    }
    free(sample);
    free(start);
}

void xd_denoise_draw(xd_denoise *f, int step)
{
    const xd_job *j = f->j;
    int           n = j->sampler->draws ? j->sampler->draws(&j->samp, step) : 0;
    if (xd_counting(&f->x) || !xd_ok(&f->x))
        return;
    if (f->given_noise.nd) {
        xd_rng_normal(&f->rng, f->rows, j->numbers);
        set_own_rows(f, f->given_noise, &(packing){ j->features, f->rows, f->mine });
    }
    int packed = j->ctx->model.recipe->packed;
    for (int i = 0; i < n; i++)
        xd_rng_normal(&f->rng, packed ? f->rows : f->whole, j->numbers);
    if (!n || !xd_denoise_is_last(f))
        return;
    if (!packed)
        set_frames_first(f, f->whole);
    if (packed)
        set_own_rows(f, f->noise, &(packing){ j->features, f->rows, f->mine });
    else
        xd_denoise_set_rows(f, f->noise, f->whole);
    for (int i = 0; i < n; i++)
        draw_audio(f, f->noise, NULL);
}

/* Gathers the token rows of a stream from the last stage's members on all ranks of the replica. */
static void gather_rows(xd_denoise *f, xd_stream_id stream, float *mine, float *rows, float *whole)
{
    const xd_comm *tc = f->topo->tokens;
    xd_comm       *pipe = f->topo->group[XD_PIPE];
    const int64_t  F = f->j->features, tokens = f->lay.len[stream];
    int64_t        n = tokens * F, count[1024], at = 0;
    xd_req         r;
    if (tc->size > 1024) {
        xd_exec_fail(&f->x, XD_EUNSUPPORTED, "more than 1024 ranks share the tokens");
        return;
    }
    for (int i = 0; i < tc->size; i++) {
        count[i] = 0;
        for (int p = 0; p < f->lay.npatch; p++)
            count[i] += xd_own(&f->lay, stream, p, i).n;
    }
    if (xd_denoise_is_last(f)) {
        r = tc->ops->gather(f->topo->tokens, xd_view2(rows, XD_F32, tokens, F), count,
                            xd_view2(mine, XD_F32, count[f->x.sp], F));
        xd_denoise_wait(f, f->topo->tokens, &r);
        for (int i = 0; i < tc->size && !xd_counting(&f->x); at += count[i++] * F)
            copy_member_rows(f, stream, F, i, whole, rows + at, 0);
    }
    if (pipe->size > 1) {
        r = pipe->ops->bcast(pipe, xd_view(whole, XD_F32, 1, &n), pipe->size - 1);
        xd_denoise_wait(f, pipe, &r);
    }
}

/* Gathers the rows `from` of the last pipeline stage's members as latents of the image or of audio
 * on all ranks of the replica. */
static void gather_latents(xd_denoise *f, xd_stream_id stream, xd_tensor from, float *out)
{
    if (xd_counting(&f->x)) { /* on the count device, runs only the messages */
        float *any = (float *)(void *)f->x.tmp->base;
        gather_rows(f, stream, any, any, any);
        return;
    }
    if (xd_denoise_is_last(f) && from.d[0])
        xd_get(&f->x, f->mine, from);
    gather_rows(f, stream, f->mine, f->rows, f->whole);
    if (xd_ok(&f->x) && stream == XD_AUDIO)
        copy_audio(f->j, out, f->whole, 0);
    else if (xd_ok(&f->x))
        copy_latents(f, f->j->features, out, f->whole, 0);
}

void xd_denoise_gather(xd_denoise *f, xd_tensor from, float *out)
{
    gather_latents(f, XD_IMG, xd_denoise_part(f, from, XD_ALL), out);
}

void xd_denoise_audio_latents(xd_denoise *f, float *out)
{
    gather_latents(f, XD_AUDIO, xd_denoise_audio(f, f->lat, XD_ALL), out);
}

/* Calls the request's on_tensor with the latents of audio after a step. */
static void report_audio(xd_denoise *f, int step)
{
    const xd_job *j = f->j;
    float        *out = j->audio_numbers ? xd_denoise_buffer(f, j->audio_numbers, "audio") : NULL;
    if (!j->audio_numbers)
        return;
    xd_denoise_audio_latents(f, out);
    if (xd_ok(&f->x))
        xd_callback_tensor(j, "audio_latents", step, 3, j->audio, out);
    free(out);
}

void xd_denoise_latents(xd_denoise *f, float *out)
{
    xd_denoise_gather(f, f->lat, out);
}

/* If `changed` is nonzero on the replica's first rank, replaces the latents on all ranks by the
 * latents `lat` of that rank, so that the next step starts from them. */
static void replace_latents(xd_denoise *f, int changed, float *lat)
{
    xd_comm *c = f->topo->replica, *pipe = f->topo->group[XD_PIPE];
    int64_t  n = f->j->numbers;
    if (!xd_denoise_decide(f, changed != 0))
        return;
    if (c->size > 1) {
        xd_req r = c->ops->bcast(c, xd_view(lat, XD_F32, 1, &n), 0);
        xd_denoise_wait(f, c, &r);
    }
    for (int i = 0; i < 2 * (f->lay.npatch + 1) && pipe->size > 1; i++) {
        /* Waits for latents in transit from the last stage to the first. */
        xd_denoise_wait(f, pipe, &f->lat_in[i]);
        xd_denoise_wait(f, pipe, &f->lat_out[i]);
    }
    if (xd_ok(&f->x))
        xd_denoise_set_rows(f, f->lat, lat);
}

void xd_denoise_report(xd_denoise *f, int step, const xd_progress *p, float *lat)
{
    const xd_job *j = f->j;
    if (!j->r->callbacks.on_tensor && !j->r->callbacks.on_latents)
        return;
    xd_denoise_latents(f, lat);
    xd_callback_latents(j, "latents", j->steps_before + step, lat);
    report_audio(f, j->steps_before + step);
    if (j->r->callbacks.on_latents)
        replace_latents(f, xd_ok(&f->x) ? xd_callback_change(j, p, lat) : 0, lat);
}

void xd_denoise_clean(xd_denoise *f, float *out)
{
    xd_denoise_gather(f, f->clean, out);
}
