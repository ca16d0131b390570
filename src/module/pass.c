/* pass.c - runs a transformer once on the program's inputs.
 *
 * The same code runs first on the count device, which computes no tensors and counts how much
 * memory the pass needs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/record.h"
#include "exec/op.h"
#include "module/pass.h"
#include "parallel/method.h"
#include "pipeline/arenas.h"

void xd_pass_init_size(xd_pass *p, size_t size)
{
    xd_pass own = { .guidance = (double)NAN };
    xd_record_init(p, size);
    own.size = size;
    memcpy(p, &own, size < sizeof own ? size : sizeof own);
}

/* ---- inputs -------------------------------------------------------------------------------- */

/* Returns a tensor's address in host memory, or NULL while memory is counted and after a
 * failure. */
static float *host_of(xd_pass_run *t, xd_tensor to)
{
    return xd_counting(&t->x) || !xd_ok(&t->x) ? NULL : to.p;
}

/* Copies a program's array [n,E] into a tensor: to the first E columns of rows [row, row + n). */
static void put_rows(xd_pass_run *t, xd_tensor to, int64_t row, xd_tensor from)
{
    float *p = host_of(t, to);
    for (int64_t i = 0; p && from.nd && i < from.d[0]; i++)
        xd_array_read(p + (row + i) * to.d[1], from, i * from.d[1], from.d[1]);
}

static void set_zero(xd_pass_run *t, xd_tensor to)
{
    float *p = host_of(t, to);
    if (p)
        memset(p, 0, xd_bytes(to));
}

/* Makes two views [W,C,p,p] for copying between latents and tokens. Both views have frame k of W
 * patches of the latents; the patches are in one line and become W tokens. v[0] is a view of the
 * latents, and v[1] is a view of the tokens' features. */
static void line_views(const xd_pass_run *t, xd_tensor cells, xd_tensor tokens, int64_t line, int k,
                       xd_tensor v[2])
{
    const int     *p = t->m->dit.patch;
    const int64_t *g = t->lay.grid;
    int64_t C = cells.d[1], h = cells.d[2], w = cells.d[3], F = tokens.d[1],
            at = line / g[1] * p[0] + k, y = line % g[1] * p[1], d[4] = { g[2], C, p[1], p[2] };
    v[0] = xd_view((char *)cells.p + (at * C * h + y) * w * (int64_t)sizeof(float), XD_F32, 4, d);
    v[0].s[0] = p[2], v[0].s[1] = h * w, v[0].s[2] = w;
    v[1] = xd_view((char *)tokens.p +
                       (line * g[2] * F + (int64_t)k * p[1] * p[2]) * (int64_t)sizeof(float),
                   XD_F32, 4, d);
    v[1].s[0] = F, v[1].s[1] = (int64_t)p[0] * p[1] * p[2], v[1].s[2] = p[2];
}

/* Copies latents from the layout [T,C,h,w] to tokens [N, C p0 p1 p2], or back if to_tokens is 0. */
static void copy_patches(xd_pass_run *t, xd_tensor cells, xd_tensor tokens, int to_tokens)
{
    xd_tensor v[2];
    for (int64_t i = 0; i < t->lay.grid[0] * t->lay.grid[1]; i++)
        for (int k = 0; k < t->m->dit.patch[0]; k++) {
            line_views(t, cells, tokens, i, k, v);
            xd_copy_to(&t->x, v[to_tokens], v[!to_tokens]);
        }
}

/* Converts the program's latents to tokens with all channels, [N, F + extra] f32. */
static xd_tensor whole_tokens(xd_pass_run *t)
{
    xd_tensor all = xd_new_f32(&t->x, t->lay.len[XD_IMG], t->F + t->extra);
    int64_t   C = t->m->dit.lat_ch + t->m->dit.extra_ch;
    if (t->tokens) {
        put_rows(t, all, 0, t->latents);
        return all;
    }
    size_t    mark = xd_arena_mark(t->x.tmp);
    xd_tensor cells =
        xd_new_as(&t->x, XD_F32, 4, (int64_t[]){ t->cells[0], C, t->cells[1], t->cells[2] });
    if (host_of(t, cells))
        xd_array_read(cells.p, t->latents, 0, xd_count(cells));
    copy_patches(t, cells, all, 1);
    xd_arena_rewind(t->x.tmp, mark);
    return all;
}

