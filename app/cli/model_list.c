/* model_list.c - finds models of this machine by their model_index.json, and weight files by their
 * extensions; see model_list.h */
#include "cli/model_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "xdit/tools.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(((const xd_listed *)a)->name, ((const xd_listed *)b)->name);
}

static xd_status add(xd_model_list *l, xd_listed row, xd_err *e)
{
    xd_listed *v = realloc(l->v, (size_t)(l->n + 1) * sizeof *v);
    if (!v)
        return xd_fail(e, XD_ENOMEM, "no memory for a list of models");
    l->v = v;
    row.name = strdup(row.name), row.dir = strdup(row.dir);
    v[l->n] = row;
    l->n++;
    return v[l->n - 1].name && v[l->n - 1].dir
               ? XD_OK
               : xd_fail(e, XD_ENOMEM, "no memory for a list of models");
}

static int is_model(const char *dir)
{
    char *path = xd_model_index_path(dir);
    int   is = path && xd_file_exists(path);
    free(path);
    return is;
}

/* Calls the function `each` with the name of every entry of a directory; skips names that begin
 * with a dot. Returns the number of calls; -1: the directory cannot be read. */
static int for_entries(const char *dir, void (*each)(void *cookie, const char *name), void *cookie)
{
    DIR *d = opendir(dir);
    int  n = 0;
    if (!d)
        return -1;
    for (struct dirent *i; (i = readdir(d));)
        if (i->d_name[0] != '.') {
            each(cookie, i->d_name);
            n++;
        }
    closedir(d);
    return n;
}

/* ---- models of the Hugging Face cache -------------------------------------------------------- */

typedef struct search {
    xd_model_list *l;
    const char    *root;
    int            deeper; /* 1: subdirectories that are not models are searched, too */
    xd_status      s;
    xd_err        *e;
} search;

static void find_cache(void *cookie, const char *name, const char *value)
{
    char **cache = cookie;
    if (strcmp(name, "hub") == 0 && !*cache)
        *cache = strdup(value);
}

/* Converts the folder name "models--org--name" of the Hugging Face cache to the model name
 * "org/name". */
static int repo_of(const char *folder, char *id, size_t size)
{
    static const char before[] = "models--";
    if (strncmp(folder, before, sizeof before - 1) != 0)
        return 0;
    const char *org = folder + sizeof before - 1, *sep = strstr(org, "--");
    if (!sep || sep == org || !sep[2])
        return 0;
    return snprintf(id, size, "%.*s/%s", (int)(sep - org), org, sep + 2) < (int)size;
}

static void add_repo(void *cookie, const char *folder)
{
    search *f = cookie;
    char    id[512], dir[4096], ref[128] = "main", *text = NULL;
    size_t  n;
    if (f->s != XD_OK || !repo_of(folder, id, sizeof id))
        return;
    snprintf(dir, sizeof dir, "%s/%s/refs/main", f->root, folder);
    if (xd_file_read(dir, sizeof ref - 1, &text, &n, NULL) == XD_OK)
        snprintf(ref, sizeof ref, "%.*s", (int)strcspn(text, "\r\n "), text);
    free(text);
    if (snprintf(dir, sizeof dir, "%s/%s/snapshots/%s", f->root, folder, ref) < (int)sizeof dir &&
        is_model(dir))
        f->s = add(f->l, (xd_listed){ .name = id, .dir = dir, .hub = 1 }, f->e);
}

xd_status xd_model_list_hub(xd_model_list *l, char *cache, size_t size, xd_err *e)
{
    char  *root = NULL;
    search f = { .l = l, .e = e };
    int    first = l->n;
    xd_about(find_cache, &root);
    if (cache)
        snprintf(cache, size, "%s", root ? root : "");
    f.root = root;
    if (root)
        for_entries(root, add_repo, &f);
    if (l->n > first)
        qsort(l->v + first, (size_t)(l->n - first), sizeof *l->v, by_name);
    free(root);
    return f.s;
}

/* ---- models in a directory ------------------------------------------------------------------- */

static int is_weight_file(const char *path)
{
    const char *end = strrchr(path, '.');
    return end && (strcmp(end, ".safetensors") == 0 || strcmp(end, ".gguf") == 0) &&
           xd_file_exists(path) && !xd_file_is_dir(path);
}

static void add_entry(void *cookie, const char *name)
{
    search *f = cookie;
    char   *dir = f->s == XD_OK ? xd_path_join(f->root, name) : NULL;
    if (dir && (is_model(dir) || is_weight_file(dir))) {
        f->s = add(f->l, (xd_listed){ .name = dir, .dir = dir, .file = !is_model(dir) }, f->e);
    } else if (dir && f->deeper && xd_file_is_dir(dir)) {
        search below = { .l = f->l, .root = dir, .e = f->e };
        for_entries(dir, add_entry, &below);
        f->s = below.s;
    }
    free(dir);
}

xd_status xd_model_list_dir(xd_model_list *l, const char *dir, xd_err *e)
{
    search f = { .l = l, .root = dir, .deeper = 1, .e = e };
    int    first = l->n;
    if (is_model(dir))
        return add(l, (xd_listed){ .name = (char *)dir, .dir = (char *)dir }, e);
    if (for_entries(dir, add_entry, &f) < 0)
        return xd_fail(e, XD_EIO, "cannot read %s: %s", dir, strerror(errno));
    if (l->n > first)
        qsort(l->v + first, (size_t)(l->n - first), sizeof *l->v, by_name);
    return f.s;
}

void xd_model_list_free(xd_model_list *l)
{
    for (int i = 0; i < l->n; i++) {
        free(l->v[i].name);
        free(l->v[i].dir);
    }
    free(l->v);
    *l = (xd_model_list){ 0 };
}
