/* test_vae.c - the autoencoder over several ranks against one rank, bit for bit: decode and encode,
 * in bands of rows and in tiles; of images, and of videos in one batch of frames and in several.
 *
 *     mpirun -n N test_vae DTYPE [near] MODEL...
 *
 * Random weights; sizes that no rank count divides, less rows than ranks, one tile and less
 * tiles than ranks. In f32 on AVX-512 the bits are those of one rank; "near" and bf16 allow 1e-5
 * and 3e-2 of the largest value, since their kernels depend on the shape, and so does f32 where
 * linear attention adds the sums of the ranks' rows. What each rank sends is what doc/methods.md
 * says and what was counted, and so is the memory it takes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/par.h"
#include "engine/engine.h"
#include "exec/op.h"
#include "model/component.h"
#include "model/model.h"
#include "pipeline/arenas.h"
#include "pipeline/context.h"
#include "pipeline/job.h"
#include "pipeline/vae_codec.h"
#include "pipeline/vae_shards.h"

static int    rank, ranks, checks, failures;
static int    exact, sums; /* sums: of the model, over the rows of all ranks */
static double limit;

enum { NSIZES = 5 };
static const int64_t sizes[2][NSIZES][3] = {
    /* latent cells: frames, rows, columns */
    { { 1, 11, 13 }, { 1, 1, 3 }, { 1, 16, 16 }, { 1, 17, 9 }, { 1, 29, 40 } },
    { { 3, 5, 3 }, { 4, 1, 2 }, { 1, 7, 8 }, { 2, 30, 3 }, { 5, 9, 10 } },
};

static void must(xd_status s, const xd_err *e)
{
    if (s == XD_OK)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, e->msg);
    exit(1);
}

static void fail(const char *what, const char *why, double v)
{
    failures++;
    printf("not ok: rank %d of %d, %s: %s (%g)\n", rank, ranks, what, why, v);
    fflush(stdout);
}

static void *memory(int64_t n)
{
    void *p = calloc((size_t)n + 1, sizeof(float));
    if (!p)
        exit(1);
    return p;
}

/* ---- the document's formulas -------------------------------------------------------------- */

typedef struct walk { /* of one rank through the layers, in bands */
    const xd_json *cfg;
    int64_t        h, w, S, G, e; /* latent cells; ranks; groups; bytes of an activation */
    int64_t        up, down;      /* 1: there is a band above, below mine */
    int64_t        rows;          /* of the latent, mine */
    int64_t        k;             /* cells per latent cell, now */
    int64_t        T; /* frames, now; 0: an image, of which kernels over frames know nothing */
    int64_t        bytes;
} walk;

static int64_t part(int64_t n, int64_t i, int64_t k)
{
    return n * (i + 1) / k - n * i / k;
}

static int64_t number(const xd_json *o, const char *key)
{
    double v = 0;
    xd_json_number(xd_json_get(o, key), &v);
    return (int64_t)v;
}

/* A row of the input to the band above and to the one below; with stride 2 above only. */
static void conv(walk *q, int64_t C, int stride)
{
    q->bytes += (q->up + (stride == 1 ? q->down : 0)) * q->w * q->k * C * q->e;
}

/* Of a video frame by frame, or with the two frames before. */
static void conv_frames(walk *q, int64_t C, int stride, int64_t frames)
{
    for (int64_t t = 0; t < frames; t++)
        conv(q, C, stride);
}

static void norm(walk *q)
{
    q->bytes += 16 * q->G * q->rows * q->k * (q->S - 1);
}

static void residual(walk *q, int64_t in, int64_t out)
{
    int64_t frames = q->T ? q->T + 2 : 1;
    norm(q), conv_frames(q, in, 1, frames), norm(q), conv_frames(q, out, 1, frames);
}

static void attention(walk *q, int64_t C)
{
    norm(q);
    q->bytes += 2 * q->rows * q->k * q->w * q->k * C * q->e * (q->S - 1);
}

static int64_t width(const walk *q, int i)
{
    double v = 0;
    xd_json_number(xd_json_at(xd_json_get(q->cfg, "block_out_channels"), i), &v);
    return (int64_t)v;
}

/* A change of the resolution, in frames too while `time`. */
static void change(walk *q, int64_t C, int encode, int time)
{
    int64_t odd = q->T % 2;
    q->T = encode && time ? (q->T + odd) / 2 : q->T;
    conv_frames(q, C, encode ? 2 : 1, q->T ? q->T : 1); /* of the map before */
    q->k = encode ? q->k / 2 : 2 * q->k;
    q->T = !encode && time && q->T > 1 ? 2 * q->T - odd : q->T;
}

static void levels(walk *q, int L, int encode)
{
    const xd_json *types = xd_json_get(q->cfg, encode ? "down_block_types" : "up_block_types");
    int64_t        ratio = q->T ? number(q->cfg, "temporal_compression_ratio") : 1;
    int            n = (int)number(q->cfg, "layers_per_block") + !encode;
    int64_t        in = width(q, encode ? 0 : L - 1);
    for (int l = 0; l < L; l++) {
        int64_t C = width(q, encode ? l : L - 1 - l);
        for (int i = 0; i < n; i++, in = C) {
            residual(q, in, C);
            if (strncmp(xd_json_text(xd_json_at(types, l)), "Attn", 4) == 0)
                attention(q, C);
        }
        if (l < L - 1)
            change(q, C, encode, 1 << l < ratio);
    }
}

