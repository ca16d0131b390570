/* svdquant.c - decodes the linear layers of SVDQuant files for nunchaku to plain matrices.
 *
 * A linear layer of SVDQuant has 4-bit integers q, a scale s for every 64 elements of a row,
 * smoothing factors m, by which the inputs are divided, and a low-rank product:
 *  w[o,i] = q[o,i] s[o,i / 64] / m[i] + sum_r up[o,r] down[r,i].
 * To the inputs of a layer that follows GELU, nunchaku adds SHIFT before the product with q. In the
 * file, the contribution of SHIFT has already been subtracted from the bias. A modulation has
 * integers of 0 to 15, with a scale and an offset for every 64 elements of a row. The rows of a
 * modulation are shift, scale, gate ... of the first feature, then of the second; in the file, 1 is
 * added to the biases of the scales.
 *
 * All elements of the file are in the order in which warps of a GPU load them
 * (deepcompressor/backend/nunchaku). A warp loads 128 rows. In this source file, the "place" of an
 * element is the element's position in the order of the file. */
#include "model/svdquant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "base/par.h"

enum { TILE = 128, GROUP = 64, PACK = 16, RANK_MOST = 512, NAME = 512 };
static const float SHIFT = 0.171875f;

/* The tensors of a layer; each tensor is recognized by the suffix of its name, and some tensors
 * have two possible suffixes. */
enum { CODES, SCALES, OFFSETS, SMOOTH, DOWN, UP, BIAS, SMOOTH_ORIGINAL, TENSORS };
static const char *const ends[TENSORS][2] = {
    { "qweight", NULL },
    { "wscales", NULL },
    { "wzeros", NULL },
    { "smooth", "smooth_factor" },
    { "lora_down", "proj_down" },
    { "lora_up", "proj_up" },
    { "bias", NULL },
    { "smooth_orig", "smooth_factor_orig" },
};

typedef struct layer {
    char      name[NAME];  /* name of the layer's module */
    int64_t   of[TENSORS]; /* indices of the layer's tensors in the file; -1: none */
    xd_tensor t[TENSORS];  /* the layer's tensors, open while the layer is in use */
    int       uses;
    int64_t   in, out, rank;
    int64_t   parts;   /* number of rows per feature in a modulation; 0: no modulation */
    int       shifted; /* 1: SHIFT must be added to the inputs of the layer */
} layer;

typedef struct joined { /* one layer, or two layers whose columns are concatenated */
    char   name[NAME];
    layer *part[2]; /* the joined layers; the second may be NULL */
    float *bias;    /* decoded bias of the layers while the bias is in use */
    int    uses;
} joined;

struct xd_svdquant {
    const xd_st     *files;
    const xd_source *raw;
    const char      *what;
    layer           *list;
    int64_t          n;
    joined         **joints;
    int              njoints;
    char            *owned; /* [tensors of the files] 1: the tensor belongs to a layer */
};

/* ---- finding layers ----------------------------------------------------------------------- */

static int ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

/* Tensor i has the codes of a module. Returns the index of another tensor of the module, or -1 if
 * the module has no such tensor. */
static int64_t find_tensor(const xd_st *files, int64_t i, int which)
{
    const char *name = xd_st_name(files, i);
    int         stem = (int)strlen(name) - (int)strlen(ends[CODES][0]);
    char        full[NAME];
    for (int k = 0; k < 2 && ends[which][k]; k++) {
        snprintf(full, sizeof full, "%.*s%s", stem, name, ends[which][k]);
        int64_t at = xd_st_find(files, full);
        if (at >= 0)
            return at;
    }
    return -1;
}

int xd_svdquant_takes(const xd_st *files, int64_t i)
{
    return ends_with(xd_st_name(files, i), ".qweight") && find_tensor(files, i, SCALES) >= 0 &&
           (find_tensor(files, i, OFFSETS) >= 0 || find_tensor(files, i, SMOOTH) >= 0);
}

