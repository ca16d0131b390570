/* state.c - checks the state of the output directory, and resumes an interrupted conversion.
 *
 * While a conversion is incomplete, the output directory contains a file, the note, with the
 * arguments and the hash of the source model. A later run with the same arguments and the same
 * source model resumes the conversion. Complete output files are recognized: only a complete file
 * gets its final name, and the header of each file has a hash of the arguments and the source. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "convert/inside.h"

static const char NOTE[] = ".xdit-convert.json";

/* ---- the note ------------------------------------------------------------------------------- */

static xd_status write_note(const xd_cvt *v, xd_err *e)
{
    xd_text_buf b = { 0 };
    xd_out      o;
    char       *path = xd_cvt_path(v->a->output, NOTE, NULL, e);
    xd_buf_add(&b, "{\"arguments\": ");
    xd_buf_json_string(&b, v->asked.p);
    xd_buf_add(&b, ", \"source\": \"%016llx\"}\n", (unsigned long long)v->source);
    xd_status s = !path      ? XD_ENOMEM
                  : b.failed ? xd_fail(e, XD_ENOMEM, "no memory for a file")
                             : xd_out_open(&o, path, e);
    if (s == XD_OK) {
        fwrite(b.p, 1, b.len, o.f);
        s = xd_out_commit(&o, e);
    }
    xd_buf_free(&b);
    free(path);
    return s;
}

/* If the output directory contains the note of an incomplete conversion, reads the note, and fails
 * if the note was written by another conversion. */
static xd_status read_note(const xd_cvt *v, const char *path, int *there, xd_err *e)
{
    xd_json *j = NULL;
    char     source[32];
    *there = xd_file_exists(path);
    if (!*there || v->a->force)
        return XD_OK;
    xd_status s = xd_json_read(&j, path, e);
    if (s != XD_OK)
        return s;
    const char *asked = xd_json_text(xd_json_get(j, "arguments"));
    const char *of = xd_json_text(xd_json_get(j, "source"));
    snprintf(source, sizeof source, "%016llx", (unsigned long long)v->source);
    if (!asked || strcmp(asked, v->asked.p) != 0)
        s = xd_fail(e, XD_EINVAL,
                    "%s has an incomplete conversion with other arguments: %s, "
                    "not %s; use --force to start again",
                    v->a->output, asked ? asked : "unknown", v->asked.p);
    else if (!of || strcmp(of, source) != 0)
        s = xd_fail(e, XD_EINVAL,
                    "%s has an incomplete conversion of other files; use --force "
                    "to start again",
                    v->a->output);
    xd_json_free(&j);
    return s;
}

/* ---- existing files ------------------------------------------------------------------------- */

static int is_empty(const char *path)
{
    DIR *d = opendir(path);
    int  n = 0;
    for (struct dirent *i; d && (i = readdir(d));)
        n += strcmp(i->d_name, ".") != 0 && strcmp(i->d_name, "..") != 0;
    if (d)
        closedir(d);
    return n == 0;
}

static int is_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Fails if an output file would replace a source file. */
static xd_status check_apart(const xd_cvt *v, xd_err *e)
{
    const char *of = is_same(v->a->output, v->m.dir) ? v->m.dir : NULL;
    for (int i = 0; i < v->nparts && !of; i++) {
        const xd_cvt_part *c = &v->part[i];
        char              *dir = xd_cvt_path(v->a->output, c->p->name, NULL, e), *cut;
        char              *from = strdup(xd_st_path(c->p->files));
        if (from && (cut = strrchr(from, '/')))
            *cut = 0;
        if (dir && from && is_same(dir, from))
            of = c->p->name;
        free(from);
        free(dir);
    }
    return of ? xd_fail(e, XD_EINVAL,
                        "the output %s is the folder from which %s is read; choose "
                        "another one",
                        v->a->output, of)
              : XD_OK;
}

static xd_status check_taken(const xd_cvt *v, xd_err *e)
{
    const char *taken = !v->a->ncomponents && !is_empty(v->a->output) ? "" : NULL;
    for (int i = 0; i < v->nparts && v->a->ncomponents && !taken; i++) {
        char *dir = xd_cvt_path(v->a->output, v->part[i].p->name, NULL, e);
        taken = dir && !is_empty(dir) ? v->part[i].p->name : NULL;
        free(dir);
    }
    return taken ? xd_fail(e, XD_EIO,
                           "%s%s%s already has files; use --force to replace those of "
                           "a model",
                           v->a->output, *taken ? "/" : "", taken)
                 : XD_OK;
}

/* Returns 1 if the file was completely written by an earlier run of the same conversion. */
static int is_done(const xd_cvt_file *f)
{
    unsigned char want[XD_ST_SIZE], have[XD_ST_SIZE];
    struct stat   st;
    char         *header = malloc(f->header.len + 1);
    FILE         *in = header ? fopen(f->path, "rb") : NULL;
    xd_st_size(f->header.len, want);
    int same = in && fstat(fileno(in), &st) == 0 && (size_t)st.st_size == f->bytes &&
               fread(have, 1, sizeof have, in) == sizeof have &&
               memcmp(have, want, sizeof want) == 0 &&
               fread(header, 1, f->header.len, in) == f->header.len &&
               memcmp(header, f->header.p, f->header.len) == 0;
    if (in)
        fclose(in);
    free(header);
    return same;
}

/* ---- other weight files --------------------------------------------------------------------- */

