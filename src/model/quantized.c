/* quantized.c - finds the quantized weights in weight files, and decodes them */
#include "model/quantized.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/svdquant.h"

static const char reads[] = "float8_e4m3fn, float8_e5m2, int8_tensorwise, convrot_w4a4, q4_0, "
                            "bitsandbytes' nf4 and fp4 and SVDQuant's int4 are read";

enum { TABLE = 256 }; /* entries in bitsandbytes' table for nested scales */

typedef struct coded { /* one quantized tensor of the weight files */
    xd_tensor   shape; /* shape of the tensor's decoded elements */
    int         four;  /* 1: the tensor has four bits per element */
    xd_dtype    type;  /* type of the tensor's codes, for xd_coding */
    float      *scale; /* [nscale] in ComfyUI's formats: one scale, or one per row */
    int64_t     nscale, rotate;
    /* In bitsandbytes' formats, an element is map[code] times the scale of its block, which has
     * `block` elements. Nested scales are themselves quantized: the scale of block b is
     * table[absmax[b]] * nested[b / nest] + offset. */
    /* Index, in the files, of the tensor absmax, which has the scales of the blocks or, for nested
     * scales, their codes. */
    int64_t     absmax;
    const char *absmax_at; /* data of the tensor with the scales, while the scales are used */
    int         uses;
    /* elements per block; blocks per nested scale (0: the scales are f32 and not nested) */
    int64_t     block, nest;
    float       map[16], offset, *table, *nested;
    char       *why; /* reason why the tensor cannot be decoded, or NULL */
    xd_status   code;
} coded;

struct xd_quantized {
    xd_st      *files;
    const char *what;
    xd_json    *meta;
    coded      *list;
    /* [tensors of the files]: each tensor's index in `list` plus 1; 0: the tensor is not
     * quantized */
    int64_t     n, *of;
};

static coded *coded_of(const xd_quantized *q, int64_t i)
{
    return q && i >= 0 && q->of[i] ? &q->list[q->of[i] - 1] : NULL;
}

/* ---- decoding ----------------------------------------------------------------------------- */

static int64_t columns_of(const coded *k)
{
    return k->shape.d[1];
}

static float scale_of(const xd_coding *c, int64_t row)
{
    const coded *k = c->self;
    return k->scale[k->nscale > 1 ? xd_coding_row(c, row) : 0];
}

static void read_int8(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to)
{
    const coded  *k = c->self;
    const int8_t *p = (const int8_t *)c->data + xd_coding_row(c, row) * columns_of(k) + column;
    const float   s = scale_of(c, row);
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)p[i] * s;
}

/* Decodes a row's int4 elements, which are -8 to 7. The lower half of a byte is the first
 * element. */
static void read_int4(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to)
{
    const coded   *k = c->self;
    const uint8_t *p = c->data;
    const int64_t  at = xd_coding_row(c, row) * columns_of(k) + column;
    const float    s = scale_of(c, row);
    for (int64_t i = at; i < at + n; i++) {
        int v = i % 2 ? p[i / 2] >> 4 : p[i / 2] & 15;
        to[i - at] = (float)(v < 8 ? v : v - 16) * s;
    }
}

static void read_e4m3(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to)
{
    const coded *k = c->self;
    const float  s = scale_of(c, row);
    xd_convert_at(to, XD_F32, c->data, XD_F8E4M3, xd_coding_row(c, row) * columns_of(k) + column,
                  n);
    for (int64_t i = 0; i < n; i++)
        to[i] *= s;
}

static void read_q4_0(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to)
{
    const coded *k = c->self;
    xd_convert_at(to, XD_F32, c->data, XD_Q4_0, xd_coding_row(c, row) * columns_of(k) + column, n);
}

static float float_at(const void *p, int64_t i)
{
    float v;
    memcpy(&v, (const char *)p + (size_t)i * sizeof v, sizeof v);
    return v;
}

static float block_scale(const coded *k, int64_t block)
{
    if (!k->nest)
        return float_at(k->absmax_at, block);
    return k->table[(uint8_t)k->absmax_at[block]] * k->nested[block / k->nest] + k->offset;
}

/* Decodes a row's elements, which the file stores as 4-bit indices into a table of values. The
 * upper half of a byte is the first element. */
