/* saver.h - runs a background thread that saves snapshots, so that the thread that makes them does
 * not wait for the disk.
 *
 * At most one snapshot waits while another one is saved: the newest replaces the one that waits.
 * The functions are for one thread, which opens and closes the saver. */
#ifndef XD_BASE_SAVER_H
#define XD_BASE_SAVER_H

#include "base/err.h"

typedef struct xd_saver xd_saver;

/* save: saves a snapshot; called on the background thread. drop: frees a snapshot; called on both
 * threads, not while the snapshot is saved. Returns NULL if out of memory. */
typedef struct xd_saver_ops {
    xd_status (*save)(void *snapshot, xd_err *e);
    void      (*drop)(void *snapshot);
} xd_saver_ops;
xd_saver *xd_saver_open(const xd_saver_ops *ops);
/* Returns a snapshot whose contents are no longer needed, for the caller to fill again: the one
 * that waits, or one that was saved. Returns NULL if there is none. The caller becomes the
 * owner. */
void     *xd_saver_reuse(xd_saver *s);
/* Begins to save a snapshot, of which the saver becomes the owner. If a thread cannot be started,
 * saves the snapshot before it returns. */
void      xd_saver_put(xd_saver *s, void *snapshot);
/* Waits until no snapshot waits or is saved. */
void      xd_saver_wait(xd_saver *s);
/* Returns the status and the error of the last save that has failed since the previous call; XD_OK:
 * none has failed. */
xd_status xd_saver_status(xd_saver *s, xd_err *e);
/* Waits as xd_saver_wait does, ends the thread and frees the saver. Accepts NULL. */
void      xd_saver_close(xd_saver **s);

#endif
