/* api_jobs.c - the routes /v1/jobs, which show all requests of an API key, for images and videos.
 *
 * The server answers a request with "wait": false at once with the description of its job, which
 * runs even if the client disconnects. The routes /v1/jobs return the progress, previews and
 * results of jobs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/server.h"

enum {
    DEFAULT_JOBS = 50,
    MAX_JOBS = 100
}; /* default and maximum number of jobs per page of
                                                    the list */

/* ---- JSON of one job ------------------------------------------------------------------------- */

static void add_text(xd_text_buf *b, const char *name, const char *text)
{
    xd_buf_add(b, ",\"%s\":", name);
    xd_buf_json_string(b, text ? text : "");
}

static void add_result(xd_text_buf *b, const xd_task *task, int i)
{
    const xd_task_image *im = &task->done[i];
    xd_buf_add(b,
               "%s{\"url\":\"/v1/jobs/%s/content?index=%d\",\"type\":\"%s\",\"width\":%lld,"
               "\"height\":%lld",
               i ? "," : "", task->id, i, xd_answer_type(im->file), (long long)im->width,
               (long long)im->height);
    if (im->fps > 0)
        xd_buf_add(b, ",\"frames\":%lld,\"fps\":%.10g", (long long)im->frames, im->fps);
    if (im->rate)
        xd_buf_add(b,
                   ",\"audio_url\":\"/v1/jobs/%s/content?index=%d&variant=audio\","
                   "\"audio_sample_rate\":%d",
                   task->id, i, im->rate);
    xd_buf_add(b, ",\"seed\":%s,\"parameters\":%s}", im->seed, im->json);
}

/* Appends a job as JSON; the caller holds the lock of the tasks. */
static void add_job(xd_text_buf *b, const xd_server *s, const xd_task *task)
{
    char   text[4096];
    int    queued = task->state == XD_TASK_QUEUED;
    double until = xd_task_has_ended(task) ? task->ended : xd_unix_s(),
           left = xd_task_seconds_left(s->tasks, task);
    xd_buf_add(b,
               "{\"id\":\"%s\",\"object\":\"job\",\"kind\":\"%s\",\"status\":\"%s\","
               "\"created_at\":%.3f",
               task->id, task->video ? "video" : "image", xd_answer_state(task), task->created);
    add_text(b, "model", task->model);
    add_text(b, "prompt", task->prompt);
    add_text(b, "stage", task->stage);
    xd_buf_add(b,
               ",\"progress\":%d,\"step\":%d,\"steps\":%d,\"image\":%d,\"images\":%d,"
               "\"previews\":%d,\"queue_position\":%d,\"elapsed_seconds\":%.3f",
               xd_answer_percent(task), task->step, task->steps, task->image, task->images,
               task->previews, queued ? xd_task_position(s->tasks, task) : 0,
               task->started > 0 && until > task->started ? until - task->started : 0);
    xd_buf_add(b, ",\"predicted_seconds\":");
    xd_buf_add(b, left < 0 ? "null" : "%.2f", left);
    xd_buf_add(b, ",\"results\":[");
    for (int i = 0; i < task->ndone; i++)
        add_result(b, task, i);
    xd_buf_add(b, "],\"error\":");
    if (task->error) {
        xd_buf_add(b, "{\"code\":%u", xd_answer_status(task->code));
        add_text(b, "message", xd_answer_error(s, task, text, sizeof text));
        xd_buf_add(b, "}}");
    } else {
        xd_buf_add(b, "null}");
    }
}

void xd_answer_job(xd_http_call *c, unsigned status, const xd_task *task)
{
    xd_server  *s = c->server;
    xd_text_buf b = { 0 };
    xd_tasks_lock(s->tasks);
    add_job(&b, s, task);
    xd_tasks_unlock(s->tasks);
    xd_reply_json(c, status, &b);
}

/* ---- routes ---------------------------------------------------------------------------------- */

static xd_task *find_job(xd_http_call *c)
{
    xd_task *task = xd_answer_find(c);
    if (!task)
        xd_reply_error(c, 404, NULL, NULL, "there is no job '%.60s'; it may have expired", c->arg);
    return task;
}

static void answer_job(xd_http_call *c, int cancel)
{
    xd_server *s = c->server;
    xd_task   *task = find_job(c);
    if (task && cancel)
        xd_cancel_task(s, task);
    if (task)
        xd_answer_job(c, 200, task);
    xd_task_release(s->tasks, task);
}