static void read_four(const xd_coding *c, int64_t row, int64_t column, int64_t n, float *to)
{
    const coded   *k = c->self;
    const uint8_t *p = c->data;
    const int64_t  at = xd_coding_row(c, row) * columns_of(k) + column;
    float          s = 0;
    for (int64_t i = at; i < at + n; i++) {
        if (i == at || i % k->block == 0)
            s = block_scale(k, i / k->block);
        to[i - at] = k->map[i % 2 ? p[i / 2] & 15 : p[i / 2] >> 4] * s;
    }
}

int xd_quantized_codes(const xd_quantized *q, int64_t i, xd_coding *c)
{
    const coded *k = coded_of(q, i);
    *c = (xd_coding){ 0 };
    if (!k || k->why || !xd_is_coded(k->shape.type))
        return 0;
    *c = (xd_coding){ .read = k->type == XD_Q4_0     ? read_q4_0
                              : k->type == XD_F8E4M3 ? read_e4m3
                              : !k->scale            ? read_four
                              : k->four              ? read_int4
                                                     : read_int8,
                      .scale = k->scale ? scale_of : NULL,
                      .rotate = k->rotate,
                      .self = k,
                      .rows = k->shape.d[0],
                      .type = k->type };
    return 1;
}

/* ---- tensors ------------------------------------------------------------------------------ */

xd_tensor xd_quantized_shape(const xd_quantized *q, const xd_st *files, int64_t i)
{
    const coded *k = coded_of(q, i);
    return k && !k->why ? k->shape : xd_st_shape(files, i);
}

xd_status xd_quantized_get(const xd_quantized *q, xd_st *files, int64_t i, xd_tensor *t, xd_err *e)
{
    coded    *k = coded_of(q, i);
    xd_status s = xd_st_get(files, i, t, e);
    if (s != XD_OK || !k || k->why)
        return s;
    *t = xd_view(t->p, k->shape.type, k->shape.nd, k->shape.d);
    if (k->absmax >= 0) {
        xd_tensor a;
        s = xd_st_get(files, k->absmax, &a, e);
        if (s != XD_OK) {
            xd_st_done(files, i);
            return s;
        }
        k->absmax_at = a.p;
        k->uses++;
    }
    return XD_OK;
}

void xd_quantized_done(const xd_quantized *q, xd_st *files, int64_t i)
{
    coded *k = coded_of(q, i);
    xd_st_done(files, i);
    if (k && k->uses) {
        k->uses--;
        xd_st_done(files, k->absmax);
    }
}

static int ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

int xd_quantized_is_note(const char *name)
{
    static const char *const ends[] = { ".scale_weight",
                                        ".weight_scale",
                                        ".weight_scale_2",
                                        ".scale_input",
                                        ".input_scale",
                                        ".pre_quant_scale",
                                        ".comfy_quant",
                                        ".comfy_attention.config",
                                        "scaled_fp8",
                                        ".weight.absmax",
                                        ".weight.quant_map",
                                        ".weight.nested_absmax",
                                        ".weight.nested_quant_map",
                                        ".quant_state.bitsandbytes__nf4",
                                        ".quant_state.bitsandbytes__fp4" };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i]))
            return 1;
    return 0;
}

/* ---- detecting formats -------------------------------------------------------------------- */

typedef struct search { /* state of the search for the format of one tensor */
    xd_quantized *q;
    int64_t       i; /* index of this tensor in the files */
    const char   *name;
    int           stem; /* length of the module's name, including the dot after it */
    coded        *k;
} search;

/* Stores the error message for a tensor that cannot be decoded. */
static void refuse(search *s, xd_status code, const char *fmt, ...) XD_PRINTF(3, 4);
static void refuse(search *s, xd_status code, const char *fmt, ...)
{
    xd_text_buf b = { 0 };
    va_list     ap;
    va_start(ap, fmt);
    xd_buf_vadd(&b, fmt, ap);
    va_end(ap);
    s->k->code = b.failed ? XD_ENOMEM : code;
    s->k->why = b.p ? b.p : strdup("out of memory");
}

/* Returns the index of another tensor that describes the same weight. The name of the other tensor
 * is MODULE.END or, if `whole` is set, NAME.END. Returns -1 if the files have no such tensor. */
static int64_t find_beside(const search *s, int whole, const char *end)
{
    char name[512];
    snprintf(name, sizeof name, "%.*s%s", whole ? (int)strlen(s->name) : s->stem, s->name, end);
    return xd_st_find(s->q->files, name);
}

