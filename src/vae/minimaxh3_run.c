/* minimaxh3_run.c - decodes latents to videos with AutoencoderKLMiniMaxH3.
 *
 * The decoder is a transformer whose tokens are the latent cells of a chunk, with attention among
 * all of them. A chunk has the latent frames of a clip, and the first ones of the next clip. The
 * last layer turns a token into its frames, rows and columns. The frames that two chunks have in
 * common are blended.
 *
 * Pixels are normalized as those of ImageNet, and are converted to -1..1 here. */
#include <math.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "vae/maps.h"
#include "vae/minimaxh3.h"
#include "vae/scale_rows.h"

static const double pi = 3.14159265358979323846;

/* Mean and deviation of the colours of ImageNet, whose range is 0..1. */
static const double colour_mean[] = { 0.485, 0.456, 0.406 }, colour_std[] = { 0.229, 0.224, 0.225 };

typedef struct chunk {
    const xd_vit_cfg  *c;
    const xd_vit_glob *g;
    int64_t            grid[XD_VIT_AXES];
    xd_tensor          cos, sin; /* [n,AXES freqs] F32: rope of all tokens */
    xd_tensor          ones;     /* [head_dim] F32 */
} chunk;

/* ---- positions ---------------------------------------------------------------------------- */

typedef struct turn {
    const chunk *k;
    double       (*fn)(double);
} turn;

/* Writes the cosines or sines of the angles of all tokens. Positions on each axis are the centres
 * of cells in -1..1. The tokens after those of the cells have position 0. Angles are computed in
 * f32, as in diffusers. */
static void fill_angles(void *ctx, float *to)
{
    const turn    *t = ctx;
    const int64_t *grid = t->k->grid, n = grid[0] * grid[1] * grid[2], freqs = t->k->c->freqs;
    float          freq[256];
    for (int64_t i = 0; i < freqs; i++)
        freq[i] = 1 / powf((float)t->k->c->theta, (float)i / (float)freqs);
    for (int64_t at = 0; at < t->k->cos.d[0]; at++) {
        int64_t place[] = { at / (grid[1] * grid[2]), at / grid[2] % grid[1], at % grid[2] };
        for (int a = 0; a < XD_VIT_AXES; a++) {
            float pos = 2.0f * (((float)place[a] + 0.5f) / (float)grid[a]) - 1.0f;
            float angle = (float)(2 * pi) * (at < n ? pos : 0);
            for (int64_t i = 0; i < freqs; i++)
                *to++ = (float)t->fn((double)(angle * freq[i]));
        }
    }
}

typedef struct constant {
    int64_t n;
    float   value;
} constant;

static void fill_constant(void *ctx, float *to)
{
    const constant *c = ctx;
    for (int64_t i = 0; i < c->n; i++)
        to[i] = c->value;
}

static void set_positions(xd_exec *x, chunk *k, int64_t tokens)
{
    int64_t D = k->c->head_dim;
    k->cos = xd_new_f32(x, tokens, XD_VIT_AXES * k->c->freqs);
    k->sin = xd_new_f32(x, tokens, XD_VIT_AXES * k->c->freqs);
    k->ones = xd_new_as(x, XD_F32, 1, &D);
    xd_fill(x, k->cos, fill_angles, &(turn){ k, cos });
    xd_fill(x, k->sin, fill_angles, &(turn){ k, sin });
    xd_fill(x, k->ones, fill_constant, &(constant){ D, 1 });
}

/* ---- blocks ------------------------------------------------------------------------------- */

/* Returns a vector [D] as one row. */
static xd_tensor as_row(xd_tensor v)
{
    return xd_reshape(v, 2, (int64_t[]){ 1, v.d[0] });
}

/* Returns the attention among the tokens, whose queries, keys and values are y [n,3 D]. */
static xd_tensor attend(xd_exec *x, const chunk *k, xd_tensor y, const xd_lin *w)
{
    const int64_t D = k->c->head_dim, d[] = { y.d[0], k->c->heads, D };
    xd_tensor     q = xd_new_as(x, x->act, 3, d), key = xd_new_as(x, x->act, 3, d);
    xd_qk_norm_into(
        x,
        &(xd_qknorm){ .out = q,
                      .in = xd_heads(xd_seg(y, w, 0), D),
                      .gain = k->ones,
                      .also = { .out = key, .in = xd_heads(xd_seg(y, w, 1), D), .gain = k->ones },
                      .eps = k->c->eps });
    xd_tensor some_q = q, some_k = key;
    some_q.d[2] = some_k.d[2] = 2 * k->cos.d[1];
    xd_qk_norm_into(x, &(xd_qknorm){ .out = some_q,
                                     .in = some_q,
                                     .also = { .out = some_k, .in = some_k },
                                     .cos = k->cos,
                                     .sin = k->sin,
                                     .halves = 1 });
    return xd_flat(xd_attn_over(x, q, key, xd_heads(xd_seg(y, w, 2), D), (xd_tensor){ 0 }, 0));
}

static void run_block(xd_exec *x, const chunk *k, const xd_vit_block *w, xd_tensor h)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_norm   a = { .in = h, .gain = w->norm1, .rms = 1, .eps = k->c->eps };
    xd_tensor y = xd_linear(x, xd_norm_for(x, &a, &w->qkv, NULL), &w->qkv);
    xd_linear_add(x, h, as_row(w->scale1), attend(x, k, y, &w->qkv), &w->out);
    xd_arena_rewind(x->tmp, mark);
    a.gain = w->norm2;
    y = xd_linear(x, xd_norm_for(x, &a, &w->up, NULL), &w->up);
    y = xd_gated_for(x, xd_seg(y, &w->up, 1), xd_seg(y, &w->up, 0), XD_SILU, &w->down);
    xd_linear_add(x, h, as_row(w->scale2), y, &w->down);
    xd_arena_rewind(x->tmp, mark);
}

