/* pass_check.c - checks the arguments of a program's call of a transformer */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "module/pass.h"

typedef struct shape { char s[96]; } shape;

static shape shape_of(xd_tensor t)
{
    shape s;
    xd_shape_text(t.nd, t.d, s.s, sizeof s.s);
    return s;
}

static xd_status check_cells(xd_pass_run *t, xd_err *e)
{
    const xd_dit_info *d = &t->m->dit;
    const char        *of = t->m->part.class_name;
    xd_tensor          l = t->latents;
    int64_t            C = d->lat_ch + d->extra_ch;
    if ((l.nd != 3 && l.nd != 4) || l.d[l.nd - 3] != C)
        return xd_fail(e, XD_EINVAL,
                       "latents have the shape %s, but %s needs frames of %lld "
                       "channels, [T,%lld,h,w], or tokens of a grid",
                       shape_of(l).s, of, (long long)C, (long long)C);
    t->cells[0] = l.nd == 4 ? l.d[0] : 1;
    t->cells[1] = l.d[l.nd - 2];
    t->cells[2] = l.d[l.nd - 1];
    for (int i = 0; i < 3; i++) {
        if (t->cells[i] < 1 || t->cells[i] % d->patch[i])
            return xd_fail(e, XD_EINVAL,
                           "latents have the shape %s; frames, rows and columns of "
                           "%s must be multiples of %d, %d and %d",
                           shape_of(l).s, of, d->patch[0], d->patch[1], d->patch[2]);
        t->lay.grid[i] = t->cells[i] / d->patch[i];
    }
    return XD_OK;
}

static xd_status check_tokens(xd_pass_run *t, xd_err *e)
{
    const int64_t *g = t->p.grid;
    xd_tensor      l = t->latents;
    t->tokens = 1;
    for (int i = 0; i < 3; i++) {
        if (g[i] < 1 || g[i] > INT32_MAX)
            return xd_fail(e, XD_EINVAL,
                           "the grid of tokens is %lld x %lld x %lld; each side must "
                           "be at least 1",
                           (long long)g[0], (long long)g[1], (long long)g[2]);
        t->lay.grid[i] = g[i];
        t->cells[i] = g[i] * t->m->dit.patch[i];
    }
    if (l.nd == 2 && l.d[0] / g[1] / g[2] == g[0] && l.d[0] == g[0] * g[1] * g[2] &&
        l.d[1] == t->F + t->extra)
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "latents have the shape %s: tokens of a grid of %lld x %lld x "
                   "%lld of %s are "
                   "%lldx%lld",
                   shape_of(l).s, (long long)g[0], (long long)g[1], (long long)g[2],
                   t->m->part.class_name, (long long)(g[0] * g[1] * g[2]),
                   (long long)(t->F + t->extra));
}

/* Fails if the latents have a size for which the model has no position embeddings. */
static xd_status check_places(const xd_pass_run *t, xd_err *e)
{
    const xd_dit_info *d = &t->m->dit;
    const int64_t     *c = t->cells, *s = d->sample;
    if (d->fixed && (c[0] != s[0] || c[1] != s[1] || c[2] != s[2]))
        return xd_fail(e, XD_EINVAL,
                       "latents have %lld x %lld x %lld cells; this model has "
                       "positions only for %lld x %lld x %lld",
                       (long long)c[0], (long long)c[1], (long long)c[2], (long long)s[0],
                       (long long)s[1], (long long)s[2]);
    for (int i = 0; i < 3; i++)
        if (d->most[i] && c[i] > d->most[i])
            return xd_fail(e, XD_EINVAL,
                           "latents have %lld x %lld x %lld cells; this model has "
                           "positions for at most %lld x %lld x %lld (0: any)",
                           (long long)c[0], (long long)c[1], (long long)c[2], (long long)d->most[0],
                           (long long)d->most[1], (long long)d->most[2]);
    return XD_OK;
}

