/* decoder.c - runs decoder language models as text encoders: Qwen3, Qwen3-VL (text), Qwen2,
 * Qwen2.5-VL (text), Mistral, Llama 3, LLaVA, Gemma 2 and Gemma 3. The results equal the hidden
 * states of transformers.
 *
 * The blocks of all decoder language models here have causal grouped-query attention, a gated MLP,
 * and RMS norms. The differences between the models follow from the config (doc/models/decoder.md).
 * A prompt is padded before or after its text. Text tokens never attend to padding. Padding rows
 * before the text attend to nothing, and their attention output is 0. Padding rows after the text
 * attend to the text. */
#include <math.h>
#include <string.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "text/decoder.h"

typedef struct blk {
    xd_tensor norm1, norm2; /* [E]: norms before attention and before the MLP */
    xd_tensor post1, post2; /* [E]: norms after attention and MLP; only Gemma has them */
    xd_tensor qnorm, knorm; /* [D]: norms of queries and keys per head, or absent */
    xd_lin    qkv, out, gate_up, down;
} blk;

typedef struct glob {
    xd_tensor            embed; /* [V,E]: token embeddings */
    xd_tensor            norm;  /* [E]: norm of the last hidden state */
    xd_qwen_vision_glob  vision;
    xd_qwen3_vision_glob vision3;
    xd_llava_vision_glob llava;
} glob;

typedef struct angles { xd_tensor cos, sin; } angles; /* [n,D/2] F32: cosines and sines of rope */

typedef struct local {
    int64_t   first, real; /* first row of the text; number of the text's rows */
    /* Rope angles of the layers with full attention (all), and of the layers with a window
     * (window). */
    angles    all, window;
    /* [1,D] F32 ones, which are added to the weights of Gemma's norms. */
    xd_tensor ones;
    /* [1,H D] zeros in the compute type: the attention output of padding rows before the text. */
    xd_tensor zeros;
} local;

/* ---- weights ------------------------------------------------------------------------------ */

/* Returns the number of blocks. If the model has a vision tower, the tower's blocks are included
 * and come first. */
static int nlayers(const void *c)
{
    return ((const xd_decoder *)c)->vision_blocks + ((const xd_decoder *)c)->nlayers;
}

static int64_t width(const void *c)
{
    return ((const xd_decoder *)c)->dim;
}

static void norm_weight(xd_decl *d, xd_tensor *v, const char *name, int64_t n)
{
    xd_w_enter(d, "%s", name);
    xd_w_vec(d, v, "weight", 1, &n);
    xd_w_leave(d);
}

/* Declares the attention weights. With tensor parallelism, these weights are split by key heads; a
 * rank that has a key head also has the query heads of this key head. */
static void attention_weights(xd_decl *d, const xd_decoder *c, blk *w)
{
    static const char *const qkv[] = { "q_proj", "k_proj", "v_proj" };
    int64_t                  D = c->D, Q = c->heads * D, K = c->kv * D, group = Q / c->kv;
    xd_w_enter(d, "self_attn");
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = c->dim,
                                 .out = { Q, K, K },
                                 .split = XD_COL,
                                 .units = (int64_t[]){ group, D, D },
                                 .bias = c->kind->qkv_bias || c->bias });
    xd_w_linear(d, &w->out, "o_proj",
                &(xd_linear_spec){
                    .in = Q, .out = c->dim, .split = XD_ROW, .unit = group, .bias = c->bias });
    if (c->kind->qk_norm) {
        norm_weight(d, &w->qnorm, "q_norm", D);
        norm_weight(d, &w->knorm, "k_norm", D);
    }
    xd_w_leave(d);
}

