/* cmd_run.c - the command xdit run, which accepts the arguments of xDiT's runner.
 *
 * The arguments are translated as by xdit from-xdit, and the command xdit generate runs the
 * translation in the same process. If the translation has several ranks, xdit generate starts
 * them. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/opt.h"
#include "cli/xdit_compat.h"
#include "from_xdit/xdit_here.h"

static void print_note(void *cookie, const char *text)
{
    (void)cookie;
    fprintf(stderr, "xdit: note: %s\n", text);
}

/* Prints the translated command and the notes to standard error. */
static void print_translation(const xd_line *l, const xd_translation *o)
{
    fprintf(stderr, "xdit: this command runs\n");
    xd_translation_print(stderr, o);
    xd_here_notes(l, o, print_note, NULL);
}

/* ---- options --------------------------------------------------------------------------------- */

typedef struct flag_rows { /* the flags of xDiT's runner as options */
    const char *text;      /* dummy field for the value of every option; always NULL */
    xd_option   row[XD_XDIT_FLAGS_MAX];
    int         n;
    char        idle[4096], slower[1024]; /* names of xDiT's flags, separated by spaces */
} flag_rows;

static void add_name(char *list, size_t size, const char *name)
{
    size_t at = strlen(list);
    snprintf(list + at, size - at, "%s%s", at ? " " : "", name);
}

/* Converts the flags of xDiT's runner to rows of xd_option, for help texts and for the letters of
 * options. */
static void read_rows(flag_rows *h)
{
    for (const xd_xdit_flag *f = xd_xdit_flags; f->name; f++) {
        int alone = !f->value || f->value == 'b';
        int without = f->kind == XD_FLAG_NOT_NEEDED && strcmp(f->name, "output_directory") != 0;
        if (f->in != 'r' && f->in != 'b')
            continue;
        h->row[h->n++] = (xd_option){
            .name = f->name,
            .kind = alone ? XD_OPT_FLAG : XD_OPT_TEXT,
            .arg = alone                                 ? NULL
                   : f->value == 'i' || f->value == 'I'  ? "N"
                   : f->value == 'r' || f->value == 'R'  ? "X"
                   : strcmp(f->name, "output_directory") ? "TEXT"
                                                         : "DIR",
            .help = f->there,
        };
        if (without)
            add_name(h->idle, sizeof h->idle, f->name);
        else if (f->kind == XD_FLAG_SLOWER)
            add_name(h->slower, sizeof h->slower, f->name);
    }
}

/* Returns the long form of an option that is given as a letter, "--prompt" for "-p". Other words
 * are returned unchanged. */
static char *long_form(const flag_rows *h, char *word, char *text, size_t size)
{
    const xd_opt_table table = { h->row, h->n, NULL };
    const xd_opt_spec  s = { .tables = &table, .ntables = 1 };
    int                is_letter = word[0] == '-' && isalpha((unsigned char)word[1]) && !word[2];
    for (int i = 0; is_letter && i < h->n; i++) {
        const char *letter = xd_opt_letter(&s, h->row[i].name);
        if (letter && letter[0] == word[1]) {
            snprintf(text, size, "--%s", h->row[i].name);
            return text;
        }
    }
    return word;
}

/* ---- command --------------------------------------------------------------------------------- */

/* Refuses arguments that xDiT's parser of arguments would refuse, and commands that xdit cannot
 * run. */
static xd_status check_line(const xd_line *l, const xd_translation *o, xd_err *e)
{
    if (l->refusal[0])
        return xd_fail(e, XD_EINVAL,
                       "xDiT's runner: %.400s%s%s%s; options of xdit generate follow a word --",
                       l->refusal, l->why[0] ? " (" : "", l->why, l->why[0] ? ")" : "");
    xd_status st = xd_here_check(l, o, e);
    if (st == XD_OK && o->hosts > 1 && o->ranks > 1 && !xd_launched(NULL))
        return xd_fail(e, XD_EINVAL,
                       "--nnodes %d: one command on one host starts the ranks of all hosts: mpirun "
                       "--hostfile hosts --map-by ppr:%d:node -n %d xdit run ... without --nnodes",
                       o->hosts, (o->ranks + o->hosts - 1) / o->hosts, o->ranks);
    return st;
}

/* Runs xdit generate with the translated words, which begin after the words of the launcher, and
 * with the options of xdit generate in `more`. */
