/* worker.c - xdit worker: the ranks behind a server. They open models, keep them, and run the tasks
 * that the server sends to rank 0, one after the other.
 *
 * Rank 0 gives every frame to the other ranks as it came, so that all of them do the same: open,
 * generate, close the model that was used longest ago. A thread of rank 0 reads the socket and
 * cancels. When the server goes, the worker ends. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/open_flags.h"
#include "cli/roll.h"
#include "cli/stop.h"
#include "serve/frame.h"
#include "serve/task.h"
#include "serve/task_flags.h"

typedef struct opened {         /* a model that is kept                                        */
    xd_engine     *engine;
    char          *key;         /* its directory and LoRA files                                */
    struct opened *next;        /* used before this one                                        */
} opened;

typedef struct worker {
    const char   *connect;
    int           verbose;
    xd_open_flags open;
    xd_rank_group     *group;
    int           rank, fd;     /* fd: rank 0's, else -1                                       */
    opened       *models;       /* the one that was used last first                            */
    /* Between the thread that reads and the one that runs, under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t  came;
    xd_frame        next;       /* kind 0: none                                                */
    int             ended;      /* the server has gone, or has said so                         */
    xd_engine      *running;    /* whom to cancel                                              */
    char            id[64];     /* of the task that runs                                        */
    atomic_int      cancelled;
    pthread_mutex_t sending;
    const xd_task_flags *task;
    int             images, previews;   /* of the task; previews: written so far               */
    xd_err          err;
} worker;

/* ---- rank 0 speaks --------------------------------------------------------------------------- */

enum { NUMBER = 40, TOKENS = 3 };

static const char *number_text(char text[NUMBER], double v)
{
    snprintf(text, NUMBER, "%.17g", v);
    return text;
}

/* What cannot be sent is noticed by the thread that reads. */
static void tell_server(worker *w, xd_frame_kind kind, const char *const *v, int n)
{
    if (w->fd < 0)
        return;
    pthread_mutex_lock(&w->sending);
    xd_frame_send(w->fd, kind, v, n, NULL);
    pthread_mutex_unlock(&w->sending);
}

static void on_log(void *cookie, int level, const char *line)
{
    static const char *const mark[] = { "error: ", "warning: ", "", "" };
    const worker *w = cookie;
    if (w->rank > 0 && level > XD_LOG_ERROR)
        return;
    fprintf(stderr, "xdit: %s%s\n", level >= 0 && level < 4 ? mark[level] : "", line);
    if (level <= XD_LOG_ERROR)
        xd_roll_say(XD_ROLL_SAID);
}

/* A request to cancel that came before the library began with the task is forgotten by it. */
static void cancel_again(worker *w)
{
    pthread_mutex_lock(&w->lock);
    if (atomic_load(&w->cancelled) && w->running)
        xd_cancel(w->running);
    pthread_mutex_unlock(&w->lock);
}

static void on_stage(void *cookie, const char *stage)
{
    worker *w = cookie;
    tell_server(w, XD_FRAME_STAGE, (const char *[]){ w->id, stage }, 2);
    cancel_again(w);
}

static void on_step(void *cookie, const xd_progress *p)
{
    worker *w = cookie;
    char    a[NUMBER], b[NUMBER], c[NUMBER], d[NUMBER];
    tell_server(w, XD_FRAME_STEP,
                (const char *[]){ w->id, number_text(a, p->step), number_text(b, p->steps),
                                  number_text(c, p->image), number_text(d, p->images) }, 5);
    cancel_again(w);
}

/* What the image is going to be, in a file of its own. */
static void on_preview(void *cookie, const xd_image *image, const xd_progress *p)
{
    worker *w = cookie;
    char    path[4200], step[NUMBER];
    xd_task_preview_name(w->task->output, w->task->video, w->previews, path, sizeof path);
    if (xd_image_file_save(image, path, NULL) != XD_OK)
        return;
    w->previews++;
    tell_server(w, XD_FRAME_PREVIEW, (const char *[]){ w->id, number_text(step, p->step), path },
                3);
}

