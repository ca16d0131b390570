/* rrdb.c - enlarges images with RRDBNet, the network of ESRGAN (Wang et al. 2018,
 * arXiv:1809.00219) and Real-ESRGAN (Wang et al. 2021, arXiv:2107.10833).
 *
 * A residual dense block (RDB) concatenates its input and the outputs of its first four
 * convolutions; three RDBs are a block (RRDB) of the network. The image is unshuffled to cells of
 * 1 x 1, 2 x 2 or 4 x 4 pixels before the first convolution, and enlarged by 2 x 2 after the blocks
 * up to three times. Each RDB, and all layers after the blocks, are computed in bands of rows with
 * as many neighbouring rows as they read, so that the ranks exchange rows once per RDB. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "exec/op.h"
#include "upsample/upscaler.h"
#include "vae/bands.h"
#include "vae/maps.h"

enum { CONVS = 5, PARTS = 3, MAX_UPS = 3, MAX_BLOCKS = 256, MAX_WIDTH = 4096, TAIL_REACH = 2 };

/* Bytes of a band; larger bands have fewer rows that are computed twice. */
static const size_t band_bytes = (size_t)512 << 20;
static const float  residual_scale = 0.2f, slope = 0.2f;

typedef struct config {
    int64_t width, growth;
    int     blocks, ups, cell, names;
} config;

typedef struct dense { xd_cnv conv[CONVS]; } dense;

typedef struct net {
    xd_cnv first, body, up[MAX_UPS], hr, last;
    dense  parts[MAX_BLOCKS][PARTS];
} net;

