/* launch.c - several ranks from one command line: this process starts the MPI launcher and stays
 * its parent, so that signals, exit codes and what is said are those of one program.
 *
 * The launcher has a process group of its own: Ctrl-C reaches this process alone, which passes
 * it on in a way that lets ranks end their request. Its files are in a room (rundir.h). Every
 * rank is on the roll (roll.h): one that dies, or ranks that do not meet, end the run also where
 * the launcher waits. */
#define _GNU_SOURCE             /* ppoll */
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "base/clock.h"
#include "base/connected.h"
#include "cli/cli.h"
#include "cli/limits.h"
#include "cli/links.h"
#include "cli/noise.h"
#include "cli/progress.h"
#include "cli/roll.h"
#include "cli/rundir.h"
#include "cli/streams.h"

#ifndef XDIT_MPI                /* 1: Open MPI, 2: another one, 0: none; the build says          */
#define XDIT_MPI 0
#endif

#define COLUMNS "XDIT_COLUMNS"  /* put into the environment of ranks: the width of a terminal, or */
                                /* 0 */

enum { PATIENCE_S = 30, AGONY_S = 5, AGAIN_S = 1, MAXRANKS = 4096, START_S = 60 };
enum { LOST_S = 10 };           /* in which a launcher that has lost a host ends the run       */

typedef struct watch {
    pid_t  child;
    int    out, err;            /* read ends; -1: ended                                        */
    int    lost;                /* errno of writing to standard output                         */
    int    heard;  /* something came on standard output: every command's ranks print */
    int    first;               /* the first signal that came                                  */
    int    stage;               /* 0 running, 1 cancelled, 2 told to end, 3 killed              */
    double since;               /* when the stage began                                        */
    double asked;               /* when the ranks were last told to cancel                     */
    double limit;               /* seconds until all ranks have met; 0: any                     */
    double lost_s;              /* when the launcher said that a host is lost; 0: it has not    */
    char   over[512];           /* why the run was ended here; empty: it was not                */
    xd_rundir  dir;
    xd_roll  roll;
    xd_noise noise;
} watch;

static const char LOST_HOST[] = "the connection to host ";     /* of xd_noise_sum            */

static volatile sig_atomic_t came;      /* signals since the last look                          */

static void on_signal(int sig)
{
    came = sig;
}

int xd_launch_columns(void)
{
    const char *v = getenv(COLUMNS);
    return v ? atoi(v) : 0;
}

xd_status xd_launch_ranks(const xd_parallel *p, int nproc, int *ranks, xd_err *e)
{
    int need = xd_parallel_ranks(p), launched = xd_launched(NULL), there = xd_launched_ranks();
    *ranks = launched ? 1 : nproc ? nproc : need;
    if (nproc && there && nproc != there)
        return xd_fail(
            e, XD_EINVAL,
            "--nproc asks for %d ranks, and the launcher has started %d: leave --nproc out, "
            "or start as many",
            nproc, there);
    return launched ? XD_OK : xd_parallel_check(p, *ranks, e);
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static char late_text[160];     /* what a rank says that waits too long for the others           */

static void on_late(int sig)
{
    ssize_t written = write(2, late_text, strlen(late_text));
    (void)sig;
    (void)written;
    _exit(XD_EXIT_FAILED);
}

static void is_in_time(void)
{
    alarm(0);
}

/* Is somebody listening on a port of this host? Also where the system does not tell. */
static int is_heard(unsigned port)
{
    char     line[256];
    unsigned at, state;
    int      found = 0, known = 0;
    FILE    *f = fopen("/proc/net/tcp", "r");
    while (f && !found && fgets(line, sizeof line, f))
        if (sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x", &at, &state) == 2) {
            known = 1;
            found = at == port && state == 10;
        }
    if (f)
        fclose(f);
    return found || !known;
}

/* "job.rank;tcp4://127.0.0.1:PORT": does a PMIx server that ranks find by their environment
 * still run? */
static int is_served(void)
{
    static const char name[] = "PMIX_SERVER_URI", here[] = "tcp4://127.0.0.1:";
    for (char **v = environ; *v; v++) {
        const char *uri = strncmp(*v, name, sizeof name - 1) == 0 ? strstr(*v, here) : NULL;
        if (uri)
            return is_heard((unsigned)atoi(uri + sizeof here - 1));
        if (strncmp(*v, name, sizeof name - 1) == 0)
            return 1;
    }
    return 0;
}

xd_status xd_launch_stray(xd_err *e)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                                         "PMIX_RANK", "PMI_SIZE", "PMI_RANK" };
    static const char *const alive[] = { "PMI_FD", "PMI_PORT", "SLURM_JOB_ID", "PALS_APID",
                                         "ALPS_APP_PE" };
    const char *name = NULL;
    int         served = is_served();
    for (size_t i = 0; i < sizeof names / sizeof *names && !name; i++)
        name = getenv(names[i]) ? names[i] : NULL;
    int open_mpi = name && (name[0] == 'O' || name[3] == 'X');
    for (size_t i = 0; i < sizeof alive / sizeof *alive && !open_mpi; i++)
        served |= getenv(alive[i]) != NULL;
    if (!name || served)
        return XD_OK;
    return xd_fail(
        e, XD_EIO,
        "%s in the environment says that an MPI launcher has started this process, and there is "
        "none any more: start it by mpirun, or take the launcher's variables away, env -u %s xdit "
        "...",
        name, name);
}

