/* cli.h - what the commands of the program share. Exit codes: 0 done, 1 failed, 2 the command line
 * or the request is wrong, 128 + n ended by signal n. */
#ifndef XD_CLI_CLI_H
#define XD_CLI_CLI_H

#include <stdio.h>

#include "base/err.h"

enum { XD_EXIT_OK = 0, XD_EXIT_FAILED = 1, XD_EXIT_USAGE = 2 };

typedef struct xd_command {
    const char *name, *summary;
    int       (*run)(int argc, char **argv);    /* arguments behind the name; the exit code    */
    void      (*help)(FILE *f);
} xd_command;

extern const xd_command xd_cmd_generate, xd_cmd_plan, xd_cmd_inspect, xd_cmd_bench, xd_cmd_probe,
                        xd_cmd_convert, xd_cmd_compare, xd_cmd_models, xd_cmd_doctor,
                        xd_cmd_from_xdit, xd_cmd_calibrate, xd_cmd_completion, xd_cmd_serve,
                        xd_cmd_worker, xd_cmd_man;
enum { XD_MAIN_COMMANDS = 5 };  /* the first ones of xd_commands, which `xdit` explains         */
extern const xd_command *const xd_commands[];   /* all commands; ends with NULL                 */

int  xd_cli_exit(xd_status s, const xd_err *e); /* says the error; the exit code               */
/* A line for standard output, or several, without control characters. */
void xd_cli_line(void *cookie, const char *line);
void xd_cli_name(const char *name);     /* of a file that was written: as it is but on a terminal */
double xd_cli_started_s(void);  /* when this process began, on the clock of xd_now_s            */
int  xd_cli_flush(void);        /* did all of standard output arrive? the exit code            */

#endif
