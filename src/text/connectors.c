/* connectors.c - runs the connectors between a decoder language model and a transformer with two
 * streams (HaCohen et al. 2026, arXiv:2601.03233) like diffusers' LTX2TextConnectors.
 *
 * The connectors read all hidden states of each token of the prompt. The states are normalized, and
 * projected to one row for each token. Learned registers fill the places of padding behind these
 * rows. Two stacks of blocks without a mask then compute the text of the video and of the audio;
 * the features of the audio follow those of the video in the output's rows. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "exec/wide.h"
#include "text/encoder_layers.h"
#include "text/text.h"

static const float eps = 1e-6f;
/* Range of the normalized states of a layer (scale_factor of diffusers). */
static const float range = 8;

enum { VIDEO, AUDIO, PARTS, ROWS = 64 }; /* ROWS: number of tokens that are projected together */

typedef struct part_cfg {
    int64_t head_dim, out;
    int     heads, nlayers, registers, gated;
    int64_t dim;
} part_cfg;

typedef struct cfg {
    part_cfg of[PARTS];
    int64_t  text, states, base;
    int      apart, bias, precise;
    double   theta;
    char     rope[XD_FIELD_TEXT];
} cfg;

#define AT(m) offsetof(cfg, m)
#define PART(name, i)                                                           \
    { name "_connector_num_attention_heads", AT(of[i].heads), 'i', 30, NULL },  \
    { name "_connector_attention_head_dim", AT(of[i].head_dim), 'l', 128, NULL }, \
    { name "_connector_num_layers", AT(of[i].nlayers), 'i', 2, NULL },          \
    { name "_connector_num_learnable_registers", AT(of[i].registers), 'i', 128, NULL }, \
    { name "_gated_attn", AT(of[i].gated), 'b', 0, NULL }
static const xd_field fields[] = {
    PART("video", VIDEO),
    PART("audio", AUDIO),
    { "video_hidden_dim", AT(of[VIDEO].out), 'l', 4096, NULL },
    { "audio_hidden_dim", AT(of[AUDIO].out), 'l', 2048, NULL },
    { "caption_channels", AT(text), 'l', 3840, NULL },
    { "text_proj_in_factor", AT(states), 'l', 49, NULL },
    { "connector_rope_base_seq_len", AT(base), 'l', 4096, NULL },
    { "rope_theta", AT(theta), 'd', 10000, NULL },
    { "rope_double_precision", AT(precise), 'b', 1, NULL },
    { "rope_type", AT(rope), 's', 0, "interleaved" },
    { "causal_temporal_positioning", 0, '-', 0, NULL },
    { "per_modality_projections", AT(apart), 'b', 0, NULL },
    { "proj_bias", AT(bias), 'b', 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct blk {
    xd_lin    qkv, out, up, down, gate; /* gate: of the heads, with gated_attn */
    xd_tensor q_gain, k_gain;
} blk;

typedef struct glob {
    xd_lin    in[PARTS]; /* the projection of the states; without `apart`, only in[VIDEO] */
    xd_tensor registers[PARTS];
    xd_wide   wide[PARTS];
} glob;

typedef struct local { xd_turn turn; } local;

/* ---- configuration and weights -------------------------------------------------------------- */

static xd_status check_part(const cfg *c, int i, xd_err *e)
{
    const part_cfg *o = &c->of[i];
    const char     *name = i == VIDEO ? "video" : "audio";
    int64_t         in = c->apart ? o->out : c->text;
    if (o->heads < 1 || o->head_dim < 4 || o->head_dim > 512 || o->head_dim % 2)
        return xd_fail(e, XD_EFORMAT,
                       "connectors: %d heads of %lld features of the %s_connector are not valid",
                       o->heads, (long long)o->head_dim, name);
    if (o->dim != in)
        return xd_fail(e, XD_EFORMAT,
                       "connectors: the width %lld of the %s_connector is not %s %lld",
                       (long long)o->dim, name, c->apart ? "its hidden_dim" : "caption_channels",
                       (long long)in);
    if (o->nlayers < 0 || o->registers < 1)
        return xd_fail(e, XD_EFORMAT, "connectors: the %s_connector has %d layers and %d registers",
                       name, o->nlayers, o->registers);
    return XD_OK;
}

static xd_status check_config(void *c_, xd_err *e)
{
    cfg *c = c_;
    if (!xd_text_fits(c->text) || c->states < 1 || c->states > 1000 || c->base < 1)
        return xd_fail(e, XD_EFORMAT,
                       "connectors: caption_channels %lld, text_proj_in_factor %lld or "
                       "connector_rope_base_seq_len %lld is not valid",
                       (long long)c->text, (long long)c->states, (long long)c->base);
    if (strcmp(c->rope, "split") && strcmp(c->rope, "interleaved"))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "connectors: rope_type '%s' is not 'split' or 'interleaved'", c->rope);
    if (!c->precise)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "connectors: rope_double_precision false is not supported");
    xd_status s = XD_OK;
    for (int i = 0; i < PARTS && s == XD_OK; i++) {
        c->of[i].dim = c->of[i].heads * c->of[i].head_dim;
        s = check_part(c, i, e);
    }
    return s;
}

