/* test_weight.c - matrices from a checkpoint: band by band as all at once, with the memory that
 * was counted
 *
 * Tensors lie in memory behind a source of this test; the device's table is replaced by one that
 * packs only whole matrices, or that notes what is taken. Bytes are compared exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/par.h"
#include "exec/weight_norm.h"

enum { IN = 3016, NT = 5, MOST = 8 };

static const int uses[NT] = { 2, 1, 1, 2, 2 };

static const struct {
    const char *name;
    int64_t     rows;
} tensors[NT] = {
    { "q.weight", 70 },    { "k.weight", 128 },    { "v.weight", 33 },
    { "one.weight", 200 }, { "even.weight", 192 },
};

static xd_dev           *dev;
static xd_ops            table; /* the device's, or without bands */
static xd_dev_ops        memory;
static const xd_dev_ops *real_memory;
static size_t            held, peak;
static char             *data[NT];
static xd_dtype          stored, blocks; /* blocks: of matrices that are cut; XD_F32: as computed */
static int               sums;           /* 1: the source adds terms to k and even */
static int64_t           passed[NT];     /* bytes that were said to be past */
static int64_t           told[NT];       /* numbers that were said to be read soon */
static char              heard[512];
static int64_t           (*real_band)(xd_dev *d, const xd_weight *w);
static int64_t           own_bands; /* rows that the device packs alone; 0: all */

static void hear(void *cookie, int level, const char *line)
{
    (void)cookie;
    (void)level;
    snprintf(heard, sizeof heard, "%s", line);
}

static void *get_noted(xd_dev *d, size_t bytes)
{
    held += bytes;
    peak = held > peak ? held : peak;
    return real_memory->get(d, bytes);
}

static void put_noted(xd_dev *d, void *p, size_t bytes)
{
    held -= p ? bytes : 0;
    real_memory->put(d, p, bytes);
}

static int64_t no_band(xd_dev *d, const xd_weight *w)
{
    (void)d;
    (void)w;
    return 0;
}

/* ---- the checkpoint ------------------------------------------------------------------------- */

static int index_of(const char *name)
{
    for (int i = 0; i < NT; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return i;
    return -1;
}

static int has(void *self, const char *name, xd_tensor *t)
{
    int i = index_of(name);
    (void)self;
    if (i >= 0)
        *t = xd_view2(NULL, stored, tensors[i].rows, IN);
    return i >= 0;
}

static xd_status get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    if (!has(self, name, t))
        return xd_fail(e, XD_EFORMAT, "no %s", name);
    t->p = data[index_of(name)];
    return XD_OK;
}

static void past(void *self, const char *name, const void *p, size_t bytes)
{
    int         i = index_of(name);
    const char *end = data[i] + (size_t)(tensors[i].rows * IN) * xd_dtype_size(stored);
    (void)self;
    assert_true((const char *)p >= data[i] && (const char *)p + bytes <= end);
    __atomic_fetch_add(&passed[i], (int64_t)bytes, __ATOMIC_RELAXED);
}

static void will(void *self, const char *name, int64_t first, int64_t n)
{
    int i = index_of(name);
    (void)self;
    assert_in_range(i, 0, NT - 1);
    assert_true(first >= 0 && n > 0 && first + n <= tensors[i].rows * IN);
    told[i] += n;
}

/* ---- terms ---------------------------------------------------------------------------------- */

static float term_at(int64_t row, int64_t col)
{
    return 0.01f * xd_random_weight(77, (uint64_t)(row * IN + col));
}

static int sums_has(void *self, const char *name)
{
    (void)self;
    return index_of(name) == 1 || index_of(name) == 4;
}

static size_t sums_takes(void *self, const char *name)
{
    (void)self;
    (void)name;
    return 0;
}

typedef struct columns {
    xd_span span[MOST];
    int     n;
} columns;

static xd_status sums_open(void *self, const char *name, const xd_span *span, int n, void **sum,
                           xd_err *e)
{
    columns *c = calloc(1, sizeof *c);
    (void)self, (void)e;
    assert_true(sums_has(self, name) && n <= MOST);
    memcpy(c->span, span, (size_t)n * sizeof *span);
    c->n = n;
    *sum = c;
    return XD_OK;
}

