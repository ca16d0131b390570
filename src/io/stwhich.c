/* stwhich.c - chooses the weight file in the directory of a model component; if there is none,
 * writes an error message that tells what to do */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "io/gguf.h"
#include "io/stfile.h"

static const char tail_file[] = ".safetensors", tail_index[] = ".safetensors.index.json";

static int ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

/* Returns 1 if s is the name of a weight variant ("fp16", "non_ema"), and not a shard number. */
static int is_variant_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", s[i]))
            return 0;
    return n > 0;
}

/* Returns 1 if the file name `name` is head + variant + tail. Sets *v and *n to the variant's first
 * character and length. */
static int split_name(const char *name, const char *head, const char *tail, const char **v,
                      size_t *n)
{
    size_t len = strlen(name), h = strlen(head), t = strlen(tail);
    if (len <= h + t || strncmp(name, head, h) != 0 || !ends_with(name, tail))
        return 0;
    *v = name + h;
    *n = len - h - t;
    return is_variant_name(*v, *n);
}

/* Returns 1 if `name` is the weight file or shard index of a variant: stem.fp16.safetensors,
 * stem.fp16.safetensors.index.json, stem.safetensors.index.fp16.json. */
static int parse_variant(const char *name, const char *stem, const char **v, size_t *n,
                         int *sharded)
{
    char head[256];
    snprintf(head, sizeof head, "%s.", stem);
    *sharded = 0;
    if (split_name(name, head, tail_file, v, n))
        return 1;
    *sharded = 1;
    if (split_name(name, head, tail_index, v, n))
        return 1;
    snprintf(head, sizeof head, "%s.safetensors.index.", stem);
    return split_name(name, head, ".json", v, n);
}

/* Returns the preference of a variant; lower is better. fp16 is best, then bf16, then the others,
 * which the caller orders by name. A single file is better than shards of the same variant. */
static int preference(const char *v, size_t n, int sharded)
{
    int p = n == 4 && !strncmp(v, "fp16", 4) ? 0 : n == 4 && !strncmp(v, "bf16", 4) ? 2 : 4;
    return p + sharded;
}

typedef struct look { /* result of scanning a directory */
    char *variant;    /* file name of the best variant, malloc'ed */
    int   rank, sharded;
    char *other; /* name of a weight file of another format, malloc'ed */
    char *piece; /* name of any other .safetensors file, malloc'ed */
    char *gguf;  /* a GGUF file, or the first shard of one, malloc'ed */
    int   ggufs; /* number of GGUF files */
} look;

static void replace_name(char **slot, const char *name)
{
    if (!*slot || strcmp(name, *slot) < 0) {
        free(*slot);
        *slot = strdup(name);
    }
}

/* Records a GGUF file of the directory as a candidate. Ignores vision towers, which are in separate
 * GGUF files next to language models. */
static void consider_gguf(look *l, const char *name)
{
    int no = 1, count;
    if (!ends_with(name, ".gguf") || !strncmp(name, "mmproj", 6) ||
        (xd_gguf_is_shard(name, &no, &count) && no > 1))
        return;
    l->ggufs++;
    replace_name(&l->gguf, name);
}

static void consider_file(look *l, const char *name, const char *stem)
{
    static const char *const others[] = {
        ".bin", ".pt", ".pth", ".ckpt", ".msgpack", ".h5", ".onnx"
    };
    const char *v;
    size_t      n;
    int         sharded;
    if (parse_variant(name, stem, &v, &n, &sharded)) {
        int rank = preference(v, n, sharded);
        if (!l->variant || rank < l->rank || (rank == l->rank && strcmp(name, l->variant) < 0)) {
            free(l->variant);
            l->variant = strdup(name);
            l->rank = rank;
            l->sharded = sharded;
        }
    } else if (ends_with(name, tail_file)) {
        replace_name(&l->piece, name);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (ends_with(name, others[i]))
            replace_name(&l->other, name);
    consider_gguf(l, name);
}

static xd_status report_missing(const look *l, const char *dir, const char *stem, xd_err *e)
{
    if (l->gguf)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s has %d GGUF files (%s is one): keep only one, or "
                       "pass the file's path",
                       dir, l->ggufs, l->gguf);
    if (l->piece)
        return xd_fail(e, XD_EIO,
                       "%s has neither %s.safetensors nor %s.safetensors.index.json, "
                       "only files like %s",
                       dir, stem, stem, l->piece);
    if (l->other)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s has its weights only as %s, but only safetensors "
                       "and GGUF are supported: load it with diffusers or transformers in Python "
                       "and save it with save_pretrained(..., safe_serialization=True)",
                       dir, l->other);
    return xd_fail(e, XD_EIO,
                   "%s has no weights: neither %s.safetensors nor "
                   "%s.safetensors.index.json exists",
                   dir, stem, stem);
}

static xd_status choose_variant(xd_st_which *w, const char *dir, const char *stem, xd_err *e)
{
    look           l = { 0 };
    DIR           *d = opendir(dir);
    struct dirent *f;
    xd_status      st = XD_OK;
    if (!d)
        return xd_fail(e, XD_EIO, "cannot read the directory %s", dir);
    while ((f = readdir(d)))
        consider_file(&l, f->d_name, stem);
    closedir(d);
    if (l.variant) {
        w->path = xd_path_join(dir, l.variant);
        w->sharded = l.sharded;
        xd_log(XD_LOG_INFO, "%s has no %s.safetensors: using %s", dir, stem, l.variant);
        if (!w->path)
            st = xd_fail(e, XD_ENOMEM, "no memory for a file name");
    } else if (l.ggufs == 1) {
        w->path = xd_path_join(dir, l.gguf);
        if (!w->path)
            st = xd_fail(e, XD_ENOMEM, "no memory for a file name");
    } else {
        st = report_missing(&l, dir, stem, e);
    }
    free(l.variant);
    free(l.other);
    free(l.piece);
    free(l.gguf);
    return st;
}

/* Chooses the file dir/stem+tail if it exists. A dangling symlink is an error, because it means an
 * incomplete download. */
static xd_status try_name(xd_st_which *w, const char *dir, const char *stem, const char *tail,
                          xd_err *e)
{
    char        name[512];
    struct stat st;
    snprintf(name, sizeof name, "%s%s", stem, tail);
    char *path = xd_path_join(dir, name);
    if (!path)
        return xd_fail(e, XD_ENOMEM, "no memory for a file name");
    if (xd_file_exists(path)) {
        w->path = path;
        return XD_OK;
    }
    xd_status r = XD_OK;
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        r = xd_fail(e, XD_EIO, "%s is a link to a missing file (an incomplete download?)", path);
    free(path);
    return r;
}

xd_status xd_st_choose(xd_st_which *w, const char *path, const char *stem, xd_err *e)
{
    *w = (xd_st_which){ 0 };
    if (!xd_file_exists(path))
        return xd_fail(e, XD_EIO, "%s does not exist", path);
    if (!xd_file_is_dir(path)) {
        w->path = strdup(path);
        w->sharded = ends_with(path, ".json");
        return w->path ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a file name");
    }
    xd_status st = try_name(w, path, stem, tail_file, e);
    if (st != XD_OK || w->path)
        return st;
    st = try_name(w, path, stem, tail_index, e);
    if (st != XD_OK || w->path) {
        w->sharded = 1;
        return st;
    }
    return choose_variant(w, path, stem, e);
}
