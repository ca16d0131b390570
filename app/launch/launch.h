/* launch.h - starts several ranks of this program under the MPI launcher, and supervises them */
#ifndef XD_LAUNCH_LAUNCH_H
#define XD_LAUNCH_LAUNCH_H

#include "xdit/tools.h"

#ifndef XDIT_MPI /* MPI library of the build: 1 is Open MPI, 2 another MPI, 0 none */
#define XDIT_MPI 0
#endif

/* The program's exit codes for success, for a failure, and for a wrong command line or request. The
 * code 128 + n means that signal n ended the program. */
enum { XD_EXIT_OK = 0, XD_EXIT_FAILED = 1, XD_EXIT_USAGE = 2 };

/* Cause of the loss of a rank. MEMORY: the system killed the rank for lack of memory. STALLED: the
 * rank made no progress within rank_timeout. HOST: the rank's host cannot be reached, or the
 * launcher of ranks on other hosts has failed. */
typedef enum xd_loss {
    XD_LOSS_NONE,
    XD_LOSS_KILLED,
    XD_LOSS_MEMORY,
    XD_LOSS_STALLED,
    XD_LOSS_HOST
} xd_loss;

typedef struct xd_launch {
    int         ranks;
    int         argc; /* arguments of the command, without its name */
    char      **argv;
    const char *command; /* name of the command, for example "generate" */
    /* Seconds within which all ranks must connect to each other; 0: no limit; negative: 60
     * seconds. */
    int         start_timeout;
    double      rank_timeout; /* seconds for which a rank may make no progress; 0: no limit */
    /* receives the cause of the loss of a rank; NULL: the cause is not wanted */
    xd_loss    *loss;
    /* hosts of the ranks, as "a:2,b:2"; NULL: this host, or the hosts of a batch system's job */
    const char *hosts;
    /* becomes the name of the lost host, if it is known, when *loss becomes XD_LOSS_HOST */
    char        lost[256];
    /* result of xd_launch_since in the ranks; 0: the ranks get no such time */
    double      since;
} xd_launch;

/* Returns the width in columns of the terminal to which a rank's standard error is forwarded by the
 * program xdit that started the rank. Returns 0 if standard error is not forwarded to a
 * terminal. */
int xd_launch_columns(void);

/* Sets *ranks to the number of ranks to start for the plan `p` and the value `nproc` of the option
 * --nproc (0: the option is not given). If *ranks becomes 1, no launcher is needed: either this
 * process runs alone, or a launcher has already started it as a rank. XD_EINVAL: the plan is not
 * possible on that number of ranks. */
xd_status xd_launch_ranks(const xd_parallel *p, int nproc, int *ranks, xd_err *e);

/* Row of the option --start_timeout for an option table. `field` is -1 if the command line does not
 * have the option. */
#define XD_LAUNCH_TIMEOUT(field) \
    { "start_timeout", XD_OPT_INT, field, 0, 86400, NULL, "SECONDS", \
      "time limit for ranks to connect; 0: no limit (default 60; 0 under mpirun or srun)" }
/* Returns an error if the environment has variables of an MPI launcher that no longer runs, as in a
 * shell that outlived its batch job. With environment variables of an ended launcher, MPI could not
 * start. */
xd_status xd_launch_check_env(xd_err *e);
/* Supervises a rank that another program started: ends the process if the ranks have not connected
 * within start_timeout seconds, or if the connection to another host is lost (links.h). */
void      xd_launch_deadline(int start_timeout, int rank);

/* Returns 1 if the program xdit has started the launcher of this process. */
int    xd_launch_is_child(void);
/* Returns 1 for the first rank of each host, and for a process that no launcher has started. */
int    xd_launch_is_first(void);
/* Returns a time, comparable with modification times of files: image files that are newer are
 * complete results of the command that started the ranks. 0: there is no such time. */
double xd_launch_since(void);

/* Returns 1 if the ranks that this process starts without --hosts are all on this host. If a batch
 * system runs the job, its launcher may place the ranks on several hosts. */
int xd_launch_here(void);

/* Writes the path of the MPI launcher's program. */
xd_status xd_launch_program(char *path, size_t size, xd_err *e);
/* Runs `ranks` copies of this program under the MPI launcher; *code becomes the exit code of the
 * run. The first termination signal that this process receives cancels the request on all ranks;
 * the second signal kills the ranks. Returns XD_OK if the ranks could be started, even if they
 * failed later. */
xd_status xd_launch_run(xd_launch *l, int *code, xd_err *e);

#endif
