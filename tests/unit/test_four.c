/* test_four.c - matrices in groups of four-bit integers: their numbers, whatever part of them a
 * rank has; and products of eight and four bits of rows of zeros */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/four.h"
#include "base/log.h"
#include "exec/op.h"
#include "exec/weight.h"

enum { ROWS = 9, ROOM = 8 << 20, BLOCK = 18, GROUP = XD_FOUR_GROUP };

/* ---- the checkpoint ------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int64_t     out, in;
} tensors[] = {
    { "wide.weight", 70, 768 }, /* rotated in groups of 256 */
    { "small.weight", 40, 96 }, /* of 16 */
    { "q.weight", 70, 256 },    { "k.weight", 128, 256 },
    { "v.weight", 33, 256 },    { "odd.weight", 48, 100 }, /* no whole groups */
};
enum { NT = sizeof tensors / sizeof *tensors };
static float  *data[NT];
static char    heard[512];
static xd_dev *dev;

static int index_of(const char *name)
{
    for (int i = 0; i < NT; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return i;
    return -1;
}

static int has(void *self, const char *name, xd_tensor *t)
{
    const int i = index_of(name);
    (void)self;
    if (i >= 0)
        *t = xd_view2(NULL, XD_F32, tensors[i].out, tensors[i].in);
    return i >= 0;
}

static xd_status get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    (void)e;
    has(self, name, t);
    t->p = data[index_of(name)];
    return XD_OK;
}

static const xd_source source = { .has = has, .get = get };

static void make_tensors(void)
{
    for (int i = 0; i < NT; i++) {
        const int64_t n = tensors[i].out * tensors[i].in;
        data[i] = malloc((size_t)n * sizeof *data[i]);
        assert_non_null(data[i]);
        for (int64_t k = 0; k < n; k++)
            data[i][k] = 0.1f * xd_random_weight((uint64_t)i, (uint64_t)k) *
                         (k % tensors[i].in % 50 == 7 ? 12.0f : 1.0f);
    }
}

/* Rows of a tensor as they are held: rotated in groups, if `group`, quantized, and rotated back. */
static float *held_rows(int i, int64_t group)
{
    const int64_t n = tensors[i].out * tensors[i].in;
    float        *x = malloc((size_t)n * sizeof *x);
    char         *q = malloc(xd_dtype_bytes(XD_Q4_0, n));
    assert_true(x && q);
    memcpy(x, data[i], (size_t)n * sizeof *x);
    for (int64_t k = 0; k < n && group; k += group)
        xd_rotation(x + k, group);
    xd_four_quantize(q, x, n);
    xd_convert(x, XD_F32, q, XD_Q4_0, n);
    for (int64_t k = 0; k < n && group; k += group)
        xd_rotation(x + k, group);
    free(q);
    return x;
}

/* ---- products ------------------------------------------------------------------------------- */

typedef struct run { /* memory of a product */
    xd_arena a;
    xd_exec  x;
    void    *room;
} run;

static void begin(run *r)
{
    assert_non_null(r->room = malloc(ROOM));
    xd_arena_init(&r->a, r->room, ROOM);
    xd_exec_init(&r->x, dev, &r->a, XD_F32);
}

static xd_tensor inputs(run *r, int64_t in, int64_t first, int64_t all)
{
    xd_tensor t = xd_new_f32(&r->x, ROWS, in);
    for (int64_t i = 0; i < ROWS * in; i++)
        ((float *)t.p)[i] = xd_random_weight(3, (uint64_t)(i / in * all + first + i % in));
    return t;
}

static xd_decl decl_of(xd_store **store, xd_err *e, int tp, int at)
{
    assert_int_equal(xd_store_open(store, dev, e), XD_OK);
    return (xd_decl){ .visit = XD_VISIT_LOAD,
                      .dev = dev,
                      .type = XD_F32,
                      .blocks = XD_Q4_0,
                      .src = &source,
                      .tp = tp,
                      .tp_at = at,
                      .store = *store,
                      .err = e,
                      .stays = XD_STAYS_NONE };
}

/* Of rank `at` of `tp` the product of its rows or columns with the held numbers. The memory that is
 * counted is the memory that is taken: 18 bytes a group and the sums of nothing else. */
