/* api_generate.c - the route POST /generate, compatible with xDiT's service
 * (entrypoints/launch.py).
 *
 * The defaults of a request are those of xDiT's service, not those of the model. A request without
 * a seed gets a random seed. */
#include <stdio.h>
#include <string.h>

#include "serve/server.h"

typedef struct generate_request {
    xd_api_req req;
    char       dir[4096]; /* value of the request's field save_disk_path, a directory; "": the
                                   reply contains the image */
} generate_request;

static void set_option(void *cookie, const char *name, const char *value)
{
    generate_request *q = cookie;
    xd_api_req_option(&q->req, strcmp(name, "cfg") == 0 ? "guidance_scale" : name, value);
}

/* Refuses a directory of this host in save_disk_path, unless it is the directory of --results. */
static void set_dir(void *cookie, const char *name, const char *value)
{
    generate_request *q = cookie;
    const xd_server  *s = q->req.call->server;
    if (*value && (s->dir == s->own_dir || strcmp(s->dir, value) != 0))
        xd_api_req_refuse(&q->req, 400, name,
                          "%s must be the directory of --results: leave it "
                          "out to get the image in the reply",
                          name);
    snprintf(q->dir, sizeof q->dir, "%s", value);
}

static const xd_api_req_field fields[] = {
    { "num_inference_steps", set_option, NULL },
    { "seed", set_option, NULL },
    { "cfg", set_option, NULL },
    { "height", set_option, NULL },
    { "width", set_option, NULL },
    { "save_disk_path", set_dir, NULL },
    { NULL, NULL, NULL },
};

/* Default values of options in xDiT's service. Defaults on the server's command line have
 * precedence over the defaults of xDiT's service. */
static const char *const own[][2] = {
    { "num_inference_steps", "50" },
    { "guidance_scale", "7.5" },
    { "width", "1024" },
    { "height", "1024" },
};

static void reply_image(xd_http_call *c, const xd_task *task, int by_name)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b,
               "{\"message\":\"Image generated successfully\",\"elapsed_time\":\"%.2f sec\","
               "\"output\":",
               task->ended_s - task->began_s);
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
    xd_server       *s = c->server;
    generate_request q = { .dir = "" };
    xd_api_req_begin(&q.req, c, "image");
    xd_api_req_fields(&q.req, fields, &q);
    if (!q.req.failed && q.req.task->prompt && !*q.req.task->prompt)
        xd_api_req_refuse(&q.req, 400, "prompt", "Prompt cannot be empty");
    xd_api_req_defaults(&q.req);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        xd_api_req_default(&q.req, own[i][0], own[i][1]);
    xd_task *task = xd_api_req_submit(&q.req);
    if (!task)
        return;
    xd_answer_wait(c, task);
    if (task->state == XD_TASK_DONE && task->ndone)
        reply_image(c, task, q.dir[0] != 0);
    else
        xd_answer_failure(c, task);
    xd_task_release(s->tasks, task);
}
