/* cmd_from_xdit.c - xdit from-xdit: what xDiT would do with a command line, and ours for it */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/opt.h"
#include "cli/xdit_translate.h"

typedef struct own {
    int flags, tables;
} own;

static const xd_option rows[] = {
    { "flags", XD_OPT_FLAG, offsetof(own, flags), 0, 0, NULL, NULL,
      "print every flag of xDiT: what it does there, and here" },
    { "tables", XD_OPT_FLAG, offsetof(own, tables), 0, 0, NULL, NULL,
      "print flags and models as the tables of doc/from-xdit.md" },
};

/* ---- tables --------------------------------------------------------------------------------- */

static void print_flags(void)
{
    for (const xd_xdit_flag *f = xd_xdit_flags; f->name; f++) {
        printf("--%s  (%s)\n    there: %s\n    here:  ", f->name,
               f->in == 'b' ? "scripts, runner" : f->in == 'e' ? "scripts" : "runner", f->there);
        if (f->fate == XD_FATE_OTHER)
            printf("--%s; ", f->own);
        else if (f->fate != XD_FATE_SAME)
            printf("%s: ", xd_fate_name(f->fate));
        printf("%s\n", f->here);
    }
}

static void print_models(int scripts)
{
    for (const xd_xdit_model *m = xd_xdit_models; m->title; m++)
        if (!!m->scripts == scripts)
            printf("| %s | `%s` | %s |\n", m->title, scripts ? m->scripts : m->names,
                   m->own ? m->own : "not built");
}

static void print_tables(void)
{
    static const struct { xd_fate fate; const char *title; } part[] = {
        { XD_FATE_SAME, "Flags with the same name" }, { XD_FATE_OTHER, "Flags with another name" },
        { XD_FATE_NOT_NEEDED, "Flags that are not needed (said in a line, then ignored)" },
        { XD_FATE_SLOWER, "Flags of what is not built (a warning; the picture is exact, and comes later)" },
        { XD_FATE_REFUSED, "Flags that are refused" },
    };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        printf("### %s\n\n| flag | in xDiT | here |\n|---|---|---|\n", part[i].title);
        for (const xd_xdit_flag *f = xd_xdit_flags; f->name; f++)
            if (f->fate == part[i].fate && f->own)
                printf("| `--%s` | %s | `--%s`: %s |\n", f->name, f->there, f->own, f->here);
            else if (f->fate == part[i].fate)
                printf("| `--%s` | %s | %s |\n", f->name, f->there, f->here);
        printf("\n");
    }
    printf("### Models of the example scripts\n\n| model | script | here |\n|---|---|---|\n");
    print_models(1);
    printf("\n### Models of the runner\n\n| model | in its name | here |\n|---|---|---|\n");
    print_models(0);
}

/* ---- what xDiT does -------------------------------------------------------------------------- */

static void print_there(const xd_line *l)
{
    static const char *const by[] = { "torchrun", "python", "accelerate", "xDiT's xdit" };
    xd_verdict  v;
    xd_parallel p = { 0 };
    xd_ours     o = { 0 };
    char        plan[160];
    xd_ours_make(&o, l);
    p = o.plan;
    if (xd_line_product(l) == 1)
        p.ulysses_degree = 1;
    xd_ours_plan(&p, plan, sizeof plan);
    xd_line_judge(l, &v);
    printf("xDiT: %d process%s%s by %s", l->world, l->world == 1 ? "" : "es",
           l->auto_nproc ? " (as many as there are GPUs, taken for that)" : "", by[l->by]);
    if (l->nnodes > 1)
        printf(" on %d hosts", l->nnodes);
    if (l->model)
        printf(", %s with %s", l->model->title, l->model->pipeline);
    else
        printf(", %s, which is none of its own scripts", l->runner ? "a model" : l->script);
    printf("; %s\n", plan);
    if (v.when) {
        printf("  fails %s:\n    %s\n", v.when, v.error);
        if (v.because[0])
            printf("    because: %s\n", v.because);
    } else {
        printf("  runs\n");
    }
    for (int i = 0; i < v.nnotes; i++)
        printf("  note: %s\n", v.note[i]);
    xd_ours_free(&o);
}

/* ---- what is done here ----------------------------------------------------------------------- */

static void print_shares(const char *what, int n, int ranks)
{
    if (n && ranks > 1 && n % ranks)
        printf("; %d %s, %d or %d a rank", n, what, n / ranks, n / ranks + 1);
    else if (n && ranks > 1)
        printf("; %d %s, %d a rank", n, what, n / ranks);
}

