/* answer.c - helps all interfaces to answer requests: waits for tasks, and writes error messages,
 * progress and files to replies */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/base64.h"
#include "serve/server.h"

static const double look_s = 0.25; /* seconds between two checks whether the client is still
                                           connected */

void xd_cancel_task(xd_server *s, xd_task *task)
{
    xd_tasks_cancel(s->tasks, task);
}

void xd_cancel_left(xd_server *s, xd_task *task)
{
    if (!*task->fingerprint)
        xd_cancel_task(s, task);
}

xd_task *xd_answer_find(const xd_http_call *c)
{
    xd_server *s = c->server;
    xd_task   *task = xd_tasks_find(s->tasks, c->arg);
    if (!task || strcmp(task->owner, c->owner) == 0)
        return task;
    xd_task_release(s->tasks, task);
    return NULL;
}

typedef struct listing {
    const xd_http_call *call;
    int                 videos;
    const xd_task     **v; /* [n] */
    int                 n;
} listing;

static void list_task(void *cookie, const xd_task *task)
{
    listing        *l = cookie;
    const xd_task **v;
    if ((l->videos && !task->video) || strcmp(task->owner, l->call->owner) != 0 ||
        !(v = realloc(l->v, ((size_t)l->n + 1) * sizeof *v)))
        return;
    l->v = v;
    v[l->n++] = task;
}

const xd_task **xd_answer_tasks(const xd_http_call *c, int videos, int *n)
{
    xd_server *s = c->server;
    listing    l = { .call = c, .videos = videos };
    xd_tasks_each(s->tasks, list_task, &l);
    *n = l.n;
    return l.v;
}

void xd_answer_wait(xd_http_call *c, xd_task *task)
{
    xd_server *s = c->server;
    unsigned   seen = 0;
    int        over = 0;
    xd_task_mark_awaited(s->tasks, task);
    while (!over) {
        seen = xd_tasks_wait(s->tasks, task, seen, look_s);
        xd_tasks_lock(s->tasks);
        over = xd_task_has_ended(task);
        xd_tasks_unlock(s->tasks);
        if (!over && xd_http_client_left(c))
            xd_cancel_left(s, task);
    }
}

unsigned xd_answer_status(xd_status s)
{
    switch (s) {
    case XD_EINVAL:
    case XD_EUNSUPPORTED: return 400;
    case XD_ECANCELLED: return 409;
    case XD_ENOMEM: return 503;
    default: return 500;
    }
}

static int is_route(const xd_server *s, const char *path, size_t n)
{
    for (const xd_route *r = s->routes; r && r->method; r++)
        if (strlen(r->path) == n && strncmp(r->path, path, n) == 0)
            return 1;
    return 0;
}

/* Returns the number of characters of the folder names in a path of this host that begins at `at`.
 * Sets *instead to the text that replaces the folder names in replies: the name of a model, or "".
 * Returns 0 if no path begins at `at`. */
static size_t folders_at(const xd_server *s, const char *at, const char **instead)
{
    size_t length = 0, n = strcspn(at, " \t\n\"',;()[]<>");
    *instead = "";
    for (int i = 0; i < s->nmodels; i++) {
        size_t k = strlen(s->models[i].path);
        if (k > length && strncmp(at, s->models[i].path, k) == 0 &&
            (!at[k] || strchr("/ :,;\"')", at[k])))
            length = k, *instead = s->models[i].name;
    }
    if (s->loras && !length && strncmp(at, s->loras, strlen(s->loras)) == 0 &&
        at[strlen(s->loras)] == '/')
        length = strlen(s->loras) + 1;
    if (length || *at != '/' || is_route(s, at, n))
        return length;
    while (n > 1 && strchr(":./", at[n - 1]))
        n--;
    for (size_t i = 1; i < n; i++)
        if (at[i] == '/')
            length = i + 1;
    return length;
}

const char *xd_answer_text(const xd_server *s, const char *text, char *to, size_t size)
{
    size_t n = 0;
    for (const char *p = text, *instead; *p && n + 1 < size;) {
        int    begins = p == text || strchr(" \t\n\"'(=[<:", p[-1]);
        size_t skip = begins ? folders_at(s, p, &instead) : 0;
        if (!skip)
            to[n++] = *p++;
        else
            n += (size_t)snprintf(to + n, size - n, "%s", instead), p += skip;
    }
    to[n < size ? n : size - 1] = 0;
    return to;
}

const char *xd_answer_error(const xd_server *s, const xd_task *task, char *to, size_t size)
{
    return xd_answer_text(s, task->error ? task->error : "it failed without a message", to, size);
}

void xd_answer_failure(xd_http_call *c, const xd_task *task)
{
    const xd_server *s = c->server;
    char             text[4096];
    xd_reply_error(c, xd_answer_status(task->code), NULL,
                   task->code == XD_ECANCELLED ? "cancelled" : NULL, "%s",
                   xd_answer_error(s, task, text, sizeof text));
    if (task->code == XD_ENOMEM)
        xd_answer_retry_after(c);
}

void xd_answer_retry_after(xd_http_call *c)
{
    const xd_server *s = c->server;
    char             text[32];
    snprintf(text, sizeof text, "%.0f", xd_tasks_retry_after_s(s->tasks));
    xd_reply_header(c, "Retry-After", text);
}

int xd_answer_base64(xd_text_buf *b, const char *path)
{
    unsigned char buf[3 * 4096];
    size_t        n;
    FILE         *f = fopen(path, "rb");
    if (!f)
        return 0;
    while ((n = fread(buf, 1, sizeof buf, f)) > 0)
        xd_base64_add(b, buf, n);
    fclose(f);
    return 1;
}

const char *xd_answer_state(const xd_task *task)
{
    static const char *const names[] = { "queued", "in_progress", "completed", "failed",
                                         "cancelled" };
    return task->cancel && task->state == XD_TASK_RUNNING ? "cancelling" : names[task->state];
}

/* Returns the progress of a task in percent. Text encoding and decoding count by their predicted
 * fractions of the task's time; decoding counts at least 5 %. All images of a task are equal parts
 * of the progress. */
int xd_answer_percent(const xd_task *task)
{
    double decode = task->decode_part > 0.05 ? task->decode_part : 0.05,
           steps = 1 - decode - task->text_part, before = task->image > 1 ? task->image - 1 : 0;
    if (task->state == XD_TASK_DONE)
        return 100;
    if (task->steps <= 0)
        return 0;
    double part = task->text_part + (steps > 0 ? steps : 0) * task->step / task->steps;
    return (int)(100 * (before + part) / (task->images > 1 ? task->images : 1));
}

const char *xd_answer_type(const char *path)
{
    static const char *const types[][2] = {
        { ".png", "image/png" },       { ".jpg", "image/jpeg" },       { ".jpeg", "image/jpeg" },
        { ".webp", "image/webp" },     { ".gif", "image/gif" },        { ".mp4", "video/mp4" },
        { ".mov", "video/quicktime" }, { ".mkv", "video/x-matroska" }, { ".webm", "video/webm" },
        { ".wav", "audio/wav" },
    };
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof types / sizeof *types; i++)
        if (strcmp(dot, types[i][0]) == 0)
            return types[i][1];
    return "application/octet-stream";
}

void xd_answer_origin(const xd_http_call *c, char *text, size_t size)
{
    const xd_server *s = c->server;
    const char      *host = xd_http_header(c, "Host");
    char             own[32];
    snprintf(own, sizeof own, "127.0.0.1:%d", xd_http_port(s->http));
    snprintf(text, size, "%s://%s", s->tls ? "https" : "http", host ? host : own);
}
