/* cmd_upscale.c - the command xdit upscale, which enlarges images and videos with an upscaler */
#include <stddef.h>

#include "cli/cli.h"
#include "cli/opt.h"
#include "cli/progress.h"
#include "launch/launch.h"
#include "launch/roster.h"
#include "launch/stop.h"

typedef struct task { /* state of one run of xdit upscale */
    xd_upscale_args a;
    int             ranks, rank, start_timeout;
    xd_bar          bar;
    xd_opt_table    table;
    xd_opt_spec     spec;
} task;

#define AT(field) offsetof(task, field)

static const xd_option rows[] = {
    { "model", XD_OPT_TEXT, AT(a.model), 0, 0, NULL, "FILE",
      "file of an upscaler, .safetensors: RRDBNet (ESRGAN, Real-ESRGAN) or SRVGGNetCompact" },
    { "output", XD_OPT_TEXT, AT(a.output), 0, 0, NULL, "FILE",
      "output file: an image type for an image; for a video, a video type, or an image type for "
      "separate frames" },
    { "tile_size", XD_OPT_INT64, AT(a.tile_size), 1, 1e6, NULL, "PIXELS",
      "compute tiles of PIXELS x PIXELS of the input, which need less memory (default: the "
      "complete image); the pixels are the same" },
    { "nproc", XD_OPT_INT, AT(ranks), 1, 65536, NULL, "N",
      "number of ranks to start on this host, which compute rows of each image (default 1; "
      "ignored under mpirun or srun)" },
    XD_LAUNCH_TIMEOUT(AT(start_timeout)),
    { "threads", XD_OPT_INT, AT(a.threads), 1, 4096, NULL, "N",
      "threads per rank (default: its share of cores)" },
    { "device", XD_OPT_TEXT, AT(a.device), 0, 0, NULL, "NAME",
      "cpu, cuda for one GPU per rank, or cuda:N (default cpu)" },
    { "dtype", XD_OPT_TEXT, AT(a.dtype), 0, 0, NULL, "TYPE",
      "compute type: f32 or bf16, on a GPU also f16 (default: the fastest)" },
    { "fps", XD_OPT_REAL, AT(a.fps), 0.01, 1000, NULL, "RATE",
      "frames per second of the video (default: as in the input)" },
    { "output_quality", XD_OPT_INT, AT(a.quality), 0, 100, NULL, "N",
      "JPEG and WebP quality, 0 to 100 (default: 95)" },
};

static void on_log(void *cookie, int level, const char *line)
{
    task *t = cookie;
    if (t->rank > 0 && level > XD_LOG_ERROR)
        return;
    xd_bar_clear(&t->bar);
    fprintf(stderr, "xdit: %s%s\n", level == XD_LOG_WARN ? "warning: " : "", line);
    if (level <= XD_LOG_ERROR)
        xd_roster_report(XD_ROSTER_ERROR);
}

static void on_progress(void *cookie, int64_t frames, double part)
{
    task *t = cookie;
    char  what[48];
    snprintf(what, sizeof what, "frame %lld", (long long)frames + 1);
    xd_bar_share(&t->bar, what, part);
    xd_roster_report(XD_ROSTER_STEP);
}

static void task_init(task *t)
{
    *t = (task){ .start_timeout = -1 };
    xd_upscale_args_init(&t->a);
    t->a.log = on_log;
    t->a.log_level = XD_LOG_INFO;
    t->a.on_progress = on_progress;
    t->a.cookie = t;
    t->table = (xd_opt_table){ rows, sizeof rows / sizeof *rows, t };
    t->spec = (xd_opt_spec){ .tables = &t->table,
                             .ntables = 1,
                             .operands = 1,
                             .extra_hint = "upscale reads one image, video or folder" };
}

static void print_help(FILE *f)
{
    task t;
    task_init(&t);
    fputs("Usage: xdit upscale IN --model FILE --output OUT [options]\n\n"
          "Enlarges an image, or each frame of a video or of a folder of images, with an\n"
          "upscaler of the ESRGAN family. The network and its scale are those of the\n"
          "tensors in FILE. Ranks and tiles do not change the pixels.\n",
          f);
    xd_opt_help_all(f, &t.spec);
    fputs("\nExamples:\n"
          "  xdit upscale photo.png --model RealESRGAN_x4plus.safetensors --output big.png\n"
          "  xdit upscale clip.mp4 --model realesr-animevideov3.safetensors \\\n"
          "    --output big.mp4 --nproc 4\n",
          f);
}

static int run_command(int argc, char **argv)
{
    task         t;
    xd_err       e = { .rank = -1 };
    int          code = XD_EXIT_OK;
    xd_opt_texts in = { 0 };
    task_init(&t);
    xd_status st = xd_opt_parse(&t.spec, argc, argv, &in, &e);
    if (st == XD_OK && !in.n)
        st = xd_fail(&e, XD_EINVAL,
                     "upscale needs an image or a video: xdit upscale IN --model "
                     "FILE --output OUT");
    t.a.input = in.n ? in.v[0] : NULL;
    int launched = xd_launched(&t.rank);
    xd_bar_init(&t.bar, stderr, xd_launch_columns(), t.rank > 0);
    if (launched)
        xd_stop_arm_rank(), xd_launch_deadline(t.start_timeout, t.rank);
    else
        xd_stop_arm();
    if (st == XD_OK && t.ranks > 1 && !launched)
        st = xd_launch_run(&(xd_launch){ .ranks = t.ranks,
                                         .argc = argc,
                                         .argv = argv,
                                         .command = "upscale",
                                         .start_timeout = t.start_timeout },
                           &code, &e);
    else if (st == XD_OK)
        st = xd_upscale(&t.a, &e);
    xd_bar_end(&t.bar);
    if (st == XD_OK && t.rank <= 0 && !(t.ranks > 1 && !launched))
        xd_cli_name(t.a.output);
    xd_opt_texts_free(&in);
    return xd_cli_end_rank(st, &e, t.rank, code);
}

const xd_command xd_cmd_upscale = {
    .name = "upscale",
    .summary = "enlarge images and videos with an upscaler",
    .run = run_command,
    .help = print_help,
};
