/* ask.c - a request of a client becomes the arguments of a task */
#define _XOPEN_SOURCE 700        /* realpath */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/file.h"
#include "serve/base64.h"
#include "serve/task_flags.h"
#include "serve/server.h"

/* Of a request: pixels of all images that come with it, how many images that are, images that it
 * asks for, bytes of a text, arguments. */
enum { MOST_PIXELS = 64 << 20, MOST_FILES = 20, MOST_IMAGES = 1000, MOST_TEXT = 100000,
       MOST_ARGS = 1000 };
/* Pixels that a request asks for: so many times those of the model's own size, or so many. */
enum { TIMES_OWN = 16, LEAST_MOST = 4 << 20 };

static xd_server *server_of(const xd_ask *a)
{
    return a->call->server;
}

void xd_ask_refuse(xd_ask *a, unsigned status, const char *param, const char *fmt, ...)
{
    char    text[4608];
    va_list ap;
    if (a->failed)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    a->failed = 1;
    xd_reply_error(a->call, status, param, NULL, "%s", text);
}

static void add_arg(xd_ask *a, const char *name, const char *value)
{
    xd_err e = { 0 };
    if (strlen(value) > MOST_TEXT)
        xd_ask_refuse(a, 400, name, "%s has %zu bytes, more than the %d that are taken", name,
                      strlen(value), MOST_TEXT);
    else if (!a->failed && a->task->nargs >= MOST_ARGS)
        xd_ask_refuse(a, 400, name, "a request has at most %d values", MOST_ARGS);
    else if (!a->failed && xd_task_arg(a->task, name, value, &e) != XD_OK)
        xd_ask_refuse(a, 503, NULL, "%s", e.msg);
}

void xd_ask_begin(xd_ask *a, xd_http_call *call, const char *kind)
{
    *a = (xd_ask){ .call = call, .kind = kind, .task = xd_task_new() };
    snprintf(a->extension, sizeof a->extension, "%s", strcmp(kind, "video") == 0
             ? strrchr(xd_output_default(1), '.') + 1 : "png");
    if (!a->task) {
        xd_ask_refuse(a, 503, NULL, "no memory for another task");
        return;
    }
    xd_task_name(a->task->id, kind);
    snprintf(call->task, sizeof call->task, "%s", a->task->id);
    a->task->video = strcmp(kind, "video") == 0;
    a->task->owner = strdup(call->owner);
    add_arg(a, "id", a->task->id);
    add_arg(a, "video", a->task->video ? "true" : "false");
}

/* ---- models and LoRA files ------------------------------------------------------------------- */

/* Clients that were written for OpenAI ask for its models whatever the server has. */
static int is_openai(const char *name)
{
    static const char *const known[] = { "gpt-image", "dall-e", "sora", "chatgpt-image" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncasecmp(name, known[i], strlen(known[i])) == 0)
            return 1;
    return 0;
}

int xd_served_makes(const xd_served_model *m, const char *kind)
{
    char member[40];
    snprintf(member, sizeof member, ",\"makes\":\"%s\"", kind);
    return !m->uses || !strstr(m->uses, "\"makes\":") ? -1 : strstr(m->uses, member) != NULL;
}

/* The first model that makes what is asked for. */
static const xd_served_model *first_model(const xd_ask *a)
{
    const xd_server *s = server_of(a);
    for (int i = 0; i < s->nmodels; i++)
        if (xd_served_makes(&s->models[i], a->kind))
            return &s->models[i];
    return &s->models[0];
}

void xd_ask_model(xd_ask *a, const char *name)
{
    const xd_server *s = server_of(a);
    if (a->failed)
        return;
    a->model = NULL;
    for (int i = 0; i < s->nmodels && name; i++)
        if (strcmp(s->models[i].name, name) == 0 || strcmp(s->models[i].path, name) == 0)
            a->model = &s->models[i];
    if (!a->model && (!name || !*name || is_openai(name)))
        a->model = first_model(a);
    if (!a->model)
        xd_ask_refuse(a, 404, "model", "there is no model '%.80s' here; /v1/models lists those "
                      "that there are, such as '%s'", name ? name : "", s->models[0].name);
    else if (!xd_served_makes(a->model, a->kind))
        xd_ask_refuse(a, 400, "model", "%s generates %s", a->model->name, a->task->video
                      ? "images: ask at /v1/images/generations" : "videos: ask at /v1/videos");
}

