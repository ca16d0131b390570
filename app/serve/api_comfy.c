/* api_comfy.c - the routes of ComfyUI, for clients that send graphs
 *
 * All routes exist below /api as well, as in ComfyUI. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/comfy.h"

enum { MAX_GRAPH = 1 << 20 }; /* maximum bytes of a request with a graph */

const xd_route xd_comfy_routes[] = {
    { "GET", "/prompt", xd_api_comfy_queue_info, 0 },
    { "POST", "/prompt", xd_api_comfy_prompt, 0 },
    { "GET", "/history", xd_api_comfy_history, 0 },
    { "POST", "/history", xd_api_comfy_change_history, 0 },
    { "GET", "/history/*", xd_api_comfy_history, 0 },
    { "GET", "/queue", xd_api_comfy_queue, 0 },
    { "POST", "/queue", xd_api_comfy_change_queue, 0 },
    { "POST", "/interrupt", xd_api_comfy_interrupt, 0 },
    { "POST", "/free", xd_api_comfy_free, 0 },
    { "GET", "/view", xd_api_comfy_view, 0 },
    { "POST", "/upload/image", xd_api_comfy_upload_image, 0 },
    { "POST", "/upload/mask", xd_api_comfy_upload_mask, 0 },
    { "GET", "/object_info", xd_api_comfy_object_info, 0 },
    { "GET", "/object_info/*", xd_api_comfy_object_info, 0 },
    { "GET", "/system_stats", xd_api_comfy_stats, 0 },
    { "GET", "/embeddings", xd_api_comfy_none, 0 },
    { "GET", "/extensions", xd_api_comfy_none, 0 },
    { "GET", "/models", xd_api_comfy_models, 0 },
    { "GET", "/models/*", xd_api_comfy_models, 0 },
    { "GET", "/features", xd_api_comfy_features, 0 },
    { "GET", "/ws", xd_api_comfy_socket, 0 },
    { "PUT", "/etn/image/*", xd_api_comfy_put, 0 },
    { "GET", "/etn/image/*", xd_api_comfy_view, 0 },
    { "GET", "/etn/languages", xd_api_comfy_none, 0 },
    { .method = NULL },
};

/* ---- prompts --------------------------------------------------------------------------------- */

static int is_acceptable(const xd_http_call *c, xd_comfy_graph *g)
{
    *g = (xd_comfy_graph){ .call = c };
    if (c->bytes <= MAX_GRAPH && xd_json_is_object(c->json))
        return 1;
    snprintf(g->type, sizeof g->type, "invalid_prompt");
    snprintf(g->message, sizeof g->message, "The request is invalid");
    if (c->bytes > MAX_GRAPH)
        snprintf(g->details, sizeof g->details, "the body has %zu bytes; the limit is %d", c->bytes,
                 MAX_GRAPH);
    else
        snprintf(g->details, sizeof g->details, "the body must be a JSON object");
    return 0;
}

static void reply_prompt(xd_http_call *c, const xd_comfy_graph *g, const xd_comfy_places *places,
                         xd_task *task)
{
    xd_server  *s = c->server;
    char        id[64];
    xd_text_buf b = { 0 };
    long        number = xd_comfy_add(c, g, places, task, id);
    if (number < 0) {
        xd_cancel_task(s, task);
        xd_reply_error(c, 503, NULL, NULL, "no memory for a prompt");
        return;
    }
    xd_buf_add(&b, "{\"prompt_id\":");
    xd_buf_json_string(&b, id);
    xd_buf_add(&b, ",\"number\":%ld,\"node_errors\":{}}\n", number);
    xd_reply_json(c, 200, &b);
}

void xd_api_comfy_prompt(xd_http_call *c)
{
    xd_server      *s = c->server;
    xd_comfy_graph  g;
    xd_comfy_places places;
    xd_task        *task = NULL;
    if (is_acceptable(c, &g) && xd_comfy_graph_read(&g, c, xd_json_get(c->json, "prompt")))
        task = xd_comfy_submit(&g, c, &places);
    if (task)
        reply_prompt(c, &g, &places, task);
    else
        xd_comfy_reply_errors(c, &g);
    if (!task && g.status == 429)
        xd_answer_retry_after(c);
    xd_task_release(s->tasks, task);
    xd_comfy_graph_free(&g);
}

