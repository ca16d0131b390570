/* shm.h - inside comm: memory that processes of one host share
 *
 * The file has no name, so nothing stays behind whichever process is killed, and it takes memory,
 * not space of a file system. One process makes it; the others open it through the first one's file
 * descriptor. Then the file is closed, and the memory ends with the last process that maps it. */
#ifndef XD_COMM_SHM_H
#define XD_COMM_SHM_H

#include <stddef.h>
#include <stdint.h>

typedef struct xd_shm_key {     /* identifies the file to the other processes                 */
    int64_t pid, fd, dev, ino;
} xd_shm_key;

/* Makes an open file of `bytes`, all 0. Returns its descriptor; -1: impossible. */
int   xd_shm_make(size_t bytes, xd_shm_key *key);
/* Opens the file of `key` in another process, while its maker has it open. -1: not accessible. */
int   xd_shm_find(const xd_shm_key *key);

#endif
