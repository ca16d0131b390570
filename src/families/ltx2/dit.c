/* dit.c - runs the transformer of LTX-2 (HaCohen et al. 2026, arXiv:2601.03233) like diffusers'
 * LTX2VideoTransformer3DModel.
 *
 * A block has two streams, the tokens of a video and the tokens of its audio, which have their own
 * widths and weights. In each stream, tokens attend to each other and then to the stream's own text
 * embedding. After that, the tokens of each stream attend to those of the other one. Timesteps
 * enter as modulations for all blocks, to which each block adds its own tables. Queries and keys
 * are RMS-normed over all heads together. RoPE turns all features of a token, so its angles differ
 * between the heads. Its positions are fractions of the longest video, the longest audio and the
 * largest image of the training; attention between the streams only reads the time. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/minmax.h"
#include "dit/layers.h"
#include "dit/timed.h"
#include "exec/wide.h"
#include "exec/tables.h"

static const float qk_eps = 1e-6f, head_eps = 1e-6f;

/* Streams of tokens. OTHER is the index of the other stream. */
enum { VIDEO, AUDIO, STREAMS };
static const xd_stream_id tokens_of[STREAMS] = { XD_IMG, XD_AUDIO };
#define OTHER(s) (1 - (s))
enum { AXES = XD_WIDE_AXES };
/* Rows of the table of modulations between the streams: the scale and the shift of a stream's
 * tokens in the attention of the video to the audio, and in that of the audio to the video; the
 * gate. */
enum { VIDEO_SCALE, VIDEO_SHIFT, AUDIO_SCALE, AUDIO_SHIFT, PAIRS, CROSS_ROWS = 5 };

typedef struct stream_cfg { /* config of one stream */
    int64_t head_dim, in_ch, out_ch, patch, patch_t, cross, most;
    int     heads, gated, modulated, ff_bias;
    int64_t dim; /* heads * head_dim */
} stream_cfg;

