/* cmd_bench.c - the command xdit bench, which measures the time of a model's components on this
 * machine, or compares a plan of several ranks with one rank */
#include <stddef.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/opt.h"
#include "cli/progress.h"
#include "cli/type_rows.h"
#include "families/help.h"
#include "launch/launch.h"
#include "launch/roster.h"
#include "launch/stop.h"

typedef struct task { /* state of one run of xdit bench */
    xd_bench_args bench;
    int           nproc, rank, start_timeout;
    xd_bar        bar;
    double        start_s;
    xd_opt_table  tables[2];
    xd_opt_spec   spec;
} task;

#define AT(field) offsetof(task, bench.field)

static xd_option rows[] = {
    { "config", XD_OPT_TEXT, AT(config), 0, 0, NULL, "DIR", "model directory, or org/name" },
    { "random_weights", XD_OPT_FLAG, AT(random_weights), 0, 0, NULL, NULL,
      "use random weights, and read only the configs" },
    { "share_layers", XD_OPT_FLAG, AT(share_layers), 0, 0, NULL, NULL,
      "blocks of one kind share their random weights, for models that do not fit in memory" },
    { "width", XD_OPT_INT64, AT(width), 1, 1048576, NULL, "PIXELS",
      "width (default: the model's)" },
    { "num_frames", XD_OPT_INT, AT(num_frames), 1, 100000, NULL, "N",
      "number of video frames (default: the model's)" },
    { "height", XD_OPT_INT64, AT(height), 1, 1048576, NULL, "PIXELS",
      "height (default: the model's)" },
    { "layers", XD_OPT_TEXT, AT(layers), 0, 0, NULL, "N,N",
      NULL }, /* the help text is set at run time by xd_opt_explain */
    { "max_sequence_length", XD_OPT_INT, AT(max_sequence_length), 1, 16384, NULL, "N",
      "text tokens (default: the model's)" },
    { "parts", XD_OPT_TEXT, AT(parts), 0, 0, NULL, "LIST",
      "parts to time, from \"text step block vae\" (default: all); several ranks: from \"step "
      "vae\"" },
    { "repeats", XD_OPT_INT, AT(repeats), 1, 1000000, NULL, "N",
      "repeats of each measurement (default: as many as run in half a second, at least 3; "
      "several ranks: 9 repeats, or 3 of steps that take seconds)" },
    { "threads", XD_OPT_INT, AT(threads), 1, 4096, NULL, "N",
      "number of threads per rank (default: the rank's share of cores)" },
    { "bind", XD_OPT_TEXT, AT(bind), 0, 0, "auto cores none", "HOW",
      "binding of ranks to CPU cores (default auto). auto: if a host has several ranks, and "
      "neither launcher nor OMP_ variables bind; cores: always; none: ranks are never bound to "
      "cores" },
    XD_TYPE_ROWS,
    { "gemm", XD_OPT_TEXT, AT(gemm), 0, 0, "auto fp8", "HOW",
      "fp8 also quantizes the inputs of linear layers (default auto). Needs --weights_dtype fp8 "
      "and a GPU" },
    { "attention", XD_OPT_TEXT, AT(attention), 0, 0, "auto int8", "HOW",
      "type of attention scores; int8 is faster and less exact (default auto)" },
    { "device", XD_OPT_TEXT, AT(device), 0, 0, NULL, "NAME", "cpu, cuda or cuda:N (default cpu)" },
    { "json", XD_OPT_FLAG, AT(json), 0, 0, NULL, NULL, "print JSON" },
    { "nproc", XD_OPT_INT, offsetof(task, nproc), 1, 65536, NULL, "N",
      "ranks to start (default: as the degrees need); without degrees, all ranks belong to "
      "Ulysses" },
    XD_LAUNCH_TIMEOUT(offsetof(task, start_timeout)),
};

static const xd_opt_alias aliases[] = {
    { "model", "config" },
    { 0 },
};

static void on_log(void *cookie, int level, const char *line)
{
    task *t = cookie;
    if (t->rank != 0 && level > XD_LOG_ERROR)
        return;
    xd_bar_clear(&t->bar);
    fprintf(stderr, "xdit: %s%s\n", level == XD_LOG_WARN ? "warning: " : "", line);
    if (level <= XD_LOG_ERROR)
        xd_roster_report(XD_ROSTER_ERROR);
}

/* Prints a line and flushes standard output, so that a reader of a pipe receives each line at
 * once. */
static void on_line(void *cookie, const char *line)
{
    task *t = cookie;
    xd_bar_clear(&t->bar);
    xd_cli_line(NULL, line);
    fflush(stdout);
}

/* Prints the name of a stage that begins. If standard error is no terminal, only the names of long
 * stages are printed. */
