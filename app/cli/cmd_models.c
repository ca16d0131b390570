/* cmd_models.c - the command xdit models, which lists the models of this machine, their missing
 * files, and whether they fit in memory */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/model_list.h"
#include "cli/opt.h"

typedef struct options {
    xd_opt_texts models;
    const char  *memory;
    int          json;
} options;

#define AT(field) offsetof(options, field)

static const xd_option rows[] = {
    { "models", XD_OPT_TEXT, AT(models), 0, XD_OPT_MANY, NULL, "DIR",
      "also list the models and weight files in this directory; may be repeated" },
    { "memory", XD_OPT_TEXT, AT(memory), 0, 0, NULL, "SIZE",
      "memory that they must fit in, such as 12GB (default: all free memory)" },
    { "json", XD_OPT_FLAG, AT(json), 0, 0, NULL, NULL, "print one JSON object per model" },
};

static xd_opt_spec spec_of(options *o, xd_opt_table *table)
{
    *table = (xd_opt_table){ rows, sizeof rows / sizeof *rows, o };
    return (xd_opt_spec){ .tables = table,
                          .ntables = 1,
                          .extra_hint = "a directory of "
                                        "models is given as --models DIR" };
}

static void print_help(FILE *f)
{
    options           o = { 0 };
    xd_opt_table      table;
    const xd_opt_spec s = spec_of(&o, &table);
    fputs("Usage: xdit models [options]\n\n"
          "Lists the models of the local Hugging Face cache: family, size, missing files,\n"
          "and whether a request with default options fits in memory, and how. For a single\n"
          "weight file in --models DIR: its contents, and the option that reads it.\n",
          f);
    xd_opt_help_all(f, &s);
    fputs("\nExamples:\n"
          "  xdit models\n"
          "  xdit models --models models --memory 8GB\n",
          f);
}

/* ---- output about one model ------------------------------------------------------------------ */

typedef struct facts {
    char   recipe[64], makes[16];
    double bytes;         /* bytes of the model's weight files */
    int    nproblems;     /* number of files or components that are missing or invalid */
    char   problem[4096]; /* first missing or invalid file or component */
    /* 1: the model fits in memory; 0: the model fits only with other options, or does not fit */
    int    fits;
    /* text about memory: what the model needs, or the options with which it fits, or the reason
     * why it does not fit */
    char   how[4096];
} facts;

static void add_line(void *cookie, const char *line)
{
    xd_buf_add(cookie, "%s\n", line);
}

static void copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
}

/* Returns the result of xd_inspect for a model directory or a weight file; NULL: xd_inspect has
 * failed without a result. */
static xd_json *inspect(const char *path, xd_err *e)
{
    xd_text_buf     b = { 0 };
    xd_json        *j = NULL;
    xd_inspect_args a;
    xd_inspect_args_init(&a);
    a.model = path, a.json = 1, a.line = add_line, a.cookie = &b;
    xd_inspect(&a, e);
    if (b.p && !b.failed)
        xd_json_parse(&j, b.p, b.len, path, NULL);
    xd_buf_free(&b);
    return j;
}

static void look_into(const char *dir, facts *f)
{
    xd_err   e = { 0 };
    xd_json *j = inspect(dir, &e);
    if (!j) {
        f->nproblems = 1;
        copy(f->problem, sizeof f->problem, e.msg);
        return;
    }
    const xd_json *missing = xd_json_get(j, "missing");
    copy(f->recipe, sizeof f->recipe, xd_json_text(xd_json_get(j, "recipe")));
    copy(f->makes, sizeof f->makes, xd_json_text(xd_json_get(xd_json_get(j, "uses"), "makes")));
    f->nproblems = xd_json_size(missing);
    copy(f->problem, sizeof f->problem, xd_json_text(xd_json_first(missing)));
    for (const xd_json *c = xd_json_first(xd_json_get(j, "components")); c; c = xd_json_next(c)) {
        double n = 0;
        if (xd_json_number(xd_json_get(c, "bytes"), &n))
            f->bytes += n;
    }
    xd_json_free(&j);
}