static void sums_add(const void *sum, int64_t row, int64_t n, float *to, int thread)
{
    const columns *c = sum;
    assert_in_range(thread, 0, xd_par_threads() - 1);
    for (int64_t r = row; r < row + n; r++)
        for (int k = 0; k < c->n; k++)
            for (int64_t i = 0; i < c->span[k].n; i++)
                *to++ += term_at(r, c->span[k].start + i);
}

static const xd_source_sums terms = { sums_has, sums_takes, sums_open, sums_add, free };

/* The checkpoint with the terms in it, in f32. */
static void add_terms(void)
{
    for (int i = 0; i < NT; i++) {
        int64_t n = tensors[i].rows * IN;
        float  *f = malloc((size_t)n * sizeof *f);
        assert_non_null(f);
        xd_convert(f, XD_F32, data[i], stored, n);
        for (int64_t k = 0; k < n && sums_has(NULL, tensors[i].name); k++)
            f[k] += term_at(k / IN, k % IN);
        free(data[i]);
        data[i] = (char *)f;
    }
    stored = XD_F32;
}

static void make_tensors(xd_dtype type)
{
    stored = type;
    for (int i = 0; i < NT; i++) {
        int64_t n = tensors[i].rows * IN;
        float  *f = malloc((size_t)n * sizeof *f);
        data[i] = realloc(data[i], (size_t)n * xd_dtype_size(type));
        assert_non_null(f);
        assert_non_null(data[i]);
        for (int64_t k = 0; k < n; k++)
            f[k] = 0.05f * xd_random_weight((uint64_t)i, (uint64_t)k);
        xd_convert(data[i], type, f, XD_F32, n);
        free(f);
    }
}

/* ---- loading -------------------------------------------------------------------------------- */

typedef struct set { /* what a network might declare */
    xd_lin lin[MOST];
    int    n;
} set;

static void declare(xd_decl *d, set *s)
{
    static const char *const qkv[] = { "q", "k", "v" }, *const odd[] = { "one", "even" };
    const int64_t in = IN, halves[2] = { 2000, 1016 };
    s->n = 0;
    xd_w_fused(d, &s->lin[s->n++],
               &(xd_fused_spec){ .n = 3, .names = qkv, .in = IN, .out = { 70, 128, 33 } });
    xd_w_fused(
        d, &s->lin[s->n++],
        &(xd_fused_spec){
            .n = 2, .names = odd, .in = IN, .out = { 200, 192 }, .split = XD_COL, .unit = 8 });
    xd_w_linear(d, &s->lin[s->n++], "one",
                &(xd_linear_spec){ .in = in, .out = 200, .split = XD_COL, .unit = 8 });
    xd_w_linear(
        d, &s->lin[s->n++], "even",
        &(xd_linear_spec){ .nparts = 2, .parts = halves, .out = 192, .split = XD_ROW, .unit = 8 });
    xd_w_linear(d, &s->lin[s->n++], "q", &(xd_linear_spec){ .in = in, .out = 70 });
}

static const xd_source source = { .has = has, .get = get, .past = past, .will = will };

/* work: what loading took beside the weights. */
static xd_store *load(xd_visit how, xd_dtype type, int tp, int at, set *s, size_t *work)
{
    xd_err    e = { 0 };
    xd_source from = source;
    from.sums = sums ? &terms : NULL;
    xd_decl   d = { .visit = how,
                    .dev = dev,
                    .type = type,
                    .blocks = blocks,
                    .src = how == XD_VISIT_LOAD ? &from : NULL,
                    .tp = tp,
                    .tp_at = at,
                    .err = &e };
    xd_store *store;
    assert_int_equal(xd_store_open(&store, dev, &e), XD_OK);
    d.store = store;
    held = peak = 0;
    memset(passed, 0, sizeof passed);
    declare(&d, s);
    if (e.code)
        fail_msg("%s", e.msg);
    size_t most = peak;
    xd_store_trim(store);
    *work = most - held;
    return store;
}

static size_t counted(xd_dtype type, int tp, int at, int announces)
{
    xd_err    e = { 0 };
    set       s;
    xd_source from = source;
    xd_dev   *count;
    from.sums = sums ? &terms : NULL;
    assert_int_equal(xd_dev_open_count(&count, dev, &e), XD_OK);
    xd_decl d = { .visit = XD_VISIT_COUNT,
                  .dev = count,
                  .type = type,
                  .blocks = blocks,
                  .src = &from,
                  .tp = tp,
                  .tp_at = at,
                  .announces = announces,
                  .err = &e };
    memset(told, 0, sizeof told);
    declare(&d, &s);
    xd_dev_close(&count);
    return d.work[0] + d.work[1];
}

