/* xdit_line.h - parses a command line of xDiT (launcher, script, flags) and predicts whether xDiT
 * would accept the command. The rules of xDiT are applied in xDiT's order. */
#ifndef XD_FROM_XDIT_XDIT_LINE_H
#define XD_FROM_XDIT_XDIT_LINE_H

#include <stdint.h>

#include "cli/xdit_flags.h"
#include "from_xdit/script.h"
#include "from_xdit/xdit_models.h"

typedef struct xd_given {       /* a flag of xDiT with its values on the command line          */
    int          n, count;      /* number of occurrences of the flag; number of values of its
                                   last occurrence */
    int          off;           /* 1: the flag was written as --no-NAME                        */
    const char **v;             /* [count] values of the flag: borrowed strings in a malloc'ed
                                   list */
} xd_given;

typedef enum xd_starter { XD_BY_TORCHRUN, XD_BY_PYTHON, XD_BY_ACCELERATE, XD_BY_RUNNER } xd_starter;

typedef struct xd_line {        /* a parsed command line; initialize with {0}; texts are borrowed
                                   from the words of the command line */
    xd_starter  by;
    int         nproc, nnodes;  /* number of processes per host; number of hosts               */
    int         node_rank;
    int         auto_nproc;     /* 1: nproc was "gpu" or "auto"; the number in CUDA_VISIBLE_DEVICES,
                                   else 8, is assumed */
    const char *master;         /* host of rank 0; NULL: this host                             */
    const char *script;         /* name of the example script; "xdit" for the runner           */
    int         runner;         /* 1: the command starts xDiT's runner, which has its own flags */
    int         world;          /* number of processes on all hosts                            */
    const xd_xdit_model *model; /* row of the model; NULL: unknown                             */
    int         heads, blocks, cross;   /* numbers of attention heads, blocks and cross-attention
                                           heads of the transformer; 0: unknown */
    int         from_config;    /* 1: heads, blocks and cross were read from the config of the model
                                   directory */
    xd_given    given[XD_XDIT_FLAGS_MAX];       /* flags of the command, by their index in
                                                   xd_xdit_flags */
    char        refusal[512];   /* error that argparse of xDiT would print; empty: none         */
    char        why[128];       /* explanation of the error in `refusal`; may be empty          */
    const xd_xdit_flag *no_dashes;      /* a flag written without dashes; NULL: none            */
    int         known_model;    /* 1: the script, the name or the directory identifies the model */
} xd_line;

/* Parses a command. XD_EINVAL: the command is not a command line of xDiT. If the parser of xDiT
 * would refuse a flag, sets l->refusal and returns XD_OK. */
xd_status   xd_line_read(xd_line *l, const xd_script *text, const xd_command_line *s, xd_err *e);
/* Returns 1 if the n words of a command start xDiT. Used as xd_script.wanted. */
int         xd_line_wanted(int n, char **w);
void        xd_line_free(xd_line *l);
/* Returns the last value of a flag, or `none` if the flag is not given. */
int         xd_line_int(const xd_line *l, const char *flag, int none);
double      xd_line_real(const xd_line *l, const char *flag, double none);
const char *xd_line_text(const xd_line *l, const char *flag);
int         xd_line_on(const xd_line *l, const char *flag);
const xd_given *xd_line_given(const xd_line *l, const char *flag);
/* Returns the sum of the numbers of transformer blocks of all pipeline stages. If a number is out
 * of range, the nearest number in range is added, and *bad becomes that number's text; else *bad
 * becomes NULL. */
int64_t     xd_line_sum(const xd_given *list, const char **bad);
/* Returns the product of the parallel degrees that the flags set. */
int         xd_line_product(const xd_line *l);

typedef struct xd_possible {    /* an error of xDiT that occurs only in some installations     */
    const char *when;
    char        error[320], because[256];
} xd_possible;

typedef struct xd_verdict {     /* the prediction whether xDiT would run the command           */
    const char *when;           /* time of the error, for example "when its flags are read"; NULL:
                                   xDiT runs the command */
    char        error[512], because[512];
    int         nnotes;
    char        note[8][256];   /* further remarks about the command                           */
    int         npossible;
    xd_possible possible[2];
} xd_verdict;

/* Applies the rules of xDiT to a parsed command line, and sets *v. */
void xd_line_judge(const xd_line *l, xd_verdict *v);

#endif
