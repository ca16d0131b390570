/* cli.h - declarations shared by the commands of xdit */
#ifndef XD_CLI_CLI_H
#define XD_CLI_CLI_H

#include <stdio.h>

#include "base/err.h"
#include "launch/launch.h"      /* exit codes */

typedef struct xd_command {
    const char *name, *summary;
    int       (*run)(int argc, char **argv);   /* arguments after the name; returns the exit code */
    void      (*help)(FILE *f);
} xd_command;

extern const xd_command xd_cmd_generate, xd_cmd_plan, xd_cmd_inspect, xd_cmd_bench, xd_cmd_probe,
                        xd_cmd_convert, xd_cmd_compare, xd_cmd_models, xd_cmd_doctor,
                        xd_cmd_from_xdit, xd_cmd_calibrate, xd_cmd_completion, xd_cmd_serve,
                        xd_cmd_worker, xd_cmd_man, xd_cmd_trace;
enum { XD_MAIN_COMMANDS = 5 };  /* the first ones of xd_commands, which `xdit` explains         */
extern const xd_command *const xd_commands[];   /* all commands; ends with NULL                 */

/* Prints the error and returns the exit code. */
int  xd_cli_exit(xd_status s, const xd_err *e);
/* Prints one or several lines to standard output, without control characters. */
void xd_cli_line(void *cookie, const char *line);
/* Prints the name of a written file; on a terminal without control characters. */
void xd_cli_name(const char *name);
void xd_cli_note_start(void);   /* called by main first                                        */
double xd_cli_started_s(void);  /* start time of this process, on the clock of xd_now_s         */
/* Flushes standard output; prints an error if that failed. Returns the exit code. */
int  xd_cli_flush(void);
/* The end of a command: xd_cli_flush, then xd_cli_exit if the command failed. */
int  xd_cli_end(xd_status s, const xd_err *e);
/* Prints the error of a rank (0: also the only one) and returns the exit code. Errors known to all
 * ranks are printed by rank 0, others by the rank that has them. */
int  xd_cli_failed(xd_status s, const xd_err *e, int rank);
/* Ends a command: prints its error, or flushes standard output; returns the exit code. Does not
 * return if messages between ranks failed (XD_ECOMM). */
int  xd_cli_end_rank(xd_status s, const xd_err *e, int rank, int code);

#endif
