/* api_videos.c - OpenAI's interface for videos: /v1/videos and the routes below it.
 *
 * A video is generated in the background, and clients poll its state. In addition to OpenAI's
 * fields, requests may set every option of xd_request_options as a field. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/server.h"
#include "serve/task_flags.h"

typedef struct video_request {
    xd_api_req req;
    char       seconds[16]; /* duration of the video in seconds, as a text of the request */
} video_request;

/* ---- fields ---------------------------------------------------------------------------------- */

static void set_seconds(void *cookie, const char *name, const char *value)
{
    video_request *q = cookie;
    snprintf(q->seconds, sizeof q->seconds, "%s", value);
    xd_api_req_option(&q->req, name, value);
}

static void set_nothing(void *cookie, const char *name, const char *value)
{
    (void)cookie, (void)name, (void)value;
}

static const xd_api_req_field fields[] = {
    { "seconds", set_seconds, NULL },
    { "user", set_nothing, NULL },
    { "input_reference", NULL, "image" },
    { "image_reference", NULL, "image" },
    { "image", NULL, "image" },
    { "last_image", NULL, "last_image" },
    { "reference_images", NULL, "image" },
    { "control_video", NULL, "control_video" },
    { "video", NULL, "control_video" },
    { "background_video", NULL, "control_video" },
    { "mask", NULL, "mask_image" },
    { "mask_video", NULL, "mask_image" },
    { "pose_video", NULL, "pose_video" },
    { "face_video", NULL, "face_video" },
    { NULL, NULL, NULL },
};

