/* task_store.c - stores tasks in JSON files; see task_store.h */
#include "serve/task_store.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "serve/task_flags.h"

static const char TAIL[] = ".task";

static const char *const states[] = { "queued", "running", "done", "failed", "cancelled" };
enum { STATES = sizeof states / sizeof *states };

/* ---- writing --------------------------------------------------------------------------------- */

static void add_text(xd_text_buf *b, const char *name, const char *text)
{
    xd_buf_add(b, ",\n\"%s\":", name);
    if (text)
        xd_buf_json_string(b, text);
    else
        xd_buf_add(b, "null");
}

static void add_image(xd_text_buf *b, const xd_task_image *im)
{
    const char *name = strrchr(im->file, '/');
    xd_buf_add(b, "{\"width\":%lld,\"height\":%lld,\"frames\":%lld,\"fps\":%.17g,\"rate\":%d",
               (long long)im->width, (long long)im->height, (long long)im->frames, im->fps,
               im->rate);
    add_text(b, "file", name ? name + 1 : im->file);
    add_text(b, "seed", im->seed);
    add_text(b, "json", im->json);
    add_text(b, "parameters", im->parameters);
    xd_buf_add(b, "}");
}

/* Appends an argument of a task to the task's JSON file. A path in the directory --results is
 * written as "./NAME", because servers on several hosts may see the directory under different
 * paths. */
static void add_arg(xd_text_buf *b, const char *dir, const char *arg)
{
    const char *value = strchr(arg, '=');
    size_t      n = strlen(dir);
    if (!value || strncmp(value + 1, dir, n) != 0 || value[1 + n] != '/') {
        xd_buf_json_string(b, arg);
        return;
    }
    xd_text_buf text = { 0 };
    xd_buf_add(&text, "%.*s=.%s", (int)(value - arg), arg, value + 1 + n);
    xd_buf_json_string(b, text.p ? text.p : arg);
    b->failed |= text.failed;
    xd_buf_free(&text);
}

static void add_task(xd_text_buf *b, const char *dir, const xd_task *t, const char *replica)
{
    xd_buf_add(b,
               "{\"video\":%s,\"created\":%.6f,\"started\":%.6f,\"ended\":%.6f,\"code\":%d,"
               "\"priority\":%d,\"deadline\":%.6f,\"claims\":%d,\"step\":%d,\"steps\":%d,"
               "\"image\":%d,\"images\":%d,\"previews\":%d",
               t->video ? "true" : "false", t->created, t->started, t->ended, (int)t->code,
               t->priority, t->deadline_s > 0 ? t->deadline_s - xd_now_s() + xd_unix_s() : 0,
               t->claims, t->step, t->steps, t->image, t->images, t->previews);
    add_text(b, "id", t->id);
    add_text(b, "state", states[t->state]);
    add_text(b, "model", t->model);
    add_text(b, "prompt", t->prompt);
    add_text(b, "size", t->size);
    add_text(b, "owner", t->owner);
    add_text(b, "seconds_asked", t->seconds_asked);
    add_text(b, "remixed", t->remixed);
    add_text(b, "error", t->error);
    add_text(b, "seconds", t->seconds);
    add_text(b, "stage", t->stage);
    add_text(b, "replica", replica);
    add_text(b, "fingerprint", t->fingerprint);
    xd_buf_add(b, ",\n\"args\":[");
    for (int i = 0; i < t->nargs; i++) {
        xd_buf_add(b, "%s", i ? "," : "");
        add_arg(b, dir, t->args[i]);
    }
    xd_buf_add(b, "],\n\"done\":[");
    for (int i = 0; i < t->ndone; i++) {
        xd_buf_add(b, "%s", i ? "," : "");
        add_image(b, &t->done[i]);
    }
    xd_buf_add(b, "]}\n");
}

static int path_of(const char *dir, const char *id, char *path, size_t size)
{
    int n = snprintf(path, size, "%s/%s%s", dir, id, TAIL);
    return n > 0 && (size_t)n < size;
}