static void middle(walk *q, int L)
{
    int64_t        C = width(q, L - 1);
    const xd_json *has = xd_json_get(q->cfg, "mid_block_add_attention");
    int            attn = !q->T;
    if (has)
        xd_json_bool(has, &attn);
    residual(q, C, C);
    if (attn)
        attention(q, C);
    residual(q, C, C);
}

/* T frames at once, of what is decoded or encoded. */
static void batch(walk *q, const xd_vae_info *v, int64_t T, int encode)
{
    int     L = xd_json_size(xd_json_get(q->cfg, "block_out_channels"));
    int     packed = xd_json_size(xd_json_get(q->cfg, "patch_size")) > 0; /* 2 x 2 cells */
    int64_t e = q->e;
    q->T = T;
    q->k = encode ? v->cell[1] : packed ? 2 : 1;
    q->e = encode ? e : (int64_t)sizeof(float);
    conv_frames(q, encode ? 3 : packed ? v->channels / 4 : v->channels, 1, T ? T + 2 : 1);
    q->e = e;
    if (!encode)
        middle(q, L);
    levels(q, L, encode);
    if (encode)
        middle(q, L);
    norm(q);
    conv_frames(q, width(q, encode ? L - 1 : 0), 1, q->T ? q->T + 2 : 1);
}

/* ---- causal autoencoders ------------------------------------------------------------------- */

static int64_t entry(const walk *q, const char *key, int i)
{
    const xd_json *v = xd_json_at(xd_json_get(q->cfg, key), i);
    double         n = 0;
    int            b = 0;
    return xd_json_bool(v, &b) ? b : xd_json_number(v, &n) ? (int64_t)n : 0;
}

static int64_t causal_base(const walk *q, int encode)
{
    int64_t own = number(q->cfg, "decoder_base_dim");
    return encode || !own ? number(q->cfg, "base_dim") : own;
}

/* Both convolutions of a residual block see `past` frames besides those that are there. */
static void causal_residual(walk *q, int64_t in, int64_t out, int64_t past)
{
    conv_frames(q, in, 1, past + q->T);
    conv_frames(q, out, 1, past + q->T);
}

static void causal_middle(walk *q, int64_t C, int64_t past)
{
    causal_residual(q, C, C, past);
    q->bytes += q->T * 2 * q->rows * q->k * q->w * q->k * C * q->e * (q->S - 1);
    causal_residual(q, C, C, past);
}

/* Kernels over frames alone send nothing. */
static void causal_levels(walk *q, int L, int encode, int64_t past)
{
    int     n = (int)number(q->cfg, "num_res_blocks") + !encode;
    int64_t base = causal_base(q, encode), first = !past;
    int     cut = 0;
    xd_json_bool(xd_json_get(q->cfg, "is_residual"), &cut);
    int64_t in = base * (encode ? 1 : entry(q, "dim_mult", L - 1));
    for (int l = 0; l < L; l++) {
        int64_t C = base * entry(q, "dim_mult", encode ? l : L - 1 - l);
        int64_t time = l < L - 1 && !first &&
                       entry(q, "temperal_downsample", encode ? l : L - 2 - l);
        for (int i = 0; i < n; i++, in = C)
            causal_residual(q, in, C, past);
        if (l == L - 1)
            continue;
        q->T = !encode && time ? 2 * q->T : q->T;
        conv_frames(q, C, encode ? 2 : 1, q->T);
        q->T = encode && time ? q->T / 2 : q->T;
        q->k = encode ? q->k / 2 : 2 * q->k;
        in = encode || cut ? C : C / 2;
    }
}

/* T frames at once, where convolutions keep `past` frames of before. Rows of pixels and latents
 * are f32 until an image's first convolution has read them. */
static void causal_chunk(walk *q, const xd_vae_info *v, int64_t T, int64_t past, int encode)
{
    int     L = xd_json_size(xd_json_get(q->cfg, "dim_mult"));
    int64_t base = causal_base(q, encode), e = q->e, patch = number(q->cfg, "patch_size");
    int64_t mid = base * entry(q, "dim_mult", L - 1);
    q->T = T;
    patch = patch ? patch : 1;
    q->k = encode ? v->cell[1] / patch : 1;
    q->e = encode && v->cell[0] > 1 ? e : (int64_t)sizeof(float);
    conv_frames(q, encode ? 3 * patch * patch : v->channels, 1, past + T);
    q->e = e;
    if (!encode)
        causal_middle(q, mid, past);
    causal_levels(q, L, encode, past);
    if (encode)
        causal_middle(q, mid, past);
    conv_frames(q, encode ? mid : base * entry(q, "dim_mult", 0), 1, past + q->T);
}

static void causal_chunks(walk *q, const xd_vae_info *v, int64_t latents, int encode)
{
    for (int64_t t = 0; t < latents; t++) {
        int64_t past = v->cell[0] == 1 ? 0 : t < 2 ? t : 2;
        causal_chunk(q, v, encode && t && v->cell[0] > 1 ? v->cell[0] : 1, past, encode);
    }
}

/* ---- a decoder whose norms are over single frames ------------------------------------------- */

/* Latent frame by latent frame; a convolution reads rows of other bands for new frames only. */
static void by_frames(walk *q, int64_t latents)
{
    int n = xd_json_size(xd_json_get(q->cfg, "decoder_block_out_channels"));
    q->G = 32;
    for (int64_t t = 0; t < latents; t++) {
        q->T = q->k = 1;
        for (int s = 0; s <= n; s++) {
            int64_t C = entry(q, "decoder_block_out_channels", s ? n - s : n - 1);
            for (int64_t i = 0; i < 2 * entry(q, "layers_per_block", n - s) * q->T; i++)
                norm(q), conv(q, C, 1);
            if (s > 0 && s < n)
                q->T *= entry(q, "temporal_expansions", n - 1 - s),
                    q->k *= entry(q, "spatial_expansions", n - 1 - s);
        }
    }
}

