/* dit.c - runs the transformer of MiniMax-H3 like diffusers' MiniMaxH3Transformer3DModel.
 *
 * The tokens of text, video and audio are one sequence with full attention and the same weights.
 * Tokens of different kinds differ in their input and output layers and in their modulation: the
 * modulation layer of a block, whose only input is the embedding of a timestep, has outputs for
 * each kind. Video and audio have their own timesteps, and text has that of the video. Rows of text
 * pass through blocks without modulation first, which only depend on the text.
 *
 * Times are 1 for clean latents and 0 for noise, and the network predicts the direction from noise
 * to clean latents. The sampler counts timesteps down from 1000 and expects the other direction. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/minmax.h"
#include "dit/layers.h"
#include "dit/timed.h"
#include "exec/tables.h"

enum { MAX_REFINERS = 8, AXES = 3, SIDES = 2 };
/* Kinds of tokens, in the order of the outputs of modulation layers. ROWS: number of modulations of
 * a kind: shift, scale and gate of the attention, then of the feed-forward. */
enum { VIDEO, TEXT, AUDIO, KINDS, ROWS = 6 };
/* Timesteps of a forward pass. */
enum { TIME_VIDEO, TIME_AUDIO, TIMES };

/* Time of rope that a frame of pixels takes, and the largest side of a square image. Groups of
 * GROUP latent frames begin with a latent of one frame; the others have EACH frames. */
enum { GROUP = 5, EACH = 4 };
static const double frame_time = 5.0 / 3.0, square_side = 32;

