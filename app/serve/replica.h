/* replica.h - lets several servers, the replicas, share one directory of results (--results).
 *
 * Every server has a lease in the directory: a file that shows that the server is alive. A lease is
 * a file NAME.lease whose modification time its server changes every second. A server counts as
 * dead if its lease is missing, or has not changed for XD_REPLICA_DEAD_S seconds, or, on the same
 * host, if no process holds the lock of its lease. Servers only observe whether the modification
 * time of a lease changes, so that the clocks of hosts need not agree.
 *
 * Each task belongs to exactly one of the servers, which runs it. To take over a task of a dead
 * server, a server creates a claim: a file ID.claimN, where N is one more than the task's number of
 * claims so far. The claim file is created atomically, so that only one server gets the task. */
#ifndef XD_SERVE_REPLICA_H
#define XD_SERVE_REPLICA_H

#include "base/err.h"

enum { XD_REPLICA_NAME = 64, XD_REPLICA_DEAD_S = 10 };
#define XD_REPLICA_LEASE ".lease"
#define XD_REPLICA_CLAIM ".claim"
#define XD_REPLICA_CANCEL ".cancel"

typedef struct xd_replica xd_replica;

/* Creates the lease of this server in the directory `dir`. */
xd_status   xd_replica_open(xd_replica **r, const char *dir, xd_err *e);
void        xd_replica_close(xd_replica **r); /* removes the lease */
const char *xd_replica_name(const xd_replica *r);
/* Renews the lease of this server, also if the disk is full. If another server has removed the
 * lease, because this server was stopped for a long time, creates a lease with a new name and
 * returns 1; else returns 0. */
int         xd_replica_renew(xd_replica *r);
/* Returns 1 if no running server has this name. */
int         xd_replica_is_dead(xd_replica *r, const char *name);
/* Returns 1 if the file name is the name of a server's lease. Removes the lease of a dead server.
 * For the lease of a running server, increments *others and, if that server's name is
 * alphabetically before the name of this server, also *before. */
int         xd_replica_visit(xd_replica *r, const char *file, int *others, int *before);

/* Finds the server to which a task belongs. `owner` is the server's name in the file of the task,
 * and `claims` the number of claims in this file; if a server has claimed the task since, both are
 * replaced by the values of the last claim. */
void xd_replica_owner(const xd_replica *r, const char *id, char owner[XD_REPLICA_NAME],
                      int *claims);
/* Claims a task that has been claimed `claims` times so far. Returns 1 if this server gets the
 * task, 0 if another server was faster or the claim cannot be created. */
int  xd_replica_claim(const xd_replica *r, const char *id, int claims);
/* Returns 1 if another server has claimed a task that had been claimed `claims` times before. */
int  xd_replica_is_claimed(const xd_replica *r, const char *id, int claims);
/* Asks the server that runs a task to cancel the task, by creating the file ID.cancel. */
void xd_replica_ask_cancel(const xd_replica *r, const char *id);
/* Removes the claims of an ended task, and its file ID.cancel. */
void xd_replica_remove_claims(const xd_replica *r, const char *id, int claims);

#endif
