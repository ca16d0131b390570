/* api_sdcpp.c - the routes of stable-diffusion.cpp's server that its clients call: /sdcpp/v1.
 *
 * A job runs in the background, and clients poll its state. Unknown fields of requests are ignored,
 * as in stable-diffusion.cpp, because clients send all fields, most of them with their defaults. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/server.h"

enum { DEPTH = 3 }; /* maximum depth of a nested field of a request */

/* Returns the value at a path such as "sample_params.guidance.txt_cfg". Returns NULL if the JSON
 * text has no value at the path, or if the value is null. */
static const xd_json *value_at(const xd_json *j, const char *path)
{
    char name[64];
    for (int i = 0; i < DEPTH && *path; i++) {
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        j = xd_json_get(j, name);
        path += n + (path[n] == '.');
    }
    return xd_json_null(j) ? NULL : j;
}

static double number_at(const xd_json *j, const char *path, double otherwise)
{
    double v;
    return xd_json_number(value_at(j, path), &v) ? v : otherwise;
}

static int is_on(const xd_json *j, const char *path)
{
    int on = 0;
    return xd_json_bool(value_at(j, path), &on) && on;
}

static int makes_videos(const xd_json *uses)
{
    const char *makes = xd_json_text(xd_json_get(uses, "makes"));
    return makes && strcmp(makes, "video") == 0;
}

/* ---- fields ---------------------------------------------------------------------------------- */

/* Fields of a request, with the option of this program that each field sets. A value at or below
 * the limit `least` of the field's row selects the model's default. */
static const struct {
    const char *path, *option;
    double      least;
} rows[] = {
    { "negative_prompt", "negative_prompt", -INFINITY },
    { "seed", "seed", -INFINITY },
    { "width", "width", 0 },
    { "height", "height", 0 },
    { "batch_count", "num_images_per_prompt", 0 },
    { "video_frames", "num_frames", 0 },
    { "fps", "fps", 0 },
    { "sample_params.sample_steps", "num_inference_steps", 0 },
    { "sample_params.flow_shift", "flow_shift", 0 },
};

/* Fields of a request that are refused, because the server does not support them. */
static const char *const refused[] = { "ip_adapter_image", "control_frames" };

/* Each row has a sampler's name in stable-diffusion.cpp and its name in stable-diffusion-webui. */
static const char *const samplers[][2] = {
    { "euler", "Euler" },
    { "euler_a", "Euler a" },
    { "heun", "Heun" },
    { "dpm++2m", "DPM++ 2M" },
    { "ddim_trailing", "DDIM" },
    { "unipc", "UniPC" },
    { "lcm", "LCM" },
    { "tcd", "TCD" },
};
static const char *const schedules[][2] = {
    { "discrete", NULL },
    { "karras", "use_karras_sigmas" },
    { "exponential", "use_exponential_sigmas" },
    { "beta", "use_beta_sigmas" },
};
enum {
    ROWS = sizeof rows / sizeof *rows,
    REFUSED = sizeof refused / sizeof *refused,
    SAMPLERS = sizeof samplers / sizeof *samplers,
    SCHEDULES = sizeof schedules / sizeof *schedules
};

static void set_row(xd_api_req *a, const xd_json *body, int i)
{
    double         number;
    char           text[40];
    const xd_json *v = value_at(body, rows[i].path);
    const char    *given = xd_json_text(v);
    if (xd_json_number(v, &number) && number < 0 && strcmp(rows[i].option, "seed") == 0) {
        xd_api_req_option(a, "seed", "-1");
    } else if (xd_json_number(v, &number) && number > rows[i].least) {
        snprintf(text, sizeof text, "%.17g", number);
        xd_api_req_option(a, rows[i].option, text);
    } else if (given && *given) {
        xd_api_req_option(a, rows[i].option, given);
    }
}

/* Finds the name of a sampler or schedule in a table. The names "" and "default" select the model's
 * default; names that are not in the table are refused. */
static int find_name(xd_api_req *a, const xd_json *body, const char *path,
                     const char *const table[][2], int n)
{
    const char *name = xd_json_text(value_at(body, path));
    if (!name || !*name || strcmp(name, "default") == 0)
        return -1;
    for (int i = 0; i < n; i++)
        if (strcmp(table[i][0], name) == 0)
            return i;
    xd_api_req_refuse(a, 400, path,
                      "there is no %s %.40s here; /sdcpp/v1/capabilities lists "
                      "the available ones",
                      strrchr(path, '.') + 1, name);
    return -1;
}

