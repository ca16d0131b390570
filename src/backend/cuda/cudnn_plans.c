/* cudnn_plans.c - opens cuDNN, and keeps its execution plans in a table and in the user's cache
 *
 * An execution plan (cudnn_plan.h) computes attention or a convolution of one shape. When the
 * scratch sizes of a model are computed, before the model runs, a background thread begins to
 * compile the plans for the model's shapes. Most plans are therefore compiled while the weights are
 * loaded. Plans are stored in the user's cache for later processes. XDIT_CUDNN=0 turns cuDNN off;
 * with XDIT_CUDNN=all cuDNN also computes convolutions, which are otherwise left to xdit's kernel
 * until a GPU has shown which of the two is faster. */
#include "backend/cuda/cudnn_plans.h"
#include "backend/cuda/load.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

enum {
    PLANS = 128,
    NAME = 768,          /* bytes of the name of a stored plan */
    MOST_TEXT = 4 << 20, /* maximum bytes of a stored plan */
};

struct xd_cudnn_known {
    xd_cudnn_shape shape;
    xd_cudnn_plan  plan;
    uint64_t       used;   /* number of the call that used the plan last */
    int            wanted; /* 1: a call waits for this plan */
    enum { EMPTY, QUEUED, BUILDING, READY, REFUSED } state;
};

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
    xd_cudnn_known           of[PLANS];
    int                      ends;
};

/* ---- kept plans --------------------------------------------------------------------------- */

/* Appends n numbers to the name of a file. */
static void append(char name[NAME], const int64_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t at = strlen(name);
        snprintf(name + at, NAME - at, "-%lld", (long long)v[i]);
    }
}

static void name_attention(char name[NAME], const char *folder, const xd_cudnn_attention *a)
{
    const int64_t v[] = {
        a->B,    a->H,      a->Hk,     a->D,      a->n,      a->m,      a->q[0],
        a->q[1], a->q[2],   a->k[0],   a->k[1],   a->k[2],   a->v[0],   a->v[1],
        a->v[2], a->out[0], a->out[1], a->out[2], a->lse[0], a->lse[1], a->lse[2]
    };
    snprintf(name, NAME, "%ssdpa-%s%s", folder, xd_dtype_name((xd_dtype)a->type),
             a->lengths ? "-lengths" : "");
    append(name, v, sizeof v / sizeof *v);
}

static void name_conv(char name[NAME], const char *folder, const xd_cudnn_conv *a)
{
    const int64_t v[] = { a->axes, a->C, a->O, a->bias, a->residual };
    snprintf(name, NAME, "%sconv-%s", folder, xd_dtype_name((xd_dtype)a->type));
    append(name, v, sizeof v / sizeof *v);
    for (int i = 0; i < 3; i++) {
        const int64_t w[] = { a->in[i],     a->out[i],    a->s_in[i], a->s_out[i], a->s_residual[i],
                              a->kernel[i], a->stride[i], a->lo[i],   a->hi[i] };
        append(name, w, sizeof w / sizeof *w);
    }
}

