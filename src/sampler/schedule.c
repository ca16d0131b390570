/* schedule.c - computes the noise levels of training, and a request's timesteps and noise levels */
#include "sampler/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/op.h"

double xd_round_even(double v)
{
    return nearbyint(v);
}

xd_status xd_refuse(int on, const char *key, const char *value, xd_err *e)
{
    if (!on)
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED, "the scheduler's %s is %s, which is not supported", key,
                   value);
}

double xd_linspace(double stop, int n, int i)
{
    if (n < 2)
        return 0;
    return i == n - 1 ? stop : i * (stop / (n - 1));
}

/* Returns element i of numpy's arange(from, 0, -step), with numpy's rounding errors. */
static double arange(double from, double step, int i)
{
    /* numpy's step is the difference of the first two elements */
    double next = from - step;
    return i == 0 ? from : from + i * (next - from);
}

static int arange_count(double from, double step)
{
    return (int)ceil(from / step);
}

xd_status xd_spacing_check(const xd_sched_cfg *c, xd_err *e)
{
    const char *t = c->timestep_spacing;
    if (c->steps_offset < 0)
        return xd_fail(e, XD_EFORMAT, "the scheduler's steps_offset is %d; it must be 0 or more",
                       c->steps_offset);
    return xd_refuse(strcmp(t, "linspace") && strcmp(t, "leading") && strcmp(t, "trailing"),
                     "timestep_spacing", t, e);
}

xd_status xd_prediction_check(const xd_sched_cfg *c, xd_err *e)
{
    const char *p = c->prediction_type;
    return xd_refuse(strcmp(p, "epsilon") && strcmp(p, "sample") && strcmp(p, "v_prediction"),
                     "prediction_type", p, e);
}

xd_status xd_eta_check(const xd_sched_cfg *c, xd_err *e)
{
    return c->eta >= 0 && c->eta <= 1
               ? XD_OK
               : xd_fail(e, XD_EINVAL, "eta is %g; it must be from 0 to 1", c->eta);
}

xd_status xd_signal_check(const xd_sched_cfg *c, int t, double acp, xd_err *e)
{
    if (acp != 0 || strcmp(c->prediction_type, "epsilon"))
        return XD_OK;
    return xd_fail(e, XD_EFORMAT,
                   "the scheduler's prediction_type must not be epsilon: at "
                   "timestep %d rescale_betas_zero_snr leaves no signal",
                   t);
}

xd_status xd_shift_check(const xd_sched_cfg *c, xd_err *e)
{
    if (!c->use_dynamic_shifting || c->max_image_seq_len != c->base_image_seq_len)
        return XD_OK;
    return xd_fail(e, XD_EFORMAT,
                   "the scheduler's base_image_seq_len and max_image_seq_len are "
                   "both %lld; they must differ",
                   (long long)c->base_image_seq_len);
}

double xd_shift_of(const xd_sched_cfg *c, int64_t tokens)
{
    double slope =
        (c->max_shift - c->base_shift) / (double)(c->max_image_seq_len - c->base_image_seq_len);
    return (double)tokens * slope + c->base_shift - slope * (double)c->base_image_seq_len;
}

void xd_shift_levels(xd_sched_cfg *c, const xd_steps *a)
{
    if (isnan(c->max_shift))
        c->max_shift = a->max_shift;
    if (c->use_dynamic_shifting && a->max_shift > 0)
        c->flow_shift = exp(a->mu ? a->mu(a->tokens, a->steps) : xd_shift_of(c, a->tokens));
}

int xd_solver_timesteps(const xd_sched_cfg *c, int last, int n, double *t)
{
    int k = 0;
    if (!strcmp(c->timestep_spacing, "linspace")) {
        for (int i = n; i > 0; i--)
            t[k++] = xd_round_even(xd_linspace(last - 1, n + 1, i));
    } else if (!strcmp(c->timestep_spacing, "leading")) {
        for (int i = n; i > 0; i--)
            t[k++] = (double)(i * (last / (n + 1)) + c->steps_offset);
    } else {
        double step = (double)c->num_train_timesteps / n;
        int    count = arange_count(last, step);
        for (int i = 0; i < count && k < n + 1; i++)
            t[k++] = xd_round_even(arange(last, step, i)) - 1;
    }
    return k;
}

