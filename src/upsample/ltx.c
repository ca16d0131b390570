/* ltx.c - enlarges latents with LTXLatentUpsamplerModel (HaCohen et al. 2024, arXiv:2501.00103) and
 * LTX2LatentUpsamplerModel.
 *
 * Residual blocks of two convolutions come before and after a convolution whose channels become
 * positions. Group norms are over all frames, and convolutions read zeros beyond the video, also
 * before the first and after the last frame. The feature map is the first memory in the arena. */
#include <stddef.h>

#include "exec/op.h"
#include "upsample/upsample.h"
#include "vae/maps.h"

enum { GROUPS = 32, MAX_BLOCKS = 16, MAX_WIDTH = 1 << 16 };

static const float eps = 1e-5f;

typedef struct config {
    int64_t in_channels, width;
    int     blocks, dims, wide, time, rational;
    double  scale;
} config;

typedef struct residual {
    xd_cnv    conv[2];
    xd_tensor gain[2], bias[2];
} residual;

typedef struct net {
    xd_cnv    in, up, out;
    xd_tensor gain, bias;
    residual  before[MAX_BLOCKS], after[MAX_BLOCKS];
} net;

#define AT(member) offsetof(config, member)
/* The fields of both classes; the argument is the default of mid_channels. */
#define FIELDS(wide_)                                   \
    { "in_channels", AT(in_channels), 'l', 128, NULL },       \
    { "mid_channels", AT(width), 'l', wide_, NULL },          \
    { "num_blocks_per_stage", AT(blocks), 'i', 4, NULL },     \
    { "dims", AT(dims), 'i', 3, NULL },                       \
    { "spatial_upsample", AT(wide), 'b', 1, NULL },           \
    { "temporal_upsample", AT(time), 'b', 0, NULL },          \
    { "_class_name", 0, '-', 0, NULL },                       \
    { "_diffusers_version", 0, '-', 0, NULL },                \
    { "_name_or_path", 0, '-', 0, NULL }

static const xd_field fields[] = { FIELDS(512), { NULL, 0, 0, 0, NULL } };

static const xd_field fields2[] = {
    FIELDS(1024),
    { "rational_spatial_scale", AT(scale), 'd', 2, NULL },
    { "use_rational_resampler", AT(rational), 'b', 1, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* ---- the config and weights ------------------------------------------------------------------ */

static xd_status check(void *cfg, xd_err *e)
{
    config *c = cfg;
    if (c->in_channels < 1 || c->in_channels > MAX_WIDTH || c->width < 1 || c->width > MAX_WIDTH ||
        c->width % GROUPS || c->blocks < 1 || c->blocks > MAX_BLOCKS)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "latent upsampler: in_channels %lld, mid_channels %lld and "
                       "num_blocks_per_stage %d; supported are 1 to %d channels, a multiple of %d "
                       "in the middle, and 1 to %d blocks",
                       (long long)c->in_channels, (long long)c->width, c->blocks, MAX_WIDTH, GROUPS,
                       MAX_BLOCKS);
    if (!c->wide && !c->time)
        return xd_fail(e, XD_EFORMAT,
                       "latent upsampler: spatial_upsample and temporal_upsample are both false");
    if (c->dims != 3 && (c->dims != 2 || c->time))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "latent upsampler: dims is %d; it must be 3, or 2 without "
                       "temporal_upsample",
                       c->dims);
    if (c->rational && c->wide && !c->time && c->scale != 2)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "latent upsampler: rational_spatial_scale is %g; only 2 is supported",
                       c->scale);
    return XD_OK;
}

static void info(const void *cfg, xd_upsampler_info *out)
{
    const config *c = cfg;
    *out = (xd_upsampler_info){ c->in_channels, { 1 + c->time, 1 + c->wide, 1 + c->wide } };
}

static void w_conv(xd_decl *d, xd_cnv *w, const char *name, int64_t out, int64_t in, int dims)
{
    xd_w_conv(
        d, w, name,
        &(xd_conv_spec){
            .out = out, .in = in, .nk = dims, .kernel = { dims == 3 ? 3 : 1, 3, 3 }, .bias = 1 });
}

static void w_blocks(xd_decl *d, const config *c, residual *w, const char *name)
{
    xd_w_enter(d, "%s", name);
    for (int i = 0; i < c->blocks; i++) {
        xd_w_enter(d, "%d", i);
        w_conv(d, &w[i].conv[0], "conv1", c->width, c->width, c->dims);
        xd_w_affine(d, "norm1", &w[i].gain[0], &w[i].bias[0], c->width);
        w_conv(d, &w[i].conv[1], "conv2", c->width, c->width, c->dims);
        xd_w_affine(d, "norm2", &w[i].gain[1], &w[i].bias[1], c->width);
        xd_w_leave(d);
    }
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *cfg, void *glob)
{
    const config *c = cfg;
    net          *g = glob;
    int64_t       cells = (1 + c->time) * (c->wide ? 4 : 1);
    int           named = c->rational && c->wide && !c->time;
    w_conv(d, &g->in, "initial_conv", c->width, c->in_channels, c->dims);
    xd_w_affine(d, "initial_norm", &g->gain, &g->bias, c->width);
    w_blocks(d, c, g->before, "res_blocks");
    w_conv(d, &g->up, named ? "upsampler.conv" : "upsampler.0", cells * c->width, c->width,
           c->time ? 3 : 2);
    if (named) /* blurs before a division of the rows and columns, which is not supported */
        xd_w_unread(d, "upsampler.blur_down.kernel", 4, (int64_t[]){ 1, 1, 5, 5 });
    w_blocks(d, c, g->after, "post_upsample_res_blocks");
    w_conv(d, &g->out, "final_conv", c->in_channels, c->width, c->dims);
}

