/* graphs.h - records sequences of kernels as graphs, and replays a graph with less overhead than
 * separate launches of its kernels. While a device records, kernels that are called are recorded
 * and do not run.
 *
 * A recorded kernel keeps its arguments, including all addresses. While a device records, the
 * caller must only call kernels: it must not copy between host and device, allocate memory, or
 * wait. If a device cannot record kernels, its field xd_dev.graphs is NULL. */
#ifndef XD_BACKEND_GRAPHS_H
#define XD_BACKEND_GRAPHS_H

#include "backend/backend.h"

typedef struct xd_graph xd_graph;

struct xd_dev_graphs {
    xd_status (*begin)(xd_dev *d);
    /* Ends the recording of kernels and returns the recorded graph in *g. If the recording failed,
     * *g is NULL and no kernel has run. */
    xd_status (*end)(xd_dev *d, xd_graph **g);
    /* Queues the recorded kernels of graph g on the device, after all earlier work. */
    xd_status (*run)(xd_dev *d, xd_graph *g);
    /* frees a graph, which may be NULL or still running */
    void      (*drop)(xd_dev *d, xd_graph *g);
};

#endif
