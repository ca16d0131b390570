/* api_generate.c - POST /generate, as xDiT's own service (entrypoints/launch.py) takes and answers
 * it.
 *
 * Its defaults are those of that service, not of the model, but for the seed. */
#include <stdio.h>
#include <string.h>

#include "serve/server.h"

typedef struct generate_ask {
    xd_ask ask;
    char   dir[4096];           /* save_disk_path; "": the image comes in the answer           */
} generate_ask;

static void set_option(void *cookie, const char *name, const char *value)
{
    generate_ask *q = cookie;
    xd_ask_option(&q->ask, strcmp(name, "cfg") == 0 ? "guidance_scale" : name, value);
}

/* Clients name no directory of this host, except the one that results lie in anyway. */
static void set_dir(void *cookie, const char *name, const char *value)
{
    generate_ask    *q = cookie;
    const xd_server *s = q->ask.call->server;
    if (*value && (s->dir == s->own_dir || strcmp(s->dir, value) != 0))
        xd_ask_refuse(&q->ask, 400, name, "files are not written where a client says: leave %s "
                      "out for the image itself, or name the directory of --results", name);
    snprintf(q->dir, sizeof q->dir, "%s", value);
}

static const xd_ask_field fields[] = {
    { "num_inference_steps", set_option, NULL },
    { "seed", set_option, NULL },
    { "cfg", set_option, NULL },
    { "height", set_option, NULL },
    { "width", set_option, NULL },
    { "save_disk_path", set_dir, NULL },
    { NULL, NULL, NULL },
};

/* Behind the defaults of the server. The seed is drawn. */
static const char *const own[][2] = {
    { "num_inference_steps", "50" }, { "guidance_scale", "7.5" }, { "width", "1024" },
    { "height", "1024" },
};

static void reply_image(xd_http_call *c, const xd_task *task, int by_name)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "{\"message\":\"Image generated successfully\",\"elapsed_time\":\"%.2f sec\","
               "\"output\":", task->ended_s - task->began_s);
    if (by_name) {
        xd_buf_json_string(&b, task->done[0].file);
    } else {
        xd_buf_add(&b, "\"");
        if (!xd_answer_base64(&b, task->done[0].file))
            b.failed = 1;
        xd_buf_add(&b, "\"");
    }
    xd_buf_add(&b, ",\"save_to_disk\":%s,\"seed\":%s}\n", by_name ? "true" : "false",
               task->done[0].seed);
    xd_reply_json(c, 200, &b);
}

void xd_api_generate(xd_http_call *c)
{
    xd_server   *s = c->server;
    generate_ask q = { .dir = "" };
    xd_ask_begin(&q.ask, c, "image");
    xd_ask_fields(&q.ask, fields, &q);
    if (!q.ask.failed && q.ask.task->prompt && !*q.ask.task->prompt)
        xd_ask_refuse(&q.ask, 400, "prompt", "Prompt cannot be empty");
    xd_ask_defaults(&q.ask);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        xd_ask_default(&q.ask, own[i][0], own[i][1]);
    xd_task *task = xd_ask_submit(&q.ask);
    if (!task)
        return;
    xd_answer_wait(c, task);
    if (task->state == XD_TASK_DONE && task->ndone)
        reply_image(c, task, q.dir[0] != 0);
    else
        xd_answer_failure(c, task);
    xd_task_release(s->tasks, task);
}