static xd_task *set_video(xd_http_call *c)
{
    video_request q = { .seconds = "" };
    xd_api_req_begin(&q.req, c, "video");
    xd_api_req_fields(&q.req, fields, &q);
    if (!q.req.failed)
        snprintf(q.req.task->seconds_asked, sizeof q.req.task->seconds_asked, "%s", q.seconds);
    return xd_api_req_submit(&q.req);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void add_time(xd_text_buf *b, const char *name, double t)
{
    if (t > 0)
        xd_buf_add(b, ",\"%s\":%lld", name, (long long)t);
    else
        xd_buf_add(b, ",\"%s\":null", name);
}

static void add_text(xd_text_buf *b, const char *name, const char *text)
{
    xd_buf_add(b, ",\"%s\":", name);
    if (text && *text)
        xd_buf_json_string(b, text);
    else
        xd_buf_add(b, "null");
}

/* Appends size and duration of a video. If the request does not set size or duration, those of the
 * finished video are appended. */
static void add_shape(xd_text_buf *b, const xd_task *task)
{
    char                 size[48], seconds[32];
    const xd_task_image *v = task->ndone ? &task->done[0] : NULL;
    snprintf(size, sizeof size, "%lldx%lld", v ? (long long)v->width : 0,
             v ? (long long)v->height : 0);
    snprintf(seconds, sizeof seconds, "%.3g", v && v->fps > 0 ? (double)v->frames / v->fps : 0);
    add_text(b, "size", v ? size : task->size);
    add_text(b, "seconds", v ? seconds : task->seconds_asked);
}

static void add_video(xd_text_buf *b, const xd_server *s, const xd_task *task)
{
    char text[4096];
    xd_buf_add(b,
               "{\"id\":\"%s\",\"object\":\"video\",\"status\":\"%s\",\"progress\":%d,"
               "\"created_at\":%lld",
               task->id, xd_answer_state(task), xd_answer_percent(task), (long long)task->created);
    add_text(b, "model", task->model);
    add_text(b, "prompt", task->prompt);
    add_shape(b, task);
    add_time(b, "completed_at", task->state == XD_TASK_DONE ? task->ended : 0);
    add_time(b, "expires_at", task->ended > 0 ? task->ended + s->keep_s : 0);
    if (task->error) {
        xd_buf_add(b, ",\"error\":{\"code\":\"%s\",\"message\":",
                   xd_answer_status(task->code) < 500 ? "invalid_request" : "server_error");
        xd_buf_json_string(b, xd_answer_error(s, task, text, sizeof text));
        xd_buf_add(b, "}");
    } else {
        xd_buf_add(b, ",\"error\":null");
    }
    if (task->ndone)
        xd_buf_add(b, ",\"audio_sample_rate\":%d,\"seed\":%s,\"parameters\":%s", task->done[0].rate,
                   task->done[0].seed, task->done[0].json);
    add_text(b, "remixed_from_video_id", task->remixed);
    double left = xd_task_seconds_left(s->tasks, task);
    xd_buf_add(b, ",\"predicted_seconds\":");
    xd_buf_add(b, left < 0 ? "null" : "%.2f", left);
    xd_buf_add(b, ",\"queue_position\":%d,\"previews\":%d}",
               task->state == XD_TASK_QUEUED ? xd_task_position(s->tasks, task) : 0,
               task->previews);
}

static void reply_video(xd_http_call *c, const xd_task *task)
{
    xd_server  *s = c->server;
    xd_text_buf b = { 0 };
    xd_tasks_lock(s->tasks);
    add_video(&b, s, task);
    xd_tasks_unlock(s->tasks);
    xd_reply_json(c, 200, &b);
    xd_reply_header(c, "openai-poll-after-ms", "500");
}

/* Calls `answer` with the video whose id is in the path of the request, or replies that no such
 * video exists. */
static void answer_of_video(xd_http_call *c, void (*answer)(xd_http_call *c, xd_task *task))
{
    xd_server *s = c->server;
    xd_task   *task = xd_answer_find(c);
    if (task && task->video)
        answer(c, task);
    else
        xd_reply_error(c, 404, "video_id", NULL, "there is no video '%.60s'; it may have expired",
                       c->arg);
    xd_task_release(s->tasks, task);
}

/* ---- routes ---------------------------------------------------------------------------------- */

void xd_api_videos_create(xd_http_call *c)
{
    xd_server *s = c->server;
    xd_task   *task = set_video(c);
    if (task)
        reply_video(c, task);
    xd_task_release(s->tasks, task);
}

/* Waits until the video is finished and replies with its file. */
void xd_api_videos_sync(xd_http_call *c)
{
    xd_server *s = c->server;
    xd_task   *task = set_video(c);
    if (!task)
        return;
    xd_answer_wait(c, task);
    if (task->state == XD_TASK_DONE && task->ndone)
        xd_reply_file(c, task->done[0].file, xd_answer_type(task->done[0].file));
    else
        xd_answer_failure(c, task);
    xd_reply_header(c, "X-Video-Id", task->id);
    if (task->ndone)
        xd_reply_header(c, "X-Seed", task->done[0].seed);
    xd_task_release(s->tasks, task);
}

static void get_video(xd_http_call *c, xd_task *task)
{
    reply_video(c, task);
}

void xd_api_videos_get(xd_http_call *c)
{
    answer_of_video(c, get_video);
}

static void cancel_video(xd_http_call *c, xd_task *task)
{
    xd_cancel_task(c->server, task);
    reply_video(c, task);
}

void xd_api_videos_cancel(xd_http_call *c)
{
    answer_of_video(c, cancel_video);
}

/* Deletes a video. A running video is cancelled, and is deleted after its task has ended. */
static void delete_video(xd_http_call *c, xd_task *task)
{
    xd_server  *s = c->server;
    xd_text_buf b = { 0 };
    xd_cancel_task(s, task);
    xd_answer_wait(c, task);
    xd_tasks_delete(s->tasks, task);
    xd_buf_add(&b, "{\"id\":\"%s\",\"object\":\"video.deleted\",\"deleted\":true}\n", task->id);
    xd_reply_json(c, 200, &b);
}

void xd_api_videos_delete(xd_http_call *c)
{
    answer_of_video(c, delete_video);
}

/* Replies with the latest preview of a video, which may still be running. */
static void send_preview(xd_http_call *c, const xd_task *task)
{
    xd_server *s = c->server;
    char       path[4200];
    xd_tasks_lock(s->tasks);
    int n = task->previews;
    xd_tasks_unlock(s->tasks);
    xd_task_preview_file(task, n - 1, path, sizeof path);
    if (n > 0)
        xd_reply_file(c, path, "image/png");
    else
        xd_reply_error(c, 404, "variant", NULL,
                       "the video has no preview yet; set previews or "
                       "preview_every in a request to get them");
}

static void send_sound(xd_http_call *c, const xd_task_image *v)
{
    char path[4200];
    snprintf(path, sizeof path, "%s" XD_TASK_SOUND, v->file);
    if (v->rate)
        xd_reply_file(c, path, xd_answer_type(path));
    else
        xd_reply_error(c, 404, "variant", NULL,
                       "the video has no sound: its model makes none, or the request set no_audio");
}

static void send_video(xd_http_call *c, xd_task *task)
{
    char        path[4200];
    const char *variant = xd_http_query(c, "variant");
    if (variant && strcmp(variant, "preview") == 0) {
        send_preview(c, task);
    } else if (!task->ndone) {
        xd_reply_error(c, task->state == XD_TASK_FAILED ? 404 : 409, NULL, NULL,
                       "the video is not complete: its status is %s", xd_answer_state(task));
    } else if (!variant || strcmp(variant, "video") == 0) {
        xd_reply_file(c, task->done[0].file, xd_answer_type(task->done[0].file));
    } else if (strcmp(variant, "thumbnail") == 0 || strcmp(variant, "spritesheet") == 0) {
        snprintf(path, sizeof path, "%s%s", task->done[0].file,
                 variant[0] == 't' ? XD_TASK_THUMBNAIL : XD_TASK_SHEET);
        xd_reply_file(c, path, "image/webp");
    } else if (strcmp(variant, "audio") == 0) {
        send_sound(c, &task->done[0]);
    } else {
        xd_reply_error(c, 400, "variant", NULL,
                       "variant must be video, audio, thumbnail, spritesheet or "
                       "preview, not '%.40s'",
                       variant);
    }
}

void xd_api_videos_content(xd_http_call *c)
{
    answer_of_video(c, send_video);
}

/* ---- remix ----------------------------------------------------------------------------------- */

/* Copies an argument "--name=value" of the original video to the request for its remix. */
static void repeat_arg(xd_api_req *a, const char *arg)
{
    static const char *const own[] = { "id", "video", "output", "model", "prompt", "seed" };
    char                     name[64];
    const char              *eq = strchr(arg, '='), *value = eq ? eq + 1 : "";
    snprintf(name, sizeof name, "%.*s", eq ? (int)(eq - arg - 2) : 0, arg + 2);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i], name) == 0)
            return;
    if (xd_task_image_path(arg))
        xd_api_req_refuse(a, 400, "video_id",
                          "this video was generated from an image or a video, which is "
                          "not stored: send prompt and image to /v1/videos");
    else
        xd_api_req_default(a, name, value);
}

