/* comfy.h - what the files of ComfyUI's interface share: node classes, graphs, prompts and images
 *
 * A client of ComfyUI sends a graph of nodes, called a prompt. comfy_graph.c checks the graph
 * against the table of node classes in comfy_nodes.c, and comfy_request.c translates the graph to
 * one request (xd_api_req), which runs as a task like the requests of the other interfaces. */
#ifndef XD_SERVE_COMFY_H
#define XD_SERVE_COMFY_H

#include <pthread.h>

#include "serve/server.h"

/* ---- classes of nodes (comfy_nodes.c) -------------------------------------------------------- */

/* A row of the table of node classes. `inputs` lists the inputs, separated by semicolons. An input
 * has a name and a type, "?" before the name if the input is optional, and after the type the
 * default, and for numbers the minimum and the maximum: "steps INT 20 1 10000". A type with "|" or
 * "@" is a list of texts: "yes|no" or, for a list of the server, "@models". A "*" before such a
 * list means that any text is accepted, because the value has no effect. */
typedef struct xd_comfy_class {
    const char *name, *title, *category;
    const char *inputs;
    const char *outputs; /* types of the outputs, separated by blanks */
    int         saves;   /* 1: the node is an output of the graph */
} xd_comfy_class;

enum { XD_COMFY_NAME = 40 }; /* maximum bytes of the name of an input or of a type, with its NUL */
typedef struct xd_comfy_input {
    char        name[XD_COMFY_NAME], type[XD_COMFY_NAME]; /* type of a list: "COMBO" */
    const char *list, *text; /* the list of a COMBO, up to a blank or semicolon; the default */
    size_t      list_bytes, text_bytes;
    int         optional, any;
    double      def, min, max;
} xd_comfy_input;

const xd_comfy_class *xd_comfy_class_find(const char *name);
/* Reads the next input of a class at *at, and moves *at behind it. Returns 0 at the end. */
int                   xd_comfy_next_input(const char **at, xd_comfy_input *in);
/* Copies the type of output `slot`; returns 0 if the class has no such output. */
int  xd_comfy_output_type(const xd_comfy_class *k, int slot, char type[XD_COMFY_NAME]);
/* Returns nonzero if inputs of the type have their value in the graph, and need no link. */
int  xd_comfy_is_value(const char *type);
/* Appends the values of a list as a JSON list. */
void xd_comfy_list(xd_text_buf *b, const xd_http_call *c, const xd_comfy_input *in);
/* Returns nonzero if the list of an input has the text. */
int  xd_comfy_list_has(const xd_http_call *c, const xd_comfy_input *in, const char *text);
/* Appends the description of one class, or of all classes if `name` is NULL, as a JSON object. */
void xd_comfy_object_info(xd_text_buf *b, const xd_http_call *c, const char *name);

typedef struct xd_comfy_setting {      /* an option of a request for a name of ComfyUI */
    const char *name, *option, *value; /* option NULL: the model's own */
} xd_comfy_setting;
/* Return the row of a sampler or of a noise schedule; NULL: the name is unknown. */
const xd_comfy_setting *xd_comfy_sampler(const char *name);
const xd_comfy_setting *xd_comfy_schedule(const char *name);

/* ---- graphs (comfy_graph.c) ------------------------------------------------------------------ */

typedef struct xd_comfy_node {
    const char *id;
    const xd_comfy_class *class;
    const xd_json *inputs;
    int            state;
    xd_text_buf    errors, dependents; /* items of JSON lists */
} xd_comfy_node;

typedef struct xd_comfy_graph {
    const xd_http_call *call;
    xd_comfy_node      *nodes; /* [n] in the order of the client */
    xd_comfy_node     **sorted;
    xd_comfy_node     **order; /* [norder] nodes that outputs need, each after those it needs */
    int                 n, norder;
    /* Error of the whole graph; type "": none. */
    char                type[64], message[200], details[1000];
    unsigned            status; /* HTTP status of the error */
} xd_comfy_graph;

/* Reads and checks a graph. Returns 0 if the graph has an error. Call xd_comfy_graph_free in both
 * cases. */
int            xd_comfy_graph_read(xd_comfy_graph *g, const xd_http_call *c, const xd_json *prompt);
void           xd_comfy_graph_free(xd_comfy_graph *g);
/* Returns the node to which an input is linked, and sets *slot to the index of the output; NULL:
 * the input has no link. */
xd_comfy_node *xd_comfy_linked(const xd_comfy_graph *g, const xd_comfy_node *node,
                               const char *input, int *slot);
/* Return the value of an input, also through a link to a node with a constant. The graph has been
 * checked. */
const char    *xd_comfy_text(const xd_comfy_graph *g, const xd_comfy_node *node, const char *input);
double xd_comfy_number(const xd_comfy_graph *g, const xd_comfy_node *node, const char *input);
int    xd_comfy_is(const xd_comfy_node *node, const char *class_name);
/* Records the error of a node's input, in the form of ComfyUI. */
void   xd_comfy_fail(xd_comfy_graph *g, xd_comfy_node *node, const char *type, const char *input,
                     const char *message, const char *fmt, ...) XD_PRINTF(6, 7);
