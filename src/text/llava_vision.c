/* llava_vision.c - runs the vision tower of LLaVA like transformers' LlavaModel.
 *
 * The projector reads a hidden state of CLIP's vision model without the class token. The blocks
 * after this hidden state, one in published models, are neither loaded nor run. */
#include "text/llava_vision.h"

#include <string.h>

#include "text/encoder_layers.h"

/* ---- configuration ------------------------------------------------------------------------ */

xd_status xd_llava_vision_check(xd_llava_vision *c, int64_t width, xd_err *e)
{
    xd_status s = xd_clip_vision_check(&c->clip, e);
    if (s != XD_OK)
        return s;
    c->out = width;
    c->blocks = c->layer < 0 ? c->clip.nlayers + 1 + c->layer : c->layer;
    if (c->blocks < 1 || c->blocks > c->clip.nlayers)
        return xd_fail(e, XD_EFORMAT,
                       "LLaVA: vision_feature_layer %d is not one of %d layers of the vision model",
                       c->layer, c->clip.nlayers);
    if (strcmp(c->strategy, "default") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "LLaVA: vision_feature_select_strategy '%s' is not 'default'", c->strategy);
    if (c->token < 0 || c->token > INT32_MAX)
        return xd_fail(e, XD_EFORMAT, "LLaVA: image_token_index %lld is invalid",
                       (long long)c->token);
    if (!xd_text_act(c->act_fn, &c->act))
        return xd_fail(
            e, XD_EUNSUPPORTED,
            "LLaVA: the activation '%s' (projector_hidden_act) is not one of " XD_TEXT_ACTS,
            c->act_fn);
    return XD_OK;
}

int64_t xd_llava_vision_tokens(const xd_llava_vision *c)
{
    return xd_clip_vision_rows(&c->clip) - 1;
}

/* ---- weights ------------------------------------------------------------------------------ */

void xd_llava_vision_weights(xd_decl *d, const xd_llava_vision *c, xd_llava_vision_glob *g)
{
    int64_t E = c->clip.of.dim, D = c->out;
    xd_w_enter(d, "vision_tower");
    xd_clip_vision_weights(d, &c->clip, &g->clip);
    xd_w_leave(d);
    xd_w_enter(d, "multi_modal_projector");
    xd_w_linear(d, &g->up, "linear_1", &(xd_linear_spec){ .in = E, .out = D, .bias = c->bias });
    xd_w_linear(d, &g->down, "linear_2", &(xd_linear_spec){ .in = D, .out = D, .bias = c->bias });
    xd_w_leave(d);
}

/* ---- running ------------------------------------------------------------------------------ */

/* Writes the projected patches of the image whose rows are h to `rows`. */
static void project(xd_exec *x, const xd_llava_vision *c, const xd_llava_vision_glob *g,
                    xd_tensor h, xd_tensor rows)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor in = xd_new(x, rows.d[0], h.d[1]);
    xd_copy_to(x, in, xd_rows(h, 1, rows.d[0]));
    xd_linear_into(x, rows, xd_linear_act(x, in, &g->up, c->act), &g->down);
    xd_arena_rewind(x->tmp, mark);
}

void xd_llava_vision_run(xd_exec *x, const xd_net *n, const xd_llava_vision *c,
                         const xd_llava_vision_glob *g, const xd_text_read *r, xd_tensor rows)
{
    int64_t m = xd_clip_vision_rows(&c->clip), images = rows.d[0] / (m - 1),
            pixels = c->clip.channels * c->clip.side * c->clip.side;
    size_t  mark = xd_arena_mark(x->tmp);
    if (!xd_check(x, r->pixels || xd_counting(x), "a vision tower without an image") ||
        !xd_check(x, rows.d[0] == images * (m - 1), "%lld rows of images with %lld rows each",
                  (long long)rows.d[0], (long long)m - 1))
        return;
    xd_state s = { .h = xd_new_f32(x, images * m, c->clip.of.dim) };
    for (int64_t i = 0; i < images; i++)
        xd_clip_vision_embed(x, &c->clip, &g->clip, r->pixels ? r->pixels + i * pixels : NULL,
                             xd_rows(s.h, i * m, m));
    for (int i = 0; i < c->blocks; i++) {
        size_t block = xd_arena_mark(x->tmp);
        xd_net_block(x, n, i, &s);
        xd_arena_rewind(x->tmp, block);
    }
    for (int64_t i = 0; i < images; i++)
        project(x, c, g, xd_rows(s.h, i * m, m), xd_rows(rows, i * (m - 1), m - 1));
    xd_arena_rewind(x->tmp, mark);
}
