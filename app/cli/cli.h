/* cli.h - declares the commands of xdit and the functions that they share */
#ifndef XD_CLI_CLI_H
#define XD_CLI_CLI_H

#include <stdio.h>

#include "base/err.h"
#include "launch/launch.h" /* declares the exit codes */

typedef struct xd_command {
    const char *name, *summary;
    /* Runs the command with the arguments that follow the command's name; returns the exit code. */
    int         (*run)(int argc, char **argv);
    void        (*help)(FILE *f);
} xd_command;

extern const xd_command xd_cmd_generate, xd_cmd_plan, xd_cmd_inspect, xd_cmd_bench, xd_cmd_probe,
    xd_cmd_convert, xd_cmd_compare, xd_cmd_models, xd_cmd_doctor, xd_cmd_from_xdit, xd_cmd_run,
    xd_cmd_calibrate, xd_cmd_completion, xd_cmd_serve, xd_cmd_worker, xd_cmd_man, xd_cmd_trace,
    xd_cmd_upscale;
/* Number of main commands, which are the first entries of xd_commands and which `xdit` without
 * arguments explains. */
enum { XD_MAIN_COMMANDS = 5 };
extern const xd_command *const xd_commands[]; /* all commands; the array ends with NULL */

/* Prints the error of a command, if any, and returns the exit code. */
int    xd_cli_exit(xd_status s, const xd_err *e);
/* Prints one or several lines to standard output, without control characters. */
void   xd_cli_line(void *cookie, const char *line);
/* Prints the name of a written file to standard output. If standard output is a terminal, omits
 * control characters. */
void   xd_cli_name(const char *name);
/* Stores the start time of the process; main calls this function first. */
void   xd_cli_note_start(void);
double xd_cli_started_s(void); /* start time of this process, on the clock of xd_now_s */
/* Flushes standard output; prints an error if the flush fails. Returns the exit code of the
 * command. */
int    xd_cli_flush(void);
/* Finishes a command: calls xd_cli_flush, then xd_cli_exit if the command failed. Returns the exit
 * code. */
int    xd_cli_end(xd_status s, const xd_err *e);
/* Prints the error of a rank and returns the exit code; `rank` is 0 in a process without MPI. If
 * all ranks have the same error, only rank 0 prints the error. If only one rank has an error, that
 * rank prints the error. */
int    xd_cli_failed(xd_status s, const xd_err *e, int rank);
/* Finishes a command: prints the command's error, or flushes standard output; returns the exit
 * code. Does not return if messages between ranks failed (XD_ECOMM). */
int    xd_cli_end_rank(xd_status s, const xd_err *e, int rank, int code);

#endif
