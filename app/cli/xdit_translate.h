/* xdit_translate.h - translates a command line of xDiT into one of xdit */
#ifndef XD_CLI_XDIT_TRANSLATE_H
#define XD_CLI_XDIT_TRANSLATE_H

#include "cli/xdit_line.h"

typedef struct xd_ours {        /* initialize with {0}                                         */
    int         n, cap;
    char      **word;           /* malloc'ed                                                   */
    xd_parallel plan;
    int         ranks, hosts;
    char       *list;           /* value of plan.attn_layer_num_for_pp; malloc'ed, or NULL      */
    const char *model;          /* borrowed; NULL: the command line has none                   */
    int         failed;         /* 1: out of memory                                            */
    int         nleft;          /* flags that are left out, for the reason in their row         */
    const xd_xdit_flag *left[XD_XDIT_FLAGS_MAX];
    char        note[512];      /* a further remark; may be empty                              */
} xd_ours;

void xd_ours_make(xd_ours *o, const xd_line *l);
void xd_ours_print(FILE *f, const xd_ours *o);  /* as one command of a shell, in several lines */
void xd_ours_free(xd_ours *o);
/* Describes a plan: "cfg 2 x ulysses 2", "1 rank". */
void xd_ours_plan(const xd_parallel *p, char *text, size_t size);

#endif