static xd_status check_latents(xd_pass_run *t, xd_err *e)
{
    const xd_dit_info *d = &t->m->dit;
    int64_t            cells = (int64_t)d->patch[0] * d->patch[1] * d->patch[2];
    t->F = d->lat_ch * cells;
    t->extra = d->extra_ch * cells;
    if (d->audio)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s predicts video and audio together, which single passes do not support: "
                       "generate with the complete pipeline",
                       t->m->part.class_name);
    xd_status s = xd_array_tensor(&t->p.latents, "latents", &t->latents, e);
    if (s == XD_OK)
        s = t->latents.nd == 2 ? check_tokens(t, e) : check_cells(t, e);
    if (s == XD_OK)
        s = check_places(t, e);
    t->lay.len[XD_IMG] = t->lay.grid[0] * t->lay.grid[1] * t->lay.grid[2];
    if (s == XD_OK && d->multiple)
        t->lay.len[XD_PAD] = (d->multiple - t->lay.len[XD_IMG] % d->multiple) % d->multiple;
    if (s == XD_OK && (t->p.held < 0 || t->p.held > t->lay.len[XD_IMG] || (t->p.held && !d->holds)))
        s = xd_fail(e, XD_EINVAL, "%lld tokens have the timestep 0; %s accepts %lld",
                    (long long)t->p.held, t->m->part.class_name,
                    (long long)(d->holds ? t->lay.len[XD_IMG] : 0));
    return s;
}

/* Checks an input array, whose rows must have `width` elements. `needs` is 1 if the model requires
 * the array, 0 if the array is optional, and -1 if the model does not accept the array. */
static xd_status check_rows(const xd_pass_run *t, const xd_array *a, const char *what,
                            int64_t width, int needs, xd_tensor *out, xd_err *e)
{
    const char *of = t->m->part.class_name;
    if (!a->data && !a->nd)
        return needs > 0 ? xd_fail(e, XD_EINVAL, "%s is missing: %s needs rows of %lld elements",
                                   what, of, (long long)width)
                         : XD_OK;
    if (needs < 0)
        return xd_fail(e, XD_EINVAL, "%s is given, but %s has no such input", what, of);
    xd_status s = xd_array_tensor(a, what, out, e);
    if (s == XD_OK && (out->nd != 2 || out->d[1] != width || out->d[0] < 1))
        s = xd_fail(e, XD_EINVAL, "%s has the shape %s, but %s needs rows of %lld elements", what,
                    shape_of(*out).s, of, (long long)width);
    return s;
}

static xd_status check_text(xd_pass_run *t, xd_err *e)
{
    const xd_dit_info *d = &t->m->dit;
    const int64_t     *real = t->p.text_real;
    xd_status          s = check_rows(t, &t->p.text, "text", d->text_dim, 1, &t->text, e);
    int64_t            n = s == XD_OK ? t->text.d[0] : 0;
    if (s == XD_OK && ((d->text_rows && n != d->text_rows) || (d->text_most && n > d->text_most)))
        s = xd_fail(e, XD_EINVAL, "text has %lld rows; %s needs %s%lld", (long long)n,
                    t->m->part.class_name, d->text_rows ? "" : "at most ",
                    (long long)(d->text_rows ? d->text_rows : d->text_most));
    if (s == XD_OK && (real[0] < 0 || real[1] < 0 || real[0] > n || real[1] > n - real[0]))
        s = xd_fail(e, XD_EINVAL, "text_real is %lld and %lld, but text has %lld rows",
                    (long long)real[0], (long long)real[1], (long long)n);
    if (s == XD_OK)
        s = check_rows(t, &t->p.image, "image", d->image_dim, d->image_dim ? 1 : -1, &t->image, e);
    if (s == XD_OK && d->image_rows && t->image.d[0] != d->image_rows)
        s = xd_fail(e, XD_EINVAL, "image has %lld rows; %s needs %lld", (long long)t->image.d[0],
                    t->m->part.class_name, (long long)d->image_rows);
    t->rows = n + (t->image.nd ? t->image.d[0] : 0) + d->registers;
    if (d->multiple)
        t->rows = (t->rows + d->multiple - 1) / d->multiple * d->multiple;
    t->lay.len[XD_TXT] = d->txt_flows ? t->rows : 0;
    return s;
}