/* Returns the elements of tensor i as malloc'ed floats, or NULL if the tensor is refused. */
static float *floats_of(search *s, int64_t i)
{
    xd_err    e = { 0 };
    xd_tensor t;
    if (xd_st_get(s->q->files, i, &t, &e) != XD_OK) {
        refuse(s, e.code, "%s", e.msg);
        return NULL;
    }
    float *to = malloc((size_t)xd_count(t) * sizeof *to + 1);
    if (to)
        xd_convert(to, XD_F32, t.p, t.type, xd_count(t));
    else
        refuse(s, XD_ENOMEM, "no memory for the scales of %s", s->name);
    xd_st_done(s->q->files, i);
    return to;
}

static int is_float(xd_dtype t)
{
    return t == XD_F32 || t == XD_F16 || t == XD_BF16;
}

/* Reads the scales of a quantized weight. There is one scale for all rows, or one scale per row. */
static void read_scales(search *s, const char *format)
{
    const int64_t i = find_beside(s, 0, "weight_scale"), rows = s->k->shape.d[0];
    if (i < 0) {
        refuse(s, XD_EFORMAT,
               "the weight %s has the format %s, but its scales %.*sweight_scale "
               "are missing",
               s->name, format, s->stem, s->name);
        return;
    }
    xd_tensor t = xd_st_shape(s->q->files, i);
    s->k->nscale = xd_count(t);
    if (!is_float(t.type) || (s->k->nscale != 1 && s->k->nscale != rows)) {
        refuse(s, XD_EFORMAT,
               "the scale %s has %lld elements of type %s; it must have one, or one "
               "for each of the %lld rows, in f32, f16 or bf16",
               xd_st_name(s->q->files, i), (long long)s->k->nscale, xd_st_dtype(s->q->files, i),
               (long long)rows);
        return;
    }
    s->k->scale = floats_of(s, i);
    for (int64_t r = 0; s->k->scale && r < s->k->nscale && !s->k->why; r++)
        if (!(s->k->scale[r] >= 0) || !isfinite(s->k->scale[r]))
            refuse(s, XD_EFORMAT, "the scale %s has the number %g", xd_st_name(s->q->files, i),
                   (double)s->k->scale[r]);
}

/* Reads how the weight's rows were rotated, from the keys "convrot" and "convrot_groupsize". */
static void read_rotation(search *s, const xd_json *config, int always)
{
    double group = 256;
    int    rotated = always;
    xd_json_bool(xd_json_get(config, "convrot"), &rotated);
    xd_json_number(xd_json_get(config, "convrot_groupsize"), &group);
    if (!rotated)
        return;
    if (!(group >= 4 && group <= XD_ROTATE_MAX) || !xd_rotates((int64_t)group) ||
        columns_of(s->k) % (int64_t)group) {
        refuse(s, XD_EUNSUPPORTED,
               "the weight %s of %lld columns is rotated in groups of %g, "
               "which must be a power of 4 up to %d that divides the columns",
               s->name, (long long)columns_of(s->k), group, XD_ROTATE_MAX);
        return;
    }
    s->k->rotate = (int64_t)group;
}

static void found_integers(search *s, const xd_json *config, const char *format, int bits)
{
    xd_tensor *t = &s->k->shape;
    if (t->nd != 2 || !xd_is_coded(t->type) || (bits == 8 && t->type != XD_I8)) {
        refuse(s, XD_EFORMAT, "the weight %s has the format %s, but is not a matrix of type I8",
               s->name, format);
        return;
    }
    s->k->four = bits == 4;
    s->k->type = XD_I8;
    *t = xd_view(NULL, bits == 4 ? XD_U8 : XD_I8, 2,
                 (int64_t[]){ t->d[0], t->d[1] * (bits == 4 ? 2 : 1) });
    read_rotation(s, config, bits == 4);
    if (!s->k->why)
        read_scales(s, format);
}

/* Prepares to decode a weight that `xdit convert` has stored as bytes, in blocks of type
 * XD_Q4_0. */
static void found_blocks(search *s, const xd_json *config)
{
    xd_tensor    *t = &s->k->shape;
    const int64_t block = xd_dtype_block(XD_Q4_0), bytes = (int64_t)xd_dtype_block_bytes(XD_Q4_0);
    if (t->nd != 2 || t->type != XD_U8 || t->d[1] % bytes) {
        refuse(s, XD_EFORMAT,
               "the weight %s has the format q4_0, but is not a matrix of blocks "
               "of %lld bytes",
               s->name, (long long)bytes);
        return;
    }
    s->k->four = 1;
    s->k->type = XD_Q4_0;
    *t = xd_view(NULL, XD_U8, 2, (int64_t[]){ t->d[0], t->d[1] / bytes * block });
    read_rotation(s, config, 0);
}

