/* server.c - the program xdit-server, which xdit serve starts: it serves HTTP, and runs a worker
 * that generates images */
#include "serve/server.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/word_list.h"
#include "serve/comfy.h"
#include "serve/folder.h"
#include "serve/serve_flags.h"
#include "xdit/tools.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, START_S = 60 };
/* When the server exits, cancelled tasks have CANCEL_S seconds to end. SILENT_S is the maximum of
 * xd_server.silent_s, in seconds. */
enum { CANCEL_S = 40, SILENT_S = 10 };

const xd_route xd_server_routes[] = {
    { "POST", "/v1/images/generations", xd_api_images_generate, 0 },
    { "POST", "/v1/images/edits", xd_api_images_edit, 0 },
    { "GET", "/v1/images/*/content", xd_api_jobs_content, 1 },
    { "POST", "/v1/videos", xd_api_videos_create, 0 },
    { "POST", "/v1/videos/sync", xd_api_videos_sync, 0 },
    { "GET", "/v1/videos", xd_api_videos_list, 0 },
    { "GET", "/v1/videos/*/content", xd_api_videos_content, 0 },
    { "GET", "/v1/videos/*", xd_api_videos_get, 0 },
    { "DELETE", "/v1/videos/*", xd_api_videos_delete, 0 },
    { "POST", "/v1/videos/*/cancel", xd_api_videos_cancel, 0 },
    { "POST", "/v1/videos/*/remix", xd_api_videos_remix, 0 },
    { "GET", "/v1/jobs", xd_api_jobs_list, 0 },
    { "GET", "/v1/jobs/*/content", xd_api_jobs_content, 1 },
    { "GET", "/v1/jobs/*", xd_api_jobs_get, 0 },
    { "DELETE", "/v1/jobs/*", xd_api_jobs_delete, 0 },
    { "POST", "/v1/jobs/*/cancel", xd_api_jobs_cancel, 0 },
    { "POST", "/generate", xd_api_generate, 0 },
    { "GET", "/v1/models", xd_api_models, 0 },
    { "GET", "/v1/models/*", xd_api_model, 0 },
    { "POST", "/sdapi/v1/txt2img", xd_api_webui_text, 0 },
    { "POST", "/sdapi/v1/img2img", xd_api_webui_image, 0 },
    { "GET", "/sdapi/v1/progress", xd_api_webui_progress, 0 },
    { "POST", "/sdapi/v1/interrupt", xd_api_webui_interrupt, 0 },
    { "GET", "/sdapi/v1/options", xd_api_webui_options, 0 },
    { "POST", "/sdapi/v1/options", xd_api_webui_set_options, 0 },
    { "GET", "/sdapi/v1/sd-models", xd_api_webui_models, 0 },
    { "GET", "/sdapi/v1/samplers", xd_api_webui_samplers, 0 },
    { "GET", "/sdapi/v1/schedulers", xd_api_webui_schedulers, 0 },
    { "GET", "/sdapi/v1/loras", xd_api_webui_loras, 0 },
    { "GET", "/sdapi/v1/upscalers", xd_api_webui_none, 0 },
    { "GET", "/sdapi/v1/latent-upscale-modes", xd_api_webui_none, 0 },
    { "GET", "/sdapi/v1/sd-vae", xd_api_webui_none, 0 },
    { "GET", "/sdapi/v1/sd-modules", xd_api_webui_none, 0 },
    { "GET", "/sdapi/v1/hypernetworks", xd_api_webui_none, 0 },
    { "GET", "/sdapi/v1/face-restorers", xd_api_webui_none, 0 },
    { "GET", "/sdapi/v1/realesrgan-models", xd_api_webui_none, 0 },
    { "GET", "/sdapi/v1/prompt-styles", xd_api_webui_none, 0 },
    { "GET", "/sdapi/v1/embeddings", xd_api_webui_embeddings, 0 },
    { "GET", "/sdapi/v1/scripts", xd_api_webui_scripts, 0 },
    { "POST", "/sdapi/v1/refresh-checkpoints", xd_api_webui_refresh, 0 },
    { "POST", "/sdapi/v1/refresh-loras", xd_api_webui_refresh, 0 },
    { "POST", "/sdapi/v1/skip", xd_api_webui_interrupt, 0 },
    { "GET", "/", xd_api_page, 1 },
    { "GET", "/page/*", xd_api_page, 1 },
    { "GET", "/openapi.json", xd_api_openapi, 1 },
    { "GET", "/sdcpp/v1/capabilities", xd_api_sdcpp_capabilities, 0 },
    { "POST", "/sdcpp/v1/img_gen", xd_api_sdcpp_image, 0 },
    { "POST", "/sdcpp/v1/vid_gen", xd_api_sdcpp_video, 0 },
    { "GET", "/sdcpp/v1/jobs/*", xd_api_sdcpp_job, 0 },
    { "POST", "/sdcpp/v1/jobs/*/cancel", xd_api_sdcpp_cancel, 0 },
    { "GET", "/health", xd_api_health, 1 },
    { "GET", "/liveness", xd_api_liveness, 1 },
    { "GET", "/metrics", xd_api_metrics, 0 },
    { .method = NULL },
};

