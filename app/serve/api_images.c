/* api_images.c - images as OpenAI's clients ask for them: /v1/images/generations and /edits.
 *
 * Beside the fields of that interface, every option of xd_request_options is one by its name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/server.h"

typedef struct image_ask {      /* fields that the answer needs                                */
    xd_ask ask;
    int    url, stream, progress;
    char   quality[16];
} image_ask;

/* ---- fields ---------------------------------------------------------------------------------- */

static void set_response(void *cookie, const char *name, const char *value)
{
    image_ask *q = cookie;
    q->url = strcmp(value, "url") == 0;
    if (!q->url && strcmp(value, "b64_json") != 0)
        xd_ask_refuse(&q->ask, 400, name, "response_format is b64_json or url, not '%.40s'", value);
}

static void set_stream(void *cookie, const char *name, const char *value)
{
    image_ask *q = cookie;
    (void)name;
    q->stream = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
}

static void set_progress(void *cookie, const char *name, const char *value)
{
    image_ask *q = cookie;
    (void)name;
    q->progress = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
}

static void set_partial(void *cookie, const char *name, const char *value)
{
    image_ask *q = cookie;
    char *end;
    long  n = strtol(value, &end, 10);
    if (*end || end == value || n < 0 || n > 3)
        xd_ask_refuse(&q->ask, 400, name, "partial_images is a number from 0 to 3, not '%.40s'",
                      value);
}

static void set_quality(void *cookie, const char *name, const char *value)
{
    image_ask *q = cookie;
    (void)name;
    snprintf(q->quality, sizeof q->quality, "%.15s", value);
}

static void set_background(void *cookie, const char *name, const char *value)
{
    image_ask *q = cookie;
    if (strcmp(value, "transparent") == 0)
        xd_ask_refuse(&q->ask, 400, name, "images have no transparent background here");
}

/* What this engine has no use for: models of OpenAI's do. */
static void set_nothing(void *cookie, const char *name, const char *value)
{
    (void)cookie, (void)name, (void)value;
}

static const xd_ask_field fields[] = {
    { "response_format", set_response, NULL },
    { "stream", set_stream, NULL },
    { "partial_images", set_partial, NULL },
    { "progress", set_progress, NULL },
    { "quality", set_quality, NULL },
    { "background", set_background, NULL },
    { "moderation", set_nothing, NULL },
    { "style", set_nothing, NULL },
    { "user", set_nothing, NULL },
    { "output_compression", set_nothing, NULL },
    { "input_fidelity", set_nothing, NULL },
    { "image", NULL, "image" },
    { "image[]", NULL, "image" },
    { "images", NULL, "image" },
    { "mask", NULL, "mask_image" },
    { NULL, NULL, NULL },
};

/* ---- answers --------------------------------------------------------------------------------- */

static const char *or_auto(const char *text)
{
    return text[0] ? text : "auto";
}

static void add_about(xd_text_buf *b, const image_ask *q, const xd_task *task)
{
    const char *dot = task->ndone ? strrchr(task->done[0].file, '.') : NULL;
    xd_buf_add(b, "\"background\":\"opaque\",\"output_format\":\"%s\",\"quality\":",
               !dot ? "png" : strcmp(dot, ".jpg") == 0 ? "jpeg" : dot + 1);
    xd_buf_json_string(b, or_auto(q->quality));
    if (task->ndone)
        xd_buf_add(b, ",\"size\":\"%lldx%lld\"", (long long)task->done[0].width,
                   (long long)task->done[0].height);
}

static void add_image(xd_text_buf *b, xd_http_call *c, const image_ask *q, const xd_task *task,
                      int i)
{
    const xd_task_image *im = &task->done[i];
    char                origin[320];
    xd_answer_origin(c, origin, sizeof origin);
    xd_buf_add(b, "%s{", i ? "," : "");
    if (q->url) {
        char url[512];
        snprintf(url, sizeof url, "%s/v1/images/%s/content?index=%d", origin, task->id, i);
        xd_buf_add(b, "\"url\":");
        xd_buf_json_string(b, url);
    } else {
        xd_buf_add(b, "\"b64_json\":\"");
        if (!xd_answer_base64(b, im->file))
            b->failed = 1;
        xd_buf_add(b, "\"");
    }
    xd_buf_add(b, ",\"seed\":%s,\"parameters\":%s}", im->seed, im->json);
}

static void reply_images(xd_http_call *c, const image_ask *q, const xd_task *task)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "{\"created\":%lld,\"id\":\"%s\",\"data\":[", (long long)task->created,
               task->id);
    for (int i = 0; i < task->ndone; i++)
        add_image(&b, c, q, task, i);
    xd_buf_add(&b, "],");
    add_about(&b, q, task);
    xd_buf_add(&b, "}\n");
    xd_reply_json(c, 200, &b);
}

/* ---- events ---------------------------------------------------------------------------------- */

typedef struct stream {
    image_ask q;
    xd_http_call   call;        /* the connection of it, which outlives the request's record */
    xd_task   *task;
    unsigned  seen;
    int       previews, images, edit, over;
    char      told[96];         /* of the last event of progress                               */
} stream;

static void add_event(xd_text_buf *b, const stream *s, const char *what, const char *file, int i)
{
    const char *name = s->edit ? "image_edit" : "image_generation";
    xd_buf_add(b, "event: %s.%s\ndata: {\"type\":\"%s.%s\",\"created_at\":%lld,", name, what, name,
               what, (long long)s->task->created);
    if (i >= 0)
        xd_buf_add(b, "\"partial_image_index\":%d,", i);
    add_about(b, &s->q, s->task);
    xd_buf_add(b, ",\"b64_json\":\"");
    xd_answer_base64(b, file);
    xd_buf_add(b, "\"}\n\n");
}