static void check_part(const char *name, xd_split split, int tp, int at, int64_t rotate)
{
    const int64_t groups = strcmp(name, "wide") ? 16 : 256; /* of rows, wherever they are cut */
    const int64_t unit = rotate || groups < GROUP ? GROUP : groups;
    char          full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    const int            i = index_of(full);
    const int64_t        in = tensors[i].in, out = tensors[i].out;
    xd_err               e = { 0 };
    xd_store            *store;
    xd_lin               l, counted;
    run                  r;
    const xd_linear_spec s = { .in = in, .out = out, .split = split };
    xd_decl              d = decl_of(&store, &e, tp, at), c = d;
    c.visit = XD_VISIT_COUNT;
    xd_w_linear(&c, &counted, name, &s);
    xd_w_linear(&d, &l, name, &s);
    assert_string_equal(e.msg, "");
    assert_int_equal(c.packed, d.packed);
    assert_int_equal(counted.rotate, l.rotate);
    assert_int_equal(counted.group, l.group);
    assert_int_equal(l.rotate, rotate);
    assert_int_equal(l.w.type, XD_F32);
    const int64_t col0 = split == XD_ROW ? xd_cut((xd_span){ 0, in }, at, tp).start : 0;
    const int64_t row0 = split == XD_COL ? xd_cut((xd_span){ 0, out }, at, tp).start : 0;
    const int64_t first = col0 / unit * unit;
    const int64_t end = (col0 + l.w.in + unit - 1) / unit * unit;
    assert_int_equal(d.packed, l.w.out * (end - first) / GROUP * BLOCK);
    begin(&r);
    xd_tensor x = inputs(&r, l.w.in, col0, in), y = xd_linear_f32(&r.x, x, &l);
    assert_true(xd_ok(&r.x));
    float *w = held_rows(i, groups);
    double gap = 0, most = 0;
    for (int64_t n = 0; n < ROWS * l.w.out; n++) {
        double sum = 0;
        for (int64_t k = 0; k < l.w.in; k++)
            sum += (double)w[(row0 + n % l.w.out) * in + col0 + k] *
                   (double)((float *)x.p)[n / l.w.out * l.w.in + k];
        gap = fmax(gap, fabs(sum - (double)((float *)y.p)[n]));
        most = fmax(most, fabs(sum));
    }
    assert_true(gap < 1e-5 * most);
    free(w);
    free(r.room);
    xd_store_close(&store);
}

static void held_numbers_are_multiplied(void **state)
{
    (void)state;
    check_part("wide", XD_COL, 1, 0, 256);
    check_part("small", XD_COL, 1, 0, 16);
    for (int tp = 2; tp < 4; tp++)
        for (int at = 0; at < tp; at++)
            check_part("wide", XD_COL, tp, at, 256);
    for (int at = 0; at < 3; at++) {
        check_part("wide", XD_ROW, 3, at, 256); /* 256 columns each */
        check_part("small", XD_ROW, 3, at, 16); /* 32 */
    }
    for (int at = 0; at < 2; at++)
        check_part("wide", XD_ROW, 2, at, 0); /* 384: within a group */
    for (int at = 0; at < 5; at++)
        check_part("small", XD_ROW, 5, at, 0); /* 19 or 20: within the groups of 32 */
}

/* Parts of a fused matrix end within a band; with a device that does not rotate rows are not. */
static void parts_are_side_by_side(void **state)
{
    static const char *const names[] = { "q", "k", "v" };
    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        xd_err    e = { 0 };
        xd_store *store;
        xd_lin    l;
        run       r;
        dev->rotates = !turn;
        xd_decl d = decl_of(&store, &e, 1, 0);
        xd_w_fused(
            &d, &l,
            &(xd_fused_spec){
                .n = 3, .names = names, .in = 256, .out = { 70, 128, 33 }, .split = XD_COL });
        assert_string_equal(e.msg, "");
        assert_int_equal(l.rotate, turn ? 0 : 256);
        begin(&r);
        xd_tensor x = inputs(&r, 256, 0, 256), y = xd_linear_f32(&r.x, x, &l);
        assert_true(xd_ok(&r.x));
        for (int p = 0, at = 0; p < 3; at += (int)tensors[2 + p].out, p++) {
            float *w = held_rows(2 + p, turn ? 0 : 256);
            for (int64_t o = 0; o < tensors[2 + p].out; o += 5) {
                double sum = 0;
                for (int64_t k = 0; k < 256; k++)
                    sum += (double)w[o * 256 + k] * (double)((float *)x.p)[k];
                assert_true(fabs(sum - (double)((float *)y.p)[at + o]) < 1e-4);
            }
            free(w);
        }
        free(r.room);
        xd_store_close(&store);
    }
    dev->rotates = 1;
}

