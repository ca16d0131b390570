/* cudnn.cc - a stand-in for libcudnn.so.9: the backend API's single operation of attention, and
 * convolutions with the additions behind them, run on the simulated GPU
 *
 * It takes what 9.19 takes for an H100 (check_plans.py asks the real one), and less: 16-bit heads
 * of a multiple of 8 elements, at most 256 (128 before Hopper), contiguous, at multiples of 16
 * bytes; numbers of queries and of keys together or not at all. Convolutions have channels last, of
 * a multiple of 8, and a result of exactly the size that the padded image gives; a bias of a value
 * per channel, then a residual, are added in f32. An attribute that is set twice,
 * behind its end or with another type than its own is refused. The text of a plan is that of its
 * shape. */
#include "backend/cuda/cudnn.h"
#include "backend/cuda/kernels/gpu.cuh"
#include "tests/sim/more.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
API CUresult simgpu_enqueue(CUstream s, std::function<void()> *fn);
API int simgpu_on_device(const void *p, size_t n);

enum { VERSION = 91900, WORKSPACE = 256 };

struct tensor {
    int64_t id = 0, align = 0, d[5] = { 0 }, s[5] = { 0 };
    int32_t type = -1;
    int by_value = 0, is_virtual = 0, nd = 4;
};
/* Everything that a plan needs to know. */
struct sdpa {
    tensor q, k, v, out, scale, lse, queries, keys;
};
struct window {
    int64_t axes = 0, lo[3] = { 0 }, hi[3] = { 0 }, stride[3] = { 0 };
};
struct conv {
    tensor x, w, y, bias, residual;
    window at;
};
/* What a plan computes: attention, if there are queries. */
struct work {
    sdpa a;
    conv c;
};
struct desc {
    int type, finished = 0;
    std::map<int, std::vector<char>> at;
    tensor t;
    work a;
    desc *from(int name, size_t n = 0) const
    {
        desc *x = nullptr;
        auto i = at.find(name);
        if (i != at.end() && i->second.size() >= (n + 1) * sizeof x)
            memcpy(&x, i->second.data() + n * sizeof x, sizeof x);
        return x;
    }
    /* As many numbers as there are axes. */
    int list(int name, int64_t n, int64_t *to) const
    {
        auto i = at.find(name);
        if (i == at.end() || i->second.size() != (size_t)n * sizeof *to)
            return 0;
        memcpy(to, i->second.data(), i->second.size());
        return 1;
    }
    int64_t number(int name, int64_t otherwise = 0) const
    {
        auto i = at.find(name);
        if (i == at.end())
            return otherwise;
        int64_t v = 0;
        memcpy(&v, i->second.data(), i->second.size() < 8 ? i->second.size() : 8);
        return v;
    }
};
static thread_local std::string last_error;

static cudnnStatus_t refuse(cudnnStatus_t s, const char *why)
{
    last_error = why;
    return s;
}

API size_t cudnnGetVersion() { return VERSION; }
API void cudnnGetLastErrorString(char *text, size_t size)
{
    snprintf(text, size, "%s", last_error.c_str());
}
struct cudnnContext {
    CUstream stream;
};
API cudnnStatus_t cudnnCreate(cudnnHandle_t *h)
{
    *h = new cudnnContext { nullptr };
    return XD_DNN_SUCCESS;
}
API cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
    delete h;
    return XD_DNN_SUCCESS;
}
API cudnnStatus_t cudnnSetStream(cudnnHandle_t h, CUstream s)
{
    h->stream = s;
    return XD_DNN_SUCCESS;
}
API cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t t,
                                               cudnnBackendDescriptor_t *d)
{
    desc *x = new desc;
    x->type = t;
    *d = x;
    return XD_DNN_SUCCESS;
}
API cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    delete (desc *)d;
    return XD_DNN_SUCCESS;
}

