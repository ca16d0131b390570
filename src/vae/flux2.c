/* flux2.c - runs AutoencoderKLFlux2, an AutoencoderKL whose latents are packed and normalized.
 *
 * A latent cell is 2 x 2 cells of the inner autoencoder (kl.c): channel 4 c + 2 y + x is channel c
 * of the cell in row y and column x. In place of a scaling factor, each channel is normalized by
 * the running mean and variance of a batch norm. */
#include <math.h>
#include <string.h>

#include "exec/op.h"
#include "vae/kl.h"
#include "vae/rgb.h"
#include "vae/scale_rows.h"

enum { PACK = 2, CELLS = PACK * PACK, LEVELS = 4, MOST = 4096 };

typedef struct cfg {
    xd_kl_cfg kl;
    double    eps;
    xd_ints   patch;
} cfg;

typedef struct glob {
    xd_kl_glob kl;
    xd_tensor  mean, var; /* [4 C]: running statistics of the batch norm */
} glob;

static const xd_field fields[] = {
    XD_KL_FIELDS(2, 32, 1024),
    { "batch_norm_eps", offsetof(cfg, eps), 'd', 1e-4, NULL },
    { "batch_norm_momentum", 0, '-', 0, NULL }, /* used only in training */
    { "patch_size", offsetof(cfg, patch), 'L', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* ---- the config --------------------------------------------------------------------------- */

static void set_blocks(xd_names *t, const char *name)
{
    for (int i = 0; t->n < LEVELS && i == t->n; i++)
        strcpy(t->v[t->n++], name);
}

static xd_status check_config(void *c_, xd_err *e)
{
    static const int64_t widths[LEVELS] = { 128, 256, 512, 512 };
    cfg                 *c = c_;
    if (!c->kl.width.n) { /* config keys that are lists get diffusers' default values */
        c->kl.width.n = LEVELS;
        memcpy(c->kl.width.v, widths, sizeof widths);
    }
    if (!c->kl.down.n)
        set_blocks(&c->kl.down, "DownEncoderBlock2D");
    if (!c->kl.up.n)
        set_blocks(&c->kl.up, "UpDecoderBlock2D");
    c->kl.scaling = 1;
    if (xd_kl_check(&c->kl, e) != XD_OK)
        return e->code;
    if (c->kl.latent_channels > MOST / CELLS)
        return xd_fail(e, XD_EUNSUPPORTED, "vae: latent_channels is %lld; up to %d are supported",
                       (long long)c->kl.latent_channels, MOST / CELLS);
    if (c->patch.n && (c->patch.n != 2 || c->patch.v[0] != PACK || c->patch.v[1] != PACK))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "vae: patch_size must be [%d, %d], the only one that is "
                       "supported",
                       PACK, PACK);
    if (!(c->eps > 0 && c->eps < 1))
        return xd_fail(e, XD_EFORMAT, "vae: batch_norm_eps is %g; it must be between 0 and 1",
                       c->eps);
    return XD_OK;
}

static void info(const void *c_, xd_vae_info *out)
{
    const cfg *c = c_;
    int64_t    f = PACK * xd_kl_cell(&c->kl);
    *out = (xd_vae_info){ .channels = CELLS * c->kl.latent_channels,
                          .cell = { 1, (int)f, (int)f },
                          .scaling = 1,
                          .overlap = { 0.25, 0.25 },
                          .pack = PACK,
                          .rgb = xd_vae_rgb(c->kl.latent_channels, c->kl.width.v[0], 1) };
    out->tile[0] = out->tile[1] = c->kl.sample_size / f > 0 ? c->kl.sample_size / f : 1;
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    n = CELLS * c->kl.latent_channels;
    xd_kl_weights(d, &c->kl, &g->kl);
    xd_w_vec(d, &g->mean, "bn.running_mean", 1, &n);
    xd_w_vec(d, &g->var, "bn.running_var", 1, &n);
    xd_w_unread(d, "bn.num_batches_tracked", 0, NULL);
}

/* ---- packing and normalizing -------------------------------------------------------------- */

/* Returns a view [h,2,w,2,C] of packed cells [h,w,4C]. The view has the order of the inner
 * autoencoder's map [2h,2w,C]. */
static xd_tensor unpacked_order(xd_tensor t, int64_t C)
{
    xd_tensor v = xd_reshape(t, 5, (int64_t[]){ t.d[0], t.d[1], C, PACK, PACK });
    return xd_permute(v, (int[]){ 0, 3, 1, 4, 2 });
}

/* Reads the mean and standard deviation of every latent channel to the host. When a run only counts
 * the memory that it needs, mean and standard deviation are zeros. */
static void read_norm(xd_exec *x, const cfg *c, const glob *g, float *mean, float *std)
{
    int64_t n = CELLS * c->kl.latent_channels;
    memset(mean, 0, (size_t)n * sizeof *mean);
    memset(std, 0, (size_t)n * sizeof *std);
    xd_get(x, mean, g->mean);
    xd_get(x, std, g->var);
    for (int64_t i = 0; i < n; i++)
        std[i] = sqrtf(std[i] + (float)c->eps);
}

static void decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const cfg  *c = n->cfg;
    const glob *g = n->glob;
    int64_t     T = lat.d[0], h = lat.d[1], w = lat.d[2], C = c->kl.latent_channels;
    float       mean[MOST], std[MOST];
    size_t      mark = xd_arena_mark(x->tmp);
    if (!xd_check(x, lat.d[3] == CELLS * C, "vae: latents have %lld channels, expected %lld",
                  (long long)lat.d[3], (long long)(CELLS * C)))
        return;
    read_norm(x, c, g, mean, std);
    xd_tensor z = xd_new_as(x, XD_F32, 4, (int64_t[]){ T, PACK * h, PACK * w, C });
    for (int64_t t = 0; t < T; t++) {
        size_t    above = xd_arena_mark(x->tmp);
        xd_tensor flat = xd_new_as(x, XD_F32, 3, (int64_t[]){ h, w, CELLS * C });
        xd_copy_to(x, flat, xd_reshape(xd_rows(lat, t, 1), 3, flat.d));
        xd_tensor y =
            xd_scale_rows(x, xd_reshape(flat, 2, (int64_t[]){ h * w, CELLS * C }), std, mean);
        xd_copy_to(x, xd_reshape(xd_rows(z, t, 1), 5, (int64_t[]){ h, PACK, w, PACK, C }),
                   unpacked_order(xd_reshape(y, 3, flat.d), C));
        xd_arena_rewind(x->tmp, above);
    }
    xd_kl_decode(x, &c->kl, &g->kl, z, rgb);
    xd_arena_rewind(x->tmp, mark);
}

