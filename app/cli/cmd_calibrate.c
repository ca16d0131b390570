/* cmd_calibrate.c - the command xdit calibrate, which measures the coefficients of TeaCache for a
 * model, or a table for --fast_attn.
 *
 * To measure the coefficients, the command generates images with the cache method "measure". The
 * cache method "measure" computes every block and reports the relative changes of the first block's
 * input and of the last block's output from step to step. A polynomial that is fitted to these
 * pairs of changes predicts the change of the last block's output from the change of the first
 * block's input. To measure a table for --fast_attn, the command runs a request with the option
 * fast_attn=measure. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/word_list.h"
#include "cli/cli.h"
#include "cli/fit_poly.h"
#include "cli/open_flags.h"
#include "cli/progress.h"
#include "cli/prompt_texts.h"
#include "cli/prompts.h"
#include "launch/launch.h"

enum { MOST_FLAGS = 24 };

typedef struct task { /* state of one run of xdit calibrate */
    const char     *model, *prompt_file;
    xd_opt_texts    prompts;
    xd_prompt_texts texts;
    double          threshold;
    int             json;
    xd_open_flags   open;
    xd_request      request;
    const char     *table;     /* output file for the table that --fast_attn reads; NULL:
                                   TeaCache's coefficients are measured instead */
    char            limit[48]; /* value of the option fast_attn: "measure:THRESHOLD" */
    char           *text;      /* contents of the file with the prompts */
    /* [npairs] measured pairs: relative change of the first block's input from step to step, and
     * relative change of the last block's output */
    double          (*pair)[2];
    int             npairs;
    xd_bar          bar;
    xd_opt_table    tables[4];
    xd_opt_spec     spec;
} task;

#define AT(field) offsetof(task, field)

static const xd_option rows[] = {
    { "model", XD_OPT_TEXT, AT(model), 0, 0, NULL, "DIR", "model directory, or org/name" },
    { "prompt", XD_OPT_TEXT, AT(prompts), 0, XD_OPT_MANY, NULL, "TEXT",
      "prompt to measure with; may be repeated, and more are better" },
    { "prompts", XD_OPT_TEXT, AT(prompt_file), 0, 0, NULL, "FILE",
      "file with one prompt per line; - for standard input" },
    { "threshold", XD_OPT_REAL, AT(threshold), XD_ABOVE_ZERO, 1e6, NULL, "SUM",
      "threshold of the cache (default 0.15); maximum relative error of an output for "
      "--fast_attn" },
    { "json", XD_OPT_FLAG, AT(json), 0, 0, NULL, NULL,
      "print one JSON object with all measured pairs" },
};

static const xd_opt_alias aliases[] = {
    { "config", "model" },
    { "steps", "num_inference_steps" },
    { 0 },
};

/* Names of the options of open_flags.c that apply to one rank; xdit calibrate accepts only these
 * options. */
static const char shared[] = "transformer transformer_2 vae clip_l clip_g t5xxl llm clip_vision "
                             "controlnet lora lora_2 lora_partial threads dtype weights_dtype "
                             "text_weights_dtype device offload memory fit no_t5";

static void on_log(void *cookie, int level, const char *line)
{
    task *t = cookie;
    xd_bar_clear(&t->bar);
    fprintf(stderr, "xdit: %s%s\n", level == XD_LOG_WARN ? "warning: " : "", line);
}

static void on_step(void *cookie, const xd_progress *p)
{
    task *t = cookie;
    xd_bar_step(&t->bar, p);
}

static void task_init(task *t)
{
    static xd_option some[MOST_FLAGS];
    int              all, nr, n = 0;
    const xd_option *open = xd_open_flags_rows(&all), *request = xd_request_options(&nr);
    for (int i = 0; i < all && n < MOST_FLAGS; i++)
        if (xd_list_has(shared, open[i].name))
            some[n++] = open[i];
    *t = (task){ .threshold = 0.15 };
    xd_open_flags_init(&t->open);
    xd_request_init(&t->request);
    xd_bar_init(&t->bar, stderr, xd_launch_columns(), 0);
    t->tables[0] = (xd_opt_table){ rows, sizeof rows / sizeof *rows, t };
    t->tables[1] = xd_prompt_texts_table(&t->texts);
    t->tables[2] = (xd_opt_table){ request, nr, &t->request };
    t->tables[3] = (xd_opt_table){ some, n, &t->open };
    t->spec = (xd_opt_spec){ .tables = t->tables,
                             .ntables = 4,
                             .aliases = aliases,
                             .operands = 1,
                             .once = "prompts",
                             .extra_hint = "calibrate reads one model" };
}

