/* hosts.h - reads the hosts of --hosts, and records which of these hosts are lost */
#ifndef XD_LAUNCH_HOSTS_H
#define XD_LAUNCH_HOSTS_H

#include <stddef.h>

#include "base/err.h"

typedef struct xd_host_entry {
    char *name; /* name or address of the host */
    int   slots, lost;
} xd_host_entry;

typedef struct xd_hosts {
    xd_host_entry *v;
    int            n; /* 0: no hosts are given */
} xd_hosts;

/* Reads the hosts in a list such as "a:2,b:2", where a host without a number has one slot (place
 * for a rank). If `text` is the name of a file, reads lines such as "a slots=2" or "a:2" from the
 * file; comments begin with #. An IPv6 address is written in brackets. XD_EINVAL: there is no host,
 * a host is listed twice, or a number of slots is invalid. */
xd_status xd_hosts_read(xd_hosts *h, const char *text, xd_err *e);
void      xd_hosts_free(xd_hosts *h);
/* Returns the number of slots of the hosts that are not lost. */
int       xd_hosts_slots(const xd_hosts *h);
/* Marks a host as lost. Returns 0 if no host has this name, or if the host was lost before. */
int       xd_hosts_lose(xd_hosts *h, const char *name);
/* Returns a malloc'ed list such as "a:2,b:1" with the first `ranks` slots of the hosts that are not
 * lost; NULL: memory is exhausted. */
char     *xd_hosts_text(const xd_hosts *h, int ranks);

#endif