static xd_status check_pooled(xd_pass_run *t, xd_err *e)
{
    const xd_dit_info *d = &t->m->dit;
    xd_array           a = t->p.pooled;
    if (a.nd == 1) {
        a.nd = 2;
        a.d[1] = a.d[0], a.d[0] = 1;
    }
    xd_status s = check_rows(t, &a, "pooled", d->pooled_dim, d->pooled_dim ? 1 : -1, &t->pooled, e);
    if (s == XD_OK && t->pooled.nd && t->pooled.d[0] != 1)
        s = xd_fail(e, XD_EINVAL, "pooled has the shape %s; it must have one row",
                    shape_of(t->pooled).s);
    return s;
}

static xd_status check_references(xd_pass_run *t, xd_err *e)
{
    const xd_pass *p = &t->p;
    int64_t        n = p->nreferences, sum = 0;
    xd_status      s =
        check_rows(t, &p->reference, "reference", t->F, t->m->dit.refs ? 0 : -1, &t->reference, e);
    if (s != XD_OK || (!t->reference.nd && !n))
        return s;
    if (n < 1 || n > 1024 || !p->references)
        return xd_fail(e, XD_EINVAL,
                       "%lld reference images are given; the number must be 1 to "
                       "1024, with rows and columns of each",
                       (long long)n);
    if (!(t->refs = calloc((size_t)n, sizeof *t->refs)))
        return xd_fail(e, XD_ENOMEM, "no memory for %lld reference images", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t *r = p->references[i];
        if (r[0] < 1 || r[1] < 1 || r[0] > INT32_MAX || r[1] > INT32_MAX)
            return xd_fail(e, XD_EINVAL, "reference image %lld has %lld x %lld tokens",
                           (long long)i, (long long)r[0], (long long)r[1]);
        t->refs[i] = (xd_grid){ r[0], r[1] };
        sum += r[0] * r[1];
    }
    if (!t->reference.nd || t->reference.d[0] != sum)
        return xd_fail(e, XD_EINVAL, "reference has the shape %s, but its images have %lld tokens",
                       shape_of(t->reference).s, (long long)sum);
    t->lay.len[XD_REF] = sum;
    t->lay.nrefs = (int)n;
    t->lay.refs = t->refs;
    return XD_OK;
}

static xd_status check_residual_places(const xd_pass_run *t, xd_err *e)
{
    const xd_pass *p = &t->p;
    if (p->nresidual_at != t->m->dit.nlayers || !p->residual_at)
        return xd_fail(e, XD_EINVAL, "residual_at has %lld numbers; %s has %d blocks",
                       (long long)p->nresidual_at, t->m->part.class_name, t->m->dit.nlayers);
    for (int64_t i = 0; i < p->nresidual_at; i++)
        if (p->residual_at[i] < -1 || p->residual_at[i] >= p->nresiduals)
            return xd_fail(
                e, XD_EINVAL, "residual_at of block %lld is %lld; it must be from -1 to %lld",
                (long long)i, (long long)p->residual_at[i], (long long)p->nresiduals - 1);
    return XD_OK;
}

static xd_status check_residuals(xd_pass_run *t, xd_err *e)
{
    const xd_pass *p = &t->p;
    int64_t        n = p->nresiduals, tokens = t->lay.len[XD_IMG];
    if (!n && !p->nresidual_at)
        return XD_OK;
    if (!t->m->dit.residuals)
        return xd_fail(e, XD_EINVAL, "residuals are given, but %s has no such input",
                       t->m->part.class_name);
    if (n < 1 || n > t->m->dit.nlayers || !p->residuals)
        return xd_fail(e, XD_EINVAL, "%lld residuals are given; the number must be 1 to %d",
                       (long long)n, t->m->dit.nlayers);
    if (!(t->residuals = calloc((size_t)n, sizeof *t->residuals)))
        return xd_fail(e, XD_ENOMEM, "no memory for %lld residuals", (long long)n);
    xd_status s = check_residual_places(t, e);
    for (int64_t i = 0; i < n && s == XD_OK; i++) {
        xd_tensor *r = &t->residuals[i];
        s = check_rows(t, &p->residuals[i], "residual", t->m->dit.dim, 1, r, e);
        if (s == XD_OK && r->d[0] != tokens)
            s = xd_fail(e, XD_EINVAL, "residual %lld has %lld rows; the latents have %lld tokens",
                        (long long)i, (long long)r->d[0], (long long)tokens);
    }
    return s;
}

