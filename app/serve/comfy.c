/* comfy.c - the prompts of ComfyUI's interface: graphs whose tasks are queued, running or ended
 *
 * The task of a prompt has its progress and its results. A prompt is forgotten when the server
 * deletes its task, or when the server ends. */
#include "serve/comfy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { MAX_PROMPTS = 500 }; /* number of prompts of an API key that are kept */

static void free_prompt(xd_comfy_prompt *p)
{
    for (int i = 0; i < p->n; i++)
        free(p->steps[i].id);
    free(p->steps);
    free(p->graph);
    free(p);
}

xd_comfy *xd_comfy_open(void)
{
    xd_comfy *y = calloc(1, sizeof *y);
    if (y)
        pthread_mutex_init(&y->lock, NULL);
    return y;
}

/* The files of uploaded images are removed with the server's temporary directory. */
void xd_comfy_close(xd_comfy **out)
{
    xd_comfy *y = *out;
    if (!y)
        return;
    for (xd_comfy_prompt *p; (p = y->prompts);) {
        y->prompts = p->next;
        free_prompt(p);
    }
    for (xd_comfy_upload *u; (u = y->uploads);) {
        y->uploads = u->next;
        free(u);
    }
    pthread_mutex_destroy(&y->lock);
    free(y);
    *out = NULL;
}

const char *xd_comfy_control_name(const xd_server *s, int i)
{
    const char *slash = strrchr(s->controls[i], '/');
    return slash && slash[1] ? slash + 1 : s->controls[i];
}

/* ---- adding of prompts ----------------------------------------------------------------------- */