static void blk_weights(xd_decl *d, const void *c_, int layer, void *w_)
{
    static const char *const gate_up[] = { "gate_proj", "up_proj" };
    const xd_decoder        *c = c_;
    blk                     *w = w_;
    int64_t                  E = c->dim;
    (void)layer;

    norm_weight(d, &w->norm1, "input_layernorm", E);
    attention_weights(d, c, w);
    if (c->kind->gemma) {
        norm_weight(d, &w->post1, "post_attention_layernorm", E);
        norm_weight(d, &w->norm2, "pre_feedforward_layernorm", E);
        norm_weight(d, &w->post2, "post_feedforward_layernorm", E);
    } else {
        norm_weight(d, &w->norm2, "post_attention_layernorm", E);
    }
    xd_w_enter(d, "mlp");
    xd_w_fused(d, &w->gate_up,
               &(xd_fused_spec){ .n = 2,
                                 .names = gate_up,
                                 .in = E,
                                 .out = { c->ff, c->ff },
                                 .split = XD_COL,
                                 .bias = c->mlp_bias });
    xd_w_linear(d, &w->down, "down_proj",
                &(xd_linear_spec){ .in = c->ff, .out = E, .split = XD_ROW, .bias = c->mlp_bias });
    xd_w_leave(d);
}

/* Scope of the vision tower in files of Qwen3-VL with a head. */
#define OUTER_VISUAL "model.visual"

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const xd_decoder *c = c_;
    glob             *g = g_;
    xd_w_enter(d, "model");
    xd_w_table(d, &g->embed, "embed_tokens.weight", c->vocab, c->dim);
    if (!d->cut) /* the last blocks are dropped, so the final norm is not needed */
        norm_weight(d, &g->norm, "norm", c->dim);
    xd_w_leave(d);
    if (c->llava.blocks)
        xd_llava_vision_weights(d, &c->llava, &g->llava);
    if (!c->vision.depth || !c->vision_blocks)
        return;
    xd_w_enter(d, c->outer ? OUTER_VISUAL : "visual");
    if (c->vision.places)
        xd_qwen3_vision_weights(d, &c->vision, &g->vision3);
    else
        xd_qwen_vision_weights(d, &c->vision, &g->vision);
    xd_w_leave(d);
}

static void vision_weights(xd_decl *d, const void *c, int layer, void *w)
{
    (void)layer;
    xd_qwen_vision_block_weights(d, &((const xd_decoder *)c)->vision, w);
}

static void vision3_weights(xd_decl *d, const void *c, int layer, void *w)
{
    (void)layer;
    xd_qwen3_vision_block_weights(d, &((const xd_decoder *)c)->vision, w);
}

static void llava_weights(xd_decl *d, const void *c, int layer, void *w)
{
    (void)layer;
    xd_clip_layer_weights(d, &((const xd_decoder *)c)->llava.clip.of, w);
}

/* Declares a class of decoders whose checkpoint files also contain tensors that are not read. */
#define WITH(name, ...)                                                                            \
    static void name(xd_decl *d, const void *c, void *g)                                           \
    {                                                                                              \
        weights(d, c, g);                                                                          \
        __VA_ARGS__;                                                                               \
    }
WITH(with_head, xd_decoder_head(d, c, "lm_head.weight"))
WITH(with_visual, xd_qwen25vl_tower(d, c))
WITH(with_visual_and_head, xd_qwen25vl_tower(d, c); xd_decoder_head(d, c, "lm_head.weight"))
WITH(with_inner_head, xd_decoder_head(d, c, "language_model.lm_head.weight"))
WITH(with_visual3, xd_qwen3vl_tower(d, c, "visual"))
WITH(with_visual3_and_head, xd_qwen3vl_tower(d, c, OUTER_VISUAL);
     xd_decoder_head(d, c, "lm_head.weight"))
WITH(with_siglip, xd_gemma3_tower(d, c))
WITH(with_pixtral, xd_mistral3_tower(d, c))
WITH(with_pixtral_and_head, xd_mistral3_tower(d, c);
     xd_decoder_head(d, c, "language_model.lm_head.weight"))

/* ---- positions ---------------------------------------------------------------------------- */

/* Returns the rope frequency of element pair i, computed in f32 as in transformers. With rope type
 * "llama3", low frequencies are divided by `factor`, high frequencies are unchanged, and those
 * between are interpolated linearly. */
