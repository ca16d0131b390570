/* serve_flags.h - parses the command line of xdit serve */
#ifndef XD_SERVE_SERVE_FLAGS_H
#define XD_SERVE_SERVE_FLAGS_H

#include "cli/open_flags.h"
#include "serve/defaults.h"

typedef struct xd_serve_model { /* a value of --model: [NAME=]DIR[,OPTION=VALUE...]             */
    char       *text;           /* owned copy of the value, into which name and path point     */
    const char *name, *path;    /* name in requests (NULL: derived from the path); directory   */
    xd_defaults defaults;       /* defaults of requests to this model, including the defaults for
                                   all models */
} xd_serve_model;

typedef struct xd_serve_flags {
    const char   *host, *loras, *results, *tls_cert, *tls_key, *access_log;
    xd_opt_texts  texts, keys, origins, urls;   /* values of --model, --api_key, --cors,
                                                   --allow_url */
    int           port, queue, connections, no_auth, omit_folders, verbose, quiet;
    int64_t       max_body, max_bodies; /* limits in bytes of one body and of all bodies; max_bodies
                                           0: 8 times max_body */
    int64_t       max_pixels;   /* maximum pixels of a generated image; 0: 16 times the model's
                                   default size */
    double        keep_s, keep_mb;      /* time and size limits for results that are kept      */
    double        request_timeout, worker_timeout;      /* time limits in seconds              */
    xd_open_flags open;
    xd_opt_table  tables[4];
    xd_opt_spec   spec;
    xd_request    request;      /* used only to validate the defaults                          */
    /* xd_serve_flags_read computes the following fields. */
    xd_serve_model *models;     /* [nmodels] values of --model                                 */
    int             nmodels;
    xd_defaults     defaults;   /* defaults of requests to all models                          */
    xd_defaults     worker;     /* arguments of the worker: options of models and of the log    */
} xd_serve_flags;

/* Parses argv[0..argc); *f points into argv. XD_EINVAL: the message names the option. Call
 * xd_serve_flags_free also after a failure. */
xd_status xd_serve_flags_read(xd_serve_flags *f, int argc, char **argv, xd_err *e);
void      xd_serve_flags_free(xd_serve_flags *f);
void      xd_serve_flags_help(FILE *out);

#endif