/* Returns 1 if the layer follows GELU, so that SHIFT is added to the layer's inputs. */
static int is_shifted(const char *module)
{
    static const char *const after[] = {
        ".mlp_fc2",          ".mlp_context_fc2", ".ff.net.2",
        ".ff_context.net.2", ".img_mlp.net.2",   ".txt_mlp.net.2"
    };
    for (size_t i = 0; i < sizeof after / sizeof *after; i++)
        if (ends_with(module, after[i]))
            return 1;
    return 0;
}

static int is_float(xd_dtype t)
{
    return t == XD_F32 || t == XD_F16 || t == XD_BF16;
}

/* Returns 1 if the tensor has n floating-point elements, or if it is optional and absent. */
static int has_floats(const xd_st *files, int64_t i, int64_t n, int optional)
{
    xd_tensor t = i < 0 ? (xd_tensor){ 0 } : xd_st_shape(files, i);
    return i < 0 ? optional : is_float(t.type) && xd_count(t) == n;
}

static xd_status check_modulation(const xd_svdquant *s, layer *l, xd_err *e)
{
    xd_tensor q = xd_st_shape(s->files, l->of[CODES]);
    xd_tensor scales = xd_st_shape(s->files, l->of[SCALES]);
    l->out = 4 * q.d[0];
    l->in = 2 * q.d[1];
    l->parts = l->in ? l->out / l->in : 0;
    if (q.type != XD_I32 || q.nd != 2 || l->in % GROUP || l->out != l->parts * l->in ||
        (l->parts != 3 && l->parts != 6) ||
        !has_floats(s->files, l->of[SCALES], xd_count(scales), 0) ||
        xd_count(scales) < l->in / GROUP * l->out ||
        !has_floats(s->files, l->of[OFFSETS], xd_count(scales), 0) ||
        !has_floats(s->files, l->of[BIAS], l->out, 1))
        return xd_fail(e, XD_EFORMAT,
                       "%s: %s.qweight and its scales are not a modulation "
                       "of SVDQuant with 3 or 6 outputs per feature",
                       s->what, l->name);
    return XD_OK;
}

static xd_status check_layer(const xd_svdquant *s, layer *l, xd_err *e)
{
    xd_tensor q = xd_st_shape(s->files, l->of[CODES]);
    xd_tensor scales = xd_st_shape(s->files, l->of[SCALES]);
    xd_tensor down = l->of[DOWN] < 0 ? (xd_tensor){ 0 } : xd_st_shape(s->files, l->of[DOWN]);
    l->out = q.d[0];
    l->in = 2 * q.d[1];
    l->rank = down.nd == 2 ? down.d[1] : 0;
    if (scales.type == XD_F8E4M3)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: %s.qweight holds SVDQuant's 4-bit floats "
                       "(nvfp4), which are not supported: use the model's file in int4",
                       s->what, l->name);
    if ((q.type != XD_I8 && q.type != XD_U8) || q.nd != 2 || !xd_count(q) || l->in % TILE ||
        l->out % TILE || !has_floats(s->files, l->of[SCALES], l->in / GROUP * l->out, 0) ||
        !has_floats(s->files, l->of[SMOOTH], l->in, 0) ||
        !has_floats(s->files, l->of[BIAS], l->out, 1) || l->rank % PACK || l->rank > RANK_MOST ||
        (l->of[DOWN] < 0) != (l->of[UP] < 0) ||
        !has_floats(s->files, l->of[DOWN], l->in * l->rank, 1) ||
        !has_floats(s->files, l->of[UP], l->out * l->rank, 1))
        return xd_fail(e, XD_EFORMAT,
                       "%s: %s.qweight and its scales are not a layer of "
                       "SVDQuant in int4, with inputs and outputs in multiples of %d, scales of "
                       "groups of %d and a rank that is a multiple of %d",
                       s->what, l->name, TILE, GROUP, PACK);
    return XD_OK;
}

