/* serve_flags.h - parses the command line of xdit serve */
#ifndef XD_SERVE_SERVE_FLAGS_H
#define XD_SERVE_SERVE_FLAGS_H

#include "cli/open_flags.h"
#include "serve/defaults.h"

/* An argument of the option --model: [NAME=]DIR[,OPTION=VALUE...]. */
typedef struct xd_serve_model {
    char       *text; /* owned copy of the argument; `name` and `path` point into this copy */
    /* Name of the model in requests (NULL: derived from its path), and path of its directory. */
    const char *name, *path;
    /* Defaults for requests to this model, including the defaults that apply to all models. */
    xd_defaults defaults;
} xd_serve_model;

typedef struct xd_serve_flags {
    const char     *host, *loras, *results, *tls_cert, *tls_key, *access_log;
    const char     *log_format; /* format of the access log: "common" or "json" */
    /* Arguments of the options --model, --served_model_name, --api_key, --cors and --allow_url. */
    xd_opt_texts    texts, names, keys, origins, urls;
    int             port, queue, connections, no_auth, omit_folders, verbose, quiet;
    /* Maximum bytes of one request body and of all request bodies together. If max_bodies is 0, the
     * limit for all request bodies is 8 times max_body. */
    int64_t         max_body, max_bodies;
    /* Maximum number of pixels of a generated image; 0: 16 times the number of pixels of the
     * model's default size. */
    int64_t         max_pixels;
    /* Limits for stored results: seconds for which they are kept, and their total size in MB. */
    double          keep_s, keep_mb;
    /* time limits of requests and of the worker in seconds */
    double          request_timeout, worker_timeout;
    double          drain_s; /* seconds for which running requests may go on at exit */
    xd_open_flags   open;
    xd_opt_table    tables[4];
    xd_opt_spec     spec;
    xd_request      request; /* request that is used only to validate the defaults */
    /* xd_serve_flags_read computes the fields below. */
    xd_serve_model *models; /* [nmodels] values of --model */
    int             nmodels;
    xd_defaults     defaults; /* defaults of requests to all models */
    /* Command line of the worker: options for opening models and for the log. */
    xd_defaults     worker;
} xd_serve_flags;

/* Parses argv[0..argc). The strings in *f point into argv. XD_EINVAL: an option is invalid; the
 * error message names the option. The caller must call xd_serve_flags_free also after a failure. */
xd_status xd_serve_flags_read(xd_serve_flags *f, int argc, char **argv, xd_err *e);
void      xd_serve_flags_free(xd_serve_flags *f);
void      xd_serve_flags_help(FILE *out);

#endif
