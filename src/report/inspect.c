/* inspect.c - prints the components, sizes and errors of a model directory */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/record.h"
#include "model/component.h"
#include "model/model.h"
#include "report/inspect_device.h"
#include "report/inspect_file.h"
#include "report/inspect_uses.h"

void xd_inspect_line(const xd_inspect_args *a, const char *fmt, ...)
{
    xd_text_buf b = { 0 };
    va_list     ap;
    va_start(ap, fmt);
    xd_buf_vadd(&b, fmt, ap);
    va_end(ap);
    if (a->line && b.p && !b.failed) {
        if (!a->json) /* lines of JSON have escaped names already */
            xd_one_line(b.p);
        a->line(a->cookie, b.p);
    }
    xd_buf_free(&b);
}

/* ---- tensors of one component ------------------------------------------------------------- */

static int by_first_name(const void *x, const void *y)
{
    return strcmp(((const xd_declared *)x)->name, ((const xd_declared *)y)->name);
}

static xd_kind kind_of(const char *component)
{
    if (strncmp(component, "text_encoder", 12) == 0 || strcmp(component, "image_encoder") == 0 ||
        strcmp(component, "connectors") == 0)
        return XD_KIND_TEXT;
    if (strcmp(component, "audio_vae") == 0 || strcmp(component, "vocoder") == 0)
        return XD_KIND_AUDIO;
    return strncmp(component, "vae", 3) == 0 ? XD_KIND_VAE : XD_KIND_DIT;
}

void xd_inspect_tensor(const xd_inspect_args *a, const char *name, int nd, const int64_t *d,
                       int unread, int first)
{
    char        shape[96];
    xd_text_buf b = { 0 };
    if (!a->json) {
        xd_inspect_line(a, "%s %s", name, xd_shape_text(nd, d, shape, sizeof shape));
        return;
    }
    xd_buf_add(&b, "  %s{\"name\": ", first ? "" : ", ");
    xd_buf_json_string(&b, name);
    xd_buf_add(&b, ", \"shape\": [");
    for (int i = 0; i < nd; i++)
        xd_buf_add(&b, "%s%lld", i ? ", " : "", (long long)d[i]);
    xd_buf_add(&b, "]%s}", unread ? ", \"read\": false" : "");
    if (!b.failed)
        xd_inspect_line(a, "%s", b.p);
    xd_buf_free(&b);
}

static void print_list(const xd_inspect_args *a, xd_decl *d)
{
    for (int i = 0; i < d->nlist; i++)
        d->list[i].name[strcspn(d->list[i].name, "|")] = 0;
    qsort(d->list, (size_t)d->nlist, sizeof *d->list, by_first_name);
    if (a->json)
        xd_inspect_line(a, "{\"tensors\": [");
    for (int i = 0; i < d->nlist; i++)
        xd_inspect_tensor(a, d->list[i].name, d->list[i].nd, d->list[i].d, d->list[i].unread,
                          i == 0);
    if (a->json)
        xd_inspect_line(a, "]}");
}

static const xd_recipe *recipe_in(const xd_json *index)
{
    return xd_recipe_find(xd_json_text(xd_json_get(index, "_class_name")), index);
}

static xd_status list_component(const xd_inspect_args *a, const char *dir, xd_err *e)
{
    xd_component p;
    xd_err       lack = { 0 };
    xd_decl      d = { .visit = XD_VISIT_LIST, .whole = 1, .tp = 1, .err = &lack };
    char        *path = xd_model_index_path(dir);
    xd_json     *index = NULL;
    xd_status    s = XD_OK;
    if (path && xd_file_exists(path))
        s = xd_json_read(&index, path, e);
    free(path);
    if (s != XD_OK)
        return s;
    s = xd_component_open(&p, dir, a->tensors, kind_of(a->tensors),
                          xd_json_text(xd_json_at(xd_json_get(index, a->tensors), 1)), e);
    if (s == XD_OK && xd_recipe_sees(recipe_in(index), a->tensors))
        s = xd_component_add_vision(&p, e);
    if (s == XD_OK && xd_net_visit(&p.w->net, &d) != XD_OK)
        s = xd_fail(e, lack.code, "%s", lack.msg);
    if (s == XD_OK)
        print_list(a, &d);
    xd_decl_free(&d);
    xd_component_close(&p);
    xd_json_free(&index);
    return s;
}

