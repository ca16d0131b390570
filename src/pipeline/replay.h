/* replay.h - passes that a device records in one step and runs again in later steps
 *
 * What a pass gives to the device repeats from step to step where its tensors lie at the same
 * addresses. The first two passes run as they are, the third is recorded, later ones run again what
 * was recorded. The numbers that change from step to step are in device memory. */
#ifndef XD_PIPELINE_REPLAY_H
#define XD_PIPELINE_REPLAY_H

#include "backend/graphs.h"
#include "exec/net.h"

enum { XD_REPLAYS = 8, XD_REPLAY_ADDRESSES = 6 };

/* What decides whether two passes are the same work: addresses, the pass, and a copy of the model's
 * tensors of this pass (xd_state.local). */
typedef struct xd_replay_key {
    int         pass, patch;
    const void *at[XD_REPLAY_ADDRESSES];
    const void *local;
    size_t      local_size;
} xd_replay_key;

typedef struct xd_replayed {
    xd_replay_key key;          /* key.local: own                                              */
    int           seen;
    xd_graph     *g;
} xd_replayed;

typedef struct xd_replay {
    xd_dev     *dev;            /* NULL: every pass runs as it is                              */
    xd_replayed v[XD_REPLAYS];
    int         n, recorded;    /* recorded: its number plus 1, while the device records       */
    xd_err      before;
} xd_replay;

typedef enum xd_replay_how { XD_RUN, XD_RECORD, XD_DONE } xd_replay_how;

/* Do passes of so many ops, of which so many are small, take longer to launch than to compute? The
 * environment variable XDIT_GRAPHS decides in place of this rule: 0 never, 1 always. */
int  xd_replay_pays(const xd_counts *c);
void xd_replay_open(xd_replay *r, xd_dev *dev, const xd_counts *c);
void xd_replay_close(xd_replay *r);
/* Before a pass. XD_DONE: the device has been given the pass. XD_RUN: it is to be run. XD_RECORD:
 * it is to be run too, and xd_replay_end follows. */
xd_replay_how xd_replay_begin(xd_replay *r, xd_exec *x, const xd_replay_key *key);
/* Gives the recorded pass to the device. 0: it could not be recorded, nothing has run, x is as it
 * was, and no later pass is recorded. */
int  xd_replay_end(xd_replay *r, xd_exec *x);

#endif
