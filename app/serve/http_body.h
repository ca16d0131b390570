/* http_body.h - receives the body of a request: JSON, multipart/form-data, a form, bytes */
#ifndef XD_SERVE_HTTP_BODY_H
#define XD_SERVE_HTTP_BODY_H

#include "serve/http.h"

#include <stdatomic.h>

struct MHD_PostProcessor;

/* Memory of all request bodies, from their first byte until the reply is sent. */
typedef struct xd_body_pool {
    atomic_size_t bytes;
    size_t        max;          /* 0: no limit                                                 */
} xd_body_pool;

typedef struct xd_body {
    xd_http_call *call;
    struct MHD_PostProcessor *form;     /* NULL: the body is no form                           */
    char    *data;
    size_t   bytes, cap;        /* of data                                                     */
    size_t   total, max;        /* bytes received; maximum                                     */
    xd_body_pool *pool;
    size_t   pooled;            /* bytes counted in the pool                                   */
    int      status;            /* HTTP status of a refusal; 0: none                           */
    int      pool_full;         /* the refusal is due to other bodies                          */
} xd_body;

void xd_body_begin(xd_body *b, xd_http_call *c, size_t max, xd_body_pool *pool);
void xd_body_add(xd_body *b, const char *data, size_t bytes);
/* Stores the complete body in the call. Returns 0 if it is refused; then the reply is created. */
int  xd_body_end(xd_body *b, xd_http_call *c);
void xd_body_free(xd_body *b, xd_http_call *c);

#endif
