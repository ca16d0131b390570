/* api_a1111.c - the routes of stable-diffusion-webui ("A1111") that its clients call: /sdapi/v1.
 *
 * Unknown fields of requests are ignored, as in A1111, because clients send all fields that they
 * know. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/file.h"
#include "serve/server.h"
#include "xdit/tools.h"

/* ---- fields ---------------------------------------------------------------------------------- */

typedef struct webui_request {
    xd_api_req req;
    int        batch, rounds; /* values of the fields batch_size and n_iter */
    /* value of the field denoising_strength; "": the request has no such field */
    char       strength[24];
    char       eta[40]; /* value of the field eta; "": the request has no such field */
    int        hires;   /* value of the field enable_hr */
    /* values of the fields of a second pass; "": the request has no such field */
    char       hr_scale[40], hr_steps[40], hr_upscaler[40], hr_resize[40];
} webui_request;

static void set_batch(void *cookie, const char *name, const char *value)
{
    webui_request *q = cookie;
    int           *to = strcmp(name, "n_iter") == 0 ? &q->rounds : &q->batch;
    *to = atoi(value);
    if (*to < 1 || *to > 1000)
        xd_api_req_refuse(&q->req, 400, name, "%s must be a number from 1 to 1000, not '%.40s'",
                          name, value);
}

static void set_option(void *cookie, const char *name, const char *value)
{
    static const char *const names[][2] = {
        { "negative_prompt", "negative_prompt" },
        { "steps", "num_inference_steps" },
        { "cfg_scale", "guidance_scale" },
        { "width", "width" },
        { "height", "height" },
        { "seed", "seed" },
        { "distilled_cfg_scale", "guidance_scale" },
    };
    webui_request *q = cookie;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], name) == 0 && *value)
            xd_api_req_option(&q->req, names[i][1], value);
}

/* Sets denoising_strength. If a request has no image, denoising_strength is ignored: clients send
 * it with every request, because it is also the strength of a second pass (enable_hr). */
static void set_strength(void *cookie, const char *name, const char *value)
{
    webui_request *q = cookie;
    (void)name;
    snprintf(q->strength, sizeof q->strength, "%s", value);
}

static void set_eta(void *cookie, const char *name, const char *value)
{
    webui_request *q = cookie;
    (void)name;
    snprintf(q->eta, sizeof q->eta, "%s", value);
}

/* Sets the option eta (noise per step), after the scheduler of the request is known. If the request
 * has no eta, override_settings may have one eta for DDIM and one for ancestral samplers. */
static void set_request_eta(webui_request *q, const xd_json *settings)
{
    char  *end = q->eta;
    double eta = strtod(q->eta, &end);
    xd_api_req_defaults(&q->req);
    xd_eta_kind kind = xd_api_req_eta_kind(&q->req);
    const char *setting = kind == XD_ETA_DDIM ? "eta_ddim" : "eta_ancestral";
    if (*q->eta && (*end || end == q->eta))
        xd_api_req_refuse(&q->req, 400, "eta", "eta must be a number, not '%.40s'", q->eta);
    else if (*q->eta || xd_json_number(xd_json_get(settings, setting), &eta))
        xd_api_req_eta(&q->req, eta);
}

/* Adds the LoRA file of a tag "lora:NAME:0.5" without its brackets. A tag with different scales for
 * text encoder and transformer is refused. */
static void add_lora_tag(xd_api_req *a, const char *tag, size_t n)
{
    char        text[300], *scale, *second;
    const char *from = tag + 5;
    snprintf(text, sizeof text, "%.*s", (int)(n - 5), from);
    scale = strchr(text, ':');
    second = scale ? strchr(scale + 1, ':') : NULL;
    if (n - 5 >= sizeof text)
        xd_api_req_refuse(a, 400, "prompt", "the prompt has a <lora:NAME:0.5> of %zu bytes", n);
    else if (second && (strlen(second) != (size_t)(second - scale) ||
                        strncmp(scale, second, strlen(second)) != 0))
        xd_api_req_refuse(a, 400, "prompt",
                          "'<%.80s>' has more than one scale: use a single one, "
                          "as in <lora:NAME:0.5>",
                          text);
    else {
        if (second)
            *second = 0;
        xd_api_req_lora(a, text);
    }
}

