/* step.c - one part of a model with random weights, timed: a transformer step, a text encoder, a
 * decode
 *
 *   step CONFIG_DIR [--part step] [-W 512 -H 512] [--layers 2,4] [--threads 2] [--json]
 *
 * A thin program over xd_bench. With --turns it runs once for every line it reads and prints a
 * line of JSON for each, so that another program can take turns with it on the same cores
 * (torch_step.py). */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/opt.h"
#include "xdit/tools.h"

typedef struct task {
    xd_bench_args bench;
    int           turns, help;
} task;

#define AT(field) offsetof(task, bench.field)

static const xd_option rows[] = {
    { "part", XD_OPT_TEXT, AT(parts), 0, 0, "step text vae", "PART",
      "of the model: a pass of the transformer, the text encoders, the decoding" },
    { "width", XD_OPT_INT64, AT(width), 1, 1048576, NULL, "PIXELS", "default: the model's" },
    { "height", XD_OPT_INT64, AT(height), 1, 1048576, NULL, "PIXELS", "default: the model's" },
    { "num_frames", XD_OPT_INT, AT(num_frames), 1, 100000, NULL, "N", "default: the model's" },
    { "max_sequence_length", XD_OPT_INT, AT(max_sequence_length), 1, 16384, NULL, "N",
      "text tokens (default: the model's)" },
    { "layers", XD_OPT_TEXT, AT(layers), 0, 0, NULL, "N,N",
      "only so many blocks of each kind, \"2,4\" of FLUX; of text encoders the first number" },
    { "share_layers", XD_OPT_FLAG, AT(share_layers), 0, 0, NULL, NULL,
      "blocks of one kind share storage, for models that do not fit" },
    { "dtype", XD_OPT_TEXT, AT(dtype), 0, 0, "f32 bf16", "TYPE", "default: the machine's best" },
    { "weights_dtype", XD_OPT_TEXT, AT(weights_dtype), 0, 0, "f32 bf16 int8 fp8 int4 auto", "TYPE",
      "of the transformer's products (default: that of dtype)" },
    { "text_weights_dtype", XD_OPT_TEXT, AT(text_weights_dtype), 0, 0, "f32 bf16 int8 fp8 auto",
      "TYPE", "of the text encoders' likewise" },
    { "gemm", XD_OPT_TEXT, AT(gemm), 0, 0, "auto fp8", "HOW",
      "fp8: with --weights_dtype fp8 on a GPU, inputs of layers are fp8, too (default: auto)" },
    { "attention", XD_OPT_TEXT, AT(attention), 0, 0, "auto int8", "HOW",
      "attention scores: int8 is faster and less exact (default: auto)" },
    { "threads", XD_OPT_INT, AT(threads), 1, 4096, NULL, "N", "default: one for each core" },
    { "repeats", XD_OPT_INT, AT(repeats), 1, 64, NULL, "N",
      "timed runs (default: half a second and at least 3)" },
    { "device", XD_OPT_TEXT, AT(device), 0, 0, NULL, "NAME", "cpu (default), cuda, cuda:1 ..." },
    { "json", XD_OPT_FLAG, AT(json), 0, 0, NULL, NULL, "print JSON" },
    { "turns", XD_OPT_FLAG, offsetof(task, turns), 0, 0, NULL, NULL,
      "a run for each line on standard input, and its line of JSON before the next" },
    { "help", XD_OPT_FLAG, offsetof(task, help), 0, 0, NULL, NULL, "print this" },
};

static void help(const xd_opt_spec *spec)
{
    static const xd_opt_group all[] = { { "Options", NULL } };
    fputs("Usage: step CONFIG_DIR [options]\n\n"
          "Times one part of a model with random weights against the register peak, which is\n"
          "measured before and after every run.\n",
          stdout);
    xd_opt_help(stdout, spec, all, 1);
}

static void print(void *cookie, const char *line)
{
    (void)cookie;
    puts(line);
}

static void print_error(void *cookie, int level, const char *line)
{
    (void)cookie;
    fprintf(stderr, "step: %s%s\n", level == XD_LOG_WARN ? "warning: " : "", line);
}

/* Without --turns the library's own rule would do, but then it times blocks and products as
 * well. */
static int turn(void *cookie, const xd_bench_turn *last)
{
    task         *t = cookie;
    static double spent;
    char          line[64];
    spent = last->n ? spent + last->seconds : 0;
    if (!t->turns)
        return t->bench.repeats ? last->n < t->bench.repeats : last->n < 3 || spent < 0.5;
    if (last->n)
        printf("{\"run\": %d, \"seconds\": %.6g, \"gflop\": %.6g, \"peak_gflops\": %.5g}\n",
               last->n, last->seconds, last->gflop, last->peak_gflops);
    else
        puts("{\"ready\": true}");
    fflush(stdout);
    return fgets(line, sizeof line, stdin) != NULL;
}

int main(int argc, char **argv)
{
    static const xd_opt_alias aliases[] = {
        { "parts", "part" }, { "W", "width" }, { "H", "height" }, { "t", "threads" }, { 0 },
    };
    task         t = { .bench = { .size = sizeof(xd_bench_args),
                                  .random_weights = 1,
                                  .parts = "step",
                                  .line = print,
                                  .turn = turn,
                                  .log = print_error,
                                  .log_level = XD_LOG_WARN } };
    xd_opt_table table = { rows, sizeof rows / sizeof *rows, &t };
    xd_opt_spec  spec = { .tables = &table,
                          .ntables = 1,
                          .aliases = aliases,
                          .operands = 1,
                          .extra_hint = "step times one model" };
    xd_opt_texts dir = { 0 };
    xd_err       e = { 0 };
    t.bench.cookie = &t;
    t.bench.parallel = (xd_parallel){ .tensor_parallel_degree = 1,
                                      .ulysses_degree = 1,
                                      .ring_degree = 1,
                                      .pipefusion_parallel_degree = 1,
                                      .data_parallel_degree = 1 };
    xd_status s = xd_opt_parse(&spec, argc - 1, argv + 1, &dir, &e);
    t.bench.config = dir.n ? dir.v[0] : NULL;
    xd_opt_texts_free(&dir);
    if (s == XD_OK && t.help) {
        help(&spec);
        return 0;
    }
    if (s == XD_OK && !t.bench.config)
        s = xd_fail(&e, XD_EINVAL,
                    "which model? step CONFIG_DIR, a directory as diffusers writes it");
    if (s == XD_OK)
        s = xd_bench(&t.bench, &e);
    if (s != XD_OK)
        fprintf(stderr, "step: %s\n", e.msg);
    return s == XD_OK ? 0 : s == XD_EINVAL ? 2 : 1;
}
