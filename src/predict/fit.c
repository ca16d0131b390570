/* fit.c - finds changes to a request's flags that make the request fit into memory.
 *
 * The changes are tried in sets. To test a set of changes, the memory need of the complete request
 * is counted. Sets that users prefer are tried first. If a set of changes fits, larger sets that
 * contain this set are not tried. */
#include "predict/fit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "model/model.h"
#include "families/recipe.h"
#include "pipeline/context.h"
#include "pipeline/dtypes.h"
#include "pipeline/memory_plan.h"
#include "plan/balance.h"

/* MAX_REPORTED is the max number of sets of changes that the error message lists. LEFT is the
 * number of bytes of memory that must stay free while the memory need of sets is counted. */
enum { MAX_REPORTED = 3, LEFT = 100000000 };
static const double PATIENCE_S = 1.5;

typedef struct set { /* a set of changed flags; all 0: no change */
    int      bf16;
    xd_dtype dit, text; /* new types of weights: I8, F8E4M3 or Q4_0 */
    /* degrees of tensor parallelism: `text_tp` is for the text encoders; `tp` replaces all other
     * degrees */
    int      text_tp, tp;
    /* tiles is 1 to add --enable_tiling; rows is 1 to add --use_parallel_vae */
    int      tiles, rows;
    int      ranks;   /* a smaller number of ranks; 0: no change */
    int      offload; /* 1: with --offload auto */
    int      size;    /* index of a smaller output size (size_of), from 1 */
} set;

typedef struct trial {
    /* needed and available bytes, for the memory limit with the least spare memory */
    double need, have;
    double text, dit; /* bytes of weights on the rank with the largest need */
    double streamed;  /* bytes of weights that each step reads from files or copies to the device */
    char   plan[256];
} trial;

typedef struct finder {
    const xd_fit      *t; /* the request and its limits; its context is the copy `own` */
    xd_context         own;
    const xd_parallel *plans;
    int                nplans;
    /* compute type of the engine, and types of its weights */
    xd_dtype           type, dit, text[XD_MAXTEXT];
    xd_offload         offload;
    double             until;
    set                fit[MAX_REPORTED];
    int                nfit;
    /* of all sets of changes, the one with the smallest memory need; `least` has that need */
    set                leanest;
    trial              least;
    xd_text_buf        reported;
} finder;

/* ---- searching plans ---------------------------------------------------------------------- */

double xd_fit_fullest(const xd_prediction *f)
{
    double most = 0;
    for (int r = 0; f->rank && r < f->ranks; r++)
        most = (double)f->rank[r].need.peak > most ? (double)f->rank[r].need.peak : most;
    return most;
}

xd_status xd_fit_search(const xd_fit *t, xd_search *s, int ranks, xd_err *e)
{
    xd_status st = xd_search_plans(s, t->ctx, t->r, t->fixed, ranks, t->stale, t->m, e);
    int       n = 0, good = s->good;
    for (int i = 0; i < good && t->space > 0; i++)
        if (xd_fit_fullest(&s->c[i].f) > t->space)
            xd_fail(&s->c[i].why, XD_ENOMEM, "it needs %s of address space and has %s",
                    xd_size_text(xd_fit_fullest(&s->c[i].f)).s, xd_size_text(t->space).s);
    for (int i = 0; i < good; i++) {
        xd_candidate k = s->c[i];
        if (k.why.code)
            continue;
        memmove(&s->c[n + 1], &s->c[n], (size_t)(i - n) * sizeof k);
        s->c[n++] = k;
    }
    s->good = n;
    if (!good || n)
        return st;
    const xd_candidate *l = xd_fit_least(s);
    const char         *why = l ? l->why.msg : "";
    if (s->n == 1)
        return xd_fail(e, XD_ENOMEM, "the only plan for %d rank%s is not possible: %s", ranks,
                       ranks == 1 ? "" : "s", why);
    return xd_fail(e, XD_ENOMEM, "none of %d plans for %d ranks is possible; %s: %s", s->n, ranks,
                   l ? l->name : "", why);
}