/* Sets the prompt without its LoRA tags, and adds the LoRA files that these tags name. */
static void set_prompt(void *cookie, const char *name, const char *value)
{
    webui_request *q = cookie;
    char          *plain = strdup(value), *to = plain;
    (void)name;
    if (!plain) {
        xd_api_req_refuse(&q->req, 503, NULL, "no memory for the prompt");
        return;
    }
    for (const char *c = value; *c;) {
        size_t n = strncasecmp(c, "<lora:", 6) == 0 ? strcspn(c + 1, "<>") : 0;
        if (n > 5 && c[n + 1] == '>') {
            add_lora_tag(&q->req, c + 1, n);
            c += n + 2;
        } else {
            *to++ = *c++;
        }
    }
    *to = 0;
    xd_api_req_prompt(&q->req, plain);
    free(plain);
}

/* A1111's names of noise schedules, with the options that select the same schedule. The name of a
 * sampler in A1111 may end with the name of a noise schedule: "DPM++ 2M Karras". */
static const struct {
    const char *label, *option;
} schedules[] = {
    { "Automatic", NULL },
    { "Karras", "use_karras_sigmas" },
    { "Exponential", "use_exponential_sigmas" },
    { "Beta", "use_beta_sigmas" },
};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

static void set_schedule(void *cookie, const char *name, const char *value)
{
    webui_request *q = cookie;
    (void)name;
    for (int i = 0; i < SCHEDULES; i++)
        if (strcasecmp(schedules[i].label, value) == 0 && schedules[i].option)
            xd_api_req_option(&q->req, schedules[i].option, "true");
}

static void set_sampler(void *cookie, const char *name, const char *value)
{
    webui_request *q = cookie;
    size_t         n = strlen(value);
    char           sampler[64];
    snprintf(sampler, sizeof sampler, "%s", value);
    for (int i = 1; i < SCHEDULES; i++) {
        size_t k = strlen(schedules[i].label);
        if (n > k + 1 && n < sizeof sampler && strcasecmp(value + n - k, schedules[i].label) == 0) {
            sampler[n - k - 1] = 0;
            set_schedule(cookie, name, schedules[i].label);
        }
    }
    if (*sampler && strcasecmp(sampler, "Automatic") != 0)
        xd_api_req_option(&q->req, "scheduler", sampler);
}

static void set_hires(void *cookie, const char *name, const char *value)
{
    webui_request *q = cookie;
    char          *to = strcmp(name, "hr_scale") == 0               ? q->hr_scale
                        : strcmp(name, "hr_second_pass_steps") == 0 ? q->hr_steps
                        : strcmp(name, "hr_upscaler") == 0          ? q->hr_upscaler
                                                                    : q->hr_resize;
    if (strcmp(name, "enable_hr") == 0)
        q->hires = strcmp(value, "true") == 0;
    else if (to != q->hr_resize || strtod(value, NULL) > 0)
        snprintf(to, sizeof q->hr_scale, "%s", value);
}

/* Sets the options of a second pass, if the request asks for it (enable_hr). */
static void set_second_pass(webui_request *q)
{
    int nearest = strcasecmp(q->hr_upscaler, "Latent (nearest)") == 0;
    if (!q->hires || q->req.images)
        return;
    if (*q->hr_resize)
        xd_api_req_refuse(&q->req, 400, "hr_resize_x",
                          "hr_resize_x and hr_resize_y are not supported: use hr_scale");
    else if (*q->hr_upscaler && !nearest && strcasecmp(q->hr_upscaler, "Latent") != 0)
        xd_api_req_refuse(&q->req, 400, "hr_upscaler",
                          "hr_upscaler '%s' is not supported: use Latent or Latent (nearest)",
                          q->hr_upscaler);
    xd_api_req_option(&q->req, "hires_scale", *q->hr_scale ? q->hr_scale : "2");
    if (strtod(q->hr_steps, NULL) > 0)
        xd_api_req_option(&q->req, "hires_steps", q->hr_steps);
    if (*q->strength)
        xd_api_req_option(&q->req, "hires_strength", q->strength);
    if (nearest)
        xd_api_req_option(&q->req, "hires_upscaler", "nearest");
}