/* Encodes, then packs and normalizes the moments: the mean becomes (mean - m) / s, and the log
 * variance becomes log variance - 2 log s, with the mean m and the standard deviation s of each
 * channel. */
static void encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    const cfg  *c = n->cfg;
    const glob *g = n->glob;
    int64_t     T = moments.d[0], h = moments.d[1], w = moments.d[2], C = c->kl.latent_channels;
    float       gain[2 * MOST], bias[2 * MOST];
    size_t      mark = xd_arena_mark(x->tmp);
    if (!xd_check(x, moments.d[3] == 2 * CELLS * C,
                  "vae: moments have %lld channels, expected %lld", (long long)moments.d[3],
                  (long long)(2 * CELLS * C)))
        return;
    read_norm(x, c, g, bias, gain);
    for (int64_t i = 0; i < CELLS * C; i++) {
        gain[CELLS * C + i] = 1;
        bias[CELLS * C + i] = -2 * logf(gain[i]);
        bias[i] /= -gain[i];
        gain[i] = 1 / gain[i];
    }
    xd_tensor z = xd_new_as(x, XD_F32, 4, (int64_t[]){ T, PACK * h, PACK * w, 2 * C });
    xd_kl_encode(x, &c->kl, &g->kl, rgb, z);
    for (int64_t t = 0; t < T; t++) {
        size_t    above = xd_arena_mark(x->tmp);
        xd_tensor y = xd_new_as(x, XD_F32, 3, (int64_t[]){ h, w, 2 * CELLS * C });
        xd_copy_to(x, unpacked_order(y, 2 * C),
                   xd_reshape(xd_rows(z, t, 1), 5, (int64_t[]){ h, PACK, w, PACK, 2 * C }));
        y = xd_scale_rows(x, xd_reshape(y, 2, (int64_t[]){ h * w, 2 * CELLS * C }), gain, bias);
        xd_copy_to(x, xd_reshape(xd_rows(moments, t, 1), 3, (int64_t[]){ h, w, 2 * CELLS * C }),
                   xd_reshape(y, 3, (int64_t[]){ h, w, 2 * CELLS * C }));
        xd_arena_rewind(x->tmp, above);
    }
    xd_arena_rewind(x->tmp, mark);
}

extern const xd_vae xd_vae_flux2;

const xd_vae xd_vae_flux2 = {
    .net = { .name = "kl-packed",
             .classes = { "AutoencoderKLFlux2" },
             .fields = fields,
             .unread = { "bn.num_batches_tracked" },
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .weights = weights },
    .info = info,
    .decode = decode,
    .encode = encode,
};