/* The kind of descriptor and the type that an attribute has. */
static const struct row { int name, of, type, size; } rows[] = {
    { XD_DNN_HEURISTICS_MODE, XD_DNN_HEURISTICS, XD_DNN_TYPE_HEURISTIC, 4 },
    { XD_DNN_HEURISTICS_GRAPH, XD_DNN_HEURISTICS, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_HEURISTICS_DEVICE, XD_DNN_HEURISTICS, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_PLAN_CONFIG, XD_DNN_PLAN, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_PLAN_JSON, XD_DNN_PLAN, XD_DNN_TYPE_CHAR, 1 },
    { XD_DNN_PLAN_DEVICE, XD_DNN_PLAN, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_GRAPH_OPS, XD_DNN_GRAPH, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_TENSOR_ALIGNMENT, XD_DNN_TENSOR, XD_DNN_TYPE_INT64, 8 },
    { XD_DNN_TENSOR_TYPE, XD_DNN_TENSOR, XD_DNN_TYPE_DATA_TYPE, 4 },
    { XD_DNN_TENSOR_DIMENSIONS, XD_DNN_TENSOR, XD_DNN_TYPE_INT64, 8 },
    { XD_DNN_TENSOR_STRIDES, XD_DNN_TENSOR, XD_DNN_TYPE_INT64, 8 },
    { XD_DNN_TENSOR_ID, XD_DNN_TENSOR, XD_DNN_TYPE_INT64, 8 },
    { XD_DNN_TENSOR_BY_VALUE, XD_DNN_TENSOR, XD_DNN_TYPE_BOOLEAN, 1 },
    { XD_DNN_TENSOR_VIRTUAL, XD_DNN_TENSOR, XD_DNN_TYPE_BOOLEAN, 1 },
    { XD_DNN_POINTWISE_KIND, XD_DNN_POINTWISE, XD_DNN_TYPE_POINTWISE_MODE, 4 },
    { XD_DNN_POINTWISE_TYPE, XD_DNN_POINTWISE, XD_DNN_TYPE_DATA_TYPE, 4 },
    { XD_DNN_POINTWISE_OP_KIND, XD_DNN_POINTWISE_OP, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_POINTWISE_OP_X, XD_DNN_POINTWISE_OP, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_POINTWISE_OP_B, XD_DNN_POINTWISE_OP, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_POINTWISE_OP_Y, XD_DNN_POINTWISE_OP, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_CONV_TYPE, XD_DNN_CONV, XD_DNN_TYPE_DATA_TYPE, 4 },
    { XD_DNN_CONV_MODE, XD_DNN_CONV, XD_DNN_TYPE_CONV_MODE, 4 },
    { XD_DNN_CONV_DILATIONS, XD_DNN_CONV, XD_DNN_TYPE_INT64, 8 },
    { XD_DNN_CONV_STRIDES, XD_DNN_CONV, XD_DNN_TYPE_INT64, 8 },
    { XD_DNN_CONV_PAD_AFTER, XD_DNN_CONV, XD_DNN_TYPE_INT64, 8 },
    { XD_DNN_CONV_PAD_BEFORE, XD_DNN_CONV, XD_DNN_TYPE_INT64, 8 },
    { XD_DNN_CONV_AXES, XD_DNN_CONV, XD_DNN_TYPE_INT64, 8 },
    { XD_DNN_CONV_OP_ALPHA, XD_DNN_CONV_OP, XD_DNN_TYPE_FLOAT, 4 },
    { XD_DNN_CONV_OP_BETA, XD_DNN_CONV_OP, XD_DNN_TYPE_FLOAT, 4 },
    { XD_DNN_CONV_OP_CONV, XD_DNN_CONV_OP, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_CONV_OP_W, XD_DNN_CONV_OP, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_CONV_OP_X, XD_DNN_CONV_OP, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_CONV_OP_Y, XD_DNN_CONV_OP, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_POINTERS_IDS, XD_DNN_POINTERS, XD_DNN_TYPE_INT64, 8 },
    { XD_DNN_POINTERS_EACH, XD_DNN_POINTERS, XD_DNN_TYPE_POINTER, 8 },
    { XD_DNN_POINTERS_WORKSPACE, XD_DNN_POINTERS, XD_DNN_TYPE_POINTER, 8 },
    { XD_DNN_DEVICE_ID, XD_DNN_DEVICE, XD_DNN_TYPE_INT32, 4 },
    { XD_DNN_SDPA_Q, XD_DNN_SDPA, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_SDPA_K, XD_DNN_SDPA, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_SDPA_V, XD_DNN_SDPA, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_SDPA_OUT, XD_DNN_SDPA, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_SDPA_LSE, XD_DNN_SDPA, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_SDPA_SCALE, XD_DNN_SDPA, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_SDPA_QUERIES, XD_DNN_SDPA, XD_DNN_TYPE_DESCRIPTOR, 8 },
    { XD_DNN_SDPA_KEYS, XD_DNN_SDPA, XD_DNN_TYPE_DESCRIPTOR, 8 },
};
API cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d,
                                           cudnnBackendAttributeName_t name,
                                           cudnnBackendAttributeType_t type, int64_t n,
                                           const void *values)
{
    desc *x = (desc *)d;
    if (x->finished || x->at.count(name) || n < 1 || !values)
        return refuse(XD_DNN_BAD_PARAM, "an attribute is set twice, or too late, or has no value");
    for (const row &r : rows)
        if (r.name == name && r.of == x->type && r.type == type) {
            const char *v = (const char *)values;
            if (type == XD_DNN_TYPE_DESCRIPTOR && !(*(desc **)values)->finished &&
                name != XD_DNN_PLAN_CONFIG)
                return refuse(XD_DNN_BAD_PARAM, "a descriptor is not finished");
            x->at[name].assign(v, v + n * r.size);
            return XD_DNN_SUCCESS;
        }
    return refuse(XD_DNN_NOT_SUPPORTED, "this descriptor has no such attribute");
}