typedef struct cfg {
    int64_t head_dim, dim, ff, in_ch, audio, text, sinusoids, hidden, emb, freqs;
    int     heads, nlayers, nrefiners, patch[AXES];
    xd_ints patches;
    float   eps, qk_eps, last_eps;
    double  theta;
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "num_attention_heads", AT(heads), 'i', 56, NULL },
    { "attention_head_dim", AT(head_dim), 'l', 128, NULL },
    { "hidden_size", AT(dim), 'l', 5376, NULL },
    { "num_layers", AT(nlayers), 'i', 50, NULL },
    { "num_refiner_layers", AT(nrefiners), 'i', 2, NULL },
    { "ffn_dim", AT(ff), 'l', 14336, NULL },
    { "in_channels", AT(in_ch), 'l', 24, NULL },
    { "audio_in_channels", AT(audio), 'l', 32, NULL },
    { "patch_size", AT(patches), 'L', 0, NULL },
    { "text_dim", AT(text), 'l', 5120, NULL },
    { "freq_dim", AT(sinusoids), 'l', 256, NULL },
    { "time_embed_hidden_dim", AT(hidden), 'l', 5376, NULL },
    { "time_embed_dim", AT(emb), 'l', 2688, NULL },
    { "rope_freq_dim", AT(freqs), 'l', 16, NULL },
    { "rope_theta", AT(theta), 'd', 10000, NULL },
    { "norm_eps", AT(eps), 'f', 1e-5, NULL },
    { "qk_norm_eps", AT(qk_eps), 'f', 1e-5, NULL },
    { "final_norm_eps", AT(last_eps), 'f', 1e-5, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct core { /* weights of a block without its modulation */
    xd_lin    qkv, out, up, down;
    xd_tensor norm1, norm2, norm_q, norm_k;
} core;

typedef struct blk {
    core   core;
    xd_lin mod; /* [KINDS ROWS D,E] */
} blk;

typedef struct glob {
    xd_lin    video, audio, text, mod, video_out, audio_out;
    xd_mlp    time;
    xd_tensor text_norm, norm; /* gains of the norms behind the refiner and before the outputs */
    core      refiner[MAX_REFINERS];
} glob;

typedef struct local {
    xd_tensor active;   /* [TIMES,E] F32: silu of the embeddings of the timesteps */
    xd_tensor zero;     /* [1,1] F32: 0 */
    xd_tensor cos, sin; /* [n,AXES freqs] F32: RoPE of this rank's tokens */
    xd_timed  kinds;    /* the kinds of this rank's tokens */
} local;

typedef struct kept {
    xd_tensor text; /* [rows,D] F32: refined rows of the text, on the first pipeline stage */
} kept;

/* ---- configuration ------------------------------------------------------------------------ */

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    const xd_config_range r[] = {
        { "num_attention_heads", c->heads, 1, 4096 },
        { "attention_head_dim", c->head_dim, 2, 512 },
        { "hidden_size", c->dim, 1, 1 << 20 },
        { "num_layers", c->nlayers, 0, 10000 },
        { "num_refiner_layers", c->nrefiners, 0, MAX_REFINERS },
        { "ffn_dim", c->ff, 1, 1 << 26 },
        { "in_channels", c->in_ch, 1, 65536 },
        { "text_dim", c->text, 1, 1 << 24 },
        { "freq_dim", c->sinusoids, 2, 1 << 16 },
        { "time_embed_hidden_dim", c->hidden, 1, 1 << 24 },
        { "time_embed_dim", c->emb, 1, 1 << 24 },
        { "rope_freq_dim", c->freqs, 1, 256 },
    };
    if (xd_check_ranges(r, sizeof r / sizeof *r, e) != XD_OK)
        return XD_EFORMAT;
    if (!c->patches.n)
        c->patches = (xd_ints){ AXES, { 1, 2, 2 } };
    if (c->patches.n != AXES)
        return xd_fail(e, XD_EFORMAT, "transformer: patch_size has %d numbers, not 3",
                       c->patches.n);
    int64_t features = c->in_ch;
    for (int i = 0; i < AXES; i++) {
        if (c->patches.v[i] < 1 || c->patches.v[i] > 64)
            return xd_fail(e, XD_EFORMAT, "transformer: patch_size has %lld, not 1 to 64",
                           (long long)c->patches.v[i]);
        c->patch[i] = (int)c->patches.v[i];
        features *= c->patch[i];
    }
    if (c->audio < 1 || c->audio > features)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: audio_in_channels %lld is not 1 to %lld, the number of "
                       "features of a video token",
                       (long long)c->audio, (long long)features);
    if (2 * AXES * c->freqs > c->head_dim)
        return xd_fail(e, XD_EFORMAT,
                       "transformer: rope_freq_dim %lld rotates %lld features, but "
                       "attention_head_dim is %lld",
                       (long long)c->freqs, (long long)(2 * AXES * c->freqs),
                       (long long)c->head_dim);
    if (c->sinusoids % 2 || !(c->theta > 1 && c->theta < 1e12))
        return xd_fail(e, XD_EFORMAT, "transformer: freq_dim %lld and rope_theta %g cannot be used",
                       (long long)c->sinusoids, c->theta);
    return xd_check_number("patch_size[0]", c->patch[0], 1, e);
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->nlayers;
}

/* Describes the model. The default size is that of diffusers' pipeline: 124 frames of 768 x 1344
 * pixels, which are 37 latent frames of 48 x 84 cells. */
static void info(const void *c_, xd_dit_info *out)
{
    const cfg *c = c_;
    *out = (xd_dit_info){
        .nlayers = c->nlayers,
        .heads = c->heads,
        .head_dim = (int)c->head_dim,
        .patch = { c->patch[0], c->patch[1], c->patch[2] },
        .dim = c->dim,
        .lat_ch = c->in_ch,
        .audio = c->audio,
        .audio_rate = 40,
        .audio_sides = SIDES,
        .sample = { 37, 48, 84 },
        .text_dim = c->text,
        .txt_flows = 1,
        .sites = 1,
        .local_size = sizeof(local),
        .kept_size = sizeof(kept),
    };
}

/* ---- weights ------------------------------------------------------------------------------ */

static int64_t active_width(const void *c)
{
    return ((const cfg *)c)->emb;
}

static int64_t mod_width(const void *c, int layer)
{
    (void)layer;
    return KINDS * ROWS * ((const cfg *)c)->dim;
}