/* ---- missing and invalid parts ------------------------------------------------------------- */

/* Max number of errors: one for each text encoder, tokenizer, transformer, the VAE, the networks of
 * audio, the scheduler, and the complete model. */
enum { MOST = 2 * XD_MAXTEXT + XD_MAXAUDIO + 5 };

typedef struct row { /* one line of the report: a component */
    xd_component *p;
    double        numbers; /* number of parameters */
    size_t        bytes;   /* bytes of the component's weight files */
    char          types[256];
    xd_err        lack;
} row;

typedef struct view {
    const xd_inspect_args *a;
    xd_model               m;
    row                    rows[XD_MAXTEXT + XD_MAXAUDIO + 3];
    int                    n;
    xd_err tok[XD_MAXTEXT], sched; /* errors in the files of tokenizers and scheduler */
    xd_err all;                    /* error in the combination of the model's components */
    char   device[2048];           /* description of the use of a GPU's memory, or empty */
} view;

/* Passes each error of the model to `say`; returns the number of errors. Sets *first to the first
 * error. */
static int print_problems(const view *v, void (*say)(const view *v, const xd_err *e, int i),
                          const xd_err **first)
{
    const xd_err *list[MOST];
    int           n = 0, k = 0;
    for (int i = 0; i < v->n; i++)
        list[n++] = &v->rows[i].lack;
    for (int i = 0; i < v->m.recipe->ntext; i++)
        list[n++] = &v->tok[i];
    list[n++] = &v->sched;
    list[n++] = &v->all;
    for (int i = 0; i < n; i++) {
        int said = list[i]->code == XD_OK;
        for (int j = 0; j < i; j++)
            said |= strcmp(list[i]->msg, list[j]->msg) == 0;
        if (said)
            continue;
        if (first && !k)
            *first = list[i];
        if (say)
            say(v, list[i], k);
        k++;
    }
    return k;
}

static const char *class_in_index(const xd_model *m, const char *component)
{
    return xd_json_text(xd_json_at(xd_json_get(m->index, component), 1));
}

/* Writes the types of a file's tensors, such as "bf16+f32". For files with block types also writes
 * the number of tensors per type. */
static void types_of(const xd_st *st, char *out, size_t size)
{
    int64_t seen[XD_NDTYPES] = { 0 };
    int     blocks = 0;
    out[0] = 0;
    for (int64_t i = 0; i < xd_st_count(st); i++) {
        seen[xd_st_shape(st, i).type]++;
        blocks |= xd_dtype_block(xd_st_shape(st, i).type) > 1;
    }
    for (int t = 0; t < XD_NDTYPES; t++) {
        size_t at = strlen(out);
        if (seen[t] && blocks)
            snprintf(out + at, size - at, "%s%s (%lld)", at ? " + " : "",
                     xd_dtype_name((xd_dtype)t), (long long)seen[t]);
        else if (seen[t])
            snprintf(out + at, size - at, "%s%s", at ? "+" : "", xd_dtype_name((xd_dtype)t));
    }
}

/* Adds a component to the report. `whole` is 1 if all configs were read. If `whole` is 0, opens
 * each component separately, to report its errors. */