const xd_candidate *xd_fit_least(const xd_search *s)
{
    const xd_candidate *best = NULL;
    for (int i = 0; i < s->n; i++)
        if (s->c[i].why.code == XD_ENOMEM && s->c[i].f.peak > 0 &&
            (!best || s->c[i].f.peak < best->f.peak))
            best = &s->c[i];
    return best;
}

/* ---- what a set of changes means ---------------------------------------------------------- */

/* Returns 1 if weights of `type` need less memory than weights of the type `now`. */
static int is_smaller(xd_dtype type, xd_dtype now)
{
    return now != XD_Q4_0 && (type == XD_Q4_0 || (now != XD_I8 && now != XD_F8E4M3));
}

static int text_can_be(const finder *w, int k, xd_dtype type)
{
    const xd_model *m = &w->t->ctx->model;
    return m->has_text[k] && xd_types_quantizes(&m->text[k]) && is_smaller(type, w->text[k]);
}

/* In the context, sets the weight types of a set of changes; a type that the set does not change
 * becomes the engine's type. Discards the kernels of earlier sets, so that only the kernels of this
 * set are counted. */
static void set_types(finder *w, const set *s)
{
    xd_context *ctx = &w->own;
    if (w->t->space > 0)
        xd_dev_forget(ctx->dev);
    ctx->type = s->bf16 ? XD_BF16 : w->type;
    ctx->offload = s->offload ? XD_OFFLOAD_AUTO : w->offload;
    int streams = ctx->offload != XD_OFFLOAD_NONE && !xd_dev_identity(ctx->dev);
    for (int i = 0; i < xd_model_dits(&ctx->model); i++) {
        xd_weights *v = xd_model_dit(&ctx->model, i)->w;
        v->streams = streams;
        v->blocks = s->dit ? s->dit : w->dit;
    }
    for (int k = 0; k < XD_MAXTEXT; k++) {
        xd_component *p = xd_model_text(&ctx->model, k);
        if (!p)
            continue;
        p->w->blocks = s->text && text_can_be(w, k, s->text) ? s->text : w->text[k];
        p->w->streams = streams;
    }
}

/* Writes height and width of the smaller output size i. The sides of the sizes 1, 2 and 3 are 3/4,
 * 1/2 and 1/4 of the requested sides. Each further size halves the sides, down to a quarter of the
 * model's own size. Returns 0 if there is no size i. */
static int size_of(const finder *w, int i, int64_t side[2])
{
    const xd_model   *m = &w->t->ctx->model;
    const xd_request *r = w->t->r;
    int64_t           asked[2] = { r->height, r->width };
    for (int k = 0; k < 2; k++) {
        int64_t unit = (int64_t)m->vae_info.cell[k + 1] * m->dit_info.patch[k + 1];
        int64_t own = (int64_t)m->dit_info.sample[k + 1] * m->vae_info.cell[k + 1];
        asked[k] = asked[k] ? asked[k] : own;
        side[k] = (i <= 3 ? asked[k] * (4 - i) / 4 : asked[k] >> (i - 1)) / unit * unit;
        if (side[k] < unit || (i > 3 && side[k] < own / 4))
            return 0;
    }
    return !m->dit_info.fixed;
}

static int count_bins(const finder *w)
{
    const xd_recipe *p = w->t->ctx->model.recipe;
    return !w->t->r->output.no_resolution_binning && p->trained_size;
}

static void copy_request(const finder *w, const set *s, xd_request *r)
{
    int64_t side[2];
    *r = *w->t->r;
    if (s->tiles)
        r->output.enable_tiling = 1;
    if (s->size && size_of(w, s->size, side)) {
        r->height = side[0], r->width = side[1];
        r->output.no_resolution_binning |= count_bins(w);
    }
}

