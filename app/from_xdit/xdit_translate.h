/* xdit_translate.h - translates a command line of xDiT into a command line of xdit */
#ifndef XD_FROM_XDIT_XDIT_TRANSLATE_H
#define XD_FROM_XDIT_XDIT_TRANSLATE_H

#include <stdio.h>

#include "from_xdit/xdit_line.h"
#include "xdit/tools.h"

/* A command of xdit, translated from a command of xDiT; initialize with {0}. */
typedef struct xd_translation {
    int                 n, cap;
    char              **word; /* words of the translated command; the array and its words are
                                   malloc'ed */
    xd_parallel         plan;
    int                 ranks, hosts;
    char               *list;   /* value of plan.attn_layer_num_for_pp; malloc'ed, or NULL */
    const char         *model;  /* value of --model, borrowed; NULL: the command line names no
                                   model */
    int                 failed; /* 1: memory was exhausted */
    /* Number of flags of xDiT that the translation omits; the rows of these flags in xd_xdit_flags
     * have the reasons. */
    int                 nleft;
    const xd_xdit_flag *left[XD_XDIT_FLAGS_MAX];
    char                note[512]; /* a remark about the translation for the user; may be empty */
} xd_translation;

void xd_translate(xd_translation *o, const xd_line *l);
/* Prints the translated command as shell input of several lines, where every line except the last
 * line ends with a backslash. */
void xd_translation_print(FILE *f, const xd_translation *o);
/* Prints a word, quoted for a shell, and returns the number of printed columns. If the file f is
 * NULL, nothing is printed, and the columns are only counted. */
int  xd_shell_quote(FILE *f, const char *word);
void xd_translation_free(xd_translation *o);
/* Writes a description of a plan to `text`: "cfg 2 x ulysses 2", "1 rank". */
void xd_translation_plan(const xd_parallel *p, char *text, size_t size);

#endif
