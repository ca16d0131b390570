/* qwen3_vision.c - runs the vision tower of Qwen3-VL like transformers' Qwen3VLVisionModel.
 *
 * All patches of an image attend to each other. A patch has a learned position, which is
 * interpolated between those of a square grid, besides the angles for its row and column. The
 * outputs of some blocks also become features of the language model (Meng et al. 2024, DeepStack,
 * arXiv:2406.04334). */
#include <math.h>
#include <stdlib.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "text/qwen_vision.h"

static const float eps = 1e-6f;

/* ---- configuration ------------------------------------------------------------------------ */

xd_status xd_qwen3_vision_check(xd_qwen_vision *c, int64_t width, xd_err *e)
{
    static const char what[] = "vision_config";
    int64_t           side = (int64_t)sqrt((double)c->places);
    c->window = INT32_MAX; /* the window has the complete image */
    if (c->places < 1 || side * side != c->places)
        return xd_fail(e, XD_EFORMAT,
                       "%s: num_position_embeddings %lld is not the number of places of a square",
                       what, (long long)c->places);
    if (c->deep.n > XD_QWEN_DEEP)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: deepstack_visual_indexes has %d blocks; at most %d are supported", what,
                       c->deep.n, XD_QWEN_DEEP);
    for (int i = 0; i < c->deep.n; i++)
        if (c->deep.v[i] < 0 || c->deep.v[i] >= c->depth || (i && c->deep.v[i] <= c->deep.v[i - 1]))
            return xd_fail(
                e, XD_EFORMAT,
                "%s: deepstack_visual_indexes has %lld, which is not a block below depth "
                "%d after the blocks before it",
                what, (long long)c->deep.v[i], c->depth);
    return xd_qwen_vision_check(c, width, e);
}

/* ---- weights ------------------------------------------------------------------------------ */

void xd_qwen3_vision_block_weights(xd_decl *d, const xd_qwen_vision *c, xd_qwen3_vision_block *w)
{
    int64_t D = c->dim, head = c->heads ? D / c->heads : D, qkv[] = { D, D, D };
    xd_w_affine(d, "norm1", &w->gain1, &w->bias1, D);
    xd_w_linear(d, &w->qkv, "attn.qkv",
                &(xd_linear_spec){
                    .in = D, .nouts = 3, .outs = qkv, .split = XD_COL, .unit = head, .bias = 1 });
    xd_w_linear(d, &w->proj, "attn.proj",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = head, .bias = 1 });
    xd_w_affine(d, "norm2", &w->gain2, &w->bias2, D);
    xd_w_linear(d, &w->fc1, "mlp.linear_fc1",
                &(xd_linear_spec){ .in = D, .out = c->ff, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &w->fc2, "mlp.linear_fc2",
                &(xd_linear_spec){ .in = c->ff, .out = D, .split = XD_ROW, .bias = 1 });
}

