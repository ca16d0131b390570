/* xdit_translate.h - a command line of xDiT as one of ours */
#ifndef XD_CLI_XDIT_TRANSLATE_H
#define XD_CLI_XDIT_TRANSLATE_H

#include "cli/xdit_line.h"

typedef struct xd_ours {        /* start with {0}                                              */
    int         n, cap;
    char      **word;           /* malloc'ed                                                   */
    xd_parallel plan;
    int         ranks, hosts;
    char       *list;           /* of plan.attn_layer_num_for_pp; malloc'ed, or NULL            */
    const char *model;          /* borrowed; NULL: the line has none                           */
    int         failed;         /* no memory                                                   */
    int         nleft;          /* flags that are left out, and why is in their row             */
    const xd_xdit_flag *left[XD_XDIT_FLAGS_MAX];
    char        note[512];      /* what else is to be said; empty: nothing                     */
} xd_ours;

void xd_ours_make(xd_ours *o, const xd_line *l);
void xd_ours_print(FILE *f, const xd_ours *o);  /* in lines that a shell reads as one command  */
void xd_ours_free(xd_ours *o);
/* "cfg 2 x ulysses 2"; "1 rank" */
void xd_ours_plan(const xd_parallel *p, char *text, size_t size);

#endif