/* Queues a video with a new prompt and with all other arguments of the original video, including
 * its seed. */
static void remix_video(xd_http_call *c, xd_task *task)
{
    xd_server                    *s = c->server;
    video_request                 q = { .seconds = "" };
    static const xd_api_req_field none[] = { { NULL, NULL, NULL } };
    if (task->state != XD_TASK_DONE || !task->ndone) {
        xd_reply_error(c, 409, "video_id", NULL,
                       "only a completed video can be remixed: the "
                       "status of this one is %s",
                       xd_answer_state(task));
        return;
    }
    xd_api_req_begin(&q.req, c, "video");
    xd_api_req_fields(&q.req, none, &q);
    xd_api_req_model(&q.req, task->model);
    xd_api_req_format(&q.req, "output_format", strrchr(task->done[0].file, '.') + 1);
    for (int i = 0; i < task->nargs; i++)
        repeat_arg(&q.req, task->args[i]);
    xd_api_req_default(&q.req, "seed", task->done[0].seed);
    q.req.defaults_set = 1; /* the server adds no defaults, because the copied arguments include
                                   them */
    if (!q.req.failed)
        snprintf(q.req.task->remixed, sizeof q.req.task->remixed, "%s", task->id);
    xd_task *remade = xd_api_req_submit(&q.req);
    if (remade)
        reply_video(c, remade);
    xd_task_release(s->tasks, remade);
}

void xd_api_videos_remix(xd_http_call *c)
{
    answer_of_video(c, remix_video);
}

/* ---- listing --------------------------------------------------------------------------------- */

static void add_list(xd_text_buf *b, const xd_http_call *c, const xd_task *const *v, int all)
{
    const char *after = xd_http_query(c, "after"), *order = xd_http_query(c, "order"),
               *text = xd_http_query(c, "limit");
    int            limit = text ? atoi(text) : 20, up = order && strcmp(order, "asc") == 0, n = 0,
                   seen = !after || !*after;
    const xd_task *first = NULL, *last = NULL;
    limit = limit < 1 ? 1 : limit > 100 ? 100 : limit;
    xd_buf_add(b, "{\"object\":\"list\",\"data\":[");
    int i = 0;
    for (; i < all && n < limit; i++) {
        const xd_task *task = v[up ? i : all - 1 - i];
        if (seen) {
            xd_buf_add(b, "%s", n++ ? "," : "");
            add_video(b, c->server, task);
            first = first ? first : task;
            last = task;
        }
        seen |= after && strcmp(after, task->id) == 0;
    }
    xd_buf_add(b, "],\"has_more\":%s", i < all ? "true" : "false");
    add_text(b, "first_id", first ? first->id : NULL);
    add_text(b, "last_id", last ? last->id : NULL);
    xd_buf_add(b, "}\n");
}

void xd_api_videos_list(xd_http_call *c)
{
    xd_server  *s = c->server;
    xd_text_buf b = { 0 };
    int         n;
    xd_tasks_refresh(s->tasks);
    xd_tasks_lock(s->tasks);
    const xd_task **v = xd_answer_tasks(c, 1, &n);
    add_list(&b, c, v, n);
    xd_tasks_unlock(s->tasks);
    free(v);
    xd_reply_json(c, 200, &b);
}