/* The first frame, and at most 16 of all, beside the video. */
static xd_status save_thumbnail(const xd_image *im, const char *name, xd_err *e)
{
    char     path[4200];
    xd_image first = *im;
    first.size = sizeof first;
    first.frames = 1;
    snprintf(path, sizeof path, "%s" XD_TASK_THUMBNAIL, name);
    xd_status s = xd_image_file_save(&first, path, e);
    snprintf(path, sizeof path, "%s" XD_TASK_SHEET, name);
    return s == XD_OK ? xd_image_file_sheet(im, 4, 16, 256, path, e) : s;
}

static xd_status on_image(void *cookie, const xd_result *partial, int i, xd_err *e)
{
    worker         *w = cookie;
    char            name[4096], seed[NUMBER], a[NUMBER], b[NUMBER], c[NUMBER], d[NUMBER];
    const xd_image *im = xd_result_image(partial, i);
    xd_status       s = xd_output_video_name(w->task->output, i, w->images, im->frames, name,
                                             sizeof name, e);
    if (s == XD_OK)
        s = xd_result_save(partial, i, name, e);
    if (s == XD_OK && im->fps > 0)
        s = save_thumbnail(im, name, e);
    if (s != XD_OK)
        return s;
    const char *json = xd_result_json(partial, i), *text = xd_result_parameters(partial, i);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)xd_result_seed(partial, i));
    static const char *const counted[TOKENS] = { "text", "reference", "image" };
    char                     tokens[TOKENS][NUMBER];
    for (int k = 0; k < TOKENS; k++)
        number_text(tokens[k], (double)xd_result_tokens(partial, i, counted[k]));
    tell_server(w, XD_FRAME_IMAGE,
        (const char *[]){ w->id, name, seed, json ? json : "{}", text ? text : "",
                          number_text(a, (double)im->width), number_text(b, (double)im->height),
                          number_text(c, (double)im->frames), number_text(d, im->fps), tokens[0],
                          tokens[1], tokens[2] }, 9 + TOKENS);
    return XD_OK;
}

static void say_done(worker *w, const xd_result *res)
{
    static const char *const parts[] = { "text", "load", "denoise", "decode", "total",
                                         "first_step" };
    enum { PARTS = sizeof parts / sizeof *parts };
    const char *v[1 + 2 * PARTS] = { w->id };
    char        text[PARTS][NUMBER];
    int         n = 1;
    for (int i = 0; i < PARTS; i++) {
        double s = xd_result_seconds(res, parts[i]);
        if (s < 0)
            continue;
        v[n++] = parts[i];
        v[n++] = number_text(text[i], s);
    }
    tell_server(w, XD_FRAME_DONE, v, n);
}