typedef struct cfg {
    stream_cfg of[STREAMS];
    int64_t    text, height, width, causal, scale, cross_scale, mel, rate, hop;
    xd_ints    cell;
    int   nlayers, affine, bias, out_bias, precise, embeds_text, timed_text, keyframes, perturbed;
    float eps, theta;
    char  qk_norm[XD_FIELD_TEXT], act_fn[XD_FIELD_TEXT], rope[XD_FIELD_TEXT];
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "in_channels", AT(of[VIDEO].in_ch), 'l', 128, NULL },
    { "out_channels", AT(of[VIDEO].out_ch), 'l', 128, NULL },
    { "patch_size", AT(of[VIDEO].patch), 'l', 1, NULL },
    { "patch_size_t", AT(of[VIDEO].patch_t), 'l', 1, NULL },
    { "num_attention_heads", AT(of[VIDEO].heads), 'i', 32, NULL },
    { "attention_head_dim", AT(of[VIDEO].head_dim), 'l', 128, NULL },
    { "cross_attention_dim", AT(of[VIDEO].cross), 'l', 4096, NULL },
    { "vae_scale_factors", AT(cell), 'L', 0, NULL },
    { "pos_embed_max_pos", AT(of[VIDEO].most), 'l', 20, NULL },
    { "base_height", AT(height), 'l', 2048, NULL },
    { "base_width", AT(width), 'l', 2048, NULL },
    { "gated_attn", AT(of[VIDEO].gated), 'b', 0, NULL },
    { "cross_attn_mod", AT(of[VIDEO].modulated), 'b', 0, NULL },
    { "audio_in_channels", AT(of[AUDIO].in_ch), 'l', 128, NULL },
    { "audio_out_channels", AT(of[AUDIO].out_ch), 'l', 128, NULL },
    { "audio_patch_size", AT(of[AUDIO].patch), 'l', 1, NULL },
    { "audio_patch_size_t", AT(of[AUDIO].patch_t), 'l', 1, NULL },
    { "audio_num_attention_heads", AT(of[AUDIO].heads), 'i', 32, NULL },
    { "audio_attention_head_dim", AT(of[AUDIO].head_dim), 'l', 64, NULL },
    { "audio_cross_attention_dim", AT(of[AUDIO].cross), 'l', 2048, NULL },
    { "audio_scale_factor", AT(mel), 'l', 4, NULL },
    { "audio_pos_embed_max_pos", AT(of[AUDIO].most), 'l', 20, NULL },
    { "audio_sampling_rate", AT(rate), 'l', 16000, NULL },
    { "audio_hop_length", AT(hop), 'l', 160, NULL },
    { "audio_gated_attn", AT(of[AUDIO].gated), 'b', 0, NULL },
    { "audio_cross_attn_mod", AT(of[AUDIO].modulated), 'b', 0, NULL },
    { "num_layers", AT(nlayers), 'i', 48, NULL },
    { "activation_fn", AT(act_fn), 's', 0, "gelu-approximate" },
    { "qk_norm", AT(qk_norm), 's', 0, "rms_norm_across_heads" },
    { "norm_elementwise_affine", AT(affine), 'b', 0, NULL },
    { "norm_eps", AT(eps), 'f', 1e-6, NULL },
    { "caption_channels", AT(text), 'l', 3840, NULL },
    { "attention_bias", AT(bias), 'b', 1, NULL },
    { "attention_out_bias", AT(out_bias), 'b', 1, NULL },
    { "rope_theta", AT(theta), 'f', 10000, NULL },
    { "rope_double_precision", AT(precise), 'b', 1, NULL },
    { "causal_offset", AT(causal), 'l', 1, NULL },
    { "timestep_scale_multiplier", AT(scale), 'l', 1000, NULL },
    { "cross_attn_timestep_scale_multiplier", AT(cross_scale), 'l', 1000, NULL },
    { "rope_type", AT(rope), 's', 0, "interleaved" },
    { "use_prompt_embeddings", AT(embeds_text), 'b', 1, NULL },
    { "perturbed_attn", AT(perturbed), 'b', 0, NULL },
    { "ff_bias", AT(of[VIDEO].ff_bias), 'b', 1, NULL },
    { "audio_ff_bias", AT(of[AUDIO].ff_bias), 'b', 1, NULL },
    { "use_prompt_adaln_single", AT(timed_text), 'b', 1, NULL },
    { "use_keyframes_abs_pos_embedding", AT(keyframes), 'b', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct attn {
    xd_lin    q, kv, out; /* q: queries, or queries, keys and values if `kv` is not used */
    xd_lin    gate;       /* gates of the heads, if the stream has gated_attn */
    xd_tensor q_gain, k_gain;
} attn;

typedef struct part { /* weights of a block for one stream */
    attn      self, text, other;
    xd_lin    up, down;
    xd_tensor mod;   /* [6,D], or [9,D] with cross_attn_mod: table added to the modulation */
    xd_tensor read;  /* [2,D] with cross_attn_mod: table added to the modulation of the text */
    xd_tensor cross; /* [5,D]: table added to the modulation between the streams */
} part;

typedef struct blk { part of[STREAMS]; } blk;

typedef struct timed { /* a timestep embedding, and the modulation that is computed from it */
    xd_mlp emb;
    xd_lin mod;
} timed;

typedef struct glob {
    struct {
        xd_lin    in, out;
        xd_mlp    text;
        timed     time, cross, gate, read;
        xd_tensor last; /* [2,D]: modulation of the last norm */
        xd_wide   wide; /* norms of q and k of the stream's own attention */
    } of[STREAMS];
    xd_wide wide; /* norms of q and k of the attention between the streams */
} glob;

typedef struct local_stream {
    xd_timed  timed;
    xd_tensor emb; /* [times,D] F32: timestep embeddings */
    /* [6 times,D] F32: for each timestep, shift, scale and gate, twice; with cross_attn_mod, [9
     * times,D], with those of the attention to the text */
    xd_tensor mod;
    xd_tensor read;  /* [2,D] F32: shift and scale of the text, with cross_attn_mod */
    xd_tensor text;  /* [m,D]: the text, with cross_attn_mod */
    xd_tensor cross; /* [4,D] F32: modulation between the streams */
    xd_tensor gate;  /* [1,D] F32: gate of the attention to the other stream */
    /* RoPE of this rank's tokens and heads, [n heads, head_dim / 2] F32, in the attention of the
     * stream and in that between the streams */
    xd_turn   turn, other;
} local_stream;

typedef struct local {
    local_stream   of[STREAMS];
    int            isolated;
    const uint8_t *perturbs; /* as in xd_input */
} local;

typedef struct kept {
    /* [blocks of this stage, m, 2 x this rank's part of D]: keys and values of a stream's text */
    xd_tensor kv[STREAMS];
} kept;

/* ---- configuration ------------------------------------------------------------------------ */

/* Checks the settings of both streams that have only one supported value. */
static xd_status check_streams(cfg *c, xd_err *e)
{
    static const char *const key[][STREAMS] = {
        { "out_channels", "audio_out_channels" },
        { "patch_size", "audio_patch_size" },
        { "patch_size_t", "audio_patch_size_t" },
    };
    xd_status s = XD_OK;
    for (int i = 0; i < STREAMS && s == XD_OK; i++) {
        stream_cfg   *o = &c->of[i];
        const int64_t v[][2] = { { o->out_ch ? o->out_ch : o->in_ch, o->in_ch },
                                 { o->patch, 1 },
                                 { o->patch_t, 1 } };
        for (size_t k = 0; k < sizeof key / sizeof *key && s == XD_OK; k++)
            s = xd_check_number(key[k][i], v[k][0], v[k][1], e);
        if (s == XD_OK && o->cross != o->dim)
            s = xd_fail(e, XD_EFORMAT,
                        "transformer: %scross_attention_dim %lld is not the width %lld, which the "
                        "projected text has",
                        i ? "audio_" : "", (long long)o->cross, (long long)o->dim);
        if (s == XD_OK && o->head_dim % 2)
            s = xd_fail(e, XD_EFORMAT,
                        "transformer: %sattention_head_dim %lld is odd, and RoPE rotates pairs",
                        i ? "audio_" : "", (long long)o->head_dim);
    }
    return s;
}

/* Checks that the streams fit together: their tokens have the same number of features, and the
 * attention between the streams has as many heads as those of the streams. */
static xd_status check_pair(const cfg *c, xd_err *e)
{
    const stream_cfg *v = &c->of[VIDEO], *a = &c->of[AUDIO];
    if (a->in_ch != v->in_ch)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: audio_in_channels %lld is not in_channels %lld",
                       (long long)a->in_ch, (long long)v->in_ch);
    if (a->heads != v->heads)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: audio_num_attention_heads %d is not num_attention_heads %d",
                       a->heads, v->heads);
    if (a->modulated != v->modulated)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: audio_cross_attn_mod %d is not cross_attn_mod %d",
                       a->modulated, v->modulated);
    if (a->head_dim > v->head_dim)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: audio_attention_head_dim %lld is more than attention_head_dim "
                       "%lld",
                       (long long)a->head_dim, (long long)v->head_dim);
    if (c->cell.n != AXES)
        return xd_fail(e, XD_EFORMAT, "transformer: vae_scale_factors has %d numbers, not 3",
                       c->cell.n);
    if (strcmp(c->rope, "split") && strcmp(c->rope, "interleaved"))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: rope_type '%s' is not 'split' or "
                       "'interleaved'",
                       c->rope);
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg                  *c = c_;
    stream_cfg           *v = &c->of[VIDEO], *a = &c->of[AUDIO];
    const xd_config_range r[] = {
        { "num_attention_heads", v->heads, 1, 4096 },
        { "attention_head_dim", v->head_dim, 8, 512 },
        { "audio_attention_head_dim", a->head_dim, 4, 512 },
        { "in_channels", v->in_ch, 1, 65536 },
        { "caption_channels", c->text, 1, 1 << 24 },
        { "num_layers", c->nlayers, 0, 10000 },
        { "base_height", c->height, 1, 1 << 24 },
        { "base_width", c->width, 1, 1 << 24 },
        { "pos_embed_max_pos", v->most, 1, 1 << 24 },
        { "audio_pos_embed_max_pos", a->most, 1, 1 << 24 },
        { "audio_sampling_rate", c->rate, 1, 1 << 24 },
        { "audio_hop_length", c->hop, 1, 1 << 24 },
        { "audio_scale_factor", c->mel, 1, 1 << 16 },
        { "timestep_scale_multiplier", c->scale, 1, 1 << 24 },
    };
    for (int i = 0; i < STREAMS; i++)
        c->of[i].dim = c->of[i].heads * c->of[i].head_dim;
    if (!c->cell.n)
        c->cell = (xd_ints){ AXES, { 8, 32, 32 } };
    if (xd_check_ranges(r, sizeof r / sizeof *r, e) != XD_OK)
        return XD_EFORMAT;
    xd_status s = check_streams(c, e);
    if (s == XD_OK)
        s = check_pair(c, e);
    if (s == XD_OK)
        s = xd_check_word("qk_norm", c->qk_norm, "rms_norm_across_heads", e);
    if (s == XD_OK)
        s = xd_check_word("activation_fn", c->act_fn, "gelu-approximate", e);
    if (s == XD_OK)
        s = xd_check_number("norm_elementwise_affine", c->affine, 0, e);
    if (s == XD_OK)
        s = xd_check_number("rope_double_precision", c->precise, 1, e);
    if (s == XD_OK)
        s = xd_check_number("use_keyframes_abs_pos_embedding", c->keyframes, 0, e);
    if (s == XD_OK)
        s = xd_check_number("use_prompt_adaln_single", c->timed_text, 1, e);
    if (s == XD_OK && c->embeds_text == v->modulated)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "transformer: use_prompt_embeddings %d is not supported with "
                       "cross_attn_mod %d",
                       c->embeds_text, v->modulated);
    return s;
}

