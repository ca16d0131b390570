/* api_page.c - serves the web page at / and the OpenAPI document, which are files embedded in the
 * program.
 *
 * The web page itself needs no API key, but the page's requests do. The page loads nothing from
 * other servers; a content security policy enforces this. */
#include <string.h>

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

static void send_file(xd_http_call *c, const char *name)
{
    const xd_page_file *f = find_file(name);
    const char         *known = xd_http_header(c, "If-None-Match");
    if (!f) {
        xd_reply_error(c, 404, NULL, NULL, "there is nothing at %.200s", c->path);
        return;
    }
    if (known && strstr(known, f->tag))
        xd_reply_text(c, 304, f->type, "", 0);
    else
        xd_reply_text(c, 200, f->type, (const char *)f->data, f->bytes);
    xd_reply_header(c, "ETag", f->tag);
    xd_reply_header(c, "Cache-Control", "no-cache");
    xd_reply_header(c, "Content-Security-Policy", policy);
    xd_reply_header(c, "Referrer-Policy", "no-referrer");
}

void xd_api_page(xd_http_call *c)
{
    send_file(c, c->arg[0] ? c->arg : "index.html");
}

void xd_api_openapi(xd_http_call *c)
{
    send_file(c, "openapi.json");
}
