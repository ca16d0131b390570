/* resume.h - stores the options of xdit generate in the folder of --checkpoint, from which --resume
 * reads them.
 *
 * The file options.json in the folder is an object: "folder", the folder in which the command was
 * run; "options", the options of the command without those of the plan, and "plan", those of the
 * plan; each is a list of texts "--name=value". */
#ifndef XD_CLI_RESUME_H
#define XD_CLI_RESUME_H

#include "cli/opt.h"

typedef struct xd_resume { xd_opt_texts options, plan; } xd_resume;

/* Adds an option. value: NULL for a switch without a value. plan: 1 if the option is one of the
 * plan. XD_ENOMEM: no memory. */
xd_status xd_resume_add(xd_resume *r, const char *name, const char *value, int plan, xd_err *e);
void      xd_resume_free(xd_resume *r);
/* Writes the file to the folder, which the request has created. */
xd_status xd_resume_save(const xd_resume *r, const char *dir, xd_err *e);
/* Adds the options of the file, in front of those that r has. The plan's options of the file are
 * left out if r has options of the plan, so that another number of ranks can continue. */
xd_status xd_resume_load(xd_resume *r, const char *dir, xd_err *e);
/* Returns the time at which the file was written, 0 if there is none. */
double    xd_resume_time(const char *dir);
/* Removes the file, and the folder if it is empty. */
void      xd_resume_done(const char *dir);

/* Waits some seconds for the ranks of a killed command, which may still finish its last image. Only
 * for the process that starts ranks: rank 0 keeps the folder locked. */
void xd_resume_wait(const char *dir);

#endif
