/* comfy_events.c - the messages of ComfyUI's WebSocket
 *
 * The thread of each connection compares the tasks of its client with what it has sent, and sends
 * the difference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "serve/comfy.h"
#include "serve/http_socket.h"
#include "xdit/tools.h"

static const double LOOK_S = 0.05; /* seconds between two looks at the tasks */
enum { MAX_BYTES = 256 << 20 };

typedef struct cursor { /* what a client knows of a prompt */
    long           number;
    int            begun, ended, at, done, previews;
    int            seen; /* 1: the prompt still exists */
    struct cursor *next;
} cursor;

typedef struct message { /* a text, or the name of a file that is sent as bytes */
    xd_text_buf     text;
    char           *file;
    int             preview; /* 1: the file is a preview */
    struct message *next;
} message;

typedef struct watcher {
    xd_server *server;
    char       owner[20], client[64];
    long       first; /* number of the first prompt that arrived after the connection began */
    cursor    *cursors;
    message   *messages, **end;
    int        left, told; /* number of prompts that have not ended, and its last sent value */
} watcher;

/* ---- messages -------------------------------------------------------------------------------- */

/* Appends an empty message; NULL: memory is exhausted, and the message is lost. */
static xd_text_buf *add_message(watcher *w)
{
    message *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    *w->end = m;
    w->end = &m->next;
    return &m->text;
}

static void add_file(watcher *w, const char *path, int preview)
{
    xd_text_buf *b = add_message(w);
    message     *m = (message *)b;
    if (m) {
        m->file = strdup(path);
        m->preview = preview;
    }
}

static xd_text_buf *begin_message(watcher *w, const char *type, const xd_comfy_prompt *p)
{
    xd_text_buf *b = add_message(w);
    if (!b)
        return NULL;
    xd_buf_add(b, "{\"type\":\"%s\",\"data\":{\"prompt_id\":", type);
    xd_buf_json_string(b, p->id);
    return b;
}

static void add_time(watcher *w, const char *type, const xd_comfy_prompt *p, const char *more)
{
    xd_text_buf *b = begin_message(w, type, p);
    if (b)
        xd_buf_add(b, "%s,\"timestamp\":%.0f}}", more, xd_unix_s() * 1e3);
}

static void add_node(xd_text_buf *b, const xd_comfy_step *step)
{
    xd_buf_add(b, ",\"node\":");
    xd_buf_json_string(b, step->id);
    xd_buf_add(b, ",\"display_node\":");
    xd_buf_json_string(b, step->id);
}

/* Tells that the nodes before `end` are executed. */
static void add_nodes(watcher *w, cursor *k, const xd_comfy_prompt *p, int end)
{
    for (; k->at < end && k->at < p->n; k->at++) {
        xd_text_buf *b = begin_message(w, "executing", p);
        if (!b)
            return;
        add_node(b, &p->steps[k->at]);
        xd_buf_add(b, "}}");
    }
}

static void add_progress(watcher *w, cursor *k, const xd_comfy_prompt *p, const xd_task *task)
{
    int before = task->image > 1 ? (task->image - 1) * task->steps : 0, done = before + task->step,
        all = task->steps * (task->images > 1 ? task->images : 1);
    if (done <= k->done || task->steps < 1)
        return;
    k->done = done;
    xd_text_buf *b = begin_message(w, "progress", p);
    if (!b)
        return;
    add_node(b, &p->steps[p->places.sampler]);
    xd_buf_add(b, ",\"value\":%d,\"max\":%d}}", done, all);
}

static void add_results(watcher *w, const xd_comfy_prompt *p, const xd_task *task,
                        const xd_comfy_step *step)
{
    if (xd_comfy_sends(step)) {
        for (int i = 0; i < task->ndone; i++)
            add_file(w, task->done[i].file, 0);
        return;
    }
    xd_text_buf *b = begin_message(w, "executed", p);
    if (!b)
        return;
    add_node(b, step);
    xd_buf_add(b, ",\"output\":");
    xd_comfy_add_images(b, task, step);
    xd_buf_add(b, "}}");
}