xd_status xd_task_store_save(const char *dir, const xd_task *task, const char *replica, xd_err *e)
{
    char        path[4096];
    xd_text_buf b = { 0 };
    xd_out      out;
    add_task(&b, dir, task, replica);
    xd_status s = b.failed ? xd_fail(e, XD_ENOMEM, "out of memory to store a request")
                  : path_of(dir, task->id, path, sizeof path)
                      ? xd_out_open(&out, path, e)
                      : xd_fail(e, XD_EINVAL, "the path %s is too long", dir);
    if (s == XD_OK && fwrite(b.p, 1, b.len, out.f) == b.len) {
        s = xd_out_commit(&out, e);
    } else if (s == XD_OK) {
        s = xd_fail(e, XD_EIO, "cannot write %s: %s", path, strerror(errno));
        xd_out_abort(&out);
    }
    xd_buf_free(&b);
    return s;
}

void xd_task_store_remove(const char *dir, const xd_task *task)
{
    char path[4096];
    if (path_of(dir, task->id, path, sizeof path))
        unlink(path);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Returns a copy of the text under a JSON key; "" if there is none. */
static char *text_of(const xd_json *j, const char *key)
{
    const char *text = xd_json_text(xd_json_get(j, key));
    return strdup(text ? text : "");
}

static char *text_or_null(const xd_json *j, const char *key)
{
    const char *text = xd_json_text(xd_json_get(j, key));
    return text && *text ? strdup(text) : NULL;
}

/* Returns the number (a time, size or count) under a JSON key; 0 if it is missing or out of
 * range. */
static double number_of(const xd_json *j, const char *key)
{
    double v = 0;
    xd_json_number(xd_json_get(j, key), &v);
    return v >= 0 && v < 1e12 ? v : 0;
}

/* Returns the stored xd_status of a task, or XD_EIO if this version of the server does not know the
 * status. */
static xd_status code_of(const xd_json *j)
{
    double v = 0;
    xd_json_number(xd_json_get(j, "code"), &v);
    return v >= XD_OK && v <= XD_ECANCELLED ? (xd_status)v : XD_EIO;
}

/* Returns the stored priority of a task: 1 or -1, or 0 if the stored value is neither. */
static int priority_of(const xd_json *j)
{
    double v = 0;
    xd_json_number(xd_json_get(j, "priority"), &v);
    return (v == 1) - (v == -1);
}

/* Returns nonzero if the text may be a task id that xd_task_name has made: letters, "_", digits.
 * Other characters are refused, because the id is used in paths and replies. */
static int is_id(const char *id)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyz");
    return n && id[n] == '_' && id[n + 1] && !id[n + 1 + strspn(id + n + 1, "0123456789abcdef")] &&
           strlen(id) < sizeof((xd_task *)0)->id;
}

/* Returns nonzero if the image's seed is a number and its parameters are an object, because replies
 * contain both as JSON. */
static int can_stand_in_json(const xd_task_image *im)
{
    xd_json *j = NULL;
    int      ok = im->seed[0] && !im->seed[strspn(im->seed, "0123456789")] &&
                  (im->seed[0] != '0' || !im->seed[1]) &&
                  xd_json_parse(&j, im->json, strlen(im->json), "parameters", NULL) == XD_OK &&
                  xd_json_is_object(j);
    xd_json_free(&j);
    return ok;
}

/* Returns nonzero if the path is in the directory `dir` and its file name begins with the task's
 * id, or if the path is NULL. */
static int is_own_file(const char *dir, const char *id, const char *path)
{
    size_t n = strlen(dir);
    return !path || (strncmp(path, dir, n) == 0 && path[n] == '/' && !strchr(path + n + 1, '/') &&
                     strncmp(path + n + 1, id, strlen(id)) == 0);
}

/* Returns nonzero if the task's arguments are valid and name only files of this task. Arguments
 * that name other files are refused, because the server later removes the named files. */