static double resident_bytes(void)
{
    long  pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void say_memory(worker *w)
{
    char bytes[NUMBER], models[NUMBER];
    int  n = 0;
    for (const opened *o = w->models; o; o = o->next)
        n++;
    tell_server(w, XD_FRAME_MEMORY, (const char *[]){ number_text(bytes, resident_bytes()),
                                              number_text(models, n) }, 2);
}

/* ---- models ---------------------------------------------------------------------------------- */

static void close_model(opened **at)
{
    opened *o = *at;
    *at = o->next;
    xd_close(&o->engine);
    free(o->key);
    free(o);
}

/* Closes the model that was used longest ago, but the first one of the list: 0, there is none. */
static int close_oldest(worker *w)
{
    opened **at = &w->models;
    if (!*at || !(*at)->next)
        return 0;
    while ((*at)->next)
        at = &(*at)->next;
    close_model(at);
    return 1;
}

static char *key_of(const xd_task_flags *f)
{
    char  *key = NULL;
    size_t len;
    FILE  *out = open_memstream(&key, &len);
    if (!out)
        return NULL;
    fprintf(out, "%s", f->model);
    for (int i = 0; i < f->lora.n; i++)
        fprintf(out, "\n%s:%.17g", f->lora.v[i].path, f->lora.v[i].scale);
    fclose(out);
    return key;
}

/* LoRA files of the command line come first. */
static xd_status open_engine(worker *w, const xd_task_flags *f, xd_engine **g, xd_err *e)
{
    xd_open_args a = xd_open_flags_args(&w->open, f->model);
    int          n = a.nloras + f->lora.n;
    xd_lora     *loras = calloc((size_t)n + 1, sizeof *loras);
    if (!loras)
        return xd_fail(e, XD_ENOMEM, "no memory for %d LoRA files", n);
    if (a.nloras)
        memcpy(loras, a.loras, (size_t)a.nloras * sizeof *loras);
    if (f->lora.n)
        memcpy(loras + a.nloras, f->lora.v, (size_t)f->lora.n * sizeof *loras);
    a.loras = loras;
    a.nloras = n;
    a.keep = 1;
    a.plan_for = &f->request;
    a.log = on_log;
    a.cookie = w;
    a.log_level = w->verbose ? XD_LOG_DEBUG : XD_LOG_WARN;
    xd_status s = xd_open(g, &a, e);
    free(loras);
    return s;
}

/* The model of a task, at the head of the list. Others make way where memory asks for it. */
static xd_status take_model(worker *w, const xd_task_flags *f, xd_err *e)
{
    char    *key = key_of(f);
    opened **at = &w->models, *o;
    while (key && *at && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    o = key && *at ? *at : NULL;
    if (o) {
        free(key);
        *at = o->next;
        o->next = w->models;
        w->models = o;
        return XD_OK;
    }
    o = key ? calloc(1, sizeof *o) : NULL;
    if (!o) {
        free(key);
        return xd_fail(e, XD_ENOMEM, "no memory for another model");
    }
    *o = (opened){ .key = key, .next = w->models };
    w->models = o;
    tell_server(w, XD_FRAME_STAGE, (const char *[]){ w->id, "open" }, 2);
    xd_status s = open_engine(w, f, &o->engine, e);
    while (s == XD_ENOMEM && close_oldest(w)) {
        *e = (xd_err){ .rank = -1 };
        s = open_engine(w, f, &o->engine, e);
    }
    if (s != XD_OK && s != XD_ECOMM)
        close_model(&w->models);
    return s;
}

/* ---- a task ---------------------------------------------------------------------------------- */

static void set_running(worker *w, xd_engine *g)
{
    pthread_mutex_lock(&w->lock);
    w->running = g;
    pthread_mutex_unlock(&w->lock);
    xd_stop_watch(g);
}

static xd_status generate(worker *w, xd_task_flags *f, xd_result **res, xd_err *e)
{
    xd_request *r = &f->request;
    r->on_stage = on_stage;
    r->on_step = on_step;
    r->on_image = on_image;
    r->on_preview = w->fd < 0 ? NULL : on_preview;
    r->cookie = w;
    w->task = f;
    w->previews = 0;
    w->images = r->nprompts * r->num_images_per_prompt;
    set_running(w, w->models->engine);
    xd_status s = xd_generate(w->models->engine, r, res, e);
    while (s == XD_ENOMEM && close_oldest(w)) {
        *e = (xd_err){ .rank = -1 };
        s = xd_generate(w->models->engine, r, res, e);
    }
    set_running(w, NULL);
    return s;
}

static xd_status check_kind(const worker *w, const xd_task_flags *f, xd_err *e)
{
    int video = xd_makes_videos(w->models->engine);
    if (video == f->video)
        return XD_OK;
    return xd_fail(e, XD_EINVAL, video ? "this model generates videos: ask at /v1/videos"
                                       : "this model generates images: ask at "
                                         "/v1/images/generations");
}

/* Runs the task of a frame, on all ranks. XD_ECOMM: the ranks are out of step, else a failure has
 * been told to the server. */
static xd_status run_task(worker *w, const xd_frame *frame)
{
    xd_task_flags f;
    xd_result   *res = NULL;
    xd_err       e = { .rank = -1 };
    char         code[NUMBER];
    xd_status    s = xd_task_flags_read(&f, frame->n, frame->v, &e);
    if (s == XD_OK)
        s = xd_task_flags_load(&f, &e);
    if (s == XD_OK)
        s = take_model(w, &f, &e);
    if (s == XD_OK)
        s = check_kind(w, &f, &e);
    if (s == XD_OK)
        s = generate(w, &f, &res, &e);
    if (s == XD_OK)
        say_done(w, res);
    else
        tell_server(w, XD_FRAME_FAILED, (const char *[]){ w->id, number_text(code, s), e.msg }, 3);
    xd_result_free(&res);
    xd_task_flags_free(&f);
    if (s == XD_ECOMM)
        w->err = e;
    else
        say_memory(w);
    return s == XD_ECOMM ? s : XD_OK;
}

/* ---- rank 0 listens -------------------------------------------------------------------------- */

static void take_cancel(worker *w, const xd_frame *f)
{
    if (!f->n || strcmp(f->v[0], w->id) != 0)
        return;
    atomic_store(&w->cancelled, 1);
    if (w->running)
        xd_cancel(w->running);
}

/* Tasks come one at a time: the server waits for the end of one. */
static void *listen_to_server(void *arg)
{
    worker *w = arg;
    int     ended = 0;
    while (!ended) {
        xd_frame  f;
        xd_status s = xd_frame_receive(w->fd, &f, NULL);
        pthread_mutex_lock(&w->lock);
        if (s != XD_OK || f.kind == XD_FRAME_QUIT) {
            ended = w->ended = 1;
            if (s != XD_OK && w->running)
                xd_cancel(w->running);
        } else if (f.kind == XD_FRAME_CANCEL) {
            take_cancel(w, &f);
        } else if (f.kind == XD_FRAME_RUN && !w->next.kind) {
            w->next = f;
            f = (xd_frame){ 0 };
        }
        pthread_cond_signal(&w->came);
        pthread_mutex_unlock(&w->lock);
        xd_frame_free(&f);
    }
    return NULL;
}

static xd_status connect_server(worker *w, xd_err *e)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    if (strlen(w->connect) >= sizeof at.sun_path)
        return xd_fail(e, XD_EINVAL, "--connect %s is longer than the name of a socket",
                       w->connect);
    strcpy(at.sun_path, w->connect);
    w->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (w->fd < 0 || connect(w->fd, (struct sockaddr *)&at, sizeof at) != 0)
        return xd_fail(e, XD_EIO, "cannot reach the server at %s: xdit serve starts workers by "
                       "itself", w->connect);
    return XD_OK;
}

/* The id of a task, which stands in its first argument. */
static void note_id(worker *w, const xd_frame *f)
{
    const char *eq = f->n ? strchr(f->v[0], '=') : NULL;
    snprintf(w->id, sizeof w->id, "%s", eq ? eq + 1 : "");
    atomic_store(&w->cancelled, 0);
}

/* Rank 0 waits for the next frame; the end is a frame without texts. */
static void wait_for_frame(worker *w, xd_frame *f)
{
    pthread_mutex_lock(&w->lock);
    while (!w->next.kind && !w->ended)
        pthread_cond_wait(&w->came, &w->lock);
    *f = w->next;
    w->next = (xd_frame){ 0 };
    note_id(w, f);
    pthread_mutex_unlock(&w->lock);
}

static xd_status serve_tasks(worker *w)
{
    for (;;) {
        xd_frame f = { 0 };
        if (w->rank == 0)
            wait_for_frame(w, &f);
        void     *data = f.data;
        size_t    bytes = f.n ? f.bytes : 0;
        xd_status s = xd_rank_group_share(w->group, &data, &bytes, &w->err);
        if (s == XD_OK && w->rank > 0)
            s = xd_frame_split(&f, data, bytes, &w->err);
        int n = f.n;
        if (s == XD_OK && n)
            s = run_task(w, &f);
        xd_frame_free(&f);
        if (s != XD_OK || !n)
            return s;
    }
}

static xd_status run_worker(worker *w)
{
    pthread_t thread;
    char      ranks[NUMBER];
    xd_status s = xd_rank_group_open(&w->group, &w->err);
    if (s != XD_OK)
        return s;
    w->rank = xd_rank_group_rank(w->group);
    if (w->rank == 0)
        s = connect_server(w, &w->err);
    if (s == XD_OK && w->rank == 0) {
        if (pthread_create(&thread, NULL, listen_to_server, w) != 0)
            return xd_fail(&w->err, XD_ENOMEM, "cannot start a thread");
        pthread_detach(thread);
        number_text(ranks, xd_rank_group_size(w->group));
        tell_server(w, XD_FRAME_READY, (const char *[]){ ranks, xd_version() }, 2);
    }
    if (s == XD_OK)
        s = serve_tasks(w);
    while (s != XD_ECOMM && w->models)
        close_model(&w->models);
    if (s != XD_ECOMM)
        xd_rank_group_close(&w->group);
    return s;
}

/* ---- the command ----------------------------------------------------------------------------- */

static const xd_option rows[] = {
    { "connect", XD_OPT_TEXT, offsetof(worker, connect), 0, 0, NULL, "SOCKET",
      "of the server that sends tasks" },
    { "verbose", XD_OPT_FLAG, offsetof(worker, verbose), 0, 0, NULL, NULL,
      "log more of what is done" },
};

typedef struct worker_line { xd_opt_table tables[3]; xd_opt_spec spec; } worker_line;

static void worker_init(worker *w, worker_line *l)
{
    int              nopen, nplan;
    const xd_option *open = xd_open_flags_rows(&nopen), *plan = xd_parallel_options(&nplan);
    *w = (worker){ .fd = -1, .err = { .rank = -1 }, .lock = PTHREAD_MUTEX_INITIALIZER,
                   .came = PTHREAD_COND_INITIALIZER, .sending = PTHREAD_MUTEX_INITIALIZER };
    xd_open_flags_init(&w->open);
    l->tables[0] = (xd_opt_table){ rows, sizeof rows / sizeof *rows, w };
    l->tables[1] = (xd_opt_table){ open, nopen, &w->open };
    l->tables[2] = (xd_opt_table){ plan, nplan, &w->open.parallel };
    l->spec = (xd_opt_spec){ .tables = l->tables, .ntables = 3 };
}

static int run_command(int argc, char **argv)
{
    worker      w;
    worker_line l;
    int         code = XD_EXIT_OK, ranks = 1;
    worker_init(&w, &l);
    xd_status s = xd_opt_parse(&l.spec, argc, argv, NULL, &w.err);
    if (xd_launched(&w.rank))
        xd_stop_arm_rank(), xd_launch_await(w.open.start_timeout, w.rank);
    else
        xd_stop_arm();
    signal(SIGPIPE, SIG_IGN);
    if (s == XD_OK && !w.connect)
        s = xd_fail(&w.err, XD_EINVAL, "--connect is missing: xdit serve starts workers by itself");
    if (s == XD_OK)
        s = xd_open_flags_read(&w.open, &w.err);
    if (s == XD_OK)
        s = xd_launch_ranks(&w.open.parallel, w.open.nproc, &ranks, &w.err);
    if (s == XD_OK && ranks > 1)
        s = xd_launch_run(&(xd_launch){ ranks, argc, argv, "worker", w.open.start_timeout }, &code,
                          &w.err);
    else if (s == XD_OK)
        s = run_worker(&w);
    xd_open_flags_free(&w.open);
    return xd_launch_end(s, &w.err, w.rank, code);
}

static void print_help(FILE *f)
{
    static const xd_opt_group groups[] = { { "Options", NULL } };
    worker                    w;
    worker_line               l;
    worker_init(&w, &l);
    fputs("Usage: xdit worker --connect SOCKET [options]\n\n"
          "The ranks behind a server: xdit serve starts them. Options are those of\n"
          "xdit generate that say how a model is opened.\n", f);
    xd_opt_help(f, &l.spec, groups, 1);
}

const xd_command xd_cmd_worker = {
    .name = "worker",
    .summary = "the ranks behind a server (started by serve)",
    .run = run_command,
    .help = print_help,
};
