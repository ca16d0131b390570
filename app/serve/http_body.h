/* http_body.h - receives the body of an HTTP request, which may be JSON, multipart/form-data, a
 * form, or other bytes */
#ifndef XD_SERVE_HTTP_BODY_H
#define XD_SERVE_HTTP_BODY_H

#include "serve/http.h"

#include <stdatomic.h>

struct MHD_PostProcessor;

/* Counter of the memory that all request bodies use together. The bytes of a request body count
 * from the arrival of its first byte until the reply is sent. */
typedef struct xd_body_pool {
    atomic_size_t bytes;
    size_t        max; /* maximum bytes of all bodies; 0: no limit */
} xd_body_pool;

typedef struct xd_body {
    xd_http_call             *call;
    struct MHD_PostProcessor *form; /* parser of a form; NULL: the body is no form */
    char                     *data;
    size_t                    bytes, cap; /* bytes in `data`, and allocated bytes of `data` */
    size_t        total, max; /* bytes of this body received so far, and maximum bytes of a body */
    xd_body_pool *pool;
    size_t        pooled; /* bytes of this body that the pool counts */
    int           status; /* HTTP status if the body is refused; 0: not refused */
    /* 1: the body is refused because all request bodies together need too much memory */
    int           pool_full;
} xd_body;

void xd_body_begin(xd_body *b, xd_http_call *c, size_t max, xd_body_pool *pool);
void xd_body_add(xd_body *b, const char *data, size_t bytes);
/* Stores the complete body in the call. If the body of the request is refused, creates the reply
 * and returns 0. */
int  xd_body_end(xd_body *b, xd_http_call *c);
void xd_body_free(xd_body *b, xd_http_call *c);

#endif
