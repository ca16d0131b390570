/* near.c - exchanges the rows of tokens that a convolution over tokens (xd_conv_tokens) reads: the
 * tokens of other ranks and of other PipeFusion patches near a rank's own tokens.
 *
 * Each kind of convolution (xd_nearness) has its own reach and channels.
 *
 * A rank has one span of consecutive tokens in each patch. The convolution reads xd_reach tokens
 * before and after a span, which may belong to several ranks if spans are short. Every rank
 * computes from the layout which rows the other ranks need. With PipeFusion, every rank stores its
 * rows near the ends of each patch. While one patch is computed, ranks send the stored rows of
 * other patches: those of an earlier patch are from this step, those of a later patch from the
 * previous step. */
#include <stdlib.h>

#include "base/minmax.h"
#include "exec/op.h"
#include "parallel/rows.h"

extern const xd_method xd_method_near;

typedef struct near {
    xd_hooks       hooks;
    const xd_topo *topo;
    xd_comm       *c; /* the ranks that share the tokens */
    xd_dev        *dev;
    int            npatch, first, nlayers;
    xd_nearness    how; /* the kind of convolution of the current call */
    /* for each kind: channels, and the number of stored rows of a layer and pass */
    int64_t        channels[XD_NNEAR], rows[XD_NNEAR];
    xd_dtype       type;
    /* With PipeFusion: for each kind, [passes, layers, rows, channels]: rows near the ends. */
    char          *mem;
    size_t         at_kind[XD_NNEAR]; /* where the rows of a kind begin in `mem` */
    size_t         bytes;
    xd_tensor     *give, *get; /* [ranks]: views to send and to receive */
    int64_t       *at;         /* [ranks]: counts rows of a rank */
} near;

static xd_span intersect(xd_span a, xd_span b)
{
    int64_t lo = xd_max(a.start, b.start), hi = xd_min(a.start + a.n, b.start + b.n);
    return (xd_span){ lo, hi > lo ? hi - lo : 0 };
}

static int is_computed(const xd_exec *x, int patch)
{
    return x->patch == XD_ALL || x->patch == patch;
}

/* ---- stored rows ---------------------------------------------------------------------------- */

/* Sets the two spans of this rank's tokens in a patch that are near the patch's ends. The second
 * span begins where the first one ends, or later. */
static void ends_of(const xd_layout *l, xd_nearness how, int patch, int sp, xd_span end[2])
{
    const xd_span first = xd_own(l, XD_IMG, patch, 0), last = xd_own(l, XD_IMG, patch, l->nsp - 1);
    const xd_span own = xd_own(l, XD_IMG, patch, sp);
    const int64_t a = own.start, b = own.start + own.n;
    const int64_t lo = xd_min(xd_max(first.start + xd_reach(l, how), a), b);
    const int64_t hi = xd_min(xd_max(last.start + last.n - xd_reach(l, how), lo), b);
    end[0] = (xd_span){ a, lo - a };
    end[1] = (xd_span){ hi, b - hi };
}

static int64_t ends_rows(const xd_layout *l, xd_nearness how, int patches, int sp)
{
    int64_t n = 0;
    xd_span end[2];
    for (int p = 0; p < patches; p++) {
        ends_of(l, how, p, sp, end);
        n += end[0].n + end[1].n;
    }
    return n;
}

/* Returns the stored rows [rows, channels] of the current pass and layer. */
static xd_tensor kept_now(const xd_exec *x, const near *s)
{
    int64_t i = xd_my_pass(x, s->topo) * s->nlayers + (x->layer - s->first);
    int64_t rows = s->rows[s->how], channels = s->channels[s->how];
    size_t  one = (size_t)(rows * channels) * xd_dtype_size(s->type);
    return xd_view2(s->mem + s->at_kind[s->how] + (size_t)i * one, s->type, rows, channels);
}

/* Stores this rank's rows near the ends of the patches that are computed. */
static void keep_ends(xd_exec *x, const near *s, xd_tensor in)
{
    int64_t row = 0;
    for (int p = 0; p < s->npatch && s->mem; p++) {
        xd_span own = xd_own(x->lay, XD_IMG, p, x->sp), end[2];
        int64_t to = ends_rows(x->lay, s->how, p, x->sp);
        if (!is_computed(x, p))
            continue;
        ends_of(x->lay, s->how, p, x->sp, end);
        for (int i = 0; i < 2; to += end[i++].n)
            if (end[i].n)
                xd_copy_to(x, xd_rows(kept_now(x, s), to, end[i].n),
                           xd_rows(in, row + end[i].start - own.start, end[i].n));
        row += own.n;
    }
}