static void print_help(FILE *f)
{
    static const xd_opt_group groups[] = {
        { "Options", "model prompt prompts threshold json |" },
        { "The request", "width height num_frames num_inference_steps guidance_scale fast_attn | "
                         "negative_prompt seed image attention_window" },
        { "This machine", "dtype weights_dtype threads device | offload memory" },
        { "Weight files", "| transformer transformer_2 controlnet lora lora_2 lora_partial" },
    };
    task t;
    task_init(&t);
    fputs("Usage: xdit calibrate --model DIR --prompt TEXT [options]\n\n"
          "Measures how much the first block's input and the last block's output change\n"
          "from step to step, and prints the option --cache teacache for this model. Use\n"
          "the size and the number of steps that the cache will be used with. Runs on one\n"
          "rank and decodes no images.\n"
          "With --fast_attn FILE.json: writes a table of attention outputs to reuse, or of\n"
          "windows with --attention_window.\n",
          f);
    xd_opt_help(f, &t.spec, groups, 4);
    fputs("\nExamples:\n"
          "  xdit calibrate --model models/demo-pixart --prompt \"a star\" --prompt \"a ring\"\n"
          "  xdit calibrate --model DIR --prompts prompts.txt --num_inference_steps 28\n"
          "  xdit calibrate --model DIR --prompts prompts.txt --fast_attn table.json\n",
          f);
}

static xd_status prepare_table(task *t, xd_err *e)
{
    size_t n = strlen(t->request.savings.fast_attn);
    t->table = t->request.savings.fast_attn;
    if (n < 6 || strcmp(t->table + n - 5, ".json") != 0)
        return xd_fail(e, XD_EINVAL,
                       "--fast_attn \"%s\": calibrate writes a table to this file, "
                       "whose name must end in .json",
                       t->table);
    snprintf(t->limit, sizeof t->limit, "measure:%g", t->threshold);
    t->request.savings.fast_attn = t->limit;
    return xd_file_writable(t->table, e);
}

static xd_status read_task(task *t, int argc, char **argv, xd_err *e)
{
    xd_opt_texts dir = { 0 };
    xd_status    s = xd_opt_parse(&t->spec, argc, argv, &dir, e);
    xd_status    one = xd_opt_operand(&t->model, &dir, "model", s == XD_OK ? e : NULL);
    s = s == XD_OK ? one : s;
    if (s == XD_OK && !t->model)
        s = xd_fail(e, XD_EINVAL, "calibrate needs a model: --model DIR");
    if (s == XD_OK && t->prompt_file)
        s = xd_prompts_read(&t->prompts, t->prompt_file, &t->text, e);
    if (s == XD_OK && !t->prompts.n)
        s = xd_fail(e, XD_EINVAL, "calibrate needs prompts: --prompt TEXT or --prompts FILE");
    t->request.prompts = t->prompts.v;
    t->request.nprompts = t->prompts.n;
    if (s == XD_OK)
        s = xd_prompt_texts_set(&t->texts, &t->request, e);
    if (s == XD_OK && t->request.savings.cache)
        s = xd_fail(e, XD_EINVAL, "calibrate does not accept --cache: it measures without one");
    if (s == XD_OK && t->request.savings.fast_attn)
        s = prepare_table(t, e);
    return s == XD_OK ? xd_open_flags_read(&t->open, e) : s;
}

/* Reads the measured pairs of relative changes from the JSON parameters of an image, and appends
 * the pairs to the task's list `pair`. */
static xd_status add_pairs(task *t, const char *json, xd_err *e)
{
    xd_json  *j = NULL;
    xd_status s = xd_json_parse(&j, json, strlen(json), "the image's parameters", e);
    if (s != XD_OK)
        return s;
    const xd_json *list = xd_json_get(j, "cache_changes");
    int            n = xd_json_size(list);
    double         (*v)[2] = realloc(t->pair, (size_t)(t->npairs + n + 1) * sizeof *v);
    if (v) {
        t->pair = v;
        for (int i = 0; i < n; i++, t->npairs++)
            for (int k = 0; k < 2; k++)
                if (!xd_json_number(xd_json_at(xd_json_at(list, i), k), &v[t->npairs][k]))
                    v[t->npairs][k] = 0;
    } else {
        s = xd_fail(e, XD_ENOMEM, "no memory for %d pairs", t->npairs + n);
    }
    xd_json_free(&j);
    return s;
}

/* Writes the table for --fast_attn to the output file. Prints the number of attention layers in the
 * table, and the option --fast_attn that reads the table. */
