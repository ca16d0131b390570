/* serve_flags.c - the command line of xdit serve */
#include "serve/serve_flags.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define AT(field) offsetof(xd_serve_flags, field)

static const xd_option rows[] = {
    { "model", XD_OPT_TEXT, AT(models), 0, XD_OPT_MANY, NULL, "DIR",
      "directory with model_index.json, or org/name from the local Hugging Face cache; may be "
      "repeated: requests name one, and the one that was used longest ago leaves when memory is "
      "short" },
    { "host", XD_OPT_TEXT, AT(host), 0, 0, NULL, "ADDRESS",
      "to listen on; another one than this host's own needs --api_key (default: 127.0.0.1)" },
    { "port", XD_OPT_INT, AT(port), 0, 65535, NULL, "N", "0: any that is free (default: 8080)" },
    { "api_key", XD_OPT_TEXT, AT(keys), 0, XD_OPT_MANY, NULL, "KEY",
      "that requests must bring; may be repeated. The variable XDIT_API_KEY does the same, out of "
      "sight of other users" },
    { "no_auth", XD_OPT_FLAG, AT(no_auth), 0, 0, NULL, NULL,
      "serve whoever reaches the address, without a key" },
    { "cors", XD_OPT_TEXT, AT(origins), 0, XD_OPT_MANY, NULL, "ORIGIN",
      "web pages of this origin may ask, such as https://example.org; may be repeated" },
    { "allow_url", XD_OPT_TEXT, AT(urls), 0, XD_OPT_MANY, NULL, "HOST[:PORT]",
      "fetch images that requests name by URLs there, which may be private; 'any': from every host "
      "with a public address; may be repeated (default: none)" },
    { "tls_cert", XD_OPT_TEXT, AT(tls_cert), 0, 0, NULL, "FILE",
      "serve HTTPS with this certificate (PEM)" },
    { "tls_key", XD_OPT_TEXT, AT(tls_key), 0, 0, NULL, "FILE", "and its private key" },
    { "loras", XD_OPT_TEXT, AT(loras), 0, 0, NULL, "DIR",
      "folder of LoRA files that requests may name" },
    { "results", XD_OPT_TEXT, AT(results), 0, 0, NULL, "DIR",
      "keep results there (default: a directory of its own that is removed at the end)" },
    { "keep", XD_OPT_REAL, AT(keep_s), 1, 1e9, NULL, "SECONDS",
      "how long results are kept (default: 3600)" },
    { "keep_mb", XD_OPT_REAL, AT(keep_mb), 1, 1e9, NULL, "MB",
      "how much of them at most; the oldest go first (default: 1024)" },
    { "queue", XD_OPT_INT, AT(queue), 1, 100000, NULL, "N",
      "requests that may wait; more are told to come later (default: 64)" },
    { "connections", XD_OPT_INT, AT(connections), 1, 10000, NULL, "N",
      "at once (default: 256)" },
    { "max_body", XD_OPT_INT64, AT(max_body), 1024, 1e12, NULL, "BYTES",
      "of a request (default: 67108864)" },
    { "max_bodies", XD_OPT_INT64, AT(max_bodies), 1024, 1e13, NULL, "BYTES",
      "of all requests together that have not been answered; more are told to come later (default: "
      "eight times --max_body)" },
    { "request_timeout", XD_OPT_REAL, AT(request_timeout), 1, 86400, NULL, "SECONDS",
      "in which a request must have come (default: 60)" },
    { "worker_timeout", XD_OPT_REAL, AT(worker_timeout), 1, 1e9, NULL, "SECONDS",
      "without a sign of life, until a worker is killed and another one is started (default: "
      "120)" },
    { "omit_folders", XD_OPT_FLAG, AT(omit_folders), 0, 0, NULL, NULL,
      "parameters of results name the model and LoRA files without their folders" },
    { "quiet", XD_OPT_FLAG, AT(quiet), 0, 0, NULL, NULL, "warnings and errors only" },
    { "verbose", XD_OPT_FLAG, AT(verbose), 0, 0, NULL, NULL, "log more of what is done" },
};

static const xd_opt_alias aliases[] = {
    { "m", "model" }, { "p", "port" }, { "t", "threads" }, { "q", "quiet" }, { "v", "verbose" },
    { "config", "model" }, { "model_path", "model" }, { "world_size", "nproc" },
    { "taesd", "preview_decoder" }, { 0 },
};

