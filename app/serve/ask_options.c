/* ask_options.c - options of a request by their names, and those that the server has chosen */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/word_list.h"
#include "serve/server.h"

/* ---- options by their name ------------------------------------------------------------------- */

static const struct { const char *from, *to; } aliases[] = {
    { "n", "num_images_per_prompt" }, { "steps", "num_inference_steps" },
    { "cfg_scale", "guidance_scale" }, { "sampler_name", "scheduler" },
    { "num_images", "num_images_per_prompt" },
};

/* An option of a request that is a value: images come in other ways, paths never. Of a value that
 * may be a path see ask_fast_attn. */
static const char *option_of(const char *name)
{
    int              n;
    const xd_option *o = xd_request_options(&n);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(aliases[i].from, name) == 0)
            name = aliases[i].to;
    for (int i = 0; i < n; i++)
        if (strcmp(o[i].name, name) == 0)
            return o[i].arg && strcmp(o[i].arg, "FILE") == 0 ? NULL : o[i].name;
    return NULL;
}

/* An option that is a list of numbers as a text. */
static int takes_list(const char *name)
{
    static const char *const lists[] = { "sigmas", "timesteps", "attention_window",
                                         "skip_guidance_layers" };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (strcmp(lists[i], name) == 0)
            return 1;
    return 0;
}

/* A text that goes with every prompt, or, in a list, one with each. */
static int takes_texts(const char *name)
{
    return xd_list_has("negative_prompt prompt_2 prompt_3 negative_prompt_2 negative_prompt_3",
                       name);
}

/* When the request is to have its turn: "priority" and "deadline". 0: it is another name. */
static int ask_order(xd_ask *a, const char *name, const char *value)
{
    static const char *const classes[] = { "low", "normal", "high" };
    char  *end;
    double seconds = strtod(value, &end);
    int    k = 0;
    if (strcmp(name, "deadline") == 0) {
        if (!(seconds > 0) || *end || seconds > 1e9)
            xd_ask_refuse(a, 400, name, "deadline is the number of seconds in which the result is "
                          "of use, not '%.40s'", value);
        else if (!a->failed)
            a->task->deadline_s = xd_now_s() + seconds;
        return 1;
    }
    if (strcmp(name, "priority") != 0)
        return 0;
    while (k < 3 && strcmp(classes[k], value) != 0)
        k++;
    if (k == 3)
        xd_ask_refuse(a, 400, name, "priority is low, normal or high, not '%.40s'", value);
    else if (!a->failed)
        a->task->priority = k - 1;
    return 1;
}

/* Ways that steps take in turn; a table would be a file of the server. */
static void ask_fast_attn(xd_ask *a, const char *value)
{
    size_t n = strspn(value, "abcdefghijklmnopqrstuvwxyz+,");
    if (value[n])
        xd_ask_refuse(a, 400, "fast_attn", "fast_attn is a list of share, window, window+cfg, "
                      "full+cfg and full, not '%.60s'", value);
    else
        xd_ask_option(a, "fast_attn", value);
}

int xd_ask_named_text(xd_ask *a, const char *name, const char *value)
{
    const char *option = option_of(name);
    if (ask_order(a, name, value))
        return 1;
    if (strcmp(name, "lora") == 0 || strcmp(name, "loras") == 0)
        xd_ask_lora(a, value);
    else if (strcmp(name, "fast_attn") == 0)
        ask_fast_attn(a, value);
    else if (option)
        xd_ask_option(a, option, value);
    else
        return 0;
    return 1;
}

/* {"name": "file", "scale": 0.8} or "file:0.8" */
static void ask_lora_json(xd_ask *a, const xd_json *v)
{
    char        text[256];
    double      scale = 1;
    const char *name = xd_json_text(xd_json_get(v, "name"));
    const xd_json *given = xd_json_get(v, "scale");
    name = name ? name : xd_json_text(xd_json_get(v, "path"));
    if ((!name && !xd_json_text(v)) || (!xd_json_null(given) && !xd_json_number(given, &scale))) {
        xd_ask_refuse(a, 400, "lora", "a LoRA file is \"name:0.8\" or {\"name\": \"name\", "
                      "\"scale\": 0.8}");
        return;
    }
    snprintf(text, sizeof text, "%.200s:%.17g", name ? name : "", scale);
    xd_ask_lora(a, name ? text : xd_json_text(v));
}

/* [1, 0.75, 0.5] is "1,0.75,0.5". */
static void ask_numbers(xd_ask *a, const char *name, const xd_json *list)
{
    xd_text_buf b = { 0 };
    double      number;
    for (const xd_json *v = xd_json_first(list); v; v = xd_json_next(v)) {
        if (!xd_json_number(v, &number))
            xd_ask_refuse(a, 400, name, "%s is a list of numbers, or a text of them", name);
        else
            xd_buf_add(&b, "%s%.17g", b.len ? "," : "", number);
    }
    if (b.failed)
        xd_ask_refuse(a, 503, NULL, "no memory for a list of numbers");
    else
        xd_ask_named_text(a, name, b.p ? b.p : "");
    xd_buf_free(&b);
}

static void ask_texts(xd_ask *a, const char *name, const xd_json *list)
{
    for (const xd_json *v = xd_json_first(list); v; v = xd_json_next(v)) {
        if (!xd_json_text(v))
            xd_ask_refuse(a, 400, name, "%s is a text, or a list with a text for each prompt",
                          name);
        else
            xd_ask_option(a, name, xd_json_text(v));
    }
}

