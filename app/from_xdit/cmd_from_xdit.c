/* cmd_from_xdit.c - the command xdit from-xdit, which explains a command line of xDiT and
 * translates it into a command line of xdit */
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/word_list.h"
#include "cli/cli.h"
#include "cli/opt.h"
#include "from_xdit/xdit_here.h"

typedef struct options { int flags, tables, json; } options;

static const xd_option rows[] = {
    { "flags", XD_OPT_FLAG, offsetof(options, flags), 0, 0, NULL, NULL,
      "print every flag of xDiT, its effect there, and its counterpart here" },
    { "tables", XD_OPT_FLAG, offsetof(options, tables), 0, 0, NULL, NULL,
      "print the tables of flags and models in doc/from-xdit.md" },
    { "json", XD_OPT_FLAG, offsetof(options, json), 0, 0, NULL, NULL,
      "print one JSON object for each command" },
};

/* ---- tables ---------------------------------------------------------------------------------- */

static void print_flags(void)
{
    for (const xd_xdit_flag *f = xd_xdit_flags; f->name; f++) {
        printf("--%s  (%s)\n    there: %s\n    here:  ", f->name,
               f->in == 'b'   ? "scripts, runner"
               : f->in == 'e' ? "scripts"
               : f->in == 'f' ? "benchmark/fid"
                              : "runner",
               f->there);
        if (f->kind == XD_FLAG_OTHER || f->kind == XD_FLAG_VALUE)
            printf("--%s; ", f->own);
        else if (f->kind != XD_FLAG_SAME)
            printf("%s: ", xd_flag_kind_name(f->kind));
        printf("%s\n", f->here);
    }
}

/* Prints one line with the translation of an xDiT command whose only options are a model and a
 * prompt. */
static void print_example(const char *script, const char *model)
{
    char *scripted[] = { "python", (char *)script, "--model", (char *)model, "--prompt", "TEXT" };
    char *run[] = { "xdit", "--model", (char *)model, "--prompt", "TEXT" };
    xd_script      s = { .wanted = xd_line_wanted };
    xd_line        l = { 0 };
    xd_translation o = { 0 };
    xd_status      st = script ? xd_script_read_words(&s, 6, scripted, NULL)
                               : xd_script_read_words(&s, 5, run, NULL);
    if (st == XD_OK && s.n && xd_line_read(&l, &s, &s.command[0], NULL) == XD_OK) {
        xd_translate(&o, &l);
        putchar('`');
        for (int i = 0; i < o.n; i++) {
            fputs(i ? " " : "", stdout);
            xd_shell_quote(stdout, o.word[i]);
        }
        putchar('`');
    }
    xd_translation_free(&o);
    xd_line_free(&l);
    xd_script_free(&s);
}

/* Prints table rows for the models of xDiT's example scripts, or for the models of xDiT's
 * runner. */
static void print_models(int scripts)
{
    const xd_xdit_model *m;
    for (int i = 0; (m = xd_xdit_model_at(i)); i++) {
        char script[128];
        if (!!m->scripts != scripts)
            continue;
        printf("| %s | `%s` | %s%s |", m->title, scripts ? m->scripts : m->names,
               m->own ? "" : "not built: ", m->own ? m->own : m->instead);
        snprintf(script, sizeof script, "%.*s.py", scripts ? (int)strcspn(m->scripts, " ") : 0,
                 scripts ? m->scripts : "");
        fputs(scripts ? " " : "", stdout);
        if (m->own && scripts)
            print_example(script, "DIR");
        printf(scripts ? " |\n" : "\n");
    }
}

/* Prints the names in the registry of xDiT's runner that differ from names on the Hugging Face
 * Hub. */
static void print_names(void)
{
    const xd_xdit_name *n;
    for (int i = 0; (n = xd_xdit_name_at(i)); i++) {
        const xd_xdit_model *m = xd_xdit_by_name(n->name);
        printf("| `%s` | ", n->name);
        if (m && m->own)
            print_example(NULL, n->name);
        else
            printf("not built: %s", m ? m->instead : "no model has this name");
        printf(" |\n");
    }
}

