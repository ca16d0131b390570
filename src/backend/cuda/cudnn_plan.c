/* cudnn_plan.c - builds, serializes and runs execution plans for attention and convolutions
 * with cuDNN's backend API */
#include "backend/cuda/cudnn_plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"

/* Ids of the operands in cuDNN's operation graph. ID_PRODUCT and ID_BIASED are the results of the
 * first two of three operations, which have no memory. */
enum { ID_Q = 1, ID_K, ID_V, ID_OUT, ID_SCALE, ID_LSE, ID_QUERIES, ID_KEYS };
enum { ID_IN = 11, ID_WEIGHT, ID_BIAS, ID_RESIDUAL, ID_PRODUCT, ID_BIASED };
enum { MOST_CONFIGS = 8, MOST_OPS = 3 };

/* The state of building an execution plan. After a failed step of building the plan, all further
 * steps are skipped. */
typedef struct maker {
    const xd_cudnn *lib;
    xd_cudnn_plan  *p;
    cudnnStatus_t   status;
} maker;

static cudnnBackendDescriptor_t begin(maker *k, int type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (k->status == XD_DNN_SUCCESS)
        k->status = k->lib->cudnnBackendCreateDescriptor((cudnnBackendDescriptorType_t)type, &d);
    if (d)
        k->p->made[k->p->n++] = d;
    return d;
}

static void set(maker *k, cudnnBackendDescriptor_t d, int name, int type, int64_t n,
                const void *values)
{
    if (k->status == XD_DNN_SUCCESS)
        k->status = k->lib->cudnnBackendSetAttribute(d, (cudnnBackendAttributeName_t)name,
                                                     (cudnnBackendAttributeType_t)type, n, values);
}

static void link_to(maker *k, cudnnBackendDescriptor_t d, int name, cudnnBackendDescriptor_t to)
{
    set(k, d, name, XD_DNN_TYPE_DESCRIPTOR, 1, &to);
}

static void finalize(maker *k, cudnnBackendDescriptor_t d)
{
    if (k->status == XD_DNN_SUCCESS)
        k->status = k->lib->cudnnBackendFinalize(d);
}

/* A tensor of nd dimensions in cuDNN's operation graph. */
typedef struct node {
    int64_t id;
    int     nd, type;
    int64_t dims[5], strides[5];
    int     is_virtual; /* 1: the tensor has no memory */
} node;

static cudnnBackendDescriptor_t make_tensor(maker *k, const node *t)
{
    const int64_t            align = t->type == XD_DNN_F16 || t->type == XD_DNN_BF16 ? 16 : 4;
    const int32_t            data_type = t->type;
    const char               yes = 1;
    cudnnBackendDescriptor_t d = begin(k, XD_DNN_TENSOR);
    set(k, d, XD_DNN_TENSOR_ID, XD_DNN_TYPE_INT64, 1, &t->id);
    set(k, d, XD_DNN_TENSOR_TYPE, XD_DNN_TYPE_DATA_TYPE, 1, &data_type);
    set(k, d, XD_DNN_TENSOR_ALIGNMENT, XD_DNN_TYPE_INT64, 1, &align);
    set(k, d, XD_DNN_TENSOR_DIMENSIONS, XD_DNN_TYPE_INT64, t->nd, t->dims);
    set(k, d, XD_DNN_TENSOR_STRIDES, XD_DNN_TYPE_INT64, t->nd, t->strides);
    if (t->id == ID_SCALE)
        set(k, d, XD_DNN_TENSOR_BY_VALUE, XD_DNN_TYPE_BOOLEAN, 1, &yes);
    if (t->is_virtual)
        set(k, d, XD_DNN_TENSOR_VIRTUAL, XD_DNN_TYPE_BOOLEAN, 1, &yes);
    finalize(k, d);
    return d;
}

static int type_of(int type)
{
    return type == XD_F16 ? XD_DNN_F16 : XD_DNN_BF16;
}

/* ---- attention ---------------------------------------------------------------------------- */

/* Adds an operand, with four dimensions and their strides, to the operation `op`. */
static void add(maker *k, cudnnBackendDescriptor_t op, int name, int64_t id, int type,
                const int64_t dims[4], const int64_t strides[4])
{
    node t = { .id = id, .nd = 4, .type = type };
    memcpy(t.dims, dims, 4 * sizeof *dims);
    memcpy(t.strides, strides, 4 * sizeof *strides);
    link_to(k, op, name, make_tensor(k, &t));
}