static const xd_api_req_field fields[] = {
    { "prompt", set_prompt, NULL },
    { "negative_prompt", set_option, NULL },
    { "seed", set_option, NULL },
    { "steps", set_option, NULL },
    { "cfg_scale", set_option, NULL },
    { "width", set_option, NULL },
    { "height", set_option, NULL },
    { "denoising_strength", set_strength, NULL },
    { "sampler_name", set_sampler, NULL },
    { "sampler_index", set_sampler, NULL },
    { "scheduler", set_schedule, NULL },
    { "eta", set_eta, NULL },
    { "batch_size", set_batch, NULL },
    { "n_iter", set_batch, NULL },
    { "enable_hr", set_hires, NULL },
    { "hr_scale", set_hires, NULL },
    { "hr_upscaler", set_hires, NULL },
    { "hr_second_pass_steps", set_hires, NULL },
    { "hr_resize_x", set_hires, NULL },
    { "hr_resize_y", set_hires, NULL },
    { "init_images", NULL, "image" },
    { "mask", NULL, "mask_image" },
    { NULL, NULL, NULL },
};

/* Number of previews per image that /sdapi/v1/progress can show. */
#define PREVIEWS "10"

/* ---- images ---------------------------------------------------------------------------------- */

/* Appends a JSON list that repeats one text for each image. */
static void add_each(xd_text_buf *b, const char *name, const char *text, int n)
{
    xd_buf_add(b, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        xd_buf_add(b, "%s", i ? "," : "");
        xd_buf_json_string(b, text);
    }
    xd_buf_add(b, "]");
}

/* Appends parameters of the first image, such as its number of steps, as fields that clients of
 * A1111 read. */
static void add_first(xd_text_buf *b, const xd_task *task)
{
    xd_json    *j = NULL;
    double      steps = 0, scale = 0;
    const char *json = task->ndone ? task->done[0].json : "{}", *avoid;
    if (xd_json_parse(&j, json, strlen(json), "parameters", NULL) != XD_OK)
        j = NULL;
    avoid = xd_json_text(xd_json_get(j, "negative_prompt"));
    xd_json_number(xd_json_get(j, "steps"), &steps);
    xd_json_number(xd_json_get(j, "guidance_scale"), &scale);
    add_each(b, "all_prompts", task->prompt ? task->prompt : "", task->ndone);
    xd_buf_add(b, ",\"negative_prompt\":");
    xd_buf_json_string(b, avoid ? avoid : "");
    add_each(b, "all_negative_prompts", avoid ? avoid : "", task->ndone);
    xd_buf_add(b,
               ",\"steps\":%.0f,\"cfg_scale\":%.10g,\"batch_size\":%d,"
               "\"index_of_first_image\":0,\"sd_model_name\":",
               steps, scale, task->ndone);
    xd_buf_json_string(b, task->model ? task->model : "");
    xd_json_free(&j);
}

static void add_infos(xd_text_buf *b, const xd_task *task)
{
    xd_text_buf info = { 0 };
    xd_buf_add(&info, "{\"prompt\":");
    xd_buf_json_string(&info, task->prompt ? task->prompt : "");
    xd_buf_add(&info, ",\"seed\":%s,\"all_seeds\":[", task->ndone ? task->done[0].seed : "0");
    for (int i = 0; i < task->ndone; i++)
        xd_buf_add(&info, "%s%s", i ? "," : "", task->done[i].seed);
    xd_buf_add(&info, "],\"infotexts\":[");
    for (int i = 0; i < task->ndone; i++) {
        xd_buf_add(&info, "%s", i ? "," : "");
        xd_buf_json_string(&info, task->done[i].parameters);
    }
    xd_buf_add(&info, "]");
    add_first(&info, task);
    xd_buf_add(&info, ",\"width\":%lld,\"height\":%lld}",
               task->ndone ? (long long)task->done[0].width : 0,
               task->ndone ? (long long)task->done[0].height : 0);
    xd_buf_json_string(b, info.failed ? "" : info.p);
    b->failed |= info.failed;
    xd_buf_free(&info);
}