static void add_end(watcher *w, cursor *k, const xd_comfy_prompt *p, const xd_task *task)
{
    xd_text_buf *b;
    if (task->state == XD_TASK_DONE) {
        for (int i = 0; i < p->n; i++) {
            add_nodes(w, k, p, i + 1);
            if (p->steps[i].saves)
                add_results(w, p, task, &p->steps[i]);
        }
        add_time(w, "execution_success", p, "");
    } else if ((b = add_message(w))) {
        int failed = task->state == XD_TASK_FAILED;
        xd_buf_add(b, "{\"type\":\"%s\",\"data\":{",
                   failed ? "execution_error" : "execution_interrupted");
        xd_comfy_add_failure(b, w->server, p, task);
        xd_buf_add(b, ",\"timestamp\":%.0f}}", xd_unix_s() * 1e3);
    }
    if ((b = begin_message(w, "executing", p)))
        xd_buf_add(b, ",\"node\":null}}");
}

/* ---- comparison with the tasks --------------------------------------------------------------- */

static cursor *find_cursor(const watcher *w, const xd_comfy_prompt *p)
{
    cursor *k = w->cursors;
    while (k && k->number != p->number)
        k = k->next;
    return k;
}

static cursor *add_cursor(watcher *w, const xd_comfy_prompt *p, const xd_task *task)
{
    cursor *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->number = p->number;
    k->ended = p->number < w->first && xd_task_has_ended(task);
    k->next = w->cursors;
    w->cursors = k;
    return k;
}

/* Returns nonzero if the client knows the end of a prompt. */
static int is_told(void *cookie, const xd_comfy_prompt *p)
{
    cursor *k = find_cursor(cookie, p);
    if (!k || !k->ended)
        return 0;
    k->seen = 1;
    return 1;
}

/* Returns the number of nodes that are executed, or have been, at the stage of a task. */
static int nodes_at(const xd_comfy_prompt *p, const xd_task *task)
{
    return strcmp(task->stage, "decode") == 0    ? p->places.decoder + 1
           : strcmp(task->stage, "denoise") == 0 ? p->places.sampler + 1
                                                 : p->places.sampler;
}

static void look_at(void *cookie, const xd_comfy_prompt *p, const xd_task *task)
{
    watcher *w = cookie;
    char     path[4200];
    w->left += !xd_task_has_ended(task);
    if (strcmp(p->client, w->client) != 0)
        return;
    cursor *k = find_cursor(w, p);
    if (!k)
        k = add_cursor(w, p, task);
    if (k)
        k->seen = 1;
    if (!k || k->ended || task->state == XD_TASK_QUEUED)
        return;
    k->ended = xd_task_has_ended(task);
    if (k->ended && !k->begun && task->state == XD_TASK_CANCELLED)
        return; /* a prompt that was deleted from the queue has no messages */
    if (!k->begun) {
        add_time(w, "execution_start", p, "");
        add_time(w, "execution_cached", p, ",\"nodes\":[]");
        k->begun = 1;
    }
    add_nodes(w, k, p, nodes_at(p, task));
    add_progress(w, k, p, task);
    if (task->previews > k->previews && !k->ended) {
        k->previews = task->previews;
        xd_task_preview_file(task, task->previews - 1, path, sizeof path);
        add_file(w, path, 1);
    }
    if (k->ended)
        add_end(w, k, p, task);
}

static void drop_cursors(watcher *w)
{
    for (cursor **at = &w->cursors, *k; (k = *at);) {
        if (k->seen) {
            k->seen = 0;
            at = &k->next;
            continue;
        }
        *at = k->next;
        free(k);
    }
}

static void count_left(void *cookie, const xd_comfy_prompt *p, const xd_task *task)
{
    watcher *w = cookie;
    (void)p;
    w->left += !xd_task_has_ended(task);
}

