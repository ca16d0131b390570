/* timeline.h - makes SVG drawings of what each rank does over time, and of the memory that each
 * rank needs.
 *
 * A drawing has one panel per timeline: one lane (a horizontal band) for each rank shows when the
 * rank computes, waits and has messages in flight, and bars next to the lane show the memory of the
 * rank. The command `xdit plan` draws predicted runs and `xdit trace` draws recorded runs. */
#ifndef XD_REPORT_TIMELINE_H
#define XD_REPORT_TIMELINE_H

#include "base/err.h"
#include "base/json.h"

typedef enum xd_span_kind {
    XD_SPAN_COMPUTE,
    XD_SPAN_WAIT,
    XD_SPAN_MESSAGE,
    XD_SPAN_KINDS
} xd_span_kind;

typedef struct xd_memory_bars { /* memory of one rank in bytes */
    /* Bytes of weights (weights) and of activations (work). In both arrays, index 0 is for text
     * encoders, 1 for the transformer, and 2 for the VAE. */
    double weights[3], work[3];
    double peak;
} xd_memory_bars;

typedef struct xd_timeline {
    double from, to; /* drawn time range in seconds; spans are clipped to this range */
    int    ranks;    /* number of ranks; only the first XD_LANES are drawn */
    const xd_memory_bars    *memory; /* [ranks] memory of the ranks, borrowed; or NULL */
    struct xd_timeline_cell *cell;   /* array that only timeline.c allocates and uses */
    double *sum; /* [ranks][XD_SPAN_KINDS] seconds of each kind of span in the drawn range */
} xd_timeline;

enum { XD_LANES = 32 };

/* Opens a timeline whose fields from, to, ranks and memory the caller has set. Returns XD_ENOMEM if
 * out of memory. Call xd_timeline_close also after a failure. */
xd_status xd_timeline_open(xd_timeline *t, xd_err *e);
void      xd_timeline_close(xd_timeline *t);
/* Adds a time span of a rank to the timeline. `patch` is the number (from 0) of the PipeFusion
 * patch that the rank computes, or -1 if the rank computes all tokens. */
void      xd_timeline_add(xd_timeline *t, int rank, xd_span_kind kind, int patch, double from,
                          double to);

typedef struct xd_drawing {
    xd_text_buf svg;
    double      y;
} xd_drawing;

/* Begins an SVG drawing with a title. `memory` is 1 if the timelines have memory bars, which the
 * legend then explains. */
void      xd_drawing_open(xd_drawing *d, const char *title, int memory);
/* Draws timeline t with its title below the timelines that were added before. */
void      xd_drawing_add(xd_drawing *d, const xd_timeline *t, const char *title);
/* Writes the drawing to the file `path`. Returns XD_EIO or XD_ENOMEM on failure. */
xd_status xd_drawing_write(xd_drawing *d, const char *path, xd_err *e);
void      xd_drawing_close(xd_drawing *d);

#endif
