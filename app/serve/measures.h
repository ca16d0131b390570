/* measures.h - histograms of requests that have ended, by model, as /metrics shows them */
#ifndef XD_SERVE_MEASURES_H
#define XD_SERVE_MEASURES_H

#include "base/json.h"

/* DURATION: seconds from coming to the end, WAIT: of them in the queue, SPEED: steps a second. */
enum { XD_MEASURE_DURATION, XD_MEASURE_WAIT, XD_MEASURE_SPEED, XD_MEASURES, XD_BUCKETS = 16 };

typedef struct xd_histogram {
    long long counts[XD_BUCKETS + 1];   /* of each bucket alone; the last one has no upper end  */
    double    sum;
} xd_histogram;

typedef struct xd_measured {    /* a model                                                     */
    char        *model;
    int          video;
    xd_histogram of[XD_MEASURES];
} xd_measured;

typedef struct xd_measures {
    xd_measured *v;
    int          n;
} xd_measures;

/* The entry of a model, which is made where there is none. NULL: no memory. */
xd_measured *xd_measures_of(xd_measures *m, const char *model, int video);
void         xd_measure_add(xd_measured *d, int what, double value);
/* Appends all in Prometheus' text format. */
void         xd_measures_print(xd_text_buf *b, const xd_measures *m);
void         xd_measures_free(xd_measures *m);

#endif