/* Copies the first advice in an error about memory, such as "--weights_dtype int8 (13.1 GB ...)".
 * If the error message contains no advice, copies the reason of the error. */
static void copy_advice(const char *refusal, char *out, size_t size)
{
    static const char mark[] = "; what would fit: ", head[] = "for 1 rank is not possible: ";
    const char       *at = strstr(refusal, mark), *why = strstr(refusal, head);
    if (!at) {
        copy(out, size, why ? why + sizeof head - 1 : refusal);
        return;
    }
    at += sizeof mark - 1;
    const char *end = strstr(at, "); ");
    snprintf(out, size, "with %.*s", end ? (int)(end - at + 1) : (int)strlen(at), at);
}

/* Predicts whether a request with default options fits in memory, on one rank. */
static void predict(const char *dir, int64_t memory, facts *f)
{
    xd_advise_args a;
    xd_request     r;
    xd_plans      *p = NULL;
    xd_err         e = { 0 };
    xd_advise_args_init(&a);
    xd_request_init(&r);
    a.model = dir, a.request = &r, a.ranks = 1, a.memory = memory;
    if (xd_plans_predict(&p, &a, &e) == XD_OK) {
        f->fits = 1;
        copy(f->how, sizeof f->how, xd_size_text(xd_plans_get(p, 0)->peak).s);
    } else {
        copy_advice(e.msg, f->how, sizeof f->how);
    }
    xd_plans_free(&p);
}

static void print_json(const xd_listed *m, const facts *f)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "{\"name\": ");
    xd_buf_json_string(&b, m->name);
    xd_buf_add(&b, ", \"directory\": ");
    xd_buf_json_string(&b, m->dir);
    xd_buf_add(&b, ", \"recipe\": ");
    xd_buf_json_string(&b, f->recipe);
    xd_buf_add(&b, ", \"makes\": ");
    xd_buf_json_string(&b, f->makes);
    xd_buf_add(&b, ", \"bytes\": %.0f, \"complete\": %s, \"missing\": %d, \"first_missing\": ",
               f->bytes, f->nproblems ? "false" : "true", f->nproblems);
    xd_buf_json_string(&b, f->problem);
    xd_buf_add(&b, ", \"fits\": %s, \"how\": ", f->fits ? "true" : "false");
    xd_buf_json_string(&b, f->how);
    xd_buf_add(&b, "}");
    if (b.p && !b.failed)
        xd_cli_line(NULL, b.p);
    xd_buf_free(&b);
}

static void print_text(const xd_listed *m, const facts *f)
{
    char line[2 * sizeof f->how];
    snprintf(line, sizeof line, "%s", m->name);
    xd_cli_line(NULL, line);
    if (f->recipe[0]) {
        snprintf(line, sizeof line, "    %s, makes %ss, %s", f->recipe, f->makes,
                 f->bytes > 0 ? xd_size_text(f->bytes).s : "no weights");
        xd_cli_line(NULL, line);
    }
    if (f->nproblems) {
        snprintf(line, sizeof line, "    %d missing or wrong: %s", f->nproblems, f->problem);
        xd_cli_line(NULL, line);
    }
    if (f->nproblems && m->hub) {
        snprintf(line, sizeof line, "    to download it: hf download %s", m->name);
        xd_cli_line(NULL, line);
    }
    if (f->recipe[0]) {
        int changed = strncmp(f->how, "with ", 5) == 0;
        snprintf(line, sizeof line, "    %s%s",
                 f->fits   ? "fits: "
                 : changed ? "fits "
                           : "does not fit: ",
                 f->how);
        xd_cli_line(NULL, line);
    }
}

/* ---- output about a weight file -------------------------------------------------------------- */

/* Prints a component in a weight file, "a T5 text encoder, 9.5 GB", and the option that reads the
 * file. */
static void print_part(const xd_listed *m, const xd_json *part)
{
    char        line[8192];
    double      bytes = 0;
    const char *flag = xd_json_text(xd_json_get(part, "component")),
               *layout = xd_json_text(xd_json_get(part, "layout"));
    xd_json_number(xd_json_get(part, "bytes"), &bytes);
    snprintf(line, sizeof line, "    %s, %s: --model DIR --%s %s", layout ? layout : "weights",
             xd_size_text(bytes).s, flag ? flag : "transformer", m->dir);
    xd_cli_line(NULL, line);
}