/* Prepares to decode an fp8 weight, whose elements are multiplied by a scale (component.c) and may
 * be stored as bytes. If the weight has one scale per row, treats its elements as codes. */
static void found_fp8(search *s, xd_dtype type)
{
    const int64_t scale = find_beside(s, 0, "weight_scale");
    xd_tensor    *t = &s->k->shape;
    if (type == XD_F8E4M3 && t->nd == 2 && (t->type == type || t->type == XD_U8) && scale >= 0 &&
        xd_count(xd_st_shape(s->q->files, scale)) > 1) {
        t->type = XD_U8;
        s->k->type = type;
        read_scales(s, "float8_e4m3fn");
        return;
    }
    if (s->k->shape.type == XD_U8)
        s->k->shape.type = type;
    else if (s->k->shape.type != XD_F8E4M3 && s->k->shape.type != XD_F8E5M2)
        refuse(s, XD_EFORMAT, "the weight %s has a format of 8-bit floats, but the type %s",
               s->name, xd_st_dtype(s->q->files, s->i));
}

/* Prepares to decode a weight in one of ComfyUI's quantized formats. The weight of a convolution
 * with a kernel of one element is a matrix. */
static void found_format(search *s, const xd_json *config)
{
    while (s->k->shape.nd > 2 && s->k->shape.d[s->k->shape.nd - 1] == 1)
        s->k->shape.nd--;
    const char *format = xd_json_text(xd_json_get(config, "format"));
    if (!format)
        refuse(s, XD_EFORMAT, "the format of the quantized weight %s has no name", s->name);
    else if (find_beside(s, 0, "pre_quant_scale") >= 0)
        refuse(s, XD_EUNSUPPORTED,
               "%.*spre_quant_scale smooths the inputs of the weight %s "
               "(format %.60s), which is not supported",
               s->stem, s->name, s->name, format);
    else if (strcmp(format, "float8_e4m3fn") == 0)
        found_fp8(s, XD_F8E4M3);
    else if (strcmp(format, "float8_e5m2") == 0)
        found_fp8(s, XD_F8E5M2);
    else if (strcmp(format, "int8_tensorwise") == 0)
        found_integers(s, config, format, 8);
    else if (strcmp(format, "q4_0") == 0)
        found_blocks(s, config);
    else if (strcmp(format, "convrot_w4a4") == 0)
        found_integers(s, config, format, 4);
    else
        refuse(s, XD_EUNSUPPORTED, "the weight %s has the format %.60s, which is not supported: %s",
               s->name, format, reads);
}

/* Parses tensor i as JSON text. Returns NULL if the tensor is refused. */
static xd_json *json_of(search *s, int64_t i)
{
    xd_err    e = { 0 };
    xd_tensor t = xd_st_shape(s->q->files, i);
    xd_json  *j = NULL;
    if (t.type != XD_U8)
        refuse(s, XD_EFORMAT,
               "%s, which describes the format of a weight, has the type %s "
               "instead of U8",
               xd_st_name(s->q->files, i), xd_st_dtype(s->q->files, i));
    else if (xd_st_get(s->q->files, i, &t, &e) != XD_OK)
        refuse(s, e.code, "%s", e.msg);
    if (s->k->why)
        return NULL;
    if (xd_json_parse(&j, t.p, (size_t)xd_count(t), xd_st_name(s->q->files, i), &e) != XD_OK)
        refuse(s, e.code, "%s", e.msg);
    xd_st_done(s->q->files, i);
    return j;
}

/* ---- bitsandbytes ------------------------------------------------------------------------- */

/* Reads the tensor NAME.END, which has n elements, as floats into *to. */
static void read_table(search *s, const char *end, int64_t n, float **to)
{
    const int64_t i = find_beside(s, 1, end);
    if (s->k->why)
        return;
    if (i < 0 || xd_st_shape(s->q->files, i).type != XD_F32 ||
        xd_count(xd_st_shape(s->q->files, i)) != n)
        refuse(s, XD_EFORMAT,
               "the weight %s of bitsandbytes has no tensor %s%s of %lld elements "
               "in f32",
               s->name, s->name, end, (long long)n);
    else
        *to = floats_of(s, i);
}

static int64_t whole_number(const xd_json *state, const char *key)
{
    double v = 0;
    xd_json_number(xd_json_get(state, key), &v);
    return v >= 1 && v <= 1e9 ? (int64_t)v : 0;
}