/* Adds a tensor of heads as an operand of the operation `op`. Our tensor [B,n,H,D] is described as
 * cuDNN's [B,H,n,D], with any strides. */
static void add_heads(maker *k, cudnnBackendDescriptor_t op, int name, int64_t id,
                      const xd_cudnn_attention *a, int64_t rows, int64_t heads, const int64_t s[3])
{
    const int64_t dims[4] = { a->B, heads, rows, a->D }, strides[4] = { s[0], s[2], s[1], 1 };
    add(k, op, name, id, type_of(a->type), dims, strides);
}

static cudnnBackendDescriptor_t add_attention(maker *k, const xd_cudnn_attention *a)
{
    const int64_t            ones[4] = { 1, 1, 1, 1 }, samples[4] = { a->B, 1, 1, 1 };
    cudnnBackendDescriptor_t op = begin(k, XD_DNN_SDPA);
    add_heads(k, op, XD_DNN_SDPA_Q, ID_Q, a, a->n, a->H, a->q);
    add_heads(k, op, XD_DNN_SDPA_K, ID_K, a, a->m, a->Hk, a->k);
    add_heads(k, op, XD_DNN_SDPA_V, ID_V, a, a->m, a->Hk, a->v);
    add_heads(k, op, XD_DNN_SDPA_OUT, ID_OUT, a, a->n, a->H, a->out);
    add(k, op, XD_DNN_SDPA_SCALE, ID_SCALE, XD_DNN_F32, ones, ones);
    if (a->lse[1]) {
        const int64_t dims[4] = { a->B, a->H, a->n, 1 };
        const int64_t strides[4] = { a->lse[0], a->lse[2], a->lse[1], 1 };
        add(k, op, XD_DNN_SDPA_LSE, ID_LSE, XD_DNN_F32, dims, strides);
    }
    if (a->lengths) {
        add(k, op, XD_DNN_SDPA_QUERIES, ID_QUERIES, XD_DNN_I32, samples, ones);
        add(k, op, XD_DNN_SDPA_KEYS, ID_KEYS, XD_DNN_I32, samples, ones);
    }
    finalize(k, op);
    return op;
}

/* ---- convolutions -------------------------------------------------------------------------- */

/* Describes values of all positions and C channels. cuDNN's dimensions are [t,C,h,w] for images,
 * [1,C,t,h,w] for volumes. */
static node positions(const xd_cudnn_conv *a, int64_t id, const int64_t d[3], const int64_t s[3],
                      int64_t C)
{
    const int three = a->axes == 3;
    node      t = { .id = id, .nd = a->axes + 2, .type = type_of(a->type) };
    t.dims[0] = three ? 1 : d[0], t.strides[0] = three ? d[0] * s[0] : s[0];
    t.dims[1] = C, t.strides[1] = 1;
    for (int i = 0; i < a->axes; i++)
        t.dims[i + 2] = d[i + 3 - a->axes], t.strides[i + 2] = s[i + 3 - a->axes];
    return t;
}

/* Describes the weight, [O,taps,C] in memory. */
static node filters(const xd_cudnn_conv *a)
{
    int64_t step = a->C;
    node    t = { .id = ID_WEIGHT, .nd = a->axes + 2, .type = type_of(a->type) };
    for (int i = a->axes - 1; i >= 0; i--) {
        t.dims[i + 2] = a->kernel[i + 3 - a->axes], t.strides[i + 2] = step;
        step *= t.dims[i + 2];
    }
    t.dims[0] = a->O, t.strides[0] = step;
    t.dims[1] = a->C, t.strides[1] = 1;
    return t;
}

/* Describes the bias, a value per channel. */
static node channels(const xd_cudnn_conv *a)
{
    node t = { .id = ID_BIAS,
               .nd = a->axes + 2,
               .type = a->bias == 1 ? XD_DNN_F32 : type_of(a->type) };
    for (int i = 0; i < t.nd; i++)
        t.dims[i] = 1, t.strides[i] = a->O;
    t.dims[1] = a->O, t.strides[1] = 1;
    return t;
}

/* Describes the sums before the last addition, which stay in registers. */
static node sums(const xd_cudnn_conv *a, int64_t id)
{
    node t = positions(a, id, a->out, a->s_out, a->O);
    t.type = XD_DNN_F32, t.is_virtual = 1;
    return t;
}

