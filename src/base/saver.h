/* saver.h - runs a background thread that saves snapshots, so that the thread that makes them does
 * not wait for the disk.
 *
 * While a snapshot is being saved, at most one more waits; a newer snapshot replaces the waiting
 * one. Only one thread may call the functions, the one that opens and closes the saver. */
#ifndef XD_BASE_SAVER_H
#define XD_BASE_SAVER_H

#include "base/err.h"

typedef struct xd_saver xd_saver;

/* save: saves a snapshot; called on the background thread. drop: frees a snapshot; called on the
 * background thread and on the caller's thread, but not while the snapshot is being saved. Returns
 * NULL if out of memory. */
typedef struct xd_saver_ops {
    xd_status (*save)(void *snapshot, xd_err *e);
    void      (*drop)(void *snapshot);
} xd_saver_ops;
xd_saver *xd_saver_open(const xd_saver_ops *ops);
/* Returns a snapshot whose contents are no longer needed (one that waits or was saved), so that the
 * caller can fill it again and owns it. Returns NULL if there is no such snapshot. */
void     *xd_saver_reuse(xd_saver *s);
/* Begins to save a snapshot, which the saver then owns. If a thread cannot be started, xd_saver_put
 * saves the snapshot before it returns. */
void      xd_saver_put(xd_saver *s, void *snapshot);
/* Waits until all snapshots are saved. */
void      xd_saver_wait(xd_saver *s);
/* Returns the status and the error of the last failed save since the previous call of
 * xd_saver_status, or XD_OK if no save has failed. */
xd_status xd_saver_status(xd_saver *s, xd_err *e);
/* Waits until all snapshots are saved, ends the thread and frees the saver. Accepts NULL. */
void      xd_saver_close(xd_saver **s);

#endif