/* ---- history and queue ----------------------------------------------------------------------- */

typedef struct listing {
    xd_text_buf   b;
    xd_server    *server;
    const char   *id; /* id of the only prompt to list; "": all prompts */
    int           n, skip;
    xd_task_state state;
} listing;

/* Appends a prompt as in ComfyUI's queue: its number, id, graph, extra data and outputs. */
static void add_item(xd_text_buf *b, const xd_comfy_prompt *p)
{
    int n = 0;
    xd_buf_add(b, "[%ld,", p->number);
    xd_buf_json_string(b, p->id);
    xd_buf_add(b, ",%s,{\"client_id\":", p->graph);
    xd_buf_json_string(b, p->client);
    xd_buf_add(b, "},[");
    for (int i = 0; i < p->n; i++)
        if (p->steps[i].saves) {
            xd_buf_add(b, "%s", n++ ? "," : "");
            xd_buf_json_string(b, p->steps[i].id);
        }
    xd_buf_add(b, "]]");
}

static void add_outputs(xd_text_buf *b, const xd_comfy_prompt *p, const xd_task *task)
{
    int n = 0;
    for (int i = 0; i < p->n && task->ndone; i++)
        if (p->steps[i].saves && !xd_comfy_sends(&p->steps[i])) {
            xd_buf_add(b, "%s", n++ ? "," : "");
            xd_buf_json_string(b, p->steps[i].id);
            xd_buf_add(b, ":");
            xd_comfy_add_images(b, task, &p->steps[i]);
        }
}

static void add_messages(xd_text_buf *b, const xd_server *s, const xd_comfy_prompt *p,
                         const xd_task *task)
{
    int done = task->state == XD_TASK_DONE, failed = task->state == XD_TASK_FAILED;
    xd_buf_add(b, "[[\"execution_start\",{\"prompt_id\":");
    xd_buf_json_string(b, p->id);
    xd_buf_add(b, ",\"timestamp\":%.0f}],[\"execution_%s\",{", task->started * 1e3,
               done     ? "success"
               : failed ? "error"
                        : "interrupted");
    if (done) {
        xd_buf_add(b, "\"prompt_id\":");
        xd_buf_json_string(b, p->id);
    } else {
        xd_comfy_add_failure(b, s, p, task);
    }
    xd_buf_add(b, ",\"timestamp\":%.0f}]]", task->ended * 1e3);
}

static void add_history(void *cookie, const xd_comfy_prompt *p, const xd_task *task)
{
    listing *l = cookie;
    int      done = task->state == XD_TASK_DONE;
    if (!xd_task_has_ended(task) || (*l->id && strcmp(l->id, p->id) != 0) || l->skip-- > 0)
        return;
    xd_buf_add(&l->b, "%s", l->n++ ? "," : "");
    xd_buf_json_string(&l->b, p->id);
    xd_buf_add(&l->b, ":{\"prompt\":");
    add_item(&l->b, p);
    xd_buf_add(&l->b, ",\"outputs\":{");
    add_outputs(&l->b, p, task);
    xd_buf_add(&l->b, "},\"status\":{\"status_str\":\"%s\",\"completed\":%s,\"messages\":",
               done ? "success" : "error", done ? "true" : "false");
    add_messages(&l->b, l->server, p, task);
    xd_buf_add(&l->b, "},\"meta\":{}}");
}

static void count_ended(void *cookie, const xd_comfy_prompt *p, const xd_task *task)
{
    listing *l = cookie;
    (void)p;
    l->skip += xd_task_has_ended(task);
}

/* Replies with one ended prompt, or with all of them, oldest first. max_items limits the list to
 * the newest prompts. */
void xd_api_comfy_history(xd_http_call *c)
{
    listing     l = { .server = c->server, .id = c->arg };
    const char *most = xd_http_query(c, "max_items");
    int         limit = most ? atoi(most) : -1;
    if (limit >= 0 && !*c->arg) {
        xd_comfy_each(l.server, c->owner, NULL, count_ended, &l);
        l.skip -= limit;
    }
    xd_buf_add(&l.b, "{");
    xd_comfy_each(l.server, c->owner, NULL, add_history, &l);
    xd_buf_add(&l.b, "}\n");
    xd_reply_json(c, 200, &l.b);
}

