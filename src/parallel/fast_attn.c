/* fast_attn.c - implements DiTFastAttn, which reuses attention outputs across steps and CFG passes,
 * and computes attention in windows. The difference from full attention (the residual) is reused
 * from an earlier step.
 *
 * In the list of parallel methods, DiTFastAttn comes first. DiTFastAttn works on this rank's tokens
 * and on the heads of its tensor-parallel rank, so reuse needs no message. All ranks make the same
 * choice (compute or reuse) for an attention layer, because the choice depends only on the table,
 * the step and the earlier steps. Window attention itself is implemented in window.c. To compute
 * full attention, this file sets x->window_off.
 *
 * For every pass, block and attention layer, the last output is kept in memory. If the table uses
 * window attention in any step, the residual (the full output minus the window attention's output)
 * is kept, too. */
#include <math.h>
#include <stdlib.h>

#include "exec/op.h"
#include "parallel/fast_attn.h"
#include "parallel/rows.h"

extern const xd_method xd_method_fast_attn;

/* Kinds of tensors that are kept for each attention layer: the attention output (OUTPUT) and the
 * residual (REST). NEW_OUTPUT and NEW_REST are used only while a table of choices is searched. */
enum { OUTPUT, REST, NEW_OUTPUT, NEW_REST, KINDS };

typedef struct slot {  /* state kept for one pass, block and attention layer */
    int64_t rows;      /* number of rows of the kept output; 0: none */
    int     step;      /* step in which the kept output was computed */
    int     rest_step; /* step in which the kept residual was computed; -1: none */
} slot;

typedef struct fast {
    xd_hooks       hooks;
    xd_attn_table *table;
    const xd_topo *topo;
    xd_dev        *dev;
    char          *mem;
    slot          *slots;
    /* [blocks][XD_ATTN_WAYS]: for each block, the error of each way to compute attention; < 0:
     * unknown. */
    double        *loss;
    float         *host; /* copies of two outputs in host memory */
    int64_t        rows, heads, head_dim;
    int64_t        width; /* elements per head in the current attention layer, at most head_dim */
    xd_dtype       type;
    int            first, nlayers, sites, npass;
    int            windows; /* 1: the table has ways with windows */
    int            kinds;
} fast;

/* ---- kept outputs ------------------------------------------------------------------------- */

static int slot_at(const fast *s, int64_t pass, int layer, int site)
{
    return (int)((pass * s->nlayers + layer - s->first) * s->sites) + site;
}

static int slot_now(const xd_exec *x, const fast *s)
{
    return slot_at(s, xd_my_pass(x, s->topo), x->layer, x->site);
}

static xd_tensor kept(const fast *s, int i, int kind, int64_t rows)
{
    const size_t one = (size_t)(s->rows * s->heads * s->head_dim) * xd_dtype_size(s->type);
    return xd_view(s->mem + (size_t)(i * s->kinds + kind) * one, s->type, 4,
                   (int64_t[]){ 1, rows, s->heads, s->width });
}

/* Returns a copy of a tensor in F32, in the arena. */
static xd_tensor as_f32(xd_exec *x, xd_tensor t)
{
    xd_tensor c = xd_reshape(xd_new_f32(x, t.d[1], t.d[2] * t.d[3]), 4, t.d);
    xd_copy_to(x, c, t);
    return c;
}

static void add(xd_exec *x, xd_tensor y, float a, xd_tensor in)
{
    const int64_t d[2] = { y.d[1], y.d[2] * y.d[3] };
    xd_axpby(x, xd_reshape(y, 2, d), a, xd_reshape(in, 2, d), 1);
}

/* ---- attention ---------------------------------------------------------------------------- */

static void attend(xd_exec *x, const xd_hooks *m, xd_attn_args *a, int windowed)
{
    x->window_off = !windowed;
    xd_next_attn(x, m, a);
    x->window_off = 0;
}

/* Computes the residual: rest = a->out (output of full attention) minus the output of window
 * attention. */