/* Rotation spreads outliers of a column over a group. */
static void rotation_lessens_the_error(void **state)
{
    double error[2] = { 0, 0 }, all = 0;
    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        float *w = held_rows(0, turn ? 256 : 0);
        for (int64_t k = 0; k < tensors[0].out * tensors[0].in; k++) {
            error[turn] += pow((double)(w[k] - data[0][k]), 2);
            all += turn ? pow((double)data[0][k], 2) : 0;
        }
        free(w);
    }
    print_message("# error of weights: %.3f as they are, %.3f rotated\n", sqrt(error[0] / all),
                  sqrt(error[1] / all));
    assert_true(error[1] < 0.8 * error[0]);
    assert_true(sqrt(error[1] / all) < 0.1);
}

/* Columns that are no whole groups are integers of eight bits. */
static void others_have_eight_bits(void **state)
{
    xd_err    e = { 0 };
    xd_store *store;
    xd_lin    l;
    (void)state;
    xd_decl d = decl_of(&store, &e, 1, 0);
    xd_w_linear(&d, &l, "odd", &(xd_linear_spec){ .in = 100, .out = 48, .split = XD_COL });
    assert_string_equal(e.msg, "");
    assert_true(l.w.type == XD_I8 && !l.group && !l.rotate && !l.w.floats);
    xd_w_linear(&d, &l, "small", &(xd_linear_spec){ .in = 96, .out = 40, .few = 1 });
    assert_true(l.w.type == XD_I8 && !l.group && l.w.floats);
    xd_store_close(&store);
}

static void odd_numbers_are_found(void **state)
{
    xd_err    e = { 0 };
    xd_store *store;
    xd_lin    l;
    float    *at = &data[1][39 * 96 + 50], was = *at;
    (void)state;
    *at = INFINITY;
    heard[0] = 0;
    xd_decl d = decl_of(&store, &e, 1, 0);
    xd_w_linear(&d, &l, "small", &(xd_linear_spec){ .in = 96, .out = 40, .split = XD_COL });
    assert_int_equal(d.nnonfinite, 1);
    assert_non_null(strstr(heard, "weight small.weight holds NaN or infinite numbers"));
    xd_store_close(&store);
    *at = was;
}

/* ---- groups --------------------------------------------------------------------------------- */

static double error_of(const float *x, const float *y)
{
    double sum = 0;
    for (int i = 0; i < GROUP; i++)
        sum += pow((double)x[i] - (double)y[i], 2);
    return sum;
}

/* The widest number becomes -8 times the scale: what ggml does. */
static double plain_error(const float *x)
{
    float wide = 0, y[GROUP];
    for (int i = 0; i < GROUP; i++)
        wide = fabsf(x[i]) > fabsf(wide) ? x[i] : wide;
    const float d = xd_f16_f32(xd_f32_f16(wide / -8));
    for (int i = 0; i < GROUP; i++)
        y[i] = d * fminf(7, floorf(x[i] / d + 8.5f) - 8);
    return error_of(x, y);
}

