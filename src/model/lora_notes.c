/* lora_notes.c - reads peft's settings of a LoRA file, which are the alphas and ranks of its
 * modules.
 *
 * A key of alpha_pattern or rank_pattern is a Python regular expression for the end of a module's
 * name. As in peft, the expression "(.*\.)?(KEY)$" is matched with the module's name, and the value
 * of the first key that matches is used. This source file matches expressions with PCRE2.
 * Expressions that PCRE2 accepts, but Python's `re` does not, are refused, as in peft. */
#include "model/lora.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"

static const char config_name[] = "adapter_config.json", peft_stem[] = "adapter_model";

typedef struct pattern {
    pcre2_code *code;
    double      value;
    const char *key;
} pattern;
typedef struct patterns {
    pattern *v;
    int      n;
} patterns;

typedef struct settings { /* peft's settings of one component */
    int      given;
    double   alpha, rank; /* default alpha and rank of all modules; NAN: not set */
    int      stabilised;  /* use_rslora: the scale is alpha / sqrt(rank) */
    patterns alphas, ranks;
} settings;

struct xd_lora_notes {
    xd_json *doc;
    char     what[640]; /* name of the settings in messages */
    int      config;    /* 1: the settings are from adapter_config.json */
    int      replaces;  /* 1: peft's bias or modules_to_save is set */
    uint64_t hash;
    settings part[XD_LORA_COMPONENTS];
};

/* ---- expressions ---------------------------------------------------------------------------- */

/* Returns 1 if a group of a regular expression has a form that Python knows. `at` points to the
 * text after "(?". */
static int is_python_group(const char *at)
{
    size_t flags = strspn(at, "aiLmsux-");
    if (flags)
        return at[flags] == ':';
    if (*at == 'P')
        return at[1] == '<' || at[1] == '=';
    if (*at == '<')
        return at[1] == '=' || at[1] == '!';
    return *at && strchr(":=!#>(", *at) != NULL;
}

/* Returns 1 if a regular expression contains only syntax that Python's `re` knows. */
static int is_python(const char *key)
{
    int inside = 0; /* 1: at the first character inside brackets; 2: at a later one */
    for (const char *c = key; *c; c++) {
        int letter = c[1] && ((c[1] | 32) >= 'a' && (c[1] | 32) <= 'z');
        if (*c == '\\') {
            if (letter && !strchr("AbBdDsSwWZafnrtvx", c[1]))
                return 0;
            c += c[1] != 0;
            inside = inside ? 2 : 0;
        } else if (inside) {
            inside = *c == ']' && inside == 2 ? 0 : 2;
        } else if (*c == '[') {
            inside = 1;
            c += c[1] == '^';
        } else if (*c == '(' && (c[1] == '*' || (c[1] == '?' && !is_python_group(c + 2)))) {
            return 0;
        }
    }
    return 1;
}

static xd_status compile(pattern *p, const char *key, const char *what, xd_err *e)
{
    size_t      n = strlen(key) + 16;
    char       *text = malloc(n);
    int         code = 0;
    PCRE2_SIZE  at = 0;
    PCRE2_UCHAR why[128] = "Python does not accept it";
    if (!text)
        return xd_fail(e, XD_ENOMEM, "no memory for an expression");
    snprintf(text, n, "(.*\\.)?(%s)$", key);
    if (is_python(key)) {
        p->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                PCRE2_ANCHORED | PCRE2_DOLLAR_ENDONLY, &code, &at, NULL);
        if (p->code)
            /* if the JIT compiler fails, matching is slower, but the result is the same */
            pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
        else
            pcre2_get_error_message(code, why, sizeof why);
    }
    free(text);
    return p->code ? XD_OK
                   : xd_fail(e, XD_EFORMAT,
                             "%s: its key '%.120s' is not a valid "
                             "regular expression for peft: %s",
                             what, key, (char *)why);
}

static xd_status read_patterns(patterns *l, const xd_json *obj, const char *what, xd_err *e)
{
    xd_status s = XD_OK;
    double    x;
    if (!xd_json_is_object(obj) || !xd_json_size(obj))
        return XD_OK;
    if (!(l->v = calloc((size_t)xd_json_size(obj), sizeof *l->v)))
        return xd_fail(e, XD_ENOMEM, "no memory for the patterns of %s", what);
    for (const xd_json *v = xd_json_first(obj); v && s == XD_OK; v = xd_json_next(v)) {
        pattern *p = &l->v[l->n++];
        p->key = xd_json_key(v) ? xd_json_key(v) : "";
        if (!xd_json_number(v, &x) || !isfinite(x))
            return xd_fail(e, XD_EFORMAT, "%s: the value of '%.120s' is not a number", what,
                           p->key);
        p->value = x;
        s = compile(p, p->key, what, e);
    }
    return s;
}