static void print_tables(void)
{
    static const struct {
        xd_flag_kind kind;
        const char  *title;
    } part[] = {
        { XD_FLAG_SAME, "Flags with the same name" },
        { XD_FLAG_OTHER, "Flags with another name" },
        { XD_FLAG_VALUE,
          "Flags that became values of another flag (from-xdit writes it; generate warns)" },
        { XD_FLAG_NOT_NEEDED, "Flags that are not needed (reported, then ignored)" },
        { XD_FLAG_SLOWER,
          "Flags of features that are not built (a warning; the image is exact, but slower)" },
        { XD_FLAG_REFUSED, "Flags that are refused" },
    };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        printf("### %s\n\n| flag | in xDiT | here |\n|---|---|---|\n", part[i].title);
        for (const xd_xdit_flag *f = xd_xdit_flags; f->name; f++)
            if (f->kind == part[i].kind && f->own)
                printf("| `--%s` | %s | `--%s`: %s |\n", f->name, f->there, f->own, f->here);
            else if (f->kind == part[i].kind)
                printf("| `--%s` | %s | %s |\n", f->name, f->there, f->here);
        printf("\n");
    }
    printf("### Models of the example scripts\n\n| model | script | here | the script's command "
           "here |\n|---|---|---|---|\n");
    print_models(1);
    printf("\n### Models of the runner\n\n| model | in its name | here |\n|---|---|---|\n");
    print_models(0);
    printf("\n### Names of the runner\n\n| name | the command here |\n|---|---|\n");
    print_names();
}

/* Prints a text without its control characters, because texts of a command line may contain any
 * byte. */
XD_PRINTF(1, 2) static void print_clean(const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int   n = vsnprintf(NULL, 0, fmt, ap);
    char *text = n < 0 ? NULL : malloc((size_t)n + 1);
    if (text) {
        vsnprintf(text, (size_t)n + 1, fmt, again);
        xd_clean(text, "\n");
        fputs(text, stdout);
    }
    free(text);
    va_end(again);
    va_end(ap);
}

/* ---- prediction of the behaviour of xDiT ----------------------------------------------------- */

static void print_error(const char *fails, const char *when, const char *error, const char *because)
{
    print_clean("  %s %s:\n    %s\n", fails, when, error);
    if (because[0])
        print_clean("    because: %s\n", because);
}

static void print_there(const xd_line *l)
{
    static const char *const by[] = { "torchrun", "python", "accelerate", "xDiT's xdit" };
    xd_verdict               v;
    xd_parallel              p = { 0 };
    xd_translation           o = { 0 };
    char                     plan[160];
    xd_translate(&o, l);
    p = o.plan;
    if (xd_line_product(l) == 1)
        p.ulysses_degree = 1;
    xd_translation_plan(&p, plan, sizeof plan);
    xd_line_judge(l, &v);
    print_clean("xDiT: %d process%s%s by %s", l->world, l->world == 1 ? "" : "es",
                l->auto_nproc ? " (one per GPU; the number is assumed)" : "", by[l->by]);
    if (l->nnodes > 1)
        print_clean(" on %d hosts", l->nnodes);
    if (l->model)
        print_clean(", %s with %s", l->model->title, l->model->pipeline);
    else
        print_clean(", %s, which is not a script of xDiT", l->runner ? "a model" : l->script);
    print_clean("; %s\n", plan);
    if (v.when)
        print_error("fails", v.when, v.error, v.because);
    else
        print_clean("  runs\n");
    for (int i = 0; i < v.npossible; i++)
        print_error("but fails", v.possible[i].when, v.possible[i].error, v.possible[i].because);
    for (int i = 0; i < v.nnotes; i++)
        print_clean("  note: %s\n", v.note[i]);
    xd_translation_free(&o);
}

/* ---- translation ----------------------------------------------------------------------------- */

static void print_shares(const char *what, int n, int ranks)
{
    if (n && ranks > 1 && n % ranks)
        print_clean("; %d %s, %d or %d a rank", n, what, n / ranks, n / ranks + 1);
    else if (n && ranks > 1)
        print_clean("; %d %s, %d a rank", n, what, n / ranks);
}

static void print_plan(const xd_line *l, const xd_translation *o)
{
    const xd_parallel *p = &o->plan;
    char               plan[160];
    xd_translation_plan(p, plan, sizeof plan);
    print_clean("plan: %s", plan);
    if (o->ranks > 1)
        print_clean(" on %d ranks%s", o->ranks,
                    o->hosts > 1 ? "" : ", which the command starts on this host");
    print_shares("heads", l->heads, p->ulysses_degree);
    if (p->pipefusion_parallel_degree > 1) {
        int patches = p->num_pipeline_patch ? p->num_pipeline_patch : p->pipefusion_parallel_degree;
        if (l->blocks && !p->attn_layer_num_for_pp)
            print_clean("; %d blocks in %d stages of about equal cost", l->blocks,
                        p->pipefusion_parallel_degree);
        print_clean("; %d patch%s", patches, patches == 1 ? "" : "es");
        if (patches > 1)
            print_clean(", %d exact step%s", p->warmup_steps > 1 ? p->warmup_steps : 1,
                        p->warmup_steps > 1 ? "s" : "");
    }
    print_clean("\n");
}