/* ---- models ---------------------------------------------------------------------------------- */

/* Sets the name of a model: the name on the command line, or "org/name", or the last component of
 * the directory's path. */
static void name_model(xd_served_model *m, const xd_serve_model *given)
{
    const char *path = given->path, *name = given->name ? given->name : path;
    size_t      n = strlen(name), from = 0;
    while (n > 1 && name[n - 1] == '/')
        n--;
    for (size_t i = 0; i < n && !given->name && xd_file_is_dir(path); i++)
        from = name[i] == '/' ? i + 1 : from;
    m->path = path;
    m->defaults = given->defaults;
    snprintf(m->name, sizeof m->name, "%.*s", (int)(n - from < 120 ? n - from : 120), name + from);
}

static void add_line(void *cookie, const char *line)
{
    xd_buf_add(cookie, "%s\n", line);
}

/* Appends the value of an option as JSON: a number, true or false, or a text. */
static void add_value(xd_text_buf *b, const char *name, const char *value)
{
    int              n, i = 0;
    const xd_option *o = xd_defaults_rows(&n);
    while (i < n - 1 && strcmp(o[i].name, name) != 0)
        i++;
    if (o[i].kind == XD_OPT_FLAG)
        xd_buf_add(b, xd_list_has("1 true yes on", value) ? "true" : "false");
    else if (o[i].kind == XD_OPT_INT || o[i].kind == XD_OPT_INT64)
        xd_buf_add(b, "%lld", strtoll(value, NULL, 10));
    else if (o[i].kind == XD_OPT_SEED)
        xd_buf_add(b, "%s%llu", *value == '-' ? "-" : "",
                   strtoull(value + (*value == '-'), NULL, 10));
    else if (o[i].kind == XD_OPT_REAL)
        xd_buf_add(b, "%.10g", strtod(value, NULL));
    else
        xd_buf_json_string(b, value);
}

/* Returns nonzero if the list has no later entry for the option with this name; the last entry for
 * an option is the valid one. */
static int is_last(const xd_defaults *d, int at, const char *name)
{
    char other[64];
    for (int i = at + 1; i < d->n; i++)
        if (strcmp(xd_default_name(d->v[i], other, sizeof other), name) == 0)
            return 0;
    return 1;
}

/* Appends the default values of a model's options as JSON; defaults on the server's command line
 * override the model's own defaults. */
