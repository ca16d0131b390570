/* measures.h - collects histograms of the durations and speeds of ended requests, one set of
 * histograms per model, for the path /metrics */
#ifndef XD_SERVE_MEASURES_H
#define XD_SERVE_MEASURES_H

#include "base/json.h"

/* Values that are measured for each request. DURATION: seconds from the request's arrival to its
 * end. WAIT: seconds for which the request waited in the queue. SPEED: denoising steps per
 * second. */
enum { XD_MEASURE_DURATION, XD_MEASURE_WAIT, XD_MEASURE_SPEED, XD_MEASURES, XD_BUCKETS = 16 };

typedef struct xd_histogram {
    /* Number of requests in each bucket of the histogram, without the requests in lower buckets;
     * the last bucket has no upper limit. */
    long long counts[XD_BUCKETS + 1];
    double    sum;
} xd_histogram;

typedef struct xd_measured { /* the histograms of a model */
    char        *model;
    int          video;
    xd_histogram of[XD_MEASURES];
} xd_measured;

typedef struct xd_measures {
    xd_measured *v; /* [n] histograms, one entry per model */
    int          n;
} xd_measures;

/* Returns the histograms of a model, and creates them at the first call. Returns NULL if memory is
 * exhausted. */
xd_measured *xd_measures_of(xd_measures *m, const char *model, int video);
void         xd_measure_add(xd_measured *d, int what, double value);
/* Appends all histograms in Prometheus' text format. */
void         xd_measures_print(xd_text_buf *b, const xd_measures *m);
void         xd_measures_free(xd_measures *m);

#endif