static float frequency(const xd_decoder_rope *r, int64_t D, int64_t i)
{
    float  f = 1 / (float)pow(r->theta, (double)(2 * i) / (double)D);
    double turns = (double)r->positions * (double)f / 6.283185307179586;
    if (strcmp(r->type, "linear") == 0)
        return f / (float)r->factor;
    if (strcmp(r->type, "llama3") != 0 || turns > r->high)
        return f;
    if (turns < r->low)
        return f / (float)r->factor;
    double smooth = (turns - r->low) / (r->high - r->low);
    return (float)((1 - smooth) * (double)f / r->factor + smooth * (double)f);
}

/* Returns the axis (0..2) of multimodal rope for element pair i: the pair is rotated by the
 * position on this axis. The pairs of an axis are consecutive, or every third one. */
static int axis_of(const xd_decoder *c, int64_t i)
{
    const xd_ints *sections = &c->mrope;
    int            s = (int)(i % 3);
    if (c->interleaved && sections->n == 3)
        return i < 3 * sections->v[s] ? s : 0;
    s = 0;
    for (int64_t end = 0; s < sections->n && i >= (end += sections->v[s]);)
        s++;
    return s % 3;
}

/* Returns the position of row i on an axis of multimodal rope, or its index in models without
 * multimodal rope. A text token has the same position
 * on all axes. The position of an image token is that of the image's first token, plus, on axis 1,
 * the token's row in the image or, on axis 2, the token's column. The text after an image has
 * positions that follow the largest position in the image. */
static int64_t position_of(const xd_decoder *c, const xd_text_read *r, int64_t i, int axis)
{
    int64_t unit = c->vision.patch * c->vision.merge, gone = 0;
    for (int k = 0; k < r->nimages && c->mrope.n; k++) {
        const xd_text_image *m = &r->images[k];
        int64_t              rows = m->height / unit, cols = m->width / unit, at = i - m->at;
        if (at < 0)
            break;
        if (at < m->n)
            return m->at - gone + (axis == 1 ? at / cols : axis == 2 ? at % cols : 0);
        gone += m->n - xd_max(rows, cols);
    }
    return i - gone;
}

typedef struct turn { /* arguments of the function that fills a table of rope angles */
    const xd_decoder      *c;
    const xd_decoder_rope *rope;
    const xd_text_read    *r;
    int                    sine;
} turn;

static void fill_angles(void *ctx, float *to)
{
    const turn *t = ctx;
    int64_t     half = t->c->D / 2;
    for (int64_t k = 0; k < half; k++) {
        float f = frequency(t->rope, t->c->D, k);
        int   axis = axis_of(t->c, k);
        for (int64_t i = 0; i < t->r->n; i++) {
            float a = (float)position_of(t->c, t->r, i, axis) * f;
            to[i * half + k] = t->sine ? sinf(a) : cosf(a);
        }
    }
}

static angles rope_angles(xd_exec *x, const xd_decoder *c, const xd_decoder_rope *rope,
                          const xd_text_read *r)
{
    angles a = { xd_new_f32(x, r->n, c->D / 2), xd_new_f32(x, r->n, c->D / 2) };
    xd_fill(x, a.cos, fill_angles, &(turn){ c, rope, r, 0 });
    xd_fill(x, a.sin, fill_angles, &(turn){ c, rope, r, 1 });
    return a;
}

/* ---- running ------------------------------------------------------------------------------ */

static void rms_norm_into(xd_exec *x, const xd_decoder *c, xd_tensor out, xd_tensor in,
                          xd_tensor gain)
{
    xd_norm a = { .out = out, .in = in, .gain = gain, .rms = 1, .eps = c->eps };
    if (c->kind->gemma) { /* Gemma's norms multiply by 1 + weight */
        a.gain = (xd_tensor){ 0 };
        a.scale = xd_view2(gain.p, XD_F32, 1, gain.d[0]);
    }
    xd_norm_into(x, &a);
}

static xd_tensor rms_norm(xd_exec *x, const xd_decoder *c, xd_tensor in, xd_tensor gain)
{
    xd_tensor out = xd_new(x, in.d[0], in.d[1]);
    rms_norm_into(x, c, out, in, gain);
    return out;
}