static void add_queued(void *cookie, const xd_comfy_prompt *p, const xd_task *task)
{
    listing *l = cookie;
    if (task->state != l->state)
        return;
    xd_buf_add(&l->b, "%s", l->n++ ? "," : "");
    add_item(&l->b, p);
}

void xd_api_comfy_queue(xd_http_call *c)
{
    listing l = { .server = c->server, .state = XD_TASK_RUNNING };
    xd_buf_add(&l.b, "{\"queue_running\":[");
    xd_comfy_each(l.server, c->owner, NULL, add_queued, &l);
    xd_buf_add(&l.b, "],\"queue_pending\":[");
    l.state = XD_TASK_QUEUED;
    l.n = 0;
    xd_comfy_each(l.server, c->owner, NULL, add_queued, &l);
    xd_buf_add(&l.b, "]}\n");
    xd_reply_json(c, 200, &l.b);
}

static void count_left(void *cookie, const xd_comfy_prompt *p, const xd_task *task)
{
    listing *l = cookie;
    (void)p;
    l->n += !xd_task_has_ended(task);
}

void xd_api_comfy_queue_info(xd_http_call *c)
{
    listing l = { .server = c->server };
    xd_comfy_each(l.server, c->owner, NULL, count_left, &l);
    xd_buf_add(&l.b, "{\"exec_info\":{\"queue_remaining\":%d}}\n", l.n);
    xd_reply_json(c, 200, &l.b);
}

/* ---- changes of history and queue ------------------------------------------------------------ */

typedef struct selection { /* tasks of prompts that a request names */
    const xd_json *json;   /* list of prompt ids; NULL: all prompts */
    int            queued, running, ended;
    char           (*tasks)[40];
    int            n;
} selection;

static int is_named(const xd_json *list, const char *id)
{
    for (const xd_json *v = xd_json_first(list); v; v = xd_json_next(v))
        if (xd_json_text(v) && strcmp(xd_json_text(v), id) == 0)
            return 1;
    return 0;
}

static void select_prompt(void *cookie, const xd_comfy_prompt *p, const xd_task *task)
{
    selection *l = cookie;
    int        fits = xd_task_has_ended(task)         ? l->ended
                      : task->state == XD_TASK_QUEUED ? l->queued
                                                      : l->running;
    void      *more;
    if (!fits || (l->json && !is_named(l->json, p->id)) ||
        !(more = realloc(l->tasks, ((size_t)l->n + 1) * sizeof *l->tasks)))
        return;
    l->tasks = more;
    snprintf(l->tasks[l->n++], sizeof *l->tasks, "%s", p->task);
}

/* Cancels the selected tasks, or deletes them if they have ended. */
static void end_selected(xd_http_call *c, selection *l)
{
    xd_server *s = c->server;
    xd_comfy_each(s, c->owner, NULL, select_prompt, l);
    for (int i = 0; i < l->n; i++) {
        xd_task *task = xd_tasks_find(s->tasks, l->tasks[i]);
        if (task && l->ended)
            xd_tasks_delete(s->tasks, task);
        else if (task)
            xd_cancel_task(s, task);
        xd_task_release(s->tasks, task);
    }
    free(l->tasks);
}

static void change(xd_http_call *c, const selection *kind)
{
    int            all = 0;
    const xd_json *some = xd_json_get(c->json, "delete");
    selection      l = *kind;
    if (xd_json_bool(xd_json_get(c->json, "clear"), &all) && all)
        end_selected(c, &l);
    l = *kind;
    l.json = some;
    if (xd_json_is_list(some))
        end_selected(c, &l);
    xd_reply_text(c, 200, "application/json", "{}\n", 3);
}

void xd_api_comfy_change_queue(xd_http_call *c)
{
    change(c, &(selection){ .queued = 1 });
}

void xd_api_comfy_change_history(xd_http_call *c)
{
    change(c, &(selection){ .ended = 1 });
}

