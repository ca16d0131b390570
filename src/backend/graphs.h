/* graphs.h - recorded sequences of kernels, replayed with less overhead than separate launches
 *
 * Kernels that are called while a device records are not run. A recorded kernel keeps its
 * arguments, including all addresses. While a device records, nothing else may be requested from
 * it: no copy between host and device, no allocation, no wait. xd_dev.graphs is NULL for a device
 * that cannot record. */
#ifndef XD_BACKEND_GRAPHS_H
#define XD_BACKEND_GRAPHS_H

#include "backend/backend.h"

typedef struct xd_graph xd_graph;

struct xd_dev_graphs {
    xd_status (*begin)(xd_dev *d);
    /* Ends the recording. *g is NULL, and nothing has run, if the work could not be recorded. */
    xd_status (*end)(xd_dev *d, xd_graph **g);
    /* Queues the recorded work on the device, after all earlier work. */
    xd_status (*run)(xd_dev *d, xd_graph *g);
    void      (*drop)(xd_dev *d, xd_graph *g);  /* g may be NULL or still running               */
};

#endif