/* Adds the output of a linear layer for the input `in` to h. If the model has a post-norm, the
 * output is normalized before the addition. */
static void add_layer(xd_exec *x, const xd_decoder *c, xd_tensor h, xd_tensor in, const xd_lin *w,
                      xd_tensor post)
{
    xd_tensor none = { 0 };
    if (!post.p) {
        xd_linear_add(x, h, none, in, w);
        return;
    }
    xd_tensor y = xd_linear_f32(x, in, w);
    rms_norm_into(x, c, y, y, post);
    xd_add(x, h, y);
}

/* Returns the gain of an RMS norm per head, which is `gain` or, for Gemma, 1 + gain. */
static xd_tensor gain_of_heads(xd_exec *x, const xd_decoder *c, const local *l, xd_tensor gain)
{
    if (!gain.p || !c->kind->gemma)
        return gain;
    xd_tensor plus = xd_new_f32(x, 1, c->D);
    xd_copy_to(x, plus, xd_view2(gain.p, XD_F32, 1, c->D));
    xd_axpby(x, plus, 1, l->ones, 1);
    return xd_view(plus.p, XD_F32, 1, &c->D);
}

/* Computes attention of q, k, v [n,H,D] with the mask of the layer: the mask is causal and, if
 * `slides` is set, limited to a window. The result has the shape [n,H,D]. */
static xd_tensor attend(xd_exec *x, const xd_decoder *c, const local *l, int slides,
                        const xd_tensor qkv[3])
{
    int64_t     n = qkv[0].d[0];
    xd_tensor   out = xd_new_as(x, x->act, 3, qkv[0].d);
    xd_attn_how how = { .scale = 1 / sqrtf(c->scalar),
                        .causal = 1,
                        .softcap = c->kind->capped ? c->softcap : 0,
                        .window = slides ? c->window - 1 : 0 };
    xd_attn_over_into(x, xd_rows(out, l->first, n - l->first),
                      xd_rows(qkv[0], l->first, n - l->first), xd_rows(qkv[1], l->first, l->real),
                      xd_rows(qkv[2], l->first, l->real), &how);
    if (l->first) {
        xd_tensor zeros = xd_cols(l->zeros, 0, out.d[1] * out.d[2]);
        zeros.d[0] = l->first, zeros.s[0] = 0;
        xd_copy_to(x, xd_rows(xd_flat(out), 0, l->first), zeros);
    }
    return out;
}

static void forward(xd_exec *x, const xd_net *n, const void *w_, xd_state *s)
{
    const blk        *w = w_;
    const xd_decoder *c = n->cfg;
    const local      *l = s->local;
    int               slides = xd_decoder_slides(c, x->layer - c->vision_blocks);
    const angles     *a = slides ? &l->window : &l->all;

    xd_tensor y = xd_linear(x, rms_norm(x, c, s->h, w->norm1), &w->qkv), qkv[3];
    for (int i = 0; i < 3; i++)
        qkv[i] = xd_heads(xd_seg(y, &w->qkv, i), c->D);
    xd_qk_norm_into(
        x, &(xd_qknorm){
               .out = qkv[0],
               .in = qkv[0],
               .gain = gain_of_heads(x, c, l, w->qnorm),
               .also = { .out = qkv[1], .in = qkv[1], .gain = gain_of_heads(x, c, l, w->knorm) },
               .cos = a->cos,
               .sin = a->sin,
               .halves = 1,
               .eps = c->eps });
    add_layer(x, c, s->h, xd_flat(attend(x, c, l, slides, qkv)), &w->out, w->post1);

    y = xd_linear(x, rms_norm(x, c, s->h, w->norm2), &w->gate_up);
    y = xd_gated(x, xd_seg(y, &w->gate_up, 0), xd_seg(y, &w->gate_up, 1), c->act);
    add_layer(x, c, s->h, y, &w->down, w->post2);
}

static void fill_ones(void *ctx, float *to)
{
    for (int64_t i = 0; i < *(const int64_t *)ctx; i++)
        to[i] = 1;
}

