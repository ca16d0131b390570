/* launch.c - several ranks from one command line: this process starts the MPI launcher and stays
 * its parent, so that signals, exit codes and what is said are those of one program.
 *
 * The launcher has a process group of its own: Ctrl-C reaches this process alone, which passes it
 * on in a way that lets ranks end their request. Its files are put into a directory that is
 * removed whatever happened to them, also when this process or the launcher is killed: both hold a
 * lock on it, and a keeper, a small process beside, waits for the lock to end. */
#define _DEFAULT_SOURCE         /* flock */
#include "cli/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/noise.h"

#ifndef XDIT_MPI                /* 1: Open MPI, 2: another one, 0: none; the build says          */
#define XDIT_MPI 0
#endif

#define COLUMNS "XDIT_COLUMNS"  /* put into the environment of ranks: the width of a terminal, or 0 */

enum { PATIENCE_S = 30, AGONY_S = 5, AGAIN_S = 1, MAXRANKS = 4096 };

typedef struct watch {
    pid_t  child;
    int    out, err;            /* read ends; -1: ended                                        */
    int    lost;                /* errno of writing to standard output                         */
    int    heard;               /* something came on standard output: every command's ranks print  */
    int    first;               /* the first signal that came                                  */
    int    stage;               /* 0 running, 1 cancelled, 2 told to end, 3 killed              */
    double since;               /* when the stage began                                        */
    double asked;               /* when the ranks were last told to cancel                     */
    char   room[64];            /* the launcher's files; empty: where it wants                 */
    int    lock;                /* on the room, the launcher has it too                        */
    xd_noise noise;
} watch;

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
        return xd_fail(e, XD_EINVAL, "--nproc asks for %d ranks, and the launcher has started %d: leave --nproc out, "
                       "or start as many", nproc, there);
    return launched ? XD_OK : xd_parallel_check(p, *ranks, e);
}

/* A launcher ends all ranks when the first one fails, so those that are silent give rank 0 the time
 * to speak, and are ended when it has. */
