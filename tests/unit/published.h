/* published.h - for tests: configs and tensor lists of published models, which are not in the tree.
 *
 * XDIT_TEST_HF names their folder, as tools/fetch_configs.py makes it (default ../shared/hf; a
 * relative name counts from the source tree, where unit tests run). Where something is absent a
 * check is not run, and tests/run.sh counts it. */
#ifndef XD_TESTS_PUBLISHED_H
#define XD_TESTS_PUBLISHED_H

const char *published_folder(void);
/* The path of a file or folder there, named ORGANISATION/MODEL/...; good until the eighth call
 * after. NULL: it is absent, and a line says that a check is not run. */
const char *published_path(const char *name);
/* That line, of whatever is needed. */
void        published_absent(const char *what);

#endif
