/* shm.h - used only in src/comm: makes memory that processes of one host share.
 *
 * The shared memory is an anonymous file (memfd) without a name, so nothing remains if processes
 * are killed, and no disk space is used. One process makes the file, and the other processes open
 * it through the directory /proc/PID/fd of that process. After all processes have mapped the file,
 * they close it. The system frees the memory when the last process unmaps it. */
#ifndef XD_COMM_SHM_H
#define XD_COMM_SHM_H

#include <stddef.h>
#include <stdint.h>

typedef struct xd_shm_key { /* key that identifies an anonymous file for other processes */
    int64_t pid, fd, dev, ino;
} xd_shm_key;

/* Makes and opens an anonymous file of `bytes` zero bytes. Returns the file descriptor, or -1 on
 * failure. */
int xd_shm_make(size_t bytes, xd_shm_key *key);
/* Opens the anonymous file of `key`, which another process has made and still has open. Returns the
 * file descriptor, or -1 if the file is not accessible. */
int xd_shm_find(const xd_shm_key *key);

#endif
