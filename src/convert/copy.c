/* copy.c - copies the files that are not converted to the output: configs, tokenizers, the
 * scheduler, and components that are not converted.
 *
 * From the directory of a converted component, all files except weights are copied. From other
 * directories that model_index.json or the pipeline names, all files are copied. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "convert/inside.h"

enum { DEPTH = 3, CHUNK = 1 << 20 };

/* ---- lists ---------------------------------------------------------------------------------- */

static int ends_with_any(const char *name, const char *const *ends)
{
    size_t n = strlen(name);
    for (; *ends; ends++)
        if (n >= strlen(*ends) && strcmp(name + n - strlen(*ends), *ends) == 0)
            return 1;
    return 0;
}

static int is_weights(const char *name)
{
    static const char *const ends[] = { ".safetensors",
                                        ".safetensors.index.json",
                                        ".gguf",
                                        ".bin",
                                        ".bin.index.json",
                                        ".pt",
                                        ".pth",
                                        NULL };
    return ends_with_any(name, ends);
}

/* Returns 1 for files that are never copied: hidden files, and weights in formats of other
 * programs. */
static int is_unused_format(const char *name)
{
    static const char *const ends[] = { ".ckpt",      ".h5",     ".msgpack", ".onnx",
                                        ".onnx_data", ".tflite", NULL };
    return name[0] == '.' || ends_with_any(name, ends);
}

static xd_status add_copy(xd_cvt *v, const char *below, size_t bytes, xd_err *e)
{
    for (int i = 0; i < v->ncopies; i++)
        if (strcmp(v->copy[i].to + strlen(v->a->output) + 1, below) == 0)
            return XD_OK;
    xd_cvt_copy *all = realloc(v->copy, (size_t)(v->ncopies + 1) * sizeof *all);
    if (!all)
        return xd_fail(e, XD_ENOMEM, "no memory for a list of files");
    v->copy = all;
    xd_cvt_copy *c = &all[v->ncopies++];
    *c = (xd_cvt_copy){ .from = xd_cvt_path(v->m.dir, below, NULL, e),
                        .to = xd_cvt_path(v->a->output, below, NULL, e),
                        .bytes = bytes };
    return c->from && c->to ? XD_OK : XD_ENOMEM;
}

static xd_status add_folder(xd_cvt *v, const char *below, int weights, int depth, xd_err *e);

static xd_status add_entry(xd_cvt *v, const char *below, const char *name, int weights, int depth,
                           xd_err *e)
{
    struct stat st;
    char       *rel = xd_cvt_path(below, name, NULL, e);
    char       *path = rel ? xd_cvt_path(v->m.dir, rel, NULL, e) : NULL;
    xd_status   s = path ? XD_OK : XD_ENOMEM;
    if (s == XD_OK && stat(path, &st) == 0 && !is_unused_format(name)) {
        if (S_ISDIR(st.st_mode) && depth < DEPTH)
            s = add_folder(v, rel, weights, depth + 1, e);
        else if (S_ISREG(st.st_mode) && (weights || !is_weights(name)))
            s = add_copy(v, rel, (size_t)st.st_size, e);
    }
    free(path);
    free(rel);
    return s;
}

/* Lists the files of a directory that are copied. If the directory does not exist, the list is
 * empty. */
static xd_status add_folder(xd_cvt *v, const char *below, int weights, int depth, xd_err *e)
{
    char     *path = xd_cvt_path(v->m.dir, below, NULL, e);
    DIR      *d = path ? opendir(path) : NULL;
    xd_status s = path ? XD_OK : XD_ENOMEM;
    for (struct dirent *i; d && s == XD_OK && (i = readdir(d));)
        s = add_entry(v, below, i->d_name, weights, depth, e);
    if (d)
        closedir(d);
    free(path);
    return s;
}

static int is_part(const xd_cvt *v, const char *folder)
{
    for (int i = 0; i < v->nparts; i++)
        if (strcmp(v->part[i].p->name, folder) == 0)
            return 1;
    return 0;
}

static xd_status add_other(xd_cvt *v, const char *folder, xd_err *e)
{
    return !folder || is_part(v, folder) ? XD_OK : add_folder(v, folder, 1, 1, e);
}

/* Lists the files of the model's top directory that are copied: index, licence and description. */
static xd_status add_top(xd_cvt *v, xd_err *e)
{
    static const char *const begins[] = { "LICENSE", "NOTICE", "README", NULL };
    struct stat              st;
    DIR                     *d = opendir(v->m.dir);
    xd_status                s = XD_OK;
    for (struct dirent *i; d && s == XD_OK && (i = readdir(d));) {
        int wanted = xd_is_model_index(i->d_name);
        for (int k = 0; begins[k]; k++)
            wanted |= strncmp(i->d_name, begins[k], strlen(begins[k])) == 0;
        char *path = wanted ? xd_cvt_path(v->m.dir, i->d_name, NULL, e) : NULL;
        if (path && stat(path, &st) == 0 && S_ISREG(st.st_mode))
            s = add_copy(v, i->d_name, (size_t)st.st_size, e);
        free(path);
    }
    if (d)
        closedir(d);
    return s;
}

/* Lists the files of the directories that model_index.json names, and of those that the pipeline
 * reads. */
