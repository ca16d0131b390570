/* timeline.h - drawings (SVG) of what each rank does over time, and of the memory it needs
 *
 * A drawing has one panel per timeline: a lane for each rank with computing, waiting and messages
 * in flight, and next to it bars of memory. xdit plan draws predictions, xdit trace real runs. */
#ifndef XD_REPORT_TIMELINE_H
#define XD_REPORT_TIMELINE_H

#include "base/err.h"
#include "base/json.h"

typedef enum xd_span_kind { XD_SPAN_COMPUTE, XD_SPAN_WAIT, XD_SPAN_MESSAGE, XD_SPAN_KINDS }
    xd_span_kind;

typedef struct xd_memory_bars { /* bytes of one rank                                           */
    double weights[3], work[3]; /* text encoders, transformer, VAE; work: activations           */
    double peak;
} xd_memory_bars;

typedef struct xd_timeline {
    double  from, to;           /* seconds; spans are clipped to them                          */
    int     ranks;              /* all; the drawing shows the first XD_LANES                   */
    const xd_memory_bars *memory;       /* [ranks] borrowed, or NULL                           */
    struct xd_timeline_cell *cell;      /* private                                             */
    double *sum;                /* [ranks][XD_SPAN_KINDS]: seconds within from and to           */
} xd_timeline;

enum { XD_LANES = 32 };

/* t->from, to, ranks and memory are set. XD_ENOMEM. Freed with xd_timeline_close also after a
 * failure. */
xd_status xd_timeline_open(xd_timeline *t, xd_err *e);
void      xd_timeline_close(xd_timeline *t);
/* Adds a time span of a rank. patch: the number of the patch (PipeFusion) that it computes, from 0;
 * -1: all tokens. */
void      xd_timeline_add(xd_timeline *t, int rank, xd_span_kind kind, int patch, double from,
                          double to);

typedef struct xd_drawing { xd_text_buf svg; double y; } xd_drawing;

/* memory: 1: timelines have memory, which the legend explains. */
void      xd_drawing_open(xd_drawing *d, const char *title, int memory);
/* Draws t below what the drawing has, under its own title. */
void      xd_drawing_add(xd_drawing *d, const xd_timeline *t, const char *title);
/* Writes the file `path`; XD_EIO, XD_ENOMEM. */
xd_status xd_drawing_write(xd_drawing *d, const char *path, xd_err *e);
void      xd_drawing_close(xd_drawing *d);

#endif
