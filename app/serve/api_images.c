/* api_images.c - images as OpenAI's clients ask for them: /v1/images/generations and /edits.
 *
 * Beside the fields of that interface, every option of xd_request_options is one by its name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/server.h"

typedef struct image_ask {      /* fields that the answer needs                                */
    xd_ask ask;
    int    url, stream, partial;
    char   quality[16], background[16];
} image_ask;

typedef void set_field(image_ask *q, const char *name, const char *value);

/* ---- fields ---------------------------------------------------------------------------------- */

static void set_prompt(image_ask *q, const char *name, const char *value)
{
    (void)name;
    xd_ask_prompt(&q->ask, value);
}

static void set_model(image_ask *q, const char *name, const char *value)
{
    (void)name;
    xd_ask_model(&q->ask, value);
}

static void set_size(image_ask *q, const char *name, const char *value)
{
    (void)name;
    xd_ask_size(&q->ask, value);
}

static void set_format(image_ask *q, const char *name, const char *value)
{
    xd_ask_format(&q->ask, name, value);
}

static void set_response(image_ask *q, const char *name, const char *value)
{
    q->url = strcmp(value, "url") == 0;
    if (!q->url && strcmp(value, "b64_json") != 0)
        xd_ask_refuse(&q->ask, 400, name, "response_format is b64_json or url, not '%.40s'", value);
}

static void set_stream(image_ask *q, const char *name, const char *value)
{
    (void)name;
    q->stream = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
}

static void set_partial(image_ask *q, const char *name, const char *value)
{
    char *end;
    long  n = strtol(value, &end, 10);
    q->partial = (int)n;
    if (*end || end == value || n < 0 || n > 3)
        xd_ask_refuse(&q->ask, 400, name, "partial_images is a number from 0 to 3, not '%.40s'",
                      value);
}

static void set_echoed(image_ask *q, const char *name, const char *value)
{
    char *to = strcmp(name, "quality") == 0 ? q->quality : q->background;
    snprintf(to, sizeof q->quality, "%.15s", value);
}

static void set_background(image_ask *q, const char *name, const char *value)
{
    if (strcmp(value, "transparent") == 0)
        xd_ask_refuse(&q->ask, 400, name, "images have no transparent background here");
    set_echoed(q, name, value);
}

/* What this engine has no use for: models of OpenAI's do. */
static void set_nothing(image_ask *q, const char *name, const char *value)
{
    (void)q, (void)name, (void)value;
}

static const struct { const char *name; set_field *set; } fields[] = {
    { "prompt", set_prompt },           { "model", set_model },
    { "size", set_size },               { "output_format", set_format },
    { "response_format", set_response }, { "stream", set_stream },
    { "partial_images", set_partial },  { "quality", set_echoed },
    { "background", set_background },   { "moderation", set_nothing },
    { "style", set_nothing },           { "user", set_nothing },
    { "output_compression", set_nothing }, { "input_fidelity", set_nothing },
};

static set_field *find_field(const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i].name, name) == 0)
            return fields[i].set;
    return NULL;
}

static void refuse_field(image_ask *q, const char *name)
{
    xd_ask_refuse(&q->ask, 400, name, "there is no field '%.40s'; options are named as those of "
                  "xdit generate", name);
}

/* {"image_url": "data:..."}, or the URL itself. */
static void set_json_image(image_ask *q, const xd_json *v)
{
    const xd_json *url = xd_json_get(v, "image_url");
    const char    *text = xd_json_text(v) ? xd_json_text(v)
                        : xd_json_text(url) ? xd_json_text(url)
                                            : xd_json_text(xd_json_get(url, "url"));
    if (text)
        xd_ask_data_url(&q->ask, "image", text);
    else
        xd_ask_refuse(&q->ask, 400, "images", "images are {\"image_url\": \"data:...\"}");
}

static void read_json_field(image_ask *q, const char *name, const xd_json *v)
{
    set_field  *set = find_field(name);
    const char *text = xd_json_text(v);
    char        number[40];
    double      d;
    int         on;
    if (strcmp(name, "images") == 0 || strcmp(name, "image") == 0) {
        const xd_json *i = xd_json_is_list(v) ? xd_json_first(v) : v;
        for (; i; i = i == v ? NULL : xd_json_next(i))
            set_json_image(q, i);
        return;
    }
    if (strcmp(name, "mask") == 0) {
        const xd_json *url = xd_json_get(v, "image_url");
        text = text ? text : xd_json_text(url);
        xd_ask_data_url(&q->ask, "mask_image", text ? text : "");
        return;
    }
    if (!set) {
        if (!xd_ask_named(&q->ask, name, v))
            refuse_field(q, name);
        return;
    }
    if (xd_json_null(v))
        return;
    if (xd_json_number(v, &d))
        snprintf(number, sizeof number, "%.17g", d), text = number;
    else if (xd_json_bool(v, &on))
        text = on ? "true" : "false";
    if (text)
        set(q, name, text);
    else
        xd_ask_refuse(&q->ask, 400, name, "%s is a text or a number", name);
}

static int is_image(const char *name)
{
    return strcmp(name, "image") == 0 || strcmp(name, "image[]") == 0;
}

static void read_part(image_ask *q, const xd_part *p)
{
    set_field *set = find_field(p->name);
    if (is_image(p->name) && p->file)
        xd_ask_file(&q->ask, "image", p->data, p->bytes);
    else if (is_image(p->name))
        xd_ask_data_url(&q->ask, "image", p->data);
    else if (strcmp(p->name, "mask") == 0)
        xd_ask_file(&q->ask, "mask_image", p->data, p->bytes);
    else if (set)
        set(q, p->name, p->data);
    else if (!xd_ask_named_text(&q->ask, p->name, p->data))
        refuse_field(q, p->name);
}

static void read_fields(image_ask *q, xd_http_call *c)
{
    xd_ask_begin(&q->ask, c, "image");
    if (!c->json && !c->nparts)
        xd_ask_refuse(&q->ask, 400, NULL, "the body is a JSON object or multipart/form-data with a "
                      "prompt");
    if (c->json && !xd_json_is_object(c->json))
        xd_ask_refuse(&q->ask, 400, NULL, "the body is a JSON object");
    for (const xd_json *v = xd_json_first(c->json); v; v = xd_json_next(v))
        read_json_field(q, xd_json_key(v) ? xd_json_key(v) : "", v);
    for (int i = 0; i < c->nparts; i++)
        read_part(q, &c->parts[i]);
}

/* ---- answers --------------------------------------------------------------------------------- */

static const char *or_auto(const char *text)
{
    return text[0] ? text : "auto";
}

static void add_about(xd_text_buf *b, const image_ask *q, const xd_task *task)
{
    const char *dot = task->ndone ? strrchr(task->done[0].file, '.') : NULL;
    xd_buf_add(b, "\"background\":\"%s\",\"output_format\":\"%s\",\"quality\":",
               q->background[0] ? "opaque" : "opaque",
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
    *s = (stream){ .q = *q, .task = task, .edit = edit,
                   .call = { .connection = c->connection, .server = server } };
    xd_reply_events(c, more_events, end_stream, s);
}

/* ---- routes ---------------------------------------------------------------------------------- */

static void make_images(xd_http_call *c, int edit)
{
    xd_server *server = c->server;
    image_ask  q = { .url = 0 };
    read_fields(&q, c);
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
