/* search.c - every plan there is, and the names of plans */
#include "engine/search.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;           /* in a short form                                             */
    size_t      at;             /* of the number in xd_parallel                                */
    const char *flag;
    int         flagged;        /* the flag has no number: it stands for that one               */
} words[] = {
    { "u", offsetof(xd_parallel, ulysses_degree), "ulysses_degree", 0 },
    { "r", offsetof(xd_parallel, ring_degree), "ring_degree", 0 },
    { "pp", offsetof(xd_parallel, pipefusion_parallel_degree), "pipefusion_parallel_degree", 0 },
    { "tp", offsetof(xd_parallel, tensor_parallel_degree), "tensor_parallel_degree", 0 },
    { "cfg", offsetof(xd_parallel, use_cfg_parallel), "use_cfg_parallel", 2 },
    { "dp", offsetof(xd_parallel, data_parallel_degree), "data_parallel_degree", 0 },
    { "patch", offsetof(xd_parallel, num_pipeline_patch), "num_pipeline_patch", 0 },
    { "warm", offsetof(xd_parallel, warmup_steps), "warmup_steps", 0 },
    { "text", offsetof(xd_parallel, text_tensor_parallel_degree), "text_tensor_parallel_degree", 0 },
    { "vae", offsetof(xd_parallel, use_parallel_vae), "use_parallel_vae", 1 },
};
enum { WORDS = sizeof words / sizeof *words };

static int *number(const xd_parallel *a, int i)
{
    return (int *)(uintptr_t)((const char *)a + words[i].at);
}

static xd_status take_word(xd_parallel *a, const char *text, const char **p, xd_err *e)
{
    size_t n = strspn(*p, "abcdefghijklmnopqrstuvwxyz");
    for (int i = 0; i < WORDS && n; i++) {
        char *end;
        if (strlen(words[i].name) != n || memcmp(words[i].name, *p, n) != 0)
            continue;
        if (!isdigit((unsigned char)(*p)[n]) && !words[i].flagged)
            return xd_fail(e, XD_EINVAL, "the plan \"%s\" has %s without a number", text, words[i].name);
        long v = isdigit((unsigned char)(*p)[n]) ? strtol(*p + n, &end, 10) : words[i].flagged;
        end = isdigit((unsigned char)(*p)[n]) ? end : (char *)(uintptr_t)(*p + n);
        int *to = number(a, i), flag = words[i].flagged;
        if (v < 1 || v > 65536 || (flag && v != flag && v != 1))
            return xd_fail(e, XD_EINVAL, "the plan \"%s\" has %s %ld, which cannot be", text, words[i].name, v);
        int want = flag == 2 ? v == 2 : (int)v;
        if (*to && *to != want)
            return xd_fail(e, XD_EINVAL, "the plan \"%s\" has %s %d and --%s says %d", text, words[i].name,
                           want, words[i].flag, *to);
        *to = want;
        *p = end + strspn(end, " ,x-_");
        return XD_OK;
    }
    return xd_fail(e, XD_EINVAL, "the plan \"%s\" cannot be read at \"%s\": it is \"auto\" or degrees such as "
                   "u2r2pp2cfg2, of u, r, pp, tp, cfg, dp, patch, warm, text and vae", text, *p);
}

xd_status xd_parallel_read(xd_parallel *a, const char *text, xd_err *e)
{
    const char *p = text;
    xd_status   s = *p ? XD_OK : take_word(a, text, &p, e);
    while (*p && s == XD_OK)
        s = take_word(a, text, &p, e);
    return s;
}

static void name_it(xd_candidate *c)
{
    size_t at = 0, in = 0;
    c->name[0] = c->flags[0] = 0;
    for (int i = 0; i < WORDS; i++) {
        int v = *number(&c->ask, i), flag = words[i].flagged, n;
        if (v < 1 || (!flag && v == 1 && strcmp(words[i].name, "warm") != 0))
            continue;
        char digits[16] = "";
        if (flag != 1)
            snprintf(digits, sizeof digits, "%d", flag == 2 ? 2 : v);
        n = snprintf(c->name + at, sizeof c->name - at, "%s%s", words[i].name, digits);
        at = at + (size_t)n < sizeof c->name ? at + (size_t)n : sizeof c->name - 1;
        n = snprintf(c->flags + in, sizeof c->flags - in, "%s--%s%s%s", in ? " " : "", words[i].flag,
                     flag ? "" : " ", flag ? "" : digits);
        in = in + (size_t)n < sizeof c->flags ? in + (size_t)n : sizeof c->flags - 1;
    }
    if (!at)
        strcpy(c->name, "1");
}

/* ---- all plans ------------------------------------------------------------------------------ */

enum { MOST = XD_SEARCH_MOST, MOST_ONE = 1024 };        /* ranks: of a search, of a plan       */

typedef struct hunt {
    xd_search         *s;
    xd_engine         *g;
    const xd_request  *r;
    const xd_parallel *fixed;
    const xd_machine  *m;
    int                ranks, stale, failed;
} hunt;

static int allowed(int fixed, int v)
{
    return fixed == 0 || fixed == v;
}