static void check_component(view *v, xd_component *p, const char *name, int whole)
{
    row      *r = &v->rows[v->n++];
    xd_status s = XD_OK;
    *r = (row){ .p = p };
    if (!whole) {
        xd_component_close(p);
        s = xd_component_open(p, v->m.dir, name, kind_of(name), class_in_index(&v->m, name),
                              &r->lack);
        if (s == XD_OK && xd_recipe_sees(v->m.recipe, name))
            s = xd_component_add_vision(p, &r->lack);
    }
    for (int i = 0; s == XD_OK && i < p->nlist; i++) {
        double n = 1;
        for (int k = 0; k < p->list[i].nd; k++)
            n *= (double)p->list[i].d[k];
        r->numbers += n;
    }
    if (s == XD_OK)
        xd_component_files(p, &r->lack);
    if (p->files) {
        r->bytes = xd_st_bytes(p->files);
        types_of(p->files, r->types, sizeof r->types);
    }
}

static const char *scheduler_of(const xd_model *m)
{
    const char *name = xd_json_text(xd_json_get(m->sched, "_class_name"));
    return name ? name : "(none)";
}

static int has_file(const char *model, const char *folder, const char *name)
{
    char *dir = xd_path_join(model, folder), *path = dir ? xd_path_join(dir, name) : NULL;
    int   has = path && xd_file_exists(path);
    free(dir);
    free(path);
    return has;
}

static void check_scheduler(view *v)
{
    const xd_model   *m = &v->m;
    const xd_sampler *sampler = xd_sampler_find(scheduler_of(m));
    xd_sched_cfg      cfg;
    if (!m->sched && has_file(m->dir, "scheduler", "scheduler_config.json"))
        /* The scheduler's config exists but is not JSON. A model's scheduler config is read first,
         * so v->all has the error of this config. */
        v->sched = v->all;
    else if (xd_model_named_sched(m, &v->sched) == XD_OK && sampler)
        xd_model_sched(m, sampler, &cfg, &v->sched);
}

static void check_all(view *v, const char *dir)
{
    xd_model         *m = &v->m;
    xd_component_file sides[XD_MAXSIDES + 2];
    xd_weight_files   given = {
        .v = sides, .n = xd_model_side_files(sides, v->a->controlnets, v->a->ncontrolnets)
    };
    if (v->a->redux)
        sides[given.n++] = (xd_component_file){ XD_PRIOR_SLOT, v->a->redux };
    int whole = xd_model_open_with(m, dir, NULL, &given, NULL, &v->all) == XD_OK;
    if (!m->recipe)
        return;
    for (int i = 0; i < m->recipe->ntext; i++)
        if (m->has_text[i])
            check_component(v, &m->text[i], m->recipe->text[i].folder, whole);
    check_component(v, &m->dit, m->only_low ? m->recipe->dit2 : m->recipe->dit, whole);
    if (m->has_two)
        check_component(v, &m->dit2, m->recipe->dit2, whole);
    check_component(v, &m->vae, m->recipe->vae, whole);
    for (int i = 0; i < XD_MAXAUDIO && m->recipe->audio[i]; i++)
        if (!whole || m->audio[i].audio)
            check_component(v, &m->audio[i], m->recipe->audio[i], whole);
    for (int i = 0; i < m->recipe->ntext; i++)
        if (m->has_text[i])
            xd_model_tok(m, i, &v->tok[i]);
    check_scheduler(v);
}

/* ---- the summary -------------------------------------------------------------------------- */

/* Returns the folder of the tokenizer or image processor of text encoder i; NULL: none. */
static const char *folder_before(const xd_model *m, int i)
{
    const xd_text_use *u = &m->recipe->text[i];
    return u->tokenizer ? u->tokenizer : u->processor;
}

