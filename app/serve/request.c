/* request.c - converts a client's request to the arguments of a task */
#define _XOPEN_SOURCE 700 /* realpath */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "serve/base64.h"
#include "serve/task_flags.h"
#include "serve/request_key.h"
#include "serve/server.h"

/* Limits of a request: pixels of all its image files, number of image files, number of images to
 * generate, bytes of a text, number of arguments. */
enum {
    MAX_PIXELS = 64 << 20,
    MAX_FILES = 20,
    MAX_IMAGES = 1000,
    MAX_TEXT = 100000,
    MAX_ARGS = 1000
};
/* The maximum number of pixels to generate is TIMES_OWN times the pixels of the model's default
 * size, but at least MIN_LIMIT. */
enum { TIMES_OWN = 16, MIN_LIMIT = 4 << 20 };

static xd_server *server_of(const xd_api_req *r)
{
    return r->call->server;
}

void xd_api_req_refuse(xd_api_req *r, unsigned status, const char *param, const char *fmt, ...)
{
    char    text[4608];
    va_list ap;
    if (r->failed)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->failed = 1;
    if (r->refused)
        r->refused(r->refused_cookie, status, param, text);
    else
        xd_reply_error(r->call, status, param, NULL, "%s", text);
}

static void add_arg(xd_api_req *r, const char *name, const char *value)
{
    xd_err e = { 0 };
    if (strlen(value) > MAX_TEXT)
        xd_api_req_refuse(r, 400, name, "%s has %zu bytes; the limit is %d", name, strlen(value),
                          MAX_TEXT);
    else if (!r->failed && r->task->nargs >= MAX_ARGS)
        xd_api_req_refuse(r, 400, name, "a request has at most %d values", MAX_ARGS);
    else if (!r->failed && xd_task_arg(r->task, name, value, &e) != XD_OK)
        xd_api_req_refuse(r, 503, NULL, "%s", e.msg);
}

/* Sets the id of a new task: a hash of the request's Idempotency-Key, or a random id. */
static void name_task(xd_api_req *r)
{
    const char *key = xd_http_header(r->call, "Idempotency-Key");
    char        part[40];
    xd_task_name(r->task->id, r->kind);
    if (!key)
        return;
    if (!xd_request_key_is_valid(key)) {
        xd_api_req_refuse(r, 400, "Idempotency-Key",
                          "Idempotency-Key must have 1 to %d printable ASCII characters",
                          XD_KEY_BYTES);
        return;
    }
    /* Two requests with the same Idempotency-Key need input files of different names. */
    xd_task_name(part, "x");
    snprintf(r->part, sizeof r->part, ".%.8s", part + 2);
    xd_request_key_id(r->kind, r->call->owner, key, r->task->id);
}

void xd_api_req_begin(xd_api_req *r, xd_http_call *call, const char *kind)
{
    *r = (xd_api_req){ .call = call, .kind = kind, .task = xd_task_new() };
    snprintf(r->extension, sizeof r->extension, "%s",
             strcmp(kind, "video") == 0 ? strrchr(xd_output_default(1), '.') + 1 : "png");
    if (!r->task) {
        xd_api_req_refuse(r, 503, NULL, "out of memory for another request");
        return;
    }
    name_task(r);
    snprintf(call->task, sizeof call->task, "%s", r->task->id);
    r->task->video = strcmp(kind, "video") == 0;
    r->task->owner = strdup(call->owner);
    add_arg(r, "id", r->task->id);
    add_arg(r, "video", r->task->video ? "true" : "false");
}

/* ---- choice of models and LoRA files --------------------------------------------------------- */

/* Returns nonzero if the name begins like the name of a model of OpenAI, such as "dall-e". Many
 * clients send the name of a model of OpenAI to every server. */
static int is_openai(const char *name)
{
    static const char *const known[] = { "gpt-image", "dall-e", "sora", "chatgpt-image" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncasecmp(name, known[i], strlen(known[i])) == 0)
            return 1;
    return 0;
}

int xd_served_is_named(const xd_served_model *m, const char *name)
{
    int same = strcmp(m->name, name) == 0;
    for (int i = 0; i < m->naliases && !same; i++)
        same = strcmp(m->aliases[i], name) == 0;
    return same;
}

