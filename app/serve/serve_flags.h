/* serve_flags.h - the command line of xdit serve */
#ifndef XD_SERVE_SERVE_FLAGS_H
#define XD_SERVE_SERVE_FLAGS_H

#include "cli/open_flags.h"

typedef struct xd_serve_flags {
    const char   *host, *loras, *results, *tls_cert, *tls_key;
    xd_opt_texts  models, keys, origins, urls;
    int           port, queue, connections, no_auth, omit_folders, verbose, quiet;
    int64_t       max_body, max_bodies; /* bytes; 0: eight times max_body                      */
    double        keep_s, keep_mb;      /* of results                                          */
    double        request_timeout, worker_timeout;
    xd_open_flags open;
    xd_opt_table  tables[3];
    xd_opt_spec   spec;
} xd_serve_flags;

/* Reads argv[0..argc), which the record then points into. xd_serve_flags_free also after a failure.
 * XD_EINVAL with one sentence. */
xd_status xd_serve_flags_read(xd_serve_flags *f, int argc, char **argv, xd_err *e);
void      xd_serve_flags_free(xd_serve_flags *f);
void      xd_serve_flags_help(FILE *out);

#endif
