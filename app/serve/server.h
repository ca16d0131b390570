/* server.h - what the interfaces of the server share: models, tasks, the worker, requests */
#ifndef XD_SERVE_SERVER_H
#define XD_SERVE_SERVER_H

#include <stdatomic.h>

#include "serve/access_log.h"
#include "serve/defaults.h"
#include "serve/fetch.h"
#include "serve/http.h"
#include "serve/task.h"
#include "serve/worker_process.h"

typedef struct xd_served_model {
    const char *path;           /* of --model                                                  */
    char        name[128];      /* "org/name", the last part of the path, or as --model says   */
    xd_defaults defaults;       /* of its requests; borrowed                                   */
    char       *uses;           /* what it makes and takes: members of a JSON object, each with a
                                   comma before it; NULL: not known */
} xd_served_model;

/* `uses` as an object, which the caller frees. */
xd_json *xd_served_model_uses(const xd_served_model *m);

typedef struct xd_server {
    xd_served_model   *models;  /* [nmodels]; the first one is taken where none is named        */
    int                nmodels;
    atomic_int         chosen;  /* of the models, where a client of A1111 names none           */
    const char        *loras;   /* folder of LoRA files that requests name; NULL: none          */
    const char        *dir;     /* of files of tasks                                            */
    const char        *own_dir; /* of this server, removed at its end                          */
    double             keep_s;  /* how long results are kept                                   */
    double             started; /* seconds of the Unix clock                                   */
    int                tls;     /* it speaks HTTPS                                             */
    int                queue;   /* most requests that wait                                     */
    int64_t            max_pixels;      /* of a request; 0: by the model's own size            */
    double             silent_s;        /* of a worker, behind which the server is not well    */
    xd_fetch_rules     fetch;   /* images by URLs                                              */
    xd_tasks           *tasks;
    xd_worker_process *worker;
    xd_http           *http;
    xd_access_log     *log;     /* NULL: none                                                  */
    const xd_route    *routes;
} xd_server;

/* Does the model make an "image" or a "video"? Negative: that is not known. */
int xd_served_makes(const xd_served_model *m, const char *kind);

/* Names of the LoRA files of the folder, sorted; the caller frees them and the list. */
char **xd_server_loras(const char *folder, int *n);

/* ---- a request that becomes a task (ask.c) --------------------------------------------------- */

/* Begins as {0} with `call` and `kind` ("image", "video"). After a failure the reply is made, and
 * all further calls do nothing. */
typedef struct xd_ask {
    xd_http_call    *call;
    const char *kind;
    xd_task     *task;
    const xd_served_model *model;
    int         images, files;  /* start images so far; all files of the client                */
    int64_t     pixels;         /* of the files                                                */
    int         lenient;        /* fields that nobody knows are passed over                    */
    int         drawn;          /* a seed by chance is asked for                               */
    int         defaulted;      /* it has the defaults of the server                           */
    char        extension[8];   /* of the results: "png"                                       */
    int         failed;
} xd_ask;

void xd_ask_begin(xd_ask *a, xd_http_call *call, const char *kind);
/* The model of that name, or the first one that makes what is asked for where it is NULL, "" or a
 * name of OpenAI's. */
void xd_ask_model(xd_ask *a, const char *name);
void xd_ask_option(xd_ask *a, const char *name, const char *value);     /* of xd_request        */
/* The share of new noise in every step, as other programs take it: behind the sampler's name, of
 * which it depends whether it has one (xd_ask_noise_kind); others pass it over. */
typedef enum xd_ask_noise { XD_NOISE_NONE, XD_NOISE_DDIM, XD_NOISE_ANCESTRAL } xd_ask_noise;
xd_ask_noise xd_ask_noise_kind(const xd_ask *a);
void xd_ask_eta(xd_ask *a, double eta);
int  xd_ask_takes(const xd_ask *a, const char *word);  /* the model takes it ("strength")         */
void xd_ask_prompt(xd_ask *a, const char *prompt);
void xd_ask_size(xd_ask *a, const char *size);  /* "512x768", "auto"                            */
/* LoRA files by their name in the folder of the server: "name" or "name:0.8". */
void xd_ask_lora(xd_ask *a, const char *value);
/* Start images and the mask, as the bytes of a file or as a data URL. `option`: "image",
 * "mask_image". */
void xd_ask_file(xd_ask *a, const char *option, const char *data, size_t bytes);
void xd_ask_data_url(xd_ask *a, const char *option, const char *url);
void xd_ask_format(xd_ask *a, const char *param, const char *format);   /* "png", "mp4" ...     */
/* An option of this name, one of LoRA files, or the like, whatever the interface. 0: none. */
int  xd_ask_named(xd_ask *a, const char *name, const xd_json *value);
int  xd_ask_named_text(xd_ask *a, const char *name, const char *value);
/* A field of an interface: a text, or a file that is given to this option. */
typedef struct xd_ask_field {
    const char *name;
    void      (*set)(void *cookie, const char *name, const char *value);
    const char *file;           /* "image", "mask_image"; NULL: a text                         */
} xd_ask_field;
/* Takes all fields of the request: those of the table, which ends with a row without a name,
 * prompt, model, size and output_format, and options by their names; others are refused. */