static xd_status add_layer(xd_svdquant *s, int64_t i, xd_err *e)
{
    layer      *l = &s->list[s->n++];
    const char *name = xd_st_name(s->files, i);
    *l = (layer){ .uses = 0 };
    snprintf(l->name, sizeof l->name, "%.*s", (int)strlen(name) - 8, name);
    for (int k = 0; k < TENSORS; k++) {
        l->of[k] = find_tensor(s->files, i, k);
        if (l->of[k] >= 0)
            s->owned[l->of[k]] = 1;
    }
    l->shifted = is_shifted(l->name);
    return l->of[OFFSETS] >= 0 ? check_modulation(s, l, e) : check_layer(s, l, e);
}

xd_status xd_svdquant_open(xd_svdquant **out, const xd_st *files, const xd_source *raw,
                           const char *what, xd_err *e)
{
    int64_t layers = 0;
    *out = NULL;
    for (int64_t i = 0; i < xd_st_count(files); i++)
        layers += xd_svdquant_takes(files, i);
    if (!layers)
        return XD_OK;
    xd_svdquant *s = *out = calloc(1, sizeof *s);
    if (s) {
        s->files = files;
        s->raw = raw;
        s->what = what;
        s->list = calloc((size_t)layers, sizeof *s->list);
        s->owned = calloc((size_t)xd_st_count(files), 1);
    }
    xd_status st = s && s->list && s->owned
                       ? XD_OK
                       : xd_fail(e, XD_ENOMEM, "no memory for the layers of %s", what);
    for (int64_t i = 0; st == XD_OK && i < xd_st_count(files); i++)
        if (xd_svdquant_takes(files, i))
            st = add_layer(s, i, e);
    if (st != XD_OK)
        xd_svdquant_close(out);
    return st;
}

void xd_svdquant_close(xd_svdquant **out)
{
    xd_svdquant *s = *out;
    for (int i = 0; s && i < s->njoints; i++) {
        free(s->joints[i]->bias);
        free(s->joints[i]);
    }
    if (s) {
        free(s->joints);
        free(s->list);
        free(s->owned);
    }
    free(s);
    *out = NULL;
}

int xd_svdquant_owns(const xd_svdquant *s, int64_t i)
{
    return s && s->owned[i];
}

/* ---- elements ----------------------------------------------------------------------------- */

/* Reads n elements of a tensor, at most 256, from `place` on; a place is a position in the file's
 * order of elements. The function is fast for bf16, the usual type, whose bits are the upper half
 * of an f32. */
static inline void read_floats(xd_tensor t, int64_t place, int n, float *to)
{
    uint16_t half[PACK * PACK];
    uint32_t wide[PACK * PACK];
    if (t.type != XD_BF16) {
        xd_convert_at(to, XD_F32, t.p, t.type, place, n);
        return;
    }
    memcpy(half, (const char *)t.p + (size_t)place * sizeof *half, (size_t)n * sizeof *half);
    for (int i = 0; i < n; i++)
        wide[i] = (uint32_t)half[i] << 16;
    memcpy(to, wide, (size_t)n * sizeof *to);
}

static float float_at(xd_tensor t, int64_t place)
{
    float v;
    read_floats(t, place, 1, &v);
    return v;
}

/* Returns the place (position in the file) of element i of a vector or of scales. In each group of
 * 16, the elements are stored in the order 0, 1, 8, 9, 2, 3, 10, 11, ... */
static int64_t place_in_pack(int64_t i)
{
    return i % 8 / 2 * 4 + i % PACK / 8 * 2 + i % 2;
}

static int64_t place_of_row(int64_t i)
{
    return i / PACK * PACK + place_in_pack(i);
}

static float scale_of(const layer *l, int64_t row, int64_t column)
{
    const int64_t tile = row / TILE * (l->in / GROUP) + column / GROUP;
    return float_at(l->t[SCALES], tile * TILE + place_of_row(row % TILE));
}