static void scales_are_searched(void **state)
{
    enum { N = 4096 };
    double mine = 0, plain = 0, all = 0;
    (void)state;
    for (int k = 0; k < N; k++) {
        float   x[GROUP], y[GROUP];
        uint8_t b[BLOCK];
        for (int i = 0; i < GROUP; i++) {
            x[i] = 0;
            for (int j = 0; j < 4; j++)
                x[i] += xd_random_weight((uint64_t)k, (uint64_t)(4 * i + j));
            all += (double)(x[i] * x[i]);
        }
        xd_four_quantize(b, x, GROUP);
        xd_convert(y, XD_F32, b, XD_Q4_0, GROUP);
        const double e = error_of(x, y), p = plain_error(x);
        assert_true(e <= 1.02 * p);
        mine += e;
        plain += p;
    }
    print_message("# error of groups: %.4f, %.4f as ggml rounds\n", sqrt(mine / all),
                  sqrt(plain / all));
    assert_true(mine < 0.9 * plain);
}

static void groups_of_any_numbers(void **state)
{
    float   x[4 * GROUP], y[4 * GROUP];
    uint8_t b[4 * BLOCK];
    (void)state;
    memset(x, 0, sizeof x);
    x[GROUP + 3] = -1e-30f; /* less than f16 has */
    for (int i = 0; i < GROUP; i++)
        x[2 * GROUP + i] = i == 5 ? -16.0f : (float)(i % 15 - 7) * 2.0f;
    x[3 * GROUP + 31] = NAN;
    xd_four_quantize(b, x, 4 * GROUP);
    xd_convert(y, XD_F32, b, XD_Q4_0, 4 * GROUP);
    for (int i = 0; i < 2 * GROUP; i++)
        assert_true(y[i] == 0);
    assert_memory_equal(x + 2 * GROUP, y + 2 * GROUP, GROUP * sizeof *x); /* exact */
    for (int i = 3 * GROUP; i < 4 * GROUP; i++)
        assert_true(isnan(y[i]));
}

static void every_set_rounds_alike(void **state)
{
    enum { N = 512 * GROUP };
    float   *x = malloc(N * sizeof *x);
    uint8_t *a = malloc(N / GROUP * BLOCK), *b = malloc(N / GROUP * BLOCK);
    (void)state;
    assert_true(x && a && b);
    for (int i = 0; i < N; i++)
        x[i] = xd_random_weight(1, (uint64_t)i) * exp2f((float)(i / GROUP % 40 - 20));
    xd_cpu_kernels(XD_ISA_C)->four(a, x, N);
    for (int isa = 1; isa < XD_NISAS; isa++)
        if (xd_isa_has((xd_isa)isa)) {
            memset(b, 0, N / GROUP * BLOCK);
            xd_cpu_kernels((xd_isa)isa)->four(b, x, N);
            assert_memory_equal(a, b, N / GROUP * BLOCK);
        }
    free(x);
    free(a);
    free(b);
}

/* ---- blocks in files ------------------------------------------------------------------------ */

static int blocks_has(void *self, const char *name, xd_tensor *t)
{
    (void)self, (void)name;
    *t = xd_view2(NULL, XD_U8, tensors[0].out, tensors[0].in);
    return 1;
}

static xd_status blocks_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    (void)e;
    blocks_has(self, name, t);
    t->p = self;
    return XD_OK;
}

static void blocks_read(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to)
{
    xd_convert_at(to, XD_F32, c->data, XD_Q4_0, row * tensors[0].in + column, n);
}

static int blocks_codes(void *self, const char *name, xd_coding *c)
{
    (void)self, (void)name;
    *c = (xd_coding){ .read = blocks_read, .type = XD_Q4_0, .rotate = 256, .rows = tensors[0].out };
    return 1;
}

/* Blocks of a file stay there, whatever is asked for but other types. Cut within a group their rows
 * are rotated back: the same numbers. */