static void on_stage(void *cookie, const char *what, double bytes)
{
    task *t = cookie;
    if (t->bar.terminal || bytes >= 1e9 || xd_now_s() - t->start_s > 2)
        xd_bar_stage(&t->bar, what);
}

enum { ROWS = sizeof rows / sizeof *rows };

/* Sets the help text of the option --layers, because its example names a model family. */
static void set_help_texts(void)
{
    static char layers[128];
    snprintf(layers, sizeof layers,
             "number of blocks of each kind, such as %s; text encoders use the first number",
             xd_family_says(XD_WORD_LAYERS));
    xd_opt_explain(rows, ROWS, "layers", layers);
}

static void task_init(task *t)
{
    int              n;
    const xd_option *plan = xd_parallel_options(&n);
    *t = (task){ .start_timeout = -1,
                 .bench = { .size = sizeof(xd_bench_args),
                            .bind = "auto",
                            .line = on_line,
                            .on_stage = on_stage,
                            .log = on_log,
                            .log_level = XD_LOG_WARN },
                 .start_s = xd_now_s() };
    t->bench.cookie = t;
    xd_bar_init(&t->bar, stderr, xd_launch_columns(), 0);
    t->bench.parallel = (xd_parallel){ .tensor_parallel_degree = 1,
                                       .ulysses_degree = 1,
                                       .ring_degree = 1,
                                       .pipefusion_parallel_degree = 1,
                                       .data_parallel_degree = 1,
                                       .warmup_steps = 1 };
    set_help_texts();
    t->tables[0] = (xd_opt_table){ rows, ROWS, t };
    t->tables[1] = (xd_opt_table){ plan, n, &t->bench.parallel };
    t->spec = (xd_opt_spec){ .tables = t->tables,
                             .ntables = 2,
                             .aliases = aliases,
                             .operands = 1,
                             .extra_hint = "bench reads one model; a list of parts needs quotes" };
}

static void print_help(FILE *f)
{
    static const xd_opt_group groups[] = {
        { "Options",
          "config random_weights width height num_frames parts threads dtype weights_dtype device "
          "nproc json | share_layers layers max_sequence_length repeats bind text_weights_dtype "
          "gemm attention" },
        { "Several ranks", NULL },
    };
    task t;
    task_init(&t);
    fputs("Usage: xdit bench --config DIR [options]\n\n"
          "Times the text encoder, blocks, GEMMs, attention and VAE of a model, relative to\n"
          "the measured peak of this machine. With several ranks: times a step of the plan,\n"
          "and decoding with --use_parallel_vae, relative to the same work on one rank.\n",
          f);
    xd_opt_help(f, &t.spec, groups, 2);
    fputs("\nExamples:\n"
          "  xdit bench --config models/demo-pixart --random_weights --threads 1\n"
          "  xdit bench --config models/demo-pixart --threads 1 --ulysses_degree 2\n",
          f);
}

/* Sets *ranks to the number of ranks of the plan. If the command line has --nproc but no parallel
 * degrees, --nproc sets the Ulysses degree. */
static xd_status launch_ranks(task *t, int *ranks, xd_err *e)
{
    xd_parallel *p = &t->bench.parallel;
    if (t->nproc > 1 && xd_parallel_ranks(p) == 1)
        p->ulysses_degree = t->nproc;
    return xd_launch_ranks(p, t->nproc, ranks, e);
}

static int run_command(int argc, char **argv)
{
    task         t;
    xd_err       e = { 0 };
    int          code = XD_EXIT_OK, ranks = 1;
    xd_opt_texts dir = { 0 };
    task_init(&t);
    xd_status st = xd_opt_parse(&t.spec, argc, argv, &dir, &e);
    xd_status one = xd_opt_operand(&t.bench.config, &dir, "config", st == XD_OK ? &e : NULL);
    st = st == XD_OK ? one : st;
    if (xd_launched(&t.rank))
        xd_stop_arm_rank(), xd_launch_deadline(t.start_timeout, t.rank);
    if (st == XD_OK && !t.bench.config)
        st = xd_fail(&e, XD_EINVAL, "bench needs a model: --config DIR");
    if (st == XD_OK)
        st = launch_ranks(&t, &ranks, &e);
    if (st == XD_OK && ranks > 1)
        st = xd_launch_run(&(xd_launch){ .ranks = ranks,
                                         .argc = argc,
                                         .argv = argv,
                                         .command = "bench",
                                         .start_timeout = t.start_timeout },
                           &code, &e);
    else if (st == XD_OK)
        st = xd_bench(&t.bench, &e);
    xd_bar_end(&t.bar);
    return xd_cli_end_rank(st, &e, t.rank, code);
}

const xd_command xd_cmd_bench = {
    .name = "bench",
    .summary = "time the parts of a model, or a parallel plan",
    .run = run_command,
    .help = print_help,
};
