/* attention_cudnn.c - computes large attention by cuDNN, if cuDNN is installed and supports the
 * shape
 *
 * cuDNN is used for 16-bit heads of at most 256 elements without masks, bias or soft cap. An
 * execution plan (cudnn_plan.h) computes attention of one shape. When the scratch sizes of a model
 * are computed, before the model runs, a background thread begins to compile the plans for the
 * model's shapes. Most plans are therefore compiled while the weights are loaded. Plans are stored
 * in the user's cache for later processes. If keys and values are in several segments, the segments
 * are first copied to one tensor. XDIT_CUDNN=0 turns cuDNN off, so that the flash kernels compute
 * everything. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/cudnn_plan.h"
#include "backend/cuda/load.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/minmax.h"

enum {
    PLANS = 128,
    /* cuDNN is used only if the number of queries times the number of keys of a head is at least
     * LEAST_SCORES. For fewer scores the flash kernels are fast enough. */
    LEAST_SCORES = 1 << 20,
    MOST_TEXT = 4 << 20, /* maximum bytes of a stored plan */
};

typedef struct known {
    xd_cudnn_shape shape;
    xd_cudnn_plan  plan;
    uint64_t       used;   /* number of the call that used the plan last */
    int            wanted; /* 1: an attention call waits for this plan */
    enum { EMPTY, QUEUED, BUILDING, READY, REFUSED } state;
} known;

struct xd_cuda_cudnn {
    xd_cuda_dev             *c;
    const xd_cudnn          *lib; /* functions of cuDNN, or NULL if cuDNN is not used */
    cudnnHandle_t            handle;
    cudnnBackendDescriptor_t gpu;
    char                     folder[160]; /* path of the cache folder of stored plans */
    pthread_t                thread;
    int                      runs; /* 1: the thread that compiles plans was started */
    uint64_t                 calls;
    pthread_mutex_t          lock; /* mutex that guards all fields after it */
    pthread_cond_t           changed;
    known                    of[PLANS];
    int                      ends;
};

/* ---- kept plans --------------------------------------------------------------------------- */

static int name_of(const struct xd_cuda_cudnn *x, const xd_cudnn_shape *a, char *path, size_t size)
{
    char    name[768];
    int64_t v[] = { a->B,    a->H,      a->Hk,     a->D,      a->n,      a->m,      a->q[0],
                    a->q[1], a->q[2],   a->k[0],   a->k[1],   a->k[2],   a->v[0],   a->v[1],
                    a->v[2], a->out[0], a->out[1], a->out[2], a->lse[0], a->lse[1], a->lse[2] };
    int n = snprintf(name, sizeof name, "%ssdpa-%s%s", x->folder, xd_dtype_name((xd_dtype)a->type),
                     a->lengths ? "-lengths" : "");
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        n += snprintf(name + n, sizeof name - (size_t)n, "-%lld", (long long)v[i]);
    snprintf(name + n, sizeof name - (size_t)n, ".json");
    return xd_cache_path(name, path, size);
}

static int read_kept(const struct xd_cuda_cudnn *x, const char *path, xd_cudnn_plan *p)
{
    char  *text = NULL;
    size_t n = 0;
    xd_err e = { 0 };
    int    found = xd_file_exists(path) && xd_file_read(path, MOST_TEXT, &text, &n, &e) == XD_OK &&
                   xd_cudnn_plan_read(x->lib, x->gpu, text, p, &e) == XD_OK;
    free(text);
    return found;
}

/* Stores an execution plan in the user's cache. If a plan cannot be stored, the next process
 * compiles the plan again. */
static void keep_plan(const struct xd_cuda_cudnn *x, char *path, const xd_cudnn_plan *p)
{
    char  *text = xd_cudnn_plan_text(x->lib, p);
    xd_out o;
    xd_err e = { 0 };
    if (text)
        xd_make_parents(path);
    if (text && xd_out_open(&o, path, &e) == XD_OK) {
        fputs(text, o.f);
        /* this call writes no file if a byte of the plan could not be written */
        xd_out_commit(&o, &e);
    }
    free(text);
}