static void core_weights(xd_decl *d, const cfg *c, core *w)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" };
    const int64_t            D = c->dim, inner = c->heads * c->head_dim;
    xd_w_vec(d, &w->norm1, "norm1.weight", 1, &D);
    xd_w_vec(d, &w->norm2, "norm2.weight", 1, &D);
    xd_w_enter(d, "attn");
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = D,
                                 .out = { inner, inner, inner },
                                 .split = XD_COL,
                                 .unit = c->head_dim });
    xd_w_vec(d, &w->norm_q, "norm_q.weight", 1, &c->head_dim);
    xd_w_vec(d, &w->norm_k, "norm_k.weight", 1, &c->head_dim);
    xd_w_linear(d, &w->out, "to_out.0",
                &(xd_linear_spec){ .in = inner, .out = D, .split = XD_ROW, .unit = c->head_dim });
    xd_w_leave(d);
    xd_w_enter(d, "ff");
    xd_w_linear(d, &w->up, "net.0.proj",
                &(xd_linear_spec){
                    .in = D, .nouts = 2, .outs = (int64_t[]){ c->ff, c->ff }, .split = XD_COL });
    xd_w_linear(d, &w->down, "net.2", &(xd_linear_spec){ .in = c->ff, .out = D, .split = XD_ROW });
    xd_w_leave(d);
}

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    const cfg *c = c_;
    blk       *w = w_;
    (void)layer;
    core_weights(d, c, &w->core);
    xd_w_linear(
        d, &w->mod, "adaln_proj.linear",
        &(xd_linear_spec){ .in = c->emb, .out = KINDS * ROWS * c->dim, .bias = 1, .few = 1 });
}

static void w_linear(xd_decl *d, xd_lin *w, const char *name, int64_t in, int64_t out)
{
    xd_w_linear(d, w, name, &(xd_linear_spec){ .in = in, .out = out, .bias = 1 });
}

/* Declares the weights outside the blocks. The embedding of a time from 0 to 1 and the layers that
 * read and write latents are computed in f32, as in diffusers. */
static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg     *c = c_;
    glob          *g = g_;
    const int64_t  D = c->dim, F = c->in_ch * c->patch[0] * c->patch[1] * c->patch[2];
    const xd_dtype type = d->type;
    d->type = XD_F32;
    w_linear(d, &g->video, "proj_in", F, D);
    w_linear(d, &g->audio, "audio_proj_in", c->audio, D);
    xd_mlp_weights(d, "time_embedder", &g->time, c->sinusoids, c->hidden, c->emb);
    w_linear(d, &g->video_out, "proj_out", D, F);
    w_linear(d, &g->audio_out, "audio_proj_out", D, c->audio);
    d->type = type;
    w_linear(d, &g->text, "context_embedder", c->text, D);
    w_linear(d, &g->mod, "norm_out.linear", c->emb, 2 * D);
    xd_w_vec(d, &g->norm, "norm_out.norm.weight", 1, &D);
    xd_w_enter(d, "token_refiner");
    for (int i = 0; i < c->nrefiners; i++) {
        xd_w_enter(d, "refiner_blocks.%d", i);
        core_weights(d, c, &g->refiner[i]);
        xd_w_leave(d);
    }
    xd_w_vec(d, &g->text_norm, "final_norm.weight", 1, &D);
    xd_w_leave(d);
}

/* ---- text --------------------------------------------------------------------------------- */

static void keep_text(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept_)
{
    kept *k = kept_;
    if (n->first == 0)
        k->text = xd_new_f32(x, text->tok.d[0], ((const cfg *)n->cfg)->dim);
}

/* Runs a block without modulation on all rows of the text. */
static void refine(xd_exec *x, const cfg *c, const core *w, xd_tensor h)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_norm   a = { .in = h, .gain = w->norm1, .rms = 1, .eps = c->eps };
    xd_tensor y = xd_linear(x, xd_norm_for(x, &a, &w->qkv, NULL), &w->qkv);
    xd_qkv    q = xd_qkv_open(x, y, &w->qkv, c->head_dim);
    xd_qkv_fill(
        x, &q, y, &w->qkv,
        &(xd_qkv_rows){ .n = h.d[0], .norm_q = w->norm_q, .norm_k = w->norm_k, .eps = c->qk_eps });
    xd_tensor o = xd_attn_over(x, q.q, q.k, q.v, (xd_tensor){ 0 }, 0);
    xd_linear_add(x, h, (xd_tensor){ 0 }, xd_flat(o), &w->out);
    xd_arena_rewind(x->tmp, mark);
    a.gain = w->norm2;
    y = xd_linear(x, xd_norm_for(x, &a, &w->up, NULL), &w->up);
    o = xd_gated_for(x, xd_seg(y, &w->up, 1), xd_seg(y, &w->up, 0), XD_SILU, &w->down);
    xd_linear_add(x, h, (xd_tensor){ 0 }, o, &w->down);
    xd_arena_rewind(x->tmp, mark);
}

