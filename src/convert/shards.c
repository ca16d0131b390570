/* shards.c - distributes the output tensors over files, and makes the headers of the files.
 *
 * As in diffusers, tensors are distributed over files in the order in which they are loaded. In
 * each file, tensors whose byte size is a multiple of ALIGN come first, so that all these tensors
 * are aligned. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "convert/inside.h"

enum { ALIGN = 64 };
static const int64_t SHARD = 5000000000;

char *xd_cvt_path(const char *dir, const char *a, const char *b, xd_err *e)
{
    char *one = a ? xd_path_join(dir, a) : strdup(dir);
    char *two = one && b ? xd_path_join(one, b) : NULL;
    char *all = b ? two : one;
    if (b)
        free(one);
    if (!all)
        xd_fail(e, XD_ENOMEM, "no memory for a path");
    return all;
}

/* ---- which file ----------------------------------------------------------------------------- */

/* Some tensors must be in the same file, such as a matrix and its scales. Returns the total bytes
 * of the tensors that must be in the same file as tensor i. Sets *end to the first tensor that may
 * be in another file. */
static size_t unit_bytes(const xd_cvt_part *c, int i, int *end)
{
    size_t bytes = 0;
    for (*end = i; *end < c->n && c->item[*end].unit == c->item[i].unit; ++*end)
        bytes += xd_bytes(c->item[*end].t);
    return bytes;
}

/* For a file that begins with tensor i, returns the first tensor of the next file. */
static int next_file(const xd_cvt_part *c, int i, int64_t max_bytes)
{
    int64_t bytes = 0;
    for (int end, first = i; i < c->n; i = end) {
        int64_t unit = (int64_t)unit_bytes(c, i, &end);
        if (i > first && bytes + unit > max_bytes)
            break;
        bytes += unit;
    }
    return i;
}

static int is_odd(const xd_cvt_item *i)
{
    return xd_bytes(i->t) % ALIGN != 0;
}

/* Compares two tensors to find their order in a file: tensors with aligned sizes come first; the
 * others are ordered by element size, and those of equal element size as in the list. */
static int by_place(const void *x, const void *y)
{
    const xd_cvt_item *a = x, *b = y;
    if (is_odd(a) != is_odd(b))
        return is_odd(a) - is_odd(b);
    size_t as = xd_dtype_size(a->t.type), bs = xd_dtype_size(b->t.type);
    if (is_odd(a) && as != bs)
        return as > bs ? -1 : 1;
    return a->unit != b->unit ? a->unit - b->unit : a->scales - b->scales;
}

/* ---- headers -------------------------------------------------------------------------------- */

/* Makes ComfyUI's metadata of quantized matrices, such as {"module": {"format":
 * "int8_tensorwise"}}. */
static void add_formats(xd_cvt_part *c)
{
    xd_text_buf *b = &c->formats;
    for (int i = 0; i < c->n; i++) {
        const xd_cvt_item *t = &c->item[i];
        char               module[512];
        if (!t->quantized && !t->fours)
            continue;
        snprintf(module, sizeof module, "%.*s", (int)(strlen(t->name) - strlen(".weight")),
                 t->name);
        xd_buf_add(b, b->len ? ", " : "{\"format_version\": \"1.0\", \"layers\": {");
        xd_buf_json_string(b, module);
        xd_buf_add(b, ": {\"format\": \"%s\"",
                   t->fours             ? "q4_0"
                   : t->t.type == XD_I8 ? "int8_tensorwise"
                                        : "float8_e4m3fn");
        if (t->rotate)
            xd_buf_add(b, ", \"convrot\": true, \"convrot_groupsize\": %d", (int)t->rotate);
        xd_buf_add(b, "}");
    }
    if (b->len)
        xd_buf_add(b, "}}");
}

/* Makes the header of a safetensors file. Every file's header has the quantization formats of all
 * matrices of the component, because programs that read the files look for them in only one
 * file. */
static xd_status make_header(const xd_cvt *v, const xd_cvt_part *c, xd_cvt_file *f, xd_err *e)
{
    xd_st_item *items = calloc((size_t)f->n + 1, sizeof *items);
    const char *meta[] = { "format", "pt", "xdit_convert", v->tag, NULL, NULL, NULL };
    size_t      bytes = 0;
    if (c->formats.len) {
        meta[4] = "_quantization_metadata";
        meta[5] = c->formats.p;
    }
    for (int i = 0; items && i < f->n; i++) {
        items[i] = (xd_st_item){ f->item[i].name, f->item[i].t };
        f->item[i].at = bytes;
        bytes += xd_bytes(f->item[i].t);
    }
    if (items && !c->formats.failed)
        xd_st_header(&f->header, &(xd_st_head){ items, f->n, meta }, ALIGN);
    int failed = !items || c->formats.failed || f->header.failed;
    f->bytes = XD_ST_SIZE + f->header.len + bytes;
    free(items);
    return failed ? xd_fail(e, XD_ENOMEM, "no memory for the header of %s", f->name) : XD_OK;
}