/* Has `xdit` itself started the launcher of this rank? It then ends the run on a lost host. */
static int is_ours(void)
{
    return getenv(COLUMNS) != NULL;
}

void xd_launch_await(int start_timeout, int rank)
{
    struct sigaction act = { .sa_handler = on_late };
    if (xd_roll_joined())       /* who keeps the roll looks at the clock, and at the launcher  */
        return;
    if (!is_ours())
        xd_links_watch(rank);
    if (start_timeout <= 0)
        return;
    snprintf(late_text, sizeof late_text,
             "xdit: rank %d: the ranks have not met within --start_timeout %d s\n", rank,
             start_timeout);
    sigemptyset(&act.sa_mask);
    sigaction(SIGALRM, &act, NULL);
    xd_connected_hook(is_in_time);
    alarm((unsigned)start_timeout);
}

/* A launcher ends all ranks when the first one fails, so those that are silent give rank 0 the time
 * to speak, and are ended when it has. */
int xd_launch_failed(xd_status s, const xd_err *e, int rank)
{
    char message[sizeof e->msg + 32];
    int  who = rank > 0 ? rank : e->rank;
    int  silent = rank > 0 && (e->rank >= 0 || s == XD_EINVAL || s == XD_ECANCELLED);
    if (who > 0)
        snprintf(message, sizeof message, "rank %d: %s", who, e->msg);
    else
        snprintf(message, sizeof message, "%s", e->msg);
    if (!silent) {
        fprintf(stderr, "xdit: %s\n", e->msg[0] ? message : xd_status_name(s));
        xd_roll_say(XD_ROLL_SAID);
    } else
        nanosleep(&(struct timespec){ .tv_sec = 2 }, NULL);
    return s == XD_EINVAL ? XD_EXIT_USAGE : XD_EXIT_FAILED;
}

int xd_launch_end(xd_status s, const xd_err *e, int rank, int code)
{
    if (s != XD_OK)
        code = xd_launch_failed(s, e, rank);
    if (code == XD_EXIT_OK)
        code = xd_cli_flush();
    if (s == XD_ECOMM)          /* no exit handler of MPI's, which would wait                   */
        _exit(code);
    return code;
}

/* ---- the launcher ---------------------------------------------------------------------------- */

static int in_path(const char *name, char *path, size_t size)
{
    const char *dirs = getenv("PATH");
    for (const char *p = dirs ? dirs : "/usr/bin:/bin"; *p; p += strcspn(p, ":"), p += *p == ':') {
        snprintf(path, size, "%.*s/%s", (int)strcspn(p, ":"), p, name);
        if (access(path, X_OK) == 0)
            return 1;
    }
    return 0;
}