void xd_ask_fields(xd_ask *a, const xd_ask_field *fields, void *cookie);
/* Gives an option that the request does not have yet. */
void xd_ask_default(xd_ask *a, const char *name, const char *value);
/* Gives all that the server has a default for; chooses a model, if none is. */
void xd_ask_defaults(xd_ask *a);
void xd_ask_seed(xd_ask *a);    /* one by chance, where there is none                          */
void xd_ask_refuse(xd_ask *a, unsigned status, const char *param, const char *fmt, ...)
    XD_PRINTF(4, 5);
/* Checks what can be checked here and puts the task into the queue. NULL: refused, with a reply.
 * The caller releases it. Also ends an `a` that failed. */
xd_task *xd_ask_submit(xd_ask *a);

/* ---- answers --------------------------------------------------------------------------------- */

/* Waits until the task has ended. A client that goes cancels it. */
void xd_answer_wait(xd_http_call *c, xd_task *task);
/* A sentence of the library as clients read it: paths of this host have no folders, and models the
 * names that requests use. Returns `to`. */
const char *xd_answer_text(const xd_server *s, const char *text, char *to, size_t size);
const char *xd_answer_error(const xd_server *s, const xd_task *task, char *to, size_t size);
/* The reply to a task that did not end well. */
void xd_answer_failure(xd_http_call *c, const xd_task *task);
/* The reply of a job: how far a task is, and its results. */
void xd_answer_job(xd_http_call *c, unsigned status, const xd_task *task);
/* "queued", "in_progress", "cancelling", "completed", "failed", "cancelled"; under the lock. */
const char *xd_answer_state(const xd_task *task);
int  xd_answer_percent(const xd_task *task);    /* how far it is; under the lock               */
/* The reply of a status for a library's failure. */
unsigned xd_answer_status(xd_status s);
/* Appends a file in base64; 0: it is gone. */
int  xd_answer_base64(xd_text_buf *b, const char *path);
const char *xd_answer_type(const char *path);   /* "image/png"                                  */
/* "http://host:port" under which the client has found this server. */
void xd_answer_origin(const xd_http_call *c, char *text, size_t size);
void xd_cancel_task(xd_server *s, xd_task *task);
/* The task of the path, held; NULL: there is none, or it is of another key. */
xd_task *xd_answer_find(const xd_http_call *c);
/* Tasks of the key that asks, or its videos alone: oldest first, malloc'ed. Under the lock. */
const xd_task **xd_answer_tasks(const xd_http_call *c, int videos, int *n);

/* ---- interfaces ------------------------------------------------------------------------------ */

void xd_api_images_generate(xd_http_call *c);
void xd_api_images_edit(xd_http_call *c);
void xd_api_videos_create(xd_http_call *c);
void xd_api_videos_sync(xd_http_call *c);
void xd_api_videos_list(xd_http_call *c);
void xd_api_videos_get(xd_http_call *c);
void xd_api_videos_cancel(xd_http_call *c);
void xd_api_videos_delete(xd_http_call *c);
void xd_api_videos_content(xd_http_call *c);
void xd_api_videos_remix(xd_http_call *c);
void xd_api_jobs_list(xd_http_call *c);
void xd_api_jobs_get(xd_http_call *c);
void xd_api_jobs_cancel(xd_http_call *c);
void xd_api_jobs_delete(xd_http_call *c);
void xd_api_jobs_content(xd_http_call *c);
void xd_api_generate(xd_http_call *c);
void xd_api_webui_text(xd_http_call *c);
void xd_api_webui_image(xd_http_call *c);
void xd_api_webui_progress(xd_http_call *c);
void xd_api_webui_interrupt(xd_http_call *c);
void xd_api_webui_options(xd_http_call *c);
void xd_api_webui_set_options(xd_http_call *c);
void xd_api_webui_models(xd_http_call *c);
void xd_api_webui_samplers(xd_http_call *c);
void xd_api_webui_schedulers(xd_http_call *c);
void xd_api_webui_loras(xd_http_call *c);
void xd_api_webui_none(xd_http_call *c);
void xd_api_webui_embeddings(xd_http_call *c);
void xd_api_webui_scripts(xd_http_call *c);
void xd_api_webui_refresh(xd_http_call *c);
void xd_api_page(xd_http_call *c);
void xd_api_openapi(xd_http_call *c);
void xd_api_sdcpp_capabilities(xd_http_call *c);
void xd_api_sdcpp_image(xd_http_call *c);
void xd_api_sdcpp_video(xd_http_call *c);
void xd_api_sdcpp_job(xd_http_call *c);
void xd_api_sdcpp_cancel(xd_http_call *c);
void xd_api_health(xd_http_call *c);
void xd_api_metrics(xd_http_call *c);
void xd_api_models(xd_http_call *c);
void xd_api_model(xd_http_call *c);

extern const xd_route xd_server_routes[];

#endif
