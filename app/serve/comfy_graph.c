/* comfy_graph.c - reads a graph of ComfyUI and checks it against the table of node classes
 *
 * The types and texts of errors are those of ComfyUI, because clients show them. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/comfy.h"

enum { MAX_NODES = 300, MAX_SHOWN = 60 };
enum { NEW, OPEN, DONE };               /* states of a node during the check */
static const double MAX_WHOLE = 0x1p53; /* JSON numbers above are rounded */

/* ---- errors ---------------------------------------------------------------------------------- */

static void fail_graph(xd_comfy_graph *g, const char *type, const char *message, const char *fmt,
                       ...) XD_PRINTF(4, 5);

/* Records the error of a whole graph; the first error counts. */
static void fail_graph(xd_comfy_graph *g, const char *type, const char *message, const char *fmt,
                       ...)
{
    va_list ap;
    if (*g->type)
        return;
    snprintf(g->type, sizeof g->type, "%s", type);
    snprintf(g->message, sizeof g->message, "%s", message);
    va_start(ap, fmt);
    vsnprintf(g->details, sizeof g->details, fmt, ap);
    va_end(ap);
}

void xd_comfy_fail(xd_comfy_graph *g, xd_comfy_node *node, const char *type, const char *input,
                   const char *message, const char *fmt, ...)
{
    char         text[4096];
    xd_text_buf *b = &node->errors;
    va_list      ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    xd_buf_add(b, "%s{\"type\":\"%s\",\"message\":", b->len ? "," : "", type);
    xd_buf_json_string(b, message);
    xd_buf_add(b, ",\"details\":");
    xd_buf_json_string(b, text);
    xd_buf_add(b, ",\"extra_info\":{");
    if (input) {
        xd_buf_add(b, "\"input_name\":");
        xd_buf_json_string(b, input);
    }
    xd_buf_add(b, "}}");
    fail_graph(g, "prompt_outputs_failed_validation", "Prompt outputs failed validation",
               "%s %s: %s%s%s", node->class->name, node->id, message, *text ? ": " : "", text);
}

void xd_comfy_reply_errors(xd_http_call *c, const xd_comfy_graph *g)
{
    xd_text_buf b = { 0 };
    int         n = 0;
    xd_buf_add(&b, "{\"error\":{\"type\":\"%s\",\"message\":", g->type);
    xd_buf_json_string(&b, g->message);
    xd_buf_add(&b, ",\"details\":");
    xd_buf_json_string(&b, g->details);
    xd_buf_add(&b, ",\"extra_info\":{}},\"node_errors\":{");
    for (int i = 0; i < g->n; i++) {
        const xd_comfy_node *v = &g->nodes[i];
        if (!v->errors.len)
            continue;
        xd_buf_add(&b, "%s", n++ ? "," : "");
        xd_buf_json_string(&b, v->id);
        xd_buf_add(&b, ":{\"errors\":[%s],\"dependent_outputs\":[%s],\"class_type\":\"%s\"}",
                   v->errors.p, v->dependents.p ? v->dependents.p : "", v->class->name);
        b.failed |= v->errors.failed | v->dependents.failed;
    }
    xd_buf_add(&b, "}}\n");
    xd_reply_json(c, g->status ? g->status : 400, &b);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    return strcmp((*(xd_comfy_node *const *)a)->id, (*(xd_comfy_node *const *)b)->id);
}

static xd_comfy_node *find_node(const xd_comfy_graph *g, const xd_json *id)
{
    char          number[32];
    double        v;
    const char   *text = xd_json_text(id);
    xd_comfy_node key = { .id = text }, *at = &key;
    if (!text && xd_json_number(id, &v)) { /* some clients write the ids of links as numbers */
        snprintf(number, sizeof number, "%.17g", v);
        key.id = number;
    }
    xd_comfy_node **found = key.id ? bsearch(&at, g->sorted, (size_t)g->n, sizeof *g->sorted, by_id)
                                   : NULL;
    return found ? *found : NULL;
}

int xd_comfy_is(const xd_comfy_node *node, const char *class_name)
{
    return node && strcmp(node->class->name, class_name) == 0;
}

static int is_link(const xd_json *v)
{
    return xd_json_is_list(v);
}

/* Returns the node and the output of a link; NULL: the link is invalid. */
static xd_comfy_node *follow(const xd_comfy_graph *g, const xd_json *link, int *slot)
{
    double at = -1;
    if (!is_link(link) || xd_json_size(link) != 2 || !xd_json_number(xd_json_at(link, 1), &at) ||
        at < 0 || at > 100 || at > floor(at))
        return NULL;
    *slot = (int)at;
    return find_node(g, xd_json_at(link, 0));
}