int xd_timesteps(const xd_sched_cfg *c, int n, double *t)
{
    int N = c->num_train_timesteps, k = 0;
    if (!strcmp(c->timestep_spacing, "linspace")) {
        for (int i = n - 1; i >= 0; i--)
            t[k++] = xd_round_even(xd_linspace(N - 1, n, i));
    } else if (!strcmp(c->timestep_spacing, "leading")) {
        for (int i = n - 1; i >= 0; i--)
            t[k++] = (double)(i * (N / n) + c->steps_offset);
    } else {
        double step = (double)N / n;
        int    count = arange_count(N, step);
        for (int i = 0; i < count && k < n + 1; i++)
            t[k++] = xd_round_even(arange(N, step, i)) - 1;
    }
    return k;
}

/* Returns element i of torch.linspace in f32. Each element is computed with a fused multiply-add
 * from the nearer end of the range, so that both ends are exact. */
static float linspace32(double a, double b, int n, int i)
{
    float lo = (float)a, hi = (float)b, step = n > 1 ? (hi - lo) / (float)(n - 1) : 0;
    return i < n / 2 ? fmaf(step, (float)i, lo) : fmaf(-step, (float)(n - 1 - i), hi);
}

static double alpha_bar(double t)
{
    double c = cos((t + 0.008) / 1.008 * 3.14159265358979323846 / 2);
    return c * c;
}

static int known_betas(const char *name)
{
    return !strcmp(name, "linear") || !strcmp(name, "scaled_linear") ||
           !strcmp(name, "squaredcos_cap_v2");
}

static float beta_at(const xd_sched_cfg *c, int i)
{
    int n = c->num_train_timesteps;
    if (!strcmp(c->beta_schedule, "linear"))
        return linspace32(c->beta_start, c->beta_end, n, i);
    if (!strcmp(c->beta_schedule, "scaled_linear")) {
        float r = linspace32(sqrt(c->beta_start), sqrt(c->beta_end), n, i);
        return r * r;
    }
    double b = 1 - alpha_bar((double)(i + 1) / n) / alpha_bar((double)i / n);
    return (float)(b < 0.999 ? b : 0.999);
}

/* Rescales the betas so that the signal-to-noise ratio is zero at the end (Lin et al. 2023,
 * algorithm 1): shifts and scales sqrt(acp) so that the last value is 0 and the first value is
 * unchanged. */
static int zero_snr(float *betas, int n)
{
    float *root = malloc((size_t)n * sizeof *root);
    double product = 1;
    if (!root)
        return 0;
    for (int i = 0; i < n; i++) {
        product *= 1.0f - betas[i];
        root[i] = sqrtf((float)product);
    }
    float first = root[0], last = root[n - 1];
    for (int i = 0; i < n; i++)
        root[i] = (root[i] - last) * (first / (first - last));
    for (int i = n - 1; i > 0; i--)
        betas[i] = 1 - root[i] * root[i] / (root[i - 1] * root[i - 1]);
    betas[0] = 1 - root[0] * root[0];
    free(root);
    return 1;
}

/* Fills the cumulative alpha products (acp) and the sigmas of all timesteps. Returns 1 on success,
 * or 0 if out of memory. */
static int fill_levels(xd_levels *l, const xd_sched_cfg *c, double zero_end, float *betas)
{
    double product = 1;
    for (int i = 0; i < l->n; i++)
        betas[i] = beta_at(c, i);
    if (c->rescale_betas_zero_snr && !zero_snr(betas, l->n))
        return 0;
    for (int i = 0; i < l->n; i++) {
        product *= 1.0f - betas[i];
        l->acp[i] = (float)product;
    }
    if (c->rescale_betas_zero_snr && zero_end > 0)
        l->acp[l->n - 1] = zero_end;
    for (int i = 0; i < l->n; i++)
        l->sigma[i] = sqrtf((1.0f - (float)l->acp[i]) / (float)l->acp[i]);
    return 1;
}

static int is_beta(double v)
{
    return v >= 0 && v < 1;
}

static xd_status check_betas(const xd_sched_cfg *c, xd_err *e)
{
    if (!known_betas(c->beta_schedule))
        return xd_refuse(1, "beta_schedule", c->beta_schedule, e);
    if (strcmp(c->beta_schedule, "squaredcos_cap_v2") &&
        !(is_beta(c->beta_start) && is_beta(c->beta_end)))
        return xd_fail(e, XD_EFORMAT,
                       "the scheduler's beta_start is %g and its beta_end %g; both "
                       "must be from 0 to 1",
                       c->beta_start, c->beta_end);
    return XD_OK;
}

