/* request_fields.c - reads the fields of a request from a JSON body, a form or
 * multipart/form-data */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "serve/server.h"

static const xd_api_req_field *find_field(const xd_api_req_field *fields, const char *name)
{
    while (fields->name && strcmp(fields->name, name) != 0)
        fields++;
    return fields->name ? fields : NULL;
}

static void set_format(xd_api_req *r, const char *value)
{
    xd_api_req_format(r, "output_format", value);
}

typedef void set_text(xd_api_req *r, const char *value);

/* Returns the function that sets a field which has the same name in all interfaces; NULL: no field
 * has the name. */
static set_text *find_common(const char *name)
{
    static const struct {
        const char *name;
        set_text   *set;
    } common[] = { { "prompt", xd_api_req_prompt },
                   { "model", xd_api_req_model },
                   { "size", xd_api_req_size },
                   { "output_format", set_format } };
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (strcmp(common[i].name, name) == 0)
            return common[i].set;
    return NULL;
}

static void refuse_field(xd_api_req *r, const char *name)
{
    if (!r->lenient)
        xd_api_req_refuse(r, 400, name,
                          "there is no field '%.40s'; options have the names of "
                          "those of xdit generate",
                          name);
}

/* Adds an image that is given as "data:...", {"image_url": "data:..."} or {"image_url": {"url":
 * "data:..."}}. */
static void set_json_image(xd_api_req *r, const xd_api_req_field *f, const xd_json *v)
{
    const xd_json *url = xd_json_get(v, "image_url");
    const char    *text = xd_json_text(v)     ? xd_json_text(v)
                          : xd_json_text(url) ? xd_json_text(url)
                                              : xd_json_text(xd_json_get(url, "url"));
    if (text && !*text && r->lenient)
        return; /* ignore an empty field, which clients of A1111 send */
    if (text)
        xd_api_req_url(r, f->file, text);
    else
        xd_api_req_refuse(r, 400, f->name,
                          "%s must be a data URL, or {\"image_url\": "
                          "\"data:...\"}",
                          f->name);
}

/* Refuses a JSON seed above 2^53, because JSON numbers are parsed as doubles, which would round the
 * seed. */
static void check_seed(xd_api_req *r, const char *name, double number)
{
    if (strcmp(name, "seed") == 0 && fabs(number) > 0x1p53)
        xd_api_req_refuse(r, 400, name,
                          "a seed above 2^53 must be a text, \"seed\": \"%.0f\", "
                          "since JSON numbers are rounded",
                          number);
}

static void set_json(xd_api_req *r, const xd_api_req_field *fields, void *cookie, const xd_json *v)
{
    const char             *name = xd_json_key(v) ? xd_json_key(v) : "", *text = xd_json_text(v);
    const xd_api_req_field *f = find_field(fields, name);
    char                    number[40];
    double                  d;
    int                     on;
    set_text               *set = f || r->lenient ? NULL : find_common(name);
    if (xd_json_number(v, &d))
        check_seed(r, name, d);
    if ((f || set) && xd_json_null(v))
        return;
    if (set && text)
        set(r, text);
    else if (set)
        xd_api_req_refuse(r, 400, name, "%s must be a text", name);
    if (set)
        return;
    if (f && f->file) {
        const xd_json *i = xd_json_is_list(v) ? xd_json_first(v) : v;
        for (; i; i = i == v ? NULL : xd_json_next(i))
            set_json_image(r, f, i);
        return;
    }
    if (!f) {
        if (r->lenient || !xd_api_req_by_name(r, name, v))
            refuse_field(r, name);
        return;
    }
    if (xd_json_number(v, &d))
        snprintf(number, sizeof number, "%.17g", d), text = number;
    else if (xd_json_bool(v, &on))
        text = on ? "true" : "false";
    if (text)
        f->set(cookie, name, text);
    else
        xd_api_req_refuse(r, 400, name, "%s must be a text or a number", name);
}

static void set_part(xd_api_req *r, const xd_api_req_field *fields, void *cookie, const xd_part *p)
{
    const xd_api_req_field *f = find_field(fields, p->name);
    set_text               *set = f ? NULL : find_common(p->name);
    if (set)
        set(r, p->data);
    else if (f && f->file && p->file)
        xd_api_req_file(r, f->file, p->data, p->bytes);
    else if (f && f->file)
        xd_api_req_url(r, f->file, p->data);
    else if (f)
        f->set(cookie, p->name, p->data);
    else if (!xd_api_req_by_name_text(r, p->name, p->data))
        refuse_field(r, p->name);
}

void xd_api_req_fields(xd_api_req *r, const xd_api_req_field *fields, void *cookie)
{
    const xd_http_call *c = r->call;
    if (!c->json && !c->nparts)
        xd_api_req_refuse(r, 400, NULL,
                          "the body must be a JSON object or multipart/form-data "
                          "with a prompt");
    if (c->json && !xd_json_is_object(c->json))
        xd_api_req_refuse(r, 400, NULL, "the body must be a JSON object");
    for (const xd_json *v = xd_json_first(c->json); v && !r->failed; v = xd_json_next(v))
        set_json(r, fields, cookie, v);
    for (int i = 0; i < c->nparts && !r->failed; i++)
        set_part(r, fields, cookie, &c->parts[i]);
}