static void store_rest(xd_exec *x, const xd_hooks *m, const xd_attn_args *a, xd_tensor rest)
{
    const fast  *s = m->priv;
    size_t       mark = xd_arena_mark(x->tmp);
    xd_attn_args b = *a;
    xd_tensor    all = as_f32(x, a->out);
    b.out = xd_reshape(xd_new_as(x, s->type, 2, (int64_t[]){ a->q.d[1], s->heads * s->width }), 4,
                       a->out.d);
    attend(x, m, &b, 1);
    add(x, all, -1, as_f32(x, b.out));
    xd_copy_to(x, rest, all);
    xd_arena_rewind(x->tmp, mark);
}

static void add_rest(xd_exec *x, xd_tensor out, xd_tensor rest)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor all = as_f32(x, out);
    add(x, all, 1, as_f32(x, rest));
    xd_copy_to(x, out, all);
    xd_arena_rewind(x->tmp, mark);
}

/* Returns 1 if window attention follows before the next full attention, so that the residual is
 * needed. In the dry run that counts memory, the first attention always needs the residual. */
static int wants_rest(const xd_exec *x, const fast *s, const slot *o)
{
    if (!s->windows || (xd_counting(x) && !o->rows))
        return s->windows;
    for (int i = x->step + 1; i < s->table->steps; i++) {
        const xd_attn_way w = xd_attn_way_at(s->table, x->layer, i);
        if (w != XD_ATTN_SHARE)
            return xd_attn_has_window(w);
    }
    return 0;
}

/* Returns 1 if the pass with the prompt has already computed this step's output, with the same
 * number of rows. */
static int has_prompts(const xd_exec *x, const fast *s, int64_t rows)
{
    const slot *p = &s->slots[slot_at(s, 0, x->layer, x->site)];
    return x->pass > 0 && p->rows == rows && p->step == x->step;
}

static void take_prompts(xd_exec *x, const fast *s, xd_attn_args *a, slot *o)
{
    const int     from = slot_at(s, 0, x->layer, x->site), to = slot_now(x, s);
    const int64_t n = a->q.d[1];
    xd_copy_to(x, a->out, kept(s, from, OUTPUT, n));
    xd_copy_to(x, kept(s, to, OUTPUT, n), a->out);
    if (s->slots[from].rest_step == x->step) {
        xd_copy_to(x, kept(s, to, REST, n), kept(s, from, REST, n));
        o->rest_step = x->step;
    }
    *o = (slot){ n, x->step, o->rest_step };
}

static void compute(xd_exec *x, const xd_hooks *m, xd_attn_args *a, slot *o, int windowed)
{
    const fast   *s = m->priv;
    const int     i = slot_now(x, s);
    const int64_t n = a->q.d[1];
    attend(x, m, a, windowed);
    if (windowed) {
        add_rest(x, a->out, kept(s, i, REST, n));
    } else if (wants_rest(x, s, o)) {
        store_rest(x, m, a, kept(s, i, REST, n));
        o->rest_step = x->step;
    }
    xd_copy_to(x, kept(s, i, OUTPUT, n), a->out);
    *o = (slot){ n, x->step, o->rest_step };
}

/* ---- search for a table --------------------------------------------------------------------- */

/* Returns the relative difference of two attention outputs, mean |a - b| / mean |b|. */
static double distance(xd_exec *x, const fast *s, xd_tensor a, xd_tensor b)
{
    const size_t  mark = xd_arena_mark(x->tmp);
    const int64_t n = xd_count(b);
    double        far = 0, size = 0;
    xd_get(x, s->host, as_f32(x, a));
    xd_get(x, s->host + n, as_f32(x, b));
    xd_arena_rewind(x->tmp, mark);
    if (!xd_ok(x) || xd_counting(x))
        return 0;
    for (int64_t i = 0; i < n; i++) {
        far += fabs((double)s->host[i] - (double)s->host[n + i]);
        size += fabs((double)s->host[n + i]);
    }
    return size > 0 ? far / size : 0;
}

/* Returns the relative difference between the full output `out` and the window attention's output
 * plus the kept residual. */