static xd_parallel plan_of(const set *s, const xd_parallel *a)
{
    xd_parallel p = *a;
    if (s->tp)
        p = (xd_parallel){ .tensor_parallel_degree = s->tp,
                           .warmup_steps = a->warmup_steps,
                           .use_parallel_vae = a->use_parallel_vae,
                           .text_tensor_parallel_degree = a->text_tensor_parallel_degree };
    if (s->text_tp)
        p.text_tensor_parallel_degree = s->text_tp;
    if (s->rows)
        p.use_parallel_vae = 1;
    return p;
}

static const char *kept_name(xd_dtype t)
{
    return t == XD_I8 ? "int8" : t == XD_Q4_0 ? "int4" : "fp8";
}

XD_PRINTF(2, 3) static void add_flag(xd_text_buf *b, const char *fmt, ...)
{
    char    one[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(one, sizeof one, fmt, ap);
    va_end(ap);
    xd_buf_add(b, "%s%s", b->len && b->p[b->len - 1] != ' ' ? " " : "", one);
}

/* Appends the flags of a set of changes, such as "--weights_dtype int8 --enable_tiling". */
static void flags_of(const finder *w, const set *s, xd_text_buf *b)
{
    int64_t side[2];
    if (s->offload)
        add_flag(b, "--offload auto");
    if (s->bf16)
        add_flag(b, "--dtype bf16");
    if (s->dit)
        add_flag(b, "--weights_dtype %s", kept_name(s->dit));
    if (s->text)
        add_flag(b, "--text_weights_dtype %s", kept_name(s->text));
    if (s->tp)
        add_flag(b, "--tensor_parallel_degree %d", s->tp);
    if (s->text_tp)
        add_flag(b, "--text_tensor_parallel_degree %d", s->text_tp);
    if (s->rows)
        add_flag(b, "--use_parallel_vae");
    if (s->tiles)
        add_flag(b, "--enable_tiling");
    if (s->ranks)
        add_flag(b, "--nproc %d", s->ranks);
    if (s->size && size_of(w, s->size, side))
        add_flag(b, "--width %lld --height %lld%s", (long long)side[1], (long long)side[0],
                 count_bins(w) ? " --no_resolution_binning" : "");
    if (s->tp)
        add_flag(b, "without other degrees");
}

/* ---- counting the memory need of a set ---------------------------------------------------- */

/* Returns a memory limit minus a margin, because the free memory may change a little before the
 * next run. */
static double with_margin(double have)
{
    return have - (have > 8e8 ? 4e6 + have / 200 : have / 100);
}

/* Returns the address space, in bytes, that this process may use, minus a margin. The weights that
 * are loaded are included. */
static double space_of(const finder *w)
{
    size_t machine, process;
    xd_host_memory(&machine, &process);
    return with_margin((double)process + w->t->held);
}

static void measure_trial(const finder *w, const xd_prediction *f, trial *c)
{
    const xd_fit *t = w->t;
    int           here = t->space > 0, host = f->ranks < t->m->ranks ? f->ranks : t->m->ranks;
    double        space = space_of(w), one = xd_fit_fullest(f);
    double        all = f->peak + (here ? (double)xd_dev_kernel_bytes(w->t->ctx->dev) * host : 0);
    *c = (trial){ .need = all, .have = with_margin(t->m->memory), .streamed = f->streamed };
    if (here && one * c->have > all * space)
        c->need = one, c->have = space > 1 ? space : 1;
    for (int r = 0; r < f->ranks; r++) {
        const xd_need *n = &f->rank[r].need;
        c->text = (double)n->text > c->text ? (double)n->text : c->text;
        c->dit = (double)n->dit > c->dit ? (double)n->dit : c->dit;
    }
    snprintf(c->plan, sizeof c->plan, "%s", f->plan.text);
}

static int is_lighter(const trial *a, const trial *b)
{
    return !(b->have > 0) || a->need * b->have < b->need * a->have;
}

/* Predicts the memory of a plan. If blocks are streamed, the plan is predicted a second time: the
 * first prediction tells how much memory the kernels need, and the second one leaves this memory
 * free. */
static xd_status predict_plan(const finder *w, const xd_request *r, const xd_parallel *p,
                              xd_prediction *f, trial *c, xd_err *e)
{
    const xd_fit *t = w->t;
    xd_machine    m = *t->m;
    for (int again = 0;; again++) {
        xd_status st = xd_predict(f, t->ctx, r, p, t->ranks, &m, e);
        if (st != XD_OK)
            return st;
        measure_trial(w, f, c);
        if (again || !m.shares || t->ctx->offload != XD_OFFLOAD_AUTO || c->need <= c->have)
            return st;
        int host = f->ranks < m.ranks ? f->ranks : m.ranks;
        m.memory = with_margin(m.memory);
        if (t->space > 0)
            m.memory -= (double)xd_dev_kernel_bytes(t->ctx->dev) * host;
        if (t->space > 0 && f->ranks == 1)
            m.memory = fmin(m.memory, space_of(w));
        m.memory = fmax(m.memory, 1);
        xd_prediction_free(f);
    }
}

/* Counts the memory need of each given plan with a set of changes. *best becomes the smallest need.
 * Returns 0 if no plan is possible. */
static int count_plans(finder *w, const set *s, trial *best)
{
    xd_request r;
    int        any = 0;
    copy_request(w, s, &r);
    for (int i = 0; i < w->nplans; i++) {
        xd_parallel   p = plan_of(s, &w->plans[i]);
        xd_prediction f;
        trial         c;
        xd_err        e = { 0 };
        set_types(w, s);
        if (predict_plan(w, &r, &p, &f, &c, &e) == XD_OK) {
            if (!any++ || is_lighter(&c, best))
                *best = c;
        }
        xd_prediction_free(&f);
    }
    return any;
}

/* Finds the smallest memory need over all plans for the number of ranks in the set of changes,
 * which is smaller than the request's number. */
static int count_fewer(finder *w, const set *s, trial *best)
{
    xd_search se = { 0 };
    xd_err    e = { 0 };
    int       any = 0;
    set_types(w, s);
    xd_fit_search(w->t, &se, s->ranks, &e);
    for (int i = 0; i < se.n; i++) {
        trial c;
        if (!se.c[i].f.rank || !(se.c[i].f.peak > 0))
            continue;
        measure_trial(w, &se.c[i].f, &c);
        if (!any++ || is_lighter(&c, best))
            *best = c;
    }
    xd_search_free(&se);
    return any;
}

/* Counts the memory need of a request with a set of changes. Returns 0 if it was not counted.
 * Counting itself needs memory for the descriptions of kernels. When little memory is left, no more
 * sets are counted, and the advice has only the sets that were found before. */
static int count_set(finder *w, const set *s, trial *c)
{
    if (xd_host_address_space() < LEFT)
        return 0;
    int any = s->ranks ? count_fewer(w, s, c) : count_plans(w, s, c);
    if (any && !s->size && c->need > c->have && is_lighter(c, &w->least)) {
        w->least = *c;
        w->leanest = *s;
    }
    return any;
}

static void add_advice(finder *w, const set *s, const trial *c)
{
    xd_buf_add(&w->reported, "%s", w->nfit ? "; " : "");
    flags_of(w, s, &w->reported);
    xd_buf_add(&w->reported, " (%s%s%s", w->t->ranks > 1 ? c->plan : "",
               w->t->ranks > 1 ? ", " : "", xd_size_text(c->need).s);
    if (s->offload && c->streamed > 0)
        xd_buf_add(&w->reported, ", each step %s %s of weights",
                   xd_dev_identity(w->t->ctx->dev) ? "copies" : "reads",
                   xd_size_text(c->streamed).s);
    if (s->offload)
        xd_buf_add(&w->reported, ", %s",
                   s->dit || s->text || s->bf16 || s->size ? "blocks are streamed"
                                                           : "the same image");
    xd_buf_add(&w->reported, ")");
    if (w->nfit < MAX_REPORTED)
        w->fit[w->nfit++] = *s;
}

/* Returns 1 if the set s has all changes of the set f; the types of weights may differ. */
static int includes(const set *s, const set *f)
{
    return s->bf16 >= f->bf16 && s->offload >= f->offload && (!f->dit || s->dit) &&
           (!f->text || s->text) && (!f->tp || s->tp) && (!f->text_tp || s->text_tp) &&
           s->tiles >= f->tiles && s->rows >= f->rows && s->ranks == f->ranks &&
           (!f->size || s->size >= f->size);
}

/* Removes unnecessary changes from a set: those without which the request still needs at most
 * `most` times the available memory. Changes that cost the user more are removed first. */
static void simplify_set(finder *w, set *s, trial *c, double most)
{
    for (int i = 0; i < 8; i++) {
        set   a = *s;
        trial d;
        switch (i) {
        case 0: a.tp = 0; break;
        case 1: a.text_tp = 0; break;
        case 2: a.rows = 0; break;
        case 3: a.tiles = 0; break;
        case 4: a.bf16 = 0; break;
        case 5: a.text = XD_F32; break;
        case 6: a.dit = XD_F32; break;
        default: a.offload = 0;
        }
        if (memcmp(&a, s, sizeof a) != 0 && count_set(w, &a, &d) && d.need <= most * d.have)
            *s = a, *c = d;
    }
}

/* Counts the memory need with one more set of changes. If the request fits, adds the set to the
 * advice and returns 1. */
static int try_set(finder *w, const set *asked)
{
    static const set nothing;
    set              s = *asked;
    trial            c;
    if (w->nfit == (w->t->only ? 1 : MAX_REPORTED) || memcmp(&s, &nothing, sizeof nothing) == 0 ||
        xd_now_s() > w->until)
        return 0;
    for (int i = 0; i < w->nfit; i++)
        if (includes(&s, &w->fit[i]))
            return 0;
    if (!count_set(w, &s, &c) || c.need > c.have)
        return 0;
    if (!s.ranks)
        simplify_set(w, &s, &c, 1);
    add_advice(w, &s, &c);
    return 1;
}

/* ---- trying sets of changes -------------------------------------------------------------- */

/* The changes that may be tried; a field is 0 if its change is not possible. */
typedef struct levers {
    int      bf16, tiles, rows, tp, text_tp, offload;
    xd_dtype dit, text;
    xd_dtype dit4, text4; /* types with four bits, only on CPUs: Q4_0 */
    int      text_first;  /* 1: the text encoder is larger than the transformer */
} levers;

static xd_dtype small_text(const finder *w)
{
    for (int k = 0; k < w->t->ctx->model.recipe->ntext; k++)
        if (text_can_be(w, k, XD_I8))
            return xd_types_stores_fp8(&w->t->ctx->model.text[k]) ? XD_F8E4M3 : XD_I8;
    return XD_F32;
}

static xd_dtype least_text(const finder *w)
{
    for (int k = 0; k < w->t->ctx->model.recipe->ntext; k++)
        if (text_can_be(w, k, XD_Q4_0))
            return XD_Q4_0;
    return XD_F32;
}

static levers find_levers(const finder *w, const trial *base)
{
    const xd_fit      *t = w->t;
    const xd_parallel *f = t->fixed;
    int                text = t->r->nprompts > 0, host = !xd_dev_identity(t->ctx->dev);
    return (levers){
        .bf16 = w->type == XD_F32 && xd_dev_compute(t->ctx->dev, XD_BF16) == XD_BF16,
        .offload = w->offload == XD_OFFLOAD_NONE,
        .tiles = !t->r->output.enable_tiling && !t->r->output.latents_only,
        .rows = t->ranks > 1 && !t->chosen && !f->use_parallel_vae && !t->r->output.latents_only,
        .tp = t->ranks > 1 && !t->chosen && f->tensor_parallel_degree != t->ranks ? t->ranks : 0,
        .text_tp = t->ranks > 1 && f->text_tensor_parallel_degree <= 1 && text ? t->ranks : 0,
        .dit = !is_smaller(XD_I8, w->dit)                ? XD_F32
               : xd_types_stores_fp8(&t->ctx->model.dit) ? XD_F8E4M3
                                                         : XD_I8,
        .text = small_text(w),
        .dit4 = host && is_smaller(XD_Q4_0, w->dit) ? XD_Q4_0 : XD_F32,
        .text4 = host ? least_text(w) : XD_F32,
        .text_first = base->text > base->dit
    };
}

/* Tries all combinations of smaller weight types, each together with the changes in `s`.
 * Combinations that change a single type come first, in this order: bf16, a smaller type of the
 * larger component, a smaller type of the smaller component. */
static void try_types(finder *w, const levers *l, set s)
{
    /* a combination is a sum of bits: 1 stands for bf16, 2 for a smaller type of the larger
     * component, and 4 for a smaller type of the smaller component */
    static const int order[] = { 1, 2, 4, 6, 3, 5, 7 };
    xd_dtype large = l->text_first ? l->text : l->dit, small = l->text_first ? l->dit : l->text;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        int k = order[i];
        set a = s;
        if ((k & 1 && !l->bf16) || (k & 2 && !large) || (k & 4 && !small))
            continue;
        a.bf16 = k & 1;
        xd_dtype one = k & 2 ? large : XD_F32, two = k & 4 ? small : XD_F32;
        a.dit = l->text_first ? two : one;
        a.text = l->text_first ? one : two;
        try_set(w, &a);
    }
}

