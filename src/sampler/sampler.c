/* sampler.c - lists the samplers, and opens their configs and schedules */
#include "sampler/sampler.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern const xd_sampler xd_sampler_dpm, xd_sampler_ddim, xd_sampler_euler, xd_sampler_flow,
    xd_sampler_ddpm, xd_sampler_unipc, xd_sampler_euler_ancestral, xd_sampler_heun, xd_sampler_lcm,
    xd_sampler_tcd, xd_sampler_flow_heun, xd_sampler_flow_lcm, xd_sampler_dpm_single,
    xd_sampler_pndm, xd_sampler_scm, xd_sampler_minimaxh3;
extern const xd_sampler xd_sampler_cogvideox_ddim, xd_sampler_cogvideox_dpm;

const xd_sampler *const xd_samplers[] = { &xd_sampler_dpm,
                                          &xd_sampler_ddim,
                                          &xd_sampler_euler,
                                          &xd_sampler_flow,
                                          &xd_sampler_cogvideox_ddim,
                                          &xd_sampler_cogvideox_dpm,
                                          &xd_sampler_ddpm,
                                          &xd_sampler_unipc,
                                          &xd_sampler_euler_ancestral,
                                          &xd_sampler_heun,
                                          &xd_sampler_lcm,
                                          &xd_sampler_tcd,
                                          &xd_sampler_flow_heun,
                                          &xd_sampler_flow_lcm,
                                          &xd_sampler_dpm_single,
                                          &xd_sampler_pndm,
                                          &xd_sampler_scm,
                                          &xd_sampler_minimaxh3,
                                          NULL };

void xd_sampler_names(xd_text_buf *b)
{
    for (int i = 0; xd_samplers[i]; i++)
        xd_buf_add(b, "%s%s", i ? ", " : "", xd_samplers[i]->name);
}

const xd_sampler *xd_sampler_find(const char *name)
{
    for (int i = 0; name && xd_samplers[i]; i++) {
        const xd_sampler *s = xd_samplers[i];
        int               hit = strcmp(s->name, name) == 0;
        for (int k = 0; k < 6 && s->classes[k]; k++)
            hit |= strcmp(s->classes[k], name) == 0;
        if (hit)
            return s;
    }
    return NULL;
}

int xd_sampler_is_sde(const xd_sampler *s, const char *name)
{
    return s->webui_sde && name && strcasecmp(s->webui_sde, name) == 0;
}

const xd_sampler *xd_sampler_webui(const char *name, const xd_sampler *own, int flow)
{
    if (own && own->webui && strcasecmp(own->webui, name) == 0)
        return own;
    for (int i = 0; name && xd_samplers[i]; i++) {
        const xd_sampler *s = xd_samplers[i];
        if (s->flow == flow &&
            ((s->webui && strcasecmp(s->webui, name) == 0) || xd_sampler_is_sde(s, name)))
            return s;
    }
    return NULL;
}

/* Config values that a scheduler class replaces by its own value: the class reads each of the
 * values `names` as `own`. */
static const struct {
    const char *class_begin;
    /* 1: the values are of the key algorithm_type; 0: of the key solver_type. */
    int         algorithm;
    const char *names[5], *own;
} renames[] = {
    { "DPMSolverMultistep", 0, { "logrho", "bh1", "bh2" }, "midpoint" },
    { "DPMSolverSinglestep", 0, { "logrho", "bh1", "bh2" }, "midpoint" },
    { "UniPC", 0, { "midpoint", "heun", "logrho" }, "bh2" },
    { "DEIS", 0, { "midpoint", "heun", "bh1", "bh2" }, "logrho" },
    { "DPMSolverMultistep", 1, { "deis" }, "dpmsolver++" },
    { "DPMSolverSinglestep", 1, { "deis" }, "dpmsolver++" },
    { "DEIS", 1, { "dpmsolver", "dpmsolver++" }, "deis" },
};

void xd_sched_rename(xd_sched_cfg *c, const char *class_name)
{
    for (size_t i = 0; class_name && i < sizeof renames / sizeof *renames; i++) {
        char *v = renames[i].algorithm ? c->algorithm_type : c->solver_type;
        int   known = 0;
        for (int k = 0; renames[i].names[k]; k++)
            known |= strcmp(renames[i].names[k], v) == 0;
        if (known && !strncmp(class_name, renames[i].class_begin, strlen(renames[i].class_begin)))
            strcpy(v, renames[i].own);
    }
}

xd_status xd_sched_read(const xd_sampler *d, xd_sched_cfg *c, const xd_json *obj, const char *what,
                        xd_err *e)
{
    memset(c, 0, sizeof *c);
    if (!xd_json_null(xd_json_get(obj, "trained_betas")))
        return xd_fail(e, XD_EUNSUPPORTED, "%s: trained_betas is not supported", what);
    if (!xd_json_null(xd_json_get(obj, "scale_factors")))
        return xd_fail(e, XD_EUNSUPPORTED, "%s: scale_factors is not supported", what);
    if (!xd_json_null(xd_json_get(obj, "solver_p")))
        return xd_fail(e, XD_EUNSUPPORTED, "%s: solver_p is not supported", what);
    xd_status s = xd_fields_read(d->fields, c, obj, what, e);
    if (s == XD_OK)
        xd_sched_rename(c, xd_json_text(xd_json_get(obj, "_class_name")));
    return s;
}

