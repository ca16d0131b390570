/* plans.h - defines xd_plans, which contains the predicted times and memory of plans, and the
 * inputs of the predictions. */
#ifndef XD_REPORT_PLANS_H
#define XD_REPORT_PLANS_H

#include "engine/engine.h"
#include "predict/search.h"

enum { XD_PLAN_TEXTS = 4 };

struct xd_plans {
    xd_advise_args a; /* arguments of xd_plans_make, valid only until it returns */
    xd_request     r; /* request whose plans are predicted; its strings are valid as long as `a` */
    xd_engine     *g; /* engine, open only while plans are predicted */
    xd_machine     m;
    xd_search      s;
    /* name of the device, from the arguments or from the machine `m`; NULL: the CPU */
    const char    *device;
    /* bytes of address space that a process of this machine may map; 0: no limit */
    double         space;
    /* copies of the model directory's name and of the strings in the plan's options */
    char          *texts[XD_PLAN_TEXTS];
    xd_plans_info  info;
    xd_plan_info  *plan; /* [info.count]: predictions of the plans */
    /* [info.count][plan.ranks]: predictions for the ranks of each plan; NULL for a plan that was
     * not predicted */
    xd_plan_rank **rank;
};

/* Predicts time and memory of the plans that `args` selects. Free *out with xd_plans_free also
 * after a failure. After a failure, *out contains the plans that the search refused, if any. */
xd_status xd_plans_make(xd_plans **out, const xd_advise_args *args, xd_err *e);

/* Writes an SVG file with a drawing of the last step of plan `explain`, or of the XD_DRAWN fastest
 * plans. */
enum { XD_DRAWN = 4 };
xd_status xd_plans_draw(const xd_plans *p, const char *path, xd_err *e);

#endif