/* Embeds all rows of the text. A rank computes the rows of all ranks, because the blocks are few
 * and run once per request. */
static void read_text(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept_)
{
    const glob *g = n->glob;
    const cfg  *c = n->cfg;
    const kept *k = kept_;
    size_t      mark = xd_arena_mark(x->tmp);
    if (n->first != 0)
        return;
    xd_tensor h = xd_new_f32(x, k->text.d[0], c->dim);
    xd_linear_into(x, h, in->cond->tok, &g->text);
    for (int i = 0; i < c->nrefiners && h.d[0]; i++)
        refine(x, c, &g->refiner[i], h);
    xd_norm_into(
        x,
        &(xd_norm){ .out = k->text, .in = h, .gain = g->text_norm, .rms = 1, .eps = c->last_eps });
    xd_arena_rewind(x->tmp, mark);
}

/* ---- positions ---------------------------------------------------------------------------- */

/* Returns the position of cell `at` of n cells on a side of the image, whose cells have `patch`
 * latent cells, in an image of `area` latent cells. The centre of all images is at half of
 * square_side. */
static double side_position(int64_t at, int64_t n, int patch, double area)
{
    double ratio = (double)(n * patch) / sqrt(area), left = (1 - ratio) / 2;
    return (left + (double)at * ((left + ratio - left) / (double)n)) * square_side;
}

/* Returns the time of a latent frame after the first one. */
static double time_of(int64_t frame)
{
    double t = 0;
    for (int64_t i = 0; i < frame; i++)
        t += frame_time * (i % GROUP ? EACH : 1);
    return t;
}

/* Sets the positions of this rank's token `row` of a stream. The time of video and audio begins
 * where the text ends. The tokens of audio have the columns of the image's left and right edge. */
static void set_position(const xd_exec *x, const cfg *c, xd_stream_id stream, int64_t row,
                         double pos[AXES])
{
    const int64_t *grid = x->lay->grid, H = grid[1], W = grid[2];
    int64_t        at = xd_where(x, stream, row), n = x->lay->len[stream];
    double         text = (double)x->lay->len[XD_TXT];
    double         area = (double)(H * c->patch[1] * W * c->patch[2]);
    pos[0] = (double)at, pos[1] = pos[2] = 0;
    if (stream == XD_AUDIO) {
        pos[0] = text + (double)(at % (n / SIDES));
        pos[2] = side_position(at < n / SIDES ? 0 : W - 1, W, c->patch[2], area);
    } else if (stream == XD_IMG) {
        pos[0] = text + time_of(at / (H * W));
        pos[1] = side_position(at / W % H, H, c->patch[1], area);
        pos[2] = side_position(at % W, W, c->patch[2], area);
    }
}

/* Fills the RoPE angles of this rank's tokens of text, video and audio. As in diffusers, angles are
 * computed in f32 from positions in f64. */
static void fill_angles(void *ctx, float *buf)
{
    static const xd_stream_id order[] = { XD_TXT, XD_IMG, XD_AUDIO };
    const xd_rope            *t = ctx;
    const cfg                *c = t->cfg;
    float                     freq[256];
    double                    pos[AXES];
    for (int64_t k = 0; k < c->freqs; k++)
        freq[k] = 1 / (float)pow(c->theta, (double)((float)(2 * k) / (float)(2 * c->freqs)));
    for (size_t s = 0; s < sizeof order / sizeof *order; s++)
        for (int64_t i = 0; i < xd_n(t->x, order[s]); i++) {
            set_position(t->x, c, order[s], i, pos);
            for (int a = 0; a < AXES; a++)
                for (int64_t k = 0; k < c->freqs; k++)
                    *buf++ = (float)t->fn((double)((float)pos[a] * freq[k]));
        }
}