/* Returns the number of features of a stream in a row of text. */
static int64_t text_width(const cfg *c, int stream)
{
    return c->embeds_text ? c->text : c->of[stream].dim;
}

/* Describes the model. The default size is that of LTX2Pipeline, 121 frames of 512 x 768 pixels: 16
 * latent frames of 16 x 24 cells. The features of a row of text are those for the video, then those
 * for the audio. */
static void info(const void *c_, xd_dit_info *out)
{
    const cfg        *c = c_;
    const stream_cfg *v = &c->of[VIDEO];
    *out = (xd_dit_info){
        .nlayers = c->nlayers,
        .heads = v->heads,
        .head_dim = (int)v->head_dim,
        .patch = { 1, 1, 1 },
        .dim = v->dim,
        .lat_ch = v->in_ch,
        .audio = c->of[AUDIO].in_ch,
        .audio_rate = (double)c->rate / (double)c->hop / (double)c->mel,
        .sample = { 16, 16, 24 },
        .text_dim = text_width(c, VIDEO) + text_width(c, AUDIO),
        .holds = 1,
        .perturbs = c->perturbed,
        .sites = 4,
        .local_size = sizeof(local),
        .kept_size = sizeof(kept),
    };
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->nlayers;
}

/* ---- weights ------------------------------------------------------------------------------ */

/* Sizes of an attention: the width of the tokens that attend, of those that are attended to, and of
 * all heads together; the number of gates. */
typedef struct attn_form { int64_t from, to, inner, head_dim, gates; } attn_form;

/* Declares an attention. If the tokens attend to each other, q, k and v are one layer. */
static void attn_weights(xd_decl *d, const cfg *c, const char *name, const attn_form *f, int self,
                         attn *w)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" };
    int64_t                  D = f->inner;
    xd_fused_spec            fused = { .n = 3,
                                       .names = qkv,
                                       .in = f->from,
                                       .out = { D, D, D },
                                       .split = XD_COL,
                                       .unit = f->head_dim,
                                       .bias = c->bias };
    xd_w_enter(d, "%s", name);
    if (self) {
        xd_w_fused(d, &w->q, &fused);
    } else {
        xd_w_linear(
            d, &w->q, "to_q",
            &(xd_linear_spec){
                .in = f->from, .out = D, .split = XD_COL, .unit = f->head_dim, .bias = c->bias });
        fused.n = 2, fused.names = qkv + 1, fused.in = f->to;
        xd_w_fused(d, &w->kv, &fused);
    }
    xd_w_linear(
        d, &w->out, "to_out.0",
        &(xd_linear_spec){
            .in = D, .out = f->from, .split = XD_ROW, .unit = f->head_dim, .bias = c->out_bias });
    if (f->gates)
        xd_w_linear(d, &w->gate, "to_gate_logits",
                    &(xd_linear_spec){
                        .in = f->from, .out = f->gates, .split = XD_COL, .unit = 1, .bias = 1 });
    xd_w_vec(d, &w->q_gain, "norm_q.weight", 1, &D);
    xd_w_vec(d, &w->k_gain, "norm_k.weight", 1, &D);
    xd_w_leave(d);
}

