/* server.h - declares the state of the server, and the functions for requests and replies that all
 * HTTP interfaces (api_*.c) share */
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
    const char *path;           /* directory of the model, from --model                        */
    char        name[128];      /* NAME of --model NAME=DIR, else "org/name" or the last part of the
                                   path */
    xd_defaults defaults;       /* defaults of requests to this model; borrowed                */
    char       *uses;           /* outputs, inputs and defaults of the model ("uses" of xdit inspect
                                   --json), as members of a JSON object with a comma before each;
                                   NULL: unknown */
} xd_served_model;

/* Parses the model's `uses` into a JSON object, which the caller frees. */
xd_json *xd_served_model_uses(const xd_served_model *m);

typedef struct xd_server {
    xd_served_model   *models;  /* [nmodels]; the first suitable model is the default          */
    int                nmodels;
    atomic_int         chosen;  /* index of the default model for clients of A1111             */
    const char        *loras;   /* folder of the LoRA files that requests may name; NULL: none  */
    const char        *dir;     /* directory for files of tasks                                */
    const char        *own_dir; /* temporary directory, removed at exit                        */
    double             keep_s;  /* seconds for which results are kept                          */
    double             started; /* date of the server's start, in seconds of the Unix clock    */
    int                tls;     /* 1: the server uses HTTPS                                    */
    int                queue;   /* maximum number of queued requests                           */
    int64_t            max_pixels;      /* maximum pixels of a generated image; 0: 16 times the
                                           model's default size */
    double             silent_s;        /* seconds of silence of the worker after which /health
                                           reports "silent" */
    xd_fetch_rules     fetch;   /* rules for images that requests name by URL                  */
    xd_tasks           *tasks;
    xd_worker_process *worker;
    xd_http           *http;
    xd_access_log     *log;     /* access log; NULL: none                                      */
    const xd_route    *routes;
} xd_server;

/* Returns 1 if the model generates `kind` ("image" or "video"), 0 if not; negative: unknown. */
int xd_served_makes(const xd_served_model *m, const char *kind);

/* Returns the sorted names of the LoRA files in the folder; the caller frees the names and the
 * list. */
char **xd_server_loras(const char *folder, int *n);

/* ---- a request that becomes a task (request.c) ----------------------------------------------- */

/* Converts the fields of an HTTP request to the arguments of a task. The first failure creates the
 * reply and sets `failed`; later calls of the xd_api_req functions do nothing. */
typedef struct xd_api_req {
    xd_http_call    *call;
    const char *kind;           /* what the request generates: "image" or "video"              */
    xd_task     *task;
    const xd_served_model *model;       /* model of the request; NULL: not chosen yet          */
    int         images, files;  /* number of start images; number of all image files           */
    int64_t     pixels;         /* total pixels of the request's image files                   */
    int         lenient;        /* 1: unknown fields are ignored                               */
    int         random_seed;    /* 1: the request has the seed -1                              */
    int         defaults_set;   /* 1: the server's defaults are set                            */
    char        extension[8];   /* extension of the result files: "png"                        */
    int         failed;
} xd_api_req;

void xd_api_req_begin(xd_api_req *r, xd_http_call *call, const char *kind);
/* Chooses the model with this name. If the name is NULL, "" or that of an OpenAI model, chooses the
 * first model that generates `kind`. */
void xd_api_req_model(xd_api_req *r, const char *name);
/* Sets an option of xd_request by its name. */
void xd_api_req_option(xd_api_req *r, const char *name, const char *value);
/* The kinds of samplers that use eta, the amount of new noise per step, are DDIM and ancestral
 * samplers. Other samplers ignore eta. A request's eta must be set after its scheduler. */
typedef enum xd_eta_kind { XD_ETA_NONE, XD_ETA_DDIM, XD_ETA_ANCESTRAL } xd_eta_kind;
xd_eta_kind xd_api_req_eta_kind(const xd_api_req *r);
void xd_api_req_eta(xd_api_req *r, double eta);
/* Returns nonzero if the model accepts this input or option ("strength"), or if that is unknown. */
int  xd_api_req_model_accepts(const xd_api_req *r, const char *word);
void xd_api_req_prompt(xd_api_req *r, const char *prompt);
/* Sets the image size: "512x768" or "auto". */
void xd_api_req_size(xd_api_req *r, const char *size);
/* Adds a LoRA file from the server's folder: "name" or "name:0.8". */
void xd_api_req_lora(xd_api_req *r, const char *value);
/* Add an input image to the request. xd_api_req_file accepts the content of a file; xd_api_req_url
 * accepts a data URL, base64 or, with --allow_url, a URL. option: "image", "mask_image" or
 * "last_image". */
