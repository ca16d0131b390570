/* job_sampler.c - opens the sampler of a request with the model's scheduler config, changed by the
 * request's options */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/job.h"
#include "model/model.h"
#include "families/recipe.h"

/* Refuses a scheduler whose noise schedule does not match the model: rectified flow for a model of
 * another kind, or the reverse. Such a combination would generate garbage. */
static xd_status check_noise(const xd_job *j, const xd_sched_cfg *c, xd_err *e)
{
    const xd_recipe *p = j->ctx->model.recipe;
    if (p->max_shift > 0 && !j->sampler->flow && !c->use_flow_sigmas)
        return xd_fail(e, XD_EINVAL,
                       "%s is a model of rectified flow, which the scheduler %s does not support: "
                       "use flow-euler, or dpm++ or unipc with use_flow_sigmas",
                       p->name, j->sampler->name);
    if (p->max_shift == 0 && (j->sampler->flow || j->r->schedule.use_flow_sigmas > 0))
        return xd_fail(e, XD_EINVAL, "%s is for models of rectified flow; %s is none",
                       j->sampler->flow ? j->sampler->name : "use_flow_sigmas", p->name);
    if (p->unshifted && c->use_dynamic_shifting)
        return xd_fail(e, XD_EFORMAT,
                       "%s has no shift that depends on the size, but the scheduler's config has "
                       "use_dynamic_shifting: set it to false, or set flow_shift",
                       p->name);
    if (p->rising && !c->invert_sigmas)
        return xd_fail(e, j->r->schedule.scheduler ? XD_EINVAL : XD_EFORMAT,
                       "the scheduler %s has no invert_sigmas, which %s needs, because its "
                       "timesteps rise: use flow-euler, with \"invert_sigmas\": true in "
                       "scheduler_config.json",
                       j->sampler->name, p->name);
    return XD_OK;
}

/* Returns the list of sigmas of a distilled checkpoint, if the request has no other schedule, or
 * NULL. */
static const char *usual_sigmas(const xd_job *j)
{
    const xd_distilled *u = &j->ctx->model.usual;
    int                 steps = j->r->num_inference_steps;
    return !j->r->schedule.sigmas && !j->r->schedule.timesteps && (!steps || steps == u->steps) &&
                   (j->sampler->takes & XD_TAKES_SIGMAS) && !j->sampler->last_sigma
               ? u->sigmas
               : NULL;
}

/* If the request sets flow_shift, this value replaces the shift of the scheduler's config: the key
 * `flow_shift` of solvers, or the key `shift` of schedulers for rectified flow only. Also turns off
 * dynamic shifting, which would make the shift depend on the image size. */
static xd_status set_shift(const xd_job *j, xd_sched_cfg *c, xd_err *e)
{
    double v = j->r->schedule.flow_shift;
    if (!(v > 0) && usual_sigmas(j)) {
        c->shift = c->flow_shift = 1;
        c->use_dynamic_shifting = 0;
        c->shift_terminal = j->r->schedule.shift_terminal > 0 ? c->shift_terminal : 0;
    }
    if (!(v > 0))
        return XD_OK;
    if (!j->sampler->flow && !c->use_flow_sigmas)
        return xd_fail(e, XD_EINVAL,
                       "flow_shift is %g, but the scheduler %s has no levels of "
                       "rectified flow to shift",
                       v, j->sampler->name);
    c->shift = c->flow_shift = v;
    c->use_dynamic_shifting = 0;
    return XD_OK;
}

/* The options of a request that replace keys of a scheduler's config, and the type of each option.
 * The type is 'b' for an int that is negative for false, 'i' for an int, 'd' for a double, and 's'
 * for a text. */