/* Declares a merger whose norm has `norm` features. */
static void merger_weights(xd_decl *d, const xd_qwen_vision *c, xd_qwen3_merger *w, int64_t norm)
{
    int64_t wide = c->dim * c->merge * c->merge;
    xd_w_affine(d, "norm", &w->gain, &w->bias, norm);
    xd_w_linear(d, &w->up, "linear_fc1",
                &(xd_linear_spec){ .in = wide, .out = wide, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &w->down, "linear_fc2",
                &(xd_linear_spec){ .in = wide, .out = c->out, .split = XD_ROW, .bias = 1 });
}

void xd_qwen3_vision_weights(xd_decl *d, const xd_qwen_vision *c, xd_qwen3_vision_glob *g)
{
    xd_w_linear_as(d, &g->patches, "patch_embed.proj", 5,
                   (int64_t[]){ c->dim, c->channels, c->frames, c->patch, c->patch }, 1);
    xd_w_table(d, &g->places, "pos_embed.weight", c->places, c->dim);
    xd_w_enter(d, "merger");
    merger_weights(d, c, &g->merger[0], c->dim);
    xd_w_leave(d);
    for (int i = 0; i < c->deep.n && i < XD_QWEN_DEEP; i++) {
        xd_w_enter(d, "deepstack_merger_list.%d", i);
        merger_weights(d, c, &g->merger[1 + i], c->dim * c->merge * c->merge);
        xd_w_leave(d);
    }
}

/* ---- positions ---------------------------------------------------------------------------- */

typedef struct corner { /* one of the four places between which a position is interpolated */
    const xd_qwen_vision *c;
    const xd_text_read   *r;
    int                   below, right;
} corner;

/* Sets *weight to the weight of one of the two places around place i of n on an axis of `side`
 * places, which are at equal distances from the first to the last. Returns this place. */
static int64_t place_beside(int64_t i, int64_t n, int64_t side, int after, float *weight)
{
    float at = (float)i * (float)(side - 1) / (float)xd_max(n - 1, 1), low = floorf(at);
    float far = fabsf(at - low - (float)after);
    *weight = far < 1 ? 1 - far : 0;
    return xd_min((int64_t)low + after, side - 1);
}

/* Calls fn for every patch with its place at the corner and the place's weight. The tokens of an
 * image are in the order of rows, and the patches of a token are consecutive. */
static void each_place(const corner *at, void (*fn)(void *to, int64_t i, int64_t place, float w),
                       void *to)
{
    int64_t m = at->c->merge, unit = at->c->patch, next = 0,
            side = (int64_t)sqrt((double)at->c->places);
    for (int k = 0; k < at->r->nimages; k++) {
        int64_t rows = at->r->images[k].height / unit, cols = at->r->images[k].width / unit;
        for (int64_t i = 0; i < rows * cols; i++) {
            int64_t token = i / (m * m), p = i % (m * m);
            int64_t y = token / (cols / m) * m + p / m, x = token % (cols / m) * m + p % m;
            float   a, b;
            int64_t row = place_beside(y, rows, side, at->below, &a),
                    col = place_beside(x, cols, side, at->right, &b);
            fn(to, next++, row * side + col, a * b);
        }
    }
}

static void set_place(void *to, int64_t i, int64_t place, float w)
{
    (void)w;
    ((int32_t *)to)[i] = (int32_t)place;
}

typedef struct weights { /* where fill_weights writes rows of `dim` equal weights */
    float  *to;
    int64_t dim;
} weights;

static void set_weight(void *to_, int64_t i, int64_t place, float w)
{
    const weights *to = to_;
    (void)place;
    for (int64_t k = 0; k < to->dim; k++)
        to->to[i * to->dim + k] = w;
}

static void fill_weights(void *ctx, float *to)
{
    const corner *at = ctx;
    each_place(at, set_weight, &(weights){ to, at->c->dim });
}

/* Adds the position embeddings to the hidden state h [patches,dim]. */
static void add_places(xd_exec *x, const xd_qwen_vision *c, const xd_qwen3_vision_glob *g,
                       const xd_text_read *r, xd_tensor h)
{
    int32_t *ids = calloc((size_t)h.d[0], sizeof *ids);
    size_t   mark = xd_arena_mark(x->tmp);
    if (!ids) {
        xd_exec_fail(x, XD_ENOMEM, "no memory for %lld positions", (long long)h.d[0]);
        return;
    }
    xd_tensor sum = xd_new_f32(x, h.d[0], c->dim), factor = xd_new_f32(x, h.d[0], c->dim);
    for (int k = 0; k < 4; k++) {
        size_t one = xd_arena_mark(x->tmp);
        corner at = { c, r, k / 2, k % 2 };
        each_place(&at, set_place, ids);
        xd_fill(x, factor, fill_weights, &at);
        xd_tensor places = xd_lookup_rows(x, g->places, ids, h.d[0], XD_F32);
        if (k)
            xd_add_gated(x, sum, factor, places);
        else
            xd_gated_into(x, sum, places, factor, XD_NONE);
        xd_arena_rewind(x->tmp, one);
    }
    xd_add(x, h, sum);
    xd_arena_rewind(x->tmp, mark);
    free(ids);
}

/* ---- running ------------------------------------------------------------------------------ */

void xd_qwen3_vision_forward(xd_exec *x, const xd_qwen_vision *c, const xd_qwen3_vision_block *w,
                             xd_state *s)
{
    xd_tensor none = { 0 };
    xd_tensor y = xd_linear(x, xd_layer_norm(x, s->h, w->gain1, w->bias1, eps), &w->qkv);
    xd_linear_add(x, s->h, none, xd_qwen_vision_attend(x, c, s->local, y, &w->qkv), &w->proj);
    y = xd_linear_act(x, xd_layer_norm(x, s->h, w->gain2, w->bias2, eps), &w->fc1, c->act);
    xd_linear_add(x, s->h, none, y, &w->fc2);
}

/* Merges the patches h [patches,dim] of each token, and writes the result to `rows` [tokens,E]. */
static void merge(xd_exec *x, const xd_qwen_vision *c, const xd_qwen3_merger *w, xd_tensor h,
                  xd_tensor rows)
{
    size_t  mark = xd_arena_mark(x->tmp);
    int64_t unit = c->merge * c->merge, shape[] = { h.d[0] / unit, c->dim * unit };
    if (w->gain.d[0] == shape[1] && unit > 1)
        h = xd_reshape(h, 2, shape);
    xd_tensor y = xd_reshape(xd_layer_norm(x, h, w->gain, w->bias, eps), 2, shape);
    xd_copy_to(x, rows, xd_linear_f32(x, xd_linear_act(x, y, &w->up, XD_GELU_ERF), &w->down));
    xd_arena_rewind(x->tmp, mark);
}

void xd_qwen3_vision_run(xd_exec *x, const xd_net *n, const xd_qwen_vision *c,
                         const xd_qwen3_vision_glob *g, const xd_text_read *r, xd_tensor rows)
{
    size_t               mark = xd_arena_mark(x->tmp);
    xd_qwen_vision_local l;
    xd_state             s = { .local = &l };
    xd_tensor            patches = xd_qwen_vision_open(x, c, r, &l);
    int                  deep = 0;
    if (!patches.nd)
        return;
    s.h = xd_linear_f32(x, patches, &g->patches);
    add_places(x, c, g, r, s.h);
    for (int i = 0; i < c->depth; i++) {
        size_t block = xd_arena_mark(x->tmp);
        xd_net_block(x, n, i, &s);
        xd_arena_rewind(x->tmp, block);
        if (deep < c->deep.n && c->deep.v[deep] == i) {
            deep++;
            merge(x, c, &g->merger[deep], s.h, xd_cols(rows, deep * c->out, c->out));
        }
    }
    merge(x, c, &g->merger[0], s.h, xd_cols(rows, 0, c->out));
    xd_arena_rewind(x->tmp, mark);
}
