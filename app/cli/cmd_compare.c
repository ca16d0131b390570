/* cmd_compare.c - the command xdit compare, which measures the difference between two images or
 * videos */
#include <stddef.h>

#include "cli/cli.h"
#include "cli/opt.h"
#include "cli/step_hashes.h"

#define AT(field) offsetof(xd_compare_args, field)

static const xd_option steps_row[] = {
    { "steps", XD_OPT_FLAG, 0, 0, 0, NULL, NULL,
      "compare two files with hashes of denoising steps from xdit generate; exit code 1 if "
      "they differ" },
};

static const xd_option rows[] = {
    { "difference", XD_OPT_TEXT, AT(difference), 0, 0, NULL, "FILE",
      "write the difference of the worst frame as an image: black is equal, white is 255 "
      "levels" },
    { "threads", XD_OPT_INT, AT(threads), 1, 4096, NULL, "N",
      "number of threads (default: all cores)" },
    { "json", XD_OPT_FLAG, AT(json), 0, 0, NULL, NULL, "print one JSON object" },
};

static void print_help(FILE *f)
{
    xd_compare_args    a = { 0 };
    int                steps = 0;
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, &a },
                                    { steps_row, 1, &steps } };
    const xd_opt_spec  s = { .tables = tables, .ntables = 2 };
    fputs("Usage: xdit compare A B [options]\n\n"
          "Measures the difference of two images or videos: PSNR, SSIM, mean and largest\n"
          "difference of levels. A and B are images (PNG, JPEG, WebP, PPM), videos (MP4,\n"
          "MOV, MKV, WebM, GIF), or directories of images, of equal size and length.\n"
          "With --steps, A and B are files of step hashes that xdit generate has written\n"
          "(option determinism_file): the first step, pass and block that differs is named.\n",
          f);
    xd_opt_help_all(f, &s);
    fputs("\nExamples:\n"
          "  xdit compare exact.png cached.png\n"
          "  xdit compare bf16.mp4 int8.mp4 --difference where.png\n"
          "  xdit compare --steps one-rank.txt two-ranks.txt\n",
          f);
}

static xd_status compare_steps(const xd_compare_args *a, xd_err *e)
{
    char      summary[512];
    xd_status st = xd_step_hashes_compare(a->a, a->b, summary, e);
    if (st == XD_OK)
        xd_cli_line(NULL, summary);
    return st;
}

static int run_command(int argc, char **argv)
{
    xd_err             e = { 0 };
    xd_compare_args    a = { .size = sizeof a, .line = xd_cli_line };
    xd_opt_texts       files = { 0 };
    int                steps = 0;
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, &a },
                                    { steps_row, 1, &steps } };
    const xd_opt_spec  s = { .tables = tables,
                             .ntables = 2,
                             .operands = 2,
                             .extra_hint = "compare reads two images or videos" };
    xd_status          st = xd_opt_parse(&s, argc, argv, &files, &e);
    if (files.n == 2)
        a.a = files.v[0], a.b = files.v[1];
    xd_opt_texts_free(&files);
    if (st == XD_OK && !a.b)
        st = xd_fail(&e, XD_EINVAL, "compare needs two images: xdit compare A B");
    if (st == XD_OK && steps)
        st = compare_steps(&a, &e);
    else if (st == XD_OK)
        st = xd_compare_files(&a, NULL, &e);
    return xd_cli_end(st, &e);
}

const xd_command xd_cmd_compare = {
    .name = "compare",
    .summary = "measure the difference of two images or videos",
    .run = run_command,
    .help = print_help,
};
