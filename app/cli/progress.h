/* progress.h - prints the progress of a request: a bar on a terminal, plain lines elsewhere */
#ifndef XD_CLI_PROGRESS_H
#define XD_CLI_PROGRESS_H

#include <pthread.h>
#include <stdio.h>

#include "xdit/xdit.h"

typedef struct xd_bar {
    FILE  *f;
    int    terminal;            /* 1: f is a terminal, on which one line is redrawn in place   */
    int    quiet;               /* 1: prints nothing                                           */
    int    columns;
    int    drawn;               /* 1: the cursor of the terminal is on the line of the bar     */
    int    timed;               /* number of steps whose time was measured                     */
    double first_s, rest_s;     /* seconds of the first step; sum of the seconds of all later
                                   steps */
    double printed_s;           /* time of the last plain line                                 */
    double since_s, since;      /* time and bytes of the first call of xd_bar_bytes             */
    /* During stages that read weights, a thread prints the speed of the disk. */
    double (*read_bytes)(void); /* returns the bytes that this process has read from disks;
                                   negative: unknown */
    double      between_s;      /* seconds between two updates of the reading speed            */
    const char *reads;          /* printed name of the stage that reads; NULL: no thread runs  */
    pthread_t   thread;
    pthread_mutex_t lock;       /* protects the output and the fields below                    */
    pthread_cond_t  change;
    int    stop;
    double clear_s;             /* time of the last xd_bar_clear                               */
} xd_bar;

/* Initializes a bar that is printed to f. columns: if f is a pipe whose bytes another process
 * prints to a terminal, the width of that terminal; else 0, and the width of f is used. */
void xd_bar_init(xd_bar *b, FILE *f, int columns, int quiet);
/* Begins a stage. While the stages "text", "load" and "decode" read weights, the reading speed is
 * printed: "load weights ... reading 152 MB/s". Plain lines are printed every 10 updates. */
void xd_bar_stage(xd_bar *b, const char *stage);
void xd_bar_step(xd_bar *b, const xd_progress *p);
/* Prints the progress of reading files: `done` of `total` bytes of all files; `file` is the current
 * file. */
void xd_bar_bytes(xd_bar *b, const char *file, double done, double total);
void xd_bar_clear(xd_bar *b);   /* erases the bar, to print another line                       */
void xd_bar_end(xd_bar *b);     /* erases the bar and ends the thread                           */

#endif
