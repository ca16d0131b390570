/* cmd_doctor.c - the command xdit doctor, which checks this build and this machine */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/doctor.h"
#include "cli/opt.h"
#include "launch/launch.h"

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

#ifdef __x86_64__
#define NO_VECTORS "use a processor with AVX2"
#else
#define NO_VECTORS "nothing, or use a GPU (--device cuda): this processor has only kernels in C"
#endif

enum { PING_RANKS = 2, PING_S = 20, NO_LAUNCHER = 125 };

typedef struct options {
    const char *model;
    int         json, no_ranks, as_rank, nproc;
} options;

static const xd_option rows[] = {
    { "model", XD_OPT_TEXT, offsetof(options, model), 0, 0, NULL, "DIR",
      "check whether the weights of this model fit in memory" },
    { "nproc", XD_OPT_INT, offsetof(options, nproc), 1, 65536, NULL, "N",
      "print the CPUs that each of N ranks would be bound to (default 2)" },
    { "no_ranks", XD_OPT_FLAG, offsetof(options, no_ranks), 0, 0, NULL, NULL,
      "do not test messages between two ranks" },
    { "json", XD_OPT_FLAG, offsetof(options, json), 0, 0, NULL, NULL, "print one JSON object" },
    { "as_rank", XD_OPT_FLAG, offsetof(options, as_rank), 0, 0, NULL, NULL, NULL },
};

/* ---- checks of the build --------------------------------------------------------------------- */

typedef struct facts {
    char    libs[512], kernels[32], error[256], video[64], no_video[256];
    xd_host m;
} facts;

/* Stores the text `v` about the GPU library with which `name` begins. For example, the name
 * "cudnn_error" means that the library cuDNN cannot be loaded. Returns 0 if `name` does not begin
 * with the name of a GPU library. */
static int on_library_fact(xd_gpus *g, const char *name, const char *v)
{
    static const char *const keys[XD_GPU_LIBRARIES] = {
        [XD_GPU_CUBLASLT] = "cublaslt",
        [XD_GPU_NCCL] = "nccl",
        [XD_GPU_CUDNN] = "cudnn",
    };
    for (int i = 0; i < XD_GPU_LIBRARIES; i++) {
        const size_t n = strlen(keys[i]);
        if (strncmp(name, keys[i], n) != 0)
            continue;
        g->lacks[i] = strcmp(name + n, "_error") == 0;
        snprintf(g->libraries[i], sizeof g->libraries[i], "%s", v);
        return 1;
    }
    return 0;
}

/* Stores the value `v` of the property `name` of xd_about if the property describes CUDA; else
 * returns 0. */
static int on_gpu_fact(xd_gpus *g, const char *name, const char *v)
{
    int old = !strncmp(name, "cuda_old:", 9);
    if (old || !strncmp(name, "cuda:", 5)) {
        if (g->n < XD_GPUS) {
            g->old[g->n] = old;
            snprintf(g->text[g->n++], sizeof g->text[0], "%s", v);
        }
    } else if (!strcmp(name, "cuda")) {
        snprintf(g->none, sizeof g->none, "%s", v);
    } else if (!strcmp(name, "cuda_driver")) {
        snprintf(g->driver, sizeof g->driver, "%s", v);
    } else if (!strcmp(name, "cuda_peers")) {
        snprintf(g->peers, sizeof g->peers, "%s", v);
    } else if (!strcmp(name, "cuda_kernels_error")) {
        snprintf(g->no_kernels, sizeof g->no_kernels, "%s", v);
    } else {
        return on_library_fact(g, name, v);
    }
    return 1;
}

static void on_fact(void *cookie, const char *name, const char *v)
{
    facts *f = cookie;
    size_t at = strlen(f->libs);
    if (on_gpu_fact(&f->m.gpus, name, v))
        return;
    if (!strcmp(name, "library"))
        snprintf(f->libs + at, sizeof f->libs - at, "%s%s", at ? ", " : "", v);
    else if (!strcmp(name, "kernels"))
        snprintf(f->kernels, sizeof f->kernels, "%s", v);
    else if (!strcmp(name, "kernels_error"))
        snprintf(f->error, sizeof f->error, "%s", v);
    else if (!strcmp(name, "video"))
        snprintf(f->video, sizeof f->video, "%s", v);
    else if (!strcmp(name, "video_error"))
        snprintf(f->no_video, sizeof f->no_video, "%s", v);
    else if (!strcmp(name, "type"))
        snprintf(f->m.type, sizeof f->m.type, "%s", v);
    else if (!strcmp(name, "cores"))
        f->m.cores = atoi(v);
    else if (!strcmp(name, "memory"))
        f->m.free_bytes = atof(v);
    else if (!strcmp(name, "address_space"))
        f->m.mapped = atof(v);
    else if (!strcmp(name, "hub"))
        snprintf(f->m.hub, sizeof f->m.hub, "%s", v);
}