static void set_sampling(xd_api_req *a, const xd_json *body)
{
    int k = find_name(a, body, "sample_params.sample_method", samplers, SAMPLERS);
    if (k >= 0)
        xd_api_req_option(a, "scheduler", samplers[k][1]);
    double eta;
    if (k >= 0 && xd_json_number(value_at(body, "sample_params.eta"), &eta))
        xd_api_req_eta(a, eta);
    k = find_name(a, body, "sample_params.scheduler", schedules, SCHEDULES);
    if (k >= 0 && schedules[k][1])
        xd_api_req_option(a, schedules[k][1], "true");
    xd_text_buf    b = { 0 };
    double         level;
    const xd_json *v = xd_json_first(value_at(body, "sample_params.custom_sigmas"));
    for (; v; v = xd_json_next(v))
        if (xd_json_number(v, &level))
            xd_buf_add(&b, "%s%.17g", b.len ? "," : "", level);
    if (b.len && !b.failed)
        xd_api_req_option(a, "sigmas", b.p);
    xd_buf_free(&b);
}

/* Sets the guidance scales of the request. Models with distilled guidance have two scales:
 * distilled_guidance, and txt_cfg, which needs two passes per step if it is above 1. */
static void set_guidance(xd_api_req *a, const xd_json *body, int distilled)
{
    char        text[40];
    const char *path = distilled ? "sample_params.guidance.distilled_guidance"
                                 : "sample_params.guidance.txt_cfg";
    double      own = number_at(body, path, NAN),
                cfg = number_at(body, "sample_params.guidance.txt_cfg", NAN);
    snprintf(text, sizeof text, "%.17g", own);
    if (!isnan(own))
        xd_api_req_option(a, "guidance_scale", text);
    snprintf(text, sizeof text, "%.17g", cfg);
    if (distilled && !isnan(cfg))
        xd_api_req_option(a, "true_cfg_scale", text);
}

static void set_image(xd_api_req *a, const char *field, const char *option, const xd_json *v)
{
    const char *text = xd_json_text(v);
    if (text && *text)
        xd_api_req_url(a, option, text);
    else if (v && !text)
        xd_api_req_refuse(a, 400, field, "%s must be base64 or a data URL", field);
}

static void refuse_image(xd_api_req *a, const char *field, const xd_json *v)
{
    const char *text = xd_json_text(v);
    if ((text && *text) || xd_json_size(v) > 0)
        xd_api_req_refuse(a, 400, field, "%s is not supported: leave it out", field);
}

static void set_images(xd_api_req *a, const xd_json *body)
{
    const xd_json *control = value_at(body, "control_image");
    char           strength[40];
    set_image(a, "init_image", "image", value_at(body, "init_image"));
    for (const xd_json *v = xd_json_first(value_at(body, "ref_images")); v; v = xd_json_next(v))
        set_image(a, "ref_images", "image", v);
    set_image(a, "mask_image", "mask_image", value_at(body, "mask_image"));
    set_image(a, "end_image", "last_image", value_at(body, "end_image"));
    if (xd_api_req_model_accepts(a, "control_image"))
        set_image(a, "control_image", "control_image", control);
    else
        refuse_image(a, "control_image", control);
    snprintf(strength, sizeof strength, "%.17g", number_at(body, "strength", 0.75));
    if (!a->failed && value_at(body, "init_image") && value_at(body, "strength") &&
        xd_api_req_model_accepts(a, "strength"))
        xd_api_req_option(a, "strength", strength);
    for (int i = 0; i < REFUSED; i++)
        refuse_image(a, refused[i], value_at(body, refused[i]));
}

static void set_output(xd_api_req *a, const xd_json *body)
{
    char        text[24];
    const char *format = xd_json_text(value_at(body, "output_format"));
    if (format && !a->failed)
        xd_api_req_format(a, "output_format", format);
    snprintf(text, sizeof text, "%.0f", number_at(body, "output_compression", 100));
    if (value_at(body, "output_compression") && !a->task->video && strcmp(a->extension, "png") != 0)
        xd_api_req_option(a, "output_quality", text);
    if (is_on(body, "vae_tiling_params.enabled"))
        xd_api_req_option(a, "enable_tiling", "true");
}

