/* enlarger.c - enlarges images of 8 bits with an upscaler file (enlarger.h) */
#include "pipeline/enlarger.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "parallel/method.h"
#include "pipeline/arenas.h"
#include "ranks/world.h"

/* Rows by which the counted image is higher than a rank's rows: buffers for rows of other ranks
 * need less memory than these rows. */
enum { SPARE_ROWS = 24 };

/* ---- the file -------------------------------------------------------------------------------- */

/* Refuses files that pickle or ONNX programs have written. */
static xd_status check_type(const char *file, xd_err *e)
{
    const char *dot = strrchr(file, '.');
    if (dot && strcasecmp(dot, ".onnx") == 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s is an ONNX graph, which cannot be read: use the .safetensors or .pth "
                       "file of the same upscaler (a .pth file must be converted)",
                       file);
    if (dot && (strcasecmp(dot, ".pth") == 0 || strcasecmp(dot, ".pt") == 0 ||
                strcasecmp(dot, ".ckpt") == 0 || strcasecmp(dot, ".bin") == 0))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s is a pickle of PyTorch, which may run code when it is read; convert it "
                       "by: python3 -c \"import torch, safetensors.torch as s; w = "
                       "torch.load('%s', 'cpu', weights_only=True); w = w.get('params_ema', "
                       "w.get('params', w)); s.save_file({k: v.contiguous() for k, v in "
                       "w.items()}, '%.*s.safetensors')\"",
                       file, file, (int)(dot - file), file);
    return XD_OK;
}

static int src_has(void *self, const char *name, xd_tensor *shape)
{
    xd_enlarger *u = self;
    char         full[512];
    snprintf(full, sizeof full, "%s%s", u->prefix, name);
    int64_t i = xd_st_find(u->st, full);
    if (i >= 0)
        *shape = xd_st_shape(u->st, i);
    return i >= 0;
}

static xd_status src_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    xd_enlarger *u = self;
    char         full[512];
    snprintf(full, sizeof full, "%s%s", u->prefix, name);
    int64_t i = xd_st_find(u->st, full);
    if (i < 0)
        return xd_fail(e, XD_EFORMAT, "%s: tensor %s is missing", xd_st_path(u->st), full);
    return xd_st_get(u->st, i, t, e);
}

/* Sets u->prefix and writes the config of the network that has the file's tensors. */
static int find_network(xd_enlarger *u, const xd_source *src, xd_text_buf *config)
{
    static const char *const prefixes[] = { "", "params_ema.", "params.", "module.",
                                            "state_dict." };
    for (size_t k = 0; k < sizeof prefixes / sizeof *prefixes; k++) {
        snprintf(u->prefix, sizeof u->prefix, "%s", prefixes[k]);
        for (int i = 0; xd_upscalers[i]; i++)
            if (xd_upscalers[i]->read(src, config))
                return 1;
    }
    return 0;
}

xd_status xd_enlarger_open(xd_enlarger *u, const char *file, xd_err *e)
{
    xd_text_buf config = { 0 };
    *u = (xd_enlarger){ 0 };
    xd_status s = check_type(file, e);
    if (s == XD_OK)
        s = xd_st_open(&u->st, file, "", e);
    if (s != XD_OK)
        return s;
    xd_source src = { .has = src_has, .get = src_get, .self = u };
    if (!find_network(u, &src, &config))
        s = xd_fail(e, XD_EUNSUPPORTED,
                    "%s is no upscaler that is supported: its tensors must be those of an RRDBNet "
                    "(ESRGAN, Real-ESRGAN) or of a SRVGGNetCompact with PReLU",
                    file);
    else if (!config.p)
        s = xd_fail(e, XD_ENOMEM, "no memory for the config of %s", file);
    if (s == XD_OK)
        s = xd_component_open_text(&u->part, "upscaler", XD_KIND_UPSCALER, config.p, e);
    xd_buf_free(&config);
    if (s == XD_OK)
        s = xd_component_set_file(&u->part, file, "upscaler", e);
    if (s == XD_OK)
        s = xd_component_source(&u->part, &src, e);
    if (s == XD_OK)
        u->part.upscaler->info(u->part.w->net.cfg, &u->info);
    return s;
}

