/* scratch.h - for tests: a directory of their own that goes away with them */
#ifndef XD_TESTS_SCRATCH_H
#define XD_TESTS_SCRATCH_H

#include <stddef.h>

enum { SCRATCH_PATH = 512 };
extern char scratch[SCRATCH_PATH]; /* the directory */

/* Makes the directory, in TMPDIR; 0, or -1 where that fails. */
int         scratch_open(void);
/* Removes the directory and what is in it. */
void        scratch_close(void);
/* The path of a name in the directory; good until the eighth call after. */
const char *in_scratch(const char *name);
/* Writes a file of that name; the process ends where that fails. */
void        scratch_put(const char *name, const void *data, size_t len);
/* Removes the files of the directory (and of directories in it, one level deep); returns how
 * many there were at the top. */
int         scratch_clean(void);

/* scratch_open and scratch_close as cmocka calls them before and after a group of tests. */
int scratch_set_up(void **state);
int scratch_tear_down(void **state);

#endif