/* ---- what is taken ------------------------------------------------------------------------ */

static int capability()
{
    const char *s = getenv("XDIT_SIM_CAPABILITY");
    return s ? atoi(s) : 90;
}

static cudnnStatus_t finish_tensor(desc *x)
{
    tensor &t = x->t;
    t.nd = (int)(x->at[XD_DNN_TENSOR_DIMENSIONS].size() / sizeof *t.d);
    if (t.nd < 4 || t.nd > 5 || !x->list(XD_DNN_TENSOR_DIMENSIONS, t.nd, t.d) ||
        !x->list(XD_DNN_TENSOR_STRIDES, t.nd, t.s) || !x->at.count(XD_DNN_TENSOR_TYPE))
        return refuse(XD_DNN_BAD_PARAM, "a tensor has dimensions, as many strides and a type");
    t.id = x->number(XD_DNN_TENSOR_ID), t.align = x->number(XD_DNN_TENSOR_ALIGNMENT);
    t.type = (int32_t)x->number(XD_DNN_TENSOR_TYPE);
    t.by_value = (int)x->number(XD_DNN_TENSOR_BY_VALUE);
    t.is_virtual = (int)x->number(XD_DNN_TENSOR_VIRTUAL);
    for (int i = 0; i < t.nd; i++)
        if (t.d[i] < 1 || t.s[i] < 1)
            return refuse(XD_DNN_BAD_PARAM, "a dimension or a stride is below 1");
    return t.id && t.align ? XD_DNN_SUCCESS
                           : refuse(XD_DNN_BAD_PARAM, "a tensor has no id or no alignment");
}

static int is(const tensor &t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return t.d[0] == a && t.d[1] == b && t.d[2] == c && t.d[3] == d;
}

static int heads_fit(const tensor &t, int type)
{
    return t.type == type && t.align == 16 && t.s[3] == 1 && t.s[0] % 8 == 0 && t.s[1] % 8 == 0 &&
           t.s[2] % 8 == 0 && !t.by_value;
}

static cudnnStatus_t check(const sdpa &a)
{
    const int64_t B = a.q.d[0], H = a.q.d[1], n = a.q.d[2], D = a.q.d[3];
    const int64_t Hk = a.k.d[1], m = a.k.d[2];
    const int type = a.q.type;
    if (capability() < 80 || (type != XD_DNN_BF16 && type != XD_DNN_F16))
        return refuse(XD_DNN_NOT_SUPPORTED, "no engine for this GPU or type");
    if (D % 8 || D > (capability() < 90 ? 128 : 256) || !Hk || H % Hk)
        return refuse(XD_DNN_NOT_SUPPORTED, "no engine for heads of this size or number");
    for (const tensor *t : { &a.q, &a.k, &a.v, &a.out })
        if (!heads_fit(*t, type))
            return refuse(XD_DNN_NOT_SUPPORTED, "no engine for this layout");
    if (!is(a.k, B, Hk, m, D) || !is(a.v, B, Hk, m, D) || !is(a.out, B, H, n, D))
        return refuse(XD_DNN_BAD_PARAM, "queries, keys, values and results do not match");
    if (!is(a.scale, 1, 1, 1, 1) || a.scale.type != XD_DNN_F32 || !a.scale.by_value)
        return refuse(XD_DNN_BAD_PARAM, "the scale is no f32 by value");
    if (a.lse.id && (!is(a.lse, B, H, n, 1) || a.lse.type != XD_DNN_F32))
        return refuse(XD_DNN_BAD_PARAM, "statistics are not [B,H,n,1] of f32");
    if (!a.queries.id != !a.keys.id)
        return refuse(XD_DNN_BAD_PARAM, "one of two lengths is given");
    for (const tensor *t : { &a.queries, &a.keys })
        if (t->id && (!is(*t, B, 1, 1, 1) || t->type != XD_DNN_I32))
            return refuse(XD_DNN_BAD_PARAM, "lengths are not [B,1,1,1] of int32");
    return XD_DNN_SUCCESS;
}