/* Tries four-bit weights. Does nothing if the request fits with other types of weights and without
 * streaming. */
static void try_four(finder *w, const levers *l)
{
    levers four = *l;
    for (int i = 0; i < w->nfit; i++)
        if (!w->fit[i].offload && (w->fit[i].dit || w->fit[i].text))
            return;
    four.dit = l->dit4;
    four.text = l->text4;
    if (four.dit || four.text)
        try_types(w, &four, (set){ 0 });
}

/* Tries changes of the plan's degrees and of the parallel VAE, alone and together. */
static void try_degrees(finder *w, const levers *l)
{
    for (int k = 1; k < 8; k++) {
        set s = { .tp = k & 2 ? l->tp : 0,
                  .text_tp = k & 1 ? l->text_tp : 0,
                  .rows = k & 4 ? l->rows : 0 };
        if ((k & 2 && !l->tp) || (k & 1 && !l->text_tp) || (k & 4 && !l->rows))
            continue;
        try_set(w, &s);
        try_types(w, l, s);
    }
}

static set all_levers(const levers *l)
{
    return (set){ .bf16 = l->bf16,
                  .dit = l->dit,
                  .text = l->text,
                  .tp = l->tp,
                  .text_tp = l->text_tp,
                  .tiles = l->tiles,
                  .rows = l->rows,
                  .offload = l->offload };
}