/* Returns the 32-bit word that has the 4-bit integers of eight columns of a row. The words of a
 * tile of 64 columns and 128 rows are ordered by groups of 16 rows, then by rows modulo 8, then by
 * groups of 8 columns modulo 4. This leaves four words with the same position: those of two rows
 * that are equal modulo 8, with two groups of columns each. */
static uint32_t word_at(const layer *l, int64_t row, int64_t column)
{
    const int64_t tile = row / TILE * (l->in / GROUP) + column / GROUP;
    const int64_t lane = (row % TILE / PACK * 8 + row % 8) * 4 + column % 32 / 8;
    const int64_t word = (tile * 2 * TILE + lane) * 4 + row % PACK / 8 * 2 + column % GROUP / 32;
    uint32_t      v;
    memcpy(&v, (const char *)l->t[CODES].p + (size_t)word * sizeof v, sizeof v);
    return v;
}

/* Decodes sixteen columns of a row: multiplies the integers by the scale, and divides by the
 * smoothing factors. */
static void read_integers(const layer *l, int64_t row, int64_t column, float to[PACK])
{
    const float s = scale_of(l, row, column);
    float       m[PACK];
    read_floats(l->t[SMOOTH], column, PACK, m);
    for (int k = 0; k < PACK; k += 8) {
        const uint32_t w = word_at(l, row, column + k);
        for (int j = 0; j < 8; j++) {
            const int v = (int)(w >> 4 * j & 15);
            to[k + j] = (float)(v < 8 ? v : v - 16) * s / m[place_in_pack(k + j)];
        }
    }
}

enum { SIXTEENS = PACK * PACK, LANES = 32 };

/* Reads a row of the low-rank matrix `up`, which is stored in tiles of 16 rows by 16 ranks. The
 * elements are repeated in the order in which `down` stores its ranks: in run k of 32 elements,
 * groups of four elements of rank k alternate with groups of four elements of rank k + 8. */
static void read_up(const layer *l, int64_t row, float *to)
{
    for (int64_t r = 0; r < l->rank; r += PACK) {
        float x[SIXTEENS], rank[PACK];
        read_floats(l->t[UP], (row / PACK * (l->rank / PACK) + r / PACK) * SIXTEENS, SIXTEENS, x);
        for (int64_t i = 0; i < PACK; i++)
            rank[i] = x[row % 8 * 32 + i % 8 / 2 * 8 + row % PACK / 8 * 4 + i / 8 * 2 + i % 2];
        for (int i = 0; i < SIXTEENS; i++)
            *to++ = rank[i / LANES + i % 8 / 4 * 8];
    }
}

/* Adds sixteen columns of the low-rank product to a decoded row. up: the row that read_up
 * returned. */
static void add_product(const layer *l, const float *up, int64_t column, float to[PACK])
{
    const int64_t blocks = l->rank / PACK, first = column / PACK * blocks;
    float         sum[LANES] = { 0 };
    for (int64_t b = 0; b < blocks; b++) {
        float x[SIXTEENS];
        read_floats(l->t[DOWN], (first + b) * SIXTEENS, SIXTEENS, x);
        for (int i = 0; i < SIXTEENS; i += LANES)
            for (int k = 0; k < LANES; k++)
                sum[k] += up[b * SIXTEENS + i + k] * x[i + k];
    }
    for (int i = 0; i < PACK; i++) {
        const int at = i % 8 / 2 * 8 + i / 8 * 2 + i % 2;
        to[i] += sum[at] + sum[at + 4];
    }
}

/* Returns the index that a row of a modulation has in the file, where all rows of a feature are
 * neighbours. */
static int64_t row_of_part(const layer *l, int64_t row)
{
    const int64_t features = l->out / l->parts;
    return row % features * l->parts + row / features;
}

