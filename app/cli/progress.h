/* progress.h - how far a request is: a bar on a terminal, plain lines elsewhere */
#ifndef XD_CLI_PROGRESS_H
#define XD_CLI_PROGRESS_H

#include <pthread.h>
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
    double since_s, since;      /* of bytes: when they were first said, and how many they were  */
    /* Of a stage that reads weights a thread beside says how fast the disk is. */
    double (*read_bytes)(void); /* that this process has had read from disks; negative: unknown  */
    double      between_s;      /* seconds between two looks                                   */
    const char *reads;          /* the stage; NULL: there is no thread                         */
    pthread_t   thread;
    pthread_mutex_t guard;      /* of what is written, and of what follows                     */
    pthread_cond_t  change;
    int    stop;
    double clear_s;             /* when the line was given to another                          */
} xd_bar;

/* columns: of the terminal behind a pipe; 0: f is looked at. */
void xd_bar_init(xd_bar *b, FILE *f, int columns, int quiet);
/* A terminal that understands escape sequences, which TERM=dumb does not. */
int  xd_bar_terminal(int fd);
/* Of "text", "load" and "decode" it is said while weights come from a disk:
 * "load ... reading 152 MB/s", in plain lines once in 10 looks. */
void xd_bar_stage(xd_bar *b, const char *stage);
void xd_bar_step(xd_bar *b, const xd_progress *p);
/* Bytes of a file that is one of many: done of total, in all. */
void xd_bar_bytes(xd_bar *b, const char *file, double done, double total);
void xd_bar_clear(xd_bar *b);   /* makes room for another line                                 */
void xd_bar_end(xd_bar *b);     /* the same behind the last; ends the thread                    */

/* The text of one step without the bar, "12/20  0.31 s/it  ETA 0:02": shared by both forms. */
void xd_bar_text(const xd_bar *b, const xd_progress *p, char *text, size_t size);

#endif
