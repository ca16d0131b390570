/* job.c - the door: a request is checked and completed before anything is loaded */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"

void xd_request_init(xd_request *r)
{
    memset(r, 0, sizeof *r);
    r->guidance_scale = -1;
    r->num_images_per_prompt = 1;
    r->rng = "philox";
}

/* One number or text against its row of the option table. */
static xd_status check_option(const xd_option *o, const xd_request *r, xd_err *e)
{
    const char *at = (const char *)r + o->offset;
    double      v = 0;
    if (o->kind == XD_OPT_INT || o->kind == XD_OPT_FLAG)
        v = (double)*(const int *)(const void *)at;
    else if (o->kind == XD_OPT_INT64)
        v = (double)*(const int64_t *)(const void *)at;
    else if (o->kind == XD_OPT_REAL)
        v = *(const double *)(const void *)at;
    if (o->kind == XD_OPT_TEXT) {
        const char *text = *(const char *const *)(const void *)at, *p = o->choices;
        size_t      n = text ? strlen(text) : 0;
        for (; text && p && *p; p += strcspn(p, " "), p += *p == ' ')
            if (strcspn(p, " ") == n && memcmp(p, text, n) == 0)
                return XD_OK;
        if (text && o->choices)
            return xd_fail(e, XD_EINVAL, "%s is \"%s\"; it can be one of: %s", o->name, text,
                           o->choices);
        return XD_OK;
    }
    if (o->kind != XD_OPT_FLAG && !(v >= o->min && v <= o->max))
        return xd_fail(e, XD_EINVAL, "%s is %.10g; it must be from %.10g to %.10g", o->name, v,
                       o->min, o->max);
    return XD_OK;
}

static xd_status check_options(const xd_request *r, xd_err *e)
{
    int              n;
    const xd_option *o = xd_request_options(&n);
    xd_request       plain;
    xd_request_init(&plain);
    for (int i = 0; i < n; i++) {
        size_t size = o[i].kind == XD_OPT_INT || o[i].kind == XD_OPT_FLAG ? sizeof(int) : 8;
        if (memcmp((const char *)r + o[i].offset, (const char *)&plain + o[i].offset, size) == 0)
            continue;           /* the default, which may lie outside ("the model's")          */
        xd_status s = check_option(&o[i], r, e);
        if (s != XD_OK)
            return s;
    }
    return XD_OK;
}

/* A size must cut into whole tokens; says which sizes near it do. */
static xd_status check_side(const char *name, int64_t v, int64_t cell, int64_t patch, xd_err *e)
{
    int64_t unit = cell * patch, low = v / unit * unit;
    if (v % unit == 0)
        return XD_OK;
    if (low < unit)
        return xd_fail(e, XD_EINVAL, "%s %lld is not a multiple of %lld (VAE factor %lld x patch "
                       "%lld); the nearest that works is %lld", name, (long long)v,
                       (long long)unit, (long long)cell, (long long)patch, (long long)unit);
    return xd_fail(e, XD_EINVAL, "%s %lld is not a multiple of %lld (VAE factor %lld x patch "
                   "%lld); the nearest that work are %lld and %lld", name, (long long)v,
                   (long long)unit, (long long)cell, (long long)patch, (long long)low,
                   (long long)(low + unit));
}

static xd_status take_size(xd_job *j, xd_err *e)
{
    const xd_model    *m = &j->g->model;
    const xd_dit_info *d = &m->dit_info;
    const int         *cell = m->vae_info.cell;
    j->asked[0] = j->r->height ? j->r->height : d->sample[1] * cell[1];
    j->asked[1] = j->r->width ? j->r->width : d->sample[2] * cell[2];
    j->size[0] = j->asked[0], j->size[1] = j->asked[1];
    if (!j->r->no_resolution_binning && m->recipe->largest_bin)
        xd_bin_nearest(d->sample[1], m->recipe->largest_bin, &j->size[0], &j->size[1]);
    xd_status s = check_side("width", j->size[1], cell[2], d->patch[2], e);
    if (s == XD_OK)
        s = check_side("height", j->size[0], cell[1], d->patch[1], e);
    for (int i = 1; s == XD_OK && i < 3; i++)
        if (d->most[i] && j->size[i - 1] / cell[i] > d->most[i])
            s = xd_fail(e, XD_EINVAL, "%s %lld is more than the %lld pixels that the model has positions "
                        "for", i == 1 ? "height" : "width", (long long)j->size[i - 1],
                        (long long)(d->most[i] * cell[i]));
    if (s != XD_OK)
        return s;
    j->cells[0] = 1;
    j->cells[1] = j->size[0] / cell[1];
    j->cells[2] = j->size[1] / cell[2];
    j->lay = (xd_layout){ .npatch = 1, .nsp = 1, .grid = { 1, 0, 0 } };
    j->lay.grid[1] = j->cells[1] / d->patch[1];
    j->lay.grid[2] = j->cells[2] / d->patch[2];
    j->tokens = j->lay.len[XD_IMG] = j->lay.grid[1] * j->lay.grid[2];
    j->features = d->lat_ch * d->patch[1] * d->patch[2];
    return XD_OK;
}