static void print_plan(const xd_line *l, const xd_ours *o)
{
    const xd_parallel *p = &o->plan;
    char               plan[160];
    xd_ours_plan(p, plan, sizeof plan);
    printf("plan: %s", plan);
    if (o->ranks > 1)
        printf(" on %d ranks%s", o->ranks, o->hosts > 1 ? "" : ", which the command starts on this host");
    print_shares("heads", l->heads, p->ulysses_degree);
    if (p->pipefusion_parallel_degree > 1) {
        int patches = p->num_pipeline_patch ? p->num_pipeline_patch : p->pipefusion_parallel_degree;
        if (l->blocks && !p->attn_layer_num_for_pp)
            printf("; %d blocks in %d stages of about equal cost", l->blocks, p->pipefusion_parallel_degree);
        printf("; %d patch%s", patches, patches == 1 ? "" : "es");
        if (patches > 1)
            printf(", %d exact step%s", p->warmup_steps > 1 ? p->warmup_steps : 1, p->warmup_steps > 1 ? "s" : "");
    }
    printf("\n");
}

/* Plans for the processes that there were, when the degrees make more. */
static void print_fewer(const xd_line *l, const xd_ours *o)
{
    xd_err      e = { 0 };
    if (l->world >= o->ranks || xd_parallel_check(&o->plan, l->world, &e) == XD_OK)
        return;
    const char *works = strstr(e.msg, "what would work: ");
    printf("  on %d rank%s instead: %s\n", l->world, l->world == 1 ? "" : "s",
           works ? works + strlen("what would work: ") : e.msg);
}

static void print_notes(const xd_line *l, const xd_ours *o)
{
    const char *model = xd_line_text(l, "model");
    if (o->hosts > 1 && o->ranks > 1)
        printf("note: run it once, on one host; hosts is a file with a line for each of the %d: %s slots=%d\n",
               o->hosts, l->master ? l->master : "HOST", (o->ranks + o->hosts - 1) / o->hosts);
    if (model && !xd_file_is_dir(model))
        printf("note: nothing is downloaded: %s must be in the local Hugging Face cache, or be the name of a "
               "directory\n", model);
    if (o->plan.use_cfg_parallel && l->model && l->model->own && !(l->model->can & XD_CAN_CFG))
        printf("note: the guidance of this model is distilled: --use_cfg_parallel would leave half of the ranks "
               "without work; leave it out, or give those ranks to --ulysses_degree\n");
    if (o->note[0])
        printf("note: %s\n", o->note);
    for (int i = 0; i < o->nleft; i++)
        printf("note: --%s is left out (%s): %s\n", o->left[i]->name, xd_fate_name(o->left[i]->fate),
               o->left[i]->here);
}

enum { MAX_FORECAST = 64 };      /* ranks; every one is run on paper                            */

static void on_line(void *cookie, const char *line)
{
    xd_buf_add(cookie, "  %s\n", line);
}

/* Of a model that is there: what the plan would take on this machine, as `xdit plan` says it. */
static xd_status forecast(const xd_line *l, const xd_ours *o, xd_text_buf *b, xd_err *e)
{
    const char    *model = xd_line_text(l, "model");
    xd_err         mine = { 0 };
    xd_request     r;
    xd_advise_args a = { .model = model, .request = &r, .ranks = o->ranks, .parallel = o->plan,
                         .line = on_line, .cookie = b };
    char          *index = model ? xd_path_join(model, "model_index.json") : NULL;
    int            there = index && xd_file_exists(index) && o->hosts == 1 && o->ranks <= MAX_FORECAST;
    free(index);
    if (!there)
        return XD_OK;
    xd_request_init(&r);
    if (o->plan.pipefusion_parallel_degree < 2)
        a.parallel.warmup_steps = 0;
    r.width = xd_line_int(l, "width", l->runner ? 0 : 1024);
    r.height = xd_line_int(l, "height", l->runner ? 0 : 1024);
    r.num_inference_steps = xd_line_int(l, "num_inference_steps", l->runner ? 0 : 20);
    if (l->model && (l->model->can & XD_HAS_VIDEO))
        r.num_frames = xd_line_int(l, "num_frames", l->runner ? 0 : 49);
    r.no_resolution_binning = xd_line_on(l, "no_use_resolution_binning");
    xd_status s = xd_advise(&a, &mine);
    if (s == XD_EINVAL)
        return xd_fail(e, s, "%s", mine.msg);
    if (s != XD_OK || b->failed)        /* the directory is not whole: there is no forecast     */
        b->len = 0;
    return XD_OK;
}