/* ---- running -------------------------------------------------------------------------------- */

typedef struct run {
    xd_exec      *x;
    const config *c;
    const net    *g;
} run;

static void convolve(run *r, xd_tensor out, xd_tensor in, const xd_cnv *w)
{
    const int t = w->w.kernel[0] / 2, pad[3] = { t, 1, 1 };
    xd_conv2d_into(r->x, out, in, w, &(xd_conv_options){ .lo = pad, .hi = pad });
}

/* Normalizes each frame alone in networks of two dimensions, else all frames together. */
static void norm(run *r, xd_tensor to, xd_tensor gain, xd_tensor bias, int silu)
{
    int64_t n = r->c->dims == 2 ? 1 : to.d[0];
    for (int64_t t = 0; t < to.d[0]; t += n) {
        size_t    mark = xd_arena_mark(r->x->tmp);
        xd_tensor part = xd_rows(to, t, n);
        xd_gsum   sum = xd_group_sums(r->x, part, GROUPS);
        xd_group_apply_into(
            r->x, &sum,
            &(xd_gnorm){
                .out = part, .in = part, .gain = gain, .bias = bias, .eps = eps, .silu = silu });
        xd_arena_rewind(r->x->tmp, mark);
    }
}

/* Runs residual blocks: h = silu(h + norm2(conv2(silu(norm1(conv1(h)))))) */
static void run_blocks(run *r, xd_tensor h, const residual *w)
{
    for (int i = 0; i < r->c->blocks; i++) {
        size_t    mark = xd_arena_mark(r->x->tmp);
        xd_tensor a = xd_new_as(r->x, h.type, 4, h.d), b = xd_new_as(r->x, h.type, 4, h.d);
        xd_pause(r->x);
        convolve(r, a, h, &w[i].conv[0]);
        norm(r, a, w[i].gain[0], w[i].bias[0], 1);
        convolve(r, b, a, &w[i].conv[1]);
        norm(r, b, w[i].gain[1], w[i].bias[1], 0);
        xd_add(r->x, xd_map_rows(h), xd_map_rows(b));
        xd_activate(r->x, xd_map_rows(h), XD_SILU);
        xd_arena_rewind(r->x->tmp, mark);
    }
}

/* Enlarges h [T,H,W,C] to `to`. Of the frames that the first frame becomes, only the last one is
 * kept. */
static void enlarge(run *r, xd_tensor to, xd_tensor h, const int by[3])
{
    size_t    mark = xd_arena_mark(r->x->tmp);
    int64_t   f = by[0], plane = by[1] * by[2], C = h.d[3];
    xd_tensor y = xd_map(r->x, h.d[0], h.d[1], h.d[2], f * plane * C);
    convolve(r, y, h, &r->g->up);
    for (int64_t i = 0; i < to.d[0]; i++) {
        int64_t at = i + f - 1;
        xd_copy_to(
            r->x, xd_map_spread(xd_rows(to, i, 1), by[1], by[2]),
            xd_map_grouped(xd_rows(y, at / f, 1), C, f * plane, at % f * plane, by[1], by[2]));
    }
    xd_arena_rewind(r->x->tmp, mark);
}

static void upsample(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out)
{
    run               r = { .x = x, .c = n->cfg, .g = n->glob };
    size_t            mark = xd_arena_mark(x->tmp);
    int64_t           C = r.c->width, T = in.d[0];
    xd_upsampler_info i;
    info(r.c, &i);
    if (!xd_check(x,
                  in.d[3] == i.channels && out.d[3] == i.channels &&
                      out.d[0] == xd_upsampler_frames(&i, T) && out.d[1] == i.by[1] * in.d[1] &&
                      out.d[2] == i.by[2] * in.d[2],
                  "latent upsampler: %lld frames of %lld x %lld cells do not become %lld of %lld "
                  "x %lld, or do not have %lld channels",
                  (long long)T, (long long)in.d[2], (long long)in.d[1], (long long)out.d[0],
                  (long long)out.d[2], (long long)out.d[1], (long long)i.channels))
        return;
    xd_tensor big = xd_map(x, out.d[0], out.d[1], out.d[2], C);
    xd_tensor h = xd_map(x, T, in.d[1], in.d[2], C);
    convolve(&r, h, in, &r.g->in);
    norm(&r, h, r.g->gain, r.g->bias, 1);
    run_blocks(&r, h, r.g->before);
    enlarge(&r, big, h, i.by);
    run_blocks(&r, big, r.g->after);
    convolve(&r, out, big, &r.g->out);
    xd_arena_rewind(x->tmp, mark);
}

#define UPSAMPLER(title, class, table)           \
    {                                            \
        .net = { .name = title,                  \
                 .classes = { class },           \
                 .unread = { "upsampler.blur_down.kernel" }, \
                 .fields = table,                \
                 .cfg_size = sizeof(config),     \
                 .glob_size = sizeof(net),       \
                 .check = check,                 \
                 .weights = weights },           \
        .info = info, .run = upsample,           \
    }

extern const xd_upsampler xd_upsample_ltx, xd_upsample_ltx2;

const xd_upsampler xd_upsample_ltx = UPSAMPLER("ltx-upsampler", "LTXLatentUpsamplerModel", fields);
const xd_upsampler xd_upsample_ltx2 =
    UPSAMPLER("ltx2-upsampler", "LTX2LatentUpsamplerModel", fields2);
