/* server.h - declares the state of the server, and the functions for requests and replies that all
 * HTTP interfaces (api_*.c) share */
#ifndef XD_SERVE_SERVER_H
#define XD_SERVE_SERVER_H

#include <signal.h>
#include <stdatomic.h>

#include "serve/access_log.h"
#include "serve/defaults.h"
#include "serve/fetch.h"
#include "serve/http.h"
#include "serve/task.h"
#include "serve/worker_process.h"

typedef struct xd_served_model {
    const char        *path; /* directory of the model, from --model */
    /* Name of the model: NAME if the command line has --model NAME=DIR, else "org/name" or the last
     * component of the path. */
    char               name[128];
    /* [naliases] further names of the model in requests (--served_model_name) */
    const char *const *aliases;
    int                naliases;
    xd_defaults        defaults; /* defaults of requests to this model; borrowed */
    /* Outputs, inputs and defaults of the model, in the format that the command xdit inspect --json
     * prints under the key "uses". The text `uses` has members of a JSON object, with a comma
     * before each member. NULL: unknown. */
    char              *uses;
} xd_served_model;

/* Returns 1 if requests may use this name for the model. */
int      xd_served_is_named(const xd_served_model *m, const char *name);
/* Parses the text `uses` of a model into a JSON object, which the caller frees. */
xd_json *xd_served_model_uses(const xd_served_model *m);

typedef struct xd_server {
    /* [nmodels] models; if a request names no model, the first suitable one is used. */
    xd_served_model *models;
    int              nmodels;
    /* Index of the model that is used for clients of A1111's interface. */
    atomic_int       chosen;
    /* Directory of the LoRA files that requests may use by name; NULL: requests cannot use LoRA
     * files. */
    const char      *loras;
    const char      *dir;     /* directory for files of tasks */
    const char      *own_dir; /* temporary directory of the server, removed at exit */
    double           keep_s;  /* seconds for which results are kept */
    double           started; /* date of the server's start, in seconds of the Unix clock */
    int              tls;     /* 1: the server uses HTTPS */
    int              queue;   /* maximum number of queued requests */
    /* Maximum number of pixels of a generated image; 0: 16 times the number of pixels of the
     * model's default size. */
    int64_t          max_pixels;
    /* Seconds without a message from the worker, after which /health reports the worker as
     * "silent". */
    double           silent_s;
    double           drain_s; /* seconds for which running tasks may go on at exit */
    /* Nonzero: a signal has ended the server, which refuses new requests (--drain_seconds). */
    const volatile sig_atomic_t *ending;
    xd_fetch_rules               fetch; /* rules for images that requests name by URL */
    xd_tasks                    *tasks;
    xd_worker_process           *worker;
    xd_http                     *http;
    xd_access_log               *log; /* access log; NULL: the server writes no access log */
    const xd_route              *routes;
    const char *const           *controls; /* [ncontrols] the control networks of --controlnet */
    int                          ncontrols;
    struct xd_comfy             *comfy; /* prompts and images of ComfyUI's interface */
} xd_server;

/* Returns 1 if the model generates `kind` ("image" or "video"), 0 if not; negative: unknown. */
int xd_served_makes(const xd_served_model *m, const char *kind);

/* Returns the sorted names of the LoRA files in the server's folder; the caller frees the names and
 * the list. */
char **xd_server_loras(const char *folder, int *n);

/* ---- conversion of a request to a task (request.c) ------------------------------------------- */

/* Converts the fields of an HTTP request to the arguments of a task. If a function whose name
 * begins with xd_api_req fails, it creates the reply and sets `failed`, and later calls of
 * xd_api_req functions do nothing. */
typedef struct xd_api_req {
    xd_http_call          *call;
    const char            *kind; /* kind of output that the request generates: "image" or "video" */
    xd_task               *task;
    const xd_served_model *model; /* model of the request; NULL: not chosen yet */
    /* Number of start images, and number of all image files of the request. */
    int                    images, files;
    int64_t                pixels;      /* total pixels of the request's image files */
    int                    lenient;     /* 1: unknown fields of the request are ignored */
    int                    random_seed; /* 1: the request has the seed -1 */
    /* 1: the options of the request include the server's defaults */
    int                    defaults_set;
    char                   extension[8]; /* extension of the result files: "png" */
    /* Random text in the names of the input files if the request has an Idempotency-Key; "": the
     * request has none */
    char                   part[12];
    int                    failed;
    /* Callback that receives the error in place of the client; NULL: the reply has the error. */
    void  (*refused)(void *cookie, unsigned status, const char *param, const char *text);
    void *refused_cookie;
} xd_api_req;

