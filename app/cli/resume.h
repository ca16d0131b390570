/* resume.h - stores the options of xdit generate in the folder of --checkpoint, from which --resume
 * reads them.
 *
 * The file options.json in the folder is a JSON object: "folder" is the folder in which the command
 * was run, "options" the options of the command except the options of the plan, and "plan" the
 * options of the plan. The two lists of options contain texts "--name=value". */
#ifndef XD_CLI_RESUME_H
#define XD_CLI_RESUME_H

#include "cli/opt.h"

typedef struct xd_resume { xd_opt_texts options, plan; } xd_resume;

/* Adds an option to the lists in *r. value: NULL for a switch without a value. plan: 1 if the
 * option belongs to the parallel plan. XD_ENOMEM: no memory. */
xd_status xd_resume_add(xd_resume *r, const char *name, const char *value, int plan, xd_err *e);
void      xd_resume_free(xd_resume *r);
/* Writes the file options.json to the folder, which the request has created. */
xd_status xd_resume_save(const xd_resume *r, const char *dir, xd_err *e);
/* Reads options.json, and inserts the options of the interrupted command before the options of r.
 * If r has options of the parallel plan, those in the file are ignored, so that another number of
 * ranks can continue. */
xd_status xd_resume_load(xd_resume *r, const char *dir, xd_err *e);
/* Returns the time at which the file options.json was written; 0: the file does not exist. */
double    xd_resume_time(const char *dir);
/* Removes the file options.json, and the folder if it is empty. */
void      xd_resume_done(const char *dir);

/* Waits some seconds for the ranks of a killed command, which may still finish the command's last
 * image. Only the process that starts ranks may call this function, because rank 0 keeps the folder
 * locked. */
void xd_resume_wait(const char *dir);

#endif