static void add_defaults(xd_text_buf *b, const xd_json *own, const xd_defaults *d)
{
    char name[64];
    int  n = 0;
    xd_buf_add(b, ",\"defaults\":{");
    for (const xd_json *v = xd_json_first(own); v; v = xd_json_next(v)) {
        int over = 0;
        for (int i = 0; i < d->n; i++)
            over |=
                xd_option_overrides(xd_default_name(d->v[i], name, sizeof name), xd_json_key(v));
        if (over)
            continue;
        xd_buf_add(b, "%s\"%s\":", n++ ? "," : "", xd_json_key(v));
        xd_buf_json(b, v);
    }
    for (int i = 0; i < d->n; i++)
        if (is_last(d, i, xd_default_name(d->v[i], name, sizeof name))) {
            xd_buf_add(b, "%s\"%s\":", n++ ? "," : "", name);
            add_value(b, name, xd_default_value(d->v[i]));
        }
    xd_buf_add(b, "}");
}

static char *read_uses(const xd_text_buf *about, const xd_defaults *d)
{
    xd_json    *j = NULL;
    xd_text_buf b = { 0 };
    if (about->failed || !about->p ||
        xd_json_parse(&j, about->p, about->len, "the model", NULL) != XD_OK)
        return NULL;
    const xd_json *uses = xd_json_get(j, "uses");
    for (const xd_json *v = xd_json_first(uses); v; v = xd_json_next(v)) {
        if (strcmp(xd_json_key(v), "defaults") == 0)
            continue;
        xd_buf_add(&b, ",\"%s\":", xd_json_key(v));
        xd_buf_json(&b, v);
    }
    if (uses)
        add_defaults(&b, xd_json_get(uses, "defaults"), d);
    xd_json_free(&j);
    if (b.failed)
        xd_buf_free(&b);
    return b.p;
}

/* Inspects a model, so that a model that cannot be opened is refused before the server listens. */
static xd_status check_model(xd_served_model *m, const xd_open_flags *open, xd_err *e)
{
    xd_inspect_args a;
    xd_text_buf     about = { 0 };
    xd_inspect_args_init(&a);
    a.model = m->path;
    a.json = 1;
    a.line = add_line;
    a.cookie = &about;
    a.controlnets = open->controlnets.v;
    a.ncontrolnets = open->controlnets.n;
    a.redux = open->files[XD_OPEN_REDUX];
    xd_status s = xd_inspect(&a, e);
    m->uses = read_uses(&about, &m->defaults);
    xd_buf_free(&about);
    return s;
}

static xd_status name_models(xd_server *s, const xd_serve_flags *f, xd_err *e)
{
    xd_status st = XD_OK;
    s->models = calloc((size_t)f->nmodels, sizeof *s->models);
    if (!s->models)
        return xd_fail(e, XD_ENOMEM, "no memory for %d models", f->nmodels);
    for (; st == XD_OK && s->nmodels < f->nmodels; s->nmodels++) {
        xd_served_model *m = &s->models[s->nmodels];
        xd_serve_model   given = f->models[s->nmodels];
        if (s->nmodels == 0 && f->names.n) {
            given.name = f->names.v[0];
            m->aliases = f->names.v + 1;
            m->naliases = f->names.n - 1;
        }
        name_model(m, &given);
        for (int i = 0; i < s->nmodels; i++)
            if (strcmp(s->models[i].name, m->name) == 0)
                return xd_fail(e, XD_EINVAL,
                               "two models have the name %s: rename one with --model "
                               "NAME=DIR",
                               m->name);
        /* 1: the model's directory need not contain all weights, because options name weight
         * files */
        int parts = f->open.files[0] != NULL;
        st = check_model(m, &f->open, parts ? NULL : e);
        st = parts ? XD_OK : st;
    }
    return st;
}

/* ---- running --------------------------------------------------------------------------------- */

static volatile sig_atomic_t signals; /* number of termination signals so far */

/* Counts termination signals: after the first the server lets running tasks finish, after the
 * second it cancels running tasks, at the third it exits at once. */
static void on_signal(int sig)
{
    if (++signals == 2)
        alarm(CANCEL_S);
    if (signals > 2)
        _exit(128 + sig);
}

/* Exits at once, because the server did not stop in time; the cause may be a disk that does not
 * respond. */
static void on_timeout(int sig)
{
    static const char text[] = "xdit: error: the server did not stop in time: exiting at once\n";
    ssize_t           written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)sig, (void)written;
    _exit(EXIT_FAILED);
}