static void free_patterns(patterns *l)
{
    for (int i = 0; i < l->n; i++)
        pcre2_code_free(l->v[i].code);
    free(l->v);
}

/* Sets *x to the value of the first expression that matches a module's name. If none matches,
 * leaves *x unchanged. */
static xd_status match(const patterns *l, const char *inner, const char *what, double *x, xd_err *e)
{
    pcre2_match_data    *m = l->n ? pcre2_match_data_create(1, NULL) : NULL;
    pcre2_match_context *limit = l->n ? pcre2_match_context_create(NULL) : NULL;
    int                  found = l->n && (!m || !limit) ? PCRE2_ERROR_NOMEMORY : 0, i;
    if (limit)
        pcre2_set_match_limit(limit, 1000000);
    for (i = 0; found >= 0 && i < l->n; i++) {
        found = pcre2_match(l->v[i].code, (PCRE2_SPTR)inner, strlen(inner), 0, 0, m, limit);
        if (found >= 0)
            break;
        found = found == PCRE2_ERROR_NOMATCH ? 0 : found;
    }
    pcre2_match_data_free(m);
    pcre2_match_context_free(limit);
    if (found < 0)
        return xd_fail(e, XD_EFORMAT,
                       "%s: its key '%.120s' cannot be matched with the module %s: "
                       "PCRE2 error %d",
                       what, l->v[i > 0 ? i - 1 : 0].key, inner, found);
    if (i < l->n)
        *x = l->v[i].value;
    return XD_OK;
}

/* ---- settings ------------------------------------------------------------------------------- */

/* Returns the setting KEY of a component: the value of "transformer.KEY" or, if the settings are
 * those of one component only, the value of KEY. */
static const xd_json *value_of(const xd_lora_notes *n, const char *component, const char *key)
{
    char           full[128];
    const xd_json *v;
    snprintf(full, sizeof full, "%s.%s", component, key);
    v = xd_json_get(n->doc, full);
    return v ? v : xd_json_get(n->doc, key);
}

/* Refuses a LoRA that changed the model's own weights when it was initialized, because the file
 * does not contain this change. */
static xd_status check_start(const xd_lora_notes *n, const char *component, xd_err *e)
{
    static const char *const starts[] = { "pissa", "corda", "olora", "loftq", "lora_ga", "mica" };
    static const char *const others[] = { "layer_replication", "use_qalora", "arrow_config",
                                          "use_bdlora" };
    const char              *start = xd_json_text(value_of(n, component, "init_lora_weights"));
    int                      on = 0;
    for (size_t i = 0; start && i < sizeof starts / sizeof *starts; i++)
        if (strncmp(start, starts[i], strlen(starts[i])) == 0)
            return xd_fail(e, XD_EUNSUPPORTED,
                           "%s: init_lora_weights is %s, which changes the "
                           "weights of the model: save the adapter with peft's "
                           "save_pretrained(..., path_initial_model_for_weight_conversion)",
                           n->what, start);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const xd_json *v = value_of(n, component, others[i]);
        if (!xd_json_null(v) && (!xd_json_bool(v, &on) || on))
            return xd_fail(e, XD_EUNSUPPORTED, "%s: %s is set, which is not supported", n->what,
                           others[i]);
    }
    return XD_OK;
}

static double number_of(const xd_lora_notes *n, const char *component, const char *key, double none)
{
    double x;
    return xd_json_number(value_of(n, component, key), &x) && isfinite(x) ? x : none;
}

static xd_status read_settings(xd_lora_notes *n, settings *t, const char *component, xd_err *e)
{
    xd_status s = check_start(n, component, e);
    t->given = 1;
    t->rank = number_of(n, component, "r", NAN);
    t->alpha = number_of(n, component, "lora_alpha", number_of(n, component, "alpha", NAN));
    if (n->config && isnan(t->alpha))
        t->alpha = 8; /* peft's default of lora_alpha */
    if (!xd_json_bool(value_of(n, component, "use_rslora"), &t->stabilised))
        t->stabilised = 0;
    const char *bias = xd_json_text(value_of(n, component, "bias"));
    n->replaces |= (bias && strcmp(bias, "none") != 0) ||
                   xd_json_size(value_of(n, component, "modules_to_save")) > 0;
    if (s == XD_OK)
        s = read_patterns(&t->alphas, value_of(n, component, "alpha_pattern"), n->what, e);
    if (s == XD_OK)
        s = read_patterns(&t->ranks, value_of(n, component, "rank_pattern"), n->what, e);
    return s;
}

