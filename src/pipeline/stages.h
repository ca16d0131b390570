/* stages.h - splits the transformer's blocks into pipeline stages. */
#ifndef XD_PIPELINE_STAGES_H
#define XD_PIPELINE_STAGES_H

#include "pipeline/job.h"

/* Splits the transformer's blocks into the plan's stages, with the numbers of blocks that the plan
 * lists or, without a list, by the counted cost of each block. Stage i runs blocks [cut[i], cut[i +
 * 1]). Call xd_stages_cut before any weights are loaded. */
xd_status xd_stages_cut(xd_job *j, int cut[XD_MAXSTAGE + 1], xd_err *e);
/* Splits the transformer's blocks as xd_stages_cut does, and restricts this rank to the blocks of
 * its pipeline stage. Does nothing if weights are already loaded. */
xd_status xd_stages_open(xd_job *j, xd_err *e);

#endif
