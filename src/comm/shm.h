/* shm.h - inside comm: memory that processes of one host share
 *
 * It has no name, so that nothing stays behind whoever is killed, and takes its room from memory, not
 * from a file system. One process makes it, the others find it among the files that the first has
 * open; then the file is closed, and the memory ends with the last process that has it mapped. */
#ifndef XD_COMM_SHM_H
#define XD_COMM_SHM_H

#include <stddef.h>
#include <stdint.h>

typedef struct xd_shm_key {   /* where it is, for the others                                 */
    int64_t pid, fd, dev, ino;
} xd_shm_key;

/* An open file of so many bytes, all 0; -1: there is none. */
int   xd_shm_make(size_t bytes, xd_shm_key *key);
/* The same file in another process, while the first has it open; -1: it is not to be had. */
int   xd_shm_find(const xd_shm_key *key);

#endif
