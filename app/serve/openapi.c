/* openapi.c - adds the options of a request to the OpenAPI document (openapi.json), from the same
 * table with which requests set these options. */
#include <string.h>

#include "base/json.h"
#include "serve/defaults.h"
#include "serve/server.h"

/* text in openapi.json that is replaced by the options */
static const char gap[] = "\"(options)\": {},";

static void add_numbers(xd_text_buf *b, const xd_option *o, const char *type)
{
    xd_buf_add(b, "\"type\": \"%s\", \"minimum\": %.10g, \"maximum\": %.10g, ", type, o->min,
               o->max);
}

/* Appends each name in a list as a JSON text; spaces separate the names in the list. */
static void add_choices(xd_text_buf *b, const char *names)
{
    xd_buf_add(b, "\"type\": \"string\", \"enum\": [");
    for (const char *p = names; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        xd_buf_add(b, "%s\"%.*s\"", p == names ? "" : ", ", (int)n, p);
        p += n;
    }
    xd_buf_add(b, "], ");
}

static void add_text(xd_text_buf *b, const xd_option *o)
{
    if (o->choices)
        add_choices(b, o->choices);
    else if (xd_option_takes_texts(o))
        xd_buf_add(b, "\"oneOf\": [{\"$ref\": \"#/components/schemas/Texts\"}], ");
    else if (xd_option_takes_numbers(o))
        xd_buf_add(b, "\"oneOf\": [{\"$ref\": \"#/components/schemas/Numbers\"}], ");
    else if (strncmp(o->arg, "FILE|", 5) == 0)
        xd_buf_add(b, "\"type\": \"string\", \"pattern\": \"^[a-z+,]*$\", ");
    else
        xd_buf_add(b, "\"type\": \"string\", ");
}

static void add_option(xd_text_buf *b, const xd_option *o)
{
    xd_buf_add(b, "\"%s\": {", o->name);
    if (o->kind == XD_OPT_TEXT)
        add_text(b, o);
    else if (o->kind == XD_OPT_FLAG)
        xd_buf_add(b, "\"type\": \"boolean\", ");
    else if (o->kind == XD_OPT_SEED)
        xd_buf_add(b, "\"type\": \"integer\", ");
    else
        add_numbers(b, o, o->kind == XD_OPT_REAL ? "number" : "integer");
    xd_buf_add(b, "\"description\": ");
    xd_buf_json_string(b, o->help);
    xd_buf_add(b, "},\n     ");
}

void xd_openapi_document(const char *data, size_t bytes, xd_text_buf *b)
{
    xd_text_buf      all = { 0 };
    int              n;
    const xd_option *o = xd_defaults_rows(&n);
    xd_buf_add(&all, "%.*s", (int)bytes, data);
    const char *at = all.failed ? NULL : strstr(all.p, gap);
    if (at) {
        xd_buf_add(b, "%.*s", (int)(at - all.p), all.p);
        for (int i = 0; i < n; i++)
            add_option(b, &o[i]);
        xd_buf_add(b, "%s", at + strlen(gap));
    }
    b->failed |= !at;
    xd_buf_free(&all);
}
