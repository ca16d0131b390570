/* ask_fields.c - the fields of a request, whichever way they come: JSON, a form, multipart */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "serve/server.h"

static const xd_ask_field *find_field(const xd_ask_field *fields, const char *name)
{
    while (fields->name && strcmp(fields->name, name) != 0)
        fields++;
    return fields->name ? fields : NULL;
}

static void set_format(xd_ask *a, const char *value)
{
    xd_ask_format(a, "output_format", value);
}

typedef void set_text(xd_ask *a, const char *value);

/* What all interfaces call the same; NULL: none of it. */
static set_text *find_common(const char *name)
{
    static const struct { const char *name; set_text *set; } common[] = {
        { "prompt", xd_ask_prompt }, { "model", xd_ask_model }, { "size", xd_ask_size },
        { "output_format", set_format } };
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (strcmp(common[i].name, name) == 0)
            return common[i].set;
    return NULL;
}

static void refuse_field(xd_ask *a, const char *name)
{
    if (!a->lenient)
        xd_ask_refuse(a, 400, name, "there is no field '%.40s'; options are named as those of "
                  "xdit generate", name);
}

/* "data:...", {"image_url": "data:..."} or {"image_url": {"url": "data:..."}}. */
static void take_json_image(xd_ask *a, const xd_ask_field *f, const xd_json *v)
{
    const xd_json *url = xd_json_get(v, "image_url");
    const char    *text = xd_json_text(v) ? xd_json_text(v)
                        : xd_json_text(url) ? xd_json_text(url)
                                            : xd_json_text(xd_json_get(url, "url"));
    if (text && !*text && a->lenient)
        return;                 /* clients of A1111 leave fields empty                         */
    if (text)
        xd_ask_data_url(a, f->file, text);
    else
        xd_ask_refuse(a, 400, f->name, "%s is a data URL, or {\"image_url\": \"data:...\"}",
                      f->name);
}

/* Readers of JSON have whole numbers up to 2^53: a longer one would come as its neighbour. */
static void check_seed(xd_ask *a, const char *name, double number)
{
    if (strcmp(name, "seed") == 0 && fabs(number) > 0x1p53)
        xd_ask_refuse(a, 400, name, "a seed beyond 2^53 is given as a text, \"seed\": \"%.0f\", "
                      "since a number of JSON has not all of its digits", number);
}

static void take_json(xd_ask *a, const xd_ask_field *fields, void *cookie, const xd_json *v)
{
    const char         *name = xd_json_key(v) ? xd_json_key(v) : "", *text = xd_json_text(v);
    const xd_ask_field *f = find_field(fields, name);
    char                number[40];
    double              d;
    int                 on;
    set_text *set = f || a->lenient ? NULL : find_common(name);
    if (xd_json_number(v, &d))
        check_seed(a, name, d);
    if ((f || set) && xd_json_null(v))
        return;
    if (set && text)
        set(a, text);
    else if (set)
        xd_ask_refuse(a, 400, name, "%s is a text", name);
    if (set)
        return;
    if (f && f->file) {
        const xd_json *i = xd_json_is_list(v) ? xd_json_first(v) : v;
        for (; i; i = i == v ? NULL : xd_json_next(i))
            take_json_image(a, f, i);
        return;
    }
    if (!f) {
        if (a->lenient || !xd_ask_named(a, name, v))
            refuse_field(a, name);
        return;
    }
    if (xd_json_number(v, &d))
        snprintf(number, sizeof number, "%.17g", d), text = number;
    else if (xd_json_bool(v, &on))
        text = on ? "true" : "false";
    if (text)
        f->set(cookie, name, text);
    else
        xd_ask_refuse(a, 400, name, "%s is a text or a number", name);
}

static void take_part(xd_ask *a, const xd_ask_field *fields, void *cookie, const xd_part *p)
{
    const xd_ask_field *f = find_field(fields, p->name);
    set_text           *set = f ? NULL : find_common(p->name);
    if (set)
        set(a, p->data);
    else if (f && f->file && p->file)
        xd_ask_file(a, f->file, p->data, p->bytes);
    else if (f && f->file)
        xd_ask_data_url(a, f->file, p->data);
    else if (f)
        f->set(cookie, p->name, p->data);
    else if (!xd_ask_named_text(a, p->name, p->data))
        refuse_field(a, p->name);
}

void xd_ask_fields(xd_ask *a, const xd_ask_field *fields, void *cookie)
{
    const xd_http_call *c = a->call;
    if (!c->json && !c->nparts)
        xd_ask_refuse(a, 400, NULL, "the body is a JSON object or multipart/form-data with a "
                      "prompt");
    if (c->json && !xd_json_is_object(c->json))
        xd_ask_refuse(a, 400, NULL, "the body is a JSON object");
    for (const xd_json *v = xd_json_first(c->json); v && !a->failed; v = xd_json_next(v))
        take_json(a, fields, cookie, v);
    for (int i = 0; i < c->nparts && !a->failed; i++)
        take_part(a, fields, cookie, &c->parts[i]);
}
