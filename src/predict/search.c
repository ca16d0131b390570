/* search.c - predicts all possible plans and sorts them, and reads the names of plans */
#include "predict/search.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/context.h"
#include "plan/plan_table.h"

/* ---- reading the name of a plan ----------------------------------------------------------- */

/* Appends the list of abbreviations that may occur in the name of a plan, such as "u, r, pp and
 * vae". */
static void list_words(xd_text_buf *b)
{
    const xd_plan_table *t = xd_plan_table_now();
    int                  left = 0;
    for (int i = 0; i < t->n; i++)
        left += t->rows[i].word != NULL;
    for (int i = 0; i < t->n; i++)
        if (t->rows[i].word) {
            left--;
            xd_buf_add(b, "%s%s", t->rows[i].word, left > 1 ? ", " : left ? " and " : "");
        }
}

static xd_status not_read(const char *text, const char *at, xd_err *e)
{
    xd_text_buf b = { 0 };
    list_words(&b);
    xd_status s = xd_fail(e, XD_EINVAL,
                          "the plan \"%s\" is invalid at \"%s\"; use \"auto\" "
                          "or degrees such as u2r2pp2cfg2, with %s",
                          text, at, b.p ? b.p : "");
    xd_buf_free(&b);
    return s;
}

/* Reads the number at *p, which follows a word in the name of a plan, for example the 2 of "u2". */
static xd_status set_number(xd_parallel *a, const xd_plan_row *r, const char *text, const char **p,
                            xd_err *e)
{
    int   digit = isdigit((unsigned char)**p);
    char *end = (char *)(uintptr_t)*p;
    if (!digit && !r->name_number)
        return xd_fail(e, XD_EINVAL, "the plan \"%s\" has no number after %s", text, r->word);
    long v = digit ? strtol(*p, &end, 10) : r->name_number;
    if (v < 1 || v > 65536 || (r->name_number && v != r->name_number && v != 1))
        return xd_fail(e, XD_EINVAL, "the plan \"%s\" has an invalid number after %s: %ld", text,
                       r->word, v);
    int want = r->name_number == 2 ? v == 2 : (int)v, has = xd_plan_number(r, a);
    if (has && has != want)
        return xd_fail(e, XD_EINVAL, "the plan \"%s\" has %s %d, but --%s is %d", text, r->word,
                       want, r->option.name, has);
    xd_plan_put(r, a, want);
    *p = end + strspn(end, " ,x-_");
    return XD_OK;
}

static xd_status set_word(xd_parallel *a, const char *text, const char **p, xd_err *e)
{
    const xd_plan_table *t = xd_plan_table_now();
    size_t               n = strspn(*p, "abcdefghijklmnopqrstuvwxyz");
    for (int i = 0; i < t->n && n; i++) {
        const char *word = t->rows[i].word;
        if (!word || strlen(word) != n || memcmp(word, *p, n) != 0)
            continue;
        *p += n;
        return set_number(a, &t->rows[i], text, p, e);
    }
    return not_read(text, *p, e);
}

xd_status xd_parallel_read(xd_parallel *a, const char *text, xd_err *e)
{
    const char *p = text;
    xd_status   s = *p ? XD_OK : set_word(a, text, &p, e);
    while (*p && s == XD_OK)
        s = set_word(a, text, &p, e);
    return s;
}

/* ---- predicting all plans ----------------------------------------------------------------- */

/* max number of ranks in a search; max number of ranks if all degrees are given */
enum { MOST = XD_SEARCH_MOST, MOST_ONE = 1024 };

typedef struct hunt {
    xd_search         *s;
    const xd_context  *ctx;
    const xd_request  *r;
    const xd_parallel *fixed;
    const xd_machine  *m;
    int                ranks, stale, failed;
} hunt;

static int is_allowed(int fixed, int v)
{
    return fixed == 0 || fixed == v;
}

static void try_plan(hunt *h, xd_parallel a)
{
    xd_candidate *c = realloc(h->s->c, (size_t)(h->s->n + 1) * sizeof *c);
    if (!c) {
        h->failed = 1;
        return;
    }
    h->s->c = c;
    c = &c[h->s->n++];
    memset(c, 0, sizeof *c);
    c->parallel = a;
    xd_text_buf name = { 0 }, flags = { 0 };
    xd_plan_name(&a, &h->ctx->model.dit_info, &name);
    xd_plan_flags(&a, &h->ctx->model.dit_info, &flags);
    xd_buf_add(&flags, "%s", ""); /* makes the text "" if there are no flags */
    h->failed |= name.failed || flags.failed;
    c->name = name.p, c->flags = flags.p;
    xd_status s = xd_predict(&c->f, h->ctx, h->r, &a, h->ranks, h->m, &c->why);
    if (s == XD_OK && !c->f.fits)
        xd_fail(&c->why, XD_ENOMEM, "it needs %s and has %s", xd_size_text(c->f.peak).s,
                xd_size_text(h->m->memory).s);
}

/* Adds plans that differ only in the number of patches. If `fixed` does not give this number, plans
 * with one and with two patches per pipeline stage are added. If several ranks compute an image,
 * the plan splits the VAE into rows, which is always faster. */