/* Returns the number of vectors that modulate a stream in a block. */
static int64_t mods(const stream_cfg *o)
{
    return o->modulated ? 9 : 6;
}

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const name[STREAMS][7] = {
        { "attn1", "attn2", "audio_to_video_attn", "ff", "scale_shift_table",
          "video_a2v_cross_attn_scale_shift_table", "prompt_scale_shift_table" },
        { "audio_attn1", "audio_attn2", "video_to_audio_attn", "audio_ff",
          "audio_scale_shift_table", "audio_a2v_cross_attn_scale_shift_table",
          "audio_prompt_scale_shift_table" },
    };
    const cfg *c = c_;
    blk       *b = w_;
    (void)layer;
    for (int i = 0; i < STREAMS; i++) {
        const stream_cfg *o = &c->of[i];
        part             *w = &b->of[i];
        int64_t           D = o->dim, hd = o->head_dim, inner = c->of[AUDIO].dim;
        int64_t           gates = o->gated ? o->heads : 0;
        attn_weights(d, c, name[i][0], &(attn_form){ D, D, D, hd, gates }, 1, &w->self);
        attn_weights(d, c, name[i][1], &(attn_form){ D, o->cross, D, hd, gates }, 0, &w->text);
        attn_weights(d, c, name[i][2],
                     &(attn_form){ D, c->of[OTHER(i)].dim, inner, c->of[AUDIO].head_dim, gates }, 0,
                     &w->other);
        xd_w_enter(d, "%s", name[i][3]);
        xd_w_linear(
            d, &w->up, "net.0.proj",
            &(xd_linear_spec){ .in = D, .out = 4 * D, .split = XD_COL, .bias = o->ff_bias });
        xd_w_linear(
            d, &w->down, "net.2",
            &(xd_linear_spec){ .in = 4 * D, .out = D, .split = XD_ROW, .bias = o->ff_bias });
        xd_w_leave(d);
        xd_w_vec(d, &w->mod, name[i][4], 2, (int64_t[]){ mods(o), D });
        if (o->modulated)
            xd_w_vec(d, &w->read, name[i][6], 2, (int64_t[]){ 2, D });
        xd_w_vec(d, &w->cross, name[i][5], 2, (int64_t[]){ CROSS_ROWS, D });
    }
}

/* Declares the embedding of a timestep and a modulation of n vectors. */
static void timed_weights(xd_decl *d, const char *name, timed *w, int64_t D, int64_t n)
{
    xd_w_enter(d, "%s", name);
    xd_mlp_weights(d, "emb.timestep_embedder", &w->emb, XD_SINUSOIDS, D, D);
    xd_w_linear(d, &w->mod, "linear",
                &(xd_linear_spec){ .in = D, .out = n * D, .bias = 1, .few = 1 });
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    static const char *const name[STREAMS][8] = {
        { "proj_in", "caption_projection", "time_embed", "av_cross_attn_video_scale_shift",
          "av_cross_attn_video_a2v_gate", "scale_shift_table", "proj_out", "prompt_adaln" },
        { "audio_proj_in", "audio_caption_projection", "audio_time_embed",
          "av_cross_attn_audio_scale_shift", "av_cross_attn_audio_v2a_gate",
          "audio_scale_shift_table", "audio_proj_out", "audio_prompt_adaln" },
    };
    const cfg *c = c_;
    glob      *g = g_;
    for (int i = 0; i < STREAMS; i++) {
        const stream_cfg *o = &c->of[i];
        int64_t           D = o->dim;
        xd_w_linear(d, &g->of[i].in, name[i][0],
                    &(xd_linear_spec){ .in = o->in_ch, .out = D, .bias = 1 });
        if (c->embeds_text)
            xd_mlp_weights(d, name[i][1], &g->of[i].text, c->text, D, D);
        if (o->modulated)
            timed_weights(d, name[i][7], &g->of[i].read, D, 2);
        timed_weights(d, name[i][2], &g->of[i].time, D, mods(o));
        timed_weights(d, name[i][3], &g->of[i].cross, D, PAIRS);
        timed_weights(d, name[i][4], &g->of[i].gate, D, 1);
        xd_w_vec(d, &g->of[i].last, name[i][5], 2, (int64_t[]){ 2, D });
        xd_w_linear(d, &g->of[i].out, name[i][6],
                    &(xd_linear_spec){ .in = D, .out = o->in_ch, .bias = 1 });
        g->of[i].wide = xd_wide_of(d, o->heads, o->head_dim, qk_eps);
        g->of[i].wide.halves = strcmp(c->rope, "split") == 0;
    }
    g->wide = g->of[AUDIO].wide;
}

/* ---- rotary positions --------------------------------------------------------------------- */

