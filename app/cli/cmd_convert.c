/* cmd_convert.c - the command xdit convert, which writes a model as safetensors files with another
 * element type */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/word_list.h"
#include "cli/cli.h"
#include "cli/open_flags.h"
#include "cli/progress.h"
#include "launch/launch.h"
#include "launch/stop.h"

typedef struct task { /* state of one run of xdit convert */
    xd_convert_args a;
    xd_opt_texts    components;
    const char     *shard_size;
    xd_open_flags   open; /* options for weight files and LoRA files */
    xd_bar          bar;
    xd_opt_table    tables[2];
    xd_opt_spec     spec;
} task;

#define AT(field) offsetof(task, field)

static const xd_option rows[] = {
    { "model", XD_OPT_TEXT, AT(a.model), 0, 0, NULL, "DIR", "model directory, or org/name" },
    { "output", XD_OPT_TEXT, AT(a.output), 0, 0, NULL, "DIR", "directory to write" },
    { "weights_dtype", XD_OPT_TEXT, AT(a.weights_dtype), 0, 0, "f32 bf16 int8 fp8 int4", "TYPE",
      "type of the transformer's matrices: f32, bf16, int8, fp8 or int4, quantized as by xdit "
      "generate (default: as stored, but quantized matrices as bf16)" },
    { "text_weights_dtype", XD_OPT_TEXT, AT(a.text_weights_dtype), 0, 0, "f32 bf16 int8 fp8 int4",
      "TYPE",
      "text encoders: f32, bf16, int8, fp8 or int4 (default: --weights_dtype f32/bf16, else "
      "stored)" },
    { "component", XD_OPT_TEXT, AT(components), 0, XD_OPT_MANY, NULL, "NAME",
      "write only this component; may be repeated" },
    { "shard_size", XD_OPT_TEXT, AT(shard_size), 0, 0, NULL, "SIZE",
      "maximum size of a file, such as 500MB or 2GiB (default 5GB); a larger tensor has its own "
      "file" },
    { "force", XD_OPT_FLAG, AT(a.force), 0, 0, NULL, NULL,
      "overwrite a model in the output directory, or restart an interrupted run" },
};

static const xd_opt_alias aliases[] = { { "config", "model" }, { 0 } };

enum { ROWS = sizeof rows / sizeof *rows, MOST = 16 };

/* Names of the options in open_flags.c that xdit convert accepts: the options for weight files and
 * threads. */
static const char shared[] = "transformer transformer_2 vae clip_l clip_g t5xxl llm clip_vision "
                             "lora lora_2 lora_partial threads";

static void on_log(void *cookie, int level, const char *line)
{
    task *t = cookie;
    xd_bar_clear(&t->bar);
    fprintf(stderr, "xdit: %s%s\n", level == XD_LOG_WARN ? "warning: " : "", line);
}

static void on_progress(void *cookie, const char *file, double done, double total)
{
    task *t = cookie;
    xd_bar_bytes(&t->bar, file, done, total);
}

static void task_init(task *t)
{
    static xd_option some[MOST];
    int              all, n = 0;
    const xd_option *open = xd_open_flags_rows(&all);
    for (int i = 0; i < all && n < MOST; i++)
        if (xd_list_has(shared, open[i].name))
            some[n++] = open[i];
    *t = (task){ .a = { .size = sizeof t->a,
                        .log = on_log,
                        .log_level = XD_LOG_WARN,
                        .on_progress = on_progress } };
    t->a.cookie = t;
    xd_open_flags_init(&t->open);
    xd_bar_init(&t->bar, stderr, xd_launch_columns(), 0);
    t->tables[0] = (xd_opt_table){ rows, ROWS, t };
    t->tables[1] = (xd_opt_table){ some, n, &t->open };
    t->spec = (xd_opt_spec){ .tables = t->tables,
                             .ntables = 2,
                             .aliases = aliases,
                             .operands = 1,
                             .extra_hint = "convert reads one model" };
}

static void print_help(FILE *f)
{
    static const xd_opt_group groups[] = {
        { "Options", "model output weights_dtype text_weights_dtype component shard_size force" },
        { "Weight files", NULL },
    };
    task t;
    task_init(&t);
    fputs("Usage: xdit convert --model DIR --output DIR [options]\n\n"
          "Writes a model in the directory layout of diffusers: configs and tokenizers are\n"
          "copied; weights become safetensors files of another type, LoRA files are merged.\n"
          "Reads every model that generate reads, a few rows at a time. Only complete files\n"
          "get their names, and the same command continues an interrupted run.\n",
          f);
    xd_opt_help(f, &t.spec, groups, 2);
    fputs("\nExamples:\n"
          "  xdit convert --model models/demo-pixart --output demo --weights_dtype f32\n"
          "  xdit convert --model DIR --output small --weights_dtype int8\n"
          "  xdit convert --model DIR --output styled --lora style.safetensors:0.8\n"
          "  xdit convert --model DIR --transformer model-Q8_0.gguf --output unpacked \\\n"
          "    --component transformer\n",
          f);
}

static xd_status read_task(task *t, int argc, char **argv, xd_err *e)
{
    xd_opt_texts dir = { 0 };
    xd_status    s = xd_opt_parse(&t->spec, argc, argv, &dir, e);
    xd_status    one = xd_opt_operand(&t->a.model, &dir, "model", s == XD_OK ? e : NULL);
    s = s == XD_OK ? one : s;
    if (s == XD_OK && !t->a.model)
        s = xd_fail(e, XD_EINVAL, "convert needs a model: --model DIR");
    if (s == XD_OK && !t->a.output)
        s = xd_fail(e, XD_EINVAL, "convert needs an output directory: --output DIR");
    if (s == XD_OK && t->shard_size)
        s = xd_size_read(t->shard_size, "shard_size", &t->a.shard_bytes, e);
    if (s == XD_OK)
        s = xd_open_flags_read(&t->open, e);
    if (s != XD_OK)
        return s;
    const xd_open_args o = xd_open_flags_args(&t->open, t->a.model);
    t->a.files = o.files, t->a.nfiles = o.nfiles;
    t->a.loras = o.loras, t->a.nloras = o.nloras;
    t->a.loras_2 = o.loras_2, t->a.nloras_2 = (int)o.nloras_2;
    t->a.lora_partial = o.lora_partial != 0;
    t->a.components = t->components.v, t->a.ncomponents = t->components.n;
    t->a.threads = o.threads;
    return XD_OK;
}

static int run_command(int argc, char **argv)
{
    task   t;
    xd_err e = { 0 };
    task_init(&t);
    xd_status s = read_task(&t, argc, argv, &e);
    xd_stop_arm();
    if (s == XD_OK)
        s = xd_convert_model(&t.a, &e);
    xd_bar_end(&t.bar);
    if (s == XD_OK)
        xd_cli_name(t.a.output);
    xd_open_flags_free(&t.open);
    xd_opt_texts_free(&t.components);
    return xd_cli_end(s, &e);
}

const xd_command xd_cmd_convert = {
    .name = "convert",
    .summary = "write a model with weights of another type",
    .run = run_command,
    .help = print_help,
};