static void print_file(const xd_listed *m, const xd_json *j, const char *wrong)
{
    char           line[8192];
    const xd_json *parts = xd_json_get(j, "components");
    xd_cli_line(NULL, m->name);
    for (const xd_json *c = xd_json_first(parts); c; c = xd_json_next(c))
        print_part(m, c);
    snprintf(line, sizeof line, "    %s", wrong);
    if (!xd_json_size(parts))
        xd_cli_line(NULL, line);
}

static void print_file_json(const xd_listed *m, const xd_json *j, const char *wrong)
{
    xd_text_buf b = { 0 };
    xd_buf_add(&b, "{\"name\": ");
    xd_buf_json_string(&b, m->name);
    xd_buf_add(&b, ", \"file\": ");
    xd_buf_json_string(&b, m->dir);
    xd_buf_add(&b, ", \"components\": ");
    if (xd_json_get(j, "components"))
        xd_buf_json(&b, xd_json_get(j, "components"));
    else
        xd_buf_add(&b, "[]");
    xd_buf_add(&b, ", \"first_missing\": ");
    xd_buf_json_string(&b, wrong);
    xd_buf_add(&b, "}");
    if (b.p && !b.failed)
        xd_cli_line(NULL, b.p);
    xd_buf_free(&b);
}

static void list_file(const xd_listed *m, int json)
{
    xd_err   e = { 0 };
    xd_json *j = inspect(m->dir, &e);
    if (json)
        print_file_json(m, j, e.msg);
    else
        print_file(m, j, e.msg);
    xd_json_free(&j);
}

/* ---- search of all models -------------------------------------------------------------------- */

static xd_status find_all(const options *o, xd_model_list *l, char *cache, size_t size, xd_err *e)
{
    xd_status s = xd_model_list_hub(l, cache, size, e);
    for (int i = 0; s == XD_OK && i < o->models.n; i++)
        s = xd_model_list_dir(l, o->models.v[i], e);
    return s;
}

static void list_model(const xd_listed *m, int64_t memory, int json)
{
    facts f = { 0 };
    look_into(m->dir, &f);
    if (f.recipe[0])
        predict(m->dir, memory, &f);
    if (json)
        print_json(m, &f);
    else
        print_text(m, &f);
}

static xd_status list_models(const options *o, xd_err *e)
{
    xd_model_list l = { 0 };
    char          cache[4096] = "";
    int64_t       memory = 0;
    xd_status     s = o->memory ? xd_size_read(o->memory, "memory", &memory, e) : XD_OK;
    if (s == XD_OK)
        s = find_all(o, &l, cache, sizeof cache, e);
    for (int i = 0; s == XD_OK && i < l.n; i++) {
        if (l.v[i].file)
            list_file(&l.v[i], o->json);
        else
            list_model(&l.v[i], memory, o->json);
        fflush(stdout);
    }
    if (s == XD_OK && !l.n)
        fprintf(stderr,
                "xdit: no model in the Hugging Face cache %s%s: download one by \"hf "
                "download ORG/NAME\", or use --models DIR\n",
                *cache ? cache : "(no HOME)", o->models.n ? " and in these directories" : "");
    xd_model_list_free(&l);
    return s;
}

static int run_command(int argc, char **argv)
{
    options           o = { 0 };
    xd_err            e = { 0 };
    xd_opt_table      table;
    const xd_opt_spec s = spec_of(&o, &table);
    xd_status         st = xd_opt_parse(&s, argc, argv, NULL, &e);
    if (st == XD_OK)
        st = list_models(&o, &e);
    xd_opt_texts_free(&o.models);
    return xd_cli_end(st, &e);
}

const xd_command xd_cmd_models = {
    .name = "models",
    .summary = "list the models of this machine, and whether they fit in memory",
    .run = run_command,
    .help = print_help,
};
