/* encoder_layers.c - parses names of activations, checks sizes and head counts, and converts
 * indices of hidden states, for several text encoders */
#include "text/encoder_layers.h"

#include "text/text.h"

#include <string.h>

int xd_text_act(const char *name, xd_act *act)
{
    static const struct {
        const char *name;
        xd_act      act;
    } acts[] = {
        { "relu", XD_RELU },
        { "gelu_new", XD_GELU_TANH },
        { "gelu_pytorch_tanh", XD_GELU_TANH },
        { "gelu", XD_GELU_ERF },
        { "silu", XD_SILU },
        { "swish", XD_SILU },
        { "quick_gelu", XD_GELU_QUICK },
    };
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        if (strcmp(name, acts[i].name) == 0) {
            *act = acts[i].act;
            return 1;
        }
    return 0;
}

int xd_text_fits(int64_t extent)
{
    return extent >= 1 && extent <= XD_TEXT_MAX;
}

xd_status xd_text_heads(const char *what, int64_t dim, int heads, xd_err *e)
{
    if (heads < 1 || dim % heads)
        return xd_fail(e, XD_EFORMAT,
                       "%s: hidden_size %lld is not divisible by "
                       "num_attention_heads %d",
                       what, (long long)dim, heads);
    if (dim / heads < 8 || dim / heads > 512)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: hidden_size %lld and num_attention_heads %d make heads of %lld, which "
                       "is outside 8 to 512",
                       what, (long long)dim, heads, (long long)(dim / heads));
    return XD_OK;
}

int xd_text_layer(const xd_net *n, int number)
{
    int k = number < 0 ? number + n->nlayers + 1 : number;
    return k < 0 ? 0 : k > n->nlayers ? n->nlayers : k;
}

xd_tensor xd_text_run_vision(const xd_text *t, xd_exec *x, const xd_net *n, const xd_text_read *r)
{
    int64_t       tokens = 0;
    xd_text_tower tower = { 0 };
    for (int k = 0; k < r->nimages; k++)
        tokens += r->images[k].n;
    if (!tokens || !t->run_vision)
        return (xd_tensor){ 0 };
    t->tower(n->cfg, &tower);
    xd_tensor rows = xd_new_f32(x, tokens, (1 + tower.deep) * t->width(n->cfg));
    t->run_vision(x, n, r, rows);
    return rows;
}

void xd_text_encode(const xd_text *t, xd_exec *x, const xd_net *n, const xd_text_read *r,
                    xd_cond *out)
{
    if (t->hidden)
        t->hidden(x, n, r, out);
    else
        t->encode(x, n, r->ids, r->n, r->real, out);
}

int xd_text_blocks(const xd_net *n, const int *numbers, int count)
{
    int max = 0;
    for (int i = 0; i < count; i++)
        max = xd_text_layer(n, numbers[i]) > max ? xd_text_layer(n, numbers[i]) : max;
    return max;
}
