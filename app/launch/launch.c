/* launch.c - starts and supervises the MPI launcher, so that several ranks behave like one program
 * with respect to signals, exit codes and output.
 *
 * The launcher has its own process group, so Ctrl-C reaches only this process. This process
 * forwards Ctrl-C to the ranks as a signal upon which they cancel their request. The files of the
 * launcher are in a temporary directory (rundir.h). Every rank is tracked (roster.h): if a rank
 * dies, or ranks do not connect to each other, the run ends even if the launcher hangs. */
#define _GNU_SOURCE /* ppoll */
#include "launch/launch.h"

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
#include "launch/limits.h"
#include "launch/links.h"
#include "launch/mpi_log.h"
#include "launch/roster.h"
#include "launch/rundir.h"
#include "launch/stalls.h"
#include "launch/streams.h"

/* environment variable of ranks with the width of the terminal in columns; 0: no terminal */
#define COLUMNS "XDIT_COLUMNS"
/* environment variable of ranks with the result of xd_launch_since */
#define SINCE "XDIT_SINCE"

/* CANCEL_S: seconds that ranks have to cancel the request. KILL_S: seconds from sending SIGTERM to
 * sending SIGKILL. REPEAT_S: seconds between two cancel signals. START_S: seconds within which all
 * ranks must connect to each other. MAXRANKS: maximum number of ranks. */
enum { CANCEL_S = 30, KILL_S = 5, REPEAT_S = 1, START_S = 60, MAXRANKS = 4096 };
enum {
    LOST_S = 10
}; /* seconds within which the launcher must end the run after the loss
                                   of a host */

typedef struct watch {
    pid_t      child;
    int        out, err;    /* pipes from the launcher's standard output and standard error; -1:
                                   closed */
    int        write_errno; /* errno of a failed write to standard output; 0: no error */
    int        has_output;  /* 1: ranks have printed to standard output; every successful run
                                   prints something */
    /* here: 1 if all ranks are on this host. elsewhere: 1 if the ranks are on the hosts of
     * --hosts. */
    int        here, elsewhere;
    int        first_signal; /* first termination signal that was received; 0: none */
    /* stage of ending the run: 0 the run goes on, 1 cancelled, 2 SIGTERM sent, 3 killed */
    int        stage;
    double     stage_s;  /* start time of the present stage of ending the run */
    double     cancel_s; /* time of the last cancel signal */
    /* seconds within which all ranks must connect to each other; 0: no limit */
    double     limit;
    double     lost_s; /* time when the launcher reported a lost host; 0: no host is lost */
    /* reason why this process ended the run; empty: this process did not end the run */
    char       cause[512];
    xd_loss    loss;      /* cause of the loss of a rank */
    int64_t    oom_kills; /* value of xd_oom_kills before the ranks were started */
    xd_stalls  stalls;
    xd_rundir  dir;
    xd_roster  roster;
    xd_mpi_log mpi_log;
} watch;

/* Beginning of the text that xd_mpi_log_cause writes about a lost host. */
static const char LOST_HOST[] = "lost the connection to host ";

static volatile sig_atomic_t received; /* signal received since the last check; 0: none */

static void on_signal(int sig)
{
    received = sig;
}

int xd_launch_columns(void)
{
    const char *v = getenv(COLUMNS);
    return v ? atoi(v) : 0;
}

double xd_launch_since(void)
{
    const char *v = getenv(SINCE);
    return v ? strtod(v, NULL) : 0;
}

int xd_launch_is_first(void)
{
    const char *open_mpi = getenv("OMPI_COMM_WORLD_LOCAL_RANK"), *mpich = getenv("MPI_LOCALRANKID"),
               *v = open_mpi ? open_mpi : mpich;
    return !v || strcmp(v, "0") == 0;
}

