/* step_cache_options.c - lists all step caches, and reads their options from a text */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/word_list.h"
#include "model/component.h"
#include "model/model.h"
#include "pipeline/job.h"

/* ---- the list of step caches -------------------------------------------------------------- */

static int is_below(const xd_cache_options *o, xd_cache_unit *u, double change)
{
    (void)u;
    return change <= o->threshold;
}

/* TeaCache (Liu et al. 2024, arXiv:2411.19108): a polynomial maps the change of the input to the
 * estimated change of the output. The estimates are summed until the blocks are computed again. */
static int stays_below(const xd_cache_options *o, xd_cache_unit *u, double change)
{
    double v = 0;
    for (int i = 0; i < XD_CACHE_POWERS; i++)
        v = v * change + o->poly[i];
    u->sum += v;
    if (u->sum < o->threshold)
        return 1;
    u->sum = 0;
    return 0;
}

#define ANY .max_cached = -1, .max_continuous = -1, .until = -1
#define NO_POLY .poly = { NAN, NAN, NAN, NAN, NAN }
#define LIMITS "warmup max_cached max_continuous"

/* Works as the cache of diffusers' apply_first_block_cache. */
static const xd_cache_kind fbcache = {
    .name = "fbcache",
    .help = "change of first block's residual",
    .options = "threshold " LIMITS,
    .measure = XD_CACHE_ADDED,
    .defaults = { .first = 1, .threshold = 0.05, ANY, NO_POLY },
    .is_small = is_below,
};

/* Works as the cache of cache-dit with DBCacheConfig and TaylorSeerCalibratorConfig. */
static const xd_cache_kind dbcache = {
    .name = "dbcache",
    .help = "change of the first Fn blocks' output",
    .options = "Fn Bn threshold order " LIMITS,
    .measure = XD_CACHE_ADDED,
    .defaults = { .first = 8, .threshold = 0.08, .warmup = 8, ANY, NO_POLY },
    .is_small = is_below,
};

static const xd_cache_kind teacache = {
    .name = "teacache",
    .help = "change of the first block's input",
    .options = "threshold coefficients " LIMITS,
    .measure = XD_CACHE_INPUT,
    .defaults = { .threshold = 0.12, .warmup = 1, ANY, NO_POLY },
    .is_small = stays_below,
    .computes_last = 1,
};

/* Works as the cache of diffusers' apply_taylorseer_cache with use_lite_mode, but computes in
 * f32. */
static const xd_cache_kind taylorseer = {
    .name = "taylorseer",
    .help = "Taylor expansion of predictions",
    .options = "order interval warmup until",
    .measure = XD_CACHE_SCHEDULE,
    .defaults = { .order = 1, .interval = 5, .warmup = 3, ANY, NO_POLY },
};

static const xd_cache_kind measure = {
    .name = "measure",
    .help = "skips nothing, for xdit calibrate",
    .options = "nothing",
    .measure = XD_CACHE_INPUT,
    .defaults = { ANY, NO_POLY },
    .reports_changes = 1,
};

const xd_cache_kind *const xd_caches[] = { &fbcache,    &dbcache, &teacache,
                                           &taylorseer, &measure, NULL };

/* ---- reading the options ------------------------------------------------------------------ */

typedef struct row { /* one option of a step cache */
    const char *name;
    const char *also; /* the option's names in diffusers, cache-dit and TeaCache */
    size_t      at;
    int         real;
    double      min, max;
} row;

#define AT(field) offsetof(xd_cache_options, field)
static const row rows[] = {
    { "threshold", "residual_diff_threshold rel_l1_thresh", AT(threshold), 1, 0, 1e6 },
    { "Fn", "Fn_compute_blocks", AT(first), 0, 1, 1000 },
    { "Bn", "Bn_compute_blocks", AT(last), 0, 0, 1000 },
    { "warmup", "max_warmup_steps warmup_steps disable_cache_before_step", AT(warmup), 0, 0, 1000 },
    { "max_cached", "max_cached_steps", AT(max_cached), 0, -1, 1000 },
    { "max_continuous", "max_continuous_cached_steps", AT(max_continuous), 0, -1, 1000 },
    { "order", "taylorseer_order max_order", AT(order), 0, 0, XD_CACHE_ORDERS - 1 },
    { "interval", "cache_interval", AT(interval), 0, 1, 1000 },
    { "until", "disable_cache_after_step", AT(until), 0, -1, 1000 },
};

static xd_status fail_kind(const char *name, int n, xd_err *e)
{
    char known[256] = "";
    for (int i = 0; xd_caches[i]; i++) {
        size_t len = strlen(known);
        snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", xd_caches[i]->name);
    }
    return xd_fail(e, XD_EINVAL, "cache: unknown step cache \"%.*s\"; it can be one of: %s, none",
                   n, name, known);
}

static xd_status fail_value(const char *name, int n, const char *value, int len, xd_err *e)
{
    return xd_fail(e, XD_EINVAL, "cache: %.*s is \"%.*s\", which is not a number in its range", n,
                   name, len, value);
}

/* Reads a polynomial from a text of five coefficients separated by slashes. Returns 0 if the text
 * is invalid. */
static int read_poly(double *poly, const char *value, int len)
{
    const char *p = value, *end = value + len;
    for (int i = 0; i < XD_CACHE_POWERS; i++) {
        char *after;
        poly[i] = strtod(p, &after);
        if (after == p || !isfinite(poly[i]) ||
            (i < XD_CACHE_POWERS - 1 ? *after != '/' : after != end))
            return 0;
        p = after + 1;
    }
    return 1;
}

