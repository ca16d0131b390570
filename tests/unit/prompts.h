/* prompts.h - for tests of tokenizers: the 500 prompts of tools/golden/cases/tok.py, and ids
 * compared.
 *
 * What fails, fails the test that runs. */
#ifndef XD_TESTS_PROMPTS_H
#define XD_TESTS_PROMPTS_H

#include <stddef.h>
#include <stdint.h>

#include "tok/tok.h"

#define GOLDEN "tests/golden/tok/"
#define GOLDEN_LM "tests/golden/tok-lm/"

enum { PROMPTS = 500, MAX_FILE = 1 << 28 };

typedef struct prompt {
    char  *text;
    size_t len;
} prompt;
extern prompt prompts[PROMPTS];

/* What cmocka calls before and after a group of tests: prompts[] is there between them. */
int read_prompts(void **state);
int read_lm_texts(void **state); /* the texts of tools/golden/cases/tok_lm.py instead */
int forget_prompts(void **state);

/* A line with \xHH escapes, decoded in place (an escape above 7f does not occur); its length. */
size_t unescape(char *s, size_t len);

typedef xd_status open_tok(xd_tok **t, const char *dir, xd_err *e);

xd_tok  *must_open(open_tok *open, const char *dir);
/* The ids of a text, malloc'ed, at most `max` (0: all of them); their number goes to *n. */
int32_t *ids_of(const xd_tok *t, const char *s, size_t len, int64_t max, int64_t *n);
/* Compares the ids of all prompts with a file of lines "count hash". */
void     check_hashes(const xd_tok *t, const char *file);
/* Both outer tokens stay in a text that is cut at its left end, or at its right one. */
void     cut_all(const xd_tok *t, int left, int32_t first, int32_t last);
/* Do two texts have the same ids? */
int      equal(const xd_tok *t, const char *a, const char *b);
/* Two texts, which may hold NUL bytes, have the same ids. */
void     same_ids(const xd_tok *t, const char *a, size_t alen, const char *b, size_t blen);
/* Copies a file of the directory `dir` to the scratch directory. */
void     copy_file(const char *dir, const char *name);
/* The scratch directory is refused with this status, and the sentence holds these words. */
void     says(const char *what, xd_status code);

#endif