static cudnnStatus_t finish_sdpa(desc *x)
{
    const struct { int name, must; tensor *to; } each[] = {
        { XD_DNN_SDPA_Q, 1, &x->a.a.q }, { XD_DNN_SDPA_K, 1, &x->a.a.k },
        { XD_DNN_SDPA_V, 1, &x->a.a.v }, { XD_DNN_SDPA_OUT, 1, &x->a.a.out },
        { XD_DNN_SDPA_SCALE, 1, &x->a.a.scale }, { XD_DNN_SDPA_LSE, 0, &x->a.a.lse },
        { XD_DNN_SDPA_QUERIES, 0, &x->a.a.queries }, { XD_DNN_SDPA_KEYS, 0, &x->a.a.keys },
    };
    for (auto &e : each) {
        desc *t = x->from(e.name);
        if (!t && e.must)
            return refuse(XD_DNN_BAD_PARAM, "an operand is missing");
        if (t)
            *e.to = t->t;
    }
    return XD_DNN_SUCCESS;
}

/* ---- convolutions ------------------------------------------------------------------------- */

static cudnnStatus_t finish_window(desc *x)
{
    window &w = x->a.c.at;
    int64_t ones[3] = { 0 };
    w.axes = x->number(XD_DNN_CONV_AXES);
    if (w.axes < 2 || w.axes > 3 || !x->list(XD_DNN_CONV_PAD_BEFORE, w.axes, w.lo) ||
        !x->list(XD_DNN_CONV_PAD_AFTER, w.axes, w.hi) ||
        !x->list(XD_DNN_CONV_STRIDES, w.axes, w.stride) ||
        !x->list(XD_DNN_CONV_DILATIONS, w.axes, ones))
        return refuse(XD_DNN_BAD_PARAM, "a window has two or three axes, and a number for each");
    for (int i = 0; i < w.axes; i++)
        if (w.lo[i] < 0 || w.hi[i] < 0 || w.stride[i] < 1 || ones[i] != 1)
            return refuse(XD_DNN_BAD_PARAM, "a padding, a stride or a dilation is wrong");
    return x->number(XD_DNN_CONV_TYPE, -1) == XD_DNN_F32 &&
                   x->number(XD_DNN_CONV_MODE, -1) == XD_DNN_CROSS_CORRELATION
               ? XD_DNN_SUCCESS
               : refuse(XD_DNN_NOT_SUPPORTED, "no engine for this mode or type of sums");
}

static cudnnStatus_t finish_conv(desc *x)
{
    const desc *at = x->from(XD_DNN_CONV_OP_CONV), *in = x->from(XD_DNN_CONV_OP_X);
    const desc *w = x->from(XD_DNN_CONV_OP_W), *y = x->from(XD_DNN_CONV_OP_Y);
    const int32_t one = 0x3f800000; /* the bits of 1.0f */
    if (!at || !in || !w || !y || x->number(XD_DNN_CONV_OP_ALPHA) != one ||
        x->number(XD_DNN_CONV_OP_BETA, -1) != 0)
        return refuse(XD_DNN_BAD_PARAM, "an operand is missing, or a factor is no 1 or 0");
    x->a.c.at = at->a.c.at, x->a.c.x = in->t, x->a.c.w = w->t, x->a.c.y = y->t;
    return XD_DNN_SUCCESS;
}

static int same_dims(const tensor &a, const tensor &b)
{
    return a.nd == b.nd && memcmp(a.d, b.d, sizeof a.d) == 0;
}

/* Adds the sum `op` behind the convolution c: of its bias, then of its residual. */
static cudnnStatus_t add_sum(const desc *op, conv *c)
{
    const desc *kind = op->from(XD_DNN_POINTWISE_OP_KIND), *x = op->from(XD_DNN_POINTWISE_OP_X);
    const desc *b = op->from(XD_DNN_POINTWISE_OP_B), *y = op->from(XD_DNN_POINTWISE_OP_Y);
    if (op->type != XD_DNN_POINTWISE_OP || !kind || !x || !b || !y ||
        kind->number(XD_DNN_POINTWISE_KIND, -1) != XD_DNN_ADD ||
        kind->number(XD_DNN_POINTWISE_TYPE, -1) != XD_DNN_F32)
        return refuse(XD_DNN_NOT_SUPPORTED, "no engine for this operation behind a convolution");
    if (x->t.id != c->y.id || !c->y.is_virtual || c->y.type != XD_DNN_F32 || b->t.is_virtual)
        return refuse(XD_DNN_BAD_PARAM, "a sum is not of what was computed before");
    tensor &to = b->t.d[0] == y->t.d[0] && same_dims(b->t, y->t) ? c->residual : c->bias;
    if (to.id || (&to == &c->bias && c->residual.id))
        return refuse(XD_DNN_NOT_SUPPORTED, "no engine for this order of sums");
    to = b->t;
    if (!same_dims(c->y, y->t))
        return refuse(XD_DNN_BAD_PARAM, "a sum has another size");
    c->y = y->t;
    return XD_DNN_SUCCESS;
}

