/* graphs.cc - captured work of the simulated GPUs: noted in order, its arguments as they were
 *
 * While a thread captures, what waits, takes or gives back memory, or uses an event is refused, and
 * the capture is lost. A driver allows some of it. */
#include "tests/sim/sim.h"

namespace sim
{
namespace
{
thread_local CUstream capturing; /* the stream that this thread captures */
}

/* 1: the call is refused, and the capture, if there is one, is lost. */
int breaks_capture()
{
    if (capturing)
        capturing->into->lost = 1;
    return capturing != nullptr;
}
} // namespace sim
using namespace sim;

API CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (!current)
        return XD_CU_INVALID_CONTEXT;
    if (!s || s->of != current || s->into || capturing || mode < 0 || mode > 2)
        return XD_CU_INVALID_VALUE;
    s->into = new CUgraph_st;
    capturing = s;
    return XD_CU_SUCCESS;
}
API CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    *out = nullptr;
    if (!s || !s->into || s != capturing)
        return XD_CU_INVALID_VALUE;
    CUgraph_st *graph = s->into;
    s->into = nullptr;
    capturing = nullptr;
    if (!graph->lost) {
        *out = graph;
        return XD_CU_SUCCESS;
    }
    delete graph;
    return XD_CU_CAPTURE_LOST;
}
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph graph, unsigned long long)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    if (breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
    *x = new CUgraphExec_st { graph->items };
    return XD_CU_SUCCESS;
}
/* Work that follows in the stream waits for the whole graph. */
API CUresult cuGraphLaunch(CUgraphExec x, CUstream s)
{
    std::lock_guard<std::recursive_mutex> g(lock);
    CUresult r = XD_CU_SUCCESS;
    if (breaks_capture())
        return XD_CU_CAPTURE_REFUSED;
    counts.graphs++;
    for (size_t i = 0; i < x->items.size() && r == XD_CU_SUCCESS; i++)
        r = add(s, x->items[i]);
    return r;
}
API CUresult cuGraphExecDestroy(CUgraphExec x)
{
    delete x;
    return XD_CU_SUCCESS;
}
API CUresult cuGraphDestroy(CUgraph g)
{
    delete g;
    return XD_CU_SUCCESS;
}