static int run_words(const xd_translation *o, int nmore, char **more)
{
    xd_err e = { 0 };
    int    first = 0;
    while (first < o->n && strcmp(o->word[first], "generate") != 0)
        first++;
    int    n = o->n - first - 1;
    char **v = malloc((size_t)(n + nmore + 1) * sizeof *v);
    if (!v)
        return xd_cli_exit(xd_fail(&e, XD_ENOMEM, "no memory for a command line"), &e);
    for (int i = 0; i < n; i++)
        v[i] = o->word[first + 1 + i];
    for (int i = 0; i < nmore; i++)
        v[n + i] = more[i];
    v[n + nmore] = NULL;
    int code = xd_cmd_generate.run(n + nmore, v);
    free(v);
    return code;
}

static int is_quiet(int n, char **words)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(words[i], "--quiet") || !strcmp(words[i], "-q"))
            return 1;
    return 0;
}

static xd_status translate(xd_script *s, xd_line *l, xd_translation *o, int argc, char **argv,
                           xd_err *e)
{
    char    **words = malloc((size_t)(argc + 1) * sizeof *words);
    char      (*text)[32] = malloc((size_t)(argc + 1) * sizeof *text);
    flag_rows h = { 0 };
    read_rows(&h);
    xd_status st = words && text ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a command line");
    for (int i = 0; st == XD_OK && i <= argc; i++)
        words[i] = i ? long_form(&h, argv[i - 1], text[i], sizeof text[i]) : "xdit";
    if (st == XD_OK)
        st = xd_script_read_words(s, argc + 1, words, e);
    free(words);
    free(text);
    if (st == XD_OK)
        st = xd_line_read(l, s, &s->command[0], e);
    if (st != XD_OK)
        return st;
    xd_translate(o, l);
    return check_line(l, o, e);
}

static int run_command(int argc, char **argv)
{
    xd_err         e = { 0 };
    xd_script      s = { .wanted = xd_line_wanted };
    xd_line        l = { 0 };
    xd_translation o = { 0 };
    int            own = 0, rank = 0, code = xd_compat_torchrun("run");
    if (code != XD_EXIT_OK)
        return code;
    while (own < argc && strcmp(argv[own], "--") != 0)
        own++;
    char    **more = argv + own + (own < argc);
    int       nmore = argc - (int)(more - argv);
    xd_status st = translate(&s, &l, &o, own, argv, &e);
    if (st == XD_OK && xd_launched(&rank))
        o.hosts = 1;
    if (st == XD_OK && rank == 0 && !is_quiet(nmore, more))
        print_translation(&l, &o);
    code = st == XD_OK ? run_words(&o, nmore, more) : xd_cli_failed(st, &e, rank);
    xd_translation_free(&o);
    xd_line_free(&l);
    xd_script_free(&s);
    return code;
}

/* ---- help ------------------------------------------------------------------------------------ */

static void print_help(FILE *f)
{
    flag_rows          h = { 0 };
    const char        *unused[2] = { NULL, NULL };
    const xd_opt_table table = { h.row, 0, unused };
    xd_opt_table       tables[] = { table };
    read_rows(&h);
    tables[0].n = h.n;
    const xd_opt_spec  s = { .tables = tables, .ntables = 1 };
    const xd_opt_group groups[] = {
        { "Options of xDiT's runner", NULL },
        { "Not supported (a warning; the image is exact, but slower)", h.slower },
        { "Not needed (reported, then ignored)", h.idle },
    };
    fputs(
        "Usage: xdit run --model NAME [options of xDiT's runner] [-- options of xdit generate]\n\n"
        "Accepts the arguments of xDiT's program xdit (xfuser.runner), prints the command\n"
        "that xdit from-xdit would print, and runs it. NAME is a name of xDiT's registry,\n"
        "a name on the Hugging Face Hub, or a directory. The product of the degrees is\n"
        "the number of ranks.\n",
        f);
    xd_opt_help(f, &s, groups, sizeof groups / sizeof *groups);
    fputs("\nExample:\n"
          "  xdit run --model models/demo-pixart --prompt \"a red circle\" \\\n"
          "    --num_inference_steps 20 -- --output demo.png\n",
          f);
}

const xd_command xd_cmd_run = {
    .name = "run",
    .summary = "generate with the arguments of the runner of xDiT",
    .run = run_command,
    .help = print_help,
};
