/* algorithms.c - stores, in the user's cache, which cuBLASLt algorithms were fastest in
 * measurements
 *
 * There is one cache file for each version of cuBLASLt and each GPU model. Each line of the file
 * contains the name of a kind of matrix product and its fastest algorithm, as hexadecimal digits.
 * The file is read when a device is opened. Timings vary from run to run, and different algorithms
 * can return results with different bits. Therefore matrix products are timed only with
 * XDIT_TUNE=1, and all later runs use the stored algorithms. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

enum { NAME = 200, MOST_KEPT = 20000, MOST_BYTES = MOST_KEPT * (NAME + 200) };

typedef struct entry {
    char                 name[NAME];
    cublasLtMatmulAlgo_t algorithm;
} entry;

struct xd_cuda_algorithms {
    entry *v;
    int    n, most, times, changed;
    /* path of the cache file, or "" if there is no cache folder */
    char   path[4096];
};

void xd_cuda_cache_folder(const xd_cuda_dev *c, const char *what, size_t version, char *folder,
                          size_t size)
{
    char gpu[100] = "gpu";
    c->cu->cuDeviceGetName(gpu, sizeof gpu, c->device);
    for (char *p = gpu; *p; p++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-", *p))
            *p = '_';
    snprintf(folder, size, "%s-%zu-%s/", what, version, gpu);
}

static entry *find_entry(const struct xd_cuda_algorithms *k, const char *name)
{
    for (int i = 0; i < k->n; i++)
        if (!strcmp(k->v[i].name, name))
            return &k->v[i];
    return NULL;
}

/* Returns the table entry of the kind of matrix product `name`, and creates the entry if it does
 * not exist. Returns NULL if the table is full or memory cannot be allocated. */
static entry *add_entry(struct xd_cuda_algorithms *k, const char *name)
{
    entry *e = find_entry(k, name);
    if (e || strlen(name) >= NAME || k->n >= MOST_KEPT)
        return e;
    if (k->n == k->most) {
        int    most = k->most ? 2 * k->most : 64;
        entry *v = realloc(k->v, (size_t)most * sizeof *v);
        if (!v)
            return NULL;
        k->v = v, k->most = most;
    }
    e = &k->v[k->n++];
    *e = (entry){ 0 };
    strcpy(e->name, name);
    return e;
}

/* Adds the entries of the cache file to the table in memory. Lines of the file that are not valid
 * entries are skipped. */
static void read_entries(struct xd_cuda_algorithms *k)
{
    char  *text = NULL, *line, *rest;
    size_t n = 0;
    xd_err e = { 0 };
    if (!xd_file_exists(k->path) || xd_file_read(k->path, MOST_BYTES, &text, &n, &e) != XD_OK)
        return;
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        cublasLtMatmulAlgo_t a;
        unsigned long long  *d = (unsigned long long *)a.data;
        char                *blank = strchr(line, ' ');
        if (!blank || sscanf(blank, " %16llx%16llx%16llx%16llx%16llx%16llx%16llx%16llx", &d[0],
                             &d[1], &d[2], &d[3], &d[4], &d[5], &d[6], &d[7]) != 8)
            continue;
        *blank = 0;
        entry *to = find_entry(k, line) ? NULL : add_entry(k, line);
        if (to)
            to->algorithm = a;
    }
    free(text);
}

static void write_entries(struct xd_cuda_algorithms *k)
{
    xd_out o;
    xd_err e = { 0 };
    /* reads the entries that other processes have added to the file in the meantime */
    read_entries(k);
    xd_make_parents(k->path);
    if (xd_out_open(&o, k->path, &e) != XD_OK) {
        xd_log(XD_LOG_WARN, "timed algorithms are not kept: %s", e.msg);
        return;
    }
    for (int i = 0; i < k->n; i++) {
        fprintf(o.f, "%s ", k->v[i].name);
        for (int j = 0; j < 8; j++)
            fprintf(o.f, "%016llx", (unsigned long long)k->v[i].algorithm.data[j]);
        fputc('\n', o.f);
    }
    if (xd_out_commit(&o, &e) != XD_OK)
        xd_log(XD_LOG_WARN, "timed algorithms are not kept: %s", e.msg);
}

void xd_cuda_open_algorithms(xd_cuda_dev *c)
{
    const char                *tune = getenv("XDIT_TUNE");
    char                       folder[160], name[200];
    struct xd_cuda_algorithms *k = c->kept = calloc(1, sizeof *k);
    if (!k)
        return;
    xd_cuda_cache_folder(c, "cublaslt", xd_cuda_cublaslt_version(), folder, sizeof folder);
    snprintf(name, sizeof name, "%salgorithms.txt", folder);
    if (xd_cache_path(name, k->path, sizeof k->path))
        read_entries(k);
    else
        k->path[0] = 0;
    k->times = tune && !strcmp(tune, "1");
    if (k->times && !k->path[0])
        xd_log(XD_LOG_WARN, "XDIT_TUNE=1 needs a cache folder: set HOME or XDG_CACHE_HOME");
    k->times = k->times && k->path[0];
}

void xd_cuda_close_algorithms(xd_cuda_dev *c)
{
    if (!c->kept)
        return;
    if (c->kept->changed)
        write_entries(c->kept);
    free(c->kept->v);
    free(c->kept);
    c->kept = NULL;
}

int xd_cuda_times_algorithms(const xd_cuda_dev *c)
{
    return c->kept && c->kept->times && !c->captures;
}

int xd_cuda_kept_algorithm(const xd_cuda_dev *c, const char *name, cublasLtMatmulAlgo_t *a)
{
    const entry *e = c->kept ? find_entry(c->kept, name) : NULL;
    if (e)
        *a = e->algorithm;
    return e != NULL;
}

void xd_cuda_keep_algorithm(xd_cuda_dev *c, const char *name, const cublasLtMatmulAlgo_t *a)
{
    entry *e = add_entry(c->kept, name);
    if (e)
        e->algorithm = *a, c->kept->changed = 1;
}