/* If the degrees need more processes than the command starts, suggests plans for the number of
 * processes that the command starts. */
static void print_fewer(const xd_line *l, const xd_translation *o)
{
    xd_err e = { 0 };
    if (l->world >= o->ranks || xd_parallel_check(&o->plan, l->world, &e) == XD_OK)
        return;
    const char *works = strstr(e.msg, "what would work: ");
    print_clean("  on %d rank%s instead: %s\n", l->world, l->world == 1 ? "" : "s",
                works ? works + strlen("what would work: ") : e.msg);
}

enum {
    /* maximum number of ranks for which plans are predicted, because a prediction simulates each
     * rank */
    MAX_PREDICTION = 64
};

static void on_line(void *cookie, const char *line)
{
    xd_buf_add(cookie, "  %s\n", line);
}

/* If the model's files exist, appends the prediction of `xdit plan` for this machine to `b`. */
static xd_status add_prediction(const xd_line *l, const xd_translation *o, xd_text_buf *b,
                                xd_err *e)
{
    const char    *model = o->model;
    xd_err         mine = { 0 };
    xd_request     r;
    xd_advise_args a = { .size = sizeof a,
                         .model = model,
                         .request = &r,
                         .ranks = o->ranks,
                         .parallel = o->plan,
                         .line = on_line,
                         .cookie = b };
    char          *index = model ? xd_model_index_path(model) : NULL;
    int there = index && xd_file_exists(index) && o->hosts == 1 && o->ranks <= MAX_PREDICTION;
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
    r.output.no_resolution_binning = xd_line_on(l, "no_use_resolution_binning");
    xd_status s = xd_advise(&a, &mine);
    if (s == XD_EINVAL)
        return xd_fail(e, s, "%s", mine.msg);
    if (s != XD_OK || b->failed) /* nothing is predicted for an incomplete model directory */
        b->len = 0;
    return XD_OK;
}

static void print_note(void *cookie, const char *text)
{
    (void)cookie;
    print_clean("note: %s\n", text);
}

static int print_here(const xd_line *l)
{
    xd_translation o = { 0 };
    xd_err         e = { 0 };
    xd_text_buf    b = { 0 };
    int            code = XD_EXIT_FAILED;
    xd_translate(&o, l);
    xd_status st = xd_here_check(l, &o, &e);
    if (st == XD_OK)
        st = add_prediction(l, &o, &b, &e);
    if (st == XD_ENOMEM) {
        code = xd_cli_exit(st, &e);
    } else if (st == XD_EUNSUPPORTED) {
        print_clean("here: %s\n", e.msg);
    } else if (st != XD_OK) {
        print_clean("here: refused, too: %s\n", e.msg);
    } else {
        print_clean("here:\n");
        xd_translation_print(stdout, &o);
        print_plan(l, &o);
        if (b.len)
            fputs(b.p, stdout);
        print_fewer(l, &o);
        xd_here_notes(l, &o, print_note, NULL);
        code = XD_EXIT_OK;
    }
    xd_buf_free(&b);
    xd_translation_free(&o);
    return code;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_json_note(void *cookie, const char *text)
{
    xd_text_buf *b = cookie;
    xd_buf_add(b, b->len ? "," : "");
    xd_buf_json_string(b, text);
}

/* Prints the translation of a command as a JSON object: the words of the command of xdit, or the
 * error; the error of xDiT's parser of arguments; and the notes. */
static int print_json(const xd_line *l)
{
    xd_translation o = { 0 };
    xd_err         e = { 0 };
    xd_text_buf    b = { 0 }, notes = { 0 };
    xd_translate(&o, l);
    xd_status st = xd_here_check(l, &o, &e);
    xd_here_notes(l, &o, add_json_note, &notes);
    xd_buf_add(&b, "{\"command\":");
    for (int i = 0; st == XD_OK && i < o.n; i++) {
        xd_buf_add(&b, i ? "," : "[");
        xd_buf_json_string(&b, o.word[i]);
    }
    xd_buf_add(&b, st == XD_OK ? "],\"error\":null" : "null,\"error\":");
    if (st != XD_OK)
        xd_buf_json_string(&b, e.msg);
    xd_buf_add(&b, ",\"refusal\":");
    if (l->refusal[0])
        xd_buf_json_string(&b, l->refusal);
    else
        xd_buf_add(&b, "null");
    xd_buf_add(&b, ",\"ranks\":%d,\"notes\":[%s]}", o.ranks, notes.p ? notes.p : "");
    if (b.failed || notes.failed)
        st = xd_fail(&e, XD_ENOMEM, "no memory for a command line");
    else
        xd_cli_line(NULL, b.p);
    xd_buf_free(&b);
    xd_buf_free(&notes);
    xd_translation_free(&o);
    return st == XD_ENOMEM ? xd_cli_exit(st, &e) : st == XD_OK ? XD_EXIT_OK : XD_EXIT_FAILED;
}

/* ---- translation of scripts of xDiT that run other scripts ----------------------------------- */

static const char *value_of(const xd_words *c, const char *flag)
{
    for (int i = 0; i + 1 < c->n; i++)
        if (strcmp(c->v[i], flag) == 0)
            return c->v[i + 1];
    return NULL;
}

/* Prints the replacement for those scripts in xDiT's folder benchmark/ that run another script once
 * for each parallel plan. Returns 0 for commands that do not run other scripts. */
static int print_sweep(const xd_words *c)
{
    static const char *const sweeps[] = { "single_node_latency_test.py", "usp_latency_test.py" };
    const char              *model = value_of(c, "--model_id"), *script = value_of(c, "--script"),
               *size = value_of(c, "--sizes");
    const char *n = value_of(c, "--n_gpus"), *steps = value_of(c, "--num_inference_steps"),
               *name = NULL;
    for (int i = 0; i < c->n && i < 4; i++)
        for (size_t k = 0; k < sizeof sweeps / sizeof *sweeps; k++)
            if (strlen(c->v[i]) >= strlen(sweeps[k]) &&
                !strcmp(c->v[i] + strlen(c->v[i]) - strlen(sweeps[k]), sweeps[k]))
                name = c->v[i];
    if (!name)
        return 0;
    const char *words[] = { "xdit",
                            "plan",
                            "--model",
                            model ? model : "DIR",
                            "--world",
                            n ? n : "8",
                            "--width",
                            size ? size : "1024",
                            "--height",
                            size ? size : "1024",
                            "--num_inference_steps",
                            steps ? steps : "20" };
    print_clean("xDiT: %s runs %s by torchrun with every plan of %s processes, and prints their "
                "times\nhere:\n ",
                name, script ? script : "a script", n ? n : "8");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        fputc(' ', stdout);
        xd_shell_quote(stdout, words[i]);
    }
    print_clean("\nplan: predicts all of them; xdit bench measures one\n");
    return 1;
}