int xd_sched_has(const xd_sampler *d, const char *key)
{
    for (const xd_field *f = d->fields; f->json; f++)
        if (strcmp(f->json, key) == 0)
            return 1;
    return 0;
}

/* Refuses a request's list of timesteps or sigmas if the sampler, or its config, does not support
 * such a list. A list of timesteps may end at 0, the timestep of clean latents. */
static xd_status check_lists(const xd_sampler *d, const xd_sched_cfg *c, const xd_steps *a,
                             xd_err *e)
{
    const char *key = a->sigmas ? "sigmas" : "timesteps";
    int         takes = a->sigmas ? XD_TAKES_SIGMAS : XD_TAKES_TIMES;
    if (!a->sigmas && !a->times)
        return XD_OK;
    if (a->sigmas && a->times)
        return xd_fail(e, XD_EINVAL, "sigmas and timesteps are both given; use one of them");
    if (!(d->takes & takes))
        return xd_fail(e, XD_EINVAL, "the scheduler %s does not support a list of %s", d->name,
                       key);
    if (!d->flow && a->times &&
        (c->use_karras_sigmas || c->use_exponential_sigmas || c->use_beta_sigmas ||
         c->use_lu_lambdas || c->use_flow_sigmas))
        return xd_fail(e, XD_EINVAL,
                       "timesteps cannot be combined with the scheduler's spacing of "
                       "levels (use_..._sigmas)");
    const double *v = a->sigmas ? a->sigmas : a->times;
    double        most = !a->sigmas ? c->num_train_timesteps : d->last_sigma ? 1e6 : 1;
    for (int i = 0; i < a->steps; i++)
        if (!(v[i] <= most && v[i] >= 0) ||
            ((a->sigmas || (d->flow && (!i || i + 1 < a->steps))) && v[i] <= 0) ||
            (i && v[i] >= v[i - 1]) ||
            (a->times && !d->flow && (v[i] != (int)v[i] || v[i] >= most)))
            return xd_fail(e, XD_EINVAL,
                           "value %d of the %s is %g; values must decrease, from at "
                           "most %g to above 0%s%s",
                           i + 1, key, v[i], a->times && !d->flow ? most - 1 : most,
                           a->times ? ", or 0 at the end" : "",
                           a->times && !d->flow ? ", and be integers" : "");
    if (a->sigmas && d->last_sigma && !(v[a->steps] >= 0 && v[a->steps] < v[a->steps - 1]))
        return xd_fail(e, XD_EINVAL,
                       "the last of the sigmas is %g; it must be at least 0 and "
                       "below the others",
                       v[a->steps]);
    return XD_OK;
}

int xd_sampling_draws(const xd_sampling *s)
{
    int n = 0;
    for (int i = 0; s->def->draws && i < s->steps; i++)
        n += s->def->draws(s, i);
    return n > 0;
}

int xd_steps_skipped(const xd_steps *a, int flow)
{
    double kept = a->steps * a->strength;
    if (a->strength <= 0 || kept >= a->steps)
        return 0;
    return flow && !a->rounds_down ? (int)(a->steps - kept) : a->steps - (int)kept;
}

xd_status xd_sampling_open(xd_sampling *s, const xd_sampler *d, const xd_sched_cfg *c,
                           const xd_steps *a, xd_err *e)
{
    int steps = a->steps, kept = d->history(c);
    memset(s, 0, sizeof *s);
    s->def = d;
    s->cfg = *c;
    s->init_scale = 1;
    if (c->num_train_timesteps < 1 || c->num_train_timesteps > 1000000)
        return xd_fail(e, XD_EFORMAT, "the scheduler's num_train_timesteps is %d",
                       c->num_train_timesteps);
    if (steps < 1 || steps > c->num_train_timesteps)
        return xd_fail(e, XD_EINVAL, "num_inference_steps is %d; it must be from 1 to %d", steps,
                       c->num_train_timesteps);
    if (xd_steps_skipped(a, d->flow) >= steps)
        return xd_fail(e, XD_EINVAL, "strength %g with %d steps leaves no step; use a larger one",
                       a->strength, steps);
    if (xd_steps_skipped(a, d->flow) && !d->shares)
        return xd_fail(e, XD_EUNSUPPORTED, "the scheduler %s cannot start from an image", d->name);
    if (kept > XD_MAXHIST)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "the scheduler %s has %d history arrays; the limit is "
                       "%d (XD_MAXHIST)",
                       d->name, kept, XD_MAXHIST);
    xd_status st = check_lists(d, c, a, e);
    return st == XD_OK ? d->open(s, c, a, e) : st;
}

void xd_sampling_close(xd_sampling *s)
{
    if (s->def && s->def->close)
        s->def->close(s);
    free(s->time);
    free(s->in_scale);
    memset(s, 0, sizeof *s);
}