static void set_loras(xd_api_req *a, const xd_json *body)
{
    char text[300];
    for (const xd_json *v = xd_json_first(value_at(body, "lora")); v; v = xd_json_next(v)) {
        const char *path = xd_json_text(xd_json_get(v, "path"));
        snprintf(text, sizeof text, "%.200s:%.17g", path ? path : "",
                 number_at(v, "multiplier", 1));
        xd_api_req_lora(a, text);
    }
}

static void set_job(xd_api_req *a, const xd_json *body)
{
    const char *prompt = xd_json_text(value_at(body, "prompt")),
               *cache = xd_json_text(value_at(body, "cache_mode"));
    xd_api_req_model(a, xd_json_text(value_at(body, "model")));
    if (a->failed)
        return;
    xd_json *uses = xd_served_model_uses(a->model);
    int      distilled = is_on(uses, "distilled");
    xd_json_free(&uses);
    if (prompt)
        xd_api_req_prompt(a, prompt);
    for (int i = 0; i < ROWS; i++)
        set_row(a, body, i);
    set_sampling(a, body);
    set_guidance(a, body, distilled);
    set_images(a, body);
    set_output(a, body);
    set_loras(a, body);
    if (is_on(body, "hires.enabled"))
        xd_api_req_refuse(a, 400, "hires", "hires is not supported: set width and height");
    if (cache && *cache && strcmp(cache, "disabled") != 0)
        xd_api_req_refuse(a, 400, "cache_mode", "cache_mode %.40s is not supported: leave it out",
                          cache);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static const char *kind_of(const xd_task *task)
{
    return task->video ? "vid_gen" : "img_gen";
}

static const char *status_of(const xd_task *task)
{
    static const char *const names[] = { "queued", "generating", "completed", "failed",
                                         "cancelled" };
    return names[task->state];
}

static void add_time(xd_text_buf *b, const char *name, double t)
{
    xd_buf_add(b, ",\"%s\":", name);
    xd_buf_add(b, t > 0 ? "%lld" : "null", (long long)t);
}

static void add_file(xd_text_buf *b, const char *file)
{
    xd_buf_add(b, "\"b64_json\":\"");
    if (!xd_answer_base64(b, file))
        b->failed = 1;
    xd_buf_add(b, "\"}");
}

static void add_result(xd_text_buf *b, const xd_task *task)
{
    const xd_task_image *im = task->done;
    const char          *dot = strrchr(im->file, '.');
    xd_buf_add(b, "{\"output_format\":\"%s\"", dot ? dot + 1 : "");
    if (task->video) {
        xd_buf_add(b, ",\"mime_type\":\"%s\",\"fps\":%.10g,\"frame_count\":%lld,\"seed\":%s,",
                   xd_answer_type(im->file), im->fps, (long long)im->frames, im->seed);
        add_file(b, im->file);
        return;
    }
    xd_buf_add(b, ",\"images\":[");
    for (int i = 0; i < task->ndone; i++) {
        xd_buf_add(b, "%s{\"index\":%d,\"seed\":%s,", i ? "," : "", i, task->done[i].seed);
        add_file(b, task->done[i].file);
    }
    xd_buf_add(b, "]}");
}

static void add_error(xd_text_buf *b, const xd_server *s, const xd_task *task)
{
    char text[4096];
    xd_buf_add(b, "{\"code\":\"%s\",\"message\":",
               task->state == XD_TASK_CANCELLED ? "cancelled" : "generation_failed");
    xd_buf_json_string(b, xd_answer_error(s, task, text, sizeof text));
    xd_buf_add(b, "}");
}

/* Replies with the state of a job. An ended task does not change any more, so its result files can
 * be read without holding the lock of the tasks. */
static void reply_job(xd_http_call *c, const xd_task *task)
{
    xd_server  *s = c->server;
    xd_text_buf b = { 0 };
    xd_tasks_lock(s->tasks);
    xd_task_state state = task->state;
    xd_buf_add(&b, "{\"id\":\"%s\",\"kind\":\"%s\",\"status\":\"%s\",\"created\":%lld", task->id,
               kind_of(task), status_of(task), (long long)task->created);
    add_time(&b, "started", task->started);
    add_time(&b, "completed", task->ended);
    xd_buf_add(&b, ",\"queue_position\":%d,\"result\":",
               state == XD_TASK_QUEUED ? xd_task_position(s->tasks, task) : 0);
    xd_tasks_unlock(s->tasks);
    if (state == XD_TASK_DONE && task->ndone)
        add_result(&b, task);
    else
        xd_buf_add(&b, "null");
    xd_buf_add(&b, ",\"error\":");
    if (state == XD_TASK_FAILED || state == XD_TASK_CANCELLED)
        add_error(&b, s, task);
    else
        xd_buf_add(&b, "null");
    xd_buf_add(&b, "}\n");
    xd_reply_json(c, 200, &b);
}

static void begin_job(xd_http_call *c, const char *kind)
{
    xd_server  *s = c->server;
    xd_api_req  a;
    xd_text_buf b = { 0 };
    xd_api_req_begin(&a, c, kind);
    if (!xd_json_is_object(c->json))
        xd_api_req_refuse(&a, 400, NULL, "the body must be a JSON object");
    if (!a.failed)
        set_job(&a, c->json);
    xd_task *task = xd_api_req_submit(&a);
    if (!task)
        return;
    xd_buf_add(&b,
               "{\"id\":\"%s\",\"kind\":\"%s\",\"status\":\"queued\",\"created\":%lld,"
               "\"poll_url\":\"/sdcpp/v1/jobs/%s\"}\n",
               task->id, kind_of(task), (long long)task->created, task->id);
    xd_task_release(s->tasks, task);
    xd_reply_json(c, 202, &b);
}

void xd_api_sdcpp_image(xd_http_call *c)
{
    begin_job(c, "image");
}

void xd_api_sdcpp_video(xd_http_call *c)
{
    begin_job(c, "video");
}

static void answer_of_job(xd_http_call *c, int cancel)
{
    xd_server *s = c->server;
    xd_task   *task = xd_answer_find(c);
    if (task && cancel)
        xd_cancel_task(s, task);
    if (task)
        reply_job(c, task);
    else
        xd_reply_error(c, 404, NULL, NULL, "there is no job '%.60s'; it may have expired", c->arg);
    xd_task_release(s->tasks, task);
}

void xd_api_sdcpp_job(xd_http_call *c)
{
    answer_of_job(c, 0);
}

void xd_api_sdcpp_cancel(xd_http_call *c)
{
    answer_of_job(c, 1);
}

/* ---- capabilities ---------------------------------------------------------------------------- */

static void add_names(xd_text_buf *b, const char *const table[][2], int n)
{
    for (int i = 0; i < n; i++)
        xd_buf_add(b, "%s\"%s\"", i ? "," : "", table[i][0]);
}

/* Appends a request object in which all fields have the model's defaults. */
static void add_defaults(xd_text_buf *b, const xd_json *uses)
{
    const xd_json *d = xd_json_get(uses, "defaults");
    int            video = makes_videos(uses), distilled = is_on(uses, "distilled");
    double         own = number_at(d, "guidance_scale", 1);
    const char    *avoid = xd_json_text(xd_json_get(d, "negative_prompt"));
    xd_buf_add(b, "{\"prompt\":\"\",\"negative_prompt\":");
    xd_buf_json_string(b, avoid ? avoid : "");
    xd_buf_add(b,
               ",\"width\":%.0f,\"height\":%.0f,"
               "\"seed\":%.0f,\"strength\":%.10g,\"sample_params\":{\"scheduler\":\"default\","
               "\"sample_method\":\"default\",\"sample_steps\":%.0f,\"eta\":null,"
               "\"flow_shift\":null,\"guidance\":{\"txt_cfg\":%.10g,\"img_cfg\":null,"
               "\"distilled_guidance\":%.10g}},\"vae_tiling_params\":{\"enabled\":false},"
               "\"cache_mode\":\"disabled\",\"output_compression\":100,",
               number_at(d, "width", 0), number_at(d, "height", 0), number_at(d, "seed", -1),
               number_at(d, "strength", 0.75), number_at(d, "num_inference_steps", 0),
               distilled ? number_at(d, "true_cfg_scale", 1) : own, own);
    if (video)
        xd_buf_add(b, "\"video_frames\":%.0f,\"fps\":%.10g,\"output_format\":\"%s\"}",
                   number_at(d, "num_frames", 1), number_at(d, "fps", 1),
                   strrchr(xd_output_default(1), '.') + 1);
    else
        xd_buf_add(b, "\"batch_count\":1,\"hires\":{\"enabled\":false},"
                      "\"output_format\":\"png\"}");
}

static int takes(const xd_json *uses, const char *word)
{
    const char *text;
    for (const xd_json *v = xd_json_first(xd_json_get(uses, "takes")); v; v = xd_json_next(v))
        if ((text = xd_json_text(v)) && strcmp(text, word) == 0)
            return 1;
    return 0;
}

static const char *truth(int on)
{
    return on ? "true" : "false";
}

static void add_features(xd_text_buf *b, const xd_server *s, const xd_json *uses)
{
    xd_buf_add(b,
               "{\"init_image\":%s,\"lora\":%s,\"vae_tiling\":true,\"cache\":false,"
               "\"cancel_queued\":true,\"cancel_generating\":true,",
               truth(takes(uses, "image")), truth(s->loras != NULL));
    if (makes_videos(uses))
        xd_buf_add(b,
                   "\"end_image\":%s,\"control_frames\":false,"
                   "\"high_noise_sample_params\":false}",
                   truth(takes(uses, "last_image")));
    else
        xd_buf_add(b,
                   "\"mask_image\":%s,\"control_image\":%s,\"ip_adapter_image\":false,"
                   "\"ref_images\":%s,\"hires\":false}",
                   truth(takes(uses, "mask_image")), truth(takes(uses, "control_image")),
                   truth(takes(uses, "image")));
}

/* Appends a value twice: in the field `name`, for clients that do not know generation modes, and in
 * the field "NAME_by_mode", under the mode of the model (img_gen or vid_gen). */
static void add_both(xd_text_buf *b, const char *name, const char *mode, const xd_text_buf *value)
{
    xd_buf_add(b, ",\"%s\":%s,\"%s_by_mode\":{\"%s\":%s}", name, value->p, name, mode, value->p);
}

static void add_loras(xd_text_buf *b, const xd_server *s)
{
    int    n;
    char **v = xd_server_loras(s->loras, &n);
    for (int i = 0; i < n; i++) {
        xd_buf_add(b, "%s{\"name\":", i ? "," : "");
        xd_buf_json_string(b, v[i]);
        xd_buf_add(b, ",\"path\":");
        xd_buf_json_string(b, v[i]);
        xd_buf_add(b, "}");
        free(v[i]);
    }
    free(v);
}

/* Replies with the capabilities of the server's first model. Replies name the model without its
 * directory. */
void xd_api_sdcpp_capabilities(xd_http_call *c)
{
    const xd_server *s = c->server;
    xd_json         *uses = xd_served_model_uses(&s->models[0]);
    xd_text_buf      b = { 0 }, defaults = { 0 }, features = { 0 }, formats = { 0 };
    const char      *mode = makes_videos(uses) ? "vid_gen" : "img_gen";
    add_defaults(&defaults, uses);
    add_features(&features, s, uses);
    xd_buf_add(&formats, makes_videos(uses) ? "[\"mp4\",\"webm\",\"gif\",\"mkv\",\"mov\"]"
                                            : "[\"png\",\"jpeg\",\"webp\"]");
    b.failed = defaults.failed || features.failed || formats.failed;
    xd_buf_add(&b, "{\"model\":{\"name\":");
    for (int i = 0; i < 3; i++) {
        xd_buf_add(&b, i == 1 ? ",\"stem\":" : i == 2 ? ",\"path\":" : "");
        xd_buf_json_string(&b, s->models[0].name);
    }
    xd_buf_add(&b, "},\"current_mode\":\"%s\",\"supported_modes\":[\"%s\"]", mode, mode);
    if (!b.failed) {
        add_both(&b, "defaults", mode, &defaults);
        add_both(&b, "output_formats", mode, &formats);
        add_both(&b, "features", mode, &features);
    }
    xd_buf_add(&b, ",\"samplers\":[\"default\",");
    add_names(&b, samplers, SAMPLERS);
    xd_buf_add(&b, "],\"schedulers\":[\"default\",");
    add_names(&b, schedules, SCHEDULES);
    xd_buf_add(&b, "],\"loras\":[");
    add_loras(&b, s);
    xd_buf_add(&b,
               "],\"upscalers\":[],\"limits\":{\"min_width\":16,\"max_width\":16384,"
               "\"min_height\":16,\"max_height\":16384,\"max_batch_count\":1000,"
               "\"max_queue_size\":%d}}\n",
               s->queue);
    xd_buf_free(&defaults);
    xd_buf_free(&features);
    xd_buf_free(&formats);
    xd_json_free(&uses);
    xd_reply_json(c, 200, &b);
}
