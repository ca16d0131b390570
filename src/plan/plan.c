/* plan.c - checks a plan, and splits the transformer's blocks into pipeline stages */
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/version.h"
#include "plan/plan_table.h"

static const char *const axis_names[XD_NAXES] = { "tensor",     "ulysses", "ring",
                                                  "pipefusion", "cfg",     "data" };

/* Writes the degrees of a plan as text, such as "ulysses 2 x ring 2", or "1 rank" if every degree
 * is 1. */
static void degrees_text(xd_degrees d, char *out, size_t size)
{
    size_t at = 0;
    out[0] = 0;
    for (int a = XD_NAXES - 1; a >= 0; a--) {
        if (d.n[a] == 1 || at >= size)
            continue;
        int n = snprintf(out + at, size - at, "%s%s %d", at ? " x " : "", axis_names[a], d.n[a]);
        at += n > 0 ? (size_t)n : 0;
    }
    if (!at)
        snprintf(out, size, "1 rank");
}

/* Writes the text of up to three valid plans that are similar to the plan with the degrees d and
 * use at most `ranks` ranks. First come plans with one degree lowered, in order of decreasing
 * number of ranks; then come plans that use only one axis. */
static void nearest_plans(xd_degrees d, int ranks, char *out, size_t size)
{
    xd_degrees best[3];
    int        n = 0;
    for (int want = ranks; want >= 1 && n < 3; want--)
        for (int a = 0; a < XD_NAXES && n < 3; a++) {
            int        rest = xd_degrees_product(d) / d.n[a];
            xd_degrees c = d;
            if (d.n[a] == 1 || want % rest || want / rest >= d.n[a] || want / rest < 1)
                continue;
            c.n[a] = want / rest;
            best[n++] = c;
        }
    for (int a = 0; a < XD_NAXES && n < 3; a++) { /* plans along only one axis */
        xd_degrees c = { { 1, 1, 1, 1, 1, 1 } };
        if (d.n[a] == 1)
            continue;
        c.n[a] = a == XD_CFG && ranks > 2 ? 2 : ranks;
        int seen = 0;
        for (int i = 0; i < n; i++)
            seen |= memcmp(&best[i], &c, sizeof c) == 0;
        if (!seen)
            best[n++] = c;
    }
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; i < n && at < size; i++) {
        char one[96];
        degrees_text(best[i], one, sizeof one);
        int k = snprintf(out + at, size - at, "%s%s", at ? "; " : "", one);
        at += k > 0 ? (size_t)k : 0;
    }
}

static xd_status read_list(xd_plan *p, const char *list, const xd_dit_info *d, xd_err *e)
{
    int sum = 0;
    for (const char *c = list; c && *c;) {
        char *end;
        long  v = strtol(c, &end, 10);
        if (end == c || v < 0 || v > (d ? d->nlayers : 1000000) || p->nlist == XD_MAXSTAGE)
            return xd_fail(e, XD_EINVAL,
                           "attn_layer_num_for_pp is \"%s\"; it must be a list of "
                           "block counts such as 10,9,9",
                           list);
        p->list[p->nlist++] = (int)v;
        sum += (int)v;
        c = end + strspn(end, ", []");
    }
    if (!p->nlist || (!d && p->nlist == p->deg.n[XD_PIPE]))
        return XD_OK;
    if (!d)
        return xd_fail(e, XD_EINVAL,
                       "attn_layer_num_for_pp gives %d stages and the plan has %d "
                       "(pipefusion_parallel_degree)",
                       p->nlist, p->deg.n[XD_PIPE]);
    if (p->nlist != p->deg.n[XD_PIPE] || sum != d->nlayers)
        return xd_fail(e, XD_EINVAL,
                       "attn_layer_num_for_pp gives %d stages with %d blocks; the plan "
                       "has %d stages and the model %d blocks",
                       p->nlist, sum, p->deg.n[XD_PIPE], d->nlayers);
    return XD_OK;
}

/* Writes the text of a plan: the degrees, then the other options in brackets. A text that is too
 * long is truncated. */
static xd_status describe_plan(xd_plan *p, const xd_parallel *a, const xd_dit_info *d,
                               const char *degrees, xd_err *e)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "%s", degrees);
    xd_plan_details(a, d, &b);
    if (!b.failed)
        snprintf(p->text, sizeof p->text, "%s", b.p);
    xd_status s = b.failed ? xd_fail(e, XD_ENOMEM, "no memory for the name of a plan") : XD_OK;
    xd_buf_free(&b);
    return s;
}

/* Sets and checks the tensor-parallel degree of text encoders, which are split over the first ranks
 * of the plan. The limit of the degree is the number of ranks of the plan, or `lowest` if that is
 * larger. */