static int nlayers(const void *c)
{
    return ((const cfg *)c)->of[VIDEO].nlayers + ((const cfg *)c)->of[AUDIO].nlayers;
}

/* Returns the connector that block `layer` belongs to. */
static int part_of(const cfg *c, int layer)
{
    return layer < c->of[VIDEO].nlayers ? VIDEO : AUDIO;
}

static int64_t width(const void *c)
{
    return ((const cfg *)c)->of[VIDEO].dim + ((const cfg *)c)->of[AUDIO].dim;
}

static int64_t width_of_states(const void *c)
{
    return ((const cfg *)c)->states * ((const cfg *)c)->text;
}

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const qkv[] = { "to_q", "to_k", "to_v" };
    const part_cfg          *o = &((const cfg *)c_)->of[part_of(c_, layer)];
    blk                     *w = w_;
    int64_t                  D = o->dim;
    xd_w_enter(d, "attn1");
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = D,
                                 .out = { D, D, D },
                                 .split = XD_COL,
                                 .unit = o->head_dim,
                                 .bias = 1 });
    xd_w_linear(
        d, &w->out, "to_out.0",
        &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = o->head_dim, .bias = 1 });
    if (o->gated)
        xd_w_linear(
            d, &w->gate, "to_gate_logits",
            &(xd_linear_spec){ .in = D, .out = o->heads, .split = XD_COL, .unit = 1, .bias = 1 });
    xd_w_vec(d, &w->q_gain, "norm_q.weight", 1, &D);
    xd_w_vec(d, &w->k_gain, "norm_k.weight", 1, &D);
    xd_w_leave(d);
    xd_w_linear(d, &w->up, "ff.net.0.proj",
                &(xd_linear_spec){ .in = D, .out = 4 * D, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &w->down, "ff.net.2",
                &(xd_linear_spec){ .in = 4 * D, .out = D, .split = XD_ROW, .bias = 1 });
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    static const char *const in[PARTS] = { "video_text_proj_in", "audio_text_proj_in" };
    static const char *const registers[PARTS] = { "video_connector.learnable_registers",
                                                  "audio_connector.learnable_registers" };
    const cfg               *c = c_;
    glob                    *g = g_;
    for (int i = 0; i < PARTS; i++) {
        const part_cfg *o = &c->of[i];
        if (c->apart || i == VIDEO)
            xd_w_linear(
                d, &g->in[i], c->apart ? in[i] : "text_proj_in",
                &(xd_linear_spec){ .in = c->text * c->states, .out = o->dim, .bias = c->bias });
        xd_w_vec(d, &g->registers[i], registers[i], 2, (int64_t[]){ o->registers, o->dim });
        g->wide[i] = xd_wide_of(d, o->heads, o->head_dim, eps);
        g->wide[i].halves = strcmp(c->rope, "split") == 0;
    }
}

/* ---- the rows of the tokens ----------------------------------------------------------------- */

typedef struct states { /* the states of some tokens, for fill_states */
    const cfg          *c;
    const xd_text_read *r;
    int64_t             first, n;      /* range of the tokens */
    const float        *mean, *factor; /* [L] for each state, without `apart` */
    float               scale;         /* factor of all states, with `apart` */
} states;