static int are_own_args(const xd_task *t, const char *dir)
{
    xd_task_flags f;
    int ok = xd_task_flags_read(&f, t->nargs, t->args, NULL) == XD_OK && f.video == t->video &&
             strcmp(f.id, t->id) == 0 && is_own_file(dir, t->id, f.output) &&
             is_own_file(dir, t->id, f.mask_image) && is_own_file(dir, t->id, f.last_image) &&
             is_own_file(dir, t->id, f.control_video) && is_own_file(dir, t->id, f.pose_video) &&
             is_own_file(dir, t->id, f.face_video) &&
             is_own_file(dir, t->id, f.request.checkpoint.dir);
    for (int i = 0; i < f.images.n; i++)
        ok = ok && is_own_file(dir, t->id, f.images.v[i]);
    for (int i = 0; i < f.control_images.n; i++)
        ok = ok && is_own_file(dir, t->id, f.control_images.v[i]);
    for (int i = 0; i < f.redux_images.n; i++)
        ok = ok && is_own_file(dir, t->id, f.redux_images.v[i]);
    xd_task_flags_free(&f);
    return ok;
}

static int read_images(xd_task *t, const char *dir, const xd_json *list)
{
    int n = xd_json_size(list);
    t->done = calloc((size_t)n + 1, sizeof *t->done);
    for (const xd_json *j = xd_json_first(list); t->done && j; j = xd_json_next(j)) {
        xd_task_image *im = &t->done[t->ndone++];
        char          *name = text_of(j, "file");
        *im = (xd_task_image){ .file = name ? xd_path_join(dir, name) : NULL,
                               .seed = text_of(j, "seed"),
                               .json = text_of(j, "json"),
                               .parameters = text_of(j, "parameters"),
                               .width = (int64_t)number_of(j, "width"),
                               .height = (int64_t)number_of(j, "height"),
                               .frames = (int64_t)number_of(j, "frames"),
                               .fps = number_of(j, "fps"),
                               .rate = (int)number_of(j, "rate") };
        free(name);
        if (!im->file || !im->seed || !im->json || !im->parameters ||
            !is_own_file(dir, t->id, im->file) || !can_stand_in_json(im))
            return 0;
    }
    return t->done != NULL;
}

/* Returns a copy of a stored argument, in which the path of the directory replaces the "." of
 * "./NAME" (see add_arg). */
static char *read_arg(const char *dir, const char *text)
{
    const char *value = strchr(text, '=');
    if (!value || strncmp(value, "=./", 3) != 0)
        return strdup(text);
    size_t n = strlen(dir) + strlen(text) + 1;
    char  *arg = malloc(n);
    if (arg)
        snprintf(arg, n, "%.*s=%s%s", (int)(value - text), text, dir, value + 2);
    return arg;
}

static int read_args(xd_task *t, const char *dir, const xd_json *list)
{
    t->args = calloc((size_t)xd_json_size(list) + 1, sizeof *t->args);
    for (const xd_json *j = xd_json_first(list); t->args && j; j = xd_json_next(j)) {
        const char *text = xd_json_text(j);
        if (!text || !(t->args[t->nargs] = read_arg(dir, text)))
            return 0;
        t->nargs++;
    }
    return t->nargs > 0;
}

static void copy_text(const xd_json *j, const char *key, char *to, size_t size)
{
    const char *text = xd_json_text(xd_json_get(j, key));
    snprintf(to, size, "%s", text ? text : "");
}

/* Reads the fields of a task that other servers need: the server that runs the task, and the task's
 * progress. */
static void read_progress(xd_task *t, const xd_json *j)
{
    copy_text(j, "replica", t->replica, sizeof t->replica);
    copy_text(j, "fingerprint", t->fingerprint, sizeof t->fingerprint);
    copy_text(j, "stage", t->stage, sizeof t->stage);
    t->claims = (int)fmin(number_of(j, "claims"), 1e6);
    t->step = (int)fmin(number_of(j, "step"), 1e9);
    t->steps = (int)fmin(number_of(j, "steps"), 1e9);
    t->image = (int)fmin(number_of(j, "image"), 1e9);
    t->images = (int)fmin(number_of(j, "images"), 1e9);
    t->previews = (int)fmin(number_of(j, "previews"), 1e9);
}