static xd_status read_tls(const xd_serve_flags *f, xd_http_args *a, xd_err *e)
{
    size_t    n;
    xd_status s = XD_OK;
    if (f->tls_cert)
        s = xd_file_read(f->tls_cert, 1 << 20, &a->tls_cert, &n, e);
    if (s == XD_OK && f->tls_key)
        s = xd_file_read(f->tls_key, 1 << 20, &a->tls_key, &n, e);
    return s;
}

/* Returns the list of the API keys of --api_key and XDIT_API_KEY, whose last entry is NULL; returns
 * NULL if there are no keys. */
static const char **list_keys(const xd_serve_flags *f)
{
    const char *own = getenv("XDIT_API_KEY"), **keys;
    int         n = 0;
    if (!f->keys.n && !(own && *own))
        return NULL;
    keys = calloc((size_t)f->keys.n + 2, sizeof *keys);
    for (int i = 0; keys && i < f->keys.n; i++)
        keys[n++] = f->keys.v[i];
    if (keys && own && *own)
        keys[n] = own;
    return keys;
}

static const char **list_origins(const xd_serve_flags *f)
{
    const char **v = calloc((size_t)f->origins.n + 1, sizeof *v);
    for (int i = 0; v && i < f->origins.n; i++)
        v[i] = f->origins.v[i];
    return v;
}

static xd_status start_http(xd_server *s, const xd_serve_flags *f, const char **keys,
                            const char **origins, xd_err *e)
{
    xd_http_args a = { .host = f->host,
                       .port = f->port,
                       .routes = xd_server_routes,
                       .api_routes = xd_comfy_routes,
                       .server = s,
                       .keys = keys,
                       .origins = origins,
                       .max_body = (size_t)f->max_body,
                       .max_bodies = (size_t)f->max_bodies,
                       .connections = f->connections,
                       .timeout_s = f->request_timeout };
    xd_status    st = read_tls(f, &a, e);
    if (st == XD_OK && f->access_log)
        st = xd_access_log_open(&s->log, f->access_log, strcmp(f->log_format, "json") == 0, e);
    a.log = s->log;
    s->tls = f->tls_cert != NULL;
    s->keep_s = f->keep_s;
    s->queue = f->queue;
    s->silent_s = f->worker_timeout < 2 * SILENT_S ? f->worker_timeout / 2 : SILENT_S;
    s->routes = xd_server_routes;
    s->fetch = (xd_fetch_rules){ f->urls.v, f->urls.n, (size_t)f->max_body, f->request_timeout };
    st = st == XD_OK ? xd_http_start(&s->http, &a, e) : st;
    free(a.tls_cert);
    free(a.tls_key);
    return st;
}

static void wait_for_end(xd_server *s)
{
    while (!signals) {
        xd_tasks_delete_expired(s->tasks);
        nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    }
}

