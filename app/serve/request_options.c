/* request_options.c - sets the options of a request by their names, and applies the server's
 * defaults */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/word_list.h"
#include "serve/defaults.h"
#include "serve/server.h"

/* ---- setting options by their name ----------------------------------------------------------- */

static const struct {
    const char *from, *to;
} aliases[] = {
    { "n", "num_images_per_prompt" },          { "steps", "num_inference_steps" },
    { "cfg_scale", "guidance_scale" },         { "sampler_name", "scheduler" },
    { "num_images", "num_images_per_prompt" },
};

/* Returns the option with this name or alias; NULL: there is no such option. Options whose value is
 * a file name are excluded, because requests must not name files of this host (see also
 * set_fast_attn). */
static const xd_option *option_of(const char *name)
{
    int              n;
    const xd_option *o = xd_defaults_rows(&n);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(aliases[i].from, name) == 0)
            name = aliases[i].to;
    for (int i = 0; i < n; i++)
        if (strcmp(o[i].name, name) == 0)
            return &o[i];
    return NULL;
}

int xd_option_takes_numbers(const xd_option *o)
{
    return o->kind == XD_OPT_TEXT && strchr(o->arg, ',') != NULL;
}

int xd_option_takes_texts(const xd_option *o)
{
    return o->kind == XD_OPT_TEXT && strcmp(o->arg, "TEXT") == 0;
}

/* Sets the request's "priority" or "deadline". Returns 0 if the option `name` is neither "priority"
 * nor "deadline". */
static int set_order(xd_api_req *r, const char *name, const char *value)
{
    static const char *const classes[] = { "low", "normal", "high" };
    char                    *end;
    double                   seconds = strtod(value, &end);
    int                      k = 0;
    if (strcmp(name, "deadline") == 0) {
        if (!(seconds > 0) || *end || seconds > 1e9)
            xd_api_req_refuse(r, 400, name,
                              "deadline must be a number of seconds above 0, after "
                              "which the request is cancelled, not '%.40s'",
                              value);
        else if (!r->failed)
            r->task->deadline_s = xd_now_s() + seconds;
        return 1;
    }
    if (strcmp(name, "priority") != 0)
        return 0;
    while (k < 3 && strcmp(classes[k], value) != 0)
        k++;
    if (k == 3)
        xd_api_req_refuse(r, 400, name, "priority must be low, normal or high, not '%.40s'", value);
    else if (!r->failed)
        r->task->priority = k - 1;
    return 1;
}

/* Sets fast_attn to a list of methods. The name of a table file is refused for fast_attn, because
 * requests must not name files of this host. */
static void set_fast_attn(xd_api_req *r, const char *value)
{
    size_t n = strspn(value, "abcdefghijklmnopqrstuvwxyz+,");
    if (value[n])
        xd_api_req_refuse(r, 400, "fast_attn",
                          "fast_attn must be a list of share, window, "
                          "window+cfg, full+cfg and full, not '%.60s'",
                          value);
    else
        xd_api_req_option(r, "fast_attn", value);
}

int xd_api_req_by_name_text(xd_api_req *r, const char *name, const char *value)
{
    const xd_option *option = option_of(name);
    if (set_order(r, name, value))
        return 1;
    if (strcmp(name, "lora") == 0 || strcmp(name, "loras") == 0)
        xd_api_req_lora(r, value);
    else if (strcmp(name, "fast_attn") == 0)
        set_fast_attn(r, value);
    else if (option)
        xd_api_req_option(r, option->name, value);
    else
        return 0;
    return 1;
}

