/* same_files.h - checks that all ranks have identical weight files. */
#ifndef XD_ENGINE_SAME_FILES_H
#define XD_ENGINE_SAME_FILES_H

#include "comm/comm.h"
#include "model/model.h"

enum { XD_FILE_NAME = 112 };

typedef struct xd_file_digest {
    char     name[XD_FILE_NAME];
    uint64_t digest;
} xd_file_digest;

/* Hashes all bytes of all weight files of the open model, using all threads. Sets *list to a
 * malloc'ed array of *n file names and hashes, even if the function fails. Returns XD_EIO if a file
 * cannot be read. */
xd_status xd_file_digests(const xd_model *m, xd_file_digest **list, int *n, xd_err *e);

#endif
