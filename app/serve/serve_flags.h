/* serve_flags.h - the command line of xdit serve */
#ifndef XD_SERVE_SERVE_FLAGS_H
#define XD_SERVE_SERVE_FLAGS_H

#include "cli/open_flags.h"
#include "serve/defaults.h"

typedef struct xd_serve_model { /* of one --model                                              */
    char       *text;           /* what the two are in                                         */
    const char *name, *path;    /* name: that requests use; NULL: the path's own               */
    xd_defaults defaults;       /* of requests of this model, those of all models among them    */
} xd_serve_model;

typedef struct xd_serve_flags {
    const char   *host, *loras, *results, *tls_cert, *tls_key, *access_log;
    xd_opt_texts  texts, keys, origins, urls;   /* texts: of --model                           */
    int           port, queue, connections, no_auth, omit_folders, verbose, quiet;
    int64_t       max_body, max_bodies; /* bytes; 0: eight times max_body                      */
    int64_t       max_pixels;   /* 0: by the model                                             */
    double        keep_s, keep_mb;      /* of results                                          */
    double        request_timeout, worker_timeout;
    xd_open_flags open;
    xd_opt_table  tables[4];
    xd_opt_spec   spec;
    xd_request    request;      /* takes the options of requests, so that they are checked      */
    /* What xd_serve_flags_read makes of them. */
    xd_serve_model *models;     /* [nmodels]                                                   */
    int             nmodels;
    xd_defaults     defaults;   /* of requests of all models                                   */
    xd_defaults     worker;     /* arguments of the worker: how models are opened, and the log  */
} xd_serve_flags;

/* Reads argv[0..argc), which the record then points into. xd_serve_flags_free also after a failure.
 * XD_EINVAL with one sentence. */
xd_status xd_serve_flags_read(xd_serve_flags *f, int argc, char **argv, xd_err *e);
void      xd_serve_flags_free(xd_serve_flags *f);
void      xd_serve_flags_help(FILE *out);

#endif
