/* serve_flags.c - parses the command line of xdit serve; see serve_flags.h */
#include "serve/serve_flags.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/word_list.h"

#define AT(field) offsetof(xd_serve_flags, field)

static const xd_option rows[] = {
    { "model", XD_OPT_TEXT, AT(texts), 0, XD_OPT_MANY, NULL, "[NAME=]DIR[,OPTION=VALUE]",
      "model directory, or org/name in the Hugging Face cache; may be repeated. NAME: name in "
      "requests. OPTION: default of the model's requests, such as num_inference_steps=4. If "
      "memory is short, the least recently used model is closed" },
    { "served_model_name", XD_OPT_TEXT, AT(names), 0, XD_OPT_MANY, NULL, "NAME",
      "name of the first model in requests (default: of its directory); may be repeated: all "
      "names are accepted, and results have the first name" },
    { "host", XD_OPT_TEXT, AT(host), 0, 0, NULL, "ADDRESS",
      "listening address (default 127.0.0.1); addresses that other hosts can reach need "
      "--api_key" },
    { "port", XD_OPT_INT, AT(port), 0, 65535, NULL, "N", "port; 0: any free port (default 8080)" },
    { "api_key", XD_OPT_TEXT, AT(keys), 0, XD_OPT_MANY, NULL, "KEY",
      "key that requests must contain; may be repeated. The environment variable XDIT_API_KEY "
      "adds a key which is hidden from the process list" },
    { "no_auth", XD_OPT_FLAG, AT(no_auth), 0, 0, NULL, NULL,
      "accept requests from other hosts without a key" },
    { "cors", XD_OPT_TEXT, AT(origins), 0, XD_OPT_MANY, NULL, "ORIGIN",
      "accept requests from web pages of this origin, such as https://example.org; may be "
      "repeated" },
    { "allow_url", XD_OPT_TEXT, AT(urls), 0, XD_OPT_MANY, NULL, "HOST[:PORT]",
      "host of image URLs that the server may fetch (default: none), even with a private "
      "address; any: all public hosts. May be repeated" },
    { "tls_cert", XD_OPT_TEXT, AT(tls_cert), 0, 0, NULL, "FILE",
      "serve HTTPS with this certificate (PEM)" },
    { "tls_key", XD_OPT_TEXT, AT(tls_key), 0, 0, NULL, "FILE",
      "private key of the certificate (PEM)" },
    { "loras", XD_OPT_TEXT, AT(loras), 0, 0, NULL, "DIR",
      "folder of LoRA files that requests may name" },
    { "results", XD_OPT_TEXT, AT(results), 0, 0, NULL, "DIR",
      "directory for results and the queue, kept across restarts (default: a directory removed "
      "at exit)" },
    { "keep", XD_OPT_REAL, AT(keep_s), 1, 1e9, NULL, "SECONDS",
      "lifetime of results (default 3600)" },
    { "keep_mb", XD_OPT_REAL, AT(keep_mb), 1, 1e9, NULL, "MB",
      "maximum total size of results (default 1024)" },
    { "queue", XD_OPT_INT, AT(queue), 1, 100000, NULL, "N",
      "maximum number of queued requests (default 64); further requests get status 429" },
    { "connections", XD_OPT_INT, AT(connections), 1, 10000, NULL, "N",
      "maximum number of open connections (default 256)" },
    { "max_body", XD_OPT_INT64, AT(max_body), 1024, 1e12, NULL, "BYTES",
      "size limit of request bodies (default 67108864)" },
    { "max_bodies", XD_OPT_INT64, AT(max_bodies), 1024, 1e13, NULL, "BYTES",
      "maximum size of all request bodies in memory (default: 8 times --max_body), else status "
      "503" },
    { "max_pixels", XD_OPT_INT64, AT(max_pixels), 1, 1e15, NULL, "PIXELS",
      "maximum pixels of an image or of all frames (default: 16 times the model's default size, at "
      "least 4194304)" },
    { "request_timeout", XD_OPT_REAL, AT(request_timeout), 1, 86400, NULL, "SECONDS",
      "time limit for receiving a request (default 60)" },
    { "worker_timeout", XD_OPT_REAL, AT(worker_timeout), 1, 1e9, NULL, "SECONDS",
      "time after which a hanging worker is killed (default 120)" },
    { "omit_folders", XD_OPT_FLAG, AT(omit_folders), 0, 0, NULL, NULL,
      "omit folders of models and LoRA files in results" },
    { "access_log", XD_OPT_TEXT, AT(access_log), 0, 0, NULL, "FILE",
      "log file of requests, or - for standard output (default: none). Lines have the common log "
      "format, seconds and job id; if the file is moved, a new file is created" },
    { "log_format", XD_OPT_TEXT, AT(log_format), 0, 0, "common json", "FORMAT",
      "format of --access_log: common (the default), or json with X-Request-Id and traceparent" },
    { "drain_seconds", XD_OPT_REAL, AT(drain_s), 0, 1e6, NULL, "SECONDS",
      "time for running requests after SIGTERM, while new requests get status 503 (default 60)" },
    { "quiet", XD_OPT_FLAG, AT(quiet), 0, 0, NULL, NULL, "log only warnings and errors" },
    { "verbose", XD_OPT_FLAG, AT(verbose), 0, 0, NULL, NULL, "log debug messages" },
};

