/* convert.c - converts a model, given by any supported files, to a directory of safetensors
 * files */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/par.h"
#include "base/record.h"
#include "base/rng.h"
#include "base/word_list.h"
#include "convert/inside.h"
#include "model/lora.h"
#include "pipeline/dtypes.h"

/* ---- arguments ------------------------------------------------------------------------------ */

static xd_status read_type(const char *flag, const char *text, int *type, xd_err *e)
{
    static const struct {
        const char *word;
        xd_dtype    type;
    } all[] = {
        { "f32", XD_F32 },    { "bf16", XD_BF16 }, { "int8", XD_I8 },
        { "fp8", XD_F8E4M3 }, { "int4", XD_Q4_0 },
    };
    *type = XD_CVT_STORED;
    if (!text)
        return XD_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(xd_word_dtype(text), all[i].word) == 0)
            *type = (int)all[i].type;
    return *type != XD_CVT_STORED ? XD_OK
                                  : xd_fail(e, XD_EINVAL,
                                            "%s is \"%s\"; it can be one of: f32 bf16 int8 fp8 "
                                            "int4",
                                            flag, text);
}

static int is_asked(const xd_cvt *v, const char *name)
{
    for (int i = 0; i < v->a->ncomponents; i++)
        if (strcmp(v->a->components[i], name) == 0)
            return 1;
    return v->a->ncomponents == 0;
}

static void add_part(xd_cvt *v, xd_component *p, int type)
{
    int is_small = p->kind == XD_KIND_TEXT && !xd_types_quantizes(p);
    int quantizes = type == XD_I8 || type == XD_F8E4M3 || type == XD_Q4_0;
    if (is_asked(v, p->name))
        v->part[v->nparts++] =
            (xd_cvt_part){ .p = p, .type = is_small && quantizes ? XD_CVT_STORED : type };
}

/* Chooses which components of the model are converted, and their data types. The VAE keeps its data
 * type, because the VAE is small and rounding would be visible in images. */
static xd_status choose_parts(xd_cvt *v, xd_err *e)
{
    int       type, text;
    xd_model *m = &v->m;
    xd_status s = read_type("weights_dtype", v->a->weights_dtype, &type, e);
    if (s == XD_OK)
        s = read_type("text_weights_dtype", v->a->text_weights_dtype, &text, e);
    if (s != XD_OK)
        return s;
    if (!v->a->text_weights_dtype && (type == XD_F32 || type == XD_BF16))
        text = type;
    for (int k = 0; k < m->recipe->ntext; k++)
        if (m->has_text[k])
            add_part(v, &m->text[k], text);
    for (int i = 0; i < xd_model_dits(m); i++)
        add_part(v, xd_model_dit(m, i), type);
    add_part(v, &m->vae, XD_CVT_STORED);
    return XD_OK;
}

/* Fails if the caller's list of components has one that the model does not have. */
static xd_status check_components(const xd_cvt *v, xd_err *e)
{
    const xd_model *m = &v->m;
    for (int i = 0; i < v->a->ncomponents; i++) {
        const char *name = v->a->components[i];
        int         found = 0;
        for (int k = 0; k < v->nparts; k++)
            found |= strcmp(v->part[k].p->name, name) == 0;
        if (found)
            continue;
        xd_text_buf all = { 0 };
        for (int k = 0; k < m->recipe->ntext; k++)
            if (m->has_text[k])
                xd_buf_add(&all, "%s, ", m->text[k].name);
        xd_buf_add(&all, "%s, ", m->dit.name);
        if (m->has_two)
            xd_buf_add(&all, "%s, ", m->dit2.name);
        xd_buf_add(&all, "%s", m->vae.name);
        xd_fail(e, XD_EINVAL, "%s has no component %s (it has %s)", m->dir, name,
                all.p ? all.p : "");
        xd_buf_free(&all);
        return XD_EINVAL;
    }
    return XD_OK;
}

/* ---- source files --------------------------------------------------------------------------- */

/* Opens the weight files of the components to convert. If LoRA files are merged, also opens the
 * components that LoRA files may change. */
static xd_status open_files(xd_cvt *v, xd_err *e)
{
    const xd_convert_args *a = v->a;
    xd_status              s = XD_OK;
    for (int i = 0; i < v->nparts && s == XD_OK; i++)
        s = xd_component_files(v->part[i].p, e);
    if (s == XD_OK && (a->nloras || a->nloras_2))
        s = xd_model_files(&v->m, e);
    v->m.lora_partial = a->lora_partial != 0;
    if (s == XD_OK)
        s = xd_loras_open(&v->m.loras, a->loras, a->nloras, &v->m, e);
    if (s == XD_OK)
        s = xd_loras_open_2(&v->m.loras_2, a->loras_2, a->nloras_2, &v->m, e);
    return s == XD_OK ? xd_model_hash(&v->m, &v->source, e) : s;
}

static const char *type_text(int type)
{
    return type == XD_CVT_STORED ? "as stored"
           : type == XD_I8       ? "int8"
           : type == XD_Q4_0     ? "int4"
                                 : xd_dtype_name((xd_dtype)type);
}