/* ---- an autoencoder of tiles over frames ---------------------------------------------------- */

/* Convolutions have rows of the frames that are there, but of none before; ranks without rows need
 * no keys. */
static void filmed_residual(walk *q, int64_t in, int64_t out)
{
    norm(q), conv_frames(q, in, 1, q->T), norm(q), conv_frames(q, out, 1, q->T);
}

static void filmed_middle(walk *q, int64_t C)
{
    int64_t others = (q->S < q->h ? q->S : q->h) - 1;
    filmed_residual(q, C, C);
    norm(q);
    q->bytes += q->T * 2 * q->rows * q->k * q->w * q->k * C * q->e * others;
    filmed_residual(q, C, C);
}

static void filmed_levels(walk *q, int L, const xd_vae_info *v, int encode)
{
    int     n = (int)number(q->cfg, "layers_per_block") + !encode;
    int64_t in = width(q, encode ? 0 : L - 1);
    for (int l = 0; l < L; l++) {
        int64_t C = width(q, encode ? l : L - 1 - l);
        int     wide = 1 << l < v->cell[1], time = l < L - 1 && l >= L - 3;
        for (int i = 0; i < n; i++, in = C)
            filmed_residual(q, in, C);
        if (!wide && !time)
            continue;
        if (encode && wide) /* with stride 2, a row of the input to the band below */
            q->bytes += q->T * q->down * q->w * q->k * C * q->e;
        else
            conv_frames(q, C, 1, q->T);
        q->T = time ? encode ? (q->T + 1) / 2 : 2 * q->T - 1 : q->T;
        q->k = !wide ? q->k : encode ? q->k / 2 : 2 * q->k;
    }
}

static void filmed_tile(walk *q, const xd_vae_info *v, int64_t T, int encode)
{
    int     L = xd_json_size(xd_json_get(q->cfg, "block_out_channels"));
    int64_t e = q->e;
    q->T = T;
    q->k = encode ? v->cell[1] : 1;
    q->e = (int64_t)sizeof(float);
    conv_frames(q, encode ? 3 : v->channels, 1, T);
    q->e = e;
    if (!encode)
        filmed_middle(q, width(q, L - 1));
    filmed_levels(q, L, v, encode);
    if (encode)
        filmed_middle(q, width(q, L - 1));
    norm(q);
    conv_frames(q, width(q, encode ? L - 1 : 0), 1, q->T);
}

/* Tiles of 16 frames and one, 12 apart; those that only repeat frames are left out. */
static void filmed(walk *q, const xd_vae_info *v, int64_t n, int encode)
{
    int64_t cell = encode ? 1 : v->cell[0], most = 16 / cell, step = 12 / cell;
    int64_t needs = encode ? 2 * v->cell[0] : 1;
    for (int64_t t = 0; !t || (n > most && n - t > needs); t += step)
        filmed_tile(q, v, n <= most ? n : n - t > most ? most + 1 : n - t, encode);
}

/* ---- an autoencoder that moves positions to channels ----------------------------------------- */

/* As above, but all norms are per position, and convolutions have no strides. */
static void shuffled_middle(walk *q, int64_t C)
{
    int64_t others = (q->S < q->h ? q->S : q->h) - 1;
    for (int i = 0; i < 4; i++)
        conv_frames(q, C, 1, q->T);
    q->bytes += q->T * 2 * q->rows * q->k * q->w * q->k * C * q->e * others;
}

static void shuffled(walk *q, const xd_vae_info *v, int64_t n, int encode)
{
    int     L = xd_json_size(xd_json_get(q->cfg, "block_out_channels"));
    int     blocks = (int)number(q->cfg, "layers_per_block") + !encode;
    int64_t e = q->e;
    q->T = encode ? (n - 1) / v->cell[0] * v->cell[0] + 1 : n;
    q->k = encode ? v->cell[1] : 1;
    q->e = (int64_t)sizeof(float);
    conv_frames(q, encode ? 3 : v->channels, 1, q->T);
    q->e = e;
    if (!encode)
        shuffled_middle(q, width(q, L - 1));
    for (int l = 0; l < L; l++) {
        int coarse = encode ? l : L - 2 - l,
            time = coarse >= 0 && 1 << (L - 1 - coarse) <= v->cell[0];
        for (int i = 0; i < 2 * blocks + (l < L - 1); i++)
            conv_frames(q, width(q, encode ? l : L - 1 - l), 1, q->T);
        if (l == L - 1)
            break;
        q->T = time ? encode ? (q->T + 1) / 2 : 2 * q->T - 1 : q->T;
        q->k = encode ? q->k / 2 : 2 * q->k;
    }
    if (encode)
        shuffled_middle(q, width(q, L - 1));
    conv_frames(q, width(q, encode ? L - 1 : 0), 1, q->T);
}

/* ---- an autoencoder whose decoder reads the frames beside a frame --------------------------- */

static void woven_residual(walk *q, int64_t in, int64_t out)
{
    conv_frames(q, in, 1, q->T + 2), conv_frames(q, out, 1, q->T + 2);
}

static void woven_blocks(walk *q, const char *key, int i, int64_t C)
{
    for (int64_t k = entry(q, key, i); k > 0; k--)
        woven_residual(q, C, C);
}