int xd_launch_failed(xd_status s, const xd_err *e, int rank)
{
    char said[sizeof e->msg + 32];
    int  who = rank > 0 ? rank : e->rank;
    int  silent = rank > 0 && (e->rank >= 0 || s == XD_EINVAL || s == XD_ECANCELLED);
    if (who > 0)
        snprintf(said, sizeof said, "rank %d: %s", who, e->msg);
    else
        snprintf(said, sizeof said, "%s", e->msg);
    if (!silent)
        fprintf(stderr, "xdit: %s\n", e->msg[0] ? said : xd_status_name(s));
    else
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

static void remove_tree(const char *path, int depth)
{
    DIR *d = depth < 16 ? opendir(path) : NULL;
    for (struct dirent *f; d && (f = readdir(d));) {
        char        name[4096];
        struct stat st;
        int         n = snprintf(name, sizeof name, "%s/%s", path, f->d_name);
        if (n >= (int)sizeof name || !strcmp(f->d_name, ".") || !strcmp(f->d_name, ".."))
            continue;
        if (lstat(name, &st) == 0 && S_ISDIR(st.st_mode))
            remove_tree(name, depth + 1);
        else
            unlink(name);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

/* Where rooms may be: in memory, else on disk. */
static const char *const places[] = { "/dev/shm", "/tmp" };

/* Rooms that nobody holds any more: those of processes killed together with their keeper. One that
 * is being made has no lock yet, so young ones are left alone. */
static void sweep_rooms(const char *place)
{
    DIR *d = opendir(place);
    for (struct dirent *f; d && (f = readdir(d));) {
        char        name[64];
        struct stat st;
        int         n = snprintf(name, sizeof name, "%s/%s", place, f->d_name), fd;
        if (strncmp(f->d_name, "xdit.", 5) != 0 || n != (int)(strlen(place) + strlen("/xdit.XXXXXX")) ||
            lstat(name, &st) != 0 || st.st_uid != geteuid() || time(NULL) - st.st_mtime < 60 ||
            (fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
            continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            remove_tree(name, 0);
        close(fd);
    }
    if (d)
        closedir(d);
}

/* The keeper: removes the room once this process and the launcher have ended or let go of it. Ranks
 * may outlive a killed launcher by some seconds, so it looks twice. */
static void keep_room(const watch *w)
{
    int fd = open(w->room, O_RDONLY | O_DIRECTORY);
    if (fd < 0 || fork() != 0)
        _exit(0);               /* the keeper is nobody's child: nobody has to wait for it     */
    setsid();
    if (chdir("/") != 0)
        _exit(1);
    for (int i = 0; i < 64; i++)
        if (i != fd)
            close(i);
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR)
        ;
    remove_tree(w->room, 0);
    if (access(w->room, F_OK) == 0 || errno != ENOENT) {
        sleep(AGONY_S);
        remove_tree(w->room, 0);
    }
    _exit(0);
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

/* Open MPI 4: 8 MiB of PMIx, 4 MiB a rank, and 5 % that must be free besides. */
double xd_launch_need(int ranks)
{
    return 10e6 + 4.6e6 * ranks;
}

double xd_launch_space(const char *dir)
{
    struct statvfs v;
    return statvfs(dir, &v) == 0 ? (double)v.f_bavail * (double)v.f_frsize : 0;
}

/* A directory for shared segments and sockets, where there is room for them: Open MPI without it waits for
 * ever. On other hosts it would not be there, so it is used only where all ranks are on this one. */
static void make_room(watch *w, int ranks)
{
    if (XDIT_MPI != 1 || !xd_launch_here())
        return;
    for (size_t i = 0; i < sizeof places / sizeof *places && !w->room[0]; i++) {
        sweep_rooms(places[i]);
        snprintf(w->room, sizeof w->room, "%s/xdit.XXXXXX", places[i]);
        if (xd_launch_space(places[i]) < xd_launch_need(ranks) || !mkdtemp(w->room))
            w->room[0] = 0;
    }
    if (!w->room[0])
        return;
    w->lock = open(w->room, O_RDONLY | O_DIRECTORY);
    pid_t pid = w->lock >= 0 && flock(w->lock, LOCK_EX) == 0 ? fork() : -1;
    if (pid == 0)
        keep_room(w);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

typedef struct words { const char *v[32]; int n; } words;

static void add(words *a, const char *first, const char *second, const char *third)
{
    a->v[a->n++] = first;
    if (second)
        a->v[a->n++] = second;
    if (third)
        a->v[a->n++] = third;
}

/* The whole command: launcher, its options, this program, the arguments as they were given. */
static char **make_command(const xd_launch *l, const watch *w, const char *launcher,
                           const char *self, const char *number)
{
    words a = { .n = 0 };
    add(&a, launcher, "-n", number);
    if (XDIT_MPI == 1)
        add(&a, "--oversubscribe", "--bind-to", "none");
    if (XDIT_MPI == 1 && geteuid() == 0)
        add(&a, "--allow-run-as-root", NULL, NULL);
    if (w->room[0]) {
        add(&a, "--mca", "orte_tmpdir_base", w->room);
        add(&a, "--mca", "btl_vader_backing_directory", w->room);
    }
    add(&a, self, l->command, NULL);
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

static void be_launcher(char **v, const watch *w, pid_t parent, const int out[2], const int err[2])
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
        if (fd != w->lock)
            close(fd);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(v[0], v);
    _exit(127);
}

static xd_status start(watch *w, char **v, xd_err *e)
{
    int      out[2], err[2], width = 0;
    char     columns[16];
    sigset_t set;
#ifdef TIOCGWINSZ
    struct winsize size;
    if (isatty(2))
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
        be_launcher(v, w, self, out, err);
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
static void escalate(watch *w)
{
    static const int signals[] = { XDIT_MPI == 1 ? SIGUSR1 : SIGINT, SIGTERM, SIGKILL };
    if (w->stage < 3)
        kill(w->child, signals[w->stage]);
    w->stage += w->stage < 3;
    w->since = w->asked = xd_now_s();
}

static void look_at_signals(watch *w)
{
    double now = xd_now_s(), waited = now - w->since;
    if (came) {
        if (!w->first)
            w->first = came;
        came = 0;
        escalate(w);
    } else if (w->stage && waited > (w->stage == 1 ? PATIENCE_S : AGONY_S)) {
        escalate(w);
    } else if (w->stage == 1 && XDIT_MPI == 1 && now - w->asked > AGAIN_S) {
        kill(w->child, SIGUSR1);        /* a launcher that is still starting ranks drops it        */
        w->asked = now;
    }
}

/* On a terminal a name must not land behind the bar, which another pipe brings. */
static void pass_output(watch *w, const char *p, size_t n)
{
    if (isatty(1) && isatty(2) && write(2, "\r\033[K", 4) < 0)
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
static void take(watch *w, int *fd)
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

static int stay(watch *w)
{
    sigset_t none;
    int      status = 0;
    sigemptyset(&none);
    while (w->out >= 0 || w->err >= 0) {
        fd_set          set;
        struct timespec second = { 1, 0 };
        FD_ZERO(&set);
        if (w->out >= 0)
            FD_SET(w->out, &set);
        if (w->err >= 0)
            FD_SET(w->err, &set);
        int n = pselect((w->out > w->err ? w->out : w->err) + 1, &set, NULL, NULL, &second, &none);
        look_at_signals(w);
        if (n > 0 && w->out >= 0 && FD_ISSET(w->out, &set))
            take(w, &w->out);
        if (n > 0 && w->err >= 0 && FD_ISSET(w->err, &set))
            take(w, &w->err);
    }
    xd_noise_end(&w->noise);
    while (waitpid(w->child, &status, 0) < 0 && errno == EINTR)
        look_at_signals(w);
    return status;
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* The exit code of a run; says what no rank has said. */
static int judge(const watch *w, const char *launcher, int status)
{
    char why[512];
    int  code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    xd_noise_sum(&w->noise, why, sizeof why);
    if (w->first) {
        if (!w->noise.said)
            fprintf(stderr, "xdit: cancelled\n");
        return 128 + w->first;
    }
    if (w->lost) {
        fprintf(stderr, "xdit: cannot write to standard output: %s\n", strerror(w->lost));
        return XD_EXIT_FAILED;
    }
    if (!why[0] && code)
        snprintf(why, sizeof why, WIFSIGNALED(status) ? "it was killed by signal %d"
                                                      : "it ended with exit code %d and no word",
                 WIFSIGNALED(status) ? WTERMSIG(status) : code);
    int by_rank = code == XD_EXIT_FAILED || code == XD_EXIT_USAGE ||
                  (code > 128 && strstr(why, "exit code"));
    int a_rank = strncmp(why, "rank ", 5) == 0 || strncmp(why, "the rank ", 9) == 0;
    int killed = a_rank && strstr(why, "was killed");
    if (code && (!by_rank || !w->noise.said || killed))     /* others lost a killed one's messages */
        fprintf(stderr, "xdit: %s%s\n", a_rank ? "" : "the MPI launcher failed: ", why);
    if (!code && !w->heard) {
        fprintf(stderr, "xdit: %s ended well and has started no rank: is it an MPI launcher?\n", launcher);
        return XD_EXIT_FAILED;
    }
    return code == 0 || by_rank ? code : XD_EXIT_FAILED;
}

xd_status xd_launch_run(const xd_launch *l, int *code, xd_err *e)
{
    char      launcher[4096], self[4096], number[16];
    watch     w = { .lock = -1, .noise = { .fd = 2 } };
    xd_status s = find_launcher(launcher, sizeof launcher, e);
    ssize_t   n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (s != XD_OK)
        return s;
    if (getenv(COLUMNS))        /* else each would start ranks in turn, without end                */
        return xd_fail(e, XD_EIO, "%s starts this program, and not as a rank: it belongs to another MPI than %s",
                       launcher, XDIT_MPI == 1 ? "Open MPI" : "MPICH");
    if (l->ranks > MAXRANKS)
        return xd_fail(e, XD_EINVAL, "%d ranks are more than the %d that one host is asked for",
                       l->ranks, MAXRANKS);
    if (n <= 0)
        return xd_fail(e, XD_EIO, "this program cannot find its own file: %s", strerror(errno));
    self[n] = 0;
    snprintf(number, sizeof number, "%d", l->ranks);
    make_room(&w, l->ranks);
    char **v = make_command(l, &w, launcher, self, number);
    s = v ? start(&w, v, e) : xd_fail(e, XD_ENOMEM, "no memory for a command line");
    if (s == XD_OK)
        *code = judge(&w, launcher, stay(&w));
    if (w.room[0])
        remove_tree(w.room, 0);
    if (w.lock >= 0)
        close(w.lock);          /* now the keeper ends                                         */
    free(v);
    return s;
}
