/* engine.c - opening an engine, and the rooms of a request in their order */
#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/par.h"

/* ---- opening ------------------------------------------------------------------------------ */

static xd_status take_dtype(xd_engine *g, const char *dtype, xd_err *e)
{
    if (dtype && strcmp(dtype, "f32") != 0 && strcmp(dtype, "bf16") != 0)
        return xd_fail(e, XD_EINVAL, "dtype is \"%s\"; it can be f32 or bf16", dtype);
    xd_dtype want = !dtype ? xd_dev_best(g->dev) : strcmp(dtype, "f32") == 0 ? XD_F32 : XD_BF16;
    g->type = xd_dev_compute(g->dev, want);
    if (g->type != want)
        xd_log(XD_LOG_INFO, "bf16 is computed in f32: %s has no bf16 arithmetic that is faster",
               g->dev->name);
    return XD_OK;
}

xd_status xd_open(xd_engine **out, const xd_open_args *a, xd_err *e)
{
    return xd_open_with(out, a, 1, e);
}

xd_status xd_open_with(xd_engine **out, const xd_open_args *a, int files, xd_err *e)
{
    *out = NULL;
    xd_log_sink(a->log, a->cookie, a->log_level);
    if (a->threads < 0 || a->threads > 4096)
        return xd_fail(e, XD_EINVAL, "threads is %d; it must be from 1 to 4096", a->threads);
    xd_engine *g = calloc(1, sizeof *g);
    if (!g)
        return xd_fail(e, XD_ENOMEM, "no memory for an engine");
    g->keep = a->keep;
    xd_par_set(a->threads);
    xd_status s = xd_model_open(&g->model, a->model, e);
    if (s == XD_OK)
        s = xd_dev_open(&g->dev, a->device ? a->device : "cpu", e);
    if (s == XD_OK)
        s = xd_dev_open_count(&g->count, g->dev, e);
    if (s == XD_OK)
        s = take_dtype(g, a->dtype, e);
    if (s == XD_OK && files)
        s = xd_model_files(&g->model, e);
    if (s != XD_OK) {
        xd_close(&g);
        return s;
    }
    g->hash = xd_model_hash(&g->model);
    *out = g;
    return XD_OK;
}

void xd_close(xd_engine **g)
{
    if (!g || !*g)
        return;
    xd_model_close(&(*g)->model);
    xd_dev_close(&(*g)->count);
    xd_dev_close(&(*g)->dev);
    free(*g);
    *g = NULL;
}

void xd_cancel(xd_engine *g)
{
    if (g)
        g->cancel = 1;
}

/* ---- the loop over images ----------------------------------------------------------------- */

typedef struct loop {
    xd_job   *j;
    xd_arena  a;
    xd_result *r;
    double    first_s;          /* when the first step began                                   */
} loop;

static int finite(const float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return 0;
    return 1;
}

static void report(const loop *l, int image, int step, double t0)
{
    const xd_job *j = l->j;
    xd_progress   p = { step + 1, j->samp.steps, image + 1, j->images, xd_now_s() - t0,
                        xd_now_s() - j->start_s };
    if (j->r->on_step)
        j->r->on_step(j->r->cookie, &p);
}

/* Noise to latents of one image: [C,h,w], malloc'ed. */
static float *denoise(loop *l, int image, const xd_words *w, xd_err *e)
{
    xd_job   *j = l->j;
    xd_engine *g = j->g;
    int64_t   d[3] = { g->model.dit_info.lat_ch, j->cells[1], j->cells[2] }, n = d[0] * d[1] * d[2];
    float    *lat = malloc((size_t)n * sizeof *lat + 1);
    xd_cond   cond[XD_MAXPASS] = { w->cond[image / j->r->num_images_per_prompt], w->cond[w->n - 1] };
    xd_flow   f;
    xd_arena_rewind(&l->a, 0);
    xd_flow_open(&f, j, g->dev, &l->a, &g->model.dit.net, cond);
    if (!lat)
        xd_exec_fail(&f.x, XD_ENOMEM, "no memory for latents");
    xd_flow_noise(&f, (int64_t)((uint64_t)j->r->seed + (uint64_t)image));
    for (int step = 0; step < j->samp.steps && xd_ok(&f.x); step++) {
        double t0 = xd_now_s();
        if (l->first_s == 0)
            xd_result_time(l->r, "first_step", (l->first_s = t0) - j->start_s);
        xd_flow_step(&f, step);
        if (j->r->on_tensor && lat) {
            xd_flow_latents(&f, lat);
            xd_show(j, "latents", step, 3, d, lat);
        }
        if (xd_ok(&f.x))
            report(l, image, step, t0);
    }
    if (lat)
        xd_flow_latents(&f, lat);
    if (xd_ok(&f.x) && !finite(lat, n))
        xd_log(XD_LOG_WARN, "picture %d holds NaN or infinite latents", image + 1);
    if (!xd_ok(&f.x)) {
        xd_fail(e, f.x.err.code, "%s", f.x.err.msg);
        free(lat);
        lat = NULL;
    }
    xd_flow_close(&f);
    return lat;
}