static void same(const set *a, const set *b)
{
    for (int i = 0; i < a->n; i++) {
        assert_int_equal(a->lin[i].w.bytes, b->lin[i].w.bytes);
        if (a->lin[i].w.bytes)
            assert_memory_equal(a->lin[i].w.p, b->lin[i].w.p, a->lin[i].w.bytes);
    }
}

static xd_dtype compute_type(void)
{
    return xd_dev_compute(dev, XD_BF16);
}

/* The same bytes, and never more memory than was counted. */
static void both_ways(xd_visit how, int tp, int at)
{
    set       a, b;
    size_t    bands, whole, say[2];
    xd_store *x = load(how, compute_type(), tp, at, &a, &bands);
    say[0] = counted(compute_type(), tp, at, 0);
    for (int i = 0; i < NT && how == XD_VISIT_LOAD && tp == 1 && own_bands && !sums; i++)
        assert_int_equal(passed[i],
                         uses[i] * tensors[i].rows * IN * (int64_t)xd_dtype_size(stored));
    table.pack_band = no_band;
    xd_store *y = load(how, compute_type(), tp, at, &b, &whole);
    say[1] = counted(compute_type(), tp, at, 0);
    table.pack_band = real_band;
    same(&a, &b);
    xd_store_close(&x);
    xd_store_close(&y);
    if (how != XD_VISIT_LOAD)
        return;
    assert_true(bands <= say[0]);
    assert_true(whole <= say[1]);
    if (own_bands && !xd_is_quantized(blocks)) /* no matrix as a whole, however long */
        assert_true(say[0] <= (size_t)(own_bands * xd_par_threads() * IN) * sizeof(float));
}

static void bands_are_parts_of_the_whole(void **state)
{
    static const xd_dtype types[] = { XD_F32, XD_BF16, XD_F16 };
    (void)state;
    if (!own_bands)
        printf("# skipped: this device packs whole matrices only, both ways are one\n");
    for (int i = 0; i < 3; i++) {
        make_tensors(types[i]);
        both_ways(XD_VISIT_LOAD, 1, 0);
        for (int at = 0; at < 3; at++)
            both_ways(XD_VISIT_LOAD, 3, at);
    }
    both_ways(XD_VISIT_RANDOM, 1, 0);
    both_ways(XD_VISIT_RANDOM, 3, 2);
}

/* Of matrices in eight bits, too; those whose inputs are cut are packed as a whole. */
static void quantized_bands_are_parts_of_the_whole(void **state)
{
    static const xd_dtype types[] = { XD_I8, XD_F8E4M3 };
    (void)state;
    for (int i = 0; i < 2; i++) {
        blocks = types[i];
        make_tensors(XD_BF16);
        both_ways(XD_VISIT_LOAD, 1, 0);
        for (int at = 0; at < 3; at++)
            both_ways(XD_VISIT_LOAD, 3, at);
        both_ways(XD_VISIT_RANDOM, 1, 0);
    }
    blocks = XD_F32;
}

/* Terms are added in f32, before anything is rounded or quantized: the same bytes as from a
 * checkpoint that has them. */
static void terms_are_added(int tp, int at)
{
    set    a, b;
    size_t work;
    make_tensors(XD_BF16);
    sums = 1;
    both_ways(XD_VISIT_LOAD, tp, at);
    xd_store *x = load(XD_VISIT_LOAD, compute_type(), tp, at, &a, &work);
    sums = 0;
    xd_store *z = load(XD_VISIT_LOAD, compute_type(), tp, at, &b, &work);
    assert_memory_not_equal(a.lin[3].w.p, b.lin[3].w.p, a.lin[3].w.bytes);
    xd_store_close(&z);
    add_terms();
    xd_store *y = load(XD_VISIT_LOAD, compute_type(), tp, at, &b, &work);
    same(&a, &b);
    xd_store_close(&x);
    xd_store_close(&y);
}