static int channels_last(const tensor &t, int type)
{
    int fits = t.type == type && t.align == 16 && t.s[1] == 1 && t.d[1] % 8 == 0 && !t.is_virtual;
    for (int i = 0; i < t.nd; i++)
        fits = fits && (i == 1 || t.s[i] % 8 == 0);
    return fits;
}

static cudnnStatus_t check(const conv &c)
{
    const int type = c.x.type, nd = (int)c.at.axes + 2;
    if (capability() < 80 || (type != XD_DNN_BF16 && type != XD_DNN_F16))
        return refuse(XD_DNN_NOT_SUPPORTED, "no engine for this GPU or type");
    if (c.x.nd != nd || c.w.nd != nd || c.y.nd != nd || c.w.d[1] != c.x.d[1] ||
        c.y.d[1] != c.w.d[0] || c.y.d[0] != c.x.d[0])
        return refuse(XD_DNN_BAD_PARAM, "images and weights do not match");
    if (!channels_last(c.x, type) || !channels_last(c.w, type) || !channels_last(c.y, type) ||
        (c.residual.id && !channels_last(c.residual, type)))
        return refuse(XD_DNN_NOT_SUPPORTED, "no engine for this layout");
    for (int i = 0; i < c.at.axes; i++) {
        const int64_t all = c.x.d[i + 2] + c.at.lo[i] + c.at.hi[i] - c.w.d[i + 2];
        if (all < 0 || c.y.d[i + 2] != all / c.at.stride[i] + 1)
            return refuse(XD_DNN_BAD_PARAM, "the result has another size");
    }
    int64_t dense = c.x.d[1];
    for (int i = nd - 1; i >= 2; dense *= c.w.d[i--])
        if (c.w.s[i] != dense)
            return refuse(XD_DNN_NOT_SUPPORTED, "no engine for this layout of weights");
    if (c.bias.id && (c.bias.d[1] != c.y.d[1] || c.bias.s[1] != 1 ||
                      (c.bias.type != XD_DNN_F32 && c.bias.type != type)))
        return refuse(XD_DNN_NOT_SUPPORTED, "no engine for this bias");
    return XD_DNN_SUCCESS;
}

static cudnnStatus_t check(const work &a)
{
    return a.a.q.id ? check(a.a) : check(a.c);
}

/* A graph has one operation of attention, or a convolution and up to two sums. */
static cudnnStatus_t finish_graph(desc *x)
{
    const desc *first = x->from(XD_DNN_GRAPH_OPS);
    if (!first)
        return refuse(XD_DNN_BAD_PARAM, "a graph has no operation");
    x->a = first->a;
    for (size_t i = 1; x->from(XD_DNN_GRAPH_OPS, i); i++) {
        const cudnnStatus_t r = first->type != XD_DNN_CONV_OP
                                    ? refuse(XD_DNN_NOT_SUPPORTED, "no engine for this graph")
                                    : add_sum(x->from(XD_DNN_GRAPH_OPS, i), &x->a.c);
        if (r != XD_DNN_SUCCESS)
            return r;
    }
    return XD_DNN_SUCCESS;
}

static std::string text_of(const work &a)
{
    char head[64];
    snprintf(head, sizeof head, "{\"cudnnVersion\":%d,\"sdpa\":\"", (int)VERSION);
    std::string s = head;
    const unsigned char *p = (const unsigned char *)&a;
    for (size_t i = 0; i < sizeof a; i++) {
        snprintf(head, sizeof head, "%02x", p[i]);
        s += head;
    }
    return s + "\"}";
}

static cudnnStatus_t read_text(const std::string &s, work *a)
{
    size_t at = s.find("\"sdpa\":\"");
    char head[64];
    snprintf(head, sizeof head, "{\"cudnnVersion\":%d,", (int)VERSION);
    if (s.compare(0, strlen(head), head) != 0 || at == std::string::npos ||
        s.size() != at + 8 + 2 * sizeof *a + 2)
        return refuse(XD_DNN_BAD_PARAM, "a plan of another version");
    for (size_t i = 0; i < sizeof *a; i++)
        ((unsigned char *)a)[i] = (unsigned char)strtol(s.substr(at + 8 + 2 * i, 2).c_str(),
                                                        nullptr, 16);
    return XD_DNN_SUCCESS;
}