/* ---- running ------------------------------------------------------------------------------ */

static void add_kind(xd_timed *t, int64_t rows, int kind)
{
    xd_time_run *last = t->n ? &t->run[t->n - 1] : NULL;
    int64_t      start = last ? last->rows.start + last->rows.n : 0;
    if (last && !last->rows.n)
        *last = (xd_time_run){ { start, rows }, kind };
    else if (rows || !last)
        t->run[t->n++] = (xd_time_run){ { start, rows }, kind };
}

/* Returns the time that the network reads, in the f32 arithmetic of diffusers. */
static double time_from(double t)
{
    return (double)(1 - (float)(t / 1000));
}

/* Returns silu of the embeddings of the two timesteps. */
static xd_tensor active(xd_exec *x, const xd_net *n, const xd_input *in, const void *text)
{
    const glob  *g = n->glob;
    const double t[TIMES] = { time_from(in->t), time_from(in->audio_t) };
    xd_tensor    e = xd_time_embed(x, t, TIMES, ((const cfg *)n->cfg)->sinusoids, 1, 0);
    (void)text;
    return xd_gated(x, xd_mlp_run(x, e, &g->time, XD_SILU), (xd_tensor){ 0 }, XD_SILU);
}

static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    static const float nothing = 0;
    const cfg         *c = n->cfg;
    local             *l = s->local;
    const int64_t      rows = xd_n(x, XD_TXT) + xd_n(x, XD_IMG) + xd_n(x, XD_AUDIO);
    l->active = xd_mods_input(x, n, in, s->kept, active);
    l->zero = xd_new_f32(x, 1, 1);
    xd_put(x, l->zero, &nothing);
    l->cos = xd_rope_table_of(x, in->cond, rows, AXES * c->freqs, fill_angles, c, cos);
    l->sin = xd_rope_table_of(x, in->cond, rows, AXES * c->freqs, fill_angles, c, sin);
    add_kind(&l->kinds, xd_n(x, XD_TXT), TEXT);
    add_kind(&l->kinds, xd_n(x, XD_IMG), VIDEO);
    add_kind(&l->kinds, xd_n(x, XD_AUDIO), AUDIO);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    const kept *k = s->kept;
    int64_t     text = xd_n(x, XD_TXT), video = xd_n(x, XD_IMG), audio = xd_n(x, XD_AUDIO);
    if (!xd_check(x,
                  in->lat.d[0] == video && s->h.d[0] == text + video + audio &&
                      (!audio || in->audio.d[0] == audio),
                  "%lld text, %lld video and %lld audio tokens do not match %lld rows of state",
                  (long long)text, (long long)video, (long long)audio, (long long)s->h.d[0]))
        return;
    xd_copy_own_rows(x, XD_TXT, xd_rows(s->h, 0, text), k->text);
    xd_linear_into(x, xd_rows(s->h, text, video), in->lat, &g->video);
    if (audio)
        xd_linear_into(x, xd_rows(s->h, text + video, audio),
                       xd_cols(in->audio, 0, ((const cfg *)n->cfg)->audio), &g->audio);
}

/* Sets the modulations [ROWS,D] of each kind of tokens. */
static void set_mods(xd_exec *x, const blk *b, const local *l, xd_tensor m[KINDS])
{
    xd_tensor all[TIMES];
    xd_mod_sets(x, l->active, &b->mod, KINDS * ROWS, all);
    for (int i = 0; i < KINDS; i++)
        m[i] = xd_rows(all[i == AUDIO ? TIME_AUDIO : TIME_VIDEO], i * ROWS, ROWS);
}

