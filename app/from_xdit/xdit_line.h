/* xdit_line.h - parses a command line of xDiT: launcher, script, flags; and predicts whether xDiT
 * would accept it, by the rules of xDiT in the order in which they apply. */
#ifndef XD_FROM_XDIT_XDIT_LINE_H
#define XD_FROM_XDIT_XDIT_LINE_H

#include <stdint.h>

#include "cli/xdit_flags.h"
#include "from_xdit/script.h"
#include "from_xdit/xdit_models.h"

typedef struct xd_given {       /* a flag of the command line                                  */
    int          n, count;      /* occurrences; values of the last one                          */
    int          off;           /* 1: given as --no-NAME                                       */
    const char **v;             /* [count] borrowed strings; the list is malloc'ed             */
} xd_given;

typedef enum xd_starter { XD_BY_TORCHRUN, XD_BY_PYTHON, XD_BY_ACCELERATE, XD_BY_RUNNER } xd_starter;

typedef struct xd_line {        /* initialize with {0}; texts are borrowed from the words      */
    xd_starter  by;
    int         nproc, nnodes;  /* processes per host; hosts                                   */
    int         node_rank;
    int         auto_nproc;     /* 1: "gpu" or "auto": CUDA_VISIBLE_DEVICES, else 8, is assumed */
    const char *master;         /* NULL: this host                                             */
    const char *script;         /* "xdit" of the runner                                        */
    int         runner;         /* 1: the runner, with its flags                               */
    int         world;          /* number of processes                                         */
    const xd_xdit_model *model; /* NULL: unknown                                               */
    int         heads, blocks, cross;   /* of its transformer, cross: heads of its cross-attention;
                                           0: unknown                                          */
    int         from_config;    /* 1: they come from the config of the model directory          */
    xd_given    given[XD_XDIT_FLAGS_MAX];       /* by the index in xd_xdit_flags                 */
    char        refusal[512];   /* error of argparse; empty: none                               */
    char        why[128];       /* explanation of that error; may be empty                      */
    const xd_xdit_flag *no_dashes;      /* a flag written without dashes; NULL: none            */
    int         known_model;    /* 1: script, name or directory identify the model              */
} xd_line;

/* Parses a command. XD_EINVAL: it is not a command line of xDiT. Flags that the parser of xDiT
 * refuses are no error but set l->refusal. */
xd_status   xd_line_read(xd_line *l, const xd_script *text, const xd_command_line *s, xd_err *e);
/* For xd_script.wanted: returns 1 if the command starts xDiT. */
int         xd_line_wanted(int n, char **w);
void        xd_line_free(xd_line *l);
/* Value of a flag: the last one, or `none` if it is not given. */
int         xd_line_int(const xd_line *l, const char *flag, int none);
double      xd_line_real(const xd_line *l, const char *flag, double none);
const char *xd_line_text(const xd_line *l, const char *flag);
int         xd_line_on(const xd_line *l, const char *flag);
const xd_given *xd_line_given(const xd_line *l, const char *flag);
/* Sum of the blocks of all stages; *bad becomes a number out of range (the nearest number in range
 * is added), or NULL. */
int64_t     xd_line_sum(const xd_given *list, const char **bad);
/* Product of the degrees. */
int         xd_line_product(const xd_line *l);

typedef struct xd_possible {    /* an error that depends on the installation                   */
    const char *when;
    char        error[320], because[256];
} xd_possible;

typedef struct xd_verdict {     /* whether xDiT would run the command                          */
    const char *when;           /* time of the error: "when its flags are read"; NULL: it runs  */
    char        error[512], because[512];
    int         nnotes;
    char        note[8][256];   /* further remarks                                             */
    int         npossible;
    xd_possible possible[2];
} xd_verdict;

/* Applies the rules of xDiT. */
void xd_line_judge(const xd_line *l, xd_verdict *v);

#endif
