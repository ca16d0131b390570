/* flow.c - the denoising loop: noise becomes latents, step by step.
 *
 * The engine owns the loop over steps, passes and blocks, so that methods which change who
 * computes what when act here, where a model cannot see them. One stage and one patch so far. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "exec/op.h"

void xd_flow_open(xd_flow *f, xd_job *j, xd_dev *dev, xd_arena *tmp, const xd_net *net,
                  const xd_cond *cond)
{
    const xd_dit_info *d = &j->g->model.dit_info;
    memset(f, 0, sizeof *f);
    f->j = j;
    f->net = net;
    for (int p = 0; p < j->npass; p++)
        f->cond[p] = cond[p];
    xd_exec *x = &f->x;
    xd_exec_init(x, dev, tmp, j->g->type);
    x->lay = &j->lay;
    x->cancel = dev->counts ? NULL : &j->g->cancel;
    int64_t n = xd_n(x, XD_IMG);
    f->lat = xd_new_f32(x, n, j->features);
    for (int p = 0; p < j->npass; p++)
        f->pred[p] = xd_new_f32(x, n, j->features);
    int nhist = j->sampler->history(&j->samp.cfg);
    for (int i = 0; i < nhist && i < XD_MAXHIST; i++)
        f->hist[i] = xd_new_f32(x, n, j->features);
    f->h = xd_new_f32(x, n, d->dim);
    if (!(f->local = calloc(1, d->local_size + 1)))
        xd_exec_fail(x, XD_ENOMEM, "no memory for a model's conditioning");
}

void xd_flow_close(xd_flow *f)
{
    free(f->local);
    f->local = NULL;
}

/* The latents [C,h,w] seen as tokens: [h/p, w/p, C, p, p]; both ways are copies of this view. */
static xd_tensor as_cells(const xd_flow *f, float *chw)
{
    const xd_job *j = f->j;
    const int    *p = j->g->model.dit_info.patch;
    int64_t       h = j->cells[1], w = j->cells[2];
    xd_tensor     t = xd_view(chw, XD_F32, 5, (int64_t[]){ j->lay.grid[1], j->lay.grid[2],
                                                           j->g->model.dit_info.lat_ch, p[1], p[2] });
    t.s[0] = p[1] * w, t.s[1] = p[2], t.s[2] = h * w, t.s[3] = w, t.s[4] = 1;
    return t;
}

static xd_tensor as_tokens(const xd_flow *f)
{
    return xd_reshape(f->lat, 5, as_cells(f, NULL).d);
}

void xd_flow_latents(xd_flow *f, float *out)
{
    if (!xd_ok(&f->x) || xd_counting(&f->x))
        return;
    xd_copy_to(&f->x, as_cells(f, out), as_tokens(f));
    f->x.dev->mem->sync(f->x.dev, f->x.st);
}

void xd_flow_noise(xd_flow *f, int64_t seed)
{
    const xd_job *j = f->j;
    int64_t       d[3] = { j->g->model.dit_info.lat_ch, j->cells[1], j->cells[2] };
    int64_t       n = d[0] * d[1] * d[2];
    float        *noise = malloc((size_t)n * sizeof *noise + 1);
    if (!noise) {
        xd_exec_fail(&f->x, XD_ENOMEM, "no memory for %lld numbers of noise", (long long)n);
        return;
    }
    if (strcmp(j->r->rng, "torch") == 0)
        xd_noise_torch(noise, n, seed);
    else
        xd_noise_philox(noise, 0, n, seed);
    xd_show(j, "noise", 0, 3, d, noise);
    xd_copy_to(&f->x, as_tokens(f), as_cells(f, noise));
    f->x.dev->mem->sync(f->x.dev, f->x.st);
    if (j->samp.init_scale != 1)
        xd_axpby(&f->x, f->lat, 0, (xd_tensor){ 0 }, (float)j->samp.init_scale);
    free(noise);
}

void xd_flow_pass(xd_flow *f, int step, int pass)
{
    const xd_job *j = f->j;
    const xd_dit *dit = j->g->model.dit.dit;
    xd_exec      *x = &f->x;
    size_t        mark = xd_arena_mark(x->tmp);
    xd_input      in = { .lat = f->lat, .cond = &f->cond[pass], .t = j->samp.time[step],
                         .guidance = NAN };
    in.size[0] = (double)j->size[0], in.size[1] = (double)j->size[1];
    x->step = step, x->pass = pass;
    if (j->samp.in_scale[step] != 1) {
        in.lat = xd_new_f32(x, f->lat.d[0], f->lat.d[1]);
        xd_axpby(x, in.lat, (float)j->samp.in_scale[step], f->lat, 0);
    }
    memset(f->local, 0, j->g->model.dit_info.local_size);
    xd_state s = { .h = f->h, .local = f->local };
    dit->cond(x, f->net, &in, &s);
    dit->embed(x, f->net, &in, &s);
    for (int i = f->net->first; i < f->net->last; i++) {
        size_t m = xd_arena_mark(x->tmp);
        xd_net_block(x, f->net, i, &s);
        xd_arena_rewind(x->tmp, m);
    }
    xd_copy_to(x, f->pred[pass], dit->head(x, f->net, &s));
    xd_arena_rewind(x->tmp, mark);
}

void xd_flow_step(xd_flow *f, int step)
{
    xd_job  *j = f->j;
    xd_exec *x = &f->x;
    for (int p = 0; p < j->npass; p++)
        xd_flow_pass(f, step, p);
    if (j->npass > 1)           /* negative + g (prompt - negative)                            */
        xd_axpby(x, f->pred[0], (float)(1 - j->guidance), f->pred[1], (float)j->guidance);
    size_t mark = xd_arena_mark(x->tmp);
    j->sampler->step(x, &j->samp, step, f->lat, f->pred[0], f->hist);
    xd_arena_rewind(x->tmp, mark);
}

/* The model is run once; the sampler's steps differ in what history they read, so all count. */
xd_status xd_flow_count(xd_job *j, const int64_t len[XD_MAXPASS], size_t *bytes, xd_err *e)
{
    xd_part  *p = &j->g->model.dit;
    xd_flow   f;
    xd_arena  a;
    xd_cond   cond[XD_MAXPASS] = { { { 0 }, { 0 } } };
    xd_status s = xd_part_count(p, j->g->count, j->g->type, e);
    if (s == XD_OK)
        s = xd_room_open(&a, j->g->count, 0, e);
    if (s != XD_OK)
        return s;
    for (int i = 0; i < j->npass; i++)
        cond[i].tok = xd_view2(a.base, XD_F32, len[i], j->g->model.dit_info.text_dim);
    xd_flow_open(&f, j, j->g->count, &a, &p->shadow, cond);
    xd_flow_step(&f, 0);
    for (int i = 1; i < j->samp.steps; i++) {
        size_t mark = xd_arena_mark(&a);
        j->sampler->step(&f.x, &j->samp, i, f.lat, f.pred[0], f.hist);
        xd_arena_rewind(&a, mark);
    }
    *bytes = xd_arena_peak(&a);
    s = f.x.err.code ? xd_fail(e, f.x.err.code, "%s", f.x.err.msg) : XD_OK;
    xd_flow_close(&f);
    xd_room_close(&a, j->g->count);
    return s;
}
