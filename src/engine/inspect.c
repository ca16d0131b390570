/* inspect.c - what a model directory holds, needs and lacks */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/inspect_file.h"

void xd_line(const xd_inspect_args *a, const char *fmt, ...)
{
    char    text[4600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (a->line)
        a->line(a->cookie, text);
}

/* ---- tensors of one component --------------------------------------------------------------- */

static int by_first_name(const void *x, const void *y)
{
    return strcmp(((const xd_declared *)x)->name, ((const xd_declared *)y)->name);
}

static xd_kind kind_of(const char *component)
{
    if (strncmp(component, "text_encoder", 12) == 0)
        return XD_KIND_TEXT;
    return strncmp(component, "vae", 3) == 0 ? XD_KIND_VAE : XD_KIND_DIT;
}

void xd_inspect_tensor(const xd_inspect_args *a, const char *name, int nd, const int64_t *d, int first)
{
    char        shape[96];
    xd_text_buf b = { 0 };
    if (!a->json) {
        xd_line(a, "%s %s", name, xd_shape_text(nd, d, shape, sizeof shape));
        return;
    }
    xd_buf_add(&b, "  %s{\"name\": ", first ? "" : ", ");
    xd_buf_json_string(&b, name);
    xd_buf_add(&b, ", \"shape\": [");
    for (int i = 0; i < nd; i++)
        xd_buf_add(&b, "%s%lld", i ? ", " : "", (long long)d[i]);
    xd_buf_add(&b, "]}");
    if (!b.failed)
        xd_line(a, "%s", b.p);
    xd_buf_free(&b);
}

static xd_status list_component(const xd_inspect_args *a, const char *dir, xd_err *e)
{
    xd_part   p;
    char     *path = xd_path_join(dir, "model_index.json");
    xd_json  *index = NULL;
    xd_status s = XD_OK;
    if (path && xd_file_exists(path))
        s = xd_json_read(&index, path, e);
    free(path);
    if (s != XD_OK)
        return s;
    s = xd_part_open(&p, dir, a->tensors, kind_of(a->tensors),
                     xd_json_text(xd_json_at(xd_json_get(index, a->tensors), 1)), e);
    for (int i = 0; s == XD_OK && i < p.nlist; i++)
        p.list[i].name[strcspn(p.list[i].name, "|")] = 0;
    if (s == XD_OK)
        qsort(p.list, (size_t)p.nlist, sizeof *p.list, by_first_name);
    if (s == XD_OK && a->json)
        xd_line(a, "{\"tensors\": [");
    for (int i = 0; s == XD_OK && i < p.nlist; i++)
        xd_inspect_tensor(a, p.list[i].name, p.list[i].nd, p.list[i].d, i == 0);
    if (s == XD_OK && a->json)
        xd_line(a, "]}");
    xd_part_close(&p);
    xd_json_free(&index);
    return s;
}

/* ---- the summary ---------------------------------------------------------------------------- */

typedef struct row {            /* one component                                               */
    const xd_part *p;
    double         numbers;     /* declared                                                    */
    size_t         bytes;       /* in its files                                                */
    char           types[64], lack[1024];
} row;

static void types_of(const xd_st *st, char *out, size_t size)
{
    int seen[XD_NDTYPES] = { 0 };
    out[0] = 0;
    for (int64_t i = 0; i < xd_st_count(st); i++)
        seen[xd_st_shape(st, i).type] = 1;
    for (int t = 0; t < XD_NDTYPES; t++)
        if (seen[t] && strlen(out) + 10 < size) {
            strcat(out, out[0] ? "+" : "");
            strcat(out, xd_dtype_name((xd_dtype)t));
        }
}

static row look(xd_part *p)
{
    row    r = { .p = p };
    xd_err e = { 0 };
    for (int i = 0; i < p->nlist; i++) {
        double n = 1;
        for (int k = 0; k < p->list[i].nd; k++)
            n *= (double)p->list[i].d[k];
        r.numbers += n;
    }
    if (xd_part_files(p, &e) != XD_OK)
        snprintf(r.lack, sizeof r.lack, "%.1000s", e.msg);
    if (p->files) {
        r.bytes = xd_st_bytes(p->files);
        types_of(p->files, r.types, sizeof r.types);
    }
    return r;
}

static void say_row(const xd_inspect_args *a, const row *r)
{
    char bytes[32] = "-";
    if (r->p->files)
        snprintf(bytes, sizeof bytes, "%.3f GB", (double)r->bytes / 1e9);
    if (a->json) {
        xd_text_buf b = { 0 };
        xd_buf_add(&b, "  {\"component\": \"%s\", \"class\": \"%s\", \"network\": \"%s\", "
                   "\"tensors\": %d, \"parameters\": %.0f, \"bytes\": %zu, \"dtype\": \"%s\", "
                   "\"missing\": ", r->p->name, r->p->class_name, r->p->def->name, r->p->nlist,
                   r->numbers, r->bytes, r->types);
        xd_buf_json_string(&b, r->lack);
        xd_buf_add(&b, "}");
        xd_line(a, "%s,", b.failed ? "" : b.p);
        xd_buf_free(&b);
        return;
    }
    xd_line(a, "%-15s %-26s %7d %10.1f M %12s  %s", r->p->name, r->p->class_name, r->p->nlist,
         r->numbers / 1e6, bytes, r->p->files ? r->types : "no weights");
}

static const char *scheduler_of(const xd_model *m)
{
    const char *name = xd_json_text(xd_json_get(m->sched, "_class_name"));
    return name ? name : "(none)";
}

static int has_file(const xd_model *m, const char *folder, const char *name)
{
    char *dir = xd_path_join(m->dir, folder), *path = dir ? xd_path_join(dir, name) : NULL;
    int   has = path && xd_file_exists(path);
    free(dir);
    free(path);
    return has;
}

static const char *tokenizer_of(const xd_model *m, int i)
{
    const char *folder = m->recipe->text[i].tokenizer;
    if (has_file(m, folder, "spiece.model"))
        return "spiece.model";
    if (has_file(m, folder, "vocab.json") && has_file(m, folder, "merges.txt"))
        return "vocab.json";
    if (has_file(m, folder, "vocab.txt"))
        return "vocab.txt";
    return has_file(m, folder, "tokenizer.json") ? "tokenizer.json" : NULL;
}

static void say_text(const xd_inspect_args *a, const xd_model *m, const row *rows, int n)
{
    const char *file = scheduler_of(m);
    xd_line(a, "%-15s %-26s %s", "scheduler", file,
         xd_sampler_find(file) ? "" : "(not known: name one with --scheduler)");
    for (int i = 0; i < m->recipe->ntext; i++) {
        const char *tok = tokenizer_of(m, i);
        if (!m->has_text[i])
            continue;
        xd_line(a, "%-15s %-26s", m->recipe->text[i].tokenizer, tok ? tok : "missing");
    }
    const xd_dit_info *d = &m->dit_info;
    xd_line(a, "%d blocks, %d heads of %d, width %lld; default size %lld x %lld, %d steps, "
            "guidance %.3g, %d text tokens", d->nlayers, d->heads, d->head_dim, (long long)d->dim,
         (long long)(d->sample[2] * m->vae_info.cell[2]),
         (long long)(d->sample[1] * m->vae_info.cell[1]), m->recipe->steps, m->recipe->guidance,
         m->recipe->max_text);
    for (int i = 0; i < n; i++)
        if (rows[i].lack[0])
            xd_line(a, "missing: %s", rows[i].lack);
    for (int i = 0; i < m->recipe->ntext; i++)
        if (m->has_text[i] && !tokenizer_of(m, i))
            xd_line(a, "missing: %s/%s has no spiece.model, vocab.json, vocab.txt or tokenizer.json", m->dir,
                 m->recipe->text[i].tokenizer);
}

static void say_json_end(const xd_inspect_args *a, const xd_model *m)
{
    xd_line(a, "  {\"component\": \"scheduler\", \"class\": \"%s\", \"known\": %s},",
            scheduler_of(m), xd_sampler_find(scheduler_of(m)) ? "true" : "false");
    const char *end = "";
    for (int i = 0; i < m->recipe->ntext; i++) {
        const char *tok = tokenizer_of(m, i);
        if (!m->has_text[i])
            continue;
        xd_line(a, "%s  {\"component\": \"%s\", \"file\": \"%s\"}", end,
                m->recipe->text[i].tokenizer, tok ? tok : "");
        end = ",\n";
    }
    xd_line(a, "]}");
}

xd_status xd_inspect(const xd_inspect_args *a, xd_err *e)
{
    char     *dir = NULL;
    xd_model  m;
    row       rows[XD_MAXTEXT + 2];
    int       n = 0;
    if (a->model && xd_file_exists(a->model) && !xd_file_is_dir(a->model))
        return xd_inspect_file(a, e);
    xd_status s = xd_model_find(a->model, &dir, e);
    if (s == XD_OK && a->tensors) {
        s = list_component(a, dir, e);
        free(dir);
        return s;
    }
    if (s == XD_OK)
        s = xd_model_open(&m, dir, 0, e);
    else
        return s;
    free(dir);
    if (s == XD_OK) {
        const char *name = xd_json_text(xd_json_get(m.index, "_class_name"));
        for (int i = 0; i < m.recipe->ntext; i++)
            if (m.has_text[i])
                rows[n++] = look(&m.text[i]);
        rows[n++] = look(&m.dit);
        rows[n++] = look(&m.vae);
        if (a->json)
            xd_line(a, "{\"pipeline\": \"%s\", \"recipe\": \"%s\", \"components\": [", name,
                 m.recipe->name);
        else
            xd_line(a, "%s (%s)", name, m.recipe->name);
        for (int i = 0; i < n; i++)
            say_row(a, &rows[i]);
        if (a->json)
            say_json_end(a, &m);
        else
            say_text(a, &m, rows, n);
    }
    xd_model_close(&m);
    return s;
}
