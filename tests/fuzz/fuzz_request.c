/* fuzz_request.c - any body as a request of each interface of the server, up to its reply.
 *
 * The first byte chooses the interface; of the second one the lowest bits say whether the body is
 * JSON or parts of multipart/form-data, and how the task ends. The rest is the body. What lies
 * below is made up here: libmicrohttpd, the worker, and waiting for a task, which runs it. Besides
 * not crashing: what reaches the worker is what it can read, with paths inside the folder of the
 * server; replies are JSON or events, a refusal has a sentence, and no file is left. */
#define _XOPEN_SOURCE 700       /* mkdtemp */
#include <dirent.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <microhttpd.h>

#include "fuzz.h"
#include "serve/server.h"
#include "serve/task_flags.h"

typedef struct input {
    const uint8_t *at;
    size_t         left;
} input;

static char        folder[64], query[256], file_type[64];
static const char *content_type;
static int         outcome, folders;
static xd_server   server;

static volatile sig_atomic_t ending; /* xd_server.ending: no signal has come */

static int take_byte(input *in)
{
    return in->left ? in->left--, *in->at++ : 0;
}

/* A copy with a NUL behind it. */
static char *take_bytes(input *in, size_t n, size_t *have)
{
    n = n < in->left ? n : in->left;
    char *text = calloc(1, n + 1);
    MUST(text);
    if (n)
        memcpy(text, in->at, n);
    in->at += n;
    in->left -= n;
    if (have)
        *have = n;
    return text;
}

/* ---- in place of libmicrohttpd --------------------------------------------------------------- */

struct MHD_Response {
    char                         *data;
    size_t                        bytes;
    MHD_ContentReaderCallback     read;
    MHD_ContentReaderFreeCallback free;
    void                         *cookie;
};

static struct MHD_Response *new_response(const void *data, size_t bytes)
{
    struct MHD_Response *r = calloc(1, sizeof *r);
    MUST(r);
    r->data = calloc(1, bytes + 1);
    MUST(r->data);
    if (bytes)
        memcpy(r->data, data, bytes);
    r->bytes = bytes;
    return r;
}

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *buffer,
                                                     enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *r = new_response(buffer, size);
    if (mode == MHD_RESPMEM_MUST_FREE)
        free(buffer);
    return r;
}

struct MHD_Response *MHD_create_response_from_fd_at_offset64(uint64_t size, int fd, uint64_t at)
{
    (void)size, (void)at;
    close(fd);
    return new_response("", 0);
}

struct MHD_Response *MHD_create_response_from_callback(uint64_t size, size_t block,
                                                       MHD_ContentReaderCallback read, void *cookie,
                                                       MHD_ContentReaderFreeCallback done)
{
    struct MHD_Response *r = new_response("", 0);
    (void)size, (void)block;
    r->read = read;
    r->cookie = cookie;
    r->free = done;
    return r;
}

void MHD_destroy_response(struct MHD_Response *r)
{
    if (r->free)
        r->free(r->cookie);
    free(r->data);
    free(r);
}

enum MHD_Result MHD_add_response_header(struct MHD_Response *r, const char *name, const char *value)
{
    MUST(r && !strpbrk(value, "\r\n"));
    if (strcmp(name, "Content-Type") == 0)
        snprintf(file_type, sizeof file_type, "%s", value);
    return MHD_YES;
}

const char *MHD_lookup_connection_value(struct MHD_Connection *c, enum MHD_ValueKind kind,
                                        const char *name)
{
    (void)c;
    if (kind == MHD_GET_ARGUMENT_KIND)
        return query[0] ? query : NULL;
    return strcmp(name, "Host") == 0           ? "127.0.0.1:8080"
           : strcmp(name, "Content-Type") == 0 ? content_type
                                               : NULL;
}

const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection      *c,
                                                        enum MHD_ConnectionInfoType type, ...)
{
    static union MHD_ConnectionInfo info = { .connect_fd = -1 }; /* poll passes it over */
    (void)c, (void)type;
    return &info;
}

/* ---- in place of other servers --------------------------------------------------------------- */

/* Some images come, others do not. */
xd_status xd_fetch_read(const xd_fetch_rules *f, const char *url, int (*is_gone)(void *cookie),
                        void *cookie, char **data, size_t *bytes, xd_err *e)
{
    static const char ppm[] = "P6\n1 1\n255\nabc";
    MUST(f->nhosts && strncmp(url, "http", 4) == 0 && !is_gone(cookie));
    *bytes = url[strlen(url) - 1] == 'g' ? sizeof ppm - 1 : 0;
    *data = *bytes ? strdup(ppm) : NULL;
    return *data ? XD_OK : xd_fail(e, XD_EINVAL, "there is nothing");
}

/* ---- in place of the worker ------------------------------------------------------------------ */

int xd_http_port(const xd_http *h)
{
    (void)h;
    return 8080;
}

