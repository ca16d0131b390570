/* qwen_vision.c - runs the vision tower of Qwen2.5-VL like transformers'
 * Qwen2_5_VisionTransformerPretrainedModel. The tower of Qwen3-VL (qwen3_vision.c) uses the order
 * of rows, the colours and the attention of this file, with a window of any size.
 *
 * The rows of tensors are the patches of all images. The patches of an attention window are
 * consecutive rows, and in a window, the patches of a token are consecutive rows. A patch is
 * treated as a short video of equal frames. */
#include "text/qwen_vision.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "text/encoder_layers.h"

static const float eps = 1e-6f;

/* ---- configuration ------------------------------------------------------------------------ */

xd_status xd_qwen_vision_check(xd_qwen_vision *c, int64_t width, xd_err *e)
{
    static const char what[] = "vision_config";
    const int64_t     sizes[] = { c->dim, c->ff, c->patch, c->frames, c->merge };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!xd_text_fits(sizes[i]) || (i > 1 && sizes[i] > 256))
            return xd_fail(e, XD_EFORMAT,
                           "%s: hidden_size %lld, intermediate_size %lld, "
                           "patch_size %lld, temporal_patch_size %lld and spatial_merge_size %lld "
                           "are invalid",
                           what, (long long)c->dim, (long long)c->ff, (long long)c->patch,
                           (long long)c->frames, (long long)c->merge);
    if (c->depth < 1 || c->depth > 10000)
        return xd_fail(e, XD_EFORMAT, "%s: depth %d is outside 1 to 10000", what, c->depth);
    if (c->channels != 3)
        return xd_fail(e, XD_EUNSUPPORTED, "%s: in_channels is %lld; it must be 3", what,
                       (long long)c->channels);
    if (c->window < c->merge * c->patch)
        return xd_fail(e, XD_EFORMAT,
                       "%s: window_size %lld is less than a token of "
                       "spatial_merge_size %lld x patch_size %lld",
                       what, (long long)c->window, (long long)c->merge, (long long)c->patch);
    if (c->out != width)
        return xd_fail(e, XD_EFORMAT,
                       "%s: out_hidden_size %lld is not the hidden_size %lld of the "
                       "language model",
                       what, (long long)c->out, (long long)width);
    if (c->token < 0 || c->token > INT32_MAX || !(c->theta > 0))
        return xd_fail(e, XD_EFORMAT, "%s: image_token_id %lld or rope_theta %g is invalid", what,
                       (long long)c->token, c->theta);
    if (!xd_text_act(c->act_fn, &c->act))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: the activation '%s' (hidden_act) is not one of " XD_TEXT_ACTS, what,
                       c->act_fn);
    xd_status s = xd_text_heads(what, c->dim, c->heads, e);
    if (s == XD_OK && c->dim / c->heads % 4)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: the head size %lld is not a multiple of 4: rope "
                       "rotates one half by the row, the other by the column",
                       what, (long long)(c->dim / c->heads));
    return s;
}

static int sees_all(const xd_qwen_vision *c, int layer)
{
    for (int i = 0; i < c->full.n; i++)
        if (c->full.v[i] == layer)
            return 1;
    return 0;
}

/* ---- weights ------------------------------------------------------------------------------ */

void xd_qwen_vision_block_weights(xd_decl *d, const xd_qwen_vision *c, xd_qwen_vision_block *w)
{
    static const char *const gate_up[] = { "gate_proj", "up_proj" };
    int64_t                  D = c->dim, head = c->heads ? D / c->heads : D, qkv[] = { D, D, D };
    xd_w_vec(d, &w->norm1, "norm1.weight", 1, &D);
    xd_w_vec(d, &w->norm2, "norm2.weight", 1, &D);
    xd_w_linear(d, &w->qkv, "attn.qkv",
                &(xd_linear_spec){
                    .in = D, .nouts = 3, .outs = qkv, .split = XD_COL, .unit = head, .bias = 1 });
    xd_w_linear(d, &w->proj, "attn.proj",
                &(xd_linear_spec){ .in = D, .out = D, .split = XD_ROW, .unit = head, .bias = 1 });
    xd_w_enter(d, "mlp");
    xd_w_fused(d, &w->gate_up,
               &(xd_fused_spec){ .n = 2,
                                 .names = gate_up,
                                 .in = D,
                                 .out = { c->ff, c->ff },
                                 .split = XD_COL,
                                 .bias = 1 });
    xd_w_linear(d, &w->down, "down_proj",
                &(xd_linear_spec){ .in = c->ff, .out = D, .split = XD_ROW, .bias = 1 });
    xd_w_leave(d);
}

