/* api_images.c - OpenAI's interface for images: /v1/images/generations and /v1/images/edits.
 *
 * In addition to OpenAI's fields, requests may set every option of xd_request_options as a
 * field. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/word_list.h"
#include "cli/opt.h"
#include "serve/server.h"

typedef struct image_request { /* fields of a request that the reply needs */
    xd_api_req req;
    int        url, stream, progress, wait;
    /* form: 1 if the request sets the field response_format; dalle: 1 if the request names a DALL-E
     * model */
    int        form, dalle;
    /* value of the field output_compression; negative: the request has no such field */
    long       compression;
    /* values of the fields quality and partial_images; "": the request has no such field */
    char       quality[16], partial[16];
} image_request;

/* ---- fields ---------------------------------------------------------------------------------- */

static void set_response(void *cookie, const char *name, const char *value)
{
    image_request *q = cookie;
    q->url = strcmp(value, "url") == 0;
    q->form = 1;
    if (!q->url && strcmp(value, "b64_json") != 0)
        xd_api_req_refuse(&q->req, 400, name,
                          "response_format must be b64_json or url, not "
                          "'%.40s'",
                          value);
}

/* Sets the model. If the request names a DALL-E model, the reply has URLs of images by default, as
 * the reply of OpenAI's server does. */
static void set_model(void *cookie, const char *name, const char *value)
{
    image_request *q = cookie;
    (void)name;
    q->dalle = strncmp(value, "dall-e", 6) == 0;
    xd_api_req_model(&q->req, value);
}

/* Returns nonzero if the text of a form's switch is "true". Forms contain true and false as
 * texts. */
static int is_on(image_request *q, const char *name, const char *value)
{
    int on = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
    if (!on && strcmp(value, "false") != 0 && strcmp(value, "0") != 0)
        xd_api_req_refuse(&q->req, 400, name, "%s must be true or false, not '%.40s'", name, value);
    return on;
}

static void set_stream(void *cookie, const char *name, const char *value)
{
    image_request *q = cookie;
    q->stream = is_on(q, name, value);
}

static void set_progress(void *cookie, const char *name, const char *value)
{
    image_request *q = cookie;
    q->progress = is_on(q, name, value);
}

static void set_wait(void *cookie, const char *name, const char *value)
{
    image_request *q = cookie;
    q->wait = is_on(q, name, value);
}

static void set_partial(void *cookie, const char *name, const char *value)
{
    image_request *q = cookie;
    char          *end;
    long           n = strtol(value, &end, 10);
    if (*end || end == value || n < 0 || n > 3)
        xd_api_req_refuse(&q->req, 400, name,
                          "partial_images must be a number from 0 to 3, not '%.40s'", value);
    else if (n > 0)
        snprintf(q->partial, sizeof q->partial, "%ld", n);
}

static void set_compression(void *cookie, const char *name, const char *value)
{
    image_request *q = cookie;
    char          *end;
    q->compression = strtol(value, &end, 10);
    if (*end || end == value || q->compression < 0 || q->compression > 100)
        xd_api_req_refuse(&q->req, 400, name,
                          "output_compression must be a number from 0 to 100, "
                          "not '%.40s'",
                          value);
}

/* Fields of OpenAI's models that have no effect in this server. Fields without effect must have
 * valid values; other values are refused. */
static const struct {
    const char *name, *values;
} choices[] = {
    { "quality", "auto standard low medium high xhigh max hd" },
    { "style", "vivid natural" },
    { "background", "auto opaque transparent" },
    { "moderation", "auto low" },
    { "input_fidelity", "low high auto" },
    { "complexity", "low medium high auto" },
};

static void set_choice(void *cookie, const char *name, const char *value)
{
    image_request *q = cookie;
    char           list[80];
    size_t         i = 0;
    while (strcmp(choices[i].name, name) != 0)
        i++;
    xd_opt_spell(choices[i].values, list, sizeof list);
    if (strpbrk(value, " ,") || !xd_list_has(choices[i].values, value))
        xd_api_req_refuse(&q->req, 400, name, "%s must be %s, not '%.40s'", name, list, value);
    else if (i == 0)
        snprintf(q->quality, sizeof q->quality, "%.15s", value);
}