static void fill_zeros(void *ctx, float *to)
{
    memset(to, 0, (size_t)*(const int64_t *)ctx * sizeof *to);
}

static local open_local(xd_exec *x, const xd_decoder *c, const xd_text_read *r)
{
    int64_t Q = c->heads * c->D;
    local   l = { .first = r->first, .real = r->real };
    l.all = l.window = rope_angles(x, c, &c->rope, r);
    if (memcmp(&c->rope, &c->local, sizeof c->rope) != 0)
        l.window = rope_angles(x, c, &c->local, r);
    if (c->kind->gemma && c->kind->qk_norm)
        xd_fill(x, l.ones = xd_new_f32(x, 1, c->D), fill_ones, &(int64_t){ c->D });
    xd_fill(x, l.zeros = xd_new(x, 1, Q), fill_zeros, &Q);
    return l;
}

/* If the caller requested the hidden state of layer `index`, copies this state to its columns of
 * the output [n,L E]. */
static void hand_out(xd_exec *x, const xd_net *n, const xd_text_read *r, int index, xd_tensor h,
                     xd_tensor out)
{
    const glob *g = n->glob;
    for (int k = 0; k < r->nlayers; k++) {
        xd_tensor to = xd_cols(out, k * h.d[1], h.d[1]);
        if (xd_text_layer(n, r->layers[k]) != index)
            continue;
        if (index == n->nlayers && !r->raw)
            rms_norm_into(x, n->cfg, to, h, g->norm);
        else
            xd_copy_to(x, to, h);
    }
}

static void encode_states(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_cond *out)
{
    const glob       *g = n->glob;
    const xd_decoder *c = n->cfg;
    *out = (xd_cond){ .tok = xd_new_f32(x, r->n, r->nlayers * c->dim) };
    if (!xd_check(x, r->first >= 0 && r->real >= 1 && r->first + r->real <= r->n,
                  "%lld of %lld tokens from %lld on are text", (long long)r->real, (long long)r->n,
                  (long long)r->first))
        return;
    size_t   mark = xd_arena_mark(x->tmp);
    local    l = open_local(x, c, r);
    xd_state s = { .h = xd_lookup_rows(x, g->embed, r->ids, r->n, XD_F32), .local = &l };
    if (c->kind->gemma)
        xd_axpby(x, s.h, 0, (xd_tensor){ 0 }, sqrtf((float)c->dim));
    if (c->vision_blocks)
        xd_qwen_vision_place(x, r, s.h);
    for (int i = n->first + c->vision_blocks; i <= n->last; i++) {
        size_t block = xd_arena_mark(x->tmp);
        hand_out(x, n, r, i, s.h, out->tok);
        if (i < n->last)
            xd_net_block(x, n, i, &s);
        if (c->vision_blocks && i < n->last)
            xd_qwen3_vision_add(x, &c->vision, r, i - c->vision_blocks, s.h);
        xd_arena_rewind(x->tmp, block);
    }
    xd_arena_rewind(x->tmp, mark);
}

static void encode(xd_exec *x, const xd_net *n, const int32_t *ids, int64_t nids, int64_t real,
                   xd_cond *out)
{
    static const int last = -1;
    encode_states(
        x, n, &(xd_text_read){ .ids = ids, .n = nids, .real = real, .nlayers = 1, .layers = &last },
        out);
}

static void vision_forward(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    xd_qwen_vision_forward(x, &((const xd_decoder *)n->cfg)->vision, w, s);
}

static void vision3_forward(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    xd_qwen3_vision_forward(x, &((const xd_decoder *)n->cfg)->vision, w, s);
}

static void llava_forward(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    const xd_llava_vision *c = &((const xd_decoder *)n->cfg)->llava;
    xd_clip_layer_run(x, &c->clip.of, w, s->h, xd_clip_vision_rows(&c->clip));
}

static const xd_block kind_of_block = { "model.layers.%d", sizeof(blk), blk_weights, forward };
static const xd_block vision_block = { "visual.blocks.%d", sizeof(xd_qwen_vision_block),
                                       vision_weights, vision_forward };