static double window_distance(xd_exec *x, const fast *s, int i, xd_tensor out)
{
    const size_t  mark = xd_arena_mark(x->tmp);
    const int64_t n = out.d[1];
    xd_tensor     t = as_f32(x, kept(s, i, NEW_OUTPUT, n));
    add(x, t, -1, as_f32(x, kept(s, i, NEW_REST, n)));
    add(x, t, 1, as_f32(x, kept(s, i, REST, n)));
    double far = distance(x, s, t, out);
    xd_arena_rewind(x->tmp, mark);
    return far;
}

static void raise(double *loss, xd_attn_way w, double to)
{
    loss[w] = to > loss[w] ? to : loss[w];
}

/* During the search for a table, chooses the way in which a block's attention is computed in the
 * current step, and updates the kept output and residual to match. */
static void settle(xd_exec *x, fast *s, int layer)
{
    double     *loss = s->loss + (ptrdiff_t)(layer - s->first) * XD_ATTN_WAYS;
    const slot *p = &s->slots[slot_at(s, 0, layer, 0)];
    const int   block = layer - s->table->lead;
    int         w = 0;
    while (w < XD_ATTN_FULL && !(loss[w] >= 0 && loss[w] < s->table->limit))
        w++;
    if (p->rows && p->step < s->table->steps && block < s->table->blocks) {
        uint8_t *found = &s->table->found[block * s->table->steps + p->step];
        *found = w > *found ? (uint8_t)w : *found;
    }
    for (int pass = 0; pass < s->npass && x; pass++)
        for (int site = 0; site < s->sites; site++) {
            const int     i = slot_at(s, pass, layer, site);
            const int64_t n = s->slots[i].rows;
            if (n && w != XD_ATTN_SHARE)
                xd_copy_to(x, kept(s, i, OUTPUT, n), kept(s, i, NEW_OUTPUT, n));
            if (n && s->windows && (w == XD_ATTN_FULL || w == XD_ATTN_FULL_CFG))
                xd_copy_to(x, kept(s, i, REST, n), kept(s, i, NEW_REST, n));
        }
    for (int i = 0; i < XD_ATTN_WAYS; i++)
        loss[i] = -1;
}

/* Computes the output of full attention, and the error of each cheaper way that could replace
 * it. */
static void measure(xd_exec *x, const xd_hooks *m, xd_attn_args *a, slot *o)
{
    fast         *s = m->priv;
    const int     i = slot_now(x, s), prompts = slot_at(s, 0, x->layer, x->site);
    const int64_t n = a->q.d[1];
    double       *loss = s->loss + (ptrdiff_t)(x->layer - s->first) * XD_ATTN_WAYS;
    attend(x, m, a, 0);
    xd_tensor now = kept(s, i, NEW_OUTPUT, n);
    xd_copy_to(x, now, a->out);
    if (s->windows)
        store_rest(x, m, a, kept(s, i, NEW_REST, n));
    if (xd_counting(x) || (o->rows == n && x->step > 0)) {
        raise(loss, XD_ATTN_SHARE, distance(x, s, kept(s, i, OUTPUT, n), now));
        if (s->windows)
            raise(loss, XD_ATTN_WINDOW, window_distance(x, s, i, now));
        if (has_prompts(x, s, n)) {
            raise(loss, XD_ATTN_FULL_CFG, distance(x, s, kept(s, prompts, NEW_OUTPUT, n), now));
            if (s->windows)
                raise(loss, XD_ATTN_WINDOW_CFG, window_distance(x, s, prompts, now));
        }
    }
    *o = (slot){ n, x->step, x->step };
}

