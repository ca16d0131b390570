/* embedder.c - turns the rows of an image encoder into rows of text for a transformer, like
 * diffusers' ReduxImageEncoder: a linear layer, SiLU, and a second linear layer. */
#include <stddef.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "text/encoder_layers.h"
#include "text/text.h"

enum { TIMES = 3, ROWS = 1024 }; /* ROWS: number of rows that are computed together */

typedef struct cfg { int64_t in, out; } cfg; /* the config */

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "redux_dim", AT(in), 'l', 1152, NULL },
    { "txt_in_features", AT(out), 'l', 4096, NULL },
    { NULL, 0, 0, 0, NULL },
};

typedef struct glob { xd_lin up, down; } glob;

static xd_status check_config(void *c_, xd_err *e)
{
    const cfg *c = c_;
    if (xd_text_fits(c->in) && xd_text_fits(c->out))
        return XD_OK;
    return xd_fail(e, XD_EFORMAT,
                   "image embedder: redux_dim %lld and txt_in_features %lld must be 1 to %d",
                   (long long)c->in, (long long)c->out, (int)XD_TEXT_MAX);
}

static int nlayers(const void *c)
{
    (void)c;
    return 0;
}

static const xd_block *block(const void *c, int layer)
{
    (void)c, (void)layer;
    return NULL;
}

static int64_t width(const void *c)
{
    return ((const cfg *)c)->out;
}

static int64_t width_of_states(const void *c)
{
    return ((const cfg *)c)->in;
}

static void weights(xd_decl *d, const void *c_, void *g_)
{
    const cfg *c = c_;
    glob      *g = g_;
    int64_t    inner = TIMES * c->out;
    xd_w_linear(d, &g->up, "redux_up", &(xd_linear_spec){ .in = c->in, .out = inner, .bias = 1 });
    xd_w_linear(d, &g->down, "redux_down",
                &(xd_linear_spec){ .in = inner, .out = c->out, .bias = 1 });
}

static void embed(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_cond *out)
{
    const cfg  *c = n->cfg;
    const glob *g = n->glob;
    *out = (xd_cond){ .tok = xd_new_f32(x, r->n, c->out) };
    if (!xd_check(x, r->states || xd_counting(x), "an image embedder without an encoded image"))
        return;
    for (int64_t at = 0, rows; at < r->n; at += rows) {
        size_t mark = xd_arena_mark(x->tmp);
        rows = xd_min(r->n - at, ROWS);
        xd_tensor in = xd_new_f32(x, rows, c->in);
        xd_put(x, in, r->states ? r->states + at * c->in : NULL);
        xd_linear_into(x, xd_rows(out->tok, at, rows), xd_linear_act(x, in, &g->up, XD_SILU),
                       &g->down);
        xd_arena_rewind(x->tmp, mark);
    }
}

extern const xd_text xd_text_embedder;

const xd_text xd_text_embedder = {
    .net = { .name = "embedder",
             .classes = { "ReduxImageEncoder" },
             .fields = fields,
             .cfg_size = sizeof(cfg),
             .glob_size = sizeof(glob),
             .check = check_config,
             .nlayers = nlayers,
             .block = block,
             .weights = weights },
    .width = width,
    .reads = width_of_states,
    .hidden = embed,
};