static const xd_block vision3_block = { "visual.blocks.%d", sizeof(xd_qwen3_vision_block),
                                        vision3_weights, vision3_forward };
static const xd_block outer_vision3_block = { OUTER_VISUAL ".blocks.%d",
                                              sizeof(xd_qwen3_vision_block), vision3_weights,
                                              vision3_forward };
static const xd_block llava_block = { "vision_tower.vision_model.encoder.layers.%d",
                                      sizeof(xd_clip_layer), llava_weights, llava_forward };

static const xd_block *block(const void *c_, int layer)
{
    const xd_decoder *c = c_;
    return layer >= c->vision_blocks ? &kind_of_block
           : c->llava.blocks         ? &llava_block
           : c->outer                ? &outer_vision3_block
           : c->vision.places        ? &vision3_block
                                     : &vision_block;
}

/* Returns 1 for the vision blocks after the hidden state that LLaVA projects. */
static int is_idle(const void *c_, int layer)
{
    const xd_decoder *c = c_;
    return layer >= c->llava.blocks && layer < c->vision_blocks;
}

static void run_tower(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_tensor rows)
{
    const glob       *g = n->glob;
    const xd_decoder *c = n->cfg;
    if (c->vision.places)
        xd_qwen3_vision_run(x, n, &c->vision, &g->vision3, r, rows);
    else
        xd_qwen_vision_run(x, n, &c->vision, &g->vision, r, rows);
}

static void tower_of(const void *c, xd_text_tower *out)
{
    const xd_qwen_vision *v = &((const xd_decoder *)c)->vision;
    *out = (xd_text_tower){ v->patch, v->merge, (int32_t)v->token, 0, v->deep.n };
}

static void run_llava(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_tensor rows)
{
    const glob *g = n->glob;
    xd_llava_vision_run(x, n, &((const xd_decoder *)n->cfg)->llava, &g->llava, r, rows);
}

static void llava_tower_of(const void *c, xd_text_tower *out)
{
    const xd_llava_vision *v = &((const xd_decoder *)c)->llava;
    *out = (xd_text_tower){ v->clip.patch, 1, (int32_t)v->token, v->clip.side, 0 };
}

/* ---- the registry's entries --------------------------------------------------------------- */

/* Prefixes of tensor names. The tensor names of a file may have the prefix of another model class
 * than the class in the config. The prefixes of the class in the config are tried first. */
static const char *const prefixes[] = { "language_model.model.", "model.language_model.",
                                        "language_model.", NULL };

#define NET_OF(kind, how, title, first, all, skip, at, ...)                                        \
    .net = { .name = title, .classes = { __VA_ARGS__ }, .prefix = "model.",                        \
             .prefixes = prefixes, .lead = first, .beside = at,                                    \
             .unread = { "lm_head.weight", "language_model.lm_head.weight",                        \
                         "vision_tower.*", "multi_modal_projector.*", "*.rotary_emb.inv_freq",     \
                         skip },                                                                   \
             .fields = xd_##kind##_fields, .cfg_size = sizeof(xd_decoder),                         \
             .glob_size = sizeof(glob), .check = xd_##kind##how##_check, .nlayers = nlayers,       \
             .block = block, .weights = all },                                                     \
    .width = width, .encode = encode, .hidden = encode_states
#define NET(kind, title, first, all, ...)                                                          \
    { NET_OF(kind, , title, first, all, "visual.*", "visual.", __VA_ARGS__) }
#define WITHOUT_VISION(kind, title, first, all, at, name, i)                                       \
    { NET_OF(kind, , title, first, all, "visual.*", at, name), .with_vision = &with_vision[i] }
#define WITH_VISION(kind, how, title, first, all, at, name)                                        \
    { NET_OF(kind, how, title, first, all, NULL, at, name), .tower = tower_of,                     \
      .run_vision = run_tower }