/* Latents to a picture of the size asked for: [H,W,3], malloc'ed. */
static float *decode(loop *l, const float *lat, xd_err *e)
{
    xd_job *j = l->j;
    xd_exec x;
    float  *rgb = malloc((size_t)(j->size[0] * j->size[1]) * 3 * sizeof *rgb + 1);
    if (!rgb) {
        xd_fail(e, XD_ENOMEM, "no memory for a picture");
        return NULL;
    }
    xd_arena_rewind(&l->a, 0);
    xd_exec_init(&x, j->g->dev, &l->a, j->g->type);
    x.cancel = &j->g->cancel;
    xd_light(&x, j, &j->g->model.vae.net, lat, rgb);
    if (!xd_ok(&x) || xd_light_fit(j, &rgb, e) != XD_OK) {
        xd_fail(e, x.err.code, "%s", x.err.msg);
        free(rgb);
        return NULL;
    }
    return rgb;
}

static xd_status one_image(loop *l, int image, const xd_words *w, xd_err *e)
{
    xd_job *j = l->j;
    double  t0 = xd_now_s();
    xd_stage(j, "denoise");
    float *lat = denoise(l, image, w, e), *rgb = NULL;
    if (!lat)
        return e->code;
    xd_result_time(l->r, "denoise", xd_now_s() - t0);
    t0 = xd_now_s();
    if (!j->r->latents_only) {
        xd_stage(j, "decode");
        if (!(rgb = decode(l, lat, e))) {
            free(lat);
            return e->code;
        }
    }
    xd_result_time(l->r, "decode", xd_now_s() - t0);
    xd_status s = xd_result_add(l->r, j, image, lat, rgb, e);
    if (s == XD_OK && j->r->on_image)
        s = j->r->on_image(j->r->cookie, l->r, image, e);
    return s;
}

static xd_status paint(loop *l, const xd_need *need, const xd_words *w, xd_err *e)
{
    xd_job    *j = l->j;
    xd_engine *g = j->g;
    double     t0 = xd_now_s();
    xd_stage(j, "load");
    xd_status s = xd_part_load(&g->model.dit, g->dev, g->type, 0, e);
    if (s == XD_OK && !j->r->latents_only)
        s = xd_part_load(&g->model.vae, g->dev, g->type, 0, e);
    if (s == XD_OK)
        s = xd_room_open(&l->a, g->dev,
                         need->dit_tmp > need->vae_tmp ? need->dit_tmp : need->vae_tmp, e);
    xd_result_time(l->r, "load", xd_now_s() - t0);
    for (int i = 0; s == XD_OK && i < j->images; i++)
        s = one_image(l, i, w, e);
    xd_room_close(&l->a, g->dev);
    return s;
}

xd_status xd_generate(xd_engine *g, const xd_request *r, xd_result **out, xd_err *e)
{
    xd_err   mine = { 0 };
    xd_job   j = { 0 };
    xd_words w = { 0 };
    xd_need  need;
    loop     l = { .j = &j };
    double   t0 = xd_now_s();
    *out = NULL;
    g->cancel = 0;
    xd_status s = xd_job_open(&j, g, r, &mine);
    if (s == XD_OK)
        s = xd_words_open(&w, &j, &mine);
    if (s == XD_OK)
        s = xd_memory_plan(&j, &w, &need, &mine);
    if (s == XD_OK)
        s = xd_result_open(&l.r, &j, &mine);
    if (s == XD_OK) {
        xd_stage(&j, "text");
        double t1 = xd_now_s();
        s = xd_words_encode(&w, &j, &mine);
        xd_result_time(l.r, "text", xd_now_s() - t1);
    }
    if (s == XD_OK)
        s = paint(&l, &need, &w, &mine);
    if (s == XD_OK)
        xd_result_time(l.r, "total", xd_now_s() - t0);
    xd_words_close(&w, g);
    xd_job_close(&j);
    if (s != XD_OK) {
        xd_result_free(&l.r);
        return xd_fail(e, s, "%s", mine.msg);
    }
    *out = l.r;
    return XD_OK;
}