int64_t xd_http_count(const xd_http *h, int digit)
{
    (void)h;
    return digit;
}

size_t xd_http_body_bytes(const xd_http *h)
{
    (void)h;
    return 0;
}

void xd_worker_get_state(xd_worker_process *w, xd_worker_state *state)
{
    (void)w;
    *state = (xd_worker_state){ .ready = 1, .ranks = 1 };
}

/* Nothing of a client leads out of the folder. */
static void check_path(const xd_task *task, const char *path)
{
    size_t n = strlen(folder);
    MUST(strncmp(path, folder, n) == 0 && path[n] == '/' && !strchr(path + n + 1, '/'));
    MUST(strncmp(path + n + 1, task->id, strlen(task->id)) == 0);
}

static void finish_images(xd_task *task, const xd_task_flags *f)
{
    char path[4096];
    for (int i = 0; i < (outcome & 1) + 1; i++) {
        snprintf(path, sizeof path, "%s/%s_%d.png", folder, task->id, i);
        FILE *out = fopen(path, "wb");
        MUST(out && fputs("pixels", out) >= 0 && fclose(out) == 0);
        xd_task_image_done(server.tasks, task,
                           &(xd_task_image){ .file = path,
                                             .seed = "7",
                                             .json = "{}",
                                             .parameters = "Steps: 1",
                                             .width = f->request.width,
                                             .height = 8,
                                             .frames = 1 });
    }
    xd_task_done(server.tasks, task, "{}");
}

static void run_task(xd_task *task)
{
    xd_task_flags f;
    xd_err        e = { 0 };
    MUST(xd_task_flags_read(&f, task->nargs, task->args, &e) == XD_OK);
    MUST(strcmp(f.id, task->id) == 0 && f.video == task->video && task->prompt);
    MUST(strcmp(f.model, "models/first") == 0 || strcmp(f.model, "org/second") == 0);
    check_path(task, f.output);
    for (int i = 0; i < f.images.n; i++)
        check_path(task, f.images.v[i]);
    if (f.mask_image)
        check_path(task, f.mask_image);
    if (f.last_image)
        check_path(task, f.last_image);
    for (int i = 0; i < f.control_images.n; i++)
        check_path(task, f.control_images.v[i]);
    if (f.control_video)
        check_path(task, f.control_video);
    MUST(!f.loras.n); /* this server has no folder of them */
    xd_task_stage(server.tasks, task, "denoise");
    xd_task_step(server.tasks, task, 1, 2, 1, 1);
    if (outcome < 2)
        finish_images(task, &f);
    else
        xd_task_failed(server.tasks, task, outcome == 2 ? XD_ECANCELLED : XD_EDEVICE, "it \"broke");
    xd_task_flags_free(&f);
}

static double any_task(void *cookie, const xd_task *task)
{
    (void)cookie, (void)task;
    return 0;
}

static int run_next(void)
{
    xd_task *task = xd_tasks_start_best(server.tasks, any_task, NULL);
    if (!task)
        return 0;
    run_task(task);
    xd_task_release(server.tasks, task);
    return 1;
}

/* Of the linker: calls of xd_tasks_wait come here. */
unsigned __wrap_xd_tasks_wait(xd_tasks *j, const xd_task *task, unsigned since, double seconds);
unsigned __wrap_xd_tasks_wait(xd_tasks *j, const xd_task *task, unsigned since, double seconds)
{
    (void)seconds;
    run_next();
    xd_tasks_lock(j);
    MUST(xd_task_has_ended(task) || task->changes == since || task->changes);
    unsigned now = task->changes;
    xd_tasks_unlock(j);
    return now;
}

/* ---- a request ------------------------------------------------------------------------------- */

static void (*const handlers[])(xd_http_call *c) = {
    xd_api_images_generate,
    xd_api_images_edit,
    xd_api_videos_create,
    xd_api_videos_sync,
    xd_api_webui_text,
    xd_api_webui_image,
    xd_api_webui_set_options,
    xd_api_videos_list,
    xd_api_videos_get,
    xd_api_videos_delete,
    xd_api_videos_content,
    xd_api_jobs_content,
    xd_api_webui_progress,
    xd_api_health,
    xd_api_models,
    xd_api_model,
    xd_api_jobs_list,
    xd_api_jobs_get,
    xd_api_jobs_cancel,
    xd_api_jobs_delete,
};
enum { HANDLERS = sizeof handlers / sizeof *handlers, WITH_BODY = 7 };

static int is_utf8(const char *s)
{
    size_t n;
    while (*s && (n = xd_utf8_bytes(s)) > 0)
        s += n;
    return !*s;
}