xd_status xd_lora_notes_gain(const xd_lora_notes *n, int part, const char *inner, double rank,
                             int lycoris, double *gain, xd_err *e)
{
    const settings *t = n && part >= 0 ? &n->part[part] : NULL;
    double          alpha = NAN, noted = NAN;
    xd_status       s = XD_OK;
    *gain = 1;
    if (!t || !t->given)
        return XD_OK;
    alpha = t->alpha;
    s = match(&t->alphas, inner, n->what, &alpha, e);
    noted = t->rank;
    if (s == XD_OK)
        s = match(&t->ranks, inner, n->what, &noted, e);
    if (lycoris && noted > 0)
        rank = noted; /* the ranks of a LoKr's factors may be different */
    if (s != XD_OK || isnan(alpha) || !(rank > 0))
        return s;
    *gain = alpha / (t->stabilised && !lycoris ? sqrt(rank) : rank);
    return XD_OK;
}

int xd_lora_notes_replace(const xd_lora_notes *n)
{
    return n && n->replaces;
}

uint64_t xd_lora_notes_hash(const xd_lora_notes *n, uint64_t h)
{
    return n && n->config ? xd_hash_mix(h, n->hash) : h;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Returns the malloc'ed path of the adapter_config.json that belongs to the LoRA path, or NULL if
 * there is none. */
static char *config_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    char       *folder, *full = NULL;
    if (xd_file_is_dir(path))
        return strcmp(xd_lora_stem(path), peft_stem) ? NULL : xd_path_join(path, config_name);
    if (strncmp(base, peft_stem, strlen(peft_stem)) != 0)
        return NULL; /* adapter_config.json applies only to adapter_model.safetensors */
    if (!slash)
        return strdup(config_name);
    if ((folder = malloc((size_t)(slash - path) + 2))) {
        snprintf(folder, (size_t)(slash - path) + 2, "%s", path);
        full = xd_path_join(folder, config_name);
    }
    free(folder);
    return full;
}

const char *xd_lora_stem(const char *path)
{
    char *config = xd_file_is_dir(path) ? xd_path_join(path, config_name) : NULL;
    char *plain = config ? xd_path_join(path, "pytorch_lora_weights.safetensors") : NULL;
    int   peft = config && plain && xd_file_exists(config) && !xd_file_exists(plain);
    free(config);
    free(plain);
    return peft ? peft_stem : "pytorch_lora_weights";
}

static xd_status read_config(xd_lora_notes *n, const char *path, xd_err *e)
{
    char     *text = NULL, *config = config_of(path);
    size_t    len = 0;
    xd_status s = XD_OK;
    if (config && xd_file_exists(config)) {
        n->config = 1;
        snprintf(n->what, sizeof n->what, "LoRA %.500s: %s", path, config_name);
        s = xd_file_read(config, 1 << 24, &text, &len, e);
        if (s == XD_OK)
            s = xd_json_parse(&n->doc, text, len, n->what, e);
        if (s == XD_OK && !xd_json_is_object(n->doc))
            s = xd_fail(e, XD_EFORMAT, "%s is no object", n->what);
        for (size_t i = 0; i < len && s == XD_OK; i++)
            n->hash = xd_hash_mix(n->hash, (unsigned char)text[i]);
    }
    free(text);
    free(config);
    return s;
}

static int is_noted(const xd_lora_notes *n, const char *component)
{
    size_t k = strlen(component);
    for (const xd_json *v = xd_json_first(n->doc); v; v = xd_json_next(v)) {
        const char *key = xd_json_key(v);
        if (key &&
            (n->config || !strchr(key, '.') || (strncmp(key, component, k) == 0 && key[k] == '.')))
            return 1;
    }
    return 0;
}

xd_status xd_lora_notes_open(xd_lora_notes **out, const char *path, const xd_st *file,
                             const xd_lora_keys *s, xd_err *e)
{
    const char    *text = xd_st_meta(file, "lora_adapter_metadata");
    xd_lora_notes *n = *out = calloc(1, sizeof *n);
    if (!n)
        return xd_fail(e, XD_ENOMEM, "no memory for LoRA %s", path);
    snprintf(n->what, sizeof n->what, "LoRA %.500s: lora_adapter_metadata in its header", path);
    xd_status st = text ? xd_json_parse(&n->doc, text, strlen(text), n->what, e)
                        : read_config(n, path, e);
    for (int i = 0; i < XD_LORA_COMPONENTS && st == XD_OK && n->doc; i++)
        if (s->part[i] && is_noted(n, s->part[i]->name))
            st = read_settings(n, &n->part[i], s->part[i]->name, e);
    return st;
}

void xd_lora_notes_close(xd_lora_notes **n)
{
    for (int i = 0; *n && i < XD_LORA_COMPONENTS; i++) {
        free_patterns(&(*n)->part[i].alphas);
        free_patterns(&(*n)->part[i].ranks);
    }
    if (*n)
        xd_json_free(&(*n)->doc);
    free(*n);
    *n = NULL;
}