static void terms_are_added_before_rounding(void **state)
{
    static const xd_dtype types[] = { XD_F32, XD_I8, XD_F8E4M3 };
    (void)state;
    for (int i = 0; i < 3; i++) {
        blocks = types[i];
        terms_are_added(1, 0);
        for (int at = 0; at < 3; at++)
            terms_are_added(3, at);
    }
    blocks = XD_F32;
}

/* The type of a layer that is not cut, of 200 outputs or 10. */
static xd_weight type_of_uncut(xd_dtype of_blocks, int few, int64_t out)
{
    xd_err  e = { 0 };
    xd_lin  w;
    xd_decl d = { .visit = XD_VISIT_COUNT,
                  .dev = dev,
                  .type = compute_type(),
                  .src = &source,
                  .blocks = of_blocks,
                  .tp = 1,
                  .err = &e };
    xd_w_linear(&d, &w, "one", &(xd_linear_spec){ .in = IN, .out = out, .few = few });
    assert_int_equal(e.code, 0);
    assert_true(w.w.type != XD_I8 || d.packed < (size_t)(out * (IN + 64) + 1024));
    return w.w;
}

/* Layers that few rows read are integers, whose input is not quantized; e4m3 stays what it is. */
static void uncut_layers_of_few_rows_are_small(void **state)
{
    (void)state;
    make_tensors(XD_BF16);
    assert_int_equal(type_of_uncut(XD_I8, 0, 200).type, compute_type());
    assert_int_equal(type_of_uncut(compute_type(), 1, 200).type, compute_type());
    assert_int_equal(type_of_uncut(XD_I8, 1, 10).type, compute_type());
    for (int i = 0; i < 2; i++) {
        xd_weight w = type_of_uncut(i ? XD_F8E4M3 : XD_I8, 1, 200);
        assert_true(w.type == XD_I8 && w.floats);
    }
    stored = XD_F8E4M3;
    assert_int_equal(type_of_uncut(XD_F8E4M3, 1, 200).type, XD_F8E4M3);
    assert_true(type_of_uncut(XD_I8, 1, 200).floats);
}

/* What each of three ranks reads is what was said before, and nothing is said unasked. */
static void what_is_read_is_told(void **state)
{
    size_t work;
    set    s;
    (void)state;
    make_tensors(XD_BF16);
    for (int at = 0; at < 3; at++) {
        counted(compute_type(), 3, at, 0);
        for (int i = 0; i < NT; i++)
            assert_int_equal(told[i], 0);
        counted(compute_type(), 3, at, 1);
        /* its outputs are cut */
        assert_true(told[3] > 0 && told[3] < uses[3] * tensors[3].rows * IN);
        xd_store *x = load(XD_VISIT_LOAD, compute_type(), 3, at, &s, &work);
        for (int i = 0; i < NT && own_bands; i++)
            assert_int_equal(told[i] * (int64_t)xd_dtype_size(stored), passed[i]);
        xd_store_close(&x);
    }
}

/* In the last row of a part that ends within a band. */
static void odd_numbers_are_found(void **state)
{
    set    s;
    size_t work;
    (void)state;
    make_tensors(XD_F32);
    ((float *)(void *)data[2])[33 * IN - 1] = NAN;
    heard[0] = 0;
    xd_store *x = load(XD_VISIT_LOAD, compute_type(), 1, 0, &s, &work);
    assert_non_null(strstr(heard, "weight v.weight holds NaN or infinite numbers"));
    xd_store_close(&x);
}

/* ---- kernels of eight bits ------------------------------------------------------------------- */

enum { OUTS = 5, INS = 3, TAPS = OUTS * INS * 9 };

typedef struct kernels {
    xd_dtype type;
    void    *at;
    float    scale;
} kernels;

static int has_kernels(void *self, const char *name, xd_tensor *t)
{
    const kernels *k = self;
    *t = strcmp(name, "up.weight") ? xd_view(NULL, XD_F32, 1, (int64_t[]){ OUTS })
                                   : xd_view(NULL, k->type, 4, (int64_t[]){ OUTS, INS, 3, 3 });
    return 1;
}

static xd_status get_kernels(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    static const float bias[OUTS];
    const kernels     *k = self;
    (void)e;
    has_kernels(self, name, t);
    t->p = t->nd == 4 ? k->at : (void *)bias;
    return XD_OK;
}

static xd_status scale_of_kernels(void *self, const char *name, float *s, xd_err *e)
{
    (void)name;
    (void)e;
    *s = ((const kernels *)self)->scale;
    return XD_OK;
}