static const xd_opt_alias aliases[] = {
    { "config", "model" },
    { "model_path", "model" },
    { "world_size", "nproc" },
    { "taesd", "preview_decoder" },
    { "steps", "num_inference_steps" },
    { "cfg_scale", "guidance_scale" },
    { 0 },
};

enum { MAX_MODELS = 1000, MAX_NAME = 120 };

static int is_row(const xd_option *o, const xd_option *table, int n)
{
    return o >= table && o < table + n;
}

/* Stores an option of xdit serve as a default of requests or as an argument of the worker. */
static void add_flag(void *cookie, const xd_option *o, const char *value)
{
    xd_serve_flags *f = cookie;
    int             own = is_row(o, rows, sizeof rows / sizeof *rows);
    if (is_row(o, f->tables[3].rows, f->tables[3].n))
        xd_defaults_add(&f->defaults, o->name, value);
    else if (!own || xd_list_has("verbose omit_folders", o->name))
        xd_defaults_add(&f->worker, o->name, value);
}

/* ---- models ---------------------------------------------------------------------------------- */

/* Returns the position of the comma before the next "name=" in an argument of --model, or the end
 * of the argument. */
static char *find_option(char *text)
{
    for (char *p = text; (p = strchr(p, ',')); p++) {
        size_t n = strspn(p + 1, "abcdefghijklmnopqrstuvwxyz_-0123456789");
        if (n && p[1 + n] == '=')
            return p;
    }
    return text + strlen(text);
}

static void add_default(void *cookie, const xd_option *o, const char *value)
{
    xd_defaults_add(cookie, o->name, value);
}

/* Truncates "DIR,name=value,name=value" after DIR, and parses the rest as options of the model. */
static xd_status read_options(const xd_serve_flags *f, xd_serve_model *m, char *path, xd_err *e)
{
    xd_request  scratch;
    xd_defaults given = { 0 };
    xd_err      why = { 0 };
    char       *at = find_option(path);
    while (*at) {
        char *name = at + 1, *value = strchr(name, '=') + 1;
        *at = 0;
        at = find_option(value);
        char end = *at;
        *at = value[-1] = 0;
        xd_defaults_add(&given, name, value);
        *at = end;
    }
    xd_request_init(&scratch);
    const xd_opt_table table = { f->tables[3].rows, f->tables[3].n, &scratch };
    const xd_opt_spec  spec = { .tables = &table,
                                .ntables = 1,
                                .aliases = aliases,
                                .cookie = &m->defaults,
                                .on_option = add_default };
    xd_status          s = xd_opt_parse(&spec, given.n, given.v, NULL, &why);
    m->defaults.failed |= given.failed;
    xd_defaults_free(&given);
    if (s == XD_EINVAL)
        return xd_fail(e, s, "--model %.200s: %s", path, why.msg);
    return s;
}

