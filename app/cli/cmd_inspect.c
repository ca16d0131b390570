/* cmd_inspect.c - the command xdit inspect, which lists the components of a model directory, and
 * missing files */
#include <stddef.h>

#include "cli/cli.h"
#include "cli/opt.h"

#define AT(field) offsetof(xd_inspect_args, field)

static const xd_option rows[] = {
    { "model", XD_OPT_TEXT, AT(model), 0, 0, NULL, "DIR", NULL },
    { "tensors", XD_OPT_TEXT, AT(tensors), 0, 0, NULL, "COMPONENT",
      "print name and shape of every tensor in this component's files, one per line" },
    { "json", XD_OPT_FLAG, AT(json), 0, 0, NULL, NULL, "print one JSON object" },
};

static void print_help(FILE *f)
{
    xd_inspect_args    a = { 0 };
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, &a } };
    const xd_opt_spec  s = { .tables = tables, .ntables = 1 };
    fputs("Usage: xdit inspect DIR|FILE [options]\n\n"
          "Lists the components of a model directory: classes, tensors, bytes, types, and\n"
          "missing files. For a safetensors or GGUF file: its components and their layout.\n"
          "The exit code is 1 if something is missing or does not match.\n",
          f);
    xd_opt_help_all(f, &s);
    fputs("\nExamples:\n"
          "  xdit inspect models/demo-pixart\n"
          "  xdit inspect models/demo-pixart --tensors transformer\n",
          f);
}

static int run_command(int argc, char **argv)
{
    xd_err             e = { 0 };
    xd_inspect_args    a = { .size = sizeof a, .line = xd_cli_line };
    xd_opt_texts       dir = { 0 };
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, &a } };
    const xd_opt_spec  s = {
        .tables = tables, .ntables = 1, .operands = 1, .extra_hint = "inspect reads one model"
    };
    xd_status st = xd_opt_parse(&s, argc, argv, &dir, &e);
    if (dir.n)
        a.model = dir.v[0];
    xd_opt_texts_free(&dir);
    if (st == XD_OK && !a.model)
        st = xd_fail(&e, XD_EINVAL, "inspect needs a model: xdit inspect DIR");
    if (st == XD_OK)
        st = xd_inspect(&a, &e);
    return xd_cli_end(st, &e);
}

const xd_command xd_cmd_inspect = {
    .name = "inspect",
    .summary = "list the components and tensors of a model",
    .run = run_command,
    .help = print_help,
};