static int is_old(const xd_cvt_part *c, const char *name)
{
    const char *stem = xd_component_stem(c->p), *end = strstr(name, ".safetensors");
    if (strncmp(name, stem, strlen(stem)) != 0 || !end ||
        (strcmp(end, ".safetensors") != 0 && strcmp(end, ".safetensors.index.json") != 0))
        return 0;
    for (int k = 0; k < c->nfile; k++)
        if (c->file[k].done && strcmp(c->file[k].name + strlen(c->p->name) + 1, name) == 0)
            return 0;
    return 1;
}

/* Returns the bytes of those weight files in a component's output directory that are not part of
 * this conversion, but that a loader could mistake for the component's weights. If `remove` is set,
 * also deletes the files. */
static size_t old_bytes(const xd_cvt *v, const xd_cvt_part *c, int remove)
{
    char       *dir = xd_cvt_path(v->a->output, c->p->name, NULL, NULL);
    DIR        *d = dir ? opendir(dir) : NULL;
    size_t      bytes = 0;
    struct stat st;
    for (struct dirent *i; d && (i = readdir(d));) {
        if (!is_old(c, i->d_name) || fstatat(dirfd(d), i->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        bytes += S_ISREG(st.st_mode) && st.st_nlink == 1 ? (size_t)st.st_size : 0;
        if (remove)
            unlinkat(dirfd(d), i->d_name, 0);
    }
    if (d)
        closedir(d);
    free(dir);
    return bytes;
}

/* ---- free disk space ------------------------------------------------------------------------ */

/* Returns the path of the output directory or, if it does not exist, of the nearest parent
 * directory that exists. The caller must free the returned path. */
static char *nearest_folder(const char *output)
{
    if (xd_file_is_dir(output))
        return strdup(output);
    size_t n = strlen(output);
    while (n && output[n - 1] == '/')
        n--;
    while (n && output[n - 1] != '/')
        n--;
    return n ? strndup(output, n) : strdup(".");
}

static xd_status check_room(const xd_cvt *v, xd_err *e)
{
    struct statvfs fs;
    double         need = v->total, free_bytes = 0;
    char          *at = nearest_folder(v->a->output);
    if (!at)
        return xd_fail(e, XD_ENOMEM, "no memory for a path");
    int       known = statvfs(at, &fs) == 0 && fs.f_blocks > 0;
    int       there = xd_file_is_dir(at);
    xd_status s =
        there ? XD_OK
              : xd_fail(e, XD_EIO, "cannot create %s: there is no folder %s", v->a->output, at);
    free(at);
    if (s != XD_OK || !known)
        return s;
    free_bytes = (double)fs.f_bavail * (double)fs.f_frsize;
    for (int i = 0; i < v->nparts; i++)
        free_bytes += (double)old_bytes(v, &v->part[i], 0);
    if (need <= free_bytes)
        return XD_OK;
    return xd_fail(e, XD_EIO, "no space for %s: its files need %s, and the disk has %s free",
                   v->a->output, xd_size_text(need).s, xd_size_text(free_bytes).s);
}

/* Counts the bytes that the conversion still has to write. */
static void count_bytes(xd_cvt *v)
{
    int done = 0, all = 0;
    v->total = 0;
    for (int i = 0; i < v->nparts; i++)
        for (int k = 0; k < v->part[i].nfile; k++, all++) {
            done += v->part[i].file[k].done;
            v->total += v->part[i].file[k].done ? 0 : (double)v->part[i].file[k].bytes;
        }
    for (int i = 0; i < v->ncopies; i++)
        v->total += (double)v->copy[i].bytes;
    if (done)
        xd_log(XD_LOG_WARN, "%d of %d weight files exist from an earlier run; writing the others",
               done, all);
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static xd_status make_folder(const char *path, xd_err *e)
{
    if (mkdir(path, 0777) == 0 || xd_file_is_dir(path))
        return XD_OK;
    return xd_fail(e, XD_EIO, "cannot create the folder %s: %s", path, strerror(errno));
}

static xd_status prepare(const xd_cvt *v, xd_err *e)
{
    xd_status s = make_folder(v->a->output, e);
    if (s == XD_OK)
        s = write_note(v, e);
    for (int i = 0; i < v->nparts && s == XD_OK; i++) {
        char *dir = xd_cvt_path(v->a->output, v->part[i].p->name, NULL, e);
        s = dir ? make_folder(dir, e) : XD_ENOMEM;
        old_bytes(v, &v->part[i], 1);
        free(dir);
    }
    return s;
}

xd_status xd_cvt_begin(xd_cvt *v, xd_err *e)
{
    int       there = 0;
    char     *note = xd_cvt_path(v->a->output, NOTE, NULL, e);
    xd_status s = note ? XD_OK : XD_ENOMEM;
    if (s == XD_OK && xd_file_exists(v->a->output) && !xd_file_is_dir(v->a->output))
        s = xd_fail(e, XD_EIO, "%s is a file; the output must be a folder", v->a->output);
    if (s == XD_OK)
        s = check_apart(v, e);
    if (s == XD_OK)
        s = read_note(v, note, &there, e);
    if (s == XD_OK && !there && !v->a->force)
        s = check_taken(v, e);
    for (int i = 0; s == XD_OK && there && i < v->nparts; i++)
        for (int k = 0; k < v->part[i].nfile; k++)
            v->part[i].file[k].done = is_done(&v->part[i].file[k]);
    count_bytes(v);
    if (s == XD_OK)
        s = check_room(v, e);
    free(note);
    return s == XD_OK ? prepare(v, e) : s;
}

xd_status xd_cvt_end(const xd_cvt *v, xd_err *e)
{
    char *note = xd_cvt_path(v->a->output, NOTE, NULL, e);
    int   gone = note && (unlink(note) == 0 || errno == ENOENT);
    free(note);
    return gone ? XD_OK : xd_fail(e, XD_EIO, "cannot remove %s of %s", NOTE, v->a->output);
}