xd_status xd_launch_ranks(const xd_parallel *p, int nproc, int *ranks, xd_err *e)
{
    int need = xd_parallel_ranks(p), launched = xd_launched(NULL), there = xd_launched_ranks();
    *ranks = launched ? 1 : nproc ? nproc : need;
    if (nproc && there && nproc != there)
        return xd_fail(
            e, XD_EINVAL,
            "--nproc is %d, but the launcher has started %d ranks: remove --nproc, or make them "
            "equal",
            nproc, there);
    return launched ? XD_OK : xd_parallel_check(p, *ranks, e);
}

/* ---- functions for a rank -------------------------------------------------------------------- */

static char timeout_text[160]; /* error message if the ranks do not connect in time */

static void on_timeout(int sig)
{
    ssize_t written = write(2, timeout_text, strlen(timeout_text));
    (void)sig;
    (void)written;
    _exit(XD_EXIT_FAILED);
}

static void stop_timeout(void)
{
    alarm(0);
}

/* Returns 1 if a process of this host listens on this TCP port, or if it is unknown whether a
 * process does. */
static int is_listening(unsigned port)
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

/* Returns 1 if the PMIx server named in the environment ("job.rank;tcp4://127.0.0.1:PORT") still
 * runs. */
static int has_pmix_server(void)
{
    static const char name[] = "PMIX_SERVER_URI", here[] = "tcp4://127.0.0.1:";
    for (char **v = environ; *v; v++) {
        const char *uri = strncmp(*v, name, sizeof name - 1) == 0 ? strstr(*v, here) : NULL;
        if (uri)
            return is_listening((unsigned)atoi(uri + sizeof here - 1));
        if (strncmp(*v, name, sizeof name - 1) == 0)
            return 1;
    }
    return 0;
}

xd_status xd_launch_check_env(xd_err *e)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                                         "PMIX_RANK", "PMI_SIZE", "PMI_RANK" };
    static const char *const alive[] = { "PMI_FD", "PMI_PORT", "SLURM_JOB_ID", "PALS_APID",
                                         "ALPS_APP_PE" };
    const char              *name = NULL;
    int                      running = has_pmix_server();
    for (size_t i = 0; i < sizeof names / sizeof *names && !name; i++)
        name = getenv(names[i]) ? names[i] : NULL;
    int open_mpi = name && (name[0] == 'O' || name[3] == 'X');
    for (size_t i = 0; i < sizeof alive / sizeof *alive && !open_mpi; i++)
        running |= getenv(alive[i]) != NULL;
    if (!name || running)
        return XD_OK;
    return xd_fail(
        e, XD_EIO,
        "%s in the environment is left over from an MPI launcher that no longer runs: start this "
        "by mpirun, or remove the variables of the launcher, env -u %s xdit ...",
        name, name);
}

/* If the program xdit has started the launcher, that parent process handles lost hosts. */
int xd_launch_is_child(void)
{
    return getenv(COLUMNS) != NULL;
}

void xd_launch_deadline(int start_timeout, int rank)
{
    struct sigaction act = { .sa_handler = on_timeout };
    if (xd_roster_joined()) /* the parent process checks the time limit and watches the
                                     launcher */
        return;
    if (!xd_launch_is_child())
        xd_links_watch(rank);
    if (start_timeout <= 0)
        return;
    snprintf(timeout_text, sizeof timeout_text,
             "xdit: rank %d: the ranks have not connected within --start_timeout %d s\n", rank,
             start_timeout);
    sigemptyset(&act.sa_mask);
    sigaction(SIGALRM, &act, NULL);
    xd_connected_hook(stop_timeout);
    alarm((unsigned)start_timeout);
}

/* ---- command line of the launcher ------------------------------------------------------------ */

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