void xd_api_req_begin(xd_api_req *r, xd_http_call *call, const char *kind);
/* Chooses the model of a request by the model's name. If the name is NULL, "" or the name of an
 * OpenAI model, chooses the first model that generates outputs of the requested kind (image or
 * video). */
void xd_api_req_model(xd_api_req *r, const char *name);
/* Sets the option `name` of the request to a value. Names of options are those of
 * xd_request_options. */
void xd_api_req_option(xd_api_req *r, const char *name, const char *value);
/* How a scheduler uses eta, the amount of new noise per step. DDIM and ancestral samplers use eta
 * in different ways. Samplers other than DDIM and ancestral samplers ignore eta. The scheduler of a
 * request must be set before xd_api_req_eta is called. */
typedef enum xd_eta_kind { XD_ETA_NONE, XD_ETA_DDIM, XD_ETA_ANCESTRAL } xd_eta_kind;
xd_eta_kind xd_api_req_eta_kind(const xd_api_req *r);
void        xd_api_req_eta(xd_api_req *r, double eta);
/* Returns nonzero if the model accepts the input or option `word`, for example "strength", or if it
 * is unknown whether the model accepts it. */
int         xd_api_req_model_accepts(const xd_api_req *r, const char *word);
void        xd_api_req_prompt(xd_api_req *r, const char *prompt);
/* Sets the image size from a text "512x768" or "auto". */
void        xd_api_req_size(xd_api_req *r, const char *size);
/* Adds a LoRA file of the server's directory to the request: "name", or "name:0.8" with a scale. */
void        xd_api_req_lora(xd_api_req *r, const char *value);
/* Add an input image to the request. xd_api_req_file accepts the content of a file; xd_api_req_url
 * accepts a data URL, base64 or, with --allow_url, a URL. option: "image", "mask_image",
 * "last_image", "control_image", "control_video", "pose_video" or "face_video". */
void        xd_api_req_file(xd_api_req *r, const char *option, const char *data, size_t bytes);
void        xd_api_req_url(xd_api_req *r, const char *option, const char *url);
/* Sets the format of the result files, "png" or "mp4". param: name of the field in errors. */
void        xd_api_req_format(xd_api_req *r, const char *param, const char *format);
/* Set a field of a request by its name, which is the same in all HTTP interfaces: an option of
 * xd_request, "lora", "priority" or "deadline". Return 0 if there is no field of this name. */
int         xd_api_req_by_name(xd_api_req *r, const char *name, const xd_json *value);
int         xd_api_req_by_name_text(xd_api_req *r, const char *name, const char *value);
/* A field that requests of one HTTP interface can have, and the function that handles the field's
 * value. */
typedef struct xd_api_req_field {
    const char *name;
    void        (*set)(void *cookie, const char *name, const char *value);
    /* Option that a field with an image sets, such as "image" or "mask_image"; NULL: the field has
     * a text. */
    const char *file;
} xd_api_req_field;
/* Reads all fields of a request. Allowed fields are those in the table `fields`, whose last row has
 * no name; the fields prompt, model, size and output_format; and all options of xd_request. Other
 * fields are refused, or ignored if r->lenient is set. */
void xd_api_req_fields(xd_api_req *r, const xd_api_req_field *fields, void *cookie);
/* Sets an option to a default value, if the request does not set the option. */
void xd_api_req_default(xd_api_req *r, const char *name, const char *value);
/* If the request names no model, chooses a model. Sets all options that the request does not set to
 * the server's defaults. */
void xd_api_req_defaults(xd_api_req *r);
/* Sets a random seed if the request has no seed. */
void xd_api_req_seed(xd_api_req *r);
void xd_api_req_refuse(xd_api_req *r, unsigned status, const char *param, const char *fmt, ...)
    XD_PRINTF(4, 5);
/* Validates the request and queues its task, which the caller releases. Returns NULL if the request
 * was refused; the reply with the error then exists already. xd_api_req_submit must be called also
 * after another xd_api_req function has failed, because it frees the task. */
xd_task *xd_api_req_submit(xd_api_req *r);

/* ---- replies --------------------------------------------------------------------------------- */

/* Waits until the task of a request has ended. Cancels the task if the client disconnects. */
void            xd_answer_wait(xd_http_call *c, xd_task *task);
/* Copies a message of the library to `to`, changed so that it may be sent to a client: paths of
 * models are replaced by the models' names in requests, and all other paths are shortened to file
 * names. Returns `to`. */