/* Sets the transformer's image inputs: the latents and the program's extra channels. */
static void put_latents(xd_pass_run *t)
{
    xd_tensor all = whole_tokens(t);
    t->in.lat = all;
    if (!t->extra)
        return;
    t->in.lat = xd_new_f32(&t->x, all.d[0], t->F);
    t->in.extra = xd_new_f32(&t->x, all.d[0], t->extra);
    xd_copy_to(&t->x, t->in.lat, xd_cols(all, 0, t->F));
    xd_copy_to(&t->x, t->in.extra, xd_cols(all, t->F, t->extra));
}

/* Sets the transformer's text input. The rows of this input are the text embeddings, then the
 * embeddings of an image, if there are any, then zeros. */
static void put_text(xd_pass_run *t)
{
    const xd_pass *p = &t->p;
    int            texts = t->m->dit.text_cols[1] ? 2 : 1; /* encoders of text */
    int64_t        n = t->text.d[0], images = t->image.nd ? t->image.d[0] : 0;
    t->cond.tok = xd_new_f32(&t->x, t->rows, t->m->dit.text_dim);
    set_zero(t, t->cond.tok);
    put_rows(t, t->cond.tok, 0, t->text);
    put_rows(t, t->cond.tok, n, t->image);
    t->cond.real[0] = p->text_real[0] || p->text_real[1] ? p->text_real[0] : n;
    t->cond.real[1] = p->text_real[1];
    if (images)
        t->cond.real[texts] = images;
    if (t->pooled.nd) {
        t->cond.pooled = xd_new_f32(&t->x, 1, t->m->dit.pooled_dim);
        put_rows(t, t->cond.pooled, 0, t->pooled);
    }
}

static void put_inputs(xd_pass_run *t)
{
    put_latents(t);
    put_text(t);
    t->in.cond = &t->cond;
    t->in.txt = t->m->dit.txt_flows ? t->cond.tok : (xd_tensor){ 0 };
    if (t->reference.nd) {
        t->in.ref = xd_new_f32(&t->x, t->reference.d[0], t->F);
        put_rows(t, t->in.ref, 0, t->reference);
    }
    t->in.t = t->p.timestep;
    t->in.held = t->p.held;
    t->in.guidance = t->p.guidance;
    t->in.size[0] = t->p.height;
    t->in.size[1] = t->p.width;
    t->in.fps = t->p.fps;
    memcpy(t->in.original, t->p.original, sizeof t->in.original);
    memcpy(t->in.crop, t->p.crop, sizeof t->in.crop);
}

/* ---- values cached per text ---------------------------------------------------------------- */

static void close_text(xd_module *m, xd_kept_text *k)
{
    free(k->key);
    free(k->kept);
    if (m->dev)
        xd_device_arena_close(&k->arena, m->dev);
    *k = (xd_kept_text){ 0 };
}

void xd_module_texts_close(xd_module *m)
{
    for (int i = 0; i < XD_KEPT_TEXTS; i++)
        close_text(m, &m->text[i]);
}

static size_t append(char *to, size_t at, const void *from, size_t bytes)
{
    if (to && bytes)
        memcpy(to + at, from, bytes);
    return at + bytes;
}

/* Writes the cache key of a text: the bytes of all inputs on which the text's cached values depend.
 * Returns the size of the cache key in bytes. If `to` is NULL, only the size of the key is
 * computed. */
static size_t write_key(const xd_pass_run *t, char *to)
{
    const xd_tensor part[] = { t->text, t->image, t->pooled };
    int64_t         head[8] = { t->p.text_real[0], t->p.text_real[1] };
    double          size[2] = { t->p.height, t->p.width };
    for (int i = 0; i < 3; i++) {
        head[2 + 2 * i] = part[i].nd ? part[i].d[0] : 0;
        head[3 + 2 * i] = (int64_t)part[i].type;
    }
    size_t at = append(to, append(to, 0, head, sizeof head), size, sizeof size);
    for (int i = 0; i < 3; i++)
        at = append(to, at, part[i].p, part[i].nd ? xd_bytes(part[i]) : 0);
    return at;
}

