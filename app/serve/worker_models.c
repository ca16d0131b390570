/* worker_models.c - opens and closes a worker's models, and opens further engines that share a
 * model's weights */
#include "serve/worker_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- closing -------------------------------------------------------------------------------- */

static void close_model(xd_opened **at)
{
    xd_opened *o = *at;
    *at = o->next;
    xd_close(&o->alone);
    for (int i = XD_NESTED_ENGINES - 1; i >= 0; i--)
        xd_close(&o->nested[i]);
    xd_close(&o->engine);
    free(o->key);
    free(o);
}

int xd_worker_models_free_memory(xd_worker_models *m)
{
    for (xd_opened *o = m->first; o; o = o->next)
        if (o->engine && xd_drop_loras(o->engine))
            return 1;
    xd_opened **oldest = NULL;
    for (xd_opened **at = &m->first; *at; at = &(*at)->next)
        if (*at != m->first && !(*at)->busy)
            oldest = at;
    if (oldest)
        close_model(oldest);
    return oldest != NULL;
}

int xd_worker_models_count(const xd_worker_models *m)
{
    int n = 0;
    for (const xd_opened *o = m->first; o; o = o->next)
        n++;
    return n;
}

void xd_worker_models_close(xd_worker_models *m)
{
    while (m->first)
        close_model(&m->first);
}

/* ---- opening -------------------------------------------------------------------------------- */

static xd_status open_engine(xd_worker_models *m, const xd_task_flags *f, xd_engine **g, xd_err *e)
{
    xd_open_args a = xd_open_flags_args(m->open, f->model);
    a.keep = 1;
    a.plan_for = &f->request;
    a.log = m->on_log;
    a.cookie = m->cookie;
    a.log_level = m->verbose ? XD_LOG_DEBUG : XD_LOG_WARN;
    return xd_open(g, &a, e);
}

static xd_opened *find_model(xd_worker_models *m, const char *key)
{
    xd_opened **at = &m->first, *o;
    while (*at && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    if (!(o = *at))
        return NULL;
    *at = o->next;
    o->next = m->first;
    return m->first = o;
}

xd_status xd_worker_models_get(xd_worker_models *m, const xd_task_flags *f, xd_opened **out,
                               xd_err *e)
{
    char      *key = strdup(f->model);
    xd_opened *o = *out = key ? find_model(m, key) : NULL;
    if (o) {
        free(key);
        return XD_OK;
    }
    o = key ? calloc(1, sizeof *o) : NULL;
    if (!o) {
        free(key);
        return xd_fail(e, XD_ENOMEM, "no memory for another model");
    }
    *o = (xd_opened){ .key = key, .next = m->first };
    m->first = o;
    m->on_open(m->cookie);
    xd_status s = open_engine(m, f, &o->engine, e);
    while (s == XD_ENOMEM && xd_worker_models_free_memory(m)) {
        *e = (xd_err){ .rank = -1 };
        s = open_engine(m, f, &o->engine, e);
    }
    if (s == XD_OK)
        *out = o;
    else if (s != XD_ECOMM)
        close_model(&m->first);
    return s;
}

/* ---- choice of an engine of a model --------------------------------------------------------- */

/* Replaces the path of a LoRA file in an error message by the file's name that the client has
 * sent. */
static void hide_path(char *msg, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t      n = strlen(path), k = strlen(name);
    if (k > 12 && strcmp(name + k - 12, ".safetensors") == 0)
        k -= 12;
    for (char *at = msg; k < n && (at = strstr(at, path)); at += k) {
        memcpy(at, name, k);
        memmove(at + k, at + n, strlen(at + n) + 1);
    }
}

/* If an error concerns a LoRA file that the client named, reports the error as an error of the
 * request, without the name of the file's folder. */
static void blame_client(const xd_loras_read *l, xd_status *s, xd_err *e)
{
    if (!l->n || (*s != XD_EFORMAT && *s != XD_EIO && *s != XD_EUNSUPPORTED && *s != XD_EINVAL))
        return;
    for (int i = 0; i < l->n; i++)
        hide_path(e->msg, l->v[i].path);
    *s = e->code = XD_EINVAL;
}

/* Selects the LoRA files of an engine: first the files on the worker's command line, then the files
 * of the task. */
static xd_status use_loras(xd_worker_models *m, xd_opened *o, const xd_task_flags *f, xd_err *e)
{
    const xd_loras_read *all = &m->open->lora;
    int                  n = all->n + f->lora.n;
    xd_lora             *v = calloc((size_t)n + 1, sizeof *v);
    if (!v)
        return xd_fail(e, XD_ENOMEM, "no memory for %d LoRA files", n);
    if (all->n)
        memcpy(v, all->v, (size_t)all->n * sizeof *v);
    if (f->lora.n)
        memcpy(v + all->n, f->lora.v, (size_t)f->lora.n * sizeof *v);
    xd_status s = xd_use_loras(o->engine, v, n, e);
    free(v);
    if (s == XD_OK)
        o->busy++;
    else
        blame_client(&f->lora, &s, e);
    return s;
}

void xd_worker_models_release(xd_opened *o)
{
    xd_leave_loras(o->engine);
    o->busy--;
}

xd_status xd_worker_models_acquire_engine(xd_worker_models *m, xd_opened *o, const xd_task_flags *f,
                                          xd_engine **g, xd_err *e)
{
    int       k = o->busy - 1;
    xd_status s = XD_OK;
    if (k >= XD_NESTED_ENGINES)
        return xd_fail(e, XD_ENOMEM,
                       "%d requests to this model run already: send this one again "
                       "later",
                       o->busy);
    if (k >= 0 && !o->nested[k])
        s = xd_open_beside(&o->nested[k], o->engine, 0, e);
    *g = k < 0 ? o->engine : o->nested[k];
    return s == XD_OK ? use_loras(m, o, f, e) : s;
}

xd_status xd_worker_models_open_alone(xd_worker_models *m, xd_opened *o, const xd_task_flags *f,
                                      xd_err *e)
{
    xd_status s = use_loras(m, o, f, e);
    if (s != XD_OK)
        return s;
    s = xd_load_everywhere(o->engine, e);
    if (s == XD_OK && !o->alone)
        s = xd_open_beside(&o->alone, o->engine, 1, e);
    if (s != XD_OK)
        xd_worker_models_release(o);
    return s;
}