xd_status xd_enlarger_load(xd_enlarger *u, xd_dev *dev, xd_dev *count, xd_dtype type, xd_err *e)
{
    u->dev = dev, u->count = count, u->type = type;
    xd_status s = xd_component_count(&u->part, count, type, e);
    return s == XD_OK ? xd_component_load(&u->part, dev, type, 0, e) : s;
}

void xd_enlarger_close(xd_enlarger *u)
{
    if (u->dev)
        xd_device_arena_close(&u->arena, u->dev);
    xd_component_close(&u->part);
    xd_st_close(&u->st);
    *u = (xd_enlarger){ 0 };
}

/* ---- one tile -------------------------------------------------------------------------------- */

typedef struct region { int64_t y, x, h, w; } region;

typedef struct work { /* the enlargement of one image */
    xd_enlarger        *u;
    const xd_enlarging *a;
    xd_exec             x;
    xd_layout           lay;
    xd_method_stack     stack;
    region              part, core;  /* pixels that are computed, and those that are kept */
    int64_t             tiles, done; /* number of tiles, and of complete tiles */
    int                 steps;       /* number of pauses in this tile */
    uint8_t            *in;          /* [h,w,3] pixels of `part`, on all ranks */
    float              *rgb;         /* [h scale,w scale,3] result of `part`, on rank 0 */
} work;

static int ranks_of(const work *k)
{
    return k->a->c ? k->a->c->size : 1;
}

static int rank_of(const work *k)
{
    return k->a->c ? k->a->c->rank : 0;
}

static xd_span own_rows(const work *k, int rank)
{
    int64_t cell = k->u->info.cell;
    xd_span s = xd_own(&k->lay, XD_IMG, 0, rank);
    return (xd_span){ s.start * cell, s.n * cell };
}

/* Returns the index inside 0 .. n - 1 of which i is the mirror image. */
static int64_t mirror(int64_t i, int64_t n)
{
    return i < n ? i : xd_max(0, 2 * (n - 1) - i);
}

/* Copies the pixels of the part from the image, which is padded to complete cells by mirrored
 * pixels below and on the right. */
static void copy_part(work *k)
{
    const region *p = &k->part;
    for (int64_t y = 0; y < p->h; y++)
        for (int64_t x = 0; x < p->w; x++)
            memcpy(k->in + 3 * (y * p->w + x),
                   k->a->rgb +
                       3 * (mirror(p->y + y, k->a->h) * k->a->w + mirror(p->x + x, k->a->w)),
                   3);
}

/* Sends the pixels of the part to all ranks. */
static void share_part(work *k)
{
    int64_t n = k->part.h * k->part.w * 3;
    if (rank_of(k) == 0)
        copy_part(k);
    if (ranks_of(k) == 1)
        return;
    xd_req r = k->a->c->ops->bcast(k->a->c, xd_view(k->in, XD_U8, 1, &n), 0);
    if (k->a->c->ops->wait(k->a->c, &r, 1) != XD_OK)
        xd_exec_fail(&k->x, XD_ECOMM, "the pixels of an image were not received");
}

static void fill_rows(void *ctx, float *buf)
{
    const work *k = ctx;
    xd_span     own = own_rows(k, rank_of(k));
    int64_t     row = k->part.w * 3;
    for (int64_t i = 0; i < own.n * row; i++)
        buf[i] = (float)k->in[own.start * row + i] / 255;
}

