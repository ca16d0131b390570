/* cmd_bench.c - xdit bench: times the parts of a model on this machine */
#include <stddef.h>

#include "cli/cli.h"
#include "cli/opt.h"

#define AT(field) offsetof(xd_bench_args, field)

static const xd_option rows[] = {
    { "config", XD_OPT_TEXT, AT(config), 0, 0, NULL, "DIR", "model directory, or org/name" },
    { "random_weights", XD_OPT_FLAG, AT(random_weights), 0, 0, NULL, NULL,
      "make weights in memory: only the directory's configs are read" },
    { "share_layers", XD_OPT_FLAG, AT(share_layers), 0, 0, NULL, NULL,
      "random weights: blocks of one kind share storage, for models that do not fit" },
    { "width", XD_OPT_INT64, AT(width), 1, 1048576, NULL, "PIXELS", "default: the model's" },
    { "height", XD_OPT_INT64, AT(height), 1, 1048576, NULL, "PIXELS", "default: the model's" },
    { "parts", XD_OPT_TEXT, AT(parts), 0, 0, NULL, "LIST",
      "some of \"text step vae ops peak\" (default: all)" },
    { "repeats", XD_OPT_INT, AT(repeats), 1, 1000000, NULL, "N",
      "how often (default: half a second and at least 3 times)" },
    { "threads", XD_OPT_INT, AT(threads), 1, 4096, NULL, "N",
      "default: one for each core this process may use" },
    { "dtype", XD_OPT_TEXT, AT(dtype), 0, 0, "f32 bf16", "TYPE",
      "of weights and products (default: the machine's best)" },
    { "device", XD_OPT_TEXT, AT(device), 0, 0, NULL, "NAME", "cpu (default: the best there is)" },
    { "json", XD_OPT_FLAG, AT(json), 0, 0, NULL, NULL, "print JSON" },
};

static const xd_opt_alias aliases[] = {
    { "model", "config" }, { "W", "width" }, { "H", "height" }, { "t", "threads" }, { 0 },
};

static void help(FILE *f)
{
    xd_bench_args      a = { 0 };
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, &a } };
    const xd_opt_spec  s = { .tables = tables, .ntables = 1, .aliases = aliases };
    const xd_opt_group groups[] = { { "Options", NULL } };
    fputs("Usage: xdit bench --config DIR [options]\n\n"
          "Times text encoder, blocks, products, attention and VAE of a model against the\n"
          "measured peak of this machine.\n", f);
    xd_opt_help(f, &s, groups, 1);
    fputs("\nExample:\n"
          "  xdit bench --config models/demo-pixart --random_weights --threads 1\n", f);
}

static int run(int argc, char **argv)
{
    xd_err             e = { 0 };
    xd_bench_args      a = { .line = xd_cli_line };
    xd_opt_texts       dir = { 0 };
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, &a } };
    const xd_opt_spec  s = { .tables = tables, .ntables = 1, .aliases = aliases, .operands = 1,
                             .stray = "bench times one model; a list of parts stands in quotes" };
    xd_status st = xd_opt_parse(&s, argc, argv, &dir, &e);
    if (dir.n)
        a.config = dir.v[0];
    xd_opt_texts_free(&dir);
    if (st == XD_OK && !a.config)
        st = xd_fail(&e, XD_EINVAL, "bench needs a model: --config DIR");
    if (st == XD_OK)
        st = xd_bench(&a, &e);
    int flushed = xd_cli_flush();
    return st == XD_OK ? flushed : xd_cli_exit(st, &e);
}

const xd_command xd_cmd_bench = {
    .name = "bench",
    .summary = "time the parts of a model on this machine",
    .run = run,
    .help = help,
};