static void check_blocks(const xd_source *src, xd_dtype kept, int tp, int at)
{
    const int64_t in = tensors[0].in, out = tensors[0].out;
    xd_err        e = { 0 };
    xd_store     *store;
    xd_lin        l;
    run           r;
    xd_decl       d = decl_of(&store, &e, tp, at);
    d.src = src;
    d.blocks = kept;
    d.stays = kept == XD_Q4_0 ? XD_STAYS_INTEGERS : XD_STAYS_BLOCKS;
    xd_w_linear(&d, &l, "w", &(xd_linear_spec){ .in = in, .out = out, .split = XD_ROW });
    assert_string_equal(e.msg, "");
    assert_int_equal(d.packed, 0);
    assert_int_equal(l.rotate, tp == 2 ? 0 : 256);
    begin(&r);
    xd_tensor x = inputs(&r, l.w.in, at * l.w.in, in), y = xd_linear_f32(&r.x, x, &l);
    assert_true(xd_ok(&r.x));
    float *w = held_rows(0, 256);
    for (int64_t n = 0; n < ROWS * out; n++) {
        double sum = 0, all = 0;
        for (int64_t k = 0; k < l.w.in; k++) {
            const double p = (double)w[n % out * in + at * l.w.in + k] *
                             (double)((float *)x.p)[n / out * l.w.in + k];
            sum += p, all += fabs(p);
        }
        assert_true(fabs(sum - (double)((float *)y.p)[n]) < 1e-5 * all);
    }
    free(w);
    free(r.room);
    xd_store_close(&store);
}

static void stored_blocks_stay(void **state)
{
    const int64_t n = tensors[0].out * tensors[0].in;
    char         *q = malloc(xd_dtype_bytes(XD_Q4_0, n));
    float        *x = malloc((size_t)n * sizeof *x);
    (void)state;
    assert_true(q && x);
    memcpy(x, data[0], (size_t)n * sizeof *x);
    xd_four_rotate(x, n, 256);
    xd_four_quantize(q, x, n);
    const xd_source src = {
        .has = blocks_has, .get = blocks_get, .codes = blocks_codes, .self = q
    };
    for (int tp = 1; tp < 4; tp++)
        for (int at = 0; at < tp; at++) {
            check_blocks(&src, XD_Q4_0, tp, at);
            check_blocks(&src, XD_F32, tp, at);
        }
    free(q);
    free(x);
}

/* ---- integers in files ----------------------------------------------------------------------- */

enum { I_OUT = 200, I_IN = 320 };

static int8_t  stored[I_OUT * I_IN];
static int64_t turn; /* rows by which the file's are turned */

static int ints_has(void *self, const char *name, xd_tensor *t)
{
    (void)self, (void)name;
    *t = xd_view2(NULL, XD_I8, I_OUT, I_IN);
    return 1;
}

static xd_status ints_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    (void)e;
    ints_has(self, name, t);
    t->p = stored;
    return XD_OK;
}

static float ints_scale(const xd_coding *c, int64_t row)
{
    const int64_t r = xd_coding_row(c, row);
    return r % 50 == 3 ? 0.0f : 0.001f * (float)(r + 1);
}

static void ints_read(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)stored[xd_coding_row(c, row) * I_IN + column + i] * ints_scale(c, row);
}

static int ints_codes(void *self, const char *name, xd_coding *c)
{
    (void)self, (void)name;
    *c = (xd_coding){
        .read = ints_read, .scale = ints_scale, .rows = I_OUT, .turn = turn, .type = XD_I8
    };
    return 1;
}

/* The product with my part of the matrix; *w: how it is held. */
static void multiply_integers(float *to, xd_stays stays, xd_split split, int tp, int at, xd_lin *w)
{
    const xd_source src = { .has = ints_has, .get = ints_get, .codes = ints_codes };
    xd_err          e = { 0 };
    xd_store       *store;
    run             r;
    xd_decl         d = decl_of(&store, &e, tp, at);
    d.src = &src;
    d.blocks = XD_I8;
    d.stays = stays;
    xd_w_linear(&d, w, "w", &(xd_linear_spec){ .in = I_IN, .out = I_OUT, .split = split });
    assert_string_equal(e.msg, "");
    begin(&r);
    xd_tensor y = xd_linear_f32(&r.x, inputs(&r, w->w.in, 0, I_IN), w);
    assert_true(xd_ok(&r.x));
    memcpy(to, y.p, (size_t)xd_count(y) * sizeof *to);
    free(r.room);
    xd_store_close(&store);
}

/* Integers that stay in their file give the bits of packed ones, and of packed decoded numbers:
 * -128 becomes -127, a row with the scale 0 is zeros. */