static xd_status get_plan(const struct xd_cuda_cudnn *x, const xd_cudnn_shape *a, xd_cudnn_plan *p,
                          xd_err *e)
{
    char path[4096];
    int  named = name_of(x, a, path, sizeof path);
    if (named && read_kept(x, path, p))
        return XD_OK;
    xd_status s = xd_cudnn_plan_make(x->lib, x->gpu, a, p, e);
    if (s == XD_OK && p->workspace > XD_CUDA_WORK) {
        xd_cudnn_plan_drop(x->lib, p);
        s = xd_fail(e, XD_EUNSUPPORTED, "cuDNN needs %lld bytes of workspace",
                    (long long)p->workspace);
    }
    if (s == XD_OK && named)
        keep_plan(x, path, p);
    return s;
}

/* ---- the thread that compiles plans --------------------------------------------------------- */

/* Returns the next plan to compile. Plans for which an attention call waits are compiled first. */
static known *next_of(struct xd_cuda_cudnn *x)
{
    known *best = NULL;
    for (int i = 0; i < PLANS; i++)
        if (x->of[i].state == QUEUED && (!best || x->of[i].wanted > best->wanted))
            best = &x->of[i];
    return best;
}

static void refuse(known *q, const char *why)
{
    const xd_cudnn_shape *a = &q->shape;
    q->state = REFUSED;
    xd_log(XD_LOG_DEBUG,
           "attention of %d samples, %d heads of %d elements on %d, %lld queries, "
           "%lld keys uses flash: %s",
           a->B, a->H, a->D, a->Hk, (long long)a->n, (long long)a->m, why);
}

