/* replay.h - records the kernel launches of a guidance pass in one step, and replays the launches
 * in later steps (CUDA graphs).
 *
 * In every step, evaluating the transformer for one prompt (a guidance pass) launches the same
 * kernels, as long as the tensors keep their addresses. The first two runs of a guidance pass are
 * normal, the third run is recorded, and later runs replay the record. Values that change from step
 * to step are in device memory, where the replayed kernels read them. */
#ifndef XD_PIPELINE_REPLAY_H
#define XD_PIPELINE_REPLAY_H

#include "backend/graphs.h"
#include "exec/net.h"

enum { XD_REPLAYS = 8, XD_REPLAY_ADDRESSES = 6 };

/* Key that identifies a recorded guidance pass: the addresses of its tensors, its number, the
 * number of the patch, and a copy of the data that the model keeps for it (xd_state.local). Two
 * guidance passes with equal keys launch the same kernels. */
typedef struct xd_replay_key {
    int         pass, patch;
    const void *at[XD_REPLAY_ADDRESSES];
    const void *local;
    size_t      local_size;
} xd_replay_key;

typedef struct xd_replayed {
    xd_replay_key key; /* key of the recorded guidance pass; this struct frees key.local */
    int           seen;
    xd_graph     *g;
} xd_replayed;

typedef struct xd_replay {
    xd_dev     *dev; /* device that records kernel launches; NULL: no recording */
    xd_replayed v[XD_REPLAYS];
    /* n: number of entries in the array v. recorded: 1 + the index in v of the guidance pass that
     * is being recorded; 0: nothing is being recorded. */
    int         n, recorded;
    xd_err      before;
} xd_replay;

typedef enum xd_replay_how { XD_RUN, XD_RECORD, XD_DONE } xd_replay_how;

void          xd_replay_open(xd_replay *r, xd_dev *dev, const xd_counts *c);
void          xd_replay_close(xd_replay *r);
/* Call xd_replay_begin before a guidance pass. If xd_replay_begin returns XD_RUN, the caller runs
 * the guidance pass. If xd_replay_begin returns XD_RECORD, the caller runs the guidance pass and
 * then calls xd_replay_end. If xd_replay_begin returns XD_DONE, the caller does nothing, because
 * xd_replay_begin has launched the recorded kernels. */
xd_replay_how xd_replay_begin(xd_replay *r, xd_exec *x, const xd_replay_key *key);
/* Ends the recording of a guidance pass and launches the recorded kernels. Returns 0 if the
 * recording failed. If the recording failed, the caller must run the guidance pass again, because
 * none of its kernels has run, and later guidance passes are not recorded. */
int           xd_replay_end(xd_replay *r, xd_exec *x);

#endif