/* Ignores the value of a field such as "user", which has no effect in this server. */
static void set_nothing(void *cookie, const char *name, const char *value)
{
    (void)cookie, (void)name, (void)value;
}

static const xd_api_req_field fields[] = {
    { "model", set_model, NULL },
    { "response_format", set_response, NULL },
    { "stream", set_stream, NULL },
    { "partial_images", set_partial, NULL },
    { "progress", set_progress, NULL },
    { "wait", set_wait, NULL },
    { "quality", set_choice, NULL },
    { "background", set_choice, NULL },
    { "moderation", set_choice, NULL },
    { "style", set_choice, NULL },
    { "input_fidelity", set_choice, NULL },
    { "complexity", set_choice, NULL },
    { "user", set_nothing, NULL },
    { "safety_identifier", set_nothing, NULL },
    { "output_compression", set_compression, NULL },
    { "image", NULL, "image" },
    { "image[]", NULL, "image" },
    { "images", NULL, "image" },
    { "mask", NULL, "mask_image" },
    { "control_image", NULL, "control_image" },
    { "control_image[]", NULL, "control_image" },
    { "redux_image", NULL, "redux_image" },
    { "redux_image[]", NULL, "redux_image" },
    { NULL, NULL, NULL },
};

/* ---- answers --------------------------------------------------------------------------------- */

static const char *or_auto(const char *text)
{
    return text[0] ? text : "auto";
}

/* Appends the fields of the request that OpenAI's replies repeat. im: the finished image; NULL: the
 * image is not finished. */
static void add_about(xd_text_buf *b, const image_request *q, const xd_task *task,
                      const xd_task_image *im)
{
    const char *format = q->req.extension;
    char        size[48];
    xd_buf_add(b, "\"background\":\"opaque\",\"output_format\":\"%s\",\"quality\":",
               strcmp(format, "jpg") == 0 ? "jpeg" : format);
    xd_buf_json_string(b, or_auto(q->quality));
    if (im)
        snprintf(size, sizeof size, "%lldx%lld", (long long)im->width, (long long)im->height);
    else
        snprintf(size, sizeof size, "%.40s", task->size ? task->size : "auto");
    xd_buf_add(b, ",\"size\":");
    xd_buf_json_string(b, size);
}

/* Appends the token usage of n images; the tokens of the prompt and of input images count once for
 * all n images. */
static void add_usage(xd_text_buf *b, const xd_task_image *v, int n)
{
    int64_t text = n ? v[0].text_tokens : 0, read = n ? v[0].reference_tokens : 0, made = 0;
    for (int i = 0; i < n; i++)
        made += v[i].image_tokens;
    xd_buf_add(b,
               ",\"usage\":{\"input_tokens\":%lld,\"input_tokens_details\":{\"image_tokens\":"
               "%lld,\"text_tokens\":%lld},\"output_tokens\":%lld,\"output_tokens_details\":{"
               "\"image_tokens\":%lld,\"text_tokens\":0},\"total_tokens\":%lld}",
               (long long)(text + read), (long long)read, (long long)text, (long long)made,
               (long long)made, (long long)(text + read + made));
}

static void add_image(xd_text_buf *b, xd_http_call *c, const image_request *q, const xd_task *task,
                      int i)
{
    const xd_task_image *im = &task->done[i];
    char                 origin[320];
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

/* Replies with the images of an ended task. The caller holds a reference to the task. An ended task
 * does not change any more, so its result files are read without the lock of the tasks. */
static void reply_images(xd_http_call *c, const image_request *q, const xd_task *task)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "{\"created\":%lld,\"id\":\"%s\",\"data\":[", (long long)task->created,
               task->id);
    for (int i = 0; i < task->ndone; i++)
        add_image(&b, c, q, task, i);
    xd_buf_add(&b, "],");
    add_about(&b, q, task, task->ndone ? &task->done[0] : NULL);
    add_usage(&b, task->done, task->ndone);
    xd_buf_add(&b, "}\n");
    xd_reply_json(c, 200, &b);
}