xd_status xd_levels_open(xd_levels *l, const xd_sched_cfg *c, double zero_end, xd_err *e)
{
    int n = c->num_train_timesteps;
    memset(l, 0, sizeof *l);
    xd_status s = check_betas(c, e);
    if (s != XD_OK)
        return s;
    float *betas = malloc((size_t)n * sizeof *betas);
    l->n = n;
    l->acp = malloc((size_t)n * sizeof *l->acp);
    l->sigma = malloc((size_t)n * sizeof *l->sigma);
    int done = betas && l->acp && l->sigma && fill_levels(l, c, zero_end, betas);
    free(betas);
    return done ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d timesteps", n);
}

static double round_to(double v, int f32)
{
    return f32 ? (double)(float)v : v;
}

static void shift_snr(xd_levels *l, const xd_sched_cfg *c)
{
    int    f32 = strcmp(c->beta_schedule, "scaled_linear") != 0;
    double a = sqrt(c->beta_start), b = sqrt(c->beta_end), k = c->snr_shift_scale, product = 1;
    for (int i = 0; i < l->n; i++) {
        double root = l->n > 1 ? a + i * ((b - a) / (l->n - 1)) : a;
        product *= f32 ? round_to(1 - (double)beta_at(c, i), 1) : 1 - root * root;
        double v = round_to(product, f32);
        l->acp[i] = round_to(
            v / round_to(round_to(k, f32) + round_to(round_to(1 - k, f32) * v, f32), f32), f32);
    }
}

/* Rescales the cumulative alpha products so that the last one is 0, with the algorithm that
 * zero_snr applies to betas. In f32, torch's square roots can differ from the square roots here in
 * the last digit, and 1 - acp amplifies the difference. For all published models, the arithmetic is
 * f64, in which no difference is visible. */
static void end_in_zero(xd_levels *l, int f32)
{
    for (int i = 0; i < l->n; i++)
        l->acp[i] = round_to(sqrt(l->acp[i]), f32);
    double last = l->acp[l->n - 1], first = l->acp[0],
           scale = round_to(first / round_to(first - last, f32), f32);
    for (int i = 0; i < l->n; i++) {
        double root = round_to(round_to(l->acp[i] - last, f32) * scale, f32);
        l->acp[i] = round_to(root * root, f32);
    }
}

xd_status xd_levels_shifted(xd_levels *l, const xd_sched_cfg *c, xd_err *e)
{
    memset(l, 0, sizeof *l);
    xd_status s = check_betas(c, e);
    if (s != XD_OK)
        return s;
    if (!(c->snr_shift_scale > 0 && c->snr_shift_scale < INFINITY))
        return xd_fail(e, XD_EFORMAT, "the scheduler's snr_shift_scale is %g; it must be above 0",
                       c->snr_shift_scale);
    l->n = c->num_train_timesteps;
    l->acp = malloc((size_t)l->n * sizeof *l->acp);
    if (!l->acp)
        return xd_fail(e, XD_ENOMEM, "no memory for a schedule of %d timesteps", l->n);
    shift_snr(l, c);
    if (c->rescale_betas_zero_snr)
        end_in_zero(l, strcmp(c->beta_schedule, "scaled_linear") != 0);
    return XD_OK;
}

void xd_levels_close(xd_levels *l)
{
    free(l->acp);
    free(l->sigma);
    memset(l, 0, sizeof *l);
}

/* Returns the logarithm of a noise level, rounded to f32, because numpy stores it in f32. */
static double log_level(const xd_levels *l, int i)
{
    return (double)(float)log(l->sigma[i]);
}

double xd_level_time(const xd_levels *l, double sigma)
{
    double s = log(sigma > 1e-10 ? sigma : 1e-10);
    int    low = 0;
    if (l->n < 2)
        return 0;
    while (low + 1 < l->n && log_level(l, low + 1) <= s)
        low++;
    low = low < l->n - 2 ? low : l->n - 2;
    double a = log_level(l, low), b = log_level(l, low + 1), w = (a - s) / (a - b);
    w = w < 0 ? 0 : w > 1 ? 1 : w;
    return (1 - w) * low + w * (low + 1);
}

