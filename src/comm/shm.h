/* shm.h - inside comm: shared memory between processes of one host
 *
 * The memory is an anonymous file (memfd) without a name, so nothing remains whichever process is
 * killed, and it uses memory, not disk space. One process makes it; the others open it through
 * /proc/PID/fd of the first. Then the file is closed; the memory is freed when the last process
 * unmaps it. */
#ifndef XD_COMM_SHM_H
#define XD_COMM_SHM_H

#include <stddef.h>
#include <stdint.h>

typedef struct xd_shm_key {     /* identifies the file to the other processes                 */
    int64_t pid, fd, dev, ino;
} xd_shm_key;

/* Makes an open file of `bytes`, all 0. Returns its descriptor; -1: failed. */
int   xd_shm_make(size_t bytes, xd_shm_key *key);
/* Opens the file of `key` in another process, while its maker has it open. -1: not accessible. */
int   xd_shm_find(const xd_shm_key *key);

#endif