static xd_status set_text_degree(xd_plan *p, int asked, int lowest, const char *plan, xd_err *e)
{
    int used = xd_degrees_product(p->deg);
    used = used > lowest ? used : lowest;
    p->text_tp = asked ? asked : 1;
    if (p->text_tp < 1)
        return xd_fail(e, XD_EINVAL, "text_tensor_parallel_degree is %d; it must be at least 1",
                       p->text_tp);
    if (p->text_tp <= used)
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "text_tensor_parallel_degree is %d and the plan %s uses %d rank%s; "
                   "what would work: a text degree of %d%s, or a plan of %d ranks such as ulysses "
                   "%d",
                   p->text_tp, plan, used, used == 1 ? "" : "s", used, used > 1 ? " or less" : "",
                   p->text_tp, p->text_tp);
}

/* Sets the degrees of a plan, and *product to the product of the degrees. */
static xd_status set_degrees(xd_plan *p, const xd_parallel *a, double *product, xd_err *e)
{
    const xd_plan_table *t = xd_plan_table_now();
    *product = 1;
    for (int i = 0; i < XD_NAXES; i++)
        p->deg.n[i] = 1;
    for (int i = 0; i < t->n; i++) {
        int axis = t->rows[i].axis;
        if (axis == XD_NAXES)
            continue;
        p->deg.n[axis] = xd_plan_degree(&t->rows[i], a);
        *product *= p->deg.n[axis];
        if (p->deg.n[axis] < 1)
            return xd_fail(e, XD_EINVAL, "the %s degree is %d; it must be at least 1",
                           axis_names[axis], p->deg.n[axis]);
    }
    return XD_OK;
}

static xd_status check_ranks(const xd_plan *p, const char *what, double product, int ranks,
                             xd_err *e)
{
    char nearest[320] = "";
    int  P = p->deg.n[XD_PIPE];
    if (product > ranks) {
        if (product < 1e9)
            nearest_plans(p->deg, ranks, nearest, sizeof nearest);
        return xd_fail(e, XD_EINVAL, "%s needs %.0f ranks, but there %s %d%s%s", what, product,
                       ranks == 1 ? "is" : "are", ranks, nearest[0] ? "; what would work: " : "",
                       nearest);
    }
    if (P > XD_MAXSTAGE)
        return xd_fail(e, XD_EINVAL, "pipefusion_parallel_degree is %d; it must be at most %d", P,
                       XD_MAXSTAGE);
    return XD_OK;
}

static xd_status set_codes(xd_plan *p, const char *comms, xd_err *e)
{
    p->codes = XD_F32;
    if (!comms || !strcmp(comms, "exact"))
        return XD_OK;
    if (strcmp(comms, "int8") != 0 && strcmp(comms, "fp8") != 0)
        return xd_fail(e, XD_EINVAL, "comms is \"%s\"; it can be one of: exact int8 fp8", comms);
    p->codes = comms[0] == 'i' ? XD_I8 : XD_F8E4M3;
    return XD_OK;
}

/* Sets the options of a plan that are not degrees. */
static xd_status set_options(xd_plan *p, const xd_parallel *a, const xd_dit_info *d, xd_err *e)
{
    int asked = a->num_pipeline_patch;
    if (asked < 0 || asked > XD_MAXPATCH)
        return xd_fail(e, XD_EINVAL, "num_pipeline_patch is %d; it must be from 1 to %d", asked,
                       XD_MAXPATCH);
    p->warmup = a->warmup_steps < 0 ? 1 : a->warmup_steps;
    p->vae_rows = a->use_parallel_vae;
    p->text_every = a->pipefusion_text && strcmp(a->pipefusion_text, "every") == 0;
    if (a->pipefusion_text && !p->text_every && strcmp(a->pipefusion_text, "first") != 0)
        return xd_fail(e, XD_EINVAL, "pipefusion_text is \"%s\"; it can be one of: first every",
                       a->pipefusion_text);
    p->changes = xd_plan_changes(a, d);
    return set_codes(p, a->comms, e);
}

/* Fails if the program has set a part of the reserved bytes of xd_parallel that no option in the
 * table of plan options uses. The program was then built with a later version of the header, which
 * has more options. */
static xd_status check_reserved(const xd_parallel *a, xd_err *e)
{
    const xd_plan_table *t = xd_plan_table_now();
    size_t               at = offsetof(xd_parallel, reserved), known = at;
    for (int i = 0; i < t->n; i++) {
        const xd_option *o = &t->rows[i].option;
        size_t           end = o->offset + (o->kind == XD_OPT_TEXT ? sizeof(char *) : sizeof(int));
        known = o->offset >= at && end > known ? end : known;
    }
    for (size_t i = known; i < sizeof *a; i++)
        if (((const char *)a)[i])
            return xd_fail(e, XD_EINVAL,
                           "xd_parallel has a field at byte %zu that this library, version %s, "
                           "does not know: initialize it with {0}, or update the library",
                           i, XDIT_VERSION);
    return XD_OK;
}

/* Refuses degrees that split a network which a rank must compute as a whole, and names the plans of
 * as many ranks that do not. */
