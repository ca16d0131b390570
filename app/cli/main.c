/* main.c - the program xdit: finds the command and runs it with its arguments.
 *
 * Standard output receives only results (names of written files, requested data). All other
 * messages are printed to standard error. */
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__ /* the C library's headers define this macro */
#include <malloc.h>
#endif
#include <sys/resource.h>

#include "base/par.h"
#include "cli/cli.h"
#include "cli/opt.h"
#include "commit.h"
#include "launch/launch.h"
#include "launch/roster.h"
#include "launch/stop.h"
#include "launch/streams.h"

enum { MAXCOMMANDS = 32, HELP_COLUMNS = 79 };

static const char usage_head[] =
    "xdit generates images and videos from text with diffusion transformers, on one\n"
    "or several CPUs or GPUs in parallel.\n\n"
    "Usage: xdit COMMAND [options]\n\nCommands:\n";

static const char usage_tail[] =
    "\n  xdit COMMAND --help   the main options of a command\n"
    "  xdit --help all       all commands; xdit --version: version, libraries\n"
    "\nExample, with the small model of the source tree:\n"
    "  xdit generate --model models/demo-pixart --output demo.png \\\n"
    "    --prompt \"a large red circle on a blue background\"\n";

/* Prints the main commands, one per line, and the names of the other commands in one line. Prints a
 * line for every command if `all` is set. */
static void print_commands(FILE *f, int all)
{
    const xd_command *const *c = xd_commands;
    fputs(usage_head, f);
    for (int i = 0; c[i] && (all || i < XD_MAIN_COMMANDS); i++)
        fprintf(f, "  %-10s %s\n", c[i]->name, c[i]->summary);
    if (!all)
        fputs("\nAlso:", f);
    for (int i = XD_MAIN_COMMANDS, at = 5; !all && c[i]; i++) {
        /* xdit worker is not listed, because only xdit serve starts it */
        if (c[i] == &xd_cmd_worker)
            continue;
        at += 1 + (int)strlen(c[i]->name);
        fprintf(f, "%s %s", at > HELP_COLUMNS ? "\n     " : "", c[i]->name);
        at = at > HELP_COLUMNS ? 6 + (int)strlen(c[i]->name) : at;
    }
    fputs(all ? "" : "\n", f);
    fputs(usage_tail, f);
}

static void print_usage(FILE *f)
{
    print_commands(f, 0);
}

static void print_all_commands(FILE *f)
{
    print_commands(f, 1);
}