/* Returns the descriptor of the window: its size is that of the weight. */
static cudnnBackendDescriptor_t make_window(maker *k, const xd_cudnn_conv *a)
{
    const int32_t            type = XD_DNN_F32, mode = XD_DNN_CROSS_CORRELATION;
    const int64_t            axes = a->axes, ones[3] = { 1, 1, 1 };
    int64_t                  lo[3], hi[3], stride[3];
    cudnnBackendDescriptor_t d = begin(k, XD_DNN_CONV);
    for (int i = 0; i < a->axes; i++) {
        const int j = i + 3 - a->axes;
        lo[i] = a->lo[j], hi[i] = a->hi[j], stride[i] = a->stride[j];
    }
    set(k, d, XD_DNN_CONV_AXES, XD_DNN_TYPE_INT64, 1, &axes);
    set(k, d, XD_DNN_CONV_TYPE, XD_DNN_TYPE_DATA_TYPE, 1, &type);
    set(k, d, XD_DNN_CONV_MODE, XD_DNN_TYPE_CONV_MODE, 1, &mode);
    set(k, d, XD_DNN_CONV_PAD_BEFORE, XD_DNN_TYPE_INT64, axes, lo);
    set(k, d, XD_DNN_CONV_PAD_AFTER, XD_DNN_TYPE_INT64, axes, hi);
    set(k, d, XD_DNN_CONV_DILATIONS, XD_DNN_TYPE_INT64, axes, ones);
    set(k, d, XD_DNN_CONV_STRIDES, XD_DNN_TYPE_INT64, axes, stride);
    finalize(k, d);
    return d;
}

static cudnnBackendDescriptor_t add_product(maker *k, const xd_cudnn_conv *a,
                                            cudnnBackendDescriptor_t y)
{
    const node               x = positions(a, ID_IN, a->in, a->s_in, a->C), w = filters(a);
    const float              one = 1, zero = 0;
    cudnnBackendDescriptor_t window = make_window(k, a), op = begin(k, XD_DNN_CONV_OP);
    link_to(k, op, XD_DNN_CONV_OP_CONV, window);
    link_to(k, op, XD_DNN_CONV_OP_X, make_tensor(k, &x));
    link_to(k, op, XD_DNN_CONV_OP_W, make_tensor(k, &w));
    link_to(k, op, XD_DNN_CONV_OP_Y, y);
    set(k, op, XD_DNN_CONV_OP_ALPHA, XD_DNN_TYPE_FLOAT, 1, &one);
    set(k, op, XD_DNN_CONV_OP_BETA, XD_DNN_TYPE_FLOAT, 1, &zero);
    finalize(k, op);
    return op;
}