/* Returns the cache entry of this text. If this text has no entry, returns the least recently used
 * entry and sets *fresh to 1, because the entry must be filled. */
static xd_kept_text *find_text(xd_pass_run *t, char *key, size_t bytes, int *fresh)
{
    xd_kept_text *oldest = t->m->text;
    *fresh = 0;
    for (int i = 0; i < XD_KEPT_TEXTS; i++) {
        xd_kept_text *k = &t->m->text[i];
        if (k->key && k->bytes == bytes && memcmp(k->key, key, bytes) == 0)
            return k;
        oldest = k->used < oldest->used ? k : oldest;
    }
    *fresh = 1;
    return oldest;
}

/* ---- computing ----------------------------------------------------------------------------- */

/* If `reads` is 1, computes the values that depend only on the text and that the model reads from a
 * cache in this pass. Sets `kept` to the computed values, which are allocated in the arena `a`. */
static void keep_text(xd_pass_run *t, const xd_net *n, xd_arena *a, void *kept, int reads)
{
    const xd_dit *d = t->m->part.dit;
    xd_arena     *tmp = t->x.tmp;
    if (!reads)
        return;
    t->x.tmp = a;
    d->keep(&t->x, n, &t->cond, kept);
    t->x.tmp = tmp;
    if (d->read)
        d->read(&t->x, n, &t->in, kept);
}

/* Adds the program's residual for block l to the image's tokens. */
static void add_residual(xd_pass_run *t, int l, xd_tensor h)
{
    int64_t i = t->p.nresidual_at ? t->p.residual_at[l] : -1, n = t->lay.len[XD_IMG],
            last = h.d[0] - t->lay.len[XD_PAD];
    if (i < 0)
        return;
    xd_tensor residual = xd_new_f32(&t->x, n, t->m->dit.dim);
    put_rows(t, residual, 0, t->residuals[i]);
    xd_add(&t->x, xd_rows(h, last - n, n), residual);
}

/* Runs all blocks of the transformer, and returns the prediction [N,F]. */
static xd_tensor compute(xd_pass_run *t, const xd_net *n, const void *kept)
{
    xd_exec        *x = &t->x;
    const xd_dit   *d = t->m->part.dit;
    int64_t         rows = xd_own_rows(&t->lay, XD_ALL, 0);
    int             most = xd_dit_most_skips(d, n);
    xd_method_stack stack;
    xd_state        s = { .h = xd_new_f32(x, rows, xd_dit_width(&t->m->dit)),
                          .local = t->local,
                          .t = t->in.t,
                          .kept = kept };
    if (most)
        s.skips = xd_new(x, most * rows, t->m->dit.dim);
    xd_method_stack_open_alone(&stack, x, t->m->dit.grouped, t->m->dit.prefix);
    d->cond(x, n, &t->in, &s);
    d->embed(x, n, &t->in, &s);
    for (int l = n->first; l < n->last; l++) {
        size_t mark = xd_arena_mark(x->tmp);
        xd_dit_block(x, d, n, l, &s);
        add_residual(t, l, s.h);
        xd_arena_rewind(x->tmp, mark);
    }
    xd_method_stack_close(&stack);
    x->hooks = &xd_hooks_local;
    return d->head(x, n, &s);
}

/* Copies the transformer's prediction to `out` in the latents' layout. */
static void give_prediction(xd_pass_run *t, xd_tensor pred, float *out)
{
    if (t->tokens) {
        xd_get(&t->x, out, pred);
        return;
    }
    size_t    mark = xd_arena_mark(t->x.tmp);
    xd_tensor cells = xd_new_as(
        &t->x, XD_F32, 4, (int64_t[]){ t->cells[0], t->m->dit.lat_ch, t->cells[1], t->cells[2] });
    copy_patches(t, cells, pred, 0);
    xd_get(&t->x, out, cells);
    xd_arena_rewind(t->x.tmp, mark);
}

static void begin(xd_pass_run *t, xd_dev *dev, xd_arena *a)
{
    xd_exec_init(&t->x, dev, a, t->m->type);
    t->x.lay = &t->lay;
    t->x.cancel = dev->counts ? NULL : &t->m->cancel;
    t->in = (xd_input){ 0 };
    t->cond = (xd_cond){ 0 };
    memset(t->local, 0, t->m->dit.local_size);
}