/* Describes the conversion's arguments as text. An interrupted conversion can only be resumed with
 * the same arguments. */
static xd_status describe(xd_cvt *v, xd_err *e)
{
    for (int i = 0; i < v->nparts; i++)
        xd_buf_add(&v->asked, "%s %s, ", v->part[i].p->name, type_text(v->part[i].type));
    if (v->a->shard_bytes)
        xd_buf_add(&v->asked, "files of %" PRId64 " bytes, ", v->a->shard_bytes);
    xd_buf_add(&v->asked, "xdit %s", xd_version());
    if (v->asked.failed)
        return xd_fail(e, XD_ENOMEM, "no memory for the arguments");
    uint64_t h = xd_hash_mix(v->source, xd_hash_text(v->asked.p));
    snprintf(v->tag, sizeof v->tag, "%016llx", (unsigned long long)h);
    return XD_OK;
}

/* ---- the conversion ------------------------------------------------------------------------- */

void xd_cvt_progress(xd_cvt *v, const char *file, size_t bytes)
{
    v->done += (double)bytes;
    if (v->a->on_progress)
        v->a->on_progress(v->a->cookie, file, v->done, v->total);
}

static xd_status write_part(xd_cvt *v, const xd_cvt_part *c, xd_err *e)
{
    xd_status s = XD_OK;
    for (int k = 0; k < c->nfile && s == XD_OK; k++)
        if (!c->file[k].done)
            s = xd_cvt_write(v, c, &c->file[k], e);
    return s == XD_OK ? xd_cvt_index(v, c, e) : s;
}

/* Writes all output files. model_index.json is written last, because a directory without this file
 * is not a model. */
static xd_status write_all(xd_cvt *v, xd_err *e)
{
    xd_status s = xd_cvt_copy_files(v, 0, e);
    for (int i = 0; i < v->nparts && s == XD_OK; i++)
        s = write_part(v, &v->part[i], e);
    if (s == XD_OK)
        s = xd_cvt_copy_files(v, 1, e);
    return s == XD_OK ? xd_cvt_end(v, e) : s;
}

static xd_status convert(xd_cvt *v, xd_err *e)
{
    const xd_convert_args *a = v->a;
    xd_status s = xd_model_open_with(&v->m, a->model, XD_SIDE_SLOT,
                                     &(xd_weight_files){ .v = a->files, .n = a->nfiles }, NULL, e);
    if (s == XD_OK)
        s = choose_parts(v, e);
    if (s == XD_OK)
        s = check_components(v, e);
    if (s == XD_OK)
        s = open_files(v, e);
    for (int i = 0; i < v->nparts && s == XD_OK; i++)
        s = xd_cvt_list(&v->part[i], e);
    if (s == XD_OK)
        s = describe(v, e);
    for (int i = 0; i < v->nparts && s == XD_OK; i++)
        s = xd_cvt_shards(v, &v->part[i], e);
    if (s == XD_OK)
        s = xd_cvt_list_copies(v, e);
    if (s == XD_OK)
        s = xd_cvt_begin(v, e);
    return s == XD_OK ? write_all(v, e) : s;
}

void xd_convert_args_init_size(xd_convert_args *a, size_t size)
{
    xd_record_init(a, size);
}

static xd_status check_args(const xd_convert_args *a, xd_err *e)
{
    if (!a->model || !a->output || !*a->output)
        return xd_fail(e, XD_EINVAL, "a conversion needs a model and an output");
    if (a->threads < 0 || a->threads > 4096)
        return xd_fail(e, XD_EINVAL, "threads is %d; it must be from 1 to 4096", a->threads);
    if (a->shard_bytes < 0)
        return xd_fail(e, XD_EINVAL, "shard_bytes is %" PRId64 "; it must not be negative",
                       a->shard_bytes);
    return XD_OK;
}

xd_status xd_convert_model(const xd_convert_args *args, xd_err *e)
{
    xd_convert_args a;
    xd_convert_args_init(&a);
    xd_status s = xd_record_read(&a, sizeof a, args, "xd_convert_args", e);
    if (s == XD_OK)
        s = check_args(&a, e);
    if (s != XD_OK)
        return s;
    const xd_logger  log = { a.log, a.cookie, a.log_level };
    const xd_logger *before = xd_log_enter(&log);
    xd_cvt           v = { .a = &a };
    char            *output = strdup(a.output);
    for (size_t n = output ? strlen(output) : 0; n > 1 && output[n - 1] == '/';)
        output[--n] = 0;
    a.output = output;
    xd_par_set(a.threads);
    s = output ? convert(&v, e) : xd_fail(e, XD_ENOMEM, "no memory for a path");
    xd_cvt_copies_free(&v);
    for (int i = 0; i < v.nparts; i++)
        xd_cvt_part_free(&v.part[i]);
    xd_buf_free(&v.asked);
    xd_model_close(&v.m);
    free(output);
    xd_log_enter(before);
    return s;
}