/* Adds the operation y = x + b, computed in F32. */
static cudnnBackendDescriptor_t add_sum(maker *k, cudnnBackendDescriptor_t x, const node *b,
                                        cudnnBackendDescriptor_t y)
{
    const int32_t            type = XD_DNN_F32, mode = XD_DNN_ADD;
    cudnnBackendDescriptor_t kind = begin(k, XD_DNN_POINTWISE);
    set(k, kind, XD_DNN_POINTWISE_KIND, XD_DNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(k, kind, XD_DNN_POINTWISE_TYPE, XD_DNN_TYPE_DATA_TYPE, 1, &type);
    finalize(k, kind);
    cudnnBackendDescriptor_t op = begin(k, XD_DNN_POINTWISE_OP);
    link_to(k, op, XD_DNN_POINTWISE_OP_KIND, kind);
    link_to(k, op, XD_DNN_POINTWISE_OP_X, x);
    link_to(k, op, XD_DNN_POINTWISE_OP_B, make_tensor(k, b));
    link_to(k, op, XD_DNN_POINTWISE_OP_Y, y);
    finalize(k, op);
    return op;
}

/* Writes the operations of a convolution to `op`, in their order. Returns their number. */
static int add_conv(maker *k, const xd_cudnn_conv *a, cudnnBackendDescriptor_t op[MOST_OPS])
{
    const node               out = positions(a, ID_OUT, a->out, a->s_out, a->O), bias = channels(a);
    const node               residual = positions(a, ID_RESIDUAL, a->out, a->s_residual, a->O);
    const node               product = sums(a, ID_PRODUCT), biased = sums(a, ID_BIASED);
    int                      n = 0;
    cudnnBackendDescriptor_t last = make_tensor(k, &out), y = last;
    if (a->bias || a->residual)
        y = make_tensor(k, &product);
    op[n++] = add_product(k, a, y);
    if (a->bias) {
        cudnnBackendDescriptor_t x = y;
        y = a->residual ? make_tensor(k, &biased) : last;
        op[n++] = add_sum(k, x, &bias, y);
    }
    if (a->residual)
        op[n++] = add_sum(k, y, &residual, last);
    return n;
}

/* ---- plans -------------------------------------------------------------------------------- */

static xd_status fail_with(const maker *k, xd_status s, const char *what, xd_err *e)
{
    char words[256] = "";
    k->lib->cudnnGetLastErrorString(words, sizeof words);
    return xd_fail(e, s, "cuDNN %s (status %d%s%s)", what, (int)k->status, *words ? ": " : "",
                   words);
}

/* Creates cuDNN's execution plan from an engine configuration or from a serialized text. The
 * execution plan becomes the last entry of p's list of descriptors. */
static void finish_plan(maker *k, cudnnBackendDescriptor_t device, cudnnBackendDescriptor_t config,
                        const char *text)
{
    int64_t                  n = 0;
    cudnnBackendDescriptor_t d = begin(k, XD_DNN_PLAN);
    link_to(k, d, XD_DNN_PLAN_DEVICE, device);
    if (config)
        link_to(k, d, XD_DNN_PLAN_CONFIG, config);
    else
        set(k, d, XD_DNN_PLAN_JSON, XD_DNN_TYPE_CHAR, (int64_t)strlen(text), text);
    finalize(k, d);
    if (k->status == XD_DNN_SUCCESS)
        k->status = k->lib->cudnnBackendGetAttribute(d, XD_DNN_PLAN_WORKSPACE, XD_DNN_TYPE_INT64, 1,
                                                     &n, &k->p->workspace);
}

/* Writes to `config` the engine configurations that cuDNN suggests for an operation graph, best
 * first. Returns the number of configurations. */
static int find_configs(maker *k, cudnnBackendDescriptor_t device, cudnnBackendDescriptor_t graph,
                        cudnnBackendDescriptor_t config[MOST_CONFIGS])
{
    const int32_t            mode = XD_DNN_HEURISTIC;
    int64_t                  n = 0;
    cudnnBackendDescriptor_t d = begin(k, XD_DNN_HEURISTICS);
    link_to(k, d, XD_DNN_HEURISTICS_GRAPH, graph);
    set(k, d, XD_DNN_HEURISTICS_MODE, XD_DNN_TYPE_HEURISTIC, 1, &mode);
    link_to(k, d, XD_DNN_HEURISTICS_DEVICE, device);
    finalize(k, d);
    for (int i = 0; i < MOST_CONFIGS; i++)
        if (!(config[i] = begin(k, XD_DNN_ENGINE_CONFIG)))
            return 0;
    k->status = k->lib->cudnnBackendGetAttribute(d, XD_DNN_HEURISTICS_RESULTS,
                                                 XD_DNN_TYPE_DESCRIPTOR, MOST_CONFIGS, &n, config);
    return k->status == XD_DNN_SUCCESS ? (int)xd_min(n, MOST_CONFIGS) : 0;
}

xd_status xd_cudnn_plan_make(const xd_cudnn *lib, cudnnBackendDescriptor_t device,
                             const xd_cudnn_shape *a, xd_cudnn_plan *p, xd_err *e)
{
    maker                    k = { .lib = lib, .p = p };
    cudnnBackendDescriptor_t op[MOST_OPS], graph, config[MOST_CONFIGS];
    int                      nops = 1;
    *p = (xd_cudnn_plan){ 0 };
    if (a->op == XD_OP_CONV)
        nops = add_conv(&k, &a->of.conv, op);
    else
        op[0] = add_attention(&k, &a->of.attention);
    graph = begin(&k, XD_DNN_GRAPH);
    set(&k, graph, XD_DNN_GRAPH_OPS, XD_DNN_TYPE_DESCRIPTOR, nops, op);
    finalize(&k, graph);
    const int n = find_configs(&k, device, graph, config), before = p->n;
    for (int i = 0; i < n; i++) {
        finish_plan(&k, device, config[i], NULL);
        if (k.status == XD_DNN_SUCCESS)
            return XD_OK;
        if (i + 1 < n && p->n > before) {
            lib->cudnnBackendDestroyDescriptor(p->made[--p->n]);
            k.status = XD_DNN_SUCCESS;
        }
    }
    const xd_status s = fail_with(
        &k, XD_EUNSUPPORTED, n ? "cannot compile this shape" : "does not support this shape", e);
    xd_cudnn_plan_drop(lib, p);
    return s;
}

char *xd_cudnn_plan_text(const xd_cudnn *lib, const xd_cudnn_plan *p)
{
    cudnnBackendDescriptor_t d = p->made[p->n - 1];
    int64_t                  n = 0, got = 0;
    if (lib->cudnnBackendGetAttribute(d, XD_DNN_PLAN_JSON, XD_DNN_TYPE_CHAR, 0, &n, NULL) !=
            XD_DNN_SUCCESS ||
        n < 1)
        return NULL;
    char *text = calloc(1, (size_t)n + 1);
    if (text && (lib->cudnnBackendGetAttribute(d, XD_DNN_PLAN_JSON, XD_DNN_TYPE_CHAR, n, &got,
                                               text) != XD_DNN_SUCCESS ||
                 got > n)) {
        free(text);
        return NULL;
    }
    return text;
}

xd_status xd_cudnn_plan_read(const xd_cudnn *lib, cudnnBackendDescriptor_t device, const char *text,
                             xd_cudnn_plan *p, xd_err *e)
{
    maker k = { .lib = lib, .p = p };
    *p = (xd_cudnn_plan){ 0 };
    finish_plan(&k, device, NULL, text);
    if (k.status == XD_DNN_SUCCESS)
        return XD_OK;
    const xd_status s = fail_with(&k, XD_EFORMAT, "cannot read a kept plan", e);
    xd_cudnn_plan_drop(lib, p);
    return s;
}

cudnnStatus_t xd_cudnn_plan_run(const xd_cudnn *lib, cudnnHandle_t h, const xd_cudnn_plan *p,
                                const xd_cudnn_operands *o, void *workspace)
{
    /* a temporary plan, which owns only the descriptor of the operands' addresses */
    xd_cudnn_plan own = { 0 };
    maker         k = { .lib = lib, .p = &own };
    float         scale = o->scale;
    int64_t       id[8];
    const void   *at[8];
    int           n = 0;
    const struct {
        int64_t     id;
        const void *p;
    } all[] = {
        { ID_Q, o->q },
        { ID_K, o->k },
        { ID_V, o->v },
        { ID_OUT, o->out },
        { ID_SCALE, o->q ? &scale : NULL },
        { ID_LSE, o->lse },
        { ID_QUERIES, o->queries },
        { ID_KEYS, o->keys },
        { ID_IN, o->in },
        { ID_WEIGHT, o->w },
        { ID_BIAS, o->bias },
        { ID_RESIDUAL, o->residual },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].p)
            id[n] = all[i].id, at[n++] = all[i].p;
    cudnnBackendDescriptor_t d = begin(&k, XD_DNN_POINTERS);
    set(&k, d, XD_DNN_POINTERS_IDS, XD_DNN_TYPE_INT64, n, id);
    set(&k, d, XD_DNN_POINTERS_EACH, XD_DNN_TYPE_POINTER, n, at);
    set(&k, d, XD_DNN_POINTERS_WORKSPACE, XD_DNN_TYPE_POINTER, 1, &workspace);
    finalize(&k, d);
    if (k.status == XD_DNN_SUCCESS)
        k.status = lib->cudnnBackendExecute(h, p->made[p->n - 1], d);
    xd_cudnn_plan_drop(lib, &own);
    return k.status;
}

void xd_cudnn_plan_drop(const xd_cudnn *lib, xd_cudnn_plan *p)
{
    while (p->n)
        lib->cudnnBackendDestroyDescriptor(p->made[--p->n]);
}

cudnnBackendDescriptor_t xd_cudnn_device(const xd_cudnn *lib, int id, const char *json)
{
    xd_cudnn_plan            own = { 0 };
    maker                    k = { .lib = lib, .p = &own };
    const int32_t            number = id;
    cudnnBackendDescriptor_t d = begin(&k, XD_DNN_DEVICE);
    if (json)
        set(&k, d, XD_DNN_DEVICE_JSON, XD_DNN_TYPE_CHAR, (int64_t)strlen(json), json);
    else
        set(&k, d, XD_DNN_DEVICE_ID, XD_DNN_TYPE_INT32, 1, &number);
    finalize(&k, d);
    if (k.status == XD_DNN_SUCCESS)
        return d;
    xd_cudnn_plan_drop(lib, &own);
    return NULL;
}