/* The factors of frames (0) and of rows and columns (1) of level i, of the types in a list. */
static void woven_factors(const walk *q, const char *key, int i, int by[2])
{
    const xd_json *v = xd_json_at(xd_json_get(q->cfg, key), i);
    const char    *type = v ? xd_json_text(v) : "spatiotemporal";
    by[0] = strcmp(type, "spatial") == 0 ? 1 : 2, by[1] = strcmp(type, "temporal") == 0 ? 1 : 2;
}

/* Levels whose convolution moves positions to channels compute one frame at a time. */
static void woven_moves(walk *q, int second)
{
    int     L = xd_json_size(xd_json_get(q->cfg, "block_out_channels")) - !second, by[2];
    int64_t C = second ? number(q->cfg, "latent_channels") : width(q, 0);
    conv_frames(q, 3 * number(q->cfg, "patch_size") * number(q->cfg, "patch_size"), 1, q->T + 2);
    for (int l = 0; l < L; l++) {
        woven_blocks(q, "layers_per_block", l, C);
        woven_factors(q, "downsample_type", l, by);
        int64_t T = (q->T - 1) / by[0] + 1;
        conv_frames(q, C, 1, 3 * T * by[0]);
        q->T = T, q->k /= by[1];
        C = width(q, second ? l : l + 1);
    }
    woven_blocks(q, "layers_per_block", L, C);
    conv_frames(q, C, 1, q->T + 2);
}

/* Convolutions read two frames more than they compute; with stride 2, only rows of the band
 * above. */
static void woven_encode(walk *q, const xd_vae_info *v, int64_t n)
{
    const char *type = xd_json_text(xd_json_at(xd_json_get(q->cfg, "down_block_types"), 0));
    int         L = xd_json_size(xd_json_get(q->cfg, "block_out_channels"));
    int64_t     C = width(q, 0), patch = number(q->cfg, "patch_size");
    q->T = n;
    q->k = v->cell[1] / patch;
    if (strcmp(type, "LTXVideoDownBlock3D") != 0) {
        woven_moves(q, strcmp(type, "LTX2VideoDownBlock3D") == 0);
        return;
    }
    conv_frames(q, 3 * patch * patch, 1, q->T + 2);
    for (int l = 0; l < L; l++) {
        int64_t out = width(q, l + 1 < L ? l + 1 : l);
        woven_blocks(q, "layers_per_block", l, C);
        if (entry(q, "spatio_temporal_scaling", l)) {
            q->bytes += q->T * q->down * q->w * q->k * C * q->e;
            q->T = (q->T - 1) / 2 + 1;
            q->k /= 2;
        }
        if (out != C)
            woven_residual(q, C, out);
        C = out;
    }
    woven_blocks(q, "layers_per_block", L, C);
    conv_frames(q, C, 1, q->T + 2);
}

/* A stage of the decoder: one convolution, or both of a residual block, of C[] channels, and how it
 * multiplies frames, and rows and columns. seen: the convolutions have read frames. */
typedef struct woven {
    int64_t C[2];
    int     convs, by[2], seen[2], begun;
} woven;

enum { MAX_WOVEN = 128 };

/* Computes what a convolution of T more frames sends, and returns how many frames come out. One
 * that reads the next frame has its last frames only when no others follow. */
static int64_t woven_conv(walk *q, woven *s, int i, int64_t T, int past, int last)
{
    int64_t all = (s->seen[i] ? 2 : past) + T + (last ? 2 - past : 0);
    if (!T && !s->seen[i])
        return 0;
    s->seen[i] = 1;
    if (all > 2)
        conv_frames(q, s->C[i], 1, all);
    return all > 2 ? all - 2 : 0;
}

static int64_t woven_stage(walk *q, woven *s, int64_t T, int past, int last)
{
    for (int i = 0; i < s->convs; i++)
        T = woven_conv(q, s, i, T, past, last);
    int64_t out = T ? s->by[0] * T - (s->begun ? 0 : s->by[0] - 1) : 0;
    s->begun |= T > 0;
    q->k *= s->by[1];
    return out;
}

/* T frames from stage `at` on, until a stage computes none. */
static void woven_pass(walk *q, woven *s, int n, int at, int64_t T, int past, int last)
{
    int64_t e = q->e;
    q->k = 1;
    for (int i = 0; i < at; i++)
        q->k *= s[i].by[1];
    for (int i = at; i < n && (T || i == at); i++) {
        q->e = i ? e : (int64_t)sizeof(float);
        T = woven_stage(q, &s[i], T, past, last == 2 || (last && i == at));
    }
    q->e = e;
}

static int woven_add(woven *s, int n, int convs, int64_t in, int64_t out)
{
    if (n == MAX_WOVEN)
        exit(1);
    s[n] = (woven){ .C = { in, out }, .convs = convs, .by = { 1, 1 } };
    return n + 1;
}

static int woven_stages(const walk *q, woven *s, int64_t latents)
{
    int     L = xd_json_size(xd_json_get(q->cfg, "decoder_block_out_channels"));
    int     n = woven_add(s, 0, 1, latents, 0);
    int64_t C = entry(q, "decoder_block_out_channels", L - 1);
    for (int64_t k = entry(q, "decoder_layers_per_block", L); k > 0; k--)
        n = woven_add(s, n, 2, C, C);
    for (int l = L - 1; l >= 0; l--) {
        int64_t factor = entry(q, "upsample_factor", l);
        int64_t out = entry(q, "decoder_block_out_channels", l) / (factor ? factor : 1);
        if (out * (factor ? factor : 1) != C)
            n = woven_add(s, n, 2, C, out), C = out;
        if (entry(q, "decoder_spatio_temporal_scaling", l)) {
            n = woven_add(s, n, 1, C, 0);
            woven_factors(q, "upsample_type", L - 1 - l, s[n - 1].by);
        }
        C = out;
        for (int64_t k = entry(q, "decoder_layers_per_block", l); k > 0; k--)
            n = woven_add(s, n, 2, C, C);
    }
    return woven_add(s, n, 1, C, 0);
}