/* Collects the rows of all ranks on rank 0. */
static void collect_rows(work *k, xd_tensor mine)
{
    xd_comm *c = k->a->c;
    int64_t  f = k->u->info.scale, row = k->part.w * f * 3;
    xd_span  own = own_rows(k, rank_of(k));
    mine = xd_view2(mine.p, XD_F32, own.n * f, row);
    if (rank_of(k) == 0)
        xd_get(&k->x, k->rgb, mine);
    if (!xd_ok(&k->x) && c)
        mine.p = xd_failed_buffer(&k->x, mine.p, xd_bytes(mine), c);
    for (int r = 1; r < ranks_of(k); r++) {
        xd_span   s = own_rows(k, r);
        xd_tensor t = xd_view2(k->rgb ? k->rgb + s.start * f * row : NULL, XD_F32, s.n * f, row);
        xd_req    q = { 0 };
        if (s.n && rank_of(k) == r)
            q = c->ops->send(c, mine, 0);
        else if (s.n && rank_of(k) == 0)
            q = c->ops->recv(c, t, r);
        if (c->ops->wait(c, &q, 1) != XD_OK)
            xd_exec_fail(&k->x, XD_ECOMM, "the rows of rank %d were not received", r);
    }
}

static uint8_t to_byte(float v)
{
    return (uint8_t)(v > 0 ? v < 1 ? lrintf(v * 255) : 255 : 0);
}

/* Copies the pixels that are kept to the result. */
static void keep_core(const work *k)
{
    const int64_t f = k->u->info.scale, wide = k->part.w * f * 3, out = k->a->w * f * 3;
    const region *p = &k->part, *c = &k->core;
    for (int64_t y = 0; y < c->h * f; y++) {
        const float *from = k->rgb + (y + (c->y - p->y) * f) * wide + (c->x - p->x) * f * 3;
        uint8_t     *to = k->a->out + (y + c->y * f) * out + c->x * f * 3;
        for (int64_t i = 0; i < c->w * f * 3; i++)
            to[i] = to_byte(from[i]);
    }
}

/* Runs the network on `rows` rows of the part. While counting, neither pixels nor messages are
 * used. */
static xd_tensor run_network(work *k, xd_exec *x, const xd_net *net, int64_t rows)
{
    int64_t   f = k->u->info.scale;
    xd_tensor in = xd_new_as(x, XD_F32, 4, (int64_t[]){ 1, rows, k->part.w, 3 });
    xd_tensor out = xd_new_as(x, XD_F32, 4, (int64_t[]){ 1, rows * f, k->part.w * f, 3 });
    xd_fill(x, in, fill_rows, k);
    k->u->part.upscaler->run(x, net, in, out);
    return out;
}

/* Counts the scratch memory of the part, and opens an arena of this size. */
static xd_status open_arena(work *k, xd_err *e)
{
    xd_enlarger *u = k->u;
    xd_exec      x;
    xd_arena     a;
    int64_t      rows = own_rows(k, rank_of(k)).n;
    rows += ranks_of(k) > 1 ? SPARE_ROWS * u->info.cell : 0;
    xd_status s = xd_device_arena_open(&a, u->count, 0, e);
    if (s != XD_OK)
        return s;
    xd_exec_init(&x, u->count, &a, u->type);
    run_network(k, &x, &u->part.count->shadow, rows);
    size_t bytes = xd_arena_peak(&a);
    xd_device_arena_close(&a, u->count);
    s = xd_exec_status(&x, e);
    if (s != XD_OK || (u->arena.base && u->arena.cap >= bytes))
        return s;
    xd_device_arena_close(&u->arena, u->dev);
    s = xd_device_arena_open(&u->arena, u->dev, bytes, e);
    if (s == XD_ENOMEM)
        xd_fail(e, s, "no memory for %s of activations: use a smaller tile_size, or more ranks",
                xd_size_text((double)bytes).s);
    return s;
}

static void report_pause(void *pauser, xd_exec *x)
{
    work  *k = pauser;
    double part = k->u->info.parts ? (double)++k->steps / (k->u->info.parts + 1) : 0;
    (void)x;
    if (k->a->on_part)
        k->a->on_part(k->a->cookie, ((double)k->done + part) / (double)k->tiles);
}