/* Adds a LoRA file that is given as {"name": "file", "scale": 0.8} or "file:0.8". */
static void set_lora_json(xd_api_req *r, const xd_json *v)
{
    char           text[256];
    double         scale = 1;
    const char    *name = xd_json_text(xd_json_get(v, "name"));
    const xd_json *given = xd_json_get(v, "scale");
    name = name ? name : xd_json_text(xd_json_get(v, "path"));
    if ((!name && !xd_json_text(v)) || (!xd_json_null(given) && !xd_json_number(given, &scale))) {
        xd_api_req_refuse(r, 400, "lora",
                          "a LoRA file must be \"name:0.8\" or {\"name\": "
                          "\"name\", \"scale\": 0.8}");
        return;
    }
    snprintf(text, sizeof text, "%.200s:%.17g", name ? name : "", scale);
    xd_api_req_lora(r, name ? text : xd_json_text(v));
}

/* Sets an option to a JSON list of numbers: [1, 0.75, 0.5] becomes "1,0.75,0.5". */
static void set_numbers(xd_api_req *r, const char *name, const xd_json *list)
{
    xd_text_buf b = { 0 };
    double      number;
    for (const xd_json *v = xd_json_first(list); v; v = xd_json_next(v)) {
        if (!xd_json_number(v, &number))
            xd_api_req_refuse(r, 400, name, "%s must be a list of numbers, or a text of them",
                              name);
        else
            xd_buf_add(&b, "%s%.17g", b.len ? "," : "", number);
    }
    if (b.failed)
        xd_api_req_refuse(r, 503, NULL, "out of memory for a list of numbers");
    else
        xd_api_req_by_name_text(r, name, b.p ? b.p : "");
    xd_buf_free(&b);
}

static void set_texts(xd_api_req *r, const char *name, const xd_json *list)
{
    for (const xd_json *v = xd_json_first(list); v; v = xd_json_next(v)) {
        if (!xd_json_text(v))
            xd_api_req_refuse(r, 400, name, "%s must be a text, or a list with a text per prompt",
                              name);
        else
            xd_api_req_option(r, name, xd_json_text(v));
    }
}

int xd_api_req_by_name(xd_api_req *r, const char *name, const xd_json *value)
{
    char             text[40];
    double           number;
    int              on, orders = strcmp(name, "priority") == 0 || strcmp(name, "deadline") == 0,
                         loras = strcmp(name, "lora") == 0 || strcmp(name, "loras") == 0;
    const char      *given = xd_json_text(value);
    const xd_option *option = option_of(name);
    if (!option && !orders && !loras)
        return 0;
    if (xd_json_null(value))
        return 1;
    if (loras) {
        const xd_json *v = xd_json_is_list(value) ? xd_json_first(value) : value;
        for (; v; v = v == value ? NULL : xd_json_next(v))
            set_lora_json(r, v);
        return 1;
    }
    if (xd_json_number(value, &number))
        snprintf(text, sizeof text, "%.17g", number), given = text;
    else if (xd_json_bool(value, &on))
        given = on ? "true" : "false";
    if (option && xd_option_takes_numbers(option) && xd_json_is_list(value))
        set_numbers(r, name, value);
    else if (option && xd_option_takes_texts(option) && xd_json_is_list(value))
        set_texts(r, name, value);
    else if (!given)
        xd_api_req_refuse(r, 400, name, "%s must be a text, a number, true or false", name);
    else
        xd_api_req_by_name_text(r, name, given);
    return 1;
}

/* ---- the option eta, the amount of noise per step -------------------------------------------- */

static const char *sampler_of(const xd_api_req *r)
{
    static const char flag[] = "--scheduler=";
    const char       *name = "";
    for (int i = 0; !r->failed && i < r->task->nargs; i++)
        if (strncmp(r->task->args[i], flag, sizeof flag - 1) == 0)
            name = r->task->args[i] + sizeof flag - 1;
    return name;
}