/* Replies with the errors of a graph. */
void   xd_comfy_reply_errors(xd_http_call *c, const xd_comfy_graph *g);

/* ---- translation (comfy_request.c) ----------------------------------------------------------- */

/* Nodes of a graph for which progress is reported; indices of xd_comfy_graph.order. */
typedef struct xd_comfy_places { int sampler, decoder; } xd_comfy_places;

/* Translates a graph to a request and queues its task, which the caller releases. Returns NULL if
 * the graph was refused; the graph has the error. */
xd_task *xd_comfy_submit(xd_comfy_graph *g, xd_http_call *c, xd_comfy_places *places);

/* ---- images (comfy_images.c) ----------------------------------------------------------------- */

/* Finds the image file that a client has uploaded, or a result. `type`: "input", "output" or
 * "temp"; NULL: the name may end with the type in brackets, and else is an input. Returns 0 if
 * there is no such image. */
int  xd_comfy_find_image(const xd_http_call *c, const char *name, const char *folder,
                         const char *type, char *path, size_t size);
/* Appends the names of the uploaded images of a client as a JSON list. */
void xd_comfy_image_names(xd_text_buf *b, const xd_http_call *c);
/* Sets an image option of a request from the node to which an input is linked. size: width and
 * height to which the graph scales the image; 0: it does not scale the image. */
void xd_comfy_set_image(xd_comfy_graph *g, xd_api_req *r, const char *option, xd_comfy_node *node,
                        const char *input, double size[2]);
/* Sets the mask of a request from the node to which an input is linked. If `grow` is not negative,
 * the mask becomes black and white, and a square of `grow` pixels grows its white area. */
void xd_comfy_set_mask(xd_comfy_graph *g, xd_api_req *r, xd_comfy_node *node, const char *input,
                       int grow);

/* ---- prompts (comfy.c) ----------------------------------------------------------------------- */

typedef struct xd_comfy_step { /* a node of a prompt */
    char       *id;
    const char *class_name;
    int         saves;
} xd_comfy_step;

typedef struct xd_comfy_prompt {
    char                    id[64], client[64], task[40], owner[20];
    long                    number;
    char                   *graph, *extra; /* texts in JSON, as the client sent them */
    xd_comfy_step          *steps;         /* [n] in the order of execution */
    int                     n;
    xd_comfy_places         places;
    struct xd_comfy_prompt *next; /* the prompt that arrived after this one */
} xd_comfy_prompt;

typedef struct xd_comfy_upload {
    char                    owner[20], name[200], path[4200];
    int64_t                 bytes;
    struct xd_comfy_upload *next;
} xd_comfy_upload;

typedef struct xd_comfy {
    pthread_mutex_t  lock; /* protects the lists; taken before the lock of the tasks */
    xd_comfy_prompt *prompts;
    xd_comfy_upload *uploads; /* newest first */
    long             number;  /* number of prompts so far */
    long             files;   /* number of files so far, for their names */
} xd_comfy;

xd_comfy   *xd_comfy_open(void); /* NULL: memory is exhausted */
void        xd_comfy_close(xd_comfy **y);
/* Returns the name of control network i in graphs. */
const char *xd_comfy_control_name(const xd_server *s, int i);
/* Adds a prompt whose task is queued, and copies the prompt's id to `id`. Returns the number of the
 * prompt; negative: memory is exhausted. */
long xd_comfy_add(const xd_http_call *c, const xd_comfy_graph *g, const xd_comfy_places *places,
                  const xd_task *task, char id[64]);
/* Calls `visit` for the prompts of an API key, oldest first, with the task of each prompt, under
 * the locks of prompts and tasks. Removes prompts whose task does not exist any more. Prompts for
 * which `skip` returns nonzero are left out; NULL: none. */
typedef void xd_comfy_visit(void *cookie, const xd_comfy_prompt *p, const xd_task *task);
typedef int  xd_comfy_skip(void *cookie, const xd_comfy_prompt *p);
void xd_comfy_each(xd_server *s, const char *owner, xd_comfy_skip *skip, xd_comfy_visit *visit,
                   void *cookie);
/* Appends the output of a node, {"images": [...]}: the result files of a task. */
void xd_comfy_add_images(xd_text_buf *b, const xd_task *task, const xd_comfy_step *step);
/* Appends the members of the message at the end of a failed or cancelled prompt. */
void xd_comfy_add_failure(xd_text_buf *b, const xd_server *s, const xd_comfy_prompt *p,
                          const xd_task *task);
/* Returns nonzero if the node's results are only sent over the WebSocket, and nonzero if the node's
 * results have ids for the route /etn/image. */
int  xd_comfy_caches(const xd_comfy_step *step);
int  xd_comfy_sends(const xd_comfy_step *step);

#endif