/* Latent frames one by one, then what each stage still computes; a single one at once. */
static void woven_decode(walk *q, const xd_vae_info *v, int64_t latents)
{
    static woven   s[MAX_WOVEN];
    int            n = woven_stages(q, s, v->channels), causal = 0;
    const xd_json *has = xd_json_get(q->cfg, "decoder_causal");
    if (has)
        xd_json_bool(has, &causal);
    for (int64_t t = 0; t < latents; t++)
        woven_pass(q, s, n, 0, 1, 1 + causal, latents == 1 ? 2 : 0);
    for (int i = 0; i < n && latents > 1 && !causal; i++)
        woven_pass(q, s, n, i, 0, 1, 1);
}

/* ---- bands and tiles ----------------------------------------------------------------------- */

static void batches(walk *q, const xd_vae_info *v, int64_t n, int64_t most, int encode)
{
    if (v->cell[0] == 1)
        batch(q, v, 0, encode);
    for (int64_t at = 0, k; v->cell[0] > 1 && at < n; at += k) {
        k = at ? most : n < most ? n : most + n % most;
        batch(q, v, k, encode);
    }
}

/* A small autoencoder of plain convolutions, of one frame; the first one reads f32. Its latents may
 * be packed, and its blocks next to the latents may have a group norm of four groups. */
static void plain(walk *q, int64_t latents, int encode)
{
    const char    *side = encode ? "num_encoder_blocks" : "num_decoder_blocks";
    const xd_json *n = xd_json_get(q->cfg, side);
    const xd_json *wide =
        xd_json_get(q->cfg, encode ? "encoder_block_out_channels" : "decoder_block_out_channels");
    double  C = 0, blocks = 0;
    int     L = xd_json_size(n), norms = xd_json_get(q->cfg, "use_midblock_gn") != NULL;
    int64_t e = q->e, pack = number(q->cfg, "latent_pack");
    xd_json_number(xd_json_at(wide, 0), &C);
    pack = pack ? pack : 1;
    q->G = 4;
    q->k = encode ? pack << (L - 1) : pack;
    q->e = 4;
    conv(q, encode ? 3 : latents / (pack * pack), 1);
    q->e = e;
    for (int l = 0; l < L; l++) {
        xd_json_number(xd_json_at(n, l), &blocks);
        for (int i = 0; i < (int)blocks && norms && l == (encode ? L - 1 : 0); i++)
            norm(q);
        for (int i = 0; i < 3 * (int)blocks; i++)
            conv(q, (int64_t)C, 1);
        if (l == L - 1)
            break;
        if (encode) /* with stride 2, a row of the input to the band below */
            q->bytes += q->down * q->w * q->k * (int64_t)C * q->e;
        q->k = encode ? q->k / 2 : 2 * q->k;
        if (!encode)
            conv(q, (int64_t)C, 1);
    }
    conv(q, (int64_t)C, 1);
}

/* ---- linear attention over pixels ----------------------------------------------------------- */

/* My rows among [from, to) of the map. */
static int64_t mine_among(const walk *q, int64_t from, int64_t to)
{
    int64_t a = q->h * rank / q->S * q->k, b = q->h * (rank + 1) / q->S * q->k;
    int64_t lo = a > from ? a : from, hi = b < to ? b : to;
    return hi > lo ? hi - lo : 0;
}

/* Rows to all bands that are at most r rows away; with stride 2 to those below. */
static void reach(walk *q, int64_t C, int64_t r, int stride)
{
    for (int64_t o = 0; o < q->S; o++) {
        int64_t a = q->h * o / q->S * q->k, b = q->h * (o + 1) / q->S * q->k;
        int64_t n = mine_among(q, a - r, a) + (stride == 1 ? mine_among(q, b, b + r) : 0);
        if (o != rank && b > a)
            q->bytes += n * q->w * q->k * C * q->e;
    }
}

/* A sum of n numbers in f32 over the ranks. */
static void sum(walk *q, int64_t n)
{
    int64_t mine = part(n, rank, q->S);
    q->bytes += 4 * n <= 8192 ? 4 * n * (q->S - 1) : 4 * (n - mine + mine * (q->S - 1));
}

/* A block of level l of AutoencoderDC. */
static void deep_block(walk *q, int l, int encode)
{
    const xd_json *types =
        xd_json_get(q->cfg, encode ? "encoder_block_types" : "decoder_block_types");
    const xd_json *scales = xd_json_at(
        xd_json_get(q->cfg, encode ? "encoder_qkv_multiscales" : "decoder_qkv_multiscales"), l);
    int64_t C = entry(q, encode ? "encoder_block_out_channels" : "decoder_block_out_channels", l);
    int64_t d = number(q->cfg, "attention_head_dim"), heads = C / d;
    double  size = 0;
    if (strcmp(xd_json_text(xd_json_at(types, l)), "ResBlock") == 0) {
        reach(q, C, 2, 1); /* of the input, for both convolutions */
        return;
    }
    for (int i = 0; i < xd_json_size(scales); i++) {
        xd_json_number(xd_json_at(scales, i), &size);
        reach(q, 3 * heads * d, (int64_t)size / 2, 1);
    }
    sum(q, heads * (1 + xd_json_size(scales)) * d * (d + 1));
    reach(q, C, 1, 1); /* of the feed-forward's input */
}

