/* spacing.c - computes noise levels between the largest and the smallest level, in several
 * spacings */
#include "sampler/schedule.h"

#include <math.h>

static double ramp_at(int i, int n)
{
    return n > 1 ? (double)i / (n - 1) : 0;
}

static void space_karras(double max, double min, int n, double *out)
{
    double a = pow(max, 1.0 / 7), b = pow(min, 1.0 / 7);
    for (int i = 0; i < n; i++)
        out[i] = pow(a + ramp_at(i, n) * (b - a), 7);
}

void xd_sigmas_exponential(double max, double min, int n, double *out)
{
    double a = log(max), b = log(min);
    for (int i = 0; i < n; i++)
        out[i] = exp(i && i == n - 1 ? b : a + (n > 1 ? i * ((b - a) / (n - 1)) : 0));
}

void xd_sigmas_lu(double max, double min, int n, double *out)
{
    double a = (double)(float)log(max), b = (double)(float)log(min);
    for (int i = 0; i < n; i++)
        out[i] = exp(a + ramp_at(i, n) * (b - a));
}

/* The value of both shape parameters of the (symmetric) beta distribution of "beta sigmas". */
static const double SHAPE = 0.6;

/* Returns the regularized incomplete beta function at x <= 1/2, by its series (DLMF 8.17.7 and
 * 8.17.8): x^a (1-x)^a / (a B(a,a)) times the sum of x^n (2a)(2a+1).. / (a+1)(a+2).. */
static double lower_share(double x, double norm)
{
    double term = 1, sum = 0;
    for (int n = 0; n < 200 && term > 1e-18 * sum; n++) {
        sum += term;
        term *= x * (2 * SHAPE + n) / (SHAPE + 1 + n);
    }
    return pow(x, SHAPE) * pow(1 - x, SHAPE) / norm * sum;
}

/* Inverts the function lower_share by Newton's method, with the variable u = x^a. As a function of
 * u, lower_share is smooth even at u = 0; its slope is (1-x)^(a-1) / (a B(a,a)). */
static double lower_quantile(double p)
{
    double norm = SHAPE * tgamma(SHAPE) * tgamma(SHAPE) / tgamma(2 * SHAPE), u = p * norm;
    for (int i = 0; i < 50; i++) {
        double x = pow(u, 1 / SHAPE), step;
        step = (lower_share(x, norm) - p) * norm * pow(1 - x, 1 - SHAPE);
        u -= step;
        if (fabs(step) <= 1e-16 * u)
            break;
    }
    return pow(u, 1 / SHAPE);
}

double xd_beta_quantile(double p)
{
    if (p <= 0 || p >= 1)
        return p <= 0 ? 0 : 1;
    return p <= 0.5 ? lower_quantile(p) : 1 - lower_quantile(1 - p);
}

static void space_beta(double max, double min, int n, double *out)
{
    for (int i = 0; i < n; i++)
        out[i] = min + xd_beta_quantile(1 - ramp_at(i, n)) * (max - min);
}

int xd_is_respaced(const xd_sched_cfg *c)
{
    return c->use_karras_sigmas || c->use_exponential_sigmas || c->use_beta_sigmas;
}

xd_status xd_respacing_check(const xd_sched_cfg *c, xd_err *e)
{
    if (xd_is_respaced(c) && (c->sigma_min <= 0 || c->sigma_max <= 0))
        return xd_fail(e, XD_EFORMAT,
                       "the scheduler's sigma_min is %g and its sigma_max %g; both "
                       "must be above 0",
                       c->sigma_min, c->sigma_max);
    if (c->use_karras_sigmas + c->use_exponential_sigmas + c->use_beta_sigmas < 2)
        return XD_OK;
    return xd_fail(e, XD_EFORMAT,
                   "only one of the scheduler's use_karras_sigmas, "
                   "use_exponential_sigmas and use_beta_sigmas can be true");
}

void xd_sigmas_respaced(const xd_sched_cfg *c, double max, double min, int n, double *out)
{
    max = isnan(c->sigma_max) ? max : c->sigma_max;
    min = isnan(c->sigma_min) ? min : c->sigma_min;
    if (c->use_karras_sigmas)
        space_karras(max, min, n, out);
    else if (c->use_exponential_sigmas)
        xd_sigmas_exponential(max, min, n, out);
    else
        space_beta(max, min, n, out);
}
