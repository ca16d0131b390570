/* taehv_run.c - decodes latents to videos and encodes videos with TAEHV (taehv.h).
 *
 * A block reads the current frame and the frame before, which a level computed when it last ran; a
 * video begins with frames of zeros. Frames are therefore computed one after the other: each level
 * passes a frame to the next level as soon as the frame is complete, so that the memory does not
 * depend on the number of frames. The decoder makes several frames of one frame by a linear layer,
 * and the encoder one frame of several. Every convolution exchanges its halo rows with other
 * ranks. */
#include "base/minmax.h"
#include "exec/op.h"
#include "vae/bands.h"
#include "vae/maps.h"
#include "vae/scale_rows.h"
#include "vae/taehv.h"

typedef struct run {
    xd_exec             *x;
    const xd_taehv_cfg  *c;
    const xd_taehv_half *w;
    int                  dec;
    /* For each block of each level, the frame before the current frame, [1,H,W,C]. */
    xd_tensor            past[XD_TAEHV_LEVELS][XD_TAEHV_BLOCKS];
    /* Encoder: for each level, the frames of which the next frame is made, [1,H,W,pool C], and
     * their number. */
    xd_tensor            pool[XD_TAEHV_LEVELS];
    int64_t              npool[XD_TAEHV_LEVELS];
    xd_tensor            out;        /* decoder: pixels; encoder: the means of the moments */
    int64_t              at, n, raw; /* frames written; frames of `out`; frames computed */
} run;

static const xd_tensor none;

/* ---- maps ---------------------------------------------------------------------------------- */

static xd_tensor map_like(run *r, xd_tensor h, int64_t C)
{
    return xd_map(r->x, 1, h.d[1], h.d[2], C);
}

/* Copies n channels of `from`, beginning with channel a, to channels b .. b+n-1 of `to`. */
static void copy_channels(run *r, xd_tensor to, int64_t b, xd_tensor from, int64_t a, int64_t n)
{
    xd_copy_to(r->x, xd_cols(xd_map_rows(to), b, n), xd_cols(xd_map_rows(from), a, n));
}

static void set_zeros(xd_exec *x, xd_tensor map)
{
    const float zero = 0;
    size_t      mark = xd_arena_mark(x->tmp);
    xd_tensor   one = xd_new_as(x, XD_F32, 2, (int64_t[]){ 1, 1 }), to = xd_map_rows(map);
    xd_put(x, one, &zero);
    one.d[0] = to.d[0], one.d[1] = to.d[1], one.s[0] = one.s[1] = 0;
    xd_copy_to(x, to, one);
    xd_arena_rewind(x->tmp, mark);
}

/* Allocates the frames that the blocks keep, for maps of H x W positions at the first level. */
static void open_past(run *r, int64_t H, int64_t W)
{
    for (int l = 0; l < xd_taehv_levels(r->c); l++) {
        int64_t C = r->dec ? r->c->width.v[l] : r->c->encoder_width;
        if (!r->dec) {
            r->pool[l] = xd_map(r->x, 1, H, W, r->c->pool.v[l] * C);
            H /= 2, W /= 2;
        }
        for (int i = 0; i < r->c->blocks; i++)
            r->past[l][i] = xd_map(r->x, 1, H, W, C);
        if (r->dec)
            H *= 2, W *= 2;
    }
}