int xd_served_makes(const xd_served_model *m, const char *kind)
{
    char member[40];
    snprintf(member, sizeof member, ",\"makes\":\"%s\"", kind);
    return !m->uses || !strstr(m->uses, "\"makes\":") ? -1 : strstr(m->uses, member) != NULL;
}

/* Returns the server's first model that generates what is requested: images or videos. */
static const xd_served_model *first_model(const xd_api_req *r)
{
    const xd_server *s = server_of(r);
    for (int i = 0; i < s->nmodels; i++)
        if (xd_served_makes(&s->models[i], r->kind))
            return &s->models[i];
    return &s->models[0];
}

void xd_api_req_model(xd_api_req *r, const char *name)
{
    const xd_server *s = server_of(r);
    if (r->failed)
        return;
    r->model = NULL;
    for (int i = 0; i < s->nmodels && name; i++)
        if (xd_served_is_named(&s->models[i], name) || strcmp(s->models[i].path, name) == 0)
            r->model = &s->models[i];
    if (!r->model && (!name || !*name || is_openai(name)))
        r->model = first_model(r);
    if (!r->model)
        xd_api_req_refuse(r, 404, "model",
                          "there is no model '%.80s' here; /v1/models lists the "
                          "models, such as '%s'",
                          name ? name : "", s->models[0].name);
    else if (!xd_served_makes(r->model, r->kind))
        xd_api_req_refuse(r, 400, "model", "%s generates %s", r->model->name,
                          r->task->video ? "images: send the request to /v1/images/generations"
                                         : "videos: send the request to /v1/videos");
}

int xd_api_req_model_accepts(const xd_api_req *r, const char *word)
{
    char        quoted[40];
    const char *list = r->model && r->model->uses ? strstr(r->model->uses, "\"takes\":") : NULL,
               *end = list ? strchr(list, ']') : NULL;
    snprintf(quoted, sizeof quoted, "\"%s\"", word);
    const char *at = list ? strstr(list, quoted) : NULL;
    return !end || (at && at < end);
}

/* Returns nonzero if the file name cannot lead out of its folder. */
static int is_plain(const char *name)
{
    return name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) < 200;
}

static int is_scale(const char *text)
{
    char  *end;
    double v = strtod(text, &end);
    return end != text && !*end && v >= -1e6 && v <= 1e6;
}