/* Tries changes that leave the pixels unchanged or nearly unchanged: tiles and streaming. */
static void try_lossless(finder *w, const levers *l)
{
    for (int k = 1; k < 4; k++)
        if ((l->tiles || !(k & 1)) && (l->offload || !(k & 2)))
            try_set(w, &(set){ .tiles = k & 1, .offload = k & 2 ? 1 : 0 });
}

static void try_tiles(finder *w, const levers *l)
{
    if (l->tiles)
        try_types(w, l, (set){ .tiles = 1 });
}

static void try_fewer(finder *w)
{
    int n = w->t->ranks, given = w->t->chosen ? xd_parallel_ranks(w->t->fixed) : n;
    for (int k = (n - 1) / given * given; k >= given && k < n; k = k / 2 / given * given) {
        set s = { .ranks = k };
        if (try_set(w, &s))
            return;
    }
}

/* Returns 1 if the pixels alone fit into memory. This is a quick check, because no memory need is
 * counted. */
static int may_fit(const finder *w, const int64_t side[2])
{
    const xd_fit *t = w->t;
    double        have = t->space > 0 && t->space < t->m->memory ? t->space : t->m->memory;
    return (double)side[0] * (double)side[1] * 15 < have;
}

/* Finds the largest output size with which the request fits, if the changes in `s` are made, too.
 * Tries the sizes with the indices from `from` to `to` - 1; a higher index is a smaller size.
 * Returns the index, or `to` if no size fits. */