static xd_status check_whole(const xd_plan *p, const char *what, int ranks, const xd_dit_info *d,
                             xd_err *e)
{
    xd_degrees plan = { { 1, 1, 1, 1, 1, 1 } };
    char       one[96], two[96] = "";
    int        splits = 0;
    for (int a = 0; a < XD_NAXES; a++)
        splits |= p->deg.n[a] > 1 && !xd_plan_keeps_whole((xd_axis)a);
    if (!splits || !d || !d->whole)
        return XD_OK;
    plan.n[XD_DATA] = ranks;
    degrees_text(plan, one, sizeof one);
    plan.n[XD_CFG] = 2, plan.n[XD_DATA] = ranks / 2;
    if (ranks % 2 == 0)
        degrees_text(plan, two, sizeof two);
    return xd_fail(e, XD_EINVAL,
                   "%s splits the network over ranks, but the network %s, so only guidance passes "
                   "and images are split over ranks; what would work: %s%s%s",
                   what, d->whole, two, two[0] ? "; " : "", one);
}

int xd_plan_keeps_whole(xd_axis axis)
{
    return axis == XD_CFG || axis == XD_DATA;
}

xd_status xd_plan_make(xd_plan *p, const xd_parallel *a, int ranks, const xd_dit_info *d, xd_err *e)
{
    char   what[128];
    double product;
    memset(p, 0, sizeof *p);
    xd_status s = check_reserved(a, e);
    if (s == XD_OK)
        s = set_degrees(p, a, &product, e);
    if (s != XD_OK)
        return s;
    degrees_text(p->deg, what, sizeof what);
    if ((s = check_whole(p, what, ranks, d, e)) != XD_OK)
        return s;
    /* These options are checked before the number of ranks, because an error in the number of ranks
     * suggests other degrees, which would not help if these options are invalid. */
    p->displaced = a->use_displaced_patches;
    p->npatch = xd_plan_patches(a);
    if (p->displaced && p->npatch > 1)
        return xd_fail(e, XD_EINVAL,
                       "displaced patches and PipeFusion's patches cannot be "
                       "combined (both use stale keys and values); add --num_pipeline_patch 1");
    s = check_ranks(p, what, product, ranks, e);
    if (s == XD_OK)
        s = set_options(p, a, d, e);
    /* Without a model, the final degrees may not be known yet, so the check allows all ranks. */
    if (s == XD_OK)
        s = set_text_degree(p, a->text_tensor_parallel_degree, d ? 1 : ranks, what, e);
    if (s == XD_OK)
        s = read_list(p, a->attn_layer_num_for_pp, d, e);
    return s == XD_OK ? describe_plan(p, a, d, what, e) : s;
}

xd_status xd_parallel_check(const xd_parallel *a, int ranks, xd_err *e)
{
    xd_plan p;
    return xd_plan_make(&p, a, ranks, NULL, e);
}

int xd_parallel_ranks(const xd_parallel *a)
{
    const xd_plan_table *t = xd_plan_table_now();
    double               product = 1;
    for (int i = 0; i < t->n; i++) {
        int n = t->rows[i].axis == XD_NAXES ? 1 : xd_plan_degree(&t->rows[i], a);
        product *= n > 1 ? n : 1;
    }
    return product < 2147483647.0 ? (int)product : 2147483647;
}

int xd_launched(int *rank)
{
    int at = xd_comm_launch_rank();
    if (rank)
        *rank = at > 0 ? at : 0;
    return at >= 0;
}

int xd_launched_ranks(void)
{
    return xd_comm_launch_rank() >= 0 ? xd_comm_launch_size() : 0;
}

int xd_plan_exact(const xd_plan *p)
{
    return p->warmup > 1 ? p->warmup : 1;
}

/* Returns 1 if the blocks can be split so that every stage takes at most `limit` seconds. Chooses
 * the stages greedily, and sets `cut` to the first block of each stage. */
static int stages_fit(const double *cost, int n, int stages, double head, double tail,
                      const double *speed, double limit, int *cut)
{
    int at = 0;
    for (int s = 0; s < stages; s++) {
        double sum = (s == 0 ? head : 0) + (s == stages - 1 ? tail : 0);
        cut[s] = at;
        double most = speed ? limit * speed[s] : limit;
        while (at < n && sum + cost[at] <= most)
            sum += cost[at++];
    }
    cut[stages] = n;
    return at == n;
}

void xd_plan_balance(const double *cost, int n, int stages, double head, double tail,
                     const double *speed, int *cut)
{
    double low = 0, high = head + tail, slowest = 1;
    for (int i = 0; i < n; i++)
        high += cost[i];
    for (int i = 0; i < stages && speed; i++)
        slowest = speed[i] < slowest ? speed[i] : slowest;
    high /= slowest;
    for (int i = 0; i < 100; i++) {
        double mid = (low + high) / 2;
        if (stages_fit(cost, n, stages, head, tail, speed, mid, cut))
            high = mid;
        else
            low = mid;
    }
    stages_fit(cost, n, stages, head, tail, speed, high * (1 + 1e-12), cut);
}