static void try_patches(hunt *h, xd_parallel a)
{
    int P = a.pipefusion_parallel_degree, most = P > 1 ? 2 : 1;
    if (xd_parallel_ranks(&a) / (a.data_parallel_degree ? a.data_parallel_degree : 1) > 1)
        a.use_parallel_vae = 1;
    for (int k = 1; k <= most; k++) {
        if (h->fixed->num_pipeline_patch && k > 1)
            break;
        a.num_pipeline_patch = h->fixed->num_pipeline_patch ? h->fixed->num_pipeline_patch
                               : P > 1                      ? k * P
                                                            : 0;
        if (xd_plan_patches(&a) > 1 && !a.warmup_steps)
            a.warmup_steps = 1;
        try_plan(h, a);
    }
}

/* Returns the degree that `fixed` gives for an axis, or 0 if the search may choose the degree. */
static int fixed_degree(const hunt *h, const xd_plan_row *r)
{
    return xd_plan_number(r, h->fixed) ? xd_plan_degree(r, h->fixed) : 0;
}

/* Tries all combinations of degrees for the axes from index `step` on, such that the product of
 * these degrees is `left`. Each level of the recursion tries the degrees of one axis; the last
 * axis, data, gets the degree that is left. */
static void walk_axes(hunt *h, xd_parallel a, int step, int left)
{
    static const xd_axis order[] = { XD_CFG, XD_ULYSSES, XD_RING, XD_PIPE, XD_TENSOR, XD_DATA };
    const xd_plan_row   *r = xd_plan_row_of((int)order[step]);
    int                  fixed = fixed_degree(h, r);
    int                  images = h->r->nprompts * h->r->num_images_per_prompt;
    if (order[step] == XD_DATA) {
        if (!is_allowed(fixed, left) ||
            (!fixed && left > 1 && images < left && !h->ctx->model.dit_info.whole))
            return;
        xd_plan_put(r, &a, left);
        try_patches(h, a);
        return;
    }
    for (int v = 1; v <= left; v++) {
        if (left % v || (r->name_number && v > r->name_number) || !is_allowed(fixed, v))
            continue;
        if (order[step] == XD_PIPE && v > 1 && !h->stale && !fixed)
            continue;
        if (h->ctx->model.dit_info.whole && v > 1 && !fixed && !xd_plan_keeps_whole(order[step]))
            continue;
        xd_plan_put(r, &a, r->name_number ? v == r->name_number : v);
        walk_axes(h, a, step + 1, left / v);
    }
}

static double score_of(const xd_candidate *c)
{
    return c->why.code ? 1e300 : c->f.request_s;
}

/* Compares two plans for sorting. The faster plan comes first; if the times are equal, the plan
 * that sends fewer bytes. Refused plans come last. Among plans that do not fit, the plan with the
 * smaller memory need comes first. */
static int by_time(const void *a, const void *b)
{
    const xd_candidate *p = a, *q = b;
    int                 low = p->why.code == XD_ENOMEM, also = q->why.code == XD_ENOMEM;
    if (p->why.code && q->why.code && (low != also || (low && p->f.peak != q->f.peak)))
        return low != also ? also - low : p->f.peak < q->f.peak ? -1 : 1;
    if (score_of(p) != score_of(q))
        return score_of(p) < score_of(q) ? -1 : 1;
    return (p->f.sent > q->f.sent) - (p->f.sent < q->f.sent);
}

xd_status xd_search_plans(xd_search *s, const xd_context *ctx, const xd_request *r,
                          const xd_parallel *fixed, int ranks, int stale, const xd_machine *m,
                          xd_err *e)
{
    hunt h = { s, ctx, r, fixed, m, ranks, stale, 0 };
    memset(s, 0, sizeof *s);
    if (ranks > MOST_ONE || (ranks > MOST && xd_parallel_ranks(fixed) != ranks))
        return xd_fail(e, XD_EINVAL,
                       "%d ranks have too many plans to predict; at most %d ranks are possible, or "
                       "%d if all degrees are given",
                       ranks, MOST, MOST_ONE);
    walk_axes(&h, *fixed, 0, ranks);
    if (h.failed)
        return xd_fail(e, XD_ENOMEM, "no memory for the plans of %d ranks", ranks);
    if (!s->n)
        return xd_fail(e, XD_EINVAL, "no plan for exactly %d ranks has the given degrees", ranks);
    qsort(s->c, (size_t)s->n, sizeof *s->c, by_time);
    while (s->good < s->n && !s->c[s->good].why.code)
        s->good++;
    if (s->good)
        return XD_OK;
    if (s->n == 1)
        return xd_fail(e, s->c[0].why.code, "the only plan for %d rank%s is not possible: %s",
                       ranks, ranks == 1 ? "" : "s", s->c[0].why.msg);
    return xd_fail(e, s->c[0].why.code, "none of %d plans for %d ranks is possible; %s: %s", s->n,
                   ranks, s->c[0].name, s->c[0].why.msg);
}

void xd_search_free(xd_search *s)
{
    for (int i = 0; i < s->n; i++) {
        xd_prediction_free(&s->c[i].f);
        free(s->c[i].name);
        free(s->c[i].flags);
    }
    free(s->c);
    memset(s, 0, sizeof *s);
}