static void catch_signals(void)
{
    struct sigaction act = { .sa_handler = on_signal };
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
    sigaction(SIGALRM, &(struct sigaction){ .sa_handler = on_timeout }, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static xd_status serve(xd_server *s, const xd_serve_flags *f, xd_err *e)
{
    const char  **keys = list_keys(f), **origins = list_origins(f);
    xd_predictor *predictor = NULL;
    xd_status     st = xd_tasks_open(&s->tasks, f->results ? s->dir : NULL, f->queue, f->keep_s,
                                     (int64_t)(f->keep_mb * 1e6), e);
    for (int i = 0; i < s->nmodels && st == XD_OK; i++)
        xd_tasks_add_model(s->tasks, s->models[i].name,
                           xd_served_makes(&s->models[i], "video") > 0);
    s->comfy = xd_comfy_open();
    if (st == XD_OK && !s->comfy)
        st = xd_fail(e, XD_ENOMEM, "no memory for a server");
    if (st == XD_OK)
        st = xd_predictor_open(&predictor, s->tasks, &f->open, e);
    if (st == XD_OK)
        st = start_http(s, f, keys, origins, e);
    if (st == XD_OK)
        st = xd_worker_start(&s->worker,
                             &(xd_worker_args){ .tasks = s->tasks,
                                                .predictor = predictor,
                                                .program = getenv("XDIT_PROGRAM"),
                                                .dir = s->own_dir,
                                                .nargs = f->worker.n,
                                                .args = f->worker.v,
                                                .timeout_s = f->worker_timeout,
                                                .start_s = f->open.start_timeout < 0 ? START_S
                                                           : f->open.start_timeout
                                                               ? f->open.start_timeout
                                                               : -1 },
                             e);
    if (st == XD_OK)
        st = xd_worker_await(s->worker, &signals, e);
    if (st == XD_OK && !signals) {
        char at[64];
        snprintf(at, sizeof at, strchr(f->host, ':') ? "[%s]" : "%s", f->host);
        printf("%s://%s:%d\n", s->tls ? "https" : "http", at, xd_http_port(s->http));
        fflush(stdout);
        wait_for_end(s);
    }
    if (signals && !f->quiet)
        fprintf(stderr, "xdit: the server is shutting down\n");
    alarm(signals > 1 ? CANCEL_S : (unsigned)s->drain_s + CANCEL_S);
    if (s->tasks)
        xd_tasks_shut_down(s->tasks);
    xd_worker_stop(&s->worker, st == XD_OK ? s->drain_s : 0, &signals);
    xd_predictor_close(&predictor);
    xd_http_stop(&s->http, 1);
    xd_access_log_close(&s->log);
    xd_comfy_close(&s->comfy);
    xd_tasks_close(&s->tasks);
    free(keys);
    free(origins);
    return st;
}

static int report(xd_status s, const xd_err *e)
{
    if (s == XD_OK)
        return EXIT_OK;
    fprintf(stderr, "xdit: %s\n", e->msg);
    return s == XD_EINVAL ? EXIT_USAGE : EXIT_FAILED;
}

/* Opens --results, and warns if other users can write there. */
static xd_status open_results(xd_folder *results, const char *path, xd_err *e)
{
    struct stat at;
    if (!path)
        return XD_OK;
    xd_status st = xd_folder_open(results, path, e);
    if (st == XD_OK && fstat(results->lock, &at) == 0 && (at.st_mode & (S_IWGRP | S_IWOTH)))
        fprintf(stderr, "xdit: warning: other users can write to --results %s\n", path);
    return st;
}

int main(int argc, char **argv)
{
    xd_serve_flags f;
    xd_server      s = { .started = (double)time(NULL) };
    xd_folder      own = { .lock = -1 }, results = { .lock = -1 };
    xd_err         e = { 0 };
    umask(S_IRWXG | S_IRWXO); /* files with prompts and results are readable for this user only */
    catch_signals();
    xd_status st = xd_serve_flags_read(&f, argc - 1, argv + 1, &e);
    if (st == XD_OK && !getenv("XDIT_PROGRAM"))
        st = xd_fail(&e, XD_EINVAL, "use xdit serve, which starts the server");
    if (st == XD_OK)
        st = name_models(&s, &f, &e);
    if (st == XD_OK && f.urls.n)
        st = xd_fetch_begin(&e);
    if (st == XD_OK)
        st = xd_folder_create(&own, &e);
    if (st == XD_OK)
        st = open_results(&results, f.results, &e);
    if (st == XD_OK) {
        s.dir = f.results ? results.path : own.path;
        s.own_dir = own.path;
        s.loras = f.loras;
        s.controls = f.open.controlnets.v;
        s.ncontrols = f.open.controlnets.n;
        s.max_pixels = f.max_pixels;
        s.drain_s = f.drain_s;
        s.ending = &signals;
        st = serve(&s, &f, &e);
    }
    xd_folder_remove(&own);
    xd_folder_unlock(&results);
    for (int i = 0; i < s.nmodels; i++)
        free(s.models[i].uses);
    free(s.models);
    xd_fetch_end();
    xd_serve_flags_free(&f);
    return report(st, &e);
}