static void try(hunt *h, xd_parallel a)
{
    xd_candidate *c = realloc(h->s->c, (size_t)(h->s->n + 1) * sizeof *c);
    if (!c) {
        h->failed = 1;
        return;
    }
    h->s->c = c;
    c = &c[h->s->n++];
    memset(c, 0, sizeof *c);
    c->ask = a;
    name_it(c);
    xd_status s = xd_foresee(&c->f, h->g, h->r, &a, h->ranks, h->m, &c->why);
    if (s == XD_OK && !c->f.fits)
        xd_fail(&c->why, XD_ENOMEM, "%s are needed of %s", xd_size_text(c->f.peak).s,
                xd_size_text(h->m->memory).s);
}

/* The pictures' rows over all ranks, or whole on one: what is asked, else both are tried by the caller
 * of this in turn (rows gain whenever there are ranks). */
static void try_patches(hunt *h, xd_parallel a)
{
    int P = a.pipefusion_parallel_degree, most = P > 1 ? 2 : 1;
    if (xd_parallel_ranks(&a) / (a.data_parallel_degree ? a.data_parallel_degree : 1) > 1)
        a.use_parallel_vae = 1;
    for (int k = 1; k <= most; k++) {
        if (h->fixed->num_pipeline_patch && k > 1)
            break;
        a.num_pipeline_patch = h->fixed->num_pipeline_patch ? h->fixed->num_pipeline_patch : P > 1 ? k * P : 0;
        if (a.num_pipeline_patch > 1 && !a.warmup_steps)
            a.warmup_steps = 1;
        try(h, a);
    }
}

static void factor(hunt *h, xd_parallel a, int axis, int left)
{
    static const int order[] = { 4, 0, 1, 2, 3 };       /* of words: cfg, u, r, pp, tp           */
    if (axis == (int)(sizeof order / sizeof *order)) {
        int *data = &a.data_parallel_degree;
        if (!allowed(h->fixed->data_parallel_degree, left) ||
            (!h->fixed->data_parallel_degree && left > 1 &&
             h->r->nprompts * h->r->num_images_per_prompt < left))
            return;
        *data = left;
        try_patches(h, a);
        return;
    }
    int  i = order[axis], cfg = words[i].flagged == 2, fixed = *number(h->fixed, i);
    for (int v = 1; v <= left; v++) {
        if (left % v || (cfg && v > 2))
            continue;
        if (cfg ? fixed && v != 2 : !allowed(fixed, v))
            continue;
        if (strcmp(words[i].name, "pp") == 0 && v > 1 && !h->stale && !fixed)
            continue;
        *number(&a, i) = cfg ? v == 2 : v;
        factor(h, a, axis + 1, left / v);
    }
}

static double score(const xd_candidate *c)
{
    return c->why.code ? 1e300 : c->f.request_s;
}

/* Equal times: fewer bytes first. Of those that do not fit, that which needs least. */
static int faster(const void *a, const void *b)
{
    const xd_candidate *p = a, *q = b;
    int                 low = p->why.code == XD_ENOMEM, also = q->why.code == XD_ENOMEM;
    if (p->why.code && q->why.code && (low != also || (low && p->f.peak != q->f.peak)))
        return low != also ? also - low : p->f.peak < q->f.peak ? -1 : 1;
    if (score(p) != score(q))
        return score(p) < score(q) ? -1 : 1;
    return (p->f.sent > q->f.sent) - (p->f.sent < q->f.sent);
}

xd_status xd_search_plans(xd_search *s, xd_engine *g, const xd_request *r, const xd_parallel *fixed,
                          int ranks, int stale, const xd_machine *m, xd_err *e)
{
    hunt h = { s, g, r, fixed, m, ranks, stale, 0 };
    memset(s, 0, sizeof *s);
    if (ranks > MOST_ONE || (ranks > MOST && xd_parallel_ranks(fixed) != ranks))
        return xd_fail(e, XD_EINVAL, "all plans of %d ranks are too many to look at: up to %d can be, or up to %d "
                       "when degrees are given for all of them", ranks, MOST, MOST_ONE);
    factor(&h, *fixed, 0, ranks);
    if (h.failed)
        return xd_fail(e, XD_ENOMEM, "no memory for the plans of %d ranks", ranks);
    if (!s->n)
        return xd_fail(e, XD_EINVAL, "no plan of exactly %d ranks has the degrees that are given", ranks);
    qsort(s->c, (size_t)s->n, sizeof *s->c, faster);
    while (s->good < s->n && !s->c[s->good].why.code)
        s->good++;
    if (s->good)
        return XD_OK;
    if (s->n == 1)
        return xd_fail(e, s->c[0].why.code, "the one plan of %d rank%s does not work: %s", ranks,
                       ranks == 1 ? "" : "s", s->c[0].why.msg);
    return xd_fail(e, s->c[0].why.code, "none of %d plans of %d ranks works; %s: %s", s->n, ranks,
                   s->c[0].name, s->c[0].why.msg);
}

void xd_search_free(xd_search *s)
{
    for (int i = 0; i < s->n; i++)
        xd_forecast_free(&s->c[i].f);
    free(s->c);
    memset(s, 0, sizeof *s);
}