static int read_task(xd_task *t, const char *dir, const xd_json *j)
{
    const char *id = xd_json_text(xd_json_get(j, "id")),
               *state = xd_json_text(xd_json_get(j, "state")),
               *asked = xd_json_text(xd_json_get(j, "seconds_asked")),
               *remixed = xd_json_text(xd_json_get(j, "remixed"));
    int k = 0;
    while (k < STATES && state && strcmp(state, states[k]) != 0)
        k++;
    if (!id || !is_id(id) || !state || k == STATES)
        return 0;
    strcpy(t->id, id);
    t->state = (xd_task_state)k;
    snprintf(t->seconds_asked, sizeof t->seconds_asked, "%.15s", asked ? asked : "");
    if (remixed && is_id(remixed))
        strcpy(t->remixed, remixed);
    xd_json_bool(xd_json_get(j, "video"), &t->video);
    t->created = number_of(j, "created");
    t->started = number_of(j, "started");
    t->ended = number_of(j, "ended");
    t->priority = priority_of(j);
    t->code = code_of(j);
    t->model_name = text_of(j, "model");
    t->model = t->model_name;
    t->prompt = text_of(j, "prompt");
    t->size = text_or_null(j, "size");
    t->owner = text_of(j, "owner");
    t->error = text_or_null(j, "error");
    t->seconds = text_or_null(j, "seconds");
    read_progress(t, j);
    return t->model && t->prompt && t->owner && read_args(t, dir, xd_json_get(j, "args")) &&
           are_own_args(t, dir) && read_images(t, dir, xd_json_get(j, "done"));
}

/* Converts the task's stored dates to the monotonic clock of this process. A converted time is
 * never in the future, even if the Unix clock was set back. */
static void set_clocks(xd_task *t, double deadline)
{
    double now = xd_now_s(), date = xd_unix_s();
    t->arrived_s = now - fmax(0, date - t->created);
    t->began_s = now - fmax(0, date - t->started);
    t->ended_s = now - fmax(0, date - t->ended);
    t->deadline_s = deadline > 0 ? fmax(1e-9, now + deadline - date) : 0;
}

/* Returns nonzero if the file belongs to this user and no other user can write to it. */
static int is_trusted(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
           !(st.st_mode & (S_IWGRP | S_IWOTH));
}

xd_task *xd_task_store_read(const char *dir, const char *id,
                            void (*warn)(void *cookie, const char *line), void *cookie)
{
    char     path[4096], line[4400];
    xd_json *j = NULL;
    xd_err   e = { 0 };
    xd_task *t = path_of(dir, id, path, sizeof path) ? xd_task_new() : NULL;
    if (!t)
        return NULL;
    t->stored = xd_task_store_stamp(dir, id, t->stamp);
    int    ok = is_id(id) && is_trusted(path) && xd_json_read(&j, path, &e) == XD_OK &&
                read_task(t, dir, j) && strcmp(t->id, id) == 0;
    double deadline = ok ? number_of(j, "deadline") : 0;
    xd_json_free(&j);
    if (ok) {
        set_clocks(t, deadline);
        return t;
    }
    snprintf(line, sizeof line, "%s is not a stored request: the file is ignored", path);
    if (warn && xd_file_exists(path))
        warn(cookie, line);
    xd_task_free(t);
    return NULL;
}

int xd_task_store_stamp(const char *dir, const char *id, int64_t stamp[2])
{
    struct stat st;
    char        path[4096];
    if (!path_of(dir, id, path, sizeof path) || stat(path, &st) != 0)
        return 0;
    stamp[0] = st.st_mtim.tv_sec, stamp[1] = st.st_mtim.tv_nsec;
    return 1;
}

int xd_task_store_is_task(const char *name, char id[40])
{
    size_t n = strlen(name), tail = sizeof TAIL - 1;
    if (n <= tail || n - tail >= 40 || strcmp(name + n - tail, TAIL) != 0)
        return 0;
    snprintf(id, 40, "%.*s", (int)(n - tail), name);
    return 1;
}
