/* module.c - opens a single transformer or VAE with weights from the program's memory */
#include <stdlib.h>
#include <string.h>

#include "base/par.h"
#include "base/record.h"
#include "families/family.h"
#include "module/inside.h"
#include "pipeline/arenas.h"
#include "pipeline/dtypes.h"

void xd_module_args_init_size(xd_module_args *a, size_t size)
{
    xd_record_init(a, size);
}

/* ---- classes ------------------------------------------------------------------------------- */

static const xd_net_def *network(const char *kind, int i)
{
    if (strcmp(kind, "vae") == 0)
        return xd_vaes[i] ? &xd_vaes[i]->net : NULL;
    return strcmp(kind, "transformer") == 0 && xd_dit_at(i) ? &xd_dit_at(i)->net : NULL;
}

const char *xd_module_class(const char *kind, int i)
{
    const xd_net_def *d;
    for (int k = 0; kind && i >= 0 && (d = network(kind, k)); k++)
        for (int c = 0; c < 6 && d->classes[c]; c++)
            if (i-- == 0)
                return d->classes[c];
    return NULL;
}

/* Returns whether the config's class is a VAE or a transformer. Every class that is not a known VAE
 * counts as a transformer here; opening the transformer fails later if the class is unknown. */
static xd_kind kind_of(const char *config)
{
    xd_json *j = NULL;
    xd_kind  kind = XD_KIND_DIT;
    if (xd_json_parse(&j, config, strlen(config), "config", NULL) == XD_OK) {
        const char *name = xd_json_text(xd_json_get(j, "_class_name"));
        if (name && xd_component_knows(XD_KIND_VAE, name))
            kind = XD_KIND_VAE;
    }
    xd_json_free(&j);
    return kind;
}

/* ---- memory -------------------------------------------------------------------------------- */

xd_status xd_module_fits(const xd_module *m, size_t bytes, const char *what, xd_err *e)
{
    size_t machine, process;
    xd_host_memory(&machine, &process);
    size_t have = machine < process ? machine : process;
    if (bytes <= have)
        return XD_OK;
    return xd_fail(e, XD_ENOMEM, "%s of %s needs %s of memory, and %s is free", what, m->part.name,
                   xd_size_text((double)bytes).s, xd_size_text((double)have).s);
}

xd_status xd_module_arena(xd_module *m, size_t bytes, xd_err *e)
{
    if (m->arena.base && bytes <= m->arena.cap) {
        xd_arena_rewind(&m->arena, 0);
        return XD_OK;
    }
    xd_device_arena_close(&m->arena, m->dev);
    xd_status s = xd_module_fits(m, bytes, "a call", e);
    return s == XD_OK ? xd_device_arena_open(&m->arena, m->dev, bytes, e) : s;
}

xd_status xd_module_end(const xd_exec *x, xd_err *e)
{
    return x->err.code ? xd_fail(e, x->err.code, "%s", x->err.msg) : XD_OK;
}

/* ---- opening ------------------------------------------------------------------------------- */

static xd_status check_args(const xd_module_args *a, xd_err *e)
{
    if (!a->config)
        return xd_fail(e, XD_EINVAL,
                       "xd_module_args.config is NULL; it must be the text of "
                       "config.json");
    if (a->threads < 0 || a->threads > 4096)
        return xd_fail(e, XD_EINVAL, "threads is %d; it must be from 1 to 4096", a->threads);
    return XD_OK;
}

/* Sets the data types of the weights, and whether matrices are used in place. Only weight matrices
 * that are not quantized can be used in place in the program's memory. */
static xd_status set_types(xd_module *m, const xd_module_args *a, xd_err *e)
{
    xd_open_args flags = { .size = sizeof flags,
                           .dtype = a->dtype,
                           .weights_dtype = a->weights_dtype };
    xd_status    s = xd_types_of_device(m->dev, &flags, &m->type, e);
    if (s == XD_OK)
        s = xd_types_component(&m->part, m->dev, &flags, e);
    if (m->part.kind == XD_KIND_VAE)
        m->part.w->blocks = XD_F32;
    m->part.w->stays = a->in_place && m->part.w->blocks == XD_F32 ? XD_STAYS_ALL : XD_STAYS_NONE;
    return s;
}

static xd_status load(xd_module *m, xd_err *e)
{
    xd_status s = xd_component_count(&m->part, m->count, m->type, e);
    if (s == XD_OK)
        s = xd_module_fits(m, m->part.count->packed + m->part.count->work, "a copy of the weights",
                           e);
    return s == XD_OK ? xd_component_load(&m->part, m->dev, m->type, 0, e) : s;
}

static xd_status open_module(xd_module *m, const xd_module_args *a, xd_err *e)
{
    xd_kind     kind = kind_of(a->config);
    const char *name = kind == XD_KIND_VAE ? "vae" : "transformer";
    xd_status   s = xd_component_open_text(&m->part, name, kind, a->config, e);
    if (s == XD_OK)
        s = xd_named_open(&m->named, a->weights, a->nweights, name, e);
    if (s == XD_OK) {
        xd_source src = xd_named_source(m->named, a->in_place);
        s = xd_component_source(&m->part, &src, e);
    }
    if (s == XD_OK)
        s = xd_dev_open(&m->dev, "cpu", e);
    if (s == XD_OK)
        s = xd_dev_open_count(&m->count, m->dev, e);
    if (s == XD_OK)
        s = set_types(m, a, e);
    if (s == XD_OK)
        s = load(m, e);
    if (s == XD_OK && kind == XD_KIND_DIT)
        m->part.dit->info(m->part.w->net.cfg, &m->dit);
    if (s == XD_OK && kind == XD_KIND_VAE)
        m->part.vae->info(m->part.w->net.cfg, &m->vae);
    return s;
}

xd_status xd_module_open(xd_module **out, const xd_module_args *a, xd_err *e)
{
    xd_module_args own;
    *out = NULL;
    xd_module_args_init(&own);
    xd_status s = xd_record_read(&own, sizeof own, a, "xd_module_args", e);
    if (s == XD_OK)
        s = check_args(&own, e);
    if (s != XD_OK)
        return s;
    xd_module *m = calloc(1, sizeof *m);
    if (!m)
        return xd_fail(e, XD_ENOMEM, "no memory for a module");
    xd_dev_early();
    m->log = (xd_logger){ own.log, own.cookie, own.log_level };
    const xd_logger *before = xd_log_enter(&m->log);
    xd_par_set(own.threads);
    s = open_module(m, &own, e);
    xd_log_enter(before);
    if (s != XD_OK)
        xd_module_close(&m);
    *out = m;
    return s;
}

void xd_module_close(xd_module **out)
{
    xd_module *m = out ? *out : NULL;
    if (!m)
        return;
    const xd_logger *before = xd_log_enter(&m->log);
    xd_module_texts_close(m);
    if (m->dev)
        xd_device_arena_close(&m->arena, m->dev);
    xd_component_close(&m->part);
    xd_named_close(&m->named);
    xd_dev_close(&m->count);
    xd_dev_close(&m->dev);
    xd_log_enter(before);
    free(m);
    *out = NULL;
}

int64_t xd_module_bytes(const xd_module *m)
{
    return (int64_t)m->part.count->packed;
}

void xd_module_cancel(xd_module *m)
{
    if (m)
        xd_cancel_set(&m->cancel, NULL);
}
