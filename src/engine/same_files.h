/* same_files.h - whether the weight files of all ranks are the same in every byte */
#ifndef XD_ENGINE_SAME_FILES_H
#define XD_ENGINE_SAME_FILES_H

#include "comm/comm.h"
#include "model/model.h"

enum { XD_FILE_NAME = 112 };

typedef struct xd_file_digest { char name[XD_FILE_NAME]; uint64_t digest; } xd_file_digest;

/* Reads all weight files of the open model with all threads: their names, and hashes of all their
 * bytes, malloc'ed also after a failure. XD_EIO: one cannot be read. */
xd_status xd_file_digests(const xd_model *m, xd_file_digest **list, int *n, xd_err *e);

#endif
