/* progress.h - progress of a request: a bar on a terminal, plain lines elsewhere */
#ifndef XD_CLI_PROGRESS_H
#define XD_CLI_PROGRESS_H

#include <pthread.h>
#include <stdio.h>

#include "xdit/xdit.h"

typedef struct xd_bar {
    FILE  *f;
    int    terminal;            /* 1: f is a terminal; one line is redrawn in place            */
    int    quiet;               /* 1: prints nothing                                           */
    int    columns;
    int    drawn;               /* 1: the cursor is on the line of the bar                     */
    int    timed;               /* number of timed steps                                       */
    double first_s, rest_s;     /* seconds of the first step, and of all later ones            */
    double printed_s;           /* time of the last plain line                                 */
    double since_s, since;      /* of xd_bar_bytes: time and bytes of the first call            */
    /* During stages that read weights, a thread prints the speed of the disk. */
    double (*read_bytes)(void); /* bytes read from disks by this process; negative: unknown      */
    double      between_s;      /* seconds between two updates                                 */
    const char *reads;          /* name of the stage; NULL: no thread runs                     */
    pthread_t   thread;
    pthread_mutex_t lock;       /* for output, and for the fields below                        */
    pthread_cond_t  change;
    int    stop;
    double clear_s;             /* time of the last xd_bar_clear                               */
} xd_bar;

/* columns: width of the terminal that a pipe leads to; 0: ask f. */
void xd_bar_init(xd_bar *b, FILE *f, int columns, int quiet);
/* Begins a stage. "text", "load" and "decode" print the reading speed while weights are read:
 * "load weights ... reading 152 MB/s"; in plain lines every 10 updates. */
void xd_bar_stage(xd_bar *b, const char *stage);
void xd_bar_step(xd_bar *b, const xd_progress *p);
/* Progress in bytes: `done` of `total` of all files; `file` is the current one. */
void xd_bar_bytes(xd_bar *b, const char *file, double done, double total);
void xd_bar_clear(xd_bar *b);   /* erases the bar, to print another line                       */
void xd_bar_end(xd_bar *b);     /* erases the bar and ends the thread                           */

#endif