/* Also of a model of which nothing is known. */
int xd_ask_takes(const xd_ask *a, const char *word)
{
    char        quoted[40];
    const char *list = a->model && a->model->uses ? strstr(a->model->uses, "\"takes\":") : NULL,
               *end = list ? strchr(list, ']') : NULL;
    snprintf(quoted, sizeof quoted, "\"%s\"", word);
    const char *at = list ? strstr(list, quoted) : NULL;
    return !end || (at && at < end);
}

/* A name inside the folder: nothing that leads out of it. */
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

void xd_ask_lora(xd_ask *a, const char *value)
{
    const char *dir = server_of(a)->loras, *colon = strrchr(value, ':');
    char        name[256], path[4096];
    snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - value) : (int)strlen(value), value);
    if (a->failed)
        return;
    if (!dir)
        xd_ask_refuse(a, 400, "lora", "this server has no folder of LoRA files (--loras DIR)");
    else if (!is_plain(name))
        xd_ask_refuse(a, 400, "lora", "'%.80s' is no name of a LoRA file: a name has no '/' and "
                      "does not begin with a dot", name);
    else if (colon && !is_scale(colon + 1))
        xd_ask_refuse(a, 400, "lora", "'%.40s' is no scale of the LoRA file '%.80s': it is a "
                      "number from -1e6 to 1e6, as in \"name:0.8\"", colon + 1, name);
    else {
        char real[4096], *folder = realpath(dir, NULL);
        int  n = snprintf(path, sizeof path, "%s/%s", dir, name);
        if (!xd_file_exists(path) && (size_t)n < sizeof path)
            snprintf(path + n, sizeof path - (size_t)n, ".safetensors");
        char *file = realpath(path, NULL);
        if (!file || !folder || strncmp(file, folder, strlen(folder)) != 0 ||
            file[strlen(folder)] != '/')
            xd_ask_refuse(a, 400, "lora", "there is no LoRA file '%.80s' here", name);
        else {
            snprintf(real, sizeof real, "%s:%s", file, colon ? colon + 1 : "1");
            add_arg(a, "lora", real);
        }
        free(folder);
        free(file);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A seed of -1 is one by chance, as none is. */
void xd_ask_option(xd_ask *a, const char *name, const char *value)
{
    if (strcmp(name, "seed") == 0 && strcmp(value, "-1") == 0)
        a->drawn = 1;
    else
        add_arg(a, name, value);
}

void xd_ask_prompt(xd_ask *a, const char *prompt)
{
    add_arg(a, "prompt", prompt);
    if (!a->failed && !a->task->prompt)
        a->task->prompt = strdup(prompt);
}

void xd_ask_size(xd_ask *a, const char *size)
{
    char   *end, width[24];
    int64_t w = strtoll(size, &end, 10);
    if (a->failed || strcmp(size, "auto") == 0)
        return;
    if (!isdigit((unsigned char)size[0]) || w <= 0 || (*end != 'x' && *end != 'X') ||
        !isdigit((unsigned char)end[1]) || end[1 + strspn(end + 1, "0123456789")]) {
        xd_ask_refuse(a, 400, "size", "size is WIDTHxHEIGHT in pixels, or auto, not '%.40s'", size);
        return;
    }
    snprintf(width, sizeof width, "%lld", (long long)w);
    add_arg(a, "width", width);
    add_arg(a, "height", end + 1);
    if (!a->failed && !a->task->size)
        a->task->size = strdup(size);
}

void xd_ask_format(xd_ask *a, const char *param, const char *format)
{
    static const char *const images[] = { "png", "jpeg", "jpg", "webp", NULL };
    static const char *const videos[] = { "mp4", "webm", "gif", "mkv", "mov", NULL };
    const char *const *known = strcmp(a->kind, "video") == 0 ? videos : images;
    while (*known && strcmp(*known, format) != 0)
        known++;
    if (!*known)
        xd_ask_refuse(a, 400, param, "%s is %s, not '%.40s'", param,
                      strcmp(a->kind, "video") == 0 ? "mp4, webm, gif, mkv or mov"
                                                    : "png, jpeg or webp", format);
    else
        snprintf(a->extension, sizeof a->extension, "%s", format);
}

/* ---- files of clients ------------------------------------------------------------------------ */

/* Refused by its head: one of 50,000 x 50,000 pixels is not decoded. */
static void check_image(xd_ask *a, const char *option, const char *path)
{
    int64_t w, h;
    xd_err  e = { 0 };
    if (xd_image_file_size(path, &w, &h, &e) != XD_OK)
        xd_ask_refuse(a, 400, option, "%s%s", option,
                      strncmp(e.msg, path, strlen(path)) == 0 ? e.msg + strlen(path)
                                                              : " cannot be read");
    else if (w > (MOST_PIXELS - a->pixels) / h)
        xd_ask_refuse(a, 400, option, "%s has %lld x %lld pixels, and of all images of a request "
                      "%d million are taken", option, (long long)w, (long long)h,
                      MOST_PIXELS >> 20);
    else
        a->pixels += w * h;
}

void xd_ask_file(xd_ask *a, const char *option, const char *data, size_t bytes)
{
    char   path[4096];
    xd_err e = { 0 };
    xd_out out;
    int    mask = strcmp(option, "image") != 0;
    if (a->failed)
        return;
    a->images += !mask;
    if (a->files >= MOST_FILES) {
        xd_ask_refuse(a, 400, option, "more than %d images come with the request", MOST_FILES);
        return;
    }
    snprintf(path, sizeof path, "%s/%s.in%d", server_of(a)->dir, a->task->id, a->files++);
    if (!bytes) {
        xd_ask_refuse(a, 400, option, "%s has no bytes", option);
        return;
    }
    xd_status s = xd_out_open(&out, path, &e);
    if (s == XD_OK && fwrite(data, 1, bytes, out.f) != bytes)
        s = xd_fail(&e, XD_EIO, "cannot write %s", path);
    s = s == XD_OK ? xd_out_commit(&out, &e) : s;
    if (s != XD_OK)
        fprintf(stderr, "xdit: error: %s: %s\n", a->task->id, e.msg);
    if (s != XD_OK)
        xd_ask_refuse(a, 500, NULL, "%s cannot be kept: is there no room for files?", option);
    else
        check_image(a, strcmp(option, "mask_image") == 0 ? "mask" : option, path);
    add_arg(a, option, path);
}

static int is_gone(void *call)
{
    return xd_http_gone(call);
}

static void ask_url(xd_ask *a, const char *option, const char *url)
{
    const xd_fetch_rules *f = &server_of(a)->fetch;
    char           *data;
    size_t          bytes;
    xd_err          e = { 0 };
    if (!f->nhosts) {
        xd_ask_refuse(a, 400, option, "images of other servers are not fetched without "
                      "--allow_url: send the image itself, as a data URL");
        return;
    }
    xd_status s = xd_fetch_read(f, url, is_gone, a->call, &data, &bytes, &e);
    if (s == XD_OK)
        xd_ask_file(a, option, data, bytes);
    else
        xd_ask_refuse(a, s == XD_ENOMEM ? 503 : 400, option, "%s: %s", option, e.msg);
    free(data);
}

void xd_ask_data_url(xd_ask *a, const char *option, const char *url)
{
    const char *base = strncmp(url, "data:", 5) == 0 ? strstr(url, ";base64,") : NULL;
    size_t      bytes;
    if (a->failed)
        return;
    if (!base && (strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0)) {
        ask_url(a, option, url);
        return;
    }
    const char *text = base ? base + 8 : url;   /* A1111's clients send base64 alone            */
    char       *data = xd_base64_read(text, strlen(text), &bytes);
    if (!data)
        xd_ask_refuse(a, 400, option, "%s is neither base64 nor a data URL in base64", option);
    else
        xd_ask_file(a, option, data, bytes);
    free(data);
}

/* ---- the end --------------------------------------------------------------------------------- */

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

/* A number of the model's defaults, as xdit inspect says them; 0: there is none. */
static double default_of(const xd_json *uses, const char *name)
{
    double v = 0;
    return xd_json_number(xd_json_get(xd_json_get(uses, "defaults"), name), &v) ? v : 0;
}

/* Refuses what would take hours: sizes far beyond the model's own. */
static void check_size(xd_ask *a, const xd_request *r)
{
    xd_json *uses = xd_served_model_uses(a->model);
    double   own[2] = { default_of(uses, "width"), default_of(uses, "height") };
    double   frames = default_of(uses, "num_frames"), most = (double)server_of(a)->max_pixels;
    double   w = r->width ? (double)r->width : own[0], h = r->height ? (double)r->height : own[1];
    double   n = r->num_frames    ? r->num_frames
                 : r->seconds > 0 ? r->seconds * default_of(uses, "fps") : frames;
    xd_json_free(&uses);
    if (!(most > 0))
        most = fmax(LEAST_MOST, TIMES_OWN * own[0] * own[1]) * fmax(frames, 1);
    if ((own[0] > 0 || server_of(a)->max_pixels) && w * h * fmax(n, 1) > most)
        xd_ask_refuse(a, 400, "size", "%.0f x %.0f pixels%s are more than the %.0f that this "
                      "server generates with %s, whose own size is %.0f x %.0f (--max_pixels)", w,
                      h, n > 1 ? " of all frames" : "", most, a->model->name, own[0], own[1]);
}

/* The sentence of a command line is that of a request without its dashes. */
static void check_args(xd_ask *a)
{
    xd_task_flags f;
    xd_err       e = { 0 };
    if (a->failed)
        return;
    if (xd_task_flags_read(&f, a->task->nargs, a->task->args, &e) != XD_OK) {
        char        param[64], told[sizeof e.msg];
        const char *text = strncmp(e.msg, "--", 2) == 0 ? e.msg + 2 : e.msg;
        text = xd_answer_text(server_of(a), text, told, sizeof told);
        snprintf(param, sizeof param, "%.*s", (int)strcspn(text, " "), text);
        xd_ask_refuse(a, 400, strncmp(e.msg, "--", 2) == 0 ? param : NULL, "%s", text);
    } else if ((int64_t)f.prompts.n * f.request.num_images_per_prompt > MOST_IMAGES) {
        xd_ask_refuse(a, 400, "n", "a request asks for at most %d images", MOST_IMAGES);
    } else {
        check_size(a, &f.request);
    }
    xd_task_flags_free(&f);
}

static void remove_files(const xd_ask *a)
{
    char path[4096];
    for (int i = 0; a->task && i < a->files; i++) {
        snprintf(path, sizeof path, "%s/%s.in%d", server_of(a)->dir, a->task->id, i);
        unlink(path);
    }
}

xd_task *xd_ask_submit(xd_ask *a)
{
    char      path[4096];
    xd_err    e = { 0 };
    xd_task   *task = a->task;
    xd_server *s = server_of(a);
    xd_ask_defaults(a);
    xd_ask_seed(a);
    if (!a->failed && !task->prompt)
        xd_ask_refuse(a, 400, "prompt", "prompt is missing: say what to generate");
    if (!a->failed) {
        task->model = a->model->name;
        snprintf(path, sizeof path, "%s/%s.%s", s->dir, task->id, a->extension);
        add_arg(a, "model", a->model->path);
        add_arg(a, "output", path);
    }
    check_args(a);
    if (!a->failed && xd_tasks_add(s->tasks, task, &e) != XD_OK) {
        xd_ask_refuse(a, e.code == XD_ECANCELLED ? 503 : 429, NULL, "%s",
                      xd_answer_text(s, e.msg, path, sizeof path));
        snprintf(path, sizeof path, "%.0f", xd_tasks_seconds_full(s->tasks));
        xd_reply_header(a->call, "Retry-After", path);
    }
    if (!a->failed)
        return task;
    remove_files(a);
    xd_task_free(task);
    a->task = NULL;
    return NULL;
}
