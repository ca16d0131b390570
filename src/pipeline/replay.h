/* replay.h - records the kernel launches of a pass in one step and replays them in later steps
 * (CUDA graphs).
 *
 * The kernel launches of a pass repeat from step to step if its tensors have the same addresses.
 * The first two passes run normally, the third pass is recorded, and later passes replay the
 * record. Kernels read values that change from step to step from device memory. */
#ifndef XD_PIPELINE_REPLAY_H
#define XD_PIPELINE_REPLAY_H

#include "backend/graphs.h"
#include "exec/net.h"

enum { XD_REPLAYS = 8, XD_REPLAY_ADDRESSES = 6 };

/* Key of a recorded pass: the addresses of its tensors, the numbers of pass and patch, and a copy
 * of the model's own data of the pass (xd_state.local). Two passes with equal keys launch the same
 * kernels. */
typedef struct xd_replay_key {
    int         pass, patch;
    const void *at[XD_REPLAY_ADDRESSES];
    const void *local;
    size_t      local_size;
} xd_replay_key;

typedef struct xd_replayed {
    xd_replay_key key;          /* key of the recorded pass; the struct owns key.local         */
    int           seen;
    xd_graph     *g;
} xd_replayed;

typedef struct xd_replay {
    xd_dev     *dev;            /* device that records passes; NULL: no recording              */
    xd_replayed v[XD_REPLAYS];
    /* number of keys in v; index + 1 in v of the pass being recorded, or 0 */
    int         n, recorded;
    xd_err      before;
} xd_replay;

typedef enum xd_replay_how { XD_RUN, XD_RECORD, XD_DONE } xd_replay_how;

void xd_replay_open(xd_replay *r, xd_dev *dev, const xd_counts *c);
void xd_replay_close(xd_replay *r);
/* Call before a pass. The result tells what to do: XD_DONE: nothing, because the recorded pass has
 * been launched; XD_RUN: run the pass; XD_RECORD: run the pass, then call xd_replay_end. */
xd_replay_how xd_replay_begin(xd_replay *r, xd_exec *x, const xd_replay_key *key);
/* Ends the recording of a pass and launches the recorded pass. Returns 0 if recording failed; then
 * nothing has run, x is unchanged, and no later pass is recorded. */
int  xd_replay_end(xd_replay *r, xd_exec *x);

#endif