static cudnnStatus_t finish_plan(desc *x)
{
    desc *config = x->from(XD_DNN_PLAN_CONFIG);
    if (!x->from(XD_DNN_PLAN_DEVICE))
        return refuse(XD_DNN_BAD_PARAM, "a plan has no device");
    if (config) {
        x->a = config->a;
        return XD_DNN_SUCCESS;
    }
    const std::vector<char> &s = x->at[XD_DNN_PLAN_JSON];
    return read_text(std::string(s.begin(), s.end()), &x->a);
}

API cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
    desc *x = (desc *)d;
    cudnnStatus_t r = XD_DNN_SUCCESS;
    if (x->finished)
        return refuse(XD_DNN_BAD_PARAM, "a descriptor is finished twice");
    if (x->type == XD_DNN_TENSOR)
        r = finish_tensor(x);
    else if (x->type == XD_DNN_SDPA)
        r = finish_sdpa(x);
    else if (x->type == XD_DNN_CONV)
        r = finish_window(x);
    else if (x->type == XD_DNN_CONV_OP)
        r = finish_conv(x);
    else if (x->type == XD_DNN_GRAPH)
        r = finish_graph(x);
    else if (x->type == XD_DNN_HEURISTICS)
        r = x->from(XD_DNN_HEURISTICS_GRAPH) && x->from(XD_DNN_HEURISTICS_DEVICE) &&
                    x->number(XD_DNN_HEURISTICS_MODE, -1) == XD_DNN_HEURISTIC
                ? XD_DNN_SUCCESS
                : XD_DNN_BAD_PARAM;
    else if (x->type == XD_DNN_PLAN)
        r = finish_plan(x);
    else if (x->type == XD_DNN_POINTERS)
        r = x->at[XD_DNN_POINTERS_IDS].size() == x->at[XD_DNN_POINTERS_EACH].size()
                ? XD_DNN_SUCCESS
                : XD_DNN_BAD_PARAM;
    x->finished = r == XD_DNN_SUCCESS;
    return r;
}

API cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d,
                                           cudnnBackendAttributeName_t name,
                                           cudnnBackendAttributeType_t type, int64_t most,
                                           int64_t *n, void *values)
{
    desc *x = (desc *)d;
    if (!x->finished)
        return refuse(XD_DNN_BAD_PARAM, "the descriptor is not finished");
    if (name == XD_DNN_PLAN_WORKSPACE && type == XD_DNN_TYPE_INT64 && most == 1) {
        *n = 1, *(int64_t *)values = WORKSPACE;
        return XD_DNN_SUCCESS;
    }
    if (name == XD_DNN_PLAN_JSON && type == XD_DNN_TYPE_CHAR) {
        std::string s = text_of(x->a);
        *n = (int64_t)s.size();
        if (values)
            memcpy(values, s.data(), s.size() < (size_t)most ? s.size() : (size_t)most);
        return XD_DNN_SUCCESS;
    }
    if (name != XD_DNN_HEURISTICS_RESULTS || type != XD_DNN_TYPE_DESCRIPTOR || most < 1)
        return refuse(XD_DNN_NOT_SUPPORTED, "this descriptor has no such attribute");
    const work &a = x->from(XD_DNN_HEURISTICS_GRAPH)->a;
    *n = check(a) == XD_DNN_SUCCESS;
    if (*n)
        (*(desc **)values)->a = a;
    return XD_DNN_SUCCESS;
}

/* ---- running ------------------------------------------------------------------------------ */

struct call {
    sdpa a;
    const char *q, *k, *v;
    char *out, *work;
    float *lse, scale;
    const int32_t *queries, *keys;
};

static float number(const char *p, int64_t i, int type)
{
    uint16_t u = ((const uint16_t *)(const void *)p)[i];
    return type == XD_DNN_F16 ? gpu_from_f16(u) : gpu_from_bf16((bf16)u);
}

/* m rows of head h of sample b as floats. */
static std::vector<float> rows_of(const tensor &t, const char *p, int64_t b, int64_t h, int64_t m)
{
    std::vector<float> v;
    for (int64_t j = 0; j < m; j++)
        for (int64_t d = 0; d < t.d[3]; d++)
            v.push_back(number(p, b * t.s[0] + h * t.s[1] + j * t.s[2] + d, t.type));
    return v;
}