/* Begins a video: the frames before the first frame are zeros. */
static void begin_video(run *r)
{
    for (int l = 0; l < xd_taehv_levels(r->c); l++) {
        r->npool[l] = 0;
        for (int i = 0; i < r->c->blocks; i++)
            set_zeros(r->x, r->past[l][i]);
    }
    r->raw = 0;
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* Computes out = conv(in) + plus. */
static void conv(run *r, xd_tensor out, xd_tensor in, const xd_cnv *w, xd_tensor plus)
{
    const int stride = w->w.stride[1] > 1 ? w->w.stride[1] : 1, side = w->w.kernel[1] / 2;
    xd_band_conv(r->x, &(xd_banded){ .feed = { .in = in },
                                     .w = w,
                                     .out = out,
                                     .plus = plus,
                                     .stride = stride,
                                     .lo = { 0, side, side },
                                     .hi = { 0, stride == 1 ? side : 0, stride == 1 ? side : 0 } });
}

static void relu(run *r, xd_tensor map)
{
    xd_activate(r->x, xd_map_rows(map), XD_RELU);
}

/* Runs block i of level l: h = relu(f(h, past) + h), where f is three convolutions with ReLU
 * between them. A block of a "super" decoder has no last ReLU; its f is a convolution of each
 * channel and two linear layers with ReLU between them. */
static void run_block(run *r, int l, int i, xd_tensor h)
{
    const xd_taehv_block *w = &r->w->level[l].block[i];
    int64_t               C = h.d[3];
    size_t                mark = xd_arena_mark(r->x->tmp);
    xd_tensor             both = map_like(r, h, 2 * C), a;
    copy_channels(r, both, 0, h, 0, C);
    copy_channels(r, both, C, r->past[l][i], 0, C);
    xd_copy_to(r->x, r->past[l][i], h);
    if (r->dec && r->c->super) {
        xd_tensor filtered = map_like(r, h, 2 * C);
        conv(r, filtered, both, &w->conv[0], none);
        xd_tensor wide = xd_linear_act(r->x, xd_map_rows(filtered), &w->up, XD_RELU);
        xd_linear_add(r->x, xd_map_rows(h), none, wide, &w->down);
    } else {
        a = map_like(r, h, C);
        conv(r, a, both, &w->conv[0], none);
        relu(r, a);
        xd_tensor b = map_like(r, h, C);
        conv(r, b, a, &w->conv[1], none);
        relu(r, b);
        conv(r, h, b, &w->conv[2], h);
        relu(r, h);
    }
    xd_arena_rewind(r->x->tmp, mark);
}

static void run_blocks(run *r, int l, xd_tensor h)
{
    for (int i = 0; i < r->c->blocks; i++)
        run_block(r, l, i, h);
}

/* ---- the decoder --------------------------------------------------------------------------- */

/* Returns the frames that a video of T latent frames has. */
static int64_t frames_of(const xd_taehv_cfg *c, int64_t T)
{
    int64_t     up = xd_taehv_frames(c, 1), all = T * up;
    xd_vae_info v;
    xd_taehv_info(c, &v);
    if (!c->chunk.n)
        return xd_vae_frames(&v, T);
    int64_t period = c->chunk.v[0] * up, drop = period - c->chunk.v[1], rest = all % period;
    return all / period * c->chunk.v[1] + xd_max(rest - drop, 0);
}

/* Returns 1 if the frame that is computed next is part of the result. The first frames of a video,
 * or of each chunk, are computed only for the frames after them. */
static int is_kept(const run *r, int64_t T)
{
    int64_t up = xd_taehv_frames(r->c, 1);
    if (r->c->images)
        return r->raw % up == up - 1;
    if (!r->c->chunk.n)
        return r->raw >= T * up - r->n;
    return r->raw % (r->c->chunk.v[0] * up) >= r->c->chunk.v[0] * up - r->c->chunk.v[1];
}

/* Writes 2 in - 1 to a frame of pixels, whose elements need not be contiguous. */
static void put_pixels(xd_exec *x, xd_tensor to, xd_tensor in)
{
    const float gain[3] = { 2, 2, 2 }, bias[3] = { -1, -1, -1 };
    xd_copy_to(x, to, xd_reshape(xd_scale_rows(x, xd_map_rows(in), gain, bias), 4, in.d));
}

/* Computes the pixels of a frame from the last map h. */
static void write_frame(run *r, xd_tensor h, int64_t T)
{
    int64_t p = r->c->patch;
    int     kept = is_kept(r, T);
    r->raw++;
    if (!kept || !xd_check(r->x, r->at < r->n, "vae: a video has more frames than its result"))
        return;
    size_t    mark = xd_arena_mark(r->x->tmp);
    xd_tensor to = xd_rows(r->out, r->at++, 1);
    xd_tensor patches = xd_map_as(r->x, XD_F32, 1, h.d[1], h.d[2], 3 * p * p), rgb = patches;
    if (!r->c->super)
        relu(r, h);
    conv(r, patches, h, &r->w->out, none);
    if (p > 1) {
        rgb = xd_map_as(r->x, XD_F32, 1, to.d[1], to.d[2], 3);
        xd_map_unpack(r->x, rgb, patches, p, 1, 0);
    }
    put_pixels(r->x, to, rgb);
    xd_arena_rewind(r->x->tmp, mark);
}

/* Doubles the rows and columns of h, and then makes frames of the result, one below the other in
 * channels: [1,2H,2W,frames C]. */
static xd_tensor shuffle_and_grow(run *r, int l, xd_tensor h)
{
    const xd_taehv_level *w = &r->w->level[l];
    xd_tensor             fine = xd_map(r->x, 1, 2 * h.d[1], 2 * h.d[2], w->time.w.in);
    xd_tensor             grown = map_like(r, fine, w->time.w.out);
    size_t                mark = xd_arena_mark(r->x->tmp);
    xd_tensor             four = map_like(r, h, w->side.w.out);
    conv(r, four, h, &w->side, none);
    relu(r, four);
    xd_map_unpack(r->x, fine, four, 2, 1, 0);
    xd_arena_rewind(r->x->tmp, mark);
    xd_linear_into(r->x, xd_map_rows(grown), xd_map_rows(fine), &w->time);
    return grown;
}

/* Computes the map `fine` of the next level from frame i in the channels of `grown` [1,H,W,frames
 * C]. */
static void enlarge_frame(run *r, int l, xd_tensor fine, xd_tensor grown, int64_t i)
{
    const xd_cnv *w = &r->w->level[l].side;
    size_t        mark = xd_arena_mark(r->x->tmp);
    xd_tensor     one = map_like(r, grown, w->w.in);
    copy_channels(r, one, 0, grown, i * w->w.in, w->w.in);
    conv(r, fine, xd_enlarge(r->x, one, 1, 2, 2), w, none);
    xd_arena_rewind(r->x->tmp, mark);
}

/* Runs a frame through level l and the levels after it; overwrites the map h. The layer that makes
 * frames of a frame is a 1 x 1 convolution, which may run before the rows and columns are
 * repeated. */
static void decode_frame(run *r, int l, xd_tensor h, int64_t T)
{
    const int n = xd_taehv_levels(r->c);
    if (l == n) {
        write_frame(r, h, T);
        return;
    }
    const xd_lin *time = &r->w->level[l].time;
    int64_t       k = r->c->grow.v[l], C = r->c->width.v[l + 1];
    size_t        mark = xd_arena_mark(r->x->tmp);
    xd_tensor     grown;
    run_blocks(r, l, h);
    if (r->c->super) {
        grown = shuffle_and_grow(r, l, h);
    } else {
        grown = map_like(r, h, time->w.out);
        xd_linear_into(r->x, xd_map_rows(grown), xd_map_rows(h), time);
    }
    xd_tensor next = xd_map(r->x, 1, 2 * h.d[1], 2 * h.d[2], C);
    for (int64_t i = 0; i < k; i++) {
        if (r->c->super)
            copy_channels(r, next, 0, grown, i * C, C);
        else
            enlarge_frame(r, l, next, grown, i);
        decode_frame(r, l + 1, next, T);
    }
    xd_arena_rewind(r->x->tmp, mark);
}

/* Computes the map of the first level: the decoder reads 3 tanh(z / 3), but a "super" decoder
 * z. */
static void read_latents(run *r, xd_tensor h, xd_tensor from)
{
    xd_exec  *x = r->x;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor z = xd_map_as(x, XD_F32, 1, from.d[1], from.d[2], from.d[3]);
    xd_copy_to(x, z, from);
    if (!r->c->super)
        xd_map_clamp(x, z, 3);
    conv(r, h, z, &r->w->in, none);
    if (!r->c->super)
        relu(r, h);
    xd_arena_rewind(x->tmp, mark);
}

void xd_taehv_decode(xd_exec *x, const xd_net *n, xd_tensor lat, xd_tensor rgb)
{
    const xd_taehv_cfg *c = n->cfg;
    int64_t             T = lat.d[0], f = c->patch << xd_taehv_levels(c);
    size_t              mark = xd_arena_mark(x->tmp);
    run r = { .x = x, .c = c, .w = &((const xd_taehv_glob *)n->glob)->side[1], .dec = 1 };
    r.out = rgb, r.n = rgb.d[0];
    if (!xd_map_video_fits(x, rgb, lat, f, c->latent_channels, T) ||
        !xd_map_frames_fit(x, r.n, frames_of(c, T)))
        return;
    open_past(&r, lat.d[1], lat.d[2]);
    xd_tensor h = xd_map(x, 1, lat.d[1], lat.d[2], c->width.v[0]);
    for (int64_t t = 0; t < T; t++) {
        if (t)
            xd_pause(x);
        if (!t || c->images)
            begin_video(&r);
        read_latents(&r, h, xd_rows(lat, t, 1));
        decode_frame(&r, 0, h, T);
    }
    xd_arena_rewind(x->tmp, mark);
}

/* ---- the encoder --------------------------------------------------------------------------- */

/* Writes the latents of a frame, which the last map h has. */
static void write_latents(run *r, xd_tensor h)
{
    xd_exec  *x = r->x;
    int64_t   C = r->c->latent_channels;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor to = xd_rows(r->out, r->at++, 1), mean = to;
    xd_tensor z = xd_map_as(x, XD_F32, 1, to.d[1], to.d[2], C);
    conv(r, z, h, &r->w->out, none);
    mean.d[3] = C;
    xd_copy_to(x, mean, z);
    xd_map_no_variance(x, to, C);
    xd_arena_rewind(x->tmp, mark);
}

/* Passes a frame to level l, which runs when it has the frames of which it makes a frame. */
static void encode_frame(run *r, int l, xd_tensor h)
{
    xd_exec *x = r->x;
    int64_t  C = r->c->encoder_width;
    if (l == xd_taehv_levels(r->c)) {
        write_latents(r, h);
        return;
    }
    copy_channels(r, r->pool[l], r->npool[l]++ * C, h, 0, C);
    if (r->npool[l] < r->c->pool.v[l])
        return;
    r->npool[l] = 0;
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor next = xd_map(x, 1, h.d[1] / 2, h.d[2] / 2, C), one = map_like(r, h, C);
    xd_linear_into(x, xd_map_rows(one), xd_map_rows(r->pool[l]), &r->w->level[l].time);
    conv(r, next, one, &r->w->level[l].side, none);
    run_blocks(r, l, next);
    encode_frame(r, l + 1, next);
    xd_arena_rewind(x->tmp, mark);
}

/* Computes the map h of the first level from a frame of pixels. */
static void read_pixels(run *r, xd_tensor h, xd_tensor rgb)
{
    const float half[3] = { 0.5f, 0.5f, 0.5f };
    xd_exec    *x = r->x;
    int64_t     p = r->c->patch, K = 3 * p * p, d[5] = { h.d[1], h.d[2], 3, p, p };
    size_t      mark = xd_arena_mark(x->tmp);
    xd_tensor   patches = xd_map_as(x, XD_F32, 1, h.d[1], h.d[2], K);
    xd_tensor   all = xd_map_as(x, XD_F32, 1, rgb.d[1], rgb.d[2], 3);
    xd_copy_to(x, all, rgb);
    all = xd_scale_rows(x, xd_map_rows(all), half, half);
    xd_tensor v = xd_reshape(all, 5, (int64_t[]){ d[0], p, d[1], p, 3 });
    xd_copy_to(x, xd_reshape(patches, 5, d), xd_permute(v, (int[]){ 0, 2, 4, 1, 3 }));
    conv(r, h, patches, &r->w->in, none);
    relu(r, h);
    xd_arena_rewind(x->tmp, mark);
}

/* Encodes frames. A video's last frame is repeated until the frames are those of complete latent
 * frames, and so is each of several independent images. */
void xd_taehv_encode(xd_exec *x, const xd_net *n, xd_tensor rgb, xd_tensor moments)
{
    const xd_taehv_cfg *c = n->cfg;
    int64_t             f = c->patch << xd_taehv_levels(c), down = xd_taehv_frames(c, 0);
    int64_t             T = c->images ? rgb.d[0] : xd_ceil_div(rgb.d[0], down), p = c->patch;
    size_t              mark = xd_arena_mark(x->tmp);
    run r = { .x = x, .c = c, .w = &((const xd_taehv_glob *)n->glob)->side[0], .out = moments };
    if (!xd_check(x, c->encodes && !c->chunk.n,
                  c->encodes ? "vae: the encoder of TAEHV is not supported for videos of chunks: "
                               "use the model's own VAE"
                             : "vae: the file of a TAEHV has no encoder, so no images can be "
                               "encoded: use the model's own VAE") ||
        !xd_map_video_fits(x, rgb, moments, f, 2 * c->latent_channels, T))
        return;
    open_past(&r, rgb.d[1] / p, rgb.d[2] / p);
    xd_tensor h = xd_map(x, 1, rgb.d[1] / p, rgb.d[2] / p, c->encoder_width);
    for (int64_t t = 0; t < T * down; t++) {
        int64_t from = c->images ? t / down : xd_min(t, rgb.d[0] - 1);
        if (t && t % down == 0)
            xd_pause(x);
        if (!t || (c->images && t % down == 0))
            begin_video(&r);
        read_pixels(&r, h, xd_rows(rgb, from, 1));
        encode_frame(&r, 0, h);
    }
    xd_arena_rewind(x->tmp, mark);
}
