/* word_list.h - lists of words in one text, as tables have them */
#ifndef XD_BASE_WORD_LIST_H
#define XD_BASE_WORD_LIST_H

#include <stddef.h>

/* Is `word` one of the list's, which stand apart by spaces or commas? Without a letter it is none. */
int xd_list_has(const char *list, const char *word);
/* The same of the first n letters of `word`. */
int xd_list_has_n(const char *list, const char *word, size_t n);

/* The name here of a number type, "bf16" for "bfloat16"; another word is itself. */
const char *xd_word_dtype(const char *word);
/* Is it a name of float16, which nothing here computes in? */
int xd_word_half(const char *word);

#endif
