/* xdit_line.h - parses a command line of xDiT (launcher, script, flags) and predicts whether xDiT
 * would accept the command. Rules are checked in the order in which xDiT checks them, so that the
 * error that xDiT would print is found first. */
#ifndef XD_FROM_XDIT_XDIT_LINE_H
#define XD_FROM_XDIT_XDIT_LINE_H

#include <stdint.h>

#include "cli/xdit_flags.h"
#include "from_xdit/script.h"
#include "from_xdit/xdit_models.h"

typedef struct xd_given {  /* a flag of xDiT with its values on the command line */
    int          n, count; /* number of occurrences of the flag; number of values of its
                                   last occurrence */
    int          off;      /* 1: the flag was written as --no-NAME */
    /* [count] values of the flag; the list is malloc'ed, its strings are borrowed. */
    const char **v;
} xd_given;

typedef enum xd_starter { XD_BY_TORCHRUN, XD_BY_PYTHON, XD_BY_ACCELERATE, XD_BY_RUNNER } xd_starter;

/* A parsed command line; initialize with {0}; its strings are borrowed from the words of the
 * command. */
typedef struct xd_line {
    xd_starter           by;
    int                  nproc, nnodes; /* number of processes per host; number of hosts */
    int                  node_rank;
    /* 1: the number of processes was given as "gpu" or "auto". nproc is then the number of GPUs
     * in CUDA_VISIBLE_DEVICES or, if that is unset, 8. */
    int                  auto_nproc;
    const char          *master; /* host of rank 0; NULL: this host */
    const char          *script; /* name of the example script; "xdit" for the runner */
    int                  runner; /* 1: the command starts xDiT's runner, which has its own flags */
    int                  world;  /* number of processes on all hosts */
    const xd_xdit_model *model;  /* row of the model in the table of xDiT's models; NULL: unknown */
    /* Number of attention heads, of transformer blocks and of cross-attention heads; 0: unknown. */
    int                  heads, blocks, cross;
    /* 1: the numbers of heads, blocks and cross-attention heads were read from the config in the
     * model directory. */
    int                  from_config;
    /* The flags on the command line; given[i] belongs to the flag xd_xdit_flags[i]. */
    xd_given             given[XD_XDIT_FLAGS_MAX];
    /* Error that xDiT's parser of arguments (argparse) would print; empty: the parser would print
     * no error. */
    char                 refusal[512];
    char                 why[128];  /* explanation of the error in `refusal`; may be empty */
    const xd_xdit_flag  *no_dashes; /* a flag written without dashes; NULL: none */
    /* 1: the script, the model's name or its directory determines which model of xDiT is used. */
    int                  known_model;
} xd_line;

/* Parses a command. XD_EINVAL: the command is not a command line of xDiT. If xDiT's parser would
 * refuse a flag, stores xDiT's error in l->refusal and returns XD_OK. */
xd_status   xd_line_read(xd_line *l, const xd_script *text, const xd_command_line *s, xd_err *e);
/* Returns 1 if the n words of a command start xDiT. xd_line_wanted is the callback `wanted` of
 * xd_script. */
int         xd_line_wanted(int n, char **w);
void        xd_line_free(xd_line *l);
/* xd_line_int, xd_line_real and xd_line_text return the last value of a flag. If the command line
 * does not have the flag, the result is `none` for numbers and NULL for texts. */
int         xd_line_int(const xd_line *l, const char *flag, int none);
double      xd_line_real(const xd_line *l, const char *flag, double none);
const char *xd_line_text(const xd_line *l, const char *flag);
int         xd_line_on(const xd_line *l, const char *flag);
const xd_given *xd_line_given(const xd_line *l, const char *flag);
/* Returns the sum of the numbers of transformer blocks of all pipeline stages. A number of blocks
 * outside the allowed range counts as the nearest allowed number, and *bad becomes the text of the
 * number on the command line. If all numbers of blocks are in range, *bad becomes NULL. */
int64_t         xd_line_sum(const xd_given *list, const char **bad);
/* Returns the product of the parallel degrees that the flags of the command line set. */
int             xd_line_product(const xd_line *l);

typedef struct xd_possible { /* an error of xDiT that occurs only in some installations */
    const char *when;
    char        error[320], because[256];
} xd_possible;

typedef struct xd_verdict { /* the prediction of whether xDiT would run the command */
    /* Time at which xDiT would fail, for example "when its flags are read"; NULL: xDiT would run
     * the command. */
    const char *when;
    char        error[512], because[512];
    int         nnotes;
    char        note[8][256]; /* remarks about the command in addition to the error */
    int         npossible;
    xd_possible possible[2];
} xd_verdict;

/* Applies the rules of xDiT to a parsed command line, and stores the prediction in *v. */
void xd_line_judge(const xd_line *l, xd_verdict *v);

#endif