int xd_ask_named(xd_ask *a, const char *name, const xd_json *value)
{
    char        text[40];
    double      number;
    int         on, orders = strcmp(name, "priority") == 0 || strcmp(name, "deadline") == 0,
                loras = strcmp(name, "lora") == 0 || strcmp(name, "loras") == 0;
    const char *given = xd_json_text(value);
    if (!option_of(name) && !orders && !loras)
        return 0;
    if (xd_json_null(value))
        return 1;
    if (loras) {
        const xd_json *v = xd_json_is_list(value) ? xd_json_first(value) : value;
        for (; v; v = v == value ? NULL : xd_json_next(v))
            ask_lora_json(a, v);
        return 1;
    }
    if (xd_json_number(value, &number))
        snprintf(text, sizeof text, "%.17g", number), given = text;
    else if (xd_json_bool(value, &on))
        given = on ? "true" : "false";
    if (takes_list(name) && xd_json_is_list(value))
        ask_numbers(a, name, value);
    else if (takes_texts(name) && xd_json_is_list(value))
        ask_texts(a, name, value);
    else if (!given)
        xd_ask_refuse(a, 400, name, "%s is a text, a number, true or false", name);
    else
        xd_ask_named_text(a, name, given);
    return 1;
}

/* ---- noise of every step --------------------------------------------------------------------- */

static const char *sampler_of(const xd_ask *a)
{
    static const char flag[] = "--scheduler=";
    const char       *name = "";
    for (int i = 0; !a->failed && i < a->task->nargs; i++)
        if (strncmp(a->task->args[i], flag, sizeof flag - 1) == 0)
            name = a->task->args[i] + sizeof flag - 1;
    return name;
}

xd_ask_noise xd_ask_noise_kind(const xd_ask *a)
{
    static const struct { const char *name; xd_ask_noise kind; } samplers[] = {
        { "DDIM", XD_NOISE_DDIM }, { "DDIMScheduler", XD_NOISE_DDIM }, { "TCD", XD_NOISE_DDIM },
        { "TCDScheduler", XD_NOISE_DDIM }, { "Euler a", XD_NOISE_ANCESTRAL },
        { "euler-ancestral", XD_NOISE_ANCESTRAL },
        { "EulerAncestralDiscreteScheduler", XD_NOISE_ANCESTRAL } };
    for (size_t i = 0; i < sizeof samplers / sizeof *samplers; i++)
        if (strcasecmp(samplers[i].name, sampler_of(a)) == 0)
            return samplers[i].kind;
    return XD_NOISE_NONE;
}

/* An ancestral step without its noise is the plain one. */
void xd_ask_eta(xd_ask *a, double eta)
{
    char         text[40];
    xd_ask_noise kind = xd_ask_noise_kind(a);
    snprintf(text, sizeof text, "%.17g", eta);
    if (kind == XD_NOISE_DDIM)
        xd_ask_option(a, "eta", text);
    else if (kind == XD_NOISE_ANCESTRAL && !(eta > 0 || eta < 0))
        xd_ask_option(a, "scheduler", "Euler");
    else if (kind == XD_NOISE_ANCESTRAL && (eta > 1 || eta < 1))
        xd_ask_refuse(a, 400, "eta", "eta is %g; with the sampler %s it is 1, all of its noise, or "
                      "0, none", eta, sampler_of(a));
}

/* ---- options that the request does not have -------------------------------------------------- */

enum { MOST_NAME = 64 };

/* Is one of the first n arguments this option, or one that leaves it out? */
static int is_given(const xd_ask *a, const char *name, int n)
{
    char given[MOST_NAME];
    int  found = a->drawn && strcmp(name, "seed") == 0;
    for (int i = 0; i < n; i++)
        found |= xd_default_is_over(xd_default_name(a->task->args[i], given, sizeof given), name);
    return found;
}

void xd_ask_default(xd_ask *a, const char *name, const char *value)
{
    if (!a->failed && !is_given(a, name, a->task->nargs))
        xd_ask_option(a, name, value);
}

/* Options of images to start from and of videos are those of requests that have, or make, one. */
static int suits(const xd_ask *a, const char *name)
{
    if (xd_list_has("num_frames seconds fps", name))
        return a->task->video;
    if (strcmp(name, "strength") == 0)
        return a->images > 0 && xd_ask_takes(a, name);
    if (strcmp(name, "padding_mask_crop") == 0)
        return xd_task_has(a->task, "--mask_image=");
    return !a->images || a->task->video || !xd_list_has("width height", name);
}

void xd_ask_defaults(xd_ask *a)
{
    char name[MOST_NAME];
    if (!a->failed && !a->model)
        xd_ask_model(a, NULL);
    if (a->failed || a->defaulted)
        return;
    int n = a->task->nargs;
    a->defaulted = 1;
    for (int i = 0; i < a->model->defaults.n; i++) {
        const char *text = a->model->defaults.v[i];
        xd_default_name(text, name, sizeof name);
        if (suits(a, name) && !is_given(a, name, n))
            xd_ask_option(a, name, xd_default_value(text));
    }
}

/* Short enough for clients with 32 bits, that of the last image too. */
void xd_ask_seed(xd_ask *a)
{
    enum { SEEDS = 2147480000 };
    char     text[24];
    uint32_t seed;
    if (a->failed || xd_task_has(a->task, "--seed="))
        return;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        seed = (uint32_t)time(NULL);
    snprintf(text, sizeof text, "%u", (unsigned)(seed % SEEDS));
    xd_ask_option(a, "seed", text);
}