/* Writes a random UUID (RFC 9562, version 4). */
static void name_prompt(char id[64])
{
    unsigned char v[16];
    int           n = 0;
    if (getrandom(v, sizeof v, 0) != (ssize_t)sizeof v)
        memset(v, 0, sizeof v);
    v[6] = (unsigned char)(0x40 | (v[6] & 15));
    v[8] = (unsigned char)(0x80 | (v[8] & 63));
    for (int i = 0; i < 16; i++)
        n += snprintf(id + n, 64 - (size_t)n, "%s%02x",
                      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", v[i]);
}

static char *json_of(const xd_json *v)
{
    xd_text_buf b = { 0 };
    xd_buf_json(&b, v);
    if (b.failed)
        xd_buf_free(&b);
    return b.p;
}

static int copy_steps(xd_comfy_prompt *p, const xd_comfy_graph *g)
{
    p->steps = calloc((size_t)g->norder, sizeof *p->steps);
    for (; p->steps && p->n < g->norder; p->n++) {
        xd_comfy_step *to = &p->steps[p->n];
        to->id = strdup(g->order[p->n]->id);
        to->class_name = g->order[p->n]->class->name;
        to->saves = g->order[p->n]->class->saves;
        if (!to->id)
            return 0;
    }
    return p->steps != NULL;
}

/* Removes the oldest prompt of an API key if the key has too many; under the lock. */
static void drop_oldest(xd_comfy *y, const char *owner)
{
    xd_comfy_prompt **oldest = NULL;
    int               n = 0;
    for (xd_comfy_prompt **at = &y->prompts; *at; at = &(*at)->next)
        if (strcmp((*at)->owner, owner) == 0) {
            oldest = oldest ? oldest : at;
            n++;
        }
    if (n <= MAX_PROMPTS)
        return;
    xd_comfy_prompt *p = *oldest;
    *oldest = p->next;
    free_prompt(p);
}

long xd_comfy_add(const xd_http_call *c, const xd_comfy_graph *g, const xd_comfy_places *places,
                  const xd_task *task, char id[64])
{
    xd_comfy        *y = ((xd_server *)c->server)->comfy;
    xd_comfy_prompt *p = calloc(1, sizeof *p), **at;
    const char      *client = xd_json_text(xd_json_get(c->json, "client_id")),
               *given = xd_json_text(xd_json_get(c->json, "prompt_id"));
    if (!p)
        return -1;
    p->graph = json_of(xd_json_get(c->json, "prompt"));
    if (!p->graph || !copy_steps(p, g)) {
        free_prompt(p);
        return -1;
    }
    if (given && *given && strlen(given) < sizeof p->id)
        snprintf(p->id, sizeof p->id, "%s", given);
    else
        name_prompt(p->id);
    snprintf(p->client, sizeof p->client, "%.63s", client ? client : "");
    snprintf(p->task, sizeof p->task, "%s", task->id);
    snprintf(p->owner, sizeof p->owner, "%s", c->owner);
    p->places = *places;
    snprintf(id, 64, "%s", p->id);
    pthread_mutex_lock(&y->lock);
    long number = p->number = y->number++;
    for (at = &y->prompts; *at;)
        at = &(*at)->next;
    *at = p;
    drop_oldest(y, c->owner);
    pthread_mutex_unlock(&y->lock);
    return number;
}

void xd_comfy_each(xd_server *s, const char *owner, xd_comfy_skip *skip, xd_comfy_visit *visit,
                   void *cookie)
{
    xd_comfy *y = s->comfy;
    pthread_mutex_lock(&y->lock);
    for (xd_comfy_prompt **at = &y->prompts, *p; (p = *at);) {
        if (strcmp(p->owner, owner) != 0 || (skip && skip(cookie, p))) {
            at = &p->next;
            continue;
        }
        xd_task *task = xd_tasks_find(s->tasks, p->task);
        if (!task) {
            *at = p->next;
            free_prompt(p);
            continue;
        }
        xd_tasks_lock(s->tasks);
        visit(cookie, p, task);
        xd_tasks_unlock(s->tasks);
        xd_task_release(s->tasks, task);
        at = &p->next;
    }
    pthread_mutex_unlock(&y->lock);
}

/* ---- descriptions of prompts ----------------------------------------------------------------- */

int xd_comfy_sends(const xd_comfy_step *step)
{
    return strcmp(step->class_name, "SaveImageWebsocket") == 0;
}

int xd_comfy_caches(const xd_comfy_step *step)
{
    return strcmp(step->class_name, "ETN_SaveImageCache") == 0;
}

void xd_comfy_add_images(xd_text_buf *b, const xd_task *task, const xd_comfy_step *step)
{
    int shows = strcmp(step->class_name, "PreviewImage") == 0;
    xd_buf_add(b, "{\"images\":[");
    for (int i = 0; i < task->ndone; i++) {
        const char *dot = strrchr(task->done[i].file, '.');
        xd_buf_add(b, "%s{", i ? "," : "");
        if (xd_comfy_caches(step))
            xd_buf_add(b, "\"source\":\"http\",\"id\":\"%s_%05d_%s\"}", task->id, i + 1,
                       dot ? dot : "");
        else
            xd_buf_add(b, "\"filename\":\"%s_%05d_%s\",\"subfolder\":\"\",\"type\":\"%s\"}",
                       task->id, i + 1, dot ? dot : "", shows ? "temp" : "output");
    }
    xd_buf_add(b, "]}");
}

void xd_comfy_add_failure(xd_text_buf *b, const xd_server *s, const xd_comfy_prompt *p,
                          const xd_task *task)
{
    char                 text[4096];
    const xd_comfy_step *at = &p->steps[p->places.sampler];
    if (strcmp(task->stage, "decode") == 0)
        at = &p->steps[p->places.decoder];
    xd_buf_add(b, "\"prompt_id\":");
    xd_buf_json_string(b, p->id);
    xd_buf_add(b, ",\"node_id\":");
    xd_buf_json_string(b, at->id);
    xd_buf_add(b, ",\"node_type\":\"%s\",\"executed\":[]", at->class_name);
    if (task->state != XD_TASK_FAILED)
        return;
    xd_buf_add(b, ",\"exception_message\":");
    xd_buf_json_string(b, xd_answer_error(s, task, text, sizeof text));
    xd_buf_add(b,
               ",\"exception_type\":\"%s\",\"traceback\":[],\"current_inputs\":{},"
               "\"current_outputs\":[]",
               xd_answer_status(task->code) < 500 ? "ValueError" : "RuntimeError");
}