static xd_status find_launcher(char *path, size_t size, xd_err *e)
{
    static const char *const names[] = { XDIT_MPI == 1 ? "mpirun.openmpi" : "mpiexec.hydra",
                                         XDIT_MPI == 1 ? "mpirun" : "mpiexec" };
    const char *own = getenv("XDIT_MPIRUN");
    if (!XDIT_MPI)
        return xd_fail(e, XD_EUNSUPPORTED, "this build has no MPI: it runs on one rank only");
    if (own && *own) {
        snprintf(path, size, "%s", own);
        if (strchr(own, '/') ? access(own, X_OK) == 0 : in_path(own, path, size))
            return XD_OK;
        return xd_fail(e, XD_EIO, "XDIT_MPIRUN is %s, and that is no program", own);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (in_path(names[i], path, size))
            return XD_OK;
    return xd_fail(e, XD_EIO, "several ranks are started by mpirun, which is not there: install "
                   "the package %s, or name it in XDIT_MPIRUN",
                   XDIT_MPI == 1 ? "openmpi-bin" : "mpich");
}

int xd_launch_here(void)
{
    static const char *const far[] = { "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID",
                                       "OMPI_MCA_orte_default_hostfile" };
    for (size_t i = 0; i < sizeof far / sizeof *far; i++)
        if (getenv(far[i]))
            return 0;
    return 1;
}

typedef struct words { const char *v[32]; int n; } words;

static void add_words(words *a, const char *first, const char *second, const char *third)
{
    a->v[a->n++] = first;
    if (second)
        a->v[a->n++] = second;
    if (third)
        a->v[a->n++] = third;
}

typedef struct mca { const char *name, *value, *env; } mca;

/* Ranks of one host need shared memory alone. Looking for fabrics takes most of MPI's start
 * (doc/lab/ranks.md). Without shared memory they connect by the loopback interface: by others, two
 * ranks of one host do not reach each other in Open MPI 5. */
static const mca near_mca[] = { { "pml", "ob1", "OMPI_MCA_pml" },
                                { "btl", "self,vader,tcp", "OMPI_MCA_btl" },
                                { "btl_tcp_if_include", "lo", "OMPI_MCA_btl_tcp_if_include" },
                                { 0 } };
/* A host that is cut off is noticed some 11 s later, and not after minutes. */
static const mca far_mca[] = {
    { "oob_tcp_keepalive_time", "5", "OMPI_MCA_oob_tcp_keepalive_time" },
    { "oob_tcp_keepalive_intvl", "2", "OMPI_MCA_oob_tcp_keepalive_intvl" },
    { "oob_tcp_keepalive_probes", "3", "OMPI_MCA_oob_tcp_keepalive_probes" },
    { 0 }
};

/* Parameters of Open MPI, but those that the user's environment sets. Interfaces are included or
 * excluded. */
static void add_mca(words *a, const mca *list)
{
    for (; list->name; list++)
        if (!getenv(list->env) && !(strcmp(list->name, "btl_tcp_if_include") == 0 &&
                                    getenv("OMPI_MCA_btl_tcp_if_exclude")))
            add_words(a, "--mca", list->name, list->value);
}

/* The whole command: launcher, its options, this program, the arguments as they were given. */
static char **make_command(const xd_launch *l, const watch *w, const char *launcher,
                           const char *self, const char *number)
{
    words a = { .n = 0 };
    add_words(&a, launcher, "-n", number);
    if (XDIT_MPI == 1)
        add_words(&a, "--oversubscribe", "--bind-to", "none");
    if (XDIT_MPI == 1 && geteuid() == 0)
        add_words(&a, "--allow-run-as-root", NULL, NULL);
    if (w->dir.path[0]) {
        add_words(&a, "--mca", "orte_tmpdir_base", w->dir.path);
        add_words(&a, "--mca", "btl_vader_backing_directory", w->dir.path);
    }
    if (XDIT_MPI == 1)
        add_mca(&a, xd_launch_here() ? near_mca : far_mca);
    add_words(&a, self, l->command, NULL);
    char **v = calloc((size_t)(a.n + l->argc) + 1, sizeof *v);
    if (!v)
        return NULL;
    memcpy(v, a.v, (size_t)a.n * sizeof *v);
    memcpy(v + a.n, l->argv, (size_t)l->argc * sizeof *v);
    return v;
}

/* ---- starting -------------------------------------------------------------------------------- */

static void ends_us(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
}

static void exec_launcher(char **v, const watch *w, pid_t parent, const int out[2],
                          const int err[2])
{
    sigset_t none;
    int      null = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);   /* a killed parent takes the ranks with it              */
    if (getppid() != parent)
        _exit(127);
#endif
    dup2(null, 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    for (int fd = 3; fd < 64; fd++)
        if (fd != w->dir.lock)
            close(fd);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (w->dir.path[0])         /* of Open MPI 5, which knows no orte_tmpdir_base              */
        setenv("PRTE_MCA_prte_tmpdir_base", w->dir.path, 0);
    if (XDIT_MPI == 1 && xd_launch_here())
        xd_streams_offer();
    execv(v[0], v);
    _exit(127);
}

static xd_status start_launcher(watch *w, char **v, xd_err *e)
{
    int      out[2], err[2], width = 0;
    char     columns[16];
    sigset_t set;
#ifdef TIOCGWINSZ
    struct winsize size;
    if (xd_bar_terminal(2))
        width = ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
#endif
    snprintf(columns, sizeof columns, "%d", width);
    setenv(COLUMNS, columns, 1);
    if (pipe(out) != 0)
        return xd_fail(e, XD_EIO, "cannot make a pipe: %s", strerror(errno));
    if (pipe(err) != 0) {
        close(out[0]), close(out[1]);
        return xd_fail(e, XD_EIO, "cannot make a pipe: %s", strerror(errno));
    }
    struct sigaction act = { .sa_handler = on_signal };
    sigemptyset(&act.sa_mask);
    ends_us(&set);
    sigprocmask(SIG_BLOCK, &set, NULL); /* they come in while this process waits, only          */
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
    fflush(NULL);
    pid_t self = getpid();
    w->child = fork();
    if (w->child == 0)
        exec_launcher(v, w, self, out, err);
    close(out[1]), close(err[1]);
    w->out = out[0], w->err = err[0];
    if (w->child < 0) {
        close(out[0]), close(err[0]);
        return xd_fail(e, XD_EIO, "cannot start another process: %s", strerror(errno));
    }
    return XD_OK;
}

/* ---- watching -------------------------------------------------------------------------------- */

/* Cancels, then ends, then kills. Open MPI gives SIGUSR1 to all ranks; others pass SIGINT on. */
static void escalate_signal(watch *w)
{
    static const int signals[] = { XDIT_MPI == 1 ? SIGUSR1 : SIGINT, SIGTERM, SIGKILL };
    if (w->stage == 2)          /* ranks would outlive their launcher                          */
        xd_roll_kill(&w->roll, w->child);
    if (w->stage < 3)
        kill(w->child, signals[w->stage]);
    w->stage += w->stage < 3;
    w->since = w->asked = xd_now_s();
}

static void watch_signals(watch *w)
{
    double now = xd_now_s(), waited = now - w->since;
    if (came) {
        if (!w->first)
            w->first = came;
        came = 0;
        escalate_signal(w);
    } else if (w->stage && waited > (w->stage == 1 ? PATIENCE_S : AGONY_S)) {
        escalate_signal(w);
    } else if (w->stage == 1 && XDIT_MPI == 1 && now - w->asked > AGAIN_S) {
        kill(w->child, SIGUSR1);  /* a launcher that is still starting ranks drops it */
        w->asked = now;
    }
}

/* On a terminal a name must not land behind the bar, which another pipe brings. */
static void pass_output(watch *w, const char *p, size_t n)
{
    if (isatty(1) && xd_bar_terminal(2) && write(2, "\r\033[K", 4) < 0)
        return;
    while (n && !w->lost) {
        ssize_t k = write(1, p, n);
        if (k < 0 && errno != EINTR)
            w->lost = errno;
        if (k > 0)
            p += k, n -= (size_t)k;
    }
}

/* Reads what there is; closes an end that has come to its end. */
static void read_output(watch *w, int *fd)
{
    char    buf[8192], own[sizeof buf + sizeof w->noise.held];
    ssize_t n = read(*fd, buf, sizeof buf);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (XDIT_MPI == 2 && fd == &w->out)
        pass_output(w, own, xd_noise_out(&w->noise, buf, n > 0 ? (size_t)n : 0, own));
    w->heard |= n > 0 && fd == &w->out;
    if (n <= 0) {
        close(*fd);
        *fd = -1;
    } else if (fd == &w->out) {
        if (XDIT_MPI != 2)
            pass_output(w, buf, (size_t)n);
    } else {
        xd_noise_take(&w->noise, buf, (size_t)n);
    }
}

/* A rank that has gone, or ranks that do not meet: everything is ended here. Ranks that speak
 * and are not on the roll cannot reach it, as within a container: nothing is known of them. */
static void watch_roll(watch *w)
{
    int beyond = !w->roll.n && (w->heard || w->noise.spoke);
    if (w->stage || beyond || !xd_roll_over(&w->roll, w->child, w->limit, w->over, sizeof w->over))
        return;
    xd_roll_kill(&w->roll, w->child);
    w->stage = 1;               /* the launcher is told to end next, and killed after AGONY_S    */
    escalate_signal(w);
}

/* A launcher that has lost a host waits for what runs there, which may be for ever. */
static void watch_hosts(watch *w)
{
    char why[sizeof w->over];
    if (w->stage || !w->noise.nkept)
        return;
    xd_noise_sum(&w->noise, why, sizeof why);
    if (strncmp(why, LOST_HOST, sizeof LOST_HOST - 1) != 0)
        return;
    w->lost_s = w->lost_s > 0 ? w->lost_s : xd_now_s();
    if (xd_now_s() - w->lost_s < LOST_S)
        return;
    snprintf(w->over, sizeof w->over, "%s", why);
    xd_roll_kill(&w->roll, w->child);
    w->stage = 1;               /* as in watch_roll                                             */
    escalate_signal(w);
}

/* Looks at everything that may come, once. With nothing to take, at what has not come. */
static void watch_once(watch *w, struct pollfd *p)
{
    sigset_t              none;
    const struct timespec second = { 1, 0 };
    int                   ends = 0, *end[2];
    sigemptyset(&none);
    if (w->out >= 0)
        end[ends++] = &w->out;
    if (w->err >= 0)
        end[ends++] = &w->err;
    for (int i = 0; i < ends; i++)
        p[i] = (struct pollfd){ .fd = *end[i], .events = POLLIN };
    int ranks = xd_roll_fds(&w->roll, p + ends);
    int n = ppoll(p, (nfds_t)(ends + ranks), &second, &none);
    watch_signals(w);
    if (n == 0)
        watch_roll(w);
    watch_hosts(w);
    if (n <= 0)
        return;
    xd_roll_take(&w->roll, p + ends, ranks);
    for (int i = 0; i < ends; i++)
        if (p[i].revents)
            read_output(w, end[i]);
}

/* Has the launcher ended? It can still be waited for. */
static int has_ended(const watch *w)
{
    siginfo_t about = { .si_pid = 0 };
    return waitid(P_PID, (id_t)w->child, &about, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           about.si_pid == w->child;
}

/* The launcher's exit status. One that is told to die and does not is not waited for, nor are ranks
 * that outlive it for long. */
static int wait_for_exit(watch *w)
{
    struct pollfd *p = calloc((size_t)w->roll.ranks + 3, sizeof *p);
    double         ended_s = 0;
    int            status = 0, ended;
    while (p && (w->out >= 0 || w->err >= 0)) {
        watch_once(w, p);
        if (w->stage == 3 && xd_now_s() - w->since > AGONY_S)
            break;
        if (!has_ended(w))
            continue;
        ended_s = ended_s > 0 ? ended_s : xd_now_s();
        if (xd_now_s() - ended_s > AGONY_S) {
            xd_roll_kill(&w->roll, w->child);
            break;
        }
    }
    free(p);
    xd_noise_end(&w->noise);
    while ((ended = waitpid(w->child, &status, w->stage == 3 ? WNOHANG : 0)) == 0 ||
           (ended < 0 && errno == EINTR)) {
        watch_signals(w);
        if (w->stage == 3 && xd_now_s() - w->since > 2 * AGONY_S)
            return SIGKILL;
        if (ended == 0)
            nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    }
    return status;
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* Has a rank reported why the run failed? Where ranks cannot report, their lines are searched. */
static int has_reported(const watch *w)
{
    return w->roll.n ? w->roll.said : w->noise.said;
}

/* Why the launcher failed, in its own words where it has some. */
static void find_cause(const watch *w, int status, int code, char *why, size_t size)
{
    char gone[128];
    xd_noise_sum(&w->noise, why, size);
    if (why[0] || !code)
        return;
    if (WIFSIGNALED(status))
        snprintf(why, size, "it was killed by signal %d", WTERMSIG(status));
    else if (xd_roll_gone(&w->roll, gone, sizeof gone) && !strstr(gone, "by signal 15"))
        snprintf(why, size, "%s", gone);
    else
        snprintf(
            why, size,
            "it ended with exit code %d and no word, as it does when it is told to end (SIGTERM)",
            code);
}

/* The exit code of a run; prints the cause if no rank has reported it. */
static int exit_code_of(const watch *w, const char *launcher, int status)
{
    char why[512];
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
        reported = has_reported(w);
    if (w->first) {
        if (!reported)
            fprintf(stderr, "xdit: cancelled\n");
        return 128 + w->first;
    }
    if (w->over[0]) {
        if (!reported)
            fprintf(stderr, "xdit: %s\n", w->over);
        return XD_EXIT_FAILED;
    }
    if (w->lost) {
        fprintf(stderr, "xdit: cannot write to standard output: %s\n", strerror(w->lost));
        return XD_EXIT_FAILED;
    }
    find_cause(w, status, code, why, sizeof why);
    int a_rank = strncmp(why, "rank ", 5) == 0 || strncmp(why, "the rank ", 9) == 0;
    int killed = a_rank && strstr(why, "was killed");
    int by_rank =
        code == XD_EXIT_FAILED || code == XD_EXIT_USAGE || (code > 128 && a_rank && !killed);
    int a_host = strncmp(why, LOST_HOST, sizeof LOST_HOST - 1) == 0;
    /* Lines alone do not distinguish an error from information. */
    reported = reported && (w->roll.n || a_rank);
    if (code && (!by_rank || !reported || killed))  /* others lost a killed one's messages */
        fprintf(stderr, "xdit: %s%s\n", a_rank || a_host ? "" : "the MPI launcher failed: ", why);
    if (!code && !w->heard) {
        fprintf(stderr, "xdit: %s ended well and has started no rank: is it an MPI launcher?\n",
                launcher);
        return XD_EXIT_FAILED;
    }
    return code == 0 || by_rank ? code : XD_EXIT_FAILED;
}

xd_status xd_launch_run(const xd_launch *l, int *code, xd_err *e)
{
    char      launcher[4096], self[4096], number[16];
    watch     w = { .dir = { .lock = -1 }, .noise = { .fd = 2 },
                    .limit = l->start_timeout < 0 ? START_S : l->start_timeout };
    xd_status s = find_launcher(launcher, sizeof launcher, e);
    ssize_t   n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (s != XD_OK)
        return s;
    if (is_ours())  /* else each would start ranks in turn, without end */
        return xd_fail(
            e, XD_EIO,
            "%s starts this program, and not as a rank: it belongs to another MPI than %s",
            launcher, XDIT_MPI == 1 ? "Open MPI" : "MPICH");
    if (l->ranks > MAXRANKS)
        return xd_fail(e, XD_EINVAL, "%d ranks are more than the %d that one host is asked for",
                       l->ranks, MAXRANKS);
    if (n <= 0)
        return xd_fail(e, XD_EIO, "this program cannot find its own file: %s", strerror(errno));
    self[n] = 0;
    snprintf(number, sizeof number, "%d", l->ranks);
    if ((s = xd_limits_check(l->ranks, e)) != XD_OK)
        return s;
    if (XDIT_MPI == 1 && xd_launch_here())
        xd_rundir_make(&w.dir, l->ranks);
    w.roll = (xd_roll){ .listener = -1, .ranks = l->ranks };
    if (xd_launch_here())
        xd_roll_open(&w.roll, l->ranks);
    char **v = make_command(l, &w, launcher, self, number);
    s = v ? start_launcher(&w, v, e) : xd_fail(e, XD_ENOMEM, "no memory for a command line");
    if (s == XD_OK)
        *code = exit_code_of(&w, launcher, wait_for_exit(&w));
    xd_rundir_close(&w.dir);
    xd_roll_close(&w.roll);
    free(v);
    return s;
}
