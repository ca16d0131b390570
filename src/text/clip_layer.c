/* clip_layer.c - computes a transformer block, for CLIP's text model and for its vision model */
#include "text/clip_layer.h"

void xd_clip_layer_weights(xd_decl *d, const xd_clip_dims *c, xd_clip_layer *w)
{
    static const char *const qkv[] = { "q_proj", "k_proj", "v_proj" };
    int64_t                  E = c->dim, D = E / c->heads;

    xd_w_affine(d, "layer_norm1", &w->gain1, &w->bias1, E);
    xd_w_enter(d, "self_attn");
    xd_w_fused(d, &w->qkv,
               &(xd_fused_spec){ .n = 3,
                                 .names = qkv,
                                 .in = E,
                                 .out = { E, E, E },
                                 .split = XD_COL,
                                 .unit = D,
                                 .bias = 1 });
    xd_w_linear(d, &w->out, "out_proj",
                &(xd_linear_spec){ .in = E, .out = E, .split = XD_ROW, .unit = D, .bias = 1 });
    xd_w_leave(d);

    xd_w_affine(d, "layer_norm2", &w->gain2, &w->bias2, E);
    xd_w_enter(d, "mlp");
    xd_w_linear(d, &w->fc1, "fc1",
                &(xd_linear_spec){ .in = E, .out = c->ff, .split = XD_COL, .bias = 1 });
    xd_w_linear(d, &w->fc2, "fc2",
                &(xd_linear_spec){ .in = c->ff, .out = E, .split = XD_ROW, .bias = 1 });
    xd_w_leave(d);
}

/* Computes attention of q, k, v [n,H,D]. Each group of `rows` consecutive rows attends only to
 * itself. The result has the shape [n, H D]. */
static xd_tensor attend_groups(xd_exec *x, const xd_tensor qkv[3], int64_t rows)
{
    xd_tensor out = xd_new_as(x, x->act, 3, qkv[0].d);
    for (int64_t i = 0; i < out.d[0]; i += rows)
        xd_attn_over_into(x, xd_rows(out, i, rows), xd_rows(qkv[0], i, rows),
                          xd_rows(qkv[1], i, rows), xd_rows(qkv[2], i, rows), &(xd_attn_how){ 0 });
    return xd_flat(out);
}

void xd_clip_layer_run(xd_exec *x, const xd_clip_dims *c, const xd_clip_layer *w, xd_tensor h,
                       int64_t rows)
{
    xd_tensor none = { 0 }, qkv[3];
    xd_tensor y = xd_linear(x, xd_layer_norm(x, h, w->gain1, w->bias1, c->eps), &w->qkv);
    for (int i = 0; i < 3; i++)
        qkv[i] = xd_heads(xd_seg(y, &w->qkv, i), c->dim / c->heads);
    y = rows ? attend_groups(x, qkv, rows) : xd_flat(xd_attn_causal(x, qkv[0], qkv[1], qkv[2], 0));
    xd_linear_add(x, h, none, y, &w->out);

    xd_tensor a = xd_layer_norm(x, h, w->gain2, w->bias2, c->eps);
    xd_linear_add(x, h, none, xd_linear_act(x, a, &w->fc1, c->act), &w->fc2);
}