static const char *tokenizer_of(const xd_model *m, int i)
{
    static const char processor[] = "preprocessor_config.json";
    const char       *folder = folder_before(m, i);
    if (!m->recipe->text[i].tokenizer)
        return folder && has_file(xd_model_text_dir(m, i), folder, processor) ? processor : NULL;
    if (has_file(m->dir, folder, "spiece.model"))
        return "spiece.model";
    if (has_file(m->dir, folder, "vocab.json") && has_file(m->dir, folder, "merges.txt"))
        return "vocab.json";
    if (has_file(m->dir, folder, "vocab.txt"))
        return "vocab.txt";
    return has_file(m->dir, folder, "tokenizer.json") ? "tokenizer.json" : NULL;
}

static const char *class_of(const xd_component *p)
{
    return p->class_name ? p->class_name : "-";
}

static void write_text(const view *v, const xd_err *e, int i)
{
    (void)i;
    xd_inspect_line(v->a, "%s: %s", e->code == XD_EIO ? "missing" : "invalid", e->msg);
}

static void write_row(const xd_inspect_args *a, const row *r)
{
    char bytes[32] = "-";
    if (r->p->files)
        snprintf(bytes, sizeof bytes, "%.3f GB", (double)r->bytes / 1e9);
    xd_inspect_line(a, "%-15s %-26s %7d %10.1f M %12s  %s", r->p->name, class_of(r->p), r->p->nlist,
                    r->numbers / 1e6, bytes, r->p->files ? r->types : "no weights");
}

static void write_summary(const view *v)
{
    const xd_inspect_args *a = v->a;
    const xd_model        *m = &v->m;
    const xd_dit_info     *d = &m->dit_info;
    const char            *file = scheduler_of(m);
    xd_inspect_line(a, "%s (%s)", xd_json_text(xd_json_get(m->index, "_class_name")),
                    m->recipe->name);
    for (int i = 0; i < v->n; i++)
        write_row(a, &v->rows[i]);
    xd_inspect_line(a, "%-15s %-26s %s", "scheduler", file,
                    xd_sampler_find(file) ? "" : "(unknown: choose one with --scheduler)");
    for (int i = 0; i < m->recipe->ntext; i++) {
        const char *tok = tokenizer_of(m, i);
        if (m->has_text[i] && folder_before(m, i))
            xd_inspect_line(a, "%-15s %-26s", folder_before(m, i), tok ? tok : "missing");
    }
    if (v->all.code == XD_OK)
        xd_inspect_line(a,
                        "%d blocks, %d heads of %d, width %lld; default size %lld x %lld, %d "
                        "steps, guidance %.3g, %d text tokens",
                        d->nlayers, d->heads, d->head_dim, (long long)d->dim,
                        (long long)(d->sample[2] * m->vae_info.cell[2]),
                        (long long)(d->sample[1] * m->vae_info.cell[1]), m->usual.steps,
                        m->usual.guidance, m->usual.max_text);
    print_problems(v, write_text, NULL);
    if (v->device[0])
        xd_inspect_line(a, "%s", v->device);
}

/* ---- JSON --------------------------------------------------------------------- */

static void write_line(const xd_inspect_args *a, xd_text_buf *b)
{
    xd_inspect_line(a, "%s", b->failed || !b->p ? "" : b->p);
    xd_buf_free(b);
}

static void json_row(const xd_inspect_args *a, const row *r)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "  {\"component\": \"%s\", \"class\": ", r->p->name);
    xd_buf_json_string(&b, r->p->class_name ? r->p->class_name : "");
    xd_buf_add(
        &b,
        ", \"network\": \"%s\", \"tensors\": %d, \"parameters\": %.0f, \"bytes\": %zu, \"dtype\": ",
        r->p->def ? r->p->def->name : "", r->p->nlist, r->numbers, r->bytes);
    xd_buf_json_string(&b, r->types);
    xd_buf_add(&b, ", \"missing\": ");
    xd_buf_json_string(&b, r->lack.msg);
    xd_buf_add(&b, "},");
    write_line(a, &b);
}

static void json_problem(const view *v, const xd_err *e, int i)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "  %s", i ? ", " : "");
    xd_buf_json_string(&b, e->msg);
    write_line(v->a, &b);
}