static void reply_images(xd_http_call *c, const xd_task *task)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "{\"images\":[");
    for (int i = 0; i < task->ndone; i++) {
        xd_buf_add(&b, "%s\"", i ? "," : "");
        if (!xd_answer_base64(&b, task->done[i].file))
            b.failed = 1;
        xd_buf_add(&b, "\"");
    }
    xd_buf_add(&b, "],\"parameters\":%s,\"info\":", c->body ? c->body : "{}");
    add_infos(&b, task);
    xd_buf_add(&b, "}\n");
    xd_reply_json(c, 200, &b);
}

static void set_checkpoint(webui_request *q, const xd_json *settings)
{
    const char *name = xd_json_text(xd_json_get(settings, "sd_model_checkpoint"));
    xd_server  *s = q->req.call->server;
    xd_api_req_model(&q->req, name && *name ? name : s->models[s->chosen].name);
}

static void make_images(xd_http_call *c, int from_image)
{
    webui_request q = { .batch = 1, .rounds = 1 };
    xd_server    *s = c->server;
    char          images[16];
    xd_api_req_begin(&q.req, c, "image");
    q.req.lenient = 1;
    if (!c->json)
        xd_api_req_refuse(&q.req, 400, NULL, "the body must be a JSON object");
    set_checkpoint(&q, xd_json_get(c->json, "override_settings"));
    xd_api_req_fields(&q.req, fields, &q);
    snprintf(images, sizeof images, "%d", q.batch * q.rounds);
    xd_api_req_option(&q.req, "num_images_per_prompt", images);
    xd_api_req_option(&q.req, "previews", PREVIEWS);
    if (q.req.images && q.strength[0] && xd_api_req_model_accepts(&q.req, "strength"))
        xd_api_req_option(&q.req, "strength", q.strength);
    set_second_pass(&q);
    if (from_image && !q.req.images)
        xd_api_req_refuse(&q.req, 400, "init_images",
                          "init_images is missing: send the start "
                          "image");
    set_request_eta(&q, xd_json_get(c->json, "override_settings"));
    xd_task *task = xd_api_req_submit(&q.req);
    if (!task)
        return;
    xd_answer_wait(c, task);
    if (task->state == XD_TASK_DONE || task->state == XD_TASK_CANCELLED)
        /* the reply to an interrupted request contains the finished images */
        reply_images(c, task);
    else
        xd_answer_failure(c, task);
    xd_task_release(s->tasks, task);
}

void xd_api_webui_text(xd_http_call *c)
{
    make_images(c, 0);
}

void xd_api_webui_image(xd_http_call *c)
{
    make_images(c, 1);
}

/* ---- progress -------------------------------------------------------------------------------- */

/* Appends the progress of a task. preview: name of the file with the latest preview; "": there is
 * no preview. left: predicted seconds until the task has ended; negative: unknown. */
static void add_progress(xd_text_buf *b, const xd_task *task, int queued, double left)
{
    double part = !task || task->steps < 1
                      ? 0
                      : ((double)(task->image - 1) + (double)task->step / task->steps) /
                            (task->images > 0 ? task->images : 1);
    double eta = left > 0           ? left
                 : task && part > 0 ? (xd_now_s() - task->began_s) * (1 - part) / part
                                    : 0;
    xd_buf_add(b,
               "{\"progress\":%.4f,\"eta_relative\":%.2f,\"state\":{\"skipped\":false,"
               "\"interrupted\":%s,\"job\":\"%s\",\"job_count\":%d,\"job_timestamp\":\"0\","
               "\"job_no\":0,\"sampling_step\":%d,\"sampling_steps\":%d},\"current_image\":",
               part < 1 ? part : 0.99, eta, task && task->cancel ? "true" : "false",
               task ? task->id : "", queued + (task != NULL), task ? task->step : 0,
               task ? task->steps : 0);
}