/* Decodes sixteen columns of a modulation. In the file, four rows of a modulation are interleaved.
 * A 16-bit word has four of 32 columns: those that are equal modulo 8. */
static void read_modulation(const layer *l, int64_t row, int64_t column, float to[PACK])
{
    const int64_t r = row_of_part(l, row), at = column / GROUP * l->out + r;
    const float   s = float_at(l->t[SCALES], at), zero = float_at(l->t[OFFSETS], at);
    const int64_t first = (r / 4 * (l->in / GROUP) + column / GROUP) * GROUP + r % 4 * PACK;
    for (int64_t k = column; k < column + PACK; k++) {
        uint16_t v;
        memcpy(&v,
               (const char *)l->t[CODES].p +
                   (size_t)(first + k % GROUP / 32 * 8 + k % 8) * sizeof v,
               sizeof v);
        to[k - column] = (float)(v >> k % 32 / 8 * 4 & 15) * s + zero;
    }
}

static void read_layer(const layer *l, int64_t row, int64_t column, int64_t n, float *to)
{
    float up[RANK_MOST * PACK], x[PACK];
    if (!l->parts)
        read_up(l, row, up);
    for (int64_t k = column / PACK * PACK; k < column + n; k += PACK) {
        if (l->parts) {
            read_modulation(l, row, k, x);
        } else {
            read_integers(l, row, k, x);
            add_product(l, up, k, x);
        }
        const int64_t from = xd_max(k, column), end = xd_min(k + PACK, column + n);
        memcpy(to + (from - column), x + (from - k), (size_t)(end - from) * sizeof *to);
    }
}

static void read_joined(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to)
{
    const joined *j = c->self;
    const int64_t first = j->part[0]->in, left = xd_min(xd_max(first - column, 0), n);
    row = xd_coding_row(c, row);
    if (left)
        read_layer(j->part[0], row, column, left, to);
    if (n > left)
        read_layer(j->part[1], row, column + left - first, n - left, to + left);
}

/* ---- biases ------------------------------------------------------------------------------- */

typedef struct biasing {
    const layer *l;
    float       *to;
} biasing;

/* Adds the biases of some rows of a layer to the elements of `to`. */
static void add_biases(void *ctx, int64_t begin, int64_t end, int thread)
{
    const biasing *b = ctx;
    const layer   *l = b->l;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const int64_t part = l->parts ? r / (l->out / l->parts) : -1;
        double        sum = 0;
        float         x[PACK];
        for (int64_t k = 0; k < l->in && l->shifted; k += PACK) {
            read_integers(l, r, k, x);
            for (int i = 0; i < PACK; i++)
                sum += (double)x[i];
        }
        if (part >= 0)
            b->to[r] += float_at(l->t[BIAS], row_of_part(l, r)) -
                        (part == 1 || part == l->parts - 2 ? 1.0f : 0.0f);
        else
            b->to[r] +=
                (float)((double)float_at(l->t[BIAS], place_of_row(r)) + sum * (double)SHIFT);
    }
}

/* ---- the source --------------------------------------------------------------------------- */

static layer *find_layer(const xd_svdquant *s, const char *name, size_t n)
{
    for (int64_t i = 0; i < s->n; i++)
        if (strncmp(s->list[i].name, name, n) == 0 && !s->list[i].name[n])
            return &s->list[i];
    return NULL;
}

/* Finds the layer or layers of a name. The name is MODULE for one layer, PREFIX.A+B for two layers.
 * Returns 0 if there are no such layers. */
static int find_parts(const xd_svdquant *s, const char *name, size_t n, layer *part[2])
{
    const char *plus = memchr(name, '+', n), *dot = plus;
    char        second[NAME];
    part[0] = find_layer(s, name, plus ? (size_t)(plus - name) : n);
    part[1] = NULL;
    if (!plus || !part[0])
        return part[0] != NULL;
    while (dot > name && dot[-1] != '.')
        dot--;
    snprintf(second, sizeof second, "%.*s%.*s", (int)(dot - name), name,
             (int)(n - (size_t)(plus - name)) - 1, plus + 1);
    part[1] = find_layer(s, second, strlen(second));
    return part[1] && part[1]->out == part[0]->out && !part[0]->parts && !part[1]->parts;
}

