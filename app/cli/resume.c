/* resume.c - reads and writes the file of options from which xdit generate --resume continues */
#define _DEFAULT_SOURCE /* flock */
#include "cli/resume.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

static const char FILE_NAME[] = "options.json";

/* Appends a text, which the list then owns. */
static xd_status append(xd_opt_texts *l, char *text, xd_err *e)
{
    const char **v = text ? realloc(l->v, (size_t)(l->n + 1) * sizeof *v) : NULL;
    if (!v) {
        free(text);
        return xd_fail(e, XD_ENOMEM, "no memory for a list of options");
    }
    l->v = v;
    l->v[l->n++] = text;
    return XD_OK;
}

xd_status xd_resume_add(xd_resume *r, const char *name, const char *value, int plan, xd_err *e)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, value ? "--%s=%s" : "--%s", name, value);
    if (b.failed)
        xd_buf_free(&b);
    return append(plan ? &r->plan : &r->options, b.p, e);
}

static void free_texts(xd_opt_texts *l)
{
    for (int i = 0; i < l->n; i++)
        free((void *)l->v[i]);
    xd_opt_texts_free(l);
}

void xd_resume_free(xd_resume *r)
{
    free_texts(&r->options);
    free_texts(&r->plan);
}

static void add_list(xd_text_buf *b, const char *name, const xd_opt_texts *l)
{
    xd_buf_add(b, ",\n \"%s\": [", name);
    for (int i = 0; i < l->n; i++) {
        xd_buf_add(b, i ? ",\n  " : "\n  ");
        xd_buf_json_string(b, l->v[i]);
    }
    xd_buf_add(b, "]");
}

xd_status xd_resume_save(const xd_resume *r, const char *dir, xd_err *e)
{
    char        here[PATH_MAX], *path = xd_path_join(dir, FILE_NAME);
    xd_text_buf b = { 0 };
    xd_out      o;
    xd_buf_add(&b, "{\"folder\": ");
    xd_buf_json_string(&b, getcwd(here, sizeof here) ? here : ".");
    add_list(&b, "options", &r->options);
    add_list(&b, "plan", &r->plan);
    xd_buf_add(&b, "}\n");
    xd_status s = !path || b.failed ? xd_fail(e, XD_ENOMEM, "no memory for a list of options")
                                    : xd_out_open(&o, path, e);
    if (s == XD_OK) {
        fwrite(b.p, 1, b.len, o.f); /* errors of fwrite are reported by xd_out_commit */
        s = xd_out_commit(&o, e);
    }
    xd_buf_free(&b);
    free(path);
    return s;
}

/* Appends the strings of a JSON array to the list. */
static xd_status read_list(xd_opt_texts *l, const xd_json *list, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; s == XD_OK && i < xd_json_size(list); i++) {
        const char *text = xd_json_text(xd_json_at(list, i));
        if (text)
            s = append(l, strdup(text), e);
    }
    return s;
}

/* Moves the texts of the list `more` to the end of the list `l`. */
static xd_status move_texts(xd_opt_texts *l, xd_opt_texts *more, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; i < more->n; i++)
        if (s == XD_OK)
            s = append(l, (char *)(void *)more->v[i], e);
        else
            free((void *)more->v[i]);
    more->n = 0;
    return s;
}

/* Refuses to run in another folder than the interrupted command, because the file names in its
 * options may be relative. */
static xd_status check_folder(const xd_json *j, const char *dir, xd_err *e)
{
    char        here[PATH_MAX];
    const char *folder = xd_json_text(xd_json_get(j, "folder"));
    if (!folder || !getcwd(here, sizeof here) || strcmp(folder, here) == 0)
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "%s is the checkpoint of a command that ran in the folder %s: run --resume in "
                   "that folder",
                   dir, folder);
}

xd_status xd_resume_load(xd_resume *r, const char *dir, xd_err *e)
{
    char     *path = xd_path_join(dir, FILE_NAME);
    xd_json  *j = NULL;
    xd_resume all = { 0 };
    xd_status s = path ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a path");
    if (s == XD_OK && !xd_file_exists(path))
        s = xd_fail(e, XD_EIO, "%s has no %s: it is not the folder of an interrupted --checkpoint",
                    dir, FILE_NAME);
    if (s == XD_OK)
        s = xd_json_read(&j, path, e);
    if (s == XD_OK)
        s = check_folder(j, dir, e);
    if (s == XD_OK)
        s = read_list(&all.options, xd_json_get(j, "options"), e);
    if (s == XD_OK && !r->plan.n)
        s = read_list(&all.plan, xd_json_get(j, "plan"), e);
    if (s == XD_OK)
        s = move_texts(&all.options, &r->options, e);
    if (s == XD_OK)
        s = move_texts(&all.plan, &r->plan, e);
    xd_resume_free(r);
    *r = all;
    xd_json_free(&j);
    free(path);
    return s;
}

double xd_resume_time(const char *dir)
{
    char       *path = xd_path_join(dir, FILE_NAME);
    struct stat st;
    double      t = path && stat(path, &st) == 0
                        ? (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec
                        : 0;
    free(path);
    return t;
}

void xd_resume_wait(const char *dir)
{
    const struct timespec pause = { 0, 50000000 };
    int                   fd = open(dir, O_RDONLY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < 100 && flock(fd, LOCK_EX | LOCK_NB) != 0; i++)
        nanosleep(&pause, NULL);
    if (fd >= 0)
        close(fd);
}

void xd_resume_done(const char *dir)
{
    char *path = xd_path_join(dir, FILE_NAME);
    if (path)
        unlink(path);
    free(path);
    rmdir(dir);
}