/* Returns the rows of a span of this rank's tokens in a patch, which are among the rows `in` that
 * are computed now, or stored. */
static xd_tensor rows_of(const xd_exec *x, const near *s, xd_tensor in, int patch, xd_span span)
{
    const xd_span own = xd_own(x->lay, XD_IMG, patch, x->sp);
    int64_t       row = span.start - own.start;
    if (is_computed(x, patch)) {
        for (int p = 0; p < patch && x->patch == XD_ALL; p++)
            row += xd_own(x->lay, XD_IMG, p, x->sp).n;
        return xd_rows(in, row, span.n);
    }
    xd_span end[2];
    ends_of(x->lay, s->how, patch, x->sp, end);
    row = span.start < end[0].start + end[0].n ? row : end[0].n + span.start - end[1].start;
    return xd_rows(kept_now(x, s), ends_rows(x->lay, s->how, patch, x->sp) + row, span.n);
}

/* ---- exchange ------------------------------------------------------------------------------- */

typedef struct piece { /* near tokens of a rank that belong to one rank and one patch */
    int     owner, patch;
    xd_span span;
    int64_t to; /* the index of the first row among the rows near the rank's tokens */
} piece;

typedef void piece_fn(void *ctx, const piece *p);

/* Calls fn for all pieces of the tokens near those of sequence rank `sp`, in token order for each
 * patch. Returns the number of rows. */
static int64_t each_piece(const xd_exec *x, xd_nearness how, int sp, piece_fn *fn, void *ctx)
{
    const xd_layout *l = x->lay;
    int64_t          at = 0;
    for (int i = 0; i < 2 * l->npatch; i++) {
        if (!is_computed(x, i / 2))
            continue;
        const xd_span side = xd_near_span(l, xd_own(l, XD_IMG, i / 2, sp), how, i % 2);
        for (int k = 0; k < l->npatch * l->nsp && side.n; k++) {
            piece p = { k % l->nsp, k / l->nsp, { 0, 0 }, 0 };
            p.span = intersect(side, xd_own(l, XD_IMG, p.patch, p.owner));
            p.to = at + p.span.start - side.start;
            if (p.span.n)
                fn(ctx, &p);
        }
        at += side.n;
    }
    return at;
}

typedef struct call {
    xd_exec    *x;
    const near *s;
    xd_tensor   in, near;
    int         owner; /* the owner whose rows are sent */
    xd_tensor   to;    /* rows that are sent, from row `row` on */
    int64_t     row;
} call;

static void count_rows(void *ctx, const piece *p)
{
    const call *c = ctx;
    c->s->at[p->owner] += p->span.n;
}

static void give_rows(void *ctx, const piece *p)
{
    call *c = ctx;
    if (p->owner != c->owner)
        return;
    xd_copy_to(c->x, xd_rows(c->to, c->row, p->span.n),
               rows_of(c->x, c->s, c->in, p->patch, p->span));
    c->row += p->span.n;
}

/* Copies the rows of a piece to the near rows: own rows, or rows that were received. */
static void take_rows(void *ctx, const piece *p)
{
    call         *c = ctx;
    const int64_t n = p->span.n;
    int64_t      *at = &c->s->at[p->owner];
    xd_copy_to(c->x, xd_rows(c->near, p->to, n),
               p->owner == c->owner ? rows_of(c->x, c->s, c->in, p->patch, p->span)
                                    : xd_rows(c->s->get[p->owner], *at, n));
    *at += n;
}

static void clear_counts(const near *s)
{
    for (int r = 0; r < s->c->size; r++)
        s->at[r] = 0;
}

/* Returns a tensor for n rows to send or to receive, which has a valid address also after a
 * failure. */
static xd_tensor new_rows(call *c, int64_t n)
{
    xd_tensor t = xd_new_as(c->x, c->in.type, 2, (int64_t[]){ n, c->in.d[1] });
    if (!xd_ok(c->x))
        t.p = xd_failed_buffer(c->x, t.p, xd_bytes(t), c->s->c);
    return t;
}

