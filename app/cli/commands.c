/* commands.c - the table of all commands of the program xdit */
#include "cli/cli.h"

/* All commands; the first XD_MAIN_COMMANDS are the main commands. */
const xd_command *const xd_commands[] = { &xd_cmd_generate,
                                          &xd_cmd_serve,
                                          &xd_cmd_plan,
                                          &xd_cmd_models,
                                          &xd_cmd_doctor,
                                          &xd_cmd_inspect,
                                          &xd_cmd_convert,
                                          &xd_cmd_compare,
                                          &xd_cmd_calibrate,
                                          &xd_cmd_bench,
                                          &xd_cmd_probe,
                                          &xd_cmd_from_xdit,
                                          &xd_cmd_run,
                                          &xd_cmd_trace,
                                          &xd_cmd_upscale,
                                          &xd_cmd_completion,
                                          &xd_cmd_man,
                                          &xd_cmd_worker,
                                          NULL };