static void add_status(watcher *w, int first)
{
    xd_text_buf *b = add_message(w);
    if (!b)
        return;
    xd_buf_add(b,
               "{\"type\":\"status\",\"data\":{\"status\":{\"exec_info\":{\"queue_remaining\":%d}}",
               w->left);
    if (first) {
        xd_buf_add(b, ",\"sid\":");
        xd_buf_json_string(b, w->client);
    }
    xd_buf_add(b, "}}");
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Writes a preview as a JPEG file, because clients take a PNG for a result. */
static int make_jpeg(const char *from, const char *to)
{
    xd_image im;
    uint8_t *data = NULL;
    xd_image_init(&im);
    int made = xd_image_file_load(from, &im, &data, NULL) == XD_OK &&
               xd_image_file_save(&im, to, NULL) == XD_OK;
    free(data);
    return made;
}

/* Sends an image file after two numbers of 32 bits: 1 (an image), and 1 for JPEG or 2 for PNG. An
 * image that does not exist any more is left out. */
static int send_file(watcher *w, xd_socket *s, const message *m)
{
    char        path[4200], *data = NULL, *all = NULL;
    const char *from = m->file;
    size_t      bytes;
    int         good = 1;
    snprintf(path, sizeof path, "%s/comfy.%p.jpg", w->server->own_dir, (void *)w);
    if (m->preview && !make_jpeg(from, path))
        return 1;
    if (xd_file_read(m->preview ? path : from, MAX_BYTES, &data, &bytes, NULL) == XD_OK &&
        (all = malloc(bytes + 8))) {
        memcpy(all, "\0\0\0\1\0\0\0", 7);
        all[7] = m->preview ? 1 : 2;
        memcpy(all + 8, data, bytes);
        good = xd_socket_send(s, 1, all, bytes + 8);
    }
    if (m->preview)
        unlink(path);
    free(data);
    free(all);
    return good;
}

/* Sends and frees all messages. */
static void send_messages(watcher *w, xd_socket *s)
{
    int good = s != NULL;
    for (message *m; (m = w->messages);) {
        w->messages = m->next;
        if (good && m->file)
            good = send_file(w, s, m);
        else if (good && !m->text.failed && m->text.p)
            good = xd_socket_send(s, 0, m->text.p, m->text.len);
        xd_buf_free(&m->text);
        free(m->file);
        free(m);
    }
    w->end = &w->messages;
}

static void run(void *cookie, xd_socket *s)
{
    watcher *w = cookie;
    w->left = 0;
    xd_comfy_each(w->server, w->owner, NULL, count_left, w);
    add_status(w, 1);
    do {
        w->told = w->left;
        w->left = 0;
        xd_comfy_each(w->server, w->owner, is_told, look_at, w);
        drop_cursors(w);
        if (w->left != w->told)
            add_status(w, 0);
        send_messages(w, s);
    } while (xd_socket_wait(s, LOOK_S));
}

static void done(void *cookie)
{
    watcher *w = cookie;
    send_messages(w, NULL);
    for (cursor *k; (k = w->cursors);) {
        w->cursors = k->next;
        free(k);
    }
    free(w);
}

void xd_api_comfy_socket(xd_http_call *c)
{
    xd_server  *server = c->server;
    watcher    *w = calloc(1, sizeof *w);
    const char *client = xd_http_query(c, "clientId");
    if (!w) {
        xd_reply_error(c, 503, NULL, NULL, "no memory for a WebSocket connection");
        return;
    }
    w->server = server;
    w->end = &w->messages;
    snprintf(w->owner, sizeof w->owner, "%s", c->owner);
    snprintf(w->client, sizeof w->client, "%.63s", client && *client ? client : c->id);
    pthread_mutex_lock(&server->comfy->lock);
    w->first = server->comfy->number;
    pthread_mutex_unlock(&server->comfy->lock);
    xd_reply_socket(c, run, done, w);
}
