/* cmd_probe.c - the command xdit probe, which measures the speed of this machine for xdit plan */
#include <stddef.h>

#include "cli/cli.h"
#include "cli/opt.h"
#include "launch/launch.h"
#include "launch/roster.h"
#include "launch/stop.h"

typedef struct task { /* state of one run of xdit probe */
    xd_probe_args probe;
    int           ranks, rank, start_timeout;
    xd_opt_table  table;
    xd_opt_spec   spec;
} task;

static const xd_option rows[] = {
    { "ranks", XD_OPT_INT, offsetof(task, ranks), 1, 65536, NULL, "N",
      "number of ranks to start on this host (default 1; ignored under mpirun or srun)" },
    XD_LAUNCH_TIMEOUT(offsetof(task, start_timeout)),
    { "threads", XD_OPT_INT, offsetof(task, probe.threads), 1, 4096, NULL, "N",
      "number of threads per rank (default: the rank's share of cores)" },
    { "device", XD_OPT_TEXT, offsetof(task, probe.device), 0, 0, NULL, "NAME",
      "cpu, cuda for one GPU per rank, or cuda:N (default cpu)" },
    { "output", XD_OPT_TEXT, offsetof(task, probe.output), 0, 0, NULL, "FILE",
      "file to write, - for standard output (default: where xdit plan looks for it)" },
};

static const xd_opt_alias aliases[] = { { "nproc", "ranks" }, { 0 } };

static void on_log(void *cookie, int level, const char *line)
{
    const task *t = cookie;
    if (t->rank == 0 || level <= XD_LOG_ERROR)
        fprintf(stderr, "xdit: %s%s\n", level == XD_LOG_WARN ? "warning: " : "", line);
    if (level <= XD_LOG_ERROR)
        xd_roster_report(XD_ROSTER_ERROR);
}

static void task_init(task *t)
{
    *t = (task){ .start_timeout = -1,
                 .probe = { .size = sizeof(xd_probe_args),
                            .line = xd_cli_line,
                            .log = on_log,
                            .log_level = XD_LOG_INFO } };
    t->probe.cookie = t;
    t->table = (xd_opt_table){ rows, sizeof rows / sizeof *rows, t };
    t->spec = (xd_opt_spec){ .tables = &t->table,
                             .ntables = 1,
                             .aliases = aliases,
                             .extra_hint = "probe has options "
                                           "only" };
}

static void print_help(FILE *f)
{
    task t;
    task_init(&t);
    fputs("Usage: xdit probe [--ranks N] [--threads T] [--device NAME] [--output FILE]\n\n"
          "Measures in a few seconds the speed of GEMMs, attention, convolutions, memory,\n"
          "messages between ranks, and of reading files (next to FILE, or in the cache of\n"
          "models). Writes a file for xdit plan --cluster FILE; without --output, xdit plan\n"
          "uses it as this machine.\n",
          f);
    xd_opt_help_all(f, &t.spec);
    fputs("\nExamples:\n"
          "  xdit probe --ranks 2\n"
          "  xdit probe --device cuda --ranks 2 --output gpus.json\n"
          "  mpirun --hostfile hosts -n 8 xdit probe --output cluster.json\n",
          f);
}

static int run_command(int argc, char **argv)
{
    task         t;
    xd_err       e = { .rank = -1 };
    int          code = XD_EXIT_OK;
    xd_opt_texts none = { 0 };
    task_init(&t);
    xd_status st = xd_opt_parse(&t.spec, argc, argv, &none, &e);
    xd_opt_texts_free(&none);
    int launched = xd_launched(&t.rank);
    if (launched)
        xd_stop_arm_rank(), xd_launch_deadline(t.start_timeout, t.rank);
    if (st == XD_OK && t.ranks > 1 && !launched)
        st = xd_launch_run(&(xd_launch){ .ranks = t.ranks,
                                         .argc = argc,
                                         .argv = argv,
                                         .command = "probe",
                                         .start_timeout = t.start_timeout },
                           &code, &e);
    else if (st == XD_OK)
        st = xd_probe(&t.probe, &e);
    return xd_cli_end_rank(st, &e, t.rank, code);
}

const xd_command xd_cmd_probe = {
    .name = "probe",
    .summary = "measure the speed of this machine, for better plans",
    .run = run_command,
    .help = print_help,
};