/* ---- command --------------------------------------------------------------------------------- */

static void print_help(FILE *f)
{
    options            o = { 0 };
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, &o } };
    const xd_opt_spec  s = { .tables = tables, .ntables = 1 };
    const char        *of_first = xd_xdit_model_at(0)->scripts;
    const char        *script = of_first ? of_first : "any_example";
    fputs("Usage: xdit from-xdit 'COMMAND LINE OF xDiT, OR A SCRIPT WITH ONE'\n"
          "       xdit from-xdit SCRIPT\n"
          "       xdit from-xdit -            (a script, from standard input)\n"
          "       xdit from-xdit -- COMMAND LINE OF xDiT\n\n"
          "Prints what xDiT would do with a command line (processes, model, errors), and\n"
          "the command that does the same here, with its plan. The model need not exist; if\n"
          "it does, its configs are read. Of a script the lines that start xDiT are read,\n"
          "and NAME=VALUE lines before them. Nothing is run: where arrays, loops or\n"
          "conditions decide, put echo before torchrun, run the script, and give the line\n"
          "that it prints.\n",
          f);
    xd_opt_help_all(f, &s);
    fprintf(f,
            "\nExample:\n"
            "  xdit from-xdit 'torchrun --nproc_per_node=2 examples/%.*s.py \\\n"
            "    --model models/demo-pixart --prompt \"a red circle\" \\\n"
            "    --pipefusion_parallel_degree 2'\n",
            (int)strcspn(script, " "), script);
}

/* Returns an error with the reason why a text that has no command of xDiT cannot be translated. */
static xd_status no_command(const xd_script *s, xd_err *e)
{
    static const char installs[] = "pip pip3 conda mamba uv apt apt-get";
    const char       *c = s->other;
    size_t            n = c ? strcspn(c, " ") : 0;
    if (c && xd_list_has_n(installs, c, n))
        return xd_fail(
            e, XD_EINVAL,
            "'%.80s' installs software and runs no model; translate a line that begins with "
            "torchrun, python or xDiT's own xdit",
            c);
    if (c && n == 4 && !strncmp(c, "curl", n))
        return xd_fail(
            e, XD_EINVAL,
            "'curl' sends a request to xDiT's HTTP service; here use xdit generate --prompt, or "
            "xdit serve");
    if (c && !strncmp(c, "python", 6) && strstr(c, ".py"))
        return xd_fail(e, XD_EINVAL, "'%.80s' is not a script of xDiT and has no --model", c);
    if (c)
        return xd_fail(
            e, XD_EINVAL,
            "'%.*s' does not start xDiT: a line begins with torchrun, python, accelerate "
            "launch or xDiT's own xdit",
            n < 80 ? (int)n : 80, c);
    return xd_fail(e, XD_EINVAL, "there is no command in the line");
}