/* ---- blocks that read the frame before ------------------------------------------------------- */

/* A block reads the current and the earlier frame together; its kernel is 3 x 3, or 7 x 7. */
static void past_blocks(walk *q, int64_t C, int wide)
{
    for (int64_t i = number(q->cfg, "layers_per_block") * q->T; i > 0; i--) {
        if (wide)
            reach(q, 2 * C, 3, 1);
        else
            conv(q, 2 * C, 1), conv(q, C, 1), conv(q, C, 1);
    }
}

/* All frames that T latent frames become, but for the frames that are dropped. */
static void past_decode(walk *q, const xd_vae_info *v, int64_t T)
{
    static const char *const widths = "decoder_block_out_channels";
    int                      L = xd_json_size(xd_json_get(q->cfg, widths)) - 1, wide = 0;
    int64_t                  e = q->e;
    xd_json_bool(xd_json_get(q->cfg, "super"), &wide);
    q->T = T, q->k = 1, q->e = 4;
    for (int64_t t = 0; t < T && !wide; t++)
        conv(q, v->channels, 1);
    q->e = e;
    for (int l = 0; l < L; l++) {
        past_blocks(q, entry(q, widths, l), wide);
        if (wide)
            conv_frames(q, entry(q, widths, l), 1, q->T);
        q->k *= 2, q->T *= entry(q, "decoder_time_upscale", l);
        if (!wide)
            conv_frames(q, entry(q, widths, l), 1, q->T);
    }
    conv_frames(q, entry(q, widths, L), 1, xd_vae_frames(v, T));
}

/* T latent frames, for which the last frame is repeated. */
static void past_encode(walk *q, const xd_vae_info *v, int64_t T)
{
    int     L = xd_json_size(xd_json_get(q->cfg, "encoder_time_downscale"));
    int64_t C = number(q->cfg, "encoder_channels"), patch = number(q->cfg, "patch_size"), e = q->e;
    q->T = T * v->cell[0], q->k = v->cell[1] / patch, q->e = 4;
    conv_frames(q, 3 * patch * patch, 1, q->T);
    q->e = e;
    for (int l = 0; l < L; l++) {
        q->T /= entry(q, "encoder_time_downscale", l);
        q->bytes += q->T * q->down * q->w * q->k * C * q->e;
        q->k /= 2;
        past_blocks(q, C, 0);
    }
    conv_frames(q, C, 1, q->T);
}

static void deep_levels(walk *q, int64_t latents, int encode)
{
    const char *widths = encode ? "encoder_block_out_channels" : "decoder_block_out_channels";
    const char *layers = encode ? "encoder_layers_per_block" : "decoder_layers_per_block";
    const char *down = xd_json_text(xd_json_get(q->cfg, "downsample_block_type"));
    int         L = xd_json_size(xd_json_get(q->cfg, widths));
    int64_t     e = q->e;
    q->k = encode ? (int64_t)1 << (L - 1) : 1;
    q->e = 4;
    reach(q, encode ? 3 : latents, 1, 1);
    q->e = e;
    for (int i = 0; i < L; i++) {
        int l = encode ? i : L - 1 - i;
        if (!encode && i) {
            reach(q, entry(q, widths, l + 1), 1, 1);
            q->k *= 2;
        }
        for (int64_t n = entry(q, layers, l); n > 0; n--)
            deep_block(q, l, encode);
        if (encode && l < L - 1) {
            reach(q, entry(q, widths, l), 1, strcmp(down, "Conv") == 0 ? 2 : 1);
            q->k /= 2;
        }
    }
    reach(q, entry(q, widths, encode ? L - 1 : 0), 1, 1);
}

static int64_t of_bands(const xd_context *ctx, const int64_t *d, int encode)
{
    const xd_vae_info *v = &ctx->model.vae_info;
    int64_t            S = ctx->world.used->size, cell = v->cell[1], T = d[0], h = d[1], w = d[2];
    int64_t            frames = xd_vae_frames(v, T), n = encode ? frames : T, most = encode ? 8 : 2;
    walk q = { .cfg = ctx->model.vae.config, .h = h, .w = w, .S = S, .rows = part(h, rank, S) };
    q.G = number(q.cfg, "norm_num_groups");
    q.e = (int64_t)xd_dtype_size(ctx->type);
    const int deep = xd_json_get(q.cfg, "decoder_qkv_multiscales") != NULL;
    if (deep)
        deep_levels(&q, v->channels, encode);
    if (!q.rows)
        return q.bytes;
    q.up = h * rank / S > 0;
    q.down = h * (rank + 1) / S < h;
    if (xd_json_get(q.cfg, "num_decoder_blocks"))
        plain(&q, v->channels, encode);
    else if (xd_json_get(q.cfg, "decoder_time_upscale"))
        (encode ? past_encode : past_decode)(&q, v, T);
    else if (xd_json_get(q.cfg, "base_dim"))
        causal_chunks(&q, v, T, encode);
    else if (xd_json_get(q.cfg, "decoder_inject_noise"))
        (encode ? woven_encode : woven_decode)(&q, v, n);
    else if (xd_json_get(q.cfg, "temporal_expansions"))
        by_frames(&q, T);
    else if (xd_json_get(q.cfg, "upsample_match_channel"))
        shuffled(&q, v, n, encode);
    else if (xd_json_get(q.cfg, "spatial_compression_ratio"))
        filmed(&q, v, n, encode);
    else if (!deep)
        batches(&q, v, n, most, encode);
    if (encode)
        return q.bytes + 8 * v->channels * q.rows * w * (S - 1) * T;
    return q.bytes + (rank ? 12 * q.rows * cell * w * cell * frames : 0);
}