/* The vision tower is always read, except for its last norm and for blocks that are never run. */
#define LLAVA(...)                                                                                 \
    { .net = { .name = "llava", .classes = { __VA_ARGS__ }, .prefix = "model.",                    \
               .prefixes = prefixes, .lead = OUTSIDE, .beside = "", .omits = "vision_model.",      \
               .unread = { "lm_head.weight", "language_model.lm_head.weight",                      \
                           "vision_tower.vision_model.post_layernorm.*",                           \
                           "vision_tower.post_layernorm.*", "*.embeddings.position_ids",           \
                           "*.rotary_emb.inv_freq" },                                              \
               .fields = xd_llava_fields, .cfg_size = sizeof(xd_decoder),                          \
               .glob_size = sizeof(glob), .check = xd_llava_check, .nlayers = nlayers,             \
               .block = block, .idle = is_idle, .weights = with_inner_head },                      \
      .width = width, .encode = encode, .hidden = encode_states, .tower = llava_tower_of,          \
      .run_vision = run_llava }

#define INSIDE "language_model."
#define OUTSIDE "language_model.model."
#define OUTER "model.language_model."

static const xd_text with_vision[] = {
    WITH_VISION(qwen25vl, _vision, "qwen2.5-vl", "model.", with_head, "visual.",
                "Qwen2_5_VLForConditionalGeneration"),
    WITH_VISION(qwen25vl, _vision, "qwen2.5-vl", INSIDE, weights, "visual.", "Qwen2_5_VLModel"),
    WITH_VISION(qwen3vl, _outer_vision, "qwen3-vl", OUTER, with_head, OUTER_VISUAL ".",
                "Qwen3VLForConditionalGeneration"),
    WITH_VISION(qwen3vl, _vision, "qwen3-vl", INSIDE, weights, "visual.", "Qwen3VLModel"),
};

extern const xd_text xd_text_decoders[];

const xd_text xd_text_decoders[XD_TEXT_DECODERS] = {
    NET(qwen3, "qwen3", "model.", with_head, "Qwen3ForCausalLM"),
    NET(qwen3, "qwen3", "", weights, "Qwen3Model"),
    WITHOUT_VISION(qwen3vl, "qwen3-vl", OUTER, with_visual3_and_head, OUTER_VISUAL ".",
                   "Qwen3VLForConditionalGeneration", 2),
    WITHOUT_VISION(qwen3vl, "qwen3-vl", INSIDE, with_visual3, "visual.", "Qwen3VLModel", 3),
    NET(qwen3vl, "qwen3-vl", "", weights, "Qwen3VLTextModel"),
    NET(qwen2, "qwen2", "model.", with_head, "Qwen2ForCausalLM"),
    NET(qwen2, "qwen2", "", weights, "Qwen2Model"),
    WITHOUT_VISION(qwen25vl, "qwen2.5-vl", "model.", with_visual_and_head, "visual.",
                   "Qwen2_5_VLForConditionalGeneration", 0),
    WITHOUT_VISION(qwen25vl, "qwen2.5-vl", INSIDE, with_visual, "visual.", "Qwen2_5_VLModel", 1),
    NET(qwen25vl, "qwen2.5-vl", "", weights, "Qwen2_5_VLTextModel"),
    NET(mistral, "mistral", OUTSIDE, with_pixtral_and_head, "Mistral3ForConditionalGeneration"),
    NET(mistral, "mistral", INSIDE, with_pixtral, "Mistral3Model"),
    NET(mistral, "mistral", "model.", with_head, "MistralForCausalLM"),
    NET(mistral, "mistral", "", weights, "MistralModel"),
    NET(llama, "llama", "model.", with_head, "LlamaForCausalLM"),
    NET(llama, "llama", "", weights, "LlamaModel"),
    LLAVA("LlavaForConditionalGeneration"),
    NET(gemma2, "gemma2", "model.", with_head, "Gemma2ForCausalLM"),
    NET(gemma2, "gemma2", "", weights, "Gemma2Model"),
    NET(gemma3, "gemma3", OUTSIDE, with_siglip, "Gemma3ForConditionalGeneration"),
    NET(gemma3, "gemma3", INSIDE, with_siglip, "Gemma3Model"),
    NET(gemma3, "gemma3", "model.", with_head, "Gemma3ForCausalLM"),
    NET(gemma3, "gemma3", "", weights, "Gemma3TextModel"),
};