static int try_sizes(finder *w, set s, int from, int to)
{
    int64_t side[2];
    for (s.size = from; s.size < to && size_of(w, s.size, side); s.size++)
        if (may_fit(w, side) && try_set(w, &s))
            return s.size;
    return to;
}

/* Returns 1 if the request can fit with any of the changes in `all`, which do not change the image
 * size. If the kernels for tiles need more memory than tiles save, removes tiles from `all`. */
static int any_may_fit(finder *w, set *all)
{
    set   plain = *all;
    trial c, d;
    plain.tiles = 0;
    if (!count_set(w, all, &c) || c.need <= c.have)
        return 1;
    if (!all->tiles || !count_set(w, &plain, &d) || !is_lighter(&d, &c))
        return w->nfit > 0;
    *all = plain;
    return w->nfit > 0 || d.need <= d.have;
}

/* Used if the request does not fit with eight-bit weights. Replaces the weight types in `all` by
 * four-bit types. Then tries four-bit types without other changes and with all other changes. */
static void try_all_in_four(finder *w, const levers *l, set *all)
{
    all->dit = l->dit4 ? l->dit4 : all->dit;
    all->text = l->text4 ? l->text4 : all->text;
    if ((!l->dit4 && !l->text4) || !any_may_fit(w, all))
        return;
    try_four(w, l);
    try_set(w, all);
}