/* The largest tile that is left goes to the rank with the least area. */
static int64_t of_tiles(const xd_context *ctx, const xd_vae_info *v, const int64_t *d, int encode)
{
    int64_t h = d[1], w = d[2], n[2], step[2];
    int64_t load[16] = { 0 }, cell = v->cell[1], given[256] = { 0 }, S = ctx->world.used->size,
            bytes = 0;
    int64_t unit = encode ? 8 * v->channels * d[0] : 12 * cell * cell * xd_vae_frames(v, d[0]);
    for (int i = 0; i < 2; i++) {
        step[i] = (int64_t)((double)v->tile[i] * (1 - v->overlap[i]));
        n[i] = (d[1 + i] + step[i] - 1) / step[i];
    }
    for (int64_t left = 0; left < n[0] * n[1]; left++) {
        int64_t best = -1, most = 0, to = 0;
        for (int64_t k = 0; k < n[0] * n[1]; k++) {
            int64_t th = h - k / n[1] * step[0], tw = w - k % n[1] * step[1];
            int64_t area =
                (th < v->tile[0] ? th : v->tile[0]) * (tw < v->tile[1] ? tw : v->tile[1]);
            if (!given[k] && area > most)
                best = k, most = area;
        }
        for (int64_t r = 1; r < S; r++)
            to = load[r] < load[to] ? r : to;
        given[best] = 1;
        load[to] += most;
    }
    bytes = rank ? load[rank] * unit : 0;
    for (int64_t k = 1; encode && k < S && rank % (2 * k) == 0; k *= 2)
        bytes += rank + k < S ? unit * h * w : 0; /* all get the moments, along a tree */
    return bytes;
}

static int64_t formula(const xd_context *ctx, const int64_t *d, int encode, int tiling)
{
    const xd_vae_info *own = &ctx->model.vae_info;
    xd_vae_info        v = encode ? xd_vae_encoding(own) : *own;
    int64_t            begin = 4 * (ctx->world.used->size - 1); /* the ranks agree that all can */
    if (ctx->world.used->size == 1)
        return 0;
    return begin + (tiling && (d[1] > v.tile[0] || d[2] > v.tile[1]) ? of_tiles(ctx, &v, d, encode)
                                                                     : of_bands(ctx, d, encode));
}

/* ---- running ------------------------------------------------------------------------------ */

typedef struct run { /* what one engine makes of an image */
    float  *out;
    int64_t n, sent;
} run;

/* Any size in latent cells; a request asks for whole tokens. */
static void take_size(xd_job *j, const int64_t *d)
{
    const int *cell = j->ctx->model.vae_info.cell;
    memcpy(j->cells, d, sizeof j->cells);
    j->size[0] = d[1] * cell[1], j->size[1] = d[2] * cell[2];
    j->frames = j->all_frames = xd_vae_frames(&j->ctx->model.vae_info, d[0]);
}

static xd_vae_clip clip_of(const xd_job *j)
{
    return (xd_vae_clip){ .frames = j->frames, .pixels = { j->size[0], j->size[1] } };
}

static void encode(xd_exec *x, const xd_job *j, const xd_net *net, const float *in, float *out)
{
    xd_vae_clip clip = clip_of(j);
    xd_vae_encode_frames(x, j, net, &clip, in, out);
}

static void count(xd_job *j, int what, size_t *bytes)
{
    xd_vae_clip clip = clip_of(j);
    xd_err      e = { 0 };
    if (what)
        must(xd_vae_encode_frames_count(j, &clip, bytes, &e), &e);
    else
        must(xd_vae_decode_count(j, bytes, &e), &e);
}

static void compare_count(xd_job *j, int what, const run *r, const xd_arena *a, const char *name)
{
    size_t  bytes = 0;
    int64_t before = j->ctx->count_world->traffic->bytes;
    count(j, what, &bytes);
    before = j->ctx->count_world->traffic->bytes - before;
    if (before != r->sent)
        fail(name, "bytes sent are not those counted", (double)(r->sent - before));
    before = formula(j->ctx, j->cells, what, j->r->output.enable_tiling);
    if (before != r->sent)
        fail(name, "bytes sent are not those of the formula", (double)(r->sent - before));
    if (bytes != xd_arena_peak(a))
        fail(name, "memory is not what was counted", (double)xd_arena_peak(a) - (double)bytes);
}

static run process(xd_engine *g, const int64_t *d, int what, int tiling, const float *in,
                   const char *name)
{
    static const char *const prompt = "a";
    xd_request               r;
    const xd_vae_info       *v = &g->ctx.model.vae_info;
    xd_job                   j = { .ctx = &g->ctx, .r = &r, .vae = *v };
    xd_err                   e = { 0 };
    xd_arena                 a;
    xd_exec                  x;
    size_t                   bytes = 0;
    run                      o = { 0 };
    if (g->ctx.world.idle)
        return o;
    j.channels = xd_vae_pixel_channels(v);
    xd_request_init(&r);
    r.prompts = &prompt, r.nprompts = 1, r.output.enable_tiling = tiling;
    take_size(&j, d);
    o.n = what ? d[0] * d[1] * d[2] * 2 * g->ctx.model.vae_info.channels
               : j.frames * j.size[0] * j.size[1] * 3;
    o.out = memory(o.n);
    count(&j, what, &bytes);
    must(xd_component_load(&g->ctx.model.vae, g->ctx.dev, g->ctx.type, 0, &e), &e);
    must(xd_device_arena_open(&a, g->ctx.dev, bytes, &e), &e);
    xd_exec_init(&x, g->ctx.dev, &a, g->ctx.type);
    int64_t before = g->ctx.world.used->traffic->bytes;
    (what ? encode : xd_vae_decode)(&x, &j, &g->ctx.model.vae.w->net, in, o.out);
    o.sent = g->ctx.world.used->traffic->bytes - before;
    must(x.err.code, &x.err);
    compare_count(&j, what, &o, &a, name);
    xd_device_arena_close(&a, g->ctx.dev);
    return o;
}