void xd_api_req_file(xd_api_req *r, const char *option, const char *data, size_t bytes);
void xd_api_req_url(xd_api_req *r, const char *option, const char *url);
/* Sets the format of the result files, "png" or "mp4". param: name of the field in errors. */
void xd_api_req_format(xd_api_req *r, const char *param, const char *format);
/* Set a field that has the same name in all interfaces: an option, "lora", "priority", "deadline".
 * Return 0 if there is no such field. */
int  xd_api_req_by_name(xd_api_req *r, const char *name, const xd_json *value);
int  xd_api_req_by_name_text(xd_api_req *r, const char *name, const char *value);
/* A field of requests in one interface, and the function that handles it. */
typedef struct xd_api_req_field {
    const char *name;
    void      (*set)(void *cookie, const char *name, const char *value);
    const char *file;           /* option to which an image field is added, such as "image" or
                                   "mask_image"; NULL: the field is a text */
} xd_api_req_field;
/* Reads all fields of the request: the fields of the table, whose last row has no name; prompt,
 * model, size and output_format; and options by their names. Refuses other fields, unless
 * r->lenient is set. */
void xd_api_req_fields(xd_api_req *r, const xd_api_req_field *fields, void *cookie);
/* Sets an option, unless the request already has it. */
void xd_api_req_default(xd_api_req *r, const char *name, const char *value);
/* If the request names no model, chooses a model. Then sets the server's defaults for all options
 * that the request does not have. */
void xd_api_req_defaults(xd_api_req *r);
/* Sets a random seed if the request has none. */
void xd_api_req_seed(xd_api_req *r);
void xd_api_req_refuse(xd_api_req *r, unsigned status, const char *param, const char *fmt, ...)
    XD_PRINTF(4, 5);
/* Validates the request and queues its task, which the caller releases. NULL: the request was
 * refused, and the reply was created. Call xd_api_req_submit also after a failure, because it frees
 * the task. */
xd_task *xd_api_req_submit(xd_api_req *r);

/* ---- replies --------------------------------------------------------------------------------- */

/* Waits until the task has ended. Cancels the task if the client disconnects. */
void xd_answer_wait(xd_http_call *c, xd_task *task);
/* Copies a message of the library to `to`, for a client: paths of models are replaced by the names
 * that requests use, and the folders in other paths are removed. Returns `to`. */
const char *xd_answer_text(const xd_server *s, const char *text, char *to, size_t size);
/* Copies the error message of a task to `to` for a client, like xd_answer_text. */
const char *xd_answer_error(const xd_server *s, const xd_task *task, char *to, size_t size);
/* Replies with the error of a failed or cancelled task. */
void xd_answer_failure(xd_http_call *c, const xd_task *task);
/* Replies with a job: the progress and the results of a task. */
void xd_answer_job(xd_http_call *c, unsigned status, const xd_task *task);
/* Returns the state of a task: "queued", "in_progress", "cancelling", "completed", "failed" or
 * "cancelled"; under the lock. */
const char *xd_answer_state(const xd_task *task);
int  xd_answer_percent(const xd_task *task);    /* progress of a task, 0 to 100; under the lock */
/* Returns the HTTP status for a failure of the library. */
unsigned xd_answer_status(xd_status s);
/* Appends the content of a file in base64. Returns 0 if the file cannot be opened. */
int  xd_answer_base64(xd_text_buf *b, const char *path);
const char *xd_answer_type(const char *path);   /* media type of a file by its extension:
                                                   "image/png" */
/* Writes the origin "http://host:port" that the client has used for this server to `text`. */
void xd_answer_origin(const xd_http_call *c, char *text, size_t size);
void xd_cancel_task(xd_server *s, xd_task *task);
/* Returns the task whose id is in the path, with a reference. NULL: there is no such task, or the
 * task belongs to another API key. */
xd_task *xd_answer_find(const xd_http_call *c);
/* Returns the tasks with the API key of the request, oldest first. If `videos` is set, returns only
 * tasks that generate videos. The caller holds the lock, and frees the list. */
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
/* Appends the OpenAPI document: the bytes of openapi.json, with the options of a request. */
void xd_openapi_document(const char *data, size_t bytes, xd_text_buf *b);
/* Returns nonzero if a request may set the option with a list: a list of numbers, or a list with
 * one text per prompt. */
int  xd_option_takes_numbers(const xd_option *o);
int  xd_option_takes_texts(const xd_option *o);
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