static void read_shape(search *s, const xd_json *state)
{
    const xd_json *shape = xd_json_get(state, "shape");
    double         d[2] = { 0, 0 };
    for (int i = 0; i < 2; i++)
        xd_json_number(xd_json_at(shape, i), &d[i]);
    int64_t n = xd_count(s->k->shape);
    if (xd_json_size(shape) != 2 || !(d[0] >= 1 && d[1] >= 1 && d[0] < 1e9 && d[1] < 1e9) ||
        s->k->shape.type != XD_U8 || ((int64_t)d[0] * (int64_t)d[1] + 1) / 2 != n) {
        refuse(s, XD_EFORMAT,
               "the %lld bytes of the weight %s of bitsandbytes do not match the "
               "shape in its quant_state",
               (long long)n, s->name);
        return;
    }
    s->k->shape = xd_view(NULL, XD_U8, 2, (int64_t[]){ (int64_t)d[0], (int64_t)d[1] });
}

static void read_nested(search *s, const xd_json *state, int64_t blocks)
{
    double offset = 0;
    xd_json_number(xd_json_get(state, "nested_offset"), &offset);
    s->k->offset = (float)offset;
    if (!(s->k->nest = whole_number(state, "nested_blocksize"))) {
        refuse(s, XD_EFORMAT,
               "the scales of the weight %s of bitsandbytes are bytes, but its "
               "quant_state has no nested_blocksize",
               s->name);
        return;
    }
    read_table(s, ".nested_quant_map", TABLE, &s->k->table);
    read_table(s, ".nested_absmax", (blocks + s->k->nest - 1) / s->k->nest, &s->k->nested);
}

static void found_four(search *s, const xd_json *state)
{
    coded *k = s->k;
    float *map = NULL;
    k->four = 1;
    k->block = whole_number(state, "blocksize");
    k->absmax = find_beside(s, 1, ".absmax");
    read_shape(s, state);
    if (k->why)
        return;
    const int64_t blocks = k->block ? (xd_count(k->shape) + k->block - 1) / k->block : 0;
    xd_tensor     a = k->absmax < 0 ? (xd_tensor){ 0 } : xd_st_shape(s->q->files, k->absmax);
    if (!blocks || k->absmax < 0 || xd_count(a) != blocks ||
        (a.type != XD_U8 && a.type != XD_F32)) {
        refuse(s, XD_EFORMAT,
               "the weight %s of bitsandbytes has no tensor %s.absmax of %lld "
               "elements in f32 or bytes",
               s->name, s->name, (long long)blocks);
        return;
    }
    read_table(s, ".quant_map", 16, &map);
    if (map)
        memcpy(k->map, map, sizeof k->map);
    free(map);
    if (a.type == XD_U8)
        read_nested(s, state, blocks);
}

/* ---- all tensors -------------------------------------------------------------------------- */

/* Some quantizers store tensors of codes in place of the weight. A file is refused if the name of
 * one of its tensors ends with one of these suffixes. */
static const char *const codes_of[][2] = {
    { ".qweight", "AWQ or GPTQ" },
    { ".weight._data", "optimum-quanto" },
    { ".weight.tensor_data", "torchao" },
    { ".weight:_data", "torchao" },
};
enum { CODES_OF = sizeof codes_of / sizeof *codes_of };

static const char *const *find_codes(const char *name)
{
    for (int i = 0; i < CODES_OF; i++)
        if (ends_with(name, codes_of[i][0]))
            return codes_of[i];
    return NULL;
}

static void found_packed(search *s, const char *whose)
{
    const int svd = find_beside(s, 0, "wscales") >= 0;
    refuse(s, XD_EUNSUPPORTED, "%s holds codes of %s, which is not supported: %s", s->name,
           svd ? "SVDQuant (nunchaku)" : whose, reads);
}

/* Refuses a weight whose elements have 8 bits or less, in an unknown format. */
static void found_bytes(search *s)
{
    if (find_beside(s, 0, "SCB") >= 0)
        refuse(s, XD_EUNSUPPORTED,
               "the weight %s holds 8-bit integers of bitsandbytes, "
               "which are not supported: %s",
               s->name, reads);
    else
        refuse(s, XD_EUNSUPPORTED,
               "the weight %s has the type %s and an unknown quantization: "
               "use the model's file in fp8, bf16, f16 or f32",
               s->name, xd_st_dtype(s->q->files, s->i));
}