static void compare(const run *one, const run *all, const char *what)
{
    double top = 0, most = 0;
    for (int64_t i = 0; i < one->n; i++) {
        double d = fabs((double)one->out[i] - (double)all->out[i]);
        top = fmax(top, fabs((double)one->out[i]));
        most = d > most || !(d >= 0) ? d : most;
    }
    if (!(top > 0) || !(most <= limit * top))
        fail(what, "differs from one rank by this share of the largest value", most / top);
    else if (exact && !sums && memcmp(one->out, all->out, (size_t)one->n * sizeof(float)))
        fail(what, "has other bits than one rank", most / top);
    checks++;
}

/* Rank 0's reference to all, for what every rank has. */
static void tell(xd_comm *c, run *r)
{
    xd_req q = c->ops->bcast(c, xd_view(&r->n, XD_I64, 1, (int64_t[]){ 1 }), 0);
    c->ops->wait(c, &q, 1);
    if (!r->out)
        r->out = memory(r->n);
    q = c->ops->bcast(c, xd_view(r->out, XD_F32, 1, &r->n), 0);
    c->ops->wait(c, &q, 1);
}

static void one_case(xd_engine *one, xd_engine *all, const int64_t *d, int what, int tiling,
                     xd_comm *world)
{
    char        name[128];
    xd_vae_info v = all->ctx.model.vae_info;
    int64_t     pixels = xd_vae_frames(&v, d[0]) * d[1] * d[2] * v.cell[1] * v.cell[2] * 3;
    int64_t     n = what ? pixels : d[0] * d[1] * d[2] * v.channels;
    float      *in = memory(n);
    snprintf(name, sizeof name, "%s %lld frames of %lld x %lld in %s", what ? "encode" : "decode",
             (long long)d[0], (long long)d[1], (long long)d[2], tiling ? "tiles" : "rows");
    for (int64_t i = 0; i < n; i++)
        in[i] = xd_random_weight(what ? 7 : 5, (uint64_t)i) * (what ? 0.5f : 1.0f);
    run a = process(one, d, what, tiling, in, name);
    run b = process(all, d, what, tiling, in, name);
    tell(world, &a);
    if (rank == 0 || what)
        compare(&a, &b, name);
    free(a.out), free(b.out), free(in);
}

static void one_model(const char *dir, const char *dtype, xd_comm *world)
{
    xd_err       e = { 0 };
    xd_engine   *one = NULL, *all = NULL;
    xd_open_args a = { .size = sizeof a, .model = dir, .dtype = dtype, .threads = 1 };
    must(xd_open_with(&one, &a, 0, &e), &e);
    a.parallel.ulysses_degree = ranks;
    a.parallel.use_parallel_vae = 1;
    must(xd_open_with(&all, &a, 0, &e), &e);
    sums = xd_json_get(all->ctx.model.vae.config, "decoder_qkv_multiscales") != NULL;
    int video = all->ctx.model.vae_info.cell[0] > 1;
    int ways = xd_json_get(all->ctx.model.vae.config, "temporal_expansions") ? 2 : 4;
    /* Mirrored edges need two rows and two columns. */
    int least = xd_json_get(all->ctx.model.vae.config, "decoder_spatial_padding_mode") ? 2 : 1;
    for (int s = 0; s < NSIZES; s++)
        for (int i = 0; i < ways; i++) /* one of the autoencoders only decodes */
            if (sizes[video][s][1] >= least && sizes[video][s][2] >= least)
                one_case(one, all, sizes[video][s], i / 2, i % 2, world);
    xd_close(&all);
    xd_close(&one);
}

int main(int argc, char **argv)
{
    xd_err   e = { 0 };
    xd_comm *world = NULL;
    int      at = 2;
    if (argc < 3)
        return 2;
    int f32 = strcmp(argv[1], "f32") == 0, near = strcmp(argv[at], "near") == 0;
    at += near;
    exact = f32 && !near;
    limit = f32 ? 1e-5 : 3e-2;
    xd_par_set(1);
    must(xd_comm_world(&world, xd_comm_launched() ? "mpi" : "self", &e), &e);
    rank = world->rank;
    ranks = world->size;
    for (; at < argc; at++)
        one_model(argv[at], argv[1], world);
    int64_t n[2] = { checks, failures };
    xd_req  q = world->ops->allreduce(world, xd_view(n, XD_I64, 1, (int64_t[]){ 2 }), XD_SUM);
    world->ops->wait(world, &q, 1);
    if (rank == 0)
        printf("%d ranks: %lld images compared %s, %lld failures\n", ranks, (long long)n[0],
               exact ? "bit for bit" : "within a tolerance", (long long)n[1]);
    xd_comm_close(&world);
    return n[1] || !n[0];
}