static void exchange(call *c)
{
    const near *s = c->s;
    const int   me = s->c->rank;
    for (int r = 0; r < s->c->size; r++) {
        clear_counts(s);
        if (r != me)
            each_piece(c->x, s->how, r, count_rows, c);
        c->to = s->give[r] = new_rows(c, s->at[me]);
        c->row = 0;
        if (r != me)
            each_piece(c->x, s->how, r, give_rows, c);
    }
    clear_counts(s);
    each_piece(c->x, s->how, me, count_rows, c);
    for (int r = 0; r < s->c->size; r++)
        s->get[r] = new_rows(c, r == me ? 0 : s->at[r]);
    xd_req q = s->c->ops->exchange(s->c, s->give, s->get);
    if (s->c->ops->wait(s->c, &q, 1) != XD_OK)
        xd_exec_fail(c->x, XD_ECOMM, "the rows of a neighbour's tokens were not received");
}

static void nothing(void *ctx, const piece *p)
{
    (void)ctx, (void)p;
}

static void near_rows(xd_exec *x, const xd_hooks *m, xd_near_args *a)
{
    near   *s = m->priv;
    int64_t channels = s->channels[a->how];
    call    c = { .x = x, .s = s, .in = a->in, .owner = s->c->rank };
    s->how = a->how;
    xd_check(x, a->in.d[1] == channels && a->in.type == s->type && a->in.d[0] == xd_n(x, XD_IMG),
             "a convolution over tokens has %lld channels, expected %lld", (long long)a->in.d[1],
             (long long)channels);
    a->near = c.near = xd_new_as(
        x, a->in.type, 2, (int64_t[]){ each_piece(x, a->how, c.owner, nothing, NULL), channels });
    if (!channels) /* of a rank without heads */
        return;
    size_t mark = xd_arena_mark(x->tmp);
    c.in.d[1] = channels;
    keep_ends(x, s, c.in);
    if (s->c->size > 1)
        exchange(&c);
    clear_counts(s);
    each_piece(x, a->how, c.owner, take_rows, &c);
    xd_arena_rewind(x->tmp, mark);
}

/* ---- opening -------------------------------------------------------------------------------- */

static void close_near(xd_hooks *m)
{
    near *s = m->priv;
    if (s->mem)
        s->dev->mem->put(s->dev, s->mem, s->bytes);
    free(s->give), free(s->get), free(s->at), free(s);
}

static xd_status open_near(const xd_method_args *a, const xd_hooks *next, xd_hooks **out, xd_err *e)
{
    xd_comm *c = a->topo->tokens;
    *out = NULL;
    if (a->what != XD_FOR_DIT || (!a->conv_ch && !a->frames_ch) || !c ||
        (c->size == 1 && a->lay->npatch == 1))
        return XD_OK;
    near *s = calloc(1, sizeof *s);
    if (!s)
        return xd_fail(e, XD_ENOMEM, "no memory for the rows of neighbouring tokens");
    s->hooks = (xd_hooks){ .near = near_rows, .next = next, .priv = s };
    s->topo = a->topo, s->c = c, s->dev = a->dev, s->npatch = a->lay->npatch, s->type = a->act;
    s->first = a->first, s->nlayers = a->last - a->first;
    s->channels[XD_NEAR_IN_FRAME] = a->conv_ch, s->channels[XD_NEAR_IN_TIME] = a->frames_ch;
    for (int i = 0; i < XD_NNEAR; i++) {
        s->rows[i] = ends_rows(a->lay, (xd_nearness)i, s->npatch, c->rank);
        s->at_kind[i] = s->bytes;
        s->bytes += (size_t)(s->rows[i] * s->channels[i]) * xd_dtype_size(s->type) *
                    (size_t)(xd_my_passes(a) * s->nlayers);
    }
    s->give = calloc((size_t)c->size, sizeof *s->give);
    s->get = calloc((size_t)c->size, sizeof *s->get);
    s->at = calloc((size_t)c->size, sizeof *s->at);
    if (s->npatch > 1) {
        s->bytes = s->hooks.bytes = s->bytes + 64;
        s->mem = s->dev->mem->get(s->dev, s->bytes);
    }
    *out = &s->hooks;
    if (s->give && s->get && s->at && (s->npatch == 1 || s->mem))
        return XD_OK;
    close_near(*out);
    *out = NULL;
    return xd_fail(e, XD_ENOMEM, "no memory for the rows of neighbouring tokens");
}

const xd_method xd_method_near = { "near", open_near, close_near };