/* A part: the lengths of its name, of its file's name and of its data (two bytes), then these. */
static int take_parts(xd_http_call *c, input *in)
{
    while (in->left && c->nparts < 64) {
        size_t name = (size_t)take_byte(in), file = (size_t)take_byte(in),
               bytes = (size_t)take_byte(in) << 8;
        bytes |= (size_t)take_byte(in);
        c->parts = realloc(c->parts, ((size_t)c->nparts + 1) * sizeof *c->parts);
        MUST(c->parts);
        xd_part *p = &c->parts[c->nparts++];
        *p = (xd_part){ .name = take_bytes(in, name, NULL) };
        p->file = file ? take_bytes(in, file, NULL) : NULL;
        p->data = take_bytes(in, bytes, &p->bytes);
        if (!is_utf8(p->name) || (!file && (!is_utf8(p->data) || strlen(p->data) != p->bytes)))
            return 0;
    }
    return 1;
}

/* As http_body.c does it. */
static int take_body(xd_http_call *c, input *in, int parts)
{
    if (parts)
        return take_parts(c, in);
    c->body = take_bytes(in, in->left, &c->bytes);
    return strncmp(c->body, "\xef\xbb\xbf", 3) != 0 && is_utf8(c->body) &&
           xd_json_parse(&c->json, c->body, c->bytes, "the body", NULL) == XD_OK;
}

static void check_json(const xd_http_call *c)
{
    xd_json *j;
    if (strcmp(file_type, "application/json") != 0)
        return;
    MUST(xd_json_parse(&j, c->reply->data, c->reply->bytes, "reply", NULL) == XD_OK);
    const char *message = xd_json_text(xd_json_get(xd_json_get(j, "error"), "message"));
    MUST(c->status < 400 || (message && message[0]));
    xd_json_free(&j);
}

static void check_reply(xd_http_call *c)
{
    char    text[100];
    ssize_t n;
    MUST(c->reply && c->status >= 200 && c->status < 600);
    check_json(c);
    while (c->reply->read && (n = c->reply->read(c->reply->cookie, 0, text, sizeof text)) > 0)
        MUST((size_t)n <= sizeof text);
    MHD_destroy_response(c->reply);
}

static void free_call(xd_http_call *c)
{
    for (int i = 0; i < c->nparts; i++)
        free(c->parts[i].name), free(c->parts[i].file), free(c->parts[i].data);
    free(c->parts);
    free(c->body);
    xd_json_free(&c->json);
}

static void find_task(void *cookie, const xd_task *task)
{
    snprintf(cookie, 40, "%s", task->id);
}

/* Forgets all tasks; the folder is empty then. */
static void clear(void)
{
    while (run_next()) {
    }
    for (;;) {
        char id[40] = "";
        xd_tasks_lock(server.tasks);
        xd_tasks_each(server.tasks, find_task, id);
        xd_tasks_unlock(server.tasks);
        xd_task *task = id[0] ? xd_tasks_find(server.tasks, id) : NULL;
        if (!task)
            break;
        MUST(xd_tasks_delete(server.tasks, task));
        xd_task_release(server.tasks, task);
    }
    DIR           *d = opendir(folder);
    struct dirent *f;
    MUST(d);
    while ((f = readdir(d)))
        MUST(f->d_name[0] == '.');
    closedir(d);
}

static void remove_folder(void)
{
    rmdir(folder);
}

static void begin(void)
{
    static xd_served_model models[] = { { .path = "models/first", .name = "first" },
                                        { .path = "org/second", .name = "org/second" } };
    const char            *tmp = getenv("TMPDIR");
    xd_err                 e = { 0 };
    if (folders++)
        return;
    snprintf(folder, sizeof folder, "%.40s/xd-fuzz-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    MUST(mkdtemp(folder));
    atexit(remove_folder);
    server = (xd_server){ .models = models,
                          .ending = &ending,
                          .nmodels = 2,
                          .dir = folder,
                          .own_dir = folder,
                          .keep_s = 60,
                          .silent_s = 1,
                          .fetch = { .nhosts = 1 } };
    MUST(xd_tasks_open(&server.tasks, NULL, 4, 60, 1 << 20, &e) == XD_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input        in = { data, size };
    int          which = take_byte(&in) % HANDLERS, bits = take_byte(&in);
    xd_http_call c = { .server = &server, .method = "POST", .path = "/", .owner = "" };
    begin();
    server.chosen = 0;
    outcome = bits >> 1 & 3;
    query[0] = c.arg[0] = 0;
    content_type = bits & 1 ? "multipart/form-data" : "application/json";
    if (which >= WITH_BODY) {
        char *text = take_bytes(&in, in.left, NULL);
        snprintf(query, sizeof query, "%s", text);
        snprintf(c.arg, sizeof c.arg, "%s", text);
        free(text);
    }
    if (which >= WITH_BODY || take_body(&c, &in, bits & 1)) {
        handlers[which](&c);
        check_reply(&c);
        clear();
    }
    free_call(&c);
    return 0;
}
