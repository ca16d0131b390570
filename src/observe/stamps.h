/* stamps.h - measures the begin and end times of ops on an asynchronous device (a GPU).
 *
 * A timestamp event is queued before and after each op. The timestamps are read many at a time, so
 * that the host does not wait for single ops. */
#ifndef XD_OBSERVE_STAMPS_H
#define XD_OBSERVE_STAMPS_H

#include "backend/backend.h"

typedef struct xd_stamped {
    xd_op   op;
    /* before xd_stamps_read: indices into `ns`; after xd_stamps_read: times in ns */
    int64_t begin, end;
} xd_stamped;

typedef struct xd_stamps {
    xd_dev     *dev; /* device with timestamps; NULL: the device is synchronous */
    xd_stamped *v;
    int64_t    *ns;
    int         n, cap;
} xd_stamps;

/* Prepares timestamps if d is asynchronous. If the device is synchronous, all functions of stamps.h
 * do nothing. */
void    xd_stamps_open(xd_stamps *s, xd_dev *d);
void    xd_stamps_close(xd_stamps *s);
/* Queue a timestamp before and after an operation. xd_stamps_begin returns the timestamp's number,
 * which is passed to xd_stamps_end; -1 means no timestamp. */
int64_t xd_stamps_begin(xd_stamps *s);
void    xd_stamps_end(xd_stamps *s, xd_op op, int64_t begin);
/* Returns 1 if so many timestamps are queued that xd_stamps_read should be called. */
int     xd_stamps_full(const xd_stamps *s);
/* Waits for the device and reads all timestamps. Returns the number of ops since the last call of
 * xd_stamps_read. s->v contains the times of these ops in order, valid until the next call of
 * xd_stamps_begin. */
int     xd_stamps_read(xd_stamps *s);

#endif