static void integers_stay(void **state)
{
    static float a[ROWS * I_OUT], b[ROWS * I_OUT];
    (void)state;
    for (int i = 0; i < I_OUT * I_IN; i++)
        stored[i] = (int8_t)(xd_random_weight(9, (uint64_t)i) * 73);
    stored[5 * I_IN + 9] = -128;
    for (turn = 0; turn < 101; turn += 100)
        for (int k = 0; k < 7; k++) {
            const int      tp = k ? 3 : 1, at = k % 3;
            const xd_split split = k < 4 ? XD_COL : XD_ROW;
            xd_lin         packed, stays;
            memset(b, 0, sizeof b);
            multiply_integers(a, XD_STAYS_NONE, split, tp, at, &packed);
            multiply_integers(b, XD_STAYS_INTEGERS, split, tp, at, &stays);
            assert_true(!packed.group && stays.group > 0 && stays.w.type == XD_I8);
            assert_memory_equal(a, b, (size_t)(ROWS * packed.w.out) * sizeof *a);
            xd_coding c;
            ints_codes(NULL, "", &c);
            for (int64_t o = 0; o < packed.w.out && k == 0; o++) {
                double sum = 0, all = 0;
                for (int64_t i = 0; i < I_IN; i++) {
                    float v;
                    ints_read(&c, o, i, 1, &v);
                    const double x = (double)xd_random_weight(3, (uint64_t)i);
                    sum += x * (double)v, all += fabs(x * (double)v);
                }
                assert_true(fabs(sum - (double)a[o]) <= 0.01 * all);
            }
        }
}

/* ---- zeros ---------------------------------------------------------------------------------- */

enum { Z_OUT = 48, Z_IN = 256 };

typedef struct zeros { /* a tensor whose rows from Z_OUT / 2 on are zeros */
    xd_dtype stored, blocks;
    int      few, coded; /* coded: of XD_I8 or XD_U8, rotated */
    char    *at;
} zeros;

static int zeros_has(void *self, const char *name, xd_tensor *t)
{
    const zeros *z = self;
    (void)name;
    *t = xd_view2(NULL, z->stored, Z_OUT, Z_IN);
    return 1;
}

static xd_status zeros_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    zeros_has(self, name, t);
    (void)e;
    t->p = ((zeros *)self)->at;
    return XD_OK;
}

static void zeros_read(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to)
{
    (void)c, (void)column;
    for (int64_t i = 0; i < n; i++)
        to[i] = row < Z_OUT / 2 ? (float)(i % 7 - 3) * 0.1f : 0.0f;
}

static float zeros_scale(const xd_coding *c, int64_t row)
{
    (void)c;
    return row < Z_OUT / 2 ? 0.1f : 0.0f;
}

static int zeros_codes(void *self, const char *name, xd_coding *c)
{
    const zeros *z = self;
    (void)name;
    *c = (xd_coding){ .read = zeros_read,
                      .scale = z->stored == XD_I8 ? zeros_scale : NULL,
                      .rotate = z->stored == XD_I8 ? 256 : 0,
                      .rows = Z_OUT,
                      .type = z->stored == XD_I8 ? XD_I8 : XD_F32 };
    return z->coded;
}

static void make_zeros(zeros *z)
{
    const size_t bytes = xd_dtype_bytes(z->stored, (int64_t)Z_OUT * Z_IN);
    assert_non_null(z->at = calloc(1, bytes));
    for (size_t i = 0; i < bytes / 2 && xd_dtype_block(z->stored) > 1; i++)
        z->at[i] = (char)(i * 37 % 48); /* no exponent of f16 is that of NaN */
    for (int64_t i = 0; i < Z_OUT / 2 * Z_IN && z->stored == XD_F32; i++)
        ((float *)(void *)z->at)[i] = xd_random_weight(5, (uint64_t)i);
    for (int64_t i = 0; i < Z_OUT / 2 * Z_IN && z->stored == XD_I8; i++)
        z->at[i] = (char)(i % 256 % 7 - 3);
}