typedef struct angles { /* argument of fill_angles */
    const xd_exec  *x;
    const cfg      *c;
    const xd_wide  *wide;
    const xd_input *in;
    xd_stream_id    tokens;
    int             axes;  /* 3, or 1 for the time alone */
    int64_t         whole; /* length of the time axis in seconds */
    double          (*fn)(double);
} angles;

/* Returns the middle of element i in time, in frames of the video or of the spectrogram. All but
 * the first element have `scale` frames. Computes in f32 like diffusers. */
static float middle_of(int64_t i, int64_t scale, int64_t causal, float rate, float step)
{
    float from = fmaxf((float)(i * scale + causal - scale), 0) * step / rate;
    float to = fmaxf((float)((i + 1) * scale + causal - scale), 0) * step / rate;
    return (from + to) / 2;
}

/* Returns the middle of frames in seconds. */
static float middle_of_frames(xd_span frames, float fps)
{
    return ((float)frames.start / fps + (float)(frames.start + frames.n) / fps) / 2;
}

/* Computes the fractions of a token's position, -1 to 1, in f32 like diffusers'
 * LTX2AudioVideoRotaryPosEmbed. */
static void set_fractions(const void *ctx, int64_t row_of_rank, float f[XD_WIDE_AXES])
{
    const angles  *t = ctx;
    const cfg     *c = t->c;
    const int64_t *grid = t->x->lay->grid;
    float          fps = (float)(t->in->fps > 0 ? t->in->fps : 24);
    float          whole = (float)t->whole;
    int64_t        at = xd_where(t->x, t->tokens, row_of_rank);
    if (t->tokens == XD_AUDIO) {
        f[0] = middle_of(at, c->mel, c->causal, (float)c->rate, (float)c->hop) / whole * 2 - 1;
        return;
    }
    int64_t frame = at / (grid[1] * grid[2]);
    float   row = (float)(at / grid[2] % grid[1]) + 0.5f, col = (float)(at % grid[2]) + 0.5f;
    float   middle = t->in->frame_spans ? middle_of_frames(t->in->frame_spans[frame], fps)
                                        : middle_of(frame, c->cell.v[0], c->causal, fps, 1);
    f[0] = middle / whole * 2 - 1;
    f[1] = row * (float)c->cell.v[1] / (float)c->height * 2 - 1;
    f[2] = col * (float)c->cell.v[2] / (float)c->width * 2 - 1;
}

static void fill_angles(void *ctx, float *buf)
{
    const angles *t = ctx;
    xd_wide_fill(&(xd_wide_angles){ .of = t->wide,
                                    .rows = xd_n(t->x, t->tokens),
                                    .axes = t->axes,
                                    .theta = (double)t->c->theta,
                                    .fn = t->fn,
                                    .fractions = set_fractions,
                                    .ctx = t },
                 buf);
}

/* Returns the RoPE table of this rank's tokens and heads, [n heads, head_dim / 2]. `of` identifies
 * the table among those of the model. */
static xd_tensor table(angles *t, const void *of, double (*fn)(double))
{
    xd_exec     *x = (xd_exec *)t->x;
    xd_table_key key = { .of = of, .fill = fill_angles, .fn = fn };
    xd_tensor    out;
    int64_t      heads = t->wide->features.n / t->wide->head_dim;
    int64_t      rows = xd_n(x, t->tokens) * heads;
    t->fn = fn;
    if (!xd_table_find(x, &key, XD_F32, (int64_t[]){ rows, t->wide->head_dim / 2 }, &out))
        xd_fill(x, out, fill_angles, t);
    return out;
}

static xd_turn turn_of(angles t, const void *of)
{
    return (xd_turn){ table(&t, of, cos), table(&t, of, sin) };
}

/* ---- text --------------------------------------------------------------------------------- */

static void keep_text(xd_exec *x, const xd_net *n, const xd_cond *text, void *kept_)
{
    const cfg *c = n->cfg;
    kept      *k = kept_;
    const blk *w = n->last > n->first ? n->layer[n->first] : NULL;
    for (int i = 0; i < STREAMS && c->embeds_text; i++)
        k->kv[i] = xd_text_kv_new(x, n, text->tok.d[0], w ? w->of[i].text.kv.w.out : 0);
}

/* Computes the keys and values of text rows t in room kv [m, kv.out]. */
static void read_rows(xd_exec *x, const xd_wide *g, const attn *w, xd_tensor t, xd_tensor kv)
{
    xd_tensor keys = xd_seg(kv, &w->kv, 0);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_linear_into(x, kv, t, &w->kv);
    xd_wide_norm(x, g, keys, keys,
                 &(xd_wide_how){ .gain = w->k_gain,
                                 .factor = xd_wide_factor(xd_wide_factors(x, g, &keys, 1), 0) });
    xd_arena_rewind(x->tmp, mark);
}

/* Computes the keys and values of the texts for all blocks of this stage, unless they depend on the
 * timestep. */
static void read_text(xd_exec *x, const xd_net *n, const xd_input *in, const void *kept_)
{
    const kept *k = kept_;
    const glob *g = n->glob;
    size_t      mark = xd_arena_mark(x->tmp);
    int64_t     E = in->cond->tok.d[1] / STREAMS;
    xd_tensor   t[STREAMS];
    if (!((const cfg *)n->cfg)->embeds_text)
        return;
    for (int i = 0; i < STREAMS; i++)
        t[i] = xd_as(x,
                     xd_mlp_run(x, xd_cols(in->cond->tok, i * E, E), &g->of[i].text, XD_GELU_TANH),
                     x->act);
    for (int l = n->first; l < n->last; l++) {
        const blk *b = xd_net_layer(x, n, l);
        for (int i = 0; i < STREAMS; i++)
            read_rows(x, &g->of[i].wide, &b->of[i].text, t[i], xd_text_kv(k->kv[i], l - n->first));
    }
    xd_arena_rewind(x->tmp, mark);
}

