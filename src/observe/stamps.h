/* stamps.h - when a device that works on its own began and ended ops
 *
 * Each op is put between two stamps in the order of the device's work. They are read together, so
 * no op is waited for. */
#ifndef XD_OBSERVE_STAMPS_H
#define XD_OBSERVE_STAMPS_H

#include "backend/backend.h"

typedef struct xd_stamped {
    xd_op   op;
    int64_t begin, end;         /* numbers of stamps; after xd_stamps_read ns                  */
} xd_stamped;

typedef struct xd_stamps {
    xd_dev     *dev;            /* NULL: kernels of the device have ended when they return     */
    xd_stamped *v;
    int64_t    *ns;
    int         n, cap;
} xd_stamps;

/* Is d a device that works on its own? Then ops are stamped. */
void    xd_stamps_open(xd_stamps *s, xd_dev *d);
void    xd_stamps_close(xd_stamps *s);
/* A stamp before an op; -1: none, which xd_stamps_end takes too. */
int64_t xd_stamps_begin(xd_stamps *s);
void    xd_stamps_end(xd_stamps *s, xd_op op, int64_t begin);
/* Are there so many that they should be read? */
int     xd_stamps_full(const xd_stamps *s);
/* Waits for the device. The ops since the last call are v[0] to v[n - 1], in order; n is returned.
 * They are valid until the next xd_stamps_begin. */
int     xd_stamps_read(xd_stamps *s);

#endif