static void try_all(finder *w, const levers *l)
{
    enum { SIZES = 12 };
    set all = all_levers(l);
    int huge = w->t->huge;
    if (!huge)
        try_lossless(w, l);
    if (!huge && any_may_fit(w, &all)) {
        try_types(w, l, (set){ 0 });
        try_degrees(w, l);
        try_tiles(w, l);
        try_set(w, &all);
        try_four(w, l);
    } else if (!huge) {
        try_all_in_four(w, l, &all);
    }
    if (!huge && !w->t->only)
        try_fewer(w);
    if (w->nfit > 0 || w->t->only)
        return;
    w->until = xd_now_s() + PATIENCE_S; /* allows more time, because no set of changes fits yet */
    int size = try_sizes(w, (set){ 0 }, 1, SIZES);
    if (!huge)
        try_sizes(w, all, 1, size);
}

/* ---- writing the advice ------------------------------------------------------------------- */

static void write_advice(finder *w, char *out, size_t size)
{
    static const set nothing;
    set              lean = w->leanest;
    trial            c = w->least, plain = { 0 };
    xd_text_buf      b = { 0 };
    if (w->nfit) {
        xd_buf_add(&b, "; what would fit: %s", w->reported.p ? w->reported.p : "");
    } else if (c.have > 0 && (!count_set(w, &nothing, &plain) || c.need < plain.need) &&
               memcmp(&lean, &nothing, sizeof nothing) != 0) {
        simplify_set(w, &lean, &c, 1.001 * c.need / c.have);
        xd_buf_add(&b, "; no similar request fits; the minimum: %s, with ", xd_size_text(c.need).s);
        flags_of(w, &lean, &b);
    } else {
        xd_buf_add(&b, "; no similar request needs less");
    }
    snprintf(out, size, "%s", b.failed || !b.p ? "" : b.p);
    xd_buf_free(&b);
}