/* Counts the memory that the pass needs, and the bytes of the values that are cached for its
 * text. */
static xd_status count(xd_pass_run *t, size_t *bytes, size_t *kept_bytes, xd_err *e)
{
    xd_module *m = t->m;
    xd_arena   a = { 0 }, keeps = { 0 };
    void      *kept = calloc(1, m->dit.kept_size + 1);
    xd_status  s = kept ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory to count a pass");
    if (s == XD_OK)
        s = xd_device_arena_open(&a, m->count, 0, e);
    if (s == XD_OK)
        s = xd_device_arena_open(&keeps, m->count, 0, e);
    if (s == XD_OK) {
        begin(t, m->count, &a);
        put_inputs(t);
        keep_text(t, &m->part.count->shadow, &keeps, kept, m->part.dit->keep != NULL);
        give_prediction(t, compute(t, &m->part.count->shadow, kept), NULL);
        s = xd_module_end(&t->x, e);
    }
    *bytes = xd_arena_peak(&a);
    *kept_bytes = xd_arena_peak(&keeps);
    xd_device_arena_close(&keeps, m->count); /* the arena that was opened last is closed first */
    xd_device_arena_close(&a, m->count);
    free(kept);
    return s;
}

/* Finds the cache entry of this pass's text and allocates the entry's memory. */
static xd_status open_text(xd_pass_run *t, size_t bytes, xd_kept_text **out, int *fresh, xd_err *e)
{
    xd_module *m = t->m;
    size_t     len = write_key(t, NULL);
    char      *key = malloc(len);
    if (!key)
        return xd_fail(e, XD_ENOMEM, "no memory for a text");
    write_key(t, key);
    xd_kept_text *k = *out = find_text(t, key, len, fresh);
    k->used = m->passes;
    if (!*fresh) {
        free(key);
        return XD_OK;
    }
    close_text(m, k);
    k->key = key;
    k->bytes = len;
    k->used = m->passes;
    if (!(k->kept = calloc(1, m->dit.kept_size + 1)))
        return xd_fail(e, XD_ENOMEM, "no memory for a text");
    xd_status s = xd_module_fits(m, bytes, "a text", e);
    return s == XD_OK ? xd_device_arena_open(&k->arena, m->dev, bytes, e) : s;
}

static xd_status run(xd_pass_run *t, float *out, xd_err *e)
{
    xd_module    *m = t->m;
    xd_kept_text *k = NULL;
    size_t        bytes, kept_bytes;
    int           fresh = 0;
    m->passes++;
    xd_status s = count(t, &bytes, &kept_bytes, e);
    if (s == XD_OK)
        s = xd_module_arena(m, bytes, e);
    if (s == XD_OK && m->part.dit->keep)
        s = open_text(t, kept_bytes, &k, &fresh, e);
    if (s == XD_OK) {
        begin(t, m->dev, &m->arena);
        put_inputs(t);
        if (k)
            keep_text(t, &m->part.w->net, &k->arena, k->kept, fresh);
        give_prediction(t, compute(t, &m->part.w->net, k ? k->kept : NULL), out);
        s = xd_module_end(&t->x, e);
    }
    if (s != XD_OK && k && fresh) /* after a failure, the cached values may be incomplete */
        close_text(m, k);
    return s;
}

xd_status xd_module_pass(xd_module *m, const xd_pass *p, float *prediction, xd_err *e)
{
    xd_pass_run *t = calloc(1, sizeof *t);
    if (!t)
        return xd_fail(e, XD_ENOMEM, "no memory for a pass");
    const xd_logger *before = xd_log_enter(&m->log);
    xd_pass_init(&t->p);
    t->m = m;
    xd_cancel_reset(&m->cancel);
    xd_status s = xd_record_read(&t->p, sizeof t->p, p, "xd_pass", e);
    if (s == XD_OK)
        s = xd_pass_run_check(t, e);
    if (s == XD_OK && !(t->local = malloc(m->dit.local_size + 1)))
        s = xd_fail(e, XD_ENOMEM, "no memory for a pass");
    if (s == XD_OK)
        s = run(t, prediction, e);
    xd_log_enter(before);
    free(t->refs);
    free(t->residuals);
    free(t->local);
    free(t);
    return s;
}