static const xd_command *find_command(const char *name)
{
    for (const xd_command *const *c = xd_commands; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

static int no_command(const char *word)
{
    xd_err      e = { 0 };
    const char *names[MAXCOMMANDS] = { "help" }, *hint;
    int         n = 1;
    for (const xd_command *const *c = xd_commands; *c && n < MAXCOMMANDS; c++)
        names[n++] = (*c)->name;
    const char *known = xd_opt_command(word, names, n, &hint);
    const char *nearest = known || hint ? NULL : xd_opt_nearest(word, names, n);
    if (word[0] == '-')
        xd_fail(&e, XD_EINVAL, "options follow the command: xdit generate %.80s ...", word);
    else if (hint)
        xd_fail(&e, XD_EINVAL, "unknown command '%.80s'; %s", word, hint);
    else if (known)
        xd_fail(&e, XD_EINVAL, "unknown command '%.80s'; use '%s'", word, known);
    else if (nearest)
        xd_fail(&e, XD_EINVAL, "unknown command '%.80s'; the nearest one is '%s'", word, nearest);
    else
        xd_fail(&e, XD_EINVAL, "unknown command '%.80s'; xdit --help all lists the commands", word);
    return xd_cli_exit(XD_EINVAL, &e);
}

/* Returns 1 if --help is anywhere among the arguments, even after an invalid argument. */
static int wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return 1;
    return 0;
}

/* Prints the section or the option of a command's help text that a word names, as in `xdit help
 * generate ranks`. */
static int help_topic(const xd_command *c, const char *word)
{
    xd_err e = { 0 };
    char  *text = NULL;
    if (!xd_opt_topic(c->help, word, &text))
        return xd_cli_exit(
            xd_fail(&e, XD_EINVAL,
                    "the help of %s has neither a section nor an option named '%.80s'; xdit %s "
                    "--help all prints all options",
                    c->name, word, c->name),
            &e);
    xd_opt_print(stdout, text + (text[0] == '\n'));
    free(text);
    return xd_cli_flush();
}

/* Prints the main options of a command, and a last line that tells how to list the command's other
 * options. Prints every option of the command if `all` is set. */
static int help_command(const xd_command *c, int all)
{
    int    left = 0;
    char  *text = NULL;
    size_t len = 0;
    FILE  *f = all ? open_memstream(&text, &len) : NULL;
    if (f) {
        c->help(f);
        fclose(f);
    } else {
        text = xd_opt_main_help(c->help, &left);
    }
    xd_opt_print(stdout, text ? text : "");
    free(text);
    if (left) {
        char more[256];
        snprintf(more, sizeof more,
                 "\n%d more options: xdit %s --help all\n"
                 "One section or option: xdit %s --help WORD\n",
                 left, c->name, c->name);
        xd_opt_print(stdout, more);
    }
    return xd_cli_flush();
}

/* Prints a list of commands, wrapped to the width of the terminal. */
static int help_commands(void (*print)(FILE *f))
{
    char  *text = NULL;
    size_t len = 0;
    FILE  *f = open_memstream(&text, &len);
    if (f) {
        print(f);
        fclose(f);
        xd_opt_print(stdout, text ? text : "");
    }
    free(text);
    return xd_cli_flush();
}

static int print_help(const char *name, const char *topic)
{
    const xd_command *c = name ? find_command(name) : NULL;
    if (!name || strcmp(name, "help") == 0)
        return help_commands(print_usage);
    if (strcmp(name, "all") == 0)
        return help_commands(print_all_commands);
    if (!c)
        return no_command(name);
    if (topic && strcmp(topic, "all") != 0)
        return help_topic(c, topic);
    return help_command(c, topic != NULL);
}

/* Sets a short spin time for waiting OpenMP threads, unless the user has set one. OpenMP threads of
 * oneDNN spin while they wait. On a busy machine a spinning thread can occupy the core that the
 * awaited thread needs, so that an image takes many times as long as without spinning. The spin
 * time is set by environment variables, which the OpenMP runtime reads when it is loaded later. */
static void limit_spinning(void)
{
    static const char *const set_by_user[] = { "OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
                                               "KMP_BLOCKTIME" };
    for (size_t i = 0; i < sizeof set_by_user / sizeof *set_by_user; i++)
        if (getenv(set_by_user[i]))
            return;
    setenv("GOMP_SPINCOUNT", "1000", 1);
    setenv("KMP_BLOCKTIME", "0", 1);
}

/* Sets parameters of Open MPI before it starts, unless the user has set them. Without
 * mpi_yield_when_idle, Open MPI spins in blocking calls even if ranks share cores. An empty
 * opal_signal disables Open MPI's handler of fatal signals. Open MPI's handler of fatal signals
 * allocates memory, so it would hang after a fault within malloc. Without Open MPI's handler, the
 * kernel ends the rank. */
static void set_open_mpi_parameters(void)
{
    const char *ranks = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (!ranks)
        return;
    if (atoi(ranks) > xd_par_cores())
        setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    setenv("OMPI_MCA_opal_signal", "", 0);
}

/* If the address space is limited (ulimit -v), makes all threads share one heap, because glibc
 * would map 128 MB of address space for each further heap. */
static void limit_heaps(void)
{
#ifdef M_ARENA_MAX
    struct rlimit lim;
    if (getrlimit(RLIMIT_AS, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY)
        mallopt(M_ARENA_MAX, 1);
#endif
}

/* Refuses a stack limit (ulimit -s) that is too small; the limit also applies to the stacks of
 * threads. In measurements, a single rank needed a stack of more than 64 kB (96 kB was enough), and
 * Open MPI's launcher needed more than 192 kB (256 kB was enough). */
static xd_status check_stack(xd_err *e)
{
    enum { NEEDED_KB = 512 };
    struct rlimit lim;
    if (getrlimit(RLIMIT_STACK, &lim) != 0 || lim.rlim_cur == RLIM_INFINITY ||
        lim.rlim_cur >= NEEDED_KB * 1024)
        return XD_OK;
    return xd_fail(e, XD_ENOMEM, "the stack is limited to %lld kB (ulimit -s); xdit needs %d kB",
                   (long long)lim.rlim_cur / 1024, NEEDED_KB);
}

static int may_be_rank(const xd_command *c)
{
    return c == &xd_cmd_generate || c == &xd_cmd_run || c == &xd_cmd_bench || c == &xd_cmd_probe ||
           c == &xd_cmd_worker || c == &xd_cmd_upscale;
}

/* Prints one fact about the build that a bug report needs. The names of the libraries are printed
 * on one line. */
static void on_fact(void *cookie, const char *name, const char *value)
{
    static const char *const shown[] = { "kernels",     "kernels_error", "library", "video",
                                         "cuda_driver", "cublaslt",      "cudnn",   "nccl" };
    const char             **last = cookie;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (strcmp(name, shown[i]) == 0) {
            if (*last == shown[i])
                printf(", %s", value);
            else
                printf("\n%s: %s", name, value);
            *last = shown[i];
        }
}

static int print_version(void)
{
    const char *last = NULL;
    printf("xdit %s (commit %s)", xd_version(), XDIT_COMMIT);
    xd_about(on_fact, &last);
    putchar('\n');
    return xd_cli_flush();
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    xd_cli_note_start();
    if (!word) {
        print_usage(stderr);
        return XD_EXIT_USAGE;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0 || strcmp(word, "version") == 0) {
        return print_version();
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return print_help(argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL);
    const xd_command *c = find_command(word);
    if (!c)
        return no_command(word);
    if (wants_help(argc - 2, argv + 2))
        return print_help(c->name,
                          argc == 4 && argv[2][0] == '-' && argv[3][0] != '-' ? argv[3] : NULL);
    xd_err e = { 0 };
    if (check_stack(&e) != XD_OK)
        return xd_cli_exit(e.code, &e);
    limit_spinning();
    set_open_mpi_parameters();
    limit_heaps();
    xd_stop_arm_sigbus();
    xd_stop_arm_sigxcpu();
    int rank = 0;
    if (xd_launched(&rank)) {
        xd_streams_attach();
        if (may_be_rank(c) && xd_launch_check_env(&e) != XD_OK)
            return xd_cli_exit(e.code, &e);
        xd_roster_join(rank);
    }
    int code = c->run(argc - 2, argv + 2);
    if (code == XD_EXIT_OK)
        xd_roster_report(XD_ROSTER_DONE);
    return code;
}