double xd_level_sigma(const xd_levels *l, double t)
{
    if (t <= 0)
        return l->sigma[0];
    if (t >= l->n - 1)
        return l->sigma[l->n - 1];
    int    i = (int)t;
    double w = t - i;
    return w > 0 ? l->sigma[i] + (l->sigma[i + 1] - l->sigma[i]) * w : l->sigma[i];
}

xd_point xd_point_of(const xd_sched_cfg *c, double level)
{
    xd_point p = { level, 1 - level, level, 0 };
    if (!c->use_flow_sigmas) {
        p.alpha = 1 / sqrt(level * level + 1);
        p.sigma = level * p.alpha;
    }
    p.lambda = log(p.alpha) - log(p.sigma);
    return p;
}

void xd_point_clean(xd_exec *x, const xd_sched_cfg *c, xd_point p, xd_tensor lat, xd_tensor pred)
{
    const char *type = c->prediction_type;
    if (!strcmp(type, "epsilon"))
        xd_axpby(x, pred, (float)(1 / p.alpha), lat, (float)(-p.sigma / p.alpha));
    else if (!strcmp(type, "v_prediction"))
        xd_axpby(x, pred, (float)p.alpha, lat, (float)-p.sigma);
    else if (!strcmp(type, "flow_prediction"))
        xd_axpby(x, pred, 1, lat, (float)-p.level);
}

void xd_to_clean(xd_exec *x, const xd_sched_cfg *c, double acp, xd_tensor lat, xd_tensor pred)
{
    double ra = sqrt(acp), rb = sqrt(1 - acp);
    if (!strcmp(c->prediction_type, "epsilon"))
        xd_axpby(x, pred, (float)(1 / ra), lat, (float)(-rb / ra));
    else if (!strcmp(c->prediction_type, "v_prediction"))
        xd_axpby(x, pred, (float)ra, lat, (float)-rb);
}

static void drop_first(void *v, size_t size, int n, int drop)
{
    memmove(v, (char *)v + (size_t)drop * size, (size_t)(n - drop) * size);
}

void xd_skip_steps(xd_sampling *s, const xd_steps *a, void *levels, size_t size, int more)
{
    int n = s->steps;
    s->skipped = xd_steps_skipped(a, 0);
    drop_first(s->time, sizeof *s->time, n, s->skipped);
    drop_first(s->in_scale, sizeof *s->in_scale, n, s->skipped);
    drop_first(levels, size, n + more, s->skipped);
    s->steps -= s->skipped;
}

void xd_acp_shares(double acp, double of[2])
{
    of[0] = sqrt(acp), of[1] = sqrt(1 - acp);
}

void xd_noise_check(xd_exec *x, const xd_sampling *s, int step, xd_tensor noise)
{
    if (!noise.nd && !xd_counting(x))
        xd_exec_fail(x, XD_EINVAL, "step %d of %s has no noise tensor", step, s->def->name);
}

/* Clips a tensor to the range of the config key clip_sample. The clipping runs on the host, which
 * is slow, but few configs set clip_sample. */
static void clip_sample(xd_exec *x, const xd_sched_cfg *c, xd_tensor t)
{
    float  r = (float)c->clip_sample_range;
    float *v = c->clip_sample && xd_ok(x) && !xd_counting(x) ? malloc(xd_bytes(t) + 1) : NULL;
    if (!v)
        return;
    xd_get(x, v, t);
    for (int64_t i = 0; i < xd_count(t); i++)
        v[i] = fminf(fmaxf(v[i], -r), r);
    xd_put(x, t, v);
    free(v);
}

void xd_to_clipped(xd_exec *x, const xd_sched_cfg *c, double acp, xd_tensor lat, xd_tensor pred)
{
    xd_to_clean(x, c, acp, lat, pred);
    clip_sample(x, c, pred);
}

void xd_level_clean(xd_exec *x, const xd_sched_cfg *c, double sigma, xd_tensor lat, xd_tensor pred)
{
    double q = sigma * sigma + 1;
    if (!strcmp(c->prediction_type, "epsilon"))
        xd_axpby(x, pred, 1, lat, (float)-sigma);
    else if (!strcmp(c->prediction_type, "v_prediction"))
        xd_axpby(x, pred, (float)(1 / q), lat, (float)(-sigma / sqrt(q)));
    clip_sample(x, c, pred);
}
