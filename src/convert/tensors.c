/* tensors.c - lists the tensors that a converted model component will have, and their types.
 *
 * A tensor that the network declares gets the declared name, even if the source files have another
 * name for it. If the source files use the declared names, tensors of these files that the network
 * does not declare are kept for other programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/inside.h"
#include "exec/reader.h"

/* ---- types ---------------------------------------------------------------------------------- */

static int is_plain(xd_dtype t)
{
    return t == XD_F32 || t == XD_F16 || t == XD_BF16;
}

static int is_float(xd_dtype t)
{
    return is_plain(t) || t == XD_F64 || t == XD_F8E4M3 || t == XD_F8E5M2 || xd_dtype_block(t) > 1;
}

static int has_terms(const xd_component *p, const char *name)
{
    return p->w->src.sums && p->w->src.sums->has(p->w->src.sums_self, name);
}

/* Returns the output type of a tensor that is not quantized. Vectors keep their exact values,
 * because they are converted to f32 when a model is loaded, whatever its compute type. */
static xd_dtype plain_type(const xd_cvt_part *c, xd_dtype stored, int vector, int terms)
{
    if (c->type == XD_F32)
        return XD_F32;
    if (vector)
        return is_plain(stored) && !terms ? stored : XD_F32;
    if (c->type == XD_BF16)
        return XD_BF16;
    return is_plain(stored) ? stored : stored == XD_F64 ? XD_F32 : XD_BF16;
}

/* ---- lists ---------------------------------------------------------------------------------- */

static xd_cvt_item *add_item(xd_cvt_part *c, const char *name, xd_tensor t, xd_err *e)
{
    if ((c->n & (c->n - 1)) == 0) { /* the list is full (n is a power of two): double it */
        xd_cvt_item *v = realloc(c->item, (size_t)(c->n ? 2 * c->n : 1) * sizeof *v);
        if (!v) {
            xd_fail(e, XD_ENOMEM, "no memory for the list of tensors");
            return NULL;
        }
        c->item = v;
    }
    xd_cvt_item *i = &c->item[c->n];
    *i = (xd_cvt_item){ .name = strdup(name), .t = t, .raw = -1, .unit = c->n };
    if (!i->name) {
        xd_fail(e, XD_ENOMEM, "no memory for the list of tensors");
        return NULL;
    }
    i->t.p = NULL;
    c->n++;
    return i;
}

static int is_listed(const xd_cvt_part *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->item[i].name, name) == 0)
            return 1;
    return 0;
}

/* Adds the tensor with the scales of a quantized matrix; for a matrix "a.weight", adds the tensor
 * "a.weight_scale" [out,1]. */
static xd_status add_scales(xd_cvt_part *c, const xd_cvt_item *of, xd_err *e)
{
    char          name[600];
    const int64_t out = of->t.d[0];
    const int     unit = of->unit;
    snprintf(name, sizeof name, "%.512s_scale", of->name);
    xd_cvt_item *s = add_item(c, name, xd_view2(NULL, XD_F32, out, 1), e);
    if (!s)
        return XD_ENOMEM;
    s->unit = unit;
    s->scales = 1;
    return XD_OK;
}

static xd_status add_declared(xd_cvt_part *c, const xd_declared *d, xd_err *e)
{
    const xd_component *p = c->p;
    char                name[512];
    xd_tensor           t;
    if (!xd_source_name(&p->w->src, d->name, name, sizeof name) || is_listed(c, name) ||
        !p->w->src.has(p->w->src.self, name, &t))
        return XD_OK; /* the tensor's block is never run */
    const int quantized = !d->unread && (d->type == XD_I8 || d->type == XD_F8E4M3);
    const int vector = d->unread ? d->nd < 2 : d->type == XD_F32;
    if (p->single) /* in a single-file checkpoint, the tensor may have another shape */
        t = xd_view(NULL, t.type, d->nd, d->d);
    t = xd_view(NULL, quantized ? d->type : plain_type(c, t.type, vector, has_terms(p, name)), t.nd,
                t.d);
    const int fours = !d->unread && d->type == XD_Q4_0;
    if (fours) /* safetensors has no type Q4_0: the blocks are stored as bytes */
        t = xd_view2(NULL, XD_U8, t.d[0], (int64_t)xd_dtype_bytes(XD_Q4_0, t.d[1]));
    xd_cvt_item *i = add_item(c, name, t, e);
    if (i) {
        i->quantized = quantized;
        i->fours = fours;
        i->rotate = fours ? xd_four_rotation(d->d[1]) : 0;
    }
    return !i ? XD_ENOMEM : quantized ? add_scales(c, i, e) : XD_OK;
}

/* Adds a tensor of the source files that the component does not declare. */
static xd_status add_other(xd_cvt_part *c, int64_t at, xd_err *e)
{
    const char *name = xd_st_name(c->p->files, at);
    xd_tensor   t;
    xd_coding   codes;
    if (xd_component_is_note(name) || is_listed(c, name) ||
        !c->p->raw.has(c->p->raw.self, name, &t))
        return XD_OK;
    if (is_float(t.type) ||
        (c->p->raw.codes && xd_is_coded(t.type) && c->p->raw.codes(c->p->raw.self, name, &codes)))
        t = xd_view(NULL, plain_type(c, t.type, t.nd < 2, 0), t.nd, t.d);
    xd_cvt_item *i = add_item(c, name, t, e);
    if (i)
        i->raw = at;
    return i ? XD_OK : XD_ENOMEM;
}

xd_status xd_cvt_list(xd_cvt_part *c, xd_err *e)
{
    xd_declared *list = NULL;
    int          n = 0;
    int          small = c->type == XD_I8 || c->type == XD_F8E4M3 || c->type == XD_Q4_0;
    xd_dtype     blocks = small ? (xd_dtype)c->type : XD_BF16;
    xd_status    s = xd_component_list(c->p, blocks, &list, &n, e);
    for (int i = 0; i < n && s == XD_OK; i++)
        s = add_declared(c, &list[i], e);
    for (int64_t i = 0; !c->p->single && i < xd_st_count(c->p->files) && s == XD_OK; i++)
        s = add_other(c, i, e);
    free(list);
    return s;
}