/* Cancels the running prompts, or only the one that the request names. */
void xd_api_comfy_interrupt(xd_http_call *c)
{
    const xd_json *id = xd_json_get(c->json, "prompt_id");
    xd_json       *list = NULL;
    xd_text_buf    b = { 0 };
    selection      l = { .running = 1 };
    if (xd_json_text(id)) {
        xd_buf_add(&b, "[");
        xd_buf_json_string(&b, xd_json_text(id));
        xd_buf_add(&b, "]");
        if (!b.failed)
            xd_json_parse(&list, b.p, b.len, "prompt_id", NULL);
        l.json = list;
    }
    end_selected(c, &l);
    xd_json_free(&list);
    xd_buf_free(&b);
    xd_reply_text(c, 200, "application/json", "{}\n", 3);
}

/* Models stay loaded as the flags of the server say. */
void xd_api_comfy_free(xd_http_call *c)
{
    xd_reply_text(c, 200, "application/json", "{}\n", 3);
}

/* ---- facts about the server ------------------------------------------------------------------ */

void xd_api_comfy_object_info(xd_http_call *c)
{
    xd_text_buf b = { 0 };
    xd_comfy_object_info(&b, c, *c->arg ? c->arg : NULL);
    xd_reply_json(c, 200, &b);
}

void xd_api_comfy_stats(xd_http_call *c)
{
    double      page = (double)sysconf(_SC_PAGESIZE);
    double      all = page * (double)sysconf(_SC_PHYS_PAGES),
                left = page * (double)sysconf(_SC_AVPHYS_PAGES);
    xd_text_buf b = { 0 };
    xd_buf_add(&b,
               "{\"system\":{\"os\":\"posix\",\"ram_total\":%.0f,\"ram_free\":%.0f,"
               "\"comfyui_version\":\"xdit %s\",\"python_version\":\"\",\"pytorch_version\":\"\","
               "\"embedded_python\":false,\"argv\":[]},\"devices\":[{\"name\":\"xdit\","
               "\"type\":\"cpu\",\"index\":0,\"vram_total\":%.0f,\"vram_free\":%.0f,"
               "\"torch_vram_total\":%.0f,\"torch_vram_free\":%.0f}]}\n",
               all, left, xd_version(), all, left, all, left);
    xd_reply_json(c, 200, &b);
}

static const struct {
    const char *folder, *list; /* list "": the folder is empty */
} folders[] = {
    { "checkpoints", "@models" },   { "diffusion_models", "@models" },
    { "text_encoders", "@models" }, { "vae", "@models" },
    { "loras", "@loras" },          { "controlnet", "@controls" },
    { "embeddings", "" },           { "upscale_models", "" },
};

void xd_api_comfy_models(xd_http_call *c)
{
    xd_text_buf b = { 0 };
    size_t      n = sizeof folders / sizeof *folders, i = 0;
    if (!*c->arg) {
        for (; i < n; i++)
            xd_buf_add(&b, "%s\"%s\"", i ? "," : "[", folders[i].folder);
        xd_buf_add(&b, "]\n");
        xd_reply_json(c, 200, &b);
        return;
    }
    while (i < n && strcmp(folders[i].folder, c->arg) != 0)
        i++;
    if (i == n) {
        xd_reply_error(c, 404, NULL, NULL, "there is no folder '%s'; /models lists the folders",
                       c->arg);
        return;
    }
    xd_comfy_list(
        &b, c, &(xd_comfy_input){ .list = folders[i].list, .list_bytes = strlen(folders[i].list) });
    xd_buf_add(&b, "\n");
    xd_reply_json(c, 200, &b);
}

void xd_api_comfy_features(xd_http_call *c)
{
    const xd_server *s = c->server;
    xd_text_buf      b = { 0 };
    xd_buf_add(&b, "{\"supports_preview_metadata\":false,\"max_upload_size\":%zu}\n",
               s->fetch.max_bytes);
    xd_reply_json(c, 200, &b);
}

void xd_api_comfy_none(xd_http_call *c)
{
    xd_reply_text(c, 200, "application/json", "[]\n", 3);
}