/* If `only` is not 0, keeps only the possible changes that `only` names: those that an engine may
 * make without asking the user. */
static levers limit_levers(levers l, int only)
{
    if (only)
        l = (levers){ .offload = only & XD_FIT_OFFLOAD ? l.offload : 0,
                      .dit = only & XD_FIT_DIT ? l.dit : XD_F32,
                      .text = only & XD_FIT_TEXT ? l.text : XD_F32,
                      .dit4 = only & XD_FIT_DIT ? l.dit4 : XD_F32,
                      .text4 = only & XD_FIT_TEXT ? l.text4 : XD_F32,
                      .text_first = l.text_first };
    return l;
}

/* Finds the sets of changes with which the request fits, and writes them to `out` as text. Sets
 * *first to the first of these sets. */
static void find_advice(const xd_fit *t, const xd_parallel *plans, int n, set *first, char *out,
                        size_t size)
{
    xd_fit mine = *t;
    finder w = { .t = &mine,
                 .plans = plans,
                 .nplans = n,
                 .type = t->ctx->type,
                 .dit = t->ctx->model.dit.w->blocks,
                 .offload = t->ctx->offload,
                 .until = xd_now_s() + PATIENCE_S };
    set    same = { 0 };
    trial  base = { 0 };
    out[0] = 0;
    int forked = xd_context_fork(&w.own, t->ctx, NULL) == XD_OK;
    mine.ctx = &w.own;
    for (int k = 0; k < XD_MAXTEXT; k++)
        if (xd_model_text(&w.own.model, k))
            w.text[k] = t->ctx->model.text[k].w->blocks;
    if (!forked)
        ; /* there is no memory for finding advice */
    else if (t->huge || count_set(&w, &same, &base)) {
        levers l = limit_levers(find_levers(&w, &base), t->only);
        try_all(&w, &l);
        write_advice(&w, out, size);
        *first = w.nfit ? w.fit[0] : (set){ 0 };
    }
    if (forked)
        set_types(&w, &same);
    xd_context_fork_close(&w.own, t->ctx);
    xd_buf_free(&w.reported);
}

void xd_fit_advice(const xd_fit *t, const xd_parallel *plans, int n, char *out, size_t size)
{
    set first = { 0 };
    find_advice(t, plans, n, &first, out, size);
}

xd_fit_choice xd_fit_choose(const xd_fit *t, const xd_parallel *plan, char *out, size_t size)
{
    static const char before[] = "; what would fit: ";
    set               s = { 0 };
    find_advice(t, plan, 1, &s, out, size);
    if (strncmp(out, before, strlen(before)) == 0)
        memmove(out, out + strlen(before), strlen(out + strlen(before)) + 1);
    return (xd_fit_choice){ s.offload, (int32_t)s.dit, (int32_t)s.text };
}

/* Writes advice with option changes that let two plans fit: the plan that needs the least memory,
 * and the plan that needs the least memory when the text encoders are not counted. */
void xd_fit_advice_of(const xd_fit *t, const xd_search *s, char *out, size_t size)
{
    const xd_candidate *one = xd_fit_least(s), *two = NULL;
    double              best = 0;
    xd_parallel         plans[2];
    out[0] = 0;
    for (int i = 0; i < s->n && one; i++) {
        double most = 0;
        for (int r = 0; s->c[i].f.rank && r < s->c[i].f.ranks; r++) {
            xd_need n = s->c[i].f.rank[r].need;
            n.text = n.text_tmp = n.text_work = 0;
            double peak = (double)xd_need_peak(&n, t->ctx->keep, 0);
            most = peak > most ? peak : most;
        }
        if (s->c[i].why.code == XD_ENOMEM && most > 0 && (!two || most < best))
            two = &s->c[i], best = most;
    }
    if (!one)
        return;
    plans[0] = one->parallel;
    plans[1] = two ? two->parallel : one->parallel;
    xd_fit_advice(t, plans, two && two != one ? 2 : 1, out, size);
}