static xd_status add_others(xd_cvt *v, xd_err *e)
{
    const xd_recipe *r = v->m.recipe;
    xd_status        s = add_other(v, "scheduler", e);
    for (const xd_json *i = xd_json_first(v->m.index); i && s == XD_OK; i = xd_json_next(i))
        if (xd_json_text(xd_json_at(i, 1)) && !strchr(xd_json_key(i), '/'))
            s = add_other(v, xd_json_key(i), e);
    for (int k = 0; k < r->ntext && s == XD_OK; k++) {
        s = add_other(v, r->text[k].tokenizer, e);
        if (s == XD_OK)
            s = add_other(v, r->text[k].processor, e);
    }
    return s;
}

xd_status xd_cvt_list_copies(xd_cvt *v, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; i < v->nparts && s == XD_OK; i++) {
        const char *name = v->part[i].p->name;
        s = add_folder(v, name, 0, 1, e);
        for (int k = 0; k < v->ncopies && s == XD_OK; k++) {
            const char *to = v->copy[k].to + strlen(v->a->output) + 1;
            v->copy[k].config |= strncmp(to, name, strlen(name)) == 0 &&
                                 strcmp(to + strlen(name), "/config.json") == 0;
        }
    }
    if (s == XD_OK && !v->a->ncomponents)
        s = add_others(v, e);
    return s == XD_OK && !v->a->ncomponents ? add_top(v, e) : s;
}

void xd_cvt_copies_free(xd_cvt *v)
{
    for (int i = 0; i < v->ncopies; i++) {
        free(v->copy[i].from);
        free(v->copy[i].to);
    }
    free(v->copy);
    v->copy = NULL;
    v->ncopies = 0;
}

/* ---- copies --------------------------------------------------------------------------------- */

/* Creates the parent directories of an output file. */
static xd_status make_folders(const xd_cvt *v, char *path, xd_err *e)
{
    for (char *slash = path + strlen(v->a->output); (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        int failed = mkdir(path, 0777) != 0 && !xd_file_is_dir(path);
        if (failed)
            xd_fail(e, XD_EIO, "cannot make the folder %s: %s", path, strerror(errno));
        *slash = '/';
        if (failed)
            return XD_EIO;
    }
    return XD_OK;
}

static xd_status copy_bytes(xd_cvt *v, FILE *in, FILE *out, const xd_cvt_copy *c, xd_err *e)
{
    char     *buf = malloc(CHUNK);
    xd_status s = buf ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory to copy %s", c->from);
    for (size_t n; s == XD_OK && (n = fread(buf, 1, CHUNK, in)) > 0;) {
        if (fwrite(buf, 1, n, out) != n)
            s = xd_fail(e, XD_EIO, "cannot write %s: %s", c->to, strerror(errno));
        xd_cvt_progress(v, c->to + strlen(v->a->output) + 1, n);
    }
    if (s == XD_OK && ferror(in))
        s = xd_fail(e, XD_EIO, "cannot read %s: %s", c->from, strerror(errno));
    free(buf);
    return s;
}

/* Reads a config and removes its quantization_config, because the converted weights are not
 * quantized in that way. If the config has no quantization_config, the output buffer stays
 * empty. */
static xd_status read_config(const xd_cvt_copy *c, xd_text_buf *b, xd_err *e)
{
    static const char key[] = "quantization_config";
    xd_json          *j = NULL;
    int               n = 0;
    xd_status         s = xd_json_read(&j, c->from, e);
    for (const xd_json *i = xd_json_get(j, key) ? xd_json_first(j) : NULL; i; i = xd_json_next(i)) {
        if (strcmp(xd_json_key(i), key) == 0)
            continue;
        xd_buf_add(b, "%s\n  ", n++ ? "," : "{");
        xd_buf_json_string(b, xd_json_key(i));
        xd_buf_add(b, ": ");
        xd_buf_json(b, i);
    }
    if (n)
        xd_buf_add(b, "\n}\n");
    xd_json_free(&j);
    return s == XD_OK && b->failed ? xd_fail(e, XD_ENOMEM, "no memory for %s", c->from) : s;
}

static xd_status copy_file(xd_cvt *v, const xd_cvt_copy *c, xd_err *e)
{
    xd_text_buf config = { 0 };
    xd_out      o;
    FILE       *in = fopen(c->from, "rb");
    xd_status   s = in ? make_folders(v, c->to, e)
                       : xd_fail(e, XD_EIO, "cannot open %s: %s", c->from, strerror(errno));
    if (s == XD_OK && c->config)
        s = read_config(c, &config, e);
    if (s == XD_OK && (s = xd_out_open(&o, c->to, e)) == XD_OK) {
        if (config.len)
            fwrite(config.p, 1, config.len, o.f);
        else
            s = copy_bytes(v, in, o.f, c, e);
        if (s == XD_OK)
            s = xd_out_commit(&o, e);
        else
            xd_out_abort(&o);
    }
    xd_buf_free(&config);
    if (in)
        fclose(in);
    return s;
}

xd_status xd_cvt_copy_files(xd_cvt *v, int last, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; i < v->ncopies && s == XD_OK; i++)
        if (last == xd_is_model_index(v->copy[i].to + strlen(v->a->output) + 1))
            s = copy_file(v, &v->copy[i], e);
    return s;
}
