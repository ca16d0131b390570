/* graphs.h - work that a device records once and runs again, for less than its launches cost
 *
 * Kernels that are called while a device records do not run. A recorded kernel keeps its arguments,
 * and with them every address. Nothing else may be asked of the device meanwhile: no copy between
 * host and device, no memory, no wait. xd_dev.graphs is NULL for a device that cannot record. */
#ifndef XD_BACKEND_GRAPHS_H
#define XD_BACKEND_GRAPHS_H

#include "backend/backend.h"

typedef struct xd_graph xd_graph;

struct xd_dev_graphs {
    xd_status (*begin)(xd_dev *d);
    /* Ends the recording. *g is NULL, and nothing has run, where work could not be recorded. */
    xd_status (*end)(xd_dev *d, xd_graph **g);
    /* Gives the recorded work to the device, behind all work before it. */
    xd_status (*run)(xd_dev *d, xd_graph *g);
    void      (*drop)(xd_dev *d, xd_graph *g);  /* g may be NULL, or on its way                 */
};

#endif