/* ---- events ---------------------------------------------------------------------------------- */

typedef struct stream {
    image_request q;
    xd_http_call  call; /* a copy of the HTTP call, because the stream of events ends after
                                   the handler's own call is freed */
    xd_task      *task;
    unsigned      seen;
    int           previews, images, edit, over;
    int           before;         /* number of previews of all earlier images of the task */
    char          last_event[96]; /* state of the task in the last progress event */
} stream;

/* Next event in the event stream of a task. The data of the event are copied while the lock of the
 * tasks is held, so that result files can be read after the lock was released. */
typedef struct news {
    /* type of the event, "completed" or "partial_image"; NULL: the task has no new event of these
     * types */
    const char   *what;
    char          file[4096];
    xd_task_image image; /* the image of the event "completed" */
    /* index: number of the preview in an event "partial_image"; over: 1 if the task has ended */
    int           index, over;
} news;

static void add_event(xd_text_buf *b, const stream *s, const news *n)
{
    const char *name = s->edit ? "image_edit" : "image_generation";
    int         done = n->what[0] == 'c';
    xd_buf_add(b, "event: %s.%s\ndata: {\"type\":\"%s.%s\",\"created_at\":%lld,", name, n->what,
               name, n->what, (long long)s->task->created);
    if (!done)
        xd_buf_add(b, "\"partial_image_index\":%d,", n->index);
    add_about(b, &s->q, s->task, done ? &n->image : NULL);
    if (done) {
        add_usage(b, &n->image, 1);
        xd_buf_add(b, ",\"seed\":%s", n->image.seed);
    }
    xd_buf_add(b, ",\"b64_json\":\"");
    xd_answer_base64(b, n->file);
    xd_buf_add(b, "\"}\n\n");
}

