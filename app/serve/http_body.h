/* http_body.h - the body of a request while it comes: JSON, multipart/form-data, a form, bytes */
#ifndef XD_SERVE_HTTP_BODY_H
#define XD_SERVE_HTTP_BODY_H

#include "serve/http.h"

#include <stdatomic.h>

struct MHD_PostProcessor;

/* What the bodies of all requests have together: those that come, and those whose requests have
 * not been answered. */
typedef struct xd_body_pool {
    atomic_size_t bytes;
    size_t        most;         /* 0: any number                                               */
} xd_body_pool;

typedef struct xd_body {
    xd_http_call *call;
    struct MHD_PostProcessor *form;     /* NULL: not in parts                                   */
    char    *data;
    size_t   bytes, cap, total, most;
    xd_body_pool *pool;
    size_t   pooled;            /* bytes that are counted there                                */
    int      status;            /* of the reply to a body that cannot be taken; 0: it can      */
    int      crowded;           /* others have the pool's bytes                                */
} xd_body;

void xd_body_begin(xd_body *b, xd_http_call *c, size_t most, xd_body_pool *pool);
void xd_body_add(xd_body *b, const char *data, size_t bytes);
/* All of it has come, and is in the call. 0: it is wrong, and the reply says how. */
int  xd_body_end(xd_body *b, xd_http_call *c);
void xd_body_free(xd_body *b, xd_http_call *c);

#endif
