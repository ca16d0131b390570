/* cmd_trace.c - the command xdit trace, which summarizes the timeline that xdit generate --trace
 * wrote, and draws it as an SVG */
#include <stddef.h>

#include "cli/cli.h"
#include "cli/opt.h"

#define AT(field) offsetof(xd_trace_args, field)

static const xd_option rows[] = {
    { "svg", XD_OPT_TEXT, AT(svg), 0, 0, NULL, "FILE",
      "draw the request and the step: computing, waiting and messages of every rank" },
    { "step", XD_OPT_INT, AT(step), 1, 1000000, NULL, "N",
      "the step to summarize and draw (default: the last one)" },
};

static void print_help(FILE *f)
{
    xd_trace_args      a = { 0 };
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, &a } };
    const xd_opt_spec  s = { .tables = tables, .ntables = 1 };
    fputs("Usage: xdit trace FILE [options]\n\n"
          "Prints how long each rank computed and waited for messages. FILE is a trace that\n"
          "\"xdit generate --trace FILE\" wrote; https://ui.perfetto.dev shows it in detail.\n",
          f);
    xd_opt_help_all(f, &s);
    fputs("\nExamples:\n"
          "  xdit generate --model models/demo-pixart --nproc 4 --prompt \"a red circle\" \\\n"
          "    --trace run.json\n"
          "  xdit trace run.json --svg run.svg\n",
          f);
}

static int run_command(int argc, char **argv)
{
    xd_err             e = { 0 };
    xd_trace_args      a = { .size = sizeof a, .line = xd_cli_line };
    xd_opt_texts       file = { 0 };
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, &a } };
    const xd_opt_spec  s = {
        .tables = tables, .ntables = 1, .operands = 1, .extra_hint = "trace reads one file"
    };
    xd_status st = xd_opt_parse(&s, argc, argv, &file, &e);
    xd_opt_operand(&a.trace, &file, "trace", NULL);
    if (st == XD_OK && !a.trace)
        st = xd_fail(&e, XD_EINVAL, "trace needs a file: xdit trace FILE");
    if (st == XD_OK)
        st = xd_trace_show(&a, &e);
    return xd_cli_end(st, &e);
}

const xd_command xd_cmd_trace = {
    .name = "trace",
    .summary = "summarize a trace of a run, and draw it",
    .run = run_command,
    .help = print_help,
};