/* Computes the mean of each state over all tokens and features, and the factor that scales the
 * state to a range of 8. */
static void find_ranges(const cfg *c, const xd_text_read *r, float *mean, float *factor)
{
    for (int64_t l = 0; l < c->states; l++) {
        double sum = 0;
        float  low = INFINITY, high = -INFINITY;
        for (int64_t i = 0; i < r->real; i++) {
            const float *v = r->states + (i * c->states + l) * c->text;
            for (int64_t k = 0; k < c->text; k++) {
                sum += (double)v[k];
                low = fminf(low, v[k]);
                high = fmaxf(high, v[k]);
            }
        }
        mean[l] = (float)(sum / ((double)(r->real * c->text) + (double)eps));
        factor[l] = range / (high - low + eps);
    }
}

/* Writes normalized states [n, E L], with the states of a feature next to each other. */
static void fill_states(void *ctx, float *buf)
{
    const states *t = ctx;
    const int64_t E = t->c->text, L = t->c->states;
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t l = 0; l < L; l++) {
            const float *v = t->r->states + ((t->first + i) * L + l) * E;
            float        mean = t->c->apart ? 0 : t->mean[l], by = 0;
            double       sum = 0;
            for (int64_t k = 0; k < E && t->c->apart; k++)
                sum += (double)v[k] * (double)v[k];
            by = t->c->apart ? t->scale / sqrtf((float)(sum / (double)E) + eps) : t->factor[l];
            for (int64_t k = 0; k < E; k++)
                buf[(i * E + k) * L + l] = (v[k] - mean) * by;
        }
}

/* Computes the first rows of h from the tokens' states. The other rows, in place of padding, are
 * registers. */
static void set_rows(xd_exec *x, const xd_net *n, const xd_text_read *r, int part, xd_tensor h)
{
    const cfg  *c = n->cfg;
    const glob *g = n->glob;
    float       mean[1000], factor[1000];
    states      t = { c, r, 0, 0, mean, factor, 1 };
    int64_t     most = c->of[part].registers;
    t.scale = sqrtf((float)c->of[part].dim / (float)c->text);
    if (!c->apart && r->states && !xd_counting(x))
        find_ranges(c, r, mean, factor);
    for (t.first = 0; t.first < r->real; t.first += t.n) {
        size_t mark = xd_arena_mark(x->tmp);
        t.n = xd_min(r->real - t.first, ROWS);
        xd_tensor in = xd_new_f32(x, t.n, c->text * c->states);
        xd_fill(x, in, fill_states, &t);
        xd_linear_into(x, xd_rows(h, t.first, t.n), in, &g->in[c->apart ? part : VIDEO]);
        xd_arena_rewind(x->tmp, mark);
    }
    for (int64_t at = r->real, k; at < r->n; at += k) {
        k = xd_min(most - at % most, r->n - at);
        xd_copy_to(x, xd_rows(h, at, k), xd_rows(g->registers[part], at % most, k));
    }
}

/* ---- blocks --------------------------------------------------------------------------------- */

static void set_fraction(const void *ctx, int64_t row, float f[XD_WIDE_AXES])
{
    f[0] = (float)row / (float)((const cfg *)ctx)->base * 2 - 1;
}

static void fill_angles(void *ctx, float *buf)
{
    xd_wide_fill(ctx, buf);
}

/* Returns the RoPE tables of n rows for this rank's heads, [n heads, head_dim / 2]. */
static xd_turn turn_of(xd_exec *x, const xd_net *n, int part, int64_t rows)
{
    static double  (*const fn[2])(double) = { cos, sin };
    const cfg     *c = n->cfg;
    const xd_wide *w = &((const glob *)n->glob)->wide[part];
    xd_wide_angles t = { w, rows, 1, c->theta, NULL, set_fraction, c };
    xd_tensor      out[2];
    for (int i = 0; i < 2; i++) {
        out[i] = xd_new_f32(x, rows * w->features.n / w->head_dim, w->head_dim / 2);
        t.fn = fn[i];
        xd_fill(x, out[i], fill_angles, &t);
    }
    return (xd_turn){ out[0], out[1] };
}