static const xd_json *layer_of(const search *s)
{
    char name[512];
    snprintf(name, sizeof name, "%.*s", s->stem - 1, s->name);
    return xd_json_get(xd_json_get(s->q->meta, "layers"), name);
}

/* Adds a weight to the list if it is quantized. */
static void look_at_weight(search *s)
{
    const int64_t  comfy = find_beside(s, 0, "comfy_quant");
    int64_t        bnb = find_beside(s, 1, ".quant_state.bitsandbytes__nf4");
    const xd_json *layer = layer_of(s);
    xd_dtype       type = s->k->shape.type;
    xd_json       *own = NULL;
    bnb = bnb < 0 ? find_beside(s, 1, ".quant_state.bitsandbytes__fp4") : bnb;
    if (comfy >= 0 || bnb >= 0)
        own = json_of(s, comfy >= 0 ? comfy : bnb);
    if (own && comfy < 0)
        found_four(s, own);
    else if (own || (layer && !s->k->why))
        found_format(s, own ? own : layer);
    else if (!s->k->why && xd_dtype_size(type) == 1 && type != XD_F8E4M3 && type != XD_F8E5M2)
        found_bytes(s);
    else if (!s->k->why && xd_dtype_size(type) == 1 && find_beside(s, 0, "weight_scale_inv") >= 0)
        refuse(s, XD_EUNSUPPORTED,
               "the weight %s is in fp8 with block scales "
               "(weight_scale_inv), which are not supported: %s",
               s->name, reads);
    else if (!s->k->why)
        s->q->n--; /* not quantized: removed from the list */
    xd_json_free(&own);
}

static void look_at(xd_quantized *q, int64_t i)
{
    const char        *name = xd_st_name(q->files, i);
    size_t             len = strlen(name);
    const char *const *packed = find_codes(name);
    if (packed ? xd_svdquant_takes(q->files, i) : !ends_with(name, ".weight"))
        return; /* handled by svdquant.c */
    const int64_t n = q->n;
    coded        *k = &q->list[q->n++];
    search        s = { q, i, name, (int)(len - strlen(packed ? packed[0] : ".weight")) + 1, k };
    *k = (coded){ .shape = xd_st_shape(q->files, i), .absmax = -1 };
    if (packed)
        found_packed(&s, packed[1]);
    else
        look_at_weight(&s);
    q->of[i] = q->n > n ? n + 1 : 0;
}

static int64_t candidates(const xd_st *files)
{
    int64_t n = 0;
    for (int64_t i = 0; i < xd_st_count(files); i++)
        n += strstr(xd_st_name(files, i), "weight") != NULL;
    return n;
}

xd_status xd_quantized_open(xd_quantized **out, xd_st *files, const char *what, xd_err *e)
{
    const char   *meta = xd_st_meta(files, "_quantization_metadata");
    xd_quantized *q = *out = calloc(1, sizeof *q);
    xd_status     s = XD_OK;
    if (q) {
        q->files = files;
        q->what = what;
        q->list = calloc((size_t)candidates(files) + 1, sizeof *q->list);
        q->of = calloc((size_t)xd_st_count(files) + 1, sizeof *q->of);
    }
    if (!q || !q->list || !q->of)
        s = xd_fail(e, XD_ENOMEM, "no memory for the formats of %s", what);
    char name[512];
    snprintf(name, sizeof name, "%s: _quantization_metadata", what);
    if (s == XD_OK && meta)
        s = xd_json_parse(&q->meta, meta, strlen(meta), name, e);
    for (int64_t i = 0; s == XD_OK && i < xd_st_count(files); i++)
        look_at(q, i);
    if (s != XD_OK || !q->n)
        xd_quantized_close(out);
    return s;
}

void xd_quantized_close(xd_quantized **q)
{
    if (!q || !*q)
        return;
    for (int64_t i = 0; i < (*q)->n; i++) {
        free((*q)->list[i].scale);
        free((*q)->list[i].table);
        free((*q)->list[i].nested);
        free((*q)->list[i].why);
    }
    xd_json_free(&(*q)->meta);
    free((*q)->list);
    free((*q)->of);
    free(*q);
    *q = NULL;
}

xd_status xd_quantized_check(const xd_quantized *q, const char *prefix, xd_err *e)
{
    for (int64_t i = 0; q && i < xd_st_count(q->files); i++) {
        const coded *k = coded_of(q, i);
        if (k && k->why && strncmp(xd_st_name(q->files, i), prefix, strlen(prefix)) == 0)
            return xd_fail(e, k->code, "%s: %s", q->what, k->why);
    }
    return XD_OK;
}