static void add_failure(xd_text_buf *b, const xd_task *task)
{
    xd_buf_add(b, "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":");
    xd_buf_json_string(b, task->error ? task->error : "it failed without a word");
    xd_buf_add(b, ",\"type\":\"%s\",\"param\":null,\"code\":null}}\n\n",
               xd_answer_status(task->code) < 500 ? "invalid_request_error" : "server_error");
}

/* How far it is, where the request has asked for that and it is news: OpenAI has no such event. */
static void add_progress(xd_text_buf *b, stream *s)
{
    static const char *const states[] = { "queued", "in_progress" };
    const xd_task   *task = s->task;
    const xd_server *server = s->call.server;
    char             now[sizeof s->told];
    if (!s->q.progress || xd_task_over(task))
        return;
    int queued = task->state == XD_TASK_QUEUED;
    snprintf(now, sizeof now, "%s %s %d %d %d", states[!queued], task->stage, task->step,
             task->image, queued ? xd_task_position(server->tasks, task) : 0);
    if (strcmp(now, s->told) == 0)
        return;
    snprintf(s->told, sizeof s->told, "%s", now);
    const char *name = s->edit ? "image_edit" : "image_generation";
    xd_buf_add(b, "event: %s.progress\ndata: {\"type\":\"%s.progress\",\"id\":\"%s\","
               "\"status\":\"%s\",\"queue_position\":%d,\"stage\":\"%s\",\"step\":%d,"
               "\"steps\":%d,\"image\":%d,\"images\":%d}\n\n", name, name, task->id,
               states[!queued], queued ? xd_task_position(server->tasks, task) : 0, task->stage,
               task->step, task->steps, task->image, task->images);
}

/* What has come since the last look; under the lock. */
static void add_news(xd_text_buf *b, stream *s)
{
    const xd_task *task = s->task;
    for (; s->images < task->ndone; s->images++)
        add_event(b, s, "completed", task->done[s->images].file, -1);
    if (s->previews < task->previews && task->preview && !xd_task_over(task)) {
        add_event(b, s, "partial_image", task->preview, s->previews);
        s->previews = task->previews;
    }
    add_progress(b, s);
    if (!xd_task_over(task))
        return;
    if (task->state != XD_TASK_DONE)
        add_failure(b, task);
    s->over = 1;
}

static int more_events(void *cookie, xd_text_buf *b)
{
    stream    *s = cookie;
    xd_server *server = s->call.server;
    while (!s->over && !b->len) {
        s->seen = xd_tasks_wait(server->tasks, s->task, s->seen, 0.25);
        if (xd_http_gone(&s->call))
            xd_cancel_task(server, s->task);
        xd_tasks_lock(server->tasks);
        add_news(b, s);
        xd_tasks_unlock(server->tasks);
    }
    return !s->over;
}

/* Also when the client went away while it read. */
static void end_stream(void *cookie)
{
    stream    *s = cookie;
    xd_server *server = s->call.server;
    xd_cancel_task(server, s->task);
    xd_task_release(server->tasks, s->task);
    free(s);
}

static void reply_stream(xd_http_call *c, const image_ask *q, xd_task *task, int edit)
{
    xd_server *server = c->server;
    stream    *s = calloc(1, sizeof *s);
    if (!s) {
        xd_cancel_task(server, task);
        xd_task_release(server->tasks, task);
        xd_reply_error(c, 503, NULL, NULL, "no memory for a stream of events");
        return;
    }
    xd_task_expect(server->tasks, task);
    *s = (stream){ .q = *q, .task = task, .edit = edit,
                   .call = { .connection = c->connection, .server = server } };
    xd_reply_events(c, more_events, end_stream, s);
}

/* ---- routes ---------------------------------------------------------------------------------- */

static void make_images(xd_http_call *c, int edit)
{
    xd_server *server = c->server;
    image_ask  q = { .url = 0 };
    xd_ask_begin(&q.ask, c, "image");
    xd_ask_fields(&q.ask, fields, &q);
    if (edit && !q.ask.images)
        xd_ask_refuse(&q.ask, 400, "image", "image is missing: the one to edit");
    xd_task *task = xd_ask_submit(&q.ask);
    if (!task)
        return;
    if (q.stream) {
        reply_stream(c, &q, task, edit);
        return;
    }
    xd_answer_wait(c, task);
    xd_tasks_lock(server->tasks);
    if (task->state == XD_TASK_DONE)
        reply_images(c, &q, task);
    else
        xd_answer_failure(c, task);
    xd_tasks_unlock(server->tasks);
    xd_task_release(server->tasks, task);
}

void xd_api_images_generate(xd_http_call *c)
{
    make_images(c, 0);
}

void xd_api_images_edit(xd_http_call *c)
{
    make_images(c, 1);
}

/* The id is long and drawn by chance: who knows it was told it. */
void xd_api_images_content(xd_http_call *c)
{
    xd_server  *server = c->server;
    const char *index = xd_http_query(c, "index");
    int         i = index ? atoi(index) : 0;
    xd_task     *task = xd_tasks_find(server->tasks, c->arg);
    if (task && i >= 0 && i < task->ndone)
        xd_reply_file(c, task->done[i].file, xd_answer_type(task->done[i].file));
    else
        xd_reply_error(c, 404, NULL, NULL, "there is no such image; it may have expired");
    xd_task_release(server->tasks, task);
}