void xd_qwen_vision_weights(xd_decl *d, const xd_qwen_vision *c, xd_qwen_vision_glob *g)
{
    int64_t wide = c->dim * c->merge * c->merge;
    xd_w_linear_as(d, &g->patches, "patch_embed.proj", 5,
                   (int64_t[]){ c->dim, c->channels, c->frames, c->patch, c->patch }, 0);
    xd_w_enter(d, "merger");
    xd_w_vec(d, &g->norm, "ln_q.weight", 1, &c->dim);
    xd_w_linear(d, &g->up, "mlp.0",
                &(xd_linear_spec){ .in = wide, .out = wide, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &g->down, "mlp.2",
                &(xd_linear_spec){ .in = wide, .out = c->out, .split = XD_ROW, .bias = 1 });
    xd_w_leave(d);
}

/* ---- order of tokens ---------------------------------------------------------------------- */

/* The size of an image, and the side of an attention window, both counted in tokens. */
typedef struct cells { int64_t rows, cols, side; } cells;

static cells cells_of(const xd_qwen_vision *c, const xd_text_image *i)
{
    int64_t unit = c->patch * c->merge;
    return (cells){ i->height / unit, i->width / unit, c->window / unit };
}

/* Tokens are numbered in the order of the attention windows. Computes the position (y, x) of token
 * i in its image. Sets *run to the number of tokens, from i on, that follow each other in the same
 * row of the image. */
static void place_of(const cells *s, int64_t i, int64_t *y, int64_t *x, int64_t *run)
{
    int64_t band = i / (s->side * s->cols), top = band * s->side,
            high = xd_min(s->side, s->rows - top);
    i -= top * s->cols;
    int64_t left = i / (high * s->side) * s->side, wide = xd_min(s->side, s->cols - left);
    i -= left * high;
    *y = top + i / wide;
    *x = left + i % wide;
    *run = wide - i % wide;
}

typedef struct table { /* arguments of the function that fills a table of patches */
    const xd_qwen_vision *c;
    const xd_text_read   *r;
    int                   sine;
} table;

/* Calls fn for every patch of all images, in the order of the patches. y and x are the patch's
 * position in its image, counted in patches. fn writes a row and returns the address after that
 * row. */
static void each_patch(const table *t,
                       float *(*fn)(const table *t, const xd_text_image *i, int64_t y, int64_t x,
                                    float *row),
                       float *to)
{
    int64_t m = t->c->merge;
    for (int k = 0; k < t->r->nimages; k++) {
        const xd_text_image *image = &t->r->images[k];
        cells                s = cells_of(t->c, image);
        for (int64_t i = 0; i < s.rows * s.cols; i++) {
            int64_t y, x, run;
            place_of(&s, i, &y, &x, &run);
            for (int64_t p = 0; p < m * m; p++)
                to = fn(t, image, y * m + p / m, x * m + p % m, to);
        }
    }
}

/* Writes the normalized colours of a patch in the order (channel, frame, row, column). */
static float *patch_colours(const table *t, const xd_text_image *i, int64_t y, int64_t x,
                            float *row)
{
    int64_t P = t->c->patch;
    for (int64_t c = 0; c < t->c->channels; c++)
        for (int64_t f = 0; f < t->c->frames; f++)
            for (int64_t p = 0; p < P * P; p++) {
                int64_t at = ((y * P + p / P) * i->width + x * P + p % P) * 3 + c;
                *row++ = ((float)(i->rgb ? i->rgb[at] : 0) / 255 - i->mean[c]) / i->std[c];
            }
    return row;
}

static void fill_colours(void *ctx, float *to)
{
    each_patch(ctx, patch_colours, to);
}

/* Writes the rope angles of a patch. The first half of the element pairs is rotated by the patch's
 * row, the second half by its column. */
static float *patch_angles(const table *t, const xd_text_image *i, int64_t y, int64_t x, float *row)
{
    int64_t half = t->c->dim / t->c->heads / 2;
    (void)i;
    for (int axis = 0; axis < 2; axis++)
        for (int64_t k = 0; k < half; k += 2) {
            float f = 1 / (float)pow(t->c->theta, (double)k / (double)half);
            float a = (float)(axis ? x : y) * f;
            *row++ = t->sine ? sinf(a) : cosf(a);
        }
    return row;
}

static void fill_angles(void *ctx, float *to)
{
    each_patch(ctx, patch_angles, to);
}

/* ---- running ------------------------------------------------------------------------------ */

/* Computes attention among n rows, beginning with row *at, and adds n to *at. */
static void attend_rows(xd_exec *x, xd_tensor out, const xd_tensor qkv[3], int64_t *at, int64_t n)
{
    xd_attn_over_into(x, xd_rows(out, *at, n), xd_rows(qkv[0], *at, n), xd_rows(qkv[1], *at, n),
                      xd_rows(qkv[2], *at, n), &(xd_attn_how){ 0 });
    *at += n;
}

/* Computes attention. In layers with windows, all patches of a window attend to each other; in
 * other layers, all patches of an image attend to each other. */
static xd_tensor attend(xd_exec *x, const xd_qwen_vision *c, const xd_text_read *r,
                        const xd_tensor qkv[3])
{
    xd_tensor out = xd_new_as(x, x->act, 3, qkv[0].d);
    int64_t   at = 0, unit = c->merge * c->merge;
    for (int k = 0; k < r->nimages; k++) {
        cells   s = cells_of(c, &r->images[k]);
        int64_t side = sees_all(c, x->layer) ? xd_max(s.rows, s.cols) : s.side;
        for (int64_t y = 0; y < s.rows; y += side)
            for (int64_t z = 0; z < s.cols; z += side)
                attend_rows(x, out, qkv, &at,
                            xd_min(side, s.rows - y) * xd_min(side, s.cols - z) * unit);
    }
    return out;
}

xd_tensor xd_qwen_vision_attend(xd_exec *x, const xd_qwen_vision *c, const xd_qwen_vision_local *l,
                                xd_tensor y, const xd_lin *w)
{
    xd_tensor qkv[3];
    for (int i = 0; i < 3; i++)
        qkv[i] = xd_heads(xd_seg(y, w, i), c->dim / c->heads);
    xd_qk_norm_into(x, &(xd_qknorm){ .out = qkv[0],
                                     .in = qkv[0],
                                     .cos = l->cos,
                                     .sin = l->sin,
                                     .also = { .out = qkv[1], .in = qkv[1] },
                                     .halves = 1,
                                     .eps = eps });
    return xd_flat(attend(x, c, l->r, qkv));
}

void xd_qwen_vision_forward(xd_exec *x, const xd_qwen_vision *c, const xd_qwen_vision_block *w,
                            xd_state *s)
{
    xd_tensor none = { 0 };
    xd_tensor y = xd_linear(x, xd_rms_norm(x, s->h, w->norm1, eps), &w->qkv);
    xd_linear_add(x, s->h, none, xd_qwen_vision_attend(x, c, s->local, y, &w->qkv), &w->proj);

    y = xd_linear(x, xd_rms_norm(x, s->h, w->norm2, eps), &w->gate_up);
    y = xd_gated(x, xd_seg(y, &w->gate_up, 0), xd_seg(y, &w->gate_up, 1), c->act);
    xd_linear_add(x, s->h, none, y, &w->down);
}

/* Concatenates the patches of each image token, applies the MLP, and copies the result to the row
 * of `rows` that belongs to the token. */
static void merge_patches(xd_exec *x, const xd_qwen_vision *c, const xd_qwen_vision_glob *g,
                          const xd_text_read *r, xd_tensor patches, xd_tensor rows)
{
    int64_t   unit = c->merge * c->merge, n = patches.d[0] / unit, from = 0;
    xd_tensor y =
        xd_reshape(xd_rms_norm(x, patches, g->norm, eps), 2, (int64_t[]){ n, c->dim * unit });
    y = xd_linear_f32(x, xd_linear_act(x, y, &g->up, XD_GELU_ERF), &g->down);
    for (int k = 0; k < r->nimages; k++) {
        cells s = cells_of(c, &r->images[k]);
        for (int64_t i = 0, run; i < s.rows * s.cols; i += run) {
            int64_t row, col;
            place_of(&s, i, &row, &col, &run);
            xd_copy_to(x, xd_rows(rows, from + row * s.cols + col, run), xd_rows(y, from + i, run));
        }
        from += s.rows * s.cols;
    }
}

/* Returns the number of patches of all images. If the side of an image is not a multiple of the
 * side of a token, reports an error. */
static int64_t count_patches(xd_exec *x, const xd_qwen_vision *c, const xd_text_read *r)
{
    int64_t sum = 0, unit = c->patch * c->merge;
    for (int k = 0; k < r->nimages; k++) {
        const xd_text_image *i = &r->images[k];
        cells                s = cells_of(c, i);
        if (!xd_check(x,
                      s.rows * unit == i->height && s.cols * unit == i->width &&
                          s.rows * s.cols == i->n && i->n,
                      "image %d of %lld x %lld pixels has %lld tokens", k + 1, (long long)i->width,
                      (long long)i->height, (long long)i->n))
            return 0;
        sum += i->n * c->merge * c->merge;
    }
    return sum;
}

xd_tensor xd_qwen_vision_open(xd_exec *x, const xd_qwen_vision *c, const xd_text_read *r,
                              xd_qwen_vision_local *l)
{
    int64_t np = count_patches(x, c, r), half = c->dim / c->heads / 2;
    *l = (xd_qwen_vision_local){ .r = r };
    if (!np)
        return (xd_tensor){ 0 };
    xd_tensor patches = xd_new_f32(x, np, c->channels * c->frames * c->patch * c->patch);
    xd_fill(x, patches, fill_colours, &(table){ .c = c, .r = r });
    xd_fill(x, l->cos = xd_new_f32(x, np, half), fill_angles, &(table){ .c = c, .r = r });
    xd_fill(x, l->sin = xd_new_f32(x, np, half), fill_angles,
            &(table){ .c = c, .r = r, .sine = 1 });
    return patches;
}

void xd_qwen_vision_run(xd_exec *x, const xd_net *n, const xd_qwen_vision *c,
                        const xd_qwen_vision_glob *g, const xd_text_read *r, xd_tensor rows)
{
    size_t               mark = xd_arena_mark(x->tmp);
    xd_qwen_vision_local l;
    xd_state             s = { .local = &l };
    xd_tensor            patches = xd_qwen_vision_open(x, c, r, &l);
    if (!patches.nd)
        return;
    s.h = xd_linear_f32(x, patches, &g->patches);
    for (int i = 0; i < c->depth; i++) {
        size_t block = xd_arena_mark(x->tmp);
        xd_net_block(x, n, i, &s);
        xd_arena_rewind(x->tmp, block);
    }
    merge_patches(x, c, g, r, s.h, rows);
    xd_arena_rewind(x->tmp, mark);
}

/* Calls fn for each image with the image's rows of h and of r->image_rows. Reports an error if the
 * images do not fit the tokens or the rows. */
static void each_image(xd_exec *x, const xd_text_read *r, xd_tensor h,
                       void (*fn)(xd_exec *x, xd_tensor to, xd_tensor from, int part), int part)
{
    int64_t from = 0, last = 0, have = r->image_rows.nd ? r->image_rows.d[0] : 0;
    for (int k = 0; k < r->nimages; k++) {
        const xd_text_image *i = &r->images[k];
        if (!xd_check(x, i->n > 0 && i->at >= last && i->at + i->n <= r->n && from + i->n <= have,
                      "image %d of %d has the tokens [%lld, %lld) of %lld, and %lld rows of images "
                      "are there",
                      k + 1, r->nimages, (long long)i->at, (long long)(i->at + i->n),
                      (long long)r->n, (long long)have))
            return;
        fn(x, xd_rows(h, i->at, i->n), xd_rows(r->image_rows, from, i->n), part);
        last = i->at + i->n;
        from += i->n;
    }
}

static void replace_rows(xd_exec *x, xd_tensor to, xd_tensor from, int part)
{
    xd_copy_to(x, to, xd_cols(from, part * to.d[1], to.d[1]));
}

static void add_rows(xd_exec *x, xd_tensor to, xd_tensor from, int part)
{
    xd_add(x, to, xd_cols(from, part * to.d[1], to.d[1]));
}

void xd_qwen_vision_place(xd_exec *x, const xd_text_read *r, xd_tensor h)
{
    each_image(x, r, h, replace_rows, 0);
}

void xd_qwen3_vision_add(xd_exec *x, const xd_qwen_vision *c, const xd_text_read *r, int block,
                         xd_tensor h)
{
    if (block < c->deep.n)
        each_image(x, r, h, add_rows, 1 + block);
}