static void find_build(xd_findings *f, const facts *a)
{
    const char *isa = strchr(a->kernels, '-') ? strchr(a->kernels, '-') + 1 : a->kernels;
#ifdef __OPTIMIZE__
    xd_findings_add(f, XD_CHECK_OK, "build", "", "xdit %s, compiler " COMPILER, xd_version());
#else
    xd_findings_add(f, XD_CHECK_WARN, "build",
                    "meson configure BUILD --buildtype=release, and "
                    "build again",
                    "xdit %s, compiler " COMPILER ", not optimized", xd_version());
#endif
    xd_findings_add(f, XD_CHECK_OK, "libraries", "", "%s", a->libs);
    if (a->video[0])
        xd_findings_add(f, XD_CHECK_OK, "video", "", "%s", a->video);
    else
        xd_findings_add(f, XD_CHECK_WARN, "video",
                        "nothing, or for videos install libavcodec, libavformat and libswscale",
                        "%s", a->no_video);
    if (a->error[0])
        xd_findings_add(f, XD_CHECK_FAIL, "kernels",
                        strstr(a->error, "oneDNN")
                            ? "install the version of oneDNN that this build needs"
                            : "unset XDIT_ISA",
                        "%s", a->error);
    else if (!strcmp(isa, "c") && getenv("XDIT_ISA"))
        xd_findings_add(f, XD_CHECK_WARN, "kernels", "unset XDIT_ISA",
                        "plain C, many times slower than with vector instructions");
    else if (!strcmp(isa, "c"))
        xd_findings_add(f, XD_CHECK_WARN, "kernels", NO_VECTORS,
                        "plain C, many times slower than with vector instructions");
    else
        xd_findings_add(f, XD_CHECK_OK, "kernels", "", "%s%s, computes in %s by default", isa,
                        getenv("XDIT_ISA") ? " (XDIT_ISA)" : "", a->m.type);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Runs this process as one of the ranks of a test: exchanges messages with the other ranks; rank 0
 * prints a line for the parent process. */
static void run_as_rank(void)
{
    xd_pinged p;
    xd_err    e = { 0 };
    int       rank = 0;
    alarm(PING_S);
    xd_pinged_init(&p);
    xd_launched(&rank);
    xd_status s = xd_ping(&p, &e);
    if (s == XD_OK && rank == 0)
        printf("pinged %d %.9g %.9g\n", p.ranks, p.latency_s, p.bytes_s);
    else if (s != XD_OK)
        fprintf(stderr, "xdit: %s\n", e.msg);
    fflush(NULL);
    /* _exit skips the exit handlers of MPI, which might hang */
    _exit(s == XD_OK ? XD_EXIT_OK : XD_EXIT_FAILED);
}

/* Runs the ranks of a test; never returns. The test runs in a child process, because a child
 * process can be killed after a timeout. Writes the output of the ranks to `out` and `err`. */
static void start_ranks(FILE *out, FILE *err)
{
    static char word[] = "--as_rank";
    char       *argv[] = { word };
    xd_launch   l = {
        .ranks = PING_RANKS, .argc = 1, .argv = argv, .command = "doctor", .start_timeout = PING_S
    };
    xd_err e = { 0 };
    int    code = 0;
    if (dup2(fileno(out), 1) < 0 || dup2(fileno(err), 2) < 0)
        _exit(XD_EXIT_FAILED);
    if (xd_launch_run(&l, &code, &e) != XD_OK) {
        fprintf(stderr, "%s\n", e.msg);
        code = NO_LAUNCHER;
    }
    fflush(NULL);
    _exit(code);
}

/* Runs the ranks in a child process. Returns the exit code of the ranks, or -1 if the ranks were
 * killed after a timeout. After the timeout, the child process receives SIGTERM, upon which it ends
 * the ranks. */
static int run_ranks(FILE *out, FILE *err)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        start_ranks(out, err);
    if (pid < 0)
        return XD_EXIT_FAILED;
    for (int tenth = 0; tenth < 10 * (PING_S + 5); tenth++) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (tenth == 10 * (PING_S + 1))
            kill(pid, SIGTERM);
        nanosleep(&(struct timespec){ .tv_nsec = tenth < 20 ? 20000000 : 100000000 }, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return -1;
}

static void judge_ranks(xd_findings *f, FILE *out, FILE *err, int code)
{
    xd_pinged p = { 0 };
    char      line[300] = "", rate[16];
    rewind(out);
    rewind(err);
    for (char text[256]; fgets(text, sizeof text, out);)
        if (sscanf(text, "pinged %d %lf %lf", &p.ranks, &p.latency_s, &p.bytes_s) == 3)
            break;
    if (!fgets(line, sizeof line, err))
        line[0] = 0;
    line[strcspn(line, "\n")] = 0;
    if (code == NO_LAUNCHER)
        xd_findings_add(f, XD_CHECK_WARN, "ranks", "nothing, if one rank is enough", "%s", line);
    else if (code < 0)
        xd_findings_add(f, XD_CHECK_FAIL, "ranks", "try mpirun -n 2 hostname",
                        "%d ranks were started and have not connected within %d s", PING_RANKS,
                        PING_S);
    else if (code || p.ranks < PING_RANKS)
        xd_findings_add(f, XD_CHECK_FAIL, "ranks",
                        "try mpirun -n 2 hostname, and read the "
                        "messages of "
                        "mpirun",
                        "%d ranks were started "
                        "and did not connect: %s",
                        PING_RANKS, line[0] ? line : "they printed nothing");
    else
        xd_findings_add(f, XD_CHECK_OK, "ranks", "",
                        "%d ranks exchange messages: %.1f us "
                        "latency, %s/s",
                        p.ranks, p.latency_s * 1e6, xd_bytes_text(p.bytes_s, rate));
}

static void find_ranks(xd_findings *f)
{
    FILE *out = tmpfile(), *err = tmpfile();
    if (!out || !err)
        xd_findings_add(f, XD_CHECK_FAIL, "ranks", "free space in the temporary directory",
                        "cannot make a temporary file: %s", strerror(errno));
    else if (xd_launched(NULL))
        xd_findings_add(f, XD_CHECK_WARN, "ranks", "run doctor without mpirun",
                        "not tested: doctor itself was started by an MPI launcher");
    else
        judge_ranks(f, out, err, run_ranks(out, err));
    if (out)
        fclose(out);
    if (err)
        fclose(err);
}

/* ---- command --------------------------------------------------------------------------------- */

static void print_help(FILE *f)
{
    options            o = { 0 };
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, &o } };
    const xd_opt_spec  s = { .tables = tables, .ntables = 1 };
    fputs("Usage: xdit doctor [options]\n\n"
          "Checks this build and this machine: libraries, kernels, cores, memory, limits,\n"
          "and messages between two ranks. Each line begins with ok, warn or fail, and ends\n"
          "with the cure. The exit code is 1 if a check fails.\n",
          f);
    xd_opt_help_all(f, &s);
    fputs("\nExample:\n"
          "  xdit doctor --model models/demo-pixart\n",
          f);
}