void xd_api_req_lora(xd_api_req *r, const char *value)
{
    const char *dir = server_of(r)->loras, *colon = strrchr(value, ':');
    char        name[256], path[4096];
    snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - value) : (int)strlen(value), value);
    if (r->failed)
        return;
    if (!dir)
        xd_api_req_refuse(r, 400, "lora",
                          "this server has no folder of LoRA files: start it with "
                          "--loras DIR");
    else if (!is_plain(name))
        xd_api_req_refuse(r, 400, "lora",
                          "'%.80s' is not the name of a LoRA file: a name has no "
                          "'/' and does not begin with a dot",
                          name);
    else if (colon && !is_scale(colon + 1))
        xd_api_req_refuse(r, 400, "lora",
                          "'%.40s' is not a scale for the LoRA file '%.80s': it "
                          "must be a number from -1e6 to 1e6, as in \"name:0.8\"",
                          colon + 1, name);
    else {
        char real[4096], *folder = realpath(dir, NULL);
        int  n = snprintf(path, sizeof path, "%s/%s", dir, name);
        if (!xd_file_exists(path) && (size_t)n < sizeof path)
            snprintf(path + n, sizeof path - (size_t)n, ".safetensors");
        char *file = realpath(path, NULL);
        if (!file || !folder || strncmp(file, folder, strlen(folder)) != 0 ||
            file[strlen(folder)] != '/')
            xd_api_req_refuse(r, 400, "lora", "there is no LoRA file '%.80s' here", name);
        else {
            snprintf(real, sizeof real, "%s:%s", file, colon ? colon + 1 : "1");
            add_arg(r, "lora", real);
        }
        free(folder);
        free(file);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Sets an option of the request. A seed of -1 means a random seed, like a request without a
 * seed. */
void xd_api_req_option(xd_api_req *r, const char *name, const char *value)
{
    if (strcmp(name, "seed") == 0 && strcmp(value, "-1") == 0)
        r->random_seed = 1;
    else
        add_arg(r, name, value);
}

void xd_api_req_prompt(xd_api_req *r, const char *prompt)
{
    add_arg(r, "prompt", prompt);
    if (!r->failed && !r->task->prompt)
        r->task->prompt = strdup(prompt);
}

void xd_api_req_size(xd_api_req *r, const char *size)
{
    char   *end, width[24];
    int64_t w = strtoll(size, &end, 10);
    if (r->failed || strcmp(size, "auto") == 0)
        return;
    if (!isdigit((unsigned char)size[0]) || w <= 0 || (*end != 'x' && *end != 'X') ||
        !isdigit((unsigned char)end[1]) || end[1 + strspn(end + 1, "0123456789")]) {
        xd_api_req_refuse(r, 400, "size",
                          "size must be WIDTHxHEIGHT in pixels, or auto, not "
                          "'%.40s'",
                          size);
        return;
    }
    snprintf(width, sizeof width, "%lld", (long long)w);
    add_arg(r, "width", width);
    add_arg(r, "height", end + 1);
    if (!r->failed && !r->task->size)
        r->task->size = strdup(size);
}

void xd_api_req_format(xd_api_req *r, const char *param, const char *format)
{
    static const char *const images[] = { "png", "jpeg", "jpg", "webp", NULL };
    static const char *const videos[] = { "mp4", "webm", "gif", "mkv", "mov", NULL };
    const char *const       *known = strcmp(r->kind, "video") == 0 ? videos : images;
    while (*known && strcmp(*known, format) != 0)
        known++;
    if (!*known)
        xd_api_req_refuse(r, 400, param, "%s must be %s, not '%.40s'", param,
                          strcmp(r->kind, "video") == 0 ? "mp4, webm, gif, mkv or mov"
                                                        : "png, jpeg or webp",
                          format);
    else
        snprintf(r->extension, sizeof r->extension, "%s", format);
}

/* ---- input image files ----------------------------------------------------------------------- */

/* Checks the image size in the header of an image file, before a huge image could be decoded. */
static void check_image(xd_api_req *r, const char *option, const char *path)
{
    int64_t w, h;
    xd_err  e = { 0 };
    int     video = strcmp(option, "control_video") == 0 || strcmp(option, "pose_video") == 0 ||
                    strcmp(option, "face_video") == 0 ||
                    (strcmp(option, "mask") == 0 && strcmp(r->kind, "video") == 0);
    /* If a request generates a video, the file of the option `image` may itself be a video. */
    video |= strcmp(option, "image") == 0 && strcmp(r->kind, "video") == 0 &&
             xd_image_file_size(path, &w, &h, NULL) != XD_OK &&
             xd_video_file_size(path, &w, &h, NULL) == XD_OK;
    if ((video ? xd_video_file_size : xd_image_file_size)(path, &w, &h, &e) != XD_OK)
        xd_api_req_refuse(r, 400, option, "%s%s", option,
                          strncmp(e.msg, path, strlen(path)) == 0 ? e.msg + strlen(path)
                                                                  : " cannot be read");
    else if (w > (MAX_PIXELS - r->pixels) / h)
        xd_api_req_refuse(r, 400, option,
                          "%s has %lld x %lld pixels; the limit for all images of "
                          "a request is %d million",
                          option, (long long)w, (long long)h, MAX_PIXELS >> 20);
    else
        r->pixels += w * h;
}

void xd_api_req_file(xd_api_req *r, const char *option, const char *data, size_t bytes)
{
    char   path[4096];
    xd_err e = { 0 };
    xd_out out;
    int    mask = strcmp(option, "image") != 0;
    if (r->failed)
        return;
    r->images += !mask;
    if (r->files >= MAX_FILES) {
        xd_api_req_refuse(r, 400, option, "the request contains more than %d images", MAX_FILES);
        return;
    }
    snprintf(path, sizeof path, "%s/%s%s.in%d", server_of(r)->dir, r->task->id, r->part,
             r->files++);
    if (!bytes) {
        xd_api_req_refuse(r, 400, option, "%s is an empty file", option);
        return;
    }
    xd_status s = xd_out_open(&out, path, &e);
    if (s == XD_OK && fwrite(data, 1, bytes, out.f) != bytes)
        s = xd_fail(&e, XD_EIO, "cannot write %s", path);
    s = s == XD_OK ? xd_out_commit(&out, &e) : s;
    if (s != XD_OK)
        fprintf(stderr, "xdit: error: %s: %s\n", r->task->id, e.msg);
    if (s != XD_OK)
        xd_api_req_refuse(r, 500, NULL, "%s cannot be stored: the server's disk may be full",
                          option);
    else
        check_image(r, strcmp(option, "mask_image") == 0 ? "mask" : option, path);
    add_arg(r, option, path);
}

static int is_gone(void *call)
{
    return xd_http_client_left(call);
}

static void fetch_url(xd_api_req *r, const char *option, const char *url)
{
    const xd_fetch_rules *f = &server_of(r)->fetch;
    char                 *data;
    size_t                bytes;
    xd_err                e = { 0 };
    if (!f->nhosts) {
        xd_api_req_refuse(r, 400, option,
                          "%s is a URL of another server, and this server was "
                          "started without --allow_url: send the image itself, as a data URL",
                          option);
        return;
    }
    xd_status s = xd_fetch_read(f, url, is_gone, r->call, &data, &bytes, &e);
    if (s == XD_OK)
        xd_api_req_file(r, option, data, bytes);
    else
        xd_api_req_refuse(r, s == XD_ENOMEM ? 503 : 400, option, "%s: %s", option, e.msg);
    free(data);
}

void xd_api_req_url(xd_api_req *r, const char *option, const char *url)
{
    const char *base = strncmp(url, "data:", 5) == 0 ? strstr(url, ";base64,") : NULL;
    size_t      bytes;
    if (r->failed)
        return;
    if (!base && (strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0)) {
        fetch_url(r, option, url);
        return;
    }
    const char *text = base ? base + 8 : url; /* clients of A1111 send base64 without "data:" */
    char       *data = xd_base64_read(text, strlen(text), &bytes);
    if (!data)
        xd_api_req_refuse(r, 400, option, "%s is neither base64 nor a data URL in base64", option);
    else
        xd_api_req_file(r, option, data, bytes);
    free(data);
}

/* ---- validation and submission of a request -------------------------------------------------- */

xd_json *xd_served_model_uses(const xd_served_model *m)
{
    xd_text_buf b = { 0 };
    xd_json    *j = NULL;
    xd_buf_add(&b, "{%s}", m->uses ? m->uses + 1 : "");
    if (!b.failed)
        xd_json_parse(&j, b.p, b.len, "uses", NULL);
    xd_buf_free(&b);
    return j;
}

/* Returns the model's default for an option whose value is a number; 0: there is no default. */
static double default_of(const xd_json *uses, const char *name)
{
    double v = 0;
    return xd_json_number(xd_json_get(xd_json_get(uses, "defaults"), name), &v) ? v : 0;
}

/* Refuses image sizes far above the model's default, because their generation would take hours. */
static void check_size(xd_api_req *r, const xd_request *given)
{
    xd_json *uses = xd_served_model_uses(r->model);
    double   own[2] = { default_of(uses, "width"), default_of(uses, "height") };
    double   frames = default_of(uses, "num_frames"), most = (double)server_of(r)->max_pixels;
    double   w = given->width ? (double)given->width : own[0],
             h = given->height ? (double)given->height : own[1];
    double   n = given->num_frames           ? given->num_frames
                 : given->output.seconds > 0 ? given->output.seconds * default_of(uses, "fps")
                                             : frames;
    xd_json_free(&uses);
    if (!(most > 0))
        most = fmax(MIN_LIMIT, TIMES_OWN * own[0] * own[1]) * fmax(frames, 1);
    if ((own[0] > 0 || server_of(r)->max_pixels) && w * h * fmax(n, 1) > most)
        xd_api_req_refuse(r, 400, "size",
                          "%.0f x %.0f pixels%s exceed the limit of %.0f pixels "
                          "for %s, whose default size is %.0f x %.0f (--max_pixels)",
                          w, h, n > 1 ? " of all frames" : "", most, r->model->name, own[0],
                          own[1]);
}

/* Validates the task's arguments. An error about a command line option is reported as an error
 * about a field of the request, without the dashes before its name. */
static void check_args(xd_api_req *r)
{
    xd_task_flags f;
    xd_err        e = { 0 };
    if (r->failed)
        return;
    if (xd_task_flags_read(&f, r->task->nargs, r->task->args, &e) != XD_OK) {
        char        param[64], shown[sizeof e.msg];
        const char *text = strncmp(e.msg, "--", 2) == 0 ? e.msg + 2 : e.msg;
        text = xd_answer_text(server_of(r), text, shown, sizeof shown);
        snprintf(param, sizeof param, "%.*s", (int)strcspn(text, " "), text);
        xd_api_req_refuse(r, 400, strncmp(e.msg, "--", 2) == 0 ? param : NULL, "%s", text);
    } else if ((int64_t)f.prompts.n * f.request.num_images_per_prompt > MAX_IMAGES) {
        xd_api_req_refuse(r, 400, "n", "the limit for one request is %d images", MAX_IMAGES);
    } else {
        check_size(r, &f.request);
    }
    xd_task_flags_free(&f);
}

static void remove_files(const xd_api_req *r)
{
    char path[4096];
    for (int i = 0; r->task && i < r->files; i++) {
        snprintf(path, sizeof path, "%s/%s%s.in%d", server_of(r)->dir, r->task->id, r->part, i);
        unlink(path);
    }
}

/* Queues the task of the request. Returns 1 if the task of another request with the same
 * Idempotency-Key was queued earlier. */
static int queue_task(xd_api_req *r)
{
    char       text[4096];
    xd_err     e = { 0 };
    xd_server *s = server_of(r);
    xd_status  st = r->failed ? XD_OK : xd_tasks_add(s->tasks, r->task, &e);
    if (st == XD_OK || (st == XD_EINVAL && *r->part))
        return st != XD_OK;
    xd_api_req_refuse(r, st == XD_ECANCELLED || st == XD_EIO ? 503 : 429, NULL, "%s",
                      xd_answer_text(s, e.msg, text, sizeof text));
    xd_answer_retry_after(r->call);
    return 0;
}

/* Returns the task of an earlier request with the same Idempotency-Key, or NULL. If the earlier
 * request had other contents, this request is refused. */
static xd_task *find_same(xd_api_req *r)
{
    xd_server *s = server_of(r);
    xd_task   *same = r->failed ? NULL : xd_tasks_find(s->tasks, r->task->id);
    if (!same || strcmp(same->fingerprint, r->task->fingerprint) == 0)
        return same;
    xd_task_release(s->tasks, same);
    xd_api_req_refuse(r, 422, "Idempotency-Key",
                      "Idempotency-Key belongs to an earlier request with other values: use "
                      "another key");
    return NULL;
}

/* Queues a task whose request has an Idempotency-Key. If an earlier request had the same key,
 * returns the task of the earlier request. */
static xd_task *queue_once(xd_api_req *r)
{
    /* another server that has claimed the task's id stores the task within this time */
    const double until = xd_now_s() + 5;
    xd_err       e = { 0 };
    if (!r->failed && xd_request_key_fingerprint(r->task, &e) != XD_OK)
        xd_api_req_refuse(r, 503, NULL, "the files of the request cannot be read: send it again");
    xd_task *same = find_same(r);
    xd_api_req_seed(r);
    if (same || !queue_task(r))
        return same;
    while (!r->failed && !(same = find_same(r)) && xd_now_s() < until)
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    if (!same)
        xd_api_req_refuse(r, 503, NULL,
                          "another server has accepted this request, but not stored it: send the "
                          "request again");
    return same;
}

xd_task *xd_api_req_submit(xd_api_req *r)
{
    char       path[4096];
    xd_task   *task = r->task, *same = NULL;
    xd_server *s = server_of(r);
    xd_api_req_defaults(r);
    if (!*r->part)
        xd_api_req_seed(r);
    if (!r->failed && !task->prompt)
        xd_api_req_refuse(r, 400, "prompt", "prompt is missing: describe what to generate");
    if (!r->failed) {
        task->model = r->model->name;
        snprintf(path, sizeof path, "%s/%s.%s", s->dir, task->id, r->extension);
        add_arg(r, "model", r->model->path);
        add_arg(r, "output", path);
        snprintf(path, sizeof path, "%s/%s.saved", s->dir, task->id);
        if (s->dir != s->own_dir)
            add_arg(r, "checkpoint", path);
    }
    check_args(r);
    if (*s->ending) /* a termination signal has arrived that the main thread has not yet handled */
        xd_tasks_shut_down(s->tasks);
    if (*r->part)
        same = queue_once(r);
    else
        queue_task(r);
    if (!r->failed && !same)
        return task;
    remove_files(r);
    xd_task_free(task);
    r->task = NULL;
    return same;
}