/* ---- running ------------------------------------------------------------------------------ */

/* Returns the rows of a stream in the hidden state, a view with the stream's width. */
static xd_tensor rows_of(xd_exec *x, const xd_net *n, const xd_state *s, int stream)
{
    int64_t video = xd_n(x, XD_IMG), audio = xd_n(x, XD_AUDIO);
    return stream == VIDEO
               ? xd_rows(s->h, 0, video)
               : xd_cols(xd_rows(s->h, video, audio), 0, ((const cfg *)n->cfg)->of[AUDIO].dim);
}

/* Returns the modulations [n times, D] of timesteps. Sets *emb, if it is not NULL, to the
 * embeddings of the timesteps. */
static xd_tensor mods_of(xd_exec *x, const timed *w, const double *t, int times, xd_tensor *emb)
{
    xd_tensor e = xd_mlp_timesteps(x, t, times, &w->emb);
    xd_tensor m = xd_linear_f32(x, xd_gated(x, e, (xd_tensor){ 0 }, XD_SILU), &w->mod);
    int64_t   D = e.d[1];
    if (emb)
        *emb = e;
    return xd_reshape(m, 2, (int64_t[]){ times * m.d[1] / D, D });
}

/* Given frames of a video have other timesteps than the rest. Audio and the modulations between the
 * streams have the timestep of the step (use_cross_timestep of diffusers' pipelines). */
static void cond(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob   *g = n->glob;
    const cfg    *c = n->cfg;
    local        *l = s->local;
    double        t[STREAMS][XD_TIMES] = { { 0 }, { in->t } };
    const double  gate = in->t * (double)c->cross_scale / (double)c->scale;
    const int64_t both = xd_max(c->of[VIDEO].most, c->of[AUDIO].most);
    l->isolated = in->isolated;
    l->perturbs = in->perturbs;
    l->of[VIDEO].timed = xd_timed_of(x, in, t[VIDEO]);
    l->of[AUDIO].timed = (xd_timed){ 1, 1, { { { 0, xd_n(x, XD_AUDIO) }, 0 } } };
    for (int i = 0; i < STREAMS; i++) {
        local_stream *o = &l->of[i];
        o->mod = mods_of(x, &g->of[i].time, t[i], o->timed.times, &o->emb);
        o->cross = mods_of(x, &g->of[i].cross, &in->t, 1, NULL);
        o->gate = mods_of(x, &g->of[i].gate, &gate, 1, NULL);
        if (c->of[i].modulated) {
            o->read = mods_of(x, &g->of[i].read, &in->t, 1, NULL);
            o->text = xd_cols(in->cond->tok, i == VIDEO ? 0 : c->of[VIDEO].dim, c->of[i].dim);
        }
        angles a = { x,   c, &g->of[i].wide, in, tokens_of[i], i == VIDEO ? AXES : 1, c->of[i].most,
                     NULL };
        o->turn = turn_of(a, &g->of[i].wide);
        a.wide = &g->wide, a.axes = 1, a.whole = both;
        o->other = turn_of(a, &g->of[i].gate);
    }
}

static void fill_zeros(void *ctx, float *buf)
{
    memset(buf, 0, *(const size_t *)ctx);
}

static void embed(xd_exec *x, const xd_net *n, const xd_input *in, xd_state *s)
{
    const glob *g = n->glob;
    int64_t     video = xd_n(x, XD_IMG), audio = xd_n(x, XD_AUDIO);
    if (!xd_check(x,
                  in->lat.d[0] == video && s->h.d[0] == video + audio &&
                      (!audio || in->audio.d[0] == audio),
                  "%lld video and %lld audio tokens do not match %lld rows of state",
                  (long long)video, (long long)audio, (long long)s->h.d[0]))
        return;
    xd_linear_into(x, rows_of(x, n, s, VIDEO), in->lat, &g->of[VIDEO].in);
    if (!audio)
        return;
    xd_tensor rows = xd_rows(s->h, video, audio);
    size_t    bytes = xd_bytes(rows);
    xd_fill(x, rows, fill_zeros, &bytes);
    xd_linear_into(x, rows_of(x, n, s, AUDIO), in->audio, &g->of[AUDIO].in);
}

/* Returns the logits of the gates of tokens, of which `as` is the norm, or an absent tensor. */
static xd_tensor logits_of(xd_exec *x, const attn *w, const xd_norm *as)
{
    return w->gate.w.out ? xd_linear_f32(x, xd_norm_for(x, as, &w->gate, NULL), &w->gate)
                         : (xd_tensor){ 0 };
}

/* Returns the attention of a stream's tokens to each other or, in a block that is perturbed, the
 * values of the tokens. */