const char     *xd_answer_text(const xd_server *s, const char *text, char *to, size_t size);
/* Copies the error message of a task to `to` for a client, like xd_answer_text. */
const char     *xd_answer_error(const xd_server *s, const xd_task *task, char *to, size_t size);
/* Replies with the error message of a failed or cancelled task. */
void            xd_answer_failure(xd_http_call *c, const xd_task *task);
/* Adds the header Retry-After: the predicted seconds until a request ends. */
void            xd_answer_retry_after(xd_http_call *c);
/* Replies with a JSON object that describes a task: its state, its progress and its results. */
void            xd_answer_job(xd_http_call *c, unsigned status, const xd_task *task);
/* Returns the state of a task for replies: "queued", "in_progress", "cancelling", "completed",
 * "failed" or "cancelled". The caller holds the lock of the tasks. */
const char     *xd_answer_state(const xd_task *task);
/* Returns the progress of a task in percent; the caller holds the lock of the tasks. */
int             xd_answer_percent(const xd_task *task);
/* Returns the HTTP status of a reply to a request that failed with the status `s`. */
unsigned        xd_answer_status(xd_status s);
/* Appends the content of a file in base64. xd_answer_base64 returns 0 if the file cannot be
 * opened. */
int             xd_answer_base64(xd_text_buf *b, const char *path);
/* Returns the media type for a file name extension: "image/png". */
const char     *xd_answer_type(const char *path);
/* Writes the origin of this server to `text`, in the form "http://host:port" that the client has
 * used in its request. */
void            xd_answer_origin(const xd_http_call *c, char *text, size_t size);
void            xd_cancel_task(xd_server *s, xd_task *task);
/* Cancels a task whose client has disconnected, unless the task's request has an Idempotency-Key:
 * the client may then send the request again to get the result. */
void            xd_cancel_left(xd_server *s, xd_task *task);
/* Returns the task whose id is in the request's path. The caller releases the returned task with
 * xd_task_release. Returns NULL if no task has the id, or if the task belongs to another API
 * key. */
xd_task        *xd_answer_find(const xd_http_call *c);
/* Returns the tasks that were requested with the same API key as this request, oldest first. If
 * `videos` is set, returns only tasks that generate videos. The caller holds the lock of the tasks,
 * and frees the list. */
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
/* Appends the OpenAPI document, which consists of the text of openapi.json and a description of all
 * options of a request. */
void xd_openapi_document(const char *data, size_t bytes, xd_text_buf *b);
/* xd_option_takes_numbers returns nonzero if the value of an option may be a JSON list of numbers.
 * xd_option_takes_texts returns nonzero if the value may be a list with one text per prompt. */
int  xd_option_takes_numbers(const xd_option *o);
int  xd_option_takes_texts(const xd_option *o);
/* ComfyUI's interface (api_comfy.c, comfy_images.c). */
void xd_api_comfy_prompt(xd_http_call *c);
void xd_api_comfy_queue_info(xd_http_call *c);
void xd_api_comfy_history(xd_http_call *c);
void xd_api_comfy_change_history(xd_http_call *c);
void xd_api_comfy_queue(xd_http_call *c);
void xd_api_comfy_change_queue(xd_http_call *c);
void xd_api_comfy_interrupt(xd_http_call *c);
void xd_api_comfy_object_info(xd_http_call *c);
void xd_api_comfy_stats(xd_http_call *c);
void xd_api_comfy_models(xd_http_call *c);
void xd_api_comfy_features(xd_http_call *c);
void xd_api_comfy_none(xd_http_call *c);
void xd_api_comfy_free(xd_http_call *c);
void xd_api_comfy_view(xd_http_call *c);
void xd_api_comfy_upload_image(xd_http_call *c);
void xd_api_comfy_upload_mask(xd_http_call *c);
void xd_api_comfy_put(xd_http_call *c);
void xd_api_comfy_socket(xd_http_call *c);
void xd_api_sdcpp_capabilities(xd_http_call *c);
void xd_api_sdcpp_image(xd_http_call *c);
void xd_api_sdcpp_video(xd_http_call *c);
void xd_api_sdcpp_job(xd_http_call *c);
void xd_api_sdcpp_cancel(xd_http_call *c);
void xd_api_health(xd_http_call *c);
void xd_api_liveness(xd_http_call *c);
void xd_api_metrics(xd_http_call *c);
void xd_api_models(xd_http_call *c);
void xd_api_model(xd_http_call *c);

extern const xd_route xd_server_routes[], xd_comfy_routes[];

#endif
