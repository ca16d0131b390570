/* progress.h - prints the progress of a request: a bar on a terminal, plain lines elsewhere */
#ifndef XD_CLI_PROGRESS_H
#define XD_CLI_PROGRESS_H

#include <pthread.h>
#include <stdio.h>

#include "xdit/xdit.h"

typedef struct xd_bar {
    FILE           *f;
    int             terminal; /* 1: f is a terminal, on which one line is redrawn in place */
    int             quiet;    /* 1: prints nothing */
    int             columns;
    int             drawn; /* 1: the cursor of the terminal is on the line of the bar */
    int             timed; /* number of steps whose time was measured */
    /* Seconds of the first step, and the sum of the seconds of all later steps. */
    double          first_s, rest_s;
    /* time at which the last plain line was printed (output that is no terminal) */
    double          printed_s;
    /* Time of the first call of xd_bar_bytes, and bytes that had been read at that time. */
    double          since_s, since;
    /* During stages that read weights, a thread prints the speed at which the disk is read. */
    /* Returns the total bytes that this process has read from disks; negative: unknown. */
    double          (*read_bytes)(void);
    double          between_s; /* seconds between two measurements of the reading speed */
    /* Printed name of the running stage that reads weights; NULL: the thread that prints the
     * reading speed does not run. */
    const char     *reads;
    pthread_t       thread;
    pthread_mutex_t lock; /* mutex that protects the output and the fields below */
    pthread_cond_t  change;
    int             stop;
    double          clear_s; /* time of the last xd_bar_clear */
} xd_bar;

/* Initializes a bar that is printed to f. If the bar's output f is a pipe to another process that
 * prints to a terminal, `columns` is the width of that terminal. If the output f is no pipe to a
 * process with a terminal, `columns` is 0, and the width of f is used. */
void xd_bar_init(xd_bar *b, FILE *f, int columns, int quiet);
/* Begins a stage. While the stages "text", "load" and "decode" read weights, the reading speed is
 * printed: "load weights ... reading 152 MB/s". If the output is no terminal, a line is printed
 * every 10 updates. */
void xd_bar_stage(xd_bar *b, const char *stage);
void xd_bar_step(xd_bar *b, const xd_progress *p);
/* Prints the progress of reading files: `done` of `total` bytes of all files have been read; `file`
 * is the current file. */
void xd_bar_bytes(xd_bar *b, const char *file, double done, double total);
/* Prints that the fraction `part` of `what` is complete, for example of "frame 3". */
void xd_bar_share(xd_bar *b, const char *what, double part);
void xd_bar_clear(xd_bar *b); /* erases the bar, so that another line can be printed */
/* erases the bar, and ends the thread that prints the reading speed */
void xd_bar_end(xd_bar *b);

#endif
