/* dtypes.c - selects the compute type, and the type of the matrices in transformer blocks */
#include <string.h>

#include "pipeline/dtypes.h"
#include "base/log.h"
#include "base/word_list.h"
#include "model/component.h"
#include "pipeline/context.h"

static int is_word(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

/* In the options, replaces aliases of data types by canonical names. */
static xd_open_args replace_aliases(const xd_open_args *a)
{
    xd_open_args o = *a;
    const char **names[] = { &o.dtype, &o.weights_dtype, &o.text_weights_dtype };
    for (int i = 0; i < 3; i++)
        if (*names[i])
            *names[i] = xd_word_dtype(*names[i]);
    return o;
}

/* Returns the requested compute type. If --dtype is not given, a --weights_dtype of f32 or bf16 is
 * also the compute type, because weights that are not quantized have the compute type. */
static const char *wanted_type(const xd_open_args *a)
{
    if (!a->dtype && (is_word(a->weights_dtype, "f32") || is_word(a->weights_dtype, "bf16")))
        return a->weights_dtype;
    return a->dtype;
}

xd_status xd_types_of_device(xd_dev *dev, const xd_open_args *given, xd_dtype *type, xd_err *e)
{
    const xd_open_args a = replace_aliases(given);
    const char        *dtype = wanted_type(&a);
    const int          half = dtype && xd_word_half(dtype);
    if (half && xd_dev_compute(dev, XD_F16) != XD_F16)
        return xd_fail(e, XD_EINVAL,
                       "dtype is \"%s\", which %s does not support: float16 is limited to 65504, "
                       "which these models exceed; use bf16, with the same memory",
                       given->dtype, dev->name);
    if (dtype && !half && !is_word(dtype, "f32") && !is_word(dtype, "bf16"))
        return xd_fail(e, XD_EINVAL, "dtype is \"%s\"; it can be f32 or bf16, on a GPU also f16",
                       dtype);
    xd_dtype want = !dtype                  ? xd_dev_best(dev)
                    : half                  ? XD_F16
                    : is_word(dtype, "f32") ? XD_F32
                                            : XD_BF16;
    *type = xd_dev_compute(dev, want);
    if (*type != want)
        xd_log(XD_LOG_INFO, "bf16 is computed in f32: %s has no faster bf16 arithmetic", dev->name);
    return XD_OK;
}

xd_status xd_types_compute(xd_context *ctx, const xd_open_args *a, xd_err *e)
{
    return xd_types_of_device(ctx->dev, a, &ctx->type, e);
}

/* Returns 1 if the files store some matrix of the component in the quantized type `type`. */
static int stores_codes(const xd_component *p, xd_dtype type)
{
    for (int i = 0; i < p->nlist && p->quantized; i++) {
        char      name[512];
        xd_coding c;
        if (p->list[i].nd == 2 && xd_source_name(&p->w->src, p->list[i].name, name, sizeof name) &&
            p->w->src.codes(p->w->src.self, name, &c) && c.type == type)
            return 1;
    }
    return 0;
}

int xd_types_stores_fp8(const xd_component *p)
{
    for (int i = 0; i < p->nlist && p->files; i++) {
        char      name[512];
        xd_tensor t;
        if (p->list[i].nd == 2 && xd_source_name(&p->w->src, p->list[i].name, name, sizeof name) &&
            p->w->src.has(p->w->src.self, name, &t) && (t.type == XD_F8E4M3 || t.type == XD_F8E5M2))
            return 1;
    }
    return stores_codes(p, XD_F8E4M3);
}

/* Only text encoders that are language models are quantized. CLIP (text and images) and BERT are so
 * small that quantization would save little. */
int xd_types_quantizes(const xd_component *text)
{
    return text->def &&
           (is_word(text->def->name, "t5") || (text->text->hidden && !text->text->vision));
}

/* Returns the type in which the files store block matrices, or F32 if this type is not quantized or
 * the device does not support it. Four-bit types, and e4m3 with a scale per row, are tested before
 * int8, because files with these types store the modulations as integers. */
static xd_dtype stored_type(const xd_dev *dev, const xd_component *p)
{
    return stores_codes(p, XD_Q4_0) && !xd_dev_identity(dev) ? XD_Q4_0
           : stores_codes(p, XD_F8E4M3)                      ? XD_F8E4M3
           : stores_codes(p, XD_I8)                          ? XD_I8
           : xd_types_stores_fp8(p)                          ? XD_F8E4M3
                                                             : XD_F32;
}

/* Reads the value of a flag for a weight type. Sets *type to XD_F32 if the weights have the compute
 * type. */
static xd_status read_type(const xd_dev *dev, const char *flag, const char *text,
                           const xd_component *p, xd_dtype *type, xd_err *e)
{
    *type = XD_F32;
    if (!text || is_word(text, "f32") || is_word(text, "bf16"))
        return XD_OK;
    if (is_word(text, "auto"))
        *type = stored_type(dev, p);
    else if (is_word(text, "int8"))
        *type = XD_I8;
    else if (is_word(text, "fp8"))
        *type = XD_F8E4M3;
    else if (is_word(text, "int4"))
        *type = XD_Q4_0;
    else
        return xd_fail(e, XD_EINVAL, "%s is \"%s\"; it can be one of: f32 bf16 int8 fp8 int4 auto",
                       flag, text);
    return XD_OK;
}

/* Returns which matrices keep the type that they have in the weight file. If no type is requested,
 * matrices of integers and of block types keep their types. If a quantized type is requested, only
 * matrices of integers do. If f32 or bf16 is requested, no matrix does. */
static xd_stays stays_of(const char *text)
{
    return !text || is_word(text, "auto")                  ? XD_STAYS_BLOCKS
           : is_word(text, "f32") || is_word(text, "bf16") ? XD_STAYS_NONE
                                                           : XD_STAYS_INTEGERS;
}

static xd_status check_four(const xd_dev *dev, xd_dtype type, const char *flag, xd_err *e)
{
    if (type != XD_Q4_0 || !xd_dev_identity(dev))
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED,
                   "%s is int4, which only the CPU supports; on %s use int8 or "
                   "fp8",
                   flag, dev->name);
}