xd_eta_kind xd_api_req_eta_kind(const xd_api_req *r)
{
    static const struct {
        const char *name;
        xd_eta_kind kind;
    } samplers[] = { { "DDIM", XD_ETA_DDIM },
                     { "DDIMScheduler", XD_ETA_DDIM },
                     { "TCD", XD_ETA_DDIM },
                     { "TCDScheduler", XD_ETA_DDIM },
                     { "Euler a", XD_ETA_ANCESTRAL },
                     { "euler-ancestral", XD_ETA_ANCESTRAL },
                     { "EulerAncestralDiscreteScheduler", XD_ETA_ANCESTRAL } };
    for (size_t i = 0; i < sizeof samplers / sizeof *samplers; i++)
        if (strcasecmp(samplers[i].name, sampler_of(r)) == 0)
            return samplers[i].kind;
    return XD_ETA_NONE;
}

/* Sets eta, the amount of noise per step. An ancestral sampler with eta 0 adds no noise and equals
 * the sampler without noise, so eta 0 selects Euler in place of Euler ancestral. */
void xd_api_req_eta(xd_api_req *r, double eta)
{
    char        text[40];
    xd_eta_kind kind = xd_api_req_eta_kind(r);
    snprintf(text, sizeof text, "%.17g", eta);
    if (kind == XD_ETA_DDIM)
        xd_api_req_option(r, "eta", text);
    else if (kind == XD_ETA_ANCESTRAL && !(eta > 0 || eta < 0))
        xd_api_req_option(r, "scheduler", "Euler");
    else if (kind == XD_ETA_ANCESTRAL && (eta > 1 || eta < 1))
        xd_api_req_refuse(r, 400, "eta",
                          "eta is %g; the sampler %s supports only 1 (full noise) "
                          "and 0 (none)",
                          eta, sampler_of(r));
}

/* ---- defaults -------------------------------------------------------------------------------- */

enum { MAX_NAME = 64 };

/* Returns nonzero if one of the first n arguments sets the option or overrides the option's
 * default. */
static int is_given(const xd_api_req *r, const char *name, int n)
{
    char given[MAX_NAME];
    int  found = r->random_seed && strcmp(name, "seed") == 0;
    for (int i = 0; i < n; i++)
        found |= xd_option_overrides(xd_default_name(r->task->args[i], given, sizeof given), name);
    return found;
}

void xd_api_req_default(xd_api_req *r, const char *name, const char *value)
{
    if (!r->failed && !is_given(r, name, r->task->nargs))
        xd_api_req_option(r, name, value);
}

/* Returns nonzero if the default of an option applies to the request; some defaults apply only to
 * videos or to requests with a start image. */
static int applies(const xd_api_req *r, const char *name)
{
    if (xd_list_has("num_frames seconds fps", name))
        return r->task->video;
    if (strcmp(name, "strength") == 0)
        return r->images > 0 && xd_api_req_model_accepts(r, name);
    if (strcmp(name, "padding_mask_crop") == 0)
        return xd_task_has(r->task, "--mask_image=");
    return !(r->images || xd_task_has(r->task, "--control_image=")) || r->task->video ||
           !xd_list_has("width height", name);
}

void xd_api_req_defaults(xd_api_req *r)
{
    char name[MAX_NAME];
    if (!r->failed && !r->model)
        xd_api_req_model(r, NULL);
    if (r->failed || r->defaults_set)
        return;
    int n = r->task->nargs;
    r->defaults_set = 1;
    for (int i = 0; i < r->model->defaults.n; i++) {
        const char *text = r->model->defaults.v[i];
        xd_default_name(text, name, sizeof name);
        if (applies(r, name) && !is_given(r, name, n))
            xd_api_req_option(r, name, xd_default_value(text));
    }
}

/* Chooses a random seed, unless the request has a seed. The seeds of all images of the request fit
 * into 31 bits, for clients with small integers. */
void xd_api_req_seed(xd_api_req *r)
{
    enum { SEEDS = 2147480000 };
    char     text[24];
    uint32_t seed;
    if (r->failed || xd_task_has(r->task, "--seed="))
        return;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        seed = (uint32_t)time(NULL);
    snprintf(text, sizeof text, "%u", (unsigned)(seed % SEEDS));
    xd_api_req_option(r, "seed", text);
}