static void fast_attn(xd_exec *x, const xd_hooks *m, xd_attn_args *a)
{
    fast         *s = m->priv;
    const int64_t n = a->q.d[1];
    if (x->layer < s->table->lead || n > s->rows) {
        attend(x, m, a, 0);
        return;
    }
    slot       *o = &s->slots[slot_now(x, s)];
    xd_attn_way w = xd_attn_way_at(s->table, x->layer, x->step);
    s->width = s->head_dim; /* settle copies the outputs of all layers of the block */
    if (s->loss && x->pass == 0 && x->site == 0)
        settle(x, s, x->layer);
    s->width = a->q.d[3];
    /* The kept tensors are invalid when the image size changes or a new request begins. */
    if (o->rows != n || x->step < o->step)
        *o = (slot){ .rest_step = -1 };
    if (s->loss)
        measure(x, m, a, o);
    else if (w == XD_ATTN_SHARE && o->rows)
        xd_copy_to(x, a->out, kept(s, slot_now(x, s), OUTPUT, n));
    else if (xd_attn_has_cfg(w) && has_prompts(x, s, n))
        take_prompts(x, s, a, o);
    else
        compute(x, m, a, o, xd_attn_has_window(w) && o->rest_step >= 0);
}

/* ---- opening ------------------------------------------------------------------------------ */

static void close_fast_attn(xd_hooks *m)
{
    fast *s = m->priv;
    for (int l = s->first; s->loss && s->slots && l < s->first + s->nlayers; l++)
        if (l >= s->table->lead && !s->dev->counts)
            settle(NULL, s, l);
    if (s->mem)
        s->dev->mem->put(s->dev, s->mem, s->hooks.bytes);
    free(s->slots), free(s->loss), free(s->host), free(s);
}

/* Allocates the memory in which a search for a table stores the errors of all ways. Returns 1 on
 * success, or 0 if out of memory. */
static int open_losses(fast *s)
{
    const int n = s->nlayers * XD_ATTN_WAYS;
    s->kinds = KINDS;
    s->loss = malloc((size_t)n * sizeof *s->loss + 1);
    s->host = malloc((size_t)(2 * s->rows * s->heads * s->head_dim) * sizeof *s->host + 1);
    for (int i = 0; i < n && s->loss; i++)
        s->loss[i] = -1;
    return s->loss && s->host;
}

static xd_status open_fast_attn(const xd_method_args *a, const xd_hooks *next, xd_hooks **out,
                                xd_err *e)
{
    *out = NULL;
    if (a->what != XD_FOR_DIT || !a->ways || !a->ways->way)
        return XD_OK;
    fast *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for fast_attn");
    s->hooks = (xd_hooks){ .attn = fast_attn, .next = next, .priv = s };
    s->table = a->ways;
    s->topo = a->topo, s->dev = a->dev, s->type = a->act;
    s->first = a->first, s->nlayers = a->last - a->first, s->sites = a->sites;
    s->npass = xd_my_passes(a);
    s->heads = a->heads * a->group, s->head_dim = a->head_dim;
    s->rows = xd_own_rows(a->lay, XD_ALL,
                          xd_topo_sp(a->topo, a->topo->at[XD_ULYSSES], a->topo->at[XD_RING]));
    s->windows = a->ways->limit > 0 ? a->window && (a->window[0] | a->window[1] | a->window[2])
                                    : xd_attn_table_has(a->ways, xd_attn_has_window);
    s->kinds = 1 + s->windows;
    const int measures = a->ways->limit > 0, count = s->npass * s->nlayers * s->sites,
              ready = !measures || open_losses(s);
    s->hooks.bytes = (size_t)(s->rows * s->heads * s->head_dim) * xd_dtype_size(s->type) *
                         (size_t)(count * s->kinds) +
                     64;
    s->slots = calloc((size_t)count + 1, sizeof *s->slots);
    s->mem = s->dev->mem->get(s->dev, s->hooks.bytes);
    *out = &s->hooks;
    if (ready && s->slots && s->mem)
        return XD_OK;
    xd_fail(e, XD_ENOMEM, "no memory for the %s of fast_attn's outputs",
            xd_size_text((double)s->hooks.bytes).s);
    close_fast_attn(*out);
    *out = NULL;
    return XD_ENOMEM;
}

const xd_method xd_method_fast_attn = { "fast_attn", open_fast_attn, close_fast_attn };