static xd_status translate_lines(const xd_script *s, int json, int *code, xd_err *e)
{
    for (int i = 0; i < s->n; i++) {
        xd_line l = { 0 };
        if (s->n > 1 && !json)
            printf("%scommand %d of %d\n", i ? "\n" : "", i + 1, s->n);
        if (!json && print_sweep(&s->command[i].words))
            continue;
        xd_status st = xd_line_read(&l, s, &s->command[i], e);
        int       one = XD_EXIT_OK;
        if (st == XD_OK && json) {
            one = print_json(&l);
        } else if (st == XD_OK) {
            print_there(&l);
            one = print_here(&l);
        }
        xd_line_free(&l);
        if (st != XD_OK)
            return st;
        *code = one != XD_EXIT_OK ? one : *code;
    }
    if (s->unset && !json)
        print_clean("note: variables that the text does not set, read as empty: %s\n", s->unset);
    return XD_OK;
}

/* Reads the xDiT command from one argument, a file, standard input, or the words of the command
 * line. */
static xd_status read_all(xd_script *s, int argc, char **argv, int words, xd_err *e)
{
    char     *text = NULL;
    size_t    len = 0, n = strlen(argv[0]);
    int       one = !words && argc == 1, in = one && !strcmp(argv[0], "-");
    int       sh = !words && n > 3 && !strcmp(argv[0] + n - 3, ".sh");
    xd_status st = XD_OK;
    if (in || sh || (one && xd_file_exists(argv[0]) && !xd_file_is_dir(argv[0]))) {
        st = argc > 1 ? xd_fail(e, XD_EINVAL, "scripts are read without arguments: " XD_SCRIPT_CURE)
                      : xd_file_read_any(argv[0], XD_SCRIPT_BYTES, &text, &len, e);
        if (st == XD_OK && strlen(text) != len)
            st = xd_fail(e, XD_EINVAL, "%s is not a script: it contains a byte 0",
                         in ? "standard input" : argv[0]);
        if (st == XD_OK)
            st = xd_script_read(s, text, e);
    } else if (one) {
        st = xd_script_read(s, argv[0], e);
    } else {
        st = xd_script_read_words(s, argc, argv, e);
    }
    free(text);
    return st == XD_OK && !s->n ? no_command(s, e) : st;
}

static int from_words(int argc, char **argv, int words, int json, xd_err *e)
{
    xd_script s = { .wanted = xd_line_wanted };
    int       code = XD_EXIT_OK;
    xd_status st = read_all(&s, argc, argv, words, e);
    if (st == XD_OK)
        st = translate_lines(&s, json, &code, e);
    if (st == XD_OK && xd_cli_flush() != XD_EXIT_OK)
        code = XD_EXIT_FAILED;
    xd_script_free(&s);
    return st == XD_OK ? code : xd_cli_exit(st, e);
}

static int run_command(int argc, char **argv)
{
    xd_err e = { 0 };
    int    json = argc && strcmp(argv[0], "--json") == 0;
    argc -= json, argv += json;
    int words = argc && strcmp(argv[0], "--") == 0;
    if (argc == 1 && strcmp(argv[0], "--flags") == 0) {
        print_flags();
        return xd_cli_flush();
    }
    if (argc == 1 && strcmp(argv[0], "--tables") == 0) {
        print_tables();
        return xd_cli_flush();
    }
    if (words)
        argc--, argv++;
    else if (argc && argv[0][0] == '-' && argv[0][1])
        return xd_cli_exit(xd_fail(&e, XD_EINVAL,
                                   "from-xdit has no option %.60s: write the command line of xDiT "
                                   "in quotes, or after --",
                                   argv[0]),
                           &e);
    if (!argc)
        return xd_cli_exit(
            xd_fail(&e, XD_EINVAL,
                    "from-xdit needs a command line of xDiT, in quotes, or a script"),
            &e);
    return from_words(argc, argv, words, json, &e);
}

const xd_command xd_cmd_from_xdit = {
    .name = "from-xdit",
    .summary = "translate a command line of xDiT",
    .run = run_command,
    .help = print_help,
};