static void set_defaults(xd_serve_flags *f)
{
    int              nopen, nplan;
    const xd_option *open = xd_open_flags_rows(&nopen), *plan = xd_parallel_options(&nplan);
    *f = (xd_serve_flags){ .host = "127.0.0.1", .port = 8080, .queue = 64, .connections = 256,
                           .max_body = 64 << 20, .keep_s = 3600, .keep_mb = 1024,
                           .request_timeout = 60, .worker_timeout = 120 };
    xd_open_flags_init(&f->open);
    f->tables[0] = (xd_opt_table){ rows, sizeof rows / sizeof *rows, f };
    f->tables[1] = (xd_opt_table){ open, nopen, &f->open };
    f->tables[2] = (xd_opt_table){ plan, nplan, &f->open.parallel };
    f->spec = (xd_opt_spec){ .tables = f->tables, .ntables = 3, .aliases = aliases };
}

/* Does only this host reach the address? */
static int is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

static xd_status check_flags(xd_serve_flags *f, xd_err *e)
{
    if (!f->models.n)
        return xd_fail(e, XD_EINVAL, "--model is missing: a directory with model_index.json, or "
                       "org/name");
    if (strcmp(f->host, "localhost") == 0)
        f->host = "127.0.0.1";
    if (!is_loopback(f->host) && !f->keys.n && !f->no_auth && !getenv("XDIT_API_KEY"))
        return xd_fail(e, XD_EINVAL, "--host %s can be reached from other hosts: give --api_key "
                       "KEY, which requests must bring, or --no_auth", f->host);
    for (int i = 0; i < f->keys.n; i++)
        if (!f->keys.v[i][0])
            return xd_fail(e, XD_EINVAL, "--api_key is empty: anybody would have it");
    if (!f->max_bodies)
        f->max_bodies = 8 * f->max_body;
    if (f->max_bodies < f->max_body)
        return xd_fail(e, XD_EINVAL, "--max_bodies %lld is less than the %lld bytes that one body "
                       "may have (--max_body)", (long long)f->max_bodies, (long long)f->max_body);
    if (!f->tls_cert != !f->tls_key)
        return xd_fail(e, XD_EINVAL, "--%s is missing: HTTPS needs a certificate and its key",
                       f->tls_cert ? "tls_key" : "tls_cert");
    if (f->loras && !xd_file_is_dir(f->loras))
        return xd_fail(e, XD_EIO, "--loras %s is no directory", f->loras);
    if (f->results && !xd_file_is_dir(f->results))
        return xd_fail(e, XD_EIO, "--results %s is no directory: make it first", f->results);
    int ranks = f->open.nproc ? f->open.nproc : xd_parallel_ranks(&f->open.parallel);
    return xd_parallel_check(&f->open.parallel, ranks, e);
}

xd_status xd_serve_flags_read(xd_serve_flags *f, int argc, char **argv, xd_err *e)
{
    set_defaults(f);
    xd_status s = xd_opt_parse(&f->spec, argc, argv, NULL, e);
    if (s == XD_OK)
        s = xd_open_flags_read(&f->open, e);
    return s == XD_OK ? check_flags(f, e) : s;
}

void xd_serve_flags_free(xd_serve_flags *f)
{
    xd_opt_texts_free(&f->models);
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
        xd_opt_names("nproc start_timeout plan cluster balance", f.tables[2].rows, f.tables[2].n);
    const xd_opt_group groups[] = {
        { "Server", "model host port loras results keep keep_mb queue worker_timeout" },
        { "Who may ask", "api_key no_auth cors allow_url tls_cert tls_key connections max_body "
                         "max_bodies request_timeout omit_folders" },
        { "Models", "transformer transformer_2 vae clip_l clip_g t5xxl llm clip_vision "
                    "lora lora_2 lora_partial no_t5 preview_decoder" },
        { "This machine", "dtype weights_dtype text_weights_dtype threads bind device "
                          "offload memory fit" },
        { "Several ranks", ranks },
        { "Log", "quiet verbose" },
    };
    fputs("Usage: xdit serve --model DIR [options]\n\n"
          "Generates for clients over HTTP: OpenAI's images, and what doc/server.md lists.\n"
          "Models stay loaded. Ends with Ctrl-C, when the running request has ended.\n", out);
    xd_opt_help(out, &f.spec, groups, sizeof groups / sizeof *groups);
    fputs("\nExample:\n"
          "  xdit serve --model models/demo-pixart --port 8080\n"
          "  curl http://127.0.0.1:8080/v1/images/generations \\\n"
          "    -H 'Content-Type: application/json' -d '{\"prompt\":\"a red circle\"}'\n", out);
    free(ranks);
    xd_serve_flags_free(&f);
}