void xd_api_jobs_get(xd_http_call *c)
{
    answer_job(c, 0);
}

void xd_api_jobs_cancel(xd_http_call *c)
{
    answer_job(c, 1);
}

/* Deletes a job. A running job is cancelled, and is deleted after its task has ended. */
void xd_api_jobs_delete(xd_http_call *c)
{
    xd_server  *s = c->server;
    xd_task    *task = find_job(c);
    xd_text_buf b = { 0 };
    if (!task)
        return;
    xd_cancel_task(s, task);
    xd_answer_wait(c, task);
    xd_tasks_delete(s->tasks, task);
    xd_buf_add(&b, "{\"id\":\"%s\",\"object\":\"job.deleted\",\"deleted\":true}\n", task->id);
    xd_reply_json(c, 200, &b);
    xd_task_release(s->tasks, task);
}

/* Writes the path of the requested file to `path`: a result, a video's thumbnail or sound, or the
 * latest preview. If the requested file does not exist, `path` becomes empty. */
static void find_file(const xd_http_call *c, const xd_task *task, char *path, size_t size)
{
    const char *index = xd_http_query(c, "index"), *variant = xd_http_query(c, "variant");
    int         i = index ? atoi(index) : 0;
    path[0] = 0;
    if (variant && strcmp(variant, "preview") == 0) {
        if (task->previews)
            xd_task_preview_file(task, task->previews - 1, path, size);
    } else if (i >= 0 && i < task->ndone && variant && strcmp(variant, "audio") == 0) {
        if (task->done[i].rate)
            snprintf(path, size, "%s" XD_TASK_SOUND, task->done[i].file);
    } else if (i >= 0 && i < task->ndone) {
        int small = variant && strcmp(variant, "thumbnail") == 0 && task->done[i].fps > 0;
        snprintf(path, size, "%s%s", task->done[i].file, small ? XD_TASK_THUMBNAIL : "");
    }
}

/* Replies with a file of a job. The route for files of jobs needs no API key, because a job's id is
 * long and random, so only clients that received it from the server know it. */
void xd_api_jobs_content(xd_http_call *c)
{
    xd_server *s = c->server;
    char       path[4200];
    xd_task   *task = xd_tasks_find(s->tasks, c->arg);
    path[0] = 0;
    xd_tasks_lock(s->tasks);
    if (task)
        find_file(c, task, path, sizeof path);
    xd_tasks_unlock(s->tasks);
    if (path[0])
        xd_reply_file(c, path, xd_answer_type(path));
    else
        xd_reply_error(c, 404, NULL, NULL, "there is no such image; it may have expired");
    xd_task_release(s->tasks, task);
}

/* ---- listing --------------------------------------------------------------------------------- */

/* Appends a page of the list of jobs, newest first. `after` is the id of the last job of the
 * previous page. */
static void add_list(xd_text_buf *b, const xd_http_call *c, const xd_task *const *v, int all)
{
    const char *after = xd_http_query(c, "after"), *text = xd_http_query(c, "limit");
    int         limit = text ? atoi(text) : DEFAULT_JOBS, at = all - 1, n = 0;
    limit = limit < 1 ? 1 : limit > MAX_JOBS ? MAX_JOBS : limit;
    if (after && *after) {
        while (at >= 0 && strcmp(v[at]->id, after) != 0)
            at--;
        at--;
    }
    xd_buf_add(b, "{\"object\":\"list\",\"data\":[");
    for (; at >= 0 && n < limit; at--) {
        xd_buf_add(b, "%s", n++ ? "," : "");
        add_job(b, c->server, v[at]);
    }
    xd_buf_add(b, "],\"has_more\":%s}\n", at >= 0 ? "true" : "false");
}

void xd_api_jobs_list(xd_http_call *c)
{
    xd_server  *s = c->server;
    xd_text_buf b = { 0 };
    int         n;
    xd_tasks_refresh(s->tasks);
    xd_tasks_lock(s->tasks);
    const xd_task **v = xd_answer_tasks(c, 0, &n);
    add_list(&b, c, v, n);
    xd_tasks_unlock(s->tasks);
    free(v);
    xd_reply_json(c, 200, &b);
}