static xd_status check_same(const char *flag, const char *text, const char *dtype, xd_err *e)
{
    if ((!is_word(text, "f32") && !is_word(text, "bf16")) || !dtype || is_word(dtype, text))
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "%s is %s but dtype is %s; weights that are not quantized must have the compute "
                   "type",
                   flag, text, dtype);
}

/* Sets the type of the matrices in a transformer's blocks, and which matrices keep the type of the
 * weight file. */
static xd_status set_types(const xd_dev *dev, const char *text, xd_component *p, xd_err *e)
{
    xd_status s = read_type(dev, "weights_dtype", text, p, &p->w->blocks, e);
    p->w->stays = stays_of(text);
    return s == XD_OK ? check_four(dev, p->w->blocks, "weights_dtype", e) : s;
}

xd_status xd_types_component(xd_component *p, const xd_dev *dev, const xd_open_args *given,
                             xd_err *e)
{
    const xd_open_args a = replace_aliases(given);
    xd_status          s = check_same("weights_dtype", a.weights_dtype, wanted_type(&a), e);
    return s == XD_OK ? set_types(dev, a.weights_dtype, p, e) : s;
}

xd_status xd_types_weights(xd_context *ctx, const xd_open_args *given, xd_err *e)
{
    const xd_open_args a = replace_aliases(given);
    const char        *text = a.text_weights_dtype;
    xd_status          s = check_same("weights_dtype", a.weights_dtype, wanted_type(&a), e);
    if (s == XD_OK)
        s = check_same("text_weights_dtype", text, wanted_type(&a), e);
    for (int i = 0; i < xd_model_dits(&ctx->model) && s == XD_OK; i++)
        s = set_types(ctx->dev, a.weights_dtype, xd_model_dit(&ctx->model, i), e);
    for (int k = 0; k < ctx->model.recipe->ntext && s == XD_OK; k++) {
        xd_component *p = &ctx->model.text[k];
        xd_dtype      type;
        s = read_type(ctx->dev, "text_weights_dtype", text, p, &type, e);
        if (s == XD_OK && ctx->model.has_text[k] && xd_types_quantizes(p))
            p->w->blocks = type;
        if (ctx->model.has_text[k])
            p->w->stays = stays_of(text);
        s = s == XD_OK ? check_four(ctx->dev, type, "text_weights_dtype", e) : s;
    }
    return s;
}

const char *xd_types_name(const xd_component *p, xd_dtype compute)
{
    return p->w->blocks == XD_I8       ? "int8"
           : p->w->blocks == XD_F8E4M3 ? "fp8"
           : p->w->blocks == XD_Q4_0   ? "int4"
                                       : xd_dtype_name(compute);
}