static xd_store *load_enlarged(kernels *k, xd_cnv w[4])
{
    xd_err    e = { 0 };
    xd_source from = {
        .has = has_kernels, .get = get_kernels, .scale = scale_of_kernels, .self = k
    };
    xd_decl d = {
        .visit = XD_VISIT_LOAD, .dev = dev, .type = XD_F32, .src = &from, .tp = 1, .err = &e
    };
    xd_store *store;
    assert_int_equal(xd_store_open(&store, dev, &e), XD_OK);
    d.store = store;
    xd_w_conv_enlarged(&d, w, "up", OUTS, INS);
    if (e.code)
        fail_msg("%s", e.msg);
    return store;
}

/* Kernels of enlarged maps from scaled numbers of eight bits are those from the floats that they
 * stand for. */
static void eight_bits_are_scaled_before_they_are_added(void **state)
{
    float   f[TAPS];
    uint8_t eight[TAPS];
    xd_cnv  a[4], b[4];
    (void)state;
    for (int i = 0; i < TAPS; i++)
        f[i] = (float)(i % 15 - 7); /* which e4m3 holds */
    xd_convert(eight, XD_F8E4M3, f, XD_F32, TAPS);
    for (int i = 0; i < TAPS; i++)
        f[i] *= 0.375f;
    xd_store *x = load_enlarged(&(kernels){ XD_F8E4M3, eight, 0.375f }, a);
    xd_store *y = load_enlarged(&(kernels){ XD_F32, f, 1 }, b);
    for (int q = 0; q < 4; q++) {
        assert_int_equal(a[q].w.bytes, b[q].w.bytes);
        assert_memory_equal(a[q].w.p, b[q].w.p, a[q].w.bytes);
    }
    xd_store_close(&x);
    xd_store_close(&y);
}

enum { ROWS = 4, PER_ROW = 9 };

typedef struct lengths { float v[ROWS * PER_ROW], g[ROWS], w[ROWS * PER_ROW]; } lengths;

static int has_lengths(void *self, const char *name, xd_tensor *t)
{
    const int64_t whole[3] = { ROWS, 3, 3 }, one[3] = { ROWS, 1, 1 };
    lengths      *l = self;
    const int     g = strcmp(name, "c.weight_g") == 0, v = strcmp(name, "c.weight_v") == 0;
    *t = xd_view(g ? l->g : v ? l->v : l->w, XD_F32, 3, g ? one : whole);
    return g || v || strcmp(name, "c.weight") == 0;
}

static xd_status get_lengths(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    if (strcmp(name, "c.bias") == 0) {
        *t = xd_view(self, XD_F32, 1, (int64_t[]){ 3 });
        return XD_OK;
    }
    return has_lengths(self, name, t) ? XD_OK : xd_fail(e, XD_EFORMAT, "no %s", name);
}

/* Loads a convolution and a transposed convolution of the same kernel. */
static xd_store *load_lengths(lengths *l, int normed, xd_cnv *conv, xd_lin *spread)
{
    static const int64_t shape[3] = { ROWS, 3, 3 };
    xd_err               e = { 0 };
    xd_source            from = { .has = has_lengths, .get = get_lengths, .self = l };
    xd_decl              d = {
        .visit = XD_VISIT_LOAD, .dev = dev, .type = XD_F32, .src = &from, .tp = 1, .err = &e
    };
    xd_tensor bias;
    xd_store *store;
    assert_int_equal(xd_store_open(&store, dev, &e), XD_OK);
    d.store = store;
    if (normed) {
        xd_w_conv_normed(&d, conv, "c", shape, 0);
        xd_w_spread_normed(&d, spread, &bias, "c", shape);
    } else {
        xd_w_conv(&d, conv, "c",
                  &(xd_conv_spec){ .out = ROWS, .in = 3, .nk = 1, .kernel = { 1, 1, 3 } });
        xd_w_spread(&d, spread, &bias, "c", shape);
    }
    if (e.code)
        fail_msg("%s", e.msg);
    return store;
}

/* Kernels stored as lengths and directions are those of the products. Each direction has four
 * elements of 1 or -1, so that its norm 2 and all products are exact. */