/* Returns the layers of a tensor whose name is "NAME.weight" or "NAME.bias". Returns NULL if the
 * tensor belongs to no layer, or if memory is short. */
static joined *find_joined(xd_svdquant *s, const char *name, int *bias)
{
    *bias = ends_with(name, ".bias");
    size_t n = strlen(name) - (*bias ? 5 : ends_with(name, ".weight") ? 7 : 0);
    layer *part[2];
    if (n == strlen(name))
        return NULL;
    for (int i = 0; i < s->njoints; i++)
        if (strncmp(s->joints[i]->name, name, n) == 0 && !s->joints[i]->name[n])
            return s->joints[i];
    if (!find_parts(s, name, n, part))
        return NULL;
    joined **all = realloc(s->joints, (size_t)(s->njoints + 1) * sizeof *all);
    s->joints = all ? all : s->joints;
    joined *j = all ? calloc(1, sizeof *j) : NULL;
    if (!j)
        return NULL;
    snprintf(j->name, sizeof j->name, "%.*s", (int)n, name);
    memcpy(j->part, part, sizeof part);
    return s->joints[s->njoints++] = j;
}

static int64_t columns_of(const joined *j)
{
    return j->part[0]->in + (j->part[1] ? j->part[1]->in : 0);
}

static int has_bias(const joined *j)
{
    return j->part[0]->of[BIAS] >= 0 || (j->part[1] && j->part[1]->of[BIAS] >= 0);
}

static int src_has(void *self, const char *name, xd_tensor *shape)
{
    xd_svdquant  *s = self;
    int           bias;
    const joined *j = find_joined(s, name, &bias);
    if (!j)
        return s->raw->has(s->raw->self, name, shape);
    const int64_t d[2] = { j->part[0]->out, columns_of(j) };
    *shape = xd_view(NULL, bias ? XD_F32 : XD_U8, bias ? 1 : 2, d);
    return !bias || has_bias(j);
}

static void release(const xd_svdquant *s, layer *l)
{
    if (l && --l->uses == 0)
        for (int k = 0; k < SMOOTH_ORIGINAL; k++)
            if (l->t[k].p)
                s->raw->done(s->raw->self, xd_st_name(s->files, l->of[k]));
}

static xd_status acquire(const xd_svdquant *s, layer *l, xd_err *e)
{
    xd_status st = XD_OK;
    if (!l || l->uses++)
        return XD_OK;
    memset(l->t, 0, sizeof l->t);
    for (int k = 0; k < SMOOTH_ORIGINAL && st == XD_OK; k++)
        if (l->of[k] >= 0)
            st = s->raw->get(s->raw->self, xd_st_name(s->files, l->of[k]), &l->t[k], e);
    if (st != XD_OK)
        release(s, l);
    return st;
}

static xd_status acquire_both(const xd_svdquant *s, const joined *j, xd_err *e)
{
    xd_status st = acquire(s, j->part[0], e);
    if (st != XD_OK)
        return st;
    st = acquire(s, j->part[1], e);
    if (st != XD_OK)
        release(s, j->part[0]);
    return st;
}

static void release_both(const xd_svdquant *s, const joined *j)
{
    release(s, j->part[1]);
    release(s, j->part[0]);
}

static xd_status make_bias(const xd_svdquant *s, joined *j, xd_err *e)
{
    if (j->uses++)
        return XD_OK;
    xd_status st = acquire_both(s, j, e);
    if (st == XD_OK && !(j->bias = calloc((size_t)j->part[0]->out + 1, sizeof *j->bias))) {
        release_both(s, j);
        st = xd_fail(e, XD_ENOMEM, "no memory for the biases of %s", j->name);
    }
    for (int i = 0; st == XD_OK && i < 2; i++)
        if (j->part[i] && j->part[i]->of[BIAS] >= 0)
            xd_par_for(j->part[i]->out, add_biases, &(biasing){ j->part[i], j->bias });
    if (st == XD_OK)
        release_both(s, j);
    else
        j->uses--;
    return st;
}