static xd_tensor attend_self(xd_exec *x, const xd_wide *g, const attn *w, int stream,
                             const local *l, xd_tensor y)
{
    const xd_turn turn = l->of[stream].turn;
    int64_t       mine = w->q.seg[0];
    xd_tensor     in[2] = { xd_seg(y, &w->q, 0), xd_seg(y, &w->q, 1) };
    if (l->perturbs && l->perturbs[x->layer])
        return xd_as(x, xd_seg(y, &w->q, 2), x->act);
    xd_tensor q = xd_new(x, y.d[0], mine), k = xd_new(x, y.d[0], mine);
    xd_tensor f = xd_wide_factors(x, g, in, 2);
    xd_wide_norm(x, g, q, in[0],
                 &(xd_wide_how){ .gain = w->q_gain, .factor = xd_wide_factor(f, 0), .turn = turn });
    xd_wide_norm(x, g, k, in[1],
                 &(xd_wide_how){ .gain = w->k_gain, .factor = xd_wide_factor(f, 1), .turn = turn });
    return xd_flat(xd_attn_of(x, XD_STREAM(tokens_of[stream]), xd_heads(q, g->head_dim),
                              xd_heads(k, g->head_dim), xd_heads(xd_seg(y, &w->q, 2), g->head_dim),
                              0));
}

/* Adds the attention of a stream's tokens to each other, h += gate * linear(attention). */
static void add_self(xd_exec *x, const xd_net *n, const part *w, int stream, const local *l,
                     const xd_tensor *m, xd_tensor h)
{
    const xd_wide  *g = &((const glob *)n->glob)->of[stream].wide;
    const xd_timed *t = &l->of[stream].timed;
    xd_norm         as = { .rms = 1, .eps = ((const cfg *)n->cfg)->eps };
    xd_tensor       logits = { 0 };
    if (w->self.gate.w.out)
        logits =
            xd_linear_f32(x, xd_timed_norm(x, t, &as, h, m, 1, 0, &w->self.gate), &w->self.gate);
    xd_tensor y = xd_linear(x, xd_timed_norm(x, t, &as, h, m, 1, 0, &w->self.q), &w->self.q);
    y = attend_self(x, g, &w->self, stream, l, y);
    xd_timed_add(x, t, h, m, 2, xd_wide_gated(x, g, y, logits, &w->self.out), &w->self.out);
}

/* Computes the keys and values of the text that this block's modulation changes. */
static xd_tensor read_timed(xd_exec *x, const xd_wide *g, const part *w, const local_stream *o)
{
    xd_tensor m = xd_mod_table(x, w->read, o->read), t, by = xd_rows(m, 1, 1);
    xd_tensor rows = xd_new_f32(x, o->text.d[0], o->text.d[1]);
    by.d[0] = rows.d[0], by.s[0] = 0;
    xd_copy_to(x, rows, by);
    t = xd_gated(x, rows, xd_as(x, o->text, XD_F32), XD_NONE);
    xd_add(x, t, xd_as(x, o->text, XD_F32));
    by = xd_rows(m, 0, 1);
    by.d[0] = rows.d[0], by.s[0] = 0;
    xd_copy_to(x, rows, by);
    xd_add(x, t, rows);
    xd_tensor kv = xd_new(x, o->text.d[0], w->text.kv.w.out);
    read_rows(x, g, &w->text, xd_as(x, t, x->act), kv);
    return kv;
}

/* Computes the attention to the text, h += linear(attention); with cross_attn_mod, queries and the
 * result are modulated, too. */
static void add_text(xd_exec *x, const xd_net *n, const part *p, int stream, const local *l,
                     const xd_tensor *m, xd_tensor kv, xd_tensor h)
{
    const attn     *w = &p->text;
    const xd_wide  *g = &((const glob *)n->glob)->of[stream].wide;
    const xd_timed *t = &l->of[stream].timed;
    xd_norm         as = { .in = h, .rms = 1, .eps = ((const cfg *)n->cfg)->eps };
    xd_tensor       logits = { 0 }, q;
    if (!p->read.nd) {
        logits = logits_of(x, w, &as);
        q = xd_linear(x, xd_norm_for(x, &as, &w->q, NULL), &w->q);
    } else {
        kv = read_timed(x, g, p, &l->of[stream]);
        if (w->gate.w.out)
            logits = xd_linear_f32(x, xd_timed_norm(x, t, &as, h, m, 7, 6, &w->gate), &w->gate);
        q = xd_linear(x, xd_timed_norm(x, t, &as, h, m, 7, 6, &w->q), &w->q);
    }
    xd_wide_norm(x, g, q, q,
                 &(xd_wide_how){ .gain = w->q_gain,
                                 .factor = xd_wide_factor(xd_wide_factors(x, g, &q, 1), 0) });
    xd_tensor y = xd_wide_gated(x, g, xd_attn_text(x, q, kv, &w->kv, g->head_dim), logits, &w->out);
    if (p->read.nd)
        xd_timed_add(x, t, h, m, 8, y, &w->out);
    else
        xd_linear_add(x, h, (xd_tensor){ 0 }, y, &w->out);
}

/* Adds the attention of each stream's tokens to those of the other stream. All norms read the
 * states before either of them changes. */
