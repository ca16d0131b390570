/* graphs.c - captures the work of the device's stream as CUDA graphs, and launches the graphs on
 * the same stream */
#include "backend/graphs.h"

#include <stdlib.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/load.h"

struct xd_graph { CUgraphExec e; };

/* Starts to capture the work of the device's stream as a CUDA graph. The capture restricts only the
 * calls of this thread, so that other threads may load weights meanwhile. */
static xd_status begin(xd_dev *d)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    c->cu->cuCtxSetCurrent(c->context);
    if (c->waits)
        return XD_EUNSUPPORTED;
    CUresult r = c->cu->cuStreamBeginCapture_v2(c->stream, XD_CU_CAPTURE_THREAD_LOCAL);
    c->captures = r == XD_CU_SUCCESS;
    return xd_cuda_check("cuStreamBeginCapture", r);
}

static xd_status end(xd_dev *d, xd_graph **g)
{
    xd_cuda_dev          *c = xd_cuda_of(d);
    const xd_cuda_driver *cu = c->cu;
    CUgraph               graph = NULL;
    xd_graph             *own = calloc(1, sizeof *own);
    *g = NULL;
    c->captures = 0;
    cu->cuCtxSetCurrent(c->context);
    CUresult r = cu->cuStreamEndCapture(c->stream, &graph);
    if (r == XD_CU_SUCCESS && own)
        r = cu->cuGraphInstantiateWithFlags(&own->e, graph, 0);
    if (graph)
        cu->cuGraphDestroy(graph);
    if (r == XD_CU_SUCCESS && own) {
        *g = own;
        c->ngraphs++;
        return XD_OK;
    }
    free(own);
    return own ? xd_cuda_check("cuStreamEndCapture", r) : XD_ENOMEM;
}

static xd_status run(xd_dev *d, xd_graph *g)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    c->cu->cuCtxSetCurrent(c->context);
    return xd_cuda_check("cuGraphLaunch", c->cu->cuGraphLaunch(g->e, c->stream));
}

static void drop(xd_dev *d, xd_graph *g)
{
    xd_cuda_dev *c = xd_cuda_of(d);
    if (!g)
        return;
    c->cu->cuCtxSetCurrent(c->context);
    c->cu->cuGraphExecDestroy(g->e);
    c->ngraphs--;
    free(g);
}

const xd_dev_graphs xd_cuda_graphs = { .begin = begin, .end = end, .run = run, .drop = drop };
