/* compact.c - enlarges images with SRVGGNetCompact, the small network of Real-ESRGAN for videos
 * (Wang et al. 2021, arXiv:2107.10833).
 *
 * Convolutions with PReLU compute the pixels of each enlarged pixel as channels, which are added to
 * the image, enlarged by repeating its pixels. Every convolution exchanges its halo rows with other
 * ranks. */
#include <stddef.h>
#include <stdio.h>

#include "exec/op.h"
#include "upsample/upscaler.h"
#include "vae/bands.h"
#include "vae/maps.h"

enum { MAX_CONVS = 256, MAX_WIDTH = 4096, MAX_SCALE = 8, NAME = 32 };

typedef struct config {
    int64_t width;
    int     convs, scale;
} config;

typedef struct net {
    xd_cnv    first, conv[MAX_CONVS], last;
    xd_tensor slope[MAX_CONVS + 1]; /* slope[i]: of the activation before conv[i] or `last` */
} net;

static const xd_field fields[] = {
    { "num_feat", offsetof(config, width), 'l', 64, NULL },
    { "num_conv", offsetof(config, convs), 'i', 16, NULL },
    { "upscale", offsetof(config, scale), 'i', 4, NULL },
    { "_class_name", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static const char *layer_name(char name[NAME], int i)
{
    snprintf(name, NAME, "body.%d", i);
    return name;
}

/* The layers 0, 2, 4 ... are convolutions, and those in between are activations. */
static int read_config(const xd_source *src, xd_text_buf *b)
{
    char      name[NAME];
    xd_tensor first, last = { 0 }, t;
    int       n = 0, scale = 1;
    if (!xd_upscaler_shape(src, "body.0", &first) || first.nd != 4 || first.d[1] != 3)
        return 0;
    while (n <= MAX_CONVS + 1 && xd_upscaler_shape(src, layer_name(name, 2 * n), &t))
        last = t, n++;
    while (scale < MAX_SCALE && (int64_t)3 * scale * scale < last.d[0])
        scale++;
    xd_buf_add(b,
               "{\"_class_name\": \"SRVGGNetCompact\", \"num_feat\": %lld, \"num_conv\": %d, "
               "\"upscale\": %d}",
               (long long)first.d[0], n - 2, scale);
    return 1;
}

static xd_status check(void *cfg, xd_err *e)
{
    const config *c = cfg;
    if (c->width < 1 || c->width > MAX_WIDTH || c->convs < 0 || c->convs > MAX_CONVS ||
        c->scale < 1 || c->scale > MAX_SCALE)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "upscaler: SRVGGNetCompact with %lld channels, %d convolutions and scale "
                       "%d; supported are 1 to %d channels, 0 to %d convolutions and scales 1 to "
                       "%d",
                       (long long)c->width, c->convs, c->scale, MAX_WIDTH, MAX_CONVS, MAX_SCALE);
    return XD_OK;
}

static void info(const void *cfg, xd_upscaler_info *out)
{
    const config *c = cfg;
    *out = (xd_upscaler_info){
        .scale = c->scale, .cell = 1, .reach = c->convs + 2, .parts = c->convs
    };
}

static void weights(xd_decl *d, const void *cfg, void *glob)
{
    const config  *c = cfg;
    net           *g = glob;
    char           name[NAME];
    const xd_dtype type = d->type;
    d->type = XD_F32; /* of the layers next to the pixels */
    xd_upscaler_conv(d, &g->first, layer_name(name, 0), c->width, 3);
    d->type = type;
    for (int i = 0; i <= c->convs; i++) {
        snprintf(name, sizeof name, "body.%d.weight", 2 * i + 1);
        xd_w_vec(d, &g->slope[i], name, 1, &c->width);
        if (i < c->convs)
            xd_upscaler_conv(d, &g->conv[i], layer_name(name, 2 * i + 2), c->width, c->width);
    }
    d->type = XD_F32;
    xd_upscaler_conv(d, &g->last, layer_name(name, 2 * c->convs + 2), 3 * c->scale * c->scale,
                     c->width);
    d->type = type;
}

/* Computes the PReLU of a map in place (He et al. 2015). */
static void activate(xd_exec *x, xd_tensor map, xd_tensor slope)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor minus = xd_new_f32(x, 1, map.d[3]);
    xd_axpby(x, xd_reshape(minus, 1, &map.d[3]), -1, slope, 0);
    xd_upscaler_slope(x, map, minus);
    xd_arena_rewind(x->tmp, mark);
}

static void enlarge(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out)
{
    const config *c = n->cfg;
    const net    *g = n->glob;
    size_t        mark = xd_arena_mark(x->tmp);
    int64_t       H = in.d[1], W = in.d[2], f = c->scale;
    xd_tensor     a = xd_map_as(x, XD_F32, 1, H, W, c->width);
    xd_tensor     b = xd_map_as(x, XD_F32, 1, H, W, c->width), swap;
    xd_upscaler_convolve_rows(x, a, in, &g->first, (xd_tensor){ 0 });
    for (int i = 0; i < c->convs; i++) {
        activate(x, a, g->slope[i]);
        xd_upscaler_convolve_rows(x, b, a, &g->conv[i], (xd_tensor){ 0 });
        swap = a, a = b, b = swap;
        xd_pause(x);
    }
    activate(x, a, g->slope[c->convs]);
    xd_tensor y = xd_map_as(x, XD_F32, 1, H, W, 3 * f * f);
    xd_upscaler_convolve_rows(x, y, a, &g->last, (xd_tensor){ 0 });
    xd_map_unpack(x, out, y, f, 1, 0);
    int64_t all = xd_count(out);
    xd_axpby(x, xd_reshape(out, 1, &all), 1,
             xd_reshape(xd_enlarge(x, in, 1, (int)f, (int)f), 1, &all), 1);
    xd_arena_rewind(x->tmp, mark);
}

extern const xd_upscaler xd_upscaler_compact;

const xd_upscaler xd_upscaler_compact = {
    .net = { .name = "compact",
             .classes = { "SRVGGNetCompact" },
             .fields = fields,
             .cfg_size = sizeof(config),
             .glob_size = sizeof(net),
             .check = check,
             .weights = weights },
    .info = info,
    .read = read_config,
    .run = enlarge,
};