static void add_failure(xd_text_buf *b, const xd_server *s, const xd_task *task)
{
    char text[4096];
    xd_buf_add(b, "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":");
    xd_buf_json_string(b, xd_answer_error(s, task, text, sizeof text));
    xd_buf_add(b, ",\"type\":\"%s\",\"param\":null,\"code\":null}}\n\n",
               xd_answer_status(task->code) < 500 ? "invalid_request_error" : "server_error");
}

/* Appends a progress event if the request wants progress events and the progress has changed.
 * Progress events are an extension of OpenAI's interface. The caller holds the lock of the
 * tasks. */
static void add_progress(xd_text_buf *b, stream *s)
{
    static const char *const states[] = { "queued", "in_progress" };
    const xd_task           *task = s->task;
    const xd_server         *server = s->call.server;
    char                     now[sizeof s->last_event];
    if (!s->q.progress || xd_task_has_ended(task))
        return;
    int queued = task->state == XD_TASK_QUEUED;
    snprintf(now, sizeof now, "%s %s %d %d %d", states[!queued], task->stage, task->step,
             task->image, queued ? xd_task_position(server->tasks, task) : 0);
    if (strcmp(now, s->last_event) == 0)
        return;
    snprintf(s->last_event, sizeof s->last_event, "%s", now);
    const char *name = s->edit ? "image_edit" : "image_generation";
    xd_buf_add(b,
               "event: %s.progress\ndata: {\"type\":\"%s.progress\",\"id\":\"%s\","
               "\"status\":\"%s\",\"queue_position\":%d,\"stage\":\"%s\",\"step\":%d,"
               "\"steps\":%d,\"image\":%d,\"images\":%d}\n\n",
               name, name, task->id, states[!queued],
               queued ? xd_task_position(server->tasks, task) : 0, task->stage, task->step,
               task->steps, task->image, task->images);
}

static news read_news(stream *s, xd_text_buf *b)
{
    xd_tasks      *tasks = ((xd_server *)s->call.server)->tasks;
    const xd_task *task = s->task;
    news           n = { .what = NULL };
    xd_tasks_lock(tasks);
    int made = s->images < task->ndone;
    if (s->previews < (made ? task->done[s->images].previews : task->previews)) {
        n.what = "partial_image";
        n.index = s->previews - s->before;
        xd_task_preview_file(task, s->previews++, n.file, sizeof n.file);
    } else if (made) {
        n.what = "completed";
        n.image = task->done[s->images++];
        s->before = s->previews;
        snprintf(n.file, sizeof n.file, "%s", n.image.file);
    } else {
        n.over = xd_task_has_ended(task);
        add_progress(b, s);
    }
    xd_tasks_unlock(tasks);
    return n;
}

static int more_events(void *cookie, xd_text_buf *b)
{
    stream    *s = cookie;
    xd_server *server = s->call.server;
    while (!s->over && !b->len) {
        news n = read_news(s, b);
        s->over = n.over;
        if (n.what) {
            add_event(b, s, &n);
        } else if (n.over && s->task->state != XD_TASK_DONE) {
            add_failure(b, server, s->task);
        } else if (!n.over && !b->len) {
            s->seen = xd_tasks_wait(server->tasks, s->task, s->seen, 0.25);
            if (xd_http_reader_left(&s->call, b))
                xd_cancel_left(server, s->task);
        }
    }
    return !s->over;
}

/* Frees a stream of events, after the end of the stream or after the client has disconnected. */
static void end_stream(void *cookie)
{
    stream    *s = cookie;
    xd_server *server = s->call.server;
    xd_cancel_left(server, s->task);
    xd_task_release(server->tasks, s->task);
    free(s);
}

static void reply_stream(xd_http_call *c, const image_request *q, xd_task *task, int edit)
{
    xd_server *server = c->server;
    stream    *s = calloc(1, sizeof *s);
    if (!s) {
        xd_cancel_task(server, task);
        xd_task_release(server->tasks, task);
        xd_reply_error(c, 503, NULL, NULL, "no memory for a stream of events");
        return;
    }
    xd_task_mark_awaited(server->tasks, task);
    *s = (stream){ .q = *q,
                   .task = task,
                   .edit = edit,
                   .call = { .connection = c->connection, .server = server } };
    xd_reply_events(c, more_events, end_stream, s);
}

/* ---- routes ---------------------------------------------------------------------------------- */

/* Sets the quality of the result files from output_compression. In OpenAI's interface,
 * output_compression 100 is the best quality; a PNG file has no losses. */
static void compress(image_request *q)
{
    char text[24];
    snprintf(text, sizeof text, "%ld", q->compression);
    if (strcmp(q->req.extension, "png") != 0 && q->compression >= 0)
        xd_api_req_option(&q->req, "output_quality", text);
}

static void make_images(xd_http_call *c, int edit)
{
    xd_server    *server = c->server;
    image_request q = { .compression = -1, .wait = 1 };
    xd_api_req_begin(&q.req, c, "image");
    xd_api_req_fields(&q.req, fields, &q);
    compress(&q);
    q.url |= q.dalle && !q.form;
    if (q.stream && *q.partial)
        xd_api_req_option(&q.req, "previews", q.partial);
    if (!q.req.failed && xd_task_has(q.req.task, "--mask_image="))
        xd_api_req_option(&q.req, "mask_alpha", "true");
    if (edit && !q.req.images)
        xd_api_req_refuse(&q.req, 400, "image", "image is missing: send the image to edit");
    xd_task *task = xd_api_req_submit(&q.req);
    if (!task)
        return;
    if (q.stream) {
        reply_stream(c, &q, task, edit);
        return;
    }
    if (q.wait)
        xd_answer_wait(c, task);
    if (!q.wait)
        xd_answer_job(c, 202, task);
    else if (task->state == XD_TASK_DONE)
        reply_images(c, &q, task);
    else
        xd_answer_failure(c, task);
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