static xd_status take_sampler(xd_job *j, xd_err *e)
{
    const xd_model *m = &j->g->model;
    const char     *file = xd_json_text(xd_json_get(m->sched, "_class_name"));
    const char     *name = j->r->scheduler ? j->r->scheduler : file;
    xd_sched_cfg    cfg;
    int             steps = j->r->num_inference_steps;
    if (!name)
        return xd_fail(e, XD_EFORMAT, "%s has no scheduler/scheduler_config.json with a "
                       "_class_name; name one with --scheduler", m->dir);
    if (!(j->sampler = xd_sampler_find(name))) {
        char known[256] = "";
        for (int i = 0; xd_samplers[i]; i++) {
            strcat(known, i ? ", " : "");
            strcat(known, xd_samplers[i]->name);
        }
        return xd_fail(e, j->r->scheduler ? XD_EINVAL : XD_EUNSUPPORTED,
                       "the scheduler %s is not known; this version has %s", name, known);
    }
    xd_status s = xd_sched_read(j->sampler, &cfg, m->sched, "scheduler_config.json", e);
    if (s != XD_OK)
        return s;
    xd_steps a = { steps ? steps : m->recipe->steps, j->tokens, m->recipe->own_sigmas, 0 };
    if (j->r->image)            /* diffusers' default                                          */
        a.strength = j->r->strength > 0 ? j->r->strength : 0.6;
    else if (j->r->strength > 0)
        return xd_fail(e, XD_EINVAL, "strength %g is given without a picture to start from (image)",
                       j->r->strength);
    if (j->r->image && !j->sampler->flow)
        return xd_fail(e, XD_EUNSUPPORTED, "%s cannot start from a picture: its scheduler %s is none of "
                       "rectified flow", m->recipe->name, j->sampler->name);
    return xd_sampling_open(&j->samp, j->sampler, &cfg, &a, e);
}

xd_status xd_job_open(xd_job *j, xd_engine *g, const xd_request *r, xd_err *e)
{
    memset(j, 0, sizeof *j);
    j->g = g;
    j->r = r;
    j->start_s = xd_now_s();
    if (r->nprompts < 1 || !r->prompts)
        return xd_fail(e, XD_EINVAL, "no prompt is given");
    xd_status s = check_options(r, e);
    if (s == XD_OK)
        s = take_size(j, e);
    if (s == XD_OK)
        s = take_sampler(j, e);
    if (s != XD_OK)
        return s;
    j->guidance = r->guidance_scale < 0 ? g->model.recipe->guidance : r->guidance_scale;
    j->distilled = g->model.dit_info.guided ? j->guidance : NAN;
    if (g->model.recipe->distilled)
        j->guidance = r->negative_prompt ? r->true_cfg_scale : 0;
    j->npass = j->guidance > 1 ? 2 : 1;
    j->max_text = r->max_sequence_length ? r->max_sequence_length : g->model.recipe->max_text;
    if ((int64_t)r->nprompts * r->num_images_per_prompt > 1000000)
        return xd_fail(e, XD_EINVAL, "%lld images in one request are more than 1000000",
                       (long long)r->nprompts * r->num_images_per_prompt);
    j->images = r->nprompts * r->num_images_per_prompt;
    if ((s = xd_start_read(j, e)) != XD_OK)
        return s;
    if (j->size[0] != j->asked[0] || j->size[1] != j->asked[1])
        xd_log(XD_LOG_INFO, "painting %lld x %lld, the trained size nearest to %lld x %lld, and "
               "resizing (--no_resolution_binning paints the size itself)", (long long)j->size[1],
               (long long)j->size[0], (long long)j->asked[1], (long long)j->asked[0]);
    return XD_OK;
}

void xd_job_close(xd_job *j)
{
    xd_sampling_close(&j->samp);
    xd_start_close(j);
}

void xd_show(const xd_job *j, const char *name, int step, int nd, const int64_t *d,
             const float *data)
{
    if (j->r->on_tensor)
        j->r->on_tensor(j->r->cookie, name, step, nd, d, data);
}

void xd_stage(const xd_job *j, const char *name)
{
    xd_trace_phase(j->g->trace, name);
    if (j->r->on_stage)
        j->r->on_stage(j->r->cookie, name);
}
