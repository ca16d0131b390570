/* progress.h - how far a request is: a bar on a terminal, plain lines elsewhere */
#ifndef XD_CLI_PROGRESS_H
#define XD_CLI_PROGRESS_H

#include <stdio.h>

#include "xdit/xdit.h"

typedef struct xd_bar {
    FILE  *f;
    int    terminal;            /* f is one: one line, redrawn in place                        */
    int    quiet;               /* nothing at all                                              */
    int    columns;
    int    drawn;               /* the line under the cursor is the bar                        */
    int    timed;               /* steps that have been timed                                  */
    double first_s, rest_s;     /* seconds of the first step, and of all later ones            */
    double said_s;              /* when the last plain line was written                        */
} xd_bar;

/* columns: of the terminal behind a pipe; 0: f is looked at. */
void xd_bar_init(xd_bar *b, FILE *f, int columns, int quiet);
/* A terminal that understands escape sequences, which TERM=dumb does not. */
int  xd_bar_terminal(int fd);
void xd_bar_stage(xd_bar *b, const char *stage);
void xd_bar_step(xd_bar *b, const xd_progress *p);
void xd_bar_clear(xd_bar *b);   /* makes room for another line; also when nothing is left to do */

/* The text of one step without the bar, "12/20  0.31 s/it  ETA 0:02": shared by both forms. */
void xd_bar_text(const xd_bar *b, const xd_progress *p, char *text, size_t size);

#endif