static const xd_field fields[] = {
    { "num_feat", offsetof(config, width), 'l', 64, NULL },
    { "num_grow_ch", offsetof(config, growth), 'l', 32, NULL },
    { "num_block", offsetof(config, blocks), 'i', 23, NULL },
    { "num_up", offsetof(config, ups), 'i', 2, NULL },
    { "cell", offsetof(config, cell), 'i', 1, NULL },
    { "names", offsetof(config, names), 'i', 0, NULL },
    { "_class_name", 0, '-', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* ---- names ----------------------------------------------------------------------------------- */

/* The names of tensors in a file. Layers without fixed names are numbered. */
typedef struct naming {
    const char *first, *dense; /* dense: format with the numbers of block, RDB and convolution */
    const char *body, *up, *hr, *last;
} naming;

static const naming namings[] = {
    { "conv_first", "body.%d.rdb%d.conv%d", "conv_body", "conv_up%d", "conv_hr", "conv_last" },
    { "conv_first", "RRDB_trunk.%d.RDB%d.conv%d", "trunk_conv", "upconv%d", "HRconv", "conv_last" },
    { "model.0", "model.1.sub.%d.RDB%d.conv%d.0", "model.1.sub.%d", "model.%d", "model.%d",
      "model.%d" },
};
enum { NAMINGS = sizeof namings / sizeof *namings, NUMBERED = 2, NAME = 64 };

/* Formats a name that has at most one number. */
static void put_name(char *out, const char *format, int number)
{
    const char *gap = strstr(format, "%d");
    if (gap)
        snprintf(out, NAME, "%.*s%d%s", (int)(gap - format), format, number, gap + 2);
    else
        snprintf(out, NAME, "%s", format);
}

static void put_dense(char *out, int names, int block, int part, int conv)
{
    const char *f = namings[names].dense, *a = strstr(f, "%d"), *b = strstr(a + 2, "%d");
    const char *c = strstr(b + 2, "%d");
    snprintf(out, NAME, "%.*s%d%.*s%d%.*s%d%s", (int)(a - f), f, block, (int)(b - a - 2), a + 2,
             part + 1, (int)(c - b - 2), b + 2, conv + 1, c + 2);
}

/* Returns the number of convolution i after the blocks in its name. In the sequence of layers that
 * numbered names count, each enlargement and each activation is a layer, too. */
static int up_number(const config *c, int i)
{
    return c->names == NUMBERED ? 3 + 3 * i : i + 1;
}

static int hr_number(const config *c)
{
    return 2 + 3 * c->ups;
}

/* ---- reading the config from tensors --------------------------------------------------------- */

static int read_names(const xd_source *src, config *c, xd_tensor *first)
{
    char      name[NAME];
    xd_tensor t;
    for (c->names = 0; c->names < NAMINGS; c->names++) {
        put_dense(name, c->names, 0, 0, 0);
        if (xd_upscaler_shape(src, namings[c->names].first, first) &&
            xd_upscaler_shape(src, name, &t) && first->nd == 4 && t.nd == 4) {
            c->growth = t.d[0];
            return 1;
        }
    }
    return 0;
}

static void count_layers(const xd_source *src, config *c)
{
    char      name[NAME];
    xd_tensor t;
    for (c->blocks = 0; c->blocks <= MAX_BLOCKS; c->blocks++) {
        put_dense(name, c->names, c->blocks, 0, 0);
        if (!xd_upscaler_shape(src, name, &t))
            break;
    }
    for (c->ups = 0; c->ups <= MAX_UPS; c->ups++) {
        put_name(name, namings[c->names].up, up_number(c, c->ups));
        if (!xd_upscaler_shape(src, name, &t))
            break;
    }
    if (c->names != NUMBERED)
        return;
    /* in files with numbered names, the last layer tells the number of enlargements */
    for (c->ups = 0; c->ups <= MAX_UPS; c->ups++) {
        put_name(name, namings[NUMBERED].last, hr_number(c) + 2);
        if (xd_upscaler_shape(src, name, &t) && t.nd == 4 && t.d[0] == 3)
            break;
    }
}

static int read_config(const xd_source *src, xd_text_buf *b)
{
    config    c = { 0 };
    xd_tensor first;
    if (!read_names(src, &c, &first))
        return 0;
    count_layers(src, &c);
    for (c.cell = 1; c.cell < 4 && (int64_t)3 * c.cell * c.cell < first.d[1]; c.cell *= 2)
        ;
    xd_buf_add(b,
               "{\"_class_name\": \"RRDBNet\", \"num_feat\": %lld, \"num_grow_ch\": %lld, "
               "\"num_block\": %d, \"num_up\": %d, \"cell\": %d, \"names\": %d}",
               (long long)first.d[0], (long long)c.growth, c.blocks, c.ups, c.cell, c.names);
    return 1;
}

static xd_status check(void *cfg, xd_err *e)
{
    const config *c = cfg;
    if (c->width < 1 || c->width > MAX_WIDTH || c->growth < 1 || c->growth > MAX_WIDTH ||
        c->blocks < 1 || c->blocks > MAX_BLOCKS || c->names < 0 || c->names >= NAMINGS)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "upscaler: RRDBNet with %lld and %lld channels and %d blocks; supported are "
                       "1 to %d channels and 1 to %d blocks",
                       (long long)c->width, (long long)c->growth, c->blocks, MAX_WIDTH, MAX_BLOCKS);
    if (c->ups < 0 || c->ups > MAX_UPS || c->cell < 1 || 1 << c->ups < c->cell)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "upscaler: RRDBNet enlarges cells of %d pixels %d times; it must enlarge "
                       "the image by 1, 2, 4 or 8",
                       c->cell, c->ups);
    return XD_OK;
}

static void info(const void *cfg, xd_upscaler_info *out)
{
    const config *c = cfg;
    *out = (xd_upscaler_info){ .scale = (1 << c->ups) / c->cell,
                               .cell = c->cell,
                               .reach = (int64_t)c->blocks * PARTS * CONVS + 2 + TAIL_REACH,
                               .parts = c->blocks };
}