/* Checks the sizes of the original image and the crop's place in it. */
static xd_status check_crop(const xd_pass_run *t, xd_err *e)
{
    const double *o = t->p.original, *c = t->p.crop;
    const int     given = o[0] != 0 || o[1] != 0 || c[0] != 0 || c[1] != 0;
    if (given && !t->m->dit.micro)
        return xd_fail(e, XD_EINVAL, "original and crop are given, but %s has no such input",
                       t->m->part.class_name);
    if (!isfinite(c[0] + c[1]) || !isfinite(o[0] + o[1]) || (o[0] > 0) != (o[1] > 0) || o[0] < 0 ||
        o[1] < 0)
        return xd_fail(e, XD_EINVAL,
                       "original is %g x %g, with a crop at %g, %g; both sizes must be positive, "
                       "or 0 for those of the image",
                       o[0], o[1], c[0], c[1]);
    return XD_OK;
}

static xd_status check_numbers(const xd_pass_run *t, xd_err *e)
{
    const xd_dit_info *d = &t->m->dit;
    const char        *of = t->m->part.class_name;
    if (!isfinite(t->p.timestep))
        return xd_fail(e, XD_EINVAL, "timestep is %g; it must be from 0 to 1000", t->p.timestep);
    if (d->guided && !isfinite(t->p.guidance))
        return xd_fail(e, XD_EINVAL, "guidance is %g, but %s needs a guidance scale", t->p.guidance,
                       of);
    if (!d->guided && !isnan(t->p.guidance))
        return xd_fail(e, XD_EINVAL, "guidance is %g, but %s has no guidance input", t->p.guidance,
                       of);
    if (!(t->p.height >= 0 && t->p.width >= 0 && isfinite(t->p.height + t->p.width)) ||
        (d->micro && !(t->p.height > 0 && t->p.width > 0)))
        return xd_fail(e, XD_EINVAL,
                       "height and width are %g and %g; they must be the image's, in "
                       "pixels",
                       t->p.height, t->p.width);
    return check_crop(t, e);
}

static xd_status no_transformer(const xd_module *m, xd_err *e)
{
    return xd_fail(e, XD_EINVAL, "%s is a VAE, not a transformer: use decode or encode",
                   m->part.class_name);
}

xd_status xd_pass_run_check(xd_pass_run *t, xd_err *e)
{
    if (t->m->part.kind != XD_KIND_DIT)
        return no_transformer(t->m, e);
    t->lay.npatch = t->lay.nsp = 1;
    xd_status s = check_latents(t, e);
    s = s == XD_OK ? check_text(t, e) : s;
    s = s == XD_OK ? check_pooled(t, e) : s;
    s = s == XD_OK ? check_references(t, e) : s;
    s = s == XD_OK ? check_residuals(t, e) : s;
    return s == XD_OK ? check_numbers(t, e) : s;
}

xd_status xd_module_predicted(const xd_module *m, int nd, const int64_t *latents,
                              int64_t *prediction, xd_err *e)
{
    const xd_dit_info *d = &m->dit;
    int64_t            cells = (int64_t)d->patch[0] * d->patch[1] * d->patch[2];
    int64_t            C = d->lat_ch + d->extra_ch;
    int                at = nd == 2 ? 1 : nd - 3;
    if (m->part.kind != XD_KIND_DIT)
        return no_transformer(m, e);
    if (nd < 2 || nd > 4 || latents[at] != (nd == 2 ? C * cells : C))
        return xd_fail(e, XD_EINVAL,
                       "latents have %d dimensions and %lld channels; %s needs "
                       "cells [T,%lld,h,w] or tokens [N,%lld]",
                       nd, (long long)(nd < 2 || nd > 4 ? 0 : latents[at]), m->part.class_name,
                       (long long)C, (long long)(C * cells));
    memcpy(prediction, latents, (size_t)nd * sizeof *latents);
    prediction[at] = nd == 2 ? d->lat_ch * cells : d->lat_ch;
    return XD_OK;
}