/* Prints the names of failed checks to standard error. */
static int report_failed(const xd_findings *f)
{
    const char *before = "xdit: failed checks: ";
    for (int i = 0; i < f->n; i++)
        if (f->v[i].state == XD_CHECK_FAIL) {
            fprintf(stderr, "%s%s", before, f->v[i].name);
            before = ", ";
        }
    fputc('\n', stderr);
    return XD_EXIT_FAILED;
}

static int examine_host(const options *o)
{
    xd_findings f = { 0 };
    facts       a = { .m.model = o->model, .m.ranks = o->nproc ? o->nproc : PING_RANKS };
    xd_about(on_fact, &a);
    find_build(&f, &a);
    xd_check_host(&f, &a.m);
    int printed = f.n;
    if (!o->json)
        xd_findings_print(&f, 0);
    if (!o->no_ranks)
        find_ranks(&f);
    if (o->json)
        xd_findings_json(&f);
    else
        xd_findings_print(&f, printed);
    if (xd_cli_flush() != XD_EXIT_OK)
        return XD_EXIT_FAILED;
    return xd_findings_worst(&f) == XD_CHECK_FAIL ? report_failed(&f) : XD_EXIT_OK;
}

static int run_command(int argc, char **argv)
{
    options            o = { 0 };
    xd_err             e = { 0 };
    const xd_opt_table tables[] = { { rows, sizeof rows / sizeof *rows, &o } };
    const xd_opt_spec  s = { .tables = tables,
                             .ntables = 1,
                             .extra_hint = "a model is given as --model DIR" };
    xd_status          st = xd_opt_parse(&s, argc, argv, NULL, &e);
    if (st == XD_OK && o.model && !xd_file_is_dir(o.model))
        st = xd_fail(&e, XD_EINVAL, "--model %.200s is not a directory", o.model);
    if (st != XD_OK)
        return xd_cli_exit(st, &e);
    if (o.as_rank)
        run_as_rank();
    return examine_host(&o);
}

const xd_command xd_cmd_doctor = {
    .name = "doctor",
    .summary = "check this build and this machine",
    .run = run_command,
    .help = print_help,
};