static void json_summary(const view *v)
{
    const xd_inspect_args *a = v->a;
    const xd_model        *m = &v->m;
    xd_text_buf            b = { 0 };
    xd_buf_add(&b, "{\"pipeline\": ");
    xd_buf_json_string(&b, xd_json_text(xd_json_get(m->index, "_class_name")));
    xd_buf_add(&b, ", \"recipe\": \"%s\",", m->recipe->name);
    if (v->all.code == XD_OK) {
        xd_buf_add(&b, "\n  \"uses\": {");
        xd_inspect_uses(&b, m);
        xd_buf_add(&b, "},\n ");
    }
    xd_buf_add(&b, " \"components\": [");
    write_line(a, &b);
    for (int i = 0; i < v->n; i++)
        json_row(a, &v->rows[i]);
    xd_buf_add(&b, "  {\"component\": \"scheduler\", \"class\": ");
    xd_buf_json_string(&b, scheduler_of(m));
    xd_buf_add(
        &b, ", \"known\": %s, \"missing\": ", xd_sampler_find(scheduler_of(m)) ? "true" : "false");
    xd_buf_json_string(&b, v->sched.msg);
    xd_buf_add(&b, "}");
    for (int i = 0; i < m->recipe->ntext; i++) {
        const char *tok = tokenizer_of(m, i);
        if (!m->has_text[i] || !folder_before(m, i))
            continue;
        xd_buf_add(&b, ",\n  {\"component\": \"%s\", \"file\": \"%s\", \"missing\": ",
                   folder_before(m, i), tok ? tok : "");
        xd_buf_json_string(&b, v->tok[i].msg);
        xd_buf_add(&b, "}");
    }
    write_line(a, &b);
    xd_inspect_line(a, "], \"missing\": [");
    print_problems(v, json_problem, NULL);
    if (v->device[0])
        xd_inspect_line(a, "], \"device\": %s}", v->device);
    else
        xd_inspect_line(a, "]}");
}

static xd_status inspect_model(const xd_inspect_args *a, const char *dir, xd_err *e)
{
    const xd_err *first = NULL;
    xd_status     s = XD_OK;
    view         *v = calloc(1, sizeof *v);
    if (!v)
        return xd_fail(e, XD_ENOMEM, "no memory to inspect %s", dir);
    v->a = a;
    check_all(v, dir);
    if (!v->m.recipe) {
        s = xd_fail(e, v->all.code, "%s", v->all.msg);
    } else {
        if (v->all.code == XD_OK)
            xd_inspect_device(dir, a->json, v->device, sizeof v->device);
        if (a->json)
            json_summary(v);
        else
            write_summary(v);
        int n = print_problems(v, NULL, &first);
        if (n)
            s = xd_fail(e, first->code == XD_EINVAL ? XD_EFORMAT : first->code,
                        "the model in %s is incomplete or invalid (%d problem%s): %s%s", dir, n,
                        n == 1 ? "" : "s", first->msg, n == 1 ? "" : "; ...");
    }
    xd_model_close(&v->m);
    free(v);
    return s;
}

void xd_inspect_args_init_size(xd_inspect_args *a, size_t size)
{
    xd_record_init(a, size);
}

xd_status xd_inspect(const xd_inspect_args *args, xd_err *e)
{
    xd_inspect_args a;
    char           *dir = NULL;
    xd_inspect_args_init(&a);
    xd_status s = xd_record_read(&a, sizeof a, args, "xd_inspect_args", e);
    if (s != XD_OK)
        return s;
    if (a.model && xd_file_exists(a.model) && !xd_file_is_dir(a.model))
        return xd_inspect_file(&a, e);
    s = xd_model_find(a.model, &dir, e);
    if (s == XD_OK)
        s = a.tensors ? list_component(&a, dir, e) : inspect_model(&a, dir, e);
    free(dir);
    return s;
}