/* Replies with the progress of the running task. The task's state is copied while the lock of the
 * tasks is held; the preview file is read after the lock was released. */
void xd_api_webui_progress(xd_http_call *c)
{
    xd_server      *s = c->server;
    xd_text_buf     b = { 0 };
    xd_tasks_counts n = xd_tasks_count(s->tasks);
    xd_task        *task = xd_tasks_running(s->tasks, c->owner);
    const char     *skip = xd_http_query(c, "skip_current_image");
    char            preview[4200] = "", stage[sizeof task->stage] = "";
    xd_tasks_lock(s->tasks);
    if (task)
        snprintf(stage, sizeof stage, "%s", task->stage);
    if (task && task->preview && (!skip || strcasecmp(skip, "true") != 0))
        snprintf(preview, sizeof preview, "%s", task->preview);
    add_progress(&b, task, (int)n.queued, task ? xd_task_seconds_left(s->tasks, task) : 0);
    xd_tasks_unlock(s->tasks);
    xd_task_release(s->tasks, task);
    size_t at = b.len;
    xd_buf_add(&b, "\"");
    if (*preview && xd_answer_base64(&b, preview)) {
        xd_buf_add(&b, "\"");
    } else {
        b.len = b.failed ? 0 : at;
        xd_buf_add(&b, "null");
    }
    xd_buf_add(&b, ",\"textinfo\":");
    xd_buf_json_string(&b, stage);
    xd_buf_add(&b, "}\n");
    xd_reply_json(c, 200, &b);
}

void xd_api_webui_interrupt(xd_http_call *c)
{
    xd_server *s = c->server;
    xd_task   *task = xd_tasks_running(s->tasks, c->owner);
    if (task)
        xd_cancel_task(s, task);
    xd_task_release(s->tasks, task);
    xd_reply_text(c, 200, "application/json", "{}\n", 3);
}

/* ---- lists of models, samplers and LoRA files ------------------------------------------------ */

void xd_api_webui_options(xd_http_call *c)
{
    const xd_server *s = c->server;
    xd_text_buf      b = { 0 };
    xd_buf_add(&b, "{\"samples_format\":\"png\",\"sd_model_checkpoint\":");
    xd_buf_json_string(&b, s->models[s->chosen].name);
    xd_buf_add(&b, "}\n");
    xd_reply_json(c, 200, &b);
}

/* Handles a change of A1111's options: sets the default model and ignores other options. */
void xd_api_webui_set_options(xd_http_call *c)
{
    xd_server  *s = c->server;
    const char *name = xd_json_text(xd_json_get(c->json, "sd_model_checkpoint"));
    for (int i = 0; i < s->nmodels && name; i++)
        if (xd_served_is_named(&s->models[i], name)) {
            s->chosen = i;
            name = NULL;
        }
    if (name)
        xd_reply_error(c, 404, "sd_model_checkpoint", NULL, "there is no model '%.80s' here", name);
    else
        xd_reply_text(c, 200, "application/json", "{}\n", 3);
}

void xd_api_webui_models(xd_http_call *c)
{
    const xd_server *s = c->server;
    xd_text_buf      b = { 0 };
    xd_buf_add(&b, "[");
    for (int i = 0; i < s->nmodels; i++) {
        xd_buf_add(&b, "%s{\"title\":", i ? "," : "");
        xd_buf_json_string(&b, s->models[i].name);
        xd_buf_add(&b, ",\"model_name\":");
        xd_buf_json_string(&b, s->models[i].name);
        xd_buf_add(&b, ",\"hash\":null,\"sha256\":null,\"filename\":");
        xd_buf_json_string(&b, s->models[i].name);
        xd_buf_add(&b, ",\"config\":null}");
    }
    xd_buf_add(&b, "]\n");
    xd_reply_json(c, 200, &b);
}

void xd_api_webui_samplers(xd_http_call *c)
{
    const char *name = "Automatic";
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "[");
    for (int i = 0; name; name = xd_scheduler_webui(i++))
        xd_buf_add(&b, "%s{\"name\":\"%s\",\"aliases\":[],\"options\":{}}", b.len > 1 ? "," : "",
                   name);
    xd_buf_add(&b, "]\n");
    xd_reply_json(c, 200, &b);
}