static xd_status name_file(const xd_cvt *v, const xd_cvt_part *c, xd_cvt_file *f, xd_err *e)
{
    char file[128];
    if (c->nfile == 1)
        snprintf(file, sizeof file, "%s.safetensors", xd_component_stem(c->p));
    else
        snprintf(file, sizeof file, "%s-%05d-of-%05d.safetensors", xd_component_stem(c->p),
                 (int)(f - c->file) + 1, c->nfile);
    f->path = xd_cvt_path(v->a->output, c->p->name, file, e);
    f->name = xd_cvt_path(c->p->name, file, NULL, e);
    return f->path && f->name ? XD_OK : XD_ENOMEM;
}

xd_status xd_cvt_shards(const xd_cvt *v, xd_cvt_part *c, xd_err *e)
{
    const int64_t max_bytes = v->a->shard_bytes ? v->a->shard_bytes : SHARD;
    xd_status     s = XD_OK;
    for (int i = 0; i < c->n; i = next_file(c, i, max_bytes))
        c->nfile++;
    if (!(c->file = calloc((size_t)c->nfile + 1, sizeof *c->file))) {
        c->nfile = 0;
        return xd_fail(e, XD_ENOMEM, "no memory for a list of files");
    }
    for (int k = 0, i = 0, end; k < c->nfile; k++, i = end) {
        end = next_file(c, i, max_bytes);
        c->file[k].item = &c->item[i];
        c->file[k].n = end - i;
    }
    add_formats(c);
    for (int k = 0; k < c->nfile; k++)
        qsort(c->file[k].item, (size_t)c->file[k].n, sizeof *c->item, by_place);
    for (int k = 0; k < c->nfile && s == XD_OK; k++)
        if ((s = name_file(v, c, &c->file[k], e)) == XD_OK)
            s = make_header(v, c, &c->file[k], e);
    return s;
}

void xd_cvt_part_free(xd_cvt_part *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->item[i].name);
    for (int k = 0; k < c->nfile; k++) {
        free(c->file[k].path);
        free(c->file[k].name);
        xd_buf_free(&c->file[k].header);
    }
    xd_buf_free(&c->formats);
    free(c->item);
    free(c->file);
    *c = (xd_cvt_part){ 0 };
}

/* ---- the index ------------------------------------------------------------------------------ */

static void make_index(const xd_cvt_part *c, xd_text_buf *b)
{
    size_t total = 0;
    for (int i = 0; i < c->n; i++)
        total += xd_bytes(c->item[i].t);
    xd_buf_add(b, "{\n  \"metadata\": {\n    \"total_size\": %zu\n  },\n", total);
    xd_buf_add(b, "  \"weight_map\": {");
    for (int k = 0; k < c->nfile; k++)
        for (int i = 0; i < c->file[k].n; i++) {
            xd_buf_add(b, "%s\n    ", k || i ? "," : "");
            xd_buf_json_string(b, c->file[k].item[i].name);
            xd_buf_add(b, ": ");
            xd_buf_json_string(b, c->file[k].name + strlen(c->p->name) + 1);
        }
    xd_buf_add(b, "\n  }\n}\n");
}

xd_status xd_cvt_index(const xd_cvt *v, const xd_cvt_part *c, xd_err *e)
{
    char        name[128];
    xd_text_buf b = { 0 };
    xd_out      o;
    if (c->nfile < 2)
        return XD_OK;
    snprintf(name, sizeof name, "%s.safetensors.index.json", xd_component_stem(c->p));
    char *path = xd_cvt_path(v->a->output, c->p->name, name, e);
    make_index(c, &b);
    xd_status s = !path      ? XD_ENOMEM
                  : b.failed ? xd_fail(e, XD_ENOMEM, "no memory for %s", path)
                             : xd_out_open(&o, path, e);
    if (s == XD_OK) {
        fwrite(b.p, 1, b.len, o.f);
        s = xd_out_commit(&o, e);
    }
    xd_buf_free(&b);
    free(path);
    return s;
}
