/* xdit_line.h - a command line of xDiT, taken apart: launcher, script, flags.
 *
 * And what xDiT would say to it: its rules, in the order in which a user meets them. */
#ifndef XD_CLI_XDIT_LINE_H
#define XD_CLI_XDIT_LINE_H

#include <stdint.h>

#include "cli/shell.h"
#include "cli/xdit_flags.h"
#include "cli/xdit_models.h"

typedef struct xd_given {       /* one flag of the line                                        */
    int          n, count;      /* how often it was given; values of the last time              */
    int          off;           /* as --no-                                                    */
    const char **v;             /* borrowed; the list is malloc'ed                             */
} xd_given;

typedef enum xd_starter { XD_BY_TORCHRUN, XD_BY_PYTHON, XD_BY_ACCELERATE, XD_BY_RUNNER } xd_starter;

typedef struct xd_line {        /* start with {0}; texts borrowed from the words               */
    xd_starter  by;
    int         nproc, nnodes;  /* of a host; hosts                                            */
    int         node_rank;
    int         auto_nproc;     /* "gpu" or "auto": CUDA_VISIBLE_DEVICES, or 8, stands for it  */
    const char *master;         /* NULL: this host                                             */
    const char *script;         /* "xdit" of the runner                                        */
    int         runner;         /* it takes the runner's flags                                 */
    int         world;          /* processes                                                   */
    const xd_xdit_model *model; /* NULL: not known                                             */
    int         heads, blocks, cross;   /* of its transformer; 0: not known                     */
    int         from_config;    /* they are those of the model's directory                      */
    xd_given    given[XD_XDIT_FLAGS_MAX];       /* of the row of xd_xdit_flags                   */
    char        bad[512];       /* what argparse says; empty: nothing                           */
    char        why[128];       /* more about it, or empty                                      */
    const xd_xdit_flag *meant;  /* its name stood there without dashes, and is taken as it      */
    int         heard;          /* script, name or directory says which model it is             */
} xd_line;

/* XD_EINVAL with one sentence: this is no command line of xDiT. What xDiT's own reader of flags
 * refuses is no error but line->bad. */
xd_status   xd_line_read(xd_line *l, const xd_shell *text, const xd_command_line *s, xd_err *e);
/* For xd_shell.wanted: does the command start xDiT? */
int         xd_line_wanted(int n, char **w);
void        xd_line_free(xd_line *l);
/* Values of flags: the last one given, or `none`. */
int         xd_line_int(const xd_line *l, const char *flag, int none);
double      xd_line_real(const xd_line *l, const char *flag, double none);
const char *xd_line_text(const xd_line *l, const char *flag);
int         xd_line_on(const xd_line *l, const char *flag);
const xd_given *xd_line_given(const xd_line *l, const char *flag);
/* Blocks of all stages; *bad becomes a number that cannot be meant (it counts as the nearest that
 * can), or NULL. */
int64_t     xd_line_sum(const xd_given *list, const char **bad);
/* Product of the degrees. */
int         xd_line_product(const xd_line *l);

typedef struct xd_perhaps {     /* an error of some installations                              */
    const char *when;
    char        error[320], because[256];
} xd_perhaps;

typedef struct xd_verdict {     /* what xDiT does with it                                      */
    const char *when;           /* of the error: "when its flags are read"; NULL: it runs       */
    char        error[512], because[512];
    int         nnotes;
    char        note[8][256];   /* what else is to be said                                     */
    int         nperhaps;
    xd_perhaps  perhaps[2];
} xd_verdict;

void xd_line_judge(const xd_line *l, xd_verdict *v);

#endif