#define KEY(name, kind)                                                                          \
    { #name, kind, offsetof(xd_request, schedule.name), offsetof(xd_sched_cfg, name) }
static const struct {
    const char *key;
    char        kind;
    size_t      from, to;
} keys[] = {
    KEY(use_karras_sigmas, 'b'),
    KEY(use_exponential_sigmas, 'b'),
    KEY(use_beta_sigmas, 'b'),
    KEY(use_flow_sigmas, 'b'),
    KEY(stochastic_sampling, 'b'),
    KEY(solver_order, 'i'),
    KEY(eta, 'd'),
    KEY(algorithm_type, 's'),
    KEY(solver_type, 's'),
    KEY(timestep_spacing, 's'),
    KEY(final_sigmas_type, 's'),
    KEY(shift_terminal, 'd'),
    KEY(max_timesteps, 'd'),
    KEY(intermediate_timesteps, 'd'),
};

/* Copies one key from the request to the scheduler's config; returns 0 if the request does not set
 * the key. */
static int take_key(const xd_request *r, xd_sched_cfg *c, char kind, size_t from, size_t to)
{
    const char *at = (const char *)r + from;
    char       *out = (char *)c + to;
    if (kind == 's') {
        const char *text = *(const char *const *)(const void *)at;
        size_t      n = text ? strlen(text) : 0;
        if (text) {
            memset(out, 0, XD_FIELD_TEXT);
            memcpy(out, text, n < XD_FIELD_TEXT ? n : XD_FIELD_TEXT - 1);
        }
        return text != NULL;
    }
    if (kind == 'd') {
        double v = *(const double *)(const void *)at;
        if (v >= 0)
            memcpy(out, &v, sizeof v);
        return v >= 0;
    }
    int v = *(const int *)(const void *)at, value = v > 0 ? v : 0;
    if (v)
        memcpy(out, &value, sizeof value);
    return v != 0;
}

/* Returns 1 if the request turns the feature of a key off. A request may turn a feature off even if
 * the scheduler does not have the feature's key. */
static int is_off(const xd_request *r, char kind, size_t from)
{
    const void *at = (const char *)r + from;
    return (kind == 'b' && *(const int *)at < 0) || (kind == 'd' && *(const double *)at == 0);
}

/* Refuses a key that the scheduler does not have; the error lists the schedulers that have it. */
static xd_status refuse_key(const xd_job *j, const char *key, xd_err *e)
{
    xd_text_buf b = { 0 };
    for (int i = 0; xd_samplers[i]; i++)
        if (xd_sched_has(xd_samplers[i], key))
            xd_buf_add(&b, "%s%s", b.len ? ", " : "", xd_samplers[i]->name);
    xd_fail(e, XD_EINVAL, "%s is no option of the scheduler %s; schedulers that have it: %s", key,
            j->sampler->name, b.p ? b.p : "none");
    xd_buf_free(&b);
    return XD_EINVAL;
}

/* In the scheduler's config, replaces the values of the keys that the request sets. */
static xd_status set_keys(const xd_job *j, xd_sched_cfg *c, xd_err *e)
{
    const xd_request *r = j->r;
    if (r->schedule.use_karras_sigmas > 0 || r->schedule.use_exponential_sigmas > 0 ||
        r->schedule.use_beta_sigmas > 0)
        c->use_karras_sigmas = c->use_exponential_sigmas = c->use_beta_sigmas = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (take_key(r, c, keys[i].kind, keys[i].from, keys[i].to) &&
            !xd_sched_has(j->sampler, keys[i].key) && !is_off(r, keys[i].kind, keys[i].from))
            return refuse_key(j, keys[i].key, e);
    if (r->schedule.use_flow_sigmas > 0)
        strcpy(c->prediction_type, "flow_prediction");
    return XD_OK;
}

double *xd_job_numbers(const char *key, const char *text, int *n, xd_err *e)
{
    double     *v = malloc((strlen(text) / 2 + 1) * sizeof *v);
    const char *p = text;
    char       *end;
    *n = 0;
    if (!v)
        xd_fail(e, XD_ENOMEM, "no memory for a list of %s", key);
    for (; v; p = end + 1) {
        v[*n] = strtod(p, &end);
        int wrong = end == p || (*end && *end != ',') || *p <= ' ' || !isfinite(v[*n]);
        ++*n;
        if (!wrong && *end)
            continue;
        if (!wrong)
            return v;
        xd_fail(e, XD_EINVAL,
                "%s is \"%s\"; it must be a comma-separated list of numbers, "
                "\"1,0.75,0.5\"",
                key, text);
        break;
    }
    free(v);
    return NULL;
}

/* Uses the model's list of sigmas if the scheduler takes it and the request has as many steps. */
static xd_status use_model_sigmas(const xd_job *j, xd_steps *a, double **list, xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    size_t          n = (size_t)m->nsigmas;
    if (!n || a->steps != m->nsigmas || !(j->sampler->takes & XD_TAKES_SIGMAS) ||
        j->sampler->last_sigma)
        return XD_OK;
    if (!(*list = malloc(n * sizeof **list)))
        return xd_fail(e, XD_ENOMEM, "no memory for %zu sigmas", n);
    memcpy(*list, m->sigmas, n * sizeof **list);
    a->sigmas = *list;
    return XD_OK;
}

xd_status xd_job_lists(xd_job *j, xd_steps *a, double **list, xd_err *e)
{
    const xd_request *r = j->r;
    const char       *sigmas = r->schedule.sigmas ? r->schedule.sigmas : usual_sigmas(j);
    const char       *key = sigmas ? "sigmas" : "timesteps";
    int               n = 0, steps = r->num_inference_steps;
    *list = NULL;
    if (r->schedule.sigmas && r->schedule.timesteps)
        return xd_fail(e, XD_EINVAL, "sigmas and timesteps are both given; use one of them");
    const char *times = r->schedule.timesteps ? r->schedule.timesteps
                        : steps               ? NULL
                                              : j->ctx->model.usual.timesteps;
    if (!sigmas && !times)
        return use_model_sigmas(j, a, list, e);
    if (!(*list = xd_job_numbers(key, sigmas ? sigmas : times, &n, e)))
        return XD_EINVAL;
    n -= sigmas && j->sampler->last_sigma;
    if (n < 1)
        return xd_fail(e, XD_EINVAL,
                       "%s needs at least two numbers with %s, as the last one is "
                       "the end of the last step",
                       key, j->sampler->name);
    if (steps && steps != n)
        return xd_fail(e, XD_EINVAL, "num_inference_steps is %d, but %s has %d steps", steps, key,
                       n);
    j->asked_steps = a->steps = n;
    a->sigmas = sigmas ? *list : NULL;
    a->times = sigmas ? NULL : *list;
    return XD_OK;
}

static xd_status refuse_unknown(const char *name, xd_status s, xd_err *e)
{
    xd_text_buf known = { 0 };
    xd_sampler_names(&known);
    if (strcmp(name, "DPMSolverSDEScheduler") == 0)
        xd_fail(e, s,
                "the scheduler %s is not supported: a request's seed does not set its noise; "
                "for SDE-DPM-Solver++ use the scheduler dpm++ with algorithm_type sde-dpmsolver++",
                name);
    else
        xd_fail(e, s, "unknown scheduler %s; this version has %s", name, known.p ? known.p : "");
    xd_buf_free(&known);
    return s;
}

static const char sde[] = "sde-dpmsolver++";

xd_status xd_job_sampler(xd_job *j, xd_sched_cfg *cfg, xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    const char     *file = xd_json_text(xd_json_get(m->sched, "_class_name"));
    const char     *name = j->r->schedule.scheduler ? j->r->schedule.scheduler : file;
    if (!name)
        return xd_model_named_sched(m, e);
    j->sampler = xd_sampler_find(name);
    if (!j->sampler)
        j->sampler =
            xd_sampler_webui(name, file ? xd_sampler_find(file) : NULL, m->recipe->max_shift > 0);
    if (!j->sampler)
        return refuse_unknown(name, j->r->schedule.scheduler ? XD_EINVAL : XD_EUNSUPPORTED, e);
    xd_status s = xd_model_sched(m, j->sampler, cfg, e);
    /* eta is an argument of diffusers' pipelines, so it is not read from a scheduler's config
     * file */
    cfg->eta = 0;
    /* A config of another scheduler does not say whether PNDM begins with Runge-Kutta steps. */
    if (j->r->schedule.scheduler && !xd_json_get(m->sched, "skip_prk_steps"))
        cfg->skip_prk_steps = 1;
    if (s == XD_OK && xd_sampler_is_sde(j->sampler, name))
        strcpy(cfg->algorithm_type, sde);
    if (s == XD_OK)
        s = set_keys(j, cfg, e);
    if (s == XD_OK)
        s = check_noise(j, cfg, e);
    return s == XD_OK ? set_shift(j, cfg, e) : s;
}

xd_status xd_job_audio_sampler(xd_job *j, const xd_steps *a, xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    xd_sched_cfg    c;
    if (!j->audio_numbers || !m->recipe->audio_scheduler)
        return XD_OK;
    xd_status s = xd_model_audio_sched(m, j->sampler, &c, e);
    if (s == XD_OK)
        s = set_keys(j, &c, e);
    if (s == XD_OK)
        s = xd_sampling_open(&j->audio_samp, j->sampler, &c, a, e);
    if (s == XD_OK && j->audio_samp.steps != j->samp.steps)
        s = xd_fail(e, XD_EINVAL,
                    "the schedule of audio has %d steps, that of the video %d: set another "
                    "num_inference_steps",
                    j->audio_samp.steps, j->samp.steps);
    return s;
}

xd_status xd_job_next_times(xd_job *j, xd_err *e)
{
    size_t n = (size_t)j->samp.steps;
    if (!j->ctx->model.recipe->reads_next)
        return XD_OK;
    if (!(j->next_time = calloc(n, sizeof *j->next_time)))
        return xd_fail(e, XD_ENOMEM, "no memory for %zu timesteps", n);
    memcpy(j->next_time, j->samp.time + 1, (n - 1) * sizeof *j->next_time);
    return XD_OK;
}

void xd_job_sampler_json(const xd_job *j, xd_text_buf *b)
{
    const xd_request *r = j->r;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const void *at = (const char *)r + keys[i].from;
        char        kind = keys[i].kind;
        if (kind == 's' && *(const char *const *)at) {
            xd_buf_add(b, ", \"%s\": ", keys[i].key);
            xd_buf_json_string(b, *(const char *const *)at);
        } else if (kind == 'd' && *(const double *)at >= 0) {
            xd_buf_add(b, ", \"%s\": %.10g", keys[i].key, *(const double *)at);
        } else if (kind == 'b' && *(const int *)at) {
            xd_buf_add(b, ", \"%s\": %s", keys[i].key,
                       is_off(r, kind, keys[i].from) ? "false" : "true");
        } else if (kind == 'i' && *(const int *)at) {
            xd_buf_add(b, ", \"%s\": %d", keys[i].key, *(const int *)at);
        }
    }
    if (!r->schedule.algorithm_type && xd_sampler_is_sde(j->sampler, r->schedule.scheduler))
        xd_buf_add(b, ", \"algorithm_type\": \"%s\"", sde);
    const char *list = r->schedule.sigmas ? r->schedule.sigmas : r->schedule.timesteps;
    if (list) {
        xd_buf_add(b, ", \"%s\": ", r->schedule.sigmas ? "sigmas" : "timesteps");
        xd_buf_json_string(b, list);
    }
}