/* Reads [NAME=]DIR[,OPTION=VALUE...]. If the complete argument of --model is the name of a
 * directory, that directory is the model. */
static xd_status read_model(const xd_serve_flags *f, xd_serve_model *m, const char *text, xd_err *e)
{
    char     *path = m->text = strdup(text);
    xd_status s = path ? XD_OK : XD_ENOMEM;
    if (s == XD_OK && !xd_file_is_dir(path))
        s = read_options(f, m, path, e);
    size_t n = s == XD_OK ? strcspn(path, "=/") : 0;
    if (s == XD_OK && path[n] == '=' && !xd_file_is_dir(path)) {
        path[n] = 0;
        m->name = path;
        path += n + 1;
        if (!n || n > MAX_NAME || !*path)
            return xd_fail(e, XD_EINVAL,
                           "--model %.80s: NAME=DIR needs a name of 1 to %d "
                           "characters and a directory",
                           text, MAX_NAME);
    }
    m->path = path;
    xd_defaults_merge(&m->defaults, &f->defaults);
    return s == XD_OK && m->defaults.failed ? XD_ENOMEM : s;
}

static xd_status read_models(xd_serve_flags *f, const xd_opt_texts *operands, xd_err *e)
{
    int       n = f->texts.n + operands->n;
    xd_status s = XD_OK;
    f->models = calloc((size_t)n + 1, sizeof *f->models);
    for (int i = 0; i < n && f->models && s == XD_OK; i++, f->nmodels++)
        s = read_model(f, &f->models[i],
                       i < f->texts.n ? f->texts.v[i] : operands->v[i - f->texts.n], e);
    if (!f->models || s == XD_ENOMEM || f->defaults.failed || f->worker.failed)
        return xd_fail(e, XD_ENOMEM, "no memory for %d models", n);
    return s;
}

static void set_defaults(xd_serve_flags *f)
{
    int              nopen, nplan, nrequest;
    const xd_option *open = xd_open_flags_rows(&nopen), *plan = xd_parallel_options(&nplan);
    *f = (xd_serve_flags){ .host = "127.0.0.1",
                           .port = 8080,
                           .queue = 64,
                           .connections = 256,
                           .max_body = 64 << 20,
                           .keep_s = 3600,
                           .keep_mb = 1024,
                           .request_timeout = 60,
                           .worker_timeout = 120,
                           .log_format = "common",
                           .drain_s = 60 };
    xd_open_flags_init(&f->open);
    f->tables[0] = (xd_opt_table){ rows, sizeof rows / sizeof *rows, f };
    f->tables[1] = (xd_opt_table){ open, nopen, &f->open };
    f->tables[2] = (xd_opt_table){ plan, nplan, &f->open.parallel };
    const xd_option *request = xd_defaults_rows(&nrequest);
    xd_request_init(&f->request);
    f->tables[3] = (xd_opt_table){ request, nrequest, &f->request };
    f->spec = (xd_opt_spec){ .tables = f->tables,
                             .ntables = 4,
                             .aliases = aliases,
                             .operands = MAX_MODELS,
                             .cookie = f,
                             .on_option = add_flag };
}

/* Returns nonzero if only this host can reach the address. */
static int is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