static float dot(const float *a, const float *b, int64_t n)
{
    float s[8] = { 0 };
    for (int64_t d = 0; d < n; d += 8)
        for (int i = 0; i < 8; i++)
            s[i] += a[d + i] * b[d + i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

static void row(const call &x, int64_t b, int64_t h, int64_t i, const float *q, const float *k,
                const float *v, int64_t m)
{
    const sdpa &a = x.a;
    const int64_t D = a.q.d[3];
    std::vector<float> s((size_t)m), sum((size_t)D);
    float top = -INFINITY, total = 0;
    for (int64_t j = 0; j < m; j++) {
        s[(size_t)j] = dot(q, k + j * D, D) * x.scale;
        top = fmaxf(top, s[(size_t)j]);
    }
    for (int64_t j = 0; j < m; j++) {
        const float w = expf(s[(size_t)j] - top);
        total += w;
        for (int64_t d = 0; d < D; d++)
            sum[(size_t)d] += w * v[j * D + d];
    }
    for (int64_t d = 0; d < D; d++) {
        const int64_t at = b * a.out.s[0] + h * a.out.s[1] + i * a.out.s[2] + d;
        const float r = sum[(size_t)d] / total;
        ((uint16_t *)(void *)x.out)[at] = a.q.type == XD_DNN_F16 ? gpu_to_f16(r)
                                                                 : (uint16_t)gpu_to_bf16(r);
    }
    if (x.lse)
        x.lse[b * a.lse.s[0] + h * a.lse.s[1] + i * a.lse.s[2]] = top + logf(total);
}

static void attend(const call &x)
{
    const sdpa &a = x.a;
    memset(x.work, 0xff, WORKSPACE);
    for (int64_t b = 0; b < a.q.d[0]; b++)
        for (int64_t h = 0; h < a.q.d[1]; h++) {
            const int64_t n = x.queries ? x.queries[b] : a.q.d[2];
            const int64_t m = x.keys ? x.keys[b] : a.k.d[2], hk = h * a.k.d[1] / a.q.d[1];
            const std::vector<float> q = rows_of(a.q, x.q, b, h, n);
            const std::vector<float> k = rows_of(a.k, x.k, b, hk, m);
            const std::vector<float> v = rows_of(a.v, x.v, b, hk, m);
            for (int64_t i = 0; i < n; i++)
                row(x, b, h, i, &q[(size_t)(i * a.q.d[3])], k.data(), v.data(), m);
        }
}

/* A convolution, and the addresses of its operands. */
struct image_call {
    conv c;
    const char *x, *w, *bias, *residual;
    char *y, *work;
};

static int64_t place_of(const tensor &t, int64_t n, const int64_t *at)
{
    int64_t i = n * t.s[0];
    for (int k = 2; k < t.nd; k++)
        i += at[k - 2] * t.s[k];
    return i;
}

/* Adds the products of one tap to the sums of one position. */
static void add_tap(const conv &c, const float *x, const float *w, int64_t taps, float *sum)
{
    for (int64_t o = 0; o < c.y.d[1]; o++) {
        float s[8] = { 0 };
        for (int64_t k = 0; k < c.x.d[1]; k += 8)
            for (int i = 0; i < 8; i++)
                s[i] += x[k + i] * w[o * taps * c.x.d[1] + k + i];
        sum[o] += ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    }
}

static void position(const image_call &a, const std::vector<float> &w, int64_t n, const int64_t *y)
{
    const conv &c = a.c;
    const int64_t O = c.y.d[1], C = c.x.d[1], axes = c.at.axes;
    int64_t taps = 1;
    std::vector<float> sum((size_t)O), x((size_t)C);
    for (int i = 0; i < axes; i++)
        taps *= c.w.d[i + 2];
    for (int64_t t = 0; t < taps; t++) {
        int64_t at[3], rest = t;
        int inside = 1;
        for (int64_t i = axes - 1; i >= 0; i--) {
            at[i] = y[i] * c.at.stride[i] - c.at.lo[i] + rest % c.w.d[i + 2];
            rest /= c.w.d[i + 2];
            inside = inside && at[i] >= 0 && at[i] < c.x.d[i + 2];
        }
        if (!inside)
            continue;
        const int64_t from = place_of(c.x, n, at);
        for (int64_t k = 0; k < C; k++)
            x[(size_t)k] = number(a.x, from + k, c.x.type);
        add_tap(c, x.data(), &w[(size_t)(t * C)], taps, sum.data());
    }
    for (int64_t o = 0; o < O; o++) {
        float v = sum[(size_t)o];
        if (a.bias)
            v += c.bias.type == XD_DNN_F32 ? ((const float *)(const void *)a.bias)[o]
                                           : number(a.bias, o, c.bias.type);
        if (a.residual)
            v += number(a.residual, place_of(c.residual, n, y) + o, c.residual.type);
        ((uint16_t *)(void *)a.y)[place_of(c.y, n, y) + o] =
            c.y.type == XD_DNN_F16 ? gpu_to_f16(v) : (uint16_t)gpu_to_bf16(v);
    }
}

static void convolve(const image_call &a)
{
    const conv &c = a.c;
    std::vector<float> w;
    int64_t count = c.w.d[1] * c.w.d[0], all = 1;
    memset(a.work, 0xff, WORKSPACE);
    for (int i = 2; i < c.w.nd; i++)
        count *= c.w.d[i], all *= c.y.d[i];
    for (int64_t i = 0; i < count; i++)
        w.push_back(number(a.w, i, c.w.type));
    for (int64_t n = 0; n < c.y.d[0]; n++)
        for (int64_t i = 0; i < all; i++) {
            int64_t at[3], rest = i;
            for (int64_t k = c.at.axes - 1; k >= 0; rest /= c.y.d[k + 2], k--)
                at[k] = rest % c.y.d[k + 2];
            position(a, w, n, at);
        }
}

static int reachable(const tensor &t, const void *p)
{
    int64_t last = 0;
    for (int i = 0; i < t.nd; i++)
        last += (t.d[i] - 1) * t.s[i];
    const int64_t size = t.type == XD_DNN_F16 || t.type == XD_DNN_BF16 ? 2 : 4;
    return (uintptr_t)p % (uintptr_t)t.align == 0 &&
           simgpu_on_device(p, (size_t)((last + 1) * size));
}

static cudnnStatus_t enqueue(cudnnHandle_t h, std::function<void()> fn)
{
    return simgpu_enqueue(h->stream, &fn) == XD_CU_SUCCESS ? XD_DNN_SUCCESS
                                                           : XD_DNN_EXECUTION_FAILED;
}

static cudnnStatus_t run_conv(cudnnHandle_t h, const conv &c, std::map<int64_t, void *> &where,
                              char *work)
{
    for (const tensor *t : { &c.x, &c.w, &c.y, &c.bias, &c.residual })
        if (t->id && !reachable(*t, where[t->id]))
            return refuse(XD_DNN_BAD_PARAM, "an operand is outside the memory, or not aligned");
    image_call x = {};
    x.c = c, x.work = work;
    x.x = (const char *)where[c.x.id], x.w = (const char *)where[c.w.id];
    x.y = (char *)where[c.y.id];
    x.bias = c.bias.id ? (const char *)where[c.bias.id] : nullptr;
    x.residual = c.residual.id ? (const char *)where[c.residual.id] : nullptr;
    return enqueue(h, [x] { convolve(x); });
}

static cudnnStatus_t run_attention(cudnnHandle_t h, const sdpa &a,
                                   std::map<int64_t, void *> &where, char *work)
{
    call x = {};
    x.a = a, x.work = work;
    if (!where[a.scale.id])
        return refuse(XD_DNN_BAD_PARAM, "no scale");
    for (const tensor *t : { &a.q, &a.k, &a.v, &a.out, &a.lse, &a.queries, &a.keys })
        if (t->id && !reachable(*t, where[t->id]))
            return refuse(XD_DNN_BAD_PARAM, "an operand is outside the memory, or not aligned");
    x.scale = *(const float *)where[a.scale.id];
    x.q = (const char *)where[a.q.id], x.k = (const char *)where[a.k.id];
    x.v = (const char *)where[a.v.id], x.out = (char *)where[a.out.id];
    if (a.lse.id)
        x.lse = (float *)where[a.lse.id];
    if (a.keys.id) {
        x.queries = (const int32_t *)where[a.queries.id];
        x.keys = (const int32_t *)where[a.keys.id];
    }
    return enqueue(h, [x] { attend(x); });
}

API cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan,
                                      cudnnBackendDescriptor_t pointers)
{
    desc *p = (desc *)plan, *at = (desc *)pointers;
    if (p->type != XD_DNN_PLAN || !p->finished || !at->finished)
        return refuse(XD_DNN_BAD_PARAM, "a plan or its pointers are not finished");
    const int64_t *id = (const int64_t *)(const void *)at->at[XD_DNN_POINTERS_IDS].data();
    void *const *place = (void *const *)(const void *)at->at[XD_DNN_POINTERS_EACH].data();
    std::map<int64_t, void *> where;
    for (size_t i = 0; i < at->at[XD_DNN_POINTERS_IDS].size() / sizeof *id; i++)
        where[id[i]] = place[i];
    char *work = (char *)at->from(XD_DNN_POINTERS_WORKSPACE);
    if (!simgpu_on_device(work, WORKSPACE))
        return refuse(XD_DNN_BAD_PARAM, "no workspace");
    return p->a.a.q.id ? run_attention(h, p->a.a, where, work) : run_conv(h, p->a.c, where, work);
}