static xd_status src_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    xd_svdquant *s = self;
    int          bias;
    joined      *j = find_joined(s, name, &bias);
    if (!j)
        return s->raw->get(s->raw->self, name, t, e);
    xd_status st = bias ? make_bias(s, j, e) : acquire_both(s, j, e);
    if (st == XD_OK) {
        src_has(self, name, t);
        t->p = bias ? (void *)j->bias : j->part[0]->t[CODES].p;
    }
    return st;
}

static void src_done(void *self, const char *name)
{
    xd_svdquant *s = self;
    int          bias;
    joined      *j = find_joined(s, name, &bias);
    if (!j) {
        s->raw->done(s->raw->self, name);
    } else if (!bias) {
        release_both(s, j);
    } else if (j->uses && --j->uses == 0) {
        free(j->bias);
        j->bias = NULL;
    }
}

static int src_codes(void *self, const char *name, xd_coding *c)
{
    xd_svdquant *s = self;
    int          bias;
    joined      *j = find_joined(s, name, &bias);
    if (!j)
        return s->raw->codes && s->raw->codes(s->raw->self, name, c);
    *c = (xd_coding){
        .read = bias ? NULL : read_joined, .self = j, .rows = j->part[0]->out, .type = XD_F32
    };
    return !bias;
}

static xd_status src_scale(void *self, const char *name, float *scale, xd_err *e)
{
    xd_svdquant *s = self;
    int          bias;
    *scale = 1;
    return s->raw->scale && !find_joined(s, name, &bias)
               ? s->raw->scale(s->raw->self, name, scale, e)
               : XD_OK;
}

static void src_past(void *self, const char *name, const void *p, size_t bytes)
{
    xd_svdquant *s = self;
    int          bias;
    if (s->raw->past && !find_joined(s, name, &bias))
        s->raw->past(s->raw->self, name, p, bytes);
}

/* Announces which parts of the file will be read to decode some rows of a layer. Of a tensor that
 * is stored by rows, this is the same fraction as of the layer's rows; other tensors are read
 * completely. */
static void layer_will(const xd_svdquant *s, const layer *l, double from, double to)
{
    for (int k = 0; k < SMOOTH_ORIGINAL; k++) {
        if (l->of[k] < 0)
            continue;
        const int     rows = !l->parts && (k == CODES || k == SCALES || k == UP);
        const int64_t n = xd_count(xd_st_shape(s->files, l->of[k]));
        const int64_t first = rows ? (int64_t)((double)n * from) : 0;
        const int64_t end = rows ? xd_min(n, (int64_t)((double)n * to) + 1) : n;
        s->raw->will(s->raw->self, xd_st_name(s->files, l->of[k]), first, end - first);
    }
}

static void src_will(void *self, const char *name, int64_t first, int64_t n)
{
    xd_svdquant  *s = self;
    int           bias;
    const joined *j = find_joined(s, name, &bias);
    if (!s->raw->will || (j && bias))
        return;
    if (!j) {
        s->raw->will(s->raw->self, name, first, n);
        return;
    }
    const double all = (double)(columns_of(j) * j->part[0]->out);
    for (int i = 0; i < 2; i++)
        if (j->part[i])
            layer_will(s, j->part[i], (double)first / all, (double)(first + n) / all);
}

xd_source xd_svdquant_source(xd_svdquant *s)
{
    return (xd_source){ src_has,  src_get, src_done, s->raw->in_place, s, src_scale, src_past,
                        src_will, NULL,    NULL,     src_codes };
}