/* Opens the layout and the hooks of a part. */
static xd_status open_part(work *k, xd_err *e)
{
    xd_enlarger *u = k->u;
    int64_t      h = k->part.h / u->info.cell, w = k->part.w / u->info.cell, f = u->info.scale;
    int          ranks = ranks_of(k);
    k->lay = (xd_layout){ .len = { h }, .grid = { 1, h, w }, .npatch = 1, .nsp = ranks };
    k->in = malloc((size_t)(k->part.h * k->part.w * 3));
    k->rgb = rank_of(k) ? NULL
                        : malloc((size_t)(k->part.h * k->part.w * f * f) * 3 * sizeof *k->rgb);
    if (!k->in || (!k->rgb && !rank_of(k)))
        return xd_fail(e, XD_ENOMEM, "no memory for an image of %lld x %lld pixels",
                       (long long)(k->part.w * f), (long long)(k->part.h * f));
    xd_status s = open_arena(k, e);
    if (s != XD_OK || ranks == 1)
        return s;
    return xd_method_stack_open(&k->stack,
                                &(xd_method_args){ .what = XD_FOR_VAE,
                                                   .topo = k->a->topo,
                                                   .lay = &k->lay,
                                                   .dev = u->dev,
                                                   .act = u->type,
                                                   .rows = k->a->c },
                                e);
}

static xd_status agree(const work *k, xd_status s, xd_err *e)
{
    return ranks_of(k) > 1 ? xd_world_agree_in(k->a->c, rank_of(k), s, e) : s;
}

static xd_status run_part(work *k, xd_err *e)
{
    xd_enlarger *u = k->u;
    k->steps = 0;
    xd_status s = agree(k, open_part(k, e), e);
    if (s == XD_OK) {
        xd_arena_rewind(&u->arena, 0);
        xd_exec_init(&k->x, u->dev, &u->arena, u->type);
        k->x.cancel = u->cancel;
        k->x.pause = report_pause, k->x.pauser = k;
        if (ranks_of(k) > 1)
            k->x.lay = &k->lay, k->x.sp = rank_of(k), k->x.hooks = k->stack.head;
        share_part(k);
        xd_tensor out = run_network(k, &k->x, &u->part.w->net, own_rows(k, rank_of(k)).n);
        collect_rows(k, out);
        s = agree(k, xd_exec_status(&k->x, e), e);
    }
    if (s == XD_OK && rank_of(k) == 0)
        keep_core(k);
    xd_method_stack_close(&k->stack);
    k->stack = (xd_method_stack){ 0 };
    free(k->in), free(k->rgb);
    k->in = NULL, k->rgb = NULL;
    return s;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Sets one axis of a tile: the pixels [at, at + n) are kept, and those that are computed reach
 * further, up to the end of the padded image. */
static void set_axis(const xd_upscaler_info *i, int64_t at, int64_t n, int64_t size, int64_t *from,
                     int64_t *length)
{
    int64_t reach = i->reach * i->cell, all = xd_round_up(size, i->cell);
    int64_t end = xd_min(all, xd_round_up(at + n, i->cell) + reach);
    *from = xd_max(0, at - reach);
    *length = end - *from;
}

xd_status xd_enlarger_run(xd_enlarger *u, const xd_enlarging *a, xd_err *e)
{
    work      k = { .u = u, .a = a };
    int64_t   side = a->tile ? xd_round_up(a->tile, u->info.cell) : xd_max(a->w, a->h);
    xd_status s = XD_OK;
    k.tiles = xd_ceil_div(a->h, side) * xd_ceil_div(a->w, side);
    for (int64_t y = 0; y < a->h && s == XD_OK; y += side)
        for (int64_t x = 0; x < a->w && s == XD_OK; x += side, k.done++) {
            k.core = (region){ y, x, xd_min(side, a->h - y), xd_min(side, a->w - x) };
            set_axis(&u->info, y, k.core.h, a->h, &k.part.y, &k.part.h);
            set_axis(&u->info, x, k.core.w, a->w, &k.part.x, &k.part.w);
            s = run_part(&k, e);
        }
    return s;
}