static xd_status write_found(const task *t, const xd_json *table, xd_err *e)
{
    xd_text_buf b = { 0 };
    int         all = 0, full = 0;
    for (const xd_json *v = xd_json_first(table); v; v = xd_json_next(v))
        for (const xd_json *w = xd_json_first(v); w; w = xd_json_next(w), all++)
            full += xd_json_text(w) && strcmp(xd_json_text(w), "FULL_ATTN") == 0;
    xd_buf_json(&b, table);
    xd_buf_add(&b, "\n");
    xd_out    o = { .f = NULL };
    xd_status s = b.p && !b.failed ? xd_out_open(&o, t->table, e)
                                   : xd_fail(e, XD_ENOMEM, "no memory for a table");
    if (s == XD_OK) {
        fwrite(b.p, 1, b.len, o.f);
        s = xd_out_commit(&o, e);
    }
    xd_buf_free(&b);
    if (s != XD_OK)
        return s;
    if (t->json)
        printf("{\"fast_attn\":\"%s\",\"attentions\":%d,\"full\":%d}\n", t->table, all, full);
    else
        printf("--fast_attn %s%s%s\n", t->table,
               t->request.savings.attention_window ? " --attention_window " : "",
               t->request.savings.attention_window ? t->request.savings.attention_window : "");
    fprintf(stderr, "xdit: %d attentions per pass, %d of them computed in full\n", all, full);
    return XD_OK;
}

/* Reads the table for --fast_attn from the JSON parameters of the last image, and writes the table
 * to the output file. The table in the parameters of the last image is computed from all images. */
static xd_status write_table(const task *t, const char *json, xd_err *e)
{
    xd_json  *j = NULL;
    xd_status s = xd_json_parse(&j, json, strlen(json), "the image's parameters", e);
    if (s == XD_OK)
        s = write_found(t, xd_json_get(j, "fast_attn_found"), e);
    xd_json_free(&j);
    return s;
}

static xd_status measure(task *t, xd_err *e)
{
    xd_open_args a = xd_open_flags_args(&t->open, t->model);
    xd_engine   *g = NULL;
    xd_result   *res = NULL;
    a.plan = NULL;
    a.log = on_log, a.log_level = XD_LOG_WARN, a.cookie = t;
    t->request.savings.cache = t->table ? NULL : "measure";
    t->request.output.latents_only = 1;
    t->request.callbacks.on_step = on_step;
    t->request.callbacks.cookie = t;
    xd_status s = xd_open(&g, &a, e);
    if (s == XD_OK)
        s = xd_generate(g, &t->request, &res, e);
    xd_bar_clear(&t->bar);
    if (s == XD_OK && t->table)
        s = write_table(t, xd_result_json(res, xd_result_count(res) - 1), e);
    for (int i = 0; s == XD_OK && !t->table && i < xd_result_count(res); i++)
        s = add_pairs(t, xd_result_json(res, i), e);
    xd_result_free(&res);
    xd_close(&g);
    return s;
}

/* Prints the option --cache with the fitted coefficients, and the coefficient of determination of
 * the fit. */
static xd_status print_fit(const task *t, xd_err *e)
{
    double poly[XD_FIT_POWERS];
    if (!xd_fit_poly((const double (*)[2])t->pair, t->npairs, poly))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%d measured pairs are too few for a polynomial of "
                       "degree "
                       "4: use more steps or more prompts",
                       t->npairs);
    double share = xd_fit_explained((const double (*)[2])t->pair, t->npairs, poly);
    printf(t->json ? "{\"cache\":\"" : "--cache ");
    printf("teacache:%g,coefficients=%.8g/%.8g/%.8g/%.8g/%.8g", t->threshold, poly[0], poly[1],
           poly[2], poly[3], poly[4]);
    if (!t->json) {
        printf("\n");
        fprintf(stderr,
                "xdit: %d measured pairs; the polynomial explains %.0f %% of their "
                "variance\n",
                t->npairs, 100 * share);
        return XD_OK;
    }
    printf("\",\"explained\":%.6g,\"pairs\":[", share);
    for (int i = 0; i < t->npairs; i++)
        printf("%s[%.9g,%.9g]", i ? "," : "", t->pair[i][0], t->pair[i][1]);
    printf("]}\n");
    return XD_OK;
}

static int run_command(int argc, char **argv)
{
    task   t;
    xd_err e = { .rank = -1 };
    task_init(&t);
    xd_status s = read_task(&t, argc, argv, &e);
    if (s == XD_OK)
        s = measure(&t, &e);
    if (s == XD_OK && !t.table)
        s = print_fit(&t, &e);
    int code = s == XD_OK ? xd_cli_flush() : xd_cli_exit(s, &e);
    xd_opt_texts_free(&t.prompts);
    xd_prompt_texts_free(&t.texts);
    xd_open_flags_free(&t.open);
    free(t.text);
    free(t.pair);
    return code;
}

const xd_command xd_cmd_calibrate = {
    .name = "calibrate",
    .summary = "measure a step cache or a table of attentions for a model",
    .run = run_command,
    .help = print_help,
};
