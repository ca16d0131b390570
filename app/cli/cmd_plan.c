/* cmd_plan.c - the command xdit plan, which predicts time and memory of every plan of a request
 * without loading weights */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/opt.h"
#include "cli/type_rows.h"
#include "families/help.h"

typedef struct task { /* state of one run of xdit plan */
    xd_advise_args ask;
    xd_request     request;
    const char    *plan, *memory;
    xd_opt_texts   controlnets;
    xd_opt_table   tables[3];
    xd_opt_spec    spec;
} task;

#define AT(field) offsetof(task, ask.field)

static const xd_option rows[] = {
    { "model", XD_OPT_TEXT, AT(model), 0, 0, NULL, "DIR",
      "model directory or org/name (reads only configs)" },
    { "world", XD_OPT_INT, AT(ranks), 1, 65536, NULL, "N",
      "number of ranks (default: all devices of the cluster, or all cores)" },
    { "cluster", XD_OPT_TEXT, AT(cluster), 0, 0, NULL, "NAME",
      "machine to plan for (default: this machine): 8xH100 is 8 devices, 2x8xL40 is 2 hosts of "
      "8. Devices: H100, H100-PCIe, H200, B200, H20, A100, A10, L40, L40S, L4, 4090, 5090, "
      "MI300X, MI355X. Alternatively, a file of `xdit probe`" },
    { "device", XD_OPT_TEXT, AT(device), 0, 0, NULL, "NAME",
      "cpu, or cuda with one GPU for each of the ranks (default: that of the cluster's file, "
      "else cpu)" },
    { "controlnet", XD_OPT_TEXT, offsetof(task, controlnets), 0, XD_OPT_MANY, NULL, "DIR",
      "control network of the model; may be repeated" },
    { "latent_upsampler", XD_OPT_TEXT, AT(latent_upsampler), 0, 0, NULL, "DIR",
      "network that enlarges latents, as in generate" },
    { "redux", XD_OPT_TEXT, AT(redux), 0, 0, NULL, "DIR",
      "prior that varies images (--redux_image): see xdit generate" },
    { "plan", XD_OPT_TEXT, offsetof(task, plan), 0, 0, NULL, "PLAN",
      "fixed degrees, such as u2r2pp2cfg2" },
    { "exact", XD_OPT_FLAG, AT(exact), 0, 1, NULL, NULL,
      "only plans that generate the image of one rank; results may differ by rounding" },
    { "all", XD_OPT_FLAG, AT(all), 0, 1, NULL, NULL,
      "also list impossible plans, with the reason" },
    { "explain", XD_OPT_INT, AT(explain), 1, 100000, NULL, "N",
      "times, memory and activity of plan N's ranks" },
    XD_TYPE_ROWS,
    { "offload", XD_OPT_TEXT, AT(offload), 0, 0, "auto none stream", "HOW",
      "weight streaming: auto or stream keep GPU weights in host memory (default: none for a "
      "cluster without --device)" },
    { "memory", XD_OPT_TEXT, offsetof(task, memory), 0, 0, NULL, "SIZE",
      "memory limit of a host or GPU, such as 11.5GiB (default: the free memory, or the "
      "cluster's)" },
    { "svg", XD_OPT_TEXT, AT(svg), 0, 0, NULL, "FILE",
      "drawing of the 4 fastest plans; with --explain N, of the time and memory of each rank in "
      "plan N" },
    { "json", XD_OPT_FLAG, AT(json), 0, 0, NULL, NULL, "print JSON" },
};

static const xd_opt_alias aliases[] = {
    { "config", "model" },
    { "machine", "cluster" },
    { "steps", "num_inference_steps" },
    { "nproc", "world" },
    { 0 },
};

static void on_log(void *cookie, int level, const char *line)
{
    (void)cookie;
    fprintf(stderr, "xdit: %s%s\n", level == XD_LOG_WARN ? "warning: " : "", line);
}

static void task_init(task *t)
{
    int              np, nr;
    const xd_option *plan = xd_parallel_options(&np), *request = xd_request_options(&nr);
    *t = (task){ .ask = { .size = sizeof(xd_advise_args),
                          .line = xd_cli_line,
                          .log = on_log,
                          .log_level = XD_LOG_WARN } };
    xd_request_init(&t->request);
    t->ask.request = &t->request;
    t->tables[0] = (xd_opt_table){ rows, sizeof rows / sizeof *rows, t };
    t->tables[1] = (xd_opt_table){ request, nr, &t->request };
    t->tables[2] = (xd_opt_table){ plan, np, &t->ask.parallel };
    t->spec = (xd_opt_spec){ .tables = t->tables,
                             .ntables = 3,
                             .aliases = aliases,
                             .operands = 1,
                             .extra_hint = "plan reads one model" };
}

static void print_help(FILE *f)
{
    task t;
    task_init(&t);
    char              *degrees = xd_opt_names("|", t.tables[2].rows, t.tables[2].n);
    const xd_opt_group groups[] = {
        { "Options", "model world cluster device weights_dtype memory exact all explain svg json | "
                     "plan controlnet redux latent_upsampler dtype text_weights_dtype offload" },
        { "The request",
          "width height num_frames num_inference_steps | guidance_scale true_cfg_scale "
          "num_images_per_prompt max_sequence_length" },
        { "Fixed degrees", degrees },
    };
    fputs("Usage: xdit plan --model DIR [--world N] [--cluster NAME] [options]\n\n"
          "Predicts every plan for N ranks, and prints the fastest first: seconds per step\n"
          "and per request, memory of the rank that needs most, bytes sent. It loads no\n"
          "weights and starts no ranks; the cluster need not exist.\n",
          f);
    xd_opt_help(f, &t.spec, groups, 3);
    fprintf(f,
            "\nExamples:\n"
            "  xdit plan --model models/demo-pixart --world 4\n"
            "  xdit plan --model %s --cluster 8xH100 \\\n"
            "    --world 4 --explain 1\n"
            "  xdit plan --model DIR --device cuda --cluster RTX4090 --weights_dtype int8\n",
            xd_family_says(XD_WORD_HUB));
    free(degrees);
}

static int run_command(int argc, char **argv)
{
    task         t;
    xd_err       e = { 0 };
    xd_opt_texts dir = { 0 };
    task_init(&t);
    xd_status st = xd_opt_parse(&t.spec, argc, argv, &dir, &e);
    xd_status one = xd_opt_operand(&t.ask.model, &dir, "model", st == XD_OK ? &e : NULL);
    st = st == XD_OK ? one : st;
    if (st == XD_OK && !t.ask.model)
        st = xd_fail(&e, XD_EINVAL, "plan needs a model: --model DIR");
    if (st == XD_OK && t.plan && strcmp(t.plan, "auto") != 0)
        st = xd_parallel_read(&t.ask.parallel, t.plan, &e);
    if (st == XD_OK && t.memory)
        st = xd_size_read(t.memory, "memory", &t.ask.memory, &e);
    t.ask.columns = xd_opt_columns();
    t.ask.controlnets = t.controlnets.v;
    t.ask.ncontrolnets = t.controlnets.n;
    if (st == XD_OK)
        st = xd_advise(&t.ask, &e);
    xd_opt_texts_free(&t.controlnets);
    if (st != XD_OK)
        return xd_cli_exit(st, &e);
    return xd_cli_flush();
}

const xd_command xd_cmd_plan = {
    .name = "plan",
    .summary = "predict time and memory of every parallel plan",
    .run = run_command,
    .help = print_help,
};