/* Inputs: rows of numbers, and rows of zeros as those of padding; then nothing but zeros. */
static void check_zeros(zeros *z, int padding)
{
    const xd_source src = { .has = zeros_has, .get = zeros_get, .codes = zeros_codes, .self = z };
    xd_err          e = { 0 };
    xd_store       *store;
    xd_lin          l;
    run             r;
    make_zeros(z);
    xd_decl d = decl_of(&store, &e, 1, 0);
    d.src = &src;
    d.blocks = z->blocks;
    d.stays = XD_STAYS_BLOCKS;
    xd_w_linear(
        &d, &l, "w",
        &(xd_linear_spec){
            .in = Z_IN, .out = Z_OUT, .few = z->few, .split = z->few ? XD_REPLICATED : XD_COL });
    assert_string_equal(e.msg, "");
    begin(&r);
    xd_tensor x = inputs(&r, Z_IN, 0, Z_IN);
    memset((float *)x.p + (padding ? 0 : 2 * Z_IN), 0,
           (size_t)((padding ? ROWS : ROWS - 2) * Z_IN) * sizeof(float));
    xd_tensor y = xd_linear_f32(&r.x, x, &l);
    assert_true(xd_ok(&r.x));
    for (int64_t i = 0; i < ROWS * Z_OUT; i++) {
        const float v = ((float *)y.p)[i];
        const int   none = padding || i / Z_OUT >= 2 || i % Z_OUT >= Z_OUT / 2;
        if (!isfinite(v) || (none && v != 0))
            fail_msg("%s as %s%s: number %d is %g", xd_dtype_name(z->stored),
                     xd_dtype_name(z->blocks), z->few ? ", few rows" : "", (int)i, (double)v);
    }
    free(r.room);
    free(z->at);
    xd_store_close(&store);
}

/* Products of every type of weights with rows of zeros on both sides are zeros. */
static void zeros_give_zeros(void **state)
{
    static const xd_dtype kept[] = { XD_F32, XD_I8, XD_F8E4M3, XD_Q4_0 };
    static const xd_dtype from[] = { XD_F32,  XD_Q8_0,   XD_Q4_0,  XD_Q4_1, XD_Q5_0,
                                     XD_Q5_1, XD_Q2_K,   XD_Q3_K,  XD_Q4_K, XD_Q5_K,
                                     XD_Q6_K, XD_IQ4_NL, XD_IQ4_XS };
    (void)state;
    for (int k = 0; k < 4; k++)
        for (int padding = 0; padding < 2; padding++) {
            for (size_t i = 0; i < sizeof from / sizeof *from; i++)
                check_zeros(&(zeros){ .stored = from[i], .blocks = kept[k] }, padding);
            check_zeros(&(zeros){ .stored = XD_F32, .blocks = kept[k], .few = 1 }, padding);
            check_zeros(&(zeros){ .stored = XD_I8, .blocks = kept[k], .coded = 1 }, padding);
            check_zeros(&(zeros){ .stored = XD_U8, .blocks = kept[k], .coded = 1 }, padding);
        }
}

static void hear(void *cookie, int level, const char *line)
{
    (void)cookie;
    (void)level;
    snprintf(heard, sizeof heard, "%s", line);
}

int main(void)
{
    const xd_logger         log = { hear, NULL, XD_LOG_WARN };
    xd_isa                  isa;
    int                     forced;
    xd_err                  e = { 0 };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_numbers_are_multiplied),
        cmocka_unit_test(parts_are_side_by_side),
        cmocka_unit_test(rotation_lessens_the_error),
        cmocka_unit_test(others_have_eight_bits),
        cmocka_unit_test(odd_numbers_are_found),
        cmocka_unit_test(scales_are_searched),
        cmocka_unit_test(groups_of_any_numbers),
        cmocka_unit_test(every_set_rounds_alike),
        cmocka_unit_test(stored_blocks_stay),
        cmocka_unit_test(integers_stay),
        cmocka_unit_test(zeros_give_zeros),
    };
    if (xd_isa_choose(&isa, &forced, &e) != XD_OK || xd_dev_open(&dev, "cpu", &e) != XD_OK) {
        printf("1..0 # SKIP %s\n", e.msg);
        return 0;
    }
    xd_log_enter(&log);
    make_tensors();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < NT; i++)
        free(data[i]);
    xd_dev_close(&dev);
    return failed;
}
