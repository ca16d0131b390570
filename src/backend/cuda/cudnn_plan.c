/* cudnn_plan.c - builds, serializes and runs execution plans for attention with cuDNN's backend
 * API */
#include "backend/cuda/cudnn_plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"

/* Ids of the attention's operands in cuDNN's operation graph. */
enum { ID_Q = 1, ID_K, ID_V, ID_OUT, ID_SCALE, ID_LSE, ID_QUERIES, ID_KEYS };
enum { MOST_CONFIGS = 8 };

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

/* Adds an operand, with four dimensions and their strides, to the operation `op`. */
static void add(maker *k, cudnnBackendDescriptor_t op, int name, int64_t id, int type,
                const int64_t dims[4], const int64_t strides[4])
{
    const int64_t            align = type == XD_DNN_F16 || type == XD_DNN_BF16 ? 16 : 4;
    const int32_t            data_type = type;
    const char               yes = 1;
    cudnnBackendDescriptor_t d = begin(k, XD_DNN_TENSOR);
    set(k, d, XD_DNN_TENSOR_ID, XD_DNN_TYPE_INT64, 1, &id);
    set(k, d, XD_DNN_TENSOR_TYPE, XD_DNN_TYPE_DATA_TYPE, 1, &data_type);
    set(k, d, XD_DNN_TENSOR_ALIGNMENT, XD_DNN_TYPE_INT64, 1, &align);
    set(k, d, XD_DNN_TENSOR_DIMENSIONS, XD_DNN_TYPE_INT64, 4, dims);
    set(k, d, XD_DNN_TENSOR_STRIDES, XD_DNN_TYPE_INT64, 4, strides);
    if (id == ID_SCALE)
        set(k, d, XD_DNN_TENSOR_BY_VALUE, XD_DNN_TYPE_BOOLEAN, 1, &yes);
    finalize(k, d);
    link_to(k, op, name, d);
}

/* Adds a tensor of heads as an operand of the operation `op`. Our tensor [B,n,H,D] is described as
 * cuDNN's [B,H,n,D], with any strides. */
static void add_heads(maker *k, cudnnBackendDescriptor_t op, int name, int64_t id,
                      const xd_cudnn_shape *a, int64_t rows, int64_t heads, const int64_t s[3])
{
    const int64_t dims[4] = { a->B, heads, rows, a->D }, strides[4] = { s[0], s[2], s[1], 1 };
    add(k, op, name, id, a->type == XD_F16 ? XD_DNN_F16 : XD_DNN_BF16, dims, strides);
}

static cudnnBackendDescriptor_t add_operation(maker *k, const xd_cudnn_shape *a)
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
    cudnnBackendDescriptor_t op, graph, config[MOST_CONFIGS];
    *p = (xd_cudnn_plan){ 0 };
    op = add_operation(&k, a);
    graph = begin(&k, XD_DNN_GRAPH);
    link_to(&k, graph, XD_DNN_GRAPH_OPS, op);
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
    const xd_status s =
        fail_with(&k, XD_EUNSUPPORTED,
                  n ? "cannot compile this attention" : "does not support this attention", e);
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
        { ID_SCALE, &scale },
        { ID_LSE, o->lse },
        { ID_QUERIES, o->queries },
        { ID_KEYS, o->keys },
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