static void weights(xd_decl *d, const void *cfg, void *glob)
{
    const config  *c = cfg;
    const naming  *names = &namings[c->names];
    net           *g = glob;
    char           name[NAME];
    const xd_dtype type = d->type;
    d->type = XD_F32; /* of layers with few channels, which are next to the pixels */
    xd_upscaler_conv(d, &g->first, names->first, c->width, (int64_t)3 * c->cell * c->cell);
    d->type = type;
    for (int b = 0; b < c->blocks; b++)
        for (int p = 0; p < PARTS; p++)
            for (int k = 0; k < CONVS; k++) {
                put_dense(name, c->names, b, p, k);
                xd_upscaler_conv(d, &g->parts[b][p].conv[k], name,
                                 k < CONVS - 1 ? c->growth : c->width, c->width + k * c->growth);
            }
    put_name(name, names->body, c->blocks);
    xd_upscaler_conv(d, &g->body, name, c->width, c->width);
    for (int i = 0; i < c->ups; i++) {
        put_name(name, names->up, up_number(c, i));
        xd_upscaler_conv(d, &g->up[i], name, c->width, c->width);
    }
    put_name(name, names->hr, hr_number(c));
    xd_upscaler_conv(d, &g->hr, name, c->width, c->width);
    d->type = XD_F32;
    put_name(name, names->last, hr_number(c) + 2);
    xd_upscaler_conv(d, &g->last, name, 3, c->width);
    d->type = type;
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct run {
    const config *c;
    const net    *g;
    const dense  *part;  /* the RDB that is computed */
    xd_tensor     map;   /* [1,H,W,width] F32 in cells */
    xd_tensor     out;   /* pixels of the result */
    xd_tensor     minus; /* [1,width] the slope of activations, negated */
} run;

/* Returns a view of channels [at, at + n) of a map. */
static xd_tensor channels_of(xd_tensor t, int64_t at, int64_t n)
{
    if (t.p)
        t.p = (char *)t.p + at * t.s[3] * (int64_t)xd_dtype_size(t.type);
    t.d[3] = n;
    return t;
}

static xd_tensor rows_of(xd_tensor t, int64_t at, int64_t n)
{
    if (t.p)
        t.p = (char *)t.p + at * t.s[1] * (int64_t)xd_dtype_size(t.type);
    t.d[1] = n;
    return t;
}

/* Computes an RDB of a band: its rows += 0.2 conv5(cat). Rows within `reach` of the band's inner
 * edges become wrong, and are not read. */
static void run_dense(xd_exec *x, void *ctx, const xd_band *b)
{
    const run      *r = ctx;
    const xd_tensor none = { 0 };
    int64_t         D = r->c->width, G = r->c->growth, n = b->in.d[1], W = b->in.d[2];
    xd_tensor       cat = xd_map_as(x, XD_F32, 1, n, W, D + (CONVS - 1) * G);
    xd_tensor       y = xd_map_as(x, XD_F32, 1, n, W, G), last = xd_map_as(x, XD_F32, 1, n, W, D);
    xd_tensor       to = rows_of(r->map, b->first, b->n);
    int64_t         all = b->n * W * D;
    xd_copy_to(x, channels_of(cat, 0, D), b->in);
    for (int k = 0; k < CONVS - 1; k++) {
        xd_upscaler_convolve(x, y, channels_of(cat, 0, D + k * G), &r->part->conv[k], none);
        xd_upscaler_slope(x, y, xd_view2(r->minus.p, XD_F32, 1, G));
        xd_copy_to(x, channels_of(cat, D + k * G, G), y);
    }
    xd_upscaler_convolve(x, last, cat, &r->part->conv[CONVS - 1], none);
    xd_axpby(x, xd_reshape(to, 1, &all), residual_scale,
             xd_reshape(rows_of(last, b->above, b->n), 1, &all), 1);
}

/* Computes the layers after the blocks for a band. */
static void run_tail(xd_exec *x, void *ctx, const xd_band *b)
{
    const run      *r = ctx;
    const xd_tensor none = { 0 };
    int64_t         D = r->c->width, f = (int64_t)1 << r->c->ups;
    xd_tensor       h = b->in;
    for (int i = 0; i < r->c->ups; i++) {
        xd_tensor large = xd_enlarge(x, h, 1, 2, 2);
        h = xd_map_as(x, XD_F32, 1, large.d[1], large.d[2], D);
        xd_upscaler_convolve(x, h, large, &r->g->up[i], none);
        xd_upscaler_slope(x, h, r->minus);
    }
    xd_tensor hr = xd_map_as(x, XD_F32, 1, h.d[1], h.d[2], D);
    xd_tensor rgb = xd_map_as(x, XD_F32, 1, h.d[1], h.d[2], 3);
    xd_upscaler_convolve(x, hr, h, &r->g->hr, none);
    xd_upscaler_slope(x, hr, r->minus);
    xd_upscaler_convolve(x, rgb, hr, &r->g->last, none);
    xd_copy_to(x, rows_of(r->out, b->first * f, b->n * f), rows_of(rgb, b->above * f, b->n * f));
}

static void run_blocks(xd_exec *x, run *r)
{
    const config *c = r->c;
    int64_t       row = r->map.d[2] * (3 * c->width + 6 * c->growth) * 4, all = xd_count(r->map);
    xd_tensor     before = xd_map_as(x, XD_F32, 1, r->map.d[1], r->map.d[2], c->width);
    for (int i = 0; i < c->blocks; i++) {
        xd_copy_to(x, before, r->map);
        for (int p = 0; p < PARTS; p++) {
            r->part = &r->g->parts[i][p];
            xd_band_each(
                x, &(xd_band_pass){
                       .map = r->map, .reach = CONVS, .row = row, .run = run_dense, .ctx = r });
        }
        xd_axpby(x, xd_reshape(r->map, 1, &all), 1, xd_reshape(before, 1, &all), residual_scale);
        xd_pause(x);
    }
}

/* Writes the pixels of each cell of an image to its channels. */
static xd_tensor unshuffle(xd_exec *x, xd_tensor in, int64_t f)
{
    xd_tensor cells = xd_map_as(x, XD_F32, 1, in.d[1] / f, in.d[2] / f, 3 * f * f);
    xd_copy_to(x, xd_map_grouped(cells, 3, f * f, 0, f, f), xd_map_spread(in, f, f));
    return cells;
}

static void fill_slope(void *ctx, float *buf)
{
    const config *c = ctx;
    for (int64_t i = 0; i < c->width || i < c->growth; i++)
        buf[i] = -slope;
}

static void enlarge(xd_exec *x, const xd_net *n, xd_tensor in, xd_tensor out)
{
    const config   *c = n->cfg;
    const net      *g = n->glob;
    const xd_tensor none = { 0 };
    size_t          mark = xd_arena_mark(x->tmp), band = x->band;
    int64_t         H = in.d[1] / c->cell, W = in.d[2] / c->cell, f = (int64_t)1 << c->ups;
    run             r = { .c = c, .g = g, .out = out };
    r.minus = xd_new_f32(x, 1, c->width > c->growth ? c->width : c->growth);
    xd_fill(x, r.minus, fill_slope, (void *)(uintptr_t)c);
    r.minus.d[1] = c->width;
    x->band = band ? band : band_bytes;
    xd_tensor feat = xd_map_as(x, XD_F32, 1, H, W, c->width);
    r.map = xd_map_as(x, XD_F32, 1, H, W, c->width);
    in = c->cell > 1 ? unshuffle(x, in, c->cell) : in;
    xd_upscaler_convolve_rows(x, feat, in, &g->first, none);
    xd_copy_to(x, r.map, feat);
    run_blocks(x, &r);
    xd_upscaler_convolve_rows(x, feat, r.map, &g->body, feat);
    r.map = feat;
    xd_band_each(x, &(xd_band_pass){ .map = feat,
                                     .reach = TAIL_REACH,
                                     .row = W * f * f * (4 * c->width + 3) * 4,
                                     .run = run_tail,
                                     .ctx = &r });
    x->band = band;
    xd_arena_rewind(x->tmp, mark);
}

extern const xd_upscaler xd_upscaler_rrdb;

const xd_upscaler xd_upscaler_rrdb = {
    .net = { .name = "rrdb",
             .classes = { "RRDBNet" },
             .fields = fields,
             .cfg_size = sizeof(config),
             .glob_size = sizeof(net),
             .check = check,
             .weights = weights },
    .info = info,
    .read = read_config,
    .run = enlarge,
};