void xd_api_webui_schedulers(xd_http_call *c)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "[");
    for (int i = 0; i < SCHEDULES; i++)
        xd_buf_add(&b, "%s{\"name\":\"%s\",\"label\":\"%s\",\"aliases\":null}", i ? "," : "",
                   schedules[i].label, schedules[i].label);
    xd_buf_add(&b, "]\n");
    xd_reply_json(c, 200, &b);
}

/* Returns nonzero if the folder has a LoRA in the layout of diffusers or PEFT. */
static int is_adapter(const char *folder, const char *name)
{
    static const char *const files[] = { "adapter_model", "pytorch_lora_weights" };
    char                     path[4096];
    int                      found = 0;
    for (int i = 0; i < 2 && !found; i++) {
        int n = snprintf(path, sizeof path, "%s/%s/%s.safetensors", folder, name, files[i]);
        found = n > 0 && (size_t)n < sizeof path && xd_file_exists(path);
    }
    return found;
}

/* Returns the malloc'ed name with which requests select a LoRA file; returns NULL if the file is
 * not a LoRA file. */
static char *name_of_lora(const char *folder, const char *file)
{
    const char *dot = strrchr(file, '.');
    if (file[0] == '.')
        return NULL;
    if (is_adapter(folder, file))
        return strdup(file);
    if (!dot || strcmp(dot, ".safetensors") != 0)
        return NULL;
    return strndup(file, (size_t)(dot - file));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char **xd_server_loras(const char *folder, int *n)
{
    DIR           *d = folder ? opendir(folder) : NULL;
    struct dirent *f;
    char         **v = NULL;
    *n = 0;
    while (d && (f = readdir(d))) {
        char *name = name_of_lora(folder, f->d_name), **more = NULL;
        if (name)
            more = realloc(v, ((size_t)*n + 1) * sizeof *v);
        if (more)
            v = more, v[(*n)++] = name;
        else
            free(name);
    }
    if (d)
        closedir(d);
    if (*n)
        qsort(v, (size_t)*n, sizeof *v, by_name);
    return v;
}

/* Replies with the names that requests may use for `lora`, without the folders of this host. */
void xd_api_webui_loras(xd_http_call *c)
{
    const xd_server *s = c->server;
    xd_text_buf      b = { 0 };
    int              n;
    char           **v = xd_server_loras(s->loras, &n);
    xd_buf_add(&b, "[");
    for (int i = 0; i < n; i++) {
        xd_buf_add(&b, "%s{\"name\":", i ? "," : "");
        xd_buf_json_string(&b, v[i]);
        xd_buf_add(&b, ",\"alias\":");
        xd_buf_json_string(&b, v[i]);
        xd_buf_add(&b, ",\"path\":");
        xd_buf_json_string(&b, v[i]);
        xd_buf_add(&b, ",\"metadata\":{}}");
        free(v[i]);
    }
    xd_buf_add(&b, "]\n");
    free(v);
    xd_reply_json(c, 200, &b);
}

/* Replies with an empty list, because clients cannot choose upscalers, VAEs and the like. */
void xd_api_webui_none(xd_http_call *c)
{
    xd_reply_text(c, 200, "application/json", "[]\n", 3);
}

static void reply_plain(xd_http_call *c, const char *json)
{
    xd_reply_text(c, 200, "application/json", json, strlen(json));
}

void xd_api_webui_embeddings(xd_http_call *c)
{
    reply_plain(c, "{\"loaded\":{},\"skipped\":{}}\n");
}

void xd_api_webui_scripts(xd_http_call *c)
{
    reply_plain(c, "{\"txt2img\":[],\"img2img\":[]}\n");
}

/* Replies to a request to refresh lists. The server has no lists to refresh: models are fixed, and
 * the LoRA folder is read on every request. */
void xd_api_webui_refresh(xd_http_call *c)
{
    reply_plain(c, "{}\n");
}