/* What generate would refuse, as far as it can be known here. */
static xd_status check(const xd_line *l, const xd_ours *o, xd_text_buf *b, xd_err *e)
{
    const xd_given *list = xd_line_given(l, "attn_layer_num_for_pp");
    int             sum = 0;
    for (int i = 0; list && i < list->count; i++)
        sum += (int)strtol(list->v[i], NULL, 10);
    if (xd_line_product(l) < 1)
        return xd_fail(e, XD_EINVAL, "a degree is at least 1");
    if (list && l->blocks && sum != l->blocks)
        return xd_fail(e, XD_EINVAL, "the stages of --attn_layer_num_for_pp have %d blocks and the model %d; without "
                       "the flag the stages are balanced", sum, l->blocks);
    xd_status s = xd_parallel_check(&o->plan, o->ranks, e);
    return s == XD_OK ? forecast(l, o, b, e) : s;
}

static int print_here(const xd_line *l)
{
    xd_ours     o = { 0 };
    xd_err      e = { 0 };
    xd_text_buf b = { 0 };
    int         code = XD_EXIT_OK;
    xd_ours_make(&o, l);
    if (o.failed)
        return xd_cli_exit(xd_fail(&e, XD_ENOMEM, "no memory for a command line"), &e);
    if (l->model && !l->model->own) {
        printf("here: %s is not built\n", l->model->title);
        code = XD_EXIT_FAILED;
    } else if (check(l, &o, &b, &e) != XD_OK) {
        printf("here: refused, too: %s\n", e.msg);
        code = XD_EXIT_FAILED;
    } else {
        printf("here:\n");
        xd_ours_print(stdout, &o);
        print_plan(l, &o);
        if (b.len)
            fputs(b.p, stdout);
        print_fewer(l, &o);
        print_notes(l, &o);
    }
    xd_buf_free(&b);
    xd_ours_free(&o);
    return code;
}

/* ---- the command ------------------------------------------------------------------------------ */

static void help(FILE *f)
{
    own                o = { 0 };
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, &o } };
    const xd_opt_spec  s = { .tables = tables, .ntables = 1 };
    const xd_opt_group groups[] = { { "Options", NULL } };
    fputs("Usage: xdit from-xdit 'COMMAND LINE OF xDiT'\n"
          "       xdit from-xdit -- COMMAND LINE OF xDiT\n\n"
          "Says what xDiT would do with a command line (its processes, its model, its\n"
          "error if it has one), and prints the command that does the same here, with its\n"
          "plan. The model need not be there; where it is, its configs are looked at.\n", f);
    xd_opt_help(f, &s, groups, 1);
    fputs("\nExample:\n"
          "  xdit from-xdit 'torchrun --nproc_per_node=2 examples/pixartalpha_example.py \\\n"
          "    --model models/demo-pixart --prompt \"a red circle\" \\\n"
          "    --pipefusion_parallel_degree 2'\n", f);
}

static int translate(int argc, char **argv, xd_err *e)
{
    xd_shell  s = { 0 };
    xd_line   l = { 0 };
    int       code = XD_EXIT_USAGE;
    xd_status st = argc == 1 && (!argv[0][0] || strpbrk(argv[0], " \t\n")) ? xd_shell_read(&s, argv[0], e)
                                                          : xd_shell_take(&s, argc, argv, e);
    if (st == XD_OK)
        st = xd_line_read(&l, &s, e);
    if (st == XD_OK) {
        print_there(&l);
        code = print_here(&l);
        if (xd_cli_flush() != XD_EXIT_OK)
            code = XD_EXIT_FAILED;
    }
    xd_line_free(&l);
    xd_shell_free(&s);
    return st == XD_OK ? code : xd_cli_exit(st, e);
}

static int run(int argc, char **argv)
{
    xd_err e = { 0 };
    if (argc == 1 && strcmp(argv[0], "--flags") == 0) {
        print_flags();
        return xd_cli_flush();
    }
    if (argc == 1 && strcmp(argv[0], "--tables") == 0) {
        print_tables();
        return xd_cli_flush();
    }
    if (argc && strcmp(argv[0], "--") == 0)
        argc--, argv++;
    else if (argc && argv[0][0] == '-')
        return xd_cli_exit(xd_fail(&e, XD_EINVAL, "from-xdit has no option %.60s: the line of xDiT stands in "
                                   "quotes, or behind --", argv[0]), &e);
    if (!argc)
        return xd_cli_exit(xd_fail(&e, XD_EINVAL, "from-xdit needs a command line of xDiT, in quotes"), &e);
    return translate(argc, argv, &e);
}

const xd_command xd_cmd_from_xdit = {
    .name = "from-xdit",
    .summary = "translate a command line of xDiT",
    .run = run,
    .help = help,
};