static void *make_plans(void *cookie)
{
    struct xd_cuda_cudnn *x = cookie;
    known                *q;
    x->c->cu->cuCtxSetCurrent(x->c->context);
    pthread_mutex_lock(&x->lock);
    while (!x->ends) {
        if (!(q = next_of(x))) {
            pthread_cond_wait(&x->changed, &x->lock);
            continue;
        }
        xd_err        e = { 0 };
        xd_cudnn_plan p;
        q->state = BUILDING;
        pthread_mutex_unlock(&x->lock);
        xd_status s = get_plan(x, &q->shape, &p, &e);
        pthread_mutex_lock(&x->lock);
        if (s == XD_OK)
            q->plan = p, q->state = READY;
        else
            refuse(q, e.msg);
        pthread_cond_broadcast(&x->changed);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

/* ---- opening ------------------------------------------------------------------------------ */

static int open_library(struct xd_cuda_cudnn *x)
{
    const char *value = getenv("XDIT_CUDNN"), *digits = strchr(x->c->dev.name, ':');
    xd_err      e = { 0 };
    if (value && !strcmp(value, "0"))
        return 0;
    if (xd_cuda_load_cudnn(&x->lib, &e) != XD_OK) {
        xd_log(XD_LOG_DEBUG, "%s; attention uses xdit's own kernels, which are slower", e.msg);
        return 0;
    }
    x->c->cu->cuCtxSetCurrent(x->c->context);
    cudnnStatus_t r = x->lib->cudnnCreate(&x->handle);
    if (r == XD_DNN_SUCCESS)
        r = x->lib->cudnnSetStream(x->handle, x->c->stream);
    if (r == XD_DNN_SUCCESS)
        x->gpu = xd_cudnn_device(x->lib, digits ? atoi(digits + 1) : 0, NULL);
    if (x->gpu && pthread_create(&x->thread, NULL, make_plans, x) == 0)
        return x->runs = 1;
    xd_log(XD_LOG_DEBUG, "cuDNN does not start on %s (status %d); attention uses xdit's kernels",
           x->c->dev.name, (int)r);
    return 0;
}

/* Returns the device's state for calls of cuDNN. The first call of this function opens cuDNN.
 * Returns NULL if attention is computed without cuDNN. */
static struct xd_cuda_cudnn *cudnn_of(xd_cuda_dev *c)
{
    struct xd_cuda_cudnn *x = c->dnn;
    if (x || !(x = calloc(1, sizeof *x)))
        return x && x->runs ? x : NULL;
    c->dnn = x;
    x->c = c;
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    if (!open_library(x))
        return NULL;
    xd_cuda_cache_folder(c, "cudnn", x->lib->cudnnGetVersion(), x->folder, sizeof x->folder);
    return x;
}

void xd_cuda_close_cudnn(xd_cuda_dev *c)
{
    struct xd_cuda_cudnn *x = c->dnn;
    if (!x)
        return;
    pthread_mutex_lock(&x->lock);
    x->ends = 1;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
    if (x->runs)
        pthread_join(x->thread, NULL);
    for (int i = 0; i < PLANS && x->lib; i++)
        xd_cudnn_plan_drop(x->lib, &x->of[i].plan);
    if (x->gpu)
        x->lib->cudnnBackendDestroyDescriptor(x->gpu);
    if (x->handle)
        x->lib->cudnnDestroy(x->handle);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    free(x);
    c->dnn = NULL;
}

/* ---- shapes ------------------------------------------------------------------------------- */

/* Returns 1 if cuDNN may support this attention, provided that all rows are aligned. */
static int is_plain(const xd_attn_args *a)
{
    return a->q.type != XD_F32 && a->q.d[3] <= XD_CUDA_FLASH_MOST && a->q.d[3] % 8 == 0 &&
           !a->bias.p && !(a->softcap > 0) && !a->causal && a->window <= 0 &&
           a->q.d[0] <= ATTENTION_SAMPLES;
}

static int is_large(const xd_attn_args *a, const xd_tensor *q)
{
    return q->d[1] > 0 && q->d[1] * xd_attn_keys(a) >= LEAST_SCORES;
}

/* Writes the strides of tensor t to s. If there is only one sample, the stride between samples has
 * no effect and is replaced by a fixed value, so that equal shapes have equal strides. */
static void strides_of(int64_t s[3], const xd_tensor *t)
{
    for (int i = 0; i < 3; i++)
        s[i] = t->s[i];
    if (t->d[0] == 1)
        s[0] = t->d[1] * t->s[1];
}

/* Returns the keys of all segments (or their values, if `values` is 1) as one tensor. This is the
 * tensor of the only segment, or a tensor at address `to` into which several segments were
 * copied. */
static xd_tensor joined(const xd_attn_args *a, int values, void *to)
{
    const xd_tensor *t = values ? &a->kv[0].v : &a->kv[0].k;
    if (a->nkv == 1)
        return *t;
    xd_tensor x = *t;
    x.p = to, x.d[1] = xd_attn_keys(a);
    x.s[2] = x.d[3], x.s[1] = x.d[2] * x.s[2], x.s[0] = x.d[1] * x.s[1];
    return x;
}

static xd_cudnn_shape shape_of(const xd_attn_args *a, const xd_tensor *q, const xd_tensor *out)
{
    const xd_tensor k = joined(a, 0, NULL), v = joined(a, 1, NULL);
    xd_cudnn_shape  x;
    memset(&x, 0, sizeof x);
    x.n = q->d[1], x.m = k.d[1];
    x.B = (int32_t)q->d[0], x.H = (int32_t)q->d[2], x.D = (int32_t)q->d[3];
    x.Hk = (int32_t)xd_attn_heads_kv(a), x.type = (int32_t)q->type;
    x.lengths = a->kv_len != NULL;
    strides_of(x.q, q), strides_of(x.k, &k), strides_of(x.v, &v), strides_of(x.out, out);
    if (a->lse.p) { /* strides of the log-sum-exp tensor of all query rows */
        x.lse[0] = a->lse.s[0], x.lse[1] = a->lse.s[1], x.lse[2] = a->lse.s[2];
        if (x.B == 1)
            x.lse[0] = x.n * x.lse[1];
    }
    return x;
}

/* ---- the table of plans ------------------------------------------------------------------- */

/* Returns a table entry for the plan of a new shape: an empty entry, or the least recently used
 * entry, whose plan is dropped. While CUDA graphs exist, no plan is dropped, because a graph may
 * contain the kernels of any plan. */
static known *make_room(struct xd_cuda_cudnn *x)
{
    known *oldest = NULL;
    for (int i = 0; i < PLANS; i++) {
        known *q = &x->of[i];
        if (q->state == EMPTY)
            return q;
        if ((q->state == READY || q->state == REFUSED) && (!oldest || q->used < oldest->used))
            oldest = q;
    }
    if (!oldest || x->c->ngraphs || x->c->captures ||
        x->c->cu->cuStreamSynchronize(x->c->stream) != XD_CU_SUCCESS)
        return NULL;
    xd_cudnn_plan_drop(x->lib, &oldest->plan);
    return oldest;
}

/* Returns the table entry of the plan for a shape. If the shape is new, the compilation of its plan
 * is queued. The caller holds the lock. Returns NULL if the table is full. */
static known *find_plan(struct xd_cuda_cudnn *x, const xd_cudnn_shape *shape)
{
    known *q = NULL;
    for (int i = 0; i < PLANS && !q; i++)
        if (x->of[i].state != EMPTY && memcmp(&x->of[i].shape, shape, sizeof *shape) == 0)
            q = &x->of[i];
    if (!q && (q = make_room(x))) {
        *q = (known){ .shape = *shape, .state = QUEUED };
        pthread_cond_broadcast(&x->changed);
    }
    if (q)
        q->used = ++x->calls;
    return q;
}

/* Returns the execution plan of a shape, and waits until the plan is compiled. Returns NULL if
 * cuDNN does not support the shape. */
static known *wait_for(struct xd_cuda_cudnn *x, const xd_cudnn_shape *shape)
{
    pthread_mutex_lock(&x->lock);
    known *q = find_plan(x, shape);
    if (q && q->state == QUEUED)
        q->wanted = 1;
    while (q && (q->state == QUEUED || q->state == BUILDING))
        pthread_cond_wait(&x->changed, &x->lock);
    if (q && q->state == REFUSED)
        q = NULL;
    pthread_mutex_unlock(&x->lock);
    return q;
}

/* ---- scratch ------------------------------------------------------------------------------ */

typedef struct places { size_t k, v, lengths, end; } places;

static places places_of(const xd_attn_args *a)
{
    places        p = { 0 };
    const size_t  e = xd_dtype_size(a->q.type);
    const int64_t B = a->q.d[0], m = a->nkv > 1 ? B * xd_attn_keys(a) * a->q.d[3] : 0;
    p.v = xd_cuda_after(p.k, m * xd_attn_heads_kv(a), e);
    p.lengths = xd_cuda_after(p.v, m * xd_attn_heads_kv(a), e);
    p.end = xd_cuda_after(p.lengths, a->kv_len ? 2 * B : 0, sizeof(int32_t));
    return p;
}

size_t xd_cuda_attention_cudnn_scratch(xd_cuda_dev *c, const xd_attn_args *a)
{
    struct xd_cuda_cudnn *x = NULL;
    const xd_qo           all = { a->q, a->out };
    int                   taken = 0; /* number of those pieces of queries that cuDNN computes */
    if (!is_plain(a) || !a->nkv)
        return 0;
    for (int i = 0; i < xd_max(a->nparts, 1); i++) {
        const xd_qo *p = a->nparts ? &a->part[i] : &all;
        if (!is_large(a, &p->q) || p->out.type != p->q.type)
            continue;
        if (c && !(x = cudnn_of(c)))
            return 0;
        taken++;
        if (!x)
            continue;
        const xd_cudnn_shape shape = shape_of(a, &p->q, &p->out);
        pthread_mutex_lock(&x->lock);
        find_plan(x, &shape);
        pthread_mutex_unlock(&x->lock);
    }
    return taken ? places_of(a).end : 0;
}

/* ---- calls -------------------------------------------------------------------------------- */

static xd_status gather(xd_cuda_dev *c, const xd_attn_args *a, int values, const xd_tensor *to)
{
    xd_status s = XD_OK;
    int64_t   row = 0;
    for (int i = 0; i < a->nkv && a->nkv > 1 && s == XD_OK; i++) {
        const xd_tensor *from = values ? &a->kv[i].v : &a->kv[i].k;
        xd_tensor        part = *to;
        part.p = (char *)to->p + row * to->s[1] * (int64_t)xd_dtype_size(to->type);
        part.d[1] = from->d[1];
        row += from->d[1];
        if (from->d[1])
            s = xd_cuda_copy_view(c, &part, from);
    }
    return s;
}

/* Copies the keys of all segments to one tensor, and the values of all segments to another tensor,
 * before the first piece of the queries is computed. */
static xd_status join_keys(xd_cuda_dev *c, const xd_attn_args *a, xd_cuda_keys *keys)
{
    const places p = places_of(a);
    if (keys->k.p)
        return XD_OK;
    keys->k = joined(a, 0, keys->tmp + p.k), keys->v = joined(a, 1, keys->tmp + p.v);
    xd_status s = gather(c, a, 0, &keys->k);
    return s == XD_OK ? gather(c, a, 1, &keys->v) : s;
}

/* Writes to device memory the number of queries of each sample, then the number of valid keys of
 * each sample. */
static xd_status write_lengths(xd_cuda_dev *c, const xd_attn_args *a, int64_t n, int64_t m,
                               int32_t *to)
{
    lengths_args b = { .to = to, .n = 2 * a->q.d[0] };
    for (int64_t i = 0; i < b.n / 2; i++) {
        b.value[i] = (int32_t)n;
        b.value[b.n / 2 + i] = (int32_t)xd_min(a->kv_len[i], m);
    }
    return xd_cuda_launch_each(c, XD_K_lengths, b.n, &b);
}

static int has_keys(const xd_attn_args *a)
{
    int all = 1;
    for (int i = 0; i < a->q.d[0] && a->kv_len; i++)
        all = all && a->kv_len[i] > 0;
    return all;
}

static xd_status run(xd_cuda_dev *c, const xd_attn_args *a, const known *q, const xd_tensor *in,
                     const xd_tensor *out, int64_t row, xd_cuda_keys *keys, cudnnStatus_t *r)
{
    int32_t          *lengths = (int32_t *)(void *)(keys->tmp + places_of(a).lengths);
    xd_cudnn_operands o = { .q = in->p, .out = out->p, .scale = a->scale };
    xd_status         s = join_keys(c, a, keys);
    o.k = keys->k.p, o.v = keys->v.p;
    if (s == XD_OK && a->kv_len) {
        s = write_lengths(c, a, q->shape.n, q->shape.m, lengths);
        o.queries = lengths, o.keys = lengths + q->shape.B;
    }
    if (a->lse.p)
        o.lse = (float *)a->lse.p + row * a->lse.s[1];
    if (s != XD_OK)
        return s;
    *r = xd_cudnn_plan_run(c->dnn->lib, c->dnn->handle, &q->plan, &o, (void *)(uintptr_t)c->work);
    return *r == XD_DNN_SUCCESS && c->waits
               ? xd_cuda_check("attention of cuDNN", c->cu->cuStreamSynchronize(c->stream))
               : XD_OK;
}

int xd_cuda_attention_cudnn(xd_cuda_dev *c, const xd_attn_args *a, const xd_tensor *q,
                            const xd_tensor *out, int64_t row, xd_cuda_keys *keys, xd_status *s)
{
    struct xd_cuda_cudnn *x;
    cudnnStatus_t         r = XD_DNN_SUCCESS;
    if (!is_plain(a) || !a->nkv || !is_large(a, q) || out->type != q->type ||
        !xd_cuda_attention_aligned(a, q, out) || !has_keys(a) || !(x = cudnn_of(c)))
        return 0;
    const xd_cudnn_shape shape = shape_of(a, q, out);
    known               *plan = wait_for(x, &shape);
    if (!plan)
        return 0;
    *s = run(c, a, plan, q, out, row, keys, &r);
    if (r == XD_DNN_SUCCESS)
        return 1;
    pthread_mutex_lock(&x->lock);
    xd_cudnn_plan_drop(x->lib, &plan->plan);
    refuse(plan, "cuDNN does not run it");
    pthread_mutex_unlock(&x->lock);
    return 0;
}