static int name_of(const struct xd_cuda_cudnn *x, const xd_cudnn_shape *a, char *path, size_t size)
{
    char name[NAME];
    if (a->op == XD_OP_CONV)
        name_conv(name, x->folder, &a->of.conv);
    else
        name_attention(name, x->folder, &a->of.attention);
    const size_t n = strlen(name);
    snprintf(name + n, sizeof name - n, ".json");
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

/* Returns the next plan to compile. Plans for which a call waits are compiled first. */
static xd_cudnn_known *next_of(struct xd_cuda_cudnn *x)
{
    xd_cudnn_known *best = NULL;
    for (int i = 0; i < PLANS; i++)
        if (x->of[i].state == QUEUED && (!best || x->of[i].wanted > best->wanted))
            best = &x->of[i];
    return best;
}

static void refuse(xd_cudnn_known *q, const char *why)
{
    const xd_cudnn_attention *a = &q->shape.of.attention;
    const xd_cudnn_conv      *b = &q->shape.of.conv;
    q->state = REFUSED;
    if (q->shape.op == XD_OP_CONV)
        xd_log(XD_LOG_DEBUG,
               "convolution of %lld x %lld x %lld positions, %d channels to %d, uses xdit's "
               "kernel: %s",
               (long long)b->in[0], (long long)b->in[1], (long long)b->in[2], b->C, b->O, why);
    else
        xd_log(XD_LOG_DEBUG,
               "attention of %d samples, %d heads of %d elements on %d, %lld queries, "
               "%lld keys uses flash: %s",
               a->B, a->H, a->D, a->Hk, (long long)a->n, (long long)a->m, why);
}

static void *make_plans(void *cookie)
{
    struct xd_cuda_cudnn *x = cookie;
    xd_cudnn_known       *q;
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

/* ---- the table of plans ------------------------------------------------------------------- */

/* Returns a table entry for the plan of a new shape: an empty entry, or the least recently used
 * entry, whose plan is dropped. While CUDA graphs exist, no plan is dropped, because a graph may
 * contain the kernels of any plan. */
static xd_cudnn_known *make_room(struct xd_cuda_cudnn *x)
{
    xd_cudnn_known *oldest = NULL;
    for (int i = 0; i < PLANS; i++) {
        xd_cudnn_known *q = &x->of[i];
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
static xd_cudnn_known *find_plan(struct xd_cuda_cudnn *x, const xd_cudnn_shape *shape)
{
    xd_cudnn_known *q = NULL;
    for (int i = 0; i < PLANS && !q; i++)
        if (x->of[i].state != EMPTY && memcmp(&x->of[i].shape, shape, sizeof *shape) == 0)
            q = &x->of[i];
    if (!q && (q = make_room(x))) {
        *q = (xd_cudnn_known){ .shape = *shape, .state = QUEUED };
        pthread_cond_broadcast(&x->changed);
    }
    if (q)
        q->used = ++x->calls;
    return q;
}

void xd_cudnn_expect(struct xd_cuda_cudnn *x, const xd_cudnn_shape *shape)
{
    pthread_mutex_lock(&x->lock);
    find_plan(x, shape);
    pthread_mutex_unlock(&x->lock);
}

xd_cudnn_known *xd_cudnn_wait(struct xd_cuda_cudnn *x, const xd_cudnn_shape *shape)
{
    pthread_mutex_lock(&x->lock);
    xd_cudnn_known *q = find_plan(x, shape);
    if (q && q->state == QUEUED)
        q->wanted = 1;
    while (q && (q->state == QUEUED || q->state == BUILDING))
        pthread_cond_wait(&x->changed, &x->lock);
    if (q && q->state == REFUSED)
        q = NULL;
    pthread_mutex_unlock(&x->lock);
    return q;
}

int xd_cudnn_run(struct xd_cuda_cudnn *x, xd_cudnn_known *q, const xd_cudnn_operands *o,
                 const char *what, xd_status *s)
{
    xd_cuda_dev  *c = x->c;
    cudnnStatus_t r = xd_cudnn_plan_run(x->lib, x->handle, &q->plan, o, (void *)(uintptr_t)c->work);
    if (r == XD_DNN_SUCCESS) {
        *s = c->waits ? xd_cuda_check(what, c->cu->cuStreamSynchronize(c->stream)) : XD_OK;
        return 1;
    }
    pthread_mutex_lock(&x->lock);
    xd_cudnn_plan_drop(x->lib, &q->plan);
    refuse(q, "cuDNN does not run it");
    pthread_mutex_unlock(&x->lock);
    return 0;
}
/* ---- opening ------------------------------------------------------------------------------ */

static int open_library(struct xd_cuda_cudnn *x)
{
    const char *digits = strchr(x->c->dev.name, ':');
    xd_err      e = { 0 };
    if (xd_cuda_load_cudnn(&x->lib, &e) != XD_OK) {
        xd_log(XD_LOG_DEBUG, "%s; xdit's own kernels, which are slower, are used instead", e.msg);
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
    xd_log(XD_LOG_DEBUG, "cuDNN does not start on %s (status %d); xdit's kernels are used",
           x->c->dev.name, (int)r);
    return 0;
}

struct xd_cuda_cudnn *xd_cuda_cudnn_for(xd_cuda_dev *c, xd_op op)
{
    struct xd_cuda_cudnn *x = c->dnn;
    const char           *value = getenv("XDIT_CUDNN");
    if (value ? !strcmp(value, "0") || (op == XD_OP_CONV && strcmp(value, "all") != 0)
              : op == XD_OP_CONV)
        return NULL;
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