/* Computes the outputs [cells,F] of the last layer for z [t,h,w,C]. */
static xd_tensor run_vit(xd_exec *x, chunk *k, xd_tensor z)
{
    const xd_vit_glob *g = k->g;
    const int64_t      n = z.d[0] * z.d[1] * z.d[2], m = k->c->registers, D = g->in.w.out;
    xd_tensor          h = xd_new_f32(x, n + m + 1, D);
    for (int i = 0; i < XD_VIT_AXES; i++)
        k->grid[i] = z.d[i];
    set_positions(x, k, h.d[0]);
    xd_linear_into(x, xd_rows(h, 0, n), xd_linear_f32(x, xd_map_rows(z), &g->latents), &g->in);
    if (m)
        xd_copy_to(x, xd_rows(h, n, m), xd_reshape(g->registers, 2, (int64_t[]){ m, D }));
    xd_fill(x, xd_rows(h, n + m, 1), fill_constant, &(constant){ D, 0 });
    for (int i = 0; i < k->c->nlayers; i++)
        run_block(x, k, &g->block[i], h);
    xd_tensor y = xd_layer_norm(x, xd_rows(h, 0, n), g->gain, g->bias, k->c->eps);
    return xd_linear_f32(x, y, &g->out);
}

/* ---- frames ------------------------------------------------------------------------------- */

/* Writes frames [from, from + frames) of the chunk, whose latent cells have the outputs y, to new
 * memory, with colours in -1..1. */
static xd_tensor frames_of(xd_exec *x, const chunk *k, xd_tensor y, int64_t from, int64_t frames)
{
    const xd_vit_cfg *c = k->c;
    const int64_t    *grid = k->grid, f = c->cell[1], ft = c->cell[0];
    xd_tensor         out = xd_map_as(x, XD_F32, frames, grid[1] * f, grid[2] * f, 3), rows;
    float             gain[3], bias[3];
    for (int64_t i = 0, n; i < frames; i += n) {
        int64_t t = (from + i) / ft, at = (from + i) % ft, cells = grid[1] * grid[2];
        n = xd_min(ft - at, frames - i);
        xd_tensor one =
            xd_reshape(xd_rows(y, t * cells, cells), 4, (int64_t[]){ 1, grid[1], grid[2], y.d[1] });
        xd_map_unpack(x, xd_rows(out, i, n), one, f, ft, at);
    }
    for (int i = 0; i < 3; i++) {
        gain[i] = (float)(2 * colour_std[i]);
        bias[i] = (float)(2 * colour_mean[i] - 1);
    }
    rows = xd_scale_rows(x, xd_map_rows(out), gain, bias);
    return xd_reshape(rows, 4, out.d);
}

/* Decodes chunk i of the latents z [t,h,w,C] of its frames. The frames that it has in common with
 * the chunk before it are in `rgb` already. */
static void decode_chunk(xd_exec *x, chunk *k, xd_tensor z, int64_t i, xd_tensor rgb)
{
    const xd_vit_cfg *c = k->c;
    const int64_t     shared = xd_vit_shared_frames(c), first = i * c->clip;
    size_t            mark = xd_arena_mark(x->tmp);
    xd_tensor         y = run_vit(x, k, z);
    xd_tensor         own = frames_of(x, k, y, c->before, c->clip);
    for (int64_t j = 0; i && j < shared; j++) {
        double t = (double)j / (double)shared;
        xd_axpby(x, xd_map_rows(xd_rows(own, j, 1)), (float)(1 - t),
                 xd_map_rows(xd_rows(rgb, first + j, 1)), (float)t);
    }
    xd_copy_to(x, xd_rows(rgb, first, c->clip), own);
    own = frames_of(x, k, y, c->chunk * c->cell[0] + c->before, shared);
    xd_copy_to(x, xd_rows(rgb, first + c->clip, shared), own);
    xd_arena_rewind(x->tmp, mark);
}

/* Decodes latents that were normalized, lat = (z - mean) / std, with the mean and std of each
 * channel. The decoder reads z. */
void xd_vit_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const xd_vit_cfg *c = n->cfg;
    chunk             k = { .c = c, .g = n->glob };
    int64_t           T = lat.d[0], chunks = (T - c->overlap) / c->chunk;
    float             gain[XD_FIELD_LIST], bias[XD_FIELD_LIST];
    size_t            mark = xd_arena_mark(x->tmp);
    if (!xd_map_video_fits(x, rgb, lat, c->cell[1], c->channels, T) ||
        !xd_check(x, chunks > 0 && chunks * c->chunk + c->overlap == T,
                  "vae: %lld latent frames are not a multiple of %lld and %lld more", (long long)T,
                  (long long)c->chunk, (long long)c->overlap) ||
        !xd_map_frames_fit(x, rgb.d[0], chunks * c->clip + xd_vit_shared_frames(c)))
        return;
    for (int64_t i = 0; i < c->channels; i++)
        gain[i] = (float)c->std.v[i], bias[i] = (float)c->mean.v[i];
    xd_tensor z = xd_reshape(xd_scale_rows(x, xd_map_rows(lat), gain, bias), 4, lat.d);
    for (int64_t i = 0; i < chunks; i++) {
        if (i)
            xd_pause(x);
        decode_chunk(x, &k, xd_rows(z, i * c->chunk, c->chunk + c->overlap), i, rgb);
    }
    xd_arena_rewind(x->tmp, mark);
}