xd_comfy_node *xd_comfy_linked(const xd_comfy_graph *g, const xd_comfy_node *node,
                               const char *input, int *slot)
{
    int            unused;
    const xd_json *v = node ? xd_json_get(node->inputs, input) : NULL;
    return follow(g, v, slot ? slot : &unused);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Returns the value of an input. A link to a value is followed to the node with the constant, whose
 * only input is `value`. */
static const xd_json *value_of(const xd_comfy_graph *g, const xd_comfy_node *node,
                               const char *input)
{
    const xd_json *v = xd_json_get(node->inputs, input);
    for (int i = 0, slot; v && is_link(v) && i < g->n; i++) {
        node = follow(g, v, &slot);
        v = node ? xd_json_get(node->inputs, "value") : NULL;
    }
    return v;
}

const char *xd_comfy_text(const xd_comfy_graph *g, const xd_comfy_node *node, const char *input)
{
    const char *text = xd_json_text(value_of(g, node, input));
    return text ? text : "";
}

/* Sets *to to a number, which may be a text as in ComfyUI; returns 0 if the value is no number. */
static int read_number(const xd_json *v, double *to)
{
    const char *text = xd_json_text(v);
    char       *end;
    int         on;
    if (xd_json_number(v, to))
        return isfinite(*to);
    if (xd_json_bool(v, &on)) {
        *to = on;
        return 1;
    }
    if (!text || !*text)
        return 0;
    *to = strtod(text, &end);
    return !*end && isfinite(*to);
}

static int find_input(const xd_comfy_class *k, const char *name, xd_comfy_input *in)
{
    const char *at = k->inputs;
    while (xd_comfy_next_input(&at, in))
        if (strcmp(in->name, name) == 0)
            return 1;
    return 0;
}

double xd_comfy_number(const xd_comfy_graph *g, const xd_comfy_node *node, const char *input)
{
    xd_comfy_input in;
    double         v;
    if (read_number(value_of(g, node, input), &v))
        return v;
    return !find_input(node->class, input, &in) ? 0
           : strcmp(in.type, "BOOLEAN") == 0    ? in.text_bytes && in.text[0] == 't'
                                                : in.def;
}

/* ---- check of inputs ------------------------------------------------------------------------- */

static void check_number(xd_comfy_graph *g, xd_comfy_node *node, const xd_comfy_input *in,
                         const xd_json *v)
{
    double number;
    char   message[120];
    int    whole = strcmp(in->type, "INT") == 0;
    if (!read_number(v, &number)) {
        snprintf(message, sizeof message, "Failed to convert an input value to a %s value",
                 in->type);
        xd_comfy_fail(g, node, "invalid_input_type", in->name, message, "%s, %.60s", in->name,
                      xd_json_text(v) ? xd_json_text(v) : "no number");
        return;
    }
    number = whole ? trunc(number) : number;
    if (number < in->min) {
        snprintf(message, sizeof message, "Value %.17g smaller than min of %.17g", number, in->min);
        xd_comfy_fail(g, node, "value_smaller_than_min", in->name, message, "%s", in->name);
    } else if ((number > in->max && !(xd_json_text(v) && in->max >= MAX_WHOLE)) ||
               (whole && number > MAX_WHOLE && !xd_json_text(v))) {
        snprintf(message, sizeof message, "Value %.17g bigger than max of %.17g", number,
                 in->max < MAX_WHOLE ? in->max : MAX_WHOLE);
        xd_comfy_fail(g, node, "value_bigger_than_max", in->name, message, "%s", in->name);
    }
}

static void check_list(xd_comfy_graph *g, xd_comfy_node *node, const xd_comfy_input *in,
                       const xd_json *v)
{
    const char *text = xd_json_text(v);
    xd_text_buf b = { 0 };
    char        path[4200];
    /* a name with a type in brackets is no item of the list of files */
    if (text && strncmp(in->list, "@files", 6) == 0 &&
        xd_comfy_find_image(g->call, text, NULL, NULL, path, sizeof path))
        return;
    if (text && xd_comfy_list_has(g->call, in, text))
        return;
    xd_comfy_list(&b, g->call, in);
    xd_comfy_fail(g, node, "value_not_in_list", in->name, "Value not in list",
                  "%s: '%.200s' not in %.2000s", in->name, text ? text : "(no text)",
                  b.p ? b.p : "[]");
    xd_buf_free(&b);
}

static void check_value(xd_comfy_graph *g, xd_comfy_node *node, const xd_comfy_input *in,
                        const xd_json *v)
{
    double number;
    if (strcmp(in->type, "INT") == 0 || strcmp(in->type, "FLOAT") == 0)
        check_number(g, node, in, v);
    else if (strcmp(in->type, "COMBO") == 0)
        check_list(g, node, in, v);
    else if (strcmp(in->type, "STRING") == 0 ? !xd_json_text(v) : !read_number(v, &number))
        xd_comfy_fail(g, node, "invalid_input_type", in->name,
                      strcmp(in->type, "STRING") == 0
                          ? "Failed to convert an input value to a STRING value"
                          : "Failed to convert an input value to a BOOLEAN value",
                      "%s", in->name);
}

/* Returns nonzero if an output of type `from` may be linked to an input of type `to`. */
static int fits(const char *from, const char *to)
{
    return strcmp(from, to) == 0 || (strcmp(from, "INT") == 0 && strcmp(to, "FLOAT") == 0) ||
           (strcmp(from, "STRING") == 0 && strcmp(to, "COMBO") == 0);
}

/* Checks a link. Returns the node to which it leads; NULL: the link has an error. */
static xd_comfy_node *check_link(xd_comfy_graph *g, xd_comfy_node *node, const xd_comfy_input *in,
                                 const xd_json *v)
{
    char           type[XD_COMFY_NAME];
    int            slot;
    xd_comfy_node *to = follow(g, v, &slot);
    if (!to)
        xd_comfy_fail(g, node, "bad_linked_input", in->name,
                      "Bad linked input, must be a length-2 list of [node_id, slot_index]",
                      "%s: the graph has no node '%.60s'", in->name,
                      xd_json_text(xd_json_at(v, 0)) ? xd_json_text(xd_json_at(v, 0)) : "");
    else if (!xd_comfy_output_type(to->class, slot, type))
        xd_comfy_fail(g, node, "bad_linked_input", in->name,
                      "Bad linked input, must be a length-2 list of [node_id, slot_index]",
                      "%s: %s has no output %d", in->name, to->class->name, slot);
    else if (!fits(type, in->type))
        xd_comfy_fail(g, node, "return_type_mismatch", in->name,
                      "Return type mismatch between linked nodes",
                      "%s, received_type(%s) mismatch input_type(%s)", in->name, type, in->type);
    else
        return to;
    return NULL;
}

static void check_node(xd_comfy_graph *g, xd_comfy_node *node);

static void check_input(xd_comfy_graph *g, xd_comfy_node *node, const xd_comfy_input *in)
{
    const xd_json *v = xd_json_get(node->inputs, in->name);
    if (!v && in->optional)
        return;
    if (!v) {
        xd_comfy_fail(g, node, "required_input_missing", in->name, "Required input is missing",
                      "%s", in->name);
        return;
    }
    if (!is_link(v) && !xd_comfy_is_value(in->type)) {
        xd_comfy_fail(g, node, "bad_linked_input", in->name,
                      "Bad linked input, must be a length-2 list of [node_id, slot_index]", "%s",
                      in->name);
        return;
    }
    if (is_link(v)) {
        xd_comfy_node *to = check_link(g, node, in, v);
        if (!to)
            return;
        if (to->state == OPEN)
            xd_comfy_fail(g, node, "dependency_cycle", in->name, "Dependency cycle detected",
                          "%s leads back to node %.60s", in->name, to->id);
        else
            check_node(g, to);
        if (to->state == OPEN || to->errors.len || !xd_comfy_is_value(in->type))
            return;
        v = value_of(g, node, in->name);
    }
    check_value(g, node, in, v);
}

/* Checks a node after all nodes that it needs, and appends it to the order of execution. The depth
 * of the recursion is at most MAX_NODES. */
static void check_node(xd_comfy_graph *g, xd_comfy_node *node)
{
    const char    *at = node->class->inputs;
    xd_comfy_input in;
    if (node->state != NEW)
        return;
    node->state = OPEN;
    while (xd_comfy_next_input(&at, &in))
        check_input(g, node, &in);
    node->state = DONE;
    g->order[g->norder++] = node;
}

/* ---- a graph --------------------------------------------------------------------------------- */

static void name_title(const xd_json *node, char *to, size_t size)
{
    const char *title = xd_json_text(xd_json_get(xd_json_get(node, "_meta"), "title"));
    snprintf(to, size, "%.60s", title ? title : "");
}

static int read_node(xd_comfy_graph *g, const xd_json *v)
{
    const char    *name = xd_json_text(xd_json_get(v, "class_type"));
    char           title[64];
    xd_comfy_node *node = &g->nodes[g->n];
    node->id = xd_json_key(v);
    node->inputs = xd_json_get(v, "inputs");
    node->class = name ? xd_comfy_class_find(name) : NULL;
    name_title(v, title, sizeof title);
    if (!name)
        fail_graph(g, "invalid_prompt",
                   "Cannot execute because a node is missing the class_type property.",
                   "Node ID '#%.60s'", node->id);
    else if (!node->class)
        fail_graph(g, "missing_node_type", "Node type not found: this server does not support it",
                   "Node ID '#%.60s' has the class_type '%.80s'%s%s%s; /object_info lists the "
                   "supported ones",
                   node->id, name, *title ? " (" : "", title, *title ? ")" : "");
    else if (!xd_json_is_object(node->inputs))
        fail_graph(g, "invalid_prompt", "Cannot execute because a node has no inputs.",
                   "Node ID '#%.60s'", node->id);
    else
        g->sorted[g->n++] = node;
    return !*g->type;
}

/* Adds the id of an output node to the error list of each faulty node on which the output
 * depends. */
static void add_dependents(xd_comfy_graph *g, xd_comfy_node *output)
{
    int            *seen = calloc((size_t)g->n, sizeof *seen), n = 0, at = 0;
    xd_comfy_node **queue = calloc((size_t)g->n, sizeof *queue);
    if (seen && queue) {
        queue[n++] = output;
        seen[output - g->nodes] = 1;
    }
    for (; at < n; at++) {
        if (queue[at]->errors.len) {
            xd_text_buf *b = &queue[at]->dependents;
            xd_buf_add(b, "%s", b->len ? "," : "");
            xd_buf_json_string(b, output->id);
        }
        for (const xd_json *v = xd_json_first(queue[at]->inputs); v; v = xd_json_next(v)) {
            int            slot;
            xd_comfy_node *to = follow(g, v, &slot);
            if (to && !seen[to - g->nodes]) {
                seen[to - g->nodes] = 1;
                queue[n++] = to;
            }
        }
    }
    free(seen);
    free(queue);
}

static int has_outputs(xd_comfy_graph *g)
{
    int outputs = 0;
    for (int i = 0; i < g->n; i++)
        if (g->nodes[i].class->saves) {
            outputs++;
            check_node(g, &g->nodes[i]);
        }
    for (int i = 0; i < g->n && *g->type; i++)
        if (g->nodes[i].class->saves)
            add_dependents(g, &g->nodes[i]);
    return outputs;
}

int xd_comfy_graph_read(xd_comfy_graph *g, const xd_http_call *c, const xd_json *prompt)
{
    int n = xd_json_size(prompt);
    *g = (xd_comfy_graph){ .call = c };
    if (!xd_json_is_object(prompt) || !n) {
        fail_graph(g, "no_prompt", "No prompt provided",
                   "prompt must be an object of nodes in the API format");
        return 0;
    }
    if (n > MAX_NODES) {
        fail_graph(g, "invalid_prompt", "The prompt has too many nodes",
                   "%d nodes; the limit is %d", n, MAX_NODES);
        return 0;
    }
    g->nodes = calloc((size_t)n, sizeof *g->nodes);
    g->sorted = calloc((size_t)n, sizeof(xd_comfy_node *));
    g->order = calloc((size_t)n, sizeof(xd_comfy_node *));
    if (!g->nodes || !g->sorted || !g->order) {
        fail_graph(g, "out_of_memory", "Out of memory", "%d nodes", n);
        g->status = 503;
        return 0;
    }
    for (const xd_json *v = xd_json_first(prompt); v; v = xd_json_next(v))
        if (!read_node(g, v))
            return 0;
    qsort(g->sorted, (size_t)g->n, sizeof *g->sorted, by_id);
    if (!has_outputs(g))
        fail_graph(g, "prompt_no_outputs", "Prompt has no outputs", "%s", "");
    return !*g->type;
}

void xd_comfy_graph_free(xd_comfy_graph *g)
{
    for (int i = 0; i < g->n; i++) {
        xd_buf_free(&g->nodes[i].errors);
        xd_buf_free(&g->nodes[i].dependents);
    }
    free(g->nodes);
    free(g->sorted);
    free(g->order);
}