static void forward(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const cfg   *c = n->cfg;
    const blk   *b = w_;
    const core  *w = &b->core;
    const local *l = s->local;
    xd_tensor    m[KINDS];
    xd_norm      as = { .gain = w->norm1, .rms = 1, .eps = c->eps };
    set_mods(x, b, l, m);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor y = xd_linear(x, xd_timed_norm(x, &l->kinds, &as, s->h, m, 1, 0, &w->qkv), &w->qkv);
    xd_qkv    q = xd_qkv_open(x, y, &w->qkv, c->head_dim);
    xd_qkv_fill(x, &q, y, &w->qkv,
                &(xd_qkv_rows){ .n = s->h.d[0],
                                .norm_q = w->norm_q,
                                .norm_k = w->norm_k,
                                .cos = l->cos,
                                .sin = l->sin,
                                .turned = 2 * AXES * c->freqs,
                                .eps = c->qk_eps });
    xd_timed_add(x, &l->kinds, s->h, m, 2, xd_flat(xd_attn(x, q.q, q.k, q.v, 0)), &w->out);
    xd_arena_rewind(x->tmp, mark);
    as.gain = w->norm2;
    y = xd_linear(x, xd_timed_norm(x, &l->kinds, &as, s->h, m, 4, 3, &w->up), &w->up);
    y = xd_gated_for(x, xd_seg(y, &w->up, 1), xd_seg(y, &w->up, 0), XD_SILU, &w->down);
    xd_timed_add(x, &l->kinds, s->h, m, 5, y, &w->down);
    xd_arena_rewind(x->tmp, mark);
}

/* Computes the predictions of rows h with the timestep `time`, and writes their negatives to
 * `to`. */
static void predict(xd_exec *x, const xd_net *n, xd_tensor h, xd_tensor mod, const xd_lin *w,
                    xd_tensor to)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_norm   a = { .in = h,
                    .gain = ((const glob *)n->glob)->norm,
                    .scale = xd_rows(mod, 1, 1),
                    .shift = xd_rows(mod, 0, 1),
                    .rms = 1,
                    .eps = ((const cfg *)n->cfg)->last_eps };
    xd_tensor y = xd_linear_f32(x, xd_norm_for(x, &a, w, NULL), w);
    xd_axpby(x, y, 0, (xd_tensor){ 0 }, -1);
    xd_copy_to(x, to, y);
    xd_arena_rewind(x->tmp, mark);
}

/* Computes the network's output. A row of audio has fewer features than a row of video; the other
 * features are zeros. */
static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const cfg   *c = n->cfg;
    const local *l = s->local;
    int64_t      text = xd_n(x, XD_TXT), video = xd_n(x, XD_IMG), audio = xd_n(x, XD_AUDIO);
    int64_t      F = g->video_out.w.out;
    xd_tensor    out = xd_new_f32(x, video + audio, F);
    xd_tensor    mod[TIMES], zero = l->zero;
    xd_mod_sets(x, l->active, &g->mod, 2, mod);
    predict(x, n, xd_rows(s->h, text, video), mod[TIME_VIDEO], &g->video_out,
            xd_rows(out, 0, video));
    if (!audio)
        return out;
    xd_tensor rows = xd_rows(out, video, audio);
    predict(x, n, xd_rows(s->h, text + video, audio), mod[TIME_AUDIO], &g->audio_out,
            xd_cols(rows, 0, c->audio));
    zero.d[0] = audio, zero.d[1] = F - c->audio, zero.s[0] = zero.s[1] = 0;
    if (zero.d[1])
        xd_copy_to(x, xd_cols(rows, c->audio, zero.d[1]), zero);
    return out;
}

static const xd_block kind = { "transformer_blocks.%d", sizeof(blk), blk_weights, forward };

static const xd_block *block(const void *c, int layer)
{
    (void)c, (void)layer;
    return &kind;
}

extern const xd_dit xd_dit_minimaxh3;

const xd_dit xd_dit_minimaxh3 = {
    .net = { .name = "minimaxh3",
             .classes = { "MiniMaxH3Transformer3DModel" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .nlayers = nlayers,
             .block = block,
             .weights = weights },
    .info = info,
    .keep = keep_text,
    .read = read_text,
    .active = active,
    .active_rows = TIMES,
    .active_width = active_width,
    .mod_width = mod_width,
    .cond = cond,
    .embed = embed,
    .head = head,
};