static void lengths_multiply_directions(void **state)
{
    lengths l = { { 0 }, { 0 }, { 0 } };
    xd_cnv  conv[2];
    xd_lin  spread[2];
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        l.g[i] = i % 2 ? -1.0f - (float)i : 3.0f + (float)i;
        for (int k = 0; k < 4; k++)
            l.v[i * PER_ROW + (2 * k + i) % PER_ROW] = k % 2 ? 1 : -1;
        for (int at = i * PER_ROW; at < (i + 1) * PER_ROW; at++)
            l.w[at] = l.v[at] * l.g[i] / 2;
    }
    xd_store *x = load_lengths(&l, 1, &conv[0], &spread[0]);
    xd_store *y = load_lengths(&l, 0, &conv[1], &spread[1]);
    assert_int_equal(conv[0].w.bytes, conv[1].w.bytes);
    assert_memory_equal(conv[0].w.p, conv[1].w.p, conv[0].w.bytes);
    assert_int_equal(spread[0].w.bytes, spread[1].w.bytes);
    assert_memory_equal(spread[0].w.p, spread[1].w.p, spread[0].w.bytes);
    xd_store_close(&x);
    xd_store_close(&y);
}

/* Random elements of one tensor that is declared in the scope "model.block". */
static void make_named(const char *names, const char *prefix, const char *lead, float to[IN])
{
    static const char *const more[] = { "language.", NULL };
    xd_err                   e = { 0 };
    xd_decl                  d = { .visit = XD_VISIT_RANDOM,
                                   .dev = dev,
                                   .type = XD_F32,
                                   .blocks = XD_F32,
                                   .tp = 1,
                                   .err = &e,
                                   .prefix = prefix,
                                   .lead = lead,
                                   .prefixes = prefix ? more : NULL };
    xd_tensor                t;
    assert_int_equal(xd_store_open(&d.store, dev, &e), XD_OK);
    xd_w_enter(&d, "model.block");
    xd_w_vec(&d, &t, names, 1, (int64_t[]){ IN });
    assert_int_equal(e.code, XD_OK);
    memcpy(to, t.p, xd_bytes(t));
    xd_store_close(&d.store);
}

/* What files may call a tensor besides does not move its random elements. */
static void random_elements_keep_with_names(void **state)
{
    static const struct {
        const char *names, *prefix, *lead;
    } same_as[] = {
        { "bias|shift", NULL, NULL },
        { "bias", "model.", NULL },
        { "bias|shift|b", "model.", "" },
        { "bias", "model.", "language." },
    };
    float want[IN], got[IN];
    (void)state;
    make_named("bias", NULL, NULL, want);
    assert_true(want[0] != want[1]);
    for (size_t i = 0; i < sizeof same_as / sizeof *same_as; i++) {
        make_named(same_as[i].names, same_as[i].prefix, same_as[i].lead, got);
        assert_memory_equal(want, got, sizeof want);
    }
    make_named("shift|bias", NULL, NULL, got);
    assert_memory_not_equal(want, got, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bands_are_parts_of_the_whole),
        cmocka_unit_test(quantized_bands_are_parts_of_the_whole),
        cmocka_unit_test(terms_are_added_before_rounding),
        cmocka_unit_test(uncut_layers_of_few_rows_are_small),
        cmocka_unit_test(odd_numbers_are_found),
        cmocka_unit_test(what_is_read_is_told),
        cmocka_unit_test(eight_bits_are_scaled_before_they_are_added),
        cmocka_unit_test(lengths_multiply_directions),
        cmocka_unit_test(random_elements_keep_with_names),
    };
    xd_err e = { 0 };
    if (xd_dev_open(&dev, "cpu", &e) != XD_OK) {
        printf("Bail out! %s\n", e.msg);
        return 1;
    }
    const xd_ops *real = dev->ops;
    table = *real;
    real_band = table.pack_band;
    own_bands =
        real_band(dev, &(xd_weight){ .type = compute_type(), .out = 200, .in = IN, .groups = 1 });
    real_memory = dev->mem;
    memory = *real_memory;
    memory.get = get_noted;
    memory.put = put_noted;
    dev->ops = &table;
    dev->mem = &memory;
    xd_log_enter(&(xd_logger){ hear, NULL, XD_LOG_WARN });
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    xd_log_enter(NULL);
    for (int i = 0; i < NT; i++)
        free(data[i]);
    dev->ops = real;
    dev->mem = real_memory;
    xd_dev_close(&dev);
    return failed;
}