static void forward(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const blk     *w = w_;
    const local   *l = s->local;
    const xd_wide *g = &((const glob *)n->glob)->wide[part_of(n->cfg, x->layer)];
    xd_norm        norm = { .in = s->h, .rms = 1, .eps = eps };
    xd_tensor      y = xd_linear(x, xd_norm_for(x, &norm, &w->qkv, NULL), &w->qkv);
    xd_tensor      in[2] = { xd_seg(y, &w->qkv, 0), xd_seg(y, &w->qkv, 1) };
    xd_tensor      q = xd_new(x, y.d[0], in[0].d[1]), k = xd_new(x, y.d[0], in[1].d[1]);
    xd_tensor      f = xd_wide_factors(x, g, in, 2);
    xd_wide_norm(
        x, g, q, in[0],
        &(xd_wide_how){ .gain = w->q_gain, .factor = xd_wide_factor(f, 0), .turn = l->turn });
    xd_wide_norm(
        x, g, k, in[1],
        &(xd_wide_how){ .gain = w->k_gain, .factor = xd_wide_factor(f, 1), .turn = l->turn });
    y = xd_flat(xd_attn_over(x, xd_heads(q, g->head_dim), xd_heads(k, g->head_dim),
                             xd_heads(xd_seg(y, &w->qkv, 2), g->head_dim), (xd_tensor){ 0 }, 0));
    if (w->gate.w.out)
        y = xd_wide_gated(
            x, g, y, xd_linear_f32(x, xd_norm_for(x, &norm, &w->gate, NULL), &w->gate), &w->out);
    xd_linear_add(x, s->h, (xd_tensor){ 0 }, y, &w->out);
    y = xd_linear_act(x, xd_norm_for(x, &norm, &w->up, NULL), &w->up, XD_GELU_TANH);
    xd_linear_add(x, s->h, (xd_tensor){ 0 }, y, &w->down);
}

static void connect(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_cond *out)
{
    const cfg *c = n->cfg;
    int64_t    at = 0;
    *out = (xd_cond){ .tok = xd_new_f32(x, r->n, width(c)) };
    if (!xd_check(x, r->states || xd_counting(x), "connectors without hidden states"))
        return;
    for (int i = 0; i < PARTS; i++)
        if (!xd_check(x, r->n % c->of[i].registers == 0,
                      "max_sequence_length %lld is not a multiple of the number of learned "
                      "registers, %d",
                      (long long)r->n, c->of[i].registers))
            return;
    for (int i = 0, layer = 0; i < PARTS; i++) {
        int64_t   D = c->of[i].dim;
        size_t    mark = xd_arena_mark(x->tmp);
        local     l = { turn_of(x, n, i, r->n) };
        xd_state  s = { .h = xd_new_f32(x, r->n, D), .local = &l };
        xd_tensor to = xd_cols(out->tok, at, D);
        set_rows(x, n, r, i, s.h);
        for (int end = layer + c->of[i].nlayers; layer < end; layer++) {
            size_t block = xd_arena_mark(x->tmp);
            xd_net_block(x, n, layer, &s);
            xd_arena_rewind(x->tmp, block);
        }
        xd_norm_into(x, &(xd_norm){ .out = to, .in = s.h, .rms = 1, .eps = eps });
        xd_arena_rewind(x->tmp, mark);
        at += D;
    }
}

static const xd_block video_block = { "video_connector.transformer_blocks.%d", sizeof(blk),
                                      blk_weights, forward };
static const xd_block audio_block = { "audio_connector.transformer_blocks.%d", sizeof(blk),
                                      blk_weights, forward };

static const xd_block *block(const void *c, int layer)
{
    return part_of(c, layer) == VIDEO ? &video_block : &audio_block;
}

extern const xd_text xd_text_connectors;

const xd_text xd_text_connectors = {
    .net = { .name = "connectors",
             .classes = { "LTX2TextConnectors" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .nlayers = nlayers,
             .block = block,
             .weights = weights },
    .width = width,
    .reads = width_of_states,
    .hidden = connect,
};