static xd_status read_option(xd_cache_spec *c, const char *name, int n, const char *value, int len,
                             xd_err *e)
{
    const row *r = NULL;
    if (n == 12 && memcmp(name, "coefficients", 12) == 0 &&
        xd_list_has(c->kind->options, "coefficients"))
        return read_poly(c->o.poly, value, len) ? XD_OK : fail_value(name, n, value, len, e);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (xd_list_has_n(rows[i].name, name, (size_t)n) ||
            xd_list_has_n(rows[i].also, name, (size_t)n))
            r = &rows[i];
    if (!r || !xd_list_has(c->kind->options, r->name))
        return xd_fail(e, XD_EINVAL, "cache: %s has no option \"%.*s\"; it has: %s", c->kind->name,
                       n, name, c->kind->options);
    char  *after;
    double v = strtod(value, &after);
    if (after == value || after != value + len || !(v >= r->min && v <= r->max) ||
        (!r->real && v != floor(v)))
        return fail_value(name, n, value, len, e);
    if (r->real)
        *(double *)(void *)((char *)&c->o + r->at) = v;
    else
        *(int *)(void *)((char *)&c->o + r->at) = (int)v;
    return XD_OK;
}

xd_status xd_cache_read(xd_cache_spec *c, const char *text, xd_err *e)
{
    memset(c, 0, sizeof *c);
    if (!text || !*text || strcmp(text, "none") == 0)
        return XD_OK;
    size_t n = strcspn(text, ":");
    for (int i = 0; xd_caches[i]; i++)
        if (strlen(xd_caches[i]->name) == n && strncasecmp(xd_caches[i]->name, text, n) == 0)
            *c = (xd_cache_spec){ xd_caches[i], xd_caches[i]->defaults };
    if (!c->kind)
        return fail_kind(text, (int)n, e);
    for (const char *p = text + n; *p; p += strcspn(p, ",")) {
        p++;
        int       len = (int)strcspn(p, ","), name = (int)strcspn(p, "=,");
        xd_status s = name < len ? read_option(c, p, name, p + name + 1, len - name - 1, e)
                                 : read_option(c, "threshold", 9, p, len, e);
        if (s != XD_OK)
            return s;
    }
    if (c->kind->measure == XD_CACHE_SCHEDULE && c->o.warmup < 1)
        return xd_fail(e, XD_EINVAL, "cache: %s needs a warmup of at least 1 step", c->kind->name);
    return XD_OK;
}

/* ---- checks that depend on the model ------------------------------------------------------ */

/* If the request gives no polynomial for TeaCache, uses the polynomial that was measured for the
 * model. A model with two transformers has no polynomial, because a polynomial is measured for one
 * transformer. */
static xd_status find_poly(const xd_job *j, xd_cache_options *o, xd_err *e)
{
    const xd_model *m = &j->ctx->model;
    const xd_dit   *d = m->dit.dit;
    if (!isnan(o->poly[0]) || (d->probe && d->change_poly && xd_model_dits(m) == 1 &&
                               d->change_poly(m->dit.w->net.cfg, o->poly)))
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED,
                   "cache: there are no published coefficients of teacache for "
                   "this model: measure them with `xdit calibrate` and pass them as "
                   "teacache:%g,coefficients=A/B/C/D/E, or use fbcache",
                   o->threshold);
}

/* Checks Fn and Bn, the numbers of first and last blocks that a step cache always computes. Bn must
 * be 0 if the last blocks read data that skipped blocks would have to store (xd_dit.skip_from,
 * xd_dit_info.whole). */
static xd_status check_blocks(const xd_job *j, const xd_cache_spec *c, xd_err *e)
{
    const xd_dit_info *d = &j->ctx->model.dit_info;
    int                n = d->nlayers - d->lead;
    if (c->o.last && (j->ctx->model.dit.dit->skip_from || d->whole))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "cache: Bn is %d; it must be 0 for %s, whose last "
                       "blocks read data of earlier blocks",
                       c->o.last, j->ctx->model.recipe->name);
    if (c->o.first + c->o.last >= n)
        return xd_fail(e, XD_EINVAL,
                       "cache: %s always computes %d blocks (Fn %d, Bn %d), but the "
                       "transformer has %d: use smaller values",
                       c->kind->name, c->o.first + c->o.last, c->o.first, c->o.last, n);
    return XD_OK;
}

xd_status xd_cache_of_job(struct xd_job *j, xd_err *e)
{
    xd_cache_spec *c = &j->cache;
    xd_status      s = xd_cache_read(c, j->r->savings.cache, e);
    if (s == XD_OK && c->kind && j->ctx->model.dit_info.audio)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "cache: %s does not support models that generate audio: leave out cache",
                       c->kind->name);
    if (s != XD_OK || !c->kind || c->kind->measure == XD_CACHE_SCHEDULE)
        return s;
    int n = j->ctx->model.dit_info.nlayers - j->ctx->model.dit_info.lead;
    if (c->kind->measure == XD_CACHE_ADDED && !strstr(j->r->savings.cache, "Fn") &&
        c->o.first > n / 2)
        c->o.first = n / 2 > 1 ? n / 2 : 1;
    if (c->kind->reports_changes && j->ctx->plan.deg.n[XD_PIPE] > 1)
        return xd_fail(e, XD_EINVAL,
                       "cache: %s compares the first block's input with the last "
                       "block's output, so it needs one stage: leave out "
                       "pipefusion_parallel_degree",
                       c->kind->name);
    if (c->kind->reports_changes)
        return XD_OK;
    s = check_blocks(j, c, e);
    return s == XD_OK && c->kind->measure == XD_CACHE_INPUT ? find_poly(j, &c->o, e) : s;
}