static xd_status check_flags(xd_serve_flags *f, xd_err *e)
{
    if (!f->nmodels)
        return xd_fail(e, XD_EINVAL,
                       "--model is missing: a directory with model_index.json, or "
                       "org/name");
    if (strcmp(f->host, "localhost") == 0)
        f->host = "127.0.0.1";
    if (!is_loopback(f->host) && !f->keys.n && !f->no_auth && !getenv("XDIT_API_KEY"))
        return xd_fail(e, XD_EINVAL,
                       "--host %s can be reached from other hosts: add --api_key "
                       "KEY, or --no_auth to accept requests without a key",
                       f->host);
    for (int i = 0; i < f->keys.n; i++)
        if (!f->keys.v[i][0])
            return xd_fail(e, XD_EINVAL, "--api_key is empty: pass a key that clients must send");
    if (!f->max_bodies)
        f->max_bodies = 8 * f->max_body;
    if (f->max_bodies < f->max_body)
        return xd_fail(e, XD_EINVAL,
                       "--max_bodies %lld is less than --max_body %lld: raise it, or "
                       "lower --max_body",
                       (long long)f->max_bodies, (long long)f->max_body);
    if (!f->tls_cert != !f->tls_key)
        return xd_fail(e, XD_EINVAL, "--%s is missing: HTTPS needs a certificate and its key",
                       f->tls_cert ? "tls_key" : "tls_cert");
    if (f->loras && !xd_file_is_dir(f->loras))
        return xd_fail(e, XD_EIO, "--loras %s is not a directory", f->loras);
    if (f->results && !xd_file_is_dir(f->results))
        return xd_fail(e, XD_EIO, "--results %s is not a directory: create it first", f->results);
    int ranks = f->open.nproc ? f->open.nproc : xd_parallel_ranks(&f->open.parallel);
    return xd_parallel_check(&f->open.parallel, ranks, e);
}

xd_status xd_serve_flags_read(xd_serve_flags *f, int argc, char **argv, xd_err *e)
{
    set_defaults(f);
    xd_opt_texts operands = { 0 };
    xd_status    s = xd_opt_parse(&f->spec, argc, argv, &operands, e);
    if (s == XD_OK)
        s = xd_open_flags_read(&f->open, e);
    if (s == XD_OK)
        s = read_models(f, &operands, e);
    xd_opt_texts_free(&operands);
    return s == XD_OK ? check_flags(f, e) : s;
}

void xd_serve_flags_free(xd_serve_flags *f)
{
    for (int i = 0; i < f->nmodels; i++) {
        free(f->models[i].text);
        xd_defaults_free(&f->models[i].defaults);
    }
    free(f->models);
    xd_defaults_free(&f->defaults);
    xd_defaults_free(&f->worker);
    xd_opt_texts_free(&f->texts);
    xd_opt_texts_free(&f->keys);
    xd_opt_texts_free(&f->origins);
    xd_opt_texts_free(&f->urls);
    xd_open_flags_free(&f->open);
}

void xd_serve_flags_help(FILE *out)
{
    xd_serve_flags f;
    set_defaults(&f);
    char *ranks =
        xd_opt_names("nproc plan ulysses_degree ring_degree use_cfg_parallel | start_timeout "
                     "verify_weights cluster balance",
                     f.tables[2].rows, f.tables[2].n);
    char              *request = xd_opt_names("|", f.tables[3].rows, f.tables[3].n);
    const xd_opt_group groups[] = {
        { "Server", "model host port results queue | served_model_name loras keep keep_mb "
                    "worker_timeout drain_seconds" },
        { "Access and limits", "api_key tls_cert tls_key cors | no_auth allow_url connections "
                               "max_body max_bodies max_pixels request_timeout omit_folders" },
        { "Models", "lora | transformer transformer_2 vae clip_l clip_g t5xxl llm clip_vision "
                    "lora_2 lora_partial no_t5 redux latent_upsampler upscale "
                    "preview_decoder" },
        { "This machine", "dtype weights_dtype device offload memory threads | "
                          "text_weights_dtype bind fit" },
        { "Several ranks", ranks },
        { "Log", "access_log quiet | log_format verbose" },
        { "Defaults for options that a request does not set", request },
    };
    fputs("Usage: xdit serve --model DIR [options]\n\n"
          "Serves image and video generation over HTTP: the interfaces of OpenAI,\n"
          "stable-diffusion-webui and others (doc/server.md). Models remain loaded.\n"
          "Ctrl-C finishes the running request and stops the server.\n",
          out);
    xd_opt_help(out, &f.spec, groups, sizeof groups / sizeof *groups);
    fputs("\nExample:\n"
          "  xdit serve --model models/demo-pixart --port 8080\n"
          "  curl http://127.0.0.1:8080/v1/images/generations \\\n"
          "    -H 'Content-Type: application/json' -d '{\"prompt\":\"a red circle\"}'\n",
          out);
    free(ranks);
    free(request);
    xd_serve_flags_free(&f);
}
