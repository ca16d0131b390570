/* api_page.c - serves the web page at / and the OpenAPI document, which are files embedded in the
 * program.
 *
 * The web page itself can be loaded without an API key, but the requests that the page sends need a
 * key. The page loads nothing from other servers; a content security policy enforces this. */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "serve/page_files.h"
#include "serve/server.h"

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'";

static const xd_page_file *find_file(const char *name)
{
    const xd_page_file *f = xd_page_files;
    while (f->name && strcmp(f->name, name) != 0)
        f++;
    return f->name ? f : NULL;
}

static void send_data(xd_http_call *c, const char *type, const char *tag, const void *data,
                      size_t bytes)
{
    const char *known = xd_http_header(c, "If-None-Match");
    if (known && strstr(known, tag))
        xd_reply_text(c, 304, type, "", 0);
    else
        xd_reply_text(c, 200, type, data, bytes);
    xd_reply_header(c, "ETag", tag);
    xd_reply_header(c, "Cache-Control", "no-cache");
    xd_reply_header(c, "Content-Security-Policy", policy);
    xd_reply_header(c, "Referrer-Policy", "no-referrer");
}

void xd_api_page(xd_http_call *c)
{
    const xd_page_file *f = find_file(c->arg[0] ? c->arg : "index.html");
    if (f)
        send_data(c, f->type, f->tag, f->data, f->bytes);
    else
        xd_reply_error(c, 404, NULL, NULL, "there is nothing at %.200s", c->path);
}

void xd_api_openapi(xd_http_call *c)
{
    const xd_page_file *f = find_file("openapi.json");
    xd_text_buf         b = { 0 };
    char                tag[24];
    xd_openapi_document((const char *)f->data, f->bytes, &b);
    snprintf(tag, sizeof tag, "\"%016llx\"", (unsigned long long)xd_hash_text(b.p ? b.p : ""));
    if (b.failed)
        xd_reply_error(c, 503, NULL, NULL, "no memory for the OpenAPI document");
    else
        send_data(c, f->type, tag, b.p, b.len);
    xd_buf_free(&b);
}