static void add_other(xd_exec *x, const xd_net *n, const blk *b, const local *l, xd_state *s)
{
    const xd_wide *g = &((const glob *)n->glob)->wide;
    xd_tensor      h[STREAMS], m[STREAMS], gate[STREAMS], q[STREAMS], kv[STREAMS];
    xd_tensor      logits[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        xd_tensor t = xd_reshape(b->of[i].cross, 2, (int64_t[]){ CROSS_ROWS, b->of[i].cross.d[1] });
        h[i] = rows_of(x, n, s, i);
        m[i] = xd_mod_table(x, xd_rows(t, 0, PAIRS), l->of[i].cross);
        gate[i] = xd_mod_table(x, xd_rows(t, PAIRS, 1), l->of[i].gate);
    }
    for (int i = 0; i < STREAMS; i++) { /* i: the stream that attends */
        const attn *w = &b->of[i].other;
        int         scale = i == VIDEO ? VIDEO_SCALE : AUDIO_SCALE, o = OTHER(i);
        xd_norm     as = { .in = h[i],
                           .scale = xd_rows(m[i], scale, 1),
                           .shift = xd_rows(m[i], scale + 1, 1),
                           .rms = 1,
                           .eps = ((const cfg *)n->cfg)->eps };
        logits[i] = logits_of(x, w, &as);
        q[i] = xd_linear(x, xd_norm_for(x, &as, &w->q, NULL), &w->q);
        as.in = h[o], as.scale = xd_rows(m[o], scale, 1), as.shift = xd_rows(m[o], scale + 1, 1);
        kv[i] = xd_linear(x, xd_norm_for(x, &as, &w->kv, NULL), &w->kv);
    }
    for (int i = 0; i < STREAMS; i++) {
        const attn *w = &b->of[i].other;
        xd_tensor   from = xd_seg(kv[i], &w->kv, 0), v = xd_seg(kv[i], &w->kv, 1);
        xd_tensor   k = xd_new(x, from.d[0], from.d[1]);
        xd_wide_norm(x, g, q[i], q[i],
                     &(xd_wide_how){ .gain = w->q_gain,
                                     .factor = xd_wide_factor(xd_wide_factors(x, g, &q[i], 1), 0),
                                     .turn = l->of[i].other });
        xd_wide_norm(x, g, k, from,
                     &(xd_wide_how){ .gain = w->k_gain,
                                     .factor = xd_wide_factor(xd_wide_factors(x, g, &from, 1), 0),
                                     .turn = l->of[OTHER(i)].other });
        xd_tensor y = xd_attn_between(x, tokens_of[i], tokens_of[OTHER(i)],
                                      xd_heads(q[i], g->head_dim), xd_heads(k, g->head_dim),
                                      xd_heads(v, g->head_dim));
        xd_linear_add(x, h[i], gate[i], xd_wide_gated(x, g, xd_flat(y), logits[i], &w->out),
                      &w->out);
    }
}

static void forward(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const blk   *b = w_;
    const local *l = s->local;
    const kept  *k = s->kept;
    const cfg   *c = n->cfg;
    xd_norm      as = { .rms = 1, .eps = ((const cfg *)n->cfg)->eps };
    xd_tensor    m[STREAMS][XD_TIMES];
    for (int i = 0; i < STREAMS; i++)
        for (int t = 0; t < l->of[i].timed.times; t++)
            m[i][t] = xd_mod_table(x, b->of[i].mod,
                                   xd_rows(l->of[i].mod, mods(&c->of[i]) * t, mods(&c->of[i])));
    size_t mark = xd_arena_mark(x->tmp);
    for (int i = 0; i < STREAMS; i++) {
        add_self(x, n, &b->of[i], i, l, m[i], rows_of(x, n, s, i));
        xd_arena_rewind(x->tmp, mark);
    }
    for (int i = 0; i < STREAMS; i++) {
        xd_tensor kv = c->embeds_text ? xd_text_kv(k->kv[i], x->layer - n->first)
                                      : (xd_tensor){ 0 };
        add_text(x, n, &b->of[i], i, l, m[i], kv, rows_of(x, n, s, i));
        xd_arena_rewind(x->tmp, mark);
    }
    if (!l->isolated)
        add_other(x, n, b, l, s);
    for (int i = 0; i < STREAMS; i++) {
        const part         *w = &b->of[i];
        const local_stream *o = &l->of[i];
        size_t              inner = xd_arena_mark(x->tmp);
        xd_tensor           h = rows_of(x, n, s, i);
        xd_tensor           y = xd_timed_norm(x, &o->timed, &as, h, m[i], 4, 3, &w->up);
        xd_timed_add(x, &o->timed, h, m[i], 5, xd_linear_act(x, y, &w->up, XD_GELU_TANH), &w->down);
        xd_arena_rewind(x->tmp, inner);
    }
}

static xd_tensor head(xd_exec *x, const xd_net *n, xd_state *s)
{
    const glob  *g = n->glob;
    const local *l = s->local;
    xd_norm      as = { .eps = head_eps };
    xd_tensor    out = xd_new_f32(x, s->h.d[0], g->of[VIDEO].out.w.out);
    size_t       mark = xd_arena_mark(x->tmp);
    int64_t      at = 0;
    for (int i = 0; i < STREAMS; i++) {
        const local_stream *o = &l->of[i];
        xd_tensor           h = rows_of(x, n, s, i), m[XD_TIMES];
        for (int t = 0; t < o->timed.times; t++)
            m[t] = xd_mod_table(x, g->of[i].last, xd_rows(o->emb, t, 1));
        xd_tensor y = xd_timed_norm(x, &o->timed, &as, h, m, 1, 0, &g->of[i].out);
        xd_linear_into(x, xd_rows(out, at, h.d[0]), y, &g->of[i].out);
        at += h.d[0];
        xd_arena_rewind(x->tmp, mark);
    }
    return out;
}

static const xd_block kind = { "transformer_blocks.%d", sizeof(blk), blk_weights, forward };

static const xd_block *block(const void *c, int layer)
{
    (void)c, (void)layer;
    return &kind;
}

extern const xd_dit xd_dit_ltx2;

const xd_dit xd_dit_ltx2 = {
    .net = { .name = "ltx2",
             .classes = { "LTX2VideoTransformer3DModel" },
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
    .cond = cond,
    .embed = embed,
    .head = head,
};