xd_status xd_launch_program(char *path, size_t size, xd_err *e)
{
    static const char *const names[] = { XDIT_MPI == 1 ? "mpirun.openmpi" : "mpiexec.hydra",
                                         XDIT_MPI == 1 ? "mpirun" : "mpiexec" };
    const char              *own = getenv("XDIT_MPIRUN");
    if (!XDIT_MPI)
        return xd_fail(e, XD_EUNSUPPORTED, "this build has no MPI and runs on one rank only");
    if (own && *own) {
        snprintf(path, size, "%s", own);
        if (strchr(own, '/') ? access(own, X_OK) == 0 : in_path(own, path, size))
            return XD_OK;
        return xd_fail(e, XD_EIO, "XDIT_MPIRUN is %s, which is not a program", own);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (in_path(names[i], path, size))
            return XD_OK;
    return xd_fail(e, XD_EIO,
                   "several ranks need mpirun, which was not found: install the package "
                   "%s, or set XDIT_MPIRUN",
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

typedef struct arg_list {
    const char *v[32];
    int         n;
} arg_list;

static void add_args(arg_list *a, const char *first, const char *second, const char *third)
{
    a->v[a->n++] = first;
    if (second)
        a->v[a->n++] = second;
    if (third)
        a->v[a->n++] = third;
}

typedef struct mca { const char *name, *value, *env; } mca;

/* Parameters of Open MPI that are set if all ranks are on one host. Ranks of one host need only
 * shared memory, and a search for network fabrics would take most of the time of MPI's start
 * (doc/lab/ranks.md). Without shared memory, ranks of one host use the loopback interface, because
 * ranks of one host cannot reach each other over other interfaces in Open MPI 5. */
static const mca near_mca[] = { { "pml", "ob1", "OMPI_MCA_pml" },
                                { "btl", "self,vader,tcp", "OMPI_MCA_btl" },
                                { "btl_tcp_if_include", "lo", "OMPI_MCA_btl_tcp_if_include" },
                                { 0 } };
/* Parameters of Open MPI that are set if ranks are on several hosts. The parameters in far_mca
 * enable TCP keepalive, so that a lost host is noticed after some 11 s instead of minutes. */
static const mca far_mca[] = {
    { "oob_tcp_keepalive_time", "5", "OMPI_MCA_oob_tcp_keepalive_time" },
    { "oob_tcp_keepalive_intvl", "2", "OMPI_MCA_oob_tcp_keepalive_intvl" },
    { "oob_tcp_keepalive_probes", "3", "OMPI_MCA_oob_tcp_keepalive_probes" },
    { 0 }
};

/* Adds parameters of Open MPI that the environment does not set. Network interfaces can be either
 * included or excluded, not both. */
static void add_mca(arg_list *a, const mca *list)
{
    for (; list->name; list++)
        if (!getenv(list->env) && !(strcmp(list->name, "btl_tcp_if_include") == 0 &&
                                    getenv("OMPI_MCA_btl_tcp_if_exclude")))
            add_args(a, "--mca", list->name, list->value);
}

/* Returns the malloc'ed command line that starts the ranks: the launcher, its options, this
 * program, and the given arguments. */
static char **make_command(const xd_launch *l, const watch *w, const char *launcher,
                           const char *self, const char *number)
{
    arg_list a = { .n = 0 };
    add_args(&a, launcher, "-n", number);
    if (XDIT_MPI == 1)
        add_args(&a, "--oversubscribe", "--bind-to", "none");
    if (XDIT_MPI == 1 && geteuid() == 0)
        add_args(&a, "--allow-run-as-root", NULL, NULL);
    if (w->dir.path[0]) {
        add_args(&a, "--mca", "orte_tmpdir_base", w->dir.path);
        add_args(&a, "--mca", "btl_vader_backing_directory", w->dir.path);
    }
    if (XDIT_MPI == 1)
        add_mca(&a, w->here ? near_mca : far_mca);
    if (l->hosts)
        add_args(&a, XDIT_MPI == 1 ? "--host" : "-hosts", l->hosts, NULL);
    /* ranks on other hosts do not inherit the environment of mpirun */
    if (l->hosts && XDIT_MPI == 1) {
        add_args(&a, "-x", COLUMNS, NULL);
        if (l->since > 0)
            add_args(&a, "-x", SINCE, NULL);
    }
    add_args(&a, self, l->command, NULL);
    char **v = calloc((size_t)(a.n + l->argc) + 1, sizeof *v);
    if (!v)
        return NULL;
    memcpy(v, a.v, (size_t)a.n * sizeof *v);
    memcpy(v + a.n, l->argv, (size_t)l->argc * sizeof *v);
    return v;
}

/* ---- starting -------------------------------------------------------------------------------- */

static void termination_signals(sigset_t *set)
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
    /* the launcher receives SIGTERM and ends the ranks if the parent process is killed */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
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
    if (w->dir.path[0]) /* Open MPI 5 reads this variable in place of orte_tmpdir_base */
        setenv("PRTE_MCA_prte_tmpdir_base", w->dir.path, 0);
    if (XDIT_MPI == 1 && w->here)
        xd_streams_export();
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
    if (xd_streams_terminal(2))
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
    termination_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL); /* signals are delivered only while this process waits */
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

/* ---- supervision ----------------------------------------------------------------------------- */

/* Sends the launcher the next stronger signal: cancel, SIGTERM, SIGKILL. Successive calls of
 * escalate_signal cancel the request, then send SIGTERM, then SIGKILL. Open MPI forwards SIGUSR1 to
 * all ranks; other launchers forward SIGINT. */
static void escalate_signal(watch *w)
{
    static const int signals[] = { XDIT_MPI == 1 ? SIGUSR1 : SIGINT, SIGTERM, SIGKILL };
    if (w->stage == 2) /* ranks are killed before their launcher, because they would outlive it */
        xd_roster_kill(&w->roster, w->child);
    if (w->stage < 3)
        kill(w->child, signals[w->stage]);
    w->stage += w->stage < 3;
    w->stage_s = w->cancel_s = xd_now_s();
}

static void watch_signals(watch *w)
{
    double now = xd_now_s(), waited = now - w->stage_s;
    if (received) {
        if (!w->first_signal)
            w->first_signal = received;
        received = 0;
        escalate_signal(w);
    } else if (w->stage && waited > (w->stage == 1 ? CANCEL_S : KILL_S)) {
        escalate_signal(w);
    } else if (w->stage == 1 && XDIT_MPI == 1 && now - w->cancel_s > REPEAT_S) {
        kill(w->child, SIGUSR1); /* the cancel signal is sent again, because a launcher that is
                                     still starting ranks loses it */
        w->cancel_s = now;
    }
}

/* Prints bytes that ranks have written to standard output. If standard error is a terminal, first
 * erases the progress bar. */
static void pass_output(watch *w, const char *p, size_t n)
{
    if (isatty(1) && xd_streams_terminal(2) && write(2, "\r\033[K", 4) < 0)
        return;
    while (n && !w->write_errno) {
        ssize_t k = write(1, p, n);
        if (k < 0 && errno != EINTR)
            w->write_errno = errno;
        if (k > 0)
            p += k, n -= (size_t)k;
    }
}

/* Reads the bytes that are available in an output pipe of the launcher. At the end of the stream,
 * closes the pipe. */
static void read_output(watch *w, int *fd)
{
    char    buf[8192], own[sizeof buf + sizeof w->mpi_log.pending];
    ssize_t n = read(*fd, buf, sizeof buf);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (XDIT_MPI == 2 && fd == &w->out)
        pass_output(w, own, xd_mpi_log_filter_stdout(&w->mpi_log, buf, n > 0 ? (size_t)n : 0, own));
    w->has_output |= n > 0 && fd == &w->out;
    if (n <= 0) {
        close(*fd);
        *fd = -1;
    } else if (fd == &w->out) {
        if (XDIT_MPI != 2)
            pass_output(w, buf, (size_t)n);
    } else {
        xd_mpi_log_filter(&w->mpi_log, buf, (size_t)n);
    }
}

/* Kills all ranks, and ends the launcher by SIGTERM, or KILL_S seconds later by SIGKILL. */
static void end_ranks(watch *w)
{
    xd_roster_kill(&w->roster, w->child);
    w->stage = 1; /* the next signal that the launcher receives is SIGTERM */
    escalate_signal(w);
}

/* Ends the run if a rank has died or the ranks do not connect to each other. If ranks print but
 * none has connected to the roster's socket, the ranks cannot reach the socket, for example in a
 * container. A run whose ranks are not tracked continues, because the state of the ranks is
 * unknown. */
static void watch_roster(watch *w)
{
    int unreachable = !w->roster.n && (w->has_output || w->mpi_log.output_seen);
    if (w->stage || unreachable ||
        !xd_roster_failed(&w->roster, w->child, w->limit, w->cause, sizeof w->cause))
        return;
    if (strstr(w->cause, "was killed"))
        w->loss = XD_LOSS_KILLED;
    end_ranks(w);
}

/* Ends the run if a rank makes no progress. */
static void watch_stalls(watch *w)
{
    if (w->stage || !xd_stalls_find(&w->stalls, &w->roster, w->cause, sizeof w->cause))
        return;
    w->loss = XD_LOSS_STALLED;
    end_ranks(w);
}

/* Ends the run if the launcher has reported that a host is lost. The launcher would wait for the
 * processes of the lost host, possibly for ever. */
static void watch_hosts(watch *w)
{
    char why[sizeof w->cause];
    if (w->stage || !w->mpi_log.nmessages)
        return;
    xd_mpi_log_cause(&w->mpi_log, why, sizeof why);
    if (strncmp(why, LOST_HOST, sizeof LOST_HOST - 1) != 0)
        return;
    w->lost_s = w->lost_s > 0 ? w->lost_s : xd_now_s();
    if (xd_now_s() - w->lost_s < LOST_S)
        return;
    snprintf(w->cause, sizeof w->cause, "%s", why);
    w->loss = XD_LOSS_HOST;
    end_ranks(w);
}

/* Waits up to a second for output, events and signals; the wait is shorter if the option
 * --rank_timeout is set. If the pipes have no output, checks the ranks. */
static void watch_once(watch *w, struct pollfd *p)
{
    sigset_t              none;
    const struct timespec wait = { w->stalls.timeout <= 0, w->stalls.timeout > 0 ? 250000000 : 0 };
    int                   ends = 0, *end[2];
    sigemptyset(&none);
    if (w->out >= 0)
        end[ends++] = &w->out;
    if (w->err >= 0)
        end[ends++] = &w->err;
    for (int i = 0; i < ends; i++)
        p[i] = (struct pollfd){ .fd = *end[i], .events = POLLIN };
    int ranks = xd_roster_fds(&w->roster, p + ends);
    int n = ppoll(p, (nfds_t)(ends + ranks), &wait, &none);
    watch_signals(w);
    if (n == 0)
        watch_roster(w);
    watch_hosts(w);
    if (n > 0)
        xd_roster_read(&w->roster, p + ends, ranks);
    watch_stalls(w);
    if (n <= 0)
        return;
    for (int i = 0; i < ends; i++)
        if (p[i].revents)
            read_output(w, end[i]);
}

/* Returns 1 if the launcher has ended. The launcher's exit status remains available for waitpid. */
static int has_ended(const watch *w)
{
    siginfo_t about = { .si_pid = 0 };
    return waitid(P_PID, (id_t)w->child, &about, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           about.si_pid == w->child;
}

/* Returns the exit status of the MPI launcher. A launcher that survives SIGKILL is not waited for.
 * If ranks outlive the launcher by more than KILL_S seconds, the function kills these ranks. */
static int wait_for_exit(watch *w)
{
    struct pollfd *p = calloc((size_t)w->roster.ranks + 3, sizeof *p);
    double         ended_s = 0;
    int            status = 0, ended;
    while (p && (w->out >= 0 || w->err >= 0)) {
        watch_once(w, p);
        if (w->stage == 3 && xd_now_s() - w->stage_s > KILL_S)
            break;
        if (!has_ended(w))
            continue;
        ended_s = ended_s > 0 ? ended_s : xd_now_s();
        if (xd_now_s() - ended_s > KILL_S) {
            xd_roster_kill(&w->roster, w->child);
            break;
        }
    }
    free(p);
    xd_mpi_log_flush(&w->mpi_log);
    while ((ended = waitpid(w->child, &status, w->stage == 3 ? WNOHANG : 0)) == 0 ||
           (ended < 0 && errno == EINTR)) {
        watch_signals(w);
        if (w->stage == 3 && xd_now_s() - w->stage_s > 2 * KILL_S)
            return SIGKILL;
        if (ended == 0)
            nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    }
    return status;
}

/* ---- end of a run ---------------------------------------------------------------------------- */

/* Returns 1 if a rank has printed why the run failed. If ranks are not tracked by the roster, their
 * output is searched for an error. */
static int has_reported(const watch *w)
{
    return w->roster.n ? w->roster.error_reported : w->mpi_log.error_seen;
}

/* Returns 1 if a message of Open MPI about an ended rank does not name the rank, as happens if the
 * rank ends while it starts. */
static int is_vague(const char *why)
{
    return strstr(why, "Primary job") && strstr(why, "returned a non-zero exit code");
}

/* Writes the cause of the launcher's failure to `why`. The cause is taken from the launcher's
 * messages, if it has printed any. */
static void find_cause(const watch *w, int status, int code, char *why, size_t size)
{
    char gone[128];
    xd_mpi_log_cause(&w->mpi_log, why, size);
    if ((why[0] && !is_vague(why)) || !code)
        return;
    if (why[0] && !xd_roster_first_death(&w->roster, gone, sizeof gone)) {
        snprintf(why, size,
                 code > 128 ? "a rank was killed by signal %d" : "a rank ended with exit code %d",
                 code > 128 ? code - 128 : code);
        return;
    }
    if (WIFSIGNALED(status))
        snprintf(why, size, "it was killed by signal %d", WTERMSIG(status));
    else if (xd_roster_first_death(&w->roster, gone, sizeof gone) && !strstr(gone, "by signal 15"))
        snprintf(why, size, "%s", gone);
    else
        snprintf(why, size, "it exited with code %d and no message, as after SIGTERM", code);
}

/* If a signal killed a rank, sets w->loss to the cause that the sentence `why` names. If the system
 * has killed the rank for lack of memory, adds this cause to the sentence. */
static void note_loss(watch *w, char *why, size_t size)
{
    int     group = 0;
    int64_t kills = w->oom_kills >= 0 ? xd_oom_kills(&group) : -1;
    size_t  n = strlen(why);
    w->loss = XD_LOSS_KILLED;
    if (kills <= w->oom_kills || !strstr(why, "signal 9"))
        return;
    w->loss = XD_LOSS_MEMORY;
    snprintf(why + n, size - n, ": the system had no memory left for it, %s",
             group ? "within the limit of its control group" : "because the host's is used up");
}

/* Returns the exit code of a run. Prints the cause of a failure if no rank has reported it. Sets
 * w->loss if a signal killed a rank. */
static int exit_code_of(watch *w, const char *launcher, int status)
{
    char why[512];
    int  code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
         reported = has_reported(w);
    if (w->first_signal) {
        if (!reported)
            fprintf(stderr, "xdit: cancelled\n");
        return 128 + w->first_signal;
    }
    if (w->cause[0]) {
        if (w->loss == XD_LOSS_KILLED)
            note_loss(w, w->cause, sizeof w->cause);
        if (!reported || w->loss)
            fprintf(stderr, "xdit: %s\n", w->cause);
        return XD_EXIT_FAILED;
    }
    if (w->write_errno) {
        fprintf(stderr, "xdit: cannot write to standard output: %s\n", strerror(w->write_errno));
        return XD_EXIT_FAILED;
    }
    find_cause(w, status, code, why, sizeof why);
    int a_rank = strncmp(why, "rank ", 5) == 0 || strncmp(why, "the rank ", 9) == 0 ||
                 strncmp(why, "a rank ", 7) == 0;
    int killed = code && a_rank && strstr(why, "was killed");
    if (killed)
        note_loss(w, why, sizeof why);
    int by_rank = code == XD_EXIT_FAILED || code == XD_EXIT_USAGE ||
                  (code > 128 && a_rank && !killed);
    int a_host = strncmp(why, LOST_HOST, sizeof LOST_HOST - 1) == 0;
    if (a_host || (w->elsewhere && code && !by_rank && !killed))
        w->loss = XD_LOSS_HOST;
    /* A line that a rank has printed may be an error or information. A line that a rank has printed
     * explains the failure only if a rank has connected to the roster, or if a rank's death is the
     * cause of the failure. */
    reported = reported && (w->roster.n || a_rank);
    if (code && (!by_rank || !reported || killed)) /* after the death of a rank, other ranks report
                                                       only that the messages of that rank are
                                                       missing */
        fprintf(stderr, "xdit: %s%s\n", a_rank || a_host ? "" : "the MPI launcher failed: ", why);
    if (!code && !w->has_output) {
        fprintf(stderr, "xdit: %s succeeded without starting a rank: is it an MPI launcher?\n",
                launcher);
        return XD_EXIT_FAILED;
    }
    return code == 0 || by_rank ? code : XD_EXIT_FAILED;
}

/* Writes the name of the lost host, as the launcher's message spells the name. */
static void note_host(xd_launch *l, const watch *w)
{
    char why[sizeof w->cause];
    xd_mpi_log_cause(&w->mpi_log, why, sizeof why);
    if (strncmp(why, LOST_HOST, sizeof LOST_HOST - 1) != 0)
        return;
    const char *name = why + sizeof LOST_HOST - 1, *end = strstr(name, ": its ranks");
    snprintf(l->lost, sizeof l->lost, "%.*s", (int)(end ? end - name : 0), name);
}

xd_status xd_launch_run(xd_launch *l, int *code, xd_err *e)
{
    char      launcher[4096], self[4096], number[16], since[32];
    int       group;
    watch     w = { .dir = { .lock = -1 },
                    .mpi_log = { .fd = 2 },
                    .oom_kills = xd_oom_kills(&group),
                    .elsewhere = l->hosts != NULL,
                    .here = !l->hosts && xd_launch_here(),
                    .stalls = { .timeout = l->rank_timeout },
                    .limit = l->start_timeout < 0 ? START_S : l->start_timeout };
    xd_status s = xd_launch_program(launcher, sizeof launcher, e);
    ssize_t   n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (s != XD_OK)
        return s;
    /* without this check, each started rank could start further ranks, which start further
     * ranks, without end */
    if (xd_launch_is_child())
        return xd_fail(e, XD_EIO,
                       "%s starts this program, but not as a rank: it does not belong to %s",
                       launcher, XDIT_MPI == 1 ? "Open MPI" : "MPICH");
    if (l->ranks > MAXRANKS)
        return xd_fail(e, XD_EINVAL, "%d ranks are more than the maximum of %d", l->ranks,
                       MAXRANKS);
    if (n <= 0)
        return xd_fail(e, XD_EIO, "cannot find the file of this program: %s", strerror(errno));
    self[n] = 0;
    snprintf(number, sizeof number, "%d", l->ranks);
    snprintf(since, sizeof since, "%.6f", l->since);
    if (l->since > 0)
        setenv(SINCE, since, 1);
    if ((s = xd_limits_check(l->ranks, e)) != XD_OK)
        return s;
    if (XDIT_MPI == 1 && w.here)
        xd_rundir_make(&w.dir, l->ranks);
    w.roster = (xd_roster){ .listener = -1, .ranks = l->ranks };
    if (w.here)
        xd_roster_open(&w.roster, l->ranks);
    char **v = make_command(l, &w, launcher, self, number);
    s = v ? start_launcher(&w, v, e) : xd_fail(e, XD_ENOMEM, "no memory for a command line");
    if (s == XD_OK)
        *code = exit_code_of(&w, launcher, wait_for_exit(&w));
    if (l->loss)
        *l->loss = w.loss;
    if (w.loss == XD_LOSS_HOST)
        note_host(l, &w);
    xd_rundir_close(&w.dir);
    xd_roster_close(&w.roster);
    /* a restart of the ranks begins in this process, too, so that the variables must not remain
     * set */
    unsetenv(COLUMNS);
    free(v);
    return s;
}
